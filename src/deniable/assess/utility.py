"""Utility: how far a synthetic table is from the real one, in marginals of one to three columns and in a classifier.

Both tables come coded over one domain. These are comparisons with real rows: for the steward, not for release.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable.synth.attributes import Bins, Coded
from deniable.synth.collapse import Collapsed
from deniable.synth.domain import Clique, Domain
from deniable.synth.marginal import Codes, count

MOST_CLIQUES = 2000
"""Of more cliques than this, as many are taken at equal distances along their list."""
MOST_RECORDS = 20_000
STRETCHES = 16
TURNS = 300
PENALTY = 1e-4

Numbers = NDArray[np.float64]


def yardstick(attributes: Sequence[Coded]) -> Collapsed:
    """What tables are compared over: every listed value, and numbers and dates in up to 16 equal stretches.

    It follows from the policy and not from what a model joined: a model that joins everything must not look perfect.
    """
    maps = tuple(_stretched(a) if isinstance(a, Bins) else np.arange(a.size, dtype=np.int32) for a in attributes)
    sizes = tuple(int(mapping.max()) + 1 for mapping in maps)
    return Collapsed(Domain(tuple(a.name for a in attributes), sizes), maps)


def _stretched(attribute: Bins) -> NDArray[np.int32]:
    """Each bin to the stretch in which it begins, without gaps; null stays apart."""
    begins = np.array(attribute.cuts[:-1], dtype=np.int64) * STRETCHES // attribute.steps
    codes = np.unique(begins, return_inverse=True)[1].astype(np.int32)
    return np.append(codes, codes[-1] + 1).astype(np.int32) if attribute.nullable else codes


@dataclass(frozen=True, slots=True)
class Variation:
    """Total variation over all cliques of so many columns, the worst of them first."""

    way: int
    cliques: int
    mean: float
    worst: tuple[tuple[tuple[str, ...], float], ...]

    @property
    def score(self) -> float:
        """The k-marginal score of NIST's SDNist: 1000 is agreement everywhere, 0 none."""
        return 1000 * (1 - self.mean)


@dataclass(frozen=True, slots=True)
class Classified:
    """How often a logistic regression is right on real records it has not seen, by what it was trained on."""

    target: str
    on_real: float
    on_synthetic: float
    majority: float
    """How often the most frequent value would have been right."""


def distance(real: Codes, made: Codes, domain: Domain, clique: Clique) -> float:
    """Total variation of one marginal: half the summed differences of shares; 1 where one table has no rows."""
    if not real.shape[1] or not made.shape[1]:
        return 0.0 if real.shape[1] == made.shape[1] else 1.0
    shares = [count(codes, domain, clique) / codes.shape[1] for codes in (real, made)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def variation(real: Codes, made: Codes, domain: Domain, way: int, worst: int = 5) -> Variation | None:
    """All marginals of so many columns; none where the table has fewer."""
    cliques: list[Clique] = list(itertools.combinations(range(len(domain)), way))
    taken = [
        cliques[i] for i in np.unique(np.linspace(0, len(cliques) - 1, min(len(cliques), MOST_CLIQUES), dtype=int))
    ]
    if not taken:
        return None
    found = {clique: distance(real, made, domain, clique) for clique in taken}
    farthest = sorted(found, key=lambda clique: -found[clique])[:worst]
    named = tuple((tuple(domain.names[place] for place in clique), found[clique]) for clique in farthest)
    return Variation(way, len(taken), float(np.mean(list(found.values()))), named)


@dataclass(frozen=True, slots=True)
class Workload:
    """Total variation of marginals that somebody asked for, each and on average."""

    mean: float
    marginals: tuple[tuple[tuple[str, ...], float], ...]


def workload(real: Codes, made: Codes, domain: Domain, cliques: Sequence[Clique]) -> Workload | None:
    """The error of a given list of marginals; none where none is given."""
    found = [(tuple(domain.names[place] for place in c), distance(real, made, domain, c)) for c in cliques]
    return Workload(float(np.mean([far for _, far in found])), tuple(found)) if found else None


def default_target(domain: Domain, among: Sequence[str] | None = None) -> str | None:
    """The last column (of those named) with two to ten values."""
    sized = zip(domain.names, domain.sizes, strict=True)
    fit = [name for name, size in sized if 2 <= size <= 10 and (among is None or name in among)]
    return fit[-1] if fit else None


def classified(real: Codes, made: Codes, domain: Domain, target: str, seed: int = 0) -> Classified | None:
    """Train on half of the real records and on as many synthetic ones, test on the other half; none on a few rows."""
    half = min(real.shape[1] // 2, MOST_RECORDS)
    if half < 2 or not made.shape[1]:
        return None
    generator = np.random.default_rng(seed)
    order = generator.permutation(real.shape[1])
    seen, tested = real[:, order[:half]], real[:, order[half : 2 * half]]
    drawn = made[:, generator.permutation(made.shape[1])[:half]]
    place = domain.names.index(target)
    rates = [_right(_trained(codes, domain, place), tested, domain, place) for codes in (seen, drawn)]
    frequent = int(np.bincount(seen[place]).argmax())
    return Classified(target, rates[0], rates[1], float((tested[place] == frequent).mean()))


def _features(codes: Codes, domain: Domain, target: int) -> Numbers:
    """One column for each value of each column but the target, and a constant one."""
    columns = [np.ones((codes.shape[1], 1))]
    columns += [np.eye(size)[codes[place]] for place, size in enumerate(domain.sizes) if place != target]
    return np.concatenate(columns, axis=1)


def _trained(codes: Codes, domain: Domain, target: int) -> Numbers:
    """Weights of a softmax regression, by gradient descent with momentum (Nesterov 1983).

    With one-hot features a record's features have squared norm of at most the number of columns, so the gradient of
    the mean loss changes at most half as fast: that bound is the step.
    """
    features, wanted = _features(codes, domain, target), np.eye(domain.sizes[target])[codes[target]]
    step = 2.0 / len(domain)
    weights = ahead = np.zeros((features.shape[1], wanted.shape[1]))
    for turn in range(TURNS):
        gradient = features.T @ (_softmax(features @ ahead) - wanted) / len(features) + PENALTY * ahead
        moved = ahead - step * gradient
        ahead = moved + turn / (turn + 3) * (moved - weights)
        weights = moved
    return weights


def _softmax(scores: Numbers) -> Numbers:
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Numbers = raised / raised.sum(axis=1, keepdims=True)
    return shares


def _right(weights: Numbers, codes: Codes, domain: Domain, target: int) -> float:
    guessed = (_features(codes, domain, target) @ weights).argmax(axis=1)
    return float((guessed == codes[target]).mean())
