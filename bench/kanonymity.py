"""k-anonymity: optimal searches, checks, Mondrian, updates and streams, beside anonypy, pycanon and anjana.

    python bench/kanonymity.py [--quick]

Needs the adult, census and ACS tables beside the project (see docs/testing.md). The peers are installed into
`.venvs/kanonymity` on the first run. ARX is a Java program whose archive is on no package registry: its figures are
quoted (arm64, two cores, Java 17, warm, search alone), not measured here. All times are CPU seconds, best of several;
the bar of each line stands beside it. What compiling costs on a machine that never ran the kernels is printed first.
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
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from deniable.kanonymity.anonymize import anonymize, describe, recoded, solve
from deniable.kanonymity.builders.categories import read_tree
from deniable.kanonymity.examine import examine
from deniable.kanonymity.local import local_loss
from deniable.kanonymity.models import Closeness, DistinctDiversity, KAnonymity
from deniable.kanonymity.recode import Recoder
from deniable.kanonymity.recoding import Form
from deniable.kanonymity.request import Request, prepare
from deniable.kanonymity.search.anytime import AnytimeSearch
from deniable.kanonymity.search.check import Checker
from deniable.kanonymity.search.mondrian import mondrian
from deniable.kanonymity.update import update
from deniable.policy.schema import Spec

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
ADULT = DATA / "adult"
FOUR = 0.04

FIRST_RUN = """
import sys, time
class Absent:  # pandas is no dependency of ours; where it is installed, pyarrow imports it, for 2 cpu more
    def find_spec(self, name, *rest):
        if name == "pandas":
            raise ImportError(name)
sys.meta_path.insert(0, Absent())
begun = time.process_time()
import bench.kanonymity as b
imported = time.process_time()
b.adult_end_to_end(); first = time.process_time()
b.adult_end_to_end(); second = time.process_time()
print(f"{imported - begun:.2f} {first - imported:.2f} {second - first:.2f}")
"""

PEERS = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np, pandas as pd
what, path = sys.argv[1], sys.argv[2]
frame = pd.read_csv(path, sep=";")
names = list(frame.columns)
begun = time.process_time()
if what == "anonypy":
    import anonypy
    for name in names:
        if frame[name].dtype == object or str(frame[name].dtype) in ("str", "string"):
            frame[name] = frame[name].astype("category")
    columns = [n for n in names if n != "salary-class"]
    made = anonypy.Preserver(frame, columns, "salary-class")
    rows = made.anonymize_k_anonymity(k=5)
    spent = time.process_time() - begun
    total = cells = 0.0
    for row in rows:
        for name in columns:
            held = row[name]
            held = held if isinstance(held, list) else [held]
            text = str(held[0])
            if frame[name].dtype.name == "category":
                size = len(set(text.split(","))) if len(held) == 1 else len(held)
                share = (size - 1) / (frame[name].nunique() - 1)
            else:
                ends = [float(e) for e in text.split("-")] if "-" in text else [float(text)] * 2
                values = np.sort(frame[name].unique())
                share = ((values >= ends[0]) & (values <= ends[-1])).sum() - 1
                share = share / (len(values) - 1)
            total += share * row["count"]
            cells += row["count"]
    print(json.dumps({"seconds": spent, "loss": total / cells}))
elif what == "pycanon":
    from pycanon import anonymity
    qi = [n for n in names if n != "occupation"]
    out = {}
    for name, work in (
        ("k", lambda: anonymity.k_anonymity(frame, qi)),
        ("l", lambda: anonymity.l_diversity(frame, qi, ["occupation"])),
        ("t", lambda: anonymity.t_closeness(frame, qi, ["occupation"])),
    ):
        begun = time.process_time()
        value = work()
        out[name] = [float(value), time.process_time() - begun]
    print(json.dumps(out))
elif what == "anjana":
    from anjana.anonymity import k_anonymity
    folder = path.rsplit("/", 1)[0]
    trees = {}
    for name in names:
        rows = [line.rstrip("\\n").split(";") for line in open(f"{folder}/adult_hierarchy_{name}.csv")]
        levels = len(rows[0])
        kind = int if name == "age" else str
        trees[name] = {n: pd.Series([kind(r[n]) if n == 0 else r[n] for r in rows]) for n in range(levels)}
    begun = time.process_time()
    made = k_anonymity(frame.copy(), [], names, 5, 4, trees)
    spent = time.process_time() - begun
    loss = 0.0
    for name in names:
        leaves = trees[name][0]
        size = len(leaves)
        for n in range(len(trees[name])):
            labels = trees[name][n].astype(str)
            if set(made[name].astype(str)) <= set(labels):
                share = made[name].astype(str).map((labels.value_counts() - 1) / (size - 1))
                loss += share.sum()
                break
    loss = (loss + (len(frame) - len(made)) * len(names)) / len(frame) / len(names)
    print(json.dumps({"seconds": spent, "loss": loss, "rows": len(made)}))
"""


def cpu(work: Callable[[], Any], times: int = 5) -> tuple[float, float, Any]:
    """CPU seconds and wall seconds of the best of several runs, and the result."""
    best, wall, result = np.inf, np.inf, None
    for _ in range(times):
        begun, clock = time.process_time(), time.perf_counter()
        result = work()
        spent = time.process_time() - begun
        if spent < best:
            best, wall = spent, time.perf_counter() - clock
    return best, wall, result


def line(what: str, seconds: float, wall: float, bar: float | None, remark: str = "") -> None:
    """One line: what, CPU, wall, the bar and whether it is met, a remark."""
    met = "" if bar is None else f"bar {bar:>5.2f} {'met' if seconds <= bar else 'MISSED'}"
    print(f"{what:<58} {seconds:>7.3f} cpu {wall:>7.3f} wall  {met:<16} {remark}", flush=True)


def read_adult() -> pa.Table:
    """The adult table from its CSV file."""
    return csv.read_csv(ADULT / "adult.csv", parse_options=csv.ParseOptions(delimiter=";"))


def trees(table: pa.Table) -> dict[str, Any]:
    """Its hierarchies from their files."""
    return {n: read_tree(ADULT / f"adult_hierarchy_{n}.csv").hierarchy(n, None) for n in table.column_names}


def adult_end_to_end(folder: str | None = None) -> Any:
    """Files to file: read, code, search, recode, write."""
    table = read_adult()
    made = anonymize(table, Request(tuple(table.column_names), suppress=FOUR), trees(table))
    with tempfile.TemporaryDirectory() as fresh:
        pq.write_table(recoded(table, made.recoding), Path(folder or fresh) / "out.parquet")
    return made.solution


def first_run() -> None:
    """What a new machine pays for compiling, and a new process for loading what was compiled."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache, "PYTHONPATH": str(ROOT)}
        for what in ("first run on a machine (kernels are compiled)", "next process (kernels are loaded)"):
            run = subprocess.run(
                [sys.executable, "-c", FIRST_RUN], capture_output=True, text=True, env=environment, cwd=ROOT, check=True
            )
            imports, first, second = run.stdout.split()
            print(f"{what:<58} imports {imports}, first release {first}, second {second} cpu")


def million(table: pa.Table, rows: int = 1_000_000) -> pa.Table:
    """A large table like a small one: its rows drawn again, with nine cells in a hundred taken from another row."""
    chance = np.random.default_rng(1)
    drawn = chance.integers(0, table.num_rows, rows)
    columns = {}
    for name in table.column_names:
        values = table[name].combine_chunks().dictionary_encode()
        codes = values.indices.to_numpy()
        mixed = np.where(chance.random(rows) < 0.09, codes[chance.integers(0, len(codes), rows)], codes[drawn])
        columns[name] = values.dictionary.take(pa.array(mixed))
    return pa.table(columns)


def census() -> tuple[pa.Table, Request, dict[str, Spec]]:
    """63,000 rows and eight columns of the census table, with hierarchies that make a lattice of 45,000 nodes."""
    specs = {
        "age": Spec("intervals", {"widths": (5, 10, 20, 40)}),
        "weeks_worked_in_year": Spec("intervals", {"widths": (4, 13, 26)}),
        "detailed_industry_recode": Spec("order", {"sizes": (2, 4, 8)}),
        "detailed_occupation_recode": Spec("order", {"sizes": (2, 4, 8)}),
        "education": Spec("order", {"sizes": (2, 4, 8)}),
        "marital_stat": Spec("order", {"sizes": (2,)}),
        "sex": Spec("withhold", {}),
        "race": Spec("withhold", {}),
    }
    specs["weeks_worked_in_year"] = Spec("intervals", {"widths": (13, 26, 52)})
    table = pq.read_table(DATA / "census_kdd" / "census_income_kdd_1994_1995.parquet", columns=list(specs))
    return table.slice(0, 63_000), Request(tuple(specs), suppress=FOUR), specs


def wide() -> tuple[pa.Table, Request]:
    """30,000 rows of the American Community Survey with all 24 columns as quasi-identifiers."""
    options = csv.ConvertOptions(include_columns=None)
    parts = [csv.read_csv(p, convert_options=options) for p in sorted((DATA / "nist_acs").glob("*/*2019.csv"))]
    table = pa.concat_tables([p.cast(pa.schema([(f.name, pa.string()) for f in p.schema])) for p in parts])
    for name in ("AGEP", "DENSITY", "PINCP", "PWGTP", "WGTP"):
        numbers = pa.array([float(v) if v not in ("N", "") else None for v in table[name].to_pylist()])
        table = table.set_column(table.column_names.index(name), name, numbers)
    chosen = np.random.default_rng(0).permutation(table.num_rows)[:30_000]
    return table.take(pa.array(chosen)), Request(tuple(table.column_names), suppress=FOUR)


def greedy(checker: Checker) -> float:
    """The plain heuristic: from the top, always to the cheapest acceptable node below, until none is better."""
    best = checker.check(checker.problem.lattice.top)
    while True:
        below = [checker.check(node) for node in checker.problem.lattice.below(best.levels)]
        better = min((v for v in below if v.acceptable), key=lambda v: v.cost, default=best)
        if better.cost >= best.cost:
            return best.cost
        best = better


def peers() -> Callable[[str], dict[str, Any] | None]:
    """A runner of peers in their own environment; it says when they cannot be installed."""
    home = ROOT / ".venvs" / "kanonymity"
    python = home / "bin" / "python"
    ready = python.exists()
    if not ready:
        venv.create(home, with_pip=True)
        wanted = ["anonypy", "pycanon", "anjana", "pandas<3", "numpy<2.4"]
        done = subprocess.run([python, "-m", "pip", "install", "-q", *wanted], capture_output=True, check=False)
        ready = done.returncode == 0
    if not ready:
        print("the peers could not be installed; their lines are left out")

    def run(what: str) -> dict[str, Any] | None:
        if not ready:
            return None
        done = subprocess.run(
            [python, "-c", PEERS, what, str(ADULT / "adult.csv")], capture_output=True, text=True, check=False
        )
        if done.returncode:
            print(f"{what} failed: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'no message'}")
            return None
        return dict(json.loads(done.stdout.strip().splitlines()[-1]))

    return run


def bench_adult() -> None:
    """The known optimum, and models on top."""
    seconds, wall, found = cpu(adult_end_to_end)
    line("adult, 9 columns, k=5, 4%: files to file", seconds, wall, 0.5, "ARX 1.7, search alone")
    right = found.levels == (0, 3, 0, 1, 1, 1, 1, 2, 0) and abs(found.cost - 0.29281588) < 1e-6
    print(f"  loss {found.cost:.8f}, {found.suppressed} suppressed, known optimum: {right}; {found.proof}")
    table = read_adult()
    built, sensitive = trees(table), ("occupation",)
    rest = tuple(n for n in table.column_names if n != "occupation")
    for model in (DistinctDiversity("occupation", 2), Closeness("occupation", 0.2)):
        request = Request(rest, (KAnonymity(5), model), sensitive, suppress=FOUR)
        seconds, wall, made = cpu(lambda r=request: anonymize(table, r, built))
        line(f"  with {model}", seconds, wall, 1.0, f"ARX 0.85 to 2.0; {made.solution.proof.checks} checks")


def bench_large(quick: bool) -> None:
    """45,000 nodes; a million rows from Parquet to Parquet; Mondrian; ten million rows in a stream."""
    table, request, specs = census()
    seconds, wall, made = cpu(lambda: anonymize(table, request, specs), 3)
    proof = made.solution.proof
    line(f"census, 63,000 rows, {proof.nodes} nodes, k=5, 4%", seconds, wall, 1.5, f"{proof.checks} checks")
    adult = read_adult()
    names, built = tuple(adult.column_names), trees(adult)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "million.parquet"
        pq.write_table(million(adult), path)

        def whole() -> Any:
            big = pq.read_table(path, read_dictionary=[n for n in names if n != "age"])
            made = prepare(big, Request(names, suppress=FOUR), built)
            checker = Checker(made.problem)
            solution = solve(checker)
            out = recoded(big, describe(made, checker, solution))
            pq.write_table(out, Path(folder) / "out.parquet")
            return made

        seconds, wall, ready = cpu(whole, 3)
        line(f"a million rows, {ready.problem.tuples.size} distinct, Parquet to Parquet", seconds, wall, 3.0, "ARX 16")
        seconds, wall, local = cpu(lambda: mondrian(ready), 3)
        line("  Mondrian, k=5", seconds, wall, 2.0, f"{local.classes} classes, loss {local_loss(ready, local):.4f}")
        if not quick:
            stream(path, folder, names, built)


def stream(path: Path, folder: str, names: tuple[str, ...], built: dict[str, Any]) -> None:
    """Ten million rows through a recoding, in a process of its own, whose memory is told."""
    from deniable.kanonymity.recoding import write

    first = pq.read_table(path)
    write(anonymize(first, Request(names, suppress=FOUR), built).recoding, Path(folder) / "r.json")
    with pq.ParquetWriter(Path(folder) / "ten.parquet", first.schema) as writer:
        for _ in range(10):
            writer.write_table(first)
    code = f"import bench.kanonymity as b; b.stream_once({folder!r})"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    seconds, before, after, rows = run.stdout.split()
    print(f"ten million rows recoded in a stream: {seconds} cpu, {rows} rows released")
    print(f"  memory {before} MB before, {after} MB at most")


def stream_once(folder: str) -> None:
    """Recode `ten.parquet` batch by batch, and tell time and memory."""
    from deniable.kanonymity.recoding import read

    recoder = Recoder(read(Path(folder) / "r.json"))
    before, begun, rows = memory(), time.process_time(), 0
    writer = None
    for batch in recoder.stream(pq.ParquetFile(Path(folder) / "ten.parquet").iter_batches(65_536)):
        if writer is None:
            writer = pq.ParquetWriter(Path(folder) / "ten.out.parquet", batch.schema)
        writer.write_batch(batch.cast(writer.schema))
        rows += batch.num_rows
    if writer is not None:
        writer.close()
    print(f"{time.process_time() - begun:.2f} {before} {memory()} {rows}")


def memory() -> int:
    """The most memory this process has held so far, in megabytes."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss begins with what the parent process had
        held = next(row for row in status.read_text().splitlines() if row.startswith("VmHWM"))
        return int(held.split()[1]) // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def bench_checks(run: Callable[[str], dict[str, Any] | None]) -> None:
    """Checking a table, beside pycanon; adding rows to a release."""
    table = read_adult()
    rest = tuple(n for n in table.column_names if n != "occupation")
    seconds, wall, found = cpu(lambda: examine(table, rest, ("occupation",), blames=False))
    peer = run("pycanon")
    told = "" if peer is None else "pycanon " + ", ".join(f"{n} {v[1]:.2f}" for n, v in peer.items())
    line("k, l and t of adult", seconds, wall, 0.05, told)
    if peer is not None:
        column = found.sensitive[0]
        ours = {"k": found.k, "l": column.distinct_l, "t": column.t}
        print("  same values: " + str(all(abs(ours[n] - v[0]) < 1e-9 for n, v in peer.items())) + f" {ours}")
    recoding = anonymize(table, Request(tuple(table.column_names), suppress=FOUR), trees(table)).recoding
    for rows in (300, 3000, 30_000):
        seconds, wall, _ = cpu(lambda n=rows: update(recoding, table.slice(0, n), (KAnonymity(5),)))
        line(f"  adding {rows} rows to a release", seconds, wall, None)


def bench_mondrian(run: Callable[[str], dict[str, Any] | None]) -> None:
    """Mondrian on adult, beside anonypy; and the greedy search of anjana."""
    table = read_adult()
    names = tuple(n for n in table.column_names if n != "salary-class")
    specs = {n: t for n, t in trees(table).items() if n != "age"} | {"age": Spec("intervals", {"widths": (5, 10, 20)})}
    seconds, wall, both = cpu(lambda: (p := prepare(table, Request(names), specs), mondrian(p, sets=True)))
    loss = local_loss(*both, Form.SETS)
    peer = run("anonypy")
    told = (
        ""
        if peer is None
        else f"anonypy {peer['seconds']:.2f} ({peer['seconds'] / seconds:.0f}x), loss {peer['loss']:.4f}"
    )
    line("Mondrian on adult, 8 columns, k=5", seconds, wall, None, f"loss {loss:.4f}; {told}")
    peer = run("anjana")
    if peer is not None:
        print(f"  anjana k=5, 4%: {peer['seconds']:.2f} cpu, loss {peer['loss']:.4f} (optimum 0.2928)")


def bench_wide(seconds: float) -> None:
    """24 quasi-identifiers: more nodes than can be listed."""
    table, request = wide()
    ready = prepare(table, request)
    checker = Checker(ready.problem)
    begun = time.process_time()
    plain = greedy(checker)
    spent = time.process_time() - begun
    fresh = Checker(ready.problem)
    found = AnytimeSearch(ready.problem, fresh).run(seconds=seconds)
    assert found is not None
    proof = found.proof
    print(f"24 columns, {table.num_rows} rows, {proof.nodes:.2e} nodes, {seconds:g} s, {proof.checks} checks:")
    print(f"  loss {found.cost:.4f}, optimum at least {proof.bound:.4f}")
    print(f"  plain greedy descent: loss {plain:.4f} in {spent:.1f} cpu")


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the stream of ten million rows")
    quick = parser.parse_args().quick
    if not ADULT.exists():
        print("the tables are not beside the project; nothing to measure")
        return
    first_run()
    adult_end_to_end()
    run = peers()
    bench_adult()
    bench_large(quick)
    bench_checks(run)
    bench_mondrian(run)
    bench_wide(3.0 if quick else 10.0)


if __name__ == "__main__":
    main()
