"""Findings of the kind that are published about four real frames, and how many of them synthetic rows keep.

The frames are other rows than those on which methods were compared (`_synth_tables.py`): another excerpt of the same
survey, all first stays instead of a sample, other flights; of Congress all members are in both. The findings
(`findings/*.sql`) were written for this benchmark, on what these frames are used for: incomes and disabilities in a
survey, stays of diabetics, ages in Congress, late flights. None was copied from a publication or compared with one. One
is kept where the sign of its effect is that of the real rows.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from _synth_tables import DATA, Table, _declare

from deniable.assess.parity import Finding, derive_workload, evaluate_finding, is_same_conclusion, load_findings
from deniable.assess.parity import require_conclusions as conclude
from deniable.assess.utility import build_comparison_domain
from deniable.policy.budget import ApproxDP
from deniable.synth.describe import describe_table, encode_table
from deniable.synth.domain import attributes_of
from deniable.synth.encode import decode_column
from deniable.synth.generate import generate


def _acs() -> Table:
    told = pyarrow.csv.ConvertOptions(null_values=["N"], strings_can_be_null=True)
    rows = pyarrow.csv.read_csv(DATA / "nist_acs" / "national" / "national2019.csv", convert_options=told)
    rows = rows.drop_columns(["PWGTP", "WGTP", "INDP", "PINCP_DECILE", "DENSITY"])
    return _declare(rows, {"AGEP": (0, 99), "PINCP": (-20_000, 1_500_000), "POVPIP": (0, 501)})


def _diabetes() -> Table:
    """The first stay of every patient."""
    rows = pq.read_table(DATA / "diabetes130" / "diabetic_data.parquet", columns=[
        "patient_nbr", "race", "gender", "age", "admission_type_id", "time_in_hospital", "num_medications",
        "num_procedures", "number_inpatient", "number_emergency", "number_diagnoses", "A1Cresult", "insulin", "change",
        "diabetesMed", "readmitted"])  # fmt: skip
    first = np.unique(rows["patient_nbr"].to_numpy(), return_index=True)[1]
    rows = rows.take(np.sort(first)).drop_columns(["patient_nbr"])
    for name in ("number_inpatient", "number_emergency"):
        place = rows.column_names.index(name)
        rows = rows.set_column(place, name, pc.min_element_wise(rows[name], 5))
    return _declare(rows, {"num_medications": (0, 100)})


def _flights() -> Table:
    """Flights that the sample of `_synth_tables.py` does not have."""
    rows = pq.read_table(DATA / "flights" / "nycflights13_flights.parquet")
    rows = rows.select(["month", "hour", "dep_delay", "arr_delay", "carrier", "origin", "air_time", "distance"])
    rows = rows.take(np.random.default_rng(0).permutation(rows.num_rows)[10_000:40_000])
    return _declare(rows, {"dep_delay": (-60, 1440), "arr_delay": (-120, 1440), "air_time": (0, 720),
                           "distance": (0, 5000)})  # fmt: skip


def _officials() -> Table:
    rows = pyarrow.csv.read_csv(DATA / "officials" / "congress-terms.csv")
    rows = rows.select(["congress", "chamber", "state", "party", "incumbent", "age"])
    return _declare(rows, {"congress": (80, 113), "age": (0, 110)})


FRAMES: dict[str, Callable[[], Table]] = {
    "acs": _acs,
    "diabetes": _diabetes,
    "flights": _flights,
    "officials": _officials,
}
Made = Callable[[int], pa.Table]


def read_findings(frame: str) -> tuple[Finding, ...]:
    """The findings about a frame."""
    return load_findings(Path(__file__).with_name("findings") / f"{frame}.sql", "rows")


def make_ours(rows: pa.Table, table: object, findings: tuple[Finding, ...], method: str, epsilon: float) -> Made:
    """Synthetic rows of one of our methods; `auto asked` is told what the findings name, as `deniable parity` tells."""
    name, _, asked = method.partition(" ")
    workload = derive_workload([finding.function for finding in findings], rows.column_names) if asked else ()

    def make(run: int) -> pa.Table:
        return generate(describe_table(rows, table, ApproxDP(epsilon, "1e-9"), name, workload=workload), seed=run)

    return make


def make_peers(rows: pa.Table, table: object, command: list[str | Path]) -> Made:
    """Synthetic rows of a peer, which sees numbers in 16 stretches; a value is drawn evenly inside its stretch."""
    coded = attributes_of(table)
    compared = build_comparison_domain(coded)
    codes = compared.apply(encode_table(rows, coded))

    def make(run: int) -> pa.Table:
        with tempfile.TemporaryDirectory() as folder:
            real, sizes, made = (Path(folder) / name for name in ("real.csv", "sizes.json", "made.csv"))
            names = compared.domain.names
            np.savetxt(real, codes.T, fmt="%d", delimiter=",", header=",".join(names), comments="")
            sizes.write_text(json.dumps(dict(zip(names, compared.domain.sizes, strict=True))))
            whole = [{"REAL": real, "SIZES": sizes, "MADE": made}.get(str(part), part) for part in command]
            subprocess.run(whole, capture_output=True, check=True)
            theirs = np.loadtxt(made, delimiter=",", skiprows=1, dtype=np.float64).T.astype(np.int64)
        lots, columns = np.random.default_rng(run), []
        for place, attribute in enumerate(coded):
            within = [np.flatnonzero(compared.maps[place] == code) for code in range(compared.domain.sizes[place])]
            old = np.array([lots.choice(within[code]) for code in theirs[place]])
            columns.append(decode_column(attribute, old.astype(np.int32), lots))
        return pa.table(columns, [attribute.name for attribute in coded])

    return make


def count_kept(rows: pa.Table, findings: tuple[Finding, ...], make: Made, runs: int) -> dict[str, float]:
    """The share of runs in which each finding is kept."""
    real = conclude(findings, rows)
    kept = {finding.name: 0 for finding in findings}
    for run in range(runs):
        made = make(run)
        for finding in findings:
            kept[finding.name] += is_same_conclusion(real[finding.name], evaluate_finding(finding, made))
    return {name: held / runs for name, held in kept.items()}
