"""Generalized cells, read as an intruder reads them: which exact values lie within `1980s`, `[30, 40)`, `695**`, `*`.

Only spellings that a reader would understand are understood: a star for anything or for hidden characters, half-open
and closed intervals, `<=` and `>=`, years, decades, quarters, months and weeks of dates, and sets in braces. Whatever
else is written fits itself only."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date

import numba as nb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.attacks.codes import require_column
from deniable.attacks.outcome import Deadline

Fits = Callable[[str], bool]
_INTERVAL = re.compile(r"^([\[(])\s*(-?[\d.]+|-inf)\s*,\s*(-?[\d.]+|inf)\s*([\])])$")
_RANGE = re.compile(r"^(-?\d+(?:\.\d+)?)\s*(?:-|–|to)\s*(-?\d+(?:\.\d+)?)$")  # noqa: RUF001  a dash as people type it
_BEYOND = re.compile(r"^(<=|>=|<|>)\s*(-?[\d.]+)$")
_QUARTER = re.compile(r"^(\d{4})-Q([1-4])$")
_WEEK = re.compile(r"^(\d{4})-W(\d\d)$")
_DECADE = re.compile(r"^(\d{3})0s$")
_PERIOD = re.compile(r"^\d{4}(-\d\d)?$")
_STEP = 256


def parse_cell(cell: str) -> Fits | None:
    """Which values a generalized cell covers; None where the cell is a plain value.

    >>> parse_cell("[30, 40)")("39.5"), parse_cell("1980s")("1987-03-01"), parse_cell("695**")("69421"), parse_cell("M")
    (True, True, False, None)
    """
    if cell == "*":
        return lambda _: True
    for reading in (_parse_interval, _parse_open_end, _parse_calendar, _parse_hidden, _parse_set):
        if (found := reading(cell)) is not None:
            return found
    return None


def _parse_interval(cell: str) -> Fits | None:
    if found := _INTERVAL.match(cell):
        low, high = float(found[2]), float(found[3])
        closed = found[4] == "]"
        return lambda value: (
            (x := _parse_number(value)) is not None and low <= x and (x <= high if closed else x < high)
        )
    if (found := _RANGE.match(cell)) and float(found[1]) < float(found[2]) and not _PERIOD.match(cell):
        low, high = float(found[1]), float(found[2])
        return lambda value: (x := _parse_number(value)) is not None and low <= x <= high
    return None


def _parse_open_end(cell: str) -> Fits | None:
    if not (found := _BEYOND.match(cell)):
        return None
    end, sign = float(found[2]), found[1]
    tests = {"<=": float.__le__, ">=": float.__ge__, "<": float.__lt__, ">": float.__gt__}
    return lambda value: (x := _parse_number(value)) is not None and bool(tests[sign](x, end))


def _parse_calendar(cell: str) -> Fits | None:
    if decade := _DECADE.match(cell):
        three = decade[1]
        return lambda value: value.startswith(three)
    if _PERIOD.match(cell):  # a year or a month covers its days, and itself
        return lambda value: value == cell or value.startswith(cell + "-")
    if found := _QUARTER.match(cell):
        months = {f"{found[1]}-{month:02}" for month in range(3 * int(found[2]) - 2, 3 * int(found[2]) + 1)}
        return lambda value: value[:7] in months
    if found := _WEEK.match(cell):
        week = int(found[1]), int(found[2])
        return lambda value: _parse_week(value) == week
    return None


def _parse_hidden(cell: str) -> Fits | None:
    """Stars at an end hide one character each: 695** is 695 and two characters more."""
    if not cell.strip("*") or not (cell.startswith("*") or cell.endswith("*")):
        return None
    pattern = re.compile("".join("." if sign == "*" else re.escape(sign) for sign in cell))
    return lambda value: pattern.fullmatch(value) is not None


def _parse_set(cell: str) -> Fits | None:
    if cell.startswith("{") and cell.endswith("}"):
        members = {part.strip() for part in cell[1:-1].split(",")}
        return lambda value: value in members
    return None


def _parse_number(value: str) -> float | None:
    try:
        return float(value)
    except ValueError:
        return None


def _parse_week(value: str) -> tuple[int, int] | None:
    try:
        return date.fromisoformat(value[:10]).isocalendar()[:2]
    except ValueError:
        return None


def is_generalized(release: pa.Table, register: pa.Table, columns: Sequence[str]) -> bool:
    """Whether some cell of the release covers more than one value as the register writes it."""
    for name in columns:
        ours, theirs = require_column(release, name), require_column(register, name)
        if pa.types.is_string(ours.type) or pa.types.is_large_string(ours.type):
            known = set(_texts(theirs).to_pylist())
            cells = _texts(ours).to_pylist()
            if any(cell is not None and cell not in known and parse_cell(cell) is not None for cell in cells):
                return True
    return False


def _texts(values: pa.ChunkedArray) -> pa.Array:
    return pc.unique(values).cast(pa.string())


def match_entries(
    release: pa.Table, register: pa.Table, columns: Sequence[str], deadline: Deadline
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """For every row of the release the one entry of the register within it (else -1), and how many lie within."""
    covers, ours, theirs = [], [], []
    for name in columns:
        cover, left, right = _cover_values(require_column(release, name), require_column(register, name))
        covers.append(cover)
        ours.append(left)
        theirs.append(right)
    classes, of_row = np.unique(np.column_stack(ours), axis=0, return_inverse=True)
    entries = np.column_stack(theirs)
    offsets = np.cumsum([0, *(cover.size for cover in covers)])
    flat = np.concatenate([cover.reshape(-1) for cover in covers])
    widths = np.array([cover.shape[1] for cover in covers])
    row, many = np.full(len(classes), -1, np.int64), np.zeros(len(classes), np.int64)
    for start in range(0, len(classes), _STEP):
        deadline.check()
        _count_fitting(classes[start : start + _STEP], entries, flat, offsets, widths, row[start:], many[start:])
    row[many != 1] = -1
    return row[of_row.reshape(-1)], many[of_row.reshape(-1)]


def _cover_values(
    ours: pa.ChunkedArray, theirs: pa.ChunkedArray
) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
    """Which distinct value of the register each distinct cell of the release covers, and both columns as numbers."""
    left, right = (_encode_text(values) for values in (ours, theirs))
    cells, values = left.dictionary.to_pylist(), right.dictionary.to_pylist()
    place = {value: position for position, value in enumerate(values)}
    cover = np.zeros((len(cells) + 1, len(values) + 1), np.bool_)  # the last row and column are missing values
    for position, cell in enumerate(cells):
        if (test := parse_cell(cell)) is not None:
            cover[position, :-1] = [test(value) for value in values]
        elif cell in place:
            cover[position, place[cell]] = True
    numbers = [
        pc.fill_null(part.indices, len(part.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
        for part in (left, right)
    ]
    return cover, numbers[0], numbers[1]


def _encode_text(values: pa.ChunkedArray) -> pa.DictionaryArray:
    text = values.cast(pa.string()).combine_chunks()
    if isinstance(text, pa.ChunkedArray):
        text = text.chunk(0) if text.num_chunks else pa.array([], pa.string())
    return text.dictionary_encode()


@nb.njit(cache=True, nogil=True)
def _count_fitting(classes, entries, flat, offsets, widths, row, many):  # type: ignore[no-untyped-def]
    """Count the entries that lie within each class in all columns, and keep the last of them."""
    count, width = classes.shape
    for i in range(count):
        for j in range(entries.shape[0]):
            inside = True
            for q in range(width):
                if not flat[offsets[q] + classes[i, q] * widths[q] + entries[j, q]]:
                    inside = False
                    break
            if inside:
                many[i] += 1
                row[i] = j


def find_containing(
    release: pa.Table, targets: pa.Table, columns: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The class of every released row, and for each class (a row) which of the targets (a column) lie within it."""
    covers = [_cover_values(require_column(release, name), require_column(targets, name)) for name in columns]
    classes, of_row = np.unique(np.column_stack([ours for _, ours, _ in covers]), axis=0, return_inverse=True)
    within = np.ones((len(classes), targets.num_rows), np.bool_)
    for place, (cover, _, theirs) in enumerate(covers):
        within &= cover[classes[:, place]][:, theirs]
    return of_row.reshape(-1).astype(np.int64), within
