"""What a steward may have overlooked in a policy that is valid. It depends on the policy's text alone.

A *note* is for consideration. A *doubt* needs the steward's word: its name under `accepts:`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from deniable.policy.access import Budgets
from deniable.policy.budget import ZCDP, Budget, format_number
from deniable.policy.document import Policy
from deniable.policy.schema import Column, Role, TableSchema

MANY = 10
"""An epsilon or rho above this promises little: an intruder's odds may grow more than twenty-thousandfold."""
LARGE_DELTA = Fraction(1, 1000)
"""With a delta above this, one person in a thousand may be published whole and the promise still be kept."""
SHOWN = 12


@dataclass(frozen=True, slots=True)
class Doubt:
    """Something that protects little: its name under `accepts:`, and what it means."""

    name: str
    words: str


def list_doubts(policy: Policy) -> tuple[Doubt, ...]:
    """What the steward has not stood for yet, one of each name."""
    found = {doubt.name: doubt for doubt in (_find_doubts(policy.budgets) if policy.budgets else ())}
    return tuple(doubt for name, doubt in found.items() if name not in policy.accepts)


def _find_doubts(budgets: Budgets) -> Iterator[Doubt]:
    """Parts are never larger than the dataset's own budget, so that it alone is looked at."""
    amount = _read_amount(budgets.dataset)
    if amount > MANY:
        name = "rho" if isinstance(budgets.dataset, ZCDP) else "epsilon"
        words = f"the dataset's {name} is {format_number(amount)}, above {MANY}: that promises little to the people"
        yield Doubt("much-loss", words)
    if budgets.dataset.delta > LARGE_DELTA:
        delta = format_number(budgets.dataset.delta)
        yield Doubt("large-delta", f"with delta {delta} a person may be published whole with that probability")


def _read_amount(budget: Budget) -> Fraction:
    return budget.rho if isinstance(budget, ZCDP) else budget.epsilon


def list_advice(policy: Policy) -> tuple[str, ...]:
    """Notes in the order of the file."""
    notes = [note for table in policy.private for note in _table(table)]
    if policy.private and policy.budgets is None:
        notes.append("No budgets: private questions will be refused. State how much may be asked under budgets:")
    notes += _list_release_notes(policy)
    if policy.expires is None:
        notes.append("No expiry: say expires: YYYY-MM-DD to have everything refused after a day.")
    return tuple(notes)


def _list_release_notes(policy: Policy) -> Iterator[str]:
    """What releases of rows lack."""
    asked = policy.release.anonymize
    if asked is not None and not asked.models:
        sensitive = [c.name for table in policy.private for c in table.with_role(Role.SENSITIVE)]
        bare = [name for name in dict.fromkeys(sensitive) if name not in asked.l and name not in asked.t]
        if bare:
            yield f"k alone does not hide {_list_names(bare)}: a class may have one value of it. Say l or t for it."
    if policy.private and policy.release.joint is None:
        yield "No limit on what all released columns together single out: say release: {joint: {most: 0.05}}."


def _table(table: TableSchema) -> Iterator[str]:
    unit = table.unit
    if table.edges is not None and unit is not None:
        if unit.network == "node" and table.edges.max_degree is None:
            yield f"{table.name}: without max_degree a fifth of each budget goes into choosing it: say it under edges."
        if table.edges.nodes is None:
            yield f"{table.name}: without a table of nodes there are no groups: say edges: {{nodes: TABLE.COLUMN}}."
        return
    if unit is not None and not unit.is_row and unit.rows_in_all is None:
        yield f"{table.name}: without max_groups and max_rows_per_group (or max_rows) each question must state them."
    identifiers = table.with_role(Role.IDENTIFIER)
    if unit is not None and unit.is_row and identifiers:
        named = _list_names([column.name for column in identifiers])
        yield (
            f"{table.name}: each row is taken for another person, though {named} may repeat. If one does, say "
            "unit: {column: NAME}; `deniable policy check --data` looks."
        )
    undecided = [column.name for column in table.columns if not column.decided]
    if undecided:
        yield f"{table.name}: undecided, and withheld from releases of rows: {_list_names(undecided)}."
    if not table.with_role(Role.QUASI_IDENTIFIER):
        yield f"{table.name}: no column is a quasi-identifier; intruders often know birth dates, places and sexes."
    for column in table.columns:
        for note in _column(column):
            yield f"{table.name}.{column.name}: {note}"


def _list_names(names: list[str]) -> str:
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")


def _column(column: Column) -> Iterator[str]:
    if column.type.numeric and column.bounds is None and column.categories is None:
        yield "without bounds (between) it can be counted but not summed or averaged."
    if column.role is Role.IDENTIFIER and column.mask is None:
        yield "an identifier without a mask is left out of record-level releases."
    if column.role is Role.QUASI_IDENTIFIER and column.hierarchy is None and column.type.value != "boolean":
        yield "a quasi-identifier without a hierarchy can only be kept whole or left out by k-anonymity."
