"""Group keys: public ones that all appear, and private ones that must pass a noisy threshold.

A key that is shown only because it is in the data is a leak. So a group's key is public only when its values are
listed in the policy or in a public table; then every key appears, with noise, even when nobody has it. Otherwise keys
are private: they are found in the data, and shown only where enough units stand behind them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from deniable.errors import QueryRefused
from deniable.query.algebra.expression import (
    Call,
    ColumnRef,
    Expression,
    Literal,
    Value,
    columns_of,
    count_after,
    split_conjuncts,
    substitute,
)
from deniable.query.algebra.relation import Join, Measured, Relation, Scan, Transform

MOST_CELLS = 10_000_000
MOST_TERMS = 2_000
"""Terms of a key or a predicate, written over the columns of its tables."""


@dataclass(frozen=True, slots=True)
class Listed:
    """One key column with its public values."""

    place: int
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class FromTable:
    """Key columns whose values are the rows of a public table."""

    places: tuple[int, ...]
    table: Scan
    expressions: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class PublicKeys:
    """All combinations of the parts, restricted by what WHERE says of key columns alone."""

    parts: tuple[Listed | FromTable, ...]
    restriction: tuple[Expression, ...] = ()
    """Over the fields k0, k1, ..."""

    @property
    def cells(self) -> int | None:
        """How many groups there are at most, when that is known without reading a public table."""
        total = 1
        for part in self.parts:
            if isinstance(part, FromTable):
                return None
            total *= len(part.values)
        return total


@dataclass(frozen=True, slots=True)
class PrivateKeys:
    """Keys that are found in the data and pass a threshold on the number of units."""

    reason: str


Keys = PublicKeys | PrivateKeys


def keys_of(node: Measured, places: tuple[int, ...]) -> Keys:
    """The keys of one grouping set."""
    base, expressions = _resolve_keys(node)
    parts: list[Listed | FromTable] = []
    for place in places:
        expression = expressions[place]
        found = _find_public(place, expression, base)
        if found is None:
            name = getattr(expression, "name", "an expression").split(".", 1)[-1]
            return PrivateKeys(f"the values of '{name}' are not declared")
        parts.append(found)
    keys = PublicKeys(_merge_tables(parts), _restrict_keys(node, places, expressions))
    if keys.cells is not None and keys.cells > MOST_CELLS:
        return PrivateKeys(f"there are more than {MOST_CELLS:,} combinations of declared values")
    return keys


def _find_public(place: int, expression: Expression, base: Relation) -> Listed | FromTable | None:
    values = expression.facts.values()
    if values is not None:
        return Listed(place, tuple(dict.fromkeys(values)))
    if not expression.facts.public:
        return None
    sources = {_find_public_source(base, name) for name in columns_of(expression)}
    source = sources.pop() if len(sources) == 1 else None
    return FromTable((place,), source, (expression,)) if source is not None else None


def _find_public_source(relation: Relation, name: str) -> Scan | None:
    """The public table a field comes from unchanged."""
    match relation:
        case Scan(table, _, fields):
            return relation if table.public and any(field.name == name for field in fields) else None
        case Join(left, right):
            return _find_public_source(left, name) or _find_public_source(right, name)
        case _:
            return None


def _merge_tables(parts: list[Listed | FromTable]) -> tuple[Listed | FromTable, ...]:
    """Several columns of one public table appear together as that table pairs them."""
    merged: list[Listed | FromTable] = []
    for part in parts:
        twin = next(
            (m for m in merged if isinstance(m, FromTable) and isinstance(part, FromTable) and m.table == part.table),
            None,
        )
        if isinstance(part, FromTable) and isinstance(twin, FromTable):
            both = replace(twin, places=twin.places + part.places, expressions=twin.expressions + part.expressions)
            merged[merged.index(twin)] = both
        else:
            merged.append(part)
    return tuple(merged)


def _resolve_keys(node: Measured) -> tuple[Relation, list[Expression]]:
    """The keys written over the fields below all row-wise transformations."""
    relation, expressions = node.input, [expression for _, expression in node.keys]
    while isinstance(relation, Transform):
        fields = dict(relation.projections)
        if sum(count_after(expression, fields) for expression in expressions) > MOST_TERMS:
            raise QueryRefused("the group keys are made of too many terms", remedy="Compute them in fewer steps")
        expressions = [substitute(expression, fields) for expression in expressions]
        relation = relation.input
    return relation, expressions


def _list_predicates(node: Measured) -> list[Expression]:
    """Everything WHERE demands, over the same fields as `_resolve_keys`."""
    relation, found = node.input, list[Expression]()
    while isinstance(relation, Transform):
        fields = dict(relation.projections)
        # A predicate that grows too large restricts no keys: all that are public appear.
        small = [predicate for predicate in found if count_after(predicate, fields) <= MOST_TERMS]
        found = [substitute(predicate, fields) for predicate in small] + list(split_conjuncts(relation.predicate))
        # A predicate stands below the projections of its own transformation.
        relation = relation.input
    return found


def _restrict_keys(node: Measured, places: tuple[int, ...], expressions: list[Expression]) -> tuple[Expression, ...]:
    names = {expressions[place]: node.keys[place][0] for place in places}
    return tuple(p for predicate in _list_predicates(node) if (p := _rewrite_over_keys(predicate, names)) is not None)


def _rewrite_over_keys(expression: Expression, names: dict[Expression, str]) -> Expression | None:
    """The expression with keys in place of what they stand for; None when it reads anything else."""
    if expression in names:
        return ColumnRef(names[expression], expression.facts)
    match expression:
        case Literal():
            return expression
        case Call(_, arguments):
            inner = [_rewrite_over_keys(argument, names) for argument in arguments]
            if any(argument is None for argument in inner):
                return None
            return replace(expression, arguments=tuple(a for a in inner if a is not None))
        case _:
            return None
