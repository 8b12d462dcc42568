"""Which type each column of a CSV file has: as declared, or the narrowest that every value of the file fits.

The first rows say which types are possible at all, and one read of the whole file says which of those hold, so that
the answer never rests on a sample.
"""

# ruff: noqa: S608  (statements here are made of our own words, quoted names and quoted paths; no user text)

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deniable.engines.duckdb import types
from deniable.engines.duckdb.connection import literal
from deniable.engines.duckdb.layout import Layout
from deniable.engines.duckdb.scan import slot, slots
from deniable.policy.schema import ColumnType

SAMPLE_ROWS = 1_000
REMEMBERED_LINES = 10_000

Kinds = dict[int, tuple[ColumnType, ...]]


@dataclass(frozen=True, slots=True)
class Found:
    """The type of each column, and for declared columns how many values do not fit it (by position)."""

    types: tuple[ColumnType, ...]
    unfit: Mapping[int, int]


def infer(connection: Any, layout: Layout, declared: Mapping[str, ColumnType]) -> Found:
    """Read the whole file once; lines that cannot be read are left in the connection's table of rejects."""
    fixed = {p: declared[name] for p, name in enumerate(layout.names) if name in declared}
    open_to = {p: tuple(types.INFERRED) for p in range(len(layout.names)) if p not in fixed}
    sample = f"(SELECT * FROM {layout.relation(', ignore_errors = true')} LIMIT {SAMPLE_ROWS})"
    possible, _ = _holding(connection, sample, layout, open_to, {})
    whole = layout.relation(f", store_rejects = true, rejects_limit = {REMEMBERED_LINES}")
    holding, unfit = _holding(connection, whole, layout, possible, fixed)
    chosen = fixed | {p: (*kinds, ColumnType.TEXT)[0] for p, kinds in holding.items()}
    return Found(tuple(chosen[p] for p in range(len(layout.names))), unfit)


def _holding(
    connection: Any, relation: str, layout: Layout, open_to: Kinds, fixed: Mapping[int, ColumnType]
) -> tuple[Kinds, dict[int, int]]:
    """Of the types each column may have, those that hold; and the number of misfits in columns of a fixed type."""
    pairs = [(p, kind) for p, kinds in open_to.items() for kind in kinds]
    asked = [_unlike(slot(p), kind) for p, kind in pairs] + [_misfit(slot(p), kind) for p, kind in fixed.items()]
    seen, counts = _counts(connection, relation, len(layout.names), asked)
    misses = dict(zip(pairs, counts, strict=False))
    # A column without any value could be anything, and is text in the end.
    holding = {p: tuple(k for k in kinds if seen[p] and not misses[p, k]) for p, kinds in open_to.items()}
    unfit = {p: count for p, count in zip(fixed, counts[len(pairs) :], strict=True) if count}
    return holding, unfit


def _counts(connection: Any, relation: str, width: int, conditions: list[str]) -> tuple[list[int], list[int]]:
    """How many values each column has, and how many rows meet each condition."""
    # Counting every column makes the reader parse every column: bytes that are not UTF-8 show only then.
    present = [f"count({slot(p)})" for p in range(width)]
    asked = [f"count(*) FILTER (WHERE {condition})" for condition in conditions]
    sql = f"SELECT {', '.join(present + asked)} FROM {relation} AS source({slots(width)})"
    # All rows are fetched, though there is one: what the reader rejects is stored only when the result has ended.
    (row,) = connection.execute(sql).fetchall()
    return list(row[:width]), list(row[width:])


def _misfit(column: str, kind: ColumnType) -> str:
    return "false" if kind is ColumnType.TEXT else types.misfits(column, "VARCHAR", kind)


def _unlike(column: str, kind: ColumnType) -> str:
    like = f"regexp_matches({column}, {literal(types.INFERRED[kind])})"
    return f"{column} IS NOT NULL AND NOT ({like} AND TRY_CAST({column} AS {types.NATIVE[kind]}) IS NOT NULL)"
