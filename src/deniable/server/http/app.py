"""The two HTTP applications: the analysts' and the steward's. They share a service and nothing else."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from deniable.errors import DeniableError
from deniable.governance.grants import Action
from deniable.server.http import analyst_api, endpoints, steward_api
from deniable.server.http.endpoints import (
    Operation,
    SecurityHeaders,
    build_routes,
    refuse_method,
    refuse_path,
    respond_json,
    respond_refusal,
)
from deniable.server.http.response_cache import ResponseCache
from deniable.server.limits import LOOPBACK
from deniable.server.monitoring import Metrics
from deniable.server.refusals import translate_failure
from deniable.server.service import Service
from deniable.server.workbench.analyst import AnalystPages
from deniable.server.workbench.steward import OneTimeKey, StewardPages

AGENTS_PATH = "/mcp"


def build_analyst_app(
    service: Service,
    metrics: Metrics,
    *,
    hosts: frozenset[str] | None = LOOPBACK,
    tls: bool = False,
    agents: Any = None,
) -> SecurityHeaders:
    """What analysts see: the API, a page to ask on, the public register, and `agents`, where AI assistants ask."""
    pages = AnalystPages(service, tls)
    more = [] if agents is None else [Route(AGENTS_PATH, endpoint=agents)]
    application = _build_app(service, metrics, analyst_api.OPERATIONS, pages, more, "deniable for analysts")
    return SecurityHeaders(ResponseCache(application, service, metrics), hosts, tls)


def build_steward_app(
    service: Service,
    metrics: Metrics,
    *,
    first: OneTimeKey | None = None,
    hosts: frozenset[str] | None = LOOPBACK,
    tls: bool = False,
) -> SecurityHeaders:
    """What the steward sees: decisions, tokens, the record, and metrics of the server."""

    async def show_metrics(request: Request) -> Response:
        try:
            grant = await endpoints.admit_request(service, request, endpoints.read_bearer_token(request))
            service.authorize(grant, Action.AUDIT)
        except DeniableError as refusal:
            return respond_refusal(translate_failure(refusal))
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")

    pages = StewardPages(service, first or OneTimeKey(), tls)
    more = [Route("/metrics", show_metrics, methods=["GET"])]
    return SecurityHeaders(
        _build_app(service, metrics, steward_api.OPERATIONS, pages, more, "deniable for stewards"), hosts, tls
    )


def _build_app(
    service: Service,
    metrics: Metrics,
    operations: tuple[Operation, ...],
    pages: AnalystPages | StewardPages,
    more: list[Route],
    title: str,
) -> Starlette:
    described = endpoints.build_openapi(operations, title)

    async def show_document(_request: Request) -> Response:
        return respond_json(described)

    async def refuse_failure(_request: Request, failure: Exception) -> Response:
        return respond_refusal(translate_failure(failure))

    unknown = pages.pages.refuse_unknown
    handlers: dict[Any, Any] = {404: unknown(refuse_path), 405: unknown(refuse_method), Exception: refuse_failure}
    own = [Route("/openapi.json", show_document), *pages.routes(), *more]
    listed = [*build_routes(service, operations, metrics), *own]
    application = Starlette(routes=listed, exception_handlers=handlers)
    application.router.redirect_slashes = False
    return application
