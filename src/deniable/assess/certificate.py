"""The certificate of a release of rows: what was written is read back, and every claim is computed anew.

Nothing here comes from the code that makes releases: files are read by Arrow's own readers, classes are counted by the
text of their cells, and each property is written out again from its definition. So what a statement says was measured
on what left, and a fault anywhere before, in the search, the recoding or the writing, shows here.

Every cell counts as it is written: an empty text and a missing value are two, 0 and -0 are one. Readers who see fewer
differences see larger classes. Rows that were suppressed and stay as `*` are a class of their own, which must be as
large as the others; nothing else is claimed of it, since it shows no sensitive value."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.release.record import Record, SparseRecord

if TYPE_CHECKING:
    from deniable.policy.schema import Spec

STAR = "*"
SLACK = 1e-9
"""Shares are sums of quotients; a threshold that was met exactly may be missed by so much."""
BLOCK_BYTES = 16 << 20

Ancestors = Mapping[str | None, Sequence[str | None]]
Counts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Claim:
    """What is claimed of released rows: how many, which columns, and which properties of which columns.

    `columns` has a type where values leave as they are, and None where they are changed; a column of numbers that is
    generalized may be two in the file, NAME_low and NAME_high. `whole` has, for each sensitive column, its values in
    the whole table in their order, with counts. `trees` has the groups of sensitive values, from the value upwards.
    `population` has the cells of the population as the release would write them, and `people` those of all rows, with
    the number of rows and of different people that have them. `counts` is the column that says for
    how many rows a row stands, where rows were counted. `secrets` are values by column that must be nowhere in the
    columns `searched`. `truths` are rules between columns that every row keeps, as a policy says them.
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
    truths: tuple[Spec, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredProperty(Record):
    """One property that was claimed, what was measured of it in the worst class, and whether it holds."""

    name: str
    parameters: dict[str, str]
    measured: float | None
    holds: bool


@dataclass(frozen=True, slots=True, eq=False)
class Measurements(SparseRecord):
    """What was measured on the rows that leave, for their statement."""

    rows: int
    suppressed: int
    columns: list[str]
    classes: int | None = None
    k: int | None = None
    properties: list[MeasuredProperty] | None = None


@dataclass(frozen=True, slots=True)
class Certificate:
    """What was measured, and in words what of the claim does not hold."""

    measured: Measurements
    broken: tuple[str, ...]


def certify(released: Path | pa.Table, claim: Claim) -> Certificate:
    """Read what was released, and measure everything that is claimed of it."""
    names, batches = open_released(released)
    broken = _compare_columns(names, claim)
    known = [part for name in claim.quasi_identifiers for part in _spell(name, names)]
    told = [name for name in claim.sensitive if name in names]
    cells, rules = _Cells(known, told, claim.counts), _Truths(claim.truths, names)
    for batch in batches:
        broken += _compare_types(batch, claim) + _find_secrets(batch, claim)
        typed = _read_types(batch, claim)
        rules.add(typed)
        cells.add(pa.table({name: write_texts(typed[name]) for name in typed.column_names}) if names else typed)
    broken += rules.broken
    rows = cells.rows
    if claim.rows_read is not None and claim.rows_read != rows + (0 if claim.starred else claim.suppressed):
        broken.append("the rows that were read are not those written and those suppressed")
    if not claim.quasi_identifiers:
        return Certificate(Measurements(rows, claim.suppressed, names), tuple(dict.fromkeys(broken)))
    classes = cells.collect()
    stars, classes = _part_stars(classes, claim)
    broken += _compare_stars(stars, claim) + _compare_values(classes, claim)
    sizes = np.concatenate([classes.sizes, stars])
    smallest = int(sizes.min()) if len(sizes) else None
    found = [_measure_property(spec, classes, stars, claim) for spec in claim.models]
    broken += [f"{one.name} does not hold" for one in found if not one.holds]
    measured = Measurements(rows, claim.suppressed, names, len(sizes), smallest, found)
    return Certificate(measured, tuple(dict.fromkeys(broken)))


def measure_properties(
    rows: pa.Table,
    quasi_identifiers: tuple[str, ...],
    models: tuple[Spec, ...],
    trees: Mapping[str, Ancestors] | None = None,
    population: pa.Table | None = None,
) -> list[MeasuredProperty]:
    """Every property of a table as it stands; closeness is that of its classes to the table itself."""
    about = tuple(dict.fromkeys(str(spec.options["column"]) for spec in models if "column" in spec.options))
    whole = {name: _count_column(rows, name) for name in about}
    people = None if population is None else _count_cells(population, quasi_identifiers)
    claim = Claim(
        dict.fromkeys(rows.column_names),
        quasi_identifiers=quasi_identifiers,
        sensitive=about,
        models=models,
        whole=whole,
        trees=trees or {},
        population=people,
    )
    return certify(rows, claim).measured.properties or []


def _count_column(rows: pa.Table, name: str) -> pa.Table:
    counted = rows.group_by(name).aggregate([([], "count_all")]).rename_columns(["value", "count"])
    return counted.sort_by("value")


def _count_cells(rows: pa.Table, names: tuple[str, ...]) -> pa.Table:
    return rows.group_by(list(names)).aggregate([([], "count_all")]).rename_columns([*names, COUNT])


# Reading


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


def _open_csv(path: Path) -> tuple[list[str], Iterator[pa.Table]]:
    from pyarrow import csv as arrow_csv

    with path.open(encoding="utf-8", newline="") as file:
        names = next(csv.reader(file), [])
    reader = arrow_csv.open_csv(
        path,
        read_options=arrow_csv.ReadOptions(block_size=BLOCK_BYTES),
        parse_options=arrow_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=arrow_csv.ConvertOptions(
            column_types={name: pa.string() for name in names},
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return names, (pa.Table.from_batches([batch]) for batch in reader)


def _spell(name: str, names: Sequence[str]) -> list[str]:
    """A column as it stands in the file: under its name, or as two ends of intervals."""
    ends = [f"{name}_low", f"{name}_high"]
    return ends if name not in names and set(ends) <= set(names) else [name]


def _compare_columns(names: list[str], claim: Claim) -> list[str]:
    expected = [part for name in claim.columns for part in _spell(name, names)]
    return [] if names == expected else ["the columns are not those that were to leave"]


def _compare_types(batch: pa.Table, claim: Claim) -> list[str]:
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
    if not _is_text(column.type):
        return None
    try:
        return pc.cast(column, kind)
    except pa.ArrowNotImplementedError:
        return column
    except pa.ArrowInvalid:
        return None


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _read_types(batch: pa.Table, claim: Claim) -> pa.Table:
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


LEAST_LETTERS = 6
"""Shorter values are found by chance in columns of other things."""


def _find_secrets(batch: pa.Table, claim: Claim) -> list[str]:
    """Values that must not leave, found as whole cells."""
    found = []
    for name, values in claim.secrets.items():
        texts = write_texts(pa.chunked_array([values])).drop_null()
        long = texts.filter(pc.greater_equal(pc.utf8_length(texts), LEAST_LETTERS))
        for other in claim.searched if len(long) else ():
            cells = pc.unique(write_texts(batch[other])) if other in batch.column_names else long[:0]
            if bool(pc.any(pc.is_in(cells, value_set=long.combine_chunks())).as_py()):
                found.append(f"values of column '{name}' stand in column '{other}'")
    return found


class _Truths:
    """Which rules between columns do not hold, over rows that come in parts."""

    def __init__(self, truths: Sequence[Spec], names: Sequence[str]) -> None:
        self._truths = [each for each in truths if set(_name_columns(each)) <= set(names)]
        self._meant: list[dict[tuple[Any, ...], tuple[Any, ...]]] = [{} for _ in self._truths]
        self.broken: list[str] = []

    def add(self, batch: pa.Table) -> None:
        for truth, meant in zip(self._truths, self._meant, strict=True):
            if not TRUTHS[truth.kind](truth.options, batch, meant):
                self.broken.append(f"the truth '{truth.kind}' about {', '.join(_name_columns(truth))} is not kept")


def _name_columns(truth: Spec) -> list[str]:
    given = truth.options
    listed = {"determines": ("from", "to"), "sum": ("parts",), "order": ("columns",)}.get(truth.kind, ())
    named = [str(name) for option in listed for name in _as_list(given[option])]
    if truth.kind == "sum":
        return [*named, str(given["total"])]
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
    names = _as_list(options["columns"])
    falls = [pc.any(pc.greater(batch[one], batch[next_])).as_py() for one, next_ in itertools.pairwise(names)]
    return not any(falls)


def _write_value(value: object) -> str:
    return str(float(value)) if isinstance(value, Fraction) and value.denominator > 1 else str(value)


def _keeps_possible(options: Any, batch: pa.Table, _meant: object) -> bool:
    held = pa.array(np.ones(batch.num_rows, np.bool_))
    for name, values in options["when"].items():
        column = batch[name]
        listed = pa.array([_write_value(value) for value in _as_list(values)], pa.string())
        wanted = listed if _is_text(column.type) else pc.cast(listed, column.type)
        held = pc.and_(held, pc.is_in(column, value_set=wanted, skip_nulls=True))
    return not bool(pc.any(held).as_py())


TRUTHS: Mapping[str, Callable[[Any, pa.Table, Any], bool]] = {
    "determines": _keeps_dependency,
    "sum": _keeps_sum,
    "order": _keeps_order,
    "impossible": _keeps_possible,
}
"""How each kind of truth is checked."""


# Classes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Histogram:
    """A sensitive column by classes: entries of (class, value, rows), and the values by number."""

    owner: Counts
    value: Counts
    rows: Counts
    texts: list[str | None]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Classes:
    """The classes of a release: their cells, their sizes, and their sensitive values."""

    cells: pa.Table
    sizes: Counts
    values: Mapping[str, Histogram]

    def select(self, kept: NDArray[np.bool_]) -> Classes:
        """Some of the classes."""
        place = np.where(kept, np.cumsum(kept) - 1, -1)
        values = {}
        for name, held in self.values.items():
            there = kept[held.owner]
            owner, value, rows = held.owner[there], held.value[there], held.rows[there]
            values[name] = Histogram(place[owner], value, rows, held.texts)
        return Classes(self.cells.filter(pa.array(kept)), self.sizes[kept], values)


class _Cells:
    """Counts the combinations of cells of rows that come in parts."""

    def __init__(self, known: list[str], sensitive: list[str], counts: str | None) -> None:
        self.known, self.sensitive, self.counts = known, sensitive, counts
        self.rows = 0
        self._parts: list[pa.Table] = []

    def add(self, batch: pa.Table) -> None:
        ones = pa.array(np.ones(batch.num_rows, np.int64)) if self.counts is None else None
        weight = pc.cast(batch[self.counts], pa.int64()) if ones is None else ones
        self.rows += int(pc.sum(weight).as_py() or 0)
        named = [name for name in dict.fromkeys((*self.known, *self.sensitive)) if name in batch.column_names]
        if named and batch.num_rows:
            part = batch.select(named).append_column(COUNT, weight)
            self._parts.append(part.group_by(named).aggregate([(COUNT, "sum")]).rename_columns([*named, COUNT]))

    def collect(self) -> Classes:
        """The classes of all parts together."""
        known = [name for name in self.known if all(name in part.column_names for part in self._parts)]
        if not self._parts or not known:
            return Classes(pa.table({}), np.zeros(0, np.int64), {})
        every = pa.concat_tables(self._parts)
        classes = every.group_by(known).aggregate([(COUNT, "sum")])
        sizes = classes[f"{COUNT}_sum"].to_numpy().astype(np.int64)
        owner = _find_rows(every.select(known), classes.select(known))
        weight = every[COUNT].to_numpy().astype(np.int64)
        values = {name: _tally(every[name], owner, weight) for name in self.sensitive if name in every.column_names}
        return Classes(classes.select(known), sizes, values)


COUNT = "rows of these cells"


def _find_rows(cells: pa.Table, among: pa.Table) -> Counts:
    """The place of every row among distinct rows; -1 where it is none of them."""
    keys = np.zeros((cells.num_rows, among.num_columns), np.int64)
    known = np.zeros((among.num_rows, among.num_columns), np.int64)
    for q, name in enumerate(among.column_names):
        texts = pc.unique(among[name])
        keys[:, q], known[:, q] = (_index_of(table[name], texts) for table in (cells, among))
    place = {tuple(row): i for i, row in enumerate(known.tolist())}
    return np.fromiter((place.get(tuple(row), -1) for row in keys.tolist()), np.int64, len(keys))


def _index_of(column: pa.ChunkedArray, texts: pa.Array) -> Counts:
    found = pc.index_in(column, value_set=texts)
    return np.asarray(pc.fill_null(found, -1).to_numpy(), np.int64)


def _tally(column: pa.ChunkedArray, owner: Counts, weight: Counts) -> Histogram:
    texts = pc.unique(column)
    value = _index_of(column, texts)
    keys, place = np.unique(owner * max(len(texts), 1) + value, return_inverse=True)
    rows = np.bincount(place, weights=weight, minlength=len(keys)).astype(np.int64)
    return Histogram(keys // max(len(texts), 1), keys % max(len(texts), 1), rows, texts.to_pylist())


def _part_stars(classes: Classes, claim: Claim) -> tuple[Counts, Classes]:
    """The sizes of the classes of suppressed rows, at most one, and all other classes."""
    if not claim.starred or not classes.cells.num_columns:
        return np.zeros(0, np.int64), classes
    star = np.ones(len(classes.sizes), np.bool_)
    for name in classes.cells.column_names:
        ends = name.endswith(("_low", "_high")) and name not in claim.columns
        cells = classes.cells[name]
        star &= (pc.is_null(cells) if ends else pc.fill_null(pc.equal(cells, STAR), False)).to_numpy()
    for held in classes.values.values():
        shown = np.array([text is not None for text in held.texts], np.bool_)[held.value]
        star[held.owner[shown]] = False
    return classes.sizes[star], classes.select(~star)


def _compare_stars(stars: Counts, claim: Claim) -> list[str]:
    if not claim.starred or int(stars.sum()) == claim.suppressed:
        return []
    return ["the rows that stay as * are not those that were suppressed"]


def _compare_values(classes: Classes, claim: Claim) -> list[str]:
    """No sensitive value may occur more often than in the whole table."""
    broken = []
    for name, whole in claim.whole.items():
        held = classes.values.get(name)
        most = _count_whole(whole)
        rows = np.bincount(held.value, weights=held.rows, minlength=len(held.texts)) if held else ()
        if held and any(count > most.get(text, 0) for text, count in zip(held.texts, rows, strict=True)):
            broken.append(f"values of column '{name}' occur more often than in the table")
    return broken


# Properties


def _measure_property(spec: Spec, classes: Classes, stars: Counts, claim: Claim) -> MeasuredProperty:
    words = {name: str(value) for name, value in spec.options.items()}
    measured, holds = MEASURES[spec.kind](spec.options, classes, stars, claim)
    return MeasuredProperty(spec.kind.replace("_", "-"), words, measured, holds)


Options = Mapping[str, Any]
Measured = tuple[float | None, bool]


def _number(options: Options, name: str, otherwise: float = 0.0) -> float:
    return float(options.get(name, otherwise))


def _flag(options: Options, name: str) -> bool:
    return str(options.get(name, False)).lower() in ("true", "yes", "1")


def _measure_k(options: Options, classes: Classes, stars: Counts, _claim: Claim) -> Measured:
    sizes = np.concatenate([classes.sizes, stars])
    least = int(sizes.min()) if len(sizes) else None
    return least, least is None or least >= math.ceil(_number(options, "k"))


def _histogram(options: Options, classes: Classes) -> Histogram:
    empty = np.zeros(0, np.int64)
    return classes.values.get(str(options["column"]), Histogram(empty, empty, empty, []))


def _group(options: Options, classes: Classes) -> Iterator[tuple[list[str | None], NDArray[np.float64]]]:
    """The values of each class, and how many rows have them."""
    held = _histogram(options, classes)
    order = np.argsort(held.owner, kind="stable")
    cuts = np.flatnonzero(np.diff(held.owner[order])) + 1
    for part in np.split(order, cuts) if len(order) else ():
        yield [held.texts[v] for v in held.value[part]], held.rows[part].astype(np.float64)


def _worst(
    figures: Iterator[float], choose: Callable[[list[float]], float], holds: Callable[[float], bool]
) -> Measured:
    every = list(figures)
    if not every:
        return None, True
    worst = choose(every)
    return (worst if math.isfinite(worst) else None), holds(worst)


def _measure_distinct(options: Options, classes: Classes, _stars: Counts, _claim: Claim) -> Measured:
    figures = (float(len(rows)) for _, rows in _group(options, classes))
    return _worst(figures, min, lambda least: least >= math.ceil(_number(options, "l")))


def _measure_entropy(options: Options, classes: Classes, _stars: Counts, _claim: Claim) -> Measured:
    figures = (
        math.exp(-float((p * np.log(p)).sum())) for p in (rows / rows.sum() for _, rows in _group(options, classes))
    )
    return _worst(figures, min, lambda least: least >= _number(options, "l") * (1 - SLACK))


def _measure_recursive(options: Options, classes: Classes, _stars: Counts, _claim: Claim) -> Measured:
    place = math.ceil(_number(options, "l")) - 1

    def compare(rows: NDArray[np.float64]) -> float:
        falling = sorted(rows.tolist(), reverse=True)
        rest = sum(falling[place:])
        return falling[0] / rest if rest else math.inf

    figures = (compare(rows) for _, rows in _group(options, classes))
    return _worst(figures, max, lambda most: most < _number(options, "c"))


def _shares(options: Options, claim: Claim) -> tuple[list[str | None], NDArray[np.float64]]:
    """The values of the whole table in their order, and their shares."""
    counts = _count_whole(claim.whole[str(options["column"])])
    rows = np.array(list(counts.values()), np.float64)
    return list(counts), rows / max(rows.sum(), 1.0)


def _count_whole(whole: pa.Table) -> dict[str | None, int]:
    """How often each value occurs in the whole table, in the order of the values."""
    counts: dict[str | None, int] = {}
    for text, count in zip(write_texts(whole["value"]).to_pylist(), whole["count"].to_pylist(), strict=True):
        counts[text] = counts.get(text, 0) + count
    return counts


def _compare_with_whole(
    options: Options, classes: Classes, claim: Claim
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """For each class the shares of all values of the table, in the class and in the table."""
    texts, whole = _shares(options, claim)
    place = {text: i for i, text in enumerate(texts)}
    for values, rows in _group(options, classes):
        own = np.zeros(len(texts))
        own[[place[value] for value in values if value in place]] = (
            rows[[value in place for value in values]] / rows.sum()
        )
        yield own, whole


def _measure_closeness(options: Options, classes: Classes, _stars: Counts, claim: Claim) -> Measured:
    distance = str(options.get("distance", "equal"))
    texts, _ = _shares(options, claim)
    levels = _read_levels(texts, claim.trees.get(str(options["column"]), {})) if distance == "hierarchical" else []

    def compare(own: NDArray[np.float64], whole: NDArray[np.float64]) -> float:
        if distance == "ordered":
            return float(np.abs(np.cumsum(own - whole)).sum() / (len(own) - 1)) if len(own) > 1 else 0.0
        steps = levels or [np.arange(len(own))]
        return float(sum(np.abs(np.bincount(at, own - whole)).sum() / 2 for at in steps)) / len(steps)

    figures = (compare(own, whole) for own, whole in _compare_with_whole(options, classes, claim))
    return _worst(figures, max, lambda most: most <= _number(options, "t") + SLACK)


def _read_levels(texts: list[str | None], tree: Ancestors) -> list[Counts]:
    """The group of each value at each level of its tree but the last, in which all values are one."""
    height = max((len(tree[text]) for text in texts if text in tree), default=1)
    levels = []
    for level in range(max(height - 1, 1)):
        labels = [tree[text][level] if text in tree else text for text in texts]
        number = {label: i for i, label in enumerate(dict.fromkeys(labels))}
        levels.append(np.array([number[label] for label in labels], np.int64))
    return levels


def _measure_disclosure(options: Options, classes: Classes, _stars: Counts, claim: Claim) -> Measured:
    def compare(own: NDArray[np.float64], whole: NDArray[np.float64]) -> float:
        if _flag(options, "absent_violates") and bool(((own == 0) & (whole > 0)).any()):
            return math.inf
        there = own > 0
        return float(np.abs(np.log2(own[there] / whole[there])).max())

    figures = (compare(own, whole) for own, whole in _compare_with_whole(options, classes, claim))
    return _worst(figures, max, lambda most: most < _number(options, "delta"))


def _measure_likeness(options: Options, classes: Classes, _stars: Counts, claim: Claim) -> Measured:
    beta = _number(options, "beta")

    def compare(own: NDArray[np.float64], whole: NDArray[np.float64]) -> float:
        there = own > 0
        gain = own[there] / whole[there] - 1
        allowed = np.minimum(beta, -np.log(whole[there])) if _flag(options, "enhanced") else beta
        return float((gain - allowed).max()) + beta

    figures = (compare(own, whole) for own, whole in _compare_with_whole(options, classes, claim))
    return _worst(figures, max, lambda most: most <= beta + SLACK)


def _count_people(classes: Classes, claim: Claim) -> tuple[Counts, bool]:
    """The people of the population in each class, and whether some are in no class of the release."""
    people = claim.population
    if people is None:
        return np.zeros(len(classes.sizes), np.int64), True
    names = classes.cells.column_names
    cells = pa.table({name: write_texts(people[name]) for name in names})
    place = _find_rows(cells, classes.cells)
    weight = people[COUNT].to_numpy().astype(np.int64)
    inside = place >= 0
    counts = np.bincount(place[inside], weights=weight[inside], minlength=len(classes.sizes)).astype(np.int64)
    return counts, bool((~inside).any())


def _measure_map(options: Options, classes: Classes, _stars: Counts, claim: Claim) -> Measured:
    people, _ = _count_people(classes, claim)
    return _worst(iter(people.astype(float).tolist()), min, lambda least: least >= math.ceil(_number(options, "k")))


def _measure_presence(options: Options, classes: Classes, _stars: Counts, claim: Claim) -> Measured:
    """The largest share of people who are in the table; the smallest must hold, too."""
    people, outside = _count_people(classes, claim)
    shares = np.where(people > 0, classes.sizes / np.maximum(people, 1), math.inf)
    least = 0.0 if outside and not claim.suppressed else float(shares.min(initial=1.0))
    most, holds = _worst(iter(shares.tolist()), max, lambda most: most <= _number(options, "most", 1.0) + SLACK)
    return most, holds and (not len(shares) or least >= _number(options, "least") - SLACK)


PEOPLE = "people of these cells"


def count_people(cells: pa.Table, person: pa.ChunkedArray) -> pa.Table:
    """Cells with the number of rows, and of different people, that have them; nobody counts as somebody."""
    names = cells.column_names
    told = pa.table({name: write_texts(cells[name]) for name in names}).append_column(PEOPLE, person)
    counted = told.group_by(names).aggregate(
        [([], "count_all"), (PEOPLE, "count_distinct", pc.CountOptions(mode="all"))]
    )
    return counted.rename_columns([*names, COUNT, PEOPLE])


def _measure_people(options: Options, classes: Classes, _stars: Counts, claim: Claim) -> Measured:
    """The fewest people in a class, if the rows that were counted are those that were written."""
    known = claim.people
    if known is None or not len(classes.sizes):
        return None, not len(classes.sizes)
    place = _find_rows(classes.cells, known.select(classes.cells.column_names))
    rows, people = (known[name].to_numpy()[np.maximum(place, 0)] for name in (COUNT, PEOPLE))
    least = int(people.min())
    same = bool((place >= 0).all() and (rows == classes.sizes).all())
    return least, same and least >= math.ceil(_number(options, "k"))


def _measure_average(options: Options, classes: Classes, _stars: Counts, _claim: Claim) -> Measured:
    rows = int(classes.sizes.sum())
    most = _number(options, "risk", _number(options, "most"))
    return (len(classes.sizes) / rows, len(classes.sizes) <= most * rows * (1 + SLACK)) if rows else (None, True)


MEASURES: Mapping[str, Callable[[Options, Classes, Counts, Claim], Measured]] = {
    "k_anonymity": _measure_k,
    "k_people": _measure_people,
    "k_map": _measure_map,
    "distinct_diversity": _measure_distinct,
    "entropy_diversity": _measure_entropy,
    "recursive_diversity": _measure_recursive,
    "closeness": _measure_closeness,
    "delta_presence": _measure_presence,
    "delta_disclosure": _measure_disclosure,
    "beta_likeness": _measure_likeness,
    "average_risk": _measure_average,
}
"""How each model is measured, by the name under which a policy knows it."""
