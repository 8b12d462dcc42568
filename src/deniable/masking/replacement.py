"""Masks that put something else in a value's place: redact, nullify, constant, regular expressions, scrubbed text.

None of them needs a key. What they leave standing (a first letter, a last digit, a length) is left to everybody, so a
value that a pattern does not fit is not passed through by the presets: it is redacted.

Free text is searched as one long text, its values side by side with a NUL between them, so that each pattern starts
once a column and not once a value; what one kind has claimed the next ones leave alone. Names are found by a model that
misses some: a text that was scrubbed may still say who it is about, and the report says so."""

from __future__ import annotations

import html
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

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
MOST_WORDS = 6
"""An own identifier of so many words is also sought with its last words first: a surname, and then the first name."""
BLANK, SIGN, DOTS = "\t", " ", "\u0308"
"""What is compared of spaces and what nobody sees, of other signs, and of the dots of \u00e4, \u00f6 and \u00fc."""
LETTERS = {"\u0131": "i", "\u0237": "j", "\u00f0": "d", "\u00fe": "th", "\u014b": "n",
           "\u00e6": "a" + DOTS, "\u0153": "o" + DOTS, "\u00f8": "o" + DOTS}  # fmt: skip
"""Letters that are not decomposed, as they are written in plain ones."""


class _Folds(dict[int, str]):
    """Each character as it is compared: letters and digits in one spelling, marks as nothing, anything else as a gap.

    A character can become several, such as ss of \u00df, fi of a ligature and 12 of \u00bd.
    """

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        apart = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", sign).casefold())
        plain = "".join(map(_fold_letter, apart))
        category = unicodedata.category(sign)
        blank = BLANK if sign.isspace() or category == "Cf" or sign in ">|" else SIGN
        self[code] = plain or ("" if category[0] == "M" or sign in STRETCHES else blank)
        return self[code]


_FOLDS = _Folds()
STRETCHES = "\u0640\u07fa"
"""Strokes that only make a word longer, in Arabic and in N'Ko."""


def _fold_letter(each: str) -> str:
    """A decomposed letter or digit as it is compared; nothing for what is neither, such as an apostrophe."""
    if each == DOTS or each in LETTERS:
        return LETTERS.get(each, each)
    if not each.isalnum() or _is_apostrophe(each) or each in STRETCHES:
        return ""
    if not each.isalpha():
        number = unicodedata.numeric(each)
        return str(int(number)) if number.is_integer() else ""
    latin, _, mark = unicodedata.name(each, "").partition(" WITH ")
    return unicodedata.lookup(latin) if mark and latin.startswith("LATIN SMALL LETTER ") else each


def _is_apostrophe(sign: str) -> bool:
    """Whether it is an apostrophe or an accent that counts as a letter: \u02bc, \u02bb, \u02b9, \ua78c and others."""
    told = "" if sign.isascii() else unicodedata.name(sign, "")
    return "\u02b9" <= sign <= "\u02df" or any(each in told for each in ("APOSTROPHE", "SALTILLO", "HALF RING"))


_TAG = r"</?[a-z][\w:-]{0,30}(?:\s[^<>]{0,199})?/?>|<!--[^<>]{0,199}-->"
_MARKUP = re.compile(rf"{_TAG}|&#?\w{{1,31}};", re.I)


@dataclass(frozen=True, slots=True)
class _View:
    """A text as it is compared, and where in it each character of that came from."""

    folded: str
    starts: list[int]
    ends: list[int]


def _view_text(text: str, marked: bool) -> _View:
    """A text as it is compared; where it is `marked`, tags are gaps, and &uuml; is \u00fc."""
    parts, starts, ends, at = list[str](), list[int](), list[int](), 0
    for unit in re.split(f"({_MARKUP.pattern})|", text, flags=re.I) if marked else text:
        if not unit:
            continue
        if len(unit) == 1:
            folded = _FOLDS[ord(unit)]
        else:
            folded = BLANK if unit[0] == "<" else html.unescape(unit).translate(_FOLDS)
        if folded != BLANK or parts[-1:] != [BLANK]:
            parts.append(folded)
            starts += [at] * len(folded)
            ends += [at + len(unit)] * len(folded)
        at += len(unit)
    return _View("".join(parts), starts, ends)


def _find_spaced(text: str, own: str | None) -> list[Span]:
    """Where an identifier stands in a text, whatever signs and spaces stand between its letters and digits.

    Capitals and accents make no difference, nor does ss for \u00df, oe for \u00f6 or \u0153, l for \u0142; digits of
    all scripts are one. Words may stand in another order, the last ones first.

    >>> _find_spaced("No. 12 34-56 came", "123456")
    [Span(start=4, end=12, kind='identifier')]
    >>> _find_spaced("Frau GRO\u00dfMANN", "Grossmann")
    [Span(start=5, end=13, kind='identifier')]
    >>> _find_spaced("M\u00fcller, Anna", "Anna Mueller")
    [Span(start=0, end=12, kind='identifier')]
    """
    parts = "" if own is None else own.translate(_FOLDS)
    orders = _list_orders(parts)
    found = list[Span]()
    for marked in (False, True) if orders and _MARKUP.search(text) else (False,):
        plain = _MARKUP.sub(lambda each: html.unescape(each[0]) if each[0][0] == "&" else "", text) if marked else text
        letters = plain.translate(_FOLDS).translate(_UNSURE) if orders else ""
        sought = [words for words in orders if "".join(words).lstrip("0").translate(_UNSURE) in letters]
        if sought:
            view = _view_text(text, marked)
            patterns = [_write_pattern(parts, words, turned=words != orders[0]) for words in sought]
            found += [_place_span(text, view, each) for one in patterns for each in one.finditer(view.folded)]
    return found


_UNSURE = dict.fromkeys(map(ord, (BLANK, SIGN, DOTS, "e")))
"""What may be there or not: with an e instead of its dots a letter is the same."""
_GAPS = BLANK + SIGN + DOTS


def _list_orders(parts: str) -> list[list[str]]:
    """The words of an identifier as it is compared, in their own order and with the last ones first."""
    words = re.findall(f"[^{BLANK}{SIGN}]+", parts)
    if len("".join(words).lstrip("0").replace(DOTS, "")) < LEAST_WHOLE:
        return []
    turned = range(1, len(words)) if len(words) <= MOST_WORDS and not re.search("[0-9]", parts) else ()
    return [words, *(words[at:] + words[:at] for at in turned)]


def _write_pattern(parts: str, words: list[str], turned: bool) -> re.Pattern[str]:
    """How an identifier may stand in a text as it is compared; one in another order only by itself."""
    longest = max([LONGEST_GAP, *map(len, re.findall(f"{SIGN}+", parts.strip(BLANK + SIGN)))])
    gap, between = (f"[{_GAPS}]{{{least},{longest}}}+" for least in (0, 1))
    if turned:
        return _overlap(_set_apart(between.join(gap.join(_list_letters(word, gap)) for word in words)))
    sought = "".join(words).lstrip("0")
    spaced = f"(?:0{gap}){{0,9}}+" + gap.join(_list_letters(sought, gap))
    return _overlap(spaced if len(sought.replace(DOTS, "")) >= LEAST_SPACED else _set_apart(spaced))


def _overlap(pattern: str) -> re.Pattern[str]:
    """The pattern, as group 1, from each sign on: one that begins in parts of other words must not hide the next."""
    return re.compile(f"(?=({pattern}))")


def _set_apart(pattern: str) -> str:
    """The pattern where it stands alone."""
    return f"(?<![^{_GAPS}]){pattern}(?![^{_GAPS}])"


def _list_letters(sought: str, gap: str) -> Iterator[str]:
    """The patterns of the letters: those with dots, or an e in their place, may be written in the other way."""
    for each in re.findall(f"[aou](?:{DOTS}|e(?!{DOTS}))|[^{DOTS}]", sought):
        if len(each) == 1:
            yield re.escape(each)
        else:
            yield f"{each[0]}(?:{DOTS}?e)?" if each[1] == DOTS else f"{each[0]}(?:{gap}e|{DOTS})"


def _place_span(text: str, view: _View, found: re.Match[str]) -> Span:
    """The place in the text, with the marks that belong to its last letter and an apostrophe before its first."""
    start, end = view.starts[found.start(1)], view.ends[found.end(1) - 1]
    while end < len(text) and _FOLDS[ord(text[end])] in ("", DOTS):
        end += 1
    while start and _is_apostrophe(text[start - 1]):
        start -= 1
    return Span(start, end, OWN)


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
