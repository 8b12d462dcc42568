"""Statements of a session: what each is, which columns it will give, and carrying it out.

    SET, SHOW, RESET      settings of the session            BEGIN, COMMIT, SAVEPOINT ...   accepted, and mean nothing
    EXPLAIN SELECT ...    the privacy plan; nothing runs     questions about the catalog    declared metadata
    PREPARE, DECLARE ...  names of the session (see `shelf`) COPY (SELECT ...) TO STDOUT    an answer as lines
    anything else         a question: charged, and answered with noise

Nothing is ever undone: a charge stands, whatever a transaction says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from deniable.curator import serving
from deniable.governance.grants import Action, Grant
from deniable.server.desk import Desk, Question
from deniable.server.wire import shelf
from deniable.server.wire import values as v
from deniable.server.wire.catalog_sql import about_catalog
from deniable.server.wire.catalogs import Catalogs
from deniable.server.wire.codec import ResultColumn
from deniable.server.wire.copying import Copying, copied_by, lines
from deniable.server.wire.explaining import plan_lines
from deniable.server.wire.lexing import Statement, statements
from deniable.server.wire.outcome import Outcome
from deniable.server.wire.refusals import WireRefusal
from deniable.server.wire.settings import Settings, assignment
from deniable.server.wire.shelf import Prepared, Shelf

if TYPE_CHECKING:
    import pyarrow as pa

_TAGS = {
    "begin": "BEGIN", "start": "START TRANSACTION", "commit": "COMMIT", "end": "COMMIT", "rollback": "ROLLBACK",
    "abort": "ROLLBACK", "savepoint": "SAVEPOINT", "release": "RELEASE", "discard": "DISCARD ALL",
    "unlisten": "UNLISTEN",
}  # fmt: skip
"""Statements that are accepted and change nothing, with the tag that tools wait for."""
_ASKING = frozenset({"select", "with", "values", "table", "(", "show", "explain"})
_ROWLESS = frozenset({*_TAGS, "set", "reset", "prepare", "deallocate", "declare", "move", "close", "copy"})


class Answering:
    """The statements of one session."""

    def __init__(self, desk: Desk, catalogs: Catalogs, grant: Grant, settings: Settings, process: int) -> None:
        self._desk = desk
        self._catalogs = catalogs
        self._grant = grant
        self._process = process
        self._asked = 0
        self.settings = settings
        self.shelf = Shelf()

    async def columns(self, statement: Statement, values: Sequence[Any]) -> tuple[ResultColumn, ...] | None:
        """The columns that a statement will give, or None where it gives no rows. Nothing is charged."""
        word = statement.words[0]
        if word in _ROWLESS:
            return None
        if word == "show":
            return self._shown(statement)[0]
        if word == "execute":
            return await self.columns(*self._executed(statement))
        if word == "fetch":
            portal = self.shelf.portal(shelf.fetched_by(statement)[0])
            return portal.columns or await self.columns(_whole(portal.prepared), portal.values)
        if word == "explain":
            return (ResultColumn("QUERY PLAN", v.TEXT),)
        if about_catalog(statement):
            return (await self._catalog(statement, values, rows=False)).columns
        found = await self._desk.columns(self._grant, self._question(statement, values))
        return tuple(_column(column.name, column.kind) for column in found)

    async def run(self, statement: Statement, values: Sequence[Any]) -> Outcome:
        """Carry a statement out."""
        word = statement.words[0]
        if word in _TAGS:
            return Outcome(_tag(statement))
        if word in ("set", "reset"):
            return self._set(statement)
        if word == "show":
            columns, rows = self._shown(statement)
            return Outcome("SHOW", columns, rows)
        if word in ("prepare", "deallocate", "declare", "close"):
            return self._shelved(word, statement, values)
        if word == "execute":
            return await self.run(*self._executed(statement))
        if word in ("fetch", "move"):
            return await self._fetched(word, *shelf.fetched_by(statement))
        if word == "copy":
            return await self._copied(copied_by(statement), values)
        if word == "explain":
            return await self._explained(statement, values)
        if about_catalog(statement):
            return await self._catalog(statement, values)
        return await self._answered(statement, values)

    def _shelved(self, word: str, statement: Statement, values: Sequence[Any]) -> Outcome:
        """Put something under a name of the session, or take it away."""
        match word:
            case "prepare":
                name, prepared = shelf.prepared_by(statement)
                _whole(prepared)
                self.shelf.prepare(name, prepared)
                return Outcome("PREPARE")
            case "declare":
                name, portal = shelf.declared_by(statement, values)
                _whole(portal.prepared)
                self.shelf.open(name, portal)
                return Outcome("DECLARE CURSOR")
            case "close":
                return Outcome(self.shelf.close(statement))
            case _:
                return Outcome(self.shelf.deallocate(statement))

    def _executed(self, statement: Statement) -> tuple[Statement, tuple[Any, ...]]:
        """The statement that EXECUTE names, and its values."""
        name, given = shelf.executed_by(statement)
        prepared = self.shelf.statement(name)
        if len(given) != len(prepared.oids):
            raise WireRefusal("42601", f"the prepared statement takes {len(prepared.oids)} values, not {len(given)}")
        return _whole(prepared), given

    async def _fetched(self, word: str, name: str, most: int | None) -> Outcome:
        """The next rows of a cursor; its question is asked when rows are first taken."""
        portal, charged = self.shelf.portal(name), False
        if portal.outcome is None:
            portal.outcome = await self.run(_whole(portal.prepared), portal.values)
            charged = portal.outcome.charged
        whole = portal.outcome
        rows = whole.rows[portal.given :] if most is None else whole.rows[portal.given : portal.given + most]
        portal.given += len(rows)
        tag = f"{word.upper()} {len(rows)}"
        return Outcome(tag, charged=charged) if word == "move" else Outcome(tag, whole.columns, rows, charged=charged)

    async def _copied(self, copying: Copying, values: Sequence[Any]) -> Outcome:
        """An answer as lines of text."""
        whole = await self.run(_asking(copying.question), values)
        if whole.columns is None:
            raise WireRefusal("42601", "only what gives rows can be copied")
        copied = lines(copying, whole.columns, whole.rows)
        return replace(whole, tag=f"COPY {len(whole.rows)}", rows=(), copied=copied)

    def cancel(self) -> None:
        """Take back the question that waits, if it was not begun."""
        self._desk.cancel(self._grant, self._work_name())

    def _question(self, statement: Statement, values: Sequence[Any], sql: str | None = None) -> Question:
        get = self.settings.get
        # A statement that states its own budget is not refused for the session's, which is only the default.
        inside = "differential_privacy" in statement.words
        return Question(
            sql=sql if sql is not None else statement.text,
            epsilon=None if inside else get("deniable.epsilon") or None,
            delta="0" if inside else get("deniable.delta") or "0",
            rho=None if inside else get("deniable.rho") or None,
            purpose=get("deniable.purpose"),
            request=get("deniable.request"),
            confidence=_confidence(get("deniable.confidence")),
            intervals=self.settings.on("deniable.intervals"),
            nonnegative=self.settings.on("deniable.nonnegative"),
            parameters=tuple(values),
        )

    async def _answered(self, statement: Statement, values: Sequence[Any]) -> Outcome:
        self._asked += 1
        answer = await self._desk.answer(self._grant, self._question(statement, values), self._work_name())
        self.settings.reset("deniable.request")
        rows, charged = arrow_rows(answer.rows), answer.receipt is not None
        return Outcome(f"SELECT {len(rows)}", arrow_columns(answer.rows), rows, charged=charged)

    async def _explained(self, statement: Statement, values: Sequence[Any]) -> Outcome:
        place = 1
        options: tuple[str, ...] = ()
        if statement.words[1:2] == ("(",):
            place = statement.words.index(")") + 1 if ")" in statement.words else len(statement.words)
            options = statement.words[2 : place - 1]
        if place >= len(statement.tokens):
            raise WireRefusal("42601", "EXPLAIN needs a question", "Write: EXPLAIN SELECT COUNT(*) FROM ...")
        inner = statement.text[statement.tokens[place].start :]
        told = await self._desk.explain(self._grant, self._question(statement, values, inner))
        lines = [json.dumps(told, default=str)] if "json" in options else plan_lines(told)
        return Outcome("EXPLAIN", (ResultColumn("QUERY PLAN", v.TEXT),), [(line,) for line in lines])

    def _set(self, statement: Statement) -> Outcome:
        if statement.words[0] == "reset":
            name, value = "".join(statement.words[1:]), "default"
        else:
            name, value = assignment(statement)
        default = value.lower() == "default"
        spelled = self.settings.reset(name) if default else self.settings.put(name, value)
        told = ((spelled, self.settings.get(spelled)),) if spelled else ()
        return Outcome(statement.words[0].upper(), statuses=told)

    def _shown(self, statement: Statement) -> tuple[tuple[ResultColumn, ...], list[tuple[Any, ...]]]:
        name = "".join(token.value for token in statement.tokens[1:])
        if name == "all":
            columns = tuple(ResultColumn(each, v.TEXT) for each in ("name", "setting", "description"))
            return columns, list(self.settings.listed())
        name = {"transactionisolationlevel": "transaction_isolation", "timezone": "TimeZone"}.get(name, name)
        return (ResultColumn(name, v.TEXT),), [(self.settings.get(name),)]

    async def _catalog(self, statement: Statement, values: Sequence[Any], rows: bool = True) -> Outcome:
        purpose = self.settings.get("deniable.purpose")
        who = self._desk.asker(self._grant, Action.EXPLAIN, purpose)
        work = partial(self._catalogs.ask, _with_values(statement, values), self._grant.name, self._process, who, rows)
        found = await self._desk.hall(self._grant, work)
        return Outcome(f"SELECT {found.num_rows}", arrow_columns(found), arrow_rows(found))

    def _work_name(self) -> str:
        return f"session {self._process} question {self._asked}"


def _whole(prepared: Prepared) -> Statement:
    return _asking(prepared.statement)


def _asking(statement: Statement | None) -> Statement:
    """A statement that gives rows of its own; one that names others could name itself."""
    if statement is None or statement.words[0] not in _ASKING:
        raise WireRefusal("0A000", "only a question can be prepared, declared or copied")
    return statement


def _confidence(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise WireRefusal("22023", "deniable.confidence is not a number", "SET deniable.confidence = 0.95") from None


def _tag(statement: Statement) -> str:
    if statement.starts("rollback", "to"):
        return "ROLLBACK"
    return _TAGS[statement.words[0]]


def _column(name: str, kind: str) -> ResultColumn:
    oid = v.OF_KIND[kind]
    return ResultColumn(name, oid, v.SIZES.get(oid, -1))


def _with_values(statement: Statement, values: Sequence[Any]) -> Statement:
    """The statement with its parameters filled in."""
    return statements(serving.filled(statement.text, values))[0] if values else statement


def arrow_columns(table: pa.Table) -> tuple[ResultColumn, ...]:
    """The columns of a table: numbers, truths and days as such, everything else as text."""
    return tuple(_column(field.name, _ARROW.get(str(field.type).split("[")[0], "text")) for field in table.schema)


_ARROW = {"bool": "boolean", "double": "decimal", "float": "decimal", "date32": "date", "timestamp": "datetime"} | {
    f"{sign}int{size}": "integer" for sign in ("", "u") for size in (8, 16, 32, 64)
}


def arrow_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a table."""
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
