"""Synthesize: charge, describe (the last sight of the data), generate, release; each also by itself.

A table is synthesized by itself, or with its people: a sequence of rows for each person, or a parent table and its
children. Rows are those that the asker may see, and columns those that the asker may name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from deniable.curator.charge import (
    FILE_ANEW,
    Form,
    Job,
    JobResult,
    guarantee_of,
    run_job,
    still_charged,
)
from deniable.curator.context import Context
from deniable.curator.publish import note_types, publish_file
from deniable.curator.sources import note_rows_learned, refuse_rows_here
from deniable.engines.base import hold_rows, is_away, quote
from deniable.errors import CHARGED, NOTHING_CHARGED, ParameterError, nearest
from deniable.outputs import claim_outputs, replace_files
from deniable.policy.access import Accounting
from deniable.policy.budget import Amount, Budget, budget, refuse_extreme
from deniable.policy.schema import Neighboring, PrivacyUnit, TableSchema

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.assess.released_rows import Claim
    from deniable.engines.base import Engine
    from deniable.release import Release
    from deniable.synth.encode import RowsElsewhere
    from deniable.synth.inspect import ModelSummary
    from deniable.synth.linked import FamilyModel, LinkedModel
    from deniable.synth.linked.link import Link
    from deniable.synth.model import SynthModel

Progress = Callable[[float], None]
Linked: TypeAlias = "LinkedModel | FamilyModel"
AnyModel: TypeAlias = "SynthModel | LinkedModel | FamilyModel"
Workload = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Order:
    """What is wanted: of which table, by which method, within which budget."""

    table: str
    budget: Budget
    method: str = "auto"
    columns: tuple[str, ...] | None = None
    workload: tuple[tuple[str, ...], ...] = ()
    """Columns that findings are about together."""
    areas: str | None = None
    """The column whose areas add up, for the hierarchical method."""
    linked: bool = False
    """With its people, as the policy links them; of a parent, with the rows of all its children."""
    memory: int = 1
    """How many rows before a row in a sequence it may depend on."""
    identity: str = field(default="", repr=False)
    """The id of the approved request that this fulfills: under it the description is charged once."""


def place_order(
    table: str, epsilon: Amount | None = None, delta: Amount = 0, rho: Amount | None = None, *, method: str = "auto",
    columns: Sequence[str] | None = None, workload: Iterable[Sequence[str]] = (), areas: str | None = None,
    linked: bool = False, memory: int = 1,
) -> Order:  # fmt: skip
    """An order in plain values; a method that costs nothing needs no budget."""
    if memory != 1 and not linked:
        raise ParameterError("memory counts for linked tables alone", remedy="Add --linked, or linked=True")
    stated = budget("0") if method == "random" else refuse_extreme(budget(epsilon, delta, rho))
    wanted = tuple(tuple(names) for names in workload)
    return Order(table, stated, method, None if columns is None else tuple(columns), wanted, areas, linked, memory)


@dataclass(frozen=True, slots=True)
class Source:
    """What is described: the table as the asker may name it, its unit, and the most rows a neighbor may differ by."""

    table: TableSchema
    unit: PrivacyUnit
    most_rows: int


@dataclass(frozen=True, slots=True)
class LinkedSource:
    """What is described of people with their rows: how rows belong to people, and the sources, parents first."""

    links: tuple[Link, ...]
    rows: tuple[Source, ...]
    people: Source | None

    @property
    def sources(self) -> tuple[Source, ...]:
        """All that is read."""
        return (*self.rows, *((self.people,) if self.people else ()))

    @property
    def neighbors(self) -> int:
        """In how many people neighboring tables may differ: 2 where one replaces another."""
        return max(source.most_rows // source.unit.rows_learned for source in self.sources)


def find_source(context: Context, name: str) -> Source:
    """The table, its unit and its bound on rows."""
    table = context.scope.private_table(name)
    unit = table.unit or PrivacyUnit()
    most = unit.rows_learned * (2 if unit.neighboring is Neighboring.REPLACE else 1)
    return Source(table, unit, most)


def bound_rows(engine: Engine, source: Source, columns: tuple[str, ...] | None) -> pa.Table:
    """The rows, at most so many of each unit, chosen by a fresh secret salt."""
    return engine.run(_write_bounded(source, columns, source.table.name))


def _write_bounded(source: Source, columns: tuple[str, ...] | None, name: str) -> str:
    from deniable.synth.describe import render_bounded_select

    return render_bounded_select(replace(source.table, name=name), source.unit, source.unit.rows_learned, columns)


def learn_rows(context: Context, order: Order, source: Source, engine: Engine) -> SynthModel:
    """What is learned of the same rows; those of a table elsewhere are counted there, where all columns can be."""
    from deniable.synth.describe import can_count_elsewhere
    from deniable.synth.encode import RowsElsewhere

    if not is_away(engine, source.table.name) or not can_count_elsewhere(source.table, order.columns):
        return learn_model(context, order, source, bound_rows(engine, source, order.columns))
    with hold_rows(engine, source.table.name, partial(_write_bounded, source, order.columns)) as held:
        return learn_model(context, order, source, RowsElsewhere(held, engine.run))


def read_bounded(context: Context, name: str, columns: tuple[str, ...] | None = None) -> pa.Table:
    """The bounded rows for the steward's own eyes: nothing of them may leave uncharged."""
    source = find_source(context, name)
    refuse_rows_here(source.table, context.scope.sources)
    return bound_rows(context.scope.attach(name), source, columns)


def select_all(table: TableSchema) -> str:
    """The statement that reads every column of a table, in the policy's order."""
    return f"SELECT {', '.join(quote(name) for name in table.names)} FROM {quote(table.name)}"  # noqa: S608  our own words


def refuse_gaussian(context: Context, what: str) -> None:
    """Refuse what is measured with Gaussian noise where a policy adds epsilons up: no delta gives it a price there."""
    budgets = context.policy.budgets
    if budgets is not None and budgets.accounting == Accounting.PURE:
        raise ParameterError(
            f"pure accounting cannot price Gaussian noise, with which {what} are measured, whatever delta is asked",
            expected="A policy that adds up by zcdp or pld, with a delta",
            remedy="Ask the steward to write into the policy: budgets: dataset: {accounting: zcdp, delta: 1e-6}, "
            "beside its epsilon",
            charge=NOTHING_CHARGED,
        )


def plan_description(context: Context, order: Order) -> tuple[Order, Source, Job[SynthModel]]:
    """The order within the asker's columns, its source, and the job that describes it; refuses what cannot be."""
    from deniable.release import Technique
    from deniable.synth.describe import can_count_elsewhere, find_method, price_description, refuse_unsuited
    from deniable.synth.model import read_bytes, write_bytes

    context.admit()
    source = find_source(context, order.table)
    _refuse_unknown_columns(context, order)
    order = replace(order, columns=context.scope.columns_to_describe(order.table, order.columns))
    truths = context.policy.release.truths
    refuse_unsuited(source.table, order.method, order.columns, workload_of(context, order), order.areas, truths)
    if not can_count_elsewhere(source.table, order.columns):
        refuse_rows_here(source.table, context.scope.sources)
    if not find_method(order.method).free:
        refuse_gaussian(context, "synthetic rows")
    event = price_description(order.method, order.budget, source.most_rows)
    job: Job[SynthModel] = Job(
        Technique.DP_SYNTHETIC, repr(order), event, source.unit, (source.table.name,),
        lambda engine: learn_rows(context, order, source, engine),
        cost=order.budget, form=Form(write_bytes, read_bytes),
    )  # fmt: skip
    return order, source, job


def _refuse_unknown_columns(context: Context, order: Order) -> None:
    known = context.policy.table(order.table).names
    for name in (*(order.columns or ()), *(column for wanted in order.workload for column in wanted)):
        if name not in known:
            raise ParameterError(
                f"'{name}' is not a column of '{order.table}'",
                expected=f"Columns: {', '.join(known)}",
                remedy=nearest(name, known),
            )


def learn_model(context: Context, order: Order, source: Source, rows: pa.Table | RowsElsewhere) -> SynthModel:
    """What is learned of bounded rows."""
    from deniable.synth.describe import describe_table

    wanted = {"workload": workload_of(context, order), "areas": order.areas, "truths": context.policy.release.truths}
    rest: Any = {"most_rows": source.most_rows, "columns": order.columns, **wanted}
    return describe_table(rows, source.table, order.budget, order.method, **rest)


def workload_of(context: Context, order: Order) -> Workload:
    """The tables that are asked for: by the order, and by the policy of columns that are described."""
    table = context.policy.table(order.table)
    described = table.names if order.columns is None else order.columns
    return tuple(dict.fromkeys((*order.workload, *context.policy.release.synthesize.select_workload(described))))


def synthesize(
    context: Context,
    order: Order,
    out: Path,
    *,
    rows: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Release:
    """Describe a table and write synthetic rows, the model and the statement."""
    from deniable.synth.generate import check_drawing

    check_drawing(rows, seed)
    with claim_outputs(out, rows=True):
        if order.linked:
            return _synthesize_linked(context, order, out, rows=rows, seed=seed, progress=progress)
        order, _, job = plan_description(context, order)
        result = run_job(context, replace(job, anew=FILE_ANEW), request=order.identity)
        return write_release(context, order, result, out, rows=rows, seed=seed, progress=progress)


@still_charged()
def write_release(context: Context, order: Order, result: JobResult[SynthModel], out: Path, **rest: Any) -> Release:
    """Write rows of a model as a release, with the model beside them: all files, or none."""
    with replace_files(out):
        return _write_release(context, order, result, out, **rest)


def _write_release(
    context: Context, order: Order, result: JobResult[SynthModel], out: Path, *, rows: int | None = None,
    seed: int = 0, progress: Progress | None = None, drawn: pa.Table | None = None, **further: Any,
) -> Release:  # fmt: skip
    """Write rows of a model, or those drawn from it already; `further` are public details of the release."""
    from deniable.release import Provenance, Release, Technique
    from deniable.synth.generate import generate_batches
    from deniable.synth.inspect import describe_model, describe_workload
    from deniable.synth.model import save

    model = result.measured
    passing, types = note_types(generate_batches(model, rows, seed, progress) if drawn is None else drawn)
    made = context.scope.engine.write(passing, out)
    save(model, model_path(out))
    parameters = {"method": order.method, "seed": seed, "table": order.table}
    parameters |= {"request": order.identity} if order.identity else {}
    provenance = Provenance(context.policy.hash, result.versions, parameters, epoch=result.epoch)
    asked = describe_workload(model, workload_of(context, order))
    table, sources = context.policy.table(order.table), context.scope.sources
    brought = note_rows_learned(table, sources, order.columns, drawn is not None)
    details = {"rows": made, **describe_model(model), "asked": asked, **further} | (
        {"notes": brought} if brought else {}
    )
    claimed = guarantee_of(Technique.DP_SYNTHETIC, table.unit, order.budget)
    claim = _claim_rows(context, model, types, made if rows is None else rows)
    rest: Any = {"release": result.release, "charge": CHARGED}
    publish_file(context, out, claim, claimed, provenance, details, **rest)
    return Release(out, claimed, provenance, details)


def _claim_rows(context: Context, model: SynthModel, types: dict[str, pa.DataType | None], rows: int) -> Claim:
    """What is claimed of synthetic rows beside their guarantee: columns, types, how many, and the policy's truths."""
    from deniable.assess.released_rows import Claim

    names = [attribute.name for attribute in model.attributes]
    return Claim({name: types.get(name) for name in names}, rows, truths=context.policy.release.truths)


def describe_to_file(context: Context, order: Order, out: Path) -> ModelSummary:
    """Describe a table and keep the model in a file."""
    from deniable.synth.inspect import (
        AskedModelSummary,
        describe_model,
        describe_workload,
        summarize_linked,
    )
    from deniable.synth.model import SynthModel

    model = learn_and_keep(context, order, out)
    if not isinstance(model, SynthModel):
        return summarize_linked(model)
    columns = context.scope.columns_to_describe(order.table, order.columns)
    asked = describe_workload(model, workload_of(context, replace(order, columns=columns)))
    return AskedModelSummary(**describe_model(model), asked=asked)


def learn_and_keep(context: Context, order: Order, out: Path | None = None) -> AnyModel:
    """The model of a table, or of it with its people: charged before rows are read, kept in a file if one is named."""
    from deniable.synth.linked import save_linked
    from deniable.synth.model import SynthModel, save

    with claim_outputs(out):
        job: Job[Any] = plan_linked(context, order)[1] if order.linked else plan_description(context, order)[2]
        model: AnyModel = run_job(context, job).measured
        if out is not None:
            with still_charged(), replace_files(out):
                save(model, out) if isinstance(model, SynthModel) else save_linked(model, out)
        return model


def load_model(path: str | Path) -> AnyModel:
    """The model in a file, of one table or of people with their rows."""
    from deniable.synth.linked import is_linked_file, load_linked
    from deniable.synth.model import load

    return load_linked(path) if is_linked_file(path) else load(path)


def draw_rows(
    model: AnyModel | str | Path, rows: int | None = None, *, seed: int = 0,
    where: Mapping[str, str] | str | None = None,
) -> pa.Table | dict[str, pa.Table]:  # fmt: skip
    """Rows of a model, or of a model file, in memory; of several tables, people and all rows by the tables' names."""
    from deniable.synth.generate import check_drawing, parse_condition
    from deniable.synth.generate import generate as generate_rows
    from deniable.synth.linked import LinkedModel
    from deniable.synth.linked.generate import generate_family
    from deniable.synth.model import SynthModel

    check_drawing(rows, seed)
    held = load_model(Path(model)) if isinstance(model, str | Path) else model
    only = parse_condition(where) if isinstance(where, str) else where
    if isinstance(held, SynthModel):
        return generate_rows(held, rows, seed, only)
    people, tables = generate_family(held, rows, seed, only)
    if isinstance(held, LinkedModel):
        return tables[0]
    return {str(links_of(held)[0].parent): people, **name_tables(held, tables)}


def links_of(model: Linked) -> tuple[Link, ...]:
    """How the tables of a model belong together."""
    from deniable.synth.linked import LinkedModel

    return (model.link,) if isinstance(model, LinkedModel) else model.links


def name_tables(model: Linked, tables: Iterable[pa.Table]) -> dict[str, pa.Table]:
    """Tables of rows by their names."""
    return {link.child: table for link, table in zip(links_of(model), tables, strict=True)}


def generate(
    path: Path, out: Path, *, rows: int | None = None, seed: int = 0, where: str | None = None,
    progress: Progress | None = None,
) -> int:  # fmt: skip
    """Rows from a model file alone: no data, no budget."""
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.synth.generate import build_condition, generate_batches, parse_condition
    from deniable.synth.model import SynthModel

    with claim_outputs(out, rows=True, beside=[path]):
        model = load_model(path)
        if not isinstance(model, SynthModel):
            return _generate_linked(model, out, rows=rows, seed=seed, where=where, progress=progress)
        only = parse_condition(where) if where is not None else {}
        build_condition(model, only)
        with DuckDBEngine() as engine, replace_files(out):
            return engine.write(generate_batches(model, rows, seed, progress, only), out)


def model_path(out: Path) -> Path:
    """Where the model of a synthetic file stands."""
    return out.with_name(out.name + ".model.json")


def plan_linked(context: Context, order: Order) -> tuple[LinkedSource, Job[Linked]]:
    """The source of people with their rows, and the job that describes all; refuses what cannot be written."""
    from deniable.release import Technique
    from deniable.synth.marginal import convert_budget

    links = _check_links(context, order)
    parent = links[0].parent
    people = find_source(context, parent) if parent else None
    source = LinkedSource(links, tuple(find_source(context, link.child) for link in links), people)
    for each in source.sources:
        refuse_rows_here(each.table, context.scope.sources)
    refuse_gaussian(context, "synthetic rows")
    event = convert_budget(order.budget, source.neighbors * max(link.most for link in links)).event
    job: Job[Linked] = Job(
        Technique.DP_SYNTHETIC, repr(order), event, source.rows[0].unit, tuple(s.table.name for s in source.sources),
        lambda engine: learn_linked(context, order, source, *bound_linked_rows(engine, source)), cost=order.budget,
    )  # fmt: skip
    return source, job


def bound_linked_rows(engine: Engine, source: LinkedSource) -> tuple[pa.Table | None, tuple[pa.Table, ...]]:
    """People, where they have a table, and their rows in each table, at most so many each."""
    people = bound_rows(engine, source.people, None) if source.people else None
    return people, tuple(bound_rows(engine, each, None) for each in source.rows)


def learn_linked(
    context: Context, order: Order, source: LinkedSource, people: pa.Table | None, tables: Sequence[pa.Table]
) -> Linked:
    """What is learned of people and their bounded rows."""
    from deniable.synth.linked import describe_family

    release = context.policy.release
    rest: Any = {"truths": release.truths, "neighbors": source.neighbors}
    rest["workload"] = tuple(dict.fromkeys((*order.workload, *release.synthesize.workload)))
    found = describe_family(tables, people, source.links, order.budget, order.method, **rest)
    return found.children[0] if order.table == source.links[0].child else found


def _check_links(context: Context, order: Order) -> tuple[Link, ...]:
    """How the tables belong together, if they can be described: parents before children."""
    from deniable.synth.describe import find_method
    from deniable.synth.linked.link import check_workload, find_row_keys, link_of, refuse_unlinked

    context.admit()
    if order.areas:
        raise ParameterError("areas are kept in one table, not in people with their rows", remedy="Leave out --areas")
    children = [context.scope.private_table(name) for name in _list_children(context, order.table)]
    if (method := find_method(order.method)).free or method.areas:
        raise ParameterError(f"'{method.name}' does not describe people with their rows", expected="Such as auto")
    parents = [context.scope.private_table(child.parent) if child.parent else None for child in children]
    tables = [*children, *([parents[0]] if parents[0] else [])]
    named = [context.scope.columns_to_describe(each.name, order.columns) for each in tables]
    only = None if None in named else {name for names in named for name in names or ()}
    for name in sorted(only or ()):
        refuse_unlinked(name, [column for each in tables for column in each.names], "its people and rows have")
    only = only and only | {key for child in children for key in find_row_keys(child, parents[0], tables)}
    links = []
    for child, parent in zip(children, parents, strict=True):
        rest: Any = {"memory": order.memory, "root": parent == parents[0]}
        rest["alone"] = sum(each == parent for each in parents) == 1 and len(children) == 1
        links.append(link_of(child, parent, context.policy.release.truths, only, **rest))
    if order.memory > 1 and all(link.sequence is None for link in links):
        raise ParameterError("the rows have no order, so none is before another", remedy="Declare sequence: COLUMN")
    check_workload(links, order.workload)
    return tuple(links)


def _list_children(context: Context, name: str) -> list[str]:
    """The table itself, if the policy links its rows to people; of a parent, its children and theirs."""
    from deniable.synth.linked.link import is_linked

    found, tables = [name], context.policy.tables
    table = context.scope.private_table(name)
    if is_linked(table) and not (table.parent and _is_nested(context, table.parent)):
        return found
    while more := [each.name for each in tables if each.parent in found and each.name not in found]:
        found += more
    if len(found) == 1 or is_linked(table):
        raise ParameterError(
            f"the policy does not link the rows of '{name}' to people",
            remedy="Declare sequence: COLUMN, or parent: TABLE, for that table; of rows that belong to rows, name the "
            "table of people",
        )
    return found[1:]


def _is_nested(context: Context, name: str) -> bool:
    """Whether a table has a parent itself: its rows are not people."""
    return context.scope.private_table(name).parent is not None


def _synthesize_linked(
    context: Context, order: Order, out: Path, *, rows: int | None, seed: int, progress: Progress | None
) -> Release:
    """Describe a table with its people, and write the rows of so many people, their parents, model and statements."""
    source, job = plan_linked(context, order)
    with claim_outputs(*name_order_files(order, source.links, out), rows=True):
        result = run_job(context, job)
        with still_charged(), replace_files(*name_model_files(result.measured, out)):
            made = _write_files(context.scope.engine, result.measured, out, rows, seed, progress)
            return _seal_linked(context, order, result, out, seed, made)


@still_charged()
def write_linked(
    context: Context, order: Order, result: JobResult[Linked], out: Path, people: pa.Table, tables: Iterable[pa.Table],
    *, seed: int, **further: Any,
) -> Release:  # fmt: skip
    """Write people and rows that were drawn already, the model and the statements; `further` are public details."""
    drawn: Iterable[pa.Table] = (*tables, people)
    files = name_model_files(result.measured, out)
    with replace_files(*files):
        paths = zip(files, drawn, strict=False)
        made = {path: _write_noted(context.scope.engine, rows, path) for path, rows in paths}
        return _seal_linked(context, order, result, out, seed, made, **further)


def _seal_linked(
    context: Context, order: Order, result: JobResult[Linked], out: Path, seed: int, made: dict[Path, Written],
    **further: Any,
) -> Release:  # fmt: skip
    """The model and a statement beside each file; the release is that of the rows."""
    from deniable.assess.released_rows import Claim
    from deniable.release import Provenance, Release, Technique
    from deniable.synth.inspect import summarize_linked
    from deniable.synth.linked import save_linked

    save_linked(result.measured, model_path(out))
    parameters = {"method": order.method, "seed": seed, "table": order.table}
    provenance = Provenance(context.policy.hash, result.versions, parameters, epoch=result.epoch)
    claimed = guarantee_of(Technique.DP_SYNTHETIC, context.policy.table(order.table).unit, order.budget)
    files = {path.name: written.rows for path, written in made.items()}
    details = {"rows": made[out].rows, "files": files, **summarize_linked(result.measured), **further}
    truths = context.policy.release.truths
    for path, (rows, types) in made.items():
        claim, stated = Claim(types, rows, truths=truths), {**details, "rows": rows}
        rest: Any = {"release": result.release, "charge": CHARGED}
        publish_file(context, path, claim, claimed, provenance, stated, **rest)
    return Release(out, claimed, provenance, details)


def _generate_linked(
    model: Linked, out: Path, *, rows: int | None = None, seed: int = 0, where: str | None = None,
    progress: Progress | None = None,
) -> int:  # fmt: skip
    """Rows of so many people from a model alone, and the people beside them where they have a table."""
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.synth.generate import parse_condition
    from deniable.synth.linked.generate import build_linked_condition

    only = parse_condition(where) if where is not None else {}
    build_linked_condition(links_of(model), only)
    with DuckDBEngine() as engine, replace_files(*name_model_files(model, out)):
        return _write_files(engine, model, out, rows, seed, progress, only)[out].rows


def _write_files(
    engine: Any, model: Linked, out: Path, people_wanted: int | None, seed: int, progress: Progress | None,
    where: dict[str, str] | None = None,
) -> dict[Path, Written]:  # fmt: skip
    """The files that were written, with their rows: children, and parents beside them under their table's name."""
    from deniable.synth.linked.generate import generate_linked_batches, generate_people_batches

    *tables, people = name_model_files(model, out) if links_of(model)[0].parent else (out, None)
    made = {}
    for place, path in enumerate(tables):
        # Each file is drawn by itself, from the same seed: what is drawn for one never moves another.
        told = progress if place == 0 else None
        drawn = (rows[place] for _, rows in generate_linked_batches(model, people_wanted, seed, told, where))
        made[path] = _write_noted(engine, drawn, path)
    if people is not None:
        made[people] = _write_noted(engine, generate_people_batches(model, people_wanted, seed, where), people)
    return made


class Written(NamedTuple):
    """What was written into a file: how many rows, and columns of which types."""

    rows: int
    types: dict[str, pa.DataType | None]


def _write_noted(engine: Engine, rows: pa.Table | Iterable[pa.RecordBatch], path: Path) -> Written:
    passing, types = note_types(rows)
    return Written(engine.write(passing, path), types)


def name_model_files(model: Linked, out: Path) -> tuple[Path, ...]:
    """Where the tables of a model are written."""
    from deniable.synth.linked import LinkedModel

    return name_files(links_of(model), out, not isinstance(model, LinkedModel))


def name_order_files(order: Order, links: Sequence[Link], out: Path) -> tuple[Path, ...]:
    """Where the tables of an order are written."""
    return name_files(links, out, order.table != links[0].child)


def name_files(links: Sequence[Link], out: Path, of_people: bool) -> tuple[Path, ...]:
    """Where the tables of people with their rows are written: those of rows in their order, then that of people.

    The file that is named holds the table that was asked for: people, or one child's rows. The others stand beside it
    under their tables' names.
    """
    parent = links[0].parent
    if parent is None:
        return (out,)
    beside = [
        out.with_name(table + out.suffix) for table in ([link.child for link in links] if of_people else [parent])
    ]
    if out in beside:
        whose = "a child" if of_people else "the parent"
        raise ParameterError(f"'{out.name}' is the name of {whose}'s file", remedy="Choose another name for -o")
    return (*beside, out) if of_people else (out, *beside)
