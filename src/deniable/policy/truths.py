"""Truths: public rules between the columns of a row, solved together; whether any row can keep all of them.

A truth is read into a tree of conditions over whole numbers: numbers and times in a common unit, texts by their rank. A
row keeps a truth unless it is false, so a null keeps most. A dependency (`determines`) is about several rows: one row
alone always keeps it."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, product
from typing import Any

from deniable.policy.budget import read_rational
from deniable.policy.conditions import (
    Both,
    Compared,
    Linear,
    Member,
    Missing,
    Not,
    Plain,
    Terms,
    Tree,
    compare_sum,
    list_columns,
    pair_ordered,
    read_condition,
    read_time,
)
from deniable.policy.schema import Column, ColumnType, Spec, number_of

TRUE, FALSE, UNKNOWN = 1, 2, 4
"""What a condition may be, as bits: over several rows it may be more than one."""


def columns_of(truth: Spec) -> frozenset[str]:
    """The columns a truth speaks of."""
    options = truth.options
    match truth.kind:
        case "determines":
            return frozenset((*list_names(options["from"]), *list_names(options["to"])))
        case "sum":
            return frozenset((*list_names(options["parts"]), str(options["total"])))
        case "order":
            return frozenset(list_names(options["columns"]))
        case "holds":
            return frozenset(list_columns(read_condition(str(options["condition"]), None)))
        case _:
            when = options["when"]
            return frozenset(str(name) for name in when) if isinstance(when, Mapping) else frozenset()


def list_names(value: Any) -> list[str]:
    """Names in a list."""
    return [str(name) for name in value]


def describe_truth(truth: Spec) -> str:
    """A truth in a few words, as it is written."""
    options = truth.options
    match truth.kind:
        case "determines":
            return f"{', '.join(list_names(options['from']))} determines {', '.join(list_names(options['to']))}"
        case "sum":
            return f"{' + '.join(list_names(options['parts']))} = {options['total']}"
        case "order":
            return (" < " if options.get("strict") else " <= ").join(list_names(options["columns"]))
        case "holds":
            return str(options["condition"])
        case _:
            when = options["when"] if isinstance(options["when"], Mapping) else {}
            return f"impossible {' with '.join(f'{name} = {_show_values(when[name])}' for name in sorted(when))}"


def _show_values(value: Any) -> str:
    return " or ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@dataclass(frozen=True, slots=True)
class Declared:
    """A column: its values as a grid (first, step, how many) or as a list; neither where they are open."""

    name: str
    type: ColumnType
    nullable: bool
    grid: tuple[Fraction, Fraction, int] | None = None
    listed: tuple[Plain, ...] | None = None


def declare_column(column: Column) -> Declared:
    """A column of a policy."""
    if column.type is ColumnType.BOOLEAN:
        return Declared(column.name, column.type, column.nullable, listed=(Fraction(0), Fraction(1)))
    if column.categories is not None:
        listed = tuple(value if isinstance(value, str) else Fraction(value) for value in column.categories)
        return Declared(column.name, column.type, column.nullable, listed=listed)
    if column.bounds is None:
        return Declared(column.name, column.type, column.nullable)
    first, last = number_of(column.bounds.lower), number_of(column.bounds.upper)
    grid = (first, column.bounds.step, int((last - first) / column.bounds.step) + 1)
    return Declared(column.name, column.type, column.nullable, grid=grid)


Values = Sequence[int]
Box = tuple[Values, bool]
"""Values that a column may have, rising, and whether it may be null."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Truths about the columns of a row, over whole numbers: what each column may be, and the trees to be kept."""

    boxes: dict[str, Box]
    trees: tuple[Tree, ...]
    truths: tuple[Spec, ...]
    """The truth that each tree was read from."""
    unit: int
    """How many whole numbers make one."""
    ranks: dict[str, int]
    """The whole numbers of texts."""

    def number(self, value: Plain | int) -> int:
        """The whole number of a value."""
        return self.ranks[value] if isinstance(value, str) else int(value * self.unit)


def compile_rules(truths: Iterable[Spec], declared: Iterable[Declared]) -> Rules:
    """The truths about one row over whole numbers, without dependencies and what speaks of columns of open values."""
    columns = {each.name: each for each in declared}
    closed = {name for name, each in columns.items() if each.grid is not None or each.listed is not None}
    kept = [t for t in truths if t.kind != "determines" and columns_of(t) <= closed]
    types = {name: each.type for name, each in columns.items()}
    nullable = {name for name, each in columns.items() if each.nullable}
    trees = [_tree_of(truth, types, nullable) for truth in kept]
    named = set().union(*(list_columns(tree) for tree in trees)) if trees else set()
    numbers, texts = list[Fraction](), set[str]()
    for tree in trees:
        _collect_constants(tree, numbers, texts)
    for name in named:
        grid, listed = columns[name].grid, columns[name].listed
        numbers += grid[:2] if grid is not None else ()
        texts |= {value for value in listed or () if isinstance(value, str)}
        numbers += [value for value in listed or () if not isinstance(value, str)]
    unit = math.lcm(*(number.denominator for number in numbers)) if numbers else 1
    ranks = {text: rank for rank, text in enumerate(sorted(texts))}
    rules = Rules({}, (), tuple(kept), unit, ranks)
    boxes = {name: (values, columns[name].nullable) for name in sorted(named)
             if (values := _list_values(columns[name], rules)) is not None}  # fmt: skip
    return Rules(boxes, tuple(_scale_tree(tree, rules) for tree in trees), tuple(kept), unit, ranks)


def _list_values(column: Declared, rules: Rules) -> Values | None:
    if column.grid is not None:
        first, step, size = rules.number(column.grid[0]), rules.number(column.grid[1]), column.grid[2]
        return range(first, first + step * size, step)
    return None if column.listed is None else tuple(sorted({rules.number(value) for value in column.listed}))


def _tree_of(truth: Spec, types: Mapping[str, ColumnType], nullable: Set[str]) -> Tree:
    options = truth.options
    match truth.kind:
        case "sum":
            parts = [(name, Fraction(1)) for name in list_names(options["parts"])]
            return Linear((*parts, (str(options["total"]), Fraction(-1))), "=", Fraction(0))
        case "order":
            sign = "<" if options.get("strict") else "<="
            pairs = pair_ordered(list_names(options["columns"]), nullable)
            steps = [_compare_columns(a, sign, b, types) for a, b in pairs]
            return steps[0] if len(steps) == 1 else Both(tuple(steps))
        case "holds":
            return read_condition(str(options["condition"]), types)
        case _:
            when: Any = options["when"]
            listed = [(str(name), values) for name, values in dict(when).items()]
            return Not(Both(tuple(Member(name, _read_members(values, types[name])) for name, values in listed)))


def _compare_columns(left: str, sign: str, right: str, types: Mapping[str, ColumnType]) -> Tree:
    if types[left] is ColumnType.TEXT and types[right] is ColumnType.TEXT:
        return Compared(left, sign, right)
    return Linear(((left, Fraction(1)), (right, Fraction(-1))), "<=", Fraction(0), sign == "<")


def _read_members(values: Any, kind: ColumnType) -> frozenset[Plain | int]:
    listed = list(values) if isinstance(values, list | tuple) else [values]
    return frozenset(_read_value(value, kind) for value in listed)


def _read_value(value: Any, kind: ColumnType) -> Plain:
    """A value of a truth; a model's file holds what is no number as text."""
    if not isinstance(value, str) or kind is ColumnType.TEXT:
        return value if isinstance(value, str) else number_of(value)
    return read_time(value, kind) if kind in (ColumnType.DATE, ColumnType.DATETIME) else read_rational(value)


def _collect_constants(tree: Tree, numbers: list[Fraction], texts: set[str]) -> None:
    match tree:
        case Linear(terms, _, constant):
            numbers += [Fraction(constant), *(Fraction(factor) for _, factor in terms)]
        case Member(_, values):
            texts |= {value for value in values if isinstance(value, str)}
            numbers += [Fraction(value) for value in values if not isinstance(value, str)]
        case Compared(_, _, right, True):
            texts.add(right)
        case Not(part):
            _collect_constants(part, numbers, texts)
        case Both(parts):
            for part in parts:
                _collect_constants(part, numbers, texts)


def _scale_tree(tree: Tree, rules: Rules) -> Tree:
    """The tree over whole numbers: strictly below a number is at most the one before it."""
    match tree:
        case Linear(terms, sign, constant, strict):
            factors = tuple((name, int(factor * rules.unit)) for name, factor in terms)
            return Linear(factors, sign, int(constant * rules.unit**2) - strict)
        case Member(column, values):
            return Member(column, frozenset(rules.number(value) for value in values))
        case Compared(left, sign, right, fixed):
            between: Terms = ((left, 1),) if fixed else ((left, 1), (right, -1))
            found = compare_sum(between, sign, rules.ranks[right] if fixed else 0)
            assert isinstance(found, Linear)
            return Linear(found.terms, found.sign, found.constant - found.strict)
        case Not(part):
            return Not(_scale_tree(part, rules))
        case Both(parts, either):
            return Both(tuple(_scale_tree(part, rules) for part in parts), either)
        case Missing():
            return tree


def judge(tree: Tree, boxes: Mapping[str, Box]) -> int:
    """What a tree may be if each column is in its box, as bits; it may say more than there is, and never less."""
    match tree:
        case Linear(terms, sign, constant):
            return _judge_linear(terms, sign, constant, boxes)
        case Member(column, wanted):
            values, null = boxes[column]
            inside = sum(1 for value in wanted if _holds(values, int(value)))
            return (TRUE if inside else 0) | (FALSE if len(values) > inside else 0) | (UNKNOWN if null else 0)
        case Missing(column):
            values, null = boxes[column]
            return (TRUE if null else 0) | (FALSE if len(values) else 0)
        case Not(part):
            found = judge(part, boxes)
            return (found & UNKNOWN) | (TRUE if found & FALSE else 0) | (FALSE if found & TRUE else 0)
        case Both(parts, either):
            return _judge_parts([judge(part, boxes) for part in parts], TRUE if either else FALSE)
    raise TypeError(tree)


def _holds(values: Values, value: int) -> bool:
    at = bisect_left(values, value)
    return at < len(values) and values[at] == value


def _judge_linear(terms: Terms, sign: str, constant: int | Fraction, boxes: Mapping[str, Box]) -> int:
    low = high = 0
    found, valued = 0, True
    for name, factor in terms:
        values, null = boxes[name]
        found |= UNKNOWN if null else 0
        if not len(values):
            valued = False
            continue
        ends = sorted((int(factor) * values[0], int(factor) * values[-1]))
        low, high = low + ends[0], high + ends[1]
    if not valued:
        return found
    if sign == "=":
        return found | (TRUE if low <= constant <= high else 0) | (0 if low == high == constant else FALSE)
    return found | (TRUE if low <= constant else 0) | (FALSE if high > constant else 0)


def _judge_parts(found: Sequence[int], decisive: int) -> int:
    """Parts together: one that is decisive decides; else one unknown makes all unknown."""
    other = TRUE if decisive == FALSE else FALSE
    result = decisive if any(each & decisive for each in found) else 0
    if any(each == decisive for each in found):
        return decisive
    result |= UNKNOWN if any(each & UNKNOWN for each in found) else 0
    return result | (other if all(each & other for each in found) else 0)


class SearchTooLong(Exception):
    """A search was given up: neither a row was found nor that there is none."""


MOST_STEPS, MOST_WORK = 20_000, 300_000


class Effort:
    """What several searches may do together, counted in trees that are judged: some seconds in all."""

    def __init__(self, most: int | None = None) -> None:
        self.left = MOST_WORK if most is None else most

    def spend(self, work: int) -> None:
        """Give up where nothing is left."""
        if self.left <= 0:
            raise SearchTooLong
        self.left -= work


Row = dict[str, int | None]


def find_row(rules: Rules, wanted: Mapping[str, int | None], fixed: Mapping[str, Box] | None = None,
             most: int = MOST_STEPS, effort: Effort | None = None) -> Row | None:  # fmt: skip
    """A row that keeps all trees, near the wanted values; None if there is none.

    Columns are decided one by one, the value nearest to the wanted one first, then halves of what is left; after every
    step bounds are drawn in, and a step after which some tree can only be false is taken back.
    """
    boxes = {**rules.boxes, **(fixed or {})}
    search = _Search(rules.trees, wanted, most, effort)
    found = search.solve(boxes)
    return None if found is None else {n: (None if null else values[0]) for n, (values, null) in found.items()}


class _Search:
    """One search, which ends after so many steps, or where the effort of several is used up."""

    def __init__(self, trees: Sequence[Tree], wanted: Mapping[str, int | None], most: int, effort: Effort | None):
        self._trees, self._wanted, self._left, self._effort = trees, wanted, most, effort
        self._flat = [each for tree in trees for each in _list_linear(tree)]

    def solve(self, boxes: dict[str, Box]) -> dict[str, Box] | None:
        """Boxes of one value each, or None."""
        if self._left <= 0:
            raise SearchTooLong
        self._left -= 1
        if self._effort is not None:
            self._effort.spend(len(self._trees))
        drawn = self._draw_in(boxes)
        if drawn is None or any(judge(tree, drawn) == FALSE for tree in self._trees):
            return None
        name = next((n for n, (values, null) in drawn.items() if len(values) + null > 1), None)
        if name is None:
            return drawn
        for box in _divide_box(*drawn[name], self._wanted.get(name)):
            found = self.solve({**drawn, name: box})
            if found is not None:
                return found
        return None

    def _draw_in(self, boxes: dict[str, Box]) -> dict[str, Box] | None:
        """The boxes without values that a sum of columns rules out; None if one is empty."""
        boxes = dict(boxes)
        for _ in range(4):
            before = dict(boxes)
            for linear in self._flat:
                _draw_in_linear(linear, boxes)
            if any(not len(values) and not null for values, null in boxes.values()):
                return None
            if boxes == before:
                break
        return boxes


def _list_linear(tree: Tree) -> Iterator[Linear]:
    """The sums that every row keeps which keeps the tree."""
    match tree:
        case Linear():
            yield tree
        case Both(parts, False):
            for part in parts:
                yield from _list_linear(part)


def _draw_in_linear(linear: Linear, boxes: dict[str, Box]) -> None:
    """Cut each column of a sum to what the others leave it; only where they cannot be null."""
    for name, factor in linear.terms:
        others = [(int(f), boxes[n]) for n, f in linear.terms if n != name]
        values, null = boxes[name]
        if not factor or not len(values) or any(other_null or not len(v) for _, (v, other_null) in others):
            continue
        least = sum(min(f * v[0], f * v[-1]) for f, (v, _) in others)
        most = sum(max(f * v[0], f * v[-1]) for f, (v, _) in others)
        # factor * value <= constant - least, and for equality >= constant - most
        whole, upper = int(factor), int(linear.constant) - least
        high = upper // whole if whole > 0 else None
        low = -(upper // -whole) if whole < 0 else None
        if linear.sign == "=":
            lower = int(linear.constant) - most
            low = -(-lower // whole) if whole > 0 else low
            high = high if whole > 0 else lower // whole
        start = 0 if low is None else bisect_left(values, low)
        end = len(values) if high is None else bisect_right(values, high)
        boxes[name] = (values[start:end] if start < end else (), null)


def _divide_box(values: Values, null: bool, wanted: int | None) -> Iterator[Box]:
    """The box in parts: the value nearest to the wanted one, the rest in halves from near to far, and null.

    Null comes first where it is wanted, and last where it is not.
    """
    if null and wanted is None:
        yield (), True
    if len(values):
        at = min(bisect_left(values, wanted), len(values) - 1) if wanted is not None else len(values) // 2
        at -= at > 0 and wanted is not None and wanted - values[at - 1] < abs(values[at] - wanted)
        above, below = (at + 1 + len(values)) // 2, at // 2
        rest = (values[at + 1 : above], values[below:at], values[above:], values[:below])
        yield from ((each, False) for each in (values[at : at + 1], *rest) if len(each))
    if null and wanted is not None:
        yield (), True


MOST_WAYS = 64


def find_any_row(
    rules: Rules, wanted: Mapping[str, int | None], boxes: Mapping[str, Box], effort: Effort | None = None
) -> Row | None:
    """Some row that keeps all trees; None if there is none. It takes longer than `find_row` and finds more.

    Where a plain search takes too long, each way through the choices of the trees is searched by itself, in boxes that
    its sums together draw in.
    """
    effort = Effort() if effort is None else effort
    try:
        return find_row(rules, wanted, boxes, MOST_STEPS // 10, effort)
    except SearchTooLong:
        ways = _list_ways(Both(rules.trees))
    given_up = False
    for trees in ways:
        way = Rules(rules.boxes, trees, (), rules.unit, rules.ranks)
        drawn = tighten_boxes(way, {**rules.boxes, **boxes})
        try:
            if drawn is not None and (found := find_row(way, wanted, drawn, MOST_STEPS, effort)) is not None:
                return found
        except SearchTooLong:
            given_up = True
    if given_up:
        raise SearchTooLong
    return None


def _list_ways(tree: Tree, opposite: bool = False) -> list[tuple[Tree, ...]]:
    """Lists of trees without choices: a row keeps the tree exactly if it keeps all of one list.

    Where they become too many, the tree itself is the only one.
    """
    whole: Tree = Not(tree) if opposite else tree
    match tree:
        case Not(part):
            return _list_ways(part, not opposite)
        case Both(parts, either):
            each = [_list_ways(part, opposite) for part in parts]
            if either != opposite:
                ways = [way for listed in each for way in listed]
                return ways if len(ways) <= MOST_WAYS else [(whole,)]
            if math.prod(len(listed) for listed in each) > MOST_WAYS:
                return [(*(Not(part) if opposite else part for part in parts),)]
            return [tuple(chain.from_iterable(chosen)) for chosen in product(*each)]
        case Linear(terms, sign, constant) if opposite:
            turned = Linear(tuple((name, -factor) for name, factor in terms), "<=", -constant - 1)
            return [(turned,)] if sign == "<=" else [(Linear(terms, "<=", constant - 1),), (turned,)]
    return [(whole,)]


def tighten_boxes(rules: Rules, boxes: Mapping[str, Box]) -> dict[str, Box] | None:
    """The boxes between the least and the greatest values that the sums leave together; None if they leave none."""
    drawn = dict(boxes)
    if find_linear_conflict(rules, drawn):
        return None
    for name in sorted({name for tree in rules.trees for each in _list_linear(tree) for name, _ in each.terms}):
        values, null = drawn[name]
        if null or len(values) < 2:
            continue

        def rules_out(part: Values, name: str = name) -> bool:
            return find_linear_conflict(rules, {**drawn, name: (part, False)})

        last = bisect_left(range(len(values) - 1), True, key=lambda at: not rules_out(values[: at + 1]))
        first = len(values) - 1 - bisect_left(range(len(values) - 1), True,
                                              key=lambda at: not rules_out(values[len(values) - 1 - at :]))  # fmt: skip
        drawn[name] = (values[min(first, last) : max(first, last) + 1], False)
    return drawn


MOST_SUMS = 400


def find_linear_conflict(rules: Rules, boxes: Mapping[str, Box]) -> bool:
    """Whether sums of columns that every row keeps exclude one another: columns are eliminated one by one.

    Fourier and Motzkin's way, on whole numbers: every lower limit of a column is joined with every upper one. It sees
    what drawing in bounds would take forever to see, such as a < b < a. Where sums become too many it sees nothing.
    """
    certain = [each for tree in rules.trees for each in _list_linear(tree)]
    sums = [limit for each in certain if all(not boxes[name][1] for name, _ in each.terms) for limit in _limits(each)]
    for name, (values, null) in boxes.items():
        if not null and len(values):
            sums += [({name: 1}, values[-1]), ({name: -1}, -values[0])]
    for name in boxes:
        upper = [each for each in sums if each[0].get(name, 0) > 0]
        lower = [each for each in sums if each[0].get(name, 0) < 0]
        sums = [each for each in sums if not each[0].get(name, 0)]
        sums += [_join_sums(name, a, b) for a in upper for b in lower]
        if any(not terms and most < 0 for terms, most in sums):
            return True
        sums = list({tuple(sorted(terms.items())): (terms, most) for terms, most in
                     sorted(sums, key=lambda each: -each[1])}.values())  # fmt: skip
        if len(sums) > MOST_SUMS:
            return False
    return False


Sum = tuple[dict[str, int], int]
"""Factors of columns, and what their sum is at most."""


def _limits(linear: Linear) -> list[Sum]:
    terms, constant = {name: int(factor) for name, factor in linear.terms if factor}, int(linear.constant)
    turned = {name: -factor for name, factor in terms.items()}
    return [(terms, constant), (turned, -constant)] if linear.sign == "=" else [(terms, constant)]


def _join_sums(name: str, upper: Sum, lower: Sum) -> Sum:
    """What both say without the column, divided by what its factors have in common: whole numbers are rounded down."""
    a, b = -lower[0][name], upper[0][name]
    terms = {n: a * upper[0].get(n, 0) + b * lower[0].get(n, 0) for n in {*upper[0], *lower[0]}}
    kept = {n: factor for n, factor in terms.items() if factor}
    shared = math.gcd(*kept.values()) if kept else 1
    most = a * upper[1] + b * lower[1]
    return {n: factor // shared for n, factor in kept.items()}, most // shared if kept else most


def find_contradiction(truths: Sequence[Spec], columns: Sequence[Column], *, doubtful: bool = True) -> tuple[Spec, ...]:
    """Truths that no row can keep together, as few as that takes; none if some row keeps all.

    Where the search takes too long, truths count as kept if they are `doubtful`, and else as contradictory. Then more
    may be named than it takes: looking for fewer has an end, too.

    A null would keep most truths: it counts only in columns that a condition calls null, any of them. Were it only one
    of those still tried, leaving a truth out could make the others contradictory, and more would be named than needed.
    """
    declared = [declare_column(column) for column in columns]
    open_ones = {each.name for each in declared if each.grid is None and each.listed is None}
    solved = [t for t in truths if t.kind != "determines" and not columns_of(t) & open_ones]
    missing = {name for tree in compile_rules(solved, declared).trees for name in _list_missing(tree)}
    if _can_be_kept(solved, declared, missing, doubtful):
        return ()
    effort = Effort()
    for truth in list(solved):
        fewer = [each for each in solved if each is not truth]
        if effort.left > 0 and not _can_be_kept(fewer, declared, missing, doubtful, effort) and effort.left > 0:
            solved = fewer
    return tuple(solved)


def _can_be_kept(truths: Sequence[Spec], declared: Sequence[Declared], missing: set[str], doubtful: bool,
                 effort: Effort | None = None) -> bool:  # fmt: skip
    rules = compile_rules(truths, declared)
    boxes: dict[str, Box] = {n: (values, null and n in missing) for n, (values, null) in rules.boxes.items()}
    if find_linear_conflict(rules, boxes):
        return False
    middle = {name: values[len(values) // 2] if len(values) else None for name, (values, _) in boxes.items()}
    try:
        return find_any_row(rules, middle, boxes, effort) is not None
    except SearchTooLong:
        return doubtful


def _list_missing(tree: Tree) -> Iterator[str]:
    match tree:
        case Missing(column):
            yield column
        case Not(part):
            yield from _list_missing(part)
        case Both(parts):
            for part in parts:
                yield from _list_missing(part)


def describe_contradiction(truths: Sequence[Spec], columns: Sequence[Column], *, doubtful: bool = True) -> str:
    """What truths about a table contradict one another, in words; nothing if none do.

    Truths for which no row was found, nor that there is none, count only where they are not `doubtful`.
    """
    found = find_contradiction(truths, columns, doubtful=doubtful)
    if not found:
        return ""
    certain = doubtful or find_contradiction(found, columns)
    said = "no row can keep" if certain else "the search was given up before a row was found that keeps"
    if certain and _can_be_kept(found, [declare_column(c) for c in columns], {c.name for c in columns}, doubtful=False):
        said = "no row without nulls can keep"
    return f"{said} these truths together: {'; '.join(describe_truth(truth) for truth in found)}"
