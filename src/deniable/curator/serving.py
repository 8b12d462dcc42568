"""What a server tells before and beside answers: columns of an answer, the public schema, rows to try code on.

All of it is public: it follows from the policy and from the text of a question. No row of anybody is read, except of
tables that the policy declares public.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.hall import Curator
    from deniable.engines.base import Engine
    from deniable.governance.grants import Asker
    from deniable.policy.budget import Budget
    from deniable.policy.schema import Column, TableSchema
    from deniable.query.sql.parameters import Value

MOST_DUMMIES = 10_000


@dataclass(frozen=True, slots=True)
class AnswerColumn:
    """A column of an answer that is yet to be given: its name, and its type in the words of a policy."""

    name: str
    kind: str


def columns(
    curator: Curator, sql: str, asked: Budget | None, *, who: Asker | None = None, intervals: bool = False
) -> tuple[AnswerColumn, ...]:
    """The columns that the answer to a question will have."""
    from deniable.curator.asking import compiled
    from deniable.query.answers import widened

    relation = compiled(curator, sql, asked, who).relation
    shown = widened(relation) if intervals else relation
    return tuple(AnswerColumn(field.name, _kind(field.facts.kind)) for field in shown.fields)


def _kind(kind: str) -> str:
    return "text" if kind == "null" else str(kind)


def filled(sql: str, values: Sequence[Value]) -> str:
    """A question with its parameters filled in as literals; no value can become anything else."""
    from deniable.query.sql.parameters import filled as put

    return put(sql, values)


def schema(curator: Curator, who: Asker | None = None) -> list[dict[str, Any]]:
    """The tables that an asker may name, with what the policy declares of them."""
    from deniable.curator.scope import columns_for

    return [_table(table) for table in columns_for(curator, who)]


def _table(table: TableSchema) -> dict[str, Any]:
    return {
        "table": table.name,
        "public": table.public,
        "unit": None if table.unit is None else str(table.unit),
        "columns": [_column(column) for column in table.columns],
    }


def _column(column: Column) -> dict[str, Any]:
    ends = column.bounds
    return {
        "column": column.name,
        "type": str(column.type),
        "role": str(column.role),
        "nullable": column.nullable,
        "between": None if ends is None else [_plain(ends.lower), _plain(ends.upper)],
        "step": None if ends is None else _plain(ends.step),
        "categories": None if column.categories is None else list(column.categories),
    }


def _plain(value: Any) -> Any:
    """A declared end or step as JSON: whole numbers as they are, others as decimals, dates as text."""
    if isinstance(value, int):
        return value
    return float(value) if hasattr(value, "numerator") else value.isoformat()


def dummies(curator: Curator, table: str, rows: int, who: Asker | None = None) -> pa.Table:
    """Invented rows of a table's shape, for trying code: made of declared bounds and categories alone."""
    from deniable.curator.dummies import invented
    from deniable.curator.scope import columns_for

    if not 0 <= rows <= MOST_DUMMIES:
        raise ParameterError(f"{rows} rows", expected=f"0 to {MOST_DUMMIES:,} rows")
    curator.policy.table(table)
    return invented(next(each for each in columns_for(curator, who) if each.name == table), rows)


def engine_of(frames: Mapping[str, pa.Table], memory: str = "128MB") -> Engine:
    """An engine of its own that holds these public rows and can reach nothing else."""
    from deniable.engines.duckdb import DuckDBEngine

    engine = DuckDBEngine(memory=memory, threads=1)
    for name, rows in frames.items():
        engine.attach(name, rows)
    return engine
