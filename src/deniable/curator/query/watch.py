"""Watches: charged once, asked as often as one likes, over when the count has passed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from deniable.curator.charge import Job, after_the_charge, attach_tables, charge, job_of
from deniable.curator.context import Context
from deniable.curator.query.sql import check_confidence, describe_cost, refuse_elsewhere
from deniable.errors import ParameterError
from deniable.policy.budget import Amount, budget

if TYPE_CHECKING:
    from deniable.ledger import Receipt
    from deniable.query.execute import NoisyResults
    from deniable.query.explain import WatchExplanation
    from deniable.query.plan import QueryPlan
    from deniable.query.techniques.watch import Watch, WatchPlan


class LiveWatch:
    """A watch over the asker's tables: `check()` reads them as they are now."""

    __slots__ = ("_context", "_job", "_watch", "receipt")

    def __init__(self, context: Context, watch: Watch, job: Job[NoisyResults], receipt: Receipt) -> None:
        self._context = context
        self._watch = watch
        self._job = job
        self.receipt = receipt

    @property
    def passed(self) -> bool:
        """Whether the watch is over."""
        return self._watch.passed

    @property
    def error(self) -> int:
        """How far from the threshold a count may be on the wrong side, but with probability 0.05 for each check."""
        return self._watch.plan.mechanism.accuracy(0.05)

    def check(self) -> bool:
        """Whether the count passes the threshold now; no further charge, until it has passed."""
        from deniable.query.techniques.watch import read_count

        if self.passed:
            raise ParameterError(
                "this watch is over: the count has passed", remedy="Start a new watch, at a new charge"
            )
        self._context.admit()
        with after_the_charge(self._context):
            engine = self._context.scope.attach(*self._job.private, *self._job.public)
            return self._watch.compare(read_count(self._watch.plan, engine))

    def __repr__(self) -> str:
        return f"Live{self._watch!r}"


def watch(context: Context, sql: str, threshold: int, epsilon: Amount) -> LiveWatch:
    """Charge a watch and hand it out."""
    from deniable.query.techniques.watch import Watch

    base, plan = _plan(context, sql, threshold, epsilon)
    asked = f"watch until {threshold}: {sql}"
    event = plan.mechanism.event
    job = replace(job_of(base), text=asked, event=event, cost=plan.cost, canonical="", details={"asked": asked})
    attach_tables(context, job, context.epoch)
    return LiveWatch(context, Watch(plan), job, charge(context, job))


def explain(
    context: Context, sql: str, threshold: int, epsilon: Amount, *, confidence: float = 0.95
) -> WatchExplanation:
    """What a watch would compare and cost; no row is read and nothing is charged."""
    from deniable.query.explain import WatchExplanation
    from deniable.query.techniques.watch import describe_watch

    check_confidence(confidence)
    base, plan = _plan(context, sql, threshold, epsilon)
    assert base.unit is not None
    return WatchExplanation(**describe_watch(plan, confidence), **describe_cost(context, plan.cost, base.unit))


def _plan(context: Context, sql: str, threshold: int, epsilon: Amount) -> tuple[QueryPlan, WatchPlan]:
    from deniable.query.compile import compile_query
    from deniable.query.techniques.watch import plan_watch

    asked = budget(epsilon)
    base = refuse_elsewhere(context, compile_query(sql, context.admit_tables(), asked))
    return base, plan_watch(base, threshold, asked)
