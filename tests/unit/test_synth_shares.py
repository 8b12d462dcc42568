"""What each method measures, in which order and with which share: naive twins with the shares written out.

Twins draw the same bytes, so what they measure must be the same to the last count, and so must the bill."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from deniable.dp.accounting import ComposedEvent, GaussianEvent, rho_within
from deniable.dp.accounting.analytic_gaussian import SMOOTHING, ratio_within
from deniable.dp.accounting.cost import round_up
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, ApproxDP, PureDP
from deniable.synth.bins import CollapsedDomain, GroupedClique, collapse_domain
from deniable.synth.domain import Areas, Domain
from deniable.synth.estimate import ImpliedTables, estimate_marginals, estimate_total
from deniable.synth.estimate.graphical_model import build_junction_tree, fit_graphical_model
from deniable.synth.marginal import (
    Codes,
    GaussianBudget,
    Marginal,
    convert_budget,
    count,
    index_cells,
    marginalize,
    measure_counts,
)
from deniable.synth.measure import (
    MethodSettings,
    combine_marginals,
    l1_distance,
    measure_cliques,
    measure_columns,
    project_columns,
    score_distances,
    score_pairs,
)
from deniable.synth.methods import METHODS, run_method
from deniable.synth.methods.published import (
    _candidate_parents,
    _choose_next,
    _most_cells,
    _score_matrix,
    select_network,
    select_spanning_tree,
)
from deniable.synth.model import Description
from deniable.synth.select import (
    NoiseForecast,
    Selection,
    SelectionProblem,
    _explain_pairs,
    discount_noise,
    expect_counts,
    group_candidates,
    group_workload,
    parts_of,
    select_larger_cliques,
    select_pairs,
    select_tree,
    weigh_workload,
)
from seeded import SeededEntropy

auto_module, mwem_module = (import_module(f"deniable.synth.methods.{name}") for name in ("auto", "published"))
SIZES = (3, 2, 4, 2, 12)
DOMAIN = Domain(("a", "b", "c", "d", "day"), SIZES, frozenset({4}))


def make_codes(records: int = 3000, seed: int = 1) -> Codes:
    """Columns of which b follows a, d is the parity of b and c, and the day follows c."""
    generator = np.random.default_rng(seed)
    a = generator.integers(0, 3, records)
    b = np.where(generator.random(records) < 0.8, a % 2, generator.integers(0, 2, records))
    c = generator.integers(0, 4, records)
    d = (b + c) % 2
    day = np.clip(c * 2 + generator.integers(0, 5, records), 0, 11)
    return np.stack([a, b, c, d, day]).astype(np.int32)


CODES = make_codes()
BUDGETS = [ZCDP(Fraction(1, 2)), ApproxDP(1, 1e-6), ZCDP(Fraction(1, 5000))]


def measured(marginals: Sequence[Marginal]) -> list[tuple[Any, ...]]:
    return [(m.clique, m.counts.tolist(), m.variance, m.event, m.maps) for m in marginals]


def same(found: Description, name: str, columns: Sequence[Marginal], cliques: Sequence[Marginal], events: Any) -> None:
    assert found.method == name
    assert measured(found.one_way) == measured(columns)
    assert measured(found.cliques) == measured(cliques)
    assert found.event == ComposedEvent(tuple(events))


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize(
    ("name", "columns", "scores", "choose"),
    [("mst", 1 / 3, 0.05, select_spanning_tree), ("correlated", 0.2, 0.1, select_network)],
)
def test_a_method_of_one_shot_measures_columns_then_scores_then_what_it_chose(
    name: str, columns: float, scores: float, choose: Any, budget: Any
) -> None:
    spend, entropy = convert_budget(budget, 2), SeededEntropy(5)
    one_way = measure_columns(CODES, DOMAIN, spend, columns, entropy)
    collapsed = collapse_domain(DOMAIN, one_way)
    left = 1 - columns - scores
    problem, scored = score_pairs(CODES, collapsed, one_way, spend, scores, left, entropy)
    chosen = choose(problem)
    cliques = measure_cliques(CODES, collapsed, DOMAIN, chosen, spend, left, entropy)
    found = run_method(CODES, DOMAIN, METHODS[name], spend, SeededEntropy(5))
    same(found, name, one_way, cliques, [*(m.event for m in one_way), scored, *(m.event for m in cliques)])
    assert found.reason == chosen.reason


@pytest.mark.parametrize("name", ["independent", "mst", "correlated", "mwem", "auto", "hierarchical"])
def test_one_column_alone_gets_the_whole_budget_whatever_the_method(name: str) -> None:
    domain, spend = Domain(("a",), (3,)), convert_budget(ZCDP(Fraction(1, 2)), 1)
    areas = Areas(0, (np.array([0, 0, 1]), np.arange(3)))
    found = run_method(CODES[:1], domain, METHODS[name], spend, SeededEntropy(5), areas=areas)
    same(found, name, found.one_way, [], [GaussianEvent(Fraction(1), Fraction(1))])


def test_columns_by_themselves_share_the_whole_budget() -> None:
    spend = convert_budget(ZCDP(Fraction(1, 2)), 3)
    found = run_method(CODES, DOMAIN, METHODS["independent"], spend, SeededEntropy(5))
    each = GaussianEvent(Fraction(45), Fraction(9))
    same(found, "independent", measure_columns(CODES, DOMAIN, spend, 1.0, SeededEntropy(5)), [], [each] * 5)


def twin_of_pair_scores(collapsed: CollapsedDomain, one_way: list[Marginal], spend: GaussianBudget) -> float:
    """5 % at least and 30 % at most; what tells pairs apart, if that is less; 0 where no score could show."""
    pairs = [pair for pair in itertools.combinations(range(5), 2) if min(collapsed.domain.shape(pair)) > 1]
    if not pairs:
        return 0.0
    total = estimate_total(one_way)
    shares = [column / total for column in project_columns(collapsed, one_way, total)]
    largest = [2 * total * math.sqrt((1 - (shares[a] ** 2).sum()) * (1 - (shares[b] ** 2).sum())) for a, b in pairs]
    cells = np.array([float(collapsed.domain.cells(pair)) for pair in pairs])
    table = 0.8 * math.sqrt(2 / math.pi) * np.mean(cells ** (2 / 3)) ** 1.5 * math.sqrt(5 - 1)
    ratio = 0.4 * (math.sqrt(len(pairs)) / table) ** (2 / 3)
    deviation = math.sqrt(float(spend.variance(0.05, spend.rows**2 * len(pairs))))
    enough = 0.05 * (deviation / np.mean(largest) / 0.05) ** 2
    share = max(min(0.7 * ratio / (1 + ratio), 0.3, enough), 0.05)
    deviation = math.sqrt(float(spend.variance(share, spend.rows**2 * len(pairs))))
    noise = [0.8 * math.sqrt(2 / math.pi) * float(np.sqrt(float(m.variance) * collapsed.sizes(j)).sum())
             for j, m in enumerate(one_way)]  # fmt: skip
    shows = [most > 2 * deviation + noise[a] + noise[b] for most, (a, b) in zip(largest, pairs, strict=True)]
    return share if any(shows) else 0.0


def twin_of_auto(spend: GaussianBudget, workload: tuple[tuple[int, ...], ...], entropy: Any) -> tuple[Any, ...]:
    """Columns 30 %, scores of pairs as planned, of three 3 %; half of the rest for a tree, then what scores say."""
    one_way = measure_columns(CODES, DOMAIN, spend, 0.3, entropy)
    collapsed = collapse_domain(DOMAIN, one_way)
    share = twin_of_pair_scores(collapsed, one_way, spend)
    problem, scored = score_pairs(CODES, collapsed, one_way, spend, share, 1 - 0.3 - share, entropy)
    chosen = select_tree(problem)
    forecast = NoiseForecast(problem.amount, problem.rows, problem.total)
    rough = project_columns(collapsed, one_way, problem.total)
    asked = group_workload(collapsed.domain, rough, forecast, workload, chosen.cliques)
    done = [*chosen.cliques, *(one.clique for one in asked)]
    tried = group_candidates(collapsed.domain, rough, forecast, done)
    before = [*(m.event for m in one_way), scored]
    if not tried and not asked:
        cliques = measure_cliques(CODES, collapsed, DOMAIN, chosen, spend, 1 - 0.3 - share, entropy)
        return collapsed, one_way, cliques, [*before, *(m.event for m in cliques)], chosen.reason
    left = 1 - 0.3 - share - 0.03
    first = measure_cliques(CODES, collapsed, DOMAIN, chosen, spend, left / 2, entropy)
    known = combine_marginals([*one_way, *first])
    joined, sized = collapsed.apply(CODES), parts_of(problem, chosen)
    larger, parts = list(asked), weigh_workload(asked, sum(sized))
    events: list[Any] = [m.event for m in first]
    found = 0
    if tried:
        so_far = estimate_marginals(collapsed, known[:5], known[5:])
        implied = ImpliedTables(so_far)
        distances = [l1_distance(one.count(joined), expect_counts(one, so_far, implied)) for one in tried]
        told, deviation, event = score_distances(distances, spend, 0.03, entropy)
        events.append(event)
        gains = discount_noise(tried, told, deviation, known[5:])
        more, their = select_larger_cliques(tried, gains, sum(sized) + sum(parts), forecast)
        larger, parts, found = larger + more, parts + their, len(more)
    rest = left / 2 if chosen.cliques else left
    whole = sum(sized) + sum(parts)
    wanted = [max(z / whole - share / 2, 0) for z, share in zip(sized, chosen.shares, strict=True)]
    total = sum(wanted) + sum(parts) / whole
    again = [(c, w / total) for c, w in zip(chosen.cliques, wanted, strict=True) if w > 1e-4 * total]
    both = Selection(tuple(c for c, _ in again), tuple(share for _, share in again))
    second = measure_cliques(CODES, collapsed, DOMAIN, both, spend, rest, entropy)
    for one, part in zip(larger, parts, strict=True):
        variance = spend.variance(rest * (part / whole / total))
        second.append(measure_counts(one.count(joined), one.clique, variance, spend.rows, entropy, one.coarser))
    told_asked = f"{len(asked)} cliques for what was asked; " if asked else ""
    threes = sum(len(one.clique) > 2 for one in larger[len(asked) :])
    why = (
        f"{told_asked}{found} of {len(tried)} further cliques show more, {threes} of them of three columns"
        if found
        else f"{told_asked}none of {len(tried)} further cliques shows enough beyond its noise"
    )
    events += [m.event for m in second]
    return collapsed, one_way, [*first, *second], [*before, *events], f"{chosen.reason}; {why}"


WORKLOADS: list[tuple[tuple[int, ...], ...]] = [(), ((1, 2, 3),), ((0, 1), (0, 3, 4))]


@pytest.mark.parametrize("budget", [*BUDGETS, ZCDP(Fraction(1, 50)), ZCDP(Fraction(1, 10**6)), ZCDP(Fraction(20))])
@pytest.mark.parametrize("workload", WORKLOADS)
def test_auto_measures_what_its_twin_measures(budget: Any, workload: tuple[tuple[int, ...], ...]) -> None:
    spend = convert_budget(budget, 1)
    found = run_method(CODES, DOMAIN, METHODS["auto"], spend, SeededEntropy(9), workload=workload)
    _, one_way, cliques, events, reason = twin_of_auto(spend, workload, SeededEntropy(9))
    together = combine_marginals([*one_way, *cliques])
    same(found, "auto", together[:5], together[5:], events)
    assert found.reason == reason


def test_the_budgets_of_the_twin_reach_every_branch() -> None:
    told = {
        reason
        for budget in (ZCDP(Fraction(1, 2)), ZCDP(Fraction(1, 50)), ZCDP(Fraction(1, 5000)), ZCDP(Fraction(1, 10**6)))
        for *_, reason in [twin_of_auto(convert_budget(budget, 1), (), SeededEntropy(9))]
    }
    assert any("of three columns" in reason for reason in told)
    assert any("columns stay independent" in reason for reason in told)
    assert any("; " not in reason for reason in told)


def test_what_is_left_is_shared_by_what_each_is_meant_to_have_less_what_it_had() -> None:
    chosen = Selection(((0, 1), (1, 2), (3,)), (0.5, 0.3, 0.2))
    again, larger = auto_module._split_remaining(chosen, [5.0, 3.0, 0.1], [4.0, 1.0])
    whole = 13.1
    wanted = [5 / whole - 0.25, 3 / whole - 0.15, 0.0]
    total = sum(wanted) + 5 / whole
    assert again.cliques == ((0, 1), (1, 2))
    assert again.shares == pytest.approx([want / total for want in wanted[:2]])
    assert larger == pytest.approx([4 / whole / total, 1 / whole / total])
    assert sum(again.shares) + sum(larger) == pytest.approx(1)


def test_nothing_is_left_to_share_where_nothing_was_chosen() -> None:
    again, larger = auto_module._split_remaining(Selection((), ()), [], [2.0, 6.0])
    assert (again.cliques, larger) == ((), [0.25, 0.75])
    assert auto_module._split_remaining(Selection((), ()), [], []) == (Selection((), ()), [])


# Rounds of the workload.


def twin_of_mwem(spend: GaussianBudget, asked: list[tuple[int, ...]], entropy: Any, most: int) -> tuple[Any, ...]:
    """Columns 15 %, scores 15 %, the rest in equal rounds; what rounds are not needed for measures the same again."""
    one_way = measure_columns(CODES, DOMAIN, spend, 0.15, entropy)
    collapsed = collapse_domain(DOMAIN, one_way)
    several = [place for place in range(5) if collapsed.domain.sizes[place] > 1]
    workload = asked or list(itertools.combinations(several, 2))
    rounds = max(min(len(workload), 16), 1)
    each = (1 - 0.15 - 0.15) / rounds
    found: list[Marginal] = []
    events: list[Any] = []
    model = fit_graphical_model(collapsed.domain, estimate_marginals(collapsed, one_way, []))
    joined = collapsed.apply(CODES)
    while len(found) < rounds:
        done = [m.clique for m in found]
        fits = [c for c in workload if build_junction_tree(collapsed.domain, [*done, c]).cells <= most]
        open_ones = [c for c in fits if c not in done]
        if not open_ones:
            break
        distances = [l1_distance(count(joined, collapsed.domain, c), model.table(c)) for c in open_ones]
        told, _, event = score_distances(distances, spend, 0.15 / rounds, entropy)
        events.append(event)
        noise = math.sqrt(2 / math.pi) * math.sqrt(float(spend.variance(each)))
        gains = [t - noise * collapsed.domain.cells(c) for t, c in zip(told, open_ones, strict=True)]
        best = int(np.argmax(gains))
        if gains[best] <= 0:
            break
        one = Selection((open_ones[best],), (1.0,))
        found += measure_cliques(CODES, collapsed, DOMAIN, one, spend, each, entropy)
        model = fit_graphical_model(collapsed.domain, estimate_marginals(collapsed, one_way, found), model.factors)
    events += [m.event for m in found]
    if 0 < len(found) < rounds:
        again = Selection(tuple(m.clique for m in found), tuple(1 / len(found) for _ in found))
        more = measure_cliques(CODES, collapsed, DOMAIN, again, spend, each * (rounds - len(found)), entropy)
        found, events = found + more, events + [m.event for m in more]
    return one_way, found, events, len(workload)


@pytest.mark.parametrize("budget", [ZCDP(Fraction(1, 2)), ZCDP(Fraction(1, 50)), ZCDP(Fraction(1, 10**7))])
@pytest.mark.parametrize("asked", [(), ((0, 1), (2,), (1, 2, 3), (0, 1))])
@pytest.mark.parametrize("most", [1 << 18, 60])
def test_rounds_measure_what_their_twin_measures(
    budget: Any, asked: tuple[tuple[int, ...], ...], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mwem_module, "MOST_CELLS", most)
    spend = convert_budget(budget, 1)
    found = run_method(CODES, DOMAIN, METHODS["mwem"], spend, SeededEntropy(4), workload=asked)
    wanted: list[tuple[int, ...]] = [(0, 1), (1, 2, 3)] if asked else []
    one_way, cliques, events, size = twin_of_mwem(spend, wanted, SeededEntropy(4), most)
    together = combine_marginals(cliques)
    same(found, "mwem", one_way, together, [*(m.event for m in one_way), *events])
    told = f"{len(together)} of {size} cliques of the workload, those that were answered worst"
    assert found.reason == told
    first = estimate_marginals(found.collapsed, one_way, together)
    model = fit_graphical_model(found.collapsed.domain, first)
    assert found.estimates.total == first.total
    kept = {clique for clique in model.tables if len(clique) > 1} | {marginal.clique for marginal in together}
    assert set(found.estimates.tables) == kept
    for clique, table in found.estimates.tables.items():
        assert table == pytest.approx(model.table(clique))
    assert [column.tolist() for column in found.estimates.columns] == [
        pytest.approx(model.table((place,)).tolist()) for place in range(5)
    ]


def test_the_worst_answered_clique_must_be_worse_than_its_noise() -> None:
    domain = Domain(("a", "b", "c"), (2, 3, 5))
    deviation = 10 / math.sqrt(2 / math.pi)
    cliques = [(0, 1), (0, 2), (1, 2)]
    noise = [60.0, 100.0, 150.0]
    for told, worst in (([61, 99, 150], (0, 1)), ([70, 111, 150], (0, 2)), ([59, 99, 149], None)):
        assert mwem_module._find_worst(domain, cliques, np.array(told, dtype=float), deviation) == worst
    assert mwem_module._find_worst(domain, [(0, 1)], np.array([noise[0] - 1e-9]), deviation) is None


# Areas.

AREAS = Areas(2, (np.array([0, 0, 1, 1]), np.arange(4)))


@pytest.mark.parametrize("budget", BUDGETS)
def test_areas_are_measured_level_by_level_with_half_of_the_budget(budget: Any) -> None:
    spend, entropy = convert_budget(budget, 1), SeededEntropy(3)
    one_way = measure_columns(CODES, DOMAIN, spend, 0.15, entropy)
    rough = collapse_domain(DOMAIN, one_way)
    maps = [*rough.maps[:2], np.arange(4, dtype=np.int32), *rough.maps[3:]]
    sizes = tuple(int(mapping.max()) + 1 for mapping in maps)
    collapsed = CollapsedDomain(DOMAIN.resize(sizes), tuple(maps))
    joined, events, others = collapsed.apply(CODES), [], [0, 1, 3, 4]
    parts = {(other, k): (sizes[other] * size) ** (1 / 3) for other in others for k, size in enumerate((2, 4))}
    leaves = {}
    for other in others:
        for k, groups in enumerate(AREAS.levels):
            exact = np.zeros((int(groups.max()) + 1, sizes[other]), dtype=np.int64)
            np.add.at(exact, (groups[CODES[2]], joined[other]), 1)
            variance = spend.variance(0.5 * parts[other, k] / sum(parts.values()))
            leaves[other] = measure_counts(exact, (2, other), variance, 1, entropy)
            events.append(leaves[other].event)
    inner = CollapsedDomain(collapsed.domain.project((0, 1, 3, 4)), tuple(maps[other] for other in others))
    alone, left = [one_way[other] for other in others], 1 - 0.15 - 0.05 - 0.5
    problem, scored = score_pairs(CODES[others], inner, alone, spend, 0.05, left, entropy)
    chosen = select_pairs(problem)
    placed = Selection(tuple(tuple(others[p] for p in clique) for clique in chosen.cliques), chosen.shares)
    more = measure_cliques(CODES, collapsed, DOMAIN, placed, spend, left, entropy)
    found = run_method(CODES, DOMAIN, METHODS["hierarchical"], spend, SeededEntropy(3), areas=AREAS)
    told = [*(m.event for m in one_way), *events, scored, *(m.event for m in more)]
    assert found.event == ComposedEvent(tuple(told))
    assert measured(found.one_way) == measured(combine_marginals([*one_way, *(m for m in more if len(m.clique) == 1)]))
    assert [m.clique for m in found.cliques[:4]] == [(0, 2), (1, 2), (2, 3), (2, 4)]
    assert measured(found.cliques[4:]) == measured([m for m in more if len(m.clique) == 2])
    for marginal, other in zip(found.cliques[:4], others, strict=True):
        assert marginal.event == leaves[other].event
        assert marginal.variance < leaves[other].variance
        own = leaves[other].counts if other > 2 else leaves[other].counts.T
        assert np.abs(marginal.counts - own).max() < 12 * math.sqrt(leaves[other].variance)
    assert found.reason.startswith("2 levels of 'c' below the whole, each by every other column; ")
    assert found.collapsed.domain.sizes == sizes


def test_areas_with_one_other_column_have_no_pairs_beside_them() -> None:
    domain, spend = Domain(("c", "d"), (4, 2)), convert_budget(ZCDP(Fraction(1, 2)), 1)
    areas = Areas(0, AREAS.levels)
    found = run_method(CODES[2:4], domain, METHODS["hierarchical"], spend, SeededEntropy(3), areas=areas)
    assert found.reason.endswith("; there is no pair of other columns")
    assert [m.clique for m in found.cliques] == [(0, 1)]
    assert len(found.event.events) == 2 + 2
    assert found.estimates.columns[0] == pytest.approx(found.estimates.tables[0, 1].sum(axis=1))
    assert found.estimates.columns[1] == pytest.approx(found.estimates.tables[0, 1].sum(axis=0), rel=0.02)


# Steps that methods share.


def test_counts_are_those_of_a_loop_over_the_records() -> None:
    for clique in [(0,), (1, 4), (0, 2, 3), (4, 1)]:
        shape = tuple(SIZES[place] for place in clique)
        naive = np.zeros(shape, dtype=np.int64)
        for record in CODES.T:
            naive[tuple(record[list(clique)])] += 1
        assert count(CODES, DOMAIN, clique).tolist() == naive.tolist()
        assert index_cells(CODES, DOMAIN, clique).max() < math.prod(shape)
        for keep in itertools.combinations(range(len(clique)), 1):
            expected = naive.sum(axis=tuple(axis for axis in range(len(clique)) if axis not in keep))
            assert marginalize(naive.astype(float), keep).tolist() == expected.tolist()


def test_scores_are_distances_in_thousandths_rounded_down_with_noise_for_all_of_them() -> None:
    spend = GaussianBudget(Fraction(10**12), 3, False)
    found, deviation, event = score_distances([1.23456, 7.0, 0.0009], spend, 0.25)
    each = 3 * 1000 + 1
    variance = Fraction(3 * each * each * 4, 10**12)
    assert event == GaussianEvent(spend.variance(0.25, 3 * each * each), Fraction(3 * each * each))
    assert float(event.variance) == pytest.approx(float(variance), rel=1e-3)
    assert deviation == pytest.approx(float(event.variance) ** 0.5 / 1000)
    assert found.tolist() == [1.234, 7.0, 0.0]
    nothing, none, free = score_distances([], spend, 0.25)
    assert (nothing.size, none, type(free).__name__) == (0, 0.0, "NoOpEvent")
    assert l1_distance(np.array([[1, 5], [0, 2]]), np.array([[2.0, 3.0], [0.5, 2.0]])) == 3.5


@pytest.mark.parametrize("smoothed", [False, True])
def test_a_share_buys_the_variance_that_its_worth_asks_for(smoothed: bool) -> None:
    spend, added = GaussianBudget(Fraction(1, 8), 3, smoothed), SMOOTHING if smoothed else 0
    assert spend.variance(1.0) == 72 + added
    assert spend.variance(0.5) == 144 + added
    assert spend.variance(0.5, 7) == 112 + added
    cut = Fraction(9 * 8 * 10**9, 123456789)
    assert spend.variance(0.1234567899) == round_up(cut + added, 9)
    assert spend.event == GaussianEvent(Fraction(72), Fraction(9))
    for share in (0.0, 0.9e-9, -0.5):
        with pytest.raises(ParameterError, match="too small"):
            spend.variance(share)


BOUGHT = [(1, 1e-6), (0.1, 1e-9), (5, 1e-6), (30, 1e-3), (100, 1e-6)]


@pytest.mark.parametrize(("epsilon", "delta"), BOUGHT)
def test_a_budget_buys_what_the_curve_proves_that_leaves_less_noise(epsilon: float, delta: float) -> None:
    budget = ApproxDP(epsilon, delta)
    ratio, rho = ratio_within(budget.epsilon, budget.delta), rho_within(budget.epsilon, budget.delta)
    assert ratio is not None
    assert rho
    found = convert_budget(budget, 3)
    # A table with a 32nd of the amount: its noise, and where the curve asks for smoothing that of it.
    smoothed = 32 * 9 * ratio + SMOOTHING <= 32 * 9 / (2 * rho)
    assert found == GaussianBudget(1 / ratio if smoothed else 2 * rho, 3, smoothed)
    assert convert_budget(ZCDP(Fraction(1, 7)), 2) == GaussianBudget(Fraction(2, 7), 2, False)


@pytest.mark.parametrize("budget", [ZCDP(Fraction(0)), PureDP(1), ApproxDP(1, 0), ApproxDP(0, 1e-6)])
def test_a_budget_without_a_price_for_gaussian_noise_is_refused(budget: Any) -> None:
    with pytest.raises(ParameterError, match="needs a delta"):
        convert_budget(budget, 1)


def test_two_measurements_of_one_clique_are_joined_by_inverse_variances() -> None:
    event = GaussianEvent(Fraction(1), Fraction(1))
    parts = [
        Marginal((0,), np.array([10.0, 0.0]), 1.0, event),
        Marginal((1,), np.array([5.0]), 2.0, event),
        Marginal((0,), np.array([20.0, 8.0]), 3.0, event),
    ]
    first, second = combine_marginals(parts)
    assert (first.clique, first.variance) == ((0,), 0.75)
    assert first.counts == pytest.approx([12.5, 2.0])
    assert measured([second]) == measured([parts[1]])


def test_pairs_are_scored_against_independence_less_the_noise_of_scores_and_columns() -> None:
    spend, entropy = convert_budget(ZCDP(Fraction(1, 20)), 2), SeededEntropy(8)
    one_way = measure_columns(CODES, DOMAIN, spend, 0.2, entropy)
    collapsed = collapse_domain(DOMAIN, one_way)
    found, event = score_pairs(CODES, collapsed, one_way, spend, 0.1, 0.7, SeededEntropy(2))
    total, joined = estimate_total(one_way), collapsed.apply(CODES)
    columns = project_columns(collapsed, one_way, total)
    pairs = list(itertools.combinations(range(5), 2))
    distances = [
        np.abs(count(joined, collapsed.domain, (a, b)) - np.outer(columns[a], columns[b]) / total).sum()
        for a, b in pairs
    ]
    told, deviation, same_event = score_distances(distances, spend, 0.1, SeededEntropy(2))
    each = 0.8 * math.sqrt(2 / math.pi) * math.sqrt(one_way[0].variance)
    noise = [each * sum(math.sqrt(np.sum(m == code)) for code in range(int(m.max()) + 1)) for m in collapsed.maps]
    assert event == same_event
    assert found.pairs == pairs
    expected = [score - 2.0 * deviation - noise[a] - noise[b] for score, (a, b) in zip(told, pairs, strict=True)]
    assert found.scores == pytest.approx(expected)
    assert found.column_cells.tolist() == list(SIZES)
    assert found.column_errors == pytest.approx([each * size for size in SIZES])
    assert found.column_within == pytest.approx(
        [1 - own / (each * size) for own, size in zip(noise, SIZES, strict=True)]
    )
    assert (found.amount, found.rows, found.total) == (pytest.approx(0.07), 2, total)


# Selection.


def make_problem(seed: int, columns: int = 5, amount: float = 0.05) -> SelectionProblem:
    generator = np.random.default_rng(seed)
    sizes = tuple(int(size) for size in generator.integers(2, 9, columns))
    pairs = list(itertools.combinations(range(columns), 2))
    scores = generator.normal(150, 200, len(pairs))
    domain = Domain(tuple(f"c{i}" for i in range(columns)), sizes)
    cells = np.array(sizes) * generator.integers(1, 4, columns).astype(float)
    errors, within = generator.random(columns) * 100 + 1, generator.random(columns)
    return SelectionProblem(domain, pairs, scores, cells, errors, within, amount, 1, 5000.0)


@pytest.mark.parametrize("seed", range(12))
def test_parts_are_in_the_proportion_of_the_shares_that_were_chosen(seed: int) -> None:
    problem = make_problem(seed)
    chosen = select_pairs(problem)
    parts = parts_of(problem, chosen)
    assert [part / sum(parts) for part in parts] == pytest.approx(list(chosen.shares))


def test_a_choice_of_pairs_says_how_many_and_how_much_is_saved() -> None:
    told = {select_pairs(make_problem(seed)).reason for seed in range(12)}
    for reason in told:
        assert "pairs measured" in reason or "columns stay independent" in reason
    problem = make_problem(3)
    chosen = select_pairs(problem)
    pairs = sum(len(clique) == 2 for clique in chosen.cliques)
    assert chosen.reason.startswith(
        f"{pairs} of 10 pairs measured, {len(chosen.cliques) - pairs} columns once more: the expected error"
    )


def test_what_a_choice_of_pairs_saves_is_told_in_percent() -> None:
    assert _explain_pairs([0, 12, 9], 10, 200.0, 150.0) == (
        "2 of 10 pairs measured, 1 columns once more: the expected error of all pairs falls by 25% against independent "
        "columns, and a further pair would cost more than it brings"
    )
    assert _explain_pairs([10], 10, 200.0, 150.0) == (
        "no pair of 10 brings more than its noise costs at this budget: columns stay independent"
    )
    assert "falls by 100%" in _explain_pairs([0], 10, 0.0, 0.0)


def test_a_forecast_is_what_the_noise_formula_says() -> None:
    forecast = NoiseForecast(0.04, 2, 1000.0)
    scale = 0.8 * math.sqrt(2 / math.pi) * 2 / 0.2
    assert forecast.scale == pytest.approx(scale)
    assert forecast.noise(12) == pytest.approx(12 * scale)
    assert forecast.noise(12, 0.25) == pytest.approx(24 * scale)
    assert forecast.most_cells(0.25, 0.05) == pytest.approx(50 / (2 * scale))
    assert forecast.noise(12, 0.0) == pytest.approx(12e6 * scale)  # a share of nothing is one of almost nothing


def test_what_is_asked_for_is_left_alone_where_noise_would_stir_a_fifth_of_the_records() -> None:
    domain = Domain(("a", "b", "c"), (2, 2, 2))
    columns = [np.array([500.0, 500.0])] * 3
    scale = 0.8 * math.sqrt(2 / math.pi)
    # With a third of the amount for one clique, eight cells stir 8 scale sqrt(3 / amount) of the records.
    within = [(0, 1), (0, 2), (1, 2)]
    for factor, kept in ((0.999, within), (1.001, [(0, 1, 2), *within])):
        amount = 3 * (8 * scale / 200) ** 2 * factor
        held = group_workload(domain, columns, NoiseForecast(amount, 1, 1000.0), [(0, 1, 2), (0, 1, 2)], [])
        assert [one.clique for one in held] == kept
    measured_anyway = group_workload(domain, columns, NoiseForecast(1e-9, 1, 1000.0), [(0, 1), (0, 2)], [(0, 1)])
    assert [(one.clique, one.maps) for one in measured_anyway] == [((0, 1), ((0, 1), (0, 1)))]
    assert group_workload(Domain(("a", "b"), (1, 1)), columns, NoiseForecast(1.0, 1, 1000.0), [(0, 1)], []) == []


def test_what_is_asked_for_shares_a_third_and_is_grouped_to_a_twentieth_of_noise() -> None:
    domain = Domain(("a", "b"), (30, 2))
    columns = [np.arange(30, dtype=float) + 1, np.array([200.0, 265.0])]
    forecast = NoiseForecast(0.5, 1, 465.0)
    (one,) = group_workload(domain, columns, forecast, [(0, 1)], [])
    most = 0.05 * 465 / (forecast.scale * math.sqrt(3))
    assert one.cells <= most < one.cells + 2
    both = group_workload(domain, columns, forecast, [(0, 1), (1, 0)], [])
    half = 0.05 * 465 / (forecast.scale * math.sqrt(6))
    assert all(each.cells <= half < each.cells + 2 for each in both)


def test_candidates_are_pairs_and_threes_that_say_more_than_a_column() -> None:
    domain = Domain(("a", "b", "c", "d"), (3, 2, 2, 1))
    columns = [np.full(size, 3000 / size) for size in domain.sizes]
    found = group_candidates(domain, columns, NoiseForecast(10.0, 1, 3000.0), [(0, 1)])
    assert [one.clique for one in found] == [(1, 2), (0, 2), (0, 1, 2)]
    most = {way: NoiseForecast(0.02, 1, 3000.0).most_cells(0.1, limit) for way, limit in ((2, 0.1), (3, 0.02))}
    grouped = group_candidates(domain, columns, NoiseForecast(0.02, 1, 3000.0), [])
    assert all(one.cells <= max(most[len(one.clique)], 2 ** len(one.clique)) for one in grouped)
    assert group_candidates(domain, columns, NoiseForecast(1e-9, 1, 3000.0), []) == []


def test_nothing_is_scored_where_no_score_could_stand_out_of_its_noise() -> None:
    """45 pairs of two values could be measured at 60 records, but not be told apart by their scores."""
    domain = Domain(tuple("abcdefghij"), (2,) * 10)
    for total, scored in ((60.0, 0), (200.0, 45 + 120)):
        columns = [np.full(2, total / 2)] * 10
        assert len(group_candidates(domain, columns, NoiseForecast(1.0, 1, total), [])) == scored


def test_only_the_smallest_candidates_are_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    from deniable.synth import select

    monkeypatch.setattr(select, "MOST_TRIED", 2)
    domain = Domain(("a", "b", "c"), (3, 2, 2))
    columns = [np.full(size, 3000 / size) for size in domain.sizes]
    found = group_candidates(domain, columns, NoiseForecast(10.0, 1, 3000.0), [])
    assert [one.clique for one in found] == [(1, 2), (0, 1)]


def test_gains_are_scores_less_deviations_and_the_errors_of_pairs() -> None:
    event = GaussianEvent(Fraction(1), Fraction(1))
    one = GroupedClique((0, 1, 2), ((0, 0, 1), (0, 1), (0, 1)))
    two = GroupedClique((0, 1), ((0, 1, 2), (0, 1)))
    pairs = [
        Marginal((0, 1), np.zeros((3, 2)), 4.0, event),
        Marginal((1, 2), np.zeros((2, 2)), 9.0, event),
        Marginal((0, 2), np.zeros((2, 2)), 100.0, event, ((0, 0, 1), (0, 1))),
    ]
    first = 0.8 * math.sqrt(2 * 4 / math.pi) * (math.sqrt(2) + 1) * 2
    second = 0.8 * math.sqrt(2 * 9 / math.pi) * 2 * 2
    full = 0.8 * math.sqrt(2 * 4 / math.pi) * 3 * 2
    found = discount_noise([one, two, two], np.array([100.0, 50.0, 3.0]), 4.0, pairs)
    # The pair of 0 and 2 was measured by groups alone: it is implied, with the noise of a table of fewer cells.
    implied = 0.8 * math.sqrt(2 * 9 / math.pi) * math.sqrt((math.sqrt(2) + 1) * 2)
    assert found == pytest.approx([100 - 10 - math.hypot(first, second, implied), 50 - 10 - full, 0.0])


def test_larger_cliques_are_taken_while_they_gain_twice_what_they_cost() -> None:
    forecast = NoiseForecast(1.0, 1, 1000.0)

    def grouped(*clique: int) -> GroupedClique:
        return GroupedClique(clique, ((0, 1),) * len(clique))

    pair, three = 4 ** (2 / 3), 8 ** (2 / 3)
    cost = 2 * forecast.scale * ((10 + three) ** 1.5 - 10**1.5)
    for gain, taken in ((cost * 1.001, [(0, 1, 2)]), (cost * 0.999, [])):
        found, parts = select_larger_cliques([grouped(0, 1, 2)], np.array([gain]), 10.0, forecast)
        assert [one.clique for one in found] == taken
        assert parts == pytest.approx([three] * len(taken))
    cliques = [grouped(0, 1, 2), grouped(0, 1), grouped(3, 4), grouped(2, 3, 4)]
    # The pair (3, 4) gains most for its part; the three around it gains only what is beyond it.
    gains = np.array([900.0, 300.0, 800.0, 805.0])
    found, parts = select_larger_cliques(cliques, gains, 10.0, forecast)
    assert [one.clique for one in found] == [(3, 4), (0, 1, 2)]
    assert parts == pytest.approx([pair, three])
    after = 2 * forecast.scale * ((10 + pair + three) ** 1.5 - (10 + pair) ** 1.5)
    for beyond, taken in ((after * 1.001, 2), (after * 0.999, 1)):
        both = np.array([800.0, 800.0 + beyond])
        assert len(select_larger_cliques(cliques[2:], both, 10.0, forecast)[0]) == taken


def test_a_workload_has_a_third_of_all_parts() -> None:
    asked = [GroupedClique((0, 1), ((0, 1), (0, 1))), GroupedClique((0, 1, 2), ((0, 1),) * 3)]
    parts = weigh_workload(asked, 10.0)
    assert sum(parts) == pytest.approx((10 + sum(parts)) / 3)
    assert parts[1] / parts[0] == pytest.approx(2 ** (2 / 3))
    assert weigh_workload(asked, 0.0) == pytest.approx([4 ** (2 / 3), 8 ** (2 / 3)])
    assert weigh_workload([], 10.0) == []


# Networks.


@pytest.mark.parametrize("seed", range(8))
def test_a_network_grows_by_the_column_that_gains_most(seed: int) -> None:
    problem = make_problem(seed, columns=6, amount=10 ** np.random.default_rng(seed).uniform(-4, 0))
    score = {frozenset(pair): max(float(s), 0.0) for pair, s in zip(problem.pairs, problem.scores, strict=True)}
    most = 5000 / (4 * math.sqrt(5 / problem.amount))
    assert _most_cells(problem) == pytest.approx(most)
    first = max(range(6), key=lambda place: (max(score[frozenset((place, o))] for o in range(6) if o != place), -place))
    done, families = [first], []
    while len(done) < 6:
        best, choice = 0.0, None
        for child in (place for place in range(6) if place not in done):
            known = [p for p in done if score[frozenset((child, p))] > 0]
            for parents in [*((p,) for p in known), *itertools.combinations(known, 2)]:
                gain = sum(score[frozenset((child, p))] for p in parents)
                if gain > best + 1e-9 and problem.domain.cells((child, *parents)) <= most:
                    best, choice = gain, (child, *parents)
        if choice is None:
            done.append(min(place for place in range(6) if place not in done))
        else:
            done.append(choice[0])
            families.append(tuple(sorted(choice)))
    found = select_network(problem)
    assert list(found.cliques) == families
    sized = [problem.domain.cells(family) ** (2 / 3) for family in families]
    assert found.shares == pytest.approx([size / sum(sized) for size in sized])
    threes = sum(len(family) == 3 for family in families)
    assert found.reason == (
        f"{threes} columns have two parents, {len(families) - threes} have one, {5 - len(families)} beside the first "
        f"have none: tables of more than {most:,.0f} cells would drown in noise"
    )


def test_a_single_column_has_room_for_one_family() -> None:
    assert _most_cells(make_problem(1, columns=1, amount=0.25)) == pytest.approx(5000 / (4 * 2))


def test_parents_are_tried_one_by_one_and_the_best_eight_in_pairs() -> None:
    scores = np.array([0.0, 3.0, 9.0, 0.0, 1.0])
    assert list(_candidate_parents(scores, [4, 3, 2, 1])) == [(2,), (1,), (4,), (2, 1), (2, 4), (1, 4)]
    many = list(_candidate_parents(np.arange(12, dtype=float), list(range(12))))
    assert len(many) == 11 + 28
    assert max(many[11:]) == (11, 10)
    assert min(place for pair in many[11:] for place in pair) == 4


def test_scores_below_zero_count_as_none() -> None:
    table = _score_matrix(3, [(0, 1), (0, 2), (1, 2)], np.array([5.0, -3.0, 2.0]))
    assert table.tolist() == [[0, 5, 0], [5, 0, 2], [0, 2, 0]]
    domain = Domain(("a", "b", "c"), (2, 2, 2))
    assert _choose_next(table, [0], domain, 100.0) == (1, (0,))
    assert _choose_next(table, [0], domain, 4.0) == (1, (0,))
    assert _choose_next(table, [0], domain, 3.9) == (1, ())
    assert _choose_next(table, [0, 1], domain, 100.0) == (2, (1,))


def test_a_spanning_tree_has_equal_shares() -> None:
    problem = make_problem(1)
    found = select_spanning_tree(problem)
    assert len(found.cliques) == 4
    assert found.shares == (0.25,) * 4
    assert found.reason == "a spanning forest of 4 pairs, the strongest that hold together"
    assert MethodSettings(convert_budget(ZCDP(Fraction(1)), 1)).workload == ()
