"""Commands of stewards and auditors: open a policy's ledger, do one thing, report it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.charge import resume_asker
from deniable.curator.context import Context, find_signing_key, forget_answers, ledger_of, open_context
from deniable.curator.governance import epochs, estate, reports, withdrawals
from deniable.curator.governance import requests as governance
from deniable.curator.governance.epochs import EpochReport
from deniable.curator.governance.reports import BudgetStanding, ChainProof, Register, SubjectReport, TrailEntry
from deniable.curator.governance.requests import RequestReport, TermsReport, TokenReport
from deniable.curator.governance.withdrawals import Reach
from deniable.errors import AccessRefused, DataError, DeniableError, ParameterError, nearest
from deniable.governance.grants import Asker, Role
from deniable.policy.document import Policy, read
from deniable.release.record import Record, SparseRecord
from deniable.storage import storage_errors

if TYPE_CHECKING:
    from deniable.ledger import Entry, Ledger, Receipt

FOLLOW_SECONDS = 1.0
"""How often an export that goes on looks for new entries."""


@dataclass(frozen=True, slots=True, eq=False)
class LedgerReport(Record):
    """What is spent and left, and the last entries of the ledger."""

    standing: BudgetStanding
    entries: list[TrailEntry]


@dataclass(frozen=True, slots=True, eq=False)
class SeparateReport(Record):
    """A ledger with a budget of its own, the others that protect the same rows, and how many entries it had lost."""

    ledger: str
    beside: list[str]
    entries_lost: int


@contextmanager
def open_policy(policy: Path, ledger: str | None, asker: Asker | None = None) -> Iterator[Context]:
    """The context of a policy with its ledger."""
    context = open_context(read(policy), ledger=ledger_of(policy, ledger), asker=asker)
    try:
        yield context
    finally:
        context.close()


@contextmanager
def read_ledger(policy: Path, ledger: str | None) -> Iterator[Ledger]:
    """The ledger of a policy, to be read only, if it is to be trusted."""
    with reports.trust_ledger(read(policy), ledger_of(policy, ledger)) as opened:
        yield opened


def separate(policy: Path, ledger: str | None, by: str, reason: str, *, lost: bool = False) -> SeparateReport:
    """Let a policy's ledger hold a budget of its own for rows that others protect too; or, `lost`, begin it anew.

    It is written into the ledger who said so, why, and what it stands beside.
    """
    from deniable.curator.context import mark_sources
    from deniable.governance.withdrawals import COLLECTION
    from deniable.ledger import Act, Posting
    from deniable.ledger.witness import Witness, name_place, open_for_acts

    known, at = read(policy), ledger_of(policy, ledger)
    if not reason.strip():
        raise ParameterError("a budget of its own needs a reason", remedy="Say --reason; it is written into the ledger")
    place, witness = name_place(at, known.dataset), Witness()
    with closing(open_context(known)) as context:
        sources = mark_sources(context.scope, {})
    with open_for_acts(at, known, COLLECTION, lost=lost) as (opened, _):
        last = opened.head()
        entries = max(0, witness.forget(place, opened) - (last.sequence if last else 0)) if lost else 0
        beside = witness.separate(place, sources)
        details = {"beside": beside, "reason": reason, "entries_lost": entries}
        opened.record(Posting(Act.SEPARATE, analyst=by, details=details))
    return SeparateReport(place, beside, entries)


def new_token(
    policy: Path,
    ledger: str | None,
    name: str,
    role: str,
    purposes: Sequence[str] | None,
    days: float | None,
    subject: tuple[str, str] | None = None,
) -> TokenReport:
    """Give out a token; its text is in the report and nowhere else."""
    with open_policy(policy, ledger) as context:
        text, grant = governance.issue(context, name, _role(role), purposes, days, subject=subject)
        return replace(governance.list_tokens(context)[grant.id], token=text)


def list_tokens(policy: Path, ledger: str | None) -> list[TokenReport]:
    """All tokens that were given out."""
    with open_policy(policy, ledger) as context:
        return list(governance.list_tokens(context).values())


def revoke_token(policy: Path, ledger: str | None, identity: str) -> TokenReport:
    """End a token."""
    with open_policy(policy, ledger) as context:
        return governance.report_token(governance.revoke(context, identity))


def pause_token(policy: Path, ledger: str | None, identity: str, reason: str, *, resume: bool = False) -> TokenReport:
    """Hold a token up, or let it count again."""
    with open_policy(policy, ledger) as context:
        change = governance.unpause if resume else governance.pause
        return governance.report_token(change(context, identity, reason))


def request(
    policy: Path,
    ledger: str | None,
    analyst: str,
    purpose: str,
    technique: str,
    tables: Sequence[str],
    parameters: Mapping[str, Any],
) -> RequestReport:
    """File a request for a release."""
    who = Asker(analyst, purpose, Role.ANALYST)
    with open_policy(policy, ledger, who) as context:
        return governance.report_request(governance.ask(context, technique, tables, parameters))


def requests(policy: Path, ledger: str | None, pending: bool = False) -> list[RequestReport]:
    """All requests, or those that wait for a decision; each of these with its risk, for the steward."""
    with open_policy(policy, ledger) as context:
        found = reports.requests(context, risk=True)
    waiting = [each for each in found if each.decided is None]
    return waiting if pending else [*waiting, *(each for each in found if each.decided is not None)]


def decide(
    policy: Path, ledger: str | None, identity: str, approved: bool, reason: str, by: str = "steward"
) -> RequestReport:
    """Approve or decline a request."""
    with open_policy(policy, ledger) as context:
        return governance.report_request(governance.decide(context, identity, approved, reason, by))


def show_terms(
    policy: Path, ledger: str | None, analyst: str, purpose: str, *, acknowledge: bool = False
) -> TermsReport:
    """The terms of a purpose, acknowledged by an analyst if told so."""
    with open_policy(policy, ledger, Asker(analyst, purpose, Role.ANALYST)) as context:
        shown = governance.show_terms(context)
        return governance.acknowledge(context, shown.digest) if acknowledge else shown


def withdraw(policy: Path, ledger: str | None, column: str, value: str) -> tuple[Receipt, Reach]:
    """Leave a person out from now on; says of which tables."""
    with open_policy(policy, ledger) as context:
        return withdrawals.withdraw(context, column, value), withdrawals.find_reach(context.policy, column)


def reinstate(policy: Path, ledger: str | None, column: str, value: str, reason: str) -> Receipt:
    """Take a person in again who withdrew."""
    with open_policy(policy, ledger) as context:
        return withdrawals.reinstate(context, column, value, reason)


def new_epoch(policy: Path, ledger: str | None, reason: str) -> EpochReport:
    """Begin a new epoch of the data."""
    with open_policy(policy, ledger) as context:
        return epochs.declare_epoch(context, reason)


def show_epoch(policy: Path, ledger: str | None) -> EpochReport:
    """The epoch now, and which private sources changed inside it."""
    with open_policy(policy, ledger) as context:
        return epochs.show_epoch(context)


def resume(policy: Path, ledger: str | None, analyst: str) -> int:
    """Let an asker go on who was paused after failures; says how many there were."""
    with open_policy(policy, ledger) as context:
        return resume_asker(context, analyst)


def subject(policy: Path, ledger: str | None, column: str, value: str) -> SubjectReport:
    """The report of one person."""
    with open_policy(policy, ledger) as context:
        return reports.subject_report(context, column, value)


def purge(policy: Path, ledger: str | None) -> int:
    """Forget every stored answer of an expired policy; says how many there were."""
    with open_policy(policy, ledger) as context:
        return forget_answers(context)


def register(policy: Path, ledger: str | None) -> Register:
    """The public register."""
    from deniable.ledger.entry import genesis

    with read_ledger(policy, ledger) as opened:
        found = reports.register(opened)
        return replace(found, head=found.head or genesis(opened.dataset))


def show(policy: Path, ledger: str | None, last: int) -> LedgerReport:
    """The budget tree's standing, and the last entries."""
    with read_ledger(policy, ledger) as opened:
        after = max(0, opened.store.last() - last)
        return LedgerReport(reports.summarize_budget(opened), reports.trail(opened, after))


def verify(
    policy: Path,
    ledger: str | None,
    head: str | None,
    number: int | None,
    against: Path | None = None,
    key: str = "",
) -> ChainProof:
    """Recompute the chain; it must hold a receipt's head, and every head in a file of notes that somebody kept."""
    from deniable.ledger.export import read_notes, refuse_other_head

    with read_ledger(policy, ledger) as opened:
        proof = reports.verify_ledger(opened, head, number)
        if against is None:
            return proof
        known = key or reports.find_key(opened) or ""
        if not against.is_file():
            raise DataError(
                f"there is no file '{against}'", expected="A file of notes, as deniable ledger head --to writes"
            )
        with storage_errors(against):
            notes = read_notes(against.read_text("utf-8", "replace"), known)
        for note in notes:
            refuse_other_head(opened, note)
        return replace(proof, heads_compared=len(notes), signatures_checked=bool(known))


@dataclass(frozen=True, slots=True, eq=False)
class HeadReport(SparseRecord):
    """How far a ledger is, as a note that may be kept elsewhere; with the public key where it is signed."""

    dataset: str
    number: int
    hash: str
    time: str | None
    note: str
    key: str | None = None


def show_head(policy: Path, ledger: str | None, *, sign: bool = False, to: str = "") -> HeadReport:
    """The head of a ledger as a note, signed with the curator's key if asked; also sent to a file or an address."""
    from deniable.ledger.export import find_public_key, read_head, send_note, write_note

    with open_policy(policy, ledger) as context:
        key = find_signing_key(context.store) if sign else None
        head = read_head(context.ledger)
    note = write_note(head, key)
    if to:
        send_note(to, note)
    at = head.time.isoformat(timespec="microseconds") if head.time else None
    return HeadReport(head.dataset, head.number, head.hash, at, note, find_public_key(key) if key else None)


@dataclass(frozen=True, slots=True, eq=False)
class BackupReport(Record):
    """A backup that was written and verified, or restored: its entries and its head."""

    file: str
    entries: int
    head: str
    note: str


def back_up(policy: Path, ledger: str | None, file: Path) -> BackupReport:
    """Copy the ledger and its answer store into one file, and verify that."""
    from deniable.ledger.export import Head, write_note
    from deniable.ledger.export import back_up as copy_both

    with open_policy(policy, ledger) as context:
        key = find_signing_key(context.store)  # so that the backup has it
        found = copy_both(context.ledger, context.store, file)
        head = Head(context.policy.dataset, found.entries, found.head, found.time)
        return BackupReport(str(file), found.entries, found.head, write_note(head, key))


def restore(
    policy: Path, ledger: str | None, file: Path, *, lost: bool = False, by: str = "", reason: str = ""
) -> BackupReport:
    """Put a backup where no ledger is; one that is older than the witness knows only if the newest is `lost`."""
    from deniable.governance.withdrawals import COLLECTION
    from deniable.ledger.export import open_backup, read_head, restore_backup, write_note
    from deniable.ledger.witness import Witness, name_place, open_for_acts

    known, at = read(policy), ledger_of(policy, ledger)
    if lost and not reason.strip():
        raise ParameterError("a lost ledger needs a reason", remedy="Say --reason; it is written into the ledger")
    _refuse_second(known, at, lost=lost)
    witness, place = Witness(), name_place(at, known.dataset)
    with closing(open_backup(file, known.dataset)) as copied:
        if not lost:
            witness.refuse_older(place, copied)
        found = restore_backup(file, known.dataset, at)
        witness.forget_counts(place, copied)
    if lost:
        separate(policy, ledger, by, reason, lost=True)
    with open_for_acts(at, known, COLLECTION) as (opened, _):
        return BackupReport(str(file), found.entries, found.head, write_note(read_head(opened)))


def _refuse_second(known: Policy, at: str, *, lost: bool) -> None:
    """Refuse to put a backup beside a ledger that holds the budget of the same people and is there.

    One in a database is looked for; where it cannot be reached, the steward's word that it is lost counts.
    """
    from deniable.curator.context import mark_sources
    from deniable.ledger.witness import Witness, name_place

    place, witness = name_place(at, known.dataset), Witness()
    with closing(open_context(known)) as context:
        holders = [] if witness.is_blank else witness.find_holders(mark_sources(context.scope, {}), place)
    there = [other for other in holders if _is_there(known, other, lost)]
    if there:
        raise AccessRefused(
            f"the rows of this policy have a budget already, in the ledger {there[0]}",
            expected="A backup takes the place of a ledger that is gone",
            remedy=f"Use that ledger: --ledger {there[0]}; or move it away, if the backup is to take its place",
        )


def _is_there(known: Policy, ledger: str, lost: bool) -> bool:
    if "://" not in ledger:
        return Path(ledger).exists()
    if not lost:
        return True
    from deniable.ledger.ledger import open_ledger

    with suppress(DeniableError), closing(open_ledger(ledger, known, writable=False)) as opened:
        return opened.head() is not None
    return False


def incidents(policy: Path, ledger: str | None, after: int = 0, share: float = 0.25) -> estate.IncidentReport:
    """Who asked what, and what is unusual."""
    with read_ledger(policy, ledger) as opened:
        return estate.list_incidents(opened, after, Fraction(str(share)))


def export(
    policy: Path, ledger: str | None, form: str, out: Path | None, after: int = 0, *, follow: bool = False
) -> Iterator[str]:
    """The ledger in a form, piece by piece; or nothing, if it went to a file. `follow` goes on as entries come."""
    from deniable.ledger.export import LINE_FORMS
    from deniable.ledger.export import export as exported
    from deniable.storage import refuse_unwritable, whole_file

    refuse_unwritable(out)

    if follow and (form not in LINE_FORMS or out is not None):
        raise ParameterError(
            "an export that goes on is written line by line to standard output",
            expected=f"--form {' or '.join(LINE_FORMS)}, without --out",
        )
    with read_ledger(policy, ledger) as opened:
        pieces = exported(_follow_entries(opened, after) if follow else opened.entries(after), form)
        if out is None:
            yield from pieces
            return
        with whole_file(out) as file:
            for piece in pieces:
                file.write(piece.encode())


def _follow_entries(ledger: Ledger, after: int) -> Iterator[Entry]:
    """The entries after a number, and those that come, without an end."""
    while True:
        for entry in ledger.entries(after):
            yield entry
            after = entry.sequence
        time.sleep(FOLLOW_SECONDS)


def _role(word: str) -> Role:
    roles = tuple(Role)
    if word not in roles:
        raise ParameterError(f"there is no role '{word}'", expected=", ".join(roles), remedy=nearest(word, roles))
    return Role(word)
