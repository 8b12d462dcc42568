"""Times finer than a microsecond are cut to it, never rounded up: the last moment of a year is in that year."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from deniable.curator import Curator
from deniable.curator.anonymize.request import Asked, Order
from deniable.curator.anonymize.run import anonymize
from deniable.policy.document import parse

POLICY = parse(
    "version: 1\ndataset: d\ntables: {t: {source: t.parquet, unit: row, columns: {at: {type: datetime}}}}\n"
    "budgets: {dataset: {epsilon: 100000000}}\n"
)
LAST = (1_293_839_999_999_999_999, -283_996_800_000_000_001, -1, 0, 999, 1_000, -(2**63) + 10**9, 2**63 - 10**9, None)
PARTS = ("YEAR", "HOUR", "SECOND")


@pytest.mark.parametrize("held", ["file", "arrow", "pandas"])
@pytest.mark.parametrize("zone", [None, "UTC", "Asia/Kolkata"])
def test_the_last_nanosecond_before_a_border_is_before_it(tmp_path: Path, held: str, zone: str | None) -> None:
    column = pa.array([each for each in LAST for _ in range(20)], pa.timestamp("ns", zone))
    rows, source = pa.table({"at": column}), Path(tmp_path / "t.parquet")
    pq.write_table(rows, source)
    given: Any = {"file": source, "arrow": rows, "pandas": rows.to_pandas()}[held]
    moments = pd.Series(pd.to_datetime(pd.Series([each for each in LAST if each is not None])))
    with Curator(POLICY, sources={"t": given}) as curator:
        for part in PARTS:
            for wanted, times in getattr(moments.dt, part.lower()).value_counts().items():
                asked = f"SELECT COUNT(*) FROM t WHERE EXTRACT({part} FROM at) = {wanted}"
                assert round(curator.query(asked, epsilon=1000).scalar()) == 20 * times, (part, wanted)
        assert round(curator.query("SELECT COUNT(at) FROM t", epsilon=1000).scalar()) == 20 * len(moments)


@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
@pytest.mark.parametrize("declared", [False, True])
def test_moments_of_all_units_leave_alike(tmp_path: Path, zone: str | None, declared: bool) -> None:
    left = {}
    for unit in ("ms", "us", "ns"):
        at = pa.array([1_427_855_400_000] * 6).cast(pa.timestamp("ms")).cast(pa.timestamp(unit))
        at = at if zone is None else pc.assume_timezone(at, "UTC").cast(pa.timestamp(unit, zone))
        source, out = tmp_path / f"{unit}.parquet", tmp_path / f"{unit}-out.csv"
        pq.write_table(pa.table({"at": at, "s": ["a", "b"] * 3}), source)
        if declared:
            columns = "at: {type: datetime, role: insensitive}, s: {role: quasi-identifier}"
            policy = f"version: 1\ndataset: d\ntables: {{t: {{source: x, unit: row, columns: {{{columns}}}}}}}"
            with Curator(parse(policy), sources={"t": source}) as curator:
                curator.anonymize("t", out, k=3)
                kind = curator.anonymize("t", k=3).rows.schema.field("at").type
            assert kind == pa.timestamp("us", None if zone is None else "UTC")
        else:
            anonymize(Order(source, out, quasi_identifiers=("s",), columns=("at",), asked=Asked(k=3)))
        left[unit] = sorted(out.read_text().splitlines())
    assert left["ns"] == left["us"] == left["ms"]
    assert ("02:30:00.000000Z" in left["ns"][1]) == (zone is not None)
