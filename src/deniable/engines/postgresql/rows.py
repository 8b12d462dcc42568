"""Rows between a database and Arrow: those that a statement gives, those that it is given, those of a release."""

# ruff: noqa: S608  (statements here are made of our own words, quoted names and quoted literals; no user text)

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from deniable.engines.base import quote
from deniable.engines.postgresql.connection import connect, translate_errors
from deniable.engines.postgresql.tables import Located, cut_name, locate_table
from deniable.engines.remote import name_arrow_type
from deniable.errors import DataError


def list_rows(rows: pa.Table, values: list[Any]) -> str:
    """Rows in memory as something to select from: one array for each column."""
    arrays, names = [], []
    for place, (field, column) in enumerate(zip(rows.schema, rows.columns, strict=True)):
        kind = name_arrow_type(field.type)
        values.append(column.to_pylist())
        arrays.append(f"CAST(${len(values)} AS {ARRAYS[kind]}[])")
        collated = ' COLLATE "C"' if kind == "VARCHAR" else ""
        names.append((f'"#{place}"', f'"#{place}"{collated} AS {cut_name(field.name)}'))
    listed = ", ".join(name for name, _ in names)
    return f"SELECT {', '.join(shown for _, shown in names)} FROM unnest({', '.join(arrays)}) AS f({listed})"


ARRAYS = {
    "BIGINT": "bigint",
    "DOUBLE": "double precision",
    "VARCHAR": "text",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "HUGEINT": "numeric",
}


_BY_OID = {
    16: pa.bool_(),
    20: pa.int64(),
    21: pa.int64(),
    23: pa.int64(),
    700: pa.float64(),
    701: pa.float64(),
    1082: pa.date32(),
    1114: pa.timestamp("us"),
    1184: pa.timestamp("us"),
}


NUMERIC = 1700


def read_types(description: Sequence[Any] | None, known: Sequence[str]) -> list[pa.DataType | None]:
    """The Arrow type of each column; None for a number of which only its values tell whether it is whole."""
    types: list[pa.DataType | None] = []
    for place, column in enumerate(description or ()):
        if column.type_code == NUMERIC:
            word = known[place] if place < len(known) else ""
            types.append(pa.float64() if word == "DOUBLE" else None)
        else:
            types.append(_BY_OID.get(column.type_code, pa.string()))
    return types


def build_table(rows: Sequence[Sequence[Any]], types: Sequence[pa.DataType | None], names: Sequence[str]) -> pa.Table:
    """Rows as the database gave them, as an Arrow table."""
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in types]
    arrays = [_build_array(column, kind) for column, kind in zip(columns, types, strict=True)]
    return pa.table(arrays, names=list(names))


def build_batch(
    rows: Sequence[Sequence[Any]], types: Sequence[pa.DataType | None], names: Sequence[str]
) -> pa.RecordBatch:
    """Rows as the database gave them, as one batch."""
    built = build_table(rows, types, names)
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in built.columns], names=built.schema.names)


def _build_array(column: Sequence[Any], kind: pa.DataType | None) -> pa.Array:
    if kind is None:
        whole = all(each is None or each == each.to_integral_value() for each in column)
        return pa.array([None if v is None else Decimal(int(v)) if whole else float(v) for v in column],
                        pa.decimal128(38, 0) if whole else pa.float64())  # fmt: skip
    if kind == pa.float64():
        column = [None if each is None else float(each) for each in column]
    if kind == pa.string():
        column = [each if each is None or isinstance(each, str) else str(each) for each in column]
    return pa.array(column, kind)


PG_TYPES: tuple[tuple[Callable[[pa.DataType], bool], str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_integer, "bigint"),
    (pa.types.is_floating, "double precision"),
    (pa.types.is_decimal, "numeric"),
    (pa.types.is_date, "date"),
    (pa.types.is_timestamp, "timestamp"),
)


def write_table(
    batches: Iterable[pa.RecordBatch] | pa.Table, target: str, progress: Callable[[int], None] | None = None
) -> int:
    """Write rows to a new table of its own by COPY, in one transaction: whole or not at all. Says how many."""
    located = locate_table(target)
    given = batches.to_batches() if isinstance(batches, pa.Table) else batches
    waiting = iter(given)
    first = batches.schema if isinstance(batches, pa.Table) else None
    held = next(waiting, None)
    schema = first if first is not None else held.schema if held is not None else None
    if schema is None:
        raise DataError("there is no batch to write, so the columns are not known", remedy="Pass a pyarrow Table")
    connection, rows = connect(located.address, read_only=False), 0
    try:
        with translate_errors(located.title):
            _create_table(connection, located, schema)
            with connection.cursor().copy(f"COPY {located.relation} FROM STDIN") as copy:
                while held is not None:
                    for row in zip(*(column.to_pylist() for column in held.columns), strict=True):
                        copy.write_row(row)
                    rows += held.num_rows
                    if progress:
                        progress(rows)
                    held = next(waiting, None)
            connection.commit()
    finally:
        connection.close()
    return rows


def _create_table(connection: Any, located: Located, schema: pa.Schema) -> None:
    from psycopg import errors

    columns = ", ".join(
        f"{quote(field.name)} {next((name for fits, name in PG_TYPES if fits(field.type)), 'text')}" for field in schema
    )
    try:
        connection.execute(f"CREATE TABLE {located.relation} ({columns})")
    except errors.DuplicateTable:
        raise DataError(
            f"there is a table {located.title} already", expected="A new table", remedy="Choose another name"
        ) from None
