"""Names that refer to other names: every mention of a column, purpose or key must find what it means."""

from __future__ import annotations

from deniable.errors import nearest
from deniable.policy.checking import Checker, Mention
from deniable.policy.mistakes import Mistakes


def resolve(checker: Checker, mistakes: Mistakes) -> None:
    """Compare all mentions with what the file declares."""
    for mention in checker.mentions:
        if mention.to == "column":
            _column(mention, checker, mistakes)
        else:
            _other(mention, checker, mistakes)


def _column(mention: Mention, checker: Checker, mistakes: Mistakes) -> None:
    """Inside a table a column of that table is meant; elsewhere one of any table, or TABLE.COLUMN."""
    if mention.table:
        known, where = list(checker.columns.get(mention.table, ())), f"table '{mention.table}'"
    else:
        known, where = [c for columns in checker.columns.values() for c in columns], "any table"
        known += [f"{t}.{c}" for t, columns in checker.columns.items() for c in columns if "." in mention.name]
    if mention.name not in known:
        expected = f"Known: {', '.join(known[:12])}{', ...' if len(known) > 12 else ''}" if known else ""
        remedy = nearest(mention.name, known) or f"Declare it among the columns of {where.replace('any', 'a')}"
        mistakes.add(mention.place, f"'{mention.name}' is no column of {where}", expected, remedy)


def _other(mention: Mention, checker: Checker, mistakes: Mistakes) -> None:
    known = checker.declared.get(mention.to, {})
    if mention.name in known or (mention.to == "key" and not known):
        return  # without a keys section, keys are found by name in the key store
    section = {"purpose": "budgets: purposes:", "key": "keys:"}[mention.to]
    expected = f"Known: {', '.join(known)}" if known else f"None is declared under {section}"
    remedy = nearest(mention.name, known) or f"Declare it under {section}"
    mistakes.add(mention.place, f"{mention.to} '{mention.name}' is not declared", expected, remedy)
