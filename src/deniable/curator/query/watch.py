"""Watches: charged once, asked as often as one likes, over when the count has passed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deniable.policy.budget import Amount, budget

if TYPE_CHECKING:
    from deniable.curator.curator import Curator
    from deniable.governance.grants import Asker
    from deniable.ledger import Receipt
    from deniable.query.plan import QueryPlan
    from deniable.query.techniques.watch import Watch, WatchPlan


class LiveWatch:
    """A watch over a curator's tables: `check()` reads them as they are now."""

    __slots__ = ("_curator", "_tables", "_watch", "_who", "receipt")

    def __init__(
        self, curator: Curator, watch: Watch, tables: tuple[str, ...], who: Asker | None, receipt: Receipt
    ) -> None:
        self._curator = curator
        self._watch = watch
        self._tables = tables
        self._who = who
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
        from deniable.curator.charge import after_the_charge
        from deniable.errors import ParameterError
        from deniable.query.techniques.watch import read_count

        if self.passed:
            raise ParameterError(
                "this watch is over: the count has passed", remedy="Start a new watch, at a new charge"
            )
        self._curator.scopes.refresh(self._curator.governor.withdrawals())
        with after_the_charge():
            engine = self._curator.scopes.tables(self._who).attach(*self._tables)
            return self._watch.compare(read_count(self._watch.plan, engine))

    def __repr__(self) -> str:
        return f"Live{self._watch!r}"


def _plan(
    curator: Curator, sql: str, threshold: int, epsilon: Amount, who: Asker | None
) -> tuple[QueryPlan, WatchPlan]:
    from deniable.curator.charge import admit
    from deniable.query.compile import compile_query
    from deniable.query.techniques.watch import plan_watch

    asked = budget(epsilon)
    base = compile_query(sql, admit(curator, who), asked)
    return base, plan_watch(base, threshold, asked)


def explain(
    curator: Curator,
    sql: str,
    threshold: int,
    epsilon: Amount,
    *,
    confidence: float = 0.95,
    who: Asker | None = None,
) -> dict[str, Any]:
    """What a watch would compare and cost; no row is read and nothing is charged."""
    from deniable.curator.charge import describe_cost
    from deniable.query.techniques.watch import describe_watch

    base, plan = _plan(curator, sql, threshold, epsilon, who)
    assert base.unit is not None
    return describe_cost(curator, plan.cost, base.unit, who) | describe_watch(plan, confidence)


def watch(curator: Curator, sql: str, threshold: int, epsilon: Amount, *, who: Asker | None = None) -> LiveWatch:
    """Charge a watch and hand it out."""
    from deniable.curator.charge import Job, all_tables, charge_job, private_tables
    from deniable.query.techniques.watch import Watch

    base, plan = _plan(curator, sql, threshold, epsilon, who)
    assert base.unit is not None
    described = f"watch until {threshold}: {sql}"
    job = Job(described, base.canonical, plan.mechanism.event, plan.cost, base.unit, all_tables(base),
              private_tables(base), lambda _engine: {})  # fmt: skip
    receipt = charge_job(curator, job, who)
    return LiveWatch(curator, Watch(plan), job.tables, who, receipt)
