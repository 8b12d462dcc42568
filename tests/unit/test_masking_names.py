"""Names and places in text: what the shipped model finds on texts it was not trained on, and what it leaves alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deniable.masking import names, replacement

ROOT = Path(__file__).parents[2]

FOUND = [
    ("Ann Smith called from (202) 224-3121.", "[name] called from [phone]."),
    ("Spoke with Dr. Ramirez about John's results.", "Spoke with Dr. [name] about [name]'s results."),
    ("Mr Bell and Dr. Graves saw Ann Murphy at Mill House.", "Mr [name] and Dr. [name] saw [name] at Mill House."),
    ("She moved from Chicago to New York in 2019.", "She moved from [place] to [place] in 2019."),
    ("Пациент Иванов принимает аспирин.", "Пациент [name] принимает аспирин."),
    ("患者王小明主诉头痛。", "患者[name]主诉头痛。"),
    ("田中さんが来た。", "[name]さんが来た。"),
    ("김민수 씨가 왔다.", "[name] 씨가 왔다."),
    ("מר כהן", "מר [name]"),
    ("श्री राम", "श्री [name]"),
]
LEFT = [
    "The Annual Report is due on Friday, please read Section 4.",
    "Started Amoxicillin; Vitamin D was low.",
    "Will call again. May need surgery. Mark as done.",
    "PAST MEDICAL HISTORY: NONE",
    "Known Crohn's and Parkinson's disease; Bell's palsy resolved, Murphy's sign negative, Wells score low.",
    "Admitted to the Royal Infirmary from Rookwood House in Mill Road, referred by Northwind Ltd.",
    "Scenes cleared. Ferries were late; Cheers to all. The Tamil interpreter drove a Volvo to Tesco on Dienstag.",
    "",
    "I think I should go.",
]


@pytest.mark.parametrize(("before", "after"), FOUND)
def test_names_and_places_are_replaced_in_several_scripts(before: str, after: str) -> None:
    assert replacement.scrub_texts([before]) == [after]


@pytest.mark.parametrize("text", LEFT)
def test_ordinary_words_with_capitals_are_left_alone(text: str) -> None:
    assert replacement.scrub_texts([text], ["name", "place"]) == [text]


def test_only_names_or_only_places_can_be_asked_for() -> None:
    told = ["Ann Smith lives in Chicago, 202-224-3121"]
    assert replacement.scrub_texts(told, ["name"]) == ["[name] lives in Chicago, 202-224-3121"]
    assert replacement.scrub_texts(told, ["place"]) == ["Ann Smith lives in [place], 202-224-3121"]


@pytest.mark.parametrize("corpus", ["free_text_tuned.txt", "free_text_held_out.txt"])
def test_on_texts_written_by_hand_four_of_five_are_found_and_few_others(corpus: str) -> None:
    found = wanted = right = told = 0
    for line in (ROOT / "bench" / corpus).read_text(encoding="utf-8").splitlines()[1:]:
        text, spans = _read_marks(line)
        got = list(names.find_names(text))
        wanted += len(spans)
        found += sum(_measure_cover(one, got) >= 0.9 for one in spans)
        told += len(got)
        right += sum(any(start < two and one < end for one, two in spans) for start, end, _ in got)
    assert wanted > 120
    assert found / wanted >= 0.80
    assert right / told >= 0.85


def _read_marks(line: str) -> tuple[str, list[tuple[int, int]]]:
    text, spans, at = "", [], 0
    for mark in re.finditer(r"\{[np]:(.*?)\}", line):
        text += line[at : mark.start()]
        spans.append((len(text), len(text) + len(mark[1])))
        text, at = text + mark[1], mark.end()
    return text + line[at:], spans


def _measure_cover(span: tuple[int, int], got: list[tuple[int, int, str]]) -> float:
    start, end = span
    return sum(max(0, min(end, two) - max(start, one)) for one, two, _ in got) / (end - start)


def test_finding_names_needs_neither_numpy_nor_a_download() -> None:
    source = Path(names.__file__).read_text(encoding="utf-8")
    assert not re.search(r"^(?:import|from) (?!__future__|re\b|collections|functools|itertools|deniable)", source, re.M)
