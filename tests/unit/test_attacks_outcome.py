"""Outcomes: rates with intervals, what the release adds, and when not to trust them."""

import time

import pytest

from deniable.attacks.outcome import Deadline, Outcome, Rate
from deniable.errors import ParameterError, Stopped


def test_excess_is_what_the_release_adds_to_the_control():
    outcome = Outcome("x", "Knowing all", Rate(90, 100), 0.01, Rate(80, 100), Rate(90, 95))
    assert outcome.excess == pytest.approx(0.5)
    assert outcome.per_thousand == 900
    assert "exposes 900 of 1,000" in outcome.sentence
    assert "right 95%" in outcome.sentence
    assert outcome.trusted == ()


def test_without_a_control_the_baseline_is_the_floor():
    assert Outcome("x", "s", Rate(60, 100), Rate(20, 100)).excess == pytest.approx(0.5)


def test_an_attack_that_does_worse_than_its_control_or_guessing_says_so():
    assert "control" in Outcome("x", "s", Rate(1, 100), 0.0, Rate(50, 100)).trusted[0]
    assert "guessing" in Outcome("x", "s", Rate(1, 100), 0.5).trusted[0]


def test_a_total_leak_does_not_divide_by_zero():
    assert Outcome("x", "s", Rate(100, 100), 1.0).excess == 0.0


def test_few_trials_are_told():
    assert "only 4 people" in Outcome("x", "s", Rate(4, 4), 0.0).trusted[0]
    assert Rate(0, 0).interval.high == 1.0


def test_outcomes_are_plain_values():
    told = Outcome("x", "s", Rate(1, 40), Rate(1, 40), Rate(0, 40), Rate(1, 1), {"n": 3}, ("careful",)).as_dict()
    assert told["exposed"]["share"] == 0.025
    assert told["figures"] == {"n": 3}
    assert "careful" in told["warnings"]


def test_more_successes_than_trials_are_refused():
    with pytest.raises(ParameterError):
        Rate(3, 2)


def test_a_deadline_stops():
    deadline = Deadline(0.001)
    time.sleep(0.005)
    with pytest.raises(Stopped, match="seconds"):
        deadline.check()
    assert Deadline(None).left is None
    with pytest.raises(ParameterError):
        Deadline(0)
