"""What an asker may name: the policy's tables with the columns of the asker's allow-list."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from deniable.policy.schema import TableSchema

if TYPE_CHECKING:
    from deniable.curator.hall import Curator
    from deniable.governance.grants import Asker


def columns_for(curator: Curator, who: Asker | None) -> tuple[TableSchema, ...]:
    """The tables as this asker sees them; the column that tells people apart stays, since contributions need it."""
    allowed = _allowed(curator, who)
    tables = curator.tables.schemas()
    return tables if allowed is None else tuple(_narrowed(table, allowed) for table in tables)


def _allowed(curator: Curator, who: Asker | None) -> frozenset[str] | None:
    budgets = curator.policy.budgets
    if who is None or budgets is None:
        return None
    listed = next((each.columns for each in budgets.analysts if each.name == who.name), None)
    return None if listed is None else frozenset(listed)


def _narrowed(table: TableSchema, allowed: frozenset[str]) -> TableSchema:
    if table.public:
        return table
    unit = table.unit.column if table.unit else None
    kept = [c for c in table.columns if c.name in allowed or f"{table.name}.{c.name}" in allowed or c.name == unit]
    return replace(table, columns=tuple(kept))
