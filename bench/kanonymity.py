"""k-anonymity: optimal searches, checks, Mondrian, updates and streams, beside ARX, anonypy, pycanon and anjana.

    python bench/kanonymity.py [--quick] [--arx libarx.jar]

Measures the adult, census and ACS tables where they are beside the project, else generated ones of their shape. The
Python peers are installed into `.venvs/kanonymity` on the first run. ARX is a Java program whose archive is on no
package registry: where `--arx` (or ARX_JAR in the environment) names one built from its source, it runs beside us
through bench/ArxDriver.java; its figures are of its warm search alone, without reading and writing. Times are CPU
seconds, best of several. The first line is the whole command in a new process; the last list every bar.
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
import pyarrow.parquet as pq

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

import _arx  # noqa: E402
from _generated import say_source  # noqa: E402
from _kanonymity_tables import ADULT, FOUR, census, million, read_adult, trees, wide  # noqa: E402

from deniable.kanonymity.anonymize import anonymize, describe_recoding, recode_table, solve  # noqa: E402
from deniable.kanonymity.local_recoding import measure_local_loss  # noqa: E402
from deniable.kanonymity.models import Closeness, DistinctDiversity, KAnonymity  # noqa: E402
from deniable.kanonymity.quality import AverageClassSize, Discernibility  # noqa: E402
from deniable.kanonymity.recoding import Form, Recoder  # noqa: E402
from deniable.kanonymity.request import Prepared, Request, prepare  # noqa: E402
from deniable.kanonymity.risk import examine  # noqa: E402
from deniable.kanonymity.search.anytime import AnytimeSearch  # noqa: E402
from deniable.kanonymity.search.check import Checker  # noqa: E402
from deniable.kanonymity.search.mondrian import mondrian  # noqa: E402
from deniable.kanonymity.update import update_recoding  # noqa: E402
from deniable.policy.schema import Spec  # noqa: E402
from deniable.release import verify  # noqa: E402

BARS: list[tuple[str, bool | None, str]] = []
"""Every bar: its name, whether it is met (None: not measured here), and the figures."""

OPTIMA = {0.02: ((0, 3, 0, 2, 2, 1, 1, 2, 0), 0.35748249, 506), 0.04: ((0, 3, 0, 1, 1, 1, 1, 2, 0), 0.29281588, 1178)}
"""The known optima of adult by the share that may be suppressed: levels, loss, rows suppressed."""

MEMORY = 300
"""So many megabytes may a stream of ten million rows add, whose table takes several times that."""


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


def bar(what: str, met: bool | None, figures: str) -> str:
    """Note a bar for the list at the end; the word for it."""
    BARS.append((what, met, figures))
    return {True: "pass", False: "MISS", None: "not measured"}[met]


def line(what: str, seconds: float, wall: float, most: float | None, remark: str = "") -> None:
    """One line: what, CPU, wall, the bar and whether it is met, a remark."""
    told = ""
    if most is not None:
        told = f"bar {most:>4.2f} " + bar(what.strip(), seconds <= most, f"{seconds:.3f} cpu, at most {most:g}")
    print(f"{what:<58} {seconds:>7.3f} cpu {wall:>7.3f} wall  {told:<16} {remark}", flush=True)


def beside(jar: Path | None, ready: Prepared, seconds: float, times: int = 5) -> str:
    """ARX's search of the same problem, as a ratio, where it can be run."""
    found = _arx.run(jar, ready, times=times) if jar else None
    if found is None:
        return "ARX not run"
    return f"ARX {found.cpu:.2f} cpu, search alone ({found.cpu / seconds:.1f}x), loss {found.loss:.6f}"


def adult_end_to_end(folder: str | None = None, suppress: float = FOUR) -> Any:
    """Files to file: read, code, search, recode, write."""
    table = read_adult()
    made = anonymize(table, Request(tuple(table.column_names), suppress=suppress), trees(table))
    with tempfile.TemporaryDirectory() as fresh:
        pq.write_table(recode_table(table, made.recoding), Path(folder or fresh) / "out.parquet")
    return made.solution


def bench_command() -> None:
    """The whole command in a new process each time, with its certificate and its statement; bytecode is compiled."""
    names = read_adult().column_names
    trees_of = [word for name in names for word in ("--hierarchy", f"{name}={ADULT / f'adult_hierarchy_{name}.csv'}")]
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.csv"
        words = ["anonymize", ADULT / "adult.csv", "--qi", ",".join(names), "--k", "5", "--suppress", str(FOUR)]
        command = [sys.executable, "-m", "deniable", *map(str, words), *trees_of, "--out", str(out)]
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment = kept | {"PYTHONPYCACHEPREFIX": folder}
        best = (np.inf, np.inf)
        for _ in range(6):  # the first compiles
            before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            subprocess.run(command, check=True, capture_output=True, env=environment)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            best = min(best, (spent, time.perf_counter() - clock))
        gone = verify(out).body["details"]["suppressed"]
    bar("the whole command finds the known optimum", gone == OPTIMA[FOUR][2], f"{gone} suppressed")
    line("adult, 4%: the whole command, cold", *best, 1.0)


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
        script = ROOT / "bench" / "_kanonymity_peers.py"
        command = [python, script, what, ADULT / "adult.csv"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"{what} failed: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else 'no message'}")
            return None
        return dict(json.loads(done.stdout.strip().splitlines()[-1]))

    return run


def bench_adult(jar: Path | None) -> None:
    """The known optima, and models on top."""
    for limit, (levels, loss, gone) in OPTIMA.items():
        found = adult_end_to_end(suppress=limit)
        same = found.levels == levels and abs(found.cost - loss) < 1e-6 and found.suppressed == gone
        bar(f"adult, known optimum at {limit:.0%}", same, f"loss {found.cost:.8f}, {found.suppressed} suppressed")
    table = read_adult()
    built, sensitive = trees(table), ("occupation",)
    seconds, wall, found = cpu(adult_end_to_end)
    ready = prepare(table, Request(tuple(table.column_names), suppress=FOUR), built)
    line("adult, 9 columns, k=5, 4%: files to file", seconds, wall, 0.5, beside(jar, ready, seconds))
    print(f"  loss {found.cost:.8f}, {found.suppressed} suppressed; {found.proof}")
    for measure in (AverageClassSize(), Discernibility()):
        request = Request(tuple(table.column_names), suppress=FOUR, measure=measure)
        seconds, wall, made = cpu(lambda r=request: anonymize(table, r, built), 2)
        told = beside(jar, prepare(table, request, built), seconds)
        checks = made.solution.proof.checks
        line(f"  by {measure}", seconds, wall, None, f"loss {made.solution.cost:.6f}, {checks} checks; {told}")
    rest = tuple(n for n in table.column_names if n != "occupation")
    for model in (DistinctDiversity("occupation", 2), Closeness("occupation", 0.2)):
        request = Request(rest, (KAnonymity(5), model), sensitive, suppress=FOUR)
        seconds, wall, made = cpu(lambda r=request: anonymize(table, r, built))
        told = beside(jar, prepare(table, request, built | {"occupation": None}), seconds)
        line(f"  with {model}", seconds, wall, 1.0, f"loss {made.solution.cost:.6f}; {told}")


def bench_large(quick: bool, jar: Path | None) -> None:
    """45,000 nodes; a million rows from Parquet to Parquet; Mondrian; ten million rows in a stream."""
    table, request, specs = census()
    seconds, wall, made = cpu(lambda: anonymize(table, request, specs), 3)
    proof = made.solution.proof
    told = beside(jar, prepare(table, request, specs), seconds, 2)
    line(
        f"census, 63,000 rows, {proof.nodes} nodes, k=5, 4%",
        seconds,
        wall,
        1.5,
        f"loss {made.solution.cost:.6f}; {told}",
    )
    adult = read_adult()
    names, built = tuple(adult.column_names), trees(adult)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "million.parquet"
        pq.write_table(million(adult), path)
        seconds, wall, ready = cpu(lambda: million_rows(path, names, built), 3)
        told = beside(jar, ready, seconds, 2)
        line(f"a million rows, {ready.problem.tuples.size} distinct, Parquet to Parquet", seconds, wall, 3.0, told)
        seconds, wall, local = cpu(lambda: mondrian(ready), 3)
        line(
            "  Mondrian on them, k=5",
            seconds,
            wall,
            2.0,
            f"{local.classes} classes, loss {measure_local_loss(ready, local):.4f}",
        )
        if not quick:
            stream(path, folder, names, built)


def million_rows(path: Path, names: tuple[str, ...], built: dict[str, Any]) -> Prepared:
    """Read, search, recode and write; what was prepared, for the next measurement."""
    big = pq.read_table(path, read_dictionary=[n for n in names if n != "age"])
    made = prepare(big, Request(names, suppress=FOUR), built)
    checker = Checker(made.problem)
    out = recode_table(big, describe_recoding(made, checker, solve(checker)))
    pq.write_table(out, path.with_name("out.parquet"))
    return made


def stream(path: Path, folder: str, names: tuple[str, ...], built: dict[str, Any]) -> None:
    """Ten million rows through a recoding, in a process of its own, whose memory is told."""
    from deniable.kanonymity.recoding import write_recoding

    first = pq.read_table(path)
    write_recoding(anonymize(first, Request(names, suppress=FOUR), built).recoding, Path(folder) / "r.json")
    with pq.ParquetWriter(Path(folder) / "ten.parquet", first.schema) as writer:
        for _ in range(10):
            writer.write_table(first)
    code = f"import bench.kanonymity as b; b.stream_once({folder!r})"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    seconds, before, after, rows = run.stdout.split()
    told = f"{before} MB before, {after} MB at most; the table itself takes {10 * first.nbytes >> 20} MB"
    met = bar("ten million rows in a stream", int(after) - int(before) <= MEMORY, told)
    print(f"ten million rows recoded in a stream: {seconds} cpu, {rows} rows released; {told}: {met}")


def stream_once(folder: str) -> None:
    """Recode `ten.parquet` batch by batch, and tell time and memory."""
    from deniable.kanonymity.recoding import read_recoding

    recoder = Recoder(read_recoding(Path(folder) / "r.json"))
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
        seconds, wall, _ = cpu(lambda n=rows: update_recoding(recoding, table.slice(0, n), (KAnonymity(5),)))
        line(f"  adding {rows} rows to a release", seconds, wall, None)


def bench_mondrian(run: Callable[[str], dict[str, Any] | None]) -> None:
    """Mondrian on adult, beside anonypy; and the greedy search of anjana."""
    table = read_adult()
    names = tuple(n for n in table.column_names if n != "salary-class")
    specs = {n: t for n, t in trees(table).items() if n != "age"} | {"age": Spec("intervals", {"widths": (5, 10, 20)})}
    seconds, wall, both = cpu(lambda: (p := prepare(table, Request(names), specs), mondrian(p, sets=True)))
    loss = measure_local_loss(*both, Form.SETS)
    peer = run("anonypy")
    told = f"loss {loss:.4f}"
    if peer is not None:
        ratio = peer["seconds"] / seconds
        told += f"; anonypy {peer['seconds']:.2f} cpu ({ratio:.0f}x), loss {peer['loss']:.4f}"
        bar("Mondrian on adult, 5 times faster than anonypy, lower loss", ratio >= 5 and loss < peer["loss"], told)
    line("Mondrian on adult, 8 columns, k=5", seconds, wall, None, told)
    peer = run("anjana")
    if peer is not None:
        print(f"  anjana k=5, 4%: {peer['seconds']:.2f} cpu, loss {peer['loss']:.4f} (optimum 0.2928)")


def bench_wide(seconds: float, jar: Path | None) -> None:
    """24 quasi-identifiers: more nodes than can be listed, so that both programs stop when the time is over."""
    table, request = wide()
    ready = prepare(table, request)
    begun = time.process_time()
    found = AnytimeSearch(ready.problem, Checker(ready.problem)).run(seconds=seconds)
    spent = time.process_time() - begun
    assert found is not None
    proof = found.proof
    print(f"24 columns, {table.num_rows} rows, {proof.nodes:.2e} nodes, {seconds:g} s each:")
    print(f"  ours: loss {found.cost:.4f}, optimum at least {proof.bound:.4f}; {proof.checks} checks, {spent:.1f} cpu")
    losses = {}
    for algorithm in _arx.HEURISTICS if jar else ():
        if jar and (peer := _arx.run(jar, ready, algorithm, seconds, 2)):
            losses[algorithm] = peer.loss
            print(f"  ARX {algorithm}: loss {peer.loss:.4f} (by our reckoning {peer.ours:.4f}), {peer.cpu:.1f} cpu")
    met = found.cost < min(losses.values()) if losses else None
    told = f"loss {found.cost:.4f}, ARX {min(losses.values()):.4f}" if losses else f"loss {found.cost:.4f}; ARX not run"
    bar("24 quasi-identifiers, 30,000 rows, lower loss than ARX", met, told)


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the stream of ten million rows")
    parser.add_argument("--arx", type=Path, default=os.environ.get("ARX_JAR"), help="the archive of ARX, to run beside")
    asked = parser.parse_args()
    for name in ("adult", "census_kdd", "nist_acs"):
        print(say_source(name))
    jar = Path(asked.arx) if asked.arx else None
    jar = jar if _arx.available(jar) else None
    bench_command()
    adult_end_to_end()
    run = peers()
    bench_adult(jar)
    bench_large(asked.quick, jar)
    bench_checks(run)
    bench_mondrian(run)
    bench_wide(3.0 if asked.quick else 10.0, jar)
    print("\nbars")
    for what, met, figures in BARS:
        print(f"  {'pass' if met else 'MISS' if met is False else '-':<5} {what}: {figures}")


if __name__ == "__main__":
    main()
