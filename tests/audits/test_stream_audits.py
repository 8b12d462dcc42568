"""Our audit on streams: the sound one stays under its claim; noise drawn again, or made for one period, is caught."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from deniable.assess.mechanism_audit import Claim, Subject, audit_claim, audit_subject
from deniable.policy.budget import ApproxDP, PureDP
from deniable.streams.factorization import choose_factorization, make_tree
from deniable.streams.mechanism import Part, StreamMechanism
from deniable.streams.workload import Totals, Workload
from seeded import SeededEntropy

PERIODS, OFTEN = 6, 4
EPSILON, DELTA = Fraction(2), Fraction(1, 100)


def make_subject(priced_for: int, runs_of_it: int, pure: bool) -> Subject:
    """All rows of a stream, run so many times over, of nobody and of a person who is there every time she may be."""
    factorization = (make_tree(PERIODS, 3) if pure else
                     choose_factorization(Workload(Totals.PREFIXES, PERIODS), OFTEN))  # fmt: skip
    whole = PureDP(EPSILON) if pure else ApproxDP(EPSILON, DELTA)
    made = StreamMechanism.within(whole, factorization, priced_for, [Part(1, Fraction(1), 1)])
    entropy = SeededEntropy(3)

    def run(people: tuple[int, ...], runs: int) -> Any:
        exact = np.tile(factorization.rows @ np.array(people), runs)
        shown = [made.noises[0].release(exact, entropy).reshape(runs, PERIODS) for _ in range(runs_of_it)]
        return np.concatenate(shown, axis=1)

    often = tuple(int(t < OFTEN) for t in range(PERIODS))
    return Subject("a stream", run, (((0,) * PERIODS, often),))


@pytest.mark.parametrize(
    ("priced_for", "runs_of_it", "broken", "pure"),
    [
        (OFTEN, 1, False, False),
        (OFTEN, 3, True, False),
        (1, 1, True, False),
        (OFTEN, 1, False, True),
        (1, 1, True, True),
    ],
    ids=[
        "sound",
        "noise drawn again at each restart",
        "made for a person in one period",
        "sound, Laplace",
        "Laplace, made for a person in one period",
    ],
)
def test_a_broken_stream_is_caught_and_the_sound_one_is_not(
    priced_for: int, runs_of_it: int, broken: bool, pure: bool
) -> None:
    claim = Claim("stream", EPSILON, Fraction(0) if pure else DELTA, runs=3_000)
    found = audit_subject(make_subject(priced_for, runs_of_it, pure), claim)
    assert found.failed is broken, found.audit["sentence"]


def test_a_stream_can_be_audited_by_its_name() -> None:

    sure = 1 - 1e-9
    assert not audit_claim(Claim("stream", Fraction(1), DELTA, runs=1_000, confidence=sure)).failed
    assert audit_claim(Claim("stream", Fraction(1), DELTA, spends=Fraction(9), runs=1_000, confidence=sure)).failed
    pure = Claim("stream", Fraction(1), Fraction(0), spends=Fraction(9), runs=1_000, confidence=sure)
    assert audit_claim(pure).failed
