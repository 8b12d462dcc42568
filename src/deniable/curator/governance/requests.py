"""Tokens and who they speak for, requests with their cost and risk, and decisions.

Every act is recorded in the ledger, and state is folded from the acts there (`context.LedgerState`).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from deniable.curator.context import Context, check_purposes
from deniable.curator.scope import is_expired
from deniable.errors import ParameterError, nearest
from deniable.governance import requests, tokens
from deniable.governance.grants import Action, Asker, Grant, Role
from deniable.governance.requests import Request
from deniable.governance.scram import ScramKeys
from deniable.governance.tokens import Token
from deniable.policy.schema import Role as ColumnRole
from deniable.release.record import SparseRecord

if TYPE_CHECKING:
    from deniable.ledger import Receipt


TECHNIQUES = ("mask", "anonymize", "synthesize")


@dataclass(frozen=True, slots=True, eq=False)
class TableRisk(SparseRecord):
    """How many rows of a table its quasi-identifiers single out; without counts where it has none."""

    columns: list[str]
    rows: int | None = None
    alone: int | None = None
    per_thousand: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class RequestReport(SparseRecord):
    """A request with its cost and its decision; with its risk where the steward is to decide."""

    id: str
    technique: str
    tables: list[str]
    parameters: dict[str, Any]
    cost: dict[str, Any]
    analyst: str
    purpose: str
    status: str
    reason: str
    asked: str | None
    decided: str | None
    release: str
    risk: dict[str, TableRisk] | None = None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TokenReport(SparseRecord):
    """A token that was given out, without its hash; its text is there once, when it is new."""

    token: str | None = None
    id: str
    name: str
    role: str
    purposes: list[str] | None
    issued: str
    expires: str | None
    revoked: str | None


def price_request(technique: str, parameters: Mapping[str, Any]) -> dict[str, str]:
    """The price of a release in budget, before it is decided."""
    if technique not in TECHNIQUES:
        expected, remedy = f"One of {', '.join(TECHNIQUES)}", nearest(technique, TECHNIQUES)
        raise ParameterError(f"there is no release by '{technique}'", expected=expected, remedy=remedy)
    return _price(technique, parameters)


def measure_risk(context: Context, tables: tuple[str, ...]) -> dict[str, TableRisk]:
    """How many rows the quasi-identifiers of each table single out as it is now. For the steward's eyes only."""
    return {} if is_expired(context.policy) else {name: _count_singled_out(context, name) for name in tables}


def _price(technique: str, parameters: Mapping[str, Any]) -> dict[str, str]:
    from deniable.policy.budget import budget
    from deniable.query.explain import describe_budget

    if technique != "synthesize":
        return {"guarantee": "none: it is recorded as non-private, and no budget bounds it"}
    if "epsilon" not in parameters and "rho" not in parameters:
        raise ParameterError("a synthetic release needs a budget", remedy="State epsilon, and delta if wanted")
    stated = budget(parameters.get("epsilon"), parameters.get("delta", 0), parameters.get("rho"))
    return describe_budget(stated)


def _count_singled_out(context: Context, name: str) -> TableRisk:
    from deniable.assess.utility import count_unique_rows

    table = context.policy.table(name)
    quasi = tuple(column.name for column in table.with_role(ColumnRole.QUASI_IDENTIFIER))
    if table.public or not quasi:
        return TableRisk([])
    found = count_unique_rows(context.scope.attach(name), name, quasi)
    return TableRisk(list(quasi), found.rows, found.alone, found.per_thousand)


TERM = timedelta(days=90)
"""How long a token is good for unless told otherwise."""


def issue(
    context: Context,
    name: str,
    role: Role = Role.ANALYST,
    purposes: Sequence[str] | None = None,
    days: float | None = None,
    by: str = "steward",
) -> tuple[str, Grant]:
    """A new token and its grant; the text is shown once and stored nowhere."""
    check_purposes(context.policy, tuple(purposes or ()))
    term = TERM if days is None else timedelta(days=days)
    expires = datetime.now(UTC) + term
    listed = None if purposes is None else tuple(purposes)
    grant = Grant(name, role, context.policy.dataset, listed, expires.replace(microsecond=0))
    text, facts = tokens.issue_token(grant)
    _act(context, "token", by, facts)
    return text, tokens.grant_of(text, context.state.tokens())


def revoke(context: Context, identity: str, by: str = "steward") -> Token:
    """End a token; whoever holds it is refused from now on."""
    token = tokens.find_token(identity, context.state.tokens())
    _act(context, "revoke", by, {"id": token.grant.id})
    return tokens.find_token(identity, context.state.tokens())


def list_tokens(context: Context) -> dict[str, TokenReport]:
    """All tokens that were given out, by their id, without their hashes."""
    return {token.grant.id: report_token(token) for token in context.state.tokens().values()}


def report_token(token: Token) -> TokenReport:
    """A token as it may be listed."""
    return TokenReport(**token.as_dict())


def report_request(request: Request) -> RequestReport:
    """A request as it may be listed."""
    return RequestReport(**request.as_dict())


def authenticate(context: Context, token: str) -> Grant:
    """The grant that a token speaks for."""
    return tokens.grant_of(token, context.state.tokens())


def provable(context: Context, name: str) -> list[tuple[ScramKeys, Grant]]:
    """The tokens of a name that can be proved without being sent."""
    return tokens.find_provable(name, context.state.tokens())


def authorize(context: Context, grant: Grant, action: Action, purpose: str = "") -> Asker:
    """The asker of an allowed action; refuses what the grant, the policy or its term does not allow."""
    policy = context.policy
    grant.authorize(action, policy.dataset, purpose, datetime.now(UTC), policy.expires)
    return Asker(grant.name, purpose, grant.role)


def ask(
    context: Context, technique: str, tables: Sequence[str], parameters: Mapping[str, Any] | None = None
) -> Request:
    """File a request for a release; the steward decides, seeing its cost and (`measure_risk`) its risk."""
    context.admit()
    names = tuple(context.policy.table(name).name for name in tables)
    for name in names:
        context.scope.refuse_closed(name)
    (purpose, analyst), asked = context.path, dict(parameters or {})
    price = price_request(technique, asked)
    request = Request(secrets.token_hex(6), analyst, purpose, technique, names, asked, price)
    _act(context, "request", analyst, request.facts(), purpose)
    return requests.find_request(request.id, context.state.requests())


def decide(context: Context, identity: str, approved: bool, reason: str, by: str = "steward") -> Request:
    """Approve or decline a request, with a reason."""
    request = requests.find_request(identity, context.state.requests())
    requests.check_decidable(request, reason)
    _act(context, "approve" if approved else "decline", by, {"id": identity, "reason": reason}, request.purpose)
    return requests.find_request(identity, context.state.requests())


def find_approved(context: Context, identity: str) -> Request:
    """An approved request that is still to be fulfilled."""
    request = requests.find_request(identity, context.state.requests())
    requests.check_fulfillable(request)
    return request


def mark_fulfilled(context: Context, identity: str, release: str, by: str = "steward") -> Request:
    """Note that an approved request was fulfilled by a release."""
    request = find_approved(context, identity)
    _act(context, "fulfill", by, {"id": identity, "release": release}, request.purpose)
    return requests.find_request(identity, context.state.requests())


def _act(context: Context, act: str, by: str, details: Mapping[str, Any], purpose: str = "") -> Receipt:
    from deniable.ledger import Act, Posting

    return context.ledger.record(Posting(Act(act), analyst=by, purpose=purpose, details=details))
