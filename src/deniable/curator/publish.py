"""Publishing rows: what was written is certified, stated beside the file and signed; or it is removed and refused.

Every release of rows passes here, whatever made it and whoever asked: k-anonymous, masked, synthetic, into a file or
into memory. The statement carries what was measured on the file. True rows are staged under another name until all
gates are passed (`storage.stage_file`); only then is the ledger told, and the file gets its own name. So a refusal
leaves the folder and the ledger as they were. Whatever fails leaves all files as they were (`storage`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.errors import NOTHING_CHARGED, DataError, DeniableError, Infeasible, InternalError
from deniable.outputs import replace_files
from deniable.storage import place_file, storage_errors

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.assess.certificate import Measurements
    from deniable.assess.exposure import JointExposure, Whose
    from deniable.assess.released_rows import Claim
    from deniable.curator.attack import LimitedAttacks
    from deniable.curator.context import Context
    from deniable.engines.base import Engine
    from deniable.release import Guarantee, Provenance, Statement

RECORDED = "Nothing was charged. The ledger names a release that did not leave."
MEASURED = "measured"
"""The detail of a statement that holds what was measured on its file."""


@contextmanager
def tell_charge(words: str = NOTHING_CHARGED) -> Iterator[None]:
    """Let a refusal that says nothing of a charge say this, where a policy with its ledger is in play.

    The innermost word stands: once a release is in the ledger, `RECORDED` is told.
    """
    try:
        yield
    except DeniableError as refusal:
        if words and refusal.charged in ("", NOTHING_CHARGED):
            refusal.charged = words
        raise


def certify_rows(released: Path | pa.Table, claim: Claim, *, charge: str = NOTHING_CHARGED) -> Measurements:
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
    if found.copied:
        raise DataError(
            f"{'; '.join(found.copied)}, which does not leave",
            expected="No column that leaves is a copy of an identifier",
            remedy="It was removed, and nothing left. Declare that column as an identifier, or leave it out",
            charge=charge,
        )
    return found.measured


def gate_joint_exposure(
    context: Context | None,
    engine: Engine,
    name: str,
    columns: Sequence[str],
    unit: str | Whose | None,
    rows: pa.Table | None = None,
    links: Sequence[str] = (),
) -> JointExposure | None:
    """What all released columns of an attached table single out; refused beyond the policy's limit.

    Where the rows are at hand they are measured, and nothing needs to be attached. `links` are released columns that
    nobody knows, and that show which rows are of one person.
    """
    from deniable.assess.exposure import judge_joint_exposure, measure_joint_exposure, measure_joint_rows

    limit = context.policy.release.joint if context is not None else None
    if rows is not None:
        return judge_joint_exposure(measure_joint_rows(rows, columns, unit if isinstance(unit, str) else None), limit)
    return judge_joint_exposure(measure_joint_exposure(engine, name, columns, unit, links), limit)


def gate_attacks(context: Context | None, table: str, read: Callable[[], Mapping[str, Any]]) -> LimitedAttacks | None:
    """Attack rows before they leave where the policy limits attacks; beyond a limit they are refused.

    `read` gives the released rows and what is known of them, as `attack.attack_rows` takes it: rows are read where
    there is a limit alone. An attack that lacks something which only the steward has, such as a register, is told; so
    is one that finds nothing to attack. Another that gives no figure passes its limit, as it does for `attack`.
    """
    limits = context.policy.release.attack if context is not None else None
    if context is None or limits is None or not limits.most:
        return None
    from deniable.curator.attack import attack_rows

    found = attack_rows(context.policy, context.policy.table(table), **read())
    over = _describe_passed(found)
    if over and limits.accepted_by is None:
        _refuse_exposed(over)
    return replace(found, accepted_by=limits.accepted_by if over else None)


def _describe_passed(found: LimitedAttacks) -> list[str]:
    """What is beyond a limit, in words: what exposes too many, and what could not be measured."""
    from deniable.assess.evidence import needs_more_evidence

    told = [f"{n} exposes {found.exposed[n]:.1%} of the people, more than {found.limits[n]:.1%}" for n in found.passed]
    unknown = {name: why for name, why in found.unmeasured.items() if not needs_more_evidence(why)}
    return [*told, *(f"{name} is limited, and could not be measured: it {why}" for name, why in unknown.items())]


def _refuse_exposed(told: Sequence[str]) -> None:
    raise Infeasible(
        f"the rows were attacked, and do not leave: {'; '.join(told)}",
        expected="At most what the policy allows (release: attack: most)",
        remedy="Release fewer columns, generalize more of them, or let the steward stand for it in the policy: "
        "release: {attack: {accepted_by: NAME}}",
        charge=NOTHING_CHARGED,
        limit="attack",
    )


def note_acceptance(context: Context | None) -> dict[str, str]:
    """For the ledger: who stands for releases beyond a limit of the policy, and beyond which."""
    if context is None:
        return {}
    limits = {"joint": context.policy.release.joint, "attack": context.policy.release.attack}
    return {f"{name}_accepted_by": each.accepted_by for name, each in limits.items() if each and each.accepted_by}


def publish_file(
    context: Context | None,
    path: Path,
    claim: Claim,
    guarantee: Guarantee,
    provenance: Provenance,
    details: Mapping[str, Any] | None = None,
    *,
    release: str = "",
    charge: str = NOTHING_CHARGED,
) -> Statement:
    """Certify a file that was written, state what was claimed and measured beside it, and sign that.

    `release` is its id in the ledger. The caller puts back what was there where this fails (`outputs.replace_files`).
    """
    found = certify_rows(path, claim, charge=charge)
    return state_file(context, path, found, guarantee, provenance, details, release=release)


def publish_staged(
    context: Context | None,
    path: Path,
    staged: Mapping[Path, Path],
    found: Measurements,
    guarantee: Guarantee,
    provenance: Provenance,
    details: Mapping[str, Any] | None = None,
    *,
    release: str = "",
) -> Statement:
    """Give certified files their own names, instead of earlier ones, and state what was measured.

    `staged` says which name each file gets. The ledger has been told of the release; what fails now says so.
    """
    with tell_charge(RECORDED if release else ""), replace_files(path):
        for held, name in staged.items():
            with storage_errors(name):
                place_file(held, name)
        return state_file(context, path, found, guarantee, provenance, details, release=release)


def state_file(
    context: Context | None,
    path: Path,
    found: Measurements,
    guarantee: Guarantee,
    provenance: Provenance,
    details: Mapping[str, Any] | None,
    *,
    release: str,
) -> Statement:
    """State beside a file what was claimed and measured of it, sign that, and note its digest in the ledger."""
    from deniable.release import seal

    stated = {**(details or {}), MEASURED: found.to_dict()}
    sealed = seal(path, guarantee, provenance, stated, key=find_signing_key(context))
    note_published(context, sealed, release)
    return sealed


def find_signing_key(context: Context | None) -> bytes | None:
    """The curator's private key; None where nothing would keep it."""
    if context is None:
        return None
    from deniable.curator.context import find_signing_key as find_kept_key

    return find_kept_key(context.store)


def note_published(context: Context | None, sealed: Statement, release: str) -> None:
    """Write to the ledger which file left, by its digest, and under which key."""
    if context is None:
        return
    from deniable.ledger import Act, Posting

    purpose, analyst = context.path
    digests = {"file": sealed.body["file"]["sha256"], "statement": sealed.sha256, "key": sealed.key}
    who = analyst if context.asker is not None else "steward"
    context.ledger.record(Posting(Act.PUBLISH, analyst=who, purpose=purpose, release=release, details=digests))


def note_periods(context: Context, release: str, stream: Mapping[str, Any]) -> None:
    """Write to the ledger how many periods of a stream are closed, before they are shown; no file left with it."""
    from deniable.ledger import Act, Posting

    details = {"file": "", "statement": "", "key": "", **stream}
    context.ledger.record(Posting(Act.PUBLISH, analyst="steward", release=release, details=details))


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
