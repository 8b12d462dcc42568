"""Release: rows with their claim and their origin, and the statement that is written beside a released file.

The statement, NAME.release.json, names the file's digest and its own. `verify` recomputes both, so it finds any change
of the file or of the statement, down to a space, and says which.

A curator signs its statements (Ed25519). Whoever knows the curator's key, which its register shows, can tell that the
statement came from it. Without a signature, or without knowing whose key it is, a pair that agrees with itself shows
nothing of who made it. What is told of a claim is always made anew from its figures, never read from the file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from deniable.errors import DataError, IntegrityError, MissingExtra, ParameterError
from deniable.outputs import replace_files
from deniable.policy.budget import exact
from deniable.policy.schema import Neighboring
from deniable.release.explanation import explain_guarantee
from deniable.release.guarantee import Guarantee, Plain, Property, Provenance, Technique, to_plain, to_text
from deniable.storage import write_whole

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Release:
    """What leaves: an Arrow table, or the path of a file that was written, never without its guarantee.

    `details` are public facts about it, such as the accuracy of an answer or what is left of the budget. Rows are not
    shown when a release is printed: released or not, a log is no place for them.
    """

    rows: pa.Table | Path = field(repr=False)
    guarantee: Guarantee
    provenance: Provenance
    details: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "details", to_plain(self.details, "details"))


class Writer(Protocol):
    """Whoever can write rows to a file, whole or not at all: every engine can."""

    def write(self, batches: Iterable[pa.RecordBatch] | pa.Table, path: str | Path, format: str | None = None) -> Any:
        """Write the rows under the path."""


def write_release(
    release: Release, path: str | Path, writer: Writer, format: str | None = None, *, key: bytes | None = None
) -> Statement:
    """Write a release's rows, then its statement."""
    if isinstance(release.rows, Path):
        raise ParameterError("the rows of this release are a file already", remedy="Use seal for a written file")
    target = Path(path)
    with replace_files(target):
        writer.write(release.rows, target, format)
        details = {"rows": release.rows.num_rows} | dict(release.details)
        return seal(target, release.guarantee, release.provenance, details, key=key)


SUFFIX = ".release.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Statement:
    """What was stated of a file, as plain values; `sha256` is the digest of the canonical form of `body`.

    `key` is the public key of the signature, and `signature` what it signed; both are empty where there is none.
    """

    path: Path
    body: Mapping[str, Any]
    sha256: str
    key: str = ""
    signature: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """The claim in plain words, made from its figures."""
        return explain_guarantee(_read_guarantee(self.body["guarantee"]))


def statement_path(file: str | Path) -> Path:
    """Where the statement of a file is.

    >>> statement_path("out/people.parquet").name
    'people.parquet.release.json'
    """
    path = Path(file)
    return path if path.name.endswith(SUFFIX) else path.with_name(path.name + SUFFIX)


def seal(
    file: str | Path,
    guarantee: Guarantee,
    provenance: Provenance,
    details: Mapping[str, object] | None = None,
    *,
    key: bytes | None = None,
) -> Statement:
    """State what is claimed of a file that was written, beside it; signed with a private key, if there is one."""
    path = Path(file)
    body = {
        "format": FORMAT,
        "file": _describe_file(path),
        "guarantee": _describe_guarantee(guarantee),
        "provenance": _describe_provenance(provenance),
        "details": to_plain(details or {}, "details"),
        "words": list(explain_guarantee(guarantee)),
    }
    statement = Statement(statement_path(path), body, _hash_body(body), *_sign_body(body, key))
    write_whole(statement.path, _render_statement(statement))
    return statement


def verify(file: str | Path, *, key: str = "") -> Statement:
    """The statement of a file, after checking that neither was changed since; refuses with what was changed.

    Takes the path of the file or of its statement. With the curator's public key a statement is refused that it did
    not sign.
    """
    path = statement_path(file)
    statement, intact = _read_statement(path)
    named = path.with_name(path.name.removesuffix(SUFFIX))
    changed = [what for what, same in (("statement", intact), ("file", _matches_file(statement, named))) if not same]
    if changed:
        raise IntegrityError(
            f"the {' and the '.join(changed)} of the release '{named.name}' changed after it was written",
            expected=f"The digest of the file is {statement.body['file']['sha256']}" if intact else "",
            remedy="Ask for the release again; do not rely on what its statement claims",
            changed=" and ".join(changed),
        )
    _check_signature(statement, key)
    return statement


def _check_signature(statement: Statement, key: str) -> None:
    if statement.key and not _is_signed(statement):
        raise IntegrityError(
            f"the signature of the statement '{statement.path.name}' is not that of its key",
            remedy="Ask for the release again; do not rely on what its statement claims",
            changed="statement",
        )
    if key and statement.key != key.strip().lower():
        how = "is signed with another key" if statement.key else "is not signed"
        raise IntegrityError(
            f"the statement '{statement.path.name}' {how}",
            expected="A statement that is signed with the key given",
            remedy="Ask the curator for the release; do not rely on what this statement claims",
            changed="signature",
        )


SIGNED = b"deniable release\n"
"""What a signature begins with, so that it is of a statement and of nothing else."""


def _sign_body(body: Mapping[str, Any], key: bytes | None) -> tuple[str, str]:
    """The public key and the signature, in hexadecimal digits; empty without a key, or without the library for it."""
    if key is None:
        return "", ""
    try:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    except ImportError:
        return "", ""
    private = Ed25519PrivateKey.from_private_bytes(key)
    return private.public_key().public_bytes_raw().hex(), private.sign(SIGNED + _canonical(body)).hex()


def _is_signed(statement: Statement) -> bool:
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise MissingExtra(
            "a signature cannot be checked without cryptography",
            remedy="Install it: pip install 'deniable[vault]'",
            charge="",
        ) from None
    try:
        public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(statement.key))
        public.verify(bytes.fromhex(statement.signature), SIGNED + _canonical(statement.body))
    except (InvalidSignature, ValueError):
        return False
    return True


def _read_statement(path: Path) -> tuple[Statement, bool]:
    """The statement in a file, and whether the file is, byte for byte, what was written."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        missing = f"there is no statement '{path.name}'"
        if not path.with_name(path.name.removesuffix(".release.json")).exists():
            missing = f"there is no file '{path.name.removesuffix('.release.json')}', and no statement of it"
        raise IntegrityError(missing, remedy="A release has its statement beside it: ask for both files") from None
    except OSError:
        raise DataError(f"'{path.name}' could not be read", remedy="Check its permissions") from None
    try:
        document = json.loads(content)
        body, stated, signed = document["statement"], document["sha256"], document.get("signature") or {}
        statement = Statement(path, body, str(stated), str(signed.get("key", "")), str(signed.get("ed25519", "")))
        body["file"]["sha256"], body["provenance"], statement.words  # refused where one is not there
        intact = _hash_body(body) == stated and _render_statement(statement) == content
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, ParameterError):
        raise IntegrityError(
            f"'{path.name}' is not a statement of a release, or was changed beyond reading",
            remedy="Ask for the release again",
            changed="statement",
        ) from None
    return statement, intact


def _matches_file(statement: Statement, file: Path) -> bool:
    if not file.exists():
        raise IntegrityError(f"the file '{file.name}' of the release is not there", changed="file")
    found, stated = _describe_file(file), statement.body["file"]
    return all(found[key] == stated.get(key) for key in ("bytes", "sha256"))


def _describe_file(path: Path) -> dict[str, Plain]:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        raise DataError(f"'{path.name}' could not be read", remedy="Check that it is there and readable") from None
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": digest}


def _describe_guarantee(guarantee: Guarantee) -> dict[str, Any]:
    amounts = {name: getattr(guarantee, name) for name in ("epsilon", "delta", "rho", "local_epsilon")}
    return {
        "technique": str(guarantee.technique),
        "formal": guarantee.formal,
        "unit": guarantee.unit,
        "neighbors": str(guarantee.neighbors) if guarantee.neighbors else None,
        "properties": [{"name": each.name, "parameters": dict(each.parameters)} for each in guarantee.properties],
        "reason": guarantee.reason,
    } | {name: None if amount is None else to_text(amount) for name, amount in amounts.items()}


def _read_guarantee(stated: Mapping[str, Any]) -> Guarantee:
    """The guarantee that a statement describes."""
    amounts = ("epsilon", "delta", "rho", "local_epsilon")
    epsilon, delta, rho, local = (None if stated[name] is None else exact(stated[name]) for name in amounts)
    properties = tuple(
        Property(str(each["name"]), tuple((str(name), str(value)) for name, value in each["parameters"].items()))
        for each in stated["properties"]
    )
    neighbors = Neighboring(stated["neighbors"]) if stated["neighbors"] else None
    technique, unit, reason = Technique(stated["technique"]), str(stated["unit"]), str(stated["reason"])
    return Guarantee(technique, unit, neighbors, epsilon, delta, rho, local, properties, reason)


def _describe_provenance(provenance: Provenance) -> dict[str, Any]:
    return {
        "policy_hash": provenance.policy_hash,
        "data_versions": to_plain(provenance.data_versions),
        "epoch": provenance.epoch,
        "code_version": provenance.code_version,
        "time": provenance.time.isoformat(),
        "parameters": to_plain(provenance.parameters),
    }


def _canonical(body: Mapping[str, Any]) -> bytes:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return canonical.encode("utf-8", "surrogatepass")


def _hash_body(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(body)).hexdigest()


def _render_statement(statement: Statement) -> bytes:
    document = {"statement": statement.body, "sha256": statement.sha256}
    if statement.key:
        document["signature"] = {"key": statement.key, "ed25519": statement.signature}
    text = json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode("utf-8", "surrogatepass")
