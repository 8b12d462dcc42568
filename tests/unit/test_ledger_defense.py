"""Whoever can write the files of a ledger and its answer store cannot get budget, answers or people back by it.

Edits at random: of rows, of bytes, of whole files. Each is found when the files are opened, before anything is served.
Single bytes may fall into parts of a page that hold nothing (between its cells, or in a page that is free): then every
row, index and table is as it was, which is checked here by other code than opens the files.
"""

from __future__ import annotations

import itertools
import random
import shutil
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from deniable import Curator
from deniable.curator.governance import withdrawals
from deniable.errors import (
    CHARGED,
    NOTHING_CHARGED,
    UNKNOWN,
    DeniableError,
    IntegrityError,
    StorageError,
)
from deniable.ledger import Ledger
from deniable.ledger.answer_store import SEAL, AnswerStore, MemoryShelf, SqliteShelf
from deniable.ledger.entry import decode_entry, encode_entry, seal_entry
from deniable.ledger.ledger import verify
from deniable.ledger.sqlite import SqliteStore
from ledgers import change_behind, charge, plain

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.csv
    unit: {column: id, max_groups: 1, max_rows_per_group: 1}
    columns: {id: {type: integer, role: identifier}, age: {type: integer, between: [0, 99], role: quasi-identifier}}
budgets: {dataset: {epsilon: 3000}}
"""
PEOPLE, MUCH = 30, 500  # at epsilon 500 noise is 0 but for a probability below 1e-200
EDITS = 200  # in all, with the slow ones


def ask(curator: Curator, at_least: int) -> int:
    answer = curator.query(f"SELECT COUNT(*) AS n FROM visits WHERE age >= {at_least}", epsilon=MUCH, intervals=False)
    return int(answer.to_pylist()[0]["n"])


@dataclass(frozen=True)
class Files:
    """A ledger with its answer store, older copies of both, and a ledger of the same dataset made elsewhere."""

    folder: Path

    @property
    def ledger(self) -> Path:
        return self.folder / "policy.ledger.sqlite"

    @property
    def store(self) -> Path:
        return self.folder / "policy.ledger.kept.sqlite"

    def open(self) -> Curator:
        return Curator.open(self.folder / "policy.yaml")

    def copies(self, name: str) -> list[Path]:
        return sorted(self.folder.glob(f"before*/{name}"))


def save(files: Files, name: str) -> None:
    (files.folder / name).mkdir()
    for path in (files.ledger, files.store):
        shutil.copy(path, files.folder / name / path.name)


def settle(path: Path) -> None:
    """Move what is in the log into the file, so that the file is the whole store."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode = DELETE")
    connection.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return make_files(tmp_path_factory.mktemp("whole"))


def make_files(folder: Path) -> Files:
    """Three answers of 500, a withdrawal between the second and the third; half the budget is spent.

    Also for bench/ledger.py --edits.
    """
    files = Files(folder)
    folder.mkdir(exist_ok=True)
    (files.folder / "policy.yaml").write_text(POLICY)
    (files.folder / "visits.csv").write_text("id,age\n" + "".join(f"{i},{i}\n" for i in range(PEOPLE)))
    for step in range(3):
        with files.open() as curator:
            if step == 2:
                withdrawals.withdraw(curator.context, "id", "29")
            assert ask(curator, step) == PEOPLE - step - (step == 2)
        settle(files.ledger)
        settle(files.store)
        save(files, f"before{step}")
    elsewhere = Files(folder.with_name(f"{folder.name} elsewhere"))
    elsewhere.folder.mkdir()
    for name in ("policy.yaml", "visits.csv"):
        shutil.copy(files.folder / name, elsewhere.folder / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DENIABLE_STATE", str(elsewhere.folder / "another user"))
        with elsewhere.open() as curator:
            ask(curator, 9)
    settle(elsewhere.ledger)
    shutil.copy(elsewhere.ledger, files.folder / "elsewhere.sqlite")
    return files


def run(path: Path, *statements: str) -> None:
    with change_behind(path) as connection:
        for sql in statements:
            connection.execute(sql)


def flip_bytes(path: Path, draw: random.Random) -> None:
    content = bytearray(path.read_bytes())
    for _ in range(draw.choice((1, 8, 200))):
        content[draw.randrange(100, len(content))] ^= 1 << draw.randrange(8)
    path.write_bytes(content)


def change_entry(files: Files, draw: random.Random) -> None:
    name = draw.choice(("act", "analyst", "request", "text"))
    run(files.ledger, f"UPDATE entries SET {name} = {name} || 'x' WHERE sequence = {draw.randint(1, 4)}")


def make_charge_small(files: Files, draw: random.Random) -> None:
    number = draw.choice((1, 2, 4))
    run(files.ledger, f"UPDATE entries SET text = replace(text, '1/500', '1') WHERE sequence = {number}")


def forge_chain(files: Files, draw: random.Random) -> None:
    """A charge of less, and every hash after it made anew: only what was seen outside the ledger tells."""
    from dataclasses import replace

    first, before = draw.choice((1, 2, 4)), ""
    with sqlite3.connect(files.ledger) as connection:
        texts = connection.execute("SELECT sequence, text FROM entries ORDER BY sequence").fetchall()
    connection.close()
    forged = []
    for number, text in texts:
        entry = decode_entry(text, number)
        if number == first:
            entry = seal_entry(replace(entry, event={"kind": "pure", "epsilon": "1/1000"}))
        elif before:
            entry = seal_entry(replace(entry, previous=before))
        before = entry.hash if number >= first else ""
        written = encode_entry(entry).replace("'", "''")
        forged.append(f"UPDATE entries SET text = '{written}' WHERE sequence = {number}")
    run(files.ledger, *forged)


def cut(files: Files, draw: random.Random) -> None:
    which = draw.choice((f"> {draw.randint(1, 3)}", f"= {draw.randint(1, 4)}", f"< {draw.randint(2, 4)}"))
    run(files.ledger, f"DELETE FROM entries WHERE sequence {which}")


def put_before_the_first(files: Files, draw: random.Random) -> None:
    """A copy of a charge under a number that no entry has, and another request: a charge that was never made."""
    columns = f"{draw.choice((0, -1, -(2**63)))}, act, analyst, 'r{draw.random()}', text"
    run(files.ledger, f"INSERT INTO entries SELECT {columns} FROM entries WHERE sequence = 1")


def swap_entries(files: Files, draw: random.Random) -> None:
    one, other = draw.sample(range(1, 5), 2)
    for before, after in ((one, 99), (other, one), (99, other)):
        run(files.ledger, f"UPDATE entries SET sequence = {after} WHERE sequence = {before}")


def roll_ledger_back(files: Files, draw: random.Random) -> None:
    shutil.copy(draw.choice(files.copies(files.ledger.name)[:-1]), files.ledger)


def roll_store_back(files: Files, draw: random.Random) -> None:
    shutil.copy(draw.choice(files.copies(files.store.name)[:-1]), files.store)


def change_stored(files: Files, draw: random.Random) -> None:
    change = draw.choice(
        ("CAST(value || X'00' AS BLOB)", "X''", "substr(value, 2)", "CAST(X'7b7d0a' || value AS BLOB)")
    )
    run(files.store, f"UPDATE kept SET value = {change} WHERE drawer = '{draw.choice(('answers', 'withdrawn'))}'")


def swap_stored(files: Files, draw: random.Random) -> None:
    """The values of two answers, or of an answer and a withdrawal, change places."""
    both = "SELECT rowid, value FROM kept WHERE drawer IN ('answers', 'withdrawn')"
    with sqlite3.connect(files.store) as connection:
        (one, first), (other, second) = draw.sample(connection.execute(both).fetchall(), 2)
        for place, value in ((one, second), (other, first)):
            connection.execute("UPDATE kept SET value = ? WHERE rowid = ?", (value, place))
    connection.close()


def rename_stored(files: Files, draw: random.Random) -> None:
    alias = f"alias || '{draw.random()}'"
    run(files.store, f"UPDATE kept SET name = name || 'x', alias = {alias} WHERE drawer = 'withdrawn'")


def empty_store(files: Files, draw: random.Random) -> None:
    what = ("DELETE FROM kept", "DELETE FROM kept WHERE drawer = 'withdrawn'", "DROP TABLE kept")
    run(files.store, draw.choice(what))


def forget_collection(files: Files, name: str) -> None:
    run(files.store, f"DELETE FROM kept WHERE drawer = '{name}' OR (drawer = 'count' AND name = '{name}')")


def forge_counts(files: Files, lost: str) -> None:
    """Delete values, and write into the store what is then true of it: only the ledger knows that there were more."""
    held = "SELECT count(*) FROM kept AS k WHERE k.drawer NOT IN ('seen', 'seal', 'count')"
    run(
        files.store,
        f"DELETE FROM kept WHERE {lost}",
        f"UPDATE kept SET value = CAST(CAST(({held} AND kept.name IN ('', k.drawer)) AS TEXT) AS BLOB)"
        " WHERE drawer = 'count'",
    )


def delete_collection(files: Files, draw: random.Random) -> None:
    """A whole collection is gone, with its count, and perhaps with every count as it is then."""
    name = draw.choice(("answers", "keys", "epochs"))
    if draw.random() < 0.5:
        forget_collection(files, name)
    else:
        forge_counts(files, f"drawer = '{name}'")


def edit_own(files: Files, draw: random.Random) -> None:
    """A row that the store holds for itself has another name, or a second one stands beside it."""
    own = draw.choice(("seal", "seen", "count"))
    name = draw.choice(("name", "alias"))
    added = "INSERT INTO kept SELECT drawer, name || 'x', alias || 'x', value FROM kept"
    edit = draw.choice((f"UPDATE kept SET {name} = {name} || 'x'", added))
    run(files.store, f"{edit} WHERE drawer = '{own}'")


def change_mark(files: Files, draw: random.Random) -> None:
    """What the store remembers of the ledger's head is another one."""
    change = draw.choice(("CAST(replace(CAST(value AS TEXT), '4 ', '3 ') AS BLOB)", "X'00'", "CAST('x' AS BLOB)"))
    run(files.store, f"UPDATE kept SET value = {change} WHERE drawer = 'seen'")


def swap_files(files: Files, draw: random.Random) -> None:
    """The ledger stands in the place of the store, or the other way round."""
    one, other = draw.sample((files.ledger, files.store), 2)
    shutil.copy(one, other)


def lose_seal(files: Files, draw: random.Random) -> None:
    del draw
    run(files.store, f"DELETE FROM kept WHERE drawer = '{SEAL}'")


Edit = Callable[[Files, random.Random], None]
KINDS: dict[str, Edit] = {
    "an entry changed": change_entry,
    "a charge made small": make_charge_small,
    "a chain forged to its end": forge_chain,
    "entries deleted": cut,
    "entries swapped": swap_entries,
    "an entry before the first": put_before_the_first,
    "the ledger emptied": lambda files, _: run(files.ledger, "DELETE FROM entries"),
    "the ledger deleted": lambda files, _: files.ledger.unlink(),
    "an older copy of the ledger": roll_ledger_back,
    "a ledger made elsewhere": lambda files, _: shutil.copy(files.folder / "elsewhere.sqlite", files.ledger) and None,
    "bytes of the ledger flipped": lambda files, draw: flip_bytes(files.ledger, draw),
    "the ledger cut in two": lambda files, _: files.ledger.write_bytes(files.ledger.read_bytes()[:5000]) and None,
    "something stored changed": change_stored,
    "two stored things swapped": swap_stored,
    "a withdrawal renamed": rename_stored,
    "the store emptied": empty_store,
    "a collection deleted with its count": delete_collection,
    "the store deleted": lambda files, _: files.store.unlink(),
    "an older copy of the store": roll_store_back,
    "bytes of the store flipped": lambda files, draw: flip_bytes(files.store, draw),
    "the seal's key deleted": lose_seal,
    "the store's own rows renamed or added": edit_own,
    "the mark of the ledger changed": change_mark,
    "one file in the place of the other": swap_files,
}


UNREAD = ("bytes of the ledger flipped", "bytes of the store flipped")
"""Edits of bytes may fall where nothing is read."""
EACH = -(-EDITS // len(KINDS))


@pytest.mark.parametrize("numbers", [range(3), pytest.param(range(3, EACH), marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_an_edit_is_found_at_the_start_and_nothing_is_served(
    kind: str, numbers: range, whole: Files, tmp_path: Path
) -> None:
    for number in numbers:
        files = Files(tmp_path / str(number))
        shutil.copytree(whole.folder, files.folder)
        KINDS[kind](files, random.Random(f"{kind} {number}"))
        held = read_all(files) if kind in UNREAD else None
        try:
            with files.open():
                pass
        except DeniableError:
            continue
        assert kind in UNREAD
        assert held == read_all(whole), "what is served is what was there: the bytes held nothing"


def read_all(files: Files) -> object:
    """Every row of both files, through each table and each index, and how they are laid out; None where that fails."""
    try:
        return [_read_file(path) for path in (files.ledger, files.store)]
    except (sqlite3.Error, UnicodeDecodeError):
        return None


def _read_file(path: Path) -> object:
    connection = sqlite3.connect(path)
    try:
        layout = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name").fetchall()
        version = connection.execute("PRAGMA user_version").fetchone()
        ways = [(table, name) for kind, name, table, _ in layout if kind == "index"]
        ways += [(name, "") for kind, name, _, _ in layout if kind == "table"]
        found = {way: sorted(connection.execute(_read_by(connection, *way)).fetchall()) for way in ways}
        return layout, version, found
    finally:
        connection.close()


def _read_by(connection: sqlite3.Connection, table: str, index: str) -> str:
    """A question that reads a table by an index, or, without one, by itself."""
    if not index:
        return f"SELECT * FROM {table} NOT INDEXED"
    column = connection.execute(f"PRAGMA index_info({index})").fetchone()[2]
    return f"SELECT * FROM {table} INDEXED BY {index} WHERE {column} IS NOT NULL"


def test_an_index_that_lost_a_request_is_found(whole: Files, tmp_path: Path) -> None:
    """The rows are all there: only whoever looks for a request would miss it, and it would be charged again."""
    files = Files(tmp_path / "one")
    shutil.copytree(whole.folder, files.folder)
    with change_behind(files.ledger) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE type = 'index'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    content = bytearray(files.ledger.read_bytes())
    start = (page - 1) * size
    content[start + 3 : start + 5] = (1).to_bytes(2, "big")  # the page says that it has one cell
    files.ledger.write_bytes(content)
    with pytest.raises(IntegrityError, match="pages or indexes do not fit together"), files.open():
        pass


def test_the_untouched_files_are_served(whole: Files, tmp_path: Path) -> None:
    files = Files(tmp_path / "one")
    shutil.copytree(whole.folder, files.folder)
    with files.open() as curator:
        before = curator.remaining()
        assert [ask(curator, at_least) for at_least in range(3)] == [30, 29, 27]
        assert curator.remaining() == before


LOST: dict[str, tuple[Callable[[Files], object], str]] = {
    "the store": (lambda files: files.store.unlink(), "is gone, or was emptied"),
    "all that it held": (lambda files: run(files.store, "DELETE FROM kept"), "lost the key"),
    "its key": (lambda files: run(files.store, "DELETE FROM kept WHERE drawer = 'seal'"), "lost the key"),
    "all answers": (
        lambda files: run(files.store, "DELETE FROM kept WHERE drawer = 'answers'"), "0 values of 'answers', and 2 were"
    ),
    "one answer": (
        lambda files: run(files.store, "DELETE FROM kept WHERE rowid IN (SELECT max(rowid) FROM kept"
                          " WHERE drawer = 'answers')"),
        "1 values of 'answers', and 2 were stored",
    ),
    "a count that can be read": (
        lambda files: run(files.store, "UPDATE kept SET value = X'78' WHERE drawer = 'count'"), "was changed behind"
    ),
    "its counts": (lambda files: run(files.store, "DELETE FROM kept WHERE drawer = 'count'"), "was changed behind"),
    "all answers, with their count": (lambda files: forget_collection(files, "answers"), "values in all, and"),
    "its keys, with their count": (lambda files: forget_collection(files, "keys"), "values in all, and"),
    "all answers, with every count forged": (
        lambda files: forge_counts(files, "drawer = 'answers'"), "0 values of 'answers', and 1 were stored"
    ),
    "the keys that choose samples, with every count forged": (
        lambda files: forge_counts(files, "drawer = 'keys'"), "were stored"
    ),
    "its layout's number, with all answers and every count": (
        lambda files: run(files.store, "DELETE FROM kept WHERE drawer IN ('answers', 'count')",
                          "PRAGMA user_version = 1"),
        "0 values of 'answers', and 1 were stored",
    ),
    "what it had seen": (lambda files: run(files.store, "DELETE FROM kept WHERE drawer = 'seen'"), "is gone, or was"),
    "its newest copy": (
        lambda files: shutil.copy(files.copies(files.store.name)[0], files.store), "knew of entry 2 when it was last"
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def nobody_withdrew(whole: Files, tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Two answers; who withdrew would be missed by the ledger too."""
    files = Files(tmp_path_factory.mktemp("nobody"))
    for name in ("policy.yaml", "visits.csv"):
        shutil.copy(whole.folder / name, files.folder / name)
    for step in range(2):
        with files.open() as curator:
            ask(curator, step)
        settle(files.store)
        save(files, f"before{step}")
    return files


@pytest.mark.parametrize("lost", LOST)
def test_a_ledger_whose_store_lost_something_is_refused_at_every_start(
    nobody_withdrew: Files, tmp_path: Path, lost: str
) -> None:
    files = Files(tmp_path / "one")
    shutil.copytree(nobody_withdrew.folder, files.folder)
    files.open().close()
    settle(files.store)
    change, told = LOST[lost]
    change(files)
    for _ in range(2):
        with pytest.raises(IntegrityError, match=told), files.open():
            pass


LOST_IN_POSTGRESQL: dict[str, tuple[tuple[str, ...], str]] = {
    "answers": (("drawer = 'answers'",), "were stored: some"),
    "seen": (("drawer = 'seen'",), "is gone, or was emptied"),
    "counted": (("drawer = 'answers' OR (drawer = 'count' AND name = 'answers')",), "values in all, and"),
    "total": (("drawer = 'count' AND name = ''",), "was changed behind"),
    "forged": (("drawer = 'answers'", "drawer = 'count'"), "0 values of 'answers', and 1 were stored"),
}


@pytest.mark.parametrize("lost", LOST_IN_POSTGRESQL)
def test_a_store_in_postgresql_that_lost_something_is_refused_at_the_start(
    whole: Files, tmp_path: Path, postgres_address: str, lost: str
) -> None:
    import psycopg

    (tmp_path / "policy.yaml").write_text(POLICY.replace("dataset: clinic", f"dataset: lost{lost}"))
    shutil.copy(whole.folder / "visits.csv", tmp_path)
    for step in range(2):
        with Curator.open(tmp_path / "policy.yaml", ledger=postgres_address) as curator:
            ask(curator, step)
    gone, told = LOST_IN_POSTGRESQL[lost]
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        for rows in gone:
            connection.execute(f"DELETE FROM deniable_kept WHERE dataset = 'lost{lost}' AND ({rows})")  # type: ignore[call-overload]
        if lost == "forged":  # counted anew, as it is now
            connection.execute(
                "INSERT INTO deniable_kept SELECT dataset, 'count', coalesce(drawer, ''), coalesce(drawer, ''),"
                " count(*)::text::bytea FROM deniable_kept WHERE dataset = 'lostforged'"
                " AND drawer NOT IN ('seen', 'seal')"
                " GROUP BY GROUPING SETS ((dataset, drawer), (dataset))"
            )
    with pytest.raises(IntegrityError, match=told):
        Curator.open(tmp_path / "policy.yaml", ledger=postgres_address)


def test_writers_beside_a_check_of_the_store_are_no_damage(tmp_path: Path) -> None:
    store, other = (AnswerStore(SqliteShelf(tmp_path / "store.sqlite")) for _ in range(2))
    stop = threading.Event()

    def write() -> None:
        for number in itertools.takewhile(lambda _: not stop.is_set(), itertools.count()):
            other.keep("answers", f"{number % 7} {number}", f"r{number}", b"an answer")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(20):
            store.check()
    finally:
        stop.set()
        writer.join()
    assert int(store._inner.list_all("count")["answers"]) == len(store.list_all("answers"))
    store.close()
    other.close()


def test_a_disk_that_is_full_between_charge_and_answer_does_not_say_that_nothing_was_charged(
    whole: Files, tmp_path: Path
) -> None:
    files = Files(tmp_path / "one")
    shutil.copytree(whole.folder, files.folder)
    with files.open() as curator:
        shelf = curator.context.store._inner
        assert isinstance(shelf, SqliteShelf)
        pages = shelf._connection.execute("PRAGMA page_count").fetchone()[0]
        shelf._connection.execute(f"PRAGMA max_page_count = {pages}")
        refused = [failure for at_least in range(3, 6) if (failure := ask_and_count(curator, at_least)) is not None]
        assert refused, "the disk was never full"
        assert all(charges == 1 and told == CHARGED for charges, told in refused)


def ask_and_count(curator: Curator, at_least: int) -> tuple[int, str] | None:
    """How many charges a question left and what its refusal said of them; None where it was answered."""
    before = sum(entry.act == "charge" for entry in curator.ledger.entries())
    try:
        ask(curator, at_least)
    except StorageError as refusal:
        return sum(entry.act == "charge" for entry in curator.ledger.entries()) - before, refusal.charged
    return None


def test_a_store_from_before_there_were_seals_is_sealed_when_it_is_opened(tmp_path: Path) -> None:
    shelf = SqliteShelf(tmp_path / "old.sqlite")
    shelf.keep("answers", "question", "release", b"an answer")
    shelf.close()
    for _ in range(2):
        store = AnswerStore(SqliteShelf(tmp_path / "old.sqlite"))
        assert store.find("answers", "question") == store.find("answers", "release") == b"an answer"
        assert store.list_all("answers") == {"question": b"an answer"}
        store.close()


def test_a_value_under_another_name_or_in_another_collection_is_refused() -> None:
    shelf = MemoryShelf()
    store = AnswerStore(shelf)
    store.keep("answers", "a", "1", b"first")
    sealed = shelf.find("answers", "a")
    assert sealed is not None
    shelf.keep("answers", "b", "2", sealed)
    shelf.keep("withdrawn", "a", "1", sealed)
    for collection, name in (("answers", "b"), ("withdrawn", "a")):
        with pytest.raises(IntegrityError, match="was changed"):
            store.find(collection, name)
    assert store.find("answers", "1") == b"first"


class LosingConnection:
    """A connection whose commits are kept while the disk says that it failed."""

    def __init__(self, inner: sqlite3.Connection, name: str) -> None:
        self._inner, self._name = inner, name

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def execute(self, sql: str, *values: object) -> sqlite3.Cursor:
        if sql == "COMMIT" and self._name == "SQLITE_FULL":
            raise self._fail()
        done = self._inner.execute(sql, *values)
        if sql == "COMMIT":
            raise self._fail()
        return done

    def _fail(self) -> sqlite3.OperationalError:
        failure = sqlite3.OperationalError("disk I/O error")
        failure.sqlite_errorname = self._name
        return failure


@pytest.mark.parametrize(("name", "told"), [("SQLITE_IOERR_FSYNC", UNKNOWN), ("SQLITE_FULL", NOTHING_CHARGED)])
def test_a_commit_that_fails_is_called_uncharged_only_where_it_was_undone(tmp_path: Path, name: str, told: str) -> None:
    store = SqliteStore(tmp_path / "ledger.sqlite")
    ledger, whole = Ledger("clinic", plain(1)), store._connection
    ledger.store = store
    store._connection = LosingConnection(whole, name)  # type: ignore[assignment]
    with pytest.raises(StorageError) as refused:
        charge(ledger, "1/10", analyst="", purpose="", request="first")
    assert refused.value.charged == told
    store._connection = whole
    again = charge(ledger, "1/10", analyst="", purpose="", request="first")
    assert again.repeated is (told == UNKNOWN), "the request id settles it"
    assert verify(ledger).entries == 1
    store.close()
