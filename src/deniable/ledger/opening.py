"""Opening a ledger: a file is SQLite, a `postgresql://` address is PostgreSQL, nothing is memory."""

from __future__ import annotations

from pathlib import Path

from deniable.errors import DataError
from deniable.ledger.cabinet import Cabinet, MemoryCabinet, SqliteCabinet
from deniable.ledger.ledger import Ledger
from deniable.ledger.store import Store
from deniable.policy.document import Policy

POSTGRES = ("postgresql://", "postgres://")


def open_ledger(place: str | Path | None, policy: Policy, *, writable: bool = True) -> Ledger:
    """The ledger of a policy's dataset at a place; a writable one is made if it is not there."""
    return Ledger(policy.dataset, policy.budgets, _store(place, policy.dataset, writable), policy=policy.hash)


def open_cabinet(place: str | Path | None, dataset: str) -> Cabinet:
    """The cabinet beside a ledger: NAME.kept.sqlite, a table of the same database, or memory."""
    if place is None:
        return MemoryCabinet()
    if str(place).startswith(POSTGRES):
        from deniable.ledger.postgres import PostgresCabinet

        return PostgresCabinet(str(place), dataset)
    return SqliteCabinet(Path(place).with_suffix(".kept.sqlite"))


def _store(place: str | Path | None, dataset: str, writable: bool) -> Store | None:
    if place is None:
        return None
    if str(place).startswith(POSTGRES):
        from deniable.ledger.postgres import PostgresStore

        return PostgresStore(str(place), dataset)
    from deniable.ledger.sqlite import SqliteStore

    if not writable and not Path(place).exists():
        raise DataError(f"there is no ledger '{place}'", remedy="It is made by the first charge, or by deniable serve")
    return SqliteStore(place, writable=writable)
