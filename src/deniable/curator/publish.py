"""Publishing rows: what was written is certified, stated beside the file and signed; or it is removed and refused.

Every release of rows passes here, whatever made it and whoever asked: k-anonymous, masked, synthetic, into a file or
into memory. The statement carries what was measured on the file. Rows under their name without a statement would be
taken for a release, so whatever fails once they are written removes them (`remove_on_failure`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import DataError, InternalError

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.assess.certificate import Measurements
    from deniable.assess.exposure import JointExposure, Whose
    from deniable.assess.released_rows import Claim
    from deniable.curator.context import Context
    from deniable.engines.base import Engine
    from deniable.release import Guarantee, Provenance, Statement

RECORDED = "Nothing was charged. The ledger names a release that did not leave."
MEASURED = "measured"
"""The detail of a statement that holds what was measured on its file."""


@contextmanager
def remove_on_failure(*written: Path | pa.Table) -> Iterator[list[Path]]:
    """Remove written files and their statements where anything fails, even an interruption; more can be appended."""
    files = [path for path in written if isinstance(path, Path)]
    try:
        yield files
    except BaseException:
        _remove_files(files)
        raise


def _remove_files(files: Iterable[Path]) -> None:
    from deniable.release import statement_path

    for path in (each for file in files for each in (file, statement_path(file))):
        with suppress(OSError):
            path.unlink(missing_ok=True)


def certify_rows(released: Path | pa.Table, claim: Claim, *, charge: str) -> Measurements:
    """What was measured on released rows; where a claim does not hold, it is our own fault, and they do not leave.

    `charge` says what stands in the ledger.
    """
    from deniable.assess.certificate import certify

    found = certify(released, claim)
    if found.broken:
        raise InternalError(
            f"what was written is not what was to be claimed of it: {'; '.join(found.broken)}",
            remedy="It was removed, and nothing left. Please report it",
            charge=charge,
        )
    if found.left:
        raise DataError(
            f"the mask of {', '.join(map(repr, found.left))} leaves identifiers as they are, or easily recognized",
            expected="A mask that changes every value of an identifier, and not only a few of its characters",
            remedy="It was removed, and nothing left. Use token or redact there, or regex with unmatched: redact",
            charge=charge,
        )
    return found.measured


def gate_joint_exposure(
    context: Context | None,
    engine: Engine,
    name: str,
    columns: Sequence[str],
    unit: str | Whose | None,
    released: Path | pa.Table,
    rows: pa.Table | None = None,
) -> JointExposure | None:
    """What all released columns of an attached table single out; beyond the policy's limit the file goes, refused.

    Where the rows are at hand they are measured, and nothing needs to be attached.
    """
    from deniable.assess.exposure import judge_joint_exposure, measure_joint_exposure, measure_joint_rows

    limit = context.policy.release.joint if context is not None else None
    with remove_on_failure(released):
        if rows is not None:
            return judge_joint_exposure(
                measure_joint_rows(rows, columns, unit if isinstance(unit, str) else None), limit
            )
        return judge_joint_exposure(measure_joint_exposure(engine, name, columns, unit), limit)


def note_acceptance(context: Context | None) -> dict[str, str]:
    """For the ledger: who stands for releases beyond the policy's limit on what all columns single out."""
    limit = context.policy.release.joint if context is not None else None
    return {} if limit is None or limit.accepted_by is None else {"joint_accepted_by": limit.accepted_by}


def publish_file(
    context: Context | None,
    path: Path,
    claim: Claim,
    guarantee: Guarantee,
    provenance: Provenance,
    details: Mapping[str, Any] | None = None,
    *,
    release: str = "",
    beside: Sequence[Path] = (),
    charge: str = RECORDED,
) -> Statement:
    """Certify a file that was written, state what was claimed and measured beside it, and sign that.

    `release` is its id in the ledger; `beside` are files that were written with it, and go with it.
    """
    from deniable.release import seal

    with remove_on_failure(path, *beside):
        found = certify_rows(path, claim, charge=charge)
        stated = {**(details or {}), MEASURED: found.to_dict()}
        sealed = seal(path, guarantee, provenance, stated, key=find_signing_key(context))
        note_published(context, sealed, release)
    return sealed


def find_signing_key(context: Context | None) -> bytes | None:
    """The curator's private key; None where nothing would keep it."""
    from deniable.curator.context import find_signing_key as find_kept_key

    return None if context is None else find_kept_key(context.store)


def note_published(context: Context | None, sealed: Statement, release: str) -> None:
    """Write to the ledger which file left, by its digest, and under which key."""
    if context is None:
        return
    from deniable.ledger import Act, Posting

    purpose, analyst = context.path
    digests = {"file": sealed.body["file"]["sha256"], "statement": sealed.sha256, "key": sealed.key}
    who = analyst if context.asker is not None else "steward"
    context.ledger.record(Posting(Act.PUBLISH, analyst=who, purpose=purpose, release=release, details=digests))


def note_types(
    rows: pa.Table | Iterable[pa.RecordBatch],
) -> tuple[pa.Table | Iterable[pa.RecordBatch], dict[str, pa.DataType | None]]:
    """Rows on their way to a file, and the types of their columns, which are known once the rows have passed."""
    import pyarrow as pa

    if isinstance(rows, pa.Table):
        return rows, dict(zip(rows.schema.names, rows.schema.types, strict=True))
    types: dict[str, pa.DataType | None] = {}

    def pass_on() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            types.update(zip(batch.schema.names, batch.schema.types, strict=True))
            yield batch

    return pass_on(), types
