"""Statements of a session: what each is, which columns it will give, and carrying it out.

    SET, SHOW, RESET      settings of the session            BEGIN, COMMIT, SAVEPOINT ...   accepted, and mean nothing
    EXPLAIN SELECT ...    the privacy plan; nothing runs     questions about the catalog    declared metadata
    anything else         a question: charged, and answered with noise

Nothing is ever undone: a charge stands, whatever a transaction says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from deniable.curator import serving
from deniable.errors import DeniableError
from deniable.governance.grants import Action, Grant
from deniable.server.desk import Desk, Question
from deniable.server.logging import to_stderr
from deniable.server.wire import values as v
from deniable.server.wire.catalog import PublicColumn, PublicTable, frames
from deniable.server.wire.catalog_sql import Surroundings, about_catalog, rewritten
from deniable.server.wire.codec import ResultColumn
from deniable.server.wire.explaining import plan_lines
from deniable.server.wire.lexing import Statement
from deniable.server.wire.refusals import WireRefusal
from deniable.server.wire.settings import Settings, assignment

if TYPE_CHECKING:
    from deniable.engines.base import Engine

CATALOG_SECONDS = 5.0
CATALOG_ROWS = 100_000
_TAGS = {
    "begin": "BEGIN", "start": "START TRANSACTION", "commit": "COMMIT", "end": "COMMIT", "rollback": "ROLLBACK",
    "abort": "ROLLBACK", "savepoint": "SAVEPOINT", "release": "RELEASE", "discard": "DISCARD ALL",
    "deallocate": "DEALLOCATE", "unlisten": "UNLISTEN", "close": "CLOSE CURSOR",
}  # fmt: skip
"""Statements that are accepted and change nothing, with the tag that tools wait for."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a statement gave: rows with their columns, or only a tag; settings the client must be told of."""

    tag: str
    columns: tuple[ResultColumn, ...] | None = None
    rows: Sequence[Sequence[Any]] = ()
    statuses: tuple[tuple[str, str], ...] = ()
    charged: bool = field(default=False)


class Answering:
    """The statements of one session."""

    def __init__(self, desk: Desk, grant: Grant, settings: Settings, process: int) -> None:
        self._desk = desk
        self._grant = grant
        self._process = process
        self._engine: Engine | None = None
        self._tables: tuple[PublicTable, ...] = ()
        self._asked = 0
        self.settings = settings

    async def columns(self, statement: Statement, values: Sequence[Any]) -> tuple[ResultColumn, ...] | None:
        """The columns that a statement will give, or None where it gives no rows. Nothing is charged."""
        word = statement.words[0]
        if word in _TAGS or word in ("set", "reset"):
            return None
        if word == "show":
            return self._shown(statement)[0]
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
        if word == "explain":
            return await self._explained(statement, values)
        if about_catalog(statement):
            return await self._catalog(statement, values)
        return await self._answered(statement, values)

    def cancel(self) -> None:
        """Take back the question that waits, if it was not begun."""
        self._desk.cancel(self._grant, self._work_name())

    def close(self) -> None:
        """Let go of the catalog's engine."""
        if self._engine is not None:
            self._engine.close()

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
        question = self._question(statement, values)
        self._asked += 1
        described = await self._desk.columns(self._grant, question)
        answer = await self._desk.answer(self._grant, question, self._work_name())
        self.settings.reset("deniable.request")
        columns = tuple(_column(column.name, column.kind) for column in described)
        listed = list(zip(*(column.to_pylist() for column in answer.rows.columns), strict=True))
        return Outcome(f"SELECT {len(listed)}", columns, listed, charged=answer.receipt is not None)

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
        engine = await self._desk.hall(self._grant, self._opened)
        names = tuple(table.name for table in self._tables)
        around = Surroundings(self._desk.dataset, self._grant.name, _version(), self._process, names)
        sql = rewritten(statement, around)
        limited = f"SELECT * FROM ({sql}) AS asked LIMIT {CATALOG_ROWS if rows else 0}"  # noqa: S608  gated, sealed

        def work() -> Any:
            return engine.run(limited, list(values) or None, seconds=CATALOG_SECONDS)

        try:
            found = await self._desk.hall(self._grant, work)
        except DeniableError as refusal:
            raise _uncatalogued(refusal) from None
        columns = tuple(_arrow_column(each.name, str(each.type)) for each in found.schema)
        listed = list(zip(*(column.to_pylist() for column in found.columns), strict=True))
        return Outcome(f"SELECT {len(listed)}", columns, listed)

    def _opened(self) -> Engine:
        if self._engine is None:
            who = self._desk.asker(self._grant, Action.EXPLAIN, self.settings.get("deniable.purpose"))
            self._tables = tuple(_public(table) for table in serving.schema(self._desk.curator, who))
            self._engine = serving.engine_of(frames(self._desk.dataset, self._grant.name, self._tables))
        return self._engine

    def _work_name(self) -> str:
        return f"session {self._process} question {self._asked}"


def _version() -> str:
    from deniable import __version__

    return f"PostgreSQL 15.0 (deniable {__version__}: answers have noise)"


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


def _arrow_column(name: str, kind: str) -> ResultColumn:
    """The type of a catalog's column: numbers and truths as such, everything else as text."""
    oid = v.BOOL if kind == "bool" else v.INT8 if kind.startswith(("int", "uint")) else v.TEXT
    if kind in ("double", "float"):
        oid = v.FLOAT8
    return ResultColumn(name, oid, v.SIZES.get(oid, -1))


def _uncatalogued(refusal: DeniableError) -> WireRefusal:
    if refusal.code == "stopped":
        return WireRefusal("57014", "the question about the catalog took too long")
    to_stderr("a question about the catalog was not understood")
    return WireRefusal("0A000", "this question about the catalog is not supported", "Tables and columns: \\d")


def _public(table: dict[str, Any]) -> PublicTable:
    columns = [PublicColumn(each["column"], each["type"], each["nullable"], _told(each)) for each in table["columns"]]
    told = "public: rows may be read as they are" if table["public"] else f"protects {table['unit']}"
    return PublicTable(table["table"], tuple(columns), told)


def _told(column: dict[str, Any]) -> str:
    parts = [column["role"]]
    if column["between"]:
        parts.append(f"between {column['between'][0]} and {column['between'][1]}")
    if column["categories"]:
        parts.append(f"{len(column['categories'])} categories")
    return ", ".join(parts)
