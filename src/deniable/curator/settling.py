"""Settle a job: charged before the data is touched, measured once, stored; a repeated job costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.answers import Stored
    from deniable.curator.hall import Curator
    from deniable.dp.accounting import Event
    from deniable.governance.grants import Asker
    from deniable.ledger import Receipt
    from deniable.policy.budget import Budget
    from deniable.policy.schema import TableSchema
    from deniable.policy.unit import PrivacyUnit
    from deniable.query.execute import Measurements
    from deniable.query.plan import QueryPlan
    from deniable.release import Release


@dataclass(frozen=True, slots=True)
class Job:
    """Something to be measured once: what it is, what it costs, which tables it reads, and the deed."""

    text: str
    canonical: str
    event: Event
    cost: Budget
    unit: PrivacyUnit
    tables: tuple[str, ...]
    """All tables to attach; private ones among them decide the version of the data."""
    private: tuple[str, ...]
    measure: Callable[[Any], Measurements]
    """From an engine to noisy, public measurements."""


@dataclass(frozen=True, slots=True)
class Settled:
    """Noisy measurements with what a release tells about them."""

    stored: Stored
    versions: dict[str, str]
    receipt: Receipt | None
    repeated: bool


def admitted(curator: Curator, who: Asker | None) -> tuple[TableSchema, ...]:
    """The tables that the asker may name, after the checks that every question passes."""
    from deniable.curator.governing import refuse_expired
    from deniable.curator.scope import columns_for

    refuse_expired(curator)
    if who is not None:
        curator.ledger.admit(who.purpose, who.analyst)
    return columns_for(curator, who)


def job_of(plan: QueryPlan) -> Job:
    """A compiled question as a job."""
    from deniable.query.execute import measure

    assert plan.unit is not None
    deed: Callable[[Any], Measurements] = lambda engine: measure(plan, engine)  # noqa: E731  it closes over the plan
    return Job(plan.text, plan.canonical, plan.event, plan.cost, plan.unit, all_tables(plan), private_of(plan), deed)


def private_of(plan: QueryPlan) -> tuple[str, ...]:
    """The private tables that a plan reads."""
    return tuple(dict.fromkeys(table.name for node in plan.nodes for table in _tables(node.node)))


def settle(curator: Curator, job: Job, *, who: Asker | None = None, request: str = "") -> Settled:
    """The measurements of a job, stored ones where it was asked before."""
    from deniable.curator.answers import find, keep

    curator.scopes.refresh(curator.governor.withdrawals())
    tables = curator.scopes.tables(who)
    engine, versions = tables.attach(*job.tables), tables.version(*job.private)
    key = f"{job.canonical}:{sorted(versions.items())}:{curator.ledger.policy}"
    stored = find(curator.cabinet, key)
    if stored is not None:
        return Settled(stored, versions, None, True)
    receipt = charged(curator, job, who, request, key)
    if receipt.repeated and (found := find(curator.cabinet, receipt.release)) is not None:
        return Settled(found, versions, receipt, True)
    return Settled(keep(curator.cabinet, key, _measured(job, engine, receipt)), versions, receipt, False)


def charged(curator: Curator, job: Job, who: Asker | None, request: str = "", key: str = "") -> Receipt:
    """Write the job's price to the ledger, or be refused with nothing changed."""
    from deniable.release import Technique

    question = f"{key}:{job.text}" if key else ""
    return curator.record(
        Technique.DP_QUERY, job.event, tables=job.private, unit=str(job.unit), who=who, request=request,
        question=question, asked=job.text,
    )  # fmt: skip


def _measured(job: Job, engine: Any, receipt: Receipt) -> Stored:
    """Whatever fails now is one fixed sentence, since the data had been touched."""
    from datetime import UTC, datetime

    from deniable.curator.answers import Stored
    from deniable.curator.recording import after_the_charge

    with after_the_charge():
        measured = job.measure(engine)
    return Stored(measured, receipt.release, datetime.now(UTC).replace(microsecond=0))


def released(
    curator: Curator, job: Job, settled: Settled, rows: pa.Table, who: Asker | None, **details: Any
) -> Release:
    """The rows with their guarantee and provenance, as every answer carries them."""
    from deniable.query.explain import described
    from deniable.release import Provenance, Release

    left = curator.remaining(who)
    told = {"cost": described(job.cost), "remaining": described(left) if left is not None else None} | details
    told = {"aggregates": [], "notes": []} | told
    provenance = Provenance(curator.ledger.policy, settled.versions, {"asked": job.text}, time=settled.stored.time)
    return Release(rows, guaranteed(job), provenance, told)


def costed(curator: Curator, cost: Budget, unit: PrivacyUnit, who: Asker | None) -> dict[str, Any]:
    """What every explanation tells: the cost, whom it protects, and what is left."""
    from deniable.query.explain import described

    left = curator.remaining(who)
    remaining = described(left) if left is not None else None
    return {"cost": described(cost), "unit": str(unit), "neighbors": unit.neighboring.value, "remaining": remaining}


def guaranteed(job: Job) -> Any:
    """The guarantee that a job's price implies."""
    from deniable.dp.accounting import epsilon_of_zcdp
    from deniable.policy.budget import ZCDP
    from deniable.release import Guarantee, Technique

    if not isinstance(job.cost, ZCDP):
        return Guarantee.differential(Technique.DP_QUERY, job.unit, job.cost, job.unit.neighboring)
    epsilon, delta = epsilon_of_zcdp(job.cost.rho, exact_delta()), job.cost.delta + exact_delta()
    return Guarantee.differential(
        Technique.DP_QUERY, job.unit, job.cost, job.unit.neighboring, epsilon=epsilon, delta=delta
    )


def exact_delta() -> Any:
    """The delta at which a rho is shown as an epsilon."""
    from deniable.policy.budget import exact

    return exact("1e-9")


def _tables(node: Any) -> Any:
    from deniable.query.relation import tables

    return [table for table in tables(node) if not table.public]


def all_tables(plan: QueryPlan) -> tuple[str, ...]:
    from deniable.query.relation import tables

    return tuple(table.name for table in tables(plan.relation))
