"""Training: plan, charge, read the bounded rows, learn (the last sight of the data), release; and predicting."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from deniable.curator.charge import Job, JobResult, run_job, still_charged
from deniable.curator.context import Context
from deniable.curator.publish import find_signing_key, note_published
from deniable.curator.scope import refuse_twice
from deniable.curator.sources import note_rows_out, refuse_rows_here
from deniable.errors import AccessRefused, DataError
from deniable.outputs import claim_outputs, replace_files
from deniable.policy.budget import Amount, Budget, budget, refuse_extreme
from deniable.policy.schema import PrivacyUnit, TableSchema
from deniable.release.record import Record, SparseRecord

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from deniable.engines.base import Engine
    from deniable.learn.model import Coefficient, Effect, LearnedModel
    from deniable.learn.training import Planned, Selection, Task
    from deniable.release import Release

Progress = Callable[[float], None]
DELTA = "1e-6"
"""Stated where an epsilon is given without a delta."""
HELD_OUT = Fraction(1, 5)
"""The share of units that are tested on and not learned from, when an evaluation is asked for."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is wanted: which model of which table, within which budget."""

    table: str
    task: Task
    budget: Budget
    choose: tuple[tuple[str, tuple[Any, ...]], ...] = ()
    """Settings to choose among privately, each with its values; see `learn/training.py`."""


@dataclass(frozen=True, slots=True, eq=False)
class CurvePoint(Record):
    """A point of a curve of the evaluation: `roc` (x false alarms, y found) or `calibration` (x told, y true)."""

    curve: str
    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Trained:
    """A model with its release; the evaluation is the steward's and is in neither of them."""

    model: LearnedModel
    release: Release
    evaluation: dict[str, Any] | None = None
    curves: list[CurvePoint] | None = None
    """The steward's as well: how well probabilities tell apart, and whether they are what they say."""
    chosen: dict[str, Any] | None = None
    """The settings that were chosen privately, where there was a choice: public."""

    def predict(self, rows: Any) -> NDArray[np.float64]:
        """Predictions for rows (pandas, Polars or Arrow); see `LearnedModel.predict`."""
        return self.model.predict(read_frame(rows))

    @property
    def module(self) -> Any:
        """The module of torch with the weights that were learned, where one was given."""
        return self.model.build_network()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TrainingReport(SparseRecord):
    """What a training tells: the model, its coefficients with their errors, and the steward's evaluation, if any."""

    method: str
    target: str
    positive: str | int | bool | None = None
    shares: list[float] | None = None
    features: list[str]
    estimated_rows: int
    module: str | None = None
    opacus_epsilon: float | None = None
    arithmetic: str | None = None
    coefficients: list[Coefficient]
    chosen: dict[str, Any] | None = None
    evaluation: dict[str, Any] | None = None
    notes: list[str] | None = None
    """What there is to know of how it was learned, such as that rows were brought here."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ModelReport(SparseRecord):
    """What the page of a model shows."""

    method: str
    target: str
    features: list[str]
    estimated_rows: int
    unit: str
    epsilon: str
    delta: str
    shares: dict[str, float] | None = None
    """Of a structure: of the rows in each group, or of the variance along each component, by its name."""
    effects: list[Effect]
    evaluation: dict[str, Any] | None = None
    curves: list[CurvePoint] | None = None


def read_frame(rows: Any) -> pa.Table:
    """Rows of a frame of any library as a table; of a reader, all that are left."""
    from deniable.engines.sources import as_arrow

    held = as_arrow(rows)
    return held if hasattr(held, "num_rows") else held.read_all()


def budget_of(epsilon: Amount | None, delta: Amount | None, rho: Amount | None) -> Budget:
    """The budget that was stated, with a delta where an epsilon came without."""
    return refuse_extreme(budget(epsilon, (DELTA if rho is None else 0) if delta is None else delta, rho))


def train(
    context: Context, order: Order, *, evaluate: bool = False, out: Path | None = None,
    progress: Progress | None = None,
) -> Trained:  # fmt: skip
    """Learn a model: charged before the data is touched; with `out`, written with its statement."""
    if evaluate and context.asker is not None:
        raise AccessRefused("an evaluation compares with real rows", remedy="Only the steward may see one")
    table, what = plan_training(context, order)
    with claim_outputs(out):
        result = run_job(context, _job_of(order, table, what, evaluate, progress))
        model, chosen, rows, held = result.measured
        with still_charged():
            notes = note_rows_out(table, context.scope.sources)
            release = _release_model(context, order, result, out, HELD_OUT if evaluate else None, notes)
    if not evaluate:
        return Trained(model, release, chosen=chosen)
    return Trained(model, release, _evaluate(model, rows, held), trace_curves(model, held), chosen)


Measured = tuple["LearnedModel", "dict[str, Any] | None", "pa.Table", "pa.Table"]
"""The model, the settings that were chosen, the rows that were learned from and those held out."""


def _job_of(
    order: Order, table: TableSchema, what: Planned | Selection, evaluate: bool, progress: Progress | None
) -> Job[Measured]:
    from deniable.learn.training import Selection
    from deniable.release import Technique

    first = what.candidates[0].final if isinstance(what, Selection) else what

    def measure(engine: Engine) -> Measured:
        rows, held = _split_rows(_bound_rows(engine, table, first), table, evaluate)
        if isinstance(what, Selection):
            return *what.run(deal_units(rows, table, what.parts), rows, progress=progress), rows, held
        return _learn(what, rows, progress), None, rows, held

    details = {"target": first.target.name, "method": first.method}
    if isinstance(what, Selection):
        details["method"] = f"one of {len(what.candidates)} settings"
    event = what.event if isinstance(what, Selection) else what.plan.event
    return Job(
        Technique.DP_MODEL, repr(order), event, table.unit, (table.name,), measure, cost=order.budget,
        details=details,
    )  # fmt: skip


def train_model(
    context: Context,
    table: str,
    target: str | None = None,
    *,
    features: Sequence[str] | None = None,
    epsilon: Amount | None = None,
    delta: Amount | None = None,
    rho: Amount | None = None,
    choose: Mapping[str, Sequence[Any]] | None = None,
    evaluate: bool = False,
    out: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Trained:
    """`train` in one call; `settings` are the other fields of a task: method, positive, penalty, turns and so on."""
    from deniable.learn.training import Task

    task = Task(target, None if features is None else tuple(features), **settings)
    place = None if out is None else Path(out)
    listed = tuple((name, tuple(values)) for name, values in (choose or {}).items())
    order = Order(table, task, budget_of(epsilon, delta, rho), listed)
    return train(context, order, evaluate=evaluate, out=place, progress=progress)


def plan_training(context: Context, order: Order) -> tuple[TableSchema, Planned | Selection]:
    """The table as the asker may name it, and the priced plan; every refusal is made here, from the policy alone."""
    from deniable.learn.training import plan_selection
    from deniable.learn.training import plan_training as plan_task

    context.admit()
    refuse_twice(order.task.features or ())
    table = context.scope.private_table(order.table)
    refuse_rows_here(table, context.scope.sources)
    unit = table.unit or PrivacyUnit()
    if order.choose:
        return table, plan_selection(table, unit, order.task, order.budget, dict(order.choose))
    return table, plan_task(table, unit, order.task, order.budget)


def predict(path: Path, source: str | Path, out: Path, progress: Progress | None = None) -> int:
    """The rows of a table with a prediction beside each: no budget, but the rows are as private as they were."""
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.learn.model import load_model

    read = [Path(each) for each in (path, source) if isinstance(each, str | Path)]  # a frame is no file
    with DuckDBEngine() as engine, claim_outputs(out, rows=True, beside=read):
        model = load_model(path)
        engine.attach("rows", source, model.schema)
        total = max(engine.count("rows"), 1)
        _refuse_columns(_name_predictions(model), [field.name for field in engine.describe("rows")])
        batches = (_predict_batch(model, batch) for batch in engine.stream("rows"))
        told = None if progress is None else lambda done: progress(done / total)
        with replace_files(out):
            return engine.write(batches, out, progress=told)


def describe_training(trained: Trained) -> TrainingReport:
    """What a training tells: public facts, and the steward's evaluation where one was asked for."""
    model, details = trained.model, cast("dict[str, Any]", trained.release.details)
    return TrainingReport(
        **model.summarize(), coefficients=model.coefficient_table(), chosen=trained.chosen,
        evaluation=trained.evaluation, notes=details.get("notes"),
    )  # fmt: skip


def describe_model(held: Trained | Path) -> ModelReport:
    """A model, or a model file, with its effects and its price; the steward's evaluation where one was asked for."""
    from deniable.learn.features import ClassTarget, Structure
    from deniable.learn.model import load_model
    from deniable.release.guarantee import to_text

    trained = held if isinstance(held, Trained) else None
    model = load_model(held) if isinstance(held, Path) else held.model
    kept = model.guarantee
    goal = f"{model.target.name} = {model.target.positive}" if isinstance(model.target, ClassTarget) else None
    epsilon, delta = ("" if amount is None else to_text(amount) for amount in (kept.epsilon, kept.delta))
    return ModelReport(
        method=model.method, target=goal or model.target.name, estimated_rows=round(model.rows), unit=kept.unit,
        features=[each.name for each in model.design.features], epsilon=epsilon, delta=delta,
        shares=dict(zip(model.parts, model.shares or (), strict=True)) if isinstance(model.target, Structure) else None,
        effects=model.list_effects(), evaluation=None if trained is None else trained.evaluation,
        curves=None if trained is None else trained.curves,
    )  # fmt: skip


def _bound_rows(engine: Any, table: TableSchema, what: Planned) -> pa.Table:
    """The rows, at most so many of each unit, chosen by a fresh secret salt; with the unit's column, if any."""
    from deniable.learn.features import Structure
    from deniable.synth.describe import render_bounded_select

    assert table.unit is not None
    unit = (table.unit.column,) if table.unit.column is not None else ()
    target = () if isinstance(what.target, Structure) else (what.target.name,)
    columns = (*(each.name for each in what.design.features), *target, *unit)
    rows: pa.Table = engine.run(render_bounded_select(table, table.unit, table.unit.rows_learned, columns))
    return rows


def _split_rows(rows: pa.Table, table: TableSchema, evaluate: bool) -> tuple[pa.Table, pa.Table]:
    """The rows to learn from and those to test on: whole units, each by its own coin."""
    import numpy as np

    from deniable.dp.samplers import bernoulli

    if not evaluate:
        return rows, rows.slice(0, 0)
    assert table.unit is not None
    if table.unit.column is None:
        held = bernoulli(HELD_OUT, rows.num_rows)
    else:
        units = rows.column(table.unit.column).combine_chunks().dictionary_encode()
        held = bernoulli(HELD_OUT, len(units.dictionary))[units.indices.to_numpy()]
    return rows.take(np.flatnonzero(~held)), rows.take(np.flatnonzero(held))


def deal_units(rows: pa.Table, table: TableSchema, parts: int) -> list[pa.Table]:
    """The rows in so many parts: whole units, each by its own draw."""
    import numpy as np

    from deniable.dp.samplers import uniform_below

    assert table.unit is not None
    if table.unit.column is None:
        dealt = uniform_below(parts, rows.num_rows)
    else:
        units = rows.column(table.unit.column).combine_chunks().dictionary_encode()
        dealt = uniform_below(parts, len(units.dictionary))[units.indices.to_numpy()]
    return [rows.take(np.flatnonzero(dealt == part)) for part in range(parts)]


def _learn(what: Planned, rows: pa.Table, progress: Progress | None) -> LearnedModel:
    from deniable.learn.training import train_model

    return train_model(what, rows, progress=progress)


def _release_model(
    context: Context, order: Order, result: JobResult[Any], out: Path | None, held_out: Fraction | None,
    notes: list[str],
) -> Release:  # fmt: skip
    """The model as a release: its coefficients as rows, or the file that was written."""
    import pyarrow as pa

    from deniable.learn.model import save_model
    from deniable.release import Provenance, Release, seal

    model: LearnedModel = result.measured[0]
    parameters = {"table": order.table, **asdict(replace(order.task, module=None))}
    details = {**model.summarize(), **({"notes": notes} if notes else {})}
    parameters.pop("module")  # what it is stands in the details
    if result.measured[1] is not None:
        # What was listed, and what was chosen: the other settings are public, since the order is.
        parameters |= {"choose": {name: list(values) for name, values in order.choose}, "chosen": result.measured[1]}
    if held_out is not None:
        parameters["held_out"] = float(held_out)  # so many of the people were not learned from
    provenance = Provenance(context.policy.hash, result.versions, parameters, epoch=result.epoch)
    if out is None:
        rows = pa.Table.from_pylist([each.to_dict() for each in model.coefficient_table()])
        return Release(rows, model.guarantee, provenance, details)
    with replace_files(out):
        save_model(model, out)
        sealed = seal(out, model.guarantee, provenance, details, key=find_signing_key(context))
        note_published(context, sealed, result.release)
    return Release(out, model.guarantee, provenance, details)


def _evaluate(model: LearnedModel, rows: pa.Table, held: pa.Table) -> dict[str, Any] | None:
    """Figures on the rows that were held out; none where there are none."""
    from deniable.assess.utility import score_classification, score_regression
    from deniable.learn.features import LabelsTarget, NumberTarget, Structure, encode_target
    from deniable.learn.model import convert_to_units

    if isinstance(model.target, Structure):
        return _score_structure(model, rows, held)
    (seen, has), (test, known) = encode_target(model.target, rows), encode_target(model.target, held)
    guess = model.predict(held)[known]
    if isinstance(model.target, NumberTarget):
        numbers = score_regression(
            convert_to_units(model.target, test[known]), guess, convert_to_units(model.target, seen[has])
        )
        return None if numbers is None else asdict(numbers)
    if isinstance(model.target, LabelsTarget):
        return _score_labels(test[known], guess, seen[has])
    found = score_classification(test[known] == 1, guess, seen[has] == 1)
    return None if found is None else asdict(found)


CURVE_POINTS = 20


def trace_curves(model: LearnedModel, held: pa.Table) -> list[CurvePoint] | None:
    """Of one value against all others, on rows held out: found against false alarms, and true against told."""
    import numpy as np

    from deniable.learn.features import ClassTarget, encode_target

    truth, known = encode_target(model.target, held)
    if not isinstance(model.target, ClassTarget) or not known.any():
        return None
    chances, wanted = model.predict(held)[known], truth[known] == 1
    points = []
    for limit in (np.inf, *np.quantile(chances, np.linspace(1, 0, CURVE_POINTS + 1))):
        said = chances >= limit
        points.append(CurvePoint("roc", _share(said[~wanted]), _share(said[wanted])))
    parts = np.array_split(np.argsort(chances, kind="stable"), min(CURVE_POINTS // 2, len(chances)))
    return points + [CurvePoint("calibration", float(chances[part].mean()), _share(wanted[part])) for part in parts]


def _share(flags: NDArray[np.bool_]) -> float:
    return float(flags.mean()) if len(flags) else 0.0


def _score_labels(
    truth: NDArray[np.int64], chances: NDArray[np.float64], seen: NDArray[np.int64]
) -> dict[str, Any] | None:
    """How often the likeliest value is the right one, and how often the commonest would be."""
    import numpy as np

    if not len(truth):
        return None
    commonest = int(np.bincount(seen, minlength=chances.shape[1]).argmax())
    shares = {"accuracy": chances.argmax(axis=1) == truth, "majority": truth == commonest}
    return {"rows": len(truth), **{name: float(right.mean()) for name, right in shares.items()}}


def _score_structure(model: LearnedModel, rows: pa.Table, held: pa.Table) -> dict[str, Any] | None:
    """How much of the variance of the entries the groups or components explain, on rows held out."""
    import numpy as np

    from deniable.learn.features import STEPS, encode_rows

    if not held.num_rows:
        return None
    seen, test = (encode_rows(model.design, part)[:, 1:] / STEPS for part in (rows, held))
    away = test - (seen.mean(axis=0) if len(seen) else 0.0)
    if model.method == "kmeans":
        left = float(model.losses(held).sum())
    else:
        axes = np.array(model.coefficients).reshape(-1, model.design.width)[:, 1:]
        left = float(((away - away @ axes.T @ axes) ** 2).sum())
    whole = float((away**2).sum())
    return {"rows": held.num_rows, "explained": 1 - left / whole if whole else None}


def _name_predictions(model: LearnedModel) -> list[str]:
    """The columns that predictions have: the number or likeliest value, the probability, or both.

    Of groups, the number of the nearest one, from 1; of components, the coordinates.
    """
    from deniable.learn.features import GROUP, ClassTarget, NumberTarget, Structure

    if isinstance(model.target, Structure):
        return [GROUP] if model.target.name == GROUP else [name.replace(" ", "_") for name in model.parts]
    guess, chance = f"predicted_{model.target.name}", f"probability_{model.target.name}"
    if isinstance(model.target, NumberTarget):
        return [guess]
    return [chance] if isinstance(model.target, ClassTarget) else [guess, chance]


def _refuse_columns(made: list[str], there: list[str]) -> None:
    for name in made:
        if name in there:
            raise DataError(
                f"the rows have a column '{name}' already, which predictions are to be", remedy="Rename or drop it"
            )


def _predict_batch(model: LearnedModel, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with its predictions: the number, the probability, or the likeliest value with its probability."""
    import numpy as np
    import pyarrow as pa

    from deniable.learn.features import LabelsTarget

    found, names = model.predict(batch), _name_predictions(model)
    columns = [pa.array(column) for column in np.atleast_2d(found.T)]
    if model.method == "kmeans":
        columns = [pa.array(found.astype(np.int64) + 1)]
    if isinstance(model.target, LabelsTarget):
        likely = pa.array(model.target.column.labels).take(pa.array(found.argmax(axis=1)))
        columns = [likely, pa.array(np.max(found, axis=1))]
    for name, column in zip(names, columns, strict=True):
        batch = batch.append_column(name, column)
    return batch
