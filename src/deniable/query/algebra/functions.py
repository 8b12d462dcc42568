"""The allow-list: every function that a query may use on a row, with the rule of its facts and its engine form.

All of them are total. In the engine arithmetic runs in DOUBLE, where overflow is infinity and not an error; divisors
pass through NULLIF; casts are TRY_CAST. So no value of a row can make a query fail, and a refusal never depends on
rows. A row's rounding errors do no harm: what is summed is clamped and rounded to whole steps afterwards.

At the end are the forms in which functions and aggregates are written, as the reference page lists them; in them x and
y are numbers, t is a text, d a date, m a datetime, c a condition."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from fractions import Fraction

from deniable.errors import pluralize
from deniable.query.algebra import dates
from deniable.query.algebra import intervals as rule
from deniable.query.algebra import intervals as word
from deniable.query.algebra.expression import (
    EXACT,
    Call,
    ColumnRef,
    Expression,
    Facts,
    Kind,
    Literal,
    Value,
    fold_text,
    literal,
)
from deniable.query.algebra.intervals import PARTS, TRUNCATIONS, Mismatch, Rule


@dataclass(frozen=True, slots=True)
class Function:
    """One allow-listed function: how many arguments, what follows for the result, and how the engine spells it."""

    name: str
    least: int
    most: int
    rule: Rule
    template: str
    """With {0}, {1} ... for arguments as they are, {n0} ... for arguments as DOUBLE, {*} for all, comma-separated."""


LONGEST_REGEX = 200
_REGEX_PART = re.compile(
    r"""\\[.dws/\\^$|?*+()\[\]{}-]|\[\^?(?:\\[dws.\]\\^-]|[^\[\]\\])+\]|\(\?:|\((?!\?)|[)|^$.]|[*+?]\??(?![*+?])|[^\\\[\](){}*+?|^$.]"""
)
"""What a regular expression may be made of: signs, classes, groups, choices and simple repetitions. Each means the same
to Python, which checks it here, and to the engine, whose matching takes time in proportion to text and pattern."""


def replaced_length(facts: tuple[Facts, ...]) -> int:
    """The most characters that replacing one match can leave; the pattern and what replaces it are written out."""
    source, *written = facts
    if any(each.domain is None or len(each.domain) != 1 for each in written):
        raise Mismatch("takes a pattern and a replacement that are written out")
    pattern, replacement = (str(each.domain[0]) for each in written if each.domain is not None)
    groups = count_regex_groups(pattern)
    references = re.findall(r"\\(.?)", replacement)
    if any(not each.isdecimal() or int(each) > groups for each in references):
        raise Mismatch("has a replacement that names a group which the pattern does not have")
    return word.length_of(source) * (1 + len(references)) + len(replacement)


def count_regex_groups(pattern: str) -> int:
    """How many groups a regular expression has, or a refusal of what is not certain to be read by the engine.

    >>> count_regex_groups("^https?://(?:www[.])?([^/]+)/.*$")
    1
    """
    fits = len(pattern) <= LONGEST_REGEX and "".join(_REGEX_PART.findall(pattern)) == pattern
    fits = fits and not any(sets in pattern for sets in ("--", "&&", "||", "~~"))  # sets of sets, to later Pythons
    try:
        return re.compile(pattern).groups if fits else _refuse_regex()
    except re.error:
        return _refuse_regex()


def _refuse_regex() -> int:
    raise Mismatch(
        f"takes a pattern of at most {LONGEST_REGEX} signs, made of classes, groups, choices, '*', '+' and '?'; "
        "counted repetitions, lookaround and references inside it are not taken"
    )


def _list_functions() -> dict[str, Function]:
    floor, ceil = (lambda x: Fraction(math.floor(x))), (lambda x: Fraction(math.ceil(x)))
    one = Fraction(1)
    listed = [
        Function("add", 2, 2, rule.addition(1), "({n0} + {n1})"),
        Function("subtract", 2, 2, rule.addition(-1), "({n0} - {n1})"),
        Function("multiply", 2, 2, rule.multiplication, "({n0} * {n1})"),
        Function("divide", 2, 2, rule.division, "({n0} / NULLIF({n1}, 0))"),
        Function("modulo", 2, 2, rule.modulo, "({n0} % NULLIF({n1}, 0))"),
        Function("negate", 1, 1, rule.negation, "(-{n0})"),
        Function("abs", 1, 1, rule.absolute, "abs({n0})"),
        Function("floor", 1, 1, rule.monotone(floor, Kind.INTEGER, one), "floor({n0})"),
        Function("ceil", 1, 1, rule.monotone(ceil, Kind.INTEGER, one), "ceil({n0})"),
        Function("round", 1, 2, rule.round_to_places, "round({n0}{, int1})"),
        Function("truncate", 1, 1, rule.monotone(lambda x: Fraction(int(x)), Kind.INTEGER, one), "trunc({n0})"),
        Function("sign", 1, 1, rule.sign, "sign({n0})"),
        Function("power", 2, 2, rule.power, "pow({n0}, {n1})"),
        Function("sqrt", 1, 1, rule.smooth(math.sqrt, 0.0), "sqrt({n0})"),
        Function("exp", 1, 1, rule.smooth(math.exp), "exp({n0})"),
        Function("ln", 1, 1, rule.smooth(math.log, 1e-300), "ln(NULLIF(greatest({n0}, 0), 0))"),
        Function("log10", 1, 1, rule.smooth(math.log10, 1e-300), "log10(NULLIF(greatest({n0}, 0), 0))"),
        Function("log2", 1, 1, rule.smooth(math.log2, 1e-300), "log2(NULLIF(greatest({n0}, 0), 0))"),
        Function("least", 1, 9, rule.extreme(least=True), "least({*})"),
        Function("greatest", 1, 9, rule.extreme(least=False), "greatest({*})"),
        Function("clamp", 3, 3, rule.clamp, "(CASE WHEN {0} IS NOT NULL THEN greatest({1}, least({2}, {0})) END)"),
        Function("eq", 2, 2, rule.comparison, "({0} = {1})"),
        Function("ne", 2, 2, rule.comparison, "({0} <> {1})"),
        Function("lt", 2, 2, rule.comparison, "({0} < {1})"),
        Function("le", 2, 2, rule.comparison, "({0} <= {1})"),
        Function("gt", 2, 2, rule.comparison, "({0} > {1})"),
        Function("ge", 2, 2, rule.comparison, "({0} >= {1})"),
        Function("in", 2, 10_000, rule.comparison, "({0} IN ({rest}))"),
        Function("and", 2, 2, rule.logic, "({0} AND {1})"),
        Function("or", 2, 2, rule.logic, "({0} OR {1})"),
        Function("not", 1, 1, rule.logic, "(NOT {0})"),
        Function("is_null", 1, 1, rule.truth, "({0} IS NULL)"),
        Function("is_true", 1, 1, rule.logic, "({0} IS TRUE)"),
        Function("is_false", 1, 1, rule.logic, "({0} IS FALSE)"),
        Function("like", 2, 2, word.text_test, "({0} LIKE {1})"),
        Function("ilike", 2, 2, word.text_test, "({0} ILIKE {1})"),
        Function("starts_with", 2, 2, word.text_test, "starts_with({0}, {1})"),
        Function("ends_with", 2, 2, word.text_test, "ends_with({0}, {1})"),
        Function("contains", 2, 2, word.text_test, "contains({0}, {1})"),
        Function("coalesce", 1, 20, rule.coalesce, "COALESCE({*})"),
        Function("nullif", 2, 2, rule.nullif, "NULLIF({0}, {1})"),
        Function("case", 3, 2_001, rule.branches, "{case}"),
        Function("lower", 1, 1, word.text(1, word.keep_length), "lower({0})"),
        Function("upper", 1, 1, word.text(1, word.keep_length), "upper({0})"),
        Function("trim", 1, 2, word.text(2, word.keep_length), "trim({0}{, 1})"),
        Function("ltrim", 1, 2, word.text(2, word.keep_length), "ltrim({0}{, 1})"),
        Function("rtrim", 1, 2, word.text(2, word.keep_length), "rtrim({0}{, 1})"),
        Function("substring", 2, 3, word.text(1, word.cut_length), "substr({0}, {int1}{, int2})"),
        Function("left", 2, 2, word.text(1, word.first_length), "left({0}, {int1})"),
        Function("right", 2, 2, word.text(1, word.first_length), "right({0}, {int1})"),
        Function("replace", 3, 3, word.text(3, word.replace_length), "replace({0}, {1}, {2})"),
        Function("regexp_replace", 3, 3, word.text(3, replaced_length), "regexp_replace({0}, {1}, {2})"),
        Function("concat", 2, 20, word.text(20, word.add_lengths), "concat({*})"),
        Function("concat_ws", 2, 21, word.text(21, word.join_lengths), "concat_ws({*})"),
        Function("length", 1, 1, word.length, "length({0})"),
        Function("year", 1, 1, word.year, "year({0})"),
        Function("epoch", 1, 1, dates.epoch, "epoch({0})"),
        Function("write_date", 2, 2, dates.write_date, "strftime({0}, {1})"),
        Function("add_months", 2, 2, dates.move_date_by_months, "CAST(({0} + to_months({int1})) AS DATE)"),
        Function("shift_months", 2, 2, dates.move_by_months, "({0} + to_months({int1}))"),
        Function("shift_seconds", 2, 2, dates.move_by_seconds, "({0} + to_seconds(CAST({1} AS BIGINT)))"),
        Function("date_diff", 2, 2, word.day_difference, "date_diff('day', {0}, {1})"),
        Function("cast_integer", 1, 1, word.cast(Kind.INTEGER), "TRY_CAST(round(TRY_CAST({0} AS DOUBLE)) AS BIGINT)"),
        Function("cast_decimal", 1, 1, word.cast(Kind.DECIMAL), "TRY_CAST({0} AS DOUBLE)"),
        Function("cast_text", 1, 1, word.cast(Kind.TEXT), "TRY_CAST({0} AS VARCHAR)"),
        Function("cast_boolean", 1, 1, word.cast(Kind.BOOLEAN), "TRY_CAST({0} AS BOOLEAN)"),
        Function("cast_date", 1, 1, word.cast(Kind.DATE), "TRY_CAST({0} AS DATE)"),
        Function("cast_datetime", 1, 1, word.cast(Kind.DATETIME), "TRY_CAST({0} AS TIMESTAMP)"),
    ]
    listed += [Function(f"part_{part}", 1, 1, word.part(part), f"extract({part} FROM {{0}})") for part in PARTS]
    for unit in TRUNCATIONS:
        kind = "TIMESTAMP" if unit in ("hour", "minute") else "DATE"
        template = f"CAST(date_trunc('{unit}', {{0}}) AS {kind})"
        listed.append(Function(f"trunc_{unit}", 1, 1, word.truncation(unit), template))
    return {function.name: function for function in listed}


FUNCTIONS: dict[str, Function] = _list_functions()


STRICT = ("year", "part_", "trunc_", "date_diff", "epoch", "write_date", "add_months", "shift_", "ltrim", "rtrim",
          "regexp_replace",
           "lower", "upper", "trim", "substring", "left", "right", "replace",
          "length", "like", "ilike", "starts_with", "ends_with", "contains")  # fmt: skip
"""Functions of texts and dates that are null where an argument is; a bare NULL has no type the engine could go by."""


OPAQUE = "looks at the column that tells people apart, which this analyst may count and join by, and not name"


def call(name: str, *arguments: Expression) -> Expression:
    """Apply an allow-listed function; Mismatch says what does not fit."""
    function = FUNCTIONS[name]
    if not function.least <= len(arguments) <= function.most:
        least, most = function.least, function.most
        wanted = pluralize(least, "argument") if least == most else f"{least} to {most} arguments"
        raise Mismatch(f"takes {wanted}, not {len(arguments)}")
    if any(argument.facts.opaque for argument in arguments):
        raise Mismatch(OPAQUE)
    facts = function.rule(tuple(argument.facts for argument in arguments))
    if name.startswith(STRICT) and any(argument.facts.kind is Kind.NULL for argument in arguments):
        return literal(None)
    return Call(name, arguments, facts)


COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge", "in")


def align_compared(name: str, arguments: list[Expression]) -> list[Expression]:
    """What is compared, in one type: a text that is written beside a date, a number or a truth value means one, too.

    Dates that are compared with midnights are compared as dates, so that each wording is one question.
    """
    if name not in (*COMPARISONS, "clamp"):
        return arguments
    temporal = {a.facts.kind for a in arguments} & {Kind.DATE, Kind.DATETIME}
    if not temporal:
        aligned = _read_texts(arguments, wide=name in COMPARISONS)
        if name not in COMPARISONS:
            return aligned
        if any(is_wide(each) for each in aligned):
            _refuse_inexact(aligned)
        whole = any(each.facts.kind is Kind.INTEGER and not isinstance(each, Literal) for each in aligned)
        return [_keep_between(each) for each in aligned] if whole else aligned
    kind = Kind.DATETIME if Kind.DATETIME in temporal else Kind.DATE
    aligned = [
        parse_date(a, kind) if isinstance(a, Literal) and isinstance(a.value, str) else _widen_to_datetime(a, kind)
        for a in arguments
    ]
    days = [_narrow_to_date(each) for each in aligned] if kind is Kind.DATETIME and name in COMPARISONS else [None]
    return aligned if None in days else [each for each in days if each is not None]


def _read_texts(arguments: list[Expression], *, wide: bool) -> list[Expression]:
    """Texts that are written beside numbers or truth values, as those; what cannot be read is left to be refused."""
    kinds = {a.facts.kind for a in arguments if not isinstance(a, Literal)}
    if len(kinds) != 1 or not ((kind := kinds.pop()).numeric or kind is Kind.BOOLEAN):
        return arguments
    written = [a.value if isinstance(a, Literal) and isinstance(a.value, str) else None for a in arguments]
    wholes = [int(each) if wide and kind is Kind.INTEGER and each and _WHOLE(each) else None for each in written]
    return [
        a if text is None
        else literal(whole) if whole is not None and abs(whole) < 2**63
        else fold_cast(a, kind) or a
        for a, text, whole in zip(arguments, written, wholes, strict=True)
    ]  # fmt: skip


def _keep_between(argument: Expression) -> Expression:
    """A number that is not whole and is compared with whole ones: as DOUBLE it stands between the same two of them."""
    number = argument.value if isinstance(argument, Literal) else None
    if not isinstance(number, Fraction) or not Fraction(float(number)).denominator == 1 != number.denominator:
        return argument
    if abs(number) >= EXACT // 2:
        raise Mismatch("compares whole numbers with one from 2^52 on that is not whole")
    return literal(math.floor(number) + Fraction(1, 2))


def is_wide(argument: Expression) -> bool:
    """Whether a whole number is written out that is not exact as DOUBLE."""
    return isinstance(argument, Literal) and type(argument.value) is int and abs(argument.value) >= EXACT


def _refuse_inexact(arguments: list[Expression]) -> None:
    """Refuse to compare a large whole number with whole numbers by way of DOUBLE, where others are equal to it."""
    whole = any(each.facts.kind is Kind.INTEGER and not isinstance(each, Literal) for each in arguments)
    if any(_is_rounded(each) for each in arguments) or (
        whole and any(each.facts.kind is Kind.DECIMAL for each in arguments)
    ):
        raise Mismatch("compares a whole number from 2^53 on with what is computed in floating point")


def _is_rounded(argument: Expression) -> bool:
    """Whether whole numbers of a column are computed with in DOUBLE."""
    if not isinstance(argument, Call):
        return False
    parts = list(_list_parts(argument))
    held = any(isinstance(each, ColumnRef) and each.facts.kind is Kind.INTEGER for each in parts)
    computed = (
        each.facts.kind is Kind.DECIMAL or (isinstance(each, Call) and each.name in ARITHMETIC) for each in parts
    )
    return held and any(computed)


def _list_parts(tree: Expression) -> Iterator[Expression]:
    yield tree
    for each in tree.arguments if isinstance(tree, Call) else ():
        yield from _list_parts(each)


def _widen_to_datetime(argument: Expression, kind: Kind) -> Expression:
    if kind is Kind.DATETIME and isinstance(argument, Literal) and argument.facts.kind is Kind.DATE:
        assert isinstance(argument.value, date)
        return literal(datetime(argument.value.year, argument.value.month, argument.value.day))
    if kind is Kind.DATETIME and argument.facts.kind is Kind.DATE:
        return call("cast_datetime", argument)
    return argument


def _narrow_to_date(argument: Expression) -> Expression | None:
    """The date of which a moment is the midnight; None where it need not be one."""
    match argument:
        case Literal(datetime() as value) if value.time() == time():
            return literal(value.date())
        case Literal(None):
            return argument
        case Call("cast_datetime", (inner,)) if inner.facts.kind is Kind.DATE:
            return inner
    return None


_WHOLE = re.compile(r"\s*[+-]?[0-9]{1,19}\s*", re.ASCII).fullmatch
_MOMENT = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[ T]([0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]+)?)?))?"
    r"\s*([+-][0-9]{2}(?::?[0-9]{2})?|[Zz])?"
)


def read_moment(text: str, zoned: bool = False) -> datetime:
    """A moment without a time zone, as columns have it: taken to UTC for a type with a zone, else the zone is left out.

    >>> read_moment("2026-01-31 14:30+02"), read_moment("2026-01-31 +02", zoned=True)
    (datetime.datetime(2026, 1, 31, 14, 30), datetime.datetime(2026, 1, 30, 22, 0))
    """
    found = _MOMENT.fullmatch(text.strip())
    written = text if found is None else f"{found[1]} {found[2] or '00:00'}{found[3] or ''}"
    moment = datetime.fromisoformat(written)
    return (moment.astimezone(UTC) if zoned and moment.tzinfo is not None else moment).replace(tzinfo=None)


def parse_date(text: Literal, kind: Kind, zoned: bool = False) -> Literal:
    """A text of the question as a date or a moment; one of a type with a time zone is taken to UTC."""
    try:
        moment = read_moment(str(text.value), zoned)
    except (ValueError, OverflowError):
        raise Mismatch("compares a date with a text that is not one; write DATE '2020-12-31'") from None
    return literal(moment if kind is Kind.DATETIME else moment.date())


_NUMBER = re.compile(r"[-+]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][-+]?[0-9]{1,2})?").fullmatch
"""A number as a text, as PostgreSQL reads it; neither NaN nor infinity."""
FINEST = 10**15
"""The greatest denominator of a number in a question."""


FOLDED = {"add": Fraction.__add__, "subtract": Fraction.__sub__, "multiply": Fraction.__mul__}


def fold_arithmetic(name: str, left: Expression, right: Expression) -> Literal | None:
    """Arithmetic of two numbers that are written out, done exactly: 0.06 + 0.01 is 0.07, and no float beside it."""
    if name not in FOLDED or not isinstance(left, Literal) or not isinstance(right, Literal):
        return None
    sides = [each.value for each in (left, right)]
    if any(isinstance(each, bool) or not isinstance(each, int | Fraction) for each in sides):
        return None
    number = FOLDED[name](*(Fraction(each) for each in sides if isinstance(each, int | Fraction)))
    if abs(number) >= 2**53 or number.denominator > 10**15:
        return None
    return literal(int(number) if number.denominator == 1 else number)


def fold_cast(argument: Expression, kind: Kind, wanted: str = "", digits: Sequence[int] = ()) -> Expression | None:
    """A cast that changes nothing, or one of a value that the question writes, as that value; else None.

    `wanted` is the name of a type that is narrower than its kind, `digits` what stands in brackets after it.

    >>> fold_cast(literal("4567"), Kind.DECIMAL).value, fold_cast(literal("private"), Kind.TEXT).value
    (4567, 'private')
    >>> fold_cast(literal(40000), Kind.INTEGER, "SMALLINT") is None
    True
    """
    value: Value = argument.value if isinstance(argument, Literal) else None
    if isinstance(value, str) and kind in (Kind.DATE, Kind.DATETIME):
        value = (argument := parse_date(literal(value), kind, wanted == "TIMESTAMPTZ")).value
    elif isinstance(value, datetime) and kind is Kind.DATE:
        argument = literal(value.date())
    elif isinstance(value, date) and kind is Kind.DATETIME:
        argument = _widen_to_datetime(argument, kind)
    if isinstance(value, datetime) and kind is Kind.DATETIME and digits:
        return literal(_round_moment(value, digits[0]))
    if argument.facts.kind is kind and kind in (Kind.TEXT, Kind.DATE, Kind.DATETIME, Kind.BOOLEAN):
        return argument
    if isinstance(value, str) and kind is Kind.BOOLEAN and value.strip().lower() in TRUTHS:
        return literal(TRUTHS[value.strip().lower()])
    if isinstance(value, str) and kind.numeric and _NUMBER(value.strip()):
        value = Fraction(value.strip())
        value = None if kind is Kind.INTEGER and value.denominator > 1 else value
    if isinstance(value, bool) or not isinstance(value, int | Fraction) or not kind.numeric:
        return None
    return _fit_number(Fraction(value), kind, wanted, digits)


def _fit_number(number: Fraction, kind: Kind, wanted: str, digits: Sequence[int]) -> Literal | None:
    """A number in the range and with the places of a type, halves away from zero; None where it is too large."""
    places = 0 if kind is Kind.INTEGER or len(digits) == 1 else digits[1] if digits else None
    if places is not None:
        steps = math.floor(abs(number) * Fraction(10) ** places + Fraction(1, 2))
        number = Fraction(steps if number >= 0 else -steps) / Fraction(10) ** places
    low, high = SIZES.get(wanted, (-(2**53), 2**53))
    fits = max(low, 1 - 2**53) <= number <= min(high, 2**53 - 1) and number.denominator <= FINEST
    if digits and places is not None:
        fits = fits and abs(number) < Fraction(10) ** (digits[0] - places)
    return literal(int(number) if number.denominator == 1 else number) if fits else None


def _round_moment(moment: datetime, places: int) -> datetime:
    unit = 10 ** max(6 - places, 0)
    steps, rest = divmod(moment.microsecond, unit)
    return moment.replace(microsecond=0) + timedelta(microseconds=(steps + (2 * rest >= unit)) * unit)


SIZES = {"TINYINT": (-(2**7), 2**7 - 1), "SMALLINT": (-(2**15), 2**15 - 1), "INT": (-(2**31), 2**31 - 1),
         "UTINYINT": (0, 2**8 - 1), "USMALLINT": (0, 2**16 - 1), "UINT": (0, 2**32 - 1),
         "UBIGINT": (0, 2**64 - 1)}  # fmt: skip
"""The least and the greatest number of types that are narrower than our own."""


TRUTHS = {
    **dict.fromkeys(("t", "tr", "tru", "true", "y", "ye", "yes", "on", "1"), True),
    **dict.fromkeys(("f", "fa", "fal", "fals", "false", "n", "no", "of", "off", "0"), False),
}
"""Texts that PostgreSQL reads as truth values."""


def join_tests(tests: Sequence[Expression | None]) -> Expression | None:
    """All of some conditions; None where there is none."""
    found: Expression | None = None
    for test in tests:
        found = test if found is None else found if test is None else call("and", found, test)
    return found


def test_key(key: Expression, value: Value) -> Expression:
    """Whether a row is in the group of a key."""
    if key.facts.kind is Kind.BOOLEAN:
        return key if value else call("not", key)
    return call("eq", key, literal(value))


ARITHMETIC = ("add", "subtract", "multiply", "divide", "modulo", "negate", "abs", "floor", "ceil", "round", "truncate",
              "sqrt", "exp", "ln", "log10", "log2", "power")  # fmt: skip
"""Functions through which NaN passes, so that it is made null once where the arithmetic ends."""
FINITE = Fraction(10**150)
"""Numbers up to here, and products of two of them, are finite in DOUBLE."""


def may_be_nan(expression: Expression) -> bool:
    """Whether a row can make an expression NaN: by arithmetic on infinities, a root of less than 0, or a text 'nan'."""
    if not isinstance(expression, Call):
        return False
    if expression.name == "cast_decimal":
        return expression.arguments[0].facts.kind is Kind.TEXT or may_be_nan(expression.arguments[0])
    if expression.name not in ARITHMETIC or not all(each.facts.kind.numeric for each in expression.arguments):
        return False
    if any(may_be_nan(argument) for argument in expression.arguments):
        return True
    if expression.name in ("negate", "abs", "floor", "ceil", "round", "truncate", "exp", "ln", "log10", "log2"):
        return False
    if expression.name == "power" and not rule.has_real_power(*(argument.facts for argument in expression.arguments)):
        return True
    if expression.name == "sqrt":
        return (lowest := expression.arguments[0].facts.lower) is None or lowest < 0
    return not all(_is_finite(argument.facts) for argument in expression.arguments)


def _is_finite(facts: Facts) -> bool:
    return facts.lower is not None and facts.upper is not None and -FINITE <= facts.lower <= facts.upper <= FINITE


FUNCTION_FORMS: dict[str, str] = {
    "add": "x + y", "subtract": "x - y", "multiply": "x * y", "divide": "x / y", "modulo": "x % y", "negate": "-x",
    "abs": "ABS(x)", "floor": "FLOOR(x)", "ceil": "CEIL(x)", "round": "ROUND(x, 2)", "truncate": "TRUNC(x)",
    "sign": "SIGN(x)", "power": "POWER(x, 2)", "sqrt": "SQRT(x)", "exp": "EXP(x)", "ln": "LN(x)", "log10": "LOG10(x)",
    "log2": "LOG2(x)", "least": "LEAST(x, y)", "greatest": "GREATEST(x, y)",
    "clamp": "CLAMP(x, 0, 100)", "eq": "x = y", "ne": "x <> y", "lt": "x < y", "le": "x <= y", "gt": "x > y",
    "ge": "x >= y", "in": "x IN (1, 2)", "and": "c AND c", "or": "c OR c", "not": "NOT c", "is_null": "x IS NULL",
    "is_true": "c IS TRUE", "is_false": "c IS FALSE", "like": "t LIKE 'a%'", "ilike": "t ILIKE 'A_'",
    "starts_with": "STARTS_WITH(t, 'a')", "ends_with": "ENDS_WITH(t, 'a')", "contains": "CONTAINS(t, 'a')",
    "coalesce": "COALESCE(x, 0)", "nullif": "NULLIF(x, 0)", "case": "CASE WHEN c THEN x ELSE y END",
    "lower": "LOWER(t)", "upper": "UPPER(t)", "trim": "TRIM(t)", "ltrim": "LTRIM(t)",
    "rtrim": "RTRIM(t)", "substring": "SUBSTRING(t, 1, 3)",
    "left": "LEFT(t, 3)", "right": "RIGHT(t, 3)", "replace": "REPLACE(t, 'a', 'b')", "concat": "CONCAT(t, '-', t)",
    "regexp_replace": "REGEXP_REPLACE(t, 'a+', 'b')", "concat_ws": "CONCAT_WS('-', t, t)",
    "epoch": "EXTRACT(EPOCH FROM d)", "write_date": "TO_CHAR(d, 'YYYY-MM')",
    "add_months": "d + INTERVAL '1 month'", "shift_months": "m + INTERVAL '1 month'",
    "shift_seconds": "m + INTERVAL '1 hour'",
    "length": "LENGTH(t)", "year": "YEAR(d)", "date_diff": "DATE_DIFF('day', d, d)",
    "cast_integer": "CAST(x AS INTEGER)", "cast_decimal": "CAST(x AS DOUBLE)", "cast_text": "CAST(x AS TEXT)",
    "cast_boolean": "CAST(t AS BOOLEAN)", "cast_date": "CAST(t AS DATE)", "cast_datetime": "CAST(t AS TIMESTAMP)",
}  # fmt: skip
FUNCTION_FORMS |= {f"part_{part}": f"EXTRACT({part} FROM d)" for part in PARTS}
FUNCTION_FORMS |= {f"trunc_{unit}": f"DATE_TRUNC('{unit}', d)" for unit in TRUNCATIONS}

AGGREGATE_FORMS: tuple[tuple[str, str, str], ...] = (
    ("COUNT(*)", "how many rows", "one count"),
    ("COUNT(x)", "how many rows have a value", "one count"),
    ("COUNT_IF(c)", "how many rows satisfy a condition", "one count"),
    (
        "COUNT(DISTINCT x)",
        "how many different values (APPROX_COUNT_DISTINCT is the same); of the unit's own column, how many units",
        "one count",
    ),
    ("SUM(x)", "the sum of clamped values; SUM(DISTINCT x) of different ones", "one sum"),
    ("AVG(x)", "the mean of clamped values", "a sum and a count"),
    ("VARIANCE(x)", "the sample variance; VAR_POP for that of the rows themselves", "a sum, a sum of squares, a count"),
    ("STDDEV(x)", "the root of VARIANCE; STDDEV_POP of VAR_POP", "a sum, a sum of squares, a count"),
    (
        "CORR(x, y)",
        "the correlation; COVAR_POP, COVAR_SAMP, REGR_SLOPE and the other REGR_ likewise",
        "sums, sums of squares, a sum of products, a count",
    ),
    ("MIN(x)", "a value near the least, by rank", "one choice in each group"),
    ("MAX(x)", "a value near the greatest, by rank", "one choice in each group"),
    ("MEDIAN(x)", "a value near the middle, by rank", "one choice in each group"),
    (
        "QUANTILE(x, 0.9)",
        "a value near that rank; QUANTILE(x, [0.1, 0.9]) for several",
        "one choice for a rank; two for three ranks, four for nine",
    ),
    ("HISTOGRAM(x, 10)", "counts in so many equal bins between the bounds", "one count for all bins"),
)
"""Each aggregate with its meaning, and what is measured for it; any of them takes FILTER (WHERE ...)."""


ANY_TEXT, ANY_SIGN = "%", "_"


def call_like(name: str, text: Expression, pattern: Expression, escape: str = "\\") -> Expression:
    """`text LIKE pattern ESCAPE escape`; an empty escape is none.

    A sign after the escape stands for itself, as in PostgreSQL. The engines' LIKE is asked without an escape: a pattern
    that needs `%` or `_` as themselves becomes a comparison, or a test of how a text begins or ends or what it holds,
    which take signs as they are. In a pattern of the data, as in a column, each escape is a plain sign.
    """
    written = fold_text(pattern)
    if len(escape) > 1:
        raise Mismatch("takes one sign after ESCAPE, or none: ESCAPE ''")
    if written is None:
        if escape and (escape != "\\" or any(escape in (fold_text(part) or "") for part in _list_parts(pattern))):
            raise Mismatch("takes an escape in a pattern that is written out as one text")
        return call(name, text, pattern)
    if not escape or escape not in written:
        return call(name, text, literal(written))
    signs = _read_signs(written, escape)
    if not any(itself and sign in (ANY_TEXT, ANY_SIGN) for sign, itself in signs):
        return call(name, text, literal("".join(sign for sign, _ in signs)))
    if name != "like" or (ANY_SIGN, False) in signs:
        raise Mismatch(MIXED)
    pieces = [""]
    for sign, itself in signs:
        if itself or sign != ANY_TEXT:
            pieces[-1] += sign
        else:
            pieces.append("")
    match [pieces[0], *filter(None, pieces[1:-1]), *pieces[1:][-1:]]:  # %% is %
        case [whole]:
            return call("eq", text, literal(whole))
        case ["", end]:
            return call("ends_with", text, literal(end))
        case [start, ""]:
            return call("starts_with", text, literal(start))
        case ["", inner, ""]:
            return call("contains", text, literal(inner))
        case _:
            raise Mismatch(MIXED)


MIXED = (
    "takes a % or _ that stands for itself in LIKE alone, beside % at an end; write CONTAINS, STARTS_WITH or ENDS_WITH"
)


def _read_signs(written: str, escape: str) -> list[tuple[str, bool]]:
    """The signs of a pattern, and whether each stands for itself by an escape before it."""
    found, at = [], 0
    while at < len(written):
        itself = written[at] == escape
        at += itself
        if at == len(written):
            raise Mismatch("takes a pattern that does not end with its escape; write the escape twice for itself")
        found.append((written[at], itself))
        at += 1
    return found
