"""DP synthesis on the coded Adult table (48,842 x 14): error of all 1-, 2- and 3-way marginals, and CPU seconds.

    python bench/synth.py [--planted RUNS] [--peer ROWS] [--private-pgm mst|aim] [--tables all|NAME,NAME] [--seeds N]
                          [--findings all|NAME,NAME [--minutes N]]

The floor is drawing a table of the same size from the real records (sampling error alone), and, for time, counting all
two-way marginals once. The budget has a delta of 1e-9.

`--planted` says how often findings of three columns and more that are planted in the world's tables keep their sign,
by method, at epsilon 1 and e (0 leaves it out). `--peer` runs DataSynthesizer's correlated mode on a sample of the
rows, and `--private-pgm` the MST or AIM of private-pgm on all of them, each beside our method of the same kind and
nothing else. Peers are installed into environments of their own (`.venvs`) on the first run. DataSynthesizer takes
minutes for a few thousand rows, AIM up to half an hour.
`--tables` does something else: on fifteen tables (`_synth_tables.py`), at epsilon 0.1, 1 and 10, it prints the two-way
error of `auto` over that of the best of our other methods (bar 1.02, mean of the seeds, and of more runs where
that is not enough to tell). `--private-pgm` with `--tables` runs beside private-pgm on these tables, numbers
coded in 16 stretches for both.
`--findings` does another thing: it prints how many published findings about four real frames (`_held_out.py`, with
their sources) are kept at epsilon 1, by `auto` that is asked for them as `deniable parity` asks, and by each of our
other methods. With `--private-pgm`, and with `--peer ROWS` on that many rows, the same of as many runs of a peer, which
is asked for nothing: what compares with it on equal terms is `auto` without being asked, which is printed too.
"""

from __future__ import annotations

import argparse
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import pyarrow as pa
from _generated import find_data, say_source

from deniable.assess.utility import build_comparison_domain, measure_variation
from deniable.dp.accounting import rho_within
from deniable.policy.budget import ApproxDP
from deniable.policy.schema import TableSchema
from deniable.synth.describe import describe_table, encode_table
from deniable.synth.domain import Areas, Domain, attributes_of
from deniable.synth.generate import draw_records, generate, restore_codes
from deniable.synth.marginal import convert_budget, count
from deniable.synth.methods import METHODS, run_method

ROOT = Path(__file__).resolve().parents[1]
DATA = find_data("adult14")
DELTA = "1e-9"
BARS = {
    ("mst", 1.0): (0.055, 0.12, 2.0),
    ("auto", 1.0): (0.041, 0.092, 15.0),
    ("auto", 10.0): (0.024, 0.068, 15.0),
    ("correlated", 1.0): (0.503, 0.658, 15.5),
}
"""Two-way and three-way error, and CPU seconds."""
ROWS = (
    *((method, 1.0) for method in METHODS),
    ("auto", 10.0),
    ("independent", 0.1),
    ("auto", 0.1),
    ("independent", 0.03),
    ("auto", 0.03),
)
SEEDS = 3


def load() -> tuple[np.ndarray, Domain]:
    """The coded table, one row a column, and its domain."""
    sizes = json.loads((DATA / "adult-domain.json").read_text())
    with (DATA / "adult.csv").open() as file:
        names = file.readline().strip().split(",")
        table = np.loadtxt(file, delimiter=",", dtype=np.int32)
    places = [names.index(name) for name in sizes]
    return np.ascontiguousarray(table[:, places].T), Domain(tuple(sizes), tuple(sizes.values()))


def error(real: np.ndarray, made: np.ndarray, domain: Domain, way: int) -> float:
    """The mean total variation of all marginals of so many columns."""

    def distance(clique: tuple[int, ...]) -> float:
        real_share, made_share = (count(t, domain, clique) / t.shape[1] for t in (real, made))
        return float(np.abs(real_share - made_share).sum() / 2)

    return float(np.mean([distance(clique) for clique in itertools.combinations(range(len(domain)), way)]))


def synthesized(codes: np.ndarray, domain: Domain, method: str, epsilon: float, seed: int) -> tuple[np.ndarray, float]:
    """Synthetic codes and the CPU seconds they took."""
    start = time.process_time()
    # For the hierarchical method, countries in stretches of six: Adult has no areas of its own.
    areas = None
    if method == "hierarchical":
        place = domain.names.index("native-country")
        size = domain.sizes[place]
        areas = Areas(place, (np.arange(size) // 6, np.arange(size)))
    description = run_method(codes, domain, METHODS[method], convert_budget(ApproxDP(epsilon, DELTA), 1), areas=areas)
    drawn = draw_records(description.estimates, description.collapsed.domain, round(description.estimates.total), seed)
    made = restore_codes(description, drawn, seed)
    return made, time.process_time() - start


def row(codes: np.ndarray, domain: Domain, method: str, epsilon: float, floor: float) -> tuple[bool, float]:
    """Print one method at one epsilon; whether its bar is met, and its two-way error."""
    runs = [synthesized(codes, domain, method, epsilon, seed) for seed in range(SEEDS)]
    errors = [float(np.mean([error(codes, made, domain, way) for made, _ in runs])) for way in (1, 2, 3)]
    seconds = min(cpu for _, cpu in runs)
    bar = BARS.get((method, epsilon))
    met = bar is None or (errors[1] <= bar[0] and errors[2] <= bar[1] and seconds <= bar[2])
    shown = "  ".join(f"{way}-way {value:.4f}" for way, value in zip((1, 2, 3), errors, strict=True))
    cost = f"{seconds:.2f} CPU s = {seconds / floor:.0f} x counting pairs"
    told = "" if bar is None else f"(bar {bar[0]:g} / {bar[1]:g} in {bar[2]:g} s: {'met' if met else 'MISSED'})"
    print(f"{method:12s} epsilon {epsilon:5g}: {shown}  {cost}  {told}", flush=True)
    return met, errors[1]


def planted(runs: int) -> int:
    """Print how often planted findings are kept; 1 if auto, asked for them, keeps fewer than a peer's method does."""
    from _planted import PLANTED, kept

    print("planted findings kept:  " + "; ".join(finding.name for finding in PLANTED))
    found, worse = kept(runs), False
    for (method, epsilon), shares in found.items():
        each = ", ".join(f"{share:.0%}" for share in shares)
        print(f"{method:12s} epsilon {epsilon:5.3g}: mean {np.mean(shares):.0%}  ({each})")
        ours = float(np.mean(found["auto asked", epsilon]))
        worse |= method in ("correlated", "mst") and float(np.mean(shares)) >= ours
    print(f"auto keeps {'NO MORE' if worse else 'more'} of them than PrivBayes' network and MST, asked for them")
    return int(worse)


def prepare_peer(name: str, package: str, module: str) -> Path | None:
    """The Python of an environment that has the package, made on the first run."""
    home = ROOT / ".venvs" / name
    python = home / "bin" / "python"
    try:
        if not python.exists():
            venv.create(home, with_pip=True)
        if subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode:
            subprocess.run([python, "-m", "pip", "install", "-q", package], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        print(f"{package} could not be installed: its comparison is left out.")
        return None
    return python


def run_peer(title: str, command: list[str | Path], codes: np.ndarray, domain: Domain) -> tuple[list[float], float]:
    """What a peer's script makes of the rows: its errors of two-way and three-way tables, and its CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        real, sizes, made = (Path(folder) / name for name in ("real.csv", "sizes.json", "made.csv"))
        np.savetxt(real, codes.T, fmt="%d", delimiter=",", header=",".join(domain.names), comments="")
        sizes.write_text(json.dumps(dict(zip(domain.names, domain.sizes, strict=True))))
        whole = [{"REAL": real, "SIZES": sizes, "MADE": made}.get(str(part), part) for part in command]
        done = subprocess.run(whole, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no message"])[-1]
            sys.exit(f"{title} did not finish: {last[:200]}")
        theirs = np.loadtxt(made, delimiter=",", skiprows=1, dtype=np.float64).T.astype(np.int32)
    seconds = json.loads(done.stdout.strip().splitlines()[-1])["seconds"]
    return [error(codes, theirs, domain, way) for way in (2, 3)], seconds


def compare(title: str, command: list[str | Path], codes: np.ndarray, domain: Domain, method: str, least: float) -> int:
    """A peer and one of our methods on the same rows: errors and CPU seconds in one run."""
    theirs, seconds = run_peer(title, command, codes, domain)
    runs = [synthesized(codes, domain, method, 1.0, seed) for seed in range(SEEDS)]
    ours = [float(np.mean([error(codes, t, domain, way) for t, _ in runs])) for way in (2, 3)]
    spent = min(cpu for _, cpu in runs)
    met = ours[0] <= theirs[0] and ours[1] <= theirs[1] and seconds >= least * spent
    print(f"{title}, {codes.shape[1]:,} rows: {theirs[0]:.4f} / {theirs[1]:.4f} in {seconds:,.0f} CPU s; "
          f"{method}: {ours[0]:.4f} / {ours[1]:.4f} in {spent:.2f} = {seconds / spent:,.0f} times less  "
          f"(bar {least:g} times: {'met' if met else 'MISSED'})", flush=True)  # fmt: skip
    return int(not met)


def datasynthesizer(codes: np.ndarray, domain: Domain, rows: int) -> int:
    """DataSynthesizer and our network of the same degree on the same sample."""
    python = prepare_peer("datasynthesizer", "DataSynthesizer", "DataSynthesizer")
    if python is None:
        return 0
    sample = codes[:, np.random.default_rng(0).permutation(codes.shape[1])[:rows]]
    script = Path(__file__).with_name("_datasynthesizer.py")
    return compare("DataSynthesizer", [python, script, "REAL", "MADE", "1"], sample, domain, "correlated", 100)


def private_pgm(codes: np.ndarray, domain: Domain, which: str, table: str = "", least: float = 100) -> int:
    """private-pgm's MST beside ours, or its AIM beside auto, with the rho of the same epsilon and delta."""
    python = prepare_peer("private-pgm", "mbi>=2", "mbi")
    if python is None:
        return 0
    script, rho = Path(__file__).with_name("_private_pgm.py"), rho_within(Fraction(1), Fraction(DELTA))
    command: list[str | Path] = [python, script, which, "REAL", "SIZES", "MADE", str(float(rho))]
    method = {"mst": "mst", "aim": "auto"}[which]
    return compare(f"private-pgm {which}{table and f' on {table}'}", command, codes, domain, method, least)


def private_pgm_on_tables(names: list[str], which: str) -> int:
    """The same on tables other than Adult; how often the bar is missed."""
    from _synth_tables import TABLES

    missed = 0
    for name in names:
        rows, table = TABLES[name]()
        coded = attributes_of(table)
        compared = build_comparison_domain(coded)
        codes = np.ascontiguousarray(compared.apply(encode_table(rows, coded)), dtype=np.int32)
        missed += private_pgm(codes, compared.domain, which, name, 50)
    return missed


LEAST_KEPT = 0.7
OWN_RUNS = 20
"""Runs of our methods, which take a second each: two would tell a share to no better than a tenth."""


def keep_findings(names: list[str], runs: int, which: str | None, sample: int, minutes: float) -> int:
    """Print the share of findings kept, by frame and method; how often auto, asked for them, keeps fewer than another.

    And once more if it keeps less than LEAST_KEPT on average.
    """
    from _held_out import (
        FRAMES,
        SOURCES,
        count_kept,
        find_source,
        make_ours,
        make_peers,
        read_findings,
        require_true,
    )

    shares, missed, own = [], 0, max(runs, OWN_RUNS)
    for name in names:
        rows, table = FRAMES[name]()
        if sample:
            rows = rows.take(np.random.default_rng(0).permutation(rows.num_rows)[:sample])
        findings, found = read_findings(name), {}
        require_true(findings, rows)
        for method in ("auto asked", "auto", "mst", "correlated"):
            found[method] = count_kept(rows, findings, make_ours(rows, table, findings, method, 1.0), own)
        here, peer, unended = Path(__file__), "", ""
        if which and (python := prepare_peer("private-pgm", "mbi>=2", "mbi")):
            script, rho = here.with_name("_private_pgm.py"), float(rho_within(Fraction(1), Fraction(DELTA)))
            command: list[str | Path] = [python, script, which, "REAL", "SIZES", "MADE", str(rho)]
            peer = f"private-pgm {which}"
        elif sample and (python := prepare_peer("datasynthesizer", "DataSynthesizer", "DataSynthesizer")):
            command = [python, here.with_name("_datasynthesizer.py"), "REAL", "MADE", "1", "RUN"]
            peer = "DataSynthesizer"
        if peer:
            try:
                found[peer] = count_kept(rows, findings, make_peers(rows, table, command, minutes), runs)
            except subprocess.TimeoutExpired:
                unended = f", {peer} has not ended after {minutes:g} CPU minutes"
        means = {method: float(np.mean(list(kept.values()))) for method, kept in found.items()}
        shares.append(means.pop("auto asked"))
        best = max(means, key=lambda method: means[method])
        missed += shares[-1] < means[best]
        told = ", ".join(f"{method} {share:.2f}" for method, share in means.items()) + unended
        lost = ", ".join(f"{finding} {share:.0%}" for finding, share in found["auto asked"].items() if share < 1)
        size = f"{rows.num_rows:6,} x {len(table.columns):2d}"
        print(f"{name:10s} {size}, {len(findings)} findings, {own} runs, {runs} of a peer: "
              f"auto, asked for them, keeps {shares[-1]:.2f} "
              f"({'met' if shares[-1] >= means[best] else 'MISSED'}); {told}; "
              f"kept less than always: {lost or 'none'}", flush=True)  # fmt: skip
        for key in dict.fromkeys(map(find_source, findings)):
            print(f"{'':10s} source: {SOURCES[key]}")
    mean = float(np.mean(shares))
    print(f"mean {mean:.2f} (bar {LEAST_KEPT}: {'met' if mean >= LEAST_KEPT else 'MISSED'})")
    return missed + (mean < LEAST_KEPT)


OTHERS = ("mst", "correlated", "independent", "mwem")
MOST_COLUMNS = 24
"""mwem takes minutes on wider tables, and is left out there."""
RATIO = 1.02
PRECISION, MOST_TIMES = 0.01, 32
"""Runs are added until the ratio has this standard error or is CLEAR of its own from the bar, up to so many times the
seeds: at epsilon 0.1 on a thousand rows a run's error varies by a quarter, and five runs cannot tell 1.02 from 1.2."""
CLEAR = 3.0
"""Two are too few where it is looked at after 5, 10, 20 runs and so on: a ratio of 1.00 was told as 1.07."""


def compare_methods(names: list[str], seeds: int) -> int:
    """Print the error of auto over the best of the other methods, by table and epsilon; how often the bar is missed."""
    from _synth_tables import TABLES

    missed = beyond = 0
    for name in names:
        rows, table = TABLES[name]()
        for epsilon in (0.1, 1.0, 10.0):
            found = compare_on_table(rows, table, epsilon, seeds)
            missed += found.ratio > RATIO
            beyond += found.ratio - 2 * found.spread > RATIO
            shown = "  ".join(f"{method} {np.mean(errors):.4f}" for method, errors in found.errors.items())
            verdict = "met" if found.ratio <= RATIO else "MISSED"
            print(f"{name:18s} {rows.num_rows:6,} x {len(table.columns):2d} epsilon {epsilon:4g}: auto / {found.best} "
                  f"{found.ratio:.3f} +- {found.spread:.3f} ({verdict}, {len(found.errors['auto'])} runs)  {shown}",
                  flush=True)  # fmt: skip
    print(f"bar {RATIO} missed {missed} times of {3 * len(names)}, {beyond} times by more than two standard errors")
    return missed


@dataclass(frozen=True)
class Comparison:
    """The errors of every method's runs."""

    errors: dict[str, list[float]]

    @property
    def best(self) -> str:
        """The best of the other methods."""
        return min((method for method in self.errors if method != "auto"), key=lambda m: np.mean(self.errors[m]))

    @property
    def ratio(self) -> float:
        """The error of auto over that of the best."""
        return float(np.mean(self.errors["auto"]) / np.mean(self.errors[self.best]))

    @property
    def spread(self) -> float:
        """The ratio's standard error, of those of both means: the noise of a run moves its error."""
        return self.ratio * float(np.hypot(*(self.deviation(m) / np.mean(self.errors[m]) for m in ("auto", self.best))))

    @property
    def is_known(self) -> bool:
        """Whether further runs would hardly change the verdict."""
        return self.spread <= PRECISION or abs(self.ratio - RATIO) > CLEAR * self.spread

    def deviation(self, method: str) -> float:
        """The standard error of a method's mean."""
        return float(np.std(self.errors[method]) / max(len(self.errors[method]) - 1, 1) ** 0.5)

    def contenders(self) -> list[str]:
        """auto, and the methods that may be the best one: within two standard errors of it."""
        least = float(np.mean(self.errors[self.best])) + 2 * self.deviation(self.best)
        others = [m for m in self.errors if m != "auto" and np.mean(self.errors[m]) - 2 * self.deviation(m) <= least]
        return ["auto", *others]


def compare_on_table(rows: pa.Table, table: TableSchema, epsilon: float, seeds: int) -> Comparison:
    """Runs of every method, and more of those that matter until the ratio is known well enough."""
    others = OTHERS if len(table.columns) <= MOST_COLUMNS else OTHERS[:-1]
    found = Comparison({m: two_way_errors(rows, table, m, epsilon, range(seeds)) for m in ("auto", *others)})
    while not found.is_known and len(found.errors["auto"]) < MOST_TIMES * seeds:
        for method in found.contenders():
            done = len(found.errors[method])
            found.errors[method] += two_way_errors(rows, table, method, epsilon, range(done, 2 * done))
    return found


def two_way_errors(
    rows: pa.Table, table: TableSchema, method: str, epsilon: float, seeds: Iterable[int]
) -> list[float]:
    """By seed, the mean total variation of all pairs, numbers in 16 stretches, over rows as many as the real ones."""
    coded = attributes_of(table)
    compared = build_comparison_domain(coded)
    real = compared.apply(encode_table(rows, coded))
    errors = []
    for seed in seeds:
        model = describe_table(rows, table, ApproxDP(epsilon, DELTA), method)
        made = compared.apply(encode_table(generate(model, rows.num_rows, seed), coded))
        errors.append(measure_variation(real, made, compared.domain, 2).mean)
    return errors


def main() -> int:
    """Print errors and ratios; the exit code counts bars that were missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--planted", type=int, default=10, help="runs of each planted finding, method and epsilon")
    parser.add_argument("--peer", type=int, default=0, metavar="ROWS", help="only DataSynthesizer, on so many rows")
    parser.add_argument(
        "--private-pgm", choices=("mst", "aim"), help="only private-pgm, on all rows of Adult or of --tables"
    )
    parser.add_argument(
        "--tables", default="", help="tables on which auto is compared with our other methods, or with private-pgm"
    )
    parser.add_argument("--seeds", type=int, default=5, help="least runs of each method on each table")
    parser.add_argument("--findings", default="", help="real frames whose findings are tried")
    parser.add_argument("--minutes", type=float, default=30, help="CPU minutes of a peer's run with --findings")
    asked = parser.parse_args()
    if asked.findings:
        frames = ["acs", "diabetes", "flights", "officials"] if asked.findings == "all" else asked.findings.split(",")
        return keep_findings(frames, asked.seeds, asked.private_pgm, asked.peer, asked.minutes)
    if asked.tables:
        from _synth_tables import TABLES

        names = list(TABLES) if asked.tables == "all" else asked.tables.split(",")
        return (
            private_pgm_on_tables(names, asked.private_pgm)
            if asked.private_pgm
            else compare_methods(names, asked.seeds)
        )
    print(say_source("adult14"))
    codes, domain = load()
    if asked.peer or asked.private_pgm:
        missed = datasynthesizer(codes, domain, asked.peer) if asked.peer else 0
        return missed + (private_pgm(codes, domain, asked.private_pgm) if asked.private_pgm else 0)
    start = time.process_time()
    synthesized(codes, domain, "auto", 1.0, 0)
    print(f"first run in a process, with compiling or loading kernels: {time.process_time() - start:.1f} CPU s")
    start = time.process_time()
    for pair in itertools.combinations(range(len(domain)), 2):
        count(codes, domain, pair)
    floor = time.process_time() - start
    resampled = codes[:, np.random.default_rng(0).integers(0, codes.shape[1], codes.shape[1])]
    print(f"floor: 2-way {error(codes, resampled, domain, 2):.4f}, 3-way {error(codes, resampled, domain, 3):.4f}; "
          f"counting all pairs once {floor:.3f} CPU s")  # fmt: skip
    missed, two_way = 0, {}
    for method, epsilon in ROWS:
        met, two_way[method, epsilon] = row(codes, domain, method, epsilon, floor)
        missed += not met
    worse = sum(two_way["auto", epsilon] > two_way["independent", epsilon] for epsilon in (0.1, 0.03))
    print(f"auto at epsilon 0.1 and 0.03 is {'WORSE' if worse else 'no worse'} than independent columns")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:.0f} MB (bar 500: {'met' if peak <= 500 else 'MISSED'})")
    missed += worse + (peak > 500)
    if asked.planted:
        missed += planted(asked.planted)
    return missed


if __name__ == "__main__":
    sys.exit(main())
