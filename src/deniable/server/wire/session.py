"""One session after its start: the simple and the extended query protocol, errors, and cancelling.

After an error of the extended protocol everything up to the next Sync is skipped, as the protocol says. A portal runs
once, when it is first executed, and hands out its rows in as many pieces as the client asks for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from deniable.errors import UNKNOWN, Cancelled, Stopped
from deniable.query.sql.lexer import Statement
from deniable.server.limits import wait_for_quantum
from deniable.server.refusals import translate_failure
from deniable.server.wire import codec, values
from deniable.server.wire.codec import (
    MessageReader,
    ProtocolViolation,
    ResultColumn,
    Rows,
    StatementResult,
    WireRefusal,
    describe_error,
)
from deniable.server.wire.prepared_statements import Portal, Prepared, infer_types
from deniable.server.wire.statements import StatementRunner

IDLE_SECONDS = 3600.0
WRITE_SECONDS = 300.0
"""How long a client may leave what is sent to it unread."""
END_SECONDS = 2.0
"""How long a question that was cancelled may take to end."""
CHARGES_STAY = {
    "S": "NOTICE",
    "V": "NOTICE",
    "C": "00000",
    "M": "answers cannot be unseen: what was charged stays charged",
}
_TIMED = ("select", "with", "values", "table", "(", "explain", "fetch", "move", "execute", "copy")
"""Statements that `statement_timeout` stops; a session can always change it."""
_ENDS = ("commit", "end", "rollback", "abort")
_SAMPLES: dict[int, Any] = {values.BOOL: True, values.FLOAT4: 1, values.FLOAT8: 1, values.NUMERIC: 1}


class ClientLeft(ConnectionError):
    """The client is gone, or does not read what is sent to it."""


class Session:
    """One client's conversation."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answering: StatementRunner, quantum: float
    ) -> None:
        self._reader, self._writer = reader, writer
        self._runner = answering
        self._quantum = quantum
        self._statements = answering.statements
        self._settings = answering.settings
        self._status = "I"
        self._skipping = self._several = False
        self._charged = self._expired = False
        self._place: Statement | None = None
        """What a refusal's position points into; values that were filled in move positions, so there is none then."""
        self._running: asyncio.Task[StatementResult] | None = None

    async def talk(self) -> None:
        """Answer messages until the client leaves."""
        self._send_ready()
        while True:
            await self._flush()
            letter, content = await asyncio.wait_for(codec.read_message(self._reader), IDLE_SECONDS)
            if letter == "X":
                return
            await self._dispatch_message(letter, content)

    def cancel(self) -> None:
        """Stop what runs. A question that was begun ends soon, and its refusal knows whether it was charged."""
        self._runner.cancel()
        if self._running is not None:
            asyncio.get_running_loop().call_later(END_SECONDS if self._runner.asking else 0, self._running.cancel)

    async def _dispatch_message(self, letter: str, content: MessageReader) -> None:
        if letter == "S":
            self._skipping = False
            self._send_ready()
        elif letter == "Q":
            self._skipping = False
            await self._run_simple(content)
        elif letter in "PBDECHF" and not self._skipping:
            await self._run_extended(letter, content)
        elif letter not in "PBDECHFdcfp":
            raise ProtocolViolation("a message has an unknown letter")

    async def _run_simple(self, content: MessageReader) -> None:
        sql = content.text()
        content.end()
        since, self._place = time.monotonic(), None
        try:
            found = await self._runner.split(sql)
            if not found:
                self._send(codec.EMPTY_QUERY)
            if self._status == "I":
                self._settings.begin()  # what is sent at once is undone at once
            self._several = len(found) > 1
            for statement in found:
                outcome = await self._run(statement, ())
                if outcome.columns is not None and outcome.copied is None:
                    self._send(codec.encode_row_description(outcome.columns, [0] * len(outcome.columns)))
                await self._send_rows(outcome, outcome.rows, [0] * len(outcome.columns or ()))
                await self._finish(outcome, since)
                await self._flush()
            if self._status == "I":
                self._settings.commit()
        except ClientLeft:
            raise
        except Exception as failure:
            if self._status == "I":
                self._settings.roll_back()
            await self._refuse(failure, since)
        self._send_ready()

    async def _run_extended(self, letter: str, content: MessageReader) -> None:
        since, self._place = time.monotonic(), None
        try:
            match letter:
                case "P":
                    await self._parse(content)
                case "B":
                    self._bind(content)
                case "D":
                    await self._describe(content)
                case "E":
                    await self._execute(content, since)
                case "C":
                    self._close(content)
                case "F":
                    raise WireRefusal("0A000", "function calls are not supported", "Ask with SELECT")
                case _:
                    content.end()  # Flush: everything is sent at once anyway
        except (ProtocolViolation, ClientLeft):
            raise
        except Exception as failure:
            self._skipping = True
            await self._refuse(failure, since)

    async def _parse(self, content: MessageReader) -> None:
        name, sql = content.text(), content.text()
        oids = tuple(content.int32() for _ in range(content.int16()))
        content.end()
        found = await self._runner.split(sql)
        if len(found) > 1:
            raise WireRefusal("42601", "cannot insert multiple commands into a prepared statement")
        statement = found[0] if found else None
        self._check_transaction(statement)
        columns = self._runner.column_types if "$" in sql else {}
        types = await self._runner.take_turn(len(sql), lambda: infer_types(statement, oids, columns))
        self._statements.prepare(name, Prepared(statement, types))
        self._send(codec.PARSE_COMPLETE)

    def _bind(self, content: MessageReader) -> None:
        portal, name = content.text(), content.text()
        prepared = self._statements.statement(name)
        formats = [content.int16() for _ in range(content.int16())]
        raw = [_read_raw(content) for _ in range(content.int16())]
        shown = tuple(content.int16() for _ in range(content.int16()))
        content.end()
        if len(raw) != len(prepared.oids):
            raise WireRefusal("08P01", f"{len(raw)} values were bound, and the statement has {len(prepared.oids)}")
        if len(formats) not in (0, 1, len(raw)) or any(each not in (0, 1) for each in (*formats, *shown)):
            raise WireRefusal("08P01", "the formats of the values do not fit")
        spread = _spread_formats(formats, len(raw))
        bound = tuple(
            values.decode_value(value, oid, binary == 1, i + 1)
            for i, (value, oid, binary) in enumerate(zip(raw, prepared.oids, spread, strict=True))
        )
        self._statements.open(portal, Portal(prepared, bound, shown))
        self._send(codec.BIND_COMPLETE)

    async def _describe(self, content: MessageReader) -> None:
        kind, name = content.take(1), content.text()
        content.end()
        if kind == b"S":
            prepared = self._statements.statement(name)
            self._send(codec.encode_parameter_description(prepared.oids))
            samples = tuple(_SAMPLES.get(oid, _make_sample(oid)) for oid in prepared.oids)
            self._statements.refuse_columns()
            columns = await self._describe_columns(prepared, samples)
            prepared.describe(columns)
            self._send(codec.NO_DATA if columns is None else codec.encode_row_description(columns, [0] * len(columns)))
            return
        portal = self._statements.portal(name)
        self._statements.refuse_columns()
        columns = await self._describe_columns(portal.prepared, portal.values)
        portal.describe(columns)
        spread = [] if columns is None else _spread_formats(portal.formats, len(columns))
        self._send(codec.NO_DATA if columns is None else codec.encode_row_description(columns, spread))

    async def _describe_columns(self, prepared: Prepared, bound: Sequence[Any]) -> tuple[ResultColumn, ...] | None:
        self._place = None if bound else prepared.statement
        return None if prepared.statement is None else await self._runner.columns(prepared.statement, bound)

    async def _execute(self, content: MessageReader, since: float) -> None:
        name, most = content.text(), content.int32()
        content.end()
        portal = self._statements.portal(name)
        if portal.prepared.statement is None:
            self._send(codec.EMPTY_QUERY)
            return
        outcome = portal.outcome
        if outcome is None:
            self._statements.refuse_rows()
            await self._hold_to_description(portal)
            outcome = await self._run(portal.prepared.statement, portal.values)
            portal.keep(outcome)
        elif portal.prepared.statement.words[0] == "copy":
            raise WireRefusal("55000", f'portal "{name}" cannot be run', "Lines are copied out once: bind it again")
        rows = portal.take(most if most > 0 else None)
        if portal.columns is not None and len(portal.columns) == len(outcome.columns or ()):
            outcome = replace(outcome, columns=portal.columns)
        await self._send_rows(outcome, rows, _spread_formats(portal.formats, len(outcome.columns or ())))
        if portal.has_rows:
            self._send(codec.PORTAL_SUSPENDED)
            return
        await self._finish(outcome, since)

    async def _hold_to_description(self, portal: Portal) -> None:
        """Have a portal give the columns that its client was told of the statement; refused, uncharged, if it cannot.

        Clients read binary values by these types, and a sum of whole numbers may come as a whole number or not.
        """
        told = portal.prepared.columns
        if told is None or portal.columns is not None:
            return
        if await self._describe_columns(portal.prepared, portal.values) != told:
            raise WireRefusal(
                "0A000",
                "cached plan must not change result type",
                "Prepare the statement again: a setting has changed its columns. Nothing was asked or charged",
            )
        portal.describe(told)

    def _close(self, content: MessageReader) -> None:
        kind, name = content.take(1), content.text()
        content.end()
        (self._statements.prepared if kind == b"S" else self._statements.portals).pop(name, None)
        self._send(codec.CLOSE_COMPLETE)

    async def _run(self, statement: Statement, bound: Sequence[Any]) -> StatementResult:
        self._place, self._expired = None if bound else statement, False
        self._check_transaction(statement)
        self._check_block(statement)
        timed = statement.words[0] in _TIMED
        limit = self._settings.read_seconds("statement_timeout") if timed else 0
        timer = asyncio.get_running_loop().call_later(limit, self._expire) if limit else None
        try:
            outcome = await self._wait_for(statement, bound)
        except Cancelled as failure:
            if not self._expired:
                raise
            happened, remedy = (
                "canceling statement due to statement timeout",
                "Raise statement_timeout, or ask for less",
            )
            raise Stopped(happened, remedy=remedy, charge=failure.charged) from None
        finally:
            if timer is not None:
                timer.cancel()
        return self._turn(statement, outcome)

    def _expire(self) -> None:
        """Stop what runs: the session's own time for a statement is up."""
        self._expired = True
        self.cancel()

    async def _wait_for(self, statement: Statement, bound: Sequence[Any]) -> StatementResult:
        self._running = asyncio.ensure_future(self._runner.run(statement, bound))
        try:
            return await self._running
        except asyncio.CancelledError:
            if self._running.cancelled():
                raise Cancelled(
                    "the statement was cancelled", charge=UNKNOWN if self._runner.asking else None
                ) from None
            raise
        finally:
            self._running = None

    def _check_transaction(self, statement: Statement | None) -> None:
        """After an error nothing is answered until the transaction is ended, as clients of PostgreSQL expect."""
        if self._status == "E" and (statement is None or statement.words[0] not in _ENDS):
            happened = "current transaction is aborted, commands ignored until end of transaction block"
            raise WireRefusal("25P02", happened, "End it with ROLLBACK; nothing was asked or charged")

    def _check_block(self, statement: Statement) -> None:
        """Some statements stand in a transaction only, and one never does."""
        words = statement.words
        kept = words[0] == "declare" and "hold" in words and "without" not in words
        wanted = {"savepoint": "SAVEPOINT", "release": "RELEASE SAVEPOINT", "declare": "DECLARE CURSOR"}.get(words[0])
        wanted = "ROLLBACK TO SAVEPOINT" if words[0] in _ENDS and "to" in words else wanted
        if self._status == "I" and wanted and not kept and not (self._several and words[0] == "declare"):
            raise WireRefusal("25P01", f"{wanted} can only be used in transaction blocks", "Write BEGIN before it")
        if self._status == "T" and statement.starts("discard", "all"):
            raise WireRefusal("25001", "DISCARD ALL cannot run inside a transaction block", "Write COMMIT before it")

    def _turn(self, statement: Statement, outcome: StatementResult) -> StatementResult:
        """Inside or outside a transaction; what was charged inside stays charged, and a notice says so."""
        word, name = statement.words[0], statement.words[-1]
        if word in ("begin", "start"):
            level = _read_level(statement.words) if "level" in statement.words else ""
            if self._status == "I":
                self._settings.begin()
                self._status, self._charged = "T", False
            if level:
                self._settings.put("transaction_isolation", level, local=True)
        elif word in _ENDS and "to" in statement.words:
            self._settings.roll_back_to(name)
            self._status = "T"
        elif word in _ENDS:
            undone = word in ("rollback", "abort") or self._status == "E"
            if undone and self._charged:
                self._send(codec.encode_report(CHARGES_STAY, "N"))
            if undone:
                self._settings.roll_back()
                outcome = replace(outcome, tag="ROLLBACK")
            else:
                self._settings.commit()
            self._statements.end_transaction(undone=undone and self._status != "I")
            self._status, self._charged = "I", False
        elif word == "savepoint":
            self._settings.save(name)
        elif word == "release":
            self._settings.release(name)
        elif statement.starts("discard", "all"):
            self._statements.prepared.clear()
            self._statements.portals.clear()
        return outcome

    async def _send_rows(self, outcome: StatementResult, rows: Rows, formats: Sequence[int]) -> None:
        if outcome.columns is None:
            return
        if outcome.copied is not None:
            self._send(codec.encode_copy_out(len(outcome.columns), outcome.binary))
            await self._send_each((codec.encode_copy_line(line) for line in outcome.copied), len(outcome.columns))
            self._send(codec.COPY_DONE)
            return
        write = [values.choose_encoder(c.oid, form == 1) for c, form in zip(outcome.columns, formats, strict=True)]
        encoded = (codec.encode_data_row([each(value) for each, value in zip(write, row, strict=True)]) for row in rows)
        await self._send_each(encoded, len(outcome.columns))

    async def _send_each(self, messages: Iterable[bytes], cells: int) -> None:
        """Write messages of so many cells each; piece by piece others have their turn, and the client reads them."""
        count = size = 0
        for message in messages:
            self._send(message)
            count, size = count + max(cells, 1), size + len(message)
            if count >= codec.PIECE_CELLS or size >= codec.PIECE_BYTES:
                count = size = 0
                await self._flush()

    async def _finish(self, outcome: StatementResult, since: float) -> None:
        if outcome.charged:
            self._charged = True
            await wait_for_quantum(since, self._quantum)
        self._send(codec.encode_command_complete(outcome.tag))

    async def _refuse(self, failure: Exception, since: float) -> None:
        self._status = "E" if self._status == "T" else self._status
        await self._runner.recall_charge(failure)
        shown = failure if isinstance(failure, WireRefusal) else translate_failure(failure)
        text, start = (self._place.text, self._place.start) if self._place else ("", 0)
        await wait_for_quantum(since, self._quantum)
        self._send(codec.encode_report(describe_error(shown, text, offset=start)))

    def _send_ready(self) -> None:
        """The client may go on; it is told before which settings have changed."""
        for name, value in self._settings.take_reports():
            self._send(codec.encode_parameter_status(name, value))
        self._send(codec.encode_ready(self._status))

    def _send(self, message: bytes) -> None:
        if self._writer.transport.is_closing():
            raise ClientLeft
        self._writer.write(message)

    async def _flush(self) -> None:
        """Wait until the client has read most of what was sent to it; others go on meanwhile."""
        try:
            await asyncio.wait_for(self._writer.drain(), WRITE_SECONDS)
        except (ConnectionError, TimeoutError):
            raise ClientLeft from None
        await asyncio.sleep(0)


def _read_level(words: tuple[str, ...]) -> str:
    """The level of BEGIN ISOLATION LEVEL, which is shown and changes nothing: what is asked reads what is there."""
    wanted = " ".join(words[words.index("level") + 1 :])
    for level in ("serializable", "repeatable read", "read committed", "read uncommitted"):
        if wanted.startswith(level):
            return level
    raise WireRefusal("42601", "this isolation level is not known", "Write: BEGIN ISOLATION LEVEL SERIALIZABLE")


def _read_raw(content: MessageReader) -> bytes | None:
    length = content.int32()
    return None if length == -1 else content.take(length)


def _spread_formats(formats: Sequence[int], count: int) -> list[int]:
    """One format for all, or one for each; none at all is text."""
    if len(formats) <= 1:
        return [formats[0] if formats else 0] * count
    if len(formats) != count:
        raise WireRefusal("08P01", "the formats of the columns do not fit")
    return list(formats)


def _make_sample(oid: int) -> Any:
    """A value of a type, to learn which columns a statement gives before its values are known."""
    import datetime

    if oid in values.ARRAYS:
        inner = values.ARRAYS[oid]
        return [_SAMPLES.get(inner, _make_sample(inner))]
    moments = {values.DATE: datetime.date(2000, 1, 1), values.TIMESTAMP: datetime.datetime(2000, 1, 1)}
    return moments.get(oid, 1 if oid in values.INTEGERS else "a")
