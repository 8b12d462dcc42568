"""The risk of a query log: what its answers, taken together, give away about single people.

A log has one JSON object a line: `where` names public columns and what they must be, `of` the secret that was counted,
summed, averaged or of which the largest was told, `aggregate` how, `answer` the number. A condition is a value, a list
of values, or an object with any of `min`, `max`, `between` (from and to; all ends included) and `not`. `low` and
`high`, where given, are what everybody knows the secret to lie between. `deviation` is the standard deviation of the
answer's noise, or `scale` the scale of Laplace noise; where neither is given, the noise is measured by how far answers
contradict each other. `whole` says that everybody knows the secret to be a whole number; it is taken for known where
all true values are. A line with anything else, or that no table could have answered so, is refused by its number.
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
    measure_excess,
    measure_noise,
    reconstruct,
    solve_noisy_answers,
)
from deniable.attacks.codes import require_column
from deniable.attacks.nearest_records import convert_to_floats, is_number
from deniable.attacks.outcome import Deadline, Outcome, Progress, tell
from deniable.attacks.solvers import find_determined, find_refused, solve_least_squares
from deniable.errors import DataError, ParameterError, nearest

MOST_AUDITED = 300
"""Bits and numbers of so many people are audited by a solver; beyond, linear algebra alone is used."""
MOST_REFUSED = 2_000
"""Of so many questions it is counted how many a curator would have to refuse."""
SECONDS = 10.0
"""What an audit may take where nobody says."""
AGGREGATES = ("count", "sum", "mean", "max")
MOST = 1e15
"""Larger numbers are not read: floats no longer hold their digits."""


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
    whole: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Family:
    """All questions about one secret: who is in each group, and the total of the secret over it (or its maximum).

    `low` and `high` are what the secret is known to lie between, `whole` whether it is known to be a whole number.
    """

    of: str
    aggregate: str
    groups: NDArray[np.bool_]
    totals: NDArray[np.float64]
    low: float
    high: float
    deviations: NDArray[np.float64]
    lines: NDArray[np.int64]
    whole: bool = False


def read_log(lines: Iterable[str]) -> tuple[Question, ...]:
    """The questions of a log; blank lines are passed over, a line that is none is refused by its number."""
    return tuple(_parse_question(line, number) for number, line in enumerate(lines, start=1) if line.strip())


EXPECTED = 'A line such as {"where": {"sex": "F"}, "of": "hiv", "aggregate": "count", "answer": 12}'
KEYS = ("where", "of", "aggregate", "answer", "low", "high", "deviation", "scale", "whole")
NEEDED = KEYS[:4]
OPERATORS = ("min", "max", "between", "not")


def _refuse(number: int, why: str, expected: str = EXPECTED, remedy: str = "") -> DataError:
    correct = remedy or "Correct the line, or leave it out"
    return DataError(f"Line {number} of the log {why}", expected=expected, remedy=correct, charge="")


def _parse_question(line: str, number: int) -> Question:
    entry = _parse_line(line, number)
    for key in entry:
        if key not in KEYS:
            raise _refuse(number, f"has an unknown key '{key}'", f"Keys are {', '.join(KEYS)}", nearest(key, KEYS))
    for key in NEEDED:
        if key not in entry:
            raise _refuse(number, f"has no '{key}'")
    if not isinstance(entry["where"], dict) or not isinstance(entry["of"], str):
        raise _refuse(number, "is not an answered question: `where` is an object and `of` a text")
    if entry["aggregate"] not in AGGREGATES:
        raise _refuse(number, "has an unknown aggregate", f"One of {', '.join(AGGREGATES)}")
    if "deviation" in entry and "scale" in entry:
        raise _refuse(number, "has both a deviation and a scale", "One of them")
    if not isinstance(entry.get("whole", False), bool):
        raise _refuse(number, "does not say of `whole` whether it is so", "true or false")
    for name, condition in entry["where"].items():
        _check_condition(condition, name, number)
    answer, low, high, deviation, scale = (
        _parse_finite(entry, key, number, default)
        for key, default in (("answer", 0.0), ("low", -np.inf), ("high", np.inf), ("deviation", 0.0), ("scale", 0.0))
    )
    if deviation < 0 or scale < 0:
        raise _refuse(number, "has noise below 0", "A deviation or a scale of 0 or more")
    if low > high:
        raise _refuse(number, "has a `low` above its `high`", "The least value and the greatest")
    noise = deviation if "deviation" in entry else math.sqrt(2) * scale
    whole = entry.get("whole", False)
    return Question(entry["where"], entry["of"], entry["aggregate"], answer, low, high, noise, number, whole)


def _parse_line(line: str, number: int) -> dict[str, Any]:
    def _keep_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            raise _refuse(number, "has a key twice", "Each key once")
        return found

    try:
        entry = json.loads(line, object_pairs_hook=_keep_once)
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict):
        raise _refuse(number, "is not an answered question")
    return entry


def _parse_finite(entry: Mapping[str, Any], key: str, number: int, default: float) -> float:
    told = entry.get(key, default)
    if key not in entry:
        return default
    plain = isinstance(told, int | float) and not isinstance(told, bool)
    if not plain or not abs(told) < np.inf or abs(told) > MOST:
        raise _refuse(number, f"has no finite number as its `{key}`", f"A number, at most {MOST:g}")
    return float(told)


def _check_condition(condition: Any, name: str, number: int) -> None:
    """A condition is a value, a list of values, or an object of operators; nothing else is understood."""
    where = f"has a condition on '{name}' that is not understood"
    expected = "A value, a list of values, or an object with min, max, between (from and to) or not"
    if isinstance(condition, Mapping):
        if not condition:
            raise _refuse(number, where, expected)
        for operator, told in condition.items():
            if operator not in OPERATORS:
                raise _refuse(number, f"{where}: '{operator}'", expected, nearest(operator, OPERATORS))
            parts = told if isinstance(told, list) and operator in ("between", "not") else [told]
            if not parts or not all(map(_is_value, parts)) or (operator == "between" and len(parts) != 2):
                raise _refuse(number, where, expected)
        _check_ends(condition, name, number)
    elif not all(map(_is_value, condition if isinstance(condition, list) else [condition])):
        raise _refuse(number, where, expected)


def _check_ends(condition: Mapping[str, Any], name: str, number: int) -> None:
    for least, most in (condition.get("between", (0, 0)), (condition.get("min"), condition.get("max"))):
        if isinstance(least, int | float) and isinstance(most, int | float) and least > most:
            raise _refuse(number, f"has a condition on '{name}' that nobody can meet", "The least value first")


def _is_value(told: Any) -> bool:
    return isinstance(told, str | bool | int) or (isinstance(told, float) and math.isfinite(told))


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
        if "between" in condition:
            least, most = (_cast_value(end, values.type) for end in condition["between"])
            parts += [pc.greater_equal(values, least), pc.less_equal(values, most)]
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


def _find_group(question: Question, population: pa.Table) -> NDArray[np.bool_]:
    try:
        return find_members(question.where, population)
    except DataError as refusal:
        happened = f"Line {question.line} of the log: {refusal.happened}"
        raise DataError(happened, expected=refusal.expected, remedy=refusal.remedy, charge="") from None


def _build_family(of: str, kind: str, asked: Sequence[Question], population: pa.Table) -> Family:
    groups = np.array([_find_group(question, population) for question in asked])
    sizes = groups.sum(axis=1)
    times = np.where([q.aggregate == "mean" for q in asked], sizes, 1)
    low, high = max(question.low for question in asked), min(question.high for question in asked)
    totals, noise = np.array([(q.answer, q.deviation) for q in asked], np.float64).T * times
    lines, whole = np.array([q.line for q in asked]), any(question.whole for question in asked)
    family = Family(of, kind, groups, totals, low, high, noise, lines, whole or kind == "count")
    _refuse_impossible(family, asked)
    return family


FAR_OFF = 20.0
"""Answers so many deviations beyond what can be are no noise."""
IN_REGISTER = "Conditions that somebody in the register meets"


def _refuse_impossible(family: Family, asked: Sequence[Question]) -> None:
    """Refuse answers that no values between the limits give, with the noise that is stated or measured."""
    sizes = family.groups.sum(axis=1)
    if family.low > family.high:
        lines = f"Lines {min(family.lines)} to {max(family.lines)}"
        raise DataError(f"{lines} of the log have limits that contradict each other", expected="One `low` and `high`",
                        remedy="Correct the limits", charge="")  # fmt: skip
    least, most = np.zeros(len(sizes)), sizes.astype(np.float64)
    if family.aggregate != "count":
        times = sizes if family.aggregate == "sum" else np.ones(len(sizes))
        least, most = (np.where(times > 0, end, 0.0) * np.maximum(times, 1) for end in (family.low, family.high))
    beyond = np.maximum(least - family.totals, family.totals - most) - 1e-9 * np.maximum(1.0, np.abs(family.totals))
    wrong = beyond > FAR_OFF * family.deviations
    if wrong.any() and family.aggregate != "max":
        some = sizes > 0
        noise = measure_noise(family.groups[some], family.totals[some]) if some.any() else 0.0
        wrong = beyond > FAR_OFF * np.maximum(family.deviations, noise)
    for question, size, bad in zip(asked, sizes.tolist(), wrong.tolist(), strict=True):
        if not size and (bad or question.aggregate in ("mean", "max")):
            raise _refuse(question.line, f"tells the {question.aggregate} of a group of nobody", IN_REGISTER)
        if bad:
            raise _refuse(
                question.line, "has an answer that no values within the limits give", "Values from `low` to `high`",
                "Correct the answer or the limits, or state its noise as `deviation`",
            )  # fmt: skip


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
    whole = family.whole or (secret is not None and _are_whole(secret))
    if family.aggregate == "count" and secret is not None:
        secret = (secret > 0.5).astype(np.float64)
    if family.aggregate == "max" or family.groups.shape[1] > MOST_PEOPLE:
        return []
    noise = np.where(family.deviations > 0, family.deviations, measure_noise(family.groups, family.totals))
    if not (noise > 0).all():
        return []
    times = measure_excess(family.groups, family.totals, noise) if (family.deviations > 0).any() else 1.0
    noise = noise * times
    low, high = (0.0, 1.0) if family.aggregate == "count" else _limit_values(family, noise)
    if whole:
        low, high = float(np.ceil(low - 0.5)), float(np.floor(high + 0.5))
    if not low < high:
        return []
    found = solve_noisy_answers(
        family.groups, family.totals, noise, low, high, whole=whole, secret=secret, lines=family.lines
    )
    if times > 1:
        told = f"the answers contradict each other more than the stated noise allows: noise of {times:.1f} times the "
        found = replace(found, warnings=(*found.warnings, f"{told}stated deviation was assumed instead"))
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
