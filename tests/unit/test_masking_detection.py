"""Detection: check digits, names, shapes and uniqueness; real officials; the eighteen categories; singling out."""

from __future__ import annotations

import importlib.util
import random
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from deniable import world
from deniable.errors import ParameterError
from deniable.masking import checksums, detectors, identifiers, residual_risk, safe_harbor
from deniable.policy.schema import Role, Spec

DATA = Path(__file__).parents[1] / "data"
SHARED = Path(__file__).parents[2].parent / "shared" / "data"
VALID = [
    (checksums.is_card, "4111 1111 1111 1111"),
    (checksums.is_iban, "GB82 WEST 1234 5698 7654 32"),
    (checksums.is_us_ssn, "123-45-6789"),
    (checksums.is_us_npi, "1234567893"),
    (checksums.is_uk_nhs, "943 476 5919"),
    (checksums.is_uk_nino, "AB 12 34 56 C"),
    (checksums.is_ca_sin, "130 692 544"),
    (checksums.is_es_dni, "12345678Z"),
    (checksums.is_nl_bsn, "111222333"),
    (checksums.is_fr_nir, "2 55 08 14 168 025 38"),
    (checksums.is_de_tax, "86095742719"),
    (checksums.is_it_fiscal, "RSSMRA85T10A562S"),
    (checksums.is_pl_pesel, "44051401359"),
    (checksums.is_se_personal, "811218-9876"),
    (checksums.is_br_cpf, "111.444.777-35"),
    (checksums.is_in_aadhaar, "2341 2341 2346"),
    (checksums.is_vin, "1M8GDM9AXKP042788"),
    (checksums.is_be_national, "85.07.30-033 28"),
    (checksums.is_fi_personal, "131052-308T"),
    (checksums.is_no_birth, "01018030043"),
    (checksums.is_ch_social, "756.9217.0769.85"),
    (checksums.is_cn_resident, "11010519491231002X"),
    (checksums.is_pt_tax, "123456789"),
]


@pytest.mark.parametrize(("test", "value"), VALID)
def test_published_examples_pass_their_check_and_wrong_ones_do_not(test: detectors.Test, value: str) -> None:
    assert test(value)
    for wrong in ("", "0", "abc", value + "1", value[:-1], "9" * 40, "日本"):
        assert not test(wrong)


WITH_CHECK = [known for known in checksums.NATIONAL if known.chance < 0.5]  # the British one has no check digit


@pytest.mark.parametrize("known", WITH_CHECK, ids=lambda known: known.name)
def test_changing_one_digit_nearly_always_fails_the_check(known: checksums.Checksum) -> None:
    value = next(example for test, example in VALID if test is known.test)
    places = [i for i, sign in enumerate(value) if sign.isdigit()]
    changed = [value[:i] + d + value[i + 1 :] for i in places for d in "0123456789" if d != value[i]]
    passing = sum(map(known.test, changed)) / len(changed)
    assert passing <= known.chance + 0.05


def _people(count: int = 300) -> pa.Table:
    rng = random.Random(5)
    given, last = ["Mary", "John", "Linda", "James"], ["Smith", "Jones", "Brown", "Garcia", "Miller"]
    return pa.table(
        {
            "record": [f"R{i:06d}" for i in range(count)],
            "who": [f"{rng.choice(given)} {chr(65 + i % 26)}. {rng.choice(last)}" for i in range(count)],
            "contact": [f"{rng.choice(given).lower()}{i}@example.org" for i in range(count)],
            "line": [f"202-{rng.randint(200, 999)}-{rng.randint(1000, 9999)}" for _ in range(count)],
            "home": [f"{rng.randint(1, 999)} Oak Street" for _ in range(count)],
            "dob": [f"19{rng.randint(10, 99)}-0{rng.randint(1, 9)}-1{rng.randint(0, 9)}" for _ in range(count)],
            "sex": [rng.choice("FM") for _ in range(count)],
            "color": [rng.choice(["red", "green", "blue"]) for _ in range(count)],
            "score": [rng.random() for _ in range(count)],
            "income": [rng.randint(10_000, 10_000_000) for _ in range(count)],
        }
    )


def test_identifying_columns_are_found_by_their_values_when_names_say_nothing() -> None:
    found = {finding.column: finding.kind for finding in identifiers.detect(_people())}
    assert found == {
        "record": "record id",
        "who": "name",
        "contact": "e-mail",
        "line": "telephone",
        "home": "street address",
        "dob": "birth date",
        "sex": "demographic",
    }


def test_provider_numbers_are_license_numbers_by_their_check_digit() -> None:
    numbers = [str(number) for number in range(1_000_000_000, 1_000_009_000)]
    valid = [number for number in numbers if checksums.is_us_npi(number)]
    assert 850 < len(valid) < 950
    assert detect_kinds(pa.table({"x": valid})).get("x") == "license number"
    assert detect_kinds(pa.table({"x": numbers[::10]})).get("x") != "license number"


def test_evidence_is_given_and_holds_no_value() -> None:
    table = _people()
    values = {str(value) for column in table.columns for value in column.to_pylist()}
    for finding in identifiers.detect(table):
        assert finding.evidence
        assert 0.5 <= finding.confidence < 1
        shown = str(finding.as_dict())
        assert not any(value in shown for value in values if len(value) > 5)


def test_ages_diagnoses_and_sexes_are_found_beside_markers_of_missing_values() -> None:
    ages = [str(20 + i % 75) for i in range(200)]
    brackets = [f"[{10 * (i % 10)}-{10 * (i % 10) + 10})" for i in range(200)]
    codes = [f"{100 + i}.{i % 9}" if i % 3 else f"V{10 + i % 80}" for i in range(200)]
    table = pa.table(
        {
            "AGEP": ["N", *ages[1:]],
            "age": ["?", *brackets[1:]],
            "a": ["?", *codes[1:]],
            "b": ["N", *("Male" if i % 2 else "Female" for i in range(199))],
            "RAC1P": [i % 9 for i in range(200)],
            "weight": brackets,
            "c": [str(100 + i) for i in range(200)],
        }
    )
    assert detect_kinds(table) == {
        "AGEP": "age",
        "age": "age",
        "a": "diagnosis",
        "b": "demographic",
        "RAC1P": "demographic",
        "c": "record id",
    }


AGES = [str((37 * i) % 97) for i in range(300)]


@pytest.mark.parametrize(
    "name",
    ["age2", "years_old", "AgeAtAdmission", "âge", "alder", "leeftijd", "idade", "wiek", "eta", "RIDAGEYR", "AGE_NUM"],
)
def test_an_age_is_one_under_any_of_its_names(name: str) -> None:
    assert detect_kinds(pa.table({name: AGES})) == {name: "age"}


@pytest.mark.parametrize("marker", ["*", "<NA>", "missing", "#N/A", "n.a.", "refused", "Not stated", "-9", "999"])
def test_markers_of_missing_values_do_not_hide_an_age(marker: str) -> None:
    assert detect_kinds(pa.table({"age": [marker, *AGES]})) == {"age": "age"}


@pytest.mark.parametrize(
    "brackets",
    [
        ["18-24", "25-34", "35-64", "65+"],
        ["0 to 4 years", "5 to 9 years", "10 to 14 years", "90 years or older"],
        ["under 18", "18 to 64", "65 and over"],
        ["18\u201324", "25\u201334", "65 +"],
        ["20s", "30s", "40s"],
        ["12y", "40 yrs", "88 years"],
    ],
)
def test_brackets_of_ages_are_ages(brackets: list[str]) -> None:
    assert detect_kinds(pa.table({"age_group": brackets * 60})) == {"age_group": "age"}


@pytest.mark.parametrize("name", ["stage", "page", "mileage", "usage", "percentage", "packages"])
def test_words_that_end_as_age_does_are_no_ages(name: str) -> None:
    assert detect_kinds(pa.table({name: AGES})) == {}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("other_forms", [False, True])
@pytest.mark.parametrize("seed", [1, 2])
def test_eighteen_kinds_are_found_under_headers_that_say_nothing_and_no_other(seed: int, other_forms: bool) -> None:
    bench = _load_bench("columns")
    missed, alarms = bench.find_hidden(seed, other_forms=other_forms)
    assert len(bench.IDENTIFYING) == 18
    assert missed == {}  # the bar is 15 of 18
    assert alarms == {}


def _load_bench(name: str) -> Any:
    path = Path(__file__).parents[2] / "bench" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"bench_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    return bench


def test_two_witnesses_are_surer_than_one() -> None:
    unnamed = pa.table({"x": _people()["contact"]})
    named = pa.table({"email": _people()["contact"]})
    assert identifiers.detect(named)[0].confidence > identifiers.detect(unnamed)[0].confidence


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"a": pa.array([], pa.string())}),
        pa.table({"name": pa.array([None, None], pa.string())}),
        pa.table({"name": ["Ann"]}),
        pa.table({"x": pa.array([1.5, float("nan"), None])}),
        pa.table({"x": pa.array([True, None])}),
        pa.table({"x": pa.array([b"1", None]).cast(pa.string())}),
    ],
)
def test_empty_tiny_and_odd_tables_are_no_trouble(table: pa.Table) -> None:
    assert {each.column for each in identifiers.detect(table)} <= set(table.column_names)


def detect_kinds(table: pa.Table) -> dict[str, str]:
    return {finding.column: finding.kind for finding in identifiers.detect(table)}


def test_names_births_telephones_addresses_and_ids_of_a_generated_town_are_found_without_false_alarm() -> None:
    town = world.make("hospital", 3000)
    person = {"zip": "postal code", "birth_date": "birth date", "sex": "demographic"}
    assert detect_kinds(town["voters"]) == person | {
        "voter_id": "record id",
        "name": "name",
        "address": "street address",
        "registered": "date",
    }
    assert detect_kinds(town["visits"]) == person | {
        "patient_id": "record id",
        "ethnicity": "demographic",
        "diagnosis": "diagnosis",
        "admission": "date",
        "discharge": "date",
        "note": "free text",
        "medical_record_number": "medical record number",
        "phone": "telephone",
        "email": "e-mail",
        "ssn": "social security number",
    }


def test_tables_without_identifiers_raise_no_alarm() -> None:
    adult = csv.read_csv(DATA / "adult" / "adult.csv", parse_options=csv.ParseOptions(delimiter=";"))
    demographic = dict.fromkeys(("sex", "race", "marital-status", "native-country"), "demographic")
    assert detect_kinds(adult) == demographic | {"age": "age"}
    ranks = _soldiers(20_000)
    assert detect_kinds(ranks) == {"rownames": "record id", "gender": "demographic", "race": "demographic"}


def _soldiers(count: int) -> pa.Table:
    """A running number, one for each row, and categories of few values."""
    rng = random.Random(6)
    values = {
        "grade": ["enlisted", "officer", "warrant officer"],
        "branch": ["army", "navy", "air force", "marine corps"],
        "gender": ["female", "male"],
        "race": ["white", "black", "asian", "ami/aln", "multi"],
        "rank": list(range(1, 10)),
    }
    columns = {name: [rng.choice(known) for _ in range(count)] for name, known in values.items()}
    return pa.table({"rownames": list(range(1, count + 1))} | columns)


if SHARED.exists():  # real tables, where they are beside the project

    def test_officials_names_births_telephones_addresses_and_ids_are_found_without_false_alarm(
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        _load_bench("masking").compare_detection()
        assert "43 of 43 columns found, 0 false alarms" in capsys.readouterr().out

    def test_soldiers_raise_no_alarm_but_for_their_running_number() -> None:
        military = pq.read_table(SHARED / "military" / "openintro_military.parquet").slice(0, 50_000)
        found = detect_kinds(military)
        assert found.pop("rownames") == "record id"
        assert set(found.values()) <= {"demographic"}


def test_every_category_is_reported_one_by_one_found_handled_or_not_found() -> None:
    findings = {"people": identifiers.detect(_people())}
    masks: dict[str, Spec | None] = {
        "record": Spec("codebook", {"vault": "v", "key": "people"}),
        "who": Spec("redact"),
        "contact": Spec("token", {"key": "people"}),
        "dob": Spec("generalize", {"to": "year"}),
        "home": None,
    }
    lines = {line.category.letter: line for line in safe_harbor.build_checklist(findings, {"people": masks})}
    assert list(lines) == list("ABCDEFGHIJKLMNOPQR")
    assert lines["A"].handled == {"people.who": "removed (redact)"}
    assert lines["B"].status == "open"
    assert lines["C"].handled == {"people.dob": "coarsened (year)"}
    assert lines["D"].handled == {"people.line": "not released"}
    assert lines["F"].status == "open"  # a keyed token is derived from the person's data
    assert lines["Q"].status == "not found"
    assert lines["R"].handled == {"people.record": "removed (codebook)"}


def test_safe_harbor_completes_missing_masks_and_refuses_weaker_ones() -> None:
    found = identifiers.detect(_people())
    complete = safe_harbor.complete_masks(found, dict.fromkeys(_people().schema.names))
    assert complete["dob"] == Spec("generalize", {"to": "year"})
    assert complete["who"] == complete["line"] == Spec("redact")
    assert complete["color"] is None
    assert complete["sex"] is None
    for weak in (Spec("token", {"key": "k"}), Spec("redact", {"keep_last": 4}), Spec("shift_dates", {"key": "k"})):
        with pytest.raises(ParameterError, match="Safe Harbor does not allow"):
            safe_harbor.complete_masks(found, {"dob": weak})


def test_every_kind_has_a_category_or_is_no_identifier_and_its_safe_mask_suffices() -> None:
    letters = {category.letter for category in safe_harbor.CATEGORIES}
    assert len(safe_harbor.CATEGORIES) == 18
    assert letters == {kind.letter for kind in identifiers.KINDS if kind.letter}
    for kind in identifiers.KINDS:
        if kind.letter:
            assert safe_harbor.is_sufficient(kind.name, kind.safe), kind
        else:
            assert kind.role is not Role.IDENTIFIER


def _naive_share(rows: list[tuple[object, ...]], people: list[object]) -> float:
    owners: dict[tuple[object, ...], set[object]] = {}
    for row, person in zip(rows, people, strict=True):
        owners.setdefault(row, set()).add(person)
    alone = {next(iter(who)) for who in owners.values() if len(who) == 1}
    return len(alone) / len(set(people))


@pytest.mark.parametrize("unit", [None, "person"])
def test_singling_out_is_counted_as_brute_force_counts_it(unit: str | None) -> None:
    rng = random.Random(9)
    names = ["a", "b", "c", "d"]
    columns = {name: [rng.choice([None, 1, 2, 3, 4]) for _ in range(80)] for name in names}
    table = pa.table(columns | {"person": [i // 2 for i in range(80)]})
    people = table["person"].to_pylist() if unit else list(range(80))
    shares = {}
    for size in (1, 2, 3, 4):
        for chosen in combinations(names, size):
            rows = list(zip(*(columns[name] for name in chosen), strict=True))
            shares[chosen] = _naive_share(rows, people)
            assert residual_risk.measure_singling_out(table, chosen, unit) == pytest.approx(shares[chosen])
    found = residual_risk.find_smallest_sets(table, tuple(names), unit)
    enough = {chosen: share for chosen, share in shares.items() if share >= 0.5}
    least = min(map(len, enough))
    expected = {frozenset(chosen) for chosen in enough if len(chosen) == least}
    assert {frozenset(one.columns) for one in found} <= expected
    assert found[0].share == pytest.approx(max(share for chosen, share in enough.items() if len(chosen) == least))


def test_nobody_is_singled_out_of_nothing() -> None:
    empty = pa.table({"a": pa.array([], pa.int64())})
    assert residual_risk.measure_singling_out(empty, ("a",)) == 0
    assert residual_risk.find_smallest_sets(empty, ("a",)) == ()
    assert residual_risk.find_smallest_sets(pa.table({"a": [1, 1], "b": [2, 2]}), ("a", "b")) == ()


def test_identifiers_inside_texts_are_found_however_often_a_text_repeats() -> None:
    """Forty notes over two thousand rows were called categories, and left with names and telephone numbers."""
    texts = [f"Ann Smith called from 202-224-{5200 + i} about results" for i in range(40)]
    plain = [f"the {size} box of part {part}" for size in ("small", "large") for part in ("one", "two", "three")]
    table = pa.table({"c1": texts * 50, "c2": (plain * 334)[:2000]})
    found = {one.column: one.kind for one in identifiers.detect(table)}
    assert found.get("c1") == "free text"
    assert "c2" not in found
