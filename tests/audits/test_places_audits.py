"""Our audit on maps: the sound one stays under its claim; a grid cut by exact counts, or too many rows, is caught."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from deniable.assess.mechanism_audit import IN_CORNER, Claim, Subject, audit_claim, audit_subject, run_corner
from deniable.geography import grids
from deniable.geography.grids import Box, Counted, MapPlan, Reach, choose_divisions, find_deviation, measure_map
from deniable.policy.budget import PureDP
from seeded import SeededEntropy

EPSILON = Fraction(1)
ENTROPY = SeededEntropy(7)


def plan_for(rows: int) -> MapPlan:
    box = Box(0.0, 0.0, 1.0, 1.0)
    return MapPlan.within(PureDP(EPSILON), box, 250, Reach.of(rows, False), adaptive=True, pure=True)


def cut_by_exact_counts(plan: MapPlan, y: Any, x: Any, slot: Any) -> Counted:
    """The broken twin: how finely a cell is cut follows from its exact count; all counts have their noise."""
    found = measure_map(plan, y, x, slot, ENTROPY)
    exact = np.zeros(len(found.cells), np.int64)
    first = np.cumsum(found.sides**2) - found.sides**2
    exact[first] = np.bincount(slot, minlength=plan.slots)
    divided = choose_divisions(exact, find_deviation(plan.noises[2]))
    counts = np.zeros(int((divided**2).sum()), np.int64)
    counts[(np.cumsum(divided**2) - divided**2)[first]] = exact[first]
    return replace(found, divided=divided, parts=plan.noises[2].release(counts, ENTROPY))


def measure(plan: MapPlan, y: Any, x: Any, slot: Any) -> Counted:
    return measure_map(plan, y, x, slot, ENTROPY)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("twin", "planned", "rows", "broken"),
    [(measure, 1, 1, False), (cut_by_exact_counts, 1, 1, True), (measure, 1, 4, True), (measure, 4, 4, False)],
    ids=["sound", "cut by exact counts", "a person without a bound", "a bounded person"],
)
def test_a_broken_map_is_caught_and_the_sound_one_is_not(twin: Any, planned: int, rows: int, broken: bool) -> None:
    plan = plan_for(planned)
    pair = (IN_CORNER - rows, IN_CORNER)
    subject = Subject("a map", lambda points, runs: run_corner(plan, twin, points, runs), (pair,))
    found = audit_subject(subject, Claim("map", EPSILON, runs=2_000))
    assert found.failed is broken, found.audit["sentence"]


def test_exact_counts_would_cut_the_corner_otherwise_with_one_person_more() -> None:
    """The pair of the audit has power: between the two worlds the published rule changes its mind."""
    deviation = find_deviation(plan_for(1).noises[2])
    fewer, more = choose_divisions(np.array([IN_CORNER - 1, IN_CORNER]), deviation).tolist()
    assert fewer < more


@pytest.mark.slow
def test_a_map_can_be_audited_by_its_name() -> None:
    sure = 1 - 1e-9
    assert not audit_claim(Claim("map", EPSILON, runs=1_000, confidence=sure)).failed
    assert audit_claim(Claim("map", EPSILON, spends=Fraction(9), runs=1_000, confidence=sure)).failed
    assert grids.SHARES[0] + grids.SHARES[1] + grids.SHARES[2] == 1
