"""The Model Context Protocol (extra `agents`): an AI assistant is one more analyst, whom nobody need trust.

An assistant brings a token and calls tools. Each call passes where HTTP and PostgreSQL pass: the token is looked up
anew, its grant decides, its budget is charged, and a refusal has the same shape. Nothing that an assistant writes, or
is tricked into writing, can do more than its token allows: there is no tool that grants, approves or reads rows.

`serve_stdio` speaks through the standard streams of a process, with one token for all calls. `AgentApp` is an
application for a path of the analysts' port, where every request brings its own token."""

from __future__ import annotations

import asyncio
import copy
import inspect
import secrets
from collections.abc import Awaitable, Callable, Collection
from functools import wraps
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Annotated, Any, TypeVar

from deniable.curator.governance import reports, requests
from deniable.curator.query import metadata
from deniable.errors import (
    NO_BUDGET,
    NOTHING_CHARGED,
    BudgetUnstated,
    DeniableError,
    InternalError,
    MissingExtra,
    ParameterError,
    nearest,
)
from deniable.governance.grants import Action, Grant
from deniable.server.formats import encode_json
from deniable.server.http.app import AGENTS_PATH
from deniable.server.http.bodies import BatchBody, QuestionBody, RequestBody, read_body
from deniable.server.http.endpoints import admit_request, read_bearer_token, read_bytes, respond_refusal
from deniable.server.refusals import describe_refusal, translate_failure
from deniable.server.service import ASSISTANT, Question, Service

INSTRUCTIONS = """\
You ask questions about private tables in SQL. Answers are aggregates with random noise (differential privacy); rows
never leave. Every question costs a part of a privacy budget that does not come back, so: look at the tables first
(list_tables), explain a question before you ask it (explain_query is free), ask few and well chosen questions, and ask
again only what you asked before: an equal question is answered from memory at no cost. Several questions that you need
at once cost less noise together (ask_batch) than one by one. A refusal says what happened,
what was expected, how to go on, and whether anything was charged. Numbers have intervals: report them with the answer.
"""
Tool = TypeVar("Tool", bound=Callable[..., Awaitable[Any]])
Sql = Annotated[str, "One SELECT statement with aggregates, such as SELECT sex, COUNT(*) FROM people GROUP BY sex."]
Questions = Annotated[list[str], "SELECT statements with aggregates, at most 100; they share one budget."]
Amount = Annotated[str | float, "A decimal number, such as 0.1; empty for none."]
RequestId = Annotated[str, "A name of your own: under the same name it is never charged twice."]
Purpose = Annotated[str, "The purpose it is charged to; empty where the token has one only."]


def build_server(service: Service, token: str = "") -> Any:
    """A server of the protocol over a service; with a token, all calls are of its holder."""
    types = _import_sdk()
    server = types.MCPServer(
        name="deniable", title=f"deniable: {service.dataset}", instructions=INSTRUCTIONS, log_level="ERROR"
    )
    tools = AgentTools(service, token, types)
    server.call_tool = tools.guard_calls(server.call_tool)
    for tool, free in tools.list_all():
        hints = types.ToolAnnotations(read_only_hint=free, destructive_hint=False, idempotent_hint=free)
        server.tool(annotations=hints, structured_output=False)(tools.guard(tool))
    server.resource("deniable://sql", name="sql", description="What a question may use.")(describe_sql)
    server.resource("deniable://words", name="words", description="What the words of answers mean.")(lambda: WORDS)
    return server


async def serve_stdio(service: Service, token: str) -> None:
    """Serve the holder of a token through standard input and output, until the input ends."""
    await service.admit(token, "local")
    await build_server(service, token).run_stdio_async()


def _build_http(service: Service) -> tuple[Any, Any]:
    """The protocol's own application for the path of assistants, and its manager, to be run."""
    server = build_server(service)
    # Without sessions: nothing is remembered between calls, so that a token cannot use what another one began.
    application = server.streamable_http_app(
        streamable_http_path=AGENTS_PATH,
        stateless_http=True,
        json_response=True,
        max_request_body_size=service.limits.body,
        transport_security=_import_sdk().TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )  # fmt: skip
    return application, server.session_manager


class AgentApp:
    """The protocol's application for those with a token. A class, since a route takes a function for a handler.

    The SDK takes longer to import than the server does to start, so that `run` waits for the first assistant."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._wanted = asyncio.Event()
        self._application: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        """Serve from the first request on, until cancelled."""
        await self._wanted.wait()
        try:
            application, manager = await asyncio.to_thread(_build_http, self._service)
        except Exception as failure:
            self._application.set_exception(failure)
            return
        async with manager.run():
            self._application.set_result(application)
            await asyncio.Event().wait()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, if its token counts and its body arrives in time."""
        from starlette.requests import ClientDisconnect, Request

        request = Request(scope, receive)
        try:
            await admit_request(self._service, request, read_bearer_token(request))
            body = await read_bytes(request, self._service.limits.body)
            self._wanted.set()
            application = await asyncio.shield(self._application)
        except ClientDisconnect:
            return
        except Exception as failure:
            await respond_refusal(translate_failure(failure))(scope, receive, send)
        else:
            await application(scope, _put_before({"type": "http.request", "body": body}, receive), send)


def _put_before(first: dict[str, Any], receive: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    """What gives a message that was received already, and then those that follow it."""
    waiting = [first]

    async def receive_next() -> Any:
        return waiting.pop() if waiting else await receive()

    return receive_next


class AgentTools:
    """What an assistant can call."""

    def __init__(self, service: Service, token: str, types: Any) -> None:
        self._service = service
        self._token = token
        self._types = types

    def list_all(self) -> tuple[tuple[Callable[..., Awaitable[Any]], bool], ...]:
        """Every tool, and whether it leaves everything as it is."""
        told = (self.show_budget, self.list_questions, self.list_requests)
        free = (self.list_tables, self.explain_query, self.explain_batch, *told)
        return (*((tool, True) for tool in free),
                *((tool, False) for tool in (self.ask_query, self.ask_batch, self.request_release)))  # fmt: skip

    async def list_tables(self, grant: Grant, purpose: Purpose = "") -> Any:
        """List the tables and columns that may be named, with what the policy declares of them. Free."""
        who = self._service.authorize(grant, Action.EXPLAIN, purpose)
        context = self._service.look_as(grant, who)
        return [each.to_dict() for each in await self._service.run_for(grant, lambda: metadata.schema(context))]

    async def explain_query(
        self, grant: Grant, sql: Sql, epsilon: Amount = "", delta: Amount = "0", rho: Amount = "", purpose: Purpose = ""
    ) -> Any:
        """Say what a question would measure and cost, its expected error, and what would be left. Free."""
        question = _build_question(sql, epsilon, delta, rho, purpose)
        return (await self._service.explain(grant, question)).to_dict()

    async def ask_query(
        self,
        grant: Grant,
        sql: Sql,
        epsilon: Amount = "",
        delta: Amount = "0",
        rho: Amount = "",
        purpose: Purpose = "",
        request_id: RequestId = "",
    ) -> Any:
        """Answer a question with noise, and charge it to the budget of this token and purpose."""
        asked = _build_question(sql, epsilon, delta, rho, purpose, request_id)
        answer = await self._service.answer(grant, asked)
        charged = answer.receipt is not None and not answer.receipt.repeated
        told = {"charged": charged, "repeated": answer.repeated, **answer.release.details}
        return {"columns": answer.rows.column_names, "rows": answer.rows.to_pylist(), **told}

    async def explain_batch(
        self,
        grant: Grant,
        questions: Questions,
        epsilon: Amount = "",
        delta: Amount = "0",
        rho: Amount = "",
        purpose: Purpose = "",
    ) -> Any:
        """Say what several questions would cost together, and which of them are measured together. Free."""
        batch = _build_batch(questions, epsilon, delta, rho, purpose)
        return (await self._service.explain_batch(grant, *batch)).to_dict()

    async def ask_batch(
        self,
        grant: Grant,
        questions: Questions,
        epsilon: Amount = "",
        delta: Amount = "0",
        rho: Amount = "",
        purpose: Purpose = "",
        request_id: RequestId = "",
    ) -> Any:
        """Answer several questions with noise, for one budget and one charge; if one is refused, nothing is charged."""
        batch = _build_batch(questions, epsilon, delta, rho, purpose, request_id)
        found = await self._service.answer_batch(grant, *batch)
        charged = found.receipt is not None and not found.receipt.repeated
        return {"charged": charged, **found.to_dict()}

    async def show_budget(self, grant: Grant, purpose: Purpose = "") -> Any:
        """Say what is spent and left, from the dataset down to this token. Free."""
        who = self._service.authorize(grant, Action.BALANCE, purpose)
        context = self._service.look_as(grant, who)
        return [each.to_dict() for each in await self._service.run_for(grant, lambda: reports.balance(context))]

    async def list_questions(self, grant: Grant) -> Any:
        """List what this token's holder has asked so far, the newest first. Free."""
        self._service.authorize(grant, Action.BALANCE)
        context = self._service.curator.context
        found = await self._service.run_for(grant, lambda: reports.releases(context, grant.name))
        return [each.to_dict() for each in found]

    async def list_requests(self, grant: Grant) -> Any:
        """List the releases of rows that this token's holder requested, with the steward's decisions. Free."""
        self._service.authorize(grant, Action.BALANCE)
        context = self._service.curator.context
        found = await self._service.run_for(grant, lambda: reports.requests(context, grant.name))
        return [each.to_dict() for each in found]

    async def request_release(
        self,
        grant: Grant,
        technique: Annotated[str, "mask, anonymize or synthesize."],
        tables: Annotated[list[str], "The names of the tables."],
        purpose: Purpose = "",
        parameters: Annotated[dict[str, Any] | None, "What the technique needs, such as epsilon or k."] = None,
        justification: Annotated[str, "What it is needed for, in words that the steward reads."] = "",
    ) -> Any:
        """Ask the steward, a person, for a release of rows; nothing is released before that person agrees."""
        wanted = {**(parameters or {}), **({"justification": justification} if justification else {})}
        body = {"technique": technique, "tables": tables, "purpose": purpose, "parameters": wanted}
        asked = read_body(RequestBody, encode_json(body))
        who = self._service.authorize(grant, Action.REQUEST, asked.purpose)
        context = self._service.speak_for(who)
        names = [str(each) for each in asked.tables]
        filed = await self._service.run_for(
            grant, lambda: requests.ask(context, asked.technique, names, asked.parameters)
        )
        return filed.as_dict()

    def guard_calls(self, call_tool: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """Refuse in the usual shape what the SDK refuses in its own, and arguments that it would ignore."""
        known = {tool.__name__: tuple(inspect.signature(tool).parameters)[1:] for tool, _ in self.list_all()}
        types = self._types

        async def call(name: str, arguments: dict[str, Any], *rest: Any) -> Any:
            try:
                _require_known("tool", name, known)
                for each in arguments:
                    _require_known(f"argument of {name}", each, known[name])
                return await call_tool(name, arguments, *rest)
            except (DeniableError, types.ToolError) as failure:
                return _tell_refusal(types, failure if isinstance(failure, DeniableError) else _name_misfits(failure))

        return call

    def guard(self, tool: Tool) -> Tool:
        """A tool as the protocol calls it: with the grant of the call's token, and refusals in their usual shape."""
        types = self._types

        @wraps(tool)
        async def call(ctx: Any, **given: Any) -> Any:
            grant = None
            try:
                grant = await self._admit(ctx)
                told = await tool(grant, **given)
            except Exception as failure:
                if given.get("request_id"):
                    await self._service.recall_charge(grant, given["request_id"], failure)
                return _tell_refusal(types, failure)
            return types.CallToolResult(content=[_to_text(types, told)])

        own = list(inspect.signature(tool, eval_str=True).parameters.values())[1:]
        context = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=types.Context)
        named = [
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=_describe(types, each.annotation))
            for each in own
        ]
        call.__signature__ = inspect.Signature([context, *named], return_annotation=types.CallToolResult)  # type: ignore[attr-defined]
        call.__annotations__ = {"ctx": types.Context, "return": types.CallToolResult} | {
            each.name: each.annotation for each in named
        }
        del call.__wrapped__
        return call  # type: ignore[return-value]

    async def _admit(self, ctx: Any) -> Grant:
        """The grant of whoever calls: the process's own token, or that of the HTTP request, looked up for each call."""
        if self._token:
            return await self._service.admit(self._token, "local")
        request = ctx.request_context.request
        return await admit_request(self._service, request, read_bearer_token(request))


def _build_question(
    sql: str, epsilon: str | float, delta: str | float, rho: str | float, purpose: str, request: str = ""
) -> Question:
    """A question, checked by the same rules as one that comes over HTTP."""
    body = read_body(QuestionBody, encode_json({"sql": sql, **_write_amounts(epsilon, delta, rho), "purpose": purpose}))
    return _build_terms(body, body.sql, request)


def _build_batch(
    questions: list[str], epsilon: str | float, delta: str | float, rho: str | float, purpose: str, request: str = ""
) -> tuple[list[str], Question]:
    """The texts of a batch, and what holds for all of them; checked by the same rules."""
    given = {"questions": questions, **_write_amounts(epsilon, delta, rho), "purpose": purpose}
    body = read_body(BatchBody, encode_json(given))
    return body.questions, _build_terms(body, "", request)


def _build_terms(body: QuestionBody | BatchBody, sql: str, request: str) -> Question:
    spent, rate = (None if each is None else str(each) for each in (body.epsilon, body.rho))
    return Question(sql, spent, str(body.delta), rate, body.purpose, request or secrets.token_hex(12), by=ASSISTANT)


def _write_amounts(epsilon: str | float, delta: str | float, rho: str | float) -> dict[str, str | float | None]:
    """A budget as a body over HTTP has it: what is empty was not given."""
    amounts = {name: None if given == "" else given for name, given in (("epsilon", epsilon), ("rho", rho))}
    return {**amounts, "delta": "0" if delta == "" else delta}


def _describe(types: Any, annotation: Any) -> Any:
    """A parameter's type with its description where the SDK looks for it."""
    told = getattr(annotation, "__metadata__", ())
    kind = annotation.__origin__ if told else annotation
    if annotation == Amount:
        kind = str | Annotated[float, types.Field(strict=True)]  # true is no amount
    return Annotated[kind, types.Field(description=told[0])] if told else annotation


def _require_known(kind: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        expected = f"There are {', '.join(known)}" if known else "It takes none"
        raise ParameterError(f"there is no {kind} called '{name[:40]}'", expected=expected, remedy=nearest(name, known))


def _name_misfits(failure: Any) -> DeniableError:
    """The arguments that are missing or of another type, by name; what was given is not repeated."""
    errors: list[dict[str, Any]] = getattr(failure.__cause__, "errors", list)()
    if not errors:
        return InternalError("something unforeseen happened in deniable itself", remedy="Tell the steward", charge="")
    named = sorted({f"'{each['loc'][0]}'" for each in errors if each["loc"]})
    missing = all(each["type"] == "missing" for each in errors)
    told = f"{'missing' if missing else 'not of their type'}: {', '.join(named)}"
    return ParameterError(f"arguments are {told}", remedy="List the tools to see what each takes")


def _tell_refusal(types: Any, failure: Exception) -> Any:
    said = translate_failure(failure.state_by("assistant") if isinstance(failure, BudgetUnstated) else failure)
    if isinstance(said, ParameterError) and said.charged == NO_BUDGET:
        said = copy.copy(said)
        said.charged = NOTHING_CHARGED
    return types.CallToolResult(content=[_to_text(types, describe_refusal(said))], is_error=True)


def _to_text(types: Any, told: Any) -> Any:
    return types.TextContent(type="text", text=encode_json(told).decode())


def describe_sql() -> str:
    """What a question may use, as text."""
    listed = metadata.list_functions()
    aggregates = "\n".join(f"{each.form}: {each.meaning}" for each in listed if each.meaning != "of a row")
    functions = ", ".join(each.form for each in listed if each.meaning == "of a row")
    return f"Aggregates over people:\n{aggregates}\n\nFunctions of a row:\n{functions}\n"


WORDS = """\
epsilon, delta, rho: what a question spends; smaller is more private and noisier.
unit: who is protected, such as one person with all their rows.
low, high: the interval around a noisy number, at the stated confidence.
purpose: what an answer is for; each purpose has a budget of its own.
repeated: the same question was answered before, and costs nothing.
receipt, head: proof that a charge stands in the ledger.
steward: the person who decides on releases of rows.
"""


def _import_sdk() -> Any:
    """The names of the SDK that are used here, or a refusal that says how to get them."""
    try:
        import mcp.types as protocol
        from mcp.server.mcpserver import Context, MCPServer
        from mcp.server.mcpserver.exceptions import ToolError
        from mcp.server.transport_security import TransportSecuritySettings
        from pydantic import Field
    except ImportError:
        raise MissingExtra(
            "serving AI assistants needs the agents extra", remedy="Install it with: pip install 'deniable[agents]'"
        ) from None

    words = ("CallToolResult", "TextContent", "ToolAnnotations")
    return SimpleNamespace(
        Context=Context, MCPServer=MCPServer, ToolError=ToolError,
        TransportSecuritySettings=TransportSecuritySettings, Field=Field,
        **{word: getattr(protocol, word) for word in words},
    )  # fmt: skip


def is_available() -> bool:
    """Whether the SDK is installed."""
    return find_spec("mcp") is not None
