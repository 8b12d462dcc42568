"""Reports: the public register, the auditor's trail, one person's report, the ledger's proof, a file's statement."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.context import Context
from deniable.curator.governance import withdrawals
from deniable.curator.governance.requests import RequestReport, report_request
from deniable.release.record import Record, SparseRecord

if TYPE_CHECKING:
    from deniable.ledger import Balance, Entry, Ledger
    from deniable.release.release import Statement

Amounts = dict[str, str]
"""A budget in decimal figures: epsilon or rho, and delta."""


@dataclass(frozen=True, slots=True, eq=False)
class FileProof(Record):
    """A released file that is what was written, with its digest and that of its statement."""

    file: str
    unchanged: bool
    sha256: str
    statement_sha256: str


@dataclass(frozen=True, slots=True, eq=False)
class BudgetStanding(Record):
    """What is spent and left of a dataset's budget, and how many releases there were of each kind."""

    limit: Amounts | None
    spent: Amounts | None
    remaining: Amounts | None
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


@dataclass(frozen=True, slots=True, eq=False)
class Register(Record):
    """The public register: every release, the standing of the budget, and the head of the ledger's chain."""

    dataset: str
    head: str | None
    standing: BudgetStanding
    releases: list[RegisterEntry]


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
class ChainProof(Record):
    """A ledger whose chain holds: how many entries, its head, and when that was written."""

    entries: int
    head: str
    time: str | None


@dataclass(frozen=True, slots=True, eq=False)
class SubjectReport(Record):
    """What was done with the rows of one person: tables, purposes and releases, and since when no more."""

    tables: list[str]
    withdrawn: str | None
    purposes: list[str]
    releases: list[RegisterEntry]


@dataclass(frozen=True, slots=True, eq=False)
class NodeBalance(Record):
    """What one node of the budget tree may spend, has spent, and has left."""

    node: str
    period: str
    limit: Amounts | None
    spent: Amounts | None
    remaining: Amounts | None


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


def verify_file(file: Path) -> FileProof:
    """Check a released file and its statement; refuse, saying which of them changed."""
    from deniable.release import verify as verified

    statement = verified(file)
    written = statement.body["file"]
    return FileProof(written["name"], True, written["sha256"], statement.sha256)


def show_statement(file: Path) -> Statement:
    """The statement of a released file, after checking it."""
    from deniable.release import verify as verified

    return verified(file)


RELEASES = ("charge", "release")
LOCAL = "local_epsilon"
"""The detail of a release whose answers were randomized one by one: no budget of the curator's bounds it."""


def register(ledger: Ledger) -> Register:
    """The public register with the head of the ledger's chain, so that nobody needs to take our word.

    Every release stands there with its technique, epsilon, delta, unit and date: no names, no questions.
    """
    head = ledger.head()
    listed = [_register_entry(entry) for entry in ledger.entries(acts=RELEASES)]
    return Register(ledger.dataset, head.hash if head else None, summarize_budget(ledger), listed)


def trail(ledger: Ledger, after: int = 0) -> list[TrailEntry]:
    """Everything that was done, for the auditor: who, when, for what, with which event."""
    return [_entry(entry) for entry in ledger.entries(after)]


def summarize_budget(ledger: Ledger) -> BudgetStanding:
    """What is spent and left of the dataset's budget, with the releases that no budget bounds beside it."""
    balance = _balance(ledger.balance()[0])
    counts = {"charged": 0, "local": 0, "without_guarantee": 0}
    for entry in ledger.entries(acts=RELEASES):
        counts["charged" if entry.private else "local" if LOCAL in entry.details else "without_guarantee"] += 1
    return BudgetStanding(balance.limit, balance.spent, balance.remaining, **counts)


def verify_ledger(ledger: Ledger, head: str | None = None, number: int | None = None) -> ChainProof:
    """Recompute the chain; refuse if anything was changed, or cut off before the head of a receipt."""
    from deniable.ledger.verify import verify as verified

    found = verified(ledger, head, number)
    return ChainProof(found.entries, found.head, found.time.isoformat() if found.time else None)


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
    return SubjectReport(found, since, purposes, releases)


def _register_entry(entry: Entry) -> RegisterEntry:
    from deniable.ledger.export import price_of

    price = price_of(entry)
    epsilon, delta = _figure(price.epsilon), _figure(price.delta)
    guarantee = "differential privacy" if entry.private else "none"
    if LOCAL in entry.details:
        epsilon, delta = _figure(Fraction(entry.details[LOCAL])), 0.0
        guarantee = "local differential privacy"
    day, tables = entry.time.date().isoformat(), list(entry.tables)
    return RegisterEntry(entry.release, day, entry.technique, tables, guarantee, epsilon, delta, entry.unit)


def _entry(entry: Entry) -> TrailEntry:
    plain = entry.as_dict()
    facts = {name: value for name, value in plain["details"].items() if name not in ("hash", "scram")}
    shown = {name: plain[name] for name in plain if name not in ("question", "previous")}
    return TrailEntry(**shown | {"details": facts})


def _figure(amount: Any) -> float | None:
    return None if amount is None else float(f"{float(amount):.6g}")


def balance(context: Context) -> list[NodeBalance]:
    """What is spent and left, from the dataset down to the one who asks, as plain values."""
    return [_balance(each) for each in context.balance()]


def _balance(each: Balance) -> NodeBalance:
    from deniable.query.explain import describe_budget

    limit, spent, remaining = (
        None if amount is None else describe_budget(amount) for amount in (each.limit, each.spent, each.remaining)
    )
    return NodeBalance(each.node, each.period, limit, spent, remaining)


def budgets(context: Context) -> BudgetReport:
    """The budget tree as the steward sees it: the dataset, and each analyst under each granted purpose."""
    from deniable.governance.grants import Asker

    tree = context.policy.budgets
    paths = [(analyst.name, purpose) for analyst in (tree.analysts if tree else ()) for purpose in analyst.purposes]
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


def requests(context: Context, analyst: str | None = None) -> list[RequestReport]:
    """All requests for releases, or those of one analyst, the newest first."""
    found = [each for each in context.state.requests().values() if analyst is None or each.analyst == analyst]
    return [report_request(each) for each in found[::-1]]
