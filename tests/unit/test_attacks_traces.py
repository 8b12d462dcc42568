"""The attack on traces: counted by hand on a few rows, at several resolutions, on tokens and on drawn traces."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from deniable import world
from deniable.attacks.traces import Resolution, sweep_traces
from deniable.errors import DataError, ParameterError, Stopped

COLUMNS = ("who", "lat", "lon", "at")


def table(rows: list[tuple[Any, Any, Any, str]]) -> pa.Table:
    return pa.table(dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True)))


FOUR = table([
    ("a", 1.11, 5.0, "2025-06-01 08:00:00"), ("a", 2.22, 5.0, "2025-06-01 09:00:00"),
    ("b", 1.11, 5.0, "2025-06-01 08:10:00"), ("b", 3.33, 5.0, "2025-06-01 09:30:00"),
    ("c", 1.11, 5.0, "2025-06-01 08:59:59"), ("c", 2.22, 5.0, "2025-06-01 09:59:00"), ("c", 9.0, 9.0, "2025-06-02"),
])  # fmt: skip


@pytest.mark.parametrize(
    ("digits", "time", "known", "found"),
    [
        (2, "hour", 2, 2),  # b by any two of its two; c only if the lone point is among them: drawn by the seed
        (2, "minute", 1, 3),  # each minute is its own
        (2, "hour", 3, 1),  # only c has three
        (0, "never", 2, 2),
    ],
)
def test_people_are_singled_out_as_counted_by_hand(digits: int, time: str, known: int, found: int) -> None:
    outcome = sweep_traces(FOUR, COLUMNS, resolutions=[Resolution(digits, time)], known=[known], seed=3)[0]
    alone = {2: {"b"}, 1: {"a", "b", "c"}, 3: {"c"}}[known]
    assert outcome.attack.trials == {1: 3, 2: 3, 3: 1}[known]
    assert len(alone) <= outcome.attack.successes <= found
    assert outcome.baseline == pytest.approx(1 / outcome.attack.trials)


def test_one_more_person_of_the_same_trace_hides_both() -> None:
    like_b = table([("d", 1.11, 5.0, "2025-06-01 08:20:00"), ("d", 3.33, 5.0, "2025-06-01 09:40:00")])
    twin = pa.concat_tables([FOUR, like_b])
    outcome = sweep_traces(twin, COLUMNS, resolutions=[Resolution(2, "hour")], known=[2])[0]
    lone = sweep_traces(FOUR, COLUMNS, resolutions=[Resolution(2, "hour")], known=[2])[0]
    assert outcome.attack.successes < lone.attack.successes + 1
    assert sweep_traces(twin, COLUMNS, resolutions=[Resolution(2, "hour")], known=[3])[0].attack.successes == 1


def test_missing_places_times_and_people_are_nobodys_points() -> None:
    odd = table([(None, 1.0, 1.0, "2025-06-01"), ("a", None, 1.0, "2025-06-01"), ("a", float("nan"), 1.0, "2025-06-01"),
                 ("a", 1.0, 1.0, None), ("b", 1.0, 1.0, "2025-06-01")])  # fmt: skip
    outcome = sweep_traces(odd, COLUMNS, resolutions=[Resolution(1, "day")], known=[1])[0]
    assert (outcome.attack.successes, outcome.attack.trials) == (1, 1)
    timeless = sweep_traces(odd, COLUMNS[:3], known=[1])[0]
    assert (timeless.attack.successes, timeless.attack.trials) == (0, 2)


def test_four_points_name_most_people_and_coarser_ones_fewer() -> None:
    """De Montjoye et al. 2013: four points are enough for nearly everybody; coarser points help only a little."""
    rides = world.make("taxi", 2_000)["rides"]
    columns = ("rider_id", "pickup_latitude", "pickup_longitude", "pickup_time")
    fine, coarse = ([o.attack.share for o in sweep_traces(rides, columns, resolutions=[r], targets=200)]
                    for r in (Resolution(2, "hour"), Resolution(1, "week")))  # fmt: skip
    assert fine == sorted(fine)
    assert fine[-1] > 0.95
    assert coarse[-1] < 0.3


def test_tokens_do_not_help_and_are_told_apart_from_chance() -> None:
    rides = world.make("taxi", 2_000)["rides"]
    columns = ("rider_id", "pickup_latitude", "pickup_longitude", "pickup_time")
    tokens = pa.array([f"x{each[::-1]}" for each in rides["rider_id"].to_pylist()])
    masked, known = rides.set_column(0, "rider_id", tokens), [Resolution(2, "hour")]
    outcome = sweep_traces(masked, columns, original=rides, resolutions=known, known=[4], targets=200)[0]
    assert outcome.excess > 0.9
    assert "other names" in outcome.warnings[0]


def test_what_is_no_trace_is_refused() -> None:
    with pytest.raises(ParameterError, match="three or four columns"):
        sweep_traces(FOUR, ("who", "lat", "lat", "at"))
    with pytest.raises(DataError, match="no column 'time'"):
        sweep_traces(FOUR, ("who", "lat", "lon", "time"))
    with pytest.raises(DataError, match="not one of coordinates"):
        sweep_traces(FOUR, ("lat", "who", "lon", "at"))
    with pytest.raises(DataError, match="not one of times"):
        sweep_traces(FOUR, ("at", "lat", "lon", "who"))
    with pytest.raises(ParameterError, match="without times"):
        sweep_traces(FOUR, COLUMNS[:3], resolutions=[Resolution(2, "hour")])
    with pytest.raises(ParameterError, match="not a unit of time"):
        Resolution(2, "second")
    with pytest.raises(ParameterError, match="decimals"):
        Resolution(9, "hour")
    with pytest.raises(Stopped):
        sweep_traces(FOUR, COLUMNS, seconds=1e-9)


@pytest.mark.parametrize("turn", [(1, 1), (-1, 1), (1, -1), (-1, -1)])
@pytest.mark.parametrize("year", [2025, 1955])
def test_west_south_and_early_times_are_places_and_times_like_others(turn: tuple[int, int], year: int) -> None:
    places = [(f"p{i}", turn[0] * (10 + i / 10), turn[1] * (20 + i / 10), f"{year}-06-01 08:00:00") for i in range(50)]
    alone = sweep_traces(table(places), COLUMNS, resolutions=[Resolution(1, "hour")], known=[1])[0]
    assert (alone.attack.successes, alone.attack.trials) == (50, 50)
    crossing = [(f"p{i}", i / 10 - 2.5, -i / 10 + 2.5, f"{year}-06-01 08:00:00") for i in range(50)]
    alone = sweep_traces(table(crossing), COLUMNS, resolutions=[Resolution(1, "hour")], known=[1])[0]
    assert (alone.attack.successes, alone.attack.trials) == (50, 50)
