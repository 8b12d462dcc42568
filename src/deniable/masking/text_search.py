"""Identifiers in running text: our own patterns, check digits and names, and Presidio as a second searcher.

Text is first *folded*, character by character, so that places stay: Word's dashes become hyphens, its spaces plain
ones, digits of other scripts ASCII digits; characters without width are left out, and signs of scripts that write
without spaces count as gaps between words. Then each kind searches what the kinds before it left: what is claimed is
cut out. A match that its test rejects is tried again shorter, group by group, and then one character later, so no
neighbor hides an identifier. Where two identifiers are written without a gap between them, nobody can tell where one
ends: what is left beside a claimed place is claimed with it if it goes on with digits. Patterns have a bounded width
(what follows an accepted match, `right`, may be long), so the work grows with the length of the text and no faster.

Python's `re` skips quickly to the next character that a pattern can begin with, but only if the pattern begins with a
character or a set of them, and not with a look-behind. So patterns here consume their first character and look behind
*it*: a digit, then the assertion that no word character or dot stands before it. Kinds whose beginning is common and
whose middle is rare (the @ of an e-mail, the dot before `com`) are searched by the middle and then grown to the left.

Presidio is never needed and never fetched: where it is installed with a spaCy model, `--presidio` adds what it finds.
This module imports neither numpy nor Arrow."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from deniable.errors import MissingExtra
from deniable.masking import checksums, lexicon, names
from deniable.masking.lexicon import DOMAINS, FOREIGN_MONTHS, MONTHS, ORDINALS, WAYS, YEAR

CUT = "\1"  # stands where something was claimed
_GAP_SIGN = "\2"  # stands for a sign of a script without spaces
_ZEROS = (
    0x0660, 0x06F0, 0x07C0, 0x0966, 0x09E6, 0x0A66, 0x0AE6, 0x0B66, 0x0BE6, 0x0C66, 0x0CE6, 0x0D66, 0x0E50, 0x0ED0,
    0x0F20, 0x1040, 0x17E0, 0x1810, 0xFF10, 0x1D7CE, 0x1D7D8, 0x1D7E2, 0x1D7EC, 0x1D7F6,
)  # fmt: skip
_FOLDED = (
    {zero + i: str(i) for zero in _ZEROS for i in range(10)}
    | dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2014\u2015\u2043\u2212\ufe58\ufe63\uff0d"), "-")
    | dict.fromkeys([0xA0, 0x1680, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000], " ")
    | dict(
        zip(map(ord, "\u2018\u2019\u02bc\uff07\uff20\uff0e\uff0b\uff0f\uff1a\uff08\uff09"), "''''@.+/:()", strict=True)
    )
)
_FOLDABLE = re.compile(f"[{re.escape(''.join(map(chr, _FOLDED)))}]")
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
_UNSPACED = re.compile("(?![年月日년월일])[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|(?<![0-9 ])[年月日년월일]")


@dataclass(frozen=True, slots=True)
class Folded:
    """A text as patterns see it, and where in it characters without width were left out."""

    text: str
    unseen: tuple[int, ...] = ()

    def place(self, at: int) -> int:
        """The place in the text as it was written."""
        return at + bisect_right(self.unseen, at) if self.unseen else at


def fold_text(text: str) -> Folded:
    """The text with one spelling for dashes, spaces and digits.

    >>> fold_text("555\u20110199").text
    '555-0199'
    """
    if text.isascii():
        return Folded(text)
    unseen = tuple(found.start() - i for i, found in enumerate(_UNSEEN.finditer(text)))
    plain = _UNSEEN.sub("", text) if unseen else text
    spelled = plain.translate(_FOLDED) if _FOLDABLE.search(plain) else plain
    return Folded(_UNSPACED.sub(_GAP_SIGN, spelled), unseen)


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a text and what was found there. The text itself is not in it."""

    start: int
    end: int
    kind: str


Test = Callable[[str, int, int], bool]
"""Whether the place in the text is what the pattern takes it for; the text around may be looked at."""


@dataclass(frozen=True, slots=True)
class Finder:
    """A kind, its pattern, what may stand to the left and right of it, and the test that the whole must pass."""

    kind: str
    pattern: re.Pattern[str]
    test: Test | None = None
    left: re.Pattern[str] | None = None
    reach: int = 64
    right: re.Pattern[str] | None = None
    checked: bool = False
    """Whether its check digits are good enough to say where it ends."""

    def spans(self, text: str) -> Iterator[Span]:
        """The places where the pattern fits and the test agrees, in order, without the end of the sentence."""
        at = 0
        while (found := self.pattern.search(text, at)) is not None:
            start, end = self._settle(text, *found.span())
            if end:
                yield Span(start, end, self.kind)
            at = max(end, found.start() + 1)

    def _settle(self, text: str, start: int, end: int) -> tuple[int, int]:
        """Where an accepted match begins and ends; (0, 0) if there is none at this place."""
        if self.left is not None:
            grown = self.left.search(text, max(0, start - self.reach), start)
            if grown is None:
                return 0, 0
            start = grown.start()
        if self.right is not None and (more := self.right.match(text, end)) is not None:
            end = more.end()
        for tried in self._list_ends(text, start, end):
            last = _trim_end(text, start, tried)
            if self.test is None or self.test(text, start, last):
                return start, last
        return 0, 0

    def _list_ends(self, text: str, start: int, end: int) -> Iterator[int]:
        """The match's own end, then the ends of shorter matches that stop where a group of characters ends."""
        yield end
        if self.test is None or self.left is not None or self.right is not None:
            return
        for at in range(end - 1, start + 1, -1):
            parts = self.checked or (text[at] in " ,;/(-" and text[at - 1] not in " -(")
            if parts and self.pattern.fullmatch(text, start, at):
                yield at


def _trim_end(text: str, start: int, end: int) -> int:
    """Where a match ends without the punctuation that ends a sentence; a bracket that was opened inside stays."""
    opened = text.find("(", start, end) >= 0
    while end > start + 1 and text[end - 1] in ".,;:!?) " and not (opened and text[end - 1] == ")"):
        end -= 1
    return end


def search_kinds(text: str, kinds: Sequence[str] = ()) -> list[Span]:
    """Spans that do not overlap, ordered by place, in a text that may hold many values side by side."""
    folded = fold_text(text)
    left, claimed = folded.text, []
    for finder in FINDERS:
        if not kinds or finder.kind in kinds:
            # An underscore may be a part of these two; for the others it is a gap.
            seen = left if finder.kind in ("url", "email") else left.replace("_", _GAP_SIGN)
            spans = _join_spans(finder.spans(seen))
            left = _cut_spans(left, spans)
            claimed += spans
    left = left.replace("_", _GAP_SIGN)
    claimed = _claim_beside(left, sorted(claimed, key=lambda span: span.start))
    left = _cut_spans(left, claimed)
    claimed += _search_names(text, left, kinds)
    claimed.sort(key=lambda span: span.start)
    return [Span(folded.place(one.start), folded.place(one.end - 1) + 1, one.kind) for one in claimed]


_BESIDE = 64  # characters beside a claimed place that are looked at
_GLUED = re.compile(r"[^\s\0\1]*")
_ROW = re.compile(r"(?: (?:[A-Z]{4} )?(?=[^\s\0\1]*\d)[^\sa-z\0\1]++(?![a-z]))*")


def _claim_beside(text: str, claimed: list[Span]) -> list[Span]:
    """The spans in their order, each with what goes on beside it without a gap, or in further groups of digits."""
    grown = list(claimed)
    for i, span in enumerate(claimed):
        before, after = grown[i - 1].end if i else 0, claimed[i + 1].start if i + 1 < len(claimed) else len(text)
        behind = text[max(before, span.start - _BESIDE) : span.start][::-1]
        ahead = text[span.end : min(after, span.end + _BESIDE)]
        start, end = span.start - _measure_beside(behind, span.kind), span.end + _measure_beside(ahead, span.kind)
        grown[i] = replace(span, start=start, end=end) if end - start > span.end - span.start else span
    return grown


def _measure_beside(beside: str, kind: str) -> int:
    """How much of the text beside a claimed place is a part of what stands there; it is read away from the place."""
    near = beside[:2]
    if not near or near[0] in "\n\0" or (near[0] in " .,;:)" and not (near[1:].isalnum() or near[1:] in "+()")):
        return 0
    glued = _GLUED.match(beside).end()  # type: ignore[union-attr]
    if not glued and kind in ("date", "age"):  # numbers that follow a date are seldom a part of it
        return 0
    row = _ROW.match(beside, glued).end()  # type: ignore[union-attr]
    groups = [len(group) for group in beside[:row].split()]
    dialed = not {"+", "("}.isdisjoint(beside[:row])
    is_row = row > glued and (glued or dialed or min(groups) >= 3 or max(groups) >= 4 or len(groups) >= 4)
    if is_row and _count_digits(beside[:row]) >= (3 if dialed or kind in ("email", "url", "card") else 5):
        return row
    return glued if _count_digits(beside[:glued]) >= 3 or "@" in beside[:glued] else 0


def _count_digits(text: str) -> int:
    return sum(map(str.isdigit, text))


def _search_names(text: str, left: str, kinds: Sequence[str]) -> list[Span]:
    """Names and places in what patterns left; a name that overlaps another is passed over."""
    if kinds and not set(kinds) & set(names.KINDS):
        return []
    cued = () if text.isascii() else names.find_cued(_UNSEEN.sub("", text))
    found: list[Span] = []
    taken = bytearray(len(left))
    for start, end, kind in (*cued, *names.find_names(left)):
        free = CUT not in left[start:end] and taken.find(1, start, end) < 0
        if free and (not kinds or kind in kinds):
            found.append(Span(start, end, kind))
            taken[start:end] = b"\1" * (end - start)
    return found


def _join_spans(found: Iterable[Span]) -> list[Span]:
    """The spans of one kind in their order, with those that overlap made one: each place is claimed once."""
    joined: list[Span] = []
    for span in sorted(found, key=lambda each: (each.start, each.end)):
        if joined and span.start < joined[-1].end:
            joined[-1] = replace(joined[-1], end=max(joined[-1].end, span.end))
        else:
            joined.append(span)
    return joined


def _cut_spans(text: str, spans: list[Span]) -> str:
    """The text, equally long, with what was claimed made unreadable for the kinds that follow."""
    parts, at = [], 0
    for span in spans:
        parts += [text[at : span.start], CUT * (span.end - span.start)]
        at = span.end
    return "".join([*parts, text[at:]]) if spans else text


def _test_value(test: Callable[[str], bool]) -> Test:
    """A test that looks at the match alone."""
    return lambda text, start, end: test(text[start:end])


_CALLED = re.compile(
    r"(?i)\b(?:tel|phone|call|cell|mob|fax|dial|text|reach|ring|whatsapp|handy|m[oó]vil|t[eé]l[eé]f)[^\W\d_]{0,8}[^\w\0]{1,3}"
    r"(?:[^\W\d_]{1,8}[^\w\0]{1,2}){0,2}\Z"
)
_DIGITS = re.compile(r"\d+")


def _is_phone(text: str, start: int, end: int) -> bool:
    """Digits grouped as numbers are dialed; rows of small numbers and ranges of years are not."""
    match = text[start:end]
    groups = _DIGITS.findall(match.partition("x")[0])
    lengths, digits = tuple(map(len, groups)), sum(map(len, groups))
    if match[0] == "+" or groups[0][:2] == "00":
        return digits == 11 if match[:2] in ("+1", "+7") else 7 <= digits <= 13
    if not 7 <= digits <= 12:
        return False
    if match[0] == "(" or lengths in ((3, 3, 4), (1, 3, 3, 4)) or (groups[0][0] == "0" and digits >= 8):
        return True
    if lengths == (3, 4):
        return match[3] in "-."
    even = min(lengths) >= 3 and lengths != (4, 4) and digits >= 8 and len(set(re.findall(r"\D", match)) - {" "}) == 1
    return even or _CALLED.search(text, max(0, start - 40), start) is not None


_NUMBERED = re.compile(
    r"(?i)(?:\b(?:version|ver|release|section|chapter|build|python|firmware|figure|table)\.?|\bv) ?\Z"
)


def _is_date(text: str, start: int, end: int) -> bool:
    """Three numbers of which one can be a month, and at most one a year; not the number of a version."""
    parts = [int(part) for part in _DIGITS.findall(text[start:end])]
    if len(parts) < 3:
        return True
    plausible = any(part <= 12 for part in parts[:3]) and sum(part > 31 for part in parts[:3]) <= 1 and parts[1] > 0
    return plausible and _NUMBERED.search(text, max(0, start - 12), start) is None


_COUNTED = re.compile(
    r" (?:(?!(?:was|has|his|this|across|plus|unless|always|towards|perhaps|besides)\b)[a-z]{3,20}s|people|men"
    r"|women|children|staff|more|new|of|other|per|percent|out|adult|female|male|older|younger|different|further|large"
    r"|small|additional)\b"
)


def _is_day_of_month(text: str, start: int, end: int) -> bool:
    """A month and a day; `In May 2 patients` counts patients."""
    if text[end - 1].isalpha() or text[end - 4 : end].isdigit():
        return True
    if text[max(0, start - 3) : start].lower() == "in " and text[end : end + 2].strip(" ").isalpha():
        return False
    return _COUNTED.match(text, end) is None


def _is_card(match: str) -> bool:
    """A card's number in one piece, or in groups of four and more as cards print them."""
    lengths = [len(group) for group in _DIGITS.findall(match)]
    return min(lengths[:-1], default=4) >= 4 and lengths[-1] >= 3 and checksums.is_card(match)


def _is_ipv4(match: str) -> bool:
    return all(int(part) < 256 for part in match.split("."))


def _is_ipv6_or_mac(match: str) -> bool:
    """A MAC address, or IPv6: six groups or more, or fewer around one double colon."""
    groups = match.split(":")
    short = match.count("::") == 1 and ":::" not in match and match != "::"
    return all(len(group) <= 4 for group in groups) and (short or (len(groups) >= 6 and all(groups)))


def _is_national(match: str) -> bool:
    """Check digits fit; nobody writes such a number in more than six groups."""
    size = len(checksums.compact(match))
    if match.count(" ") > 5:
        return False
    return any(known.test(match) for known in checksums.NATIONAL if size in known.lengths) or checksums.is_us_ssn(match)


def _is_vin(match: str) -> bool:
    """Seventeen characters that end in digits; the check digit holds in North America only, so it is not asked for."""
    letters = sum(map(str.isalpha, match))
    return checksums.is_vin(match) or (2 <= letters <= 12 and match[-4:].isdigit())


_MEASURED = re.compile(
    r" ?(?:%|°|(?:mg|mcg|ml|kg|km|cm|mm|g|l|m|kb|mb|gb|hz|kwh|kcal|usd|eur|gbp|chf|dollars?|euros?|pounds?|people|steps"
    r"|patients|cases|cells|copies|units|users|rows|bytes|miles|meters|metres|inhabitants|residents|tonnes|tons|hours"
    r"|hits|views|records|visitors|shares|votes|km2|iu|rpm)\b)",
    re.IGNORECASE,
)


_YEARS = re.compile(r"\W*(?:19|20)\d\d[-/](?:19|20)\d\d\W*")
_GROUPS = re.compile(r"\d+|[A-Z]+")


def _is_number(text: str, start: int, end: int) -> bool:
    """A code with four digits or more that neither counts nor measures something."""
    match = text[start:end]
    digits = sum(map(str.isdigit, match))
    if digits < 4 or len(match) < 5:
        return False
    if not (match[-1].isdigit() or match[-2].isdigit() or digits > 5 or len(_GROUPS.findall(match)) > 3):
        return False
    if _YEARS.fullmatch(match):
        return False
    if not match.isdigit():
        return digits > 4 or not match[:4].isdigit() or match[4] != "-"
    return text[max(0, start - 2) : start].strip(" ") not in ("$", "€", "£", "¥") and not _MEASURED.match(text, end)


_TIME = r"\d\d?:\d\d(?::\d\d(?:\.\d+)?)?"
_PLAIN_NUMBER = re.compile(rf"\W*(?:\d+(?:\.\d*)?(?:[eE][+-]?\d+)?[a-z%°]*|{_TIME}(?:-{_TIME})?)\W*")


def _is_glued(text: str, start: int, end: int) -> bool:
    """Many digits in one piece with signs or letters between them: no amount, and no time of the day."""
    return _PLAIN_NUMBER.fullmatch(text, start, end) is None and _YEARS.fullmatch(text, start, end) is None


def _is_old(text: str, start: int, end: int) -> bool:
    """An age that the Safe Harbor rule counts as identifying: above 89."""
    return 90 <= int(_DIGITS.findall(text[start:end])[0]) <= 125


def _is_postcode(match: str) -> bool:
    """A British one begins with the letters of a postal area; a Canadian one ends in a digit."""
    return match[-1].isdigit() or re.match(r"[A-Z]+", match)[0] in lexicon.POSTAL_AREAS  # type: ignore[index]


def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


_REST_OF_URL = _compile(r"[^\s<>\"'\0\1]*")
_AFTER_DOMAIN = _compile(r"(?:[/?:][^\s<>\"'\0\1]*)?")

FINDERS = (
    Finder(
        "postcode",
        _compile(r"[A-Z][A-Z]?\d[A-Z\d]? \d(?:[A-Z]\d(?<=[A-Z]\d[A-Z] \d[A-Z]\d)|[ABD-HJLNP-UW-Z]{2})"),
        _test_value(_is_postcode),
    ),
    Finder(
        "url", _compile(r":(?<=[A-Za-z]{3}:)//[^\s<>\"'\0\1]"), left=_compile(r"[A-Za-z]{3,8}\Z"), right=_REST_OF_URL
    ),
    Finder("url", _compile(r"[wW][wW][wW]\.[^\s<>\"'\0\1]"), right=_REST_OF_URL),
    Finder(
        "email",
        _compile(r"@(?:[\w-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![A-Za-z])"),
        left=_compile(r"[\w.+%'!#$&*=?^{|}~-]+\Z"),
    ),
    Finder(
        "url",
        _compile(rf"\.(?<=[A-Za-z0-9-]\.)(?:{DOMAINS}|{DOMAINS.upper()})\b"),
        left=_compile(r"(?<![\w@.-])(?:[A-Za-z0-9-]+\.)*[A-Za-z0-9-]+\Z"),
        right=_AFTER_DOMAIN,
    ),
    Finder(
        "iban",
        _compile(r"[A-Z](?<!\w.)[A-Z]\d\d ?(?:[A-Z0-9]{4} ?){2,7}[A-Z0-9]{1,4}"),
        _test_value(checksums.is_iban),
        checked=True,
    ),
    Finder("vehicle", _compile(r"[A-HJ-NPR-Z0-9](?<!\w.)[A-HJ-NPR-Z0-9]{16}\b"), _test_value(_is_vin)),
    Finder("card", _compile(r"\d(?<![\d.].)(?:[ -]?\d){12,18}(?!\d)"), _test_value(_is_card)),
    Finder("ip", _compile(r"\d(?<![\d.].)\d{0,2}(?:\.\d{1,3}){3}(?!\.?\d)"), _test_value(_is_ipv4)),
    Finder(
        "ip",
        _compile(r":[0-9A-Fa-f]{0,4}:[0-9A-Fa-f:]{0,40}"),
        _test_value(_is_ipv6_or_mac),
        _compile(r"(?<![\w:])[0-9A-Fa-f]*\Z"),
        5,
    ),
    Finder(
        "ip",
        _compile(r"-[0-9A-Fa-f]{2}(?:-[0-9A-Fa-f]{2}){4}(?![\w-])"),
        None,
        _compile(r"(?<![\w-])[0-9A-Fa-f]{2}\Z"),
        3,
    ),
    Finder("national_id", _compile(r"\d(?<!\d.)\d\d[- .]\d\d[- .]\d{4}(?!\d)"), _test_value(checksums.is_us_ssn)),
    Finder("national_id", _compile(r"9(?<![\w-].)\d\d[- ]?[5-9]\d[- ]?\d{4}(?![\w-])")),
    Finder(
        "date",
        _compile(
            r"\d(?<!\d.)(?:(?<=[12])\d{3}([-/.])\d\d?\1\d\d?(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?Z?)?"
            r"(?!\d|(?<=[/.]\d)[/.]\d|(?<=[/.]\d\d)[/.]\d)"
            r"|\d{3} ?[年년] ?\d\d? ?[月월] ?\d\d? ?[日일]"
            r"|(?<!\d[/.].)\d?([-/.])\d\d?\2(?:(?:19|20)\d\d|\d{4}(?!\d)|\d\d(?![\w/-]|\.\d)))"
        ),
        _is_date,
    ),
    Finder(
        "date",
        _compile(
            rf"\d(?<!\d.)\d?(?:(?:st|nd|rd|th)?(?: of|\.)?[ -](?:{MONTHS})\b\.?(?:,?[ -](?:\d{{4}}|\d\d\b(?![:%])))?"
            rf"|(?:\.|er|º)? (?:de )?(?:{FOREIGN_MONTHS})(?: de| del)? \d{{4}}"
            rf"|(?:\.|er|º| de) (?:{FOREIGN_MONTHS}))(?:\b|(?<=\d{{4}}))"
        ),
    ),
    Finder("date", _compile(r" (?:19|20)\d\d(?!\d)"), left=_compile(rf"\b(?:{FOREIGN_MONTHS})(?: del?)?\Z"), reach=24),
    Finder(
        "date", _compile(rf" of (?:{MONTHS})\b{YEAR}"), left=_compile(rf"(?i)\b(?:{ORDINALS})(?: day)?\Z"), reach=32
    ),
    Finder("date", _compile(rf"(?:{MONTHS})\b (?:the )?(?:{ORDINALS})\b{YEAR}")),
    Finder(
        "date",
        _compile(rf"(?:{MONTHS})\.?,? (?:\d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?\b|(?:19|20)\d\d|\d{{4}}\b)"),
        _is_day_of_month,
    ),
    Finder(
        "age",
        _compile(
            r"[Aa](?<!\w.)ge[d ](?: of)? ?:? ?(?:9\d|1[012]\d)(?![\w.])"
            r"|[91](?<![\w.].)\d{1,2}(?:[ -]years?[ -]old| ?y/?o)\b"
        ),
        _is_old,
    ),
    Finder(
        "phone",
        _compile(
            r"\+(?<!\w.)\d{1,3}[ .-]?(?:\(0?\d{1,4}\)[ .-]?)?\d{1,5}(?:[ ./-]?\(?\d{2,5}\)?){1,4}(?:,? ?(?:x|"
            r"ext\.?) ?\d{1,5})?(?!\w)"
        ),
        _is_phone,
    ),
    Finder(
        "phone",
        _compile(r"\((?<!\w.)0?\d{2,4}\)[ .-]?\d{3,4}(?: ?[.-] ?| )?\d{3,4}(?:,? ?(?:x|ext\.?) ?\d{1,5})?(?!\w)"),
        _is_phone,
    ),
    Finder(
        "phone",
        _compile(r"\d(?<![\d.+(].)\d{0,4}(?:[ ./-]\(?\d{2,8}\)?){1,4}(?:,? ?(?:x|ext\.?) ?\d{1,5})?(?![\w-])"),
        _is_phone,
    ),
    Finder(
        "national_id",
        _compile(r"[A-Z0-9](?<!\d.)[A-Z]?[ -]?\d(?:[ ./+-]?\d){6,16}(?:[ A-]?[A-Z0-9]{1,4})?(?![\w-])"),
        _test_value(_is_national),
    ),
    Finder(
        "national_id",
        _compile(r"[A-Z](?<!\w.)[A-Z]{5}\d\d[A-Z]\d\d[A-Z]\d{3}[A-Z]\b|[A-Z](?<!\w.)[A-Z](?: ?\d\d){3} ?[A-D]\b"),
        _test_value(_is_national),
    ),
    Finder(
        "address",
        _compile(
            rf"\d(?<![\w.].)\d{{0,5}}[A-Za-z]?,? (?:(?:[NSEW]\.?|[A-Z][\w.'-]{{0,30}}|\d{{1,3}}(?:st|"
            rf"nd|rd|th)) ){{1,4}}(?:{WAYS})\b\.?"
            r"(?:,? (?:Apt|Suite|Ste|Unit|Room|Floor|#)\.? ?\w{1,8})?"
            r"(?:,? [A-Z][\w ]{2,20},? [A-Z]{2} \d{5}(?:-\d{4})?)?"
        ),
    ),
    Finder("address", _compile(r"P(?<!\w.)\.? ?O\.? ?Box \d{1,9}")),
    Finder(
        "address",
        _compile(r"(?:straße|strasse|str\.|gasse|weg|platz|allee|laan|straat|gatan|vägen) \d{1,4}[a-z]?\b"),
        left=_compile(r"(?<!\w)[A-ZÄÖÜ][\w.-]*\Z"),
    ),
    Finder(
        "address",
        _compile(
            r"(?:[Rr]ue|[Cc]alle|[Vv]ia|[Aa]venida|[Pp]iazza|[Pp]lac|[Uu]l\.)(?: [\w.'-]{2,20}){1,4}?,? \d{1,4}\b"
        ),
    ),
    Finder("postcode", _compile(r"[A-Z](?<!\w.)[A-Z]?\d[A-Z\d]?\d[ABD-HJLNP-UW-Z]{2}\b"), _test_value(_is_postcode)),
    Finder(
        "postcode",
        _compile(
            r"[ABCEGHJ-NPRSTVXY](?<!\w.)\d[A-Z]\d[A-Z]\d\b"
            r"|[1-9](?<![\w.,-].)\d{3} (?!SA|SD|SS|AD|BC|CE|AM|PM|KG|MG|ML|MM|CM|KM|EU|US|UK|MB|GB|HZ|IU|ID)[A-Z]{2}\b"
            r"(?! \d)"
            r"|[A-Z](?<!\w.)[A-Z],? \d{5}(?:-\d{4})?\b"
        ),
    ),
    Finder(
        "vehicle",
        _compile(
            r"[A-Z](?<!\w.)(?:[A-Z]\d\d ?[A-Z]{3}|[A-Z]-\d{3}-[A-Z]{2}|[A-Z] ?\d{3} [A-Z]{2}"
            r"|[A-Z]{0,2}-[A-Z]{1,2} \d{1,4})\b"
            r"|\d(?<![\w-].)\d{3} ?[BCDFGHJKLMNPRSTVWXYZ]{3}\b"
        ),
    ),
    Finder(
        "vehicle",
        _compile(
            r"(?:plate|tag|registration|reg)(?: (?:number|no\.?|is|was))?:? (?:[A-Z]{2} )?(?=[A-Z -]{0,8}\d)"
            r"[A-Z\d]{1,4}[ -]?[A-Z\d]{2,5}\b"
        ),
    ),
    Finder(
        "number",
        _compile(r"[A-Z0-9](?<![\w.].)(?:-?[A-Z0-9]){4,63}+(?!\w)|[13b](?<!\w.)[a-zA-HJ-NP-Z0-9]{25,61}\b"),
        lambda text, start, end: end - start > 25 or _is_number(text, start, end),
    ),
    Finder("number", _compile(r"\d(?<!\w.)\d{40,}+")),
    Finder(
        "number",
        _compile(r"\d(?:[A-Za-z./:+()-]{0,3}\d){7,60}"),
        _is_glued,
        left=_compile(r"[^\s\0\1]*\Z"),
        right=_compile(r"[^\s\0\1]*"),
    ),
)
"""What is looked for, in the order in which it is claimed: the most certain first."""


SURE_ENOUGH = 0.5


def make_presidio_searcher(engine: Any = None, language: str = "en") -> Callable[[Sequence[str]], list[list[Span]]]:
    """A function that finds spans in texts with a Presidio analyzer: the one given, or the one it makes by default."""
    analyzer = engine if engine is not None else _load_analyzer()

    def search(texts: Sequence[str]) -> list[list[Span]]:
        return [
            [
                Span(found.start, found.end, str(found.entity_type).lower())
                for found in analyzer.analyze(text, language=language, score_threshold=SURE_ENOUGH)
            ]
            for text in texts
        ]

    return search


def _load_analyzer() -> Any:
    try:
        models = import_module("spacy.util").get_installed_models()
        analyzer = import_module("presidio_analyzer").AnalyzerEngine
    except ImportError:
        raise MissingExtra(
            "Presidio is not installed", remedy="Install it with: pip install presidio-analyzer", extra="presidio"
        ) from None
    if not any(name.startswith("en_core_web") for name in models):
        # Presidio would try to download one, and nothing here uses the network.
        raise MissingExtra(
            "Presidio has no language model to work with",
            remedy="Install one with: python -m spacy download en_core_web_lg",
            extra="presidio",
        )
    return analyzer()
