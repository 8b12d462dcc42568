"""Withdrawing consent: a person's rows are left out of everything from then on, and that is recorded."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from deniable.errors import ParameterError, nearest
from deniable.governance import withdrawals
from deniable.governance.withdrawals import COLLECTION, KEYS, Withdrawal

if TYPE_CHECKING:
    from deniable.curator.curator import Curator
    from deniable.engines.base import Engine, Listed
    from deniable.ledger import Receipt
    from deniable.ledger.answer_store import AnswerStore
    from deniable.policy.document import Policy


def withdraw(curator: Curator, column: str, value: str, by: str = "steward") -> Receipt:
    """Leave a person out from now on; asking twice is recorded once. Says nothing on whether there were rows."""
    from deniable.ledger import Act, Posting

    check_unit_column(curator.policy, column)
    withdrawal = Withdrawal(column, value)
    commitment = withdrawal.commitment(_key(curator.cabinet))
    curator.cabinet.keep(COLLECTION, commitment, commitment, withdrawal.written())
    details = {"column": column, "commitment": commitment}
    return curator.ledger.record(Posting(Act.WITHDRAW, analyst=by, request=f"withdraw {commitment}", details=details))


def withdrawn_restriction(policy: Policy, cabinet: AnswerStore, table: str) -> tuple[Listed, ...]:
    """The restriction that leaves out of a table whoever withdrew; none where nobody did."""
    from deniable.engines.base import Listed

    unit = policy.table(table).unit
    values = tuple(each.value for each in _read_withdrawals(cabinet) if unit is not None and each.column == unit.column)
    return (Listed(str(unit.column), values, keep=False),) if unit is not None and values else ()


def leave_out(engine: Engine, policy: Policy, cabinet: AnswerStore, names: Iterable[str]) -> None:
    """Restrict attached tables so that whoever withdrew is in no release."""
    for name in names:
        engine.restrict(name, *withdrawn_restriction(policy, cabinet, name))


def withdrawal_time(curator: Curator, column: str, value: str) -> datetime | None:
    """When this person withdrew; None if not."""
    commitment = Withdrawal(column, value).commitment(_key(curator.cabinet))
    return withdrawals.find_recorded_time(curator.ledger.entries(acts=("withdraw",)), commitment)


def tables_with(curator: Curator, column: str, value: str) -> list[str]:
    """The private tables that hold rows of this person, withdrawn or not. For that person and the steward only."""
    from deniable.curator.scope import Tables
    from deniable.engines.base import Listed

    names = check_unit_column(curator.policy, column)
    tables = Tables(curator.policy, None, curator.tables.sources)
    try:
        engine = tables.attach(*names)
        for name in names:
            engine.restrict(name, Listed(column, (value,), keep=True))
        return [name for name in names if engine.count(name)]
    finally:
        tables.close()


def check_unit_column(policy: Policy, column: str) -> list[str]:
    """The tables in which this column tells people apart; refuses one that does so nowhere."""
    names = [table.name for table in policy.private if table.unit is not None and table.unit.column == column]
    if not names:
        known = sorted({str(t.unit.column) for t in policy.private if t.unit is not None and t.unit.column})
        expected = f"People are told apart by: {', '.join(known)}" if known else "No table has a unit column"
        raise ParameterError(
            f"no table tells people apart by '{column}'", expected=expected, remedy=nearest(column, known)
        )
    return names


def _read_withdrawals(cabinet: AnswerStore) -> list[Withdrawal]:
    return [withdrawals.read_withdrawal(kept) for _, kept in sorted(cabinet.everything(COLLECTION).items())]


def _key(cabinet: AnswerStore) -> bytes:
    return cabinet.keep(KEYS, "withdrawals", "withdrawals", secrets.token_bytes(32))
