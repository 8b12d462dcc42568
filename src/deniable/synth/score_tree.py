"""The tree of pairs that says most of all scores, not of its own alone.

Where many columns are scored with noise, the strongest pairs (Kruskal) are those that noise favors: a chain is cut into
pieces that hang together by pairs two and three columns apart, and what a tree implies of every other pair is weak.
But in a tree each score is a product along a way, so all scores tell where a column stands. Hence, of the pairs that
noise cannot tell from the strongest between two parts, the one is taken with which the tree explains the scores best.

The strength of a pair is its score over the root of the scores that its two columns would have with themselves. Two
columns of two values have the size of their correlation as strength, and strengths multiply along a tree exactly; else
about. Let m be those roots, I what the tree implies within each of two parts, and S the scores between them. A pair
(a, b) of strength w implies w u v' of them, with u = m I(a) and v = m I(b): the squared differences are least for
w = u'Sv / (|u|^2 |v|^2), and fall by (u'Sv)^2 / (|u|^2 |v|^2), for all pairs at once by two products of matrices.
Pairs without a score count for nothing and are never taken.

All of it is made of noisy scores and public numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable.synth.domain import Clique
from deniable.synth.estimate import find_spanning_tree
from deniable.synth.marginal import Floats

ALIKE = 2.0
"""Scores whose difference is so many of its deviations at most are not told apart."""
STRONGEST = 0.999
MOST_SWEEPS, MOST_WORK = 10, 1e10
"""How often all pairs are tried again, and about how many multiplications that may take: some seconds."""


@dataclass(frozen=True, slots=True)
class ScoreTree:
    """A spanning tree, and what is known of the scores of its pairs from all scores together."""

    pairs: tuple[Clique, ...]
    scores: tuple[float, ...]
    deviations: tuple[float, ...]


def fit_score_tree(pairs: Sequence[Clique], scores: Floats, spans: Floats, deviation: float) -> ScoreTree:
    """The tree for scores with equal noise; `spans` are the roots m of the columns."""
    size = spans.size
    table = np.full((size, size), np.nan)
    for (a, b), score in zip(pairs, scores, strict=True):
        table[a, b] = table[b, a] = score
    start = find_spanning_tree(size, pairs, scores)
    fit = _Fit(table, spans, deviation, list(start))
    work = 2.0 * len(start) * float(size) ** 3
    for _ in range(min(MOST_SWEEPS, int(MOST_WORK / max(work, 1.0)))):
        if not sum(fit.exchange(place) for place in range(len(start))):
            break
    return fit.tell()


class _Fit:
    """A tree with its strengths, and what it implies of all pairs."""

    def __init__(self, table: Floats, spans: Floats, deviation: float, pairs: list[Clique]) -> None:
        self._known, self._table = ~np.isnan(table), np.nan_to_num(table)
        self._spans, self._deviation, self._pairs = spans, deviation, pairs
        self._implied = np.eye(spans.size)
        joined: list[Clique] = []
        for a, b in pairs:
            one, other = (_reach(spans.size, joined, place) for place in (a, b))
            self._join(one, other, (a, b), min(max(table[a, b] / (spans[a] * spans[b]), 0.0), STRONGEST))
            joined.append((a, b))

    def exchange(self, place: int) -> bool:
        """Take one pair out and the best one in; whether it is another one."""
        old = self._pairs[place]
        one, other = self._part(place)
        fits, sizes = self._weigh(one, other)
        strengths = np.clip(fits / np.maximum(sizes, 1e-300), 0.0, STRONGEST)
        between = np.where(self._known, self._table, -np.inf)[np.ix_(one, other)]
        alike = between >= between.max() - ALIKE * math.sqrt(2) * self._deviation
        gains = np.where(alike, strengths * (2 * fits - strengths * sizes), -np.inf)
        i, j = np.unravel_index(int(np.argmax(gains)), gains.shape)
        a, b = int(one[i]), int(other[j])
        held, there = np.searchsorted(one, old[0]), np.searchsorted(other, old[1])
        if gains[i, j] <= gains[held, there] * (1 + 1e-9):
            i, j = held, there
        a, b = int(one[i]), int(other[j])
        self._pairs[place] = (min(a, b), max(a, b))
        self._join(one, other, (a, b), float(strengths[i, j]))
        return self._pairs[place] != old

    def tell(self) -> ScoreTree:
        """The tree, each pair's score from all that it joins, and the deviation of that."""
        scores, deviations = [], []
        for place, (a, b) in enumerate(self._pairs):
            one, other = self._part(place)
            scored, known = (held[np.ix_(one, other)] for held in (self._table, self._known.astype(np.float64)))
            u, v = self._implied[a, one] * self._spans[one], self._implied[b, other] * self._spans[other]
            fit, size = float(u @ scored @ v), float(u**2 @ known @ v**2)
            span = float(self._spans[a] * self._spans[b])
            scores.append(span * fit / size)
            deviations.append(span * self._deviation / math.sqrt(size))
        return ScoreTree(tuple(self._pairs), tuple(scores), tuple(deviations))

    def _part(self, place: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The columns on both sides of a pair, in order: those of its first column come first."""
        a, b = self._pairs[place]
        others = [pair for at, pair in enumerate(self._pairs) if at != place]
        return _reach(self._spans.size, others, a), _reach(self._spans.size, others, b)

    def _weigh(self, one: NDArray[np.int64], other: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """By pair between two parts: u'Sv, and |u|^2 |v|^2 as far as there are scores."""
        scores, known = (held[np.ix_(one, other)] for held in (self._table, self._known.astype(np.float64)))
        us, vs = (self._implied[np.ix_(part, part)] * self._spans[part] for part in (one, other))
        return us @ scores @ vs.T, us**2 @ known @ (vs**2).T

    def _join(self, one: NDArray[np.int64], other: NDArray[np.int64], pair: Clique, strength: float) -> None:
        implied = strength * np.outer(self._implied[one, pair[0]], self._implied[other, pair[1]])
        self._implied[np.ix_(one, other)] = implied
        self._implied[np.ix_(other, one)] = implied.T


def _reach(size: int, pairs: Sequence[Clique], start: int) -> NDArray[np.int64]:
    """The columns that hang together with one, in order."""
    beside: list[list[int]] = [[] for _ in range(size)]
    for a, b in pairs:
        beside[a].append(b)
        beside[b].append(a)
    found, waiting = {start}, [start]
    while waiting:
        fresh = [place for place in beside[waiting.pop()] if place not in found]
        found.update(fresh)
        waiting += fresh
    return np.array(sorted(found), dtype=np.int64)
