"""Clopper-Pearson bounds agree with the oracle, cover, and refuse what is no proportion; so does the audit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, binom

from deniable.attacks.dp_audit import audit, audit_outputs, play_with_outputs
from deniable.attacks.outcome import compute_interval, incomplete_beta, lower_bound, upper_bound
from deniable.errors import ParameterError


@settings(deadline=None)
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


def draw_noise(rng, size, scale=1.0):
    """Geometric noise of both signs: sound at epsilon 1 / scale for a count."""
    return rng.geometric(1 - np.exp(-1 / scale), size) - rng.geometric(1 - np.exp(-1 / scale), size)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("alike", [True, False])
def test_games_and_runs_of_batches_count_by_how_much_the_batches_differ(alike):
    """100 batches of 20 runs that all have one noise are 100 runs: no more is known of them, of the game neither."""
    beyond, counted = 0, []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        draws = [draw_noise(rng, 100 if alike else 2000) + world for world in (0, 1)]
        sides = [np.repeat(side, 20) if alike else side for side in draws]
        game = play_with_outputs(sides[0], sides[1], epsilon=1.0, batches=100)
        beyond += game.beyond
        counted += [game.wins.counted_as_one, audit_outputs(*sides, epsilon=1.0, batches=100).counted_as_one]
    assert beyond <= 4  # one end of a 95% interval: one of 40 expected at most
    assert min(counted) > 5 if alike else max(counted) < 4


def test_a_game_that_is_always_won_is_bounded_by_the_number_of_batches():
    sides = np.repeat([0.0, 1.0], 2000).reshape(2, 2000)
    low = play_with_outputs(*sides, epsilon=1.0, batches=100).wins.interval.low
    assert low == pytest.approx(lower_bound(100, 100, 0.975))


@pytest.mark.parametrize(("often", "found"), [(100, 3), (0, 0)])
def test_what_is_rare_on_both_sides_is_found_where_either_side_is_too_rare(often, found):
    """One run in 100 is moved far up or far down: 1 in 200 on each side, of 10,000 that test."""
    refuted = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        plain, moved = (draw_noise(rng, 20_000, 20).astype(float) for _ in range(2))
        far = rng.random(20_000) < (1 / often if often else 0)
        moved[far] += rng.choice([-1200, 1200], int(far.sum()))
        refuted += audit_outputs(plain, moved + 20, epsilon=1.0, delta=1e-4).violated
    assert refuted >= found if often else refuted == 0


def test_that_every_run_gave_the_same_output_is_told():
    rng = np.random.default_rng(4)
    same, other = np.full(400, 7.0), rng.normal(size=400)
    assert "every run of a world gave the same output" in str(audit_outputs(same, same + 1, epsilon=1.0))
    assert "remembered" in str(audit_outputs(same, same, epsilon=1.0))
    assert "every run of one world gave" in str(audit_outputs(same, other, epsilon=1.0))
    assert "same output" not in str(audit_outputs(other, other, epsilon=1.0))
