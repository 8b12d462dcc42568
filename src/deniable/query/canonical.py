"""What a plan measures, whatever words it was asked in: the key of its stored measurements, and their common layout.

Names of tables in FROM, sub-queries that only pick and rename, the order of conditions, of keys and of aggregates, and
all that is done with noisy numbers (ORDER BY, LIMIT, HAVING, rounding, ratios, totals of groups) change nothing about
what is measured. So expressions are written over the columns of tables, conditions that must all hold are put in one
order, and two plans have one key where they measure the same numbers over the same rows with the same noise. Their
answers are stored in an order that both know.

Two plans with different keys may still mean the same; they are then charged both, which errs to the safe side.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from cachetools import LRUCache

from deniable.query.algebra.expression import Call, ColumnRef, Expression, Kind, Literal, literal, substitute
from deniable.query.algebra.relation import Join, PerUnit, Relation, Scan, Transform, Union
from deniable.query.execute import Noisy, NoisyResults
from deniable.query.keys import FromTable, Keys, Listed, PrivateKeys
from deniable.query.measurements import Distinct, Measurement, Ordered, Part, Rows, Total, Units
from deniable.query.plan import NodePlan, QueryPlan, Step

SYMMETRIC = ("eq", "ne", "add", "multiply", "least", "greatest", "and", "or")
MIRRORED = {"gt": "lt", "ge": "le"}


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


class Writer:
    """Relations and expressions as digests that do not depend on names and order."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], str] = {}

    def relation(self, tree: Relation) -> str:
        """The rows of a relation."""
        match tree:
            case Scan(table, owners=owners):
                return _digest("scan", table.name, [owner.name for owner in owners])
            case Transform():
                base, tests = self._strip(tree)
                return _digest("where", self.relation(base), sorted(tests)) if tests else self.relation(base)
            case Join(left, right, on=on):
                met = sorted((self.expression(a, left), self.expression(b, right)) for a, b in on)
                how = (tree.outer, tree.by_unit, tree.fan_out, tree.pairs, tree.full, tree.single)
                return _digest("join", self.relation(left), self.relation(right), met, how)
            case Union(inputs):
                return _digest("union", [self.relation(each) for each in inputs])
            case PerUnit(source, keys):
                return _digest("unit", self.relation(source), sorted(self.expression(e, source) for _, e in keys))
            case _:
                return _digest("as it is", tree)

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
        if isinstance(predicate, Call) and predicate.name == "and":
            return [test for part in predicate.arguments for test in self.conjuncts(part, source)]
        found = self.expression(predicate, source)
        return [] if found == TRUE else [found]

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
                side, found = ("left", left) if name in {f.name for f in left.fields} else ("right", right)
                return _digest(side, self.column(found, name))
            case Union(inputs, fields):
                place = [field.name for field in fields].index(name)
                return _digest("each", [self.column(side, side.fields[place].name) for side in inputs])
            case PerUnit(source, keys, aggregates):
                if name in dict(keys):
                    return _digest("key", self.expression(dict(keys)[name], source))
                made = dict(aggregates)[name]
                parts = [self.optional(each, source) for each in (made.argument, made.condition)]
                return _digest("summary", made.summary, parts, made.step)
            case _:
                return _digest("field", name)

    def optional(self, expression: Expression | None, source: Relation) -> str:
        """An expression that may be missing; a condition that always holds is missing."""
        found = "" if expression is None else self.expression(expression, source)
        return "" if found == TRUE else found

    def expression(self, tree: Expression, source: Relation) -> str:
        """An expression over the fields of a relation."""
        match tree:
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
            tests = sorted({*self.conjuncts(Call("and", tuple(arguments), arguments[0].facts), source)})
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
    columns, after = [], _find_columns(node.measurements)
    for i in order:
        columns += after[i]
    threshold = None if step.threshold is None else repr(step.threshold)
    shown = _describe_keys(step.keys, {name: digest for digest, name in keys}, node, writer)
    digest = _digest([digest for digest, _ in keys], step.limits, threshold, shown, [noise[i] for i in order])
    return StepLayout(digest, place, tuple(name for _, name in keys), tuple(columns))


def _find_columns(measurements: Sequence[Measurement]) -> list[list[int]]:
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
    condition = writer.optional(measurement.condition, source)
    match measurement:
        case Rows() | Units() | Distinct():
            rest: tuple[object, ...] = ()
        case Total(_, _, low, high, step, center, squared, per_group):
            rest = (low, high, step, center, squared, per_group)
        case Ordered(_, _, low, high, step, quantiles):
            rest = (low, high, step, quantiles)
        case Part():
            rest = (measurement,)
    return _digest(type(measurement).__name__, argument, condition, rest)


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


def arrange(plan: QueryPlan, found: NoisyResults) -> NoisyResults:
    """What a plan measured, in the common order and under common names."""
    arranged: NoisyResults = {}
    for i, node in enumerate(lay_out(plan.nodes)):
        parts = [(found[node.name][step.place], step) for step in node.steps]
        arranged[f"n{i}"] = tuple(
            Noisy(
                part.keys.select(list(step.keys)).rename_columns([f"c{j}" for j in range(len(step.keys))]),
                tuple(part.values[column] for column in step.columns),
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
            values = sorted(zip(step.columns, part.values, strict=True), key=lambda each: each[0])
            parts[step.place] = Noisy(keys, tuple(value for _, value in values))
        found[node.name] = tuple(parts[place] for place in range(len(parts)))
    return found
