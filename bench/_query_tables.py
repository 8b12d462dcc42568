"""The table, the question and the bounds that the benches of DP SQL share, and how they time and judge."""

from __future__ import annotations

import time
from collections.abc import Callable

from deniable.policy.schema import Bounding, Bounds, Column, ColumnType, PrivacyUnit, TableSchema

KEYS = tuple(f"k{i:02d}" for i in range(100))
SQL = "SELECT k, COUNT(*) AS n, SUM(v) AS s FROM t GROUP BY k"
SAMPLED = PrivacyUnit("user", 5, 2)
IN_ALL = PrivacyUnit("user", 5, 2, bounding=Bounding.ROWS)
SCALED = PrivacyUnit("user", 5, 2, bounding=Bounding.SCALE)
Seconds = tuple[float, float]
FAILED: list[str] = []


def best(work: Callable[[], object], times: int = 5) -> Seconds:
    """CPU and wall seconds of the fastest of several runs."""
    taken = []
    for _ in range(times):
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        taken.append((time.process_time() - cpu, time.perf_counter() - wall))
    return min(taken)


def shown(seconds: Seconds) -> str:
    """CPU (wall) seconds."""
    return f"{seconds[0]:.3f} ({seconds[1]:.3f})"


def bar(name: str, value: float, limit: float, at_least: bool = False) -> None:
    """Hold one figure to its bar, and remember a miss."""
    met = value >= limit if at_least else value <= limit
    print(
        f"    {name}: {value:.3g}, bar {'at least' if at_least else 'at most'} {limit:g}: {'met' if met else 'MISSED'}"
    )
    if not met:
        FAILED.append(name)


def schema(unit: PrivacyUnit, name: str = "t", highest: int = 100) -> TableSchema:
    """The policy's view of the table."""
    value = Column("v", ColumnType.INTEGER, bounds=Bounds(0, highest))
    return TableSchema(name, "", (Column("user", ColumnType.INTEGER), Column("k", categories=KEYS), value), unit)


def generated(rows: int) -> str:
    """Rows from a hash, so that every run and every peer sees the same ones."""
    return (
        f'SELECT (hash(range) % 100000)::BIGINT AS "user", '
        "'k' || lpad((hash(range + 1000000000) % 100)::VARCHAR, 2, '0') AS k, "
        f"(hash(range + 2000000000) % 101)::BIGINT AS v FROM range({rows})"
    )
