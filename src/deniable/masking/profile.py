"""What detection looks at: each column of a sample, reduced to distinct values, counts and shapes.

A profile holds values, so it never leaves this room: findings carry shares and names only.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deniable.masking import columns

LOOKED_AT = 2_000  # distinct values that are tested one by one
_DIGIT = re.compile(r"\d")
_LOWER = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True)
class Profile:
    """One column of a sample."""

    name: str
    type: pa.DataType
    rows: int
    nulls: int
    distinct: int
    values: tuple[str, ...] = field(repr=False)

    @property
    def filled(self) -> int:
        """Rows that hold a value."""
        return self.rows - self.nulls

    @property
    def ratio(self) -> float:
        """Distinct values for each row that holds one."""
        return self.distinct / self.filled if self.filled else 0.0

    @property
    def words(self) -> str:
        """The column's name as lower-case words: birthDate, BIRTH_DATE and birth-date become 'birth date'."""
        split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", self.name)
        return re.sub(r"[^a-z0-9]+", " ", split.lower()).strip()

    @property
    def textual(self) -> bool:
        """Whether the column is text."""
        return bool(pa.types.is_string(self.type) or pa.types.is_large_string(self.type))

    @property
    def whole(self) -> bool:
        """Whether the column is whole numbers."""
        return bool(pa.types.is_integer(self.type))

    @property
    def numeric(self) -> bool:
        """Whether the column is numbers of any kind."""
        return bool(self.whole or pa.types.is_floating(self.type) or pa.types.is_decimal(self.type))

    @property
    def dated(self) -> bool:
        """Whether the column is dates or timestamps."""
        return bool(pa.types.is_date(self.type) or pa.types.is_timestamp(self.type))

    @cached_property
    def shape_share(self) -> tuple[str, float]:
        """The most frequent shape (digits as 9, words as A) and its share among the distinct values looked at."""
        shapes = Counter(_LOWER.sub("A", _DIGIT.sub("9", value)) for value in self.values)
        if not shapes:
            return "", 0.0
        shape, count = shapes.most_common(1)[0]
        return shape, count / len(self.values)

    @cached_property
    def mean_words(self) -> float:
        """Words in a value, on average."""
        return float(np.mean([len(value.split()) for value in self.values])) if self.values else 0.0


def profiles(sample: pa.Table) -> tuple[Profile, ...]:
    """The profile of every column."""
    return tuple(_profile(name, sample.column(name)) for name in sample.schema.names)


def _profile(name: str, column: pa.ChunkedArray) -> Profile:
    values = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    distinct = pc.unique(values.drop_null())
    step = max(1, len(distinct) // LOOKED_AT)
    looked = distinct.take(pa.array(np.arange(0, len(distinct), step)[:LOOKED_AT]))
    if pa.types.is_floating(kind):
        texts = tuple(repr(value) for value in looked.to_pylist())
    else:
        texts = tuple(columns.as_text(looked).to_pylist())
    return Profile(name, kind, len(values), values.null_count, len(distinct), texts)
