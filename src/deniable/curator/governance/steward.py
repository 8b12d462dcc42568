"""Commands of stewards and auditors: open a policy's ledger, do one thing, report it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.charge import resume_asker
from deniable.curator.context import Context, forget_answers, ledger_of, open_context
from deniable.curator.governance import epochs, reports, withdrawals
from deniable.curator.governance import requests as governance
from deniable.curator.governance.epochs import EpochReport
from deniable.curator.governance.reports import BudgetStanding, ChainProof, Register, SubjectReport, TrailEntry
from deniable.curator.governance.requests import RequestReport, TokenReport
from deniable.curator.governance.withdrawals import Reach
from deniable.errors import ParameterError, nearest
from deniable.governance.grants import Asker, Role
from deniable.policy.document import read
from deniable.release.record import Record

if TYPE_CHECKING:
    from deniable.ledger import Ledger, Receipt


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
    """The ledger of a policy, to be read only."""
    from deniable.ledger import open_ledger

    opened = open_ledger(ledger_of(policy, ledger), read(policy), writable=False)
    try:
        yield opened
    finally:
        opened.close()


def separate(policy: Path, ledger: str | None, by: str, reason: str, *, lost: bool = False) -> SeparateReport:
    """Let a policy's ledger hold a budget of its own for rows that others protect too; or, `lost`, begin it anew.

    It is written into the ledger who said so, why, and what it stands beside.
    """
    from deniable.curator.context import mark_sources
    from deniable.ledger import Act, Posting, open_ledger
    from deniable.ledger.witness import Witness, name_place

    known, at = read(policy), ledger_of(policy, ledger)
    place, witness = name_place(at, known.dataset), Witness()
    with closing(open_context(known)) as context:
        sources = mark_sources(context.scope, {})
    with closing(open_ledger(at, known)) as opened:
        entries = witness.forget(place) if lost else 0
        beside = witness.separate(place, sources)
        details = {"beside": beside, "reason": reason, "entries_lost": entries}
        opened.record(Posting(Act.SEPARATE, analyst=by, details=details))
    return SeparateReport(place, beside, entries)


def new_token(
    policy: Path, ledger: str | None, name: str, role: str, purposes: Sequence[str] | None, days: float | None
) -> TokenReport:
    """Give out a token; its text is in the report and nowhere else."""
    with open_policy(policy, ledger) as context:
        text, grant = governance.issue(context, name, _role(role), purposes, days)
        return replace(governance.list_tokens(context)[grant.id], token=text)


def list_tokens(policy: Path, ledger: str | None) -> list[TokenReport]:
    """All tokens that were given out."""
    with open_policy(policy, ledger) as context:
        return list(governance.list_tokens(context).values())


def revoke_token(policy: Path, ledger: str | None, identity: str) -> TokenReport:
    """End a token."""
    with open_policy(policy, ledger) as context:
        return governance.report_token(governance.revoke(context, identity))


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
        found = list(context.state.requests().values())
        waiting = [
            replace(governance.report_request(each), risk=governance.measure_risk(context, each.tables))
            for each in found
            if not each.decided
        ]
    return waiting if pending else [*waiting, *(governance.report_request(each) for each in found if each.decided)]


def decide(policy: Path, ledger: str | None, identity: str, approved: bool, reason: str) -> RequestReport:
    """Approve or decline a request."""
    with open_policy(policy, ledger) as context:
        return governance.report_request(governance.decide(context, identity, approved, reason))


def withdraw(policy: Path, ledger: str | None, column: str, value: str) -> tuple[Receipt, Reach]:
    """Leave a person out from now on; says of which tables."""
    with open_policy(policy, ledger) as context:
        return withdrawals.withdraw(context, column, value), withdrawals.find_reach(context.policy, column)


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


def verify(policy: Path, ledger: str | None, head: str | None, number: int | None) -> ChainProof:
    """Recompute the chain."""
    with read_ledger(policy, ledger) as opened:
        return reports.verify_ledger(opened, head, number)


def export(policy: Path, ledger: str | None, form: str, out: Path | None) -> Iterator[str]:
    """The ledger in a form, piece by piece; or nothing, if it went to a file."""
    from deniable.ledger.export import export as exported
    from deniable.storage import whole_file

    with read_ledger(policy, ledger) as opened:
        pieces = exported(opened.entries(), form)
        if out is None:
            yield from pieces
            return
        with whole_file(out) as file:
            for piece in pieces:
                file.write(piece.encode())


def _role(word: str) -> Role:
    roles = tuple(Role)
    if word not in roles:
        raise ParameterError(f"there is no role '{word}'", expected=", ".join(roles), remedy=nearest(word, roles))
    return Role(word)
