"""Listening: TLS, the start of a session, the token as password, cancel requests, and a bound on connections.

The password is the token. It is asked for in clear text, so it is asked for only inside TLS or on a loopback address
or a Unix socket: elsewhere a client without TLS is refused before it can send one.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import ssl
import time
from ipaddress import ip_address

from deniable.errors import AccessRefused
from deniable.governance.grants import Action, Grant
from deniable.server.limits import Connections, wait_for_quantum
from deniable.server.refusals import translate_failure
from deniable.server.service import Service
from deniable.server.wire import codec
from deniable.server.wire.catalog_queries import CatalogEngine
from deniable.server.wire.codec import MessageReader, ProtocolViolation, WireRefusal, describe_error
from deniable.server.wire.session import Session
from deniable.server.wire.settings import Settings
from deniable.server.wire.statements import StatementRunner

START_SECONDS = 15.0
BUFFER = 2 * codec.MOST_BYTES


class Listener:
    """The PostgreSQL entry point of a service."""

    def __init__(self, service: Service, tls: ssl.SSLContext | None = None, channel: bytes = b"") -> None:
        self._service = service
        self._tls = tls
        self._channel = channel
        self._catalog_engine = CatalogEngine(service.curator)
        self._sessions: dict[tuple[int, int], Session] = {}
        self._connections = Connections(service.limits.connections)
        self._process = 1000
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, host: str, port: int) -> int:
        """Listen; the port comes back, which the system chose if it was 0."""
        self._server = await asyncio.start_server(self._serve_connection, host, port, limit=BUFFER)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close every connection."""
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._catalog_engine.close()

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if not self._connections.enter(task, _read_address(writer), writer.transport.abort):
                raise WireRefusal("53300", "too many connections", "Try again later")
            await self._hold_conversation(reader, writer)
        except (ProtocolViolation, WireRefusal) as violation:
            refusal = violation if isinstance(violation, WireRefusal) else WireRefusal("08P01", str(violation))
            _write_last(writer, describe_error(refusal, severity="FATAL"))
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError, ssl.SSLError, asyncio.CancelledError):
            pass  # the client is gone, was silent for too long, or the server stops
        except Exception as failure:
            _write_last(writer, describe_error(translate_failure(failure), severity="FATAL"))
        finally:
            self._connections.leave(task)
            self._tasks.discard(task)
            await _close_connection(writer)

    async def _hold_conversation(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        start = await asyncio.wait_for(self._start(reader, writer), START_SECONDS)
        if start is None:
            return
        since = time.monotonic()
        try:
            grant = await asyncio.wait_for(self._admit(reader, writer, start.get("user", "")), START_SECONDS)
            purpose = _choose_purpose(grant)
            self._service.authorize(grant, Action.EXPLAIN, purpose)
            self._connections.admit(asyncio.current_task(), grant.name)
        except (ProtocolViolation, WireRefusal, ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            raise
        except Exception as failure:
            await wait_for_quantum(since, self._service.limits.quantum)
            shown = describe_error(translate_failure(failure), severity="FATAL")
            # A token that does not count is a wrong password; who is to wait, or a ledger that is busy, is told so.
            writer.write(codec.encode_report(shown | ({"C": "28P01"} if isinstance(failure, AccessRefused) else {})))
            return
        await self._talk(reader, writer, grant, purpose, start)

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> Grant:
        """Who connects: by a proof where the name has a token that can be proved, else by the token as password."""
        secured = writer.get_extra_info("ssl_object") is not None
        exchange = await self._service.begin_exchange(name, self._channel if secured else b"")
        if exchange is None:
            return await self._service.admit(await _ask_password(reader, writer), _read_address(writer))
        writer.write(codec.encode_sasl_mechanisms(exchange.mechanisms))
        await writer.drain()
        first = await _read_answer(reader)
        chosen = first.text()
        if chosen not in exchange.mechanisms:
            raise ProtocolViolation("another way of authentication was chosen than was offered")
        length = first.int32()
        writer.write(codec.encode_sasl_challenge(exchange.first(first.take(length), chosen)))
        first.end()
        await writer.drain()
        grant, proof = self._service.admit_proof(exchange, (await _read_answer(reader)).rest(), _read_address(writer))
        writer.write(codec.encode_sasl_outcome(proof))
        return grant

    async def _start(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> dict[str, str] | None:
        """The options of the startup message, after TLS if the client wants it; None after a cancel request."""
        for _ in range(3):
            first = await codec.read_startup(reader)
            version = first.int32()
            if version == codec.SSL:
                await self._secure(reader, writer)
            elif version == codec.GSS:
                writer.write(b"N")
                await writer.drain()
            elif version == codec.CANCEL:
                self._cancel(first)
                return None
            else:
                return self._options(version, first, writer)
        raise ProtocolViolation("the session does not start")

    async def _secure(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._tls is None:
            writer.write(b"N")
            await writer.drain()
            return
        # What arrived before the handshake was not protected by it, and must not be taken for what is.
        if getattr(reader, "_buffer", b""):
            raise ProtocolViolation("unencrypted bytes came before the TLS handshake")
        writer.write(b"S")
        await writer.drain()
        await writer.start_tls(self._tls, ssl_handshake_timeout=START_SECONDS)

    def _options(self, version: int, first: MessageReader, writer: asyncio.StreamWriter) -> dict[str, str]:
        if version >> 16 != 3:
            raise ProtocolViolation("only version 3 of the protocol is spoken")
        if writer.get_extra_info("ssl_object") is None and not _is_local(_read_address(writer)):
            raise WireRefusal("28000", "a token may not travel unencrypted", "Connect with sslmode=require")
        options: dict[str, str] = {}
        while (name := first.text()) != "":
            options[name] = first.text()
        first.end()
        unknown = [name for name in options if name.startswith("_pq_.")]
        if unknown or version & 0xFFFF:
            writer.write(codec.encode_negotiate_version(unknown))
        asked = options.get("database") or options.get("user", "")
        if asked != self._service.dataset:
            raise WireRefusal("3D000", f'database "{asked}" does not exist', f"It is called {self._service.dataset}")
        return options

    def _cancel(self, first: MessageReader) -> None:
        process, secret = first.int32(), first.int32() & 0xFFFFFFFF
        session = self._sessions.get((process, secret))
        if session is not None:
            session.cancel()

    async def _talk(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        grant: Grant,
        purpose: str,
        options: dict[str, str],
    ) -> None:
        self._process = self._process % 1_000_000_000 + 1
        key = (self._process, secrets.randbits(32))
        settings = Settings(grant.name, purpose)
        _apply_startup_settings(settings, options)
        settings.open()
        answering = StatementRunner(self._service, self._catalog_engine, grant, settings, key[0])
        session = Session(reader, writer, answering, self._service.limits.quantum)
        self._sessions[key] = session
        writer.write(codec.AUTHENTICATION_OK)
        for name, value in settings.take_reports():
            writer.write(codec.encode_parameter_status(name, value))
        writer.write(codec.encode_backend_key(*key))
        try:
            await session.talk()
        finally:
            del self._sessions[key]


async def _ask_password(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    writer.write(codec.CLEARTEXT_PASSWORD)
    await writer.drain()
    content = await _read_answer(reader)
    token = content.text()
    content.end()
    return token


async def _read_answer(reader: asyncio.StreamReader) -> MessageReader:
    letter, content = await codec.read_message(reader)
    if letter != "p":
        raise ProtocolViolation("a password was expected")
    return content


def _choose_purpose(grant: Grant) -> str:
    return grant.purposes[0] if grant.purposes else ""


_OPTION = re.compile(r"(?:\\.|[^\\\s])+")
"""A word of `options`: a backslash keeps a blank in it."""


def _apply_startup_settings(settings: Settings, options: dict[str, str]) -> None:
    """Settings of the startup message: those sent by name, and those after -c in `options`.

    What tools send for PostgreSQL alone is passed over; a setting of our own that is wrong ends the session.
    """
    named = {
        name: value for name, value in options.items() if name not in ("user", "database", "options", "replication")
    }
    for word in _OPTION.findall(options.get("options", "")):
        name, equal, value = re.sub(r"\\(.)", r"\1", word).partition("=")
        if equal:
            named[name.removeprefix("--").removeprefix("-c")] = value
    for name, value in named.items():
        with contextlib.suppress(*(() if name.lower().startswith("deniable.") else (WireRefusal,))):
            settings.put(name, value)


def _read_address(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) and peer else "local"


def _is_local(address: str) -> bool:
    return address == "local" or ip_address(address.split("%")[0]).is_loopback


def _write_last(writer: asyncio.StreamWriter, report: dict[str, str]) -> None:
    """Tell why the connection ends, if there still is somebody to tell."""
    if not writer.transport.is_closing():
        writer.write(codec.encode_report(report))


async def _close_connection(writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(Exception):
        await asyncio.wait_for(writer.drain(), 1)
    writer.close()
    with contextlib.suppress(Exception):
        await asyncio.wait_for(writer.wait_closed(), 1)
