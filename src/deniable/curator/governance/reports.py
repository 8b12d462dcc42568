"""Reports: the public register, the auditor's trail, one person's report, the ledger's proof, a file's statement."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.context import Context
from deniable.curator.governance import withdrawals
from deniable.curator.governance.requests import RequestReport, measure_risk, report_request
from deniable.errors import IntegrityError
from deniable.governance.requests import Status
from deniable.release.record import Record, SparseRecord

if TYPE_CHECKING:
    from deniable.governance.requests import Request
    from deniable.ledger import Balance, Entry, Ledger
    from deniable.policy.document import Policy
    from deniable.release.release import Statement

Amounts = dict[str, str]
"""A budget in decimal figures: epsilon or rho, and delta."""


@dataclass(frozen=True, slots=True, eq=False)
class FileProof(Record):
    """A released file that is what its statement names: their digests, who signed, and what that proves."""

    file: str
    unchanged: bool
    sha256: str
    statement_sha256: str
    signed_by: str | None
    known_key: bool
    in_ledger: bool | None
    proves: list[str]


@dataclass(frozen=True, slots=True, eq=False)
class BudgetStanding(Record):
    """What is spent and left of a dataset's budget, and how many releases there were of each kind."""

    limit: Amounts | None
    spent: Amounts | None
    remaining: Amounts | None
    left: str | None
    """What is left as people say it, as it is enforced."""
    charged: int
    local: int
    without_guarantee: int


@dataclass(frozen=True, slots=True, eq=False)
class RegisterEntry(SparseRecord):
    """One release in the public register; its purpose is for the person whom it concerns."""

    release: str
    date: str
    technique: str
    tables: list[str]
    guarantee: str
    epsilon: float | None
    delta: float | None
    unit: str
    purpose: str | None = None
    files: list[str] | None = None
    """The digests of the files that left."""


@dataclass(frozen=True, slots=True, eq=False)
class Register(Record):
    """The public register: every release, the standing of the budget, and the head of the ledger's chain."""

    dataset: str
    head: str | None
    standing: BudgetStanding
    releases: list[RegisterEntry]
    key: str | None
    """The public key that the curator's statements are signed with."""


@dataclass(frozen=True, slots=True, eq=False)
class TrailEntry(Record):
    """One entry of the ledger as the auditor sees it: without its canonical question and the hashes of tokens."""

    sequence: int
    time: str
    dataset: str
    act: str
    analyst: str
    purpose: str
    tables: list[str]
    technique: str
    event: dict[str, Any]
    unit: str
    release: str
    request: str
    policy: str
    details: dict[str, Any]
    hash: str


@dataclass(frozen=True, slots=True, eq=False)
class ChainProof(SparseRecord):
    """A ledger whose chain holds: how many entries, its head, and when that was written.

    With how many heads that were kept elsewhere it was compared, and whether their signatures were checked.
    """

    entries: int
    head: str
    time: str | None
    heads_compared: int | None = None
    heads_lost: int | None = None
    """How many of those heads are of entries that the ledger names as lost."""
    signatures_checked: bool | None = None
    seals_checked: bool = True
    """Whether the answer store, which holds the key of the seals, is beside it; a copy may be without."""


@dataclass(frozen=True, slots=True, eq=False)
class SubjectReport(SparseRecord):
    """What was done with the rows of one person: tables, purposes and releases, and since when no more.

    `words` say the same in sentences, with the person's rights; `proof` is the entry of the withdrawal in the ledger.
    """

    tables: list[str]
    withdrawn: str | None
    purposes: list[str]
    releases: list[RegisterEntry]
    words: list[str]
    proof: ChainPlace | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ChainPlace(Record):
    """An entry of the ledger: its number, its hash, by which it can be shown that it stands there, and its time."""

    number: int
    hash: str
    time: str


@dataclass(frozen=True, slots=True, eq=False)
class NodeBalance(Record):
    """What one node of the budget tree may spend, has spent, and has left.

    Where totals are kept in rho, `remaining` has the `epsilon` of a pure question and the `rho` and `delta` of others.
    """

    node: str
    period: str
    limit: Amounts | None
    spent: Amounts | None
    remaining: Amounts | None
    left: str | None
    """What is left as people say it, as it is enforced."""


@dataclass(frozen=True, slots=True, eq=False)
class PlainBalance(Record):
    """What is left of one node of the budget tree, in the unit in which that is enforced.

    An account may be kept in rho under a limit in epsilon: `limit` is then the rho of that limit, if there is one.
    """

    node: str
    period: str
    unit: str
    limit: float | None
    left: float | None
    beside: str = ""
    """What else is enforced and left: a delta, or the rho of questions that are not pure."""
    stated: str = ""
    """The limit as the policy states it, where that is in another unit."""
    closed: str = ""
    """Why nothing is left although not all was spent."""


@dataclass(frozen=True, slots=True, eq=False)
class AnalystBalance(Record):
    """The way from the dataset down to an analyst under one purpose."""

    analyst: str
    purpose: str
    balance: list[NodeBalance]


@dataclass(frozen=True, slots=True, eq=False)
class BudgetReport(Record):
    """The budget tree as the steward sees it."""

    standing: BudgetStanding
    dataset: list[NodeBalance]
    analysts: list[AnalystBalance]


@dataclass(frozen=True, slots=True, eq=False)
class OwnRelease(Record):
    """A release as the one who asked for it sees it."""

    release: str
    time: str
    technique: str
    tables: list[str]
    purpose: str
    request: str
    asked: Any


@dataclass(frozen=True, slots=True, eq=False)
class OwnReceipt(OwnRelease):
    """A release with its place in the ledger: the number of its entry and the head of the chain there."""

    number: int
    head: str
    event: dict[str, Any]


def verify_file(file: Path, key: str = "", ledger: Ledger | None = None) -> FileProof:
    """Check a released file and its statement, against the curator's key and ledger where they are given.

    Refuses what was changed, what that key did not sign, and what does not stand in that ledger.
    """
    from deniable.release import verify as verified

    known = key or (find_key(ledger) or "" if ledger is not None else "")
    statement = verified(file, key=known)
    written = statement.body["file"]
    if ledger is not None and not _has_left(ledger, written["sha256"], statement.sha256):
        raise IntegrityError(
            f"the file '{written['name']}' is not among those that left, as the ledger has them",
            remedy="Ask the curator for the release; do not rely on what this statement claims",
            changed="ledger",
        )
    found = None if ledger is None else True
    proofs = _say_proofs(statement.key, bool(known), found)
    return FileProof(
        written["name"], True, written["sha256"], statement.sha256, statement.key or None, bool(known), found, proofs
    )


def _has_left(ledger: Ledger, file: str, statement: str) -> bool:
    left = ((entry.details.get("file"), entry.details.get("statement")) for entry in ledger.entries(acts=PUBLISHED))
    return (file, statement) in left


def _say_proofs(signed_by: str, known: bool, found: bool | None) -> list[str]:
    """What a check proves, and what it does not."""
    proofs = ["The file is the one that its statement names."]
    if not signed_by:
        proofs.append("The statement is not signed: whoever can write both files could have made this pair.")
    elif known:
        proofs.append("The statement is signed with the curator's key, so the curator made it.")
    else:
        proofs.append("The statement is signed, and nothing here shows whose key it is: compare it with the register.")
    if found:
        proofs.append("The ledger names the digests of both among the files that left.")
    return [*proofs, "None of this shows that the claim is true of the data that the file was made from."]


def find_charge(ledger: Ledger, analyst: str, request: str) -> str:
    """What was charged under a request id of an asker, in words; empty where nothing was."""
    from deniable.ledger.export import list_charges

    return "; ".join(list_charges(ledger, analyst, (request,)))


def show_statement(file: Path) -> Statement:
    """The statement of a released file, after checking it."""
    from deniable.release import verify as verified

    return verified(file)


RELEASES = ("charge", "release")
PUBLISHED = ("publish",)
LOCAL = "local_epsilon"
"""The detail of a release whose answers were randomized one by one: no budget of the curator's bounds it."""


def register(ledger: Ledger) -> Register:
    """The public register with the head of the ledger's chain, so that nobody needs to take our word.

    Every release stands there with its technique, epsilon, delta, unit and date: no names, no questions.
    """
    head, files = ledger.head(), _collect_files(ledger)
    listed = [replace(_register_entry(e), files=files.get(e.release)) for e in ledger.entries(acts=RELEASES)]
    return Register(ledger.dataset, head.hash if head else None, summarize_budget(ledger), listed, find_key(ledger))


def find_key(ledger: Ledger) -> str | None:
    """The public key that the files of a ledger were signed with; None where none was."""
    return next((str(entry.details["key"]) for entry in ledger.entries(acts=PUBLISHED) if entry.details["key"]), None)


def _collect_files(ledger: Ledger) -> dict[str, list[str]]:
    """The digests of the files of each release."""
    found: dict[str, list[str]] = {}
    for entry in ledger.entries(acts=PUBLISHED):
        if entry.details["file"]:  # none where periods of a stream were closed
            found.setdefault(entry.release, []).append(str(entry.details["file"]))
    return found


def trail(ledger: Ledger, after: int = 0) -> list[TrailEntry]:
    """Everything that was done, for the auditor: who, when, for what, with which event."""
    return [_entry(entry) for entry in ledger.entries(after)]


def summarize_budget(ledger: Ledger) -> BudgetStanding:
    """What is spent and left of the dataset's budget, with the releases that no budget bounds beside it."""
    balance = _balance(ledger.balance()[0])
    counts = {"charged": 0, "local": 0, "without_guarantee": 0}
    for entry in ledger.entries(acts=RELEASES):
        counts["charged" if entry.private else "local" if LOCAL in entry.details else "without_guarantee"] += 1
    return BudgetStanding(balance.limit, balance.spent, balance.remaining, balance.left, **counts)


def verify_ledger(ledger: Ledger, head: str | None = None, number: int | None = None) -> ChainProof:
    """Recompute the chain; refuse if anything was changed, or cut off before the head of a receipt."""
    from deniable.ledger.ledger import verify as verified

    found = verified(ledger, head, number)
    proof = ChainProof(found.entries, found.head, found.time.isoformat() if found.time else None)
    head_entry = ledger.head()
    return replace(proof, seals_checked=ledger.key is not None or head_entry is None or not head_entry.seal)


def subject_report(context: Context, column: str, value: str) -> SubjectReport:
    """The releases and purposes that one person's rows may have been part of, and whether they still are.

    It goes to that person or the steward only. A release counts if it read a table that has rows of the person now,
    or had them until the withdrawal.
    """
    found = withdrawals.tables_with(context, column, value)
    withdrawn = withdrawals.withdrawal_time(context, column, value)
    releases = [
        replace(_register_entry(entry), purpose=entry.purpose)
        for entry in context.ledger.entries(acts=RELEASES)
        if set(entry.tables) & set(found) and (withdrawn is None or entry.time <= withdrawn)
    ]
    purposes = sorted({release.purpose for release in releases if release.purpose})
    since = withdrawn.isoformat(timespec="seconds") if withdrawn else None
    noted = withdrawals.find_withdrawal(context, column, value)
    proof = None if noted is None else ChainPlace(noted.sequence, noted.hash, noted.time.isoformat(timespec="seconds"))
    words = [*_say_where(found), *map(_say_release, releases), *_say_sum(releases), *_say_rights(found, proof)]
    return SubjectReport(found, since, purposes, releases, words, proof)


def _say_where(tables: list[str]) -> list[str]:
    if tables:
        return [f"Rows of this person are in: {', '.join(tables)}."]
    return ["No source of this dataset holds rows of this person."]


def _say_release(release: RegisterEntry) -> str:
    what = f"On {release.date}, for {release.purpose or 'the steward'}, {', '.join(release.tables)} was used"
    if release.guarantee == "none":
        return (
            f"{what} for a release of rows ({release.technique}). Rows of the person, changed so that they should "
            "not name anybody, may be in it; no number bounds what they tell."
        )
    if release.epsilon is None:
        return f"{what} for a {release.technique} with noise, which hides whether the person was there."
    return (
        f"{what} for a {release.technique}, with noise that hides whether the person was there: whoever sees it can "
        f"raise the odds that the person is in the data by a factor of at most {_say_odds(release.epsilon)}."
    )


def _say_odds(epsilon: float) -> str:
    """A factor that is not passed: three figures, rounded up."""
    if epsilon >= 20:
        return "very much"
    factor = math.exp(epsilon)
    places = 2 - math.floor(math.log10(factor))
    return f"{math.ceil(factor * 10**places) / 10**places:,.{max(places, 0)}f}"


def _say_sum(releases: list[RegisterEntry]) -> list[str]:
    amounts = [release.epsilon for release in releases if release.epsilon is not None]
    if len(amounts) < 2:
        return []
    return [f"All {len(amounts)} of these with noise together: by a factor of at most {_say_odds(sum(amounts))}."]


def _say_rights(tables: list[str], proof: ChainPlace | None) -> list[str]:
    """What the person may ask for, and what shows that it was done."""
    told = ["To be informed: this report is what the record holds, and can be had again at any time."]
    if proof is None:
        return [
            *told,
            "To restrict: whoever withdraws is left out of everything made from then on (deniable withdraw).",
        ]
    shown = f"entry {proof.number} of the ledger, with hash {proof.hash}"
    told.append(f"Restricted since {proof.time}: left out of everything made from then on; the proof is {shown}.")
    told.append("What was released before stays released, as listed above.")
    if tables:
        told.append(f"To be erased: the steward deletes the rows from the sources of {', '.join(tables)}.")
    else:
        told.append(f"Erased: no source holds rows of the person any more; with {shown} this report is the proof.")
    return told


def _register_entry(entry: Entry) -> RegisterEntry:
    from deniable.ledger.export import price_of

    price = price_of(entry)
    epsilon, delta = (None if amount is None else _figure(amount) for amount in (price.epsilon, price.delta))
    guarantee = "differential privacy" if entry.private else "none"
    if LOCAL in entry.details:
        epsilon, delta = _figure(Fraction(entry.details[LOCAL])), 0.0
        guarantee = "local differential privacy"
    day, tables = entry.time.date().isoformat(), list(entry.tables)
    return RegisterEntry(entry.release, day, entry.technique, tables, guarantee, epsilon, delta, entry.unit)


def _entry(entry: Entry) -> TrailEntry:
    plain = entry.as_dict()
    facts = {name: value for name, value in plain["details"].items() if name not in ("hash", "scram")}
    shown = {name: plain[name] for name in plain if name not in ("question", "previous", "seal")}
    return TrailEntry(**shown | {"details": facts})


def _figure(amount: Any) -> float | None:
    return None if amount is None else float(f"{float(amount):.6g}")


def balance(context: Context) -> list[NodeBalance]:
    """What is spent and left, from the dataset down to the one who asks, as plain values."""
    return [_balance(each) for each in context.balance()]


def _balance(each: Balance) -> NodeBalance:
    from deniable.ledger.budget_tree import name_least, say_least
    from deniable.query.explain import describe_budget

    limit, spent = (None if one is None else describe_budget(one) for one in (each.limit, each.tell_spent()))
    told = name_least((each,), each.remaining), say_least((each,), each.remaining) or None
    return NodeBalance(each.node, each.period, limit, spent, *told)


def state_plainly(balances: Iterable[Balance], units: Sequence[str] = ()) -> list[PlainBalance]:
    """What is left at each node, in the unit in which it is told, or in these `units` where both are enforced."""
    return [_state_plainly(each, units[place] if units else "") for place, each in enumerate(balances)]


def _state_plainly(each: Balance, unit: str) -> PlainBalance:
    from deniable.policy.budget import ZCDP, find_left, round_amount

    if each.limit is None or each.remaining is None:
        return PlainBalance(each.node, each.period, "epsilon", None, None)
    unit = unit or ("epsilon" if each.kinds is not None and each.kinds.all_pure else "")  # as `say_least` tells it
    if unit == "rho" and each.kinds is not None:
        limit, left = each.kinds.rho_limit, each.kinds.rho
    elif unit == "epsilon" and each.kinds is not None and not isinstance(each.limit, ZCDP):
        limit, left = each.limit.epsilon, each.kinds.epsilon
    else:
        unit, limit, left = find_left(each.limit, each.spent, each.remaining)
    stated = "" if unit == "epsilon" or isinstance(each.limit, ZCDP) else f"epsilon {round_amount(each.limit.epsilon)}"
    whole, rest = float(limit), float(left)
    return PlainBalance(each.node, each.period, unit, whole, rest, _state_beside(each, unit), stated, each.closed)


def _state_beside(each: Balance, unit: str) -> str:
    from deniable.policy.budget import round_amount, say_part

    if each.closed:
        return ""
    if each.kinds is not None and unit == "epsilon":
        return f"pure questions; {each.kinds.say_others()} for others"
    if each.kinds is not None:
        pure = f"; or a pure question of epsilon {round_amount(each.kinds.epsilon)}" if each.kinds.epsilon else ""
        own = say_part("delta", each.kinds.delta, each.kinds.delta_limit) if each.kinds.delta_limit else "no delta"
        return own + pure
    if each.limit is None or each.remaining is None or not each.limit.delta:
        return ""
    return say_part("delta", each.remaining.delta, each.limit.delta)


def budgets(context: Context) -> BudgetReport:
    """The budget tree as the steward sees it: the dataset, and each analyst under each granted purpose."""
    from deniable.governance.grants import Asker

    tree = context.policy.budgets
    paths = [
        (name, purpose)
        for analyst in (tree.analysts if tree else ())
        for name in analyst.members or (analyst.name,)
        for purpose in analyst.purposes
    ]
    analysts = [AnalystBalance(*path, balance(context.speak_for(Asker(*path)))) for path in paths]
    return BudgetReport(summarize_budget(context.ledger), balance(context), analysts)


def releases(context: Context, analyst: str) -> list[OwnRelease]:
    """An asker's own releases, the newest first."""
    found = [OwnRelease(**_release(entry)) for entry in trail(context.ledger) if _is_release(entry, analyst)]
    return found[::-1]


def _is_release(entry: TrailEntry, analyst: str) -> bool:
    return entry.act in RELEASES and entry.analyst == analyst


def _release(entry: TrailEntry) -> dict[str, Any]:
    names = ("release", "time", "technique", "tables", "purpose", "request")
    return {name: entry[name] for name in names} | {"asked": entry.details.get("asked")}


def receipt(context: Context, analyst: str, release: str) -> OwnReceipt | None:
    """The receipt of an asker's own release, or None."""
    for entry in trail(context.ledger):
        if _is_release(entry, analyst) and entry.release == release:
            return OwnReceipt(**_release(entry), number=entry.sequence, head=entry.hash, event=entry.event)
    return None


FOLDER = "fulfilled into"
"""Where it is noted into which folder a request is made, before anything is measured: the last one counts."""
FAILED = "not fulfilled"
"""Where it is noted why a server could not make an approved release, try by try."""


@dataclass(frozen=True, slots=True)
class FailedTry:
    """Why an approved release was not made: in words for the steward, and in those that who asked may read."""

    reason: str
    told: str


def note_failure(context: Context, identity: str, failed: FailedTry) -> None:
    """Keep why an approved release could not be made; it is shown until it is made."""
    name = f"{identity} {time.time_ns():020d}"
    context.store.keep(FAILED, name, name, json.dumps([failed.reason, failed.told]).encode())


def find_failures(context: Context) -> dict[str, FailedTry]:
    """Why releases that are approved are not made yet: the last failure of each, by request."""
    approved = {each.id for each in context.state.requests().values() if each.status is Status.APPROVED}
    if not approved:
        return {}
    noted = sorted(context.store.list_all(FAILED).items())
    last = {name.rpartition(" ")[0]: FailedTry(*json.loads(value)) for name, value in noted}
    return {identity: failed for identity, failed in last.items() if identity in approved}


def list_folders(context: Context, *asked: Request) -> dict[str, str]:
    """The folder in which each request is made or was begun; of those that are asked for, or of all approved ones."""
    known = asked or [each for each in context.state.requests().values() if each.status is Status.APPROVED]
    tries = {f"fulfill {each.id}": each.id for each in known}
    noted = sorted(context.store.list_all(FOLDER).items()) if tries else []
    return {tries[key]: value.decode() for name, value in noted if (key := " ".join(name.split()[:2])) in tries}


def requests(context: Context, analyst: str | None = None, *, risk: bool = False) -> list[RequestReport]:
    """All requests for releases, or those of one analyst, the newest first, with why one was not made: see `FailedTry`.

    With `risk`, which is for the steward alone, those that wait have theirs: measured now, and not stored.
    """
    found = [each for each in context.state.requests().values() if analyst is None or each.analyst == analyst]
    failures = {identity: failed.reason if analyst is None else failed.told
                for identity, failed in find_failures(context).items()}  # fmt: skip
    folders = list_folders(context) if analyst is None else {}
    told = [(report_request(each), failures.get(each.id), folders.get(each.id)) for each in found[::-1]]
    shown = [replace(each, failed=failed, folder=folder) for each, failed, folder in told]
    if not risk:
        return shown
    waiting = {tuple(each.tables) for each in shown if each.decided is None}
    risks = {tables: measure_risk(context, tables) for tables in waiting}
    return [replace(each, risk=risks[tuple(each.tables)]) if each.decided is None else each for each in shown]


@contextmanager
def trust_ledger(known: Policy, at: str) -> Iterator[Ledger]:
    """A ledger to be read only; refused where it is gone or lost entries, or where the store beside it was changed."""
    from deniable.governance.withdrawals import COLLECTION
    from deniable.ledger import open_ledger
    from deniable.ledger.ledger import refuse_changed_store
    from deniable.ledger.witness import Witness, name_place

    place, witness = name_place(at, known.dataset), Witness()
    if not at.startswith("postgres") and not Path(at).exists() and not witness.is_blank:
        witness.refuse_missing(place)
    with closing(open_ledger(at, known, writable=False)) as opened:
        if not witness.is_blank:
            witness.refuse_older(place, opened)
        copied = witness.is_blank or not witness.knows_store(place)
        refuse_changed_store(at, opened, COLLECTION, copied=copied)
        yield opened
