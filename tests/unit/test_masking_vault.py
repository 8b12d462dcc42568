"""The codebook vault: random tokens, sealed values, one token a value even when processes race."""

from __future__ import annotations

import hmac
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from deniable.errors import IntegrityError, KeyUnavailable, ParameterError, StorageError
from deniable.masking import keys, vault
from deniable.masking.vault import Codebook

KEY = keys.Key("people", bytes(range(32)))


def _book(tmp_path: Path, **options: object) -> Codebook:
    return Codebook(tmp_path / "names.vault", KEY, "names", **options)  # type: ignore[arg-type]


def test_tokens_are_consistent_across_columns_and_openings_and_turn_back_with_the_key(tmp_path: Path) -> None:
    values = pa.array(["Ann", "Bob", None, "Ann", ""])
    first = _book(tmp_path).apply(values)
    again = _book(tmp_path).apply(pa.array(["Bob", "Ann"]))
    assert first.to_pylist()[:2] == again.to_pylist()[::-1]
    assert first.to_pylist()[0] == first.to_pylist()[3]
    assert first.to_pylist()[2] is None
    assert _book(tmp_path).reveal(first).to_pylist() == values.to_pylist()
    assert _book(tmp_path).reveal(pa.array(["never-given"])).to_pylist() == [None]


def test_tokens_are_not_computed_from_values_two_vaults_differ_under_one_key(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    values = pa.array([f"person {i}" for i in range(200)])
    one = _book(tmp_path).apply(values).to_pylist()
    two = _book(tmp_path / "a").apply(values).to_pylist()
    assert not set(one) & set(two)


def test_nothing_in_the_vaults_file_shows_a_value(tmp_path: Path) -> None:
    _book(tmp_path).apply(pa.array(["Wilhelmina Featherstonehaugh"]))
    raw = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"Wilhelmina" not in raw
    assert b"Feather" not in raw
    assert KEY.secret not in raw
    assert stat.S_IMODE((tmp_path / "names.vault").stat().st_mode) == 0o600


def test_a_wrong_key_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    _book(tmp_path).apply(pa.array(["Ann"]))
    wrong = Codebook(tmp_path / "names.vault", keys.generate_key("people"), "names")
    for deed in (wrong.apply, wrong.reveal):
        with pytest.raises(KeyUnavailable, match="wrong key"):
            deed(pa.array(["Bob"]))
    assert vault.count_values(tmp_path / "names.vault", KEY) == {"names": 1}


def test_an_altered_entry_is_noticed_and_entries_cannot_be_swapped(tmp_path: Path) -> None:
    tokens = _book(tmp_path).apply(pa.array(["Ann", "Bob"])).to_pylist()
    with sqlite3.connect(tmp_path / "names.vault") as database:
        sealed = dict(database.execute("SELECT token, sealed FROM codebook"))
        database.execute("UPDATE codebook SET sealed = ? WHERE token = ?", (sealed[tokens[1]], tokens[0]))
    database.close()
    with pytest.raises(IntegrityError, match="altered"):
        _book(tmp_path).reveal(pa.array([tokens[0]]))


def test_domains_of_one_vault_are_separate(tmp_path: Path) -> None:
    one = _book(tmp_path).apply(pa.array(["Ann"])).to_pylist()
    two = Codebook(tmp_path / "names.vault", KEY, "doctors").apply(pa.array(["Ann"])).to_pylist()
    assert one != two
    assert vault.count_values(tmp_path / "names.vault", KEY) == {"doctors": 1, "names": 1}


def test_sealing_anew_keeps_tokens_and_shuts_out_the_old_key(tmp_path: Path) -> None:
    values = pa.array([f"person {i}" for i in range(50)])
    before = _book(tmp_path).apply(values)
    new = keys.generate_key("people")
    assert vault.rekey(tmp_path / "names.vault", KEY, new) == 50
    book = Codebook(tmp_path / "names.vault", new, "names")
    assert book.apply(values).equals(before)
    assert book.reveal(before).to_pylist() == values.to_pylist()
    with pytest.raises(KeyUnavailable):
        _book(tmp_path).reveal(before)


def test_a_codebook_that_runs_out_of_tokens_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vault, "SIGNS", b"a" * 256)  # an alphabet of one sign has one token
    book = _book(tmp_path, length=4)
    book.apply(pa.array(["Ann"]))
    with pytest.raises(ParameterError, match="used up"):
        book.apply(pa.array(["Bob"]))
    assert vault.count_values(book.path, KEY) == {"names": 1}


def test_a_taken_token_is_drawn_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vault, "SIGNS", bytes(b"ab"[i % 2] for i in range(256)))  # 16 tokens of four signs
    tokens = _book(tmp_path, length=4).apply(pa.array([str(i) for i in range(12)])).to_pylist()
    assert len(set(tokens)) == 12


def test_a_file_that_is_no_vault_is_refused(tmp_path: Path) -> None:
    (tmp_path / "names.vault").write_bytes(b"not a database, but quite long enough to be looked at" * 50)
    with pytest.raises(StorageError):
        _book(tmp_path).apply(pa.array(["Ann"]))


WORKER = """
import sys
from pathlib import Path
import pyarrow as pa
from deniable.masking import keys
from deniable.masking.vault import Codebook

book = Codebook(Path(sys.argv[1]), keys.Key("people", bytes(range(32))), "names")
values = [f"person {(i + int(sys.argv[2])) % 300}" for i in range(300)]
sys.stdin.readline()  # all start at once
for at in range(0, 300, 30):
    part = values[at : at + 30]
    for value, token in zip(part, book.apply(pa.array(part)).to_pylist()):
        print(value, token, sep="=")
"""


def test_processes_that_meet_the_same_new_values_at_once_agree_on_every_token(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WORKER, str(tmp_path / "v")]
    workers = [
        subprocess.Popen([*command, str(75 * i)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for i in range(4)
    ]
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("go\n")
        worker.stdin.flush()
    said = [worker.communicate(timeout=120)[0].split("\n")[:-1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 4
    assert len({line for lines in said for line in lines}) == 300  # one token for each value, whoever asked
    assert sum(map(len, said)) == 1200
    assert vault.count_values(tmp_path / "v", KEY) == {"names": 300}


def test_two_entries_that_exchange_their_tokens_are_noticed(tmp_path: Path) -> None:
    _book(tmp_path).apply(pa.array(["Ann", "Bob"]))
    with sqlite3.connect(tmp_path / "names.vault") as database:
        rows = database.execute("SELECT lookup, token, sealed, proof FROM codebook").fetchall()
        database.execute("DELETE FROM codebook")
        for (lookup, _, _, proof), (_, token, sealed, _) in zip(rows, rows[::-1], strict=True):
            database.execute("INSERT INTO codebook VALUES ('names', ?, ?, ?, ?)", (lookup, token, sealed, proof))
    database.close()
    with pytest.raises(IntegrityError, match="altered"):
        _book(tmp_path).apply(pa.array(["Ann"]))


def test_the_size_of_an_entry_does_not_tell_how_long_its_value_is(tmp_path: Path) -> None:
    values = ["", "Al", "Wilhelmina Featherstonehaugh", "x" * 60, "y" * 61, "z" * 124]
    tokens = _book(tmp_path).apply(pa.array(values))
    with sqlite3.connect(tmp_path / "names.vault") as database:
        sizes = dict(database.execute("SELECT token, length(sealed) FROM codebook"))
    database.close()
    by_value = [sizes[token] for token in tokens.to_pylist()]
    assert len(set(by_value[:4])) == 1
    assert len(set(by_value[4:])) == 1
    assert _book(tmp_path).reveal(tokens).to_pylist() == values


def test_spellings_of_one_value_share_a_token_and_the_first_is_revealed(tmp_path: Path) -> None:
    tokens = _book(tmp_path).apply(pa.array(["Ann Smith", "ANN  smith", "Bob"]))
    assert tokens[0] == tokens[1] != tokens[2]
    assert _book(tmp_path).reveal(tokens).to_pylist() == ["Ann Smith", "Ann Smith", "Bob"]
    with pytest.raises(ParameterError, match="compares values by 'text'"):
        _book(tmp_path, normalize="exact").apply(pa.array(["Ann"]))


def test_looking_into_a_vault_that_is_not_there_does_not_make_one(tmp_path: Path) -> None:
    for deed in (lambda: _book(tmp_path).reveal(pa.array(["x"])), lambda: vault.count_values(tmp_path / "v", KEY)):
        with pytest.raises(StorageError, match="no vault"):
            deed()
    assert list(tmp_path.iterdir()) == []


FIRST_VERSION = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE codebook (
  domain TEXT NOT NULL, lookup BLOB NOT NULL, token TEXT NOT NULL, sealed BLOB NOT NULL,
  PRIMARY KEY (domain, lookup), UNIQUE (domain, token)) WITHOUT ROWID;
"""


def _first_version(path: Path, values: list[str], lookups: list[str]) -> None:
    """A vault as the first version wrote it, each value under the lookup of some value."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    cipher = AESGCM(KEY.derive("vault-seal", "names"))
    database = sqlite3.connect(path)
    database.executescript(FIRST_VERSION)
    database.executemany("INSERT INTO about VALUES (?, ?)", [("check", KEY.check), ("key", "people")])
    for i, (value, other) in enumerate(zip(values, lookups, strict=True)):
        lookup = hmac.digest(KEY.derive("vault-lookup", "names"), other.encode(), "sha256")
        nonce, token = bytes([i]) * 12, f"token{i}"
        sealed = nonce + cipher.encrypt(nonce, value.encode(), f"names\0{token}".encode())
        database.execute("INSERT INTO codebook VALUES ('names', ?, ?, ?)", (lookup, token, sealed))
    database.commit()
    database.close()


def test_a_vault_of_the_first_version_keeps_its_tokens_and_its_way_to_compare(tmp_path: Path) -> None:
    _first_version(tmp_path / "names.vault", ["Ann", "ann"], ["Ann", "ann"])
    assert _book(tmp_path).apply(pa.array(["Ann", "ann"])).to_pylist() == ["token0", "token1"]
    assert _book(tmp_path).reveal(pa.array(["token1"])).to_pylist() == ["ann"]


def test_a_vault_of_the_first_version_with_exchanged_entries_is_noticed(tmp_path: Path) -> None:
    _first_version(tmp_path / "names.vault", ["Ann", "Bob"], ["Bob", "Ann"])
    with pytest.raises(IntegrityError, match="altered"):
        _book(tmp_path).apply(pa.array(["Ann"]))


def test_until_the_new_key_opens_it_a_vault_in_rotation_is_the_old_keys(tmp_path: Path) -> None:
    values, new = pa.array(["Ann", "Bob"]), keys.generate_key("people")
    before = _book(tmp_path).apply(values)
    assert vault.prepare_rotation(tmp_path / "names.vault", KEY, new) == 2
    assert _book(tmp_path).apply(values).equals(before)
    with pytest.raises(KeyUnavailable, match="rotat"):
        _book(tmp_path).apply(pa.array(["Cem"]))  # a token given now would be lost
    vault.cancel_rotation(tmp_path / "names.vault", KEY)
    _book(tmp_path).apply(pa.array(["Cem"]))
    vault.prepare_rotation(tmp_path / "names.vault", KEY, new)
    fresh = Codebook(tmp_path / "names.vault", new, "names")
    assert fresh.apply(values).equals(before)
    assert vault.count_values(fresh.path, new) == {"names": 3}
    with pytest.raises(KeyUnavailable, match="wrong key"):
        _book(tmp_path).apply(values)
