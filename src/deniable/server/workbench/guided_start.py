"""A guided start for a new table: the steps of `deniable start` as pages, one decision a page.

Tables are files in the folder of the policy that is served, and what is made goes into a folder beside each. Long steps
run in the background: a page shows how far they are, and they can be stopped."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deniable.curator import start as steps
from deniable.curator.policy import compose, decisions
from deniable.errors import AccessRefused, DeniableError, Infeasible, ParameterError
from deniable.governance.grants import Action, Grant, Role
from deniable.policy.schema import Role as ColumnRole
from deniable.server.http.endpoints import respond_json
from deniable.server.refusals import translate_failure
from deniable.server.service import build_not_found
from deniable.server.workbench.pages import Job, Pages, begin_job, read_form

if TYPE_CHECKING:
    from deniable.curator.policy.draft import Draft
    from deniable.server.service import Service

ENDINGS = (".csv", ".tsv", ".csv.gz", ".parquet")
MOST_FILES = 200
REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
)
"""The report brings its scripts and names them by hash; in a sandbox it is of no origin, and holds no session."""


@dataclass
class Begun:
    """A table whose start was begun: what was found of it, and the step that runs."""

    place: steps.Place
    made: Draft | None = None
    found: steps.Findings = field(default_factory=steps.Findings)
    report: Any = None
    leaving: decisions.Question | None = None
    """Which column shall be left out: asked when a release would single out too many with all of them."""
    job: Job | None = None


class GuidedStart:
    """The pages of a guided start."""

    def __init__(self, service: Service, pages: Pages) -> None:
        self._service = service
        self._pages = pages
        self._begun: dict[str, Begun] = {}

    def routes(self) -> list[Route]:
        """All of them."""
        inside, script = self._pages.require_session, self._pages.require_script
        return [
            Route("/start", inside(self._list_tables), methods=["GET"]),
            Route("/start", inside(self._begin, form=True), methods=["POST"]),
            Route("/start/{name}", inside(self._show_step), methods=["GET"]),
            Route("/start/{name}/progress", script(self._tell_progress), methods=["GET"]),
            Route("/start/{name}/report", inside(self._show_report), methods=["GET"]),
            Route("/start/{name}/{act}", inside(self._act, form=True), methods=["POST"]),
        ]

    async def _list_tables(self, _request: Request, grant: Grant) -> Response:
        return await self._render_list(grant)

    async def _render_list(self, grant: Grant, refusal: str | None = None) -> Response:
        folder = self._find_folder(grant)
        files = await self._service.run_for(grant, lambda: list_files(folder))
        return self._render(grant, "start.html", files=files, begun=sorted(self._begun), refusal=refusal)

    async def _begin(self, request: Request, grant: Grant) -> Response:
        folder = self._find_folder(grant)
        chosen = (await read_form(request, self._service.limits.body)).get("file", "")
        files = await self._service.run_for(grant, lambda: list_files(folder))
        if chosen not in files:
            return await self._render_list(grant, "There is no such table in the policy's folder.")
        name = _name_table(chosen, files)
        begun = self._begun.setdefault(name, Begun(steps.Place(str(folder / chosen), folder / f"{name}-release")))
        if begun.made is None and (begun.job is None or begun.job.ended):
            self._run(grant, begun, "Looking at the table, and attacking it as it stands", _look)
        return RedirectResponse(f"/start/{name}", 303)

    async def _show_step(self, request: Request, grant: Grant) -> Response:
        begun, name = self._find_begun(request, grant)
        return await self._render_step(grant, begun, name)

    async def _render_step(self, grant: Grant, begun: Begun, name: str, refusal: str = "") -> Response:
        job = begun.job
        if job is not None and not job.ended:
            return self._render(grant, "start_progress.html", table=name, job=job, step=_number_step(begun))
        refusal = refusal or (job.refusal if job is not None else "")
        if begun.made is None:
            return self._render(grant, "start_failed.html", table=name, refusal=refusal)
        if begun.report is not None:
            rows = await self._service.run_for(grant, lambda: _preview(begun))
            return self._render(
                grant, "start_done.html", table=name, report=begun.report, step=5, rows=rows, refusal=refusal or None
            )
        decided = await self._service.run_for(grant, lambda: _read_decided(begun))
        question = begun.leaving or decisions.next_question(begun.made, decided)
        shown = {"table": name, "made": begun.made, "found": begun.found, "refusal": refusal or None}
        if question is not None:
            asked = [(place, each) for place, each in enumerate(begun.made.columns)
                     if each.role is not ColumnRole.UNDECIDED and each.name not in decided.roles]  # fmt: skip
            return self._render(
                grant, "start_decide.html", question=question, step=2, asked=asked, roles=decisions.ROLES, **shown
            )
        changes = [(column, *compose.describe_change(column, decided)) for column in begun.made.columns]
        words = decisions.TECHNIQUES[str(decided.technique)]
        return self._render(
            grant, "start_release.html", decided=decided.to_dict(), changes=changes, words=words, step=3, **shown
        )

    async def _act(self, request: Request, grant: Grant) -> Response:
        begun, name = self._find_begun(request, grant)
        form, act = await read_form(request, self._service.limits.body), str(request.path_params["act"])
        try:
            if act == "stop":
                if begun.job is not None:
                    begun.job.stop.set()
            elif begun.job is not None and not begun.job.ended:
                raise ParameterError("a step is running", remedy="Wait for it, or stop it")
            else:
                await self._do(grant, begun, act, form)
        except DeniableError as refusal:
            return await self._render_step(grant, begun, name, translate_failure(refusal).message)
        return RedirectResponse(f"/start/{name}", 303)

    async def _do(self, grant: Grant, begun: Begun, act: str, form: dict[str, str]) -> None:
        if act == "again":
            self._run(grant, begun, "Looking at the table, and attacking it as it stands", _look)
        elif act == "release":
            self._run(grant, begun, "Releasing, and attacking what was released", _release)
        elif act == "decide":
            await self._service.run_for(grant, lambda: _decide(begun, form))
        elif act == "reconsider":
            begun.report = begun.leaving = None
            await self._service.run_for(grant, lambda: begun.place.decisions.unlink(missing_ok=True))
        else:
            raise ParameterError("there is no such step")

    def _run(self, grant: Grant, begun: Begun, title: str, work: Callable[[Begun, Job], None]) -> None:
        """Begin a long step in the background."""
        begun.job = begin_job(self._service, grant, title, lambda job: work(begun, job))

    async def _tell_progress(self, request: Request, grant: Grant) -> Response:
        job = self._find_begun(request, grant)[0].job
        return respond_json({"done": 1.0, "ended": True, "said": []}) if job is None else job.respond()

    async def _show_report(self, request: Request, grant: Grant) -> Response:
        begun, _ = self._find_begun(request, grant)
        if begun.report is None or not begun.place.page.exists():
            raise build_not_found("report")
        content = await self._service.run_for(grant, begun.place.page.read_bytes)
        headers = {"content-security-policy": REPORT_POLICY}
        return Response(content, headers=headers, media_type="text/html; charset=utf-8")

    def _find_begun(self, request: Request, grant: Grant) -> tuple[Begun, str]:
        self._find_folder(grant)
        name = str(request.path_params["name"])
        if name not in self._begun:
            raise build_not_found("table")
        return self._begun[name], name

    def _find_folder(self, grant: Grant) -> Path:
        """The folder in which tables are found, for the steward alone."""
        self._service.authorize(grant, Action.AUDIT)
        if grant.role is not Role.STEWARD:
            raise AccessRefused("a table is released by the steward", remedy="Ask the steward")
        path = self._service.policy_file
        if path is None:
            raise AccessRefused("this server has no folder of tables", remedy="Start it with: deniable serve POLICY")
        return path.parent

    def _render(self, grant: Grant, template: str, **values: Any) -> Response:
        return self._pages.render(template, here="/start", name=grant.name, **values)


def list_files(folder: Path) -> list[str]:
    """The tables that lie in a folder itself, by their names."""
    found = (each.name for each in sorted(folder.iterdir()) if each.is_file() and not each.name.startswith("."))
    return [name for name in found if name.lower().endswith(ENDINGS)][:MOST_FILES]


def _name_table(file: str, files: Sequence[str]) -> str:
    """A file without its ending, as `deniable start` names the folder; with it where two differ by it alone."""
    stem = file.split(".")[0]
    alike = [each for each in files if each.split(".")[0] == stem]
    return re.sub(r"[^\w-]+", "-", stem if len(alike) == 1 else file).strip("-") or "table"


def _number_step(begun: Begun) -> int:
    return 1 if begun.made is None else 4


def _look(begun: Begun, job: Job) -> None:
    """Look at the table and attack it as it stands; what an earlier run found stands if the table is the same."""
    if begun.place.policy.exists() and not begun.place.state.exists():
        name = begun.place.folder.name
        raise ParameterError(f"'{name}' holds a policy that no start wrote", remedy="Move that folder elsewhere")
    made = steps.look(begun.place, lambda share: job.tell(share / 2))
    version, known = steps.name_version(begun.place), steps.read_state(begun.place)
    found = known if known.version == version else steps.Findings()
    if known.version and known.version != version:
        steps.begin_epoch(begun.place)
    found = replace(found, version=version)
    if not found.before:
        found = steps.attack_before(begun.place, made, found, lambda share: job.tell(0.5 + share / 2))
    steps.save_state(begun.place, found)
    begun.made, begun.found = made, found


def _read_decided(begun: Begun) -> decisions.Decisions:
    """What was decided so far."""
    if begun.made is None or not begun.place.decisions.exists():
        return decisions.Decisions()
    return steps.read_decisions(begun.made, begun.place.decisions, known_only=True)


def _decide(begun: Begun, form: dict[str, str]) -> None:
    """Take the answer to the question that is open, or all recommended ones; an answer to another one is refused."""
    made, decided = begun.made, _read_decided(begun)
    question = begun.leaving or (decisions.next_question(made, decided) if made is not None else None)
    if made is None or question is None:
        raise ParameterError("everything is decided already")
    said = form.get("text", "").strip() or form.get("choice", "")
    if form.get("all") == "yes" and begun.leaving is None:
        decided = decisions.recommend_all(made, decided)
    else:
        if form.get("key") != question.key:
            raise ParameterError("this was decided on another page meanwhile", remedy="Answer what is asked now")
        if begun.leaving is not None:
            decided = compose.leave_out(decided, question, said or question.recommended)
        elif chosen := _read_roles(made, form):
            decided = decisions.merge_decisions(decided, decisions.read_answers(made, {"roles": chosen}))
        else:
            decided = decisions.take_answer(made, decided, question, said)
        begun.leaving = None
    steps.save_decisions(begun.place, decided)


def _read_roles(made: Draft, form: dict[str, str]) -> dict[str, str]:
    """The roles that were chosen from lists, by the places of their columns in the table."""
    fields = {str(place): column.name for place, column in enumerate(made.columns)}
    return {fields[key[5:]]: role for key, role in form.items() if key[:5] == "role." and key[5:] in fields}


def _release(begun: Begun, job: Job) -> None:
    """Learn, release, attack what was released and read it back; what passes a limit is removed again."""
    assert begun.made is not None
    place, made, decided = begun.place, begun.made, _read_decided(begun)
    basis = steps.name_basis(decided)
    found = begun.found
    if found.basis != basis:
        found = replace(found, basis=basis, learned={}, release={}, after={}, verified={})
    steps.refuse_again(place, found)
    steps.refuse_nothing(made, decided)
    if not found.learned:
        found = steps.learn_values(place, made, decided, found, lambda share: job.tell(share * 0.2))
        steps.save_state(place, found)
    made_now = _make(begun, decided, found, job)
    if made_now is None:
        return
    found = made_now
    steps.save_state(place, found)
    found = steps.attack_after(place, made, decided, found, lambda share: job.tell(0.7 + share * 0.25))
    found = steps.read_back(place, decided, found)
    steps.save_state(place, found)
    begun.found = found
    _write_report(begun, decided)
    if found.after["failed"]:
        steps.remove_release(place, decided, found)


def _make(begun: Begun, decided: decisions.Decisions, found: steps.Findings, job: Job) -> steps.Findings | None:
    """Make the release; where all columns together tell too much, nothing is made, and it is asked which one stays."""
    assert begun.made is not None
    place, made = begun.place, begun.made
    try:
        return steps.make_release(place, made, decided, found, lambda share: job.tell(0.2 + share * 0.5))
    except Infeasible as refusal:
        if refusal.fields.get("limit") == "attack":
            steps.remove_release(place, decided, found)
        begun.leaving = steps.ask_left_out(place, made, decided, refusal)
        if begun.leaving is None:
            raise
    return None


def _write_report(begun: Begun, decided: decisions.Decisions) -> None:
    from deniable.reports.attacks import build_start_page
    from deniable.reports.page import write

    assert begun.made is not None
    begun.report = steps.build_report(begun.place, begun.made, decided, begun.found)
    write(build_start_page(begun.report.to_dict()), begun.place.page)


def _preview(begun: Begun) -> list[dict[str, Any]]:
    """The first rows of what was released, which are the release's own."""
    decided = _read_decided(begun)
    if begun.report.failed or not begun.place.release(decided).exists():
        return []
    rows: list[dict[str, Any]] = steps.preview_release(begun.place, decided).to_pylist()
    return rows
