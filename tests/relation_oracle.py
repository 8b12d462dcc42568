"""Private relations evaluated in plain Python, row by row: what the rendered SQL must give, bit for bit.

A row expression is computed in floats from one row alone. Whatever is computed from several rows is computed in whole
numbers and fractions, so that no order of rows can matter; it becomes a float once, at the end. Nothing here is shared
with the renderer. Only id units are known, and public sides without aggregates.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from deniable.policy.schema import ColumnType
from deniable.query.algebra.expression import Call, ColumnRef, Expression, Facts, Kind, Literal
from deniable.query.algebra.relation import (
    ExactAggregate,
    Join,
    PerUnit,
    PublicSelect,
    Relation,
    Scan,
    Summary,
    Transform,
    Union,
)

UNIT = "_unit"
Value = Any
Row = dict[str, Value]
Tables = dict[str, list[Row]]
DOUBLE, WHOLE, TEXT, TRUTH = "double", "whole", "text", "truth"
MOST = 2**53
OF_COLUMNS = {
    ColumnType.INTEGER: WHOLE,
    ColumnType.DECIMAL: DOUBLE,
    ColumnType.TEXT: TEXT,
    ColumnType.BOOLEAN: TRUTH,
}
ARITHMETIC = ("add", "subtract", "multiply", "divide", "modulo", "negate", "abs", "floor", "ceil", "round",
              "truncate", "power")  # fmt: skip
LOGICAL = ("eq", "ne", "lt", "le", "gt", "ge", "in", "and", "or", "not", "is_null", "is_true", "is_false",
           "starts_with", "ends_with", "contains")  # fmt: skip
WORDS = ("lower", "upper", "trim", "ltrim", "rtrim", "concat_ws", "substring", "left", "right", "replace", "concat")


@dataclass(frozen=True, slots=True)
class Bag:
    """Rows without order, and the engine's type of each field: arithmetic of whole numbers is DOUBLE all the same."""

    types: dict[str, str]
    rows: list[Row]


def evaluate_relation(tree: Relation, tables: Tables) -> Bag:
    """The rows of a relation over tables given as records."""
    match tree:
        case Scan():
            return _evaluate_scan(tree, tables)
        case Transform(source, projections, predicate) | PublicSelect(source, projections, predicate):
            return _evaluate_transform(evaluate_relation(source, tables), projections, predicate)
        case Join():
            return _evaluate_join(tree, evaluate_relation(tree.left, tables), evaluate_relation(tree.right, tables))
        case Union(inputs, fields):
            bags = [evaluate_relation(side, tables) for side in inputs]
            sides = [[field.name for field in side.fields] for side in inputs]
            return _evaluate_union([field.name for field in fields], sides, bags)
        case PerUnit():
            return _evaluate_per_unit(tree, evaluate_relation(tree.input, tables))
        case _:
            raise NotImplementedError(type(tree).__name__)


# -- relations --------------------------------------------------------------------------------------------------------


def _evaluate_scan(tree: Scan, tables: Tables) -> Bag:
    columns = list(zip(tree.table.columns, tree.fields, strict=True))
    unit = tree.table.unit.column if tree.table.unit is not None and not tree.table.public else None
    rows = []
    for record in tables[tree.table.name]:
        row = {field.name: _read_as_declared(record.get(column.name), field.facts) for column, field in columns}
        if unit:
            row[UNIT] = record.get(unit)
        rows.append(row)
    return Bag({field.name: OF_COLUMNS[column.type] for column, field in columns}, rows)


def _read_as_declared(value: Value, facts: Facts) -> Value:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if facts.domain is not None:
        return value if value in facts.domain else None
    if facts.kind.numeric and facts.lower is not None and facts.upper is not None:
        shape = float if facts.kind is Kind.DECIMAL else int
        return pick_greatest([shape(facts.lower), pick_least([shape(facts.upper), value])])
    return value


def _evaluate_transform(bag: Bag, projections: Iterable[tuple[str, Expression]], predicate: Expression | None) -> Bag:
    listed = [(name, compile_expression(e, bag.types)) for name, e in projections]
    test = None if predicate is None else compile_expression(predicate, bag.types)
    rows = []
    for row in bag.rows:
        if test is None or test(row) is True:
            new = {name: compute(row) for name, compute in listed}
            if UNIT in row:
                new[UNIT] = row[UNIT]
            rows.append(new)
    return Bag({name: type_of(e, bag.types) for name, e in projections}, rows)


def _evaluate_join(tree: Join, left: Bag, right: Bag) -> Bag:
    pairs = [_compile_pair(a, b, left.types, right.types) for a, b in tree.on]

    def key(row: Row, side: int) -> tuple[Value, ...] | None:
        found = tuple(pair[side](row) for pair in pairs) + ((row[UNIT],) if tree.by_unit else ())
        return None if any(part is None for part in found) else found

    matches: dict[tuple[Value, ...], list[Row]] = {}
    for row in right.rows:
        if (held := key(row, 1)) is not None:
            matches.setdefault(held, []).append({name: row[name] for name in right.types})
    nothing = [dict.fromkeys(right.types)] if tree.outer else []
    large = _find_large_units(left, right, tree.pairs) if tree.by_unit and not tree.single else set()
    rows = []
    for row in left.rows:
        if tree.by_unit and row[UNIT] in large:
            continue
        held = key(row, 0)
        rows += [row | other for other in (matches.get(held) if held is not None else None) or nothing]
    return Bag({**left.types, **right.types}, rows)


def _find_large_units(left: Bag, right: Bag, most: int) -> set[Value]:
    ones, others = (Counter(row[UNIT] for row in bag.rows) for bag in (left, right))
    several = {unit for unit, count in ones.items() if unit is not None and count > 1 and others[unit] > 1}
    return {unit for unit in several if ones[unit] * others[unit] > most}


Compute = Callable[[Row], Value]


def _compile_pair(a: Expression, b: Expression, left: dict[str, str], right: dict[str, str]) -> tuple[Compute, Compute]:
    double = DOUBLE in (type_of(a, left), type_of(b, right))
    one, other = compile_expression(a, left), compile_expression(b, right)
    return (_as_double(one), _as_double(other)) if double else (one, other)


def _evaluate_union(names: list[str], sides: list[list[str]], bags: list[Bag]) -> Bag:
    types = {
        name: join_types([bag.types[side[i]] for bag, side in zip(bags, sides, strict=True)])
        for i, name in enumerate(names)
    }
    rows = []
    for bag, side in zip(bags, sides, strict=True):
        for row in bag.rows:
            new = {name: shape(row[old], types[name]) for name, old in zip(names, side, strict=True)}
            rows.append(new | ({UNIT: row[UNIT]} if UNIT in row else {}))
    return Bag(types, rows)


def _evaluate_per_unit(tree: PerUnit, bag: Bag) -> Bag:
    keys = [(name, compile_expression(e, bag.types)) for name, e in tree.keys]
    groups: dict[tuple[Value, ...], list[Row]] = {}
    for row in bag.rows:
        if row[UNIT] is not None:
            held = tuple(drop_sign_of_zero(compute(row)) for _, compute in keys)
            groups.setdefault((*held, row[UNIT]), []).append(row)
    summaries = [(name, compile_aggregate(aggregate, bag.types)) for name, aggregate in tree.aggregates]
    rows = []
    for held, members in groups.items():
        row = dict(zip([name for name, _ in keys], held[:-1], strict=True))
        row |= {name: summarize(members) for name, summarize in summaries}
        rows.append(row | {UNIT: held[-1]})
    types = {name: type_of(e, bag.types) for name, e in tree.keys}
    types |= {name: _type_of_aggregate(aggregate, bag.types) for name, aggregate in tree.aggregates}
    return Bag(types, rows)


# -- aggregates: functions of the set of rows --------------------------------------------------------------------------


def _type_of_aggregate(aggregate: ExactAggregate, types: dict[str, str]) -> str:
    if aggregate.summary in (Summary.COUNT, Summary.DISTINCT) or aggregate.argument is None:
        return WHOLE
    return DOUBLE if aggregate.summary in (Summary.SUM, Summary.AVG) else type_of(aggregate.argument, types)


def compile_aggregate(aggregate: ExactAggregate, types: dict[str, str]) -> Callable[[list[Row]], Value]:
    """The function from a person's rows to one exact aggregate."""
    condition = None if aggregate.condition is None else compile_expression(aggregate.condition, types)
    argument = None if aggregate.argument is None else compile_expression(aggregate.argument, types)

    def summarize(rows: list[Row]) -> Value:
        kept = rows if condition is None else [row for row in rows if condition(row) is True]
        if argument is None:
            return len(kept)
        return _summarize(aggregate, [value for row in kept if (value := argument(row)) is not None])

    return summarize


def _summarize(aggregate: ExactAggregate, values: list[Value]) -> Value:
    match aggregate.summary:
        case Summary.COUNT:
            return len(values)
        case Summary.DISTINCT:
            return len(set(values))
        case Summary.MIN | Summary.MAX if values:
            return drop_sign_of_zero(min(values) if aggregate.summary is Summary.MIN else max(values))
        case Summary.SUM | Summary.AVG if values:
            return _add_on_grid(aggregate, values)
        case _:
            return None


def _add_on_grid(aggregate: ExactAggregate, values: list[Value]) -> float:
    assert aggregate.step is not None
    over, under = aggregate.step.numerator, aggregate.step.denominator
    number = convert_total(sum(count_steps(float(value), over, under) for value in values))
    if aggregate.summary is Summary.SUM:
        return divide(number * over, float(under))
    return divide(number * over, float(len(values)) * float(under))


def count_steps(value: float, over: int, under: int) -> int:
    """One row's value in whole steps of over / under, at most 2^53 of them to either side."""
    scaled = value * under if under != 1 else value
    scaled = scaled / over if over != 1 else scaled
    return int(max(-float(MOST), min(float(MOST), round_half_away(scaled))))


def convert_total(total: int) -> float:
    """A whole number as a float. The engine converts a negative one beyond 2^53 by way of its complement."""
    return float(total) if total >= -MOST else -float(-total - 1) - 1


def drop_sign_of_zero(value: Value) -> Value:
    """The value with one zero."""
    return 0.0 if isinstance(value, float) and value == 0 else value


# -- types ------------------------------------------------------------------------------------------------------------


def type_of(tree: Expression, types: dict[str, str]) -> str:
    """The type in which the engine computes an expression."""
    match tree:
        case ColumnRef(name):
            return types[name]
        case Literal(held):
            return _type_of_literal(held)
        case Call(name) if name in ARITHMETIC or name == "cast_decimal":
            return DOUBLE
        case Call(name) if name in LOGICAL:
            return TRUTH
        case Call("length" | "cast_integer" | "sign"):
            return WHOLE
        case Call(name) if name in WORDS:
            return TEXT
        case Call("nullif", arguments):
            return type_of(arguments[0], types)
        case Call("case", arguments):
            return join_types([type_of(a, types) for a in (*arguments[1::2], arguments[-1])])
        case Call("least" | "greatest" | "coalesce" | "clamp", arguments):
            return join_types([type_of(a, types) for a in arguments])
        case _:
            raise NotImplementedError(repr(tree))


def _type_of_literal(held: Value) -> str:
    if isinstance(held, bool):
        return TRUTH
    return {int: WHOLE, Fraction: DOUBLE, str: TEXT}.get(type(held), "null")


def join_types(found: list[str]) -> str:
    """The type that holds values of all of them."""
    known = {each for each in found if each != "null"}
    if DOUBLE in known:
        return DOUBLE
    return next(iter(known), "null")


def shape(value: Value, kind: str) -> Value:
    """A value in a type that its own type goes into."""
    return float(value) if kind == DOUBLE and value is not None else value


def _as_double(compute: Compute) -> Compute:
    return lambda row: shape(compute(row), DOUBLE)


# -- row expressions --------------------------------------------------------------------------------------------------


def compile_expression(tree: Expression, types: dict[str, str]) -> Compute:
    """The function from one row to the expression's value; None stands for null and for unknown."""
    match tree:
        case ColumnRef(name):
            return lambda row: row[name]
        case Literal(held):
            value = float(held) if isinstance(held, Fraction) else held
            return lambda row: value
        case Call(name, arguments):
            return _compile_call(name, arguments, types)


def _compile_call(name: str, arguments: tuple[Expression, ...], types: dict[str, str]) -> Compute:
    parts = [compile_expression(argument, types) for argument in arguments]
    if name == "case":
        return _compile_case(parts, join_types([type_of(a, types) for a in (*arguments[1::2], arguments[-1])]))
    together = name in ("eq", "ne", "lt", "le", "gt", "ge", "in", "least", "greatest", "coalesce", "clamp")
    # NULLIF compares in the common type, and gives its first argument as it was.
    if name == "nullif":
        double = DOUBLE in [type_of(a, types) for a in arguments]
        return lambda row: _null_if(parts[0](row), parts[1](row), double)
    double = name in ARITHMETIC or (together and DOUBLE in [type_of(a, types) for a in arguments])
    apply = FUNCTIONS[name]
    if double:
        return lambda row: _drop_nan(apply([shape(part(row), DOUBLE) for part in parts]))
    return lambda row: apply([part(row) for part in parts])


def _compile_case(parts: list[Compute], kind: str) -> Compute:
    def compute(row: Row) -> Value:
        for condition, value in zip(parts[:-1:2], parts[1::2], strict=True):
            if condition(row) is True:
                return shape(value(row), kind)
        return shape(parts[-1](row), kind)

    return compute


def _drop_nan(value: Value) -> Value:
    return None if isinstance(value, float) and math.isnan(value) else value


def _null_if(value: Value, other: Value, double: bool) -> Value:
    if value is None or other is None:
        return value
    equal = float(value) == float(other) if double else value == other
    return None if equal else value


def _strictly(op: Callable[..., Value]) -> Callable[[list[Value]], Value]:
    """Null where an argument is."""
    return lambda values: None if any(value is None for value in values) else op(*values)


def multiply(a: float, b: float) -> float:
    """A product; overflow is infinity."""
    return a * b


def divide(a: float, b: float) -> Value:
    """A quotient; null by zero."""
    return None if b == 0 else a / b


def remainder(a: float, b: float) -> Value:
    """A remainder with the sign of the dividend; null by zero, and of infinity."""
    return None if b == 0 or math.isinf(a) else math.fmod(a, b)


def raise_to_power(base: float, exponent: float) -> Value:
    """A power; overflow is infinity, and what is no real number is null."""
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return math.inf if base > 0 or exponent % 2 == 0 else -math.inf
    except ValueError:
        return math.inf if base == 0 else None


def round_half_away(value: float) -> float:
    """The nearest whole number, halves away from zero."""
    if math.isinf(value) or abs(value) >= MOST:
        return value
    whole = math.trunc(value)
    if abs(value - whole) >= 0.5:
        whole += 1 if value > 0 else -1
    return math.copysign(float(whole), value)


def round_to_places(value: float, places: float = 0) -> float:
    """The engine's ROUND: scaled by a power of ten, rounded, and scaled back, all in floats."""
    scale = 10.0 ** abs(int(places))
    rounded = round_half_away(value * scale) / scale if places >= 0 else round_half_away(value / scale) * scale
    return rounded if math.isfinite(rounded) else (value if places >= 0 else 0.0)


def _keep_infinity(op: Callable[[float], int]) -> Callable[[float], float]:
    return lambda value: value if math.isinf(value) else math.copysign(float(op(value)), value)


def pick_least(values: list[Value]) -> Value:
    """The least value that is not null, the first of equal ones."""
    return min((value for value in values if value is not None), default=None)


def pick_greatest(values: list[Value]) -> Value:
    """The greatest value that is not null, the first of equal ones."""
    return max((value for value in values if value is not None), default=None)


def clamp(values: list[Value]) -> Value:
    """A value forced between two others; null stays null."""
    value, low, high = values
    return None if value is None else pick_greatest([low, pick_least([high, value])])


def _both(values: list[Value]) -> Value:
    return False if False in values else (None if None in values else True)


def _either(values: list[Value]) -> Value:
    return True if True in values else (None if None in values else False)


def is_among(values: list[Value]) -> Value:
    """IN: unknown where the value is null, or is not found among others of which one is null."""
    value, *others = values
    if value is None:
        return None
    return True if value in [o for o in others if o is not None] else (None if None in others else False)


def take_part(text: str, start: int, length: int | None = None) -> str:
    """SUBSTRING with a start from 1 up."""
    return text[start - 1 :] if length is None else text[start - 1 : start - 1 + length]


def cast_to_whole(value: Value) -> Value:
    """A number rounded to a whole one; null where 64 bits do not hold it."""
    rounded = round_half_away(float(value))
    return int(rounded) if -(2.0**63) <= rounded < 2.0**63 else None


FUNCTIONS: dict[str, Callable[[list[Value]], Value]] = {
    "add": _strictly(lambda a, b: a + b),
    "subtract": _strictly(lambda a, b: a - b),
    "multiply": _strictly(multiply),
    "divide": _strictly(divide),
    "modulo": _strictly(remainder),
    "negate": _strictly(lambda a: -a),
    "abs": _strictly(abs),
    "floor": _strictly(_keep_infinity(math.floor)),
    "ceil": _strictly(_keep_infinity(math.ceil)),
    "round": _strictly(round_to_places),
    "truncate": _strictly(_keep_infinity(math.trunc)),
    "sign": _strictly(lambda a: (a > 0) - (a < 0)),
    "power": _strictly(raise_to_power),
    "least": pick_least,
    "greatest": pick_greatest,
    "clamp": clamp,
    "eq": _strictly(lambda a, b: a == b),
    "ne": _strictly(lambda a, b: a != b),
    "lt": _strictly(lambda a, b: a < b),
    "le": _strictly(lambda a, b: a <= b),
    "gt": _strictly(lambda a, b: a > b),
    "ge": _strictly(lambda a, b: a >= b),
    "in": is_among,
    "and": _both,
    "or": _either,
    "not": _strictly(lambda a: not a),
    "is_null": lambda values: values[0] is None,
    "is_true": lambda values: values[0] is True,
    "is_false": lambda values: values[0] is False,
    "coalesce": lambda values: next((value for value in values if value is not None), None),
    "lower": _strictly(str.lower),
    "upper": _strictly(str.upper),
    "trim": _strictly(lambda text, signs=" ": text.strip(signs)),
    "ltrim": _strictly(lambda text, signs=" ": text.lstrip(signs)),
    "rtrim": _strictly(lambda text, signs=" ": text.rstrip(signs)),
    "concat_ws": lambda values: None if values[0] is None else values[0].join(v for v in values[1:] if v is not None),
    "length": _strictly(len),
    "left": _strictly(lambda text, count: text[:count]),
    "right": _strictly(lambda text, count: text[-count:] if count else ""),
    "substring": _strictly(take_part),
    "replace": _strictly(lambda text, old, new: text.replace(old, new)),
    "concat": lambda values: "".join(value for value in values if value is not None),
    "starts_with": _strictly(str.startswith),
    "ends_with": _strictly(str.endswith),
    "contains": _strictly(lambda text, part: part in text),
    "cast_integer": _strictly(cast_to_whole),
    "cast_decimal": _strictly(float),
}
