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
from deniable.synth.estimate import Estimates, ImpliedTables, find_spanning_tree, margins_within
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
    return Selection(
        tuple(candidates[i] for i in chosen), shares, _explain_pairs(chosen, len(problem.pairs), start, best)
    )


MOST_PAIRS = 0.35
"""If more than this share of all pairs pays, they are measured at once, without a tree first. Found by trial on the
twelve tables of `bench/synth.py --tables`."""
SCORE_DEVIATIONS = 2.0
"""How far a pair's score must stand out of its noise to count: many are scored, and chance makes some large."""
TREE_WORTH = 2.0
"""How much more a pair of the tree brings than its own error, at least: what it joins is implied through it."""


def select_tree(problem: SelectionProblem) -> Selection:
    """The pairs of a spanning tree that pay, and columns once more: what every table is drawn along.

    Where many pairs pay beyond what the tree implies of them, or by chance alone, all that do. What is implied is
    drawn, so it differs from the real counts by chance at least, as far as its score does.
    """
    tree, scores = _find_tree(problem)
    problem = replace(problem, scores=scores)
    implied, weights = follow_tree(problem, tree)
    problem = replace(problem, weights=weights)
    drawn = np.sqrt([2 * problem.total * problem.domain.cells(pair) / math.pi for pair in problem.pairs])
    beyond = np.maximum(problem.scores - implied, np.minimum(problem.scores, drawn))
    worth = np.maximum(beyond * [weights.get(pair, 1.0) for pair in problem.pairs], _gain_by_chance(problem))
    every = select_pairs(replace(problem, scores=worth))
    if sum(len(clique) == 2 for clique in every.cliques) > MOST_PAIRS * len(problem.pairs):
        return every
    kept = [place for place, pair in enumerate(problem.pairs) if pair in weights]
    pairs = [problem.pairs[place] for place in kept]
    worth = problem.scores[kept] * [max(TREE_WORTH, weights[pair]) for pair in pairs]
    return select_pairs(replace(problem, pairs=pairs, scores=worth))


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
    trusted = {p: s - SCORE_DEVIATIONS * d for p, s, d in zip(fit.pairs, fit.scores, fit.deviations, strict=True)}
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


def parts_of(problem: SelectionProblem, chosen: Selection) -> list[float]:
    """The parts z = (w c)^(2/3) from which the shares of a choice were made: w is 1 for a pair, and for a column the
    number of pairs with it that are not measured, and of the others what lies between joined values."""
    found = []
    for clique in chosen.cliques:
        measured = sum(clique[0] in other for other in chosen.cliques if len(other) == 2)
        open_pairs = len(problem.domain) - 1 - measured * (1.0 - float(problem.column_within[clique[0]]))
        single = max(open_pairs, 1.0) * float(problem.column_cells[clique[0]])
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
IMPLIED = 0.5
"""The power of the cells with which the noise of an implied pair grows."""
DEVIATIONS = 2.5
"""How far a score must stand out of its noise: many are tried."""
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

    A pair that is measured anyway is measured in full once more, so that both measurements can be joined.
    """
    asked = [clique for clique in dict.fromkeys(workload) if domain.cells(clique) > 1]
    share = WORKLOAD_SHARE / max(len(asked), 1)
    most = forecast.most_cells(share, WORKLOAD_NOISE_LIMIT)
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


# The tree of pairs that says most of all scores, not of its own alone.
#
# Where many columns are scored with noise, the strongest pairs (Kruskal) are those that noise favors: a chain is cut
# into pieces that hang together by pairs two and three columns apart, and what a tree implies of every other pair is
# weak. But in a tree each score is a product along a way, so all scores tell where a column stands. Hence, of the
# pairs that noise cannot tell from the strongest between two parts, the one is taken with which the tree explains the
# scores best.
#
# The strength of a pair is its score over the root of the scores that its two columns would have with themselves. Two
# columns of two values have the size of their correlation as strength, and strengths multiply along a tree exactly;
# else about. Let m be those roots, I what the tree implies within each of two parts, and S the scores between them. A
# pair (a, b) of strength w implies w u v' of them, with u = m I(a) and v = m I(b): the squared differences are least
# for w = u'Sv / (|u|^2 |v|^2), and fall by (u'Sv)^2 / (|u|^2 |v|^2), for all pairs at once by two products of
# matrices. Pairs without a score count for nothing and are never taken.
#
# All of it is made of noisy scores and public numbers.

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
