"""Asking a question: compile, charge, execute, release. A repeated question is answered from the stored answer."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from numbers import Real
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, cast

from deniable.curator.charge import (
    Job,
    JobResult,
    after_the_charge,
    find_answer,
    guarantee_of,
    job_of,
    open_job,
    run_job,
    still_charged,
)
from deniable.curator.context import Context
from deniable.curator.publish import find_signing_key, note_published
from deniable.curator.query.derived import Recompile, find_derived, remember, say_source
from deniable.errors import ParameterError, QueryRefused, StorageError
from deniable.outputs import replace_files
from deniable.policy.budget import ZCDP, Amount, Budget, budget, exact, say_cost
from deniable.policy.schema import PrivacyUnit
from deniable.release.display import ShownNumbers

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.ledger import Receipt
    from deniable.query.derive import Derived
    from deniable.query.execute import NoisyResults, Presentation
    from deniable.query.explain import CostSummary, ErrorPoint, QuestionExplanation
    from deniable.query.plan import QueryPlan
    from deniable.release import Release

EPSILONS = ("0.01", "0.02", "0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10")
"""Where the curve of errors is drawn, unless other epsilons are named."""


@dataclass(frozen=True, slots=True, repr=False)
class QueryAnswer(ShownNumbers):
    """A release of noisy numbers, easy to look at and to carry on with."""

    release: Release
    repeated: bool = False
    """Whether it is the stored answer of an earlier equal question, at no further cost."""
    receipt: Receipt | None = None
    """What the charge left behind; None where nothing was charged."""

    @property
    def rows(self) -> pa.Table:
        """The answer as an Arrow table; `name_low` and `name_high` enclose `name` but for the stated confidence."""
        return self.release.rows

    @property
    def cost(self) -> str:
        """What the question cost, and what is left, in words."""
        return say_cost(self.release.details, self.repeated)

    def describe_cost(self) -> str:
        """What the question cost, and what is left, in words."""
        return self.cost

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of all columns, those of the ends of intervals too."""
        return tuple(self.rows.column_names)

    @property
    def details(self) -> Mapping[str, Any]:
        """All that goes with the numbers: aggregates, cost, what is left, notes."""
        return self.release.details

    def to_pandas(self) -> Any:
        """The answer as a pandas DataFrame."""
        self._require("pandas")
        return self.rows.to_pandas()

    def to_polars(self) -> Any:
        """The answer as a Polars DataFrame."""
        self._require("polars")
        import polars

        return polars.from_arrow(self.rows)

    def _require(self, package: str) -> None:
        from deniable.query.builder import require_package

        require_package(package, KEPT if self.receipt is not None else None)

    def to_arrow(self) -> pa.Table:
        """The answer as an Arrow table."""
        return self.rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The answer for any library that speaks Arrow (its PyCapsule interface)."""
        return self.rows.__arrow_c_stream__(requested_schema)

    # a dictionary: rows, whose columns are those of the question
    def to_pylist(self) -> list[dict[str, Any]]:
        """The answer as a list of rows."""
        listed: list[dict[str, Any]] = self.rows.to_pylist()
        return listed


ASKED_BEFORE = "It was asked before: the stored answer is given again, and nothing is charged."
KEPT = "The answer was charged, and is kept: the same question gives it again at no cost."


def state_budget(epsilon: Amount | None, delta: Amount, rho: Amount | None) -> Budget | None:
    """The budget stated beside a question, if any; a delta alone goes with an accuracy that is asked for."""
    if epsilon is None and rho is None:
        return budget(0, delta) if exact(delta, "delta") else None
    return budget(epsilon, delta, rho)


def compile_sql(context: Context, sql: str, asked: Budget | None, *, bias_share: Amount | None = None) -> QueryPlan:
    """The plan of a question under the policy, with the tables and columns that the asker may name."""
    from deniable.query.compile import compile_query

    tables = context.admit_tables()
    if not isinstance(sql, str):
        raise QueryRefused("the question is not text", expected="One SELECT statement as text")
    pure = is_pure(context)
    if pure and isinstance(asked, ZCDP):
        raise ParameterError(
            "the question states rho, and this policy adds up epsilon",
            expected="An epsilon, such as epsilon=0.5",
            remedy="The steward may write accounting: zcdp in the policy, with a delta",
        )
    # The columns of a public table that declares none are those of its file, which may change.
    described = tuple((t.name, t.columns) for t in tables if t.public and not context.policy.table(t.name).columns)
    asker, share = context.asker.name if context.asker else "", None if bias_share is None else str(bias_share)
    key = (sql, asked, asker, share, described)
    plan: QueryPlan = context.plans.get(
        key, lambda: _rehearse(context, compile_query(sql, tables, asked, bias_share=bias_share, pure=pure))
    )
    return refuse_elsewhere(context, plan)


def refuse_explanation(sql: str) -> None:
    """Refuse to answer a statement that asks for its plan alone: whoever writes EXPLAIN expects no charge."""
    if isinstance(sql, str) and re.match(r"\s*EXPLAIN\b", sql, re.IGNORECASE):
        raise QueryRefused(
            "EXPLAIN asks for the plan alone, and this was to be answered",
            remedy="Ask for the explanation (in Python explain(...), over HTTP /v1/explain), or leave EXPLAIN out",
        )


def _rehearse(context: Context, plan: QueryPlan) -> QueryPlan:
    """The plan; refused where its statements cannot be written, or what it computes from noisy numbers always fails."""
    from deniable.query.execute import needs_rehearsal, rehearse, rehearse_statements

    rehearse_statements(plan)
    if needs_rehearsal(plan):
        with suppress(StorageError):  # a public table that cannot be read is refused when it is needed
            rehearse(plan, context.scope.attach_public(*job_of(plan).public))
    return plan


def refuse_elsewhere(context: Context, plan: QueryPlan) -> QueryPlan:
    """The plan, or a refusal where its tables are in places that cannot compute it, or not together."""
    if not any(_find_place(context, table.name) for table in context.policy.tables):
        return plan
    from deniable.query.sql.dialects import refuse_unsupported

    return refuse_unsupported(plan, lambda name: _find_place(context, name))


def _find_place(context: Context, name: str) -> str:
    """The database that a table is in, or `spark`; empty for what the embedded engine reads."""
    from deniable.engines.base import is_elsewhere, is_in_spark

    source = context.scope.sources.get(name, context.policy.table(name).source)
    if is_in_spark(source):
        return "spark"
    return str(source).partition("#")[0] if is_elsewhere(source) else ""


def note_places(context: Context, private: Sequence[str]) -> list[str]:
    """Where the rows are that a question reads, if not here."""
    away = [name for name in private if _find_place(context, name)]
    return (
        [f"the rows of {', '.join(away)} stay where they are: bounded sums leave that place, and noise is added here"]
        if away
        else []
    )


def is_pure(context: Context) -> bool:
    """Whether budgets are accounted for in pure epsilon, so that only noise with such a price may be chosen."""
    from deniable.ledger.budget_tree import choose_accounting
    from deniable.policy.access import Accounting

    return choose_accounting(context.policy.budgets) == Accounting.PURE


def recompile_question(
    context: Context, questions: list[str], asked: Budget | None
) -> tuple[list[QueryPlan], Job[NoisyResults]] | None:
    """What was measured for a question that was asked alone."""
    if len(questions) > 1:
        return None
    plan = compile_sql(context, questions[0], asked)
    return [plan], job_of(plan)


def find_following(context: Context, plan: QueryPlan, recompile: Recompile) -> Derived | None:
    """A question as it follows from stored measurements, if it does."""
    job = job_of(plan)
    found = find_derived(context, plan, job, open_job(context, job), recompile)
    return None if found is None else found[0]


def find_stored(context: Context, plan: QueryPlan) -> NoisyResults | None:
    """What was measured for an equal question in this epoch, which is repeated free of charge; None if nothing was."""
    job = job_of(plan)
    opened = open_job(context, job)
    stored = find_answer(context.store, opened.key) if opened.key else None
    if stored is None:
        return None
    measured: NoisyResults = stored.measured if job.restore is None else job.restore(stored.measured)
    return measured


def explain(
    context: Context, sql: str, asked: Budget | None, recompile: Recompile | None = recompile_question
) -> QuestionExplanation:
    """What a question would measure and cost, what would be left, and how many more like it fit; no row is read."""
    from deniable.query.explain import QuestionExplanation, describe_budget
    from deniable.query.explain import explain as explain_plan

    plan = compile_sql(context, sql, asked)
    job, more = job_of(plan), None if plan.free else context.ledger.fits(plan.event, *context.path)
    derived = None if recompile is None else find_following(context, plan, recompile)
    told = explain_plan(plan if derived is None else derived.plan)
    stored = recompile is not None and derived is None and not plan.free and find_stored(context, plan) is not None
    notes = [ASKED_BEFORE] if stored else [] if derived is None else [say_source(derived)]
    notes += [*told.notes, *note_missing_ids(context, job.private), *note_places(context, job.private)]
    cost = describe_budget(budget(0)) if stored or derived is not None else told.cost
    return QuestionExplanation(
        **(told | {"notes": notes, "cost": cost}), remaining=context.name_left(), more_like_this=more
    )


def error_curve(
    context: Context,
    sql: str,
    *,
    epsilons: tuple[Amount, ...] = EPSILONS,
    delta: Amount = 0,
    confidence: float = 0.95,
) -> list[ErrorPoint]:
    """The expected error of each measurement of a question at each epsilon; no row is read and nothing is charged."""
    from deniable.query.explain import compute_error_curve

    check_confidence(confidence)
    plans = ((epsilon, compile_sql(context, sql, state_budget(epsilon, delta, None))) for epsilon in epsilons)
    return compute_error_curve(plans, confidence)


def query(
    context: Context,
    sql: str,
    asked: Budget | None,
    *,
    request: str = "",
    confidence: float = 0.95,
    intervals: bool = True,
    nonnegative: bool = False,
    consistent: bool = False,
    bias_share: Amount | None = None,
    seconds: float | None = None,
    stop: Event | None = None,
    recompile: Recompile | None = recompile_question,
) -> QueryAnswer:
    """Answer a question: charged before the data is touched, and never refunded after.

    `nonnegative` cuts counts off at 0, and `consistent` makes the levels of a ROLLUP add up: both are free.
    `bias_share` is a part of the budget for estimating how many units clamping and contribution bounds have cut.
    `request` is the asker's id of this attempt: asked again under it, the question is not charged again.
    `stop` is set when the question is taken back: before the charge it ends uncharged; what the engine does after it
    is stopped by `Curator.interrupt`, and the charge stands.
    `recompile` reads the stored questions that this one may follow from; with None neither it does, nor one from it.
    """
    from deniable.query.execute import Presentation

    plan = compile_sql(context, sql, asked, bias_share=bias_share)
    how = Presentation(check_confidence(confidence), intervals, nonnegative, _check_consistency(plan, consistent))
    job = job_of(plan, seconds=seconds)
    opened = open_job(context, job, request)
    shown = (opened.key, *sorted(opened.versions.items()), plan.text, how, context.asker)
    known = context.shown.find(shown)
    if known is not None and known[0] == context.balance():
        return QueryAnswer(known[1], repeated=True)
    derived = recompile and find_derived(context, plan, job, opened, recompile, request=request, seconds=seconds)
    if derived is None:
        result = run_job(context, job, opened, request=request, stop=stop)
        if result.receipt is not None and bias_share is None and recompile is not None:
            with still_charged():
                remember(context, opened, [plan], [sql], asked)
    else:
        plan, result = derived[0].plan, derived[1]
    rows = present_rows(context, plan, job, result, how, seconds)
    balances, remaining, left = context.read_left()
    release = build_release(context, plan, rows, result, confidence, remaining, left)
    if derived is not None:
        notes = [say_source(derived[0]), *cast(list[str], release.details["notes"])]
        release = replace(release, details={**release.details, "notes": notes})
    if result.repeated:
        context.shown.put(shown, (balances, release))
    return QueryAnswer(release, result.repeated, result.receipt)


def present_rows(
    context: Context,
    plan: QueryPlan,
    job: Job[Any],
    result: JobResult[NoisyResults],
    how: Presentation,
    seconds: float | None,
) -> pa.Table:
    """The rows of the question, finished where no private table is: a stored answer is as quick whatever happened."""
    from deniable.query.execute import present

    with after_the_charge(charged=not job.free):
        engine = context.scope.attach_public(*job.public)
        return present(plan, result.measured, engine, how, seconds=seconds)


def check_confidence(confidence: float) -> float:
    """The confidence, or a refusal of what is none."""
    if not _is_number(confidence) or not 1e-6 <= confidence <= 1 - 1e-9:
        raise ParameterError("the confidence is not between 0 and 1", expected="A confidence such as 0.95")
    return confidence


def _is_number(value: object) -> bool:
    """Whether a value is a number that can be compared: callers of Python may hand over anything."""
    return isinstance(value, Real)


def check_columns(columns: object, expected: str) -> list[str]:
    """Columns as they were named, or a refusal: of what is no list of names, and of a column that is named twice."""
    if isinstance(columns, str) or not isinstance(columns, Sequence) or not all(isinstance(c, str) for c in columns):
        raise ParameterError("columns are given as a list of names", expected=expected)
    shown = [bare_name(column).lower() for column in columns]
    twice = next((column for column, name in zip(columns, shown, strict=True) if shown.count(name) > 1), None)
    if twice is not None:
        raise QueryRefused(f"the column '{bare_name(twice)}' is named twice", remedy="Name each column once")
    return list(columns)


def bare_name(column: str) -> str:
    """A column's name as it is shown: without the table."""
    return column.rsplit(".", 1)[-1].strip('"')


def note_missing_ids(context: Context, names: Iterable[str]) -> list[str]:
    """What to know of tables in which the column that tells people apart may be missing."""
    found = []
    for name in dict.fromkeys(names):
        table = context.policy.table(name)
        column = table.column(table.unit.column) if table.unit is not None and table.unit.column else None
        if column is not None and column.nullable:
            found.append(f"Rows of '{name}' without a value of '{column.name}' are ignored.")
    return found


def _check_consistency(plan: QueryPlan, consistent: bool) -> bool:
    from deniable.query.execute import refuse_inconsistent

    if consistent:
        refuse_inconsistent(plan)
    return consistent


def write_answer(context: Context, answer: QueryAnswer, path: Path) -> None:
    """Write an answer and its statement to files."""
    from deniable.release import write_release

    with still_charged() if answer.receipt is not None else nullcontext(), replace_files(path):
        sealed = write_release(answer.release, path, context.scope.engine, key=find_signing_key(context))
        note_published(context, sealed, answer.receipt.release if answer.receipt is not None else "")


def build_release(
    context: Context,
    plan: QueryPlan,
    rows: pa.Table,
    result: JobResult[NoisyResults],
    confidence: float,
    remaining: dict[str, str] | None,
    left: str,
) -> Release:
    """The rows of a question with their guarantee, where they come from, and what goes with every answer."""
    from deniable.query.bias import MARK, report_estimates
    from deniable.query.explain import summarize_plan
    from deniable.release import Provenance, Release, Technique

    checked = any(MARK in node.node.name for node in plan.nodes)
    estimates = report_estimates(plan, result.measured, confidence) if checked else []
    details = {**summarize_plan(plan, confidence).to_dict(), "confidence": confidence,
               "remaining": remaining, "left": left or None, "release": result.release,
               "epoch": result.epoch, "receipt": result.receipt.as_dict() if result.receipt else None,
               "bias": [each.to_dict() for each in estimates]}  # fmt: skip
    parameters = {"sql": plan.text, "strategy": plan.strategy}
    provenance = Provenance(context.ledger.policy, result.versions, parameters, time=result.time, epoch=result.epoch)
    guarantee = guarantee_of(Technique.DP_QUERY, plan.unit, None if plan.free else plan.cost)
    return Release(rows, guarantee, provenance, details)


def describe_cost(context: Context, cost: Budget, unit: PrivacyUnit) -> CostSummary:
    """What every explanation tells: the cost, whom it protects, and what is left."""
    from deniable.query.explain import CostSummary, describe_budget

    return CostSummary(describe_budget(cost), str(unit), unit.neighboring.value, context.name_left())


def answer_job(
    context: Context, job: Job[NoisyResults], result: JobResult[NoisyResults], rows: pa.Table, **details: Any
) -> QueryAnswer:
    """The rows of a job with their guarantee and provenance, as every answer carries them."""
    from deniable.query.explain import describe_budget
    from deniable.release import Provenance, Release, Technique

    about: dict[str, Any] = {"aggregates": [], "notes": [], "epoch": result.epoch}
    about |= {"cost": describe_budget(job.cost) if job.cost is not None else None}
    _, remaining, left = context.read_left()
    about |= {"remaining": remaining, "left": left or None} | details
    parameters = {"asked": job.text}
    provenance = Provenance(context.ledger.policy, result.versions, parameters, time=result.time, epoch=result.epoch)
    release = Release(rows, guarantee_of(Technique(job.technique), job.unit, job.cost), provenance, about)
    return QueryAnswer(release, result.repeated, result.receipt)
