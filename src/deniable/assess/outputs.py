"""Outputs of any kind as tables of numbers, for an audit: numbers, texts, lists, mappings, and what is inside them."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.errors import ParameterError

Outputs = Sequence[Any] | NDArray[Any]
MOST_COLUMNS, FEW_COLUMNS = 1000, 64
"""Of outputs with more entries, those that occur most are looked at."""


def tabulate_outputs(first: Outputs, second: Outputs) -> tuple[NDArray[Any], NDArray[Any], tuple[str, ...]]:
    """Outputs as two tables of numbers with the same columns.

    Lists have a column for each place and mappings one for each key, missing where an output has none; texts that are
    no numbers become numbers of their own, beside their length, their letters, their ends and the numbers inside them,
    and a text of several lines counts each of its lines. What a float cannot hold of a number has a column of its own.

    >>> tabulate_outputs([{"a": 1}, {"a": 2, "b": "x"}], [{"a": 0}])[2]
    ('output a', 'output b', 'output b first', 'output b last', 'output b length', 'output b letters', 'output entries')
    """
    arrays = [side for side in (first, second) if isinstance(side, np.ndarray) and side.dtype.kind in "iufb"]
    arrays = [side for side in arrays if side.dtype.kind == "f" or not (np.abs(side.astype(float)) > LARGEST).any()]
    if len(arrays) == 2 and arrays[0].ndim == arrays[1].ndim <= 2:
        return arrays[0].reshape(len(arrays[0]), -1), arrays[1].reshape(len(arrays[1]), -1), ()
    listed = [[dict(_flatten("", output)) for output in side] for side in (first, second)]
    seen = Counter(name for side in listed for output in side for name in output)
    once = 1 if len(seen) > FEW_COLUMNS else 0  # of many entries, those that are seen once say nothing
    names = sorted(name for name, times in seen.most_common(MOST_COLUMNS) if times > once)
    tables = [_build_table(side, names) for side in listed]
    if tables[0].dtype != tables[1].dtype or tables[0].dtype.kind == "O":
        rounded = sorted({name for side in listed for output in side for name in names if _rest(output.get(name))})
        floats = [[[_round(output.get(name)) for name in names] for output in side] for side in listed]
        rests = [[[_rest(output.get(name)) for name in rounded] for output in side] for side in listed]
        tables = [np.hstack((np.array(f, float), np.array(r, float))) for f, r in zip(floats, rests, strict=True)]
        names += [f"{name} beyond 53 bits" for name in rounded]
    if any(count < sum(map(len, listed)) for count in seen.values()):
        lengths = [np.array([[len(output)] for output in side], tables[0].dtype) for side in listed]
        names, tables = [*names, "entries"], [np.hstack(pair) for pair in zip(tables, lengths, strict=True)]
    return tables[0], tables[1], tuple(f"output {name}".strip() for name in names)


Exact = int | float | Fraction
NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
DIGITS = re.compile(r"\d+")
MOST_INSIDE = 64
"""Of the numbers inside a text, so many are looked at one by one."""
LARGEST = 2**53
"""Up to here a float holds every whole number."""


def _build_table(side: Sequence[Mapping[str, Exact]], names: Sequence[str]) -> NDArray[Any]:
    """Whole numbers as such, where there is nothing else."""
    table = np.array([[output.get(name, np.nan) for name in names] for output in side], object)
    whole = all(isinstance(value, int) and abs(value) <= LARGEST for value in table.flat)
    return table.astype(np.int64) if whole else table


def _round(value: Exact | None) -> float:
    """The nearest float; beyond all of them, the infinite one."""
    try:
        return math.nan if value is None else float(value)
    except OverflowError:
        return math.inf if value is not None and value > 0 else -math.inf


def _rest(value: Exact | None) -> float:
    """What a number has beyond its nearest float; of one beyond all floats, its lowest digits."""
    if value is None or isinstance(value, float) or (isinstance(value, int) and abs(value) <= LARGEST):
        return 0.0
    nearest_float = _round(value)
    return float(value - Fraction(nearest_float)) if math.isfinite(nearest_float) else float(value % 2**48)


def _flatten(name: str, output: Any) -> Iterator[tuple[str, Exact]]:
    """The numbers of an output, each with the way to it."""
    if isinstance(output, Mapping):
        for key, value in output.items():
            yield from _flatten(f"{name}.{key}" if name else str(key), value)
    elif isinstance(output, list | tuple | np.ndarray):
        for place, value in enumerate(output):
            yield from _flatten(f"{name}.{place + 1}" if name else str(place + 1), value)
    elif isinstance(output, str):
        yield from _read_text(name, output)
    else:
        yield name, _convert(output)


def _read_text(name: str, text: str) -> Iterator[tuple[str, Exact]]:
    """A text as the number it is; or as a number of its own (or how often it has each line) and all numbers inside."""
    if (number := _parse_number(text)) is not None:
        yield name, number
        return
    if "\n" in text.strip():
        for line, times in Counter(text.strip().splitlines()).items():
            yield f"{name} lines '{line}'".strip(), times
    else:
        yield name, _number_text(text)
        yield f"{name} length".strip(), len(text)
        yield f"{name} letters".strip(), _number_text(DIGITS.sub("", text))  # 'Ann123' and 'Ann456' are alike
        for end, character in (("first", text[:1]), ("last", text[-1:])):
            yield f"{name} {end}".strip(), ord(character or "\0")
    for place, found in enumerate(islice(NUMBER.finditer(text), MOST_INSIDE)):
        inside = _parse_number(found[0])
        if inside is not None:
            yield f"{name} number {place + 1}".strip(), inside


def _number_text(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "big")


def _parse_number(text: str) -> int | float | None:
    try:
        return int(text) if text.strip().lstrip("+-").isdecimal() else float(text)
    except ValueError:
        return None


def _convert(value: Any) -> Exact:
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        return math.nan
    if isinstance(value, date | datetime):
        return float(value.toordinal()) + (value.hour / 24 if isinstance(value, datetime) else 0.0)
    if isinstance(value, Decimal):
        return Fraction(value) if value.is_finite() else float(value)
    if isinstance(value, int | float | Fraction):
        return int(value) if isinstance(value, bool) else value
    raise ParameterError(
        "an output is not made of numbers and texts",
        expected="Numbers, texts, lists or mappings",
        remedy="Let the program give those",
    )
