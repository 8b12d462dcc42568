"""The greedy choice of pairs against a naive twin that prices every trial from the beginning."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from deniable.dp.samplers import SYSTEM
from deniable.policy.budget import ApproxDP
from deniable.synth.bins import CollapsedDomain
from deniable.synth.describe import check_double_entry
from deniable.synth.domain import Domain
from deniable.synth.marginal import convert_budget
from deniable.synth.measure import measure_columns, score_pairs
from deniable.synth.methods import METHODS, run_method
from deniable.synth.select import DENOISED, SelectionProblem, select_pairs


def _problem(seed: int) -> SelectionProblem:
    generator = np.random.default_rng(seed)
    columns = int(generator.integers(2, 8))
    sizes = tuple(int(size) for size in generator.integers(1, 20, columns))
    pairs = list(itertools.combinations(range(columns), 2))
    scores, errors = generator.normal(200, 300, len(pairs)), generator.random(columns) * 100 + 1
    cells = np.array(sizes) * generator.integers(1, 4, columns).astype(float)
    domain = Domain(tuple(f"c{i}" for i in range(columns)), sizes)
    within = generator.random(columns)
    return SelectionProblem(domain, pairs, scores, cells, errors, within, float(10 ** generator.uniform(-3, 0)), 1, 1e4)


def _priced(problem: SelectionProblem, chosen: list[tuple[int, ...]]) -> tuple[float, list[float]]:
    """The expected error of a choice and its shares, clique by clique."""
    columns = len(problem.domain)
    left = [pair for pair in problem.pairs if pair not in chosen]
    cells, sized = [], []
    for clique in chosen:
        cells.append(problem.domain.cells(clique) if len(clique) == 2 else problem.column_cells[clique[0]])
        hidden = sum(
            problem.column_within[clique[0]] for pair in problem.pairs if pair not in left and clique[0] in pair
        )
        weight = 1 if len(clique) == 2 else max(sum(clique[0] in pair for pair in left) + hidden, 1)
        sized.append((weight * cells[-1]) ** (2 / 3))
    shares = [size / sum(sized) for size in sized]
    scale = DENOISED * math.sqrt(2 / math.pi) * problem.rows / math.sqrt(problem.amount)
    noise = [scale * c / math.sqrt(share) for c, share in zip(cells, shares, strict=True)]
    alone = list(problem.column_errors)
    for clique, own in zip(chosen, noise, strict=True):
        if len(clique) == 1:
            alone[clique[0]] = 1 / math.sqrt(1 / alone[clique[0]] ** 2 + 1 / own**2)
    error = sum(own for clique, own in zip(chosen, noise, strict=True) if len(clique) == 2)
    error += sum(
        alone[place] * problem.column_within[place] for pair in problem.pairs if pair not in left for place in pair
    )
    score = dict(zip(problem.pairs, problem.scores, strict=True))
    assert columns > 1
    return error + sum(max(score[a, b], 0) + alone[a] + alone[b] for a, b in left), shares


@pytest.mark.parametrize("seed", range(25))
def test_the_choice_is_the_naive_twins(seed: int) -> None:
    problem = _problem(seed)
    singles = [(place,) for place in range(len(problem.domain)) if problem.column_cells[place] > 1]
    candidates = [*problem.pairs, *singles]
    chosen: list[tuple[int, ...]] = []
    best, shares = _priced(problem, chosen)
    while open_ones := [clique for clique in candidates if clique not in chosen]:
        trial = min(open_ones, key=lambda clique: _priced(problem, [*chosen, clique])[0])
        error, thinner = _priced(problem, [*chosen, trial])
        if error >= best * (1 - 1e-9):
            break
        chosen, best, shares = [*chosen, trial], error, thinner
    found = select_pairs(problem)
    assert list(found.cliques) == chosen
    assert found.shares == pytest.approx(shares)


@pytest.mark.parametrize("method", ["auto", "mst", "correlated", "mwem"])
@pytest.mark.parametrize("sizes", [(1, 2, 3), (1, 4), (1, 1), (1, 1, 5)])
def test_nothing_is_spent_on_tables_that_say_no_more_than_a_column(method: str, sizes: tuple[int, ...]) -> None:
    codes = np.stack([np.arange(600) % size for size in sizes]).astype(np.int32)
    domain = Domain(tuple(f"c{i}" for i in range(len(sizes))), sizes)
    found = run_method(codes, domain, METHODS[method], convert_budget(ApproxDP(5, 1e-6), 1), workload=((0, 1),))
    asked = (0, 1) if sizes[1] > 1 else None
    assert all(min(marginal.counts.shape) > 1 for marginal in found.cliques if marginal.clique != asked)
    assert all(marginal.counts.size > 1 for marginal in found.cliques)
    check_double_entry(found.event, ApproxDP(5, 1e-6))


@pytest.mark.parametrize("epsilon", [1, 0.02])
def test_no_pair_is_scored_with_a_column_whose_values_were_all_joined(epsilon: float) -> None:
    codes = np.stack([np.arange(400) % size for size in (30, 2, 3)]).astype(np.int32)
    domain = Domain(("day", "a", "b"), (30, 2, 3), frozenset({0}))
    maps = (np.zeros(30, dtype=np.int32), np.arange(2, dtype=np.int32), np.arange(3, dtype=np.int32))
    collapsed = CollapsedDomain(domain.resize((1, 2, 3)), maps)
    spend = convert_budget(ApproxDP(epsilon, 1e-6), 1)
    one_way = measure_columns(codes, domain, spend, 0.2, SYSTEM)
    problem, _ = score_pairs(codes, collapsed, one_way, spend, 0.1, 0.7, SYSTEM)
    assert problem.pairs == [(1, 2)]
    # Days are looked at in 16 stretches. How much of the error lies within what was joined does not hang on the noise.
    assert problem.column_within == pytest.approx([1 - math.sqrt(30) / math.sqrt(30 * 16), 0, 0])


def test_at_a_hopeless_budget_nothing_is_measured_and_the_reason_says_so() -> None:
    held = _problem(3)
    hopeless = replace(held, amount=1e-12)
    found = select_pairs(hopeless)
    assert found.cliques == ()
    assert "independent" in found.reason
