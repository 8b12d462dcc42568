"""Withdrawing consent: a person's rows are left out of everything from then on, and that is recorded."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from deniable.errors import ParameterError, nearest
from deniable.governance import withdrawals
from deniable.governance.withdrawals import DRAWER, KEYS, Withdrawal

if TYPE_CHECKING:
    from deniable.curator.hall import Curator
    from deniable.engines.base import Engine
    from deniable.engines.restriction import Listed
    from deniable.ledger import Receipt
    from deniable.ledger.cabinet import Cabinet
    from deniable.policy.document import Policy


def withdraw(curator: Curator, column: str, value: str, by: str = "steward") -> Receipt:
    """Leave a person out from now on; asking twice is recorded once. Says nothing on whether there were rows."""
    from deniable.ledger import Act, Posting

    known_column(curator.policy, column)
    withdrawal = Withdrawal(column, value)
    commitment = withdrawal.commitment(_key(curator.cabinet))
    curator.cabinet.keep(DRAWER, commitment, commitment, withdrawal.written())
    details = {"column": column, "commitment": commitment}
    return curator.ledger.record(Posting(Act.WITHDRAW, analyst=by, request=f"withdraw {commitment}", details=details))


def left_out(policy: Policy, cabinet: Cabinet, table: str) -> tuple[Listed, ...]:
    """The restriction that leaves out of a table whoever withdrew; none where nobody did."""
    from deniable.engines.restriction import Listed

    unit = policy.table(table).unit
    values = tuple(each.value for each in _all(cabinet) if unit is not None and each.column == unit.column)
    return (Listed(str(unit.column), values, keep=False),) if unit is not None and values else ()


def leave_out(engine: Engine, policy: Policy, cabinet: Cabinet, names: Iterable[str]) -> None:
    """Restrict attached tables so that whoever withdrew is in no release."""
    for name in names:
        engine.restrict(name, *left_out(policy, cabinet, name))


def when(curator: Curator, column: str, value: str) -> datetime | None:
    """When this person withdrew; None if not."""
    commitment = Withdrawal(column, value).commitment(_key(curator.cabinet))
    return withdrawals.recorded(curator.ledger.entries(acts=("withdraw",)), commitment)


def present(curator: Curator, column: str, value: str) -> list[str]:
    """The private tables that hold rows of this person, withdrawn or not. For that person and the steward only."""
    from deniable.curator.tables import Tables
    from deniable.engines.restriction import Listed

    names = known_column(curator.policy, column)
    tables = Tables(curator.policy, None, curator.tables.sources)
    try:
        engine = tables.attach(*names)
        for name in names:
            engine.restrict(name, Listed(column, (value,), keep=True))
        return [name for name in names if engine.count(name)]
    finally:
        tables.close()


def known_column(policy: Policy, column: str) -> list[str]:
    """The tables in which this column tells people apart; refuses one that does so nowhere."""
    names = [table.name for table in policy.private if table.unit is not None and table.unit.column == column]
    if not names:
        known = sorted({str(t.unit.column) for t in policy.private if t.unit is not None and t.unit.column})
        expected = f"People are told apart by: {', '.join(known)}" if known else "No table has a unit column"
        raise ParameterError(
            f"no table tells people apart by '{column}'", expected=expected, remedy=nearest(column, known)
        )
    return names


def _all(cabinet: Cabinet) -> list[Withdrawal]:
    return [withdrawals.read(kept) for _, kept in sorted(cabinet.everything(DRAWER).items())]


def _key(cabinet: Cabinet) -> bytes:
    return cabinet.keep(KEYS, "withdrawals", "withdrawals", secrets.token_bytes(32))
