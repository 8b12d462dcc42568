"""How much clamping and contribution bounds may have cut, estimated with noise, if the analyst pays for it.

Two further counts of units are measured beside a question: those with a value at or beyond the bounds it was clamped
to, and those with more groups or more rows in a group than the bounds let count. One unit moves each of them by 1, so
a small share of the budget is enough. They are ordinary measurements: bounded, priced and checked like all others.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import reduce
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError, QueryRefused
from deniable.policy.budget import exact
from deniable.policy.schema import Bounding, PrivacyUnit
from deniable.query.algebra.expression import ColumnRef, Expression, Facts, Kind, literal
from deniable.query.algebra.functions import call
from deniable.query.algebra.relation import (
    ExactAggregate,
    Field,
    Measure,
    Measured,
    NoisyAggregate,
    PerUnit,
    Relation,
    Summary,
    Transform,
)
from deniable.query.explain import BiasEstimate
from deniable.query.keys import PublicKeys, keys_of
from deniable.query.measurements import Recipe, Total
from deniable.query.plan import NodePlan, QueryPlan

if TYPE_CHECKING:
    from deniable.query.execute import NoisyResults

MARK = "_bias"
COUNTED = Facts(Kind.INTEGER, step=Fraction(1), nullable=False)


def parse_bias_share(text: str) -> Fraction:
    """The part of the budget that goes to the estimates, as OPTIONS writes it: `bias_share = 0.1`."""
    try:
        amount = exact(text, "bias_share")
    except ParameterError:
        amount = Fraction(0)
    if not 0 < amount < 1:
        raise QueryRefused("the share for estimating bias is not between 0 and 1", expected="A share such as 0.1")
    return Fraction(amount)


def plan_checks(
    node: Measured, measurements: tuple[Any, ...], recipes: tuple[Recipe, ...], unit: PrivacyUnit
) -> tuple[Measured, ...]:
    """The further nodes to measure beside a noisy node; none where nothing can have been cut."""
    found = []
    clamped = tuple(
        (f"a{i}", aggregate) for i, aggregate in enumerate(dict.fromkeys(_count_at_bounds(node, measurements, recipes)))
    )
    if clamped:
        found.append(_build_check(node, f"{node.name}{MARK}_clamped", node.input, clamped))
    if not unit.is_row and unit.bounding is Bounding.ROWS:
        found.append(_count_cut_in_all(node, unit))
    elif not unit.is_row and unit.max_rows_per_group is not None:
        found.append(_count_cut_units(node, unit))
    return tuple(found)


def _count_at_bounds(
    node: Measured, measurements: tuple[Any, ...], recipes: tuple[Recipe, ...]
) -> list[NoisyAggregate]:
    """For each clamped sum, the units that have a value at or beyond one of its bounds."""
    found = []
    for (_, aggregate), recipe in zip(node.aggregates, recipes, strict=True):
        total = measurements[recipe.places[0]]
        if isinstance(total, Total) and aggregate.argument is not None and total.lower < total.upper:
            low, high = (literal(_simplify_number(end * total.step)) for end in (total.lower, total.upper))
            outside = call("or", call("le", aggregate.argument, low), call("ge", aggregate.argument, high))
            condition = outside if aggregate.condition is None else call("and", aggregate.condition, outside)
            text = f"units with a value at or beyond the bounds of {aggregate.text}"
            found.append(NoisyAggregate(Measure.UNITS, None, condition, text=text))
    return found


def _simplify_number(number: Fraction) -> int | Fraction:
    return int(number) if number.denominator == 1 else number


def count_contributions(node: Measured) -> PerUnit:
    """One row for each unit: in how many groups it is, and the most rows that it has in one: summarized twice."""
    keys = tuple((name, expression) for name, expression in node.keys)
    fields = tuple(Field(name, expression.facts) for name, expression in keys)
    groups = PerUnit(
        _keep_read_rows(node), keys, (("n", ExactAggregate(Summary.COUNT, None)),), (*fields, Field("n", COUNTED))
    )
    most = ExactAggregate(Summary.MAX, ColumnRef("n", COUNTED))
    both = (("groups", ExactAggregate(Summary.COUNT, None)), ("most", most))
    return PerUnit(groups, (), both, (Field("groups", COUNTED), Field("most", COUNTED)))


def count_rows_in_all(node: Measured) -> PerUnit:
    """One row for each unit: how many rows it has."""
    return PerUnit(_keep_read_rows(node), (), (("n", ExactAggregate(Summary.COUNT, None)),), (Field("n", COUNTED),))


def _keep_read_rows(node: Measured) -> Relation:
    """The rows that the FILTER of some aggregate keeps: others are dropped before contributions are bounded.

    All rows count where an aggregate has no FILTER, or where keys are not public: whether these are shown follows from
    all units that have them.
    """
    tests = [aggregate.condition for _, aggregate in node.aggregates if aggregate.condition is not None]
    public = all(isinstance(keys_of(node, places), PublicKeys) for places in node.grouping_sets)
    if not tests or len(tests) < len(node.aggregates) or not public:
        return node.input
    kept = reduce(lambda one, other: call("or", one, other), dict.fromkeys(tests))
    same = tuple((field.name, ColumnRef(field.name, field.facts)) for field in node.input.fields)
    return Transform(node.input, same, kept, node.input.fields)


def _count_cut_units(node: Measured, unit: PrivacyUnit) -> Measured:
    """The units with more rows in a group, or more groups, than the bounds let count."""
    unit_rows = count_contributions(node)
    beyond: Expression = call("gt", ColumnRef("most", COUNTED), literal(unit.max_rows_per_group))
    if node.keys and unit.max_groups is not None:
        beyond = call("or", beyond, call("gt", ColumnRef("groups", COUNTED), literal(unit.max_groups)))
    counted = NoisyAggregate(Measure.UNITS, None, beyond, text="units with more rows or groups than count")
    return replace(_build_check(node, f"{node.name}{MARK}_cut", node.input, (("a0", counted),)), input=unit_rows)


def _count_cut_in_all(node: Measured, unit: PrivacyUnit) -> Measured:
    """The units with more rows over all groups than count."""
    rows = count_rows_in_all(node)
    beyond = call("gt", ColumnRef("n", COUNTED), literal(unit.rows_in_all))
    counted = NoisyAggregate(Measure.UNITS, None, beyond, text="units with more rows than count")
    return replace(_build_check(node, f"{node.name}{MARK}_cut", node.input, (("a0", counted),)), input=rows)


def _build_check(
    node: Measured, name: str, source: Any, aggregates: tuple[tuple[str, NoisyAggregate], ...]
) -> Measured:
    facts = Facts(Kind.INTEGER, step=Fraction(1), nullable=False, public=True)
    fields = tuple(Field(each, facts) for each, _ in aggregates)
    return replace(node, input=source, keys=(), grouping_sets=((),), aggregates=aggregates, fields=fields, name=name)


def is_check(node: NodePlan) -> bool:
    """Whether a node of a plan is an estimate of bias, beside the question itself."""
    return MARK in node.node.name


def report_estimates(plan: QueryPlan, measured: NoisyResults, confidence: float) -> list[BiasEstimate]:
    """What was found: how many units, with which error; none where no share was paid."""
    found = []
    for node in filter(is_check, plan.nodes):
        (step,), (noisy,) = node.steps, measured[node.node.name]
        for (_, aggregate), recipe in zip(node.node.aggregates, node.recipes, strict=True):
            place = recipe.places[0]
            error = step.placed[place].error(1 - confidence)
            found.append(BiasEstimate(aggregate.text, int(noisy.values[place][0]), error))
    return found
