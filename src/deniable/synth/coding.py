"""Coding: values of a column become codes, and codes become values of the same type again.

Values outside the declaration count as null, or at the nearest bound.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.policy.schema import ColumnType
from deniable.synth import shapes
from deniable.synth.attributes import Bins, Coded, Labels, Made, Shaped, arrow_type, prefix


def encode(attribute: Coded, values: pa.ChunkedArray | pa.Array) -> NDArray[np.int32]:
    """Codes of a column; null is the last code, and where null is not declared it becomes code 0."""
    column = whole(values)
    missing = attribute.size - 1 if attribute.nullable else 0
    match attribute:
        case Labels():
            return _listed(attribute, column, missing)
        case Shaped():
            found = shapes.matched(column.cast(pa.string()).fill_null(""), attribute.shapes)
            return np.where(column.is_null().to_numpy(zero_copy_only=False), missing, found).astype(np.int32)
        case Bins():
            steps, null = places(attribute, column)
            codes = np.searchsorted(np.array(attribute.cuts), steps, side="right") - 1
            return np.where(null, missing, codes).astype(np.int32)


def whole(values: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece, without a dictionary."""
    column = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _listed(attribute: Labels, column: pa.Array, missing: int) -> NDArray[np.int32]:
    index = {label: code for code, label in enumerate(attribute.labels)}
    encoded = column.dictionary_encode()
    table = np.array([index.get(v, missing) for v in encoded.dictionary.to_pylist()] + [missing], dtype=np.int32)
    at = encoded.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)
    return np.asarray(table[at.astype(np.int64)], dtype=np.int32)


def places(attribute: Bins, column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The step on which each value falls, and which are null."""
    numbers = _numbers(attribute, column)
    steps = np.rint((numbers - float(attribute.lower)) / float(attribute.step))
    inside = np.clip(np.nan_to_num(steps, nan=0.0), 0, attribute.steps - 1).astype(np.int64)
    return inside, np.isnan(numbers)


def _numbers(attribute: Bins, column: pa.Array) -> NDArray[np.float64]:
    if attribute.type is ColumnType.DATE:
        column = column.cast(pa.date32()).cast(pa.int32())
    elif attribute.type is ColumnType.DATETIME:
        column = column.cast(pa.timestamp("s"), safe=False).cast(pa.int64())
    filled = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.asarray(filled, dtype=np.float64)


def decode(attribute: Coded, codes: NDArray[np.int32], generator: np.random.Generator) -> pa.Array:
    """Values of codes, in the column's own type; inside a bin every step is as likely, and so is every letter."""
    if isinstance(attribute, Bins):
        return _unbinned(attribute, codes, generator)
    if isinstance(attribute, Shaped):
        return _texts(attribute, codes, generator)
    listed = pa.array([*attribute.labels, *([None] if attribute.nullable else [])], arrow_type(attribute))
    return listed.take(pa.array(codes))


def anew(attribute: Made, after: int, records: int, total: int) -> pa.Array:
    """The values that follow the first `after` of a total: numbered on, so that none comes twice."""
    numbers = pa.array(np.arange(after + 1, after + records + 1))
    if attribute.type is ColumnType.INTEGER:
        return numbers
    return _stamped(attribute.prefix, numbers, len(str(max(total, 1))))


def _stamped(before: str, numbers: pa.Array, width: int) -> pa.Array:
    return pc.binary_join_element_wise(before, pc.utf8_lpad(numbers.cast(pa.string()), width, "0"), "")


def _texts(attribute: Shaped, codes: NDArray[np.int32], generator: np.random.Generator) -> pa.Array:
    """Texts of each shape; those of no learned shape are stamped with a number, so that they differ."""
    order = np.argsort(codes, kind="stable")
    sizes = np.bincount(codes, minlength=attribute.size)
    parts = [shapes.made(shape, int(size), generator) for shape, size in zip(attribute.shapes, sizes, strict=False)]
    others = int(sizes[len(attribute.shapes)])
    parts.append(_stamped(prefix(attribute.name), pa.array(generator.integers(0, 10**9, others)), 9))
    parts += [pa.nulls(int(size), pa.string()) for size in sizes[len(attribute.labels) :]]
    back = np.empty(codes.size, dtype=np.int64)
    back[order] = np.arange(codes.size)
    return pa.concat_arrays(parts).take(pa.array(back))


def _unbinned(attribute: Bins, codes: NDArray[np.int32], generator: np.random.Generator) -> pa.Array:
    return typed(attribute, *steps_of(attribute, codes, generator))


def steps_of(
    attribute: Bins, codes: NDArray[np.int32], generator: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """A step for each code, any of its bin, and which codes are null."""
    missing = codes >= attribute.bins
    bins = np.where(missing, 0, codes).astype(np.int64)
    cuts = np.array(attribute.cuts, dtype=np.int64)
    first, after = cuts[bins], cuts[bins + 1]
    return first + (generator.random(codes.size) * (after - first)).astype(np.int64), missing


def typed(attribute: Bins, place: NDArray[np.int64], missing: NDArray[np.bool_]) -> pa.Array:
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
            # Divide once at the end, so that 0.01 steps come out as the nearest decimals.
            numerator = place * attribute.step.numerator
            values = float(attribute.lower) + numerator / attribute.step.denominator
            return pa.array(values, pa.float64(), mask=missing)
