"""Identifiers inside free text: found by patterns and check digits, replaced by what they are.

A column is searched as one long text, its values side by side with a NUL between them, so that each pattern starts
once a column and not once a value. Kinds are tried in the order of `FINDERS`, most certain first, and what one kind
has claimed the next ones leave alone. Patterns do not know names: a text that was scrubbed may still say who it is
about, and the report says so.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from deniable.errors import DataError
from deniable.masking import checksums, columns
from deniable.masking.replace import is_text

GAP = "\0"
MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sept?(?:ember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?)"
)
WAY = (
    r"(?:Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Place|Pl|Square|Sq|Highway|Hwy|Parkway"
    r"|Pkwy|Terrace|Way|Circle)"
)
TOP = (
    r"(?:com|org|net|gov|edu|mil|int|info|biz|io|ai|app|dev|co|us|uk|de|fr|it|es|nl|be|ch|at|eu|se|no|dk|fi|pl|cz|ru|in"
    r"|cn|jp|kr|br|mx|au|nz|ca|za|il|ie|me|tv|cc|ly|xyz|online|site|tech|store|cloud)"
)


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a text and what was found there. The text itself is not in it."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True)
class Finder:
    """A kind, its pattern, and the test that a match must pass."""

    kind: str
    pattern: re.Pattern[str]
    test: Callable[[str], bool] | None = None

    def spans(self, text: str, taken: bytearray) -> Iterator[Span]:
        """The free places where the pattern fits and the test agrees, without the end of the sentence."""
        for found in self.pattern.finditer(text):
            start, end = found.span()
            end = _trimmed(text, start, end)
            if not any(taken[start:end]) and (self.test is None or self.test(text[start:end])):
                yield Span(start, end, self.kind)


def _phone(match: str) -> bool:
    """Seven to fifteen digits, written as numbers are dialed: with a plus, brackets or separators."""
    digits = sum(sign.isdigit() for sign in match)
    if match[0] == "+":
        return 7 <= digits <= 15
    return 7 <= digits <= 12 and any(sign in " .-()" for sign in match)


def _national(match: str) -> bool:
    return checksums.us_ssn(match) or any(known.test(match) for known in checksums.NATIONAL)


def _ip(match: str) -> bool:
    """IPv4 with parts up to 255, a MAC address, or IPv6: eight groups, or fewer around one double colon."""
    if "." in match:
        return all(int(part) < 256 for part in match.split("."))
    groups = match.split(":")
    if len(groups) == 6 and all(len(group) == 2 for group in groups):
        return True
    short = match.count("::") == 1 and ":::" not in match and match != "::"
    return all(len(group) <= 4 for group in groups) and (short or (len(groups) == 8 and all(groups)))


def _us_taxpayer(match: str) -> bool:
    return match[0] == "9"


def _date(match: str) -> bool:
    parts = [int(part) for part in re.findall(r"\d+", match)]
    return len(parts) < 3 or (any(part <= 12 for part in parts) and sum(part > 31 for part in parts) <= 1)


_I = re.IGNORECASE
FINDERS = (
    Finder("url", re.compile(r"(?:https?|ftp)://[^\s<>\"'\0]+|\bwww\.[^\s<>\"'\0]+", _I)),
    Finder("email", re.compile(r"(?<![\w.+%-])[\w.+%'-]{1,64}@(?:[\w-]{1,63}\.)+[A-Za-z]{2,24}\b")),
    Finder("url", re.compile(rf"(?<![\w@.-])(?:[a-z0-9][a-z0-9-]{{0,62}}\.)+{TOP}\b(?:/[^\s<>\"'\0]*)?", _I)),
    Finder("iban", re.compile(r"\b[A-Z]{2}\d{2} ?(?:[A-Z0-9]{4} ?){2,7}[A-Z0-9]{1,4}\b"), checksums.iban),
    Finder("card", re.compile(r"(?<![\w.-])\d(?:[ -]?\d){12,18}(?![\w-])"), checksums.card),
    Finder("ip", re.compile(r"\d{1,3}(?:\.\d{1,3}){3}(?![\d.]*\d)"), _ip),
    Finder("ip", re.compile(r"[0-9A-Fa-f]*(?::[0-9A-Fa-f]*){2,7}(?:-[0-9A-Fa-f]{2}){0,5}"), _ip),
    Finder("ip", re.compile(r"[0-9A-Fa-f]{2}(?:-[0-9A-Fa-f]{2}){5}(?![\w-])")),
    Finder("national_id", re.compile(r"(?<![\w-])\d{3}[- .]\d{2}[- .]\d{4}(?![\w-])"), checksums.us_ssn),
    Finder("national_id", re.compile(r"(?<![\w-])9\d{2}[- ]?[5-9]\d[- ]?\d{4}(?![\w-])"), _us_taxpayer),
    Finder(
        "date",
        re.compile(
            r"(?<![\w/.-])(?:\d{4}[-/.]\d{1,2}[-/.]\d{1,2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?Z?)?"
            r"|\d{1,2}([-/.])\d{1,2}\1(?:\d{4}|\d{2}))(?![\w/-]|\.\d)"
        ),
        _date,
    ),
    Finder("date", re.compile(rf"\d{{1,2}}(?:st|nd|rd|th)?(?: of|\.)?[ -]{MONTH}\.?(?:,?[ -](?:\d{{4}}|\d{{2}}))?\b")),
    Finder("date", re.compile(rf"{MONTH}\.?,? (?:\d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?|\d{{4}})\b")),
    Finder(
        "phone",
        re.compile(
            r"(?<![\w.+-])(?:\+\d{1,3}[ .-]?)?(?:\(0?\d{1,4}\)[ .-]?)?\d{1,5}(?:[ .-]\(?\d{2,5}\)?){1,4}"
            r"(?:,? ?(?:x|ext\.?) ?\d{1,5})?(?![\w-])|(?<![\w.])\+\d{7,15}(?!\w)|(?<![\w.(-])\(\d{3}\) ?\d{3}[ .-]?\d{4}(?!\w)"
        ),
        _phone,
    ),
    Finder("national_id", re.compile(r"(?<![\w-])(?:[A-Z]{1,2}[ -]?)?\d(?:[ .-]?\d){7,14}[ -]?[A-Z]?(?![\w-])"), _national),
    Finder("national_id", re.compile(r"\b[A-Z]{6}\d{2}[A-Z]\d{2}[A-Z]\d{3}[A-Z]\b|\b[A-Z]{2} ?\d{2} ?\d{2} ?\d{2} ?[A-D]\b"), _national),
    Finder(
        "address",
        re.compile(
            rf"(?<![\w.])\d{{1,6}}[A-Za-z]?,? (?:(?:[NSEW]\.?|[A-Z][\w.'-]*|\d{{1,3}}(?:st|nd|rd|th)) ){{1,4}}{WAY}\b\.?"
            rf"(?:,? (?:Apt|Suite|Ste|Unit|Room|Floor|#)\.? ?\w+)?(?:,? [A-Z][\w ]{{2,20}},? [A-Z]{{2}} \d{{5}}(?:-\d{{4}})?)?"
            r"|\bP\.? ?O\.? ?Box \d+"
        ),
    ),
    Finder("number", re.compile(r"(?<![\w.])[A-Z]{0,4}-?\d[\dA-Z]*(?:-?\d){4,}[A-Z]?(?![\w])|\b(?:bc1|[13])[a-zA-HJ-NP-Z1-9]{25,59}\b")),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Scrub:
    """Replace identifiers inside free text.

    **Holds:** what its patterns know is gone. **Falls to:** names, and every identifier written in a way that no
    pattern expects. `put` None writes the kind in brackets.
    """

    find: tuple[str, ...] = ()
    put: str | None = None

    def apply(self, values: pa.Array, _rows: pa.RecordBatch | None = None) -> pa.Array:
        """The scrubbed column; null stays null."""
        if not is_text(values.type):
            raise DataError(f"a column of type {values.type} cannot be scrubbed", expected="Text")
        encoded = columns.as_text(values).dictionary_encode()
        clean = scrubbed(encoded.dictionary.to_pylist(), self.find, self.put)
        return columns.restored(pa.array(clean, pa.large_string()).take(encoded.indices), values.type)


def scrubbed(texts: Sequence[str], kinds: Sequence[str] = (), put: str | None = None) -> list[str]:
    """The texts with what was found replaced.

    >>> scrubbed(["Call (202) 224-3121 or write to ann@example.org"])
    ['Call [phone] or write to [email]']
    """
    return [_replaced(text, spans, put) for text, spans in zip(texts, found_in(texts, kinds), strict=True)]


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


def _trimmed(text: str, start: int, end: int) -> int:
    """Where a match ends without the punctuation that ends a sentence; a bracket that was opened inside stays."""
    while end > start + 1 and text[end - 1] in ".,;:!?) ":
        if text[end - 1] == ")" and "(" in text[start:end]:
            break
        end -= 1
    return end


def _replaced(text: str, spans: list[Span], put: str | None) -> str:
    parts, at = [], 0
    for span in spans:
        parts += [text[at : span.start], f"[{span.kind}]" if put is None else put]
        at = span.end
    return "".join([*parts, text[at:]]) if spans else text
