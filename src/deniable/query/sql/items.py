"""SELECT items, HAVING, ORDER BY and LIMIT: names and expressions over rows, or over keys and aggregates."""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import expressions as exp

from deniable.errors import QueryRefused
from deniable.query.expression import ColumnRef, Expression, Facts, Kind, Literal
from deniable.query.relation import rolled
from deniable.query.sql.aggregates import has_aggregate, is_aggregate
from deniable.query.sql.clauses import Clauses
from deniable.query.sql.expressions import Scope, bind
from deniable.query.sql.grouping import Grouped, Projections
from deniable.query.sql.histogram import placeholder

Order = tuple[tuple[Expression, bool], ...]


def projections(node: exp.Select, scope: Scope) -> Projections:
    """The items of a row-wise SELECT, `*` included, each under a name of its own."""
    items: list[tuple[str, Expression]] = []
    for item in node.expressions:
        if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
            items += [(field.name.split(".", 1)[-1], ColumnRef(field.name, field.facts)) for field in scope.fields]
        else:
            items.append((named(item), bind(item.unalias(), scope)))
    return unique(items)


def named(item: exp.Expression) -> str:
    """The column name of a SELECT item: its alias, its column, or its function."""
    inner = item.unalias()
    found = item.alias or (inner.name if isinstance(inner, exp.Column) else "")
    if not found and is_aggregate(inner):
        core = inner.this if isinstance(inner, exp.Filter) else inner
        core = core.this if isinstance(core, exp.WithinGroup) else core
        found = core.name if isinstance(core, exp.Anonymous) else core.sql_name()
    return (found or inner.key).lower()


def unique(items: list[tuple[str, Expression]]) -> Projections:
    """The same items, with a number after a name that is already taken."""
    taken: set[str] = set()
    result = []
    for name, expression in items:
        candidate, n = name, 2
        while candidate in taken:
            candidate, n = f"{name}_{n}", n + 1
        taken.add(candidate)
        result.append((candidate, expression))
    return tuple(result)


def over(
    node: exp.Select,
    block: Grouped,
    keys: dict[Expression, str],
    register: Callable[[exp.Expression], ColumnRef],
    clauses: Clauses,
) -> tuple[Projections, Expression | None, Order]:
    """Bind SELECT items, HAVING and ORDER BY over keys and aggregates instead of rows."""
    below = Scope(clauses.text, block.source.fields)
    aliases: dict[str, Expression] = {}

    def special(part: exp.Expression) -> Expression | None:
        if isinstance(part, exp.Grouping):
            return _rolled(part, keys, below)
        if isinstance(part, exp.Placeholder):
            return placeholder(str(part.this), keys)
        if is_aggregate(part):
            return register(part)
        if isinstance(part, exp.Column) and not part.table and part.name.lower() in aliases:
            return aliases[part.name.lower()]
        if has_aggregate(part) or any(isinstance(each, exp.Placeholder) for each in part.walk()):
            return None
        try:
            expression = bind(part, below)
        except QueryRefused:
            if isinstance(part, exp.Column):
                raise
            return None
        if expression in keys:
            return ColumnRef(keys[expression], Facts(expression.facts.kind, public=True))
        if isinstance(part, exp.Column):
            raise below.refusal(part, f"the column '{part.name}' is neither in GROUP BY nor inside an aggregate")
        return None

    scope = Scope(clauses.text, (), special)
    items = unique([(named(item), bind(item.unalias(), scope)) for item in _expanded(node)])
    aliases.update({name: expression for name, expression in items if name not in _source_names(block)})
    having = node.args.get("having")
    condition = bind(having.this, scope) if having is not None else None
    return items, condition, ordering(node, scope, items)


def _rolled(part: exp.Grouping, keys: dict[Expression, str], below: Scope) -> ColumnRef:
    """GROUPING(key): 1 in the rows where the key is rolled up, 0 elsewhere."""
    key = bind(part.expressions[0], below) if len(part.expressions) == 1 else None
    if key is None or key not in keys:
        raise below.refusal(part, "GROUPING takes one of the expressions in GROUP BY")
    return ColumnRef(rolled(keys[key]), Facts(Kind.INTEGER, nullable=False, public=True))


def _source_names(block: Grouped) -> set[str]:
    return {field.name.lower().split(".", 1)[-1] for field in block.source.fields}


def _expanded(node: exp.Select) -> list[exp.Expression]:
    """SELECT items, with QUANTILE(x, [0.1, 0.5]) written out as one item for each share."""
    items: list[exp.Expression] = []
    for item in node.expressions:
        inner = item.unalias()
        shares = inner.args.get("quantile") if isinstance(inner, exp.Quantile) else None
        if not isinstance(shares, exp.Array):
            items.append(item)
            continue
        for share in shares.expressions:
            one = inner.copy()
            one.set("quantile", share.copy())
            items.append(exp.alias_(one, f"{item.alias or 'quantile'}_{share.name.replace('.', '_')}"))
    return items


def ordering(node: exp.Select, scope: Scope, items: Projections) -> Order:
    """ORDER BY: each expression, and whether it goes down; ordinals and names of items are understood."""
    order = node.args.get("order")
    found = []
    for part in order.expressions if order is not None else []:
        inner = part.this
        if isinstance(inner, exp.Literal) and str(inner.this).isdigit() and 1 <= int(inner.this) <= len(items):
            expression = items[int(inner.this) - 1][1]
        elif isinstance(inner, exp.Column) and not inner.table and inner.name.lower() in dict(items):
            expression = dict(items)[inner.name.lower()]
        else:
            expression = bind(inner, scope)
        found.append((expression, bool(part.args.get("desc"))))
    return tuple(found)


def limits(node: exp.Select, scope: Scope) -> tuple[int | None, int]:
    """LIMIT and OFFSET."""

    def count(name: str) -> int | None:
        clause = node.args.get(name)
        if clause is None:
            return None
        bound = bind(clause.expression, Scope(scope.text, ()))
        if not isinstance(bound, Literal) or not isinstance(bound.value, int) or bound.value < 0:
            raise scope.refusal(clause, f"{name.upper()} takes a whole number")
        return bound.value

    return count("limit"), count("offset") or 0
