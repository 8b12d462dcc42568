"""What the steward and the auditor can do over HTTP, on a port or socket of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from deniable.curator.governance import epochs, estate, reports, withdrawals
from deniable.curator.governance import requests as governance_requests
from deniable.curator.governance.steward import resume_asker
from deniable.curator.query import tabulate
from deniable.curator.query.stream.run import publish
from deniable.errors import DeniableError, LedgerBusy, ParameterError, StorageError, nearest
from deniable.governance.grants import Action, Role
from deniable.server.http.bodies import DecisionBody, PersonBody, ReinstatementBody, TokenBody
from deniable.server.http.endpoints import RETRY, Call, Operation, respond_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from deniable.governance.tokens import Token
    from deniable.ledger import Receipt

_AFTER = {"after": {"type": "integer", "minimum": 0, "maximum": 10**12, "default": 0}}


async def list_requests(call: Call) -> Response:
    """All requests, with cost and risk."""
    call.service.authorize(call.who, Action.DECIDE)
    curator = call.service.curator
    found = await call.service.run_for(call.who, lambda: reports.requests(curator.context, risk=True))
    return respond_json({"requests": [each.to_dict() for each in found]})


async def approve_request(call: Call) -> Response:
    """Approve a request, with a reason."""
    return await _decide_request(call, True)


async def decline_request(call: Call) -> Response:
    """Decline a request, with a reason."""
    return await _decide_request(call, False)


async def make_request(call: Call) -> Response:
    """Make an approved request here, and now: one that failed, or that was begun by a server that is gone."""
    await call.service.make_again(call.who, call.path["request"])
    context = call.service.curator.context
    made = await call.service.read_record(lambda: governance_requests.find_request(context, call.path["request"]))
    return respond_json(made.as_dict())


async def _decide_request(call: Call, approved: bool) -> Response:
    return respond_json(
        (await call.service.decide(call.who, call.path["request"], approved, call.body.reason)).as_dict()
    )


async def list_tokens(call: Call) -> Response:
    """All tokens that were given out, without their texts."""
    call.service.authorize(call.who, Action.GRANT)
    curator = call.service.curator
    listed = await call.service.run_for(
        call.who, lambda: list(governance_requests.list_tokens(curator.context).values())
    )
    return respond_json({"tokens": [each.to_dict() for each in listed]})


async def issue_token(call: Call) -> Response:
    """Give out a token; its text is in this answer and nowhere else."""
    call.service.authorize(call.who, Action.GRANT)
    body: TokenBody = call.body
    curator, by = call.service.curator, call.who
    role = _parse_role(body.role)
    purposes = None if body.purposes is None else [str(each) for each in body.purposes]
    person = (body.column, body.value) if body.column or body.value else None
    issue = governance_requests.issue
    text, grant = await call.service.run_for(
        call.who, lambda: issue(curator.context, body.name, role, purposes, float(body.days), by, person)
    )
    return respond_json({"token": text, "id": grant.id, "name": grant.name, "role": str(grant.role)}, 201)


def _parse_role(word: str) -> Role:
    roles = tuple(str(each) for each in Role)
    if word not in roles:
        raise ParameterError("there is no such role", expected=", ".join(roles), remedy=nearest(word, roles))
    return Role(word)


async def revoke_token(call: Call) -> Response:
    """End a token."""
    call.service.authorize(call.who, Action.GRANT)
    curator, identity, by = call.service.curator, call.path["token"], call.who.name
    ended = await call.service.run_for(call.who, lambda: governance_requests.revoke(curator.context, identity, by))
    return respond_json(ended.as_dict())


async def pause_token(call: Call) -> Response:
    """Hold a token up until it is resumed, with a reason."""
    return await _hold_token(call, governance_requests.pause)


async def unpause_token(call: Call) -> Response:
    """Let a token count again that was paused, with a reason."""
    return await _hold_token(call, governance_requests.unpause)


async def _hold_token(call: Call, act: Callable[..., Token]) -> Response:
    call.service.authorize(call.who, Action.GRANT)
    curator, identity, reason, by = call.service.curator, call.path["token"], call.body.reason, call.who.name
    changed = await call.service.run_for(call.who, lambda: act(curator.context, identity, reason, by))
    return respond_json(changed.as_dict())


async def list_incidents(call: Call) -> Response:
    """Who asked what after an entry's number, with alerts on failures and unusual use."""
    call.service.authorize(call.who, Action.AUDIT)
    ledger, after = call.service.curator.ledger, _read_after(call)
    found = await call.service.run_for(call.who, lambda: estate.list_incidents(ledger, after))
    return respond_json(found.to_dict())


async def show_budgets(call: Call) -> Response:
    """What every purpose and analyst has spent and has left."""
    call.service.authorize(call.who, Action.AUDIT)
    curator = call.service.curator
    found = await call.service.run_for(call.who, lambda: reports.budgets(curator.context))
    return respond_json(found.to_dict())


async def list_entries(call: Call) -> Response:
    """The whole record, after an entry's number."""
    call.service.authorize(call.who, Action.AUDIT)
    ledger, after = call.service.curator.ledger, _read_after(call)
    found = await call.service.run_for(call.who, lambda: reports.trail(ledger, after))
    return respond_json({"entries": [each.to_dict() for each in found]})


def _read_after(call: Call) -> int:
    text = call.request.query_params.get("after", "0")
    if not text.isascii() or not text.isdigit() or len(text) > 13:
        raise ParameterError("'after' is not a whole number")
    return int(text)


async def verify_ledger(call: Call) -> Response:
    """Recompute the chain of the ledger."""
    call.service.authorize(call.who, Action.AUDIT)
    ledger = call.service.curator.ledger
    proof = await call.service.run_for(call.who, lambda: reports.verify_ledger(ledger))
    return respond_json(proof.to_dict())


async def withdraw_person(call: Call) -> Response:
    """Leave a person out from now on; a respondent's token is for the one person whom it names."""
    call.service.authorize(call.who, Action.WITHDRAW)
    body: PersonBody = call.body
    curator, grant = call.service.curator, call.who

    def work() -> Receipt:
        withdrawals.refuse_other_subject(curator.context, grant, body.column, body.value)
        return withdrawals.withdraw(curator.context, body.column, body.value, grant.name)

    noted = await call.service.run_for(grant, work)
    return respond_json({**noted.as_dict(), **withdrawals.find_reach(curator.policy, body.column).to_dict()}, 201)


async def reinstate_person(call: Call) -> Response:
    """Take a person in again who withdrew and agreed anew."""
    call.service.authorize(call.who, Action.REINSTATE)
    body: ReinstatementBody = call.body
    curator, by = call.service.curator, call.who.name
    noted = await call.service.run_for(
        call.who, lambda: withdrawals.reinstate(curator.context, body.column, body.value, body.reason, by)
    )
    return respond_json(noted.as_dict(), 201)


async def show_subject(call: Call) -> Response:
    """What was done with one person's rows; a respondent sees the person whom the token names."""
    call.service.authorize(call.who, Action.SUBJECT_REPORT)
    body: PersonBody = call.body
    curator, grant = call.service.curator, call.who

    def work() -> reports.SubjectReport:
        withdrawals.refuse_other_subject(curator.context, grant, body.column, body.value)
        return reports.subject_report(curator.context, body.column, body.value)

    return respond_json((await call.service.run_for(grant, work)).to_dict())


async def show_epoch(call: Call) -> Response:
    """The epoch now, and which private sources changed inside it."""
    call.service.authorize(call.who, Action.EPOCH)
    curator = call.service.curator
    found = await call.service.run_for(call.who, lambda: epochs.show_epoch(curator.context))
    return respond_json(found.to_dict())


async def declare_epoch(call: Call) -> Response:
    """Begin a new epoch of the data, for every asker at once."""
    call.service.authorize(call.who, Action.EPOCH)
    curator, reason, by = call.service.curator, call.body.reason, call.who.name
    begun = await call.service.run_for(call.who, lambda: epochs.declare_epoch(curator.context, reason, by))
    return respond_json(begun.to_dict(), 201)


async def resume_analyst(call: Call) -> Response:
    """Let an asker go on who was paused after failures."""
    call.service.authorize(call.who, Action.RESUME)
    curator, analyst, by = call.service.curator, call.path["analyst"], call.who.name
    failures = await call.service.run_for(call.who, lambda: resume_asker(curator.context, analyst, by))
    return respond_json({"analyst": analyst, "failures": failures})


async def explain_tabulation(call: Call) -> Response:
    """What each operator of a tabulation would cost, and its errors; nothing is charged."""
    call.service.authorize(call.who, Action.RELEASE)
    context, name = call.service.curator.context, call.path["tabulation"]
    found = await call.service.run_for(call.who, lambda: tabulate.explain(context, context.policy.tabulation(name)))
    return respond_json(found.to_dict())


async def run_tabulation(call: Call) -> Response:
    """Measure a tabulation of the policy; asked again in the same epoch, it gives what it gave."""
    call.service.authorize(call.who, Action.RELEASE)
    context, name = call.service.curator.context, call.path["tabulation"]
    found = await call.service.charge_for(
        call.who, lambda _stop: tabulate.tabulate(context, context.policy.tabulation(name)), ("tabulation", name),
        repeat=lambda found: replace(found, charged=False),
    )  # fmt: skip
    return _respond_charged(found.to_dict(), found.charged, found.release)


async def run_stream(call: Call) -> Response:
    """Close the periods of a stream that have ended; the first call charges the whole horizon."""
    call.service.authorize(call.who, Action.RELEASE)
    context, name = call.service.curator.context, call.path["stream"]
    found = await call.service.charge_for(
        call.who, lambda _stop: publish(context, name), ("stream", name),
        repeat=lambda found: replace(found, charged=False),
    )  # fmt: skip
    return _respond_charged(found.to_dict(), found.charged, found.release)


def _respond_charged(document: dict[str, Any], charged: bool, release: str) -> Response:
    response = respond_json(document)
    response.headers.update({"x-deniable-release": release, "x-deniable-charged": str(charged).lower()})
    return response


async def show_register(call: Call) -> Response:
    """The public register."""
    curator = call.service.curator
    found = await call.service.run_for(call.who, lambda: reports.register(curator.ledger))
    return respond_json(found.to_dict())


async def check_health(_call: Call) -> Response:
    """Whether the server is up: it answers, whatever its ledger does."""
    return respond_json({"status": "ok"})


async def check_ready(call: Call) -> Response:
    """Whether the server can answer questions now: its ledger is what was written, and can be written to."""
    try:
        await call.service.check_ledger()
    except LedgerBusy as busy:
        return respond_json({"status": busy.happened}, 503, RETRY)
    except StorageError as refusal:  # the reason, without the name of a folder
        reason = refusal.happened.partition(": ")[2] or refusal.happened
        return respond_json({"status": f"the ledger cannot be written to: {reason}"}, 503, RETRY)
    except DeniableError:
        return respond_json({"status": "the ledger cannot be read"}, 503)
    return respond_json({"status": "ok"})


PUBLIC_OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/health", "health", "See whether the server is up", check_health, public=True),
    Operation("GET", "/ready", "ready", "See whether questions can be answered", check_ready, public=True),
)
"""What whoever watches a server may ask; both ports have it."""

RESPONDENT_OPERATIONS: tuple[Operation, ...] = (
    Operation("POST", "/v1/withdrawals", "withdraw", "Withdraw a person", withdraw_person, PersonBody, status=201),
    Operation("POST", "/v1/subject", "subject", "See what was done with a person's rows", show_subject, PersonBody),
)
"""What a respondent may do for herself; both ports have it, since the steward's is not open to everybody."""

OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", "/v1/requests", "requests", "List all requests", list_requests),
    Operation("POST", "/v1/requests/{request}/approve", "approve", "Approve a request", approve_request, DecisionBody),
    Operation("POST", "/v1/requests/{request}/decline", "decline", "Decline a request", decline_request, DecisionBody),
    Operation("POST", "/v1/requests/{request}/make", "make", "Make an approved request that is not made", make_request),
    Operation("GET", "/v1/tokens", "tokens", "List tokens", list_tokens),
    Operation("POST", "/v1/tokens", "issue", "Give out a token", issue_token, TokenBody, status=201),
    Operation("DELETE", "/v1/tokens/{token}", "revoke", "End a token", revoke_token),
    Operation("POST", "/v1/tokens/{token}/pause", "pause", "Hold a token up", pause_token, DecisionBody),
    Operation("POST", "/v1/tokens/{token}/unpause", "unpause", "Let a token count again", unpause_token, DecisionBody),
    Operation("GET", "/v1/incidents", "incidents", "See unusual use and failures", list_incidents, query=_AFTER),
    Operation("GET", "/v1/budgets", "budgets", "See all budgets", show_budgets),
    Operation("GET", "/v1/audit", "audit", "Read the record", list_entries, query=_AFTER),
    Operation("GET", "/v1/verify", "verify", "Recompute the chain of the ledger", verify_ledger),
    *RESPONDENT_OPERATIONS,
    *PUBLIC_OPERATIONS,
    Operation(
        "POST", "/v1/reinstatements", "reinstate", "Take back a withdrawal", reinstate_person, ReinstatementBody,
        status=201,
    ),
    Operation("GET", "/v1/epoch", "epoch", "See the epoch and its sources", show_epoch),
    Operation("POST", "/v1/epoch", "new_epoch", "Begin a new epoch", declare_epoch, DecisionBody, status=201),
    Operation("POST", "/v1/analysts/{analyst}/resume", "resume", "Let a paused asker go on", resume_analyst),
    Operation("GET", "/v1/register", "register", "See the public register", show_register),
    Operation("GET", "/v1/tabulations/{tabulation}/explain", "explainTabulation", "See what a tabulation costs",
              explain_tabulation),
    Operation("POST", "/v1/tabulations/{tabulation}", "tabulate", "Measure a tabulation of the policy",
              run_tabulation, charges=True),
    Operation("POST", "/v1/streams/{stream}", "publish", "Close the periods of a stream that have ended", run_stream,
              charges=True),
)  # fmt: skip
