"""Encoding: values of a column become codes, and codes become values again, in the type that the policy declares.

Values outside the declaration count as null, or at the nearest bound. The type that a column has in its file or frame
is not kept: libraries infer it from the values (the places of a decimal, a number that is a float since one is
missing), so it would tell of single people."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.engines.base import quote, write_value
from deniable.policy.schema import ColumnType
from deniable.synth import text_shapes
from deniable.synth.domain import (
    EPOCH,
    Attribute,
    Bins,
    Coded,
    Labels,
    ShapedText,
    Surrogate,
    Value,
    arrow_type,
    surrogate_prefix,
)
from deniable.synth.marginal import Axis, CodesElsewhere, Counts

EXACT = 2**53
"""Whole numbers below it are floating-point numbers."""


def encode_column(attribute: Coded, values: pa.ChunkedArray | pa.Array) -> NDArray[np.int32]:
    """Codes of a column; null is the last code, and where null is not declared it becomes code 0."""
    column = to_array(values)
    missing = attribute.size - 1 if attribute.nullable else 0
    match attribute:
        case Labels():
            return _encode_labels(attribute, column, missing)
        case ShapedText():
            found = text_shapes.match_shapes(column.cast(pa.string()).fill_null(""), attribute.shapes)
            return np.where(column.is_null().to_numpy(zero_copy_only=False), missing, found).astype(np.int32)
        case Bins():
            steps, null = find_steps(attribute, column)
            codes = np.searchsorted(np.array(attribute.cuts), steps, side="right") - 1
            return np.where(null, missing, codes).astype(np.int32)


def to_array(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece, without a dictionary."""
    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _encode_labels(attribute: Labels, column: pa.Array, missing: int) -> NDArray[np.int32]:
    index = {label: code for code, label in enumerate(attribute.labels)}
    encoded = column.dictionary_encode()
    table = np.array([index.get(v, missing) for v in encoded.dictionary.to_pylist()] + [missing], dtype=np.int32)
    at = encoded.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)
    return np.asarray(table[at.astype(np.int64)], dtype=np.int32)


def find_steps(attribute: Bins, column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The step on which each value falls, and which are null."""
    if pa.types.is_integer(column.type) and attribute.lower.denominator == attribute.step.denominator == 1:
        return _find_whole_steps(attribute, column), column.is_null().to_numpy(zero_copy_only=False)
    upper = attribute.lower + (attribute.steps - 1) * attribute.step
    numbers = np.clip(_to_numbers(attribute, column), float(attribute.lower), float(upper))
    steps = np.rint((numbers - float(attribute.lower)) / float(attribute.step))
    inside = np.clip(np.nan_to_num(steps, nan=0.0), 0, attribute.steps - 1).astype(np.int64)
    return np.minimum(inside, attribute.steps - 1), np.isnan(numbers)


def _find_whole_steps(attribute: Bins, column: pa.Array) -> NDArray[np.int64]:
    """The nearest step of each whole number, clamped before anything else and never rounded to a float."""
    first, step = int(attribute.lower), int(attribute.step)
    values = column.fill_null(0).to_numpy(zero_copy_only=False)
    kind = np.iinfo(values.dtype)
    low, high = (max(kind.min, min(end, kind.max)) for end in (first, first + (attribute.steps - 1) * step))
    inside = np.clip(values, values.dtype.type(low), values.dtype.type(high)).astype(np.int64)
    # Bounds beyond the type of the column leave every value on one side of them.
    return np.asarray(np.clip((inside - first + step // 2) // step, 0, attribute.steps - 1), dtype=np.int64)


def _to_numbers(attribute: Bins, column: pa.Array) -> NDArray[np.float64]:
    if attribute.type is ColumnType.DATE:
        column = column.cast(pa.date32()).cast(pa.int32())
    elif attribute.type is ColumnType.DATETIME:
        column = column.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    # A safe cast would refuse whole numbers that floats cannot hold: a refusal would tell of a row.
    filled = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(filled, dtype=np.float64)


def decode_column(attribute: Coded, codes: NDArray[np.int32], generator: np.random.Generator) -> pa.Array:
    """Values of codes, in the column's own type; inside a bin every step is as likely, and so is every letter."""
    if isinstance(attribute, Bins):
        return _decode_bins(attribute, codes, generator)
    if isinstance(attribute, ShapedText):
        return _decode_texts(attribute, codes, generator)
    listed = pa.array([*attribute.labels, *([None] if attribute.nullable else [])], arrow_type(attribute))
    return listed.take(pa.array(codes))


def generate_surrogates(attribute: Surrogate, after: int, records: int, total: int) -> pa.Array:
    """The values that follow the first `after` of a total: numbered on, so that none comes twice."""
    numbers = pa.array(np.arange(after + 1, after + records + 1))
    if attribute.type is ColumnType.INTEGER:
        return numbers
    return _append_numbers(attribute.prefix, numbers, len(str(max(total, 1))))


def _append_numbers(before: str, numbers: pa.Array, width: int) -> pa.Array:
    return pc.binary_join_element_wise(before, pc.utf8_lpad(numbers.cast(pa.string()), width, "0"), "")


def _decode_texts(attribute: ShapedText, codes: NDArray[np.int32], generator: np.random.Generator) -> pa.Array:
    """Texts of each shape; those of no learned shape are stamped with a number, so that they differ."""
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes, minlength=attribute.size)
    parts = [
        text_shapes.generate_texts(shape, int(size), generator)
        for shape, size in zip(attribute.shapes, sizes, strict=False)
    ]
    others = int(sizes[len(attribute.shapes)])
    parts.append(_append_numbers(surrogate_prefix(attribute.name), pa.array(generator.integers(0, 10**9, others)), 9))
    parts += [pa.nulls(int(size), pa.string()) for size in sizes[len(attribute.labels) :]]
    back = np.empty(codes.size, dtype=np.int64)
    back[order] = np.arange(codes.size)
    return pa.concat_arrays(parts).take(pa.array(back))


def _decode_bins(attribute: Bins, codes: NDArray[np.int32], generator: np.random.Generator) -> pa.Array:
    return convert_steps(attribute, *draw_steps(attribute, codes, generator))


def draw_steps(
    attribute: Bins, codes: NDArray[np.int32], generator: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """A step for each code, any of its bin, and which codes are null."""
    missing = codes >= attribute.bins
    bins = np.where(missing, 0, codes).astype(np.int64)
    cuts = np.array(attribute.cuts, dtype=np.int64)
    first, after = cuts[bins], cuts[bins + 1]
    return first + (generator.random(codes.size) * (after - first)).astype(np.int64), missing


def convert_steps(attribute: Bins, place: NDArray[np.int64], missing: NDArray[np.bool_]) -> pa.Array:
    """The values at steps, in the column's own type."""
    match attribute.type:
        case ColumnType.DATE:
            days = (int(attribute.lower) + place * int(attribute.step)).astype(np.int32)
            return pa.array(days, pa.int32(), mask=missing).cast(pa.date32())
        case ColumnType.DATETIME:
            seconds = int(attribute.lower) + place * int(attribute.step)
            return pa.array(seconds, pa.int64(), mask=missing).cast(pa.timestamp("s"))
        case ColumnType.INTEGER:
            return pa.array(int(attribute.lower) + place * int(attribute.step), pa.int64(), mask=missing)
        case _:
            return pa.array(_divide_once(attribute, place), pa.float64(), mask=missing)


def _divide_once(attribute: Bins, place: NDArray[np.int64]) -> NDArray[np.float64]:
    """The nearest number to each exact value: -3 + 33 steps of 0.1 is 0.3, as it is written, and equal to 0.3."""
    parts = math.lcm(attribute.lower.denominator, attribute.step.denominator)
    first, each = int(attribute.lower * parts), int(attribute.step * parts)
    if max(abs(first), abs(first + each * attribute.steps), parts) < EXACT:
        return np.asarray((first + each * place) / parts, dtype=np.float64)
    return np.array([(first + each * one) / parts for one in place.tolist()], dtype=np.float64)


def is_counted_elsewhere(attribute: Attribute) -> bool:
    """Whether a column can be coded by comparisons alone, which every engine computes alike."""
    match attribute:
        case Labels():
            return attribute.type in (ColumnType.TEXT, ColumnType.INTEGER, ColumnType.BOOLEAN)
        case Bins():
            return True
        case _:
            return isinstance(attribute, Surrogate)


def render_code(attribute: Coded, mapping: Sequence[int]) -> str:
    """The SQL of a column's code, replaced by what the map says of it: what `encode_column` gives, by comparisons."""
    column, missing = quote(attribute.name), mapping[attribute.size - 1 if attribute.nullable else 0]
    if isinstance(attribute, Bins):
        found = list(zip(find_thresholds(attribute, attribute.cuts[1:-1]), mapping[1 : attribute.bins], strict=True))
        ends, codes = list[str](), [mapping[0]]
        for least, code in (each for each in found if each[0] is not None):
            if code != codes[-1]:
                ends.append(write_value(least))
                codes.append(code)
        return f"CASE WHEN {column} IS NULL THEN {missing} ELSE {_search(column, ends, codes)} END"
    known = list(zip(attribute.labels, mapping, strict=False))
    if all(isinstance(label, int) or str(label).isascii() for label in attribute.labels):  # one order everywhere
        return _search_labels(column, sorted(known, key=lambda each: each[0]), missing)
    return _compare_labels(column, known, missing)


def _search_labels(column: str, known: Sequence[tuple[Any, int]], missing: int) -> str:
    """The code of a label, by halves; what is no label ends among some others, and is none of them."""
    if len(known) <= MOST_COMPARED:
        return _compare_labels(column, known, missing)
    half = len(known) // 2
    below, above = (_search_labels(column, part, missing) for part in (known[:half], known[half:]))
    return f"CASE WHEN {column} < {write_value(known[half][0])} THEN {below} ELSE {above} END"


MOST_COMPARED = 8
"""Labels that are compared one after the other."""


def _compare_labels(column: str, known: Sequence[tuple[Any, int]], missing: int) -> str:
    listed: dict[int, list[str]] = {}
    for label, code in known:
        listed.setdefault(code, []).append(write_value(label))
    cases = " ".join(f"WHEN {column} IN ({', '.join(values)}) THEN {code}" for code, values in listed.items())
    return f"CASE {cases} ELSE {missing} END"


def _search(column: str, ends: Sequence[str], codes: Sequence[int]) -> str:
    """The code of the part that a value is in, by halves; each part ends before the value of that place."""
    if not ends:
        return str(codes[0])
    half = len(ends) // 2
    below, above = _search(column, ends[:half], codes[: half + 1]), _search(column, ends[half + 1 :], codes[half + 1 :])
    return f"CASE WHEN {column} < {ends[half]} THEN {below} ELSE {above} END"


_FIRST_DAY, _LAST_DAY = (date(1, 1, 1) - EPOCH).days, (date(9999, 12, 31) - EPOCH).days
_DAY = 86_400 * 1_000_000
_LAST_BITS = 0x7FF0000000000000
"""The bits of an infinite number."""
_ORDERED: dict[ColumnType, tuple[int, int]] = {
    ColumnType.INTEGER: (-(1 << 63), (1 << 63) - 1),
    ColumnType.DECIMAL: (-_LAST_BITS - 1, _LAST_BITS),
    ColumnType.DATE: (_FIRST_DAY, _LAST_DAY),
    ColumnType.DATETIME: (_FIRST_DAY * _DAY, (_LAST_DAY + 1) * _DAY - 1),
}
"""The values of each type as whole numbers in their order: doubles by their bits, dates in days, times in
microseconds."""


def find_thresholds(attribute: Bins, steps: Sequence[int]) -> list[Value | None]:
    """For each step the least value that falls on it or on a later one, by trial of `find_steps`; None if none does."""
    lowest, highest = _ORDERED[attribute.type]
    low, high = np.full(len(steps), lowest, np.int64), np.full(len(steps), highest, np.int64)
    wanted = np.array(steps, dtype=np.int64)
    with np.errstate(over="ignore"):
        while bool((low < high).any()):
            middle = (low & high) + ((low ^ high) >> 1)
            reached = find_steps(attribute, _values_at(attribute, middle))[0] >= wanted
            low, high = np.where(reached | (low >= high), low, middle + 1), np.where(reached, middle, high)
        reached = find_steps(attribute, _values_at(attribute, low))[0] >= wanted
    values = _values_at(attribute, low).to_pylist()
    return [value + 0.0 if isinstance(value, float) else value for value in _keep(values, reached)]


def _keep(values: Sequence[Value], kept: NDArray[np.bool_]) -> list[Any]:
    return [value if keep else None for value, keep in zip(values, kept.tolist(), strict=True)]


def _values_at(attribute: Bins, places: NDArray[np.int64]) -> pa.Array:
    """The values of a column's type at places of their order."""
    match attribute.type:
        case ColumnType.INTEGER:
            return pa.array(places)
        case ColumnType.DECIMAL:
            return pa.array(np.where(places < 0, places ^ 0x7FFFFFFFFFFFFFFF, places).view(np.float64))
        case ColumnType.DATE:
            return pa.array(places.astype(np.int32)).cast(pa.date32())
        case _:
            return pa.array(places).cast(pa.timestamp("us"))


def render_counts(rows: str, axes: Sequence[Axis], tables: Sequence[tuple[Axis, ...]]) -> str:
    """The statement that counts the rows of another one by the codes of some columns, for several tables at once."""
    coded = ", ".join(f"{render_code(*axis)} AS c{place}" for place, axis in enumerate(axes))
    sets = ", ".join(f"({', '.join(f'c{axes.index(axis)}' for axis in table)})" for table in tables)
    shown = ", ".join(f"c{place}" for place in range(len(axes)))
    source = f"(SELECT {coded} FROM ({rows}) AS b) AS c"  # noqa: S608  quoted names and our own words
    return f"SELECT {shown}, count(*) AS n FROM {source} GROUP BY GROUPING SETS ({sets})"  # noqa: S608  the same


def read_counts(found: pa.Table, axes: Sequence[Axis], tables: Sequence[tuple[Axis, ...]]) -> list[Counts]:
    """The counts of each table; a row belongs to that table whose columns are not null in it."""
    codes = [found.column(place).combine_chunks() for place in range(len(axes))]
    held = np.packbits([code.is_valid().to_numpy(zero_copy_only=False) for code in codes], axis=0)
    numbers = found["n"].to_numpy().astype(np.int64)
    plain = [code.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64) for code in codes]
    counted = []
    for table in tables:
        places = [axes.index(axis) for axis in table]
        own = np.packbits(np.isin(np.arange(len(axes)), places))[:, np.newaxis]
        rows = np.flatnonzero((held == own).all(axis=0))
        counts: Counts = np.zeros([max(axis[1]) + 1 for axis in table], dtype=np.int64)
        np.add.at(counts, tuple(plain[place][rows] for place in places), numbers[rows])
        counted.append(counts)
    return counted


@dataclass(frozen=True, slots=True, eq=False)
class RowsElsewhere:
    """Bounded rows that stay where they are: a statement that reads them, and what runs a statement there.

    What was counted is kept, so that a table is counted once.
    """

    statement: str
    run: Callable[[str], pa.Table]
    kept: dict[tuple[Axis, ...], Counts] = field(default_factory=dict, repr=False)

    def count(self, tables: Sequence[tuple[Axis, ...]]) -> list[Counts]:
        """How many rows have each combination of codes, for several tables. They are private."""
        new = [table for table in dict.fromkeys(tables) if table not in self.kept]
        for begin in range(0, len(new), MOST_TABLES):
            part = new[begin : begin + MOST_TABLES]
            axes = list(dict.fromkeys(axis for table in part for axis in table))
            found = self.run(render_counts(self.statement, axes, part))
            self.kept.update(zip(part, read_counts(found, axes, part), strict=True))
        return [self.kept[table] for table in tables]

    def encode(self, coded: Sequence[Coded]) -> CodesElsewhere:
        """The rows as codes of these attributes."""
        return CodesElsewhere(tuple((each, tuple(range(each.size))) for each in coded), self.count)

    def count_parts(self, attribute: Bins) -> Callable[[NDArray[np.int64], NDArray[np.int64]], Counts]:
        """What counts the rows on the steps from each first one up to each last one, which is left out."""

        def count(first: NDArray[np.int64], last: NDArray[np.int64]) -> Counts:
            edges = sorted({0, *first.tolist(), *last.tolist(), attribute.steps})
            places = {begin: part for part, begin in enumerate(first.tolist())}
            mapping = tuple(places.get(edge, first.size) for edge in edges[:-1])
            finer = replace(attribute, cuts=tuple(edges), nullable=True)
            return self.count([((finer, (*mapping, first.size)),)])[0][: first.size]

        return count


MOST_TABLES = 200
"""Tables that one statement counts."""
