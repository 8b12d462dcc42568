"""Web pages for analysts and for the steward: rendered here, without scripts and without other hosts.

Analysts enter with their token, ask, explain, and see what is left. The steward sees budgets, requests, tokens and the
register, and decides; a one-time link lets the steward in at the first start. A session is a cookie that holds the
token; forms are taken only from our own pages."""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deniable.curator.governance import reports, requests
from deniable.curator.query import metadata
from deniable.errors import AccessRefused, DeniableError
from deniable.governance.grants import Action, Grant, Role
from deniable.server.formats import render_plan
from deniable.server.http.endpoints import admit_request, read_bytes
from deniable.server.limits import wait_for_quantum
from deniable.server.refusals import find_http_status, translate_failure
from deniable.server.service import Question, Service

if TYPE_CHECKING:
    from deniable.curator.context import Context

SESSION_SECONDS = 8 * 3600
STATIC = {"deniable.css": "text/css"}
PageFunction = Callable[[Request, Grant], Awaitable[Response]]


class Pages:
    """What the pages of both ports share: templates, sessions, refusals."""

    def __init__(self, service: Service, cookie: str, secure: bool) -> None:
        self.service = service
        self._cookie = cookie
        self._secure = secure
        loader = PackageLoader("deniable.server", "templates")
        self._templates = Environment(loader=loader, autoescape=select_autoescape(), undefined=StrictUndefined)
        self._templates.filters["figures"] = render_allowance

    def render(self, template: str, code: int = 200, **values: Any) -> Response:
        """A page of a template."""
        shown = {"dataset": self.service.dataset, "name": "", "refusal": None} | values
        text = self._templates.get_template(template).render(**shown)
        return Response(text, code, media_type="text/html; charset=utf-8")

    def require_session(self, show: PageFunction, *, form: bool = False) -> Callable[[Request], Awaitable[Response]]:
        """A page for those who entered; others see the login page."""

        async def page(request: Request) -> Response:
            since = time.monotonic()
            try:
                if form:
                    refuse_foreign_form(request)
                token = request.cookies.get(self._cookie, "")
                if not token:
                    return self.render("enter.html")
                return await show(request, await admit_request(self.service, request, token))
            except Exception as failure:
                await wait_for_quantum(since, self.service.limits.quantum)
                return self.show_refusal(translate_failure(failure))

        return page

    def show_refusal(self, refusal: DeniableError) -> Response:
        """The login page, with what was wrong; a token that is not valid is forgotten."""
        response = self.render("enter.html", find_http_status(refusal), refusal=refusal.message)
        if refusal.code == "token":
            response.delete_cookie(self._cookie)
        return response

    async def enter(self, request: Request) -> Response:
        """Begin a session with a token."""
        since = time.monotonic()
        try:
            refuse_foreign_form(request)
            token = (await read_form(request, self.service.limits.body)).get("token", "").strip()
            await admit_request(self.service, request, token)
        except Exception as failure:
            await wait_for_quantum(since, self.service.limits.quantum)
            return self.show_refusal(translate_failure(failure))
        return self.start_session(token)

    def start_session(self, token: str, to: str = "/") -> Response:
        """A session that has just begun."""
        response = RedirectResponse(to, 303)
        response.set_cookie(
            self._cookie, token, max_age=SESSION_SECONDS, httponly=True, samesite="strict", secure=self._secure
        )
        return response

    async def leave(self, request: Request) -> Response:
        """End a session."""
        refuse_foreign_form(request)
        response = RedirectResponse("/", 303)
        response.delete_cookie(self._cookie)
        return response

    def routes(self) -> list[Route]:
        """What every port serves: the login page, and the style sheet."""
        own = [Route("/enter", self.enter, methods=["POST"]), Route("/leave", self.leave, methods=["POST"])]
        return own + [Route(f"/static/{name}", _serve_static(name, kind)) for name, kind in STATIC.items()]


def refuse_foreign_form(request: Request) -> None:
    """Refuse a form that another site sent."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin")
    foreign = origin is not None and urlsplit(origin).netloc != request.headers.get("host")
    if foreign or site not in ("same-origin", "none"):
        raise AccessRefused("a form of another site was sent here", remedy="Use the page itself")


async def read_form(request: Request, most: int) -> dict[str, str]:
    """The fields of a form."""
    raw = await read_bytes(request, most)
    pairs = parse_qsl(raw.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=50)
    return dict(pairs)


def render_allowance(cost: dict[str, str] | None) -> str:
    """A budget in words."""
    if cost is None:
        return "no limit"
    return ", ".join(f"{name} {value}" for name, value in cost.items() if value != "0") or "nothing"


def _serve_static(name: str, kind: str) -> Callable[[Request], Awaitable[Response]]:
    content = files("deniable.server").joinpath("static", name).read_bytes()

    async def give(_request: Request) -> Response:
        return Response(content, media_type=kind)

    return give


SHOWN_ROWS = 200


class AnalystPages:
    """The pages of the analysts' port."""

    def __init__(self, service: Service, secure: bool) -> None:
        self._service = service
        self._pages = Pages(service, "deniable_analyst", secure)

    def routes(self) -> list[Route]:
        """All of them."""
        return [
            Route("/", self._pages.require_session(self._home), methods=["GET"]),
            Route("/ask", self._pages.require_session(self._ask, form=True), methods=["POST"]),
            Route("/register", self._register, methods=["GET"]),
            *self._pages.routes(),
        ]

    async def _home(self, request: Request, grant: Grant) -> Response:
        return await self._show_page(grant, {"purpose": request.query_params.get("purpose", "")[:200]})

    async def _ask(self, request: Request, grant: Grant) -> Response:
        since = time.monotonic()
        form = await read_form(request, self._service.limits.body)
        values: dict[str, Any] = {}
        try:
            question = _read_question(form)
            if form.get("deed") == "explain":
                values["plan"] = render_plan(await self._service.explain(grant, question))
            else:
                values["answer"] = _build_answer_view(await self._service.answer(grant, question))
        except Exception as failure:
            values["refusal"] = translate_failure(failure).message
        await wait_for_quantum(since, self._service.limits.quantum)
        return await self._show_page(grant, form, **values)

    async def _show_page(self, grant: Grant, form: dict[str, str], **values: Any) -> Response:
        who = self._service.authorize(grant, Action.EXPLAIN, _choose_purpose(grant, form))
        curator = self._service.curator
        tables = await self._service.run_for(grant, lambda: metadata.schema(self._service.speak_for(grant, who)))
        balance = await self._service.run_for(grant, lambda: reports.balance(self._service.speak_for(grant, who)))
        epoch = await self._service.run_for(grant, lambda: curator.epoch)
        shown = {"plan": None, "answer": None, "epoch": epoch} | values
        defaults = {"sql": _suggest_query(tables), "epsilon": "0.1", "purpose": who.purpose}
        form = defaults | {name: value for name, value in form.items() if value}
        purposes = grant.purposes or ()
        return self._pages.render(
            "analyst.html", name=grant.name, form=form, tables=tables, balance=balance, purposes=purposes, **shown
        )

    async def _register(self, _request: Request) -> Response:
        curator = self._service.curator
        work = self._service.scheduler.run("register", lambda: reports.register(curator.ledger), "register")
        try:
            return self._pages.render("register.html", register=await asyncio.wait_for(work, 30))
        except Exception as failure:
            return self._pages.show_refusal(translate_failure(failure))


def _choose_purpose(grant: Grant, form: dict[str, str]) -> str:
    return form.get("purpose", "") or (grant.purposes[0] if grant.purposes else "")


def _read_question(form: dict[str, str]) -> Question:
    return Question(sql=form.get("sql", ""), epsilon=form.get("epsilon") or None, delta=form.get("delta") or "0",
                    rho=form.get("rho") or None, purpose=form.get("purpose", ""))  # fmt: skip


def _suggest_query(tables: Sequence[metadata.TableSummary]) -> str:
    private = [table.table for table in tables if not table.public]
    return f"SELECT COUNT(*) AS n FROM {(private or ['...'])[0]}"  # noqa: S608  shown, and run by nobody


def _build_answer_view(answer: Any) -> dict[str, Any]:
    """The numbers with their errors, as the page shows them."""
    names = [name for name in answer.rows.column_names if not name.endswith(("_low", "_high"))]
    rows = answer.rows.slice(0, SHOWN_ROWS).to_pylist()
    return {
        "names": names,
        "rows": [[_format_cell(row, name) for name in names] for row in rows],
        "more": max(0, answer.rows.num_rows - SHOWN_ROWS),
        "details": answer.release.details,
        "repeated": answer.repeated,
    }


def _format_cell(row: dict[str, Any], name: str) -> dict[str, str]:
    value, low, high = row[name], row.get(f"{name}_low"), row.get(f"{name}_high")
    text = f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)
    error = "" if low is None or high is None else f"{(high - low) / 2:,.4g}"
    return {"text": text, "error": error}


NEWEST = 50
LINK_SECONDS = 15 * 60.0
"""How long the link of a first start is good for."""


class OneTimeKey:
    """A key that opens the steward's page once within some minutes, and is then nothing."""

    def __init__(self, text: str | None = None) -> None:
        self._text = text
        self._made = time.monotonic()

    @classmethod
    def new(cls) -> tuple[OneTimeKey, str]:
        """A key and its text, which is shown once."""
        text = secrets.token_urlsafe(24)
        return cls(text), text

    def fits(self, text: str) -> bool:
        """Whether it opens."""
        if self._text is None or time.monotonic() - self._made > LINK_SECONDS:
            return False
        return hmac.compare_digest(self._text.encode(), text.encode("utf-8", "replace"))

    def use(self, text: str) -> None:
        """Open once, or refuse."""
        if not self.fits(text):
            raise AccessRefused(
                "this link was used, is over, or never existed", remedy="Issue a token: deniable token --help"
            )
        self._text = None


def _list_newest_tokens(context: Context) -> list[requests.TokenReport]:
    return list(requests.list_tokens(context).values())[::-1][:NEWEST]


def has_steward(context: Context) -> bool:
    """Whether somebody holds a steward's token."""
    listed = requests.list_tokens(context).values()
    return any(each["role"] == Role.STEWARD and not each["revoked"] for each in listed)


class StewardPages:
    """The pages of the steward's port."""

    def __init__(self, service: Service, first: OneTimeKey, secure: bool) -> None:
        self._service = service
        self._first = first
        self._pages = Pages(service, "deniable_steward", secure)

    def routes(self) -> list[Route]:
        """All of them."""
        inside = self._pages.require_session
        return [
            Route("/", inside(self._home), methods=["GET"]),
            Route("/first/{key}", self._first_page, methods=["GET"]),
            Route("/first/{key}", self._first_entry, methods=["POST"]),
            Route("/requests/{request}/{decision}", inside(self._decide, form=True), methods=["POST"]),
            Route("/tokens", inside(self._issue, form=True), methods=["POST"]),
            Route("/tokens/{token}/revoke", inside(self._revoke, form=True), methods=["POST"]),
            *self._pages.routes(),
        ]

    async def _first_page(self, request: Request) -> Response:
        """A button, so that a preview of the link does not use it up."""
        key = str(request.path_params["key"])
        if not self._first.fits(key):
            return self._pages.render("enter.html", 403, refusal="This link was used, is over, or never existed.")
        return self._pages.render("first.html", key=key)

    async def _first_entry(self, request: Request) -> Response:
        since = time.monotonic()
        try:
            refuse_foreign_form(request)
            self._first.use(str(request.path_params["key"]))
            token = await self._service.scheduler.run("steward", self._issue_first_token)
        except Exception as failure:
            await wait_for_quantum(since, self._service.limits.quantum)
            return self._pages.show_refusal(translate_failure(failure))
        return self._pages.start_session(token)

    def _issue_first_token(self) -> str:
        """The first steward's token; refuses where another steward came first, by whichever way."""
        context = self._service.curator.context
        if has_steward(context):
            raise AccessRefused("there is a steward already", remedy="Ask the steward for a token")
        return requests.issue(context, "steward", Role.STEWARD, None, 30)[0]

    async def _home(self, _request: Request, grant: Grant) -> Response:
        return await self._show_page(grant)

    async def _show_page(self, grant: Grant, token: str = "", refusal: str | None = None) -> Response:
        self._service.authorize(grant, Action.AUDIT)
        curator = self._service.curator
        steward = grant.role is Role.STEWARD
        return self._pages.render(
            "steward.html",
            name=grant.name,
            steward=steward,
            budgets=await self._service.run_for(grant, lambda: reports.budgets(curator.context)),
            requests=(await self._service.run_for(grant, lambda: reports.requests(curator.context, risk=steward)))[
                :NEWEST
            ],
            tokens=(await self._service.read_record(lambda: _list_newest_tokens(curator.context))) if steward else [],
            releases=(await self._service.run_for(grant, lambda: reports.register(curator.ledger)))["releases"][::-1][
                :NEWEST
            ],
            purposes=[each.name for each in curator.policy.budgets.purposes] if curator.policy.budgets else [],
            token=token,
            refusal=refusal,
        )

    async def _decide(self, request: Request, grant: Grant) -> Response:
        form = await read_form(request, self._service.limits.body)
        identity, approved = str(request.path_params["request"]), request.path_params["decision"] == "approve"
        try:
            await self._service.decide(grant, identity, approved, form.get("reason", "")[:2000])
        except DeniableError as refusal:
            return await self._show_page(grant, refusal=translate_failure(refusal).message)
        return RedirectResponse("/", 303)

    async def _issue(self, request: Request, grant: Grant) -> Response:
        form = await read_form(request, self._service.limits.body)
        curator, name = self._service.curator, form.get("name", "").strip()[:200]
        purposes = [form["purpose"]] if form.get("purpose") else None
        self._service.authorize(grant, Action.GRANT)
        try:
            token, _ = await self._service.run_for(
                grant, lambda: requests.issue(curator.context, name, Role.ANALYST, purposes, 90, grant)
            )
        except DeniableError as refusal:
            return await self._show_page(grant, refusal=translate_failure(refusal).message)
        return await self._show_page(grant, token=token)

    async def _revoke(self, request: Request, grant: Grant) -> Response:
        curator, identity = self._service.curator, str(request.path_params["token"])
        self._service.authorize(grant, Action.GRANT)
        try:
            await self._service.run_for(grant, lambda: requests.revoke(curator.context, identity, grant.name))
        except DeniableError as refusal:
            return await self._show_page(grant, refusal=translate_failure(refusal).message)
        return RedirectResponse("/", 303)
