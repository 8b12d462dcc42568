"""From relations to SQL of our own making: nothing of the analyst's text is in it, and no value of a row can fail it.

Bounded columns are clamped where they are read, and nulls are decided before clamping: in DuckDB
`greatest(lo, least(hi, NULL))` is `hi`, so a null would count as the maximum. NaN is null, where a column is read and
where arithmetic could make it.

**Exact.** A float may decide something about one row, computed from that row alone. What is computed from several rows
of a person is a function of the set of these rows, whatever their order, the plan and the threads: sums and averages
are added as whole numbers of a public step, and their value is the DOUBLE next to the exact result as long as the
whole number is below 2^53. Zero has one sign where values are compared with each other (keys, MIN, MAX).
"""

# ruff: noqa: S608  (statements here are made of our own words, quoted names and quoted literals; no user text)

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from fractions import Fraction
from itertools import pairwise

from deniable.engines.base import quote
from deniable.errors import InternalError
from deniable.query.algebra.expression import (
    Call,
    ColumnRef,
    Expression,
    Facts,
    Kind,
    Literal,
    Value,
    calendar_range,
    from_number,
    literal,
    to_number,
)
from deniable.query.algebra.functions import ARITHMETIC, FUNCTIONS, may_be_nan
from deniable.query.algebra.intervals import MOST_STEPS
from deniable.query.algebra.relation import (
    IN_CALENDAR,
    ExactAggregate,
    Join,
    Measured,
    Nothing,
    Ordering,
    PerUnit,
    PublicSelect,
    Relation,
    Scan,
    Summary,
    Transform,
    Union,
    Window,
    has_one_row,
    is_private,
    unit_of,
)

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
NAN, INFINITY = "CAST('NaN' AS DOUBLE)", "CAST('Infinity' AS DOUBLE)"
EVERY, LEFT, RIGHT, LARGE, KEY = (quote(name) for name in ("#every", "#left", "#right", "#large", "#key"))
"""Names inside a join that no table of a policy can have."""
OWNER = f"o.{UNIT} AS {UNIT}"
_SLOT = re.compile(r"\{(, )?(n|int)?(\*|rest|case|\d+)\}")


def render_value(value: Value) -> str:
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
        case int() if abs(value) < 1 << 63:
            return f"CAST({value} AS BIGINT)"
        case int():  # the bounds of a product, say, which is computed in DOUBLE
            return f"CAST({float(value)!r} AS DOUBLE)"
        case Fraction():
            return f"CAST({float(value)!r} AS DOUBLE)"
        case _:
            raise InternalError(f"a {type(value).__name__} cannot be written as SQL")


WHOLE_REST = "CAST((TRY_CAST({0} AS DECIMAL(22, 0)) % NULLIF(TRY_CAST({1} AS DECIMAL(22, 0)), 0)) AS DOUBLE)"
"""A rest of whole numbers: exact in every engine, and null from 10^22 on, where not all of them have such numbers."""


def render_expression(tree: Expression, side: str = "") -> str:
    """One expression over the fields of the relation below it; `side` names that relation where there are two."""
    text = _render_parts(tree, side)
    return f"NULLIF({text}, {NAN})" if may_be_nan(tree) else text


def _render_argument(tree: Expression, side: str, above: str) -> str:
    """An argument; inside arithmetic NaN may pass, since it is made null where the arithmetic ends."""
    if tree.facts.kind is Kind.NULL:  # of no type: a column of nulls alone would be a text in some engines
        return "NULL"
    return _render_parts(tree, side) if above in ARITHMETIC else render_expression(tree, side)


def _render_parts(tree: Expression, side: str) -> str:
    match tree:
        case ColumnRef(name):
            return side + quote(name)
        case Literal(held):
            return render_value(held)
        case Call("case", arguments):
            return _render_case([_render_argument(argument, side, "case") for argument in arguments])
        case Call(name, arguments):
            written = [_render_argument(argument, side, name) for argument in arguments]
            if name in ("add", "subtract") and arguments[0].facts.kind is Kind.DATE:
                return _render_dates(name, arguments, written)
            if name == "cast_text" and arguments[0].facts.kind is Kind.INTEGER:
                # Arithmetic ran in DOUBLE, where 5 would be written 5.0.
                written = [f"TRY_CAST({written[0]} AS BIGINT)"]
            if name in ("starts_with", "ends_with") and arguments[1] == literal(""):
                # DuckDB 2.0.0 gives true here where a column inside the text is not null and the text itself is.
                return f"(CASE WHEN {written[0]} IS NOT NULL THEN TRUE END)"
            template = WHOLE_REST if name == "modulo" and tree.facts.kind is Kind.INTEGER else FUNCTIONS[name].template
            text = _SLOT.sub(lambda match: _fill_slot(match, written), template)
            # A text can name a date that functions of dates fail on, and a date can be moved to one.
            return _render_in_calendar(text, tree.facts.kind) if name in IN_CALENDAR[2:] else text


def _fill_slot(match: re.Match[str], written: list[str]) -> str:
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


def _render_case(parts: list[str]) -> str:
    branches = " ".join(f"WHEN {parts[i]} THEN {parts[i + 1]}" for i in range(0, len(parts) - 1, 2))
    return f"(CASE {branches} ELSE {parts[-1]} END)"


def _render_dates(name: str, arguments: tuple[Expression, ...], written: list[str]) -> str:
    left, right = written
    if arguments[1].facts.kind is Kind.DATE:
        return f"date_diff('day', {right}, {left})"
    # A small number of days cannot lead out of what DATE holds; a date that leads out of the calendar is null.
    return _render_in_calendar(f"({left} {'+' if name == 'add' else '-'} TRY_CAST({right} AS SMALLINT))", Kind.DATE)


def render_key(tree: Expression) -> str:
    """A group key in one type and one spelling for equal values, so that it meets the listed public keys."""
    text, facts = render_expression(tree), tree.facts
    match facts.kind:
        case Kind.INTEGER | Kind.DECIMAL if facts.domain is None and facts.step not in (None, 1) and facts.bounded:
            assert facts.step is not None
            whole, parts = facts.step.numerator, facts.step.denominator
            steps = f"round({_render_ratio(f'CAST({text} AS DOUBLE)', parts, whole)})"
            return f"TRY_CAST(({_render_ratio(steps, whole, parts)} + 0) AS {TYPES[facts.kind]})"
        case Kind.INTEGER:
            return f"TRY_CAST({text} AS BIGINT)"
        case Kind.DECIMAL:
            return f"(NULLIF(CAST({text} AS DOUBLE), {NAN}) + 0)"
        case Kind.DATE | Kind.DATETIME if not isinstance(tree, ColumnRef):
            return _render_in_calendar(text, facts.kind)
        case _:
            return text


def _render_in_calendar(text: str, kind: Kind) -> str:
    first, last = (render_value(from_number(kind, end)) for end in calendar_range(kind))
    return f"(CASE WHEN {text} BETWEEN {first} AND {last} THEN {text} END)"


LISTED, MOST_LISTED = 4, 32
"""How many values a list has at most where a column has few categories: DuckDB makes a join of a longer list, which it
carries out for columns that are not used too, and which takes it exponential time beside many conditions."""


def _render_listed(text: str, values: Sequence[str]) -> str:
    size = LISTED if len(values) <= MOST_LISTED else len(values)
    parts = [f"{text} IN ({', '.join(values[start : start + size])})" for start in range(0, len(values), size)]
    return parts[0] if len(parts) == 1 else f"({' OR '.join(parts) or 'FALSE'})"


def render_clamped(text: str, facts: Facts) -> str:
    """A column as its declaration promises it: inside its bounds, or one of its categories, or null."""
    if facts.kind is Kind.DATETIME:
        text = f"TRY_CAST({text} AS TIMESTAMP)"
    if facts.domain is not None:
        return f"(CASE WHEN {_render_listed(text, [render_value(each) for each in facts.domain])} THEN {text} END)"
    if facts.kind is Kind.TEXT and facts.longest is not None:
        # Bytes are at least as many as characters, and are known without reading the text.
        return f"(CASE WHEN strlen({text}) <= {facts.longest} THEN {text} ELSE left({text}, {facts.longest}) END)"
    if facts.lower is None or facts.upper is None:
        if facts.kind is Kind.DECIMAL:
            return f"NULLIF(CAST({text} AS DOUBLE), {NAN})"
        return _render_in_calendar(text, facts.kind) if facts.kind in (Kind.DATE, Kind.DATETIME) else text
    low, high = render_value(from_number(facts.kind, facts.lower)), render_value(from_number(facts.kind, facts.upper))
    # NaN is above infinity, so that one comparison leaves out both NaN and null.
    there = f"{text} <= {INFINITY}" if facts.kind is Kind.DECIMAL else f"{text} IS NOT NULL"
    return f"(CASE WHEN {there} THEN greatest({low}, least({high}, {text})) END)"


def render_relation(tree: Relation) -> str:
    """A relation as a SELECT statement. Private relations carry their unit in a column of its own."""
    match tree:
        case Scan():
            return _render_scan(tree)
        case Transform(source, projections, predicate):
            columns = [*(f"{render_expression(e)} AS {quote(name)}" for name, e in projections), *_unit_columns(tree)]
            return f"SELECT {', '.join(columns)} FROM {render_source(source)}{_render_where(predicate)}"
        case Join():
            return _render_join(tree)
        case Union(inputs, fields):
            return " UNION ALL ".join(_render_side(side, [field.name for field in fields]) for side in inputs)
        case PerUnit(source, keys, aggregates):
            written = [*(f"{_render_settled(e)} AS {quote(name)}" for name, e in keys), UNIT]
            places = ", ".join(str(i + 1) for i in range(len(written)))
            written += [f"{render_exact_aggregate(aggregate)} AS {quote(name)}" for name, aggregate in aggregates]
            return (
                f"SELECT {', '.join(written)} FROM {render_source(source)} WHERE {UNIT} IS NOT NULL GROUP BY {places}"
            )
        case PublicSelect():
            return _render_public_select(tree)
        case Measured(name=name, fields=fields):
            return f"SELECT {', '.join(quote(field.name) for field in fields)} FROM {quote(name)}"
        case Nothing():
            return "SELECT 1"


def render_source(tree: Relation) -> str:
    """A relation as something to select from."""
    return f"({render_relation(tree)}) AS t"


def _unit_columns(tree: Relation) -> list[str]:
    return [UNIT] if is_private(tree) and not unit_of(tree).is_row else []


def _render_where(predicate: Expression | None) -> str:
    return f" WHERE {render_expression(predicate)}" if predicate is not None else ""


def _render_scan(tree: Scan) -> str:
    columns = [
        f"{render_clamped(quote(column.name), field.facts)} AS {quote(field.name)}"
        for column, field in zip(tree.table.columns, tree.fields, strict=True)
    ]
    if tree.owners:
        return f"SELECT {', '.join([*columns, OWNER])} FROM {_render_owned(tree)}"
    if not tree.table.public and tree.table.unit is not None and tree.table.unit.column:
        columns.append(f"{quote(tree.table.unit.column)} AS {UNIT}")
    return f"SELECT {', '.join(columns) or '1'} FROM {quote(tree.table.name)}"


def _render_owned(tree: Scan) -> str:
    """A table with the owner of each row, found by the steps of its unit.

    A row counts once for each person that it leads to, so that whoever is added to the tables of owners brings rows of
    her own and takes none from others.
    """
    unit, last = tree.table.unit, tree.owners[-1].unit
    assert unit is not None
    assert last is not None
    assert last.column is not None
    owner, key = f"{quote(last.column)} AS {UNIT}", unit.via[-1].key
    owners = f"SELECT DISTINCT {quote(key)} AS {KEY}, {owner} FROM {quote(tree.owners[-1].name)}"
    for link, step, table in zip(unit.via[-2::-1], unit.via[:0:-1], tree.owners[-2::-1], strict=True):
        below = f"{quote(table.name)} AS l JOIN ({owners}) AS o ON l.{quote(step.column)} = o.{KEY}"
        owners = f"SELECT DISTINCT l.{quote(link.key)} AS {KEY}, o.{UNIT} FROM {below}"
    return f"{quote(tree.table.name)} JOIN ({owners}) AS o ON {quote(unit.via[0].column)} = {KEY}"


def _render_side(side: Relation, names: list[str]) -> str:
    columns = [f"{quote(field.name)} AS {quote(name)}" for field, name in zip(side.fields, names, strict=True)]
    return f"SELECT {', '.join([*columns, *_unit_columns(side)])} FROM {render_source(side)}"


def _render_join(tree: Join) -> str:
    columns = [f"l.{quote(field.name)}" for field in tree.left.fields]
    columns += [f"r.{quote(field.name)}" for field in tree.right.fields]
    columns += [_render_unit_of_both(tree) for _ in _unit_columns(tree.left)]
    pairs = [f"({_render_match(a, b, 'l.')} = {_render_match(b, a, 'r.')})" for a, b in tree.on]
    if tree.by_unit:
        pairs.append(f"(l.{UNIT} = r.{UNIT})")
    right = render_relation(tree.right)
    if is_private(tree.left) and not is_private(tree.right):
        # Different keys may be one in the type that they are compared in: a single match is made sure of here.
        right = _render_few_matches(right, tree, 1 if tree.single or unit_of(tree.left).is_row else tree.fan_out)
    kind = "FULL JOIN" if tree.full else "LEFT JOIN" if tree.outer else "JOIN"
    left, on = render_relation(tree.left), " AND ".join(pairs) or "TRUE"
    if tree.by_unit and not (tree.single or has_one_row(tree.left) or has_one_row(tree.right)):
        sides = f"{LEFT} AS l {kind} {RIGHT} AS r ON {on}"
        return f"WITH {_render_small_units(left, right, tree.pairs)} SELECT {', '.join(columns)} FROM {sides}"
    return f"SELECT {', '.join(columns)} FROM ({left}) AS l {kind} ({right}) AS r ON {on}"


def _render_unit_of_both(tree: Join) -> str:
    """The unit of a joined row; where both sides may lack a match, whichever side is there."""
    return f"COALESCE(l.{UNIT}, r.{UNIT}) AS {UNIT}" if tree.full else f"l.{UNIT}"


def _render_match(tree: Expression, other: Expression, side: str = "") -> str:
    """A side of a join's equality, in one type for both sides: what are different keys are never compared as one."""
    text, kinds = render_expression(tree, side), {tree.facts.kind, other.facts.kind}
    if kinds == {Kind.INTEGER}:
        return f"TRY_CAST({text} AS BIGINT)"  # arithmetic ran in DOUBLE, which takes large whole numbers together
    return f"CAST({text} AS DOUBLE)" if kinds <= {Kind.INTEGER, Kind.DECIMAL} else text


def _render_few_matches(right: str, tree: Join, most: int) -> str:
    """A public side with at most so many rows for each key: a row unit has no id to bound by, and meets one of them.

    Rows are counted in the order of all their values, so that the same ones are kept each time.
    """
    keys = ", ".join(_render_match(b, a) for a, b in tree.on)
    every = ", ".join(quote(field.name) for field in tree.right.fields)
    by = f"PARTITION BY {keys} " if keys else ""
    rank = f"row_number() OVER ({by}ORDER BY {every or '1'})"
    return f"SELECT * FROM ({right}) AS t QUALIFY {rank} <= {most}"


def _render_small_units(left: str, right: str, pairs: int) -> str:
    """Both sides of a join of people's rows, without units that would meet themselves in too many pairs of rows.

    A unit with a hundred thousand rows on both sides would make ten thousand million rows: it alone would decide how
    long the question takes. Who is left out follows from that unit's own rows, so it moves nobody else.
    """
    many = [f"SELECT {UNIT}, count(*) AS n FROM {side} GROUP BY 1 HAVING count(*) > 1" for side in (EVERY, RIGHT)]
    large = (
        f"SELECT x.{UNIT} FROM ({many[0]}) AS x JOIN ({many[1]}) AS y ON x.{UNIT} = y.{UNIT} "
        f"WHERE CAST(x.n AS HUGEINT) * y.n > {pairs}"
    )
    kept = f"SELECT e.* FROM {EVERY} AS e ANTI JOIN {LARGE} AS s ON e.{UNIT} = s.{UNIT}"
    return f"{EVERY} AS ({left}), {RIGHT} AS ({right}), {LARGE} AS ({large}), {LEFT} AS ({kept})"


def render_exact_aggregate(aggregate: ExactAggregate) -> str:
    """An exact aggregate: over one unit's own rows, or over public rows."""
    condition = f" FILTER (WHERE {render_expression(aggregate.condition)})" if aggregate.condition is not None else ""
    if aggregate.argument is None:
        return f"count(*){condition}"
    argument = render_expression(aggregate.argument)
    match aggregate.summary:
        case Summary.COUNT:
            return f"count({argument}){condition}"
        case Summary.DISTINCT:
            return f"count(DISTINCT {argument}){condition}"
        case Summary.SUM | Summary.AVG if aggregate.step is not None:
            return _render_sum_of_steps(aggregate, condition)
        case Summary.SUM | Summary.AVG:
            # Public rows: added in the order of their values, so that the result is the same each time.
            number = f"CAST({argument} AS DOUBLE)"
            return f"{aggregate.summary}({number} ORDER BY {number}){condition}"
        case _:
            return f"{aggregate.summary}({_render_settled(aggregate.argument)}){condition}"


def _render_sum_of_steps(aggregate: ExactAggregate, condition: str) -> str:
    """A sum or an average on its grid: whole numbers are added, and divided once at the end."""
    assert aggregate.argument is not None
    assert aggregate.step is not None
    over, under = aggregate.step.numerator, aggregate.step.denominator
    whole = _render_whole_steps(aggregate.argument, aggregate.step)
    total = f"CAST(sum({whole}){condition} AS DOUBLE)"
    if aggregate.summary is Summary.SUM:
        return _render_ratio(total, over, under)
    count = f"CAST(count({whole}){condition} AS DOUBLE)"
    return f"({_render_ratio(total, over, 1)} / {_render_ratio(count, under, 1)})"


def _render_whole_steps(argument: Expression, step: Fraction) -> str:
    """A row's value in whole steps; null stays null."""
    number = f"CAST({render_expression(argument)} AS DOUBLE)"
    steps = f"round({_render_ratio(number, step.denominator, step.numerator)})"
    if argument.facts.bounded and not may_be_nan(argument):
        return f"CAST({steps} AS BIGINT)"  # the step was chosen so that it fits
    within = f"greatest({_render_double(-MOST_STEPS)}, least({_render_double(MOST_STEPS)}, {steps}))"
    # A null is decided first, since the bounds would stand in for it.
    return f"CASE WHEN {number} <= {INFINITY} THEN CAST({within} AS BIGINT) END"


def _render_ratio(text: str, over: int, under: int) -> str:
    """A DOUBLE times a public quotient, rounded at most twice, and not at all by a factor of 1."""
    multiplied = text if over == 1 else f"({text} * {_render_double(over)})"
    return multiplied if under == 1 else f"({multiplied} / {_render_double(under)})"


def _render_double(number: int) -> str:
    """A whole number as DOUBLE: a bare 1.0 is a DECIMAL to the engine, which overflows."""
    return f"CAST({float(number)!r} AS DOUBLE)"


def _render_settled(tree: Expression) -> str:
    """A value that is compared with those of other rows: zero has one sign, so that equal values are one value."""
    text = render_expression(tree)
    return f"({text} + 0)" if tree.facts.kind in (Kind.INTEGER, Kind.DECIMAL) else text


def _render_public_select(tree: PublicSelect) -> str:
    source = render_source(tree.input)
    predicate = tree.predicate
    if tree.grouped:
        inner = [f"{render_expression(e)} AS {quote(name)}" for name, e in tree.keys]
        inner += [f"{render_exact_aggregate(aggregate)} AS {quote(name)}" for name, aggregate in tree.aggregates]
        places = ", ".join(str(i + 1) for i in range(len(tree.keys)))
        grouping = f" GROUP BY {places}" if tree.keys else ""
        source = f"(SELECT {', '.join(inner) or '1'} FROM {source}{grouping}) AS t"
    if tree.windows:
        over = ", ".join(f"{_render_window(window)} AS {quote(name)}" for name, window in tree.windows)
        source, predicate = f"(SELECT *, {over} FROM {source}{_render_where(predicate)}) AS t", tree.qualify
    columns = ", ".join(f"{_render_typed(e)} AS {quote(name)}" for name, e in tree.projections)
    text = f"SELECT {'DISTINCT ' if tree.distinct else ''}{columns or '1'} FROM {source}{_render_where(predicate)}"
    text += _render_order(tree.order)
    if tree.limit is not None:
        text += f" LIMIT {tree.limit}"
    if tree.offset:
        text += f" OFFSET {tree.offset}"
    return text


def _render_order(order: tuple[Ordering, ...]) -> str:
    parts = [
        f"{render_expression(each.expression)} {'DESC' if each.down else 'ASC'} "
        f"NULLS {'FIRST' if each.nulls_first else 'LAST'}"
        for each in order
    ]
    return f" ORDER BY {', '.join(parts)}" if parts else ""


def _render_window(window: Window) -> str:
    """A window over public rows; sums are DOUBLE, and whole where what is added is."""
    arguments = [render_expression(each) for each in window.arguments]
    adds = window.function in ("sum", "avg")
    if adds:
        arguments = [f"CAST({each} AS DOUBLE)" for each in arguments]
    parts = [f"PARTITION BY {', '.join(map(render_expression, window.partition))}"] if window.partition else []
    parts += [_render_order(window.order).strip()] if window.order else []
    called = "*" if window.function == "count" and not arguments else ", ".join(arguments)
    text = f"{window.function}({called}) OVER ({' '.join([*parts, window.frame]).strip()})"
    whole = window.function == "sum" and window.arguments[0].facts.kind is Kind.INTEGER
    return f"TRY_CAST({text} AS BIGINT)" if whole else text


def _render_typed(tree: Expression) -> str:
    """A result column in the type that its facts promise (arithmetic ran in DOUBLE)."""
    written = render_expression(tree)
    if isinstance(tree, Call) and tree.facts.kind is Kind.INTEGER:
        return f"TRY_CAST({written} AS BIGINT)"
    return written


def render_each(values: tuple[Value, ...]) -> str:
    """One row for each value; numbers and days at equal distances as a range, which is no longer for being larger.

    >>> render_each((1, 3, 5, 7)), render_each(("a", "b"))
    ('unnest(range(1, 8, 2))', "unnest(['a', 'b'])")
    """
    numbers = [to_number(value) for value in values if type(value) in (int, date)]
    kinds = {type(value) for value in values}
    step = numbers[1] - numbers[0] if len(numbers) == len(values) > 2 else Fraction(0)
    if step <= 0 or len(kinds) > 1 or any(b - a != step for a, b in pairwise(numbers)):
        return f"unnest([{', '.join(render_value(value) for value in values)}])"
    if kinds == {int}:
        return f"unnest(range({numbers[0]}, {numbers[-1] + 1}, {step}))"
    days = f"unnest(range(0, {numbers[-1] - numbers[0] + 1}, {step}))"
    return f"({render_value(values[0])} + CAST({days} AS INTEGER))"
