"""A batch of questions: planned as one workload, charged once, measured once, and each answered from that.

All or nothing: a batch of which one question is refused, or which cannot be paid as a whole, costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from deniable.curator.charge import Job, after_the_charge, job_of, open_job, recalls_charge, run_job, still_charged
from deniable.curator.context import Context
from deniable.curator.query import auto_bounds, sql
from deniable.curator.query.derived import remember
from deniable.errors import NOTHING_CHARGED, BudgetUnstated, DeniableError, InternalError, ParameterError, QueryRefused
from deniable.outputs import replace_files
from deniable.policy.budget import Budget, add, covers, split
from deniable.release.display import ShownBatch
from deniable.storage import refuse_unwritable, storage_errors

if TYPE_CHECKING:
    from deniable.ledger import Receipt
    from deniable.query.batch import BatchPart, Question
    from deniable.query.execute import NoisyResults
    from deniable.query.explain import BatchExplanation
    from deniable.query.plan import QueryPlan

MOST_QUESTIONS = 100
LONGEST = 100_000
"""Characters of all questions of a batch together: as many as one question may have."""


@dataclass(frozen=True, slots=True, repr=False)
class BatchAnswer(ShownBatch[sql.QueryAnswer]):
    """The answers to the questions of a batch, in their order; a sequence of `QueryAnswer`."""

    questions: tuple[str, ...]
    answers: tuple[sql.QueryAnswer, ...]
    repeated: bool = False
    """Whether they are the stored answers of an earlier equal batch, at no further cost."""
    receipt: Receipt | None = None
    """What the charge left behind; None where nothing was charged."""

    @property
    def cost(self) -> str:
        """What the whole batch cost, and what is left, in words."""
        return self.paid.cost

    def list_questions(self) -> tuple[str, ...]:
        """The questions, in their order."""
        return self.questions

    # a dictionary: rows, whose columns are those of the question
    def to_pylist(self) -> list[list[dict[str, Any]]]:
        """Each answer as a list of rows."""
        return [answer.to_pylist() for answer in self.answers]

    def to_dict(self) -> dict[str, Any]:
        """Each question with its rows and what goes with them, and once what all of them cost."""
        answers = [
            {"sql": text, "rows": answer.to_pylist(), "columns": answer.rows.column_names, **answer.release.details}
            for text, answer in zip(self.questions, self.answers, strict=True)
        ]
        whole = {name: self.paid.release.details[name] for name in ("cost", "remaining", "release", "receipt")}
        return {"answers": answers, "repeated": self.repeated, **whole}


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """A batch that was compiled: the plan of each question, and the parts that are measured."""

    questions: tuple[QueryPlan, ...]
    """As each would be asked alone, with an equal share."""
    parts: tuple[BatchPart, ...]
    cost: Budget

    def find_part(self, place: int) -> int:
        """Which part a question follows from."""
        return next(i for i, part in enumerate(self.parts) if place in part.questions)

    def show(self, place: int) -> QueryPlan:
        """The plan of a question with the noise that its numbers have in the batch."""
        from deniable.query.batch import show_plan

        return show_plan(self.questions[place], place, self.parts[self.find_part(place)], self.cost)


@recalls_charge
def query_batch(
    context: Context,
    questions: Sequence[str],
    asked: Budget | None,
    *,
    confidence: float = 0.95,
    intervals: bool = True,
    nonnegative: bool = False,
    request: str = "",
    seconds: float | None = None,
    stop: Event | None = None,
) -> BatchAnswer:
    """Answer several questions with one charge; see `Curator.query_batch`."""
    from deniable.query.execute import Presentation

    plan = compile_batch(context, questions, asked)
    how = Presentation(sql.check_confidence(confidence), intervals, nonnegative)
    job = _build_job(plan, seconds)
    opened = open_job(context, job, request)
    result = run_job(context, job, opened, request=request, stop=stop)
    if result.receipt is not None:
        with still_charged():
            remember(context, opened, [part.plan for part in plan.parts], list(questions), asked)
    with after_the_charge(charged=not job.free):
        measured = _read_answers(context, plan, job, result.measured, seconds)
    (_, remaining, left), answers = context.read_left(), []
    for place, found in enumerate(measured):
        shown = plan.show(place)
        rows = sql.present_rows(context, shown, job, replace(result, measured=found), how, seconds)
        release = sql.build_release(context, shown, rows, replace(result, measured=found), confidence, remaining, left)
        details: dict[str, Any] = dict(release.details)
        told = {"notes": [*_tell_part(plan, place), *details["notes"]], "batch": _describe_place(plan, place)}
        release = replace(release, details=details | told)
        answers.append(sql.QueryAnswer(release, result.repeated, result.receipt))
    return BatchAnswer(tuple(questions), tuple(answers), result.repeated, result.receipt)


def explain_batch(context: Context, questions: Sequence[str], asked: Budget | None) -> BatchExplanation:
    """What a batch would measure and cost, which questions are measured together, and each error; no row is read."""
    from deniable.query.explain import BatchExplanation, BatchQuestion, describe_budget, list_statements, summarize_plan

    plan = compile_batch(context, questions, asked)
    job = _build_job(plan, None)
    free = job.free or job.event is None
    told = []
    for place, question in enumerate(plan.questions):
        summary, part = summarize_plan(plan.show(place)), plan.parts[plan.find_part(place)]
        told.append(
            BatchQuestion(
                sql=question.text,
                together=[each + 1 for each in sorted(part.questions)],
                share=f"{float(part.share):.6g}",
                alone=part.alone,
                aggregates=summary.aggregates,
                notes=[*_tell_bound(part), *summary.notes],
            )
        )
    unit = next((part.plan.unit for part in plan.parts if part.plan.unit is not None), None)
    return BatchExplanation(
        cost=describe_budget(plan.cost),
        unit=str(unit) if unit else "nobody: the questions read public data only",
        neighbors=unit.neighboring.value if unit else None,
        remaining=context.name_left(),
        more_like_this=None if free or job.event is None else context.ledger.fits(job.event, *context.path),
        questions=told,
        statements=[text for part in plan.parts for node in part.plan.nodes for text in list_statements(node)],
        notes=[*sql.note_missing_ids(context, job.private), *sql.note_places(context, job.private)],
    )


def compile_batch(context: Context, questions: Sequence[str], asked: Budget | None) -> BatchPlan:
    """The plan of a batch under the policy; what is wrong with one question is told with its number."""
    from deniable.policy.budget import PureDP
    from deniable.query.batch import count_paid, plan_batch

    texts = _check_questions(questions)
    context.admit_tables()
    if asked is None:
        raise BudgetUnstated(batch=True)
    whole = [_compile_question(context, i, text, asked) for i, text in enumerate(texts)]
    count = count_paid(question.plan for question in whole)
    _refuse_other_units(context, [question.plan for question in whole])
    if count > 1:
        equal = split(asked, (Fraction(1),) * count)[0]
        found = [
            question if question.plan.free else _compile_question(context, i, text, equal)
            for i, (question, text) in enumerate(zip(whole, texts, strict=True))
        ]
        if count_paid(question.plan for question in found) > count:
            raise InternalError("questions of a batch are the same at one budget, and not at another")
    else:
        found = whole
    parts = plan_batch(found, asked, sql.is_pure(context))
    for part in parts:
        sql.refuse_elsewhere(context, part.plan)
    cost: Budget | None = None
    for each in (each for each in parts if not each.plan.free):
        cost = each.plan.cost if cost is None else add(cost, each.plan.cost)
    if cost is not None and not covers(asked, cost):
        raise InternalError("the parts of a batch cost more than was asked", remedy="Nothing was run; please report it")
    return BatchPlan(tuple(question.plan for question in found), parts, cost or PureDP(Fraction(0)))


def recompile(context: Context, questions: list[str], asked: Budget | None) -> tuple[list[QueryPlan], Job[Any]] | None:
    """What was measured for a stored question, or for several that were asked together."""
    if len(questions) == 1:
        return sql.recompile_question(context, questions, asked)
    plan = compile_batch(context, questions, asked)
    return [part.plan for part in plan.parts], _build_job(plan, None)


def read_questions(texts: Sequence[str]) -> list[str]:
    """The statements of some texts, one after another; a text that is the name of a .sql file stands for the file."""
    from deniable.query.sql.clauses import split_statements

    return [each for text in texts for each in split_statements(read_question(text))]


def read_question(text: str) -> str:
    """A text, or what a .sql file that it names holds."""
    if not text.endswith(".sql") or (len(text.split()) > 1 and not _is_file(text)):
        return text
    try:
        return Path(text).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise ParameterError(
            f"the file of questions {text} cannot be read", expected="A text file in UTF-8", charge=NOTHING_CHARGED
        ) from None


def place_answers(out: Path, count: int) -> list[Path]:
    """The file of each answer: numbered beside a named one, or in a folder as CSV; refused where none can be written.

    `tiles.parquet` stands for `tiles-1.parquet`, `tiles-2.parquet` and so on, and `tiles` for `tiles/question-1.csv`.
    """
    numbers = [f"{place + 1:0{len(str(count))}d}" for place in range(count)]
    if out.suffix and not out.is_dir():
        refuse_unwritable(out, rows=True)
        files = [out.with_name(f"{out.stem}-{number}{out.suffix}") for number in numbers]
    else:
        files = [out / f"question-{number}.csv" for number in numbers]
        if not out.exists():
            refuse_unwritable(out)  # the folder is made once there is something to write
            return files
    for file in files:
        refuse_unwritable(file)
    return files


def write_answers(context: Context, answers: BatchAnswer, files: Sequence[Path]) -> None:
    """Write each answer of a batch with its statement; the folder is made if it is not there."""
    with still_charged() if answers.receipt is not None else nullcontext():
        for file in files:
            with storage_errors(file):
                file.parent.mkdir(exist_ok=True)
        with replace_files(*files):
            for answer, file in zip(answers, files, strict=True):
                sql.write_answer(context, answer, file)


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # too long for a name
        return False


def _check_questions(questions: Sequence[str]) -> list[str]:
    expected = "A list of SELECT statements, each as text"
    if isinstance(questions, str) or not isinstance(questions, Sequence):
        raise ParameterError("a batch is a list of questions", expected=expected, charge=NOTHING_CHARGED)
    if not questions or not all(isinstance(each, str) for each in questions):
        raise ParameterError(
            "the batch has no questions, or one that is not text", expected=expected, charge=NOTHING_CHARGED
        )
    if len(questions) > MOST_QUESTIONS or sum(map(len, questions)) > LONGEST:
        raise QueryRefused(
            f"the batch has {len(questions):,} questions of {sum(map(len, questions)):,} characters in all",
            expected=f"At most {MOST_QUESTIONS} questions and {LONGEST:,} characters",
            remedy="Ask in several batches",
        )
    return list(questions)


def _compile_question(context: Context, place: int, text: str, asked: Budget) -> Question:
    """A question with a budget of its own; refusals name it by its number."""
    from deniable.query.batch import Question
    from deniable.query.plan import GROUPS, IN_ALL, IN_EACH
    from deniable.query.sql.clauses import cut_clauses

    try:
        sql.refuse_explanation(text)
        clauses = cut_clauses(text)
        if clauses.within is not None:
            raise QueryRefused(
                "WITHIN finds an epsilon, and the questions of a batch share a stated one",
                remedy="Leave WITHIN out, or ask this question alone",
            )
        if clauses.options.keys() & {"epsilon", "delta", "rho"}:
            raise QueryRefused(
                "it states a budget of its own, and the batch has one for all of its questions",
                remedy="Leave the budget out of OPTIONS, or ask this question alone",
            )
        auto_bounds.refuse_open_bounds(context, text, asked)
        plan = sql.compile_sql(context, text, asked)
    except DeniableError as refusal:
        refusal.happened = f"question {place + 1} of the batch: {refusal.happened}"
        refusal.fields = {**refusal.fields, "question": place + 1}
        raise
    bounds = sorted((name, value) for name, value in clauses.options.items() if name in (GROUPS, IN_EACH, IN_ALL))
    return Question(plan, tuple(bounds), "weights" in clauses.options)


def _refuse_other_units(context: Context, plans: Sequence[QueryPlan]) -> None:
    """One charge states one guarantee, and so one unit (rows, or the same people) and one relation of neighbors."""
    paid = [(place, plan.unit, _list_ids(context, plan)) for place, plan in enumerate(plans)
            if plan.unit is not None and not plan.free]  # fmt: skip
    if not paid:
        return
    first, unit, same = paid[0]
    for _ in paid:  # questions that are linked through others are found in as many rounds at most
        same = same.union(*(ids for _, _, ids in paid if ids & same))
    for place, other, ids in paid:
        if other.neighboring is not unit.neighboring:
            raise QueryRefused(
                f"question {place + 1} of the batch is over tables with neighboring: {other.neighboring}, and question "
                f"{first + 1} with neighboring: {unit.neighboring}",
                expected="Questions with one relation of neighbors, since one charge states one guarantee",
                remedy="Ask it alone, or in another batch",
                question=place + 1,
            )
        if other.is_row is not unit.is_row or not (other.is_row or ids & same):
            raise QueryRefused(
                f"question {place + 1} of the batch protects another unit than question {first + 1}: {other}",
                expected="Questions that protect the same unit",
                remedy="Ask it alone, or in another batch; tables of the same people are linked by same_people_as",
                question=place + 1,
            )


def _list_ids(context: Context, plan: QueryPlan) -> frozenset[str]:
    """The columns that tell the people of a question apart: of its tables, and those that the policy links to them."""
    from deniable.query.algebra.relation import tables_of

    units = [plan.unit, *(table.unit for table in tables_of(plan.relation) if not table.public)]
    columns = {unit.column for unit in units if unit is not None and unit.column is not None}
    return frozenset(name for column in columns for name in context.policy.same_people(column))


def _build_job(plan: BatchPlan, seconds: float | None) -> Job[tuple[NoisyResults, ...]]:
    """All parts as one job. One part is stored as the question that it is, so that either repeats the other."""
    from deniable.dp.accounting import ComposedEvent
    from deniable.query.algebra.relation import tables_of

    jobs = [job_of(part.plan, seconds=seconds) for part in plan.parts]
    private = tuple(dict.fromkeys(name for job in jobs for name in job.private))
    read = [table.name for question in plan.questions for table in tables_of(question.relation) if table.public]
    public = tuple(dict.fromkeys([*read, *(name for job in jobs for name in job.public)]))
    inside = [name for job in jobs for name in (job.public if job.inside is None else job.inside)]
    paid = [job for job in jobs if not job.free]
    text = ";\n".join(question.text for question in plan.questions)
    events = [job.event for job in paid if job.event is not None]

    def name(place: int) -> str:
        return "" if len(jobs) == 1 else f"{place}."

    def measure(engine: Any) -> Any:
        found = [job.measure(engine) for job in jobs if job.measure is not None]
        return {name(i) + node: parts for i, each in enumerate(found) for node, parts in each.items()}

    def restore(stored: Any) -> tuple[NoisyResults, ...]:
        apart = [
            {node.removeprefix(name(i)): parts for node, parts in stored.items() if node.startswith(name(i))}
            for i in range(len(jobs))
        ]
        return tuple(job.restore(each) for job, each in zip(jobs, apart, strict=True) if job.restore is not None)

    return Job(
        jobs[0].technique,
        text,
        events[0] if len(events) == 1 else ComposedEvent(tuple(events)),
        next((job.unit for job in paid), None),
        private,
        measure,
        public,
        jobs[0].canonical if len(jobs) == 1 else "batch of " + ", ".join(job.canonical for job in jobs),
        plan.cost,
        not paid,
        restore=restore,
        inside=tuple(dict.fromkeys(inside)) if paid else None,
        details={"asked": text},
    )


def _read_answers(
    context: Context, plan: BatchPlan, job: Job[Any], measured: tuple[NoisyResults, ...], seconds: float | None
) -> list[NoisyResults]:
    """The measurements of each question from those of the parts; no private row is read."""
    from deniable.dp.samplers import SYSTEM
    from deniable.query.batch import read_answer
    from deniable.query.execute import Reader

    reader, found = Reader(context.scope.attach_public(*job.public), SYSTEM, seconds, {}), []
    for place, question in enumerate(plan.questions):
        part = plan.find_part(place)
        found.append(read_answer(question, place, plan.parts[part], measured[part], reader))
    return found


def _describe_place(plan: BatchPlan, place: int) -> dict[str, Any]:
    part = plan.parts[plan.find_part(place)]
    return {"question": place + 1, "of": len(plan.questions), "share": f"{float(part.share):.6g}",
            "together": [each + 1 for each in sorted(part.questions)], "alone": part.alone}  # fmt: skip


def _tell_part(plan: BatchPlan, place: int) -> list[str]:
    """What an answer says of the batch that it belongs to."""
    part, count = plan.parts[plan.find_part(place)], len(plan.questions)
    if count == 1 or part.plan.free:
        return []
    whole = f"The cost is that of the whole batch of {count} questions."
    if part.alone:
        return [f"{whole} This one is measured alone, with {float(part.share):.3g} of the budget: {part.alone}."]
    return [f"{whole} This one is measured together with {len(part.questions) - 1} more of them.", *_tell_bound(part)]


def _tell_bound(part: BatchPart) -> list[str]:
    """That joined questions share one bound on a person's rows, which may cut off more than the bound of each alone."""
    if part.alone or len(part.questions) == 1:
        return []
    limits = part.plan.nodes[0].steps[0].limits
    if limits.by_row or limits.rows is None:
        return []
    return [
        f"Over all questions that are measured together, a unit counts with at most {limits.rows:,} of its rows. Where "
        "units have more, totals are lower than if each were asked alone; larger bounds (CONTRIBUTION) keep more."
    ]
