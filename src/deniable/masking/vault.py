"""The codebook: values substituted by random tokens, kept in an encrypted vault that many processes may use at once.

A token here is not computed from the value: it is drawn, and the pair is kept. The vault is an SQLite file whose rows
hold three things: a *lookup* (HMAC of the value under one sub-key, so that the value is found again without being
stored), the token, and the value *sealed* with AES-256-GCM under another sub-key, bound to its own token and domain.
Without the key a vault gives away how many values it holds and nothing else; with it, every token can be turned back.

Safe under concurrent use: tokens are given inside a write transaction, so two processes that meet a new value at the
same moment end up with one token. A vault knows the check value of its key and refuses any other before writing.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import pyarrow as pa

from deniable.dp.samplers.entropy import SYSTEM
from deniable.errors import IntegrityError, KeyUnavailable, MissingExtra, ParameterError, StorageError
from deniable.masking import columns, keys, pseudonyms
from deniable.masking.keys import Key

LENGTH = 12
PATIENCE_SECONDS = 60
NONCE = 12
CHUNK = 500
SIGNS = bytes(pseudonyms.ALPHABET[byte & 31] for byte in range(256))
SCHEMA = """
CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS codebook (
  domain TEXT NOT NULL, lookup BLOB NOT NULL, token TEXT NOT NULL, sealed BLOB NOT NULL,
  PRIMARY KEY (domain, lookup), UNIQUE (domain, token)) WITHOUT ROWID;
"""


@dataclass(frozen=True, slots=True)
class Codebook:
    """Replace values by random tokens from a vault.

    **Holds:** equal values, equal tokens; no two values share one; tokens carry no information about values at all, so
    they meet the Safe Harbor demand that a code be not derived from the person's data. **Falls to:** whoever has vault
    and key; frequency matching, like every consistent substitution.
    """

    path: Path
    key: Key = field(repr=False)
    domain: str
    length: int = LENGTH
    prefix: str = ""

    def apply(self, values: pa.Array, _rows: pa.RecordBatch | None = None) -> pa.Array:
        """The tokens of a column, drawing those that are new."""
        encoded = columns.as_text(values).dictionary_encode()
        with open_vault(self.path, self.key) as vault:
            found = _find_tokens(vault, self, encoded.dictionary)
        return columns.restore_type(pa.array(found, pa.large_string()).take(encoded.indices), values.type)

    def reveal(self, values: pa.Array) -> pa.Array:
        """The values behind the tokens; null for a token that this vault never gave."""
        encoded = columns.as_text(values).dictionary_encode()
        with open_vault(self.path, self.key) as vault:
            seal = _Seal(self.key, self.domain)
            found = [_reveal_value(vault, seal, token) for token in encoded.dictionary.to_pylist()]
        return pa.array(found, pa.large_string()).take(encoded.indices)


@contextmanager
def open_vault(path: Path, key: Key) -> Iterator[sqlite3.Connection]:
    """A connection to the vault, made if it is not there, after seeing that the key is the right one."""
    _require_aes()
    try:
        new = not path.exists()
        if new:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        vault = sqlite3.connect(path, timeout=PATIENCE_SECONDS, isolation_level=None)
    except (OSError, sqlite3.Error) as failure:
        raise StorageError(f"the vault {path} cannot be opened ({type(failure).__name__})") from None
    try:
        _prepare(vault, path, key)
        yield vault
    except sqlite3.DatabaseError as failure:
        raise StorageError(f"the vault {path} could not be used ({type(failure).__name__})") from None
    finally:
        vault.close()


def count_values(path: Path, key: Key) -> dict[str, int]:
    """How many values each domain of a vault holds."""
    with open_vault(path, key) as vault:
        return dict(vault.execute("SELECT domain, count(*) FROM codebook GROUP BY domain ORDER BY domain"))


def rekey(path: Path, old: Key, new: Key) -> int:
    """Seal a vault again under a new key, in one transaction; tokens stay as they are. Says how many values moved."""
    with open_vault(path, old) as vault, _lock_for_writing(vault):
        rows = vault.execute("SELECT domain, token, sealed FROM codebook ORDER BY domain").fetchall()
        vault.execute("DELETE FROM codebook")
        for domain, entries in groupby(rows, key=lambda row: row[0]):
            _reseal(vault, _Seal(old, domain), new, [(token, sealed) for _, token, sealed in entries])
        vault.execute("UPDATE about SET value = ? WHERE name = 'check'", (new.check,))
        vault.execute("UPDATE about SET value = ? WHERE name = 'key'", (new.name,))
        return len(rows)


def _reseal(vault: sqlite3.Connection, old: _Seal, new: Key, entries: list[tuple[str, bytes]]) -> None:
    values = [old.open(token, sealed) for token, sealed in entries]
    lookups = _derive_lookups(new, old.domain, values)
    given = sorted(zip(lookups, (token for token, _ in entries), values, strict=True))
    _insert(vault, _Seal(new, old.domain), given)


def _prepare(vault: sqlite3.Connection, path: Path, key: Key) -> None:
    vault.execute("PRAGMA journal_mode = WAL")
    vault.execute("PRAGMA synchronous = FULL")
    vault.executescript(SCHEMA)
    vault.execute("INSERT OR IGNORE INTO about VALUES ('check', ?)", (key.check,))
    vault.execute("INSERT OR IGNORE INTO about VALUES ('key', ?)", (key.name,))
    (check,) = vault.execute("SELECT value FROM about WHERE name = 'check'").fetchone()
    keys.require_key(key, check, f"the vault {path}")


@contextmanager
def _lock_for_writing(vault: sqlite3.Connection) -> Iterator[None]:
    """A write transaction from its first statement on: whoever is second waits, and then sees what the first wrote."""
    vault.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        vault.execute("ROLLBACK")
        raise
    vault.execute("COMMIT")


def _find_tokens(vault: sqlite3.Connection, book: Codebook, distinct: pa.Array) -> list[str]:
    values = distinct.to_pylist()
    lookups = _derive_lookups(book.key, book.domain, values)
    known = _look_up_tokens(vault, book.domain, lookups)
    if len(known) < len(lookups):
        new = {one: value for one, value in zip(lookups, values, strict=True) if one not in known}
        with _lock_for_writing(vault):
            known |= _assign_tokens(vault, book, new)
    return [known[lookup] for lookup in lookups]


def _assign_tokens(vault: sqlite3.Connection, book: Codebook, new: dict[bytes, str]) -> dict[bytes, str]:
    """A token for each new value, inside a write transaction.

    Rows whose lookup another process wrote meanwhile, or whose drawn token is taken, are passed over by the database;
    reading back tells which, and only those that still have no token are drawn again.
    """
    seal = _Seal(book.key, book.domain)
    known = _look_up_tokens(vault, book.domain, list(new))
    for _ in range(100):
        missing = sorted(set(new) - set(known))
        if not missing:
            return known
        _insert(
            vault,
            seal,
            [(one, token, new[one]) for one, token in zip(missing, _draw_tokens(book, len(missing)), strict=True)],
        )
        known |= _look_up_tokens(vault, book.domain, missing)
    raise ParameterError(
        f"tokens of {book.length} characters are used up in the vault's domain '{book.domain}'",
        remedy="Choose a larger length",
    )


def _draw_tokens(book: Codebook, count: int) -> list[str]:
    """Random tokens. The alphabet has 32 characters, so the low five bits of a random byte choose one without bias."""
    signs = SYSTEM.take(book.length * count).translate(SIGNS).decode("ascii")
    return [book.prefix + signs[at : at + book.length] for at in range(0, len(signs), book.length)]


def _look_up_tokens(vault: sqlite3.Connection, domain: str, lookups: list[bytes]) -> dict[bytes, str]:
    known: dict[bytes, str] = {}
    for at in range(0, len(lookups), CHUNK):
        part = lookups[at : at + CHUNK]
        marks = ",".join("?" * len(part))
        rows = vault.execute(
            f"SELECT lookup, token FROM codebook WHERE domain = ? AND lookup IN ({marks})",  # noqa: S608  marks only
            (domain, *part),
        )
        known.update(rows.fetchall())
    return known


def _insert(vault: sqlite3.Connection, seal: _Seal, entries: list[tuple[bytes, str, str]]) -> None:
    rows = ((seal.domain, lookup, token, seal.close(token, value)) for lookup, token, value in entries)
    vault.executemany("INSERT OR IGNORE INTO codebook VALUES (?, ?, ?, ?)", rows)


def _reveal_value(vault: sqlite3.Connection, seal: _Seal, token: str) -> str | None:
    statement = "SELECT sealed FROM codebook WHERE domain = ? AND token = ?"
    row = vault.execute(statement, (seal.domain, token)).fetchone()
    return None if row is None else seal.open(token, row[0])


def _derive_lookups(key: Key, domain: str, values: list[str]) -> list[bytes]:
    digests = pseudonyms.digest_rows(key.derive("vault-lookup", domain), pa.array(values, pa.large_string()))
    return [row.tobytes() for row in digests]


class _Seal:
    """AES-256-GCM under the sub-key of one domain, a fresh random nonce for each value.

    Token and domain are bound in, so rows of a vault cannot be swapped unnoticed.
    """

    def __init__(self, key: Key, domain: str) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self.domain = domain
        self._cipher = AESGCM(key.derive("vault-seal", domain))

    def close(self, token: str, value: str) -> bytes:
        nonce = SYSTEM.take(NONCE)
        return nonce + self._cipher.encrypt(nonce, value.encode(), f"{self.domain}\0{token}".encode())

    def open(self, token: str, sealed: bytes) -> str:
        from cryptography.exceptions import InvalidTag

        try:
            bound = f"{self.domain}\0{token}".encode()
            return self._cipher.decrypt(sealed[:NONCE], sealed[NONCE:], bound).decode()
        except InvalidTag:
            raise IntegrityError(
                "an entry of the vault was altered since it was written", remedy="Restore the vault from a backup"
            ) from None


def _require_aes() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise MissingExtra(
            "a vault needs AES, which is not installed",
            remedy="Install it with: pip install 'deniable[vault]'",
            extra="vault",
        ) from None


def refuse_shared(path: Path) -> None:
    """Refuse a vault that others could read or write."""
    if path.exists() and path.stat().st_mode & 0o077:
        raise KeyUnavailable(f"the vault {path} can be opened by others", remedy=f"`chmod 600 {path}`")
