"""The peers of DP SQL, each in its own environment, and the accuracy of counts and sums beside theirs.

`bench/query.py` runs it. Errors are against the exact unbounded answer: noise and what bounding loses count together.
"""

from __future__ import annotations

import json
import subprocess
import venv
from fractions import Fraction
from pathlib import Path

import numpy as np
from _query_tables import (
    IN_ALL,
    SAMPLED,
    SCALED,
    SQL,
    Seconds,
    bar,
    schema,
    shown,
)

from deniable.engines.duckdb import DuckDBEngine
from deniable.policy.budget import ApproxDP, Budget, PureDP
from deniable.policy.schema import PrivacyUnit
from deniable.query.compile import compile_query
from deniable.query.execute import execute

ROOT = Path(__file__).resolve().parent.parent

OPENDP = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import polars as pl
import opendp.prelude as dp
dp.enable_features("contrib")
folder, task = sys.argv[1], sys.argv[2]
keys = pl.LazyFrame({"k": [f"k{i:02d}" for i in range(100)]})
loss = dict(privacy_loss=dp.loss_of(epsilon=1.0), split_evenly_over=1)

def grouped(data):
    unit = dp.unit_of(contributions=1, identifier=pl.col("user"))
    margins = [dp.polars.Margin(by=["k"], max_length=1_000_000, max_groups=100)]
    query = dp.Context.compositor(data=data, privacy_unit=unit, margins=margins, **loss).query()
    # keep="sample" fails in 0.16 (two fields of one name), so the first groups are kept.
    query = query.truncate_per_group(2, by=["k"]).truncate_num_groups(5, by=["k"], keep="first").group_by("k")
    total = pl.col("v").fill_null(0).dp.sum((0, 100)).alias("s")
    return query.agg(dp.len(signed=True).alias("n"), total).with_keys(keys)

data = pl.scan_parquet(f"{folder}/t.parquet")
out = []
for _ in range(int(sys.argv[3])):
    wall, cpu = time.perf_counter(), time.process_time()
    rows = grouped(data).release().collect()
    out.append({"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall, "rows": rows.to_dicts()})
if task == "table":
    out.append([row["scale"] for row in grouped(data).summarize().to_dicts()])
print(json.dumps(out))
"""

SMARTNOISE = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import pandas as pd
import snsql
table = pd.read_csv(sys.argv[1] + "/t.csv")
value = {"type": "int", "lower": 0, "upper": 100}
columns = {"user": {"type": "int", "private_id": True}, "k": {"type": "string"}, "v": value}
# One bound on rows: 5 groups of 2 rows are 10. Epsilon is meant for each column there, so that two of them get a half.
options = {"row_privacy": False, "max_ids": 10, "sample_max_ids": True, "censor_dims": False, "clamp_counts": False}
meta = {"": {"s": {"t": options | {"rows": len(table)} | columns}}}
out = []
for _ in range(2):
    reader = snsql.from_df(table, privacy=snsql.Privacy(epsilon=0.5, delta=1e-6), metadata=meta)
    wall, cpu = time.perf_counter(), time.process_time()
    rows = reader.execute("SELECT k, COUNT(*) AS n, SUM(v) AS s FROM s.t GROUP BY k")
    took = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    listed = [{"k": row[0], "n": float(row[1]), "s": float(row[2])} for row in rows[1:]]
    out.append(took | {"rows": listed})
print(json.dumps(out))
"""


def environment(name: str, packages: list[str], module: str) -> Path | None:
    """The interpreter of a peer's own environment, made when it is missing; None when it cannot be had."""
    python = ROOT / ".venvs" / name / "bin" / "python"
    test = [str(python), "-c", f"import {module}"]
    if python.exists() and subprocess.run(test, capture_output=True, check=False).returncode == 0:
        return python
    venv.create(python.parent.parent, with_pip=True)
    done = subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], capture_output=True, check=False)
    if done.returncode:
        print(f"{name} could not be installed: its comparison is left out.")
        return None
    return python


def peer(python: Path, program: str, *arguments: str) -> list[dict[str, object]]:
    """What a peer's program printed."""
    command = [str(python), "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    answered: list[dict[str, object]] = json.loads(done.stdout.strip().splitlines()[-1])
    return answered


def errors(rows: list[dict[str, float]], truth: dict[str, tuple[int, int]]) -> tuple[float, float]:
    """Mean absolute error of COUNT and SUM against the exact unbounded answer, noise and bounding together."""
    found = {str(row["k"]): row for row in rows}
    return (
        float(np.mean([abs(found[k]["n"] - n) for k, (n, _) in truth.items()])),
        float(np.mean([abs(found[k]["s"] - s) for k, (_, s) in truth.items()])),
    )


def accuracy(folder: Path, truth: dict[str, tuple[int, int]], unit: PrivacyUnit, budget: Budget) -> tuple[float, float]:
    """Our errors under these contribution bounds, the mean of several answers."""
    plan = compile_query(SQL, (schema(unit),), budget)
    with DuckDBEngine() as engine:
        engine.attach("t", folder / "t.parquet", schema(unit))
        runs = [errors(execute(plan, engine).to_pylist(), truth) for _ in range(3)]
    return float(np.mean([n for n, _ in runs])), float(np.mean([s for _, s in runs]))


def our_errors(folder: Path, truth: dict[str, tuple[int, int]]) -> dict[str, tuple[float, float]]:
    """Mean absolute errors at epsilon 1 by form of bounding; 5 groups of 2 rows, or as many rows."""
    approximate = ApproxDP(1, Fraction(1, 10**6))
    forms: dict[str, tuple[PrivacyUnit, Budget]] = {
        "5 groups of 2 rows": (SAMPLED, PureDP(1)),
        "10 rows in all": (IN_ALL, PureDP(1)),
        "5 x 2 as a norm": (SCALED, PureDP(1)),
        "5 x 2 as a norm, delta 1e-6": (SCALED, approximate),
    }
    found = {name: accuracy(folder, truth, *form) for name, form in forms.items()}
    for name, (counts, sums) in found.items():
        print(f"Mean absolute error, {name}: COUNT {counts:,.0f}, SUM {sums:,.0f}")
    return found


def compare(name: str, answered: list[dict[str, object]], ours: Seconds, limit: float,
            mine: dict[str, tuple[float, float]], truth: dict[str, tuple[int, int]]) -> None:  # fmt: skip
    """One peer's speed and accuracy beside ours, in each form that has the same budget and the same bound."""
    runs = [run for run in answered if isinstance(run, dict)]
    theirs = min((float(run["cpu"]), float(run["wall"])) for run in runs)  # type: ignore[arg-type]
    error = [errors(run["rows"], truth) for run in runs]  # type: ignore[arg-type]
    counts, sums = float(np.mean([n for n, _ in error])), float(np.mean([s for _, s in error]))
    print(f"{name}: {shown(theirs)}; mean absolute error of COUNT {counts:,.0f}, of SUM {sums:,.0f}")
    bar(f"CPU of {name} over ours", theirs[0] / ours[0], limit, at_least=True)
    for form, (rows, total) in mine.items():
        # Both lose the same rows where the form is the same: what is left between them is chance, a percent or less.
        bar(f"our error of COUNT over that of {name} ({form})", rows / counts, 1.02)
        bar(f"our error of SUM over that of {name} ({form})", total / sums, 1.02)
