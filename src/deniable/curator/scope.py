"""Scope: the one gate through which every workflow receives rows.

Tables are attached when first needed, without the rows that may not be shown: people who withdrew, rows outside an
analyst's allow-list, and, for releases of rows, people outside the policy's sample."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from deniable.errors import AccessRefused
from deniable.policy.access import Analyst
from deniable.policy.document import Policy
from deniable.policy.schema import Column, TableSchema

if TYPE_CHECKING:
    from deniable.curator.curator import Curator
    from deniable.engines.base import Engine, Restriction
    from deniable.governance.grants import Asker
    from deniable.ledger.answer_store import AnswerStore

    Restricting = Callable[[str], tuple[Restriction, ...]]


Rows = Mapping[str, tuple[str, ...]]


class Scopes:
    """The policy's tables as each row allow-list shows them."""

    def __init__(self, policy: Policy, cabinet: AnswerStore, engine: Engine | None, sources: dict[str, Any]) -> None:

        self._policy = policy
        self._cabinet = cabinet
        self._whole = Tables(policy, engine, sources, lambda name: self._restrictions(name, {}))
        self._minimized: Tables | None = None
        self._narrow: dict[str, Tables] = {}
        self._lock = threading.Lock()
        self._withdrawals = 0

    def tables(self, who: Asker | None = None) -> Tables:
        """The tables with the rows that this asker may count."""

        analyst = analyst_of(self._policy, who)
        if analyst is None or not analyst.rows:
            return self._whole
        rows = analyst.rows
        with self._lock:
            if analyst.name not in self._narrow:
                restrict = lambda name: self._restrictions(name, rows)  # noqa: E731  it closes over this analyst's rows
                self._narrow[analyst.name] = Tables(self._policy, None, self._whole.sources, restrict)
            return self._narrow[analyst.name]

    def minimized_tables(self) -> Tables:
        """The tables as a record-level release may show them: a sample, where the policy says so."""

        minimize = self._policy.release.minimize
        if minimize is None or minimize.sample >= 1:
            return self._whole
        with self._lock:
            if self._minimized is None:
                cut = lambda name: release_restrictions(self._policy, self._cabinet, name)  # noqa: E731  for these tables
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
        from deniable.curator.governance.withdrawals import withdrawn_restriction
        from deniable.engines.base import Listed

        table = self._policy.table(name)
        if table.public:
            return ()
        kept = [Listed(column, tuple(rows[column]), keep=True) for column in rows if table.column(column) is not None]
        return (*withdrawn_restriction(self._policy, self._cabinet, name), *kept)


def columns_for(curator: Curator, who: Asker | None) -> tuple[TableSchema, ...]:
    """The tables as this asker may name them; the column that tells people apart stays: contributions need it."""
    analyst, tables = analyst_of(curator.policy, who), curator.tables.schemas()
    if analyst is None or analyst.columns is None:
        return tables
    return tuple(_narrow_columns(table, frozenset(analyst.columns)) for table in tables)


def analyst_of(policy: Policy, who: Asker | None) -> Analyst | None:
    """The policy's entry of an asker, if there is one."""
    listed = policy.budgets.analysts if policy.budgets else ()
    return None if who is None else next((each for each in listed if each.name == who.name), None)


def _narrow_columns(table: TableSchema, allowed: frozenset[str]) -> TableSchema:
    if table.public:
        return table
    unit = table.unit.column if table.unit else None
    kept = [c for c in table.columns if c.name in allowed or f"{table.name}.{c.name}" in allowed or c.name == unit]
    return replace(table, columns=tuple(kept))


Made = TypeVar("Made")


class Memo(Generic[Made]):
    """The things made last, by what they were made from; the longest unused is forgotten first.

    >>> memo: Memo[int] = Memo(2)
    >>> memo.get("two", lambda: 2), memo.get("two", lambda: 3)
    (2, 2)
    """

    def __init__(self, most: int = 1024) -> None:
        self._most = most
        self._held: OrderedDict[Hashable, Made] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What was made for a key, or is made now; what raises is not remembered."""
        found = self.find(key)
        if found is None:
            found = make()
            self.put(key, found)
        return found

    def find(self, key: Hashable) -> Made | None:
        """What is remembered for a key."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: Hashable, made: Made) -> None:
        """Remember something for a key, instead of what was remembered for it."""
        with self._lock:
            self._held[key] = made
            self._held.move_to_end(key)
            if len(self._held) > self._most:
                self._held.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._held.clear()


SAMPLE_KEYS = "keys"


def columns_to_release(policy: Policy, schema: TableSchema, asked: Sequence[str] | None) -> tuple[str, ...] | None:
    """The columns of a table that may leave: those asked for, within those of the policy; None is all."""
    allowed = columns_allowed(policy, schema)
    if allowed is None or asked is None:
        return allowed if asked is None else tuple(asked)
    beyond = [name for name in asked if name in schema.names and name not in allowed]
    if beyond:
        raise AccessRefused(
            f"column '{beyond[0]}' is not among those that the policy releases of '{schema.name}'",
            expected=f"Columns: {', '.join(allowed) or 'none'}",
            remedy="Ask the steward to change release: minimize: columns",
        )
    return tuple(asked)


def columns_allowed(policy: Policy, schema: TableSchema) -> tuple[str, ...] | None:
    """The columns of a table within the policy's minimization; None where it names none."""
    named = policy.release.minimize.columns if policy.release.minimize else None
    return None if named is None else tuple(name for name in schema.names if name in named)


def release_restrictions(policy: Policy, cabinet: AnswerStore, table: str) -> tuple[Restriction, ...]:
    """What a record-level release of a table does not show: who withdrew, and who is not in the sample."""
    from deniable.curator.governance.withdrawals import withdrawn_restriction
    from deniable.engines.base import Sampled

    minimize, unit = policy.release.minimize, policy.table(table).unit
    gone = withdrawn_restriction(policy, cabinet, table)
    if minimize is None or minimize.sample >= 1:
        return gone
    return (*gone, Sampled(minimize.sample, unit.column if unit else None, _salt(cabinet)))


def cut_down(engine: Engine, policy: Policy, cabinet: AnswerStore, names: Iterable[str]) -> None:
    """Restrict tables of an engine that serves one record-level release."""
    for name in names:
        engine.restrict(name, *release_restrictions(policy, cabinet, name))


def _salt(cabinet: AnswerStore) -> int:
    kept = cabinet.keep(SAMPLE_KEYS, "sample", "sample", secrets.token_bytes(8))
    return int.from_bytes(kept, "big") >> 1


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
                now = self._find_restrictions(name)
                if now != before:
                    self.engine.restrict(name, *now)
                    self._attached[name] = now

    def schemas(self) -> tuple[TableSchema, ...]:
        """The tables as a question may name them; a public table without declared columns shows its own."""
        if self._schemas is None:
            self._schemas = tuple(self._describe_table(table) for table in self._policy.tables)
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
        restrictions = self._find_restrictions(name)
        if restrictions:
            self.engine.restrict(name, *restrictions)
        self._attached[name] = restrictions

    def _find_restrictions(self, name: str) -> tuple[Restriction, ...]:
        return self._restrictions(name) if self._restrictions is not None else ()

    def _describe_table(self, table: TableSchema) -> TableSchema:
        if not table.public or table.columns:
            return table
        fields = self.attach(table.name).describe(table.name)
        return replace(table, columns=tuple(Column(field.name, field.type) for field in fields))
