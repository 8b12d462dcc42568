"""What is published of a stream: estimates of totals over time with their errors, from noisy numbers alone.

All of it is post-processing. The standard deviations are exact: they follow from the variance of the noise and from the
factorization, and are known before any row is read. The intervals hold each by itself, with the stated confidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from deniable.curator.query.stream.plan import Opened
from deniable.policy.stream import StreamQuestion
from deniable.release.record import Record

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.query.measurements import Recipe
    from deniable.query.plan import NodePlan, Step

CONFIDENCE = 0.95
Exact = list[list[int]]
"""One number for each cell of each part of a period."""


@dataclass(frozen=True, slots=True, eq=False)
class StreamRow(Record):
    """One published number: of a period, of all since the start, or of a sliding window; `group` may be empty."""

    question: str
    span: str
    first: date
    last: date
    group: Mapping[str, Any]
    value: float
    low: float
    high: float
    deviation: float | None


Span = tuple[str, int, int]


def publish_period(opened: Opened, noisy: Sequence[Exact]) -> tuple[StreamRow, ...]:
    """What is published when a period is closed: its own numbers, those since the start, and of the window."""
    last, window = len(noisy) - 1, opened.plan.stream.window
    spans: list[Span] = [("period", last, last), ("total", 0, last)]
    if window is not None and last >= window - 1:
        spans.append(("window", last - window + 1, last))
    return tuple(row for span in spans for row in present_span(opened, noisy, span))


def present_span(opened: Opened, noisy: Sequence[Exact], span: Span) -> list[StreamRow]:
    """The numbers of all questions over one span."""
    plan, place = opened.plan, 0
    found: list[StreamRow] = []
    for question, node in zip(plan.stream.questions, plan.nodes, strict=True):
        found += _present_question(opened, noisy, span, question, node, place)
        place += sum(len(step.placed) for step in node.steps)
    return found


def _present_question(
    opened: Opened, noisy: Sequence[Exact], span: Span, question: StreamQuestion,
    node: NodePlan, place: int,
) -> list[StreamRow]:  # fmt: skip
    """The numbers of one question over one span, its levels made to add up."""
    many = len(node.measurements)
    levels = [[place + step * many + m for step in range(len(node.steps))] for m in range(many)]
    found = [_estimate_levels(opened, noisy, span, parts) for parts in levels]
    keys = [(step, key) for i, step in enumerate(node.steps) for key in opened.cells[place + i * many]]
    shown = _finish(node.recipes[0], [values for values, _ in found], [deviations for _, deviations in found],
                    opened.mechanism.is_pure)  # fmt: skip
    stream, (kind, first, last) = opened.plan.stream, span
    days = stream.first_day(first), stream.first_day(last + 1) - timedelta(days=1)
    return [
        StreamRow(question.name, kind, *days, _name_group(question, step, key), value, low, high, deviation)
        for (step, key), (value, low, high, deviation) in zip(keys, shown, strict=True)
    ]


def _name_group(question: StreamQuestion, step: Step, key: tuple[Any, ...]) -> dict[str, Any]:
    return {question.by[place]: value for place, value in zip(step.places, key, strict=True)}


def _estimate_levels(opened: Opened, noisy: Sequence[Exact], span: Span, parts: Sequence[int]) -> tuple[Any, Any]:
    """The estimates of one measurement, in steps, for all groups of all levels, and their standard deviations."""
    from deniable.streams.mechanism import make_levels_agree

    _, first, last = span
    scales = [opened.plan.placed[part][1].sensitivity.parts for part in parts]
    tables = [np.array([period[part] for period in noisy], dtype=object) for part in parts]
    found = np.concatenate(
        [opened.estimator.estimate(table, first, last) / scale for table, scale in zip(tables, scales, strict=True)]
    )
    noises = [opened.mechanism.variances[part] for part in parts]
    variances = [noise / scale**2 for noise, scale in zip(noises, scales, strict=True)]
    spread = np.concatenate([np.full(len(opened.cells[p]), v) for p, v in zip(parts, variances, strict=True)])
    if len(parts) > 1:
        solve, spread = make_levels_agree(_find_parents(opened, parts), variances)
        found = solve @ found
    return found, np.sqrt(spread * opened.estimator.spread(first, last))


def _find_parents(opened: Opened, parts: Sequence[int]) -> list[Any]:
    """For each level, the group that each of the finest groups belongs to."""
    steps = [opened.plan.placed[part][0] for part in parts]
    finest = max(range(len(parts)), key=lambda i: len(steps[i].places))
    fine = steps[finest].places
    found = []
    for step, part in zip(steps, parts, strict=True):
        place = {key: i for i, key in enumerate(opened.cells[part])}
        picked = [fine.index(each) for each in step.places]
        found.append(np.array([place[tuple(key[i] for i in picked)] for key in opened.cells[parts[finest]]]))
    return found


Shown = list[tuple[float, float, float, float | None]]
"""Value, lower and upper end, and standard deviation of each group."""


def find_reach(alpha: float, pure: bool) -> float:
    """How many standard deviations a total is off at most, but for alpha.

    A weighted sum of Laplace noises has lighter tails than one Laplace noise of the same variance.
    """
    normal = NormalDist().inv_cdf(1 - alpha / 2)
    return max(normal, -math.log(alpha) / math.sqrt(2)) if pure else normal


def _finish(recipe: Recipe, values: Sequence[Any], deviations: Sequence[Any], pure: bool) -> Shown:
    """The numbers of each group in their own unit."""
    from deniable.query.algebra.relation import Measure

    if recipe.measure is Measure.AVG:
        return _finish_means(recipe, values, deviations, pure)
    unit = float(recipe.step) if recipe.measure is Measure.SUM else 1.0
    reach = find_reach(1 - CONFIDENCE, pure)
    value, deviation = values[recipe.places[0]] * unit, deviations[recipe.places[0]] * unit
    ends = zip(value, value - reach * deviation, value + reach * deviation, deviation, strict=True)
    return [(_shorten(v), _shorten(a), _shorten(b), _shorten(d)) for v, a, b, d in ends]


def _finish_means(recipe: Recipe, values: Sequence[Any], deviations: Sequence[Any], pure: bool) -> Shown:
    """Means, each with the interval that those of its sum and its count allow together."""
    assert recipe.lower is not None
    assert recipe.upper is not None
    low, high, center = float(recipe.lower), float(recipe.upper), float(recipe.center * recipe.step)
    reach = find_reach((1 - CONFIDENCE) / 2, pure)
    total, rows = (values[place] for place in recipe.places)
    off, missed = (reach * deviations[place] for place in recipe.places)

    def mean(s: Any, n: Any) -> Any:
        return np.clip(center + float(recipe.step) * s / np.maximum(n, 1.0), low, high)

    corners = [mean(total + a, rows + b) for a in (-off, off) for b in (-missed, missed)]
    ends = zip(mean(total, rows), np.minimum.reduce(corners), np.maximum.reduce(corners), strict=True)
    return [(_shorten(v), _shorten(a), _shorten(b), None) for v, a, b in ends]


def _shorten(value: Any) -> float:
    """A number to four digits after the point: no more of it means anything."""
    return round(float(value), 4)


def tabulate_rows(rows: Sequence[StreamRow]) -> pa.Table:
    """The feed as a table: one column for each column that any question groups by, null where it does not."""
    import pyarrow as pa

    keys = list(dict.fromkeys(name for row in rows for name in row.group))
    flat = [
        {"question": row.question, "span": row.span, "first": row.first, "last": row.last,
         **{name: row.group.get(name) for name in keys},
         "value": row.value, "low": row.low, "high": row.high, "deviation": row.deviation}
        for row in rows
    ]  # fmt: skip
    return pa.Table.from_pylist(flat)
