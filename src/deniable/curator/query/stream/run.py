"""Streams: numbers of every period, published as they come, for one charge that covers the whole horizon.

The order is that of every charge: admit, price, charge, measure, store, release. The plan of a stream (what is measured
of all its periods, and with how much noise) is stored before it is charged, under the digest of its declaration. Then
each period is closed once, in order: its noise is drawn and stored, its rows are read, and what was measured is stored.
Only what is stored is shown. So whatever stops the process, and wherever, no value changes and no noise is drawn twice:
noise that was not stored yet has met no row. A missed day is closed by the next run.

**People.** Where the unit is a person, she counts in at most `max_periods` periods, the first in which she appears. The
answer store remembers who counted, by a keyed digest of who they are, because the table may change: what was counted is
counted. Who counts depends on her own rows alone, so nobody else's noise is spent. Within a period her groups and rows
are bounded as in any question.

**What stays inside.** Row t of what is measured needs the exact numbers of the periods before it, as they were read
then. They are in the answer store, beside the digests of people; both are as private as the rows, and never leave it.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.charge import Job, after_the_charge, attach_tables, charge, guarantee_of, still_charged
from deniable.curator.context import STREAMS, Context
from deniable.curator.publish import find_signing_key, note_periods, note_published
from deniable.curator.query.stream.plan import (
    Opened,
    Plan,
    add_sensitivity,
    bound_periods,
    compile_period,
    make_mechanism,
    note_people_out,
    plan_stream,
    square_sensitivity,
    state_protection,
)
from deniable.curator.query.stream.rows import CONFIDENCE, Exact, StreamRow, present_span, publish_period, tabulate_rows
from deniable.curator.scope import SAMPLE_KEYS
from deniable.errors import IntegrityError, InternalError, ParameterError
from deniable.ledger.loss import refuse_second_measurement
from deniable.outputs import claim_outputs, replace_files
from deniable.policy.budget import Budget, PureDP
from deniable.policy.stream import Stream
from deniable.release.record import Record
from deniable.storage import write_whole

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.engines.base import Engine
    from deniable.query.plan import NodePlan, Step
    from deniable.streams.mechanism import StreamMechanism

DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True, eq=False)
class StreamReport(Record):
    """What was published of a stream so far, and whom it protects."""

    stream: str
    protects: str
    epsilon: Fraction
    delta: Fraction
    periods: int
    closed: int
    closed_now: int
    charged: bool
    next_day: date | None
    confidence: float
    measured: str
    release: str
    rows: tuple[StreamRow, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Closed:
    """A period that was measured: exact and noisy numbers, who counted, and what was published of it."""

    exact: Exact
    noisy: Exact
    people: bytes
    rows: tuple[StreamRow, ...]
    by: str = ""
    """The run that closed it: of several at one moment, one does."""


def publish(context: Context, name: str, *, until: date | None = None, out: str | Path | None = None) -> StreamReport:
    """Close every period of a stream that has ended, in order, and give all that was published of it so far.

    The first call charges the whole horizon; later ones charge nothing. `until` closes periods up to a day in the past
    alone. With `out`, everything published so far is written as .csv, .parquet or .json, with its statement.
    """
    place = None if out is None else Path(out)
    with claim_outputs(place, rows=True, also=(".json",)):
        plan = plan_stream(context, name)
        ended, notes = _count_ended(plan.stream, until), note_people_out(context, plan)
        opened = _open_stream(context, plan)
        closed = _read_closed(context, opened)
        before, run = len(closed), secrets.token_hex(8)
        if before < ended:  # refuses a source that cannot be read before any noise is drawn for it
            context.scope.attach(*(each for kind in plan.tables for each in kind))
        for period in range(before, ended):
            closed.append(_close_period(context, opened, closed, period, run))
        _note_closed(context, opened, before, len(closed))
        report = _report(opened, closed, sum(each.by == run for each in closed), charged=not opened.receipt.repeated)
        report = replace(report, notes=notes)
        if place is not None:
            with still_charged():
                _write_feed(context, opened, report, place)
        return report


def read_published(context: Context, name: str) -> StreamReport:
    """All that was published of a stream so far, for whoever may read it; nothing is measured or charged."""
    opened = _open_stream(context, plan_stream(context, name), charged=True)
    closed = _read_closed(context, opened)[: _count_noted(context, opened)]
    return _report(opened, closed, 0, charged=False)


def total_between(context: Context, name: str, first: date, last: date) -> tuple[StreamRow, ...]:
    """Totals from the period of one day to that of another, from what was published: nothing more is charged."""
    plan = plan_stream(context, name)
    start, end = plan.stream.find_period(first), plan.stream.find_period(last)
    opened = _open_stream(context, plan, charged=True)
    closed = _read_closed(context, opened)
    if not 0 <= start <= end < len(closed):
        raise ParameterError(
            f"periods from {first} to {last} are not all published", expected=f"{len(closed)} periods are so far"
        )
    return tuple(present_span(opened, [each.noisy for each in closed], ("range", start, end)))


def _open_stream(context: Context, plan: Plan, *, charged: bool = False) -> Opened:
    """The stored plan of a stream, made now if this is its first run, and the charge for it."""
    paid = _find_charges(context, plan)
    name = f"{plan.stream.name} {plan.declared}"
    stored = context.store.find(STREAMS, name)
    if plan.declared in paid and stored is None:
        raise IntegrityError(
            f"the stream '{plan.stream.name}' was charged, and the answer store does not have it",
            remedy="Put the newest copy of the answer store back; it cannot be drawn again",
        )
    if charged and plan.declared not in paid:
        raise ParameterError(
            f"nothing of '{plan.stream.name}' was published yet", remedy=f"Run: deniable publish {plan.stream.name}"
        )
    if plan.declared not in paid:  # refuses a source that cannot be read, before anything is stored or charged
        attach_tables(context, _job_of(plan, None, None), context.epoch)
    if stored is None:
        stored = context.store.keep(STREAMS, name, name, _write_mechanism(make_mechanism(plan)))
    mechanism = _read_mechanism(plan, stored)
    cost = _price(plan, mechanism)
    job = _job_of(plan, mechanism, cost)
    receipt = charge(context, job, request=f"stream {name}", question=job.text)
    from deniable.release import Technique

    cells = tuple(_list_cells(context, step) for step, _ in plan.placed)
    return Opened(plan, mechanism, cells, receipt, guarantee_of(Technique.DP_QUERY, plan.unit, cost))


def _find_charges(context: Context, plan: Plan) -> set[str]:
    """The declarations under which a stream of this name was charged; one name is one stream."""
    charged = (entry.details for entry in context.ledger.entries(acts=("charge",)))
    found = {str(each["declared"]) for each in charged if each.get("stream") == plan.stream.name}
    if found - {plan.declared}:
        raise ParameterError(
            f"the stream '{plan.stream.name}' was begun under another declaration",
            expected="A stream stays as it was declared: questions, the columns they use, horizon and budget",
            remedy="Put the declaration back, or give the new one a name of its own, which is charged anew",
        )
    return found


def _price(plan: Plan, mechanism: StreamMechanism) -> Budget:
    """Double entry: the stored noise is made for what one unit moves now, and costs what was declared."""
    from deniable.query.double_entry import price

    pure = isinstance(plan.stream.allowance, PureDP)
    moved = bound_periods(mechanism.factorization, plan.most_periods, pure=pure)
    needed = [(add_sensitivity if pure else square_sensitivity)(placed) * moved for _, placed in plan.placed]
    made = [getattr(noise, "sensitivity" if pure else "sensitivity_squared", None) for noise in mechanism.noises]
    if mechanism.participation != moved or made != needed:
        raise InternalError("the noise of a stream is not made for what it measures", remedy="Nothing was run")
    return price(mechanism.event, plan.stream.allowance)


def _job_of(plan: Plan, mechanism: StreamMechanism | None, cost: Budget | None) -> Job[None]:
    from deniable.release import Technique

    stream, (private, public) = plan.stream, plan.tables
    text = f"stream {stream.name}: {len(stream.questions)} questions, {stream.periods} periods from {stream.start}"
    details = {"stream": stream.name, "declared": plan.declared, "periods": stream.periods, "asked": text}
    event = mechanism.event if mechanism is not None else None
    return Job(
        Technique.DP_QUERY, text, event, plan.unit, private, public=public, cost=cost,
        details={**details, "protects": state_protection(plan)},
    )  # fmt: skip


def _write_mechanism(mechanism: StreamMechanism) -> bytes:
    factorization = mechanism.factorization
    return json.dumps({
        "name": factorization.name,
        "periods": factorization.periods,
        "rows": base64.b64encode(factorization.to_bytes()).decode(),
        "participation": mechanism.participation,
        "pure": mechanism.is_pure,
        "noises": [[str(amount) for amount in dataclasses.astuple(noise)] for noise in mechanism.noises],
    }).encode()  # fmt: skip


def _read_mechanism(plan: Plan, stored: bytes) -> StreamMechanism:
    from deniable.dp.mechanisms import GaussianMechanism, LaplaceMechanism
    from deniable.streams.factorization import Factorization
    from deniable.streams.mechanism import StreamMechanism

    held = json.loads(stored)
    factorization = Factorization.from_bytes(held["name"], held["periods"], base64.b64decode(held["rows"]))
    if factorization.periods != plan.stream.periods:
        raise InternalError("a stored stream has another horizon", remedy="Nothing was run")
    kind = LaplaceMechanism if held.get("pure") else GaussianMechanism
    noises = tuple(kind(Fraction(amount), Fraction(reach)) for amount, reach in held["noises"])
    return StreamMechanism(factorization, held["participation"], noises)


def _list_cells(context: Context, step: Step) -> tuple[tuple[Any, ...], ...]:
    """The keys of a grouping set's groups, all of them, in the order in which they are measured."""
    from deniable.query.keys import PublicKeys
    from deniable.query.sql.private_sql import render_keys_alone

    if not step.places:
        return ((),)
    assert isinstance(step.keys, PublicKeys)
    listed = context.scope.attach_public().run(render_keys_alone(step.keys, step.places))
    return tuple(zip(*(column.to_pylist() for column in listed.columns), strict=True))


def _count_ended(stream: Stream, until: date | None) -> int:
    today = datetime.now(UTC).date()
    day = today if until is None else until + timedelta(days=1)
    if day > today:
        raise ParameterError(f"{until} is not over", expected="A day in the past (UTC)")
    ended = stream.count_ended(day)
    if not ended:
        first = stream.first_day(1 + stream.wait)
        raise ParameterError(
            f"no period of '{stream.name}' has ended", expected=f"The first one can be published on {first} (UTC)"
        )
    return ended


def _name_period(opened: Opened, period: int) -> str:
    return f"{opened.plan.stream.name} {opened.plan.declared} {period}"


def _close_period(context: Context, opened: Opened, closed: Sequence[Closed], period: int, run: str) -> Closed:
    """Measure one period, once and for all; gives what is stored, which may have come first from elsewhere."""
    name = _name_period(opened, period)
    anew = "Publish it under a new name (streams: in the policy): that is charged anew"
    refuse_second_measurement(context.ledger, opened.receipt.number, anew)
    with still_charged():
        drawn = json.dumps(opened.mechanism.draw_noise([len(each) for each in opened.cells])).encode()
        noise = json.loads(context.store.keep(STREAMS, f"{name} noise", f"{name} noise", drawn))
    with after_the_charge(context):
        exact, people = _read_period(context, opened, closed, period)
        noisy = opened.mechanism.measure([*(each.exact for each in closed), exact], noise)
        rows = publish_period(opened, [*(each.noisy for each in closed), noisy])
        written = _write_closed(Closed(exact, noisy, people, rows, run))
    with still_charged():
        return _read_closed_period(context.store.keep(STREAMS, name, name, written))


def _read_closed(context: Context, opened: Opened) -> list[Closed]:
    """All periods that were closed, in order; refuses a store that has fewer than were published."""
    found: list[Closed] = []
    while (stored := context.store.find(STREAMS, _name_period(opened, len(found)))) is not None:
        found.append(_read_closed_period(stored))
    noted = _count_noted(context, opened)
    if len(found) < noted:
        raise IntegrityError(
            f"{noted} periods of '{opened.plan.stream.name}' were published, and the answer store has "
            f"{len(found)} of them",
            remedy="Put the newest copy of the answer store back; they cannot be drawn again",
        )
    return found


def _count_noted(context: Context, opened: Opened) -> int:
    """How many periods the ledger says are published."""
    entries = (entry.details for entry in context.ledger.entries(acts=("publish",)))
    return max((int(each["periods"]) for each in entries if each.get("declared") == opened.plan.declared), default=0)


def _note_closed(context: Context, opened: Opened, before: int, after: int) -> None:
    """Write to the ledger how many periods are closed, before any of them is shown."""
    if after > before:
        details = {"stream": opened.plan.stream.name, "declared": opened.plan.declared, "periods": after}
        with still_charged():
            note_periods(context, opened.receipt.release, details)


def _read_period(context: Context, opened: Opened, closed: Sequence[Closed], period: int) -> tuple[Exact, bytes]:
    """The exact numbers of one period, and the digests of who counted, where that is remembered."""
    plan = opened.plan
    tables = context.scope.schemas()
    plans = compile_period(plan.stream, plan.table, tables, period)
    now = replace(plan, plans=plans)
    if [placed.sensitivity for _, placed in now.placed] != [placed.sensitivity for _, placed in plan.placed]:
        raise InternalError("a period is measured otherwise than it was priced", remedy="Nothing was read")
    private, public = now.tables
    engine = context.scope.attach(*private, *public)

    def read() -> tuple[Exact, bytes]:
        if not plan.remembers:
            return [each for node in now.nodes for step in node.steps for each in _read_step(engine, node, step)], b""
        return _read_people(context, engine, opened, now, closed)

    return engine.read_whole((*private, *public), read)


def _read_step(engine: Engine, node: NodePlan, step: Step) -> Exact:
    """The exact numbers of one grouping set: for each measurement, of each group."""
    from deniable.query.sql.private_sql import render_step

    statement = render_step(node.node, step, secrets.randbits(63))
    assert statement is not None
    found = engine.run(statement)
    return [[int(each) for each in found.column(placed.column).to_pylist()] for placed in step.placed]


def _read_people(
    context: Context, engine: Engine, opened: Opened, plan: Plan, closed: Sequence[Closed]
) -> tuple[Exact, bytes]:
    """The same, of people who have periods left; a person who counts in any question has used the period up."""
    from deniable.query.sql.private_sql import render_unit_entries

    steps = [(node, step) for node in plan.nodes for step in node.steps]
    frames = [engine.run(render_unit_entries(node.node, step, secrets.randbits(63))) for node, step in steps]
    key = context.store.keep(SAMPLE_KEYS, STREAMS, STREAMS, secrets.token_bytes(32))
    known = {
        value: _digest_person(key, value) for frame in frames for value in frame.column("_unit").unique().to_pylist()
    }
    used = Counter(each for period in closed for each in _split_digests(period.people))
    counted = {person for person in known.values() if used[person] < plan.most_periods}
    allowed = {value for value, person in known.items() if person in counted}
    exact: Exact = []
    for (_, step), frame in zip(steps, frames, strict=True):
        exact += _add_up(frame, step, opened.cells[len(exact)], allowed)
    return exact, b"".join(sorted(counted))


def _add_up(frame: pa.Table, step: Step, cells: tuple[tuple[Any, ...], ...], allowed: set[Any]) -> Exact:
    """What all who count add to each group, for each measurement."""
    from deniable.query.sql.private_sql import key_names

    place = {key: i for i, key in enumerate(cells)}
    names = key_names(step.places)
    keys = zip(*(frame.column(name).to_pylist() for name in names), strict=True) if names else [()] * frame.num_rows
    where = [place.get(key, -1) if unit in allowed else -1
             for key, unit in zip(keys, frame.column("_unit").to_pylist(), strict=True)]  # fmt: skip
    found: Exact = []
    for placed in step.placed:
        totals = [0] * len(cells)
        for cell, value in zip(where, frame.column(placed.column).to_pylist(), strict=True):
            if cell >= 0:
                totals[cell] += int(value)
        found.append(totals)
    return found


def _digest_person(key: bytes, value: object) -> bytes:
    plain = repr(value + 0.0) if isinstance(value, float) else repr(value)  # 0.0 and -0.0 are one
    return hashlib.blake2b(plain.encode(), key=key, digest_size=DIGEST_BYTES).digest()


def _split_digests(people: bytes) -> list[bytes]:
    return [people[i : i + DIGEST_BYTES] for i in range(0, len(people), DIGEST_BYTES)]


def _write_closed(closed: Closed) -> bytes:
    return json.dumps({
        "exact": closed.exact,
        "noisy": closed.noisy,
        "people": base64.b64encode(closed.people).decode(),
        "rows": [row.to_dict() for row in closed.rows],
        "by": closed.by,
    }).encode()  # fmt: skip


def _read_closed_period(stored: bytes) -> Closed:
    held = json.loads(stored)
    rows = tuple(
        StreamRow(**{**row, "first": date.fromisoformat(row["first"]), "last": date.fromisoformat(row["last"])})
        for row in held["rows"]
    )
    return Closed(held["exact"], held["noisy"], base64.b64decode(held["people"]), rows, held.get("by", ""))


def _report(opened: Opened, closed: Sequence[Closed], now: int, *, charged: bool) -> StreamReport:
    stream, kept = opened.plan.stream, opened.guarantee
    coming = None if len(closed) == stream.periods else stream.first_day(len(closed) + 1 + stream.wait)
    assert kept.epsilon is not None
    assert kept.delta is not None
    return StreamReport(
        stream.name, state_protection(opened.plan), kept.epsilon, kept.delta, stream.periods, len(closed), now, charged,
        coming, CONFIDENCE, opened.mechanism.factorization.name, opened.receipt.release,
        tuple(row for period in closed for row in period.rows),
    )  # fmt: skip


def _write_feed(context: Context, opened: Opened, report: StreamReport, out: Path) -> None:
    """Everything published so far in one file, with its statement."""
    from deniable.release import Provenance, seal

    stream = opened.plan.stream
    parameters = {"stream": stream.name, "periods": stream.periods, "closed": report.closed}
    versions = {stream.table: "read once, when each period was closed"}
    provenance = Provenance(context.policy.hash, versions, parameters)
    details = {"protects": report.protects, "confidence": CONFIDENCE, "measured": report.measured}
    with replace_files(out):
        if out.suffix.lower() == ".json":
            write_whole(out, json.dumps(report.to_dict(), indent=1).encode())
        else:
            context.scope.engine.write(tabulate_rows(report.rows), out)
        sealed = seal(out, opened.guarantee, provenance, details, key=find_signing_key(context))
        note_published(context, sealed, report.release)
