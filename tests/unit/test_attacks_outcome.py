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


@pytest.mark.parametrize("guess", [0.0, 0.3, 0.6, 0.97])
def test_claims_about_a_few_are_compared_with_guesses_about_those_few(guess):
    """Who is sure of 4 people in 30, and right, has gained them, however well everybody can be guessed."""
    outcome = Outcome("x", "s", Rate(4, 30), guess, precision=Rate(4, 4), claimed=4)
    assert outcome.excess == pytest.approx(4 / 30)
    assert outcome.baseline_share == pytest.approx(guess * 4 / 30)
    assert outcome.as_dict()["baseline"] == {"share": outcome.baseline_share}
    assert outcome.trusted == ()


def test_claims_that_are_right_no_more_often_than_guesses_add_nothing():
    assert Outcome("x", "s", Rate(6, 100), 0.6, claimed=10).excess == 0.0
    assert Outcome("x", "s", Rate(8, 100), 0.6, claimed=10).excess == pytest.approx(0.05)  # half of what was left
    assert Outcome("x", "s", Rate(0, 100), 0.6, claimed=0).excess == 0.0
    assert Outcome("x", "s", Rate(60, 100), 0.2, claimed=100).excess == pytest.approx(0.5)
    with pytest.raises(ParameterError, match="claimed"):
        Outcome("x", "s", Rate(5, 100), 0.0, claimed=4)


def test_of_nobody_who_was_attacked_nothing_is_said_to_be_found_by_chance():
    assert Outcome("x", "Knowing all", Rate(0, 0), 1.0).sentence == "Knowing all exposes no one: nobody was attacked."


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
