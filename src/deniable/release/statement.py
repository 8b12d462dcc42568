"""The statement beside a released file: NAME.release.json, which names the file's digest and its own.

`verify` recomputes both, so it finds any change of the file or of the statement, down to a space, and says which. This
protects against accidents and against careless editing; it is not a signature: whoever can write both files can make
a new pair. Compare the statement's digest over another channel where that matters.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deniable.errors import DataError, IntegrityError
from deniable.release.guarantee import Guarantee
from deniable.release.provenance import Plain, Provenance, plain, written
from deniable.release.words import in_words
from deniable.storage import storage_errors, write_whole

SUFFIX = ".release.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class Statement:
    """What was stated of a file, as plain values; `sha256` is the digest of the canonical form of `body`."""

    path: Path
    body: Mapping[str, Any]
    sha256: str

    @property
    def words(self) -> tuple[str, ...]:
        """The claim in plain words, as it was written with the file."""
        return tuple(self.body["words"])


def statement_path(file: str | Path) -> Path:
    """Where the statement of a file is.

    >>> statement_path("out/people.parquet").name
    'people.parquet.release.json'
    """
    path = Path(file)
    return path if path.name.endswith(SUFFIX) else path.with_name(path.name + SUFFIX)


def seal(
    file: str | Path, guarantee: Guarantee, provenance: Provenance, details: Mapping[str, object] | None = None
) -> Statement:
    """State what is claimed of a file that was written, beside it."""
    path = Path(file)
    body = {
        "format": FORMAT,
        "file": _fingerprint(path),
        "guarantee": _guarantee(guarantee),
        "provenance": _provenance(provenance),
        "details": plain(details or {}, "details"),
        "words": list(in_words(guarantee)),
    }
    statement = Statement(statement_path(path), body, _digest(body))
    write_whole(statement.path, _rendered(statement))
    return statement


def withdraw(file: str | Path) -> None:
    """Remove the statement of a file that is about to change, if there is one."""
    with storage_errors(statement_path(file)):
        statement_path(file).unlink(missing_ok=True)


def verify(file: str | Path) -> Statement:
    """The statement of a file, after checking that neither was changed since; refuses with what was changed.

    Takes the path of the file or of its statement.
    """
    path = statement_path(file)
    statement, intact = _read(path)
    named = path.with_name(path.name.removesuffix(SUFFIX))
    changed = [what for what, same in (("statement", intact), ("file", _matches(statement, named))) if not same]
    if changed:
        raise IntegrityError(
            f"the {' and the '.join(changed)} of the release '{named.name}' changed after it was written",
            expected=f"The digest of the file is {statement.body['file']['sha256']}" if intact else "",
            remedy="Ask for the release again; do not rely on what its statement claims",
            changed=" and ".join(changed),
        )
    return statement


def _read(path: Path) -> tuple[Statement, bool]:
    """The statement in a file, and whether the file is, byte for byte, what was written."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise IntegrityError(
            f"there is no statement '{path.name}'", remedy="A release has its statement beside it: ask for both files"
        ) from None
    except OSError:
        raise DataError(f"'{path.name}' could not be read", remedy="Check its permissions") from None
    try:
        document = json.loads(content)
        body, stated = document["statement"], document["sha256"]
        statement = Statement(path, body, str(stated))
        body["file"]["sha256"], body["words"], body["guarantee"], body["provenance"]
        intact = _digest(body) == stated and _rendered(statement) == content
    except (ValueError, KeyError, TypeError, RecursionError):
        raise IntegrityError(
            f"'{path.name}' is not a statement of a release, or was changed beyond reading",
            remedy="Ask for the release again",
            changed="statement",
        ) from None
    return statement, intact


def _matches(statement: Statement, file: Path) -> bool:
    if not file.exists():
        raise IntegrityError(f"the file '{file.name}' of the release is not there", changed="file")
    found, stated = _fingerprint(file), statement.body["file"]
    return all(found[key] == stated.get(key) for key in ("bytes", "sha256"))


def _fingerprint(path: Path) -> dict[str, Plain]:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        raise DataError(f"'{path.name}' could not be read", remedy="Check that it is there and readable") from None
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": digest}


def _guarantee(guarantee: Guarantee) -> dict[str, Any]:
    amounts = {name: getattr(guarantee, name) for name in ("epsilon", "delta", "rho", "local_epsilon")}
    return {
        "technique": str(guarantee.technique),
        "formal": guarantee.formal,
        "unit": guarantee.unit,
        "neighbors": str(guarantee.neighbors) if guarantee.neighbors else None,
        "properties": [{"name": each.name, "parameters": dict(each.parameters)} for each in guarantee.properties],
        "reason": guarantee.reason,
    } | {name: None if amount is None else written(amount) for name, amount in amounts.items()}


def _provenance(provenance: Provenance) -> dict[str, Any]:
    return {
        "policy_hash": provenance.policy_hash,
        "data_versions": plain(provenance.data_versions),
        "code_version": provenance.code_version,
        "time": provenance.time.isoformat(),
        "parameters": plain(provenance.parameters),
    }


def _digest(body: Mapping[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def _rendered(statement: Statement) -> bytes:
    document = {"statement": statement.body, "sha256": statement.sha256}
    text = json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode("utf-8", "surrogatepass")
