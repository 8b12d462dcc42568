"""One way into the ledger for every technique: charges, releases without a formal guarantee, and what fails after."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from deniable.errors import CHARGED, ExecutionFailed, StorageError

if TYPE_CHECKING:
    from deniable.dp.accounting import Event
    from deniable.governance.grants import Asker
    from deniable.ledger import Ledger, Receipt


def record(
    ledger: Ledger,
    technique: str,
    event: Event | None = None,
    *,
    tables: Iterable[str] = (),
    unit: str = "",
    who: Asker | None = None,
    release: str = "",
    request: str = "",
    question: str = "",
    **details: Any,
) -> Receipt:
    """Write a release: with an event it is charged, and refused where it does not fit; without one it is recorded
    as what it is, a release without a formal guarantee.

    Call it before the data is touched. `details` are public facts in plain values.
    """
    from deniable.dp.accounting import NonPrivateEvent
    from deniable.ledger import Act, Posting

    priced = event is not None and not isinstance(event, NonPrivateEvent)
    posting = Posting(
        Act.CHARGE if priced else Act.RELEASE,
        event if event is not None else NonPrivateEvent(),
        str(technique),
        tuple(tables),
        str(unit),
        who.analyst if who else "steward",
        who.purpose if who else "",
        release,
        request,
        question,
        details,
    )
    return ledger.record(posting)


@contextmanager
def after_the_charge() -> Iterator[None]:
    """Whatever fails now, even by our own bug, is one fixed sentence: more of it could tell of rows."""
    try:
        yield
    except Exception:
        raise ExecutionFailed from None


@contextmanager
def still_charged() -> Iterator[None]:
    """A disk that refuses what was made has not undone its charge."""
    try:
        yield
    except StorageError as refusal:
        raise StorageError(refusal.happened, remedy=refusal.remedy, charge=CHARGED) from None
