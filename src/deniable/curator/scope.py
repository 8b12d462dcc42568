"""Scope: the one gate through which every workflow receives rows.

What an asker may see follows from the policy and is looked at again at every use: the policy's term, people who
withdrew, the rows and columns that an analyst is allowed, and, for releases of rows, the policy's minimization. Nothing
else in the curator attaches a private table.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.sources import hash_content, refuse_linked, refuse_private_elsewhere, stamp_content
from deniable.errors import AccessRefused, DeniableError, InternalError, ParameterError
from deniable.governance.withdrawals import COLLECTION, read_withdrawal
from deniable.policy.access import Analyst
from deniable.policy.document import Policy
from deniable.policy.schema import Column, CsvDialect, TableSchema, normalize_spelling

if TYPE_CHECKING:
    from deniable.engines.base import Engine, Field, Restriction
    from deniable.governance.grants import Asker
    from deniable.ledger.answer_store import AnswerStore
    from deniable.ledger.same_rows import Sketch

SAMPLE_KEYS = "keys"
"""The collection that holds secrets: the salt of the policy's sample, and the key of the digests of sources."""
MARKS = "epochs"
"""The collection that holds the digests of sources, by epoch and table."""
KEPT_EPOCHS = 2
"""Epochs whose copies are kept."""
Rows = Mapping[str, tuple[str, ...]]


class Scope:
    """The policy's tables as one asker may see them."""

    def __init__(self, shared: SharedTables, asker: Asker | None = None) -> None:
        self._shared = shared
        self._analyst = find_analyst(shared.policy, asker)

    def narrow_to(self, asker: Asker | None) -> Scope:
        """The scope of another asker, over the same tables."""
        return Scope(self._shared, asker)

    def schemas(self) -> tuple[TableSchema, ...]:
        """The tables that the asker may name, with the columns that the asker may name.

        The column that tells people apart stays, since contributions are bounded by it; where it is not allowed it is
        opaque, and its values cannot be looked at.
        """
        tables = self._shared.schemas()
        if self._analyst is None:
            return tables
        return tuple(_narrow_columns(table, self._analyst) for table in tables if self._is_open(table))

    def attach(self, *names: str, epoch: str | None = None) -> Engine:
        """The engine with these tables attached, refreshed: what a measurement with noise reads.

        `epoch` is that of the question; without one it is the epoch now.
        """
        refuse_expired(self._shared.policy)
        for name in names:
            self.refuse_closed(name)
        return self._shared.view(self.rows, epoch).attach(*names)

    def attach_public(self, *names: str) -> Engine:
        """The engine that holds public tables and no other; it also finishes noisy numbers and writes files."""
        self._require_public(names)
        return self._shared.public.attach(*names)

    def public_versions(self, *names: str) -> dict[str, str]:
        """The content version of each of these public tables."""
        self._require_public(names)
        return self._shared.public.versions(*names)

    def _require_public(self, names: Sequence[str]) -> None:
        if not all(self._shared.policy.table(name).public for name in names):
            raise InternalError("a private table was to be used as a public one", remedy="Nothing was run")

    @property
    def rows(self) -> Rows:
        """The rows that the policy lets the asker count, by column; empty is all."""
        return self._analyst.rows if self._analyst is not None else {}

    def digest_source(self, name: str, epoch: str | None = None) -> str | None:
        """A keyed digest of all that a table's source holds now, or of its copy of an epoch; None for a stream.

        Without the key, which stays in the answer store, a digest tells nothing of the rows.
        """
        policy = self._shared.policy
        source = (
            self.sources.get(name, policy.table(name).source) if epoch is None else self._shared.locate(name, epoch)
        )
        content = hash_content(source, policy.folder)
        return None if content is None else self.seal_version(name, content)

    def list_sources(self, *, public: bool = False) -> dict[str, tuple[str, str]]:
        """Where the rows of each private (or public) table are, and their stamps; but for streams and what is gone."""
        found, policy, lasting = {}, self._shared.policy, self._shared.store.is_lasting
        for table in (each for each in policy.tables if each.public is public):
            with suppress(DeniableError, OSError):
                found[table.name] = stamp_content(self.sources.get(table.name, table.source), policy.folder, lasting)
        return found

    def name_sources(self, names: Sequence[str]) -> dict[str, str]:
        """A name of the source of each table by which it is the same in every policy; none for streams."""
        from deniable.ledger.witness import name_source

        named = self._shared.named
        if not {*names} <= named.keys():
            named |= {name: name_source(path) for name, (path, _) in self.list_sources().items()}
        return {name: named[name] for name in names if name in named}

    def name_frames(self, names: Sequence[str]) -> list[str]:
        """The names of those tables that are rows in memory: other rows are another source, with other answers."""
        held = [name for name in names if not isinstance(self.sources.get(name), str | Path | None)]
        return [f"{name} {source}" for name, source in sorted(self.name_sources(held).items())] if held else []

    def sketch_rows(self, name: str, most: int | None = None) -> Sketch[int] | None:
        """The least hashes of a private table's rows and of the values in them; None where it cannot be read."""
        from deniable.engines.base import is_elsewhere, sketch_rows
        from deniable.ledger.same_rows import FEW_ROWS, MARKED_ROWS, Sketch

        source = self._shared.locate(name, None)
        if is_elsewhere(source):
            return None  # rows stay there; the table is known by its place
        with suppress(DeniableError), self._shared.make_engine(rows=True) as engine:
            engine.attach(name, source, self._shared.policy.table(name))
            return Sketch(*sketch_rows(engine, name, most or MARKED_ROWS, FEW_ROWS))
        return None

    def keep_copies(self, epoch: str) -> None:
        """Copy each private source for an epoch that is to begin, where copies are kept; each must be readable."""
        if self._shared.copied_epoch(epoch) is None:
            return
        from deniable.engines.base import read_all

        self._shared.forget_copies(epoch)
        try:
            with self._shared.make_engine(rows=True) as engine:
                for table in self._shared.policy.private:
                    engine.attach(table.name, self._shared.locate(table.name, epoch), table)
                    read_all(engine, table.name)  # so that what is damaged is found
        except DeniableError:
            self._shared.forget_copies(epoch)
            raise

    def mark_source(self, epoch: str, name: str) -> None:
        """Leave for the steward what a source held when it was first measured in an epoch."""
        if (epoch, name) in self._shared.marked:
            return
        mark, copied = json.dumps([epoch, name]), self._shared.copied_epoch(epoch)
        digest = None if self._shared.store.find(MARKS, mark) is not None else self.digest_source(name, copied)
        if digest is not None:
            self._shared.store.keep(MARKS, mark, mark, digest.encode())
        self._shared.marked.add((epoch, name))

    def source_changed(self, epoch: str, name: str) -> bool | None:
        """Whether a source holds something else than when it was marked; None where it was not. For the steward."""
        marked = self._shared.store.find(MARKS, json.dumps([epoch, name]))
        return None if marked is None else (self.digest_source(name) or "").encode() != marked

    def seal_version(self, name: str, version: str) -> str:
        """A content version as it may leave: a digest under a key that stays in the answer store."""
        key = self._shared.store.keep(SAMPLE_KEYS, "sources", "sources", secrets.token_bytes(32))
        return hashlib.blake2b(f"{name}:{version}".encode(), key=key, digest_size=32).hexdigest()

    @contextmanager
    def open_rows(
        self, names: Mapping[str, str], *, csv: CsvDialect | None = None, sources: Mapping[str, Any] | None = None
    ) -> Iterator[Engine]:
        """An engine of its own for one release of rows: `names` says under which name each table is attached.

        Rows are those that the asker may see, within the policy's sample. `sources` are other files of the tables.
        """
        for name in names.values():
            self.refuse_closed(name)
            refuse_linked(self._shared.policy.table(name))
        given, epoch = dict(sources or {}), self._shared.copied_epoch()
        with self._shared.make_engine(rows=True) as engine:
            for alias, name in names.items():
                source = given[name] if name in given else self._shared.locate(name, epoch)
                engine.attach(alias, source, self._shared.policy.table(name), csv=csv)
                engine.restrict(alias, *self._release_restrictions(name))
            yield engine

    def tables_holding(self, values: Sequence[str], names: Mapping[str, str]) -> list[str]:
        """Which tables hold rows of one person, withdrawn or not. For that person and the steward only.

        `names` are tables with the column that tells people apart; `values` the forms of the person's value.
        """
        from deniable.engines.base import Listed

        found, policy = list[str](), self._shared.policy
        with self._shared.make_engine() as engine:
            for name, column in names.items():
                engine.attach(name, self._shared.locate(name, self._shared.copied_epoch()), policy.table(name))
                engine.restrict(name, Listed(column, tuple(values), True, True, policy.has_numbered_people(column)))
                found += [name] if engine.count(name) else []
        return found

    def columns_to_release(self, name: str, asked: Sequence[str] | None = None) -> tuple[str, ...] | None:
        """The columns of a table that may leave: those asked for, within what is allowed; None is all."""
        table = self._shared.policy.table(name)
        refuse_twice(asked or ())
        allowed = self._columns_allowed(table)
        if allowed is None or asked is None:
            return allowed if asked is None else tuple(asked)
        beyond = [column for column in asked if column in table.names and column not in allowed]
        _refuse_undecided(table, beyond)
        if beyond:
            raise AccessRefused(
                f"column '{beyond[0]}' is not among those that the policy releases of '{name}'",
                expected=f"Columns: {', '.join(allowed) or 'none'}",
                remedy="Ask the steward to change release: minimize: columns, or the analyst's columns",
            )
        return tuple(asked)

    def columns_to_describe(self, name: str, asked: tuple[str, ...] | None = None) -> tuple[str, ...] | None:
        """The columns of a table that a model may speak of: those asked for, within the asker's; None is all."""
        table, own = self._shared.policy.table(name), self._analyst.columns if self._analyst is not None else None
        refuse_twice(asked or ())
        if own is None:
            return asked
        beyond = [column for column in asked or () if column in table.names and not _is_allowed(table, column, own)]
        if beyond:
            raise AccessRefused(
                f"column '{beyond[0]}' of '{name}' is not among those of this analyst",
                remedy="Ask the steward to change the analyst's columns in the policy",
            )
        return asked if asked is not None else tuple(c for c in table.names if _is_allowed(table, c, own))

    def find_table(self, name: str) -> TableSchema:
        """A table as the policy declares it."""
        return self._shared.policy.table(name)

    def private_table(self, name: str, *, linked: bool = False) -> TableSchema:
        """A private table as the asker may name it, or a refusal.

        Without `linked`, one whose people are named by another table is refused: whoever reads its rows would bound
        people by a column that it does not have.
        """
        self.refuse_closed(name)
        found = self._shared.policy.table(name)
        if found.public:
            raise ParameterError(
                f"the table '{found.name}' is public", remedy="It needs no protection: use it as it is"
            )
        if not linked:
            refuse_linked(found)
        return found if self._analyst is None else _narrow_columns(found, self._analyst)

    @property
    def engine(self) -> Engine:
        """The engine that writes files and holds public tables; private ones are attached by `attach`."""
        return self._shared.public.engine

    @property
    def sources(self) -> Mapping[str, Any]:
        """The rows and paths that replace the policy's sources."""
        return self._shared.sources

    def interrupt(self, thread: int) -> None:
        """Stop what engines do for a thread."""
        self._shared.interrupt(thread)

    def close(self) -> None:
        """Let go of all tables."""
        self._shared.close()

    def _is_open(self, table: TableSchema) -> bool:
        """Whether the asker's rows of a table can be chosen: every column that chooses them is there."""
        return table.public or all(table.column(column) is not None for column in self.rows)

    def refuse_closed(self, name: str) -> None:
        """Refuse a table of which the asker may see nothing, and everything after the policy's last day."""
        refuse_expired(self._shared.policy)
        table = self._shared.policy.table(name)
        if not self._is_open(table):
            raise AccessRefused(
                f"the table '{table.name}' is not open to this analyst",
                expected="A table with every column by which the analyst's rows are chosen",
                remedy="Ask the steward to change the analyst's rows in the policy",
            )

    def _columns_allowed(self, table: TableSchema) -> tuple[str, ...] | None:
        minimize, analyst = self._shared.policy.release.minimize, self._analyst
        named, own = (None if each is None else each.columns for each in (minimize, analyst))
        if table.public and named is None and own is None:
            return None
        return tuple(
            name for name in (table.names if table.public else table.released_columns)
            if (named is None or name in named) and (own is None or _is_allowed(table, name, own))
        )  # fmt: skip

    def _release_restrictions(self, name: str) -> tuple[Restriction, ...]:
        """What a release of rows does not show: who withdrew, rows of others, and who is not in the sample."""
        from deniable.engines.base import Sampled

        policy = self._shared.policy
        if policy.table(name).public:
            return ()
        shown = self._shared.restrictions(name, self.rows)
        minimize, unit = policy.release.minimize, policy.table(name).unit
        if minimize is None or minimize.sample >= 1:
            return shown
        salt = self._shared.store.keep(SAMPLE_KEYS, "sample", "sample", secrets.token_bytes(8))
        return (*shown, Sampled(minimize.sample, unit.column if unit else None, int.from_bytes(salt, "big") >> 1))


class SharedTables:
    """What all askers share: the sources, an engine for each list of rows, and who withdrew.

    `find_withdrawals` says how many acts of withdrawal there were, by whichever process that was recorded, and the
    digests of those who were taken in again; `whole` is the engine of askers without a list of rows, where one was
    given. `public` holds public tables alone, at an engine of its own: what is done there cannot depend on a private
    file, not even in its time.
    """

    def __init__(
        self,
        policy: Policy,
        store: AnswerStore,
        find_withdrawals: Callable[[], tuple[int, frozenset[str]]],
        name_epoch: Callable[[], str],
        sources: Mapping[str, Any],
        make_engine: Callable[..., Engine],
        whole: Engine | None = None,
    ) -> None:
        self.policy, self.store = policy, store
        self.sources, self.places = sources, dict[str, tuple[str, frozenset[str]]]()
        self.make_engine = make_engine
        self._find_withdrawals = find_withdrawals
        self._name_epoch = name_epoch
        self._whole = whole
        self._views: dict[tuple[str | None, frozenset[tuple[str, tuple[str, ...]]]], AttachedTables] = {}
        self.public = AttachedTables(self, {}, None, None)
        self.marked: set[tuple[str, str]] = set()
        self.named: dict[str, str] = {}
        self._described: dict[str, tuple[tuple[Field, ...], TableSchema]] = {}
        self._lock = threading.RLock()
        self._withdrawals = 0

    def view(self, rows: Rows, epoch: str | None = None) -> AttachedTables:
        """The tables with these rows alone, without whoever withdrew until now, as of an epoch."""
        of_epoch = self.copied_epoch(epoch)
        key = (of_epoch, frozenset(rows.items()))
        with self._lock:
            if key not in self._views:
                engine = self._whole if not rows and not self._views else None
                self._views[key] = AttachedTables(self, rows, engine, of_epoch)
                self._close_old_views()
            self._refresh()
            return self._views[key]

    def _close_old_views(self) -> None:
        kept = list(dict.fromkeys(epoch for epoch, _ in self._views))[-KEPT_EPOCHS:]
        for key in [key for key in self._views if key[0] not in kept]:
            self._views.pop(key).close()

    def copied_epoch(self, epoch: str | None = None) -> str | None:
        """The epoch whose copies are read, by default that of now; None where the policy keeps no copies."""
        declared = self.policy.epochs
        return None if declared is None or declared.copies is None else epoch or self._name_epoch()

    def _find_copies(self) -> Path:
        assert self.policy.epochs is not None
        return self.policy.path(str(self.policy.epochs.copies)) / self.policy.dataset

    def forget_copies(self, epoch: str) -> None:
        """Remove copies of an epoch that did not begin: an attempt to declare it failed."""
        shutil.rmtree(self._find_copies() / _name_folder(epoch), ignore_errors=True)

    def locate(self, name: str, epoch: str | None) -> Any:
        """What is attached of a table: what was passed instead of it, the copy of an epoch, or the source as it is."""
        from deniable.engines.sources import keep_copy

        table = self.policy.table(name)
        if name in self.sources or epoch is None or table.public:
            return self.sources.get(name, table.source)
        folder = self._find_copies()
        # The same name in another policy, or for another source, is another copy.
        place = f"{table.name} {_name_place(self.policy.folder, table.source)}"
        kept = keep_copy(table.source, self.policy.folder, folder / _name_folder(epoch) / place)
        _drop_copies(folder)
        return kept

    def restrictions(self, name: str, rows: Rows) -> tuple[Restriction, ...]:
        """The rows of a table that are not shown: of people who withdrew, and of others than those listed."""
        from deniable.engines.base import Listed

        table = self.policy.table(name)
        if table.public:
            return ()
        kept = (Listed(column, tuple(values), keep=True) for column, values in rows.items())
        return (*withdrawn_rows(self.policy, self.store, name, self._find_withdrawals()[1]), *kept)

    def schemas(self) -> tuple[TableSchema, ...]:
        """The tables as a question may name them; a public table without declared columns shows its own."""
        return tuple(self._describe(table) for table in self.policy.tables)

    def interrupt(self, thread: int) -> None:
        """Stop what engines do for a thread."""
        for view in (self.public, *list(self._views.values())):
            view.interrupt(thread)

    def close(self) -> None:
        """Let go of all tables."""
        for view in (self.public, *self._views.values()):
            view.close()
        if self._whole is not None:
            self._whole.close()

    def _refresh(self) -> None:
        withdrawals, _ = self._find_withdrawals()
        if withdrawals != self._withdrawals:
            for view in self._views.values():
                view.refresh()
            self._withdrawals = withdrawals

    def _describe(self, table: TableSchema) -> TableSchema:
        from deniable.engines.base import is_elsewhere

        known = self._described.get(table.name)
        if not table.public or table.columns or (known and is_elsewhere(self.locate(table.name, None))):
            return known[1] if known else table
        # Of one that cannot be read now, what is known is shown: only questions that read it are refused.
        with suppress(*((DeniableError,) if known else ())):
            fields = self.public.attach(table.name).describe(table.name)
            if known is None or known[0] != fields:
                known = fields, replace(table, columns=tuple(Column(field.name, field.type) for field in fields))
                self._described[table.name] = known
        assert known is not None
        return known[1]


class AttachedTables:
    """Declared sources at one engine, attached when first needed, without the rows that may not be shown."""

    def __init__(self, shared: SharedTables, rows: Rows, engine: Engine | None, epoch: str | None) -> None:
        self._shared, self._rows = shared, rows
        self._engine = engine
        self._epoch = epoch
        self._attached: dict[str, tuple[Restriction, ...]] = {}
        self._lock = threading.RLock()

    @property
    def engine(self) -> Engine:
        """The engine, made when it is first needed."""
        with self._lock:
            if self._engine is None:
                self._engine = self._shared.make_engine()
            return self._engine

    def attach(self, *names: str) -> Engine:
        """The engine, with these tables attached as the policy declares them; those attached before must still be."""
        for name in names:
            if name in self._attached:
                self.engine.reach(name)
            else:
                with self._lock:
                    self._attach(name)
        return self.engine

    def versions(self, *names: str) -> dict[str, str]:
        """The content version of each of these tables."""
        engine = self.attach(*names)
        return {name: engine.data_version(name) for name in names}

    def refresh(self) -> None:
        """Look again at what may be shown of the tables that are attached."""
        with self._lock:
            for name, before in list(self._attached.items()):
                now = self._shared.restrictions(name, self._rows)
                if now != before:
                    self.engine.restrict(name, *now)
                    self._attached[name] = now

    def interrupt(self, thread: int) -> None:
        """Stop what the engine does for a thread."""
        if self._engine is not None:
            self._engine.cancel(thread)

    def close(self) -> None:
        """Close the engine."""
        if self._engine is not None:
            self._engine.close()

    def _attach(self, name: str) -> None:
        if name in self._attached:
            return
        table = self._shared.policy.table(name)
        schema = None if table.public and not table.columns else table
        refuse_private_elsewhere(self._shared.policy, self._shared.sources, name, self._shared.places)
        self.engine.attach(name, self._shared.locate(name, self._epoch), schema)
        restrictions = self._shared.restrictions(name, self._rows)
        if restrictions:
            self.engine.restrict(name, *restrictions)
        self._attached[name] = restrictions


def withdrawn_rows(
    policy: Policy, store: AnswerStore, table: str, reinstated: frozenset[str] = frozenset()
) -> tuple[Restriction, ...]:
    """The restriction that leaves out of a table whoever withdrew, there or in a linked one; none where nobody did."""
    from deniable.engines.base import Listed

    owner = policy.table(table)
    if not owner.person or owner.unit is None or owner.unit.via:
        return ()  # rows that lead to a person through another table are left out with that table's
    linked, listed = policy.same_people(owner.person), sorted(store.list_all(COLLECTION).items())
    withdrawn = (read_withdrawal(kept) for name, kept in listed if name not in reinstated)
    named = (each.value for each in withdrawn if each.column in linked)
    values = tuple(dict.fromkeys(form for each in named for form in (each, normalize_spelling(each))))
    how = (values, False, True, policy.has_numbered_people(owner.person))
    return tuple(Listed(column, *how) for column in owner.columns_of_people) if values else ()


def find_analyst(policy: Policy, asker: Asker | None) -> Analyst | None:
    """The policy's entry of an asker, if there is one."""
    return None if asker is None or policy.budgets is None else policy.budgets.find_analyst(asker.name)


def is_expired(policy: Policy) -> bool:
    """Whether the policy's last day is over, in UTC: the same moment for every machine that holds the policy."""
    return policy.is_expired(datetime.now(UTC).date())


def refuse_expired(policy: Policy) -> Policy:
    """The policy, or a refusal after its last day."""
    if is_expired(policy):
        raise AccessRefused(f"the policy expired on {policy.expires}", remedy="The steward may extend it")
    return policy


def _name_folder(epoch: str) -> str:
    """A folder's name for an epoch: readable, and another one for each epoch on every file system."""
    return f"{re.sub('[^A-Za-z0-9.+-]', '_', epoch)}-{hashlib.sha256(epoch.encode()).hexdigest()[:12]}"


def _name_place(folder: Path, source: str) -> str:
    return hashlib.sha256(f"{os.path.abspath(folder)}\n{source}".encode()).hexdigest()[:12]


def _drop_copies(folder: Path) -> None:
    """Remove the copies of all epochs but the last two: a question of the one before may still be running."""
    ours = [each for each in folder.iterdir() if re.fullmatch(r"[A-Za-z0-9.+_-]+-[0-9a-f]{12}", each.name)]
    for old in sorted(ours, key=lambda each: each.stat().st_mtime_ns)[:-KEPT_EPOCHS]:
        gone = old.with_name(f".{old.name}.{secrets.token_hex(6)}.part")
        with suppress(OSError):  # whole or not at all
            old.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)


def refuse_twice(columns: Sequence[str]) -> None:
    """Refuse a list in which a column is named twice: techniques would not agree how often it counts."""
    twice = next((name for place, name in enumerate(columns) if name in columns[:place]), None)
    if twice is not None:
        raise ParameterError(f"the column '{twice}' is named twice", remedy="Name each column once")


def _refuse_undecided(table: TableSchema, asked: Sequence[str]) -> None:
    """Refuse columns on which the steward did not decide; what leaves is decided in the policy and nowhere else."""
    undecided = [name for name in asked if (column := table.column(name)) is not None and not column.decided]
    if undecided:
        raise AccessRefused(
            f"column '{undecided[0]}' of '{table.name}' is undecided, and withheld from every release of rows",
            expected="A role in the policy: identifier, quasi-identifier, sensitive or insensitive",
            remedy=f"The steward decides under tables: {table.name}: columns: {undecided[0]}: role",
        )


def _is_allowed(table: TableSchema, column: str, allowed: Sequence[str]) -> bool:
    return column in allowed or f"{table.name}.{column}" in allowed


def _narrow_columns(table: TableSchema, analyst: Analyst) -> TableSchema:
    """The table with the columns that an analyst may name; the unit's column is opaque where it is not among them."""
    if table.public or analyst.columns is None:
        return table
    unit = table.unit.column if table.unit else None
    kept = []
    for column in table.columns:
        if _is_allowed(table, column.name, analyst.columns):
            kept.append(column)
        elif column.name == unit:
            kept.append(replace(column, opaque=True))
    return replace(table, columns=tuple(kept))
