"""What the steward and the auditor can do over HTTP, on a port or socket of their own."""

from __future__ import annotations

from starlette.responses import Response

from deniable.curator import governing, serving, telling, withdrawing
from deniable.errors import ParameterError, nearest
from deniable.governance.grants import Action, Role
from deniable.server.bodies import DecisionBody, TokenBody, WithdrawalBody
from deniable.server.door import answered
from deniable.server.operations import Call, Operation

_AFTER = {"after": {"type": "integer", "minimum": 0, "maximum": 10**12, "default": 0}}


async def requests(call: Call) -> Response:
    """All requests, with cost and risk."""
    call.desk.asker(call.who, Action.DECIDE)
    curator = call.desk.curator
    return answered({"requests": await call.desk.hall(call.who, lambda: serving.requests(curator))})


async def approve(call: Call) -> Response:
    """Approve a request, with a reason."""
    return await _decide(call, True)


async def decline(call: Call) -> Response:
    """Decline a request, with a reason."""
    return await _decide(call, False)


async def _decide(call: Call, approved: bool) -> Response:
    return answered((await call.desk.decide(call.who, call.path["request"], approved, call.body.reason)).as_dict())


async def tokens(call: Call) -> Response:
    """All tokens that were given out, without their texts."""
    call.desk.asker(call.who, Action.GRANT)
    curator = call.desk.curator
    listed = await call.desk.hall(call.who, lambda: list(governing.listed(curator).values()))
    return answered({"tokens": listed})


async def new_token(call: Call) -> Response:
    """Give out a token; its text is in this answer and nowhere else."""
    call.desk.asker(call.who, Action.GRANT)
    body: TokenBody = call.body
    curator, by = call.desk.curator, call.who.name
    role = _role(body.role)
    purposes = None if body.purposes is None else [str(each) for each in body.purposes]
    text, grant = await call.desk.hall(
        call.who, lambda: governing.issue(curator, body.name, role, purposes, float(body.days), by)
    )
    return answered({"token": text, "id": grant.id, "name": grant.name, "role": str(grant.role)}, 201)


def _role(word: str) -> Role:
    roles = tuple(str(each) for each in Role)
    if word not in roles:
        raise ParameterError("there is no such role", expected=", ".join(roles), remedy=nearest(word, roles))
    return Role(word)


async def revoke(call: Call) -> Response:
    """End a token."""
    call.desk.asker(call.who, Action.GRANT)
    curator, identity, by = call.desk.curator, call.path["token"], call.who.name
    ended = await call.desk.hall(call.who, lambda: governing.revoke(curator, identity, by))
    return answered(ended.as_dict())


async def budgets(call: Call) -> Response:
    """What every purpose and analyst has spent and has left."""
    call.desk.asker(call.who, Action.BALANCE)
    curator = call.desk.curator
    return answered(await call.desk.hall(call.who, lambda: serving.budgets(curator)))


async def audit(call: Call) -> Response:
    """The whole record, after an entry's number."""
    call.desk.asker(call.who, Action.AUDIT)
    text = call.request.query_params.get("after", "0")
    if not text.isascii() or not text.isdigit() or len(text) > 13:
        raise ParameterError("'after' is not a whole number")
    ledger = call.desk.curator.ledger
    return answered({"entries": await call.desk.hall(call.who, lambda: telling.trail(ledger, int(text)))})


async def verify(call: Call) -> Response:
    """Recompute the chain of the ledger."""
    call.desk.asker(call.who, Action.AUDIT)
    ledger = call.desk.curator.ledger
    return answered(await call.desk.hall(call.who, lambda: telling.verify(ledger)))


async def withdraw(call: Call) -> Response:
    """Leave a person out from now on."""
    call.desk.asker(call.who, Action.WITHDRAW)
    body: WithdrawalBody = call.body
    curator, by = call.desk.curator, call.who.name
    noted = await call.desk.hall(call.who, lambda: withdrawing.withdraw(curator, body.column, body.value, by))
    return answered(noted.as_dict(), 201)


async def register(call: Call) -> Response:
    """The public register."""
    curator = call.desk.curator
    return answered(await call.desk.hall(call.who, lambda: serving.register(curator)))


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/v1/requests", "requests", "List all requests", requests),
    Operation("POST", "/v1/requests/{request}/approve", "approve", "Approve a request", approve, DecisionBody),
    Operation("POST", "/v1/requests/{request}/decline", "decline", "Decline a request", decline, DecisionBody),
    Operation("GET", "/v1/tokens", "tokens", "List tokens", tokens),
    Operation("POST", "/v1/tokens", "issue", "Give out a token", new_token, TokenBody, status=201),
    Operation("DELETE", "/v1/tokens/{token}", "revoke", "End a token", revoke),
    Operation("GET", "/v1/budgets", "budgets", "See all budgets", budgets),
    Operation("GET", "/v1/audit", "audit", "Read the record", audit, query=_AFTER),
    Operation("GET", "/v1/verify", "verify", "Recompute the chain of the ledger", verify),
    Operation("POST", "/v1/withdrawals", "withdraw", "Withdraw a person", withdraw, WithdrawalBody, status=201),
    Operation("GET", "/v1/register", "register", "See the public register", register),
)
