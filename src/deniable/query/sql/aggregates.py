"""From the parser's aggregates to ours: noisy over private rows, exact over one unit's rows or public rows."""

from __future__ import annotations

from fractions import Fraction

from sqlglot import expressions as exp

from deniable.query.algebra.expression import ColumnRef, Expression, Facts, Kind, Literal, literal
from deniable.query.algebra.functions import OPAQUE, call
from deniable.query.algebra.relation import ExactAggregate, Measure, NoisyAggregate, Summary
from deniable.query.sql.clauses import Clauses
from deniable.query.sql.scalar import Scope, bind_expression, offset_of, refuse_unknown

POPULATION = (exp.VariancePop, exp.StddevPop)
PLAIN: dict[type[exp.Expression], Measure] = {
    exp.Sum: Measure.SUM, exp.Avg: Measure.AVG, exp.Min: Measure.MIN, exp.Max: Measure.MAX,
    exp.Variance: Measure.VARIANCE, exp.VariancePop: Measure.VARIANCE,
    exp.Stddev: Measure.STDDEV, exp.StddevSamp: Measure.STDDEV, exp.StddevPop: Measure.STDDEV,
}  # fmt: skip
AGGREGATES = (exp.AggFunc, exp.WithinGroup, exp.Filter)
EXACT = {Measure.COUNT, Measure.DISTINCT, Measure.SUM, Measure.AVG, Measure.MIN, Measure.MAX}


def is_aggregate(node: exp.Expression) -> bool:
    """Whether the node is an aggregate call, with or without FILTER or WITHIN GROUP around it."""
    return isinstance(node, AGGREGATES) or (isinstance(node, exp.Anonymous) and node.name.upper() == "HISTOGRAM")


def has_aggregate(node: exp.Expression) -> bool:
    """Whether an aggregate stands anywhere in it."""
    return any(is_aggregate(part) for part in node.walk())


def bind_noisy_aggregate(node: exp.Expression, scope: Scope, clauses: Clauses, units: frozenset[str]) -> NoisyAggregate:
    """One aggregate over private rows, as it was asked."""
    condition, inner = _split_filter(node, scope)
    at = offset_of(inner)
    text = inner.sql(dialect="duckdb")
    match inner:
        case exp.Count():
            measure, argument = _bind_count(inner, scope, units)
        case exp.CountIf():
            counted = _bind_condition(inner.this, scope)
            condition = counted if condition is None else call("and", condition, counted)
            measure, argument = Measure.COUNT, None
        case exp.Median():
            return NoisyAggregate(Measure.QUANTILE, _bind_ordered(inner, inner.this, scope), condition, Fraction(1, 2),
                                  text=text, place=at)  # fmt: skip
        case exp.Quantile() | exp.ApproxQuantile():
            if inner.args.get("quantile") is None:
                raise scope.refusal(inner, "QUANTILE takes a column and a share", expected="QUANTILE(age, 0.9)")
            share = _bind_share(inner.args["quantile"], scope)
            return NoisyAggregate(
                Measure.QUANTILE, _bind_ordered(inner, inner.this, scope), condition, share, text=text, place=at
            )
        case exp.PercentileCont() | exp.PercentileDisc() if inner.args.get("expression") is not None:
            share = _bind_share(inner.args["expression"], scope)
            return NoisyAggregate(
                Measure.QUANTILE, _bind_ordered(inner, inner.this, scope), condition, share, text=text, place=at
            )
        case exp.WithinGroup() if isinstance(inner.this, exp.PercentileCont | exp.PercentileDisc):
            share = _bind_share(inner.this.this, scope)
            ordered = inner.expression.expressions[0].this
            return NoisyAggregate(
                Measure.QUANTILE, _bind_ordered(inner, ordered, scope), condition, share, text=text, place=at
            )
        case _ if type(inner) in PLAIN:
            measure = PLAIN[type(inner)]
            argument = _bind_argument(inner, measure, scope)
        case _:
            raise refuse_unknown(inner, scope)
    return NoisyAggregate(measure, argument, condition, population=isinstance(inner, POPULATION),
                          per_group=clauses.per_group.get(at), text=text, place=at)  # fmt: skip


def bind_exact_aggregate(node: exp.Expression, scope: Scope) -> tuple[ExactAggregate, Facts]:
    """One exact aggregate and what is public about its value."""
    condition, inner = _split_filter(node, scope)
    if isinstance(inner, exp.Count):
        measure, argument = _bind_count(inner, scope, frozenset())
    elif type(inner) in PLAIN and PLAIN[type(inner)] in EXACT:
        measure = PLAIN[type(inner)]
        argument = _bind_argument(inner, measure, scope)
    else:
        raise refuse_unknown(inner, scope)
    return ExactAggregate(Summary(measure.value), argument, condition), _exact_facts(measure, argument)


def _exact_facts(measure: Measure, argument: Expression | None) -> Facts:
    """Averages, minima and maxima of bounded values keep the bounds; counts and sums have none of their own."""
    if argument is None or measure in (Measure.COUNT, Measure.DISTINCT):
        return Facts(Kind.INTEGER, step=Fraction(1), nullable=False)
    facts = argument.facts
    if measure is Measure.SUM:
        return Facts(facts.kind, step=facts.step)
    if measure is Measure.AVG:
        return Facts(Kind.DECIMAL, facts.lower, facts.upper)
    return Facts(facts.kind, facts.lower, facts.upper, facts.step, facts.domain)


def _split_filter(node: exp.Expression, scope: Scope) -> tuple[Expression | None, exp.Expression]:
    if isinstance(node, exp.Filter):
        return _bind_condition(node.expression.this, scope), node.this
    return None, node


def _bind_condition(node: exp.Expression, scope: Scope) -> Expression:
    condition = bind_expression(node, scope)
    if condition.facts.kind not in (Kind.BOOLEAN, Kind.NULL):
        raise scope.refusal(node, f"a condition is needed here, not {condition.facts.kind.value}")
    return condition


def _bind_count(node: exp.Count, scope: Scope, units: frozenset[str]) -> tuple[Measure, Expression | None]:
    inner = node.this
    if isinstance(inner, exp.Star) or inner is None:
        return Measure.COUNT, None
    if not isinstance(inner, exp.Distinct):
        if node.expressions:
            raise scope.refusal(node, "COUNT takes one column")
        return Measure.COUNT, bind_expression(inner, scope)
    if len(inner.expressions) != 1:
        raise scope.refusal(node, "COUNT(DISTINCT ...) takes one column", remedy="Concatenate the columns first")
    argument = bind_expression(inner.expressions[0], scope)
    if isinstance(argument, ColumnRef) and argument.name in units:
        return Measure.UNITS, None
    return Measure.DISTINCT, argument


def _bind_argument(node: exp.Expression, measure: Measure, scope: Scope) -> Expression:
    if isinstance(node.this, exp.Distinct):
        raise scope.refusal(
            node, f"{measure.upper()}(DISTINCT ...) is not on the list", remedy="Only COUNT takes DISTINCT"
        )
    if measure in (Measure.MIN, Measure.MAX):
        return _bind_ordered(node, node.this, scope)
    argument = bind_expression(node.this, scope)
    _refuse_opaque(node, argument, scope)
    if argument.facts.kind is Kind.BOOLEAN:
        argument = call("case", argument, literal(1), literal(0))
    if not argument.facts.kind.numeric:
        raise scope.refusal(node, f"{measure.upper()} takes a number, not {argument.facts.kind.value}")
    return argument


def _bind_ordered(node: exp.Expression, argument: exp.Expression, scope: Scope) -> Expression:
    bound = bind_expression(argument, scope)
    _refuse_opaque(node, bound, scope)
    if not bound.facts.kind.ordered:
        raise scope.refusal(node, f"this aggregate takes a number or a date, not {bound.facts.kind.value}")
    return bound


def _refuse_opaque(node: exp.Expression, argument: Expression, scope: Scope) -> None:
    if argument.facts.opaque:
        raise scope.refusal(node, f"this aggregate {OPAQUE}")


def _bind_share(node: exp.Expression, scope: Scope) -> Fraction:
    bound = bind_expression(node, scope)
    share = bound.value if isinstance(bound, Literal) else None
    if isinstance(share, bool) or not isinstance(share, int | Fraction) or not 0 <= share <= 1:
        raise scope.refusal(node, "a quantile is a literal between 0 and 1")
    return Fraction(share)
