"""What an asker may see: columns of an allow-list, rows of an allow-list, and never the people who withdrew.

Columns are left out of the tables that a question is compiled against. Rows are left out inside the engine's views; an
analyst with a row allow-list therefore has an engine of her own, and stored answers of her own.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deniable.policy.access import Analyst
from deniable.policy.schema import TableSchema

if TYPE_CHECKING:
    from deniable.curator.hall import Curator
    from deniable.curator.tables import Tables
    from deniable.engines.base import Engine
    from deniable.engines.restriction import Restriction
    from deniable.governance.grants import Asker
    from deniable.ledger.cabinet import Cabinet
    from deniable.policy.document import Policy

Rows = Mapping[str, tuple[str, ...]]


class Scopes:
    """The policy's tables as each row allow-list shows them."""

    def __init__(self, policy: Policy, cabinet: Cabinet, engine: Engine | None, sources: dict[str, Any]) -> None:
        from deniable.curator.tables import Tables

        self._policy = policy
        self._cabinet = cabinet
        self._whole = Tables(policy, engine, sources, lambda name: self._restrictions(name, {}))
        self._minimized: Tables | None = None
        self._narrow: dict[str, Tables] = {}
        self._lock = threading.Lock()
        self._withdrawals = 0

    def tables(self, who: Asker | None = None) -> Tables:
        """The tables with the rows that this asker may count."""
        from deniable.curator.tables import Tables

        analyst = analyst_of(self._policy, who)
        if analyst is None or not analyst.rows:
            return self._whole
        rows = analyst.rows
        with self._lock:
            if analyst.name not in self._narrow:
                restrict = lambda name: self._restrictions(name, rows)  # noqa: E731  it closes over this analyst's rows
                self._narrow[analyst.name] = Tables(self._policy, None, self._whole.sources, restrict)
            return self._narrow[analyst.name]

    def minimized(self) -> Tables:
        """The tables as a record-level release may show them: a sample, where the policy says so."""
        from deniable.curator.minimizing import restrictions
        from deniable.curator.tables import Tables

        minimize = self._policy.release.minimize
        if minimize is None or minimize.sample >= 1:
            return self._whole
        with self._lock:
            if self._minimized is None:
                cut = lambda name: restrictions(self._policy, self._cabinet, name)  # noqa: E731  for these tables
                self._minimized = Tables(self._policy, None, self._whole.sources, cut)
            return self._minimized

    def refresh(self, withdrawals: int) -> None:
        """Leave out who withdrew since the tables were attached, given how many withdrew in all."""
        with self._lock:
            if withdrawals != self._withdrawals:
                for tables in self._all():
                    tables.refresh()
                self._withdrawals = withdrawals

    def interrupt(self, thread: int) -> None:
        """Stop what engines do for a thread."""
        for tables in self._all():
            tables.interrupt(thread)

    def close(self) -> None:
        """Let go of all tables."""
        for tables in self._all():
            tables.close()

    def _all(self) -> list[Tables]:
        return [each for each in (self._whole, self._minimized, *self._narrow.values()) if each is not None]

    def _restrictions(self, name: str, rows: Rows) -> tuple[Restriction, ...]:
        from deniable.curator.withdrawing import left_out
        from deniable.engines.restriction import Listed

        table = self._policy.table(name)
        if table.public:
            return ()
        kept = [Listed(column, tuple(rows[column]), keep=True) for column in rows if table.column(column) is not None]
        return (*left_out(self._policy, self._cabinet, name), *kept)


def columns_for(curator: Curator, who: Asker | None) -> tuple[TableSchema, ...]:
    """The tables as this asker may name them; the column that tells people apart stays: contributions need it."""
    analyst, tables = analyst_of(curator.policy, who), curator.tables.schemas()
    if analyst is None or analyst.columns is None:
        return tables
    return tuple(_narrowed(table, frozenset(analyst.columns)) for table in tables)


def analyst_of(policy: Policy, who: Asker | None) -> Analyst | None:
    """The policy's entry of an asker, if there is one."""
    listed = policy.budgets.analysts if policy.budgets else ()
    return None if who is None else next((each for each in listed if each.name == who.name), None)


def _narrowed(table: TableSchema, allowed: frozenset[str]) -> TableSchema:
    if table.public:
        return table
    unit = table.unit.column if table.unit else None
    kept = [c for c in table.columns if c.name in allowed or f"{table.name}.{c.name}" in allowed or c.name == unit]
    return replace(table, columns=tuple(kept))
