"""Expressions and aggregates: from the parser's nodes to ours, over the fields in scope, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction

from sqlglot import expressions as exp

from deniable.errors import QueryRefused, nearest
from deniable.query.algebra.expression import ColumnRef, Expression, Facts, Kind, Literal, literal
from deniable.query.algebra.functions import FUNCTIONS, OPAQUE, call
from deniable.query.algebra.intervals import PARTS, TRUNCATIONS, Mismatch, choose_sum_step
from deniable.query.algebra.relation import ExactAggregate, Field, Measure, NoisyAggregate, Summary
from deniable.query.sql.clauses import Clauses, place_at

BINARY: dict[type[exp.Expression], str] = {
    exp.Add: "add", exp.Sub: "subtract", exp.Mul: "multiply", exp.Div: "divide", exp.Mod: "modulo",
    exp.EQ: "eq", exp.NEQ: "ne", exp.LT: "lt", exp.LTE: "le", exp.GT: "gt", exp.GTE: "ge",
    exp.And: "and", exp.Or: "or", exp.Like: "like", exp.ILike: "ilike", exp.DPipe: "concat",
    exp.Nullif: "nullif", exp.StartsWith: "starts_with", exp.EndsWith: "ends_with", exp.Contains: "contains",
    exp.Left: "left", exp.Right: "right",
}  # fmt: skip
UNARY: dict[type[exp.Expression], str] = {
    exp.Not: "not", exp.Neg: "negate", exp.Abs: "abs", exp.Floor: "floor", exp.Ceil: "ceil", exp.Sqrt: "sqrt",
    exp.Exp: "exp", exp.Ln: "ln", exp.Lower: "lower", exp.Upper: "upper", exp.Trim: "trim", exp.Length: "length",
    exp.Year: "year", exp.Quarter: "part_quarter", exp.Month: "part_month", exp.Week: "part_week",
    exp.Day: "part_day", exp.DayOfMonth: "part_day", exp.DayOfWeek: "part_dow", exp.DayOfYear: "part_doy",
    exp.Hour: "part_hour", exp.Minute: "part_minute", exp.Second: "part_second",
}  # fmt: skip
VARIADIC: dict[type[exp.Expression], str] = {
    exp.Least: "least", exp.Greatest: "greatest", exp.Coalesce: "coalesce", exp.Concat: "concat",
}  # fmt: skip
NAMED = {"CLAMP": "clamp", "ENDS_WITH": "ends_with", "STARTS_WITH": "starts_with", "CONTAINS": "contains"}
CASTS = {
    Kind.INTEGER: ("INT", "BIGINT", "SMALLINT", "TINYINT", "UINT", "UBIGINT", "INT128"),
    Kind.DECIMAL: ("DOUBLE", "FLOAT", "DECIMAL", "BIGDECIMAL", "UDOUBLE"),
    Kind.TEXT: ("TEXT", "VARCHAR", "CHAR", "NVARCHAR", "NCHAR"),
    Kind.BOOLEAN: ("BOOLEAN",),
    Kind.DATE: ("DATE",),
    Kind.DATETIME: ("TIMESTAMP", "DATETIME", "TIMESTAMPNTZ"),
}
SIGNS: dict[type[exp.Expression], str] = {
    exp.Add: "'+'", exp.Sub: "'-'", exp.Mul: "'*'", exp.Div: "'/'", exp.Mod: "'%'", exp.EQ: "'='", exp.NEQ: "'<>'",
    exp.LT: "'<'", exp.LTE: "'<='", exp.GT: "'>'", exp.GTE: "'>='", exp.DPipe: "'||'", exp.Neg: "'-'",
    exp.Rand: "RANDOM", exp.GroupConcat: "STRING_AGG",
}  # fmt: skip
CHANGING = ("NOW", "RANDOM", "RAND", "UUID", "GEN_RANDOM_UUID", "TODAY", "NEXTVAL", "TRANSACTION_TIMESTAMP")
"""Functions that give another value each time, by the names that the parser has no class for."""
COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "in")
LITERALLY = "Write the value itself"
DEEPEST = 200
MOST_DIGITS = 60
"""Characters of a number before its exponent."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean at one place of a statement.

    `special` is asked first about every node: it is how aggregates and group keys become fields of a noisy relation.
    """

    text: str
    fields: tuple[Field, ...]
    special: Callable[[exp.Expression], Expression | None] | None = None

    def refusal(self, node: exp.Expression, happened: str, **rest: str) -> QueryRefused:
        """A refusal that points to a node."""
        return QueryRefused(happened, place=place_at(self.text, offset_of(node)), **rest)

    def column(self, node: exp.Column) -> ColumnRef:
        """The field a column name means, without regard to case."""
        name, table = node.name.lower(), node.table.lower()
        wanted = f"{table}.{name}" if table else name
        found = [
            field
            for field in self.fields
            if field.name.lower() == wanted or (not table and field.name.lower().split(".", 1)[-1] == name)
        ]
        if len(found) == 1:
            return ColumnRef(found[0].name, found[0].facts)
        known = [field.name.split(".", 1)[-1] for field in self.fields]
        if not found:
            raise self.refusal(node, f"there is no column '{wanted}' here", expected=describe_columns(known),
                               remedy=nearest(name, known))  # fmt: skip
        raise self.refusal(node, f"the column '{name}' is in more than one table", remedy="Write table.column")


def describe_columns(names: list[str]) -> str:
    """A sentence that lists what exists, shortened."""
    shown = ", ".join(sorted(set(names))[:20])
    return f"The columns here are {shown}" if shown else ""


def offset_of(node: exp.Expression) -> int:
    """Where a node starts in the statement, as far as the parser kept it."""
    starts = [part.meta["start"] for part in node.walk() if "start" in part.meta]
    return min(starts) if starts else 0


def bind_expression(node: exp.Expression, scope: Scope, depth: int = 0) -> Expression:
    """One expression over the scope's fields, or a refusal."""
    if node is None:  # a function with nothing in its parentheses
        raise QueryRefused("a function lacks an argument", remedy="Give every function its arguments")
    if depth > DEEPEST:
        raise scope.refusal(node, "the expression is nested too deeply")
    if scope.special is not None and (special := scope.special(node)) is not None:
        return special

    def inner(part: exp.Expression) -> Expression:
        return bind_expression(part, scope, depth + 1)

    try:
        return _bind_node(node, scope, inner)
    except Mismatch as mismatch:
        raise scope.refusal(node, f"{spell_name(node)} {mismatch}") from None


def spell_name(node: exp.Expression) -> str:
    """The construct's name as the analyst knows it."""
    if isinstance(node, exp.Anonymous):
        return str(node.name).upper()
    if type(node) in SIGNS:
        return SIGNS[type(node)]
    return str(node.sql_name() if isinstance(node, exp.Func) else node.key.upper())


def _bind_node(node: exp.Expression, scope: Scope, inner: Callable[[exp.Expression], Expression]) -> Expression:
    kind = type(node)
    if kind in BINARY:
        left, right = node.this, node.args.get("expression")
        return _apply(BINARY[kind], *_align_dates(BINARY[kind], [inner(left), inner(right)]))
    if kind in UNARY:
        return _bind_negative(node, scope) or _apply(UNARY[kind], inner(node.this))
    if kind in VARIADIC:
        first = [node.this] if isinstance(node.this, exp.Expression) else []
        return _apply(VARIADIC[kind], *(inner(part) for part in [*first, *node.expressions]))
    match node:
        case exp.Paren():
            return inner(node.this)
        case exp.Column():
            return scope.column(node)
        case exp.Literal() | exp.Boolean() | exp.Null():
            return literal(_read_value(node, scope))
        case exp.Between():
            x, low, high = _align_dates("in", [inner(node.this), inner(node.args["low"]), inner(node.args["high"])])
            return call("and", call("ge", x, low), call("le", x, high))
        case exp.In():
            return _bind_in(node, scope, inner)
        case exp.Is():
            return _bind_is(node, scope, inner)
        case exp.Case() | exp.If():
            return _bind_case(node, inner)
        case exp.Round():
            decimals = node.args.get("decimals")
            return _apply("round", inner(node.this), *([inner(decimals)] if decimals else []))
        case exp.Substring():
            parts = [node.this, node.args.get("start"), node.args.get("length")]
            return _apply("substring", *(inner(part) for part in parts if part is not None))
        case exp.Replace():
            parts = [node.this, node.args.get("expression"), node.args.get("replacement")]
            return _apply("replace", *(inner(part) for part in parts if part is not None))
        case exp.Cast() | exp.TryCast():
            return _bind_cast(node, scope, inner)
        case exp.Extract():
            return _bind_part(node.name.lower(), node, scope, inner(node.args["expression"]))
        case exp.TimestampTrunc() | exp.DateTrunc():
            return _bind_truncation(node, scope, inner(node.this))
        case exp.DateDiff() if node.args.get("unit") is None or node.args["unit"].name.upper() in ("DAY", "D"):
            return _apply("date_diff", inner(node.args["expression"]), inner(node.this))
        case exp.Anonymous() if node.name.upper() in NAMED:
            parts = _align_dates(NAMED[node.name.upper()], [inner(part) for part in node.expressions])
            return _apply(NAMED[node.name.upper()], *parts)
        case _:
            raise refuse_unknown(node, scope)


def refuse_unknown(node: exp.Expression, scope: Scope) -> QueryRefused:
    """The refusal of a construct that is not on the list, with the reason where there is a particular one."""
    if isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
        return refuse_unknown(node.this, scope)
    if spell_name(node) in CHANGING:
        return scope.refusal(node, f"{spell_name(node)} is not the same each time it is asked", remedy=LITERALLY)
    reasons: tuple[tuple[tuple[type[exp.Expression], ...], str, str], ...] = (
        ((exp.Window,), "a window function over private rows would release rows",
         "Aggregate first, then use the noisy numbers"),
        ((exp.Subquery, exp.Select, exp.Exists, exp.SubqueryPredicate), "a sub-query cannot stand in an expression",
         "Put it in FROM or WITH, and join it"),
        ((exp.Star,), "'*' would release rows", "Name aggregates such as COUNT(*)"),
        ((exp.AggFunc,), f"{spell_name(node)} is not one of the aggregates that can be released with noise",
         "Use COUNT, SUM, AVG, VARIANCE, STDDEV, MIN, MAX, MEDIAN, QUANTILE or HISTOGRAM"),
        ((exp.Rand, exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentTime, exp.Uuid),
         f"{spell_name(node)} is not the same each time it is asked", LITERALLY),
    )  # fmt: skip
    for kinds, happened, remedy in reasons:
        if isinstance(node, kinds):
            return scope.refusal(node, happened, remedy=remedy)
    name = spell_name(node)
    known = [function.upper() for function in FUNCTIONS]
    return scope.refusal(node, f"{name} is not on the list of functions", remedy=nearest(name, known),
                         expected="Functions are listed in the reference of SQL")  # fmt: skip


def _apply(name: str, *arguments: Expression) -> Expression:
    return call(name, *arguments)


def _bind_negative(node: exp.Expression, scope: Scope) -> Expression | None:
    """-3 is a literal, so that it can be a bound."""
    if isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string:
        return literal(-_read_number(node.this, scope))
    return None


def _read_value(node: exp.Expression, scope: Scope) -> str | int | bool | Fraction | None:
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    return str(node.this) if node.is_string else _read_number(node, scope)


def _read_number(node: exp.Expression, scope: Scope) -> int | Fraction:
    """A number as it is written; its length is looked at first, since 1e999999999 has a thousand million digits."""
    digits, _, power = str(node.this).lower().partition("e")
    fits = len(digits) <= MOST_DIGITS and len(power) <= 4
    try:
        number = Fraction(node.this) if fits else Fraction(2**53)
    except (ValueError, ZeroDivisionError):
        raise scope.refusal(node, "this number cannot be read") from None
    if abs(number) >= 2**53 or number.denominator > 10**15:
        raise scope.refusal(node, "this number is too large or too fine", expected="Numbers up to 2^53, 15 places")
    return int(number) if number.denominator == 1 else number


def _align_dates(name: str, arguments: list[Expression]) -> list[Expression]:
    """A text literal beside a date means a date, as in SQL."""
    if name not in (*COMPARISONS, "clamp"):
        return arguments
    temporal = {a.facts.kind for a in arguments} & {Kind.DATE, Kind.DATETIME}
    if not temporal:
        return arguments
    kind = Kind.DATETIME if Kind.DATETIME in temporal else Kind.DATE
    return [
        _parse_date(a, kind) if isinstance(a, Literal) and isinstance(a.value, str) else _widen_to_datetime(a, kind)
        for a in arguments
    ]


def _widen_to_datetime(argument: Expression, kind: Kind) -> Expression:
    if kind is Kind.DATETIME and isinstance(argument, Literal) and argument.facts.kind is Kind.DATE:
        assert isinstance(argument.value, date)
        return literal(datetime(argument.value.year, argument.value.month, argument.value.day))
    if kind is Kind.DATETIME and argument.facts.kind is Kind.DATE:
        return call("cast_datetime", argument)
    return argument


def _parse_date(text: Literal, kind: Kind) -> Literal:
    try:
        moment = datetime.fromisoformat(str(text.value))
    except ValueError:
        raise Mismatch("compares a date with a text that is not one; write DATE '2020-12-31'") from None
    return literal(moment.replace(tzinfo=None) if kind is Kind.DATETIME else moment.date())


def _bind_in(node: exp.In, scope: Scope, inner: Callable[[exp.Expression], Expression]) -> Expression:
    if node.args.get("query") is not None or node.args.get("unnest") is not None or not node.expressions:
        raise scope.refusal(node, "IN takes a list of values here", remedy="Join the sub-query instead")
    return _apply("in", *_align_dates("in", [inner(part) for part in [node.this, *node.expressions]]))


def _bind_is(node: exp.Is, scope: Scope, inner: Callable[[exp.Expression], Expression]) -> Expression:
    other = node.expression
    if isinstance(other, exp.Null):
        return _apply("is_null", inner(node.this))
    if isinstance(other, exp.Boolean):
        return _apply("is_true" if other.this else "is_false", inner(node.this))
    raise scope.refusal(node, "IS takes NULL, TRUE or FALSE")


def _bind_case(node: exp.Case | exp.If, inner: Callable[[exp.Expression], Expression]) -> Expression:
    ifs = [node] if isinstance(node, exp.If) else node.args["ifs"]
    subject = None if isinstance(node, exp.If) or node.this is None else inner(node.this)
    default = node.args.get("false") if isinstance(node, exp.If) else node.args.get("default")
    arguments: list[Expression] = []
    for branch in ifs:
        condition = inner(branch.this)
        if subject is not None:
            condition = call("eq", *_align_dates("eq", [subject, condition]))
        arguments += [condition, inner(branch.args["true"])]
    arguments.append(inner(default) if default is not None else literal(None))
    return call("case", *arguments)


def _bind_cast(node: exp.Cast, scope: Scope, inner: Callable[[exp.Expression], Expression]) -> Expression:
    wanted = node.to.this.name if hasattr(node.to.this, "name") else str(node.to.this)
    kind = next((kind for kind, names in CASTS.items() if wanted in names), None)
    if kind is None:
        raise scope.refusal(node, f"a cast to {wanted} is not on the list",
                            expected="Casts to INTEGER, DOUBLE, TEXT, BOOLEAN, DATE, TIMESTAMP")  # fmt: skip
    argument = inner(node.this)
    if isinstance(argument, Literal) and isinstance(argument.value, str) and kind in (Kind.DATE, Kind.DATETIME):
        return _parse_date(argument, kind)
    return call(f"cast_{kind.value}", argument)


def _bind_part(part: str, node: exp.Expression, scope: Scope, argument: Expression) -> Expression:
    part = {"dayofweek": "dow", "dayofyear": "doy", "days": "day"}.get(part, part)
    if part == "year":
        return _apply("year", argument)
    if part not in PARTS:
        raise scope.refusal(
            node, f"the date part '{part}' is not on the list", expected="Parts: year, " + ", ".join(PARTS)
        )
    return _apply(f"part_{part}", argument)


def _bind_truncation(node: exp.Expression, scope: Scope, argument: Expression) -> Expression:
    unit = node.args["unit"].name.lower() if node.args.get("unit") else "day"
    if unit not in TRUNCATIONS:
        raise scope.refusal(node, f"dates are not truncated to '{unit}'", expected="Units: " + ", ".join(TRUNCATIONS))
    return _apply(f"trunc_{unit}", argument)


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
