"""A ledger that is lost for good: what is known of the loss is told and written down, and nothing is served until it is
settled; on SQLite and on PostgreSQL."""

from __future__ import annotations

import shutil
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from deniable.cli.main import narrow_app
from deniable.curator import Curator
from deniable.curator.governance.steward import restore, separate
from deniable.errors import AccessRefused, BudgetExceeded, DeniableError, IntegrityError, ParameterError

POLICY = """
version: 1
dataset: {dataset}
{more}
tables:
  visits:
    source: visits.csv
    unit: {{column: pid, max_groups: 1, max_rows_per_group: 1}}
    columns:
      pid: {{type: integer, role: identifier, mask: redact}}
      sex: {{role: quasi-identifier, categories: [F, M]}}
budgets: {{dataset: {{epsilon: 40, delta: 0.001, accounting: zcdp}}}}
"""
COUNT = "SELECT COUNT(*) AS n FROM visits"


class Place:
    """A policy with a ledger of a kind, which can be lost."""

    def __init__(self, folder: Path, address: str | None) -> None:
        self.folder, self.policy = folder, folder / "policy.yaml"
        self.base, self.dataset = address, f"loss{abs(hash(folder.name)) % 10**9}"
        self.address = None if address is None else urlsplit(address)._replace(path=f"/{self.dataset}").geturl()
        (folder / "visits.csv").write_text("pid,sex\n" + "".join(f"{n},{'FM'[n % 2]}\n" for n in range(40)))
        self.write()
        if address is not None:
            self._run(f"CREATE DATABASE {self.dataset}")

    def write(self, more: str = "") -> None:
        self.policy.write_text(POLICY.format(dataset=self.dataset, more=more))

    def _run(self, *statements: str) -> None:
        import psycopg

        with psycopg.connect(str(self.base), autocommit=True) as database:
            for sql in statements:
                database.execute(sql)

    @property
    def ledger(self) -> str:
        return self.address or str(self.policy.with_suffix(".ledger.sqlite"))

    def open(self) -> Curator:
        return Curator.open(self.policy, ledger=self.ledger)

    def lose(self) -> None:
        if self.address is not None:
            self._run(f"DROP DATABASE {self.dataset} WITH (FORCE)", f"CREATE DATABASE {self.dataset}")
        (self.folder / "lost").mkdir(exist_ok=True)
        for ending in (".ledger.sqlite", ".ledger.kept.sqlite"):
            if self.policy.with_suffix(ending).exists():
                self.policy.with_suffix(ending).rename(self.folder / "lost" / f"policy{ending}")

    def run(self, *words: object, refused: bool = False) -> str:
        """What a command prints, or the words in which it refuses."""
        given = [*(str(each) for each in words), "-p", str(self.policy), "--ledger", self.ledger]
        done = CliRunner().invoke(narrow_app(given), given)
        fits = isinstance(done.exception, DeniableError) if refused else done.exit_code == 0
        assert fits, (done.output, done.exception)
        return str(done.exception) if refused else " ".join(done.output.split())


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, request.getfixturevalue("postgres_address") if request.param == "postgres" else None)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def either(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, request.getfixturevalue("postgres_address") if request.param == "postgres" else None)


@pytest.fixture
def file(tmp_path: Path) -> Place:
    return Place(tmp_path, None)


def back_up(place: Place) -> Path:
    """A backup after one question."""
    with place.open() as curator:
        curator.query(COUNT, epsilon=1)
    place.run("ledger", "backup", place.folder / "old.backup")
    return place.folder / "old.backup"


LOST = ("--lost", "--reason", "a disk broke", "--by", "sam")


def test_a_restored_ledger_tells_what_is_lost_and_serves_nothing_until_it_is_settled(place: Place) -> None:
    old = back_up(place)
    place.run("withdraw", "7", "--column", "pid")
    with place.open() as curator:
        curator.query(f"{COUNT} WHERE sex = 'F'", epsilon=2)
    place.lose()
    told = place.run("ledger", "restore", old, *LOST)
    assert "after entry 1 of 20" in told
    assert "at least 2 entries (by this user's record of ledgers)" in told
    assert "1 of 'answers'" in told
    assert "At least 1 people who withdrew are not known" in told
    with place.open() as curator:
        (entry,) = curator.ledger.entries(0, ("separate",))
        assert (entry.analyst, entry.details["reason"], entry.details["lost"]["entries"]) == ("sam", "a disk broke", 2)
        assert entry.details["lost"]["stored"]["withdrawn"] == 1
        for epsilon in (1, 2):  # one is stored, the other would be charged
            with pytest.raises(AccessRefused, match="entry 2 says which"):
                curator.query(COUNT, epsilon=epsilon)
    refused = place.run("mask", place.folder / "visits.csv", "-o", place.folder / "x.csv", refused=True)
    assert "nobody has said yet what they spent" in refused
    assert not (place.folder / "x.csv").exists()
    settle = ("ledger", "settle", "--reason", "by receipts", "--epsilon", "2")
    assert "who withdrew in the lost entries must be entered again" in place.run(*settle, refused=True)
    place.run("withdraw", "7", "--column", "pid")
    assert "epsilon 2 was charged for it" in place.run(*settle, "--withdrawals-entered")
    assert "no loss of this ledger waits" in place.run(*settle, "--withdrawals-entered", refused=True)
    with place.open() as curator:
        assert curator.query(COUNT, epsilon=1).repeated
        charged = [entry for entry in curator.ledger.entries(0, ("charge",)) if entry.technique == "lost entries"]
        assert [entry.event["epsilon"] for entry in charged] == ["2"]
        assert [entry.act for entry in curator.ledger.entries(3)] == ["charge", "settle"]


def test_what_was_lost_before_is_told_when_the_same_backup_is_restored_again(either: Place) -> None:
    old = back_up(either)
    for person in (7, 8, 9):
        either.run("withdraw", person, "--column", "pid")
    either.lose()
    assert "at least 3 entries" in either.run("ledger", "restore", old, *LOST)
    either.run("withdraw", "7", "--column", "pid")
    either.lose()
    told = either.run("ledger", "restore", old, *LOST)
    assert "at least 5 entries" in told, "three, the entry that told of them, and one withdrawal"
    assert "At least 4 people" in told


def test_the_worst_case_closes_the_budget(either: Place) -> None:
    old = back_up(either)
    either.run("withdraw", "7", "--column", "pid")
    either.lose()
    either.run("ledger", "restore", old, *LOST)
    settle = ("ledger", "settle", "--reason", "nobody knows", "--withdrawals-entered")
    assert "it is not said what the lost entries may have spent" in either.run(*settle, refused=True)
    either.run(*settle, "--epsilon", "100", refused=True)
    either.run(*settle, "--everything")
    with either.open() as curator:
        assert curator.query(COUNT, epsilon=1).repeated
        with pytest.raises(BudgetExceeded):
            curator.query(f"{COUNT} WHERE sex = 'F'", epsilon="1/1000")


def test_a_ledger_that_is_begun_anew_serves_nothing_until_it_is_settled(either: Place) -> None:
    back_up(either)
    either.lose()
    assert separate(either.policy, either.ledger, "sam", "a disk broke", lost=True).entries_lost == 1
    with either.open() as curator, pytest.raises(AccessRefused, match="nobody has said yet"):
        curator.query(COUNT, epsilon=1)
    either.run("ledger", "settle", "--reason", "it was one question", "--epsilon", "1", "--withdrawals-entered")
    with either.open() as curator:
        assert not curator.query(COUNT, epsilon=1).repeated


def test_nothing_is_begun_anew_where_nothing_is_lost(either: Place) -> None:
    for _ in range(2):
        before = sorted(path.name for path in either.folder.iterdir())
        with pytest.raises(ParameterError, match="nothing is lost"):
            separate(either.policy, either.ledger, "sam", "I thought so", lost=True)
        assert sorted(path.name for path in either.folder.iterdir()) == before
        with either.open() as curator:
            assert [*curator.ledger.entries(0, ("separate",))] == []
        if not (either.folder / "old.backup").exists():
            back_up(either)


def test_who_withdrew_is_found_in_an_answer_store_that_is_left(file: Place, tmp_path: Path) -> None:
    old = back_up(file)
    file.run("withdraw", "7", "--column", "pid")
    file.run("withdraw", "8", "--column", "pid")
    file.lose()
    left = tmp_path / "lost" / "policy.ledger.kept.sqlite"
    other = shutil.copy(left, tmp_path / "other.sqlite")
    told = file.run("ledger", "restore", old, *LOST, "--answers", left)
    assert "2 withdrawals were found and are entered again" in told
    assert "the answer store that is left" in told
    file.run("ledger", "settle", "--reason", "nothing was asked", "--epsilon", "0", "--withdrawals-entered")
    with file.open() as curator:
        assert curator.check("visits", ["sex"]).rows == 38
    from deniable.ledger.answer_store import AnswerStore, SqliteShelf

    AnswerStore(SqliteShelf(tmp_path / "foreign.sqlite")).close()
    file.lose()
    refused = file.run("ledger", "restore", old, *LOST, "--answers", tmp_path / "foreign.sqlite", refused=True)
    assert "the answer store of another ledger" in refused
    file.run("ledger", "restore", old, *LOST, "--answers", other)


def test_statements_of_lost_releases_prove_what_was_spent(file: Place, tmp_path: Path) -> None:
    old, out = back_up(file), tmp_path / "made.csv"
    file.run("synthesize", "visits", "--epsilon", "2", "--delta", "1e-6", "-o", out)
    file.lose()
    told = file.run("ledger", "restore", old, *LOST, "--statement", out)
    assert "Statements prove that epsilon 2, delta 1/1000000 was spent since" in told
    settle = ("ledger", "settle", "--reason", "x", "--withdrawals-entered")
    assert "At least epsilon 2 and delta 1e-06" in file.run(*settle, "--epsilon", "1", refused=True)
    file.run(*settle, "--epsilon", "2", "--delta", "1e-6")


def test_a_witness_file_goes_on_after_a_loss_that_the_ledger_names(
    place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    heads = tmp_path / "heads.txt"
    heads.touch()  # a witness that knows nothing yet
    place.write(f"witness: {heads}")
    old = back_up(place)
    for person in (7, 8):
        place.run("withdraw", person, "--column", "pid")
    place.lose()
    monkeypatch.setenv("DENIABLE_STATE", str(tmp_path / "another machine"))
    assert "it was cut off, or replaced by an older copy" in place.run("ledger", "restore", old, refused=True)
    assert "at least 2 entries (by the witness file)" in place.run("ledger", "restore", old, *LOST)
    kept = heads.read_text()
    place.run("ledger", "settle", "--reason", "by letters", "--epsilon", "0", "--withdrawals-entered")
    with place.open() as curator:
        curator.query(f"{COUNT} WHERE sex = 'F'", epsilon=1)
        last = curator.ledger.head()
    assert last is not None
    assert len(heads.read_text()) > len(kept) > 0
    told = place.run("ledger", "verify", "--against", heads)
    assert "2 other heads are of entries that it names as lost" in told
    place.lose()
    monkeypatch.setenv("DENIABLE_STATE", str(tmp_path / "a third machine"))
    refused = place.run("ledger", "restore", old, refused=True)
    assert "cut off, or replaced by an older copy" in refused or "is not the one that the head was given for" in refused


def test_only_a_listed_steward_decides_over_a_lost_ledger(file: Place) -> None:
    file.write("stewards: [sam, vera]")
    old = back_up(file)
    file.run("withdraw", "7", "--column", "pid")
    file.lose()
    for by in ("steward", "mallory", "s\u0430m"):
        with pytest.raises(AccessRefused, match="is not the name of a steward"):
            restore(file.policy, None, old, lost=True, by=by, reason="x")
        with pytest.raises(AccessRefused, match="is not the name of a steward"):
            separate(file.policy, None, by, "x", lost=True)
    restore(file.policy, None, old, lost=True, by="Sam", reason="x")
    words = ("ledger", "settle", "--epsilon", "0", "--reason", "x", "--withdrawals-entered", "--by")
    assert "is not the name of a steward" in file.run(*words, "steward", refused=True)
    file.run(*words, "vera")


def test_an_entry_of_a_loss_cannot_be_cut_off(file: Place) -> None:
    old = back_up(file)
    file.run("withdraw", "7", "--column", "pid")
    file.lose()
    file.run("ledger", "restore", old, *LOST)
    file.lose()
    with pytest.raises(IntegrityError, match="had 2 entries when it was last used"):
        restore(file.policy, None, old)
