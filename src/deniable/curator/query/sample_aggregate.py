"""Sample and aggregate through a curator: the unit is the policy's, and the ledger is charged before anything runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from deniable.curator.query.sql import QueryAnswer
from deniable.errors import QueryRefused, nearest
from deniable.policy.budget import Amount
from deniable.policy.schema import PrivacyUnit

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.curator import Curator
    from deniable.governance.grants import Asker
    from deniable.policy.schema import TableSchema
    from deniable.query.techniques.sample_aggregate import BlocksPlan


def release(
    curator: Curator,
    function: Callable[[Any], float],
    table: str,
    blocks: int,
    bounds: tuple[Amount, Amount],
    epsilon: Amount,
    *,
    aggregate: str = "median",
    default: Amount | None = None,
    frames: str = "arrow",
    who: Asker | None = None,
) -> QueryAnswer:
    """One row with the combined value. The function sees rows: only a steward should hand one in."""
    import pyarrow as pa

    from deniable.curator.charge import admit, build_release, run_job
    from deniable.query.techniques.sample_aggregate import plan_blocks

    schema = _private(admit(curator, who), table)
    plan = plan_blocks(blocks, bounds, epsilon, aggregate, default)
    job = _job(plan, schema, function, frames)
    settled = run_job(curator, job, who=who)
    value = float(settled.stored.measured["blocks"][0].values[0][0])
    notes = [f"{aggregate.capitalize()} over {blocks} disjoint blocks of units; failures count as the default value."]
    made = build_release(curator, job, settled, pa.Table.from_pylist([{"value": value}]), who, notes=notes,
                       error=plan.error(0.05), blocks=blocks)  # fmt: skip
    return QueryAnswer(made, settled.repeated, settled.receipt)


def explain(
    curator: Curator,
    table: str,
    blocks: int,
    bounds: tuple[Amount, Amount],
    epsilon: Amount,
    *,
    aggregate: str = "median",
    default: Amount | None = None,
    confidence: float = 0.95,
    who: Asker | None = None,
) -> dict[str, Any]:
    """What a function on disjoint blocks would cost, and its error; no row is read."""
    from deniable.curator.charge import admit, describe_cost
    from deniable.query.techniques.sample_aggregate import describe_blocks, plan_blocks

    schema = _private(admit(curator, who), table)
    plan = plan_blocks(blocks, bounds, epsilon, aggregate, default)
    return describe_cost(curator, plan.cost, schema.unit or PrivacyUnit(), who) | describe_blocks(plan, confidence)


def _private(tables: tuple[TableSchema, ...], name: str) -> TableSchema:
    found = next((table for table in tables if table.name == name), None)
    if found is None or found.public:
        known = [table.name for table in tables if not table.public]
        raise QueryRefused(f"there is no private table '{name}'", remedy=nearest(name, known))
    return found


def _job(plan: BlocksPlan, schema: TableSchema, function: Any, frames: str) -> Any:
    from secrets import token_hex

    from deniable.curator.charge import Job

    unit = schema.unit or PrivacyUnit()
    # Two functions cannot be compared, so each call is a question of its own.
    return Job(
        f"sample and aggregate ({plan.aggregate} of {plan.blocks} blocks) over {schema.name}", token_hex(16),
        plan.mechanism.event, plan.cost, unit, (schema.name,), (schema.name,),
        lambda engine: _measure(plan, engine, schema, unit, function, frames),
    )  # fmt: skip


def _measure(
    plan: BlocksPlan,
    engine: Any,
    schema: TableSchema,
    unit: PrivacyUnit,
    function: Any,
    frames: str,
) -> Any:
    import numpy as np
    import pyarrow as pa

    from deniable.query.execute import Noisy
    from deniable.query.techniques.sample_aggregate import release_blocks

    rows: pa.Table = pa.Table.from_batches(list(engine.stream(schema.name)))
    value = release_blocks(plan, function, rows, unit.column, frames=frames)
    return {"blocks": (Noisy(pa.table({"_": pa.nulls(1)}), (np.array([value]),)),)}


def sample_and_aggregate(
    function: Callable[[Any], float],
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

    from deniable.query.techniques.sample_aggregate import plan_blocks, release_blocks

    rows = table if isinstance(table, pa.Table) else table.to_arrow() if hasattr(table, "to_arrow") else (
        pa.Table.from_pandas(table, preserve_index=False)
    )  # fmt: skip
    plan = plan_blocks(blocks, bounds, epsilon, aggregate, default)
    return release_blocks(plan, function, rows, unit, frames=frames)
