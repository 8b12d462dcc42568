"""A small clinic that the tests of DP SQL share: two private tables of patients, one of single rows, a public one."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Any

import pyarrow as pa

from deniable.engines.duckdb import DuckDBEngine
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, TableSchema

TYPES = {
    ColumnType.INTEGER: pa.int64(),
    ColumnType.DECIMAL: pa.float64(),
    ColumnType.TEXT: pa.string(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.DATE: pa.date32(),
    ColumnType.DATETIME: pa.timestamp("us"),
}
COLUMNS = (
    Column("pid", ColumnType.INTEGER),
    Column("sex", categories=("F", "M")),
    Column("age", ColumnType.INTEGER, bounds=Bounds(0, 100)),
    Column("delta", ColumnType.INTEGER, bounds=Bounds(-20, 10)),
    Column("charge", ColumnType.DECIMAL, bounds=Bounds(Fraction(0), Fraction(250), Fraction(1, 2))),
    Column("day", ColumnType.DATE, bounds=Bounds(date(2020, 1, 1), date(2020, 12, 31))),
    Column("seen", ColumnType.DATETIME),
    Column("insured", ColumnType.BOOLEAN),
    Column("city"),
    Column("score", ColumnType.INTEGER),
    Column("ratio", ColumnType.DECIMAL),
    Column("note"),
)
UNIT = PrivacyUnit("pid", max_groups=2, max_rows_per_group=3)


def visits(unit: PrivacyUnit = UNIT) -> TableSchema:
    """The visits of patients, protected by patient."""
    return TableSchema("visits", "visits.parquet", COLUMNS, unit)


def stays(unit: PrivacyUnit = UNIT) -> TableSchema:
    """The stays of the same patients."""
    return TableSchema("stays", "stays.parquet", COLUMNS, unit)


def answers(**rest: Any) -> TableSchema:
    """A table whose every row is its own unit."""
    return TableSchema("answers", "answers.parquet", COLUMNS, PrivacyUnit(**rest))


REGIONS = TableSchema(
    "regions",
    "regions.csv",
    (Column("city"), Column("region"), Column("inhabitants", ColumnType.INTEGER, bounds=Bounds(0, 1000))),
    public=True,
)
REGION_ROWS = pa.table(
    {
        "city": ["Ada", "Ada", "Brin", "Cole", None],
        "region": ["north", "east", "north", "south", "nowhere"],
        "inhabitants": [10, 20, 30, 40, 50],
    }
)
TABLES = (visits(), stays(), answers(), REGIONS)


def with_unit(**changes: Any) -> tuple[TableSchema, ...]:
    """The tables with other bounds, relation or bounding."""
    unit = replace(UNIT, **changes)
    rows = {k: v for k, v in changes.items() if k == "neighboring"}
    return visits(unit), stays(unit), answers(**rows), REGIONS


def rows_of(records: list[dict[str, Any]]) -> pa.Table:
    """Records as a table of the clinic; what a record does not say is null."""
    columns = {c.name: pa.array([r.get(c.name) for r in records], TYPES[c.type]) for c in COLUMNS}
    return pa.table(columns)


def people(count: int = 60, rows: int = 300, seed: int = 1, nulls: float = 0.05) -> pa.Table:
    """Generated visits: plausible values, some missing, some outside their bounds."""
    draw = random.Random(seed)

    def record() -> dict[str, Any]:
        day = date(2020, 1, 1) + timedelta(days=draw.randrange(366))
        values: dict[str, Any] = {
            "sex": draw.choice("FMFMX"),
            "age": draw.randrange(-5, 110),
            "delta": draw.randrange(-25, 15),
            "charge": draw.randrange(0, 520) / 2,
            "day": day,
            "seen": datetime(day.year, day.month, day.day, draw.randrange(24), draw.randrange(60)),
            "insured": draw.random() < 0.7,
            "city": draw.choice(["Ada", "Ada", "Brin", "Cole", "Dorn"]),
            "score": draw.randrange(-1000, 1000),
            "ratio": draw.uniform(-2, 2),
            "note": draw.choice(["ok", "see again", "100% fine", "it's"]),
        }
        kept = {name: value for name, value in values.items() if draw.random() >= nulls}
        return {"pid": draw.randrange(count), **kept}

    return rows_of([record() for _ in range(rows)])


def engine(tables: tuple[TableSchema, ...] = TABLES, **rows: pa.Table) -> DuckDBEngine:
    """An engine with the clinic's tables attached; those not given are generated."""
    opened = DuckDBEngine(threads=1, memory="512MB")
    for table in tables:
        given = REGION_ROWS if table.public else rows.get(table.name, people(seed=len(table.name)))
        opened.attach(table.name, given, None if table.public else table)
    return opened
