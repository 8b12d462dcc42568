"""Keys and vaults: make, check, rotate with a re-token map, look into a vault with its key.

A rotation is one step: everything that must take the new key is first made to take either, then the key's own file is
replaced. A process that is killed before or after leaves keys and vaults that fit each other.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.curator.context import ledger_of
from deniable.errors import AccessRefused, DeniableError, ParameterError, StorageError
from deniable.policy.document import Policy, read
from deniable.release.record import Record, SparseRecord

if TYPE_CHECKING:
    from deniable.ledger import Ledger
    from deniable.masking.keys import Key, Keyring
    from deniable.masking.plan import TablePlan
    from deniable.masking.vault import Codebook

VAULT = "vault "
"""Before a vault's place in the record of check values."""


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
    expected = keys.find_expected(keys.read_checks(checks_path(policy)), key) if policy else None
    if expected is not None:
        keys.require_key(key, expected, str(policy))
    return KeyCheck(name, key.check, ring.place(name), expected is not None)


@contextmanager
def confirm(policy: Path, plans: Iterable[TablePlan], opened: Iterable[Key]) -> Iterator[None]:
    """Refuse keys, bounds of shifts and vaults other than those used with this policy before; remember the new ones.

    What is refused within leaves the record as it was: a key by which nothing was released is not remembered. A run
    that is killed goes on by it, and a vault that was begun stays known.
    """
    from deniable.masking import keys

    path = checks_path(policy)
    before = keys.read_checks(path) if path.exists() else None
    try:
        _remember(path, policy, plans, opened)
        yield
    except DeniableError:
        begun = {name: check for name, check in keys.read_checks(path).items() if name.startswith(VAULT)}
        if before is None and not begun:
            path.unlink(missing_ok=True)
        else:
            keys.remember_checks({**(before or {}), **begun}, path)
        raise


def _remember(path: Path, policy: Path, plans: Iterable[TablePlan], opened: Iterable[Key]) -> None:
    from deniable.masking import keys
    from deniable.masking.perturbation import ShiftDates
    from deniable.masking.vault import Codebook

    keys.confirm_keys(opened, path)
    known = keys.read_checks(path)
    for plan in plans:
        for column in plan.columns:
            if isinstance(column.mask, ShiftDates) and column.spec is not None:
                _confirm_days(known, f"{column.spec.options['key']}/days", column.mask.days, path)
            if isinstance(column.mask, Codebook):
                _confirm_vault(known, column.mask, policy, path)
    keys.remember_checks(known, path)


def _confirm_days(known: dict[str, str], name: str, days: int, path: Path) -> None:
    """One bound for all shifts under a key: a person with two offsets gives both away by their difference."""
    if known.setdefault(name, str(days)) != str(days):
        raise ParameterError(
            f"dates are to be shifted by at most {days} days, and with the same key they were shifted by at most "
            f"{known[name]} before",
            expected="One bound for all dates that one key shifts, in all tables and releases",
            remedy=f"Write days: {known[name]}, or use another key ({path.name} remembers). Nothing was written",
        )


def _confirm_vault(known: dict[str, str], book: Codebook, policy: Path, path: Path) -> None:
    """Refuse a vault that is gone or is another one; a first vault is made, and remembered."""
    from deniable.masking import vault

    name = f"{VAULT}{os.path.relpath(book.path, policy.parent)}"
    lost = name in known and (not book.path.exists() or vault.describe_vault(book.path, book.key)[0] != known[name])
    if lost:
        raise StorageError(
            f"the vault {book.path} is not the one that was used with this policy before",
            expected="The same vault for all releases: a new one would give new tokens that join nothing",
            remedy=f"Restore it from a backup. To begin anew, take its line out of {path.name}. Nothing was written",
        )
    known[name] = vault.describe_vault(book.path, book.key)[0]


def rotate(name: str, policy: Path | None = None, out: Path | None = None) -> KeyRotation:
    """Put a new key in the place of an old one, which is kept; with a policy, map tokens and seal vaults anew.

    The map has one row for each distinct value that was masked under the key: its old and its new token. It ties both
    releases together, so it is as secret as the key.
    """
    from deniable.masking import keys

    if (policy is None) != (out is None):
        raise ParameterError("a re-token map needs a policy and a file to write", remedy="Say --policy and --map")
    old, fresh = keys.Keyring().open(name), keys.generate_key(name)
    sealed = _list_vaults(read(policy), name) if policy else []
    try:
        mapped = _map(read(policy), old, fresh, out) if policy and out else 0
        _prepare(policy, sealed, old, fresh)
        kept = keys.replace_key(fresh, keys.find_key_directory())  # the one step that counts: before it nothing changed
    except BaseException:
        _cancel(policy, sealed, old, out)
        raise
    done = KeyRotation(name, fresh.check, old.check, str(kept))
    if policy is None:
        return done
    _finish(policy, sealed, fresh)
    return replace(done, map=str(out), tokens=mapped, vaults=[str(path) for path in sealed])


def _prepare(policy: Path | None, sealed: Sequence[Path], old: Key, fresh: Key) -> None:
    """Let vaults and the record of check values take either key, until the new one is in its place."""
    from deniable.masking import keys, vault

    for path in sealed:
        vault.prepare_rotation(path, old, fresh)
    if policy is not None:
        known = keys.read_checks(checks_path(policy))
        keys.remember_checks(known | {fresh.name + keys.NEXT: fresh.check}, checks_path(policy))


def _cancel(policy: Path | None, sealed: Sequence[Path], old: Key, out: Path | None) -> None:
    """Leave no trace of a rotation that failed; what cannot be cleaned up now does no harm, and is by the next one."""
    from deniable.masking import keys, vault

    with suppress(DeniableError, OSError):
        for path in sealed:
            vault.cancel_rotation(path, old)
        if policy is not None:
            known = keys.read_checks(checks_path(policy))
            known.pop(old.name + keys.NEXT, None)
            keys.remember_checks(known, checks_path(policy))
        if out is not None:
            out.unlink(missing_ok=True)


def _finish(policy: Path, sealed: Sequence[Path], fresh: Key) -> None:
    """Open everything once with the new key, which settles it; after a kill, the next use does the same."""
    from deniable.masking import keys, vault

    for path in sealed:
        vault.count_values(path, fresh)
    if fresh.name in keys.read_checks(checks_path(policy)):
        keys.confirm_keys([fresh], checks_path(policy))
    else:
        known = keys.read_checks(checks_path(policy))
        known.pop(fresh.name + keys.NEXT, None)
        keys.remember_checks(known | {fresh.name: fresh.check}, checks_path(policy))


def vault_size(path: Path, name: str, places: Sequence[str] = ()) -> dict[str, int]:
    """How many values each domain of a vault holds."""
    from deniable.masking import keys, vault

    key = keys.Keyring(keys.parse_places(places)).open(name)
    return vault.count_values(path, key)


def reveal(
    path: Path,
    name: str,
    tokens: Sequence[str],
    domain: str = "",
    places: Sequence[str] = (),
    *,
    policy: Path,
    ledger: str | None = None,
    by: str = "steward",
) -> dict[str, str | None]:
    """The values behind tokens of a vault; null for a token that it never gave.

    Who asked for how many is written to the policy's ledger before anything is turned back. It must be the ledger that
    recorded the vault's releases: another policy that names the vault has another, in which nobody would look.
    """
    import pyarrow as pa

    from deniable.masking import vault

    known = read(policy)
    if path.resolve() not in {each.resolve() for each in _name_vaults(known)}:
        raise ParameterError(
            f"no column of the policy '{known.dataset}' is masked with this vault",
            expected="The policy whose ledger records who turns its tokens back",
            remedy="Say --policy: the one with mask: {codebook: {vault: ..., key: ...}}",
        )
    key = open_keyring(known, places).open(name)
    book = vault.Codebook(path, key, domain or name)
    vault.count_values(path, key)  # a wrong key or file is refused before it is written down
    _record_reveal(known, ledger_of(policy, ledger), by, book, len(tokens))
    values = book.reveal(pa.array(list(tokens), pa.large_string())).to_pylist()
    return dict(zip(tokens, values, strict=True))


def _record_reveal(policy: Policy, place: str, by: str, book: Codebook, count: int) -> None:
    from deniable.governance.withdrawals import COLLECTION
    from deniable.ledger import Act, Posting
    from deniable.ledger.witness import open_for_acts

    details = {"vault": book.path.name, "domain": book.domain, "key": book.key.check, "tokens": count}
    with open_for_acts(place, policy, COLLECTION) as (ledger, _):
        _refuse_other_ledger(book, name_ledger(ledger), place)
        ledger.record(Posting(Act.REVEAL, analyst=by, details=details))
        own_vault(book, ledger)


def name_ledger(ledger: Ledger) -> str | None:
    """What a ledger is known by wherever it stands: the hash of its first entry; None while it has none."""
    return ledger.first or None


def own_vault(book: Codebook, ledger: Ledger) -> None:
    """Tie a vault to the ledger that records its releases, once."""
    from deniable.masking import vault

    if (name := name_ledger(ledger)) is not None:
        vault.name_owner(book.path, book.key, name)


def _refuse_other_ledger(book: Codebook, ledger: str | None, place: str) -> None:
    from deniable.masking import vault

    owner = vault.find_owner(book.path, book.key)
    if owner is not None and owner != ledger:
        raise AccessRefused(
            f"the vault {book.path.name} belongs to another ledger than {Path(place).name}",
            expected="The ledger that recorded the releases masked with it: there it is written who turns tokens back",
            remedy="Name the policy that they were made by (--policy), or its ledger (--ledger)",
        )


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


def _list_vaults(policy: Policy, key: str) -> list[Path]:
    """The vaults of a policy that a key seals, as far as they are there."""
    return sorted(path for path in _name_vaults(policy, key) if path.exists())


def _name_vaults(policy: Policy, key: str | None = None) -> set[Path]:
    """The files of a policy's vaults, those of one key or all."""
    specs = [column.mask for table in policy.private for column in table.columns if column.mask]
    books = [spec.options for spec in specs if spec.kind == "codebook" and key in (None, spec.options["key"])]
    named = {str(options["vault"]) for options in books}
    return set(map(policy.path, named))
