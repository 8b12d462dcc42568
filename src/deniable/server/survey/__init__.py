"""The survey's web application. It logs no request, reads no address, sets no cookie, and calls no other host.

Responses are stored in batches: those that arrive while one batch is being written make up the next. One durable write
for many responses is what lets a single core take thousands a second and still thank nobody before their response is on
the disk."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hashlib import sha384
from importlib.resources import files
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deniable.curator.survey import SurveyPage, client_file, page_of
from deniable.errors import AccessRefused, DataError, DeniableError

if TYPE_CHECKING:
    from deniable.localdp.survey.service import SurveyService
    from deniable.localdp.survey.store import Arrival, Store


MOST_BYTES = 1 << 16
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cross-Origin-Opener-Policy": "same-origin",
}
STATIC = {
    "survey.css": "text/css",
    "survey.mjs": "text/javascript",
    "wording.mjs": "text/javascript",
}
CLIENTS = {"client.mjs": "text/javascript", "client.py": "text/x-python", "vectors.json": "application/json"}


def build_app(service: SurveyService) -> Starlette:
    """The application that serves one survey."""
    filing = WriteQueue(service.store)
    described = page_of(service)
    document, page = described.document, _render_page(described)
    service.store.claim()

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        filing.start()
        yield
        await filing.stop()
        service.store.close()

    async def show_page(_request: Request) -> Response:
        return Response(page, media_type="text/html; charset=utf-8", headers=HEADERS)

    async def show_survey(_request: Request) -> Response:
        return Response(document, media_type="application/json", headers=HEADERS)

    async def sign_ticket(request: Request) -> Response:
        message = await _read_body(request)
        return JSONResponse({"signed": await asyncio.to_thread(service.exchange, message)}, headers=HEADERS)

    async def take_response(request: Request) -> Response:
        arrival = service.check(await _read_body(request))
        if await filing.file(arrival):
            return JSONResponse({"received": True}, status_code=201, headers=HEADERS)
        duplicate = AccessRefused("this ticket was used before", remedy="The first response counts", charge="")
        return JSONResponse(duplicate.as_dict(), status_code=409, headers=HEADERS)

    return Starlette(
        routes=[
            Route("/", show_page),
            Route("/survey.json", show_survey),
            Route("/ticket", sign_ticket, methods=["POST"]),
            Route("/responses", take_response, methods=["POST"]),
            *(Route(f"/{name}", _serve_file(content, kind)) for name, (content, kind) in list_files().items()),
        ],
        lifespan=lifespan,
        exception_handlers={DeniableError: _show_refusal, QueueFull: _refuse_busy, ClientDisconnect: _end_disconnected},
    )


async def _read_body(request: Request) -> bytes:
    """The message, never more of it than a response can have."""
    parts, length = [], 0
    async for part in request.stream():
        length += len(part)
        if length > MOST_BYTES:
            raise DataError("the message is too long", expected=f"At most {MOST_BYTES} bytes", charge="")
        parts.append(part)
    return b"".join(parts)


async def _show_refusal(_request: Request, failure: Exception) -> Response:
    assert isinstance(failure, DeniableError)
    status = {"access": 403, "data": 422}.get(failure.code)
    if status is None:  # about the store: its words name files of this machine
        return JSONResponse({"error": failure.code, "remedy": "Try again later"}, status_code=503, headers=HEADERS)
    return JSONResponse(failure.as_dict(), status_code=status, headers=HEADERS)


async def _refuse_busy(_request: Request, _failure: Exception) -> Response:
    headers = HEADERS | {"Retry-After": "2"}
    return JSONResponse({"error": "busy", "remedy": "Try again in some seconds"}, status_code=503, headers=headers)


async def _end_disconnected(_request: Request, _failure: Exception) -> Response:
    return Response(status_code=499)


def list_files() -> dict[str, tuple[bytes, str]]:
    """The files that every survey's page is made of, each with its kind."""
    folder = files("deniable.server.survey").joinpath("static")
    own = {f"static/{name}": (folder.joinpath(name).read_bytes(), kind) for name, kind in STATIC.items()}
    return own | {f"sdk/{name}": (client_file(name), kind) for name, kind in CLIENTS.items()}


def _serve_file(content: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def give(_request: Request) -> Response:
        return Response(content, media_type=kind, headers=HEADERS)

    return give


def _render_page(described: SurveyPage) -> str:
    loader = PackageLoader("deniable.server.survey", "templates")
    environment = Environment(loader=loader, autoescape=select_autoescape(), undefined=StrictUndefined)
    hashes = {name: compute_integrity(content) for name, (content, _) in list_files().items()}
    return environment.get_template("survey.html").render(survey=described, integrity=hashes)


def compute_integrity(content: bytes) -> str:
    """A file's hash as pages name it, and as `docs/reference/survey-files.md` publishes it."""
    return f"sha384-{base64.b64encode(sha384(content).digest()).decode()}"


MOST_AT_ONCE = 2000
MOST_WAITING = 20_000


class QueueFull(Exception):
    """Too many responses wait for the disk; the client should try again."""


class WriteQueue:
    """A queue in front of a store, emptied by one task."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[Arrival, asyncio.Future[bool]]] = []
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to file."""
        self._task = asyncio.create_task(self._run())

    async def file(self, arrival: Arrival) -> bool:
        """Wait until a response is on the disk; say whether it was new."""
        if len(self._waiting) >= MOST_WAITING:
            raise QueueFull
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((arrival, done))
        self._wake.set()
        return await done

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
                await self._write(batch)

    async def _write(self, batch: list[tuple[Arrival, asyncio.Future[bool]]]) -> None:
        """Write one batch in a thread, so that the next one can gather; a failure fails everybody in the batch."""
        try:
            fresh = await asyncio.to_thread(self._store.add, [arrival for arrival, _ in batch])
        except Exception as failure:
            for _, done in batch:
                if not done.done():
                    done.set_exception(failure)
            return
        for (_, done), new in zip(batch, fresh, strict=True):
            if not done.done():
                done.set_result(new)

    async def stop(self) -> None:
        """File what waits, and end."""
        while self._waiting:
            batch, self._waiting = self._waiting[:MOST_AT_ONCE], self._waiting[MOST_AT_ONCE:]
            await self._write(batch)
        if self._task is not None:
            self._task.cancel()
