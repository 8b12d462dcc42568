"""Selection: which cliques to measure. Made from noisy scores and public sizes, so it costs nothing beyond the scores.

Pairs: a spanning tree, or the pairs that bring more than their noise costs. A tree says something of every pair, so
further pairs are scored against what it implies. So are cliques of three: the table that the tree implies is moved to
the measured pairs (without a tree, the most even table that has them). Three columns that hang on a fourth depend on
one another in ways that their own pairs do not tell, but the pairs with the fourth do. The distance of that table from
the real counts is what only measuring the clique can tell. As in AIM (McKenna et al. 2022), a clique is selected by the
improvement expected against the noise that measuring it brings, also to all else, which gets less of the budget."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from deniable.synth.bins import GroupedClique, group_clique, sum_by_group
from deniable.synth.domain import Clique, Domain
from deniable.synth.estimate import (
    Estimates,
    ImpliedTables,
    find_spanning_tree,
    fit_score_tree,
    margins_within,
    reach_columns,
)
from deniable.synth.estimate.residuals import fit_margins
from deniable.synth.marginal import Floats, Marginal

DENOISED = 0.8
"""What projection onto the simplex and agreement between marginals leave of the noise, roughly: for weighing only."""


@dataclass(frozen=True, slots=True, eq=False)
class SelectionProblem:
    """What is known, publicly, when cliques are chosen."""

    domain: Domain
    """Of the collapsed columns, in which pairs are measured."""
    pairs: list[Clique]
    scores: Floats
    """How much each pair departs from independence, less what noise alone explains."""
    column_cells: Floats
    """How many values each column has before collapsing: a column is measured again in full."""
    column_errors: Floats
    """The expected L1 error of each column's estimate."""
    column_within: Floats
    """The part of it that lies between values that were joined: measuring a pair does not reduce it."""
    amount: float
    """What is left to spend."""
    rows: int
    """The most records of a unit."""
    total: float
    """The estimated number of records."""
    sizes: tuple[float, ...] = ()
    """What counts as the number of values of each column where pairs are weighed; those of the domain, if not given."""
    weights: Mapping[Clique, float] = field(default_factory=dict)
    """In how many pairs the noise on a measured one is found, its own included; one, if not given."""
    told: Floats | None = None
    """The scores less what chance explains, but not less their own noise: of many together the noise averages out."""
    spans: Floats | None = None
    """For each column the root of the score that it would have with itself."""
    deviation: float = 0.0
    """Of the noise on each score."""
    chance: Floats | None = None
    """What chance alone makes of each score, on average: the rows are a sample."""

    column_worth: Floats | None = None
    """How much of each column's error counts in the pairs with it that are not measured; all, if not given."""

    def pair_cells(self, pair: Clique) -> float:
        """What counts as the number of cells of a pair: noise on one that implies others counts in them too."""
        sizes = self.sizes or self.domain.sizes
        return float(sizes[pair[0]] * sizes[pair[1]]) * self.weights.get(pair, 1.0)


SEEN_STRETCHES = 16
"""Ordered columns are looked at in about so many stretches: noise that cancels out within one does no harm."""


def count_seen_values(size: float, ordered: bool) -> float:
    """What counts as the number of values of a column: noise on c values, added up over s, is that of sqrt(c s)."""
    return math.sqrt(size * min(size, SEEN_STRETCHES)) if ordered else float(size)


@dataclass(frozen=True, slots=True)
class Selection:
    """Cliques to measure, each with its share of what is left to spend; shares add up to at most one."""

    cliques: tuple[Clique, ...]
    shares: tuple[float, ...]
    reason: str = ""
    """Why these, in a sentence made of public numbers."""
    column_worth: Floats | None = None
    """As it was in the problem."""


REFRESHED, MOST_NEAR = 25, 200
"""After so many choices all candidates are tried again, and so many of the best are in between."""


def select_pairs(problem: SelectionProblem) -> Selection:
    """The cliques (pairs, and columns once more) that lower the expected error of all pairs most, greedily.

    The expected L1 error of a pair that is not measured is its score plus the errors of its columns; that of a
    measured pair is the noise on its cells, and what errors its columns have between values that were joined (left out,
    a pair of few joined values cliques better than it is, and a tiny budget is spent on pairs that columns need more).
    A clique of c cells with variance v has noise about sqrt(2 v / pi) c, and for a fixed total of 1 / v the sum of such
    noises is least when the shares grow like c^(2/3). Adding a clique thins out the others, so the greedy search ends
    by itself where nothing more pays.
    """
    columns = len(problem.domain)
    singles: list[Clique] = [(place,) for place in range(columns)]
    candidates = [*problem.pairs, *singles]
    trials = _Trials(problem)
    chosen: list[int] = []
    best = start = float(trials.errors(np.array([-1]))[0])
    near = np.arange(0)
    while len(chosen) < len(candidates):
        # All candidates now and then, and those that were best then in between: what was far behind stays so for long.
        if len(chosen) % REFRESHED == 0 or trials.errors(near).min(initial=np.inf) >= best * (1 - 1e-9):
            near = np.argsort(trials.errors(np.arange(len(candidates))), kind="stable")[:MOST_NEAR]
        errors = trials.errors(near)
        pick = int(near[errors <= errors.min() * (1 + 1e-12)].min())  # the first of those that are as good
        if errors.min() >= best * (1 - 1e-9):
            break
        best = float(errors.min())
        chosen.append(pick)
        trials.add(pick)
    shares = tuple(float(share) for share in trials.shares(chosen))
    reason = _explain_pairs(chosen, len(problem.pairs), start, best)
    return Selection(tuple(candidates[i] for i in chosen), shares, reason, problem.column_worth)


MOST_PAIRS = 0.35
"""If more than this share of all pairs pays, they are measured at once, without a tree first. Found by trial on the
twelve tables of `bench/synth.py --tables`."""
SCORE_DEVIATIONS = 2.0
"""How far a pair's score must stand out of its noise to count: many are scored, and chance makes some large."""
TREE_WORTH = 2.0
"""How much more a pair of the tree brings than its own error, at least: what it joins is implied through it."""
IMPLIED_WORTH = 0.5
"""How much less a column's error counts in pairs that the tree implies: these err by the tree's noise, too, and errors
add up in squares. Found by trial on tables with a few hidden factors, and no worse on those of `bench/synth.py`."""


def select_tree(problem: SelectionProblem, follow: bool = True) -> Selection:
    """The pairs of a spanning tree that pay, and columns once more: what every table is drawn along.

    Where many pairs pay beyond what the tree implies of them, or by chance alone, all that do. What is implied is
    drawn, so it differs from the real counts by chance at least, as far as its score does: less where copies imply it.
    So it is where nothing will `follow` that scores pairs against the tree.
    """
    tree, scores = _find_tree(problem)
    problem = replace(problem, scores=scores)
    copies = find_copies(problem, tree)
    implied, weights = follow_tree(problem, copies.tree)
    problem = replace(problem, weights=weights)
    drawn = copies.loose * np.sqrt([2 * problem.total * problem.domain.cells(pair) / math.pi for pair in problem.pairs])
    known = np.maximum(implied, copies.implied)
    others = np.array([pair not in weights for pair in problem.pairs], dtype=bool)
    shown = np.maximum(_trust_shown_scores(problem, known, others), _average_scores(problem, known, others))
    beyond = np.maximum(shown - known, np.minimum(problem.scores, drawn))
    weighed = np.maximum([weights.get(pair, 1.0) for pair in problem.pairs], copies.weights)
    worth = np.maximum(beyond * weighed, _gain_by_chance(problem) * copies.loose * copies.weights)
    counted = dict(zip(problem.pairs, map(float, weighed), strict=True))
    every = select_pairs(replace(problem, scores=worth, weights=counted))
    if not follow or sum(len(clique) == 2 for clique in every.cliques) > MOST_PAIRS * len(problem.pairs):
        return every
    kept = [place for place, pair in enumerate(problem.pairs) if pair in weights]
    pairs = [problem.pairs[place] for place in kept]
    worth = problem.scores[kept] * [max(TREE_WORTH, weights[pair]) for pair in pairs]
    alone = 1.0 - IMPLIED_WORTH * _share_joined(len(problem.domain), copies.tree)
    return select_pairs(replace(problem, pairs=pairs, scores=worth, column_worth=alone))


def _trust_shown_scores(problem: SelectionProblem, known: Floats, beside: NDArray[np.bool_]) -> Floats:
    """The scores of pairs beside the tree, each less fewer deviations the more of them show more than the tree implies.

    Deviations are taken off since chance makes some of many scores large. Where most pairs show more even so, it is not
    chance that does. Then a score counts as it was told: the noise on columns adds to it in squares, and what stands
    far out has little of it.
    """
    if problem.told is None or not beside.any():
        return problem.scores
    chance = 1.0 - float(np.mean(problem.scores[beside] > known[beside]))
    told = problem.told - SCORE_DEVIATIONS * chance * problem.deviation
    return np.where(beside, np.maximum(problem.scores, told), problem.scores)


def _average_scores(problem: SelectionProblem, known: Floats, beside: NDArray[np.bool_]) -> Floats:
    """What scores are on average of many alike: far nearer to their mean than the noise on each of them tells.

    Where the mean of what pairs show beyond the implied stands out of its noise, each pair has it, and as much of its
    own difference from the mean as the scores differ more than their noise does.
    """
    if problem.told is None or not beside.any():
        return problem.scores
    noise = problem.column_errors[np.array(problem.pairs)].sum(axis=1)
    floor = noise if problem.chance is None else np.hypot(problem.chance, noise)
    found = np.where(problem.told > 0, np.hypot(problem.told, floor), problem.told + floor)
    beyond, pairs, noisy = found - np.hypot(known, floor), int(beside.sum()), problem.deviation**2
    own = max(float(np.var(beyond[beside])) - (1.0 + SCORE_DEVIATIONS * math.sqrt(2 / pairs)) * noisy, 0.0)
    mean = float(np.mean(beyond[beside]))
    if not own and mean <= SCORE_DEVIATIONS * problem.deviation / math.sqrt(pairs):
        return problem.scores
    likely = mean + own / (own + noisy) * (beyond - mean)
    return np.where(beside, known + _cut_normal(likely, math.sqrt(own * noisy / (own + noisy))), problem.scores)


def _cut_normal(mean: Floats, deviation: float) -> Floats:
    """What normal numbers are above zero, on average; below, they count as zero."""
    ratio = mean / max(deviation, 1e-9)
    above = np.array([0.5 + 0.5 * math.erf(each / math.sqrt(2)) for each in ratio])
    return np.asarray(deviation / math.sqrt(2 * math.pi) * np.exp(-(ratio**2) / 2) + mean * above)


def _share_joined(columns: int, tree: Sequence[Clique]) -> Floats:
    """Of each column, the share of the others that a tree joins with it."""
    return np.array([(reach_columns(columns, tree, j).size - 1) / max(columns - 1, 1) for j in range(columns)])


def _gain_by_chance(problem: SelectionProblem) -> Floats:
    """What measuring each pair gains even if its columns are independent: real rows and drawn ones are both samples.

    By chance they differ from one another by sqrt(2) times what one of them differs from independence. That adds up
    in squares with the noise on the columns, which is in the error anyway. Of a measured pair drawn rows have what was
    measured. Few rows and cells and little noise make it worth more than it costs, though no score could show it.
    """
    if problem.chance is None or not problem.pairs:
        return np.zeros(len(problem.pairs))
    noise = problem.column_errors[np.array(problem.pairs)].sum(axis=1)
    gained: Floats = np.hypot(math.sqrt(2) * problem.chance, noise) - noise
    return gained


def _find_tree(problem: SelectionProblem) -> tuple[tuple[Clique, ...], Floats]:
    """The tree that all scores tell, and the scores with what all tell of its pairs; without those that stay at 0."""
    if problem.told is None or problem.spans is None or not problem.pairs:
        return find_spanning_tree(len(problem.domain), problem.pairs, problem.scores), problem.scores
    fit = fit_score_tree(problem.pairs, problem.told, problem.spans, problem.deviation)
    found, noise = np.array(fit.scores), np.array(fit.deviations)
    # Where most of the tree stands out, the rest of it is hardly chance: less is asked of each pair.
    asked = SCORE_DEVIATIONS - float(np.mean(found > SCORE_DEVIATIONS * noise)) if fit.pairs else SCORE_DEVIATIONS
    trusted = dict(zip(fit.pairs, map(float, found - asked * noise), strict=True))
    scores = np.array(
        [max(score, trusted.get(pair, -math.inf)) for pair, score in zip(problem.pairs, problem.scores, strict=True)]
    )
    known = dict(zip(problem.pairs, scores, strict=True))
    return tuple(pair for pair in fit.pairs if known[pair] > 0), scores


def follow_tree(problem: SelectionProblem, tree: Sequence[Clique]) -> tuple[Floats, dict[Clique, float]]:
    """How much of each pair's score a tree of other pairs implies, and the weight of each pair of the tree.

    The strength of a pair is its score as a share of the largest that its table can have. Strengths multiply along the
    tree, as correlations do in a chain. Noise on a pair of the tree is found in every pair whose way leads through it,
    as far as the rest of the way is strong: its weight is the sum of these parts, with one for itself.
    """
    size, most = len(problem.domain), [problem.total * (2 - 2 / min(problem.domain.shape(p))) for p in problem.pairs]
    shares = np.clip(problem.scores / np.maximum(most, 1e-9), 1e-9, 1.0)
    strengths = dict(zip(problem.pairs, map(float, shares), strict=True))
    beside: dict[int, list[tuple[int, Clique]]] = {place: [] for place in range(size)}
    for a, b in tree:
        beside[a].append((b, (a, b)))
        beside[b].append((a, (a, b)))
    implied, weights = np.zeros((size, size)), dict.fromkeys(tree, 1.0)
    for start in range(size):
        waiting: list[tuple[int, tuple[Clique, ...]]] = [(start, ())]
        while waiting:
            here, way = waiting.pop()
            waiting += [(after, (*way, pair)) for after, pair in beside[here] if pair not in way[-1:]]
            if here > start and len(way) > 1:
                implied[start, here] = math.prod(strengths[pair] for pair in way)
                for pair in way:
                    weights[pair] += float(implied[start, here]) / strengths[pair]
    return np.array([implied[pair] for pair in problem.pairs]) * most, weights


COPIES = 0.9
"""Columns that are as strong together say the same of every other one: one of them is measured with the others."""


@dataclass(frozen=True, slots=True)
class Copies:
    """What follows from columns that are copies of one another, or nearly so, for each pair."""

    tree: tuple[Clique, ...]
    """A tree in which one column of each group stands in all pairs that lead out of it."""
    implied: Floats
    """The score that is implied by the pair of those columns; 0 for that pair itself."""
    loose: Floats
    """The share of what chance makes of a pair that is not implied so."""
    weights: Floats
    """How many pairs each one speaks for, its own included."""


def find_copies(problem: SelectionProblem, tree: Sequence[Clique]) -> Copies:
    """Groups of columns that say the same, in each of which one speaks for all: the one that says most of the others.

    Copies have the same counts with any further column. To measure them again brings noise that contradicts the first
    measurement, and rows that come near to both no longer have equal copies. Where a column follows another one with
    strength s, 1 - s^2 of the variance of its counts is its own.
    """
    pairs, same = problem.pairs, np.eye(len(problem.domain))
    spans = np.full(len(problem.domain), math.sqrt(2 * problem.total)) if problem.spans is None else problem.spans
    most = np.array([max(spans[a], spans[b]) ** 2 for a, b in pairs])
    strengths = dict(zip(pairs, map(float, np.minimum(problem.scores / most, 1.0)), strict=True))
    strong = [pair for pair in tree if strengths[pair] >= COPIES]
    for a, b in strong:
        one, other = np.flatnonzero(same[a]), np.flatnonzero(same[b])
        between = strengths[a, b] * np.outer(same[a, one], same[b, other])
        same[np.ix_(one, other)], same[np.ix_(other, one)] = between, between.T
    speakers = _choose_speakers(problem, same)
    places = {pair: place for place, pair in enumerate(pairs)}
    implied, loose, weights = np.zeros(len(pairs)), np.ones(len(pairs)), np.ones(len(pairs))
    for place, (a, b) in enumerate(pairs):
        if same[a, b] and (a, b) not in strong:
            implied[place], loose[place] = same[a, b] * most[place], math.sqrt(1 - same[a, b] ** 2)
        first = places.get(_lead_pair((a, b), speakers), place)
        if not same[a, b] and first != place:
            strength = same[a, speakers[a]] * same[b, speakers[b]]
            implied[place], loose[place] = strength * problem.scores[first], math.sqrt(1 - strength**2)
            weights[first] += strength
    led = tuple(pair if pair in strong else _lead_pair(pair, speakers) for pair in tree)
    return Copies(led if set(led) <= set(pairs) else tuple(tree), implied, loose, weights)


def _choose_speakers(problem: SelectionProblem, same: Floats) -> list[int]:
    """For each column, the one of its group that says most of the columns outside it."""
    said = np.zeros(len(problem.domain))
    for (a, b), score in zip(problem.pairs, problem.scores, strict=True):
        if not same[a, b]:
            said[[a, b]] += max(float(score), 0.0)
    return [int(max(np.flatnonzero(group), key=said.__getitem__)) for group in same]


def _lead_pair(pair: Clique, speakers: Sequence[int]) -> Clique:
    one, other = (speakers[place] for place in pair)
    return (min(one, other), max(one, other))


def parts_of(problem: SelectionProblem, chosen: Selection) -> list[float]:
    """The parts z = (w c)^(2/3) from which the shares of a choice were made: w is 1 for a pair, and for a column the
    number of pairs with it that are not measured, and of the others what lies between joined values."""
    found = []
    for clique in chosen.cliques:
        measured = sum(clique[0] in other for other in chosen.cliques if len(other) == 2)
        open_pairs = len(problem.domain) - 1 - measured * (1.0 - float(problem.column_within[clique[0]]))
        counted = 1.0 if chosen.column_worth is None else float(chosen.column_worth[clique[0]])
        single = max(open_pairs * counted, 1.0) * float(problem.column_cells[clique[0]])
        found.append((problem.pair_cells(clique) if len(clique) == 2 else single) ** (2 / 3))
    return found


def _explain_pairs(chosen: list[int], pairs: int, start: float, best: float) -> str:
    measured = sum(place < pairs for place in chosen)
    if not pairs:
        return "no pair could show anything beyond the noise at this budget: columns stay independent"
    if not measured:
        return f"no pair of {pairs} brings more than its noise costs at this budget: columns stay independent"
    saved = 1.0 - best / max(start, 1e-300)
    return (
        f"{measured} of {pairs} pairs measured, {len(chosen) - measured} columns once more: the expected error of all "
        f"pairs falls by {saved:.0%} against independent columns, and a further pair would cost more than it brings"
    )


class _Trials:
    """What is chosen so far, and the expected error with each further candidate, all candidates at once.

    The noise on a column counts once for every pair with it that is not measured, and for the others as far as it lies
    between joined values, so with these weights w the sum of
    w c / sqrt(share) is least for shares like z = (w c)^(2/3), out of their sum Z. A pair has w = 1 and so the noise
    scale c sqrt(Z / z) = scale sqrt(Z) z: all measured pairs together err by scale sqrt(Z) times the sum of their z.
    The last row of every array is the choice as it is, without a further candidate.
    """

    def __init__(self, problem: SelectionProblem) -> None:
        columns, pairs = len(problem.domain), np.array(problem.pairs, dtype=np.int64).reshape(-1, 2)
        rows = len(pairs) + columns + 1
        self._problem = problem
        self._scale = DENOISED * math.sqrt(2 / math.pi) * problem.rows / math.sqrt(max(problem.amount, 1e-300))
        self._touches = np.zeros((rows, columns))
        self._touches[np.arange(len(pairs))[:, np.newaxis], pairs] = 1
        self._single = np.zeros((rows, columns), dtype=bool)
        self._single[len(pairs) + np.arange(columns), np.arange(columns)] = True
        self._sized, self._worth = np.zeros(rows), np.zeros(rows)
        self._sized[: len(pairs)] = [problem.pair_cells(pair) ** (2 / 3) for pair in problem.pairs]
        self._worth[: len(pairs)] = np.maximum(problem.scores, 0.0)
        self._open = np.ones(rows, dtype=bool)
        # A column of one value says nothing but how many records there are, which every other column says as well.
        self._open[len(pairs) : len(pairs) + columns] = problem.column_cells > 1

    def add(self, place: int) -> None:
        """Choose a candidate: every further trial has it."""
        self._open[place] = False
        self._single[self._open] |= self._single[place]
        for held in (self._touches, self._sized, self._worth):
            # A candidate's row has all that was chosen before it, as the last row has: their difference is its own.
            held[self._open] += held[place] - held[-1]

    def errors(self, some: NDArray[np.int64]) -> Floats:
        """The expected L1 error over all pairs with each of some candidates; without end for those chosen already."""
        cells, one_way = self._problem.column_cells, self._problem.column_errors
        unmeasured, sized = self._column_sizes(some)
        single, pairs = self._single[some], self._sized[some]
        whole = pairs + sized.sum(axis=1)
        noise = self._scale * cells * np.sqrt(whole[:, np.newaxis] / np.where(single, sized, 1.0))
        # Two measurements of one column, joined by inverse variances.
        joined = 1.0 / np.sqrt(1.0 / np.maximum(one_way, 1e-9) ** 2 + 1.0 / np.maximum(noise, 1e-9) ** 2)
        alone = np.where(single, joined, one_way)
        left = float(np.maximum(self._problem.scores, 0.0).sum()) - self._worth[some]
        errors: Floats = self._scale * np.sqrt(whole) * pairs + left + (unmeasured * alone).sum(axis=1)
        return np.where(self._open[some], errors, np.inf)

    def shares(self, chosen: list[int]) -> Floats:
        """The shares that suit the choice as it is."""
        pairs = len(self._problem.pairs)
        columns = self._column_sizes(np.array([-1]))[1][0]
        cliques = self._problem.pairs
        sized = [self._problem.pair_cells(cliques[i]) ** (2 / 3) if i < pairs else columns[i - pairs] for i in chosen]
        found: Floats = np.array(sized, dtype=np.float64)
        return found / found.sum() if chosen else found

    def _column_sizes(self, some: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """How many pairs each column's error is in, and z of the columns that are measured once more.

        A pair that is measured has the part of it that lies between joined values.
        """
        unmeasured = len(self._problem.domain) - 1 - self._touches[some] * (1.0 - self._problem.column_within)
        if self._problem.column_worth is not None:
            unmeasured = unmeasured * self._problem.column_worth
        sized = (np.maximum(unmeasured, 1.0) * self._problem.column_cells) ** (2 / 3)
        return unmeasured, np.where(self._single[some], sized, 0.0)


MOST_TRIED = 2000
"""The most cliques that are scored: each one adds to the noise of all scores, and takes time."""
FOUND_SHARE, WORKLOAD_SHARE = 0.1, 1 / 3
"""Shares of the amount: what a clique that is found may count on, and what all that is asked for gets together."""
SCORED_SHARE = 0.05
"""What the scores of further cliques get, as a share of that amount: for telling whether they are worth it."""
NOISE_LIMIT, PAIR_NOISE_LIMIT, WORKLOAD_NOISE_LIMIT, NOISE_CEILING = 0.02, 0.1, 0.05, 0.2
"""Values are grouped until noise stirs a fiftieth of the records at most, a tenth in pairs, a twentieth where a clique
was asked for; above a fifth it is left alone. Scores of finer groups hold more noise, and measuring them costs more
than most bring: planted findings are seen more often with a fiftieth than with a twentieth, and tables at large are no
worse for it."""
IMPLIED, DEVIATIONS = 0.5, 2.5
"""The power of the cells with which the noise of an implied pair grows; how far one of many scores must stand out."""
GAIN_FACTOR = 2.0
"""How much more a clique must bring than it costs: the noise of a pair is also in every three columns that hold it."""


@dataclass(frozen=True, slots=True)
class NoiseForecast:
    """What is public when cliques are weighed: what is left to spend, and how many records there are about."""

    amount: float
    rows: int
    total: float

    def noise(self, cells: float, share: float = 1.0) -> float:
        """The expected L1 error of a table of so many cells that gets a share of the amount."""
        return self.scale * cells / math.sqrt(max(share, 1e-12))

    def most_cells(self, share: float, noise_share: float) -> float:
        """The cells in which noise would stir no more than a part of the records, with a share of the amount."""
        return noise_share * self.total / self.noise(1.0, share)

    @property
    def scale(self) -> float:
        """The expected error of one cell that gets all."""
        return DENOISED * math.sqrt(2 / math.pi) * self.rows / math.sqrt(max(self.amount, 1e-300))


def group_workload(
    domain: Domain,
    columns: Sequence[Floats],
    forecast: NoiseForecast,
    workload: Sequence[Clique],
    done: Sequence[Clique],
) -> list[GroupedClique]:
    """What was asked for, each in as many cells as its share keeps out of the noise; none where that is hopeless.

    A pair that is measured anyway is measured in full once more, so that both measurements can be joined. What has too
    many cells loses values to groups: its pairs, which have fewer cells, say more of these.
    """
    share = WORKLOAD_SHARE / max(sum(domain.cells(clique) > 1 for clique in set(workload)), 1)
    most = forecast.most_cells(share, WORKLOAD_NOISE_LIMIT)
    pairs = (pair for own in workload if domain.cells(own) > most for pair in itertools.combinations(own, 2))
    asked = [clique for clique in dict.fromkeys([*workload, *pairs]) if domain.cells(clique) > 1]
    found = [group_clique(domain, columns, clique, math.inf if clique in done else most) for clique in asked]
    return [
        one for one in found if one.clique in done or forecast.noise(one.cells, share) <= NOISE_CEILING * forecast.total
    ]


def group_candidates(
    domain: Domain, columns: Sequence[Floats], forecast: NoiseForecast, done: Sequence[Clique]
) -> list[GroupedClique]:
    """What to score, each in as many cells as the noise allows: all of three columns, and pairs not measured yet.

    Nothing, where a score would have to be as large as the whole table to be told from its noise.
    """
    fewest = _list_smallest(domain, set(done), MOST_TRIED)
    limits = {2: PAIR_NOISE_LIMIT, 3: NOISE_LIMIT}
    most = {way: forecast.most_cells(FOUND_SHARE, limit) for way, limit in limits.items()}
    tried = [group_clique(domain, columns, clique, most[len(clique)]) for clique in fewest]
    found = [one for one in tried if forecast.noise(one.cells, FOUND_SHARE) <= NOISE_CEILING * forecast.total]
    deviation = forecast.rows * math.sqrt(len(found) / (SCORED_SHARE * max(forecast.amount, 1e-300)))
    return found if DEVIATIONS * deviation < forecast.total else []


def _list_smallest(domain: Domain, done: set[Clique], most: int) -> list[Clique]:
    """The cliques of two and three columns with the fewest cells that are not done: of columns with several values."""
    sizes = np.array(domain.sizes, dtype=np.float64)
    found: list[tuple[int, Clique]] = []
    for way in (2, 3):
        every = np.array(domain.useful(way), dtype=np.int64).reshape(-1, way)
        shapes = sizes[every]
        cells = np.where(shapes.min(axis=1, initial=np.inf) > 1, shapes.prod(axis=1), np.inf)
        near = np.argsort(cells, kind="stable")[: most + len(done)]
        listed = [(int(cells[i]), tuple(map(int, every[i]))) for i in near if cells[i] < np.inf]
        found += [each for each in listed if each[1] not in done]
    return [clique for _, clique in sorted(found)[:most]]


def expect_counts(one: GroupedClique, estimates: Estimates, implied: ImpliedTables) -> Floats:
    """What the pairs tell of a clique by groups: the table that their tree implies, with all pairs as estimated."""
    margins = margins_within(one.clique, estimates.columns, estimates.tables)
    by_group = {axes: sum_by_group(margin, tuple(one.maps[axis] for axis in axes)) for axes, margin in margins.items()}
    return fit_margins(implied.table(one.clique, one.maps), by_group, rounds=20)


def discount_noise(
    cliques: Sequence[GroupedClique], scores: Floats, deviation: float, pairs: Sequence[Marginal]
) -> Floats:
    """Scores less what noise explains: its own deviations, and the errors of the pairs in the expectation."""
    variances = {marginal.clique: marginal.variance for marginal in pairs if not marginal.maps}
    found = []
    for one, score in zip(cliques, scores, strict=True):
        within = [_pair_error(one, axes, variances) for axes in itertools.combinations(range(len(one.clique)), 2)]
        found.append(score - DEVIATIONS * deviation - math.hypot(*within))
    return np.maximum(np.array(found, dtype=np.float64), 0.0)


def _pair_error(one: GroupedClique, axes: tuple[int, ...], variances: Mapping[Clique, float]) -> float:
    """The expected L1 error of a pair by groups: in each group the variances of its cells add up."""
    pair = tuple(one.clique[axis] for axis in axes)
    roots = [float(np.sqrt(np.bincount(np.array(one.maps[axis]))).sum()) for axis in axes]
    if pair in variances:
        return DENOISED * math.sqrt(2 * variances[pair] / math.pi) * math.prod(roots)
    # What is implied is a mean over the columns between, and has the noise of a table no larger than one of its sides.
    variance = max(variances.values(), default=0.0)
    return DENOISED * math.sqrt(2 * variance / math.pi) * math.prod(roots) ** IMPLIED


def select_larger_cliques(
    cliques: Sequence[GroupedClique], gains: Floats, sized: float, forecast: NoiseForecast
) -> tuple[list[GroupedClique], list[float]]:
    """The cliques that lower the expected error, and their parts beside `sized` for all that was chosen before.

    With parts z = c^(2/3) of a sum Z, noise adds up to scale Z^(3/2) (see `select_pairs`), so a clique costs what
    Z^(3/2) grows by. Cliques are taken by gain a part; one of three gains only what is beyond its pairs, and a pair
    within a chosen one nothing.
    """
    parts = np.array([float(one.cells) for one in cliques]) ** (2 / 3)
    gains = _subtract_pairs(cliques, gains)
    whole, taken = sized, list[int]()
    for i in np.argsort(-gains / np.maximum(parts, 1.0), kind="stable"):
        own = set(cliques[i].clique)
        if any(own < set(cliques[j].clique) for j in taken):
            continue
        factor = GAIN_FACTOR if len(cliques[i].clique) > 2 else 1.0
        if gains[i] > factor * forecast.scale * ((whole + parts[i]) ** 1.5 - whole**1.5):
            taken.append(int(i))
            whole += parts[i]
    return [cliques[i] for i in taken], [float(parts[i]) for i in taken]


def _subtract_pairs(cliques: Sequence[GroupedClique], gains: Floats) -> Floats:
    """Gains of larger cliques less those of the pairs in them that could be measured instead."""
    pairs = {one.clique: float(gain) for one, gain in zip(cliques, gains, strict=True) if len(one.clique) == 2}
    within = [
        sum(pairs.get(pair, 0.0) for pair in itertools.combinations(one.clique, 2)) if len(one.clique) > 2 else 0.0
        for one in cliques
    ]
    beyond: Floats = np.maximum(gains - np.array(within), 0.0)
    return beyond


def weigh_workload(asked: Sequence[GroupedClique], sized: float) -> list[float]:
    """Parts of what was asked for: together the share `WORKLOAD_SHARE` of all, among themselves as noise is least."""
    parts = [one.cells ** (2 / 3) for one in asked]
    scale = sized * WORKLOAD_SHARE / (1 - WORKLOAD_SHARE) / sum(parts) if parts and sized > 0 else 1.0
    return [part * scale for part in parts]
