"""Pages for people: small, rendered here, without scripts and without other hosts.

Analysts enter with their token, ask, explain, and see what is left. The steward sees budgets, requests, tokens and the
register, and decides. A session is a cookie that holds the token; forms are taken only from our own pages.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deniable.errors import AccessRefused, DeniableError
from deniable.governance.grants import Grant
from deniable.server.desk import Desk
from deniable.server.door import address, read_bytes
from deniable.server.limits import even
from deniable.server.messages import status, told

SESSION_SECONDS = 8 * 3600
STATIC = {"deniable.css": "text/css"}
Shown = Callable[[Request, Grant], Awaitable[Response]]


class Pages:
    """What the pages of both ports share: templates, sessions, refusals."""

    def __init__(self, desk: Desk, cookie: str, secure: bool) -> None:
        self.desk = desk
        self._cookie = cookie
        self._secure = secure
        loader = PackageLoader("deniable.server", "templates")
        self._templates = Environment(loader=loader, autoescape=select_autoescape(), undefined=StrictUndefined)
        self._templates.filters["figures"] = figures

    def render(self, template: str, code: int = 200, **values: Any) -> Response:
        """A page of a template."""
        shown = {"dataset": self.desk.dataset, "name": "", "refusal": None} | values
        text = self._templates.get_template(template).render(**shown)
        return Response(text, code, media_type="text/html; charset=utf-8")

    def inside(self, show: Shown, *, form: bool = False) -> Callable[[Request], Awaitable[Response]]:
        """A page for those who entered; others see the door."""

        async def page(request: Request) -> Response:
            since = time.monotonic()
            try:
                if form:
                    own_form(request)
                token = request.cookies.get(self._cookie, "")
                if not token:
                    return self.render("enter.html")
                return await show(request, self.desk.admit(token, address(request)))
            except Exception as failure:
                await even(since, self.desk.limits.quantum)
                return self.refused(told(failure))

        return page

    def refused(self, refusal: DeniableError) -> Response:
        """The door, with what was wrong; a token that is not valid is forgotten."""
        response = self.render("enter.html", status(refusal), refusal=refusal.message)
        if refusal.code == "token":
            response.delete_cookie(self._cookie)
        return response

    async def enter(self, request: Request) -> Response:
        """Begin a session with a token."""
        since = time.monotonic()
        try:
            own_form(request)
            token = (await form_of(request, self.desk.limits.body)).get("token", "").strip()
            self.desk.admit(token, address(request))
        except Exception as failure:
            await even(since, self.desk.limits.quantum)
            return self.refused(told(failure))
        return self.entered(token)

    def entered(self, token: str, to: str = "/") -> Response:
        """A session that has just begun."""
        response = RedirectResponse(to, 303)
        response.set_cookie(
            self._cookie, token, max_age=SESSION_SECONDS, httponly=True, samesite="strict", secure=self._secure
        )
        return response

    async def leave(self, request: Request) -> Response:
        """End a session."""
        own_form(request)
        response = RedirectResponse("/", 303)
        response.delete_cookie(self._cookie)
        return response

    def routes(self) -> list[Route]:
        """What every port serves: the door, and the style sheet."""
        own = [Route("/enter", self.enter, methods=["POST"]), Route("/leave", self.leave, methods=["POST"])]
        return own + [Route(f"/static/{name}", _file(name, kind)) for name, kind in STATIC.items()]


def own_form(request: Request) -> None:
    """Refuse a form that another site sent."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    foreign = origin is not None and urlsplit(origin).netloc != request.headers.get("host")
    if foreign or site not in ("same-origin", "none"):
        raise AccessRefused("a form of another site was sent here", remedy="Use the page itself")


async def form_of(request: Request, most: int) -> dict[str, str]:
    """The fields of a form."""
    raw = await read_bytes(request, most)
    pairs = parse_qsl(raw.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=50)
    return dict(pairs)


def figures(cost: dict[str, str] | None) -> str:
    """A budget in words."""
    if cost is None:
        return "no limit"
    return ", ".join(f"{name} {value}" for name, value in cost.items() if value != "0") or "nothing"


def _file(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    content = files("deniable.server").joinpath("static", name).read_bytes()

    async def give(_request: Request) -> Response:
        return Response(content, media_type=kind)

    return give
