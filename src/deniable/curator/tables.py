"""The policy's tables at an engine: attached when first needed, without the rows that may not be shown.

Public tables without declared columns are described by their own. Restrictions (people who withdrew, a row allow-list)
are put into the engine's views as tables are attached, so every journey through here obeys them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deniable.policy.document import Policy
from deniable.policy.schema import Column, TableSchema

if TYPE_CHECKING:
    from deniable.engines.base import Engine
    from deniable.engines.restriction import Restriction

    Restricting = Callable[[str], tuple[Restriction, ...]]


class Tables:
    """Declared sources by name; nothing else can be read through it."""

    def __init__(
        self,
        policy: Policy,
        engine: Engine | None,
        sources: dict[str, Any],
        restrictions: Restricting | None = None,
    ) -> None:
        self.sources = sources
        self._policy = policy
        self._engine = engine
        self._restrictions = restrictions
        self._attached: dict[str, tuple[Restriction, ...]] = {}
        self._schemas: tuple[TableSchema, ...] | None = None
        self._lock = threading.RLock()

    @property
    def engine(self) -> Engine:
        """The engine, made when it is first needed."""
        with self._lock:
            if self._engine is None:
                from deniable.engines.duckdb import DuckDBEngine

                self._engine = DuckDBEngine(root=self._policy.folder)
            return self._engine

    def attach(self, *names: str) -> Engine:
        """The engine, with these tables attached as the policy declares them."""
        for name in names:
            if name not in self._attached:
                with self._lock:
                    self._attach(name)
        return self.engine

    def refresh(self) -> None:
        """Look again at what may be shown of the tables that are attached."""
        with self._lock:
            for name, before in list(self._attached.items()):
                now = self._restricted(name)
                if now != before:
                    self.engine.restrict(name, *now)
                    self._attached[name] = now

    def schemas(self) -> tuple[TableSchema, ...]:
        """The tables as a question may name them; a public table without declared columns shows its own."""
        if self._schemas is None:
            self._schemas = tuple(self._described(table) for table in self._policy.tables)
        return self._schemas

    def version(self, *names: str) -> dict[str, str]:
        """The content version of each of these tables."""
        engine = self.attach(*names)
        return {name: engine.data_version(name) for name in names}

    def interrupt(self, thread: int) -> None:
        """Stop what the engine does for a thread."""
        if self._engine is not None:
            self._engine.cancel(thread)

    def close(self) -> None:
        """Close the engine that was made here."""
        if self._engine is not None:
            self._engine.close()

    def _attach(self, name: str) -> None:
        if name in self._attached:
            return
        table = self._policy.table(name)
        schema = None if table.public and not table.columns else table
        self.engine.attach(name, self.sources.get(name, table.source), schema)
        restrictions = self._restricted(name)
        if restrictions:
            self.engine.restrict(name, *restrictions)
        self._attached[name] = restrictions

    def _restricted(self, name: str) -> tuple[Restriction, ...]:
        return self._restrictions(name) if self._restrictions is not None else ()

    def _described(self, table: TableSchema) -> TableSchema:
        if not table.public or table.columns:
            return table
        fields = self.attach(table.name).describe(table.name)
        return replace(table, columns=tuple(Column(field.name, field.type) for field in fields))
