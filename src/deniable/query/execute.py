"""Run a plan: aggregate exactly inside the engine, add noise, finish as public numbers.

Nothing of the user's text is here, and no decision that depends on rows but those the plan has priced. The salt that
chooses groups is fresh for each execution and is forgotten. `measure` is the only part that touches private rows; what
it returns is public, and `present` may be run on it as often as one likes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.dp.mechanisms import QuantileMechanism
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.query.answers import Answer, finished, widened
from deniable.query.double_entry import check
from deniable.query.keys import PublicKeys
from deniable.query.measure import Distinct, Ordered
from deniable.query.plan import NodePlan, Placed, QueryPlan, Step
from deniable.query.projection import projected
from deniable.query.relation import rolled
from deniable.query.sql import exact
from deniable.query.sql.render import relation as rendered

Frames = dict[str, pa.Table]


class Runner(Protocol):
    """The part of an engine that executing needs: rendered SQL in, Arrow out."""

    def run(
        self,
        sql: str,
        parameters: Any = None,
        *,
        seconds: float | None = None,
        frames: Mapping[str, pa.Table] | None = None,
        one_row: bool = False,
    ) -> pa.Table:
        """Run one reading statement over the attached sources and the given public frames."""


@dataclass(frozen=True, slots=True)
class Noisy:
    """What was measured of one grouping set: the keys that are shown, and each measurement's noisy values. Public.

    A measurement of several ranks has the first of them at its own place, and the others after all measurements.
    """

    keys: pa.Table
    values: tuple[NDArray[Any], ...]


Measurements = dict[str, tuple[Noisy, ...]]
"""By the name of the node, one for each of its steps."""


@dataclass(frozen=True, slots=True)
class Reader:
    """How rows are read and noise is drawn while one plan is measured; `frames` are the noisy results so far."""

    engine: Runner
    entropy: Entropy
    seconds: float | None
    frames: Frames

    def run(self, sql: str, one_row: bool = False) -> pa.Table:
        """Run one statement of our own making; one that gives one row of whole numbers may say so."""
        return self.engine.run(sql, seconds=self.seconds, frames=self.frames, one_row=one_row)


@dataclass(frozen=True, slots=True)
class Presentation:
    """How public numbers are shown: all of it is post-processing and free."""

    confidence: float = 0.95
    intervals: bool = True
    nonnegative: bool = False
    consistent: bool = False


PLAIN = Presentation()


def execute(
    plan: QueryPlan, engine: Runner, *, seconds: float | None = None, entropy: Entropy = SYSTEM, **presentation: Any
) -> pa.Table:
    """The public rows that a plan promises; keywords beside are those of a `Presentation`."""
    measured = measure(plan, engine, seconds=seconds, entropy=entropy)
    return present(plan, measured, engine, Presentation(**presentation), seconds=seconds)


def measure(
    plan: QueryPlan, engine: Runner, *, seconds: float | None = None, entropy: Entropy = SYSTEM
) -> Measurements:
    """Measure every node from the bottom up; one that is computed from another's noisy numbers reads those."""
    check(plan)
    found: Measurements = {}
    reader = Reader(engine, entropy, seconds, {})
    for node in plan.nodes:
        found[node.node.name] = tuple(_measured(node, step, reader) for step in node.steps)
        if node is not plan.nodes[-1]:
            reader.frames[node.node.name] = _frame(node, found[node.node.name], PLAIN)
    return found


def present(
    plan: QueryPlan,
    measured: Measurements,
    engine: Runner,
    presentation: Presentation = PLAIN,
    *,
    seconds: float | None = None,
) -> pa.Table:
    """The rows of the question from its noisy measurements; no private row is read."""
    frames = {node.node.name: _frame(node, measured[node.node.name], presentation) for node in plan.nodes}
    shown = widened(plan.relation) if presentation.intervals else plan.relation
    picked = projected(shown, frames)
    return engine.run(rendered(shown), frames=frames, seconds=seconds) if picked is None else picked


def _frame(node: NodePlan, parts: tuple[Noisy, ...], presentation: Presentation) -> pa.Table:
    """A node's noisy numbers as the table that the rest of the question is computed from."""
    if presentation.consistent:
        from deniable.query.consistency import adjusted

        parts = adjusted(node, parts)
    tables = [_table(node, step, part, presentation) for step, part in zip(node.steps, parts, strict=True)]
    return pa.concat_tables(tables, promote_options="permissive") if len(tables) > 1 else tables[0]


def _measured(node: NodePlan, step: Step, reader: Reader) -> Noisy:
    """The keys that are shown, and each measurement's noisy values for them."""
    salt = _salt(reader.entropy)
    wanted = exact.additive_parts(step.placed, threshold=step.threshold is not None)
    if wanted:
        statement = exact.additive(node.node, step.places, wanted, step.limits, step.keys, salt)
        exactly = reader.run(statement, one_row=not step.places)
    else:
        exactly = _public_keys(step, reader)
    keys, shown = exactly.select(exact.key_names(step.places)), np.arange(exactly.num_rows)
    counted: NDArray[Any] = np.empty(0, dtype=np.int64)
    if step.threshold is not None:
        shown, counted = step.threshold.release(_integers(exactly, "units"), reader.entropy)
        keys = keys.take(pa.array(shown))
    values: list[NDArray[Any]] = []
    ranks: list[NDArray[Any]] = []
    for i, placed in enumerate(step.placed):
        if i == step.counted_by_threshold:
            values.append(counted)
        elif isinstance(placed.measurement, Ordered):
            first, *others = _ranks(node, step, placed, keys, reader, salt)
            values.append(first)
            ranks += others
        else:
            column = _column(node, step, placed, exactly, reader, salt)
            # Noise goes to every group before any is left out, so that time and memory do not tell which were shown.
            values.append(placed.rounded(placed.mechanism.release(column, reader.entropy)[shown]))
    return Noisy(keys, (*values, *ranks))


def _salt(entropy: Entropy) -> int:
    """A fresh secret by which units' groups are chosen, drawn anew for every step of every execution."""
    return int.from_bytes(entropy.take(8), "little") >> 1


def _public_keys(step: Step, reader: Reader) -> pa.Table:
    """Keys alone, where nothing is summed: they are public, and no private row is read for them."""
    assert isinstance(step.keys, PublicKeys)
    if not step.places:
        return pa.table({"_": pa.nulls(1)}).select([])
    return reader.run(exact.keys_alone(step.keys, step.places))


def _integers(table: pa.Table, name: str) -> NDArray[np.int64]:
    column = table.column(name).combine_chunks().cast(pa.int64()).to_numpy(zero_copy_only=False)
    return np.asarray(column, dtype=np.int64)


def _column(
    node: NodePlan, step: Step, placed: Placed, exactly: pa.Table, reader: Reader, salt: int
) -> NDArray[np.int64]:
    """A measurement's exact value for each group, in the order of `exactly`."""
    if not isinstance(placed.measurement, Distinct):
        return _integers(exactly, placed.column)
    found = reader.run(exact.valued(node.node, step.places, placed.measurement, step.limits, step.keys, salt))
    if not step.places:
        return _integers(found, "v")
    names = exact.key_names(step.places)
    counts = dict(zip(_tuples(found, names), _integers(found, "v").tolist(), strict=True))
    return np.array([counts.get(key, 0) for key in _tuples(exactly, names)], dtype=np.int64)


def _ranks(node: NodePlan, step: Step, placed: Placed, keys: pa.Table, reader: Reader, salt: int) -> NDArray[np.int64]:
    """Each quantile (a row) of each shown group."""
    assert isinstance(placed.measurement, Ordered)
    assert isinstance(placed.mechanism, QuantileMechanism)
    found = reader.run(exact.valued(node.node, step.places, placed.measurement, step.limits, step.keys, salt))
    names = exact.key_names(step.places)
    shown = _tuples(keys, names) if names else [()]
    place = {key: i for i, key in enumerate(shown)}
    group = np.array([place.get(key, -1) for key in _tuples(found, names)], dtype=np.int64)
    kept = group >= 0
    values, counts = _integers(found, "v")[kept], _integers(found, "rows")[kept]
    return placed.mechanism.release_groups(values, counts, group[kept], len(shown), reader.entropy).T


def _tuples(table: pa.Table, names: list[str]) -> list[tuple[object, ...]]:
    if not names:
        return [()] * table.num_rows
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def _table(node: NodePlan, step: Step, noisy: Noisy, presentation: Presentation) -> pa.Table:
    """Keys and answers under the names of the node's fields; keys outside the grouping set are null."""
    answers: list[Answer] = [
        finished(recipe, step.placed, noisy.values, presentation.confidence, presentation.nonnegative)
        for recipe in node.recipes
    ]
    rows = noisy.keys.num_rows if step.places else len(answers[0].values) if answers else 1
    columns: dict[str, Any] = {}
    for place, (name, _) in enumerate(node.node.keys):
        kept = place in step.places
        columns[name] = noisy.keys.column(name) if kept else pa.nulls(rows)
        columns[rolled(name)] = pa.array(np.full(rows, 0 if kept else 1, dtype=np.int64))
    for (name, _), answer in zip(node.node.aggregates, answers, strict=True):
        columns[name] = answer.values
        columns[f"{name}_low"], columns[f"{name}_high"] = answer.low, answer.high
    return pa.table(columns) if columns else pa.table({"_": pa.nulls(1)})
