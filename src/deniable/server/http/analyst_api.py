"""What analysts can do over HTTP: ask, explain, price, see what is left, see the schema, request a release."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from starlette.responses import FileResponse, Response

from deniable.curator.governance import reports, requests
from deniable.curator.query import metadata, network, places, tabulate
from deniable.curator.query.stream.run import read_published
from deniable.errors import ParameterError
from deniable.governance.grants import Action
from deniable.query.sql.clauses import count_parameters
from deniable.server.formats import FORMS, JSON, PARQUET, choose_format, encode_json, encode_rows
from deniable.server.http.bodies import BatchBody, NetworkBody, PlacesBody, QuestionBody, RequestBody, TermsBody
from deniable.server.http.endpoints import Call, Operation, respond_json
from deniable.server.http.steward_api import PUBLIC_OPERATIONS, RESPONDENT_OPERATIONS
from deniable.server.service import Question, build_not_found, repeat_answer

if TYPE_CHECKING:
    from collections.abc import Callable

    from deniable.curator.context import Context
    from deniable.curator.query.sql import QueryAnswer

_PURPOSE = {"purpose": {"type": "string", "maxLength": 200, "default": ""}}
_ROWS = {"rows": {"type": "integer", "minimum": 0, "maximum": metadata.MOST_DUMMIES, "default": 100}}


async def answer_query(call: Call) -> Response:
    """Answer a question; the request id makes it safe to send again."""
    form = choose_format(call.request.headers.get("accept", ""))
    answer = await call.service.answer(call.who, _build_question(call))
    return _respond_answer(answer, form)


def _respond_answer(answer: QueryAnswer, form: str) -> Response:
    details = {**answer.release.details, "repeated": answer.repeated}
    return Response(encode_rows(answer.rows, details, form), 200, _describe_charge(answer), form)


def _describe_charge(answer: QueryAnswer) -> dict[str, str]:
    """What the headers of an answer say of its release and its charge."""
    details = answer.release.details
    charged = answer.receipt is not None and not answer.receipt.repeated
    headers = {
        "x-deniable-release": str(details.get("release", "")),
        "x-deniable-repeated": str(answer.repeated).lower(),
        "x-deniable-charged": str(charged).lower(),
        "x-deniable-epoch": str(details.get("epoch", "")),
    }
    if answer.receipt is not None:
        headers["x-deniable-head"] = answer.receipt.head
    return headers


async def answer_batch(call: Call) -> Response:
    """Answer several questions with one charge; the request id makes it safe to send again."""
    found = await call.service.answer_batch(call.who, *_build_batch(call))
    return Response(encode_json(found.to_dict()), 200, _describe_charge(found[0]), JSON)


async def explain_batch(call: Call) -> Response:
    """What a batch of questions would measure and cost, and which are measured together; nothing is charged."""
    return respond_json((await call.service.explain_batch(call.who, *_build_batch(call))).to_dict())


def _build_batch(call: Call) -> tuple[list[str], Question]:
    """The texts of a batch, and what holds for all of them."""
    body: BatchBody = call.body
    return body.questions, _build_terms(call, "")


async def explain_query(call: Call) -> Response:
    """The privacy plan of a question; nothing is charged."""
    told = await call.service.encode_explanation(call.who, _build_question(call))
    return Response(told, media_type="application/json")


async def preview_query(call: Call) -> Response:
    """What a question would take of the asker's budget, and how exact it would be; nothing is charged."""
    return respond_json((await call.service.preview(call.who, _build_question(call))).to_dict())


async def answer_places(call: Call) -> Response:
    """A map of places, or flows between regions."""
    form, body = choose_format(call.request.headers.get("accept", "")), call.body
    who, order = call.service.authorize(call.who, Action.QUERY, body.purpose), _build_order(call)
    how: Any = {"confidence": float(body.confidence), "nonnegative": body.nonnegative, "request": call.request_id}
    context = call.service.speak_for(who)
    answer = await call.service.charge_for(
        call.who, lambda stop: places.answer_places(context, order, **how, stop=stop), repr((who, order, how)),
        call.request_id, repeat_answer,
    )  # fmt: skip
    return _respond_answer(answer, form)


async def explain_places(call: Call) -> Response:
    """What a map or flows would measure and cost; nothing is charged."""
    who, order = call.service.authorize(call.who, Action.EXPLAIN, call.body.purpose), _build_order(call)
    told = await call.service.run_for(call.who, lambda: places.explain(call.service.speak_for(who), order))
    return respond_json(told.to_dict())


def _build_order(call: Call) -> places.PlacesOrder:
    body: PlacesBody = call.body
    amounts = (_to_text(body.epsilon), _to_text(body.delta) or "0", _to_text(body.rho))
    return places.order_places(
        body.table, body.at, body.to, *amounts, body.time, body.slots, body.box, body.per_person, body.grid
    )


async def answer_network(call: Call) -> Response:
    """A statistic of a table of edges."""
    form = choose_format(call.request.headers.get("accept", ""))
    who, order = call.service.authorize(call.who, Action.QUERY, call.body.purpose), _build_network_order(call)
    context, request = call.service.speak_for(who), call.request_id
    answer = await call.service.charge_for(
        call.who, lambda stop: network.answer_network(context, order, request=request, stop=stop), repr((who, order)),
        request, repeat_answer,
    )  # fmt: skip
    return _respond_answer(answer, form)


async def explain_network(call: Call) -> Response:
    """What a statistic of a network would measure and cost; nothing is charged."""
    who, order = call.service.authorize(call.who, Action.EXPLAIN, call.body.purpose), _build_network_order(call)
    told = await call.service.run_for(call.who, lambda: network.explain_network(call.service.speak_for(who), order))
    return respond_json(told.to_dict())


def _build_network_order(call: Call) -> network.NetworkOrder:
    body: NetworkBody = call.body
    rumor = (body.passing, body.stopping, body.steps, float(body.confidence))
    settings = (body.by, body.star, body.direction, body.max_degree)
    return network.NetworkOrder(body.table, body.statistic, _to_text(body.epsilon) or "0", *settings, *rumor)


async def show_remaining(call: Call) -> Response:
    """What is left from the dataset down to the asker."""
    who = call.service.authorize(call.who, Action.BALANCE, call.request.query_params.get("purpose", "")[:200])
    found = await call.service.run_for(call.who, lambda: reports.balance(call.service.look_as(call.who, who)))
    return respond_json({"balance": [each.to_dict() for each in found]})


async def show_schema(call: Call) -> Response:
    """The tables and columns that may be named, with what the policy declares of them."""
    who = call.service.authorize(call.who, Action.EXPLAIN, call.request.query_params.get("purpose", "")[:200])
    curator = call.service.curator
    tables = await call.service.run_for(call.who, lambda: metadata.schema(call.service.look_as(call.who, who)))
    epoch = await call.service.run_for(call.who, lambda: curator.epoch)
    shown = {"dataset": call.service.dataset, "epoch": epoch, "tables": [table.to_dict() for table in tables]}
    return respond_json(shown)


async def make_dummies(call: Call) -> Response:
    """Invented rows of a table's shape, for trying code."""
    form = choose_format(call.request.headers.get("accept", ""))
    who = call.service.authorize(call.who, Action.EXPLAIN, call.request.query_params.get("purpose", "")[:200])
    rows, table = _parse_count(call.request.query_params.get("rows", "100")), call.path["table"]
    made = await call.service.run_for(
        call.who, lambda: metadata.dummy_rows(call.service.look_as(call.who, who), table, rows)
    )
    return Response(encode_rows(made, {"invented": True}, form), 200, media_type=form)


def _parse_count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ParameterError("the number of rows is not a whole number")
    return int(text)


async def show_stream(call: Call) -> Response:
    """What was published of a stream so far; nothing is measured or charged."""
    call.service.authorize(call.who, Action.READ, call.request.query_params.get("purpose", "")[:200])
    curator, name = call.service.curator, call.path["stream"]
    found = await call.service.run_for(call.who, lambda: read_published(curator.context, name))
    return respond_json(found.to_dict())


async def show_tabulation(call: Call) -> Response:
    """What a tabulation published in this epoch: totals, intervals and errors; nothing is measured or charged."""
    found = await _read_tabulation(call, tabulate.show_tabulation)
    return respond_json(found.to_dict())


async def show_cells(call: Call) -> Response:
    """The cells of a published tabulation that are not empty."""
    form = choose_format(call.request.headers.get("accept", ""))
    found = await _read_tabulation(call, tabulate.show_cells)
    return Response(encode_rows(found, {"tabulation": call.path["tabulation"]}, form), 200, media_type=form)


async def _read_tabulation(call: Call, read: Callable[[Context, str], Any]) -> Any:
    call.service.authorize(call.who, Action.READ, call.request.query_params.get("purpose", "")[:200])
    curator, name = call.service.curator, call.path["tabulation"]
    return await call.service.run_for(call.who, lambda: read(curator.context, name))


async def list_releases(call: Call) -> Response:
    """The asker's own releases, the newest first."""
    call.service.authorize(call.who, Action.BALANCE)
    curator, name = call.service.curator, call.who.name
    found = await call.service.run_for(call.who, lambda: reports.releases(curator.context, name))
    return respond_json({"releases": [each.to_dict() for each in found]})


async def show_receipt(call: Call) -> Response:
    """What a charge left behind: its number, and the head of the chain there."""
    call.service.authorize(call.who, Action.BALANCE)
    curator, name, wanted = call.service.curator, call.who.name, call.path["release"]
    found = await call.service.run_for(call.who, lambda: reports.receipt(curator.context, name, wanted))
    if found is None:
        raise build_not_found("release")
    return respond_json(found.to_dict())


async def cancel_query(call: Call) -> Response:
    """Take back a question: one that was not begun costs nothing; of one that was begun a charge stands."""
    return respond_json(await call.service.take_back(call.who, call.path["request"]))


async def file_request(call: Call) -> Response:
    """Ask the steward for a masked, anonymized or synthetic release."""
    body: RequestBody = call.body
    who = call.service.authorize(call.who, Action.REQUEST, body.purpose)
    tables = [str(each) for each in body.tables]
    technique, parameters = body.technique, body.parameters
    filed = await call.service.run_for(
        call.who, lambda: requests.ask(call.service.speak_for(who), technique, tables, parameters)
    )
    return respond_json(filed.as_dict(), 201)


async def show_terms(call: Call) -> Response:
    """The terms of a purpose, and whether the asker acknowledged them."""
    who = call.service.authorize(call.who, Action.EXPLAIN, call.request.query_params.get("purpose", "")[:200])
    found = await call.service.run_for(call.who, lambda: requests.show_terms(call.service.speak_for(who)))
    return respond_json(found.to_dict())


async def acknowledge_terms(call: Call) -> Response:
    """Acknowledge the terms of a purpose, which stands in the ledger."""
    body: TermsBody = call.body
    who = call.service.authorize(call.who, Action.EXPLAIN, body.purpose)
    noted = await call.service.run_for(call.who, lambda: requests.acknowledge(call.service.speak_for(who), body.digest))
    return respond_json(noted.to_dict())


async def list_own_requests(call: Call) -> Response:
    """The asker's own requests and their decisions."""
    call.service.authorize(call.who, Action.BALANCE)
    curator, name = call.service.curator, call.who.name
    found = await call.service.run_for(call.who, lambda: reports.requests(curator.context, name))
    return respond_json({"requests": [each.to_dict() for each in found]})


async def download_table(call: Call) -> Response:
    """One table of a release that was requested, approved and made, as Parquet."""
    return FileResponse(await call.service.file(call.who, call.path["request"], call.path["table"]), media_type=PARQUET)


async def show_register(call: Call) -> Response:
    """The public register: every release with its technique, epsilon, delta, unit and date."""
    curator = call.service.curator
    found = await call.service.scheduler.run("register", lambda: reports.register(curator.ledger), "register")
    return respond_json(found.to_dict())


def _build_question(call: Call) -> Question:
    body: QuestionBody = call.body
    if body.parameters and len(body.parameters) > (used := count_parameters(body.sql)):
        raise ParameterError(f"{len(body.parameters)} parameters were given, and the question has {used}")
    return _build_terms(call, body.sql, tuple(map(_read_parameter, body.parameters)))


def _build_terms(call: Call, sql: str, parameters: tuple[Any, ...] = ()) -> Question:
    """A text with the budget, purpose and manner that a body asks for, and with the request's id."""
    body: QuestionBody | BatchBody = call.body
    return Question(
        sql=sql,
        epsilon=_to_text(body.epsilon),
        delta=_to_text(body.delta) or "0",
        rho=_to_text(body.rho),
        purpose=body.purpose,
        request=call.request_id,
        confidence=float(body.confidence),
        intervals=body.intervals,
        nonnegative=body.nonnegative,
        parameters=parameters,
    )


def _to_text(value: Any) -> str | None:
    return None if value is None else str(value)


_DAY = r"\d{4}-\d\d-\d\d"
_TYPED: dict[str, tuple[str, Callable[[str], Any]]] = {
    "timestamp": (_DAY + r"([ T]\d\d:\d\d.*)?", datetime.fromisoformat),
    "date": (_DAY, date.fromisoformat),
    "decimal": (r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", Decimal),
}
"""How the text of a parameter is written whose type JSON does not have, and read."""


def _read_parameter(value: Any) -> Any:
    if value is None or isinstance(value, str | int | float | bool):
        return value
    with suppress(TypeError, AttributeError, ValueError, KeyError, ArithmeticError):
        ((kind, text),) = value.items()
        form, read = _TYPED[kind]
        if re.fullmatch(form, text, re.ASCII):
            return read(text)
    raise ParameterError(
        "a parameter is none that can be read",
        expected="A text, a number, a truth value, null, or " + ", ".join(f'{{"{kind}": "..."}}' for kind in _TYPED),
    )


OPERATIONS: tuple[Operation, ...] = (
    Operation("POST", "/v1/query", "query", "Ask a question", answer_query, QuestionBody, forms=FORMS, charges=True,
              request_id=True),
    Operation("POST", "/v1/explain", "explain", "See the privacy plan of a question", explain_query, QuestionBody),
    Operation("POST", "/v1/preview", "preview", "See what a question would cost", preview_query, QuestionBody),
    Operation("POST", "/v1/batch", "batch", "Ask several questions with one budget", answer_batch, BatchBody,
              charges=True, request_id=True),
    Operation("POST", "/v1/batch/explain", "explainBatch", "See what several questions cost together", explain_batch,
              BatchBody),
    Operation("POST", "/v1/places", "places", "Ask for a map of places", answer_places, PlacesBody, forms=FORMS,
              charges=True, request_id=True),
    Operation("POST", "/v1/places/explain", "explainPlaces", "See what a map costs", explain_places, PlacesBody),
    Operation("POST", "/v1/network", "network", "Ask for a statistic of a network", answer_network, NetworkBody,
              forms=FORMS, charges=True, request_id=True),
    Operation("POST", "/v1/network/explain", "explainNetwork", "See what a statistic of a network costs",
              explain_network, NetworkBody),
    Operation("GET", "/v1/remaining", "remaining", "See what is left", show_remaining, query=_PURPOSE),
    Operation("GET", "/v1/schema", "schema", "See the public schema", show_schema, query=_PURPOSE),
    Operation(
        "GET", "/v1/schema/{table}/dummies", "dummies", "Get invented rows", make_dummies, query=_PURPOSE | _ROWS,
        forms=FORMS,
    ),
    Operation("GET", "/v1/streams/{stream}", "stream", "Read what a stream published", show_stream, query=_PURPOSE),
    Operation("GET", "/v1/tabulations/{tabulation}", "tabulation", "Read what a tabulation published", show_tabulation,
              query=_PURPOSE),
    Operation("GET", "/v1/tabulations/{tabulation}/cells", "tabulationCells", "Read the cells of a tabulation",
              show_cells, query=_PURPOSE, forms=FORMS),
    Operation("GET", "/v1/releases", "releases", "List your releases", list_releases),
    Operation("GET", "/v1/receipts/{release}", "receipt", "Get the receipt of a release", show_receipt),
    Operation("DELETE", "/v1/queries/{request}", "cancel", "Take back a question", cancel_query, slashes=True),
    Operation("POST", "/v1/requests", "request", "Request a release", file_request, RequestBody, status=201),
    Operation("GET", "/v1/requests", "requests", "List your requests", list_own_requests),
    Operation(
        "GET", "/v1/requests/{request}/tables/{table}", "download", "Download a table of a release", download_table,
        forms=(PARQUET,),
    ),
    Operation("GET", "/v1/terms", "terms", "Read the terms of a purpose", show_terms, query=_PURPOSE),
    Operation("POST", "/v1/terms", "acknowledge", "Acknowledge the terms of a purpose", acknowledge_terms, TermsBody),
    *RESPONDENT_OPERATIONS,
    Operation("GET", "/v1/register", "register", "See the public register", show_register, public=True),
    *PUBLIC_OPERATIONS,
)  # fmt: skip
