"""Published tables: the records behind counts, means and medians, and the cells behind margins.

Record reconstruction follows Garfinkel, Abowd and Martindale (2018). A world is a list of records, kept in order, first
by the attribute whose medians were published, so that every world is written in one way only and the k-th member of a
group is known by its place. A constraint solver then finds all worlds that fit what was published. Cells of a table are
bounded by its margins, and some are given away."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.attacks import solvers
from deniable.attacks.outcome import Deadline, Outcome, Progress, Rate, tell
from deniable.attacks.solvers import find_determined, solve_least_squares
from deniable.errors import MissingExtra, ParameterError, Stopped

_FAR = 2**31

Record = tuple[int, ...]
Where = Mapping[str, tuple[int, int]]
"""Attributes and the values they may have, from and to, both included."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """A column whose values are whole numbers from `low` to `high` (ages, or categories by number)."""

    name: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Statistic:
    """What was published of a group: its count, and the mean and median of one attribute, as they were printed.

    A `count` of None was suppressed, which itself says that it is at most `suppressed`.
    """

    where: Where = field(default_factory=dict)
    count: int | None = None
    of: str = ""
    mean: Decimal | None = None
    median: Decimal | None = None
    suppressed: int = 2


@dataclass(frozen=True, slots=True)
class Worlds:
    """All worlds that fit, if `complete`; `found` of them otherwise. `certain` are the rows common to all of them."""

    found: int
    complete: bool
    certain: tuple[Record, ...]
    people: int

    @property
    def unique(self) -> bool:
        """Whether one world alone fits."""
        return self.complete and self.found == 1

    def outcome(self, truth: Sequence[Record] | None = None) -> Outcome:
        """People whose whole record is the same in every world that fits (and right, given the truth)."""
        right = len(self.certain)
        if truth is not None:
            right = (Counter(self.certain) & Counter(tuple(row) for row in truth)).total()
        people = self.people
        warnings = () if self.complete else ("not all worlds were found in time: what is called certain may not be",)
        return Outcome(
            "tables", "Solving the published tables", Rate(min(right, people), people), 0.0,
            figures={"worlds": self.found, "complete": self.complete, "unique": self.unique}, warnings=warnings,
        )  # fmt: skip


def find_worlds(
    attributes: Sequence[Attribute],
    statistics: Sequence[Statistic],
    *,
    most: int = 1000,
    seconds: float | None = 60.0,
) -> Worlds:
    """Find the records behind published statistics of a small area.

    **Scenario.** An office publishes counts, means and medians of a block, small counts suppressed; the intruder wants
    the records. Success is a record that every consistent world has.
    **Method.** One whole number for each kind of person, constraints from each statistic, and all solutions (CP-SAT).
    **Outcome.** The number of worlds, whether all were found, and the rows common to all.
    """
    cp = solvers.load_cp_sat()
    _check(attributes, statistics)
    people = max((s.count for s in statistics if s.count is not None and not s.where), default=None)
    if people is None:
        raise ParameterError("The total is not published", expected="A statistic without conditions that has a count")
    draft = _Draft(cp.CpModel(), _order_attributes(attributes, statistics), people)
    for statistic in statistics:
        draft.constrain(statistic)
    return _enumerate_worlds(cp, draft, attributes, most, seconds)


def _check(attributes: Sequence[Attribute], statistics: Sequence[Statistic]) -> None:
    names = {a.name for a in attributes}
    for statistic in statistics:
        unknown = set(statistic.where) | ({statistic.of} if statistic.of else set())
        if unknown - names:
            raise ParameterError(
                f"A statistic names '{min(unknown - names)}'", expected=f"The attributes are {', '.join(sorted(names))}"
            )
        if (statistic.mean is not None or statistic.median is not None) and (not statistic.of or not statistic.count):
            raise ParameterError("A mean or median has no attribute or no count", expected="of=... and count=...")


def _order_attributes(attributes: Sequence[Attribute], statistics: Sequence[Statistic]) -> list[Attribute]:
    """The attributes, that with medians first."""
    middle = {statistic.of for statistic in statistics if statistic.median is not None}
    if len(middle) > 1:
        raise ParameterError("Medians of several attributes", expected="Medians of one attribute")
    return sorted(attributes, key=lambda attribute: attribute.name not in middle)


class _Draft:
    """The model in the making: one variable a person and attribute, records in order."""

    def __init__(self, model: Any, attributes: Sequence[Attribute], people: int) -> None:
        self.model, self.people = model, people
        self.of = {
            a.name: [model.new_int_var(a.low, a.high, f"{a.name}{i}") for i in range(people)] for a in attributes
        }
        self._literals: dict[tuple[str, int, int, int], Any] = {}
        keys = [self._key(attributes, person) for person in range(people)]
        for before, after in pairwise(keys):
            model.add(before <= after)

    def _key(self, attributes: Sequence[Attribute], person: int) -> Any:
        """A record as one number, so that records can be put in order."""
        key: Any = 0
        for a in attributes:
            key = key * (a.high - a.low + 1) + (self.of[a.name][person] - a.low)
        return key

    def constrain(self, statistic: Statistic) -> None:
        """What one published statistic demands."""
        inside = [self._inside(person, statistic.where) for person in range(self.people)]
        if statistic.count is None:
            self.model.add(sum(inside) <= statistic.suppressed)
            return
        self.model.add(sum(inside) == statistic.count)
        if statistic.mean is not None:
            self._mean(inside, statistic.of, statistic.count, statistic.mean)
        if statistic.median is not None:
            self._median(inside, statistic.of, statistic.count, statistic.median)

    def _inside(self, person: int, where: Where) -> Any:
        """A literal that is true exactly when the person fits all conditions."""
        parts = [self._within(name, person, *limits) for name, limits in where.items()]
        if len(parts) == 1:
            return parts[0]
        both = self.model.new_bool_var("")
        self.model.add_bool_and(parts).only_enforce_if(both)
        self.model.add_bool_or([*(part.negated() for part in parts), both])
        return both

    def _within(self, name: str, person: int, low: int, high: int) -> Any:
        """A literal that is true exactly when an attribute lies within limits; made once for all statistics."""
        at = (name, person, low, high)
        if at not in self._literals:
            literal, value = self.model.new_bool_var(""), self.of[name][person]
            within, beyond = _make_domains(low, high)
            self.model.add_linear_expression_in_domain(value, within).only_enforce_if(literal)
            self.model.add_linear_expression_in_domain(value, beyond).only_enforce_if(literal.negated())
            self._literals[at] = literal
        return self._literals[at]

    def _mean(self, inside: Sequence[Any], name: str, count: int, mean: Decimal) -> None:
        """A printed mean stands for every mean that rounds to it: half a unit of its last place either way."""
        total: Any = 0
        for person, literal in enumerate(inside):
            value = self.of[name][person]
            part = self.model.new_int_var(-_FAR, _FAR, "")
            self.model.add(part == value).only_enforce_if(literal)
            self.model.add(part == 0).only_enforce_if(literal.negated())
            total += part
        unit = Decimal(1).scaleb(int(mean.as_tuple().exponent))
        low, high = (count * (mean + sign * unit / 2) for sign in (-1, 1))
        self.model.add(total >= math.ceil(low))
        self.model.add(total <= math.floor(high))

    def _median(self, inside: Sequence[Any], name: str, count: int, median: Decimal) -> None:
        """The middle value, or the mean of the two in the middle; an odd printed digit may have been rounded."""
        lower = self._member(inside, name, (count + 1) // 2)
        upper = lower if count % 2 else self._member(inside, name, count // 2 + 1)
        twice = 2 * median
        self.model.add(lower + upper >= math.floor(twice))
        self.model.add(lower + upper <= math.ceil(twice))

    def _member(self, inside: Sequence[Any], name: str, rank: int) -> Any:
        """The value of the rank-th member of a group: people are in order, so members are counted from the first."""
        value, picks = self.model.new_int_var(-_FAR, _FAR, ""), []
        for person, literal in enumerate(inside):
            pick = self.model.new_bool_var("")
            self.model.add_implication(pick, literal)
            self.model.add(sum(inside[: person + 1]) == rank).only_enforce_if(pick)
            self.model.add(value == self.of[name][person]).only_enforce_if(pick)
            picks.append(pick)
        self.model.add_exactly_one(picks)
        return value


def _make_domains(low: int, high: int) -> tuple[Any, Any]:
    """The numbers within limits, and those beyond."""
    domain = solvers.load_cp_sat().Domain
    return domain(low, high), domain.from_intervals([[-_FAR, low - 1], [high + 1, _FAR]])


def _enumerate_worlds(
    cp: Any, draft: _Draft, attributes: Sequence[Attribute], most: int, seconds: float | None
) -> Worlds:
    """Solve, forbid what was found, solve again, until nothing fits: proves the number of worlds."""
    common: Counter[Record] | None = None
    deadline, found = Deadline(seconds), 0
    while found < most:
        solver = cp.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.random_seed = 1
        if deadline.left is not None:
            solver.parameters.max_time_in_seconds = deadline.left
        status = solver.solve(draft.model)
        if status not in (cp.OPTIMAL, cp.FEASIBLE):
            certain = tuple(sorted((common or Counter()).elements()))
            return Worlds(found, status == cp.INFEASIBLE, certain, draft.people)
        world = [tuple(solver.value(draft.of[a.name][i]) for a in attributes) for i in range(draft.people)]
        common = Counter(world) if common is None else common & Counter(world)
        found += 1
        _forbid(draft, attributes, world)
    return Worlds(found, False, tuple(sorted((common or Counter()).elements())), draft.people)


def _forbid(draft: _Draft, attributes: Sequence[Attribute], world: Sequence[Record]) -> None:
    """At least one attribute of one person must differ; worlds are in order, so none comes twice in disguise."""
    variables = [draft.of[a.name][i] for i in range(draft.people) for a in attributes]
    draft.model.add_forbidden_assignments(variables, [[value for record in world for value in record]])


Margin = tuple[tuple[int, ...], NDArray[np.int64]]
"""Which axes of the table a margin keeps, and its published counts."""


@dataclass(frozen=True, eq=False)
class CellBounds:
    """The least and the greatest each cell can be, and the total of all; `share` of the cells is given away exactly."""

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    total: int

    @property
    def given_away(self) -> NDArray[np.bool_]:
        """Which cells the margins determine."""
        return np.asarray(self.low == self.high)

    @property
    def share(self) -> float:
        """The share of cells that the margins determine."""
        return float(self.given_away.mean()) if self.low.size else 0.0


def bound_two_way_cells(rows: Sequence[int], columns: Sequence[int]) -> CellBounds:
    """Bounds of a two-way table from its row and column sums: max(0, r + c - n) to min(r, c), each attained.

    >>> bounds = bound_two_way_cells([12, 18], [14, 16])
    >>> bounds.low.tolist(), bounds.high.tolist()
    ([[0, 0], [2, 4]], [[12, 12], [14, 16]])
    """
    down, across = np.asarray(rows, np.int64)[:, None], np.asarray(columns, np.int64)[None, :]
    if down.sum() != across.sum():
        raise ParameterError("The margins do not add up to the same total")
    total = int(down.sum())
    return CellBounds(np.maximum(0, down + across - total), np.minimum(down, across), total)


def bound_margins(shape: Sequence[int], margins: Sequence[Margin], *, seconds: float | None = None) -> CellBounds:
    """Bounds of every cell by the cheapest means that has them.

    Row and column sums of a two-way table have a closed form. Everything else is a linear program; without the solver
    (the extra `solvers`) cells are found that follow by adding and subtracting alone.
    """
    by_axes = dict(margins)
    if len(shape) == 2 and len(margins) == 2 and set(by_axes) == {(0,), (1,)}:
        _build_constraints(shape, margins)
        return bound_two_way_cells(by_axes[0,].tolist(), by_axes[1,].tolist())
    try:
        return bound_cells(shape, margins, seconds=seconds)
    except MissingExtra:
        return _bound_by_elimination(shape, margins)


def _bound_by_elimination(shape: Sequence[int], margins: Sequence[Margin]) -> CellBounds:
    """Cells that are determined by elimination; of the others, that they are at most every margin they are in."""
    matrix, totals = _build_constraints(shape, margins)
    most = np.where(matrix > 0, totals[:, None], np.inf).min(axis=0)
    fixed = find_determined(matrix.astype(np.int64))
    values = np.round(solve_least_squares(matrix.astype(np.int64), totals))
    low, high = np.where(fixed, values, 0), np.where(fixed, values, np.minimum(most, _total(margins)))
    return CellBounds(
        low.astype(np.int64).reshape(tuple(shape)), high.astype(np.int64).reshape(tuple(shape)), _total(margins)
    )


def _total(margins: Sequence[Margin]) -> int:
    return int(margins[0][1].sum())


def bound_cells(
    shape: Sequence[int],
    margins: Sequence[Margin],
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> CellBounds:
    """Bounds of every cell of a table of any dimension from any set of margins, by linear programming.

    The linear bounds, rounded inwards, always hold; where whole numbers allow less, the true bounds may be tighter.
    """
    matrix, totals = _build_constraints(shape, margins)
    cells = matrix.shape[1]
    optimize = solvers.load_optimize()
    low, high = np.zeros(cells, np.int64), np.zeros(cells, np.int64)
    deadline = Deadline(seconds)
    for cell in range(cells):
        deadline.check()
        ends = []
        for sign in (1.0, -1.0):
            cost = np.zeros(cells)
            cost[cell] = sign
            found = optimize.linprog(cost, A_eq=matrix, b_eq=totals, bounds=(0, None), method="highs")
            if found.status == 2:
                raise ParameterError("No table has these margins", expected="Margins of one and the same table")
            if found.status != 0:
                raise Stopped("The linear program was not solved", charge="")
            ends.append(sign * found.fun)
        low[cell], high[cell] = np.ceil(ends[0] - 1e-7), np.floor(ends[1] + 1e-7)
        tell(progress, (cell + 1) / cells)
    return CellBounds(low.reshape(tuple(shape)), high.reshape(tuple(shape)), _total(margins))


def _build_constraints(
    shape: Sequence[int], margins: Sequence[Margin]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    places = np.indices(tuple(shape)).reshape(len(shape), -1)
    rows, totals = [], []
    for axes, counts in margins:
        if counts.shape != tuple(shape[axis] for axis in axes):
            raise ParameterError(f"A margin over axes {axes} has another shape than the table")
        for position in np.ndindex(counts.shape):
            inside = np.all([places[axis] == at for axis, at in zip(axes, position, strict=True)], axis=0)
            rows.append(np.broadcast_to(inside, (places.shape[1],)).astype(np.float64))
            totals.append(float(counts[position]))
    if not rows:
        raise ParameterError("No margin was given", expected="One or more published margins")
    return np.array(rows), np.array(totals)
