"""Drawing records from estimates: along a tree first, then nudged until every measured pair fits.

Estimates with cliques of three are a network, and are drawn family by family (`conditional`).

This is post-processing of public numbers, so it may be seeded. Counts are rounded with little variance (whole parts
first, the rest by lot), and records within a group are shuffled, so that no order of the making shows.
"""

from __future__ import annotations

import numpy as np

from deniable.synth.choose import spanning_tree
from deniable.synth.conditional import along_cliques, children, from_column
from deniable.synth.domain import Clique, Domain
from deniable.synth.estimate import Estimates
from deniable.synth.marginal import Codes

ROUNDS = 60
STEP, DECAY = 0.5, 0.95
MOST_COPIED = 0.35


def copied(noise: float) -> float:
    """The share of moved records that copy a whole record of their new cell instead of changing two values.

    Copying keeps what other columns have to do with the pair, and repeats the noise that is in it; found by trial on
    pairs with noise between 1% and 5%.
    """
    return float(min(MOST_COPIED, 0.1 * (0.03 / max(noise, 1e-6)) ** 1.6))


def draw(
    estimates: Estimates, domain: Domain, records: int, seed: int | tuple[int, ...], rounds: int = ROUNDS
) -> Codes:
    """So many records over the collapsed domain."""
    generator = np.random.default_rng(seed)
    if any(len(clique) > 2 for clique in estimates.tables):
        return along_cliques(estimates, domain, records, generator)
    codes = _along_tree(estimates, domain, records, generator)
    if records and _has_cycle(estimates, domain):
        _nudge(codes, estimates, domain, generator, rounds)
    return codes


def _has_cycle(estimates: Estimates, domain: Domain) -> bool:
    pairs = list(estimates.tables)
    return len(spanning_tree(len(domain), pairs, np.ones(len(pairs)))) < len(pairs)


def _strength(estimates: Estimates, pair: Clique) -> float:
    expected = np.outer(estimates.columns[pair[0]], estimates.columns[pair[1]]) / estimates.total
    return float(np.abs(estimates.tables[pair] - expected).sum()) + 1e-9


def _along_tree(estimates: Estimates, domain: Domain, records: int, generator: np.random.Generator) -> Codes:
    pairs = list(estimates.tables)
    strengths = np.array([_strength(estimates, pair) for pair in pairs])
    neighbors: dict[int, list[int]] = {place: [] for place in range(len(domain))}
    for a, b in spanning_tree(len(domain), pairs, strengths):
        neighbors[a].append(b)
        neighbors[b].append(a)
    codes = np.zeros((len(domain), records), dtype=np.int32)
    done: set[int] = set()
    for root in sorted(neighbors, key=lambda place: -len(neighbors[place])):
        if root not in done:
            codes[root] = from_column(estimates.columns[root], records, generator)
            _descend(root, neighbors, estimates, codes, done, generator)
    return codes


def _descend(
    root: int,
    neighbors: dict[int, list[int]],
    estimates: Estimates,
    codes: Codes,
    done: set[int],
    generator: np.random.Generator,
) -> None:
    done.add(root)
    waiting = [root]
    while waiting:
        parent = waiting.pop()
        for child in neighbors[parent]:
            if child not in done:
                done.add(child)
                waiting.append(child)
                joint = estimates.tables.get((parent, child))
                table = joint if joint is not None else estimates.tables[(child, parent)].T
                codes[child] = children(codes[parent], table, generator)


def _nudge(codes: Codes, estimates: Estimates, domain: Domain, generator: np.random.Generator, rounds: int) -> None:
    """Gradual update (Zhang et al. 2021, PrivSyn): move records from cells with too many to cells with too few."""
    from deniable.synth.kernels import moved

    records = codes.shape[1]
    targets = {pair: table.ravel() * (records / table.sum()) for pair, table in estimates.tables.items()}
    pairs = list(targets)
    share = copied(estimates.noise)
    state = generator.integers(0, 2**63, 1, dtype=np.uint64)
    for turn in range(rounds):
        step = STEP * DECAY**turn
        for i in generator.permutation(len(pairs)):
            a, b = pairs[i]
            moved(codes, a, b, domain.sizes[b], targets[pairs[i]], step, share, state)
