"""Local differential privacy: surveys (check, serve, invite, results) and tables randomized record by record."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.charge import Job, JobResult, charge, run_job, still_charged
from deniable.curator.context import Context, find_ledger, ledger_of, open_context
from deniable.curator.governance.reports import LOCAL
from deniable.curator.governance.steward import open_policy
from deniable.curator.publish import find_signing_key, note_published
from deniable.curator.scope import refuse_expired, refuse_twice
from deniable.curator.sources import refuse_rows_here
from deniable.dp.accounting.cost import round_down, shorten
from deniable.errors import BudgetExceeded, DataError, ParameterError
from deniable.outputs import claim_outputs
from deniable.policy.budget import Amount, exact
from deniable.policy.document import Policy, read
from deniable.policy.schema import PrivacyUnit, Role, TableSchema
from deniable.release.record import Record, SparseRecord, to_plain

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.engines.base import Engine
    from deniable.ledger import Receipt
    from deniable.localdp.epsilon_sweep import EpsilonSweep
    from deniable.localdp.records import RecordPlan
    from deniable.localdp.survey.forecast import Forecast
    from deniable.localdp.survey.results import Contrast, JointShare, Results
    from deniable.localdp.survey.service import SurveyService
    from deniable.query.execute import NoisyResults


PLAN = "randomized columns"
TECHNIQUE = "local differential privacy"


@dataclass(frozen=True, slots=True, eq=False)
class RandomizeReport(Record):
    """A table that was randomized record by record: where it is, what is claimed of it, and how it was made."""

    written: str
    rows: int
    words: list[str]
    plan: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """The report for JSON, in which the plan is called as in the statement beside the table."""
        return {"written": self.written, "rows": self.rows, "words": self.words, PLAN: to_plain(self.plan)}


@dataclass(frozen=True, slots=True, eq=False)
class MeanEstimate(Record):
    """A mean with its interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class CountEstimate(Record):
    """How many records have a label, with an interval; None is the label of those without a value."""

    label: str | int | bool | None
    count: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class ColumnEstimate(SparseRecord):
    """What a randomized column still tells: the mean of a number, or the counts of categories."""

    column: str
    mean: MeanEstimate | None = None
    counts: list[CountEstimate] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class GroupEstimate(Record):
    """The mean of a number within one group; None where no record can be told to belong to it."""

    group: str | int | bool | None
    mean: float | None
    low: float
    high: float


@dataclass(frozen=True, slots=True, eq=False)
class CoefficientEstimate(Record):
    """A coefficient of a regression with its interval; without one where the records are too few for any."""

    term: str
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True, eq=False)
class EstimateReport(SparseRecord):
    """What a randomized table still tells, column by column, and means by group where they were asked for."""

    rows: int
    epsilon: float
    confidence: float
    columns: list[ColumnEstimate]
    means: list[GroupEstimate] | None = None
    coefficients: list[CoefficientEstimate] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SurveyCheck(Record):
    """A survey before it is asked: its epsilon, and what each question sends, costs and finds."""

    survey: str
    title: str
    epsilon: float
    respondents: int
    invited: bool
    caution: str
    questions: list[Forecast]


@dataclass(frozen=True, slots=True, eq=False)
class SurveyPage(Record):
    """A survey as its page shows it and as clients read it; each question has words on privacy."""

    format: int
    survey: str
    title: str
    about: str
    contact: str
    invited: bool
    epsilon: float
    period: str
    most_answers: int
    key: dict[str, Any] | None
    """The key that signs tickets, where people answer by invitation."""
    questions: list[dict[str, Any]]

    @property
    def document(self) -> bytes:
        """What clients are served: links pin these very bytes."""
        return json.dumps(self.to_dict(), ensure_ascii=False, separators=(",", ":")).encode()

    @property
    def pin(self) -> str:
        """What a link says of the survey that it was made for."""
        from deniable.localdp.client import pin

        return pin(self.document)


def randomize(
    source: str | None,
    policy_file: Path,
    out: Path,
    epsilon: Amount,
    table: str | None = None,
    columns: Sequence[str] | None = None,
    own: Mapping[str, Amount] | None = None,
    ledger: str | None = None,
) -> RandomizeReport:
    """Randomize a table's columns record by record, and write it with its statement beside it.

    At most so many rows of a person as the policy's unit says are kept, the epsilons of all of them are charged, and
    the same order of the same table gives the same rows again, at no further cost.
    """
    policy = refuse_expired(read(policy_file))
    name = _table_of(policy, source, table)
    with closing(
        open_context(policy, ledger=ledger_of(policy_file, ledger), sources=_sources(policy, name, source))
    ) as context:
        return randomize_rows(context, name, out, epsilon, columns, own, source)


def randomize_rows(
    context: Context,
    name: str,
    out: Path,
    epsilon: Amount,
    columns: Sequence[str] | None = None,
    own: Mapping[str, Amount] | None = None,
    source: str | None = None,
) -> RandomizeReport:
    """`randomize` under a policy that is open: `source` is what stands for the table's own source, if anything."""
    parts = {column: exact(amount, f"epsilon of {column}") for column, amount in (own or {}).items()}
    made = _plan_records(context, name, exact(epsilon, "epsilon"), columns, parts)
    with claim_outputs(out, rows=True):
        with _advise_by_record(context.policy.table(name).unit or PrivacyUnit()):
            result = run_job(context, _randomizing_job(context, name, made, source))
        with still_charged():
            return _write_randomized(context, name, made, result, out)


@contextmanager
def _advise_by_record(unit: PrivacyUnit) -> Iterator[None]:
    """A refusal speaks of what all records of a person cost; what is asked for is the epsilon of one record."""
    try:
        yield
    except BudgetExceeded as refused:
        rows, left = unit.rows_learned, refused.fields.get("remaining")
        if rows > 1 and isinstance(left, float) and left > 0 and refused.remedy.startswith("Ask for at most epsilon"):
            most = shorten(round_down(Fraction(left) / rows, 6))
            refused.remedy = f"{rows} records of one {unit.column} are charged: ask for at most epsilon {most} a record"
        raise


def _sources(policy: Policy, name: str, source: str | None) -> dict[str, str]:
    """The file that stands for a table's own source; none where it is that source, however it is written."""
    if not source:
        return {}
    place = os.path.realpath(source)
    return {} if place == os.path.realpath(policy.path(policy.table(name).source)) else {name: place}


def _plan_records(
    context: Context, name: str, epsilon: Fraction, columns: Sequence[str] | None, parts: Mapping[str, Fraction]
) -> RecordPlan:
    from deniable.localdp import records

    allowed, schema = context.scope.columns_to_release(name, columns), context.policy.table(name)
    # Without names, every column that may leave, can be randomized, and says something of a person does.
    leaving, naming = schema.names if allowed is None else allowed, _list_identifiers(schema)
    if named := [c for c in columns or () if c in naming and records.is_randomizable(schema, c)]:
        raise ParameterError(
            f"column '{named[0]}' only says whose row it is, and would take a part of epsilon",
            expected="Columns that say something of a person",
            remedy="Leave it out",
        )
    chosen = [c for c in leaving if columns is not None or (c not in naming and records.is_randomizable(schema, c))]
    return records.plan_records(schema, epsilon, chosen, parts)


def _list_identifiers(schema: TableSchema) -> set[str]:
    """The columns that say who somebody is: noise makes them worth nothing, and leaves less epsilon for the others."""
    people = None if schema.unit is None else schema.unit.column
    return {column.name for column in schema.columns if column.role is Role.IDENTIFIER or column.name == people}


def _randomizing_job(context: Context, name: str, made: RecordPlan, source: str | None) -> Job[NoisyResults]:
    """Randomizing as a job: priced by all the rows that one person may have, stored as the rows that leave."""
    from deniable.dp.accounting import PureEvent
    from deniable.localdp import records
    from deniable.policy.budget import budget
    from deniable.release import Technique

    refuse_rows_here(context.policy.table(name), context.scope.sources)
    unit, described = context.policy.table(name).unit or PrivacyUnit(), records.describe_plan(made)
    asked = json.dumps(
        [PLAN, name, described, unit.rows_learned, _sources(context.policy, name, source)], sort_keys=True
    )
    total = made.epsilon * unit.rows_learned
    return Job(
        Technique.LOCAL_DP, asked, PureEvent(total), unit, (name,),
        lambda engine: _randomize_rows(context, engine, name, made),
        canonical=asked, cost=budget(total), details={LOCAL: str(total)},
    )  # fmt: skip


def _randomize_rows(context: Context, engine: Engine, name: str, made: RecordPlan) -> NoisyResults:
    """The rows that leave, in random order: at most so many of each person, chosen by a fresh secret salt."""
    from deniable.dp.samplers import permutation
    from deniable.localdp import records
    from deniable.query.execute import Noisy
    from deniable.synth.describe import render_bounded_select

    schema = context.policy.table(name)
    unit, columns = schema.unit or PrivacyUnit(), tuple(column.name for column in made.columns)
    rows = engine.run(render_bounded_select(schema, unit, unit.rows_learned, columns))
    told = records.randomize(made, rows)
    return {PLAN: (Noisy(told.take(permutation(told.num_rows)), ()),)}


def _write_randomized(
    context: Context, name: str, made: RecordPlan, result: JobResult[NoisyResults], out: Path
) -> RandomizeReport:
    from deniable.localdp import records
    from deniable.release import Guarantee, Provenance, Release, write_release

    unit, described = context.policy.table(name).unit or PrivacyUnit(), records.describe_plan(made)
    rows = result.measured[PLAN][0].keys
    provenance = Provenance(context.policy.hash, result.versions, {PLAN: described}, epoch=result.epoch)
    protected = _describe_protected(unit)
    claimed = Guarantee.local(protected, made.epsilon * unit.rows_learned)
    released = Release(rows, claimed, provenance)
    statement = write_release(released, out, context.scope.engine, key=find_signing_key(context))
    note_published(context, statement, result.release)
    words = [f"Protected is {protected}.", *statement.words]
    return RandomizeReport(str(out), rows.num_rows, words, described)


def _describe_protected(unit: PrivacyUnit) -> str:
    """Whom a randomized table protects, and in what."""
    if unit.is_row:
        return "what one row says (not that it is there)"
    most = f"at most {unit.rows_learned} kept" if unit.rows_learned > 1 else "one kept"
    return f"what the rows of one {unit.column} say, {most} (not that they are there)"


@contextmanager
def _open_table(policy: Policy, name: str, source: str | None, ledger: str | None) -> Iterator[tuple[Context, Engine]]:
    """The table without whoever withdrew, within the policy's sample; `source` is another file of it."""
    with (
        closing(open_context(policy, ledger=ledger)) as context,
        context.scope.open_rows({name: name}, sources=_sources(policy, name, source)) as engine,
    ):
        yield context, engine


def _table_of(policy: Policy, source: str | None, table: str | None) -> str:
    """The table meant: by its name, by the file's name, or the only one there is."""
    if table is not None:
        return policy.table(table).name
    named = [each.name for each in policy.private if source and Path(each.source).name == Path(source).name]
    known = named or [each.name for each in policy.private]
    if len(known) == 1:
        return known[0]
    raise ParameterError("it is not clear which table is meant", remedy=f"Say --table: {', '.join(known)}")


def _select_columns(made: RecordPlan, name: str) -> str:
    from deniable.engines.base import quote

    return f"SELECT {', '.join(quote(column.name) for column in made.columns)} FROM {quote(name)}"  # noqa: S608  names


def estimate_released(
    file: Path,
    confidence: float = 0.95,
    number: str | None = None,
    by: str | None = None,
    regress: str | None = None,
    on: Sequence[str] = (),
) -> EstimateReport:
    """Counts and means that a randomized table still tells, and a regression, with intervals."""
    from deniable.localdp import postprocessing, records

    refuse_twice(on)
    made, rows = _read_release(file)
    columns, means = [_column(one, confidence) for one in records.recover(made, rows)], None
    if number is not None and by is not None:
        groups = records.estimate_means_by(made, rows, number, by)
        means = [GroupEstimate(label, mean.value, *mean.interval(confidence)) for label, mean in groups]
    elif number is not None or by is not None:
        raise ParameterError("a mean by group needs two columns", expected="Both --mean and --by")
    coefficients = None
    if regress is not None or on:
        found = postprocessing.regress(made, rows, regress or "", on, confidence)
        coefficients = [CoefficientEstimate(one.term, one.value, *(one.interval or (None, None))) for one in found]
    return EstimateReport(rows.num_rows, float(made.epsilon), confidence, columns, means, coefficients)


def _read_release(file: Path) -> tuple[RecordPlan, pa.Table]:
    """The plan in a released table's statement, and its rows, after checking that neither was changed."""
    from deniable.assess.released_rows import unescape_texts
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.localdp.records import parse_plan
    from deniable.release import verify

    parameters = verify(file).body["provenance"]["parameters"]
    if PLAN not in parameters:
        raise DataError("this release was not randomized record by record", remedy="Name what `randomize` wrote")
    with DuckDBEngine() as engine:
        engine.attach("released", str(file.absolute()))
        rows = engine.run("SELECT * FROM released")
    return parse_plan(parameters[PLAN]), unescape_texts(rows) if file.suffix.lower() == ".csv" else rows


def _column(one: Any, confidence: float) -> ColumnEstimate:
    if one.mean is not None:
        return ColumnEstimate(one.column, _mean(one.mean, confidence))
    low, high = one.counts.interval(confidence)
    rows = zip(one.labels, one.counts.counts.tolist(), low.tolist(), high.tolist(), strict=True)
    return ColumnEstimate(one.column, counts=[CountEstimate(*row) for row in rows])


def _mean(mean: Any, confidence: float) -> MeanEstimate:
    low, high = mean.interval(confidence)
    return MeanEstimate(mean.value, low, high)


def sweep_epsilon(
    source: str | None,
    policy_file: Path,
    label: str,
    features: Sequence[str],
    epsilons: Sequence[Amount],
    acceptable: float,
    table: str | None = None,
    repeats: int = 5,
    progress: Callable[[float], None] | None = None,
    ledger: str | None = None,
) -> EpsilonSweep:
    """Train at decreasing epsilon; the smallest epsilon whose accuracy is acceptable."""
    from deniable.localdp.epsilon_sweep import sweep_epsilons as climbed
    from deniable.localdp.records import plan_records

    policy = refuse_expired(read(policy_file))
    schema = policy.table(_table_of(policy, source, table))
    amounts = [exact(epsilon, "epsilon") for epsilon in epsilons]
    if not amounts:
        raise ParameterError(
            "There is no epsilon to try", expected="Numbers such as 4,2,1", remedy="Name some epsilons"
        )
    if not 0 <= acceptable <= 1:
        raise ParameterError("The accuracy that is acceptable is not a share", expected="A number from 0 to 1")
    with _open_table(policy, schema.name, source, find_ledger(policy_file, ledger)) as (context, engine):
        columns = context.scope.columns_to_release(schema.name, (label, *features))
        needed = plan_records(schema, max(amounts), columns)
        rows = engine.run(_select_columns(needed, schema.name))
    return climbed(schema, rows, label, features, amounts, acceptable, repeats, progress=progress)


MOST_INVITATIONS = 1_000_000


def check_survey(file: Path, respondents: int = 1000) -> SurveyCheck:
    """What a survey will ask, send and find with so many respondents; or every mistake with its line."""
    from deniable.localdp.client import ALLOWANCE
    from deniable.localdp.survey.definition import read_survey
    from deniable.localdp.survey.forecast import forecast

    survey = read_survey(file)
    questions = [forecast(question, respondents) for question in survey.questions]
    epsilon, caution = float(survey.epsilon), ""
    if epsilon > ALLOWANCE:
        caution = f"devices tell at most epsilon {ALLOWANCE:g} in a month: nobody can answer all of these questions"
    return SurveyCheck(survey.identity, survey.title, epsilon, respondents, survey.invited, caution, questions)


# a dictionary: what clients read of each question, by its name
def list_questions(file: Path) -> dict[str, dict[str, Any]]:
    """The questions of a survey as clients read them, by name."""
    from deniable.localdp.survey.definition import read_survey

    return {question.name: question.describe() for question in read_survey(file).questions}


def default_store(file: Path) -> Path:
    """Where responses rest unless told otherwise: beside the survey file."""
    return file.with_suffix(".responses")


def open_service(file: Path, store: str | None = None) -> SurveyService:
    """The service of a survey over its store."""
    from deniable.localdp.survey.definition import read_survey
    from deniable.localdp.survey.service import open_service as opened

    return opened(read_survey(file), store or default_store(file))


def invite(file: Path, count: int, address: str, store: str | None = None) -> list[str]:
    """Links for so many invited people; each lets one response in, and pins the survey it was made for."""
    if not 1 <= count <= MOST_INVITATIONS:
        raise ParameterError(f"{count} invitations", expected=f"1 to {MOST_INVITATIONS}")
    service = open_service(file, store)
    if not service.survey.invited:
        raise ParameterError("anyone may answer this survey", remedy="Write `respondents: invited` into its file")
    link = link_to(service, address)
    return [f"{link}.{invitation}" for invitation in service.invitations(count)]


def link_to(service: SurveyService, address: str) -> str:
    """The link to a survey, which pins it."""
    return f"{address.rstrip('/')}/#{page_of(service).pin}"


def describe_damage(responses: int, invitations: int = 0) -> str:
    """What damaged records of a store mean, in words; nothing where there are none."""
    parts = []
    if responses:
        records = "record is" if responses == 1 else "records are"
        parts.append(
            f"{responses:,} stored {records} damaged and not counted: cut short by a stop of the server, before anybody"
            " was thanked, or changed on the disk since."
        )
    if invitations:
        used = "invitation is" if invitations == 1 else "invitations are"
        parts.append(f"{invitations:,} used {used} damaged: whoever holds one of them can take another ticket.")
    return " ".join(parts)


@dataclass(frozen=True, slots=True)
class SurveyReport:
    """The results of a survey and, where asked for, the differences between groups."""

    results: Results
    contrasts: tuple[Contrast, ...] = ()
    joint: tuple[JointShare, ...] = ()
    weighted: tuple[JointShare, ...] = ()


def read_results(
    file: Path,
    store: str | None = None,
    confidence: float = 0.95,
    by: str | None = None,
    of: str | None = None,
    before: str | None = None,
    joint: Sequence[str] = (),
    totals: Sequence[float] = (),
) -> SurveyReport:
    """Estimates with intervals from all stored responses.

    `of` is compared between the groups that `by` forms, or with an earlier round whose store is `before`; with `totals`
    of those groups it is weighted by them. `joint` are two or three questions whose combinations are counted.
    """
    from deniable.localdp.survey.definition import read_survey
    from deniable.localdp.survey.results import contrast_groups, contrast_waves, estimate_joint, estimate_weighted
    from deniable.localdp.survey.results import estimate_results as estimated
    from deniable.localdp.survey.service import open_store, read_bodies

    if (of is None) != (by is None and before is None) or (by and before):
        raise ParameterError("a comparison needs two sides", expected="Both --by and --of, or --before and --of")
    survey = read_survey(file)
    bodies, damaged = read_bodies(survey, open_store(store or default_store(file), survey, writable=False))
    found = estimated(survey, bodies, confidence, damaged=damaged)
    contrasts: tuple[Contrast, ...] = contrast_groups(survey, bodies, by, of) if by and of else ()
    if before and of:
        earlier, damaged_before = read_bodies(survey, open_store(before, survey, writable=False))
        found = replace(found, damaged=damaged + damaged_before)
        contrasts = contrast_waves(survey, bodies, earlier, of)
    together = estimate_joint(survey, bodies, joint, confidence) if joint else ()
    weighted: tuple[JointShare, ...] = ()
    if by and of and totals:
        weighted = estimate_weighted(survey, bodies, of, by, totals, confidence)
    return SurveyReport(found, contrasts, together, weighted)


def record_results(report: SurveyReport, file: Path, policy: Path, ledger: str | None = None) -> Receipt:
    """Write to a ledger that results leave: under local privacy, shown beside what budgets bound.

    The same survey with as many responses is recorded once, however often its results are looked at.
    """
    from deniable.localdp.survey.definition import read_survey

    survey, found = read_survey(file), report.results
    request = f"survey {survey.identity} {found.responses}"
    facts: dict[str, Any] = {LOCAL: str(survey.epsilon), "survey": survey.identity, "responses": found.responses}
    with open_policy(policy, ledger) as context:
        return charge(context, Job(TECHNIQUE, request, None, "one response", (), details=facts), request=request)


def page_of(service: SurveyService) -> SurveyPage:
    """What the survey's page shows: the description that clients get, with words on privacy for each question."""
    from deniable.localdp.survey.forecast import describe_deniability, describe_message
    from deniable.localdp.survey.service import EXPONENT

    described, signer = service.survey.describe(), service.signer
    key = {"modulus": f"{signer.modulus:x}", "exponent": EXPONENT} if signer else None
    questions = [
        {**shown, "leaves": describe_message(question), "deniable": describe_deniability(question)}
        for shown, question in zip(described["questions"], service.survey.questions, strict=True)
    ]
    return SurveyPage(**{**described, "questions": questions, "key": key})


def client_file(name: str) -> bytes:
    """A client file (client.py, client.mjs, vectors.json) as it is handed to other developers."""
    from importlib.resources import files

    return files("deniable.localdp").joinpath(name).read_bytes()
