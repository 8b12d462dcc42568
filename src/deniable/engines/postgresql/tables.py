"""Tables of a database: how a source names one, how its columns are shown, which rows may be seen, and its version."""

# ruff: noqa: S608  (statements here are made of our own words, quoted names and quoted literals; no user text)

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from deniable.engines.base import (
    MOST_DIGITS,
    POINTED,
    WHOLE,
    Field,
    Listed,
    Restriction,
    Sampled,
    list_numbers,
    pick_spellings,
    quote,
    read_listed,
)
from deniable.engines.postgresql.connection import connect, translate_errors
from deniable.engines.remote import (
    SINGLE,
    ZONED,
    Conversions,
    Reading,
    count_misfits,
    name_decimal,
    refuse_misfits,
    show_declared,
)
from deniable.errors import DataError, nearest
from deniable.policy.schema import ColumnType, TableSchema, normalize_spelling, refuse_secret

SCHEME = "postgresql:"


@dataclass(frozen=True, slots=True)
class Located:
    """A table of a database: the address without it, its schema, its name."""

    address: str
    schema: str
    table: str

    @property
    def title(self) -> str:
        """How messages call it."""
        return f"'{self.schema}.{self.table}'"

    @property
    def relation(self) -> str:
        """The table, to stand after FROM."""
        return f"{quote(self.schema)}.{quote(self.table)}"


_NAME = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


def locate_table(source: str) -> Located:
    """The table that a source names.

    >>> locate_table("postgresql://ana@db/clinic#care.visits")
    Located(address='postgresql://ana@db/clinic', schema='care', table='visits')
    """
    refuse_secret(source)
    address, _, table = source.partition("#")
    names = [(quoted or plain).replace('""', '"') for quoted, plain in _NAME.findall(table)]
    if not 1 <= len(names) <= 2:
        raise DataError(
            "a source in a database names no single table",
            expected="postgresql://user@host/database#schema.table",
            remedy="Name the table after a #",
        )
    return Located(address, names[0] if len(names) == 2 else "public", names[-1])


@dataclass(frozen=True, slots=True)
class View:
    """A table of a database as it is shown: the columns of the policy, and the rows that may be seen."""

    located: Located
    fields: tuple[Field, ...]
    expressions: tuple[str, ...]
    restrictions: tuple[Restriction, ...] = ()
    server: tuple[int, str] = (0, "")
    """The server's version, and its collation that knows the letters of Unicode."""
    types: tuple[tuple[str, str], ...] = ()
    """The database's own types of its columns: one that changed since would be read as something else."""

    @property
    def place(self) -> str:
        """The database that it is in."""
        return self.located.address


# What each of the database's types is shown as: the policy's type, DuckDB's word, and the expression that reads it.
_FIRST, _LAST = "0001-01-01", "9999-12-31"


_NUMERIC = (
    "(CASE WHEN {0} = 0 THEN 0 WHEN abs({0}) < 1.7e308 AND abs({0}) > 2.3e-308 THEN CAST({0} AS double precision) END)"
)


_FLOAT = "NULLIF(CAST({0} AS double precision), CAST('NaN' AS double precision))"


_DATE = f"(CASE WHEN {{0}} BETWEEN DATE '{_FIRST}' AND DATE '{_LAST}' THEN {{0}} END)"


_TIME = f"(CASE WHEN {{0}} BETWEEN TIMESTAMP '{_FIRST}' AND TIMESTAMP '{_LAST} 23:59:59.999999' THEN {{0}} END)"


_ZONED = _TIME.replace("{0}", "({0} AT TIME ZONE 'UTC')")


_WHOLE = "CAST({0} AS bigint)"


READ: dict[str, Reading] = {
    "int2": (ColumnType.INTEGER, "BIGINT", _WHOLE),
    "int4": (ColumnType.INTEGER, "BIGINT", _WHOLE),
    "int8": (ColumnType.INTEGER, "BIGINT", "{0}"),
    "float4": (ColumnType.DECIMAL, SINGLE, _FLOAT),
    "float8": (ColumnType.DECIMAL, "DOUBLE", _FLOAT),
    "numeric": (ColumnType.DECIMAL, "DOUBLE", _NUMERIC),
    "bool": (ColumnType.BOOLEAN, "BOOLEAN", "{0}"),
    "date": (ColumnType.DATE, "DATE", _DATE),
    "timestamp": (ColumnType.DATETIME, "TIMESTAMP", _TIME),
    "timestamptz": (ColumnType.DATETIME, ZONED, _ZONED),
}


EXACT = (ColumnType.DECIMAL, "DOUBLE", "(CASE WHEN abs({0}) < 1.7e308 THEN {0} END)")
"""Numerics that are declared as whole numbers: by way of doubles, long ones would become one another."""


TEXT = (ColumnType.TEXT, "VARCHAR", '(CAST({0} AS text) COLLATE "C")')


CONVERSIONS = Conversions(
    '(CAST({0} AS text) COLLATE "C")',
    {
        (ColumnType.INTEGER, ColumnType.DECIMAL): "CAST({0} AS double precision)",
        (ColumnType.DECIMAL, ColumnType.INTEGER): (
            "(CASE WHEN {0} = trunc({0}) AND {0} >= -9223372036854775808 AND {0} < 9223372036854775808 "
            "THEN CAST({0} AS bigint) END)"
        ),
        (ColumnType.DATE, ColumnType.DATETIME): "CAST({0} AS timestamp)",
        (ColumnType.DATETIME, ColumnType.DATE): "CAST({0} AS date)",
    },
)


def list_types(connection: Any, located: Located) -> dict[str, str]:
    """The database's own types of a table's columns."""
    with translate_errors(located.title):
        found: list[tuple[str, str]] = connection.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
            " WHERE attrelid = to_regclass(%s) AND attnum > 0 AND NOT attisdropped",
            (located.relation,),
        ).fetchall()
    return dict(found)


def inspect_table(connection: Any, located: Located, schema: TableSchema | None) -> View:
    """How a table, a view or a partitioned table is shown; declared columns must be there and fit."""
    with translate_errors(located.title):
        found = connection.execute(
            "WITH RECURSIVE types(oid, kind) AS ("  # a domain may be over a domain
            " SELECT t.oid, CASE t.typnamespace WHEN 'pg_catalog'::regnamespace THEN t.typname ELSE '' END"
            " FROM pg_type t WHERE t.typbasetype = 0"
            " UNION ALL SELECT t.oid, b.kind FROM types b JOIN pg_type t ON t.typbasetype = b.oid)"
            " SELECT a.attname, t.kind, format_type(a.atttypid, a.atttypmod), c.relispopulated FROM pg_attribute a"
            " JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace"
            " JOIN types t ON t.oid = a.atttypid"
            " WHERE n.nspname = %s AND c.relname = %s AND c.relkind IN ('r', 'v', 'm', 'p', 'f')"
            " AND a.attnum > 0 AND NOT a.attisdropped AND has_schema_privilege(n.oid, 'USAGE')"
            " AND has_column_privilege(c.oid, a.attnum, 'SELECT') ORDER BY a.attnum",
            (located.schema, located.table),
        ).fetchall()
    if not found:
        raise DataError(
            f"the database has no table {located.title} that this role may see",
            expected="A table, a view or a partitioned table, as schema.table",
            remedy=_suggest_table(connection, located),
        )
    if not all(populated for *_, populated in found):
        raise DataError(f"{located.title} is a materialized view without rows yet", remedy="Refresh it in the database")
    whole = {column.name for column in schema.columns if column.type is ColumnType.INTEGER} if schema else set()
    columns = [
        (name, quote(name), EXACT if kind == "numeric" and name in whole else _find_reading(kind, written))
        for name, kind, written, _ in found
    ]
    shown = show_declared(columns, schema, located.title, CONVERSIONS)
    if shown.doubtful:
        with translate_errors(located.title):
            counts = connection.execute(count_misfits(shown.doubtful, located.relation)).fetchone()
        refuse_misfits(shown.doubtful, counts, located.title)
    named = {field.name for field in shown.fields}
    types = tuple((name, written) for name, _, written, _ in found if name in named)
    return View(located, shown.fields, shown.expressions, types=types)


def _find_reading(kind: str, written: str) -> Reading:
    digits = re.fullmatch(r"numeric\((\d+),(\d+)\)", written)
    return READ.get(kind, TEXT) if digits is None else name_decimal(READ["numeric"], int(digits[1]), int(digits[2]))


def _suggest_table(connection: Any, located: Located) -> str:
    with translate_errors(located.title):
        found = connection.execute(
            "SELECT schemaname || '.' || tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog',"
            " 'information_schema') UNION SELECT schemaname || '.' || viewname FROM pg_views"
            " WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1 LIMIT 1000"
        ).fetchall()
    wanted, known = f"{located.schema}.{located.table}", [name for (name,) in found]
    if wanted in known:
        return "Grant the role SELECT on the table and USAGE on its schema"
    return nearest(wanted, known) or "Correct the source"


PARTS = (
    "WITH RECURSIVE parts(oid) AS ("
    " SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
    " WHERE n.nspname = %s AND c.relname = %s"
    " UNION SELECT x.oid FROM parts p CROSS JOIN LATERAL ("
    " SELECT i.inhrelid AS oid FROM pg_inherits i WHERE i.inhparent = p.oid"
    " UNION SELECT d.refobjid FROM pg_rewrite r JOIN pg_depend d ON d.objid = r.oid"
    " AND d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass"
    " WHERE r.ev_class = p.oid AND d.refobjid <> p.oid) AS x)"
)
"""A table with all that it reads: its partitions, and the tables below a view."""


def list_places(source: str) -> tuple[str, frozenset[str]]:
    """Where a table is, by one name whoever connects and however; and all tables that it reads, itself included."""
    located = locate_table(source)
    connection = connect(located.address)
    try:
        with translate_errors(located.title):
            (system, database) = connection.execute(WHEREABOUTS).fetchone()
            found = connection.execute(
                f"{PARTS} SELECT n.nspname, c.relname FROM parts p JOIN pg_class c ON c.oid = p.oid"
                " JOIN pg_namespace n ON n.oid = c.relnamespace",
                (located.schema, located.table),
            ).fetchall()
    finally:
        connection.close()
    place = f"{SCHEME}//{system}/{database}"
    return f"{place}#{located.schema}.{located.table}", frozenset(f"{place}#{schema}.{name}" for schema, name in found)


WHOLE_ROW = "CAST(ROW(rows.*) AS text)"
"""A row of a relation that is called `rows`, which may have a column of that name too."""


def find_version(connection: Any, located: Located) -> str:
    """What changes when rows do, by what the database counts, for the table and all that a view or partitions read.

    No row is read, but where the database does not count: of foreign tables, and under track_counts = off, all rows
    are hashed. It counts what a session has changed at most a minute after it, and at once when the session ends.
    """
    with translate_errors(located.title):
        found: list[Any] = connection.execute(
            f"{PARTS} SELECT c.oid::bigint, c.relfilenode::bigint, c.relkind::text, pg_get_viewdef(c.oid),"
            " pg_stat_get_tuples_inserted(c.oid), pg_stat_get_tuples_updated(c.oid), pg_stat_get_tuples_deleted(c.oid),"
            " CASE WHEN c.relkind IN ('r', 'm', 't') THEN pg_relation_size(c.oid) END"
            " FROM pg_class c JOIN parts p ON p.oid = c.oid ORDER BY 1",
            (located.schema, located.table),
        ).fetchall()
        (counted,) = connection.execute("SELECT current_setting('track_counts')").fetchone()
        if counted != "on" or any(kind == "f" for _, _, kind, *_ in found):
            found += connection.execute(
                f"SELECT count(*), sum(hashtextextended({WHOLE_ROW}, 1))::text,"
                f" sum(hashtextextended({WHOLE_ROW}, 2))::text FROM {located.relation} AS rows"
            ).fetchall()
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def version_source(source: str) -> str:
    """The fingerprint of a table of a database, by a connection of its own."""
    located = locate_table(source)
    connection = connect(located.address)
    try:
        return find_version(connection, located)
    finally:
        connection.close()


WHEREABOUTS = (
    "SELECT coalesce(inet_server_addr()::text, '') || ':' || current_setting('port') || ':'"
    " || (SELECT oid FROM pg_database WHERE datname = current_database()), current_database()"
)
"""Which server and database a session is in, by names that do not depend on how it was reached."""


def stamp_table(source: str) -> tuple[str, str]:
    """Where a table is, by one name whoever connects and however, and what changes when its rows do."""
    located = locate_table(source)
    connection = connect(located.address)
    try:
        with translate_errors(located.title):
            (system, database) = connection.execute(WHEREABOUTS).fetchone()
        stamp = find_version(connection, located)
    finally:
        connection.close()
    return f"{SCHEME}//{system}/{database}#{located.schema}.{located.table}", stamp


def list_tables(address: str) -> tuple[str, ...]:
    """The tables, views and partitioned tables of a database that the role may read, as schema.table."""
    connection = connect(address)
    try:
        with translate_errors():
            found = connection.execute(
                "SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
                " WHERE c.relkind IN ('r', 'v', 'm', 'p') AND NOT c.relispartition AND n.nspname !~ '^pg_'"
                " AND n.nspname <> 'information_schema' AND has_table_privilege(c.oid, 'SELECT') ORDER BY 1"
            ).fetchall()
    finally:
        connection.close()
    return tuple(name for (name,) in found)


def show_view(view: View, values: list[Any]) -> str:
    """The statement that shows a table, as far as it may be shown."""
    shown = ", ".join(f"{e} AS {cut_name(f.name)}" for e, f in zip(view.expressions, view.fields, strict=True))
    rows = f"SELECT {shown or '1'} FROM {view.located.relation}"
    for restriction in view.restrictions:
        if isinstance(restriction, Sampled) and restriction.column is None:
            rows = _number_rows(view, rows)
        rows = f"SELECT {_list_columns(view)} FROM ({rows}) AS rows WHERE {_restrict(view, restriction, values)}"
    return rows


def _list_columns(view: View) -> str:
    return ", ".join(cut_name(field.name) for field in view.fields) or "1"


def _number_rows(view: View, rows: str) -> str:
    """Each row with a text of its own: what it holds, and its number among those that hold the same."""
    row = f'{WHOLE_ROW} COLLATE "C"'
    numbered = f'{row} || row_number() OVER (PARTITION BY {row})::text AS "#row"'
    return f"SELECT {_list_columns(view)}, {numbered} FROM ({rows}) AS rows"


def _restrict(view: View, restriction: Restriction, values: list[Any]) -> str:
    if not isinstance(restriction, Listed):
        # One in a million is fine enough for a share; the salted hash spreads units evenly.
        key = '"#row"' if restriction.column is None else cut_name(restriction.column)
        values.append(restriction.salt)
        below = int(restriction.share * 1_000_000)
        hashed = f'hashtextextended(CAST({key} AS text) COLLATE "C", ${len(values)})'
        return f"abs({hashed} % 1000000) < {below}"
    place = next(i for i, f in enumerate(view.fields) if f.name == restriction.column)
    text = restriction.loose and view.fields[place].type is ColumnType.TEXT
    alike = list(_write_alike(view.fields[place], restriction))
    listed = Spellings(view, place, restriction) if text else alike
    values.append(listed)
    found = f"coalesce(CAST({cut_name(restriction.column)} AS text) = ANY(CAST(${len(values)} AS text[])), false)"
    return found if restriction.keep else f"NOT {found}"


def _write_alike(field: Field, restriction: Listed) -> Iterator[str]:
    """The listed values as the database writes values of the column."""
    for text in read_listed(field.type, restriction.values):
        yield _write_double(float(text)) if field.type is ColumnType.DECIMAL else text


def _write_double(number: float) -> str:
    """A number as PostgreSQL writes it: the shortest digits, without a point where it is whole."""
    text = repr(number)
    return text.removesuffix(".0") if "e" not in text and abs(number) < 1e15 else text.replace("e+0", "e+")


@dataclass(frozen=True, slots=True)
class Spellings:
    """Values that are listed in any spelling: which texts of the column are meant is looked up in the snapshot."""

    view: View
    place: int
    listed: Listed

    def find(self, connection: Any) -> list[str]:
        """The texts of the column that are a listed value in some spelling."""
        wanted, field = {normalize_spelling(value) for value in self.listed.values}, self.view.fields[self.place]
        numbers = [repr(each) for each in sorted(list_numbers(self.listed, field).doubles)]
        column = self.view.expressions[self.place]
        number = f"length({column}) <= {MOST_DIGITS} AND {column} ~ '^({WHOLE}|{POINTED})$'"
        found = connection.execute(
            f"SELECT DISTINCT {column} AS value FROM {self.view.located.relation}"
            f" WHERE {column} !~ '^[!-~]*$' OR lower({column}) = ANY(%s)"
            f" OR CASE WHEN {number} THEN {READ_DOUBLE.format(column)} END = ANY(%s::float8[])",
            (sorted(wanted), numbers),
        ).fetchall()
        return pick_spellings([text for (text,) in found], self.listed, field)


READ_DOUBLE = "CASE WHEN abs(CAST({0} AS numeric)) BETWEEN 1e-300 AND 1e300 THEN CAST({0} AS float8) ELSE 0 END"
"""A number in a text as a double; 0 beyond all doubles, where the cast would fail."""


def cut_name(name: str) -> str:
    """A name as statements have it: PostgreSQL would cut a long one, and two of them could become one."""
    if len(name.encode()) <= 63:
        return quote(name)
    return quote("#" + hashlib.sha256(name.encode()).hexdigest()[:40])
