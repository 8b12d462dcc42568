"""Where a k-anonymous release goes: to a file with its statement and its recoding, or to memory; and the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.anonymize.request import TABLE, Order, Roles, statement
from deniable.curator.charge import Job, charge
from deniable.curator.context import Context
from deniable.policy.schema import PrivacyUnit

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.engines.base import Engine
    from deniable.kanonymity.recoding import Recoding
    from deniable.kanonymity.request import Request
    from deniable.policy.schema import Spec
    from deniable.release import Guarantee, Provenance, Release


@dataclass(frozen=True, slots=True)
class Work:
    """All that one release is made with."""

    engine: Engine
    context: Context | None
    order: Order
    roles: Roles
    request: Request


def record_release(context: Context | None, roles: Roles, method: str, identity: str = "") -> None:
    """Write to the ledger that rows leave without a formal guarantee; call it before the data is touched."""
    if roles.schema is not None and context is not None:
        unit = roles.schema.unit or PrivacyUnit()
        job: Job[None] = Job("k-anonymity", "", None, unit, (roles.schema.name,), details={"method": method})
        charge(context, job, request=identity)


def put_rows(work: Work, rows: pa.Table | Iterable[pa.RecordBatch]) -> pa.Table | Path:
    """Write the rows where the order says; an older statement goes first: no claim outlives its file."""
    import pyarrow as pa

    from deniable.release.release import remove_statement

    out = work.order.out
    if out is None:
        return rows if isinstance(rows, pa.Table) else pa.Table.from_batches(list(rows))
    remove_statement(out)
    work.engine.write(rows, out)
    return out


def attach_released(work: Work, rows: pa.Table | Path, name: str) -> pa.Table:
    """The released rows, read as whoever receives them reads them."""
    work.engine.attach(name, rows.absolute() if isinstance(rows, Path) else rows)
    return work.engine.run(statement("SELECT * FROM {}", name))


def path_of_recoding(out: Path) -> Path:
    """Where the recoding of a release is kept, for its owner only."""
    return out.with_name(out.name + ".recoding.json")


def keep_recoding(work: Work, recoding: Recoding) -> None:
    """Write the recoding beside the file, if there is one; it counts sensitive values, and is for the steward alone."""
    from deniable.kanonymity.recoding import write_recoding

    if work.order.out is not None and (work.context is None or work.context.asker is None):
        write_recoding(recoding, path_of_recoding(work.order.out))


def seal_release(work: Work, rows: pa.Table | Path, details: dict[str, Any]) -> tuple[Release, dict[str, Any]]:
    """State what is claimed, beside the file or with the rows: the release, and the report for the steward."""
    from deniable.kanonymity.request import to_spec
    from deniable.release import Release, seal

    order, request, context = work.order, work.request, work.context
    parameters = {"method": order.method, "quasi_identifiers": list(request.quasi_identifiers), "form": order.form}
    provenance = state_provenance(work.engine, context, parameters)
    guarantee = claim_models(to_spec(model) for model in request.models)
    # What is learned together with other releases is for the steward, not for whoever receives this one.
    stated = {name: value for name, value in details.items() if name != "composition"}
    if context is not None and context.asker is not None:
        details = stated
    release = Release(rows, guarantee, provenance, details)
    if order.out is None:
        return release, details
    sealed = seal(order.out, guarantee, provenance, stated)
    told = {"output": str(order.out), "statement": str(sealed.path), "words": list(sealed.words)}
    return release, details | told


def state_provenance(engine: Engine, context: Context | None, parameters: Mapping[str, object]) -> Provenance:
    """Where a release came from. Its rows are named by a digest under the steward's key, or not at all without one."""
    from deniable.release import Provenance

    if context is None:
        return Provenance(None, {}, parameters)
    versions = {TABLE: context.scope.seal_version(TABLE, engine.data_version(TABLE))}
    return Provenance(context.policy.hash, versions, parameters, epoch=context.epoch)


def claim_models(models: Iterable[Spec]) -> Guarantee:
    """What a release claims that meets these models."""
    from deniable.release import Guarantee, Property

    return Guarantee.syntactic(
        tuple(
            Property(spec.kind.replace("_", "-"), tuple((name, str(value)) for name, value in spec.options.items()))
            for spec in models
        )
    )
