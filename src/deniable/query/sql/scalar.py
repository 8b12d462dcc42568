"""Row expressions: from the parser's nodes to ours, over the fields in scope, or a refusal.

What the parser says of a node and is not read here is refused (`READ`): a word that is passed over, such as the NOT
of NOT LIKE, would turn the question into another one."""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Callable
from datetime import date
from fractions import Fraction

from sqlglot import expressions as exp

from deniable.errors import QueryRefused
from deniable.query.algebra.dates import DAY, HINT, move_by, read_date, read_seconds, translate_pattern
from deniable.query.algebra.expression import ColumnRef, Expression, Kind, Literal, literal
from deniable.query.algebra.functions import (
    COMPARISONS,
    FUNCTION_FORMS,
    SIZES,
    align_compared,
    call,
    call_like,
    fold_arithmetic,
    fold_cast,
    is_wide,
    parse_date,
)
from deniable.query.algebra.intervals import PARTS, TRUNCATIONS, Mismatch
from deniable.query.sql.scope import CAST_TO_TEXT, FIXED_LENGTH, Scope, read_array, read_type, read_whole, spell_name

Inner = Callable[[exp.Expression], Expression]
"""What binds a part of an expression."""

BINARY: dict[type[exp.Expression], str] = {
    exp.Add: "add", exp.Sub: "subtract", exp.Mul: "multiply", exp.Div: "divide", exp.Mod: "modulo",
    exp.EQ: "eq", exp.NEQ: "ne", exp.LT: "lt", exp.LTE: "le", exp.GT: "gt", exp.GTE: "ge",
    exp.And: "and", exp.Or: "or", exp.Like: "like", exp.ILike: "ilike",
    exp.Nullif: "nullif", exp.StartsWith: "starts_with", exp.EndsWith: "ends_with", exp.Contains: "contains",
    exp.Left: "left", exp.Right: "right", exp.Pow: "power",
}  # fmt: skip
UNARY: dict[type[exp.Expression], str] = {
    exp.Not: "not", exp.Neg: "negate", exp.Abs: "abs", exp.Floor: "floor", exp.Ceil: "ceil", exp.Sqrt: "sqrt",
    exp.Exp: "exp", exp.Ln: "ln", exp.Lower: "lower", exp.Upper: "upper", exp.Length: "length", exp.Sign: "sign",
    exp.Trunc: "truncate",
    exp.Year: "year", exp.Quarter: "part_quarter", exp.Month: "part_month", exp.Week: "part_week",
    exp.Day: "part_day", exp.DayOfMonth: "part_day", exp.DayOfWeek: "part_dow", exp.DayOfYear: "part_doy",
    exp.Hour: "part_hour", exp.Minute: "part_minute", exp.Second: "part_second",
}  # fmt: skip
VARIADIC: dict[type[exp.Expression], str] = {
    exp.Least: "least", exp.Greatest: "greatest", exp.Coalesce: "coalesce", exp.Concat: "concat",
    exp.ConcatWs: "concat_ws",
}  # fmt: skip
NAMED = {"CLAMP": "clamp", "ENDS_WITH": "ends_with", "STARTS_WITH": "starts_with", "CONTAINS": "contains"}
CASTS = {
    Kind.INTEGER: ("INT", "BIGINT", "SMALLINT", "TINYINT", "UINT", "UBIGINT", "USMALLINT", "UTINYINT", "INT128"),
    Kind.DECIMAL: ("DOUBLE", "FLOAT", "DECIMAL", "BIGDECIMAL", "UDOUBLE"),
    Kind.TEXT: ("TEXT", "VARCHAR", "CHAR", "NVARCHAR", "NCHAR"),
    Kind.BOOLEAN: ("BOOLEAN",),
    Kind.DATE: ("DATE",),
    Kind.DATETIME: ("TIMESTAMP", "DATETIME", "TIMESTAMPNTZ", "TIMESTAMPTZ"),
}
PARTS_OF_A_DATE = ("year", "month", "day")
READ: dict[type[exp.Expression], tuple[str, ...]] = {
    exp.Like: ("negate",), exp.ILike: ("negate",), exp.Between: ("low", "high", "symmetric"),
    exp.Case: ("ifs", "default"), exp.If: ("true", "false"), exp.Cast: ("to",), exp.TryCast: ("to",),
    exp.Column: ("table", "db"), exp.Round: ("decimals",), exp.Substring: ("start", "length"),
    exp.Replace: ("replacement",), exp.RegexpReplace: ("replacement", "single_replace"),
    exp.TimestampTrunc: ("unit",), exp.DateTrunc: ("unit",), exp.Literal: ("is_string",),
    exp.DateDiff: ("unit", "date_part_boundary"), exp.In: ("query",), exp.Trim: ("position",), exp.ToChar: ("format",),
    exp.TimeToStr: ("format",), exp.UnixToTime: ("scale",), exp.Interval: ("unit",), exp.DateAdd: ("unit",),
    exp.DateSub: ("unit",), exp.DateFromParts: PARTS_OF_A_DATE,
}  # fmt: skip
"""What is read of a node beside its operands; the parser sets nothing else that would change what is meant."""
HARMLESS = ("this", "expression", "expressions", "safe", "typed", "coalesce", "ignore_nulls", "is_nvl", "is_null",
            "requires_string", "fractions_supported", "casts_non_integer_decimals")  # fmt: skip
UNITS = {"YEAR": (12, 0), "QUARTER": (3, 0), "MONTH": (1, 0), "WEEK": (0, 7 * DAY), "DAY": (0, DAY),
         "HOUR": (0, 3600), "MINUTE": (0, 60), "SECOND": (0, 1)}  # fmt: skip
"""Units of an interval in months and in seconds."""
COMPARE = "Compare it with a value, as in age > 30, or ask whether there is one: IS NOT NULL"
COMMON = "Ask for the most common value: SELECT x, COUNT(*) ... GROUP BY x ORDER BY 2 DESC LIMIT 1"
EACH_VALUE = "Ask for the values with their counts: SELECT x, COUNT(*) ... GROUP BY x"
NEAREST = {
    "AGE": "Count days with DATE_DIFF('day', a, b), or take YEAR(b) - YEAR(a)",
    "INTDIV": "Write FLOOR(x / y)",
    **dict.fromkeys(("REGEXPLIKE", "REGEXP_LIKE", "POSITION"), "Use LIKE, STARTS_WITH, ENDS_WITH or CONTAINS"),
    "a list of values": "Compare each column: a = 1 AND b = 2",
    "SIMILARTO": "Use LIKE",
    "REGEXP_EXTRACT": "Use REGEXP_REPLACE(t, '.*(a+).*', '\\1')",
    "SPLIT_PART": "Use REGEXP_REPLACE, LEFT, RIGHT or SUBSTRING",
    **dict.fromkeys(("MODE", "ANYVALUE", "ANY_VALUE", "FIRST", "LAST"), COMMON),
    **dict.fromkeys(("STRING_AGG", "GROUP_CONCAT", "LISTAGG", "ARRAY_AGG", "LIST"), EACH_VALUE),
    **dict.fromkeys(("VAR", "VARP", "VARIANCE_SAMP"), "Use VARIANCE, VAR_SAMP or VAR_POP"),
    **dict.fromkeys(("LOGICAL_OR", "LOGICAL_AND", "BOOL_OR", "BOOL_AND"), "Count with COUNT_IF(x)"),
    "AVERAGE": "Use AVG",
    "MEAN": "Use AVG",
}
"""For functions that are often asked for and are not on the list: what does the same."""
CHANGING = ("NOW", "RANDOM", "RAND", "UUID", "GEN_RANDOM_UUID", "TODAY", "NEXTVAL", "TRANSACTION_TIMESTAMP")
"""Functions that give another value each time, by the names that the parser has no class for."""
LITERALLY = "Write the value itself"
DEEPEST = 200
MOST_COUNT = 10**7
MOST_DIGITS = 60
"""Characters of a number before its exponent."""


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

    if not isinstance(node, exp.Literal):
        scope.clauses.count_step()
    try:
        found = _bind_node(node, scope, inner)
    except Mismatch as mismatch:
        raise scope.refusal(node, f"{spell_name(node)} {mismatch}") from None
    return scope.refuse_large(node, found)


def _bind_node(node: exp.Expression, scope: Scope, inner: Inner) -> Expression:
    kind = type(node)
    _refuse_unread(node, scope)
    if kind in BINARY or kind in UNARY:
        return (_bind_binary if kind in BINARY else _bind_unary)(node, scope, inner)
    if kind in VARIADIC:
        first = [node.this] if isinstance(node.this, exp.Expression) else []
        return call(VARIADIC[kind], *(inner(part) for part in [*first, *node.expressions]))
    match node:
        case exp.Paren():
            return inner(node.this)
        case exp.DPipe():
            return _bind_joined(node, inner)
        case exp.Column():
            return scope.column(node)
        case exp.Literal() | exp.Boolean() | exp.Null():
            return literal(_read_value(node, scope))
        case exp.RawString() | exp.National():
            return literal(node.name)
        case exp.Escape() if isinstance(node.this, exp.Like | exp.ILike) and node.expression.is_string:
            return _bind_binary(node.this, scope, inner, node.expression.name)
        case exp.Between():
            return _bind_between(node, inner)
        case exp.Subquery() | exp.Exists() if scope.subquery is not None:
            return scope.subquery(node, scope)
        case exp.In():
            return _bind_in(node, scope, inner)
        case exp.Is():
            return _bind_is(node, scope, inner)
        case exp.NullSafeNEQ() | exp.NullSafeEQ():
            return _bind_distinct(node, inner)
        case exp.Case() | exp.If():
            return _bind_case(node, inner)
        case exp.Cast() | exp.TryCast():
            return _bind_cast(node, scope, inner)
        case exp.Anonymous() if node.name.upper() in NAMED:
            parts = align_compared(NAMED[node.name.upper()], [inner(part) for part in node.expressions])
            return call(NAMED[node.name.upper()], *parts)
        case exp.Round() | exp.Substring() | exp.Replace() | exp.RegexpReplace() | exp.Trim() | exp.Log():
            return _bind_named(node, inner)
        case _:
            return _bind_temporal(node, scope, inner)


def _refuse_unread(node: exp.Expression, scope: Scope) -> None:
    """Refuse a node of which the parser says something that is not read: it would be answered as another question."""
    read = READ.get(type(node), ())
    unread = next((name for name, held in node.args.items() if held and name not in (*HARMLESS, *read)), None)
    if unread is not None and (type(node) in READ or type(node) in {**BINARY, **UNARY, **VARIADIC}):
        raise scope.refusal(node, f"{spell_name(node)} is not understood with '{unread.strip('_').upper()}'")
    if unread is None and type(node) in UNARY and (node.args.get("expression") or node.expressions):
        raise scope.refusal(node, f"{spell_name(node)} takes one argument here")


def _bind_binary(node: exp.Expression, scope: Scope, inner: Inner, escape: str = "\\") -> Expression:
    name, sides = BINARY[type(node)], [node.this, node.args.get("expression")]
    called = sides[1].name.upper() if isinstance(sides[1], exp.Anonymous) else ""
    if (isinstance(sides[1], exp.Any | exp.All) or called == "ALL") and name in (*COMPARISONS, "like", "ilike"):
        return _bind_any(node, scope, inner)
    if name in ("add", "subtract") and any(isinstance(_unwrap(side), exp.Interval) for side in sides):
        return _bind_moved(node, scope, inner)
    wide = name in COMPARISONS
    bound = [_bind_wide(side, inner) if wide else inner(side) for side in sides]
    if name in ("like", "ilike"):
        bound = [call_like(name, bound[0], bound[1], escape)]
    found = bound[0] if len(bound) == 1 else fold_arithmetic(name, *bound) or call(name, *align_compared(name, bound))
    return _deny(found, bool(node.args.get("negate")))


def _deny(found: Expression, denied: bool) -> Expression:
    return call("not", found) if denied else found


def _bind_joined(node: exp.DPipe, inner: Inner) -> Expression:
    """a || b || c: null where one of them is, other than CONCAT, which leaves nulls out."""
    parts: list[exp.Expression] = []
    rest: exp.Expression = node
    while isinstance(rest, exp.DPipe):
        parts.append(rest.expression)
        rest = rest.this
    bound = [inner(part) for part in (rest, *reversed(parts))]
    joined = call("concat", *bound)
    tests = [call("is_null", each) for each in bound if each.facts.nullable]
    if not tests:
        return joined
    return call("case", functools.reduce(lambda left, right: call("or", left, right), tests), literal(None), joined)


def _bind_any(node: exp.Expression, scope: Scope, inner: Inner) -> Expression:
    """x = ANY (...): x IN (...); x <> ALL (...): NOT IN; t LIKE ANY ('a%', 'b%'): one of them; x > ALL (...): all."""
    side = node.args["expression"]
    every = not isinstance(side, exp.Any)
    held = _unwrap(side.this if isinstance(side, exp.Any | exp.All) else exp.Tuple(expressions=side.expressions))
    if isinstance(held, exp.Tuple) and len(held.expressions) == 1:
        held = held.expressions[0]
    one = type(node) is (exp.NEQ if every else exp.EQ)
    if isinstance(held, exp.Subquery | exp.Select) and not one:
        raise refuse_unknown(side, scope)
    if isinstance(held, exp.Subquery | exp.Select):
        return _deny(inner(exp.In(this=node.this, query=held)), every)
    if (written := read_array(held, inner(node.this).facts.kind)) is not None:
        held = written
        if not held.expressions:
            return literal(every)
    if not isinstance(held, exp.Array | exp.Tuple) or not held.expressions:
        word = "ALL" if every else "ANY"
        raise scope.refusal(node, f"{word} takes a list of values", remedy="Write IN (...), or LIKE ... OR LIKE ...")
    if one:
        return _deny(inner(exp.In(this=node.this, expressions=held.expressions)), every)
    negate = {"negate": True} if node.args.get("negate") else {}
    parts = [inner(type(node)(this=node.this, expression=each, **negate)) for each in held.expressions]
    return functools.reduce(lambda left, right: call("and" if every else "or", left, right), parts)


def _bind_wide(node: exp.Expression, inner: Inner) -> Expression:
    """An operand of a comparison: whole numbers of 64 bits are compared as they are, and nowhere else exact."""
    whole = read_whole(node)
    return inner(node) if whole is None or not -(2**63) <= whole < 2**63 else literal(whole)


def _bind_between(node: exp.Between, inner: Inner) -> Expression:
    ends = [_bind_wide(node.args[end], inner) for end in ("low", "high")]
    x, low, high = align_compared("in", [inner(node.this), *ends])
    inside = call("and", call("ge", x, low), call("le", x, high))
    if not node.args.get("symmetric"):
        return inside
    return call("or", inside, call("and", call("ge", x, high), call("le", x, low)))


def _bind_distinct(node: exp.Expression, inner: Inner) -> Expression:
    """IS DISTINCT FROM: a comparison in which null is a value like others."""
    sides = align_compared("eq", [_bind_wide(node.this, inner), _bind_wide(node.expression, inner)])
    nulls = [call("is_null", side) for side in sides]
    differs = call("coalesce", call("ne", *sides), call("ne", *nulls))
    return differs if isinstance(node, exp.NullSafeNEQ) else call("not", differs)


def _bind_named(node: exp.Expression, inner: Inner) -> Expression:
    """Functions whose arguments the parser names."""
    match node:
        case exp.Round():
            name, parts = "round", [node.this, node.args.get("decimals")]
        case exp.Substring():
            name, parts = "substring", [node.this, node.args.get("start"), node.args.get("length")]
        case exp.Replace() | exp.RegexpReplace():
            name = "replace" if isinstance(node, exp.Replace) else "regexp_replace"
            parts = [node.this, node.args.get("expression"), node.args.get("replacement")]
        case exp.Trim():
            side = str(node.args.get("position") or "").upper()
            name, parts = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(side, "trim"), [node.this, node.expression]
        case _:
            return _bind_logarithm(node, inner)
    return call(name, *(inner(part) for part in parts if part is not None))


def _bind_logarithm(node: exp.Expression, inner: Inner) -> Expression:
    """LOG(x) and LOG(base, x), as DuckDB and PostgreSQL mean them."""
    if node.args.get("expression") is None:
        return call("log10", inner(node.this))
    base, number = inner(node.this), inner(node.expression)
    known = base.value if isinstance(base, Literal) else None
    if isinstance(known, bool) or not isinstance(known, int | Fraction) or known <= 0 or known == 1:
        raise Mismatch("takes a literal base above 0 first, as in LOG(10, x)")
    if known in (2, 10):
        return call("log2" if known == 2 else "log10", number)
    return call("divide", call("ln", number), literal(Fraction(math.log(known)).limit_denominator(10**12)))


def _bind_temporal(node: exp.Expression, scope: Scope, inner: Inner) -> Expression:
    """Functions of dates."""
    match node:
        case exp.Extract():
            return _bind_part(node.name.lower(), node, scope, inner(node.args["expression"]))
        case exp.Anonymous() if node.name.upper() in ("DATE_PART", "DATEPART") and len(node.expressions) == 2:
            return _bind_part(node.expressions[0].name.lower(), node, scope, inner(node.expressions[1]))
        case exp.TimestampTrunc() | exp.DateTrunc():
            return _bind_truncation(node, scope, inner(node.this))
        case exp.DateDiff():
            return _bind_difference(node, scope, inner(node.args["expression"]), inner(node.this))
        case exp.DateAdd() | exp.DateSub() if isinstance(node.expression, exp.Interval):
            return _bind_moved(node, scope, inner)
        case exp.ToChar() | exp.TimeToStr() if node.args.get("format") is not None:
            pattern = inner(node.args["format"])
            if isinstance(node, exp.ToChar) and isinstance(pattern, Literal):
                pattern = literal(translate_pattern(str(pattern.value)))
            return call("write_date", inner(node.this), pattern)
        case exp.UnixToTime():
            return _bind_moment([node.this, node.args.get("scale")], Kind.DATETIME, inner)
        case exp.Anonymous() if node.name.upper() in ("TO_DATE", "TO_TIMESTAMP"):
            kind = Kind.DATE if node.name.upper() == "TO_DATE" else Kind.DATETIME
            return _bind_moment(node.expressions, kind, inner)
        case exp.StrToTime() | exp.StrToDate():
            kind = Kind.DATE if isinstance(node, exp.StrToDate) else Kind.DATETIME
            return _bind_moment([node.this, node.args.get("format")], kind, inner)
        case exp.DateFromParts() if all(isinstance(node.args.get(part), exp.Literal) for part in PARTS_OF_A_DATE):
            written = "-".join(node.args[part].name.zfill(4 if part == "year" else 2) for part in PARTS_OF_A_DATE)
            return parse_date(literal(written), Kind.DATE)
        case exp.Date() if not node.expressions and node.args.get("zone") is None:
            return call("cast_date", inner(node.this))
        case _:
            raise refuse_unknown(node, scope)


def _bind_difference(node: exp.DateDiff, scope: Scope, since: Expression, until: Expression) -> Expression:
    """The days between two dates, or the ends of months, quarters or years that lie between them."""
    unit = node.args["unit"].name.lower() if node.args.get("unit") is not None else "day"
    unit = {"d": "day"}.get(unit, unit.removesuffix("s"))
    if unit == "day":
        return call("date_diff", since, until)
    years = call("subtract", call("year", until), call("year", since))
    if unit == "year":
        return years
    if unit not in ("month", "quarter"):
        raise scope.refusal(node, f"dates are not subtracted in units of '{unit}'",
                            expected="Units: day, month, quarter, year")  # fmt: skip
    part = f"part_{unit}"
    fraction = call("subtract", call(part, until), call(part, since))
    return call("add", call("multiply", years, literal(12 if unit == "month" else 4)), fraction)


def _bind_moment(parts: list[exp.Expression | None], kind: Kind, inner: Inner) -> Expression:
    """TO_DATE and TO_TIMESTAMP of what is written out, with the pattern it is written in, or in seconds."""
    found = [inner(part) for part in parts if part is not None]
    written = [part for part in found if isinstance(part, Literal)]
    if not written or len(written) != len(found) or len(found) > 2:
        raise Mismatch(HINT)
    if len(written) == 2:
        moment = read_date(str(written[0].value), str(written[1].value))
    elif isinstance(written[0].value, str):
        return parse_date(written[0], kind)
    else:
        moment = read_seconds(written[0].value)
    return literal(moment if kind is Kind.DATETIME else moment.date())


def _unwrap(node: exp.Expression | None) -> exp.Expression | None:
    while isinstance(node, exp.Paren):
        node = node.this
    return node


def _bind_moved(node: exp.Expression, scope: Scope, inner: Inner) -> Expression:
    """A date or a moment plus or minus an interval; a literal is moved at once."""
    sides, back = [_unwrap(node.this), _unwrap(node.args.get("expression"))], isinstance(node, exp.Sub | exp.DateSub)
    if isinstance(sides[0], exp.Interval) and not back:
        sides.reverse()
    if not isinstance(sides[1], exp.Interval) or sides[0] is None:
        raise scope.refusal(node, "an interval is subtracted from a date, not the other way round")
    months, seconds = (each * (-1 if back else 1) for each in _read_interval(sides[1], scope))
    moment = inner(sides[0])
    if isinstance(moment, Literal) and isinstance(moment.value, str):
        moment = parse_date(moment, Kind.DATETIME)
    if isinstance(moment, Literal) and isinstance(moment.value, date):
        return literal(move_by(moment.value, months, seconds))
    if months:
        moment = call("add_months" if moment.facts.kind is Kind.DATE else "shift_months", moment, literal(months))
    if seconds and moment.facts.kind is Kind.DATE and seconds % DAY == 0:
        return call("add", moment, literal(seconds // DAY))
    if seconds:
        moment = call("cast_datetime", moment) if moment.facts.kind is Kind.DATE else moment
        moment = call("shift_seconds", moment, literal(seconds))
    return moment


def _read_interval(node: exp.Interval, scope: Scope) -> tuple[int, int]:
    """An interval in months and in seconds."""
    unit = node.args["unit"].name.upper().removesuffix("S") if node.args.get("unit") is not None else ""
    held = _unwrap(node.this)
    sign = -1 if isinstance(held, exp.Neg) else 1
    text = str(held.this.this if isinstance(held, exp.Neg) else held.this) if held is not None else ""
    try:
        count = sign * int(text) if len(text) < 12 else None
    except ValueError:
        count = None
    if unit not in UNITS or count is None or abs(count) > MOST_COUNT:
        raise scope.refusal(node, "this interval cannot be read",
                            expected="A whole number and one unit, as in INTERVAL '3 months'")  # fmt: skip
    months, seconds = UNITS[unit]
    return count * months, count * seconds


def refuse_unknown(node: exp.Expression, scope: Scope) -> QueryRefused:
    """The refusal of a construct that is not on the list, with the reason where there is a particular one."""
    if isinstance(node, exp.IgnoreNulls | exp.RespectNulls):
        return refuse_unknown(node.this, scope)
    name = spell_name(node)
    if name in CHANGING:
        return scope.refusal(node, f"{name} is not the same each time it is asked", remedy=LITERALLY)
    reasons: tuple[tuple[tuple[type[exp.Expression], ...], str, str], ...] = (
        ((exp.Window,), "a window function over private rows would release rows",
         "Aggregate first, then use the noisy numbers"),
        ((exp.Subquery, exp.Select, exp.Exists, exp.SubqueryPredicate), "a sub-query cannot stand here",
         "Put it in WHERE, or in FROM or WITH, and join it"),
        ((exp.Star,), "'*' would release rows", "Name aggregates such as COUNT(*)"),
        ((exp.Interval,), "an interval stands beside a date, with '+' or '-'", NEAREST["AGE"]),
        ((exp.AggFunc,), f"{name} is not one of the aggregates that can be released with noise",
         "Use COUNT, SUM, AVG, VARIANCE, STDDEV, CORR, MIN, MAX, MEDIAN, QUANTILE or HISTOGRAM"),
        ((exp.Rand, exp.CurrentDate, exp.CurrentTimestamp, exp.CurrentTime, exp.Uuid),
         f"{name} is not the same each time it is asked", LITERALLY),
    )  # fmt: skip
    inside = node.find_ancestor(exp.AggFunc) if isinstance(node, exp.AggFunc) else None
    if inside is not None:
        return scope.refusal(node, f"{name} stands inside {spell_name(inside)}: an aggregate of an aggregate",
                             remedy="Aggregate each person first, in a sub-query that groups by the unit")  # fmt: skip
    for kinds, happened, remedy in reasons:
        if isinstance(node, kinds):
            return scope.refusal(node, happened, remedy=NEAREST.get(name, remedy))
    return scope.refusal(node, f"{name} is not supported", remedy=_suggest(name),
                         expected="The reference of SQL lists what is")  # fmt: skip


def _suggest(name: str) -> str:
    """What does the same as a function that is not known, or the function that is probably meant: a slip of spelling.

    A name is taken for a slip only where it is nearly that of a function and begins with the same letter: POWR may be
    POWER, and AGE is not GE.
    """
    if name in NEAREST:
        return NEAREST[name]
    known = {form.split("(")[0] for form in FUNCTION_FORMS.values() if form.split("(")[0].isidentifier()}
    known |= {"COUNT", "SUM", "AVG", "VARIANCE", "STDDEV", "CORR", "MIN", "MAX", "MEDIAN", "QUANTILE", "HISTOGRAM"}
    close = difflib.get_close_matches(name, [each for each in known if each[:1] == name[:1]], n=1, cutoff=0.75)
    return f"Did you mean '{close[0]}'?" if close else ""


def _bind_unary(node: exp.Expression, scope: Scope, inner: Inner) -> Expression:
    """A function of one argument. -3 is a literal, so that it can be a bound; so are -(-3) and -3::int: -(3::int)."""
    held = node.this.unnest() if isinstance(node, exp.Neg) else None
    if isinstance(held, exp.Literal) and not held.is_string:
        return literal(-_read_number(held, scope))
    bound = inner(node.this)
    number = bound.value if isinstance(held, exp.Neg | exp.Cast) and isinstance(bound, Literal) else None
    if isinstance(number, int | Fraction) and not isinstance(number, bool):
        return literal(-number)
    return call(UNARY[type(node)], bound)


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
        raise scope.refusal(node, "this number is too large or too fine", expected="Numbers below 2^53, 15 places")
    return int(number) if number.denominator == 1 else number


def _bind_in(node: exp.In, scope: Scope, inner: Inner) -> Expression:
    if node.args.get("query") is not None and scope.subquery is not None:
        return scope.subquery(node, scope)
    if node.args.get("query") is not None:
        raise scope.refusal(node, "IN takes a list of values here", remedy="Join the sub-query instead")
    if not node.expressions:
        raise scope.refusal(node, "the list after IN is empty", remedy="Name a value, x IN (1); or write WHERE FALSE")
    parts = [inner(node.this), *(_bind_wide(part, inner) for part in node.expressions)]
    x, *rest = parts
    listed = [each for each in rest if isinstance(each, Literal) and not isinstance(each.value, Fraction)]
    if not any(map(is_wide, listed)):
        return call("in", *align_compared("in", parts))
    # Beside a number that is not whole, or a computed one, large whole numbers would be compared in DOUBLE.
    groups = [[x, *listed], *([x, each] for each in rest if each not in listed)]
    apart = [call("in", *align_compared("in", group)) for group in groups]
    return functools.reduce(lambda left, right: call("or", left, right), apart)


def _bind_is(node: exp.Is, scope: Scope, inner: Inner) -> Expression:
    other = node.expression
    if isinstance(other, exp.Null):
        return call("is_null", inner(node.this))
    if isinstance(other, exp.Boolean):
        return call("is_true" if other.this else "is_false", inner(node.this))
    raise scope.refusal(node, "IS takes NULL, TRUE or FALSE")


def _bind_case(node: exp.Case | exp.If, inner: Inner) -> Expression:
    ifs = [node] if isinstance(node, exp.If) else node.args["ifs"]
    subject = None if isinstance(node, exp.If) or node.this is None else inner(node.this)
    default = node.args.get("false") if isinstance(node, exp.If) else node.args.get("default")
    arguments: list[Expression] = []
    for branch in ifs:
        condition = inner(branch.this)
        if subject is not None:
            condition = call("eq", *align_compared("eq", [subject, condition]))
        arguments += [condition, inner(branch.args["true"])]
    arguments.append(inner(default) if default is not None else literal(None))
    return call("case", *arguments)


def _bind_cast(node: exp.Cast, scope: Scope, inner: Inner) -> Expression:
    target = read_type(node.to)
    wanted = target.this.name if hasattr(target.this, "name") else str(target.this)
    kind = next((kind for kind, names in CASTS.items() if wanted in names), None)
    if kind is None:
        raise scope.refusal(node, f"a cast to {wanted} is not on the list",
                            expected="Casts to INTEGER, DOUBLE, TEXT, BOOLEAN, DATE, TIMESTAMP")  # fmt: skip
    if kind is Kind.TEXT and (target.expressions or wanted in ("CHAR", "NCHAR")):
        raise scope.refusal(node, FIXED_LENGTH, remedy=CAST_TO_TEXT)
    argument, digits = inner(node.this), [int(each.name) for each in target.expressions]
    known = fold_cast(argument, kind, wanted, digits)
    if isinstance(argument, Literal) and known is not None:
        return known
    written = argument.value if isinstance(argument, Literal) and not isinstance(node, exp.TryCast) else None
    number = isinstance(written, int | Fraction) and not isinstance(written, bool) and kind.numeric
    if number or (isinstance(written, str) and (kind.numeric or kind is Kind.BOOLEAN)):
        raise scope.refusal(node, f"this {'number does not fit into' if number else 'text cannot be read as'} {wanted}")
    column = not isinstance(argument, Literal)
    if kind is Kind.DATETIME and column and (wanted == "TIMESTAMPTZ" or (digits and digits[0] < 6)):
        raise scope.refusal(node, "moments of a column have no time zone, and 6 places of seconds",
                            remedy="Cast to TIMESTAMP, or take DATE_TRUNC('minute', x)")  # fmt: skip
    if known is not None:
        return known
    if isinstance(argument, ColumnRef) and argument.facts.kind is kind is Kind.INTEGER:
        return _bind_size(target, wanted, scope, argument)  # as it is: beyond 2^53 a DOUBLE would round it
    if argument.facts.kind is Kind.BOOLEAN and kind.numeric:
        return call("case", argument, literal(1), call("not", argument), literal(0), literal(None))
    return _bind_size(target, wanted, scope, call(f"cast_{kind.value}", argument))


def _bind_size(target: exp.DataType, wanted: str, scope: Scope, number: Expression) -> Expression:
    """A number as its type holds it: null beyond its range, rounded to its places."""
    if wanted in SIZES and wanted != "INT":
        low, high = SIZES[wanted]
        known = number.facts
        if known.lower is not None and known.upper is not None and low <= known.lower <= known.upper <= high:
            return number
        fits = call("ge", number, literal(low))
        if high < 2**53:
            fits = call("and", fits, call("le", number, literal(high)))
        return call("case", fits, number, literal(None))
    if wanted != "DECIMAL" or not target.expressions:
        return number
    places = target.expressions[1].this if len(target.expressions) == 2 else exp.Literal.number(0)
    return call("round", number, bind_expression(places, Scope(scope.clauses, ())))


def _bind_part(part: str, node: exp.Expression, scope: Scope, argument: Expression) -> Expression:
    part = {"dayofweek": "dow", "dayofyear": "doy"}.get(part, part).removesuffix("s")
    if part in ("year", "epoch"):
        return call(part, argument)
    if part not in PARTS:
        expected = "Parts: year, epoch, " + ", ".join(PARTS)
        raise scope.refusal(node, f"the date part '{part}' is not on the list", expected=expected)
    return call(f"part_{part}", argument)


def _bind_truncation(node: exp.Expression, scope: Scope, argument: Expression) -> Expression:
    unit = node.args["unit"].name.lower() if node.args.get("unit") else "day"
    if unit not in TRUNCATIONS:
        raise scope.refusal(node, f"dates are not truncated to '{unit}'", expected="Units: " + ", ".join(TRUNCATIONS))
    return call(f"trunc_{unit}", argument)
