"""The policy's tables at an engine: attached when first needed; public ones are described by their own columns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from deniable.policy.document import Policy
from deniable.policy.schema import Column, TableSchema

if TYPE_CHECKING:
    from deniable.engines.base import Engine


class Tables:
    """Declared sources by name; nothing else can be read through it."""

    def __init__(self, policy: Policy, engine: Engine | None, sources: dict[str, Any]) -> None:
        self._policy = policy
        self._engine = engine
        self._sources = sources
        self._attached: set[str] = set()

    @property
    def engine(self) -> Engine:
        """The engine, made when it is first needed."""
        if self._engine is None:
            from deniable.engines.duckdb import DuckDBEngine

            self._engine = DuckDBEngine(root=self._policy.folder)
        return self._engine

    def attach(self, *names: str) -> Engine:
        """The engine, with these tables attached as the policy declares them."""
        for name in names:
            if name not in self._attached:
                table = self._policy.table(name)
                schema = None if table.public and not table.columns else table
                self.engine.attach(name, self._sources.get(name, table.source), schema)
                self._attached.add(name)
        return self.engine

    def schemas(self) -> tuple[TableSchema, ...]:
        """The tables as a question may name them; a public table without declared columns shows its own."""
        return tuple(self._described(table) for table in self._policy.tables)

    def _described(self, table: TableSchema) -> TableSchema:
        if not table.public or table.columns:
            return table
        fields = self.attach(table.name).describe(table.name)
        return replace(table, columns=tuple(Column(field.name, field.type) for field in fields))

    def version(self, *names: str) -> dict[str, str]:
        """The content version of each of these tables."""
        engine = self.attach(*names)
        return {name: engine.data_version(name) for name in names}

    def close(self) -> None:
        """Close the engine that was made here."""
        if self._engine is not None:
            self._engine.close()
