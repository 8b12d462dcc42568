"""Withdrawing consent: a person's rows are left out of everything from then on, and that is recorded."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING

from deniable.curator.context import Context
from deniable.errors import AccessRefused, DeniableError, ParameterError, nearest
from deniable.governance import withdrawals
from deniable.governance.grants import Grant, Role, Subject
from deniable.governance.withdrawals import COLLECTION, KEYS, Withdrawal, read_withdrawal
from deniable.policy.schema import ColumnType, normalize_spelling
from deniable.release.record import Record

if TYPE_CHECKING:
    from deniable.ledger import Entry, Receipt
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
        times = _count_reinstated(context, commitment)
        request += f" {times}" if times else ""  # after a person was taken in again it is another withdrawal
        receipts.append(context.ledger.record(Posting(Act.WITHDRAW, analyst=by, request=request, details=details)))
    _tell_witness(context)
    return receipts[-1]


def _tell_witness(context: Context) -> None:
    """Have the user's record of ledgers know who withdrew; if it cannot be written now, then at the next opening."""
    from deniable.ledger.witness import Witness

    if context.place:
        with suppress(DeniableError):
            listed = partial(withdrawals.list_people, context.ledger, context.store)
            Witness().note_people(context.place, context.ledger, listed)


def reinstate(context: Context, column: str, value: str, reason: str, by: str = "steward") -> Receipt:
    """Take a person in again who withdrew, by the steward and with a reason; refused where nobody of that value did."""
    from deniable.ledger import Act, Posting

    if not reason.strip():
        raise ParameterError("taking a withdrawal back needs a reason", remedy="Say how the person agreed to it")
    known = dict.fromkeys((*_commit_person(context, column, value), *_find_spellings(context, column, value)))
    standing = [each for each in known if _is_withdrawn(context, each)]
    if not standing:
        raise ParameterError(
            f"nobody with the value given withdrew by '{column}'", remedy="Look at it: deniable subject"
        )
    details = {"column": column, "reason": reason}
    acts = [Posting(Act.REINSTATE, analyst=by, details={**details, "commitment": each}) for each in standing]
    done = [context.ledger.record(act) for act in acts][-1]
    _tell_witness(context)
    return done


def _find_spellings(context: Context, column: str, value: str) -> list[str]:
    """The digests of those who withdrew by another way to write the value: as numbers, 01 and 1.0 are 1."""
    named, linked = _name_person(context.policy, column, value), context.policy.same_people(column)
    listed = ((name, read_withdrawal(kept)) for name, kept in context.store.list_all(COLLECTION).items())
    return [
        name
        for name, each in listed
        if each.column in linked and named & _name_person(context.policy, column, each.value)
    ]


def _name_person(policy: Policy, column: str, value: str) -> set[str]:
    """The forms of a value that leave out the same person: as the linked columns declare it, and as a number."""
    return {normalize_spelling(each) for each in _add_number(_read_forms(policy, column, value), policy, column, value)}


def _add_number(forms: Iterable[str], policy: Policy, column: str, value: str) -> list[str]:
    """Forms of a value, with the one way to write it as a number where people may be numbers."""
    number = _parse_person(value, ColumnType.DECIMAL) if policy.has_numbered_people(column) else None
    return list(dict.fromkeys((*forms, *(() if number is None else (number,)))))


def commit_subject(context: Context, column: str, value: str) -> Subject:
    """The person whom a respondent's token is for, without the value."""
    key = _key(context.store)
    forms = _add_number(read_person(context.policy, column, value), context.policy, column, value)
    return Subject(column, tuple(Withdrawal(column, form).commitment(key) for form in forms))


def refuse_other_subject(context: Context, grant: Grant, column: str, value: str) -> None:
    """Refuse a respondent who asks for somebody else: a withdrawal or a report is for the person of the grant alone.

    The steward may act for anybody. The refusal is the same whether or not the other person is in the data.
    """
    if grant.role is not Role.RESPONDENT:
        return
    named = grant.subject.commitments if grant.subject is not None else ()
    if not {*named} & {*_commit_person(context, column, value)}:
        raise AccessRefused(
            "this token is for another person",
            expected="A respondent asks for nobody but the person whom the token names",
            remedy="Ask the steward for a token of your own",
        )


def _commit_person(context: Context, column: str, value: str) -> tuple[str, ...]:
    """Every digest that the record may hold of a person: by each linked column, in each form."""
    key, columns = _key(context.store), context.policy.same_people(column)
    forms = _add_number((*read_person(context.policy, column, value), value), context.policy, column, value)
    found = (each for name in columns for form in forms for each in Withdrawal(name, form).commitments(key))
    return tuple(dict.fromkeys(found))


def _is_withdrawn(context: Context, commitment: str) -> bool:
    return commitment not in context.state.withdrawals()[1] and context.store.find(COLLECTION, commitment) is not None


def _count_reinstated(context: Context, commitment: str) -> int:
    acts = context.ledger.entries(acts=("reinstate",))
    return sum(entry.details["commitment"] == commitment for entry in acts)


@dataclass(frozen=True, slots=True, eq=False)
class Reach(Record):
    """The tables that a withdrawal leaves a person out of, and the others with the column that tells people apart."""

    left_out_of: list[str]
    not_left_out_of: dict[str, str]


def find_reach(policy: Policy, column: str) -> Reach:
    """Where a person is left out by a value of this column, and where by another column or not at all."""
    names = check_unit_column(policy, column)
    own = [table for table in policy.private if table.unit is None or not table.unit.via]
    linked = policy.same_people(column)
    networks = [table.name for table in own if table.edges is not None and table.person in linked]
    # Rows that lead to a person through another table are left out with that table's.
    steps = [(table.name, table.unit.via[-1].table) for table in policy.private if table.unit and table.unit.via]
    led = [name for name, last in steps if last in names and name not in names]
    others = (table for table in own if table.name not in (*names, *networks))
    return Reach(
        [*names, *networks, *led], {table.name: (table.unit.column if table.unit else None) or "" for table in others}
    )


def read_person(policy: Policy, column: str, value: str) -> tuple[str, ...]:
    """A value of the column that tells people apart, in the form of each type that tables declare it with.

    Refuses what no such table can hold: a withdrawal that matches nobody must not be confirmed.
    """
    forms = _read_forms(policy, column, value)
    if not forms:
        kinds = _list_kinds(policy, column)
        expected = " or ".join(f"{kind}, such as {EXAMPLES[kind]}" for kind in kinds)
        raise ParameterError(
            f"the value given is none that '{column}' can have", expected=f"The policy declares it as {expected}",
            remedy="Nobody was left out: give the value as the table has it",
        )  # fmt: skip
    return forms


def _read_forms(policy: Policy, column: str, value: str) -> tuple[str, ...]:
    parsed = (_parse_person(value, kind) for kind in _list_kinds(policy, column))
    return tuple(dict.fromkeys(form for form in parsed if form is not None))


def _list_kinds(policy: Policy, column: str) -> tuple[ColumnType, ...]:
    columns = (policy.table(name).column(own) for name, own in check_unit_column(policy, column).items())
    return tuple(dict.fromkeys(each.type if each else ColumnType.TEXT for each in columns))


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


MOST_WHOLE = 2**63
"""No column of whole numbers holds one of this size."""
WHOLE = re.compile(r"-?[0-9]+")
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
DAY = re.compile(r"[0-9]{4}(-[0-9]{2}-[0-9]{2}|[0-9]{4})")
MOMENT = re.compile(DAY.pattern + r"([ Tt][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?([Zz]|[+-][0-9]{2}:[0-9]{2})?)?")


def _take_form(value: str, form: re.Pattern[str]) -> str:
    """A value with plain digits and without spaces around it, if it is written in a form.

    Python reads more than people mean: 7_7 as 77, 2002-W09-4 as a day.
    """
    plain = normalize_spelling(value)
    if form.fullmatch(plain) is None:
        raise ValueError
    return plain


def _parse_whole(value: str) -> str:
    number = int(_take_form(value, WHOLE))
    if abs(number) >= MOST_WHOLE:
        raise ValueError
    return str(number)


def _parse_decimal(value: str) -> str:
    number = Decimal(_take_form(value, NUMBER))
    return format(number.normalize() + 0, "f")


def _parse_moment(value: str) -> str:
    moment = datetime.fromisoformat(_take_form(value, MOMENT))
    return (moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment).isoformat(sep=" ")


_PARSERS: Mapping[ColumnType, Callable[[str], str | None]] = {
    ColumnType.INTEGER: _parse_whole,
    ColumnType.DECIMAL: _parse_decimal,
    ColumnType.TEXT: lambda value: value if normalize_spelling(value) else None,
    ColumnType.BOOLEAN: lambda value: value.lower() if value.lower() in ("true", "false") else None,
    ColumnType.DATE: lambda value: date.fromisoformat(_take_form(value, DAY)).isoformat(),
    ColumnType.DATETIME: _parse_moment,
}


def withdrawal_time(context: Context, column: str, value: str) -> datetime | None:
    """Since when this person is withdrawn; None if not, or no longer."""
    found = find_withdrawal(context, column, value)
    return None if found is None else found.time


def find_withdrawal(context: Context, column: str, value: str) -> Entry | None:
    """The entry of this person's withdrawal, where it still stands."""
    if not context.state.withdrawals()[0]:
        read_person(context.policy, column, value)  # refuses what cannot be a person
        return None  # whoever may only read draws no key
    sought, found = {*_commit_person(context, column, value), *_find_spellings(context, column, value)}, None
    for act in context.ledger.entries(acts=withdrawals.ACTS):
        if act.details.get("commitment") in sought:
            found = (found or act) if act.act == "withdraw" else None
    return found


def tables_with(context: Context, column: str, value: str) -> list[str]:
    """The private tables that hold rows of this person, withdrawn or not. For that person and the steward only."""
    names, forms = check_unit_column(context.policy, column), read_person(context.policy, column, value)
    return context.scope.tables_holding(forms, names)


def check_unit_column(policy: Policy, column: str) -> dict[str, str]:
    """The tables in which this column, or one linked to it, tells people apart, each with its own; refuses none."""
    own = [table for table in policy.private if table.unit is not None and not table.unit.via]
    units = {table.name: table.unit.column for table in own if table.unit is not None and table.unit.column}
    if column not in units.values():
        known = sorted({*units.values()})
        expected = f"People are told apart by: {', '.join(known)}" if known else "No table has a unit column"
        raise ParameterError(
            f"no table tells people apart by '{column}'", expected=expected, remedy=nearest(column, known)
        )
    linked = policy.same_people(column)
    return {name: own for name, own in units.items() if own in linked}


def _key(store: AnswerStore) -> bytes:
    return store.keep(KEYS, "withdrawals", "withdrawals", secrets.token_bytes(32))
