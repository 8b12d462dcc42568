"""Risks and findings against naive twins."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.errors import DataError, ParameterError
from deniable.kanonymity.encoding import build_histograms
from deniable.kanonymity.models import Closeness, Distance
from deniable.kanonymity.models.base import Classes, build_reference
from deniable.kanonymity.quality import measure_utility
from deniable.kanonymity.risk import estimate_uniqueness, examine, measure_risks, score_guess

ROWS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.integers(0, 5)), min_size=1, max_size=30)


@settings(max_examples=80, deadline=None)
@given(rows=ROWS)
def test_findings_are_those_of_counting_by_hand(rows: list[tuple[int, str, int]]) -> None:
    table = pa.table({"x": [r[0] for r in rows], "y": [r[1] for r in rows], "s": [r[2] for r in rows]})
    found = examine(table, ("x", "y"), ("s",))
    held: dict[tuple[int, str], list[int]] = defaultdict(list)
    for x, y, s in rows:
        held[x, y].append(s)
    sizes = [len(values) for values in held.values()]
    whole = Counter(r[2] for r in rows)
    distances = [
        0.5 * sum(abs(values.count(v) / len(values) - n / len(rows)) for v, n in whole.items())
        for values in held.values()
    ]
    assert (found.k, found.classes, found.rows) == (min(sizes), len(held), len(rows))
    assert found.sensitive[0].distinct_l == min(len(set(values)) for values in held.values())
    assert found.sensitive[0].t == pytest.approx(max(distances))
    assert found.sensitive[0].ordered_t == pytest.approx(max(naive_ordered(values, whole) for values in held.values()))
    assert found.risks.prosecutor.highest == pytest.approx(1 / min(sizes))
    assert found.risks.marketer == pytest.approx(len(held) / len(rows))
    assert found.risks.sample_uniqueness == pytest.approx(sizes.count(1) / len(rows))
    assert found.risks.prosecutor.at_risk == pytest.approx(sum(n for n in sizes if n < 5) / len(rows))


def naive_ordered(values: list[int], whole: Counter[int]) -> float:
    domain, total = sorted(whole), sum(whole.values())
    if len(domain) == 1:
        return 0.0
    flow = moved = 0.0
    for v in domain:
        flow += values.count(v) / len(values) - whole[v] / total
        moved += abs(flow)
    return moved / (len(domain) - 1)


def test_the_distance_without_a_kernel_is_that_of_the_kernel() -> None:
    chance = np.random.default_rng(2)
    values, owner = chance.integers(0, 9, 300), chance.integers(0, 12, 300)
    table = pa.table({"q": owner, "s": values})
    held = build_histograms(owner, 12, values.astype(np.int32), 9)
    against = {"s": build_reference(held.total())}
    measured = Closeness("s", 1, Distance.ORDERED).measure(Classes(np.bincount(owner), {"s": held}, against))
    found = examine(table, ("q",), ("s",)).sensitive[0].ordered_t
    assert found == pytest.approx(measured.max())


def test_missing_cells_and_stars_are_values_like_others() -> None:
    table = pa.table({"x": ["*", "*", None, None, "a"]})
    assert examine(table, ("x",)).classes == 3


def test_one_guess_among_four_who_fit_is_right_with_a_quarter() -> None:
    found = measure_risks(np.array([4])).bayesian
    assert (found.score, found.highest, found.prior) == (0.25, 0.25, "everybody in the table alike")


@pytest.mark.parametrize("seed", range(20))
def test_the_score_of_one_guess_is_what_naming_the_likeliest_row_gets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    class_of, weights = rng.integers(0, 4, 12), rng.integers(0, 5, 12) + (np.arange(12) == 0)
    right = 0.0
    for target in range(12):  # the target is drawn from the prior, the intruder sees its class and names one row
        fits = np.flatnonzero(class_of == class_of[target])
        named = fits[np.argmax(weights[fits])]
        right += weights[target] / weights.sum() * (named == target)
    assert score_guess(class_of, weights).score == pytest.approx(right)
    alike = score_guess(class_of, np.ones(12))
    assert alike.score == pytest.approx(measure_risks(np.bincount(class_of)).bayesian.score)


def test_one_guess_at_anybody_of_the_population_is_right_for_one_of_each_class() -> None:
    found = measure_risks(np.array([1, 4, 0]), np.array([10, 40, 50])).bayesian
    # Of 100 people 10 share the first class: one of them has the row, which is named for all ten; likewise one of 40.
    assert found.score == pytest.approx(2 / 100)
    assert found.prior == "everybody in the population alike"
    with pytest.raises(ParameterError):
        score_guess(np.array([0]), np.array([0]))


def test_the_journalist_looks_in_the_population() -> None:
    found = measure_risks(np.array([1, 4]), np.array([10, 40]))
    assert found.prosecutor.highest == 1.0
    assert found.journalist.highest == pytest.approx(0.1)
    assert found.marketer == pytest.approx((1 / 10 + 4 / 40) / 5)


def test_the_column_to_blame_comes_first() -> None:
    table = pa.table({"id": list(range(40)), "sex": ["F", "M"] * 20})
    found = examine(table, ("sex", "id"))
    assert found.blame[0].column == "id"
    assert found.blame[0].at_risk_without == 0.0
    assert found.blame[1].at_risk_without == 1.0


@pytest.mark.parametrize("fraction", [0.05, 0.2])
def test_estimates_of_population_uniqueness_are_near_the_truth(fraction: float) -> None:
    chance = np.random.default_rng(4)
    people = np.minimum(chance.zipf(1.4, 60_000), 40_000)
    sizes = Counter(people.tolist())
    sample = chance.random(len(people)) < fraction
    drawn = people[sample]
    truth = sum(sizes[v] == 1 for v in drawn.tolist()) / len(drawn)
    found = estimate_uniqueness(np.array(list(Counter(drawn.tolist()).values())), fraction)
    unique_here = sum(n == 1 for n in Counter(drawn.tolist()).values()) / len(drawn)
    assert truth / 2.5 < found.pitman < truth * 2.5
    assert found.pitman <= unique_here
    assert truth / 4 < found.zayatz < unique_here


def test_a_whole_population_is_as_unique_as_it_is() -> None:
    sizes = np.array([1, 1, 2, 5])
    assert estimate_uniqueness(sizes, 1.0).zayatz == pytest.approx(2 / 9)
    assert estimate_uniqueness(sizes, 1.0).pitman == pytest.approx(2 / 9)
    with pytest.raises(ParameterError, match="sampling fraction"):
        estimate_uniqueness(sizes, 0)


def test_empty_tables_and_missing_columns() -> None:
    empty = examine(pa.table({"x": pa.array([], pa.string()), "s": pa.array([], pa.int64())}), ("x",), ("s",))
    assert (empty.k, empty.classes) == (0, 0)
    with pytest.raises(DataError, match="Did you mean 'age'"):
        examine(pa.table({"age": [1]}), ("agee",))
    with pytest.raises(ParameterError, match="No quasi-identifier"):
        examine(pa.table({"age": [1]}), ())


def test_a_release_is_as_useful_as_what_it_keeps() -> None:
    chance = np.random.default_rng(0)
    x = chance.integers(0, 4, 800)
    table = pa.table({"x": x, "z": chance.integers(0, 4, 800), "y": np.where(chance.random(800) < 0.9, x > 1, x <= 1)})
    same = measure_utility(table, table, "y", ("x", "z", "y"))
    assert same.original == same.released > 0.85
    assert same.kept == pytest.approx(1.0)
    blank = table.set_column(0, "x", pa.array(["*"] * 800))
    assert measure_utility(table, blank, "y", ("x", "z")).kept < 0.3
