"""From noisy measurements to the numbers that were asked, each with an interval for the noise.

All of it is post-processing. Intervals speak of the noise alone: not of sampling, clamping or contribution bounds.
Where an answer follows from several measurements, their intervals hold together with the stated confidence (union
bound), and the answer's interval is the hull of what they allow.

A query that only picks and renames what was measured, as most of a dashboard's do, needs no engine: its Arrow columns
are taken as they are. Any other post-processing (a predicate, an order, arithmetic) is left to the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.dp.mechanisms import QuantileMechanism
from deniable.errors import QueryRefused
from deniable.query.algebra.expression import ColumnRef, Facts, Kind, from_number
from deniable.query.algebra.relation import Field, Measure, Measured, PublicSelect, Relation, Union
from deniable.query.measurements import Recipe
from deniable.query.plan import Placed

Numbers = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """One aggregate for all groups: values, and the ends of their intervals (null where there is none)."""

    values: pa.Array
    low: pa.Array
    high: pa.Array


def finish_answer(
    recipe: Recipe, placed: tuple[Placed, ...], values: tuple[Numbers, ...], confidence: float, nonnegative: bool
) -> Answer:
    """The answer of one recipe."""
    alpha = (1 - confidence) / len(recipe.places)
    noisy = [values[place] for place in recipe.places]
    reach = [
        0 if isinstance(placed[p].mechanism, QuantileMechanism) else placed[p].accuracy(alpha) for p in recipe.places
    ]
    match recipe.measure:
        case Measure.COUNT:
            floor = 0 if nonnegative else None
            return _finish_integers(noisy[0], noisy[0] - reach[0], noisy[0] + reach[0], floor)
        case Measure.SUM if recipe.kind is Kind.INTEGER and recipe.step.denominator == 1:
            whole = int(recipe.step)
            return _finish_integers(
                noisy[0] * whole, (noisy[0] - reach[0]) * whole, (noisy[0] + reach[0]) * whole, None
            )
        case Measure.SUM:
            step = float(recipe.step)
            return _finish_decimals(noisy[0] * step, (noisy[0] - reach[0]) * step, (noisy[0] + reach[0]) * step)
        case Measure.AVG:
            return _finish_average(recipe, noisy, reach)
        case Measure.VARIANCE | Measure.STDDEV:
            return _finish_variance(recipe, noisy, reach)
        case _:
            return _finish_quantile(recipe, values[recipe.column])


def _finish_integers(values: Numbers, low: Numbers, high: Numbers, floor: int | None) -> Answer:
    parts = [np.maximum(part, floor) if floor is not None else part for part in (values, low, high)]
    return Answer(*(pa.array(part.astype(np.int64)) for part in parts))


def _finish_decimals(values: Numbers, low: Numbers, high: Numbers) -> Answer:
    return Answer(*(pa.array(part.astype(np.float64)) for part in (values, low, high)))


def _finish_average(recipe: Recipe, noisy: list[Numbers], reach: list[int]) -> Answer:
    total, rows = noisy[0].astype(np.float64), noisy[1].astype(np.float64)
    step, center = float(recipe.step), float(recipe.center * recipe.step)

    assert recipe.lower is not None
    assert recipe.upper is not None
    low, high = float(recipe.lower), float(recipe.upper)

    def mean(s: Numbers, n: Numbers) -> Numbers:
        # The public bounds of the values hold for their mean.
        return np.clip(center + step * s / np.maximum(n, 1.0), low, high)

    # For a fixed sum the mean is monotone in the count and the other way round, so the extremes are at the corners.
    corners = [mean(total + a, rows + b) for a in (-reach[0], reach[0]) for b in (-reach[1], reach[1])]
    return _finish_decimals(mean(total, rows), np.minimum.reduce(corners), np.maximum.reduce(corners))


def _finish_variance(recipe: Recipe, noisy: list[Numbers], reach: list[int]) -> Answer:
    """(Q - S^2 / n) / (n - 1) for the sum S and the sum of squares Q of n values, shifted by the center.

    A shift moves no spread. Q grows it, |S| shrinks it, and n is taken at whichever end helps in each of its places:
    so the ends enclose the spread of every S, Q, n that the noise allows.
    """
    total, squares, rows = (part.astype(np.float64) for part in noisy)
    less = 0.0 if recipe.population else 1.0
    few, many = np.maximum(rows - reach[2], 1.0 + less), np.maximum(rows + reach[2], 1.0 + less)
    nearest, farthest = np.maximum(np.abs(total) - reach[0], 0.0), np.abs(total) + reach[0]
    middle = np.maximum(rows, 1.0 + less)
    value = (squares - total**2 / middle) / (middle - less)
    low = np.maximum(squares - reach[1] - farthest**2 / few, 0.0) / (many - less)
    high = np.maximum(squares + reach[1] - nearest**2 / many, 0.0) / (few - less)
    return _finish_decimals(
        *(_bound_spread(recipe, part, n) for part, n in ((value, middle), (low, many), (high, few)))
    )


def _bound_spread(recipe: Recipe, variance: Numbers, rows: Numbers) -> Numbers:
    """In the values' own unit, and at most what values between the bounds can have: half of them at each end."""
    assert recipe.lower is not None
    assert recipe.upper is not None
    most = float(recipe.upper - recipe.lower) ** 2 / 4 * (1.0 if recipe.population else rows / (rows - 1.0))
    inside = np.clip(variance * float(recipe.step) ** 2, 0.0, most)
    return np.sqrt(inside) if recipe.measure is Measure.STDDEV else inside


def _finish_quantile(recipe: Recipe, noisy: Numbers) -> Answer:
    """A quantile's error is one of rank, so it has no interval of values that would not read the data again."""
    numbers = [from_number(recipe.kind, int(value) * recipe.step) for value in noisy.tolist()]
    plain = [float(n) if isinstance(n, Fraction) else n for n in numbers]
    kinds = {Kind.DATE: pa.date32(), Kind.DATETIME: pa.timestamp("us"), Kind.INTEGER: pa.int64()}
    values = pa.array(plain, kinds.get(recipe.kind, pa.float64()))
    nothing = pa.nulls(len(plain), values.type)
    return Answer(values, nothing, nothing)


def add_interval_columns(relation: Relation) -> Relation:
    """The relation with `name_low` and `name_high` beside each column that is a measured aggregate as it is.

    In a UNION ALL of such relations a column has them where it is a measured aggregate on every side.
    """
    sides = relation.inputs if isinstance(relation, Union) else (relation,)
    places = set(range(len(relation.fields)))
    for side in sides:
        places &= _find_measured_columns(side)
    if not places:
        return relation
    wider = tuple(_widen_select(side, places) for side in sides if isinstance(side, PublicSelect))
    return replace(relation, inputs=wider, fields=wider[0].fields) if isinstance(relation, Union) else wider[0]


def refuse_taken_names(relation: Relation) -> None:
    """Refuse a column that would be taken for the end of another column's interval."""
    sides = relation.inputs if isinstance(relation, Union) else (relation,)
    names = [field.name for field in relation.fields]
    for place in set.intersection(*(_find_measured_columns(side) for side in sides)):
        ends = {f"{names[place]}{end}".lower() for end in ("_low", "_high")}
        taken = [each for each in names if each.lower() in ends]
        if taken:
            raise QueryRefused(
                f"the column '{min(taken)}' would be taken for an end of the interval of '{names[place]}'",
                remedy="Choose another name with AS",
            )


def list_keys(relation: Relation) -> list[str]:
    """The columns by which an answer is grouped, as they are; a noisy number is none of them, with interval or not."""
    sides = relation.inputs if isinstance(relation, Union) else (relation,)
    if not all(isinstance(side, PublicSelect) and isinstance(side.input, Measured) for side in sides):
        return []
    first = sides[0]
    assert isinstance(first, PublicSelect)
    assert isinstance(first.input, Measured)
    known = {name for name, _ in first.input.keys}
    return [name for name, told in first.projections if isinstance(told, ColumnRef) and told.name in known]


def _find_measured_columns(relation: Relation) -> set[int]:
    """The places of columns that are measured aggregates as they are."""
    if not isinstance(relation, PublicSelect) or not isinstance(relation.input, Measured) or relation.distinct:
        return set()
    aggregates = {
        name
        for name, aggregate in relation.input.aggregates
        if aggregate.measure not in (Measure.QUANTILE, Measure.MIN, Measure.MAX)
    }
    return {i for i, (_, e) in enumerate(relation.projections) if isinstance(e, ColumnRef) and e.name in aggregates}


def _widen_select(select: PublicSelect, places: set[int]) -> PublicSelect:
    assert isinstance(select.input, Measured)
    projections = []
    for i, (name, expression) in enumerate(select.projections):
        projections.append((name, expression))
        if i in places and isinstance(expression, ColumnRef):
            ends = (ColumnRef(f"{expression.name}_{end}", expression.facts) for end in ("low", "high"))
            projections += zip((f"{name}_low", f"{name}_high"), ends, strict=True)
    extra = (
        Field(f"{name}_{end}", Facts(Kind.DECIMAL)) for name, _ in select.input.aggregates for end in ("low", "high")
    )
    inner = replace(select.input, fields=(*select.input.fields, *extra))
    fields = tuple(Field(name, expression.facts) for name, expression in projections)
    return replace(select, input=inner, projections=tuple(projections), fields=fields)


ENGINE_STABLE_TYPES = frozenset({pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.date32()})
"""Types that come back from an engine as they went in; a column of nulls alone, for one, does not."""


def pick_columns(relation: Relation, frames: Mapping[str, pa.Table]) -> pa.Table | None:
    """The columns of a plain selection from a measured node; None where the engine has to do it."""
    if not isinstance(relation, PublicSelect) or not isinstance(relation.input, Measured) or not is_plain(relation):
        return None
    frame, columns = frames[relation.input.name], {}
    for name, expression in relation.projections:
        if not isinstance(expression, ColumnRef) or expression.name not in frame.column_names or name in columns:
            return None
        columns[name] = frame.column(expression.name)
    return pa.table(columns) if all(each.type in ENGINE_STABLE_TYPES for each in columns.values()) else None


def is_plain(select: PublicSelect) -> bool:
    """Whether it neither filters, groups, orders nor cuts."""
    ordered = select.order or select.limit is not None or select.offset or select.distinct or select.windows
    return not (select.predicate or select.keys or select.aggregates or select.grouped or ordered)
