"""What a plan measures, whatever words it was asked in: the key of its stored measurements, and their common layout.

Names of tables in FROM, sub-queries that only pick and rename, the order of conditions, of keys and of aggregates, and
all that is done with noisy numbers (ORDER BY, LIMIT, HAVING, rounding, ratios, totals of groups) change nothing about
what is measured. So expressions are written over the columns of tables, conditions that must all hold are put in one
order, and two plans have one key where they measure the same numbers over the same rows with the same noise. Their
answers are stored in an order that both know.

What the policy declares of a column holds for each value that is read of it: others are clamped, or null. So a
condition on a column of whole numbers, of dates or of listed values is written as the set of values for which it
holds. Where the rows of people are joined by INNER JOIN, either side may stand first: who is left out for too many
pairs of rows follows from both sides alike, and which rows of a person count is a fresh choice for each measurement.

Two plans with different keys may still mean the same; they are then charged both, which errs to the safe side.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction
from typing import Any

from cachetools import LRUCache

from deniable.query.algebra.expression import (
    EXACT,
    HOLDS,
    Call,
    ColumnRef,
    ColumnValues,
    Expression,
    Facts,
    Kind,
    Literal,
    Ranges,
    calendar_range,
    find_values,
    from_number,
    literal,
    meet_ranges,
    remove_ranges,
    substitute,
    to_number,
)
from deniable.query.algebra.functions import call
from deniable.query.algebra.relation import Join, PerUnit, Relation, Scan, Transform, Union
from deniable.query.execute import Noisy, NoisyResults
from deniable.query.keys import FromTable, Keys, Listed, PrivateKeys
from deniable.query.measurements import Distinct, Measurement, Ordered, Part, Rows, Total, Units
from deniable.query.plan import NodePlan, QueryPlan, Step

SYMMETRIC = ("eq", "ne", "add", "multiply", "least", "greatest", "and", "or")
MIRRORED = {"gt": "lt", "ge": "le"}
LISTING = {"eq": "eq", "ne": "eq", "in": "in"}
DENIED = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
"""Which comparison holds where one is false."""
TURNED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
"""Which comparison holds with its sides exchanged."""
Truth = tuple[Any, ...]
"""When a condition holds: a word and its parts."""


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


class Writer:
    """Relations and expressions as digests that do not depend on names and order."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], str] = {}
        self._rows: dict[int, str] = {}
        self._values: dict[tuple[int, str], ColumnValues | None] = {}

    def relation(self, tree: Relation) -> str:
        """The rows of a relation."""
        if id(tree) not in self._rows:
            self._rows[id(tree)] = self._write_relation(tree)
        return self._rows[id(tree)]

    def _write_relation(self, tree: Relation) -> str:
        match tree:
            case Scan(table, owners=owners):
                return _digest("scan", table.name, [owner.name for owner in owners])
            case Transform():
                base, tests = self._strip(tree)
                return _digest("where", self.relation(base), sorted(tests)) if tests else self.relation(base)
            case Join(left, right, on=on):
                turn = -1 if self._turns(tree) else 1
                met = sorted((self.expression(a, left), self.expression(b, right))[::turn] for a, b in on)
                how = (tree.outer, tree.by_unit, tree.fan_out, tree.by_unit and tree.pairs, tree.full, tree.single)
                return _digest("join", *(self.relation(left), self.relation(right))[::turn], met, how)
            case Union(inputs):
                return _digest("union", [self.relation(each) for each in inputs])
            case PerUnit(source, keys):
                return _digest("unit", self.relation(source), sorted(self.expression(e, source) for _, e in keys))
            case _:
                return _digest("as it is", tree)

    def _turns(self, tree: Join) -> bool:
        """Whether the sides of a join are written in the other order: those of an inner join of people's rows may be.

        Of two sides with the same rows the first stays the first, since their columns are told apart by it.
        """
        free = tree.by_unit and not (tree.outer or tree.full or tree.single)
        return free and self.relation(tree.right) < self.relation(tree.left)

    def find_base(self, tree: Relation) -> Relation:
        """What row-wise steps stand on."""
        return self._strip(tree)[0]

    def _strip(self, tree: Relation) -> tuple[Relation, set[str]]:
        """What row-wise steps stand on, and all their conditions."""
        tests: set[str] = set()
        while isinstance(tree, Transform):
            tests |= set(self.conjuncts(tree.predicate, tree.input))
            tree = tree.input
        return tree, tests

    def conjuncts(self, predicate: Expression | None, source: Relation) -> list[str]:
        """The conditions that must all hold, without those that always do."""
        if predicate is None:
            return []
        found = self.truth(predicate, source, True)
        return [_digest(each) for each in (found[1:] if found[0] == "and" else (found,))]

    def truth(self, tree: Expression, source: Relation, wanted: bool) -> Truth:
        """What must be so for a condition to be true (or, not `wanted`, to be false): null is neither.

        Of conditions that hold for the same values one form is written: those of negations are moved inward.
        """
        if isinstance(tree, Literal):
            return ("and",) if tree.value is wanted else ("or",)
        name, arguments = (tree.name, tuple(map(_fold, tree.arguments))) if isinstance(tree, Call) else ("", ())
        if (placed := self._place(name, arguments, source, wanted)) is not None:
            return placed
        match name:
            case "not":
                return self.truth(arguments[0], source, not wanted)
            case "and" | "or":
                parts = [self.truth(each, source, wanted) for each in arguments]
                return _join("and" if (name == "and") is wanted else "or", parts)
            case "is_true" | "is_false":
                found = self.truth(arguments[0], source, name == "is_true")
                return found if wanted else _deny(found)
            case "eq" | "ne" if (known := _find_boolean(arguments)) is not None:
                subject, value = known
                return self.truth(subject, source, (value is (name == "eq")) is wanted)
            case "coalesce" if len(arguments) == 2 and isinstance(arguments[1], Literal) and (
                isinstance(arguments[1].value, bool)
            ):  # fmt: skip
                otherwise = arguments[1].value
                found = self.truth(arguments[0], source, not otherwise)
                return found if otherwise is not wanted else _deny(found)
            case "is_null":
                found = ("is", "null", self.expression(arguments[0], source))
                return found if wanted else _deny(found)
            case "eq" | "ne" | "in" if listed := _list_equal(Call(LISTING[name], arguments, tree.facts)):
                values = sorted({self.expression(each, source) for each in listed[1]})
                if any(isinstance(each, Literal) and each.value is None for each in listed[1]):
                    return ("is", wanted, self.expression(tree, source))
                return ("in" if (name != "ne") is wanted else "out", self.expression(listed[0], source), *values)
            case "eq" | "ne" | "lt" | "le" | "gt" | "ge":
                return self._compare(name if wanted else DENIED[name], arguments, source)
        return ("is", wanted, self.expression(tree, source))

    def _place(self, name: str, arguments: Sequence[Expression], source: Relation, wanted: bool) -> Truth | None:
        """A condition on a declared column as the values for which it holds; None of any other condition."""
        if name in HOLDS and isinstance(arguments[0], Literal):
            name, arguments = TURNED.get(name, name), arguments[::-1]
        if name not in {*HOLDS, "in", "is_null"} or (known := self._find_values(arguments[0], source)) is None:
            return None
        subject = self.expression(arguments[0], source)
        if name == "is_null":
            return _hold(subject, (() if wanted else known.every), wanted, known.every)
        values = [each.value for each in arguments[1:] if isinstance(each, Literal)]
        chosen = known.choose(name, values) if len(values) == len(arguments) - 1 else None
        if chosen is None:
            return None
        return _hold(subject, chosen if wanted else remove_ranges(known.every, chosen), False, known.every)

    def _find_values(self, tree: Expression, source: Relation) -> ColumnValues | None:
        if not isinstance(tree, ColumnRef):
            return None
        key = (id(source), tree.name)
        if key not in self._values:
            facts = _find_declared(tree, source)
            self._values[key] = None if facts is None else find_values(facts)
        return self._values[key]

    def _compare(self, name: str, arguments: Sequence[Expression], source: Relation) -> Truth:
        """A comparison, with its smaller side first; of whole numbers, as one that includes its bound."""
        name, (left, right) = (MIRRORED[name], arguments[::-1]) if name in MIRRORED else (name, tuple(arguments))
        if name == "lt" and (moved := _include_bound(left, right)) is not None:
            name, (left, right) = "le", moved
        if isinstance(left, Literal) and isinstance(right, Literal) and type(left.value) is type(right.value) is int:
            return ("and",) if HOLDS[name](left.value, right.value) else ("or",)
        parts = [self.expression(each, source) for each in (left, right)]
        if name == "eq" and isinstance(left, Literal) and isinstance(right, Literal) and parts[0] == parts[1]:
            return ("and",) if left.value is not None else ("or",)
        return (name, *(sorted(parts) if name in SYMMETRIC else parts))

    def column(self, tree: Relation, name: str) -> str:
        """A field of a relation, by what it is made of."""
        key = (id(tree), name)
        if key not in self._known:
            self._resolve_below(tree)
            self._known[key] = self._resolve(tree, name)
        return self._known[key]

    def _resolve_below(self, tree: Relation) -> None:
        """Resolve the fields of row-wise steps from the bottom up, so that expressions are not nested in each other."""
        steps: list[Transform] = []
        while isinstance(tree, Transform) and isinstance(tree.input, Transform):
            tree = tree.input
            steps.append(tree)
        for step in reversed(steps):
            for name, expression in step.projections:
                if (id(step), name) not in self._known:
                    self._known[id(step), name] = self.expression(expression, step.input)

    def _resolve(self, tree: Relation, name: str) -> str:
        match tree:
            case Scan(table, alias):
                return _digest("column", table.name, name.removeprefix(f"{alias}."))
            case Transform(source, projections):
                return self.expression(dict(projections)[name], source)
            case Join(left, right):
                first = name in {f.name for f in left.fields}
                side = "left" if first is not self._turns(tree) else "right"
                return _digest(side, self.column(left if first else right, name))
            case Union(inputs, fields):
                place = [field.name for field in fields].index(name)
                return _digest("each", [self.column(side, side.fields[place].name) for side in inputs])
            case PerUnit(source, keys, aggregates):
                if name in dict(keys):
                    return _digest("key", self.expression(dict(keys)[name], source))
                made = dict(aggregates)[name]
                parts = [self.optional(made.argument, source), self.condition(made.condition, source)]
                return _digest("summary", made.summary, parts, made.step)
            case _:
                return _digest("field", name)

    def optional(self, expression: Expression | None, source: Relation) -> str:
        """An expression that may be missing."""
        return "" if expression is None else self.expression(expression, source)

    def condition(self, predicate: Expression | None, source: Relation) -> str:
        """A condition by when it holds; one that always holds is missing."""
        tests = self.conjuncts(predicate, source)
        return _digest("all", sorted(set(tests))) if tests else ""

    def expression(self, tree: Expression, source: Relation) -> str:
        """An expression over the fields of a relation."""
        match tree := _fold(tree):
            case ColumnRef(name):
                return self.column(source, name)
            case Literal(value, facts):
                plain = isinstance(value, int | Fraction) and not isinstance(value, bool)
                return _digest("value", "number" if plain else facts.kind, str(value))
            case Call(name, arguments):
                if name in MIRRORED:
                    name, arguments = MIRRORED[name], arguments[::-1]
                return self._write_call(name, arguments, source)

    def _write_call(self, name: str, arguments: Sequence[Expression], source: Relation) -> str:
        if name == "and":
            tests = sorted({self.expression(each, source) for each in _flatten_and(arguments)} - {TRUE})
            return tests[0] if len(tests) == 1 else _digest("and", tests) if tests else TRUE
        if name in ("or", "in") and (listed := _list_equal(Call(name, tuple(arguments), arguments[0].facts))):
            subject, values = listed
            found = sorted({self.expression(value, source) for value in values})
            return _digest("in", self.expression(subject, source), found)
        parts = [self.expression(each, source) for each in arguments]
        if name == "eq" and all(isinstance(each, Literal) and each.value is not None for each in arguments):
            return TRUE if len(set(parts)) == 1 else _digest(name, sorted(parts))
        if name == "eq" and any(isinstance(each, Literal) for each in arguments):
            constant = isinstance(arguments[0], Literal)
            return _digest("in", parts[constant], [parts[not constant]])
        return _digest(name, sorted(parts) if name in SYMMETRIC else parts)


def _flatten_and(arguments: Iterable[Expression]) -> Iterator[Expression]:
    for each in arguments:
        yield from _flatten_and(each.arguments) if isinstance(each, Call) and each.name == "and" else (each,)


def _join(name: str, parts: list[Truth]) -> Truth:
    """Conditions that must all hold, or of which one must: without repetitions, in one order.

    x = 1 OR x = 2 is one list of values, and so is x <> 1 AND x <> 2.
    """
    flat = [inner for part in parts for inner in (part[1:] if part[0] == name else (part,))]
    flat = _merge_held(name, flat)
    if any(part == ("or" if name == "and" else "and",) for part in flat):
        return ("or",) if name == "and" else ("and",)
    listed: dict[object, set[object]] = {}
    kind = "out" if name == "and" else "in"
    for part in flat:
        if part[0] == kind:
            listed.setdefault(part[1], set()).update(part[2:])
    merged = {part for part in flat if part[0] != kind}
    merged |= {(kind, subject, *sorted(values, key=repr)) for subject, values in listed.items()}
    found = sorted(merged, key=repr)
    return found[0] if len(found) == 1 else (name, *found)


def _deny(found: Truth) -> Truth:
    """Not so, where there is no third way."""
    if found[0] == "deny":
        denied: Truth = found[1]
        return denied
    if found[0] == "of":
        _, subject, chosen, null, every = found
        return _hold(subject, remove_ranges(every, chosen), not null, every)
    if found[0] in ("and", "or"):
        return _join("or" if found[0] == "and" else "and", [_deny(each) for each in found[1:]])
    return ("deny", found)


def _hold(subject: str, chosen: Ranges, null: bool, every: Ranges) -> Truth:
    """That a column has one of the chosen values out of every one that it can have, or is null."""
    if not chosen and not null:
        return ("or",)
    return ("and",) if chosen == every and null else ("of", subject, chosen, null, every)


def _merge_held(name: str, parts: list[Truth]) -> list[Truth]:
    """Conditions on one column as one: what all of them choose, or what any of them does."""
    held: dict[object, Truth] = {}
    for part in parts:
        if part[0] != "of":
            continue
        _, subject, chosen, null, every = part
        _, _, before, absent, _ = held.get(subject, part)
        if name == "and":
            held[subject] = ("of", subject, meet_ranges(before, chosen), null and absent, every)
        else:
            missed = remove_ranges(remove_ranges(every, before), chosen)
            held[subject] = ("of", subject, remove_ranges(every, missed), null or absent, every)
    found = [_hold(*part[1:]) for part in held.values()]
    # What always holds is no part of a conjunction, nor what never does one of a disjunction.
    return [part for part in [*(each for each in parts if each[0] != "of"), *found] if part != (name,)]


def _find_declared(tree: ColumnRef, source: Relation) -> Facts | None:
    """What is declared of the column of a table that a field is, as it was read; None of what was computed."""
    name = tree.name
    while not isinstance(source, Scan):
        match source:
            case Join(left, right):
                source = left if name in {field.name for field in left.fields} else right
                continue
            case Transform(below, made) | PerUnit(below, made):
                found = dict(made).get(name)
            case _:
                return None
        if not isinstance(found, ColumnRef):
            return None
        name, source = found.name, below
    return next(field.facts for field in source.fields if field.name == name)


def _fold(tree: Expression) -> Expression:
    """A date of the question some days later or earlier, and a whole number of it as one, as literals."""
    match tree:
        case Call("cast_integer", (Literal(value),)) if type(value) is int and abs(value) < EXACT:
            return literal(value)
        case Call("add" | "subtract", (Literal(value), Literal(days))) if type(value) is date and type(days) is int:
            moved = to_number(value) + (days if tree.name == "add" else -days)
            first, last = calendar_range(Kind.DATE)
            # Further days are no SMALLINT: such a date is null, as is one outside the calendar.
            return literal(from_number(Kind.DATE, moved)) if abs(days) < 1 << 15 and first <= moved <= last else tree
    return tree


def _find_boolean(arguments: Sequence[Expression]) -> tuple[Expression, bool] | None:
    """A condition and the truth value that it is compared with."""
    for subject, value in (arguments, arguments[::-1]):
        if isinstance(value, Literal) and isinstance(value.value, bool) and not isinstance(subject, Literal):
            return subject, value.value
    return None


def _include_bound(left: Expression, right: Expression) -> tuple[Expression, Expression] | None:
    """x < 3 of a column of whole numbers as x <= 2, and 2 < x as 3 <= x."""
    for one, other, by in ((left, right, -1), (right, left, 1)):
        value = other.value if isinstance(other, Literal) else None
        if isinstance(one, ColumnRef) and one.facts.kind is Kind.INTEGER and type(value) is int:
            moved = literal(value + by)
            return (one, moved) if by < 0 else (moved, one)
    return None


def _list_equal(tree: Expression) -> tuple[Expression, list[Expression]] | None:
    """x = 1 OR x IN (2, 3) as x and its values; None where a condition is none of that kind."""
    if not isinstance(tree, Call):
        return None
    if tree.name == "in":
        return (tree.arguments[0], list(tree.arguments[1:])) if all(
            isinstance(each, Literal) for each in tree.arguments[1:]) else None  # fmt: skip
    if tree.name == "eq":
        left, right = tree.arguments
        if isinstance(left, Literal) is isinstance(right, Literal):
            return None
        return (right, [left]) if isinstance(left, Literal) else (left, [right])
    if tree.name != "or":
        return None
    sides = [_list_equal(each) for each in tree.arguments]
    known = [side for side in sides if side is not None]
    if len(known) < len(sides) or any(side[0] != known[0][0] for side in known):
        return None
    return known[0][0], [value for _, values in known for value in values]


TRUE = _digest("value", Kind.BOOLEAN, str(literal(True).value))


@dataclass(frozen=True, slots=True)
class StepLayout:
    """A grouping set: its digest, its key columns and its released numbers in the common order."""

    digest: str
    place: int
    keys: tuple[str, ...]
    columns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NodeLayout:
    """A noisy aggregation in the common order."""

    digest: str
    name: str
    steps: tuple[StepLayout, ...]


def lay_out(nodes: tuple[NodePlan, ...]) -> tuple[NodeLayout, ...]:
    """The nodes of a plan, their grouping sets, keys and numbers, in an order that does not depend on its words.

    A plan is laid out when it is made, when it was measured and when it is shown; of the last plans it is remembered,
    under the very object, since to compare two plans costs as much.
    """
    with _LOCK:
        known = _LAID_OUT.get(id(nodes))
    if known is None or known[0] is not nodes:
        writer = Writer()
        known = nodes, tuple(sorted((_lay_out_node(node, writer) for node in nodes), key=lambda each: each.digest))
        with _LOCK:
            _LAID_OUT[id(nodes)] = known
    return known[1]


_LOCK = threading.Lock()
_LAID_OUT: LRUCache[int, tuple[tuple[NodePlan, ...], tuple[NodeLayout, ...]]] = LRUCache(64)


def digest_measurements(nodes: tuple[NodePlan, ...]) -> str:
    """Equal for plans that measure the same: the key under which measurements are stored."""
    return _digest([node.digest for node in lay_out(nodes)])


def _lay_out_node(node: NodePlan, writer: Writer) -> NodeLayout:
    steps = [_lay_out_step(node, place, writer) for place in range(len(node.steps))]
    steps.sort(key=lambda step: step.digest)
    return NodeLayout(
        _digest(writer.relation(node.node.input), [s.digest for s in steps]), node.node.name, tuple(steps)
    )


def _lay_out_step(node: NodePlan, place: int, writer: Writer) -> StepLayout:
    step, source = node.steps[place], node.node.input
    keys = sorted((writer.expression(node.node.keys[i][1], source), f"k{i}") for i in step.places)
    noise = _describe_noise(node, step, writer)
    order = sorted(range(len(noise)), key=lambda i: noise[i])
    columns, after = [], find_columns(node.measurements)
    for i in order:
        columns += after[i]
    threshold = None if step.threshold is None else repr(step.threshold)
    shown = _describe_keys(step.keys, {name: digest for digest, name in keys}, node, writer)
    digest = _digest([digest for digest, _ in keys], step.limits, threshold, shown, [noise[i] for i in order])
    return StepLayout(digest, place, tuple(name for _, name in keys), tuple(columns))


def find_columns(measurements: Sequence[Measurement]) -> list[list[int]]:
    """Where the numbers of each measurement stand: the first at its own place, further ranks after all of them."""
    after, found = len(measurements), []
    for place, measurement in enumerate(measurements):
        more = len(measurement.quantiles) - 1 if isinstance(measurement, Ordered) else 0
        found.append([place, *range(after, after + more)])
        after += more
    return found


def _describe_noise(node: NodePlan, step: Step, writer: Writer) -> list[str]:
    """Each measurement with its noise; of those released together, with all of them."""
    source, found = node.node.input, []
    what = [_describe_measurement(m, writer, source) for m in node.measurements]
    together = {
        place: _digest(joint.strategy.words, joint.strategy.weight, sorted(what[i] for i in joint.block.places))
        for joint in step.joints
        for place in joint.block.places
    }
    for place, placed in enumerate(step.placed):
        squares = None if placed.mixed is None else f"{placed.mixed.squares:.9g}"
        counted = place == step.counted_by_threshold
        found.append(_digest(what[place], placed.mechanism, squares, together.get(place), counted))
    return found


def _describe_measurement(measurement: Measurement, writer: Writer, source: Relation) -> str:
    argument = writer.optional(getattr(measurement, "argument", None), source)
    condition = writer.condition(_add_presence(measurement), source)
    argument = "" if isinstance(measurement, Rows) else argument
    match measurement:
        case Rows() | Units() | Distinct(summed=False):
            rest: tuple[object, ...] = ()
        case Distinct(_, _, _, low, high, step):
            rest = (low, high, step)
        case Total(_, _, low, high, step, center, squared, per_group, quotient):
            rest = (low, high, step, center, squared, per_group, *(("quotient",) if quotient else ()))
        case Ordered(_, _, low, high, step, quantiles):
            rest = (low, high, step, quantiles)
        case Part():
            rest = (measurement,)
    return _digest(type(measurement).__name__, argument, condition, rest)


def _add_presence(measurement: Measurement) -> Expression | None:
    """The condition under which a row counts: COUNT(x) is a count of the rows in which x is not null."""
    if not isinstance(measurement, Rows) or measurement.argument is None:
        return measurement.condition
    there = call("not", call("is_null", measurement.argument))
    return there if measurement.condition is None else call("and", measurement.condition, there)


def _describe_keys(keys: Keys, names: dict[str, str], node: NodePlan, writer: Writer) -> object:
    """Which keys are shown, with their columns by what they are made of."""
    if isinstance(keys, PrivateKeys):
        return "private"
    parts = []
    for part in keys.parts:
        if isinstance(part, Listed):
            parts.append(_digest(names[f"k{part.place}"], part.values))
        elif isinstance(part, FromTable):
            made = [writer.expression(each, part.table) for each in part.expressions]
            named = sorted(zip((names[f"k{i}"] for i in part.places), made, strict=True))
            parts.append(_digest(part.table.table.name, named))
    known = {f"k{i}": key for i, (_, key) in enumerate(node.node.keys)}
    tests = [test for each in keys.restriction for test in writer.conjuncts(substitute(each, known), node.node.input)]
    return sorted(parts), sorted(set(tests))


def list_bases(nodes: tuple[NodePlan, ...]) -> list[str]:
    """The rows that each node is about before any is left out: questions over the same may follow from each other."""
    writer = Writer()
    return list(dict.fromkeys(writer.relation(writer.find_base(node.node.input)) for node in nodes))


def arrange(plan: QueryPlan, found: NoisyResults) -> NoisyResults:
    """What a plan measured, in the common order and under common names."""
    arranged: NoisyResults = {}
    for i, node in enumerate(lay_out(plan.nodes)):
        parts = [(found[node.name][step.place], step) for step in node.steps]
        arranged[f"n{i}"] = tuple(
            Noisy(
                part.keys.select(list(step.keys)).rename_columns([f"c{j}" for j in range(len(step.keys))]),
                (*(part.values[column] for column in step.columns), *part.values[len(step.columns) :]),
            )
            for part, step in parts
        )
    return arranged


def restore(plan: QueryPlan, arranged: NoisyResults) -> NoisyResults:
    """The inverse of `arrange`, for a plan with the same key."""
    found: NoisyResults = {}
    for i, node in enumerate(lay_out(plan.nodes)):
        parts: dict[int, Noisy] = {}
        for step, part in zip(node.steps, arranged[f"n{i}"], strict=True):
            names = sorted(step.keys, key=lambda name: int(name[1:]))
            columns = [step.keys.index(name) for name in names]
            keys = part.keys.select([f"c{j}" for j in columns]).rename_columns(names)
            values = sorted(zip(step.columns, part.values, strict=False), key=lambda each: each[0])
            parts[step.place] = Noisy(keys, (*(value for _, value in values), *part.values[len(step.columns) :]))
        found[node.name] = tuple(parts[place] for place in range(len(parts)))
    return found
