"""Places from the command line and Python: price first, one charge, repeats free, errors that hold, files, refusals."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from deniable import Curator
from deniable.cli.main import app
from deniable.errors import BudgetExceeded, ParameterError

POLICY = """
version: 1
dataset: town
tables:
  visits:
    source: visits.parquet
    unit: {column: who, max_groups: 2, max_rows_per_group: 2}
    columns:
      who: {type: integer, role: identifier}
      lat: {type: decimal, between: [10, 12], step: 0.00001, role: quasi-identifier}
      lon: {type: decimal, between: [20, 22], step: 0.00001, role: quasi-identifier}
      to_lat: {type: decimal, between: [10, 12], step: 0.00001, role: quasi-identifier}
      to_lon: {type: decimal, between: [20, 22], step: 0.00001, role: quasi-identifier}
      at: {type: datetime, role: quasi-identifier}
      name: {role: insensitive}
      free: {type: decimal, role: insensitive}
budgets:
  dataset: {epsilon: 100000, accounting: pure}
  purposes: {research: {epsilon: 1000}}
  analysts:
    ana: {purposes: [research], epsilon: 1000}
    eva: {purposes: [research], columns: [name]}
"""
PLACE, GOAL = ("lat", "lon"), ("to_lat", "to_lon")


def make_rows(people: int = 800, seed: int = 1) -> pa.Table:
    draws = np.random.default_rng(seed)
    size = 3 * people
    lat, lon = 11 + draws.normal(0, 0.1, size), 21 + draws.normal(0, 0.1, size)
    return pa.table({
        "who": np.repeat(np.arange(people), 3), "lat": lat.clip(10, 12), "lon": lon.clip(20, 22),
        "to_lat": (lat + 0.2).clip(10, 12), "to_lon": (lon + 0.1).clip(20, 22),
        "at": pa.array(draws.integers(0, 10**6, size), pa.timestamp("s")),
        "name": pa.array(["x"] * size), "free": lat,
    })  # fmt: skip


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.yaml").write_text(POLICY)
    pq.write_table(make_rows(), tmp_path / "visits.parquet")
    return tmp_path


def run(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, done.output


def places(*words: object) -> str:
    code, text = run("places", "visits", "--at", "lat,lon", *words)
    assert code == 0, text
    return text


def entries() -> list[dict[str, Any]]:
    return json.loads(run("ledger", "show", "--json")[1])["entries"]


def test_a_map_is_priced_charged_once_repeated_free_and_written(town: Path) -> None:
    told = json.loads(places("--epsilon", "5", "--explain", "--json"))
    assert told["cost"]["epsilon"] == "5"
    assert told["rows_of_a_person"] == 4
    assert not (town / "policy.ledger.sqlite").exists()
    assert "Cost: epsilon 5" in places("--epsilon", "5", "-o", "map.geojson", "--report", "map.html")
    assert "nothing was charged" in places("--epsilon", "5", "-o", "map.csv", "--confidence", "0.5")
    assert "nothing was charged" in places("--epsilon", "5", "-o", "map.parquet", "--nonnegative")
    assert [each["act"] for each in entries()].count("charge") == 1
    drawn = json.loads((town / "map.geojson").read_text())
    rows = pa.csv.read_csv(town / "map.csv")
    assert len(drawn["features"]) == rows.num_rows
    shown = {(f["properties"]["count"], f["geometry"]["coordinates"][0][0][0]) for f in drawn["features"]}
    assert shown == set(zip(rows["count"].to_pylist(), rows["west"].to_pylist(), strict=True))
    assert min(pq.read_table(town / "map.parquet")["count"].to_pylist()) >= 0
    assert run("release", "verify", "map.geojson")[0] == 0
    page = (town / "map.html").read_text()
    assert "Whom this protects" in page
    assert "Darker is more" in page


def test_the_numbers_are_right_and_the_intervals_hold(town: Path) -> None:
    rows = make_rows()
    inside = ((rows["lat"].to_numpy() >= 11) & (rows["lon"].to_numpy() >= 21)).sum()
    with Curator.open("policy.yaml") as curator:
        found = curator.places("visits", PLACE, epsilon=8)
        count, deviation = found.count_in(11, 21, 12, 22)
        assert abs(count - inside) < 6 * deviation
        assert abs(found.release.details["totals"][0]["count"] - 2400) < 60  # type: ignore[index]
        exact = curator.places("visits", PLACE, epsilon=5000)
        table = exact.rows
        edges = [table[name].to_numpy()[:, None] for name in ("south", "west", "north", "east")]
        lat, lon = rows["lat"].to_numpy(), rows["lon"].to_numpy()
        true = ((lat >= edges[0]) & (lat < edges[2]) & (lon >= edges[1]) & (lon < edges[3])).sum(axis=1)
        assert np.abs(true - table["count"].to_numpy()).max() < 0.5


def test_flows_and_slots_count_what_is_there(town: Path) -> None:
    with Curator.open("policy.yaml") as curator:
        flows = curator.places("visits", PLACE, GOAL, epsilon=5000)
        assert flows.rows["count"].to_numpy().sum() == 2400
        assert len(flows.release.details["regions"]) ** 2 == flows.rows.num_rows  # type: ignore[arg-type]
        by_part = curator.places("visits", PLACE, epsilon=5000, time="at", slots="part")
        hours = make_rows()["at"].to_numpy().astype("datetime64[h]").astype(int) % 24
        counted = [round(each["count"]) for each in by_part.release.details["totals"]]  # type: ignore[attr-defined]
        assert counted == np.bincount(hours // 6, minlength=4).tolist()
    places("--to", "to_lat,to_lon", "--epsilon", "2", "-o", "flows.geojson", "--report", "flows.html")
    kinds = {f["geometry"]["type"] for f in json.loads((town / "flows.geojson").read_text())["features"]}
    assert kinds == {"Polygon", "LineString"}


@pytest.mark.parametrize(
    "box",
    [(0, 0, 1, 1), (10, 20, 12, 22.5), (9.5, 20, 12, 22), (10, 19, 12, 21), (10, 200, 12, 202), (-90, -180, 90, 180)],
)
def test_a_box_where_nothing_was_measured_has_no_count(town: Path, box: tuple[float, float, float, float]) -> None:
    """Before, it was told to hold 0 points with a deviation of 0."""
    with Curator.open("policy.yaml") as curator:
        found = curator.places("visits", PLACE, epsilon=8, box=(10, 20, 12, 22))
        with pytest.raises(ParameterError, match="inside 10,20,12,22"):
            found.count_in(*box)
        whole = found.count_in(10, 20, 12, 22)
        assert found.count_in(10, 380, 12, 382) == found.count_in(10, -340, 12, -338) == pytest.approx(whole)
        assert whole[0] == pytest.approx(found.release.details["totals"][0]["count"])  # type: ignore[index]


def test_the_extent_of_a_region_stands_beside_its_number_in_every_form(town: Path) -> None:
    out = places("--to", "to_lat,to_lon", "--epsilon", "2", "-o", "flows.csv")
    assert "origin_south" in out
    places("--to", "to_lat,to_lon", "--epsilon", "2", "-o", "flows.geojson")
    areas = [f for f in json.loads((town / "flows.geojson").read_text())["features"] if "region" in f["properties"]]
    with Curator.open("policy.yaml") as curator:
        found = curator.places("visits", PLACE, GOAL, epsilon=2)
        regions, rows = found.regions, found.to_pylist()
    with (town / "flows.csv").open(newline="") as file:
        assert [float(row["count"]) for row in csv.DictReader(file)] == [row["count"] for row in rows]
    for row in rows:
        for end in ("origin", "destination"):
            south, west, north, east = (row[f"{end}_{edge}"] for edge in ("south", "west", "north", "east"))
            assert [south, west, north, east] == regions[row[end]]
            assert south <= row[f"{end}_latitude"] <= north
            assert west <= row[f"{end}_longitude"] <= east
            (ring,) = areas[row[end]]["geometry"]["coordinates"]
            assert {tuple(each) for each in ring} == {(x, y) for x in (west, east) for y in (south, north)}


def test_one_person_with_many_points_counts_with_a_few(town: Path) -> None:
    flood = pa.table({"who": np.full(100_000, 7), "lat": np.full(100_000, 10.5), "lon": np.full(100_000, 20.5)})
    rows = pa.concat_tables([make_rows(50), flood], promote_options="default")
    pq.write_table(rows, town / "visits.parquet")
    with Curator.open("policy.yaml") as curator:
        found = curator.places("visits", PLACE, epsilon=10_000)
        assert round(found.release.details["totals"][0]["count"]) == 49 * 3 + 4  # type: ignore[index]
        two = curator.places("visits", PLACE, epsilon=10_000, per_person=2)
        assert round(two.release.details["totals"][0]["count"]) == 50 * 2  # type: ignore[index]


@pytest.mark.slow
def test_one_person_with_a_million_points_is_no_trouble(town: Path) -> None:
    rows = make_rows(1).slice(0, 1)
    pq.write_table(rows.take(pa.array(np.zeros(1_000_000, np.int64))), town / "visits.parquet")
    with Curator.open("policy.yaml") as curator:
        total: Any = curator.places("visits", PLACE, epsilon=10_000).release.details["totals"]
        assert round(total[0]["count"]) == 4


def test_nulls_other_places_and_the_antimeridian(town: Path) -> None:
    odd = pa.table({
        "who": pa.array([1, 2, 3, 4, 5, 6, 7, None], pa.int64()),
        "lat": [-15.0, -15.0, -15.0, -15.0, None, float("nan"), 40.0, -15.0],
        "lon": [179.0, -179.0, 181.0, 0.0, 179.0, 179.0, 179.0, 179.0],
    })  # fmt: skip
    rows = pa.concat_tables([odd, make_rows(1).slice(0, 0)], promote_options="default")
    pq.write_table(rows, town / "visits.parquet")
    with Curator.open("policy.yaml") as curator:
        found = curator.places("visits", PLACE, epsilon=10_000, box=(-20, 170, -10, 190), out="far.geojson")
        assert round(found.release.details["totals"][0]["count"]) == 3  # type: ignore[index]
        for west, east, there in ((180, 190, 2), (-180, -170, 2), (-190, -170, 3), (530, 540, 1), (-190, -180, 1)):
            assert found.count_in(-20, west, -10, east)[0] == pytest.approx(there, abs=0.1)
    rings = [f["geometry"] for f in json.loads((town / "far.geojson").read_text())["features"]]
    ends = [x for each in rings if each["type"] == "Polygon" for x, _ in each["coordinates"][0]]
    assert -180 <= min(ends) <= max(ends) <= 180


@pytest.mark.slow
def test_an_empty_table_has_a_map_a_flow_table_and_traces(town: Path) -> None:
    pq.write_table(make_rows(1).slice(0, 0), town / "visits.parquet")
    assert "cells" in places("--epsilon", "1")
    assert "flows between" in places("--epsilon", "1", "--to", "to_lat,to_lon")
    assert "who do not exist" in places("--epsilon", "1", "--time", "at", "--traces", "3", "--people", "4")


def test_traces_are_charged_once_and_drawn_as_often_as_wanted(town: Path) -> None:
    words = ("--epsilon", "4", "--time", "at", "--traces", "3")
    assert "Cost: epsilon 4" in places(*words, "-o", "new.csv", "--report", "new.html")
    assert "nothing was charged" in places(*words, "-o", "more.geojson", "--people", "50", "--seed", "2")
    rows = pa.csv.read_csv(town / "new.csv")
    assert rows.column_names == ["who", "step", "region", "lat", "lon"]
    assert max(rows["step"].to_pylist()) <= 2
    assert len({f["properties"]["who"] for f in json.loads((town / "more.geojson").read_text())["features"]}) == 50
    code, text = run("attack", "new.csv", "--original", "visits.parquet", "--trace", "who,lat,lon", "--json")
    assert code == 0
    exposed = {one["attack"]: one["exposed"] for one in json.loads(text)["attacks"] if one["outcomes"]}
    assert exposed["traces"] < 0.05


def test_the_attack_on_traces_can_be_limited(town: Path) -> None:
    words = ("attack", "visits.parquet", "--trace", "who,lat,lon,at", "--resolution", "2,hour")
    assert run(*words, "--most", "traces=1")[0] == 0
    code, text = run(*words, "--most", "traces=0.2")
    assert code == 2
    assert "FAILED: traces exposes" in text


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"slots": "hour"}, "no column is named that tells the time"),
    ({"time": "at"}, "without slots changes nothing"),
    ({"time": "name", "slots": "hour"}, "declared as text"),
    ({"time": "at", "slots": "minute"}, "not a kind of slots"),
    ({"grid": "round"}, "not a kind of grid"),
    ({"per_person": 0}, "rows of one person"),
    ({"per_person": True}, "per_person is of type bool"),
    ({"box": (1, 2, 3)}, "four ends"),
    ({"box": (5, 2, 3, 4)}, "box of a map is empty"),
    ({"to": ("lat", "lat")}, "once each"),
    ({"to": "lat,lon"}, "It is a list of texts"),
    ({"to": ("free", "lon")}, "no declared bounds"),
    ({"to": ("nowhere", "lon")}, "not a column of 'visits'"),
    ({"to": GOAL, "grid": "uniform"}, "a choice of maps alone"),
    ({"out": "map.xyz"}, "map.xyz"),
    ({"confidence": 2}, "confidence"),
    ({"epsilon": None}, "epsilon or rho"),
    ({"epsilon": 0}, "budget is 0"),
    ({"epsilon": 10_001}, "above 10,000"),
]


def test_what_cannot_be_is_refused_before_anything_is_charged(town: Path) -> None:
    with Curator.open("policy.yaml") as curator:
        for given, said in REFUSED:
            with pytest.raises(ParameterError, match=said):
                curator.places("visits", PLACE, **({"epsilon": 1} | given))
        for given, said in (
            ({"people": 0}, "people"),
            ({"seed": -1}, "seed"),
            ({"longest": 101}, "points of one trace"),
        ):
            with pytest.raises(ParameterError, match=said):
                curator.traces("visits", PLACE, "at", epsilon=1, **given)  # type: ignore[arg-type]
        assert [entry for entry in curator.ledger.entries() if entry.act == "charge"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--box", "a,2,3,4"), "--box was given wrongly"),
        (("--traces", "3"), "no column is named that tells the time"),
        (("--traces", "3", "--time", "at", "--slots", "hour"), "--slots has no meaning with --traces"),
        (("--people", "3"), "--people has no meaning without --traces"),
        (("-o", "map.xml"), "written as .csv, .parquet, .arrow or .geojson"),
    ],
)
def test_words_of_the_command_that_cannot_be_are_refused(town: Path, words: tuple[str, ...], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        places("--epsilon", "1", *words)


def test_an_analyst_sees_the_columns_that_are_granted_and_pays_for_them(town: Path) -> None:
    with pytest.raises(ParameterError, match="not a column of 'visits'"):
        places("--epsilon", "1", "--analyst", "eva", "--purpose", "research")
    assert "Cost: epsilon 1" in places("--epsilon", "1", "--analyst", "ana", "--purpose", "research")
    with pytest.raises(BudgetExceeded):
        places("--epsilon", "2000", "--analyst", "ana", "--purpose", "research")


def test_an_analyst_asks_for_a_map_over_http(town: Path, serve: Any) -> None:
    import httpx

    policy = POLICY.replace(
        "purposes: {research: {epsilon: 1000}}", "purposes: {research: {epsilon: 1000}, care: {epsilon: 1}}"
    )
    policy = policy.replace("    ana:", "    ben: {purposes: [care]}\n    ana:")
    body = {"table": "visits", "at": ["lat", "lon"], "epsilon": "4"}
    with serve(policy=policy) as up:

        def ask(path: str, given: dict[str, Any]) -> httpx.Response:
            headers = {"authorization": f"Bearer {up.tokens['ana']}"}
            return httpx.post(up.http + path, json=given, headers=headers, timeout=60)

        told = ask("/v1/places/explain", body).json()
        assert (told["kind"], told["cost"]["epsilon"]) == ("map", "4")
        first, again = (ask("/v1/places", body) for _ in range(2))
        assert (first.headers["x-deniable-charged"], again.headers["x-deniable-charged"]) == ("true", "false")
        assert first.json()["rows"] == again.json()["rows"]
        flows = ask("/v1/places", body | {"to": ["to_lat", "to_lon"], "epsilon": "2"}).json()
        assert {"origin", "destination", "count", "count_low", "count_high"} <= set(flows["rows"][0])
        refused = ask("/v1/places", body | {"box": ["x", 1, 2, 3]})
        assert refused.status_code == 400
        assert refused.json()["charged"] is False


@pytest.mark.slow
def test_rows_in_postgresql_are_counted_as_those_in_a_file(town: Path, postgres_address: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS places_visits")
        numbers = ", ".join(f"{name} double precision" for name in (*PLACE, *GOAL, "free"))
        connection.execute(f"CREATE TABLE places_visits (who bigint, {numbers}, at timestamp, name text)")
        connection.execute(
            "INSERT INTO places_visits SELECT i / 3, 11 + 0.0001 * i, 21, 11.3, 21.3, 1, timestamp '2025-06-02' + i * "
            "interval '1 minute', 'x' FROM generate_series(0, 2999) AS i"
        )
        odd = "(5, 'NaN', 21, 11, 21), (6, NULL, 21, 11, 21), (7, 11, 381, 11, 21)"
        connection.execute(f"INSERT INTO places_visits VALUES {odd}")
    (town / "policy.yaml").write_text(POLICY.replace("visits.parquet", f"'{postgres_address}#places_visits'"))
    with Curator.open("policy.yaml") as curator:
        total: Any = curator.places("visits", PLACE, epsilon=10_000).release.details["totals"]
        assert round(total[0]["count"]) == 3001
        flows = curator.places("visits", PLACE, GOAL, epsilon=10_000, time="at", slots="weekday")
        assert flows.rows["count"].to_numpy().sum() == 3000
        assert curator.traces("visits", PLACE, "at", epsilon=10_000, longest=3).rows.num_rows == 3000
