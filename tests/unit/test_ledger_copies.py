"""What of a ledger is kept elsewhere: signed heads, witnesses that the policy names, backups that can be restored."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from deniable.cli.main import app
from deniable.curator import Curator
from deniable.errors import AccessRefused, DataError, DeniableError, IntegrityError
from deniable.ledger import Ledger
from deniable.ledger.backup import back_up, restore_backup, verify_backup
from deniable.ledger.export import Head, HeadSender, read_head, read_notes, refuse_other_head, write_note
from deniable.ledger.ledger import open_answer_store, open_ledger
from deniable.policy.document import read
from ledgers import change_behind, charge, plain

POLICY = """
version: 1
dataset: clinic
{witness}
tables:
  visits:
    source: visits.csv
    unit: {{column: pid, max_groups: 1, max_rows_per_group: 1}}
    columns: {{pid: {{type: integer, role: identifier, mask: redact}}, sex: {{categories: [F, M]}}}}
budgets: {{dataset: {{epsilon: 100}}}}
"""
KEY = bytes(range(32))


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    return write_policy(tmp_path)


def write_policy(folder: Path, witness: str = "") -> Path:
    (folder / "visits.csv").write_text("pid,sex\n" + "".join(f"{n},{'FM'[n % 2]}\n" for n in range(40)))
    (folder / "policy.yaml").write_text(POLICY.format(witness=f"witness: {witness}" if witness else ""))
    return folder / "policy.yaml"


def ask(policy: Path, *at_least: int) -> list[int]:
    with Curator.open(policy, ledger=policy.with_suffix(".ledger.sqlite")) as curator:
        asked = (f"SELECT COUNT(*) AS n FROM visits WHERE pid >= {each}" for each in at_least)
        return [int(curator.query(sql, epsilon=1).to_pylist()[0]["n"]) for sql in asked]


def run(*words: object, refused: bool = False) -> str:
    """What a command prints, or the words in which it refuses."""
    done = CliRunner().invoke(app, [str(each) for each in words])
    assert isinstance(done.exception, DeniableError) if refused else done.exit_code == 0, (done.output, done.exception)
    return str(done.exception) if refused else done.output


def test_a_note_is_what_transparency_logs_write() -> None:
    """Checked by hand, from the two specifications alone."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    note = write_note(Head("clinic", 12, "ab" * 32), KEY)
    body, _, signature = note.partition("\n\n")
    assert body.split("\n") == ["deniable/clinic", "12", base64.b64encode(bytes.fromhex("ab" * 32)).decode()]
    dash, name, signed = signature.rstrip("\n").split(" ")
    assert (dash, name) == ("\u2014", "deniable/clinic")
    public = Ed25519PrivateKey.from_private_bytes(KEY).public_key()
    raw = base64.b64decode(signed)
    assert raw[:4] == hashlib.sha256(b"deniable/clinic\n\x01" + public.public_bytes_raw()).digest()[:4]
    public.verify(raw[4:], (body + "\n").encode())


def public_key() -> str:
    from deniable.ledger.export import find_public_key

    return find_public_key(KEY)


def test_heads_are_read_back_and_a_changed_or_unsigned_one_is_refused() -> None:
    ledger = Ledger("clinic", plain(10))
    notes = [write_note(read_head(ledger), KEY)]
    for _ in range(3):
        charge(ledger, "1/10")
        notes.append(write_note(read_head(ledger), KEY))
    heads = read_notes("\n".join(notes), public_key())
    assert [head.number for head in heads] == [0, 1, 2, 3]
    for head in heads:
        refuse_other_head(ledger, head)
    for wrong in (notes[2].replace("\n2\n", "\n3\n"), write_note(heads[2]), write_note(heads[2], KEY[::-1])):
        with pytest.raises(IntegrityError, match="not signed with the key"):
            read_notes(wrong, public_key())
    for garbage in ("", "deniable/clinic\nx\ny\n", "other/clinic\n1\n" + "A" * 44):
        with pytest.raises(DataError):
            read_notes(garbage)


def test_a_ledger_that_lost_or_changed_an_entry_does_not_hold_a_head() -> None:
    ledger, other = Ledger("clinic", plain(10)), Ledger("clinic", plain(10))
    for number in range(3):
        charge(ledger, "1/10", request=str(number))
        charge(other, "1/5", request=str(number))
    head = read_head(ledger)
    with pytest.raises(IntegrityError, match="entry 3"):
        refuse_other_head(other, head)
    with pytest.raises(IntegrityError, match="missing at the end"):
        refuse_other_head(Ledger("clinic", plain(10)), head)


def test_the_command_prints_and_appends_the_head_and_compares_it(policy: Path, tmp_path: Path) -> None:
    heads = tmp_path / "elsewhere.txt"
    for at_least in range(3):
        ask(policy, at_least)
        run("ledger", "head", "--sign", "--to", heads, "-p", policy)
    told = json.loads(run("ledger", "head", "--sign", "-p", policy, "--json"))
    found = run("ledger", "verify", "--against", heads, "--key", told["key"], "-p", policy)
    assert "holds all 3 heads that were kept; signatures are checked" in found
    assert "not checked" in run("ledger", "verify", "--against", heads, "-p", policy)
    run("ledger", "verify", "--against", heads, "--key", "00" * 32, "-p", policy, refused=True)
    ledger = policy.with_suffix(".ledger.sqlite")
    with change_behind(ledger) as connection:
        connection.execute("DELETE FROM entries WHERE sequence = 3")
    # What the state folder knows is compared first; without it the heads find it.
    assert "when it was last used" in run("ledger", "verify", "--against", heads, "-p", policy, refused=True)


def test_a_witness_file_that_the_policy_names_finds_a_rollback_on_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = write_policy(tmp_path, "elsewhere.txt")
    ask(policy, 1)
    kept = tmp_path / "older"
    kept.mkdir()
    files = [policy.with_suffix(ending) for ending in (".ledger.sqlite", ".ledger.kept.sqlite")]
    for file in files:
        shutil.copy(file, kept)
    ask(policy, 2)
    assert [head.number for head in read_notes((tmp_path / "elsewhere.txt").read_text())] == [1, 2]
    for file in files:
        shutil.copy(kept / file.name, file)
    monkeypatch.setenv("DENIABLE_STATE", str(tmp_path / "another machine"))
    with pytest.raises(IntegrityError, match="missing at the end"):
        ask(policy, 3)


def test_a_witness_is_told_with_the_first_entry_and_then_once_an_hour(tmp_path: Path) -> None:
    ledger = Ledger("clinic", plain(10))
    sender = HeadSender(str(tmp_path / "heads.txt"), lambda: KEY, every=10**6)
    ledger.on_written = sender.note_entry
    for _ in range(5):
        charge(ledger, "1/10")
    assert [head.number for head in read_notes((tmp_path / "heads.txt").read_text(), public_key())] == [1]
    ledger.on_written = HeadSender(str(tmp_path / "all.txt"), lambda: None, every=0).note_entry
    for _ in range(3):
        charge(ledger, "1/10")
    assert [head.number for head in read_notes((tmp_path / "all.txt").read_text())] == [6, 7, 8]


def test_a_witness_that_cannot_be_told_holds_nothing_up_and_is_told_later(tmp_path: Path) -> None:
    ledger = Ledger("clinic", plain(10))
    ledger.on_written = HeadSender(str(tmp_path / "folder" / "heads.txt"), lambda: KEY).note_entry
    charge(ledger, "1/10")
    (tmp_path / "folder").mkdir()
    charge(ledger, "1/10")
    assert [head.number for head in read_notes((tmp_path / "folder" / "heads.txt").read_text())] == [2]


@pytest.fixture
def listener() -> Iterator[tuple[str, list[str]]]:
    received: list[str] = []

    class Listener(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Listener)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/heads", received
    server.shutdown()
    server.server_close()


def test_a_witness_may_be_a_web_address(policy: Path, listener: tuple[str, list[str]]) -> None:
    address, received = listener
    ask(policy, 1)
    run("ledger", "head", "--sign", "--to", address, "-p", policy)
    told = json.loads(run("ledger", "head", "--sign", "-p", policy, "--json"))
    assert received == [told["note"]]
    assert read_notes(received[0], told["key"])[0].number == 1


def test_a_witness_that_hangs_holds_no_command_up_and_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("deniable.ledger.export.CLOSING_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as hanging:  # it takes connections, and says nothing
        policy = write_policy(tmp_path, f"http://127.0.0.1:{hanging.getsockname()[1]}/heads")
        for at_least in range(3):
            ask(policy, at_least)
            waited_for = [each for each in threading.enumerate() if not each.daemon]
            assert waited_for == [threading.main_thread()], "the end of the process waits for nobody"
        hanging.accept()[0].close()
        hanging.settimeout(0)
        with pytest.raises(BlockingIOError):
            hanging.accept()
    assert [record.getMessage() for record in caplog.records if "witness at 127.0.0.1" in record.getMessage()] == [
        caplog.messages[0]
    ]
    assert "told again after ten minutes" in caplog.messages[0]


def test_a_file_of_heads_that_is_not_there_is_said_to_be_missing(policy: Path) -> None:
    ask(policy, 1)
    told = run("ledger", "verify", "--against", "nosuch.txt", "-p", policy, refused=True)
    assert "there is no file 'nosuch.txt'" in told
    assert "written" not in told


def test_a_backup_holds_ledger_and_answers_of_one_moment_and_is_restored(policy: Path, tmp_path: Path) -> None:
    given = ask(policy, 1, 2, 3)
    run("withdraw", "7", "--column", "pid", "-p", policy)
    file = tmp_path / "clinic.backup"
    told = run("ledger", "backup", file, "-p", policy)
    assert "4 entries and the stored answers" in told
    assert "deniable/clinic\n4\n" in told
    assert oct(file.stat().st_mode & 0o777) == "0o600"
    assert "already exists" in run("ledger", "backup", file, "-p", policy, refused=True)
    assert "there is a ledger" in run("ledger", "restore", file, "-p", policy, refused=True)
    for ending in (".ledger.sqlite", ".ledger.kept.sqlite"):
        policy.with_suffix(ending).unlink()
    run("ledger", "restore", file, "-p", policy)
    assert ask(policy, 1, 2, 3) == given
    assert len(run("ledger", "show", "-p", policy).splitlines()) == 4 + 4


@pytest.mark.parametrize("lost", [(), ("--lost", "--reason", "moved")])
def test_no_backup_is_put_beside_the_ledger_that_is_in_use(policy: Path, tmp_path: Path, lost: tuple[str, ...]) -> None:
    ask(policy, 1)
    file, beside = tmp_path / "clinic.backup", tmp_path / "other.sqlite"
    run("ledger", "backup", file, "-p", policy)
    ask(policy, 2, 3)
    told = run("ledger", "restore", file, "--ledger", beside, "-p", policy, *lost, refused=True)
    assert "have a budget already" in told
    assert not beside.exists()
    for ending in (".ledger.sqlite", ".ledger.kept.sqlite"):
        policy.with_suffix(ending).unlink()
    if lost:  # that ledger is gone, and the steward says so
        run("ledger", "restore", file, "--ledger", beside, "-p", policy, *lost)
        assert beside.exists()


def test_an_older_backup_than_was_last_used_is_refused_until_the_steward_says_that_the_rest_is_lost(
    policy: Path, tmp_path: Path
) -> None:
    ask(policy, 1)
    file = tmp_path / "clinic.backup"
    run("ledger", "backup", file, "-p", policy)
    ask(policy, 2, 3)
    for ending in (".ledger.sqlite", ".ledger.kept.sqlite"):
        policy.with_suffix(ending).unlink()
    assert "had 3 entries when it was last used" in run("ledger", "restore", file, "-p", policy, refused=True)
    assert not policy.with_suffix(".ledger.sqlite").exists()
    assert "needs a reason" in run("ledger", "restore", file, "-p", policy, "--lost", refused=True)
    run("ledger", "restore", file, "-p", policy, "--lost", "--reason", "the disk burned", "--by", "sam")
    with Curator.open(policy, ledger=policy.with_suffix(".ledger.sqlite")) as curator:
        last = [*curator.ledger.entries()][-1]
    assert (last.act, last.analyst, last.details["reason"]) == ("separate", "sam", "the disk burned")
    assert last.details["entries_lost"] == 2


@pytest.mark.parametrize("kept", [True, False])
def test_what_is_refused_over_a_lost_ledger_leaves_none_in_its_place(policy: Path, tmp_path: Path, kept: bool) -> None:
    given, file = ask(policy, 1, 2), tmp_path / "clinic.backup"
    run("ledger", "backup", file, "-p", policy)
    for ending in (".ledger.sqlite", ".ledger.kept.sqlite")[: 1 if kept else 2]:
        policy.with_suffix(ending).unlink()
    sql = "SELECT COUNT(*) AS n FROM visits"
    for words in (("query", sql, "--epsilon", "1"), ("withdraw", "7", "--column", "pid"), ("ledger", "backup", "new")):
        run(*words, "-p", policy, refused=True)
        assert not policy.with_suffix(".ledger.sqlite").exists()
    if kept:
        assert "Move both away" in run("ledger", "restore", file, "-p", policy, refused=True)
        policy.with_suffix(".ledger.kept.sqlite").unlink()
        assert not policy.with_suffix(".ledger.sqlite").exists()
    run("ledger", "restore", file, "-p", policy)
    assert ask(policy, 1, 2) == given


def test_a_backup_is_restored_over_a_ledger_that_was_made_and_never_used(
    policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, file = ask(policy, 1, 2), tmp_path / "clinic.backup"
    run("withdraw", "7", "--column", "pid", "-p", policy)
    run("ledger", "backup", file, "-p", policy)
    monkeypatch.setenv("DENIABLE_STATE", str(tmp_path / "another machine"))
    for ending in (".ledger.sqlite", ".ledger.kept.sqlite"):
        policy.with_suffix(ending).unlink()
    open_ledger(policy.with_suffix(".ledger.sqlite"), read(policy)).close()
    open_answer_store(policy.with_suffix(".ledger.sqlite"), "clinic").close()
    for _ in range(2):
        run("ledger", "restore", file, "-p", policy)
        assert ask(policy, 1, 2) == given
        for ending in (".ledger.sqlite", ".ledger.kept.sqlite"):
            policy.with_suffix(ending).unlink()


def test_a_backup_is_never_restored_over_entries_or_over_what_is_damaged(policy: Path, tmp_path: Path) -> None:
    ask(policy, 1)
    file, ledger = tmp_path / "clinic.backup", policy.with_suffix(".ledger.sqlite")
    run("ledger", "backup", file, "-p", policy)
    before = ledger.read_bytes()
    assert "Move both away" in run("ledger", "restore", file, "-p", policy, refused=True)
    assert ledger.read_bytes() == before
    ledger.write_bytes(b"x" * 5000)
    assert "Move both away" in run("ledger", "restore", file, "-p", policy, refused=True)
    assert ledger.read_bytes() == b"x" * 5000


def test_the_remedies_for_a_renamed_dataset_lead_on(policy: Path) -> None:
    ask(policy, 1)
    sql, renamed = "SELECT COUNT(*) AS n FROM visits", policy.with_name("ward.yaml")
    renamed.write_text(policy.read_text().replace("dataset: clinic", "dataset: ward"))
    told = run("query", sql, "--epsilon", "1", "-p", renamed, refused=True)
    assert "under the name of the dataset that it has" in told
    told = run("query", sql, "--epsilon", "1", "-p", renamed, "--ledger", f"{policy.with_suffix('')}.ledger.sqlite",
               refused=True)  # fmt: skip
    assert "put its name back: dataset: clinic" in told
    renamed.write_text(policy.read_text())
    run("query", sql, "--epsilon", "1", "-p", renamed, "--ledger", f"{policy.with_suffix('')}.ledger.sqlite")


CHANGES = (
    "DELETE FROM kept WHERE drawer IN ('answers', 'count')",
    "UPDATE kept SET value = CAST(value || X'00' AS BLOB) WHERE drawer = 'answers'",
    "DELETE FROM kept WHERE drawer = 'seal'",
    "DELETE FROM kept WHERE drawer = 'withdrawn'",
    "DELETE FROM entries WHERE sequence = 2",
    "DELETE FROM entries WHERE sequence = 4",
    "UPDATE entries SET text = replace(text, 'visits', 'nobody')",
    "PRAGMA user_version = 99",
    "DROP TABLE kept",
)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("change", CHANGES)
def test_a_backup_that_was_changed_is_not_restored(policy: Path, tmp_path: Path, change: str) -> None:
    ask(policy, 1, 2)
    run("withdraw", "7", "--column", "pid", "-p", policy)
    ask(policy, 3)
    run("ledger", "backup", tmp_path / "clinic.backup", "-p", policy)
    with change_behind(tmp_path / "clinic.backup") as connection:
        connection.executescript(change)
    for ending in (".ledger.sqlite", ".ledger.kept.sqlite"):
        policy.with_suffix(ending).unlink()
    run("ledger", "restore", tmp_path / "clinic.backup", "-p", policy, refused=True)
    assert not policy.with_suffix(".ledger.sqlite").exists()


def test_backups_beside_writers_are_each_of_one_moment(policy: Path, tmp_path: Path) -> None:
    known, place = read(policy), tmp_path / "busy.sqlite"
    ledger, store = open_ledger(place, known), open_answer_store(place, "clinic")
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            receipt = charge(ledger, "1/10000", analyst="", purpose="", request=str(number))
            store.keep("answers", str(number), f"r{number}", b"an answer", seen=(receipt.number, receipt.head))

    writers = [threading.Thread(target=write)]
    for writer in writers:
        writer.start()
    try:
        for number in range(10):
            found = back_up(ledger, store, tmp_path / f"{number}.backup")
            assert found == verify_backup(tmp_path / f"{number}.backup", "clinic")
    finally:
        stop.set()
        for writer in writers:
            writer.join()
        ledger.close()
        store.close()


def test_a_backup_moves_between_sqlite_and_postgresql(policy: Path, tmp_path: Path, postgres_address: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(postgres_address, autocommit=True) as owner:
        owner.execute("CREATE DATABASE moved")  # other tests may have a ledger of this dataset
    postgres_address = postgres_address.replace("/postgres?", "/moved?")
    given = ask(policy, 1, 2)
    run("ledger", "backup", tmp_path / "one.backup", "-p", policy)
    restore_backup(tmp_path / "one.backup", "clinic", postgres_address)
    with pytest.raises(AccessRefused, match="there is a ledger"):
        restore_backup(tmp_path / "one.backup", "clinic", postgres_address)
    ledger = open_ledger(postgres_address, read(policy))
    store = open_answer_store(postgres_address, "clinic")
    back_up(ledger, store, tmp_path / "two.backup")
    ledger.close()
    store.close()
    for ending in (".ledger.sqlite", ".ledger.kept.sqlite"):
        policy.with_suffix(ending).unlink()
    restore_backup(tmp_path / "two.backup", "clinic", policy.with_suffix(".ledger.sqlite"))
    assert ask(policy, 1, 2) == given
