"""What is told before and beside answers: columns of an answer, the public schema, dummy rows, balances.

All of it is public: it follows from the policy and from the text of a question. No row of anybody is read, except of
tables that the policy declares public."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import ParameterError
from deniable.policy.schema import Bounds, Column, ColumnType, TableSchema

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.curator import Curator
    from deniable.engines.base import Engine
    from deniable.governance.grants import Asker
    from deniable.ledger import Balance
    from deniable.policy.budget import Budget
    from deniable.query.sql.parameters import Value


_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)
_DAYS = Bounds(date(2020, 1, 1), date(2029, 12, 31))
_MOMENTS = Bounds(datetime(2020, 1, 1), datetime(2029, 12, 31))


def invent_rows(table: TableSchema, rows: int) -> pa.Table:
    """So many invented rows of a table."""
    import pyarrow as pa

    kinds = {
        ColumnType.INTEGER: pa.int64(),
        ColumnType.DECIMAL: pa.float64(),
        ColumnType.BOOLEAN: pa.bool_(),
        ColumnType.DATE: pa.date32(),
        ColumnType.DATETIME: pa.timestamp("us"),
    }
    unit = table.unit.column if table.unit else None
    arrays = {}
    for place, column in enumerate(table.columns):
        values = [_value(column, place, i, column.name == unit) for i in range(rows)]
        kind = pa.string() if column.type is ColumnType.TEXT else kinds[column.type]
        arrays[column.name] = pa.array(values, kind)
    return pa.table(arrays)


def _value(column: Column, place: int, i: int, is_unit: bool) -> Any:
    share = spread_evenly(i, _PRIMES[place % len(_PRIMES)])
    if column.categories:
        chosen = column.categories[int(share * len(column.categories))]
        return str(chosen) if column.type is ColumnType.TEXT else chosen
    if is_unit:
        return i // 2 if column.type is ColumnType.INTEGER else f"{column.name}-{i // 2}"
    match column.type:
        case ColumnType.BOOLEAN:
            return share >= Fraction(1, 2)
        case ColumnType.DATE | ColumnType.DATETIME:
            bounds = column.bounds or (_DAYS if column.type is ColumnType.DATE else _MOMENTS)
            return _moment(bounds, share)
        case ColumnType.INTEGER | ColumnType.DECIMAL:
            return _number(column.bounds or Bounds(0, 100), share, column.type)
        case _:
            return f"{column.name}-{i}"


def spread_evenly(i: int, base: int) -> Fraction:
    """The i-th point of the van der Corput sequence: the digits of i in a base, mirrored at the point.

    >>> [str(spread_evenly(i, 2)) for i in range(4)]
    ['0', '1/2', '1/4', '3/4']
    """
    share, scale = Fraction(0), Fraction(1, base)
    while i:
        i, digit = divmod(i, base)
        share += digit * scale
        scale /= base
    return share


def _number(bounds: Bounds, share: Fraction, kind: ColumnType) -> Any:
    assert not isinstance(bounds.lower, date)
    assert not isinstance(bounds.upper, date)
    low, high = Fraction(bounds.lower), Fraction(bounds.upper)
    steps = int((high - low) / bounds.step)
    value = low + int(share * (steps + 1)) * bounds.step
    return int(value) if kind is ColumnType.INTEGER else float(min(value, high))


def _moment(bounds: Bounds, share: Fraction) -> Any:
    lower, upper = bounds.lower, bounds.upper
    assert isinstance(lower, date)
    assert isinstance(upper, date)
    if isinstance(lower, datetime) and isinstance(upper, datetime):
        return lower + timedelta(seconds=int(share * int((upper - lower).total_seconds())))
    return lower + timedelta(days=int(share * ((upper - lower).days + 1)))


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
    from deniable.curator.query.sql import compile_sql
    from deniable.query.answers import add_interval_columns

    relation = compile_sql(curator, sql, asked, who).relation
    shown = add_interval_columns(relation) if intervals else relation
    return tuple(AnswerColumn(field.name, _kind(field.facts.kind)) for field in shown.fields)


def _kind(kind: str) -> str:
    return "text" if kind == "null" else str(kind)


def fill_parameters(sql: str, values: Sequence[Value]) -> str:
    """A question with its parameters filled in as literals; no value can become anything else."""
    from deniable.query.sql.parameters import fill_parameters as put

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


def dummy_rows(curator: Curator, table: str, rows: int, who: Asker | None = None) -> pa.Table:
    """Invented rows of a table's shape, for trying code: made of declared bounds and categories alone."""
    from deniable.curator.scope import columns_for

    if not 0 <= rows <= MOST_DUMMIES:
        raise ParameterError(f"{rows} rows", expected=f"0 to {MOST_DUMMIES:,} rows")
    curator.policy.table(table)
    return invent_rows(next(each for each in columns_for(curator, who) if each.name == table), rows)


def open_curator(policy: Path, ledger: str, threads: int) -> Curator:
    """A curator whose engine uses so many threads, for a process that shares the machine with others like it."""
    from deniable.curator.curator import Curator
    from deniable.engines.duckdb import DuckDBEngine

    return Curator.open(policy, ledger=ledger, engine=DuckDBEngine(root=policy.parent, threads=threads))


@contextmanager
def preload_queries() -> Iterator[None]:
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
    from deniable.query.explain import describe_budget

    amounts = {"limit": each.limit, "spent": each.spent, "remaining": each.remaining}
    shown = {name: None if amount is None else describe_budget(amount) for name, amount in amounts.items()}
    return {"node": each.node, "period": each.period} | shown


def budgets(curator: Curator) -> dict[str, Any]:
    """The budget tree as the steward sees it: the dataset, and each analyst under each granted purpose."""
    from deniable.curator.governance import reports
    from deniable.governance.grants import Asker

    tree = curator.policy.budgets
    paths = [(analyst.name, purpose) for analyst in (tree.analysts if tree else ()) for purpose in analyst.purposes]
    analysts = [{"analyst": name, "purpose": purpose, "balance": balance(curator, Asker(name, purpose))}
                for name, purpose in paths]  # fmt: skip
    return {
        "standing": reports.summarize_budget(curator.ledger),
        "dataset": balance(curator, None),
        "analysts": analysts,
    }


def releases(curator: Curator, analyst: str) -> list[dict[str, Any]]:
    """An asker's own releases, the newest first."""
    from deniable.curator.governance import reports

    found = [_release(entry) for entry in reports.trail(curator.ledger) if _is_release(entry, analyst)]
    return found[::-1]


def _is_release(entry: dict[str, Any], analyst: str) -> bool:
    return bool(entry["act"] in ("charge", "release") and entry["analyst"] == analyst)


def _release(entry: dict[str, Any]) -> dict[str, Any]:
    names = ("release", "time", "technique", "tables", "purpose", "request")
    return {name: entry[name] for name in names} | {"asked": entry["details"].get("asked")}


def receipt(curator: Curator, analyst: str, release: str) -> dict[str, Any] | None:
    """The receipt of an asker's own release, or None."""
    from deniable.curator.governance import reports

    for entry in reports.trail(curator.ledger):
        if _is_release(entry, analyst) and entry["release"] == release:
            return _release(entry) | {"number": entry["sequence"], "head": entry["hash"], "event": entry["event"]}
    return None


def requests(curator: Curator, analyst: str | None = None) -> list[dict[str, Any]]:
    """All requests for releases, or those of one analyst, the newest first."""
    found = [each.as_dict() for each in curator.governor.requests().values()]
    return [each for each in found if analyst is None or each["analyst"] == analyst][::-1]


def register(curator: Curator) -> dict[str, Any]:
    """The public register with the head of the ledger's chain, so that nobody needs to take our word."""
    from deniable.curator.governance import reports

    head = curator.ledger.head()
    about = {"dataset": curator.policy.dataset, "head": head.hash if head else None}
    return about | {"standing": reports.summarize_budget(curator.ledger), "releases": reports.register(curator.ledger)}
