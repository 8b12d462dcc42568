"""Aggregates that are measured together: one workload over disjoint cells, at the price of one histogram.

**Cells.** The conditions of a question's counts and sums (FILTER, CASE pivots, values that are not null) are read as
logic over comparisons of single expressions with constants. Each expression's values fall into disjoint pieces between
and at its constants; a cell is what no condition tells apart. A row has the number of its cell in a column of its own,
made by one CASE, so that it is in one cell whatever the conditions are. Each aggregate is a sum over cells: a row of
zeros and ones, the *workload*.

**Parts.** A value v between l and u gives to a cell the d + 1 Bernstein parts C(d, i) (v - l)^i (u - v)^(d - i), which
are never negative and add up to (u - l)^d. So a row moves all of them together by no more than that, and they hold the
count, the sum (d = 1 and 2) and the sum of squares (d = 2) alike: COUNT, SUM, AVG and VARIANCE of one column share
them. Counts alone have one part, d = 0. Rows without a value, where they are counted, give (u - l)^d to a part of their
own.

**Strategy.** What is measured is a matrix of whole numbers times the cells of each part, with noise for the largest
norm of a column; the workload follows by least squares, in floating point, after the noise. The cells themselves,
the aggregates themselves, both, and trees over the cells are compared by the error that is expected of the workload
(the matrix mechanism of Li et al. 2010 over weighted levels, as Qardaji et al. 2013 and HDMM choose among them).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
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
    literal,
    to_number,
)
from deniable.query.algebra.functions import call
from deniable.query.algebra.relation import Field, Measured, Relation, Transform
from deniable.query.measurements import Measurement, Part, Rows, Total
from deniable.query.techniques.least_squares import Matrix, Strategy

Truth = NDArray[np.int8]
"""What a condition says on each of some pieces: 0 false, 1 unknown, 2 true, as SQL has it."""
Place = tuple[Fraction, str]
"""Where a constant stands among others of its kind."""
MOST_PIECES = 4096
"""Combinations of pieces that are looked at; conditions that have more are measured one by one."""
MOST_PARTS = 512
"""Columns that the cells of a question may take."""
MOST_BRANCHES, MOST_TERMS = 990, 20_000
"""What a CASE may have: more is measured one by one."""
MOST_REACH = 2**34
"""The most that a row adds to a part: 2^28 rows still fit 64 bits."""


# -- conditions and cells ---------------------------------------------------------------------------------------------

COMPARED = ("eq", "ne", "lt", "le", "gt", "ge")
TURNED = {"eq": "eq", "ne": "ne", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
PIECES_OF = {"eq": (0,), "ne": (-1, 1), "lt": (-1,), "le": (-1, 0), "gt": (1,), "ge": (0, 1)}
"""On which side of a constant (below, at, above) each comparison holds."""
ORDERED = (Kind.INTEGER, Kind.DECIMAL, Kind.DATE, Kind.DATETIME)


@dataclass(frozen=True, slots=True)
class Family:
    """The pieces of one expression's values: below, at and between its constants in order; or each constant and others.

    The last piece is that of nulls.
    """

    subject: Expression
    constants: tuple[Place, ...]
    written: tuple[Literal, ...]

    @property
    def tests(self) -> list[Expression]:
        """A condition for each piece but the last; the first that holds decides."""
        e, at = self.subject, self.written
        if e.facts.kind is Kind.BOOLEAN:
            return [e, call("not", e)]
        if e.facts.kind in ORDERED and at:
            return [*(call(name, e, each) for each in at for name in ("lt", "le")), call("gt", e, at[-1])]
        return [*(call("eq", e, each) for each in at), call("not", call("is_null", e))]

    @property
    def null(self) -> int:
        """The piece of nulls, which is the last."""
        if self.subject.facts.kind is Kind.BOOLEAN:
            return 2
        return 2 * len(self.constants) + 1 if self.subject.facts.kind in ORDERED else len(self.constants) + 1

    def compare(self, name: str, constant: Place, pieces: NDArray[np.int64]) -> Truth:
        """What a comparison with one of the constants says on some pieces."""
        place = bisect_left(self.constants, constant)
        ordered = self.subject.facts.kind in ORDERED
        side = np.sign(pieces - (2 * place + 1)) if ordered else (pieces != place).astype(np.int64)
        said = np.where(np.isin(side, PIECES_OF[name]), 2, 0)
        return np.where(pieces == self.null, 1, said).astype(np.int8)


def _split_comparison(tree: Expression) -> tuple[str, Expression, Literal] | None:
    """A comparison of an expression with a constant of its kind; None where a condition is none."""
    if not isinstance(tree, Call) or tree.name not in COMPARED:
        return None
    left, right = tree.arguments
    if isinstance(left, Literal):
        left, right, name = right, left, TURNED[tree.name]
    else:
        name = tree.name
    if not isinstance(right, Literal) or isinstance(left, Literal) or right.value is None:
        return None
    kinds, ordered = {left.facts.kind, right.facts.kind}, name not in ("eq", "ne")
    fits = len(kinds) == 1 if not left.facts.kind.numeric else right.facts.kind.numeric
    discrete = kinds == {Kind.TEXT} and not ordered
    return (name, left, right) if fits and (discrete or left.facts.kind in ORDERED) else None


LOGIC: dict[str, Callable[..., Truth]] = {
    "and": np.minimum,
    "or": np.maximum,
    "not": lambda a: 2 - a,
    "is_true": lambda a: np.where(a == 2, 2, 0),
    "is_false": lambda a: np.where(a == 0, 2, 0),
}


class Families:
    """The expressions that some conditions look at, each with its constants."""

    def __init__(self, conditions: Iterable[Expression]) -> None:
        self.constants: dict[Expression, dict[Place, Literal]] = {}
        for condition in conditions:
            self._collect(condition)
        self.all = {
            e: Family(e, tuple(sorted(found)), tuple(found[place] for place in sorted(found)))
            for e, found in sorted(self.constants.items(), key=repr)
        }

    def _collect(self, tree: Expression) -> None:
        if isinstance(tree, Literal):
            return
        if isinstance(tree, Call) and tree.name in LOGIC:
            for argument in tree.arguments:
                self._collect(argument)
        elif (found := _split_comparison(tree)) is not None:
            self.constants.setdefault(found[1], {}).setdefault(_order_of(found[2]), found[2])
        elif isinstance(tree, Call) and tree.name == "is_null":
            self.constants.setdefault(tree.arguments[0], {})
        elif (listed := _split_list(tree)) is not None:
            for each in listed:
                self._collect(each)
        else:
            self.constants.setdefault(tree, {})

    def evaluate(self, tree: Expression, pieces: Mapping[Expression, NDArray[np.int64]]) -> Truth:
        """What a condition says in each place, where each expression's value is in one of its pieces."""
        if isinstance(tree, Literal):
            said = 2 * tree.value if isinstance(tree.value, bool) else 1
            return np.full(len(next(iter(pieces.values()), [0])), said, dtype=np.int8)
        if isinstance(tree, Call) and tree.name in LOGIC:
            return LOGIC[tree.name](*(self.evaluate(each, pieces) for each in tree.arguments))
        if (found := _split_comparison(tree)) is not None:
            return self.all[found[1]].compare(found[0], _order_of(found[2]), pieces[found[1]])
        if isinstance(tree, Call) and tree.name == "is_null":
            subject = tree.arguments[0]
            return np.where(pieces[subject] == self.all[subject].null, 2, 0).astype(np.int8)
        if (listed := _split_list(tree)) is not None:
            any_of: Truth = np.maximum.reduce([self.evaluate(each, pieces) for each in listed])
            return any_of
        return np.array([2, 0, 1], dtype=np.int8)[pieces[tree]]


def _split_list(tree: Expression) -> list[Expression] | None:
    """x IN (a, b) as comparisons; None where it is not one with constants."""
    if not isinstance(tree, Call) or tree.name != "in":
        return None
    subject, *listed = tree.arguments
    each = [Call("eq", (subject, one), tree.facts) for one in listed]
    return list(each) if all(_split_comparison(one) is not None for one in each) else None


def _order_of(constant: Literal) -> Place:
    """Where a constant stands among others of its kind."""
    text = isinstance(constant.value, str)
    return (Fraction(0), str(constant.value)) if text else (to_number(constant.value), "")


@dataclass(frozen=True, slots=True)
class Cells:
    """Disjoint cells: the columns that say which cell a row is in, and for each condition the cells where it holds."""

    columns: tuple[tuple[tuple[str, Expression], ...], ...]
    """Level by level, since the last is computed from those before."""
    index: ColumnRef
    count: int
    workload: Matrix
    groups: tuple[int, ...]
    """For each condition, a number that is the same for those which look at the same expressions."""


NUMBER = Facts(Kind.INTEGER, step=Fraction(1), nullable=False)


def find_cells(conditions: Sequence[Expression | None], name: str) -> Cells | None:
    """The cells of some conditions (None holds always); None where there are too many, or no row is in any."""
    stated = [each for each in conditions if each is not None]
    families = Families(stated)
    pieces = _merge_pieces(families, stated)
    written = sum(family.null * (1 + family.subject.size) for family in families.all.values())
    if math.prod(len(set(each)) for each in pieces) > MOST_PIECES or written > MOST_TERMS:
        return None
    places = list(product(*(range(max(each) + 1) for each in pieces)))
    standing = {
        e: np.array([merged.index(place[i]) for place in places])
        for i, (e, merged) in enumerate(zip(families.all, pieces, strict=True))
    }
    always = np.full(len(places), 2, dtype=np.int8)
    said = np.array([always if each is None else families.evaluate(each, standing) for each in conditions]) == 2
    found: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for place, holds in zip(places, said.T.astype(int).tolist(), strict=True):
        if any(holds):
            found.setdefault(tuple(holds), []).append(place)
    branches = max([sum(map(len, found.values())), *(family.null for family in families.all.values())])
    if not found or branches > MOST_BRANCHES:
        return None
    columns = _number_cells(families, pieces, list(found.values()), name)
    workload = tuple(zip(*found, strict=True))
    return Cells(columns, ColumnRef(name, NUMBER), len(found), workload, _group_conditions(conditions))


def _group_conditions(conditions: Sequence[Expression | None]) -> tuple[int, ...]:
    looked = [frozenset(map(_subject_of, _list_leaves(c))) if c is not None else frozenset() for c in conditions]
    kinds = sorted({each for each in looked if each}, key=lambda each: sorted(map(repr, each)))
    return tuple(kinds.index(each) if each else 0 for each in looked)


def _merge_pieces(families: Families, conditions: list[Expression]) -> list[list[int]]:
    """For each family and piece of it, the number of those that every comparison of it says the same on."""
    leaves: dict[Expression, dict[Expression, None]] = {e: {} for e in families.all}
    for leaf in (leaf for condition in conditions for leaf in _list_leaves(condition)):
        leaves[_subject_of(leaf)][leaf] = None
    found = []
    for e, family in families.all.items():
        every = {e: np.arange(family.null + 1)}
        said = list(zip(*(families.evaluate(leaf, every).tolist() for leaf in leaves[e]), strict=True))
        number = {each: i for i, each in enumerate(dict.fromkeys(said))}
        found.append([number[each] for each in said])
    return found


def _list_leaves(tree: Expression) -> list[Expression]:
    if isinstance(tree, Literal):
        return []
    if isinstance(tree, Call) and tree.name in LOGIC:
        return [leaf for argument in tree.arguments for leaf in _list_leaves(argument)]
    return [tree]


def _subject_of(leaf: Expression) -> Expression:
    found = _split_comparison(leaf)
    if found is not None:
        return found[1]
    listed = _split_list(leaf)
    if listed is not None or (isinstance(leaf, Call) and leaf.name == "is_null"):
        assert isinstance(leaf, Call)
        return leaf.arguments[0]
    return leaf


def _number_cells(
    families: Families, pieces: list[list[int]], cells: list[list[tuple[int, ...]]], name: str
) -> tuple[tuple[tuple[str, Expression], ...], ...]:
    """The columns that give a row the number of its cell, -1 where it is in none that is asked for."""
    if not families.all:
        return (((name, literal(0)),),)
    if len(families.all) == 1:
        (family,), of = families.all.values(), {each[0]: cell for cell, places in enumerate(cells) for each in places}
        return (((name, _build_chain(family, [of.get(each, -1) for each in pieces[0]])),),)
    single = tuple(
        (f"{name}_{i}", _build_chain(family, merged))
        for i, (family, merged) in enumerate(zip(families.all.values(), pieces, strict=True))
    )
    tests: list[Expression] = []
    for cell, places in enumerate(cells):
        for place in places:
            met = [call("eq", ColumnRef(n, NUMBER), literal(i)) for (n, _), i in zip(single, place, strict=True)]
            both = met[0]
            for each in met[1:]:
                both = call("and", both, each)
            tests += [both, literal(cell)]
    return single, ((name, call("case", *tests, literal(-1))),)


def _build_chain(family: Family, numbers: Sequence[int]) -> Expression:
    """The number of the piece that a value is in; the last number is that of nulls."""
    parts = [each for test, number in zip(family.tests, numbers, strict=False) for each in (test, literal(number))]
    return call("case", *parts, literal(numbers[-1]))


# -- blocks -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Block:
    """Measurements of one node that are released together."""

    cells: Cells
    parts: tuple[Part, ...]
    """Part by part, each over all cells."""
    places: tuple[int, ...]
    """The measurements that follow from it."""
    weights: tuple[tuple[Fraction, ...], ...]
    """For each of them, how much each part counts for."""

    @property
    def kinds(self) -> int:
        """How many parts a cell has."""
        return len(self.parts) // self.cells.count

    @property
    def workload(self) -> Matrix:
        """For each measurement, the cells that it adds up."""
        return self.cells.workload


def name_part(block: int, place: int) -> str:
    """The column of a part in the engine's answer."""
    return f"j{block}_{place}"


def list_blocks(found: Sequence[Measurement], left_out: int | None) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    """The blocks of some measurements, in two ways; what is in none is measured by itself, as `left_out` is.

    Values of one column make a block, and all counts join the first of them; or counts that are not of its rows stay
    apart.
    """
    places = [i for i, m in enumerate(found) if i != left_out and is_joinable(m)]
    values: dict[tuple[Expression, int, int, Fraction], list[int]] = {}
    for i in places:
        if isinstance(total := found[i], Total):
            values.setdefault((total.argument, total.lower, total.upper, total.step), []).append(i)
    counts = [i for i in places if isinstance(found[i], Rows)]
    groups: list[list[int]] = []
    for (argument, *_), members in sorted(values.items(), key=lambda each: repr(each[0])):
        own = [i for i in counts if _is_count_of(found[i], argument)]
        counts = [i for i in counts if i not in own]
        groups.append([*members, *own])
    apart = _build_blocks(found, [*groups, counts])
    return _build_blocks(found, [[*groups[0], *counts], *groups[1:]]) if groups and counts else apart, apart


def _build_blocks(found: Sequence[Measurement], groups: list[list[int]]) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for group in groups:
        made = _build_block([(i, found[i]) for i in group], len(blocks)) if len(group) > 1 else None
        blocks += [made] if made is not None else []
    return tuple(blocks)


def is_joinable(measurement: Measurement) -> bool:
    """Whether a measurement may be one of several that are released together."""
    match measurement:
        case Rows(argument):
            return argument is None or not argument.facts.opaque
        case Total(per_group=None, lower=low, upper=high, squared=squared):
            return 0 < (high - low) ** (2 if squared else 1) <= MOST_REACH
        case _:
            return False


def _is_count_of(measurement: Measurement, argument: Expression) -> bool:
    """Whether a count is one of the rows that have a value of an argument."""
    assert isinstance(measurement, Rows)
    return measurement.argument == argument or (measurement.argument is None and not argument.facts.nullable)


def _build_block(members: list[tuple[int, Measurement]], number: int) -> Block | None:
    totals = [m for _, m in members if isinstance(m, Total)]
    first = totals[0] if totals else None
    degree = 0 if first is None else 2 if any(m.squared for m in totals) else 1
    if first is not None and (first.upper - first.lower) ** degree > MOST_REACH:
        return None
    cells = find_cells([_condition_of(m, first) for _, m in members], f"#cell{number}")
    if cells is None:
        return None
    nulls = first is not None and any(_counts_nulls(m, first) for _, m in members)
    kinds = degree + 1 + nulls
    if not 0 < kinds * cells.count <= MOST_PARTS:
        return None
    return Block(
        cells,
        _list_parts(cells, first, degree, nulls, number),
        tuple(i for i, _ in members),
        tuple(_weigh_parts(m, first, degree, kinds) for _, m in members),
    )


def _condition_of(measurement: Measurement, value: Total | None) -> Expression | None:
    """The rows that a measurement is over, apart from those without the block's own value."""
    assert isinstance(measurement, Rows | Total)
    condition, argument = measurement.condition, measurement.argument
    if isinstance(measurement, Total) or argument is None or (value is not None and argument == value.argument):
        return condition
    known = call("not", call("is_null", argument))
    return known if condition is None else call("and", condition, known)


def _counts_nulls(measurement: Measurement, value: Total) -> bool:
    """Whether a count takes rows without the block's own value too."""
    return isinstance(measurement, Rows) and value.argument.facts.nullable and measurement.argument != value.argument


def _list_parts(cells: Cells, value: Total | None, degree: int, nulls: bool, number: int) -> tuple[Part, ...]:
    orders = [*range(degree + 1), *([-1] if nulls else [])]
    counting = [i for i, order in enumerate(orders) if order in (0, -1)]
    among = tuple(name_part(number, kind * cells.count + cell) for kind in counting for cell in range(cells.count))
    bare = Part(None, None, 0, 1, Fraction(1), 0, 0, among)
    if value is not None:
        bare = replace(bare, argument=value.argument, lower=value.lower, upper=value.upper, step=value.step)
    return tuple(
        replace(bare, condition=call("eq", cells.index, literal(cell)), degree=degree, order=order)
        for order in orders
        for cell in range(cells.count)
    )


def _weigh_parts(measurement: Measurement, value: Total | None, degree: int, kinds: int) -> tuple[Fraction, ...]:
    """How a measurement follows from the parts of a cell: see the module's derivation.

    With a = l - c, n = u - l and s = (v - l) / n, v - c = a + n s, where s is the sum of i / d over the parts i of d,
    and s^2 is the last part of 2.
    """
    if value is None:
        return (Fraction(1),)
    width = value.upper - value.lower
    whole, nulls = Fraction(width**degree), [Fraction(0)] * (kinds - degree - 1)
    if isinstance(measurement, Rows):
        counted = Fraction(int(_counts_nulls(measurement, value))) / whole
        return (*[1 / whole] * (degree + 1), *[counted for _ in nulls])
    assert isinstance(measurement, Total)
    away = value.lower - measurement.center
    plain = [away + Fraction(width * i, degree) for i in range(degree + 1)]
    if measurement.squared:
        plain = [Fraction(away**2), Fraction(away**2 + away * width), Fraction((away + width) ** 2)]
    return (*(each / whole for each in plain), *nulls)


def add_indexes(node: Measured, blocks: Iterable[Block]) -> Measured:
    """The node over rows that carry the numbers of their cells."""
    source: Relation = node.input
    for block in blocks:
        for level in block.cells.columns:
            kept = tuple((field.name, ColumnRef(field.name, field.facts)) for field in source.fields)
            fields = (*source.fields, *(Field(name, NUMBER) for name, _ in level))
            source = Transform(source, (*kept, *level), None, fields)
    return replace(node, input=source)


# -- from cells to answers --------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _solve(workload: Matrix, weights: tuple[tuple[Fraction, ...], ...], matrix: Matrix) -> NDArray[np.float64]:
    fitted = np.array(workload, dtype=np.float64) @ np.linalg.pinv(np.array(matrix, dtype=np.float64))
    fitted[np.abs(fitted) < 1e-12] = 0.0
    near = np.rint(fitted)
    fitted = np.where(np.abs(fitted - near) < 1e-12, near, fitted)
    parts = np.array([[float(each) for each in row] for row in weights])
    return np.array([np.outer(part, row).ravel() for part, row in zip(parts, fitted, strict=True)])


def solve_block(block: Block, strategy: Strategy) -> NDArray[np.float64]:
    """For each measurement of a block, what it takes of each measured number: part by part, row by row."""
    return _solve(block.workload, block.weights, strategy.matrix)


LARGEST = 2**62


def apply_strategy(exact: NDArray[np.int64], matrix: Matrix) -> NDArray[np.int64]:
    """What is measured of the cells: one row for each group, its parts one after another; whole numbers all the way.

    Cells are cut off where the sums would leave 64 bits, which moves no two of them further apart.
    """
    rows = np.array(matrix, dtype=np.int64)
    most = LARGEST // int(np.abs(rows).sum(axis=1).max())
    groups, kinds = len(exact), exact.shape[1] // rows.shape[1]
    cells = np.clip(exact, -most, most).reshape(groups, kinds, rows.shape[1])
    return (cells @ rows.T).reshape(groups, kinds * len(rows))


def reconstruct(noisy: NDArray[Any], coefficients: NDArray[np.float64], parts: int) -> list[NDArray[np.int64]]:
    """The measurements of a block from its noisy numbers, in whole steps; post-processing."""
    found = noisy.astype(np.float64) @ coefficients.T / parts
    whole = np.rint(np.clip(found, -LARGEST, LARGEST)).astype(np.int64)
    return list(whole.T)
