"""The policy editor: a policy is checked as it is typed, compared with the one in force, and written to its file.

The server goes on with the policy that it was started with: what is saved counts from its next start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from deniable.curator.policy import check
from deniable.errors import AccessRefused, DataError, DeniableError, PolicyError
from deniable.governance.grants import Action, Grant, Role
from deniable.server.http.bodies import describe_field
from deniable.server.http.endpoints import read_json, respond_json
from deniable.server.refusals import translate_failure
from deniable.server.workbench.pages import Pages, read_form

if TYPE_CHECKING:
    from pathlib import Path

    from deniable.server.service import Service

MOST_POLICY = 1_000_000
"""The most bytes of a policy that is edited here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyText:
    """A policy as it is being typed."""

    text: str = describe_field("The whole policy in YAML.", maxLength=MOST_POLICY)


class PolicyEditor:
    """The page of the policy."""

    def __init__(self, service: Service, pages: Pages) -> None:
        self._service = service
        self._pages = pages

    def routes(self) -> list[Route]:
        """All of them."""
        inside, script = self._pages.require_session, self._pages.require_script
        return [
            Route("/policy", inside(self._show), methods=["GET"]),
            Route("/policy", inside(self._save, form=True), methods=["POST"]),
            Route("/policy/check", script(self._check), methods=["POST"]),
            Route("/policy/evidence/{table}", inside(self._show_evidence), methods=["GET"]),
        ]

    async def _show(self, _request: Request, grant: Grant) -> Response:
        path = self._find_file(grant)
        text = await self._service.run_for(grant, lambda: path.read_text("utf-8-sig"))
        return await self._render(grant, text)

    async def _render(self, grant: Grant, text: str, **values: Any) -> Response:
        path, context = self._find_file(grant), self._service.curator.context
        told = await self._service.run_for(grant, lambda: _describe_text(path, text))
        tables = [each.name for each in context.policy.tables]
        in_force = bool(told["summary"]) and told["summary"]["hash"] == context.policy.hash
        shown = {"change": None, "saved": False, "refusal": None} | values
        return self._pages.render(
            "policy.html", here="/policy", name=grant.name, text=text, file=path.name, tables=tables,
            in_force=in_force, **told, **shown,
        )  # fmt: skip

    async def _check(self, request: Request, grant: Grant) -> Response:
        path = self._find_file(grant)
        body: PolicyText = await read_json(request, PolicyText, MOST_POLICY)
        return respond_json(await self._service.run_for(grant, lambda: _describe_text(path, body.text)))

    async def _save(self, request: Request, grant: Grant) -> Response:
        """Compare or save what was typed, without scripts or with them."""
        path, context = self._find_file(grant), self._service.curator.context
        form = await read_form(request, MOST_POLICY)
        text = form.get("text", "").replace("\r\n", "\n")
        try:
            if form.get("deed") == "compare":
                change = await self._service.run_for(grant, lambda: check.foresee_change(context, path, text))
                return await self._render(grant, text, change=change)
            accept = form.get("accept") == "yes"
            await self._service.run_for(
                grant, lambda: check.save_policy(path, text, _name_person(grant), accept=accept)
            )
        except DeniableError as refusal:
            return await self._render(grant, text, refusal=translate_failure(refusal).message)
        return await self._render(grant, text, saved=True)

    async def _show_evidence(self, request: Request, grant: Grant) -> Response:
        self._find_file(grant)
        policy, table = self._service.curator.policy, str(request.path_params["table"])
        shown: dict[str, Any] = {"here": "/policy", "name": grant.name, "table": table}
        try:
            found = await self._service.run_for(grant, lambda: check.gather_evidence(policy, table))
        except DataError as refusal:  # it is about the steward's own file, and is told as it is
            return self._pages.render("evidence.html", 422, columns=(), refusal=refusal.message, **shown)
        return self._pages.render("evidence.html", columns=found, **shown)

    def _find_file(self, grant: Grant) -> Path:
        """The policy's file, for the steward alone."""
        self._service.authorize(grant, Action.AUDIT)
        if grant.role is not Role.STEWARD:
            raise AccessRefused("the policy is edited by the steward", remedy="Ask the steward")
        path = self._service.policy_file
        if path is None:
            raise AccessRefused("this server has no policy file", remedy="Start it with: deniable serve POLICY")
        return path


def _name_person(grant: Grant) -> str:
    return f"{grant.name} on the steward's page"


# a dictionary: JSON for the page's script, and values of its template
def _describe_text(path: Path, text: str) -> dict[str, Any]:
    """What is wrong with a policy, each with its place; or, where nothing is, what it says in plain words."""
    try:
        return {"summary": check.check_text(path, text).to_dict(), "mistakes": []}
    except PolicyError as refusal:
        listed = refusal.mistakes or (refusal,)
        return {"summary": None, "mistakes": [_describe_mistake(each) for each in listed]}


def _describe_mistake(mistake: PolicyError) -> dict[str, Any]:
    place = mistake.place
    said = " ".join(filter(None, (f"{mistake.happened}.", mistake.expected and f"{mistake.expected}.", mistake.remedy)))
    return {"line": place.line if place else None, "column": place.column if place else None, "message": said}
