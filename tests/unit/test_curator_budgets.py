"""A budget belongs to the people in the data: no way in goes around it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deniable import Curator
from deniable.curator.governance import steward
from deniable.errors import AccessRefused, BudgetExceeded, IntegrityError, PolicyError
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


PERSON = "unit: {column: u, max_groups: 1, max_rows_per_group: 1}"
SPENT = POLICY + BUDGETS.replace("study: {epsilon: 5}", "study: {epsilon: 10, every: month}") % "ana"
SQL = "SELECT SUM(x) AS s FROM t"


@dataclass(frozen=True)
class Spent:
    """A policy whose ledger has spent nine of ten, and a backup from before the last five."""

    policy: Path
    ledger: str

    @property
    def backup(self) -> Path:
        return self.policy.with_suffix(".backup")

    def write(self, name: str, old: str = "", new: str = "", ledger: str = "") -> tuple[Path, str]:
        """Another policy with some words changed, and its ledger: one of its own unless told."""
        path = self.policy.with_name(name)
        path.write_text(self.policy.read_text().replace(old, new) if old else self.policy.read_text())
        return path, ledger or str(path.with_suffix(".ledger.sqlite"))

    def ask(self, policy: Path, ledger: str | None, clock: datetime | None = None) -> None:
        with Curator.open(policy, ledger=ledger) as curator:
            if clock is not None:
                curator.ledger._clock = lambda: clock
            curator.query(SQL, epsilon=5)


def spend_most(folder: Path, ledger: str, dataset: str) -> Spent:
    folder.mkdir()
    (folder / "t.csv").write_text("u,x,g\n" + "".join(f"{n},{n % 10},a\n" for n in range(50)))
    (folder / "policy.yaml").write_text(SPENT.replace("dataset: d\n", f"dataset: {dataset}\n"))
    spent = Spent(folder / "policy.yaml", ledger)
    for number, epsilon in enumerate((4, 5)):
        with Curator.open(spent.policy, ledger=ledger) as curator:
            curator.query(f"SELECT COUNT(*) FROM t WHERE x > {number}", epsilon=epsilon)
        if not number:
            steward.back_up(spent.policy, ledger, spent.backup)
    return spent


def copy_rows(spent: Spent) -> tuple[Path, str]:
    """The same rows in another file, rows and columns in another order."""
    header, *rows = spent.policy.with_name("t.csv").read_text().splitlines()
    turned = [",".join(reversed(line.split(","))) for line in [header, *reversed(rows)]]
    spent.policy.with_name("again.csv").write_text("\n".join(turned) + "\n")
    return spent.write("again.yaml", "source: t.csv", "source: again.csv")


AROUND: dict[str, Callable[[Spent], object]] = {
    "no budgets": lambda spent: spent.ask(
        *spent.write("free.yaml", SPENT.split("g: {categories: [a, b]}}\n")[1], "", spent.ledger)
    ),
    "the name of a role": lambda spent: spent.ask(*spent.write("role.yaml", "{ana:", "{steward:", spent.ledger)),
    "a copied policy": lambda spent: spent.ask(*spent.write("copy.yaml")),
    "a renamed dataset": lambda spent: spent.ask(*spent.write("renamed.yaml", "dataset: d", "dataset: e")),
    "another entry point": lambda spent: spent.ask(spent.policy, None),
    "another unit": lambda spent: spent.ask(*spent.write("rows.yaml", PERSON, "unit: row", spent.ledger)),
    "another file with the same rows": lambda spent: spent.ask(*copy_rows(spent)),
    "a clock of next year": lambda spent: spent.ask(spent.policy, spent.ledger, datetime(2099, 1, 1, tzinfo=UTC)),
    "a restored backup": lambda spent: steward.restore(spent.policy, spent.ledger, spent.backup),
}


@pytest.mark.usefixtures("marked_rows")
@pytest.mark.parametrize("kind", [pytest.param("sqlite", marks=pytest.mark.slow), "postgresql"])
def test_no_way_leads_around_a_budget_in_either_ledger(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    here = tmp_path / "here"
    place = str(here / "policy.ledger.sqlite") if kind == "sqlite" else request.getfixturevalue("postgres_address")
    spent = spend_most(here, place, f"d{kind}")
    for spend in AROUND.values():
        with pytest.raises((AccessRefused, BudgetExceeded, IntegrityError, PolicyError)):
            spend(spent)
    with Curator.open(spent.policy, ledger=place) as curator:
        left = curator.remaining()
        assert left is not None
        assert left.epsilon == 1, "nothing that was refused was charged"
        curator.query(SQL, epsilon=1)
