"""Context: what a workflow needs, and never a Curator: policy, gate to rows, ledger, stored answers, asker.

A context is frozen; the same one for another asker is a new value. State of governance is not kept anywhere but in the
ledger: it is folded from the acts there, and each look folds only what came since the last one.

An epoch is the public name of a state of the dataset. Within one a question has one answer, whatever happens to the
files; a new one is a public event: the steward declares it, or the policy's calendar or manifest does. Its name follows
from public facts alone, so neither it nor whether an answer is repeated tells that a record was changed.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cachetools import LRUCache, cached

from deniable.curator.scope import SAMPLE_KEYS, Scope, SharedTables, is_expired, refuse_expired
from deniable.curator.sources import list_files, make_engine_for, refuse_private_as_public
from deniable.errors import AccessRefused, DataError, DeniableError, ParameterError, PolicyError, nearest
from deniable.governance import requests, tokens, withdrawals
from deniable.governance.grants import Role
from deniable.governance.withdrawals import COLLECTION
from deniable.storage import hold_inputs, release_inputs

if TYPE_CHECKING:
    from deniable.engines.base import Engine
    from deniable.governance.grants import Asker
    from deniable.governance.requests import Request
    from deniable.governance.tokens import Token
    from deniable.ledger import Balance, Ledger, Posting
    from deniable.ledger.answer_store import AnswerStore
    from deniable.ledger.export import HeadSender
    from deniable.ledger.witness import Source, Witness
    from deniable.policy.budget import Budget
    from deniable.policy.document import Policy
    from deniable.policy.schema import TableSchema

ANSWERS, STREAMS, MEASURED = "answers", "streams", "measured"
"""The collections of stored answers, of streams (their plans, noise and closed periods), and of what each answer is to:
by that later questions find it."""
MOST_MANIFEST = 1 << 20
"""Bytes of a manifest that count."""
PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,63}")
"""Texts that name an epoch as they are."""
MOST_FAILURES = 3
"""After so many failures behind a charge an asker is paused for this dataset until the steward looks."""
TURN_SECONDS = 0.1
"""How often one who waits for a turn looks whether the question was taken back."""
MOST_CACHED = 1024
"""Plans, and answers as they were shown, that are remembered in memory."""


class Cache:
    """Things that are costly to make again, for all threads; the longest unused is forgotten first."""

    def __init__(self, most: int = MOST_CACHED) -> None:
        self._lock = threading.Lock()
        self._held: LRUCache[Any, Any] = LRUCache(most)

    def get(self, key: Any, make: Any) -> Any:
        """What was made for a key, or is made now; what raises is not remembered."""
        return cached(self._held, key=lambda: key, lock=self._lock)(make)()

    def find(self, key: Any) -> Any:
        """What is remembered for a key, or None."""
        with self._lock:
            return self._held.get(key)

    def put(self, key: Any, made: Any) -> None:
        """Remember something for a key, instead of what was remembered for it."""
        with self._lock:
            self._held[key] = made

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._held.clear()


class LedgerState:
    """Tokens, requests, withdrawals and epochs, folded from a ledger; one for all threads of a process."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._lock = threading.Lock()
        self._upto, self._last = 0, -1
        self._tokens: dict[str, Token] = {}
        self._requests: dict[str, Request] = {}
        self._withdrawals = 0
        self._reinstated: frozenset[str] = frozenset()
        self._terms: set[tuple[str, str, str]] = set()
        self._epochs = 0
        self._accepted = ""
        self._failures: Counter[str] = Counter()
        self._turns = threading.Condition()
        self._running: Counter[str] = Counter()

    def tokens(self) -> Mapping[str, Token]:
        """All tokens that were given out, by their hash."""
        self._fold()
        return self._tokens

    def requests(self) -> Mapping[str, Request]:
        """All requests, by their id."""
        self._fold()
        return self._requests

    def withdrawals(self) -> tuple[int, frozenset[str]]:
        """How many acts of withdrawal there were, and the digests of those who withdrew and were taken in again."""
        self._fold()
        return self._withdrawals, self._reinstated

    def has_acknowledged(self, analyst: str, purpose: str, digest: str) -> bool:
        """Whether somebody acknowledged the terms of a purpose in this wording."""
        if (analyst, purpose, digest) not in self._terms:
            self._fold()
        return (analyst, purpose, digest) in self._terms

    def epochs(self) -> int:
        """How many epochs were declared, by whichever process that was recorded."""
        self._fold()
        return self._epochs

    def accepted(self) -> str:
        """The digest of the policy that was accepted last; empty where none was."""
        self._fold()
        return self._accepted

    def failures(self, analyst: str) -> int:
        """How often something of an asker failed after it was charged, since the steward last looked."""
        self._fold()
        return self._failures[analyst]

    @contextmanager
    def take_turn(self, analyst: str, stop: threading.Event | None = None) -> Iterator[None]:
        """Be under way as one of so few that their failures, all together, cannot pass the limit; wait until then.

        The number is that of this process: servers that share a ledger each let so many run.
        """
        with self._turns:
            while self._running[analyst] and not (stop is not None and stop.is_set()):
                if self._running[analyst] + self.failures(analyst) < MOST_FAILURES:
                    break
                self._turns.wait(TURN_SECONDS)
            self._running[analyst] += 1
        try:
            yield
        finally:
            with self._turns:
                self._running[analyst] -= 1
                self._turns.notify_all()

    def _fold(self) -> None:
        acts = (*tokens.ACTS, *requests.ACTS, *withdrawals.ACTS, "epoch", "fail", "resume", "acknowledge", "accept")
        with self._lock:
            last = self._ledger.store.last()  # before the entries are read, so that none is missed
            new = list(self._ledger.entries(self._upto, acts)) if last != self._last else []
            self._last = last
            if new:
                self._tokens = tokens.fold_tokens(new, self._tokens)
                self._requests = requests.fold_requests(new, self._requests)
                self._withdrawals += sum(act.act in withdrawals.ACTS for act in new)
                self._reinstated = withdrawals.fold_reinstated(new, self._reinstated)
                self._epochs += sum(act.act == "epoch" for act in new)
                for act in new:
                    if act.act == "fail":
                        self._failures[act.analyst] += 1
                    elif act.act == "resume":
                        self._failures.pop(act.details["analyst"], None)
                    elif act.act == "accept":
                        self._accepted = act.details["policy"]
                    elif act.act == "acknowledge":
                        self._terms.add((act.analyst, act.purpose, act.details["terms"]))
                self._upto = new[-1].sequence


@dataclass(frozen=True, slots=True)
class Context:
    """What a workflow works with. Rows come through `scope` alone."""

    policy: Policy
    scope: Scope
    ledger: Ledger
    store: AnswerStore
    state: LedgerState
    plans: Cache
    shown: Cache
    asker: Asker | None = None
    """Who asks; None is the steward."""
    place: str = ""
    """The name of the ledger's place; empty where it is kept in memory."""
    elsewhere: str = ""
    """The ledger that holds the budget of these sources, where this one is kept in memory."""
    made: bool = False
    """Whether the ledger is a new file, made when this was opened."""

    @property
    def epoch(self) -> str:
        """The name of the epoch now: from the calendar, the manifest and the ledger, never from rows."""
        return find_epoch(self.policy, self.state)

    def speak_for(self, asker: Asker | None) -> Context:
        """The same for another asker."""
        return self if asker is self.asker else replace(self, asker=asker, scope=self.scope.narrow_to(asker))

    @property
    def path(self) -> tuple[str, str]:
        """The asker's place in the budget tree: purpose and analyst, both empty for the steward."""
        return ("", "") if self.asker is None else (self.asker.purpose, self.asker.analyst)

    def admit(self) -> None:
        """The checks that every workflow passes: the policy's term, the asker's grant, and how much of it failed."""
        self.refuse_expired()
        self.ledger.refuse_lost()
        if self.asker is None:
            return
        self.ledger.admit(*self.path)
        if self.asker.grant is not None:
            tokens.refuse_stale(self.asker.grant, self.state.tokens())
        self._refuse_unacknowledged()
        if self.state.failures(self.asker.analyst) >= MOST_FAILURES:
            raise AccessRefused(
                f"'{self.asker.analyst}' is paused: {MOST_FAILURES} questions failed after they were charged",
                expected="Questions that end; each that does not tells a little of the rows",
                remedy=f"Ask the steward, who looks at the ledger and runs: deniable resume {self.asker.analyst}",
            )

    def _refuse_unacknowledged(self) -> None:
        """Refuse an analyst who did not acknowledge the terms of the purpose, as they are worded now."""
        purpose = self.policy.budgets.find_purpose(self.path[0]) if self.policy.budgets is not None else None
        if purpose is None or not purpose.terms or self.asker is None or self.asker.role is Role.STEWARD:
            return
        if not self.state.has_acknowledged(self.asker.analyst, purpose.name, digest_terms(purpose.terms)):
            raise AccessRefused(
                f"'{self.asker.analyst}' has not acknowledged the terms of purpose '{purpose.name}'",
                expected=f"They are: {purpose.terms}",
                remedy=f"Acknowledge them once: deniable terms --analyst {self.asker.analyst} "
                f"--purpose {purpose.name} --acknowledge",
            )

    def admit_tables(self) -> tuple[TableSchema, ...]:
        """The tables that an admitted asker may name, with the columns that the asker may name."""
        self.admit()
        return self.scope.schemas()

    def refuse_expired(self) -> None:
        """Refuse after the policy's last day; whoever asks first then makes the curator forget what it stored."""
        if is_expired(self.policy):
            forget_answers(self)
        refuse_expired(self.policy)

    def only_private_table(self, name: str | None) -> str:
        """The named table, or the only private one there is."""
        if name is not None:
            return self.policy.table(name).name
        names = [table.name for table in self.policy.private]
        if len(names) != 1:
            raise ParameterError("it is not clear which table is meant", remedy=f"Say --table: {', '.join(names)}")
        return names[0]

    def balance(self) -> tuple[Balance, ...]:
        """What is spent and left, from the dataset down to the asker."""
        return self.ledger.balance(*self.path)

    def state_left(self) -> str:
        """The least that is left on the path to the asker, as it is enforced: "8.2 of epsilon 10"; or nothing."""
        return self.read_left()[2]

    def name_left(self) -> dict[str, str] | None:
        """The least that is left on the path to the asker, as JSON: all that is enforced, rounded down."""
        return self.read_left()[1]

    def read_left(self) -> tuple[tuple[Balance, ...], dict[str, str] | None, str]:
        """What is left for the asker at each node, and the least as JSON and in words, by one look at the ledger."""
        from deniable.ledger.budget_tree import name_least, say_least

        balances, least = self.ledger.read_path(*self.path)
        return balances, name_least(balances, least), say_least(balances, least)

    def remaining(self) -> Budget | None:
        """The least that is left from the dataset down to the asker; None where the policy sets no budget."""
        return self.ledger.find_remaining(*self.path)

    def close(self) -> None:
        """Let go of the tables, the ledger and the answer store."""
        self.scope.close()
        if self.place:
            from deniable.ledger.witness import Witness

            with suppress(DeniableError):  # a ledger that broke meanwhile is refused when it is next opened
                Witness().see(self.place, self.ledger, self.store)
        release_inputs(self.ledger)
        self.store.close()
        if self.made:
            discard_unused(self.ledger)
        self.ledger.close()


def digest_terms(terms: str) -> str:
    """The name of a wording of terms; white space does not count."""
    return hashlib.sha256(" ".join(terms.split()).encode()).hexdigest()[:16]


def find_epoch(policy: Policy, state: LedgerState, more: int = 0) -> str:
    """The name of the epoch now, or once the steward has declared so many more."""
    return name_epoch(_name_period(policy), state.epochs() + more)


def name_epoch(base: str, declared: int) -> str:
    """The name of an epoch: of the calendar's or the manifest's name, and how many were declared by the steward.

    >>> name_epoch("", 0), name_epoch("", 2), name_epoch("2026-Q4", 0), name_epoch("2026-Q4", 2)
    ('1', '3', '2026-Q4', '2026-Q4+2')
    """
    if not base:
        return str(declared + 1)
    return f"{base}+{declared}" if declared else base


def name_manifest(content: bytes) -> str:
    """The name that a manifest gives: its text if that is one short word, else its digest.

    >>> name_manifest(b"2026-11-15 ")
    '2026-11-15'
    """
    text = content.decode("utf-8", "replace").strip()
    return text if PLAIN_NAME.fullmatch(text) else hashlib.sha256(content).hexdigest()[:32]


def _name_period(policy: Policy) -> str:
    """What the policy's schedule or manifest calls the time now; empty where it has neither."""
    from deniable.ledger.budget_tree import period_of

    declared = policy.epochs
    if declared is None or (declared.every is None and declared.manifest is None):
        return ""
    if declared.manifest is None:
        return period_of(declared.every, datetime.now(UTC))
    try:
        with policy.path(declared.manifest).open("rb") as file:
            return name_manifest(file.read(MOST_MANIFEST))
    except (OSError, ValueError):
        raise DataError(
            "the manifest that names the epoch cannot be read", remedy="Put back the file that the policy names"
        ) from None


def forget_answers(context: Context, by: str = "steward") -> int:
    """Forget every stored answer once the policy's term is over; the ledger stays. Says how many there were."""
    from deniable.ledger import Act, Posting

    if not is_expired(context.policy):
        return 0
    context.shown.clear()
    context.plans.clear()
    counts = {each: len(context.store.list_all(each)) for each in (ANSWERS, STREAMS, MEASURED)}
    count = counts[ANSWERS] + counts[STREAMS]
    posting = Posting(Act.EXPIRE, analyst=by, details={name: many for name, many in counts.items() if many})
    # First, so that no request id of before gets another answer under its charge.
    receipt = context.ledger.record(posting) if count else None
    for each in counts:
        context.store.empty(each)
    head = context.ledger.head()
    if receipt is not None and head is not None and head.sequence != receipt.number:
        context.ledger.record(posting)  # what was charged meanwhile may say that answers were there
    return count


def check_purposes(policy: Policy, purposes: tuple[str, ...]) -> None:
    """Refuse a purpose that the policy does not know."""
    known = [each.name for each in policy.budgets.purposes] if policy.budgets else []
    for name in purposes:
        if known and name not in known:
            raise ParameterError(f"the policy has no purpose '{name}'", remedy=nearest(name, known))


def open_context(
    policy: Policy,
    *,
    sources: Mapping[str, Any] | None = None,
    engine: Engine | None = None,
    ledger: str | Path | None = None,
    asker: Asker | None = None,
    reading: bool = False,
    **limits: Any,
) -> Context:
    """The context of a policy. `sources` replace the policy's; `limits` (memory, threads) are those of engines.

    One for `reading` takes a role of a database that may only read, and notes nothing in the ledger.

    A ledger that is not there is made only where nothing refuses it: one without entries would stand in the way of the
    one that was lost. If nothing is written to it, it is gone again when the context is closed.
    """
    refuse_private_as_public(policy, sources)

    def make_engine(rows: bool = False) -> Engine:
        return make_engine_for(policy, dict(sources or {}), rows, **limits)

    over = partial(_open_over, policy, ledger, dict(sources or {}), make_engine, engine, asker, reading=reading)
    missing = _is_missing(ledger)
    if engine is None and missing:
        replace(over(rehearsed=True), place="").close()
    return replace(over(), made=missing)


def _is_missing(ledger: str | Path | None) -> bool:
    """Whether a ledger would be a new file, in a folder where one can be made."""
    place = None if ledger is None or "://" in str(ledger) else Path(ledger)
    return place is not None and not place.exists() and os.access(place.absolute().parent, os.W_OK | os.X_OK)


def _open_over(
    policy: Policy, ledger: str | Path | None, sources: dict[str, Any], make_engine: Callable[[], Engine],
    engine: Engine | None, asker: Asker | None, *, reading: bool, rehearsed: bool = False,
) -> Context:  # fmt: skip
    """The context over a ledger; `rehearsed`, over an empty one in memory that stands for the one at this place."""
    from deniable.ledger.ledger import open_answer_store, open_ledger, tie_store
    from deniable.ledger.sqlite import place_answers

    opened = open_ledger(None if rehearsed else ledger, policy, spending=not reading)
    with ExitStack() as stack:
        stack.callback(opened.close)
        alone = rehearsed and not place_answers(str(ledger)).exists()
        store = open_answer_store(None if alone else ledger, policy.dataset, opened)
        stack.callback(store.close)
        tie_store(opened, store, COLLECTION)
        state = LedgerState(opened)
        noting = ledger is not None and not rehearsed and not reading
        accepted = _hold_to_accepted(policy, state.accepted()) if noting else []
        shared = SharedTables(
            policy,
            store,
            state.withdrawals,
            lambda: find_epoch(policy, state),
            sources,
            make_engine,
            engine,
        )
        scope = Scope(shared, asker)
        stack.callback(scope.close)
        place, elsewhere = _call_witness(scope, policy, opened, ledger, store, accepted)
        if place and policy.witness:
            _send_heads(policy, opened, store)
        stack.pop_all()  # nothing was refused: the context closes them
    hold_inputs(opened, [path for table in policy.tables for path in list_files(policy, table, sources)])
    return Context(policy, scope, opened, store, state, Cache(), Cache(), asker, place=place, elsewhere=elsewhere)


def discard_unused(ledger: Ledger) -> None:
    """Remove the file of a ledger that was made and never written to, with its answer store; both are let go of."""
    from deniable.ledger.sqlite import SqliteStore, place_answers

    if isinstance(ledger.store, SqliteStore) and ledger.known_head is None:
        ledger.store.discard(place_answers(ledger.store.path))


def _hold_to_accepted(policy: Policy, accepted: str) -> list[Posting]:
    """Refuse another policy than the ledger names as accepted, where the accepted one is not there to compare with.

    Reading the policy compares it with what the user's state holds; a state that was removed must forget nothing. A
    policy that was accepted before it had a ledger is to be noted in it: what that takes is given.
    """
    from deniable.policy.document import find_acceptance

    if not accepted:
        return [state_acceptance(policy, by)] if (by := find_acceptance(policy.hash)) is not None else []
    if accepted != policy.hash and find_acceptance(accepted) is None:
        raise PolicyError(
            f"the ledger says that another policy of '{policy.dataset}' was accepted, and this user's state does not "
            "hold it: whether this one protects less cannot be told",
            expected="The policy that was accepted last, or the state in which it was kept (accepted.json)",
            remedy="Put either back, or let the steward say: deniable policy accept POLICY --by NAME",
        )
    return []


def state_acceptance(policy: Policy, by: str) -> Posting:
    """What is written into a ledger when a policy is accepted."""
    from deniable.ledger import Act, Posting

    return Posting(Act.ACCEPT, analyst=by, details={"policy": policy.hash})


def _call_witness(
    scope: Scope,
    policy: Policy,
    opened: Ledger,
    ledger: str | Path | None,
    store: AnswerStore,
    accepted: list[Posting],
) -> tuple[str, str]:
    """Refuse a ledger that lost entries, and one whose sources have a budget in another; says its place, or that.

    A ledger claims its sources with its first entry, and has the `accepted` policy noted then: one that nothing is
    written to stands in nobody's way.
    """
    from deniable.ledger.witness import Witness, name_place

    witness = Witness()
    if ledger is None:
        known = policy.budgets is not None and not witness.is_blank
        return "", next(iter(witness.find_holders(mark_sources(scope, {}))), "") if known else ""
    place = name_place(ledger, policy.dataset)
    witness.compare(place, opened, store)
    witness.note_people(place, opened, partial(withdrawals.list_people, opened, store))
    _refuse_published(scope, witness, place)
    claims = policy.budgets is not None and not is_expired(policy)
    sources = mark_sources(scope, witness.find_stamps(place)) if claims else []
    begun = opened.head() is not None
    witness.claim(place, sources, opened.list_charged(), note=begun)

    def begin() -> list[Posting]:
        witness.claim(place, sources)
        return accepted

    if begun:
        for posting in accepted:
            opened.record(posting)
    else:
        opened.on_first = begin
    return place, ""


def _send_heads(policy: Policy, opened: Ledger, store: AnswerStore) -> None:
    """Have signed heads sent to the witness that the policy names; refuse a ledger that lost what was sent before."""
    sender = make_sender(policy, lambda: find_signing_key(store))
    sender.refuse_rollback(opened)
    opened.on_written, opened.on_close = sender.note_entry, sender.finish


def make_sender(policy: Policy, find_key: Callable[[], bytes | None] = lambda: None) -> HeadSender:
    """Who tells the witness that the policy names."""
    from deniable.ledger.export import WEB, HeadSender

    named = str(policy.witness)
    return HeadSender(named if named.startswith(WEB) else str(policy.path(named)), find_key)


def find_signing_key(store: AnswerStore) -> bytes | None:
    """The curator's private key, drawn once and kept beside the ledger; None where it would go with the process."""
    return store.keep(SAMPLE_KEYS, "signing", "signing", secrets.token_bytes(32)) if store.is_lasting else None


def _refuse_published(scope: Scope, witness: Witness, place: str) -> None:
    """Refuse a public table whose rows another ledger protects, in a copy too: they would be free under this policy."""
    from deniable.ledger.witness import Source

    public = {} if witness.is_blank else scope.list_sources(public=True)
    for name, (path, stamp) in public.items():
        sketch_rows = partial(scope.sketch_rows, name)
        for other in witness.find_protecting(Source(path, stamp), sketch_rows, place):
            raise PolicyError(
                f"the table '{name}' is declared public, and the ledger {other} protects people in its file",
                expected="A source is private or public, whatever policy names it",
                remedy="Declare it with unit: instead of public: true, and use that ledger",
            )


def mark_sources(scope: Scope, known: Mapping[str, str]) -> list[Source]:
    """The private sources with their units, and with hashes of some rows where they are not as `known`."""
    from deniable.ledger.witness import Source

    return [
        Source(
            path,
            stamp,
            None if known.get(path) == stamp else scope.sketch_rows(name),
            name,
            str(scope.find_table(name).unit),
        )
        for name, (path, stamp) in scope.list_sources().items()
    ]


def ledger_of(policy: Path, ledger: str | None) -> str:
    """Where charges and releases of a policy are written: as told, else beside the policy file.

    What a process kept in its memory would be forgotten: a budget would be whole again for the next command, an earlier
    release unknown to a second one, and the key that signed a statement gone.
    """
    return ledger or str(policy.with_suffix(".ledger.sqlite"))


def find_ledger(policy: Path, ledger: str | Path | None) -> str | None:
    """The ledger as told, else the one beside the policy if there is one already."""
    beside = ledger_of(policy, None)
    return str(ledger) if ledger else beside if Path(beside).exists() else None
