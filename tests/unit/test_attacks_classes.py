"""Same-class disclosure, combined releases and differences: small tables by hand, brute force as the twin."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.attacks.aggregates.differencing import (
    attack_by_differencing,
    find_hidden_cells,
    find_isolating_pairs,
    isolate_people,
)
from deniable.attacks.class_disclosure import count_class_disclosure, guess_from_class
from deniable.attacks.composition import combine_means, cross_releases, join_releases, prepare_releases
from deniable.attacks.solvers import find_determined, find_refused, solve_least_squares
from deniable.errors import ParameterError

TABLE = pa.table({"class": [1, 1, 1, 2, 2, 2, 2], "ill": ["flu", "flu", "flu", "flu", "gout", "cold", "cold"],
                  "pay": [50, 51, 52, 10, 20, 90, 100]})  # fmt: skip


def test_seven_rows_by_hand():
    found = count_class_disclosure(TABLE, ["class"], "ill")
    assert (found.homogeneous, found.background, found.skewed, found.similar) == (3, 3, 0, 3)
    assert count_class_disclosure(TABLE, ["class"], "ill", rules_out=2).background == 7
    assert count_class_disclosure(TABLE, ["class"], "pay").similar == 3
    assert count_class_disclosure(TABLE, ["class"], "ill", group_of=lambda ill: "ill").similar == 7


def test_the_bayesian_intruder_by_hand():
    outcome = guess_from_class(TABLE, ["class"], "ill")
    assert (outcome.attack.successes, outcome.baseline.successes) == (5, 4)  # three flus and two colds; four flus
    assert outcome.control.successes == 3  # without their own row, neither cold would lead its class
    assert outcome.figures["expected_records_found"] == pytest.approx(2.0)
    assert outcome.figures["certain"] == 3


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_homogeneity_is_that_of_brute_force(seed):
    rng = np.random.default_rng(seed)
    table = pa.table({"q": rng.integers(0, 6, 20), "r": rng.integers(0, 2, 20), "s": rng.integers(0, 3, 20)})
    rows = table.to_pylist()
    seen = [{o["s"] for o in rows if (o["q"], o["r"]) == (row["q"], row["r"])} for row in rows]
    found = count_class_disclosure(table, ["q", "r"], "s")
    assert found.homogeneous == sum(len(s) == 1 for s in seen)
    assert found.background == sum(len(s) <= 2 for s in seen)


def test_an_empty_table_discloses_nothing():
    assert count_class_disclosure(TABLE.slice(0, 0), ["class"], "ill").rows == 0
    assert guess_from_class(TABLE.slice(0, 0), ["class"], "ill").attack.trials == 0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_crossed_releases_leave_the_values_of_brute_force(seed):
    rng = np.random.default_rng(seed)
    a, b, secret = rng.integers(0, 5, 25), rng.integers(0, 5, 25), rng.integers(0, 4, 25)
    left = [set(secret[a == a[i]]) & set(secret[b == b[i]]) for i in range(25)]
    people = pa.table({"a": a, "b": b, "s": secret})
    releases = prepare_releases([people.select(["a", "s"]), people.select(["b", "s"])], ["a", "b"])
    assert cross_releases(releases, people, "s")[0].attack.successes == sum(len(one) == 1 for one in left)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_combined_means_are_exact_where_they_say_so(seed):
    rng = np.random.default_rng(seed)
    secret = rng.integers(0, 100, 12).astype(float)
    releases = []
    for _ in range(2):
        classes = rng.integers(0, 4, 12)
        releases.append((classes, {int(c): secret[classes == c].mean() for c in np.unique(classes)}))
    found = combine_means(releases)
    assert np.allclose(found.value[found.exact], secret[found.exact])
    masks = np.array([classes == c for classes, means in releases for c in means])
    assert found.exact.tolist() == find_determined(masks).tolist()


def test_a_map_at_two_resolutions_shows_what_was_suppressed():
    coarse, fine = {(0, 0): 12, (1, 0): 30}, {(0, 0): 10, (2, 0): 30}
    found = find_hidden_cells(
        coarse, fine, lambda cell: (cell[0] // 2, cell[1]), possible=[(0, 0), (1, 0), (2, 0), (3, 0)]
    )
    assert found.hidden == {(0, 0): 2}
    assert found.pinned == {(1, 0): 2}
    assert found.people == 2


def test_a_masked_and_a_generalized_release_are_joined_on_what_both_show():
    generalized = pa.table({"age": ["[30, 40)", "[30, 40)", "[40, 50)"], "visit": [1, 2, 3], "ill": ["a", "b", "c"]})
    masked = pa.table({"age": [31, 39, 45], "visit": [1, 2, 3]})
    outcome = join_releases(generalized, masked, ["age", "visit"], truth=np.arange(3))
    assert outcome.attack.successes == 3
    assert outcome.precision.share == 1


def test_pairs_and_combinations_isolate():
    masks = np.array([[1, 1, 1, 0], [1, 1, 0, 0], [0, 1, 1, 1], [1, 0, 0, 0]], bool)
    totals = masks @ np.array([5.0, 7.0, 11.0, 13.0])
    (pair, *_) = find_isolating_pairs(masks, totals)
    assert (pair.larger, pair.smaller, pair.people, pair.total) == (0, 1, (2,), 11.0)
    found = isolate_people(masks, totals)
    assert found.by_pair.tolist() == [True, True, True, False]
    assert found.by_combination.all()
    assert np.allclose(found.value, [5, 7, 11, 13])


@pytest.mark.parametrize("seed", range(5))
def test_who_pairs_isolate_is_the_same_whether_pairs_are_listed_or_not(seed):
    """Groups that repeat, groups of one, nobody and everybody, and some that differ by one person."""
    rng = np.random.default_rng(seed)
    drawn = rng.random((12, 9)) < 0.4
    near = drawn ^ np.eye(9, dtype=bool)[rng.integers(9, size=12)]
    masks = np.concatenate([drawn, near, drawn[:3], np.zeros((1, 9), bool)])
    listed = {person for pair in find_isolating_pairs(masks, np.zeros(len(masks))) for person in pair.people}
    listed |= {int(mask.argmax()) for mask in masks if mask.sum() == 1}
    assert set(np.flatnonzero(isolate_people(masks, np.zeros(len(masks))).by_pair)) == listed
    assert len(listed) > 0


def test_three_answers_isolate_where_no_pair_does():
    masks = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], bool)
    found = isolate_people(masks, masks @ np.array([1.0, 0.0, 1.0]))
    assert not found.by_pair.any()
    assert found.value.tolist() == pytest.approx([1, 0, 1])


def test_rounded_answers_isolate_nobody_rightly():
    rng = np.random.default_rng(1)
    masks, secret = rng.random((60, 40)) < 0.5, rng.integers(0, 1000, 40).astype(float)
    assert attack_by_differencing(masks, masks @ secret, secret=secret).attack.share == 1
    noisy = masks @ secret + rng.laplace(0, 1000, 60)
    assert attack_by_differencing(masks, noisy, secret=secret).attack.share == 0


def test_groups_and_answers_that_do_not_fit_are_refused():
    with pytest.raises(ParameterError, match="do not fit"):
        isolate_people(np.ones((2, 3), bool), np.ones(3))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_determined_is_that_of_rational_rank(seed):
    rng = np.random.default_rng(seed)
    masks = rng.random((5, 6)) < 0.5
    rank = np.linalg.matrix_rank(masks.astype(float))
    units = [np.linalg.matrix_rank(np.vstack([masks.astype(float), np.eye(6)[i]])) == rank for i in range(6)]
    assert find_determined(masks).tolist() == units


def test_a_thousand_questions_over_public_attributes_are_audited_by_linear_algebra():
    """1,000 sums over 500 people, by four attributes; the naive twin projects every cell on the space of the sums."""
    rng = np.random.default_rng(2)
    public = rng.integers(0, 6, (500, 4))
    pairs = rng.integers(0, 4, (1000, 2))
    masks = np.array([(public[:, a] <= rng.integers(0, 6)) & (public[:, b] == rng.integers(0, 6)) for a, b in pairs])
    cells, cell, sizes = np.unique(public, axis=0, return_inverse=True, return_counts=True)
    cell = cell.reshape(-1)
    together = np.array([masks[:, cell == place].any(axis=1) for place in range(len(cells))], float).T
    # A unit vector lies in the row space exactly when projecting on that space leaves it as it is.
    _, singular, space = np.linalg.svd(together, full_matrices=False)
    kept = space[singular > 1e-8 * singular[0]]
    inside = np.abs((kept**2).sum(axis=0) - 1) < 1e-6
    assert find_determined(masks).tolist() == (inside & (sizes == 1))[cell].tolist()
    every = np.vstack([masks, np.eye(500, dtype=bool)[:40]])
    assert find_determined(every)[:40].all()


def test_least_squares_of_large_systems_are_those_of_small_ones():
    rng = np.random.default_rng(4)
    masks, value = rng.random((430, 450)) < 0.5, rng.normal(size=450)
    answers = masks @ value
    expected = np.linalg.lstsq(masks.astype(float), answers, rcond=None)[0]
    assert solve_least_squares(masks, answers) == pytest.approx(expected, abs=1e-6)
    tall = masks.T[:, :401]
    noisy = tall @ value[:401] + rng.normal(size=450)
    expected = np.linalg.lstsq(tall.astype(float), noisy, rcond=None)[0]
    assert solve_least_squares(tall, noisy) == pytest.approx(expected, abs=1e-6)


@given(st.integers(0, 2**32 - 1))
def test_what_must_be_refused_is_what_determines_somebody(seed):
    """The naive curator: before each answer, ask whether anybody would be determined by it and the answered ones."""
    masks = np.random.default_rng(seed).random((8, 5)) < 0.5
    answered, expected = [], []
    for mask in masks:
        expected.append(bool(find_determined(np.array([*answered, mask])).any()))
        answered += [] if expected[-1] else [mask]
    assert find_refused(masks).tolist() == expected
