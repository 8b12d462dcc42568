"""FROM: tables and sub-queries, and how they are joined.

Inner joins, whether written with JOIN or with commas, are a set of sources and a set of conditions: sources are taken
one after the other as equalities connect them, private ones first, and what is no equality is left for WHERE. Rows of
people meet only rows of the same person. Outer joins are bound where they stand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sqlglot import expressions as exp

from deniable.errors import QueryRefused, nearest
from deniable.policy.schema import TableSchema
from deniable.query.algebra.expression import ColumnRef, Expression, columns_of
from deniable.query.algebra.functions import OPAQUE, call
from deniable.query.algebra.intervals import Mismatch
from deniable.query.algebra.intervals import union as common_facts
from deniable.query.algebra.relation import (
    Field,
    Join,
    Nothing,
    PublicSelect,
    Relation,
    Transform,
    Union,
    compare_ids,
    is_private,
    links_of,
    meet_on_unit,
    scan_table,
)
from deniable.query.sql.clauses import Clauses
from deniable.query.sql.scalar import COMPARE, bind_expression
from deniable.query.sql.scope import Scope, fold_alias

ALLOWED_JOINS = ("", "INNER", "LEFT", "RIGHT", "FULL", "OUTER", "CROSS")
ONE_TYPE = "Declare the unit's column in all tables as integer or text"
SCHEMAS = ("", "public", "main")
Pair = tuple[Expression, Expression]


@dataclass(frozen=True, slots=True)
class Context:
    """What is known while a statement is bound: its text, the policy's tables, and the WITH queries above.

    `bind` binds a query inside another.
    """

    clauses: Clauses
    tables: tuple[TableSchema, ...]
    bind: Callable[[exp.Expression, Context], Relation]
    named: dict[str, Relation] = field(default_factory=dict)

    def scope(self, fields: tuple[Field, ...]) -> Scope:
        """A scope over fields, that points its refusals into the statement."""
        return Scope(self.clauses, fields)


def rename_fields(relation: Relation, alias: str) -> Relation:
    """The relation under a name: its fields become `alias.column`."""
    prefix = fold_alias(alias)
    projections = tuple(
        (f"{prefix}.{field.name.split('.', 1)[-1]}", ColumnRef(field.name, field.facts)) for field in relation.fields
    )
    fields = tuple(Field(name, expression.facts) for name, expression in projections)
    if is_private(relation):
        return Transform(relation, projections, None, fields)
    return PublicSelect(relation, projections, None, fields)


def build_join(
    left: Relation,
    right: Relation,
    outer: bool,
    on: tuple[tuple[Expression, Expression], ...],
    by_unit: bool,
    *,
    full: bool = False,
    single: bool = False,
) -> Join:
    """The join of two relations, with the fields of both."""
    fields = (_make_nullable(left.fields) if full else left.fields) + (
        _make_nullable(right.fields) if outer else right.fields
    )
    return Join(left, right, outer, on, by_unit, fields, full=full, single=single)


def _make_nullable(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    return tuple(Field(field.name, replace(field.facts, nullable=True)) for field in fields)


def build_union(sides: tuple[Relation, ...]) -> Union:
    """The rows of all, named as in the first; what is public of a field must hold for all."""
    merged = tuple(
        Field(fields[0].name, common_facts(tuple(field.facts for field in fields)))
        for fields in zip(*(side.fields for side in sides), strict=True)
    )
    return Union(sides, merged)


def bind_from(node: exp.Select, context: Context) -> tuple[Relation, list[exp.Expression]]:
    """The joined sources of a SELECT, and what is left of WHERE once the joins have taken their conditions."""
    clause, where = node.args.get("from_") or node.args.get("from"), node.args.get("where")
    conditions = split_conjunction(where.this) if where is not None else []
    if clause is None:
        return Nothing(), conditions
    sources, joins = [bind_source(clause.this, context)], node.args.get("joins") or []
    # WHERE 1 = 1 connects nothing, though JOIN ... ON 1 = 1 does.
    able = [each for condition in conditions if joins for each in (condition, *_find_common(condition))]
    able = [each for each in able if each.find(exp.Column) is not None]
    taken: list[exp.Expression] = []
    given: list[exp.Expression] = []
    for join in joins:
        side = _read_side(join, context)
        if side:
            left = _connect(sources, [*given, *able], taken, join, context)
            given = [each for each in given if not _is_taken(each, taken)]
            sources = [_bind_outer(left, join, side, context)]
        else:
            sources.append(bind_source(join.this, context))
            given += _list_conditions(join)
    relation = _connect(sources, [*given, *able], taken, joins[-1] if joins else node, context)
    return relation, [each for each in [*conditions, *given] if not _is_taken(each, taken)]


def _is_taken(condition: exp.Expression, taken: list[exp.Expression]) -> bool:
    return any(condition is each for each in taken)


def _read_side(join: exp.Join, context: Context) -> str:
    """LEFT, RIGHT or FULL; nothing for an inner join."""
    side, kind = (join.side or "").upper(), (join.kind or "").upper()
    if side not in ALLOWED_JOINS or kind not in ALLOWED_JOINS or join.args.get("method"):
        words = " ".join(filter(None, (join.method, side, kind)))
        raise context.scope(()).refusal(
            join,
            f"{words} JOIN is not allowed",
            expected="JOIN ... ON, and LEFT, RIGHT or FULL JOIN ... ON",
            remedy={"SEMI": "Write WHERE x IN (SELECT ...)", "ANTI": "Write WHERE x NOT IN (SELECT ...)"}.get(kind, ""),
        )
    return side


def _list_conditions(join: exp.Join) -> list[exp.Expression]:
    """What ON demands, or the equalities that USING stands for."""
    if join.args.get("using"):
        names = [part.name for part in join.args["using"]]
        return [exp.EQ(this=exp.column(name), expression=exp.column(name)) for name in names]
    return split_conjunction(join.args["on"]) if join.args.get("on") is not None else []


def split_conjunction(node: exp.Expression) -> list[exp.Expression]:
    """The conditions that must all hold."""
    if isinstance(node, exp.Paren):
        return split_conjunction(node.this)
    if isinstance(node, exp.And):
        return split_conjunction(node.this) + split_conjunction(node.expression)
    return [node]


def _find_common(node: exp.Expression) -> list[exp.Expression]:
    """Equalities that stand in every branch of an OR, so that a join can use them; the OR itself stays."""
    branches = _split_disjunction(node)
    if len(branches) < 2:
        return []
    first, *others = [split_conjunction(branch) for branch in branches]
    return [each for each in first if isinstance(each, exp.EQ) and all(each in other for other in others)]


def _split_disjunction(node: exp.Expression) -> list[exp.Expression]:
    if isinstance(node, exp.Paren):
        return _split_disjunction(node.this)
    if isinstance(node, exp.Or):
        return _split_disjunction(node.this) + _split_disjunction(node.expression)
    return [node]


def bind_source(node: exp.Expression, context: Context) -> Relation:
    """One table or sub-query of FROM, its fields named by its alias."""
    scope = context.scope(())
    renamed = [part.name for part in node.args["alias"].columns] if node.args.get("alias") else []
    if isinstance(node, exp.Subquery):
        if not node.alias:
            raise scope.refusal(node, "a sub-query in FROM needs a name", remedy="Write (SELECT ...) AS name")
        return rename_fields(rename_columns(context.bind(node, context), renamed, scope, node), node.alias)
    if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
        raise scope.refusal(node, "FROM takes tables of the policy and sub-queries, nothing else",
                            remedy="Functions that read files or make rows are off")  # fmt: skip
    if any(node.args.get(part) for part in ("joins", "pivots", "sample", "laterals", "when", "version", "rows_from")):
        raise scope.refusal(node, "this form of FROM is not allowed")
    name, alias = node.name, node.alias or node.name
    if not node.db and name.lower() in context.named:
        found = context.named[name.lower()]
    else:
        found = _scan(node, fold_alias(alias), context)
        if not renamed:
            return found
    return rename_fields(rename_columns(found, renamed, scope, node), alias)


def _scan(node: exp.Table, alias: str, context: Context) -> Relation:
    scope, name = context.scope(()), node.name
    named = {t.name.lower(): t for t in reversed(context.tables)}
    table, dotted = named.get(name.lower()), named.get(f"{node.db}.{name}".lower())
    if dotted is not None and not node.catalog and (table is None or node.db not in SCHEMAS):
        table = dotted
    elif table is None or node.db not in SCHEMAS or node.catalog:
        known = [t.name for t in context.tables] + list(context.named)
        if table is not None:
            where = f"database '{node.catalog}'" if node.catalog else f"schema '{node.db}'"
            raise scope.refusal(node, f"there is no {where}", remedy=f"Write {table.name} alone")
        asked = ".".join(part for part in (node.catalog, node.db, name) if part)
        raise scope.refusal(node, f"there is no table '{asked}'", expected="The tables are " + ", ".join(sorted(known)),
                            remedy=nearest(name, known), unknown="table")  # fmt: skip
    if table.edges is not None:
        raise scope.refusal(node, f"the rows of '{name}' are edges of a network: one node has rows in two columns",
                            expected="Statistics of networks: deniable network, or Curator.network")  # fmt: skip
    steps = table.unit.via if table.unit is not None else ()
    open_tables = {each.name: each for each in context.tables}
    if any(step.table not in open_tables for step in steps):
        raise scope.refusal(
            node, f"whose rows those of '{name}' are is said by a table that is not open to this analyst"
        )
    return scan_table(table, alias, tuple(open_tables[step.table] for step in steps))


def rename_columns(relation: Relation, names: list[str], scope: Scope, node: exp.Expression) -> Relation:
    """The relation with other names for its columns, as in `AS t (a, b)`; as it is where none are given."""
    if not names:
        return relation
    if len(names) > len(relation.fields):
        raise scope.refusal(node, f"{len(names)} names are given for {len(relation.fields)} columns")
    all_names = [*names, *(each.name for each in relation.fields[len(names) :])]
    projections = tuple(
        (name, ColumnRef(each.name, each.facts)) for name, each in zip(all_names, relation.fields, strict=True)
    )
    fields = tuple(Field(name, expression.facts) for name, expression in projections)
    if is_private(relation):
        return Transform(relation, projections, None, fields)
    return PublicSelect(relation, projections, None, fields)


def _connect(
    sources: list[Relation],
    conditions: list[exp.Expression],
    taken: list[exp.Expression],
    node: exp.Expression,
    context: Context,
) -> Relation:
    """The inner join of all sources; the conditions that it uses are noted as taken."""
    waiting = sorted(sources, key=lambda each: not is_private(each)) if len(sources) > 1 else list(sources)
    relation = waiting.pop(0)
    while waiting:
        found = next((each for each in waiting if _find_pairs(relation, each, conditions, context)[1]), None)
        if found is None:
            raise _refuse_unconnected(relation, waiting, conditions, node, context)
        waiting = [each for each in waiting if each is not found]
        used, pairs = _find_pairs(relation, found, conditions, context)
        taken += used
        relation = join_inner(relation, found, pairs, node, context)
    return relation


def _find_pairs(
    left: Relation, right: Relation, conditions: list[exp.Expression], context: Context
) -> tuple[list[exp.Expression], tuple[Pair, ...]]:
    """The equalities that connect two relations; none where both are private and do not meet on the unit."""
    context.clauses.refuse_late()
    scopes = context.scope(left.fields), context.scope(right.fields)
    found = [(each, pair) for each in conditions if (pair := _try_pair(each, *scopes)) is not None]
    pairs = tuple(dict.fromkeys(pair for _, pair in found))
    if is_private(left) and is_private(right) and not any(meet_on_unit(left, right, pair) for pair in pairs):
        return [], ()
    return [each for each, _ in found], pairs


def _try_pair(condition: exp.Expression, left: Scope, right: Scope) -> Pair | None:
    """An equality with one side in each relation, or None."""
    if not isinstance(condition, exp.EQ) or condition.find(exp.Select) is not None:
        return None
    for one, other in ((condition.this, condition.expression), (condition.expression, condition.this)):
        try:
            pair = bind_expression(one, left), bind_expression(other, right)
        except QueryRefused:
            continue
        if bool(columns_of(pair[0])) is bool(columns_of(pair[1])):
            _check_pair(condition, pair, left)
            return pair
    return None


def _check_pair(node: exp.Expression, pair: Pair, scope: Scope) -> None:
    if all(side.facts.opaque for side in pair):
        return
    try:
        call("eq", *pair)
    except Mismatch as mismatch:
        raise scope.refusal(node, f"the join condition {mismatch}") from None


def _refuse_unconnected(
    left: Relation,
    waiting: list[Relation],
    conditions: list[exp.Expression],
    node: exp.Expression,
    context: Context,
) -> QueryRefused:
    """Why no further source can be joined: the first that is wrong with its conditions, or that it has none."""
    everything = context.scope((*left.fields, *(each for right in waiting for each in right.fields)))
    for condition in conditions:
        if condition.find(exp.Select) is None:
            bind_expression(condition, everything)
    scopes = [(context.scope(left.fields), context.scope(each.fields), each) for each in waiting]
    people = [each for one, other, each in scopes if any(_try_pair(c, one, other) for c in conditions)]
    if people and is_private(left) and is_private(people[0]):
        return everything.refusal(
            node,
            "two private tables are joined on something else than the privacy unit",
            expected="ON a.unit = b.unit, with the unit column of each table",
        )
    one = "" if any(map(is_private, (left, *waiting))) else "; one number for all rows is (SELECT SUM(n) FROM a)"
    return everything.refusal(
        node,
        "this join has no condition that equates columns of both sides",
        remedy=f"Write JOIN ... ON a.x = b.x{one}",
    )


def join_inner(
    left: Relation, right: Relation, pairs: tuple[Pair, ...], node: exp.Expression, context: Context
) -> Relation:
    """The inner join of two relations, the private one on the left."""
    if is_private(right) and not is_private(left):
        left, right, pairs = right, left, tuple((b, a) for a, b in pairs)
    by_unit = check_join(left, right, pairs, node, context)
    return build_join(left, right, False, pairs, by_unit)


def check_join(
    left: Relation, right: Relation, pairs: tuple[Pair, ...], node: exp.Expression, context: Context
) -> bool:
    """Refuse a join of rows of different people; whether both sides are private, and meet on the unit."""
    scope = context.scope(left.fields)
    if {each.name for each in left.fields} & {each.name for each in right.fields}:
        raise scope.refusal(node, "two tables of the join have one name", remedy="Give one of them another alias")
    if any(a.facts.opaque is not b.facts.opaque for a, b in pairs):
        raise scope.refusal(node, f"USING {OPAQUE}")
    if not (is_private(left) and is_private(right)):
        return False
    if not any(meet_on_unit(left, right, pair) for pair in pairs):
        raise scope.refusal(node, "two private tables are joined on something else than the privacy unit",
                            expected="ON a.unit = b.unit, with the unit column of each table")  # fmt: skip
    if unlike := compare_ids(left, right):
        # As one type for both, large numbers that differ would be equal: one person would meet many.
        raise scope.refusal(node, f"the sides of the join {unlike}", remedy=ONE_TYPE)
    return True


def _bind_outer(left: Relation, join: exp.Join, side: str, context: Context) -> Relation:
    """LEFT JOIN; RIGHT JOIN, which is one from the other side; FULL JOIN of two private relations."""
    right = bind_source(join.this, context)
    if side == "RIGHT":
        left, right = right, left
    scope = context.scope(left.fields)
    if is_private(right) and not is_private(left):
        raise scope.refusal(
            join,
            f"a public table cannot be {side} JOINed with private rows",
            remedy="Write private JOIN public: groups of the public table appear all the same",
        )
    if side == "FULL" and not (is_private(left) and is_private(right)):
        raise scope.refusal(join, "FULL JOIN takes two private tables here", remedy="Write LEFT JOIN or JOIN")
    pairs, right = _bind_outer_conditions(join, left, right, side, context)
    by_unit = check_join(left, right, pairs, join, context)
    return build_join(left, right, True, pairs, by_unit, full=side == "FULL")


def _bind_outer_conditions(
    join: exp.Join, left: Relation, right: Relation, side: str, context: Context
) -> tuple[tuple[Pair, ...], Relation]:
    """The equalities of an outer join, and its right side with what ON demands of that side alone."""
    scopes, pairs = (context.scope(left.fields), context.scope(right.fields)), list[Pair]()
    if not _list_conditions(join):
        raise scopes[0].refusal(join, "this join has no condition", remedy="Write JOIN ... ON a.x = b.x")
    for condition in _list_conditions(join):
        pair = _try_pair(condition, *scopes)
        if pair is not None:
            pairs.append(pair)
            continue
        # Refuses a name that is not there, before it is said that the form is not taken.
        bind_expression(condition, context.scope((*left.fields, *right.fields)))
        try:
            predicate = bind_expression(condition, scopes[1])
        except QueryRefused:
            predicate = None
        if predicate is None or side == "FULL":
            taken = "equalities" if side == "FULL" else "equalities, and conditions on its other side alone"
            raise scopes[0].refusal(condition, f"{side} JOIN takes {taken}",
                                    remedy="Choose the rows in a sub-query, and join that")  # fmt: skip
        right = filter_rows(right, predicate, condition, context)
    return tuple(pairs), right


def filter_rows(source: Relation, predicate: Expression, node: exp.Expression, context: Context) -> Relation:
    """The rows that satisfy a condition, with the fields of `source`."""
    if predicate.facts.kind.value not in ("boolean", "null"):
        raise context.scope(source.fields).refusal(node, "WHERE takes a condition", remedy=COMPARE)
    keep = tuple((field.name, ColumnRef(field.name, field.facts)) for field in source.fields)
    if is_private(source):
        return Transform(source, keep, predicate, source.fields)
    return PublicSelect(source, keep, predicate, source.fields)


def list_links(context: Context) -> frozenset[tuple[str, str]]:
    """The keys of all tables through which rows lead to a person."""
    return links_of(context.tables)
