"""Governing: tokens and who they speak for, requests and decisions, the term of a policy. Every act is recorded.

State is not kept anywhere but in the ledger: it is folded from the acts there, and each look folds only what came
since the last one.
"""

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

if TYPE_CHECKING:
    from deniable.curator.hall import Curator
    from deniable.ledger import Ledger, Receipt
    from deniable.policy.document import Policy

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
                self._tokens, self._requests = tokens.folded(new, self._tokens), requests.folded(new, self._requests)
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
    _known_purposes(curator, purposes)
    term = TERM if days is None else timedelta(days=days)
    expires = datetime.now(UTC) + term
    listed = None if purposes is None else tuple(purposes)
    grant = Grant(name, role, curator.policy.dataset, listed, expires.replace(microsecond=0))
    text, facts = tokens.fresh(grant)
    _act(curator, "token", by, facts)
    return text, tokens.grant_of(text, curator.governor.tokens())


def revoke(curator: Curator, identity: str, by: str = "steward") -> Token:
    """End a token; whoever holds it is refused from now on."""
    token = tokens.named(identity, curator.governor.tokens())
    _act(curator, "revoke", by, {"id": token.grant.id})
    return tokens.named(identity, curator.governor.tokens())


def listed(curator: Curator) -> dict[str, dict[str, Any]]:
    """All tokens that were given out, by their id, without their hashes."""
    return {token.grant.id: token.as_dict() for token in curator.governor.tokens().values()}


def authenticate(curator: Curator, token: str) -> Grant:
    """The grant that a token speaks for."""
    return tokens.grant_of(token, curator.governor.tokens())


def provable(curator: Curator, name: str) -> list[tuple[ScramKeys, Grant]]:
    """The tokens of a name that can be proved without being sent."""
    return tokens.provable(name, curator.governor.tokens())


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
    from deniable.curator.costing import cost

    refuse_expired(curator)
    curator.ledger.admit(who.purpose, who.analyst)
    names = tuple(curator.policy.table(name).name for name in tables)
    asked = dict(parameters or {})
    request = Request(secrets.token_hex(6), who.analyst, who.purpose, technique, names, asked, cost(technique, asked))
    _act(curator, "request", who.analyst, request.facts(), who.purpose)
    return requests.named(request.id, curator.governor.requests())


def decide(curator: Curator, identity: str, approved: bool, reason: str, by: str = "steward") -> Request:
    """Approve or decline a request, with a reason."""
    request = requests.named(identity, curator.governor.requests())
    requests.decidable(request, reason)
    _act(curator, "approve" if approved else "decline", by, {"id": identity, "reason": reason}, request.purpose)
    return requests.named(identity, curator.governor.requests())


def approved(curator: Curator, identity: str) -> Request:
    """An approved request that is still to be fulfilled."""
    request = requests.named(identity, curator.governor.requests())
    requests.fulfillable(request)
    return request


def fulfilled(curator: Curator, identity: str, release: str, by: str = "steward") -> Request:
    """Note that an approved request was fulfilled by a release."""
    request = approved(curator, identity)
    _act(curator, "fulfill", by, {"id": identity, "release": release}, request.purpose)
    return requests.named(identity, curator.governor.requests())


def expire(curator: Curator, by: str = "steward") -> int:
    """Forget every stored answer once the policy's term is over; the ledger stays. Says how many there were."""
    from deniable.curator.answers import DRAWER

    if not term_over(curator.policy):
        return 0
    curator.shown.clear()
    count = curator.cabinet.empty(DRAWER)
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
    return policy.expired(datetime.now(UTC).date())


def _known_purposes(curator: Curator, purposes: Sequence[str] | None) -> None:
    budgets = curator.policy.budgets
    known = [each.name for each in budgets.purposes] if budgets else []
    for name in purposes or ():
        if known and name not in known:
            raise ParameterError(f"the policy has no purpose '{name}'", remedy=nearest(name, known))


def _act(curator: Curator, act: str, by: str, details: Mapping[str, Any], purpose: str = "") -> Receipt:
    from deniable.ledger import Act, Posting

    return curator.ledger.record(Posting(Act(act), analyst=by, purpose=purpose, details=details))
