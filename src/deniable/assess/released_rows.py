"""Released rows as they were written: the claim that is made of them, the file read back, and rules row by row.

Files are read by Arrow's own readers, CSV as text in which only what has no quotes can be missing (or nothing in
quotes, where it is the only column). A quote that keeps a spreadsheet from running a text is no part of it. People and
sensitive values are told apart as `normalize_spelling` writes them: in several spellings one is one, and an empty text
is a missing value. Nothing here comes from the code that makes releases."""

from __future__ import annotations

import csv
import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.engines.base import spell_texts
from deniable.policy.schema import ColumnType
from deniable.release.record import Record
from deniable.storage import unescape_formula

if TYPE_CHECKING:
    from deniable.policy.conditions import Tree
    from deniable.policy.schema import Spec

SLACK = 1e-9
"""Shares are sums of quotients; a threshold that was met exactly may be missed by so much."""
BLOCK_BYTES = 16 << 20

Counts = NDArray[np.int64]
Ancestors = Mapping[str | None, Sequence[str | None]]


@dataclass(frozen=True, slots=True)
class Claim:
    """What is claimed of released rows: how many, which columns, and which properties of which columns.

    `columns` has a type where values leave as they are, and None where they are changed; a column of numbers that is
    generalized may be two in the file, NAME_low and NAME_high. `whole` has, for each sensitive column, its values in
    the whole table in their order, with counts. `trees` has the groups of sensitive values, from the value upwards.
    `population` has the cells of the population as the release would write them, and `people` those of all rows, with
    who has them: the person, how many rows that person has in the whole table, and the sensitive values. Where shares
    of people are claimed, `whole` tells the same number of rows beside each value. `counts` is the column that says for
    how many rows a row stands, where rows were counted. `secrets` are values by column that must be nowhere in the
    columns `searched`. `identifiers` are values by column that must not be left in that column (but in those that are
    `moved`, where chance leads to another's), nor be recognized in what became of them: `originals` reads the rows of
    these columns in the order in which they were written. `hidden` are values of identifiers by column, of which no
    other column may be a copy. `truths` are rules between columns that every row keeps, as a policy says them.
    """

    columns: Mapping[str, pa.DataType | None]
    rows_read: int | None = None
    suppressed: int = 0
    starred: bool = False
    quasi_identifiers: tuple[str, ...] = ()
    sensitive: tuple[str, ...] = ()
    models: tuple[Spec, ...] = ()
    whole: Mapping[str, pa.Table] = field(default_factory=dict, repr=False)
    trees: Mapping[str, Ancestors] = field(default_factory=dict, repr=False)
    population: pa.Table | None = field(default=None, repr=False)
    people: pa.Table | None = field(default=None, repr=False)
    counts: str | None = None
    secrets: Mapping[str, pa.Array] = field(default_factory=dict, repr=False)
    searched: tuple[str, ...] = ()
    identifiers: Mapping[str, pa.Array] = field(default_factory=dict, repr=False)
    moved: tuple[str, ...] = ()
    originals: Callable[[], Iterable[pa.RecordBatch]] | None = field(default=None, repr=False)
    hidden: Mapping[str, pa.Array] = field(default_factory=dict, repr=False)
    truths: tuple[Spec, ...] = ()


def open_released(released: Path | pa.Table) -> tuple[list[str], Iterator[pa.Table]]:
    """The names of the columns, and the rows in parts; CSV as text, where only what has no quotes can be missing."""
    if isinstance(released, pa.Table):
        return released.column_names, iter([released])
    if released.suffix.lower() == ".csv":
        return _open_csv(released)
    if released.suffix.lower() in (".parquet", ".pq"):
        import pyarrow.parquet as pq

        file = pq.ParquetFile(released)
        return file.schema_arrow.names, (pa.Table.from_batches([b]) for b in file.iter_batches())
    arrow = pa.ipc.open_file(pa.memory_map(str(released)))
    parts = (pa.Table.from_batches([arrow.get_batch(i)]) for i in range(arrow.num_record_batches))
    return arrow.schema.names, parts


def read_released(released: Path | pa.Table) -> pa.Table:
    """All rows at once; of a file without rows, its columns."""
    if isinstance(released, pa.Table):
        return released
    names, parts = open_released(released)
    held = list(parts)
    return pa.concat_tables(held) if held else pa.table({name: pa.array([], pa.string()) for name in names})


def _open_csv(path: Path) -> tuple[list[str], Iterator[pa.Table]]:
    from pyarrow import csv as arrow_csv

    with path.open(encoding="utf-8", newline="") as file:
        names = next(csv.reader(file), [])
    told = [unescape_formula(name) for name in names]
    reader = arrow_csv.open_csv(
        path,
        # One block is read sooner by one thread.
        read_options=arrow_csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=path.stat().st_size > BLOCK_BYTES),
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=arrow_csv.ConvertOptions(
            column_types={name: pa.string() for name in names},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=len(names) == 1,  # a line of nothing would be no row: it has quotes
        ),
    )
    return told, (unescape_texts(pa.Table.from_batches([batch])) for batch in reader)


def unescape_texts(rows: pa.Table) -> pa.Table:
    """Rows of a CSV file that deniable wrote, without the quotes that keep a spreadsheet from running a text."""
    told = [_unescape_column(column) if is_text(column.type) else column for column in rows.columns]
    return pa.table(told, names=[unescape_formula(name) for name in rows.column_names])


def _unescape_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pc.any(pc.starts_with(column, "'")).as_py():
        return column
    coded = column.combine_chunks().dictionary_encode()
    texts = [None if text is None else unescape_formula(text) for text in coded.dictionary.to_pylist()]
    return pa.chunked_array([pa.array(texts, column.type).take(coded.indices)])


def spell_column(name: str, names: Sequence[str]) -> list[str]:
    """A column as it stands in the file: under its name, or as two ends of intervals."""
    ends = [f"{name}_low", f"{name}_high"]
    return ends if name not in names and set(ends) <= set(names) else [name]


def compare_columns(names: list[str], claim: Claim) -> list[str]:
    """What is wrong with the columns of a file."""
    expected = [part for name in claim.columns for part in spell_column(name, names)]
    return [] if names == expected else ["the columns are not those that were to leave"]


def compare_types(batch: pa.Table, claim: Claim) -> list[str]:
    """What is wrong with the types of columns that leave as they are."""
    return [
        f"the type of column '{name}' is another"
        for name, kind in claim.columns.items()
        if kind is not None and name in batch.column_names and _read_as(batch[name], kind) is None
    ]


def _read_as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray | None:
    """A column as its type says; text is read, and None where it cannot be."""
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    if column.type == kind or pa.types.is_dictionary(kind):
        return column
    if not is_text(column.type) and not _is_same_time(column.type, kind):
        return None
    try:
        return pc.cast(column, kind)
    except pa.ArrowNotImplementedError:
        return column
    except pa.ArrowInvalid:
        return None


def _is_same_time(written: pa.DataType, kind: pa.DataType) -> bool:
    """Whether a file may have a type of times in finer units: Parquet has no seconds, and no days in milliseconds."""
    if pa.types.is_timestamp(kind):
        return bool(pa.types.is_timestamp(written) and written.tz == kind.tz)
    return any(of(kind) and of(written) for of in (pa.types.is_date, pa.types.is_time32))


def is_text(kind: pa.DataType) -> bool:
    """Whether a column is one of texts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def read_types(batch: pa.Table, claim: Claim) -> pa.Table:
    """Rows with the columns that leave as they are in their types, where those can be read."""
    columns = {}
    for name in batch.column_names:
        kind = claim.columns.get(name)
        typed = None if kind is None else _read_as(batch[name], kind)
        columns[name] = batch[name] if typed is None else typed
    return pa.table(columns) if columns else batch


def write_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Cells as texts, one for each value; a number that is no number is missing."""
    if pa.types.is_dictionary(column.type):
        column = pc.cast(column, column.type.value_type)
    if pa.types.is_floating(column.type):
        real = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
        column = pc.add(real, pa.scalar(0.0, column.type))
    return column if pa.types.is_string(column.type) else pc.cast(column, pa.string())


def write_values(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """People or sensitive values as texts, one for all spellings of a value; an empty one is missing."""
    coded = write_texts(column).combine_chunks().dictionary_encode()
    texts = spell_texts(coded.dictionary)
    seen = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    return pa.chunked_array([seen.take(coded.indices)])


COUNT = "rows of these cells"
PERSON, OF = "person with these cells", "rows of that person"


def count_people(
    cells: pa.Table, values: pa.Table, person: pa.ChunkedArray, everyone: pa.ChunkedArray | None = None
) -> pa.Table:
    """Cells and sensitive values with the person who has them, in how many rows, and how many rows that person has.

    `person` tells whose each row is; `everyone` does so for the whole table, where some of its rows are not there.
    """
    whole = write_values(person if everyone is None else everyone)
    known = pc.unique(whole)
    total = np.bincount(index_of(whole, known), minlength=len(known))
    codes = index_of(write_values(person), known)
    of = pa.array(total[codes])
    told = {name: write_texts(cells[name]) for name in cells.column_names}
    told |= {name: write_values(values[name]) for name in values.column_names}
    held = pa.table(told | {PERSON: pa.array(codes), OF: of})
    counted = held.group_by(held.column_names).aggregate([([], "count_all")])
    return counted.rename_columns([*held.column_names, COUNT])


def index_of(column: pa.ChunkedArray, texts: pa.Array) -> Counts:
    """The place of every text among others; -1 where it is none of them."""
    found = pc.index_in(column, value_set=texts)
    return np.asarray(pc.fill_null(found, -1).to_numpy(), np.int64)


def count_values(column: pa.ChunkedArray, everyone: pa.ChunkedArray | None = None) -> pa.Table:
    """The values of a whole column in their order, how often each occurs, and with people in rows of how many."""
    if everyone is None:
        counted = pa.table({"value": column}).group_by("value").aggregate([([], "count_all")])
        return counted.rename_columns(["value", "count"]).sort_by("value")
    told = pa.table({"value": column, OF: _count_rows_of(everyone)})
    counted = told.group_by(["value", OF]).aggregate([([], "count_all")])
    return counted.rename_columns(["value", OF, "count"]).sort_by("value")


def _count_rows_of(everyone: pa.ChunkedArray) -> pa.Array:
    """For every row, how many rows its person has in all; those of nobody are one person's."""
    texts = write_values(everyone)
    codes = index_of(texts, pc.unique(texts))
    return pa.array(np.bincount(codes)[codes])


EXACT = 2**53
"""All parts of all people together are at most so many, which floating point adds exactly."""


def weigh_rows(whole: pa.Table) -> dict[int, int]:
    """What a row weighs whose person has so many: the parts of a person, shared out evenly and rounded down."""
    rows: dict[int, int] = {}
    for of, count in zip(whole[OF].to_pylist(), whole["count"].to_pylist(), strict=True):
        rows[of] = rows.get(of, 0) + count
    people = max(sum(count // of for of, count in rows.items()), 1)
    parts = min(math.lcm(*rows), EXACT // people)
    return {of: max(parts // of, 1) for of in rows}


class TruthCheck:
    """Which rules between columns do not hold, over rows that come in parts."""

    def __init__(self, truths: Sequence[Spec], names: Sequence[str]) -> None:
        self._truths = [each for each in truths if set(_name_columns(each)) <= set(names)]
        self._meant: list[dict[tuple[Any, ...], tuple[Any, ...]]] = [{} for _ in self._truths]
        self.broken: list[str] = []

    def add(self, batch: pa.Table) -> None:
        """Check more rows."""
        for truth, meant in zip(self._truths, self._meant, strict=True):
            if not TRUTHS[truth.kind](truth.options, batch, meant):
                self.broken.append(f"the truth '{truth.kind}' about {', '.join(_name_columns(truth))} is not kept")


def _name_columns(truth: Spec) -> list[str]:
    given = truth.options
    listed = {"determines": ("from", "to"), "sum": ("parts",), "order": ("columns",)}.get(truth.kind, ())
    named = [str(name) for option in listed for name in _as_list(given[option])]
    if truth.kind == "sum":
        return [*named, str(given["total"])]
    if truth.kind == "holds":
        from deniable.policy.conditions import list_columns, read_condition

        return sorted(set(list_columns(read_condition(str(given["condition"]), None))))
    return named or [str(name) for name in given["when"]]  # type: ignore[attr-defined]


def _as_list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


def _keeps_dependency(options: Any, batch: pa.Table, meant: dict[tuple[Any, ...], tuple[Any, ...]]) -> bool:
    sides = [_as_list(options[side]) for side in ("from", "to")]
    pairs = batch.select(list(dict.fromkeys(sides[0] + sides[1]))).group_by(sides[0] + sides[1]).aggregate([])
    given, found = (zip(*(pairs[name].to_pylist() for name in side), strict=True) for side in sides)
    return all(meant.setdefault(key, value) == value for key, value in zip(given, found, strict=True))


def _keeps_sum(options: Any, batch: pa.Table, _meant: object) -> bool:
    parts = [pc.cast(batch[name], pa.float64()) for name in _as_list(options["parts"])]
    added, total = parts[0], pc.cast(batch[str(options["total"])], pa.float64())
    for part in parts[1:]:
        added = pc.add(added, part)
    off = pc.greater(pc.abs(pc.subtract(added, total)), pc.add(pc.multiply(pc.abs(added), SLACK), SLACK))
    return not bool(pc.any(off).as_py())


def _keeps_order(options: Any, batch: pa.Table, _meant: object) -> bool:
    names, falls = _as_list(options["columns"]), pc.greater_equal if options.get("strict") else pc.greater
    found = [pc.any(falls(batch[one], batch[later])).as_py() for one, later in itertools.combinations(names, 2)]
    return not any(found)


def _keeps_condition(options: Any, batch: pa.Table, _meant: object) -> bool:
    from deniable.policy.conditions import read_condition

    types = {field.name: _column_type(field.type) for field in batch.schema}
    held = _hold_condition(read_condition(str(options["condition"]), types), batch)
    return bool(pc.all(held, skip_nulls=True, min_count=0).as_py())


def _column_type(kind: pa.DataType) -> ColumnType:
    if pa.types.is_boolean(kind):
        return ColumnType.BOOLEAN
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return ColumnType.DATE if pa.types.is_date(kind) else ColumnType.DATETIME
    return ColumnType.TEXT if is_text(kind) else ColumnType.DECIMAL


def _hold_condition(tree: Tree, batch: pa.Table) -> Any:
    """Of each row, whether a condition holds, null where it is not known: by Arrow's logic with nulls."""
    from deniable.policy.conditions import Compared, Linear, Member, Missing, Not

    match tree:
        case Linear(terms, sign, constant, strict):
            total = pa.scalar(0.0)
            for name, factor in terms:
                total = pc.add(total, pc.multiply(to_floats(batch[name]), float(factor)))
            near = pc.less_equal(pc.abs(pc.subtract(total, float(constant))), SLACK * max(abs(float(constant)), 1.0))
            below = pc.less(total, float(constant))
            return near if sign == "=" else pc.and_not(below, near) if strict else pc.or_(below, near)
        case Member(column, values):
            wanted = pa.array([value if isinstance(value, str) else str(value) for value in values], pa.string())
            return pc.if_else(pc.is_null(batch[column]), None, pc.is_in(batch[column].cast(pa.string()), wanted))
        case Compared(left, sign, right, fixed):
            other = pa.scalar(right) if fixed else batch[right]
            compare = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal, "=": pc.equal}
            return compare[sign](batch[left].cast(pa.string()), other)
        case Missing(column):
            return pc.is_null(batch[column])
        case Not(part):
            return pc.invert(_hold_condition(part, batch))
    found = [_hold_condition(part, batch) for part in tree.parts]
    return functools.reduce(pc.or_kleene if tree.any else pc.and_kleene, found)


def to_floats(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Numbers; days and seconds since 1970 of times, 0 and 1 of truth values."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.date32()).cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    return column.cast(pa.uint8()).cast(pa.float64()) if pa.types.is_boolean(column.type) else column.cast(pa.float64())


def _write_value(value: object) -> str:
    return str(float(value)) if isinstance(value, Fraction) and value.denominator > 1 else str(value)


def _keeps_possible(options: Any, batch: pa.Table, _meant: object) -> bool:
    held = pa.array(np.ones(batch.num_rows, np.bool_))
    for name, values in options["when"].items():
        column = batch[name]
        listed = pa.array([_write_value(value) for value in _as_list(values)], pa.string())
        wanted = listed if is_text(column.type) else pc.cast(listed, column.type)
        held = pc.and_(held, pc.is_in(column, value_set=wanted, skip_nulls=True))
    return not bool(pc.any(held).as_py())


TRUTHS: Mapping[str, Callable[[Any, pa.Table, Any], bool]] = {
    "determines": _keeps_dependency,
    "sum": _keeps_sum,
    "order": _keeps_order,
    "impossible": _keeps_possible,
    "holds": _keeps_condition,
}
"""How each kind of truth is checked."""


WHOLE = "total"


@dataclass(frozen=True, slots=True, eq=False)
class CertifiedCounts(Record):
    """What was found in a file; `broken` says which claims do not hold, without a value from the data."""

    rows: int
    total: int
    levels: Mapping[str, int]
    """Areas that have anybody, by level."""
    invariants: tuple[str, ...]
    """The levels whose exact numbers the file has."""
    broken: tuple[str, ...]


def certify_cells(
    path: Path,
    areas: Mapping[str, Sequence[str]],
    labels: Mapping[str, Sequence[Any]],
    invariants: Mapping[str, tuple[tuple[str, ...], Mapping[tuple[str, ...], int]]],
    count: str,
) -> CertifiedCounts:
    """Read a file of cells back: every row in a listed area and cell, once, above zero; and every exact number met.

    `areas` names for each level the area of each smallest one. `invariants` has for each level the columns whose
    numbers are exact, and the number for the names of each area and values of those columns.
    """
    names, batches = open_released(path)
    if names != [*areas, *labels, count]:
        return CertifiedCounts(0, 0, {}, (), ("the columns are others than declared",))
    listed = {level: pa.array(each, pa.string()) for level, each in areas.items()}
    smallest = list(areas)[-1] if areas else ""
    people = np.zeros(len(listed[smallest]) if areas else 1, np.int64)
    broken: dict[str, None] = {}
    cells: list[NDArray[np.int64]] = []
    counts: list[NDArray[np.int64]] = []
    for batch in batches:
        numbers = _read_whole(batch.column(count))
        if numbers is None or (numbers.min() if len(numbers) else 1) < 1:
            broken["a number is not whole and above zero"] = None
            continue
        place = _find_codes(batch.column(smallest), listed[smallest]) if areas else np.zeros(len(numbers), np.int64)
        if (place < 0).any():
            broken["an area is not listed"] = None
            continue
        for level in areas:
            if not _to_texts(batch.column(level)).equals(pa.chunked_array([listed[level].take(pa.array(place))])):
                broken[f"an area of level '{level}' is not where it is listed"] = None
        people += np.bincount(place, weights=numbers, minlength=len(people)).astype(np.int64)
        for name, values in labels.items():
            code = _find_codes(batch.column(name), pa.array([_spell(value) for value in values], pa.string()))
            if (code < 0).any():
                broken[f"column '{name}' has a value that is not declared"] = None
            place = place * len(values) + code
        cells.append(place)
        counts.append(numbers)
    rows = sum(len(each) for each in cells)
    if rows and len(np.unique(np.concatenate(cells))) != rows:
        broken["a cell is listed twice"] = None
    sums = {level: _add_up(people, [areas[each] for each in list(areas)[: depth + 1]])
            for depth, level in enumerate(areas)}  # fmt: skip
    total, met = int(people.sum()), []
    for level, (by, wanted) in invariants.items():
        above = list(areas)[: list(areas).index(level) + 1] if level in areas else []
        found = _count_margin(cells, counts, [areas[each] for each in above], labels, by)
        if {key: n for key, n in wanted.items() if n} == found:
            met.append(level)
        else:
            broken[f"the exact numbers of level '{level}' are not met"] = None
    return CertifiedCounts(rows, total, {level: len(each) for level, each in sums.items()}, tuple(met), tuple(broken))


def _count_margin(
    cells: Sequence[NDArray[np.int64]], counts: Sequence[NDArray[np.int64]], names: Sequence[Sequence[str]],
    labels: Mapping[str, Sequence[Any]], by: Sequence[str],
) -> dict[tuple[str, ...], int]:  # fmt: skip
    """The numbers by the names of areas and the values of some columns, but for those that are 0."""
    if not cells:
        return {}
    place, found = np.concatenate(cells), dict[tuple[str, ...], int]()
    code, size, values = np.zeros(len(place), np.int64), 1, list[list[str]]()
    for name, listed in reversed(list(labels.items())):
        if name in by:
            code, size = code + size * (place % len(listed)), size * len(listed)
            values.insert(0, [_spell(value) for value in listed])
        place = place // len(listed)
    keys, at = np.unique(place * size + code, return_inverse=True)
    listed_keys = list(itertools.product(*values))
    for key, number in zip(keys.tolist(), np.bincount(at, weights=np.concatenate(counts)).tolist(), strict=True):
        path = (*(each[key // size] for each in names), *listed_keys[key % size])
        found[path] = found.get(path, 0) + int(number)
    return found


def _find_codes(column: pa.ChunkedArray, values: pa.Array) -> NDArray[np.int64]:
    """The place of each value in a list; -1 where it is not there."""
    found = pc.index_in(_to_texts(column), value_set=values)
    return np.asarray(pc.fill_null(found, -1).to_numpy(), dtype=np.int64)


def _to_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.string())


def _add_up(people: NDArray[np.int64], names: Sequence[Sequence[str]]) -> dict[tuple[str, ...], int]:
    """The sums of the smallest areas by the names of one level and those above it, but for empty ones."""
    sums: dict[tuple[str, ...], int] = {}
    for number, path in zip(people.tolist(), zip(*names, strict=True), strict=True):
        if number:
            sums[path] = sums.get(path, 0) + number
    return sums


def certify_totals(path: Path, sizes: Mapping[str, int]) -> CertifiedCounts:
    """Read a file of totals back: every area of every level, and the same sum on each of them."""
    names, batches = open_released(path)
    if names != ["level", "area", "total", "low", "high", "noise_deviation", "sample_deviation"]:
        return CertifiedCounts(0, 0, {}, (), ("the columns are others than declared",))
    sums = dict.fromkeys(sizes, 0)
    areas = dict.fromkeys(sizes, 0)
    broken: dict[str, None] = {}
    for batch in batches:
        numbers = _read_whole(batch.column("total"))
        if numbers is None or (numbers.min() if len(numbers) else 0) < 0:
            broken["a number is not whole and at least zero"] = None
            continue
        for level, number in zip(batch.column("level").to_pylist(), numbers.tolist(), strict=True):
            sums[level] += number
            areas[level] += 1
    if areas != dict(sizes):
        broken["an area is missing, or listed twice"] = None
    if len(set(sums.values())) > 1:
        broken["levels do not add up to one another"] = None
    return CertifiedCounts(sum(areas.values()), max(sums.values(), default=0), areas, (), tuple(broken))


def _read_whole(column: pa.ChunkedArray) -> Any:
    """The numbers of a column; None where one of them is not whole."""
    try:
        return column.cast(pa.int64()).to_numpy()
    except (pa.ArrowInvalid, ValueError):
        return None


def _spell(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
