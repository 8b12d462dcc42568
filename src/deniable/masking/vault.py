"""The codebook: values substituted by random tokens, kept in an encrypted vault that many processes may use at once.

A token here is not computed from the value: it is drawn, and the pair is kept. The vault is an SQLite file whose rows
hold four things: a *lookup* (HMAC of the value under one sub-key, so that the value is found again without being
stored), the token, a *proof* (HMAC of lookup and token under another, so that no entry gets another's token unnoticed),
and the value, padded and *sealed* with AES-256-GCM under a third, bound to its own token and domain. Without the key a
vault gives away how many values it holds, and nothing else up to 60 bytes of each; with it, every token can be turned
back. Values that differ in case, spaces or Unicode form only share a token; the first one met is what is sealed.

Rotation seals all entries anew beside the old ones, under the new key; which of the two count is decided by the key
that opens the vault next. So the key's own file is the one thing that changes, and it changes at once.

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
from deniable.storage import is_open_to_others

LENGTH = 12
PATIENCE_SECONDS = 60
NONCE = 12
CHUNK = 500
SIGNS = bytes(pseudonyms.ALPHABET[byte & 31] for byte in range(256))
BUCKET = 64  # bytes that the shortest sealed value fills; longer ones fill the next power of two
PROOF = 16
VERSION = "2"
ENTRIES = """CREATE TABLE IF NOT EXISTS {} (
  domain TEXT NOT NULL, lookup BLOB NOT NULL, token TEXT NOT NULL, sealed BLOB NOT NULL, proof BLOB NOT NULL,
  PRIMARY KEY (domain, lookup), UNIQUE (domain, token)) WITHOUT ROWID"""
ABOUT = "CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID"


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
    normalize: str | None = None
    """How values are compared; None is as the vault says, and a new vault as its key says."""

    def apply(self, values: pa.Array, _rows: pa.RecordBatch | None = None) -> pa.Array:
        """The tokens of a column, drawing those that are new."""
        encoded = columns.as_text(values).dictionary_encode()
        with open_vault(self.path, self.key, self.normalize) as vault:
            found = _find_tokens(vault, self, encoded.dictionary)
        return columns.restore_type(pa.array(found, pa.large_string()).take(encoded.indices), values.type)

    def reveal(self, values: pa.Array) -> pa.Array:
        """The values behind the tokens, in the spelling met first; null for a token that this vault never gave."""
        encoded = columns.as_text(values).dictionary_encode()
        with open_vault(self.path, self.key, create=False) as vault:
            seal = _Seal(self.key, self.domain)
            found = [_reveal_value(vault, seal, token) for token in encoded.dictionary.to_pylist()]
        return pa.array(found, pa.large_string()).take(encoded.indices)


@contextmanager
def open_vault(
    path: Path, key: Key, normalize: str | None = None, *, create: bool = True
) -> Iterator[sqlite3.Connection]:
    """A connection to the vault, made if it is not there, after seeing that the key is the right one."""
    _require_aes()
    if not create and not path.exists():
        raise StorageError(f"there is no vault {path}", remedy="Restore it from a backup, or name the right file")
    try:
        if not path.exists():
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
        vault = sqlite3.connect(path, timeout=PATIENCE_SECONDS, isolation_level=None)
    except (OSError, sqlite3.Error) as failure:
        raise StorageError(
            f"the vault {path} cannot be opened ({type(failure).__name__})",
            remedy="Put the vault back from a copy, or let this user read and write it",
        ) from None
    try:
        _prepare(vault, path, key, normalize)
        yield vault
    except sqlite3.DatabaseError as failure:
        raise StorageError(
            f"the vault {path} could not be used ({type(failure).__name__})",
            remedy="Put the vault back from a copy, or let this user read and write it",
        ) from None
    finally:
        vault.close()


def count_values(path: Path, key: Key) -> dict[str, int]:
    """How many values each domain of a vault holds."""
    with open_vault(path, key, create=False) as vault:
        return dict(vault.execute("SELECT domain, count(*) FROM codebook GROUP BY domain ORDER BY domain"))


def describe_vault(path: Path, key: Key) -> tuple[str, str]:
    """The identity of a vault, made if it is not there, and how it compares values."""
    with open_vault(path, key) as vault:
        about = _read_about(vault)
        return about["id"], about["normalize"]


def find_owner(path: Path, key: Key) -> str | None:
    """The ledger that a vault belongs to, as it was named first; None where none was."""
    with open_vault(path, key, create=False) as vault:
        return _read_about(vault).get("owner")


def name_owner(path: Path, key: Key, owner: str) -> None:
    """Say to which ledger a vault belongs, where that was not said yet."""
    with open_vault(path, key, create=False) as vault, _lock_for_writing(vault):
        vault.execute("INSERT OR IGNORE INTO about VALUES ('owner', ?)", (owner,))


def prepare_rotation(path: Path, old: Key, new: Key) -> int:
    """Seal all entries of a vault beside the old ones, under a new key, in one transaction; says how many.

    Tokens stay as they are. Until the vault is opened with the new key nothing else has changed.
    """
    with open_vault(path, old, create=False) as vault, _lock_for_writing(vault):
        _drop_next(vault)
        vault.execute(ENTRIES.format("codebook_next"))
        count = _copy_entries(vault, old, new, "codebook_next")
        vault.execute("INSERT OR REPLACE INTO about VALUES ('next', ?)", (new.check,))
        return count


def cancel_rotation(path: Path, old: Key) -> None:
    """Forget the entries that were sealed for another key."""
    with open_vault(path, old, create=False) as vault, _lock_for_writing(vault):
        _drop_next(vault)


def rekey(path: Path, old: Key, new: Key) -> int:
    """Seal a vault again under a new key; tokens stay as they are. Says how many values moved."""
    count = prepare_rotation(path, old, new)
    with open_vault(path, new, create=False):
        return count


def _copy_entries(vault: sqlite3.Connection, old: Key, new: Key, table: str) -> int:
    rows = vault.execute("SELECT domain, lookup, token, sealed, proof FROM codebook ORDER BY domain").fetchall()
    for domain, entries in groupby(rows, key=lambda row: row[0]):
        _reseal(vault, _Seal(old, domain), new, [entry[1:] for entry in entries], table)
    return len(rows)


def _reseal(
    vault: sqlite3.Connection, old: _Seal, new: Key, entries: list[tuple[bytes, str, bytes, bytes]], table: str
) -> None:
    old.require_proofs([(lookup, token, proof) for lookup, token, _, proof in entries])
    values = [old.open(token, sealed) for _, token, sealed, _ in entries]
    lookups = _derive_lookups(new, old.domain, _normalize(values, _read_about(vault)["normalize"]))
    given = sorted(zip(lookups, (token for _, token, _, _ in entries), values, strict=True))
    _insert(vault, _Seal(new, old.domain), given, table)


def _drop_next(vault: sqlite3.Connection) -> None:
    vault.execute("DROP TABLE IF EXISTS codebook_next")
    vault.execute("DELETE FROM about WHERE name = 'next'")


def _prepare(vault: sqlite3.Connection, path: Path, key: Key, normalize: str | None) -> None:
    vault.execute("PRAGMA journal_mode = WAL")
    vault.execute("PRAGMA synchronous = FULL")
    vault.execute(ABOUT)
    about = _read_about(vault)
    if about.get("next") == key.check:
        _finish_rotation(vault, key)
    elif "version" not in about:
        _begin(vault, path, key, normalize)
    about = _read_about(vault)
    keys.require_key(key, about["check"], f"the vault {path}")
    if normalize is not None and normalize != about["normalize"]:
        raise ParameterError(
            f"the vault {path} compares values by '{about['normalize']}', and the policy says '{normalize}'",
            remedy=f"Write normalize: {about['normalize']}, or begin another vault. Nothing was written",
        )


def _read_about(vault: sqlite3.Connection) -> dict[str, str]:
    return dict(vault.execute("SELECT name, value FROM about"))


def _begin(vault: sqlite3.Connection, path: Path, key: Key, normalize: str | None) -> None:
    """Write what a new vault is; a vault of the first version gets proofs and padding, after its entries were tried."""
    with _lock_for_writing(vault):
        about = _read_about(vault)
        if "version" in about:  # another process was first
            return
        first = "check" in about
        if first:
            keys.require_key(key, about["check"], f"the vault {path}")
        chosen = "exact" if first else normalize or key.normalize
        said = {"version": VERSION, "id": SYSTEM.take(16).hex(), "check": key.check, "key": key.name}
        vault.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", [*said.items(), ("normalize", chosen)])
        _upgrade(vault, key) if first else vault.execute(ENTRIES.format("codebook"))


def _upgrade(vault: sqlite3.Connection, key: Key) -> None:
    """Entries without proofs, as the first version wrote them, into entries with; a lookup that is not its value's is
    noticed.
    """
    rows = vault.execute("SELECT domain, lookup, token, sealed FROM codebook ORDER BY domain").fetchall()
    vault.execute("DROP TABLE codebook")
    vault.execute(ENTRIES.format("codebook"))
    for domain, entries in groupby(rows, key=lambda row: row[0]):
        seal, listed = _Seal(key, domain), list(entries)
        values = [seal.open(token, sealed, padded=False) for _, _, token, sealed in listed]
        if _derive_lookups(key, domain, values) != [lookup for _, lookup, _, _ in listed]:
            raise IntegrityError(ALTERED, remedy=RESTORE)
        given = [(lookup, token, value) for (_, lookup, token, _), value in zip(listed, values, strict=True)]
        _insert(vault, seal, given)


def _finish_rotation(vault: sqlite3.Connection, key: Key) -> None:
    """Let the entries that were sealed for this key take the place of the old ones."""
    with _lock_for_writing(vault):
        if _read_about(vault).get("next") != key.check:  # another process was first
            return
        vault.execute("DROP TABLE codebook")
        vault.execute("ALTER TABLE codebook_next RENAME TO codebook")
        vault.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", [("check", key.check), ("key", key.name)])
        vault.execute("DELETE FROM about WHERE name = 'next'")


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


def _normalize(values: list[str], how: str) -> list[str]:
    normal: list[str] = columns.normalize_text(pa.array(values, pa.large_string()), how).to_pylist()
    return normal


def _find_tokens(vault: sqlite3.Connection, book: Codebook, distinct: pa.Array) -> list[str]:
    values = distinct.to_pylist()
    lookups = _derive_lookups(book.key, book.domain, _normalize(values, _read_about(vault)["normalize"]))
    seal = _Seal(book.key, book.domain)
    known = _look_up_tokens(vault, seal, lookups)
    if any(one not in known for one in lookups):
        new: dict[bytes, str] = {}
        for one, value in zip(lookups, values, strict=True):
            if one not in known:
                new.setdefault(one, value)
        with _lock_for_writing(vault):
            known |= _assign_tokens(vault, book, seal, new)
    return [known[lookup] for lookup in lookups]


def _assign_tokens(vault: sqlite3.Connection, book: Codebook, seal: _Seal, new: dict[bytes, str]) -> dict[bytes, str]:
    """A token for each new value, inside a write transaction.

    Rows whose lookup another process wrote meanwhile, or whose drawn token is taken, are passed over by the database;
    reading back tells which, and only those that still have no token are drawn again.
    """
    if "next" in _read_about(vault):
        raise KeyUnavailable(
            f"the key of the vault {book.path} is being rotated, or a rotation was broken off",
            remedy=f"Wait for it, or run `deniable key rotate {book.key.name}` again. Nothing was written",
        )
    known = _look_up_tokens(vault, seal, list(new))
    for _ in range(100):
        missing = sorted(set(new) - set(known))
        if not missing:
            return known
        _insert(
            vault,
            seal,
            [(one, token, new[one]) for one, token in zip(missing, _draw_tokens(book, len(missing)), strict=True)],
        )
        known |= _look_up_tokens(vault, seal, missing)
    raise ParameterError(
        f"tokens of {book.length} characters are used up in the vault's domain '{book.domain}'",
        remedy="Choose a larger length",
    )


def _draw_tokens(book: Codebook, count: int) -> list[str]:
    """Random tokens. The alphabet has 32 characters, so the low five bits of a random byte choose one without bias."""
    signs = SYSTEM.take(book.length * count).translate(SIGNS).decode("ascii")
    return [book.prefix + signs[at : at + book.length] for at in range(0, len(signs), book.length)]


def _look_up_tokens(vault: sqlite3.Connection, seal: _Seal, lookups: list[bytes]) -> dict[bytes, str]:
    """The tokens of those lookups that the vault knows, each proved to belong to its lookup."""
    found: list[tuple[bytes, str, bytes]] = []
    for at in range(0, len(lookups), CHUNK):
        part = lookups[at : at + CHUNK]
        marks = ",".join("?" * len(part))
        found += vault.execute(
            f"SELECT lookup, token, proof FROM codebook WHERE domain = ? AND lookup IN ({marks})",  # noqa: S608  marks
            (seal.domain, *part),
        ).fetchall()
    seal.require_proofs(found)
    return {lookup: token for lookup, token, _ in found}


def _insert(
    vault: sqlite3.Connection, seal: _Seal, entries: list[tuple[bytes, str, str]], table: str = "codebook"
) -> None:
    proofs = seal.prove([(lookup, token) for lookup, token, _ in entries])
    rows = (
        (seal.domain, lookup, token, seal.close(token, value), proof)
        for (lookup, token, value), proof in zip(entries, proofs, strict=True)
    )
    vault.executemany(f"INSERT OR IGNORE INTO {table} VALUES (?, ?, ?, ?, ?)", rows)  # noqa: S608  our own two names


def _reveal_value(vault: sqlite3.Connection, seal: _Seal, token: str) -> str | None:
    statement = "SELECT sealed FROM codebook WHERE domain = ? AND token = ?"
    row = vault.execute(statement, (seal.domain, token)).fetchone()
    return None if row is None else seal.open(token, row[0])


def _derive_lookups(key: Key, domain: str, values: list[str]) -> list[bytes]:
    digests = pseudonyms.digest_rows(key.derive("vault-lookup", domain), pa.array(values, pa.large_string()))
    return [row.tobytes() for row in digests]


ALTERED = "an entry of the vault was altered since it was written"
RESTORE = "Restore the vault from a backup"


class _Seal:
    """AES-256-GCM under the sub-key of one domain, a fresh random nonce for each value, and proofs under another.

    Token and domain are bound in, and a proof binds lookup and token, so rows of a vault cannot be swapped unnoticed.
    """

    def __init__(self, key: Key, domain: str) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self.domain = domain
        self._cipher = AESGCM(key.derive("vault-seal", domain))
        self._proving = key.derive("vault-proof", domain)

    def close(self, token: str, value: str) -> bytes:
        nonce = SYSTEM.take(NONCE)
        return nonce + self._cipher.encrypt(nonce, _pad(value.encode()), f"{self.domain}\0{token}".encode())

    def open(self, token: str, sealed: bytes, *, padded: bool = True) -> str:
        from cryptography.exceptions import InvalidTag

        try:
            bound = f"{self.domain}\0{token}".encode()
            plain = self._cipher.decrypt(sealed[:NONCE], sealed[NONCE:], bound)
        except InvalidTag:
            raise IntegrityError(ALTERED, remedy=RESTORE) from None
        return (plain[4 : 4 + int.from_bytes(plain[:4], "big")] if padded else plain).decode()

    def prove(self, pairs: list[tuple[bytes, str]]) -> list[bytes]:
        texts = pa.array([f"{lookup.hex()} {token}" for lookup, token in pairs], pa.large_string())
        return [row[:PROOF].tobytes() for row in pseudonyms.digest_rows(self._proving, texts)]

    def require_proofs(self, entries: list[tuple[bytes, str, bytes]]) -> None:
        if self.prove([(lookup, token) for lookup, token, _ in entries]) != [proof for _, _, proof in entries]:
            raise IntegrityError(ALTERED, remedy=RESTORE)


def _pad(value: bytes) -> bytes:
    """The value behind its length, filled up so that its size tells no more than the next power of two."""
    size = max(BUCKET, 1 << (len(value) + 3).bit_length())
    return (len(value).to_bytes(4, "big") + value).ljust(size, b"\0")


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
    if path.exists() and is_open_to_others(path.stat()):
        raise KeyUnavailable(f"the vault {path} can be opened by others", remedy=f"`chmod 600 {path}`")
