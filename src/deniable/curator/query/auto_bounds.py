"""Automatic bounds: found at a stated cost, as a question of their own or inside one that says AUTO_CLAMP.

`query` and `explain` are those of `sql`, and see to AUTO_CLAMP first.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deniable.curator.charge import (
    after_the_charge,
    charge,
    find_answer,
    guarantee_of,
    job_of,
    open_job,
    run_job,
)
from deniable.curator.context import Context
from deniable.curator.query import sql as plain
from deniable.curator.query.sql import QueryAnswer, answer_job, compile_sql
from deniable.errors import QueryRefused, nearest
from deniable.policy.budget import Amount, Budget, budget, split

if TYPE_CHECKING:
    from collections.abc import Mapping

    from deniable.dp.accounting import Event
    from deniable.policy.schema import Column, TableSchema
    from deniable.query.execute import NoisyResults
    from deniable.query.explain import QuestionExplanation
    from deniable.query.plan import QueryPlan
    from deniable.query.sql.auto_clamp import AutoClamp, FoundBounds
    from deniable.release import Release

CONFIDENCE = 0.99
NOTE = "Bounds are found first, for a tenth of the budget; errors of sums are shown for bounds 0 and 1."

Stages = list[tuple["QueryPlan", "list[AutoClamp]"]]
"""The plans that find bounds, one for each expression over the same rows, with the calls that they are for."""


def find_bounds(
    context: Context,
    table: str,
    column: str,
    epsilon: Amount,
    *,
    delta: Amount = 0,
    confidence: float = CONFIDENCE,
) -> QueryAnswer:
    """One row: lower, upper, and whether anything rose above the noise."""
    import pyarrow as pa

    plain.check_confidence(confidence)
    if not isinstance(table, str) or not isinstance(column, str):
        raise QueryRefused("the table and the column are given by their names", expected="Such as 'visits', 'charge'")
    schema, known = _find_column(context.admit_tables(), column, table)
    plan = _plan(context, schema, known, budget(epsilon, delta))
    job = job_of(plan)
    result = run_job(context, job)
    with after_the_charge():
        found = _read(plan, result.measured, known.type == "integer", confidence)
    row = {"lower": float(found.lower), "upper": float(found.upper), "found": found.found}
    return answer_job(context, job, result, pa.Table.from_pylist([row]), **_describe_bounds(found))


def query(context: Context, sql: str, asked: Budget | None, **rest: Any) -> QueryAnswer:
    """Answer a question; bounds that it leaves to AUTO_CLAMP are found first, for a tenth of its budget."""
    from deniable.query.sql.auto_clamp import find_auto_clamps, insert_bounds, round_bounds

    calls = find_auto_clamps(sql) if _may_call(sql) else ()
    if not calls:
        return plain.query(context, sql, asked, **rest)
    rest.pop("bias_share", None)
    plain.check_confidence(rest.get("confidence", CONFIDENCE))
    stages, left = _plan_stages(context, sql, calls, asked)
    unpaid = [(plan, mine) for plan, mine in stages if _find_stored(context, plan) is None]
    if unpaid:  # where all bounds are known, the question itself is repeated, or refused by its own price
        _refuse_unaffordable(context, _insert_placeholders(sql, calls), unpaid, left)
    bounds: dict[AutoClamp, FoundBounds] = {}
    for plan, mine in stages:
        result = run_job(context, job_of(plan), stop=rest.get("stop"))
        with after_the_charge():
            bounds |= dict.fromkeys(mine, round_bounds(_read(plan, result.measured, False, CONFIDENCE), plan))
    written = {call: found.written for call, found in bounds.items()}
    answer = plain.query(context, insert_bounds(sql, written), left, **rest)
    assert asked is not None
    return replace(answer, release=_state_whole(answer.release, bounds, stages, asked))


def _state_whole(release: Release, bounds: Mapping[AutoClamp, FoundBounds], stages: Stages, asked: Budget) -> Release:
    """The release with what all stages cost together, and with the bounds that were found."""
    from deniable.query.explain import describe_budget
    from deniable.release import Technique

    first = {call.meant: (call, found) for call, found in bounds.items()}.values()
    told = [
        {"of": call.argument, "lower": float(found.lower), "upper": float(found.upper),
         "threshold": found.threshold, "found": found.found} for call, found in first
    ]  # fmt: skip
    said: Any = release.details["notes"]
    notes = [*(_tell_bounds(call, found) for call, found in first), *said]
    details = {**release.details, "cost": describe_budget(asked), "bounds": told, "notes": notes}
    guarantee = guarantee_of(Technique.DP_QUERY, stages[0][0].unit, asked)
    return replace(release, guarantee=guarantee, details=details)


def _tell_bounds(call: AutoClamp, found: FoundBounds) -> str:
    low, high = found.written
    if found.found:
        return f"AUTO_CLAMP({call.argument}): values were clamped to the bounds {low} and {high}, found with noise."
    return (
        f"AUTO_CLAMP({call.argument}): nothing rose above the noise, so values were clamped to {low} and {high}, which "
        "says nothing of them. Clamp by hand, or ask for more epsilon or more rows."
    )


def explain(context: Context, sql: str, asked: Budget | None) -> QuestionExplanation:
    """What a question would measure and cost, without data; with AUTO_CLAMP, both stages."""
    from deniable.query.explain import BoundsExplanation, StagedExplanation, describe_budget
    from deniable.query.explain import explain as explain_plan
    from deniable.query.sql.auto_clamp import find_auto_clamps

    calls = find_auto_clamps(sql) if _may_call(sql) else ()
    if not calls:
        return plain.explain(context, sql, asked)
    stages, left = _plan_stages(context, sql, calls, asked)
    placed = _insert_placeholders(sql, calls)
    final = plain.explain(context, placed, left)
    event = find_event(context, sql, asked)
    assert asked is not None
    assert event is not None
    more = context.ledger.fits(event, *context.path)
    first = [BoundsExplanation(**explain_plan(plan), finds=f"bounds of {mine[0].argument}") for plan, mine in stages]
    rest = {"cost": describe_budget(asked), "more_like_this": more, "notes": [NOTE, *final.notes]}
    return StagedExplanation(**(final | rest), bounds=first)


def find_event(context: Context, sql: str, asked: Budget | None) -> Event | None:
    """What a question would be charged, all its stages together; None where it is free."""
    from deniable.query.sql.auto_clamp import find_auto_clamps

    calls = find_auto_clamps(sql) if _may_call(sql) else ()
    if not calls:
        plan = compile_sql(context, sql, asked)
        return None if plan.free else plan.event
    stages, left = _plan_stages(context, sql, calls, asked)
    return _compose(stages, compile_sql(context, _insert_placeholders(sql, calls), left))


def find_charge(context: Context, sql: str, asked: Budget | None) -> Event | None:
    """What a question would be charged if it were asked now; None where it is free, or its answer is stored."""
    from deniable.query.sql.auto_clamp import find_auto_clamps, insert_bounds, round_bounds

    calls, left = find_auto_clamps(sql) if _may_call(sql) else (), asked
    if calls:
        stages, left = _plan_stages(context, sql, calls, asked)
        found = [_find_stored(context, plan) for plan, _ in stages]
        unpaid = [stage for stage, measured in zip(stages, found, strict=True) if measured is None]
        if unpaid:
            return _compose(unpaid, compile_sql(context, _insert_placeholders(sql, calls), left))
        bounds: dict[AutoClamp, tuple[str, str]] = {}
        for (plan, mine), measured in zip(stages, found, strict=True):
            assert measured is not None
            bounds |= dict.fromkeys(mine, round_bounds(_read(plan, measured, False, CONFIDENCE), plan).written)
        sql = insert_bounds(sql, bounds)
    final = compile_sql(context, sql, left)
    return None if final.free or _find_stored(context, final) is not None else final.event


def _find_stored(context: Context, plan: QueryPlan) -> NoisyResults | None:
    """What was measured for an equal question in this epoch, which is repeated free of charge; None if nothing was."""
    job = job_of(plan)
    opened = open_job(context, job)
    stored = find_answer(context.store, opened.key) if opened.key else None
    if stored is None:
        return None
    measured: NoisyResults = stored.measured if job.restore is None else job.restore(stored.measured)
    return measured


def _may_call(sql: str) -> bool:
    """Whether the name stands anywhere in a statement, so that it is worth reading."""
    return isinstance(sql, str) and "AUTO_CLAMP" in sql.upper()


def _plan(context: Context, table: TableSchema, column: Column, asked: Budget) -> QueryPlan:
    from deniable.query.compile import compile_query
    from deniable.query.sql.auto_clamp import write_bounds_query

    return compile_query(write_bounds_query(table, column), (table,), asked, pure=plain.is_pure(context))


def _read(plan: QueryPlan, measured: NoisyResults, whole: bool, confidence: float) -> FoundBounds:
    from deniable.query.sql.auto_clamp import read_bounds

    return read_bounds(plan, measured, whole, confidence)


def _describe_bounds(found: FoundBounds) -> dict[str, Any]:
    note = f"Bins with fewer than {found.threshold} units (with noise) were taken for empty; values there are clamped."
    return {"threshold": found.threshold, "notes": [note]}


def _find_column(tables: tuple[TableSchema, ...], column: str, table: str) -> tuple[TableSchema, Column]:
    """The private table and the column meant."""
    from deniable.query.sql.auto_clamp import find_numeric_column

    named = [each for each in tables if each.name.lower() == table.lower()]
    if not named:
        raise QueryRefused(
            f"there is no table '{table}'", remedy=nearest(table, [t.name for t in tables]) or "Use its own name"
        )
    return named[0], find_numeric_column(named[0], column)


def _plan_stages(
    context: Context, sql: str, calls: tuple[AutoClamp, ...], asked: Budget | None
) -> tuple[Stages, Budget]:
    """The first stages, and what is left of the budget for the question."""
    from deniable.query.sql.auto_clamp import SHARE, write_bounds_query_over

    if asked is None:
        raise QueryRefused("AUTO_CLAMP shares a budget stated beside the question", remedy="State epsilon beside it")
    # What is wrong with the question is told in its own words.
    compile_sql(context, _insert_placeholders(sql, calls), asked)
    meant: dict[tuple[str, ...], list[AutoClamp]] = {}
    for call in calls:
        meant.setdefault(call.meant, []).append(call)
    parts = split(asked, (*(SHARE / len(meant) for _ in meant), Fraction(1) - SHARE))
    stages = []
    for mine, part in zip(meant.values(), parts, strict=False):
        plan = compile_sql(context, write_bounds_query_over(*mine[0].meant), part)
        if plan.free:
            raise QueryRefused("AUTO_CLAMP is over public rows, whose bounds need no privacy")
        stages.append((plan, mine))
    return stages, parts[-1]


def _insert_placeholders(sql: str, calls: tuple[AutoClamp, ...]) -> str:
    """The question with bounds that are still to be found."""
    from deniable.query.sql.auto_clamp import insert_bounds

    return insert_bounds(sql, dict.fromkeys(calls, ("0", "1")))


def _refuse_unaffordable(context: Context, sql: str, stages: Stages, left: Budget) -> None:
    """Refuse before the first stage what the last could not pay: prices do not depend on the bounds found."""
    final = compile_sql(context, sql, left)
    whole = _compose(stages, final)
    fits = context.ledger.fits(whole, *context.path)
    if fits is not None and fits < 1:
        charge(context, replace(job_of(final), event=whole))


def _compose(stages: Stages, final: QueryPlan) -> Event:
    """All that a question with its first stages costs."""
    from deniable.dp.accounting import ComposedEvent

    return ComposedEvent((*(plan.event for plan, _ in stages), final.event))
