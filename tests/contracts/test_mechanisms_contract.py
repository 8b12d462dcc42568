"""One suite over all mechanisms: extremes, prices, accuracies, refusals."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest

from deniable.attacks.outcome import lower_bound, upper_bound
from deniable.dp.accounting import (
    PLDAccountant,
    PureAccountant,
    ZCDPAccountant,
    from_dict,
    pure_cost,
    to_dict,
    zcdp_cost,
)
from deniable.dp.mechanisms import (
    AboveThreshold,
    ExponentialMechanism,
    GaussianMechanism,
    KeyThreshold,
    LaplaceMechanism,
    NoisyMaxMechanism,
    QuantileMechanism,
)
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, PureDP
from seeded import SeededEntropy

MEDIAN = (Fraction(1, 2),)
PURE = {
    "laplace": lambda budget: LaplaceMechanism.within(budget, 3),
    "exponential": lambda budget: ExponentialMechanism.within(budget, 2),
    "exponential, monotonic": lambda budget: ExponentialMechanism.within(budget, 2, monotonic=True),
    "noisy max": lambda budget: NoisyMaxMechanism.within(budget, 2),
    "quantile": lambda budget: QuantileMechanism.within(budget, MEDIAN, 0, 100),
    "quantiles": lambda budget: QuantileMechanism.within(budget, ("1/4", "1/2", "3/4"), -5, 5, rows_per_unit=2),
    "laplace keys": lambda budget: KeyThreshold.within(budget, "1e-6", 3),
    "sparse vector": lambda budget: AboveThreshold.within(budget, 10, 2),
    "sparse vector, thrice": lambda budget: AboveThreshold.within(budget, 10, monotonic=True, times=3),
}
GAUSSIAN = {
    "gaussian": lambda budget: GaussianMechanism.within(budget, 2),
    "gaussian keys": lambda budget: KeyThreshold.within(budget, "1e-6", 3, gaussian=True),
}
ALL = {name: build(PureDP(1)) for name, build in PURE.items()} | {
    name: build(ZCDP("1/8")) for name, build in GAUSSIAN.items()
}
SELECTIONS = ("exponential", "exponential, monotonic", "noisy max")


@pytest.fixture(params=ALL.values(), ids=ALL.keys())
def mechanism(request):
    return request.param


def flat(outcome) -> np.ndarray:
    """An outcome as one array of integers."""
    return np.concatenate([np.atleast_1d(part) for part in (outcome if isinstance(outcome, tuple) else (outcome,))])


@pytest.mark.parametrize("name", PURE)
@pytest.mark.parametrize("epsilon", [Fraction(1, 10**6), Fraction(1, 3), 1, 50])
def test_the_event_costs_exactly_the_epsilon_asked(name, epsilon):
    event = PURE[name](PureDP(epsilon)).event
    assert pure_cost(event).amount == epsilon
    assert PureAccountant().supports(event)
    assert ZCDPAccountant().supports(event)
    assert PLDAccountant().supports(event)


@pytest.mark.parametrize("name", PURE | GAUSSIAN)
@pytest.mark.parametrize("rho", [Fraction(1, 10**6), Fraction(1, 7), Fraction(1, 2)])
def test_the_event_costs_nearly_the_rho_asked_and_never_more(name, rho):
    cost = zcdp_cost((PURE | GAUSSIAN)[name](ZCDP(rho)).event)
    assert rho * Fraction(999, 1000) <= cost.amount <= rho


def test_the_event_survives_the_ledger(mechanism):
    assert from_dict(to_dict(mechanism.event)) == mechanism.event


def test_a_mechanism_is_a_frozen_value(mechanism):
    assert hash(mechanism) == hash(dataclasses.replace(mechanism))
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(mechanism, dataclasses.fields(mechanism)[0].name, 1)


def test_the_sensitivity_is_positive_and_named(mechanism):
    assert mechanism.sensitivity > 0


def test_no_value_of_the_data_makes_a_release_fail(mechanism):
    ends = np.iinfo(np.int64)
    for values in ([0], [ends.min, ends.max], [ends.max] * 3, [ends.min] * 3, [0] * 1000):
        assert flat(mechanism.release(np.array(values, dtype=np.int64), SeededEntropy(1))).size >= 0
        assert flat(mechanism.release([value * 2**70 for value in values], SeededEntropy(1))).size >= 0


def test_empty_values_are_taken_wherever_something_can_be_said(mechanism):
    empty = np.array([], dtype=np.int64)
    if isinstance(mechanism, ExponentialMechanism | NoisyMaxMechanism):
        with pytest.raises(ParameterError, match="no candidate"):
            mechanism.release(empty)
    elif isinstance(mechanism, QuantileMechanism):
        assert len(mechanism.release(empty)) == len(mechanism.quantiles)
    else:
        assert flat(mechanism.release(empty)).size == 0
        assert flat(mechanism.release([])).size == 0


@pytest.mark.parametrize(
    "values", [np.array([0.5]), [1.0], ["1"], [True], [None], np.array([[1, 2]]), np.array([True])], ids=repr
)
def test_what_is_not_a_list_of_integers_is_refused(mechanism, values):
    with pytest.raises(ParameterError) as refusal:
        mechanism.release(values)
    assert "0.5" not in str(refusal.value)


@pytest.mark.parametrize("alpha", [0, 1, -0.1, 2])
def test_an_accuracy_needs_a_probability(mechanism, alpha):
    with pytest.raises(ParameterError):
        mechanism.accuracy(alpha)


def test_an_accuracy_grows_with_confidence_and_size(mechanism):
    assert 0 <= mechanism.accuracy(0.5, 10) <= mechanism.accuracy(0.01, 10) <= mechanism.accuracy(0.01, 1000)


def error(mechanism, seed: int) -> int:
    """The error of one release of the kind `accuracy` speaks of, on values where errors are likely."""
    entropy = SeededEntropy(seed)
    if isinstance(mechanism, LaplaceMechanism | GaussianMechanism):
        return int(np.abs(mechanism.release(np.zeros(5, dtype=np.int64), entropy)).max())
    if isinstance(mechanism, ExponentialMechanism | NoisyMaxMechanism):
        scores = np.array([0, -mechanism.accuracy(0.1, 5) - 1, -1, -2, -3])
        return -int(scores[mechanism.release(scores, entropy)])
    if isinstance(mechanism, QuantileMechanism):
        values = np.arange(mechanism.lower, mechanism.upper + 1).repeat(2)
        drawn = mechanism.release(values, entropy)
        return max(rank_error(values, o, q) for o, q in zip(drawn, mechanism.quantiles, strict=True))
    if isinstance(mechanism, KeyThreshold):
        shown, counts = mechanism.release(np.full(5, 10**6), entropy)
        return int(np.abs(counts - 10**6).max()) if len(shown) == 5 else 10**6
    reach = mechanism.accuracy(0.1, 5)
    found = mechanism.release(np.full(5, mechanism.threshold - reach - 1), entropy)
    return reach + 1 if found.size else 0


def rank_error(values: np.ndarray, o: int, q: Fraction) -> int:
    below, above = int((values < o).sum()), int((values > o).sum())
    return int(max(below - q * values.size, above - (1 - q) * values.size, 0))


def test_the_accuracy_covers_and_is_not_absurdly_wide(mechanism):
    runs, alpha = 600, 0.1
    reach = mechanism.accuracy(alpha, 5)
    errors = np.array([error(mechanism, seed) for seed in range(runs)])
    wrong = int((errors > reach).sum())
    assert lower_bound(wrong, runs, 0.9999) <= alpha
    if isinstance(mechanism, LaplaceMechanism | GaussianMechanism | KeyThreshold):
        narrower = int((errors > 0.7 * reach).sum())  # thirty per cent less would not cover
        assert lower_bound(narrower, runs, 0.9999) > alpha
    assert upper_bound(wrong, runs, 0.9999) < 1


def test_sums_beyond_64_bits_are_exact_and_int64_is_clamped_not_wrapped():
    mechanism = LaplaceMechanism(Fraction(1, 1000))
    assert mechanism.release([2**90, -(2**90)], SeededEntropy(1)).tolist() == [2**90, -(2**90)]
    ends, noisy = np.iinfo(np.int64), LaplaceMechanism(Fraction(10**6))
    high = noisy.release(np.full(2000, ends.max), SeededEntropy(2))
    low = noisy.release(np.full(2000, ends.min), SeededEntropy(3))
    assert high.min() > 0
    assert high.max() == ends.max
    assert low.max() < 0
    assert low.min() == ends.min


def test_noise_for_fewer_groups_than_declared_is_refused():
    with pytest.raises(ParameterError, match="fewer groups"):
        KeyThreshold(LaplaceMechanism(Fraction(1), Fraction(2)), Fraction(1, 10**6), 3)
    with pytest.raises(ParameterError, match="fewer groups"):
        KeyThreshold(GaussianMechanism(Fraction(9), Fraction(2)), Fraction(1, 10**6), 3)


@pytest.mark.parametrize(
    "build",
    [
        lambda: LaplaceMechanism(0),
        lambda: LaplaceMechanism(2**53),
        lambda: LaplaceMechanism(1, 0),
        lambda: GaussianMechanism(0),
        lambda: GaussianMechanism(2**105),
        lambda: ExponentialMechanism(0),
        lambda: ExponentialMechanism(2**60),
        lambda: NoisyMaxMechanism(1, -1),
        lambda: QuantileMechanism((), 0, 1, 1),
        lambda: QuantileMechanism((2,), 0, 1, 1),
        lambda: QuantileMechanism(MEDIAN, 1, 0, 1),
        lambda: QuantileMechanism(MEDIAN, 0, 2**61, 1),
        lambda: QuantileMechanism(MEDIAN, 0, 1, 1, rows_per_unit=0),
        lambda: KeyThreshold.within(PureDP(1), 0),
        lambda: KeyThreshold.within(PureDP(1), 1),
        lambda: KeyThreshold.within(PureDP(1), "1e-6", 0),
        lambda: AboveThreshold(0, 0),
        lambda: AboveThreshold(0, 1, times=0),
        lambda: AboveThreshold.within(PureDP(1), 0, times=0),
    ],
)
def test_an_impossible_mechanism_is_refused_when_it_is_made(build):
    with pytest.raises(ParameterError):
        build()
