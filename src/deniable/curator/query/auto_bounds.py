"""Automatic bounds: found at a stated cost, as a question of their own or inside one that says AUTO_CLAMP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deniable.curator.query.sql import QueryAnswer
from deniable.errors import QueryRefused
from deniable.policy.budget import Amount, Budget, budget, split

if TYPE_CHECKING:
    from deniable.curator.curator import Curator
    from deniable.dp.accounting import Event
    from deniable.governance.grants import Asker
    from deniable.policy.schema import Column, TableSchema
    from deniable.query.plan import QueryPlan
    from deniable.query.sql.auto_clamp import AutoClamp
    from deniable.query.techniques.auto_bounds import FoundBounds

CONFIDENCE = 0.99


def find_bounds(
    curator: Curator,
    table: str,
    column: str,
    epsilon: Amount,
    *,
    delta: Amount = 0,
    confidence: float = CONFIDENCE,
    who: Asker | None = None,
) -> QueryAnswer:
    """One row: lower, upper, and whether anything rose above the noise."""
    import pyarrow as pa

    from deniable.curator.charge import admit, build_release, job_of, run_job

    schema, known = _column(admit(curator, who), column, table)
    plan = _plan(schema, known, budget(epsilon, delta))
    job = job_of(plan)
    settled = run_job(curator, job, who=who)
    found = _read(plan, settled, known.type == "integer", confidence)
    row = {"lower": float(found.lower), "upper": float(found.upper), "found": found.found}
    release = build_release(curator, job, settled, pa.Table.from_pylist([row]), who, **_describe_bounds(found))
    return QueryAnswer(release, settled.repeated, settled.receipt)


def _plan(table: TableSchema, column: Column, asked: Budget) -> QueryPlan:
    from deniable.query.compile import compile_query
    from deniable.query.techniques.auto_bounds import write_bounds_query

    return compile_query(write_bounds_query(table, column), (table,), asked)


def _read(plan: QueryPlan, settled: Any, whole: bool, confidence: float) -> FoundBounds:
    from deniable.query.techniques.auto_bounds import read_bounds

    return read_bounds(plan, settled.stored.measured, whole, confidence)


def _describe_bounds(found: FoundBounds) -> dict[str, Any]:
    note = f"Bins with fewer than {found.threshold} units (with noise) were taken for empty; values there are clamped."
    return {"threshold": found.threshold, "notes": [note]}


def _column(tables: tuple[TableSchema, ...], column: str, table: str) -> tuple[TableSchema, Column]:
    """The private table and the column meant."""
    from deniable.errors import nearest
    from deniable.query.techniques.auto_bounds import find_numeric_column

    named = [each for each in tables if each.name.lower() == table.lower()]
    if not named:
        raise QueryRefused(
            f"there is no table '{table}'", remedy=nearest(table, [t.name for t in tables]) or "Use its own name"
        )
    return named[0], find_numeric_column(named[0], column)


Stages = list[tuple["QueryPlan", "list[AutoClamp]"]]
"""The plans that find bounds, one for each expression over the same rows, with the calls that they are for."""


def _stages(
    curator: Curator, sql: str, calls: tuple[AutoClamp, ...], asked: Budget | None, who: Asker | None
) -> tuple[Stages, Budget]:
    """The first stages, and what is left of the budget for the question."""
    from fractions import Fraction

    from deniable.curator.query.sql import compile_sql
    from deniable.query.techniques.auto_bounds import SHARE, write_bounds_query_over

    if asked is None:
        raise QueryRefused("AUTO_CLAMP shares a budget stated beside the question", remedy="State epsilon beside it")
    compile_sql(
        curator, _placeholder(sql, calls), asked, who
    )  # what is wrong with the question is told in its own words
    meant: dict[tuple[str, ...], list[AutoClamp]] = {}
    for call in calls:
        meant.setdefault(call.meant, []).append(call)
    parts = split(asked, (*(SHARE / len(meant) for _ in meant), Fraction(1) - SHARE))
    stages = []
    for mine, part in zip(meant.values(), parts, strict=False):
        plan = compile_sql(curator, write_bounds_query_over(*mine[0].meant), part, who)
        if plan.free:
            raise QueryRefused("AUTO_CLAMP is over public rows, whose bounds need no privacy")
        stages.append((plan, mine))
    return stages, parts[-1]


def query(
    curator: Curator, sql: str, calls: tuple[AutoClamp, ...], asked: Budget | None, who: Asker | None, **rest: Any
) -> QueryAnswer:
    """Answer a question with AUTO_CLAMP: bounds first, for a tenth of its budget, then the question with them."""
    from deniable.curator.charge import job_of, run_job
    from deniable.curator.query.sql import query as ask
    from deniable.query.sql.auto_clamp import insert_bounds
    from deniable.query.techniques.auto_bounds import round_bounds

    stages, left = _stages(curator, sql, calls, asked, who)
    _refuse_unaffordable(curator, _placeholder(sql, calls), stages, left, who)
    bounds: dict[AutoClamp, tuple[str, str]] = {}
    for plan, mine in stages:
        found = _read(plan, run_job(curator, job_of(plan), who=who), False, CONFIDENCE)
        bounds |= dict.fromkeys(mine, round_bounds(found, plan).written)
    return ask(curator, insert_bounds(sql, bounds), left, who=who, **rest)


def _placeholder(sql: str, calls: tuple[AutoClamp, ...]) -> str:
    """The question with bounds that are still to be found."""
    from deniable.query.sql.auto_clamp import insert_bounds

    return insert_bounds(sql, dict.fromkeys(calls, ("0", "1")))


def _refuse_unaffordable(curator: Curator, sql: str, stages: Stages, left: Budget, who: Asker | None) -> None:
    """Refuse before the first stage what the last could not pay: prices do not depend on the bounds found."""
    from deniable.curator.charge import charge_job, job_of
    from deniable.curator.query.sql import compile_sql

    final = compile_sql(curator, sql, left, who)
    whole = _whole(stages, final)
    fits = _fits(curator, whole, who)
    if fits is not None and fits < 1:
        from dataclasses import replace

        charge_job(curator, replace(job_of(final), event=whole), who)


def _whole(stages: Stages, final: QueryPlan) -> Event:
    """All that a question with its first stages costs."""
    from deniable.dp.accounting import ComposedEvent

    return ComposedEvent((*(plan.event for plan, _ in stages), final.event))


def _fits(curator: Curator, whole: Event, who: Asker | None) -> int | None:
    return curator.ledger.fits(whole, *((who.purpose, who.analyst) if who else ("", "")))


def explain(
    curator: Curator, sql: str, calls: tuple[AutoClamp, ...], asked: Budget | None, who: Asker | None
) -> dict[str, Any]:
    """Both stages without data: what finding bounds costs, and the question with bounds that are still to be found."""
    from deniable.curator.query.sql import compile_sql
    from deniable.curator.query.sql import explain as told
    from deniable.query.explain import describe_budget
    from deniable.query.explain import explain as explained

    stages, left = _stages(curator, sql, calls, asked, who)
    placed = _placeholder(sql, calls)
    final = told(curator, placed, left, who=who)
    more = _fits(curator, _whole(stages, compile_sql(curator, placed, left, who)), who)
    assert asked is not None
    note = "Bounds are found first, for a tenth of the budget; errors of sums are shown for bounds 0 and 1."
    first = [explained(plan) | {"finds": f"bounds of {mine[0].argument}"} for plan, mine in stages]
    rest = {"cost": describe_budget(asked), "more_like_this": more, "notes": [note, *final["notes"]]}
    return final | {"bounds": first} | rest
