"""Checking a policy: who is protected and how much, in plain words, and what may have been overlooked."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from deniable.policy.access import Budgets, Period
from deniable.policy.advice import list_advice
from deniable.policy.budget import ZCDP, Budget
from deniable.policy.document import Policy, read
from deniable.policy.grammar import format_number
from deniable.policy.json_schema import Schema, build_json_schema
from deniable.policy.layout.policy_file import POLICY
from deniable.policy.schema import TableSchema
from deniable.policy.tables import SCHEMES
from deniable.release.record import Record


@dataclass(frozen=True, slots=True, eq=False)
class TableSummary(Record):
    """A table of a policy: whom it protects, and how many columns it has of each role."""

    name: str
    source: str
    protects: str
    columns: int
    roles: dict[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class BudgetSummary(Record):
    """The budgets of a policy in words: of the dataset, and by the names of purposes and analysts."""

    dataset: str
    accounting: str
    purposes: dict[str, str]
    analysts: dict[str, str]


@dataclass(frozen=True, slots=True, eq=False)
class PolicySummary(Record):
    """A policy that holds no mistake: who is protected and how much, and what its steward may have overlooked."""

    policy: str
    hash: str
    dataset: str
    expires: str | None
    tables: list[TableSummary]
    budgets: BudgetSummary | None
    notes: list[str]


def check_policy(path: str | Path) -> PolicySummary:
    """Read a policy and describe it; every mistake is raised in one PolicyError."""
    policy = read(path)
    return PolicySummary(
        policy=str(path),
        hash=policy.hash,
        dataset=policy.dataset,
        expires=policy.expires.isoformat() if policy.expires else None,
        tables=[_table(table) for table in policy.tables],
        budgets=_budgets(policy.budgets) if policy.budgets else None,
        notes=[*_find_missing_sources(policy), *list_advice(policy)],
    )


def policy_schema() -> Schema:
    """The JSON Schema of a policy file, for editors."""
    return build_json_schema(POLICY)


def _table(table: TableSchema) -> TableSummary:
    roles = Counter(str(column.role) for column in table.columns)
    return TableSummary(table.name, table.source, _protects(table), len(table.columns), dict(roles))


def _protects(table: TableSchema) -> str:
    unit = table.unit
    if unit is None:
        return "nobody: the table is public"
    bounds = [
        f"{limit} {words}"
        for limit, words in (
            (unit.max_groups, "groups"),
            (unit.max_rows_per_group, "rows in each"),
            (unit.max_rows, "rows in all"),
        )
        if limit is not None
    ]
    limits = f", at most {' and '.join(bounds)}" if bounds else ""
    return f"{unit}{limits} ({unit.neighboring})"


def _budgets(budgets: Budgets) -> BudgetSummary:
    return BudgetSummary(
        dataset=allowance(budgets.dataset),
        accounting=str(budgets.accounting),
        purposes={p.name: allowance(p.allowance) + _renewed(p.every) for p in budgets.purposes},
        analysts={a.name: f"{allowance(a.allowance)} for {', '.join(a.purposes)}" for a in budgets.analysts},
    )


def _renewed(every: Period | None) -> str:
    return f" every {every}" if every else ""


def allowance(budget: Budget) -> str:
    """A budget in words."""
    name, amount = ("rho", budget.rho) if isinstance(budget, ZCDP) else ("epsilon", budget.epsilon)
    delta = f", delta {format_number(budget.delta)}" if budget.delta else ""
    return f"{name} {format_number(amount)}{delta}"


def _find_missing_sources(policy: Policy) -> list[str]:
    """Sources that are plain paths and not there; a policy is valid without its data, but a steward wants to know."""
    plain = [t for t in policy.tables if not t.source.startswith(tuple(f"{s}:" for s in SCHEMES))]
    missing = [t for t in plain if not set("*?[#") & set(t.source) and not policy.path(t.source).exists()]
    return [f"{table.name}: its source is not there yet ({table.source})." for table in missing]
