"""Run a plan once: aggregate exactly inside the engine, add noise, finish as public numbers.

Nothing of the user's text is here, and no decision that depends on rows but those the plan has priced. The salt that
chooses groups is fresh for each execution and is forgotten.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.dp.mechanisms import QuantileMechanism
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.query.answers import Answer, finished
from deniable.query.measure import Distinct, Ordered, Units
from deniable.query.plan import NodePlan, Placed, QueryPlan, Step
from deniable.query.sql import exact
from deniable.query.sql.render import relation as rendered

if TYPE_CHECKING:
    from collections.abc import Mapping


class Runner(Protocol):
    """The part of an engine that executing needs: rendered SQL in, Arrow out."""

    def run(
        self,
        sql: str,
        parameters: Any = None,
        *,
        seconds: float | None = None,
        frames: Mapping[str, pa.Table] | None = None,
    ) -> pa.Table:
        """Run one reading statement over the attached sources and the given public frames."""


def execute(
    plan: QueryPlan,
    engine: Runner,
    *,
    confidence: float = 0.95,
    intervals: bool = True,
    nonnegative: bool = False,
    seconds: float | None = None,
    entropy: Entropy = SYSTEM,
) -> pa.Table:
    """The public rows that a plan promises."""
    noisy = {node.node.name: _node(node, engine, confidence, nonnegative, seconds, entropy) for node in plan.nodes}
    return engine.run(rendered(_with_intervals(plan) if intervals else plan.relation), frames=noisy, seconds=seconds)


def _with_intervals(plan: QueryPlan) -> Any:
    """The plan's relation with two more columns beside each aggregate that is shown as it was measured."""
    from deniable.query.answers import widened

    return widened(plan.relation)


def _node(
    node: NodePlan, engine: Runner, confidence: float, nonnegative: bool, seconds: float | None, entropy: Entropy
) -> pa.Table:
    parts = [_step(node, step, engine, confidence, nonnegative, seconds, entropy) for step in node.steps]
    return pa.concat_tables(parts, promote_options="permissive") if len(parts) > 1 else parts[0]


def _step(
    node: NodePlan,
    step: Step,
    engine: Runner,
    confidence: float,
    nonnegative: bool,
    seconds: float | None,
    entropy: Entropy,
) -> pa.Table:
    keys, values = _measured(node, step, engine, seconds, entropy)
    answers = [finished(recipe, step.placed, values, confidence, nonnegative) for recipe in node.recipes]
    return _table(node, step, keys, answers)


def _measured(
    node: NodePlan, step: Step, engine: Runner, seconds: float | None, entropy: Entropy
) -> tuple[pa.Table, list[NDArray[Any]]]:
    """The keys that are shown, and each measurement's noisy values for them."""
    salt = int.from_bytes(entropy.take(8), "little") >> 1
    wanted = {p.column: p.measurement for p in step.placed if not isinstance(p.measurement, Ordered | Distinct)}
    if step.threshold is not None:
        wanted = {**wanted, "units": Units(None)}
    exactly = engine.run(exact.additive(node.node, step.places, wanted, step.limits, step.keys, salt), seconds=seconds)
    keys = exactly.select(exact.key_names(step.places))
    shown = np.arange(exactly.num_rows)
    counted: NDArray[Any] = np.empty(0, dtype=np.int64)
    if step.threshold is not None:
        shown, counted = step.threshold.release(_integers(exactly, "units"), entropy)
        keys = keys.take(pa.array(shown))
    values = []
    for i, placed in enumerate(step.placed):
        if i == step.counted_by_threshold:
            values.append(counted)
        elif isinstance(placed.measurement, Ordered):
            values.append(_ranks(node, step, placed, keys, engine, salt, seconds, entropy))
        else:
            column = (
                _distinct(node, step, placed, exactly, engine, salt, seconds)
                if isinstance(placed.measurement, Distinct)
                else _integers(exactly, placed.column)
            )
            # Noise goes to every group before any is left out, so that time and memory do not tell which were shown.
            values.append(placed.mechanism.release(column, entropy)[shown])
    return keys, values


def _integers(table: pa.Table, name: str) -> NDArray[np.int64]:
    column = table.column(name).combine_chunks().cast(pa.int64()).to_numpy(zero_copy_only=False)
    return np.asarray(column, dtype=np.int64)


def _distinct(
    node: NodePlan, step: Step, placed: Placed, exactly: pa.Table, engine: Runner, salt: int, seconds: float | None
) -> NDArray[np.int64]:
    assert isinstance(placed.measurement, Distinct)
    found = engine.run(
        exact.valued(node.node, step.places, placed.measurement, step.limits, step.keys, salt), seconds=seconds
    )
    if not step.places:
        return _integers(found, "v")
    names = exact.key_names(step.places)
    counts = dict(zip(_tuples(found, names), _integers(found, "v").tolist(), strict=True))
    return np.array([counts.get(key, 0) for key in _tuples(exactly, names)], dtype=np.int64)


def _ranks(
    node: NodePlan,
    step: Step,
    placed: Placed,
    keys: pa.Table,
    engine: Runner,
    salt: int,
    seconds: float | None,
    entropy: Entropy,
) -> NDArray[np.int64]:
    """One quantile for each shown group."""
    assert isinstance(placed.measurement, Ordered)
    assert isinstance(placed.mechanism, QuantileMechanism)
    found = engine.run(
        exact.valued(node.node, step.places, placed.measurement, step.limits, step.keys, salt), seconds=seconds
    )
    names = exact.key_names(step.places)
    values, counts = _integers(found, "v"), _integers(found, "rows")
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, key in enumerate(_tuples(found, names)):
        groups.setdefault(key, []).append(i)
    released = []
    for key in _tuples(keys, names) if names else [()]:
        at = np.array(groups.get(key, []), dtype=np.int64)
        released.append(int(placed.mechanism.release(np.repeat(values[at], counts[at]), entropy)[0]))
    return np.array(released, dtype=np.int64)


def _tuples(table: pa.Table, names: list[str]) -> list[tuple[object, ...]]:
    if not names:
        return [()] * table.num_rows
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def _table(node: NodePlan, step: Step, keys: pa.Table, answers: list[Answer]) -> pa.Table:
    """Keys and answers under the names of the node's fields; keys outside the grouping set are null."""
    rows = keys.num_rows if step.places else len(answers[0].values) if answers else 1
    columns: dict[str, Any] = {}
    for place, (name, _) in enumerate(node.node.keys):
        columns[name] = keys.column(name) if place in step.places else pa.nulls(rows)
    for (name, _), answer in zip(node.node.aggregates, answers, strict=True):
        columns[name] = answer.values
        columns[f"{name}_low"], columns[f"{name}_high"] = answer.low, answer.high
    return pa.table(columns) if columns else pa.table({"_": pa.nulls(1)})
