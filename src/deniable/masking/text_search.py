"""Identifiers in running text: our own patterns and check digits, and Presidio as a second searcher.

Python's `re` skips quickly to the next character that a pattern can begin with, but only if the pattern begins with a
character or a set of them, and not with a look-behind. So patterns here consume their first character and look behind
*it*: a digit, then the assertion that no word character or dot stands before it. Kinds whose beginning is common and
whose middle is rare (the @ of an e-mail, the dot before `com`) are searched by the middle and then grown to the left.

Presidio is never needed and never fetched: where it is installed with a spaCy model, `--presidio` adds what it finds.
This module imports neither numpy nor Arrow."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from deniable.errors import MissingExtra
from deniable.masking import checksums

_MONTHS = (
    "January", "February", "March", "April", "June", "July", "August", "September", "October", "November", "December",
)  # fmt: skip
MONTHS = "May|MAY|Sept|SEPT|" + "|".join(
    f"{name[:3]}(?:{name[3:]})?|{name[:3].upper()}(?:{name[3:].upper()})?" for name in _MONTHS
)
WAYS = (
    "Street|St|Avenue|Ave|Road|Rd|Boulevard|Blvd|Lane|Ln|Drive|Dr|Court|Ct|Place|Pl|Square|Sq|Highway|Hwy|Parkway|Pkwy"
    "|Terrace|Way|Circle"
)
DOMAINS = (
    "com|org|net|gov|edu|mil|int|info|biz|io|ai|app|dev|co|us|uk|de|fr|it|es|"
    "nl|be|ch|at|eu|se|no|dk|fi|pl|cz|ru|in|cn|jp"
    "|kr|br|mx|au|nz|ca|za|il|ie|me|tv|cc|ly|xyz|online|site|tech|store|cloud"
)
REST_OF_URL = r"[^\s<>\"'\0]"


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a text and what was found there. The text itself is not in it."""

    start: int
    end: int
    kind: str


@dataclass(frozen=True, slots=True)
class Finder:
    """A kind, its pattern, what may stand to the left of the pattern, and the test that the whole must pass."""

    kind: str
    pattern: re.Pattern[str]
    test: Callable[[str], bool] | None = None
    left: re.Pattern[str] | None = None
    reach: int = 64

    def spans(self, text: str, taken: bytearray) -> Iterator[Span]:
        """The free places where the pattern fits and the test agrees, without the end of the sentence."""
        for found in self.pattern.finditer(text):
            start, end = found.span()
            if self.left is not None:
                grown = self.left.search(text, max(0, start - self.reach), start)
                if grown is None:
                    continue
                start = grown.start()
            end = _trim_end(text, start, end)
            if taken.find(1, start, end) < 0 and (self.test is None or self.test(text[start:end])):
                yield Span(start, end, self.kind)


def _trim_end(text: str, start: int, end: int) -> int:
    """Where a match ends without the punctuation that ends a sentence; a bracket that was opened inside stays."""
    while end > start + 1 and text[end - 1] in ".,;:!?) ":
        if text[end - 1] == ")" and "(" in text[start:end]:
            break
        end -= 1
    return end


def _is_phone(match: str) -> bool:
    """Seven to fifteen digits, written as numbers are dialed: with a plus, brackets or separators."""
    digits = sum(map(str.isdigit, match))
    if match[0] == "+":
        return 7 <= digits <= 15
    return 7 <= digits <= 12


def _is_date(match: str) -> bool:
    parts = [int(part) for part in re.findall(r"\d+", match)]
    return len(parts) < 3 or (any(part <= 12 for part in parts) and sum(part > 31 for part in parts) <= 1)


def _is_ipv4(match: str) -> bool:
    return all(int(part) < 256 for part in match.split("."))


def _is_ipv6_or_mac(match: str) -> bool:
    """A MAC address, or IPv6: eight groups, or fewer around one double colon."""
    groups = match.split(":")
    if len(groups) == 6 and all(len(group) == 2 for group in groups):
        return True
    short = match.count("::") == 1 and ":::" not in match and match != "::"
    return all(len(group) <= 4 for group in groups) and (short or (len(groups) == 8 and all(groups)))


def _is_national(match: str) -> bool:
    size = len(checksums.compact(match))
    return any(known.test(match) for known in checksums.NATIONAL if size in known.lengths) or checksums.is_us_ssn(match)


def _compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


FINDERS = (
    Finder("url", _compile_pattern(rf"://{REST_OF_URL}+"), left=_compile_pattern(r"[A-Za-z]{3,8}\Z")),
    Finder("url", _compile_pattern(rf"[wW][wW][wW]\.{REST_OF_URL}+")),
    Finder("email", _compile_pattern(r"@(?:[\w-]{1,63}\.)+[A-Za-z]{2,24}\b"), left=_compile_pattern(r"[\w.+%'-]+\Z")),
    Finder(
        "url",
        _compile_pattern(rf"\.(?:{DOMAINS}|{DOMAINS.upper()})\b(?:[/?:]{REST_OF_URL}*)?"),
        left=_compile_pattern(r"(?<![\w@.-])(?:[A-Za-z0-9-]+\.)*[A-Za-z0-9-]+\Z"),
    ),
    Finder(
        "iban", _compile_pattern(r"[A-Z](?<!\w.)[A-Z]\d\d ?(?:[A-Z0-9]{4} ?){2,7}[A-Z0-9]{1,4}\b"), checksums.is_iban
    ),
    Finder("card", _compile_pattern(r"\d(?<![\w.-].)(?:[ -]?\d){12,18}+(?![\w-])"), checksums.is_card),
    Finder("ip", _compile_pattern(r"\d(?<![\d.].)\d{0,2}(?:\.\d{1,3}){3}(?!\.?\d)"), _is_ipv4),
    Finder(
        "ip",
        _compile_pattern(r":[0-9A-Fa-f]*:[0-9A-Fa-f:]*"),
        _is_ipv6_or_mac,
        _compile_pattern(r"(?<![\w:])[0-9A-Fa-f]*\Z"),
        5,
    ),
    Finder(
        "ip",
        _compile_pattern(r"-[0-9A-Fa-f]{2}(?:-[0-9A-Fa-f]{2}){4}(?![\w-])"),
        None,
        _compile_pattern(r"(?<![\w-])[0-9A-Fa-f]{2}\Z"),
        3,
    ),
    Finder("national_id", _compile_pattern(r"\d(?<![\w-].)\d\d[- .]\d\d[- .]\d{4}(?![\w-])"), checksums.is_us_ssn),
    Finder("national_id", _compile_pattern(r"9(?<![\w-].)\d\d[- ]?[5-9]\d[- ]?\d{4}(?![\w-])")),
    Finder(
        "date",
        _compile_pattern(
            r"\d(?<![\w/.-].)(?:\d{3}[-/.]\d\d?[-/.]\d\d?(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?Z?)?"
            r"|\d?([-/.])\d\d?\1(?:\d{4}|\d\d))(?![\w/-]|\.\d)"
        ),
        _is_date,
    ),
    Finder(
        "date",
        _compile_pattern(
            rf"\d(?<!\w.)\d?(?:st|nd|rd|th)?(?: of|\.)?[ -](?:{MONTHS})\b\.?(?:,?[ -](?:\d{{4}}|" rf"\d\d))?\b"
        ),
    ),
    Finder("date", _compile_pattern(rf"(?:{MONTHS})\.?,? (?:\d{{1,2}}(?:st|nd|rd|th)?(?:,? \d{{4}})?|\d{{4}})\b")),
    Finder(
        "phone",
        _compile_pattern(
            r"\+(?<!\w.)\d{1,3}[ .-]?(?:\(0?\d{1,4}\)[ .-]?)?\d{1,5}(?:[ .-]?\(?\d{2,5}\)?){1,4}(?:,? ?(?:x|"
            r"ext\.?) ?\d{1,5})?(?!\w)"
        ),
        _is_phone,
    ),
    Finder(
        "phone",
        _compile_pattern(r"\((?<!\w.)0?\d{2,4}\)[ .-]?\d{3,4}[ .-]?\d{3,4}(?:,? ?(?:x|ext\.?) ?\d{1,5})?(?!\w)"),
        _is_phone,
    ),
    Finder(
        "phone",
        _compile_pattern(r"\d(?<![\w.+(-].)\d{0,4}(?:[ .-]\(?\d{2,5}\)?){1,4}(?:,? ?(?:x|ext\.?) ?\d{1,5})?(?![\w-])"),
        _is_phone,
    ),
    Finder(
        "national_id",
        _compile_pattern(r"[A-Z0-9](?<![\w-].)[A-Z]?[ -]?\d(?:[ .-]?\d){6,14}+(?:[ -]?[A-Z])?+(?![\w-])"),
        _is_national,
    ),
    Finder(
        "national_id",
        _compile_pattern(
            r"[A-Z](?<!\w.)[A-Z]{5}\d\d[A-Z]\d\d[A-Z]\d{3}[A-Z]\b|[A-Z](?<!\w.)[A-Z](?: ?\d\d){3} ?[A-D]\b"
        ),
        _is_national,
    ),
    Finder(
        "address",
        _compile_pattern(
            rf"\d(?<![\w.].)\d{{0,5}}[A-Za-z]?,? (?:(?:[NSEW]\.?|[A-Z][\w.'-]*|\d{{1,3}}(?:st|"
            rf"nd|rd|th)) ){{1,4}}(?:{WAYS})\b\.?"
            r"(?:,? (?:Apt|Suite|Ste|Unit|Room|Floor|#)\.? ?\w+)?(?:,? [A-Z][\w ]{2,20},? [A-Z]{2} \d{5}(?:-\d{4})?)?"
        ),
    ),
    Finder("address", _compile_pattern(r"P(?<!\w.)\.? ?O\.? ?Box \d+")),
    Finder(
        "number",
        _compile_pattern(
            r"[A-Z0-9](?<![\w.].)[A-Z]{0,3}-?\d[\dA-Z]*(?:-?\d){3,}[A-Z]?(?!\w)|[13b](?<!\w.)[a-zA-HJ-NP-Z0-9]"
            r"{25,61}\b"
        ),
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
