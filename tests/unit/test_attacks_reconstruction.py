"""Reconstruction, auditing and cell bounds against brute force over all small worlds."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from counting_service import (
    answer_exactly,
    answer_rounded,
    answer_with_fixed_noise,
    bound_correct_bits,
    draw_groups,
    sweep_questions,
)
from deniable.attacks import solvers
from deniable.attacks.aggregates.cell_bounds import Margin, bound_cells, bound_two_way_cells
from deniable.attacks.aggregates.query_auditing import Status, audit_counts, audit_maxima, audit_sums
from deniable.attacks.aggregates.reconstruction import decode_shares, estimate_values, reconstruct
from deniable.dp.samplers import discrete_laplace
from deniable.errors import MissingExtra, ParameterError
from seeded import SeededEntropy

SECRET = np.random.default_rng(7).random(60) < 0.4


def test_exact_rounded_and_sticky_answers_all_fall():
    for answering in (answer_exactly(SECRET), answer_rounded(SECRET, 5), answer_with_fixed_noise(SECRET, 2.0)):
        outcomes = sweep_questions(answering, SECRET, [20, 600])
        assert outcomes[1].attack.share >= 0.98
        assert outcomes[0].attack.share <= outcomes[1].attack.share


def laplace(epsilon, questions):
    """Counts with noise that makes all of them together epsilon-DP."""
    noise = discrete_laplace(Fraction(questions) / Fraction(epsilon), questions, entropy=SeededEntropy(5))
    return lambda groups: answer_exactly(SECRET)(groups) + noise


@pytest.mark.parametrize("epsilon", [Fraction(1, 2), 1])
def test_answers_with_dp_noise_stay_at_the_baseline_that_epsilon_predicts(epsilon):
    outcome = sweep_questions(laplace(epsilon, 600), SECRET, [600])[0]
    assert outcome.attack.interval.low <= bound_correct_bits(float(epsilon), outcome.baseline_share)


def test_far_too_little_noise_is_seen_by_the_same_bound():
    outcome = sweep_questions(laplace(600, 600), SECRET, [600])[0]
    assert outcome.attack.interval.low > bound_correct_bits(1.0, outcome.baseline_share)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_decoding_is_as_good_as_the_best_of_all_worlds(seed):
    rng = np.random.default_rng(seed)
    secret, groups = rng.random(7) < 0.5, draw_groups(25, 7, seed)
    answers = groups @ secret.astype(float) + rng.integers(-1, 2, 25)
    worlds = np.array(list(itertools.product([0.0, 1.0], repeat=7)))
    least = np.abs(worlds @ groups.T - answers).sum(axis=1).min()
    shares = decode_shares(groups, answers)
    assert np.abs(groups @ shares - answers).sum() <= least + 1e-6  # shares may fit even better than bits


def test_no_questions_leave_everything_open():
    assert decode_shares(np.zeros((0, 3), bool), np.zeros(0)).tolist() == [0.5] * 3
    assert reconstruct(np.zeros((0, 0), bool), np.zeros(0), np.zeros(0, bool)).attack.trials == 0
    with pytest.raises(ParameterError, match="do not fit"):
        decode_shares(np.ones((2, 3), bool), np.ones(3))


def worlds_of(groups, answers):
    bits = np.array(list(itertools.product([0, 1], repeat=groups.shape[1])))
    return bits[(bits @ groups.T == answers).all(axis=1)]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_audited_counts_are_those_of_brute_force(seed):
    rng = np.random.default_rng(seed)
    groups, secret = rng.random((4, 7)) < 0.5, rng.integers(0, 2, 7)
    left = worlds_of(groups, groups @ secret)
    verdicts = audit_counts(groups, (groups @ secret).astype(float))
    assert verdicts.determined.tolist() == (left.min(axis=0) == left.max(axis=0)).tolist()
    assert (verdicts.low[verdicts.determined] == secret[verdicts.determined]).all()


def test_counts_determine_more_than_sums_do():
    groups = np.array([[True, True, False]])
    assert audit_counts(groups, np.array([2.0])).determined.tolist() == [True, True, False]
    assert not audit_sums(groups, np.array([2.0])).determined.any()


def test_limits_determine_where_linear_algebra_does_not():
    verdicts = audit_sums(np.array([[True, True, True]]), np.array([0.0]), low=0.0)
    assert verdicts.determined.all()
    bounded = audit_sums(np.array([[True, True, False], [False, True, True]]), np.array([10.0, 4.0]), low=0.0)
    assert bounded.low.tolist() == pytest.approx([6, 0, 0])
    assert bounded.high.tolist() == pytest.approx([10, 4, 4])


def test_time_ends_with_unknown_and_not_with_a_guess():
    rng = np.random.default_rng(2)
    groups = rng.random((30, 60)) < 0.5
    verdicts = audit_counts(groups, groups @ (rng.random(60) < 0.5).astype(float), seconds=0.05)
    assert (verdicts.status == Status.UNKNOWN).any()
    assert "not decided" in verdicts.outcome().warnings[0]


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_audited_maxima_are_those_of_brute_force(seed):
    rng = np.random.default_rng(seed)
    groups = rng.random((3, 4)) < 0.6
    groups = groups[groups.any(axis=1)]
    secret = rng.integers(0, 5, 4)
    answers = np.array([secret[group].max() for group in groups], float)
    grid = np.array(list(itertools.product(np.arange(-1, 6), repeat=4)))  # beyond the values on both sides
    left = grid[[all(row[g].max() == a for g, a in zip(groups, answers, strict=True)) for row in grid]]
    verdicts = audit_maxima(groups, answers)
    assert verdicts.determined.tolist() == (left.min(axis=0) == left.max(axis=0)).tolist()


def test_impossible_answers_are_refused():
    with pytest.raises(ParameterError):
        audit_counts(np.array([[True, True]]), np.array([3.0]))
    with pytest.raises(ParameterError):
        audit_maxima(np.array([[True, False], [True, False]]), np.array([1.0, 2.0]))
    with pytest.raises(ParameterError):
        bound_two_way_cells([1, 2], [4])


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_cell_bounds_by_linear_programs_are_the_closed_ones_in_two_ways(seed):
    table = np.random.default_rng(seed).integers(0, 5, (2, 3))
    found = bound_cells((2, 3), [Margin.of((0,), table.sum(axis=1)), Margin.of((1,), table.sum(axis=0))])
    closed = bound_two_way_cells(table.sum(axis=1), table.sum(axis=0))
    assert found.low.tolist() == closed.low.tolist()
    assert found.high.tolist() == closed.high.tolist()


def test_three_two_way_margins_can_give_a_cube_away():
    cube = np.zeros((2, 2, 2), np.int64)
    cube[0, 0, 0] = 3
    margins = [Margin.of(axes, cube.sum(axis=drop)) for axes, drop in (((0, 1), 2), ((0, 2), 1), ((1, 2), 0))]
    found = bound_cells((2, 2, 2), margins)
    assert found.share == 1.0  # zeros in margins are zeros in cells


def test_a_missing_solver_is_refused_with_the_extra(monkeypatch):
    monkeypatch.setattr(solvers, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    with pytest.raises(MissingExtra, match=r"deniable\[solvers\]"):
        decode_shares(np.ones((1, 1), bool), np.ones(1))
    with pytest.raises(MissingExtra):
        audit_counts(np.ones((1, 1), bool), np.ones(1))


@pytest.mark.parametrize(("people", "questions", "scale"), [(30, 60, 2.0), (10, 20, 1.0)])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.8])
def test_bits_that_are_claimed_surely_are_right_as_often_whatever_share_has_them(
    people: int, questions: int, scale: float, share: float
) -> None:
    """Others were taken for too certain: of bits claimed with 95%, 89% were right where a share of 0.3 has them."""
    random, right, claimed = np.random.default_rng(11), 0, 0
    for _ in range(120):
        secret = (random.random(people) < share).astype(float)
        groups = random.random((questions, people)) < 0.5
        answers = groups @ secret + random.normal(0, scale * np.sqrt(2), questions)
        found = estimate_values(groups, answers, np.full(questions, scale * np.sqrt(2)), bits=True)
        sure = found.certainty >= 0.95
        claimed += int(sure.sum())
        right += int(((found.value > 0.5) == (secret > 0.5))[sure].sum())
    assert claimed > 100
    assert right / claimed >= 0.95 - 2 * np.sqrt(0.95 * 0.05 / claimed)
