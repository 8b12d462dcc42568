"""Free text: what patterns find, what they leave, and that a column at once is the same as text by text."""

from __future__ import annotations

import itertools
import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.errors import DataError, MissingExtra
from deniable.masking import replacement, text_search
from deniable.policy.layout.masks import FOUND_IN_TEXT

FOUND = [
    ("Call (202) 224-3121 now.", "Call [phone] now."),
    ("Call 425 882 9090, or 425-882-9090 ext 12.", "Call [phone], or [phone]."),
    ("From +44 20 7946 0958 or +12025550123.", "From [phone] or [phone]."),
    ("Mail ann.o'neil+x@mail.example.co.uk, please", "Mail [email], please"),
    ("See http://example.org/a?b=1 and www.example.com.", "See [url] and [url]."),
    ("On example.com/login today", "On [url] today"),
    ("SSN 123-45-6789; was 987-65-4321", "SSN [national_id]; was [national_id]"),
    ("Card 4111-1111-1111-1111 ok", "Card [card] ok"),
    ("IBAN GB82 WEST 1234 5698 7654 32.", "IBAN [iban]."),
    ("IP 10.0.0.255, fe80::1 and 2001:db8:1:2:3:4:5:6", "IP [ip], [ip] and [ip]"),
    ("MAC 00:1A:2B:3C:4D:5E or 00-1a-2b-3c-4d-5e", "MAC [ip] or [ip]"),
    ("Born 12 March 1960, seen 2024-05-06, 5/6/24 and 12-JAN-2020", "Born [date], seen [date], [date] and [date]"),
    ("On Jan. 5, 2021 and in May 2020", "On [date] and in [date]"),
    ("Lives at 1600 Pennsylvania Avenue, writes to P.O. Box 44", "Lives at [address], writes to [address]"),
    ("MRN 00482913, license D1234567", "MRN [number], license [number]"),
    ("DNI 12345678Z", "DNI [national_id]"),
    ("Sent to M1 1AE or SW1A 2AA", "Sent to [postcode] or [postcode]"),
    ("Moved to K1A 0B1 and 1012 AB", "Moved to [postcode] and [postcode]"),
    ("Car 1HGCM82633A004352 and AB12 CDE", "Car [vehicle] and [vehicle]"),
    ("VIN WVWZZZ1JZXW000001, plate AA-123-BB", "VIN [vehicle], plate [vehicle]"),
    ("She is aged 94, a 101-year-old man", "She is [age], a [age] man"),
    ("on the third of March, 1960 and March twenty-first", "on the [date] and [date]"),
    ("am 12. März 1960, le 3 mars 2021, el 5 de mayo de 2020", "am [date], le [date], el [date]"),
    ("Ruf 030 1234567, tél. 01 23 45 67 89", "Ruf [phone], tél. [phone]"),
    ("NHS 9434765919, PESEL 44051401359", "NHS [national_id], PESEL [national_id]"),
    ("AHV 756.9217.0769.85, NN 85.07.30-033 28", "AHV [national_id], NN [national_id]"),
    ("HETU 131052-308T, 身份证11010519491231002X", "HETU [national_id], 身份证[national_id]"),
    ("Wohnt Hauptstraße 12a, rue de la Paix 5", "Wohnt [address], [address]"),
    ("电话010-1234-5678。生日1990年5月6日", "电话[phone]。生日[date]"),
    ("هاتف ٢٠٢-٢٢٤-٣١٢١", "هاتف [phone]"),
    ("tel\u200b 202\u2011224\u20113121 now", "tel\u200b [phone] now"),
]
LEFT = [
    "Version 1.2.3 costs 3.50 at 12:30, room 12, pages 1-2.",
    "He may come in 3 days; ratio 10:20, dose 5 mg twice, BP 120/80.",
    "No numbers here at all. E.g. this: i.e. that.",
    "",
    "@ . : :: -- ()",
    "In May 2 patients left, and in March 3 nurses.",
    "From 2019-2020 we saw 10 20 30 40 and version 10.1.22.",
    "It cost $12500, that is 12500 EUR for 10000 steps.",
    "Aged 45, a 30-year-old.",
]


@pytest.mark.parametrize(("before", "after"), FOUND)
def test_what_patterns_know_is_replaced_by_what_it_is(before: str, after: str) -> None:
    assert replacement.scrub_texts([before]) == [after]


@pytest.mark.parametrize("sentence", LEFT)
def test_harmless_numbers_and_signs_are_left_alone(sentence: str) -> None:
    assert replacement.scrub_texts([sentence]) == [sentence]


IDENTIFIERS = [
    "202 224 3121",
    "(202) 224-3121",
    "202-224-3121",
    "202.224.3121",
    "+44 20 7946 0958",
    "12/03/2024",
    "2024-05-06",
    "4111 1111 1111 1111",
    "5500-0000-0000-0004",
    "4111111111111111",
    "123-45-6789",
    "943 476 5919",
    "DE89 3704 0044 0532 0130 00",
    "GB82 WEST 1234 5698 7654 32",
    "10.0.0.255",
    "12345678Z",
    "01 23 45 67 89",
]


@pytest.mark.parametrize("between", [" ", ", ", "; ", " / ", "\n"])
def test_no_identifier_hides_the_one_beside_it(between: str) -> None:
    told = [f"x {one}{between}{two} y" for one, two in itertools.product(IDENTIFIERS, repeat=2)]
    assert [text for text in replacement.scrub_texts(told) if re.search(r"\d", text)] == []


@pytest.mark.parametrize("dash", "\u2010\u2011\u2012\u2013\u2014\u2212\uff0d")
@pytest.mark.parametrize("space", " \u00a0\u202f\u2009")
def test_dashes_and_spaces_of_word_processors_hide_nothing(dash: str, space: str) -> None:
    told = [f"x {one.replace('-', dash).replace(' ', space)} y" for one in IDENTIFIERS]
    assert [text for text in replacement.scrub_texts(told) if re.search(r"\d", text)] == []


KNOWN = [
    *IDENTIFIERS,
    "ann@example.org",
    "+12025550123",
    "9434765919",
    "AB123456C",
    "5.6.1971",
    "12 March 1960",
    "SW1A 2AA",
    "M11AE",
    "1HGCM82633A004352",
    "2001:db8:1:2:3:4:5:6",
    "00:1A:2B:3C:4D:5E",
    "MRN00482913",
    "https://example.org/a",
]
JOINERS = (
    " ",
    ",",
    ", ",
    ";",
    "\n",
    "\t",
    "\u00a0",
    "-",
    "\u2013",
    "\u2014",
    "/",
    "_",
    "",
    ")(",
    "][",
    "|",
    ":",
    "+",
    ".",
)


@pytest.mark.parametrize("between", JOINERS, ids=repr)
def test_two_identifiers_side_by_side_leave_nothing_of_each_other_whatever_joins_them(between: str) -> None:
    pairs = list(itertools.product(KNOWN, repeat=2))
    spans = replacement.find_spans([f"x {one}{between}{two} y" for one, two in pairs])
    assert [f"{one}{between}{two}" for (one, two), got in zip(pairs, spans, strict=True)
            if _is_left((one, two), between, got)] == []  # fmt: skip


def test_three_identifiers_side_by_side_leave_nothing_of_each_other() -> None:
    rng = random.Random(4)
    drawn = [(rng.choices(KNOWN, k=3), rng.choice(JOINERS)) for _ in range(4000)]
    spans = replacement.find_spans([f"x {joiner.join(three)} y" for three, joiner in drawn])
    left = [joiner.join(three) for (three, joiner), got in zip(drawn, spans, strict=True)
            if _is_left(three, joiner, got)]  # fmt: skip
    assert len(left) <= 4, left  # three in a row without anything between them can be read in several ways


def _is_left(identifiers: Sequence[str], joiner: str, spans: Sequence[text_search.Span]) -> bool:
    """Whether five characters in a row of one of the identifiers, which begin at 2, are in no span."""
    covered = {place for span in spans for place in range(span.start, span.end)}
    at = 2
    for one in identifiers:
        kept = "".join(" " if at + i in covered else sign for i, sign in enumerate(one.replace(" ", "~")))
        if any(len(part.strip("~()")) >= 5 for part in kept.split(" ")):
            return True
        at += len(one) + len(joiner)
    return False


def test_what_counts_and_measures_is_left_alone_beside_other_numbers() -> None:
    harmless = [
        "Weights were 72.5, 80.1 and 91.3 kg over 2019/2020, and 1999-2004 before.",
        "Ran 10:30-11:45, then 12:30:45.123 to 13:00:00.",
        "BP 120/80, 130/85 and 118/76; T 36.6-37.1; saturation 97-99%.",
        "Total 1,234,567.89 and 12 345 678 rows; 3.14159265358979.",
        "snake_case_name, file_name_2, img_01, test_case_12.",
        "Take 1-0-1 for 10 days; grid 12/34/56 cells; from 2021/22 and the 1980s.",
    ]
    assert replacement.scrub_texts(harmless) == harmless


REPEATED = [
    "1",
    "1 ",
    "12 ",
    "4111 ",
    "1-",
    "A-",
    "://",
    ".com/",
    "@a.com/",
    "May ",
    "DE12 AAAA ",
    "AB12 ",
    "(1",
    "a:",
    "1_",
    "1/1",
    "A1 ",
    "a@b",
]


@pytest.mark.parametrize("unit", REPEATED)
def test_the_work_grows_with_the_length_of_the_text_and_no_faster(unit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = [0]

    def count(finder: text_search.Finder) -> text_search.Finder:
        def test(text: str, start: int, end: int) -> bool:
            looked_at[0] += end - start
            return finder.test is None or finder.test(text, start, end)

        return replace(finder, test=test)

    monkeypatch.setattr(text_search, "FINDERS", tuple(map(count, text_search.FINDERS)))
    work = []
    for times in (250, 1000):
        looked_at[0] = 0
        replacement.scrub_texts([unit * times + "a"])
        work.append(looked_at[0])
    assert work[1] <= 4.5 * work[0] + 2000


def test_what_one_try_reads_is_bounded_so_that_trying_everywhere_is_linear() -> None:
    from re import _parser  # type: ignore[attr-defined]

    widths = {one.pattern.pattern: _parser.parse(one.pattern.pattern).getwidth()[1] for one in text_search.FINDERS}
    endless = [pattern for pattern, width in widths.items() if width > 1000]
    # Only a run of digits may be endless: it begins where no word does, so each run is read once.
    assert endless == [r"\d(?<!\w.)\d{40,}+"]


@given(st.lists(st.one_of(st.sampled_from([b for b, _ in FOUND] + LEFT), st.text(max_size=60)), max_size=12))
@settings(max_examples=80, deadline=None)
def test_a_column_at_once_is_the_same_as_text_by_text(texts: list[str]) -> None:
    assert replacement.scrub_texts(texts) == [replacement.scrub_texts([one])[0] for one in texts]


@given(st.text(alphabet="0123456789 .-()+@:/abcABC", max_size=80))
@settings(max_examples=150, deadline=None)
def test_spans_never_overlap_and_lie_inside_their_text(value: str) -> None:
    (spans,) = replacement.find_spans([value])
    ends = [0]
    for span in spans:
        assert ends[-1] <= span.start < span.end <= len(value)
        ends.append(span.end)


def test_only_the_kinds_asked_for_are_replaced_by_what_was_asked_for() -> None:
    said = ["Call 202-224-3121 or ann@example.org"]
    assert replacement.scrub_texts(said, ["email"], "#") == ["Call 202-224-3121 or #"]
    assert {finder.kind for finder in text_search.FINDERS} | {"name", "place"} == set(FOUND_IN_TEXT)


def test_a_text_column_keeps_type_and_nulls_and_other_columns_are_refused() -> None:
    column = pa.array(["a@example.org", None, "b"])
    assert replacement.Scrub().apply(column).to_pylist() == ["[email]", None, "b"]
    assert replacement.Scrub().apply(column).type == column.type
    with pytest.raises(DataError):
        replacement.Scrub().apply(pa.array([1]))


def test_a_second_searcher_fills_what_patterns_left_and_nothing_twice() -> None:
    def names(texts: object) -> list[list[text_search.Span]]:
        return [[text_search.Span(0, 3, "person"), text_search.Span(8, 20, "person")] for _ in texts]  # type: ignore[attr-defined]

    assert replacement.scrub_texts(["ann has a@example.org"], extra=names) == ["[person] has [email]"]


def test_without_presidio_the_flag_names_what_to_install() -> None:
    if text_search.import_module is not None and _has("presidio_analyzer"):
        pytest.skip("Presidio is installed here")
    with pytest.raises(MissingExtra, match="presidio-analyzer"):
        text_search.make_presidio_searcher()


def _has(module: str) -> bool:
    from importlib.util import find_spec

    return find_spec(module) is not None


WITH_PRESIDIO = """
import spacy
from presidio_analyzer import AnalyzerEngine, RecognizerRegistry
from presidio_analyzer.nlp_engine import SpacyNlpEngine
from deniable.masking.text_search import make_presidio_searcher

class Blank(SpacyNlpEngine):
    def __init__(self):
        super().__init__(models=[{"lang_code": "en", "model_name": "blank"}])
        self.nlp = {"en": spacy.blank("en")}

    def load(self):
        pass

registry = RecognizerRegistry()
registry.load_predefined_recognizers(languages=["en"])
engine = AnalyzerEngine(registry=registry, nlp_engine=Blank(), supported_languages=["en"])
(spans,) = make_presidio_searcher(engine)(["write to ann@example.org"])
print(sorted({(s.start, s.end, s.kind) for s in spans if s.kind == "email_address"}))
"""


def test_presidio_itself_can_be_the_second_searcher() -> None:
    root = Path(__file__).parents[2]
    python = root / ".venvs" / "presidio" / "bin" / "python"
    if not python.exists():
        pytest.skip("Presidio's own environment is not there (bench/masking.py makes it)")
    ran = subprocess.run(
        [python, "-W", "ignore", "-c", WITH_PRESIDIO],
        env={**os.environ, "PYTHONPATH": str(root / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.strip() == "[(9, 24, 'email_address')]", ran.stderr


def test_finding_starts_without_heavy_imports() -> None:
    code = "import sys, deniable.masking.text_search; print('numpy' in sys.modules, 'pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


OVERLAPPING = ("ann@clinic.org.bob@clinic.org", "a@x.com-b@x.com", "a@x.com+b@x.com", "a@x.org@proxy.net")


@pytest.mark.parametrize("odd", OVERLAPPING)
def test_finds_that_overlap_do_not_move_what_is_found_after_them(odd: str) -> None:
    """Spans of one kind that overlapped made the text longer: other characters were masked, in later rows as well."""
    texts = [f"mail {odd} please", "nothing to say", "call 202-224-3121 now", "card 4111 1111 1111 1111 on file"]
    masked = replacement.scrub_texts(texts)
    assert masked[1:] == ["nothing to say", "call [phone] now", "card [card] on file"]
    assert "@" not in masked[0]


@pytest.mark.parametrize(
    "address",
    ["max_mustermann@klinik.example", "anna_maria_huber@web.example", "first.last_name@a.example", "o!k@b.example"],
)
def test_an_address_with_an_underscore_is_one_address(address: str) -> None:
    for text in (f"write to {address}", f"mailto:{address}", f"{address}, or call"):
        masked = text_search.search_kinds(text)
        (span,) = [one for one in masked if one.kind == "email"]
        assert text[span.start : span.end].endswith(address)
