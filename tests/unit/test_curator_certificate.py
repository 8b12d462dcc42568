"""The certificate of released rows: faults of the code before it are found, and nothing of what is wrong leaves."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

from deniable import Curator
from deniable.assess.certificate import COUNT, certify, measure_properties
from deniable.assess.released_rows import Claim
from deniable.curator.anonymize.check import check
from deniable.curator.anonymize.request import Asked, Order
from deniable.curator.anonymize.run import anonymize, update
from deniable.engines.duckdb import DuckDBEngine
from deniable.engines.sources import write_rows
from deniable.errors import Infeasible, InternalError, ParameterError
from deniable.kanonymity.recoding import Recoder
from deniable.policy.document import parse
from deniable.policy.schema import CsvDialect, Spec
from deniable.release import statement_path, verify

CITIES = pa.table(
    {
        "city": ["Oslo", "Oslo", "Oslo", "Bergen", "Bergen", None, None, None, None, None],
        "sex": ["f", "m", "f", "m", "f", "m", "f", "m", "f", "m"],
        "illness": ["flu", "cold", "flu", "cold", "cough", "flu", "cold", "flu", "cough", "cold"],
    }
)


def order(table: pa.Table, out: Path | None, *, k: int, suppress: str = "0", **rest: Any) -> Order:
    from fractions import Fraction

    asked = Asked(k, suppress=Fraction(suppress), models=rest.pop("models", ()))
    given = {"quasi_identifiers": ("city", "sex"), "sensitive": ("illness",)} | rest
    return Order(table, out, asked=asked, **given)


def sizes(rows: list[tuple[Any, ...]]) -> dict[tuple[Any, ...], int]:
    counted: dict[tuple[Any, ...], int] = defaultdict(int)
    for row in rows:
        counted[row] += 1
    return counted


def read_pairs(path: Path) -> list[tuple[Any, ...]]:
    table = arrow_csv.read_csv(path)
    return list(zip(table["city"].to_pylist(), table["sex"].to_pylist(), strict=True))


def test_missing_values_of_a_withheld_column_are_written_with_the_others(tmp_path: Path) -> None:
    told = anonymize(order(CITIES, tmp_path / "out.csv", k=4))
    pairs = read_pairs(tmp_path / "out.csv")
    assert len(pairs) == told.released == 10
    assert min(sizes(pairs).values()) >= 4


def test_suppressed_rows_stay_as_stars_only_where_they_are_k(tmp_path: Path) -> None:
    few = CITIES.slice(0, 6).set_column(0, "city", pa.array(["Oslo"] * 5 + ["Rome"]))
    few = few.set_column(1, "sex", pa.array(["f"] * 6))
    told = anonymize(order(few, tmp_path / "few.csv", k=3, suppress="0.4", suppressed_rows="star"))
    assert (told.suppressed, told.released) == (1, 5)
    assert ("*", "*") not in read_pairs(tmp_path / "few.csv")
    many = pa.concat_tables([few, few.slice(5), few.slice(5), few.slice(5)])
    many = many.set_column(0, "city", pa.array(["Oslo"] * 5 + ["Rome", "Pisa", "Bari", "Turin"]))
    told = anonymize(order(many, tmp_path / "many.csv", k=3, suppress="0.5", suppressed_rows="star"))
    assert (told.suppressed, told.released) == (4, 9)
    assert read_pairs(tmp_path / "many.csv").count(("*", "*")) == 4


def test_a_release_that_breaks_its_claim_is_removed_and_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = Recoder.recode
    monkeypatch.setattr(Recoder, "recode", lambda self, table: honest(self, table).slice(1))
    out = tmp_path / "out.csv"
    with pytest.raises(InternalError, match="rows that were read are not those written") as refusal:
        anonymize(order(CITIES, out, k=4))
    assert "Nothing was charged" in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


WRONG = {
    "k": (lambda t: t.slice(0, 9).append_column("x", pa.array([0] * 9)).drop_columns(["x"]), "rows that were read"),
    "class": (lambda t: t.set_column(0, "city", pa.array(["Rome", *t["city"].to_pylist()[1:]])), "k-anonymity"),
    "column": (lambda t: t.append_column("name", t["city"]), "columns"),
    "type": (lambda t: t.set_column(2, "weeks", pa.array([str(w) + "x" for w in t["weeks"].to_pylist()])), "type"),
    "value": (lambda t: t.set_column(2, "weeks", pa.array([7] * t.num_rows)), "more often"),
}


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".arrow"])
@pytest.mark.parametrize("fault", WRONG)
def test_each_fault_of_a_file_is_found_in_each_format(fault: str, ending: str, tmp_path: Path) -> None:
    honest = pa.table({"city": ["*"] * 10, "sex": ["f", "m"] * 5, "weeks": [1, 2, 3, 4, 5] * 2})
    whole = pa.table({"value": [1, 2, 3, 4, 5], "count": [2] * 5})
    models = (Spec("k_anonymity", {"k": 5}), Spec("closeness", {"column": "weeks", "t": 0.9, "distance": "ordered"}))
    kinds = {"city": None, "sex": None, "weeks": pa.int64()}
    claim = Claim(kinds, 10, 0, False, ("city", "sex"), ("weeks",), models, {"weeks": whole})
    for rows, broken in ((honest, ""), (WRONG[fault][0](honest), WRONG[fault][1])):
        write_rows(rows, tmp_path / f"out{ending}")
        found = certify(tmp_path / f"out{ending}", claim)
        assert bool(found.broken) == bool(broken), found.broken
        assert not broken or any(broken in each for each in found.broken)


def test_truths_between_columns_are_read_off_the_rows() -> None:
    rows = pa.table({"a": [1, 2, 3], "b": [2, 2, 1], "c": [3, 4, 4], "kind": ["x", "y", "x"], "code": ["1", "2", "1"]})
    kept = (
        Spec("sum", {"parts": ("a", "b"), "total": "c"}),
        Spec("determines", {"from": ("kind",), "to": ("code",)}),
        Spec("impossible", {"when": {"kind": ("y",), "a": (1, 3)}}),
    )
    lost = (
        Spec("order", {"columns": ("a", "b")}),
        Spec("determines", {"from": ("code",), "to": ("a",)}),
        Spec("impossible", {"when": {"kind": "y", "a": 2}}),
        Spec("sum", {"parts": ("a", "c"), "total": "b"}),
    )
    columns = {each.name: each.type for each in rows.schema}
    assert certify(rows, Claim(columns, 3, truths=kept)).broken == ()
    for truth in lost:
        assert len(certify(rows, Claim(columns, 3, truths=(truth,))).broken) == 1, truth


def test_a_raw_value_among_tokens_is_found() -> None:
    secrets = {"name": pa.array(["Ada Lovelace", "Al"])}
    claim = Claim({"name": None, "note": None}, 2, secrets=secrets, searched=("name",))
    token = "k3v9q2m8x7c1"
    assert not certify(pa.table({"name": [token, "Al"], "note": ["Ada Lovelace", ""]}), claim).broken
    assert certify(pa.table({"name": [token, "Ada Lovelace"], "note": ["", ""]}), claim).broken


def test_closeness_along_a_tree_is_the_distance_of_its_definition() -> None:
    """Moving all of one value to its sibling costs half as much as to the other branch, in a tree of two levels."""
    tree = {"flu": ("flu", "lungs", "*"), "cold": ("cold", "lungs", "*"), "gout": ("gout", "joints", "*")}
    rows = pa.table({"q": ["a"] * 2 + ["b"] * 2, "s": ["flu", "flu", "cold", "gout"]})
    (found,) = measure_properties(
        rows, ("q",), (Spec("closeness", {"column": "s", "t": 1, "distance": "hierarchical"}),), {"s": tree}
    )
    # Class a has flu alone; in the table half is flu, a quarter cold (one step away), a quarter gout (two steps).
    assert found.measured == pytest.approx(0.25 * 0.5 + 0.25 * 1.0)


def test_population_models_are_measured_by_cells() -> None:
    rows = pa.table({"q": ["a", "a", "b"]})
    people = pa.table({"q": ["a"] * 6 + ["b"] * 2})
    models = (Spec("k_map", {"k": 2}), Spec("k_map", {"k": 3}), Spec("delta_presence", {"least": 0.3, "most": 0.5}))
    found = measure_properties(rows, ("q",), models, population=people)
    assert [(each.measured, each.holds) for each in found] == [(2, True), (2, False), (0.5, True)]


PEOPLE = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.parquet
    unit: {column: patient}
    columns:
      patient: {role: identifier}
      zip: {role: quasi-identifier, hierarchy: {redact: right}}
      age: {role: quasi-identifier, type: integer, between: [0, 120], hierarchy: {intervals: [10, 20, 40]}}
      illness: {role: sensitive}
release: {anonymize: {k: 5, suppress: 0.1}}
"""


def visits() -> pa.Table:
    dice = random.Random(1)
    rows = []
    for person in range(120):
        cells = {"patient": f"p{person}", "zip": f"0213{dice.randint(0, 5)}", "age": dice.randint(20, 70)}
        rows += [cells | {"illness": f"{person} {n}"} for n in range(dice.randint(1, 6))]
    return pa.Table.from_pylist(rows)


@pytest.mark.parametrize("method", ["optimal", "mondrian", "mondrian-relaxed", "local", "cells"])
def test_classes_are_counted_in_people_where_the_policy_protects_people(method: str) -> None:
    """The sensitive value names the person here, so that people can be counted in what was released."""
    fewest = {}
    for rows in (False, True):
        with Curator(parse(PEOPLE), sources={"visits": visits()}) as curator:
            shown = curator.anonymize("visits", method=method, count_rows=rows).rows
        people = defaultdict(set)
        for row in shown.to_pylist():
            people[row["zip"], row["age"]].add(row["illness"].split()[0])
        fewest[rows] = min(map(len, people.values()))
    assert fewest[False] >= 5 > fewest[True]


def test_rows_leave_in_a_random_order_unless_asked(tmp_path: Path) -> None:
    table = pa.table({"city": ["Oslo"] * 300, "sex": ["f"] * 300, "illness": [f"{n:03}" for n in range(300)]})
    orders = []
    for number, (method, kept) in enumerate([("optimal", False), ("mondrian", False), ("optimal", True)]):
        out = tmp_path / f"{number}.csv"
        anonymize(order(table, out, k=2, method=method, keep_order=kept))
        as_text = arrow_csv.ConvertOptions(column_types={"illness": "str"})
        orders.append(arrow_csv.read_csv(out, convert_options=as_text))
    found = [each["illness"].to_pylist() for each in orders]
    assert found[2] == table["illness"].to_pylist()
    assert found[0] != found[2] != found[1]
    assert all(sorted(each) == found[2] for each in found)


def test_where_no_class_can_hold_all_rows_may_go(tmp_path: Path) -> None:
    models = (Spec("distinct_diversity", {"column": "illness", "l": "5"}),)
    told = anonymize(order(CITIES, tmp_path / "out.csv", k=6, suppress="1", method="local", models=models))
    assert (told.released, told.suppressed) == (0, 10)


def test_added_rows_are_certified_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    anonymize(order(CITIES, tmp_path / "out.csv", k=4))
    told = update(tmp_path / "out.csv", order(CITIES, tmp_path / "more.csv", k=4))
    stated = json.loads(statement_path(tmp_path / "more.csv").read_text())["statement"]["details"]
    assert stated["measured"]["rows"] == told.shown == 10
    monkeypatch.setattr("deniable.kanonymity.update.Recoder.recode", lambda self, table: table.slice(0, 3))
    with pytest.raises(InternalError):
        update(tmp_path / "out.csv", order(CITIES, tmp_path / "wrong.csv", k=4))
    assert not (tmp_path / "wrong.csv").exists()


def test_check_offers_every_model(tmp_path: Path) -> None:
    pq.write_table(CITIES, tmp_path / "t.parquet")
    models = (
        Spec("entropy_diversity", {"column": "illness", "l": "1.9"}),
        Spec("entropy_diversity", {"column": "illness", "l": "2"}),
        Spec("recursive_diversity", {"column": "illness", "c": "3", "l": "2"}),
        Spec("delta_disclosure", {"column": "illness", "delta": "2"}),
        Spec("beta_likeness", {"column": "illness", "beta": "1"}),
        Spec("average_risk", {"most": "0.2"}),
        Spec("k_map", {"k": "2"}),
        Spec("delta_presence", {"most": "1"}),
    )
    found = check(str(tmp_path / "t.parquet"), ("sex",), models=models, population=str(tmp_path / "t.parquet"))
    assert [each.holds for each in found.properties] == [True, False, True, True, True, True, True, True]
    with pytest.raises(ParameterError, match="population"):
        check(str(tmp_path / "t.parquet"), ("sex",), models=models)


def test_a_curator_signs_and_a_forged_pair_is_told_from_its_own(tmp_path: Path) -> None:
    from deniable.curator.governance.reports import register, verify_file
    from deniable.release import seal
    from deniable.release.guarantee import Guarantee, Provenance, Technique

    out = tmp_path / "out.csv"
    with Curator(parse(PEOPLE), sources={"visits": visits()}, ledger=tmp_path / "l.sqlite") as curator:
        curator.anonymize("visits", out)
        told = register(curator.ledger)
        assert told.key
        assert told.releases[0].files == [verify(out).body["file"]["sha256"]]
        proof = verify_file(out, ledger=curator.ledger)
        assert (proof.signed_by, proof.in_ledger) == (told.key, True)
        forged = tmp_path / "forged.csv"
        forged.write_text("name\nAda\n")
        seal(forged, Guarantee.none(Technique.MASKING, "Perfectly anonymous"), Provenance(None, {}))
        alone = verify_file(forged)
        assert alone.signed_by is None
        assert any("could have made this pair" in sentence for sentence in alone.proves)
        for given in ({"key": told.key}, {"ledger": curator.ledger}):
            with pytest.raises(Exception, match="is not signed"):
                verify_file(forged, **given)  # type: ignore[arg-type]
    beside = json.loads(statement_path(out).read_text())
    beside["signature"]["ed25519"] = "00" * 64
    statement_path(out).write_text(json.dumps(beside, sort_keys=True, indent=2, ensure_ascii=False) + "\n")
    with pytest.raises(Exception, match="signature"):
        verify(out)


def test_words_are_made_from_the_figures_of_a_claim_and_not_read(tmp_path: Path) -> None:
    from deniable.release import seal
    from deniable.release.guarantee import Guarantee, Provenance, Technique
    from deniable.release.release import _hash_body

    out = tmp_path / "out.csv"
    out.write_text("n\n1\n")
    seal(out, Guarantee.none(Technique.MASKING, "tokens can be linked"), Provenance(None, {}))
    document = json.loads(statement_path(out).read_text())
    document["statement"]["words"] = ["Perfectly anonymous."]
    document["sha256"] = _hash_body(document["statement"])
    statement_path(out).write_text(json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False) + "\n")
    assert "Perfectly anonymous." not in verify(out).words
    assert verify(out).words[0].startswith("No formal guarantee")


def test_the_register_tells_the_epsilon_of_the_release() -> None:
    from deniable.curator.governance.reports import register

    text = PEOPLE.replace("release:", "budgets: {dataset: {rho: 1, delta: 1e-6}}\nrelease:").replace(
        "unit: {column: patient}", "unit: row"
    )
    with Curator(parse(text), sources={"visits": visits()}) as curator:
        claim = curator.query("SELECT COUNT(*) FROM visits", rho="0.02").release.guarantee
        (entry,) = register(curator.ledger).releases
    assert claim.epsilon is not None
    assert claim.delta is not None
    assert (entry.epsilon, entry.delta) == pytest.approx((float(claim.epsilon), float(claim.delta)), rel=1e-5)


def test_cells_of_the_population_are_counted_once() -> None:
    people = pa.table({"q": ["a"], COUNT: [3]})
    claim = Claim({"q": None}, 2, 0, False, ("q",), (), (Spec("k_map", {"k": 3}),), population=people)
    assert not certify(pa.table({"q": ["a", "a"]}), claim).broken


@pytest.mark.parametrize("values", [["x", None, "", "x"], [1, None, 3, None], [True, None, False, True]])
def test_a_file_of_one_column_keeps_its_rows_in_every_reader(values: list[Any], tmp_path: Path) -> None:
    import csv

    out = tmp_path / "out.csv"
    write_rows(pa.table({"a": pa.array(values)}), out)
    with out.open(newline="") as file:
        assert len(list(csv.reader(file))) == 1 + len(values)
    assert arrow_csv.read_csv(out).num_rows == len(values)
    with DuckDBEngine(root=tmp_path) as engine:
        engine.attach("t", "out.csv", csv=CsvDialect(header=True))
        assert engine.count("t") == len(values)
    assert certify(out, Claim({"a": pa.array(values).type}, len(values))).broken == ()


def test_nothing_and_an_empty_text_are_one_sensitive_value(tmp_path: Path) -> None:
    """Nobody who reads the CSV file could tell them apart, so they are no diversity."""
    table = pa.table({"city": ["Oslo"] * 4, "sex": ["f"] * 4, "illness": [None, "", None, ""]})
    models = (Spec("distinct_diversity", {"column": "illness", "l": "2"}),)
    assert measure_properties(table, ("city",), models)[0].measured == 1
    assert check(table, ("city", "sex"), ("illness",))["sensitive"][0]["distinct_l"] == 1
    with pytest.raises(Infeasible):
        anonymize(order(table, tmp_path / "out.csv", k=2, models=models))
    mixed = table.set_column(2, "illness", pa.array([None, "cold", "flu", " "]))
    anonymize(order(mixed, tmp_path / "out.csv", k=2, models=models))
    stated = json.loads(statement_path(tmp_path / "out.csv").read_text())["statement"]["details"]
    assert stated["measured"]["properties"][1]["measured"] == 2
    assert update(tmp_path / "out.csv", order(mixed, tmp_path / "more.csv", k=2)).shown == 4
    one_word = table.set_column(2, "illness", pa.array(["Flu", "flu ", "", None]))
    assert update(tmp_path / "out.csv", order(one_word, tmp_path / "again.csv", k=2)).shown == 0


@pytest.mark.parametrize("values", [["Flu", "flu ", "FLU", "\uff26lu"], ["flu", None, "flu", ""]])
@pytest.mark.parametrize("method", ["optimal", "mondrian"])
def test_spellings_of_one_word_and_missing_values_are_no_diversity(
    values: list[str | None], method: str, tmp_path: Path
) -> None:
    table = pa.table({"city": ["Oslo"] * 4, "sex": ["f"] * 4, "illness": values})
    for model in (
        Spec("distinct_diversity", {"column": "illness", "l": "2"}),
        Spec("entropy_diversity", {"column": "illness", "l": "1.5"}),
        Spec("recursive_diversity", {"column": "illness", "c": "3", "l": "2"}),
    ):
        assert not measure_properties(table, ("city",), (model,))[0].holds
        with pytest.raises(Infeasible):
            anonymize(order(table, tmp_path / "out.csv", k=2, models=(model,), method=method))
    found = check(table, ("city", "sex"), ("illness",))["sensitive"][0]
    assert (found["distinct_l"], found["certain"]) == (1, 1)


@pytest.mark.parametrize("method", ["optimal", "mondrian"])
def test_one_person_in_several_spellings_is_one_of_k(method: str, tmp_path: Path) -> None:
    """Seven rows of three people: only a person alone could be told apart by case, spaces or width."""
    people = ["Ann", "ANN", " ann ", "\uff21nn", "bob", "Bob", "cid"]
    table = pa.table({"city": ["Oslo"] * 4 + ["Bergen"] * 3, "sex": ["f"] * 7, "person": people})
    asked = {"sensitive": (), "person": "person", "identifiers": ("person",), "method": method}
    with pytest.raises(Infeasible):
        anonymize(order(table, tmp_path / "out.csv", k=4, **asked))
    anonymize(order(table, tmp_path / "out.csv", k=3, **asked))
    stated = json.loads(statement_path(tmp_path / "out.csv").read_text())["statement"]["details"]
    assert stated["measured"]["properties"][0]["measured"] == 3
    assert set(read_pairs(tmp_path / "out.csv")) == {("*", "f")}


IDS = [f"{n * 7919 + 31337:08d}" for n in range(200)]
COPIES: dict[str, Callable[[str], str]] = {
    "same": str,
    "zeros before": lambda one: "00" + one,
    "without zeros": lambda one: one.lstrip("0"),
    "something behind": lambda one: one + "/A",
    "padded": lambda one: f"  {one}  ",
    "spaced": lambda one: f"{one[:2]} {one[2:5]}-{one[5:]}",
    "in a text": lambda one: f"seen as No. {one}, again in May",
    "full width": lambda one: one.translate({48 + n: 0xFF10 + n for n in range(10)}),
    "Arabic-Indic digits": lambda one: one.translate({48 + n: 0x660 + n for n in range(10)}),
    "last digit cut": lambda one: one[:-1],
    "first digits cut": lambda one: one[2:],
    "turned around": lambda one: one[::-1],
}


@pytest.mark.parametrize("how", COPIES)
def test_a_changed_copy_of_an_identifier_is_found_in_another_column(how: str) -> None:
    rows = pa.table({"city": ["Oslo"] * 200, "note": [COPIES[how](one) for one in IDS]})
    claim = Claim(dict.fromkeys(rows.column_names), 200, hidden={"id": pa.array(IDS)})
    assert certify(rows, claim).copied == ("column 'note' has the values of the identifier 'id'",)
    numbers = Claim(dict.fromkeys(rows.column_names), 200, hidden={"id": pa.array([int(one) for one in IDS])})
    assert certify(rows, numbers).copied


GIVEN = ("Annette", "Peter", "Maria", "Jens", "Ute", "Ren\u00e9", "Ida", "Paul", "Rosa", "Emil")
LAST = ("M\u00fcller", "Schmidt", "Wei\u00df", "\u00c7elik", "Garc\u00eda Lorca", "Berg", "Lang", "Kurz", "Vogel")
NAMES: dict[str, Callable[[str, str], str]] = {
    "surname first": lambda given, last: f"{last}, {given}",
    "with a title": lambda given, last: f"Dr. {last.upper()} {given}",
    "without accents": lambda given, last: re.sub(r"[\u0300-\u036f]", "", normalize("NFD", f"{last} {given}")),
    "in a text": lambda given, last: f"seen with {last}, {given}, again",
}


@pytest.mark.parametrize("how", NAMES)
def test_a_name_is_found_whatever_the_order_of_its_words(how: str) -> None:
    both = [(given, last) for given in GIVEN for last in LAST]
    rows = pa.table({"contact": [NAMES[how](*each) for each in both], "city": ["Oslo"] * len(both)})
    claim = Claim(dict.fromkeys(rows.column_names), len(both), hidden={"name": pa.array([" ".join(b) for b in both])})
    assert certify(rows, claim).copied == ("column 'contact' has the values of the identifier 'name'",)


def test_short_identifiers_are_found_where_few_of_their_length_are_used() -> None:
    dice = random.Random(4)
    ids = [str(n) for n in dice.sample(range(1000, 10_000), 150)]
    rows = pa.table({"a": ids, "b": [one.translate({48 + n: 0x6F0 + n for n in range(10)}) for one in ids],
                     "year": [dice.randint(1940, 2005) for _ in ids]})  # fmt: skip
    found = certify(rows, Claim(dict.fromkeys(rows.column_names), 150, hidden={"id": pa.array(ids)})).copied
    assert [words.split("'")[1] for words in found] == ["a", "b"]


def test_what_holds_identifiers_by_chance_is_no_copy() -> None:
    """Identifiers of six digits that are nearly all used stand in every long number."""
    dense, dice = pa.array([f"{n:06d}" for n in range(100_000, 400_000)]), random.Random(2)
    rows = pa.table({"phone": [str(dice.randrange(10**11, 10**12)) for _ in range(300)], "day": ["2024-01-15"] * 300})
    assert certify(rows, Claim(dict.fromkeys(rows.column_names), 300, hidden={"id": dense})).copied == ()


def test_a_scrubbed_text_loses_the_identifiers_of_its_own_row_however_they_are_spaced() -> None:
    policy = parse(
        "version: 1\ndataset: clinic\ntables:\n  visits:\n    source: visits.csv\n"
        "    unit: {column: id}\n    columns:\n"
        "      id: {role: identifier, type: text, mask: redact}\n"
        "      name: {role: identifier, type: text, mask: redact}\n"
        "      note: {role: insensitive, type: text, mask: scrub}\n"
        "budgets: {dataset: {epsilon: 1}}\nrelease: {joint: {most: 1, accepted_by: A. Steward}}\n"
    )
    ids, names = ["0734215", "QRVB", "0912-33"], ["Quillon Brax", "Odwin Tesk", "Ymir Zadd"]
    notes = ["file 07 34 21 5 read", "q-r_vB and aqrvbb", "no 0_912_33; ymir,  zadd", None, "Y M I R zadd came"]
    rows = pa.table({"id": [*ids, "1", "22"], "name": [*names, "x", "Ymir Zadd"], "note": notes})
    with Curator(policy, sources={"visits": rows}) as curator:
        own = curator.mask("visits", keep_order=True).rows["note"].to_pylist()
    assert own == [
        "file [identifier] read",
        "[identifier] and aqrvbb",
        "no [identifier]; [identifier]",
        None,
        "[identifier] came",
    ]
