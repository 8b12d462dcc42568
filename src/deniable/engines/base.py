"""What an engine is: the protocol, its fields and restrictions, and how columns are named and quoted.

An engine holds declared sources and nothing else. Names are made safe and unique here, once, for every engine."""

# ruff: noqa: S608  (statements here are made of our own words and of quoted names)

from __future__ import annotations

import hashlib
import math
import re
import struct
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar, runtime_checkable

from deniable.errors import DataError, Stopped, nearest, pluralize
from deniable.policy.schema import ColumnType, CsvDialect, TableSchema, normalize_spelling

if TYPE_CHECKING:
    import pyarrow as pa


Source = Any
"""A path, folder or glob (as text or Path), a pandas or Polars frame, a pyarrow Table or RecordBatchReader."""

Parameters = Sequence[Any] | Mapping[str, Any]
"""Values for `?` or `$1` (a sequence), or for `$name` (a mapping)."""

BATCH_ROWS = 65_536
Found = TypeVar("Found")


def is_in_database(source: object) -> bool:
    """Whether a source is a table of a PostgreSQL database, which is read where it is.

    >>> is_in_database("postgresql://ana@db/clinic#care.visits"), is_in_database("visits.csv")
    (True, False)
    """
    return isinstance(source, str) and source.startswith("postgresql:")


def is_in_spark(source: object) -> bool:
    """Whether a source is a table or a folder that Spark reads.

    >>> is_in_spark("spark:care.visits"), is_in_spark("visits.csv")
    (True, False)
    """
    return isinstance(source, str) and source.startswith("spark:")


def is_by_adbc(source: object) -> bool:
    """Whether a source is a table that is reached by an ADBC driver.

    >>> is_by_adbc("trino+adbc://clinic#care.visits"), is_by_adbc("visits.csv")
    (True, False)
    """
    return isinstance(source, str) and "+adbc:" in source.partition("/")[0]


def is_elsewhere(source: object) -> bool:
    """Whether a source stays where it is, and questions go there."""
    return is_in_database(source) or is_in_spark(source) or is_by_adbc(source)


@dataclass(frozen=True, slots=True)
class Field:
    """One column of an attached source: its name, its type in the words of a policy, and the engine's own word."""

    name: str
    type: ColumnType
    native: str
    number: bool = field(default=False, compare=False)
    """Whether the source holds numbers, where they are read as another type."""


NUMBERS = (ColumnType.INTEGER, ColumnType.DECIMAL)


@runtime_checkable
class Engine(Protocol):
    """Reads declared sources, runs SQL of our own making, writes files."""

    dialect: ClassVar[str]
    """The name by which the SQL renderer knows this engine's language."""

    def attach(
        self, name: str, source: Source, schema: TableSchema | None = None, *, csv: CsvDialect | None = None
    ) -> None:
        """Declare a source under a name; with a schema its columns are read as the policy types them."""

    def reach(self, *names: str) -> None:
        """Refuse sources that can be seen to be gone since they were attached; no row is read."""

    def restrict(self, name: str, *restrictions: Restriction) -> None:
        """Show only some rows of a source from now on; another call replaces the restrictions before."""

    def describe(self, name: str) -> tuple[Field, ...]:
        """The columns of a source, in its order."""

    def notes(self, name: str) -> tuple[str, ...]:
        """What was left out or read as null when the source was attached with bad rows: skip."""

    def count(self, name: str) -> int:
        """How many rows a source has."""

    def run(
        self,
        sql: str,
        parameters: Parameters | None = None,
        *,
        seconds: float | None = None,
        frames: Mapping[str, pa.Table] | None = None,
        one_row: bool = False,
    ) -> pa.Table:
        """Run one reading statement of our own making; refuse with Stopped when it takes longer than `seconds`.

        `frames` are rows in memory (public ones, such as noisy answers) that this statement alone can read by name.
        `one_row` tells that the statement gives one row of 64-bit integers, which can be had at less cost.
        """

    def read_whole(self, names: Collection[str], read: Callable[[], Found]) -> Found:
        """What several statements of this thread read, of files as they are at one time.

        Where one is changed meanwhile, nothing of what was read is used, and all of it is read again, or refused.
        """

    def stream(
        self, sql_or_table: str, batch_rows: int = BATCH_ROWS, parameters: Parameters | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a statement, or of an attached source by its name, in batches of at most `batch_rows`."""

    def write(
        self,
        batches: Iterable[pa.RecordBatch] | pa.Table,
        path: str | Path,
        format: str | None = None,
        *,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Write rows as 'csv', 'parquet' or 'arrow', whole or not at all, and say how many; `progress` gets counts."""

    def data_version(self, name: str) -> str:
        """A fingerprint of a source's content: equal content read alike has one version, a change has another."""

    def cancel(self, thread: int | None = None) -> None:
        """Stop whatever runs, or what one thread runs, from any thread: it ends with Stopped."""

    def close(self) -> None:
        """Let go of all sources and remove all temporary files."""

    def __enter__(self) -> Self:
        """Enter a block that closes the engine at its end."""

    def __exit__(self, *exc: object) -> None:
        """Close the engine."""


def refuse_late() -> Stopped:
    """The refusal of a statement that was taken back, or whose time is over."""
    return Stopped("the work was stopped before it ended", remedy="Ask for less, or allow more time")


FIRST_DAY, LAST_DAY = "0001-01-01", "9999-12-31"
LAST_MOMENT = f"{LAST_DAY} 23:59:59.999999"
HELD_DATES = {
    ColumnType.DATE: f"BETWEEN DATE '{FIRST_DAY}' AND DATE '{LAST_DAY}'",
    ColumnType.DATETIME: f"BETWEEN TIMESTAMP '{FIRST_DAY}' AND TIMESTAMP '{LAST_MOMENT}'",
}
"""The dates and times that an answer can hold."""


def render_held(value: str, kind: ColumnType) -> str:
    """The condition under which there is a value, and one that an answer can hold."""
    return f"coalesce({value} {HELD_DATES[kind]}, false)" if kind in HELD_DATES else f"{value} IS NOT NULL"


def tell_misfits(count: int, name: str, title: str, kind: str) -> str:
    """How many values of a column are not of the type that is declared.

    >>> tell_misfits(1, "age", "'people.csv'", "integer")
    "1 value of column 'age' of 'people.csv' is not of the declared type 'integer'"
    """
    verb = "is" if count == 1 else "are"
    return f"{pluralize(count, 'value')} of column '{name}' of {title} {verb} not of the declared type '{kind}'"


def refuse_values(title: str) -> DataError:
    """The refusal of a table elsewhere whose values do not fit as they did when it was opened."""
    return DataError(
        f"{title} could not be read",
        expected="Values that fit their types",
        remedy="Repair the table, or start anew",
    )


def refuse_changed(title: str) -> DataError:
    """The refusal of a table elsewhere that is another one than was opened."""
    return DataError(
        f"{title} has lost columns since it was opened, or has others of their names",
        expected="The columns, and their types, that it had then",
        remedy="Start anew",
    )


def quote(name: str) -> str:
    """A name as a delimited SQL identifier.

    >>> quote('a "b"')
    '"a ""b\"""'
    """
    return '"' + name.replace('"', '""') + '"'


SPELLING = "deniable_spelling"
"""The engine's name of `normalize_spelling`."""
PLAIN = "[!-~]*"
"""Texts that differ from their spelling by case alone."""


def spell_plainly(text: str) -> str:
    """The SQL of a text in the form in which its spellings are equal; most are plain, and stay in the engine."""
    return f"CASE WHEN {text} SIMILAR TO '{PLAIN}' THEN lower({text}) ELSE {SPELLING}({text}) END"


def tell_apart(engine: Engine, name: str, column: str) -> str:
    """The SQL by which the people of a source are told apart, in whatever spelling; an empty text is nobody."""
    native, text = next(f.native for f in engine.describe(name) if f.name == column), quote(column)
    if native != "VARCHAR":
        return text
    plain = engine.run(f"SELECT bool_and({text} SIMILAR TO '{PLAIN}') IS NOT FALSE FROM {quote(name)}").column(0)
    return f"nullif({f'lower({text})' if plain[0].as_py() else spell_plainly(text)}, '')"


def is_away(engine: Engine, name: str) -> bool:
    """Whether the rows of a source stay elsewhere, and statements go there."""
    return name in getattr(engine, "away", ())


def hold_rows(engine: Engine, name: str, write: Callable[[str], str]) -> AbstractContextManager[str]:
    """Let an engine keep the rows of a statement about a source, where it can; gives the statement that reads them.

    `write` writes the statement, of what it reads the source as.
    """
    hold: Callable[..., AbstractContextManager[str]] | None = getattr(engine, "hold", None)
    return nullcontext(write(name)) if hold is None else hold(name, write)


def is_counted(engine: Engine, name: str) -> bool:
    """Whether of a table elsewhere only combinations of some columns are held; its other columns are null here."""
    return name in getattr(engine, "counted", ())


def refuse_inexact(engine: Engine, name: str, columns: Collection[str]) -> None:
    """Refuse values that would leave as others, or not at all, where an engine that reads files can tell."""
    refuse = getattr(engine, "refuse_inexact", None)
    if refuse is not None:
        refuse(name, columns)


PLACE = "__place"
"""The column by which rows are put into a random order."""


def read_rows(name: str, shown: str, key: str = "", whose: str | None = None) -> str:
    """The statement that reads what is shown of a source; under a key in an order that only the key tells.

    The engine sorts, which needs no memory for it, and the same key gives the same order again. `whose` is the SQL by
    which people are told apart: rows then say whose they are, as a number that takes little memory.
    """
    told = "" if whose is None else f", hash({whose}) AS {PERSON}"
    if not key:
        return f"SELECT {shown}{told} FROM {quote(name)}"
    placed = f"SELECT *, md5(concat(row_number() OVER (), '{key}')) AS {PLACE} FROM {quote(name)}"
    listed = f"* EXCLUDE ({PLACE})" if shown == "*" else shown
    return f"SELECT {listed}{told} FROM ({placed}) ORDER BY {PLACE}"


PERSON = "__person"
"""The column that tells people apart while they are counted."""


def spell_texts(texts: pa.Array) -> pa.Array:
    """Texts as `normalize_spelling` writes them; plain ones all at once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    plain = pc.fill_null(pc.match_substring_regex(texts, f"^{PLAIN}$"), True)
    if bool(pc.all(plain, min_count=0).as_py()):
        return pc.ascii_lower(texts)
    others = pa.array([normalize_spelling(text) for text in texts.filter(pc.invert(plain)).to_pylist()], texts.type)
    return pc.replace_with_mask(pc.ascii_lower(texts), pc.invert(plain), others)


@dataclass(frozen=True, slots=True)
class Listed:
    """Rows by the values of one column, written as text: kept only if listed, or left out if listed.

    A missing value is not listed. `loose` compares texts as `normalize_spelling` writes them; with `by_number`, texts
    that are numbers also as numbers (7, 007 and 7.0). Texts of a column that the source holds as numbers always are: it
    may have held whole numbers when somebody withdrew, and hold doubles now.
    """

    column: str
    values: tuple[str, ...] = field(repr=False)
    keep: bool
    loose: bool = False
    by_number: bool = False


WHOLE = " *[+-]?[0-9]+ *"
"""The texts that are compared as whole numbers: exactly."""
POINTED = " *[+-]?[0-9]+([.][0-9]*([eE][0-9][0-9]?[0-9]?)?|([.][0-9]*)?[eE][+-][0-9][0-9]?[0-9]?) *"
"""The texts that are compared as doubles, also with whole numbers: 7.0, 1e+16, as programs write them."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers among some texts: whole ones, and those with a point or an exponent."""

    whole: frozenset[int] = field(repr=False)
    pointed: frozenset[float] = field(repr=False)

    def holds(self, text: str) -> bool:
        """Whether a text is one of the numbers: a whole one exactly, others as the doubles that they are."""
        found = read_numbers([text])
        return bool(found.whole & self.whole or found.doubles & self.pointed or found.pointed & self.doubles)

    @property
    def doubles(self) -> frozenset[float]:
        """All of them as doubles: a column of doubles holds large whole numbers as others."""
        return self.pointed | {float(each) for each in self.whole}


MOST_DIGITS = 40
"""No column of whole numbers holds one with so many digits."""


def read_numbers(texts: Iterable[str]) -> Numbers:
    """The numbers among some texts, as far as columns of numbers can hold them."""
    found = [each for each in texts if len(each) <= MOST_DIGITS]
    whole = frozenset(int(each) for each in found if re.fullmatch(WHOLE, each))
    pointed = frozenset(float(each) for each in found if re.fullmatch(POINTED, each))
    return Numbers(whole, pointed - {math.inf, -math.inf})


def list_numbers(restriction: Listed, column: Field) -> Numbers:
    """The numbers that are listed of a column of texts; none where texts are not compared as numbers."""
    compared = restriction.loose and (restriction.by_number or column.number)
    return read_numbers(map(normalize_spelling, restriction.values) if compared else ())


def pick_spellings(texts: Iterable[str], restriction: Listed, column: Field) -> list[str]:
    """Of all texts of a column those that are a listed value in some spelling."""
    wanted, numbers = {normalize_spelling(value) for value in restriction.values}, list_numbers(restriction, column)
    spelled = ((text, normalize_spelling(text)) for text in texts)
    return [text for text, plain in spelled if plain in wanted or numbers.holds(plain)]


@dataclass(frozen=True, slots=True)
class Sampled:
    """A share of the units (all rows of a value of `column` together), or of the rows where there is no column.

    `salt` makes the choice secret, and the same for every reading.
    """

    share: Fraction
    column: str | None
    salt: int = field(repr=False)


Restriction = Listed | Sampled


def read_listed(kind: ColumnType, values: Iterable[str]) -> Iterator[str]:
    """Listed values as texts that are equal for equal values of a type; those that are none of the type are left out.

    >>> list(read_listed(ColumnType.INTEGER, ["007", "7.0", "7.5", "x"]))
    ['7', '7']
    """
    for value in values:
        if kind is ColumnType.INTEGER:
            with suppress(ValueError, OverflowError, ArithmeticError):
                number = Decimal(value.strip())
                if number.adjusted() < MOST_DIGITS and number == int(number):
                    yield str(int(number))
        elif kind is ColumnType.DECIMAL:
            with suppress(ValueError):
                yield repr(float(value))
        elif kind is ColumnType.BOOLEAN:
            yield value.strip().lower()
        else:
            yield value


def round_listed(restriction: Restriction, fields: Iterable[Field]) -> Restriction:
    """Values that are listed of a column in single precision, as the doubles that its own values are: 0.1 is none."""
    single = {each.name for each in fields if each.native == "FLOAT"}
    if not isinstance(restriction, Listed) or restriction.column not in single:
        return restriction
    rounded = []
    for text in read_listed(ColumnType.DECIMAL, restriction.values):
        with suppress(OverflowError):
            rounded.append(repr(struct.unpack("f", struct.pack("f", float(text)))[0]))
    return replace(restriction, values=tuple(rounded))


def write_listed(kind: ColumnType, values: Iterable[str]) -> Iterator[str]:
    """Listed values as literals of a column's type; those that are none of the type are left out."""
    for text in read_listed(kind, values):
        with suppress(ValueError):
            if kind is ColumnType.INTEGER and -(1 << 63) <= int(text) < 1 << 63:
                yield f"CAST({text} AS BIGINT)"
            elif kind is ColumnType.DECIMAL:
                yield write_value(float(text))
            elif kind is ColumnType.BOOLEAN and text in ("true", "false"):
                yield text.upper()
            elif kind in (ColumnType.DATE, ColumnType.DATETIME):
                moment = datetime.fromisoformat(text)
                yield write_value(moment.date() if kind is ColumnType.DATE else moment.replace(tzinfo=None))
            elif kind is ColumnType.TEXT:
                yield write_value(text)


PARAMETER = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|\$([A-Za-z_][A-Za-z0-9_]*|[0-9]+)""")
"""The parameters of a statement, in the first group, beside the texts and names that are none."""


def write_parameters(sql: str, parameters: Parameters | None) -> str:
    """The statement with the values of its parameters written out."""
    if parameters is None:
        return sql
    named = parameters.items() if isinstance(parameters, Mapping) else enumerate(parameters, start=1)
    known = {str(name): write_value(value) for name, value in named}
    return PARAMETER.sub(lambda found: found[0] if found[1] is None else known[found[1]], sql)


def write_value(value: Any, word: str = "") -> str:
    """A value as a literal in the language of the embedded engine, of a type if one is told."""
    match value:
        case None:
            return f"CAST(NULL AS {word or 'VARCHAR'})"
        case bool():
            return str(value).upper()
        case int():
            return f"CAST({value} AS {word})" if word else str(value)
        case float() | Decimal() if value == value and abs(value) != float("inf"):
            return f"CAST('{float(value)!r}' AS DOUBLE)" if word != "HUGEINT" else f"CAST({int(value)} AS HUGEINT)"
        case float() | Decimal():
            return "CAST('nan' AS DOUBLE)" if value != value else f"{'-' * (value < 0)}CAST('infinity' AS DOUBLE)"
        case datetime():
            return f"CAST('{value.isoformat(sep=' ')}' AS TIMESTAMP)"
        case date():
            return f"CAST('{value.isoformat()}' AS DATE)"
        case _:
            return "'" + str(value).replace("'", "''") + "'"


def hash_restrictions(restrictions: tuple[Restriction, ...]) -> list[str]:
    """Texts that differ when other rows are shown; for data versions."""
    return [hashlib.sha256(repr(_to_plain(each)).encode()).hexdigest() for each in restrictions]


def _to_plain(restriction: Restriction) -> tuple[object, ...]:
    if isinstance(restriction, Listed):
        return ("listed", restriction.column, sorted(restriction.values), restriction.keep)
    return ("sampled", str(restriction.share), restriction.column, restriction.salt)


def normalize_names(raw: Iterable[object]) -> tuple[str, ...]:
    """The names under which columns are held.

    >>> normalize_names(["id", "ID", "", " id ", None])
    ('id', 'ID_2', 'column_3', 'id_3', 'column_5')
    """
    taken: set[str] = set()
    names = []
    for position, name in enumerate(raw, start=1):
        chosen = _find_free_name(_clean_name(name) or f"column_{position}", taken)
        taken.add(chosen.casefold())
        names.append(chosen)
    return tuple(names)


def require_columns(present: Sequence[str], declared: Iterable[str], source: str) -> None:
    """Refuse when a declared column is not among those present (compared exactly)."""
    for name in declared:
        if name not in present:
            raise DataError(
                f"column '{name}' is declared, but {source} has no such column",
                expected=f"It has {_join_names(present)}",
                remedy=nearest(name, present) or "Correct the policy, or the file",
                column=name,
            )


def _clean_name(name: object) -> str:
    if name is None:
        return ""
    text = unicodedata.normalize("NFC", str(name)).lstrip("\ufeff")
    return "".join(" " if unicodedata.category(c) in ("Cc", "Cs") else c for c in text).strip()


def _find_free_name(name: str, taken: set[str]) -> str:
    candidate, number = name, 1
    while candidate.casefold() in taken:
        number += 1
        candidate = f"{name}_{number}"
    return candidate


def _join_names(names: Sequence[str], most: int = 20) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


SKETCHED_COLUMNS = 64
"""Columns by which the rows of two sources are compared."""
KEY_COLUMNS = 4
"""Columns, those with the most values, by each of which rows are known again where other columns are gone."""
Sketched = tuple[list[int], list[dict[int, list[int | None]]]]
"""Hashes of rows; and for some columns the hashes of values, each with the least hash of every other column there."""


def read_all(engine: Engine, name: str) -> None:
    """Read every value of an attached table."""
    texts = ", ".join(f"CAST({quote(field.name)} AS VARCHAR)" for field in engine.describe(name))
    engine.run(f"SELECT max(hash({texts})) AS h FROM {quote(name)}")


def sketch_rows(engine: Engine, name: str, most: int, few: int) -> Sketched:
    """The least hashes of an attached table's rows, and of values of its columns that have the most, at least `few`.

    The table is read twice: once to count values, and once for the rows of those whose hashes are certainly the least.
    """
    cells = [_hash_cell(quote(field.name), field.type) for field in engine.describe(name)[:SKETCHED_COLUMNS]]
    hashed = ", ".join(f"{cell} AS h{place}" for place, cell in enumerate(cells))
    whole = f"hash({' + '.join(f'coalesce(h{place}, 0)::HUGEINT' for place in range(len(cells)))})"
    source = f"(SELECT *, {whole} AS h FROM (SELECT {hashed} FROM {quote(name)}) AS cells) AS hashes"
    columns = [*(f"h{place}" for place in range(len(cells))), "h"]
    counted = engine.run(f"SELECT {', '.join(f'approx_count_distinct({c}) AS {c}' for c in columns)} FROM {source}")
    many = {column: int(counted[column][0].as_py()) for column in columns}
    keys = sorted((each for each in columns[:-1] if many[each] >= few), key=lambda each: -many[each])[:KEY_COLUMNS]
    least = {column: _choose_least(column, many[column], most) for column in (*keys, "h")}
    parts = [f"(SELECT 0 AS part, h AS k, {_list_nulls(columns[:-1])} FROM few WHERE {least['h']} GROUP BY h)"]
    parts += [
        f"(SELECT {place} AS part, {key} AS k, {', '.join(f'min({c}) AS {c}' for c in columns[:-1])}"
        f" FROM few WHERE {least[key]} GROUP BY {key})"
        for place, key in enumerate(keys, start=1)
    ]
    found = engine.run(
        f"WITH few AS MATERIALIZED (SELECT * FROM {source} WHERE {' OR '.join(least.values())})"
        f" SELECT * FROM ({' UNION ALL '.join(parts)}) AS parts WHERE k IS NOT NULL"
        f" QUALIFY row_number() OVER (PARTITION BY part ORDER BY k) <= {most} ORDER BY part, k"
    )
    return _read_sketch(found, [int(key[1:]) for key in keys])


def _read_sketch(found: pa.Table, keys: Sequence[int]) -> Sketched:
    rows: list[int] = []
    values: list[dict[int, list[int | None]]] = [{} for _ in keys]
    for part, key, *cells in zip(*(column.to_pylist() for column in found.columns), strict=True):
        if part:
            own = keys[part - 1]
            values[part - 1][key] = [*cells[:own], *cells[own + 1 :]]
        else:
            rows.append(key)
    return rows, values


def _hash_cell(column: str, kind: ColumnType) -> str:
    """The hash of a value, the same in whichever format and type it is held; null where there is none."""
    if kind in (ColumnType.INTEGER, ColumnType.DECIMAL):
        return f"CASE WHEN {column} IS NOT NULL THEN hash(CAST({column} AS DOUBLE)) END"
    text = f"lower(CAST({column} AS VARCHAR))"
    if kind is not ColumnType.TEXT:
        return f"CASE WHEN {column} IS NOT NULL THEN hash({text}) END"
    number = f"TRY_CAST({column} AS DOUBLE)"  # digits that one policy declares as text, and another as a number
    is_number = f"{column} SIMILAR TO '[ 0-9.+-].*' AND {number} IS NOT NULL"
    return f"CASE WHEN {is_number} THEN hash({number}) WHEN {column} <> '' THEN hash({text}) END"


def _choose_least(column: str, count: int, most: int) -> str:
    """The condition that holds for the least values of so many hashes, and for not many more."""
    certain = 4 * most
    return "true" if count <= certain else f"{column} <= {(1 << 64) // count * certain}"


def _list_nulls(columns: Sequence[str]) -> str:
    return ", ".join(f"NULL::UBIGINT AS {column}" for column in columns)
