"""Tokens and who they speak for, requests with their cost and risk, and decisions.

Every act is recorded in the ledger, and state is folded from the acts there (`context.LedgerState`).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from deniable.curator.context import Context, check_purposes, digest_terms
from deniable.curator.governance.withdrawals import commit_subject
from deniable.curator.scope import find_analyst, is_expired, refuse_twice
from deniable.errors import AccessRefused, ParameterError, nearest
from deniable.governance import requests, tokens
from deniable.governance.grants import Action, Asker, Grant, Role, refuse_name
from deniable.governance.requests import Request
from deniable.governance.scram import ScramKeys
from deniable.governance.tokens import Token
from deniable.ledger.entry import Act, Posting, digest
from deniable.policy.access import Purpose
from deniable.policy.budget import Budget, budget, exact, refuse_extreme
from deniable.policy.schema import Role as ColumnRole
from deniable.policy.schema import normalize_spelling
from deniable.release.record import Record, SparseRecord

if TYPE_CHECKING:
    from deniable.curator.anonymize.request import Asked
    from deniable.curator.synthesize.run import Order as SynthesisOrder
    from deniable.ledger import Receipt
    from deniable.policy.schema import TableSchema


PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "mask": ("columns", "mode"),
    "anonymize": ("columns", "k", "l", "t", "suppress"),
    "synthesize": ("columns", "epsilon", "delta", "rho"),
}
"""What a request may ask of each technique: less than the policy releases, or stricter than it demands."""
TECHNIQUES = tuple(PARAMETERS)


@dataclass(frozen=True, slots=True, eq=False)
class TableRisk(SparseRecord):
    """How many rows (or people: `of`) of a table its quasi-identifiers single out; without counts where it has none."""

    columns: list[str]
    rows: int | None = None
    alone: int | None = None
    per_thousand: int = 0
    of: str | None = None


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
    approvals: int = 1
    """How many different stewards must approve it."""
    approved_by: list[str] | None = None
    reasons: list[str] | None = None
    """What each of those who approved said, in the order of their names."""
    justification: str = ""
    risk: dict[str, TableRisk] | None = None
    failed: str | None = None
    """Why the release was approved and could not be made; it is there until it is made."""
    folder: str | None = None
    """Where an approved release is being made, or was begun; for the steward."""


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
    paused: str | None = None
    subject: str | None = None
    """The column by which a respondent's token names its person; the value is written nowhere."""


@dataclass(frozen=True, slots=True, eq=False)
class TermsReport(Record):
    """The terms of a purpose, the digest of their wording, and whether the asker acknowledged it."""

    purpose: str
    terms: str
    digest: str
    acknowledged: bool


def price_request(technique: str, parameters: Mapping[str, Any], tables: int = 1) -> dict[str, str]:
    """The price of a release in budget, before it is decided: each table of a synthetic one is charged by itself."""
    from deniable.query.explain import describe_budget

    _check_words(technique, parameters)
    if technique != "synthesize":
        return {"guarantee": "none: it is recorded as non-private, and no budget bounds it"}
    return describe_budget(read_budget(parameters, tables))


def _check_words(technique: str, parameters: Mapping[str, Any]) -> None:
    """Refuse a technique or a parameter that there is not."""
    if technique not in TECHNIQUES:
        expected, remedy = f"One of {', '.join(TECHNIQUES)}", nearest(technique, TECHNIQUES)
        raise ParameterError(f"there is no release by '{technique}'", expected=expected, remedy=remedy)
    known = PARAMETERS[technique]
    for name in parameters:
        if name not in known:
            raise ParameterError(
                f"a request to {technique} has no parameter '{name}'",
                expected=f"Known are {', '.join(known)}",
                remedy=nearest(str(name), known),
            )


def measure_risk(context: Context, tables: tuple[str, ...]) -> dict[str, TableRisk]:
    """How many rows the quasi-identifiers of each table single out as it is now. For the steward's eyes only."""
    return {} if is_expired(context.policy) else {name: _count_singled_out(context, name) for name in tables}


def attack_tables(context: Context, tables: Sequence[str]) -> list[str]:
    """What an intruder could do if tables were given away as they are, in sentences. For the steward's eyes only."""
    from deniable.curator.anonymize.explore import TRIED
    from deniable.curator.attack import Order, attack

    told = []
    for table in (context.policy.table(name) for name in tables):
        known, secret = (
            tuple(column.name for column in table.with_role(role))
            for role in (ColumnRole.QUASI_IDENTIFIER, ColumnRole.SENSITIVE)
        )
        source = str(context.policy.path(table.source))
        unit = table.unit.column if table.unit is not None else None
        order = Order(source, known, sensitive=secret, unit=unit, attacks=TRIED, encoding=table.csv.encoding)
        outcomes = [one for made in attack(order).attacks for one in made["outcomes"]]
        told += [f"{table.name}: {one['sentence']}" for one in outcomes]
    return told or ["No attack applies: no column is declared that others may know."]


def read_budget(parameters: Mapping[str, Any], times: int = 1) -> Budget:
    """The budget that a request states for a table, so many times over."""
    if "epsilon" not in parameters and "rho" not in parameters:
        raise ParameterError("a synthetic release needs a budget", remedy="State epsilon, and delta if wanted")
    epsilon, rho = (
        times * exact(parameters[name], name) if parameters.get(name) is not None else None
        for name in ("epsilon", "rho")
    )
    return refuse_extreme(budget(epsilon, times * exact(parameters.get("delta", 0), "delta"), rho))


def check_request(context: Context, technique: str, tables: Sequence[str], parameters: Mapping[str, Any]) -> None:
    """Refuse what a request may not ask, or what cannot be made, by the policy alone; rows are not read.

    It is asked when a request is filed, approved and fulfilled.
    """
    from deniable.curator.anonymize.request import demands
    from deniable.curator.mask.run import check_mode
    from deniable.curator.synthesize.run import plan_description
    from deniable.dp.accounting import ComposedEvent

    _check_words(technique, parameters)
    columns_by_table(context, technique, tables, parameters)
    if technique == "mask":
        check_mode(context.policy, read_mode(parameters))
    elif technique == "anonymize":
        asked = read_demands(parameters)
        demands(context.policy, asked)
        demands(None, asked)  # a k of 1 alone protects nobody
        for name in tables:
            _refuse_unreachable(context.policy.table(name), asked.k)
            known = context.policy.table(name).names
            context.scope.columns_to_release(name, [column for column in {*asked.l, *asked.t} if column in known])
    else:
        jobs = [plan_description(context, order)[2] for order in synthetic_orders(context, tables, parameters)]
        events = tuple(job.event for job in jobs if job.event is not None)
        context.ledger.refuse_impossible(ComposedEvent(events), *context.path)


def _refuse_unreachable(table: TableSchema, k: int | None) -> None:
    """Refuse a k above the number of rows that may be read of a table."""
    if k is not None and k > table.rows_out:
        raise ParameterError(
            f"k is {k:,}, and at most {table.rows_out:,} rows of '{table.name}' are read",
            expected="A class has k rows, all of this table",
            remedy="Ask for a smaller k, or raise rows_out in the policy",
        )


def columns_by_table(
    context: Context, technique: str, tables: Sequence[str], parameters: Mapping[str, Any]
) -> dict[str, tuple[str, ...] | None]:
    """The columns that are asked for of each table, within those that may leave; None is all of them."""
    asked = parameters.get("columns")
    if asked is None:
        return dict.fromkeys(tables)
    if not isinstance(asked, list | tuple) or not asked or not all(isinstance(name, str) for name in asked):
        raise ParameterError("'columns' is not a list of names", expected='Such as ["sex", "town"]')
    known = {name: context.policy.table(name).names for name in tables}
    for column in asked:
        refuse_unknown_column(column, tuple(dict.fromkeys(name for names in known.values() for name in names)))
    refuse_twice(asked)
    found = {name: tuple(column for column in asked if column in names) for name, names in known.items()}
    allow = context.scope.columns_to_describe if technique == "synthesize" else context.scope.columns_to_release
    for name, columns in found.items():
        if not columns:
            raise ParameterError(f"no column of '{name}' is asked for", remedy="Leave that table out, or name a column")
        allow(name, columns)
    return dict(found)


def refuse_unknown_column(column: str, known: Sequence[str]) -> None:
    """Refuse a column that none of the tables has."""
    if column not in known:
        raise ParameterError(f"there is no column '{column}'", remedy=nearest(column, known))


def read_mode(parameters: Mapping[str, Any]) -> str:
    """How a request wants identifiers masked."""
    return str(parameters.get("mode", "pseudonymize"))


def read_demands(parameters: Mapping[str, Any]) -> Asked:
    """What a request demands of a k-anonymous release, beyond the policy."""
    from deniable.curator.anonymize.request import Asked

    k, suppress = parameters.get("k"), parameters.get("suppress")
    if k is not None and (isinstance(k, bool) or not isinstance(k, int) or k < 1):
        raise ParameterError("'k' is not a whole number above 0", expected='Such as {"k": 10}')
    numbers = {name: parameters.get(name) or {} for name in ("l", "t")}
    if not all(isinstance(each, Mapping) for each in numbers.values()):
        raise ParameterError("'l' and 't' name a number for each column", expected='Such as {"l": {"diagnosis": 3}}')
    least, most = ({str(c): exact(n, f"{name} of {c}") for c, n in each.items()} for name, each in numbers.items())
    return Asked(k, least, most, suppress=None if suppress is None else exact(suppress, "suppress"))


def synthetic_orders(context: Context, tables: Sequence[str], parameters: Mapping[str, Any]) -> list[SynthesisOrder]:
    """What is to be described of each table."""
    from deniable.curator.synthesize.run import Order

    columns = columns_by_table(context, "synthesize", tables, parameters)
    return [Order(name, read_budget(parameters), columns=columns[name]) for name in tables]


def _count_singled_out(context: Context, name: str) -> TableRisk:
    from deniable.assess.utility import count_unique_rows

    table = context.policy.table(name)
    quasi = tuple(column.name for column in table.with_role(ColumnRole.QUASI_IDENTIFIER))
    if table.public or not quasi:
        return TableRisk([])
    unit = table.unit.column if table.unit is not None else None
    found = count_unique_rows(context.scope.attach(name), name, quasi, unit)
    return TableRisk(list(quasi), found.rows, found.alone, found.per_thousand, "people" if unit else None)


TERM = timedelta(days=90)
"""How long a token is good for unless told otherwise."""
LONGEST_DAYS = 3660
"""A token that is good for longer is not looked at again."""


def issue(
    context: Context,
    name: str,
    role: Role = Role.ANALYST,
    purposes: Sequence[str] | None = None,
    days: float | None = None,
    by: str | Grant = "steward",
    subject: tuple[str, str] | None = None,
) -> tuple[str, Grant]:
    """A new token and its grant; the text is shown once and stored nowhere.

    `by` is the grant by which it is given out, or a name where that is done beside the ledger.
    `subject` is the person whom a respondent's token is for: the column that tells people apart, and the value, of
    which only a keyed digest is written down.
    """
    check_purposes(context.policy, tuple(purposes or ()))
    expires = datetime.now(UTC) + _parse_term(days)
    listed = None if purposes is None else tuple(purposes)
    person = None if subject is None else commit_subject(context, *subject)
    _refuse_look_alike(context, name)
    grant = Grant(name, role, context.policy.dataset, listed, expires.replace(microsecond=0), subject=person)
    giver, issuer = (by.name, by.id) if isinstance(by, Grant) else (by, "")
    text, facts = tokens.issue_token(grant, issuer)
    _act(context, "token", giver, facts)
    return text, tokens.grant_of(text, context.state.tokens())


def _refuse_look_alike(context: Context, name: str) -> None:
    """Refuse a name that looks like another one of the policy or of a token; case and spaces make no other name."""
    budgets, own = context.policy.budgets, normalize_spelling(name)
    analysts = budgets.analysts if budgets is not None else ()
    known = [*context.policy.stewards, *(each for one in analysts for each in (one.name, *one.members))]
    known += [token.grant.name for token in context.state.tokens().values()]
    for other in known:
        if requests.is_same_name(name, other) and normalize_spelling(other) != own:
            raise AccessRefused(
                f"'{name}' looks like '{other}', who is known here", expected="Names that nobody takes for others",
                remedy="Use the name as it is known, or another one",
            )  # fmt: skip


def _parse_term(days: float | None) -> timedelta:
    if days is None:
        return TERM
    if not 0 < days <= LONGEST_DAYS:
        raise ParameterError(
            f"a token cannot be good for {days:g} days", expected=f"More than 0, and at most {LONGEST_DAYS:,}"
        )
    return timedelta(days=days)


def revoke(context: Context, identity: str, by: str = "steward") -> Token:
    """End a token; whoever holds it is refused from now on."""
    return _change_token(context, "revoke", identity, by)


def pause(context: Context, identity: str, reason: str = "", by: str = "steward") -> Token:
    """Hold a token up: whoever holds it is refused until it is resumed."""
    return _change_token(context, "pause", identity, by, reason)


def unpause(context: Context, identity: str, reason: str = "", by: str = "steward") -> Token:
    """Let a token count again that was paused."""
    return _change_token(context, "unpause", identity, by, reason)


def _change_token(context: Context, act: str, identity: str, by: str, reason: str = "") -> Token:
    token = tokens.find_token(identity, context.state.tokens())
    _act(context, act, by, {"id": token.grant.id} | ({"reason": reason} if reason else {}))
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


def confirm(context: Context, grant: Grant) -> None:
    """Refuse a grant whose term is over, or whose token was revoked or paused meanwhile."""
    tokens.refuse_stale(grant, context.state.tokens())


def provable(context: Context, name: str) -> list[tuple[ScramKeys, Grant]]:
    """The tokens of a name that can be proved without being sent."""
    return tokens.find_provable(name, context.state.tokens())


def authorize(context: Context, grant: Grant, action: Action, purpose: str = "") -> Asker:
    """The asker of an allowed action; refuses what the grant, the policy or its term does not allow."""
    policy = context.policy
    grant.authorize(action, policy.dataset, purpose, datetime.now(UTC), policy.expires)
    return Asker(grant.name, purpose, grant.role, grant)


def ask(
    context: Context, technique: str, tables: Sequence[str], parameters: Mapping[str, Any] | None = None
) -> Request:
    """File a request for a release; the steward decides, seeing its cost and (`measure_risk`) its risk.

    An equal request that waits for a decision is returned instead of a second one, also where both are filed at one
    moment: equal ones have one name in the ledger until the next decision. Only so many count as may wait.
    The parameter `justification` says what it is needed for; a purpose may demand it.
    """
    context.admit()
    names = tuple(context.policy.table(name).name for name in tables)
    for name in names:
        context.scope.refuse_closed(name)
    (purpose, analyst), asked = context.path, dict(parameters or {})
    if not analyst:
        raise AccessRefused("nobody is named who asks", remedy="Ask with the token of an analyst, or name one")
    if not names or len(set(names)) < len(names):
        raise ParameterError("a request names each of its tables once", remedy="Name one table or several")
    reason, demands = str(asked.pop("justification", "") or "").strip(), _find_purpose(context, purpose)
    if demands is not None and demands.justify and not reason:
        happened = f"a request for purpose '{purpose}' says what it is needed for"
        raise ParameterError(happened, remedy="Say --justification, in words")
    price = price_request(technique, asked, len(names))
    check_request(context, technique, names, asked)
    listed = find_analyst(context.policy, context.asker) is not None
    request = replace(
        Request(secrets.token_hex(6), analyst, purpose, technique, names, asked, price, listed=listed),
        approvals=demands.approvals if demands is not None else 1,
        justification=reason,
    )
    own = [each for each in context.state.requests().values() if each.analyst == analyst]
    waiting = [each for each in own if each.is_pending]
    if equal := [each for each in waiting if each.content == request.content]:
        return equal[0]
    identity = request.id
    if len(waiting) < requests.MOST_WAITING:
        decided = max((each.counted[-1] for each in own if each.counted), default=0)
        name, facts = f"request {digest([request.content, decided])}", request.facts()
        posting = Posting(Act.REQUEST, analyst=analyst, purpose=purpose, release=request.id, request=name)
        identity = context.ledger.record(replace(posting, details=facts | {"most": requests.MOST_WAITING})).release
    if (filed := context.state.requests().get(identity)) is None:
        happened = f"{requests.MOST_WAITING} requests of yours wait for a decision"
        raise ParameterError(happened, remedy="Wait until the steward has decided on some")
    return filed


def decide(
    context: Context, identity: str, approved: bool, reason: str, by: str | Grant = "steward", *, server: bool = False
) -> Request:
    """Approve or decline a request, with a reason; `by` is a grant, or a name beside the ledger.

    What is approved at a `server` is made by it: that is written down, so that it is made after a crash too.
    """
    request = requests.find_request(identity, context.state.requests())
    known = context.state.tokens()
    name, person = (by.name, tokens.find_person(by, known)) if isinstance(by, Grant) else (by, by)
    requests.check_decidable(request, reason, person, approved=approved)
    if approved:
        _refuse_group(context, name, person)
    _refuse_stranger(context, request, person, by, approved=approved)
    refuse_name(name, Role.STEWARD)
    if approved:
        _refuse_fellow(context, request, person)
        _refuse_outdated(context, request)
        asker = context.speak_for(Asker(request.analyst, request.purpose, Role.ANALYST))
        asker.admit()
        check_request(asker, request.technique, request.tables, request.parameters)
    details: dict[str, Any] = {"id": identity, "reason": reason, "person": person, "policy": context.policy.hash}
    details |= {"server": True} if server and approved else {}
    details |= {} if request.is_pending else {"status": str(request.status)}
    act = "approve" if approved else "decline"
    return _settle(context, identity, _act(context, act, name, details, request.purpose))


def _refuse_group(context: Context, *names: str) -> None:
    """Refuse a group as one who approves: it has the hands of its members, and one of them may have asked."""
    listed = context.policy.budgets.analysts if context.policy.budgets is not None else ()
    for group in (each for each in listed if each.members):
        if any(requests.is_same_name(name, group.name) for name in names):
            raise AccessRefused(
                f"'{group.name}' is a group, and a request is approved by a person",
                expected="The name of the steward who decides",
                remedy="Say --by with your own name",
            )


def _refuse_stranger(context: Context, request: Request, person: str, by: str | Grant, *, approved: bool) -> None:
    """Refuse one who decides and is no steward that the policy lists, or, where it lists none, that holds a token.

    A role is no name: where it stands for the one steward of a policy that lists none, it decides as that one only.
    """
    listed, known = context.policy.stewards, list_stewards(context)
    unnamed = not listed and not (approved and request.approvals > 1)
    if (
        (isinstance(by, Grant) and not listed)
        or (unnamed and person == Role.STEWARD)
        or requests.is_listed(person, known)
    ):
        return
    raise AccessRefused(
        f"'{person}' is not the name of a steward whom the policy knows",
        expected=f"One of {', '.join(known)}" if known else "A person, not a role; and nobody is known by name yet",
        remedy="Say --by with one of these names" if known else "List the people in the policy: stewards: [NAME, NAME]",
    )


def list_stewards(context: Context) -> tuple[str, ...]:
    """The people who may decide, by name: as the policy lists them, else those behind the stewards' tokens."""
    if context.policy.stewards:
        return context.policy.stewards
    given = context.state.tokens()
    holders = [each for each in given.values() if each.grant.role is Role.STEWARD and not (each.revoked or each.paused)]
    return tuple(sorted({tokens.find_person(each.grant, given) for each in holders} - {str(Role.STEWARD)}))


def _refuse_fellow(context: Context, request: Request, person: str) -> None:
    """Refuse, of several who must approve, a member of the group that asks: they share what it may spend."""
    group = context.policy.budgets.find_analyst(request.analyst) if context.policy.budgets is not None else None
    members = group.members if group is not None and request.approvals > 1 else ()
    if any(requests.is_same_name(person, each) for each in members):
        raise AccessRefused(
            f"'{person}' is a member of the group for which request '{request.id}' was made",
            expected=f"{request.approvals} different stewards approve it, and none of those who asked",
            remedy="Let another steward approve it",
        )


def find_request(context: Context, identity: str) -> Request:
    """The request of that id."""
    return requests.find_request(identity, context.state.requests())


def find_approved(context: Context, identity: str, *, again: bool = False) -> Request:
    """An approved request that is still to be fulfilled; or, `again`, one that was."""
    request = requests.find_request(identity, context.state.requests())
    if not again:
        requests.check_fulfillable(request)
    _refuse_outdated(context, request)
    return request


def _refuse_outdated(context: Context, request: Request) -> None:
    """Refuse to approve or to make what the policy as it is now does not allow."""
    demands = _find_purpose(context, request.purpose)
    if demands is not None and request.approvals < demands.approvals:
        raise AccessRefused(
            f"request '{request.id}' was filed for {request.approvals} to approve it, and its purpose demands more now",
            expected=f"{demands.approvals} different stewards approve it",
            remedy="Decline it, and let it be filed anew",
        )
    asker = Asker(request.analyst, request.purpose, Role.ANALYST)
    if request.listed and find_analyst(context.policy, asker) is None:
        raise AccessRefused(
            f"the policy no longer lists analyst '{request.analyst}', who made request '{request.id}'",
            expected="An analyst whom the policy lists, as when the request was made",
            remedy="List the analyst again, or decline; without limits of their own the whole table would leave",
        )
    if request.policy not in ("", context.policy.hash):
        raise AccessRefused(
            f"the policy was changed after request '{request.id}' was approved",
            expected="The policy under which it was approved",
            remedy="Put that policy back, and start its server again; or decline the request, to be filed anew",
        )


def mark_fulfilled(
    context: Context, identity: str, *releases: str, files: Sequence[str] = (), by: str = "steward"
) -> Request:
    """Note that an approved request was fulfilled, by one release or by one of each table, and by which files."""
    request = find_approved(context, identity)
    details = {"id": identity, "release": " ".join(releases), "files": list(files)}
    return _settle(context, identity, _act(context, "fulfill", by, details, request.purpose))


def _find_purpose(context: Context, name: str) -> Purpose | None:
    return context.policy.budgets.find_purpose(name) if context.policy.budgets is not None else None


def show_terms(context: Context) -> TermsReport:
    """The terms of the asker's purpose, and whether the asker acknowledged them in this wording."""
    purpose, analyst = context.path
    demands = _find_purpose(context, purpose)
    terms = demands.terms if demands is not None else ""
    wording = digest_terms(terms)
    return TermsReport(purpose, terms, wording, not terms or context.state.has_acknowledged(analyst, purpose, wording))


def acknowledge(context: Context, wording: str) -> TermsReport:
    """Note that the asker acknowledges the terms of a purpose, in the wording of this digest; once is enough."""
    shown = show_terms(context)
    if not shown.terms:
        raise ParameterError(f"purpose '{shown.purpose}' has no terms", remedy="Ask right away")
    if wording != shown.digest:
        raise ParameterError("these are not the terms as they are now", remedy="Read them again: deniable terms")
    if not shown.acknowledged:
        _act(context, "acknowledge", context.path[1], {"terms": wording}, shown.purpose)
    return show_terms(context)


def _settle(context: Context, identity: str, written: Receipt) -> Request:
    """The request after what was written about it, if that is what counts."""
    request = requests.find_request(identity, context.state.requests())
    requests.check_counted(request, written.number)
    return request


def _act(context: Context, act: str, by: str, details: Mapping[str, Any], purpose: str = "") -> Receipt:
    return context.ledger.record(Posting(Act(act), analyst=by, purpose=purpose, details=details))
