"""A census-size release: CPU time and memory of `deniable tabulate`, and its errors beside simpler ways.

Generated people in blocks of very different size, on 4 levels (all, state, county, block), with 1,000 cells in each
area (sex, age in 20 groups, origin in 25): 100 people to a block. The totals of states are invariants. Everything runs
as a user runs it, from a Parquet file to a certified one, in a process of its own.

Beside it, with the same budget and the same exact noise, on the same people:

    bottom-up     all of the budget for the cells of the blocks, negative ones set to 0; larger areas are sums
    per level     each level by itself, as measured; nothing adds up
    least squares what the theory of weighted least squares expects of all levels together, without a bound at 0

The disclosure avoidance system of the US Census 2020 needs Spark and a commercial solver and does not install here, so
there is no figure of it. Errors are root mean squares against the exact numbers.

With `--survey N`, instead: N surveys of 20,000 generated people, of whom each is taken with probability 1 / 5 or 1 / 20
and stands for 5 or 20. What `deniable weighted` says of the total of a column (0 to 10) beside the estimate of Horvitz
and Thompson (1952) without noise, and how often the 95% intervals hold the exact total.

    python bench/census.py [--blocks 1000] [--rho 0.5] [--keep FOLDER] [--survey N]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from deniable import Curator
from deniable.dp.mechanisms import GaussianMechanism
from deniable.geography.spine import Cells, Spine, Table, compute_spreads, plan_noise, sum_margin
from deniable.policy.budget import budget

PEOPLE_PER_BLOCK, BLOCKS_PER_COUNTY, COUNTIES_PER_STATE = 100, 100, 20
AGES = tuple(range(0, 100, 5))
ORIGINS = tuple(f"o{i:02d}" for i in range(25))
POLICY = """
version: 1
dataset: census
tables:
  people:
    source: people.parquet
    unit: {{column: pid, max_groups: 1, max_rows_per_group: 1}}
    columns:
      pid: {{type: integer, role: identifier}}
      block: {{}}
      sex: {{categories: [F, M]}}
      age: {{type: integer, between: [0, 99]}}
      origin: {{categories: [{origins}]}}
  blocks: {{source: blocks.csv, public: true}}
tabulation:
  census:
    table: people
    areas: {{levels: [state, county, block], table: blocks}}
    cells: [sex, age, origin]
    breaks: {{age: [{ages}]}}
    measure: [{{}}, {{by: [sex, age]}}]
    invariants: {{state: total}}
    rho: {rho}
budgets: {{dataset: {{rho: {rho}}}}}
"""
LEVELS = ("state", "county", "block")


def make_people(folder: Path, blocks: int, rho: str) -> None:
    """People whose origins differ by block and whose ages differ by county, in blocks of very different size."""
    rng = np.random.default_rng(20)
    counties = max(2, blocks // BLOCKS_PER_COUNTY)
    states = max(2, counties // COUNTIES_PER_STATE)
    county = np.arange(blocks) * counties // blocks
    state = county * states // counties
    lines = [f"S{s:03d},C{c:05d},B{b:07d}\n" for s, c, b in zip(state, county, range(blocks), strict=True)]
    (folder / "blocks.csv").write_text("state,county,block\n" + "".join(lines))
    weight = rng.lognormal(0, 1.2, blocks)
    many = blocks * PEOPLE_PER_BLOCK
    at = rng.choice(blocks, many, p=weight / weight.sum()).astype(np.int32)
    shift = rng.normal(0, 6, counties)[county[at]]
    age = np.clip(rng.gamma(3, 13, many) + shift, 0, 99).astype(np.int64)
    usual = rng.integers(0, len(ORIGINS), blocks)[at]
    origin = np.where(rng.random(many) < 0.6, usual, np.minimum(rng.geometric(0.25, many) - 1, len(ORIGINS) - 1))
    names = pa.array([f"B{b:07d}" for b in range(blocks)])
    table = pa.table({
        "pid": np.arange(many),
        "block": names.take(pa.array(at)),
        "sex": pa.array(["F", "M"]).take(pa.array(rng.integers(0, 2, many))),
        "age": age,
        "origin": pa.array(ORIGINS).take(pa.array(origin)),
    })  # fmt: skip
    pq.write_table(table, folder / "people.parquet")
    text = POLICY.format(origins=", ".join(ORIGINS), ages=", ".join(map(str, AGES)), rho=rho)
    (folder / "policy.yaml").write_text(text)


def run_release(folder: Path) -> dict[str, float]:
    """CPU seconds, wall seconds and memory of the command, in a process of its own."""
    words = [sys.executable, "-m", "deniable", "tabulate", "census", "-p", str(folder / "policy.yaml"),
             "-o", str(folder / "census.parquet"), "--totals", str(folder / "totals.parquet"), "--json"]  # fmt: skip
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "DENIABLE_STATE": str(folder / "state")}
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder, env=environment)
    if done.returncode:
        raise SystemExit(done.stdout + done.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    (folder / "report.json").write_text(done.stdout)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"cpu": cpu, "wall": time.perf_counter() - start, "gigabytes": after.ru_maxrss / 2**20}


def read_table(path: Path, spine: Spine, count: str | None) -> Table:
    """A file of people or of published cells as counts by block and cell, read by other code than the product's."""
    found = pq.read_table(path)
    block = np.searchsorted(spine.names[-1].astype(str), found.column("block").to_numpy().astype(str))
    sex = (found.column("sex").to_numpy() == "M").astype(np.int64)
    ages = found.column("age").to_numpy()
    age = ages // 5 if count is None else np.array([int(str(each).split("-")[0]) // 5 for each in ages])
    origin = np.array([int(str(each)[1:]) for each in found.column("origin").to_numpy()])
    cell = (sex * len(AGES) + age) * len(ORIGINS) + origin
    numbers = np.ones(len(cell), np.int64) if count is None else found.column(count).to_numpy()
    keys, place = np.unique(block * 1000 + cell, return_inverse=True)
    summed = np.bincount(place, weights=numbers)
    return Table((keys // 1000).astype(np.int32), (keys % 1000).astype(np.int32), summed.astype(np.int32))


def find_errors(spine: Spine, exact: Table, shown: Table) -> list[tuple[float, float]]:
    """For each level the error of totals and of cells."""
    found = []
    for level in range(spine.depth):
        up = spine.find_ancestors(level)
        whole = [np.bincount(up[t.area], weights=t.count, minlength=spine.sizes[level]) for t in (exact, shown)]
        keys = np.concatenate([up[t.area].astype(np.int64) * 1000 + t.cell for t in (exact, shown)])
        _, place = np.unique(keys, return_inverse=True)
        off = np.bincount(place, weights=np.concatenate([exact.count, -shown.count.astype(np.int64)]))
        found.append((float(np.sqrt(np.mean((whole[1] - whole[0]) ** 2))),
                      float(np.sqrt((off**2).sum() / spine.sizes[level] / 1000))))  # fmt: skip
    return found


def try_bottom_up(spine: Spine, exact: Table, rho: Fraction) -> list[tuple[float, float]]:
    """All of the budget for blocks, negative numbers set to 0, some blocks at a time."""
    noise = GaussianMechanism(Fraction(1) / rho, Fraction(2))
    parts = []
    for first in range(0, spine.sizes[-1], 4000):
        last = min(spine.sizes[-1], first + 4000)
        begin, end = np.searchsorted(exact.area, [first, last])
        keys = (exact.area[begin:end].astype(np.int64) - first) * 1000 + exact.cell[begin:end]
        dense = np.zeros((last - first) * 1000, np.int64)
        dense[keys] = exact.count[begin:end]
        noisy = np.maximum(noise.release(dense), 0)
        kept = np.flatnonzero(noisy)
        parts.append(((kept // 1000 + first).astype(np.int32), (kept % 1000).astype(np.int32),
                      noisy[kept].astype(np.int32)))  # fmt: skip
    return find_errors(spine, exact, Table(*(np.concatenate(each) for each in zip(*parts, strict=True))))


def compare(folder: Path, rho: str) -> None:
    """Print the errors of each way by level, and of ours by size of block."""
    rows = [line.split(",") for line in (folder / "blocks.csv").read_text().split()[1:]]
    spine = Spine.of(LEVELS, [list(each) for each in zip(*rows, strict=True)])
    exact = read_table(folder / "people.parquet", spine, None)
    shown = read_table(folder / "census.parquet", spine, "count")
    zeros = np.zeros(1000, np.int64)
    states = [sum_margin(each, spine.find_ancestors(1), spine.sizes[1], zeros, 1) for each in (exact, shown)]
    cells = Cells(("sex", "age", "origin"), (("F", "M"), AGES, ORIGINS))
    margins = [((), Fraction(1)), (("sex", "age"), Fraction(1)), (("sex", "age", "origin"), Fraction(1))]
    design = plan_noise(budget(rho=rho), spine, cells, margins, None, reach=1, replaced=True)
    total, cell = compute_spreads(design, 0), compute_spreads(design, 2)
    ours, simple = find_errors(spine, exact, shown), try_bottom_up(spine, exact, Fraction(rho))
    print(f"exact totals of states: {'met' if (states[0] == states[1]).all() else 'NOT MET'}")
    print(
        f"smallest number: {shown.count.min()}, cells that are not empty: {len(shown.count):,} of {len(exact.count):,}"
    )
    print("error of a total      ours  bottom-up  per level  least squares")
    for level, name in enumerate(spine.levels):
        alone, theory = design.variance(level, 0) ** 0.5, total[level] ** 0.5
        print(f"  {name:<15} {ours[level][0]:9.2f} {simple[level][0]:10.2f} {alone:10.2f} {theory:14.2f}")
    print("error of a cell       ours  bottom-up  per level  least squares")
    for level, name in enumerate(spine.levels):
        alone, theory = design.variance(level, 2) ** 0.5, cell[level] ** 0.5
        print(f"  {name:<15} {ours[level][1]:9.3f} {simple[level][1]:10.3f} {alone:10.3f} {theory:14.3f}")
    print_sizes(folder, spine, exact, shown)


def print_sizes(folder: Path, spine: Spine, exact: Table, shown: Table) -> None:
    """By size of block: the error as it is, and as the report says without knowing the exact numbers."""
    told = {row["least"]: row for row in json.loads((folder / "report.json").read_text())["errors"]
            if row["level"] == "block"}  # fmt: skip
    before, after = (np.bincount(t.area, weights=t.count, minlength=spine.sizes[-1]) for t in (exact, shown))
    print("blocks of size     areas  error as reported   bias as reported")
    for least, most in ((0, 0), (1, 9), (10, 99), (100, 999), (1000, 9999)):
        inside = (before >= least) & (before <= most)
        if inside.any() and least in told:
            off, row = (after - before)[inside], told[least]
            print(f"  {least:>5} to {most:<5} {inside.sum():6,} {np.sqrt(np.mean(off**2)):6.2f} "
                  f"{row['total_error']:11.2f} {off.mean():6.2f} {row['total_bias']:11.2f}")  # fmt: skip


SURVEY = """
version: 1
dataset: survey
tables:
  survey:
    source: survey.parquet
    unit: {column: pid, max_groups: 1, max_rows_per_group: 1}
    columns:
      pid: {type: integer, role: identifier}
      hours: {type: integer, between: [0, 10]}
      weight: {type: integer, between: [1, 20]}
budgets: {dataset: {epsilon: 10}}
"""


def try_surveys(runs: int) -> None:
    """Errors of weighted totals with noise and without, and how often intervals hold."""
    rng = np.random.default_rng(8)
    hours, weight = rng.integers(0, 11, 20_000), rng.choice([5, 20], 20_000)
    surveys = [np.flatnonzero(rng.random(20_000) < 1 / weight) for _ in range(runs)]
    plain, true = np.array([(hours[taken] * weight[taken]).sum() for taken in surveys], float), float(hours.sum())
    taken = np.mean([survey.size for survey in surveys])
    print(f"{runs} surveys of {hours.size:,} people, about {taken:,.0f} of them taken; the exact total is {true:,.0f}")
    spread = np.array([(weight[s] * (weight[s] - 1) * hours[s] ** 2).sum() for s in surveys], float)
    held = np.mean(np.abs(plain - true) <= 1.96 * np.sqrt(spread))
    print(f"without noise: root mean square error {np.sqrt(np.mean((plain - true) ** 2)):,.0f}, by theory "
          f"{np.sqrt(((weight - 1) * hours**2).sum()):,.0f}; 95% intervals hold {held:.0%}", flush=True)  # fmt: skip
    found = np.array([ask_survey(hours[survey], weight[survey]) for survey in surveys])
    for place, epsilon in enumerate(EPSILONS):
        value, low, high = found[:, place].T
        noise = np.sqrt(np.mean((value - plain) ** 2))
        held = np.mean((low <= true) & (true <= high))
        off = np.sqrt(np.mean((value - true) ** 2))
        print(f"epsilon {epsilon}: root mean square error {off:,.0f}, of the noise alone {noise:,.0f}; 95% intervals "
              f"hold {held:.0%}", flush=True)  # fmt: skip


EPSILONS = ("0.1", "1")


def ask_survey(hours: NDArray[np.int64], weight: NDArray[np.int64]) -> list[tuple[float, float, float]]:
    """The weighted total of one survey with the ends of its interval, for each epsilon."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        os.environ["DENIABLE_STATE"] = str(folder / "state")
        (folder / "policy.yaml").write_text(SURVEY)
        table = pa.table({"pid": np.arange(hours.size), "hours": hours, "weight": weight})
        pq.write_table(table, folder / "survey.parquet")
        with Curator.open(folder / "policy.yaml", ledger=folder / "ledger.sqlite") as curator:
            asked = (curator.weighted("survey", "hours", weight="weight", epsilon=epsilon) for epsilon in EPSILONS)
            rows = [answer.to_pylist()[0] for answer in asked]
    return [(row["total"], row["total_low"], row["total_high"]) for row in rows]


def main() -> None:
    """Make the people, release them, compare."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--blocks", type=int, default=1000)
    parser.add_argument("--rho", default="0.5")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--survey", type=int)
    given = parser.parse_args()
    if given.survey is not None:
        try_surveys(given.survey)
        return
    with tempfile.TemporaryDirectory() as made:
        folder = given.keep or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "people.parquet").exists():
            make_people(folder, given.blocks, given.rho)
        took = run_release(folder)
        people, cells = given.blocks * PEOPLE_PER_BLOCK, given.blocks * 1000
        print(f"{people:,} people, {given.blocks:,} blocks, 4 levels, {cells:,} cells, rho {given.rho}")
        print(f"CPU {took['cpu']:.1f} s, wall {took['wall']:.1f} s, memory {took['gigabytes']:.2f} GB "
              "(the bar at 100,000 blocks: 600 CPU seconds, 8 GB)")  # fmt: skip
        compare(folder, given.rho)


if __name__ == "__main__":
    main()
