"""Identifiers inside free text: found by patterns and check digits, replaced by what they are.

A column is searched as one long text, its values side by side with a NUL between them, so that each pattern starts
once a column and not once a value. Kinds are tried in the order of `FINDERS`, most certain first, and what one kind
has claimed the next ones leave alone. Patterns do not know names: a text that was scrubbed may still say who it is
about, and the report says so.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from deniable.errors import DataError
from deniable.masking import columns
from deniable.masking.finders import FINDERS, Span
from deniable.masking.replace import is_text

GAP = "\0"


@dataclass(frozen=True, slots=True)
class Scrub:
    """Replace identifiers inside free text.

    **Holds:** what its patterns know is gone. **Falls to:** names, and every identifier written in a way that no
    pattern expects. `put` None writes the kind in brackets.
    """

    find: tuple[str, ...] = ()
    put: str | None = None
    extra: Callable[[Sequence[str]], list[list[Span]]] | None = field(default=None, repr=False)

    def apply(self, values: pa.Array, _rows: pa.RecordBatch | None = None) -> pa.Array:
        """The scrubbed column; null stays null."""
        if not is_text(values.type):
            raise DataError(f"a column of type {values.type} cannot be scrubbed", expected="Text")
        encoded = columns.as_text(values).dictionary_encode()
        clean = scrubbed(encoded.dictionary.to_pylist(), self.find, self.put, self.extra)
        return columns.restored(pa.array(clean, pa.large_string()).take(encoded.indices), values.type)


def scrubbed(
    texts: Sequence[str],
    kinds: Sequence[str] = (),
    put: str | None = None,
    extra: Callable[[Sequence[str]], list[list[Span]]] | None = None,
) -> list[str]:
    """The texts with what was found replaced; `extra` is another searcher, whose spans fill what ours left.

    >>> scrubbed(["Call (202) 224-3121 or write to ann@example.org"])
    ['Call [phone] or write to [email]']
    """
    found = found_in(texts, kinds)
    if extra is not None:
        found = [_merged(ours, theirs) for ours, theirs in zip(found, extra(texts), strict=True)]
    return [_replaced(text, spans, put) for text, spans in zip(texts, found, strict=True)]


def _merged(ours: list[Span], theirs: list[Span]) -> list[Span]:
    """All spans of ours, and those of another searcher that overlap none of what is there already."""
    kept = list(ours)
    for span in sorted(theirs, key=lambda one: one.start - one.end):
        if all(span.end <= other.start or other.end <= span.start for other in kept):
            kept.append(span)
    return sorted(kept, key=lambda span: span.start)


def found_in(texts: Sequence[str], kinds: Sequence[str] = ()) -> list[list[Span]]:
    """What is found in each text, in its order; only of these kinds, if any are named."""
    found: list[list[Span]] = [[] for _ in texts]
    starts = [0]
    for text in texts:
        starts.append(starts[-1] + len(text) + 1)
    whole = GAP.join(text.replace(GAP, " ") for text in texts)
    for span in _claimed(whole, kinds):
        row = bisect_right(starts, span.start) - 1
        found[row].append(Span(span.start - starts[row], span.end - starts[row], span.kind))
    return found


def _claimed(whole: str, kinds: Sequence[str]) -> list[Span]:
    """Spans that do not overlap, ordered by place. A byte a character remembers what was claimed."""
    taken = bytearray(len(whole))
    claimed = []
    for finder in FINDERS:
        if not kinds or finder.kind in kinds:
            for span in finder.spans(whole, taken):
                taken[span.start : span.end] = b"\1" * (span.end - span.start)
                claimed.append(span)
    return sorted(claimed, key=lambda span: span.start)


def _replaced(text: str, spans: list[Span], put: str | None) -> str:
    parts, at = [], 0
    for span in spans:
        parts += [text[at : span.start], f"[{span.kind}]" if put is None else put]
        at = span.end
    return "".join([*parts, text[at:]]) if spans else text
