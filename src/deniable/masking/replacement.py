"""Masks that put something else in a value's place: redact, nullify, constant, regular expressions, scrubbed text.

None of them needs a key. What they leave standing (a first letter, a last digit, a length) is left to everybody, so a
value that a pattern does not fit is not passed through by the presets: it is redacted.

Free text is searched as one long text, its values side by side with a NUL between them, so that each pattern starts
once a column and not once a value; what one kind has claimed the next ones leave alone. Names are found by a model that
misses some: a text that was scrubbed may still say who it is about, and the report says so."""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import pyarrow as pa

from deniable.errors import DataError, ParameterError, nearest
from deniable.masking import columns
from deniable.masking.text_search import Span, search_kinds
from deniable.policy.check.patterns import find_explosion, find_template_mistake
from deniable.policy.layout.masks import PRESETS

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
        return map_distinct(values, self._one)

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

    def __post_init__(self) -> None:
        trouble = find_template_mistake(self.find, self.put) or find_explosion(self.find)
        if trouble:
            raise ParameterError(
                f"a regular expression of a mask cannot be used: {trouble}",
                remedy="Change 'find' or 'put'; `deniable policy check` says where they stand",
            )

    def apply(self, values: pa.Array, _rows: pa.RecordBatch | None = None) -> pa.Array:
        """The rewritten column; null stays null."""
        if not is_text(values.type):
            raise DataError(
                f"a regular expression was asked for on a column of type {values.type}",
                expected="Text",
                remedy=columns.OTHER_MASK,
            )
        found = re.compile(self.find)

        def one(value: str) -> str | None:
            changed, times = found.subn(self.put, value)
            return changed if times else self._without_match(value)

        return map_distinct(values, one)

    def _without_match(self, value: str) -> str | None:
        return {"keep": value, "redact": PUT, "nullify": None}[self.unmatched]


def make_preset(name: str, unmatched: str = "redact") -> Rewrite:
    """A known expression by its name; values it does not fit are redacted unless told otherwise."""
    for known in PRESETS:
        if known.name == name:
            return Rewrite(known.find, known.put, unmatched)
    names = [known.name for known in PRESETS]
    raise ParameterError(
        f"there is no preset '{name}'", expected=f"One of {', '.join(names)}", remedy=nearest(name, names)
    )


def map_distinct(values: pa.Array, one: Callable[[str], str | None]) -> pa.Array:
    """A text column changed value by value, each distinct value once; null stays null."""
    encoded = columns.as_text(values).dictionary_encode()
    changed = pa.array([one(value) for value in encoded.dictionary.to_pylist()], pa.large_string())
    return columns.restore_type(changed.take(encoded.indices), values.type)


GAP = "\0"
_BLANKED = {0: " ", 1: " ", 2: " "}  # signs that the search uses for itself


@dataclass(frozen=True, slots=True)
class Scrub:
    """Replace identifiers inside free text.

    **Holds:** what its patterns know is gone, and most names, and the row's own identifiers (of the columns `own`),
    however they are spaced. **Falls to:** the names that the model misses, and every identifier of somebody else that
    is written in a way that no pattern expects. `put` None writes the kind in brackets.
    """

    find: tuple[str, ...] = ()
    put: str | None = None
    extra: Callable[[Sequence[str]], list[list[Span]]] | None = field(default=None, repr=False)
    own: tuple[str, ...] = ()

    def apply(self, values: pa.Array, rows: pa.RecordBatch | None = None) -> pa.Array:
        """The scrubbed column; null stays null."""
        if not is_text(values.type):
            raise DataError(
                f"a column of type {values.type} cannot be scrubbed", expected="Text", remedy=columns.OTHER_MASK
            )
        encoded = columns.as_text(values).dictionary_encode()
        texts = encoded.dictionary.to_pylist()
        found = _find_all(texts, self.find, self.extra)
        clean = [_replace_spans(text, spans, self.put) for text, spans in zip(texts, found, strict=True)]
        own = self._list_own(values, rows)
        if not own:
            return columns.restore_type(pa.array(clean, pa.large_string()).take(encoded.indices), values.type)
        scrubbed: list[str | None] = []
        for place, *sought in zip(encoded.indices.to_pylist(), *own, strict=True):
            spans = [] if place is None else [span for each in sought for span in _find_spaced(texts[place], each)]
            if spans:
                scrubbed.append(_replace_spans(texts[place], _join_spans([*found[place], *spans]), self.put))
            else:
                scrubbed.append(None if place is None else clean[place])
        return columns.restore_type(pa.array(scrubbed, pa.large_string()), values.type)

    def _list_own(self, values: pa.Array, rows: pa.RecordBatch | None) -> list[list[str | None]]:
        """The identifiers of the rows; a column of identifiers is not searched for its own."""
        named = [name for name in self.own if rows is not None and name in rows.schema.names]
        sought = [rows.column(name) for name in named if rows is not None and rows.column(name) is not values]
        return [columns.as_text(each).to_pylist() for each in sought if not each.equals(values)]


LEAST_SPACED, LEAST_WHOLE = 6, 4
"""An own identifier of so many letters and digits is found wherever it stands, a shorter one where it stands alone."""
OWN = "identifier"
LONGEST_GAP = 9
"""So many signs may stand between two letters or digits of an own identifier, or as many as it has itself."""


class _Folds(dict[int, str]):
    """Each character as it is compared: letters and digits in one spelling, anything else a space, marks nothing.

    A character can become several, such as ss of ß, fi of a ligature and 12 of ½.
    """

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        apart = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", sign).casefold())
        plain = "".join(str(unicodedata.decimal(each, each)) for each in apart if each.isalnum())
        folded = plain.replace("\u0131", "i")  # i without a dot, whose capital is I
        self[code] = folded or ("" if unicodedata.category(sign)[0] == "M" else " ")
        return self[code]


_FOLDS = _Folds()


def _find_spaced(text: str, own: str | None) -> list[Span]:
    """Where an identifier stands in a text, whatever signs and spaces stand between its letters and digits.

    Capitals and accents make no difference, nor does ss for ß, and digits of all scripts are one.

    >>> _find_spaced("No. 12 34-56 came", "123456")
    [Span(start=4, end=12, kind='identifier')]
    >>> _find_spaced("Frau GROßMANN", "Grossmann")
    [Span(start=5, end=13, kind='identifier')]
    """
    if own is None:
        return []
    parts = own.translate(_FOLDS).strip()
    sought = parts.replace(" ", "").lstrip("0")
    if len(sought) < LEAST_WHOLE:
        return []
    folded = text.translate(_FOLDS)
    if sought not in folded.replace(" ", ""):
        return []
    gap = f" {{0,{max([LONGEST_GAP, *map(len, re.findall(' +', parts))])}}}"
    spaced = f"(?:0{gap}){{0,9}}" + gap.join(map(re.escape, sought))
    alone = spaced if len(sought) >= LEAST_SPACED else rf"(?<![^ ]){spaced}(?![^ ])"
    ends = list(accumulate(len(_FOLDS[ord(each)]) for each in text))  # where the folded text ends after each character
    return [
        Span(bisect_right(ends, found.start()), _find_end(text, bisect_left(ends, found.end()) + 1), OWN)
        for found in re.finditer(alone, folded)
    ]


def _find_end(text: str, end: int) -> int:
    """The end of a span with the marks that belong to its last letter."""
    while end < len(text) and not _FOLDS[ord(text[end])]:
        end += 1
    return end


def _join_spans(spans: list[Span]) -> list[Span]:
    """Spans in their order, those that overlap as one: of the kind of the longest."""
    joined: list[tuple[Span, int]] = []
    for span in sorted(spans, key=lambda one: (one.start, -one.end)):
        size = span.end - span.start
        if joined and span.start < joined[-1][0].end:
            last, longest = joined[-1]
            kind = span.kind if size > longest else last.kind
            joined[-1] = (Span(last.start, max(last.end, span.end), kind), max(longest, size))
        else:
            joined.append((span, size))
    return [span for span, _ in joined]


def scrub_texts(
    texts: Sequence[str],
    kinds: Sequence[str] = (),
    put: str | None = None,
    extra: Callable[[Sequence[str]], list[list[Span]]] | None = None,
) -> list[str]:
    """The texts with what was found replaced; `extra` is another searcher, whose spans fill what ours left.

    >>> scrub_texts(["Call (202) 224-3121 or write to ann@example.org"])
    ['Call [phone] or write to [email]']
    """
    found = _find_all(texts, kinds, extra)
    return [_replace_spans(text, spans, put) for text, spans in zip(texts, found, strict=True)]


def _find_all(
    texts: Sequence[str], kinds: Sequence[str], extra: Callable[[Sequence[str]], list[list[Span]]] | None
) -> list[list[Span]]:
    found = find_spans(texts, kinds)
    if extra is None:
        return found
    return [_merge_spans(ours, theirs) for ours, theirs in zip(found, extra(texts), strict=True)]


def _merge_spans(ours: list[Span], theirs: list[Span]) -> list[Span]:
    """All spans of ours, and those of another searcher that overlap none of what is there already."""
    kept = list(ours)
    for span in sorted(theirs, key=lambda one: one.start - one.end):
        if all(span.end <= other.start or other.end <= span.start for other in kept):
            kept.append(span)
    return sorted(kept, key=lambda span: span.start)


def find_spans(texts: Sequence[str], kinds: Sequence[str] = ()) -> list[list[Span]]:
    """What is found in each text, in its order; only of these kinds, if any are named."""
    found: list[list[Span]] = [[] for _ in texts]
    starts = [0]
    for text in texts:
        starts.append(starts[-1] + len(text) + 1)
    whole = GAP.join(texts)
    if whole.count(GAP) >= len(texts) or any(sign in whole for sign in "\1\2"):
        whole = GAP.join(text.translate(_BLANKED) for text in texts)
    for span in search_kinds(whole, kinds):
        row = bisect_right(starts, span.start) - 1
        found[row].append(Span(span.start - starts[row], span.end - starts[row], span.kind))
    return found


def _replace_spans(text: str, spans: list[Span], put: str | None) -> str:
    parts, at = [], 0
    for span in spans:
        parts += [text[at : span.start], f"[{span.kind}]" if put is None else put]
        at = span.end
    return "".join([*parts, text[at:]]) if spans else text
