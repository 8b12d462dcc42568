"""Encoding: values of a column become codes, and codes become values again, in the type that the policy declares.

Values outside the declaration count as null, or at the nearest bound. The type that a column has in its file or frame
is not kept: libraries infer it from the values (the places of a decimal, a number that is a float since one is
missing), so it would tell of single people."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.policy.schema import ColumnType
from deniable.synth import text_shapes
from deniable.synth.domain import Bins, Coded, Labels, ShapedText, Surrogate, arrow_type, surrogate_prefix

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
    numbers = _to_numbers(attribute, column)
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
