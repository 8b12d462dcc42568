"""From a statement to a relation: names resolved against the policy, every step tagged, everything else refused.

Here are the statement and its FROM, JOIN, WHERE, WITH and UNION ALL; the blocks of a SELECT are in `select`,
expressions in `scalar`. What comes out is a public relation: noisy measurements of private rows, and ordinary SQL
above them. A statement that would release rows of people has no such relation and is refused here, before any data is
touched."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field, replace

from sqlglot import expressions as exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from deniable.errors import QueryRefused, nearest
from deniable.policy.schema import TableSchema
from deniable.query.algebra.expression import ColumnRef, Expression
from deniable.query.algebra.functions import OPAQUE, call
from deniable.query.algebra.intervals import Mismatch
from deniable.query.algebra.relation import (
    FEWEST_PAIRS,
    MOST_FAN_OUT,
    MOST_JOINED_WORK,
    MOST_NODES,
    MOST_PAIRS,
    MOST_TERMS,
    MOST_UNIT_WORK,
    MOST_WORK,
    ROW_WORK,
    Field,
    Join,
    Measured,
    Nothing,
    PerUnit,
    PublicSelect,
    Relation,
    Transform,
    Union,
    bound_work,
    compare_ids,
    count_nodes,
    find_noisy_nodes,
    inputs_of,
    is_private,
    scan_table,
    unit_fields,
)
from deniable.query.sql import select as sql_select
from deniable.query.sql.clauses import Clauses, cut_clauses
from deniable.query.sql.scalar import Scope, bind_expression, has_aggregate
from deniable.query.sql.select import bind_group_by, bind_items

MOST_SIDES = 100
MOST_PARTS = 6_000
"""Names, functions and clauses in a statement; values are not counted."""
ALLOWED_JOINS = ("", "INNER", "LEFT", "OUTER")
IGNORED = {"kind", "hint", "operation_modifiers"}
ONE_TYPE = "Declare the unit's column in all tables as integer or text"
REFUSED_PARTS = {
    "laterals": "LATERAL", "windows": "WINDOW", "qualify": "QUALIFY", "distribute": "DISTRIBUTE BY", "sort": "SORT BY",
    "cluster": "CLUSTER BY", "pivots": "PIVOT", "match": "MATCH_RECOGNIZE", "into": "INTO", "sample": "SAMPLE",
    "locks": "FOR UPDATE", "settings": "SETTINGS", "format": "FORMAT", "connect": "CONNECT BY", "prewhere": "PREWHERE",
    "options": "OPTIONS", "exclude": "EXCLUDE",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Context:
    """What is known while a statement is bound: its text, the policy's tables, and the WITH queries above."""

    clauses: Clauses
    tables: tuple[TableSchema, ...]
    named: dict[str, Relation] = field(default_factory=dict)

    def scope(self, fields: tuple[Field, ...]) -> Scope:
        """A scope over fields, that points its refusals into the statement."""
        return Scope(self.clauses.text, fields)


def bind_statement(text: str, tables: tuple[TableSchema, ...]) -> tuple[Relation, Clauses]:
    """The public relation a statement asks for, and what it said about budget and accuracy."""
    clauses = cut_clauses(text)
    context = Context(clauses, tables)
    try:
        parsed = _parse_statement(clauses)
    except (SqlglotError, RecursionError) as failure:
        raise _refuse_unreadable(failure) from None
    if len(parsed) != 1 or parsed[0] is None:
        raise QueryRefused("one statement at a time", expected="A single SELECT")
    _refuse_unfit(parsed[0], context)
    try:
        relation = bind_query(parsed[0], context)
    except RecursionError:
        raise QueryRefused("the statement is nested too deeply") from None
    if is_private(relation):
        raise context.scope(()).refusal(
            parsed[0],
            "this would release rows of people",
            expected="Aggregates such as COUNT, SUM, AVG, with GROUP BY",
            remedy="Aggregate over people, not for each of them",
        )
    _refuse_costly(parsed[0], relation, context)
    return number_nodes(bound_joins(relation)), clauses


def find_fan_out(relation: Relation) -> tuple[int, int]:
    """The public rows that a private row may meet in one join, and in all joins of the relation together."""
    joins = max((_count_public_joins(node.input) for node in find_noisy_nodes(relation)), default=0)
    most = bisect_right(range(1, MOST_FAN_OUT + 1), MOST_FAN_OUT, key=lambda each: each**joins)
    return most, most**joins


def bound_joins(relation: Relation) -> Relation:
    """The relation with bounds on the rows that joins make of one private row, and of all rows of one unit.

    A private row meets so many public rows, over all joins together. The pairs of one unit are fewer where more is done
    for each row.
    """
    most, together = find_fan_out(relation)
    work = (bound_work(relation)[0] + ROW_WORK) * together
    pairs = max(FEWEST_PAIRS, min(MOST_PAIRS, MOST_UNIT_WORK // work))

    def bound(node: Relation) -> Relation:
        match node:
            case Measured(source) | Transform(source) | PerUnit(source) | PublicSelect(source):
                return replace(node, input=bound(source))
            case Join(left, right):
                return replace(node, left=bound(left), right=bound(right), fan_out=most, pairs=pairs)
            case Union(sides):
                return replace(node, inputs=tuple(bound(side) for side in sides))
            case _:
                return node

    return bound(relation)


def _count_public_joins(relation: Relation) -> int:
    own = isinstance(relation, Join) and is_private(relation.left) and not is_private(relation.right)
    return own + sum(_count_public_joins(below) for below in inputs_of(relation))


def _refuse_costly(node: exp.Expression, relation: Relation, context: Context) -> None:
    """Refuse what one row could make slow, from public bounds alone."""
    work, terms = bound_work(relation)
    fan_out = find_fan_out(relation)[1]
    if terms > MOST_TERMS:
        raise context.scope(()).refusal(
            node,
            f"the question has {terms:,} terms once it is written out, and {MOST_TERMS:,} is the most",
            remedy="Nest functions less deeply",
        )
    counted, limit = (work, MOST_WORK) if work > MOST_WORK else (work * fan_out, MOST_JOINED_WORK)
    if counted > limit:
        raise context.scope(()).refusal(
            node,
            f"one row could take {counted:,} steps of work, and {limit:,} is the most",
            expected="Texts short enough for what is done with them: a column may hold 65,536 characters",
            remedy="Shorten texts before they are searched or joined, as with LEFT(x, 200)",
        )


def _refuse_unfit(statement: exp.Expression, context: Context) -> None:
    """Refuse placeholders that stand for nothing, and statements of too many parts."""
    parts = 0
    for node in statement.walk():
        parts += not isinstance(node, exp.Literal)
        if isinstance(node, exp.Placeholder | exp.Parameter):
            raise context.scope(()).refusal(node, "a placeholder has no value", remedy="Write the value itself")
        if parts > MOST_PARTS:
            raise QueryRefused(f"the statement has more than {MOST_PARTS:,} parts", remedy="Ask for less at once")


def _parse_statement(clauses: Clauses) -> list[exp.Expression | None]:
    """The statements of a text; tokens that were read already are not read again."""
    dialect = Dialect.get_or_raise("duckdb")
    tokens = dialect.tokenize(clauses.text) if clauses.tokens is None else list(clauses.tokens)
    found: list[exp.Expression | None] = dialect.parser().parse(tokens, clauses.text)
    return found


def _refuse_unreadable(failure: Exception) -> QueryRefused:
    details = getattr(failure, "errors", None) or [{}]
    line, column = details[0].get("line"), details[0].get("col")
    if line is None:
        return QueryRefused("the statement cannot be read as SQL", expected="One SELECT statement")
    from deniable.errors import Place

    return QueryRefused("the statement cannot be read as SQL from here on", place=Place("query", line, column or 0),
                        expected="One SELECT statement")  # fmt: skip


def number_nodes(relation: Relation) -> Relation:
    """Give each noisy measurement of the statement a name of its own."""
    nodes = find_noisy_nodes(relation)

    def rename(node: Relation) -> Relation:
        match node:
            case Measured(source):
                return replace(node, name=f"m{nodes.index(node)}", input=rename(source))
            case Transform(source) | PerUnit(source) | PublicSelect(source):
                return replace(node, input=rename(source))
            case Join(left, right):
                return replace(node, left=rename(left), right=rename(right))
            case Union(sides):
                return replace(node, inputs=tuple(rename(side) for side in sides))
            case _:
                return node

    return rename(relation)


def bind_query(node: exp.Expression, context: Context) -> Relation:
    """One query: SELECT, UNION ALL, or one in brackets, with its WITH clause."""
    match node:
        case exp.Subquery() | exp.Paren():
            return bind_query(node.this, context)
        case exp.Select():
            return _refuse_large(node, bind_select(node, _bind_with(node, context)), context)
        case exp.Union():
            return _refuse_large(node, _bind_union(node, _bind_with(node, context)), context)
        case _:
            raise context.scope(()).refusal(
                node, f"{node.key.upper()} is not a question", expected="A SELECT statement"
            )


def _refuse_large(node: exp.Expression, relation: Relation, context: Context) -> Relation:
    """The relation, unless it has too many steps: a WITH query that is used twice counts twice."""
    context.clauses.refuse_late()
    if count_nodes(relation) > MOST_NODES:
        raise context.scope(()).refusal(
            node, f"the question has more than {MOST_NODES:,} steps", remedy="Use WITH queries fewer times"
        )
    return relation


def _bind_with(node: exp.Expression, context: Context) -> Context:
    clause = node.args.get("with_") or node.args.get("with")
    if clause is None:
        return context
    if clause.args.get("recursive"):
        raise context.scope(()).refusal(clause, "WITH RECURSIVE is not allowed")
    for part in clause.expressions:
        name = part.alias.lower()
        if name in context.named:
            raise context.scope(()).refusal(part, f"'{part.alias}' is defined twice")
        context = replace(context, named={**context.named, name: bind_query(part.this, context)})
    return context


def _bind_union(node: exp.Union, context: Context) -> Relation:
    scope = context.scope(())
    if node.args.get("distinct"):
        raise scope.refusal(node, "UNION would compare rows of different people", remedy="Write UNION ALL")
    if node.args.get("order") or node.args.get("limit"):
        raise scope.refusal(
            node, "ORDER BY and LIMIT of private rows are not allowed", remedy="Use them on the noisy numbers"
        )
    sides = tuple(bind_query(side, context) for side in _list_sides(node, scope))
    if len({is_private(side) for side in sides}) > 1:
        raise scope.refusal(node, "UNION ALL takes private rows with private rows, or public with public",
                            remedy="Aggregate the private side first")  # fmt: skip
    if len({tuple(fact.facts.kind for fact in side.fields) for side in sides}) > 1:
        raise scope.refusal(node, "the two sides of UNION ALL differ in columns or types")
    if len({tuple(fact.facts.opaque for fact in side.fields) for side in sides}) > 1:
        # Counting different values of both together would tell how many are the same.
        raise scope.refusal(node, f"UNION ALL with another column {OPAQUE}")
    union = sql_select.build_union(sides)
    if is_private(union) and (unlike := compare_ids(*sides)):
        raise scope.refusal(node, f"the sides of UNION ALL {unlike}", remedy=ONE_TYPE)
    return union


def _list_sides(node: exp.Expression, scope: Scope) -> list[exp.Expression]:
    """The sides of a chain of UNION ALL, from the first to the last; brackets and clauses of a side end the chain."""
    sides: list[exp.Expression] = []
    first = True
    while isinstance(node, exp.Union) and (first or _is_plain(node)):
        sides.append(node.expression)
        node, first = node.this, False
    if len(sides) >= MOST_SIDES:
        raise scope.refusal(node, f"UNION ALL has more than {MOST_SIDES} sides")
    return [node, *reversed(sides)]


def _is_plain(node: exp.Union) -> bool:
    return not any(node.args.get(part) for part in ("distinct", "order", "limit", "with", "with_"))


def bind_select(node: exp.Select, context: Context) -> Relation:
    """One SELECT block, over private or public rows."""
    scope = context.scope(())
    for part, name in REFUSED_PARTS.items():
        if node.args.get(part):
            raise scope.refusal(node, f"{name} is not allowed")
    source = _bind_from(node, context)
    where = node.args.get("where")
    if where is not None:
        if has_aggregate(where) and where.find(exp.Select) is None:
            raise context.scope(source.fields).refusal(where, "WHERE cannot use aggregates", remedy="Use HAVING")
        source = _filter_rows(source, bind_expression(where.this, context.scope(source.fields)), where, context)
    aggregates = node.args.get("group") is not None or any(has_aggregate(item) for item in node.expressions)
    if not is_private(source):
        return sql_select.bind_public_block(node, source, context.clauses, aggregates)
    if not aggregates:
        return _project_rows(node, source, context)
    block = bind_group_by(node, source, context.clauses)
    if any(isinstance(key, ColumnRef) and key.name in unit_fields(source) for _, key in block.keys):
        return sql_select.bind_per_unit(node, block, context.clauses)
    return sql_select.bind_noisy_block(node, block, context.clauses)


def _filter_rows(source: Relation, predicate: Expression, node: exp.Expression, context: Context) -> Relation:
    if predicate.facts.kind.value not in ("boolean", "null"):
        raise context.scope(source.fields).refusal(node, "WHERE takes a condition")
    keep = tuple((field.name, ColumnRef(field.name, field.facts)) for field in source.fields)
    if is_private(source):
        return Transform(source, keep, predicate, source.fields)
    return PublicSelect(source, keep, predicate, source.fields)


def _project_rows(node: exp.Select, source: Relation, context: Context) -> Relation:
    """Row-wise SELECT of private rows: fine inside another query, and it is refused if nothing aggregates it."""
    scope = context.scope(source.fields)
    for part, name in (("order", "ORDER BY"), ("limit", "LIMIT"), ("offset", "OFFSET"), ("having", "HAVING")):
        if node.args.get(part):
            raise scope.refusal(node.args[part], f"{name} of private rows is not allowed",
                                remedy="Use it on the noisy numbers")  # fmt: skip
    if node.args.get("distinct"):
        raise scope.refusal(
            node, "DISTINCT of private rows is not allowed", remedy="GROUP BY the unit and these columns"
        )
    items = bind_items(node, scope)
    fields = tuple(Field(name, expression.facts) for name, expression in items)
    return Transform(source, items, None, fields)


def _bind_from(node: exp.Select, context: Context) -> Relation:
    clause = node.args.get("from_") or node.args.get("from")
    if clause is None:
        return Nothing()
    relation = _bind_source(clause.this, context)
    for join in node.args.get("joins") or []:
        relation = _bind_join(relation, join, context)
    return relation


def _bind_source(node: exp.Expression, context: Context) -> Relation:
    scope = context.scope(())
    if isinstance(node, exp.Subquery):
        if not node.alias:
            raise scope.refusal(node, "a sub-query in FROM needs a name", remedy="Write (SELECT ...) AS name")
        return sql_select.rename_fields(bind_query(node.this, context), node.alias)
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        raise scope.refusal(node, "FROM takes tables of the policy and sub-queries, nothing else",
                            remedy="Functions that read files or make rows are off")  # fmt: skip
    if any(node.args.get(part) for part in ("joins", "pivots", "sample", "laterals", "when", "version", "rows_from")):
        raise scope.refusal(node, "this form of FROM is not allowed")
    name, alias = node.name, node.alias or node.name
    if node.db in ("", "public", "main") and name.lower() in context.named and not node.db:
        return sql_select.rename_fields(context.named[name.lower()], alias)
    table = next((t for t in context.tables if t.name.lower() == name.lower()), None)
    if table is None or node.db not in ("", "public", "main") or node.catalog:
        known = [t.name for t in context.tables] + list(context.named)
        raise scope.refusal(node, f"there is no table '{name}'", expected="The tables are " + ", ".join(sorted(known)),
                            remedy=nearest(name, known))  # fmt: skip
    return scan_table(table, alias.lower())


def _bind_join(left: Relation, node: exp.Join, context: Context) -> Relation:
    scope = context.scope(left.fields)
    right = _bind_source(node.this, context)
    side, kind = (node.side or "").upper(), (node.kind or "").upper()
    if side not in ALLOWED_JOINS or kind not in ALLOWED_JOINS or node.args.get("method"):
        raise scope.refusal(node, f"{' '.join(filter(None, (node.method, side, kind)))} JOIN is not allowed",
                            expected="JOIN ... ON and LEFT JOIN ... ON")  # fmt: skip
    if {field.name for field in left.fields} & {field.name for field in right.fields}:
        raise scope.refusal(node, "two tables of the join have one name", remedy="Give one of them another alias")
    if is_private(right) and not is_private(left):
        if side == "LEFT":
            raise scope.refusal(
                node,
                "a public table cannot be LEFT JOINed with private rows",
                remedy="Write private JOIN public: groups of the public table appear all the same",
            )
        left, right = right, left
    on = _bind_conditions(node, left, right, context)
    by_unit = is_private(left) and is_private(right)
    if by_unit:
        units = unit_fields(left), unit_fields(right)
        if not any(
            isinstance(a, ColumnRef) and a.name in units[0] and isinstance(b, ColumnRef) and b.name in units[1]
            for a, b in on
        ):
            raise scope.refusal(node, "two private tables are joined on something else than the privacy unit",
                                expected="ON a.unit = b.unit, with the unit column of each table")  # fmt: skip
        if unlike := compare_ids(left, right):
            # As one type for both, large numbers that differ would be equal: one person would meet many.
            raise scope.refusal(node, f"the sides of the join {unlike}", remedy=ONE_TYPE)
    return sql_select.build_join(left, right, side == "LEFT", on, by_unit)


def _bind_conditions(
    node: exp.Join, left: Relation, right: Relation, context: Context
) -> tuple[tuple[Expression, Expression], ...]:
    scope = context.scope(left.fields + right.fields)
    left_scope, right_scope = context.scope(left.fields), context.scope(right.fields)
    if node.args.get("using"):
        columns = [exp.Column(this=exp.to_identifier(part.name)) for part in node.args["using"]]
        pairs = [(bind_expression(part, left_scope), bind_expression(part.copy(), right_scope)) for part in columns]
        if any(a.facts.opaque is not b.facts.opaque for a, b in pairs):
            raise scope.refusal(node, f"USING {OPAQUE}")
        return tuple(pairs)
    if node.args.get("on") is None:
        raise scope.refusal(node, "this join has no condition", remedy="Write JOIN ... ON a.x = b.x")
    pairs = []
    for part in _split_conjunction(node.args["on"]):
        if not isinstance(part, exp.EQ):
            raise scope.refusal(part, "joins take equalities", remedy="Put other conditions in WHERE")
        pairs.append(_bind_sides(part, left_scope, right_scope))
    return tuple(pairs)


def _split_conjunction(node: exp.Expression) -> list[exp.Expression]:
    if isinstance(node, exp.Paren):
        return _split_conjunction(node.this)
    if isinstance(node, exp.And):
        return _split_conjunction(node.this) + _split_conjunction(node.expression)
    return [node]


def _bind_sides(node: exp.EQ, left: Scope, right: Scope) -> tuple[Expression, Expression]:
    try:
        pair = bind_expression(node.this, left), bind_expression(node.expression, right)
    except QueryRefused:
        pair = bind_expression(node.expression, left), bind_expression(node.this, right)
    if all(side.facts.opaque for side in pair):
        return pair
    try:
        call("eq", *pair)
    except Mismatch as mismatch:
        raise left.refusal(node, f"the join condition {mismatch}") from None
    return pair
