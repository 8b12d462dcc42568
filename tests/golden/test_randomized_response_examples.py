"""The worked examples of randomized response, by their own figures."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from deniable.localdp.frequency.randomized_response import Direct, three_envelopes, two_coins, warner
from deniable.localdp.frequency.sketch import CountMeanSketch
from deniable.localdp.likelihood_ratio import epsilon_of
from deniable.localdp.numeric.mechanisms import BoundedLaplace
from deniable.localdp.numeric.scale import Scale


@pytest.mark.parametrize(
    ("design", "yes_yes", "yes_no", "epsilon", "line"),
    [
        (two_coins(), Fraction(3, 4), Fraction(1, 4), math.log(3), lambda a: 2 * a - 0.5),
        (three_envelopes(), Fraction(2, 3), Fraction(1, 3), math.log(2), lambda a: 3 * a - 1),
        (warner(2, 1), Fraction(2, 3), Fraction(1, 3), math.log(2), lambda a: 3 * a - 1),
    ],
)
def test_designs_for_one_bit(design, yes_yes, yes_no, epsilon, line):
    assert (design.p, design.q) == (yes_yes, yes_no)
    assert epsilon_of(design.odds) == pytest.approx(epsilon, abs=1e-12)
    for yes in (20, 35, 50, 75):
        found = design.estimate(np.array([100 - yes, yes]), 100)
        assert found.shares[1] == pytest.approx(line(yes / 100), abs=1e-12)


def test_two_coins_at_a_fifth_of_a_hundred_people_expects_35_yes():
    design = two_coins()
    assert design.q + (design.p - design.q) * Fraction(1, 5) == Fraction(35, 100)
    assert design.estimate(np.array([65, 35]), 100).counts[1] == pytest.approx(20)


def test_job_codes_come_back_to_the_cent_of_a_person():
    protocol = Direct.calibrate(4, 1)
    assert float(protocol.p) == pytest.approx(0.4754, abs=5e-5)
    found = protocol.estimate(np.array([1057, 990, 1828, 1594]), 5469)
    assert [f"{count:.2f}" for count in found.counts] == ["334.77", "111.80", "2900.58", "2121.85"]


def test_numeric_answers_get_laplace_noise_of_the_range_over_epsilon():
    protocol = BoundedLaplace.calibrate(Scale.between(20, 70), "0.5")
    assert protocol.noise_scale == 100  # (70 - 20) / 0.5 in steps of 1
    clamped = BoundedLaplace.calibrate(Scale.between(20, 70), "0.5", clamped=True)
    (answers,) = clamped.randomize(np.full(200, 10))
    assert answers.min() >= 0
    assert answers.max() <= 50


@pytest.mark.parametrize("epsilon", [1, 2, 4, 8])
def test_the_count_mean_sketch_flips_with_one_over_one_plus_e_to_the_half_epsilon(epsilon):
    flip = CountMeanSketch.calibrate(epsilon).flip / 65536
    exact = 1 / (1 + math.exp(epsilon / 2))
    assert exact <= flip < exact + 1 / 65536
