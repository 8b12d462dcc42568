"""A budget belongs to the people in the data: no way in goes around it."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from pyarrow import csv
from typer.testing import CliRunner

from deniable import Curator
from deniable.cli.main import narrow_app
from deniable.client.connection import connect
from deniable.curator.governance import steward
from deniable.curator.scope import Scope
from deniable.errors import AccessRefused, BudgetExceeded, IntegrityError, ParameterError, PolicyError, StorageError
from deniable.governance.grants import Asker, Role
from deniable.policy.document import parse, read
from deniable.server.limits import Limits
from deniable.storage import lock_output

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


TIMED: dict[str, Callable[[Curator, Any], Any]] = {
    "a question": lambda curator, seconds: curator.query("SELECT COUNT(*) FROM t", epsilon=1, seconds=seconds),
    "bounds first": lambda curator, seconds: curator.query(
        "SELECT SUM(AUTO_CLAMP(x)) FROM t", epsilon=1, seconds=seconds
    ),
    "a batch": lambda curator, seconds: curator.query_batch(["SELECT COUNT(*) FROM t"], epsilon=1, seconds=seconds),
    "k-anonymous rows": lambda curator, seconds: curator.anonymize("t", k=2, quasi_identifiers=["g"], seconds=seconds),
    "an attack": lambda curator, seconds: curator.attack("t.csv", seconds=seconds),
    "a client": lambda _, seconds: connect("http://127.0.0.1:1", "token", timeout=seconds),
    "a server": lambda _, seconds: Limits(seconds=seconds),
    "a server's headers": lambda _, seconds: Limits(header_seconds=seconds),
}


@pytest.mark.parametrize("way", TIMED.values(), ids=TIMED)
@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "5"])
def test_a_time_limit_that_leaves_no_time_is_refused_before_a_charge(
    way: Callable[[Curator, Any], Any], seconds: object
) -> None:
    with Curator(parse(POLICY + BUDGETS % "ana"), sources={"t": ROWS}) as curator:
        told = r"time limit of .* seconds\. More than 0 seconds|(seconds|timeout) is a text\. It is a number"
        with pytest.raises(ParameterError, match=told):
            way(curator, seconds)
        assert list(curator.ledger.entries()) == []


WRITERS: dict[str, Callable[[Curator, Path], Any]] = {
    "anonymize": lambda curator, out: curator.anonymize("t", out, k=2, quasi_identifiers=["g"]),
    "synthesize": lambda curator, out: curator.synthesize("t", out, epsilon=1, delta="1e-6", columns=["g"]),
    "randomize": lambda curator, out: curator.randomize("t", out, epsilon=1, columns=["g"]),
    "train": lambda curator, out: curator.train("t", "x", features=["g"], epsilon=1, out=out),
}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_of_two_processes_that_write_one_file_one_does_and_the_other_is_refused_before_a_charge(
    write: Callable[[Curator, Path], Any], tmp_path: Path
) -> None:
    """Each removed what the other wrote, after both were charged."""
    text = POLICY.replace("[a, b]}", "[a, b], role: quasi-identifier}").replace("x: {", "x: {role: insensitive, ")
    policy, out = (
        parse(text + BUDGETS.replace("epsilon: 10", "epsilon: 10, delta: 1e-3, accounting: zcdp") % "ana"),
        tmp_path / "out",
    )
    with Curator(policy, sources={"t": ROWS}) as curator:
        with lock_output(out.with_suffix(".parquet")):
            with pytest.raises(StorageError, match=r"another process writes 'out\.parquet'.*Nothing was charged"):
                write(curator, out.with_suffix(".parquet"))
            assert list(curator.ledger.entries()) == []
        write(curator, out.with_suffix(".parquet"))
    assert not list(tmp_path.glob(".*")), "no lock is left"


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

    @contextmanager
    def keep_storage(self) -> Iterator[None]:
        """Put the storage back as it is now."""
        self._copy("now")
        try:
            yield
        finally:
            self._put("now")

    def copy_storage(self) -> None:
        """Copy the storage as it is, by what copies files or databases."""
        self._copy("older")

    def put_older_storage(self) -> None:
        self._put("older")

    def _copy(self, name: str) -> None:
        if "://" in self.ledger:
            copy_database(self.ledger, self._name, f"{self._name}{name}")
            return
        for path in self._files:
            with sqlite3.connect(path) as one, sqlite3.connect(path.with_suffix(f".{name}")) as other:
                one.backup(other)

    def _put(self, name: str) -> None:
        if "://" in self.ledger:
            copy_database(self.ledger, f"{self._name}{name}", self._name)
            return
        for path in self._files:
            for log in ("-wal", "-shm"):
                path.with_name(path.name + log).unlink(missing_ok=True)
            shutil.copy(path.with_suffix(f".{name}"), path)

    @property
    def _name(self) -> str:
        return urlsplit(self.ledger).path.lstrip("/")

    @property
    def _files(self) -> tuple[Path, Path]:
        return Path(self.ledger), Path(self.ledger).with_suffix(".kept.sqlite")


def make_database(address: str, name: str) -> str:
    copy_database(address, "template1", name)
    return urlsplit(address)._replace(path=f"/{name}").geturl()


def copy_database(address: str, one: str, other: str) -> None:
    """Put a copy of a database in the place of another, which is gone then."""
    import psycopg

    with psycopg.connect(urlsplit(address)._replace(path="/postgres").geturl(), autocommit=True) as owner:
        owner.execute(f"DROP DATABASE IF EXISTS {other} WITH (FORCE)")  # type: ignore[call-overload]
        owner.execute(f"CREATE DATABASE {other} TEMPLATE {one}")  # type: ignore[call-overload]


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
            spent.copy_storage()
    return spent


def copy_rows(spent: Spent) -> tuple[Path, str]:
    """The same rows in another file, rows and columns in another order."""
    header, *rows = spent.policy.with_name("t.csv").read_text().splitlines()
    turned = [",".join(reversed(line.split(","))) for line in [header, *reversed(rows)]]
    spent.policy.with_name("again.csv").write_text("\n".join(turned) + "\n")
    return spent.write("again.yaml", "source: t.csv", "source: again.csv")


def copy_folder(spent: Spent) -> tuple[Path, str]:
    """The policy and its rows in another folder, under other names."""
    there = spent.policy.parent.parent / "there"
    there.mkdir(exist_ok=True)
    shutil.copy(spent.policy.with_name("t.csv"), there / "people.csv")
    (there / "study.yaml").write_text(spent.policy.read_text().replace("t.csv", "people.csv"))
    return there / "study.yaml", str(there / "study.ledger.sqlite")


def ask_by_command(spent: Spent, *words: str) -> None:
    given = ["query", SQL, "--epsilon", "5", "-p", str(spent.policy), *words]
    failure = CliRunner().invoke(narrow_app(given), given).exception
    if failure is not None:
        raise failure


def ask_frame(spent: Spent) -> None:
    with Curator.from_frame(csv.read_csv(spent.policy.with_name("t.csv")), unit="u", budget=10) as curator:
        curator.query("SELECT SUM(CLAMP(x, 0, 10)) AS s FROM data", epsilon=5)


def ask_in_memory(spent: Spent, rows: pa.Table | None = None) -> None:
    with Curator(read(spent.policy), sources={"t": rows} if rows is not None else {}) as curator:
        curator.query(SQL, epsilon=5)


def ask_as(spent: Spent, who: Asker) -> None:
    with Curator.open(spent.policy, ledger=spent.ledger) as curator:
        curator.query(SQL, epsilon=5, who=who)


def issue(spent: Spent, name: str) -> None:
    """A token for an analyst of that name."""
    steward.new_token(spent.policy, spent.ledger, name, "analyst", ["study"], 1)


def restore_elsewhere(spent: Spent, *, lost: bool) -> None:
    """The backup at a place where no ledger is."""
    place = str(spent.policy.with_name("restored.ledger.sqlite"))
    steward.restore(spent.policy, place, spent.backup, lost=lost, by="sam", reason="a disk broke")


def roll_back(spent: Spent) -> None:
    """The storage itself as it was at the time of the backup, whatever copied it; put back afterwards."""
    with spent.keep_storage():
        spent.put_older_storage()
        spent.ask(spent.policy, spent.ledger)


PUBLIC = "  p: {source: t.csv, public: true, columns: {x: {type: integer}}}\nbudgets:"
HELD, ROLE = "have a budget already, in the ledger", "the name of a role"
AROUND: dict[str, tuple[Callable[[Spent], object], str]] = {
    "no budgets": (
        lambda spent: spent.ask(*spent.write("free.yaml", SPENT.splitlines()[-1], "", spent.ledger)),
        "sets no budgets",
    ),
    "an unlisted analyst with an invented purpose": (
        lambda spent: ask_as(spent, Asker("eve", "anything", Role.ANALYST)), "no purpose 'anything'",
    ),
    "an analyst called steward": (
        lambda spent: spent.ask(*spent.write("role.yaml", "{ana:", "{steward:", spent.ledger)), ROLE,
    ),
    "a token for an analyst called steward": (lambda spent: issue(spent, "steward"), ROLE),
    "an analyst who looks like a steward": (
        lambda spent: spent.ask(*spent.write("alike.yaml", "{ana:", "{stew\u0430rd:", spent.ledger)), "looks like",
    ),
    "an analyst who looks like another": (
        lambda spent: spent.ask(
            *spent.write("twins.yaml", "{ana:", "{lan: {purposes: [study]}, Ian:", spent.ledger)
        ),
        "'Ian' looks like 'lan'",
    ),
    "a token for who looks like an analyst": (lambda spent: issue(spent, "\u0430n\u0430"), "looks like 'ana'"),
    "a copied policy": (lambda spent: spent.ask(*spent.write("copy.yaml")), HELD),
    "a policy in another folder": (lambda spent: spent.ask(*copy_folder(spent)), HELD),
    "a renamed dataset": (lambda spent: spent.ask(*spent.write("renamed.yaml", "dataset: d", "dataset: e")), HELD),
    "a renamed dataset in the same place": (
        lambda spent: spent.ask(*spent.write("other.yaml", "dataset: d", "dataset: e", spent.ledger)),
        f"{HELD}|belongs to dataset",
    ),
    "Python without a ledger": (lambda spent: spent.ask(spent.policy, None), HELD),
    "Python in memory": (ask_in_memory, HELD),
    "rows at hand": (lambda spent: ask_in_memory(spent, ROWS), HELD),
    "a frame": (ask_frame, HELD),
    "the command line": (lambda spent: ask_by_command(spent, "--ledger", spent.ledger), "asked epsilon 5, remaining 1"),
    "the command line with a ledger of its own": (
        lambda spent: ask_by_command(spent, "--ledger", str(spent.policy.with_name("own.sqlite"))), HELD,
    ),
    "another unit": (
        lambda spent: spent.ask(*spent.write("rows.yaml", PERSON, "unit: row", spent.ledger)), "and would now be as",
    ),
    "another unit in a ledger of its own": (
        lambda spent: spent.ask(*spent.write("single.yaml", PERSON, "unit: row")), HELD,
    ),
    "the file as a public table": (
        lambda spent: spent.ask(*spent.write("open.yaml", "budgets:", PUBLIC, spent.ledger)), "private or public",
    ),
    "another file with the same rows": (lambda spent: spent.ask(*copy_rows(spent)), HELD),
    "a clock of next year": (
        lambda spent: spent.ask(spent.policy, spent.ledger, datetime(2099, 1, 1, tzinfo=UTC)), "remaining 1",
    ),
    "a clock of last year": (
        lambda spent: spent.ask(spent.policy, spent.ledger, datetime(2001, 1, 1, tzinfo=UTC)), "remaining 1",
    ),
    "a backup in the ledger's place": (
        lambda spent: steward.restore(spent.policy, spent.ledger, spent.backup), "when it was last used|already",
    ),
    "a backup beside the ledger": (lambda spent: restore_elsewhere(spent, lost=False), HELD),
    "a backup beside the ledger, which is said to be lost": (lambda spent: restore_elsewhere(spent, lost=True), HELD),
    "an older copy of the storage": (roll_back, "when it was last used"),
}  # fmt: skip


@pytest.fixture(scope="module", params=[pytest.param("sqlite", marks=pytest.mark.slow), "postgresql"])
def spent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Spent:
    """Nine of ten are spent, in a ledger of either kind."""
    folder = tmp_path_factory.mktemp(f"spent{request.param}")
    place = str(folder / "here" / "policy.ledger.sqlite")
    if request.param == "postgresql":
        place = make_database(request.getfixturevalue("postgres_address"), "around")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DENIABLE_STATE", str(folder / "state"))
        patch.setenv("PGUSER", "deniable")
        patch.setattr(Scope, "sketch_rows", request.getfixturevalue("sketch_rows"))
        return spend_most(folder / "here", place, f"d{request.param}")


@pytest.mark.usefixtures("marked_rows")
@pytest.mark.parametrize("way", AROUND)
def test_no_way_leads_around_a_budget_in_either_ledger(way: str, spent: Spent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DENIABLE_STATE", str(spent.policy.parent.parent / "state"))
    monkeypatch.setenv("PGUSER", "deniable")
    spend, account = AROUND[way]
    with pytest.raises((AccessRefused, BudgetExceeded, IntegrityError, PolicyError), match=account):
        spend(spent)
    with Curator.open(spent.policy, ledger=spent.ledger) as curator:
        left = curator.remaining()
        assert left is not None
        assert left.epsilon == 1, "nothing that was refused was charged, and nothing was given back"
        assert sum(entry.act == "charge" for entry in curator.ledger.entries()) == 2


@pytest.mark.usefixtures("marked_rows")
def test_what_is_left_can_be_spent_by_who_may(spent: Spent, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The tests above refuse what goes around the budget, and not every question."""
    monkeypatch.setenv("DENIABLE_STATE", str(shutil.copytree(spent.policy.parent.parent / "state", tmp_path / "state")))
    with Curator.open(spent.policy, ledger=spent.ledger) as curator:
        assert curator.query("SELECT COUNT(*) FROM t WHERE x > 0", epsilon=4).repeated
        assert curator.explain(SQL, epsilon=1).more_like_this == 1
