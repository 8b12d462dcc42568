"""A k-anonymous release before and after it is made: what it is made from, and where it goes; and the ledger.

Everything that can be wrong in what was asked is found first (`rehearse`), so that a mistake leaves the ledger and the
folder as they are: hierarchies are built, weights and models laid beside the columns, files that are named are read.
The release goes to a file with its statement and its recoding, or to memory. What was written is certified before
anything is stated of it. Rows leave in a random order: in the table's own, two releases of it could be paired line by
line."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.anonymize import releases
from deniable.curator.anonymize.check import list_ancestors
from deniable.curator.anonymize.request import (
    COUNT,
    PERSON,
    TABLE,
    Order,
    Roles,
    demands,
    find_protected,
    population_of,
    rows_to_release,
    statement,
)
from deniable.curator.publish import (
    MEASURED,
    certify_rows,
    gate_attacks,
    gate_joint_exposure,
    note_acceptance,
    publish_staged,
)
from deniable.engines.base import is_counted
from deniable.errors import ParameterError
from deniable.policy.schema import PrivacyUnit, Role
from deniable.storage import stage_file

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.assess.exposure import JointExposure
    from deniable.assess.released_rows import Ancestors, Claim
    from deniable.curator.context import Context
    from deniable.engines.base import Engine
    from deniable.kanonymity.microaggregation import Aggregated
    from deniable.kanonymity.recoding import Recoder, Recoding
    from deniable.kanonymity.request import Prepared, Request
    from deniable.policy.schema import Spec
    from deniable.release import Guarantee, Provenance, Release, Statement


@dataclass(frozen=True, slots=True)
class Work:
    """All that one release is made with."""

    engine: Engine
    context: Context | None
    order: Order
    roles: Roles
    request: Request
    technique: str = ""
    """How it is named in the ledger."""
    person: str | None = None
    """The column that tells people apart, if they are protected; the request has it where somebody has several rows."""
    whose: list[pa.ChunkedArray] = field(default_factory=list, repr=False)
    """Whose the rows are that were written, in their order; people are counted by it, and it does not leave."""
    back: list[pa.Table] = field(default_factory=list, repr=False)
    """The rows as they were read back from the file, where they were."""
    staged: dict[Path, Path] = field(default_factory=dict)
    """The files that were written under other names until they may leave, and the names that they get then."""


def hold_counts(engine: Engine, context: Context | None, order: Order, roles: Roles) -> list[str]:
    """Hold of a table elsewhere how many rows have each combination of the columns that matter, counted there.

    Rows are brought here instead, and a warning says so, where a person may have several, where the policy has its
    own attacks run, which need the original, or where the table's order or sample is to be kept.
    """
    from deniable.curator.sources import note_rows_fetched

    schema = roles.schema
    away = [] if context is None or schema is None else note_rows_fetched(schema, context.scope.sources)
    if not away or order.source is not None:
        return []
    assert context is not None
    from deniable.engines.fetching import FetchingEngine

    there = engine.find_counting(TABLE) if isinstance(engine, FetchingEngine) else None
    limits, person = context.policy.release.attack, find_protected(engine, order, roles, order.person)
    attacked = limits is not None and bool(limits.most)
    if there is None or attacked or order.keep_order:
        return away
    assert isinstance(engine, FetchingEngine)
    return [] if engine.hold_counts(TABLE, _list_columns_needed(context, order, roles), person) else away


def _list_columns_needed(context: Context, order: Order, roles: Roles) -> set[str]:
    """The columns that leave, that models are about, or that earlier releases showed."""
    assert roles.schema is not None
    asked = demands(context.policy, order.asked)
    models = {str(value) for model in asked.models for value in model.options.values()}
    before = releases.find_earlier(context, roles.schema.name, order)
    shown = {name for each in before if each is not None for name in (*each.names, *(each.shown or ()))}
    left = {name for name in roles.schema.names if name not in roles.identifiers}
    return {*left, *roles.quasi_identifiers, *roles.sensitive, *asked.l, *asked.t, *models, *shown}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ready:
    """What a release is made from: rows, or their counts by the columns that matter, and the problem they pose."""

    rows: pa.Table
    before: tuple[Recoding | None, ...] = ()
    """Earlier releases of the table."""
    prepared: Prepared | None = None
    population: pa.Table | None = None
    aggregated: Aggregated | None = None


def rehearse(work: Work, table: str) -> Ready:
    """Make ready what was asked, or refuse it; `table` is the name under which releases are remembered."""
    if work.context is not None:
        work.context.admit()
    before = releases.find_earlier(work.context, table, work.order)
    if work.order.method == "microaggregate":
        return replace(_aggregate(work), before=before)
    _refuse_weights(work)
    found = _count_rows(work) if work.order.method == "optimal" else _read_rows(work)
    return replace(found, before=before)


def _refuse_weights(work: Work) -> None:
    """Refuse weights of columns that are not generalized, also where the method weighs none."""
    from deniable.errors import nearest

    known = work.request.quasi_identifiers
    for name, weight in work.order.weights.items():
        if name not in known:
            expected = nearest(name, known) or "A quasi-identifier"
            raise ParameterError(f"A weight is given for '{name}'", expected=expected)
        if not weight >= 0:
            raise ParameterError(f"The weight of '{name}' is {weight}", expected="Weights are 0 or more")
    if known and sum(work.order.weights.get(name, 1.0) for name in known) <= 0:
        raise ParameterError("All weights are 0", expected="At least one column with a weight above 0")


def _count_rows(work: Work) -> Ready:
    """The rows counted by what they are judged by, which is enough to search one level for each column."""
    from deniable.kanonymity.request import prepare

    engine, request = work.engine, work.request
    population = population_of(engine, work.order, request)
    people = () if request.person is None else (request.person,)
    named = tuple(dict.fromkeys((*request.quasi_identifiers, *request.sensitive, *people)))
    counted = engine.run(statement("SELECT {}, COUNT(*) AS {} FROM {} GROUP BY ALL", named, COUNT, TABLE))
    prepared = prepare(counted, request, work.roles.hierarchies, population=population, counts=COUNT)
    return Ready(counted, prepared=prepared, population=population)


def _read_rows(work: Work) -> Ready:
    from deniable.kanonymity.request import prepare

    table = _read_table(work)
    population = population_of(work.engine, work.order, work.request)
    prepared = prepare(table, work.request, work.roles.hierarchies, population=population)
    return Ready(table, prepared=prepared, population=population)


def _read_table(work: Work) -> pa.Table:
    person = find_protected(work.engine, work.order, work.roles, work.person)
    return work.engine.run(rows_to_release(work.roles, work.engine, person=person))


def _aggregate(work: Work) -> Ready:
    """Numbers replaced by the means of groups of k."""
    from deniable.kanonymity.microaggregation import microaggregate
    from deniable.kanonymity.models import KAnonymity

    first, *others = work.request.models
    if others or not isinstance(first, KAnonymity):
        asked = ", ".join(str(each) for each in work.request.models if not isinstance(each, KAnonymity))
        raise ParameterError(f"Microaggregation makes groups of k rows, and knows no other model; {asked} is asked too",
                             remedy="Leave the other models out, or use --method mondrian")  # fmt: skip
    if first.person is not None:
        rows = "Leave --person out" if work.order.person is not None else "Count rows with --count-rows"
        raise ParameterError("Microaggregation makes groups of k rows, and k is to be counted in people",
                             expected="Rows are counted, or another method",
                             remedy=f"{rows}, or use --method mondrian")  # fmt: skip
    table = _read_table(work)
    return Ready(table, aggregated=microaggregate(table, work.request.quasi_identifiers, first.k))


@dataclass(frozen=True, slots=True)
class Made:
    """Rows that were made, where they are, what is told of them, and the recoding if there is one for all."""

    rows: pa.Table | Path = field(repr=False)
    details: dict[str, Any]
    recoding: Recoding | None = None
    lattice: list[dict[str, Any]] = field(default_factory=list)
    starred: bool = False
    population: pa.Table | None = field(default=None, repr=False)
    """The cells of the population as the release would write them."""
    people: pa.Table | None = field(default=None, repr=False)
    """The cells of all rows, and whose they are, where classes are counted in people."""


def record_release(work: Work) -> str:
    """Write to the ledger that rows leave without a formal guarantee, and say the id of the release.

    Call it when nothing can be refused any more, and before the rows have the name under which they leave.
    """
    schema, context = work.roles.schema, work.context
    if schema is None or context is None:
        return ""
    from deniable.curator.charge import FILE_ANEW, Job, charge

    details = {"method": work.technique, **note_acceptance(context)}
    job: Job[None] = Job(
        "k-anonymity", "", None, schema.unit or PrivacyUnit(), (schema.name,), details=details, anew=FILE_ANEW
    )
    return charge(context, job, request=work.order.identity).release


FEW_CELLS = 1_000_000
"""Values of a table that is put into another order in memory; a larger one the engine sorts, on disk if need be."""


def recode_rows(work: Work, recoder: Recoder, count: int, person: str | None) -> pa.Table | Iterable[pa.RecordBatch]:
    """So many rows to release, recoded: all at once where they are few, else a stream in a random order."""
    import pyarrow as pa

    engine = work.engine
    few = 0 < count * len(engine.describe(TABLE)) <= FEW_CELLS
    read = rows_to_release(work.roles, engine, shuffled=not few and not work.order.keep_order, person=person)
    if not few:
        return recoder.stream(engine.stream(read))
    return pa.Table.from_batches(list(recoder.stream(engine.run(read).combine_chunks().to_batches())))


def put_rows(work: Work, rows: pa.Table | Iterable[pa.RecordBatch]) -> pa.Table | Path:
    """Write the rows beside where the order says, where they wait until they may leave.

    A stream is read in a random order already; a table is put into one here. The column that says whose the rows are
    is kept behind.
    """
    import pyarrow as pa

    out, whole = work.order.out, isinstance(rows, pa.Table)
    mixed = _keep_people(work, shuffle_rows(rows) if whole and not work.order.keep_order else rows)
    if out is None:
        return mixed if isinstance(mixed, pa.Table) else pa.Table.from_batches(list(mixed))
    staged = stage_file(out)
    work.engine.write(mixed, staged)
    work.staged[staged] = out
    return staged


def _keep_people(work: Work, rows: pa.Table | Iterable[pa.RecordBatch]) -> pa.Table | Iterable[pa.RecordBatch]:
    """Rows without the column that says whose they are, which is remembered."""
    import pyarrow as pa

    def part(held: pa.Table) -> pa.Table:
        if PERSON not in held.column_names:
            return held
        work.whose.append(held[PERSON])
        return held.drop_columns([PERSON])

    if isinstance(rows, pa.Table):
        return part(rows)
    # A batch without rows shows the columns, and must not be lost on the way.
    parted = (part(pa.Table.from_batches([batch])) for batch in rows)
    return (batch for each in parted for batch in each.to_batches() or [pa.RecordBatch.from_pylist([], each.schema)])


def shuffle_rows(rows: pa.Table) -> pa.Table:
    """All rows in an order that the operating system's entropy chooses."""
    import numpy as np
    import pyarrow as pa

    places = np.frombuffer(secrets.token_bytes(8 * rows.num_rows), np.uint64)
    return rows.take(pa.array(np.argsort(places)))


def join_parts(columns: Iterable[pa.ChunkedArray]) -> pa.ChunkedArray:
    """Parts of a column as one."""
    import pyarrow as pa

    return pa.chunked_array([part for held in columns for part in held.chunks])


def attach_released(work: Work, rows: pa.Table | Path, name: str) -> pa.Table:
    """The released rows, read as whoever receives them reads them."""
    work.engine.attach(name, rows.absolute() if isinstance(rows, Path) else rows)
    return work.engine.run(statement("SELECT * FROM {}", name))


def measure_jointly(work: Work, made: Made) -> JointExposure | None:
    """What all released columns together single out, told in one sentence; refused beyond the policy's limit."""
    import pyarrow as pa

    from deniable.assess.exposure import JOINT_ROWS, Whose
    from deniable.assess.released_rows import read_released

    name, rows, people = "released jointly", made.rows, "people released jointly"
    whose = join_parts(work.whose) if work.whose else None
    if made.details["released"] <= JOINT_ROWS:
        told = read_released(rows)
        work.back[:] = [told] if isinstance(rows, Path) else []
        columns = told.column_names
        told = told if whose is None else told.append_column(PERSON, whose)
        unit = None if whose is None else PERSON
        return gate_joint_exposure(work.context, work.engine, name, columns, unit, told)
    work.engine.attach(name, rows.absolute() if isinstance(rows, Path) else rows)
    columns = [field.name for field in work.engine.describe(name)]
    if whose is None:
        return gate_joint_exposure(work.context, work.engine, name, columns, None)
    work.engine.attach(people, pa.table({PERSON: whose}))
    return gate_joint_exposure(work.context, work.engine, name, columns, Whose(people, PERSON))


def attack_released(work: Work, made: Made) -> None:
    """Note for the statement what the attacks expose that the policy limits; refused beyond a limit."""

    def read() -> Mapping[str, Any]:
        rows, unit = attach_released(work, made.rows, "released to be attacked"), None
        if work.whose:
            rows, unit = rows.append_column(PERSON, join_parts(work.whose)), PERSON
        original = work.engine.run(statement("SELECT * FROM {}", TABLE))
        return {"release": rows, "original": original, "unit": unit, "recoding": made.recoding}

    name = work.roles.schema.name if work.roles.schema else ""
    if (found := gate_attacks(work.context, name, read)) is not None:
        made.details["attacks"] = found.to_dict()


def keep_recoding(work: Work, recoding: Recoding) -> None:
    """Write the recoding beside the file, if there is one; it counts sensitive values, and is for the steward alone."""
    from deniable.kanonymity.recoding import path_of_recoding, write_recoding

    if work.order.out is not None and (work.context is None or work.context.asker is None):
        staged, kept = (path_of_recoding(path) for path in (stage_file(work.order.out), work.order.out))
        write_recoding(recoding, staged)
        work.staged[staged] = kept


def publish_rows(
    work: Work, rows: pa.Table | Path, claim: Claim, guarantee: Guarantee, provenance: Provenance, details: Any
) -> Statement:
    """Certify the rows that were written, tell the ledger, and let them leave with their statement."""
    out = work.order.out
    assert out is not None
    found = certify_rows(work.back[0] if work.back else rows, claim)
    release = record_release(work)
    return publish_staged(work.context, out, work.staged, found, guarantee, provenance, details, release=release)


def build_claim(work: Work, made: Made) -> Claim:
    """What is claimed of the rows, in words of the request and figures read from the table again."""
    from deniable.assess.released_rows import Claim
    from deniable.kanonymity.request import to_spec

    request, engine = work.request, work.engine
    models = tuple(to_spec(model) for model in request.models)
    about = list_columns_counted(request)
    return Claim(
        _expect_columns(work),
        engine.count(TABLE),
        made.details["suppressed"],
        made.starred,
        request.quasi_identifiers,
        request.sensitive if made.starred else about,
        models,
        {name: count_column(engine, name, request.person) for name in about},
        {name: _list_ancestors(work, name) for name in about if name in work.roles.hierarchies},
        made.population,
        made.people,
        hidden=_read_identifiers(work),
    )


MOST_IDENTIFIERS = 1_000_000
"""Values of an identifier that released columns are compared with."""


def _read_identifiers(work: Work) -> dict[str, pa.Array]:
    """The values of the columns that are declared as identifiers, or named as such."""
    schema, engine = work.roles.schema, work.engine
    declared = [each.name for each in schema.columns if each.role is Role.IDENTIFIER] if schema is not None else []
    there = {field.name for field in engine.describe(TABLE)}
    names = [name for name in dict.fromkeys((*declared, *work.order.identifiers)) if name in there]
    if is_counted(engine, TABLE):
        return {name: engine.list_values(TABLE, name, MOST_IDENTIFIERS) for name in names}  # type: ignore[attr-defined]
    asked = "SELECT DISTINCT {} FROM {} LIMIT " + str(MOST_IDENTIFIERS)  # noqa: S608  our own words
    return {name: engine.run(statement(asked, name, TABLE)).column(0).combine_chunks() for name in names}


def _expect_columns(work: Work) -> dict[str, pa.DataType | None]:
    """The columns that are to leave, with the types of those that leave as they are."""
    shape = work.engine.run(rows_to_release(work.roles) + " LIMIT 0").schema
    gone, changed = work.request.identifiers, work.request.quasi_identifiers
    return {each.name: None if each.name in changed else each.type for each in shape if each.name not in gone}


def list_columns_counted(request: Request) -> tuple[str, ...]:
    """The sensitive columns that a model of a request is about."""
    named = (str(column) for model in request.models if (column := getattr(model, "column", None)))
    return tuple(dict.fromkeys(named))


def count_column(engine: Engine, name: str, person: str | None = None) -> pa.Table:
    """The values of a column in their order, how often each occurs, and with people in rows of how many."""
    from deniable.assess.released_rows import count_values

    if person is None:
        words = "SELECT {} AS value, COUNT(*) AS count FROM {} GROUP BY ALL ORDER BY value NULLS LAST"
        return engine.run(statement(words, name, TABLE))
    rows = engine.run(statement("SELECT {}, {} FROM {}", name, person, TABLE))
    return count_values(rows.column(0), rows.column(1))


def _list_ancestors(work: Work, name: str) -> Ancestors:
    values = count_column(work.engine, name)["value"]
    return list_ancestors(work.roles.hierarchies[name], name, values)


def seal_release(work: Work, made: Made) -> tuple[Release, dict[str, Any]]:
    """Certify the rows and state what is claimed of them: the release, and the report for the steward."""
    from deniable.kanonymity.request import to_spec
    from deniable.release import Release

    order, request, context, details = work.order, work.request, work.context, made.details
    parameters = {"method": order.method, "quasi_identifiers": list(request.quasi_identifiers), "form": order.form}
    provenance = state_provenance(work.engine, context, parameters)
    guarantee = claim_models((to_spec(model) for model in request.models), work.person)
    # What is learned together with other releases is for the steward, not for whoever receives this one.
    stated = {name: value for name, value in details.items() if name != "composition"}
    if context is not None and context.asker is not None:
        details = stated
    claim = build_claim(work, made)
    if order.out is None:
        details = details | {MEASURED: certify_rows(made.rows, claim).to_dict()}
        record_release(work)
        return Release(made.rows, guarantee, provenance, details), details
    sealed = publish_rows(work, made.rows, claim, guarantee, provenance, stated)
    details = details | {MEASURED: sealed.body["details"][MEASURED]}
    told = {"output": str(order.out), "statement": str(sealed.path), "words": list(sealed.words)}
    return Release(order.out, guarantee, provenance, details), details | told


def state_provenance(engine: Engine, context: Context | None, parameters: Mapping[str, object]) -> Provenance:
    """Where a release came from. Its rows are named by a digest under the steward's key, or not at all without one."""
    from deniable.release import Provenance

    if context is None:
        return Provenance(None, {}, parameters)
    versions = {TABLE: context.scope.seal_version(TABLE, engine.data_version(TABLE))}
    return Provenance(context.policy.hash, versions, parameters, epoch=context.epoch)


def claim_models(models: Iterable[Spec], person: str | None = None) -> Guarantee:
    """What a release claims that meets these models, of rows or of people whom a column tells apart."""
    from deniable.release import Guarantee, Property

    return Guarantee.syntactic(
        tuple(
            Property(spec.kind.replace("_", "-"), tuple((name, str(value)) for name, value in spec.options.items()))
            for spec in models
        ),
        str(PrivacyUnit(person)),
    )
