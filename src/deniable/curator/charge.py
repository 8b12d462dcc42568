"""The one charging path: admit, price, charge, measure, store, release. Every technique goes through it.

A charge is written before the data is touched and is never refunded; a release without a formal guarantee is recorded
as what it is. Whatever fails after a charge is one fixed sentence: more of it could tell of rows.

The same question has one answer, for every process, until the epoch, a public table, the policy or its term ends. What
is stored are the noisy measurements, which are public; an answer leaves only after it was stored, and what leaves is
what is stored. A stored answer is found before any private source is touched, under a name made of public facts alone:
whether it is repeated, and how fast, tells nothing of whether a record was changed.

So a question that was charged and whose process died can be asked again under its request id: it runs under the old
charge, and at most one answer of it is ever seen.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial, wraps
from threading import Event as Flag
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from deniable.curator.context import ANSWERS, Context
from deniable.errors import (
    CHARGED,
    NO_BUDGET,
    NOTHING_CHARGED,
    UNSURE,
    WATCH,
    AccessRefused,
    BudgetExceeded,
    Cancelled,
    ChargeWatch,
    DataError,
    DeniableError,
    ExecutionFailed,
    InternalError,
    Stopped,
    StorageError,
    check_seconds,
)
from deniable.ledger.entry import ANSWER, ASK_ANEW, CLAIM, SHOWN_DELTA, SOURCES, Act, Posting, digest
from deniable.ledger.loss import refuse_second_measurement
from deniable.policy.budget import ZCDP, Budget, PureDP, budget, round_amount, say_budget
from deniable.policy.schema import PrivacyUnit

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.dp.accounting import Event
    from deniable.engines.base import Engine
    from deniable.ledger import Receipt
    from deniable.ledger.answer_store import AnswerStore
    from deniable.query.execute import NoisyResults
    from deniable.query.plan import QueryPlan
    from deniable.release import Guarantee, Technique

FILE_ANEW = "Ask for it again: deniable request; that is decided anew, and charged if it has a price"
BEGIN_EPOCH = "Begin a new epoch, in which it is charged anew: deniable epoch new --reason 'published again'"
"""How an approved release is asked for anew, and what has one charge in each epoch."""

LOG = logging.getLogger("deniable")
"""What was charged, by the numbers of entries and the names of tables; nothing of questions or rows."""

Measured = TypeVar("Measured")
Given = ParamSpec("Given")


@dataclass(frozen=True, slots=True)
class Form:
    """How something that is measured is stored: as bytes, and read back."""

    write: Callable[[Any], bytes]
    read: Callable[[bytes], Any]


@dataclass(frozen=True, slots=True)
class Job(Generic[Measured]):
    """Something to be charged once and measured once: what it is, what it costs, which tables it reads, and how."""

    technique: str
    text: str
    """What was asked, as the ledger shows it."""
    event: Event | None
    """What is priced; None is a release without a formal guarantee."""
    unit: PrivacyUnit | str | None
    """Who is protected; a text where it is no unit of a table, as one response of a survey."""
    private: tuple[str, ...]
    """The private tables it reads: they are named in the ledger."""
    measure: Callable[[Engine], Measured] | None = field(default=None, repr=False)
    """From an engine to what is measured; the last sight of the data. None where a workflow reads rows by itself."""
    public: tuple[str, ...] = ()
    """Public tables that are attached too; their content is part of the question."""
    canonical: str = ""
    """What makes two jobs the same question; empty where each is a question of its own, and nothing is stored."""
    cost: Budget | None = None
    free: bool = False
    """Whether it reads public tables alone."""
    restore: Callable[[Any], Any] | None = None
    """What `measure` gives, and what is stored, as this job names it: another with its key may name it otherwise."""
    inside: tuple[str, ...] | None = None
    """The public tables that what is measured depends on, where those are not all that are read."""
    details: Mapping[str, Any] = field(default_factory=dict)
    form: Form | None = None
    """How it is stored where it is no answer to a question; what a request id was charged for is stored under it."""
    anew: str = ASK_ANEW
    """How it is asked anew where the request id is not the asker's to choose; told where its answer is gone."""
    rehearse: Callable[[Engine], None] | None = None
    """What refuses, before the charge, statements that the engine could not be given; no row is read."""


@dataclass(frozen=True, slots=True)
class OpenJob:
    """A job that may run: its epoch, what a release says of its tables, and the key of its answer; all of it public."""

    epoch: str
    versions: dict[str, str]
    key: str


@dataclass(frozen=True, slots=True)
class JobResult(Generic[Measured]):
    """What was measured, with what a release tells about it."""

    measured: Measured = field(repr=False)
    epoch: str
    versions: dict[str, str]
    release: str
    time: datetime
    receipt: Receipt | None
    """What the charge left behind; None where nothing was charged."""
    repeated: bool


def open_job(context: Context, job: Job[Measured], request: str = "") -> OpenJob:
    """Admit the asker to the job's tables and name its answer; no private source is touched.

    A request id that was used for another question is refused, also where the answer is stored.
    """
    context.admit()
    for name in (*job.private, *job.public):
        context.scope.refuse_closed(name)
    epoch, public = context.epoch, context.scope.public_versions(*job.public)
    inside = sorted((name, version) for name, version in public.items() if job.inside is None or name in job.inside)
    held = context.scope.name_frames(job.private)
    named = [job.canonical, epoch, sorted(context.scope.rows.items()), inside, context.ledger.policy, *held]
    key = json.dumps(named) if job.canonical else ""
    if request:
        # An id stands for the answer, in whatever words it is asked for; for the text of what has no stored answer.
        context.ledger.refuse_reused(_build_posting(context, job, request, key or job.text))
    return OpenJob(epoch, state_versions(job, epoch) | public, key)


def state_versions(job: Job[Any], epoch: str) -> dict[str, str]:
    """What a release says of the private tables that it was made of: their epoch, and nothing of their rows."""
    return dict.fromkeys(job.private, f"epoch {epoch}")


def attach_tables(context: Context, job: Job[Any], epoch: str) -> Engine:
    """The engine that holds the job's tables as the asker may see them now; refuses a source that cannot be read.

    Whoever measures first in an epoch leaves a digest of each source for the steward, who is told when it changes.
    """
    try:
        engine = context.scope.attach(*job.private, *job.public, epoch=epoch)
        for name in job.private:
            context.scope.mark_source(epoch, name)
    except (DataError, StorageError) as refusal:
        if context.asker is None:
            raise
        # What is wrong with a file is a matter of its rows: the steward is told, an analyst is not.
        raise DataError(
            "a table of this question cannot be read as the policy declares it",
            remedy="Ask the steward, who is told what is wrong",
        ) from refusal
    return engine


@contextmanager
def recall_charges(context: Context, *requests: str, analyst: str = "") -> Iterator[None]:
    """A refusal that knows of no charge says what was charged by this call, or before under these request ids."""
    watch = WATCH.get() or ChargeWatch()
    before, token = watch.charged, WATCH.set(watch)
    try:
        yield
    except DeniableError as refusal:
        if refusal.charged in (NOTHING_CHARGED, NO_BUDGET):
            if watch.charged is not before:
                refusal.charged = CHARGED if watch.charged else UNSURE
                raise
            from deniable.ledger.export import list_charges

            with suppress(Exception):  # a ledger that cannot be read now, or an id that is none: the refusal stays
                if told := list_charges(context.ledger, analyst or context.path[1] or "steward", requests):
                    refusal.recall_charge("; ".join(told))
        raise
    finally:
        WATCH.reset(token)


def recalls_charge(workflow: Callable[Given, Measured]) -> Callable[Given, Measured]:
    """A workflow that takes a context and a keyword `request`, whose refusals say what was charged under that id."""

    @wraps(workflow)
    def run(*args: Given.args, **given: Given.kwargs) -> Measured:
        with recall_charges(cast(Context, args[0]), cast(str, given.get("request", ""))):
            return workflow(*args, **given)

    return run


@recalls_charge
def run_job(
    context: Context, job: Job[Any], opened: OpenJob | None = None, *, request: str = "", stop: Flag | None = None
) -> JobResult[Any]:
    """The measurements of a job: stored ones where it was asked before, else charged, measured and stored.

    `request` is the asker's id of this attempt: asked again under it, the job is not charged again, and gives what was
    measured then; one that nothing would store takes none. `stop` is set when the job is taken back: before the charge
    it ends uncharged; after it the charge stands.
    """
    assert job.measure is not None
    if request and not (job.canonical or job.form):
        raise InternalError("a request id was given for something that is not stored")
    opened = open_job(context, job, request) if opened is None else opened
    if opened.key and (stored := find_answer(context.store, opened.key)) is not None:
        return _result(job, stored, opened, None, True)
    engine, receipt, shared = attach_tables(context, job, opened.epoch), None, False
    if job.rehearse is not None:
        job.rehearse(engine)
    with _take_turn(context, job, stop):
        if not job.free:
            _refuse_cancelled(stop)
            asked, known = opened.key or job.text, bool(opened.key or request)
            receipt = charge(
                context, job, request=request, question=asked, epoch=opened.epoch, stored=known, answer=opened.key
            )
            shared = receipt.shared  # another charged the same question, and has not stored its answer yet, or died
            found = find_answer(context.store, receipt.release, job.form) if receipt.repeated else None
            if found is not None:
                return _result(job, found, opened, None if shared else receipt, shared)
            if receipt.repeated:
                refuse_second_measurement(context.ledger, receipt.number, job.anew)
        fresh = receipt is not None and not receipt.repeated
        with (
            recall_charges(context, receipt.request if receipt is not None else ""),
            after_the_charge(None if job.free else context, stop, charged=fresh, answer=opened.key),
        ):
            measured = engine.read_whole((*job.private, *job.public), partial(job.measure, engine))
    release = receipt.release if receipt is not None else secrets.token_hex(12)
    answer = StoredAnswer(measured, release, datetime.now(UTC).replace(microsecond=0))
    if opened.key or request:
        with nullcontext() if receipt is None or shared else still_charged():
            answer = store_answer(context.store, opened.key or release, answer, receipt, job.form)
    return _result(job, answer, opened, None if shared else receipt, shared)


def _take_turn(context: Context, job: Job[Any], stop: Flag | None) -> AbstractContextManager[None]:
    """An asker's charged jobs run a few at a time: each may fail once before the asker is paused."""
    if job.free or context.asker is None:
        return nullcontext()
    return context.state.take_turn(context.asker.analyst, stop)


def _result(
    job: Job[Any], stored: StoredAnswer, opened: OpenJob, receipt: Receipt | None, repeated: bool
) -> JobResult[Any]:
    found = stored.measured if job.restore is None else job.restore(stored.measured)
    return JobResult(found, opened.epoch, opened.versions, stored.release, stored.time, receipt, repeated)


@recalls_charge
def charge(
    context: Context,
    job: Job[Any],
    *,
    request: str = "",
    question: str = "",
    epoch: str = "",
    stored: bool = False,
    answer: str = "",
) -> Receipt:
    """Write the job's price to the ledger, or be refused with nothing changed; without an event it is recorded.

    Call it before the data is touched. `epoch` is that in which the job was opened, if it was. The answer store
    remembers how far the ledger is: now, or with the answer where one will be `stored`. `answer` is the key under
    which it will be: what was charged for that key already is not charged again.
    """
    context.admit()
    posting = _build_posting(context, job, request, question or (job.text if request else ""))
    priced = posting.act is Act.CHARGE
    if priced and context.policy.budgets is None:
        raise BudgetExceeded(
            "the policy sets no budgets, so nothing is answered about people",
            expected="A limit for all answers together",
            remedy="Write into the policy: budgets: {dataset: {epsilon: 1}}, and a delta such as 1e-6 if needed",
        )
    if priced and context.elsewhere:
        raise AccessRefused(
            f"the rows of this policy have a budget already, in the ledger {context.elsewhere}",
            expected="One budget for one set of people; this ledger would be gone with the process",
            remedy="Open the policy with Curator.open, or with ledger=",
        )
    details = {**job.details, **_state_claim(job), "epoch": epoch or context.epoch, **_name_sources(context, job)}
    details |= {"by": watch.by} if (watch := WATCH.get()) is not None and watch.by else {}
    posting = replace(posting, details=details | ({ANSWER: digest(answer)} if answer else {}))
    try:
        receipt = _record_charge(context, posting, priced)
    except BudgetExceeded as over:
        raise _restate_refusal(context, job, over) from None
    LOG.info("ledger entry %d: %s of %s", receipt.number, posting.act, ", ".join(job.private) or "no table")
    if not stored:
        with still_charged():
            context.store.see(receipt.number, receipt.head)
    return receipt


def _build_posting(context: Context, job: Job[Any], request: str, question: str) -> Posting:
    """A job as it is charged or recorded, without the details of its entry."""
    from deniable.dp.accounting import NonPrivateEvent

    event, (purpose, analyst) = job.event or NonPrivateEvent(), context.path
    return Posting(
        Act.RELEASE if isinstance(event, NonPrivateEvent) else Act.CHARGE,
        event,
        str(job.technique),
        job.private,
        str(job.unit or ""),
        analyst if context.asker is not None else "steward",
        purpose,
        request=request,
        question=question,
        anew=job.anew,
    )


def _record_charge(context: Context, posting: Posting, priced: bool) -> Receipt:
    """Write to the ledger, and tell whoever watches this thread whether something was charged."""
    watch = WATCH.get()
    if watch is not None and not priced:
        watch.recorded = True
    ChargeWatch.tried += priced
    if watch is None or not priced:
        return context.ledger.record(posting)
    watch.seen += 1
    before, watch.charged = watch.charged, watch.charged or None
    try:
        receipt = context.ledger.record(posting)
    except DeniableError as refusal:
        watch.charged = before if refusal.charged in (NOTHING_CHARGED, NO_BUDGET) else watch.charged
        raise
    watch.charged = before if receipt.shared else True
    return receipt


@contextmanager
def watch_charges(watch: ChargeWatch) -> Iterator[None]:
    """What is raised inside tells the truth of charges, wherever it is raised.

    A refusal that knows of no charge is told of it; what is unforeseen becomes a refusal that says whether there was
    one.
    """
    token = WATCH.set(watch)
    try:
        yield
    except DeniableError as refusal:
        if watch.charged and refusal.charged in (NOTHING_CHARGED, NO_BUDGET):
            refusal.charged = CHARGED
        raise
    except Exception as failure:  # its message may quote data
        told = UNSURE if watch.charged is None else CHARGED if watch.charged else NOTHING_CHARGED
        happened = "something unforeseen happened in deniable itself"
        raise InternalError(happened, remedy="Tell the steward", charge=told) from failure
    finally:
        WATCH.reset(token)


def _restate_refusal(context: Context, job: Job[Any], over: BudgetExceeded) -> BudgetExceeded:
    """A refusal in the unit in which the question was asked, where the ledger keeps rho; says which kind fits."""
    from deniable.ledger.budget_tree import find_kinds

    kept = [(each.kinds, each) for each in context.balance() if each.kinds is not None]
    least, stated = find_kinds(each for _, each in kept), any(not isinstance(each.limit, ZCDP) for _, each in kept)
    if job.cost is None or least is None or not stated or not over.happened.startswith("asked "):
        return over
    where = min(kept, key=lambda e: (0 if isinstance(job.cost, PureDP) else e[0].rho, e[0].epsilon))[1].node
    pure = f"a pure question, one without a delta, of at most epsilon {round_amount(least.epsilon)}"
    remedy = f"Only {pure} fits" if least.epsilon else "The budget is used up"
    if least.epsilon and least.rho:
        own = f"a delta of at most {round_amount(least.delta)}" if least.delta else "no delta: that is used up"
        remedy = f"Ask {pure}, or another of at most rho {round_amount(least.rho)} with {own}"
    happened = f"asked {say_budget(job.cost)}, and {context.state_left()} is left ({where})"
    if isinstance(job.cost, PureDP | ZCDP):
        unit = "epsilon" if isinstance(job.cost, PureDP) else "rho"
        over.fields |= {"unit": unit, "asked": float(getattr(job.cost, unit)), "remaining": float(getattr(least, unit))}
    return BudgetExceeded(happened, remedy=remedy, **over.fields)  # type: ignore[arg-type]


def _state_claim(job: Job[Any]) -> dict[str, Any]:
    """What the release of a job claims, so that the register tells the same."""
    from deniable.release import Technique

    if job.cost is None or job.event is None or not isinstance(job.unit, PrivacyUnit):
        return {}
    claim = guarantee_of(Technique(str(job.technique)), job.unit, job.cost)
    return {CLAIM: {"epsilon": str(claim.epsilon), "delta": str(claim.delta)}}


def _name_sources(context: Context, job: Job[Any]) -> dict[str, Any]:
    """The sources of a job's tables, by which one file under two names is known to be one."""
    named = context.scope.name_sources(job.private)
    return {SOURCES: named} if named else {}


def _refuse_cancelled(stop: Flag | None) -> None:
    if stop is not None and stop.is_set():
        raise Cancelled("the question was cancelled before it was charged", remedy="Ask again", charge=NOTHING_CHARGED)


@contextmanager
def after_the_charge(
    context: Context | None = None, stop: Flag | None = None, *, charged: bool = True, answer: str = ""
) -> Iterator[None]:
    """Whatever fails now, even by our own bug, is one fixed sentence.

    With a context, rows may have made it fail: that is counted, and an asker with too many failures is paused. What the
    asker took back, by `stop`, is no failure, and another sentence. What was to be stored as `answer` is charged anew.
    """
    try:
        yield
    except Exception as failure:
        canceled = stop is not None and stop.is_set()
        if context is not None and not canceled:
            _record_failure(context, failure, answer)
        if canceled:
            when, told = ("after it was charged", CHARGED) if charged else ("while it ran", NOTHING_CHARGED)
            raise Cancelled(f"the question was cancelled {when}", charge=told) from None
        raise ExecutionFailed(None if charged else NOTHING_CHARGED) from None


def _record_failure(context: Context, failure: Exception, answer: str) -> None:
    """Count a failure; what an engine lacked (time, a file, memory) is named to the steward, here and in the log."""
    purpose, analyst = context.path
    named = failure.happened if isinstance(failure, StorageError | Stopped | DataError) else ""
    LOG.warning("a release failed after it was charged: %s", named or type(failure).__name__)
    cause = ({"cause": named} if named else {}) | ({ANSWER: digest(answer)} if answer and analyst else {})
    with suppress(DeniableError):  # a ledger that cannot be written must not say more than the fixed sentence
        context.ledger.record(Posting(Act.FAIL, analyst=analyst, purpose=purpose, details=cause))


@contextmanager
def still_charged() -> Iterator[None]:
    """A disk that refuses what was made has not undone its charge, and no other refusal or failure has."""
    try:
        yield
    except DeniableError as refusal:
        refusal.charged = CHARGED
        raise
    except Exception as failure:  # its message may quote data, so only its type is shown
        happened = f"An unforeseen {type(failure).__name__} in deniable itself, after the charge"
        raise InternalError(happened, remedy="Please report it", charge=CHARGED) from failure


def job_of(plan: QueryPlan, *, seconds: float | None = None) -> Job[NoisyResults]:
    """A compiled question as a job."""
    from deniable.query.algebra.relation import tables_of
    from deniable.query.canonical import arrange, restore
    from deniable.query.execute import measure, rehearse_statements
    from deniable.release import Technique

    if seconds is not None:
        check_seconds(seconds)
    read = [table for node in plan.nodes for table in tables_of(node.node)]
    private = tuple(dict.fromkeys(table.name for table in read if not table.public))
    public = tuple(dict.fromkeys(table.name for table in tables_of(plan.relation) if table.name not in private))
    return Job(
        Technique.DP_QUERY,
        plan.text,
        plan.event,
        plan.unit,
        private,
        lambda engine: arrange(plan, measure(plan, engine, seconds=seconds)),
        public,
        plan.canonical,
        plan.cost,
        plan.free,
        restore=lambda found: restore(plan, found),
        inside=None if plan.free else tuple(dict.fromkeys(table.name for table in read if table.public)),
        details={"asked": plan.text},
        rehearse=lambda engine: rehearse_statements(plan, engine),
    )


def guarantee_of(technique: Technique, unit: PrivacyUnit | str | None, cost: Budget | None) -> Guarantee:
    """The guarantee that a price implies; a rho is shown as an epsilon at a small delta."""
    from deniable.dp.accounting import epsilon_of_zcdp
    from deniable.release import Guarantee

    if not isinstance(unit, PrivacyUnit) or cost is None:
        return Guarantee.differential(technique, str(unit or "nobody"), budget(0))
    if not isinstance(cost, ZCDP):
        return Guarantee.differential(technique, unit, cost, unit.neighboring)
    epsilon, delta = epsilon_of_zcdp(cost.rho, SHOWN_DELTA), cost.delta + SHOWN_DELTA
    return Guarantee.differential(technique, unit, cost, unit.neighboring, epsilon=epsilon, delta=delta)


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """The noisy measurements of a question, or a model, with the id and time of their release."""

    measured: Any = field(repr=False)
    release: str
    time: datetime


def find_answer(store: AnswerStore, name: str, form: Form | None = None) -> StoredAnswer | None:
    """The answer stored under a key or a release id."""
    value = store.find(ANSWERS, name)
    return None if value is None else _read_answer(value, form)


def store_answer(
    store: AnswerStore, key: str, answer: StoredAnswer, receipt: Receipt | None = None, form: Form | None = None
) -> StoredAnswer:
    """Store an answer; gives the one that is stored, which may have come first from elsewhere."""
    text = _write_answer(answer, form)
    seen = None if receipt is None else (receipt.number, receipt.head)
    kept = store.keep(ANSWERS, key, answer.release, text, seen=seen)
    return answer if kept == text else _read_answer(kept, form)


def _write_answer(answer: StoredAnswer, form: Form | None = None) -> bytes:
    """A line of JSON that says what follows, then what was measured, in its form.

    Of a question that is two Arrow streams for each measured step: its keys, its values.
    """
    told = {"release": answer.release, "time": answer.time.isoformat()}
    if form is not None:
        return json.dumps(told).encode() + b"\n" + form.write(answer.measured)
    every = [part for parts in answer.measured.values() for part in parts]
    streams = [_write_stream(table) for part in every for table in (part.keys, _values_table(part.values))]
    steps = {name: len(parts) for name, parts in answer.measured.items()}
    head = told | {"steps": steps, "lengths": [len(each) for each in streams]}
    return json.dumps(head).encode() + b"\n" + b"".join(streams)


def _read_answer(value: bytes, form: Form | None = None) -> StoredAnswer:
    from deniable.query.execute import Noisy

    start = value.index(b"\n") + 1
    head, tables = json.loads(value[:start]), []
    if form is not None:
        return StoredAnswer(form.read(value[start:]), head["release"], datetime.fromisoformat(head["time"]))
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
    return cast(bytes, sink.getvalue().to_pybytes())


def _read_stream(value: bytes, start: int, length: int) -> pa.Table:
    import pyarrow as pa

    with pa.ipc.open_stream(pa.py_buffer(value)[start : start + length]) as reader:
        return reader.read_all()


def _values_table(values: tuple[object, ...]) -> pa.Table:
    import pyarrow as pa

    return pa.table({f"v{place}": pa.array(each) for place, each in enumerate(values)})


def _value_arrays(table: pa.Table) -> tuple[Any, ...]:
    return tuple(column.combine_chunks().to_numpy(zero_copy_only=False) for column in table.columns)
