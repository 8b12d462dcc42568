"""Recoding rows: forms, missing and suppressed values, streams, rows to come."""

from __future__ import annotations

import json
import re
import stat
from collections import Counter
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from deniable.errors import DataError, Infeasible, ParameterError
from deniable.kanonymity.anonymize import anonymize, recode_table
from deniable.kanonymity.models import (
    AverageRisk,
    Closeness,
    DeltaPresence,
    Distance,
    DistinctDiversity,
    KAnonymity,
    KMap,
)
from deniable.kanonymity.recoding import ClassIndex, Form, Recoder, Suppressed, read_recoding, write_recoding
from deniable.kanonymity.request import KINDS, Request, build_conditions, parse_condition, to_spec
from deniable.kanonymity.risk import examine
from deniable.policy.schema import Anonymize, Spec

NUMBERS = {"age": Spec("intervals", {"widths": (10, 20)}), "zip": Spec("redact", {"from": "right"})}


def people(rows: int, seed: int = 0) -> pa.Table:
    chance = np.random.default_rng(seed)
    ages = chance.integers(20, 60, rows)
    return pa.table(
        {
            "name": [f"person {n}" for n in range(rows)],
            "age": pa.array(ages.tolist(), pa.int64()),
            "zip": [f"0213{n}" for n in chance.integers(0, 5, rows)],
            "sex": chance.choice(["F", "M"], rows).tolist(),
            "illness": chance.choice(["flu", "cold", "gout"], rows).tolist(),
        }
    )


REQUEST = Request(("age", "zip", "sex"), (KAnonymity(4),), ("illness",), ("name",), suppress=0.1)


def test_a_release_meets_its_model_and_keeps_what_is_not_a_quasi_identifier() -> None:
    table = people(300)
    made = anonymize(table, REQUEST, NUMBERS)
    out = recode_table(table, made.recoding)
    assert out.column_names == ["age", "zip", "sex", "illness"]
    assert examine(out, ("age", "zip", "sex")).k >= 4
    assert out.num_rows == 300 - made.solution.suppressed
    assert made.recoding.suppressed == made.solution.suppressed <= 30


def test_a_stream_of_batches_gives_what_the_whole_table_gives() -> None:
    table = people(500)
    recoding = anonymize(table, REQUEST, NUMBERS).recoding
    whole = recode_table(table, recoding)
    parts = pa.Table.from_batches(
        [b.cast(whole.schema) for b in Recoder(recoding).stream(table.to_batches(max_chunksize=37))]
    )
    assert parts.to_pylist() == whole.to_pylist()


def test_a_recoding_survives_being_written_for_its_owner_only(tmp_path: Path) -> None:
    table = people(300)
    recoding = anonymize(table, REQUEST, NUMBERS).recoding
    path = tmp_path / "out.recoding.json"
    write_recoding(recoding, path)
    again = read_recoding(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert recode_table(table, again).to_pylist() == recode_table(table, recoding).to_pylist()
    assert [parse_condition(spec) for spec in again.models] == [KAnonymity(4)]
    assert "person " not in path.read_text()


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": "deniable recoding 9"}', "\xff"])
def test_a_file_that_is_no_recoding_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.recoding.json"
    path.write_bytes(content.encode("latin-1"))
    with pytest.raises(DataError, match="not a recoding"):
        read_recoding(path)
    with pytest.raises(DataError, match="no recoding"):
        read_recoding(tmp_path / "absent.json")


def test_new_rows_are_recoded_the_same_way_also_with_values_not_met_before() -> None:
    recoding = anonymize(people(300), REQUEST, NUMBERS).recoding
    old = recode_table(people(300), recoding)
    new = recode_table(people(50, seed=9), recoding)
    assert set(new["age"].to_pylist()) <= set(old["age"].to_pylist())
    strange = pa.table({"name": ["x"], "age": [97], "zip": ["99999"], "sex": ["F"], "illness": ["flu"]})
    assert recode_table(strange, recoding).num_rows == 0


def test_forms_are_text_bounds_and_json() -> None:
    table = people(300)
    request = Request(("age", "sex"), (KAnonymity(20),), lowest={"age": 1})
    forms = (Form.TEXT, Form.BOUNDS, Form.JSON)
    text, bounds, document = (
        recode_table(table, anonymize(table, request, NUMBERS, form=form).recoding) for form in forms
    )
    label = text["age"][0].as_py()
    low, high = bounds["age_low"][0].as_py(), bounds["age_high"][0].as_py()
    assert label == f"[{low:g}, {high:g})"
    assert json.loads(document["age"][0].as_py()) == {"low": low, "high": high}
    assert bounds.schema.field("age_low").type == pa.float64()


def test_groups_of_categories_become_lists_in_json() -> None:
    table = pa.table({"city": ["Oslo", "Bergen", "Rome", "Milan"] * 3})
    tree = Spec("tree", {"inline": {"any": {"north": ["Oslo", "Bergen"], "south": ["Rome", "Milan"]}}})
    made = anonymize(table, Request(("city",), (KAnonymity(6),)), {"city": tree}, form=Form.JSON)
    assert json.loads(recode_table(table, made.recoding)["city"][0].as_py()) == ["Oslo", "Bergen"]
    sets = anonymize(table, Request(("city",), (KAnonymity(6),)), {"city": tree}, form=Form.SETS)
    assert recode_table(table, sets.recoding)["city"][0].as_py() == "{Oslo, Bergen}"


def test_types_are_kept_where_nothing_was_generalized_and_where_rounding_keeps_numbers() -> None:
    table = pa.table({"n": [1] * 6, "x": [11, 12, 13, 21, 22, 23]})
    made = anonymize(table, Request(("n", "x"), (KAnonymity(3),)), {"x": Spec("rounding", {"to": (10,)})})
    out = recode_table(table, made.recoding)
    assert out["n"].type == pa.int64()
    assert out["x"].to_pylist() == [10.0] * 3 + [20.0] * 3


def test_missing_values_stay_missing_and_form_classes_of_their_own() -> None:
    table = pa.table({"age": [21, 22, None, None, 23, None], "sex": ["F"] * 6})
    made = anonymize(table, Request(("age", "sex"), (KAnonymity(3),)), {"age": Spec("intervals", {"widths": (10,)})})
    out = recode_table(table, made.recoding)
    assert Counter(out["age"].to_pylist()) == {"[20, 30)": 3, None: 3}


def test_missing_values_too_few_to_stay_apart_are_generalized_with_the_rest() -> None:
    table = pa.table({"age": [21, 22, 23, None]})
    made = anonymize(table, Request(("age",), (KAnonymity(3),)), {"age": Spec("intervals", {"widths": (10,)})})
    assert recode_table(table, made.recoding)["age"].to_pylist() == ["*"] * 4


def test_starred_rows_show_no_quasi_identifier_and_no_sensitive_value() -> None:
    table = people(200)
    made = anonymize(table, REQUEST, NUMBERS, suppressed_rows=Suppressed.STAR)
    out = recode_table(table, made.recoding)
    starred = [row for row in out.to_pylist() if row["sex"] == "*"]
    assert out.num_rows == 200
    assert len(starred) == made.solution.suppressed > 0
    assert all(row == {"age": "*", "zip": "*", "sex": "*", "illness": None} for row in starred)


def test_top_coding_applies_from_the_first_level() -> None:
    table = pa.table({"age": [91, 95, 99, 30, 30, 30]})
    spec = Spec("intervals", {"widths": (10,), "top": 90})
    made = anonymize(table, Request(("age",), (KAnonymity(3),)), {"age": spec})
    assert made.recoding.levels == (0,)
    assert recode_table(table, made.recoding)["age"].to_pylist() == [">= 90"] * 3 + ["30"] * 3


def test_levels_can_be_limited_from_both_sides() -> None:
    table = people(200)
    made = anonymize(table, Request(("age", "sex"), (KAnonymity(2),), lowest={"age": 1}, highest={"age": 1}), NUMBERS)
    assert made.recoding.levels[0] == 1
    assert recode_table(table, made.recoding)["age"][0].as_py().startswith("[")
    with pytest.raises(ParameterError, match="It has the levels 0 to 3"):
        anonymize(table, Request(("age",), lowest={"age": 7}), NUMBERS)


def test_weighted_rows_count_as_often_as_they_say() -> None:
    table = people(300)
    counted = table.group_by(["age", "zip", "sex", "illness"]).aggregate([([], "count_all")])
    one = anonymize(table, REQUEST, NUMBERS).solution
    two = anonymize(
        counted,
        Request(("age", "zip", "sex"), (KAnonymity(4),), ("illness",), suppress=0.1),
        NUMBERS,
        counts="count_all",
    )
    assert (one.levels, one.suppressed) == (two.solution.levels, two.solution.suppressed)
    assert one.cost == pytest.approx(two.solution.cost)


def test_many_wide_columns_are_looked_up_exactly() -> None:
    chance = np.random.default_rng(0)
    classes = np.unique(chance.integers(0, 4000, (500, 9)), axis=0)
    index = ClassIndex(classes)
    found = index.find([classes[:, q].astype(np.int32) for q in range(9)])
    assert found.tolist() == list(range(len(classes)))
    other = classes.copy()
    other[:, 8] = (other[:, 8] + 1) % 4000
    known = {tuple(row) for row in classes.tolist()}
    expected = [tuple(row) in known for row in other.tolist()]
    assert ((index.find([other[:, q].astype(np.int32) for q in range(9)]) >= 0) == expected).all()


def test_k_larger_than_the_table_says_what_would_work() -> None:
    with pytest.raises(Infeasible, match=r"k is 9, and there are fewer rows\. At least k rows"):
        anonymize(people(5), Request(("age",), (KAnonymity(9),)))


def test_a_diversity_no_table_reaches_says_what_generalizing_everything_reaches() -> None:
    request = Request(("age", "sex"), (KAnonymity(2), DistinctDiversity("illness", 7)), ("illness",))
    with pytest.raises(Infeasible, match="generalizing everything reaches 3"):
        anonymize(people(50), request, NUMBERS)


@pytest.mark.parametrize("suppress", [0.0, 0.05])
@pytest.mark.parametrize(("values", "k"), [(3, 4), (7, 4), (3, 8)])
def test_what_a_refusal_advises_is_enough(values: int, k: int, suppress: float) -> None:
    """Sizes over the limit hide what a diversity suppresses; seven illnesses are in no class at all."""
    table, models = people(60, seed=3), (KAnonymity(k), DistinctDiversity("illness", values))

    def ask(share: float, **limits: int) -> None:
        anonymize(table, Request(("age", "sex"), models, ("illness",), suppress=share, highest=limits), NUMBERS)

    with pytest.raises(Infeasible) as refused:
        ask(suppress, age=1, sex=0)
    said = str(refused.value)
    advised = re.search(r"[Aa]llow ([0-9.]+)% of the rows", said)
    assert ("let age, sex be generalized to one group" in said) == (values < 7)
    assert ("generalizing everything reaches 3" in said) == (values == 7)
    if values == 7:
        assert advised is None
        assert "More suppressed rows do not help" in said
    else:
        ask(suppress)  # to one group, in every column
        assert advised is not None
        ask(float(advised[1]) / 100, age=1, sex=0)


def test_hierarchies_that_stop_too_early_are_named_with_the_suppression_that_would_do() -> None:
    tree = Spec("tree", {"rows": (("F", "F"), ("M", "M"))})
    table = pa.table({"sex": ["F"] * 9 + ["M"]})
    with pytest.raises(Infeasible, match=r"Allow 10% of the rows to be suppressed; or let sex be generalized"):
        anonymize(table, Request(("sex",), (KAnonymity(3),), highest={"sex": 1}), {"sex": tree})


@pytest.mark.parametrize("rows", [0, 1])
def test_tables_of_no_row_or_one_are_refused_or_released_plainly(rows: int) -> None:
    with pytest.raises(Infeasible, match="there are fewer rows"):
        anonymize(people(rows), Request(("age",), (KAnonymity(2),)), NUMBERS)
    if rows:
        made = anonymize(people(1), Request(("age",), (KAnonymity(1),)), NUMBERS)
        assert made.recoding.levels == (0,)


def test_k_map_and_presence_compare_with_a_population() -> None:
    population = people(600, seed=1)
    sample = population.slice(0, 60)
    request = Request(("age", "sex"), (KMap(5),))
    made = anonymize(sample, request, NUMBERS, population=population)
    plain = anonymize(sample, Request(("age", "sex"), (KAnonymity(5),)), NUMBERS)
    assert made.solution.cost < plain.solution.cost
    bounded = anonymize(sample, Request(("age", "sex"), (DeltaPresence(0.02, 0.3),)), NUMBERS, population=population)
    assert bounded.solution.proof.complete
    with pytest.raises(ParameterError, match="needs the population"):
        anonymize(sample, request, NUMBERS)


def test_requests_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ParameterError, match="No quasi-identifier"):
        Request(())
    with pytest.raises(ParameterError, match="between 0 and 1"):
        Request(("a",), suppress=2)
    with pytest.raises(ParameterError, match="not among the sensitive columns"):
        Request(("a",), (DistinctDiversity("b", 2),))
    with pytest.raises(ParameterError, match="named twice"):
        Request(("a", "a"))
    with pytest.raises(DataError, match="Did you mean 'age'"):
        anonymize(people(9), Request(("agee",)))


def test_every_model_can_be_spelled_and_read_again() -> None:
    models = [
        KAnonymity(3),
        KMap(4),
        DistinctDiversity("s", 2),
        Closeness("s", 0.2, Distance.ORDERED),
        AverageRisk(0.1),
    ]
    assert [parse_condition(to_spec(model)) for model in models] == models
    assert len({kind for kind, _ in KINDS}) == len(KINDS)
    with pytest.raises(ParameterError, match="Did you mean 'closeness'"):
        parse_condition(Spec("closenes", {}))


def test_a_policy_becomes_models_and_a_population_size_becomes_an_estimated_k() -> None:
    from fractions import Fraction

    asked = Anonymize(
        5, {"s": Fraction(3)}, {"s": Fraction(1, 5)}, models=(Spec("k_map", {"k": 10, "population": 1000}),)
    )
    assert build_conditions(asked, 200) == (
        KAnonymity(5),
        DistinctDiversity("s", 3),
        Closeness("s", 0.2),
        KAnonymity(2),
    )


def test_dates_are_recoded_for_rows_to_come() -> None:
    table = pa.table({"born": [date(1980 + n % 3, 1 + n % 12, 1) for n in range(36)]})
    made = anonymize(
        table, Request(("born",), (KAnonymity(12),)), {"born": Spec("dates", {"levels": ("month", "year")})}
    )
    assert recode_table(pa.table({"born": [date(1981, 7, 9)]}), made.recoding)["born"].to_pylist() == ["1981"]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        (Spec("delta_presence", {}), "lacks 'most'"),
        (Spec("average_risk", {}), "lacks 'most'"),
        (Spec("entropy_diversity", {"column": "d", "l": "many"}), "'l' of 'entropy_diversity' is 'many'"),
        (Spec("beta_likeness", {"column": "d", "beta": "1", "enhanced": "perhaps"}), "true or false"),
        (Spec("closeness", {"column": "d", "t": "0.1", "distance": "far"}), "One of equal"),
        (Spec("k_map", {"k": "3", "kk": "3"}), "no option 'kk'"),
    ],
)
def test_a_privacy_model_said_wrongly_is_refused_with_what_is_wrong(spec: Spec, told: str) -> None:
    with pytest.raises(ParameterError) as refused:
        parse_condition(spec)
    assert told in str(refused.value)


def test_words_are_read_by_the_type_of_the_option() -> None:
    plain = parse_condition(Spec("beta_likeness", {"column": "d", "beta": "2", "enhanced": "false"}))
    assert str(plain) != str(parse_condition(Spec("beta_likeness", {"column": "d", "beta": "2", "enhanced": "true"})))
    assert parse_condition(Spec("delta_presence", {"most": "0.5"})) == parse_condition(
        Spec("delta_presence", {"least": 0, "most": 0.5})
    )
