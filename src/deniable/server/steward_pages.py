"""The steward's page: budgets, requests to decide, tokens, the register; and the one-time link of the first start."""

from __future__ import annotations

import hmac
import secrets
import time

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deniable.curator import governing, serving
from deniable.errors import AccessRefused, DeniableError
from deniable.governance.grants import Action, Grant, Role
from deniable.server.desk import Desk
from deniable.server.limits import even
from deniable.server.messages import told
from deniable.server.pages import Pages, form_of, own_form

NEWEST = 50


class FirstKey:
    """A key that opens the steward's page once, and is then nothing."""

    def __init__(self, text: str | None = None) -> None:
        self._text = text

    @classmethod
    def new(cls) -> tuple[FirstKey, str]:
        """A key and its text, which is shown once."""
        text = secrets.token_urlsafe(24)
        return cls(text), text

    def fits(self, text: str) -> bool:
        """Whether it opens."""
        return self._text is not None and hmac.compare_digest(self._text.encode(), text.encode("utf-8", "replace"))

    def use(self, text: str) -> None:
        """Open once, or refuse."""
        if not self.fits(text):
            raise AccessRefused("this link was used or never existed", remedy="Issue a token: deniable token --help")
        self._text = None


class StewardPages:
    """The pages of the steward's port."""

    def __init__(self, desk: Desk, first: FirstKey, secure: bool) -> None:
        self._desk = desk
        self._first = first
        self._pages = Pages(desk, "deniable_steward", secure)

    def routes(self) -> list[Route]:
        """All of them."""
        inside = self._pages.inside
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
            return self._pages.render("enter.html", 403, refusal="This link was used or never existed.")
        return self._pages.render("first.html", key=key)

    async def _first_entry(self, request: Request) -> Response:
        since = time.monotonic()
        try:
            own_form(request)
            self._first.use(str(request.path_params["key"]))
            curator = self._desk.curator
            token, _ = await self._desk.workshop.run(
                "steward", lambda: governing.issue(curator, "steward", Role.STEWARD, None, 30)
            )
        except Exception as failure:
            await even(since, self._desk.limits.quantum)
            return self._pages.refused(told(failure))
        return self._pages.entered(token)

    async def _home(self, _request: Request, grant: Grant) -> Response:
        return await self._shown(grant)

    async def _shown(self, grant: Grant, token: str = "", refusal: str | None = None) -> Response:
        self._desk.asker(grant, Action.AUDIT)
        curator = self._desk.curator
        steward = grant.role is Role.STEWARD
        return self._pages.render(
            "steward.html",
            name=grant.name,
            steward=steward,
            budgets=await self._desk.hall(grant, lambda: serving.budgets(curator)),
            requests=(await self._desk.hall(grant, lambda: serving.requests(curator)))[:NEWEST],
            tokens=list(governing.listed(curator).values())[::-1][:NEWEST] if steward else [],
            releases=(await self._desk.hall(grant, lambda: serving.register(curator)))["releases"][::-1][:NEWEST],
            purposes=[each.name for each in curator.policy.budgets.purposes] if curator.policy.budgets else [],
            token=token,
            refusal=refusal,
        )

    async def _decide(self, request: Request, grant: Grant) -> Response:
        form = await form_of(request, self._desk.limits.body)
        identity, approved = str(request.path_params["request"]), request.path_params["decision"] == "approve"
        try:
            await self._desk.decide(grant, identity, approved, form.get("reason", "")[:2000])
        except DeniableError as refusal:
            return await self._shown(grant, refusal=told(refusal).message)
        return RedirectResponse("/", 303)

    async def _issue(self, request: Request, grant: Grant) -> Response:
        form = await form_of(request, self._desk.limits.body)
        curator, name = self._desk.curator, form.get("name", "").strip()[:200]
        purposes = [form["purpose"]] if form.get("purpose") else None
        self._desk.asker(grant, Action.GRANT)
        try:
            token, _ = await self._desk.hall(
                grant, lambda: governing.issue(curator, name, Role.ANALYST, purposes, 90, grant.name)
            )
        except DeniableError as refusal:
            return await self._shown(grant, refusal=told(refusal).message)
        return await self._shown(grant, token=token)

    async def _revoke(self, request: Request, grant: Grant) -> Response:
        curator, identity = self._desk.curator, str(request.path_params["token"])
        self._desk.asker(grant, Action.GRANT)
        try:
            await self._desk.hall(grant, lambda: governing.revoke(curator, identity, grant.name))
        except DeniableError as refusal:
            return await self._shown(grant, refusal=told(refusal).message)
        return RedirectResponse("/", 303)
