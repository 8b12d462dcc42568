"""Sub-queries in expressions: IN, EXISTS, and ones that give a single value, each as a join of its own.

A sub-query becomes a relation with one row for each of the values that tie it to the row outside, joined from the left,
so that no row is copied or lost; what stands in its place is a field of that relation. Public rows and noisy numbers
may be looked up so from anywhere. Rows of people are looked up from rows of the same person alone: the join is on the
unit, and what is found follows from that unit's own rows. A value that a sub-query computes over all people is measured
with noise like any other, and paid for."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import expressions as exp

from deniable.errors import QueryRefused
from deniable.query.algebra.expression import ColumnRef, Expression, Facts, Kind, literal
from deniable.query.algebra.functions import call
from deniable.query.algebra.relation import (
    ExactAggregate,
    Field,
    PerUnit,
    PublicSelect,
    Relation,
    Summary,
    Transform,
    compare_ids,
    is_private,
    meet_on_unit,
)
from deniable.query.sql.aggregates import has_aggregate
from deniable.query.sql.from_clause import ONE_TYPE, Context, Pair, bind_source, build_join, split_conjunction
from deniable.query.sql.scalar import bind_expression
from deniable.query.sql.scope import Scope, fold_alias

COMPARED: dict[type[exp.Expression], tuple[str, str]] = {
    exp.EQ: ("eq", "eq"), exp.NEQ: ("ne", "ne"), exp.LT: ("lt", "gt"), exp.LTE: ("le", "ge"), exp.GT: ("gt", "lt"),
    exp.GTE: ("ge", "le"),
}  # fmt: skip
"""Comparisons, and what they are with their sides exchanged."""
TIED = "A sub-query is tied to the row outside by equalities of columns, and EXISTS by one other comparison as well"


@dataclass(frozen=True, slots=True)
class Tie:
    """A condition between the row outside and the rows inside: `outside` compared with `inside`."""

    comparison: str
    outside: exp.Expression
    inside: exp.Expression


@dataclass(slots=True)
class Attached:
    """The sub-queries of one clause: what their joins are made onto, and the joins that were made so far."""

    base: Relation
    context: Context
    joins: list[tuple[Relation, tuple[Pair, ...], bool]] = field(default_factory=list)

    def scope(self, fields: tuple[Field, ...]) -> Scope:
        """A scope in which sub-queries may stand."""
        return Scope(self.context.clauses, fields, subquery=self.bind)

    def attach_to(self, relation: Relation) -> Relation:
        """The relation with all sub-queries joined to it; its fields are those of both."""
        for right, pairs, by_unit in self.joins:
            relation = build_join(relation, right, True, pairs, by_unit, single=True)
        return relation

    def bind(self, node: exp.Expression, scope: Scope) -> Expression:
        """What stands for a sub-query in the expression around it."""
        if isinstance(node, exp.In):
            return self._bind_in(node, scope)
        query = _unwrap(node.this)
        if not isinstance(query, exp.Select):
            raise scope.refusal(node, "a sub-query in an expression is one SELECT", remedy="Put it in FROM or WITH")
        return self._bind_exists(query, [], scope) if isinstance(node, exp.Exists) else self._bind_value(query, scope)

    @property
    def _name(self) -> str:
        """The prefix of the next sub-query's fields, which no field of a question has."""
        return f"#{len(self.joins)}"

    def _bind_value(self, query: exp.Select, scope: Scope) -> Expression:
        """A sub-query that gives one value: an aggregate, of all rows or of those that are tied to the row outside."""
        item = query.expressions[0] if len(query.expressions) == 1 else None
        single = item is not None and has_aggregate(item) and not query.args.get("group")
        inside, ties = _split_ties(query, self.context, scope)
        limit = query.args.get("limit")
        one = isinstance(limit, exp.Limit) and limit.expression.name == "1" and not ties
        if item is None or not (single or one) or any(tie.comparison != "eq" for tie in ties):
            raise scope.refusal(query, "a sub-query in an expression gives one value",
                                expected="One aggregate without GROUP BY, or LIMIT 1. " + TIED)  # fmt: skip
        keys = [exp.alias_(tie.inside.copy(), f"k{i}") for i, tie in enumerate(ties)]
        inside.set("expressions", [*keys, exp.alias_(item.unalias().copy(), "value")])
        if ties:
            inside.set("group", exp.Group(expressions=[tie.inside.copy() for tie in ties]))
        found = self.context.bind(inside, self.context)
        pairs = tuple(
            (bind_expression(tie.outside, scope), ColumnRef(each.name, each.facts))
            for tie, each in zip(ties, found.fields, strict=False)
        )
        by_unit = self._check_people(found, pairs, query, scope)
        return self._join_value(found, pairs, by_unit, isinstance(item.unalias(), exp.Count))

    def _join_value(self, found: Relation, pairs: tuple[Pair, ...], by_unit: bool, counts: bool) -> Expression:
        """The value of a relation with one row for each of the keys that come first (and for each unit)."""
        _check_kinds(pairs)
        projections = tuple((f"{self._name}.{f.name}", ColumnRef(f.name, f.facts)) for f in found.fields)
        fields = tuple(Field(name, e.facts) for name, e in projections)
        refs = [ColumnRef(each.name, each.facts) for each in fields]
        kept: Relation = Transform(found, projections, None, fields)
        if not by_unit:
            kept = PublicSelect(found, projections, None, fields)
        on = tuple((outside, ref) for (outside, _), ref in zip(pairs, refs, strict=False))
        self.joins.append((kept, on, by_unit))
        value = ColumnRef(refs[-1].name, Facts(refs[-1].facts.kind, public=refs[-1].facts.public))
        return call("coalesce", value, literal(0)) if counts else value

    def _bind_in(self, node: exp.In, scope: Scope) -> Expression:
        """x IN (SELECT y ...): whether a row with that y is there; null where x is."""
        query, x = _unwrap(node.args["query"]), bind_expression(node.this, scope)
        if isinstance(query, exp.Select) and _is_plain(query) and len(query.expressions) == 1:
            found = self._bind_exists(query, [Tie("eq", node.this, query.expressions[0].unalias())], scope)
        else:
            relation = self.context.bind(query, self.context)
            if len(relation.fields) != 1:
                raise scope.refusal(node, "the sub-query of IN gives one column")
            held = relation.fields[0]
            found = self._mark(relation, ((x, ColumnRef(held.name, held.facts)),), None, node, scope)
        if x.facts.opaque:
            return found
        unknown: Expression = literal(False)
        right, pairs, _ = self.joins[-1]
        listed = not is_private(right) and len(pairs) == 1
        if x.facts.nullable:
            unknown = call("is_null", x)
            if listed:
                unknown = call("and", unknown, self._is_listed(right, None))
            elif isinstance(query, exp.Select) and _is_plain(query) and len(pairs) > 1:
                unknown = call("and", unknown, self._bind_exists(query, [], scope))
        if listed and right.fields[0].facts.nullable:
            key = right.fields[0]
            has_null = self._is_listed(right, call("is_null", ColumnRef(key.name, key.facts)))
            unknown = call("or", unknown, call("and", call("not", found), has_null))
        return call("case", unknown, literal(None), found)

    def _is_listed(self, listed: Relation, test: Expression | None) -> Expression:
        """Whether a list of public values holds one at all, or one for which a test holds.

        A null is not in an empty list; beside a null in the list, what is not found may be there or not.
        """
        name = f"{self._name}.listed"
        counted = PublicSelect(listed, ((name, ColumnRef("a0", Facts(Kind.INTEGER, public=True))),), None,
                               (Field(name, Facts(Kind.INTEGER, public=True)),), (),
                               (("a0", ExactAggregate(Summary.COUNT, None, test)),), grouped=True)  # fmt: skip
        self.joins.append((counted, (), False))
        return call("gt", ColumnRef(name, Facts(Kind.INTEGER, public=True)), literal(0))

    def _bind_exists(self, query: exp.Select, more: list[Tie], scope: Scope) -> Expression:
        """EXISTS: whether a row is there that is tied to the row outside."""
        inside, ties = _split_ties(query, self.context, scope)
        ties, others = [*more, *(t for t in ties if t.comparison == "eq")], [t for t in ties if t.comparison != "eq"]
        if len(others) > 1:
            raise scope.refusal(query, "EXISTS is tied to the row outside by several comparisons that are no equality",
                                expected=TIED)  # fmt: skip
        if not _is_plain(query):
            raise scope.refusal(query, "EXISTS takes plain rows here", expected=TIED,
                                remedy="Leave out GROUP BY and LIMIT, or join the sub-query")  # fmt: skip
        self._check_items(inside, scope)
        names = [exp.alias_(tie.inside.copy(), f"k{i}") for i, tie in enumerate([*ties, *others])]
        inside.set("expressions", names or [exp.alias_(exp.Literal.number(1), "one")])
        inside.set("distinct", None)
        found = self.context.bind(inside, self.context)
        refs = [ColumnRef(each.name, each.facts) for each in found.fields]
        pairs = tuple((bind_expression(tie.outside, scope), ref) for tie, ref in zip(ties, refs, strict=False))
        return self._mark(found, pairs, (others[0], refs[-1]) if others else None, query, scope)

    def _check_items(self, inside: exp.Select, scope: Scope) -> None:
        """Refuse what stands after SELECT in EXISTS and means nothing, though its value does not matter."""
        for item in inside.expressions:
            if isinstance(item, exp.Star | exp.Literal):
                continue
            alone = inside.copy()
            alone.set("expressions", [item.copy()])
            try:
                self.context.bind(alone, self.context)
            except QueryRefused as refusal:
                if item.find(exp.Query) is not None or not _is_known(item, scope):
                    raise refusal from None

    def _mark(
        self,
        found: Relation,
        pairs: tuple[Pair, ...],
        other: tuple[Tie, ColumnRef] | None,
        node: exp.Expression,
        scope: Scope,
    ) -> Expression:
        """A condition that holds where rows of `found` have these values, and the other comparison holds for one."""
        _check_kinds(pairs)
        by_unit = self._check_people(found, pairs, node, scope)
        keys = tuple((f"{self._name}.k{i}", inside) for i, (_, inside) in enumerate(pairs))
        counted: list[tuple[str, ExactAggregate, Facts]] = [
            (f"{self._name}.n", ExactAggregate(Summary.COUNT, None), Facts(Kind.INTEGER, public=not by_unit))
        ]
        if other is not None:
            ends = ((Summary.MIN, "least"), (Summary.MAX, "greatest"))
            counted += [(f"{self._name}.{end}", ExactAggregate(s, other[1]), other[1].facts) for s, end in ends]
        fields = tuple(Field(name, e.facts) for name, e in keys) + tuple(Field(n, facts) for n, _, facts in counted)
        aggregates = tuple((name, aggregate) for name, aggregate, _ in counted)
        right: Relation = PerUnit(found, keys, aggregates, fields)
        if not by_unit:
            every = tuple((each.name, ColumnRef(each.name, each.facts)) for each in fields)
            right = PublicSelect(found, every, None, fields, keys, aggregates, True)
        refs = {each.name.split(".", 1)[1]: ColumnRef(each.name, each.facts) for each in fields}
        self.joins.append((right, tuple((a, refs[f"k{i}"]) for i, (a, _) in enumerate(pairs)), by_unit))
        there = call("gt", call("coalesce", refs["n"], literal(0)), literal(0))
        return there if other is None else call("and", there, _compare_ends(other[0], refs, scope))

    def _check_people(self, found: Relation, pairs: tuple[Pair, ...], node: exp.Expression, scope: Scope) -> bool:
        """Whether rows of people are looked up; from anything but rows of the same person that is refused."""
        if not is_private(found):
            return False
        if not is_private(self.base) or not any(meet_on_unit(self.base, found, pair) for pair in pairs):
            raise scope.refusal(node, "this sub-query would look up rows of other people",
                                expected="A sub-query over the same person's rows: inner.unit = outer.unit",
                                remedy="Aggregate over people, or tie it to the unit's column")  # fmt: skip
        if unlike := compare_ids(self.base, found):
            raise scope.refusal(node, f"the sub-query and the rows outside {unlike}", remedy=ONE_TYPE)
        return True


def _compare_ends(tie: Tie, refs: dict[str, ColumnRef], scope: Scope) -> Expression:
    """Whether the comparison holds for one of the values between these ends: it does if it does at an end."""
    x = bind_expression(tie.outside, scope)
    tests = [call(tie.comparison, x, refs[end]) for end in ("least", "greatest")]
    return call("coalesce", call("or", *tests), literal(False))


def _check_kinds(pairs: tuple[Pair, ...]) -> None:
    for pair in pairs:
        if not all(side.facts.opaque for side in pair):
            call("eq", *pair)


def _unwrap(node: exp.Expression) -> exp.Expression:
    while isinstance(node, exp.Paren) or (isinstance(node, exp.Subquery) and {*node.args} <= {"this", "alias"}):
        node = node.this
    return node


def _is_plain(query: exp.Select) -> bool:
    """Whether it gives rows as they are: nothing groups, cuts or computes over them."""
    parts = ("group", "having", "limit", "offset", "qualify", "with", "with_")
    return not any(query.args.get(part) for part in parts) and not any(has_aggregate(e) for e in query.expressions)


def _split_ties(query: exp.Select, context: Context, scope: Scope) -> tuple[exp.Select, list[Tie]]:
    """The query without the conditions that look outside, and these."""
    where = query.args.get("where")
    inside = query.copy()
    if where is None:
        return inside, []
    known = context.scope(_list_fields(query, context))
    conditions = split_conjunction(where.this)
    own = [each for each in conditions if _is_inside(each, known)]
    ties = [_read_tie(each, known, scope) for each in conditions if not any(each is one for one in own)]
    if ties:
        kept = own[0].copy() if own else None
        for each in own[1:]:
            kept = exp.And(this=kept, expression=each.copy())
        inside.set("where", exp.Where(this=kept) if kept is not None else None)
    return inside, ties


def _list_fields(query: exp.Select, context: Context) -> tuple[Field, ...]:
    clause = query.args.get("from_") or query.args.get("from")
    nodes = [clause.this, *(join.this for join in query.args.get("joins") or [])] if clause is not None else []
    return tuple(each for node in nodes for each in bind_source(node, context).fields)


def _list_columns(node: exp.Expression) -> list[exp.Column]:
    """The columns of an expression, those of sub-queries inside it left out."""
    if isinstance(node, exp.Column):
        return [node]
    if isinstance(node, exp.Select):
        return []
    return [column for part in node.iter_expressions() for column in _list_columns(part)]


def _knows(scope: Scope, column: exp.Column) -> bool:
    name, table = column.name.lower(), fold_alias(column.table)
    names = [each.name.lower() for each in scope.fields]
    return f"{table}.{name}" in names if table else name in (each.split(".", 1)[-1] for each in names)


def _is_inside(node: exp.Expression, known: Scope) -> bool:
    return all(_knows(known, column) for column in _list_columns(node))


def _read_tie(node: exp.Expression, known: Scope, scope: Scope) -> Tie:
    """A comparison of something inside with something outside."""
    if type(node) in COMPARED:
        plain, exchanged = COMPARED[type(node)]
        left, right = node.this, node.expression
        for outside, inside, comparison in ((left, right, plain), (right, left, exchanged)):
            strange = _list_columns(outside) and not any(_knows(known, c) for c in _list_columns(outside))
            if strange and _list_columns(inside) and _is_inside(inside, known):
                return Tie(comparison, outside, inside)
    for column in _list_columns(node):
        if not _knows(known, column):
            try:
                bind_expression(column, scope)
            except QueryRefused:
                raise _refuse_unknown_column(column, known) from None
    raise scope.refusal(node, "a sub-query is tied to the row outside in a way that cannot be joined", expected=TIED)


def _refuse_unknown_column(column: exp.Column, known: Scope) -> QueryRefused:
    try:
        known.column(column)
    except QueryRefused as refusal:
        return refusal
    return known.refusal(column, f"there is no column '{column.name}' here", unknown="column")


def _is_known(item: exp.Expression, scope: Scope) -> bool:
    """Whether an expression means something at a place."""
    try:
        bind_expression(item.unalias(), scope)
    except QueryRefused:
        return False
    return True
