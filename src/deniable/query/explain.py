"""Explanations: what a question measures and costs, without touching data, as records that are printed as they are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Any

from deniable.dp.accounting.cost import round_up
from deniable.dp.mechanisms import GaussianMechanism, LaplaceMechanism, QuantileMechanism
from deniable.errors import pluralize
from deniable.policy.budget import ZCDP, Amount, Budget
from deniable.policy.budget import exact as exact_amount
from deniable.query.algebra.expression import from_number, to_number
from deniable.query.algebra.relation import (
    Join,
    Measure,
    Measured,
    PerUnit,
    PublicSelect,
    Relation,
    Scan,
    Transform,
    Union,
    inputs_of,
    is_private,
    tag_of,
)
from deniable.query.answers import list_keys
from deniable.query.keys import FromTable, Listed, PrivateKeys
from deniable.query.measurements import Distinct, Measurement, Ordered, Part, Recipe, Rows, Total, Units
from deniable.query.plan import Joint, Limits, NodePlan, Placed, QueryPlan, Step
from deniable.query.sql import private_sql
from deniable.release.record import Record, SparseRecord


@dataclass(frozen=True, slots=True, eq=False)
class KeyedRecord(Record):
    """A record whose field `keyed_by` is shown as `keys`: as an attribute, that name is a method of mappings."""

    def __getitem__(self, name: str) -> Any:
        return Record.__getitem__(self, "keyed_by" if name == "keys" else name)

    def __iter__(self) -> Iterator[str]:
        return ("keys" if name == "keyed_by" else name for name in Record.__iter__(self))


@dataclass(frozen=True, slots=True, eq=False)
class MeasurementPlan(SparseRecord):
    """One noisy measurement: what it measures, how far one unit moves it, which noise, and how large the error is.

    `bounds` are those that the numbers of a sum are clamped to. `sensitivity` is in the whole numbers that get noise,
    `moves` is the same in the unit of the error.
    """

    measures: str
    stability: str
    sensitivity: int
    mechanism: str
    scale: float | None
    error: float
    error_in: str
    confidence: float
    share: str
    moves: float
    bounds: list[float] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AggregatePlan(KeyedRecord):
    """One aggregate of a question with its keys, how many groups there are, and the measurements it is made of."""

    aggregate: str
    keyed_by: str
    groups: int | None
    measurements: list[MeasurementPlan]

    @property
    def is_mean(self) -> bool:
        """Whether it is a mean of numbers: a sum within bounds, over a number of rows."""
        bounded = [part for part in self.measurements if part.bounds is not None]
        return self.aggregate.upper().startswith("AVG(") and len(self.measurements) == 2 and len(bounded) == 1

    @property
    def fewest_rows(self) -> int:
        """A power of ten that is at least twice the error of a mean's number of rows, and 100."""
        return int(10 ** max(2, math.ceil(math.log10(max(1.0, 2 * self._split_mean()[1].error)))))

    def bound_mean(self, rows: int) -> float:
        """The error of a mean over so many rows, at most; for those that are means.

        A mean is its center plus the sum about the center over the number of rows. With errors s and c of the two, n
        rows, and values at most h from the center, it is at most (s + h c) / (n - c) from the truth, and never farther
        than 2h.
        """
        total, count = self._split_mean()
        low, high = total.bounds or (0.0, 0.0)
        return min(high - low, (total.error + (high - low) / 2 * count.error) / (rows - count.error))

    def _split_mean(self) -> tuple[MeasurementPlan, MeasurementPlan]:
        """The sum and the number of rows of a mean."""
        one, two = self.measurements
        return (one, two) if one.bounds is not None else (two, one)


@dataclass(frozen=True, slots=True, eq=False)
class PlanSummary(Record):
    """What goes with every answer: the cost, each aggregate with its error, the columns it is grouped by, and notes."""

    cost: dict[str, str]
    aggregates: list[AggregatePlan]
    grouped_by: list[str]
    notes: list[str]


@dataclass(frozen=True, slots=True, eq=False)
class Explanation(Record):
    """What a plan measures and costs, whom it protects, and the statements that would run."""

    cost: dict[str, str]
    strategy: str
    unit: str
    neighbors: str | None
    relations: list[dict[str, str]]
    aggregates: list[AggregatePlan]
    statements: list[str]
    notes: list[str]


@dataclass(frozen=True, slots=True, eq=False)
class QuestionExplanation(Explanation):
    """An explanation for one asker: what is left before the question, and how many more like it fit."""

    remaining: dict[str, str] | None
    more_like_this: int | None


@dataclass(frozen=True, slots=True, eq=False)
class BoundsExplanation(Explanation):
    """The explanation of a question that is asked first, to find the bounds of an expression."""

    finds: str


@dataclass(frozen=True, slots=True, eq=False)
class StagedExplanation(QuestionExplanation):
    """The explanation of a question that finds bounds first; the cost is that of all stages."""

    bounds: list[BoundsExplanation]


@dataclass(frozen=True, slots=True, eq=False)
class BatchQuestion(Record):
    """One question of a batch: the numbers of those that it is measured together with, their share, and its errors."""

    sql: str
    together: list[int]
    share: str
    alone: str
    """Why it is measured alone; empty where it is measured together with others."""
    aggregates: list[AggregatePlan]
    notes: list[str]


@dataclass(frozen=True, slots=True, eq=False)
class BatchExplanation(Record):
    """What a batch of questions measures and costs, whom it protects, and the statements that would run."""

    cost: dict[str, str]
    unit: str
    neighbors: str | None
    remaining: dict[str, str] | None
    more_like_this: int | None
    questions: list[BatchQuestion]
    statements: list[str]
    notes: list[str]


@dataclass(frozen=True, slots=True, eq=False)
class ErrorPoint(Record):
    """A point of a curve: the expected error of a measurement at an epsilon."""

    epsilon: float
    measurement: str
    error: float
    error_in: str


@dataclass(frozen=True, slots=True, eq=False)
class BiasEstimate(Record):
    """About how many units clamping or a bound has cut, with the error of that number."""

    counts: str
    units: int
    error: float


@dataclass(frozen=True, slots=True, eq=False)
class SetPlan(Record):
    """One grouping set: its cells, its share of the budget, and the standard error as measured and as fitted."""

    name: str
    cells: int
    share: str
    error_measured: float
    error_fitted: float


@dataclass(frozen=True, slots=True, eq=False)
class SetsSummary(Record):
    """The grouping sets of a hierarchy or of margins, and the noise that was chosen for them."""

    sets: list[SetPlan]
    strategy: str


@dataclass(frozen=True, slots=True, eq=False)
class SetsExplanation(Explanation):
    """The explanation of a hierarchy or of margins."""

    sets: list[SetPlan]


@dataclass(frozen=True, slots=True, eq=False)
class CostSummary(Record):
    """What every technique tells: the cost, whom it protects, and what is left."""

    cost: dict[str, str]
    unit: str
    neighbors: str
    remaining: dict[str, str] | None


@dataclass(frozen=True, slots=True, eq=False)
class TopSummary(Record):
    """How the k largest groups are chosen and counted."""

    k: int
    groups: int | None
    choice: str
    choice_error: int
    count_mechanism: str
    count_error: int
    statement: str


@dataclass(frozen=True, slots=True, eq=False)
class TopExplanation(KeyedRecord, TopSummary):
    """The k largest groups among public keys, with what they cost."""

    cost: dict[str, str]
    unit: str
    keyed_by: str


@dataclass(frozen=True, slots=True, eq=False)
class PrivateTopExplanation(KeyedRecord, Explanation):
    """The k largest groups among private keys: a question whose largest rows are kept."""

    keyed_by: str


@dataclass(frozen=True, slots=True, eq=False)
class WatchSummary(Record):
    """How a watch compares a count with its threshold."""

    threshold: int
    sensitivity: int
    mechanism: str
    scale: float
    error: int
    confidence: float
    statement: str


@dataclass(frozen=True, slots=True, eq=False)
class WatchExplanation(WatchSummary):
    """A watch with what it costs."""

    cost: dict[str, str]
    unit: str
    neighbors: str
    remaining: dict[str, str] | None


@dataclass(frozen=True, slots=True, eq=False)
class BlocksSummary(Record):
    """How a function's results on disjoint blocks of units are combined."""

    blocks: int
    aggregate: str
    bounds: list[float]
    sensitivity: str
    mechanism: str
    error: float
    error_in: str
    confidence: float


@dataclass(frozen=True, slots=True, eq=False)
class BlocksExplanation(BlocksSummary):
    """A function on disjoint blocks with what it costs."""

    cost: dict[str, str]
    unit: str
    neighbors: str
    remaining: dict[str, str] | None
    notes: list[str]


CONFIDENCE = 0.95


def explain(plan: QueryPlan, confidence: float = CONFIDENCE) -> Explanation:
    """Everything an analyst may know before asking, as plain values."""
    summary = summarize_plan(plan, confidence)
    return Explanation(
        cost=summary.cost,
        strategy=plan.strategy,
        unit=str(plan.unit) if plan.unit else "nobody: the question reads public data only",
        neighbors=plan.unit.neighboring.value if plan.unit else None,
        relations=_describe_relations(plan.relation),
        aggregates=summary.aggregates,
        statements=[text for node in plan.nodes for text in list_statements(node)],
        notes=summary.notes,
    )


def summarize_plan(plan: QueryPlan, confidence: float = CONFIDENCE) -> PlanSummary:
    """What goes with every answer: the cost, each aggregate with its error, and notes."""
    steps = [(node, step) for node in plan.nodes for step in node.steps]
    aggregates = [row for node, step in steps for row in _describe_step(node, step, confidence)]
    return PlanSummary(describe_budget(plan.cost), aggregates, list_keys(plan.relation), _list_notes(plan))


def describe_budget(budget: Budget) -> dict[str, str]:
    """A budget in decimal figures, rounded up in the last digit shown."""
    unit, amount = ("rho", budget.rho) if isinstance(budget, ZCDP) else ("epsilon", budget.epsilon)
    return {unit: _format_amount(amount), "delta": _format_amount(budget.delta)}


def _format_amount(amount: Fraction) -> str:
    return f"{float(round_up(amount, 6)):.6g}"


def _describe_relations(relation: Relation) -> list[dict[str, str]]:
    """The way from tables to the answer, from the bottom up, each step with its tag."""
    below = [row for source in inputs_of(relation) for row in _describe_relations(source)]
    named = {
        Transform: "filter and compute",
        Join: "join",
        Union: "union",
        PerUnit: "summarize each unit",
        Measured: "measure with noise",
        PublicSelect: "post-process",
    }
    what = named.get(type(relation), "nothing")
    if isinstance(relation, Scan):
        owners = "".join(f", owned through {owner.name}" for owner in relation.owners)
        what = f"read {relation.table.name}{owners}"
    row = {"step": what, "tag": tag_of(relation).value}
    return [*below, row] if not below or below[-1] != row else below


def _describe_step(node: NodePlan, step: Step, confidence: float) -> list[AggregatePlan]:
    rows = []
    for (_, aggregate), recipe in zip(node.node.aggregates, node.recipes, strict=True):
        parts = [step.placed[place] for place in recipe.places] if step.placed else []
        rows.append(
            AggregatePlan(
                aggregate=aggregate.text,
                keyed_by=_describe_keys(step),
                groups=step.keys.cells if not isinstance(step.keys, PrivateKeys) else None,
                measurements=[_describe_placed(part, step, confidence, recipe) for part in parts],
            )
        )
    return rows


def _describe_placed(placed: Placed, step: Step, confidence: float, recipe: Recipe) -> MeasurementPlan:
    sensitivity, error = placed.sensitivity, placed.error(1 - confidence)
    if recipe.measure is Measure.SUM and isinstance(placed.measurement, Rows):
        error *= float(recipe.step)  # a sum of one number is a count of rows, so many times
    ranks = isinstance(placed.measurement, Ordered)
    return MeasurementPlan(
        measures=describe_measurement(placed.measurement),
        stability=_describe_stability(
            step.limits, sensitivity.groups, isinstance(placed.measurement, Ordered | Distinct)
        ),
        sensitivity=sensitivity.per_group // sensitivity.parts,
        mechanism=name_mechanism(placed),
        scale=_noise_scale(placed),
        error=error,
        error_in="ranks" if ranks else "the aggregate's own unit",
        confidence=confidence,
        share=f"{float(placed.share):.6g}",
        moves=_measure_move(placed, step.limits),
        bounds=_list_bounds(placed.measurement),
    )


def _measure_move(placed: Placed, limits: Limits) -> float:
    """How far one unit moves the number in a group; of numbers measured together, a count by the rows of the unit."""
    if placed.mixed is not None and isinstance(placed.measurement, Rows):
        return float(limits.rows or 1)
    return float(placed.sensitivity.per_group * placed.unit / placed.sensitivity.parts)


def _list_bounds(measurement: Measurement) -> list[float] | None:
    """What the numbers of a sum are clamped to; None of all else, dates among them."""
    if not isinstance(measurement, Total) or measurement.squared or not measurement.argument.facts.kind.numeric:
        return None
    return [float(end * measurement.step) for end in (measurement.lower, measurement.upper)]


def _describe_stability(limits: Limits, groups: int, sampled: bool = False) -> str:
    """How much of one unit can be in the groups."""
    if limits.by_row or limits.in_all:
        return f"{_count_rows(limits.rows)}{' in all' if limits.in_all else ''}"
    norm = f", as an L{limits.norm} norm" if limits.scaled and not sampled else ""
    return f"{pluralize(groups, 'group')}, {_count_rows(limits.rows)} in each{norm}"


def _count_rows(rows: int | None) -> str:
    return "all rows" if rows is None else pluralize(rows, "row")


def describe_measurement(measurement: Measurement) -> str:
    """A measurement in words."""
    match measurement:
        case Rows():
            return "number of rows"
        case Units():
            return "number of units"
        case Distinct(summed=True):
            return f"sum of different values, clamped to {_describe_bounds(measurement)}"
        case Distinct():
            return "number of different values"
        case Ordered(quantiles=(share,)):
            return f"value at rank {float(share):g} between {_describe_bounds(measurement)}"
        case Ordered(quantiles=shares):
            listed = ", ".join(f"{float(share):g}" for share in shares)
            return f"values at ranks {listed} between {_describe_bounds(measurement)}"
        case Part():
            return "part of a joint release"
        case Total(squared=squared, center=center):
            what = "sum of squares" if squared else "sum"
            about = f", centered at {float(center * measurement.step):g}" if center else ""
            return f"{what}{about}, values clamped to {_describe_bounds(measurement)}"


def _describe_bounds(measurement: Total | Ordered | Distinct) -> str:
    kind = measurement.argument.facts.kind
    ends = (from_number(kind, end * measurement.step) for end in (measurement.lower, measurement.upper))
    return " and ".join(str(end) if isinstance(end, date) else f"{float(to_number(end)):g}" for end in ends)


def name_mechanism(placed: Placed) -> str:
    """The mechanism in the words of the field."""
    match placed.mechanism:
        case LaplaceMechanism():
            return "discrete Laplace"
        case GaussianMechanism():
            return "discrete Gaussian"
        case QuantileMechanism(flips=flips, order=order):
            name = "permute-and-flip" if flips else "exponential"
            return f"{name}, one inside the other in {order.choices} levels" if order.joint else name


def _noise_scale(placed: Placed) -> float | None:
    step = float(placed.unit) / placed.sensitivity.parts
    step *= 1.0 if placed.mixed is None else math.sqrt(placed.mixed.squares)
    match placed.mechanism:
        case LaplaceMechanism(scale):
            return float(scale) * step
        case GaussianMechanism(variance):
            return math.sqrt(variance) * step
        case _:
            return None


def _describe_keys(step: Step) -> str:
    if not step.places:
        return "none, one row for everybody"
    if isinstance(step.keys, PrivateKeys):
        assert step.threshold is not None
        return f"private ({step.keys.reason}): shown from {step.threshold.threshold} units (with noise) on"
    parts = [pluralize(len(part.values), "declared value") if isinstance(part, Listed)
             else f"those of public table {part.table.table.name}"
             for part in step.keys.parts if isinstance(part, Listed | FromTable)]  # fmt: skip
    return f"{' x '.join(parts)}; all are shown"


def list_statements(node: NodePlan) -> list[str]:
    """The bounded SQL that will run; the salt is drawn when it does."""
    texts = []
    for step in node.steps:
        text = private_sql.render_step(node.node, step, 0)
        texts += [text] if text is not None else []
        texts += [private_sql.render_value_counts(node.node, step.places, p.measurement, step.limits, step.keys, 0)
                  for p in step.placed if isinstance(p.measurement, Ordered | Distinct)]  # fmt: skip
    return texts


def _describe_joint(node: NodePlan, step: Step, joint: Joint) -> str:
    """What is measured together, how, and what that does to the price."""
    block, cells = joint.block, joint.block.cells.count
    used = set(block.places)
    both = zip(node.node.aggregates, node.recipes, strict=True)
    named = [asked.text for (_, asked), recipe in both if used & {*recipe.places}]
    listed = ", ".join(list(dict.fromkeys(named))[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")
    over = "" if cells == 1 else f" Their conditions divide the rows into {cells} disjoint cells."
    bound = "" if step.limits.by_row else " The bounds of a unit's rows hold for all of them together."
    return (
        f"{listed} {'is' if len(named) == 1 else 'are'} measured together, for the price of one.{over} Noise is added "
        f"to {joint.strategy.words}; the answers are computed from these noisy numbers (least squares).{bound}"
    )


def _list_notes(plan: QueryPlan) -> list[str]:
    steps = [step for node in plan.nodes for step in node.steps]
    joints = [(node, step, joint) for node in plan.nodes for step in node.steps for joint in step.joints]
    notes = list(dict.fromkeys(_describe_joint(*each) for each in joints))
    if any(step.limits.groups is not None and not step.limits.scaled for step in steps):
        most = _list_most(step.limits.groups for step in steps if not step.limits.scaled)
        groups = "group of each unit counts" if most == "1" else "groups of each unit count"
        notes.append(f"At most {most} {groups}, chosen anew at random: totals may be low if it has more.")
    if any(step.limits.in_all for step in steps):
        most = _list_most(step.limits.rows for step in steps if step.limits.in_all)
        rows = "row of each unit counts" if most == "1" else "rows of each unit count"
        notes.append(f"At most {most} {rows}, chosen at random: totals may be low if it has more.")
    if any(step.limits.scaled for step in steps):
        notes.append("A unit with more rows than the bounds over all groups is scaled down to them: totals may be low.")
    grouped = [step.limits for step in steps if step.placed]
    grouped = [each for each in grouped if not (each.by_row or each.in_all or each.scaled)]
    if grouped:
        most = _list_most(each.rows for each in grouped)
        rows = "row of each unit counts" if most == "1" else "rows of each unit count"
        notes.append(f"At most {most} {rows} in a group: totals may be low if it has more.")
    if any(node.steps[0].limits.by_row and _meets_public_rows(node.node.input) for node in plan.nodes):
        notes.append("A row that meets several public rows in a join counts with the first of them: totals may be low.")
    if any(isinstance(p.measurement, Total) for step in steps for p in step.placed):
        notes.append("Values outside their bounds are clamped to them before they are summed.")
    if any(isinstance(p.mechanism, QuantileMechanism) and p.mechanism.order.joint for s in steps for p in s.placed):
        notes.append(
            "Quantiles of one column are chosen together: the middle first, then each side among its own rows."
        )
    if any(isinstance(step.keys, PrivateKeys) for step in steps):
        notes.append("Groups with few units may be missing.")
    elif any(step.places and not step.placed for step in steps):
        notes.append("No aggregate is asked: these are the values that the policy declares, whoever has them or not.")
    elif any(step.places for step in steps):
        names = ", ".join(f"'{name}'" for name in list_keys(plan.relation)) or "a key"
        notes.append(f"Rows with a missing or undeclared value of {names} are not counted.")
        notes.append("A group without rows shows noise: its number can be above 0.")
    return notes


def _list_most(bounds: Iterable[int | None]) -> str:
    """Bounds that differ between the steps of a question, such as `2 or 3`."""
    return " or ".join(str(each) for each in sorted({bound for bound in bounds if bound is not None}))


def _meets_public_rows(relation: Relation) -> bool:
    """Whether private rows are joined with public ones, of which several may match."""
    own = isinstance(relation, Join) and not relation.single and not is_private(relation.right)
    return own or any(_meets_public_rows(below) for below in inputs_of(relation))


def compute_error_curve(plans: Iterable[tuple[Amount, QueryPlan]], confidence: float = CONFIDENCE) -> list[ErrorPoint]:
    """Expected error against epsilon: one row for each epsilon and each measurement of each aggregate.

    Of a mean it is the error of the mean itself, over so many rows as are enough for it at the least epsilon.
    """
    told = [(float(exact_amount(epsilon, "epsilon")), summarize_plan(plan, confidence).aggregates)
            for epsilon, plan in plans]  # fmt: skip
    means = [row for _, rows in told for row in rows if row.is_mean]
    fewest = max((row.fewest_rows for row in means), default=0)
    return [
        ErrorPoint(epsilon, name, error, unit)
        for epsilon, rows in told
        for row in rows
        for name, error, unit in _list_errors(row, fewest)
    ]


def _list_errors(row: AggregatePlan, fewest: int) -> Iterator[tuple[str, float, str]]:
    """The errors of an aggregate with their names and units: of a mean one, of others those of their measurements."""
    if row.is_mean:
        yield f"{row.aggregate} over {fewest:,} rows", row.bound_mean(fewest), "the aggregate's own unit"
        return
    for part in row.measurements:
        yield f"{row.aggregate}: {part.measures}", part.error, part.error_in
