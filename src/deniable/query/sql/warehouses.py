"""The languages of warehouses: Snowflake, BigQuery, Databricks, Redshift, Trino and SQL Server.

No statement was ever run there: they are written from the same typed trees as those for PostgreSQL and Spark, and
parsed back. So little is allowed: `ALLOWED` in `dialects` lists the functions of questions whose results follow from
what each warehouse documents, and every other one is refused before a charge. Whole numbers are computed as
DECIMAL(38, 0), decimals by IEEE operations that can neither overflow nor give NaN. What differs stands in one table for
each dialect. Databricks takes what Spark takes, in sessions with ANSI_MODE = false.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import Any, ClassVar

from sqlglot import exp, parse_one
from sqlglot.dialects.bigquery import BigQuery
from sqlglot.dialects.postgres import Postgres
from sqlglot.dialects.redshift import Redshift
from sqlglot.dialects.snowflake import Snowflake
from sqlglot.dialects.trino import Trino
from sqlglot.dialects.tsql import TSQL
from sqlglot.generators.bigquery import BigQueryGenerator
from sqlglot.generators.postgres import PostgresGenerator
from sqlglot.generators.redshift import RedshiftGenerator
from sqlglot.generators.snowflake import SnowflakeGenerator
from sqlglot.generators.trino import TrinoGenerator
from sqlglot.generators.tsql import TSQLGenerator
from sqlglot.transforms import eliminate_qualify, move_ctes_to_top_level

from deniable.errors import InternalError
from deniable.query.sql.postgresql import (
    RANGES,
    find_near_zero,
    is_double,
    is_null,
    name_plainly,
    name_type,
    read_number,
    write_scaled,
)
from deniable.query.sql.spark import DeniableSpark, DeniableSparkGenerator

MOST = 1.7976931348623157e308
_ROUND = "CASE WHEN {a} BETWEEN -4503599627370496 AND 4503599627370496 THEN {cut} + {cut_rest} ELSE {a} END"

COMMON: dict[str, str] = {
    "join": " || ",
    "joined": "{a}",
    "count": "COUNT",
    "greatest": "GREATEST({a}, {b})",
    "least": "LEAST({a}, {b})",
    "skips_nulls": "yes",
    "infinity": "CAST('Infinity' AS {double})",
    "without_nan": "NULLIF({a}, CAST('NaN' AS {double}))",
    "cut": "TRUNC({a})",
    "round": _ROUND,
    "remainder": "MOD({a}, {b})",
    "quotient": "CAST(({a} - MOD({a}, {b})) / {b} AS {whole})",
    "to_whole": "CASE WHEN {a} >= {low} AND {a} < {high} THEN CAST({a} AS {type}) END",
    "bytes": "OCTET_LENGTH({a})",
    "length": "CHAR_LENGTH({a})",
    "left": "LEFT({a}, {b})",
    "part": "EXTRACT({unit} FROM {a})",
    "truncate": "DATE_TRUNC('{unit}', {a})",
    "days": "DATEDIFF(DAY, {b}, {a})",
    "later": "DATEADD(DAY, {b}, {a})",
    "hash": "SHA2({a}, 256)",
    "hashed_text": "{a}",
    "number": "HASH({a})",
    "backslash": "\\",
    "bracket": "[",
}
"""What most of them share, by what it is: `{a}` and `{b}` are the arguments."""
SNOWFLAKE = COMMON | {
    "greatest": "GREATEST_IGNORE_NULLS({a}, {b})",
    "least": "LEAST_IGNORE_NULLS({a}, {b})",
    "length": "LENGTH({a})",
}
BIGQUERY = COMMON | {
    "skips_nulls": "",
    "without_nan": "CASE WHEN NOT IS_NAN({a}) THEN {a} END",
    "quotient": "DIV({a}, {b})",
    "bytes": "BYTE_LENGTH({a})",
    "truncate": "DATETIME_TRUNC({a}, {unit})",
    "days": "DATE_DIFF({a}, {b}, DAY)",
    "later": "DATE_ADD({a}, INTERVAL {b} DAY)",
    "hash": "TO_HEX(SHA256({a}))",
    "number": "FARM_FINGERPRINT({a})",
    "backslash": "\\\\",
}
# Two long texts side by side do not fit into one of Redshift's, so each is hashed by itself first.
REDSHIFT = COMMON | {"hashed_text": "SHA2({a}, 256)", "number": "FNV_HASH({a})", "backslash": "\\\\"}
POSTGRES = COMMON | {
    "days": "({a} - {b})",
    "later": "({a} + {b})",
    "hash": "SHA256(CONVERT_TO({a}, 'UTF8'))",
    "number": "HASHTEXTEXTENDED({a}, 0)",
    "backslash": "\\\\",
}
"""PostgreSQL by the writer of warehouses, so that this writer is run: its own engine has another one."""
TRINO = COMMON | {
    "skips_nulls": "",
    "infinity": "INFINITY()",
    "without_nan": "CASE WHEN NOT IS_NAN({a}) THEN {a} END",
    "cut": "TRUNCATE({a})",
    "bytes": "LENGTH(TO_UTF8({a}))",
    "length": "LENGTH({a})",
    "left": "SUBSTRING({a}, 1, {b})",
    "days": "DATE_DIFF('DAY', {b}, {a})",
    "later": "DATE_ADD('DAY', {b}, {a})",
    "hash": "TO_HEX(SHA256(TO_UTF8({a})))",
    "number": "FROM_BIG_ENDIAN_64(XXHASH64(TO_UTF8({a})))",
}
SQLSERVER = COMMON | {
    "join": ", ",
    "joined": "CONCAT({a})",
    "count": "COUNT_BIG",
    "infinity": f"CAST('{MOST!r}' AS {{double}})",
    "without_nan": "{a}",
    "cut": "ROUND({a}, 0, 1)",
    "remainder": "{a} % {b}",
    "quotient": "CAST(({a} - {a} % {b}) / {b} AS {whole})",
    "bytes": "DATALENGTH({a})",
    "length": "",
    "part": "DATEPART({unit}, {a})",
    "truncate": "DATETRUNC({unit}, {a})",
    "hash": "HASHBYTES('SHA2_256', {a})",
    "number": "CAST(SUBSTRING(HASHBYTES('SHA2_256', {a}), 1, 8) AS BIGINT)",
    "bracket": "[[]",
}
"""SQL Server has neither infinity nor NaN: what would be infinite is the largest number."""

_TYPES = {
    "BIGINT": "BIGINT",
    "INT": "BIGINT",
    "SMALLINT": "BIGINT",
    "INT128": "DECIMAL(38, 0)",
    "UBIGINT": "DECIMAL(38, 0)",
    "DOUBLE": "DOUBLE PRECISION",
    "DECIMAL": "DOUBLE PRECISION",
    "BIGDECIMAL": "DOUBLE PRECISION",
    "TEXT": "VARCHAR",
    "BOOLEAN": "BOOLEAN",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP",
}


def _name_types(whole: str, double: str, text: str, time: str, **others: str) -> dict[str, str]:
    wholes = dict.fromkeys(("INT128", "UBIGINT"), whole)
    doubles = dict.fromkeys(("DOUBLE", "DECIMAL", "BIGDECIMAL"), double)
    return _TYPES | wholes | doubles | {"TEXT": text, "TIMESTAMP": time} | others


WAREHOUSE_TYPES: dict[str, dict[str, str]] = {
    "snowflake": _name_types("DECIMAL(38, 0)", "DOUBLE", "VARCHAR", "TIMESTAMP_NTZ"),
    "bigquery": _name_types(
        "BIGNUMERIC", "FLOAT64", "STRING", "DATETIME", BIGINT="INT64", INT="INT64", SMALLINT="INT64", BOOLEAN="BOOL"
    ),
    "postgres": _name_types("DECIMAL(38, 0)", "DOUBLE PRECISION", "TEXT", "TIMESTAMP", INT="INT"),
    "redshift": _name_types("DECIMAL(38, 0)", "DOUBLE PRECISION", "VARCHAR(65535)", "TIMESTAMP"),
    "trino": _name_types("DECIMAL(38, 0)", "DOUBLE", "VARCHAR", "TIMESTAMP(6)"),
    "sqlserver": _name_types("DECIMAL(38, 0)", "FLOAT", "NVARCHAR(MAX)", "DATETIME2(6)", BOOLEAN="BIT"),
}
"""By the dialect, its word for each of DuckDB's types."""


class WarehouseWriter:
    """Writes typed statements of ours for one warehouse, with the forms of its table."""

    TABLE: ClassVar[dict[str, str]]
    TYPE_NAMES: ClassVar[dict[str, str]]
    sql: Callable[..., str]
    func: Callable[..., str]

    def _write(self, name: str, a: str = "", b: str = "", **named: str) -> str:
        types = {"double": self.TYPE_NAMES["DOUBLE"], "whole": self.TYPE_NAMES["INT128"]}
        return self.TABLE[name].format(a=a, b=b, **types, **named)

    def _cast(self, text: str, kind: str) -> str:
        return f"CAST({text} AS {self.TYPE_NAMES[kind]})"

    def _double(self, node: Any) -> str:
        number = read_number(node)
        if number is not None:
            return self._cast(f"'{float(number)!r}'", "DOUBLE")
        return self.sql(node) if name_type(node) == "DOUBLE" else self._cast(self.sql(node), "DOUBLE")

    def _whole(self, node: Any) -> str:
        ready = isinstance(node.unnest(), exp.Add | exp.Sub | exp.Mul | exp.IntDiv | exp.Sum)
        return self.sql(node) if ready or name_type(node) == "INT128" else self._cast(self.sql(node), "INT128")

    def add_sql(self, node: Any) -> str:
        """A sum."""
        return self._arithmetic("+", node)

    def sub_sql(self, node: Any) -> str:
        """A difference."""
        return self._arithmetic("-", node)

    def mul_sql(self, node: Any) -> str:
        """A product."""
        return self._arithmetic("*", node)

    def _arithmetic(self, sign: str, node: Any) -> str:
        if name_type(node.this) == "DATE" and sign == "+":
            days = self._cast(self.sql(node.expression), "INT")
            return self._cast(self._write("later", self.sql(node.this), days), "DATE")
        if not is_double(node.this, node.expression):
            return f"({self._whole(node.this)} {sign} {self._whole(node.expression)})"
        text = f"({self._double(node.this)} {sign} {self._double(node.expression)})"
        return text if sign != "*" else self._keep_finite(node, text, lambda number: 1 / max(1.0, abs(number)))

    def div_sql(self, node: Any) -> str:
        """A quotient in double precision, as DuckDB divides whole numbers too."""
        left, right = self._double(node.this), self._double(node.expression)
        return self._keep_finite(node, f"({left} / {right})", lambda number: min(1.0, abs(number)))

    def _keep_finite(self, node: Any, text: str, shrink: Callable[[float], float]) -> str:
        """What would be too large is infinite, and never an error: the factor is a number that is written out."""
        number = read_number(node.expression)
        known = read_number(node.this) is not None or node.this.find(exp.Least, exp.Sqrt, exp.AggFunc) is not None
        if known or not number or shrink(float(number)) == 1:
            return text
        left, most = self._double(node.this), self._cast(f"'{MOST * shrink(float(number))!r}'", "DOUBLE")
        infinite = self._write("infinity")
        signed = f"CASE WHEN {left} {'>' if number < 0 else '<'} 0 THEN -{infinite} ELSE {infinite} END"
        return f"(CASE WHEN ABS({left}) > {most} THEN {signed} ELSE {text} END)"

    def mod_sql(self, node: Any) -> str:
        """A rest of whole numbers."""
        if is_double(node.this, node.expression):
            raise InternalError("a rest of decimals was to be rendered for a warehouse")
        return f"({self._write('remainder', self._whole(node.this), self._whole(node.expression))})"

    def intdiv_sql(self, node: Any) -> str:
        """A quotient of whole numbers, cut off toward zero."""
        return self._write("quotient", self._whole(node.this), self._whole(node.expression))

    def neg_sql(self, node: Any) -> str:
        """A number with the other sign."""
        return f"(-{self.sql(node.this)})"

    def paren_sql(self, node: Any) -> str:
        """What stands in brackets."""
        return f"({self.sql(node.this)})"

    def sum_sql(self, node: Any) -> str:
        """A sum of whole numbers, which 64 bits may not hold; sums of decimals would depend on the order of rows."""
        if is_double(node.this):
            raise InternalError("a sum of decimals was to be rendered for a warehouse")
        return f"SUM({self._whole(node.this)})"

    def count_sql(self, node: Any) -> str:
        """How many rows or values."""
        return f"{self.TABLE['count']}({self.sql(node.this)})"

    def coalesce_sql(self, node: Any) -> str:
        """The first value that is not null; of nulls alone some would make a text."""
        return "NULL" if is_null(node) else str(self.function_fallback_sql(node))  # type: ignore[attr-defined]

    def greatest_sql(self, node: Any) -> str:
        """The largest of the values that are there."""
        return self._choose("greatest", node)

    def least_sql(self, node: Any) -> str:
        """The smallest of the values that are there."""
        return self._choose("least", node)

    def _choose(self, name: str, node: Any) -> str:
        values = [node.this, *node.expressions]
        write = self._double if is_double(*values) else self.sql
        a, b = map(write, values)
        text, known = self._write(name, a, b), [_is_there(each) for each in values]
        if self.TABLE["skips_nulls"] or all(known):
            return text
        return f"COALESCE({text}, {a if known[0] else b if known[1] else f'{a}, {b}'})"

    def nullif_sql(self, node: Any) -> str:
        """Null in place of a value; NaN is no value that every warehouse compares."""
        if _is_word(node.expression, "nan"):
            return f"({self._write('without_nan', self._double(node.this))})"
        return f"NULLIF({self.sql(node.this)}, {self.sql(node.expression)})"

    def round_sql(self, node: Any) -> str:
        """Rounding half away from zero, to a whole number."""
        if node.args.get("decimals") is not None:
            raise InternalError("rounding to places was to be rendered for a warehouse")
        a = self._double(node.this)
        cut = self._write("cut", a)
        rest = self._write("cut", f"(({a} - {cut}) * 2)")
        return f"({self._write('round', a, cut=cut, cut_rest=rest)})"

    def floor_sql(self, node: Any) -> str:
        """The whole number below."""
        return f"FLOOR({self._double(node.this)})"

    def sqrt_sql(self, node: Any) -> str:
        """A root of a number from 0 up."""
        return f"SQRT({self._double(node.this)})"

    def trycast_sql(self, node: Any) -> str:
        """A cast that gives null where the value does not fit."""
        source, target = name_type(node.this), name_type(node)
        if target not in RANGES or source in ("BOOLEAN", target):
            return self.cast_sql(node)
        size = 1 << RANGES[target]
        ends = {"low": f"-{size}", "high": f"{size}"}
        kind, read = ("DOUBLE", float) if source == "DOUBLE" else ("INT128", int)
        ends = {name: self._cast(f"'{read(end)!r}'", kind) for name, end in ends.items()}
        return f"({self._write('to_whole', self.sql(node.this), type=self.TYPE_NAMES[target], **ends)})"

    def cast_sql(self, node: Any, safe_prefix: str | None = None) -> str:  # noqa: ARG002  as the parser calls it
        """A cast between types that cannot fail, or a literal of a type."""
        target = name_type(node)
        if target == "DOUBLE" and _is_word(node, "infinity"):
            return self._write("infinity")
        text = self.sql(node.this)
        if target == "DOUBLE":
            return self._cast(text, target) if name_type(node.this) == "TEXT" else self._double(node.this)
        return text if name_type(node.this) == target else self._cast(text, target)

    def anonymous_sql(self, node: Any) -> str:
        """Functions that the parser has no word for."""
        name = str(node.this).lower()
        if name == "hash":
            return self._hash(node)
        if name == "hash_number":
            return self._write("number", self._join(map(self._hashed, node.expressions)))
        if name == "strlen":
            return self._write("bytes", self.sql(node.expressions[0]))
        raise InternalError(f"the function '{name}' has no form in the language of a warehouse")

    def _hash(self, node: Any) -> str:
        """A salted hash of values, which is only sorted by; null is a value of its own."""
        if len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Anonymous):
            return self._hash(node.expressions[0])
        return self._write("hash", self._join(map(self._hashed, node.expressions)))

    def _join(self, texts: Iterable[str]) -> str:
        return self._write("joined", self.TABLE["join"].join(texts))

    def _hashed(self, node: Any) -> str:
        number = read_number(node)
        if number is not None:
            return f"'{number};'"
        text, value = self.sql(node), self._cast(self.sql(node), "TEXT")
        value = self._write("hashed_text", value) if name_type(node) == "TEXT" else value
        written = self._join(("'v'", value, "';'"))
        return f"CASE WHEN {text} IS NULL THEN 'n' ELSE {written} END"

    def length_sql(self, node: Any) -> str:
        """How many characters."""
        return self._write("length", self.sql(node.this))

    def left_sql(self, node: Any) -> str:
        """The first characters."""
        return self._write("left", self.sql(node.this), self.sql(node.expression))

    def like_sql(self, node: Any) -> str:
        """A pattern that is written out, without a sign of escape."""
        pattern = node.expression.unnest()
        if not (isinstance(pattern, exp.Literal) and pattern.is_string):
            raise InternalError("a pattern that is not written out was to be rendered for a warehouse")
        text = pattern.name.replace("\\", self.TABLE["backslash"]).replace("[", self.TABLE["bracket"])
        return f"({self.sql(node.this)} LIKE {self.sql(exp.Literal.string(text))})"

    def year_sql(self, node: Any) -> str:
        """The year of a date."""
        return self._cast(self._write("part", self.sql(node.this), unit="YEAR"), "BIGINT")

    def extract_sql(self, node: Any) -> str:
        """A part of a date, as a whole number."""
        dated = self.sql(node.expression)
        if name_type(node.expression) != "TIMESTAMP":
            dated = self._cast(dated, "TIMESTAMP")
        return self._cast(self._write("part", dated, unit=str(node.this.name).upper()), "BIGINT")

    def timestamptrunc_sql(self, node: Any) -> str:
        """The begin of a year, a month or a day."""
        unit = str(node.args["unit"].name).upper()
        return self._write("truncate", self._cast(self.sql(node.this), "TIMESTAMP"), unit=unit)

    def datediff_sql(self, node: Any) -> str:
        """Days between two dates."""
        days = [self._cast(self.sql(each), "DATE") for each in (node.this, node.expression)]
        return self._cast(self._write("days", *days), "BIGINT")

    def placeholder_sql(self, node: Any) -> str:
        """A parameter by its name, which is written out before the statement runs."""
        return f"${node.name}"


def _is_there(node: Any) -> bool:
    """Whether an expression is known not to be null."""
    match node.unnest():
        case exp.Literal() | exp.Count():
            return True
        case exp.Cast(this=inner) | exp.Neg(this=inner):
            return _is_there(inner)
        case exp.Coalesce() | exp.Greatest() | exp.Least() as found:
            return any(map(_is_there, [found.this, *found.expressions]))
        case _:
            return False


def _is_word(node: Any, word: str) -> bool:
    """Whether an expression is CAST('word' AS DOUBLE)."""
    inner = node.this if isinstance(node, exp.Cast) else None
    return isinstance(inner, exp.Literal) and inner.is_string and inner.name.lower() == word


class SnowflakeWriter(WarehouseWriter, SnowflakeGenerator):  # type: ignore[misc]  # the parser has no types here
    """Writes for Snowflake."""

    TABLE, TYPE_NAMES = SNOWFLAKE, WAREHOUSE_TYPES["snowflake"]


class BigQueryWriter(WarehouseWriter, BigQueryGenerator):  # type: ignore[misc]
    """Writes for BigQuery."""

    TABLE, TYPE_NAMES = BIGQUERY, WAREHOUSE_TYPES["bigquery"]


class RedshiftWriter(WarehouseWriter, RedshiftGenerator):  # type: ignore[misc]
    """Writes for Redshift."""

    TABLE, TYPE_NAMES = REDSHIFT, WAREHOUSE_TYPES["redshift"]

    def _keep_finite(self, node: Any, text: str, shrink: Callable[[float], float]) -> str:
        """A product or a quotient of a number that is written out; a result too close to zero is zero, and no error."""
        text, (side, least) = super()._keep_finite(node, text, shrink), find_near_zero(node)
        if least is None:
            return text
        end, zero = (self._cast(f"'{each!r}'", "DOUBLE") for each in (least, 0.0))
        return f"(CASE WHEN ABS({self._double(side)}) < {end} THEN {zero} ELSE {text} END)"


class PostgresWriter(WarehouseWriter, PostgresGenerator):  # type: ignore[misc]
    """Writes for PostgreSQL."""

    TABLE, TYPE_NAMES = POSTGRES, WAREHOUSE_TYPES["postgres"]

    def _keep_finite(self, node: Any, _: str, __: Callable[[float], float]) -> str:
        """A product or a quotient that never fails, also where it is too small."""
        return write_scaled(node, self._double(node.this), self._double(node.expression))


class TrinoWriter(WarehouseWriter, TrinoGenerator):  # type: ignore[misc]
    """Writes for Trino."""

    TABLE, TYPE_NAMES = TRINO, WAREHOUSE_TYPES["trino"]


class SQLServerWriter(WarehouseWriter, TSQLGenerator):  # type: ignore[misc]
    """Writes for SQL Server."""

    TABLE, TYPE_NAMES = SQLSERVER, WAREHOUSE_TYPES["sqlserver"]

    def literal_sql(self, node: Any) -> str:
        """A literal; texts that are not plain are marked, or their letters would be lost."""
        text = str(super().literal_sql(node))
        return text if text.isascii() else f"N{text}"


def _make_dialect(parent: Any, writer: Any) -> Any:
    """A dialect of the parser with our writer; the parser's own forms would come before the writer's methods.

    It has a name of its own, since the parser finds dialects by their names.
    """
    forms = next(base for base in writer.__mro__[2:] if "TRANSFORMS" in vars(base)).TRANSFORMS
    writer.TRANSFORMS = {kind: form for kind, form in forms.items() if f"{kind.key}_sql" not in vars(WarehouseWriter)}
    return type(f"Deniable{parent.__name__}", (parent,), {"Generator": writer})


class DatabricksWriter(DeniableSparkGenerator):
    """Writes what Spark takes; operators as they are documented, and not as calls of their names."""

    def generate(self, expression: Any, copy: bool = True) -> str:
        """A whole statement."""
        tree = parse_one(super().generate(expression, copy), read="spark")
        for call in reversed(list(tree.find_all(exp.Anonymous))):
            parts = call.expressions
            if call.name in OPERATORS:
                call.replace(exp.Paren(this=OPERATORS[call.name](this=parts[0], expression=parts[1])))
        return str(tree.sql("spark"))


OPERATORS = {"+": exp.Add, "-": exp.Sub, "*": exp.Mul, "/": exp.Div, "%": exp.Mod, "div": exp.IntDiv}
WAREHOUSES: dict[str, Any] = {
    "snowflake": _make_dialect(Snowflake, SnowflakeWriter),
    "bigquery": _make_dialect(BigQuery, BigQueryWriter),
    "databricks": type("DeniableDatabricks", (DeniableSpark,), {"Generator": DatabricksWriter}),
    "redshift": _make_dialect(Redshift, RedshiftWriter),
    "trino": _make_dialect(Trino, TrinoWriter),
    "sqlserver": _make_dialect(TSQL, SQLServerWriter),
    "postgres": _make_dialect(Postgres, PostgresWriter),
}
"""The warehouses by their names."""


def prepare_tree(tree: Any, dialect: str) -> Any:
    """A typed statement in a form that a warehouse takes: lists as rows, plain names, and no condition as a value."""
    if dialect == "databricks":
        return tree
    for select in list(tree.find_all(exp.Select)):
        _list_rows(select)
    if dialect == "sqlserver":
        tree = _bring_up_names(tree)
        _write_conditions(tree)
    for name in tree.find_all(exp.Identifier):
        name.set("this", name_plainly(name.this))
    return tree


def _list_rows(select: Any) -> None:
    """Lists that are selected become a source of rows, side by side, as in DuckDB."""
    lists = [each for shown in select.expressions for each in shown.find_all(exp.Explode)]
    if not lists:
        return
    if select.args.get("from_") is not None:
        raise InternalError("a list beside a source of rows was to be rendered for a warehouse")
    rows = zip_longest(*(list(_list_values(each.this)) for each in lists), fillvalue=exp.Null())
    names = [f"each_{place}" for place in range(len(lists))]
    for name, each in zip(names, lists, strict=True):
        column = exp.column(name, table="each", quoted=True)
        column.type = each.type
        each.replace(column)
    alias = exp.TableAlias(
        this=exp.to_identifier("each", quoted=True), columns=[exp.to_identifier(name, quoted=True) for name in names]
    )
    listed = [exp.Tuple(expressions=[value.copy() for value in row]) for row in rows]
    select.set("from_", exp.From(this=exp.Values(expressions=listed, alias=alias)))


MOST_LISTED = 100_000
"""Values of one list that are written out."""


def _list_values(source: Any) -> Iterator[Any]:
    """The values of a list, or of a range without its end."""
    if not isinstance(source, exp.GenerateSeries):
        yield from source.expressions
        return
    start, end, step = (read_number(source.args.get(name)) for name in ("start", "end", "step"))
    found = range(int(start or 0), int(end or 0), int(step or 1))
    if len(found) > MOST_LISTED:
        raise InternalError("a range was too long to be written out for a warehouse")
    for number in found:
        yield exp.Literal.number(number) if number >= 0 else exp.Neg(this=exp.Literal.number(-number))


def _bring_up_names(tree: Any) -> Any:
    """Common table expressions at the top, where alone SQL Server takes them, each under a name of its own."""
    named: dict[int, dict[str, str]] = {}
    for place, each in enumerate(tree.find_all(exp.With)):
        named[id(each.parent)] = {cte.alias: f"{cte.alias}_{place}" for cte in each.expressions}
    for table in [each for each in tree.find_all(exp.Table) if not each.args.get("db")]:
        above = table.parent
        while above is not None and table.name not in named.get(id(above), {}):
            above = above.parent
        if above is not None:
            table.this.set("this", named[id(above)][table.name])
    for each in tree.find_all(exp.With):
        for cte in each.expressions:
            cte.args["alias"].this.set("this", named[id(each.parent)][cte.alias])
    return move_ctes_to_top_level(_drop_qualify(tree))


def _drop_qualify(tree: Any) -> Any:
    for select in [each for each in tree.find_all(exp.Select) if each.args.get("qualify")]:
        changed = eliminate_qualify(select.copy())
        if select is tree:
            return changed
        select.replace(changed)
    return tree


_CONDITIONS = (exp.Where, exp.Having, exp.Join, exp.And, exp.Or, exp.Not, exp.Filter)


def _write_conditions(tree: Any) -> None:
    """A condition whose value is wanted becomes a choice of 1 and 0: SQL Server has no type of truth values."""
    found = [each for each in tree.find_all(exp.Predicate, exp.Connector, exp.Not) if _is_wanted(each)]
    for each in reversed(found):
        place = exp.Placeholder()
        each.replace(place)
        choice = exp.case().when(each, exp.Literal.number(1)).when(exp.not_(each.copy()), exp.Literal.number(0))
        choice.type = exp.DataType.build("boolean")
        place.replace(choice)


def _is_wanted(node: Any) -> bool:
    above = node.parent
    while isinstance(above, exp.Paren):
        node, above = above, above.parent
    if isinstance(above, exp.If):
        return bool(node.arg_key != "this")
    return above is not None and not isinstance(above, _CONDITIONS)
