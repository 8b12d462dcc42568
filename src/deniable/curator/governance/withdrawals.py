"""Withdrawing consent: a person's rows are left out of everything from then on, and that is recorded."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import TYPE_CHECKING

from deniable.curator.context import Context
from deniable.errors import ParameterError, nearest
from deniable.governance import withdrawals
from deniable.governance.withdrawals import COLLECTION, KEYS, Withdrawal

if TYPE_CHECKING:
    from deniable.ledger import Receipt
    from deniable.ledger.answer_store import AnswerStore
    from deniable.policy.document import Policy


def withdraw(context: Context, column: str, value: str, by: str = "steward") -> Receipt:
    """Leave a person out from now on; asking twice is recorded once. Says nothing on whether there were rows."""
    from deniable.ledger import Act, Posting

    check_unit_column(context.policy, column)
    withdrawal = Withdrawal(column, value)
    commitment = withdrawal.commitment(_key(context.store))
    context.store.keep(COLLECTION, commitment, commitment, withdrawal.to_bytes())
    details = {"column": column, "commitment": commitment}
    return context.ledger.record(Posting(Act.WITHDRAW, analyst=by, request=f"withdraw {commitment}", details=details))


def withdrawal_time(context: Context, column: str, value: str) -> datetime | None:
    """When this person withdrew; None if not."""
    commitment = Withdrawal(column, value).commitment(_key(context.store))
    return withdrawals.find_recorded_time(context.ledger.entries(acts=("withdraw",)), commitment)


def tables_with(context: Context, column: str, value: str) -> list[str]:
    """The private tables that hold rows of this person, withdrawn or not. For that person and the steward only."""
    return context.scope.tables_holding(column, value, check_unit_column(context.policy, column))


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


def _key(store: AnswerStore) -> bytes:
    return store.keep(KEYS, "withdrawals", "withdrawals", secrets.token_bytes(32))
