"""A ledger begins with its first entry: what was refused before that leaves no file, and no claim on anybody's rows."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deniable import Curator
from deniable.cli.main import app
from deniable.curator.governance.steward import restore, separate
from deniable.errors import AccessRefused, BudgetExceeded, DeniableError, IntegrityError, StorageError
from deniable.ledger.sqlite import SqliteStore
from deniable.ledger.witness import Witness
from deniable.policy.document import keep_accepted, read
from ledgers import change_behind

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns: {id: {type: integer, role: identifier}, age: {type: integer, between: [0, 99]}}
budgets: {dataset: {epsilon: 3},
  purposes: {research: {epsilon: 2}}, analysts: {ana: {purposes: [research], epsilon: 1}}}
"""
COUNT = "SELECT COUNT(*) AS n FROM visits"


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    (tmp_path / "visits.csv").write_text("id,age\n" + "".join(f"{i},{i}\n" for i in range(40)))
    (tmp_path / "policy.yaml").write_text(POLICY)
    return tmp_path / "policy.yaml"


REFUSED = {
    "a question of a table that is not there": ("query", "SELECT COUNT(*) FROM nothing", "--epsilon", "1"),
    "more than the budget": ("query", COUNT, "--epsilon", "9"),
    "an analyst who is not listed": ("query", COUNT, "--epsilon", "1", "--analyst", "eve", "--purpose", "research"),
    "a largest group of a column that is not there": ("top", "visits", "nothing", "-k", "1", "--epsilon", "1"),
    "a synthesis beyond the budget": ("synthesize", "visits", "--epsilon", "9", "--delta", "1e-6", "-o", "x.csv"),
    "a training on nothing": ("train", "visits", "--target", "nothing", "--epsilon", "1", "-o", "x.json"),
    "a withdrawal by no id": ("withdraw", "7", "--column", "age"),
    "a request that cannot be": ("request", "mask", "nothing", "--analyst", "ana", "--purpose", "research"),
    "an approval of no request": ("approve", "nothing", "--reason", "x"),
    "a token for no purpose": ("token", "new", "ana", "--purpose", "nothing"),
    "a look at the epoch": ("epoch", "show"),
    "a look at a person": ("subject", "7", "--column", "id"),
    "a look at the requests": ("requests",),
}


@pytest.mark.parametrize("words", REFUSED.values(), ids=REFUSED)
def test_a_command_that_writes_no_entry_leaves_no_ledger(
    policy: Path, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(policy.parent)
    done = CliRunner().invoke(app, [*words, "-p", str(policy)])
    assert isinstance(done.exception, DeniableError | SystemExit) or done.exit_code == 0, done
    assert sorted(path.name for path in policy.parent.iterdir()) == ["policy.yaml", "visits.csv"]
    other = shutil.copy(policy, policy.with_name("other.yaml"))
    with Curator.open(other) as curator:
        assert not curator.query(COUNT, epsilon=1).repeated, "the rows are nobody's yet"


LOST_STORE = ("more than the budget", "a withdrawal by no id", "a look at the epoch")


@pytest.mark.parametrize("words", [REFUSED[each] for each in LOST_STORE], ids=LOST_STORE)
@pytest.mark.parametrize("first", [("query", COUNT, "--epsilon", "1"), ("token", "new", "vera", "--role", "auditor")])
def test_what_is_refused_beside_a_lost_answer_store_makes_none(
    policy: Path, first: tuple[str, ...], words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(policy.parent)
    assert CliRunner().invoke(app, [*first, "-p", str(policy)]).exit_code == 0
    policy.with_suffix(".ledger.kept.sqlite").unlink()
    done = CliRunner().invoke(app, [*words, "-p", str(policy)])
    assert isinstance(done.exception, IntegrityError)
    assert "the answer store beside the ledger is gone" in str(done.exception)
    assert not policy.with_suffix(".ledger.kept.sqlite").exists()


def test_of_two_new_ledgers_over_the_same_rows_the_one_that_charges_first_has_the_budget(policy: Path) -> None:
    other = shutil.copy(policy, policy.with_name("other.yaml"))
    with Curator.open(policy) as one, Curator.open(other) as two:
        one.query(COUNT, epsilon=1)
        with pytest.raises(AccessRefused, match=r"have a budget already, in the ledger .*policy\.ledger\.sqlite"):
            two.query(COUNT, epsilon=1)
        assert two.ledger.head() is None
    assert not policy.with_name("other.ledger.sqlite").exists()


def test_a_refusal_over_postgresql_claims_no_rows(policy: Path, postgres_address: str) -> None:
    policy.write_text(POLICY.replace("clinic", "beginnings"))
    with Curator.open(policy, ledger=postgres_address) as curator, pytest.raises(BudgetExceeded):
        curator.query(COUNT, epsilon=9)
    with Curator.open(policy) as curator:
        curator.query(COUNT, epsilon=1)


def test_a_new_ledger_stays_while_another_process_has_it_open(policy: Path) -> None:
    with Curator.open(policy) as one:
        Curator.open(policy).close()
        one.query(COUNT, epsilon=1)
    with Curator.open(policy) as again:
        assert [entry.act for entry in again.ledger.entries()] == ["charge"]
        assert again.query(COUNT, epsilon=1).repeated


def test_nothing_is_charged_to_a_file_that_lost_its_name(policy: Path) -> None:
    with Curator.open(policy) as curator:
        policy.with_suffix(".ledger.sqlite").unlink()
        with pytest.raises(StorageError, match="was removed, or replaced") as refused:
            curator.query(COUNT, epsilon=1)
        assert refused.value.as_dict()["charged"] is False


def test_a_ledger_with_entries_is_never_discarded(tmp_path: Path) -> None:
    from deniable.ledger import Ledger
    from ledgers import charge, plain

    for name, charged in (("empty", False), ("full", True)):
        store = SqliteStore(tmp_path / name)
        if charged:
            charge(Ledger("clinic", plain(1), store), analyst="", purpose="")
        store.discard(tmp_path / "beside")
        assert (tmp_path / name).exists() is charged


def test_a_policy_that_was_accepted_is_noted_before_the_first_entry(policy: Path) -> None:
    from datetime import date

    keep_accepted(read(policy), policy, "sam", date(2026, 11, 16))
    Curator.open(policy).close()
    assert not policy.with_suffix(".ledger.sqlite").exists()
    with Curator.open(policy) as curator:
        curator.query(COUNT, epsilon=1)
        assert [entry.act for entry in curator.ledger.entries()] == ["accept", "charge"]


def delete_last(policy: Path) -> None:
    """Delete the last entry behind the ledger's back."""
    with change_behind(policy.with_suffix(".ledger.sqlite")) as connection:
        connection.execute("DELETE FROM entries WHERE sequence = (SELECT max(sequence) FROM entries)")


def lose_and_restore(policy: Path) -> None:
    with Curator.open(policy) as curator:
        from deniable.ledger.backup import back_up

        back_up(curator.ledger, curator.context.store, policy.with_name("old.backup"))
        curator.query(f"{COUNT} WHERE age > 1", epsilon=1)
    for ending in (".ledger.sqlite", ".ledger.kept.sqlite"):
        policy.with_suffix(ending).unlink()
    restore(policy, None, policy.with_name("old.backup"), lost=True, by="sam", reason="a disk broke")


ACTS: dict[str, Callable[[Path], object]] = {
    "separate": lose_and_restore,
    "epoch": lambda policy: CliRunner().invoke(app, ["epoch", "new", "--reason", "x", "-p", str(policy)]),
    "accept": lambda policy: CliRunner().invoke(app, ["policy", "accept", str(policy), "--by", "sam"]),
    "token": lambda policy: CliRunner().invoke(
        app, ["token", "new", "ana", "--purpose", "research", "-p", str(policy)]
    ),
}


@pytest.mark.parametrize("witnessed", [True, False])
@pytest.mark.parametrize("act", ACTS)
def test_an_act_that_was_deleted_before_the_next_charge_is_missed(
    policy: Path, act: str, witnessed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By the answer store, which saw it; and by the user's own witness, where the store's word was forged."""
    with Curator.open(policy) as curator:
        curator.query(COUNT, epsilon=1)
    ACTS[act](policy)
    with sqlite3.connect(policy.with_suffix(".ledger.sqlite")) as connection:
        assert connection.execute("SELECT act FROM entries ORDER BY sequence DESC").fetchone()[0] == act
    connection.close()
    delete_last(policy)
    if witnessed:
        monkeypatch.setattr("deniable.ledger.ledger.refuse_mismatch", lambda *_: None)
    else:
        monkeypatch.setenv("DENIABLE_STATE", str(tmp_path / "another machine"))
    expected = "had . entries when it was last used" if witnessed else "not the one that charged"
    with pytest.raises(IntegrityError, match=expected):
        Curator.open(policy)


def test_what_a_restored_ledger_lost_is_told_where_it_is_restored_elsewhere(policy: Path) -> None:
    with Curator.open(policy) as curator:
        curator.query(COUNT, epsilon=1)
        curator.new_epoch("one")
    for ending in (".ledger.sqlite", ".ledger.kept.sqlite"):
        shutil.copy(policy.with_suffix(ending), policy.with_suffix(f".old{ending}"))
    with Curator.open(policy) as curator:
        curator.new_epoch("two")
    for ending in (".ledger.sqlite", ".ledger.kept.sqlite"):
        policy.with_suffix(ending).unlink()
    older = str(policy.with_suffix(".old.ledger.sqlite"))
    assert separate(policy, older, "sam", "the newest is lost", lost=True).entries_lost == 1
    with Curator.open(policy, ledger=older) as curator:
        assert Witness().forget(curator.context.place) == 3
