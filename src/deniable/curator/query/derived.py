"""Questions that follow from what was measured before: found in the answer store, and answered without a charge.

Beside each answer the store remembers which question it answers, under the name of the rows that it is about and of
all that its key names (epoch, policy, public tables). A later question over the same rows looks through these, in the
order in which they were stored, before it is charged: nothing of it depends on rows.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from deniable.curator.charge import Job, JobResult, OpenJob, find_answer
from deniable.curator.context import ANSWERS, MEASURED, Context
from deniable.errors import DeniableError
from deniable.policy.budget import ZCDP, Budget, budget, say_budget

if TYPE_CHECKING:
    from deniable.dp.accounting import Event
    from deniable.query.derive import Derived, Source
    from deniable.query.plan import QueryPlan

MOST_SOURCES = 64
"""Questions over the same rows that are looked through: a new process compiles each of them once, and remembers them
in the order in which they were stored."""
MOST_TEXT, MOST_MEASURED = 4_000, 64
"""Characters, and measurements, of the largest question or batch that others may follow from: whoever asks next in
another process compiles it."""
MOST_WORDS = 150
"""Words of the largest question or batch of somebody else that is looked through: nobody is to wait long for what
another one asked."""
Recompile = Callable[[Context, list[str], Budget | None], "tuple[list[QueryPlan], Job[Any]] | None"]
"""From a stored question, or the questions of a batch, to what was measured; None of what it does not read."""


def remember(
    context: Context, opened: OpenJob, plans: list[QueryPlan], questions: list[str], asked: Budget | None
) -> None:
    """Note which question a stored answer belongs to; `plans` are what was measured for it."""
    from deniable.query.canonical import list_bases

    if sum(map(len, questions)) > MOST_TEXT or sum(_count_measured(plan.event) for plan in plans) > MOST_MEASURED:
        return
    record = {"key": opened.key, "questions": questions, "asked": _write_budget(asked), "by": context.path[1]}
    told = json.dumps(record).encode()
    for base in list_bases(tuple(node for plan in plans if not plan.free for node in plan.nodes)):
        name = _name_rows(opened, base)
        for place in range(len(context.plans.find((MEASURED, name)) or ()), MOST_SOURCES):
            each = f"{name}:{place}"
            if context.store.keep(MEASURED, each, each, told) == told:
                break


def _count_measured(event: Event) -> int:
    """Of how many measurements an event is composed."""
    from deniable.dp.accounting import ComposedEvent

    return sum(map(_count_measured, event.events)) if isinstance(event, ComposedEvent) else 1


def find_derived(
    context: Context,
    plan: QueryPlan,
    job: Job[Any],
    opened: OpenJob,
    recompile: Recompile,
    *,
    request: str = "",
    seconds: float | None = None,
) -> tuple[Derived, JobResult[Any]] | None:
    """A question as it follows from stored measurements; None where it has an answer of its own, or does not follow."""
    from deniable.query.canonical import list_bases

    if plan.free or not opened.key or _is_answered(context, opened, request):
        return None
    sources = [each for base in list_bases(plan.nodes) for each in _list_sources(context, opened, base, recompile)]
    if not sources:  # in most processes: what reads them is not loaded then
        return None
    from deniable.dp.samplers import SYSTEM
    from deniable.query.atoms import list_views
    from deniable.query.derive import derive
    from deniable.query.execute import Reader

    views = list_views(plan)
    reader = Reader(context.scope.attach_public(*job.public), SYSTEM, seconds, {})
    found = None if views is None else derive(plan, views, sources, reader)
    if found is None:
        return None
    first = found.sources[0]
    return found, JobResult(found.measured, opened.epoch, opened.versions, first.release, first.time, None, True)


def say_source(found: Derived) -> str:
    """What is said of a question that follows from others, and how it is measured anew."""
    several = len({each.release for each in found.sources}) > 1
    what = "what was measured for earlier questions" if several else "what was measured for an earlier question"
    return (
        f"It follows from {what}, and nothing is charged. Its error is that of those measurements. To have it measured "
        f"anew, state a larger budget than {say_budget(_find_least(found))}."
    )


def _find_least(found: Derived) -> Budget:
    """The smallest budget of what a question follows from."""
    return min(
        (each.cost for each in found.sources), key=lambda cost: cost.rho if isinstance(cost, ZCDP) else cost.epsilon
    )


def _is_answered(context: Context, opened: OpenJob, request: str) -> bool:
    """Whether its own answer is stored, or its request id was charged and may have one."""
    if context.store.find(ANSWERS, opened.key) is not None:
        return True
    if not request:
        return False
    from deniable.ledger.export import list_charges

    return bool(list_charges(context.ledger, context.path[1] or "steward", [request]))


def _name_rows(opened: OpenJob, base: str) -> str:
    """The name of some rows: all that the key of an answer says but what is measured."""
    rest = json.dumps([json.loads(opened.key)[1:], base])
    return hashlib.sha256(rest.encode()).hexdigest()[:32]


class _Known(NamedTuple):
    """A stored question, its words, and what was measured for it, once that was read."""

    record: Mapping[str, Any]
    words: int
    sources: list[Source] | None = None

    def is_looked_through(self, who: str) -> bool:
        """Whether who asks now looks through it: it is short, or of the same analyst."""
        return self.words <= MOST_WORDS or self.record.get("by") == who


def _list_sources(context: Context, opened: OpenJob, base: str, recompile: Recompile) -> list[Source]:
    """What was measured of some rows, in the order in which it was stored."""
    rows, who = _name_rows(opened, base), context.path[1]
    before: tuple[_Known, ...] = context.plans.find((MEASURED, rows)) or ()
    read, found = list(before), list[Any]()
    for place in range(MOST_SOURCES):
        if place == len(read):
            told = context.store.find(MEASURED, f"{rows}:{place}")
            if told is None:
                break
            record = json.loads(told)
            read.append(_Known(record, len(re.findall(r"\w+|[^\w\s]", " ".join(record["questions"])))))
        known = read[place]
        if known.is_looked_through(who):
            if known.sources is None:
                read[place] = known = known._replace(sources=_read_source(context, known.record, base, recompile))
            found += known.sources or ()
    if read != list(before):
        context.plans.put((MEASURED, rows), tuple(read))
    return found


def _read_source(context: Context, record: Mapping[str, Any], base: str, recompile: Recompile) -> list[Source] | None:
    """The grouping sets of a stored question over some rows; none where it cannot be read as it was measured."""
    from deniable.query.atoms import list_views
    from deniable.query.derive import Stored, is_whole

    try:
        made = recompile(context.speak_for(None), record["questions"], _read_budget(record["asked"]))
    except DeniableError:  # the asker of that time could name more
        return []
    if made is None:
        return None
    plans, job = made
    stored = find_answer(context.store, record["key"])
    if stored is None or job.canonical != json.loads(record["key"])[0] or job.restore is None:
        return []
    restored = job.restore(stored.measured)
    found = list[Any]()
    for plan, measured in zip(plans, restored if isinstance(restored, tuple) else (restored,), strict=True):
        if plan.free or not is_whole(plan, measured):
            continue
        source = Stored(plan, measured, stored.release, stored.time, plan.cost)
        found += [(view, source) for view in list_views(plan) or [] if view.base == base]
    return found


def _write_budget(asked: Budget | None) -> dict[str, str] | None:
    if asked is None:
        return None
    name, amount = ("rho", asked.rho) if isinstance(asked, ZCDP) else ("epsilon", asked.epsilon)
    return {name: str(amount), "delta": str(asked.delta)}


def _read_budget(told: dict[str, str] | None) -> Budget | None:
    return None if told is None else budget(told.get("epsilon"), told["delta"], told.get("rho"))
