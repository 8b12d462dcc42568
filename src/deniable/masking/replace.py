"""Masks that put something else in a value's place: redact, nullify, constant, and regular expressions.

None of them needs a key. What they leave standing (a first letter, a last digit, a length) is left to everybody, so a
value that a pattern does not fit is not passed through by the presets: it is redacted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from deniable.errors import DataError, ParameterError, nearest
from deniable.masking import columns
from deniable.policy.masks import PRESETS

PUT = "***"


def is_text(kind: pa.DataType) -> bool:
    """Whether a column of this type can hold a replacement text."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(value) or pa.types.is_large_string(value))


@dataclass(frozen=True, slots=True)
class Redact:
    """Replace every value by the same text, keeping some first or last characters where asked.

    A value not longer than what would be kept is replaced whole. A column that is not text becomes null. **Holds:**
    nothing of the value stays but what was asked for. **Falls to:** guessing from what was kept.
    """

    put: str = PUT
    keep_first: int = 0
    keep_last: int = 0

    def apply(self, values: pa.Array, _rows: pa.RecordBatch | None = None) -> pa.Array:
        """The redacted column; null stays null."""
        if not is_text(values.type):
            return Nullify().apply(values)
        if not (self.keep_first or self.keep_last):
            return columns.with_nulls_of(Constant(self.put).apply(values), values)
        return each_distinct(values, self._one)

    def _one(self, value: str) -> str:
        if len(value) <= self.keep_first + self.keep_last:
            return self.put
        return value[: self.keep_first] + self.put + value[len(value) - self.keep_last :]


@dataclass(frozen=True, slots=True)
class Nullify:
    """Replace every value by null; the column keeps its type."""

    def apply(self, values: pa.Array, _rows: pa.RecordBatch | None = None) -> pa.Array:
        """A column of nulls."""
        return pa.nulls(len(values), values.type)


@dataclass(frozen=True, slots=True)
class Constant:
    """Replace every value, null or not, by one of the column's own type."""

    value: object

    def apply(self, values: pa.Array, _rows: pa.RecordBatch | None = None) -> pa.Array:
        """The constant, as often as there are rows."""
        try:
            one = pa.array([self.value]).cast(values.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            raise DataError(
                f"the constant of the policy does not fit a column of type {values.type}",
                remedy="Write a constant of the column's own type",
            ) from None
        return pa.repeat(one[0], len(values))


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Replace what a regular expression finds.

    `unmatched` says what becomes of a value in which nothing was found: keep, redact or nullify. **Falls to:** whatever
    the expression leaves standing.
    """

    find: str
    put: str
    unmatched: str = "keep"

    def apply(self, values: pa.Array, _rows: pa.RecordBatch | None = None) -> pa.Array:
        """The rewritten column; null stays null."""
        if not is_text(values.type):
            raise DataError(f"a regular expression was asked for on a column of type {values.type}", expected="Text")
        found = re.compile(self.find)

        def one(value: str) -> str | None:
            changed, times = found.subn(self.put, value)
            return changed if times else self._without_match(value)

        return each_distinct(values, one)

    def _without_match(self, value: str) -> str | None:
        return {"keep": value, "redact": PUT, "nullify": None}[self.unmatched]


def preset(name: str, unmatched: str = "redact") -> Rewrite:
    """A known expression by its name; values it does not fit are redacted unless told otherwise."""
    for known in PRESETS:
        if known.name == name:
            return Rewrite(known.find, known.put, unmatched)
    names = [known.name for known in PRESETS]
    raise ParameterError(
        f"there is no preset '{name}'", expected=f"One of {', '.join(names)}", remedy=nearest(name, names)
    )


def each_distinct(values: pa.Array, one: Callable[[str], str | None]) -> pa.Array:
    """A text column changed value by value, each distinct value once; null stays null."""
    encoded = columns.as_text(values).dictionary_encode()
    changed = pa.array([one(value) for value in encoded.dictionary.to_pylist()], pa.large_string())
    return columns.restored(changed.take(encoded.indices), values.type)
