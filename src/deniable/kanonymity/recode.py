"""Recoding rows: batch by batch, in memory bounded by the batch and the number of released classes.

A row is generalized column by column; the row is released when its generalized tuple is that of a released class, and
suppressed otherwise. Values that were met once are remembered, so that a batch costs little more than its lookups.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import DataError
from deniable.kanonymity.builders.categories import Tree
from deniable.kanonymity.builders.leaves import text_of
from deniable.kanonymity.builders.specs import builder
from deniable.kanonymity.encode import distinct
from deniable.kanonymity.hierarchy import TOP, Codes, Hierarchy, Label
from deniable.kanonymity.recoding import ColumnRecoding, Form, Recoding, Suppressed

NUMERIC = frozenset({"rounding", "coordinates"})
"""Kinds of hierarchy whose generalized values are still numbers."""


class ColumnRecoder:
    """Generalizes one column: texts to numbers of labels, learning labels as values come."""

    def __init__(self, column: ColumnRecoding) -> None:
        self.column = column
        self.labels: list[Label] = []
        self.ends: list[tuple[float, float] | None] = []
        self.members: dict[Label, list[Label]] = {}
        self._number: dict[Label, int] = {}
        self._known: dict[Label, int] = {}
        self._builder = builder(column.spec)
        self._missing = -1

    def number(self, label: Label, ends: tuple[float, float] | None = None) -> int:
        """The number of a label, a new one when it was not met before."""
        found = self._number.get(label)
        if found is None:
            found = self._number[label] = len(self.labels)
            self.labels.append(label)
            self.ends.append(ends)
        elif ends is not None and self.ends[found] is None:
            self.ends[found] = ends
        return found

    def codes(self, column: pa.ChunkedArray) -> tuple[Codes, pa.Array, Codes]:
        """The number of every row's label, the distinct values, and the place of every row's among them."""
        values, positions = distinct(column)
        texts = text_of(values)
        new = [i for i, text in enumerate(texts) if text not in self._known]
        if new:
            self._learn(values.take(pa.array(new, pa.int64())))
        place = np.fromiter((self._known[text] for text in texts), np.int32, len(texts))
        return np.append(place, np.int32(self._missing_label()))[positions].astype(np.int32), values, positions

    def _learn(self, values: pa.Array) -> None:
        built = self._builder.hierarchy(self.column.name, values)
        level = built.levels[self.column.level]
        numbers = [self.number(label, _span(level.ends, g)) for g, label in enumerate(level.labels)]
        unknown = 0
        for text in text_of(values):
            code = built.code_of.get(text)
            if code is None:
                unknown += 1
                continue
            self._known[text] = numbers[int(level.groups[code])]
        if unknown:
            raise DataError(
                f"{unknown} values of column '{self.column.name}' are not among the leaves of its hierarchy",
                remedy="Add the leaves to the hierarchy, or set those cells to missing",
            )
        if isinstance(self._builder, Tree) and not self.members:
            self.members = _members(built, self.column.level)

    def _missing_label(self) -> int:
        if self._missing < 0:
            # A missing value stays missing below the level that says nothing, as the hierarchy itself has it.
            built = self._builder.hierarchy(self.column.name, pa.array([], pa.string())).with_missing()
            level = built.levels[self.column.level]
            self._missing = self.number(level.labels[level.groups[built.code_of[None]]])
        return self._missing


def _span(ends: NDArray[np.float64] | None, group: int) -> tuple[float, float] | None:
    return None if ends is None else (float(ends[group, 0]), float(ends[group, 1]))


def _members(built: Hierarchy, level: int) -> dict[Label, list[Label]]:
    held: dict[Label, list[Label]] = {}
    for row in built.rows():
        held.setdefault(row[level], []).append(row[0])
    return held


class Recoder:
    """Recodes batches of rows as a recoding says."""

    def __init__(self, recoding: Recoding) -> None:
        self.recoding = recoding
        self.columns = [ColumnRecoder(column) for column in recoding.columns]
        tuples = recoding.classes.tuples
        numbers = np.array(
            [[c.number(label) for c, label in zip(self.columns, labels, strict=True)] for labels in tuples], np.int64
        ).reshape(len(tuples), len(self.columns))
        self.index = ClassIndex(numbers)
        self.rows = self.suppressed = 0

    def stream(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Recode batch after batch; where every row is suppressed, one batch without rows shows the columns."""
        shape, shown = None, False
        for batch in batches:
            made = self.recode(pa.Table.from_batches([batch]))
            shape, shown = made.schema, shown or made.num_rows > 0
            yield from (part for part in made.to_batches() if part.num_rows)
        if shape is not None and not shown:
            yield pa.RecordBatch.from_pylist([], shape)

    def recode(self, table: pa.Table) -> pa.Table:
        """Recode a table."""
        coded = [c.codes(_column(table, c.column.name)) for c in self.columns]
        released = self.index.find([codes for codes, _, _ in coded]) >= 0
        self.rows += table.num_rows
        self.suppressed += int((~released).sum())
        out = self._rewritten(table, [codes for codes, _, _ in coded], released)
        return out.filter(pa.array(released)) if self.recoding.suppressed_rows is Suppressed.DROP else out

    def _rewritten(self, table: pa.Table, coded: list[Codes], released: NDArray[np.bool_]) -> pa.Table:
        own = {c.column.name: (c, codes) for c, codes in zip(self.columns, coded, strict=True)}
        star = self.recoding.suppressed_rows is Suppressed.STAR
        arrays: dict[str, pa.Array | pa.ChunkedArray] = {}
        kept = table.column_names if self.recoding.shown is None else (*own, *self.recoding.shown)
        for name in table.column_names:
            if name in self.recoding.removed or name not in kept:
                continue
            if name in own:
                recoder, codes = own[name]
                arrays |= self._written(recoder, codes, table[name], released if star else None)
            elif star and name in self.recoding.sensitive:
                arrays[name] = pc.if_else(pa.array(released), table[name], pa.scalar(None, table[name].type))
            else:
                arrays[name] = table[name]
        return pa.table(arrays)

    def _written(
        self, recoder: ColumnRecoder, codes: Codes, original: pa.ChunkedArray, released: NDArray[np.bool_] | None
    ) -> dict[str, pa.Array | pa.ChunkedArray]:
        column, form = recoder.column, self.recoding.form
        if column.level == 0 and released is None and not {"top", "bottom"} & set(column.spec.options):
            return {column.name: original}
        if form is Form.BOUNDS and any(recoder.ends):
            return _bounds(column.name, recoder, codes, released)
        texts = [_label(recoder, n, form) for n in range(len(recoder.labels))]
        if released is not None:
            texts, codes = [*texts, TOP], np.where(released, codes, len(texts)).astype(np.int32)
        dictionary = pa.array(texts, pa.string())
        made = pa.DictionaryArray.from_arrays(pa.array(codes), dictionary)
        if column.spec.kind in NUMERIC and form is Form.TEXT and released is None and TOP not in texts:
            return {column.name: pc.cast(dictionary, pa.float64()).take(pa.array(codes))}
        # A label that is None makes the cell missing, as it was.
        return {column.name: made if None not in texts else made.dictionary_decode()}


def _column(table: pa.Table, name: str) -> pa.ChunkedArray:
    from deniable.kanonymity.encode import column_of

    return column_of(table, name)


def _bounds(
    name: str, recoder: ColumnRecoder, codes: Codes, released: NDArray[np.bool_] | None
) -> dict[str, pa.Array | pa.ChunkedArray]:
    """Two columns of numbers; an end that is open, missing or suppressed is null."""
    spans = np.array([ends or (np.nan, np.nan) for ends in recoder.ends], np.float64).reshape(-1, 2)[codes]
    if released is not None:
        spans[~released] = np.nan
    return {
        f"{name}_{side}": pa.array(spans[:, i], mask=~np.isfinite(spans[:, i]))
        for i, side in enumerate(("low", "high"))
    }


def _label(recoder: ColumnRecoder, number: int, form: Form) -> Label:
    label = recoder.labels[number]
    if form is Form.JSON:
        return _json(recoder, number)
    members = recoder.members.get(label) if form is Form.SETS else None
    return "{" + ", ".join(str(member) for member in members) + "}" if members and len(members) > 1 else label


def _json(recoder: ColumnRecoder, number: int) -> Label:
    label, ends = recoder.labels[number], recoder.ends[number]
    if label is None or label == TOP:
        return label
    if ends is not None and ends[0] != ends[1]:
        low, high = (end if np.isfinite(end) else None for end in ends)
        return json.dumps({"low": low, "high": high})
    members = recoder.members.get(label)
    return json.dumps(members, ensure_ascii=False) if members and len(members) > 1 else label


class ClassIndex:
    """Finds the class of generalized tuples among known ones; -1 where there is none.

    Labels are packed into one 64-bit key. Where the next column would not fit, the key so far is replaced by its rank
    among those of the known classes, so that any number of columns can be looked up exactly.
    """

    def __init__(self, numbers: NDArray[np.int64]) -> None:
        self._spans = (numbers.max(axis=0, initial=0) + 1).tolist() if len(numbers) else [1] * numbers.shape[1]
        self._folds: dict[int, NDArray[np.int64]] = {}
        columns = [numbers[:, q] for q in range(numbers.shape[1])]
        keys, _ = self._packed(columns, learn=True)
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def _packed(
        self, columns: list[NDArray[np.int64]], *, learn: bool = False
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The keys of tuples, and which of them can be those of known classes."""
        key, span = np.zeros(len(columns[0]), np.int64), 1
        known = np.ones(len(key), np.bool_)
        for q, (column, size) in enumerate(zip(columns, self._spans, strict=True)):
            if span * size >= 2**62:
                if learn:
                    self._folds[q] = np.unique(key)
                fold = self._folds[q]
                place = np.minimum(np.searchsorted(fold, key), len(fold) - 1)
                known &= fold[place] == key
                key, span = place.astype(np.int64), len(fold)
            known &= column < size
            key, span = key * size + np.minimum(column, size - 1), span * size
        return key, known

    def find(self, columns: list[Codes]) -> NDArray[np.int64]:
        """The class of every row."""
        if not len(self._keys):
            return np.full(len(columns[0]), -1, np.int64)
        keys, known = self._packed([column.astype(np.int64) for column in columns])
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(known & (self._keys[place] == keys), self._order[place], -1)
