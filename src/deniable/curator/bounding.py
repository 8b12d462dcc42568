"""Automatic bounds: found at a stated cost, as a question of their own or inside one that says AUTO_CLAMP."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from deniable.curator.asking import QueryAnswer
from deniable.errors import QueryRefused
from deniable.policy.budget import Amount, Budget, budget, split

if TYPE_CHECKING:
    from deniable.curator.hall import Curator
    from deniable.dp.accounting import Event
    from deniable.governance.grants import Asker
    from deniable.policy.schema import Column, TableSchema
    from deniable.query.auto_bounds import FoundBounds
    from deniable.query.plan import QueryPlan
    from deniable.query.sql.auto_clamp import AutoClamp

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

    from deniable.curator.settling import admitted, job_of, released, settle

    schema, known = _column(admitted(curator, who), column, table)
    plan = _plan(schema, known, budget(epsilon, delta))
    job = job_of(plan)
    settled = settle(curator, job, who=who)
    found = _read(plan, settled, known.type == "integer", confidence)
    row = {"lower": float(found.lower), "upper": float(found.upper), "found": found.found}
    release = released(curator, job, settled, pa.Table.from_pylist([row]), who, **_told(found))
    return QueryAnswer(release, settled.repeated, settled.receipt)


def _plan(table: TableSchema, column: Column, asked: Budget) -> QueryPlan:
    from deniable.query.auto_bounds import bounds_question
    from deniable.query.compile import compile_query

    return compile_query(bounds_question(table, column), (table,), asked)


def _read(plan: QueryPlan, settled: Any, whole: bool, confidence: float) -> FoundBounds:
    from deniable.query.auto_bounds import bounds_from

    return bounds_from(plan, settled.stored.measured, whole, confidence)


def _told(found: FoundBounds) -> dict[str, Any]:
    note = f"Bins with fewer than {found.threshold} units (with noise) were taken for empty; values there are clamped."
    return {"threshold": found.threshold, "notes": [note]}


def _column(tables: tuple[TableSchema, ...], column: str, table: str) -> tuple[TableSchema, Column]:
    """The private table and the column meant."""
    from deniable.errors import nearest
    from deniable.query.auto_bounds import numeric_column

    named = [each for each in tables if each.name.lower() == table.lower()]
    if not named:
        raise QueryRefused(
            f"there is no table '{table}'", remedy=nearest(table, [t.name for t in tables]) or "Use its own name"
        )
    return named[0], numeric_column(named[0], column)


Stages = list[tuple["QueryPlan", "list[AutoClamp]"]]
"""The plans that find bounds, one for each expression over the same rows, with the calls that they are for."""


def _stages(
    curator: Curator, sql: str, calls: tuple[AutoClamp, ...], asked: Budget | None, who: Asker | None
) -> tuple[Stages, Budget]:
    """The first stages, and what is left of the budget for the question."""
    from fractions import Fraction

    from deniable.curator.asking import compiled
    from deniable.query.auto_bounds import SHARE, bounds_question_over

    if asked is None:
        raise QueryRefused("AUTO_CLAMP shares a budget stated beside the question", remedy="State epsilon beside it")
    compiled(curator, _placeholder(sql, calls), asked, who)  # what is wrong with the question is told in its own words
    meant: dict[tuple[str, ...], list[AutoClamp]] = {}
    for call in calls:
        meant.setdefault(call.meant, []).append(call)
    parts = split(asked, (*(SHARE / len(meant) for _ in meant), Fraction(1) - SHARE))
    stages = []
    for mine, part in zip(meant.values(), parts, strict=False):
        plan = compiled(curator, bounds_question_over(*mine[0].meant), part, who)
        if plan.free:
            raise QueryRefused("AUTO_CLAMP is over public rows, whose bounds need no privacy")
        stages.append((plan, mine))
    return stages, parts[-1]


def query(
    curator: Curator, sql: str, calls: tuple[AutoClamp, ...], asked: Budget | None, who: Asker | None, **rest: Any
) -> QueryAnswer:
    """Answer a question with AUTO_CLAMP: bounds first, for a tenth of its budget, then the question with them."""
    from deniable.curator.asking import query as ask
    from deniable.curator.settling import job_of, settle
    from deniable.query.auto_bounds import rounded
    from deniable.query.sql.auto_clamp import with_bounds

    stages, left = _stages(curator, sql, calls, asked, who)
    _refuse_unaffordable(curator, _placeholder(sql, calls), stages, left, who)
    bounds: dict[AutoClamp, tuple[str, str]] = {}
    for plan, mine in stages:
        found = _read(plan, settle(curator, job_of(plan), who=who), False, CONFIDENCE)
        bounds |= dict.fromkeys(mine, rounded(found, plan).written)
    return ask(curator, with_bounds(sql, bounds), left, who=who, **rest)


def _placeholder(sql: str, calls: tuple[AutoClamp, ...]) -> str:
    """The question with bounds that are still to be found."""
    from deniable.query.sql.auto_clamp import with_bounds

    return with_bounds(sql, dict.fromkeys(calls, ("0", "1")))


def _refuse_unaffordable(curator: Curator, sql: str, stages: Stages, left: Budget, who: Asker | None) -> None:
    """Refuse before the first stage what the last could not pay: prices do not depend on the bounds found."""
    from deniable.curator.asking import compiled
    from deniable.curator.settling import charged, job_of

    final = compiled(curator, sql, left, who)
    whole = _whole(stages, final)
    fits = _fits(curator, whole, who)
    if fits is not None and fits < 1:
        from dataclasses import replace

        charged(curator, replace(job_of(final), event=whole), who)


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
    from deniable.curator.asking import compiled
    from deniable.curator.asking import explain as told
    from deniable.query.explain import described
    from deniable.query.explain import explain as explained

    stages, left = _stages(curator, sql, calls, asked, who)
    placed = _placeholder(sql, calls)
    final = told(curator, placed, left, who=who)
    more = _fits(curator, _whole(stages, compiled(curator, placed, left, who)), who)
    assert asked is not None
    note = "Bounds are found first, for a tenth of the budget; errors of sums are shown for bounds 0 and 1."
    first = [explained(plan) | {"finds": f"bounds of {mine[0].argument}"} for plan, mine in stages]
    rest = {"cost": described(asked), "more_like_this": more, "notes": [note, *final["notes"]]}
    return final | {"bounds": first} | rest
