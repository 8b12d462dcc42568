"""CSV files: how they are written, what their columns are, and which lines do not fit.

The whole file is checked once, when it is attached: a question asked later cannot stumble over a line, and what was
inferred holds for every row. All fields are read as text, and types are read from the text by our own strict rules
(`scan`): as declared, or the narrowest that every value of the file fits. The first rows say which types are possible
at all, and one read of the whole file says which of those hold, so that the answer never rests on a sample. Refusals
name lines, never what stands in them."""

from __future__ import annotations

import csv
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from deniable.engines.base import Field, normalize_names, render_held, tell_misfits
from deniable.engines.duckdb import scan
from deniable.engines.duckdb.connection import Limits, find_probe, literal, literals, open_probe, translate_errors
from deniable.engines.duckdb.scan import Scan, collect_declared_types, slot, slots
from deniable.engines.sources import Files, as_utf8, refuse_encoding
from deniable.errors import DataError, Place, pluralize
from deniable.policy.schema import THOUSANDS, BadRows, ColumnType, CsvDialect, DateOrder, TableSchema

# ruff: noqa: S608  (statements here are made of our own words, quoted names and quoted paths; no user text)


SNIFFED = (4_096, 20_480)
"""From so many first lines the way a file is written is found out: few are soon read, and more are if lines misfit."""


def scan_csv(files: Files, schema: TableSchema | None, dialect: CsvDialect, limits: Limits) -> Scan:
    """A Scan of CSV files of one header, checked from the first line to the last."""
    paths = tuple(as_utf8(path, dialect.encoding, limits.scratch) for path in files.paths)
    for lines in SNIFFED:
        with open_probe(limits) as connection, translate_errors(files.title):
            layout = _find_layout(connection, paths, dialect, schema, files.title, lines)
            declared = collect_declared_types(layout.names, schema, files.title)
            whole = layout.relation(f", store_rejects = true, rejects_limit = {REMEMBERED_LINES}")
            held = scan.hold_text(find_probe(limits), connection, layout.paths, whole, len(layout.names))
            found = infer_types(connection, layout, declared, whole, held)
            if lines < SNIFFED[-1] and _read_rejects(connection):
                continue
            notes = check_lines(connection, layout, found.unfit, declared, dialect.bad_rows)
            break
    return _build_scan(layout, found.types, declared, dialect.bad_rows, notes, held)


def _build_scan(
    layout: Layout,
    chosen: tuple[ColumnType, ...],
    declared: dict[str, ColumnType],
    bad_rows: BadRows,
    notes: tuple[str, ...],
    held: scan.Held | None,
) -> Scan:
    fields = tuple(Field(name, type, scan.NATIVE[type]) for name, type in zip(layout.names, chosen, strict=True))
    expressions = tuple(
        scan.render_text(text, field.type) if field.name in declared else _cast_verified(text, field.type)
        for field, text in zip(fields, (layout.text(p, f.type) for p, f in enumerate(fields)), strict=True)
    )
    relation = layout.relation(", ignore_errors = true" if bad_rows is BadRows.SKIP else "")
    rounded = {
        field.name: scan.render_rounded(layout.text(p, field.type), expressions[p])
        for p, field in enumerate(fields)
        if field.type is ColumnType.DECIMAL
    }
    return Scan(relation, fields, expressions, layout.paths, notes=notes, plain=True, held=held, rounded=rounded)


def _cast_verified(column: str, type: ColumnType) -> str:
    # Every value was seen to match, so a plain total cast does.
    return column if type is ColumnType.TEXT else f"TRY_CAST({column} AS {scan.NATIVE[type]})"


def _find_layout(
    connection: Any, paths: tuple[Path, ...], dialect: CsvDialect, schema: TableSchema | None, title: str, lines: int
) -> Layout:
    if paths[0].stat().st_size == 0:
        raise DataError(f"{title} is empty: it has no header line", remedy="Write the header, or leave the file out")
    _refuse_separator_line(paths)
    delimiter, quoting, escape, sniffed = _sniff(connection, paths[0], dialect, title, lines)
    first = _read_first_record(paths[0], delimiter, quoting)
    if not first:
        raise DataError(f"{title} begins with an empty line: it has no header", remedy="Write the header on top")
    header = (
        dialect.header
        if dialect.header is not None
        else _has_header(first, sniffed or _has_names_alone(paths[0], first), schema, title)
    )
    names = normalize_names(first if header else [""] * len(first))
    if header:
        _require_same_header(paths, delimiter, quoting, first)
    return Layout(paths, delimiter, quoting, escape, header, names, dialect)


SEPARATOR_LINE = re.compile(rb"(\xef\xbb\xbf)?[\"']?sep=[^\r\n]?[\"']?[\r\n]", re.IGNORECASE)


def _refuse_separator_line(paths: tuple[Path, ...]) -> None:
    """Refuse the line by which Excel is told the delimiter: it is no header, and the columns would be lost."""
    for path in paths:
        with path.open("rb") as file:
            if SEPARATOR_LINE.match(file.read(16)):
                raise DataError(
                    f"the first line of '{path.name}' tells Excel the delimiter (sep=), and names no columns",
                    remedy="Remove that line, so that the file begins with the names of columns",
                    place=Place(path.name, 1),
                )


def _sniff(connection: Any, path: Path, dialect: CsvDialect, title: str, lines: int) -> tuple[str, str, str, bool]:
    given = f", sample_size = {lines}"
    known = {"delim": dialect.delimiter, "quote": dialect.quote}
    if dialect.quote is None and not _shows_quotes(path, lines):  # then all quotes read alike, and one is tried
        known |= {"quote": '"', "escape": '"'}
    given += "".join(f", {option} = {literal(value)}" for option, value in known.items() if value is not None)
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


LONGEST = 1 << 20
"""Bytes of a line in which quotes are looked for; of a longer one, none is ruled out."""


def _shows_quotes(path: Path, lines: int) -> bool:
    with path.open("rb") as file:
        first = itertools.islice(iter(partial(file.readline, LONGEST), b""), lines)
        return any(b'"' in line or b"'" in line or len(line) == LONGEST for line in first)


def _read_first_record(path: Path, delimiter: str, quoting: str) -> list[str]:
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        try:
            several = len(delimiter) > 1
            line = file.readline().rstrip("\r\n") if several else ""
            found = line.split(delimiter) if several else next(csv.reader(file, delimiter=delimiter, quotechar=quoting))
        except StopIteration:
            return [""]
        except csv.Error:
            raise DataError(
                f"the first line of '{path.name}' is not a line of CSV", remedy="Correct it, or declare the delimiter"
            ) from None
    if any(not name.isascii() and ESCAPED.search(name) for name in found):
        raise refuse_encoding(path, 1)
    return found


ESCAPED = re.compile("[\udc80-\udcff]")
"""What stands for a byte that is not UTF-8."""


def _has_names_alone(path: Path, first: Sequence[str]) -> bool:
    """Whether a file has one line, of names: without rows beneath, `f` could be a truth value as well."""
    with path.open("rb") as file:
        file.readline()
        return all(NAME.fullmatch(name.strip()) for name in first) and not file.read(LONGEST).strip()


NAME = re.compile(r"[^\W\d]\w*")


def _has_header(first: Sequence[str], sniffed: bool, schema: TableSchema | None, title: str) -> bool:
    if schema is not None and set(normalize_names(first)) & set(schema.names):
        return True
    if sniffed:
        return True
    raise DataError(
        f"the first line of {title} looks like data rather than names of columns",
        expected="Names of columns on the first line",
        remedy="Write them there, or say csv: {header: true} or {header: false} for the table in a policy",
    )


def _require_same_header(paths: tuple[Path, ...], delimiter: str, quoting: str, first: list[str]) -> None:
    for path in paths[1:]:
        if _read_first_record(path, delimiter, quoting) != first:
            raise DataError(
                f"'{path.name}' has another header than '{paths[0].name}'",
                expected="The files of one source have the same columns in the same order",
            )


BUFFER_BYTES = 8 << 20
"""What DuckDB reads at a time, for each thread and file: its own 32 MB do not fit a memory limit of 100 MB."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The settled way in which the files of one source are written."""

    paths: tuple[Path, ...]
    delimiter: str
    quote: str
    escape: str
    header: bool
    names: tuple[str, ...]
    dialect: CsvDialect

    def relation(self, extra: str = "") -> str:
        """The table function that reads every field as text."""
        columns = ", ".join(f"{literal(slot(p))}: 'VARCHAR'" for p in range(len(self.names)))
        return (
            f"read_csv({literals(self.paths)}, auto_detect = false, columns = {{{columns}}}, header = {self.header}, "
            f"delim = {literal(self.delimiter)}, quote = {literal(self.quote)}, escape = {literal(self.escape)}, "
            f"nullstr = {literals(dict.fromkeys(('', self.dialect.null)))}, allow_quoted_nulls = false, "
            f"hive_partitioning = false, buffer_size = {BUFFER_BYTES}{extra})"
        )

    def text(self, position: int, type: ColumnType) -> str:
        """The text of a column, with numbers and dates spelled as the engine reads them."""
        return respell(slot(position), type, self.dialect)


def respell(column: str, type: ColumnType, dialect: CsvDialect) -> str:
    """The expression of a text in which numbers have a decimal point alone, and dates are in ISO 8601.

    What is spelled in another way than the dialect says fits no type afterwards: with a decimal comma 1.5 is no number.
    """
    if type in NUMBERS:
        if dialect.thousands is not None:
            thousands, decimal = re.escape(dialect.thousands), re.escape(dialect.decimal)
            grouped = f"^ *[-+]?[1-9][0-9]{{0,2}}({thousands}[0-9]{{3}})+({decimal}[0-9]+)? *$"
            alone = f"replace({column}, {literal(dialect.thousands)}, '')"
            column = f"CASE WHEN regexp_matches({column}, {literal(grouped)}) THEN {alone} ELSE {column} END"
        return f"translate({column}, ',.', '.,')" if dialect.decimal == "," else column
    if type in DATES and dialect.dates is not DateOrder.YEAR_FIRST:
        is_day_first = dialect.dates is DateOrder.DAY_FIRST
        day, month, signs = ("1", "2", "[./-]") if is_day_first else ("2", "1", "[/-]")  # with points, the day is first
        padded = f"regexp_replace({column}, '^ *([0-9]{signs})', '0\\1')"
        padded = f"regexp_replace({padded}, '^( *[0-9]{{2}}{signs})([0-9]{signs})', '\\10\\2')"
        iso = f"\\3-\\{month}-\\{day}\\4"
        return f"regexp_replace({padded}, '^ *([0-9]{{2}}){signs}([0-9]{{2}}){signs}([0-9]{{4}})([^0-9].*)?$', '{iso}')"
    return column


NUMBERS, DATES = (ColumnType.INTEGER, ColumnType.DECIMAL), (ColumnType.DATE, ColumnType.DATETIME)


def find_spelling(rows: pa.Table, pointed: Collection[str] = ()) -> tuple[dict[str, Any], tuple[str, ...]]:
    """How columns of text spell numbers and dates, if in one way alone; and what is doubtful, for people to decide.

    A spelling is a guess until somebody confirms it: `1,5` may be a list of two choices. `pointed` are columns whose
    texts can be read as decimals with a point. `1.500` is such a text, and 1,500 in other countries.
    """
    texts = {name: rows[name].drop_null().unique().to_pylist() for name in rows.column_names}
    dotted = [name for name in pointed if all(map(GROUPED_BY_POINTS, texts[name]))]
    spellings = NUMBER_SPELLINGS
    if len(dotted) < len(pointed):  # a decimal point was seen, so that commas stand before no decimals
        spellings, dotted = [each for each in NUMBER_SPELLINGS if each[0]["decimal"] == "."], []
    own = {name: values for name, values in texts.items() if name not in pointed}
    short = [name for name, values in own.items() if values and all(map(ONE_DIGIT_EACH, values))]
    sure = {name: values for name, values in own.items() if name not in short}
    numbers, unsure = _choose_spelling(sure, spellings)
    if numbers or unsure:
        numbers, unsure = _choose_spelling(own | {name: texts[name] for name in dotted}, spellings)
        dotted = []
    dates, undated = _choose_spelling(own, DATE_SPELLINGS)
    unread = [name for name, values in own.items() if _look_like_dates(values) and not _fits(values, DATE_SPELLINGS)]
    told = {
        'numbers such as 1,234 have several readings or spellings; say csv: {decimal: ","} or {thousands: ","}': unsure,
        'values such as 1,2 may be decimals (say csv: {decimal: ","}) or lists of choices (say type: text)': short,
        'numbers such as 1.234 are read with a decimal point; say csv: {thousands: "."} if it is none': dotted,
        "dates such as 03/04/2020 have two readings or spellings; say csv: {dates: day-first} or month-first": undated,
        "dates such as 31/12/24, or 31/12/2024 beside 12/31/2024, are left as texts; write them as 2024-12-31": unread,
    }
    doubts = (f"{', '.join(map(repr, names))}: {words}" for words, names in told.items() if names)
    return numbers | dates, tuple(doubts)


def list_spelled(rows: pa.Table) -> list[str]:
    """Columns of text that hold nothing but numbers or dates, in whatever spelling; digits alone may be codes."""
    texts = {name: rows[name].drop_null().unique().to_pylist() for name in rows.column_names}
    return [
        name
        for name, values in texts.items()
        if _look_like_dates(values) or (_fits(values, NUMBER_SPELLINGS) and not all(map(str.isdigit, values)))
    ]


def _look_like_dates(values: list[str]) -> bool:
    return bool(values) and all(map(LIKE_A_DATE, values))


def _fits(values: list[str], spellings: Sequence[tuple[dict[str, Any], str]]) -> list[dict[str, Any]]:
    """The spellings that all values fit; none where there are no values."""
    return [said for said, pattern in spellings if values and all(map(re.compile(pattern).fullmatch, values))]


LIKE_A_DATE = re.compile(r"[0-9]{1,4}([./-])[0-9]{1,2}\1[0-9]{1,4}([ T].*)?").fullmatch
GROUPED_BY_POINTS = re.compile(r"-?(0|[1-9][0-9]{0,2}(\.[0-9]{3})*)").fullmatch
ONE_DIGIT_EACH = re.compile("[0-9](,[0-9])?").fullmatch


def _choose_spelling(
    texts: Mapping[str, list[str]], spellings: Sequence[tuple[dict[str, Any], str]]
) -> tuple[dict[str, Any], list[str]]:
    """The spelling that fits every column which any fits; or the names of the columns, where several fit."""
    spelled = {name: fits for name, values in texts.items() if (fits := _fits(values, spellings))}
    common = [said for said, _ in spellings if spelled and all(said in fits for fits in spelled.values())]
    if (
        all(len(set(map(len, texts[name]))) == 1 and len(texts[name]) > 1 for name in spelled)
        and "decimal" in spellings[0][0]
    ):
        common = [said for said in common if any(said["decimal"] in value for name in spelled for value in texts[name])]
    if common and len({next(iter(said.values())) for said in common}) == 1:
        return common[0], []
    if common and {said.get("thousands") for said in common} == {common[0].get("thousands", "")}:  # whole numbers
        return common[-1], []
    return {}, list(spelled)


def _spell_numbers() -> list[tuple[dict[str, Any], str]]:
    """Each spelling of numbers with its pattern, the plain one first."""
    found = [({"decimal": ","}, "-?(0|[1-9][0-9]*)(,[0-9]+)?")]
    for decimal, thousands in itertools.product(",.", THOUSANDS):
        if decimal != thousands:
            grouped = f"[1-9][0-9]{{0,2}}({re.escape(thousands)}[0-9]{{3}})+"
            pattern = f"-?(0|[1-9][0-9]*|{grouped})({re.escape(decimal)}[0-9]+)?"
            found.append(({"decimal": decimal, "thousands": thousands}, pattern))
    return found


_DAY, _MONTH, _YEAR, _TIME = "(0?[1-9]|[12][0-9]|3[01])", "(0?[1-9]|1[0-2])", "[0-9]{4}", "([ T][0-9]{2}:[0-9]{2}.*)?"
NUMBER_SPELLINGS = _spell_numbers()
DATE_SPELLINGS = [
    ({"dates": DateOrder.DAY_FIRST}, rf"{_DAY}[./-]{_MONTH}[./-]{_YEAR}{_TIME}"),
    ({"dates": DateOrder.MONTH_FIRST}, rf"{_MONTH}[/-]{_DAY}[/-]{_YEAR}{_TIME}"),  # with points, the day is first
]


SAMPLE_ROWS, SAMPLE_VALUES = 1_000, 200_000
WIDE = 200
"""A statement with conditions for more columns than this costs gigabytes, and more time than the file."""
REMEMBERED_LINES = 10_000

Kinds = dict[int, tuple[ColumnType, ...]]


@dataclass(frozen=True, slots=True)
class InferredTypes:
    """The type of each column, and for declared columns how many values do not fit it (by position)."""

    types: tuple[ColumnType, ...]
    unfit: Mapping[int, int]


def infer_types(
    connection: Any, layout: Layout, declared: Mapping[str, ColumnType], whole: str, held: scan.Held | None
) -> InferredTypes:
    """Read the whole file once; lines that cannot be read are left in the connection's table of rejects.

    A small file was read already, and is held.
    """
    fixed = {p: declared[name] for p, name in enumerate(layout.names) if name in declared}
    open_to = {p: tuple(scan.INFERRED) for p in range(len(layout.names)) if p not in fixed}
    first = layout.relation(", ignore_errors = true") if held is None else held.table
    possible = _find_possible_types(connection, first, layout, open_to)
    holding, unfit = _test_types(connection, whole if held is None else held.table, layout, possible, fixed)
    chosen = fixed | {p: (*kinds, ColumnType.TEXT)[0] for p, kinds in holding.items()}
    return InferredTypes(tuple(chosen[p] for p in range(len(layout.names))), unfit)


def _find_possible_types(connection: Any, relation: str, layout: Layout, open_to: Kinds) -> Kinds:
    """The types like which a column's first values look; all of them where it begins without a value.

    Here and not in the engine, which takes longer to prepare so many patterns than to read most files. What is spelled
    in another way is left to the engine, which respells it.
    """
    if layout.dialect.spelling:
        return open_to
    width = len(layout.names)
    rows = min(SAMPLE_ROWS, max(1, SAMPLE_VALUES // width))
    sample = connection.execute(f"SELECT * FROM {relation} LIMIT {rows}").fetchall()
    columns = list(zip(*sample, strict=True)) or [()] * width
    return {p: tuple(kind for kind in kinds if _looks_like(columns[p], kind)) for p, kinds in open_to.items()}


def _looks_like(values: Iterable[str | None], kind: ColumnType) -> bool:
    matches = re.compile(scan.INFERRED[kind]).fullmatch
    return all(value is None or matches(value) for value in values)


def _test_types(
    connection: Any, relation: str, layout: Layout, open_to: Kinds, fixed: Mapping[int, ColumnType]
) -> tuple[Kinds, dict[int, int]]:
    """Of the types each column may have, those that hold; and the number of misfits in columns of a fixed type."""
    pairs = [(p, kind) for p, kinds in open_to.items() for kind in kinds]
    width, dialect = len(layout.names), layout.dialect
    unlike, misfit = partial(_render_unlike, dialect), partial(_render_misfit, dialect)
    tests = [(p, unlike, kind) for p, kind in pairs] + [(p, misfit, kind) for p, kind in fixed.items()]
    if width > WIDE:
        seen, counts = _count_long_values(connection, relation, width, tests)
    else:
        asked = [render(slot(p), kind) for p, render, kind in tests]
        seen, counts = _count_values(connection, relation, width, asked)
    misses = dict(zip(pairs, counts, strict=False))
    # A column without any value could be anything, and is text in the end.
    holding = {p: tuple(k for k in kinds if seen[p] and not misses[p, k]) for p, kinds in open_to.items()}
    unfit = {p: count for p, count in zip(fixed, counts[len(pairs) :], strict=True) if count}
    return holding, unfit


def _count_values(connection: Any, relation: str, width: int, conditions: list[str]) -> tuple[list[int], list[int]]:
    """How many values each column has, and how many rows meet each condition."""
    # Counting every column makes the reader parse every column: bytes that are not UTF-8 show only then.
    present = [f"count({slot(p)})" for p in range(width)]
    asked = [f"count(*) FILTER (WHERE {condition})" for condition in conditions]
    sql = f"SELECT {', '.join(present + asked)} FROM {relation} AS source({slots(width)})"
    # All rows are fetched, though there is one: what the reader rejects is stored only when the result has ended.
    (row,) = connection.execute(sql).fetchall()
    return list(row[:width]), list(row[width:])


def _count_long_values(
    connection: Any,
    relation: str,
    width: int,
    tests: Sequence[tuple[int, Callable[[str, ColumnType], str], ColumnType]],
) -> tuple[list[int], list[int]]:
    """The same counts from one long column of all values: each condition is compiled once, not for each column."""
    distinct = list(dict.fromkeys((render, kind) for _, render, kind in tests))
    asked = ["count(v)", *(f"count(*) FILTER (WHERE {render('v', kind)})" for render, kind in distinct)]
    held = (
        f"SELECT unnest(range({width})) AS p, unnest([{slots(width)}]) AS v FROM {relation} AS source({slots(width)})"
    )
    sql = f"SELECT p, {', '.join(asked)} FROM ({held}) GROUP BY p"
    found = {row[0]: row[1:] for row in connection.execute(sql).fetchall()}
    nothing = (0,) * len(asked)  # a file without rows
    place = {test: number for number, test in enumerate(distinct, start=1)}
    counts = [found.get(p, nothing)[place[render, kind]] for p, render, kind in tests]
    return [found.get(p, nothing)[0] for p in range(width)], counts


def _render_misfit(dialect: CsvDialect, column: str, kind: ColumnType) -> str:
    text = respell(column, kind, dialect)
    return "false" if kind is ColumnType.TEXT else scan.render_misfit(text, "VARCHAR", kind)


def _render_unlike(dialect: CsvDialect, column: str, kind: ColumnType) -> str:
    column = respell(column, kind, dialect)
    like = f"regexp_matches({column}, {literal(scan.INFERRED[kind])})"
    held = render_held(f"TRY_CAST({column} AS {scan.NATIVE[kind]})", kind)
    return f"{column} IS NOT NULL AND NOT ({like} AND {held})"


SHOWN = 10
UNCLOSED = "UNCLOSED"
_REJECTIONS = {
    UNCLOSED: "a quote that is not closed",
    "MISSING COLUMNS": "too few fields",
    "TOO MANY COLUMNS": "too many fields",
    "UNQUOTED VALUE": "a quote that is not closed or stands inside a field",
    "LINE SIZE OVER MAXIMUM": "a line that is too long",
    "INVALID ENCODING": "bytes that are not UTF-8",
    "INVALID STATE": "quotes that do not match",
}
_SPLIT = (
    'Put values that contain the delimiter in quotes, name another delimiter, as csv: {delimiter: ";"}, or leave the '
    "lines out: csv: {bad_rows: skip}"
)


def check_lines(
    connection: Any, layout: Layout, unfit: Mapping[int, int], declared: dict[str, ColumnType], bad_rows: BadRows
) -> tuple[str, ...]:
    """After a checked read: refuse what does not fit, or say in notes what was left out and read as null."""
    rejects = _read_rejects(connection)
    for path, kind, where in rejects:
        if kind == "INVALID ENCODING":
            raise refuse_encoding(Path(path), _line_at(Path(path), where))
    if bad_rows is BadRows.REFUSE or any(kind == UNCLOSED for _, kind, _ in rejects):
        # A quote that is never closed takes everything after it into one field: that is no line to leave out.
        _refuse_lines([each for each in rejects if bad_rows is BadRows.REFUSE or each[1] == UNCLOSED])
    if bad_rows is BadRows.REFUSE:
        _refuse_values(connection, layout, unfit, declared)
    return _write_notes(rejects, layout, unfit)


def _read_rejects(connection: Any) -> list[tuple[str, str, int]]:
    sql = (
        "SELECT s.file_path, CASE WHEN contains(lower(e.error_message), 'unterminated quote') THEN 'UNCLOSED' ELSE "
        "CAST(e.error_type AS VARCHAR) END AS kind, min(e.line_byte_position) FROM reject_errors e "
        "JOIN reject_scans s USING (scan_id, file_id) GROUP BY s.file_path, e.line, kind ORDER BY ALL"
    )
    return [(path, str(kind), int(where or 0)) for path, kind, where in connection.execute(sql).fetchall()]


def _refuse_lines(rejects: list[tuple[str, str, int]]) -> None:
    if not rejects:
        return
    path, kind, _ = rejects[0]
    found = [_line_at(Path(file), position) for file, _, position in rejects[:SHOWN] if file == path]
    others = len(rejects) - len(found)
    raise DataError(
        f"{pluralize(len(rejects), 'line')} of '{Path(path).name}' cannot be read: "
        f"{_REJECTIONS.get(kind, 'not a line of this file')} at line {_join_numbers(found)}"
        + (f" and {others} more" if others else ""),
        remedy=_SPLIT if kind == "TOO MANY COLUMNS" else "Correct the lines, or leave them out: csv: {bad_rows: skip}",
        place=Place(Path(path).name, found[0]),
        count=len(rejects),
    )


def _refuse_values(connection: Any, layout: Layout, unfit: Mapping[int, int], declared: dict[str, ColumnType]) -> None:
    for position, count in unfit.items():
        name = layout.names[position]
        path, found = _find_misfit_lines(connection, layout, position, declared[name])
        raise DataError(
            tell_misfits(count, name, f"'{path.name}'", declared[name])
            + f": at line {_join_numbers(found)}"
            + (" and more" if count > len(found) else ""),
            remedy="Correct the file or the type in the policy, or read them as null: csv: {bad_rows: skip}"
            + _SPELLINGS.get(declared[name], ""),
            place=Place(path.name, found[0]),
            column=name,
            count=count,
        )


_SPELLINGS = dict.fromkeys(NUMBERS, '. Numbers such as 12,50 need csv: {decimal: ","}') | dict.fromkeys(
    DATES, ". Dates such as 31.12.2024 need csv: {dates: day-first}"
)


def _find_misfit_lines(connection: Any, layout: Layout, position: int, type: ColumnType) -> tuple[Path, list[int]]:
    """The lines of the first misfits: the engine knows record numbers, and a record may span lines."""
    column = f"c{position}"
    for path in layout.paths:
        numbered = f"SELECT {column}, row_number() OVER () AS record FROM {replace(layout, paths=(path,)).relation()}"
        unfit = _render_misfit(layout.dialect, column, type)
        sql = f"SELECT record FROM ({numbered}) WHERE {unfit} ORDER BY record LIMIT {SHOWN}"
        records = [row[0] + layout.header for row in connection.execute(sql).fetchall()]
        if records:
            return path, _find_record_lines(path, records, layout)
    return layout.paths[0], [1]


def _find_record_lines(path: Path, records: list[int], layout: Layout) -> list[int]:
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


def _write_notes(rejects: list[tuple[str, str, int]], layout: Layout, unfit: Mapping[int, int]) -> tuple[str, ...]:
    by_file: dict[str, list[int]] = defaultdict(list)
    for path, _, where in rejects:
        by_file[path].append(where)
    left_out = [
        f"{pluralize(len(places), 'line')} of '{Path(path).name}' left out: "
        f"line {_join_numbers([_line_at(Path(path), place) for place in places[:SHOWN]])}"
        + (" and more" if len(places) > SHOWN else "")
        for path, places in by_file.items()
    ]
    nulled = [f"{pluralize(n, 'value')} of column '{layout.names[p]}' read as null" for p, n in unfit.items()]
    return (*left_out, *nulled)


def _join_numbers(numbers: list[int]) -> str:
    return ", ".join(str(number) for number in numbers)
