"""Tokens and who they speak for, requests with their cost and risk, decisions, the policy's term.

Every act is recorded in the ledger, and state is folded from the acts there: each look folds only what came since the
last one."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from deniable.errors import AccessRefused, ParameterError, nearest
from deniable.governance import requests, tokens
from deniable.governance.grants import Action, Asker, Grant, Role
from deniable.governance.requests import Request
from deniable.governance.scram import ScramKeys
from deniable.governance.tokens import Token
from deniable.policy.schema import Role as ColumnRole

if TYPE_CHECKING:
    from deniable.curator.curator import Curator
    from deniable.ledger import Ledger, Receipt
    from deniable.policy.document import Policy


TECHNIQUES = ("mask", "anonymize", "synthesize")


def price_request(technique: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The price of a release in budget, before it is decided."""
    if technique not in TECHNIQUES:
        expected, remedy = f"One of {', '.join(TECHNIQUES)}", nearest(technique, TECHNIQUES)
        raise ParameterError(f"there is no release by '{technique}'", expected=expected, remedy=remedy)
    return _price(technique, parameters)


def measure_risk(curator: Curator, tables: tuple[str, ...]) -> dict[str, Any]:
    """How many rows the quasi-identifiers of each table single out as it is now. For the steward's eyes only."""
    return {name: _count_singled_out(curator, name) for name in tables}


def _price(technique: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    from deniable.policy.budget import budget
    from deniable.query.explain import describe_budget

    if technique != "synthesize":
        return {"guarantee": "none: it is recorded as non-private, and no budget bounds it"}
    if "epsilon" not in parameters and "rho" not in parameters:
        raise ParameterError("a synthetic release needs a budget", remedy="State epsilon, and delta if wanted")
    stated = budget(parameters.get("epsilon"), parameters.get("delta", 0), parameters.get("rho"))
    return dict(describe_budget(stated))


def _count_singled_out(curator: Curator, name: str) -> dict[str, Any]:
    from deniable.assess.uniqueness import count_unique_rows

    table = curator.policy.table(name)
    quasi = tuple(column.name for column in table.with_role(ColumnRole.QUASI_IDENTIFIER))
    if table.public or not quasi:
        return {"columns": [], "per_thousand": 0}
    found = count_unique_rows(curator.tables.attach(name), name, quasi)
    return {"columns": list(quasi), "rows": found.rows, "alone": found.alone, "per_thousand": found.per_thousand}


TERM = timedelta(days=90)
"""How long a token is good for unless told otherwise."""


class Governor:
    """The state of tokens and requests, folded from a ledger; one for each curator, for all threads."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._upto = 0
        self._tokens: dict[str, Token] = {}
        self._requests: dict[str, Request] = {}
        self._withdrawals = 0

    def tokens(self) -> Mapping[str, Token]:
        """All tokens that were given out, by their hash."""
        self._fold()
        return self._tokens

    def requests(self) -> Mapping[str, Request]:
        """All requests, by their id."""
        self._fold()
        return self._requests

    def withdrawals(self) -> int:
        """How many people withdrew, by whichever process that was recorded."""
        self._fold()
        return self._withdrawals

    def _fold(self) -> None:
        acts = (*tokens.ACTS, *requests.ACTS, "withdraw")
        with self._lock:
            new = list(self._ledger.entries(self._upto, acts))
            if new:
                self._tokens, self._requests = (
                    tokens.fold_tokens(new, self._tokens),
                    requests.fold_requests(new, self._requests),
                )
                self._withdrawals += sum(act.act == "withdraw" for act in new)
                self._upto = new[-1].sequence


def issue(
    curator: Curator,
    name: str,
    role: Role = Role.ANALYST,
    purposes: Sequence[str] | None = None,
    days: float | None = None,
    by: str = "steward",
) -> tuple[str, Grant]:
    """A new token and its grant; the text is shown once and stored nowhere."""
    _check_purposes(curator, purposes)
    term = TERM if days is None else timedelta(days=days)
    expires = datetime.now(UTC) + term
    listed = None if purposes is None else tuple(purposes)
    grant = Grant(name, role, curator.policy.dataset, listed, expires.replace(microsecond=0))
    text, facts = tokens.issue_token(grant)
    _act(curator, "token", by, facts)
    return text, tokens.grant_of(text, curator.governor.tokens())


def revoke(curator: Curator, identity: str, by: str = "steward") -> Token:
    """End a token; whoever holds it is refused from now on."""
    token = tokens.find_token(identity, curator.governor.tokens())
    _act(curator, "revoke", by, {"id": token.grant.id})
    return tokens.find_token(identity, curator.governor.tokens())


def list_tokens(curator: Curator) -> dict[str, dict[str, Any]]:
    """All tokens that were given out, by their id, without their hashes."""
    return {token.grant.id: token.as_dict() for token in curator.governor.tokens().values()}


def authenticate(curator: Curator, token: str) -> Grant:
    """The grant that a token speaks for."""
    return tokens.grant_of(token, curator.governor.tokens())


def provable(curator: Curator, name: str) -> list[tuple[ScramKeys, Grant]]:
    """The tokens of a name that can be proved without being sent."""
    return tokens.find_provable(name, curator.governor.tokens())


def authorize(curator: Curator, grant: Grant, action: Action, purpose: str = "") -> Asker:
    """The asker of an allowed action; refuses what the grant, the policy or its term does not allow."""
    policy = curator.policy
    grant.authorize(action, policy.dataset, purpose, datetime.now(UTC), policy.expires)
    return Asker(grant.name, purpose, grant.role)


def ask(
    curator: Curator,
    who: Asker,
    technique: str,
    tables: Sequence[str],
    parameters: Mapping[str, Any] | None = None,
) -> Request:
    """File a request for a release; the steward decides, seeing its cost and (`costing.risk`) its risk."""

    refuse_expired(curator)
    curator.ledger.admit(who.purpose, who.analyst)
    names = tuple(curator.policy.table(name).name for name in tables)
    asked = dict(parameters or {})
    request = Request(
        secrets.token_hex(6), who.analyst, who.purpose, technique, names, asked, price_request(technique, asked)
    )
    _act(curator, "request", who.analyst, request.facts(), who.purpose)
    return requests.find_request(request.id, curator.governor.requests())


def decide(curator: Curator, identity: str, approved: bool, reason: str, by: str = "steward") -> Request:
    """Approve or decline a request, with a reason."""
    request = requests.find_request(identity, curator.governor.requests())
    requests.check_decidable(request, reason)
    _act(curator, "approve" if approved else "decline", by, {"id": identity, "reason": reason}, request.purpose)
    return requests.find_request(identity, curator.governor.requests())


def find_approved(curator: Curator, identity: str) -> Request:
    """An approved request that is still to be fulfilled."""
    request = requests.find_request(identity, curator.governor.requests())
    requests.check_fulfillable(request)
    return request


def mark_fulfilled(curator: Curator, identity: str, release: str, by: str = "steward") -> Request:
    """Note that an approved request was fulfilled by a release."""
    request = find_approved(curator, identity)
    _act(curator, "fulfill", by, {"id": identity, "release": release}, request.purpose)
    return requests.find_request(identity, curator.governor.requests())


def expire(curator: Curator, by: str = "steward") -> int:
    """Forget every stored answer once the policy's term is over; the ledger stays. Says how many there were."""
    from deniable.curator.charge import ANSWERS

    if not term_over(curator.policy):
        return 0
    curator.shown.clear()
    count = curator.cabinet.empty(ANSWERS)
    if count:
        _act(curator, "expire", by, {"answers": count})
    return count


def refuse_expired(curator: Curator) -> None:
    """Refuse after the policy's last day; whoever asks first then makes the curator forget what it stored."""
    if term_over(curator.policy):
        expire(curator)
    in_force(curator.policy)


def in_force(policy: Policy) -> Policy:
    """The policy, or a refusal after its last day; for journeys that have a policy and no curator."""
    if term_over(policy):
        raise AccessRefused(f"the policy expired on {policy.expires}", remedy="The steward may extend it")
    return policy


def term_over(policy: Policy) -> bool:
    """Whether the policy's last day is over, in UTC: the same moment for every machine that holds the policy."""
    return policy.is_expired(datetime.now(UTC).date())


def _check_purposes(curator: Curator, purposes: Sequence[str] | None) -> None:
    budgets = curator.policy.budgets
    known = [each.name for each in budgets.purposes] if budgets else []
    for name in purposes or ():
        if known and name not in known:
            raise ParameterError(f"the policy has no purpose '{name}'", remedy=nearest(name, known))


def _act(curator: Curator, act: str, by: str, details: Mapping[str, Any], purpose: str = "") -> Receipt:
    from deniable.ledger import Act, Posting

    return curator.ledger.record(Posting(Act(act), analyst=by, purpose=purpose, details=details))
