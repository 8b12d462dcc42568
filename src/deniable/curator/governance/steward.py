"""Commands of stewards and auditors: open a policy's ledger, do one thing, report it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from deniable.curator.context import (
    Context,
    find_signing_key,
    forget_answers,
    ledger_of,
    make_sender,
    open_context,
)
from deniable.curator.governance import epochs, estate, losses, reports, withdrawals
from deniable.curator.governance import requests as governance
from deniable.curator.governance.epochs import EpochReport
from deniable.curator.governance.losses import LossReport, SettleReport
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
    from deniable.ledger.loss import Loss
    from deniable.policy.budget import Amount

__all__ = [
    "back_up", "decide", "export", "incidents", "list_tokens", "new_epoch", "new_token", "pause_token", "purge",
    "register", "reinstate", "request", "requests", "restore", "resume", "revoke_token", "separate", "settle",
    "show", "show_epoch", "show_head", "show_terms", "subject", "verify", "withdraw",
]  # fmt: skip


def __dir__() -> list[str]:
    """What is public here: the tasks."""
    return list(__all__)


FOLLOW_SECONDS = 1.0
"""How often an export that goes on looks for new entries."""


@dataclass(frozen=True, slots=True, eq=False)
class LedgerReport(Record):
    """What is spent and left, and the last entries of the ledger."""

    standing: BudgetStanding
    entries: list[TrailEntry]


@dataclass(frozen=True, slots=True, eq=False)
class SeparateReport(SparseRecord):
    """A ledger with a budget of its own, the others that protect the same rows, and what it had lost."""

    ledger: str
    beside: list[str]
    entries_lost: int
    loss: LossReport | None = None


@contextmanager
def open_policy(
    policy: Path, ledger: str | None, asker: Asker | None = None, *, reading: bool = False
) -> Iterator[Context]:
    """The context of a policy with its ledger; for `reading`, also for a role that may only read its database."""
    context = open_context(read(policy), ledger=ledger_of(policy, ledger), asker=asker, reading=reading)
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

    It is written into the ledger who said so, why, what it stands beside, and what is known to be lost. A ledger of
    which nothing is known to be lost is not begun anew, nor is one beside another that holds the same budget.
    """
    known, at = read(policy), ledger_of(policy, ledger)
    _refuse_unreasoned(known, by, reason, "a budget of its own")
    loss, gone = _look_for_loss(known, at) if lost else (None, [])
    if loss is not None and not (loss.entries or loss.heads or loss.stored):
        raise ParameterError(
            "nothing is lost: the ledger has all that is known of it",
            expected="A ledger, or its answer store, that had more when it was last used",
            remedy="Go on with it; for a budget beside that of another ledger leave --lost out",
        )
    return _write_separate(policy, known, at, by, reason, loss, gone)


def _refuse_unreasoned(known: Policy, by: str, reason: str, what: str) -> None:
    losses.refuse_unlisted(known, by)
    if not reason.strip():
        raise ParameterError(f"{what} needs a reason", remedy="Say --reason; it is written into the ledger")


def _look_for_loss(known: Policy, at: str) -> tuple[Loss, list[str]]:
    """What is known to be lost of the ledger at a place, which is not made if it is not there; and which are gone."""
    from deniable.ledger.ledger import open_answer_store, open_ledger
    from deniable.ledger.witness import name_place

    there = at if "://" in at or Path(at).exists() else None
    with (
        closing(open_ledger(there, known)) as opened,
        closing(open_answer_store(there, known.dataset, opened)) as store,
    ):
        gone = _refuse_second(known, at, opened)
        return losses.find_loss(known, name_place(at, known.dataset), opened, store, gone=gone), gone


def _write_separate(
    policy: Path, known: Policy, at: str, by: str, reason: str, loss: Loss | None, gone: Sequence[str] = ()
) -> SeparateReport:
    """Write that a ledger has a budget of its own, and what it lost; the witnesses go on with it.

    `gone` are ledgers that held the same budget, and whose place it takes.
    """
    from deniable.curator.context import mark_sources
    from deniable.governance.withdrawals import COLLECTION
    from deniable.ledger import Act, Posting
    from deniable.ledger.entry import LOST
    from deniable.ledger.witness import Witness, name_place, open_for_acts

    place, witness = name_place(at, known.dataset), Witness()
    with closing(open_context(known)) as context:
        sources = mark_sources(context.scope, {})
    with open_for_acts(at, known, COLLECTION, lost=loss is not None) as (opened, _):
        if loss is not None:
            witness.forget(place, opened, gone)
        beside = witness.separate(place, sources)
        details: dict[str, Any] = {"beside": beside, "reason": reason, "entries_lost": loss.entries if loss else 0}
        details |= {LOST: loss.facts()} if loss is not None else {}
        done = opened.record(Posting(Act.SEPARATE, analyst=by, details=details))
        if loss is not None:
            witness.note_loss(place, opened, done.head, loss)
    if loss is not None and known.witness is not None:
        with open_policy(policy, at) as again:
            again.ledger.on_written(again.ledger)  # the witness is told at once that heads which it keeps are lost
    told = losses.report_loss(known, loss) if loss is not None else None
    return SeparateReport(place, beside, loss.entries if loss is not None else 0, told)


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
    with open_policy(policy, ledger, reading=True) as context:
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
    with open_policy(policy, ledger, reading=True) as context:
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
    with open_policy(policy, ledger, Asker(analyst, purpose, Role.ANALYST), reading=not acknowledge) as context:
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
    with open_policy(policy, ledger, reading=True) as context:
        return epochs.show_epoch(context)


def resume_asker(context: Context, analyst: str, by: str = "steward") -> int:
    """The steward has looked: the failures of an asker count from none again. Says how many there were."""
    from deniable.ledger import Act, Posting

    if context.asker is not None:
        raise AccessRefused("only the steward lets an asker go on", remedy="Ask the steward")
    failures = context.state.failures(analyst)
    if not failures:
        raise ParameterError(
            f"'{analyst}' has no failures that count", remedy="Names of askers are in: deniable ledger show"
        )
    context.ledger.record(Posting(Act.RESUME, analyst=by, details={"analyst": analyst, "failures": failures}))
    return failures


def resume(policy: Path, ledger: str | None, analyst: str) -> int:
    """Let an asker go on who was paused after failures; says how many there were."""
    with open_policy(policy, ledger) as context:
        return resume_asker(context, analyst)


def subject(policy: Path, ledger: str | None, column: str, value: str) -> SubjectReport:
    """The report of one person."""
    with open_policy(policy, ledger, reading=True) as context:
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
    from deniable.ledger.loss import list_abandoned

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
        named = list_abandoned(opened.entries(acts=("separate",)))
        lost = sum((note.number, note.hash) in named for note in notes)
        return replace(proof, heads_compared=len(notes), heads_lost=lost, signatures_checked=bool(known))


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

    with open_policy(policy, ledger, reading=True) as context:
        key = find_signing_key(context.store) if sign else None
        head = read_head(context.ledger)
    note = write_note(head, key)
    if to:
        send_note(to, note)
    at = head.time.isoformat(timespec="microseconds") if head.time else None
    return HeadReport(head.dataset, head.number, head.hash, at, note, find_public_key(key) if key else None)


@dataclass(frozen=True, slots=True, eq=False)
class BackupReport(SparseRecord):
    """A backup that was written and verified, or restored: its entries and its head, and what is lost beyond it."""

    file: str
    entries: int
    head: str
    note: str
    loss: LossReport | None = None


def back_up(policy: Path, ledger: str | None, file: Path) -> BackupReport:
    """Copy the ledger and its answer store into one file, and verify that."""
    from deniable.ledger.backup import back_up as copy_both
    from deniable.ledger.export import Head, write_note

    with open_policy(policy, ledger) as context:
        key = find_signing_key(context.store)  # so that the backup has it
        found = copy_both(context.ledger, context.store, file, context.place)
        head = Head(context.policy.dataset, found.entries, found.head, found.time)
        return BackupReport(str(file), found.entries, found.head, write_note(head, key))


def restore(
    policy: Path,
    ledger: str | None,
    file: Path,
    *,
    lost: bool = False,
    by: str = "",
    reason: str = "",
    answers: Path | None = None,
    statements: Sequence[Path] = (),
    server_gone: bool = False,
) -> BackupReport:
    """Put a backup where no ledger is; one that is older than a witness knows only if the newest is `lost`.

    Then what is known of the loss is written into the ledger, which stays closed until it is settled. `answers` is the
    answer store of the lost ledger, if that is left: who withdrew by it is entered again. `statements` are those of
    released files. Beside a ledger of the same people that is there nothing is restored; one in a database whose server
    does not answer counts as there, unless the steward says that the `server_gone`.
    """
    from deniable.governance.withdrawals import COLLECTION
    from deniable.ledger.backup import find_origin, hold_rows, open_backup, read_backup, restore_backup
    from deniable.ledger.export import read_head, write_note
    from deniable.ledger.witness import Witness, name_place, open_for_acts

    known, at = read(policy), ledger_of(policy, ledger)
    if not lost and (answers is not None or statements or server_gone):
        raise ParameterError(
            "answers, statements and a server that is gone tell what was lost", remedy="Say --lost, or leave them out"
        )
    if lost:
        _refuse_unreasoned(known, by, reason, "a lost ledger")
    witness, place = Witness(), name_place(at, known.dataset)
    with closing(open_backup(file, known.dataset)) as copied:
        gone = _refuse_second(known, at, copied, find_origin(file), server_gone=server_gone)
    loss, people = _compare_backup(known, place, file, answers, statements, gone) if lost else (None, [])
    with closing(open_backup(file, known.dataset)) as copied, closing(hold_rows(read_backup(file)[1])) as held:
        if not lost:
            witness.refuse_backup(place, copied, held, gone)
            if known.witness is not None:
                make_sender(known).refuse_rollback(copied)
        found = restore_backup(file, known.dataset, at)
        witness.forget_counts(place, copied)
        if gone and not lost:  # the newest copy was moved here
            witness.forget(place, copied, gone)
    told = None
    if loss is not None:
        _write_separate(policy, known, at, by, reason, loss, gone)
        with open_policy(policy, at) as context:
            told = losses.report_loss(known, loss, losses.recover_withdrawals(context, people, by))
    with open_for_acts(at, known, COLLECTION) as (opened, _):
        return BackupReport(str(file), found.entries, found.head, write_note(read_head(opened)), told)


def _compare_backup(
    known: Policy, place: str, file: Path, answers: Path | None, statements: Sequence[Path], gone: Sequence[str]
) -> tuple[Loss, list[tuple[str, str]]]:
    """What is known beyond a backup, and who withdrew by an answer store that is left."""
    from deniable.ledger.backup import hold_rows, open_backup, read_backup

    with (
        closing(open_backup(file, known.dataset, known.budgets)) as copied,
        closing(hold_rows(read_backup(file)[1])) as store,
    ):
        loss = losses.find_loss(known, place, copied, store, statements, gone)
        if answers is None:
            return loss, []
        survivor, people = losses.read_survivor(answers, store.key)
        return loss.add(losses.subtract_kept(survivor, copied, store)), people


def settle(
    policy: Path,
    ledger: str | None,
    by: str,
    reason: str,
    *,
    spent: tuple[Amount | None, Amount | None, Amount | None] | None,
    entered: bool = False,
    missing: int = 0,
) -> SettleReport:
    """Charge what lost entries may have spent, and open the ledger again."""
    with open_policy(policy, ledger) as context:
        return losses.settle(context, by, reason, spent=spent, entered=entered, missing=missing)


def _refuse_second(known: Policy, at: str, ledger: Ledger, origin: str = "", *, server_gone: bool = False) -> list[str]:
    """Refuse to put a ledger beside one that holds the budget of the same people and is there; says which are not.

    Looked for are the ledgers of the user's record that hold these rows, those that followed this one elsewhere, and
    the one at the `origin` of which a backup was taken, whoever used it; but for those that the steward let be apart.
    """
    from deniable.curator.context import mark_sources
    from deniable.ledger.witness import Witness, name_place

    place = name_place(at, known.dataset)
    with closing(open_context(known)) as context:
        holders, later = Witness().find_rivals(place, ledger, mark_sources(context.scope, {}))
    taken_of = {origin: ledger.first} if origin not in ("", place) else {}
    for other, first in (taken_of | later | dict.fromkeys(holders, "")).items():
        if _is_there(other, at, first, server_gone):
            raise AccessRefused(
                f"the rows of this policy have a budget already, in the ledger {other}",
                expected="A ledger that is restored, or begun anew, takes the place of one that is gone",
                remedy=f"Use that ledger: --ledger {other}, or ledger= in Python; or move it away, "
                "if another one is to take its place",
            )
    return holders


def _is_there(ledger: str, at: str, first: str, server_gone: bool) -> bool:
    """Whether a ledger is at a place; with the hash of its `first` entry, if that is known."""
    if "://" not in ledger:
        return Path(ledger).exists() and first in ("", _find_first(Path(ledger)))
    from deniable.ledger.backup import holds_entries

    address, _, dataset = ledger.partition("#")
    return holds_entries(_add_login(address, at), dataset, first=first, gone=server_gone)


def _find_first(file: Path) -> str:
    """The hash of the first entry of a ledger in a file; empty where the file is none that can be read."""
    from deniable.ledger.entry import decode_entry
    from deniable.ledger.sqlite import SqliteStore

    with suppress(DeniableError), closing(SqliteStore(file, writable=False)) as store:
        return next((decode_entry(line.text, line.sequence).hash for line in store.lines()), "")
    return ""


def _add_login(address: str, at: str) -> str:
    """The address of a database with who enters another one, if that is on the same server."""
    known, other = urlsplit(address), urlsplit(at)
    login, _, server = other.netloc.rpartition("@")
    hosts = [parse_qs(each.query).get("host") for each in (known, other)]
    if not login or known.netloc != server.lower() or hosts[0] != hosts[1]:
        return address
    return known._replace(netloc=f"{login}@{known.netloc}").geturl()


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
