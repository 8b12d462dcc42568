"""K-anonymous maps of places and times: cells of k people, trips of two ends, and what two resolutions betray."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from deniable.cli.main import app
from deniable.errors import Infeasible, ParameterError
from deniable.kanonymity.microaggregation import Grid, compose_grids, cut_to_grid

TRIPS = pa.table({
    "who": ["a", "a", "b", "c", "d", None, "e"],
    "lat": [1.11, 1.12, 1.13, 1.14, 1.91, 1.11, None],
    "lon": [5.05, 5.05, 5.05, 5.05, 5.05, 5.05, 5.05],
    "to_lat": [2.0] * 7,
    "to_lon": [6.0] * 7,
    "at": pa.array([0, 3599, 3600, 10, 20, 30, 40], pa.timestamp("s")),
})  # fmt: skip
POLICY = """
version: 1
dataset: taxi
tables:
  rides:
    source: rides.parquet
    unit: {column: rider_id, max_groups: 3, max_rows_per_group: 3}
    columns:
      rider_id: {role: identifier}
      pickup_latitude: {role: quasi-identifier, type: decimal, between: [44, 46], step: 0.00001}
      pickup_longitude: {role: quasi-identifier, type: decimal, between: [-101, -99], step: 0.00001}
      pickup_time: {role: quasi-identifier, type: datetime}
release:
  anonymize: {k: 3%s}
"""


def test_cells_of_places_times_and_people_are_as_counted_by_hand() -> None:
    made = cut_to_grid(TRIPS, Grid(("lat", "lon"), 1, 2, "who", "at", "hour"))
    assert made.cells.to_pylist() == [
        {"lat": 1.1, "lon": 5.0, "at": TRIPS["at"][0].as_py().replace(minute=0), "count": 4}
    ]  # the hour from 0:00: two rides of a, one of c, one of nobody; b rides an hour later, d elsewhere, e nowhere
    assert made.dropped == 3
    ends = cut_to_grid(TRIPS, Grid(("lat", "lon", "to_lat", "to_lon"), 0, 4, "who"))
    assert ends.cells.to_pylist() == [{"lat": 1.0, "lon": 5.0, "to_lat": 2.0, "to_lon": 6.0, "count": 6}]
    months = cut_to_grid(TRIPS, Grid(("lat", "lon"), 0, 1, None, "at", "month"))
    assert [str(row["at"]) for row in months.cells.to_pylist()] == ["1970-01-01 00:00:00"]


@pytest.mark.parametrize(("south", "west"), [(0, 0), (-30, 0), (0, -120), (-30, -120), (-2, -6)])
def test_cells_are_the_same_in_all_quarters_of_the_earth(south: int, west: int) -> None:
    """The same places, so many whole degrees further: cells and counts move with them, and none is lost."""
    moved = pa.table({name: np.array([np.nan if v is None else v for v in column.to_pylist()])
                      + (south if "lat" in name else west) if name not in ("who", "at") else column
                      for name, column in zip(TRIPS.column_names, TRIPS.columns, strict=True)})  # fmt: skip
    for digits, person in ((0, None), (1, "who"), (2, None)):
        grid = Grid(("lat", "lon", "to_lat", "to_lon"), digits, 1, person)
        here, there = (cut_to_grid(table, grid) for table in (TRIPS, moved))
        assert here.dropped == there.dropped
        for one, other in zip(here.cells.to_pylist(), there.cells.to_pylist(), strict=True):
            shift = {name: south if "lat" in name else west if "lon" in name else 0 for name in one}
            assert {name: pytest.approx(value + shift[name]) for name, value in one.items()} == other


@pytest.mark.parametrize(
    "given",
    [
        {"places": ("lat", "lat")}, {"places": ("lat", "lon", "to_lat")}, {"k": 0}, {"time": "at"},
        {"time": "at", "every": "second"}, {"time": "lat", "every": "hour"},
    ],
)  # fmt: skip
def test_a_grid_that_is_none_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        Grid(**({"places": ("lat", "lon"), "digits": 1, "k": 2} | given))


def test_two_resolutions_leave_a_group_of_those_whom_the_finer_map_drops() -> None:
    """Five rides in one fine cell, two elsewhere in its coarse cell: the difference is a group of two."""
    rides = pa.table({"lat": [1.11] * 5 + [1.15, 1.17], "lon": [5.01] * 7})
    coarse, fine = (Grid(("lat", "lon"), digits, 3) for digits in (1, 2))
    together = compose_grids(rides, coarse, fine)
    assert (together.exposed, together.k) == (2, 2)
    assert compose_grids(rides, coarse, coarse).exposed == 0
    assert compose_grids(rides.slice(0, 5), coarse, fine).exposed == 0
    many = pa.table({"lat": [1.11] * 5 + [1.15, 1.15, 1.17], "lon": [5.01] * 8, "who": [*"abcdeffg"]})
    assert compose_grids(many, coarse, fine).exposed == 0
    assert compose_grids(many, *(Grid(("lat", "lon"), d, 3, "who") for d in (1, 2))).exposed == 2


def run(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def test_a_second_map_under_a_policy_is_told_apart_from_the_first_and_refused_where_that_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rides = pa.table({  # 30 riders at one corner, and two who rode alone, elsewhere in the same coarse cell
        "rider_id": [f"r{number}" for number in range(32)],
        "pickup_latitude": [45.011] * 30 + [45.055, 45.075], "pickup_longitude": [-99.989] * 30 + [-99.955, -99.935],
        "pickup_time": pa.array([86_400 * 7 * (number % 2) for number in range(32)], pa.timestamp("us")),
    })  # fmt: skip
    pq.write_table(rides, "rides.parquet")
    Path("policy.yaml").write_text(POLICY % "")
    words = ("anonymize", "-p", "policy.yaml", "--grid", "pickup_latitude,pickup_longitude", "--json")
    first = json.loads(run(*words, "--digits", 1, "-o", "coarse.csv")[1])
    assert first["warnings"] == []
    again = json.loads(run(*words, "--digits", 1, "-o", "again.csv")[1])
    assert again["warnings"] == []
    second = json.loads(run(*words, "--digits", 2, "-o", "fine.csv")[1])
    assert "to 1 decimal)" in second["warnings"][0]
    timed = json.loads(run(*words, "--digits", 1, "--time", "pickup_time", "--every", "week", "-o", "week.csv")[1])
    assert len(timed["warnings"]) == 1
    assert pa.csv.read_csv("week.csv").column_names == [
        "pickup_latitude", "pickup_longitude", "pickup_time", "count",
    ]  # fmt: skip
    coarse, fine = (pa.csv.read_csv(f"{name}.csv")["count"].to_numpy() for name in ("coarse", "fine"))
    assert (np.sum(coarse), np.sum(fine)) == (32, 30)
    with pytest.raises(Infeasible, match="betrays whom the finer one dropped"):
        run(*words, "--digits", 2, "--k", 4, "--refuse-composition", "-o", "other.csv")
    assert not Path("other.csv").exists()
    Path("policy.yaml").write_text(POLICY % ", second_release: refuse")
    with pytest.raises(Infeasible, match="One map of a table"):
        run(*words, "--digits", 2, "--k", 4, "-o", "other.csv")
    assert not Path("other.csv").exists()


def test_the_same_grid_of_other_rows_is_a_second_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one rider less, the difference of the two maps is that rider."""
    monkeypatch.chdir(tmp_path)
    rides = pa.table({
        "rider_id": [f"r{number}" for number in range(13)], "pickup_latitude": [45.011] * 13,
        "pickup_longitude": [-99.989] * 13, "pickup_time": pa.array([0] * 13, pa.timestamp("us")),
    })  # fmt: skip
    words = ("anonymize", "-p", "policy.yaml", "--grid", "pickup_latitude,pickup_longitude", "--digits", 1, "--json")
    Path("policy.yaml").write_text(POLICY % ", second_release: refuse")
    pq.write_table(rides, "rides.parquet")
    for name in ("first.csv", "again.csv"):
        assert json.loads(run(*words, "-o", name)[1])["warnings"] == []
    pq.write_table(rides.slice(1), "rides.parquet")
    with pytest.raises(Infeasible, match="showed other counts"):
        run(*words, "-o", "other.csv")
    assert not Path("other.csv").exists()


def test_words_of_a_grid_without_one_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    pq.write_table(TRIPS, "trips.parquet")
    with pytest.raises(ParameterError, match="go with --grid"):
        run("anonymize", "trips.parquet", "--qi", "lat", "--time", "at", "--every", "hour", "--k", 2, "-o", "out.csv")
    with pytest.raises(ParameterError, match="a time is cut to a unit"):
        run("anonymize", "trips.parquet", "--grid", "lat,lon", "--time", "at", "--k", 2, "-o", "out.csv")
