"""The risk of a query log: what its answers, taken together, give away about single people."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.assess.risk import Attempt
from deniable.attacks.aggregates.differencing import attack_by_differencing
from deniable.attacks.aggregates.query_auditing import Verdicts, audit_counts, audit_maxima, audit_sums
from deniable.attacks.aggregates.query_log import Family, group_questions, read_log
from deniable.attacks.aggregates.reconstruction import reconstruct
from deniable.attacks.nearest_records import convert_to_floats, is_number
from deniable.attacks.outcome import Deadline, Outcome, Progress, tell
from deniable.errors import ParameterError

MOST_AUDITED = 300
"""Bits and numbers of so many people are audited by a solver; beyond, linear algebra alone is used."""
SECONDS = 10.0
"""What an audit may take where nobody says."""


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
    asked = group_questions(read_log(lines), population)
    deadline = Deadline(seconds)
    differences, audits, decoded = [], [], []
    for place, family in enumerate(asked):
        deadline.check()
        secret = _secret(family, original)
        if family.aggregate != "max":
            differences.append(attack_by_differencing(family.groups, family.totals, secret=secret))
        audits += _try_auditing(family, secret, deadline.left)
        if family.aggregate == "count" and secret is not None:
            decoded.append(reconstruct(family.groups, family.totals, secret > 0.5, seconds=deadline.left))
        tell(progress, (place + 1) / len(asked))
    named = (("differencing", differences), ("auditing", audits), ("reconstruction", decoded))
    return tuple(Attempt(name, tuple(found)) for name, found in named if found)


def _try_auditing(family: Family, secret: NDArray[np.float64] | None, seconds: float | None) -> list[Outcome]:
    """The verdicts on a family; answers that no values give (there is noise in them) determine nobody."""
    if not _is_auditable(family):
        return []
    try:
        return [_audit(family, seconds or SECONDS).outcome(secret)]
    except ParameterError:
        return []


def _is_auditable(family: Family) -> bool:
    """Maxima always; counts and sums of few people; sums only between known limits: without, differencing says all."""
    if family.aggregate == "max":
        return True
    few = family.groups.shape[1] <= MOST_AUDITED
    limited = bool(np.isfinite([family.low, family.high]).any())
    return few and (_are_whole(family.totals) if family.aggregate == "count" else limited)


def _audit(family: Family, seconds: float) -> Verdicts:
    if family.aggregate == "count":
        return audit_counts(family.groups, family.totals, seconds=seconds)
    if family.aggregate == "max":
        return audit_maxima(family.groups, family.totals, family.low)
    return audit_sums(family.groups, family.totals, family.low, family.high, seconds=seconds)


def _are_whole(totals: NDArray[np.float64]) -> bool:
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
    return convert_to_floats(values)
