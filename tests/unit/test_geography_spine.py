"""A tree of areas: least squares by brute force, whole numbers that add up, and noise of the stated size."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.dp.accounting import zcdp_cost
from deniable.errors import ParameterError
from deniable.geography import published, spine
from deniable.geography.consistency import fit_children, round_alone, round_children, round_totals
from deniable.geography.spine import Cells, Design, Invariant, Spine, Table, plan_noise
from deniable.policy.budget import budget

ONE = Fraction(1)
CELLS = Cells(("sex", "old"), (("F", "M"), ("0", "1", "2")))
MARGINS = [((), ONE), (("sex",), 2 * ONE), (("sex", "old"), ONE)]


def make_spine(*children: int) -> Spine:
    """A tree whose areas have so many children, level by level, and one area more than the others in the first."""
    paths: list[tuple[str, ...]] = [()]
    for many in children:
        paths = [
            (*path, f"{'.'.join(path)}.{i}") for n, path in enumerate(paths) for i in range(many + (n == 0))
        ]  # fmt: skip
    return Spine.of([f"l{i}" for i in range(len(children))], [list(each) for each in zip(*paths, strict=True)])


def make_table(dense: Any) -> Table:
    area, cell = np.nonzero(dense)
    return Table(area.astype(np.int32), cell.astype(np.int32), dense[area, cell].astype(np.int32))


def make_design(tree: Spine, rho: str = "1", **more: Any) -> Design:
    return plan_noise(budget(rho=rho), tree, CELLS, MARGINS, more.pop("levels", None), reach=1, replaced=False, **more)


def test_areas_of_one_parent_stand_side_by_side_whatever_the_order_of_the_list() -> None:
    names = [["B", "A", "B", "A"], ["x", "y", "x", "x"], ["4", "1", "3", "2"]]
    tree = Spine.of(("state", "county", "block"), names)
    assert tree.sizes == (1, 2, 3, 4)
    assert tree.names[2].tolist() == ["x", "y", "x"]  # one name in two states is two counties
    assert tree.names[3].tolist() == ["2", "1", "3", "4"]
    assert tree.find_ancestors(1).tolist() == [0, 0, 1, 1]
    assert published.list_paths(tree, 2) == [("A", "x"), ("A", "y"), ("B", "x")]


@pytest.mark.parametrize("names", [[["A", "A"], ["1", "1"]], [["A", "B"], ["1", "1"]], [["A", None], ["1", "2"]]])
def test_a_smallest_area_that_is_listed_twice_or_nowhere_is_refused(names: list[list[Any]]) -> None:
    with pytest.raises(ParameterError):
        Spine.of(("state", "block"), names)


def solve_densely(design: Design, noisy: list[list[Any] | None]) -> Any:
    """All cells of all smallest areas by weighted least squares, from one matrix of everything that was measured."""
    tree, cells = design.spine, design.cells.count
    many = tree.sizes[-1] * cells
    rows, seen, weight = [], [], []
    for level, measured in enumerate(noisy):
        up = tree.find_ancestors(level)
        for margin, mapped in enumerate(design.maps):
            for area, m in itertools.product(range(tree.sizes[level]), range(int(mapped.max()) + 1)):
                row = np.zeros((tree.sizes[-1], cells))
                row[np.ix_(up == area, mapped == m)] = 1
                rows.append(row.reshape(many))
                assert measured is not None
                seen.append(measured[margin][area, m])
                weight.append(design.variance(level, margin) ** -0.5)
    scale = np.array(weight)
    found, *_ = np.linalg.lstsq(np.array(rows) * scale[:, None], np.array(seen) * scale, rcond=None)
    return found.reshape(tree.sizes[-1], cells)


def solve_downwards(design: Design, noisy: list[list[Any] | None]) -> Any:
    """The same by our two passes, without rounding."""
    found = spine.estimate(design, noisy)
    parents, margins = None, list(range(len(design.margins) - 1))
    offsets = np.concatenate(([0], np.cumsum([int(design.maps[m].max()) + 1 for m in margins])))
    for level in range(design.spine.depth):
        maps = np.array([design.maps[m] for m in margins])
        ratios = np.array([design.variance(level, m) / design.variance(level, len(margins)) for m in margins])
        starts = np.array([0, 1]) if level == 0 else design.spine.starts[level - 1]
        rows = []
        for area in range(len(starts) - 1):
            inside = slice(int(starts[area]), int(starts[area + 1]))
            targets = np.concatenate([found.values[level][m][inside].astype(float) for m in margins], axis=1)
            cells = found.values[level][-1][inside].astype(float)
            parent = np.zeros(cells.shape[1]) if parents is None else parents[area]
            variances = found.variances[level][-1][inside]
            rows.append(fit_children(cells, variances, parent, level > 0, maps, offsets, targets, ratios))
        parents = np.concatenate(rows)
    return parents


@pytest.mark.parametrize("children", [(2,), (2, 3), (3, 2)])
def test_far_from_zero_it_is_the_least_squares_estimate_of_everything_that_was_measured(
    children: tuple[int, ...],
) -> None:
    tree = make_spine(*children)
    design = make_design(tree, levels={name: Fraction(i + 1) for i, name in enumerate(tree.levels)})
    exact = make_table(np.random.default_rng(1).integers(500, 900, (tree.sizes[-1], CELLS.count)))
    noisy = spine.measure(design, exact, design.noises)
    assert np.abs(solve_downwards(design, noisy) - solve_densely(design, noisy)).max() < 0.02


def test_at_zero_no_other_numbers_that_add_up_are_nearer() -> None:
    from scipy.optimize import minimize

    generator = np.random.default_rng(5)
    children, cells = 3, 4
    maps, offsets = np.array([[0, 0, 0, 0], [0, 0, 1, 1]]), np.array([0, 1, 3])
    for _ in range(5):
        z, scale = generator.normal(1, 4, (children, cells)), generator.uniform(0.5, 2, children)
        targets, ratios = generator.normal(4, 4, (children, 3)), np.array([0.5, 2.0])
        parent = generator.integers(0, 6, cells).astype(float)

        def judge(x: Any, z: Any = z, scale: Any = scale, targets: Any = targets, ratios: Any = ratios) -> float:
            x = x.reshape(children, cells)
            sums = np.stack([np.stack([x[:, maps[q] == m].sum(1) for m in range(offsets[q + 1] - offsets[q])], 1)
                             for q in range(1)] , 0)[0]  # fmt: skip
            second = np.stack([x[:, maps[1] == m].sum(1) for m in range(2)], 1)
            off = ((x - z) ** 2 / scale[:, None]).sum()
            off += ((sums - targets[:, :1]) ** 2 / (ratios[0] * scale[:, None])).sum()
            return float(off + ((second - targets[:, 1:]) ** 2 / (ratios[1] * scale[:, None])).sum())

        ours = fit_children(z, scale, parent, True, maps, offsets, targets, ratios)
        assert np.abs(ours.sum(0) - parent).max() < 1e-4
        start = np.tile(parent / children, (children, 1)).reshape(-1)
        best = minimize(
            judge, start, bounds=[(0, None)] * start.size, method="SLSQP", options={"maxiter": 500, "ftol": 1e-12},
            constraints={"type": "eq", "fun": lambda x, p=parent: x.reshape(children, cells).sum(0) - p},
        )  # fmt: skip
        assert judge(ours) <= best.fun + 0.02 * (1 + abs(best.fun)) ** 0.5


def check_table(design: Design, table: Table, totals: list[Any], fixed: list[Invariant | None]) -> None:
    """What every release promises, by other code than makes it."""
    assert (table.count > 0).all()
    pairs = set(zip(table.area.tolist(), table.cell.tolist(), strict=True))
    assert len(pairs) == len(table.count)
    for level, exact in enumerate(fixed):
        up = design.spine.find_ancestors(level)
        sums = np.zeros((design.spine.sizes[level], design.cells.count), np.int64)
        for area, cell, count in zip(table.area, table.cell, table.count, strict=True):
            sums[up[area], cell] += count
        assert (sums.sum(1) == totals[level]).all()
        if exact is not None:
            mapped = design.cells.map_margin(exact.by)
            for j in range(exact.values.shape[1]):
                assert (sums[:, mapped == j].sum(1) == exact.values[:, j]).all()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=0, max_size=3),
    st.integers(0, 2**32),
    st.sampled_from(["0.0001", "0.1", "10"]),
    st.sampled_from([(), ((),), ((), ()), (("sex",), ()), (("sex", "old"), ("sex",), ())]),
)
def test_numbers_are_whole_never_negative_add_up_and_meet_every_invariant(
    children: list[int], seed: int, rho: str, exactly: tuple[tuple[str, ...], ...]
) -> None:
    generator = np.random.default_rng(seed)
    tree = make_spine(*children)
    design = make_design(tree, rho)
    dense = generator.poisson(generator.choice([0, 0.3, 5, 80], (tree.sizes[-1], 1)), (tree.sizes[-1], CELLS.count))
    exact = make_table(dense)
    levels = [exactly[i] if i < len(exactly) else None for i in range(tree.depth)]
    fixed = [
        None if by is None else Invariant(by, spine.sum_level(design, exact, i, by)) for i, by in enumerate(levels)
    ]
    estimates = spine.estimate(design, spine.measure(design, exact, design.noises))
    table, totals = spine.infer(design, estimates, fixed)
    check_table(design, table, totals, fixed)


def test_without_noise_the_exact_numbers_come_back() -> None:
    tree = make_spine(2, 3)
    dense = np.random.default_rng(2).poisson(2, (tree.sizes[-1], CELLS.count))
    design = make_design(tree, "1000000")
    table, totals = spine.infer(design, spine.estimate(design, spine.measure(design, make_table(dense), design.noises)),
                                [None] * 3)  # fmt: skip
    again = np.zeros_like(dense)
    again[table.area, table.cell] = table.count
    assert (again == dense).all()
    assert totals[0].tolist() == [dense.sum()]


def test_rounding_keeps_both_sums_for_numbers_that_fit_neither() -> None:
    x = np.array([[0.2, 0.2, 0.2], [0.9, 0.9, 0.9], [5.0, 0.0, 0.0]])
    parent, wanted = np.array([3, 2, 1]), np.array([[4], [0], [2]])
    found = round_children(x, parent, np.zeros(3, np.int64), wanted)
    assert found.sum(0).tolist() == [3, 2, 1]
    assert found.sum(1).tolist() == [4, 0, 2]
    assert found.min() >= 0
    assert round_totals(np.array([[2.9], [2.9]]), np.array([0])).tolist() == [[0], [0]]
    assert round_alone(np.array([0.4, 0.4, 7.0]), np.array([0, 0, 1]), np.array([1, 3])).tolist() == [1, 0, 3]


def test_each_level_has_noise_of_its_own_size_and_another_size_is_noticed() -> None:
    tree = make_spine(40, 5)
    design = make_design(tree, levels={"all": ONE, "l0": 2 * ONE, "l1": 5 * ONE})
    empty = Table(*(np.zeros(0, np.int32) for _ in range(3)))
    draws = [spine.measure(design, empty, design.noises) for _ in range(80)]
    for level in (1, 2):
        for margin in range(3):
            seen = np.concatenate([each[level][margin].ravel() for each in draws if each[level] is not None])
            for factor, right in ((1.0, True), (0.7, False), (1.3, False)):
                expected = factor * design.variance(level, margin)
                spread = math.sqrt(2 / len(seen)) * 5
                assert bool(abs(seen.var() / expected - 1) < spread) is right


def test_the_price_is_that_of_all_levels_together() -> None:
    design = make_design(make_spine(3, 3), "0.5")
    assert sum(sum(level) for level in design.shares) == 1
    cost = zcdp_cost(design.event)
    assert cost is not None
    assert cost.amount == Fraction(1, 2)
    replaced = plan_noise(budget(rho="0.5"), design.spine, CELLS, MARGINS, None, reach=3, replaced=True)
    assert replaced.variance(1, 0) == pytest.approx(18 * design.variance(1, 0))


def test_what_one_unit_moves_is_never_more_than_the_noise_is_made_for() -> None:
    """By brute force: all ways to put two rows of one unit into two areas and six cells, added or put elsewhere."""
    tree, cells = Spine.of(("block",), [["a", "b"]]), CELLS
    design = make_design(tree)
    places = list(itertools.product(range(2), range(cells.count)))
    vectors = [[*rows] for many in range(3) for rows in itertools.combinations_with_replacement(places, many)]
    for level in range(2):
        up = tree.find_ancestors(level)
        for mapped in design.maps:
            size = int(mapped.max()) + 1
            made = np.zeros((len(vectors), tree.sizes[level] * size))
            for i, rows in enumerate(vectors):
                for area, cell in rows:
                    made[i, up[area] * size + mapped[cell]] += 1
            assert (made**2).sum(1).max() == 4
            moved = ((made[:, None, :] - made[None, :, :]) ** 2).sum(2).max()
            assert moved <= 2 * 4
            assert np.abs(made[:, None, :] - made[None, :, :]).sum(2).max() <= 2 * 2


def test_chosen_shares_have_less_error_than_even_ones() -> None:
    tree = make_spine(3, 30)
    fans = [after / before for before, after in itertools.pairwise(tree.sizes)]
    chosen = spine.choose_shares(tree, pure=False)

    def judge(weights: Any) -> float:
        return sum(spine.spread_evenly([float(sum(weights) / each) for each in weights], fans))

    assert judge(chosen) < judge([1, 1, 1])
    assert judge(chosen) < judge([0.01, 0.01, 1])


@pytest.mark.parametrize("allowance", [budget(rho="0.2"), budget(epsilon=2), budget(epsilon=2, delta="1e-6")])
def test_intervals_of_totals_hold_the_exact_ones(allowance: Any) -> None:
    tree = make_spine(4, 12)
    design = plan_noise(allowance, tree, CELLS, MARGINS, None, reach=1, replaced=True)
    dense = np.random.default_rng(9).poisson(0.5, (tree.sizes[-1], CELLS.count))
    exact = make_table(dense)
    fixed = [Invariant((), spine.sum_level(design, exact, 0, ())), None, None]
    hits, tries = 0, 0
    for _ in range(12):
        estimates = spine.estimate(design, spine.measure(design, exact, design.noises))
        unbiased = published.estimate_totals(design, estimates, fixed)
        table, totals = spine.infer(design, estimates, fixed)
        shown = published.Published(table, tuple(totals), unbiased, ())
        for level in (1, 2):
            truth = spine.sum_level(design, exact, level, ())[:, 0]
            rows = list(published.list_totals(design, shown, level))
            hits += sum(row.low <= value <= row.high for row, value in zip(rows, truth, strict=True))
            tries += len(rows)
        assert next(iter(published.list_totals(design, shown, 0))).low == dense.sum()
    assert 0.92 < hits / tries < 0.99


def test_errors_by_size_are_those_that_the_noise_makes() -> None:
    tree = make_spine(6, 20)
    design = make_design(tree, "0.3")
    generator = np.random.default_rng(4)
    dense = generator.poisson(generator.choice([0.2, 4.0], (tree.sizes[-1], 1)), (tree.sizes[-1], CELLS.count))
    exact = make_table(dense)
    told, real = [], []
    for _ in range(6):
        estimates = spine.estimate(design, spine.measure(design, exact, design.noises))
        table, _ = spine.infer(design, estimates, [None] * 3)
        told.append(next(e for e in published.imitate(design, table, [None] * 3) if (e.level, e.least) == ("l1", 10)))
        again = np.bincount(table.area, weights=table.count, minlength=tree.sizes[-1]) - dense.sum(1)
        inside = (dense.sum(1) >= 10) & (dense.sum(1) < 100)
        real.append(math.sqrt((again[inside] ** 2).mean()))
    assert 0.75 < np.mean([e.total_error for e in told]) / np.mean(real) < 1.33


def test_what_is_stored_is_what_was_published() -> None:
    design = make_design(make_spine(2, 3))
    exact = make_table(np.random.default_rng(2).poisson(2, (design.spine.sizes[-1], CELLS.count)))
    estimates = spine.estimate(design, spine.measure(design, exact, design.noises))
    table, totals = spine.infer(design, estimates, [None] * 3)
    errors = tuple(published.imitate(design, table, [None] * 3))
    before = published.Published(table, tuple(totals), published.estimate_totals(design, estimates, [None] * 3), errors)
    after = published.read_published(published.write_published(before))
    assert after.errors == errors
    assert all((a == b).all() for a, b in zip(after.totals, before.totals, strict=True))
    assert (after.table.count == table.count).all()
    assert (after.estimates.deviations[2] == before.estimates.deviations[2]).all()
