"""Which lines of a CSV file do not fit: by their numbers, never by their content."""

# ruff: noqa: S608  (statements here are made of our own words, quoted names and quoted paths; no user text)

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from deniable.engines.duckdb import types
from deniable.engines.duckdb.layout import Layout
from deniable.engines.encoding import refuse_encoding
from deniable.errors import DataError, Place
from deniable.policy.dialect import BadRows
from deniable.policy.schema import ColumnType

SHOWN = 10
_WORDS = {
    "MISSING COLUMNS": "too few fields",
    "TOO MANY COLUMNS": "too many fields",
    "UNQUOTED VALUE": "a quote that is not closed or stands inside a field",
    "LINE SIZE OVER MAXIMUM": "a line that is too long",
    "INVALID ENCODING": "bytes that are not UTF-8",
    "INVALID STATE": "quotes that do not match",
}


def judge(
    connection: Any, layout: Layout, unfit: Mapping[int, int], declared: dict[str, ColumnType], bad_rows: BadRows
) -> tuple[str, ...]:
    """After a checked read: refuse what does not fit, or say in notes what was left out and read as null."""
    rejects = _rejects(connection)
    for path, kind, where in rejects:
        if kind == "INVALID ENCODING":
            raise refuse_encoding(Path(path), _line_at(Path(path), where))
    if bad_rows is BadRows.REFUSE:
        _refuse_lines(rejects)
        _refuse_values(connection, layout, unfit, declared)
    return _notes(rejects, layout, unfit)


def _rejects(connection: Any) -> list[tuple[str, str, int]]:
    sql = (
        "SELECT s.file_path, e.error_type, min(e.line_byte_position) FROM reject_errors e "
        "JOIN reject_scans s USING (scan_id, file_id) GROUP BY s.file_path, e.line, e.error_type ORDER BY ALL"
    )
    return [(path, str(kind), int(where or 0)) for path, kind, where in connection.execute(sql).fetchall()]


def _refuse_lines(rejects: list[tuple[str, str, int]]) -> None:
    if not rejects:
        return
    path, kind, _ = rejects[0]
    found = [_line_at(Path(file), position) for file, _, position in rejects[:SHOWN] if file == path]
    others = len(rejects) - len(found)
    raise DataError(
        f"{_plural(len(rejects), 'line')} of '{Path(path).name}' cannot be read: "
        f"{_WORDS.get(kind, 'not a line of this file')} at line {_listed(found)}"
        + (f" and {others} more" if others else ""),
        remedy="Correct the lines, or leave them out with bad rows: skip",
        place=Place(Path(path).name, found[0]),
        count=len(rejects),
    )


def _refuse_values(connection: Any, layout: Layout, unfit: Mapping[int, int], declared: dict[str, ColumnType]) -> None:
    for position, count in unfit.items():
        name = layout.names[position]
        path, found = _lines_of_misfits(connection, layout, position, declared[name])
        raise DataError(
            f"{_plural(count, 'value')} of column '{name}' of '{path.name}' are not of the declared type "
            f"'{declared[name]}': at line {_listed(found)}" + (" and more" if count > len(found) else ""),
            remedy="Correct the file or the type in the policy, or read them as null with bad rows: skip",
            place=Place(path.name, found[0]),
            column=name,
            count=count,
        )


def _lines_of_misfits(connection: Any, layout: Layout, position: int, type: ColumnType) -> tuple[Path, list[int]]:
    """The lines of the first misfits: the engine knows record numbers, and a record may span lines."""
    column = f"c{position}"
    for path in layout.paths:
        numbered = f"SELECT {column}, row_number() OVER () AS record FROM {replace(layout, paths=(path,)).relation()}"
        unfit = types.misfits(column, "VARCHAR", type)
        sql = f"SELECT record FROM ({numbered}) WHERE {unfit} ORDER BY record LIMIT {SHOWN}"
        records = [row[0] + layout.header for row in connection.execute(sql).fetchall()]
        if records:
            return path, _lines_of_records(path, records, layout)
    return layout.paths[0], [1]


def _lines_of_records(path: Path, records: list[int], layout: Layout) -> list[int]:
    if len(layout.delimiter) > 1:
        return records
    wanted, found, start = set(records), [], 1
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
        reader = csv.reader(file, delimiter=layout.delimiter, quotechar=layout.quote)
        number = 0
        for record in reader:
            number += bool(record)
            if record and number in wanted:
                found.append(start)
                if number == records[-1]:
                    break
            start = reader.line_num + 1
    return found or records


def _line_at(path: Path, position: int) -> int:
    """The number of the line that begins at (or holds) a byte position."""
    line = 1
    with path.open("rb") as file:
        while position > 0 and (block := file.read(min(position, 1 << 20))):
            line += block.count(b"\n")
            position -= len(block)
    return line


def _notes(rejects: list[tuple[str, str, int]], layout: Layout, unfit: Mapping[int, int]) -> tuple[str, ...]:
    by_file: dict[str, list[int]] = defaultdict(list)
    for path, _, where in rejects:
        by_file[path].append(where)
    left_out = [
        f"{_plural(len(places), 'line')} of '{Path(path).name}' left out: "
        f"line {_listed([_line_at(Path(path), place) for place in places[:SHOWN]])}"
        + (" and more" if len(places) > SHOWN else "")
        for path, places in by_file.items()
    ]
    nulled = [f"{_plural(n, 'value')} of column '{layout.names[p]}' read as null" for p, n in unfit.items()]
    return (*left_out, *nulled)


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _listed(numbers: list[int]) -> str:
    return ", ".join(str(number) for number in numbers)
