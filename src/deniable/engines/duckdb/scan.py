"""Scans: how a source is read with the policy's types, nulls and restrictions, as a view of the engine."""

from __future__ import annotations

import hashlib
import itertools
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from deniable.engines.base import (
    NUMBERS,
    Field,
    Listed,
    Restriction,
    Sampled,
    list_numbers,
    normalize_names,
    quote,
    read_listed,
    render_held,
    require_columns,
    spell_plainly,
    tell_misfits,
)
from deniable.engines.duckdb.connection import (
    Limits,
    connect,
    find_wide,
    literal,
    literals,
    match_numbers,
    open_probe,
    refuse_beyond,
    refuse_wide,
    render_outside,
    translate_errors,
)
from deniable.engines.duckdb.connection import (
    render_rounded as render_rounded,
)
from deniable.engines.sources import Files, Stamp, stamp_file
from deniable.errors import DataError, nearest
from deniable.policy.schema import ColumnType, TableSchema
from deniable.storage import storage_errors

# ruff: noqa: S608  (statements here are made of our own words, quoted names and quoted paths; no user text)


@dataclass(frozen=True, slots=True)
class Scan:
    """One source, ready to be shown: `relation` is what stands after FROM, `rows` what is registered under its name."""

    relation: str
    fields: tuple[Field, ...]
    expressions: tuple[str, ...]
    paths: tuple[Path, ...] = ()
    database: tuple[str, Path] | None = None
    rows: Any = field(default=None, repr=False, compare=False)
    notes: tuple[str, ...] = ()
    restrictions: tuple[Restriction, ...] = ()
    plain: bool = False
    """Whether the files hold each value as it is read, so that it is no larger than they are."""
    held: Held | None = field(default=None, repr=False, compare=False)
    """The files as text, where they were small and read when they were looked into."""
    rounded: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    """For columns whose numbers reading can round: the condition under which it does, over the source's columns."""
    wide: frozenset[str] = frozenset()
    """Those of them that the engine gives as doubles, whatever they are declared as."""

    def view(self, name: str) -> str:
        """The statement that shows this source, as far as it may be shown, under its name."""
        shown = ", ".join(f"{e} AS {quote(f.name)}" for e, f in zip(self.expressions, self.fields, strict=True))
        source = f"{self.relation} AS source({slots(len(self.fields))})"
        rows = f"SELECT {shown} FROM {source}"
        for place, each in enumerate(self.restrictions):
            rows = f"SELECT * FROM ({rows}) AS rows {self._condition(name, place, each)}"
        return f"CREATE OR REPLACE TEMP VIEW {quote(name)} AS {rows}"

    def find_value_lists(self) -> list[tuple[int, Listed]]:
        """The restrictions that need a list of values, by their place."""
        return [(place, each) for place, each in enumerate(self.restrictions) if isinstance(each, Listed)]

    def read_values(self, listed: Listed) -> list[str]:
        """The values of a restriction as the view compares them: of a whole-numbered column, whole numbers alone.

        A cast would round 1.5 to another person's number.
        """
        kind = next(field.type for field in self.fields if field.name == listed.column)
        return [*read_listed(kind, listed.values)] if kind is ColumnType.INTEGER else [*listed.values]

    def _condition(self, name: str, place: int, restriction: Restriction) -> str:
        if isinstance(restriction, Sampled):
            # One in a million is fine enough for a share; the salted hash spreads units evenly.
            key = quote(restriction.column) if restriction.column is not None else "row_number() OVER ()"
            below = int(restriction.share * 1_000_000)
            clause = "WHERE" if restriction.column is not None else "QUALIFY"
            return f"{clause} hash({key}, {restriction.salt}::UBIGINT) % 1000000 < {below}"
        own = next(f for f in self.fields if f.name == restriction.column)
        listed = quote(f"values {place} of {name}")
        spell = spell_plainly if restriction.loose and own.native == "VARCHAR" else str
        values = f"SELECT {spell(f'TRY_CAST(value AS {own.native})')} AS value FROM {listed}"
        found = f"{spell(quote(restriction.column))} IN (SELECT value FROM ({values}) AS v WHERE value IS NOT NULL)"
        if spell is spell_plainly:
            numbers = list_numbers(restriction, own)
            found = " OR ".join((found, *match_numbers(spell(quote(own.name)), listed, numbers)))
        return f"WHERE {'' if restriction.keep else 'NOT '}coalesce({found}, false)"


def slots(count: int) -> str:
    """Neutral names for the columns of a relation, by position: whatever the file calls them cannot matter."""
    return ", ".join(slot(position) for position in range(count))


def slot(position: int) -> str:
    """The neutral name of one column."""
    return f"c{position}"


def scan_parquet(files: Files, schema: TableSchema | None, limits: Limits) -> Scan:
    """A Scan of Parquet files of one schema."""
    raw = _require_one_schema(files)
    relation = f"read_parquet({literals(files.paths)}, hive_partitioning = false, union_by_name = false)"
    with open_probe(limits) as connection, translate_errors(files.title):
        names, wide = normalize_names(raw.names), find_wide(raw)
        found = scan_relation(connection, relation, names, schema, files.title, wide, files.paths, paths=files.paths)
        _read_coarse_times(connection, relation, raw)
        return found


def _read_coarse_times(connection: Any, relation: str, raw: pa.Schema) -> None:
    """Read all times of milliseconds and seconds once: one beyond what a time can be fails here, not in a question."""
    coarse = [p for p, f in enumerate(raw) if pa.types.is_timestamp(f.type) and f.type.unit in ("ms", "s")]
    if coarse:
        read = ", ".join(f"max(hash({slot(p)}))" for p in coarse)
        connection.execute(f"SELECT {read} FROM {relation} AS source({slots(len(raw))})").fetchall()


def scan_database(files: Files, schema: TableSchema | None, limits: Limits, registered: str) -> Scan:
    """A Scan of one table or view of a DuckDB file, opened read-only.

    The rows of a view are copied to the private folder first, by a connection that reaches nothing but this file: what
    a view computes can fail, or differ from one reading to the next, and then does so before a question is asked.
    """
    path = files.paths[0]
    alias = "file_" + hashlib.sha256(str(path).encode()).hexdigest()[:12]
    with connect(limits) as connection, translate_errors(files.title):
        connection.execute(f"ATTACH {literal(path)} AS {quote(alias)} (READ_ONLY)")
        connection.execute(f"USE {quote(alias)}")  # where a view looks for its tables
        listed = (
            "SELECT schema_name, table_name, false FROM duckdb_tables() WHERE database_name = $1 UNION ALL "
            "SELECT schema_name, view_name, true FROM duckdb_views() WHERE database_name = $1 AND NOT internal "
            "ORDER BY ALL"
        )
        *chosen, is_view = _choose_table(connection.execute(listed, [alias]).fetchall(), files)
        relation = ".".join(quote(part) for part in (alias, *chosen))
        if is_view:
            return _scan_view(connection, f"SELECT * FROM {relation}", schema, limits, registered, files.title)
        raw = [row[0] for row in connection.execute(f"DESCRIBE {relation}").fetchall()]
        rest: Any = {"files": files.paths, "database": (alias, path)}
        return scan_relation(connection, relation, normalize_names(raw), schema, files.title, **rest)


def _scan_view(
    connection: Any, query: str, schema: TableSchema | None, limits: Limits, registered: str, title: str
) -> Scan:
    import pyarrow.dataset as ds

    connection.execute("SET enable_external_access = false")
    try:
        reader = connection.sql(query).to_arrow_reader()
        copied = spool(reader.schema, iter(reader), limits.scratch)
    except (duckdb.Error, pa.ArrowException):
        raise DataError(
            f"the view of {title} cannot be read",
            expected="A view whose statement reads tables of the same file, and whose values can all be computed",
            remedy="Make a table of it: CREATE TABLE ... AS SELECT * FROM the view",
        ) from None
    return scan_rows(ds.dataset([str(copied)], format="ipc"), schema, limits, registered, title)


def scan_arrow_files(files: Files, schema: TableSchema | None, limits: Limits, registered: str) -> Scan:
    """A Scan of Arrow files; a stream, or a file with names that must change, is copied to the private folder first."""
    import pyarrow.dataset as ds

    paths = tuple(_convert_to_arrow_file(path, limits.scratch) for path in files.paths)
    schemas = [pa.ipc.open_file(pa.memory_map(str(path))).schema for path in paths]
    for path, found in zip(files.paths, schemas, strict=True):
        _require_same_schema(found, schemas[0], path)
    rows = ds.dataset([str(path) for path in paths], format="ipc", schema=schemas[0])
    return scan_rows(rows, schema, limits, registered, files.title, files=paths)


def scan_rows(
    rows: Any, schema: TableSchema | None, limits: Limits, registered: str, title: str = "the frame", **rest: Any
) -> Scan:
    """A Scan of an Arrow table or dataset."""
    refuse_wide(rows.schema, title)
    with open_probe(limits) as connection, translate_errors(title):
        connection.register(registered, rows)
        return scan_relation(
            connection, quote(registered), normalize_names(rows.schema.names), schema, title, rows=rows, **rest
        )


def scan_relation(
    connection: Any,
    relation: str,
    names: tuple[str, ...],
    schema: TableSchema | None,
    title: str,
    wide: Collection[int] = (),
    files: tuple[Path, ...] = (),
    **rest: Any,
) -> Scan:
    """A Scan with every column read as declared, or as it is; declared columns must be there and fit.

    `wide` are the places of decimals that the engine gives as doubles, `files` what is read.
    """
    natives = [row[1] for row in connection.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()]
    declared = collect_declared_types(names, schema, title)
    refuse_misfits(connection, relation, names, natives, declared, title)
    _read_once(connection, relation, {n: natives[p] for p, n in enumerate(names)}, declared, files)
    expressions = tuple(render_value(slot(p), natives[p], declared.get(n)) for p, n in enumerate(names))
    fields = tuple(_make_field(n, natives[p], declared.get(n)) for p, n in enumerate(names))
    rounded = {
        n: f"{slot(p)} IS NOT NULL" if p in wide else render_rounded(f"CAST({slot(p)} AS VARCHAR)", expressions[p])
        for p, n in enumerate(names)
        if p in wide or (fields[p].native == "DOUBLE" and natives[p] not in ("FLOAT", "DOUBLE"))
    }
    return Scan(relation, fields, expressions, rounded=rounded, wide=frozenset(names[p] for p in wide), **rest)


def _read_once(
    connection: Any, relation: str, natives: Mapping[str, str], declared: Collection[str], files: tuple[Path, ...]
) -> None:
    """Refuse declared dates that no answer can hold; small files are read whole, so that what is damaged is found."""
    source = f"{relation} AS source({slots(len(natives))})"
    for place, (name, native) in enumerate(natives.items()):
        if name in declared and native in _DATES:
            asked = f"SELECT 1 FROM {source} WHERE {render_outside(slot(place), native)} LIMIT 1"
            refuse_beyond({name: bool(connection.execute(asked).fetchall())})
    if _are_small(stamp_paths(files)):
        connection.execute(f"SELECT max(hash({slots(len(natives))})) FROM {source}").fetchall()


def collect_declared_types(names: tuple[str, ...], schema: TableSchema | None, title: str) -> dict[str, ColumnType]:
    """The declared type of each column that the policy names."""
    if schema is None:
        return {}
    require_columns(names, schema.names, title)
    return {column.name: column.type for column in schema.columns}


def refuse_misfits(
    connection: Any,
    relation: str,
    names: tuple[str, ...],
    natives: list[str],
    declared: dict[str, ColumnType],
    title: str,
) -> None:
    """Refuse when a declared column holds values that are not of its type; says how many, never which."""
    doubtful = [
        p
        for p, n in enumerate(names)
        if n in declared and render_value(slot(p), natives[p], declared[n]) != render_value(slot(p), natives[p], None)
    ]
    if not doubtful:
        return
    counts = ", ".join(
        f"count(*) FILTER (WHERE {render_misfit(slot(p), natives[p], declared[names[p]])})" for p in doubtful
    )
    found = connection.execute(f"SELECT {counts} FROM {relation} AS source({slots(len(names))})").fetchone()
    for position, count in zip(doubtful, found, strict=True):
        if count:
            name = names[position]
            raise DataError(
                tell_misfits(count, name, title, declared[name]),
                remedy="Correct the file, or the type in the policy",
                column=name,
                count=count,
            )


def spool(schema: pa.Schema, batches: Iterator[pa.RecordBatch], scratch: Path) -> Path:
    """Copy batches to an Arrow file in the private folder, under names that every engine can hold."""
    target = Path(tempfile.mkdtemp(dir=scratch)) / "rows.arrow"
    names = list(normalize_names(schema.names))
    renamed = pa.schema([f.with_name(n) for f, n in zip(schema, names, strict=True)])
    with storage_errors(target), pa.OSFile(str(target), "wb") as file, pa.ipc.new_file(file, renamed) as writer:
        for batch in batches:
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=renamed))
    return target


def _make_field(name: str, native: str, declared: ColumnType | None) -> Field:
    if declared is None or (declared is type_of(native) and native != "VARCHAR"):
        return Field(name, type_of(native), choose_native(native))
    return Field(name, declared, NATIVE[declared], number=type_of(native) in NUMBERS)


def _require_one_schema(files: Files) -> pa.Schema:
    schemas = [_read_parquet_schema(path) for path in files.paths]
    for path, found in zip(files.paths, schemas, strict=True):
        _require_same_schema(found, schemas[0], path)
    return schemas[0]


def _read_parquet_schema(path: Path) -> pa.Schema:
    import pyarrow.parquet as pq

    try:
        return pq.read_schema(path)
    except (pa.ArrowException, OSError):
        raise DataError(f"'{path.name}' is not a whole Parquet file", remedy="Write it again") from None


def _require_same_schema(found: pa.Schema, first: pa.Schema, path: Path) -> None:
    if not found.equals(first):
        odd = next((f.name for f, g in zip(found, first, strict=False) if not f.equals(g)), "")
        raise DataError(
            f"'{path.name}' has other columns than the first file" + (f", from column '{odd}' on" if odd else ""),
            expected="The files of one source have the same columns of the same types in the same order",
        )


def _choose_table(tables: list[tuple[str, str, bool]], files: Files) -> tuple[str, str, bool]:
    """The table or view that a source names, with its schema where a name alone does not tell; or the only table."""
    only = [each for each in tables if not each[2]] or tables
    wanted = files.table
    found = [each for each in tables if wanted in (each[1], f"{each[0]}.{each[1]}")] if wanted is not None else only
    if len(found) == 1:
        return found[0]
    names = [
        table if [each[1] for each in tables].count(table) == 1 else f"{schema}.{table}" for schema, table, _ in tables
    ]
    raise DataError(
        f"{files.title} has no single table" + (f" '{wanted}'" if wanted else ""),
        expected="It has " + (", ".join(f"'{name}'" for name in names) or "no table at all"),
        remedy=nearest(wanted or "", names) or f"Name the table after a #, as in {files.paths[0].name}#visits",
    )


def _convert_to_arrow_file(path: Path, scratch: Path) -> Path:
    try:
        with pa.memory_map(str(path)) as file:
            if file.read(6) != b"ARROW1":
                file.seek(0)
                with pa.ipc.open_stream(file) as stream:
                    return spool(stream.schema, _read_whole(iter(stream), path), scratch)
            reader = pa.ipc.open_file(file)
            if normalize_names(reader.schema.names) == tuple(reader.schema.names):
                return path
            batches = (reader.get_batch(index) for index in range(reader.num_record_batches))
            return spool(reader.schema, _read_whole(batches, path), scratch)
    except (pa.ArrowException, EOFError, OSError):
        raise _refuse_damaged(path) from None


def _read_whole(batches: Iterator[pa.RecordBatch], path: Path) -> Iterator[pa.RecordBatch]:
    """Batches of a file; what fails when they are read is the file, and not what is written meanwhile."""
    try:
        yield from batches
    except (pa.ArrowException, OSError):
        raise _refuse_damaged(path) from None


def _refuse_damaged(path: Path) -> DataError:
    return DataError(f"'{path.name}' is not a whole Arrow file", remedy="Write it again")


NATIVE = {
    ColumnType.INTEGER: "BIGINT",
    ColumnType.DECIMAL: "DOUBLE",
    ColumnType.TEXT: "VARCHAR",
    ColumnType.BOOLEAN: "BOOLEAN",
    ColumnType.DATE: "DATE",
    ColumnType.DATETIME: "TIMESTAMP",
}
_INTEGERS = {"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}
_NANOSECONDS = {"TIMESTAMP_NS": "TIMESTAMP", "TIMESTAMPTZ_NS": "TIMESTAMP WITH TIME ZONE"}
"""Times in nanoseconds, each with the type in microseconds that it is shown as."""
_DATETIMES = {"TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP WITH TIME ZONE", *_NANOSECONDS}
_DATES = {"DATE", *_DATETIMES} - {*_NANOSECONDS}
"""Dates and times that can be of years before 1 and after 9999."""

# What a text of each type looks like when nothing was declared. No plus sign and no leading zero: those are phone
# numbers and codes. A float without point or exponent has at most 15 digits, which a double holds exactly.
INFERRED = {
    ColumnType.BOOLEAN: "^(true|false|TRUE|FALSE|True|False)$",
    ColumnType.INTEGER: "^(0|-?[1-9][0-9]{0,18})$",
    ColumnType.DECIMAL: (
        r"^-?((0|[1-9][0-9]{0,14})|(0|[1-9][0-9]*)\.[0-9]+|(0|[1-9][0-9]*)(\.[0-9]+)?[eE][-+]?[0-9]{1,3})$"
    ),
    ColumnType.DATE: "^[0-9]{4}-[0-9]{2}-[0-9]{2}$",
    ColumnType.DATETIME: r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?$",
}
# What is taken where the policy declares the type: leading zeros and signs are fine then, and so is '12.0', which is
# how spreadsheets write integers that had gaps.
_DECLARED_INTEGER = r"^[-+]?[0-9]+(\.0*)?$"
_OFFSET = r":[0-9]{2}(\.[0-9]+)? ?([zZ]|[-+][0-9]{2}(:?[0-9]{2})?)$"
"""How a text of a time ends that says how far it is from UTC."""
_WRITTEN_DATE = (
    r"^[0-9]{4}[-/][0-9]{1,2}[-/][0-9]{1,2}([ T]+[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.,][0-9]*)?)?"
    r" ?([zZ]|UTC|[-+][0-9]{2}(:?[0-9]{2})?)?)?$"
)
"""How a date or a time is written: the year first, in four digits, and no words behind it."""


def type_of(native: str) -> ColumnType:
    """The policy's type for one of DuckDB's; whatever has no counterpart is shown as text.

    >>> type_of("DECIMAL(18,2)"), type_of("INTEGER[]")
    (<ColumnType.DECIMAL: 'decimal'>, <ColumnType.TEXT: 'text'>)
    """
    if native in _INTEGERS:
        return ColumnType.INTEGER
    if native in ("FLOAT", "DOUBLE") or (native.startswith("DECIMAL(") and native.endswith(")")):
        return ColumnType.DECIMAL
    if native in _DATETIMES:
        return ColumnType.DATETIME
    return ColumnType(native.lower()) if native in ("BOOLEAN", "DATE") else ColumnType.TEXT


def choose_native(native: str) -> str:
    """The DuckDB type under which a column of a native type is shown when nothing else was declared."""
    if native in _NANOSECONDS:
        return _NANOSECONDS[native]
    return native if type_of(native) is not ColumnType.TEXT else "VARCHAR"


def render_value(column: str, native: str, declared: ColumnType | None) -> str:
    """The expression that reads a column of a native type, as declared or as it is."""
    if native in _NANOSECONDS:  # the engine's cast would round a year's last moment up, into the next one
        whole = f"epoch_ns({column}) // 1000 - CAST(epoch_ns({column}) % 1000 < 0 AS BIGINT)"
        column, native = f"make_timestamp({whole})", _NANOSECONDS[native]
        if native != "TIMESTAMP":
            column = f"CAST({column} AS {native})"  # in the connection's zone, which is UTC
    if declared is None or (declared is type_of(native) and native != "VARCHAR"):
        return _render_as_is(column, native)
    if native == "VARCHAR":
        return render_text(column, declared)
    if declared is ColumnType.TEXT:
        return f"CAST({column} AS VARCHAR)"
    if declared is ColumnType.INTEGER and type_of(native) is ColumnType.DECIMAL:
        return f"CASE WHEN {column} = trunc({column}) THEN TRY_CAST({column} AS BIGINT) END"
    return f"TRY_CAST({column} AS {NATIVE[declared]})"


def render_text(column: str, declared: ColumnType) -> str:
    """The expression that reads a text column as a type; blanks are null, whatever does not fit is null."""
    if declared is ColumnType.TEXT:
        return column
    text = f"NULLIF(trim({column}), '')"
    if declared is ColumnType.INTEGER:
        whole = f"regexp_replace({text}, '\\.0*$', '')"
        return f"CASE WHEN regexp_matches({text}, '{_DECLARED_INTEGER}') THEN TRY_CAST({whole} AS BIGINT) END"
    cast = f"TRY_CAST({text} AS {NATIVE[declared]})"
    if declared is ColumnType.DATETIME:  # the engine would drop an offset; a column of times with a zone is in UTC too
        moved = f"CAST(TRY_CAST({text} AS TIMESTAMP WITH TIME ZONE) AS TIMESTAMP)"
        cast = f"CASE WHEN regexp_matches({text}, '{_OFFSET}') THEN {moved} ELSE {cast} END"
    if declared in (ColumnType.DATE, ColumnType.DATETIME):  # the engine would take 31-12-24 for a day of the year 31
        return f"CASE WHEN regexp_matches({text}, '{_WRITTEN_DATE}') THEN {cast} END"
    return _replace_nan(cast) if declared is ColumnType.DECIMAL else cast


def render_misfit(column: str, native: str, declared: ColumnType) -> str:
    """The condition under which a column holds a value that is not of the declared type."""
    present = f"NULLIF(trim({column}), '') IS NOT NULL" if native == "VARCHAR" else f"{column} IS NOT NULL"
    misfit = f"{present} AND NOT ({render_held(render_value(column, native, declared), declared)})"
    if declared in (ColumnType.DECIMAL, ColumnType.INTEGER):  # a number that is none is null in every format
        misfit += f" AND lower(trim(CAST({column} AS VARCHAR))) NOT IN ('nan', '-nan', '+nan')"
    return misfit


def _render_as_is(column: str, native: str) -> str:
    if native in ("FLOAT", "DOUBLE"):
        # A Parquet file's statistics do not tell of NaN. By them the engine takes `isnan` and comparisons with NaN to
        # be false for every row. These two functions it does compute.
        return f"CASE WHEN isfinite({column}) OR isinf({column}) THEN {column} END"
    return column if choose_native(native) == native else f"CAST({column} AS VARCHAR)"


def _replace_nan(expression: str) -> str:
    # A missing number is null: NaN would count as present, and as larger than every bound. (In DuckDB NaN = NaN.)
    return f"NULLIF({expression}, CAST('NaN' AS DOUBLE))"


# Copies: a small file is held in memory, read and typed once, so that a question need not open and decode it again.
#
# Opening a Parquet file of a thousand rows takes DuckDB longer than counting them, and a CSV file is parsed whole each
# time. A copy is as its file was when it was looked into: the engine looks into a file that was changed since again,
# before a statement reads it. A file that is not small, or that cannot be copied, is read where it is.

MOST_BYTES = 4 << 20
"""Bytes of the files of a source that is copied."""
MOST_CELLS, MOST_TEXT = 1_000_000, 16 << 20
"""Values, and bytes of text among them: a compressed file can hold far more than its size tells."""

Stamps = tuple[Stamp | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """The fields of small files as text, in a table of the connection by which they were looked into."""

    connection: Any
    table: str
    stamps: Stamps


HELD = itertools.count()
MOST_HELD = 200
"""Columns of a file that is held: tables of more cost the engine more than to read the file."""
MOST_ALTERED = 8
"""Columns of a held table whose types are changed one by one; more are changed at once, in a table of their own."""


def hold_text(connection: Any, cursor: Any, paths: tuple[Path, ...], relation: str, columns: int) -> Held | None:
    """Read small files whole, every field as text; None where they are large, and read where they are."""
    stamps = stamp_paths(paths)
    if not _are_small(stamps) or columns > MOST_HELD:
        return None
    table = quote(f"values as text {next(HELD)}")
    cursor.execute(f"CREATE TABLE {table} AS SELECT * FROM {relation} AS source({slots(columns)})")
    return Held(connection, table, stamps)


def take_copies(connection: Any, scans: dict[str, Scan]) -> dict[str, Scan]:
    """How copies of the sources that are small are read, inside a connection that reaches their files."""
    found = {name: _copy_source(connection, name, scan) for name, scan in scans.items()}
    return {name: copy for name, copy in found.items() if copy is not None}


def stamp_paths(paths: tuple[Path, ...]) -> Stamps:
    """What changes when one of these files is written to, replaced or removed."""
    stamps: list[Stamp | None] = []
    for path in paths:
        try:
            stamps.append(stamp_file(path))
        except OSError:
            stamps.append(None)
    return tuple(stamps)


def _copy_source(connection: Any, name: str, scan: Scan) -> Scan | None:
    stamps, table = stamp_paths(scan.paths), quote(f"copy of {name}")
    if not _are_small(stamps):
        return None
    held = scan.held
    source = f"{scan.relation} AS source({slots(len(scan.fields))})"
    shown = ", ".join(f"{expression} AS {slot(place)}" for place, expression in enumerate(scan.expressions))
    with suppress(duckdb.Error):
        if held is not None and held.connection is connection and held.stamps == stamps:
            return _type_held(connection, scan, held.table, table)
        if scan.plain or _is_small(connection, scan, f"SELECT {shown} FROM {source}"):
            connection.execute(f"CREATE TABLE {table} AS SELECT {shown} FROM {source}")
            return _read_plainly(scan, table)
    return None


def _are_small(stamps: Stamps) -> bool:
    """Whether files are there, and together small enough to be copied."""
    sizes = [stamp[1] for stamp in stamps if stamp is not None]
    return bool(sizes) and len(sizes) == len(stamps) and sum(sizes) <= MOST_BYTES


def _type_held(connection: Any, scan: Scan, held: str, table: str) -> Scan:
    """Files that were read as text, in the types of their columns: a few are changed in place, many at once."""
    columns = [(slot(p), *each) for p, each in enumerate(zip(scan.expressions, scan.fields, strict=True))]
    altered = [each for each in columns if each[0] != each[1]]
    if len(altered) > MOST_ALTERED:
        shown = ", ".join(f"{expression} AS {column}" for column, expression, _ in columns)
        connection.execute(f"CREATE TABLE {table} AS SELECT {shown} FROM {held}")
        connection.execute(f"DROP TABLE {held}")
        return _read_plainly(scan, table)
    for column, expression, shown_as in altered:
        connection.execute(f"ALTER TABLE {held} ALTER {column} SET DATA TYPE {shown_as.native} USING {expression}")
    return _read_plainly(scan, held)


def _read_plainly(scan: Scan, table: str) -> Scan:
    """A source as it is read from a table of its values."""
    return replace(scan, relation=table, expressions=tuple(slot(place) for place in range(len(scan.fields))))


def _is_small(connection: Any, scan: Scan, rows: str) -> bool:
    texts = [f"coalesce(sum(strlen({slot(p)})), 0)" for p, each in enumerate(scan.fields) if each.native == "VARCHAR"]
    sql = f"SELECT count(*), {' + '.join(texts) or '0'} FROM ({rows}) AS shown"
    count, text = connection.execute(sql).fetchone()
    return bool(count * len(scan.fields) <= MOST_CELLS and text <= MOST_TEXT)
