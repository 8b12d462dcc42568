"""Spark's language: the forms in which it computes what DuckDB computes, and the writer that uses them.

Sessions run with ANSI mode off and in UTC, so that arithmetic in double precision follows IEEE as in DuckDB, and a cast
that does not fit is null. Sums of whole numbers run in DECIMAL(38, 0), since those of 64 bits would wrap around.
Functions whose last digit the Java library may round otherwise (EXP, LN, LOG10, POWER) are refused before a charge.

Arithmetic and choices are written as calls (`+`(a, b), `if`(condition, a, b)), and casts as a::TYPE. At a bracket, at
CASE and at CAST, Spark's parser reads on to the end to know what it has; nested, that took it seconds for a statement.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import Any

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator

from deniable.errors import InternalError
from deniable.query.sql.postgresql import (
    RANGES,
    SPACES,
    is_double,
    is_interval,
    is_null,
    list_long_capitals,
    name_type,
    read_list,
    read_number,
    read_whole,
    split_pattern,
)

WHOLE = "DECIMAL(38, 0)"
SPARK_TYPES = {
    "BIGINT": "BIGINT",
    "INT": "INT",
    "SMALLINT": "SMALLINT",
    "INT128": WHOLE,
    "UBIGINT": WHOLE,
    "DOUBLE": "DOUBLE",
    "DECIMAL": WHOLE,
    "BIGDECIMAL": WHOLE,
    "TEXT": "STRING",
    "BOOLEAN": "BOOLEAN",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP_NTZ",
}
_SMALL = "{a} BETWEEN -4503599627370496D AND 4503599627370496D"  # may have places after the point
_LENGTH = "char_length({a})"
_KEPT = f"`if`({{b}} >= 0, {{b}}, `if`({{b}} IS NOT NULL, greatest(0, `+`({_LENGTH}, {{b}})), NULL))"
_ENDS = f"`+`(`if`({{b}} < 0, `+`({_LENGTH}, 1), 0), {{b}})"
_BEGIN = f"greatest(`+`({_ENDS}, least({{c}}, 0L)), 1L)"
_REST = f"`-`(`+`({_ENDS}, greatest({{c}}, 0L)), {_BEGIN})"

SPARK: dict[str, str] = {
    "round": f"`if`({_SMALL}, `+`({{cut}}, `*`(`-`({{a}}, {{cut}}), 2D)::BIGINT), {{a}})",
    "cut": "{a}::BIGINT::DOUBLE",
    "truncate": f"`if`({_SMALL}, {{cut}}, {{a}})",
    "floor": f"`if`({_SMALL}, floor({{a}})::DOUBLE, {{a}})",
    "ceil": f"`if`({_SMALL}, ceil({{a}})::DOUBLE, {{a}})",
    "to_decimal": f"`if`(abs({{a}}::{WHOLE}) < 10000000000000000000000, {{a}}::{WHOLE}, NULL)",
    "double_to_decimal": (  # above 2^63 it is a multiple of 2048
        f"`if`(abs({{a}}) < 9223372036854775807D, {{a}}::BIGINT::{WHOLE}, `if`(abs({{a}}) < 1e22D, "
        f"`*`(`/`({{a}}, 2048D)::BIGINT::{WHOLE}, 2048), NULL))"
    ),
    "sign": "`if`({a} < 0, -1, `if`({a} > 0 AND NOT {nan}, 1, `if`({a} IS NOT NULL, 0, NULL)))",
    "whole_quotient": f"`/`(`-`({{a}}, `%`({{a}}, {{b}})), {{b}})::{WHOLE}",
    "left": f"`left`({{a}}, {_KEPT})",
    "right": f"`right`({{a}}, {_KEPT})",
    "substring": (
        "`if`({b} IS NOT NULL AND {c} IS NOT NULL, "
        f"`substring`({{a}}, {_BEGIN}::INT, greatest({_REST}, 0L)::INT), NULL)"
    ),
    "substring_rest": f"`if`({{b}} IS NOT NULL, `substring`({{a}}, greatest({_ENDS}, 1L)::INT), NULL)",
    "sum_in_parts": (
        f"`+`(`+`(`*`(sum(shiftright({{a}}, 42))::{WHOLE}, 4398046511104L), "
        f"`*`(sum(shiftright({{a}}, 21) & 2097151L)::{WHOLE}, 2097152L)), sum({{a}} & 2097151L))"
    ),
    "to_whole": "`if`({{a}} >= -{size} AND {{a}} < {size}, {rint}::{type}, NULL)",
    "series": "`if`({b} > {a}, sequence({a}, `-`({b}, 1L), {c}), array())",
}
"""What Spark computes otherwise than DuckDB, by what it is: `{a}`, `{b}`, `{c}` are the arguments."""


def _write(name: str, *arguments: str, **named: str) -> str:
    return SPARK[name].format(**dict(zip("abc", arguments, strict=False)), **named)


_OPERATORS = (exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg)
_CLOSED = (exp.Func, exp.Column, exp.Literal, exp.Paren, exp.Null, exp.Boolean, *_OPERATORS)
MOST_NESTED = 3  # conditions of a choice that is written as calls
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")

MOST_ROWS = 1 << 40
"""Rows of a table of Spark for which sums are known to fit."""


def find_bound(node: Any) -> int | None:
    """How large a whole number can be at most, without its sign, if that is known and fits into 64 bits."""
    found = _find_bound(node)
    return found if found is not None and found < 1 << 63 else None


KEPT_BOUND = "deniable_bound"
"""Under which a node keeps its bound: a column is named many times, and each time leads to the same node below."""


def _find_bound(node: Any) -> int | None:
    """The bound of a whole number, however large; None where it follows from nothing that is written."""
    if node is None:
        return None
    if KEPT_BOUND not in node.meta:
        node.meta[KEPT_BOUND] = _work_out_bound(node)
    kept: int | None = node.meta[KEPT_BOUND]
    return kept


def _work_out_bound(node: Any) -> int | None:
    match node:
        case exp.Literal() if not node.is_string and node.name.isdigit():
            return int(node.name)
        case exp.Paren() | exp.Neg() | exp.Abs() | exp.Alias() | exp.Max() | exp.Min():
            return _find_bound(node.this)
        case exp.Cast() | exp.TryCast():
            inner = _find_bound(node.this)
            return inner if inner is not None or name_type(node) not in RANGES else 1 << RANGES[name_type(node)]
        case exp.Null():
            return 0
        case exp.Sign():
            return 1
        case exp.Count():
            return MOST_ROWS
        case exp.Sum():
            return _multiply(_find_bound(node.this), MOST_ROWS)
        case exp.Mul():
            return _multiply(_find_bound(node.this), _find_bound(node.expression))
        case exp.Add() | exp.Sub():
            return _add(_find_bound(node.this), _find_bound(node.expression))
        case exp.IntDiv():
            return _find_bound(node.this)
        case exp.Coalesce():
            return _find_most([node.this, *node.expressions])
        case exp.Case() if (share := _find_share(node)) is not None:
            return share
        case exp.Case():
            return _find_most([*(each.args["true"] for each in node.args["ifs"]), node.args.get("default")])
        case exp.Greatest() | exp.Least():
            return _find_clamp(node)
        case exp.Column():
            return _find_bound(_find_source(node))
        case _:
            return None


def _find_share(node: exp.Case) -> int | None:
    """CASE WHEN n > m THEN (s * a) // n ELSE s * b END: the bound of what a person adds to a group.

    Where s is a sum over rows of which n are counted, it is at most n times the bound of what is summed; so this is at
    most max(a, m * b) times that bound.
    """
    (when, *others), kept = node.args["ifs"], node.args.get("default")
    over, shrunk = when.this.unnest(), when.args["true"]
    if others or node.this or not (isinstance(over, exp.GT) and isinstance(shrunk, exp.IntDiv)):
        return None
    scaled, rows = shrunk.this.unnest(), over.this
    alike = isinstance(scaled, exp.Mul) and isinstance(kept, exp.Mul) and scaled.this == kept.this
    numbers = [read_number(each) for each in (over.expression, scaled.expression, kept.expression)] if alike else [None]
    each = _find_summed(scaled.this, rows) if shrunk.expression == rows else None
    if each is None or any(number is None or number < 0 or number % 1 for number in numbers):
        return None
    most, first, second = (int(number or 0) for number in numbers)
    return each * max(first, most * second)


def _find_summed(total: Any, rows: Any) -> int | None:
    """The bound of what is summed, if all rows in which it is not null are counted; both are columns of one query."""
    if not isinstance(total, exp.Column) or not isinstance(rows, exp.Column) or total.table != rows.table:
        return None
    added, counted = _find_source(total), _find_source(rows)
    if isinstance(added, exp.Coalesce) and [read_number(each) for each in added.expressions] == [0]:
        added = added.this
    if not isinstance(added, exp.Sum) or not isinstance(counted, exp.Count):
        return None
    among, own = counted.this, _find_nulls(added.this)
    named = [among.this, *among.expressions] if isinstance(among, exp.Coalesce) else [among]
    return _find_bound(added.this) if own and any(_find_nulls(each) == own for each in named) else None


def _find_nulls(node: Any) -> str:
    """By what it is decided whether a whole number is null: equal texts are null in the same rows; empty if unknown."""
    place = id(node.parent_select)
    match node:
        case exp.Paren() | exp.Neg():
            return _find_nulls(node.this)
        case exp.Cast() if name_type(node) == name_type(node.this) == "BIGINT":
            return _find_nulls(node.this)
        case exp.Add() | exp.Sub() if find_bound(node) is not None:
            parts = [_find_nulls(each) for each in (node.this, node.expression) if read_number(each) is None]
            return parts[0] if len(parts) == 1 else ""
        case exp.Case() if len(node.args["ifs"]) == 1 and not node.args.get("default") and not node.this:
            inner = _find_nulls(node.args["ifs"][0].args["true"])
            return inner and f"[{place} {node.args['ifs'][0].this.sql()}: {inner}]"
        case exp.Column():
            source = _find_source(node)
            return (source is not None and _find_nulls(source)) or f"<{place} {node.sql()}>"
        case _:
            return ""


def _multiply(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left * right


def _add(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


def _find_most(nodes: list[Any]) -> int | None:
    found = [_find_bound(each) for each in nodes if each is not None]
    known = [each for each in found if each is not None]
    return max(known, default=0) if len(known) == len(found) else None


def _find_clamp(node: Any) -> int | None:
    """greatest(low, least(high, x)): a value between the two, whatever x is; else the most of all parts."""
    parts = [node.this, *node.expressions]
    other = exp.Least if isinstance(node, exp.Greatest) else exp.Greatest
    inner = next((each for each in parts if isinstance(each.unnest(), other)), None)
    if len(parts) == 2 and inner is not None:
        ends = [each for each in parts if each is not inner]
        ends += [each for each in [inner.unnest().this, *inner.unnest().expressions] if _is_constant(each)]
        if all(map(_is_constant, ends)) and len(ends) > 1:
            return _find_most(ends)
    return _find_most(parts)


def _is_constant(node: Any) -> bool:
    return node.find(exp.Column) is None and node.find(exp.AggFunc) is None and node.find(exp.Literal) is not None


def _find_source(column: Any) -> Any:
    """What a column of a sub-query in FROM or JOIN is there; None for a column of a table or of a union.

    The nearest source of that name is meant: one further out may have the same name and other columns.
    """
    select = column.parent_select
    while select is not None:
        sources = [select.args.get("from_"), *(select.args.get("joins") or ())]
        for each in (source.this for source in sources if source is not None):
            if each.alias_or_name == column.table:
                selected = each.this.selects if isinstance(each.this, exp.Select) else []
                return next((item.unalias() for item in selected if item.alias_or_name == column.name), None)
        select = select.parent_select
    return None


class DeniableSparkGenerator(SparkGenerator):  # type: ignore[misc]  # the parser has no types here
    """Writes typed statements of ours as Spark takes them."""

    def _double(self, node: Any) -> str:
        if isinstance(node, exp.Literal):
            return f"{node.name}D" if _NUMBER.fullmatch(node.name) else f"'{node.name}'::DOUBLE"
        return f"{self._close(node)}::DOUBLE" if name_type(node) != "DOUBLE" else self._close(node)

    def _close(self, node: Any) -> str:
        """An operand; in brackets unless it is a call, a name or a literal."""
        plain = isinstance(node, _CLOSED) and not isinstance(node, (exp.Connector, exp.Predicate))
        return str(self.sql(node)) if plain else f"({self.sql(node)})"

    def literal_sql(self, node: exp.Literal) -> str:
        """A literal; a large whole number is one of 64 bits."""
        text: str = super().literal_sql(node)
        return f"{text}L" if not node.is_string and text.isdigit() and 2**31 <= int(text) < 2**63 else text

    def case_sql(self, node: exp.Case) -> str:
        """A choice; one that can only be null is null, of whichever type is wanted."""
        results = [*(each.args.get("true") for each in node.args["ifs"]), node.args.get("default")]
        if all(map(is_null, results)):
            return "NULL"
        if node.this or len(node.args["ifs"]) > MOST_NESTED:
            return str(super().case_sql(node))
        text = "NULL" if results[-1] is None else self.sql(results[-1])
        for each in reversed(node.args["ifs"]):
            text = f"`if`({self.sql(each.this)}, {self.sql(each.args['true'])}, {text})"
        return text

    def sum_sql(self, node: exp.Sum) -> str:
        """A sum of whole numbers, which does not wrap around: of 64 bits if it fits, or in parts that do."""
        inner = node.this
        if isinstance(inner, exp.Distinct) or name_type(inner) == "DOUBLE":
            return str(self.function_fallback_sql(node))
        text = self._close(inner)
        if find_bound(node) is not None or find_bound(inner) is None:
            return f"sum({text}::{WHOLE if find_bound(node) is None else 'BIGINT'})"
        return _write("sum_in_parts", f"{text}::BIGINT")

    def add_sql(self, node: exp.Add) -> str:
        """A sum; of a date and days, or a date and an interval, as it is."""
        return self._arithmetic("+", node)

    def sub_sql(self, node: exp.Sub) -> str:
        """A difference."""
        return self._arithmetic("-", node)

    def mul_sql(self, node: exp.Mul) -> str:
        """A product."""
        return self._arithmetic("*", node)

    def div_sql(self, node: exp.Div) -> str:
        """A quotient in double precision, as DuckDB divides whole numbers too."""
        return f"`/`({self._double(node.this)}, {self._double(node.expression)})"

    def mod_sql(self, node: exp.Mod) -> str:
        """A rest, of whole numbers."""
        return f"`%`({self.sql(node.this)}, {self.sql(node.expression)})"

    def intdiv_sql(self, node: exp.IntDiv) -> str:
        """A quotient of whole numbers, cut off toward zero."""
        left, right = self._close(node.this), self._close(node.expression)
        if find_bound(node.this) is not None and find_bound(node.expression) is not None:
            return f"`div`({left}::BIGINT, {right}::BIGINT)"
        return _write("whole_quotient", f"{left}::{WHOLE}", f"{right}::{WHOLE}")

    def _arithmetic(self, sign: str, node: Any) -> str:
        both = (node.this, node.expression)
        if {"DATE", "TIMESTAMP", "INTERVAL"} & set(map(name_type, both)) or is_interval(node.expression):
            parts = [self.sql(each) for each in both]
        elif is_double(*both):
            parts = [self._double(each) for each in both]
        else:
            wide = f"::{WHOLE}" if find_bound(node) is None else ""
            parts = [f"{self._close(each)}{wide}" for each in both]
        return f"`{sign}`({', '.join(parts)})"

    def paren_sql(self, node: exp.Paren) -> str:
        """What stands in brackets, where it needs them."""
        return self._close(node.this)

    def alias_sql(self, node: exp.Alias) -> str:
        """A name for a value; a column keeps its own, since Spark would carry both through a window."""
        column = node.this
        same = isinstance(column, exp.Column) and column.name == node.alias
        return str(self.sql(column) if same else super().alias_sql(node))

    def neg_sql(self, node: exp.Neg) -> str:
        """A number with the other sign."""
        inner = node.this
        if not isinstance(inner, exp.Literal) or inner.is_string:
            return f"negative({self.sql(inner)})"
        wide = inner.name.isdigit() and int(inner.name) >= 2**63
        return f"'-{inner.name}'::{WHOLE}" if wide else f"-{self.sql(inner)}"

    def round_sql(self, node: exp.Round) -> str:
        """Rounding half away from zero, to whole numbers or to a literal number of places."""
        number = self._double(node.this)
        places = read_whole(node.args.get("decimals"))
        if not places:
            return self._round(number)
        factor, (there, back) = f"{10 ** abs(places)}D", ("*/" if places > 0 else "/*")
        rounded = f"`{back}`({self._round(f'`{there}`({number}, {factor})')}, {factor})"
        return f"`if`(abs({number}) < 1e290D, {rounded}, {number})"

    def _round(self, number: str) -> str:
        return _write("round", number, cut=SPARK["cut"].format(a=number))

    def sign_sql(self, node: exp.Sign) -> str:
        """-1, 0 or 1, as a whole number."""
        text = self._close(node.this)
        return _write("sign", text, nan=f"isnan({text})" if is_double(node.this) else "false")

    def pow_sql(self, node: exp.Pow) -> str:
        """A power of 0 or 1; others are refused before a charge."""
        exponent = read_number(node.expression)
        number = self._double(node.this)
        if exponent not in (0, 1):
            raise InternalError("a power other than 0 and 1 was to be rendered for Spark")
        return number if exponent == 1 else f"`if`({number} IS NOT NULL, 1D, NULL)"

    def floor_sql(self, node: exp.Floor) -> str:
        """The whole number below."""
        return _write("floor", self._double(node.this))

    def ceil_sql(self, node: exp.Ceil) -> str:
        """The whole number above."""
        return _write("ceil", self._double(node.this))

    def trunc_sql(self, node: exp.Trunc) -> str:
        """The whole number toward zero."""
        number = self._double(node.this)
        return _write("truncate", number, cut=SPARK["cut"].format(a=number))

    def trycast_sql(self, node: exp.TryCast) -> str:
        """A cast that gives null where the value does not fit; texts are not read as anything else."""
        source, target, text = name_type(node.this), name_type(node), self._close(node.this)
        if target in RANGES:
            return self._to_whole(source, target, text)
        if target == "DECIMAL":
            return _write("double_to_decimal" if source == "DOUBLE" else "to_decimal", text)
        if target == "DOUBLE" and source in ("DATE", "TIMESTAMP"):
            return "NULL::DOUBLE"
        return self.cast_sql(node)

    def _to_whole(self, source: str, target: str, text: str) -> str:
        if source in ("DATE", "TIMESTAMP"):
            return f"NULL::{SPARK_TYPES[target]}"
        if source == "BOOLEAN" or source == target or (source in ("SMALLINT", "INT") and target == "BIGINT"):
            return f"{text}::{SPARK_TYPES[target]}"
        rounded = f"rint({text})" if source == "DOUBLE" else text
        size = f"{1 << RANGES[target]}" if source in ("INT128", "BIGINT", "INT") else f"{float(1 << RANGES[target])!r}D"
        return SPARK["to_whole"].format(size=size, type=SPARK_TYPES[target], rint=rounded).format(a=text)

    def cast_sql(self, node: exp.Cast, safe_prefix: str | None = None) -> str:  # noqa: ARG002  as the parser calls it
        """A cast between types that cannot fail, or a literal of a type."""
        if isinstance(node.this, exp.Literal) and name_type(node) == "DOUBLE":
            return self._double(node.this)
        source, target, text = name_type(node.this), name_type(node), self._close(node.this)
        if node.this.is_int and isinstance(node.this, exp.Literal) and target == "BIGINT" and len(node.this.name) < 19:
            return f"{node.this.name}L"
        text = f"rint({text})" if source == "DOUBLE" and target in RANGES else text
        return f"{text}::{SPARK_TYPES[target]}"

    def anonymous_sql(self, node: exp.Anonymous) -> str:
        """Functions that the parser has no word for."""
        name = str(node.this).lower()
        if name == "hash" and isinstance(node.expressions[0], exp.Anonymous) and len(node.expressions) == 1:
            # xxhash64 takes each hash as the seed of the next, so that it needs no second round.
            return str(self.sql(node.expressions[0]))
        if name in ("hash", "hash_number"):
            return f"xxhash64({', '.join(map(self._hashed, node.expressions))})"
        arguments = [self.sql(each) for each in node.expressions]
        match name:
            case "strlen":
                return f"octet_length({arguments[0]})"
            case "to_months":
                return f"make_ym_interval(0, {self._close(node.expressions[0])}::INT)"
            case "to_seconds":
                return f"make_dt_interval(0, 0, 0, {self._close(node.expressions[0])}::DECIMAL(18, 6))"
            case "isfinite":
                return f"(abs({arguments[0]}) < 'Infinity'::DOUBLE)"
            case _:
                raise InternalError(f"the function '{name}' has no form in Spark")

    def _hashed(self, node: Any) -> str:
        """An argument of the hash; null is a value of its own.

        The salt is a text: Spark writes numbers into the code that it compiles for a statement, and refers to texts, so
        the code of a question that was asked before is not compiled, and made fast by Java, again for another salt.
        """
        number = read_number(node)
        text = self.sql(node)
        return f"{text}, {text} IS NULL" if number is None else f"'{number}'"

    def isinf_sql(self, node: exp.IsInf) -> str:
        """Whether a number is infinite."""
        return f"(abs({self.sql(node.this)}) = 'Infinity'::DOUBLE)"

    def timetounix_sql(self, node: exp.TimeToUnix) -> str:
        """Seconds since 1970."""
        return f"`/`(unix_micros({self._close(node.this)}::TIMESTAMP)::DOUBLE, 1000000D)"

    def datediff_sql(self, node: exp.DateDiff) -> str:
        """Days between two dates."""
        return f"datediff({self._close(node.this)}::DATE, {self._close(node.expression)}::DATE)::BIGINT"

    def year_sql(self, node: exp.Year) -> str:
        """The year of a date."""
        return f"year({self.sql(node.this)})::BIGINT"

    def extract_sql(self, node: exp.Extract) -> str:
        """A part of a date, as a whole number: seconds are cut off."""
        part, dated = str(node.this.name).lower(), f"{self._close(node.expression)}::TIMESTAMP_NTZ"
        if part == "dow":
            return f"`-`(dayofweek({dated}), 1)::BIGINT"
        word = {"isodow": "DAYOFWEEK_ISO", "isoyear": "YEAROFWEEK"}.get(part, part.upper())
        return f"floor(extract({word} FROM {dated}))::BIGINT"

    def timestamptrunc_sql(self, node: exp.TimestampTrunc) -> str:
        """The begin of a year, a week and so on."""
        unit = str(node.args["unit"].name).lower()
        return f"date_trunc('{unit}', {self._close(node.this)}::TIMESTAMP)::TIMESTAMP_NTZ"

    def timetostr_sql(self, node: exp.TimeToStr) -> str:
        """A date in a literal pattern."""
        pattern = _write_pattern(str(node.args["format"].name)).replace("\\", "\\\\").replace("'", "\\'")
        return f"date_format({self._close(node.this)}::TIMESTAMP_NTZ, '{pattern}')"

    def left_sql(self, node: exp.Left) -> str:
        """The first characters."""
        return _write("left", self.sql(node.this), f"{self._close(node.expression)}::INT")

    def right_sql(self, node: exp.Right) -> str:
        """The last characters."""
        return _write("right", self.sql(node.this), f"{self._close(node.expression)}::INT")

    def length_sql(self, node: exp.Length) -> str:
        """How many characters."""
        return f"char_length({self.sql(node.this)})::BIGINT"

    def substring_sql(self, node: exp.Substring) -> str:
        """A part of a text; a start below 0 counts from its end."""
        start = f"{self._close(node.args['start'])}::BIGINT"
        if node.args.get("length") is None:
            return _write("substring_rest", self.sql(node.this), start)
        return _write("substring", self.sql(node.this), start, f"{self._close(node.args['length'])}::BIGINT")

    def trim_sql(self, node: exp.Trim) -> str:
        """A text without spaces, or without given characters, at its ends."""
        where = node.args.get("position") or "BOTH"
        given = node.args.get("expression")
        return f"trim({where} {self.sql(given) if given is not None else SPACES} FROM {self.sql(node.this)})"

    def lower_sql(self, node: exp.Lower) -> str:
        """Small letters, each by itself."""
        return self._lower(self.sql(node.this))

    def _lower(self, text: str) -> str:
        return f"lower(translate({text}, '\u03a3\u0130', '\u03c3i'))"

    def upper_sql(self, node: exp.Upper) -> str:
        """Capital letters, each by itself."""
        letters, aside, capitals = list_long_capitals()
        return f"translate(upper(translate({self.sql(node.this)}, '{letters}', '{aside}')), '{aside}', '{capitals}')"

    def like_sql(self, node: exp.Like) -> str:
        """A pattern without a sign of escape."""
        return f"({self.sql(node.this)} LIKE {self._pattern(self.sql(node.expression))})"

    def ilike_sql(self, node: exp.ILike) -> str:
        """A pattern in small letters, compared with a text in small letters."""
        return f"({self._lower(self.sql(node.this))} LIKE {self._pattern(self._lower(self.sql(node.expression)))})"

    def _pattern(self, text: str) -> str:
        return f"replace({text}, '\\\\', '\\\\\\\\')"

    def select_sql(self, node: exp.Select) -> str:
        """A selection; lists that are written out become a source of rows, side by side, as in DuckDB."""
        lists = [each for shown in node.expressions for each in shown.find_all(exp.Explode)]
        if not lists:
            return str(super().select_sql(node))
        if node.find(exp.From) is not None and node.find(exp.From).parent is node:
            raise InternalError("a list beside a source of rows was to be rendered for Spark")
        names = [f"#{place}" for place in range(len(lists))]
        changed = node.copy()
        copied = [each for shown in changed.expressions for each in shown.find_all(exp.Explode)]
        for name, each in zip(names, copied, strict=True):
            column = exp.column(name, table="#each", quoted=True)
            column.type = each.type
            each.replace(column)
        named, plain = ", ".join(f"`{name}`" for name in names), [read_list(each.this) for each in lists]
        if all(plain) and len({len(each) for each in plain}) == 1:  # known to the planner, and sent without a job
            told = ", ".join(f"({', '.join(map(self.sql, row))})" for row in zip(*plain, strict=True))
            rows = f"(VALUES {told}) AS `#each`({named})"
        else:
            arrays = ", ".join(self._list_values(each.this) for each in lists)
            rows = f"(SELECT inline(arrays_zip({arrays})) AS ({named})) AS `#each`"
        changed.set("from_", exp.From(this=exp.Var(this=rows)))
        return str(super().select_sql(changed))

    def _list_values(self, source: Any) -> str:
        """The values of a list, or of a range without its end."""
        if not isinstance(source, exp.GenerateSeries):
            return str(self.sql(source))
        start, end, step = (source.args.get(name) for name in ("start", "end", "step"))
        ends = [f"{self._close(each)}::BIGINT" for each in (start, end)]
        return _write("series", *ends, self.sql(step) if step is not None else "1L")

    def placeholder_sql(self, node: exp.Placeholder) -> str:
        """A parameter by its name."""
        return f":p{node.name}"


class DeniableSpark(Spark):  # type: ignore[misc]  # the parser has no types here
    """Spark, as statements of ours are written for it."""

    Generator = DeniableSparkGenerator


# The parser's own forms would come before the methods here.
DeniableSparkGenerator.EXPRESSIONS_WITHOUT_NESTED_CTES = set()  # brought up, two of one name would meet
DeniableSparkGenerator.TRANSFORMS = {
    kind: form
    for kind, form in SparkGenerator.TRANSFORMS.items()
    if f"{kind.key}_sql" not in vars(DeniableSparkGenerator)
}

_PATTERN: dict[str, str] = {
    "%Y": "yyyy", "%m": "MM", "%d": "dd", "%H": "HH", "%M": "mm", "%S": "ss", "%f": "SSSSSS"
}  # fmt: skip


def _write_pattern(pattern: str) -> str:
    """A pattern of dates as Java takes it; other signs are quoted, so that no letter among them is a part."""
    written = ""
    for known, parts in groupby(split_pattern(pattern), key=_PATTERN.__contains__):
        text = "".join(_PATTERN.get(part, part) for part in parts)
        written += text if known else "'" + text.replace("'", "''") + "'"
    return written
