"""Questions over the rows that they share, and their numbers as vectors over what their conditions tell apart.

**Atoms.** The conditions of questions over the same rows (WHERE, FILTER, values that are not null, groups of public
keys) divide the rows into atoms, as in `joint`: what none of them tells apart, without what no value can be. A number
that was measured, and one that is asked, is a sum over atoms of rows, of values, or of squares of values: a vector.

**Bounds on contributions** decide which rows of a person count. Where each unit has one row there is nothing to decide.
Otherwise the vectors of numbers that were not bounded alike, by the same limits over the same rows, have no part in
common.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.query.algebra.expression import (
    Call,
    ColumnRef,
    Expression,
    Facts,
    Kind,
    Literal,
    Value,
    count_after,
    substitute,
    to_number,
)
from deniable.query.algebra.functions import call, join_tests
from deniable.query.algebra.relation import Measured, Relation, Transform, find_noisy_nodes, has_one_row
from deniable.query.bias import MARK
from deniable.query.canonical import Writer, find_columns
from deniable.query.joint import MOST_PIECES, ORDERED, Families, Family
from deniable.query.keys import MOST_TERMS, Listed, PublicKeys
from deniable.query.measurements import Distinct, Measurement, Ordered, Part, Rows, Total, Units
from deniable.query.plan import Joint, NodePlan, NoiseMechanism, Placed, QueryPlan, Sensitivity, Step, deviation

Floats = NDArray[np.float64]
Truth = NDArray[np.bool_]
Key = tuple[Any, ...]


# -- questions over the rows that they share ---------------------------------------------------------------------------


@dataclass(frozen=True)
class View:
    """One grouping set of a plan, written over the rows below its row-wise steps, in names that all plans share."""

    node: NodePlan
    place: int
    base: str
    where: Expression | None
    keys: tuple[Expression, ...]
    measurements: tuple[Measurement, ...]
    single: bool
    """Whether each unit has one row, so that nothing is cut off."""
    blocks: tuple[tuple[Expression | None, ...], ...]
    """The conditions of each block's measurements, apart from values that are missing."""

    @property
    def step(self) -> Step:
        """The grouping set."""
        return self.node.steps[self.place]

    @property
    def listed(self) -> bool:
        """Whether its groups can be written as conditions."""
        keys = self.step.keys
        return isinstance(keys, PublicKeys) and all(isinstance(part, Listed) for part in keys.parts)

    @cached_property
    def is_public(self) -> bool:
        """Whether its groups are known before a row is read."""
        return isinstance(self.step.keys, PublicKeys)

    @cached_property
    def conditions(self) -> tuple[Expression, ...]:
        """All that its numbers tell rows apart by, but for its keys."""
        found = [self.where, *(each for block in self.blocks for each in block)]
        for each in self.measurements:
            argument = getattr(each, "argument", None)
            found += [each.condition, None if argument is None or not argument.facts.nullable else _lacks(argument)]
        return tuple(dict.fromkeys(each for each in found if each is not None))

    @cached_property
    def values(self) -> frozenset[Key]:
        """What it adds up, by its bounds and steps."""
        return frozenset(_name_value(each) for each in self.measurements)

    @cached_property
    def keyed(self) -> frozenset[Expression]:
        """Its keys, in no order."""
        return frozenset(self.keys)

    @cached_property
    def groups(self) -> tuple[Key, ...]:
        """The values of its keys as conditions divide them; truth values are told apart by every condition on them."""
        parts = self.step.keys.parts if isinstance(self.step.keys, PublicKeys) else ()
        listed = {part.place: part.values for part in parts if isinstance(part, Listed)}
        both = zip(self.keys, (listed.get(place, ()) for place in self.step.places), strict=True)
        return tuple(
            (key, value if isinstance(value, str) else to_number(value))
            for key, values in both
            for value in values
            if value is not None and not isinstance(value, bool)
        )

    @cached_property
    def needs(self) -> frozenset[Key]:
        """Where its conditions divide values, each by its expression and constant; not where no value is.

        Every condition on an expression tells its nulls from some values: that is None.
        """
        families = Families(self.conditions).all.values()
        return frozenset((each.subject, None) for each in families) | frozenset(
            (each.subject, text or number)
            for each in families
            for number, text in each.constants
            if text or _is_inside(each.subject.facts, number)
        )

    @cached_property
    def divisions(self) -> frozenset[Key]:
        """Where its conditions and its keys divide values."""
        return self.needs.union(self.groups)

    @cached_property
    def marks(self) -> frozenset[Key]:
        """The same, and where whole numbers are divided alike: x > 3 is x >= 4."""
        whole = [(e, n) for e, n in self.needs if isinstance(n, Fraction) and e.facts.kind in (Kind.INTEGER, Kind.DATE)]
        return self.needs | {(e, n + by) for e, n in whole for by in (-1, 1)}


def _name_value(measurement: Measurement) -> Key:
    if isinstance(measurement, Total):
        return measurement.argument, measurement.lower, measurement.upper, measurement.step
    return (type(measurement), measurement.argument) if isinstance(measurement, Distinct | Ordered) else ()


def _is_inside(facts: Facts, number: Fraction) -> bool:
    """Whether there may be values on both sides of a number."""
    return (facts.lower is None or facts.lower < number) and (facts.upper is None or number < facts.upper)


def list_views(plan: QueryPlan) -> list[View] | None:
    """The grouping sets of a plan; None where one of them is not measured from rows as they are."""
    if any(MARK in node.node.name or find_noisy_nodes(node.node.input) for node in plan.nodes):
        return None
    writer, found = Writer(), []
    for node in plan.nodes:
        lowered = _Lowered(node.node, writer)
        if lowered.terms > MOST_TERMS:
            return None
        found += [lowered.view(node, place) for place in range(len(node.steps))]
    return found


class _Lowered:
    """A node's expressions over the fields below all row-wise transformations."""

    def __init__(self, node: Measured, writer: Writer) -> None:
        self._steps: list[dict[str, Expression]] = []
        self._writer, self.terms, tests = writer, 0, list[Expression]()
        relation = node.input
        while isinstance(relation, Transform):
            fields = dict(relation.projections)
            self._steps.append(fields)
            tests = [self._substitute(each, fields) for each in tests]
            tests += [relation.predicate] if relation.predicate is not None else []
            relation = relation.input
        self.base: Relation = relation
        self._named: dict[str, Expression] = {
            field.name: ColumnRef(writer.column(relation, field.name), field.facts) for field in relation.fields
        }
        self.where = join_tests([_simplify(self._substitute(each, self._named)) for each in tests])
        self.keys = tuple(self.write(each) for _, each in node.keys)

    def write(self, tree: Expression) -> Expression:
        """An expression over the fields of the base."""
        for fields in (*self._steps, self._named):
            tree = self._substitute(tree, fields)
        return _simplify(tree)

    def _substitute(self, tree: Expression, fields: dict[str, Expression]) -> Expression:
        """An expression over the fields below; as it was once there are too many terms, so that it does not grow."""
        self.terms += count_after(tree, fields)
        return tree if self.terms > MOST_TERMS else substitute(tree, fields)

    def move(self, measurement: Measurement) -> Measurement:
        condition, argument = measurement.condition, getattr(measurement, "argument", None)
        condition = None if condition is None else self.write(condition)
        if argument is None:
            return replace(measurement, condition=condition)
        assert not isinstance(measurement, Units)
        return replace(measurement, condition=condition, argument=self.write(argument))

    def view(self, node: NodePlan, place: int) -> View:
        step = node.steps[place]
        # A bound of one row does not say that there is one: then a condition decides which of several counts.
        single = step.limits.rows == 1 if step.limits.by_row else has_one_row(self.base)
        moved = tuple(self.move(each) for each in node.measurements)
        blocks = tuple(
            tuple(_state_condition(moved[i], _find_value(moved, joint)) for i in joint.block.places)
            for joint in step.joints
        )
        keys = tuple(self.keys[i] for i in step.places)
        return View(node, place, self._writer.relation(self.base), self.where, keys, moved, single, blocks)


def _simplify(tree: Expression) -> Expression:
    """An expression without what changes nothing: a CASE that repeats a condition, a clamp to wider bounds."""
    if not isinstance(tree, Call):
        return tree
    tree = replace(tree, arguments=tuple(map(_simplify, tree.arguments)))
    match tree:
        case Call("case", (test, Literal(True), Literal(False))):
            return call("is_true", test)
        case Call("clamp", (subject, Literal(low), Literal(high))) if _holds_all(subject.facts, low, high):
            return subject
    return tree


def _holds_all(facts: Facts, low: Value, high: Value) -> bool:
    """Whether all values that an expression can have lie between two."""
    if low is None or high is None or facts.lower is None or facts.upper is None:
        return False
    return to_number(low) <= facts.lower and facts.upper <= to_number(high)


def _lacks(argument: Expression) -> Expression:
    """That a value is missing; also of a column that questions may not look at."""
    return Call("is_null", (argument,), Facts(Kind.BOOLEAN, nullable=False))


def _has(argument: Expression) -> Expression:
    return call("not", _lacks(argument))


def _find_value(measurements: Sequence[Measurement], joint: Joint) -> Total | None:
    """The values that a block adds up, if it adds up any."""
    return next((m for m in (measurements[i] for i in joint.block.places) if isinstance(m, Total)), None)


def _state_condition(measurement: Measurement, value: Total | None) -> Expression | None:
    """The rows that a measurement of a block is over, apart from those without the block's own value."""
    argument = getattr(measurement, "argument", None)
    if isinstance(measurement, Total) or argument is None or (value is not None and argument == value.argument):
        return measurement.condition
    return join_tests([measurement.condition, _has(argument)])


# -- atoms and vectors -------------------------------------------------------------------------------------------------


class Atoms:
    """What some conditions tell apart, without what no value can be."""

    def __init__(self, conditions: Iterable[Expression]) -> None:
        self._families = Families(dict.fromkeys(conditions))
        possible = [_find_possible(family) for family in self._families.all.values()]
        self.count = math.prod(len(each) for each in possible)
        places = np.array(list(product(*possible)) if self.count <= MOST_PIECES else [], dtype=np.int64)
        self._pieces = {e: places[:, i] for i, e in enumerate(self._families.all)} if len(places) else {}

    @property
    def usable(self) -> bool:
        """Whether they are not too many."""
        return 0 < self.count <= MOST_PIECES

    def test(self, condition: Expression | None) -> Truth:
        """The atoms in which a condition holds."""
        if condition is None or not self._pieces:
            always = condition is None or (isinstance(condition, Literal) and condition.value is True)
            return np.full(self.count, always)
        said: Truth = self._families.evaluate(condition, self._pieces) == 2
        return said


def _find_possible(family: Family) -> list[int]:
    """The pieces of an expression's values that some value can be in."""
    facts, at = family.subject.facts, [number for number, _ in family.constants]
    null = [family.null]  # also where the policy says that there is none: rows are not changed to fit it
    if facts.kind is Kind.BOOLEAN:
        return [0, 1, *null]
    if facts.kind not in ORDERED:
        texts = [text for _, text in family.constants]
        known = None if facts.domain is None else set(facts.domain)
        held = [i for i, text in enumerate(texts) if known is None or text in known]
        return [*held, *([len(texts)] if known is None or known - set(texts) else []), *null]
    if facts.domain is not None:
        values = [to_number(each) for each in facts.domain if each is not None]
        return sorted({2 * bisect_left(at, each) + (each in at) for each in values}) + null
    low = -math.inf if facts.lower is None else facts.lower
    high = math.inf if facts.upper is None else facts.upper
    whole, found = facts.kind in (Kind.INTEGER, Kind.DATE), list[int]()
    ends = [-math.inf, *at, math.inf]
    for place in range(2 * len(at) + 1):
        if place % 2:
            point = at[place // 2]
            found += [place] if low <= point <= high and not (whole and point.denominator > 1) else []
            continue
        left, right = ends[place // 2], ends[place // 2 + 1]
        found += [place] if _has_value(left, right, low, high, whole) else []
    return found + null


def _has_value(left: Any, right: Any, low: Any, high: Any, whole: bool) -> bool:
    """Whether a value between two constants, and none of them, lies within bounds."""
    if not whole:
        return bool(left < high and low < right) or bool(low == high and left < low < right)
    first = low if left == -math.inf else max(low, math.floor(left) + 1)
    last = high if right == math.inf else min(high, math.ceil(right) - 1)
    return bool(first <= last)


Vector = dict[Key, Floats]
"""By what is added up (rows, values, squares) under which bounds, how much of it each atom gives."""
ROWS: Key = ("rows",)


@dataclass(frozen=True, slots=True)
class Number:
    """A number of each group: how it is made, its noise, and where it stands among the released ones."""

    vector: Vector
    column: int
    mechanism: NoiseMechanism
    sensitivity: Sensitivity
    placed: Placed | None = None
    """The measurement that it is, where it is one."""
    computed: bool = False
    """Whether it has no noise of its own: it was computed from others."""

    @property
    def scale(self) -> int:
        """In how many parts of a step it is counted."""
        return self.sensitivity.parts if self.placed is None else 1

    @property
    def deviation(self) -> float:
        """The standard deviation of its noise, and of its rounding to steps."""
        rounded = 1 / 12 if self.placed is not None and self.sensitivity.parts > 1 else 0.0
        return math.sqrt((deviation(self.mechanism) / self.sensitivity.parts) ** 2 + rounded) or 1e-9


def list_asked(view: View, atoms: Atoms) -> list[Vector]:
    """The vector of each measurement of a grouping set."""
    joined = {place: number for number, joint in enumerate(view.step.joints) for place in joint.block.places}
    found = []
    for place, measurement in enumerate(view.measurements):
        bounds = _sign_block(view, joined[place], atoms) if place in joined else _sign_alone(view, measurement, atoms)
        found.append(_write_vector(view, measurement, bounds, atoms))
    return found


def list_measured(view: View, atoms: Atoms) -> Iterator[Number]:
    """Each number of a grouping set: those with noise of their own, and answers that were computed from them."""
    step, joined = view.step, {place for joint in view.step.joints for place in joint.block.places}
    for place, (measurement, placed) in enumerate(zip(view.measurements, step.placed, strict=True)):
        if place not in joined:
            vector = _write_vector(view, measurement, _sign_alone(view, measurement, atoms), atoms)
            yield Number(vector, place, placed.mechanism, placed.sensitivity, placed)
    column = count_released(view.node)
    for number, joint in enumerate(step.joints):
        for vector in _list_joint(view, number, atoms):
            yield Number(vector, column, joint.mechanism, joint.sensitivity)
            column += 1
    for place, vector in enumerate(list_asked(view, atoms) if joined else ()):
        if place in joined:
            yield Number(
                vector, place, step.placed[place].mechanism, step.placed[place].sensitivity, step.placed[place], True
            )


def count_released(node: NodePlan) -> int:
    """How many numbers of a grouping set are answers; those that several of them follow from stand after them."""
    return sum(map(len, find_columns(node.measurements)))


def _present(measurement: Measurement) -> Expression | None:
    """The condition under which a row counts."""
    argument = getattr(measurement, "argument", None)
    there = None if argument is None or not argument.facts.nullable else _has(argument)
    return join_tests([measurement.condition, there])


def _sign_alone(view: View, measurement: Measurement, atoms: Atoms) -> Key:
    """Which rows a unit's bounds are for, where a measurement is bounded by itself."""
    return _sign(view, atoms.test(_present(measurement)), atoms)


def _sign_block(view: View, number: int, atoms: Atoms) -> Key:
    """The same for a block: all rows that one of its measurements counts."""
    joint, held = view.step.joints[number], np.zeros(atoms.count, dtype=np.bool_)
    value = _find_value(view.measurements, joint)
    for condition in view.blocks[number]:
        held |= atoms.test(condition)
    if value is not None and not any(part.order == -1 for part in joint.block.parts):
        held &= ~_find_missing(value.argument, atoms)
    return _sign(view, held, atoms)


def _sign(view: View, held: Truth, atoms: Atoms) -> Key:
    """What bounds are for: rows that count; where groups or rows are chosen, among which they are."""
    if view.single:
        return ()
    limits, where = view.step.limits, atoms.test(view.where)
    among = where.tobytes() if limits.groups is not None or limits.in_all else b""
    return (limits, among, (held & where).tobytes())


def _write_vector(view: View, measurement: Measurement, bounds: Key, atoms: Atoms) -> Vector:
    """What a measurement adds up."""
    held = (atoms.test(view.where) & atoms.test(_present(measurement))).astype(np.float64)
    if not view.step.limits.scaled:
        match measurement:
            case Rows():
                return {(*bounds, *ROWS): held}
            case Units() if view.single:
                return {(*bounds, *ROWS): held}
            case Total(per_group=None, quotient=False):
                return _write_powers(measurement, _expand_total(measurement), held, bounds)
    # What is no sum over rows follows from itself alone.
    what: tuple[object, ...] = (type(measurement).__name__, getattr(measurement, "argument", None))
    if isinstance(measurement, Total | Distinct | Ordered):
        what += (measurement.lower, measurement.upper, measurement.step)
    match measurement:
        case Total():
            what += (measurement.center, measurement.squared, measurement.per_group, measurement.quotient)
        case Ordered():
            what += (measurement.quantiles,)
        case Distinct():
            what += (measurement.summed,)
    one = np.zeros(atoms.count)
    one[0] = 1.0
    return {(view.step.limits, *bounds, *what, held.tobytes()): one}


def _expand_total(total: Total) -> list[float]:
    """(v - center), or its square, in powers of t = (v - lower) / (upper - lower)."""
    away, width = float(total.lower - total.center), float(total.upper - total.lower)
    return [away**2, 2 * away * width, width**2] if total.squared else [away, width]


def _write_powers(value: Total | Part, powers: Sequence[float], held: Floats, bounds: Key) -> Vector:
    """A polynomial in t over some atoms; t to the power 0 counts rows."""
    named = (value.argument, value.lower, value.upper, value.step)
    keys: list[Key] = [ROWS, (*named, 1), (*named, 2)]
    terms = zip(keys, powers, strict=False)
    return {(*bounds, *key): factor * held for key, factor in terms if factor}


def _list_joint(view: View, number: int, atoms: Atoms) -> Iterator[Vector]:
    """The numbers of a joint release, part by part, row by row of its strategy."""
    joint = view.step.joints[number]
    block, value, bounds = joint.block, _find_value(view.measurements, joint), _sign_block(view, number, atoms)
    where = atoms.test(view.where)
    tested = np.array([atoms.test(condition) & where for condition in view.blocks[number]])
    cells = [
        np.all(tested == np.array(column, dtype=np.bool_)[:, None], axis=0)
        for column in zip(*block.workload, strict=True)
    ]
    missing = None if value is None else _find_missing(value.argument, atoms)
    for kind in range(block.kinds):
        part = block.parts[kind * block.cells.count]
        for row in joint.strategy.matrix:
            held = sum(
                (weight * cell for weight, cell in zip(row, cells, strict=True) if weight), np.zeros(atoms.count)
            )
            yield _write_part(part, value, held, missing, bounds)


def _find_missing(argument: Expression, atoms: Atoms) -> Truth:
    """The atoms without a value; none where the policy says that there is one, as counts of its rows take it, too."""
    return atoms.test(_lacks(argument)) if argument.facts.nullable else np.zeros(atoms.count, dtype=np.bool_)


def _write_part(part: Part, value: Total | None, held: Floats, missing: Truth | None, bounds: Key) -> Vector:
    if value is None or missing is None:
        return {(*bounds, *ROWS): held}
    width, degree = float(value.upper - value.lower), part.degree
    if part.order == -1:
        return {(*bounds, *ROWS): width**degree * held * missing}
    # C(d, i) t^i (1 - t)^(d - i), times width^d
    powers = [0.0] * (degree + 1)
    for i in range(degree - part.order + 1):
        powers[part.order + i] = math.comb(degree, part.order) * math.comb(degree - part.order, i) * (-1.0) ** i
    return _write_powers(value, [width**degree * each for each in powers], held * ~missing, bounds)
