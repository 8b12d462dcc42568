"""The averaging attack: asking again and again undoes fresh noise, and learns nothing from memoized answers."""

from __future__ import annotations

import json

import pytest

from deniable.localdp import client, serialization
from deniable.localdp.frequency.randomized_response import Direct
from deniable.localdp.frequency.sketch import Rappor
from deniable.localdp.likelihood_ratio import epsilon_of

PROTOCOL = Direct.calibrate(4, 1)
RECIPE = serialization.recipe(PROTOCOL)
ROUNDS, PEOPLE = 260, 60
"""So many rounds that the likeliest response is another's with probability 3e-8, for any of 60 people."""


def guess(responses: list[int]) -> int:
    """The likeliest answer behind repeated responses: the intruder's best."""
    return max(range(4), key=responses.count)


def attacked(ask) -> float:
    """How many of some people, each with a secret answer, the intruder names after many rounds."""
    named = 0
    for person in range(PEOPLE):
        secret = person % 4
        asked = ask()
        named += guess([asked(secret)[0] for _ in range(ROUNDS)]) == secret
    return named / PEOPLE


def fresh():
    return lambda answer: client.randomize(RECIPE, answer)


def memoized():
    memory = client.Memory()
    return lambda answer: memory.response("diagnosis", RECIPE, answer, 1.0)


def test_averaging_names_everybody_who_answers_with_fresh_noise():
    assert attacked(fresh) == 1.0


def test_averaging_against_memoized_answers_gains_nothing_over_one_response():
    # One response names its sender with probability p = 0.475: 49 of 60 or more with probability 5e-8.
    assert attacked(memoized) < float(PROTOCOL.p) + 0.335


def test_the_whole_memoized_sequence_is_as_private_as_its_first_response():
    memory = client.Memory()
    told = {json.dumps(memory.response("q", RECIPE, 2, 1.0)) for _ in range(50)}
    assert len(told) == 1


def test_a_new_answer_is_drawn_afresh_and_paid_for_until_the_limit():
    memory = client.Memory(most_answers=2, allowance=2.0)
    memory.response("q", RECIPE, 0, 1.0, "may")
    memory.response("q", RECIPE, 1, 1.0, "may")
    memory.response("q", RECIPE, 0, 1.0, "june")  # remembered: free, whatever the period
    with pytest.raises(client.Refused, match="different ways"):
        memory.response("q", RECIPE, 2, 1.0, "june")


def test_a_periods_allowance_is_kept_on_the_client_and_renewed_with_the_period():
    memory = client.Memory(allowance=1.5)
    memory.response("a", RECIPE, 0, 1.0, "may")
    with pytest.raises(client.Refused, match="spent"):
        memory.response("b", RECIPE, 0, 1.0, "may")
    memory.response("b", RECIPE, 0, 1.0, "june")


def test_memory_survives_on_disk_readable_by_its_owner_only(tmp_path):
    path = tmp_path / "answers.json"
    first = client.Memory(str(path)).response("q", RECIPE, 3, 1.0)
    assert all(client.Memory(str(path)).response("q", RECIPE, 3, 1.0) == first for _ in range(20))
    assert path.stat().st_mode & 0o077 == 0


def test_rappor_reports_differ_but_their_average_only_shows_the_permanent_response():
    protocol = Rappor.calibrate(2, width=16, hashes=1, cohorts=1)
    recipe, memory = serialization.recipe(protocol), client.Memory()
    reports = [memory.response("url", recipe, "secret.example", 2.0)[1] for _ in range(400)]
    assert len(set(reports)) > 300
    rates = [sum(int(r, 16) >> (8 * (1 - p // 8) + p % 8) & 1 for r in reports) / 400 for p in range(16)]
    settled = [int(rate > 0.5) for rate in rates]
    (permanent,) = json.loads(json.dumps(memory._state))["responses"]["url"].values()
    packed = bytes.fromhex(permanent[1])
    assert settled == [packed[p >> 3] >> (p & 7) & 1 for p in range(16)]
    # What averaging reveals is the permanent response, whose own epsilon is the lifetime's.
    assert 1.99 < epsilon_of(protocol.odds) <= 2
