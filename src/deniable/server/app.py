"""The two HTTP applications: the analysts' and the steward's. They share a desk and nothing else."""

from __future__ import annotations

from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from deniable.server import analysts, openapi, stewards
from deniable.server.analyst_pages import AnalystPages
from deniable.server.desk import Desk
from deniable.server.door import Guarded, answered, no_such_method, no_such_path, refused, routes
from deniable.server.messages import told
from deniable.server.metrics import Metrics
from deniable.server.operations import Operation
from deniable.server.repeats import Repeats
from deniable.server.steward_pages import FirstKey, StewardPages

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})


def analyst_application(
    desk: Desk, metrics: Metrics, *, hosts: frozenset[str] | None = LOOPBACK, tls: bool = False
) -> Guarded:
    """What analysts see: the API, a page to ask on, and the public register."""
    pages = AnalystPages(desk, tls).routes()
    application = _application(desk, metrics, analysts.OPERATIONS, pages, "deniable for analysts")
    return Guarded(Repeats(application, desk, metrics), hosts, tls)


def steward_application(
    desk: Desk,
    metrics: Metrics,
    *,
    first: FirstKey | None = None,
    hosts: frozenset[str] | None = LOOPBACK,
    tls: bool = False,
) -> Guarded:
    """What the steward sees: decisions, tokens, the record, and metrics of the server."""

    async def show_metrics(_request: Request) -> Response:
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")

    pages = StewardPages(desk, first or FirstKey(), tls).routes()
    pages.append(Route("/metrics", show_metrics, methods=["GET"]))
    return Guarded(_application(desk, metrics, stewards.OPERATIONS, pages, "deniable for stewards"), hosts, tls)


def _application(
    desk: Desk, metrics: Metrics, operations: tuple[Operation, ...], pages: list[Route], title: str
) -> Starlette:
    described = openapi.document(operations, title)

    async def show_document(_request: Request) -> Response:
        return answered(described)

    async def unforeseen(_request: Request, failure: Exception) -> Response:
        return refused(told(failure))

    handlers: dict[Any, Any] = {404: no_such_path, 405: no_such_method, Exception: unforeseen}
    listed = [*routes(desk, operations, metrics), Route("/openapi.json", show_document), *pages]
    application = Starlette(routes=listed, exception_handlers=handlers)
    application.router.redirect_slashes = False
    return application
