"""Aggregates, with noise over private rows and exact elsewhere, and windows over noisy numbers; or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from sqlglot import expressions as exp

from deniable.errors import QueryRefused
from deniable.query.algebra.expression import ColumnRef, Expression, Facts, Kind, Literal, literal
from deniable.query.algebra.functions import OPAQUE, call
from deniable.query.algebra.intervals import choose_sum_step
from deniable.query.algebra.relation import ExactAggregate, Measure, NoisyAggregate, Ordering, Summary, Window
from deniable.query.sql.clauses import Clauses
from deniable.query.sql.scalar import COMPARE, bind_expression, refuse_unknown
from deniable.query.sql.scope import Scope, offset_of, spell_name, spell_text

POPULATION = (exp.VariancePop, exp.StddevPop)
PLAIN: dict[type[exp.Expression], Measure] = {
    exp.Sum: Measure.SUM, exp.Avg: Measure.AVG, exp.Min: Measure.MIN, exp.Max: Measure.MAX,
    exp.Variance: Measure.VARIANCE, exp.VariancePop: Measure.VARIANCE,
    exp.Stddev: Measure.STDDEV, exp.StddevSamp: Measure.STDDEV, exp.StddevPop: Measure.STDDEV,
}  # fmt: skip
AGGREGATES = (exp.AggFunc, exp.WithinGroup, exp.Filter)
COUNT_VALUES = "Count values: COUNT(DISTINCT x), or COUNT(*) with GROUP BY x"
DATE_VALUES = "Of dates there are MEDIAN(x), MIN(x), MAX(x), or COUNT(*) with GROUP BY date_trunc('month', x)"
EXACT = {Measure.COUNT, Measure.DISTINCT, Measure.SUM, Measure.AVG, Measure.MIN, Measure.MAX}


def is_aggregate(node: exp.Expression) -> bool:
    """Whether the node is an aggregate call, with or without FILTER or WITHIN GROUP around it."""
    return isinstance(node, AGGREGATES) or (isinstance(node, exp.Anonymous) and node.name.upper() == "HISTOGRAM")


def has_aggregate(node: exp.Expression) -> bool:
    """Whether an aggregate stands in it, other than in a sub-query or as the function of a window."""
    if isinstance(node, exp.Query) and not isinstance(node, exp.Subquery):
        return False
    parts = list(node.iter_expressions())
    if isinstance(node, exp.Window):
        parts = [*_split_window(node).iter_expressions(), *(part for part in parts if part is not node.this)]
    elif is_aggregate(node):
        return True
    return any(has_aggregate(part) for part in parts)


def _split_window(node: exp.Window) -> exp.Expression:
    """The function of a window."""
    inner = node.this
    while isinstance(inner, exp.IgnoreNulls | exp.RespectNulls):
        inner = inner.this
    return inner


RANKS: dict[type[exp.Expression], str] = {
    exp.RowNumber: "row_number", exp.Rank: "rank", exp.DenseRank: "dense_rank", exp.PercentRank: "percent_rank",
    exp.CumeDist: "cume_dist", exp.Ntile: "ntile",
}  # fmt: skip
OVER: dict[type[exp.Expression], str] = {
    exp.Sum: "sum", exp.Avg: "avg", exp.Min: "min", exp.Max: "max", exp.Count: "count", exp.Lag: "lag",
    exp.Lead: "lead", exp.FirstValue: "first_value", exp.LastValue: "last_value",
}  # fmt: skip
MOST_FRAME = 1_000_000


def bind_window(node: exp.Window, scope: Scope) -> Window:
    """A window function over public rows: noisy numbers and what is computed from them."""
    inner = _split_window(node)
    name = RANKS.get(type(inner)) or OVER.get(type(inner))
    read = ("this", "partition_by", "order", "spec", "over")
    if (
        name is None
        or inner is not node.this
        or any(held for part, held in node.args.items() if part not in read and held)
    ):
        if name is not None:
            raise scope.refusal(node, f"{spell_name(inner)} before OVER is not understood with all of these words",
                                remedy="Leave out IGNORE NULLS, DISTINCT, FILTER and names of windows")  # fmt: skip
        known = ", ".join(sorted(each.upper() for each in {*RANKS.values(), *OVER.values()}))
        raise scope.refusal(node, f"{spell_name(inner)} is not one of the functions that may stand before OVER",
                            expected=known)  # fmt: skip
    arguments = tuple(bind_expression(part, scope) for part in _list_window_arguments(inner, scope))
    order = node.args.get("order")
    return Window(
        name,
        arguments,
        tuple(bind_expression(part, scope) for part in node.args.get("partition_by") or []),
        bind_ordering(order.expressions if order is not None else [], scope, lambda part: bind_expression(part, scope)),
        _bind_frame(node.args.get("spec"), scope),
    )


def _list_window_arguments(node: exp.Expression, scope: Scope) -> list[exp.Expression]:
    if isinstance(node.this, exp.Distinct) or isinstance(node, exp.Filter):
        raise scope.refusal(node, "DISTINCT and FILTER are not understood before OVER")
    if isinstance(node, exp.Count) and (node.this is None or isinstance(node.this, exp.Star)):
        return []
    parts = [node.this, node.args.get("offset"), node.args.get("default")]
    return [part for part in parts if isinstance(part, exp.Expression)]


def bind_ordering(
    parts: list[exp.Expression], scope: Scope, bind: Callable[[exp.Expression], Expression]
) -> tuple[Ordering, ...]:
    """The expressions of an ORDER BY, and for each whether it goes down and whether nulls come first."""
    found = []
    for part in parts:
        if part.args.get("with_fill"):
            raise scope.refusal(part, "WITH FILL is not allowed")
        found.append(Ordering(bind(part.this), bool(part.args.get("desc")), bool(part.args.get("nulls_first"))))
    return tuple(found)


def _bind_frame(spec: exp.Expression | None, scope: Scope) -> str:
    """ROWS BETWEEN ..., written anew."""
    if spec is None:
        return ""
    ends = [_bind_frame_end(spec, end, scope) for end in ("start", "end")]
    kind = str(spec.args.get("kind") or "ROWS").upper()
    if kind not in ("ROWS", "RANGE") or (kind == "RANGE" and any(each[:1].isdigit() for each in ends)):
        raise scope.refusal(spec, "this frame of a window is not understood", expected="ROWS BETWEEN ... AND ...")
    if spec.args.get("exclude"):
        raise scope.refusal(spec, "EXCLUDE is not understood in the frame of a window")
    return f"{kind} BETWEEN {ends[0]} AND {ends[1]}"


def _bind_frame_end(spec: exp.Expression, end: str, scope: Scope) -> str:
    held, side = spec.args.get(end), str(spec.args.get(f"{end}_side") or "").upper()
    if held is None or held == "CURRENT ROW":
        return "CURRENT ROW"
    if held == "UNBOUNDED":
        return f"UNBOUNDED {'PRECEDING' if side != 'FOLLOWING' else 'FOLLOWING'}"
    bound = bind_expression(held, Scope(scope.clauses, ()))
    count = bound.value if isinstance(bound, Literal) else None
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_FRAME:
        raise scope.refusal(held, "the frame of a window is a whole number of rows")
    return f"{count} {'FOLLOWING' if side == 'FOLLOWING' else 'PRECEDING'}"


def window_facts(window: Window) -> Facts:
    """What is public about a window's value."""
    if window.function in ("percent_rank", "cume_dist", "avg"):
        return Facts(Kind.DECIMAL, public=True)
    kept = window.arguments[0].facts.kind if window.arguments else Kind.INTEGER
    ranked = window.function in RANKS.values() or window.function == "count"
    return Facts(Kind.INTEGER if ranked else kept, public=True)


def bind_noisy_aggregate(node: exp.Expression, scope: Scope, clauses: Clauses, units: frozenset[str]) -> NoisyAggregate:
    """One aggregate over private rows, as it was asked."""
    condition, inner = _split_filter(node, scope)
    at = offset_of(inner)
    text = spell_text(inner)
    match inner:
        case exp.Count():
            measure, argument = _bind_count(inner, scope, units)
        case exp.ApproxDistinct():
            counted = exp.Count(this=exp.Distinct(expressions=[inner.this])).update_positions(inner)
            measure, argument = _bind_count(counted, scope, units)
        case exp.CountIf():
            counted = bind_condition(inner.this, scope)
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
            ordered = inner.expression.expressions
            if len(ordered) != 1:
                raise scope.refusal(inner, f"{spell_name(inner.this)} is ordered by one column")
            share = _bind_share(inner.this.this, scope)
            share = 1 - share if ordered[0].args.get("desc") else share
            return NoisyAggregate(
                Measure.QUANTILE, _bind_ordered(inner, ordered[0].this, scope), condition, share, text=text, place=at
            )
        case _ if type(inner) in PLAIN:
            measure = PLAIN[type(inner)]
            if isinstance(inner.this, exp.Distinct) and measure in (Measure.SUM, Measure.MIN, Measure.MAX):
                return _bind_different(inner, measure, scope, condition)
            argument = _bind_argument(inner, measure, scope)
        case _:
            raise refuse_unknown(inner, scope)
    return NoisyAggregate(measure, argument, condition, population=isinstance(inner, POPULATION),
                          per_group=clauses.per_group.get(at), text=text, place=at)  # fmt: skip


PAIRED: dict[type[exp.Expression], str] = {
    exp.Corr: "corr", exp.CovarPop: "covar_pop", exp.CovarSamp: "covar_samp", exp.RegrSlope: "slope",
    exp.RegrIntercept: "intercept", exp.RegrR2: "r2", exp.RegrCount: "count", exp.RegrAvgx: "mean_x",
    exp.RegrAvgy: "mean_y", exp.RegrSxx: "sxx", exp.RegrSyy: "syy", exp.RegrSxy: "sxy",
}  # fmt: skip
"""Aggregates of two columns: REGR_SLOPE(y, x) and the like."""


def find_paired(node: exp.Expression) -> str | None:
    """Which aggregate of two columns a node is, if it is one."""
    return PAIRED.get(type(node.this if isinstance(node, exp.Filter) else node))


def bind_paired_aggregate(
    node: exp.Expression, statistic: str, scope: Scope, add: Callable[[NoisyAggregate], ColumnRef]
) -> Expression:
    """An aggregate of two columns as arithmetic of noisy sums over the rows that have both; `add` registers a sum.

    Values are taken from the middle of their bounds, so that one person moves the sums as little as possible, and
    columns that several aggregates share are summed once.
    """
    condition, inner = _split_filter(node, scope)
    y, x = (_bind_argument(exp.Sum(this=part), Measure.SUM, scope) for part in (inner.this, inner.expression))
    for side in (x, y):
        condition = _both(condition, call("not", call("is_null", side)))
    text, at = spell_text(inner), offset_of(inner)

    def total(argument: Expression) -> Expression:
        return add(NoisyAggregate(Measure.SUM, argument, condition, quotient=True, text=text, place=at))

    rows = call("greatest", add(NoisyAggregate(Measure.COUNT, None, condition, text=text, place=at)), literal(1))
    sides = _shift_to_middle(x, inner, scope), _shift_to_middle(y, inner, scope)
    return _compute_paired(statistic, rows, sides[0], sides[1], total)


def _both(condition: Expression | None, other: Expression) -> Expression:
    return other if condition is None else call("and", condition, other)


UNBOUNDED_PAIR = "takes two columns with public bounds"


def _shift_to_middle(side: Expression, node: exp.Expression, scope: Scope) -> tuple[Expression, Literal]:
    """A value counted from the middle of its bounds, and the middle; the middle itself stands where there is none."""
    low, high = side.facts.lower, side.facts.upper
    if low is None or high is None:
        raise scope.refusal(node, f"{spell_name(node)} {UNBOUNDED_PAIR}",
                            remedy="Declare bounds in the policy, or clamp in the query: CLAMP(x, 0, 100)")  # fmt: skip
    middle = literal(_plain((low + high) / 2))
    return call("subtract", call("coalesce", side, middle), middle), middle


def _plain(number: Fraction) -> int | Fraction:
    return int(number) if number.denominator == 1 else number


def _compute_paired(
    statistic: str,
    rows: Expression,
    x: tuple[Expression, Literal],
    y: tuple[Expression, Literal],
    total: Callable[[Expression], Expression],
) -> Expression:
    def mean(argument: Expression) -> Expression:
        return call("divide", total(argument), rows)

    def spread(side: Expression) -> Expression:
        squares = mean(call("power", side, literal(2)))
        return call("greatest", call("subtract", squares, call("power", mean(side), literal(2))), literal(0))

    def covariance() -> Expression:
        return call("subtract", mean(call("multiply", x[0], y[0])), call("multiply", mean(x[0]), mean(y[0])))

    def correlation() -> Expression:
        found = call("divide", covariance(), call("sqrt", call("multiply", spread(x[0]), spread(y[0]))))
        return call("clamp", found, literal(-1), literal(1))

    match statistic:
        case "count":
            return rows
        case "mean_x" | "mean_y":
            side, middle = x if statistic == "mean_x" else y
            return call("add", mean(side), middle)
        case "sxx" | "syy":
            return call("multiply", rows, spread((x if statistic == "sxx" else y)[0]))
        case "sxy":
            return call("multiply", rows, covariance())
        case "covar_pop":
            return covariance()
        case "covar_samp":
            fewer = call("greatest", call("subtract", rows, literal(1)), literal(1))
            return call("divide", call("multiply", covariance(), rows), fewer)
        case "slope":
            return call("divide", covariance(), spread(x[0]))
        case "intercept":
            slope = call("divide", covariance(), spread(x[0]))
            means = [call("add", mean(side), middle) for side, middle in (x, y)]
            return call("subtract", means[1], call("multiply", slope, means[0]))
        case "r2":
            return call("power", correlation(), literal(2))
        case _:
            return correlation()


def bind_exact_aggregate(node: exp.Expression, scope: Scope, private: bool) -> tuple[ExactAggregate, Facts]:
    """One exact aggregate and what is public about its value.

    Over private rows it is a function of the set of rows alone: sums and averages are added on a public grid, and
    without one they are refused.
    """
    condition, inner = _split_filter(node, scope)
    if isinstance(inner, exp.Count):
        measure, argument = _bind_count(inner, scope, frozenset())
    elif type(inner) in PLAIN and PLAIN[type(inner)] in EXACT:
        measure = PLAIN[type(inner)]
        argument = _bind_argument(inner, measure, scope)
    elif type(inner) in PLAIN or isinstance(inner, exp.Median | exp.Quantile | exp.WithinGroup):
        raise scope.refusal(inner, f"{spell_name(inner)} is not worked out for single people, or for public rows",
                            expected="COUNT, SUM, AVG, MIN and MAX are")  # fmt: skip
    else:
        raise refuse_unknown(inner, scope)
    step = None
    if private and argument is not None and measure in (Measure.SUM, Measure.AVG):
        step = _choose_step(inner, argument, scope)
    return ExactAggregate(Summary(measure.value), argument, condition, step), _exact_facts(measure, argument, step)


def _choose_step(node: exp.Expression, argument: Expression, scope: Scope) -> Fraction:
    step = choose_sum_step(argument.facts)
    if step is None:
        raise scope.refusal(
            node,
            f"{spell_name(node)} for each person has no public bounds",
            expected="A public grid: sums of single people are added in whole numbers, so that they are exact",
            remedy="Declare bounds and a step in the policy, or clamp in the question: SUM(CLAMP(x, 0, 100))",
        )
    return step


def _exact_facts(measure: Measure, argument: Expression | None, step: Fraction | None) -> Facts:
    """Averages, minima and maxima of bounded values keep the bounds; counts and sums have none of their own."""
    if argument is None or measure in (Measure.COUNT, Measure.DISTINCT):
        return Facts(Kind.INTEGER, step=Fraction(1), nullable=False)
    facts = argument.facts
    if measure is Measure.SUM:
        # A grid that was chosen for want of a step is no promise about the value.
        return Facts(facts.kind, step=facts.step if step in (None, facts.step) else None)
    if measure is Measure.AVG:
        return Facts(Kind.DECIMAL, facts.lower, facts.upper)
    return Facts(facts.kind, facts.lower, facts.upper, facts.step, facts.domain)


def _split_filter(node: exp.Expression, scope: Scope) -> tuple[Expression | None, exp.Expression]:
    if isinstance(node, exp.Filter):
        if has_aggregate(node.expression.this):
            remedy = "Filter by a column, FILTER (WHERE age > 30), or choose groups with HAVING"
            happened = "FILTER chooses rows, and cannot use aggregates"
            raise scope.refusal(node.expression.this, happened, remedy=remedy)
        return bind_condition(node.expression.this, scope), node.this
    return None, node


def bind_condition(node: exp.Expression, scope: Scope) -> Expression:
    """An expression that is true or false."""
    condition = bind_expression(node, scope)
    if condition.facts.kind not in (Kind.BOOLEAN, Kind.NULL):
        raise scope.refusal(node, f"a condition is needed here, not {condition.facts.kind.value}", remedy=COMPARE)
    return condition


def _bind_count(node: exp.Count, scope: Scope, units: frozenset[str]) -> tuple[Measure, Expression | None]:
    inner = node.this
    if node.expressions:
        raise scope.refusal(node, "COUNT takes one column")
    if isinstance(inner, exp.Star) or inner is None:
        return Measure.COUNT, None
    if not isinstance(inner, exp.Distinct):
        return Measure.COUNT, bind_expression(inner, scope)
    if len(inner.expressions) != 1:
        raise scope.refusal(
            node,
            "COUNT(DISTINCT ...) takes one column",
            remedy="Make them one: CAST(a AS TEXT) || '/' || b",
        )
    argument = bind_expression(inner.expressions[0], scope)
    if isinstance(argument, ColumnRef) and argument.name in units:
        return Measure.UNITS, None
    return Measure.DISTINCT, argument


def _bind_different(
    node: exp.Expression, measure: Measure, scope: Scope, condition: Expression | None
) -> NoisyAggregate:
    """SUM(DISTINCT x); of MIN and MAX, where repetitions change nothing, without DISTINCT."""
    if len(node.this.expressions) != 1:
        raise scope.refusal(node, f"{measure.upper()}(DISTINCT ...) takes one column")
    argument = _bind_argument(type(node)(this=node.this.expressions[0]).update_positions(node), measure, scope)
    return NoisyAggregate(measure, argument, condition, distinct=measure is Measure.SUM,
                          text=spell_text(node), place=offset_of(node))  # fmt: skip


def _bind_argument(node: exp.Expression, measure: Measure, scope: Scope) -> Expression:
    if isinstance(node.this, exp.Distinct):
        raise scope.refusal(
            node,
            f"{measure.upper()}(DISTINCT ...) is not on the list",
            expected="COUNT, SUM, MIN and MAX take DISTINCT",
            remedy="Write SUM(DISTINCT x) / COUNT(DISTINCT x)"
            if measure is Measure.AVG
            else f"Write {measure.upper()}(x), of all rows",
        )
    if measure in (Measure.MIN, Measure.MAX):
        return _bind_ordered(node, node.this, scope)
    argument = bind_expression(node.this, scope)
    _refuse_opaque(node, argument, scope)
    if argument.facts.kind is Kind.BOOLEAN:
        argument = call("case", argument, literal(1), literal(0))
    if not argument.facts.kind.numeric:
        raise scope.refusal(
            node,
            f"{measure.upper()} takes a number, not {argument.facts.kind.value}",
            remedy=DATE_VALUES if argument.facts.kind in (Kind.DATE, Kind.DATETIME) else COUNT_VALUES,
        )
    return argument


def _bind_ordered(node: exp.Expression, argument: exp.Expression, scope: Scope) -> Expression:
    if isinstance(argument, exp.Distinct):
        name = "QUANTILE" if isinstance(node, exp.Quantile) else spell_name(node)
        rest = ", 0.9)" if isinstance(node, exp.Quantile) else ")"
        raise scope.refusal(
            node, f"{name}(DISTINCT ...) is not on the list", remedy=f"Write {name}(x{rest}, of all rows"
        )
    bound = bind_expression(argument, scope)
    _refuse_opaque(node, bound, scope)
    if not bound.facts.kind.ordered:
        raise scope.refusal(
            node, f"this aggregate takes a number or a date, not {bound.facts.kind.value}", remedy=COUNT_VALUES
        )
    return bound


def _refuse_opaque(node: exp.Expression, argument: Expression, scope: Scope) -> None:
    if argument.facts.opaque:
        raise scope.refusal(node, f"this aggregate {OPAQUE}")


def _bind_share(node: exp.Expression, scope: Scope) -> Fraction:
    bound = bind_expression(node, scope)
    share = bound.value if isinstance(bound, Literal) else None
    if isinstance(share, bool) or not isinstance(share, int | Fraction) or not 0 <= share <= 1:
        raise scope.refusal(node, "a quantile is a literal between 0 and 1", expected="QUANTILE(age, 0.9)")
    return Fraction(share)


MOST_SHARES = 100
"""Shares of one QUANTILE."""


def expand_quantiles(node: exp.Select) -> list[exp.Expression]:
    """SELECT items, with QUANTILE(x, [0.1, 0.5]) written out as one item for each share."""
    items: list[exp.Expression] = []
    for item in node.expressions:
        inner = item.unalias()
        shares = inner.args.get("quantile") if isinstance(inner, exp.Quantile) else None
        if not isinstance(shares, exp.Array):
            items.append(item)
            continue
        if len(shares.expressions) > MOST_SHARES:
            raise QueryRefused(f"QUANTILE takes at most {MOST_SHARES} shares at once")
        for share in shares.expressions:
            one = inner.copy()
            one.set("quantile", share.copy())
            items.append(exp.alias_(one, f"{item.alias or 'quantile'}_{share.name.replace('.', '_')}"))
    return items
