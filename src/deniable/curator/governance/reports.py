"""Reports: the public register, the auditor's trail, one person's report, the ledger's proof, a file's statement."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.context import Context
from deniable.curator.governance import withdrawals

if TYPE_CHECKING:
    from deniable.ledger import Balance, Entry, Ledger


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


def register(ledger: Ledger) -> dict[str, Any]:
    """The public register with the head of the ledger's chain, so that nobody needs to take our word.

    Every release stands there with its technique, epsilon, delta, unit and date: no names, no questions.
    """
    head = ledger.head()
    listed = [_register_entry(entry) for entry in ledger.entries(acts=RELEASES)]
    about = {"dataset": ledger.dataset, "head": head.hash if head else None}
    return about | {"standing": summarize_budget(ledger), "releases": listed}


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


def subject_report(context: Context, column: str, value: str) -> dict[str, Any]:
    """The releases and purposes that one person's rows may have been part of, and whether they still are.

    It goes to that person or the steward only. A release counts if it read a table that has rows of the person now,
    or had them until the withdrawal.
    """
    found = withdrawals.tables_with(context, column, value)
    withdrawn = withdrawals.withdrawal_time(context, column, value)
    releases = [
        _register_entry(entry) | {"purpose": entry.purpose}
        for entry in context.ledger.entries(acts=RELEASES)
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


def balance(context: Context) -> list[dict[str, Any]]:
    """What is spent and left, from the dataset down to the one who asks, as plain values."""
    return [_balance(each) for each in context.balance()]


def _balance(each: Balance) -> dict[str, Any]:
    from deniable.query.explain import describe_budget

    amounts = {"limit": each.limit, "spent": each.spent, "remaining": each.remaining}
    shown = {name: None if amount is None else describe_budget(amount) for name, amount in amounts.items()}
    return {"node": each.node, "period": each.period} | shown


def budgets(context: Context) -> dict[str, Any]:
    """The budget tree as the steward sees it: the dataset, and each analyst under each granted purpose."""
    from deniable.governance.grants import Asker

    tree = context.policy.budgets
    paths = [(analyst.name, purpose) for analyst in (tree.analysts if tree else ()) for purpose in analyst.purposes]
    analysts = [{"analyst": name, "purpose": purpose, "balance": balance(context.speak_for(Asker(name, purpose)))}
                for name, purpose in paths]  # fmt: skip
    return {
        "standing": summarize_budget(context.ledger),
        "dataset": balance(context),
        "analysts": analysts,
    }


def releases(context: Context, analyst: str) -> list[dict[str, Any]]:
    """An asker's own releases, the newest first."""
    found = [_release(entry) for entry in trail(context.ledger) if _is_release(entry, analyst)]
    return found[::-1]


def _is_release(entry: dict[str, Any], analyst: str) -> bool:
    return bool(entry["act"] in ("charge", "release") and entry["analyst"] == analyst)


def _release(entry: dict[str, Any]) -> dict[str, Any]:
    names = ("release", "time", "technique", "tables", "purpose", "request")
    return {name: entry[name] for name in names} | {"asked": entry["details"].get("asked")}


def receipt(context: Context, analyst: str, release: str) -> dict[str, Any] | None:
    """The receipt of an asker's own release, or None."""
    for entry in trail(context.ledger):
        if _is_release(entry, analyst) and entry["release"] == release:
            return _release(entry) | {"number": entry["sequence"], "head": entry["hash"], "event": entry["event"]}
    return None


def requests(context: Context, analyst: str | None = None) -> list[dict[str, Any]]:
    """All requests for releases, or those of one analyst, the newest first."""
    found = [each.as_dict() for each in context.state.requests().values()]
    return [each for each in found if analyst is None or each["analyst"] == analyst][::-1]
