"""The survey laboratory: build a survey, see it as respondents will, open it, and watch its results by the minute.

The survey is served at a port of its own, by the application that `deniable survey serve` runs: it knows nothing of
sessions, and every device randomizes its own answers. No budget of the dataset is charged."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from deniable.curator import survey as surveys
from deniable.errors import AccessRefused, DeniableError, ParameterError
from deniable.governance.grants import Grant
from deniable.reports.blocks import Page
from deniable.reports.survey import build_survey_page
from deniable.server.http.endpoints import respond_json
from deniable.server.refusals import translate_failure
from deniable.server.service import build_not_found
from deniable.server.workbench.labs import Lab, read_number, refuse_others, render_report
from deniable.server.workbench.pages import read_form
from deniable.storage import write_whole

if TYPE_CHECKING:
    from deniable.server.service import Service
    from deniable.server.workbench.pages import Pages

ENDING = ".survey.yaml"
QUESTIONS = 6
"""So many questions have a place on the form; a file may have more."""
MOST_MINUTES = 24 * 60
MOST_NUMBER = 1e12
KINDS = {"yes-no": "yes or no", "choice": "one of several answers", "several": "any of several answers",
         "number": "a number"}  # fmt: skip
HOSTS = {"127.0.0.1": "this computer alone", "0.0.0.0": "every device of the network"}  # noqa: S104  the steward chooses


@dataclass
class OpenSurvey:
    """A survey that takes answers: where, and what was found at the end of each minute."""

    address: str
    link: str
    code: Markup
    server: Any
    task: asyncio.Task[None]
    minutes: dict[str, int] = field(default_factory=dict)


class SurveyLab(Lab):
    """Surveys in which every device randomizes its own answers."""

    name = "survey"
    title = "Survey"
    about = (
        "Ask people whose answers stay deniable: build the questions, see what leaves a device, open it, watch the"
        " results."
    )
    price = "No budget is charged: every device randomizes its own answers."

    def __init__(self, service: Service, pages: Pages) -> None:
        super().__init__(service, pages)
        self._open: dict[str, OpenSurvey] = {}
        service.guests.append(self.close_all)

    def routes(self) -> list[Route]:
        """The pages of this laboratory."""
        inside, script = self.pages.require_session, self.pages.require_script
        return [
            Route("/labs/survey", inside(self._show_builder), methods=["GET"]),
            Route("/labs/survey", inside(self._build, form=True), methods=["POST"]),
            Route("/labs/survey/{name}", inside(self._show_survey), methods=["GET"]),
            Route("/labs/survey/{name}/results", script(self._tell_results), methods=["GET"]),
            Route("/labs/survey/{name}/{act}", inside(self._act, form=True), methods=["POST"]),
        ]

    # Building

    async def _show_builder(self, _request: Request, grant: Grant) -> Response:
        return await self._render_builder(grant, {})

    async def _render_builder(self, grant: Grant, given: Mapping[str, str], refusal: str | None = None) -> Response:
        refuse_others(self.service, grant)
        files = await self.service.run_for(grant, self._list_surveys)
        return self._render(grant, "lab_survey_form.html", files=files, given=given, kinds=KINDS, count=QUESTIONS,
                            refusal=refusal)  # fmt: skip

    async def _build(self, request: Request, grant: Grant) -> Response:
        refuse_others(self.service, grant)
        given = await read_form(request, self.service.limits.body)
        try:
            name = await self.service.run_for(grant, lambda: self._write(given))
        except DeniableError as refusal:
            return await self._render_builder(grant, given, _say_mistakes(refusal))
        return RedirectResponse(f"/labs/survey/{name}", 303)

    def _write(self, given: Mapping[str, str]) -> str:
        """Write the survey's file; one that exists, or that has a mistake, is not written."""
        document = read_survey_form(given)
        name = document["survey"]
        path = self.folder / f"{name}{ENDING}"
        if path.exists():
            raise ParameterError(f"there is a survey '{name}' already", remedy="Choose another short name")
        write_whole(path, json.dumps(document, ensure_ascii=False, indent=2).encode())
        try:
            surveys.check_survey(path)
        except DeniableError:
            path.unlink()
            raise
        return str(name)

    def _list_surveys(self) -> list[str]:
        return sorted(each.name.removesuffix(ENDING) for each in self.folder.glob(f"*{ENDING}"))[:100]

    # Looking and asking

    async def _show_survey(self, request: Request, grant: Grant) -> Response:
        name, path = self._find(request, grant)
        return await self._render_survey(grant, name, path)

    async def _render_survey(self, grant: Grant, name: str, path: Path, refusal: str | None = None) -> Response:
        check, questions = await self.service.run_for(
            grant, lambda: (surveys.check_survey(path), surveys.list_questions(path))
        )
        report, responses = await self.service.run_for(grant, lambda: self._read_results(name, path))
        return self._render(
            grant, "lab_survey.html", survey=name, check=check, questions=questions, open=self._open.get(name),
            report=report, responses=responses, hosts=HOSTS, refusal=refusal,
        )  # fmt: skip

    async def _tell_results(self, request: Request, grant: Grant) -> Response:
        name, path = self._find(request, grant)
        report, responses = await self.service.run_for(grant, lambda: self._read_results(name, path))
        minutes = self.pages.write("lab_survey_minutes.html", open=self._open.get(name))
        return respond_json({"html": str(report), "responses": responses, "minutes": minutes})

    def _read_results(self, name: str, path: Path) -> tuple[Any, int]:
        """The results so far, and how many people answered; noted once a minute while the survey is open."""
        if not surveys.default_store(path).exists():
            return "", 0
        found = surveys.read_results(path).results
        opened = self._open.get(name)
        if opened is not None and len(opened.minutes) < MOST_MINUTES:
            opened.minutes[datetime.now(UTC).strftime("%H:%M")] = found.responses
        answered = found.responses or found.damaged
        page = build_survey_page(_describe_results(found)) if answered else Page("", ())
        return render_report(page), found.responses

    async def _act(self, request: Request, grant: Grant) -> Response:
        name, path = self._find(request, grant)
        act, form = str(request.path_params["act"]), await read_form(request, self.service.limits.body)
        try:
            if act == "open":
                await self._start(name, path, form.get("host", "127.0.0.1"))
            elif act == "close":
                await self._end(name)
            else:
                raise ParameterError("a survey is opened or closed")
        except (DeniableError, OSError) as failure:
            return await self._render_survey(grant, name, path, translate_failure(failure).message)
        return RedirectResponse(f"/labs/survey/{name}", 303)

    async def _start(self, name: str, path: Path, host: str) -> None:
        """Serve the survey at a free port."""
        import uvicorn

        from deniable.server.survey import build_app

        if name in self._open:
            return
        if host not in HOSTS:
            raise ParameterError("there is no such address to listen on", remedy="Choose one of the list")
        service = await asyncio.to_thread(surveys.open_service, path)
        if service.survey.invited:
            raise AccessRefused(
                "this survey is by invitation", remedy="Serve it with deniable survey serve and deniable survey invite"
            )
        config = uvicorn.Config(build_app(service), host=host, port=0, log_config=None, access_log=False,
                                server_header=False, timeout_graceful_shutdown=2)  # fmt: skip
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup()
        port = next(socket.getsockname()[1] for each in server.servers for socket in each.sockets)
        shown = host if host != "0.0.0.0" else _find_own_address()  # noqa: S104  compared
        address = f"http://{shown}:{port}"
        link = await asyncio.to_thread(surveys.link_to, service, address)
        self._open[name] = OpenSurvey(address, link, draw_code(link), server, asyncio.create_task(server.main_loop()))

    async def _end(self, name: str) -> None:
        opened = self._open.pop(name, None)
        if opened is not None:
            opened.server.should_exit = True
            await opened.task
            await opened.server.shutdown()

    async def close_all(self) -> None:
        """Close every survey, when the server ends."""
        for name in list(self._open):
            await self._end(name)

    def _find(self, request: Request, grant: Grant) -> tuple[str, Path]:
        refuse_others(self.service, grant)
        name = str(request.path_params["name"])
        if name not in self._list_surveys():
            raise build_not_found("survey")
        return name, self.folder / f"{name}{ENDING}"

    def _render(self, grant: Grant, template: str, **values: Any) -> Response:
        return self.pages.render(template, here="/labs", name=grant.name, lab=self, **values)


# a dictionary: the document that `deniable survey results --json` prints
def _describe_results(found: Any) -> dict[str, Any]:
    shown = asdict(found) | {"damage": surveys.describe_damage(found.damaged)}
    for told, known in zip(shown["findings"], found.findings, strict=True):
        if known.mean is not None:
            told["mean"]["interval"] = list(known.mean.interval(found.confidence))
    return shown


# a dictionary: a survey's file, whose words are the grammar's
def read_survey_form(given: Mapping[str, str]) -> Any:
    """The survey that a form describes, as its file has it; empty questions are left out."""
    name = given.get("survey", "").strip()
    if not re.fullmatch("[a-z][a-z0-9-]{0,39}", name):
        expected = "Small letters, digits and hyphens, as in staff-2026"
        raise ParameterError(f"the short name is '{name[:60]}'", expected=expected)
    document: dict[str, Any] = {"survey": name, "title": given.get("title", "").strip()}
    if given.get("about", "").strip():
        document["about"] = given["about"].strip()
    questions = {}
    for number in range(1, QUESTIONS + 1):
        asked = given.get(f"ask-{number}", "").strip()
        if asked:
            questions[f"q{number}"] = _read_question(given, number, asked)
    return document | {"questions": questions}


def _read_question(given: Mapping[str, str], number: int, asked: str) -> dict[str, Any]:
    kind = given.get(f"type-{number}", "yes-no")
    epsilon = read_number(given, f"epsilon-{number}", f"epsilon of question {number}", 0, 10)
    question: dict[str, Any] = {"ask": asked, "type": kind, "epsilon": 1 if epsilon is None else epsilon}
    listed = [part.strip() for part in given.get(f"answers-{number}", "").split(",") if part.strip()]
    if kind in ("choice", "several"):
        question["options"] = listed
    elif kind == "number":
        ends = {str(place): text for place, text in enumerate(listed)}
        what = f"an end of question {number}"
        numbers = [read_number(ends, place, what, -MOST_NUMBER, MOST_NUMBER) for place in ends]
        question["between"] = [int(each) if each == int(each) else each for each in numbers if each is not None]
    return question


def _say_mistakes(refusal: DeniableError) -> str:
    """A refusal with all its mistakes, without the name of the file, which was not written."""
    found = [str(each.message).partition(": ")[2] for each in getattr(refusal, "mistakes", ())]
    return " ".join(dict.fromkeys(found)) or refusal.message


def draw_code(link: str) -> Markup:
    """A link as a picture that a phone reads (QR code), dark on light in every color scheme.

    Nothing where the library is not installed: the link is there in letters too.
    """
    try:
        import segno
    except ImportError:
        return Markup("")
    drawn = segno.make(link, micro=False, error="m").svg_inline(scale=5, border=4, dark="#000", light="#fff")
    return Markup(drawn)  # noqa: S704  squares alone: the library writes no text of the link


def _find_own_address() -> str:
    """The address under which other devices of the network find this computer; nothing is sent."""
    import socket

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
