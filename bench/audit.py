"""The auditor: broken mechanisms, false alarms over sound ones, our own mechanisms, and other products.

`python bench/audit.py` prints each result beside its bar; `--only broken own sound others` runs some of its four parts.
Other products are installed into an environment of their own; `--peers PYTHON` names one that has them, `--products
OpenDP pure-LDP` some of them. `--quick` tries each broken mechanism once, and leaves out the 500 sound runs (`--sound`
says how many) and the other products.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from broken_mechanisms import BROKEN, Kind  # noqa: E402
from deniable.assess.mechanism_audit import MECHANISMS, ONE_RUN  # noqa: E402
from deniable.assess.outputs import tabulate_outputs  # noqa: E402
from deniable.attacks.dp_audit import AuditOutcome, audit_outputs  # noqa: E402
from deniable.curator.audit import AuditOrder, audit  # noqa: E402
from deniable.errors import DeniableError  # noqa: E402

PEERS = ROOT / ".venvs" / "audit"
PACKAGES = ("diffprivlib", "scikit-learn<1.6", "opendp", "smartnoise-sql", "pure-ldp", "statsmodels", "DataSynthesizer")
SOUND_RUNS, CONFIDENCE = 500, 0.95


def run_kind(kind: Kind, broken: bool, seed: int, confidence: float = 0.999) -> tuple[AuditOutcome, float]:
    """The verdict on a mechanism, and its CPU seconds, runs included."""
    start, rng = time.process_time(), np.random.default_rng(seed)
    table = tabulate_outputs(*(kind.run(world, kind.runs, rng, broken) for world in (0, 1)))
    found = audit_outputs(
        table.first, table.second, epsilon=kind.epsilon, delta=kind.delta, confidence=confidence, names=table.names,
        inside=table.inside,
    )  # fmt: skip
    return found, time.process_time() - start


def audit_broken(seeds: int = 3) -> None:
    """All broken mechanisms with several seeds each: how many are caught, and how long the slowest takes."""
    missed, slowest = [], (0.0, "")
    for kind in BROKEN:
        for seed in range(seeds):
            found, seconds = run_kind(kind, True, seed)
            slowest = max(slowest, (seconds, kind.name))
            missed += [] if found.violated else [f"{kind.name} (seed {seed}: {found.epsilon_bound:.2f})"]
        print(f"  {kind.name}: {len(missed)} missed so far", file=sys.stderr, flush=True)
    caught = len(BROKEN) * seeds - len(missed)
    print(f"broken         {caught} of {len(BROKEN)} x {seeds} caught (bar: all) | slowest {slowest[0]:.1f} CPU s: "
          f"{slowest[1]} (bar 60)", *(f"missed: {one}" for one in missed), sep="\n  ")  # fmt: skip
    silent = next(kind for kind in BROKEN if kind.name == "one silent bin of fifty")
    found, seconds = run_kind(silent, True, 0)
    print(
        f"silent bin     {seconds:.2f} CPU s (bar 5: {'met' if seconds < 5 and found.violated else 'MISSED'}) | {found}"
    )


def count_false_alarms(runs: int) -> None:
    """Sound twins, one after another, at a confidence at which some are accused."""
    quick = [kind for kind in BROKEN if kind.runs <= 6_000]
    accused = 0
    for seed in range(runs):
        accused += run_kind(quick[seed % len(quick)], False, seed, CONFIDENCE)[0].violated
        if (seed + 1) % 50 == 0:
            print(f"  {accused} of {seed + 1} sound runs accused so far", file=sys.stderr, flush=True)
    most = (1 - CONFIDENCE) * runs
    verdict = "met" if accused <= most else "MISSED"
    print(f"false alarms   {accused} of {runs} sound runs at confidence {CONFIDENCE} (at most {most:g}: {verdict})")


def audit_own() -> None:
    """Every mechanism of ours at the epsilon that it claims."""
    for name in (*MECHANISMS, *ONE_RUN):
        delta = "1e-5" if name in (*ONE_RUN, "gaussian", "stream") else "0"
        start = time.process_time()
        runs = None if name in ONE_RUN else 5_000 if name == "exponential" else 20_000
        found = audit(AuditOrder(name, "1", delta, runs=runs))
        seconds = time.process_time() - start
        verdict = "REFUTED" if found.failed else "stands"
        print(f"own            {name}: {verdict}, {seconds:.1f} CPU s | {found.audit['sentence']}", flush=True)


HEAD = """import sys, json, warnings
warnings.simplefilter("ignore")
values = [float(line) for line in open(sys.argv[1])]
runs = int(sys.argv[2])
def show(outputs):
    for one in outputs: print(json.dumps(one))
"""
DATASYNTHESIZER = """
import os, tempfile
from DataSynthesizer.DataDescriber import DataDescriber
path = os.path.join(tempfile.mkdtemp(), "rows.csv")
open(path, "w").write("a\\n" + "".join(f"{'x' if v > 5 else 'y'}\\n" for v in values))
def describe(seed):  # its own default is 0
    made = DataDescriber(category_threshold=20)
    made.describe_dataset_in_independent_attribute_mode(
        dataset_file=path, epsilon=1.0, attribute_to_is_categorical={"a": True}, seed=seed)
    return {k: v for k, v in made.data_description["attribute_description"]["a"].items() if k.startswith("dist")}
"""
OTHERS: tuple[tuple[str, str, str, int, str], ...] = (
    ("diffprivlib Laplace", "1", "0", 20_000, """
from diffprivlib.mechanisms import Laplace
m = Laplace(epsilon=1, sensitivity=1)
show(m.randomise(len(values)) for _ in range(runs))"""),
    ("diffprivlib Gaussian", "1", "1e-3", 20_000, """
from diffprivlib.mechanisms import Gaussian
m = Gaussian(epsilon=1, delta=1e-3, sensitivity=1)
show(m.randomise(len(values)) for _ in range(runs))"""),
    ("diffprivlib mean", "1", "0", 10_000, """
from diffprivlib.tools import mean
show(float(mean(values, epsilon=1, bounds=(0, 10))) for _ in range(runs))"""),
    ("diffprivlib sum", "1", "0", 10_000, """
from diffprivlib.tools import sum
show(float(sum(values, epsilon=1, bounds=(0, 10))) for _ in range(runs))"""),
    ("diffprivlib histogram", "1", "0", 5_000, """
from diffprivlib.tools import histogram
show(histogram(values, epsilon=1, bins=5, range=(0, 10))[0].tolist() for _ in range(runs))"""),
    ("diffprivlib median", "1", "0", 5_000, """
from diffprivlib.tools import median
show(float(median(values, epsilon=1, bounds=(0, 10))) for _ in range(runs))"""),
    ("OpenDP Laplace, whole numbers", "1", "0", 20_000, """
import opendp.prelude as dp
dp.enable_features("contrib")
m = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), scale=1.0)
show(m(len(values)) for _ in range(runs))"""),
    ("OpenDP Laplace, floats", "1", "0", 20_000, """
import opendp.prelude as dp
dp.enable_features("contrib")
m = dp.m.make_laplace(dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float), scale=1.0)
show(m(float(len(values))) for _ in range(runs))"""),
    ("OpenDP histogram", "1", "0", 10_000, """
import opendp.prelude as dp
dp.enable_features("contrib")
m = dp.m.make_laplace(dp.vector_domain(dp.atom_domain(T=int)), dp.l1_distance(T=int), scale=1.0)
counts = [sum(2 * k <= v < 2 * k + 2 for v in values) for k in range(6)]
show(m(counts) for _ in range(runs))"""),
    ("SmartNoise SQL count and sum", "2", "0.015", 5_000, """
import pandas as pd
from snsql import Privacy, from_df
column = {"type": "int", "lower": 0, "upper": 10}
table = {"row_privacy": True, "rows": 10, "censor_dims": False, "v": column}
reader = from_df(pd.DataFrame({"v": [int(v) for v in values]}), privacy=Privacy(epsilon=1.0, delta=0.01),
                 metadata={"": {"": {"t": table}}})
asked = reader.parse_query_string("SELECT COUNT(*) AS n, SUM(v) AS s FROM t")
plan = reader._rewrite_ast(asked)  # 0.3 s a question: its noise is calibrated by search, always alike
reader._rewrite_ast = lambda query: plan
show([float(x) for x in reader._execute_ast(asked)[1]] for _ in range(runs))"""),
    ("pure-LDP direct encoding", "1", "0", 20_000, """
from pure_ldp.frequency_oracles.direct_encoding import DEClient
m = DEClient(epsilon=1, d=4)
show(int(m.privatise(1 + len(values) % 2)) for _ in range(runs))"""),
    ("pure-LDP unary encoding", "1", "0", 20_000, """
from pure_ldp.frequency_oracles.unary_encoding import UEClient
m = UEClient(epsilon=1, d=4, use_oue=True)
show([int(x) for x in m.privatise(1 + len(values) % 2)] for _ in range(runs))"""),
    ("DataSynthesizer, independent columns", "1", "0", 1_000,
     DATASYNTHESIZER + "show(describe(0) for _ in range(runs))"),
    ("DataSynthesizer, with a fresh seed each time", "1", "0", 1_000,
     DATASYNTHESIZER + "show(describe(int.from_bytes(os.urandom(4), 'big')) for _ in range(runs))"),
)  # fmt: skip
"""Name, claimed epsilon and delta, runs, and what is run: a file of numbers in, one output a line out."""


def find_peers() -> Path | None:
    """A Python that has the other products; None, with a message, where they cannot be had."""
    python = PEERS / "bin" / "python"
    if python.exists():
        return python
    try:
        subprocess.run([sys.executable, "-m", "venv", PEERS], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        print("others         they could not be installed; no comparison")
        return None
    return python


def audit_others(python: Path, products: list[str]) -> None:
    """Other products, each as a program: ten people with values from 0 to 9, and one more with 10."""
    chosen = [each for each in OTHERS if not products or any(name in each[0] for name in products)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        worlds = []
        for place, people in enumerate((range(10), range(11))):
            worlds.append(str(folder / f"world{place}.txt"))
            Path(worlds[-1]).write_text("".join(f"{value}\n" for value in people))
        for label, epsilon, delta, runs, code in chosen:
            program = folder / "program.py"
            program.write_text(HEAD + code)
            order: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "worlds": tuple(worlds), "runs": runs}
            try:
                found = audit(AuditOrder(f"{python} {program} {{world}} {{runs}}", **order))
            except DeniableError as error:
                print(f"others         {label}: did not run here ({error})")
                continue
            verdict = "REFUTED" if found.failed else "stands"
            print(f"others         {label}: {verdict} | {found.audit['sentence']}", flush=True)


PARTS = ("broken", "own", "sound", "others")


def main() -> None:
    """All parts, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the parts broken (once each) and own")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"some of {', '.join(PARTS)}")
    parser.add_argument("--peers", type=Path, metavar="PYTHON", help="a Python that has the other products")
    parser.add_argument("--products", nargs="+", default=[], metavar="NAME", help="only these other products")
    parser.add_argument("--sound", type=int, default=SOUND_RUNS, metavar="RUNS", help="how many sound runs")
    asked = parser.parse_args()
    parts = asked.only or (PARTS[:2] if asked.quick else PARTS)
    if "broken" in parts:
        audit_broken(1 if asked.quick else 3)
    if "own" in parts:
        audit_own()
    if "sound" in parts:
        count_false_alarms(asked.sound)
    if "others" in parts and (peers := asked.peers or find_peers()) is not None:
        audit_others(peers, asked.products)


if __name__ == "__main__":
    main()
