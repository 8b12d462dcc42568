"""PostgreSQL's language: the forms in which it computes what DuckDB computes, and the writer that uses them.

In PostgreSQL arithmetic in double precision fails where a result is too large or too small, so such results are found
before it is done; NaN is greater than infinity in both. Rounding is half away from zero in DuckDB, half to even there.
"""

# ruff: noqa: S608  (statements here are made of our own words, quoted names and quoted literals; no user text)

from __future__ import annotations

import hashlib
import math
import re
import sys
import unicodedata
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.generators.postgres import PostgresGenerator

from deniable.errors import InternalError

RANGES = {"SMALLINT": 15, "INT": 31, "BIGINT": 63}
"""Bits of the whole numbers that casts lead to, without their sign."""


def name_type(node: Any) -> str:
    """The type of an expression in one of the words that are told apart here."""
    found = node.type.this.value if isinstance(getattr(node, "type", None), exp.DataType) else "UNKNOWN"
    if found in ("VARCHAR", "TEXT", "CHAR", "NCHAR"):
        return "TEXT"
    return {"FLOAT": "DOUBLE", "TIMESTAMPNTZ": "TIMESTAMP", "UNKNOWN": ""}.get(found, found)


def is_double(*nodes: Any) -> bool:
    """Whether one of these is computed in double precision."""
    return any(name_type(node) in ("DOUBLE", "DECIMAL", "BIGDECIMAL") for node in nodes)


MOST = "CAST('1.7976931348623157e308' AS double precision)"
INF, NEGATIVE_INF = "CAST('Infinity' AS double precision)", "CAST('-Infinity' AS double precision)"
NAN = "CAST('NaN' AS double precision)"
ROOT = f"CAST('{2.0**-512!r}' AS double precision)"


def write_power_of_two(exponent: int) -> str:
    """A power of two, as a number in double precision."""
    return f"CAST('{2.0**exponent!r}' AS double precision)"


SHORT = 64
"""Characters of an argument that is written again where it is needed twice; a longer one is computed once."""


_AGGREGATE = re.compile(r"\b(sum|count|min|max|avg)\(", re.IGNORECASE)
"""An aggregate of a constant would belong to the selection in which an argument is computed once."""


def bind(body: str, **arguments: str) -> str:
    """A body with its arguments `{a}`, `{b}` in place, each computed once where it is long."""
    long = {name: text for name, text in arguments.items() if len(text) > SHORT and not _AGGREGATE.search(text)}
    inner = body.format(**(arguments | {name: f'"#{name}"' for name in long}))
    if not long:
        return f"({inner})"
    columns = ", ".join(f'{text} AS "#{name}"' for name, text in long.items())
    # OFFSET 0 keeps the planner from writing the arguments into the body after all.
    return f'(SELECT {inner} FROM (SELECT {columns} OFFSET 0) AS "#let")'


_SIGNED = f"(CASE WHEN ({{a}} < 0) = ({{b}} < 0) THEN {INF} ELSE {NEGATIVE_INF} END)"
_FINITE = f"abs({{a}}) < {INF} AND abs({{b}}) < {INF}"
_SUM_IS_TOO_LARGE = f"{_FINITE} AND greatest(abs({{a}}), 1) / 2 + greatest(abs({{b}}), 1) / 2 > {MOST} / 2"
_PRODUCT_IS_TOO_LARGE = f"{_FINITE} AND greatest(abs({{a}}), 1) * {ROOT} * (greatest(abs({{b}}), 1) * {ROOT}) >= 1"
"""Scaled by a power of two a result is rounded as it would be, and neither too large nor too small to be had."""
_PRODUCT_IS_TOO_SMALL = (
    f"{_FINITE} AND least(abs({{a}}), abs({{b}})) < {write_power_of_two(-536)} AND "
    f"greatest(least(greatest(abs({{a}}), abs({{b}})), 1), {write_power_of_two(-600)}) * {write_power_of_two(511)} * "
    f"(least(abs({{a}}), abs({{b}}), {write_power_of_two(-537)}) * {write_power_of_two(512)})"
    f" <= {write_power_of_two(-52)}"
)
"""Up to 2**-1075, half the smallest number, a product is zero. The larger factor is taken for 1 at most, and for
2**-600 at least; the smaller one for 2**-537 at most, which is no zero beside one that is as large. A product that is
larger than half the smallest number by less than 2**-53 of it is zero here, and the smallest number elsewhere."""
_QUOTIENT_IS_TOO_SMALL = (
    f"abs({{a}}) < 4 AND abs({{b}}) <= {INF} AND "
    f"least(abs({{a}}), 4) * {write_power_of_two(53)} <= greatest(abs({{b}}), 1) * {write_power_of_two(-1022)}"
)
"""Up to 2**-1075 a quotient is zero."""
_BY_SIGN = f"(CASE WHEN {{a}} < 0 THEN {NEGATIVE_INF} ELSE {INF} END)"

_BEGIN = "((CASE WHEN {b} < 0 THEN char_length({a}) + 1 ELSE 0 END) + {b})"
_LOW = f"greatest({_BEGIN} + least({{c}}, 0), 1)"
"""Where a part of a text begins, from its end below 0; a length below 0 takes what stands before. All in 64 bits."""

POSTGRESQL: dict[str, str] = {
    "add": f"CASE WHEN ({{a}} < 0) = ({{b}} < 0) AND {_SUM_IS_TOO_LARGE} THEN {_BY_SIGN} ELSE {{a}} + {{b}} END",
    "subtract": f"CASE WHEN ({{a}} < 0) <> ({{b}} < 0) AND {_SUM_IS_TOO_LARGE} THEN {_BY_SIGN} ELSE {{a}} - {{b}} END",
    "multiply": (
        f"CASE WHEN {_PRODUCT_IS_TOO_LARGE} THEN {_SIGNED} WHEN {_PRODUCT_IS_TOO_SMALL} THEN 0 ELSE {{a}} * {{b}} END"
    ),
    "divide": (
        f"CASE WHEN {{b}} = 0 THEN NULL WHEN abs({{a}}) < {INF} AND abs({{a}}) > {MOST} * least(abs({{b}}), 1) "
        f"THEN {_SIGNED} WHEN {_QUOTIENT_IS_TOO_SMALL} THEN 0 ELSE {{a}} / {{b}} END"
    ),
    "exp": f"CASE WHEN {{a}} > 709.782712893384 AND {{a}} <= {INF} THEN {INF} WHEN {{a}} < -745.1332191 THEN 0 "
    "ELSE exp({a}) END",
    "sqrt": f"CASE WHEN {{a}} < 0 THEN {NAN} ELSE sqrt({{a}}) END",
    "sign": f"CASE WHEN {{a}} < 0 THEN -1 WHEN {{a}} > 0 AND {{a}} <= {INF} THEN 1 WHEN {{a}} IS NOT NULL THEN 0 END",
    "sign_whole": "CASE WHEN {a} < 0 THEN -1 WHEN {a} > 0 THEN 1 WHEN {a} IS NOT NULL THEN 0 END",
    "round": (
        "CASE WHEN {a} BETWEEN -4503599627370496 AND 4503599627370496 "
        "THEN trunc({a}) + trunc(({a} - trunc({a})) * 2) ELSE {a} END"
    ),
    "right": "CASE WHEN {b} IS NOT NULL THEN right({a}, greatest({b}, -2147483647)) END",
    "substring": (
        f"CASE WHEN {{b}} IS NOT NULL AND {{c}} IS NOT NULL THEN substr({{a}}, CAST({_LOW} AS integer), "
        f"CAST(greatest({_BEGIN} + greatest({{c}}, 0) - {_LOW}, 0) AS integer)) END"
    ),
    "substring_rest": (f"CASE WHEN {{b}} IS NOT NULL THEN substr({{a}}, CAST(greatest({_BEGIN}, 1) AS integer)) END"),
    "starts_with": "left({a}, char_length({b})) = {b}",
    "ends_with": "right({a}, char_length({b})) = {b}",
    "contains": "strpos({a}, {b}) > 0",
    "like": "{a} LIKE {b} ESCAPE ''",
    "to_numeric": "CASE WHEN abs(CAST({a} AS numeric)) < 1e22 THEN CAST({a} AS numeric) END",
    "double_to_numeric": (  # a cast would keep 15 digits; above 2^63 it is a multiple of 2048
        "CASE WHEN abs({a}) < 9223372036854775807 THEN CAST(CAST({a} AS bigint) AS numeric) "
        "WHEN abs({a}) < 1e22 THEN CAST(CAST({a} / 2048 AS bigint) AS numeric) * 2048 END"
    ),
    "to_whole": "CASE WHEN {{a}} >= -{size} AND {{a}} < {size} THEN CAST({{a}} AS {type}) END",
    "is_finite": f"abs({{a}}) < {INF}",
    "is_infinite": f"abs({{a}}) = {INF}",
}
"""What PostgreSQL computes otherwise than DuckDB, by what it is: `{a}`, `{b}`, `{c}` are the arguments."""


def _write(name: str, *arguments: str) -> str:
    return bind(POSTGRESQL[name], **dict(zip("abc", arguments, strict=False)))


def write_scaled(node: Any, left: str, right: str) -> str:
    """A product or a quotient in double precision, which never fails."""
    return _write("divide" if isinstance(node, exp.Div) else "multiply", left, right)


def find_near_zero(node: Any) -> tuple[Any, float | None]:
    """Of a product or a quotient with a number that is written out: the other side, and the least that it may be."""
    sides, divides = [node.this, node.expression], isinstance(node, exp.Div)
    written = [read_number(each.this if isinstance(each, exp.Nullif) else each) for each in sides]
    if written[1] is None and not divides:
        sides.reverse()
        written.reverse()
    factor, least = abs(float(written[1] or 0)), sys.float_info.min
    if not factor or written[0] is not None or (factor <= 1 if divides else factor >= 1):
        return sides[0], None
    return sides[0], math.nextafter(least * factor if divides else least / factor, math.inf)


SPACES = "'" + "".join(chr(code) for code in range(0x3001) if unicodedata.category(chr(code)) == "Zs") + "'"
"""The characters that TRIM takes off."""


class PostgreSQLGenerator(PostgresGenerator):  # type: ignore[misc]  # the parser has no types here
    """Writes typed statements of ours as PostgreSQL takes them."""

    def _double(self, node: Any) -> str:
        text: str = self.sql(node)
        if name_type(node) == "DOUBLE" and not isinstance(node, exp.Literal):
            return text
        return f"CAST({text} AS double precision)"

    def _collation(self) -> str:
        return str(self.dialect.settings.get("deniable_collation", "C.utf8"))

    def case_sql(self, node: exp.Case) -> str:
        """A choice; one that can only be null is null, of whichever type is wanted."""
        results = [*(each.args.get("true") for each in node.args["ifs"]), node.args.get("default")]
        return "NULL" if all(map(is_null, results)) else super().case_sql(node)

    def coalesce_sql(self, node: exp.Coalesce) -> str:
        """The first value that is not null; of nulls alone PostgreSQL would make a text."""
        return "NULL" if is_null(node) else str(self.function_fallback_sql(node))

    def column_sql(self, node: exp.Column) -> str:
        """A column; one that can only be null is null, of whichever type is wanted."""
        return "NULL" if name_type(node) == "NULL" else super().column_sql(node)

    def eq_sql(self, node: exp.EQ) -> str:
        """Whether two values are equal; a column of nulls alone takes the type of the other side."""
        sides = [node.this, node.expression]
        known = [name_type(each) for each in sides]
        if known[0] in ("", "NULL") and known[1] in PG_TYPES:
            return f"CAST({self.sql(sides[0])} AS {PG_TYPES[known[1]]}) = {self.sql(sides[1])}"
        return f"{self.sql(sides[0])} = {self.sql(sides[1])}"

    def add_sql(self, node: exp.Add) -> str:
        """A sum; of a date and days, or a date and an interval, as it is."""
        return self._arithmetic("add", "+", node)

    def sub_sql(self, node: exp.Sub) -> str:
        """A difference."""
        return self._arithmetic("subtract", "-", node)

    def mul_sql(self, node: exp.Mul) -> str:
        """A product."""
        return self._arithmetic("multiply", "*", node)

    def div_sql(self, node: exp.Div) -> str:
        """A quotient in double precision, as DuckDB divides whole numbers too."""
        return _write("divide", self._double(node.this), self._double(node.expression))

    def mod_sql(self, node: exp.Mod) -> str:
        """A rest, of whole numbers."""
        return f"({self.sql(node.this)} % {self.sql(node.expression)})"

    def intdiv_sql(self, node: exp.IntDiv) -> str:
        """A quotient of whole numbers, cut off toward zero."""
        return f"div(CAST({self.sql(node.this)} AS numeric), CAST({self.sql(node.expression)} AS numeric))"

    def _arithmetic(self, name: str, sign: str, node: Any) -> str:
        left, right = node.this, node.expression
        temporal = {"DATE", "TIMESTAMP", "INTERVAL"}
        if {name_type(left), name_type(right)} & temporal or is_interval(right):
            return f"({self.sql(left)} {sign} {self.sql(right)})"
        if is_double(left, right):
            return _write(name, self._double(left), self._double(right))
        return f"({self.sql(left)} {sign} {self.sql(right)})"

    def paren_sql(self, node: exp.Paren) -> str:
        """What stands in brackets; arithmetic brings its own."""
        return f"({self.sql(node.this)})"

    def neg_sql(self, node: exp.Neg) -> str:
        """A number with the other sign."""
        return f"(- {self.sql(node.this)})"

    def round_sql(self, node: exp.Round) -> str:
        """Rounding half away from zero, to whole numbers or to a literal number of places."""
        number = self._double(node.this)
        places = read_whole(node.args.get("decimals"))
        if not places:
            return _write("round", number)
        factor = f"CAST({10 ** abs(places)} AS double precision)"
        there, back = ("multiply", "divide") if places > 0 else ("divide", "multiply")
        rounded = _write(back, _write("round", _write(there, "{a}", factor)), factor)
        # A number that is too large to be moved has no places to lose.
        body = "CASE WHEN abs({a}) < 1e290 THEN " + rounded + " ELSE {a} END"
        return bind(body, a=number)

    def sign_sql(self, node: exp.Sign) -> str:
        """-1, 0 or 1, as a whole number."""
        return _write("sign" if is_double(node.this) else "sign_whole", self.sql(node.this))

    def exp_sql(self, node: exp.Exp) -> str:
        """A power of e."""
        return _write("exp", self._double(node.this))

    def sqrt_sql(self, node: exp.Sqrt) -> str:
        """A root; of less than 0 it is NaN."""
        return _write("sqrt", self._double(node.this))

    def log_sql(self, node: exp.Log) -> str:
        """The logarithm to base 10, the only one that is rendered."""
        return f"log({self._double(node.expression)})"

    def ln_sql(self, node: exp.Ln) -> str:
        """The natural logarithm; its argument is above 0 or null."""
        return f"ln({self._double(node.this)})"

    def pow_sql(self, node: exp.Pow) -> str:
        """A power with a literal exponent from 0 up."""
        exponent = read_number(node.expression)
        if exponent is None or exponent < 0:
            raise InternalError("a power without a literal exponent was to be rendered for PostgreSQL")
        if exponent == 0:
            return bind("CASE WHEN {a} IS NOT NULL THEN CAST(1 AS double precision) END", a=self._double(node.this))
        return bind(_write_power(exponent), a=self._double(node.this))

    def floor_sql(self, node: exp.Floor) -> str:
        """The whole number below."""
        return f"floor({self._double(node.this)})"

    def ceil_sql(self, node: exp.Ceil) -> str:
        """The whole number above."""
        return f"ceil({self._double(node.this)})"

    def trunc_sql(self, node: exp.Trunc) -> str:
        """The whole number toward zero."""
        return f"trunc({self._double(node.this)})"

    def trycast_sql(self, node: exp.TryCast) -> str:
        """A cast that gives null where the value does not fit; texts are not read as anything else."""
        source, target, text = name_type(node.this), name_type(node), self.sql(node.this)
        if target in RANGES:
            return self._to_whole(source, target, text)
        if target == "DECIMAL":
            return _write("double_to_numeric" if source == "DOUBLE" else "to_numeric", text)
        if target == "DOUBLE" and source in ("DATE", "TIMESTAMP"):
            return "CAST(NULL AS double precision)"
        return self.cast_sql(node)

    def _to_whole(self, source: str, target: str, text: str) -> str:
        if source == "BOOLEAN":
            return f"CAST({text} AS integer)"
        if source in ("DATE", "TIMESTAMP"):
            return f"CAST(NULL AS {PG_TYPES[target]})"
        if source == target or (source in ("SMALLINT", "INT") and target == "BIGINT"):
            return f"CAST({text} AS {PG_TYPES[target]})"
        template = POSTGRESQL["to_whole"].format(size=1 << RANGES[target], type=PG_TYPES[target])
        return bind(template, a=text)

    def cast_sql(self, node: exp.Cast, safe_prefix: str | None = None) -> str:  # noqa: ARG002  as the parser calls it
        """A cast between types that cannot fail, or a literal of a type."""
        source, target, text = name_type(node.this), name_type(node), self.sql(node.this)
        if isinstance(node.this, exp.Literal) or node.this is None:
            return f"CAST({text} AS {PG_TYPES[target]})"
        if target == "TEXT":
            return text if source == "TEXT" else f'(CAST({text} AS text) COLLATE "C")'
        if target == source:
            return f"CAST({text} AS {PG_TYPES[target]})"
        if source == "BOOLEAN" and target != "BOOLEAN":
            return f"CAST(CAST({text} AS integer) AS {PG_TYPES[target]})"
        if target == "BOOLEAN" and source != "":
            return f"({text} <> 0)"
        return f"CAST({text} AS {PG_TYPES[target]})"

    def anonymous_sql(self, node: exp.Anonymous) -> str:
        """Functions that the parser has no word for."""
        name, arguments = str(node.this).lower(), [self.sql(each) for each in node.expressions]
        match name:
            case "hash":
                return self._hash(node.expressions, arguments)
            case "strlen":
                return f"octet_length({arguments[0]})"
            case "to_months":
                return f"make_interval(months => CAST({arguments[0]} AS integer))"
            case "to_seconds":
                return f"make_interval(secs => CAST({arguments[0]} AS double precision))"
            case "isfinite":
                return _write("is_finite", arguments[0])
            case _:
                raise InternalError(f"the function '{name}' has no form in PostgreSQL")

    def _hash(self, nodes: list[Any], arguments: list[str]) -> str:
        """A salted hash of values, by the salt that stands first or last; null is a value of its own."""
        salt = next((i for i, node in enumerate(nodes) if name_type(node) == "UBIGINT"), None)
        seed = f"CAST({arguments[salt]} AS bigint)" if salt is not None else "0"
        values = [text for place, text in enumerate(arguments) if place != salt]
        row = f"ROW({', '.join(values)})"
        if int(self.dialect.settings.get("deniable_version", 140000)) >= 140000:
            return f"hash_record_extended({row}, {seed})"
        return f'hashtextextended(CAST({row} AS text) COLLATE "C", {seed})'

    def isinf_sql(self, node: exp.IsInf) -> str:
        """Whether a number is infinite."""
        return _write("is_infinite", self.sql(node.this))

    def timetounix_sql(self, node: exp.TimeToUnix) -> str:
        """Seconds since 1970."""
        return f"CAST(extract(epoch FROM CAST({self.sql(node.this)} AS timestamp)) AS double precision)"

    def datediff_sql(self, node: exp.DateDiff) -> str:
        """Days between two dates."""
        return f"CAST(CAST({self.sql(node.this)} AS date) - CAST({self.sql(node.expression)} AS date) AS bigint)"

    def year_sql(self, node: exp.Year) -> str:
        """The year of a date."""
        return f"CAST(extract(year FROM CAST({self.sql(node.this)} AS timestamp)) AS bigint)"

    def extract_sql(self, node: exp.Extract) -> str:
        """A part of a date, as a whole number: seconds are cut off."""
        part = str(node.this.name).lower()
        return f"CAST(floor(extract({part} FROM CAST({self.sql(node.expression)} AS timestamp))) AS bigint)"

    def timestamptrunc_sql(self, node: exp.TimestampTrunc) -> str:
        """The begin of a year, a week and so on."""
        unit = str(node.args["unit"].name).lower()
        return f"date_trunc('{unit}', CAST({self.sql(node.this)} AS timestamp))"

    def timetostr_sql(self, node: exp.TimeToStr) -> str:
        """A date in a literal pattern."""
        parts = [_write_pattern_part(each) for each in split_pattern(str(node.args["format"].name))]
        dated = f"to_char(CAST({self.sql(node.this)} AS timestamp), '{''.join(parts)}')"
        return f'({dated} COLLATE "C")'

    def left_sql(self, node: exp.Left) -> str:
        """The first characters."""
        return f"left({self.sql(node.this)}, {self.sql(node.expression)})"

    def right_sql(self, node: exp.Right) -> str:
        """The last characters."""
        return _write("right", self.sql(node.this), self.sql(node.expression))

    def substring_sql(self, node: exp.Substring) -> str:
        """A part of a text; a start below 0 counts from its end."""
        start = f"CAST({self.sql(node.args['start'])} AS bigint)"
        if node.args.get("length") is None:
            return _write("substring_rest", self.sql(node.this), start)
        length = f"CAST({self.sql(node.args['length'])} AS bigint)"
        return _write("substring", self.sql(node.this), start, length)

    def trim_sql(self, node: exp.Trim) -> str:
        """A text without spaces, or without given characters, at its ends."""
        name = {"LEADING": "ltrim", "TRAILING": "rtrim"}.get(node.args.get("position") or "", "btrim")
        given = node.args.get("expression")
        return f"{name}({self.sql(node.this)}, {self.sql(given) if given is not None else SPACES})"

    def lower_sql(self, node: exp.Lower) -> str:
        """Small letters, of all of Unicode."""
        return self._change_case("lower", node)

    def upper_sql(self, node: exp.Upper) -> str:
        """Capital letters, of all of Unicode."""
        return self._change_case("upper", node)

    def _change_case(self, name: str, node: Any) -> str:
        collation = self._collation().replace('"', '""')
        changed = f'{name}({self.sql(node.this)} COLLATE "{collation}")'
        if name == "upper":  # the one letter that the C library leaves small
            changed = f"translate({changed}, 'ß', 'ẞ')"
        return f'({changed} COLLATE "C")'

    def like_sql(self, node: exp.Like) -> str:
        """A pattern without a sign of escape."""
        return _write("like", self.sql(node.this), self.sql(node.expression))

    def ilike_sql(self, node: exp.ILike) -> str:
        """A pattern in small letters, compared with a text in small letters."""
        lowered = [self._change_case("lower", exp.Lower(this=each)) for each in (node.this, node.expression)]
        return _write("like", *lowered)

    def startswith_sql(self, node: exp.StartsWith) -> str:
        """Whether a text begins so."""
        return _write("starts_with", self.sql(node.this), self.sql(node.expression))

    def endswith_sql(self, node: exp.EndsWith) -> str:
        """Whether a text ends so."""
        return _write("ends_with", self.sql(node.this), self.sql(node.expression))

    def contains_sql(self, node: exp.Contains) -> str:
        """Whether a text holds another."""
        return _write("contains", self.sql(node.this), self.sql(node.expression))

    def explode_sql(self, node: exp.Explode) -> str:
        """One row for each value of a list, or of a range without its end."""
        source = node.this
        if isinstance(source, exp.GenerateSeries):
            start, end, step = (source.args.get(name) for name in ("start", "end", "step"))
            ends = [f"CAST({self.sql(start)} AS bigint)", f"CAST({self.sql(end)} AS bigint) - 1"]
            return f"generate_series({', '.join(ends)}, {self.sql(step) if step is not None else '1'})"
        return f"unnest({self.sql(source)})"

    def placeholder_sql(self, node: exp.Placeholder) -> str:
        """A parameter by its number."""
        return f"${node.name}"


class PostgreSQL(Postgres):  # type: ignore[misc]  # the parser has no types here
    """PostgreSQL, as statements of ours are written for it."""

    SUPPORTED_SETTINGS: ClassVar[set[str]] = {*Postgres.SUPPORTED_SETTINGS, "deniable_version", "deniable_collation"}
    Generator = PostgreSQLGenerator


PG_TYPES = {
    "BIGINT": "bigint",
    "INT": "integer",
    "SMALLINT": "integer",
    "INT128": "numeric",
    "UBIGINT": "numeric",
    "DOUBLE": "double precision",
    "DECIMAL": "numeric",
    "BIGDECIMAL": "numeric",
    "TEXT": "text",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
}


def is_null(node: Any) -> bool:
    """Whether an expression can only be null."""
    if isinstance(node, exp.Coalesce):
        return all(map(is_null, (node.this, *node.expressions)))
    return node is None or name_type(node) == "NULL" or isinstance(node.unnest(), exp.Null)


def is_interval(node: Any) -> bool:
    """Whether an expression is a span of time."""
    return isinstance(node, exp.Anonymous) and str(node.this).lower() in ("to_months", "to_seconds")


def read_number(node: Any) -> Fraction | None:
    """The number that a literal is, through casts and signs; None for anything else."""
    match node:
        case exp.Cast() | exp.TryCast() | exp.Paren():
            return read_number(node.this)
        case exp.Neg():
            below = read_number(node.this)
            return None if below is None else -below
        case exp.Literal() if not node.is_string:
            return Fraction(node.name)
        case _:
            return None


def read_list(node: Any) -> list[Any]:
    """The values of a list of plain texts or whole numbers, or of a range without its end; empty for anything else."""
    if isinstance(node, exp.Array):
        plain = [isinstance(each, exp.Literal) and (each.is_string or each.name.isdigit()) for each in node.expressions]
        return node.expressions if all(plain) and len({each.is_string for each in node.expressions}) == 1 else []
    ends = [node.args.get(each) for each in ("start", "end")] if isinstance(node, exp.GenerateSeries) else []
    if not ends or node.args.get("step") is not None or not all(isinstance(each, exp.Literal) for each in ends):
        return []
    return [exp.cast(exp.Literal.number(each), "BIGINT") for each in range(*map(read_whole, ends))]


def read_whole(node: Any) -> int:
    """The whole number that a literal is; 0 where there is none."""
    return int((read_number(node) if node is not None else None) or 0)


def _write_power(exponent: Fraction) -> str:
    """A power that does not fail: what would be too large is infinite, what would be too small is 0."""
    n = float(exponent)
    whole = exponent.denominator == 1
    signed = f"CASE WHEN {{a}} < 0 THEN {NEGATIVE_INF} ELSE {INF} END" if whole and int(exponent) % 2 else INF
    edge = 1.7976931348623157e308 ** (1 / n) * (1 - 1e-12) if n > 1 else 1.7976931348623157e308
    least = 2 ** (-1075 / n) * (1 + 1e-12) if n > 1 else 0.0
    negative = "" if whole else f"WHEN {{a}} = {NEGATIVE_INF} THEN {INF} WHEN {{a}} < 0 THEN {NAN} "
    return (
        f"CASE {negative}WHEN abs({{a}}) > CAST('{edge!r}' AS double precision) AND abs({{a}}) < {INF} THEN {signed} "
        f"WHEN abs({{a}}) < CAST('{least!r}' AS double precision) THEN 0 "
        f"ELSE power({{a}}, CAST('{n!r}' AS double precision)) END"
    )


# The parser's own forms would come before the methods here.
PostgreSQLGenerator.TRANSFORMS = {
    kind: form
    for kind, form in PostgresGenerator.TRANSFORMS.items()
    if f"{kind.key}_sql" not in vars(PostgreSQLGenerator)
}

_PATTERN = {"%Y": "YYYY", "%m": "MM", "%d": "DD", "%H": "HH24", "%M": "MI", "%S": "SS", "%f": "US"}


def split_pattern(pattern: str) -> Iterator[str]:
    """The parts of a pattern of dates: a letter after %, or one sign."""
    place = 0
    while place < len(pattern):
        size = 2 if pattern[place] == "%" else 1
        yield pattern[place : place + size]
        place += size


def _write_pattern_part(part: str) -> str:
    """A part of a pattern as to_char takes it; other signs are quoted, so that no letter among them is a part."""
    if part in _PATTERN:
        return _PATTERN[part]
    quoted = part.replace("\\", "\\\\").replace('"', '\\"').replace("'", "''")
    return f'"{quoted}"'


def list_long_capitals() -> tuple[str, str, str]:
    """Letters whose capitals are several letters: Spark would write those, DuckDB one letter or the small one.

    They are put aside as private characters while the others are changed, and come back as the one capital letter.
    """
    found = [chr(code) for code in range(128, 0x1FFFF) if len(chr(code).upper()) > 1]
    aside = "".join(chr(0x10F000 + place) for place in range(len(found)))
    return "".join(found), aside, "".join(_capitalize_alone(letter) for letter in found)


def _capitalize_alone(letter: str) -> str:
    if letter == "ß":
        return "ẞ"
    titled = letter.title()  # the Greek letters with an iota below have one capital letter, which is their title form
    return titled if len(titled) == 1 and unicodedata.category(titled) == "Lt" else letter


_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,59}")


def name_plainly(name: str) -> str:
    """A name that every warehouse takes: letters, digits and underscores.

    >>> name_plainly("age"), name_plainly("visits.age")
    ('age', 'c_e2605244fffb670644fa')
    """
    return name if _PLAIN_NAME.fullmatch(name) else "c_" + hashlib.sha256(name.encode()).hexdigest()[:20]
