"""The risk of a log: what its answers, taken together, give away about single people."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.assess.risk import Attempt
from deniable.attacks.auditing import audit_counts
from deniable.attacks.base import Deadline, Outcome, Progress, tell
from deniable.attacks.differencing import differencing
from deniable.attacks.logs import Family, families, read_log
from deniable.attacks.nearest import is_number, numbers
from deniable.attacks.reconstruction import reconstruct
from deniable.errors import ParameterError

MOST_AUDITED = 300
"""Bits of so many people are audited by the solver; beyond, linear algebra alone is used."""


def attack_log(
    lines: Iterable[str],
    population: pa.Table,
    original: pa.Table | None = None,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> tuple[Attempt, ...]:
    """Difference, audit and (where the truth is at hand to score it) decode a log, secret by secret.

    `population` is what the intruder knows of everybody; `original` holds the secrets, row by row for the same people.
    """
    asked = families(read_log(lines), population)
    deadline = Deadline(seconds)
    differences, audits, decoded = [], [], []
    for place, family in enumerate(asked):
        deadline.check()
        secret = _secret(family, original)
        differences.append(differencing(family.groups, family.totals, secret=secret))
        if family.aggregate == "count" and family.groups.shape[1] <= MOST_AUDITED and _whole(family.totals):
            audits += _audited(family, deadline.left)
        if family.aggregate == "count" and secret is not None:
            decoded.append(reconstruct(family.groups, family.totals, secret > 0.5, seconds=deadline.left))
        tell(progress, (place + 1) / len(asked))
    named = (("differencing", differences), ("auditing", audits), ("reconstruction", decoded))
    return tuple(Attempt(name, tuple(found)) for name, found in named if found)


def _audited(family: Family, seconds: float | None) -> list[Outcome]:
    """The solver's verdicts; counts that no bits give (there is noise in them) determine nobody."""
    try:
        return [audit_counts(family.groups, family.totals, seconds=seconds or 10.0).outcome()]
    except ParameterError:
        return []


def _whole(totals: NDArray[np.float64]) -> bool:
    return bool((totals == np.round(totals)).all())


def _secret(family: Family, original: pa.Table | None) -> NDArray[np.float64] | None:
    """The true values of a secret, where the original has a column of its name."""
    if original is None or family.of not in original.column_names:
        return None
    values = original[family.of]
    if pa.types.is_boolean(values.type):
        return np.asarray(values.to_numpy(zero_copy_only=False), np.float64)
    if not is_number(values.type) or len(values) != family.groups.shape[1]:
        raise ParameterError(f"The secret '{family.of}' is not one number for each person of the register")
    return numbers(values)
