"""The risk of a query log: what its answers, taken together, give away about single people.

A log has one JSON object a line: `where` names public columns and what they must be, `of` the secret that was counted,
summed, averaged or of which the largest was told, `aggregate` how, `answer` the number. A condition is a value, a list
of values, or an object with any of `min`, `max` (both included) and `not`. `low` and `high`, where given, are what
everybody knows the secret to lie between. `deviation` is the standard deviation of the answer's noise, or `scale` the
scale of Laplace noise; where neither is given, the noise is measured by how far answers contradict each other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.assess.evidence import Attempt
from deniable.attacks.aggregates.differencing import attack_by_differencing
from deniable.attacks.aggregates.query_auditing import Verdicts, audit_counts, audit_maxima, audit_sums
from deniable.attacks.aggregates.reconstruction import (
    MOST_PEOPLE,
    measure_noise,
    reconstruct,
    solve_noisy_answers,
)
from deniable.attacks.codes import require_column
from deniable.attacks.nearest_records import convert_to_floats, is_number
from deniable.attacks.outcome import Deadline, Outcome, Progress, tell
from deniable.attacks.solvers import find_determined, find_refused, solve_least_squares
from deniable.errors import DataError, ParameterError

MOST_AUDITED = 300
"""Bits and numbers of so many people are audited by a solver; beyond, linear algebra alone is used."""
MOST_REFUSED = 2_000
"""Of so many questions it is counted how many a curator would have to refuse."""
SECONDS = 10.0
"""What an audit may take where nobody says."""
AGGREGATES = ("count", "sum", "mean", "max")


@dataclass(frozen=True, slots=True)
class Question:
    """An answered question: the group, the secret, how it was aggregated, and the answer."""

    where: Mapping[str, Any]
    of: str
    aggregate: str
    answer: float
    low: float = -np.inf
    high: float = np.inf
    deviation: float = 0.0
    line: int = 0


@dataclass(frozen=True, eq=False, repr=False)
class Family:
    """All questions about one secret: who is in each group, and the total of the secret over it (or its maximum).

    `low` and `high` are what the secret is known to lie between.
    """

    of: str
    aggregate: str
    groups: NDArray[np.bool_]
    totals: NDArray[np.float64]
    low: float
    high: float
    deviations: NDArray[np.float64]
    lines: NDArray[np.int64]


def read_log(lines: Iterable[str]) -> tuple[Question, ...]:
    """The questions of a log; blank lines are passed over, a line that is none is refused by its number."""
    return tuple(_parse_question(line, number) for number, line in enumerate(lines, start=1) if line.strip())


def _parse_question(line: str, number: int) -> Question:
    expected = 'A line such as {"where": {"sex": "F"}, "of": "hiv", "aggregate": "count", "answer": 12}'
    try:
        entry = json.loads(line)
        found = Question(
            dict(entry["where"]),
            str(entry["of"]),
            str(entry["aggregate"]),
            float(entry["answer"]),
            float(entry.get("low", -np.inf)),
            float(entry.get("high", np.inf)),
            float(entry.get("deviation", math.sqrt(2) * float(entry.get("scale", 0)))),
            number,
        )
    except (ValueError, KeyError, TypeError):
        raise DataError(
            f"Line {number} of the log is not an answered question",
            expected=expected,
            remedy="Correct the line, or leave it out",
            charge="",
        ) from None
    if found.aggregate not in AGGREGATES:
        raise DataError(
            f"Line {number} of the log has an unknown aggregate",
            expected=f"One of {', '.join(AGGREGATES)}",
            remedy="Correct the line, or leave it out",
            charge="",
        )
    return found


def find_members(where: Mapping[str, Any], population: pa.Table) -> NDArray[np.bool_]:
    """Who of a population meets all conditions; a missing value meets none."""
    mask = np.ones(population.num_rows, np.bool_)
    for name, condition in where.items():
        mask &= _meets(require_column(population, name), condition)
    return mask


def _meets(values: pa.ChunkedArray, condition: Any) -> NDArray[np.bool_]:
    parts: list[Any] = []
    if isinstance(condition, Mapping):
        if "min" in condition:
            parts.append(pc.greater_equal(values, _cast_value(condition["min"], values.type)))
        if "max" in condition:
            parts.append(pc.less_equal(values, _cast_value(condition["max"], values.type)))
        if "not" in condition:
            parts.append(pc.invert(pc.is_in(values, _list_values(condition["not"], values.type))))
    else:
        parts.append(pc.is_in(values, _list_values(condition, values.type)))
    met = np.ones(len(values), np.bool_)
    for part in parts:
        met &= np.asarray(pc.fill_null(part, False).to_numpy(zero_copy_only=False), np.bool_)
    return met


def _cast_value(value: Any, kind: pa.DataType) -> pa.Scalar:
    try:
        return pa.scalar(value).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(
            f"A condition of the log does not fit a column of type {kind}",
            remedy="Name the register that the questions were about",
            charge="",
        ) from None


def _list_values(value: Any, kind: pa.DataType) -> pa.Array:
    every = value if isinstance(value, list) else [value]
    return pa.array([_cast_value(one, kind).as_py() for one in every], kind)


def group_questions(questions: Sequence[Question], population: pa.Table) -> tuple[Family, ...]:
    """The questions by secret and kind: counts, sums (means as the sums they amount to) and maxima apart."""
    found: dict[tuple[str, str], list[Question]] = {}
    for question in questions:
        kind = "sum" if question.aggregate == "mean" else question.aggregate
        found.setdefault((question.of, kind), []).append(question)
    return tuple(_build_family(of, kind, asked, population) for (of, kind), asked in found.items())


def _build_family(of: str, kind: str, asked: Sequence[Question], population: pa.Table) -> Family:
    groups = np.array([find_members(question.where, population) for question in asked])
    sizes = groups.sum(axis=1)
    times = np.where([q.aggregate == "mean" for q in asked], sizes, 1)
    low, high = max(question.low for question in asked), min(question.high for question in asked)
    totals, noise = np.array([(q.answer, q.deviation) for q in asked], np.float64).T * times
    return Family(of, kind, groups, totals, low, high, noise, np.array([q.line for q in asked]))


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
            differences.append(_difference(family, secret))
        audits += _try_auditing(family, secret, deadline.left)
        if family.aggregate == "count" and secret is not None:
            decoded.append(reconstruct(family.groups, family.totals, secret > 0.5, seconds=deadline.left))
        decoded += _try_solving(family, secret)
        tell(progress, (place + 1) / len(asked))
    named = (("differencing", differences), ("auditing", audits), ("reconstruction", decoded))
    return tuple(Attempt(name, tuple(found)) for name, found in named if found)


def _difference(family: Family, secret: NDArray[np.float64] | None) -> Outcome:
    """Who is isolated, and what refusing would have cost: the questions that nobody could have been answered."""
    found = attack_by_differencing(family.groups, family.totals, secret=secret)
    if family.groups.shape[1] > MOST_AUDITED or len(family.groups) > MOST_REFUSED:
        return found
    return replace(found, figures={**found.figures, "would_be_refused": int(find_refused(family.groups).sum())})


def _try_solving(family: Family, secret: NDArray[np.float64] | None) -> list[Outcome]:
    """Noisy counts and sums, solved together; exact answers are audited instead."""
    bits = family.aggregate == "count"
    if family.aggregate == "max" or family.groups.shape[1] > MOST_PEOPLE:
        return []
    noise = np.where(family.deviations > 0, family.deviations, measure_noise(family.groups, family.totals))
    if not (noise > 0).all():
        return []
    low, high = (0.0, 1.0) if bits else _limit_values(family, noise)
    if not low < high:
        return []
    found = solve_noisy_answers(
        family.groups, family.totals, noise, low, high, bits=bits, secret=secret, lines=family.lines
    )
    return [found]


def _limit_values(family: Family, noise: NDArray[np.float64]) -> tuple[float, float]:
    """What sums are known to lie between: as the log says, else from 0 to the largest that the answers themselves tell.

    Where noise is all there is, the largest estimate is a few deviations: none is then known within a twentieth of it.
    """
    low, high = family.low, family.high
    if not np.isfinite([low, high]).all():
        weighted = solve_least_squares(family.groups / noise[:, None], family.totals / noise)
        told = weighted[find_determined(np.unique(family.groups, axis=0))]
        low = low if np.isfinite(low) else min(0.0, told.min(initial=0.0))
        high = high if np.isfinite(high) else max(0.0, told.max(initial=0.0))
    return float(low), float(high)


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
        raise ParameterError(
            f"The secret '{family.of}' is not one number for each person of the register",
            remedy="Name a register with a row for each person, and numbers in that column",
        )
    return convert_to_floats(values)
