"""Our SQL in the languages of other engines.

SQL is written once, in DuckDB's language, by `render` and `private_sql`. Here it is parsed, its columns get their
types, and it is written again for another engine. What two engines compute differently stands in one table for each
dialect, such as `POSTGRESQL`: arithmetic that would fail in the other engine where DuckDB gives infinity or zero,
casts that would fail where TRY_CAST gives null, rounding, texts and dates. What cannot be made equal is refused before
anything is charged (`refuse_unsupported`), by the text of the question and the place of its tables alone.

**Exact.** Each entry gives the same value as DuckDB for every argument, but that a result of half the smallest DOUBLE,
to the last digit, may be zero in one and the smallest DOUBLE in the other. Texts are compared byte by byte. Which of a
unit's groups are kept follows from a hash of the unit's own values and the salt, as there; the hash is the engine's
own, so other groups may be kept.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import sqlglot
from sqlglot import exp
from sqlglot.errors import OptimizeError, ParseError
from sqlglot.optimizer.annotate_types import annotate_types
from sqlglot.optimizer.qualify_columns import qualify_columns, quote_identifiers
from sqlglot.optimizer.qualify_tables import qualify_tables

from deniable.errors import InternalError, QueryRefused
from deniable.query.algebra.expression import Call, Expression, Kind, Literal
from deniable.query.algebra.relation import PublicSelect, Relation, inputs_of, list_expressions, tables_of
from deniable.query.keys import PublicKeys
from deniable.query.plan import NodePlan, QueryPlan
from deniable.query.sql.postgresql import PostgreSQL, is_null, name_type
from deniable.query.sql.spark import DeniableSpark
from deniable.query.sql.warehouses import WAREHOUSES, prepare_tree

Types = Mapping[str, Mapping[str, str]]
"""By the name of a table, the DuckDB type of each of its columns."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement in the language of an engine, and the names of its columns, which engines may cut short."""

    sql: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    """DuckDB's type of each column; empty where it is not known."""
    tables: tuple[str, ...]
    """The tables that it reads, under the names that the statement was given."""
    order: tuple[str, ...] = ()
    """Columns of the result by which it is sorted here: where an engine would shuffle a few rows once more for it."""


_SALT = re.compile(r"CAST\(([0-9]{1,19}) AS UBIGINT\)")
_STANDING_IN = "7077070707077070707"
"""A number for the salt, so that a question asked again under another salt is not parsed again."""


def render_for_postgresql(sql: str, tables: Types, version: int = 150000, collation: str = "C.utf8") -> Statement:
    """A reading statement of ours as PostgreSQL takes it; `collation` is one that knows the letters of Unicode."""
    return _render(sql, tables, "postgresql", (("deniable_version", version), ("deniable_collation", collation)))


def render_for_spark(sql: str, tables: Types) -> Statement:
    """A reading statement of ours as Spark takes it."""
    return _render(sql, tables, "spark", ())


def render_for_warehouse(sql: str, tables: Types, warehouse: str) -> Statement:
    """A reading statement of ours as a warehouse is to take it; of these PostgreSQL alone has run any."""
    return _render(sql, tables, BY_ADBC.get(warehouse, warehouse), ())


BY_ADBC = {"postgresql": "postgres"}
"""The warehouse whose writer is used for a dialect that has another one for its own engine."""


Settings = tuple[tuple[str, int | str], ...]


def _render(sql: str, tables: Types, language: str, settings: Settings) -> Statement:
    salts = set(_SALT.findall(sql))
    known = tuple((name, tuple(columns.items())) for name, columns in sorted(tables.items()))
    if len(salts) != 1 or _STANDING_IN in sql:
        return _render_cached(sql, known, language, settings)
    (salt,) = salts
    found = _render_cached(_SALT.sub(f"CAST({_STANDING_IN} AS UBIGINT)", sql), known, language, settings)
    return replace(found, sql=found.sql.replace(_STANDING_IN, salt))


@lru_cache(maxsize=256)
def _render_cached(
    sql: str, known: tuple[tuple[str, tuple[tuple[str, str], ...]], ...], language: str, settings: Settings
) -> Statement:
    tables = {name: dict(columns) for name, columns in known}
    tree = _read_statement(sql, tables)
    names, types = _describe_result(tree)
    order: tuple[str, ...] = ()
    read = tuple(sorted({table.name for table in tree.find_all(exp.Table)} & set(tables)))
    if language == "postgresql":
        _shorten_names(tree)
        dialect = PostgreSQL(**dict(settings))
    elif language == "spark":
        order, dialect = _simplify_for_spark(tree), DeniableSpark()
    else:
        tree, dialect = prepare_tree(tree, language), WAREHOUSES[language]()
    return Statement(tree.sql(dialect=dialect, comments=False), names, types, read, order)


def _simplify_for_spark(tree: exp.Expr) -> tuple[str, ...]:
    """Leave out what costs Spark a shuffle for nothing; gives the columns by which the result is to be sorted.

    That is the order of a whole result by some of its columns, and DISTINCT over lists of which each has a number of
    its own for every row.
    """
    for select in tree.find_all(exp.Select):
        sources = [select.args.get("from_"), *(select.args.get("joins") or ())]
        shown = {(each.unalias().table, each.unalias().name) for each in select.selects if _is_column(each)}
        if select.args.get("distinct") and all(source and _has_own_number(source.this, shown) for source in sources):
            select.set("distinct", None)
        _partition_once(select)
    ordered = tree.args.get("order")
    if not isinstance(tree, exp.Select) or ordered is None or any(tree.args.get(each) for each in ("limit", "offset")):
        return ()
    names = {each.unalias(): each.alias_or_name for each in tree.selects}
    columns = [names.get(each.this, "") for each in ordered.expressions]
    if not all(columns) or any(each.args.get("desc") or each.args.get("nulls_first") for each in ordered.expressions):
        return ()
    tree.set("order", None)
    return tuple(columns)


def _partition_once(select: exp.Select) -> None:
    """Bring rows together by the columns of a window where the rows of another window below it are among them.

    Else Spark would shuffle all rows for the window below, and then again.
    """
    source = select.args["from_"].this if select.args.get("from_") else None
    below = source.this if isinstance(source, exp.Subquery) else None
    table = below.args["from_"].this if isinstance(below, exp.Select) and below.args.get("from_") else None
    outer, inner = _find_partition(select), _find_partition(below)
    if not isinstance(table, exp.Table) or not outer or not inner or not set(outer) < set(inner):
        return
    columns = [exp.column(name, table=table.alias_or_name, quoted=True) for name in outer]
    rows = exp.select("*").from_(table.copy())
    rows.set("distribute", exp.Distribute(expressions=columns))
    table.replace(rows.subquery(exp.to_identifier(table.alias_or_name, quoted=True)))


def _find_partition(select: exp.Expr | None) -> tuple[str, ...]:
    """The columns by which the rows of the one window of a selection are together; empty if it has none or several."""
    selects = select.selects if isinstance(select, exp.Select) else []
    windows = [each.unalias() for each in selects if isinstance(each.unalias(), exp.Window)]
    parts = windows[0].args.get("partition_by") or [] if len(windows) == 1 else []
    return tuple(each.name for each in parts) if all(map(_is_column, parts)) else ()


def _is_column(node: exp.Expr) -> bool:
    return isinstance(node.unalias(), exp.Column)


def _has_own_number(source: exp.Expr, shown: set[tuple[str, str]]) -> bool:
    """Whether rows of a list are numbered, by a column that is shown."""
    select = source.this if isinstance(source, exp.Subquery) else None
    listed = select.selects if isinstance(select, exp.Select) and select.args.get("from_") is None else []
    numbered = [each for each in listed if isinstance(each.unalias(), exp.Explode)]
    return any(
        isinstance(each.unalias().this, exp.GenerateSeries) and (source.alias, each.alias) in shown for each in numbered
    )


def _read_statement(sql: str, tables: Types) -> exp.Expr:
    """The parsed statement, all its columns qualified and typed."""
    try:
        found = sqlglot.parse(sql, read="duckdb")
        if len(found) != 1 or not isinstance(found[0], exp.Query):
            raise InternalError("an engine was given something else than one reading statement; it was not run")
        schema = {name: dict(columns) or {"": "TEXT"} for name, columns in tables.items()}
        tree = qualify_tables(_truncate_alike(_drop_empty_lists(found[0])), dialect="duckdb")
        named = {quote_plain(name): {quote_plain(c): t for c, t in columns.items()} for name, columns in schema.items()}
        tree = qualify_columns(tree, named, expand_alias_refs=False, dialect="duckdb")
        typed = annotate_types(tree, schema=named, dialect="duckdb")
    except (ParseError, OptimizeError) as failure:
        raise InternalError("SQL of our own making was not accepted by the engine") from failure
    return quote_identifiers(_settle_conditions(typed), dialect="postgres", identify=True)


def _settle_conditions(tree: exp.Expr) -> exp.Expr:
    """A condition that can only be null is false: the same rows, and a truth value for engines that ask for one."""
    for each in list(tree.find_all(exp.If, exp.Where, exp.Having, exp.Join)):
        condition = each.args.get("on" if isinstance(each, exp.Join) else "this")
        valued = isinstance(each.parent, exp.Case) and each.parent.this is not None
        if condition is not None and not valued and is_null(condition):
            condition.replace(exp.false())
    return tree


def _drop_empty_lists(tree: exp.Expr) -> exp.Expr:
    """A list without values gives no row, and has no type that another engine could know."""
    for each in list(tree.find_all(exp.Explode)):
        if isinstance(each.this, exp.Array) and not each.this.expressions:
            select = each.find_ancestor(exp.Select)
            assert select is not None
            select.where(exp.false(), copy=False)
            each.replace(exp.Null())
    return tree


def _truncate_alike(tree: exp.Expr) -> exp.Expr:
    """The begin of a day, a month and so on, as that of a time: the parser tells dates apart, and writers do not."""
    for each in list(tree.find_all(exp.DateTrunc)):
        each.replace(exp.TimestampTrunc(this=each.this, unit=exp.Var(this=each.args["unit"].name)))
    return tree


def quote_plain(name: str) -> str:
    """A name as the schema of the parser takes it: as it is, whatever it is made of."""
    return '"' + name.replace('"', '""') + '"'


def _describe_result(tree: exp.Expr) -> tuple[tuple[str, ...], tuple[str, ...]]:
    assert isinstance(tree, exp.Query)
    types = tuple(name_type(each) for each in tree.selects)
    return tuple(tree.named_selects), types


LONGEST_NAME = 63
"""Bytes of a name in PostgreSQL; of a longer one the rest is cut off, and two of them could become one."""


def _shorten_names(tree: exp.Expr) -> None:
    for name in tree.find_all(exp.Identifier):
        text = name.this
        if len(text.encode()) > LONGEST_NAME:
            name.set("this", "#" + hashlib.sha256(text.encode()).hexdigest()[:40])


UNSUPPORTED: dict[str, Callable[[Call], bool]] = {
    "regexp_replace": lambda _: True,
    "log2": lambda _: True,
    "modulo": lambda call: any(each.facts.kind is Kind.DECIMAL for each in call.arguments),
    "power": lambda call: (n := _read_exponent(call)) is None or n < 0,
    "cast_text": lambda call: call.arguments[0].facts.kind is Kind.DECIMAL,
}
"""Functions, and when, whose results PostgreSQL and Spark do not give as DuckDB does."""
UNSUPPORTED_BY_SPARK: dict[str, Callable[[Call], bool]] = {
    **UNSUPPORTED,
    "power": lambda call: _read_exponent(call) not in (0, 1),
    "exp": lambda _: True,
    "ln": lambda _: True,
    "log10": lambda _: True,
}
"""The same for Spark, whose Java library may round the last digit of some functions otherwise."""
_WIDEST = 10**15
"""Numbers up to this one are added, multiplied and divided without a result that is too large."""


def _is_small(*arguments: Expression) -> bool:
    """Whether numbers are known to be so small that no operation on two of them overflows."""
    ends = [end for each in arguments for end in (each.facts.lower, each.facts.upper)]
    numbers = all(each.facts.kind in (Kind.INTEGER, Kind.DECIMAL) for each in arguments)
    return numbers and all(end is not None and abs(end) <= _WIDEST for end in ends)


def _is_calm(call: Call, _: str) -> bool:
    return _is_small(*call.arguments)


def _multiplies(call: Call, dialect: str) -> bool:
    left, right = map(_find_least, call.arguments)
    kept = left >= 1 or right >= 1 or left * right * _TINY >= 1 or any(isinstance(a, Literal) for a in call.arguments)
    return _is_small(*call.arguments) and (kept or dialect not in FAILS_NEAR_ZERO)


def _divides(call: Call, dialect: str) -> bool:
    left, under = call.arguments[0], call.arguments[1].facts
    kept = isinstance(call.arguments[1], Literal) or _find_least(left) * _TINY >= _WIDEST
    known = under.kind is Kind.INTEGER or (under.lower or 0) * _WIDEST >= 1
    return _is_small(*call.arguments) and known and (kept or dialect not in FAILS_NEAR_ZERO)


FAILS_NEAR_ZERO = ("redshift",)
"""Warehouses where a result too close to zero is taken to be an error, as in PostgreSQL; the writer mends that of a
factor or a divisor that is written out."""
_TINY = 10**307
"""Numbers from one of these parts on are held to the last digit."""


def _find_least(number: Expression) -> Fraction:
    """How small a number can be, without its sign, unless it is zero; zero if that is not known."""
    facts = number.facts
    if facts.kind is Kind.INTEGER:
        return Fraction(1)
    return max(Fraction(facts.lower or 0), Fraction(-(facts.upper or 0)), Fraction(0))


def _compares(call: Call, dialect: str) -> bool:
    return dialect != "sqlserver" or all(each.facts.kind is not Kind.BOOLEAN for each in call.arguments)


def _chooses(call: Call, dialect: str) -> bool:
    return dialect != "sqlserver" or call.facts.kind is not Kind.BOOLEAN


def _is_always(_: Call, __: str) -> bool:
    return True


def _has_pattern(call: Call, _: str) -> bool:
    return isinstance(call.arguments[1], Literal)


def _cuts(call: Call, _: str) -> bool:
    lower = call.arguments[1].facts.lower
    return isinstance(call.arguments[1], Literal) and lower is not None and lower >= 0


ALLOWED: dict[str, Callable[[Call, str], bool]] = {
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "in", "nullif"), _compares),
    **dict.fromkeys(("and", "or", "not", "is_null", "clamp"), _is_always),
    **dict.fromkeys(("coalesce", "case"), _chooses),
    **dict.fromkeys(("add", "subtract", "negate", "abs", "floor"), _is_calm),
    "multiply": _multiplies,
    "divide": _divides,
    "round": lambda call, _: len(call.arguments) == 1 and _is_small(*call.arguments),
    "like": _has_pattern,
    "length": lambda _, dialect: dialect != "sqlserver",
    "left": _cuts,
    **dict.fromkeys(("year", "date_diff", "trunc_year", "trunc_month", "trunc_day"), _is_always),
    **dict.fromkeys(("part_year", "part_quarter", "part_month", "part_day", "part_hour", "part_minute"), _is_always),
}
"""The functions of questions that warehouses are asked to compute, and of which arguments; all others are refused."""


def is_allowed(call: Call, dialect: str) -> bool:
    """Whether a warehouse may be asked to compute a function of these arguments."""
    return call.name in ALLOWED and ALLOWED[call.name](call, dialect)


READ_FROM_TEXT = ("cast_integer", "cast_decimal", "cast_boolean", "cast_date", "cast_datetime")


def _read_exponent(call: Call) -> Fraction | None:
    facts = call.arguments[1].facts
    return facts.lower if facts.lower == facts.upper else None


def refuse_unsupported(plan: QueryPlan, place_of: Callable[[str], str]) -> QueryPlan:
    """The plan; refused where one of its parts cannot be computed where its tables are.

    `place_of` gives the place of a table by its name: empty for what the embedded engine reads, else the address of a
    database, also one that is reached by ADBC, or `spark`.
    """
    for node in plan.nodes:
        places = {place_of(table.name) for table in tables_of(node.node)}
        if len(places) > 1:
            raise QueryRefused(
                "the tables of this question are in different places, and rows are not carried between them",
                expected="All tables of one question in one database, or all in files",
                remedy="Ask of each place by itself, or ask the steward to bring the tables together",
            )
        if places - {""}:
            (place,) = places
            dialect = _read_dialect(place)
            if dialect in WAREHOUSES:
                _refuse_public_rows(node.node)
                _refuse_long_lists(node)
            _refuse_calls(_list_calls(node.node), dialect)
    return plan


def _read_dialect(place: str) -> str:
    """The language that is spoken at a place."""
    dialect, by_adbc, _ = place.partition("+adbc:")
    if by_adbc:
        return BY_ADBC.get(dialect, dialect)
    return place if place == "spark" or place in WAREHOUSES else "postgresql"


def _refuse_public_rows(relation: Relation) -> None:
    if isinstance(relation, PublicSelect):
        raise QueryRefused(
            "a table of a warehouse that is public is not shown by itself",
            expected="A question about private rows; they may be joined with a public table",
            remedy="Ask the steward for the public table as a file",
        )


MOST_GROUPS = 10_000
"""Public groups of a question that are written out in a statement for a warehouse."""


def _refuse_long_lists(node: NodePlan) -> None:
    for step in node.steps:
        if isinstance(step.keys, PublicKeys) and (step.keys.cells or 0) > MOST_GROUPS:
            raise QueryRefused(
                f"this question has {step.keys.cells} public groups, which are too many for a statement in a warehouse",
                expected=f"At most {MOST_GROUPS} groups",
                remedy="Group by fewer or coarser values",
            )


def _is_computed(call: Call, dialect: str) -> bool:
    if dialect in WAREHOUSES:
        return is_allowed(call, dialect)
    unsupported = UNSUPPORTED_BY_SPARK if dialect == "spark" else UNSUPPORTED
    return not (call.name in unsupported and unsupported[call.name](call))


ENGINE_NAMES = {
    "spark": "Spark",
    "postgresql": "PostgreSQL",
    "postgres": "PostgreSQL",
    "bigquery": "BigQuery",
    "sqlserver": "SQL Server",
}


def _refuse_calls(calls: Iterable[Call], dialect: str) -> None:
    for call in calls:
        text = call.name in READ_FROM_TEXT and call.arguments[0].facts.kind is Kind.TEXT
        if text or not _is_computed(call, dialect):
            engine = ENGINE_NAMES.get(dialect, dialect.capitalize())
            raise QueryRefused(
                f"'{call.name}' of these arguments cannot be computed in {engine}, where the rows are, "
                "with the same result as elsewhere",
                expected="Functions that give the same result in every engine",
                remedy="Ask without it, or ask the steward for a view that holds the value as a column",
            )


def _list_calls(relation: Relation) -> Iterator[Call]:
    waiting: list[Relation] = [relation]
    while waiting:
        found = waiting.pop()
        for expression in list_expressions(found):
            yield from _walk_calls(expression)
        waiting += inputs_of(found)


def _walk_calls(expression: Expression) -> Iterator[Call]:
    if isinstance(expression, Call):
        yield expression
        for argument in expression.arguments:
            yield from _walk_calls(argument)
