"""Run a plan: aggregate exactly inside the engine, add noise, finish as public numbers.

Nothing of the user's text is here, and no decision that depends on rows but those the plan has priced. The salt that
chooses groups is fresh for each execution and is forgotten. `measure` is the only part that touches private rows; what
it returns is public, and `present` may be run on it as often as one likes.

Consistency is part of presenting: where asked, the counts and sums of several grouping sets over public keys are made
to add up. The cells of the finest set are the weighted least squares solution, each set weighted by one over its
noise's variance (of all linear estimates that add up, the one with the least variance). They are rounded to whole
steps, and the other sets are summed from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.dp.mechanisms import QuantileMechanism
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import DataError, InternalError, QueryRefused
from deniable.query.algebra.expression import Kind
from deniable.query.algebra.relation import Measured, PublicSelect, name_rollup_flag
from deniable.query.answers import Answer, add_interval_columns, finish_answer, is_plain, pick_columns
from deniable.query.double_entry import check
from deniable.query.joint import apply_strategy, name_part, reconstruct, solve_block
from deniable.query.keys import PrivateKeys, PublicKeys
from deniable.query.measurements import Distinct, Ordered, Rows, Total
from deniable.query.plan import Joint, NodePlan, Placed, QueryPlan, Step
from deniable.query.sql import private_sql
from deniable.query.sql.clauses import refuse_depth
from deniable.query.sql.render import render_relation as rendered

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

    A measurement of several ranks has the first of them at its own place, and the others after all measurements. The
    numbers of joint releases, from which measurements were computed, come last.
    """

    keys: pa.Table
    values: tuple[NDArray[Any], ...]


NoisyResults = dict[str, tuple[Noisy, ...]]
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
) -> NoisyResults:
    """Measure every node from the bottom up; one that is computed from another's noisy numbers reads those."""
    check(plan)
    found: NoisyResults = {}
    reader = Reader(engine, entropy, seconds, {})
    for node in plan.nodes:
        found[node.node.name] = tuple(_measure_step(node, step, reader) for step in node.steps)
        if node is not plan.nodes[-1]:
            reader.frames[node.node.name] = _build_frame(node, found[node.node.name], PLAIN)
    return found


def present(
    plan: QueryPlan,
    measured: NoisyResults,
    engine: Runner,
    presentation: Presentation = PLAIN,
    *,
    seconds: float | None = None,
) -> pa.Table:
    """The rows of the question from its noisy measurements; no private row is read."""
    frames = {node.node.name: _build_frame(node, measured[node.node.name], presentation) for node in plan.nodes}
    shown = add_interval_columns(plan.relation) if presentation.intervals else plan.relation
    picked = pick_columns(shown, frames)
    return engine.run(rendered(shown), frames=frames, seconds=seconds) if picked is None else picked


def needs_rehearsal(plan: QueryPlan) -> bool:
    """Whether more is done with the noisy numbers of a plan than to show them."""
    select = plan.relation
    return not (isinstance(select, PublicSelect) and isinstance(select.input, Measured) and is_plain(select))


def rehearse(plan: QueryPlan, engine: Runner) -> None:
    """Refuse, before anything is charged, a question whose part over noisy numbers fails whatever the numbers are.

    It is computed once over two invented groups; no private row is read.
    """
    invented = {node.node.name: tuple(_invent_step(node, step) for step in node.steps) for node in plan.nodes}
    try:
        present(plan, invented, engine)
    except (InternalError, DataError):
        raise QueryRefused(
            "the part of the question that is computed from the noisy answers cannot be computed",
            expected="ORDER BY, HAVING and window functions over columns and numbers of the answer",
            remedy="Look at their arguments and frames",
        ) from None
    except RecursionError:
        raise refuse_depth() from None


SPARE = 60
"""Calls within calls that may still follow where a statement is written again to be run."""


def rehearse_statements(plan: QueryPlan, engine: Runner | None = None) -> None:
    """Refuse, before anything is charged, a question whose statements cannot be written, or not for an engine.

    Long chains of operators are nested deeply in them; in the language of an engine elsewhere more than here.
    """
    translate = getattr(engine, "translate", None)
    if translate is None and (engine is not None or len(plan.text) < LONG):
        return

    def write(depth: int = SPARE) -> None:
        if depth:
            return write(depth - 1)
        frames: Frames = {}
        for node in plan.nodes:
            for statement in (each for step in node.steps for each in _list_statements(node, step)):
                if translate is not None:
                    translate(statement, frames)
            if node is not plan.nodes[-1]:
                frames[node.node.name] = _build_frame(node, tuple(_invent_step(node, s) for s in node.steps), PLAIN)
        return None

    try:
        write()
    except RecursionError:
        raise refuse_depth() from None


LONG = 1_000
"""Characters of a question from which on its statements are written once before the charge."""


def _list_statements(node: NodePlan, step: Step) -> Iterator[str]:
    """What is run to measure a step, with a salt that chooses nothing."""
    statement = private_sql.render_step(node.node, step, 0)
    if statement is not None:
        yield statement
    for each in (placed.measurement for placed in step.placed):
        if isinstance(each, Distinct | Ordered):
            yield private_sql.render_value_counts(node.node, step.places, each, step.limits, step.keys, 0)


INVENTED: dict[Kind, tuple[Any, Any]] = {
    Kind.INTEGER: (1, 2),
    Kind.DECIMAL: (0.5, 1.5),
    Kind.TEXT: ("a", "b"),
    Kind.BOOLEAN: (False, True),
    Kind.DATE: (date(2000, 1, 1), date(2001, 2, 3)),
    Kind.DATETIME: (datetime(2000, 1, 1), datetime(2001, 2, 3, 4, 5, 6)),
    Kind.NULL: (None, None),
}
"""Keys of invented groups."""


def _invent_step(node: NodePlan, step: Step) -> Noisy:
    groups = 2 if step.places else 1
    keys = {f"k{place}": pa.array(INVENTED[node.node.keys[place][1].facts.kind][:groups]) for place in step.places}
    more = sum(len(each.measurement.quantiles) - 1 for each in step.placed if isinstance(each.measurement, Ordered))
    values = tuple(np.arange(1, groups + 1, dtype=np.int64) for _ in range(len(step.placed) + more))
    return Noisy(pa.table(keys) if keys else pa.table({"_": pa.nulls(1)}).select([]), values)


def _build_frame(node: NodePlan, parts: tuple[Noisy, ...], presentation: Presentation) -> pa.Table:
    """A node's noisy numbers as the table that the rest of the question is computed from."""
    if presentation.consistent:
        parts = make_consistent(node, parts)
    tables = [_build_table(node, step, part, presentation) for step, part in zip(node.steps, parts, strict=True)]
    return pa.concat_tables(tables, promote_options="permissive") if len(tables) > 1 else tables[0]


def _measure_step(node: NodePlan, step: Step, reader: Reader) -> Noisy:
    """The keys that are shown, and each measurement's noisy values for them."""
    salt = _draw_salt(reader.entropy)
    statement = private_sql.render_step(node.node, step, salt)
    if statement is not None:
        exactly = reader.run(statement, one_row=not step.places)
    else:
        exactly = read_public_keys(step, reader)
    keys, shown = exactly.select(private_sql.key_names(step.places)), np.arange(exactly.num_rows)
    counted: NDArray[Any] = np.empty(0, dtype=np.int64)
    if step.threshold is not None:
        shown, counted = step.threshold.release(_read_integers(exactly, "units"), reader.entropy)
        keys = keys.take(pa.array(shown))
    values: list[NDArray[Any]] = []
    ranks: list[NDArray[Any]] = []
    joint, parts = dict[int, NDArray[Any]](), list[NDArray[Any]]()
    for number, each in enumerate(step.joints):
        noisy = _release_jointly(each, number, exactly, shown, reader)
        parts += list(noisy.T)
        found = reconstruct(noisy, solve_block(each.block, each.strategy), each.sensitivity.parts)
        joint |= zip(each.block.places, found, strict=True)
    for i, placed in enumerate(step.placed):
        if i in joint:
            values.append(joint[i])
        elif i == step.counted_by_threshold:
            values.append(counted)
        elif isinstance(placed.measurement, Ordered):
            first, *others = _release_ranks(node, step, placed, keys, reader, salt)
            values.append(first)
            ranks += others
        else:
            column = _read_column(node, step, placed, exactly, reader, salt)
            # Noise goes to every group before any is left out, so that time and memory do not tell which were shown.
            values.append(placed.round_to_steps(placed.mechanism.release(column, reader.entropy)[shown]))
    return Noisy(keys, (*values, *ranks, *parts))


def _draw_salt(entropy: Entropy) -> int:
    """A fresh secret by which units' groups are chosen, drawn anew for every step of every execution."""
    return int.from_bytes(entropy.take(8), "little") >> 1


def read_public_keys(step: Step, reader: Reader) -> pa.Table:
    """Keys alone, where nothing is summed: they are public, and no private row is read for them."""
    assert isinstance(step.keys, PublicKeys)
    if not step.places:
        return pa.table({"_": pa.nulls(1)}).select([])
    return reader.run(private_sql.render_keys_alone(step.keys, step.places))


def _read_integers(table: pa.Table, name: str) -> NDArray[np.int64]:
    column = table.column(name)
    whole = column if column.type == pa.int64() else column.cast(pa.int64())
    return np.asarray(whole.to_numpy(), dtype=np.int64)


def _read_column(
    node: NodePlan, step: Step, placed: Placed, exactly: pa.Table, reader: Reader, salt: int
) -> NDArray[np.int64]:
    """A measurement's exact value for each group, in the order of `exactly`."""
    if not isinstance(placed.measurement, Distinct):
        return _read_integers(exactly, placed.column)
    found = reader.run(
        private_sql.render_value_counts(node.node, step.places, placed.measurement, step.limits, step.keys, salt)
    )
    if not step.places:
        return _read_integers(found, "v")
    names = private_sql.key_names(step.places)
    counts = dict(zip(_read_tuples(found, names), _read_integers(found, "v").tolist(), strict=True))
    return np.array([counts.get(key, 0) for key in _read_tuples(exactly, names)], dtype=np.int64)


def _release_jointly(
    joint: Joint, number: int, exactly: pa.Table, shown: NDArray[np.int64], reader: Reader
) -> NDArray[np.int64]:
    """The whole numbers of a joint release with their noise: one row for each group that is shown."""
    columns = [_read_integers(exactly, name_part(number, i)) for i in range(len(joint.block.parts))]
    exact = apply_strategy(np.stack(columns, axis=1), joint.strategy.matrix)
    noisy: NDArray[np.int64] = joint.mechanism.release(exact.ravel(), reader.entropy).reshape(exact.shape)[shown]
    return noisy


def _release_ranks(
    node: NodePlan, step: Step, placed: Placed, keys: pa.Table, reader: Reader, salt: int
) -> NDArray[np.int64]:
    """Each quantile (a row) of each shown group."""
    assert isinstance(placed.measurement, Ordered)
    assert isinstance(placed.mechanism, QuantileMechanism)
    found = reader.run(
        private_sql.render_value_counts(node.node, step.places, placed.measurement, step.limits, step.keys, salt)
    )
    names = private_sql.key_names(step.places)
    shown = _read_tuples(keys, names) if names else [()]
    place = {key: i for i, key in enumerate(shown)}
    group = np.array([place.get(key, -1) for key in _read_tuples(found, names)], dtype=np.int64)
    kept = group >= 0
    values, counts = _read_integers(found, "v")[kept], _read_integers(found, "rows")[kept]
    return placed.mechanism.release_groups(values, counts, group[kept], len(shown), reader.entropy).T


def _read_tuples(table: pa.Table, names: list[str]) -> list[tuple[object, ...]]:
    if not names:
        return [()] * table.num_rows
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def _build_table(node: NodePlan, step: Step, noisy: Noisy, presentation: Presentation) -> pa.Table:
    """Keys and answers under the names of the node's fields; keys outside the grouping set are null."""
    answers: list[Answer] = [
        finish_answer(recipe, step.placed, noisy.values, presentation.confidence, presentation.nonnegative)
        for recipe in node.recipes
    ]
    rows = noisy.keys.num_rows if step.places else len(answers[0].values) if answers else 1
    columns: dict[str, Any] = {}
    for place, (name, _) in enumerate(node.node.keys):
        kept = place in step.places
        columns[name] = noisy.keys.column(name) if kept else pa.nulls(rows)
        columns[name_rollup_flag(name)] = pa.array(np.full(rows, 0 if kept else 1, dtype=np.int64))
    for (name, _), answer in zip(node.node.aggregates, answers, strict=True):
        columns[name] = answer.values
        columns[f"{name}_low"], columns[f"{name}_high"] = answer.low, answer.high
    return pa.table(columns) if columns else pa.table({"_": pa.nulls(1)})


Cells = NDArray[np.float64]
SOLVER_ROUNDS = 200
"""Conjugate gradients end after as many rounds as there are different eigenvalues: one for each grouping set, where all
combinations of keys are there."""
TOLERANCE = 1e-12


def refuse_inconsistent(plan: QueryPlan) -> None:
    """Refuse, before anything is charged, a question whose grouping sets cannot be made to add up."""
    for node in plan.nodes:
        if len(node.steps) > 1 and (
            any(isinstance(s.keys, PrivateKeys) for s in node.steps) or _find_finest(node) is None
        ):
            raise QueryRefused(
                "the grouping sets of this question cannot be made consistent",
                expected="Public keys, and one grouping set that has all keys of the others",
                remedy="Declare the categories of the keys, or use ROLLUP or CUBE",
            )


def make_consistent(node: NodePlan, parts: tuple[Noisy, ...]) -> tuple[Noisy, ...]:
    """The measurements of a node's grouping sets, counts and sums adding up; unchanged where there is one set."""
    finest = _find_finest(node)
    if len(parts) < 2 or finest is None:
        return parts
    parents = [_find_parents(node, parts, finest, i) for i in range(len(parts))]
    values = [list(part.values) for part in parts]
    for m, measurement in enumerate(node.measurements):
        if isinstance(measurement, Rows) or (isinstance(measurement, Total) and measurement.per_group is None):
            weights = [step.placed[m].deviation ** -2 for step in node.steps]
            cells = np.rint(_solve_least_squares([part.values[m] for part in parts], parents, weights, finest)).astype(
                np.int64
            )
            for i, part in enumerate(parts):
                values[i][m] = np.zeros(len(part.values[m]), dtype=np.int64)
                np.add.at(values[i][m], parents[i], cells)
    return tuple(Noisy(part.keys, tuple(found)) for part, found in zip(parts, values, strict=True))


def _find_finest(node: NodePlan) -> int | None:
    """The grouping set that has the keys of all others."""
    every = {place for step in node.steps for place in step.places}
    return next((i for i, step in enumerate(node.steps) if set(step.places) == every), None)


def _find_parents(node: NodePlan, parts: tuple[Noisy, ...], finest: int, coarse: int) -> NDArray[np.int64]:
    """For each cell of the finest set, the cell of a coarser one that it belongs to."""
    names = [node.node.keys[place][0] for place in node.steps[coarse].places]
    rows = parts[finest].keys.num_rows
    if not names:
        return np.zeros(rows, dtype=np.int64)
    places = {key: i for i, key in enumerate(_read_keys(parts[coarse], names))}
    return np.array([places[key] for key in _read_keys(parts[finest], names)], dtype=np.int64)


def _read_keys(part: Noisy, names: list[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(part.keys.column(name).to_pylist() for name in names), strict=True))


def _solve_least_squares(
    measured: list[NDArray[Any]], parents: list[NDArray[np.int64]], weights: list[float], finest: int
) -> Cells:
    """Conjugate gradients on the normal equations; sums over cells and their transposes are the only products."""

    def up(cells: Cells, i: int) -> Cells:
        summed: Cells = np.bincount(parents[i], weights=cells, minlength=len(measured[i])).astype(np.float64)
        return summed

    def normal(cells: Cells) -> Cells:
        product: Cells = np.sum([w * up(cells, i)[parents[i]] for i, w in enumerate(weights)], axis=0)
        return product

    target = np.sum([w * measured[i].astype(np.float64)[parents[i]] for i, w in enumerate(weights)], axis=0)
    cells = measured[finest].astype(np.float64)
    rest = target - normal(cells)
    way, size = rest.copy(), float(rest @ rest)
    goal = TOLERANCE * max(float(target @ target), 1.0)
    for _ in range(SOLVER_ROUNDS):
        if size <= goal:
            break
        moved = normal(way)
        cells = cells + (length := size / float(way @ moved)) * way
        rest = rest - length * moved
        way, size = rest + (float(rest @ rest) / size) * way, float(rest @ rest)
    return cells
