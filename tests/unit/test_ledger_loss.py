"""A ledger that is lost for good: what is known of the loss is told and written down, and nothing is served until it is
settled; on SQLite and on PostgreSQL."""

from __future__ import annotations

import random
import shutil
import tempfile
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from typer.testing import CliRunner

from deniable.cli.main import narrow_app
from deniable.curator import Curator
from deniable.curator.governance import losses, withdrawals
from deniable.curator.governance.steward import back_up as back_up_both
from deniable.curator.governance.steward import restore, separate
from deniable.dp.accounting import ZCDPAccountant
from deniable.errors import AccessRefused, BudgetExceeded, DeniableError, IntegrityError, ParameterError
from deniable.governance.grants import Asker
from deniable.ledger import Act, Ledger, Posting, entry
from deniable.ledger.loss import Loss, read_loss
from deniable.ledger.witness import Witness
from ledgers import Clock

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
ANA = Asker("ana", "care")


class Place:
    """A policy with a ledger of a kind, which can be lost."""

    def __init__(self, folder: Path, address: str | None, dataset: str = "") -> None:
        self.folder, self.policy = folder, folder / "policy.yaml"
        self.base, self.dataset = address, dataset or f"loss{abs(hash(folder.name)) % 10**9}"
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
        assert [entry.event["kind"] for entry in charged] == ["pure"], "all that was lost was pure, by the record"
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
    assert "At least 3 people" in told, "one of them was lost twice"


def test_what_was_proven_and_settled_binds_every_later_restore_of_the_same_backup(place: Place, tmp_path: Path) -> None:
    old = back_up(place)
    with place.open() as curator:
        curator.query(f"{COUNT} WHERE sex = 'F'", epsilon=2)
        spent = curator.ledger.find_spent()[1].cost.amount
    settle = ("ledger", "settle", "--reason", "by receipts", "--withdrawals-entered")
    for amount in ("2", "2", "3", "3"):
        place.lose()
        assert "proves that at least this was spent since: --epsilon" in place.run("ledger", "restore", old, *LOST)
        for less in ("0.01", "1.9"):
            assert "record of ledgers proves" in place.run(*settle, "--epsilon", less, refused=True)
        if amount == "3":
            place.lose()  # one that was not settled is no way around it
            place.run("ledger", "restore", old, *LOST)
            assert "record of ledgers proves" in place.run(*settle, "--epsilon", "0.01", refused=True)
        place.run(*settle, "--epsilon", amount)
        with place.open() as curator:
            now = curator.ledger.find_spent()[1].cost.amount
        assert now >= spent, "nothing that was settled shrinks"
        spent = now
    assert "record of ledgers proves" in _lose_and_settle(place, old, "2")


def test_what_a_process_spent_that_was_killed_is_proven_all_the_same(place: Place) -> None:
    """The record of ledgers learned what was spent when a process ended, and one that is killed does not end."""
    old = back_up(place)
    killed = place.open()
    killed.query(f"{COUNT} WHERE sex = 'F'", epsilon=1)
    killed.query(f"{COUNT} WHERE sex = 'M'", epsilon=1)
    kill(killed)
    place.lose()
    assert "proves that at least this was spent since: --epsilon" in place.run("ledger", "restore", old, *LOST)
    settle = ("ledger", "settle", "--reason", "x", "--withdrawals-entered", "--epsilon")
    assert "record of ledgers proves" in place.run(*settle, "1.9", refused=True)
    place.run(*settle, "2")


@pytest.mark.parametrize("both", [True, False])
def test_an_older_answer_store_is_refused_after_a_process_that_was_killed(file: Place, both: bool) -> None:
    """A question was measured under an old charge, and its answer was seen: an older copy would measure it again."""
    killed, asked = file.open(), f"{COUNT} WHERE sex = 'F'"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("deniable.curator.charge.store_answer", raise_interrupt)
        with pytest.raises(KeyboardInterrupt):
            killed.query(asked, epsilon=1)
    kill(killed)
    with file.open() as curator:
        curator.query(COUNT, epsilon=1)
    names = [path.name for path in file.folder.iterdir() if ".ledger" in path.name and (both or "kept" in path.name)]
    copies = {name: (file.folder / name).read_bytes() for name in names}
    again = file.open()
    again.query(asked, epsilon=1)
    assert len(list(again.ledger.entries(acts=("charge",)))) == 2, "it is measured under its first charge"
    kill(again)
    for path in [path for path in file.folder.iterdir() if ".ledger" in path.name and (both or "kept" in path.name)]:
        path.unlink()
    for name, content in copies.items():
        (file.folder / name).write_bytes(content)
    with pytest.raises(IntegrityError, match=r"some were deleted|knew of entry"):
        file.open()


def kill(curator: Curator) -> None:
    """What a killed process leaves: nothing is noted at its end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Witness, "see", lambda *_: None)
        curator.close()


def raise_interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _lose_and_settle(place: Place, old: Path, epsilon: str) -> str:
    place.lose()
    place.run("ledger", "restore", old, *LOST)
    words = ("ledger", "settle", "--reason", "x", "--withdrawals-entered", "--epsilon", epsilon)
    return place.run(*words, refused=True)


def test_people_who_are_known_to_have_withdrawn_must_be_entered_before_a_loss_is_settled(place: Place) -> None:
    old = back_up(place)
    for person in (7, 8, 9):
        place.run("withdraw", person, "--column", "pid")
    place.run("reinstate", "9", "--column", "pid", "--reason", "she asked for it")
    settle = ("ledger", "settle", "--reason", "by letters", "--withdrawals-entered", "--epsilon", "0")
    for _ in range(2):
        place.lose()
        assert "At least 2 people" in place.run("ledger", "restore", old, *LOST)
        assert "2 who withdrew by the entry of the loss" in place.run(*settle, refused=True)
        place.run("withdraw", "8", "--column", "pid")
        assert "1 who withdrew by the entry of the loss" in place.run(*settle, refused=True)
    assert "1 who withdrew" in place.run(*settle, "--people-missing", "2", refused=True)
    place.run(*settle, "--people-missing", "1")
    with place.open() as curator:
        assert [each.details["people_missing"] for each in curator.ledger.entries(0, ("settle",))] == [1]


def test_what_lost_entries_spent_counts_for_every_purpose_and_analyst(place: Place) -> None:
    text = place.policy.read_text().replace("accounting: zcdp}}", "accounting: zcdp}, purposes: {care: {epsilon: 20, "
        "delta: 0.001}}, analysts: {ana: {purposes: [care], epsilon: 8, delta: 0.001}}}")  # fmt: skip
    place.policy.write_text(text)
    old = back_up(place)
    with place.open() as curator:
        curator.query(f"{COUNT} WHERE sex = 'M'", epsilon=1, who=ANA)
    place.lose()
    place.run("ledger", "restore", old, *LOST)
    place.run("ledger", "settle", "--reason", "x", "--epsilon", "8", "--withdrawals-entered")
    for _ in range(2):  # as it is written, and as another process adds it up
        with place.open() as curator, pytest.raises(BudgetExceeded, match="analyst 'ana'"):
            curator.query(f"{COUNT} WHERE sex = 'F'", epsilon="0.1", who=ANA)


def test_the_worst_case_closes_the_budget(either: Place) -> None:
    old = back_up(either)
    either.run("withdraw", "7", "--column", "pid")
    either.lose()
    either.run("ledger", "restore", old, *LOST)
    either.run("withdraw", "7", "--column", "pid")
    settle = ("ledger", "settle", "--reason", "nobody knows", "--withdrawals-entered")
    assert "it is not said what the lost entries may have spent" in either.run(*settle, refused=True)
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
        with pytest.raises(AccessRefused, match=r"is not the name of a steward|alphabets"):
            restore(file.policy, None, old, lost=True, by=by, reason="x")
        with pytest.raises(AccessRefused, match=r"is not the name of a steward|alphabets"):
            separate(file.policy, None, by, "x", lost=True)
    restore(file.policy, None, old, lost=True, by="Sam", reason="x")
    words = ("ledger", "settle", "--epsilon", "0", "--reason", "x", "--withdrawals-entered", "--by")
    assert "is not the name of a steward" in file.run(*words, "steward", refused=True)
    file.run("withdraw", "7", "--column", "pid")
    file.run(*words, "vera")


def test_an_entry_of_a_loss_cannot_be_cut_off(file: Place) -> None:
    old = back_up(file)
    file.run("withdraw", "7", "--column", "pid")
    file.lose()
    file.run("ledger", "restore", old, *LOST)
    file.lose()
    with pytest.raises(IntegrityError, match="had 2 entries when it was last used"):
        restore(file.policy, None, old)


READING = [
    ("ledger", "verify"), ("ledger", "show"), ("ledger", "export"), ("ledger", "head"), ("ledger", "incidents"),
    ("register",), ("requests",), ("query", COUNT, "--epsilon", "1"),
]  # fmt: skip


def test_a_deleted_answer_store_is_found_by_every_command_that_reads(file: Place, tmp_path: Path) -> None:
    back_up(file)
    kept = file.policy.with_suffix(".ledger.kept.sqlite")
    moved = kept.rename(tmp_path / "moved.sqlite")
    for words in READING:
        refused = file.run(*words, refused=True)
        assert "the answer store beside the ledger is gone" in refused, words
        assert "restore a backup of both" in refused, words
        assert not kept.exists(), words
    moved.rename(kept)
    assert "seals" not in file.run("ledger", "verify")
    copy = shutil.copy(file.ledger, tmp_path / "copy.sqlite")
    words = ["ledger", "verify", "-p", str(file.policy), "--ledger", str(copy)]
    assert "the seals of its entries are not checked" in CliRunner().invoke(narrow_app(words), words).output


SETTLE = ("ledger", "settle", "--reason", "by receipts", "--withdrawals-entered")


def _limit(place: Place, limit: str) -> None:
    text = place.policy.read_text()
    begin = text.index("budgets:")
    place.policy.write_text(f"{text[:begin]}budgets: {{dataset: {limit}}}\n")


def _find_standing(place: Place) -> tuple[Fraction, Fraction | None]:
    """What the dataset spent: as the accounting adds it up, and by pure composition under zCDP."""
    with place.open() as curator:
        account = curator.ledger.find_spent()[1]
        pure = account.pure if isinstance(account, ZCDPAccountant) else None
        return account.cost.amount, pure.amount if pure is not None else None


@pytest.mark.parametrize("words", [("--everything",), ("--epsilon", "4")])
def test_no_less_than_what_is_proven_is_charged_whatever_the_limit_is_then(file: Place, words: tuple[str, ...]) -> None:
    _limit(file, "{epsilon: 5}")
    old = back_up(file)
    with file.open() as curator:
        for sex in "FM":
            curator.query(f"{COUNT} WHERE sex = '{sex}'", epsilon=2)
    _limit(file, "{epsilon: 2}")
    file.lose()
    file.run("ledger", "restore", old, *LOST)
    assert "At least --epsilon 4" in file.run(*SETTLE, "--epsilon", "1", refused=True)
    assert "epsilon 4 was charged" in file.run(*SETTLE, *words)
    _limit(file, "{epsilon: 5}")
    for _ in range(2):
        with file.open() as curator, pytest.raises(BudgetExceeded, match="budget is used up"):
            curator.query(f"{COUNT} WHERE pid < 7", epsilon="1/100")
    assert _find_standing(file) == (5, None)


def test_a_loss_of_pure_charges_is_settled_in_epsilon_under_zcdp(file: Place) -> None:
    _limit(file, "{epsilon: 3, delta: 1e-6, accounting: zcdp}")
    with file.open() as curator:
        curator.query(COUNT, epsilon="1/1000")
    file.run("ledger", "backup", file.folder / "old.backup")
    with file.open() as curator:
        for sex in "FM":
            curator.query(f"{COUNT} WHERE sex = '{sex}'", epsilon=1)
    before = _find_standing(file)
    file.lose()
    told = file.run("ledger", "restore", file.folder / "old.backup", *LOST)
    assert "at least this was spent since: --epsilon 2." in told
    assert "At least --epsilon 2" in file.run(*SETTLE, "--epsilon", "1.99", refused=True)
    assert "epsilon 2 was charged" in file.run(*SETTLE, "--epsilon", "2")
    rho, pure = _find_standing(file)
    assert pure == before[1]
    assert 0 <= rho - before[0] < Fraction(1, 10**20), "no more than what was spent, but for rounding"
    with file.open() as curator:
        curator.query(f"{COUNT} WHERE pid < 7", epsilon="999/1000")
        with pytest.raises(BudgetExceeded):
            curator.query(f"{COUNT} WHERE pid < 8", epsilon="1/1000")


def test_the_worst_case_of_pure_charges_counts_their_rho_too(file: Place) -> None:
    _limit(file, "{epsilon: 3, delta: 1e-6, accounting: zcdp}")
    old = back_up(file)
    with file.open() as curator:
        for sex in "FM":
            curator.query(f"{COUNT} WHERE sex = '{sex}'", epsilon=1)
    file.lose()
    file.run("ledger", "restore", old, *LOST)
    file.run(*SETTLE, "--everything")
    rho, pure = _find_standing(file)
    assert rho >= Fraction(3, 2), "three charges of epsilon 1, of which one is in the backup"
    assert pure is None
    _limit(file, "{epsilon: 10, delta: 1e-6, accounting: zcdp}")
    with file.open() as curator, pytest.raises(BudgetExceeded):
        curator.query(f"{COUNT} WHERE pid < 7", rho="1/2")


def test_lost_entries_are_counted_once_however_often_a_backup_is_restored(file: Place) -> None:
    old = back_up(file)
    with file.open() as curator:
        curator.query(f"{COUNT} WHERE sex = 'F'", epsilon=1)
    for lost in (1, 2, 3, 4):
        file.lose()
        told = file.run("ledger", "restore", old, *LOST)
        assert f"at least {lost} entries" in told, "one charge, and each entry that told of a loss"
        assert "1 of 'answers'" in told


def test_a_settlement_that_was_interrupted_is_recorded_once(file: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    old = back_up(file)
    with file.open() as curator:
        curator.query(f"{COUNT} WHERE sex = 'F'", epsilon=2)
    file.lose()
    file.run("ledger", "restore", old, *LOST)
    record = Ledger.record
    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "record", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        words = [*SETTLE, "--epsilon", "2", "-p", str(file.policy)]
        assert CliRunner().invoke(narrow_app(words), words).exit_code
    assert Ledger.record is record
    file.run("ledger", "show")
    file.run("withdraw", "7", "--column", "pid")
    file.run(*SETTLE, "--epsilon", "2")
    file.lose()
    assert "at least this was spent since: --epsilon 2." in file.run("ledger", "restore", old, *LOST)


def test_another_users_record_asks_for_the_people_whom_the_entry_of_the_loss_counts(
    either: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old = back_up(either)
    for person in (7, 8):
        either.run("withdraw", person, "--column", "pid")
    with either.open() as curator:
        curator.query(f"{COUNT} WHERE sex = 'F'", epsilon=2)
    either.lose()
    either.run("ledger", "restore", old, *LOST)
    either.run("withdraw", "7", "--column", "pid")
    either.run("reinstate", "7", "--column", "pid", "--reason", "by mistake")
    either.run("withdraw", "7", "--column", "pid")
    monkeypatch.setenv("DENIABLE_STATE", str(tmp_path / "another steward"))
    assert "1 who withdrew" in either.run(*SETTLE, "--epsilon", "2", refused=True), "one of two, however often entered"
    either.run("withdraw", "8", "--column", "pid")
    refused = either.run(*SETTLE, "--epsilon", "1", refused=True)
    assert "At least --epsilon 2" in refused, "what is proven stands in the ledger, too"
    either.run(*SETTLE, "--epsilon", "2")


def test_people_who_withdrew_in_a_lost_database_are_asked_for_wherever_it_is_restored(
    tmp_path: Path, postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Place(tmp_path, postgres_address)
    old = back_up(lost)
    lost.run("withdraw", "5", "--column", "pid")
    file = Place(tmp_path, None)
    monkeypatch.setenv("PGUSER", "deniable")
    refused = file.run("ledger", "restore", old, *LOST, refused=True)
    assert "have a budget already, in the ledger postgresql://" in refused
    lost._run(f"DROP DATABASE {lost.dataset} WITH (FORCE)")
    assert "At least 1 people" in file.run("ledger", "restore", old, *LOST)
    assert "1 who withdrew" in file.run(*SETTLE, "--epsilon", "0", refused=True)
    file.run("withdraw", "5", "--column", "pid")
    file.run(*SETTLE, "--epsilon", "0")
    with file.open() as curator:
        assert curator.query(COUNT, epsilon=1).repeated


def name_another(place: Place) -> str:
    """A place where no ledger is, of the same kind."""
    if place.address is None:
        return str(place.folder / "another.sqlite")
    place._run(f"CREATE DATABASE {place.dataset}b")
    return f"{urlsplit(place.address)._replace(path=f'/{place.dataset}b').geturl()}"


@pytest.mark.parametrize("words", [(), LOST])
@pytest.mark.parametrize("user", ["the same user", "another user"])
def test_no_backup_is_restored_beside_the_ledger_that_it_was_taken_of(
    place: Place, user: str, words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = back_up(place)
    with place.open() as curator:
        curator.query(f"{COUNT} WHERE sex = 'F'", epsilon=2)
    used, place.address = place.ledger, name_another(place)
    monkeypatch.setenv("PGUSER", "deniable")
    if user == "another user":
        monkeypatch.setenv("DENIABLE_STATE", str(tmp_path / "another"))
    for at in {place.address, str(tmp_path / "file.sqlite")}:
        place.address = at
        refused = place.run("ledger", "restore", old, *words, refused=True)
        assert "the rows of this policy have a budget already, in the ledger " in refused
        assert "Use that ledger: --ledger" in refused
    place.address = used
    with place.open() as curator:
        assert curator.query(f"{COUNT} WHERE sex = 'F'", epsilon=2).repeated


def test_a_copy_that_the_database_itself_made_is_no_second_ledger(tmp_path: Path, postgres_address: str) -> None:
    place = Place(tmp_path, postgres_address)
    back_up(place)
    place._run(f"CREATE DATABASE {place.dataset}c TEMPLATE {place.dataset}")
    used = place.ledger
    place.address = urlsplit(used)._replace(path=f"/{place.dataset}c").geturl()
    with pytest.raises(AccessRefused, match="have a budget already, in the ledger postgresql://"), place.open():
        pass
    place.address = used
    with place.open() as curator:
        assert curator.query(COUNT, epsilon=1).repeated


@pytest.mark.usefixtures("marked_rows")
def test_a_database_server_that_is_down_may_still_hold_the_ledger_until_the_steward_says_that_it_is_gone(
    tmp_path: Path, postgres_address: str
) -> None:
    real = Path(parse_qs(urlsplit(postgres_address).query)["host"][0])
    way = Path(tempfile.mkdtemp(prefix="way", dir="/tmp")) / "socket"  # short, as the path of a socket must be
    way.symlink_to(real)
    lost = Place(tmp_path, postgres_address.replace(str(real), str(way)))
    old = back_up(lost)
    way.unlink()  # nobody answers there now
    file = Place(tmp_path, None, lost.dataset)
    refused = file.run("ledger", "restore", old, *LOST, refused=True)
    assert "does not answer: it may be down, and still hold the ledger" in refused
    assert "leave them out" in file.run("ledger", "restore", old, "--server-gone", refused=True)
    file.run("ledger", "restore", old, *LOST, "--server-gone")
    file.run(*SETTLE, "--epsilon", "0")
    with file.open() as curator:
        assert curator.query(COUNT, epsilon=1).repeated
    way.symlink_to(real)  # it was not gone
    with pytest.raises(DeniableError, match=r"have a budget already, in the ledger|when it was last used"), lost.open():
        pass
    shutil.rmtree(way.parent)


def test_the_newest_backup_moves_a_ledger_out_of_a_database_that_is_gone(
    tmp_path: Path, postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = Place(tmp_path, postgres_address)
    newest = back_up(lost)
    lost._run(f"DROP DATABASE {lost.dataset} WITH (FORCE)")
    monkeypatch.setenv("PGUSER", "deniable")
    file = Place(tmp_path, None)
    file.run("ledger", "restore", newest)
    with file.open() as curator:
        assert curator.query(COUNT, epsilon=1).repeated


class History:
    """Everything that was ever written to a ledger, whichever copy of it was in use."""

    def __init__(self, place: Place) -> None:
        self.place, self.entries, self.backups, self.asked = place, set[str](), list[Path](), 0

    def look(self) -> set[str]:
        """The entries that are there now; they are remembered."""
        with self.place.open() as curator:
            there = {entry.hash for entry in curator.ledger.entries()}
        self.entries |= there
        return there

    def step(self, draw: random.Random) -> int | None:
        """Ask, withdraw, back up, or lose the ledger and restore a backup; says by how much the count was too low."""
        what = draw.choice(("ask", "ask", "withdraw", "back up", "restore"))
        if what == "restore" and self.backups:
            return self._restore(draw.choice(self.backups))
        with self.place.open() as curator:
            if what == "withdraw" or curator.ledger.find_lost():
                withdrawals.withdraw(curator.context, "pid", str(draw.randrange(40)))
            elif what != "back up":
                self.asked += 1
                curator.query(f"{COUNT} WHERE pid > {self.asked}", epsilon="1/100")
        self.look()
        if what == "back up":
            self.backups.append(self.place.folder / f"{len(self.backups)}.backup")
            back_up_both(self.place.policy, self.place.ledger, self.backups[-1])
        return None

    def _restore(self, backup: Path) -> int:
        self.look()
        shutil.rmtree(self.place.folder / "lost", ignore_errors=True)
        self.place.lose()
        told = restore(self.place.policy, self.place.ledger, backup, lost=True, by="sam", reason="a disk broke").loss
        assert told is not None
        with self.place.open() as curator:
            found = [entry.hash for entry in curator.ledger.entries()]
        truth = len(self.entries - {*found})
        assert told.entries <= truth, "at least so many were lost"
        self.look()
        proven = dict(zip(*[iter(told.proven.split())] * 2, strict=True))
        spent = (
            proven.get("--epsilon", None if "--rho" in proven else "0"),
            proven.get("--delta"),
            proven.get("--rho"),
        )
        with self.place.open() as curator:
            lost = read_loss(next(curator.ledger.entries(curator.ledger.find_lost() - 1)))
            missing = lost.stored.get("withdrawn", 0)
            losses.settle(curator.context, "sam", "by receipts", spent=spent, entered=True, missing=missing)
        self.look()
        return truth - told.entries


@pytest.mark.parametrize("seeds", [range(3), pytest.param(range(3, 40), marks=pytest.mark.slow)], ids=["few", "many"])
def test_no_more_entries_are_said_to_be_lost_than_were(tmp_path: Path, seeds: range) -> None:
    missed = []
    for seed in seeds:
        folder = tmp_path / str(seed)
        folder.mkdir()
        draw, history = random.Random(seed), History(Place(folder, None))
        found = [history.step(draw) for _ in range(14)]
        missed += [each for each in found if each is not None]
    assert missed, "some backup was restored"
    assert missed.count(0) > len(missed) / 2, "and nearly always all that was lost is told"


def test_a_ledger_of_another_accounting_is_shown_verified_backed_up_and_takes_withdrawals(file: Place) -> None:
    with file.open() as curator:
        curator.query(COUNT, epsilon=1)
        curator.query(f"{COUNT} WHERE pid > 3", rho="1/10")
    old = file.folder / "old.backup"
    file.run("ledger", "backup", old)
    with file.open() as curator:
        curator.query(f"{COUNT} WHERE pid > 4", rho="1/10")
    text = file.policy.read_text()
    file.policy.write_text(text.replace("accounting: zcdp", "accounting: pure"))
    assert "3 entries" in file.run("ledger", "verify")
    why = "pure accounting cannot price entry 2, which was charged under another accounting"
    assert f"remaining nothing: the ledger is closed, since {why}" in file.run("ledger", "show")
    file.run("withdraw", "7", "--column", "pid")
    for command in ("register", "ledger backup again.backup", "ledger export", "ledger incidents", "ledger head"):
        file.run(*command.replace("again.backup", str(file.folder / "again.backup")).split())
    refused = file.run("query", f"{COUNT} WHERE sex = 'M'", "--epsilon", "1", refused=True)
    assert f"{why}, so nothing is charged" in refused
    assert "Nothing was charged" in refused
    file.lose()
    assert "--rho" in file.run("ledger", "restore", old, *LOST)
    assert "remaining nothing: the ledger is closed, since entries are lost" in file.run("ledger", "show")
    settle = ("ledger", "settle", "--reason", "x", "--withdrawals-entered", "--people-missing", "1", "--everything")
    assert why in file.run(*settle, refused=True)
    file.policy.write_text(text)
    file.run(*settle)


def test_a_loss_is_charged_in_every_period_in_which_its_entries_may_have_been_written(file: Place) -> None:
    purposes = "{care: {epsilon: 5, every: month}}, analysts: {ana: {purposes: [care]}}"
    text = file.policy.read_text().replace("accounting: zcdp}}", f"accounting: pure}}, purposes: {purposes}}}")
    file.policy.write_text(text)
    clock = Clock(2026, 10, 20)
    with file.open() as curator:
        curator.ledger._clock = clock
        curator.query(COUNT, epsilon=1, who=ANA)
        for day, since in (((2026, 11, 28), "2026-10-20T00:00:00+00:00"), ((2026, 12, 2), "2026-11-28T00:00:00+00:00")):
            clock.set(*day)
            curator.ledger.record(Posting(Act.SEPARATE, details={entry.LOST: Loss(since=since).facts()}))
        clock.set(2027, 1, 9)
        done = losses.settle(curator.context, "sam", "x", spent=(5, None, None), entered=True)
        assert (done.since[:10], done.until[:10]) == ("2026-10-20", "2026-12-02"), "both losses are settled"
        left = []
        for day in ((2026, 9, 5), (2026, 10, 5), (2026, 11, 5), (2026, 12, 5), (2027, 1, 9)):
            clock.set(*day)
            left.append(curator.remaining(ANA).epsilon)
        assert left == [5, 0, 0, 0, 5]


@pytest.mark.parametrize("behind", [False, True], ids=["a clock ahead", "a clock behind"])
def test_a_loss_under_a_wrong_clock_is_charged_in_the_periods_of_either_clock(place: Place, behind: bool) -> None:
    purposes = "{care: {epsilon: 5, every: month}}, analysts: {ana: {purposes: [care]}}"
    text = place.policy.read_text().replace("accounting: zcdp}}", f"accounting: pure}}, purposes: {purposes}}}")
    place.policy.write_text(text)
    now = datetime.now(UTC)
    clock = Clock(2024, 10, 20)
    with place.open() as curator:
        curator.ledger._clock = clock
        curator.query(COUNT, epsilon=1, who=ANA)
        clock.now = now - timedelta(days=40) if behind else datetime(2031, 5, 31, tzinfo=UTC)
        curator.query(f"{COUNT} WHERE pid > 3", epsilon=1, who=ANA)
        head = curator.ledger.head()
        assert head is not None
        lost = Loss(head.sequence, head.time.isoformat(timespec="seconds"))
        clock.set(2024, 12, 2)  # when the loss is told
        curator.ledger.record(Posting(Act.SEPARATE, details={entry.LOST: lost.facts()}))
        done = losses.settle(curator.context, "sam", "x", spent=(5, None, None), entered=True)
        assert (done.since[:10], done.until[:10]) == ("2024-10-20", "2024-12-02")
        assert str(done.also_since)[:10] == clock_day(head.time)
        left = {}
        for day in ((2024, 9), (2024, 10), (2024, 11), (2024, 12), (2025, 1), (2031, 5), (2031, 6), (2031, 8)):
            clock.set(*day, 5)
            left[day] = curator.remaining(ANA).epsilon
        clock.now = now
        left["now"] = curator.remaining(ANA).epsilon
    ahead = {(2031, 5): 5, (2031, 6): 5} if behind else {(2031, 5): 0, (2031, 6): 0}
    usual = {(2024, 9): 5, (2024, 10): 0, (2024, 11): 0, (2024, 12): 0, (2025, 1): 5, (2031, 8): 5}
    assert left == {**usual, **ahead, "now": 0 if behind else 5}


def clock_day(time: datetime) -> str:
    return time.isoformat()[:10]
