"""Keys and vaults: make, check, rotate with a re-token map, look into a vault with its key."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.errors import ParameterError
from deniable.policy.document import Policy, read
from deniable.release.record import Record, SparseRecord

if TYPE_CHECKING:
    from deniable.masking.keys import Key, Keyring


def open_keyring(policy: Policy, places: Sequence[str]) -> Keyring:
    """Where the keys of a policy are: as the command line says, else as the policy says, else the key folder."""
    from deniable.masking.keys import Keyring, parse_places

    declared = {}
    for place in policy.keys:
        at = shlex.join(place.at) if place.kind == "command" else place.at[0]
        declared[place.name] = f"{place.kind}:{policy.path(at) if place.kind == 'file' else at}"
    return Keyring(declared | parse_places(places))


def checks_path(policy: Path) -> Path:
    """Where the check values of a policy's keys are remembered."""
    return policy.with_suffix(".keys.json")


@dataclass(frozen=True, slots=True, eq=False)
class NewKey(Record):
    """A key that was drawn: its check value, and the file that holds it."""

    key: str
    check: str
    file: str


@dataclass(frozen=True, slots=True, eq=False)
class KeyCheck(Record):
    """A key that can be read: where it is, and whether it is the one that was used before."""

    key: str
    check: str
    place: str
    confirmed: bool


@dataclass(frozen=True, slots=True, eq=False)
class KeyRotation(SparseRecord):
    """A key in the place of an old one; with a policy, the map of its tokens and the vaults that it seals now."""

    key: str
    check: str
    old_check: str
    old_key: str
    map: str | None = None
    tokens: int | None = None
    vaults: list[str] | None = None


def new(name: str, out: Path | None = None) -> NewKey:
    """Draw a key and store it in a file that only its owner can read."""
    from deniable.masking import keys

    key = keys.generate_key(name)
    path = keys.store_key(key, out or keys.find_key_directory() / f"{name}{keys.SUFFIX}")
    return NewKey(name, key.check, str(path))


def check(name: str, places: Sequence[str] = (), policy: Path | None = None) -> KeyCheck:
    """Open a key, and compare it with what is remembered beside a policy."""
    from deniable.masking import keys

    ring = open_keyring(read(policy), places) if policy else keys.Keyring(keys.parse_places(places))
    key = ring.open(name)
    known = keys.read_checks(checks_path(policy)) if policy else {}
    if name in known:
        keys.require_key(key, known[name], str(policy))
    return KeyCheck(name, key.check, ring.place(name), name in known)


def rotate(name: str, policy: Path | None = None, out: Path | None = None) -> KeyRotation:
    """Put a new key in the place of an old one, which is kept; with a policy, map tokens and seal vaults anew.

    The map has one row for each distinct value that was masked under the key: its old and its new token. It ties both
    releases together, so it is as secret as the key.
    """
    from deniable.masking import keys

    if (policy is None) != (out is None):
        raise ParameterError("a re-token map needs a policy and a file to write", remedy="Say --policy and --map")
    old, fresh = keys.Keyring().open(name), keys.generate_key(name)
    mapped = _map(read(policy), old, fresh, out) if policy and out else 0  # first: if it fails, nothing has changed
    kept = keys.replace_key(fresh, keys.find_key_directory())
    done = KeyRotation(name, fresh.check, old.check, str(kept))
    if policy is None:
        return done
    return replace(done, map=str(out), tokens=mapped, vaults=_advance_checks(policy, old, fresh))


def _advance_checks(path: Path, old: Key, fresh: Key) -> list[str]:
    """Seal the policy's vaults with the new key, and remember its check value; says which vaults."""
    from deniable.masking import keys

    sealed = _reseal(read(path), old, fresh)
    known = keys.read_checks(checks_path(path))
    keys.remember_checks(known | {fresh.name: fresh.check}, checks_path(path))
    return sealed


def vault_size(path: Path, name: str, places: Sequence[str] = ()) -> dict[str, int]:
    """How many values each domain of a vault holds."""
    from deniable.masking import keys, vault

    key = keys.Keyring(keys.parse_places(places)).open(name)
    return vault.count_values(path, key)


def reveal(
    path: Path, name: str, tokens: Sequence[str], domain: str = "", places: Sequence[str] = ()
) -> dict[str, str | None]:
    """The values behind tokens of a vault; null for a token that it never gave."""
    import pyarrow as pa

    from deniable.masking import keys, vault

    key = keys.Keyring(keys.parse_places(places)).open(name)
    book = vault.Codebook(path, key, domain or name)
    values = book.reveal(pa.array(list(tokens), pa.large_string())).to_pylist()
    return dict(zip(tokens, values, strict=True))


def _map(policy: Policy, old: Key, new_key: Key, out: Path) -> int:
    """Old and new tokens of every column that the key masks with computed tokens."""
    import pyarrow as pa

    from deniable.engines.duckdb import DuckDBEngine
    from deniable.masking.joins import map_tokens

    with DuckDBEngine(root=policy.folder) as engine:
        tables = []
        for schema in policy.private:
            engine.attach(schema.name, schema.source, schema)
            tables += map_tokens(engine, schema, old, new_key, policy.folder)
        if not tables:
            raise ParameterError(f"no column of the policy is masked with tokens of the key '{old.name}'")
        whole = pa.concat_tables(tables)
        return int(engine.write(whole, out))


def _reseal(policy: Policy, old: Key, new_key: Key) -> list[str]:
    from deniable.masking import vault

    specs = [column.mask for table in policy.private for column in table.columns if column.mask]
    named = {
        str(spec.options["vault"]) for spec in specs if spec.kind == "codebook" and spec.options["key"] == old.name
    }
    paths = sorted(path for path in map(policy.path, named) if path.exists())
    for path in paths:
        vault.rekey(path, old, new_key)
    return [str(path) for path in paths]
