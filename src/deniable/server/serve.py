"""Serve a policy: analysts' HTTP, the steward's HTTP, and PostgreSQL, in one process and with one ledger; or a survey.

Everything listens on a loopback address unless told otherwise. The first start of a policy has no steward's token yet:
it prints a link that makes the one who opens it the steward, once. Nothing of the extra `server` is imported before a
server starts, so that a missing extra is a refusal with a remedy."""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from deniable.curator.context import ledger_of
from deniable.curator.curator import Curator
from deniable.errors import NOTHING_CHARGED, DeniableError, MissingExtra, ParameterError, StorageError
from deniable.policy.document import read
from deniable.server.limits import LOOPBACK, Connections, Limits, is_address
from deniable.server.monitoring import Log, log_to_stderr
from deniable.server.service import Fulfillment, Service
from deniable.server.worker_pool import SWITCH_SECONDS, WorkerPool, limit_patience, silence_parser

if TYPE_CHECKING:
    from deniable.localdp.survey.service import SurveyService
    from deniable.server.oidc import Verifier


EXPIRY_SECONDS = 3600.0
WATCHED_SECONDS = 20.0
"""How often a server looks whether its policy file was edited."""
SHARE_SECONDS = 5.0
"""How often a server looks how many others share its ledger."""
MOST_PORT = 65_535
BACKLOG = 256
"""Connections that wait to be accepted: fewer than what an address may hold, so that none is closed unread."""


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where a server listens; port 0 lets the system choose, and None leaves PostgreSQL out."""

    host: str = "127.0.0.1"
    port: int = 8400
    steward: str = "127.0.0.1:8401"
    """An address with a port, or the path of a Unix socket."""
    postgres: int | None = 5433
    certificate: Path | None = None
    key: Path | None = None
    hosts: tuple[str, ...] = ()
    """Names under which clients reach the server, beside loopback."""
    issuer: Path | None = None
    """A file that describes an issuer of OpenID Connect, whose tokens count as well."""


@dataclass(slots=True)
class RunningServer:
    """A server that listens: its real ports, and the one-time link if this is a first start."""

    http: int
    steward: str
    postgres: int | None
    link: str | None


def serve(policy: Path, ledger: str | None, options: ServerOptions, limits: Limits, log: Log = log_to_stderr) -> None:
    """Serve until told to stop with Ctrl-C or SIGTERM."""
    place = ledger_of(policy, ledger)
    _require_tls(options)
    with Curator.open(policy, ledger=place) as curator, contextlib.ExitStack() as stack:
        pool = WorkerPool(curator.policy, place, limits.processes) if limits.processes else None
        if pool is not None:
            stack.callback(pool.close)
        run(_run_until_stopped(curator, options, limits, log, pool, Fulfillment(policy, place)))


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run the server's loop: uvloop where it is installed, which is about twice as fast."""
    sys.setswitchinterval(SWITCH_SECONDS)
    heard = {number: signal.getsignal(number) for number in STOPS}
    try:
        import uvloop
    except ImportError:
        asyncio.run(work)
    else:
        uvloop.run(work)
    for number, before in heard.items():  # the loop's end leaves none
        signal.signal(number, before)


async def _run_until_stopped(
    curator: Curator,
    options: ServerOptions,
    limits: Limits,
    log: Log,
    pool: WorkerPool | None,
    fulfillment: Fulfillment,
) -> None:
    stopping = asyncio.Event()
    _stop_on_signals(stopping)
    async with contextlib.AsyncExitStack() as stack:
        running = await start(stack, curator, options, limits, log, pool, fulfillment)
        announce(running, curator, options, log)
        await stopping.wait()
        log("stopping: what was begun is finished first")


STOPS = (signal.SIGINT, signal.SIGTERM)


def _stop_on_signals(stopping: asyncio.Event) -> None:
    """Let Ctrl-C and the system's wish to stop set the event; Windows' loops know no handlers, but its processes do."""
    loop = asyncio.get_running_loop()
    for number in STOPS:
        try:
            loop.add_signal_handler(number, stopping.set)
        except NotImplementedError:
            signal.signal(number, lambda *_: loop.call_soon_threadsafe(stopping.set))


def announce(running: RunningServer, curator: Curator, options: ServerOptions, log: Log) -> None:
    """Say where the server listens."""
    scheme = "https" if options.certificate else "http"
    log(f"serving dataset '{curator.policy.dataset}'; stop with Ctrl-C")
    log(f"analysts   {scheme}://{options.host}:{running.http}/")
    log(f"steward    {running.steward}")
    if running.postgres is not None:
        log(f"PostgreSQL psql -h {options.host} -p {running.postgres} {curator.policy.dataset}   (password: a token)")
    if running.link:
        log(f"first start: open this link once to become the steward: {running.link}")


async def start(
    stack: contextlib.AsyncExitStack,
    curator: Curator,
    options: ServerOptions,
    limits: Limits,
    log: Log = log_to_stderr,
    pool: WorkerPool | None = None,
    fulfillment: Fulfillment | None = None,
) -> RunningServer:
    """Listen on every port; the stack closes them."""
    with _require_extra():
        from deniable.server.http.app import build_analyst_app, build_steward_app
        from deniable.server.monitoring import Metrics
        from deniable.server.workbench.steward import OneTimeKey, has_steward
    from deniable.server.wire.listener import Listener

    _require_tls(options)
    tls = _load_tls(options)
    limit_patience(curator)
    silence_parser()
    service, metrics = Service(curator, limits, pool, fulfillment, log, _open_verifier(options, curator)), Metrics()
    stack.callback(service.close_threads)
    stack.push_async_callback(service.close_guests)
    first, text = OneTimeKey.new() if not has_steward(curator.context) else (OneTimeKey(), "")
    scheme = "https" if tls else "http"
    named, agents = _list_hosts(options.host, options), _open_agents(stack, service)
    analysts = build_analyst_app(service, metrics, hosts=named, tls=bool(tls), agents=agents)
    http = await _listen(stack, analysts, options, options.port, limits)
    named = _list_hosts(_steward_host(options) or "127.0.0.1", options)
    steward = build_steward_app(service, metrics, first=first, hosts=named, tls=bool(tls))
    where = await _listen_steward(stack, steward, options, scheme, limits)
    postgres = None
    if options.postgres is not None:
        listener = Listener(service, tls, _read_channel(options))
        with _refuse_unusable_port(options.host, options.postgres):
            postgres = service.postgres = await listener.start(options.host, options.postgres)
        stack.push_async_callback(listener.stop)
        metrics.add_gauge(
            "deniable_postgres_connections", "PostgreSQL clients connected.", lambda: listener.connections
        )
    metrics.add_gauge("deniable_waiting", "Questions that are worked on or wait.", lambda: service.scheduler.waiting)
    watched = () if fulfillment is None else (_watch_policy(fulfillment.policy, curator.policy.hash, log),)
    for work in (_forget_expired(service, log), _share_limits(service), *watched):
        stack.callback(asyncio.create_task(work).cancel)
    service.resume_releases()
    return RunningServer(http, where, postgres, f"{where.rstrip('/')}/first/{text}" if text else None)


def _open_agents(stack: contextlib.AsyncExitStack, service: Service) -> Any:
    """Where AI assistants ask, if the extra is installed."""
    from deniable.server import agents

    if not agents.is_available():
        return None
    application = agents.AgentApp(service)
    running = asyncio.create_task(application.run())
    stack.push_async_callback(_end_task, running)
    return application


async def _end_task(task: asyncio.Task[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def serve_agent(policy: Path, ledger: str | None, token: str, limits: Limits) -> None:
    """Serve the holder of a token, an AI assistant, through standard input and output until the input ends."""
    with _require_extra():
        from deniable.server import agents

    with Curator.open(policy, ledger=ledger_of(policy, ledger)) as curator:
        service = Service(curator, limits)
        try:
            await agents.serve_stdio(service, token)
        finally:
            service.close_threads()


async def _share_limits(service: Service) -> None:
    """Divide the limits of askers among the servers that share the ledger, as they come and go."""
    while True:
        with contextlib.suppress(StorageError):  # a ledger that cannot be read says so to whoever asks something
            await service.share_limits()
        await asyncio.sleep(SHARE_SECONDS)


async def _forget_expired(service: Service, log: Log) -> None:
    """Forget stored answers once the policy's term is over, now and every hour."""
    while True:
        forgotten = await service.scheduler.run("terms", service.forget)
        if forgotten:
            log(f"the policy has expired: {forgotten} stored answers were forgotten; the ledger stays")
        await asyncio.sleep(EXPIRY_SECONDS)


async def _watch_policy(policy: Path, opened: str, log: Log, every: float = WATCHED_SECONDS) -> None:
    """Say when the file is another policy than the opened one, of that hash, which all answers of a server follow."""
    seen = opened
    while True:
        found = await asyncio.to_thread(_hash_policy, policy)
        if found not in (seen, opened):
            log(f"{policy.name} was edited: this server goes on with the policy it opened; restart it for the new one")
        seen = found
        await asyncio.sleep(every)


def _hash_policy(path: Path) -> str:
    """The hash of the policy in a file; nothing where it holds none."""
    with contextlib.suppress(DeniableError, OSError):
        return read(path).hash
    return ""


def _list_hosts(host: str, options: ServerOptions) -> frozenset[str] | None:
    """The names under which a port may be asked; None where it is open to other machines and none was named."""
    loopback = _is_loopback(host)
    return LOOPBACK | set(options.hosts) | {host} if loopback or options.hosts else None


async def _listen(
    stack: contextlib.AsyncExitStack, application: Any, options: ServerOptions, port: int, limits: Limits, **where: Any
) -> int:
    """Start one HTTP server, and say its port (0 for a Unix socket)."""
    import uvicorn

    config = uvicorn.Config(
        application, host=options.host, port=port, **where, http=_build_protocol(limits),
        log_config=None, access_log=False, server_header=False, date_header=False, proxy_headers=False,
        lifespan="off", timeout_keep_alive=30, backlog=BACKLOG, h11_max_incomplete_event_size=16_384,
        ssl_certfile=options.certificate, ssl_keyfile=options.key, timeout_graceful_shutdown=5,
    )  # fmt: skip
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    server.lifespan.state["connections"] = Connections(_count_room(limits))
    with _refuse_unusable_port(options.host, port):
        await server.startup()
    task = asyncio.create_task(server.main_loop())

    async def stop() -> None:
        server.should_exit = True
        await task
        await server.shutdown()

    stack.push_async_callback(stop)
    names = [socket.getsockname() for each in server.servers for socket in each.sockets]
    return int(names[0][1]) if names and isinstance(names[0], tuple) else 0


def _count_room(limits: Limits) -> int:
    """How many connections a port takes: never so many that the process has no files left for its own work."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return limits.http_connections
    return max(8, min(limits.http_connections, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))


def _build_protocol(limits: Limits) -> type[asyncio.Protocol]:
    """The protocol of a new connection: it holds what comes until the headers are whole, and then becomes uvicorn's."""

    class WaitingProtocol(asyncio.Protocol):
        """A connection without a whole request. It has no parser yet: thousands of them cost little.

        It is closed when its headers take too long, or when it must make room.
        """

        def __init__(self, **given: Any) -> None:
            self._given, self._held = given, b""
            self._state, self._open = given["app_state"]["connections"], given["server_state"].connections
            self._key: tuple[str, int] | None = None

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self._transport = cast(asyncio.Transport, transport)
            self._open.add(self)
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(limits.header_seconds, self._transport.abort)
            peer = transport.get_extra_info("peername")
            if isinstance(peer, tuple):  # a Unix socket has no address
                self._key = (str(peer[0]), int(peer[1]))
                if not self._state.enter(self._key, self._key[0], self._transport.abort):
                    self._transport.abort()

        def data_received(self, data: bytes) -> None:
            self._held += data
            if _is_whole(self._held):
                self._leave()
                _serve_requests(self._given, self._transport, self._held, limits)

        def connection_lost(self, failure: Exception | None) -> None:  # noqa: ARG002  the protocol
            self._leave()
            if self._key is not None:
                self._state.leave(self._key)

        def shutdown(self) -> None:
            """Close it: the server stops."""
            self._transport.abort()

        def _leave(self) -> None:
            self._timer.cancel()
            self._open.discard(self)

    return WaitingProtocol


REQUEST_LINE = re.compile(rb"[A-Z]+ [!-~]+ HTTP/1\.[01]\r\n")
MOST_HELD = 16_384
"""Bytes of headers that are held: a request with more is passed on, and refused."""


def _is_whole(held: bytes) -> bool:
    """Whether the headers of a request have come, or something that is none and is refused at once."""
    if b"\r\n\r\n" in held or len(held) > MOST_HELD or not held[:1].isupper():  # TLS at a plain port, for one
        return True
    return b"\n" in held and (REQUEST_LINE.match(held) is None or b"\n\n" in held)


def _serve_requests(given: Mapping[str, Any], transport: asyncio.Transport, held: bytes, limits: Limits) -> None:
    """Let uvicorn answer the requests of a connection, the first of which has come."""
    protocol = _build_guarded(limits)(**given)
    transport.set_protocol(protocol)
    protocol.connection_made(transport)
    protocol.data_received(held)


def _ignore_upgrade(data: bytes) -> bytes:
    """A request without its offer of another protocol, which parsers would take its body for."""
    head, end, rest = data.partition(b"\r\n\r\n")
    if b"upgrade:" not in head.lower():
        return data
    return b"\r\n".join(line for line in head.split(b"\r\n") if not line.lower().startswith(b"upgrade:")) + end + rest


@cache
def _build_guarded(limits: Limits) -> type[Any]:
    """uvicorn's HTTP protocol, with a time limit for headers, and connections that make room for one another."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    from deniable.server.http.endpoints import HEADERS, respond_refusal

    class GuardedProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        waiting: asyncio.TimerHandle | None = None

        def data_received(self, data: bytes) -> None:
            working = self.cycle is not None and not self.cycle.response_complete
            super().data_received(data if working else _ignore_upgrade(data))
            self._wait_for_headers()

        def on_headers_complete(self) -> None:
            super().on_headers_complete()
            self.headers: list[Any] = []  # fields that come after the body are no headers of the request

        def send_400_response(self, _message: str) -> None:
            """Refuse what is no request, in the shape of all refusals."""
            response = respond_refusal(ParameterError("what was sent is no request of HTTP", charge=NOTHING_CHARGED))
            headers = (
                *response.raw_headers,
                *((n.encode(), v.encode()) for n, v in HEADERS),
                (b"connection", b"close"),
            )
            lines = (b"%b: %b\r\n" % each for each in headers)
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\n" + b"".join(lines) + b"\r\n" + bytes(response.body))
            self.transport.close()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._wait_for_headers()

        def connection_lost(self, failure: Exception | None) -> None:
            super().connection_lost(failure)
            self._stop_waiting()
            if self.client is not None:
                self.app_state["connections"].leave(tuple(self.client))

        def _wait_for_headers(self) -> None:
            """Close the connection in some seconds, unless a request has begun to be answered by then."""
            working = self.cycle is not None and not self.cycle.response_complete
            if self.client is not None:
                connections, key = self.app_state["connections"], tuple(self.client)
                connections.begin(key) if working else connections.rest(key)
            if working:
                self._stop_waiting()
            elif self.waiting is None:
                self.waiting = self.loop.call_later(limits.header_seconds, self.transport.abort)

        def _stop_waiting(self) -> None:
            if self.waiting is not None:
                self.waiting.cancel()
                self.waiting = None

    return GuardedProtocol


async def _listen_steward(
    stack: contextlib.AsyncExitStack, application: Any, options: ServerOptions, scheme: str, limits: Limits
) -> str:
    host = _steward_host(options)
    if host is None:
        await _listen(stack, application, options, 0, limits, uds=options.steward)
        Path(options.steward).chmod(0o600)
        return f"unix:{options.steward}"
    port = int(options.steward.rpartition(":")[2])
    bound = await _listen(stack, application, replace(options, host=host), port, limits)
    return f"{scheme}://{host}:{bound}/"


def _steward_host(options: ServerOptions) -> str | None:
    """The address of the steward's port; None for a Unix socket."""
    host, colon, port = options.steward.rpartition(":")
    if not colon or not port.isdigit():
        if options.steward == "localhost" or is_address(options.steward):
            raise ParameterError(
                f"the steward's address '{options.steward}' has no port",
                remedy=f"Say {options.steward}:8401, or a path",
            )
        if not hasattr(socket, "AF_UNIX"):
            raise ParameterError(
                f"this system has no Unix sockets, such as '{options.steward}'",
                remedy="Name an address and a port for the steward, such as 127.0.0.1:8001",
            )
        return None
    if int(port) > MOST_PORT:
        raise ParameterError(f"there is no port {port}", expected=f"A port up to {MOST_PORT}")
    return host or "127.0.0.1"  # a system takes no address for all of them


def _open_verifier(options: ServerOptions, curator: Curator) -> Verifier | None:
    if options.issuer is None:
        return None
    from deniable.server import oidc

    return oidc.Verifier(oidc.read_issuer(options.issuer), curator.policy)


def _load_tls(options: ServerOptions) -> ssl.SSLContext | None:
    if options.certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(options.certificate, options.key)
    except (OSError, ssl.SSLError):
        raise ParameterError("the certificate and its key cannot be read",
                             expected="Two files in PEM form that belong together") from None  # fmt: skip
    return context


def _read_channel(options: ServerOptions) -> bytes:
    """What a proof of a token is bound to on a TLS connection: the server's certificate."""
    from deniable.governance.scram import bind_to_certificate

    if options.certificate is None:
        return b""
    end = "-----END CERTIFICATE-----"
    first = options.certificate.read_text(encoding="ascii", errors="replace").partition(end)[0]
    begin = first.find("-----BEGIN CERTIFICATE-----")
    return bind_to_certificate(ssl.PEM_cert_to_DER_cert(first[begin:] + end)) if begin >= 0 else b""


def _require_tls(options: ServerOptions) -> None:
    """Refuse to listen for other machines without TLS, on the analysts' port and on the steward's."""
    for host in (options.host, _steward_host(options) or "127.0.0.1"):
        if not _is_loopback(host) and options.certificate is None:
            raise ParameterError(
                f"'{host}' can be reached from other machines, and tokens may not travel unencrypted",
                remedy="Give --certificate and --key, or listen on 127.0.0.1 behind a proxy that has them",
            )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@contextlib.contextmanager
def _refuse_unusable_port(host: str, port: int) -> Iterator[None]:
    """A port that cannot be used is a refusal with a remedy."""
    try:
        yield
    except (OSError, SystemExit):
        raise StorageError(f"port {port} of {host} cannot be used", remedy="Choose another port", charge="") from None


@contextlib.contextmanager
def _require_extra() -> Iterator[None]:
    try:
        yield
    except ImportError:
        raise MissingExtra(
            "serving needs the server extra", remedy="Install it with: pip install 'deniable[server]'"
        ) from None


def serve_survey(
    service: SurveyService,
    host: str,
    port: int,
    certificate: Path | None = None,
    key: Path | None = None,
    announce: Callable[[], None] = lambda: None,
) -> None:
    """Listen on a port, and announce it once it takes responses. No access log is written of who answered when."""
    try:
        import uvicorn

        from deniable.server.survey import build_app
    except ImportError:
        raise MissingExtra(
            "serving a survey needs the server extra", remedy="Install it with: pip install 'deniable[server]'"
        ) from None
    options: dict[str, Any] = {"access_log": False, "server_header": False, "log_level": "warning"}
    if certificate is not None:
        options |= {"ssl_certfile": str(certificate), "ssl_keyfile": str(key) if key else None}

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                announce()

    config = uvicorn.Config(build_app(service), host=host, port=port, **options)
    try:
        Server(config).run()
    except SystemExit:
        raise StorageError(
            f"port {port} of {host} cannot be used",
            remedy="Choose another --port",
            charge="",
        ) from None
