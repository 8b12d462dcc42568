"""The pages of the analysts' port: ask and see what it costs, tables, history, requests, terms, the public register.

A link to a question fills the page in and asks nothing: only a form that was sent is charged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Route

from deniable.curator.governance import reports, requests
from deniable.curator.query import metadata
from deniable.errors import DeniableError, ParameterError
from deniable.governance.grants import Action, Asker, Grant, Role
from deniable.governance.requests import Status
from deniable.policy.access import Accounting
from deniable.policy.schema import Role as ColumnRole
from deniable.server.formats import PARQUET, render_plan
from deniable.server.http.bodies import QuestionBody
from deniable.server.http.endpoints import read_json, respond_json
from deniable.server.limits import wait_for_quantum
from deniable.server.refusals import describe_refusal, translate_failure, translate_for_page
from deniable.server.service import ASSISTANT, Question, Service
from deniable.server.workbench.answers import KeptAnswers, view_answer, write_elsewhere
from deniable.server.workbench.pages import Pages, quote_name, read_fields, read_form

if TYPE_CHECKING:
    from deniable.curator.context import Context

LINKS = (
    ("/", "Ask"),
    ("/tables", "Tables"),
    ("/history", "History"),
    ("/requests", "Requests"),
    ("/register", "Register"),
)
ROLES = frozenset({Role.ANALYST, Role.STEWARD})
"""Who may enter here: a steward asks at the cost of the dataset."""
MOST_CELLS = 20
MOST_HISTORY = 200
SAMPLE_ROWS, SAMPLE_STEP = 5, 13
MODES = {"pseudonymize": "as the policy says", "safe-harbor": "also whatever Safe Harbor (HIPAA) names"}


class AnalystPages:
    """The pages of the analysts' port."""

    def __init__(self, service: Service, secure: bool) -> None:
        self._service = service
        self.pages = Pages(service, "analyst", secure, LINKS, ROLES)
        self._kept = KeptAnswers()

    def routes(self) -> list[Route]:
        """All of them."""
        inside, script = self.pages.require_session, self.pages.require_script
        shown = {"/": self._show_ask, "/tables": self._show_tables, "/history": self._show_history,
                 "/requests": self._show_requests, "/terms": self._show_terms}  # fmt: skip
        forms = {"/ask": self._ask, "/requests": self._file_request, "/terms": self._acknowledge}
        scripts = {"preview": self._preview, "curve": self._draw_curve, "answer": self._answer,
                   "plan": self._plan, "cancel": self._cancel}  # fmt: skip
        return [
            *(Route(path, inside(page), methods=["GET"]) for path, page in shown.items()),
            *(Route(path, inside(page, form=True), methods=["POST"]) for path, page in forms.items()),
            *(Route(f"/ask/{name}", script(act), methods=["POST"]) for name, act in scripts.items()),
            Route("/ask/words", script(self._list_words), methods=["GET"]),
            Route("/ask/kept", script(self._show_kept), methods=["GET"]),
            Route("/answers/{release}/{form}", inside(self._load_file), methods=["GET"]),
            Route("/requests/{request}/rows", inside(self._load_rows), methods=["GET"]),
            Route("/register", self._show_register, methods=["GET"]),
            *self.pages.routes(),
        ]

    # Asking

    async def _show_ask(self, request: Request, grant: Grant) -> Response:
        asked = request.query_params
        texts = asked.getlist("sql")[:MOST_CELLS]
        fields = {name: asked.getlist(name) for name in ("epsilon", "delta", "purpose")}
        cells = [
            {"sql": sql[:100_000]} | {name: given[at][:200] for name, given in fields.items() if at < len(given)}
            for at, sql in enumerate(texts)
        ]
        purpose = next(iter(fields["purpose"]), "")[:200]
        if grant.role is not Role.ANALYST or not purpose or purpose in (grant.purposes or (purpose,)):
            return await self._render_ask(grant, cells, purpose)
        # A link of somebody with other purposes: its questions are shown, for a purpose of one's own.
        own = [{name: value for name, value in cell.items() if name != "purpose"} for cell in cells]
        return await self._render_ask(grant, own, "", f"The link is for the purpose {purpose!r}, which you do not have")

    async def _ask(self, request: Request, grant: Grant) -> Response:
        """A question of a page without scripts."""
        since = time.monotonic()
        form = await read_form(request, self._service.limits.body)
        cell: dict[str, Any] = {name: form.get(name, "") for name in ("sql", "epsilon", "delta")}
        try:
            question = _read_question(form)
            if form.get("deed") == "explain":
                cell["plan"] = render_plan(await self._service.explain(grant, question))
            else:
                cell["answer"] = await self._find_answer(grant, question)
                cell["elsewhere"] = self._write_elsewhere(request, question)
        except Exception as failure:
            cell["refusal"] = translate_for_page(failure).message
        await wait_for_quantum(since, self._service.limits.quantum)
        return await self._render_ask(grant, [cell], form.get("purpose", ""))

    async def _find_answer(self, grant: Grant, question: Question) -> Any:
        answer = await self._service.answer(grant, question)
        view = view_answer(answer)
        self._kept.keep(grant, answer, view, question)
        return view

    def _write_elsewhere(self, request: Request, question: Question) -> dict[str, str]:
        address = f"{request.url.scheme}://{request.headers.get('host', 'localhost')}"
        return write_elsewhere(question, address, self._service.dataset, self._service.postgres)

    async def _render_ask(
        self, grant: Grant, cells: Sequence[dict[str, Any]], purpose: str, said: str = ""
    ) -> Response:
        context = self._look_as(grant, _choose_purpose(grant, purpose))
        terms = await self._run(grant, lambda: requests.show_terms(context)) if context.asker is not None else None
        if terms is not None and not terms.acknowledged:
            return RedirectResponse(f"/terms?{urlencode({'purpose': terms.purpose})}", 303)
        tables, balance, epoch = await self._run(
            grant, lambda: (metadata.schema(context), reports.state_plainly(context.balance()), context.epoch)
        )
        purposes = _list_purposes(context, grant)
        barred = await self._run(grant, lambda: _find_bar(context, grant, purpose or next(iter(purposes), "")))
        empty = {"sql": _suggest_query(tables), "epsilon": "0.1"}
        shown = dict.fromkeys(("plan", "answer", "refusal", "elsewhere"))
        blank = {"delta": "", "purpose": context.path[0], **shown}
        filled = [blank | empty | {name: value for name, value in cell.items() if value} for cell in cells or [{}]]
        return self.pages.render(
            "ask.html", here="/", name=grant.name, cells=filled, tables=tables, balance=balance, epoch=epoch,
            purposes=() if grant.name == Role.STEWARD else purposes, purpose=context.path[0], barred=barred,
            refusal=said and f"{said}. Its questions are shown for {context.path[0]!r}. Nothing was asked.",
        )  # fmt: skip

    # What scripts of the page ask for

    async def _preview(self, request: Request, grant: Grant) -> Response:
        question = await self._read_json(request)
        try:
            told = await self._service.preview(grant, question)
        except DeniableError as refusal:
            if refusal.code not in ("query", "parameter", "budget"):
                raise
            # A question that is half typed is no failure of the request: what is wrong with it is the preview.
            return respond_json({"mistake": describe_refusal(translate_for_page(refusal))})
        return respond_json({**told.to_dict(), "elsewhere": self._write_elsewhere(request, question)})

    async def _draw_curve(self, request: Request, grant: Grant) -> Response:
        points = await self._service.compute_curve(grant, await self._read_json(request))
        return respond_json({"points": [each.to_dict() for each in points]})

    async def _answer(self, request: Request, grant: Grant) -> Response:
        since = time.monotonic()
        question = await self._read_json(request)
        view = await self._find_answer(grant, question)
        text = self.pages.write("answer.html", answer=view, elsewhere=self._write_elsewhere(request, question))
        context = self._look_as(grant, question.purpose)
        left = await self._run(grant, lambda: reports.state_plainly(context.balance()))
        await wait_for_quantum(since, self._service.limits.quantum)
        balance = self.pages.write("balance.html", balance=left)
        return respond_json({"html": text, "balance": balance, "release": view.release})

    async def _plan(self, request: Request, grant: Grant) -> Response:
        plan = render_plan(await self._service.explain(grant, await self._read_json(request)))
        return respond_json({"html": self.pages.write("plan.html", plan=plan)})

    async def _show_kept(self, request: Request, grant: Grant) -> Response:
        """An answer that this asker has seen on the page, while it is kept; nothing is asked."""
        self._service.authorize(grant, Action.BALANCE)
        kept = self._kept.find(grant, request.query_params.get("release", "")[:200])
        elsewhere = self._write_elsewhere(request, kept.question)
        return respond_json({"html": self.pages.write("answer.html", answer=kept.view, elsewhere=elsewhere)})

    async def _cancel(self, request: Request, grant: Grant) -> Response:
        return respond_json(await self._service.take_back(grant, request.headers.get("x-request-id", "")))

    async def _list_words(self, request: Request, grant: Grant) -> Response:
        """What a question may name, for completion."""
        context = self._look_as(grant, request.query_params.get("purpose", "")[:200])
        tables = await self._run(grant, lambda: metadata.schema(context))
        return respond_json(
            {
                "tables": [_describe_words(each) for each in tables],
                "functions": [each.to_dict() for each in metadata.list_functions()],
            }
        )

    async def _read_json(self, request: Request) -> Question:
        body: QuestionBody = await read_json(request, QuestionBody, self._service.limits.body)
        epsilon, rho = (None if each in (None, "") else str(each) for each in (body.epsilon, body.rho))
        named = request.headers.get("x-request-id", "")
        return Question(body.sql, epsilon, str(body.delta) or "0", rho, body.purpose, named)

    async def _load_file(self, request: Request, grant: Grant) -> Response:
        """An answer that was shown, as a file."""
        self._service.authorize(grant, Action.BALANCE)
        release, form = (str(request.path_params[name])[:200] for name in ("release", "form"))
        content, kind = self._kept.encode(grant, release, form)
        headers = {"content-disposition": f'attachment; filename="answer-{release}.{form}"'}
        return Response(content, headers=headers, media_type=kind)

    async def _load_rows(self, request: Request, grant: Grant) -> Response:
        """A table of a release that was made for this asker."""
        identity, table = str(request.path_params["request"])[:200], request.query_params.get("table", "")[:200]
        return FileResponse(
            await self._service.file(grant, identity, table), media_type=PARQUET, filename=f"{table}.parquet"
        )

    # Looking

    async def _show_tables(self, request: Request, grant: Grant) -> Response:
        context = self._look_as(grant, request.query_params.get("purpose", "")[:200])
        tables = await self._run(grant, lambda: _describe_tables(context))
        return self.pages.render("tables.html", here="/tables", name=grant.name, tables=tables)

    async def _show_history(self, _request: Request, grant: Grant) -> Response:
        self._service.authorize(grant, Action.BALANCE)
        context = self._service.curator.context
        asked = await self._run(grant, lambda: _list_history(context, grant.name))
        return self.pages.render("history.html", here="/history", name=grant.name, asked=asked, most=MOST_HISTORY)

    async def _show_requests(self, _request: Request, grant: Grant) -> Response:
        return await self._render_requests(grant)

    async def _render_requests(
        self, grant: Grant, refusal: str | None = None, given: Sequence[tuple[str, str]] = ()
    ) -> Response:
        self._service.authorize(grant, Action.BALANCE)
        context = self._service.curator.context
        own = self._look_as(grant, _choose_purpose(grant, ""))
        found, tables = await self._run(grant, lambda: (reports.requests(context, grant.name), metadata.schema(own)))
        listed = [(each, await self._list_files(grant, each)) for each in found]
        private = [table for table in tables if not table.public]
        chosen = {name: [value for field, value in given if field == name] for name in ("table", "column")}
        delta = "" if context.policy.budgets is None or context.policy.budgets.accounting is Accounting.PURE else "1e-6"
        sensitive = [each.column for table in private for each in table.columns if each.role == ColumnRole.SENSITIVE]
        return self.pages.render(
            "own_requests.html", here="/requests", name=grant.name, requests=listed, tables=private, delta=delta,
            techniques=requests.TECHNIQUES, purposes=_list_purposes(context, grant), refusal=refusal,
            given=dict(given), chosen=chosen, modes=MODES, sensitive=list(dict.fromkeys(sensitive)),
            is_steward=grant.role is Role.STEWARD,
        )  # fmt: skip

    async def _list_files(self, grant: Grant, request: requests.RequestReport) -> list[str]:
        """The tables of a request whose rows can be loaded here."""
        if request.status != Status.RELEASED:
            return []
        there = []
        for table in request.tables:
            with suppress(DeniableError):
                await self._service.file(grant, request.id, table)
                there.append(table)
        return there

    async def _file_request(self, request: Request, grant: Grant) -> Response:
        fields = await read_fields(request, self._service.limits.body)
        form, tables = dict(fields), [value for name, value in fields if name == "table"]
        try:
            context = self._look_as(grant, _choose_purpose(grant, form.get("purpose", "")), Action.REQUEST)
            parameters = _read_parameters(fields)
            demands = context.policy.budgets.find_purpose(context.path[0]) if context.policy.budgets else None
            if demands is not None and demands.justify and "justification" not in parameters:
                raise ParameterError("it is not said what the rows are needed for", remedy="Say it below, in words")
            if not tables:
                raise ParameterError("no table is chosen", remedy="Choose at least one")
            technique = form.get("technique", "")
            await self._run(grant, lambda: requests.ask(context, technique, tables, parameters))
        except DeniableError as refusal:
            told = translate_for_page(refusal, only_epsilon=True).message
            return await self._render_requests(grant, told, fields)
        return RedirectResponse("/requests", 303)

    async def _show_terms(self, request: Request, grant: Grant) -> Response:
        context = self._look_as(grant, request.query_params.get("purpose", "")[:200])
        terms = await self._run(grant, lambda: requests.show_terms(context))
        return self.pages.render("terms.html", name=grant.name, terms=terms)

    async def _acknowledge(self, request: Request, grant: Grant) -> Response:
        form = await read_form(request, self._service.limits.body)
        purpose = form.get("purpose", "")[:200]
        context = self._look_as(grant, purpose)
        await self._run(grant, lambda: requests.acknowledge(context, form.get("digest", "")))
        return RedirectResponse(f"/?{urlencode({'purpose': purpose})}", 303)

    async def _show_register(self, request: Request) -> Response:
        """Public; whoever has entered keeps the way to the other pages."""
        curator = self._service.curator
        work = self._service.scheduler.run("register", lambda: reports.register(curator.ledger), "register")
        try:
            register = await asyncio.wait_for(work, 30)
            person = await self.pages.find_person(request)
            return self.pages.render("register.html", here="/register", register=register, grant=person)
        except Exception as failure:
            return self.pages.show_refusal(request, translate_failure(failure))

    def _look_as(self, grant: Grant, purpose: str, action: Action = Action.EXPLAIN) -> Context:
        return self._service.look_as(grant, self._service.authorize(grant, action, purpose))

    async def _run(self, grant: Grant, work: Any) -> Any:
        return await self._service.run_for(grant, work)


def _choose_purpose(grant: Grant, purpose: str) -> str:
    return purpose or (grant.purposes[0] if grant.purposes else "")


def _read_question(form: dict[str, str]) -> Question:
    return Question(sql=form.get("sql", ""), epsilon=form.get("epsilon") or None, delta=form.get("delta") or "0",
                    rho=form.get("rho") or None, purpose=form.get("purpose", ""))  # fmt: skip


def _list_purposes(context: Context, grant: Grant) -> tuple[str, ...]:
    """The purposes that a person may ask for: those of the token; without any, as a steward, those of the policy."""
    named = context.policy.budgets.purposes if context.policy.budgets is not None else ()
    return grant.purposes or tuple(each.name for each in named)


def _find_bar(context: Context, grant: Grant, purpose: str) -> str:
    """Why a steward cannot ask here; empty where nothing is in the way. Analysts are told at a question."""
    if grant.role is not Role.STEWARD or grant.name == Role.STEWARD:
        return ""
    try:
        context.speak_for(Asker(grant.name, purpose, grant.role)).admit()
    except DeniableError as refusal:
        return refusal.happened
    return ""


FIELDS = {"anonymize": ("k", "suppress"), "synthesize": ("epsilon", "delta"), "mask": ("mode",)}
"""The fields of the form that each technique has; those of others are not read."""


def _read_parameters(fields: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """What a request asks of its technique: the fields that are filled in, columns, and why it is needed."""
    form = {name: value.strip() for name, value in fields if value.strip()}
    technique = form.get("technique", "")
    given: dict[str, Any] = {name: form[name] for name in FIELDS.get(technique, ()) if name in form}
    if "k" in given:
        given["k"] = _read_whole(given["k"])
    if given.get("mode") == "pseudonymize":
        del given["mode"]  # as without it
    for model in ("l", "t") if technique == "anonymize" else ():
        named = {name.removeprefix(f"{model}."): value for name, value in form.items() if name.startswith(f"{model}.")}
        given |= {model: named} if named else {}
    if columns := list(dict.fromkeys(value for name, value in fields if name == "column")):
        given["columns"] = columns
    why = form.get("justification", "")[:2000]
    return given | ({"justification": why} if why else {})


def _read_whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < MOST_DIGITS):
        raise ParameterError("k is not a whole number", expected="How many people look alike at least, such as 10")
    return int(text)


MOST_DIGITS = 10


# a dictionary: JSON for the page's script
def _describe_words(table: metadata.TableSummary) -> dict[str, Any]:
    """A table with its columns, each beside the text that a completion puts into a question."""
    columns = [each.to_dict() | {"insert": quote_name(each.column)} for each in table.columns]
    return table.to_dict() | {"insert": quote_name(table.table), "columns": columns}


def _suggest_query(tables: Sequence[metadata.TableSummary]) -> str:
    private = [quote_name(table.table) for table in tables if not table.public]
    return f"SELECT COUNT(*) AS n FROM {(private or ['...'])[0]}"  # noqa: S608  shown, and run by nobody


def _describe_tables(context: Context) -> list[dict[str, Any]]:
    """The tables with invented rows of each."""
    found = []
    for table in metadata.schema(context):
        # Values spread slowly from row to row: rows that are far apart differ in more columns.
        sample = metadata.dummy_rows(context, table.table, SAMPLE_ROWS * SAMPLE_STEP)
        sample = sample.take(list(range(0, SAMPLE_ROWS * SAMPLE_STEP, SAMPLE_STEP)))
        found.append({"table": table, "names": sample.column_names, "sample": sample.to_pylist()})
    return found


def _list_history(context: Context, analyst: str) -> list[dict[str, Any]]:
    """An asker's releases, the newest first, each with its cost, a link, and whether an assistant asked it."""
    costs = {each.release: (each.epsilon, each.delta) for each in reports.register(context.ledger).releases}
    by_assistant = {each.release for each in reports.trail(context.ledger) if each.details.get("by") == ASSISTANT}
    listed = []
    for each in reports.releases(context, analyst)[:MOST_HISTORY]:
        epsilon, delta = costs.get(each.release, (None, None))
        amounts = {"epsilon": epsilon, "delta": delta or None}
        query = {"sql": str(each.asked or "")} | {k: f"{v:.12g}" for k, v in amounts.items() if v is not None}
        link = f"/?{urlencode(query | {'purpose': each.purpose})}" if each.asked else ""
        listed.append({"release": each, "epsilon": epsilon, "link": link, "agent": each.release in by_assistant})
    return listed
