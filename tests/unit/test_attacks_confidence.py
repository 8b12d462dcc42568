"""Clopper-Pearson bounds agree with the oracle, cover, and refuse what is no proportion; so does the audit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import beta, binom

from deniable.attacks.dp_audit import audit
from deniable.attacks.outcome import compute_interval, incomplete_beta, lower_bound, upper_bound
from deniable.errors import ParameterError


@given(st.integers(1, 10**6), st.floats(0, 1), st.sampled_from([0.9, 0.95, 0.999, 0.999999]))
def test_the_bounds_are_the_oracles(trials, share, confidence):
    successes = round(trials * share)
    low, high = lower_bound(successes, trials, confidence), upper_bound(successes, trials, confidence)
    if successes:
        assert low == pytest.approx(beta.ppf(1 - confidence, successes, trials - successes + 1), rel=1e-6)
    if successes < trials:
        assert high == pytest.approx(beta.ppf(confidence, successes + 1, trials - successes), rel=1e-6)
    assert 0 <= low <= successes / trials <= high <= 1


@pytest.mark.parametrize("p", [0.01, 0.3, 0.5, 0.97])
def test_the_interval_covers_at_every_probability(p):
    law = binom(40, p)
    covered = sum(law.pmf(k) for k in range(41) if compute_interval(k, 40).low <= p <= compute_interval(k, 40).high)
    assert covered >= 0.95
    narrow = sum(
        law.pmf(k) for k in range(41) if compute_interval(k, 40, 0.5).low <= p <= compute_interval(k, 40, 0.5).high
    )
    assert narrow < 0.95


def test_the_ends_of_the_incomplete_beta_function():
    assert incomplete_beta(2, 3, 0) == 0
    assert incomplete_beta(2, 3, 1) == 1


@pytest.mark.parametrize(("successes", "trials", "confidence"), [(-1, 5, 0.9), (6, 5, 0.9), (1, 5, 0), (1, 5, 1)])
def test_what_is_no_proportion_is_refused(successes, trials, confidence):
    with pytest.raises(ParameterError):
        lower_bound(successes, trials, confidence)


def zeros(runs):
    return np.zeros(runs)


@pytest.mark.parametrize(
    "claim", [{"epsilon": -1}, {"epsilon": 1, "delta": 1}, {"epsilon": 1, "runs": 10}, {"epsilon": 1, "confidence": 1}]
)
def test_an_audit_of_no_claim_is_refused(claim):
    with pytest.raises(ParameterError):
        audit(zeros, zeros, **claim)


@pytest.mark.parametrize("runs", [lambda n: np.zeros(n + 1), lambda n: ["yes"] * n, lambda n: np.zeros((n, 1, 1))])
def test_runs_that_are_not_numbers_are_refused(runs):
    with pytest.raises(ParameterError):
        audit(runs, zeros, epsilon=1)


def test_equal_outputs_prove_nothing_and_opposite_ones_everything():
    told = []
    assert audit(zeros, zeros, epsilon=0, progress=told.append).epsilon_bound == 0
    assert told == [0.5, 1.0]
    outcome = audit(zeros, np.ones, epsilon=5)
    assert outcome.violated
    assert "refuted" in str(outcome)
