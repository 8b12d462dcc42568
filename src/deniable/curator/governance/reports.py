"""Reports: the public register, the auditor's trail, one person's report, the ledger's proof, a file's statement."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deniable.curator.curator import Curator
    from deniable.ledger import Entry, Ledger


def verify_file(file: Path) -> dict[str, Any]:
    """Check a released file and its statement; refuse, saying which of them changed."""
    from deniable.release import verify as verified

    statement = verified(file)
    return {
        "file": statement.body["file"]["name"],
        "unchanged": True,
        "sha256": statement.body["file"]["sha256"],
        "statement_sha256": statement.sha256,
    }


def show_statement(file: Path) -> dict[str, Any]:
    """The statement of a released file, after checking it."""
    from deniable.release import verify as verified

    statement = verified(file)
    return dict(statement.body) | {"statement_sha256": statement.sha256}


RELEASES = ("charge", "release")
LOCAL = "local_epsilon"
"""The detail of a release whose answers were randomized one by one: no budget of the curator's bounds it."""


def register(ledger: Ledger) -> list[dict[str, Any]]:
    """Every release with its technique, epsilon, delta, unit and date. It is public: no names, no questions."""
    return [_register_entry(entry) for entry in ledger.entries(acts=RELEASES)]


def trail(ledger: Ledger, after: int = 0) -> list[dict[str, Any]]:
    """Everything that was done, for the auditor: who, when, for what, with which event."""
    return [_entry(entry) for entry in ledger.entries(after)]


def summarize_budget(ledger: Ledger) -> dict[str, Any]:
    """What is spent and left of the dataset's budget, with the releases that no budget bounds beside it."""
    from deniable.query.explain import describe_budget

    balance = ledger.balance()[0]
    amounts = {"limit": balance.limit, "spent": balance.spent, "remaining": balance.remaining}
    counts = {"charged": 0, "local": 0, "without_guarantee": 0}
    for entry in ledger.entries(acts=RELEASES):
        counts["charged" if entry.private else "local" if LOCAL in entry.details else "without_guarantee"] += 1
    return {name: describe_budget(each) if each is not None else None for name, each in amounts.items()} | counts


def verify_ledger(ledger: Ledger, head: str | None = None, number: int | None = None) -> dict[str, Any]:
    """Recompute the chain; refuse if anything was changed, or cut off before the head of a receipt."""
    from deniable.ledger.verify import verify as verified

    found = verified(ledger, head, number)
    return {"entries": found.entries, "head": found.head, "time": found.time.isoformat() if found.time else None}


def subject_report(curator: Curator, column: str, value: str) -> dict[str, Any]:
    """The releases and purposes that one person's rows may have been part of, and whether they still are.

    It goes to that person or the steward only. A release counts if it read a table that has rows of the person now,
    or had them until the withdrawal.
    """
    from deniable.curator.governance import withdrawals

    found = withdrawals.tables_with(curator, column, value)
    withdrawn = withdrawals.withdrawal_time(curator, column, value)
    releases = [
        _register_entry(entry) | {"purpose": entry.purpose}
        for entry in curator.ledger.entries(acts=RELEASES)
        if set(entry.tables) & set(found) and (withdrawn is None or entry.time <= withdrawn)
    ]
    purposes = sorted({release["purpose"] for release in releases if release["purpose"]})
    since = withdrawn.isoformat(timespec="seconds") if withdrawn else None
    return {"tables": found, "withdrawn": since, "purposes": purposes, "releases": releases}


def _register_entry(entry: Entry) -> dict[str, Any]:
    from deniable.ledger.export import price_of

    price = price_of(entry)
    shown = {name: _figure(getattr(price, name)) for name in ("epsilon", "delta")}
    guarantee = "differential privacy" if entry.private else "none"
    if LOCAL in entry.details:
        shown = {"epsilon": _figure(Fraction(entry.details[LOCAL])), "delta": 0.0}
        guarantee = "local differential privacy"
    about = {"release": entry.release, "date": entry.time.date().isoformat(), "technique": entry.technique}
    return about | {"tables": list(entry.tables), "guarantee": guarantee} | shown | {"unit": entry.unit}


def _entry(entry: Entry) -> dict[str, Any]:
    plain = entry.as_dict()
    facts = {name: value for name, value in plain["details"].items() if name not in ("hash", "scram")}
    return {name: plain[name] for name in plain if name not in ("question", "previous")} | {"details": facts}


def _figure(amount: Any) -> float | None:
    return None if amount is None else float(f"{float(amount):.6g}")
