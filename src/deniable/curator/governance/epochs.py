"""Epochs for the steward: declare one, and be told when a private source changed inside one.

That a source changed is told to the steward alone. Askers see the epoch and nothing else of when data came or went."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deniable.curator.context import Context, find_epoch
from deniable.errors import AccessRefused, DataError, ParameterError
from deniable.release.record import Record

if TYPE_CHECKING:
    from deniable.ledger import Entry

UNCHANGED, CHANGED, UNREAD, UNREADABLE = "unchanged", "changed", "not measured yet", "cannot be read"


@dataclass(frozen=True, slots=True, eq=False)
class SourceState(Record):
    """Whether the source of a private table is what it was when it was first measured in this epoch."""

    table: str
    source: str


@dataclass(frozen=True, slots=True, eq=False)
class EpochReport(Record):
    """The epoch now, what begins the next, the steward's last word on it, and the state of each private source."""

    epoch: str
    next: str
    declared: str | None
    reason: str
    tables: list[SourceState]
    warnings: list[str]


def declare_epoch(context: Context, reason: str, by: str = "steward") -> EpochReport:
    """Begin a new epoch, for every asker at once; equal questions are asked and charged anew from now on."""
    from deniable.ledger import Act, Posting

    _refuse_others(context)
    if not reason.strip():
        raise ParameterError("a new epoch needs a reason", remedy="Say what came, such as --reason 'load of November'")
    context.refuse_expired()
    context.scope.keep_copies(find_epoch(context.policy, context.state, more=1))
    context.ledger.record(Posting(Act.EPOCH, analyst=by, details={"reason": reason.strip()}))
    for table in context.policy.private:
        _mark(context, table.name)
    return show_epoch(context)


def show_epoch(context: Context) -> EpochReport:
    """The epoch now, with the state of each private source. For the steward only."""
    _refuse_others(context)
    epoch, last = context.epoch, _find_last(context)
    tables = [SourceState(table.name, _state(context, epoch, table.name)) for table in context.policy.private]
    return EpochReport(
        epoch=epoch,
        next=_name_next(context),
        declared=last.time.isoformat(timespec="seconds") if last else None,
        reason=str(last.details.get("reason", "")) if last else "",
        tables=tables,
        warnings=list(
            _warn(epoch, tables, context.policy.epochs is not None and context.policy.epochs.copies is not None)
        ),
    )


def _refuse_others(context: Context) -> None:
    if context.asker is not None:
        raise AccessRefused("epochs are declared and looked at by the steward", remedy="Ask the steward")


def _mark(context: Context, table: str) -> None:
    """Remember what a source holds; one that cannot be read now is remembered when it is first measured."""
    try:
        context.scope.mark_source(context.epoch, table)
    except DataError:
        return


def _state(context: Context, epoch: str, table: str) -> str:
    try:
        changed = context.scope.source_changed(epoch, table)
    except DataError:
        return UNREADABLE
    return UNREAD if changed is None else CHANGED if changed else UNCHANGED


def _find_last(context: Context) -> Entry | None:
    found = deque(context.ledger.entries(acts=("epoch",)), maxlen=1)
    return found[0] if found else None


def _name_next(context: Context) -> str:
    declared = context.policy.epochs
    if declared is None or (declared.every is None and declared.manifest is None):
        return "when the steward declares it"
    return f"every {declared.every}" if declared.every else f"when the text of '{declared.manifest}' changes"


def _warn(epoch: str, tables: list[SourceState], copies: bool) -> Iterator[str]:
    until = "new questions read the copy of this epoch" if copies else "new questions see the new rows"
    for each in tables:
        if each.source == CHANGED:
            yield (
                f"The source of '{each.table}' has changed since epoch {epoch} began. Stored answers are repeated as "
                f"they are; {until}. Declare a new epoch: deniable epoch new --reason '...'"
            )
        elif each.source == UNREADABLE:
            yield f"The source of '{each.table}' cannot be read now."
