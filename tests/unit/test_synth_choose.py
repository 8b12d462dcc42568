"""The greedy choice of pairs against a naive twin that prices every trial from the beginning."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from deniable.synth.choose import DENOISED, Problem, worthwhile
from deniable.synth.domain import Domain


def _problem(seed: int) -> Problem:
    generator = np.random.default_rng(seed)
    columns = int(generator.integers(2, 8))
    sizes = tuple(int(size) for size in generator.integers(1, 20, columns))
    pairs = list(itertools.combinations(range(columns), 2))
    scores, errors = generator.normal(200, 300, len(pairs)), generator.random(columns) * 100 + 1
    cells = np.array(sizes) * generator.integers(1, 4, columns).astype(float)
    domain = Domain(tuple(f"c{i}" for i in range(columns)), sizes)
    return Problem(domain, pairs, scores, cells, errors, float(10 ** generator.uniform(-3, 0)), 1, 1e4)


def _priced(problem: Problem, chosen: list[tuple[int, ...]]) -> tuple[float, list[float]]:
    """The expected error of a choice and its shares, clique by clique."""
    columns = len(problem.domain)
    left = [pair for pair in problem.pairs if pair not in chosen]
    cells, sized = [], []
    for clique in chosen:
        cells.append(problem.domain.cells(clique) if len(clique) == 2 else problem.column_cells[clique[0]])
        weight = 1 if len(clique) == 2 else max(sum(clique[0] in pair for pair in left), 1)
        sized.append((weight * cells[-1]) ** (2 / 3))
    shares = [size / sum(sized) for size in sized]
    scale = DENOISED * math.sqrt(2 / math.pi) * problem.rows / math.sqrt(problem.amount)
    noise = [scale * c / math.sqrt(share) for c, share in zip(cells, shares, strict=True)]
    alone = list(problem.column_errors)
    for clique, own in zip(chosen, noise, strict=True):
        if len(clique) == 1:
            alone[clique[0]] = 1 / math.sqrt(1 / alone[clique[0]] ** 2 + 1 / own**2)
    error = sum(own for clique, own in zip(chosen, noise, strict=True) if len(clique) == 2)
    score = dict(zip(problem.pairs, problem.scores, strict=True))
    assert columns > 1
    return error + sum(max(score[a, b], 0) + alone[a] + alone[b] for a, b in left), shares


@pytest.mark.parametrize("seed", range(25))
def test_the_choice_is_the_naive_twins(seed: int) -> None:
    problem = _problem(seed)
    candidates = [*problem.pairs, *((place,) for place in range(len(problem.domain)))]
    chosen: list[tuple[int, ...]] = []
    best, shares = _priced(problem, chosen)
    while open_ones := [clique for clique in candidates if clique not in chosen]:
        trial = min(open_ones, key=lambda clique: _priced(problem, [*chosen, clique])[0])
        error, thinner = _priced(problem, [*chosen, trial])
        if error >= best * (1 - 1e-9):
            break
        chosen, best, shares = [*chosen, trial], error, thinner
    found = worthwhile(problem)
    assert list(found.cliques) == chosen
    assert found.shares == pytest.approx(shares)


def test_at_a_hopeless_budget_nothing_is_measured_and_the_reason_says_so() -> None:
    held = _problem(3)
    hopeless = Problem(held.domain, held.pairs, held.scores, held.column_cells, held.column_errors, 1e-12, 1, 1e4)
    found = worthwhile(hopeless)
    assert found.cliques == ()
    assert "independent" in found.reason
