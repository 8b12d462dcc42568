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
from deniable.synth.generate import draw_records, restore_codes
from deniable.synth.marginal import Codes, convert_budget, count
from deniable.synth.measure import measure_columns, score_pairs
from deniable.synth.methods import METHODS, run_method
from deniable.synth.select import (
    DENOISED,
    Selection,
    SelectionProblem,
    _average_scores,
    _find_tree,
    _trust_shown_scores,
    find_copies,
    follow_tree,
    parts_of,
    select_pairs,
    select_tree,
)
from seeded import SeededEntropy


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


def chain_problem(amount: float, columns: int = 8, strength: float = 0.7) -> SelectionProblem:
    """Exact scores of columns of four values, each of which is the one before with a chance, and else any."""
    domain, total = Domain(tuple(f"c{i}" for i in range(columns)), (4,) * columns), 3000.0
    pairs = list(itertools.combinations(range(columns), 2))
    scores = np.array([1.5 * total * strength ** (b - a) for a, b in pairs])
    errors = np.full(columns, 0.02 * total)
    return SelectionProblem(
        domain, pairs, scores, np.full(columns, 4.0), errors, np.zeros(columns), amount, 1, total, (4.0,) * columns
    )


def test_a_chain_implies_the_product_of_its_strengths_and_its_middle_weighs_most() -> None:
    problem = chain_problem(0.01)
    tree = [(i, i + 1) for i in range(7)]
    implied, weights = follow_tree(problem, tree)
    expected = [0.0 if pair in tree else score for pair, score in zip(problem.pairs, problem.scores, strict=True)]
    assert implied == pytest.approx(expected)
    # Through the first pair lead the ways from the first column to all behind the second, and no others.
    assert weights[0, 1] == pytest.approx(sum(0.7**steps for steps in range(7)))
    assert weights[3, 4] == pytest.approx(sum(0.7**before * 0.7**behind for before in range(4) for behind in range(4)))


def test_parts_of_a_forest_imply_nothing_of_one_another() -> None:
    problem = chain_problem(0.01, columns=4)
    implied, weights = follow_tree(problem, [(0, 1), (2, 3)])
    assert not implied.any()
    assert weights == {(0, 1): 1.0, (2, 3): 1.0}


def test_pairs_that_a_chain_implies_are_not_measured_until_noise_is_less_than_chance() -> None:
    poor, rich = (
        [clique for clique in select_tree(chain_problem(amount)).cliques if len(clique) == 2] for amount in (0.02, 5.0)
    )
    assert sorted(poor) == [(i, i + 1) for i in range(7)]
    assert len(rich) > 20


def make_chain(records: int, columns: int) -> Codes:
    generator = np.random.default_rng(11)
    made = [generator.integers(0, 4, records)]
    for _ in range(columns - 1):
        made.append(np.where(generator.random(records) < 0.7, made[-1], generator.integers(0, 4, records)))
    return np.stack(made).astype(np.int32)


def test_on_a_chain_of_columns_auto_is_as_good_as_a_tree() -> None:
    codes = make_chain(3000, 10)
    domain = Domain(tuple(f"c{i}" for i in range(10)), (4,) * 10)

    def error(method: str, seed: int) -> float:
        description = run_method(codes, domain, METHODS[method], convert_budget(ApproxDP(1, "1e-9"), 1))
        drawn = draw_records(description.estimates, description.collapsed.domain, codes.shape[1], seed)
        made = restore_codes(description, drawn, seed)
        pairs = itertools.combinations(range(10), 2)
        return float(np.mean([np.abs(count(codes, domain, p) - count(made, domain, p)).sum() / 6000 for p in pairs]))

    auto, mst = (np.mean([error(method, seed) for seed in range(8)]) for method in ("auto", "mst"))
    assert auto < 1.2 * mst  # without what the tree implies it is 1.4 to 1.5 times


@pytest.mark.parametrize("amount", [1.0, 1e-4])
def test_a_pair_that_shows_nothing_is_measured_where_chance_is_larger_than_the_noise(amount: float) -> None:
    """Of 3,000 rows a pair of four values each differs from independence by 131 records on average."""
    chain = chain_problem(amount)
    nothing = np.zeros(len(chain.pairs))
    lone = replace(chain, scores=nothing, column_errors=np.ones(8), chance=nothing + 131.0)
    assert not [clique for clique in select_tree(replace(lone, chance=nothing)).cliques if len(clique) == 2]
    measured = [clique for clique in select_tree(lone).cliques if len(clique) == 2]
    assert sorted(measured) == (chain.pairs if amount == 1.0 else [])


def test_on_few_rows_with_much_budget_chance_is_kept_in_all_pairs_of_few_values() -> None:
    """Independent columns: what drawn rows would differ by is sampling alone, of the real rows and of theirs."""
    codes = np.random.default_rng(5).integers(0, 3, (6, 1000)).astype(np.int32)
    domain = Domain(tuple("abcdef"), (3,) * 6)
    found = run_method(codes, domain, METHODS["auto"], convert_budget(ApproxDP(10, 1e-9), 1))
    made = restore_codes(found, draw_records(found.estimates, found.collapsed.domain, 1000, 3), 3)
    pairs = list(itertools.combinations(range(6), 2))
    apart = [np.abs(count(codes, domain, pair) - count(made, domain, pair)).sum() / 2000 for pair in pairs]
    assert sum(len(marginal.clique) == 2 for marginal in found.cliques) >= 13
    assert float(np.mean(apart)) < 0.02


def copies_problem(copies: int, columns: int, values: int = 10, total: float = 20_000.0) -> SelectionProblem:
    """Columns of which the first are equal, and the others depend on nothing, with the scores that chance makes."""
    pairs = list(itertools.combinations(range(columns), 2))
    domain = Domain(tuple(f"c{place}" for place in range(columns)), (values,) * columns)
    spans = np.full(columns, math.sqrt(2 * total * (1 - 1 / values)))
    chance = np.full(len(pairs), math.sqrt(2 * total / math.pi) * (values - 1))
    found = np.array([spans[0] ** 2 * 0.999 if b < copies else chance[0] / 10 for _, b in pairs])
    known = (domain, pairs, found, np.full(columns, 10.0), np.full(columns, 30.0), np.zeros(columns))
    return SelectionProblem(*known, 1.0, 1, total, told=found, spans=spans, deviation=5.0, chance=chance)


def test_one_of_several_equal_columns_is_measured_with_the_others() -> None:
    chosen = [clique for clique in select_tree(copies_problem(4, 8)).cliques if len(clique) == 2]
    within = [pair for pair in chosen if pair[1] < 4]
    led = {pair[0] for pair in chosen if pair[0] < 4 <= pair[1]}
    assert len(within) == 3, "a tree of the copies"
    assert len(led) == 1, "one speaks for all"
    assert {pair for pair in chosen if pair[0] >= 4} == set(itertools.combinations(range(4, 8), 2))


def test_copies_imply_what_one_of_them_says_and_no_others_do() -> None:
    problem = copies_problem(3, 5)
    copies = find_copies(problem, ((0, 1), (1, 2), (2, 3), (0, 4)))
    told = dict(zip(problem.pairs, zip(copies.implied, copies.loose, copies.weights, strict=True), strict=True))
    led = [pair for pair in copies.tree if pair[1] > 2]
    assert len({pair[0] for pair in led}) == 1
    assert all(told[pair][:2] == (0.0, 1.0) and told[pair][2] > 2.9 for pair in led), "each speaks for three"
    assert told[0, 2][0] == pytest.approx(0.999**2 * problem.spans[0] ** 2)  # type: ignore[index]
    assert told[0, 2][1] == pytest.approx(math.sqrt(1 - 0.999**4))
    apart = find_copies(replace(problem, scores=problem.scores * 0.8), ((0, 1), (1, 2)))
    assert apart.tree == ((0, 1), (1, 2))
    assert not apart.implied.any()
    assert set(apart.loose) == {1.0} == set(apart.weights)


def test_columns_that_the_tree_joins_get_less_of_their_own() -> None:
    known = replace(chain_problem(1e-3), column_errors=np.full(8, 1000.0))
    tree = [place for place, (a, b) in enumerate(known.pairs) if b - a == 1]
    known = replace(known, pairs=[known.pairs[place] for place in tree], scores=known.scores[tree])
    problem = replace(known, column_worth=np.full(8, 0.5))
    whole, half = select_pairs(known), select_pairs(problem)

    def share(chosen: Selection) -> float:
        return sum(share for clique, share in zip(chosen.cliques, chosen.shares, strict=True) if len(clique) == 1)

    assert 0 < share(half) < share(whole)
    assert parts_of(problem, half) != parts_of(problem, replace(half, column_worth=None))


def test_where_most_of_a_tree_stands_out_less_is_asked_of_the_rest() -> None:
    """The last pair of a chain shows 1.6 deviations: it is trusted beside strong pairs, and not by itself."""
    problem = replace(chain_problem(1.0, columns=5), spans=np.full(5, 200.0))
    near = {pair: 200.0**2 * 0.7 ** (pair[1] - pair[0]) for pair in problem.pairs}
    last = {(place, 4): 1200.0 * 0.7 ** (3 - place) for place in range(4)}
    weak, alone = near | last, dict.fromkeys(near, 0.0) | last
    for told, trusted in ((weak, True), (alone, False)):
        scores = np.array([told[pair] for pair in problem.pairs])
        known = replace(problem, told=scores, scores=scores - 2000.0, deviation=1000.0)
        assert ((3, 4) in _find_tree(known)[0]) is trusted


def test_where_most_pairs_show_more_than_the_tree_implies_a_score_counts_as_it_was_told() -> None:
    """The last pair is told 1.8 deviations of its noise: it pays beside pairs that all show, and not beside none."""
    columns, total = 6, 20_000.0
    domain, pairs = Domain(tuple("abcdef"), (4,) * columns), list(itertools.combinations(range(columns), 2))
    cells, errors, spans = (np.full(columns, each) for each in (4.0, 100.0, math.sqrt(1.5 * total)))
    for beside, measured in ((4000.0, True), (0.0, False)):
        told = np.array([6000.0 if b == a + 1 else 1800.0 if (a, b) == (0, 5) else beside for a, b in pairs])
        known = (domain, pairs, told - 2200.0, cells, errors, np.zeros(columns), 0.02, 1, total)
        chosen = select_tree(SelectionProblem(*known, told=told, spans=spans, deviation=1000.0))
        assert ((0, 5) in chosen.cliques) is measured


def test_scores_beside_the_tree_are_trusted_as_far_as_most_of_them_show() -> None:
    domain, pairs = Domain(tuple("abcd"), (4,) * 4), list(itertools.combinations(range(4), 2))
    told = np.array([900.0, 500.0, 400.0, 800.0, 300.0, 700.0])
    known = (domain, pairs, told - 250.0, np.full(4, 4.0), np.full(4, 10.0), np.zeros(4), 1.0, 1, 1e4)
    problem = SelectionProblem(*known, told=told, deviation=60.0)
    beside = np.array([pair not in ((0, 1), (1, 2), (2, 3)) for pair in pairs])
    assert np.flatnonzero(_trust_shown_scores(problem, np.zeros(6), beside) != problem.scores).tolist() == [1, 2, 4]
    for implied, off in ((0.0, 0.0), (100.0, 40.0), (200.0, 80.0), (300.0, 120.0)):
        # Scores of 250, 150 and 50 show more than that: three of three, two, one, none.
        found = _trust_shown_scores(problem, np.full(6, implied), beside)
        assert found == pytest.approx(np.array([650.0, 500 - off, 400 - off, 550.0, 300 - off, 450.0]))
    without = replace(problem, told=None)
    assert (_trust_shown_scores(without, np.zeros(6), beside) == without.scores).all()


def _many_scores(beyond: float, spread: float, seed: int) -> tuple[SelectionProblem, np.ndarray]:
    """780 pairs that a tree implies to 500 and that really show more; each score has five times that noise."""
    lots, columns = np.random.default_rng(seed), 40
    pairs = list(itertools.combinations(range(columns), 2))
    truth = 500.0 + beyond + lots.normal(0, spread, len(pairs))
    noisy = np.hypot(truth, 100.0) + lots.normal(0, 500.0, len(pairs))  # 100: what chance and noise make of any score
    told = np.where(noisy > 100, np.sqrt(np.maximum(noisy**2 - 100.0**2, 0)), noisy - 100)
    domain = Domain(tuple(f"c{i}" for i in range(columns)), (2,) * columns)
    known = (
        domain,
        pairs,
        told - 1000.0,
        np.full(columns, 2.0),
        np.full(columns, 50.0),
        np.zeros(columns),
        1.0,
        1,
        1e4,
    )
    return SelectionProblem(*known, told=told, deviation=500.0), truth


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("beyond", "spread"), [(150.0, 0.0), (150.0, 300.0), (0.0, 600.0)])
def test_many_scores_tell_their_mean_and_spread_though_each_is_lost_in_noise(
    beyond: float, spread: float, seed: int
) -> None:
    problem, truth = _many_scores(beyond, spread, seed)
    implied = np.full(len(truth), 500.0)
    found = _average_scores(problem, implied, np.arange(len(truth)) > 0)
    assert found[0] == problem.scores[0]  # a pair of the tree keeps its own
    assert np.mean(found[1:] - 500) == pytest.approx(np.mean(np.maximum(truth - 500, 0)), rel=0.35)
    if spread:
        assert np.corrcoef(found[1:], truth[1:])[0, 1] > 0.4


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("implied", [500.0, 1500.0])
def test_scores_that_show_no_more_than_is_implied_stay_as_they_are(seed: int, implied: float) -> None:
    """Also where far more is implied than scores show: what follows from a tree was then told too high."""
    problem, truth = _many_scores(0.0, 0.0, seed)
    found = _average_scores(problem, np.full(len(truth), implied), np.arange(len(truth)) > 0)
    assert np.maximum(found[1:] - implied, np.maximum(problem.scores[1:] - implied, 0)).max() <= max(
        float(problem.scores[1:].max() - implied), 25.0
    )


def test_tables_with_hidden_factors_are_measured_in_more_pairs_than_a_tree() -> None:
    """All 190 pairs depend on one another, and no tree of them implies the rest."""
    lots = np.random.default_rng(0)
    hidden = lots.normal(size=(2000, 3))
    codes = ((hidden @ lots.normal(size=(3, 20)) + lots.normal(size=(2000, 20))) > 0).astype(np.int32).T
    domain, spend = Domain(tuple(f"c{i}" for i in range(20)), (2,) * 20), convert_budget(ApproxDP(1, 1e-6), 1)
    real = np.cov(codes)

    def distance(method: str) -> float:
        errors = []
        for seed in range(3):
            description = run_method(codes, domain, METHODS[method], spend, SeededEntropy(seed))
            drawn = draw_records(description.estimates, description.collapsed.domain, 20_000, seed)
            errors.append(float(np.abs(np.cov(restore_codes(description, drawn, seed)) - real).mean()))
        return float(np.mean(errors))

    assert distance("auto") < 0.9 * min(distance("correlated"), distance("mst"))
