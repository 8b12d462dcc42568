"""GROUP BY: key expressions, and the grouping sets that ROLLUP, CUBE and GROUPING SETS stand for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, product

from sqlglot import expressions as exp

from deniable.query.expression import Expression
from deniable.query.relation import Relation
from deniable.query.sql.clauses import Clauses
from deniable.query.sql.expressions import Scope, bind

Projections = tuple[tuple[str, Expression], ...]
MOST_SETS = 64


@dataclass(frozen=True, slots=True)
class Grouped:
    """A GROUP BY over a source: its key expressions, and which of them each grouping set uses."""

    source: Relation
    keys: Projections
    sets: tuple[tuple[int, ...], ...]


def grouped(node: exp.Select, source: Relation, clauses: Clauses) -> Grouped:
    """The keys and grouping sets of a SELECT; names of SELECT items and ordinals may stand for expressions."""
    scope = Scope(clauses.text, source.fields)
    group = node.args.get("group")
    if group is None:
        return Grouped(source, (), ((),))
    if group.args.get("all") or group.args.get("totals"):
        raise scope.refusal(node, "GROUP BY ALL is not allowed", remedy="Name the columns")
    keys: list[Expression] = []

    def key(part: exp.Expression) -> int:
        expression = bind(_meant(part, node, scope), scope)
        if expression not in keys:
            keys.append(expression)
        return keys.index(expression)

    choices = [_choices(part, key) for part in _elements(group)]
    sets = tuple(tuple(dict.fromkeys(i for part in parts for i in part)) for parts in product(*choices))
    if len(sets) > MOST_SETS:
        raise scope.refusal(group, "there are more than 64 grouping sets")
    return Grouped(
        source, tuple((f"k{i}", expression) for i, expression in enumerate(keys)), tuple(dict.fromkeys(sets))
    )


def _elements(group: exp.Expression) -> list[exp.Expression]:
    extra = [part for name in ("grouping_sets", "rollup", "cube") for part in group.args.get(name) or []]
    return [*group.expressions, *extra]


def _choices(part: exp.Expression, key: Callable[[exp.Expression], int]) -> list[tuple[int, ...]]:
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


def _meant(part: exp.Expression, node: exp.Select, scope: Scope) -> exp.Expression:
    if isinstance(part, exp.Literal) and not part.is_string:
        place = int(part.this) - 1 if str(part.this).isdigit() else -1
        if not 0 <= place < len(node.expressions):
            raise scope.refusal(part, "GROUP BY names a SELECT item that is not there")
        return node.expressions[place].unalias()
    if isinstance(part, exp.Column) and not part.table:
        fields = {field.name.lower().split(".", 1)[-1] for field in scope.fields}
        for item in node.expressions:
            if item.alias.lower() == part.name.lower() and part.name.lower() not in fields:
                return item.unalias()
    return part
