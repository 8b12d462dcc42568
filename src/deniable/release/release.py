"""Release: rows with their claim and their origin, and the statement that is written beside a released file.

The statement, NAME.release.json, names the file's digest and its own. `verify` recomputes both, so it finds any change
of the file or of the statement, down to a space, and says which. This protects against accidents and against careless
editing; it is not a signature: whoever can write both files can make a new pair. Compare the statement's digest over
another channel where that matters."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from deniable.errors import DataError, IntegrityError, ParameterError
from deniable.release.explanation import explain_guarantee
from deniable.release.guarantee import Guarantee, Plain, Provenance, to_plain, to_text
from deniable.storage import storage_errors, write_whole

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


def write_release(release: Release, path: str | Path, writer: Writer, format: str | None = None) -> Statement:
    """Write a release's rows, then its statement. An older statement goes first: no claim outlives its file."""
    if isinstance(release.rows, Path):
        raise ParameterError("the rows of this release are a file already", remedy="Use seal for a written file")
    target = Path(path)
    remove_statement(target)
    writer.write(release.rows, target, format)
    return seal(target, release.guarantee, release.provenance, {"rows": release.rows.num_rows} | dict(release.details))


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
        "file": _describe_file(path),
        "guarantee": _describe_guarantee(guarantee),
        "provenance": _describe_provenance(provenance),
        "details": to_plain(details or {}, "details"),
        "words": list(explain_guarantee(guarantee)),
    }
    statement = Statement(statement_path(path), body, _hash_body(body))
    write_whole(statement.path, _render_statement(statement))
    return statement


def remove_statement(file: str | Path) -> None:
    """Remove the statement of a file that is about to change, if there is one."""
    with storage_errors(statement_path(file)):
        statement_path(file).unlink(missing_ok=True)


def verify(file: str | Path) -> Statement:
    """The statement of a file, after checking that neither was changed since; refuses with what was changed.

    Takes the path of the file or of its statement.
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
    return statement


def _read_statement(path: Path) -> tuple[Statement, bool]:
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
        intact = _hash_body(body) == stated and _render_statement(statement) == content
    except (ValueError, KeyError, TypeError, RecursionError):
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


def _describe_provenance(provenance: Provenance) -> dict[str, Any]:
    return {
        "policy_hash": provenance.policy_hash,
        "data_versions": to_plain(provenance.data_versions),
        "epoch": provenance.epoch,
        "code_version": provenance.code_version,
        "time": provenance.time.isoformat(),
        "parameters": to_plain(provenance.parameters),
    }


def _hash_body(body: Mapping[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return hashlib.sha256(canonical.encode("utf-8", "surrogatepass")).hexdigest()


def _render_statement(statement: Statement) -> bytes:
    document = {"statement": statement.body, "sha256": statement.sha256}
    text = json.dumps(document, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return (text + "\n").encode("utf-8", "surrogatepass")
