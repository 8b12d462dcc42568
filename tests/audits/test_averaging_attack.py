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
    memory = client.Memory(most_answers=4)
    return lambda answer: memory.response("diagnosis", RECIPE, answer)


def test_averaging_names_everybody_who_answers_with_fresh_noise():
    assert attacked(fresh) == 1.0


def test_averaging_against_memoized_answers_gains_nothing_over_one_response():
    # One response names its sender with probability p = 0.475: 49 of 60 or more with probability 5e-8.
    assert attacked(memoized) < float(PROTOCOL.p) + 0.335


def test_the_whole_memoized_sequence_is_as_private_as_its_first_response():
    memory = client.Memory()
    told = {json.dumps(memory.response("q", RECIPE, 2)) for _ in range(50)}
    assert len(told) == 1


def test_each_time_is_paid_for_until_all_responses_are_told():
    memory = client.Memory(name_period=lambda: "may")
    told = [memory.response("q", RECIPE, turn % 2)[0] for turn in range(20)]
    assert memory.state["spent"] == {"may": pytest.approx(4 * epsilon_of(PROTOCOL.odds))}  # 4 answers, 4 responses
    assert told == [told[0], told[1]] * 10


def test_a_months_allowance_is_kept_on_the_client_and_renewed_with_its_own_months():
    months = ["may"]
    memory = client.Memory(allowance=1.5, name_period=lambda: months[-1])
    memory.response("a", RECIPE, 0)
    with pytest.raises(client.Refused, match=r"told 1 of 1\.5"):
        memory.response("b", RECIPE, 0)
    months.append("june")
    memory.response("b", RECIPE, 0)


def test_memory_survives_on_disk_readable_by_its_owner_only_and_without_the_answer(tmp_path):
    path = tmp_path / "answers.json"
    first = client.Memory(str(path)).response("q", RECIPE, 3)
    assert all(client.Memory(str(path)).response("q", RECIPE, 3) == first for _ in range(20))
    assert path.stat().st_mode & 0o077 == 0
    (drawn,) = json.loads(path.read_text())["questions"]["q"]["drawn"].values()
    assert set(drawn) == {"told", "responses"}
    assert len(drawn["responses"]) == 4  # for every answer, none of them marked


def test_rappor_reports_differ_but_their_average_only_shows_the_permanent_response():
    protocol = Rappor.calibrate(2, width=16, hashes=1, cohorts=1)
    recipe = serialization.recipe(protocol)
    permanent = client.randomize(recipe, "secret.example")
    reports = [client.rappor_report(recipe, permanent)[1] for _ in range(400)]
    assert len(set(reports)) > 300
    rates = [sum(int(r, 16) >> (8 * (1 - p // 8) + p % 8) & 1 for r in reports) / 400 for p in range(16)]
    settled = [int(rate > 0.5) for rate in rates]
    packed = bytes.fromhex(permanent[1])
    assert settled == [packed[p >> 3] >> (p & 7) & 1 for p in range(16)]
    # What averaging reveals is the permanent response, whose own epsilon is the lifetime's.
    assert 1.99 < epsilon_of(protocol.odds) <= 2
    with pytest.raises(client.Refused, match="RAPPOR"):
        client.Memory().response("url", recipe, "secret.example")
