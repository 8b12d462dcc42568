"""Metadata: the columns that an answer will have, the public schema, dummy rows to try code on, and previews.

All of it is public to its asker: it follows from the policy, the ledger and the text of a question. No row of anybody
is read, except of tables that the policy declares public."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deniable.curator.context import Context
from deniable.curator.query.sql import compile_sql
from deniable.errors import BudgetExceeded, ParameterError
from deniable.policy.budget import ZCDP, format_amount
from deniable.policy.schema import Bounds, Column, ColumnType, TableSchema
from deniable.release.record import Record

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.governance.reports import PlainBalance
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.ledger import Balance
    from deniable.policy.budget import Budget
    from deniable.query.explain import AggregatePlan
    from deniable.query.sql.clauses import Value


_PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)
_DAYS = Bounds(date(2020, 1, 1), date(2029, 12, 31))
_MOMENTS = Bounds(datetime(2020, 1, 1), datetime(2029, 12, 31))


def invent_rows(table: TableSchema, rows: int) -> pa.Table:
    """So many invented rows of a table."""
    import pyarrow as pa

    kinds = {
        ColumnType.INTEGER: pa.int64(),
        ColumnType.DECIMAL: pa.float64(),
        ColumnType.BOOLEAN: pa.bool_(),
        ColumnType.DATE: pa.date32(),
        ColumnType.DATETIME: pa.timestamp("us"),
    }
    unit = table.unit.column if table.unit else None
    arrays = {}
    for place, column in enumerate(table.columns):
        values = [_value(column, place, i, column.name == unit) for i in range(rows)]
        kind = pa.string() if column.type is ColumnType.TEXT else kinds[column.type]
        arrays[column.name] = pa.array(values, kind)
    return pa.table(arrays)


def _value(column: Column, place: int, i: int, is_unit: bool) -> Any:
    share = spread_evenly(i, _PRIMES[place % len(_PRIMES)])
    if column.categories:
        chosen = column.categories[int(share * len(column.categories))]
        return str(chosen) if column.type is ColumnType.TEXT else chosen
    if is_unit:
        return i // 2 if column.type is ColumnType.INTEGER else f"{column.name}-{i // 2}"
    match column.type:
        case ColumnType.BOOLEAN:
            return share >= Fraction(1, 2)
        case ColumnType.DATE | ColumnType.DATETIME:
            bounds = column.bounds or (_DAYS if column.type is ColumnType.DATE else _MOMENTS)
            return _moment(bounds, share)
        case ColumnType.INTEGER | ColumnType.DECIMAL:
            return _number(column.bounds or Bounds(0, 100), share, column.type)
        case _:
            return f"{column.name}-{i}"


def spread_evenly(i: int, base: int) -> Fraction:
    """The i-th point of the van der Corput sequence: the digits of i in a base, mirrored at the point.

    >>> [str(spread_evenly(i, 2)) for i in range(4)]
    ['0', '1/2', '1/4', '3/4']
    """
    share, scale = Fraction(0), Fraction(1, base)
    while i:
        i, digit = divmod(i, base)
        share += digit * scale
        scale /= base
    return share


def _number(bounds: Bounds, share: Fraction, kind: ColumnType) -> Any:
    assert not isinstance(bounds.lower, date)
    assert not isinstance(bounds.upper, date)
    low, high = Fraction(bounds.lower), Fraction(bounds.upper)
    steps = int((high - low) / bounds.step)
    value = low + int(share * (steps + 1)) * bounds.step
    return int(value) if kind is ColumnType.INTEGER else float(min(value, high))


def _moment(bounds: Bounds, share: Fraction) -> Any:
    lower, upper = bounds.lower, bounds.upper
    assert isinstance(lower, date)
    assert isinstance(upper, date)
    if isinstance(lower, datetime) and isinstance(upper, datetime):
        return lower + timedelta(seconds=int(share * int((upper - lower).total_seconds())))
    return lower + timedelta(days=int(share * ((upper - lower).days + 1)))


MOST_DUMMIES = 10_000


@dataclass(frozen=True, slots=True)
class AnswerColumn:
    """A column of an answer that is yet to be given: its name, and its type in the words of a policy."""

    name: str
    kind: str


def columns(context: Context, sql: str, asked: Budget | None, *, intervals: bool = False) -> tuple[AnswerColumn, ...]:
    """The columns that the answer to a question will have."""
    from deniable.curator.query.auto_bounds import write_placeholders
    from deniable.query.answers import add_interval_columns

    relation = compile_sql(context, write_placeholders(context, sql, asked), asked).relation
    shown = add_interval_columns(relation) if intervals else relation
    return tuple(AnswerColumn(field.name, _kind(field.facts.kind)) for field in shown.fields)


@dataclass(frozen=True, slots=True, eq=False)
class ExpectedError(Record):
    """How far an aggregate of a question will be from the truth, with 95% confidence, in words that fit beside it."""

    aggregate: str
    words: str


@dataclass(frozen=True, slots=True, eq=False)
class QuestionPreview(Record):
    """What a question would do to the asker's budget, and how exact it would be; nothing is charged.

    `limit`, `left` and `takes` are of the `node` of the budget tree that decides: the one that refuses the question,
    or else has the least left for questions like it. They are in the unit of its limit, or in rho; `stated` is then its
    limit as the policy has it. `fits` is how many questions like it fit, this one among them; None without a limit.
    """

    node: str
    unit: str
    stated: str
    limit: float | None
    left: float | None
    takes: float | None
    fits: int | None
    errors: list[ExpectedError]
    notes: list[str]
    protects: str
    in_words: str


def preview(context: Context, sql: str, asked: Budget | None) -> QuestionPreview:
    """What a question would cost in the unit of the budget, and the error to expect beside each of its numbers."""
    from deniable.curator.governance.reports import state_plainly
    from deniable.curator.query import auto_bounds, batch

    told, balances = auto_bounds.explain(context, sql, asked, batch.recompile), context.balance()
    try:
        event = auto_bounds.find_charge(context, sql, asked, batch.recompile)
        node, takes = _find_least(balances), 0.0
        if event is not None:
            after = state_plainly(context.ledger.foresee_balance(event, *context.path))
            before = state_plainly(balances, [each.unit for each in after])  # a first charge may change the unit
            node, takes = _find_dearest(before, after)
    except BudgetExceeded as refusal:
        node, takes = _find_refusing(balances, refusal, told.cost), None
    errors = [ExpectedError(each.aggregate, _say_error(each)) for each in told.aggregates]
    least = (
        ("", "epsilon", "", None, None) if node is None else (node.node, node.unit, node.stated, node.limit, node.left)
    )
    takes, fits = None if node is None else takes, told.more_like_this
    words = say_preview(node, takes, fits)
    return QuestionPreview(*least, takes, fits, errors, told.notes, told.unit, words)


def say_preview(node: PlainBalance | None, takes: float | None, fits: int | None) -> str:
    """What a question takes of what is left, in one sentence."""
    if node is None or node.limit is None or node.left is None:
        return "There is no limit."
    left = f"Budget of {node.node}: {say_balance(node)}{' for questions like this' if node.unit == 'rho' else ''}"
    if takes is None:
        return f"{left}; this takes more than that, and would be refused."
    if not takes:
        return f"{left}; this is free."
    more = "it is the last one that fits" if fits == 1 else f"about {fits:,} like it fit"
    share = 100 * takes / node.limit if node.limit else 100.0
    taken = f"{format_amount(share, 'up')}%" if node.unit == "rho" else format_amount(takes, "up")
    return f"{left}; this takes {taken}; {more}."


def say_balance(node: PlainBalance) -> str:
    """What is left of a node, in epsilon as the policy states it; in percent of that where what adds up is rho.

    >>> from deniable.curator.governance.reports import PlainBalance
    >>> say_balance(PlainBalance("the dataset", "", "epsilon", 10.0, 8.2))
    '8.2 of 10 left'
    >>> say_balance(PlainBalance("the dataset", "", "rho", 1.48, 1.36, "delta 5e-07", "epsilon 10"))
    '91% of epsilon 10 left'
    """
    if node.limit is None or node.left is None:
        return "no limit"
    if node.closed:
        return f"nothing left: {node.closed}"
    if node.unit != "rho":
        return f"{format_amount(node.left, 'down')} of {format_amount(node.limit)} left"
    share = math.floor(100 * node.left / node.limit) if node.limit else 0
    return f"{share}% {f'of {node.stated} ' if node.stated else ''}left"


def _find_dearest(before: list[PlainBalance], after: list[PlainBalance]) -> tuple[PlainBalance | None, float]:
    """The node of which a question takes the largest part of what is left, and what it takes there."""
    costs = [
        (one.left, float(Decimal(repr(one.left)) - Decimal(repr(two.left))), one)  # 3.2 less 3.1 is 0.1
        for one, two in zip(before, after, strict=False)
        if one.left is not None and two.left is not None
    ]
    if not costs:
        return None, 0.0
    _, cost, node = max(costs, key=lambda each: (each[1] / each[0] if each[0] else 0, -each[0]))
    return node, cost


def _find_least(balances: Sequence[Balance]) -> PlainBalance | None:
    """The node with the least left for a pure question, in which all of them are compared; of equal ones the last."""
    from deniable.curator.governance.reports import state_plainly

    limited = [each for each in balances if each.remaining is not None]
    if not limited:
        return None
    [told] = state_plainly([min(limited[::-1], key=_compare_left)])
    return told


def _compare_left(each: Balance) -> tuple[Fraction, Fraction]:
    if each.kinds is not None:
        return each.kinds.epsilon, each.kinds.rho
    left = each.remaining
    assert left is not None
    return (left.rho, left.rho) if isinstance(left, ZCDP) else (left.epsilon, left.delta)


def _find_refusing(
    balances: Sequence[Balance], refusal: BudgetExceeded, cost: Mapping[str, str]
) -> PlainBalance | None:
    """The node that refuses a question, in the unit in which it does.

    A node may have enough epsilon left for questions without a delta and refuse one with: then its rho is too little.
    """
    from deniable.curator.governance.reports import state_plainly

    named = [each for each in balances if each.node == refusal.fields.get("node")]
    told = state_plainly(named[:1])[0] if named else _find_least(balances)
    if told is None or told.unit != "epsilon" or told.left is None or float(cost.get("epsilon", 0)) > told.left:
        return told
    mixed = [(each.kinds.rho, place) for place, each in enumerate(named or balances) if each.kinds is not None]
    return state_plainly([(named or balances)[min(mixed)[1]]], ["rho"])[0] if mixed else told


def _say_error(plan: AggregatePlan) -> str:
    """The error of an aggregate in words: of a mean over some numbers of rows; of what else follows, of each part."""
    errors = [f"within {format_figure(part.error)} places of the right one, with all values in order"
              if part.error_in == "ranks" else f"± {format_figure(part.error)}"
              for part in plan.measurements]  # fmt: skip
    if len(errors) < 2:
        return ", ".join(errors) or "exact: from public tables"
    if plan.is_mean:
        over = (plan.fewest_rows, 10 * plan.fewest_rows)
        means = ", ".join(f"± {format_figure(plan.bound_mean(rows))} over {rows:,} rows" for rows in over)
        return f"at most {means}; how many rows there are is not known before the answer"
    # Where a sum begins to count from, and its bounds, are in the privacy plan.
    names = [part.measures.partition(",")[0].partition(" about ")[0] for part in plan.measurements]
    return "follows from " + ", ".join(f"{name} {error}" for name, error in zip(names, errors, strict=True))


def format_figure(value: float) -> str:
    """A number in at least four figures, never as a power of ten where it is large.

    >>> [format_figure(each) for each in (250000.0, 1234.56, 12.3456, 0.00012346)]
    ['250,000', '1,235', '12.35', '0.0001235']
    """
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _kind(kind: str) -> str:
    return "text" if kind == "null" else str(kind)


@dataclass(frozen=True, slots=True, eq=False)
class FunctionSummary(Record):
    """A function that a question may use: how it is written, and what it means."""

    form: str
    meaning: str


def list_functions() -> list[FunctionSummary]:
    """The aggregates over people with how they are measured, then the functions of a row."""
    from deniable.query.algebra.functions import AGGREGATE_FORMS, FUNCTION_FORMS

    aggregates = [
        FunctionSummary(form, f"{meaning}; measured as {measured}") for form, meaning, measured in AGGREGATE_FORMS
    ]
    return aggregates + [FunctionSummary(form, "of a row") for form in FUNCTION_FORMS.values()]


def fill_parameters(sql: str, values: Sequence[Value]) -> str:
    """A question with its parameters filled in as literals; no value can become anything else."""
    from deniable.query.sql.clauses import fill_parameters as put

    return put(sql, values)


@dataclass(frozen=True, slots=True, eq=False)
class ColumnSummary(Record):
    """A column that an asker may name, with what the policy declares of it."""

    column: str
    type: str
    role: str
    nullable: bool
    between: list[Any] | None
    step: Any
    categories: list[Any] | None


@dataclass(frozen=True, slots=True, eq=False)
class TableSummary(Record):
    """A table that an asker may name: whether it is public, whom it protects, and its columns."""

    table: str
    public: bool
    unit: str | None
    columns: list[ColumnSummary]


def schema(context: Context) -> list[TableSummary]:
    """The tables that an asker may name, with what the policy declares of them."""
    return [_table(table) for table in context.admit_tables()]


def _table(table: TableSchema) -> TableSummary:
    return TableSummary(
        table=table.name,
        public=table.public,
        unit=None if table.unit is None else str(table.unit),
        columns=[_column(column) for column in table.columns if not column.opaque],
    )


def _column(column: Column) -> ColumnSummary:
    ends = column.bounds
    return ColumnSummary(
        column=column.name,
        type=str(column.type),
        role=str(column.role),
        nullable=column.nullable,
        between=None if ends is None else [_plain(ends.lower), _plain(ends.upper)],
        step=None if ends is None else _plain(ends.step),
        categories=None if column.categories is None else list(column.categories),
    )


def _plain(value: Any) -> Any:
    """A declared end or step as JSON: whole numbers as they are, others as decimals, dates as text."""
    if isinstance(value, int):
        return value
    return float(value) if hasattr(value, "numerator") else value.isoformat()


def dummy_rows(context: Context, table: str, rows: int) -> pa.Table:
    """Invented rows of a table's shape, for trying code: made of declared bounds and categories alone."""
    if not 0 <= rows <= MOST_DUMMIES:
        raise ParameterError(f"{rows} rows", expected=f"0 to {MOST_DUMMIES:,} rows")
    context.admit()
    known = context.policy.table(table)
    if known.public:
        return invent_rows(next(each for each in context.scope.schemas() if each.name == known.name), rows)
    shape = context.scope.private_table(table, linked=True)
    return invent_rows(replace(shape, columns=tuple(each for each in shape.columns if not each.opaque)), rows)


@contextmanager
def preload_queries() -> Iterator[None]:
    """Load what questions need, and let the garbage collector not look at it again and again: it is no garbage."""
    import gc

    import deniable.query.compile
    import deniable.query.execute  # noqa: F401  loaded for the questions to come

    with bare_engine() as engine:  # so are the engine, and what Arrow looks for at its first array
        engine.run("SELECT CAST(1 AS BIGINT) AS n", one_row=True)
    gc.collect()
    gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(GARBAGE, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


GARBAGE = 20_000
"""Objects that are made, a few questions' worth, before the garbage collector looks at what was made since."""


def bare_engine(memory: str = "128MB") -> DuckDBEngine:
    """An engine of its own that holds no source, for public rows that are given with each statement."""
    from deniable.engines.duckdb import DuckDBEngine

    return DuckDBEngine(memory=memory, threads=1)
