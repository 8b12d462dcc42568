"""Laboratories: pages on which the steward looks at a table, tries protections on it, and attacks it.

What reads rows without noise is for the steward's eyes and charges nothing, because nothing leaves. What charges says
so beside its button. Each laboratory runs in the background with progress, can be stopped, and keeps what it found in
memory for a while."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from cachetools import TTLCache
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deniable.errors import AccessRefused, DeniableError, ParameterError
from deniable.governance.grants import Action, Grant, Role
from deniable.server.refusals import translate_for_page
from deniable.server.service import build_not_found
from deniable.server.workbench.pages import Job, Pages, begin_job, read_form

if TYPE_CHECKING:
    from deniable.curator.context import Context
    from deniable.reports.blocks import Page
    from deniable.server.service import Service

MOST_RUNS = 30
RUN_SECONDS = 4 * 3600.0
Form = Mapping[str, str]
Values = Mapping[str, Any]
"""What a template shows."""


@dataclass
class Run:
    """One run of a laboratory: what was asked, how far it is, and what was found."""

    lab: Lab
    table: str
    given: Form
    job: Job | None = None
    found: Any = None


class Lab:
    """What a laboratory has: words, a form, work in the background, and a page of what was found."""

    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    about: ClassVar[str] = ""
    price: ClassVar[str] = "Nothing is charged: nothing leaves."
    template: ClassVar[str] = "lab_form.html"

    def __init__(self, service: Service, pages: Pages) -> None:
        self.service = service
        self.pages = pages

    @property
    def context(self) -> Context:
        """The dataset's context: the steward is no analyst."""
        return self.service.curator.context

    @property
    def folder(self) -> Path:
        """The folder of the policy, in which files are found and made."""
        path = self.service.policy_file
        if path is None:
            raise AccessRefused("this server has no folder of files", remedy="Start it with: deniable serve POLICY")
        return path.parent

    def list_tables(self) -> list[str]:
        """The tables that can be looked at here."""
        return [table.name for table in self.context.policy.private]

    def describe_form(self, table: str, given: Form) -> Values:
        """What the form shows."""
        raise NotImplementedError

    def routes(self) -> list[Route]:
        """Pages of its own, where it has any."""
        return []

    def charges(self, given: Form) -> bool:  # noqa: ARG002  labs that charge ask the form
        """Whether what a form asks for is charged."""
        return False

    def plan(self, table: str, given: Form) -> Callable[[Job], Any]:
        """The work that a form asks for; refuses what cannot be before it is begun."""
        raise NotImplementedError

    def show(self, run: Run, request: Request) -> tuple[str, Values]:
        """The template of what was found, and its values; it is called off the event loop."""
        raise NotImplementedError


class Laboratories:
    """The pages of all laboratories."""

    def __init__(self, service: Service, pages: Pages, labs: Sequence[Lab]) -> None:
        self._service = service
        self._pages = pages
        self._labs = {lab.name: lab for lab in labs}
        self._runs: TTLCache[str, Run] = TTLCache(MOST_RUNS, RUN_SECONDS)

    def routes(self) -> list[Route]:
        """All of them."""
        inside, script = self._pages.require_session, self._pages.require_script
        return [
            Route("/labs", inside(self._list), methods=["GET"]),
            *(route for lab in self._labs.values() for route in lab.routes()),
            Route("/labs/runs/{run}", inside(self._show_run), methods=["GET"]),
            Route("/labs/runs/{run}/progress", script(self._tell_progress), methods=["GET"]),
            Route("/labs/runs/{run}/stop", inside(self._stop, form=True), methods=["POST"]),
            Route("/labs/{lab}", inside(self._show_form), methods=["GET"]),
            Route("/labs/{lab}", inside(self._begin, form=True), methods=["POST"]),
        ]

    async def _list(self, _request: Request, grant: Grant) -> Response:
        refuse_others(self._service, grant)
        runs = [(identity, run) for identity, run in reversed(list(self._runs.items())) if run.job is not None]
        return self._render(grant, "labs.html", labs=self._labs.values(), runs=runs)

    async def _show_form(self, request: Request, grant: Grant) -> Response:
        refuse_others(self._service, grant)
        given = {name: value[:2000] for name, value in request.query_params.items()}
        return await self._render_form(grant, self._find_lab(request), given)

    async def _render_form(self, grant: Grant, lab: Lab, given: Form, refusal: str | None = None) -> Response:
        tables = lab.list_tables()
        table = given.get("table", "") if given.get("table", "") in tables else (tables or [""])[0]
        shown = await self._service.run_for(grant, lambda: lab.describe_form(table, given)) if tables else {}
        return self._render(
            grant, lab.template, lab=lab, tables=tables, table=table, given=given, refusal=refusal, **shown
        )

    async def _begin(self, request: Request, grant: Grant) -> Response:
        refuse_others(self._service, grant)
        lab, given = self._find_lab(request), await read_form(request, self._service.limits.body)
        table = given.get("table", "")
        try:
            if table not in lab.list_tables():
                raise ParameterError("there is no such table here", remedy="Choose one of the list")
            work = await self._service.run_for(grant, lambda: lab.plan(table, given))
            if lab.charges(given) and given.get("again") != "yes":
                self._refuse_second(lab, given)  # nothing is waited for from here until the run is noted
        except DeniableError as refusal:
            told = translate_for_page(refusal, only_epsilon=True).message
            return await self._render_form(grant, lab, given, told)
        run, identity = Run(lab, table, given), secrets.token_hex(8)

        def do(job: Job) -> None:
            run.found = work(job)

        run.job = begin_job(self._service, grant, f"{lab.title}: {table}", do)
        self._runs[identity] = run
        return RedirectResponse(f"/labs/runs/{identity}", 303)

    def _refuse_second(self, lab: Lab, given: Form) -> None:
        """Refuse to charge a second time for what an equal form asked for, unless that is said."""
        for run in self._runs.values():
            equal = run.lab is lab and _normalize(run.given) == _normalize(given)
            if equal and run.job is not None and not run.job.refusal:
                made = "is being made" if run.found is None else "was made"
                raise ParameterError(
                    f"an equal model {made}, and charged, since this server started",
                    expected="Look at that one, which is free: it is listed under Laboratories",
                    remedy="Choose “Charge it once more” to make another",
                )

    async def _show_run(self, request: Request, grant: Grant) -> Response:
        run, identity = self._find_run(request, grant)
        job = run.job
        assert job is not None
        if not job.ended:
            return self._render(grant, "lab_progress.html", run=run, identity=identity, job=job)
        if run.found is None:
            return await self._render_form(grant, run.lab, run.given, job.refusal or "It ended without a result.")
        beside: dict[str, Any] = {"command": "", "kept": ""}
        template, values = await self._service.run_for(grant, lambda: run.lab.show(run, request))
        return self._render(grant, template, lab=run.lab, run=run, identity=identity, **{**beside, **values})

    async def _tell_progress(self, request: Request, grant: Grant) -> Response:
        job = self._find_run(request, grant)[0].job
        assert job is not None
        return job.respond()

    async def _stop(self, request: Request, grant: Grant) -> Response:
        run, identity = self._find_run(request, grant)
        if run.job is not None:
            run.job.stop.set()
        return RedirectResponse(f"/labs/runs/{identity}", 303)

    def _find_lab(self, request: Request) -> Lab:
        lab = self._labs.get(str(request.path_params["lab"]))
        if lab is None:
            raise build_not_found("laboratory")
        return lab

    def _find_run(self, request: Request, grant: Grant) -> tuple[Run, str]:
        refuse_others(self._service, grant)
        identity = str(request.path_params["run"])
        run = self._runs.get(identity)
        if run is None:
            raise build_not_found("run; what was found is kept for some hours")
        return run, identity

    def _render(self, grant: Grant, template: str, **values: Any) -> Response:
        return self._pages.render(template, here="/labs", name=grant.name, **values)


def _normalize(given: Form) -> dict[str, str]:
    """A form as it is compared: numbers are equal however they are written."""
    told = {}
    for name, value in given.items():
        try:
            told[name] = str(Decimal(value.strip()).normalize())
        except InvalidOperation:
            told[name] = value.strip()
    return {name: value for name, value in told.items() if value and name != "again"}


def refuse_others(service: Service, grant: Grant) -> None:
    """Refuse everybody but the steward: laboratories show rows without noise."""
    service.authorize(grant, Action.AUDIT)
    if grant.role is not Role.STEWARD:
        raise AccessRefused("laboratories show private rows", remedy="Only the steward may enter them")


def render_report(page: Page) -> Markup:
    """The sections of a report inside a page of the workbench: reports escape what they are given."""
    from deniable.reports.page import render_sections

    return Markup(render_sections(page))  # noqa: S704  written by our own renderer, which escapes


def read_number(given: Form, name: str, what: str, low: float, high: float) -> float | None:
    """A number of a form; None where the field is empty."""
    text = given.get(name, "").strip()
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not low <= number <= high:
        raise ParameterError(f"{what} is '{text[:40]}'", expected=f"A number from {low:g} to {high:g}")
    return number
