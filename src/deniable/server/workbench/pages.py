"""What the pages of both ports share: templates, sessions, forms, files of the browser, and refusals as pages.

A session is a cookie that holds the token; forms and the scripts' requests are taken only from our own pages."""

from __future__ import annotations

import gzip
import hashlib
import re
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deniable.curator.charge import watch_charges
from deniable.curator.governance.reports import PlainBalance
from deniable.curator.query.metadata import say_balance
from deniable.errors import NO_BUDGET, AccessRefused, BudgetExceeded, ChargeWatch, DeniableError, Stopped
from deniable.governance.grants import Grant, Role
from deniable.policy.budget import format_amount
from deniable.policy.yaml_tree import reveal_controls
from deniable.query import builder
from deniable.reports import page
from deniable.server.http.endpoints import admit_request, read_bytes, respond_json, respond_refusal
from deniable.server.limits import wait_for_quantum
from deniable.server.monitoring import locate_failure, log_to_stderr
from deniable.server.refusals import TokenRefused, find_http_status, translate_failure, translate_for_page
from deniable.server.service import Service

SESSION_SECONDS = 8 * 3600
MOST_PATH = 4_000
API_PATH = "/v1/"
"""Below it are no pages."""
SCRIPT = "text/javascript; charset=utf-8"
STATIC = {
    "deniable.css": "text/css; charset=utf-8",
    "codemirror.min.js": SCRIPT,
    "editor.js": SCRIPT,
    "ask.js": SCRIPT,
    "curve.js": SCRIPT,
    "table.js": SCRIPT,
    "policy.js": SCRIPT,
    "progress.js": SCRIPT,
    "leave.js": SCRIPT,
    "survey-lab.js": SCRIPT,
    "vega.js": SCRIPT,
    "plots.js": SCRIPT,
    "search.js": SCRIPT,
    "blocks.css": "text/css; charset=utf-8",
}
"""The files of the browser; the last four are those of reports, which the laboratories show."""
PageFunction = Callable[[Request, Grant], Awaitable[Response]]
Endpoint = Callable[[Request], Awaitable[Response]]
Handler = Callable[[Request, Exception], Awaitable[Response]]
Links = tuple[tuple[str, str], ...]
"""The pages of a port: each path with its title."""


class Pages:
    """Templates and sessions of one port."""

    def __init__(self, service: Service, door: str, secure: bool, links: Links, roles: frozenset[Role]) -> None:
        self.service = service
        self._door = door
        self._roles = roles
        self._secure = secure
        self._links = links
        loader = PackageLoader("deniable.server", "templates")
        self._templates = Environment(loader=loader, autoescape=select_autoescape(), undefined=StrictUndefined,
                                      finalize=_reveal)  # fmt: skip
        self._templates.filters |= {"figures": render_allowance, "amount": format_amount, "day": format_day,
                                    "left": say_balance, "exactly": say_exactly, "plain": format_bound,
                                    "as_typed": escape, "quoted": quote_name, "sentence": begin_sentence,
                                    "rows": TECHNIQUES.get}  # fmt: skip

    def write(self, template: str, **values: Any) -> str:
        """The text of a template."""
        grant: Grant | None = values.get("grant")
        hidden = HIDDEN.get(grant.role, ()) if grant is not None else ()
        shown = {"dataset": self.service.dataset, "name": grant.name if grant is not None else "", "refusal": None,
                 "here": "", "to": "", "links": [each for each in self._links if each[0] not in hidden]}  # fmt: skip
        return self._templates.get_template(template).render(**shown | values)

    def render(self, template: str, code: int = 200, **values: Any) -> Response:
        """A page of a template."""
        return Response(self.write(template, **values), code, media_type="text/html; charset=utf-8")

    def require_session(self, show: PageFunction, *, form: bool = False) -> Endpoint:
        """A page for those who entered; others see the login page."""

        async def open_page(request: Request) -> Response:
            since, grant = time.monotonic(), None
            try:
                if form:
                    refuse_foreign_form(request)
                token = self._read_token(request)
                if not token:
                    return self._show_entry(request)
                grant = await admit_request(self.service, request, token)
                return await show(request, grant)
            except Exception as failure:
                await wait_for_quantum(since, self.service.limits.quantum)
                return self.show_refusal(request, translate_for_page(failure), grant)

        return open_page

    def require_script(self, act: PageFunction) -> Endpoint:
        """An endpoint for the scripts of our own pages: a refusal has the shape that it has everywhere."""

        async def endpoint(request: Request) -> Response:
            since, grant = time.monotonic(), None
            try:
                refuse_foreign_form(request)
                token = self._read_token(request)
                if not token:
                    raise TokenRefused(
                        "the session is over",
                        remedy="Load the page again and enter with your token: your questions are kept",
                    )
                grant = await admit_request(self.service, request, token)
                return await act(request, grant)
            except Exception as failure:
                await self.service.recall_charge(grant, request.headers.get("x-request-id", ""), failure)
                await wait_for_quantum(since, self.service.limits.quantum)
                return respond_refusal(translate_for_page(failure))

        return endpoint

    def _read_token(self, request: Request) -> str:
        return request.cookies.get(name_cookie(self._door, request), "")

    async def find_person(self, request: Request) -> Grant | None:
        """Who has entered; nobody where there is no session, or none that counts."""
        token = self._read_token(request)
        try:
            return await admit_request(self.service, request, token) if token else None
        except DeniableError:
            return None

    def show_refusal(self, request: Request, refusal: DeniableError, grant: Grant | None = None) -> Response:
        """What was wrong, on a page by itself; a token that is not valid is forgotten, and asked for."""
        asks, status = refusal.code in ("token", "rate") or isinstance(refusal, WrongEntry), find_http_status(refusal)
        if not asks:
            return self.render("missing.html", status, reason=refusal.message, grant=grant)
        response = self.render("enter.html", status, refusal=refusal.message)
        if refusal.code == "token":
            response.delete_cookie(name_cookie(self._door, request))
        return response

    def _show_entry(self, request: Request) -> Response:
        """Where a token is asked for: at the first page as a page like others, elsewhere with the status of a refusal.

        So no program takes it for the file that it asked for. Who was on the way to a page comes to it.
        """
        first = request.url.path == "/"
        wanted = f"{request.url.path}?{request.url.query}".rstrip("?") if request.method == "GET" else ""
        return self.render("enter.html", 200 if first else 401, to=find_own_path(wanted))

    def refuse_unknown(self, refuse: Handler) -> Handler:
        """For addresses at which there is nothing: a page for browsers, and what `refuse` gives for programs."""

        async def handle(request: Request, failure: Exception) -> Response:
            response = await refuse(request, failure)
            if "text/html" not in request.headers.get("accept", "") or request.url.path.startswith(API_PATH):
                return response
            if response.status_code == 405 and request.method == "GET":  # a page that a form showed is loaded again
                page = f"/{request.url.path.split('/')[1]}"
                return RedirectResponse(page if page in dict(self._links) else "/", 303)
            return self.render("missing.html", response.status_code, reason="", grant=await self.find_person(request))

        return handle

    async def enter(self, request: Request) -> Response:
        """Begin a session with a token."""
        since = time.monotonic()
        form: dict[str, str] = {}
        try:
            refuse_foreign_form(request)
            form = await read_form(request, self.service.limits.body)
            token = form.get("token", "").strip()
            self._refuse_role(await admit_request(self.service, request, token))
        except Exception as failure:
            await wait_for_quantum(since, self.service.limits.quantum)
            return self.show_refusal(request, translate_failure(failure))
        return self.start_session(request, token, find_own_path(form.get("to", "")))

    def _refuse_role(self, grant: Grant) -> None:
        """Refuse who has no page at this port, and say where they are."""
        if grant.role in self._roles:
            return
        own = " or ".join(sorted(self._roles))
        raise WrongEntry(
            f"this is the token of {'an' if grant.role[0] in 'aeiou' else 'a'} {grant.role}, who has no page here",
            expected=f"The token of somebody with the role {own}",
            remedy=PLACES[grant.role],
        )

    def start_session(self, request: Request, token: str, to: str = "/") -> Response:
        """A session that has just begun."""
        response, name = RedirectResponse(to, 303), name_cookie(self._door, request)
        response.set_cookie(name, token, max_age=SESSION_SECONDS, httponly=True, samesite="strict", secure=self._secure)
        return response

    async def leave(self, request: Request) -> Response:
        """End a session."""
        try:
            refuse_foreign_form(request)
        except AccessRefused as refusal:
            return self.show_refusal(request, refusal)
        response = RedirectResponse("/", 303)
        response.delete_cookie(name_cookie(self._door, request))
        return response

    def routes(self) -> list[Route]:
        """What every port serves: the login page, the style sheet and the scripts."""
        own = [Route("/enter", self.enter, methods=["POST"]), Route("/leave", self.leave, methods=["POST"])]
        return own + [Route(f"/static/{name}", _serve_static(name, kind)) for name, kind in STATIC.items()]


class WrongEntry(AccessRefused):
    """A token that is valid, at the port of other people."""

    charge = NO_BUDGET


PLACES = {
    Role.ANALYST: "Analysts have another address, which the steward knows",
    Role.STEWARD: "Stewards and auditors have another address, which is printed where the server was started",
    Role.AUDITOR: "Stewards and auditors have another address, which is printed where the server was started",
    Role.RESPONDENT: "Who is in the data has no pages: use the HTTP API, or ask the steward",
}
"""Where those have their pages who have none at a port."""


TECHNIQUES = {"mask": "masked rows", "anonymize": "k-anonymous rows", "synthesize": "synthetic rows"}
"""What each technique makes, in words."""
HIDDEN = {Role.AUDITOR: ("/policy", "/tokens", "/people", "/labs", "/start")}
"""Pages that a role is refused: its menu leaves them out."""


def name_cookie(door: str, request: Request) -> str:
    """The cookie of the sessions at one port of a host: a browser sends cookies of a host to all of its ports."""
    return f"deniable_{door}_{request.url.port or 0}"


def find_own_path(text: str) -> str:
    r"""A path of this server that a form names; the first page for whatever else it names.

    >>> [find_own_path(each) for each in ("/history", "/?sql=SELECT+1", "//elsewhere.org", r"/\elsewhere.org", "x:y")]
    ['/history', '/?sql=SELECT+1', '/', '/', '/']
    """
    own = text.startswith("/") and not text.startswith("//") and text.isascii() and text.isprintable()
    return text if own and not set(text) & set('\\"<> ') and len(text) < MOST_PATH else "/"


def refuse_foreign_form(request: Request) -> None:
    """Refuse a form that another site sent."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    foreign = origin is not None and urlsplit(origin).netloc != request.headers.get("host")
    if foreign or site not in ("same-origin", "none"):
        raise AccessRefused("a form of another site was sent here", remedy="Use the page itself")


async def read_form(request: Request, most: int) -> dict[str, str]:
    """The fields of a form; of a field that is there several times, the last."""
    return dict(await read_fields(request, most))


async def read_fields(request: Request, most: int) -> list[tuple[str, str]]:
    """The fields of a form in their order."""
    raw = await read_bytes(request, most)
    return parse_qsl(raw.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=500)


def _reveal(shown: Any) -> Any:
    """What a template shows: hidden characters of texts are written out; what is typed again stays as it was."""
    return reveal_controls(shown) if isinstance(shown, str) and not isinstance(shown, Markup) else shown


def begin_sentence(text: str) -> str:
    """A message as a page shows it: with a capital first, unless it begins with a place in a file, or with a symbol.

    >>> begin_sentence("there is no such table. Choose one."), begin_sentence("query:1:8: no such column")
    ('There is no such table. Choose one.', 'query:1:8: no such column')
    >>> begin_sentence("k is not a whole number")
    'k is not a whole number'
    """
    return text if re.match(r"\S+:\d|[klt]\b", text) else text[:1].upper() + text[1:]


def quote_name(name: str) -> str:
    """A name of a table or column as a question writes it: in quotes where it needs them.

    >>> [quote_name(each) for each in ("age", "group", "a.b", 'a"b')]
    ['age', '"group"', '"a.b"', '"a""b"']
    """
    return f'"{name}"' if "." in name and '"' not in name else builder.quote_name(name)


def render_allowance(cost: dict[str, str] | None) -> str:
    """A budget in words."""
    if cost is None:
        return "no limit"
    return ", ".join(f"{name} {value}" for name, value in cost.items() if value != "0") or "nothing"


def say_exactly(node: PlainBalance) -> str:
    """What is enforced of a node, for who wants to check it; empty where the plain words say all of it.

    >>> say_exactly(PlainBalance("the dataset", "", "rho", 1.48, 1.36, "delta 5e-07", "epsilon 10"))
    '1.36 of rho 1.48; delta 5e-07'
    >>> say_exactly(PlainBalance("the dataset", "", "epsilon", 10.0, 8.2))
    ''
    """
    if node.limit is None or node.left is None or (node.unit != "rho" and not node.beside):
        return ""
    amounts = f"{format_amount(node.left, 'down')} of {node.unit} {format_amount(node.limit)}"
    return amounts + (f"; {node.beside}" if node.beside else "")


def format_bound(bound: object) -> str:
    """A declared bound: numbers without a point where nothing follows it, and with commas.

    >>> [format_bound(each) for each in (250000.0, 0.5, 1990, "2025-01-01")]
    ['250,000', '0.5', '1,990', '2025-01-01']
    """
    if isinstance(bound, bool) or not isinstance(bound, int | float):
        return str(bound)
    return f"{bound:,.0f}" if bound == int(bound) else f"{bound:,}"


def format_day(moment: str | None) -> str:
    """The day and minute of a time in UTC."""
    return (moment or "")[:16].replace("T", " ")


@cache
def _read_static(name: str) -> tuple[bytes, bytes, str]:
    """A file, the same compressed, and its name by content."""
    own = files("deniable.server").joinpath("static", name)
    drawn = {} if own.is_file() else page.load_scripts() | {"blocks.css": page.read_static("blocks.css")}
    content = drawn[name].encode() if drawn else own.read_bytes()
    return content, gzip.compress(content, 6, mtime=0), f'"{hashlib.sha256(content).hexdigest()[:20]}"'


def _serve_static(name: str, kind: str) -> Endpoint:
    async def give(request: Request) -> Response:
        content, small, tag = _read_static(name)
        # Kept by the browser and asked about each time: a page is never shown with the scripts of another version.
        headers = {"etag": tag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        if "gzip" in request.headers.get("accept-encoding", ""):
            return Response(small, headers=headers | {"content-encoding": "gzip"}, media_type=kind)
        return Response(content, headers=headers, media_type=kind)

    return give


@dataclass
class Job:
    """A long step: how far it is, whether it shall stop, what it has to say meanwhile, and how it ended."""

    title: str
    done: float = 0.0
    ended: bool = False
    refusal: str = ""
    said: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def tell(self, share: float) -> None:
        """Note how far it is; stops the step where that was asked."""
        if self.stop.is_set():
            raise Stopped("it was stopped on the page", remedy="Begin it again when you like")
        self.done = max(self.done, min(1.0, share))

    def respond(self) -> Response:
        """How far it is, for the script of the page."""
        return respond_json({"done": self.done, "ended": self.ended, "said": self.said[-12:]})


def begin_job(service: Service, grant: Grant, title: str, work: Callable[[Job], None]) -> Job:
    """Begin some work in the background; what it charges names the steward who began it."""
    job = Job(title)

    def do() -> None:
        try:
            with watch_charges(ChargeWatch(by=grant.name)):
                job.tell(0.0)  # it may have been stopped while it waited
                work(job)
        except DeniableError as refusal:
            if refusal.__cause__ is not None:
                log_to_stderr(f"failed: {locate_failure(refusal)}")
            # Refusals about files are the steward's own, and are told as they are.
            over = isinstance(refusal, BudgetExceeded)
            job.refusal = (translate_for_page(refusal, only_epsilon=True) if over else refusal).message
        finally:
            job.ended = True

    service.scheduler.leave(do)
    return job
