"""Singling out, linkability, inference and membership: by hand, against naive twins, raw copies and strangers."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.attacks.inference import infer_secret, link_halves
from deniable.attacks.membership import claim_membership, measure_separation, score_closeness, score_density
from deniable.attacks.nearest_records import find_nearest, list_equally_near, scale_tables
from deniable.attacks.singling_out import Predicates, SortedRows, hold_for_one_row, single_out_people
from deniable.errors import ParameterError


def people(size, seed, secret_of=None):
    """People whose columns are independent but for the secret, which anybody can partly guess from the town."""
    rng = np.random.default_rng(seed)
    town = rng.integers(0, 30, size)
    return pa.table(
        {
            "age": rng.integers(18, 95, size),
            "height": rng.normal(170, 10, size),
            "town": [f"t{t}" for t in town],
            "job": [f"j{j}" for j in rng.integers(0, 40, size)],
            "secret": [f"s{s}" for s in rng.integers(0, 10, size)],
        }
    )


IN, OUT, STRANGERS = people(600, 1), people(600, 2), people(600, 3)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_the_nearest_records_are_those_of_a_naive_search(seed):
    rng = np.random.default_rng(seed)
    tables = [
        pa.table({"x": rng.normal(size=n), "c": [["a", "b", None][k] for k in rng.integers(0, 3, n)]}) for n in (9, 14)
    ]
    targets, among = scale_tables(tables, ["x", "c"])
    place, distance = find_nearest(targets, among, 3)
    for t in range(9):
        apart = np.abs(among.scaled[:, 0] - targets.scaled[t, 0]) + (among.coded[:, 0] != targets.coded[t, 0])
        assert np.allclose(distance[t], np.sort(apart)[:3])
        assert np.allclose(apart[place[t]], distance[t])


def test_all_equally_near_records_are_those_of_a_naive_search_over_several_blocks():
    rng = np.random.default_rng(5)
    tables = [
        pa.table({"x": rng.integers(0, 4, n), "c": rng.choice(["a", "b"], n), "d": rng.choice(["a", "b", "c"], n)})
        for n in (40, 5_000)
    ]
    targets, among = scale_tables(tables, ["x", "c", "d"])
    for t, found in enumerate(list_equally_near(targets, among)):
        apart = np.abs(among.scaled - targets.scaled[t]).sum(axis=1) + (among.coded != targets.coded[t]).sum(axis=1)
        assert found.tolist() == np.flatnonzero(apart == apart.min()).tolist()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_predicates_on_sorted_rows_hold_as_they_do_on_all_rows(seed):
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 6, (30, 4)).astype(float)
    rows[rng.random(rows.shape) < 0.2] = np.nan
    columns = np.sort(np.argsort(rng.random((200, 4)), axis=1)[:, :2], axis=1)
    values = rows[rng.integers(0, 30, (200, 1)), columns]
    predicates = Predicates(columns, rng.integers(0, 3, (200, 2)).astype(np.int8), values)
    naive = [
        sum(
            all((row[c] == v, row[c] >= v, row[c] <= v)[how] for c, how, v in zip(*one, strict=True)) for row in rows
        ) == 1
        for one in zip(columns, predicates.comparisons, values, strict=True)
    ]  # fmt: skip
    assert SortedRows(rows).hold_for_one_row(predicates).tolist() == naive
    assert hold_for_one_row(predicates, rows).tolist() == naive


def test_missing_numbers_are_near_each_other_only():
    targets, among = scale_tables([pa.table({"x": [None, 1.0]}), pa.table({"x": [1.0, None]})], ["x"])
    assert find_nearest(targets, among)[0][:, 0].tolist() == [1, 0]


def test_four_rows_are_singled_out_by_hand():
    table = pa.table({"age": [20, 30, 30, 90], "sex": ["F", "M", "M", "M"]})
    outcome = single_out_people(table, table, width=1, attacks=50)
    # age <= 20, age >= 90, age == 20, age == 90, sex == F
    assert (outcome.attack.successes, outcome.attack.trials) == (5, 5)
    assert "only 5 predicates" in outcome.trusted[0]


def test_a_raw_copy_is_singled_out_and_strangers_are_not_more_than_the_control():
    raw = single_out_people(IN, IN, control=OUT, attacks=200)
    assert raw.attack.share == 1
    assert raw.excess > 0.5
    fresh = single_out_people(IN, STRANGERS, control=OUT, attacks=200)
    assert fresh.attack.interval.low <= fresh.control.interval.high


def test_linkability_of_a_copy_is_total_and_of_strangers_at_the_baseline():
    halves = (["age", "height"], ["town", "job", "secret"])
    raw = link_halves(IN, IN, halves, control=OUT, attacks=200)
    assert raw.attack.share > 0.9
    assert raw.control.share < 0.05
    fresh = link_halves(IN, STRANGERS, halves, control=OUT, attacks=200)
    assert fresh.attack.share < 0.05
    assert link_halves(IN, IN, halves, attacks=20).baseline == pytest.approx(1 / 600)


def coarse(size, seed):
    """People of few values each: nearly all nearest rows are several."""
    rng = np.random.default_rng(seed)
    return pa.table({name: [f"{v}" for v in rng.integers(0, n, size)] for name, n in (("a", 3), ("b", 4), ("c", 5))})


def test_the_order_of_rows_changes_no_rate():
    table, released = coarse(900, 1), coarse(60, 2)
    found = set()
    for seed in range(4):
        mixed = [t.take(np.random.default_rng(seed).permutation(t.num_rows)) for t in (table, released)]
        linked = link_halves(*mixed, (["a"], ["b", "c"]), attacks=300).attack
        guessed = infer_secret(*mixed, ["a", "b"], "c", attacks=300).attack
        found.add((linked.successes, guessed.successes))
    assert len(found) == 1


def test_links_between_equally_near_rows_count_by_their_chance():
    """By hand: each of 40 people is nearest to 4 rows by a and to 2 by b, of which both are among the 4: 2 in 8."""
    table = pa.table({"a": ["x"] * 40, "b": ["p"] * 40})
    released = pa.table({"a": ["x", "x", "x", "x", "y"], "b": ["p", "p", "q", "q", "q"]})
    assert link_halves(table, released, (["a"], ["b"])).attack.successes == 10
    secrets = pa.table({"a": ["x"] * 40, "b": ["p"] * 40})
    assert infer_secret(secrets, released, ["a"], "b").attack.successes == 20


def test_inference_from_a_copy_is_total_and_from_strangers_at_the_baseline():
    knows = ["age", "height", "town", "job"]
    raw = infer_secret(IN, IN, knows, "secret", control=OUT, attacks=300)
    assert raw.attack.share == 1
    assert raw.excess > 0.8
    assert raw.baseline == pytest.approx(0.1, abs=0.03)
    fresh = infer_secret(IN, STRANGERS, knows, "secret", control=OUT, attacks=300)
    assert fresh.attack.interval.low <= 0.12


def test_numbers_are_inferred_within_their_tolerance():
    close = IN.set_column(1, "height", pa.array(IN["height"].to_numpy() * 1.04))
    knows = ["age", "town", "job", "secret"]
    assert infer_secret(IN, close, knows, "height", attacks=200).attack.share > 0.95
    assert infer_secret(IN, close, knows, "height", attacks=200, tolerance=0.01).attack.share < 0.3


def test_an_empty_release_tells_nothing():
    empty = IN.slice(0, 0)
    assert infer_secret(IN, empty, ["age"], "secret", attacks=50).attack.successes == 0
    assert single_out_people(IN, empty, attacks=50).attack.trials == 0


def test_the_area_under_the_curve_counts_ties_half():
    assert measure_separation(np.array([2.0, 2.0]), np.array([2.0, 2.0])).area == 0.5
    assert measure_separation(np.array([3.0, 2.0]), np.array([1.0, 2.0])).area == 0.875
    curve = measure_separation(np.arange(1000) + 10.0, np.arange(1000.0))
    assert dict(curve.at)[0.01].share == pytest.approx(0.02)


def test_membership_in_a_copy_is_certain_and_in_strangers_a_coin():
    raw = claim_membership(score_closeness(IN, IN), score_closeness(OUT, IN))
    assert raw.attack.share == 1
    assert raw.control.share < 0.03
    assert raw.figures["area"] > 0.99
    fresh = claim_membership(score_closeness(IN, STRANGERS), score_closeness(OUT, STRANGERS))
    assert abs(fresh.figures["area"] - 0.5) < 0.06
    assert fresh.attack.interval.low <= fresh.control.interval.high


def test_density_against_a_reference_finds_what_was_copied():
    reference = people(600, 8)
    found = claim_membership(score_density(IN, IN, reference), score_density(OUT, IN, reference))
    assert found.figures["area"] > 0.9


def test_nobody_to_compare_is_refused():
    with pytest.raises(ParameterError):
        claim_membership(np.zeros(0), np.zeros(5))


def test_the_search_for_predicates_ends_where_a_column_is_empty() -> None:
    table = pa.table({"a": [1, 2, 3], "b": ["x", "y", "z"], "c": pa.array([None, None, None], pa.string())})
    found = single_out_people(table, table, attacks=5, width=3)
    assert found.attack.trials == 0
