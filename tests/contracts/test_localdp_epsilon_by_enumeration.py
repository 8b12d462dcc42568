"""Epsilon of every local randomizer, not claimed but counted: all responses, and all draws, are walked through."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product
from math import prod

import numpy as np
import pytest

from deniable.localdp.attributes import Attributes, Hierarchy
from deniable.localdp.frequency.hadamard import Hadamard
from deniable.localdp.frequency.hashing import LocalHashing
from deniable.localdp.frequency.randomized_response import Direct, three_envelopes, two_coins, warner
from deniable.localdp.frequency.sketch import CountMeanSketch, HadamardSketch, Rappor
from deniable.localdp.frequency.subset import Subset
from deniable.localdp.frequency.unary import Unary
from deniable.localdp.heavy_hitters import PrefixTree
from deniable.localdp.likelihood_ratio import is_within_epsilon, odds_below
from deniable.localdp.numeric.mechanisms import BoundedLaplace, Duchi, Hybrid, Window
from deniable.localdp.numeric.scale import Scale

SCALE = Scale.between(0, 5)
WORDS = ("fig", "plum", "pear", "quince")
EPSILONS = ("0.1", "1", "2.5", "6")

FREQUENCY = {
    "k-ary": lambda e: Direct.calibrate(5, e),
    "optimized unary": lambda e: Unary.calibrate(4, e),
    "symmetric unary": lambda e: Unary.symmetric(4, e),
    "local hashing": lambda e: LocalHashing.calibrate(6, e),
    "hadamard": lambda e: Hadamard.calibrate(6, e),
    "hadamard in four blocks": lambda e: Hadamard(6, 4, odds_below(e)),
    "subset": lambda e: Subset.calibrate(6, e),
    "subset of three": lambda e: Subset(6, 3, odds_below(e)),
    "duchi": lambda e: Duchi.calibrate(SCALE, e),
    "piecewise": lambda e: Window.piecewise(SCALE, e, places=12),
    "square wave": lambda e: Window.square_wave(SCALE, e, places=12),
    "hybrid": lambda e: Hybrid(Duchi.calibrate(SCALE, e), Window.piecewise(SCALE, e, places=9), 26000),
}
STRINGS = {
    "count mean sketch": lambda e: CountMeanSketch.calibrate(e, hashes=3, width=4),
    "hadamard sketch": lambda e: HadamardSketch.calibrate(e, hashes=5, width=8),
    "rappor": lambda e: Rappor.calibrate(e, width=4, hashes=1, cohorts=2),
    "rappor of two hashes": lambda e: Rappor.calibrate(e, width=4, hashes=2, cohorts=1),
}


def ratios(tables: list[dict[object, Fraction]]) -> Fraction:
    """The largest ratio of one response's probability under two answers."""
    outcomes = set().union(*tables)
    return max(max(t.get(o, 0) for t in tables) / min(t.get(o, Fraction(0)) for t in tables) for o in outcomes)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", FREQUENCY)
def test_no_response_is_more_than_e_to_the_epsilon_times_as_likely_under_one_answer_as_under_another(name, epsilon):
    protocol = FREQUENCY[name](epsilon)
    answers = range(getattr(protocol, "domain", SCALE.steps + 1))
    tables = [dict(protocol.likelihoods(answer)) for answer in answers]
    worst = ratios(tables)
    assert is_within_epsilon(worst, epsilon)
    assert worst == protocol.odds
    if name != "local hashing":  # there a sample of the 2^32 seeds is listed
        assert all(sum(table.values()) == 1 for table in tables)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", STRINGS)
def test_no_response_about_a_string_passes_its_odds(name, epsilon):
    protocol = STRINGS[name](epsilon)
    tables = [dict(protocol.likelihoods(word)) for word in WORDS]
    assert all(sum(table.values()) == 1 for table in tables)
    assert ratios(tables) <= protocol.odds
    assert is_within_epsilon(protocol.odds, epsilon)


def test_one_rappor_report_is_more_private_than_a_lifetime_of_them():
    protocol = Rappor.calibrate(2, width=4, hashes=1, cohorts=2)
    single = ratios([dict(protocol.likelihoods(word, lifetime=False)) for word in WORDS])
    lifetime = ratios([dict(protocol.likelihoods(word)) for word in WORDS])
    assert single <= protocol.report_odds < lifetime <= protocol.odds


@pytest.mark.parametrize("design", [two_coins(), three_envelopes(), warner(2, 1), warner(9, 7)])
def test_designs_by_hand_have_the_odds_they_state(design):
    assert ratios([dict(design.likelihoods(answer)) for answer in (0, 1)]) == design.odds


# The code that draws is the code that is proven: with small odds every draw can be walked through.
WALKED = {
    "k-ary": Direct(4, Fraction(7, 2)),
    "hadamard of one block": Hadamard(3, 1, Fraction(3)),
    "hadamard of two blocks": Hadamard(5, 2, Fraction(5, 2)),
    "hadamard of four blocks": Hadamard(5, 4, Fraction(4)),
    "duchi": Duchi(SCALE, Fraction(5, 3)),
    "piecewise": Window(SCALE, 7, 3, Fraction(5, 2)),
    "square wave": Window(SCALE, 4, 6, Fraction(3)),
}


@pytest.mark.parametrize("name", WALKED)
def test_walking_through_every_draw_gives_exactly_the_stated_probabilities(name):
    protocol = WALKED[name]
    every = np.array(list(product(*(range(bound) for bound in protocol.draws))), dtype=np.int64)
    for answer in range(getattr(protocol, "domain", SCALE.steps + 1)):
        responses = protocol.respond(np.full(len(every), answer), *every.T)
        seen: dict[object, int] = {}
        for outcome in zip(*(column.tolist() for column in responses), strict=True):
            seen[outcome] = seen.get(outcome, 0) + 1
        total = prod(protocol.draws)
        assert {outcome: Fraction(count, total) for outcome, count in seen.items()} == dict(
            protocol.likelihoods(answer)
        )


def test_walking_through_every_draw_of_local_hashing_keeps_to_its_odds_for_each_seed():
    protocol = LocalHashing(5, 3, Fraction(5, 2))
    draws = np.arange(protocol.draws[1])
    for seed in range(40):
        for answer in range(5):
            _, buckets = protocol.respond(np.full(len(draws), answer), np.full(len(draws), seed), draws)
            stated = {o[1]: p * 2**32 for o, p in protocol.likelihoods(answer, range(seed, seed + 1))}
            counted = {b: Fraction(int((buckets == b).sum()), len(draws)) for b in range(3)}
            assert counted == stated


def test_walking_through_every_draw_of_subset_selection():
    protocol = Subset(5, 2, Fraction(3, 2))
    every = np.array(list(product(*(range(bound) for bound in protocol.draws))), dtype=np.int64)
    for answer in range(5):
        (sets,) = protocol.respond(np.full(len(every), answer), every[:, 0], every[:, 1:])
        counted: dict[object, int] = {}
        for chosen in map(tuple, sets.tolist()):
            counted[(chosen,)] = counted.get((chosen,), 0) + 1
        assert {o: Fraction(c, len(every)) for o, c in counted.items()} == dict(protocol.likelihoods(answer))


@pytest.mark.parametrize("clamped", [False, True])
@pytest.mark.parametrize("epsilon", ["0.3", "1", "4"])
def test_laplace_responses_keep_to_epsilon_at_every_position_and_where_they_are_cut(epsilon, clamped):
    protocol = BoundedLaplace.calibrate(SCALE, epsilon, clamped)
    with localcontext() as context:
        context.prec = 60
        ratio = (-(Decimal(epsilon) / SCALE.steps)).exp()  # e^(-1/scale)
        whole, tail = (1 - ratio) / (1 + ratio), 1 / (1 + ratio)

        def likelihood(position: int, cell: int) -> Decimal:
            distance = abs(cell - protocol.reach - position)
            at_end = cell in (0, SCALE.steps + 2 * protocol.reach)
            return (tail if at_end else whole) * ratio**distance  # an end holds all that lies beyond it

        cells = range(SCALE.steps + 2 * protocol.reach + 1)
        rows = [[likelihood(position, cell) for cell in cells] for position in range(SCALE.steps + 1)]
        assert all(abs(sum(row) - 1) < Decimal("1e-50") for row in rows)
        worst = max(max(column) / min(column) for column in zip(*rows, strict=True))
        assert worst <= Decimal(epsilon).exp() * (1 + Decimal("1e-50"))
        assert worst >= Decimal(epsilon).exp() * (1 - Decimal("1e-50"))


def test_the_hierarchy_and_the_prefix_tree_tell_one_level_at_full_odds_and_no_more():
    plan = Hierarchy.calibrate(16, 1, 1000)
    tables = []
    for position in range(16):
        table: dict[object, Fraction] = {}
        for level, protocol in enumerate(plan.protocols):
            node = position * protocol.domain // plan.leaves
            table |= {(level, o): p / len(plan.protocols) for o, p in protocol.likelihoods(node)}
        tables.append(table)
    assert ratios(tables) == plan.odds
    assert is_within_epsilon(plan.odds, 1)
    tree = PrefixTree("ab", 2, 1, 3, HadamardSketch.calibrate(1, hashes=2, width=4))
    tables = [dict(tree.likelihoods(word)) for word in ("", "a", "b", "ab", "bb", "bc", "abab")]
    assert all(sum(table.values()) == 1 and len(table) == 5 * 2 * 4 * 2 for table in tables)
    assert ratios(tables) == tree.odds
    assert is_within_epsilon(tree.odds, 1)


def test_several_attributes_keep_to_epsilon_as_a_whole():
    answers = list(product(range(2), range(3)))
    sampled = Attributes.calibrate([2, 3], 1, 100)
    tables = [
        {(i, o): p / 2 for i, protocol in enumerate(sampled.protocols) for o, p in protocol.likelihoods(answer[i])}
        for answer in answers
    ]
    assert ratios(tables) == sampled.odds
    assert is_within_epsilon(sampled.odds, 1)
    split = Attributes.calibrate([2, 3], 1, 100, sampled=False)
    tables = [
        {
            (a, b): p * q
            for a, p in split.protocols[0].likelihoods(answer[0])
            for b, q in split.protocols[1].likelihoods(answer[1])
        }
        for answer in answers
    ]
    assert ratios(tables) == split.odds
    assert is_within_epsilon(split.odds, 1)


def test_a_broken_randomizer_is_caught_by_the_same_enumeration():
    class Leaky(Direct):
        """Keeps the answer twice as often as it should."""

        def likelihoods(self, answer):
            for outcome, likelihood in super().likelihoods(answer):
                yield outcome, likelihood * 2 if outcome == (answer,) else likelihood

    assert not is_within_epsilon(ratios([dict(Leaky.calibrate(4, 1).likelihoods(a)) for a in range(4)]), 1)
