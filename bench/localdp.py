"""Local randomizers beside pure-LDP and multi-freq-ldpy; a count mean sketch over a million strings; the survey server;
and the bars of trust: forged messages, hostile responses, the files of a killed server, the best protocol, coverage.

    python bench/localdp.py [--quick] [--only PART ...]

The peers are installed into `.venvs/localdp` on the first run. They loop over respondents, so they are run on fewer and
scaled up in proportion (their cost is linear; the number is printed). All times are CPU seconds unless wall is said.
Errors are given as mean squared error over the theory's; 1.00 is exactly the theory.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from deniable.dp.samplers import SYSTEM, Entropy
from deniable.localdp.frequency.hadamard import Hadamard
from deniable.localdp.frequency.hashing import LocalHashing
from deniable.localdp.frequency.randomized_response import Direct
from deniable.localdp.frequency.sketch import CountMeanSketch, HadamardSketch, rank_heaviest
from deniable.localdp.frequency.unary import Unary
from deniable.localdp.serialization import FORMAT

ROOT = Path(__file__).resolve().parent.parent
DOMAIN, EPSILON = 1024, 1
BARS = {"k-ary": 0.1, "hadamard": 0.1, "unary": 3.0, "hashing": 8.0}
MAKERS: dict[str, Callable[[], Any]] = {
    "k-ary": lambda: Direct.calibrate(DOMAIN, EPSILON),
    "hadamard": lambda: Hadamard.calibrate(DOMAIN, EPSILON),
    "unary": lambda: Unary.calibrate(DOMAIN, EPSILON),
    "hashing": lambda: LocalHashing.calibrate(DOMAIN, EPSILON),
}
PEERS = """
import json, sys, time, warnings
import numpy as np
warnings.simplefilter("ignore")
d, eps = 1024, 1.0
rng = np.random.default_rng(0)
weights = 1 / np.arange(1, d + 1) ** 1.1
def run(name, n, work):
    values = rng.choice(d, size=n, p=weights / weights.sum())
    start = time.process_time()
    work(values)
    print(json.dumps([name, n, time.process_time() - start]), flush=True)
def pure(client, server):
    def work(values):
        for value in values:
            server.aggregate(client.privatise(int(value) + 1))
        server.estimate_all(range(1, d + 1), suppress_warnings=True)
    return work
from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer
from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer
from pure_ldp.frequency_oracles.hadamard_response import HadamardResponseClient, HadamardResponseServer
from pure_ldp.frequency_oracles.local_hashing import LHClient, LHServer
run("k-ary pure-LDP", 50000, pure(DEClient(epsilon=eps, d=d), DEServer(epsilon=eps, d=d)))
run("unary pure-LDP", 10000, pure(UEClient(epsilon=eps, d=d, use_oue=True), UEServer(epsilon=eps, d=d, use_oue=True)))
server = HadamardResponseServer(eps, d)
run("hadamard pure-LDP", 50000, pure(HadamardResponseClient(eps, d, server.get_hash_funcs()), server))
run("hashing pure-LDP", 2000, pure(LHClient(epsilon=eps, d=d, use_olh=True), LHServer(epsilon=eps, d=d, use_olh=True)))
from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client, GRR_Aggregator_MI
from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Client, UE_Aggregator_MI
from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Client, LH_Aggregator_MI
GRR_Client(1, d, eps), UE_Client(1, d, eps, True)
run("k-ary multi-freq-ldpy", 10000, lambda x: GRR_Aggregator_MI([GRR_Client(v, d, eps) for v in x], d, eps))
run("unary multi-freq-ldpy", 10000, lambda x: UE_Aggregator_MI([UE_Client(v, d, eps, True) for v in x], eps, True))
run("hashing multi-freq-ldpy", 2000, lambda x: LH_Aggregator_MI([LH_Client(v, d, eps, True) for v in x], d, eps, True))
"""
SURVEY = "{survey: load, title: Load, questions: {ward: {ask: Ward?, type: choice, options: [A, B, C], epsilon: 1}}}"


class PlainGenerator:
    """Fast and predictable: what the operating system's entropy is compared with. Never for people's answers."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.SFC64(seed))

    def take(self, count: int) -> bytes:
        """The next bytes."""
        return self._generator.bytes(count)


def population(people: int) -> np.ndarray:
    """Answers of a long-tailed population."""
    weights = 1 / np.arange(1, DOMAIN + 1) ** 1.1
    return np.random.default_rng(0).choice(DOMAIN, size=people, p=weights / weights.sum())


def measured(protocol: Any, answers: np.ndarray, entropy: Entropy) -> tuple[float, float]:
    """CPU seconds to randomize and estimate, and the error over the theory's."""
    start = time.process_time()
    found = protocol.estimate(protocol.tally(protocol.randomize(answers, entropy)), len(answers))
    taken = time.process_time() - start
    truth = np.bincount(answers, minlength=DOMAIN)
    theory = np.mean([protocol.variance(share) for share in truth / len(answers)]) * len(answers)
    return taken, float(((found.counts - truth) ** 2).mean() / theory)


def protocols(people: int) -> dict[str, float]:
    """Our protocols, from system entropy and from a plain generator."""
    answers, seconds = population(people), {}
    print(f"{people:,} respondents, domain {DOMAIN}, epsilon {EPSILON}: randomize and estimate")
    for name, make in MAKERS.items():
        protocol = make()
        measured(protocol, answers[:1000], SYSTEM)  # compile
        runs = [measured(protocol, answers, SYSTEM) for _ in range(3)]
        plain = min(measured(protocol, answers, PlainGenerator(seed))[0] for seed in range(3))
        seconds[name], error = min(run[0] for run in runs), float(np.mean([run[1] for run in runs]))
        bar = f"bar {BARS[name]}: {'met' if seconds[name] <= BARS[name] and abs(error - 1) < 0.1 else 'MISSED'}"
        cost = f"plain generator {plain:.3f}, so system entropy costs x{seconds[name] / plain:.2f}"
        print(f"  {name:9} {seconds[name]:7.3f} s  error x{error:.3f} of theory  {bar}; {cost}", flush=True)
    return seconds


def peer_python() -> Path | None:
    """The peers' own environment, made on the first run; None where they cannot be had."""
    home = ROOT / ".venvs" / "localdp"
    python = home / "bin" / "python"
    check = [python, "-c", "import pure_ldp.frequency_oracles, multi_freq_ldpy"]
    if python.exists() and subprocess.run(check, capture_output=True).returncode == 0:
        return python
    venv.create(home, with_pip=True)
    wanted = ["pure-ldp", "multi-freq-ldpy", "xxhash<3.6", "scikit-learn", "statsmodels"]  # newer xxhash breaks both
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", *wanted], capture_output=True)
    return python if done.returncode == 0 else None


def peers(people: int, ours: dict[str, float], python: Path | None) -> None:
    """The peers on fewer respondents, scaled up."""
    if python is None:
        print("  peers skipped: pure-ldp and multi-freq-ldpy cannot be installed here")
        return
    done = subprocess.run([python, "-c", PEERS], capture_output=True, text=True)
    for line in done.stdout.splitlines():
        name, count, seconds = json.loads(line)
        kind, _, peer = name.partition(" ")
        scaled = seconds * people / count
        print(f"  {kind:9} {scaled:9.2f} s  {peer} (from {count:,})  x{scaled / ours[kind]:,.0f} of ours")
    if done.returncode:
        print("  a peer failed:", done.stderr.strip().splitlines()[-1])


def sketch(kind: str, people: int, strings: int) -> None:
    """Collect and decode one sketch in this process; print what the bar asks for."""
    # One bit of a wide row costs a respondent nothing, so the Hadamard sketch is wide and its strings collide less.
    protocol = CountMeanSketch.calibrate(4) if kind == "count-mean" else HadamardSketch.calibrate(4, width=1 << 14)
    words = [f"https://site-{i}.example/" for i in range(strings)]
    weights = 1 / np.arange(1, strings + 1) ** 1.1
    rng, edges = np.random.default_rng(1), np.cumsum(weights / weights.sum())
    tally, truth, told, absorbed = 0, np.zeros(strings, dtype=np.int64), 0.0, 0.0
    for start in range(0, people, 250_000):
        who = np.minimum(np.searchsorted(edges, rng.random(min(250_000, people - start))), strings - 1)
        truth += np.bincount(who, minlength=strings)
        clock = time.process_time()
        responses = protocol.randomize([words[i] for i in who.tolist()])
        told, clock = told + time.process_time() - clock, time.process_time()
        tally = tally + protocol.tally(responses)
        absorbed += time.process_time() - clock
    clock = time.process_time()
    found = protocol.estimate(tally, people, words)
    top = rank_heaviest(found, words, 1000)
    decoded = absorbed + time.process_time() - clock
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    ratio = float(((found.counts - truth) ** 2 / found.variances).mean())
    hits = len({word for word, _, _ in top[:100]} & {words[i] for i in np.argsort(-truth)[:100]})
    met = "met" if decoded < 60 and peak < 1024 else "MISSED"
    print(
        f"  {kind:10} absorb {absorbed:.1f} + decode {decoded - absorbed:.1f} = {decoded:.1f} s, peak {peak:.0f} MB"
        f"  bar 60 s and 1,024 MB: {met}; error x{ratio:.2f} of stated; {hits} of the true top 100 found;"
        f" respondents' side {told:.1f} s",
        flush=True,
    )


def sketches(people: int, strings: int) -> None:
    """Each sketch in a process of its own, so that its peak memory is its own."""
    print(f"{people:,} responses over {strings:,} strings, epsilon 4, decoded for the top 1,000")
    for kind in ("count-mean", "hadamard"):
        subprocess.run([sys.executable, __file__, "--sketch", kind, str(people), str(strings)], check=True)


async def flood(port: int, messages: list[bytes], statuses: list[int]) -> None:
    """Send messages over 64 connections, noting every answer."""

    async def connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            while messages:
                body = messages.pop()
                writer.write(b"POST /responses HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                status = int((await reader.readline()).split()[1])
                length = 0
                while (line := await reader.readline()) != b"\r\n":
                    length = int(line.split(b":")[1]) if line.lower().startswith(b"content-length") else length
                await reader.readexactly(length)
                statuses.append(status)
        finally:
            writer.close()

    await asyncio.gather(*(connection() for _ in range(64)), return_exceptions=True)


def server(count: int) -> None:
    """Responses a second of one server process, and what a kill in the middle loses."""
    from deniable.curator.survey import open_service

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "load.yaml"
        file.write_text(SURVEY)
        service = open_service(file)
        body = {"format": FORMAT, "survey": service.survey.identity, "responses": {"ward": [[1]]}}
        messages = [json.dumps(body | {"ticket": os.urandom(32).hex()}).encode() for _ in range(2 * count)]
        process, port = started(file)
        statuses: list[int] = []
        before, wall = cpu_of(process.pid), time.perf_counter()
        asyncio.run(flood(port, messages[:count], statuses))
        taken, wall = cpu_of(process.pid) - before, time.perf_counter() - wall
        rate = len(statuses) / taken
        met = "met" if rate >= 1000 else "MISSED"
        print(f"survey server: {rate:,.0f} responses a CPU second, {len(statuses) / wall:,.0f} a wall second", end="")
        print(f"  bar 1,000 on one core: {met}", flush=True)
        kill = asyncio.run(cut_short(port, messages[count:], process.pid))
        process.wait()
        service = open_service(file)
        thanked, kept = statuses.count(201) + kill, service.store.count()
        print(f"  killed in the middle: {thanked:,} acknowledged, {kept:,} stored, {max(0, thanked - kept)} lost")
        service.store.close()


def run_tests(what: str, *chosen: str) -> None:
    """A bar that a slow test holds: run it and print whether it was met, and in which time."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *chosen]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    met = "met" if done.returncode == 0 else "MISSED: " + done.stdout[-400:]
    print(f"{what}: {met} ({time.perf_counter() - start:.0f} s wall)", flush=True)


def trust() -> None:
    """What the survey promises against hostile clients and against whoever reads its files."""
    decoders, server = "tests/contracts/test_localdp_decoders.py", "tests/workflows/test_survey_server.py"
    run_tests("1,000,000 forged messages a protocol, none accepted that nobody honest sends", decoders, "-k", "million")
    run_tests(
        "one hostile response moves no estimate further than the worst honest one", decoders, "-k", "moves or far"
    )
    run_tests(
        "1,000 respondents, server killed: invitations and responses joined by chance only", server, "-k", "thousand"
    )


def choices() -> None:
    """The variance of the protocol that is chosen over the best published: k-ary response and subset selection."""
    from deniable.localdp.frequency.subset import Subset
    from deniable.localdp.protocol_choice import choose

    worst = (0.0, 0, "")
    for epsilon in ("0.5", "0.7", "1", "1.5", "2", "3", "4"):
        for domain in (2, 3, 4, 6, 10, 16, 30, 64, 128, 256, 341, 600, 1024, 4096, 4097, 20_000, 65_537, 100_000):
            made = (Subset.calibrate(domain, epsilon), Direct.calibrate(domain, epsilon))
            best = min(protocol.variance() for protocol in made)
            worst = max(worst, (choose(domain, epsilon, 10_000).protocol.variance() / best, domain, epsilon))
    met = "met" if worst[0] <= 1.02 else "MISSED"
    print(f"variance over the best published: at most x{worst[0]:.4f} (d = {worst[1]:,}, epsilon {worst[2]})", end="")
    print(f"  bar 1.02: {met}", flush=True)


def coverage(runs: int) -> None:
    """Coverage of 95% intervals of means and bins from 20 respondents on; shares are enumerated by a test."""
    from deniable.localdp.numeric.mechanisms import BoundedLaplace, Duchi, Hybrid, Window
    from deniable.localdp.numeric.scale import Scale, mean_of

    scale, rng, worst = Scale.between(0, 80), np.random.default_rng(4), (1.0, "")
    makers = {"duchi": Duchi.calibrate, "hybrid": Hybrid.calibrate, "window": Window.square_wave,
              "laplace": BoundedLaplace.calibrate}  # fmt: skip
    for name, make in makers.items():
        for epsilon, n, share in ((e, n, s) for e in (1, 4) for n in (20, 100) for s in (0.0, 0.1, 0.5)):
            protocol, answers = make(scale, epsilon), 80 * (rng.random((runs, n)) < share).astype(np.int64)
            columns = [column.reshape(runs, n) for column in protocol.randomize(answers.ravel())]
            ends = [mean_of(protocol, tuple(column[run] for column in columns)).interval() for run in range(runs)]
            hit = float(np.mean([low <= 80 * share <= high for low, high in ends]))
            worst = min(worst, (hit, f"{name}, epsilon {epsilon}, n = {n}, {share:.0%} at the upper end"))
    tell_coverage("means", worst, runs)
    tell_coverage("means of groups", cover_groups(max(20, runs // 4)), max(20, runs // 4))
    tell_coverage("coefficients of a regression", cover_coefficients(max(20, runs // 10)), max(20, runs // 10))
    tell_coverage("bins of a distribution", cover_bins(max(20, runs // 40)), max(20, runs // 40))
    run_tests("coverage of intervals of shares, by enumeration from n = 20", "tests/unit/test_localdp_intervals.py")


def tell_coverage(what: str, worst: tuple[float, str], runs: int) -> None:
    """The least coverage that was measured, with the error of so many runs, against the bar."""
    error = (0.95 * 0.05 / runs) ** 0.5
    met = "met" if worst[0] >= 0.94 - 2 * error else "MISSED"
    print(f"coverage of 95% intervals of {what}: least {worst[0]:.3f} ({worst[1]}), error {error:.3f}  bar 0.94: {met}")


def cover_groups(runs: int) -> tuple[float, str]:
    """The least coverage of the mean of one group of a randomized table, over sizes, epsilons and rare large values."""
    from fractions import Fraction

    import pyarrow as pa

    from deniable.localdp.records import estimate_means_by, plan_records, randomize
    from deniable.policy.schema import Bounds, Column, ColumnType, TableSchema

    rng, worst = np.random.default_rng(5), (1.0, "")
    columns = (Column("job", categories=("a", "b"), nullable=False),
               Column("pay", ColumnType.INTEGER, bounds=Bounds(0, 100), nullable=False))  # fmt: skip
    for epsilon, n, share in ((e, n, s) for e in (2, 8, 16, 32) for n in (20, 60) for s in (0.25, 0.7)):
        made = plan_records(TableSchema("t", "t.parquet", columns), Fraction(epsilon))
        for rare in (0.0, 0.005, 0.04, 0.2, 0.5):
            job, chance = np.where(rng.random(runs * n) < share, "a", "b"), rng.random(runs * n)
            pay = np.where(job == "a", 100 * (chance < rare), 100 * (chance < 0.5))
            told = randomize(made, pa.table({"job": job, "pay": pay}))
            groups = [estimate_means_by(made, told.slice(run * n, n), "pay", "job")[0][1] for run in range(runs)]
            hit = float(np.mean([low <= 100 * rare <= high for low, high in (mean.interval() for mean in groups)]))
            where = f"epsilon {epsilon}, {n} records, group of {share:.0%}, {rare:.1%} at the upper end"
            worst = min(worst, (hit, where))
    return worst


def cover_coefficients(runs: int) -> tuple[float, str]:
    """The least coverage of a coefficient, of those tables that give an interval, over sizes, epsilons and shapes.

    Where fewer than half of the tables give one, tables without one count as covered: any value is allowed there.
    """
    from fractions import Fraction

    import pyarrow as pa

    from deniable.localdp.postprocessing import regress
    from deniable.localdp.records import plan_records, randomize
    from deniable.policy.schema import Bounds, Column, ColumnType, TableSchema

    rng, worst = np.random.default_rng(7), (1.0, "")
    columns = (Column("age", ColumnType.INTEGER, bounds=Bounds(0, 100), nullable=False),
               Column("job", categories=("a", "b"), nullable=False),
               Column("pay", ColumnType.INTEGER, bounds=Bounds(0, 200), nullable=False))  # fmt: skip
    shapes = ("even", "rare large ages", "rare large pay")
    for each, n, shape in ((e, n, s) for e in (1, 4, 8, 16) for n in (20, 60, 400) for s in shapes):
        own = {"age": Fraction(each), "job": Fraction(16), "pay": Fraction(16)}
        made = plan_records(TableSchema("t", "t.parquet", columns), sum(own.values(), Fraction(0)), own=own)
        count, truth = runs * n, {"intercept": 70.0, "age": 1.0, "job = b": 30.0}
        age = 100 * (rng.random(count) < 0.1) if shape == "rare large ages" else rng.integers(0, 101, count)
        spread = rng.integers(-20, 21, count)
        if shape == "rare large pay":
            spread = np.where(rng.random(count) < 0.1, 45, -5)
        job = rng.random(count) < 0.4
        rows = pa.table({"age": age, "job": np.where(job, "b", "a"), "pay": 20 + age + 30 * job + spread})
        told = randomize(made, rows)
        found = [regress(made, told.slice(run * n, n), "pay", ["age", "job"]) for run in range(runs)]
        for place, (term, value) in enumerate(truth.items()):
            ends = [each[place].interval for each in found if each[place].interval is not None]
            missed = sum(not low <= value <= high for low, high in ends)
            hit = 1 - missed / (len(ends) if 2 * len(ends) >= runs else runs)
            where = f"{term}, age at epsilon {each}, {n} records, {shape}; {len(ends)} of {runs} tables give one"
            worst = min(worst, (hit, where))
    return worst


def cover_bins(runs: int) -> tuple[float, str]:
    """The least coverage of a bin, of 20 on a scale of 80 steps, over distributions, epsilons and respondents."""
    from deniable.localdp.numeric.distribution import estimate_with_intervals
    from deniable.localdp.numeric.mechanisms import Window
    from deniable.localdp.numeric.scale import Scale

    scale, rng, bins, worst = Scale.between(0, 80), np.random.default_rng(6), 20, (1.0, "")
    shapes = {"all at one end": np.eye(80)[0], "even": np.full(80, 1 / 80), "two peaks": np.eye(80)[[38, 61]].mean(0)}
    for name, shape in shapes.items():
        for epsilon, n in ((1, 20), (1, 1000), (4, 100), (4, 1000)):
            protocol, hits = Window.square_wave(scale, epsilon), np.zeros(bins)
            for _ in range(runs):
                told = protocol.randomize(rng.choice(80, size=n, p=shape))
                _, low, high = estimate_with_intervals(protocol, told, bins, 0.95)
                hits += (low <= shape.reshape(bins, -1).sum(1) + 1e-12) & (
                    shape.reshape(bins, -1).sum(1) <= high + 1e-12
                )
            worst = min(worst, (float(hits.min() / runs), f"{name}, epsilon {epsilon}, n = {n}"))
    return worst


async def cut_short(port: int, messages: list[bytes], pid: int) -> int:
    """Kill the server after a while under load; how many responses it had acknowledged by then."""
    statuses: list[int] = []
    task = asyncio.create_task(flood(port, messages, statuses))
    while len(statuses) < 500 and not task.done():
        await asyncio.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    await task
    return statuses.count(201)


def started(file: Path) -> tuple[subprocess.Popen[bytes], int]:
    """A server process and its port, once it answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = "from deniable.cli.main import main; main()"
    command = [sys.executable, "-c", start, "survey", "serve", str(file), "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    for _ in range(300):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/survey.json", timeout=5).close()
            break
        except OSError:
            time.sleep(0.1)
    return process, port


def cpu_of(pid: int) -> float:
    """CPU seconds a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


PARTS = ("protocols", "sketches", "server", "choices", "coverage", "trust")


def main() -> None:
    """Everything, a tenth of it, or the parts that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of everything")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--peers", type=Path, metavar="PYTHON", help="a Python that has pure-ldp and multi-freq-ldpy")
    parser.add_argument("--sketch", nargs=3, metavar=("KIND", "RESPONSES", "STRINGS"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.sketch:
        sketch(asked.sketch[0], int(asked.sketch[1]), int(asked.sketch[2]))
        return
    tenth = 10 if asked.quick else 1
    parts = asked.only or (PARTS[:-1] if asked.quick else PARTS)
    if "protocols" in parts:
        peers(1_000_000 // tenth, protocols(1_000_000 // tenth), asked.peers or peer_python())
    if "sketches" in parts:
        sketches(10_000_000 // tenth, 1_000_000 // tenth)
    if "server" in parts:
        server(10_000 // tenth)
    if "choices" in parts:
        choices()
    if "coverage" in parts:
        coverage(4000 // tenth)
    if "trust" in parts:
        trust()


if __name__ == "__main__":
    main()
