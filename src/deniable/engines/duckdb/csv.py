"""CSV files: how they are written, what their columns are, and which lines do not fit.

The whole file is checked once, when it is attached: a question asked later cannot stumble over a line, and what was
inferred holds for every row. All fields are read as text, and types are read from the text by our own strict rules
(`types`). Refusals name lines, never what stands in them.
"""

# ruff: noqa: S608  (statements here are made of our own words, quoted names and quoted paths; no user text)

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deniable.engines.base import Field
from deniable.engines.duckdb import lines, types
from deniable.engines.duckdb.connection import Limits, literal, probe, refusals
from deniable.engines.duckdb.inference import infer
from deniable.engines.duckdb.layout import Layout
from deniable.engines.duckdb.scan import Scan, declared_types, slot
from deniable.engines.encoding import as_utf8
from deniable.engines.naming import column_names
from deniable.engines.sources import Files
from deniable.errors import DataError
from deniable.policy.dialect import BadRows, CsvDialect
from deniable.policy.schema import ColumnType, TableSchema


def scan_csv(files: Files, schema: TableSchema | None, dialect: CsvDialect, limits: Limits) -> Scan:
    """A Scan of CSV files of one header, checked from the first line to the last."""
    paths = tuple(as_utf8(path, dialect.encoding, limits.scratch) for path in files.paths)
    with probe(limits) as connection, refusals(files.title):
        layout = _layout(connection, paths, dialect, schema, files.title)
        declared = declared_types(layout.names, schema, files.title)
        found = infer(connection, layout, declared)
        notes = lines.judge(connection, layout, found.unfit, declared, dialect.bad_rows)
    return _scan(layout, found.types, declared, dialect.bad_rows, notes)


def _scan(
    layout: Layout,
    chosen: tuple[ColumnType, ...],
    declared: dict[str, ColumnType],
    bad_rows: BadRows,
    notes: tuple[str, ...],
) -> Scan:
    fields = tuple(Field(name, type, types.NATIVE[type]) for name, type in zip(layout.names, chosen, strict=True))
    expressions = tuple(
        types.parsed(slot(p), field.type) if field.name in declared else _verified(slot(p), field.type)
        for p, field in enumerate(fields)
    )
    relation = layout.relation(", ignore_errors = true" if bad_rows is BadRows.SKIP else "")
    return Scan(relation, fields, expressions, paths=layout.paths, notes=notes)


def _verified(column: str, type: ColumnType) -> str:
    # Every value was seen to match, so a plain total cast does.
    return column if type is ColumnType.TEXT else f"TRY_CAST({column} AS {types.NATIVE[type]})"


def _layout(
    connection: Any, paths: tuple[Path, ...], dialect: CsvDialect, schema: TableSchema | None, title: str
) -> Layout:
    if paths[0].stat().st_size == 0:
        raise DataError(f"{title} is empty: it has not even a header", remedy="Write the header, or leave the file out")
    delimiter, quoting, escape, sniffed = _sniff(connection, paths[0], dialect, title)
    first = _first_record(paths[0], delimiter, quoting)
    header = dialect.header if dialect.header is not None else _has_header(first, sniffed, schema, title)
    names = column_names(first if header else [""] * len(first))
    if header:
        _same_header(paths, delimiter, quoting, first)
    return Layout(paths, delimiter, quoting, escape, header, names, dialect.null)


def _sniff(connection: Any, path: Path, dialect: CsvDialect, title: str) -> tuple[str, str, str, bool]:
    known = {"delim": dialect.delimiter, "quote": dialect.quote}
    given = "".join(f", {option} = {literal(value)}" for option, value in known.items() if value is not None)
    sql = f"SELECT Delimiter, Quote, Escape, HasHeader FROM sniff_csv({literal(path)}, ignore_errors = true{given})"
    try:
        delimiter, quoting, escape, header = connection.execute(sql).fetchone()
    except Exception:
        if dialect.delimiter is None:
            raise DataError(
                f"how {title} is written could not be found out", remedy="Declare its delimiter and its quote"
            ) from None
        delimiter, quoting, escape, header = dialect.delimiter, dialect.quote or '"', "", True
    quoting = dialect.quote or (quoting if len(quoting) == 1 else '"')
    # Without an escape in sight, a quote inside quotes is doubled (RFC 4180).
    return dialect.delimiter or delimiter, quoting, escape if len(escape) == 1 else quoting, header


def _first_record(path: Path, delimiter: str, quoting: str) -> list[str]:
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        if len(delimiter) > 1:
            return file.readline().rstrip("\r\n").split(delimiter)
        try:
            return next(csv.reader(file, delimiter=delimiter, quotechar=quoting), [""])
        except csv.Error:
            raise DataError(f"the first line of '{path.name}' is not a line of CSV") from None


def _has_header(first: Sequence[str], sniffed: bool, schema: TableSchema | None, title: str) -> bool:
    if schema is not None and set(column_names(first)) & set(schema.names):
        return True
    if sniffed:
        return True
    raise DataError(
        f"the first line of {title} looks like data rather than names of columns",
        remedy="Say whether the file has a header: header true or false",
    )


def _same_header(paths: tuple[Path, ...], delimiter: str, quoting: str, first: list[str]) -> None:
    for path in paths[1:]:
        if _first_record(path, delimiter, quoting) != first:
            raise DataError(
                f"'{path.name}' has another header than '{paths[0].name}'",
                expected="The files of one source have the same columns in the same order",
            )
