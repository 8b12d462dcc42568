"""The HTTP door: every request passes here. Token, body, limits, refusals, padding, headers, in one place.

The API takes a bearer token and nothing else, so that no other site can use a visitor's session. Whatever is raised
behind the door leaves as a refusal of the canonical shape.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from deniable.errors import DeniableError
from deniable.server import bodies
from deniable.server.formats import as_json
from deniable.server.limits import even
from deniable.server.messages import NotHere, TakingLong, TokenRefused, TooLong, WrongMedia, WrongMethod, status, told
from deniable.server.messages import document as refusal_document
from deniable.server.operations import Call, Operation

if TYPE_CHECKING:
    from deniable.server.desk import Desk
    from deniable.server.metrics import Metrics

Scope = MutableMapping[str, Any]
BODY_SECONDS = 10.0
"""A body that trickles in for longer than this is not waited for."""
MOST_HEADERS = 16_384
HEADERS = (
    ("content-security-policy", "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self';"
     " base-uri 'none'; frame-ancestors 'none'"),
    ("referrer-policy", "same-origin"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("cache-control", "no-store"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)  # fmt: skip
_ENCODED = tuple((name.encode(), value.encode()) for name, value in HEADERS)


class Guarded:
    """An application with security headers on every response, that answers only to the hosts it is meant for.

    A page of another site can make a browser ask a loopback address under that site's own name; such a request has
    that name in its Host header, and is turned away.
    """

    def __init__(self, application: Any, hosts: frozenset[str] | None, tls: bool = False) -> None:
        self._application = application
        self._hosts = hosts
        self._headers = (*_ENCODED, (b"strict-transport-security", b"max-age=31536000")) if tls else _ENCODED

    async def __call__(self, scope: Scope, receive: Any, send: Callable[[Any], Awaitable[None]]) -> None:
        """Pass a request on, if its host is known."""
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *self._headers]
            await send(message)

        turned_away = self._turned_away(scope)
        await (turned_away or self._application)(scope, receive, with_headers)

    def _turned_away(self, scope: Scope) -> Response | None:
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MOST_HEADERS:
            long = refused(TooLong("the headers are too long", expected=f"At most {MOST_HEADERS} bytes"))
            long.status_code = 431
            return long
        if self._hosts is not None and _host(scope) not in self._hosts:
            stranger = refused(NotHere("this host name is not served here"))
            stranger.status_code = 421
            return stranger
        return None


def _host(scope: Scope) -> str:
    """The name in the Host header, without its port."""
    named = next((value for name, value in scope["headers"] if name == b"host"), b"")
    text = str(named.decode("latin-1")).lower()
    return text[: text.index("]") + 1] if text.startswith("[") and "]" in text else text.split(":")[0]


def routes(desk: Desk, operations: tuple[Operation, ...], metrics: Metrics) -> list[Route]:
    """A route for each operation."""
    return [Route(each.path, _endpoint(desk, each, metrics), methods=[each.method]) for each in operations]


def _endpoint(desk: Desk, operation: Operation, metrics: Metrics) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        since = time.monotonic()
        try:
            response = await operation.act(await _let_in(desk, operation, request))
        except ClientDisconnect:
            response = Response(status_code=499)
        except Exception as failure:
            response = refused(told(failure))
        if response.status_code >= 400 or response.headers.get("x-deniable-charged") == "true":
            await even(since, desk.limits.quantum)
        metrics.note(operation.name, response.status_code, time.monotonic() - since)
        return response

    return endpoint


async def _let_in(desk: Desk, operation: Operation, request: Request) -> Call:
    grant = None if operation.public else desk.admit(bearer(request), address(request))
    body = await read_json(request, operation.body, desk.limits.body) if operation.body else None
    given = request.headers.get("x-request-id", "")
    return Call(desk, grant, body, {k: str(v) for k, v in request.path_params.items()}, request, given)


def bearer(request: Request) -> str:
    """The token of an Authorization header."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise TokenRefused("there is no token", remedy="Send the header Authorization: Bearer TOKEN")
    return token.strip()


def address(request: Request) -> str:
    """Where a request comes from."""
    return request.client.host if request.client else "local"


async def read_json(request: Request, kind: type[Any], most: int) -> Any:
    """The body as its dataclass."""
    media = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media != "application/json":
        raise WrongMedia("the body has another type than JSON", expected="Content-Type: application/json")
    return bodies.read(kind, await read_bytes(request, most))


async def read_bytes(request: Request, most: int) -> bytes:
    """The body, never more of it than is allowed, and not waited for too long."""
    try:
        return await asyncio.wait_for(_collected(request, most), BODY_SECONDS)
    except TimeoutError:
        raise TakingLong from None


async def _collected(request: Request, most: int) -> bytes:
    parts, length = [], 0
    async for part in request.stream():
        length += len(part)
        if length > most:
            raise TooLong("the request is too long", expected=f"At most {most} bytes")
        parts.append(part)
    return b"".join(parts)


def refused(refusal: DeniableError) -> Response:
    """A refusal as a response."""
    headers = {}
    if refusal.code == "token":
        headers["www-authenticate"] = "Bearer"
    if refusal.code in ("rate", "busy"):
        headers["retry-after"] = str(max(1, round(float(refusal.fields.get("wait") or 1))))
    return Response(as_json(refusal_document(refusal)), status(refusal), headers, "application/json")


def answered(document: Any, code: int = 200) -> Response:
    """A JSON document as a response."""
    return Response(as_json(document), code, media_type="application/json")


async def no_such_path(_request: Request, _failure: Exception) -> Response:
    """The canonical shape for a path that does not exist."""
    return refused(NotHere("there is nothing at this path", remedy="The paths are listed in /openapi.json"))


async def no_such_method(_request: Request, failure: Exception) -> Response:
    """The canonical shape for a method that the path does not have."""
    response = refused(WrongMethod("this path cannot be asked this way", remedy="See /openapi.json"))
    response.headers.update(getattr(failure, "headers", None) or {})
    return response
