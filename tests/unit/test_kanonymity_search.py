"""The optimal search against brute force: every measure, every kind of model, with and without suppression."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict

import numpy as np
import pytest

from deniable.kanonymity.encoding import Tuples, add_population, build_histograms, collapse, number_rows
from deniable.kanonymity.hierarchy import Hierarchy, from_rows
from deniable.kanonymity.kernels import pruning
from deniable.kanonymity.models import (
    AverageRisk,
    BetaLikeness,
    Closeness,
    DeltaDisclosure,
    DeltaPresence,
    Distance,
    DistinctDiversity,
    EntropyDiversity,
    KAnonymity,
    KMap,
    PrivacyModel,
    RecursiveDiversity,
    holds,
)
from deniable.kanonymity.models.base import Classes, build_reference
from deniable.kanonymity.quality import (
    MEASURES,
    AverageClassSize,
    Discernibility,
    Divergence,
    Loss,
    Mean,
    Measure,
    NonUniformEntropy,
    NormalizedCertaintyPenalty,
    Precision,
)
from deniable.kanonymity.search.check import Checker
from deniable.kanonymity.search.optimal import OptimalSearch
from deniable.kanonymity.search.problem import Problem

SENSITIVE = 3


def random_hierarchy(name: str, chance: np.random.Generator) -> Hierarchy:
    """A tree of three or four levels over a few leaves; sometimes its top is not one group."""
    leaves = int(chance.integers(3, 7))
    levels = [np.arange(leaves)]
    while len(levels) < 3:
        parents = chance.integers(0, max(2, levels[-1].max()), levels[-1].max() + 1)
        levels.append(np.unique(parents[levels[-1]], return_inverse=True)[1])
    rows = [tuple(f"{n}.{level[leaf]}" for n, level in enumerate(levels)) for leaf in range(leaves)]
    built = from_rows(name, rows)
    return built.between(0, 2) if chance.random() < 0.3 else built


def random_problem(seed: int, models: tuple[PrivacyModel, ...], measure: Measure, share: float) -> Problem:
    chance = np.random.default_rng(seed)
    hierarchies = tuple(random_hierarchy(f"q{n}", chance) for n in range(3))
    rows = int(chance.integers(20, 60))
    columns = [chance.integers(0, h.size, rows).astype(np.int32) for h in hierarchies]
    values = chance.choice(SENSITIVE, rows, p=chance.dirichlet(np.ones(SENSITIVE))).astype(np.int32)
    sizes = [h.size for h in hierarchies]
    tuples = collapse(columns, sizes, [(values, SENSITIVE)]).tuples
    if any(isinstance(model, KMap | DeltaPresence) for model in models):
        more = [np.concatenate([c, chance.integers(0, h.size, 40)]) for c, h in zip(columns, hierarchies, strict=True)]
        people = collapse([m.astype(np.int32) for m in more], sizes).tuples
        tuples = add_population(tuples, people.codes, people.counts, sizes)
    counts = np.bincount(values, minlength=SENSITIVE)
    tree = from_rows("s", [("0", "a"), ("1", "a"), ("2", "b")])
    return Problem(
        tuples,
        hierarchies,
        tuple(m for m in models if not isinstance(m, AverageRisk)),
        measure,
        int(share * rows),
        ("s",),
        {"s": build_reference(counts, tree)},
        tuple(m for m in models if isinstance(m, AverageRisk)),
    )


def naive_classes(problem: Problem, node: tuple[int, ...]) -> tuple[Classes, list[list[int]]]:
    """The classes of a node by a dictionary of generalized tuples, and the tuples of each."""
    members: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for t, codes in enumerate(problem.tuples.codes):
        key = tuple(int(h.levels[n].groups[c]) for h, n, c in zip(problem.hierarchies, node, codes, strict=True))
        members[key].append(t)
    groups = list(members.values())
    tuples: Tuples = problem.tuples
    dense = tuples.sensitive[0].dense()
    owner, values, counts = [], [], []
    for c, group in enumerate(groups):
        for v in range(SENSITIVE):
            if held := int(dense[group, v].sum()):
                owner.append(c)
                values.append(v)
                counts.append(held)
    held = build_histograms(
        np.array(owner, np.int64), len(groups), np.array(values, np.int32), SENSITIVE, np.array(counts, np.int64)
    )
    people = None if tuples.population is None else np.array([tuples.population[g].sum() for g in groups])
    sizes = np.array([tuples.counts[g].sum() for g in groups])
    return Classes(sizes, {"s": held}, problem.references, people), groups


def naive_cell(
    measure: Measure, h: Hierarchy, level: int | None, leaf: int, column: np.ndarray, counts: np.ndarray
) -> float:
    """What one cell costs, straight from the definitions; level None is a suppressed cell."""
    group = range(h.size) if level is None else np.flatnonzero(h.levels[level].groups == h.levels[level].groups[leaf])
    match measure:
        case Loss():  # the same cells for both means
            return 1.0 if level is None else (len(group) - 1) / (h.size - 1)
        case Precision():
            return 1.0 if level is None else level / (h.height - 1)
        case NormalizedCertaintyPenalty():
            return 1.0 if level is None or len(group) == h.size else 0.0 if len(group) == 1 else len(group) / h.size
        case NonUniformEntropy():
            own = counts[column == leaf].sum()
            return math.log2(counts[np.isin(column, list(group))].sum() / own)
    raise AssertionError(measure)


def naive_cost(problem: Problem, node: tuple[int, ...], groups: list[list[int]], released: list[bool]) -> float:
    tuples, measure, rows = problem.tuples, problem.measure, problem.tuples.rows
    sizes = [int(tuples.counts[g].sum()) for g in groups]
    gone = sum(n for n, kept in zip(sizes, released, strict=True) if not kept)
    match measure:
        case Discernibility():
            return sum(n * n for n, kept in zip(sizes, released, strict=True) if kept) + gone * rows
        case AverageClassSize():
            return rows / (sum(released) + (not all(released)))
        case Divergence():
            return naive_divergence(problem, node, groups, released)
    if isinstance(measure, Loss) and measure.mean is Mean.GEOMETRIC:
        return naive_geometric(problem, node, groups, released)
    total = scale = 0.0
    for group, kept in zip(groups, released, strict=True):
        for t in group:
            for q, h in enumerate(problem.hierarchies):
                column, leaf = tuples.codes[:, q], tuples.codes[t, q]
                level = node[q] if kept else None
                total += tuples.counts[t] * naive_cell(measure, h, level, leaf, column, tuples.counts)
                whole = naive_cell(measure, h, None, leaf, column, tuples.counts)
                scale += tuples.counts[t] * (whole if isinstance(measure, NonUniformEntropy) else 1.0)
    return total / scale


def naive_geometric(problem: Problem, node: tuple[int, ...], groups: list[list[int]], released: list[bool]) -> float:
    tuples, product = problem.tuples, 1.0
    for q, h in enumerate(problem.hierarchies):
        total = 0.0
        for group, kept in zip(groups, released, strict=True):
            for t in group:
                level = node[q] if kept else None
                leaf = tuples.codes[t, q]
                total += tuples.counts[t] * naive_cell(Loss(), h, level, leaf, tuples.codes[:, q], tuples.counts)
        product *= 1 + total / tuples.rows
    return product ** (1 / len(problem.hierarchies)) - 1


def naive_divergence(problem: Problem, node: tuple[int, ...], groups: list[list[int]], released: list[bool]) -> float:
    tuples, rows = problem.tuples, problem.tuples.rows
    gone = sum(int(tuples.counts[g].sum()) for g, kept in zip(groups, released, strict=True) if not kept)
    total = 0.0
    for group, kept in zip(groups, released, strict=True):
        size = int(tuples.counts[group].sum()) if kept else gone
        for t in group:
            volume = 1.0
            for q, h in enumerate(problem.hierarchies):
                level = h.levels[node[q]].groups
                volume *= (level == level[tuples.codes[t, q]]).sum() if kept else h.size
            share = tuples.counts[t] / rows
            if share:
                total += share * math.log2(share / (size / rows / volume))
    return total


def brute_force(problem: Problem) -> dict[tuple[int, ...], tuple[float, int]]:
    """Cost and suppressed rows of every acceptable node."""
    found = {}
    for node in itertools.product(*(range(h) for h in problem.lattice.heights)):
        classes, groups = naive_classes(problem, node)
        released = np.ones(len(groups), bool)
        for model in problem.models:
            released &= holds(model, classes)
        absent = classes.sizes == 0
        if absent.any():
            about = [holds(model, classes) for model in problem.models if isinstance(model, DeltaPresence)]
            if not all(present[absent].all() for present in about):
                continue
            released |= absent
        for risk in problem.risks:
            released[~absent] &= risk.release(classes.sizes[~absent], released[~absent])
        gone = int(classes.sizes[~released].sum())
        if gone <= problem.limit:
            there = [g for g, n in zip(groups, classes.sizes, strict=True) if n]
            kept = [bool(r) for r, n in zip(released, classes.sizes, strict=True) if n]
            found[node] = (naive_cost(problem, node, there, kept), gone)
    return found


SETTINGS: list[tuple[PrivacyModel | AverageRisk, ...]] = [
    (KAnonymity(3),),
    (KMap(3),),
    (DeltaPresence(0.1, 0.7),),
    (KAnonymity(2), DistinctDiversity("s", 2)),
    (KAnonymity(2), EntropyDiversity("s", 1.7)),
    (RecursiveDiversity("s", 2.0, 2),),
    (KAnonymity(2), Closeness("s", 0.25)),
    (Closeness("s", 0.2, Distance.ORDERED), KAnonymity(2)),
    (Closeness("s", 0.2, Distance.HIERARCHICAL),),
    (DeltaDisclosure("s", 1.0),),
    (BetaLikeness("s", 0.8, enhanced=True), DistinctDiversity("s", 2)),
    (AverageRisk(0.2),),
    (KAnonymity(2), AverageRisk(0.2)),
    (KMap(2), Closeness("s", 0.3, Distance.ORDERED)),
    (KMap(2), EntropyDiversity("s", 1.5)),
    (KMap(2), AverageRisk(0.3)),
    (DeltaPresence(0.0, 0.9), RecursiveDiversity("s", 3.0, 2)),
]


@pytest.mark.parametrize(
    "strict",
    [Closeness("s", 0.3, Distance.ORDERED), EntropyDiversity("s", 1.5), RecursiveDiversity("s", 3.0, 2)],
    ids=str,
)
def test_a_population_that_asks_for_nothing_changes_nothing(strict: PrivacyModel) -> None:
    for seed in range(4):
        costs = []
        for models in ((KAnonymity(2), strict), (KAnonymity(2), strict, KMap(1))):
            problem = random_problem(seed, models, Loss(), 0.3)
            solution = OptimalSearch(problem, Checker(problem)).run()
            costs.append(None if solution is None else (solution.cost, solution.classes))
        assert costs[0] == pytest.approx(costs[1])


@pytest.mark.quick_cases(30)
@pytest.mark.parametrize("measure", MEASURES, ids=str)
@pytest.mark.parametrize("models", SETTINGS, ids=lambda ms: " + ".join(map(str, ms)))
@pytest.mark.parametrize("share", [0.0, 0.2])
def test_the_search_finds_what_brute_force_finds(
    models: tuple[PrivacyModel, ...], measure: Measure, share: float
) -> None:
    for seed in range(2):
        problem = random_problem(seed, models, measure, share)
        search = OptimalSearch(problem, Checker(problem))
        solution, expected = search.run(), brute_force(problem)
        if not expected:
            assert solution is None
            continue
        assert solution is not None
        proof = solution.proof
        assert solution.cost == pytest.approx(min(cost for cost, _ in expected.values()), abs=1e-9)
        assert expected[solution.levels] == (pytest.approx(solution.cost, abs=1e-9), solution.suppressed)
        assert proof.complete
        assert proof.checked + proof.failing + proof.costly == proof.nodes == problem.lattice.nodes


@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_no_measure_falls_when_generalizing_or_suppressing(measure: Measure) -> None:
    for seed in range(4):
        free = random_problem(seed, (KAnonymity(1),), measure, 0.0)
        checker = Checker(free)
        costs = {n: checker.check(n).cost for n in itertools.product(*(range(h) for h in free.lattice.heights))}
        for node, cost in costs.items():
            for above in free.lattice.above(node):
                assert costs[above] >= cost - 1e-9
        strict = Checker(random_problem(seed, (KAnonymity(4),), measure, 1.0))
        assert all(strict.check(node).cost >= cost - 1e-9 for node, cost in costs.items())


def test_weights_decide_which_column_stays_fine() -> None:
    problem = random_problem(1, (KAnonymity(3),), Loss({"q0": 100.0}), 0.1)
    other = random_problem(1, (KAnonymity(3),), Loss({"q0": 0.001}), 0.1)
    first, second = (OptimalSearch(p, Checker(p)).run() for p in (problem, other))
    assert first is not None
    assert second is not None
    assert first.levels[0] < second.levels[0]


def test_keys_of_many_wide_columns_stay_exact() -> None:
    chance = np.random.default_rng(0)
    rows = [(str(leaf), str(leaf // 8)) for leaf in range(64)]
    hierarchies = tuple(from_rows(f"q{n}", rows) for n in range(13))  # 6 bits each: more than one word holds
    columns = [chance.integers(0, 64, 400).astype(np.int32) for _ in hierarchies]
    problem = Problem(collapse(columns, [64] * 13).tuples, hierarchies, (KAnonymity(2),), Loss(), 400)
    checker = Checker(problem)
    for node in [(0,) * 13, (2,) * 12 + (0,), (2,) * 11 + (1, 1), (1,) * 2 + (2,) * 11]:
        assert sorted(checker.group(node).sizes) == sorted(naive_sizes(problem, node))


def naive_sizes(problem: Problem, node: tuple[int, ...]) -> list[int]:
    sizes: dict[tuple[int, ...], int] = defaultdict(int)
    for codes, count in zip(problem.tuples.codes, problem.tuples.counts, strict=True):
        sizes[tuple(int(h.levels[n].groups[c]) for h, n, c in zip(problem.hierarchies, node, codes, strict=True))] += (
            int(count)
        )
    return list(sizes.values())


@pytest.mark.parametrize("measure", [Discernibility(), AverageClassSize(), Divergence()], ids=str)
@pytest.mark.parametrize("models", [(KAnonymity(4),), (KAnonymity(2), DistinctDiversity("s", 3))], ids=str)
def test_no_node_above_another_costs_less_than_its_floor(measure: Measure, models: tuple[PrivacyModel, ...]) -> None:
    tight = 0
    for seed in range(6):
        problem = random_problem(seed, models, measure, 0.3)
        checker = Checker(problem)
        verdicts = [checker.check(tuple(map(int, node))) for node in problem.lattice.all()]
        for low in verdicts:
            above = [
                v for v in verdicts if v.acceptable and all(a >= b for a, b in zip(v.levels, low.levels, strict=True))
            ]
            assert all(v.cost >= low.floor * (1 - 1e-9) for v in above)
            tight += low.floor > low.base * (1 + 1e-9)
    assert tight or isinstance(measure, Divergence)  # where small classes must merge, it tells more than the base


def random_nodes(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    chance = np.random.default_rng(seed)
    nodes = np.asfortranarray(chance.integers(0, 4, (50, 4)).astype(np.int8))
    return nodes, np.sort(chance.choice(50, 8, replace=False)), np.sort(chance.choice(50, 20, replace=False))


@pytest.mark.parametrize("seed", range(20))
def test_the_pivot_is_worth_most_by_plain_counting(seed: int) -> None:
    nodes, pivots, probes = random_nodes(seed)
    for additive in (True, False):
        worth = []
        for p in pivots:
            under = sum(bool((nodes[r] <= nodes[p]).all()) for r in probes)
            over = sum(bool(r >= p if additive else (nodes[r] >= nodes[p]).all()) for r in probes)
            worth.append(min(under, over))
        chosen = pruning.choose_pivot(pruning.Scale((4,) * 4).mark(nodes), pivots, probes, additive=additive)
        assert chosen == pivots[worth.index(max(worth))]


@pytest.mark.parametrize("heights", [(4,) * 4, (30, 2, 60, 9), (100, 1, 90)])
def test_marks_tell_below_and_above_as_columns_do_however_many_levels(heights: tuple[int, ...]) -> None:
    chance = np.random.default_rng(1)
    nodes = np.column_stack([chance.integers(0, height, 200) for height in heights]).astype(np.int8)
    marks = pruning.Scale(heights).mark(nodes)
    below, above = pruning.lie_below(marks, marks[:, :40]), pruning.lie_above(marks, marks[:, :40])
    for n, node in enumerate(nodes[:40]):
        assert (below[n] == pruning.at_most(nodes, node)).all()
        assert (above[n] == pruning.at_least(nodes, node)).all()


@pytest.mark.parametrize("seed", range(20))
def test_a_climb_takes_the_step_that_covers_most_short_of_what_is_accepted(seed: int) -> None:
    nodes, _, probes = random_nodes(seed)
    start, tops = nodes.min(axis=0), np.full(4, 3, np.int8)
    accepted = np.array([[3, 3, 2, 1], [1, 3, 3, 3]], np.int8)[: seed % 3]
    scale = pruning.Scale((4,) * 4)
    path, cover = pruning.climb(start, tops, scale, scale.mark(nodes)[:, probes], scale.mark(accepted))
    node, at = start.astype(int), 0
    while True:
        assert path[at].tolist() == node.tolist()
        assert cover[at] == sum(bool((nodes[r] <= node).all()) for r in probes)
        steps = [node + step for step in np.eye(4, dtype=int) if (node + step <= tops).all()]
        steps = [step for step in steps if not any((one <= step).all() for one in accepted)]
        if not steps:
            break
        node, at = max(steps, key=lambda step: sum(bool((nodes[r] <= step).all()) for r in probes)), at + 1
    assert len(path) == at + 1


@pytest.mark.parametrize("seed", range(10))
def test_rows_are_numbered_as_a_dictionary_would_however_large_their_keys(seed: int) -> None:
    chance = np.random.default_rng(seed)
    sizes = [int(size) for size in chance.choice([1, 2, 5, 4000, 2**31 - 1], 6)]
    columns = [chance.integers(0, min(size, 3), 200) for size in sizes]
    count, sample, number = number_rows(columns, sizes)
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    assert count == len(set(rows)) == len(sample)
    assert all(rows[sample[number[i]]] == row for i, row in enumerate(rows))
