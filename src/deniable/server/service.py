"""The service behind every protocol: HTTP and PostgreSQL bring a token and a question; the curator decides.

It decides nothing itself. Tokens, grants, purposes, charges and answers are the curator's; the service keeps rates,
runs the curator in threads, and pads times. `Fulfillment` makes the releases of rows that a steward approved, and
finds their files."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cachetools import TTLCache

from deniable.curator.charge import recall_charges, watch_charges
from deniable.curator.context import forget_answers
from deniable.curator.governance import fulfill, reports, requests
from deniable.curator.query import batch, metadata
from deniable.curator.query.sql import state_budget
from deniable.curator.scope import is_expired
from deniable.errors import AccessRefused, ChargeWatch, DataError, DeniableError, ParameterError, StorageError
from deniable.governance.grants import SIGNED_ON, Action, Asker, Grant, Role
from deniable.governance.scram import Exchange
from deniable.ledger.sqlite import SqliteStore
from deniable.server.limits import MOST_REPEATS, REPEAT_SECONDS, Limits, RateLimiter
from deniable.server.monitoring import Log, locate_failure, log_to_stderr
from deniable.server.refusals import NotFound, TokenRefused, TooManyRequests, tell_cause, translate_failure
from deniable.server.scheduler import Scheduler
from deniable.server.worker_pool import ask_as
from deniable.storage import refuse_full

if TYPE_CHECKING:
    from deniable.curator.context import Context
    from deniable.curator.curator import Curator
    from deniable.curator.query.metadata import AnswerColumn, QuestionPreview
    from deniable.curator.query.sql import QueryAnswer
    from deniable.governance.requests import Request
    from deniable.query.explain import BatchExplanation, ErrorPoint, QuestionExplanation
    from deniable.server.oidc import Verifier
    from deniable.server.worker_pool import WorkerPool


Result = TypeVar("Result")
LONGEST_REQUEST_ID = 200
ASSISTANT = "assistant"
"""How the request ids of questions begin that an assistant asked with somebody's token."""
RECORD_SECONDS = 5.0
"""How long a look into the ledger's record of tokens may take before whoever waits for it is refused."""
RECORD_THREADS = 2


ROOM_SECONDS = 5.0
"""How long it counts that there was room on the disk of a ledger."""


def refuse_request_id(given: str) -> None:
    """Refuse what is too long for a request id, or cannot be shown."""
    if len(given) > LONGEST_REQUEST_ID or not given.isprintable():
        raise ParameterError("a request id is a printable text", expected=f"At most {LONGEST_REQUEST_ID} characters")


@dataclass(frozen=True, slots=True)
class Question:
    """A question as a client sent it: budgets are texts, since they are exact decimals."""

    sql: str
    epsilon: str | None = None
    delta: str = "0"
    rho: str | None = None
    purpose: str = ""
    request: str = ""
    confidence: float = 0.95
    intervals: bool = True
    nonnegative: bool = False
    parameters: tuple[Any, ...] = ()
    by: str = ""
    """Who asks in the name of the analyst, as the entry tells: an assistant."""

    def __post_init__(self) -> None:
        refuse_request_id(self.request)

    # a dictionary: keyword arguments of the curator's methods
    @property
    def budget(self) -> dict[str, Any]:
        """The budget as the curator takes it."""
        return {"epsilon": self.epsilon, "delta": self.delta if self.delta != "0" else 0, "rho": self.rho}


class Service:
    """One curator, and those who may come to it."""

    def __init__(
        self,
        curator: Curator,
        limits: Limits | None = None,
        pool: WorkerPool | None = None,
        fulfillment: Fulfillment | None = None,
        log: Log = log_to_stderr,
        verifier: Verifier | None = None,
    ) -> None:
        self.curator = curator
        self._verifier = verifier
        self._fulfillment = fulfillment
        self._log = log
        self.limits = limits or Limits()
        self.scheduler = Scheduler(curator, self.limits, pool)
        self._rate = RateLimiter(self.limits.rate, self.limits.burst)
        self._grants: TTLCache[str, Grant] = TTLCache(MOST_REPEATS, REPEAT_SECONDS)
        self._confirmed: TTLCache[str, bool] = TTLCache(MOST_REPEATS, REPEAT_SECONDS)
        self._answers: TTLCache[tuple[Grant, Question], QueryAnswer] = TTLCache(MOST_REPEATS, REPEAT_SECONDS)
        # One wrong token costs a drop; a bucket refills in a minute.
        self._guesses = RateLimiter(self.limits.guesses / 60, self.limits.guesses)
        self.used: dict[str, datetime] = {}
        """When each token was used last since this server started; it is written down nowhere."""
        self.postgres: int | None = None
        """The port at which the PostgreSQL protocol is spoken, once it is."""
        self.guests: list[Callable[[], Awaitable[None]]] = []
        """How to close what is served at further ports."""
        self._checked: asyncio.Task[None] | None = None
        self._had_room = -ROOM_SECONDS
        # Threads of their own, so that tokens are looked up while every other thread works on questions.
        self._record_threads = ThreadPoolExecutor(RECORD_THREADS, thread_name_prefix="deniable-record")

    @property
    def dataset(self) -> str:
        """The dataset that is served."""
        return self.curator.policy.dataset

    @property
    def policy_file(self) -> Path | None:
        """The file of the policy that is served; None where it is served from no file."""
        return None if self._fulfillment is None else self._fulfillment.policy

    @property
    def ledger(self) -> str | None:
        """Where the ledger of that policy is."""
        return None if self._fulfillment is None else self._fulfillment.ledger

    async def admit(self, token: str, address: str) -> Grant:
        """The grant of a token. Who asks is slowed down by token; who guesses by address, and nobody with them."""
        grant = self._grants.get(token)
        if grant is None:
            try:
                grant = await self.read_record(lambda: self._authenticate(token))
            except AccessRefused as refusal:
                raise self._refuse_guess(address, refusal) from None
            self._grants[token] = grant
        self._note_use(grant)
        return grant

    def _note_use(self, grant: Grant) -> None:
        """Count a call of somebody, who is slowed down by it, and when it was."""
        self._rate.take(grant.id or grant.name)
        if grant.has_token:
            self.used[grant.id] = datetime.now(UTC)

    async def confirm(self, grant: Grant) -> None:
        """Refuse a grant whose token was revoked or paused since it was admitted: a session may last for hours."""
        if not grant.has_token or grant.id in self._confirmed:
            return
        try:
            await self.read_record(lambda: requests.confirm(self.curator.context, grant))
        except AccessRefused as refusal:
            raise TokenRefused(refusal.happened, remedy=refusal.remedy) from None
        self._confirmed[grant.id] = True

    def is_admitted(self, token: str) -> bool:
        """Whether a token was found valid a moment ago."""
        return token in self._grants

    def admit_again(self, token: str) -> bool:
        """Whether a token was found valid a moment ago, and does not ask too often."""
        grant = self._grants.get(token)
        if grant is None or self._rate.read_level(grant.id or grant.name) < 1:
            return False
        self._note_use(grant)
        return True

    async def begin_exchange(self, name: str, channel: bytes = b"") -> Exchange[Grant] | None:
        """An exchange in which somebody proves a token of a name; None where the name has none that can be proved."""
        known = await self.read_record(lambda: requests.provable(self.curator.context, name))
        return Exchange(name, known, channel) if known else None

    def admit_proof(self, exchange: Exchange[Grant], message: bytes, address: str) -> tuple[Grant, bytes]:
        """The grant of a token that was proved, and our own proof; guesses count as those of tokens do."""
        try:
            grant, proof = exchange.final(message)
        except AccessRefused as refusal:
            raise self._refuse_guess(address, refusal) from None
        self._note_use(grant)
        return grant, proof

    async def read_record(self, work: Callable[[], Result]) -> Result:
        """Look something up in the record of tokens and requests, off the event loop and not for long."""
        looked = asyncio.get_running_loop().run_in_executor(self._record_threads, work)
        try:
            return await asyncio.wait_for(looked, RECORD_SECONDS)
        except TimeoutError:
            raise StorageError("the ledger does not answer in time", remedy="Try again in some seconds") from None

    def _refuse_guess(self, address: str, refusal: AccessRefused) -> DeniableError:
        """The refusal of a wrong token; after several, who sends more of them from there is told to wait."""
        try:
            self._guesses.take(address)
        except TooManyRequests as wait:
            return wait
        return TokenRefused(refusal.happened, remedy=refusal.remedy)

    def _authenticate(self, token: str) -> Grant:
        if self._verifier is not None and token.count(".") == 2:
            return self._verifier.grant(token)
        return requests.authenticate(self.curator.context, token)

    def authorize(self, grant: Grant, action: Action, purpose: str = "") -> Asker:
        """Who asks, and what for: a grant with one purpose need not name it."""
        if not purpose and grant.purposes is not None and len(grant.purposes) == 1:
            purpose = grant.purposes[0]
        _refuse_signed_off(grant)
        return requests.authorize(self.curator.context, grant, action, purpose)

    def speak_for(self, who: Asker) -> Context:
        """The context of an asker, whose part of the budget it is: for whatever may be charged, and its explanation."""
        return self.curator.context.speak_for(who)

    def look_as(self, grant: Grant, who: Asker) -> Context:
        """The context in which somebody looks: a steward and an auditor see what is of the whole dataset."""
        context = self.curator.context
        return context if grant.role in (Role.STEWARD, Role.AUDITOR) else context.speak_for(who)

    async def run_for(self, grant: Grant, work: Callable[[], Result], name: str = "") -> Result:
        """Run something of the curator's in a thread."""
        return await self.scheduler.run(grant.name, work, name)

    async def charge_for(
        self, grant: Grant, work: Callable[[threading.Event], Result], name: Hashable = None, request: str = "",
        repeat: Callable[[Result], Result] | None = None,
    ) -> Result:  # fmt: skip
        """Run something of the curator's that may charge; it is given the event that takes it back, by request id.

        Equal work that is asked for meanwhile is the same; `repeat` makes of its outcome one that charged nothing.
        """
        check = self._check_later(grant)

        def checked(stop: threading.Event) -> Result:
            check()
            return work(stop)

        return await self.scheduler.charge(grant.name, checked, name, request, repeat)

    async def recall_charge(self, grant: Grant | None, request: str, failure: Exception) -> None:
        """Let a refusal say what was charged before under its request id, whatever it is refused for."""
        if grant is None or not request or not isinstance(failure, DeniableError):
            return

        def recall() -> None:
            with recall_charges(self.curator.context, request, analyst=grant.name):
                raise failure

        with suppress(DeniableError):  # the refusal itself, or one of a ledger that does not answer
            await self.read_record(recall)

    def _check_later(self, grant: Grant) -> Callable[[], None]:
        """What refuses a grant whose term or token ended while its question waited; called when its work begins."""
        admitted = time.monotonic()

        def check() -> None:
            if time.monotonic() - admitted < REPEAT_SECONDS:
                return
            try:
                _refuse_signed_off(grant)
                requests.confirm(self.curator.context, grant)
            except AccessRefused as refusal:
                raise TokenRefused(refusal.happened, remedy=refusal.remedy) from None

        return check

    async def answer(self, grant: Grant, question: Question, work_name: str = "") -> QueryAnswer:
        """The answer to a question, charged to the grant's name and purpose; by the work's name it can be cancelled."""
        who = self.authorize(grant, Action.QUERY, question.purpose)
        key = (grant, replace(question, request="", by=""))
        stored = None if question.request else self._answers.get(key)  # the ledger knows what an id was used for
        if stored is not None:
            return stored
        asked = _fill_parameters(question)
        # One asker's equal questions at one moment are one question, unless they may be taken back one by one: then
        # those under one request id. Another question under the same id is other work, which the ledger refuses.
        given = self._build_query_arguments(asked, who)
        check, request = self._check_later(grant), asked.request or work_name
        found: QueryAnswer = await self.scheduler.work(grant.name, "query", given, key, request, check, repeat_answer)
        answer = _tell_charge_once(found)
        if answer.repeated:
            self._answers[key] = answer
        return answer

    def _build_query_arguments(self, asked: Question, who: Asker) -> dict[str, Any]:
        """A question as the curator takes it."""
        names = ("sql", "request", "confidence", "intervals", "nonnegative", "by")
        given = {name: getattr(asked, name) for name in names}
        return given | asked.budget | {"who": who, "seconds": self.limits.seconds}

    async def answer_batch(self, grant: Grant, questions: Sequence[str], asked: Question) -> batch.BatchAnswer:
        """The answers to several questions, charged once; `asked` has their budget, purpose and request id, no text."""
        who, spent = self.authorize(grant, Action.QUERY, asked.purpose), state_budget(**asked.budget)
        how: Any = {"confidence": asked.confidence, "intervals": asked.intervals, "nonnegative": asked.nonnegative,
                    "request": asked.request, "seconds": self.limits.seconds}  # fmt: skip
        context = self.speak_for(who)
        found: batch.BatchAnswer = await self.charge_for(
            grant,
            lambda stop: ask_as(asked.by, lambda: batch.query_batch(context, questions, spent, **how, stop=stop)),
            repr((who, questions, spent, how)), asked.request, repeat_answer,
        )  # fmt: skip
        return _tell_charge_once(found)

    async def explain_batch(self, grant: Grant, questions: Sequence[str], asked: Question) -> BatchExplanation:
        """What several questions would cost an asker together."""
        who, spent = self.authorize(grant, Action.EXPLAIN, asked.purpose), state_budget(**asked.budget)
        context = self.speak_for(who)
        return await self.run_for(grant, lambda: batch.explain_batch(context, questions, spent))

    async def explain(self, grant: Grant, question: Question) -> QuestionExplanation:
        """What a question would measure and cost, for this asker."""
        told: QuestionExplanation = await self._explain(grant, question, "explain")
        return told

    async def encode_explanation(self, grant: Grant, question: Question) -> bytes:
        """The same as JSON, written where it was worked out."""
        told: bytes = await self._explain(grant, question, "explain as text")
        return told

    async def _explain(self, grant: Grant, question: Question, kind: str) -> Any:
        who, asked = self.authorize(grant, Action.EXPLAIN, question.purpose), _fill_parameters(question)
        return await self.scheduler.work(grant.name, kind, {"sql": asked.sql, **asked.budget, "who": who})

    async def preview(self, grant: Grant, question: Question) -> QuestionPreview:
        """What a question would take of this asker's budget, and the error to expect."""
        told: QuestionPreview = await self._explain(grant, question, "preview")
        return told

    async def compute_curve(self, grant: Grant, question: Question) -> list[ErrorPoint]:
        """The error to expect of a question at several epsilons."""
        who, asked = self.authorize(grant, Action.EXPLAIN, question.purpose), _fill_parameters(question)
        given = {"sql": asked.sql, "delta": asked.budget["delta"], "who": who}
        found: list[ErrorPoint] = await self.scheduler.work(grant.name, "curve", given)
        return found

    async def columns(self, grant: Grant, question: Question) -> tuple[AnswerColumn, ...]:
        """The columns that an answer will have."""
        who, asked = self.authorize(grant, Action.EXPLAIN, question.purpose), _fill_parameters(question)
        given = {"who": who, "sql": asked.sql, "budget": state_budget(**asked.budget), "intervals": asked.intervals}
        found: tuple[AnswerColumn, ...] = await self.scheduler.work(grant.name, "columns", given)
        return found

    def cancel(self, grant: Grant, request: str) -> tuple[bool, bool | None] | None:
        """Take back a question; whether it had not been begun, and whether it was charged, where that is known."""
        return self.scheduler.cancel(grant.name, request)

    # a dictionary: the JSON of the answer, which names an earlier charge only where there was one
    async def take_back(self, grant: Grant, request: str) -> dict[str, Any]:
        """Take back a question, and say what was charged under its request id, now or before."""
        found = self.cancel(grant, request)
        taken_back, charged = found or (False, None)
        told: dict[str, Any] = {"cancelled": found is not None, "charged": charged}
        told |= {"begun": not taken_back} if found else {}
        before = "" if charged else await self.read_record(lambda: self._find_charge(grant, request))
        return told | ({"charged": not taken_back, "charged_before": before} if before else {})

    def _find_charge(self, grant: Grant, request: str) -> str:
        return reports.find_charge(self.curator.ledger, grant.name, request)

    async def decide(self, grant: Grant, identity: str, approved: bool, reason: str) -> Request:
        """Decide on a request; what is approved is made in the background."""
        self.authorize(grant, Action.DECIDE)
        context, maker = self.curator.context, self._fulfillment

        def decide() -> Request:
            if approved and maker is not None:
                fulfill.refuse_changed_file(maker.policy, context.policy.hash)
            return requests.decide(context, identity, approved, reason, grant, server=maker is not None)

        decided = await self.run_for(grant, decide)
        if approved and not decided.is_pending and maker is not None:
            self.scheduler.leave(maker.plan_release(context, decided.id, self._log))
        return decided

    def resume_releases(self) -> None:
        """Make what was approved at a server that ended before it was made, in the background."""
        if self._fulfillment is not None:
            self.scheduler.leave(self._fulfillment.plan_resumption(self.curator.context, self._log))

    async def make_again(self, grant: Grant, identity: str) -> None:
        """Try once more to make a release that was approved and failed, or was begun by a server that is gone."""
        self.authorize(grant, Action.DECIDE)
        context, maker = self.curator.context, self._fulfillment
        await self.run_for(grant, lambda: requests.find_approved(context, identity))
        if maker is not None:
            await self.run_for(grant, maker.plan_release(context, identity, self._log, again=True))

    async def file(self, grant: Grant, identity: str, table: str) -> Path:
        """The file of a release that was made for this asker."""
        request = await self.read_record(lambda: self.curator.context.state.requests().get(identity))
        self.authorize(grant, Action.REQUEST, request.purpose if request and request.analyst == grant.name else "")
        maker, curator = self._fulfillment, self.curator
        try:
            look = (lambda: maker.file(curator, grant.name, identity, table)) if maker else (lambda: None)
            found = await self.run_for(grant, look)
        except DataError as gone:
            raise NotFound(gone.happened, expected=gone.expected, remedy=gone.remedy) from None
        if found is None:
            raise build_not_found("file")
        return found

    async def check_ledger(self) -> None:
        """Refuse where the ledger cannot be read or written to now; however many ask, one thread looks."""
        if self._checked is None or self._checked.done():
            self._checked = asyncio.create_task(asyncio.to_thread(self._look_at_ledger))
            self._checked.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            await asyncio.wait_for(asyncio.shield(self._checked), RECORD_SECONDS)
        except TimeoutError:
            raise StorageError("the ledger does not answer in time", remedy="Try again in some seconds") from None

    def _look_at_ledger(self) -> None:
        """Read the ledger, take the turn to write to it and to what stands beside it, and see that there is room."""
        ledger = self.curator.ledger
        ledger.head()
        with ledger.store.begin_write():
            pass
        self.curator.context.store.refuse_held(look=True)
        ledger.watch.refuse_held()
        if isinstance(ledger.store, SqliteStore) and time.monotonic() > self._had_room + ROOM_SECONDS:
            refuse_full(ledger.store.path.absolute().parent)
            self._had_room = time.monotonic()

    async def share_limits(self) -> None:
        """Allow each asker the part of one server of those that share the ledger: together they allow the whole."""
        servers = await self.read_record(self.curator.ledger.store.count_servers)
        self.scheduler.servers = servers
        for limiter in (self._rate, self._guesses):
            limiter.divide(servers)

    def forget(self) -> int:
        """Forget stored answers and kept releases, if the policy's term is over."""
        forgotten = forget_answers(self.curator.context)
        over = is_expired(self.curator.policy)
        return forgotten + (self._fulfillment.forget() if over and self._fulfillment is not None else 0)

    async def close_guests(self) -> None:
        """Close what is served at further ports."""
        for close in self.guests:
            await close()

    def close(self) -> None:
        """Finish the work that was begun, and let go of the curator."""
        self.close_threads()
        self.curator.close()

    def close_threads(self) -> None:
        """Finish the work that was begun."""
        self.scheduler.close()
        self._record_threads.shutdown(wait=False, cancel_futures=True)


def _fill_parameters(question: Question) -> Question:
    """The question with its parameters inside its text."""
    if not question.parameters:
        return question
    return replace(question, sql=metadata.fill_parameters(question.sql, question.parameters), parameters=())


def repeat_answer(answer: Any) -> Any:
    """An answer for those who asked the same at the same moment: its charge was told to somebody already."""
    if isinstance(answer, batch.BatchAnswer):
        return replace(answer, answers=tuple(map(repeat_answer, answer.answers)), repeated=True, receipt=None)
    return replace(answer, repeated=True, receipt=None)


def _tell_charge_once(answer: Result) -> Result:
    """An answer; where an earlier call, or one at the same moment, was charged under its id, it is a repeated one."""
    receipt = getattr(answer, "receipt", None)
    repeated: Result = repeat_answer(answer) if receipt is not None and receipt.repeated else answer
    return repeated


def _refuse_signed_off(grant: Grant) -> None:
    """Refuse a grant of single sign-on that has ended: whoever has it signs on again, and needs no steward for that."""
    if grant.id.startswith(SIGNED_ON) and grant.expires is not None and datetime.now(UTC) >= grant.expires:
        raise TokenRefused("the token is not valid any more", remedy="Sign on again")


def build_not_found(what: str) -> NotFound:
    """The refusal for an id that nobody knows, or that is somebody else's: the two are not told apart."""
    return NotFound(f"there is no such {what}")


@dataclass(frozen=True, slots=True)
class Fulfillment:
    """Where a policy and its ledger are; a server without one makes no releases of rows itself."""

    policy: Path
    ledger: str

    def plan_release(self, context: Context, identity: str, log: Log, *, again: bool = False) -> Callable[[], None]:
        """Work that makes an approved release; what fails is logged and kept, for the steward and for who asked."""

        def make() -> None:
            try:
                with watch_charges(ChargeWatch()):
                    made = fulfill.fulfill_once(self.policy, self.ledger, identity, again=again)
            except DeniableError as failure:
                where = "" if failure.__cause__ is None else f" ({locate_failure(failure)})"
                reason = failure.message + (tell_cause(failure) or where)
                log(f"request {identity} was approved and could not be fulfilled: {reason}"
                    f" Try by hand: {fulfill.say_command(self.policy, self.ledger, identity)}")  # fmt: skip
                told = reports.FailedTry(reason, translate_failure(failure).message)
                reports.note_failure(context, identity, told)
            else:
                log(f"request {identity} was fulfilled" if made else f"request {identity} is fulfilled elsewhere")

        return make

    def plan_resumption(self, context: Context, log: Log) -> Callable[[], None]:
        """Work that makes what an earlier server has left unmade.

        What failed then is tried once. It looks again some seconds later: the earlier server may still be ending, and
        hold the folder until then. What another server began in a folder of its own is the steward's to take over.
        """

        def resume() -> None:
            for wait in (0, 1, 2, 4):
                time.sleep(wait * (0.5 + secrets.randbelow(1000) / 1000))
                if not (unmade := fulfill.list_unmade(context, self.policy, failed=not wait)):
                    break
                for identity in unmade:
                    log(f"request {identity} was approved and is not made yet: going on with it")
                    self.plan_release(context, identity, log)()
            for identity, folder in fulfill.list_begun_elsewhere(context, self.policy).items():
                command = fulfill.say_command(self.policy, self.ledger, identity)
                log(f"request {identity} was approved and begun in '{folder}', and is not made yet."
                    f" If no server goes on with it there, take it over: {command} --take-over")  # fmt: skip

        return resume

    def file(self, curator: Curator, analyst: str, identity: str, table: str) -> Path | None:
        """The file of a release, for the one who requested it."""
        return fulfill.find_release_file(curator.context, self.policy, analyst, identity, table)

    def forget(self) -> int:
        """Remove the releases that are kept here."""
        return fulfill.forget_releases(self.policy)
