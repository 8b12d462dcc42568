"""What the tests of ledgers share: a budget tree, charges, a clock that tests set, and the stores."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path

from deniable.dp.accounting import ComposedEvent, PureEvent, ThresholdEvent
from deniable.ledger import Act, Ledger, Posting
from deniable.ledger.entry import MemoryStore, Store
from deniable.ledger.sqlite import SqliteStore
from deniable.policy.access import Accounting, Analyst, Budgets, Period, Purpose
from deniable.policy.budget import ApproxDP, Budget, PureDP

STORES = ("memory", "sqlite", "postgres")


class Clock:
    """A clock that tests set."""

    def __init__(self, *at: int) -> None:
        self.set(*at)

    def set(self, *at: int) -> None:
        self.now = datetime(*at, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


ONE, TWO, FOUR = PureDP(Fraction(1)), PureDP(Fraction(2)), PureDP(Fraction(4))


def tree(dataset: Budget = FOUR, research: Budget = TWO, operations: Budget = ONE, ana: Budget = ONE) -> Budgets:
    """A dataset with two purposes, one of them renewed each month, and three analysts."""
    purposes = (Purpose("research", research), Purpose("operations", operations, Period.MONTH))
    everybody = tuple(
        Analyst(name, granted, ana)
        for name, granted in (("ana", ("research",)), ("ben", ("research", "operations")), ("cyd", ("operations",)))
    )
    return Budgets(dataset, Accounting.PURE, purposes, everybody)


def spending(epsilon: object, delta: object = 0) -> PureEvent | ComposedEvent:
    """An event of that price."""
    pure = PureEvent(epsilon)
    return pure if delta == 0 else ComposedEvent((pure, ThresholdEvent(delta)))


def charge(
    ledger: Ledger, epsilon: object = "1/10", *, analyst: str = "ana", purpose: str = "research", delta: object = 0,
    request: str = "", question: str = "how many?",
):  # fmt: skip
    """Charge an epsilon (and delta) as somebody, for something."""
    event = spending(epsilon, delta)
    return ledger.charge(
        Posting(
            Act.CHARGE, event, "query", ("visits",), "one row", analyst, purpose, request=request, question=question
        )
    )


def open_store(kind: str, folder: Path, address: str | None = None) -> tuple[Store, str]:
    """A fresh store of a kind, and the dataset it is for (tests share one database)."""
    dataset = f"d{uuid.uuid4().hex[:12]}"
    if kind == "memory":
        return MemoryStore(), dataset
    if kind == "sqlite":
        return SqliteStore(folder / f"{dataset}.sqlite"), dataset
    from deniable.ledger.postgres import PostgresStore

    assert address is not None
    return PostgresStore(address, dataset), dataset


@contextmanager
def change_behind(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that changes a ledger's file behind its back; the triggers against that are there again after it."""
    with closing(sqlite3.connect(path)) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        yield connection
        for _, sql in triggers:
            connection.execute(sql)
        connection.commit()


def plain(limit: object, delta: object = 0) -> Budgets:
    """A dataset's budget and nothing else."""
    amount = Fraction(str(limit))
    return Budgets(PureDP(amount) if delta == 0 else ApproxDP(amount, Fraction(str(delta))))
