"""Requests for releases: an analyst asks for masked, k-anonymous or synthetic rows, the steward decides.

A request says what is asked, for which purpose, what it is needed for, and what it costs. The risk is measured when the
steward looks and is not written down: it is read off the data, which neither the analyst nor the record may see. A
request is decided once, with a reason, and fulfilled at most once: of several who do so at the same time the first in
the ledger counts, and the others are told. Where the policy's purpose demands it, several different stewards approve;
one can decline, also what is approved and not made yet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from typing import Any

from deniable.errors import AccessRefused, ParameterError
from deniable.governance.grants import LedgerEntry
from deniable.policy.access import list_looks
from deniable.policy.schema import normalize_spelling

ACTS = ("request", "approve", "decline", "fulfill")


class Status(StrEnum):
    """Where a request stands."""

    PENDING = "pending"
    APPROVED = "approved"
    DECLINED = "declined"
    RELEASED = "released"


MOST_WAITING = 20
"""Requests of one asker that may wait for a decision: each is an entry for good, and read by a person."""
DECISIONS = {"approve": Status.APPROVED, "decline": Status.DECLINED}


@dataclass(frozen=True, slots=True)
class Request:
    """One request, with its decision."""

    id: str
    analyst: str
    purpose: str
    technique: str
    tables: tuple[str, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    cost: Mapping[str, Any] = field(default_factory=dict)
    asked: datetime | None = None
    status: Status = Status.PENDING
    reason: str = ""
    decided: datetime | None = None
    release: str = ""
    """What was released: one id, or one for each table with a space between."""
    files: tuple[str, ...] = ()
    """The digests of the files that were released; earlier versions wrote none down."""
    counted: tuple[int, ...] = ()
    """The numbers of the entries that made it what it is."""
    approvals: int = 1
    """How many different stewards must approve it."""
    approved_by: tuple[str, ...] = ()
    approvers: tuple[str, ...] = ()
    """The persons behind those names: a steward who gives out another token is still one person."""
    reasons: tuple[str, ...] = ()
    """What each of those who approved said, in the order of their names."""
    justification: str = ""
    policy: str = ""
    """The digest of the policy under which it was approved, by all alike, or decided."""
    by_server: bool = False
    """Whether it was approved at a server, which makes it."""
    listed: bool = False
    """Whether the policy listed the analyst when the request was made; such a one must still be listed at the end."""

    @property
    def is_pending(self) -> bool:
        """Whether it waits for a decision."""
        return self.status is Status.PENDING

    # a dictionary: an entry's details in the ledger, from which requests are read back
    def facts(self) -> dict[str, Any]:
        """What is written down when it is asked."""
        told: dict[str, Any] = {"id": self.id, "technique": self.technique, "tables": list(self.tables)}
        told |= {"parameters": dict(self.parameters), "cost": dict(self.cost), "listed": self.listed}
        return told | {"approvals": self.approvals, "justification": self.justification}

    @property
    def content(self) -> str:
        """All that is asked, for which purpose and at what price: the same text for equal requests.

        Numbers are equal however they are written, and so are columns in any order.
        """
        asked = {name: _normalize(name, value) for name, value in self.parameters.items()}
        told = self.facts() | {"id": "", "purpose": self.purpose, "parameters": asked}
        return json.dumps(told, sort_keys=True, default=str)

    def as_dict(self) -> dict[str, Any]:
        """The request as plain values."""
        times = {"asked": self.asked, "decided": self.decided}
        shown = {name: at.isoformat(timespec="seconds") if at else None for name, at in times.items()}
        who = {"analyst": self.analyst, "purpose": self.purpose, "status": str(self.status), "reason": self.reason}
        told = {name: fact for name, fact in self.facts().items() if name != "listed"}
        by = {"approved_by": list(self.approved_by), "reasons": list(self.reasons)}
        return told | who | shown | {"release": self.release} | by


def fold_requests(acts: Iterable[LedgerEntry], known: Mapping[str, Request] | None = None) -> dict[str, Request]:
    """The requests by their id, after further acts."""
    requests = dict(known or {})
    for act in acts:
        facts = act.details
        if act.act == "request":
            if not _is_one_too_many(requests, act):
                requests[facts["id"]] = _read_request(act)
        elif act.act in DECISIONS and _stands(requests, facts["id"], Status(facts.get("status", Status.PENDING))):
            requests[facts["id"]] = _decide(requests[facts["id"]], act)
        elif act.act == "fulfill" and _stands(requests, facts["id"], Status.APPROVED):
            made = replace(requests[facts["id"]], status=Status.RELEASED, release=facts["release"])
            requests[facts["id"]] = _count(replace(made, files=tuple(facts.get("files", ()))), act)
    return requests


def _is_one_too_many(requests: Mapping[str, Request], act: LedgerEntry) -> bool:
    """Whether a request came when as many of its asker waited as may, by its own entry; earlier ones state no limit."""
    most = act.details.get("most")
    return (
        most is not None and sum(each.is_pending for each in requests.values() if each.analyst == act.analyst) >= most
    )


def _normalize(name: str, value: Any) -> Any:
    """A parameter as it is compared."""
    if isinstance(value, Mapping):
        return {key: _normalize("", each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return sorted(map(str, value))
    try:
        return value if name == "mode" or isinstance(value, bool) else str(Decimal(str(value)).normalize())
    except InvalidOperation:
        return value


def _decide(request: Request, act: LedgerEntry) -> Request:
    """A pending request after a decision: declined by one, approved once enough different stewards did."""
    person = act.details.get("person") or act.analyst
    policy = act.details.get("policy", "")
    if act.act == "approve" and (not is_further_approver(request, person) or request.policy not in ("", policy)):
        return request
    said = replace(_count(request, act), reason=act.details["reason"])
    if act.act == "approve":
        names, persons = (*request.approved_by, act.analyst), (*request.approvers, person)
        reasons = (*request.reasons, act.details["reason"])
        said = replace(said, policy=policy, approved_by=names, approvers=persons, reasons=reasons)
        if len(said.approved_by) < said.approvals:
            return said
    by_server = bool(act.details.get("server"))
    return replace(said, status=DECISIONS[act.act], decided=act.time, policy=policy, by_server=by_server)


def is_further_approver(request: Request, name: str) -> bool:
    """Whether somebody is another person than those who approved already; of several, none is who asked.

    Names are compared by how they look (`is_same_name`).
    """
    others = (*request.approvers, request.analyst) if request.approvals > 1 else request.approvers
    return not any(is_same_name(name, each) for each in others)


def is_same_name(one: str, other: str) -> bool:
    """Whether two names may be one person's: case, spaces, characters that nobody sees and look-alikes do not count."""
    return bool(list_looks(one) & list_looks(other))


def is_listed(name: str, names: Iterable[str]) -> bool:
    """Whether a name is one of those listed, in another case or spacing perhaps; a look-alike of one is not."""
    return normalize_spelling(name) in {normalize_spelling(each) for each in names}


def _count(request: Request, act: LedgerEntry) -> Request:
    return replace(request, counted=(*request.counted, act.sequence))


def _stands(requests: Mapping[str, Request], identity: str, status: Status) -> bool:
    """Whether an act may change a request: of two that are written at once the first counts, for everybody alike."""
    return identity in requests and requests[identity].status is status


def find_request(identity: str, requests: Mapping[str, Request]) -> Request:
    """The request of that id."""
    if identity not in requests:
        raise ParameterError(f"there is no request '{identity}'", remedy="List them with: deniable requests")
    return requests[identity]


def check_decidable(request: Request, reason: str, by: str = "", *, approved: bool = False) -> None:
    """Refuse a second decision, one without a reason, a steward who approves twice, and who asked as one of several."""
    if request.status is not Status.PENDING and (approved or request.status is not Status.APPROVED):
        raise ParameterError(
            f"request '{request.id}' is {request.status} already",
            expected="A request that waits for a decision, or, to decline it, one that is approved and not made yet",
            remedy="See how requests stand: deniable requests",
        )
    if not reason.strip():
        raise ParameterError("a decision needs a reason", remedy="Say why, so that the record can tell")
    if approved and not is_further_approver(request, by):
        raise AccessRefused(
            f"'{by}' approved request '{request.id}' already, or made it",
            expected=f"{request.approvals} different stewards approve it; one who gives out a token holds it too",
            remedy="Another steward approves it, whose token was given out beside the ledger: deniable token new",
        )


def check_counted(request: Request, number: int) -> None:
    """Refuse whoever wrote entry `number` about a request when somebody else was first."""
    if number not in request.counted:
        raise AccessRefused(
            f"somebody else was first: request '{request.id}' is {request.status}",
            expected="A request is decided once and fulfilled once; the first entry in the ledger counts",
            remedy="Look at it again: deniable requests",
        )


def check_fulfillable(request: Request) -> None:
    """Refuse to release what was not approved, or was released already."""
    if request.status is Status.RELEASED:
        again = request.technique == "synthesize"
        raise AccessRefused(
            f"request '{request.id}' was fulfilled already by release {request.release}",
            expected="A request is fulfilled once"
            + ("; one whose files were deleted is made again in its folder" if again else ""),
            remedy="Name the folder of the first time with --out; for other rows, file a new request"
            if again
            else "Files that were deleted are not made again, as the rows may have changed: file a new request",
        )
    if request.status is not Status.APPROVED:
        raise AccessRefused(f"request '{request.id}' is {request.status}", expected="The steward approves it first")


def _read_request(act: LedgerEntry) -> Request:
    facts = act.details
    asked = (facts["parameters"], facts["cost"], act.time)
    made = Request(facts["id"], act.analyst, act.purpose, facts["technique"], tuple(facts["tables"]), *asked)
    more = {"approvals": facts.get("approvals", 1), "justification": facts.get("justification", "")}
    return replace(made, listed=bool(facts.get("listed")), **more)
