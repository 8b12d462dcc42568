"""A recoding: what was done to each column, the classes that were released, and how rows are recoded by it.

It is what `NAME.recoding.json` holds. It names no suppressed row and no value that the release does not show: for each
released class its generalized tuple, its size and the histogram of its sensitive values. That is enough to recode new
rows the same way, and to check what adding them does.

Rows are recoded batch by batch, in memory bounded by the batch and the number of released classes. A row is generalized
column by column; it is released when its generalized tuple is that of a released class, and suppressed otherwise.
Values that were met once are remembered, so that a batch costs little more than its lookups."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import DataError, pluralize
from deniable.kanonymity.builders.categories import Tree
from deniable.kanonymity.builders.exact import Edge, Number, is_held, make_exact, write_number
from deniable.kanonymity.builders.specs import make_builder
from deniable.kanonymity.encoding import column_of, factorize, plain_numbers
from deniable.kanonymity.hierarchy import TOP, Codes, Ends, Hierarchy, Label, text_of
from deniable.policy.schema import Frozen, Spec
from deniable.storage import whole_file

FORMAT = "deniable recoding 1"


class Form(StrEnum):
    """How generalized values are written."""

    TEXT = "text"
    """As people read them: [20, 30), 0213*, 1987-05."""
    BOUNDS = "bounds"
    """Intervals as two columns of numbers, NAME_low and NAME_high; everything else as text."""
    SETS = "sets"
    """Categories as sets of values, {Bergen, Oslo}: those of the group, or in a local recoding those of the class."""
    JSON = "json"
    """Intervals as {"low": 20, "high": 30} and groups of categories as lists of their members."""


class Suppressed(StrEnum):
    """What becomes of suppressed rows."""

    DROP = "drop"
    """They are left out (the default): what is released meets the models as it stands."""
    STAR = "star"
    """They stay, with * in every quasi-identifier and nothing in sensitive columns."""


@dataclass(frozen=True, slots=True)
class ColumnRecoding:
    """One quasi-identifier: the words of its hierarchy and the level it was generalized to."""

    name: str
    spec: Spec
    level: int
    height: int


@dataclass(frozen=True, slots=True)
class ReleasedClasses:
    """The classes that were released, as the release itself shows them."""

    tuples: tuple[tuple[Label, ...], ...]
    sizes: tuple[int, ...]
    values: Mapping[str, tuple[Mapping[str, int], ...]] = field(default_factory=Frozen)


@dataclass(frozen=True, slots=True)
class Recoding:
    """Everything needed to recode rows the same way, and to judge rows that are added.

    `shown` are the columns that leave as they are; a later table may have more, which are left out. None shows all but
    those `removed`. `person` tells people apart, where the release protects people, even if each had one row. `table`
    is DATASET/TABLE of the policy under which the release was made, and None without one.
    """

    columns: tuple[ColumnRecoding, ...]
    classes: ReleasedClasses
    sensitive: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    models: tuple[Spec, ...] = ()
    rows: int = 0
    suppressed: int = 0
    limit: float = 0.0
    form: Form = Form.TEXT
    suppressed_rows: Suppressed = Suppressed.DROP
    shown: tuple[str, ...] | None = None
    person: str | None = None
    table: str | None = None

    @property
    def levels(self) -> tuple[int, ...]:
        """The level of each quasi-identifier."""
        return tuple(column.level for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The quasi-identifiers."""
        return tuple(column.name for column in self.columns)


STEPS = {
    "rounding": "rounded down to multiples of {:g}",
    "order": "in groups of {:g}",
    "prefix": "the first {:g} characters",
    "geohash": "the first {:g} characters",
    "coordinates": "{:g} decimals",
}
"""How the numbers of a hierarchy are read; those of all others are widths."""


def name_level(level: int, column: Mapping[str, Any]) -> str:
    """A level of a column in words: by the name that the hierarchy gives it, or by how coarse it is.

    `column` is one of a recoding's document: its number of levels, and the words of its hierarchy.
    """
    last = column.get("levels", level + 2) - 1
    if level in (0, last):
        return "as it is" if level == 0 else "not at all"
    nothing: tuple[str, Mapping[str, Any]] = ("", {})
    kind, options = next(iter(column.get("hierarchy", {}).items()), nothing)
    lists = (options.get(word) for word in ("levels", "widths", "quantiles", "sizes", "to", "lengths", "digits"))
    named = next((each for each in lists if each), ())
    each = named[level - 1] if len(named) >= level else None
    if isinstance(each, str) and not each.isdecimal():
        return f"by {each.replace('_', ' ')}"
    if isinstance(each, str | Real | Decimal):
        words = "in {:g} groups of as many rows" if options.get("quantiles") else STEPS.get(kind, "in steps of {:g}")
        return words.format(float(each))
    if kind == "redact":
        return f"{level} of {options.get('width', last)} characters hidden"
    return f"level {level} of {last}"


def path_of_recoding(out: str | Path) -> Path:
    """Where the recoding of a release is kept, for its owner only."""
    out = Path(out)
    return out.with_name(out.name + ".recoding.json")


def write_recoding(recoding: Recoding, path: str | Path) -> None:
    """Write a recoding as JSON, for its owner only, whole or not at all."""
    with whole_file(Path(path)) as file:
        file.write(json.dumps(to_document(recoding), ensure_ascii=False).encode())


def read_recoding(path: str | Path) -> Recoding:
    """Read a recoding that was written."""
    path = Path(path)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.get("format") != FORMAT:
            raise ValueError
        return from_document(document)
    except FileNotFoundError:
        raise DataError(
            f"There is no recoding {path.name}", remedy="Point to the NAME.recoding.json written beside a release"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, UnicodeDecodeError):
        raise DataError(
            f"{path.name} is not a recoding of this version",
            expected=f"A file of format '{FORMAT}'",
            remedy="Name the file that was written beside the release, or anonymize the whole table again",
        ) from None


# a dictionary: the recoding's file, which `from_document` reads back
def to_document(recoding: Recoding) -> dict[str, Any]:
    """A recoding as plain JSON values."""
    return {
        "format": FORMAT,
        "columns": [
            {
                "name": column.name,
                "hierarchy": {column.spec.kind: _to_plain(column.spec.options)},
                "level": column.level,
                "levels": column.height,
            }
            for column in recoding.columns
        ],
        "sensitive": list(recoding.sensitive),
        "removed": list(recoding.removed),
        "shown": None if recoding.shown is None else list(recoding.shown),
        "models": [{model.kind: _to_plain(model.options)} for model in recoding.models],
        "rows": recoding.rows,
        "suppressed": recoding.suppressed,
        "limit": recoding.limit,
        "form": str(recoding.form),
        "suppressed_rows": str(recoding.suppressed_rows),
        "person": recoding.person,
        "table": recoding.table,
        "classes": {
            "tuples": [list(labels) for labels in recoding.classes.tuples],
            "sizes": list(recoding.classes.sizes),
            "values": {name: [dict(h) for h in held] for name, held in recoding.classes.values.items()},
        },
    }


def from_document(document: Mapping[str, Any]) -> Recoding:
    """A recoding from what `to_document` gave."""
    columns = tuple(
        ColumnRecoding(column["name"], _parse_spec(column["hierarchy"]), column["level"], column["levels"])
        for column in document["columns"]
    )
    held = document["classes"]
    values = {name: tuple(dict(h) for h in histograms) for name, histograms in held["values"].items()}
    classes = ReleasedClasses(tuple(tuple(t) for t in held["tuples"]), tuple(held["sizes"]), values)
    return Recoding(
        columns,
        classes,
        tuple(document["sensitive"]),
        tuple(document["removed"]),
        tuple(_parse_spec(model) for model in document["models"]),
        document["rows"],
        document["suppressed"],
        document["limit"],
        Form(document["form"]),
        Suppressed(document["suppressed_rows"]),
        None if document.get("shown") is None else tuple(document["shown"]),
        document.get("person"),
        document.get("table"),
    )


def _parse_spec(written: Mapping[str, Any]) -> Spec:
    ((kind, options),) = written.items()
    return Spec(kind, options)


def _to_plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _to_plain(held) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def choose_type(spec: Spec, original: pa.DataType) -> pa.DataType | None:
    """The type of generalized values that are still numbers; None where they are texts.

    Rounded whole numbers stay whole, and decimals decimals: floats would not hold them. With a top or bottom, some
    cells say a range.
    """
    steps = spec.options.get("to") if spec.kind == "rounding" else spec.options.get("digits")
    if spec.kind not in ("rounding", "coordinates") or any(spec.options.get(end) is not None for end in TAILS):
        return None
    if pa.types.is_floating(original):
        return pa.float64()
    if not (pa.types.is_integer(original) or pa.types.is_decimal(original)):
        return None
    places = max(_count_places(step) if spec.kind == "rounding" else int(step) for step in steps)  # type: ignore[attr-defined]
    if pa.types.is_integer(original) and not places:
        return pa.uint64() if original == pa.uint64() else pa.int64()
    whole = original.precision - original.scale if pa.types.is_decimal(original) else 20
    return pa.decimal128(38, places) if whole + 1 + places <= 38 else None


TAILS = ("bottom", "top")


def _count_places(step: Number) -> int:
    """How many digits a number has after the point."""
    parts = make_exact(step).denominator
    return next(n for n in range(parts.bit_length() + 1) if 10**n % parts == 0)


class ColumnRecoder:
    """Generalizes one column: texts to numbers of labels, learning labels as values come."""

    def __init__(self, column: ColumnRecoding) -> None:
        self.column = column
        self.labels: list[Label] = []
        self.ends: list[tuple[Edge, Edge] | None] = []
        self.members: dict[Label, list[Label]] = {}
        self._number: dict[Label, int] = {}
        self._known: dict[Label, int] = {}
        self._builder = make_builder(column.spec)
        self.as_it_is = column.level == 0
        """Whether every label is its value, so that the column leaves as it came."""

    def number(self, label: Label, ends: tuple[Edge, Edge] | None = None) -> int:
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
        values, positions = factorize(column)
        texts = text_of(values)
        new = [i for i, text in enumerate(texts) if text not in self._known]
        if new:
            self._learn_values(values.take(pa.array(new, pa.int64())))
        place = np.fromiter((self._known[text] for text in texts), np.int32, len(texts))
        return np.append(place, np.int32(self._find_missing_label()))[positions].astype(np.int32), values, positions

    def learn(self, built: Hierarchy) -> None:
        """Take the labels of all leaves of a hierarchy."""
        level = built.levels[self.column.level]
        numbers = [self.number(label, _find_span(level.ends, g)) for g, label in enumerate(level.labels)]
        self._known.update(zip(built.leaves, (numbers[g] for g in level.groups.tolist()), strict=True))
        self.as_it_is &= all(level.labels[g] == leaf for leaf, g in zip(built.leaves, level.groups, strict=True))
        if isinstance(self._builder, Tree) and not self.members:
            self.members = _collect_members(built, self.column.level)

    def _learn_values(self, values: pa.Array) -> None:
        self.learn(self._builder.hierarchy(self.column.name, values))
        unknown = sum(text not in self._known for text in text_of(values))
        if unknown:
            raise DataError(
                f"{pluralize(unknown, 'value')} of column '{self.column.name}' "
                f"{'is' if unknown == 1 else 'are'} not among the leaves of its hierarchy",
                remedy="Add the leaves to the hierarchy, or set those cells to missing",
            )

    def _find_missing_label(self) -> int:
        if None not in self._known:
            # A missing value stays missing below the level that says nothing, as the hierarchy itself has it.
            self.learn(self._builder.hierarchy(self.column.name, pa.array([], pa.string())).with_missing())
        return self._known[None]


def _find_span(ends: Ends | None, group: int) -> tuple[Edge, Edge] | None:
    return None if ends is None else tuple(ends[group].tolist())


def _collect_members(built: Hierarchy, level: int) -> dict[Label, list[Label]]:
    held: dict[Label, list[Label]] = {}
    for row in built.rows():
        held.setdefault(row[level], []).append(row[0])
    return held


class Recoder:
    """Recodes batches of rows as a recoding says.

    `hierarchies` are those that the recoding was found with: rows that it was found on become exactly what was judged.
    Without them labels are made anew from the recoding's words, for rows to come.
    """

    def __init__(self, recoding: Recoding, hierarchies: Sequence[Hierarchy] = ()) -> None:
        self.recoding = recoding
        self.columns = [ColumnRecoder(column) for column in recoding.columns]
        for column, built in zip(self.columns, hierarchies, strict=False):
            column.learn(built)
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
        coded = [c.codes(column_of(table, c.column.name)) for c in self.columns]
        released = self.index.find([codes for codes, _, _ in coded]) >= 0
        self.rows += table.num_rows
        self.suppressed += int((~released).sum())
        out = self._rewrite_table(table, [codes for codes, _, _ in coded], released)
        return out.filter(pa.array(released)) if self.recoding.suppressed_rows is Suppressed.DROP else out

    def is_released(self, table: pa.Table) -> NDArray[np.bool_]:
        """Whether the class of each row is released."""
        return np.asarray(self.index.find([c.codes(column_of(table, c.column.name))[0] for c in self.columns]) >= 0)

    def generalize(self, table: pa.Table) -> pa.Table:
        """Every row of a table as it would be written if its class were released."""
        coded = [c.codes(column_of(table, c.column.name))[0] for c in self.columns]
        return self._rewrite_table(table, coded, np.ones(table.num_rows, np.bool_))

    def _rewrite_table(self, table: pa.Table, coded: list[Codes], released: NDArray[np.bool_]) -> pa.Table:
        own = {c.column.name: (c, codes) for c, codes in zip(self.columns, coded, strict=True)}
        star = self.recoding.suppressed_rows is Suppressed.STAR
        arrays: dict[str, pa.Array | pa.ChunkedArray] = {}
        kept = table.column_names if self.recoding.shown is None else (*own, *self.recoding.shown)
        for name in table.column_names:
            if name in self.recoding.removed or name not in kept:
                continue
            if name in own:
                recoder, codes = own[name]
                arrays |= self._write_column(recoder, codes, table[name], released if star else None)
            elif star and name in self.recoding.sensitive:
                arrays[name] = pc.if_else(pa.array(released), table[name], pa.scalar(None, table[name].type))
            else:
                arrays[name] = table[name]
        return pa.table(arrays)

    def _write_column(
        self, recoder: ColumnRecoder, codes: Codes, original: pa.ChunkedArray, released: NDArray[np.bool_] | None
    ) -> dict[str, pa.Array | pa.ChunkedArray]:
        column, form = recoder.column, self.recoding.form
        if recoder.as_it_is and released is None:
            return {column.name: plain_numbers(original)}
        if form is Form.BOUNDS and any(recoder.ends):
            return _write_bounds(column.name, recoder, codes, released)
        texts = [_write_label(recoder, n, form) for n in range(len(recoder.labels))]
        if released is not None:
            texts, codes = [*texts, TOP], np.where(released, codes, len(texts)).astype(np.int32)
        dictionary = pa.array(texts, pa.string())
        made = pa.DictionaryArray.from_arrays(pa.array(codes), dictionary)
        kind = choose_type(column.spec, original.type) if form is Form.TEXT else None
        if kind is not None and released is None and TOP not in texts:
            return {column.name: _cast_texts(column.name, dictionary, kind).take(pa.array(codes))}
        # A label that is None makes the cell missing, as it was.
        return {column.name: made if None not in texts else made.dictionary_decode()}


def _cast_texts(name: str, texts: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return pc.cast(texts, kind)
    except pa.ArrowInvalid:
        raise DataError(
            f"A number of column '{name}', rounded down, is below all whole numbers of 64 bits",
            expected="Multiples that are at least -2^63",
            remedy="Round to smaller multiples, or declare intervals",
        ) from None


def _write_bounds(
    name: str, recoder: ColumnRecoder, codes: Codes, released: NDArray[np.bool_] | None
) -> dict[str, pa.Array | pa.ChunkedArray]:
    """Two columns of numbers; an end that is open, missing or suppressed is null."""
    if not all(is_held(end) for ends in recoder.ends if ends is not None for end in ends):
        raise DataError(
            f"The intervals of column '{name}' end at numbers that no column of floating-point numbers holds",
            expected="Numbers below 2^53, or of at most 15 digits",
            remedy="Write intervals as text or as JSON: --form text or --form json",
        )
    spans = np.array([ends or (np.nan, np.nan) for ends in recoder.ends], np.float64).reshape(-1, 2)[codes]
    if released is not None:
        spans[~released] = np.nan
    return {
        f"{name}_{side}": pa.array(spans[:, i], mask=~np.isfinite(spans[:, i]))
        for i, side in enumerate(("low", "high"))
    }


def _write_label(recoder: ColumnRecoder, number: int, form: Form) -> Label:
    label = recoder.labels[number]
    if form is Form.JSON:
        return _write_json(recoder, number)
    members = recoder.members.get(label) if form is Form.SETS else None
    return "{" + ", ".join(str(member) for member in members) + "}" if members and len(members) > 1 else label


def _write_json(recoder: ColumnRecoder, number: int) -> Label:
    label, ends = recoder.labels[number], recoder.ends[number]
    if label is None or label == TOP:
        return label
    if ends is not None and ends[0] != ends[1]:
        low, high = map(_write_end, ends)
        return f'{{"low": {low}, "high": {high}}}'
    members = recoder.members.get(label)
    return json.dumps(members, ensure_ascii=False) if members and len(members) > 1 else label


def _write_end(end: Edge) -> str:
    if isinstance(end, float):
        return json.dumps(end if math.isfinite(end) else None)
    return write_number(end)


class ClassIndex:
    """Finds the class of generalized tuples among known ones; -1 where there is none.

    Labels are packed into one 64-bit key. Where the next column would not fit, the key so far is replaced by its rank
    among those of the known classes, so that any number of columns can be looked up exactly.
    """

    def __init__(self, numbers: NDArray[np.int64]) -> None:
        self._spans = (numbers.max(axis=0, initial=0) + 1).tolist() if len(numbers) else [1] * numbers.shape[1]
        self._folds: dict[int, NDArray[np.int64]] = {}
        columns = [numbers[:, q] for q in range(numbers.shape[1])]
        keys, _ = self._pack_keys(columns, learn=True)
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def _pack_keys(
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
        keys, known = self._pack_keys([column.astype(np.int64) for column in columns])
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(known & (self._keys[place] == keys), self._order[place], -1)
