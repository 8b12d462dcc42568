"""From relations to SQL of our own making: nothing of the analyst's text is in it, and no value of a row can fail it.

Bounded columns are clamped where they are read, and nulls are decided before clamping: in DuckDB
`greatest(lo, least(hi, NULL))` is `hi`, so a null would count as the maximum.
"""

# ruff: noqa: S608  (statements here are made of our own words, quoted names and quoted literals; no user text)

from __future__ import annotations

import re
from datetime import date, datetime
from fractions import Fraction

from deniable.engines.base import quote
from deniable.errors import InternalError
from deniable.query.expression import (
    Call,
    ColumnRef,
    Expression,
    Facts,
    Kind,
    Literal,
    Value,
    calendar_range,
    from_number,
)
from deniable.query.functions import FUNCTIONS
from deniable.query.relation import (
    ExactAggregate,
    Join,
    Measured,
    Nothing,
    PerUnit,
    PublicSelect,
    Relation,
    Scan,
    Summary,
    Transform,
    Union,
    private,
)
from deniable.query.stability import unit_of

UNIT = '"_unit"'
TYPES = {
    Kind.INTEGER: "BIGINT",
    Kind.DECIMAL: "DOUBLE",
    Kind.TEXT: "VARCHAR",
    Kind.BOOLEAN: "BOOLEAN",
    Kind.DATE: "DATE",
    Kind.DATETIME: "TIMESTAMP",
    Kind.NULL: "VARCHAR",
}
_SLOT = re.compile(r"\{(, )?(n|int)?(\*|rest|case|\d+)\}")


def value(value: Value) -> str:
    """A public value as an SQL literal of its exact type."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case str():
            return "'" + value.replace("'", "''") + "'"
        case datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case int():
            return f"CAST({value} AS BIGINT)"
        case Fraction():
            return f"CAST({float(value)!r} AS DOUBLE)"
        case _:
            raise InternalError(f"a {type(value).__name__} cannot be written as SQL")


def expression(tree: Expression, side: str = "") -> str:
    """One expression over the fields of the relation below it; `side` names that relation where there are two."""
    match tree:
        case ColumnRef(name):
            return side + quote(name)
        case Literal(held):
            return value(held)
        case Call("case", arguments):
            return _case([expression(argument, side) for argument in arguments])
        case Call(name, arguments):
            written = [expression(argument, side) for argument in arguments]
            if name in ("add", "subtract") and arguments[0].facts.kind is Kind.DATE:
                return _dates(name, arguments, written)
            if name == "cast_text" and arguments[0].facts.kind is Kind.INTEGER:
                # Arithmetic ran in DOUBLE, where 5 would be written 5.0.
                written = [f"TRY_CAST({written[0]} AS BIGINT)"]
            return _SLOT.sub(lambda match: _fill(match, written), FUNCTIONS[name].template)


def _fill(match: re.Match[str], written: list[str]) -> str:
    comma, form, which = match.groups()
    if which == "*":
        return ", ".join(written)
    if which == "rest":
        return ", ".join(written[1:])
    if int(which) >= len(written):
        return ""
    text = written[int(which)]
    shaped = {"n": f"CAST({text} AS DOUBLE)", "int": f"TRY_CAST({text} AS INTEGER)"}.get(form or "", text)
    return (comma or "") + shaped


def _case(parts: list[str]) -> str:
    branches = " ".join(f"WHEN {parts[i]} THEN {parts[i + 1]}" for i in range(0, len(parts) - 1, 2))
    return f"(CASE {branches} ELSE {parts[-1]} END)"


def _dates(name: str, arguments: tuple[Expression, ...], written: list[str]) -> str:
    left, right = written
    if arguments[1].facts.kind is Kind.DATE:
        return f"date_diff('day', {right}, {left})"
    # A small number of days cannot lead out of what DATE and TIMESTAMP hold, however many moves follow each other.
    return f"({left} {'+' if name == 'add' else '-'} TRY_CAST({right} AS SMALLINT))"


def key(tree: Expression) -> str:
    """A group key in one type and one spelling for equal values, so that it meets the listed public keys."""
    text, facts = expression(tree), tree.facts
    match facts.kind:
        case Kind.INTEGER | Kind.DECIMAL if facts.domain is None and facts.step not in (None, 1) and facts.bounded:
            assert facts.step is not None
            whole, parts = facts.step.numerator, facts.step.denominator
            exactly = f"(round(CAST({text} AS DOUBLE) * {parts}.0 / {whole}) * {whole} / {parts}.0)"
            return f"TRY_CAST({exactly} AS {TYPES[facts.kind]})"
        case Kind.INTEGER:
            return f"TRY_CAST({text} AS BIGINT)"
        case Kind.DECIMAL:
            return f"NULLIF(CAST({text} AS DOUBLE), CAST('NaN' AS DOUBLE))"
        case Kind.DATE | Kind.DATETIME if not isinstance(tree, ColumnRef):
            return _in_calendar(text, facts.kind)
        case _:
            return text


def _in_calendar(text: str, kind: Kind) -> str:
    first, last = (value(from_number(kind, end)) for end in calendar_range(kind))
    return f"(CASE WHEN {text} BETWEEN {first} AND {last} THEN {text} END)"


def clamped(text: str, facts: Facts) -> str:
    """A column as its declaration promises it: inside its bounds, or one of its categories, or null."""
    if facts.kind is Kind.DATETIME:
        text = f"TRY_CAST({text} AS TIMESTAMP)"
    if facts.domain is not None:
        return f"(CASE WHEN {text} IN ({', '.join(value(v) for v in facts.domain)}) THEN {text} END)"
    if facts.lower is None or facts.upper is None:
        return _in_calendar(text, facts.kind) if facts.kind in (Kind.DATE, Kind.DATETIME) else text
    low, high = value(from_number(facts.kind, facts.lower)), value(from_number(facts.kind, facts.upper))
    return f"(CASE WHEN {text} IS NULL THEN NULL ELSE greatest({low}, least({high}, {text})) END)"


def relation(tree: Relation) -> str:
    """A relation as a SELECT statement. Private relations carry their unit in a column of its own."""
    match tree:
        case Scan():
            return _scan(tree)
        case Transform(source, projections, predicate):
            columns = [*(f"{expression(e)} AS {quote(name)}" for name, e in projections), *_carried(tree)]
            return f"SELECT {', '.join(columns)} FROM {below(source)}{_where(predicate)}"
        case Join():
            return _join(tree)
        case Union(inputs, fields):
            return " UNION ALL ".join(_side(side, [field.name for field in fields]) for side in inputs)
        case PerUnit(source, keys, aggregates):
            written = [*(f"{expression(e)} AS {quote(name)}" for name, e in keys), UNIT]
            places = ", ".join(str(i + 1) for i in range(len(written)))
            written += [f"{exact(aggregate)} AS {quote(name)}" for name, aggregate in aggregates]
            return f"SELECT {', '.join(written)} FROM {below(source)} WHERE {UNIT} IS NOT NULL GROUP BY {places}"
        case PublicSelect():
            return _public(tree)
        case Measured(name=name, fields=fields):
            return f"SELECT {', '.join(quote(field.name) for field in fields)} FROM {quote(name)}"
        case Nothing():
            return "SELECT 1"


def below(tree: Relation) -> str:
    """A relation as something to select from."""
    return f"({relation(tree)}) AS t"


def _carried(tree: Relation) -> list[str]:
    return [UNIT] if private(tree) and not unit_of(tree).is_row else []


def _where(predicate: Expression | None) -> str:
    return f" WHERE {expression(predicate)}" if predicate is not None else ""


def _scan(tree: Scan) -> str:
    columns = [
        f"{clamped(quote(column.name), field.facts)} AS {quote(field.name)}"
        for column, field in zip(tree.table.columns, tree.fields, strict=True)
    ]
    if not tree.table.public and tree.table.unit is not None and tree.table.unit.column:
        columns.append(f"{quote(tree.table.unit.column)} AS {UNIT}")
    return f"SELECT {', '.join(columns) or '1'} FROM {quote(tree.table.name)}"


def _side(side: Relation, names: list[str]) -> str:
    columns = [f"{quote(field.name)} AS {quote(name)}" for field, name in zip(side.fields, names, strict=True)]
    return f"SELECT {', '.join([*columns, *_carried(side)])} FROM {below(side)}"


def _join(tree: Join) -> str:
    columns = [f"l.{quote(field.name)}" for field in tree.left.fields]
    columns += [f"r.{quote(field.name)}" for field in tree.right.fields]
    columns += [f"l.{unit}" for unit in _carried(tree.left)]
    pairs = [f"({expression(a, 'l.')} = {expression(b, 'r.')})" for a, b in tree.on]
    if tree.by_unit:
        pairs.append(f"(l.{UNIT} = r.{UNIT})")
    right = relation(tree.right)
    if private(tree.left) and unit_of(tree.left).is_row and not private(tree.right):
        # A row unit has no id to bound by, so the public side gives at most one match for each join key.
        keys = ", ".join(expression(b) for _, b in tree.on)
        every = ", ".join(quote(field.name) for field in tree.right.fields)
        right = f"SELECT DISTINCT ON ({keys}) * FROM ({right}) AS t ORDER BY {keys}, {every}"
    kind = "LEFT JOIN" if tree.outer else "JOIN"
    return (
        f"SELECT {', '.join(columns)} FROM ({relation(tree.left)}) AS l {kind} ({right}) AS r ON {' AND '.join(pairs)}"
    )


def exact(aggregate: ExactAggregate) -> str:
    """An exact aggregate: over one unit's own rows, or over public rows."""
    condition = f" FILTER (WHERE {expression(aggregate.condition)})" if aggregate.condition is not None else ""
    if aggregate.argument is None:
        return f"count(*){condition}"
    argument = expression(aggregate.argument)
    match aggregate.summary:
        case Summary.COUNT:
            return f"count({argument}){condition}"
        case Summary.DISTINCT:
            return f"count(DISTINCT {argument}){condition}"
        case Summary.SUM | Summary.AVG:
            return f"{aggregate.summary}(CAST({argument} AS DOUBLE)){condition}"
        case _:
            return f"{aggregate.summary}({argument}){condition}"


def _public(tree: PublicSelect) -> str:
    source = below(tree.input)
    predicate = tree.predicate
    if tree.grouped:
        inner = [f"{expression(e)} AS {quote(name)}" for name, e in tree.keys]
        inner += [f"{exact(aggregate)} AS {quote(name)}" for name, aggregate in tree.aggregates]
        places = ", ".join(str(i + 1) for i in range(len(tree.keys)))
        grouping = f" GROUP BY {places}" if tree.keys else ""
        source = f"(SELECT {', '.join(inner) or '1'} FROM {source}{grouping}) AS t"
    columns = ", ".join(f"{_typed(e)} AS {quote(name)}" for name, e in tree.projections)
    text = f"SELECT {'DISTINCT ' if tree.distinct else ''}{columns or '1'} FROM {source}{_where(predicate)}"
    if tree.order:
        text += " ORDER BY " + ", ".join(
            f"{expression(e)} {'DESC' if down else 'ASC'} NULLS LAST" for e, down in tree.order
        )
    if tree.limit is not None:
        text += f" LIMIT {tree.limit}"
    if tree.offset:
        text += f" OFFSET {tree.offset}"
    return text


def _typed(tree: Expression) -> str:
    """A result column in the type that its facts promise (arithmetic ran in DOUBLE)."""
    written = expression(tree)
    if isinstance(tree, Call) and tree.facts.kind is Kind.INTEGER:
        return f"TRY_CAST({written} AS BIGINT)"
    return written
