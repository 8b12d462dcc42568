"""Nothing unpaid leaves: what a release says beside its noisy numbers is the same for any two tables."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from deniable import Curator
from deniable.curator.synthesize.run import Order, synthesize
from deniable.ledger.export import export
from deniable.policy.budget import budget

POLICY = """
version: 1
dataset: staff
tables:
  staff:
    source: staff.{format}
    unit: row
    columns:
      name: {{role: identifier}}
      sex:  {{categories: [F, M], role: sensitive}}
      pay:  {{type: decimal, between: [0, 100], step: 0.5, role: sensitive}}
      born: {{type: date, between: [1950-01-01, 2000-12-31], role: sensitive}}
      note: {{role: sensitive}}
budgets: {{dataset: {{epsilon: 10, delta: 1e-3}}}}
"""
FEW = pa.table({"name": ["a"], "sex": ["F"], "pay": [1.0], "born": ["1960-01-01"], "note": ["7"]})
PRECISE = FEW.set_column(2, "pay", pa.array([Decimal("5000000.125")]))
"""One value that makes Arrow infer another type of the column."""
MANY = pa.table(
    {
        "name": [f"n{i}" for i in range(900)],
        "sex": [None, "M", "F"] * 300,
        "pay": [None if i % 7 == 0 else i / 16 for i in range(900)],
        "born": [None if i % 5 == 0 else f"19{50 + i % 50}-0{1 + i % 9}-11" for i in range(900)],
        "note": [f"Dr. {i}" for i in range(900)],
    }
)


def _release_all(folder: Path, rows: pa.Table, kind: str) -> dict[str, str]:
    """All files of a release that measures nothing, and the ledger's export, as an outsider sees them."""
    folder.mkdir()
    (folder / "policy.yaml").write_text(POLICY.format(format=kind))
    dated = rows.set_column(3, "born", rows["born"].cast(pa.date32()))
    if kind == "csv":
        pa.csv.write_csv(dated, folder / "staff.csv")
    else:
        pq.write_table(dated, folder / "staff.parquet")
    out = folder / "made.csv"
    with Curator.open(folder / "policy.yaml", ledger=folder / "ledger.db") as curator:
        context = curator._for(None)
        synthesize(context, Order("staff", budget(epsilon=1, delta=1e-6), "random"), out)
        told = [json.loads(line) for line in export(curator.ledger.entries(), "jsonl")]
    statement = json.loads((folder / "made.csv.release.json").read_text())["statement"]
    statement["provenance"].pop("time")
    return {
        "rows": out.read_text(),
        "model": (folder / "made.csv.model.json").read_text(),
        "statement": json.dumps(statement),
        "ledger": str([(one["act"], one["tables"], one["technique"], one["event"]) for one in told]),
    }


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_release_that_measures_nothing_is_the_same_for_any_two_tables(tmp_path: Path, kind: str) -> None:
    few = _release_all(tmp_path / "few", FEW, kind)
    assert few == _release_all(tmp_path / "many", MANY, kind)
    assert few == _release_all(tmp_path / "precise", PRECISE, kind)


def _synthesize(folder: Path, pay: str) -> str:
    """What a process warns of that releases the rows of MANY and one row more."""
    folder.mkdir()
    pyarrow.csv.write_csv(MANY, folder / "staff.csv")
    with (folder / "staff.csv").open("a") as file:
        file.write(f'"x","F",{pay},1960-01-01,"odd"\n')
    (folder / "policy.yaml").write_text(POLICY.format(format="csv").replace("delta", "accounting: zcdp, delta"))
    words = ("synthesize", "staff", "-p", "policy.yaml", "--epsilon", "0.5", "--delta", "1e-6", "-o", "made.csv")
    done = subprocess.run(
        [sys.executable, "-m", "deniable", *words, "--rows", "5"],
        cwd=folder, env={**os.environ, "DENIABLE_STATE": str(folder / "state")}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0
    return re.sub(r"[0-9.]+", "", done.stderr)


def test_a_process_warns_of_no_row_that_numbers_cannot_hold(tmp_path: Path) -> None:
    plain = _synthesize(tmp_path / "plain", "7.5")
    for place, pay in enumerate(("1e308", "-1e308", "1e400", "nan", "inf", "1e-320")):
        assert _synthesize(tmp_path / str(place), pay) == plain


def test_warnings_of_our_own_modules_about_numbers_are_not_shown() -> None:
    ours = "exec(compile('np.float64(1e308) * 10', 'x', 'exec'), {'__name__': NAME, 'np': np})"
    code = f"import deniable, numpy as np; {ours}"
    shown = [
        subprocess.run([sys.executable, "-c", code.replace("NAME", name)], capture_output=True, text=True).stderr
        for name in ("'deniable.synth.encode'", "'another'")
    ]
    assert shown[0] == ""
    assert "RuntimeWarning" in shown[1]
