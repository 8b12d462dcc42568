"""Unbiased estimates with the variance they state: the right formula passes, one that is 30% off fails."""

from __future__ import annotations

import numpy as np
import pytest

from deniable.localdp.attributes import Attributes
from deniable.localdp.frequency.hadamard import Hadamard
from deniable.localdp.frequency.hashing import LocalHashing
from deniable.localdp.frequency.randomized_response import Direct, two_coins
from deniable.localdp.frequency.sketch import CountMeanSketch, HadamardSketch, Rappor
from deniable.localdp.frequency.subset import Subset
from deniable.localdp.frequency.unary import Unary
from deniable.localdp.likelihood_ratio import odds_below
from deniable.localdp.numeric.mechanisms import BoundedLaplace, Duchi, Hybrid, Window
from deniable.localdp.numeric.scale import Scale, mean_of, worst_variance
from seeded import SeededEntropy

PROTOCOLS = {
    "coins": two_coins(),
    "k-ary": Direct.calibrate(16, 1),
    "optimized unary": Unary.calibrate(16, 1),
    "symmetric unary": Unary.symmetric(16, 1),
    "local hashing": LocalHashing.calibrate(16, 1),
    "hadamard": Hadamard.calibrate(16, 1),
    "hadamard in blocks": Hadamard(16, 4, odds_below(2)),
    "subset": Subset.calibrate(16, 1),
}
RUNS, PEOPLE = 400, 400
POWER = 0.3


def answers_of(domain: int) -> np.ndarray:
    weights = 1 / np.arange(1, domain + 1)
    return np.repeat(np.arange(domain), np.round(PEOPLE * weights / weights.sum()).astype(int))


@pytest.mark.parametrize("name", PROTOCOLS)
def test_counts_are_unbiased_with_the_stated_variance(name):
    protocol = PROTOCOLS[name]
    entropy = SeededEntropy(7)
    answers = answers_of(protocol.domain)
    truth = np.bincount(answers, minlength=protocol.domain)
    found = [protocol.estimate(protocol.tally(protocol.randomize(answers, entropy)), len(answers)) for _ in range(RUNS)]
    counts = np.stack([one.counts for one in found])
    stated = np.stack([one.variances for one in found]).mean(axis=0)
    # Means over runs: each is normal with standard error sqrt(variance / RUNS).
    assert np.abs((counts.mean(axis=0) - truth) / np.sqrt(stated / RUNS)).max() < 4.5
    ratio = float((((counts - truth) ** 2).mean(axis=0) / stated).mean())
    tolerance = 4 * np.sqrt(2 / (RUNS * max(protocol.domain / 2, 1)))
    assert abs(ratio - 1) < tolerance < POWER
    for wrong in (1 - POWER, 1 / (1 - POWER)):
        assert abs(ratio / wrong - 1) > tolerance


@pytest.mark.parametrize("name", PROTOCOLS)
def test_the_variance_formula_agrees_with_the_variance_estimated_from_data(name):
    protocol = PROTOCOLS[name]
    answers = np.tile(np.arange(protocol.domain), 500)
    entropy = SeededEntropy(3)
    found = protocol.estimate(protocol.tally(protocol.randomize(answers, entropy)), len(answers))
    predicted = protocol.variance(1 / protocol.domain) * len(answers)
    assert float(found.variances.mean()) == pytest.approx(predicted, rel=0.03)


PER_USER = {  # variance per respondent of a rare answer at epsilon 1, as the literature's formulas give it
    "unary": (Unary.calibrate(1024, 1), 3.68),
    "symmetric unary": (Unary.symmetric(1024, 1), 3.92),
    "local hashing": (LocalHashing.calibrate(1024, 1), 3.69),
    "one-bit hadamard": (Hadamard(1024, 1, odds_below(1)), 4.68),
    "subset of 16": (Subset.calibrate(16, 1), 3.11),
    "subset of 1,024": (Subset.calibrate(1024, 1), 3.67),
    "k-ary of 4": (Direct.calibrate(4, 1), 1.60),
    "k-ary of 16": (Direct.calibrate(16, 1), 5.66),
    "k-ary of 1,024": (Direct.calibrate(1024, 1), 347),
}


@pytest.mark.parametrize("name", PER_USER)
def test_variances_per_respondent_are_those_of_the_literature(name):
    protocol, expected = PER_USER[name]
    assert protocol.variance() == pytest.approx(expected, rel=0.004)


ONE = Scale.between(-1, 1, "0.01")
NUMERIC = {
    "laplace": (BoundedLaplace.calibrate(ONE, 1), 8.0),
    "duchi": (Duchi.calibrate(ONE, 1), 4.68),
    "piecewise": (Window.piecewise(ONE, 1), 5.22),
    "hybrid": (Hybrid.calibrate(ONE, 1), 4.29),
}


@pytest.mark.parametrize("name", NUMERIC)
def test_numeric_variances_are_those_of_the_literature(name):
    protocol, expected = NUMERIC[name]
    assert worst_variance(protocol) * 4 == pytest.approx(expected, rel=0.002)


@pytest.mark.parametrize("value", [-1.0, -0.35, 0.0, 0.8])
@pytest.mark.parametrize("name", NUMERIC)
def test_numeric_readings_are_unbiased_with_the_stated_variance(name, value):
    protocol, _ = NUMERIC[name]
    count, entropy = 40_000, SeededEntropy(11)
    position = int(ONE.position_of(np.array([value]))[0])
    readings = protocol.positions(protocol.randomize(np.full(count, position), entropy))
    stated = protocol.variance(position)
    assert abs(readings.mean() - position) < 4.5 * np.sqrt(stated / count)
    spread = float(((readings - position) ** 2).mean() / stated)
    assert abs(spread - 1) < 0.06
    for wrong in (1 - POWER, 1 / (1 - POWER)):
        assert abs(spread / wrong - 1) > 0.06


def test_intervals_cover_the_truth_as_often_as_they_say():
    protocol, entropy, covered = Hybrid.calibrate(ONE, 1), SeededEntropy(5), 0
    values = np.random.default_rng(1).uniform(-0.5, 0.9, 500)
    for _ in range(300):
        low, high = mean_of(protocol, protocol.randomize(ONE.position_of(values), entropy)).interval(0.9)
        covered += low <= values.mean() <= high
    assert 0.85 <= covered / 300 <= 0.97


WORDS = [f"word{i}" for i in range(60)]


@pytest.mark.parametrize(
    "protocol",
    [
        CountMeanSketch.calibrate(2, hashes=64, width=256),
        HadamardSketch.calibrate(2, hashes=64, width=256),
        Rappor.calibrate(6, width=64, hashes=2, cohorts=32),
    ],
    ids=lambda p: p.name,
)
def test_strings_are_counted_without_bias_and_within_their_errors(protocol):
    entropy = SeededEntropy(2)
    weights = 1 / np.arange(1, 61)
    who = np.repeat(np.arange(60), np.round(4000 * weights / weights.sum()).astype(int))
    truth, strings = np.bincount(who, minlength=60), [WORDS[i] for i in who]
    runs = 12
    scores = []
    for _ in range(runs):
        found = protocol.estimate(protocol.tally(protocol.randomize(strings, entropy)), len(strings), WORDS)
        scores.append((found.counts - truth) / found.errors)
    scores = np.stack(scores)
    assert abs(scores.mean()) < 4.5 / np.sqrt(scores.size) + 0.05
    assert 0.9 < scores.std() < 1.1


@pytest.mark.parametrize("sampled", [True, False])
def test_several_attributes_are_each_counted_within_their_errors(sampled):
    entropy, rng = SeededEntropy(9), np.random.default_rng(4)
    columns = [rng.integers(0, size, 3000) ** 2 // size for size in (4, 9, 2)]
    plan = Attributes.calibrate([4, 9, 2], 2, 3000, sampled)
    scores = []
    for _ in range(60):
        for column, found in zip(columns, plan.estimate(plan.randomize(columns, entropy), 3000), strict=True):
            truth = np.bincount(column, minlength=len(found.counts))
            scores.extend((found.counts - truth) / found.errors)
    assert 0.9 < np.std(scores) < 1.1
    assert abs(np.mean(scores)) < 0.2


@pytest.mark.parametrize("sampled", [True, False])
def test_numbers_among_the_attributes_give_their_means(sampled):
    entropy, rng = SeededEntropy(9), np.random.default_rng(4)
    ward, hours = rng.integers(0, 3, 4000), rng.integers(4, 11, 4000)
    plan = Attributes.calibrate([3, Scale.between(0, 12)], 2, 4000, sampled)
    scores = []
    for _ in range(60):
        _, mean = plan.estimate(plan.randomize([ward, hours], entropy), 4000)
        scores.append((mean.value - hours.mean()) / mean.error)
    assert 0.7 < np.std(scores) < 1.25
    assert abs(np.mean(scores)) < 0.6


@pytest.mark.parametrize("buckets", [2, 3, 4, 8])
def test_hash_collisions_are_as_rare_as_the_estimate_assumes(buckets):
    from deniable.localdp.frequency.hashing import bucket_of

    seeds = np.random.default_rng(0).integers(0, 2**32, 400_000)
    for left, right in ((0, 1), (1, 2), (3, 1024), (7, 8), (500, 501), (0, 65_535)):
        same = bucket_of(np.full(len(seeds), left), seeds, buckets) == bucket_of(
            np.full(len(seeds), right), seeds, buckets
        )
        error = np.sqrt((1 / buckets) * (1 - 1 / buckets) / len(seeds))
        assert abs(same.mean() - 1 / buckets) < 4.5 * error
