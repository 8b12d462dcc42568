"""Public standards as hierarchies: the facts, the spellings that are understood, and what is refused."""

from __future__ import annotations

import itertools
import json
from datetime import date, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from deniable.cli.anonymize import _read_hierarchy
from deniable.cli.main import app
from deniable.curator.policy.draft import draft
from deniable.errors import DataError, ParameterError, PolicyError
from deniable.kanonymity.anonymize import anonymize, recode_table
from deniable.kanonymity.builders import library
from deniable.kanonymity.builders.library import (
    STANDARDS,
    expand_standard,
    list_groups,
    read_facts,
    suggest_hierarchy,
)
from deniable.kanonymity.builders.specs import draft_column, freeze_spec, make_builder
from deniable.kanonymity.hierarchy import Hierarchy
from deniable.kanonymity.local_recoding import write_local
from deniable.kanonymity.models import KAnonymity
from deniable.kanonymity.recoding import Recoder, from_document, to_document
from deniable.kanonymity.request import Request, prepare
from deniable.kanonymity.search.mondrian import mondrian
from deniable.masking.generalization import RESTRICTED
from deniable.policy.document import parse
from deniable.policy.layout.hierarchies import STANDARD_LEVELS
from deniable.policy.schema import Spec

CLASSIFIED = [standard for standard in STANDARDS.values() if standard.find is not None]


def build(name: str, values: list[object], **options: object) -> Hierarchy:
    return make_builder(Spec("standard", {"name": name, **options})).hierarchy("column", pa.array(values))


def groups_of(name: str, value: str) -> tuple[str, ...]:
    (row,) = build(name, [value]).rows()
    return tuple(str(label) for label in row[1:-1])


# Facts, written down a second time: a value, its groups, and of labelled groups only the code before the title.
FACTS = {
    "icd10": [
        ("A09", "A09", "A00-A09", "A00-B99"),
        ("B20", "B20", "B20-B24", "A00-B99"),
        ("C50.911", "C50", "C50", "C00-D49"),
        ("C4A.9", "C4A", "C43-C44,", "C00-D49"),
        ("C7A.0", "C7A", "C7A", "C00-D49"),
        ("D48.9", "D48", "D37-D48", "C00-D49"),
        ("D50.0", "D50", "D50-D53", "D50-D89"),
        ("E11.9", "E11", "E08-E14", "E00-E90"),
        ("E66.0", "E66", "E65-E68", "E00-E90"),
        ("F32.1", "F32", "F30-F39", "F00-F99"),
        ("G40", "G40", "G40-G47", "G00-G99"),
        ("H59.9", "H59", "H55-H59", "H00-H59"),
        ("H60.0", "H60", "H60-H62", "H60-H95"),
        ("I21.4", "I21", "I20-I25", "I00-I99"),
        ("I63.9", "I63", "I60-I69", "I00-I99"),
        ("J45.909", "J45", "J40-J47,", "J00-J99"),
        ("K35", "K35", "K35-K38", "K00-K95"),
        ("L40.0", "L40", "L40-L45", "L00-L99"),
        ("M1A.00X0", "M1A", "M05-M14,", "M00-M99"),
        ("N18.6", "N18", "N17-N19", "N00-N99"),
        ("O9A.2", "O9A", "O94-O99,", "O00-O99,"),
        ("P07.1", "P07", "P05-P08", "P00-P96"),
        ("Q90.9", "Q90", "Q90-Q99", "Q00-Q99"),
        ("R07.4", "R07", "R00-R09", "R00-R99"),
        ("S72.001A", "S72", "S70-S79", "S00-T98"),
        ("T36.0", "T36", "T36-T50", "S00-T98"),
        ("U07.1", "U07", "U00-U49", "U00-U99"),
        ("W19", "W19", "W00-W19", "V00-Y99"),
        ("X99", "X99", "X85-Y09", "V00-Y99"),
        ("Y04", "Y04", "X85-Y09", "V00-Y99"),
        ("Z3A.20", "Z3A", "Z30-Z39,", "Z00-Z99"),
        ("Z51.1", "Z51", "Z40-Z54", "Z00-Z99"),
    ],
    "icd9": [
        ("008.45", "008", "001-009", "001-139"),
        ("042", "042", "042", "001-139"),
        ("174.9", "174", "170-176", "140-239"),
        ("250.83", "250", "249-259", "240-279"),
        ("285.9", "285", "280-289", "280-289"),
        ("296.2", "296", "295-299", "290-319"),
        ("345.9", "345", "340-349", "320-389"),
        ("414.01", "414", "410-414", "390-459"),
        ("428.0", "428", "420-429", "390-459"),
        ("486", "486", "480-488", "460-519"),
        ("540.9", "540", "540-543", "520-579"),
        ("584.9", "584", "580-589", "580-629"),
        ("650", "650", "650-659", "630-679"),
        ("682.6", "682", "680-686", "680-709"),
        ("715.9", "715", "710-719", "710-739"),
        ("745.5", "745", "740-759", "740-759"),
        ("765.1", "765", "764-779", "760-779"),
        ("786.50", "786", "780-789", "780-799"),
        ("820.8", "820", "820-829", "800-999"),
        ("996.7", "996", "996-999", "800-999"),
        ("V57", "V57", "V50-V59", "V01-V91"),
        ("V85.4", "V85", "V85", "V01-V91"),
        ("E885.9", "E885", "E880-E888", "E000-E999"),
        ("E950", "E950", "E950-E959", "E000-E999"),
    ],
    "countries": [
        ("NO", "Northern Europe", "Europe"),
        ("USA", "Northern America", "Americas"),
        ("Mexico", "Central America", "Americas"),
        ("Brazil", "South America", "Americas"),
        ("Jamaica", "Caribbean", "Americas"),
        ("Egypt", "Northern Africa", "Africa"),
        ("ZA", "Southern Africa", "Africa"),
        ("Kenya", "Eastern Africa", "Africa"),
        ("Nigeria", "Western Africa", "Africa"),
        ("Cameroon", "Middle Africa", "Africa"),
        ("Japan", "Eastern Asia", "Asia"),
        ("IN", "Southern Asia", "Asia"),
        ("Vietnam", "South-eastern Asia", "Asia"),
        ("KAZ", "Central Asia", "Asia"),
        ("Türkiye", "Western Asia", "Asia"),
        ("Turkey", "Western Asia", "Asia"),
        ("Cyprus", "Western Asia", "Asia"),
        ("RU", "Eastern Europe", "Europe"),
        ("Italy", "Southern Europe", "Europe"),
        ("DEU", "Western Europe", "Europe"),
        ("United-States", "Northern America", "Americas"),
        ("Côte d'Ivoire", "Western Africa", "Africa"),
        ("NZ", "Australia and New Zealand", "Oceania"),
        ("Fiji", "Melanesia", "Oceania"),
        ("Samoa", "Polynesia", "Oceania"),
        ("Guam", "Micronesia", "Oceania"),
        ("AQ", "Antarctica", "Antarctica"),
    ],
    "us_states": [
        ("MA", "New England", "Northeast"),
        ("New York", "Middle Atlantic", "Northeast"),
        ("oh", "East North Central", "Midwest"),
        ("Missouri", "West North Central", "Midwest"),
        ("DC", "South Atlantic", "South"),
        ("47", "East South Central", "South"),
        ("TX", "West South Central", "South"),
        ("Colorado", "Mountain", "West"),
        ("06", "Pacific", "West"),
        ("PR", "Island areas", "Outside the states"),
    ],
    "us_zip": [
        ("02139", "0213", "021", "MA", "New England", "Northeast"),
        ("10001", "1000", "100", "NY", "Middle Atlantic", "Northeast"),
        ("00501", "0050", "005", "NY", "Middle Atlantic", "Northeast"),
        ("60614-1234", "6061", "606", "IL", "East North Central", "Midwest"),
        ("73301", "7330", "733", "TX", "West South Central", "South"),
        ("20147", "2014", "201", "VA", "South Atlantic", "South"),
        ("30301", "3030", "303", "GA", "South Atlantic", "South"),
        ("94105", "9410", "941", "CA", "Pacific", "West"),
        ("96801", "9680", "968", "HI", "Pacific", "West"),
        ("00901", "0090", "009", "PR", "Island areas", "Outside the states"),
        ("03601", "000", "000", "000", "000", "000"),
        ("89301", "000", "000", "000", "000", "000"),
    ],
    "nuts": [
        ("DE212", "DE21", "DE2", "DE"),
        ("FR101", "FR10", "FR1", "FR"),
        ("EL303", "EL30", "EL3", "EL"),
        ("fi1b1", "FI1B", "FI1", "FI"),
        ("NO08", "NO08", "NO0", "NO"),
    ],
    "isco08": [
        ("2211", "221", "22", "2"),
        ("0110", "011", "01", "0"),
        ("1120", "112", "11", "1"),
        ("5223", "522", "52", "5"),
        ("9621", "962", "96", "9"),
        ("110", "011", "01", "0"),
    ],
    "education": [
        ("Preschool", "0", "Low"),
        ("1st-4th", "1", "Low"),
        ("11th", "2", "Low"),
        ("HS-grad", "3", "Medium"),
        ("Some-college", "4", "Medium"),
        ("Assoc-voc", "5", "High"),
        ("Bachelor's degree", "6", "High"),
        ("MASTERS", "7", "High"),
        ("PhD", "8", "High"),
        ("5", "5", "High"),
        ("ISCED 3", "3", "Medium"),
    ],
    "hours": [
        ("0", "00h", "night"),
        ("05:59", "05h", "night"),
        ("6", "06h", "morning"),
        ("12:00:00", "12h", "afternoon"),
        ("18h", "18h", "evening"),
        ("23", "23h", "evening"),
    ],
    "weekdays": [("Mon", "working"), ("friday", "working"), ("SAT", "weekend"), ("7", "weekend")],
    "months": [("Dec", "winter"), ("2", "winter"), ("March", "spring"), ("08", "summer"), ("november", "autumn")],
}  # fmt: skip

UNKNOWN = {
    "icd10": ["", "D95", "E95", "H97", "K99", "P98", "T99", "A0", "A00.12345", "11.9", "C9A", "Asthma"],
    "icd9": ["", "000", "1000.1", "V92", "V00", "250.123", "A12", "E1"],
    "countries": ["", "XX", "Atlantis", "South", "U"],
    "us_states": ["", "ZZ", "Ontario", "03", "99"],
    "us_zip": ["", "12", "123456", "0213A", "00101", "SW1A 1AA"],
    "nuts": ["", "GR30", "D", "DE2123", "US123", "DE-21"],
    "isco08": ["", "9999", "2799", "22111", "nurse", "15"],
    "education": ["", "9", "unknown", "ISCED 9"],
    "hours": ["", "24", "12:60", "noon", "-1"],
    "weekdays": ["", "0", "8", "Montag"],
    "months": ["", "0", "13", "Mai"],
}


@pytest.mark.parametrize("name", FACTS)
def test_values_have_the_groups_that_the_source_states(name: str) -> None:
    titled = name not in ("countries", "us_states", "us_zip")
    for value, *expected in FACTS[name]:
        told = [label.split(" ")[0] if titled else label for label in groups_of(name, value)]
        assert told == expected, value


def test_every_standard_with_facts_is_in_the_tables_of_this_test() -> None:
    assert set(FACTS) == set(UNKNOWN) == {standard.name for standard in CLASSIFIED}
    assert list(STANDARDS) == list(STANDARD_LEVELS)


@pytest.mark.parametrize("name", UNKNOWN)
def test_values_that_a_standard_does_not_have_are_refused_without_being_shown(name: str) -> None:
    told = set()
    for value in UNKNOWN[name]:
        with pytest.raises(DataError, match=r"^Values of column 'column'") as refused:
            build(name, [FACTS[name][0][0], value])
        told.add(refused.value.message)
    assert len(told) == 1, "the message does not depend on the value"


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_values_are_one_group_where_the_policy_says_other(name: str) -> None:
    built = build(name, [FACTS[name][0][0], *UNKNOWN[name]], other=True)
    rows = {row[0]: row[1:-1] for row in built.rows()}
    assert all(set(rows[value]) == {"other"} for value in UNKNOWN[name])
    assert "other" not in rows[FACTS[name][0][0]]


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("standard", CLASSIFIED, ids=lambda s: s.name)
@given(data=st.data())
def test_each_level_merges_whole_groups_of_the_one_below(standard: library.Standard, data: st.DataObject) -> None:
    domain = sorted({*standard.known(), *(row[0] for row in FACTS[standard.name])})
    values = data.draw(st.lists(st.sampled_from(domain), unique=True, max_size=40))
    built = build(standard.name, values or ["?"], other=True)
    for below, above in itertools.pairwise(built.levels):
        parents: dict[int, set[int]] = {}
        for low, high in zip(below.groups.tolist(), above.groups.tolist(), strict=True):
            parents.setdefault(low, set()).add(high)
        assert all(len(held) == 1 for held in parents.values())
        assert above.size <= below.size
    assert built.height == len(standard.levels) + 2


@pytest.mark.parametrize("standard", CLASSIFIED, ids=lambda s: s.name)
def test_ordered_values_stand_in_an_order_in_which_every_group_is_one_run(standard: library.Standard) -> None:
    built = build(standard.name, [*dict.fromkeys(standard.known()), "?"], other=True)
    assert built.ordered == (standard.name in ("education", "hours", "weekdays", "months"))
    for level in built.levels if built.ordered else ():
        runs = [group for group, _ in itertools.groupby(level.groups.tolist())]
        assert len(runs) == level.size


def test_education_is_in_the_order_of_schooling_whatever_the_words_are() -> None:
    adult = ["Preschool", "1st-4th", "5th-6th", "7th-8th", "9th", "10th", "11th", "12th", "HS-grad", "Some-college",
             "Assoc-voc", "Assoc-acdm", "Bachelors", "Masters", "Prof-school", "Doctorate"]  # fmt: skip
    assert list(build("education", sorted(adult)).leaves) == adult


def test_codes_keep_their_order_also_where_zeros_were_lost() -> None:
    assert build("icd9", ["V10", "250", "8", "E880", "38", "1"]).leaves == ("1", "8", "38", "250", "E880", "V10")
    assert build("us_zip", [94105, 2139, 601]).leaves == ("601", "2139", "94105")


ICD10_CHAPTERS = (
    "A00 B99, C00 D49, D50 D89, E00 E90, F00 F99, G00 G99, H00 H59, H60 H95, I00 I99, J00 J99, K00 K95, L00 L99, "
    "M00 M99, N00 N99, O00 O99, P00 P96, Q00 Q99, R00 R99, S00 T98, V00 Y99, Z00 Z99, U00 U99"
)
ICD10_GAPS = {*(f"D{n}" for n in range(90, 100)), *(f"E{n}" for n in range(91, 100)), "H96", "H97", "H98", "H99",
              "K96", "K97", "K98", "K99", "P97", "P98", "P99", "T99"}  # fmt: skip


@cache
def _list_ends(name: str, level: str) -> list[tuple[str, str]]:
    parts = [part for kind, ranges, _ in read_facts(name)[1] if kind == level for part in ranges.split(",")]
    return [(part.split("-")[0], part.split("-")[-1]) for part in parts]


def _count_holders(name: str, level: str, category: str) -> int:
    """A naive twin of the lookup: in how many ranges of the file the category lies."""
    ends = _list_ends(name, level)
    return sum(
        len(a) == len(category) and a[0].isdigit() == category[0].isdigit() and a <= category <= b for a, b in ends
    )


def _group_all(name: str, categories: list[str]) -> dict[str, tuple[str, ...]]:
    return {str(row[0]): tuple(map(str, row[1:-1])) for row in build(name, categories, other=True).rows()}


def test_every_category_of_icd10_has_one_chapter_and_at_most_one_block() -> None:
    chapters = [pair.split() for pair in ICD10_CHAPTERS.split(", ")]
    assert len(chapters) == 22
    found = _group_all("icd10", [f"{chr(letter)}{n:02}" for letter in range(65, 91) for n in range(100)])
    assert len(found) == 2600
    for category, (own, block, chapter) in found.items():
        (mine,) = [f"{a}-{b}" for a, b in chapters if a <= category <= b] or ["other"]
        assert (mine == "other") == (category in ICD10_GAPS)
        assert chapter.split(" ")[0].rstrip(",") == mine
        assert _count_holders("icd10", "chapter", category) == (mine != "other")
        blocks = _count_holders("icd10", "block", category)
        assert blocks <= 1
        assert mine == "other" or (own == category and block.endswith("(no block)") == (blocks == 0))


ICD9_CHAPTERS = (1, 140, 240, 280, 290, 320, 390, 460, 520, 580, 630, 680, 710, 740, 760, 780, 800, 1000)


def test_every_category_of_icd9_has_one_chapter_and_at_most_one_block() -> None:
    numbers = {f"{n:03}": f"{first:03}-{last - 1:03} " for first, last in itertools.pairwise(ICD9_CHAPTERS)
               for n in range(first, last)}  # fmt: skip
    others = {f"V{n:02}": "V01-V91 " for n in range(1, 92)} | {f"E{n:03}": "E000-E999 " for n in range(1000)}
    expected = numbers | others
    found = _group_all("icd9", list(expected))
    assert len(found) == 999 + 91 + 1000
    for category, (own, block, chapter) in found.items():
        assert own == category
        assert chapter.startswith(expected[category])
        assert _count_holders("icd9", "chapter", category) == 1
        blocks = _count_holders("icd9", "block", category)
        assert blocks <= 1
        assert block.endswith("(no block)") == (blocks == 0)


def test_case_dots_and_spaces_do_not_matter() -> None:
    for spelling in ("E11.65", "e11.65", "E1165", " e1165 ", "E11"):
        assert groups_of("icd10", spelling) == groups_of("icd10", "E11.9")
    for spelling in ("250.83", "25083", "250", "250.", " 250.8"):
        assert groups_of("icd9", spelling) == groups_of("icd9", "250.01")
    assert groups_of("icd9", "v5789") == groups_of("icd9", "V57.9")
    assert groups_of("icd9", "e8859") == groups_of("icd9", "E885")
    assert groups_of("icd9", "8") == groups_of("icd9", "008.8")
    for spelling in ("us", "USA", "840", "United States", "the united states", "U.S.", "United-States"):
        assert groups_of("countries", spelling) == ("Northern America", "Americas")


def test_values_keep_their_own_spelling_at_the_first_level() -> None:
    assert [row[0] for row in build("icd10", ["e119", "E11.9"]).rows()] == ["E11.9", "e119"]


def test_missing_values_stay_missing_below_the_last_level() -> None:
    built = build("icd10", ["A00", None]).with_missing()
    assert list(built.rows())[-1] == (None, None, None, None, "*")
    assert build("icd10", [None, None]).size == 0


def test_zip_codes_that_became_numbers_get_their_zeros_back() -> None:
    assert [row[2] for row in build("us_zip", [601, 2139, 94105]).rows()] == ["006", "021", "941"]
    assert [row[2] for row in build("us_zip", [601.0, 3601.0]).rows()] == ["006", "000"]
    assert groups_of("us_zip", "601")[1] == "601", "three digits of text are an area"


def test_small_zip_areas_are_those_of_the_mask_and_are_000_at_every_level() -> None:
    assert library.SMALL_ZIP3 == RESTRICTED
    for area in RESTRICTED:
        assert set(groups_of("us_zip", f"{area}01")) == {"000"}


def test_every_zip_area_of_a_state_is_in_the_same_region_as_the_state() -> None:
    for area in set(STANDARDS["us_zip"].known()) - library.SMALL_ZIP3:
        _, _, state, *above = groups_of("us_zip", area)
        assert tuple(above) == groups_of("us_states", state)


def test_there_are_as_many_groups_as_the_sources_have() -> None:
    def count(name: str, level: str) -> int:
        return len({groups[STANDARD_LEVELS[name].index(level)] for groups in list_groups(STANDARDS[name])})

    assert count("icd10", "chapter") == 22
    assert count("icd9", "chapter") == 19
    assert count("countries", "region") == 6
    assert count("countries", "subregion") == 23
    states = [row for row in read_facts("us_states")[1] if row[4] != "Outside the states"]
    assert (len(states), len({row[3] for row in states}), len({row[4] for row in states})) == (51, 9, 4)
    assert count("isco08", "major") == 10
    assert len([row for row in read_facts("isco08")[1] if len(row[0]) == 2]) == 43
    assert count("education", "isced") == 9
    assert len({row[0] for row in read_facts("countries")[1]}) == 253
    assert len(read_facts("nuts")[1]) == 37


def test_every_file_of_facts_names_its_source() -> None:
    folder = Path(library.__file__).parent / "data"
    names = sorted(file.stem for file in folder.iterdir())
    assert names == ["countries", "education", "icd10", "icd9", "isco08", "nuts", "us_states"]
    for name in names:
        assert any("Source" in remark for remark in read_facts(name)[0])
    assert all(standard.source and standard.title and standard.example for standard in STANDARDS.values())


def test_the_example_of_every_standard_fits_it() -> None:
    for standard in STANDARDS.values():
        assert build(standard.name, [standard.example]).size == 1


def test_ages_are_coded_at_the_top_from_90_on() -> None:
    rows = {row[0]: row[1:] for row in build("ages", [39, 89]).rows()}
    assert rows == {"39": ("[35, 40)", "[30, 40)", "[20, 40)", "*"), "89": ("[85, 90)", "[80, 90)", "[80, 100)", "*")}
    old = build("ages", [90, 91, 105])
    assert [level.size for level in old.levels] == [1, 1, 1, 1, 1]
    assert build("ages", [90], top=85).levels[0].labels == (">= 85",)


def test_incomes_dates_and_coordinates_are_names_for_other_kinds() -> None:
    (income,) = build("incomes", [41250]).rows()
    assert income[1:] == ("[41000, 42000)", "[40000, 45000)", "[40000, 50000)", "[0, 50000)", "*")
    (day,) = build("dates", [date(2024, 5, 17)]).rows()
    assert day[1:] == ("2024-W20 in 2024-05", "2024-05", "2024-Q2", "2024", "2020s", "*")
    (time,) = build("times", [datetime(2024, 5, 17, 8, 30)]).rows()
    assert time[1:4] == ("2024-05-17 08h", "2024-05-17 morning", "2024-05-17")
    assert next(build("seasons", [date(2024, 12, 1)]).rows())[1:3] == ("December", "winter")
    (place,) = build("coordinates", [-59.91391]).rows()
    assert place[1:] == ("-59.9140", "-59.914", "-59.92", "-60.0", "-60", "*")


def test_a_policy_may_choose_levels() -> None:
    assert next(build("icd10", ["E11.9"], levels=("chapter",)).rows())[1:] == (
        "E00-E90 Endocrine, nutritional and metabolic diseases", "*")  # fmt: skip
    assert expand_standard(Spec("standard", {"name": "ages", "levels": ("10",)})).options["widths"] == (10,)
    for name, levels in (("icd10", ("chapter", "block")), ("icd10", ("region",)), ("ages", ("20", "10"))):
        with pytest.raises(ParameterError, match=f"The standard '{name}'"):
            build(name, ["39"], levels=levels)


def test_an_unknown_standard_is_refused_with_the_nearest() -> None:
    with pytest.raises(ParameterError, match=r"There is no standard 'icd11'.*icd10"):
        build("icd11", ["A00"])
    with pytest.raises(ParameterError, match="has no group 'other'"):
        build("ages", [39], other=True)


def test_a_recoding_keeps_the_standard_and_codes_later_rows_alike() -> None:
    chance = np.random.default_rng(0)
    codes = [f"{c}.{n}" for c in ("E11", "E66", "I10", "I21", "J45", "J46") for n in range(4)]
    table = pa.table({"diagnosis": chance.choice(codes, 400).tolist(), "age": chance.integers(20, 99, 400)})
    declared = {"diagnosis": Spec("standard", {"name": "icd10"}), "age": Spec("standard", {"name": "ages"})}
    made = anonymize(table, Request(("diagnosis", "age"), (KAnonymity(20),)), declared)
    released = recode_table(table, made.recoding)
    assert min(group["count"] for group in _count_rows(released)) >= 20
    again = Recoder(from_document(json.loads(json.dumps(to_document(made.recoding)))))
    assert again.recode(table).to_pylist() == released.to_pylist()
    kinds = {column.name: column.spec.kind for column in made.recoding.columns}
    assert kinds == {"diagnosis": "standard", "age": "intervals"}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", ["education", "icd9"])
def test_a_local_recoding_shows_groups_of_the_standard_that_hold_the_value(name: str) -> None:
    chance = np.random.default_rng(1)
    values = [row[0] for row in FACTS[name]]
    table = pa.table({"value": chance.choice(values, 300).tolist()})
    ready = prepare(table, Request(("value",), (KAnonymity(20),)), {"value": Spec("standard", {"name": name})})
    shown = write_local(table, ready, mondrian(ready))["value"].to_pylist()
    for value, label in zip(table["value"].to_pylist(), shown, strict=True):
        assert label in (value, *groups_of(name, value), "*")
    assert len(set(shown)) > 2
    assert min(shown.count(label) for label in set(shown)) >= 20


def _count_rows(table: pa.Table) -> list[dict[str, int]]:
    names = table.column_names
    plain = pa.table({name: table[name].cast(pa.string()) for name in names})
    return plain.group_by(names).aggregate([([], "count_all")]).rename_columns([*names, "count"]).to_pylist()


def test_coordinates_of_the_standard_stay_numbers_in_a_release() -> None:
    table = pa.table({"lat": [59.91, 59.92, 59.93, 59.94] * 5})
    made = anonymize(table, Request(("lat",), (KAnonymity(10),)), {"lat": Spec("standard", {"name": "coordinates"})})
    assert recode_table(table, made.recoding)["lat"].type == pa.float64()
    frozen = freeze_spec(Spec("standard", {"name": "coordinates"}), build("coordinates", [1.5]), pa.array([1.5]))
    assert frozen.kind == "coordinates"


SUGGESTED = {
    ("diagnosis", ("E11.9", "I10", "J45.1")): {"name": "icd10"},
    ("anything", ("E11.9", "I10.0", "J45.1")): {"name": "icd10"},
    ("diag_1", ("250.83", "8", "V57", "E909")): {"name": "icd9"},
    ("nativeCountry", ("NO", "SE", "DK")): {"name": "countries"},
    ("x", ("Norway", "Sweden", "Denmark")): {"name": "countries"},
    ("state", ("CA", "DE", "IN")): {"name": "us_states"},
    ("home_zip", ("02139", "94105", "60614")): {"name": "us_zip"},
    ("zip", (2139, 94105, 60614)): {"name": "us_zip"},
    ("nuts3", ("DE212", "AT130", "FR101")): {"name": "nuts"},
    ("isco", (2211, 5223, 110)): {"name": "isco08"},
    ("level", ("Bachelors", "Masters", "HS-grad")): {"name": "education"},
    ("hour", (0, 8, 23)): {"name": "hours"},
    ("when", ("Mon", "Tue", "Sun")): {"name": "weekdays"},
    ("birth_month", (1, 2, 12)): {"name": "months"},
    ("age", (3, 39, 91)): {"name": "ages"},
    ("latitude", (59.9, 60.1, 61.0)): {"name": "coordinates"},
}
NOT_SUGGESTED = (
    ("code", ("CA", "DE", "IN")),  # states and countries both
    ("number_diagnoses", (1, 2, 9)),
    ("code", ("250", "401", "8")),
    ("state", ("open", "closed", "new")),
    ("code", ("02139", "94105", "60614")),
    ("diagnosis", ("flu", "cold", "gout")),
    ("age", ("young", "old", "older")),
    ("page", (1, 2, 3)),
    ("hours_per_week", (10, 20, 22)),
    ("country", ("NO",)),
    ("", ()),
)


@pytest.mark.parametrize(("column", "expected"), SUGGESTED.items(), ids=str)
def test_a_standard_is_drafted_where_values_fit(
    column: tuple[str, tuple[object, ...]], expected: dict[str, object]
) -> None:
    name, values = column
    suggested = suggest_hierarchy(pa.array(list(values)), name)
    assert suggested is not None
    assert (suggested.kind, dict(suggested.options)) == ("standard", expected)
    assert draft_column(pa.array(list(values)), name) == suggested
    assert make_builder(suggested).hierarchy(name, pa.array(list(values))).size == len(values)


@pytest.mark.parametrize(("name", "values"), NOT_SUGGESTED, ids=str)
def test_no_standard_is_drafted_where_values_do_not_fit_or_fit_several(name: str, values: tuple[object, ...]) -> None:
    assert suggest_hierarchy(pa.array(list(values), None if values else pa.string()), name) is None


def test_a_few_values_that_do_not_fit_become_other_where_the_name_speaks_for_the_standard() -> None:
    codes = [f"{n}" for n in range(250, 290)]
    assert dict(suggest_hierarchy(pa.array([*codes, "?"]), "diag_1").options) == {"name": "icd9", "other": True}
    assert suggest_hierarchy(pa.array([*codes, *"?!-+/"]), "diag_1") is None


def test_codes_of_no_standard_are_still_drafted_as_prefixes() -> None:
    codes = pa.array([f"Q{n}-{n % 7}X" for n in range(40)])
    assert draft_column(codes, "diagnosis").kind == "prefix"


def test_a_column_of_very_many_values_is_none_of_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "MOST_CODES", 3)
    assert suggest_hierarchy(pa.array(["Norway", "Sweden", "Denmark"]), "country") is not None
    assert suggest_hierarchy(pa.array(["Norway", "Sweden", "Denmark", "Finland"]), "country") is None


POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: row
    columns:
      diagnosis: {role: quasi-identifier, hierarchy: HIERARCHY}
"""


@pytest.mark.parametrize("name", STANDARD_LEVELS)
def test_a_policy_names_a_standard(name: str) -> None:
    levels = list(STANDARD_LEVELS[name][-1:])
    for written, options in (
        (f"{{standard: {name}}}", {"name": name}),
        (f"{{standard: {{name: {name}, levels: {levels}}}}}", {"name": name, "levels": tuple(levels)}),
    ):
        (column,) = parse(POLICY.replace("HIERARCHY", written)).table("visits").columns
        assert column.hierarchy is not None
        given_options = {key: value for key, value in column.hierarchy.options.items() if value is not None}
        assert given_options == options
        make_builder(column.hierarchy)


def test_a_policy_with_a_standard_or_level_that_there_is_not_is_refused_with_the_nearest() -> None:
    with pytest.raises(PolicyError, match="icd10"):
        parse(POLICY.replace("HIERARCHY", "{standard: icd01}"))
    with pytest.raises(PolicyError, match="chapter"):
        parse(POLICY.replace("HIERARCHY", "{standard: {name: icd10, levels: [chapters]}}"))


def test_a_drafted_policy_names_the_standards_that_its_columns_fit(tmp_path: Path) -> None:
    rows, countries = 150, [*itertools.islice((row[0] for row in read_facts("countries")[1] if row[0]), 29), "?"]
    table = pa.table(
        {
            "state": [("MA", "NY", "CA", "TX")[n % 4] for n in range(rows)],
            "zip": [(2139, 10001, 94105, 73301)[n % 4] for n in range(rows)],
            "age": [20 + n % 70 for n in range(rows)],
            "education": [("HS-grad", "Bachelors", "Masters")[n % 3] for n in range(rows)],
            "country": [countries[n % 30] for n in range(rows)],
            "city": [("Oslo", "Rome", "Bonn")[n % 3] for n in range(rows)],
        }
    )
    pq.write_table(table, tmp_path / "people.parquet")
    policy = parse(draft(str(tmp_path / "people.parquet"), tmp_path), folder=tmp_path)
    specs = {column.name: column.hierarchy for column in policy.table("people").columns}
    named = {name: spec.options.get("name") for name, spec in specs.items() if spec is not None}
    assert named == {"state": "us_states", "zip": "us_zip", "age": "ages", "education": "education",
                     "country": "countries"}  # fmt: skip
    assert specs["country"] is not None
    assert specs["country"].options["other"] is True


def run(*words: str) -> Any:
    result = CliRunner().invoke(app, ["hierarchy", *words, "--json"])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_command_lists_the_standards_with_their_sources() -> None:
    listed = run("--standards")
    assert [each["name"] for each in listed] == list(STANDARD_LEVELS)
    assert all(each["source"] and tuple(each["levels"]) == STANDARD_LEVELS[each["name"]] for each in listed)
    told = CliRunner().invoke(app, ["hierarchy", "--standards"]).stdout
    assert all(name in told for name in STANDARD_LEVELS)


def test_the_command_shows_a_standard_and_the_groups_of_values() -> None:
    shown = run("--standard", "icd10", "e119", "nonsense")
    assert shown["values"][0] == ["e119", *groups_of("icd10", "E11.9")]
    assert shown["values"][1] == ["nonsense", "other", "other", "other"]
    assert len({group[2] for group in shown["groups"]}) == 22
    assert run("--standard", "ages", "39")["values"] == [["39", "[35, 40)", "[30, 40)", "[20, 40)"]]
    assert "New England < Northeast" in CliRunner().invoke(app, ["hierarchy", "--standard", "us_states"]).stdout


def test_the_command_without_a_table_says_what_it_needs() -> None:
    refused = CliRunner().invoke(app, ["hierarchy"])
    assert isinstance(refused.exception, ParameterError)
    assert "--standards" in refused.exception.message


def test_a_standard_can_be_named_on_the_command_line_of_anonymize() -> None:
    assert _read_hierarchy("standard:icd9") == Spec("standard", {"name": "icd9"})
