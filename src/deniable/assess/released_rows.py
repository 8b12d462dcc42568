"""Released rows as they were written: the claim that is made of them, the file read back, and rules row by row.

Files are read by Arrow's own readers, CSV as text in which only what has no quotes can be missing. Nothing here comes
from the code that makes releases."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deniable.storage import escape_formula

if TYPE_CHECKING:
    from deniable.policy.schema import Spec

SLACK = 1e-9
"""Shares are sums of quotients; a threshold that was met exactly may be missed by so much."""
BLOCK_BYTES = 16 << 20

Ancestors = Mapping[str | None, Sequence[str | None]]


@dataclass(frozen=True, slots=True)
class Claim:
    """What is claimed of released rows: how many, which columns, and which properties of which columns.

    `columns` has a type where values leave as they are, and None where they are changed; a column of numbers that is
    generalized may be two in the file, NAME_low and NAME_high. `whole` has, for each sensitive column, its values in
    the whole table in their order, with counts. `trees` has the groups of sensitive values, from the value upwards.
    `population` has the cells of the population as the release would write them, and `people` those of all rows, with
    the number of rows and of different people that have them. `counts` is the column that says for
    how many rows a row stands, where rows were counted. `secrets` are values by column that must be nowhere in the
    columns `searched`. `identifiers` are values by column that must not be left in that column. `truths` are rules
    between columns that every row keeps, as a policy says them.
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
    told = [_unescape_formula(name) for name in names]
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
    return told, (pa.Table.from_batches([batch]).rename_columns(told) for batch in reader)


def _unescape_formula(name: str) -> str:
    """The name of a column without the quote that keeps a spreadsheet from running it."""
    return name[1:] if escape_formula(name[1:]) == name else name


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


LEAST_LETTERS = 6
"""Shorter values are found by chance in columns of other things."""


def find_secrets(batch: pa.Table, claim: Claim) -> list[str]:
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


def find_identifiers(batch: pa.Table, claim: Claim) -> list[str]:
    """The columns in which values of an identifier were left as they are."""
    found = []
    for name, values in claim.identifiers.items():
        texts = write_texts(pa.chunked_array([values])).drop_null()
        telling = texts.filter(pc.greater(pc.utf8_length(texts), 0)).combine_chunks()
        if bool(pc.any(pc.is_in(write_texts(batch[name]), value_set=telling)).as_py()):
            found.append(name)
    return found


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
