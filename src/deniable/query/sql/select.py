"""One SELECT block: its GROUP BY, items, HAVING, ORDER BY and LIMIT, as a relation over its source.

There are three kinds of block: for each unit (still private), noisy (grouped over people, with public post-processing
above), and public. ROLLUP, CUBE and GROUPING SETS become grouping sets. HISTOGRAM(x, bins) becomes a group key (the
bin, public by its bounds) and a count; the bin's ends are public arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, product
from typing import Any, Protocol

from sqlglot import expressions as exp

from deniable.errors import QueryRefused
from deniable.query.algebra.expression import ColumnRef, Expression, Facts, Kind, Literal, literal
from deniable.query.algebra.functions import OPAQUE, call
from deniable.query.algebra.relation import (
    ExactAggregate,
    Field,
    Measure,
    Measured,
    NoisyAggregate,
    Ordering,
    PerUnit,
    PublicSelect,
    Relation,
    Transform,
    Window,
    name_rollup_flag,
    unit_fields,
)
from deniable.query.sql.aggregates import (
    bind_condition,
    bind_exact_aggregate,
    bind_noisy_aggregate,
    bind_ordering,
    bind_paired_aggregate,
    bind_window,
    expand_quantiles,
    find_paired,
    has_aggregate,
    is_aggregate,
    window_facts,
)
from deniable.query.sql.clauses import Clauses
from deniable.query.sql.scalar import bind_expression
from deniable.query.sql.scope import Scope, fold_alias, fold_names


def bind_per_unit(node: exp.Select, block: Grouped, clauses: Clauses) -> Relation:
    """GROUP BY the unit: each unit's own rows summarized, still private."""
    scope = Scope(clauses, block.source.fields)
    if len(block.sets) > 1:
        raise scope.refusal(node, "grouping sets over the unit are not allowed")
    for part, name in (("order", "ORDER BY"), ("limit", "LIMIT"), ("distinct", "DISTINCT"), ("offset", "OFFSET"),
                       ("qualify", "QUALIFY")):  # fmt: skip
        if node.args.get(part):
            raise scope.refusal(
                node,
                f"GROUP BY what tells people apart gives rows of single people, which {name} would choose from",
                remedy="Leave that key out, or aggregate over people in a query around this one",
            )
    keys = {expression: name for name, expression in block.keys}
    found: list[tuple[str, ExactAggregate]] = []
    facts: dict[str, Facts] = {name: expression.facts for name, expression in block.keys}

    def register(part: exp.Expression) -> ColumnRef:
        aggregate, known = bind_exact_aggregate(part, scope, private=True)
        name = next((n for n, a in found if a == aggregate), f"a{len(found)}")
        if name not in facts:
            found.append((name, aggregate))
            facts[name] = known
        return ColumnRef(name, facts[name])

    above = bind_over_groups(node, block, keys, register, clauses)
    if above.windows:
        raise scope.refusal(node, "a window function over private rows would release rows",
                            remedy="Aggregate over people first, then use the noisy numbers")  # fmt: skip
    fields = tuple(Field(name, known) for name, known in facts.items())
    inner = PerUnit(block.source, block.keys, tuple(found), fields)
    return Transform(inner, above.items, above.having, _fields_of(above.items))


def bind_noisy_block(
    node: exp.Select, block: Grouped, clauses: Clauses, rows: Subqueries, subqueries: Subqueries
) -> Relation:
    """GROUP BY over people: noisy aggregates, and public post-processing above them.

    Sub-queries inside aggregates belong to the rows that are aggregated, all others to the groups.
    """
    scope = Scope(clauses, block.source.fields, subquery=rows.bind)
    units = unit_fields(block.source)
    block, node = expand_histogram(node, block, scope)
    keys = {expression: name for name, expression in block.keys}
    if any(expression.facts.opaque for expression in keys):
        raise scope.refusal(node, f"GROUP BY {OPAQUE}")
    found: list[tuple[str, NoisyAggregate]] = []
    facts: dict[str, Facts] = {
        name: Facts(e.facts.kind, e.facts.lower, e.facts.upper, e.facts.step, e.facts.domain, public=True)
        for name, e in block.keys
    }

    def add(aggregate: NoisyAggregate) -> ColumnRef:
        name = next((n for n, a in found if a == aggregate), f"a{len(found)}")
        if name not in facts:
            found.append((name, aggregate))
            facts[name] = _noisy_facts(aggregate)
        return ColumnRef(name, facts[name])

    def register(part: exp.Expression) -> Expression:
        if (statistic := find_paired(part)) is not None:
            return bind_paired_aggregate(part, statistic, scope, add)
        return add(bind_noisy_aggregate(part, scope, clauses, units))

    above = bind_over_groups(node, block, keys, register, clauses, subqueries)
    facts |= {name_rollup_flag(name): Facts(Kind.INTEGER, nullable=False, public=True) for name, _ in block.keys}
    fields = tuple(Field(name, known) for name, known in facts.items())
    inner = Measured(_attach(block.source, rows), block.keys, block.sets, tuple(found), fields)
    return above.select_from(_attach(inner, subqueries), node, scope)


def _noisy_facts(aggregate: NoisyAggregate) -> Facts:
    if aggregate.measure in (Measure.COUNT, Measure.UNITS, Measure.DISTINCT):
        return Facts(Kind.INTEGER, step=Fraction(1), nullable=False, public=True)
    ordered = aggregate.measure in (Measure.MIN, Measure.MAX, Measure.QUANTILE)
    kind = aggregate.argument.facts.kind if aggregate.argument is not None and ordered else Kind.DECIMAL
    return Facts(kind, public=True)


def bind_public_block(
    node: exp.Select, source: Relation, clauses: Clauses, is_grouped: bool, subqueries: Subqueries
) -> PublicSelect:
    """An ordinary SELECT over public rows."""
    if not is_grouped:
        return _bind_public_rows(node, source, clauses, subqueries)
    scope = Scope(clauses, source.fields)
    block = bind_group_by(node, source, clauses)
    if len(block.sets) > 1:
        raise scope.refusal(node, "grouping sets over public rows are not allowed")
    keys = {expression: name for name, expression in block.keys}
    found: list[tuple[str, ExactAggregate]] = []
    facts = {name: expression.facts for name, expression in block.keys}

    def register(part: exp.Expression) -> ColumnRef:
        aggregate, known = bind_exact_aggregate(part, scope, private=False)
        name = next((n for n, a in found if a == aggregate), f"a{len(found)}")
        if name not in dict(found):
            found.append((name, aggregate))
        facts[name] = known
        return ColumnRef(name, known)

    above = bind_over_groups(node, block, keys, register, clauses, subqueries)
    every = tuple((name, ColumnRef(name, known)) for name, known in facts.items())
    inner = PublicSelect(source, every, None, _fields_of(every), block.keys, tuple(found), grouped=True)
    joined = _attach(inner, subqueries)
    if joined is not inner or above.windows:
        return above.select_from(joined, node, scope)
    whole = above.select_from(source, node, scope)
    return replace(whole, keys=block.keys, aggregates=tuple(found), grouped=True)


def _bind_public_rows(node: exp.Select, source: Relation, clauses: Clauses, subqueries: Subqueries) -> PublicSelect:
    windows: list[tuple[str, Window]] = []

    def special(part: exp.Expression) -> Expression | None:
        return _register_window(part, scope, windows) if isinstance(part, exp.Window) else None

    scope = Scope(clauses, source.fields, special, subqueries.bind)
    items = bind_items(node, scope)
    order = bind_order_by(node, scope, items)
    above = Above(items, None, order, tuple(windows), _bind_qualify(node, scope, windows, items))
    return replace(above, windows=tuple(windows)).select_from(_attach(source, subqueries), node, scope)


def _fields_of(items: Projections) -> tuple[Field, ...]:
    return tuple(Field(name, expression.facts) for name, expression in items)


Projections = tuple[tuple[str, Expression], ...]
MOST_SETS = 64


class Subqueries(Protocol):
    """How sub-queries of a block are bound, and joined to what the block selects from."""

    joins: list[Any]

    def bind(self, node: exp.Expression, scope: Scope) -> Expression:
        """What stands for a sub-query in an expression."""

    def attach_to(self, relation: Relation) -> Relation:
        """The relation joined with all sub-queries that were bound."""


def _attach(relation: Relation, subqueries: Subqueries) -> Relation:
    return subqueries.attach_to(relation) if subqueries.joins else relation


@dataclass(frozen=True, slots=True)
class Above:
    """What a SELECT asks of public rows: items, HAVING, ORDER BY, windows and QUALIFY."""

    items: Projections
    having: Expression | None
    order: Order
    windows: tuple[tuple[str, Window], ...] = ()
    qualify: Expression | None = None

    def select_from(self, source: Relation, node: exp.Select, scope: Scope) -> PublicSelect:
        """The SELECT over a relation, with the LIMIT, OFFSET and DISTINCT of its node."""
        limit, offset = bind_limit(node, scope)
        distinct = node.args.get("distinct")
        if distinct is not None and distinct.args.get("on"):
            raise scope.refusal(node, "DISTINCT ON is not allowed", remedy="Use QUALIFY ROW_NUMBER() OVER (...) = 1")
        return PublicSelect(source, self.items, self.having, _fields_of(self.items), order=self.order, limit=limit,
                            offset=offset, distinct=distinct is not None, windows=self.windows,
                            qualify=self.qualify)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Grouped:
    """A GROUP BY over a source: its key expressions, and which of them each grouping set uses."""

    source: Relation
    keys: Projections
    sets: tuple[tuple[int, ...], ...]


def bind_group_by(node: exp.Select, source: Relation, clauses: Clauses) -> Grouped:
    """The keys and grouping sets of a SELECT; names of SELECT items and ordinals may stand for expressions."""
    scope = Scope(clauses, source.fields)
    group = node.args.get("group")
    if group is None:
        return Grouped(source, (), ((),))
    for part, words, remedy in (("totals", " WITH TOTALS", "Write ROLLUP (...)"), ("all", " ALL", "Name the columns")):
        if group.args.get(part):
            raise scope.refusal(node, f"GROUP BY{words} is not allowed", remedy=remedy)
    keys: list[Expression] = []

    def key(part: exp.Expression) -> int:
        expression = bind_expression(_resolve_item(part, node, scope), scope)
        if expression not in keys:
            keys.append(expression)
        return keys.index(expression)

    elements = _list_elements(group)
    if math.prod(_count_choices(part) for part in elements) > MOST_SETS:
        raise scope.refusal(group, "there are more than 64 grouping sets")
    if sum(len(part.expressions) or 1 for part in elements) > MOST_KEYS:
        raise scope.refusal(group, f"GROUP BY has more than {MOST_KEYS} keys")
    choices = [_list_choices(part, key) for part in elements]
    sets = tuple(tuple(dict.fromkeys(i for part in parts for i in part)) for parts in product(*choices))
    if len({*map(frozenset, sets)}) < len(sets):
        raise scope.refusal(group, "the same grouping set stands twice in GROUP BY", remedy="Write each set once")
    return Grouped(source, tuple((f"k{i}", expression) for i, expression in enumerate(keys)), sets)


def _list_elements(group: exp.Expression) -> list[exp.Expression]:
    extra = [part for name in ("grouping_sets", "rollup", "cube") for part in group.args.get(name) or []]
    if len(extra) == 1 and isinstance(extra[0], exp.Rollup | exp.Cube) and not extra[0].expressions:
        return [type(extra[0])(expressions=group.expressions)]  # GROUP BY a, b WITH ROLLUP
    return [*group.expressions, *extra]


def _count_choices(part: exp.Expression) -> int:
    """How many sets an element of GROUP BY stands for, without listing them."""
    count = len(part.expressions)
    match part:
        case exp.GroupingSets():
            return count
        case exp.Rollup():
            return count + 1
        case exp.Cube():
            return 1 << min(count, 30)
        case _:
            return 1


def _list_choices(part: exp.Expression, key: Callable[[exp.Expression], int]) -> list[tuple[int, ...]]:
    """The alternative sets one element of GROUP BY stands for."""

    def several(node: exp.Expression) -> tuple[int, ...]:
        if isinstance(node, exp.Tuple):
            return tuple(key(each) for each in node.expressions)
        if isinstance(node, exp.Paren):
            return several(node.this)
        return (key(node),)

    if isinstance(part, exp.GroupingSets):
        return [several(each) for each in part.expressions]
    if isinstance(part, exp.Rollup | exp.Cube):
        steps = [several(each) for each in part.expressions]
        if isinstance(part, exp.Rollup):
            return [tuple(i for step in steps[:n] for i in step) for n in range(len(steps), -1, -1)]
        subsets = [chosen for n in range(len(steps), -1, -1) for chosen in combinations(steps, n)]
        return [tuple(i for step in chosen for i in step) for chosen in subsets]
    return [several(part)]


COLUMNS_ONLY = "Name columns, not aggregates"


def _resolve_item(part: exp.Expression, node: exp.Select, scope: Scope) -> exp.Expression:
    if isinstance(part, exp.Literal) and not part.is_string:
        place = int(part.this) - 1 if _is_ordinal(part) else -1
        if not 0 <= place < len(node.expressions):
            plain = [i + 1 for i, each in enumerate(node.expressions) if not has_aggregate(each)]
            remedy = f"Write GROUP BY {', '.join(map(str, plain))}" if plain else "Leave it out"
            raise scope.refusal(part, f"GROUP BY {part.this} names a SELECT item that is not there",
                                expected=f"There are {len(node.expressions)} items", remedy=remedy)  # fmt: skip
        if has_aggregate(node.expressions[place]):
            raise scope.refusal(part, f"GROUP BY {place + 1} names an aggregate", remedy=COLUMNS_ONLY)
        return node.expressions[place].unalias()
    if isinstance(part, exp.Column) and not part.table:
        fields = {field.name.lower().split(".", 1)[-1] for field in scope.fields}
        for item in node.expressions:
            if item.alias.lower() == part.name.lower() and part.name.lower() not in fields:
                if has_aggregate(item):
                    raise scope.refusal(part, f"GROUP BY {part.name} names an aggregate", remedy=COLUMNS_ONLY)
                return item.unalias()
    return part


def _is_ordinal(part: exp.Literal) -> bool:
    return str(part.this).isdecimal() and len(str(part.this)) < 7


Order = tuple[Ordering, ...]
MOST_ITEMS = 1_000
MOST_KEYS = 64


def bind_items(node: exp.Select, scope: Scope) -> Projections:
    """The items of a row-wise SELECT, `*` included, each under a name of its own."""
    items: list[tuple[str, Expression]] = []
    for item in node.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            items += [
                (each.name.split(".", 1)[-1], ColumnRef(each.name, each.facts)) for each in _list_all(item, scope)
            ]
        else:
            items.append((name_item(item), bind_expression(item.unalias(), scope)))
        if len(items) > MOST_ITEMS:
            raise scope.refusal(node, f"SELECT has more than {MOST_ITEMS:,} columns")
    return make_unique(items)


def list_items(node: exp.Select, scope: Scope) -> list[exp.Expression]:
    """The items of a SELECT as they are written, `*` as all columns."""
    items: list[exp.Expression] = []
    for item in node.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            items += [exp.column(*reversed(each.name.split(".", 1))) for each in _list_all(item, scope)]
        else:
            items.append(item.copy())
    return items


def _list_all(item: exp.Expression, scope: Scope) -> list[Field]:
    """The fields that `*` stands for, or `t.*`."""
    table = fold_alias(item.table) if isinstance(item, exp.Column) else ""
    found = [each for each in scope.fields if not table or each.name.lower().startswith(f"{table}.")]
    star = item.this if isinstance(item, exp.Column) else item
    if not found or any(held for part, held in star.args.items() if held):
        raise scope.refusal(item, f"'{table + '.' if table else ''}*' stands for no columns here, or for some of them",
                            remedy="Name the columns")  # fmt: skip
    return found


def name_item(item: exp.Expression) -> str:
    """The column name of a SELECT item: its alias or its column as it is written, or its function in small letters."""
    inner = item.unalias()
    if written := item.alias or (inner.name if isinstance(inner, exp.Column) else ""):
        return str(written)
    found = ""
    if is_aggregate(inner):
        core = inner.this if isinstance(inner, exp.Filter) else inner
        core = core.this if isinstance(core, exp.WithinGroup) else core
        found = core.name if isinstance(core, exp.Anonymous) else core.sql_name()
    return (found or inner.key).lower()


def make_unique(items: list[tuple[str, Expression]]) -> Projections:
    """The same items, with a number after a name that is already taken, in whichever letters."""
    taken, result = set[str](), []
    for name, expression in items:
        candidate, n = name, 2
        while candidate.lower() in taken:
            candidate, n = f"{name}_{n}", n + 1
        taken.add(candidate.lower())
        result.append((candidate, expression))
    return tuple(result)


def bind_over_groups(
    node: exp.Select,
    block: Grouped,
    keys: dict[Expression, str],
    register: Callable[[exp.Expression], Expression],
    clauses: Clauses,
    subqueries: Subqueries | None = None,
) -> Above:
    """Bind SELECT items, HAVING, QUALIFY and ORDER BY over keys and aggregates instead of rows."""
    below = Scope(clauses, block.source.fields)
    aliases: dict[str, Expression] = {}
    windows: list[tuple[str, Window]] = []

    def special(part: exp.Expression) -> Expression | None:
        if isinstance(part, exp.Window):
            return _register_window(part, scope, windows)
        if isinstance(part, exp.Grouping):
            return _bind_grouping(part, keys, below)
        if isinstance(part, exp.Placeholder):
            return read_placeholder(str(part.this), keys)
        if is_aggregate(part):
            return register(part)
        if isinstance(part, exp.Column) and not part.table and part.name.lower() in aliases:
            return aliases[part.name.lower()]
        if has_aggregate(part) or any(isinstance(each, exp.Placeholder) for each in part.walk()):
            return None
        try:
            expression = bind_expression(part, below)
        except QueryRefused:
            if isinstance(part, exp.Column):
                raise
            return None
        if expression in keys:
            known = expression.facts
            kept = Facts(known.kind, public=True, opaque=known.opaque, longest=known.longest)
            return ColumnRef(keys[expression], kept)
        if isinstance(part, exp.Column):
            raise below.refusal(part, f"the column '{part.name}' is neither in GROUP BY nor inside an aggregate",
                                remedy=f"Write GROUP BY {part.name}, or an aggregate of it")  # fmt: skip
        return None

    scope = Scope(clauses, (), special, subqueries.bind if subqueries is not None else None)
    items = make_unique([(name_item(item), bind_expression(item.unalias(), scope)) for item in expand_quantiles(node)])
    known = _source_names(block)
    aliases.update({name: expression for name, expression in fold_names(items).items() if name not in known})
    having = node.args.get("having")
    condition = bind_condition(having.this, scope) if having is not None else None
    order, qualify = bind_order_by(node, scope, items), _bind_qualify(node, scope, windows, items)
    return Above(items, condition, order, tuple(windows), qualify)


def _register_window(part: exp.Window, scope: Scope, windows: list[tuple[str, Window]]) -> ColumnRef:
    """A window as a field beside the rows; equal ones are computed once."""
    window = bind_window(part, scope)
    name = next((n for n, each in windows if each == window), f"w{len(windows)}")
    if name not in dict(windows):
        windows.append((name, window))
    return ColumnRef(name, window_facts(window))


def _bind_qualify(
    node: exp.Select, scope: Scope, windows: list[tuple[str, Window]], items: Projections
) -> Expression | None:
    clause = node.args.get("qualify")
    if clause is None:
        return None
    names = fold_names(items)

    def special(part: exp.Expression) -> Expression | None:
        if isinstance(part, exp.Column) and not part.table and part.name.lower() in names:
            return names[part.name.lower()]
        return scope.special(part) if scope.special is not None else None

    condition = bind_expression(clause.this, replace(scope, special=special))
    if condition.facts.kind is not Kind.BOOLEAN or not windows:
        raise scope.refusal(clause, "QUALIFY takes a condition on a window", remedy="Use WHERE or HAVING")
    return condition


def _bind_grouping(part: exp.Grouping, keys: dict[Expression, str], below: Scope) -> ColumnRef:
    """GROUPING(key): 1 in the rows where the key is rolled up, 0 elsewhere."""
    key = bind_expression(part.expressions[0], below) if len(part.expressions) == 1 else None
    if key is None or key not in keys:
        raise below.refusal(part, "GROUPING takes one of the expressions in GROUP BY")
    return ColumnRef(name_rollup_flag(keys[key]), Facts(Kind.INTEGER, nullable=False, public=True))


def _source_names(block: Grouped) -> set[str]:
    return {field.name.lower().split(".", 1)[-1] for field in block.source.fields}


def bind_order_by(node: exp.Select, scope: Scope, items: Projections) -> Order:
    """ORDER BY; ordinals and names of items are understood."""
    names = fold_names(items)

    def bind(inner: exp.Expression) -> Expression:
        if isinstance(inner, exp.Literal) and _is_ordinal(inner) and 1 <= int(inner.this) <= len(items):
            return items[int(inner.this) - 1][1]
        if isinstance(inner.this if isinstance(inner, exp.Neg) else inner, exp.Literal):
            raise scope.refusal(inner, "ORDER BY names a SELECT item that is not there",
                                expected=f"ORDER BY 1 to {len(items)}, or the name of a column")  # fmt: skip
        if isinstance(inner, exp.Column) and not inner.table and inner.name.lower() in names:
            return names[inner.name.lower()]
        if isinstance(inner, exp.Var) and inner.name.upper() == "ALL":
            raise scope.refusal(inner, "ORDER BY ALL is not allowed", remedy="Name the columns")
        return bind_expression(inner, scope)

    order = node.args.get("order")
    return bind_ordering(order.expressions if order is not None else [], scope, bind)


def bind_limit(node: exp.Select, scope: Scope) -> tuple[int | None, int]:
    """LIMIT and OFFSET."""

    def count(name: str) -> int | None:
        clause = node.args.get(name)
        if clause is None:
            return None
        if isinstance(clause, exp.Fetch):
            clause = exp.Limit(expression=clause.args.get("count") or exp.Literal.number(1))
        if isinstance(clause.expression, exp.Var) and clause.expression.name.upper() == "ALL":
            return None
        bound = bind_expression(clause.expression, Scope(scope.clauses, ()))
        if not isinstance(bound, Literal) or not isinstance(bound.value, int) or bound.value < 0:
            raise scope.refusal(clause, f"{name.upper()} takes a whole number")
        return bound.value

    return count("limit"), count("offset") or 0


MOST_BINS = 10_000


def expand_histogram(node: exp.Select, block: Grouped, scope: Scope) -> tuple[Grouped, exp.Select]:
    """The block with the bin as a further key, and the SELECT with the bin's ends and its count as items.

    What is not SQL (the bin, exact numbers) is put in as placeholders, for `read_placeholder` to read when items are
    bound."""
    spots = [i for i, item in enumerate(node.expressions) if _is_histogram(item.unalias())]
    if not spots:
        return block, node
    item = node.expressions[spots[0]]
    inner = item.unalias()
    if len(spots) > 1 or len(block.sets) > 1:
        raise scope.refusal(inner, "one HISTOGRAM at a time, without grouping sets")
    name = item.alias or "histogram"
    argument, bins = _bind_bins(inner, scope)
    low, high = argument.facts.lower or Fraction(0), argument.facts.upper or Fraction(0)  # both are there
    width = (high - low) / bins or Fraction(1)
    raw = call("floor", call("divide", call("subtract", argument, literal(low)), literal(width)))
    key = call("clamp", raw, literal(0), literal(bins - 1))
    keys = (*block.keys, (f"k{len(block.keys)}", key))
    marker = exp.Placeholder(this=f"bin:{keys[-1][0]}")
    start = exp.Mul(this=marker, expression=_mark_number(width))
    ends = [
        exp.alias_(exp.Add(this=start.copy(), expression=_mark_number(low)), f"{name}_from"),
        exp.alias_(exp.Add(this=start.copy(), expression=_mark_number(low + width)), f"{name}_to"),
        exp.alias_(exp.Count(this=exp.Star()), name),
    ]
    changed = node.copy()
    changed.set("expressions", [*changed.expressions[: spots[0]], *ends, *changed.expressions[spots[0] + 1 :]])
    if changed.args.get("order") is None:
        changed.set("order", exp.Order(expressions=[exp.Ordered(this=marker.copy())]))
    return Grouped(block.source, keys, (tuple(range(len(keys))),)), changed


def _mark_number(number: Fraction) -> exp.Expression:
    return exp.Placeholder(this=f"number:{number}")


def _is_histogram(node: exp.Expression) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.upper() == "HISTOGRAM"


def _bind_bins(node: exp.Expression, scope: Scope) -> tuple[Expression, int]:
    if not 1 <= len(node.expressions) <= 2:
        raise scope.refusal(node, "HISTOGRAM takes a column and a number of bins", expected="HISTOGRAM(age, 10)")
    argument = bind_expression(node.expressions[0], scope)
    bins = bind_expression(node.expressions[1], scope) if len(node.expressions) == 2 else literal(10)
    count = bins.value if isinstance(bins, Literal) else None
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= MOST_BINS:
        raise scope.refusal(node, "HISTOGRAM takes a literal number of bins between 1 and 10,000")
    if argument.facts.opaque:
        raise scope.refusal(node, f"HISTOGRAM {OPAQUE}")
    if not argument.facts.bounded or not argument.facts.kind.numeric:
        raise scope.refusal(
            node,
            "HISTOGRAM takes a number with public bounds",
            remedy="Declare bounds in the policy, or write HISTOGRAM(CLAMP(x, 0, 100), 10)",
        )
    return argument, count


def read_placeholder(mark: str, keys: dict[Expression, str]) -> Expression:
    """What a placeholder stands for: an exact number, or the field of a key."""
    kind, text = mark.split(":", 1)
    if kind == "number":
        return literal(Fraction(text))
    expression = next(e for e, name in keys.items() if name == text)
    return ColumnRef(text, expression.facts)
