"""Withdrawing consent: a person's rows are left out of everything from then on, and that is recorded."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from deniable.curator.context import Context
from deniable.errors import ParameterError, nearest
from deniable.governance import withdrawals
from deniable.governance.withdrawals import COLLECTION, KEYS, Withdrawal
from deniable.policy.schema import ColumnType
from deniable.release.record import Record

if TYPE_CHECKING:
    from deniable.ledger import Receipt
    from deniable.ledger.answer_store import AnswerStore
    from deniable.policy.document import Policy


def withdraw(context: Context, column: str, value: str, by: str = "steward") -> Receipt:
    """Leave a person out from now on; asking twice is recorded once. Says nothing on whether there were rows."""
    from deniable.ledger import Act, Posting

    receipts = []
    for form in read_person(context.policy, column, value):
        withdrawal = Withdrawal(column, form)
        commitment = withdrawal.commitment(_key(context.store))
        context.store.keep(COLLECTION, commitment, commitment, withdrawal.to_bytes())
        details, request = {"column": column, "commitment": commitment}, f"withdraw {commitment}"
        receipts.append(context.ledger.record(Posting(Act.WITHDRAW, analyst=by, request=request, details=details)))
    return receipts[-1]


@dataclass(frozen=True, slots=True, eq=False)
class Reach(Record):
    """The tables that a withdrawal leaves a person out of, and the others with the column that tells people apart."""

    left_out_of: list[str]
    not_left_out_of: dict[str, str]


def find_reach(policy: Policy, column: str) -> Reach:
    """Where a person is left out by a value of this column, and where by another column or not at all."""
    names = check_unit_column(policy, column)
    others = (table for table in policy.private if table.name not in names)
    return Reach(names, {table.name: (table.unit.column if table.unit else None) or "" for table in others})


def read_person(policy: Policy, column: str, value: str) -> tuple[str, ...]:
    """A value of the column that tells people apart, in the form of each type that tables declare it with.

    Refuses what no such table can hold: a withdrawal that matches nobody must not be confirmed.
    """
    columns = (policy.table(name).column(column) for name in check_unit_column(policy, column))
    kinds = tuple(dict.fromkeys(each.type if each else ColumnType.TEXT for each in columns))
    forms = tuple(dict.fromkeys(form for kind in kinds if (form := _parse_person(value, kind)) is not None))
    if not forms:
        expected = " or ".join(f"{kind}, such as {EXAMPLES[kind]}" for kind in kinds)
        raise ParameterError(
            f"the value given is none that '{column}' can have", expected=f"The policy declares it as {expected}",
            remedy="Nobody was left out: give the value as the table has it",
        )  # fmt: skip
    return forms


EXAMPLES = {
    ColumnType.INTEGER: "1042",
    ColumnType.DECIMAL: "10.5",
    ColumnType.TEXT: "p-1042",
    ColumnType.BOOLEAN: "true",
    ColumnType.DATE: "2002-02-28",
    ColumnType.DATETIME: "2002-02-28 12:30:00",
}


def _parse_person(value: str, kind: ColumnType) -> str | None:
    """The one way to write a value of a type; None where it is no such value."""
    try:
        return _PARSERS[kind](value)
    except (ValueError, ArithmeticError):
        return None


def _parse_decimal(value: str) -> str | None:
    number = Decimal(value)
    return format(number.normalize(), "f") if number.is_finite() else None


def _parse_moment(value: str) -> str:
    moment = datetime.fromisoformat(value)
    return (moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment).isoformat(sep=" ")


_PARSERS: Mapping[ColumnType, Callable[[str], str | None]] = {
    ColumnType.INTEGER: lambda value: str(int(value)),
    ColumnType.DECIMAL: _parse_decimal,
    ColumnType.TEXT: lambda value: value or None,
    ColumnType.BOOLEAN: lambda value: value.lower() if value.lower() in ("true", "false") else None,
    ColumnType.DATE: lambda value: date.fromisoformat(value).isoformat(),
    ColumnType.DATETIME: _parse_moment,
}


def withdrawal_time(context: Context, column: str, value: str) -> datetime | None:
    """When this person withdrew; None if not."""
    key, recorded = _key(context.store), list(context.ledger.entries(acts=("withdraw",)))
    forms = dict.fromkeys((*read_person(context.policy, column, value), value))  # or as it was written in earlier times
    times = (withdrawals.find_recorded_time(recorded, Withdrawal(column, form).commitment(key)) for form in forms)
    return next((time for time in times if time is not None), None)


def tables_with(context: Context, column: str, value: str) -> list[str]:
    """The private tables that hold rows of this person, withdrawn or not. For that person and the steward only."""
    names, forms = check_unit_column(context.policy, column), read_person(context.policy, column, value)
    holding = {name for form in forms for name in context.scope.tables_holding(column, form, names)}
    return [name for name in names if name in holding]


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
