"""Operations of the HTTP API, each described once: for routing, and for the OpenAPI document.

Every request passes here: token, body, limits, refusals, padding and headers in one place. The API takes a bearer token
and nothing else, so that no other site can use a visitor's session. Whatever is raised by an operation leaves as a
refusal of the canonical shape. What is documented is what is routed."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from deniable.errors import NOTHING_CHARGED, DeniableError, ParameterError, nearest
from deniable.server.formats import encode_json
from deniable.server.http import bodies
from deniable.server.http.bodies import derive_schema
from deniable.server.limits import wait_for_quantum
from deniable.server.refusals import (
    HTTP_STATUS,
    ContentTooLarge,
    MethodNotAllowed,
    NotFound,
    TimedOut,
    TokenRefused,
    UnsupportedMedia,
    find_http_status,
    translate_failure,
)
from deniable.server.refusals import describe_refusal as refusal_document
from deniable.server.service import refuse_request_id

if TYPE_CHECKING:
    from deniable.governance.grants import Grant
    from deniable.server.limits import Connections
    from deniable.server.monitoring import Metrics
    from deniable.server.service import Service


@dataclass(frozen=True, slots=True)
class Call:
    """A request that was let in: who it is from (None on public operations), its body, its path, its query."""

    service: Service
    grant: Grant | None
    body: Any
    path: Mapping[str, str]
    request: Request
    request_id: str

    @property
    def who(self) -> Grant:
        """The grant of the asker."""
        assert self.grant is not None
        return self.grant


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    name: str
    summary: str
    act: Callable[[Call], Awaitable[Response]] = field(compare=False)
    body: type[Any] | None = None
    public: bool = False
    query: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    forms: tuple[str, ...] = ("application/json",)
    charges: bool = False
    """Whether it may charge: its answers leave at whole quanta, but for those that were stored."""
    request_id: bool = False
    """Whether it takes a request id."""
    slashes: bool = False
    """Whether the last part of its path may have slashes in it."""
    status: int = 200

    @property
    def route(self) -> str:
        """Its path as the router reads it."""
        return f"{self.path[:-1]}:path}}" if self.slashes else self.path


Scope = MutableMapping[str, Any]
BODY_SECONDS = 10.0
"""A body that trickles in for longer than this is not waited for."""
LATE_BODY = "the body of the request did not arrive in time"
MOST_HEADERS = 16_384
HEADERS = (
    ("content-security-policy", "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self';"
     " img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"),
    ("referrer-policy", "same-origin"),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("cache-control", "no-store"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=()"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
)  # fmt: skip
_ENCODED = tuple((name.encode(), value.encode()) for name, value in HEADERS)


class SecurityHeaders:
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
                own = {name.lower() for name, _ in message.get("headers", ())}
                added = [header for header in self._headers if header[0] not in own]
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        turned_away = self._refuse_request(scope)
        await (turned_away or self._application)(scope, receive, with_headers)

    def _refuse_request(self, scope: Scope) -> Response | None:
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MOST_HEADERS:
            long = respond_refusal(
                ContentTooLarge("the headers are too long", expected=f"At most {MOST_HEADERS} bytes")
            )
            long.status_code = 431
            return long
        if self._hosts is not None and _read_host(scope) not in self._hosts:
            stranger = respond_refusal(NotFound("this host name is not served here"))
            stranger.status_code = 421
            return stranger
        return None


def _read_host(scope: Scope) -> str:
    """The name in the Host header, without its port."""
    named = next((value for name, value in scope["headers"] if name == b"host"), b"")
    text = str(named.decode("latin-1")).lower()
    parts = re.fullmatch(r"(\[[^\]]*\]|[^:]*)(:\d*)?", text)
    return text if parts is None else parts[1]


def build_routes(service: Service, operations: tuple[Operation, ...], metrics: Metrics) -> list[Route]:
    """A route for each operation."""
    return [Route(each.route, _build_endpoint(service, each, metrics), methods=[each.method]) for each in operations]


def _build_endpoint(
    service: Service, operation: Operation, metrics: Metrics
) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        since = time.monotonic()
        try:
            response = await operation.act(await _admit_call(service, operation, request))
        except ClientDisconnect:
            response = Response(status_code=499)
        except Exception as failure:
            given, grant = request.headers.get("x-request-id", ""), getattr(request.state, "grant", None)
            await service.recall_charge(grant, given, failure)
            response = respond_refusal(translate_failure(failure))
        stored = response.headers.get("x-deniable-repeated") == "true"
        if response.status_code >= 400 or (operation.charges and not stored):
            await wait_for_quantum(since, service.limits.quantum)
        metrics.count_request(operation.name, response.status_code, time.monotonic() - since)
        return response

    return endpoint


async def _admit_call(service: Service, operation: Operation, request: Request) -> Call:
    grant = None if operation.public else await admit_request(service, request, read_bearer_token(request))
    request.state.grant = grant
    body = await read_json(request, operation.body, service.limits.body) if operation.body else None
    if operation.body is None and not operation.public:
        await _refuse_body(request, service.limits.body)
    _refuse_query(request, operation)
    given = request.headers.get("x-request-id", "")
    refuse_request_id(given)
    return Call(service, grant, body, {k: str(v) for k, v in request.path_params.items()}, request, given)


def read_bearer_token(request: Request) -> str:
    """The token of an Authorization header."""
    if len(request.headers.getlist("authorization")) > 1:
        raise TokenRefused("there are several tokens", remedy="Send one header Authorization: Bearer TOKEN")
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token.strip():
        raise TokenRefused("there is no token", remedy="Send the header Authorization: Bearer TOKEN")
    return token.strip()


async def admit_request(service: Service, request: Request, token: str) -> Grant:
    """The grant of a request's token; its connection keeps its place when room is short."""
    grant = await service.admit(token, read_client_address(request, service.limits.proxies))
    connections: Connections | None = request.scope.get("state", {}).get("connections")
    if connections is not None and request.client is not None:
        connections.admit(tuple(request.client), grant.name)
    return grant


def read_client_address(request: Request, proxies: tuple[str, ...] = ()) -> str:
    """Where a request comes from: what a proxy says that we know, and else whoever is connected."""
    address = request.client.host if request.client else "local"
    forwarded = request.headers.getlist("x-forwarded-for") if proxies else []
    for named in reversed([part.strip() for line in forwarded for part in line.split(",")]):
        if address not in proxies or not named:
            break
        address = named
    return address[:100]


async def read_json(request: Request, kind: type[Any], most: int) -> Any:
    """The body as its dataclass."""
    media = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if media != "application/json":
        raise UnsupportedMedia("the body has another type than JSON", expected="Content-Type: application/json")
    return bodies.read_body(kind, await read_bytes(request, most))


def _refuse_query(request: Request, operation: Operation) -> None:
    """Refuse what is asked for behind a question mark and would not be looked at."""
    unknown = [each for each in request.query_params if each not in operation.query]
    if unknown and not operation.public:
        known = ", ".join(operation.query) or "nothing behind the question mark"
        raise ParameterError("a parameter of the address is not known here", expected=f"This path takes {known}",
                             remedy=nearest(unknown[0], operation.query), charge=NOTHING_CHARGED)  # fmt: skip


async def _refuse_body(request: Request, most: int) -> None:
    """Refuse what would not be read; nothing and {} say nothing."""
    if (await read_bytes(request, most)).strip() not in (b"", b"{}"):
        raise ParameterError("this path takes no body", expected="A request without a body", charge=NOTHING_CHARGED)


async def read_bytes(request: Request, most: int) -> bytes:
    """The body, never more of it than is allowed, and not waited for too long."""
    try:
        return await asyncio.wait_for(_collect_body(request, most), BODY_SECONDS)
    except TimeoutError:
        raise TimedOut(LATE_BODY) from None


def is_too_long(declared: str, most: int) -> bool:
    """Whether a header Content-Length names more than is allowed."""
    return declared.isdecimal() and int(declared[:20]) > most


async def _collect_body(request: Request, most: int) -> bytes:
    parts, length = [], 0
    if is_too_long(request.headers.get("content-length", ""), most):
        raise ContentTooLarge("the request is too long", expected=f"At most {most} bytes")
    async for part in request.stream():
        length += len(part)
        if length > most:
            raise ContentTooLarge("the request is too long", expected=f"At most {most} bytes")
        parts.append(part)
    return b"".join(parts)


def respond_refusal(refusal: DeniableError) -> Response:
    """A refusal as a response."""
    headers = {}
    if refusal.code == "token":
        headers["www-authenticate"] = "Bearer"
    if refusal.code in ("rate", "busy", "locked", "storage"):
        waits = refusal.fields.get("wait") or (float(RETRY["retry-after"]) if refusal.code == "storage" else 1)
        headers["retry-after"] = str(max(1, round(float(waits))))
    return Response(encode_json(refusal_document(refusal)), find_http_status(refusal), headers, "application/json")


RETRY = {"retry-after": "5"}
"""When to look again whether a disk or a file that refuses takes something."""


def respond_json(document: Any, code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON document as a response."""
    return Response(encode_json(document), code, headers, "application/json")


async def refuse_path(_request: Request, _failure: Exception) -> Response:
    """The canonical shape for a path that does not exist."""
    return respond_refusal(NotFound("there is nothing at this path", remedy="The paths are listed in /openapi.json"))


async def refuse_method(_request: Request, failure: Exception) -> Response:
    """The canonical shape for a method that the path does not have."""
    response = respond_refusal(MethodNotAllowed("this path cannot be asked this way", remedy="See /openapi.json"))
    response.headers.update(getattr(failure, "headers", None) or {})
    return response


REQUEST_ID = {
    "name": "X-Request-Id",
    "in": "header",
    "description": "An id of your own for this question: under the same id it is never charged twice.",
    "schema": {"type": "string", "maxLength": 200, "pattern": "^[ -~\u00a1-\u00ac\u00ae-\u00ff]*$"},
}
REFUSAL = {
    "type": "object",
    "required": ["error", "happened", "expected", "remedy", "charged", "message"],
    "properties": {
        "error": {"type": "string", "description": "The code of the refusal.", "enum": sorted(HTTP_STATUS)},
        "happened": {"type": "string"},
        "expected": {"type": "string"},
        "remedy": {"type": "string"},
        "charged": {
            "type": ["boolean", "null"],
            "description": "Whether something was charged; null: it is not known.",
        },
        "message": {"type": "string", "description": "All of it in one paragraph."},
        "line": {"type": "integer"},
        "column": {"type": "integer"},
    },
}


# a dictionary: JSON in the words of OpenAPI
def build_openapi(operations: Iterable[Operation], title: str) -> dict[str, Any]:
    """The document of some operations."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe_operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": title,
            "version": version("deniable"),
            "description": "Differentially private answers. Every refusal has the shape `Refusal`.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {"Refusal": REFUSAL},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _describe_operation(operation: Operation) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [
            *_describe_path(operation.path),
            *_describe_query(operation),
            *([REQUEST_ID] if operation.request_id else []),
        ],
        "responses": _describe_responses(operation),
        "security": [] if operation.public else [{"token": []}],
    }
    if operation.body is not None:
        rules = derive_schema(operation.body)  # type: ignore[arg-type]  # a class is hashable
        content = {"application/json": {"schema": rules}}
        shown["requestBody"] = {"required": True, "content": content}
    return shown


def _describe_path(path: str) -> list[dict[str, Any]]:
    rules = {"type": "string", "minLength": 1, "maxLength": 200}
    return [{"name": name, "in": "path", "required": True, "schema": rules} for name in re.findall(r"{(\w+)}", path)]


def _describe_query(operation: Operation) -> list[dict[str, Any]]:
    return [{"name": name, "in": "query", "schema": dict(rules)} for name, rules in operation.query.items()]


def _describe_responses(operation: Operation) -> dict[str, Any]:
    refusal = {"application/json": {"schema": {"$ref": "#/components/schemas/Refusal"}}}
    content: dict[str, Any] = {form: {} if form != "application/json" else {"schema": {}} for form in operation.forms}
    found: dict[str, Any] = {str(operation.status): {"description": "Done.", "content": content}}
    for code in sorted(set(HTTP_STATUS.values())):
        found[str(code)] = {"description": "Refused.", "content": refusal}
    return found
