"""What is told of a question before it is asked: records of plain values, read from a plan and never from rows.

Each is a mapping of its fields, in the order in which they are printed; `to_dict` gives it as JSON has it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from deniable.release.record import Record


@dataclass(frozen=True, slots=True, eq=False)
class KeyedRecord(Record):
    """A record whose field `keyed_by` is shown as `keys`: as an attribute, that name is a method of mappings."""

    def __getitem__(self, name: str) -> Any:
        return Record.__getitem__(self, "keyed_by" if name == "keys" else name)

    def __iter__(self) -> Iterator[str]:
        return ("keys" if name == "keyed_by" else name for name in Record.__iter__(self))


@dataclass(frozen=True, slots=True, eq=False)
class MeasurementPlan(Record):
    """One noisy measurement: what it measures, how far one unit moves it, which noise, and how large the error is."""

    measures: str
    stability: str
    sensitivity: int
    mechanism: str
    scale: float | None
    error: float
    error_in: str
    confidence: float
    share: str


@dataclass(frozen=True, slots=True, eq=False)
class AggregatePlan(KeyedRecord):
    """One aggregate of a question with its keys, how many groups there are, and the measurements it is made of."""

    aggregate: str
    keyed_by: str
    groups: int | None
    measurements: list[MeasurementPlan]


@dataclass(frozen=True, slots=True, eq=False)
class PlanSummary(Record):
    """What goes with every answer: the cost, each aggregate with its error, and notes."""

    cost: dict[str, str]
    aggregates: list[AggregatePlan]
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
