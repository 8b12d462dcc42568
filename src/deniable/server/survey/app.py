"""The survey's web application. It logs no request, reads no address, sets no cookie, and calls no other host."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from deniable.curator.surveying import client_file, page_of
from deniable.errors import AccessRefused, DataError, DeniableError
from deniable.server.survey.filing import Filing, Full

if TYPE_CHECKING:
    from deniable.localdp.survey.desk import Desk

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


def application(desk: Desk) -> Starlette:
    """The application that serves one survey."""
    filing = Filing(desk.store)
    described = page_of(desk)
    page = _page(described)

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        filing.start()
        yield
        await filing.stop()
        desk.store.close()

    async def show_page(_request: Request) -> Response:
        return Response(page, media_type="text/html; charset=utf-8", headers=HEADERS)

    async def show_survey(_request: Request) -> Response:
        return JSONResponse(described, headers=HEADERS)

    async def give_ticket(_request: Request) -> Response:
        return JSONResponse({"ticket": desk.ticket()}, headers=HEADERS)

    async def take_response(request: Request) -> Response:
        arrival = desk.check(await _body(request))
        if await filing.file(arrival):
            return JSONResponse({"received": True}, status_code=201, headers=HEADERS)
        duplicate = AccessRefused("this ticket was used before", remedy="The first response counts", charge="")
        return JSONResponse(duplicate.as_dict(), status_code=409, headers=HEADERS)

    return Starlette(
        routes=[
            Route("/", show_page),
            Route("/survey.json", show_survey),
            Route("/ticket", give_ticket, methods=["POST"]),
            Route("/responses", take_response, methods=["POST"]),
            *(Route(f"/static/{name}", _file(_static(name), kind)) for name, kind in STATIC.items()),
            *(Route(f"/sdk/{name}", _file(client_file(name), kind)) for name, kind in CLIENTS.items()),
        ],
        lifespan=lifespan,
        exception_handlers={DeniableError: _refusal, Full: _busy, ClientDisconnect: _gone},
    )


async def _body(request: Request) -> bytes:
    """The message, never more of it than a response can have."""
    parts, length = [], 0
    async for part in request.stream():
        length += len(part)
        if length > MOST_BYTES:
            raise DataError("the message is too long", expected=f"At most {MOST_BYTES} bytes", charge="")
        parts.append(part)
    return b"".join(parts)


async def _refusal(_request: Request, failure: Exception) -> Response:
    assert isinstance(failure, DeniableError)
    status = {"access": 403, "data": 422, "storage": 503}.get(failure.code, 400)
    if failure.code == "storage":  # its words name files of this machine
        return JSONResponse({"error": "storage", "remedy": "Try again later"}, status_code=503, headers=HEADERS)
    return JSONResponse(failure.as_dict(), status_code=status, headers=HEADERS)


async def _busy(_request: Request, _failure: Exception) -> Response:
    headers = HEADERS | {"Retry-After": "2"}
    return JSONResponse({"error": "busy", "remedy": "Try again in some seconds"}, status_code=503, headers=headers)


async def _gone(_request: Request, _failure: Exception) -> Response:
    return Response(status_code=499)


def _static(name: str) -> bytes:
    return files("deniable.server.survey").joinpath("static", name).read_bytes()


def _file(content: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def give(_request: Request) -> Response:
        return Response(content, media_type=kind, headers=HEADERS)

    return give


def _page(described: dict[str, Any]) -> str:
    loader = PackageLoader("deniable.server.survey", "templates")
    environment = Environment(loader=loader, autoescape=select_autoescape(), undefined=StrictUndefined)
    return environment.get_template("survey.html").render(survey=described)
