"""Uniqueness: how many rows are alone in having their values of some columns, and so can be found by who knows them."""

# ruff: noqa: S608  (statements here are made of our own words and quoted names; no user text)

from __future__ import annotations

from dataclasses import dataclass

from deniable.engines.base import Engine, quote
from deniable.errors import ParameterError


@dataclass(frozen=True, slots=True)
class Uniqueness:
    """Of `rows` rows, `alone` are the only ones with their combination, `few` share it with at most four others."""

    columns: tuple[str, ...]
    rows: int
    alone: int
    few: int

    @property
    def share(self) -> float:
        """The share of rows that are alone; 0 for an empty table."""
        return self.alone / self.rows if self.rows else 0.0

    @property
    def per_thousand(self) -> int:
        """How many of 1,000 people that is."""
        return round(1000 * self.share)


def count_unique_rows(engine: Engine, table: str, columns: tuple[str, ...]) -> Uniqueness:
    """Count rows by their combination of columns, inside the engine."""
    if not columns:
        raise ParameterError("no column was named", expected="One or more columns that an intruder may know")
    keys = ", ".join(quote(column) for column in columns)
    counted = f"SELECT count(*) AS n FROM {quote(table)} GROUP BY {keys}"
    sums = "sum(n) AS rows, sum(n) FILTER (WHERE n = 1) AS alone, sum(n) FILTER (WHERE n <= 5) AS few"
    row = engine.run(f"SELECT {sums} FROM ({counted}) AS c").to_pylist()[0]
    return Uniqueness(columns, int(row["rows"] or 0), int(row["alone"] or 0), int(row["few"] or 0))
