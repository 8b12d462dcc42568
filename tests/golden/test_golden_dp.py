"""The worked examples of differential privacy: sensitivities, Laplace, composition, randomized response, the game."""

import math
from fractions import Fraction

import numpy as np
import pytest

from deniable.attacks.dp_audit import audit
from deniable.dp.accounting import (
    ComposedEvent,
    LaplaceEvent,
    NoOpEvent,
    ParallelEvent,
    PureAccountant,
    PureEvent,
    ThresholdEvent,
    build_randomized_event,
    calibrate_laplace,
    pure_cost,
)
from deniable.dp.mechanisms import LaplaceMechanism
from deniable.errors import ParameterError
from deniable.policy.budget import ApproxDP, PureDP
from seeded import SeededEntropy

TABLE = [(sex, age, salary) for sex in "FM" for age in (25, 35, 45) for salary in (0, 40, 100)]


def changes(query, add=(("M", 35, 100), ("F", 25, 0))):
    """The largest L1 change of a vector of numbers when one tuple is added or removed."""
    here = np.array(query(TABLE))
    neighbors = [[*TABLE, row] for row in add] + [TABLE[:i] + TABLE[i + 1 :] for i in range(len(TABLE))]
    return max(float(np.abs(np.array(query(table)) - here).sum()) for table in neighbors)


N = len(TABLE)
SENSITIVITIES = {
    "count": (lambda t: [len(t)], 1),
    "count where": (lambda t: [sum(s == "M" and a > 30 for s, a, _ in t)], 1),
    "fraction, n public": (lambda t: [sum(s == "M" for s, *_ in t) / N], 1 / N),
    "group by": (lambda t: [sum(s == g for s, *_ in t) for g in "FM"], 1),
    "three arbitrary counts": (lambda t: [len(t), sum(a > 0 for _, a, _ in t), sum(c >= 0 for *_, c in t)], 3),
    "insensitive": (lambda t: [3], 0),
}


@pytest.mark.parametrize(("query", "sensitivity"), SENSITIVITIES.values(), ids=SENSITIVITIES.keys())
def test_l1_sensitivity_of_the_queries(query, sensitivity):
    assert changes(query) == pytest.approx(sensitivity)


def test_the_largest_salary_moves_by_the_width_of_its_bounds():
    """One tuple in an otherwise empty table: from the lower bound to the upper."""
    low, high = 0, 100
    assert max([low, 100]) - low == high - low
    assert calibrate_laplace(PureDP(1), high - low) == 100


def test_an_insensitive_query_needs_no_noise_and_no_budget():
    assert pure_cost(NoOpEvent()).amount == 0
    with pytest.raises(ParameterError, match="needs no noise"):
        calibrate_laplace(PureDP(1), 0)


def test_laplace_scale_is_sensitivity_over_epsilon_for_each_of_k_numbers():
    mechanism = LaplaceMechanism.within(PureDP("1/2"), 3)
    assert mechanism.scale == 6
    noise = mechanism.release(np.zeros(40_000, dtype=np.int64), SeededEntropy(1))
    assert noise.std() == pytest.approx(math.sqrt(2) * 6, rel=0.03)
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 0.03


def test_sequential_composition_adds_epsilons_and_deltas():
    event = ComposedEvent((PureEvent("0.3"), LaplaceEvent(5, 1), ThresholdEvent("1e-6"), ThresholdEvent("2e-6")))
    assert PureAccountant().compose(event).compute_spent() == ApproxDP("0.5", "3e-6")


def test_on_disjoint_parts_the_worst_part_counts():
    event = ParallelEvent((PureEvent("0.3"), PureEvent("0.5"), PureEvent("0.2")))
    assert PureAccountant().compose(event).compute_spent() == PureDP("0.5")


DESIGNS = {
    "two coins": ([["3/4", "1/4"], ["1/4", "3/4"]], math.log(3)),
    "three envelopes": ([["2/3", "1/3"], ["1/3", "2/3"]], math.log(2)),
    "Warner": ([["2/3", "1/3"], ["1/3", "2/3"]], math.log(2)),
}


@pytest.mark.parametrize(("table", "epsilon"), DESIGNS.values(), ids=DESIGNS.keys())
def test_randomized_response_has_its_epsilon_from_its_probabilities(table, epsilon):
    spent = PureAccountant().compose(build_randomized_event(table)).epsilon()
    assert epsilon <= spent < epsilon + 1e-12


def test_averaging_shrinks_the_noise_by_the_square_root_of_the_repetitions():
    mechanism, t = LaplaceMechanism(20), 25
    answers = mechanism.release(np.zeros(4000 * t, dtype=np.int64), SeededEntropy(2)).reshape(4000, t)
    assert answers.mean(axis=1).std() == pytest.approx(answers.std() / math.sqrt(t), rel=0.05)
    assert PureAccountant().compose(mechanism.event, t).compute_spent() == PureDP(Fraction(t, 20))


def test_no_player_of_the_game_has_better_odds_than_e_to_the_epsilon():
    """Both neighbors and one output: the best guess wins with odds close to e^epsilon, and not above."""
    mechanism = LaplaceMechanism.within(PureDP("0.5"), 1)
    left, right = (mechanism.release(np.full(200_000, value), SeededEntropy(value + 3)) for value in (0, 1))
    for guess in range(-6, 8):
        ours, theirs = int((right >= guess).sum()), int((left >= guess).sum())
        assert ours / theirs <= math.exp(0.5) * 1.05
    assert (right >= 1).sum() / (left >= 1).sum() == pytest.approx(math.exp(0.5), rel=0.02)


def test_one_random_row_has_small_statistical_distance_and_no_privacy():
    generator = np.random.default_rng(4)
    full, short = (lambda runs: generator.integers(0, 50, runs)), (lambda runs: generator.integers(0, 49, runs))
    outcome = audit(full, short, epsilon=1, runs=20_000)
    assert outcome.violated
    assert outcome.delta_bound < 1 / 50
