"""The auditor against broken mechanisms: each is refuted, no sound twin is, and bounds hold as often as they say.

Seeds are fixed, so a verdict is the same in every run. `make test-slow` audits 500 sound runs at confidence 0.95.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from broken_mechanisms import BROKEN, STEP, count, noise
from deniable.assess.mechanism_audit import Claim, Subject, audit_subject, make_question_subject
from deniable.assess.outputs import tabulate_outputs
from deniable.attacks.dp_audit import audit, audit_outputs, compute_power, find_worst_neighbors
from deniable.errors import ParameterError
from deniable.policy.budget import PureDP

SEED = 11
SURE = 1 - 1e-9
NAMES = [kind.name for kind in BROKEN]


def run_kind(kind, broken, seed=SEED, confidence=0.999):
    rng = np.random.default_rng(seed)
    left, right = (np.asarray(kind.run(world, kind.runs, rng, broken)).reshape(kind.runs, -1) for world in (0, 1))
    return audit_outputs(left, right, epsilon=kind.epsilon, delta=kind.delta, confidence=confidence)


def test_there_are_many_and_no_name_stands_twice():
    assert len(set(NAMES)) == len(BROKEN) >= 60


@pytest.mark.parametrize("kind", BROKEN, ids=NAMES)
def test_a_broken_mechanism_is_refuted(kind):
    found = run_kind(kind, broken=True)
    assert found.violated, str(found)
    assert found.delta_bound > kind.delta


@pytest.mark.parametrize("kind", BROKEN[::4], ids=NAMES[::4])
def test_its_sound_twin_is_not(kind):
    found = run_kind(kind, broken=False)
    assert not found.violated, str(found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", BROKEN, ids=NAMES)
def test_no_sound_twin_is_refuted(kind):
    assert not run_kind(kind, broken=False).violated


@pytest.mark.slow
def test_of_500_sound_runs_no_more_are_accused_than_the_confidence_allows():
    quick = [kind for kind in BROKEN if kind.runs <= 6_000]
    accused = sum(run_kind(quick[seed % len(quick)], False, seed, 0.95).violated for seed in range(500))
    assert accused <= 49  # 25 are expected at most; 50 or more have a chance of 2e-6


def test_all_three_bounds_hold_for_gaussian_noise_and_come_near_the_truth():
    rng = np.random.default_rng(1)

    def runs(value, n):
        return np.round(1000 * (value + rng.normal(0, 1, n)))

    found = audit(lambda n: runs(0, n), lambda n: runs(1, n), epsilon=1, delta=0.2, mu=1, runs=40_000)
    # delta(epsilon) of mu = 1 (Balle and Wang 2018): Phi(-eps/mu + mu/2) - e^eps Phi(-eps/mu - mu/2) = 0.1269 at 1.
    assert 0.9 < found.mu_bound <= 1
    assert 0.09 < found.delta_bound <= 0.1269
    assert not found.violated
    assert audit(lambda n: runs(0, n), lambda n: runs(1.4, n), epsilon=1, mu=1, runs=10_000).violated


def test_the_power_is_what_so_many_runs_find():
    """Randomized response at the epsilon that is named is found about every second time, closer to the claim seldom."""
    power = compute_power(5_000, 1.0, 0.0, 1 - 0.001 * 0.8 / 2)
    rng = np.random.default_rng(3)

    def found(epsilon):
        keep = 1 / (1 + math.exp(-epsilon))
        sides = [np.where(rng.random((20, 10_000)) < keep, world, 1 - world) for world in (0, 1)]
        return np.mean([audit_outputs(a[:, None], b[:, None], epsilon=1).violated for a, b in zip(*sides, strict=True)])

    assert 0.2 < found(power.epsilon) < 0.9
    assert found(1 + (power.epsilon - 1) / 4) < 0.2
    assert compute_power(50_000, 1.0, 0.0, 0.999).leak < power.leak < 0.01
    assert compute_power(100, 20.0, 0.0, 0.999).leak == math.inf


def test_the_worst_neighbors_are_found_among_many():
    """Ten pairs, of which one moves the sum by three times what was priced."""
    rng = np.random.default_rng(2)

    def sample(place, runs):
        moved = 3 if place == 7 else 1
        return tuple((count(moved * world) + noise(rng, 1, runs))[:, None] for world in (0, 1))

    assert find_worst_neighbors(sample, 10, epsilon=1, runs=400) == 7


def test_a_subject_is_audited_on_its_worst_pair_and_says_what_it_could_not_see():
    rng = np.random.default_rng(4)
    subject = Subject(
        "sums", lambda value, runs: STEP * value + noise(rng, 1, runs), ((0, 1), (0, 4), (0, -1)), ("a", "b", "c")
    )
    told = []
    found = audit_subject(subject, Claim("sum", 1, runs=4_000), told.append)
    assert found.failed
    assert "the worst of 3 pairs: b" in found.neighbors
    assert told[-1] == 1.0
    assert told == sorted(told)
    assert any("other than the 3 pairs" in one for one in found.blind)


def test_outputs_of_any_kind_become_numbers():
    left, right, names = tabulate_outputs([{"F": 1, "M": None}, {"F": 2}], [{"F": "x", "K": [3, 4]}])
    inside = tuple(f"output F {each}" for each in ("first", "last", "length", "letters"))
    assert names == ("output F", *inside, "output K.1", "output K.2", "output M", "output entries")
    assert left.shape == (2, 9)
    assert right.shape == (1, 9)
    assert np.isnan(left[0, 7])
    assert right[0, 5:7].tolist() == [3, 4]
    assert {"output", "output lines 'a'", "output lines 'b'"} <= set(tabulate_outputs(["a\nb\na"], ["c"])[2])
    with pytest.raises(ParameterError, match="numbers and texts"):
        tabulate_outputs([object()], [object()])


def test_whole_numbers_keep_their_lowest_digits_and_texts_the_numbers_inside_them():
    for one, other in (
        ([[2**60]], [[2**60 + 1]]),
        (np.array([2**60]), np.array([2**60 + 1])),
        (["1e9"], [10**400 + 1]),
    ):
        left, right, names = tabulate_outputs(one, other)
        assert names[-1].endswith("beyond 53 bits")
        assert left[0, -1] != right[0, -1]
    left, _, names = tabulate_outputs(["mean 3.25 of 1e2 rows"], ["none"])
    found = dict(zip(names, left[0].tolist(), strict=True))
    assert (found["output number 1"], found["output number 2"]) == (3.25, 100)


@pytest.mark.parametrize("kind", ["first letter", "last letter", "length", "name before digits"])
def test_a_leak_in_texts_that_never_repeat_is_caught(kind):
    rng = np.random.default_rng(7)

    def run(world: int, runs: int) -> list[Any]:
        noise = ["".join(map(chr, row)) for row in rng.integers(97, 123, (runs, 9)).tolist()]
        digits = rng.integers(10**8, 10**9, runs).tolist()
        match kind:
            case "first letter":
                return [f"{'pq'[world]}{text}" for text in noise]
            case "last letter":
                return [f"{text}{'pq'[world]}" for text in noise]
            case "length":
                return [text[world:] for text in noise]
            case _:
                return [{"who": f"{('Ann', 'Bob')[world]}{number}"} for number in digits]

    found = audit_subject(Subject("", run, ((0, 1),)), Claim("function", 1, runs=1_500))
    assert found.failed


def test_outputs_that_are_sorted_accuse_nobody():
    """Randomized response at exactly its epsilon; a file of its answers may come in any order."""
    rng = np.random.default_rng(3)
    sides = [np.sort(rng.random(5000) < share).astype(np.int64).reshape(-1, 1) for share in (0.7310, 0.2690)]
    found = audit_outputs(sides[0], sides[1], epsilon=1.0)
    assert not found.violated
    assert found.epsilon_bound > 0.5


@pytest.mark.parametrize("kind", ["whole numbers beyond 2^53", "numbers beside fractions", "texts", "lines"])
def test_a_leak_in_digits_or_inside_a_text_is_caught(kind):
    """Read as floats, or as texts that are never the same twice, these outputs said nothing."""
    rng = np.random.default_rng(5)

    def run(world: int, runs: int) -> list[Any]:
        noise = rng.integers(0, 2**20, runs).tolist()
        match kind:
            case "whole numbers beyond 2^53":
                return [2**60 + 2 * each + world for each in noise]
            case "numbers beside fractions":
                return [[2**60 + 2 * each + world, 0.5] for each in noise]
        shown = [world * 5 + float(each) for each in rng.laplace(0, 1, runs)]
        return [f"mean {each!r} of rows" + ("\nend" if kind == "lines" else "") for each in shown]

    found = audit_subject(Subject("", run, ((0, 1),)), Claim("function", 1, runs=1_500))
    assert found.failed


def test_a_question_is_audited_over_made_up_people_and_its_broken_twin_is_caught(monkeypatch):
    import clinic
    from deniable.query.compile import compile_query as honest

    sql, claim = "SELECT sex, COUNT(*) FROM visits GROUP BY sex", Claim("question", 1, runs=400, confidence=SURE)
    private = [table for table in clinic.TABLES if not table.public and table.name == "visits"]
    assert not audit_subject(make_question_subject(sql, private, PureDP(1)), claim).failed
    monkeypatch.setattr(
        "deniable.query.compile.compile_query",
        lambda text, tables, _, **more: honest(text, tables, PureDP(9), **more),
    )
    assert audit_subject(make_question_subject(sql, private, PureDP(1)), claim).failed


def test_what_is_no_pair_of_outputs_is_refused():
    with pytest.raises(ParameterError, match="too few"):
        audit_outputs(np.zeros((50, 1)), np.zeros((50, 1)), epsilon=1)
    with pytest.raises(ParameterError, match="not alike"):
        audit_outputs(np.zeros((500, 1)), np.zeros((500, 2)), epsilon=1)
