"""The k largest groups: chosen among public keys, or found by a threshold where keys are private."""

# ruff: noqa: S608  (the text made here is a question for our own compiler, which refuses what it does not know)

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from deniable.curator.query.sql import QueryAnswer
from deniable.policy.budget import Amount, Budget, budget

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.curator import Curator
    from deniable.governance.grants import Asker
    from deniable.query.execute import Noisy
    from deniable.query.plan import QueryPlan
    from deniable.query.techniques.top_k import TopPlan

PRIVATE_NOTE = "The keys are private: groups were found by a threshold, then the largest kept."


def budget_of(epsilon: Amount, delta: Amount) -> Budget:
    """The budget of a ranking."""
    return budget(epsilon, delta)


def _base(
    curator: Curator, source: str, keys: Sequence[str], where: str, asked: Budget, who: Asker | None
) -> tuple[str, QueryPlan]:
    """The question whose groups are ranked: units by key, or rows where a row is the unit."""
    from deniable.curator.charge import admit
    from deniable.query.compile import compile_query

    tables = admit(curator, who)
    listed, condition = ", ".join(keys), f" WHERE {where}" if where else ""
    text = f"SELECT {listed}, COUNT(*) AS units FROM {source}{condition} GROUP BY {listed}"
    plan = compile_query(text, tables, asked)
    if plan.unit is not None and not plan.unit.is_row:
        text = text.replace("COUNT(*)", f'COUNT(DISTINCT "{plan.unit.column}")', 1)
        plan = compile_query(text, tables, asked)
    return text, plan


def top(
    curator: Curator,
    source: str,
    keys: Sequence[str],
    k: int,
    asked: Budget,
    *,
    where: str = "",
    confidence: float = 0.95,
    who: Asker | None = None,
) -> QueryAnswer:
    """The k largest groups with noisy counts, in the order of their choice."""
    from deniable.curator.charge import build_release, run_job
    from deniable.query.techniques.top_k import describe_top, plan_top

    text, base = _base(curator, source, keys, where, asked, who)
    if base.nodes[0].steps[0].private_keys:
        return curator.query(
            f"{text} ORDER BY units DESC LIMIT {int(k)}", **_budget_arguments(asked), confidence=confidence, who=who
        )
    plan = plan_top(base, k, asked)
    job = _job(text, plan)
    settled = run_job(curator, job, who=who)
    rows = _rows(plan, settled.stored.measured["top"][0], keys, confidence)
    notes = ["Groups stand in the order of their choice, which is noisy too."]
    release = build_release(
        curator, job, settled, rows, who, notes=notes, top=describe_top(plan, confidence), confidence=confidence
    )
    return QueryAnswer(release, settled.repeated, settled.receipt)


def _budget_arguments(asked: Budget) -> dict[str, Any]:
    return {"epsilon": getattr(asked, "epsilon", None), "delta": asked.delta}


def _job(text: str, plan: TopPlan) -> Any:
    from deniable.curator.charge import Job, all_tables, private_tables
    from deniable.query.techniques.top_k import run_top

    assert plan.base.unit is not None
    described = f"top {plan.count} of: {text}"
    return Job(
        described, plan.canonical, plan.event, plan.cost, plan.base.unit, all_tables(plan.base),
        private_tables(plan.base), lambda engine: {"top": (run_top(plan, engine),)},
    )  # fmt: skip


def _rows(plan: TopPlan, noisy: Noisy, keys: Sequence[str], confidence: float) -> pa.Table:
    import pyarrow as pa

    reach = plan.counting.accuracy(1 - confidence)
    columns = {key.rsplit(".", 1)[-1].strip('"'): noisy.keys.column(i) for i, key in enumerate(keys)}
    counts = noisy.values[0]
    return pa.table(columns | {"units": counts, "units_low": counts - reach, "units_high": counts + reach})


def explain(
    curator: Curator,
    source: str,
    keys: Sequence[str],
    k: int,
    asked: Budget,
    *,
    where: str = "",
    who: Asker | None = None,
) -> dict[str, Any]:
    """What would be chosen and counted, and its errors, without touching data."""
    from deniable.query.explain import describe_budget
    from deniable.query.explain import explain as explained
    from deniable.query.techniques.top_k import describe_top, plan_top

    _, base = _base(curator, source, keys, where, asked, who)
    if base.nodes[0].steps[0].private_keys:
        return explained(base) | {"keys": "private", "notes": [PRIVATE_NOTE]}
    plan = plan_top(base, k, asked)
    return {"cost": describe_budget(plan.cost), "unit": str(base.unit), "keys": "public"} | describe_top(plan, 0.95)
