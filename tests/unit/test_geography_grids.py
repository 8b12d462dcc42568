"""Maps on adaptive grids: what one person moves, that counts add up, that errors are as stated, where points are."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations_with_replacement
from typing import Any

import numpy as np
import pytest

from deniable.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from deniable.errors import ParameterError
from deniable.geography.grids import (
    MOST_LEAVES,
    RASTER,
    Box,
    Counted,
    MapPlan,
    Reach,
    _find_leaves,
    bound_errors,
    bound_leaves,
    choose_divisions,
    choose_side,
    count_regions,
    divide_evenly,
    estimate_map,
    find_deviation,
    measure_map,
    outline_box,
    paint_raster,
    share_noise,
    sum_within,
)
from deniable.policy.budget import ZCDP, ApproxDP, Budget, PureDP
from seeded import SeededEntropy

UNIT = Box(0.0, 0.0, 1.0, 1.0)
EXACT = PureDP(Fraction(10**6))
"""A budget with next to no noise: what is measured is what is there."""


def plan_of(asked: Budget = EXACT, *, slots: int = 1, rows: int = 1, adaptive: bool = True) -> MapPlan:
    return MapPlan.within(asked, UNIT, slots, Reach.of(rows, False), adaptive=adaptive, pure=True)


def points(seed: int, size: int) -> tuple[Any, Any]:
    draws = np.random.default_rng(seed)
    near = draws.normal(0.3, 0.02, (size // 2, 2)).clip(0, 0.999)
    far = draws.random((size - size // 2, 2))
    y, x = np.concatenate([near, far]).T
    return y, x


def count_cells(y: Any, x: Any, side: int, divided: Any) -> tuple[Any, Any]:
    cell = np.floor(y * side).astype(int) * side + np.floor(x * side).astype(int)
    leaf = _find_leaves(divided, cell, y * side, x * side)
    return np.bincount(cell, minlength=side**2), np.bincount(leaf, minlength=int((divided**2).sum()))


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_one_person_moves_each_step_of_a_map_by_its_rows_and_no_more(rows: int) -> None:
    """Every way to lay so many rows of one person on a small grid, and on one that is divided unevenly."""
    divided, places = np.array([1, 2, 3, 1]), [(y, x) for y in (0.1, 0.4, 0.9) for x in (0.2, 0.6)]
    before = count_cells(np.array([0.3]), np.array([0.7]), 2, divided)
    whole, squared = [], []
    for chosen in combinations_with_replacement(places, rows):
        y, x = np.array([0.3, *(p[0] for p in chosen)]), np.array([0.7, *(p[1] for p in chosen)])
        for one, other in zip(before, count_cells(y, x, 2, divided), strict=True):
            whole.append(int(np.abs(other - one).sum()))
            squared.append(int(((other - one) ** 2).sum()))
    assert (max(whole), max(squared)) == (Reach.of(rows, False).whole, Reach.of(rows, False).squared)


def test_a_replaced_person_moves_twice_as_much_and_squares_add() -> None:
    divided = np.ones(4, np.int64)
    one, other = (count_cells(np.full(3, y), np.full(3, 0.1), 2, divided)[0] for y in (0.1, 0.9))
    assert (np.abs(one - other).sum(), ((one - other) ** 2).sum()) == (6, 18)
    assert (Reach.of(3, True).whole, Reach.of(3, True).squared) == (6, 18)


def test_every_point_is_in_the_one_leaf_whose_edges_enclose_it() -> None:
    y, x = points(1, 3000)
    plan = plan_of()
    found = estimate_map(plan, measure_map(plan, y, x, np.zeros(len(y), np.int64)))
    leaf = found.locate(y, x)
    south, west, north, east = found.edges[leaf].T
    assert ((south <= y + 1e-12) & (y < north + 1e-12) & (west <= x + 1e-12) & (x < east + 1e-12)).all()
    assert np.allclose(np.bincount(leaf, minlength=len(found.points)), found.points, atol=1e-6)
    whole = ((found.edges[:, 2] - found.edges[:, 0]) * (found.edges[:, 3] - found.edges[:, 1])).sum()
    assert whole == pytest.approx(1.0)


@pytest.mark.parametrize("asked", [PureDP(Fraction(1)), ZCDP(Fraction(1, 10))], ids=["Laplace", "Gaussian"])
@pytest.mark.parametrize("adaptive", [True, False])
def test_parts_add_up_to_totals_whatever_the_noise(asked: Budget, adaptive: bool) -> None:
    y, x = points(2, 5000)
    plan = plan_of(asked, slots=2, adaptive=adaptive)
    found = estimate_map(plan, measure_map(plan, y, x, np.arange(len(y)) % 2, SeededEntropy(4)))
    assert np.bincount(found.slot, found.points) == pytest.approx(found.totals)


def test_the_stated_deviations_are_those_of_the_noise() -> None:
    """A fixed grid of two cells, one of them in four parts, measured 1,000 times; 20% more or less would be seen."""
    plan, runs = plan_of(PureDP(Fraction(1, 2))), 1000
    entropy = SeededEntropy(9)
    total, cells, parts = (noise.release(np.zeros(runs * size, np.int64), entropy).reshape(runs, size)
                           for noise, size in zip(plan.noises, (1, 4, 7), strict=True))  # fmt: skip
    divided = np.array([1, 2, 1, 1])
    found = [estimate_map(plan, Counted(t, np.array([2]), c, divided, p))
             for t, c, p in zip(total, cells, parts, strict=True)]  # fmt: skip
    stated = found[0].deviations
    # The estimate is linear in the counts: its matrix is read off unit vectors, and tells the spread exactly.
    rows = [estimate_map(plan, Counted(e[:1], np.array([2]), e[1:5], divided, e[5:])).points
            for e in np.eye(12, dtype=np.int64)]  # fmt: skip
    spread = np.repeat([find_deviation(noise) ** 2 for noise in plan.noises], (1, 4, 7))
    assert np.sqrt(spread @ np.array(rows) ** 2) == pytest.approx(stated)
    measured = np.std([each.points for each in found], axis=0)
    assert (np.abs(measured / stated - 1) < 0.2).all()


def test_the_fit_is_the_one_of_least_squares() -> None:
    """The closed form against the normal equations, with weights by the variance of each count."""
    plan = plan_of(PureDP(Fraction(1)))
    draws = np.random.default_rng(5)
    total, cells, parts = (draws.integers(0, 50, size) for size in (1, 4, 7))
    divided = np.array([1, 2, 1, 1])
    found = estimate_map(plan, Counted(total, np.array([2]), cells, divided, parts))
    cell_of = np.repeat(np.arange(4), divided**2)
    design = np.vstack([np.ones((1, 7)), (cell_of == np.arange(4)[:, None]).astype(float), np.eye(7)])
    weight = 1 / np.repeat([find_deviation(noise) for noise in plan.noises], (1, 4, 7))
    solved = np.linalg.lstsq(design * weight[:, None], np.concatenate([total, cells, parts]) * weight, rcond=None)[0]
    assert found.points == pytest.approx(solved)


def test_intervals_hold_as_often_as_they_say_for_single_noise_and_for_sums() -> None:
    noise, entropy = LaplaceMechanism(Fraction(20)), SeededEntropy(3)
    drawn = noise.release(np.zeros(40_000, np.int64), entropy).reshape(-1, 8).astype(float)
    for values, size in ((drawn[:, 0], 1), (drawn.sum(axis=1), 8)):
        for confidence in (0.5, 0.95, 0.99):
            inside = np.abs(values) <= bound_errors(find_deviation(noise) * np.sqrt([size]), confidence)
            assert inside.mean() > confidence - 0.015
    assert bound_errors(np.array([1000.0]), 0.95)[0] == pytest.approx(2119, abs=1)


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize("epsilon", ["1.35", "2.5", "2.7", "3", "4.8", "5", "5.2", "8"])
def test_intervals_of_a_map_hold_where_its_noise_is_a_step_or_none(epsilon: str, adaptive: bool) -> None:
    """With a deviation below 0.47 noise is 0 or 1, and the quantile of continuous noise is below 1."""
    plan = MapPlan.within(PureDP(Fraction(epsilon)), UNIT, 1, Reach.of(1, False), adaptive=adaptive, pure=True)
    draws, held = np.random.default_rng(7), []
    y, x = draws.random((2, 1500))
    for seed in range(12):
        found = estimate_map(plan, measure_map(plan, y, x, np.zeros(1500, np.int64), SeededEntropy(seed)))
        leaf = found.locate(*UNIT.scale(y, x))
        exact = np.bincount(leaf, minlength=len(found.points))
        held.append(np.abs(found.points - exact) <= bound_leaves(plan, found, 0.95))
    assert np.concatenate(held).mean() > 0.948


def test_the_published_rules_choose_the_sizes() -> None:
    assert choose_side(1_000_000, 1.0, adaptive=False) == 317
    assert choose_side(1_000_000, 1.0, adaptive=True) == 80
    assert choose_side(-500.0, 1.0, adaptive=True) == 10
    assert choose_side(0.0, 1.0, adaptive=False) == 1
    laplace = 2**0.5  # the deviation of an epsilon of 1
    assert choose_divisions(np.array([-3, 0, 5, 500]), laplace).tolist() == [1, 1, 1, 10]


def test_noise_that_says_too_much_cannot_make_too_many_cells() -> None:
    divided = choose_divisions(np.full(1000, 10**12), 1.0)
    assert 1000 < (divided**2).sum() <= MOST_LEAVES


def test_which_noise_is_chosen_depends_on_the_budget_and_on_whether_prices_are_pure() -> None:
    parts = [(Fraction(1, 2), Reach(100, 100)), (Fraction(1, 2), Reach(100, 100))]
    wide = ApproxDP(Fraction(1), Fraction(1, 10**6))
    assert isinstance(share_noise(wide, parts, pure=False)[0], GaussianMechanism)
    assert isinstance(share_noise(wide, parts, pure=True)[0], LaplaceMechanism)
    assert isinstance(share_noise(ZCDP(Fraction(1)), parts, pure=False)[0], GaussianMechanism)


def test_a_box_knows_the_antimeridian_and_what_is_outside() -> None:
    box = Box(-20.0, 170.0, -10.0, 190.0)
    assert box.shift(np.array([175.0, -175.0, 185.0, -185.0, 0.0, np.nan])).tolist()[:4] == [175.0, 185.0, 185.0, 175.0]
    assert np.isnan(box.shift(np.array([0.0, np.nan, np.inf]))).all()


@pytest.mark.parametrize(
    "ends",
    [(1, 0, 0, 1), (0, 0, 1, 0), (-91, 0, 0, 1), (0, 0, 91, 1), (0, 0, 1, 361), (0, float("nan"), 1, 1), (0, 0, 0, 1)],
)
def test_a_box_that_is_none_is_refused(ends: tuple[float, ...]) -> None:
    with pytest.raises(ParameterError, match="box"):
        Box(*ends)


def test_sums_in_a_box_are_those_of_the_parts_inside() -> None:
    y, x = points(3, 4000)
    plan = plan_of()
    found = estimate_map(plan, measure_map(plan, y, x, np.zeros(len(y), np.int64)))
    assert sum_within(found.edges, found.points, UNIT)[0] == pytest.approx(4000)
    inside = Box(0.2, 0.2, 0.5, 0.6)
    expected = sum(
        points * max(0, min(n, 0.5) - max(s, 0.2)) * max(0, min(e, 0.6) - max(w, 0.2)) / ((n - s) * (e - w))
        for (s, w, n, e), points in zip(found.edges.tolist(), found.points.tolist(), strict=True)
    )
    assert sum_within(found.edges, found.points, inside)[0] == pytest.approx(expected)
    assert sum(cell["count"] for cell in paint_raster(found.edges, found.points)) == pytest.approx(4000, rel=0.06)


@pytest.mark.parametrize("count", [1, 2, 7, 60])
def test_regions_cover_the_box_once_and_weigh_about_the_same(count: int) -> None:
    y, x = points(4, 20_000)
    plan = plan_of()
    found = estimate_map(plan, measure_map(plan, y, x, np.zeros(len(y), np.int64)))
    regions = divide_evenly(found, count)
    assert regions.count == count
    sizes = (regions.corners[:, 1] - regions.corners[:, 0]) * (regions.corners[:, 3] - regions.corners[:, 2])
    assert sizes.sum() == RASTER**2
    assert np.bincount(regions.labels.ravel(), minlength=count).tolist() == sizes.tolist()
    held = np.bincount(regions.locate(y, x), minlength=count)
    assert held.max() <= 2.5 * len(y) / count


def test_the_number_of_regions_follows_the_noise_and_stays_in_its_limits() -> None:
    assert count_regions(-5.0, 1.0) == 2
    assert count_regions(1e12, 1.0) == 200
    assert count_regions(100_000, 2**0.5) == 100
    assert count_regions(100_000, 2**0.5, slots=4) == 50


def test_an_empty_map_is_measured_as_any_other() -> None:
    nothing = np.empty(0)
    plan = plan_of(PureDP(Fraction(1)))
    found = estimate_map(plan, measure_map(plan, nothing, nothing, np.empty(0, np.int64)))
    assert len(found.points) >= 100
    assert abs(found.totals[0]) < 100 * found.total_deviations[0]


def test_a_cell_across_the_antimeridian_is_cut_there() -> None:
    assert outline_box([0, -101, 1, -100])["type"] == "Polygon"
    cut: Any = outline_box([0, 179, 1, 181])
    assert cut["type"] == "MultiPolygon"
    assert {x for ring in cut["coordinates"] for x, _ in ring[0]} == {179, 180.0, -180.0, -179}


@pytest.mark.slow
def test_a_map_of_a_million_rides_errs_less_than_a_uniform_grid_of_the_published_size() -> None:
    """The bar is 0.8; `bench/places.py` prints 0.38 for this box."""
    from deniable import world

    rides = world.make("taxi", 60_000)["rides"].slice(0, 1_000_000)
    box, draws = Box(44.93, -100.08, 45.11, -99.93), np.random.default_rng(1)
    y, x = (rides[f"pickup_{part}"].to_numpy() for part in ("latitude", "longitude"))
    inside = (y >= box.south) & (y <= box.north) & (x >= box.west) & (x <= box.east)
    y, x = y[inside], x[inside]
    found = []
    for adaptive in (True, False):
        plan = MapPlan.within(PureDP(Fraction(1)), box, 1, Reach.of(1, False), adaptive=adaptive, pure=True)
        found.append(estimate_map(plan, measure_map(plan, y, x, np.zeros(len(y), np.int64))))
    errors = []
    for size in (2, 8, 32):
        high, wide = (box.north - box.south) / size, (box.east - box.west) / size
        for south, west in draws.random((30, 2)) * (box.north - box.south - high, box.east - box.west - wide):
            asked = Box(box.south + south, box.west + west, box.south + south + high, box.west + west + wide)
            true = ((y >= asked.south) & (y < asked.north) & (x >= asked.west) & (x < asked.east)).sum()
            errors.append([abs(sum_within(each.edges, each.points, asked)[0] - true) for each in found])
    ours, uniform = np.mean(errors, axis=0)
    assert ours < 0.8 * uniform
