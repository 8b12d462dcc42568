"""Maps, flows and traces of generated taxi rides: errors beside those of uniform grids, and who a few points name.

Maps: range queries as in Qardaji, Yang and Li (2013): squares of six sizes, each side a half to a sixty-fourth of the
box, 200 of each, laid at random over the box. Of each size the mean absolute error, and the mean relative error
(divided by the true count, or by a thousandth of all rows where that is more). Three grids have the same budget:

    uniform       the published rule: N epsilon / 10 cells, with the true N, which it would have to pay for
    best uniform  the size with the least mean absolute error among 8 to 1,024 rows, chosen by looking at the truth
    ours          what `deniable places` measures: a noisy total, a first grid, parts of its cells, least squares

Two boxes: the one of the world's policy, most of which is empty, and the city alone. `rows` is how many rows of one
person count: 1 protects single rides, 10 a person with ten.

Flows: the mean absolute error of a pair of regions beside its mean count. Traces: half the sum of absolute differences
(0 is equal, 1 is nothing in common) between real and drawn shares of lengths, pairs of ends and steps; beside them a
model of shares of regions alone.

With `--only peer`, dp-mobility-report 0.2.11 stands beside ours: visits per tile of both ends of each trip, on a
tessellation of 16 or 64 rows, with all of its budget on that analysis. Both are given the same points, and noise that
hides one trip with both ends. `--peer` names the interpreter of an environment with `dp-mobility-report`, `pandas<2.2`
and `numpy<2`; without one there is no comparison.

    python bench/places.py [--rides 1000000] [--only maps flows traces attack peer] [--peer PYTHON]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
from _query_accuracy import peer
from numpy.typing import NDArray
from pyarrow import csv

from deniable import world
from deniable.attacks.traces import Resolution, sweep_traces
from deniable.dp.mechanisms import LaplaceMechanism
from deniable.geography.grids import Box, MapPlan, Reach, estimate_map, find_deviation, measure_map, sum_within
from deniable.geography.traces import FlowPlan, TracePlan, build_model, count_traces, draw_traces, measure_flows
from deniable.geography.traces import measure_traces as measure_model
from deniable.policy.budget import PureDP

BOXES = {"policy": Box(44.0, -101.0, 46.0, -99.0), "city": Box(44.93, -100.08, 45.11, -99.93)}
SIZES = (2, 4, 8, 16, 32, 64)
QUERIES = 200
RAW = 2048
"""Queries have their edges on a raster of so many rows and columns, so that the truth is exact."""
Floats = NDArray[np.float64]


def read_rides(wanted: int) -> pa.Table:
    """So many rides of as many riders as that takes."""
    return world.make("taxi", max(10, wanted // 17))["rides"].slice(0, wanted)


def take_inside(box: Box, y: Floats, x: Floats) -> tuple[Floats, Floats]:
    """The points of a box, as parts of its height and width."""
    inside = (y >= box.south) & (y <= box.north) & (x >= box.west) & (x <= box.east)
    return box.scale(y[inside], x[inside])


def sum_raster(down: Floats, across: Floats) -> Floats:
    """Running sums of a fine raster of points: any range on it is four of them."""
    cells = np.bincount(np.floor(down * RAW).astype(int) * RAW + np.floor(across * RAW).astype(int), minlength=RAW**2)
    return add_up(cells.reshape(RAW, RAW).astype(float))


def add_up(cells: Floats) -> Floats:
    """Running sums over both axes, with a row and a column of zeros first."""
    sums = np.zeros((RAW + 1, RAW + 1))
    sums[1:, 1:] = cells.cumsum(axis=0).cumsum(axis=1)
    return sums


def spread_grid(noisy: Floats) -> Floats:
    """Running sums of a uniform grid whose cells are spread evenly over the fine raster."""
    side = len(noisy)
    edges = np.linspace(0, side, RAW + 1)
    sums = np.zeros((side + 1, side + 1))
    sums[1:, 1:] = noisy.cumsum(axis=0).cumsum(axis=1)
    low = np.minimum(edges.astype(int), side - 1)
    part = edges - low
    down = sums[low] * (1 - part)[:, None] + sums[low + 1] * part[:, None]
    return down[:, low] * (1 - part)[None, :] + down[:, low + 1] * part[None, :]


def measure_ours(plan: MapPlan, down: Floats, across: Floats) -> dict[int, Floats]:
    """The answers of our map to all queries, by their size."""
    box = plan.box
    high, wide = box.north - box.south, box.east - box.west
    found = estimate_map(
        plan, measure_map(plan, box.south + down * high, box.west + across * wide, np.zeros(len(down), np.int64))
    )
    told = {}
    for size in SIZES:
        edges = np.column_stack(draw_queries(size)) / RAW
        boxes = (Box(box.south + top * high, box.west + left * wide, box.south + low * high, box.west + right * wide)
                 for top, low, left, right in edges.tolist())  # fmt: skip
        told[size] = np.array([sum_within(found.edges, found.points, each)[0] for each in boxes])
    return told


def draw_queries(size: int) -> tuple[NDArray[np.int64], ...]:
    """Random squares of one size, by their edges on the raster."""
    draws, wide = np.random.default_rng(size), RAW // size
    top, left = draws.integers(0, RAW - wide + 1, (2, QUERIES))
    return top, top + wide, left, left + wide


def answer(sums: Floats, size: int) -> Floats:
    """The answers to the queries of one size."""
    top, bottom, left, right = draw_queries(size)
    found: Floats = sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left]
    return found


def answer_all(sums: Floats) -> dict[int, Floats]:
    """The answers to all queries, by their size."""
    return {size: answer(sums, size) for size in SIZES}


def find_errors(told: dict[int, Floats], truth: Floats) -> Floats:
    """Mean absolute and mean relative error of the answers of each size."""
    least = 0.001 * truth[-1, -1]
    rows = []
    for size in SIZES:
        true = answer(truth, size)
        off = np.abs(told[size] - true)
        rows.append((off.mean(), (off / np.maximum(true, least)).mean()))
    return np.array(rows)


def measure_uniform(down: Floats, across: Floats, side: int, noise: LaplaceMechanism) -> Floats:
    """A uniform grid with noise on every cell."""
    place = np.floor(down * side).astype(int) * side + np.floor(across * side).astype(int)
    return noise.release(np.bincount(place, minlength=side * side)).astype(float).reshape(side, side)


def compare_maps(rides: pa.Table) -> None:
    """Errors of range queries of the three grids."""
    y, x = (rides[name].to_numpy() for name in ("pickup_latitude", "pickup_longitude"))
    print(f"maps of {len(y):,} rides: mean absolute error (mean relative error) by the side of a query")
    for name, box in BOXES.items():
        down, across = take_inside(box, y, x)
        truth = sum_raster(down, across)
        for epsilon, rows in ((Fraction(1), 1), (Fraction(1, 10), 1), (Fraction(1), 10)):
            began = time.process_time()
            plan = MapPlan.within(PureDP(epsilon), box, 1, Reach.of(rows, False), adaptive=True, pure=True)
            ours = measure_ours(plan, down, across)
            spent = time.process_time() - began
            noise = LaplaceMechanism.within(PureDP(epsilon), rows)
            side = max(10, round((len(down) * float(epsilon) / rows / 10) ** 0.5))
            sides = {each: find_errors(answer_all(spread_grid(measure_uniform(down, across, each, noise))), truth)
                     for each in (side, 8, 16, 32, 64, 128, 256, 512, 1024)}  # fmt: skip
            best = min(sides, key=lambda each: float(sides[each][:, 0].mean()))
            found = {f"uniform ({side})": sides[side], f"best uniform ({best})": sides[best]}
            found["ours"] = find_errors(ours, truth)
            print(
                f"\n{name} box, {len(down):,} rides inside, epsilon {float(epsilon):g}, rows {rows}; {spent:.2f} CPU s"
            )
            for way, errors in found.items():
                shown = "  ".join(f"{off:9,.1f} ({part:6.2%})" for off, part in errors)
                print(f"  {way:20} {shown}")
            ratio = found["ours"].mean(axis=0) / found[f"uniform ({side})"].mean(axis=0)
            hindsight = found["ours"].mean(axis=0) / found[f"best uniform ({best})"].mean(axis=0)
            print(f"  ours beside uniform: absolute {ratio[0]:.3f} (bar at epsilon 1: 0.8), relative {ratio[1]:.3f}; "
                  f"beside the best uniform: absolute {hindsight[0]:.3f}, relative {hindsight[1]:.3f}")  # fmt: skip


def compare_flows(rides: pa.Table) -> None:
    """Errors of pairs of regions."""
    ends = [
        tuple(rides[f"{end}_{part}"].to_numpy() for part in ("latitude", "longitude")) for end in ("pickup", "dropoff")
    ]
    box = BOXES["policy"]
    print(f"\nflows of {rides.num_rows:,} rides, epsilon 1")
    for rows in (1, 10):
        began = time.process_time()
        plan = FlowPlan.within(PureDP(Fraction(1)), box, 1, rows, replaced=False, pure=True)
        counted, pairs = measure_flows(plan, ends[0], ends[1], np.zeros(rides.num_rows, np.int64))
        regions = plan.choose_regions(estimate_map(plan.map, counted))
        spent = time.process_time() - began
        true = np.bincount(regions.locate(*ends[0]) * regions.count + regions.locate(*ends[1]), minlength=len(pairs))
        off, deviation = np.abs(pairs - true).mean(), find_deviation(plan.noise)
        print(f"  rows {rows}: {regions.count} regions, mean count of a pair {true.mean():.1f}, mean absolute error "
              f"{off:.1f}, deviation {deviation:.1f}; {spent:.2f} CPU s")  # fmt: skip


def compare_traces(rides: pa.Table) -> None:
    """How far drawn traces are from real ones."""
    order = rides.sort_by([("rider_id", "ascending"), ("pickup_time", "ascending")])
    person = order["rider_id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    sizes = np.bincount(person)
    step = np.arange(len(person)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    longest, box = 10, BOXES["policy"]
    first = step < longest
    y, x, person = (
        each[first] for each in (order["pickup_latitude"].to_numpy(), order["pickup_longitude"].to_numpy(), person)
    )
    print(f"\ntraces of {len(sizes):,} riders, at most {longest} points; 0 is equal, 1 is nothing in common")
    for epsilon in (Fraction(1, 2), Fraction(1), Fraction(4)):
        began = time.process_time()
        plan = TracePlan.within(PureDP(epsilon), box, longest, replaced=False, pure=True)
        model = build_model(plan, measure_model(plan, y, x, person))
        drawn, _, region, _ = draw_traces(model, len(sizes), seed=1)
        spent, count = time.process_time() - began, model.regions.count
        real = count_traces(model.regions.locate(y, x), person, count, longest)
        fake = count_traces(region, drawn, count, longest)
        shares = np.bincount(model.regions.locate(y, x), minlength=count)
        alone = np.outer(shares, shares).ravel()
        lengths, ends, steps = (compare(a, b) for a, b in zip(real, fake, strict=True))
        apart = [compare(each, alone) for each in real[1:]]
        print(f"  epsilon {float(epsilon):g}: {count} regions; lengths {lengths:.3f}, pairs of ends {ends:.3f} "
              f"(regions alone {apart[0]:.3f}), steps {steps:.3f} ({apart[1]:.3f}); {spent:.2f} CPU s")  # fmt: skip


def compare(one: NDArray[np.int64], other: NDArray[np.int64]) -> float:
    """Half the sum of absolute differences of shares."""
    return float(np.abs(one / one.sum() - other / other.sum()).sum() / 2)


def attack_traces(rides: pa.Table) -> None:
    """How many riders a few points of their trace name."""
    columns = ("rider_id", "pickup_latitude", "pickup_longitude", "pickup_time")
    known = [Resolution(digits, unit) for digits in (3, 2, 1) for unit in ("hour", "day", "week")]
    began = time.process_time()
    found = sweep_traces(rides, columns, resolutions=known, targets=1000)
    spent = time.process_time() - began
    print(f"\nriders singled out by 1, 2 and 4 points of {rides.num_rows:,} rides; {spent:.1f} CPU s")
    for place, resolution in enumerate(known):
        shown = "  ".join(f"{each.attack.share:6.1%}" for each in found[3 * place : 3 * place + 3])
        print(f"  {resolution!s:44} {shown}")


TILES = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import geopandas, numpy as np, pandas as pd
from shapely.geometry import box
from dp_mobility_report import DpMobilityReport, constants as const
from dp_mobility_report.model import place_analysis
path, south, west, north, east, side = sys.argv[1], *map(float, sys.argv[2:6]), int(sys.argv[6])
down, across = np.linspace(south, north, side + 1), np.linspace(west, east, side + 1)
tiles = geopandas.GeoDataFrame(
    {"tile_id": [str(i) for i in range(side * side)]}, crs="EPSG:4326",
    geometry=[box(across[j], down[i], across[j + 1], down[i + 1]) for i in range(side) for j in range(side)])
points = pd.read_csv(path, parse_dates=["datetime"])
begun = time.process_time()
made = DpMobilityReport(points, tiles, privacy_budget=1, user_privacy=False, disable_progress_bar=True,
                        analysis_selection=[const.VISITS_PER_TILE])
found = place_analysis.get_visits_per_tile(made, 1.0).data
counts = found.set_index("tile_id").visits.reindex([str(i) for i in range(side * side)]).astype(float)
print(json.dumps([{"counts": counts.tolist(), "cpu": time.process_time() - begun}]))
"""
"""What the peer runs: its own preprocessing and its own counts with noise."""


def compare_peer(rides: pa.Table, python: Path | None) -> None:
    """Errors of range queries over both ends of each trip, beside tiles of dp-mobility-report at epsilon 1."""
    if python is None or not python.exists():
        print("\ndp-mobility-report is not installed: its comparison is left out (--peer PYTHON)")
        return
    ends = {name: pa.concat_arrays([rides[f"{end}_{name}"].combine_chunks() for end in ("pickup", "dropoff")])
            for name in ("latitude", "longitude")}  # fmt: skip
    twice = [rides["rider_id"].combine_chunks()] * 2
    times = [rides[f"{end}_time"].combine_chunks().cast(pa.timestamp("us")) for end in ("pickup", "dropoff")]
    trip = np.tile(np.arange(rides.num_rows), 2)
    points = pa.table({"uid": pa.concat_arrays(twice), "tid": trip, "datetime": pa.concat_arrays(times),
                       "lat": ends["latitude"], "lng": ends["longitude"]})  # fmt: skip
    y, x = (points[name].to_numpy() for name in ("lat", "lng"))
    print(f"\nboth ends of {rides.num_rows:,} trips, epsilon 1, beside dp-mobility-report")
    with tempfile.TemporaryDirectory() as folder:
        csv.write_csv(points, f"{folder}/points.csv")
        for name, box in BOXES.items():
            down, across = take_inside(box, y, x)
            truth = sum_raster(down, across)
            plan = MapPlan.within(PureDP(Fraction(1)), box, 1, Reach.of(2, False), adaptive=True, pure=True)
            began = time.process_time()
            ours = find_errors(measure_ours(plan, down, across), truth).mean(axis=0)
            spent = time.process_time() - began
            for side in (16, 64):
                edges = (str(each) for each in (box.south, box.west, box.north, box.east))
                told = peer(python, TILES, f"{folder}/points.csv", *edges, str(side))[0]
                counts = np.array(told["counts"]).reshape(side, side)
                theirs = find_errors(answer_all(spread_grid(counts)), truth).mean(axis=0)
                print(f"  {name} box, {side} rows of tiles: absolute {ours[0]:,.1f} and {theirs[0]:,.1f} (ratio "
                      f"{ours[0] / theirs[0]:.3f}), relative {ours[1]:.3f} and {theirs[1]:.3f}; CPU seconds "
                      f"{spent:.2f} and {float(str(told['cpu'])):.2f}", flush=True)  # fmt: skip


PARTS = {"maps": compare_maps, "flows": compare_flows, "traces": compare_traces, "attack": attack_traces}
PEER = "peer"


def main() -> None:
    """Print all tables, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rides", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="*", choices=[*PARTS, PEER], default=[*PARTS, PEER])
    parser.add_argument("--peer", type=Path)
    given = parser.parse_args()
    rides = read_rides(given.rides)
    for name in given.only:
        if name == PEER:
            compare_peer(rides, given.peer)
        else:
            PARTS[name](rides)


if __name__ == "__main__":
    main()
