"""From a statement to a relation: names resolved against the policy, every step tagged, everything else refused.

Here are the statement and its WHERE, WITH and UNION ALL; FROM is in `from_clause`, the blocks of a SELECT are in
`select`, expressions in `scalar`, sub-queries inside them in `subqueries`. What comes out is a public relation: noisy
measurements of private rows, and ordinary SQL above them. A statement that would release rows of people has no such
relation and is refused here, before any data is touched."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from sqlglot import expressions as exp
from sqlglot.errors import SqlglotError

from deniable.errors import QueryRefused
from deniable.policy.schema import TableSchema
from deniable.query.algebra.expression import HOLDS, Call, ColumnRef, Expression, Kind, Literal, literal
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
    personal_fields,
)
from deniable.query.sql import select as sql_select
from deniable.query.sql.aggregates import has_aggregate, is_aggregate
from deniable.query.sql.clauses import LESS_DEEP, Clauses, cut_clauses, parse_tokens, refuse_depth, tokens_of
from deniable.query.sql.from_clause import (
    ONE_TYPE,
    Context,
    bind_from,
    build_union,
    filter_rows,
    list_links,
    rename_columns,
)
from deniable.query.sql.render import TYPES
from deniable.query.sql.scalar import bind_expression
from deniable.query.sql.scope import Scope, refuse_unread_part, refuse_unread_words
from deniable.query.sql.select import bind_group_by, bind_items
from deniable.query.sql.subqueries import Attached

MOST_SIDES = 100
MOST_PARTS = 6_000
"""Names, functions and clauses in a statement; values are not counted."""
IGNORED = {"kind", "hint", "operation_modifiers"}
REFUSED_PARTS = {
    "laterals": "LATERAL", "windows": "WINDOW", "distribute": "DISTRIBUTE BY", "sort": "SORT BY",
    "cluster": "CLUSTER BY", "pivots": "PIVOT", "match": "MATCH_RECOGNIZE", "into": "INTO", "sample": "SAMPLE",
    "locks": "FOR UPDATE", "settings": "SETTINGS", "format": "FORMAT", "connect": "CONNECT BY", "prewhere": "PREWHERE",
    "options": "OPTIONS", "exclude": "EXCLUDE",
}  # fmt: skip


def bind_statement(text: str, tables: tuple[TableSchema, ...]) -> tuple[Relation, Clauses]:
    """The public relation a statement asks for, and what it said about budget and accuracy."""
    clauses = cut_clauses(text)
    context = Context(clauses, tables, bind_query)
    try:
        parsed = _parse_statement(clauses)
    except SqlglotError as failure:
        raise _refuse_unreadable(failure) from None
    except RecursionError:
        raise refuse_depth() from None
    if len(parsed) != 1 or parsed[0] is None:
        raise QueryRefused("one statement at a time", expected="A single SELECT")
    _refuse_unfit(parsed[0], context)
    try:
        relation = bind_query(parsed[0], context)
    except RecursionError:
        raise refuse_depth() from None
    if is_private(relation):
        raise context.scope(()).refusal(
            parsed[0],
            "this would release rows of people",
            remedy="Use COUNT, SUM or AVG, with or without GROUP BY",
        )
    work, terms = bound_work(relation)
    _refuse_costly(parsed[0], relation, work, terms, context)
    return number_nodes(bound_joins(relation, work)), clauses


def find_fan_out(relation: Relation) -> tuple[int, int]:
    """The public rows that a private row may meet in one join, and in all joins of the relation together."""
    joins = max((_count_public_joins(node.input) for node in find_noisy_nodes(relation)), default=0)
    most = bisect_right(range(1, MOST_FAN_OUT + 1), MOST_FAN_OUT, key=lambda each: each**joins)
    return most, most**joins


def bound_joins(relation: Relation, work: int) -> Relation:
    """The relation with bounds on the rows that joins make of one private row, and of all rows of one unit.

    A private row meets so many public rows, over all joins together. The pairs of one unit are fewer where more is done
    for each row, of which `work` is a bound.
    """
    most, together = find_fan_out(relation)
    pairs = max(FEWEST_PAIRS, min(MOST_PAIRS, MOST_UNIT_WORK // ((work + ROW_WORK) * together)))

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
    copies = isinstance(relation, Join) and not relation.single
    own = isinstance(relation, Join) and copies and is_private(relation.left) and not is_private(relation.right)
    return own + sum(_count_public_joins(below) for below in inputs_of(relation))


def _refuse_costly(node: exp.Expression, relation: Relation, work: int, terms: int, context: Context) -> None:
    """Refuse what one row could make slow, from public bounds alone."""
    fan_out = find_fan_out(relation)[1]
    if terms > MOST_TERMS:
        raise context.scope(()).refusal(
            node,
            f"the question has {terms:,} terms once it is written out, and {MOST_TERMS:,} is the most",
            remedy=LESS_DEEP,
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
    """Refuse words that nobody reads, placeholders that stand for nothing, and statements of too many parts."""
    parts, scope = 0, context.scope(())
    for node in statement.walk():
        parts += not isinstance(node, exp.Literal)
        refuse_unread_part(node, scope)
        if isinstance(node, exp.Placeholder | exp.Parameter):
            raise context.scope(()).refusal(node, "a placeholder has no value", remedy="Write the value itself")
        if parts > MOST_PARTS:
            raise QueryRefused(f"the statement has more than {MOST_PARTS:,} parts", remedy="Ask for less at once")
    columns = {column.name.lower() for table in context.tables for column in table.columns}
    tokens = context.clauses.tokens or tokens_of(context.clauses.text)
    refuse_unread_words(statement, context.clauses.text, tokens, columns)


def _parse_statement(clauses: Clauses) -> list[exp.Expression | None]:
    """The statements of a text; tokens that were read already are not read again."""
    return parse_tokens(tokens_of(clauses.text) if clauses.tokens is None else list(clauses.tokens), clauses.text)


def _refuse_unreadable(failure: Exception) -> QueryRefused:
    details = getattr(failure, "errors", None) or [{}]
    line, column = details[0].get("line"), details[0].get("col")
    if line is None:
        return QueryRefused("the statement cannot be read as SQL", expected="One SELECT statement")
    from deniable.errors import Place

    return QueryRefused("the statement cannot be read as SQL from here on", place=Place("query", line, column or 0),
                        expected='One SELECT statement; names with spaces stand in quotes: "birth date"')  # fmt: skip


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
        case exp.Subquery():
            context = _bind_with(node, context)
            return bind_query(_lift(node, node.this) if _has_tail(node) else node.this, context)
        case exp.Paren():
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
        raise context.scope(()).refusal(
            clause, "WITH RECURSIVE is not allowed", remedy="Write each step as a sub-query"
        )
    for part in clause.expressions:
        name = part.alias.lower()
        if name in context.named:
            raise context.scope(()).refusal(part, f"'{part.alias}' is defined twice")
        columns = [each.name for each in part.args["alias"].columns]
        bound = rename_columns(bind_query(part.this, context), columns, context.scope(()), part)
        context = replace(context, named={**context.named, name: bound})
    return context


def _bind_union(node: exp.Union, context: Context) -> Relation:
    scope = context.scope(())
    if _has_tail(node):
        return bind_query(_lift(node, _without_tail(node)), context)
    sides = tuple(bind_query(side, context) for side in _list_sides(node, scope))
    if len({is_private(side) for side in sides}) > 1:
        raise scope.refusal(node, "UNION ALL takes private rows with private rows, or public with public",
                            remedy="Aggregate the private side first")  # fmt: skip
    if len({tuple(fact.facts.kind for fact in side.fields) for side in sides}) > 1:
        raise scope.refusal(node, "the two sides of UNION ALL differ in columns or types")
    if len({tuple(fact.facts.opaque for fact in side.fields) for side in sides}) > 1:
        # Counting different values of both together would tell how many are the same.
        raise scope.refusal(node, f"UNION ALL with another column {OPAQUE}")
    union = build_union(sides)
    if node.args.get("distinct"):
        if is_private(union):
            raise scope.refusal(node, "UNION would compare rows of different people", remedy="Write UNION ALL")
        every = tuple((each.name, ColumnRef(each.name, each.facts)) for each in union.fields)
        return PublicSelect(union, every, None, union.fields, distinct=True)
    if is_private(union) and (unlike := compare_ids(*sides)):
        raise scope.refusal(node, f"the sides of UNION ALL {unlike}", remedy=ONE_TYPE)
    return union


TAIL = ("order", "limit", "offset")


def _has_tail(node: exp.Expression) -> bool:
    """Whether a query in brackets, or a union, is ordered or cut."""
    return any(node.args.get(part) for part in TAIL)


def _without_tail(node: exp.Expression) -> exp.Expression:
    kept = node.copy()
    for part in (*TAIL, "with_"):
        kept.set(part, None)
    return kept


def _lift(node: exp.Expression, query: exp.Expression) -> exp.Select:
    """`(SELECT ...) ORDER BY x LIMIT 2` as the SELECT around it that it means."""
    inner = exp.Subquery(this=query.copy(), alias=exp.TableAlias(this=exp.to_identifier("rows")))
    lifted = exp.Select(expressions=[exp.Star()], from_=exp.From(this=inner))
    for part in TAIL:
        if node.args.get(part):
            lifted.set(part, node.args[part].copy())
    return lifted


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
    return not any(node.args.get(part) for part in ("distinct", *TAIL, "with", "with_"))


def bind_select(node: exp.Select, context: Context) -> Relation:
    """One SELECT block, over private or public rows."""
    scope = context.scope(())
    if not node.expressions:
        raise scope.refusal(node, "nothing stands after SELECT", remedy="Name columns or aggregates, such as COUNT(*)")
    for part, name in REFUSED_PARTS.items():
        if node.args.get(part):
            raise scope.refusal(node, f"{name} is not allowed", remedy="Leave it out")
    rows, conditions = bind_from(node, context)
    source = _apply_where(rows, conditions, node, context)
    grouped = node.args.get("group") is not None or any(has_aggregate(item) for item in node.expressions)
    if not is_private(source):
        try:
            return sql_select.bind_public_block(node, source, context.clauses, grouped, Attached(source, context))
        except QueryRefused:
            if not (grouped and is_private(rows)):
                raise
            return _ask_of_nobody(node, context)
    if node.args.get("distinct") is not None and not grouped:
        node, grouped = _group_distinct(node, context.scope(source.fields)), True
    if not grouped:
        return _project_rows(node, source, context)
    block = bind_group_by(node, source, context.clauses)
    personal = personal_fields(source, list_links(context))
    if any(isinstance(key, ColumnRef) and key.name in personal for _, key in block.keys):
        return sql_select.bind_per_unit(node, block, context.clauses)
    attached = Attached(source, context), Attached(Nothing(), context)
    return sql_select.bind_noisy_block(node, block, context.clauses, *attached)


def _apply_where(source: Relation, conditions: list[exp.Expression], node: exp.Select, context: Context) -> Relation:
    """The rows that WHERE keeps; what keeps none needs no rows of people."""
    scope = context.scope(source.fields)
    if any(has_aggregate(condition) for condition in conditions):
        raise scope.refusal(node.args["where"], "WHERE cannot use aggregates", remedy="Use HAVING")
    attached = Attached(source, context)
    bound = [bind_expression(condition, attached.scope(source.fields)) for condition in conditions]
    if is_private(source) and (any(_is_false(each) for each in bound) or _takes_nothing(node)):
        return _empty(source)
    if not bound:
        return source
    predicate = bound[0]
    for condition in bound[1:]:
        try:
            predicate = call("and", predicate, condition)
        except Mismatch:
            raise scope.refusal(node.args.get("where") or node, "WHERE takes conditions") from None
    filtered = filter_rows(attached.attach_to(source), predicate, node.args.get("where") or node, context)
    return _drop_fields(filtered, source) if attached.joins else filtered


def _drop_fields(filtered: Relation, source: Relation) -> Relation:
    """The filtered rows with the fields of their source alone: those of sub-queries have done their part."""
    assert isinstance(filtered, Transform | PublicSelect)
    names = {each.name for each in source.fields}
    kept = tuple((name, e) for name, e in filtered.projections if name in names)
    return replace(filtered, projections=kept, fields=tuple(Field(name, e.facts) for name, e in kept))


def _ask_of_nobody(node: exp.Select, context: Context) -> Relation:
    """A question about people that takes no rows: it is bound like any, so that its columns and refusals are the same.

    Over no rows there are no groups; without groups counts are 0, and everything else is null.
    """
    asked = node.copy()
    for part in ("where", "limit"):
        asked.set(part, None)
    bound = bind_select(asked, context)
    spread = len(bound.fields) != len(node.expressions)  # HISTOGRAM has a group for each of its bins
    if node.args.get("group") is not None or spread or _takes_nothing(node):
        return _empty(bound)
    having = asked.args.get("having")
    for part in ("from_", "from", "joins", "having"):
        asked.set(part, None)
    asked.set("expressions", [
        exp.alias_(_count_nobody(item.unalias(), field.facts.kind), field.name, quoted=True)
        for item, field in zip(asked.expressions, bound.fields, strict=True)
    ])  # fmt: skip
    if having is not None:
        asked.set("where", exp.Where(this=_count_nobody(having.this, Kind.DECIMAL)))
    return bind_select(asked, context)


def _count_nobody(node: exp.Expression, kind: Kind) -> exp.Expression:
    """An expression with each aggregate as it is over no rows; `kind` is that of the whole."""

    def replace_aggregate(part: exp.Expression) -> exp.Expression:
        if not (isinstance(part, exp.Filter | exp.WithinGroup) or is_aggregate(part)):
            return part
        inner = part
        while isinstance(inner, exp.Filter | exp.WithinGroup):
            inner = inner.this
        if isinstance(inner, exp.Count | exp.CountIf | exp.ApproxDistinct):
            return exp.Literal.number(0)
        return exp.cast(exp.Null(), TYPES[kind if part is node else Kind.DECIMAL])

    return node.transform(replace_aggregate, copy=False)


def _is_false(condition: Expression) -> bool:
    """Whether a condition holds for no row, by what is written alone: FALSE, or 1 = 0 of two literals."""
    match condition:
        case Literal(value):
            return value is None or value is False
        case Call(name, (Literal(a), Literal(b))) if name in HOLDS:
            return a is None or b is None or (type(a) is type(b) and not HOLDS[name](a, b))
        case _:
            return False


def _takes_nothing(node: exp.Select) -> bool:
    """LIMIT 0: a tool asks for the columns alone."""
    limit = node.args.get("limit")
    return isinstance(limit, exp.Limit) and isinstance(limit.expression, exp.Literal) and limit.expression.name == "0"


def _empty(source: Relation) -> Relation:
    """No rows, with the names and types of the source's fields: nobody is in it, so it is public."""
    nulls = tuple((each.name, _type_null(each.facts.kind)) for each in source.fields)
    return PublicSelect(Nothing(), nulls, literal(False), tuple(Field(name, e.facts) for name, e in nulls))


def _type_null(kind: Kind) -> Expression:
    return literal(None) if kind is Kind.NULL else call(f"cast_{kind.value}", literal(None))


def _group_distinct(node: exp.Select, scope: Scope) -> exp.Select:
    """SELECT DISTINCT of private rows is GROUP BY all its items."""
    if node.args["distinct"].args.get("on"):
        raise scope.refusal(node, "DISTINCT ON of private rows is not allowed", remedy="GROUP BY these columns")
    changed = node.copy()
    changed.set("distinct", None)
    items = sql_select.list_items(node, scope)
    changed.set("expressions", items)
    changed.set("group", exp.Group(expressions=[item.unalias().copy() for item in items]))
    return changed


def _project_rows(node: exp.Select, source: Relation, context: Context) -> Relation:
    """Row-wise SELECT of private rows: fine inside another query, and it is refused if nothing aggregates it."""
    scope = context.scope(source.fields)
    for part, name in (
        ("order", "ORDER BY"),
        ("limit", "LIMIT"),
        ("offset", "OFFSET"),
        ("having", "HAVING"),
        ("qualify", "QUALIFY"),
    ):
        if node.args.get(part):
            raise scope.refusal(node.args[part], f"{name} of private rows is not allowed",
                                remedy="Use it on the noisy numbers")  # fmt: skip
    attached = Attached(source, context)
    items = bind_items(node, attached.scope(source.fields))
    fields = tuple(Field(name, expression.facts) for name, expression in items)
    return Transform(attached.attach_to(source), items, None, fields)
