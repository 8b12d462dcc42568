"""The SELECT blocks: per unit, noisy, and public; and the small relations between them."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from sqlglot import expressions as exp

from deniable.query.expression import ColumnRef, Expression, Facts, Kind
from deniable.query.intervals import union as common_facts
from deniable.query.relation import (
    ExactAggregate,
    Field,
    Join,
    Measure,
    Measured,
    NoisyAggregate,
    PerUnit,
    PublicSelect,
    Relation,
    Transform,
    Union,
    private,
    rolled,
)
from deniable.query.sql.aggregates import exact, noisy
from deniable.query.sql.clauses import Clauses
from deniable.query.sql.expressions import Scope
from deniable.query.sql.grouping import Grouped, Projections, grouped
from deniable.query.sql.histogram import expanded
from deniable.query.sql.items import limits, ordering, over, projections
from deniable.query.stability import unit_fields


def renamed(relation: Relation, alias: str) -> Relation:
    """The relation under a name: its fields become `alias.column`."""
    prefix = alias.lower()
    projections = tuple(
        (f"{prefix}.{field.name.split('.', 1)[-1]}", ColumnRef(field.name, field.facts)) for field in relation.fields
    )
    fields = tuple(Field(name, expression.facts) for name, expression in projections)
    if private(relation):
        return Transform(relation, projections, None, fields)
    return PublicSelect(relation, projections, None, fields)


def join(
    left: Relation, right: Relation, outer: bool, on: tuple[tuple[Expression, Expression], ...], by_unit: bool
) -> Join:
    """The join of two relations, with the fields of both."""
    matched = right.fields
    if outer:
        matched = tuple(Field(field.name, replace(field.facts, nullable=True)) for field in right.fields)
    return Join(left, right, outer, on, by_unit, left.fields + matched)


def union(sides: tuple[Relation, Relation]) -> Union:
    """The rows of both, named as on the left; what is public of a field must hold for both."""
    merged = tuple(
        Field(a.name, common_facts((a.facts, b.facts))) for a, b in zip(sides[0].fields, sides[1].fields, strict=True)
    )
    return Union(sides, merged)


def per_unit(node: exp.Select, block: Grouped, clauses: Clauses) -> Relation:
    """GROUP BY the unit: each unit's own rows summarized, still private."""
    scope = Scope(clauses.text, block.source.fields)
    if len(block.sets) > 1:
        raise scope.refusal(node, "grouping sets over the unit are not allowed")
    for part in ("order", "limit", "distinct", "offset"):
        if node.args.get(part):
            raise scope.refusal(
                node, f"{part.upper()} of private rows is not allowed", remedy="Use it on the noisy numbers"
            )
    keys = {expression: name for name, expression in block.keys}
    found: list[tuple[str, ExactAggregate]] = []
    facts: dict[str, Facts] = {name: expression.facts for name, expression in block.keys}

    def register(part: exp.Expression) -> ColumnRef:
        aggregate, known = exact(part, scope)
        name = next((n for n, a in found if a == aggregate), f"a{len(found)}")
        if name not in facts:
            found.append((name, aggregate))
            facts[name] = known
        return ColumnRef(name, facts[name])

    items, having, _ = over(node, block, keys, register, clauses)
    fields = tuple(Field(name, known) for name, known in facts.items())
    inner = PerUnit(block.source, block.keys, tuple(found), fields)
    return Transform(inner, items, having, tuple(Field(name, e.facts) for name, e in items))


def noisy_block(node: exp.Select, block: Grouped, clauses: Clauses) -> Relation:
    """GROUP BY over people: noisy aggregates, and public post-processing above them."""
    scope = Scope(clauses.text, block.source.fields)
    units = unit_fields(block.source)
    block, node = expanded(node, block, scope)
    keys = {expression: name for name, expression in block.keys}
    found: list[tuple[str, NoisyAggregate]] = []
    facts: dict[str, Facts] = {
        name: Facts(e.facts.kind, e.facts.lower, e.facts.upper, e.facts.step, e.facts.domain, public=True)
        for name, e in block.keys
    }

    def register(part: exp.Expression) -> ColumnRef:
        aggregate = noisy(part, scope, clauses, units)
        name = next((n for n, a in found if a == aggregate), f"a{len(found)}")
        if name not in facts:
            found.append((name, aggregate))
            facts[name] = _noisy_facts(aggregate)
        return ColumnRef(name, facts[name])

    items, having, order = over(node, block, keys, register, clauses)
    facts |= {rolled(name): Facts(Kind.INTEGER, nullable=False, public=True) for name, _ in block.keys}
    fields = tuple(Field(name, known) for name, known in facts.items())
    inner = Measured(block.source, block.keys, block.sets, tuple(found), fields)
    limit, offset = limits(node, scope)
    rest = {"order": order, "limit": limit, "offset": offset, "distinct": bool(node.args.get("distinct"))}
    return PublicSelect(inner, items, having, _fields(items), **rest)  # type: ignore[arg-type]


def _noisy_facts(aggregate: NoisyAggregate) -> Facts:
    if aggregate.measure in (Measure.COUNT, Measure.UNITS, Measure.DISTINCT):
        return Facts(Kind.INTEGER, step=Fraction(1), nullable=False, public=True)
    ordered = aggregate.measure in (Measure.MIN, Measure.MAX, Measure.QUANTILE)
    kind = aggregate.argument.facts.kind if aggregate.argument is not None and ordered else Kind.DECIMAL
    return Facts(kind, public=True)


def public_block(node: exp.Select, source: Relation, clauses: Clauses, is_grouped: bool) -> PublicSelect:
    """An ordinary SELECT over public rows."""
    scope = Scope(clauses.text, source.fields)
    limit, offset = limits(node, scope)
    rest = {"limit": limit, "offset": offset, "distinct": bool(node.args.get("distinct"))}
    if not is_grouped:
        items = projections(node, scope)
        order = ordering(node, scope, items)
        return PublicSelect(source, items, None, _fields(items), order=order, **rest)  # type: ignore[arg-type]
    block = grouped(node, source, clauses)
    if len(block.sets) > 1:
        raise scope.refusal(node, "grouping sets over public rows are not allowed")
    keys = {expression: name for name, expression in block.keys}
    found: list[tuple[str, ExactAggregate]] = []

    def register(part: exp.Expression) -> ColumnRef:
        aggregate, known = exact(part, scope)
        name = next((n for n, a in found if a == aggregate), f"a{len(found)}")
        if name not in dict(found):
            found.append((name, aggregate))
        return ColumnRef(name, known)

    items, having, order = over(node, block, keys, register, clauses)
    return PublicSelect(source, items, having, _fields(items), block.keys, tuple(found), True, order, **rest)  # type: ignore[arg-type]


def _fields(items: Projections) -> tuple[Field, ...]:
    return tuple(Field(name, expression.facts) for name, expression in items)
