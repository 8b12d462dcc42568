"""Measurements: what is really read from the rows for each aggregate that was asked.

An aggregate becomes one or more measurements (an average is a sum and a count), and equal ones are shared between
aggregates and paid for once. All are whole numbers: counts, or sums of values clamped to public bounds, rounded to
steps, and shifted by a public center so that one unit moves them as little as possible.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction

from deniable.errors import QueryRefused
from deniable.policy.schema import Bounding, PrivacyUnit
from deniable.query.algebra.expression import Call, ColumnRef, Expression, Kind, Literal, columns_of
from deniable.query.algebra.functions import call
from deniable.query.algebra.relation import Measure, Measured, NoisyAggregate
from deniable.query.sql.clauses import place_at

FINEST = 2**20
"""A value without a natural step is cut into about a million steps between its bounds; so is one that is squared."""
WIDEST = 2**53
"""Bounds are at most so many steps from zero, where DOUBLE still tells whole numbers apart."""


@dataclass(frozen=True, slots=True)
class Rows:
    """How many rows (of those with a value, where there is an argument) a group has."""

    argument: Expression | None
    condition: Expression | None


@dataclass(frozen=True, slots=True)
class Units:
    """How many units a group has."""

    condition: Expression | None = None


@dataclass(frozen=True, slots=True)
class Total:
    """The sum over a group's rows of (value in steps - center), to the first or second power."""

    argument: Expression
    condition: Expression | None
    lower: int
    upper: int
    step: Fraction
    center: int = 0
    squared: bool = False
    per_group: tuple[int, int] | None = None
    quotient: bool = False
    """Where units' numbers are scaled: it is divided by a count, and is scaled down as the count is."""

    @property
    def reach(self) -> int:
        """The largest magnitude one row can add."""
        half = max(abs(self.lower - self.center), abs(self.upper - self.center))
        return half * half if self.squared else half


@dataclass(frozen=True, slots=True)
class Distinct:
    """How many different values a group has; or, between bounds in steps, the sum of the different values."""

    argument: Expression
    condition: Expression | None
    summed: bool = False
    lower: int = 0
    upper: int = 0
    step: Fraction = Fraction(1)

    @property
    def reach(self) -> int:
        """The largest magnitude that one value adds."""
        return max(abs(self.lower), abs(self.upper)) if self.summed else 1


@dataclass(frozen=True, slots=True)
class Ordered:
    """The values at one or several (rising) ranks of a group, in steps between public bounds."""

    argument: Expression
    condition: Expression | None
    lower: int
    upper: int
    step: Fraction
    quantiles: tuple[Fraction, ...]


@dataclass(frozen=True, slots=True)
class Part:
    """What rows give to one part of one cell, where aggregates are measured together: see `joint`.

    A value v between lower and upper gives C(degree, order) (v - lower)^order (upper - v)^(degree - order). The order
    -1 is that of rows without a value, which give as much as the parts of a value do together.
    """

    argument: Expression | None
    condition: Expression | None
    lower: int
    upper: int
    step: Fraction
    degree: int
    order: int
    among: tuple[str, ...] = field(repr=False)
    """The columns whose rows a unit's bound on rows is for, all of them together."""

    @property
    def reach(self) -> int:
        """The most that one row adds to all parts of all cells together."""
        whole: int = (self.upper - self.lower) ** self.degree
        return whole


Measurement = Rows | Units | Total | Distinct | Ordered | Part


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an aggregate is computed from noisy measurements, named by their places in the list."""

    measure: Measure
    places: tuple[int, ...]
    step: Fraction = Fraction(1)
    center: int = 0
    kind: Kind = Kind.DECIMAL
    lower: Fraction | None = None
    upper: Fraction | None = None
    population: bool = False
    quantile: Fraction | None = None
    column: int = 0
    """Where its quantile stands among the released numbers: see `Noisy` in `execute`."""


def decompose_aggregates(
    node: Measured, text: str, unit: PrivacyUnit
) -> tuple[tuple[Measurement, ...], tuple[Recipe, ...]]:
    """The shared list of measurements for a node, and one recipe for each of its aggregates.

    With rows as units, bounds of one unit's sum in a group are bounds of each row.
    """
    scaled = unit.bounding is Bounding.SCALE
    found: dict[Measurement, int] = {}

    def place(measurement: Measurement) -> int:
        return found.setdefault(measurement, len(found))

    recipes = tuple(_build_recipe(read_pivot(each), place, text, unit.is_row, scaled) for _, each in node.aggregates)
    return _merge_ranks(list(found), recipes)


def read_pivot(aggregate: NoisyAggregate) -> NoisyAggregate:
    """SUM(CASE WHEN c THEN x ELSE 0 END) as SUM(x) FILTER (WHERE c), which is the same number; others likewise."""
    found = aggregate.argument
    if not isinstance(found, Call) or found.name != "case" or len(found.arguments) != 3 or aggregate.per_group:
        return aggregate
    test, value, otherwise = found.arguments
    nothing = isinstance(otherwise, Literal) and (
        otherwise.value is None or (aggregate.measure is Measure.SUM and otherwise.facts.domain == (0,))
    )
    if not nothing or aggregate.measure is Measure.DISTINCT or aggregate.distinct or value.facts.kind is Kind.NULL:
        return aggregate
    condition = test if aggregate.condition is None else call("and", aggregate.condition, test)
    return replace(aggregate, argument=value, condition=condition)


def _build_recipe(
    aggregate: NoisyAggregate, place: Callable[[Measurement], int], text: str, by_row: bool, scaled: bool
) -> Recipe:
    argument, condition = aggregate.argument, aggregate.condition
    match aggregate.measure:
        case Measure.COUNT:
            return Recipe(Measure.COUNT, (place(Rows(_drop_if_certain(argument), condition)),), kind=Kind.INTEGER)
        case Measure.UNITS:
            return Recipe(Measure.COUNT, (place(Units(condition)),), kind=Kind.INTEGER)
        case Measure.DISTINCT:
            assert argument is not None
            return Recipe(Measure.COUNT, (place(Distinct(argument, condition)),), kind=Kind.INTEGER)
        case Measure.SUM if aggregate.distinct:
            assert argument is not None
            low, high, step = _find_grid(aggregate, text)
            values = Distinct(argument, condition, True, low, high, step)
            return Recipe(Measure.SUM, (place(values),), step, kind=_kind_of(aggregate))
        case Measure.SUM if (times := _count_instead(aggregate)) is not None:
            return Recipe(Measure.SUM, (place(Rows(None, condition)),), times, kind=_kind_of(aggregate))
        case Measure.SUM:
            total = _build_total(aggregate, text, center=False, by_row=by_row)
            total = replace(total, quotient=scaled and aggregate.quotient)
            return Recipe(Measure.SUM, (place(total),), total.step, kind=_kind_of(aggregate))
        case Measure.AVG:
            total = replace(_build_total(aggregate, text), quotient=scaled)
            rows = Rows(_drop_if_certain(argument), condition)
            return Recipe(
                Measure.AVG,
                (place(total), place(rows)),
                total.step,
                total.center,
                lower=total.lower * total.step,
                upper=total.upper * total.step,
            )
        case Measure.VARIANCE | Measure.STDDEV:
            total = replace(_build_total(aggregate, text, coarse=True), quotient=scaled)
            squares = replace(total, squared=True)
            rows = Rows(_drop_if_certain(argument), condition)
            return Recipe(
                aggregate.measure,
                (place(total), place(squares), place(rows)),
                total.step,
                total.center,
                lower=total.lower * total.step,
                upper=total.upper * total.step,
                population=aggregate.population,
            )
        case _:
            return _build_ordered(aggregate, place, text)


def _build_ordered(aggregate: NoisyAggregate, place: Callable[[Measurement], int], text: str) -> Recipe:
    share = {Measure.MIN: Fraction(0), Measure.MAX: Fraction(1)}.get(aggregate.measure, aggregate.quantile)
    assert share is not None
    assert aggregate.argument is not None
    lower, upper, step = _find_grid(aggregate, text)
    measurement = Ordered(aggregate.argument, aggregate.condition, lower, upper, step, (share,))
    return Recipe(
        Measure.QUANTILE,
        (place(measurement),),
        step,
        kind=aggregate.argument.facts.kind,
        lower=lower * step,
        upper=upper * step,
        quantile=share,
    )


def _merge_ranks(
    found: list[Measurement], recipes: tuple[Recipe, ...]
) -> tuple[tuple[Measurement, ...], tuple[Recipe, ...]]:
    """One measurement for all ranks of the same values: chosen together they cost less than one by one.

    The first rank of each measurement is released at its own place, the others after all measurements.
    """
    asked: dict[Measurement, set[Fraction]] = {}
    for m in found:
        asked.setdefault(_replace_ranks(m, ()), set()).update(m.quantiles if isinstance(m, Ordered) else ())
    merged = tuple(_replace_ranks(m, tuple(sorted(ranks))) for m, ranks in asked.items())
    columns, after = {}, len(merged)
    for place, m in enumerate(merged):
        for rank in range(len(m.quantiles) if isinstance(m, Ordered) else 0):
            columns[place, rank] = after + rank - 1 if rank else place
        after += len(m.quantiles) - 1 if isinstance(m, Ordered) else 0
    order = {m: place for place, m in enumerate(asked)}
    now = [order[_replace_ranks(m, ())] for m in found]
    return merged, tuple(_move_places(recipe, now, merged, columns) for recipe in recipes)


def _replace_ranks(measurement: Measurement, ranks: tuple[Fraction, ...]) -> Measurement:
    return replace(measurement, quantiles=ranks) if isinstance(measurement, Ordered) else measurement


def _move_places(
    recipe: Recipe, now: list[int], merged: tuple[Measurement, ...], columns: dict[tuple[int, int], int]
) -> Recipe:
    """The recipe with the new places of its measurements."""
    places = tuple(now[place] for place in recipe.places)
    measurement = merged[places[0]]
    if not isinstance(measurement, Ordered) or recipe.quantile is None:
        return replace(recipe, places=places)
    return replace(recipe, places=places, column=columns[places[0], measurement.quantiles.index(recipe.quantile)])


def _build_total(
    aggregate: NoisyAggregate, text: str, center: bool = True, coarse: bool = False, by_row: bool = False
) -> Total:
    assert aggregate.argument is not None
    lower, upper, step = _find_grid(aggregate, text, coarse, by_row)
    per_group = None
    if aggregate.per_group is not None and not center and not by_row:
        low, high = aggregate.per_group
        per_group = (-(-low // step), high // step)
    return Total(aggregate.argument, aggregate.condition, lower, upper, step, (lower + upper) // 2 if center else 0,
                 per_group=per_group)  # fmt: skip


def _find_grid(
    aggregate: NoisyAggregate, text: str, coarse: bool = False, by_row: bool = False
) -> tuple[int, int, Fraction]:
    """Public bounds of the aggregate's argument, in whole steps."""
    assert aggregate.argument is not None
    facts = aggregate.argument.facts
    lower, upper = facts.lower, facts.upper
    if aggregate.per_group is not None and not (by_row or aggregate.measure is not Measure.SUM):
        # A person's sum is clamped, and a row only to the column's own bounds, or to what can be added up exactly.
        step = facts.step or _choose_step(aggregate.per_group[1] - aggregate.per_group[0])
        most = (WIDEST - 1) * step
        lower, upper = (-most if lower is None else lower), (most if upper is None else upper)
        facts = replace(facts, step=step)
    elif aggregate.per_group is not None:
        low, high = aggregate.per_group
        lower, upper = (low if lower is None else max(low, lower)), (high if upper is None else min(high, upper))
    if lower is None or upper is None or lower > upper:
        raise _refuse_unbounded(aggregate, text)
    width = upper - lower
    step = facts.step or _choose_step(width)
    if coarse and width / step > FINEST:
        step *= -(-width // (step * FINEST))
    first, last = -(-lower // step), upper // step
    if last < first:
        # No multiple of the step lies inside: one value is left, so it is the step itself, up or down.
        step = abs(lower) or Fraction(1)
        first = last = (lower > 0) - (lower < 0)
    if max(abs(first), abs(last)) >= WIDEST:
        raise QueryRefused(f"the bounds of {aggregate.text} are too wide to add up exactly",
                           place=place_at(text, aggregate.place), expected="Bounds of fewer than 2**62 steps",
                           remedy="Clamp it to a narrower interval: CLAMP(x, low, high)")  # fmt: skip
    return int(first), int(last), step


def _choose_step(width: Fraction) -> Fraction:
    """A power of ten that cuts the width into about a million steps."""
    if width <= 0:
        return Fraction(1)
    step = Fraction(1)
    while width / step > FINEST:
        step *= 10
    while width / step < FINEST / 10:
        step /= 10
    return step


def _count_instead(aggregate: NoisyAggregate) -> Fraction | None:
    """SUM(2) FILTER (WHERE c) is twice a count; None where it is a sum of other things."""
    value = aggregate.argument.value if isinstance(aggregate.argument, Literal) else None
    if isinstance(value, bool) or not isinstance(value, int | Fraction) or aggregate.per_group is not None:
        return None
    return Fraction(value) if value > 0 else None


def _drop_if_certain(argument: Expression | None) -> Expression | None:
    """COUNT(x) of a column that is never null is COUNT(*), so the two are shared."""
    return None if argument is not None and not argument.facts.nullable else argument


def _kind_of(aggregate: NoisyAggregate) -> Kind:
    assert aggregate.argument is not None
    return Kind.INTEGER if aggregate.argument.facts.kind is Kind.INTEGER else Kind.DECIMAL


def _refuse_unbounded(aggregate: NoisyAggregate, text: str) -> QueryRefused:
    argument = aggregate.argument
    assert argument is not None
    what = f"column '{argument.name.split('.', 1)[-1]}'" if isinstance(argument, ColumnRef) else "the expression"
    call, inner = aggregate.text.rstrip(")").split("(", 1)
    plain = aggregate.quantile is None and not isinstance(argument, ColumnRef) and inner.count("(") == inner.count(")")
    shown = inner if plain else ", ".join(sorted(name.split(".", 1)[-1] for name in columns_of(argument))) or "x"
    numeric, rest = argument.facts.kind.numeric, ""
    stated = f" (in Python, bounds={{'{shown}': (0, 100)}})" if isinstance(argument, ColumnRef) and numeric else ""
    if aggregate.quantile is not None and aggregate.text.count(",") == 1:
        rest = f", {float(aggregate.quantile):g}"
    bounds = BOUNDS_OF.get(argument.facts.kind, "0, 100")
    return QueryRefused(
        f"{aggregate.text}: {what} has no declared bounds",
        place=place_at(text, aggregate.place),
        remedy=f"Declare bounds in the policy{stated}, or clamp in the query: {call}(CLAMP({shown}, {bounds}){rest})",
    )


BOUNDS_OF = {
    Kind.DATE: "DATE '2020-01-01', DATE '2029-12-31'",
    Kind.DATETIME: "TIMESTAMP '2020-01-01 00:00:00', TIMESTAMP '2029-12-31 23:59:59'",
}
"""Bounds as a refusal writes them for an example."""
