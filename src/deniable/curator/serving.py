"""What a server tells before and beside answers: columns of an answer, the public schema, rows to try code on.

All of it is public: it follows from the policy and from the text of a question. No row of anybody is read, except of
tables that the policy declares public.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.hall import Curator
    from deniable.engines.base import Engine
    from deniable.governance.grants import Asker
    from deniable.ledger import Balance
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


def opened(policy: Path, ledger: str, threads: int) -> Curator:
    """A curator whose engine uses so many threads, for a process that shares the machine with others like it."""
    from deniable.curator.hall import Curator
    from deniable.engines.duckdb import DuckDBEngine

    return Curator.open(policy, ledger=ledger, engine=DuckDBEngine(root=policy.parent, threads=threads))


@contextmanager
def settled() -> Iterator[None]:
    """Load what questions need, and let the garbage collector not look at it again and again: it is no garbage."""
    import gc

    import deniable.query.compile
    import deniable.query.execute  # noqa: F401  loaded for the questions to come

    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def bare_engine(memory: str = "128MB") -> Engine:
    """An engine of its own that holds no source, for public rows that are given with each statement."""
    from deniable.engines.duckdb import DuckDBEngine

    return DuckDBEngine(memory=memory, threads=1)


def balance(curator: Curator, who: Asker | None) -> list[dict[str, Any]]:
    """What is spent and left, from the dataset down to the one who asks, as plain values."""
    return [_balance(each) for each in curator.balance(who)]


def _balance(each: Balance) -> dict[str, Any]:
    from deniable.query.explain import described

    amounts = {"limit": each.limit, "spent": each.spent, "remaining": each.remaining}
    shown = {name: None if amount is None else described(amount) for name, amount in amounts.items()}
    return {"node": each.node, "period": each.period} | shown


def budgets(curator: Curator) -> dict[str, Any]:
    """The budget tree as the steward sees it: the dataset, and each analyst under each granted purpose."""
    from deniable.curator import telling
    from deniable.governance.grants import Asker

    tree = curator.policy.budgets
    paths = [(analyst.name, purpose) for analyst in (tree.analysts if tree else ()) for purpose in analyst.purposes]
    analysts = [{"analyst": name, "purpose": purpose, "balance": balance(curator, Asker(name, purpose))}
                for name, purpose in paths]  # fmt: skip
    return {"standing": telling.standing(curator.ledger), "dataset": balance(curator, None), "analysts": analysts}


def releases(curator: Curator, analyst: str) -> list[dict[str, Any]]:
    """An asker's own releases, the newest first."""
    from deniable.curator import telling

    found = [_release(entry) for entry in telling.trail(curator.ledger) if _is_release(entry, analyst)]
    return found[::-1]


def _is_release(entry: dict[str, Any], analyst: str) -> bool:
    return bool(entry["act"] in ("charge", "release") and entry["analyst"] == analyst)


def _release(entry: dict[str, Any]) -> dict[str, Any]:
    names = ("release", "time", "technique", "tables", "purpose", "request")
    return {name: entry[name] for name in names} | {"asked": entry["details"].get("asked")}


def receipt(curator: Curator, analyst: str, release: str) -> dict[str, Any] | None:
    """The receipt of an asker's own release, or None."""
    from deniable.curator import telling

    for entry in telling.trail(curator.ledger):
        if _is_release(entry, analyst) and entry["release"] == release:
            return _release(entry) | {"number": entry["sequence"], "head": entry["hash"], "event": entry["event"]}
    return None


def requests(curator: Curator, analyst: str | None = None) -> list[dict[str, Any]]:
    """All requests for releases, or those of one analyst, the newest first."""
    found = [each.as_dict() for each in curator.governor.requests().values()]
    return [each for each in found if analyst is None or each["analyst"] == analyst][::-1]


def register(curator: Curator) -> dict[str, Any]:
    """The public register with the head of the ledger's chain, so that nobody needs to take our word."""
    from deniable.curator import telling

    head = curator.ledger.head()
    about = {"dataset": curator.policy.dataset, "head": head.hash if head else None}
    return about | {"standing": telling.standing(curator.ledger), "releases": telling.register(curator.ledger)}
