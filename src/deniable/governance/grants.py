"""Roles, actions and grants: the matrix that decides every request; and the shape of the ledger entries it is kept in.

A grant says who somebody is, in which role, for which dataset and purposes, and until when. A request names its
action, dataset and purpose; it is allowed if the role may act so, the dataset is the grant's, the purpose is granted,
and neither the grant nor the policy has expired. Each refusal says which of these it was.

This package knows the entries of a ledger by their shape only (`LedgerEntry`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import StrEnum
from typing import Any, Protocol

from deniable.errors import AccessRefused
from deniable.policy.access import NAME_EXPECTED, find_name_fault
from deniable.policy.schema import drop_unseen


class Role(StrEnum):
    """Who somebody is to the data."""

    STEWARD = "steward"
    """Writes the policy, grants, decides."""
    ANALYST = "analyst"
    """Asks, within a budget."""
    AUDITOR = "auditor"
    """Reads the record, and asks nothing."""
    RESPONDENT = "respondent"
    """Is in the data: may withdraw, and may know what was released."""


class Action(StrEnum):
    """What can be done through a curator."""

    QUERY = "query"
    EXPLAIN = "explain"
    READ = "read"
    BALANCE = "balance"
    REQUEST = "request"
    DECIDE = "decide"
    GRANT = "grant"
    RELEASE = "release"
    WITHDRAW = "withdraw"
    SUBJECT_REPORT = "subject-report"
    AUDIT = "audit"
    REGISTER = "register"
    PURGE = "purge"
    EPOCH = "epoch"
    RESUME = "resume"
    REINSTATE = "reinstate"


PUBLIC = frozenset({Action.REGISTER})
"""What nobody needs a role for."""

ALLOWED: dict[Role, frozenset[Action]] = {
    Role.STEWARD: frozenset(Action),
    Role.ANALYST: frozenset({Action.QUERY, Action.EXPLAIN, Action.READ, Action.BALANCE, Action.REQUEST}) | PUBLIC,
    Role.AUDITOR: frozenset({Action.AUDIT, Action.BALANCE}) | PUBLIC,
    Role.RESPONDENT: frozenset({Action.WITHDRAW, Action.SUBJECT_REPORT}) | PUBLIC,
}

FOR_A_PURPOSE = frozenset({Action.QUERY, Action.EXPLAIN, Action.READ, Action.REQUEST})
"""What is done for a purpose, and therefore names one. One that is named for another action must be granted, too."""

AFTER_EXPIRY = frozenset(
    {Action.AUDIT, Action.REGISTER, Action.PURGE, Action.SUBJECT_REPORT, Action.BALANCE, Action.WITHDRAW}
)
"""What remains possible when the policy has expired: looking at the record, forgetting, and withdrawing."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The person whom a respondent's grant is for: a unit column, and keyed digests of the value instead of it."""

    column: str
    commitments: tuple[str, ...]


SIGNED_ON = "oidc "
"""With this the id of a grant begins that came by single sign-on."""


@dataclass(frozen=True, slots=True)
class Grant:
    """What somebody may do. `purposes` None grants them all; `expires` None never ends; `id` names its token.

    A respondent's grant names its `subject`: the person who may withdraw by it, and ask for a report.
    """

    name: str
    role: Role
    dataset: str
    purposes: tuple[str, ...] | None = None
    expires: datetime | None = None
    id: str = ""
    subject: Subject | None = None

    @property
    def has_token(self) -> bool:
        """Whether it came by a token of the ledger, and neither by single sign-on nor from Python."""
        return bool(self.id) and not self.id.startswith(SIGNED_ON)

    def authorize(
        self, action: Action, dataset: str, purpose: str, now: datetime, policy_expires: date | None = None
    ) -> None:
        """Refuse with the reason, or return: nothing else decides who may act."""
        if action not in ALLOWED[self.role]:
            raise AccessRefused(
                f"{_add_article(self.role)} may not {_describe_action(action)}", remedy="Ask the steward"
            )
        if dataset != self.dataset:
            raise AccessRefused(f"the grant is for another dataset than '{dataset}'", remedy="Ask the steward")
        self.refuse_ended(now)
        if policy_expires is not None and now.date() > policy_expires and action not in AFTER_EXPIRY:
            raise AccessRefused(f"the policy expired on {policy_expires}", remedy="The steward may extend it")
        named = bool(purpose) or action in FOR_A_PURPOSE
        if named and self.purposes is not None and purpose not in self.purposes:
            happened = f"purpose '{purpose}' is outside the grant" if purpose else "no purpose was named"
            raise AccessRefused(happened, expected=f"Granted are: {', '.join(self.purposes) or 'none'}")

    def refuse_ended(self, now: datetime) -> None:
        """Refuse a grant whose term is over."""
        if self.expires is not None and now >= self.expires:
            raise AccessRefused(f"the grant expired on {self.expires:%Y-%m-%d}", remedy="Ask the steward for another")


def refuse_name(name: str, role: Role) -> None:
    """Refuse what is no name of one who asks, decides or reads; only who has a role may go by its plain name alone."""
    own = role is not Role.ANALYST and name == role
    if not own and (fault := find_name_fault(name)):
        raise AccessRefused(f"'{drop_unseen(name)}' {fault}", expected=NAME_EXPECTED, remedy="Use such a name")


@dataclass(frozen=True, slots=True)
class Asker:
    """Somebody who asks, and what for; without a name it is the steward.

    `who=Asker("ana", "research")` charges what ana is granted for research. Who asks by a `grant` is refused once it
    has ended, also while a question is worked on.
    """

    name: str = ""
    purpose: str = ""
    role: Role = Role.STEWARD
    grant: Grant | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Charges of the steward are known by that name, so nobody else may have it; auditors charge nothing.
        if self.name or self.role is Role.ANALYST:
            refuse_name(self.name, self.role)

    @property
    def analyst(self) -> str:
        """The name under which charges are written."""
        return self.name or str(self.role)


def _add_article(role: Role) -> str:
    return f"an {role}" if role in (Role.ANALYST, Role.AUDITOR) else f"a {role}"


def _describe_action(action: Action) -> str:
    return {
        Action.QUERY: "query the data",
        Action.EXPLAIN: "explain questions",
        Action.READ: "read what streams and tabulations published",
        Action.BALANCE: "read balances",
        Action.REQUEST: "request releases",
        Action.DECIDE: "decide on requests",
        Action.GRANT: "give or revoke grants",
        Action.RELEASE: "make releases",
        Action.WITHDRAW: "withdraw people",
        Action.SUBJECT_REPORT: "read the report of a person",
        Action.AUDIT: "read the audit trail",
        Action.REGISTER: "read the register",
        Action.PURGE: "purge what is stored",
        Action.EPOCH: "declare epochs",
        Action.RESUME: "let askers go on",
        Action.REINSTATE: "take back a withdrawal",
    }[action]


class LedgerEntry(Protocol):
    """Something that was done and written down; entries of a ledger have this shape."""

    @property
    def sequence(self) -> int:
        """Its place in the record."""

    @property
    def time(self) -> datetime:
        """When it was written."""

    @property
    def act(self) -> str:
        """What was done: token, revoke, request, approve, decline, withdraw, charge, release ..."""

    @property
    def analyst(self) -> str:
        """Who did it."""

    @property
    def purpose(self) -> str:
        """What for."""

    @property
    def details(self) -> Mapping[str, Any]:
        """Further public facts."""
