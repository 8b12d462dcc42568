"""The tree that explains all scores: against brute force, on chains in noise, and where scores are missing."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from deniable.synth.domain import Clique
from deniable.synth.estimate import find_spanning_tree, fit_score_tree
from deniable.synth.marginal import Floats


def chain_scores(columns: int, strength: float, spans: Floats) -> tuple[list[Clique], Floats]:
    pairs = list(itertools.combinations(range(columns), 2))
    return pairs, np.array([spans[a] * spans[b] * strength ** (b - a) for a, b in pairs])


def neighbors(pairs: tuple[Clique, ...]) -> int:
    return sum(b - a == 1 for a, b in pairs)


def test_scores_of_a_chain_give_the_chain_and_its_scores_though_other_pairs_have_larger_ones() -> None:
    spans = np.array([30.0, 50.0, 20.0, 40.0, 60.0])
    pairs, scores = chain_scores(5, 0.6, spans)
    fit = fit_score_tree(pairs, scores, spans, 100.0)
    assert sorted(fit.pairs) == [(i, i + 1) for i in range(4)]
    for (a, b), score in zip(fit.pairs, fit.scores, strict=True):
        assert score == pytest.approx(0.6 * spans[a] * spans[b], rel=1e-3)


def test_in_noise_the_tree_finds_more_of_a_chain_than_the_strongest_pairs_do() -> None:
    lots, spans, found, strongest = np.random.default_rng(3), np.full(30, 50.0), 0, 0
    pairs, scores = chain_scores(30, 0.85, spans)
    for _ in range(5):
        noisy = scores + lots.normal(0, 400, scores.size)
        found += neighbors(fit_score_tree(pairs, noisy, spans, 400.0).pairs)
        strongest += neighbors(find_spanning_tree(30, pairs, noisy))
    assert found > strongest + 20


def test_what_noise_tells_apart_stays_as_it_is_though_another_tree_explains_more() -> None:
    """Two columns have the third's parity together: no tree says that, and the strongest pairs are kept."""
    pairs: list[Clique] = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    scores = np.array([900.0, 880.0, 860.0, 100.0, 100.0, 100.0])
    assert sorted(fit_score_tree(pairs, scores, np.full(4, 32.0), 1.0).pairs) == [(0, 1), (0, 2), (0, 3)]


def test_the_deviation_of_a_score_is_that_of_the_fit_of_all_that_a_pair_joins() -> None:
    """Two columns on each side of (1, 2): u = (s, 1), v = (1, s) times the span, by hand."""
    spans = np.full(4, 10.0)
    pairs, scores = chain_scores(4, 0.5, spans)
    fit = fit_score_tree(pairs, scores, spans, 2.0)
    place = fit.pairs.index((1, 2))
    assert fit.deviations[place] == pytest.approx(2.0 / (1 + 0.5**2))
    noise = np.random.default_rng(1).normal(0, 2.0, (2000, len(pairs)))
    told = []
    for each in noise:
        one = fit_score_tree(pairs, scores + each, spans, 0.0)
        told += [score for pair, score in zip(one.pairs, one.scores, strict=True) if pair == (1, 2)]
    assert len(told) > 1900
    assert np.std(told) == pytest.approx(2.0 / (1 + 0.5**2), rel=0.15)


def test_pairs_without_a_score_are_never_taken_and_count_for_nothing() -> None:
    spans = np.full(5, 40.0)
    pairs, scores = chain_scores(5, 0.7, spans)
    kept = [place for place, pair in enumerate(pairs) if pair not in ((1, 2), (0, 4))]
    fit = fit_score_tree([pairs[i] for i in kept], scores[kept], spans, 500.0)
    assert (1, 2) not in fit.pairs
    assert len(fit.pairs) == 4
    assert all(math.isfinite(value) for value in (*fit.scores, *fit.deviations))


def test_a_forest_stays_one_and_no_pair_gives_none() -> None:
    spans = np.full(4, 40.0)
    fit = fit_score_tree([(0, 1), (2, 3), (1, 2)], np.array([500.0, 400.0, -3.0]), spans, 100.0)
    assert sorted(fit.pairs) == [(0, 1), (2, 3)]
    assert fit_score_tree([], np.zeros(0), spans, 1.0).pairs == ()
