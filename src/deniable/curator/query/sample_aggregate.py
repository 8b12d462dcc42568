"""Sample and aggregate: any function on disjoint blocks of units. The unit is the policy's; the charge comes first."""

from __future__ import annotations

from collections.abc import Callable
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from deniable.curator.charge import Job, after_the_charge, run_job
from deniable.curator.context import Context
from deniable.curator.query.sql import QueryAnswer, answer_job, check_confidence, describe_cost, note_missing_ids
from deniable.curator.sources import note_rows_out, refuse_linked, refuse_rows_here
from deniable.errors import ParameterError, QueryRefused, nearest
from deniable.policy.budget import Amount
from deniable.policy.schema import PrivacyUnit, TableSchema

if TYPE_CHECKING:
    from deniable.engines.base import Engine
    from deniable.query.execute import NoisyResults
    from deniable.query.explain import BlocksExplanation
    from deniable.query.techniques.sample_aggregate import BlocksPlan

Function = Callable[[Any], float]


def release(
    context: Context,
    function: Function,
    table: str,
    blocks: int,
    bounds: tuple[Amount, Amount],
    epsilon: Amount,
    *,
    aggregate: str = "median",
    default: Amount | None = None,
    frames: str = "arrow",
) -> QueryAnswer:
    """One row with the combined value. The function sees rows: only a steward should hand one in."""
    import pyarrow as pa

    from deniable.query.techniques.sample_aggregate import check_frames, plan_blocks

    schema = _find_private(context.admit_tables(), table)
    plan = plan_blocks(blocks, bounds, epsilon, aggregate, default)
    check_frames(frames)
    refuse_rows_here(schema, context.scope.sources)
    job, error = _job_of(plan, schema, function, frames), plan.error(0.05)
    result = run_job(context, job)
    with after_the_charge():
        value = float(result.measured["blocks"][0].values[0][0])
    notes = [f"{aggregate.capitalize()} over {blocks} disjoint blocks of units; failures count as the default value."]
    details = {"notes": notes + note_missing_ids(context, job.private), "error": error, "blocks": blocks}
    return answer_job(context, job, result, pa.Table.from_pylist([{"value": value}]), **details)


def explain(
    context: Context,
    table: str,
    blocks: int,
    bounds: tuple[Amount, Amount],
    epsilon: Amount,
    *,
    aggregate: str = "median",
    default: Amount | None = None,
    confidence: float = 0.95,
) -> BlocksExplanation:
    """What a function on disjoint blocks would cost, and its error; no row is read."""
    from deniable.query.explain import BlocksExplanation
    from deniable.query.techniques.sample_aggregate import describe_blocks, plan_blocks

    check_confidence(confidence)
    schema = _find_private(context.admit_tables(), table)
    plan = plan_blocks(blocks, bounds, epsilon, aggregate, default)
    cost = describe_cost(context, plan.cost, schema.unit or PrivacyUnit())
    notes = note_rows_out(schema, context.scope.sources)
    return BlocksExplanation(**describe_blocks(plan, confidence), **cost, notes=notes)


def sample_and_aggregate(
    function: Function,
    table: Any,
    unit: str | None,
    blocks: int,
    bounds: tuple[Amount, Amount],
    epsilon: Amount,
    *,
    aggregate: str = "median",
    default: Amount | None = None,
    frames: str = "arrow",
) -> float:
    """Sample and aggregate over rows at hand (Arrow, pandas, Polars), without a ledger: the caller adds up epsilons."""
    import pyarrow as pa

    from deniable.engines.sources import as_arrow, is_frame
    from deniable.query.techniques.sample_aggregate import check_frames, plan_blocks, release_blocks

    if not callable(function):
        raise ParameterError("the function cannot be called", expected="A function of a block of rows to a number")
    if not is_frame(table):
        raise ParameterError(
            f"a value of type {type(table).__name__} is not a table",
            expected="Arrow, pandas or Polars",
        )
    found = as_arrow(table)
    rows = found.read_all() if isinstance(found, pa.RecordBatchReader) else found
    plan = plan_blocks(blocks, bounds, epsilon, aggregate, default)
    check_frames(frames)
    return release_blocks(plan, function, rows, unit, frames=frames)


def _find_private(tables: tuple[TableSchema, ...], name: str) -> TableSchema:
    found = next((table for table in tables if table.name == name), None)
    if found is None or found.public:
        known = [table.name for table in tables if not table.public]
        raise QueryRefused(f"there is no private table '{name}'", remedy=nearest(name, known))
    refuse_linked(found)
    return found


def _job_of(plan: BlocksPlan, schema: TableSchema, function: Function, frames: str) -> Job[NoisyResults]:
    from deniable.release import Technique

    text = f"sample and aggregate ({plan.aggregate} of {plan.blocks} blocks) over {schema.name}"
    # Two functions cannot be compared, so each call is a question of its own.
    return Job(
        Technique.DP_QUERY, text, plan.mechanism.event, schema.unit or PrivacyUnit(), (schema.name,),
        lambda engine: _measure(plan, engine, schema, function, frames),
        canonical=token_hex(16), cost=plan.cost, details={"asked": text},
    )  # fmt: skip


def _measure(plan: BlocksPlan, engine: Engine, schema: TableSchema, function: Function, frames: str) -> NoisyResults:
    import numpy as np
    import pyarrow as pa

    from deniable.engines.base import quote
    from deniable.query.execute import Noisy
    from deniable.query.techniques.sample_aggregate import release_blocks

    listed = ", ".join(quote(column.name) for column in schema.columns)
    rows = engine.run(f"SELECT {listed} FROM {quote(schema.name)}")  # noqa: S608  quoted names
    unit = schema.unit.column if schema.unit else None
    hidden = [column.name for column in schema.columns if column.opaque]
    value = release_blocks(plan, function, rows, unit, frames=frames, hidden=hidden)
    return {"blocks": (Noisy(pa.table({"_": pa.nulls(1)}), (np.array([value]),)),)}
