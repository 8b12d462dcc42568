"""The one charging path: admit, price, charge, measure, store, release.

A charge is written before the data is touched and is never refunded. The same question has one answer: what is stored
are the noisy measurements, which are public. Whatever fails after a charge is one fixed sentence."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from deniable.errors import CHARGED, ExecutionFailed, StorageError

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.curator import Curator
    from deniable.dp.accounting import Event
    from deniable.governance.grants import Asker
    from deniable.ledger import Ledger, Receipt
    from deniable.ledger.answer_store import AnswerStore
    from deniable.policy.budget import Budget
    from deniable.policy.schema import PrivacyUnit, TableSchema
    from deniable.query.execute import NoisyResults
    from deniable.query.plan import QueryPlan
    from deniable.release import Release


ANSWERS = "answers"


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """The noisy measurements of a question, with the id and time of their release."""

    measured: NoisyResults = field(repr=False)
    release: str
    time: datetime


def find_answer(cabinet: AnswerStore, name: str) -> StoredAnswer | None:
    """The answer stored under a key or a release id."""
    value = cabinet.find(ANSWERS, name)
    return None if value is None else _read_answer(value)


def store_answer(cabinet: AnswerStore, key: str, answer: StoredAnswer) -> StoredAnswer:
    """Store an answer; gives the one that is stored, which may have come first from elsewhere."""
    text = _write_answer(answer)
    kept = cabinet.keep(ANSWERS, key, answer.release, text)
    return answer if kept == text else _read_answer(kept)


def _write_answer(answer: StoredAnswer) -> bytes:
    """A line of JSON that says what follows, then two Arrow streams for each measured step: its keys, its values."""
    streams = [
        _write_stream(table)
        for parts in answer.measured.values()
        for part in parts
        for table in (part.keys, _values_table(part.values))
    ]
    steps = {name: len(parts) for name, parts in answer.measured.items()}
    head = {"release": answer.release, "time": answer.time.isoformat(), "steps": steps}
    return json.dumps(head | {"lengths": [len(each) for each in streams]}).encode() + b"\n" + b"".join(streams)


def _read_answer(value: bytes) -> StoredAnswer:
    from deniable.query.execute import Noisy

    start = value.index(b"\n") + 1
    head, tables = json.loads(value[:start]), []
    for length in head["lengths"]:
        tables.append(_read_stream(value, start, length))
        start += length
    parts = iter([Noisy(keys, _value_arrays(values)) for keys, values in zip(tables[::2], tables[1::2], strict=True)])
    measured = {name: tuple(next(parts) for _ in range(count)) for name, count in head["steps"].items()}
    return StoredAnswer(measured, head["release"], datetime.fromisoformat(head["time"]))


def _write_stream(table: pa.Table) -> bytes:
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def _read_stream(value: bytes, start: int, length: int) -> pa.Table:
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(value)[start : start + length]) as reader:
        return reader.read_all()


def _values_table(values: tuple[object, ...]) -> pa.Table:
    import pyarrow as pa

    return pa.table({f"v{place}": pa.array(each) for place, each in enumerate(values)})


def _value_arrays(table: pa.Table) -> tuple[Any, ...]:
    return tuple(column.combine_chunks().to_numpy(zero_copy_only=False) for column in table.columns)


def record(
    ledger: Ledger,
    technique: str,
    event: Event | None = None,
    *,
    tables: Iterable[str] = (),
    unit: str = "",
    who: Asker | None = None,
    release: str = "",
    request: str = "",
    question: str = "",
    **details: Any,
) -> Receipt:
    """Write a release: with an event it is charged, and refused where it does not fit; without one it is recorded
    as what it is, a release without a formal guarantee.

    Call it before the data is touched. `details` are public facts in plain values.
    """
    from deniable.dp.accounting import NonPrivateEvent
    from deniable.ledger import Act, Posting

    priced = event is not None and not isinstance(event, NonPrivateEvent)
    posting = Posting(
        Act.CHARGE if priced else Act.RELEASE,
        event if event is not None else NonPrivateEvent(),
        str(technique),
        tuple(tables),
        str(unit),
        who.analyst if who else "steward",
        who.purpose if who else "",
        release,
        request,
        question,
        details,
    )
    return ledger.record(posting)


@contextmanager
def after_the_charge() -> Iterator[None]:
    """Whatever fails now, even by our own bug, is one fixed sentence: more of it could tell of rows."""
    try:
        yield
    except Exception:
        raise ExecutionFailed from None


@contextmanager
def still_charged() -> Iterator[None]:
    """A disk that refuses what was made has not undone its charge."""
    try:
        yield
    except StorageError as refusal:
        raise StorageError(refusal.happened, remedy=refusal.remedy, charge=CHARGED) from None


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
    measure: Callable[[Any], NoisyResults]
    """From an engine to noisy, public measurements."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """Noisy measurements with what a release tells about them."""

    stored: StoredAnswer
    versions: dict[str, str]
    receipt: Receipt | None
    repeated: bool


def admit(curator: Curator, who: Asker | None) -> tuple[TableSchema, ...]:
    """The tables that the asker may name, after the checks that every question passes."""
    from deniable.curator.governance.requests import refuse_expired
    from deniable.curator.scope import columns_for

    refuse_expired(curator)
    if who is not None:
        curator.ledger.admit(who.purpose, who.analyst)
    return columns_for(curator, who)


def job_of(plan: QueryPlan) -> Job:
    """A compiled question as a job."""
    from deniable.query.execute import measure

    assert plan.unit is not None
    deed: Callable[[Any], NoisyResults] = lambda engine: measure(plan, engine)  # noqa: E731  it closes over the plan
    return Job(
        plan.text, plan.canonical, plan.event, plan.cost, plan.unit, all_tables(plan), private_tables(plan), deed
    )


def private_tables(plan: QueryPlan) -> tuple[str, ...]:
    """The private tables that a plan reads."""
    return tuple(dict.fromkeys(table.name for node in plan.nodes for table in _private_in(node.node)))


def run_job(curator: Curator, job: Job, *, who: Asker | None = None, request: str = "") -> JobResult:
    """The measurements of a job, stored ones where it was asked before."""

    curator.scopes.refresh(curator.governor.withdrawals())
    tables = curator.scopes.tables(who)
    engine, versions = tables.attach(*job.tables), tables.version(*job.private)
    key = f"{job.canonical}:{sorted(versions.items())}:{curator.ledger.policy}"
    stored = find_answer(curator.cabinet, key)
    if stored is not None:
        return JobResult(stored, versions, None, True)
    receipt = charge_job(curator, job, who, request, key)
    if receipt.repeated and (found := find_answer(curator.cabinet, receipt.release)) is not None:
        return JobResult(found, versions, receipt, True)
    return JobResult(store_answer(curator.cabinet, key, _measure_job(job, engine, receipt)), versions, receipt, False)


def charge_job(curator: Curator, job: Job, who: Asker | None, request: str = "", key: str = "") -> Receipt:
    """Write the job's price to the ledger, or be refused with nothing changed."""
    from deniable.release import Technique

    question = f"{key}:{job.text}" if key else ""
    return curator.record(
        Technique.DP_QUERY, job.event, tables=job.private, unit=str(job.unit), who=who, request=request,
        question=question, asked=job.text,
    )  # fmt: skip


def _measure_job(job: Job, engine: Any, receipt: Receipt) -> StoredAnswer:
    """Whatever fails now is one fixed sentence, since the data had been touched."""
    from datetime import UTC, datetime

    with after_the_charge():
        measured = job.measure(engine)
    return StoredAnswer(measured, receipt.release, datetime.now(UTC).replace(microsecond=0))


def build_release(
    curator: Curator, job: Job, settled: JobResult, rows: pa.Table, who: Asker | None, **details: Any
) -> Release:
    """The rows with their guarantee and provenance, as every answer carries them."""
    from deniable.query.explain import describe_budget
    from deniable.release import Provenance, Release

    left = curator.remaining(who)
    told = {
        "cost": describe_budget(job.cost),
        "remaining": describe_budget(left) if left is not None else None,
    } | details
    told = {"aggregates": [], "notes": []} | told
    provenance = Provenance(curator.ledger.policy, settled.versions, {"asked": job.text}, time=settled.stored.time)
    return Release(rows, guarantee_of(job), provenance, told)


def describe_cost(curator: Curator, cost: Budget, unit: PrivacyUnit, who: Asker | None) -> dict[str, Any]:
    """What every explanation tells: the cost, whom it protects, and what is left."""
    from deniable.query.explain import describe_budget

    left = curator.remaining(who)
    remaining = describe_budget(left) if left is not None else None
    return {
        "cost": describe_budget(cost),
        "unit": str(unit),
        "neighbors": unit.neighboring.value,
        "remaining": remaining,
    }


def guarantee_of(job: Job) -> Any:
    """The guarantee that a job's price implies."""
    from deniable.dp.accounting import epsilon_of_zcdp
    from deniable.policy.budget import ZCDP
    from deniable.release import Guarantee, Technique

    if not isinstance(job.cost, ZCDP):
        return Guarantee.differential(Technique.DP_QUERY, job.unit, job.cost, job.unit.neighboring)
    epsilon, delta = epsilon_of_zcdp(job.cost.rho, display_delta()), job.cost.delta + display_delta()
    return Guarantee.differential(
        Technique.DP_QUERY, job.unit, job.cost, job.unit.neighboring, epsilon=epsilon, delta=delta
    )


def display_delta() -> Any:
    """The delta at which a rho is shown as an epsilon."""
    from deniable.policy.budget import exact

    return exact("1e-9")


def _private_in(node: Any) -> Any:
    from deniable.query.algebra.relation import tables_of

    return [table for table in tables_of(node) if not table.public]


def all_tables(plan: QueryPlan) -> tuple[str, ...]:
    """The tables that a plan reads, public ones too."""
    from deniable.query.algebra.relation import tables_of

    return tuple(table.name for table in tables_of(plan.relation))
