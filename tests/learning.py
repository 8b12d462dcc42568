"""What the tests of learning share: a small declared table, rows of it, and a mechanism that shows what it released."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from deniable.dp.mechanisms import GaussianMechanism
from deniable.learn.training import Planned
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, TableSchema

COLUMNS = (
    Column("pid", ColumnType.INTEGER),
    Column("age", ColumnType.INTEGER, bounds=Bounds(0, 100)),
    Column("sex", categories=("F", "M")),
    Column("town", categories=("Ada", "Brin", "Cole"), nullable=False),
    Column("born", ColumnType.DATE, bounds=Bounds(date(1920, 1, 1), date(2020, 1, 1))),
    Column("insured", ColumnType.BOOLEAN),
    Column("charge", ColumnType.DECIMAL, bounds=Bounds(Fraction(0), Fraction(1000), Fraction(1, 100))),
    Column("ill", ColumnType.BOOLEAN),
    Column("note"),
)
TYPES = {
    ColumnType.INTEGER: pa.int64(),
    ColumnType.DECIMAL: pa.float64(),
    ColumnType.TEXT: pa.string(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.DATE: pa.date32(),
}
ROW = PrivacyUnit()
PERSON = PrivacyUnit("pid", max_groups=1, max_rows_per_group=2)
VALUES = st.fixed_dictionaries(
    {
        "age": st.none() | st.integers(-(2**60), 2**60) | st.integers(0, 100),
        "sex": st.none() | st.sampled_from(["F", "M", "X"]),
        "town": st.none() | st.sampled_from(["Ada", "Brin", "Cole"]),
        "charge": st.none() | st.floats() | st.floats(0, 1000),
        "ill": st.none() | st.booleans(),
    }
)
UNITS = st.lists(st.lists(VALUES, min_size=1, max_size=2), min_size=1, max_size=4)
Records = list[dict[str, object]]
"""The rows of one unit; `UNITS` is up to four units of two rows, with any values."""


def table(unit: PrivacyUnit = ROW) -> TableSchema:
    """The declared table."""
    return TableSchema("visits", "visits.parquet", COLUMNS, unit)


def rows_of(records: list[dict[str, Any]]) -> pa.Table:
    """Records as rows of the table; what a record does not say is null."""
    return pa.table({c.name: pa.array([r.get(c.name) for r in records], TYPES[c.type]) for c in COLUMNS})


def people(count: int, seed: int = 0) -> pa.Table:
    """Generated rows: the charge rises with age and differs by town, illness follows age; one row a person."""
    draw = np.random.default_rng(seed)
    age, town = draw.integers(0, 101, count), draw.integers(0, 3, count)
    charge = np.clip(300 + 3 * age + 100 * (town == 1) + draw.normal(0, 40, count), 0, 1000)
    ill = draw.random(count) < 1 / (1 + np.exp(-(age - 50) / 12))
    born = [date(1920 + int(year), 1, 1) for year in draw.integers(0, 100, count)]
    return pa.table(
        {
            "pid": pa.array(np.arange(count)),
            "age": pa.array(age),
            "sex": pa.array(np.array(["F", "M"])[draw.integers(0, 2, count)]),
            "town": pa.array(np.array(["Ada", "Brin", "Cole"])[town]),
            "born": pa.array(born, pa.date32()),
            "insured": pa.array(draw.random(count) < 0.7),
            "charge": pa.array(charge),
            "ill": pa.array(ill),
            "note": pa.array(["ok"] * count),
        }
    )


class Pooled:
    """A mechanism whose noise its own sampler draws for many runs at once: as strong, and a fraction of the time."""

    def __init__(self, inner: GaussianMechanism) -> None:
        self.inner = inner
        self.variance, self.sensitivity_squared, self.event = inner.variance, inner.sensitivity_squared, inner.event
        self.pool = np.zeros(0, np.int64)

    def release(self, values: Any, entropy: Any = None) -> Any:
        if len(self.pool) < len(values):
            self.pool = np.asarray(self.inner.release(np.zeros(1 << 15, np.int64)))
        noise, self.pool = self.pool[: len(values)], self.pool[len(values) :]
        return np.asarray(values) + noise


class Witness:
    """A mechanism that keeps what it was given and what it released: the strongest intruder sees the latter."""

    def __init__(self, inner: GaussianMechanism | Pooled) -> None:
        self.inner = inner
        self.variance, self.sensitivity_squared, self.event = inner.variance, inner.sensitivity_squared, inner.event
        self.given: list[np.ndarray] = []
        self.released: list[np.ndarray] = []

    def release(self, values: Any, entropy: Any) -> Any:
        found = self.inner.release(values, entropy)
        self.given.append(np.asarray(values, dtype=np.float64))
        self.released.append(np.asarray(found, dtype=np.float64))
        return found


@contextmanager
def witnessed(what: Planned, name: str = "mechanism", **changes: Any) -> Iterator[tuple[Planned, Witness]]:
    """The plan with a witness in place of its mechanism (or that of its last step), changed as told."""
    witness = Witness(replace(getattr(what.plan, name), **changes))
    yield replace(what, plan=replace(what.plan, **{name: witness})), witness  # type: ignore[type-var]


def almost_exact(what: Planned) -> Planned:
    """The plan without its noise (a draw differs from 0 with probability below 1e-200)."""
    names = [name for name in ("mechanism", "last") if getattr(what.plan, name, None) is not None]
    quiet = {name: replace(getattr(what.plan, name), variance=Fraction(1, 1000)) for name in names}
    return replace(what, plan=replace(what.plan, **quiet))  # type: ignore[type-var]
