"""Published tables: the records behind counts, means and medians.

Record reconstruction follows Garfinkel, Abowd and Martindale (2018). A world is a list of records, kept in order, first
by the attribute whose medians were published, so that every world is written in one way only and the k-th member of a
group is known by its place. A constraint solver then finds all worlds that fit what was published."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import Any

from deniable.attacks import solvers
from deniable.attacks.outcome import Deadline, Outcome, Rate
from deniable.errors import ParameterError

_FAR = 2**31
MOST_WORLDS = 10_000
"""So many worlds are counted at most."""

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

    A `count` of None was suppressed, which itself says that it is at most `suppressed`. A mean with decimals was
    rounded to the last of them; `rounded` says to what, where that is something else (1 for whole numbers).
    """

    where: Where = field(default_factory=dict)
    count: int | None = None
    of: str = ""
    mean: Decimal | None = None
    median: Decimal | None = None
    suppressed: int = 2
    rounded: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Worlds:
    """All worlds that fit, if `complete`; `found` of them otherwise.

    `certain` are the rows common to all worlds; that they are is `proven`, however many worlds there are.
    """

    found: int
    complete: bool
    certain: tuple[Record, ...]
    people: int
    proven: bool

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
        warnings = () if self.proven else ("the time ended first: what is called certain may not be",)
        return Outcome(
            "tables", "Solving the published tables", Rate(min(right, people), people), 0.0,
            figures={"worlds": self.found, "complete": self.complete, "unique": self.unique,
                     "proven": self.proven}, warnings=warnings,
        )  # fmt: skip


def find_worlds(
    attributes: Sequence[Attribute],
    statistics: Sequence[Statistic],
    *,
    most: int = MOST_WORLDS,
    seconds: float | None = 60.0,
) -> Worlds:
    """Find the records behind published statistics of a small area.

    **Scenario.** An office publishes counts, means and medians of a block, small counts suppressed; the intruder wants
    the records. Success is a record that every consistent world has.
    **Method.** One whole number for each person and attribute, constraints from each statistic (CP-SAT). Rows that all
    worlds share are found by asking for a world that lacks one of them, until there is none; worlds are then counted.
    **Outcome.** The rows common to all worlds, and the number of worlds up to `most`, and whether these are all.
    """
    cp = solvers.load_cp_sat()
    _check(attributes, statistics)
    people = max((s.count for s in statistics if s.count is not None and not s.where), default=None)
    if people is None:
        raise ParameterError("The total is not published", expected="A statistic without conditions that has a count")
    draft = _Draft(cp.CpModel(), _order_attributes(attributes, statistics), people)
    for statistic in statistics:
        draft.constrain(statistic)
    return _solve_worlds(cp, draft, attributes, most, seconds)


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
        self._both: dict[tuple[Any, ...], Any] = {}
        self._demand: Any = None
        keys = [self._key(attributes, person) for person in range(people)]
        for before, after in pairwise(keys):
            model.add(before <= after)

    def _key(self, attributes: Sequence[Attribute], person: int) -> Any:
        """A record as one number, so that records can be put in order."""
        key: Any = 0
        for a in attributes:
            key = key * (a.high - a.low + 1) + (self.of[a.name][person] - a.low)
        return key

    def read_world(self, value: Callable[[Any], int], attributes: Sequence[Attribute]) -> list[Record]:
        """The records of a solution, in the order in which attributes were given."""
        return [tuple(value(self.of[a.name][i]) for a in attributes) for i in range(self.people)]

    def demand_fewer(self, common: Counter[Record], attributes: Sequence[Attribute]) -> None:
        """Ask for a world that lacks something of what all worlds so far have in common."""
        self.drop_demand()
        self._demand = self.model.new_bool_var("")
        ways = []
        for record, times in common.items():
            fewer = self.model.new_bool_var("")
            where = {a.name: (v, v) for a, v in zip(attributes, record, strict=True)}
            copies = sum(self._inside(person, where) for person in range(self.people))
            self.model.add(copies < times).only_enforce_if(fewer)
            self.model.add(copies >= times).only_enforce_if(fewer.negated())
            ways.append(fewer)
        self.model.add_bool_or([*ways, self._demand.negated()])
        self.model.add_assumption(self._demand)

    def drop_demand(self) -> None:
        """Ask for any world again."""
        if self._demand is not None:
            self.model.clear_assumptions()
            self.model.add(self._demand == 0)
            self._demand = None

    def constrain(self, statistic: Statistic) -> None:
        """What one published statistic demands."""
        inside = [self._inside(person, statistic.where) for person in range(self.people)]
        if statistic.count is None:
            self.model.add(sum(inside) <= statistic.suppressed)
            return
        self.model.add(sum(inside) == statistic.count)
        if statistic.mean is not None:
            self._mean(inside, statistic, statistic.count, statistic.mean)
        if statistic.median is not None:
            self._median(inside, statistic.of, statistic.count, statistic.median)

    def _inside(self, person: int, where: Where) -> Any:
        """A literal that is true exactly when the person fits all conditions."""
        parts = [self._within(name, person, *limits) for name, limits in where.items()]
        if len(parts) == 1:
            return parts[0]
        at = (person, *sorted(where.items()))
        if at not in self._both:
            both = self._both[at] = self.model.new_bool_var("")
            self.model.add_bool_and(parts).only_enforce_if(both)
            self.model.add_bool_or([*(part.negated() for part in parts), both])
        return self._both[at]

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

    def _mean(self, inside: Sequence[Any], statistic: Statistic, count: int, mean: Decimal) -> None:
        """A printed mean stands for every mean that rounds to it: half a unit of its last place either way.

        A whole number is taken as it stands, unless it is said what it was rounded to.
        """
        total: Any = 0
        for person, literal in enumerate(inside):
            value = self.of[statistic.of][person]
            part = self.model.new_int_var(-_FAR, _FAR, "")
            self.model.add(part == value).only_enforce_if(literal)
            self.model.add(part == 0).only_enforce_if(literal.negated())
            total += part
        places, rounded = int(mean.as_tuple().exponent), statistic.rounded
        unit = rounded if rounded is not None else Decimal(1).scaleb(places) if places < 0 else Decimal(0)
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


def _solve_worlds(cp: Any, draft: _Draft, attributes: Sequence[Attribute], most: int, seconds: float | None) -> Worlds:
    """First the rows that all worlds have, each proven; then worlds are counted, as far as time and `most` allow."""
    deadline = Deadline(seconds)
    first = _find_world(cp, draft, attributes, deadline)
    if isinstance(first, bool):
        return Worlds(0, first, (), draft.people, first)
    common, proven = Counter(first), False
    while common and not proven:
        draft.demand_fewer(common, attributes)
        world = _find_world(cp, draft, attributes, deadline)
        if isinstance(world, bool):
            proven = world
            break
        common &= Counter(world)
    draft.drop_demand()
    found, complete = _count_worlds(cp, draft, attributes, most, deadline)
    return Worlds(max(1, found), complete, tuple(sorted(common.elements())), draft.people, proven or not common)


def _make_solver(cp: Any, deadline: Deadline) -> Any:
    solver = cp.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    solver.parameters.linearization_level = 0  # linear programs cost more here than they cut off
    if deadline.left is not None:
        solver.parameters.max_time_in_seconds = deadline.left
    return solver


def _find_world(cp: Any, draft: _Draft, attributes: Sequence[Attribute], deadline: Deadline) -> list[Record] | bool:
    """A world; True where there is surely none, False where the time ended first."""
    solver = _make_solver(cp, deadline)
    status = solver.solve(draft.model)
    if status in (cp.OPTIMAL, cp.FEASIBLE):
        return draft.read_world(solver.value, attributes)
    return bool(status == cp.INFEASIBLE)


def _count_worlds(
    cp: Any, draft: _Draft, attributes: Sequence[Attribute], most: int, deadline: Deadline
) -> tuple[int, bool]:
    """How many worlds the solver's own enumeration finds, and whether these are all."""
    seen: set[tuple[Record, ...]] = set()

    class Collect(cp.CpSolverSolutionCallback):  # type: ignore[misc]
        """Keeps each world once; worlds are in order, so none comes in disguise."""

        def on_solution_callback(self) -> None:
            """Keep a world, and stop at the most."""
            seen.add(tuple(draft.read_world(self.value, attributes)))
            if len(seen) > most:
                self.stop_search()

    solver = _make_solver(cp, deadline)
    solver.parameters.enumerate_all_solutions = True
    status = solver.solve(draft.model, Collect())
    return min(len(seen), most), bool(status in (cp.OPTIMAL, cp.INFEASIBLE) and len(seen) <= most)
