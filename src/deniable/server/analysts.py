"""What analysts can do over HTTP: ask, explain, price, see what is left, see the schema, request a release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from starlette.responses import FileResponse, Response

from deniable.curator import governing, serving
from deniable.errors import DeniableError, ParameterError
from deniable.governance.grants import Action
from deniable.server.bodies import QuestionBody, RequestBody
from deniable.server.desk import Question, missing
from deniable.server.door import answered
from deniable.server.formats import FORMS, PARQUET, chosen, written
from deniable.server.operations import Call, Operation

if TYPE_CHECKING:
    from deniable.curator.asking import QueryAnswer

_PURPOSE = {"purpose": {"type": "string", "maxLength": 200, "default": ""}}
_ROWS = {"rows": {"type": "integer", "minimum": 0, "maximum": serving.MOST_DUMMIES, "default": 100}}


async def query(call: Call) -> Response:
    """Answer a question; the request id makes it safe to send again."""
    form = chosen(call.request.headers.get("accept", ""))
    answer = await call.desk.answer(call.who, _question(call))
    return _given(answer, form)


def _given(answer: QueryAnswer, form: str) -> Response:
    details = {**answer.release.details, "repeated": answer.repeated}
    charged = answer.receipt is not None and not answer.receipt.repeated
    headers = {
        "x-deniable-release": str(details.get("release", "")),
        "x-deniable-repeated": str(answer.repeated).lower(),
        "x-deniable-charged": str(charged).lower(),
    }
    if answer.receipt is not None:
        headers["x-deniable-head"] = answer.receipt.head
    return Response(written(answer.rows, details, form), 200, headers, form)


async def explain(call: Call) -> Response:
    """The privacy plan of a question; nothing is charged."""
    return answered(await call.desk.explain(call.who, _question(call)))


async def cost(call: Call) -> Response:
    """The price of a question, what is left, and how many more like it fit."""
    told = await call.desk.explain(call.who, _question(call))
    more = told["more_like_this"]
    words = "there is no limit" if more is None else f"about {more:,} more questions like this"
    priced = {name: told[name] for name in ("cost", "remaining", "more_like_this")}
    errors = [part["error"] for each in told["aggregates"] for part in each["measurements"]]
    return answered(priced | {"in_words": words, "largest_error": max(errors, default=None)})


async def remaining(call: Call) -> Response:
    """What is left from the dataset down to the asker."""
    who = call.desk.asker(call.who, Action.BALANCE, call.request.query_params.get("purpose", "")[:200])
    curator = call.desk.curator
    return answered({"balance": await call.desk.hall(call.who, lambda: serving.balance(curator, who))})


async def schema(call: Call) -> Response:
    """The tables and columns that may be named, with what the policy declares of them."""
    who = call.desk.asker(call.who, Action.EXPLAIN, call.request.query_params.get("purpose", "")[:200])
    curator = call.desk.curator
    tables = await call.desk.hall(call.who, lambda: serving.schema(curator, who))
    return answered({"dataset": call.desk.dataset, "tables": tables})


async def dummies(call: Call) -> Response:
    """Invented rows of a table's shape, for trying code."""
    form = chosen(call.request.headers.get("accept", ""))
    who = call.desk.asker(call.who, Action.EXPLAIN, call.request.query_params.get("purpose", "")[:200])
    rows, table, curator = _count(call.request.query_params.get("rows", "100")), call.path["table"], call.desk.curator
    made = await call.desk.hall(call.who, lambda: serving.dummies(curator, table, rows, who))
    return Response(written(made, {"invented": True}, form), 200, media_type=form)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise ParameterError("the number of rows is not a whole number")
    return int(text)


async def releases(call: Call) -> Response:
    """The asker's own releases, the newest first."""
    call.desk.asker(call.who, Action.BALANCE)
    curator, name = call.desk.curator, call.who.name
    return answered({"releases": await call.desk.hall(call.who, lambda: serving.releases(curator, name))})


async def receipt(call: Call) -> Response:
    """What a charge left behind: its number, and the head of the chain there."""
    call.desk.asker(call.who, Action.BALANCE)
    curator, name, wanted = call.desk.curator, call.who.name, call.path["release"]
    found = await call.desk.hall(call.who, lambda: serving.receipt(curator, name, wanted))
    if found is None:
        raise missing("release")
    return answered(found)


async def cancel(call: Call) -> Response:
    """Take back a question that was not begun; one that was begun is charged, and its answer will be stored."""
    taken_back = call.desk.cancel(call.who, call.path["request"])
    return answered({"cancelled": taken_back, "charged": None if taken_back else "if it was begun"})


async def file_request(call: Call) -> Response:
    """Ask the steward for a masked, anonymized or synthetic release."""
    body: RequestBody = call.body
    who = call.desk.asker(call.who, Action.REQUEST, body.purpose)
    tables = [str(each) for each in body.tables]
    curator, technique, parameters = call.desk.curator, body.technique, body.parameters
    filed = await call.desk.hall(call.who, lambda: governing.ask(curator, who, technique, tables, parameters))
    return answered(filed.as_dict(), 201)


async def own_requests(call: Call) -> Response:
    """The asker's own requests and their decisions."""
    call.desk.asker(call.who, Action.BALANCE)
    curator, name = call.desk.curator, call.who.name
    found = await call.desk.hall(call.who, lambda: serving.requests(curator, name))
    return answered({"requests": found})


async def download(call: Call) -> Response:
    """One table of a release that was requested, approved and made, as Parquet."""
    return FileResponse(await call.desk.file(call.who, call.path["request"], call.path["table"]), media_type=PARQUET)


async def register(call: Call) -> Response:
    """The public register: every release with its technique, epsilon, delta, unit and date."""
    curator = call.desk.curator
    return answered(await call.desk.workshop.run("register", lambda: serving.register(curator), "register"))


async def health(call: Call) -> Response:
    """Whether the server is up and its ledger can be read."""
    try:
        await call.desk.workshop.run("health", call.desk.curator.ledger.head, "health")
    except DeniableError:
        return answered({"status": "the ledger cannot be read"}, 503)
    return answered({"status": "ok"})


def _question(call: Call) -> Question:
    body: QuestionBody = call.body
    return Question(
        sql=body.sql,
        epsilon=_amount(body.epsilon),
        delta=_amount(body.delta) or "0",
        rho=_amount(body.rho),
        purpose=body.purpose,
        request=call.request_id,
        confidence=float(body.confidence),
        intervals=body.intervals,
        nonnegative=body.nonnegative,
        parameters=tuple(_plain(value) for value in body.parameters),
    )


def _amount(value: Any) -> str | None:
    return None if value is None else str(value)


def _plain(value: Any) -> Any:
    if value is not None and not isinstance(value, str | int | float | bool):
        raise ParameterError("a parameter is a text, a number, a truth value or null")
    return value


OPERATIONS: tuple[Operation, ...] = (
    Operation("POST", "/v1/query", "query", "Ask a question", query, QuestionBody, forms=FORMS, charges=True),
    Operation("POST", "/v1/explain", "explain", "See the privacy plan of a question", explain, QuestionBody),
    Operation("POST", "/v1/cost", "cost", "See what a question costs", cost, QuestionBody),
    Operation("GET", "/v1/remaining", "remaining", "See what is left", remaining, query=_PURPOSE),
    Operation("GET", "/v1/schema", "schema", "See the public schema", schema, query=_PURPOSE),
    Operation(
        "GET", "/v1/schema/{table}/dummies", "dummies", "Get invented rows", dummies, query=_PURPOSE | _ROWS,
        forms=FORMS,
    ),
    Operation("GET", "/v1/releases", "releases", "List your releases", releases),
    Operation("GET", "/v1/receipts/{release}", "receipt", "Get the receipt of a release", receipt),
    Operation("DELETE", "/v1/queries/{request}", "cancel", "Take back a question", cancel),
    Operation("POST", "/v1/requests", "request", "Request a release", file_request, RequestBody, status=201),
    Operation("GET", "/v1/requests", "requests", "List your requests", own_requests),
    Operation(
        "GET", "/v1/requests/{request}/tables/{table}", "download", "Download a table of a release", download,
        forms=(PARQUET,),
    ),
    Operation("GET", "/v1/register", "register", "See the public register", register, public=True),
    Operation("GET", "/health", "health", "See whether the server is up", health, public=True),
)  # fmt: skip
