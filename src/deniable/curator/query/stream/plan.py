"""The plan of a stream: from its declaration to what is measured and with how much noise; sees no data.

Each question is compiled once for each period, as any question is: that proves what one unit can move in one period.
Over all periods the noise is that of `deniable.streams`, made for the same unit in as many periods as it may be in.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from deniable.curator.charge import job_of
from deniable.curator.context import Context
from deniable.curator.query.sql import refuse_elsewhere
from deniable.curator.sources import note_rows_out, refuse_rows_here
from deniable.engines.base import quote
from deniable.errors import AccessRefused, QueryRefused
from deniable.policy.budget import ZCDP, Budget, PureDP, format_number, refuse_extreme
from deniable.policy.document import digest
from deniable.policy.schema import Column, ColumnType, PrivacyUnit, TableSchema
from deniable.policy.stream import Stream, StreamQuestion
from deniable.release.record import Record

if TYPE_CHECKING:
    from deniable.ledger import Receipt
    from deniable.query.plan import NodePlan, Placed, QueryPlan, Step
    from deniable.release import Guarantee
    from deniable.streams.factorization import Factorization
    from deniable.streams.mechanism import Estimator, StreamMechanism

STRUCTURE = ZCDP(Fraction(1), Fraction(1, 10**6))
"""The budget that questions are compiled with: any will do, since what they measure does not depend on it."""


@dataclass(frozen=True, slots=True, eq=False)
class StreamError(Record):
    """The standard deviation that a question's numbers will have, in its finest groups, from public facts alone."""

    question: str
    group: str
    period: float
    total: float
    window: float | None
    alone: float
    """That of the total, were each period measured by itself."""


@dataclass(frozen=True, slots=True, eq=False)
class StreamPlanReport(Record):
    """What a stream would cost and how accurate it would be; no row is read and nothing is charged."""

    stream: str
    protects: str
    periods: int
    max_periods: int
    measured: str
    noise: str
    budget: str
    errors: tuple[StreamError, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A stream with its questions compiled for one period; every refusal about it was made."""

    stream: Stream
    table: TableSchema
    plans: tuple[QueryPlan, ...]
    declared: str = ""
    """The digest of everything that its price and its meaning depend on."""

    @property
    def unit(self) -> PrivacyUnit:
        """Who is protected."""
        return self.table.unit or PrivacyUnit()

    @property
    def most_periods(self) -> int:
        """In how many periods one unit can be."""
        return 1 if self.unit.is_row else self.stream.max_periods or self.stream.periods

    @property
    def remembers(self) -> bool:
        """Whether it must be remembered who counted."""
        return not self.unit.is_row and self.most_periods < self.stream.periods

    @property
    def nodes(self) -> tuple[NodePlan, ...]:
        """What is measured for each question."""
        return tuple(plan.nodes[0] for plan in self.plans)

    @property
    def tables(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The private and the public tables that it reads."""
        jobs = [job_of(plan) for plan in self.plans]
        private = dict.fromkeys(name for job in jobs for name in job.private)
        return tuple(private), tuple(dict.fromkeys(name for job in jobs for name in job.public))

    @property
    def placed(self) -> list[tuple[Step, Placed]]:
        """The parts of a period, in their order: questions, their grouping sets, their measurements."""
        return [(step, placed) for node in self.nodes for step in node.steps for placed in step.placed]


@dataclass(frozen=True)
class Opened:
    """A stream that may be measured: its plan, its noise, and the charge that pays for all of it."""

    plan: Plan
    mechanism: StreamMechanism
    cells: tuple[tuple[tuple[Any, ...], ...], ...]
    """The keys of the groups of each part."""
    receipt: Receipt
    guarantee: Guarantee

    @cached_property
    def estimator(self) -> Estimator:
        """From noisy rows to totals; for fewer periods it is its own beginning."""
        from deniable.streams.mechanism import Estimator

        return Estimator.of(self.mechanism.factorization, self.plan.stream.periods)


def explain(context: Context, name: str) -> StreamPlanReport:
    """What a stream would cost, whom it would protect, and how far its numbers would be off."""
    plan = plan_stream(context, name)
    notes = note_people_out(context, plan)
    mechanism = make_mechanism(plan)
    return StreamPlanReport(
        name,
        state_protection(plan),
        plan.stream.periods,
        plan.most_periods,
        mechanism.factorization.name,
        f"discrete {'Laplace' if mechanism.is_pure else 'Gaussian'}",
        _describe_budget(plan.stream.allowance),
        tuple(_foresee_errors(plan, mechanism)),
        notes,
    )


def note_people_out(context: Context, plan: Plan) -> tuple[str, ...]:
    """That rows are brought here where people's periods are counted; refused where the policy lets none leave."""
    if not plan.remembers:
        return ()
    refuse_rows_here(plan.table, context.scope.sources)
    return tuple(note_rows_out(plan.table, context.scope.sources))


def _describe_budget(allowance: Budget) -> str:
    amount = f"rho {format_number(allowance.rho)}" if isinstance(allowance, ZCDP) else (
        f"epsilon {format_number(allowance.epsilon)}"
    )  # fmt: skip
    return amount if allowance.delta == 0 else f"{amount}, delta {format_number(allowance.delta)}"


def state_protection(plan: Plan) -> str:
    """Whom the stream protects, in plain words."""
    every = f"all {plan.stream.periods} periods together"
    if plan.unit.is_row:
        return (
            f"Event-level: it is hidden whether one row was there, over {every}. A person with several rows is "
            "protected less, the less the more rows they have."
        )
    most = plan.most_periods
    counted = "in every period" if most == plan.stream.periods else f"in at most {most} of them, the first ones"
    return f"Person-level: it is hidden what {plan.unit} say, over {every}. One person is counted {counted}."


def plan_stream(context: Context, name: str) -> Plan:
    """The plan of a declared stream; refuses what cannot be published."""
    if context.asker is not None:
        raise AccessRefused("streams are published by the steward", remedy="Ask the steward for the page or the feed")
    tables = context.admit_tables()
    stream = context.policy.stream(name)
    refuse_extreme(stream.allowance)
    table = context.scope.private_table(stream.table, linked=True)
    plan = Plan(stream, table, compile_period(stream, table, tables, 0), _name_declaration(context, stream, table))
    if any(len(each.nodes) != 1 for each in plan.plans):
        raise QueryRefused(f"a question of stream '{name}' asks another one inside", expected="A plain condition")
    for each in plan.plans:
        refuse_elsewhere(context, each)
    for node in plan.nodes:
        _refuse_unfit(plan, node)
    return plan


def _name_declaration(context: Context, stream: Stream, table: TableSchema) -> str:
    """The digest of a stream and of what it uses of its table: other columns, roles and masks may be edited.

    A stream that was charged under a digest of the whole table, as they once were, goes on under that one.
    """
    whole = digest({"stream": stream, "table": table}).removeprefix("sha256:")
    charged = (entry.details for entry in context.ledger.entries(acts=("charge",)))
    if any(each.get("stream") == stream.name and each.get("declared") == whole for each in charged):
        return whole
    facts = [(c.name, c.type, c.nullable, c.bounds, c.categories, c.longest) for c in _list_columns(stream, table)]
    used = {"stream": stream, "name": table.name, "source": table.source, "unit": table.unit, "columns": facts,
            "csv": table.csv, "same_people_as": table.same_people_as}  # fmt: skip
    return digest(used).removeprefix("sha256:")


def _list_columns(stream: Stream, table: TableSchema) -> list[Column]:
    """The columns that a stream depends on; a condition on all whose names stand anywhere in it."""
    named = {stream.time, *((table.unit.column,) if table.unit is not None else ())}
    named |= {each for question in stream.questions for each in (*question.by, question.column)}
    conditions = " ".join(question.where for question in stream.questions).casefold()
    return [c for c in table.columns if c.name in named or c.name.casefold() in conditions]


def compile_period(
    stream: Stream, table: TableSchema, tables: tuple[TableSchema, ...], period: int
) -> tuple[QueryPlan, ...]:
    """The questions of one period, compiled; their own noise is not used."""
    from deniable.query.compile import compile_query

    found = []
    for question in stream.questions:
        _refuse_levels(question, table)
        if question.where:  # by itself first: what is no condition alone could end the parentheses around it
            alone = f"SELECT COUNT(*) FROM {quote(table.name)} WHERE {question.where}"  # noqa: S608  parsed, never run
            compile_query(alone, tables, STRUCTURE)
        text = render_question(stream, question, table, period)
        found.append(compile_query(text, tables, STRUCTURE, weights=(Fraction(1),)))
    return tuple(found)


def _refuse_levels(question: StreamQuestion, table: TableSchema) -> None:
    """Refuse totals where a person may be in several groups: a total counts her once, the groups several times."""
    unit = table.unit
    if not question.levels or unit is None or unit.is_row:
        return
    if unit.max_groups != 1 or unit.max_rows_per_group != 1:
        raise QueryRefused(
            f"question '{question.name}' has levels: true, and one person may be in several of its groups",
            expected="max_groups: 1 and max_rows_per_group: 1 in the unit, so that groups add up to their total",
            remedy="Ask for the groups and for the total as two questions, or set both to 1",
        )


def render_question(stream: Stream, question: StreamQuestion, table: TableSchema, period: int) -> str:
    """A question about one period, in SQL."""
    time, keys = quote(stream.time), ", ".join(quote(column) for column in question.by)
    column = table.column(stream.time)
    kind = "TIMESTAMP" if column is not None and column.type is ColumnType.DATETIME else "DATE"
    clock = " 00:00:00" if kind == "TIMESTAMP" else ""
    first, after = (f"{kind} '{stream.first_day(each)}{clock}'" for each in (period, period + 1))
    where = f"{time} >= {first} AND {time} < {after}" + (f" AND (\n{question.where}\n)" if question.where else "")
    if question.levels:  # a row without a listed group is in no group, so it is not in their total either
        where += "".join(f" AND {quote(column)} IS NOT NULL" for column in question.by)
    groups = f" GROUP BY {f'ROLLUP ({keys})' if question.levels else keys}" if keys else ""
    listed = ", ".join([*([keys] if keys else []), f"{_render_measure(question, table)} AS measured"])
    return f"SELECT {listed} FROM {quote(table.name)} WHERE {where}{groups}"  # noqa: S608  parsed again, never run


def _render_measure(question: StreamQuestion, table: TableSchema) -> str:
    unit = table.unit.column if table.unit is not None else None
    match question.measure:
        case "people" if unit is not None:
            return f"COUNT(DISTINCT {quote(unit)})"
        case "sum":
            return f"SUM({quote(question.column)})"
        case "mean":
            return f"AVG({quote(question.column)})"
        case _:
            return "COUNT(*)"


def _refuse_unfit(plan: Plan, node: NodePlan) -> None:
    """Refuse groups that are not declared, and a form of bounding that cannot be remembered."""
    from deniable.query.keys import PrivateKeys

    for step in node.steps:
        if isinstance(step.keys, PrivateKeys):
            raise QueryRefused(
                f"a question of stream '{plan.stream.name}' groups by a column without declared categories",
                expected="Public groups: the same ones in every period",
                remedy="Declare the column's categories in the policy",
            )
        if plan.remembers and step.limits.scaled:
            raise QueryRefused(
                f"stream '{plan.stream.name}' counts people in some periods, which needs another form of bounding",
                expected="bounding: sample or rows",
                remedy="Change the unit's bounding in the policy, or drop max_periods",
            )


def make_mechanism(plan: Plan) -> StreamMechanism:
    """What is measured of all periods, and with how much noise; priced a second time before anybody uses it."""
    from deniable.streams.factorization import choose_factorization, choose_tree
    from deniable.streams.mechanism import Part, StreamMechanism
    from deniable.streams.workload import Totals, Workload

    stream = plan.stream
    workload = Workload(Totals(stream.totals), stream.periods, stream.window or 1)
    parts = [Part(square_sensitivity(placed), placed.share / len(stream.questions), add_sensitivity(placed))
             for _, placed in plan.placed]  # fmt: skip
    choose = choose_tree if isinstance(stream.allowance, PureDP) else choose_factorization
    factorization = choose(workload, plan.most_periods)
    return StreamMechanism.within(stream.allowance, factorization, plan.most_periods, parts)


def square_sensitivity(placed: Placed) -> int:
    """What one unit moves in one period, squared; a replaced one by twice as much, since its periods may differ."""
    sensitivity = placed.sensitivity
    return max(1, replace(sensitivity, factor=1).l2_squared * sensitivity.factor**2)


def add_sensitivity(placed: Placed) -> int:
    """What one unit moves in one period in L1 norm; a replaced one by twice as much."""
    return max(1, placed.sensitivity.l1)


def _foresee_errors(plan: Plan, mechanism: StreamMechanism) -> list[StreamError]:
    from deniable.streams.factorization import make_power
    from deniable.streams.mechanism import Estimator

    n, window = plan.stream.periods, plan.stream.window
    estimator = Estimator.of(mechanism.factorization, n)
    spans = [(n - 1, n - 1), (0, n - 1), *([(n - window, n - 1)] if window else [])]
    spreads = [estimator.spread(*span) for span in spans]
    alone = make_power(n, Fraction(0))
    more = bound_periods(alone, plan.most_periods, pure=mechanism.is_pure) / mechanism.participation
    apart = n * (more**2 if mechanism.is_pure else more) / float(alone.rows[0, 0]) ** 2
    found = []
    for number, node in enumerate(plan.nodes):
        finest = max(node.steps, key=lambda step: len(step.places))
        place = next(i for i, (step, _) in enumerate(plan.placed) if step is finest)
        placed, noise = plan.placed[place][1], mechanism.variances[place]
        unit = float(placed.unit) / placed.sensitivity.parts
        period, total, *slid = (unit * (noise * spread) ** 0.5 for spread in spreads)
        group = ", ".join(plan.stream.questions[number].by)
        name = plan.stream.questions[number].name
        found.append(StreamError(name, group, period, total, slid[0] if slid else None, unit * (noise * apart) ** 0.5))
    return found


def bound_periods(factorization: Factorization, periods: int, *, pure: bool) -> int:
    """How far one unit moves what is measured, in so many periods: in L1 norm for pure epsilon, else squared in L2."""
    from deniable.streams.factorization import bound_columns, bound_participation

    return (bound_columns if pure else bound_participation)(factorization, periods)
