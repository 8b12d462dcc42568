"""Flows and traces: what one person moves, which rows count, that drawn traces keep ends, lengths and steps."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from deniable.engines.duckdb import DuckDBEngine
from deniable.geography.grids import Box, find_reach
from deniable.geography.traces import (
    FlowPlan,
    Points,
    TracePlan,
    build_model,
    clear_noise,
    count_traces,
    draw_traces,
    list_reaches,
    measure_flows,
    measure_traces,
    render_points,
)
from deniable.policy.budget import PureDP
from seeded import SeededEntropy

UNIT = Box(0.0, 0.0, 1.0, 1.0)
EXACT = PureDP(Fraction(10**6))


@pytest.mark.parametrize("longest", [1, 2, 3, 4])
def test_one_trace_moves_lengths_ends_and_steps_by_what_its_noise_is_made_for(longest: int) -> None:
    """Every trace of so many points over three regions, beside another person: the bounds are met, and reached."""
    before = count_traces(np.array([0, 1]), np.array([0, 0]), 3, longest + 1)
    reached = [0, 0, 0]
    for length in range(1, longest + 1):
        for path in product(range(3), repeat=length):
            after = count_traces(np.array([0, 1, *path]), np.array([0, 0, *[1] * length]), 3, longest + 1)
            moved = [int(np.abs(b - a).sum()) for a, b in zip(before, after, strict=True)]
            reached = [max(a, b) for a, b in zip(reached, moved, strict=True)]
    assert reached[:2] == [1, 1]
    assert reached[2] == longest - 1 <= list_reaches(longest, False)[2].whole


def test_the_noise_of_a_plan_is_made_for_rows_ends_and_steps() -> None:
    flows = FlowPlan.within(PureDP(Fraction(1)), UNIT, 1, 3, replaced=False, pure=True)
    assert [noise.sensitivity for noise in flows.map.noises] == [6, 6, 6]
    assert flows.noise.sensitivity == 3
    traces = TracePlan.within(PureDP(Fraction(1)), UNIT, 5, replaced=False, pure=True)
    assert [noise.sensitivity for noise in (*traces.map.noises, *traces.noises)] == [5, 5, 5, 1, 1, 4]
    doubled = TracePlan.within(PureDP(Fraction(1)), UNIT, 5, replaced=True, pure=True)
    assert [noise.sensitivity for noise in (*doubled.map.noises, *doubled.noises)] == [10, 10, 10, 2, 2, 8]
    assert all(find_reach(noise, reach) for noise, reach in zip(doubled.noises, list_reaches(5, True), strict=True))
    assert not find_reach(traces.noises[2], list_reaches(5, True)[2])


def test_flows_count_pairs_of_regions_by_slot() -> None:
    draws = np.random.default_rng(1)
    start, end = draws.random((2, 4000)), draws.random((2, 4000)) ** 2
    slot = draws.integers(0, 2, 4000)
    plan = FlowPlan.within(EXACT, UNIT, 2, 1, replaced=False, pure=True)
    counted, pairs = measure_flows(plan, (start[0], start[1]), (end[0], end[1]), slot, SeededEntropy(1))
    from deniable.geography.grids import estimate_map

    regions = plan.choose_regions(estimate_map(plan.map, counted))
    first, last = regions.locate(start[0], start[1]), regions.locate(end[0], end[1])
    expected = np.zeros((2, regions.count, regions.count), int)
    np.add.at(expected, (slot, first, last), 1)
    assert pairs.tolist() == expected.ravel().tolist()


def make_walks(people: int, longest: int) -> tuple[Any, Any, Any]:
    """Commuters: each begins at a home, goes to one of two centers, and ends at home."""
    draws = np.random.default_rng(2)
    home, center = draws.random((people, 2)), np.array([[0.25, 0.25], [0.75, 0.75]])
    lengths = draws.integers(1, longest + 1, people)
    person = np.repeat(np.arange(people), lengths)
    step = np.arange(len(person)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    away = (step > 0) & (step < lengths[person] - 1)
    near = center[(home[person, 0] > 0.5).astype(int)] + draws.normal(0, 0.01, (len(person), 2))
    places = np.where(away[:, None], near, home[person])
    return places[:, 0], places[:, 1], person


def compare(one: Any, other: Any) -> float:
    return float(np.abs(one / one.sum() - other / other.sum()).sum() / 2)


def test_drawn_traces_keep_ends_lengths_and_steps() -> None:
    y, x, person = make_walks(20_000, 6)
    plan = TracePlan.within(PureDP(Fraction(2)), UNIT, 6, replaced=False, pure=True)
    model = build_model(plan, measure_traces(plan, y, x, person, SeededEntropy(5)))
    drawn, step, region, places = draw_traces(model, 20_000, seed=1)
    assert abs(model.people - 20_000) < 300
    assert (model.regions.locate(places[:, 0], places[:, 1]) == region).all()
    assert (np.diff(step)[np.diff(drawn) == 0] == 1).all()
    real = count_traces(model.regions.locate(y, x), person, model.regions.count, 6)
    fake = count_traces(region, drawn, model.regions.count, 6)
    lengths, ends, steps = (compare(a, b) for a, b in zip(real, fake, strict=True))
    alone = np.outer(*(np.bincount(r, minlength=model.regions.count) for r in (region, region))).ravel()
    assert lengths < 0.02
    assert ends < 0.35 < compare(real[1], alone)  # pairs of ends by the regions' shares alone are far worse
    assert steps < 0.35 < compare(real[2], alone)


def test_a_trace_is_drawn_by_its_seed_and_ends_where_its_pair_says() -> None:
    y, x, person = make_walks(2_000, 4)
    plan = TracePlan.within(EXACT, UNIT, 4, replaced=False, pure=True)
    model = build_model(plan, measure_traces(plan, y, x, person))
    one, other, again = (draw_traces(model, 500, seed=seed) for seed in (1, 2, 1))
    assert all((a == b).all() for a, b in zip(one, again, strict=True))
    assert len(one[2]) != len(other[2]) or (one[2] != other[2]).any()
    lengths, ends, _ = count_traces(one[2], one[0], model.regions.count, 4)
    assert lengths.sum() == ends.sum() == 500
    longer = np.repeat(np.bincount(one[0]) > 1, np.bincount(one[0]))
    pairs = count_traces(one[2][longer], one[0][longer], model.regions.count, 4)[1]
    assert set(np.flatnonzero(pairs)) <= set(np.flatnonzero(model.ends))


def test_a_model_of_nobody_draws_what_it_is_asked_to() -> None:
    plan = TracePlan.within(PureDP(Fraction(1)), UNIT, 3, replaced=False, pure=True)
    nothing = np.empty(0)
    model = build_model(plan, measure_traces(plan, nothing, nothing, np.empty(0, np.int64)))
    assert len(np.unique(draw_traces(model, 5)[0])) == 5
    assert len(draw_traces(model, 0)[0]) == 0


def test_what_noise_alone_makes_is_cleared() -> None:
    counts = np.zeros(1000, np.int64)
    counts[:10] = 500
    noisy = counts + np.random.default_rng(1).laplace(0, 10, 1000).round().astype(np.int64)
    assert (clear_noise(noisy, 14.0)[:10] > 0).all()
    assert (clear_noise(noisy, 14.0)[10:] > 0).sum() < 10
    assert clear_noise(np.full(4, -3), 1.0).tolist() == [0.25] * 4


ODD = pa.table({
    "who": ["a", "a", "a", "b", "b", "b", "b", None, "c", "c"],
    "lat": [0.5, 0.5, 0.6, None, float("nan"), 2.0, 0.1, 0.5, 1.0, 0.0],
    "lon": [0.5, 0.5, 0.7, 0.5, 0.5, 0.5, 360.2, 0.5, 1.0, float("inf")],
    "at": pa.array([3, 1, 2, 1, 1, 1, None, 1, 1, 1], pa.timestamp("s")),
})  # fmt: skip


def read(points: Points, table: pa.Table = ODD) -> list[dict[str, Any]]:
    with DuckDBEngine() as engine:
        engine.attach("t", table)
        return engine.run(render_points(points)).to_pylist()


def test_rows_without_a_place_or_outside_the_box_count_nowhere_and_turns_are_taken_back() -> None:
    found = read(Points("t", "who", UNIT, 10, ("lat", "lon")))
    assert sorted((row["_y"], round(row["_x"], 9)) for row in found) == [
        (0.1, 0.2), (0.5, 0.5), (0.5, 0.5), (0.6, 0.7), (1.0, 1.0),
    ]  # fmt: skip


def test_a_person_counts_with_so_many_rows_and_alike_rows_are_as_likely_as_others() -> None:
    with DuckDBEngine() as engine:
        engine.attach("t", ODD)
        points = Points("t", "who", UNIT, 1, ("lat", "lon"))
        kept = [engine.run(render_points(points)).to_pylist() for _ in range(60)]
    assert all(len(rows) == 3 for rows in kept)
    twice = sum(any(row["_y"] == 0.6 for row in rows) for rows in kept)
    assert 6 <= twice <= 40  # a third of them: 5 deviations are 18


def test_traces_are_the_first_points_by_time_and_people_are_numbers() -> None:
    found = read(Points("t", "who", UNIT, 2, ("lat", "lon"), time="at", ordered=True))
    assert [(row["_person"], row["_y"]) for row in found] == [(1, 0.5), (1, 0.6), (2, 1.0)]


def test_slots_of_time_are_counted_and_rows_without_a_time_are_not() -> None:
    times = pa.array(["2025-06-02 05:59:00", "2025-06-02 06:00:00", "2025-06-08 23:59:59", None])
    table = pa.table({"lat": [0.5] * 4, "lon": [0.5] * 4, "at": times})
    slots = {"hour": [5, 6, 23], "part": [0, 1, 3], "weekday": [0, 0, 6], "month": [5, 5, 5]}
    for name, expected in slots.items():
        found = read(Points("t", None, UNIT, 1, ("lat", "lon"), time="at", slots=name), table)
        assert sorted(row["_slot"] for row in found) == expected, name
