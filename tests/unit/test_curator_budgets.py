"""A budget belongs to the people in the data: no way in goes around it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deniable import Curator
from deniable.errors import AccessRefused, BudgetExceeded, PolicyError
from deniable.governance.grants import Asker, Role
from deniable.policy.document import parse

POLICY = """
version: 1
dataset: d
tables:
  t:
    source: t.csv
    unit: {column: u, max_groups: 1, max_rows_per_group: 1}
    columns: {u: {type: integer}, x: {type: integer, between: [0, 10]}, g: {categories: [a, b]}}
"""
BUDGETS = "budgets: {dataset: {epsilon: 10}, purposes: {study: {epsilon: 5}}, analysts: {%s: {purposes: [study]}}}\n"
ROWS = pa.table({"u": list(range(50)), "x": [n % 10 for n in range(50)], "g": ["a", "b"] * 25})
WAYS: dict[str, Callable[[Curator], Any]] = {
    "a question": lambda curator: curator.query("SELECT COUNT(*) FROM t", epsilon=5000),
    "an analyst's question": lambda curator: curator.query(
        "SELECT COUNT(*) FROM t", epsilon=1, who=Asker("eve", "anything", Role.ANALYST)
    ),
    "top groups": lambda curator: curator.top("t", "g", 1, epsilon=1),
    "a watch": lambda curator: curator.watch("SELECT COUNT(*) FROM t", 10, epsilon=1),
    "bounds": lambda curator: curator.find_bounds("t", "x", epsilon=1),
    "blocks": lambda curator: curator.sample_and_aggregate(lambda rows: 1.0, "t", blocks=4, bounds=(0, 2), epsilon=1),
    "a model": lambda curator: curator.train("t", "x", features=["g"], epsilon=1),
}


@pytest.mark.parametrize("ask", WAYS.values(), ids=WAYS)
def test_without_budgets_nothing_is_answered_about_people(ask: Callable[[Curator], Any]) -> None:
    with Curator(parse(POLICY), sources={"t": ROWS}) as curator:
        with pytest.raises(BudgetExceeded, match="no budgets"):
            ask(curator)
        assert list(curator.ledger.entries()) == []


@pytest.mark.parametrize("name", ["steward", "Steward", "auditor"])
def test_no_analyst_has_the_name_of_a_role(name: str) -> None:
    with pytest.raises(PolicyError, match="the name of a role"):
        parse(POLICY + BUDGETS % name)
    with pytest.raises(AccessRefused, match="the name of a role"):
        Asker(name, "study", Role.ANALYST)


def test_python_spends_from_the_ledger_that_the_command_line_spends_from(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(POLICY + BUDGETS % "ana", encoding="utf-8")
    (tmp_path / "t.csv").write_text("u,x,g\n" + "".join(f"{n},{n % 10},a\n" for n in range(50)), encoding="utf-8")
    with Curator.open(tmp_path / "policy.yaml") as first:
        first.query("SELECT COUNT(*) FROM t", epsilon=8)
    assert (tmp_path / "policy.ledger.sqlite").exists()
    with Curator.open(tmp_path / "policy.yaml") as second, pytest.raises(BudgetExceeded):
        second.query("SELECT SUM(x) FROM t", epsilon=3)
    with (
        Curator.open(tmp_path / "policy.yaml", ledger=None) as apart,
        pytest.raises(AccessRefused, match="have a budget already"),
    ):
        apart.query("SELECT SUM(x) FROM t", epsilon=3)


def test_one_file_has_one_unit_in_a_policy_whatever_its_tables_are_called(tmp_path: Path) -> None:
    (tmp_path / "visits.csv").write_text("id,age\n" + "".join(f"{i % 5},{i}\n" for i in range(20)))
    (tmp_path / "policy.yaml").write_text(
        "version: 1\ndataset: clinic\ntables:\n"
        "  visits: {source: visits.csv, unit: {column: id, max_groups: 1, max_rows_per_group: 4},"
        " columns: {id: {type: integer, role: identifier}, age: {type: integer, role: insensitive}}}\n"
        "  again: {source: visits.csv, unit: row,"
        " columns: {id: {type: integer, role: insensitive}, age: {type: integer, role: insensitive}}}\n"
        "budgets: {dataset: {epsilon: 1}}\n"
    )
    with pytest.raises(PolicyError, match="protect different units"):
        Curator.open(tmp_path / "policy.yaml")
