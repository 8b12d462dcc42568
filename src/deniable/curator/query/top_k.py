"""The k largest groups: chosen among public keys, or found by a threshold where keys are private."""

# ruff: noqa: S608  (the text made here is a question for our own compiler, which refuses what it does not know)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from deniable.curator.charge import Job, after_the_charge, job_of, run_job
from deniable.curator.context import Context
from deniable.curator.query.sql import (
    QueryAnswer,
    answer_job,
    bare_name,
    check_columns,
    check_confidence,
    is_pure,
    query,
    refuse_elsewhere,
)
from deniable.errors import ParameterError
from deniable.policy.budget import Budget

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.query.execute import Noisy, NoisyResults
    from deniable.query.explain import PrivateTopExplanation, TopExplanation
    from deniable.query.plan import QueryPlan
    from deniable.query.techniques.top_k import TopPlan

KEYS = "keys such as ['ward']"
PRIVATE_NOTE = "The keys are private: groups were found by a threshold, then the largest kept."
ORDER_NOTE = "Groups stand in the order of their choice, which is noisy too."


def top(
    context: Context,
    source: str,
    keys: Sequence[str],
    k: int,
    asked: Budget,
    *,
    where: str = "",
    confidence: float = 0.95,
) -> QueryAnswer:
    """The k largest groups with noisy counts, in the order of their choice."""
    from deniable.query.techniques.top_k import check_count, describe_top, plan_top

    check_confidence(confidence)
    check_count(k)
    text, base = _compile_base(context, source, keys, where, asked)
    if base.nodes[0].steps[0].private_keys:
        return query(context, f"{text} ORDER BY units DESC LIMIT {k}", asked, confidence=confidence)
    plan = plan_top(base, k, asked, pure=is_pure(context))
    job = _job_of(text, plan)
    result = run_job(context, job)
    with after_the_charge():
        rows = _rows(plan, result.measured["top"][0], keys, confidence)
    details = {"notes": [ORDER_NOTE], "top": describe_top(plan, confidence).to_dict(), "confidence": confidence}
    return answer_job(context, job, result, rows, **details)


def explain(
    context: Context, source: str, keys: Sequence[str], k: int, asked: Budget, *, where: str = ""
) -> TopExplanation | PrivateTopExplanation:
    """What would be chosen and counted, and its errors, without touching data."""
    from deniable.query.explain import PrivateTopExplanation, TopExplanation, describe_budget
    from deniable.query.explain import explain as explain_plan
    from deniable.query.techniques.top_k import check_count, describe_top, plan_top

    check_count(k)
    _, base = _compile_base(context, source, keys, where, asked)
    if base.nodes[0].steps[0].private_keys:
        return PrivateTopExplanation(**(explain_plan(base) | {"notes": [PRIVATE_NOTE]}), keyed_by="private")
    plan = plan_top(base, k, asked, pure=is_pure(context))
    told = describe_top(plan, 0.95)
    return TopExplanation(**told, cost=describe_budget(plan.cost), unit=str(base.unit), keyed_by="public")


def _compile_base(
    context: Context, source: str, keys: Sequence[str], where: str, asked: Budget
) -> tuple[str, QueryPlan]:
    """The question whose groups are ranked: units by key, or rows where a row is the unit."""
    from deniable.query.compile import compile_query

    tables = context.admit_tables()
    if not check_columns(keys, KEYS):
        raise ParameterError("no column is named whose largest groups are wanted", expected=KEYS)
    listed, condition = ", ".join(keys), f" WHERE {where}" if where else ""
    text = f"SELECT {listed}, COUNT(*) AS units FROM {source}{condition} GROUP BY {listed}"
    plan = compile_query(text, tables, asked, pure=is_pure(context))
    if plan.free:
        raise ParameterError("the largest groups of a public table need no privacy", remedy="Ask it as a query")
    if plan.unit is not None and not plan.unit.is_row:
        text = text.replace("COUNT(*)", f'COUNT(DISTINCT "{plan.unit.column}")', 1)
        plan = compile_query(text, tables, asked, pure=is_pure(context))
    return text, refuse_elsewhere(context, plan)


def _job_of(text: str, plan: TopPlan) -> Job[NoisyResults]:
    from deniable.query.techniques.top_k import run_top

    asked = f"top {plan.count} of: {text}"
    return replace(
        job_of(plan.base), text=asked, event=plan.event, cost=plan.cost, canonical=plan.canonical,
        measure=lambda engine: {"top": (run_top(plan, engine),)}, restore=None, inside=None,
        details={"asked": asked},
    )  # fmt: skip


def _rows(plan: TopPlan, noisy: Noisy, keys: Sequence[str], confidence: float) -> pa.Table:
    import pyarrow as pa

    reach = plan.counting.accuracy(1 - confidence)
    columns = {bare_name(key): noisy.keys.column(i) for i, key in enumerate(keys)}
    counts = noisy.values[0]
    return pa.table(columns | {"units": counts, "units_low": counts - reach, "units_high": counts + reach})
