"""What a steward may have overlooked: notes on a policy that is valid. They depend on its text alone."""

from __future__ import annotations

from collections.abc import Iterator

from deniable.policy.document import Policy
from deniable.policy.schema import Column, Role, TableSchema

MANY = 10
"""An epsilon above this promises little: an intruder's odds may grow more than twenty-thousandfold."""


def list_advice(policy: Policy) -> tuple[str, ...]:
    """Notes in the order of the file."""
    notes = [note for table in policy.private for note in _table(table)]
    if policy.private and policy.budgets is None:
        notes.append("No budgets: private questions will be refused. State how much may be asked under budgets:")
    if policy.budgets is not None and getattr(policy.budgets.dataset, "epsilon", 0) > MANY:
        notes.append(f"The dataset's epsilon is above {MANY}: that promises little to the people in it.")
    if policy.expires is None:
        notes.append("No expiry: say expires: YYYY-MM-DD to have everything refused after a day.")
    return tuple(notes)


def _table(table: TableSchema) -> Iterator[str]:
    unit = table.unit
    if unit is not None and not unit.is_row and unit.rows_in_all is None:
        yield f"{table.name}: without max_groups and max_rows_per_group (or max_rows) each question must state them."
    if not table.with_role(Role.QUASI_IDENTIFIER):
        yield f"{table.name}: no column is a quasi-identifier; intruders often know birth dates, places and sexes."
    for column in table.columns:
        for note in _column(column):
            yield f"{table.name}.{column.name}: {note}"


def _column(column: Column) -> Iterator[str]:
    if column.type.numeric and column.bounds is None and column.categories is None:
        yield "without bounds (between) it can be counted but not summed or averaged."
    if column.role is Role.IDENTIFIER and column.mask is None:
        yield "an identifier without a mask is left out of record-level releases."
    if column.role is Role.QUASI_IDENTIFIER and column.hierarchy is None and column.type.value != "boolean":
        yield "a quasi-identifier without a hierarchy can only be kept whole or left out by k-anonymity."
