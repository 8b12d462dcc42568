"""The workflow of a k-anonymous release: roles, counts by quasi-identifiers, search, recoding in a stream, statement.

The rows are counted by the engine and streamed through the recoding, so that memory is bounded by the distinct
combinations of quasi-identifiers. Local recodings need the rows at hand. Added rows and maps are released here too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.anonymize import check, releases
from deniable.curator.anonymize.output import (
    Made,
    Ready,
    Work,
    attach_released,
    attack_released,
    build_claim,
    claim_models,
    count_column,
    hold_counts,
    keep_recoding,
    list_columns_counted,
    measure_jointly,
    publish_rows,
    put_rows,
    recode_rows,
    rehearse,
    seal_release,
    state_provenance,
)
from deniable.curator.anonymize.request import (
    COUNT,
    PERSON,
    TABLE,
    Asked,
    Order,
    Roles,
    check_columns,
    demands,
    draft_hierarchy,
    find_person,
    find_protected,
    open_order,
    open_table,
    refuse_target,
    refuse_unknown,
    request_for,
    roles_of,
    rows_to_release,
    statement,
)
from deniable.curator.publish import tell_charge
from deniable.errors import AccessRefused, ParameterError, check_seconds
from deniable.outputs import claim_outputs
from deniable.policy.budget import Amount, exact
from deniable.policy.schema import Role, Spec, TableSchema
from deniable.release.record import Record, SparseRecord
from deniable.storage import stage_file

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.context import Context
    from deniable.engines.base import Engine
    from deniable.governance.grants import Asker
    from deniable.kanonymity.anonymize import Anonymized
    from deniable.kanonymity.microaggregation import Map
    from deniable.kanonymity.recoding import Recoder, Recoding
    from deniable.kanonymity.request import Prepared, Request
    from deniable.kanonymity.update import Update
    from deniable.release import Provenance, Release


QUALITIES = ("loss", "lost_variance")
"""How methods that generalize each class in its own way tell what was lost; others tell the measure of the order."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AnonymizeReport(SparseRecord):
    """A k-anonymous release: what was released and lost, how it was found, its risks, and where it is.

    `quality` is the measure that was made least; in the mapping and in JSON it stands under its own name.
    """

    rows: int
    released: int
    suppressed: int
    classes: int
    models: list[str]
    quality: dict[str, float]
    levels: dict[str, int] | None = None
    proof: dict[str, Any] | None = None
    risk: dict[str, Any] | None = None
    joint: dict[str, Any] | None = None
    attacks: dict[str, Any] | None = None
    composition: dict[str, Any] | None = None
    earlier_releases: int | None = None
    accuracy: dict[str, Any] | None = None
    measured: dict[str, Any] | None = None
    warnings: list[str]
    output: str | None = None
    statement: str | None = None
    words: list[str] | None = None
    lattice: list[dict[str, Any]]

    def __getitem__(self, name: str) -> Any:
        return self.quality[name] if name in self.quality else SparseRecord.__getitem__(self, name)

    def __iter__(self) -> Iterator[str]:
        for name in SparseRecord.__iter__(self):
            yield from self.quality if name == "quality" else (name,)


@dataclass(frozen=True, slots=True, eq=False)
class HierarchyDraft(Record):
    """Hierarchies to begin with, as a policy declares them; None for a column that is shown or withheld."""

    hierarchies: dict[str, dict[str, Any] | None]


@dataclass(frozen=True, slots=True, eq=False)
class MapReport(Record):
    """A map of cells with k rows each: how many there are, how many rows are in none, and where it is."""

    rows: int
    cells: int
    dropped: int
    output: str
    statement: str
    words: list[str]
    warnings: list[str]
    """What it tells together with earlier releases of the same table."""


@dataclass(frozen=True, slots=True, eq=False)
class UpdateReport(Record):
    """The verdict on rows that were added to a release: those that may be shown, and those that wait."""

    rows: int
    shown: int
    waiting: int
    new_classes: int
    grown_classes: int
    broken: int
    search_again: bool
    output: str | None
    joint: dict[str, Any] | None = None
    """What all columns of the rows that were written single out together."""
    attacks: dict[str, Any] | None = None
    """What attacks expose that the policy limits."""
    warnings: Sequence[str] = ()


METHODS = ("optimal", "mondrian", "mondrian-relaxed", "local", "cells", "microaggregate")

Progress = Callable[[float], None]


def anonymize(order: Order, progress: Progress | None = None, *, asker: Asker | None = None) -> AnonymizeReport:
    """Make the release, write it with its statement and its recoding, and report in plain values."""
    with open_order(order, asker) as context:
        told = _release(context, order, progress)[1]
    quality = {name: told.pop(name) for name in (order.measure, *QUALITIES) if name in told}
    return AnonymizeReport(**told, quality=quality)


def anonymize_table(context: Context, order: Order) -> Release:
    """Make the release of a table as the asker may see it."""
    return _release(context, order, None)[0]


@tell_charge()
def anonymize_rows(
    context: Context,
    table: str,
    out: str | Path | None = None,
    *,
    k: int | None = None,
    l: Mapping[str, Amount] | None = None,  # noqa: E741  the field's own letter
    t: Mapping[str, Amount] | None = None,
    suppress: Amount | None = None,
    models: Sequence[Spec] = (),
    **rest: Any,
) -> Release:
    """Anonymize one table, in memory or into a file; `rest` is as in `Order`.

    The release's details hold what the command line reports: levels, proof, risks, warnings.
    """
    from deniable.curator.policy.accepted_rows import refuse_less_protected

    context.refuse_expired()
    refuse_less_protected(context.policy, context.scope.sources)
    values, distances = ({name: exact(number) for name, number in (given or {}).items()} for given in (l, t))
    asked = Asked(k, values, distances, tuple(models), None if suppress is None else exact(suppress))
    return anonymize_table(context, Order(None, Path(out) if out else None, context.policy, table, asked=asked, **rest))


def _release(context: Context | None, order: Order, progress: Progress | None) -> tuple[Release, dict[str, Any]]:
    """The release, and the report about it."""
    _refuse_unknown_words(order)
    with open_table(context, order) as (engine, schema), claim_outputs(order.out, rows=True):
        roles = roles_of(engine, context, schema, order)
        check_columns(engine, (order.target,) if order.target else ())
        told = hold_counts(engine, context, order, roles)
        request = request_for(engine, context, order, roles)
        refuse_target(order, request, check.columns_shown(engine, roles, request))
        work = Work(engine, context, order, roles, request, order.method, find_person(engine, order, roles))
        ready = rehearse(work, name_table(schema))
        warnings = [*told, *check.find_warnings(engine, roles, request, work.person, in_order=order.keep_order)]
        return _make_release(work, ready, warnings, progress)


def _make_release(
    work: Work, ready: Ready, warnings: Sequence[str], progress: Progress | None
) -> tuple[Release, dict[str, Any]]:
    """Write the rows, pass the gates, and state what is claimed of them."""
    made = _globally(work, ready, progress) if work.order.method == "optimal" else _locally(work, ready)
    made.details["warnings"] = [*warnings, *made.details.get("warnings", ())]
    joint = measure_jointly(work, made)
    made.details["joint"] = None if joint is None else joint.to_dict()
    attack_released(work, made)
    if made.recoding is not None:
        keep_recoding(work, made.recoding)
    release, report = seal_release(work, made)
    releases.remember_release(work.context, name_table(work.roles.schema), made.recoding)
    return release, report | {"lattice": made.lattice}


def _refuse_unknown_words(order: Order) -> None:
    from deniable.kanonymity.recoding import Form, Suppressed

    refuse_unknown("method", order.method, METHODS)
    refuse_unknown("form", order.form, list(Form))
    refuse_unknown("way to leave suppressed rows", order.suppressed_rows, list(Suppressed))
    check_seconds(order.seconds)


def draft(source: Any, columns: tuple[str, ...] = ()) -> HierarchyDraft:
    """Hierarchies to begin with, as a policy would declare them; None for a column without structure.

    Such a column is shown or withheld, for which a policy needs no words.
    """
    from deniable.engines.duckdb import DuckDBEngine

    with DuckDBEngine(root=Path.cwd()) as engine:
        engine.attach(TABLE, source)
        names = check_columns(engine, columns) or tuple(f.name for f in engine.describe(TABLE))
        specs = {name: draft_hierarchy(engine, name) for name in names}
    words = {name: {spec.kind: _plain(spec.options)} for name, spec in specs.items()}
    return HierarchyDraft({name: None if specs[name].kind == "withhold" else words[name] for name in words})


def _globally(work: Work, ready: Ready, progress: Progress | None) -> Made:
    """One level for each column: counted, searched, streamed."""
    from deniable.kanonymity.anonymize import search
    from deniable.kanonymity.recoding import Form, Recoder, Suppressed

    engine, order, request = work.engine, work.order, work.request
    assert ready.prepared is not None
    found = search(
        ready.prepared,
        form=Form(order.form),
        suppressed_rows=Suppressed(order.suppressed_rows),
        seconds=order.seconds,
        progress=None if progress is None else lambda share: progress(0.5 * share),
    )
    shown = tuple(check.columns_shown(engine, work.roles, request))
    origin = name_origin(work.context, work.roles.schema)
    recoding = replace(found.recoding, shown=shown, person=work.person, table=origin)
    composed, recoder = _compose(work, ready.before, recoding), Recoder(_show_people(recoding), found.hierarchies)
    person = find_protected(engine, order, work.roles, work.person)
    rows = put_rows(work, recode_rows(work, recoder, recoding.rows, person))
    details = _details(found, request) | _risk(ready.rows, found, request) | composed | _usefulness(work, rows)
    starred = recoding.suppressed_rows is Suppressed.STAR
    cells = None if ready.population is None else _generalize_population(recoder, ready.population)
    return Made(rows, details, recoding, _points(found, request), starred, cells, _count_people(work, recoder))


def _show_people(recoding: Recoding) -> Recoding:
    """A recoding that leaves the column in which rows say whose they are."""
    return recoding if recoding.shown is None else replace(recoding, shown=(*recoding.shown, PERSON))


def _count_people(work: Work, recoder: Recoder) -> pa.Table | None:
    """The cells that all rows would have, and whose they are, where people are counted."""
    from deniable.assess.released_rows import count_people

    known, person, about = work.request.quasi_identifiers, work.request.person, list_columns_counted(work.request)
    if person is None:
        return None
    rows = work.engine.run(statement("SELECT {} FROM {}", tuple(dict.fromkeys((*known, *about, person))), TABLE))
    return count_people(recoder.generalize(rows.select(known)), rows.select(about), rows[person])


def _generalize_population(recoder: Recoder, population: pa.Table) -> pa.Table:
    """The cells of the population as they would be written, and how many people have each."""
    from deniable.assess.released_rows import COUNT as PEOPLE

    cells = recoder.generalize(population)
    counted = cells.group_by(cells.column_names).aggregate([([], "count_all")])
    return counted.rename_columns([*cells.column_names, PEOPLE])


def name_table(schema: TableSchema | None) -> str:
    """The name under which releases of a table are remembered."""
    return schema.name if schema else TABLE


def name_origin(context: Context | None, schema: TableSchema | None) -> str | None:
    """The policy's dataset and table that a release is of; None without a policy."""
    return None if context is None or schema is None else f"{context.policy.dataset}/{schema.name}"


def _compose(work: Work, before: Sequence[Recoding | None], recoding: Recoding | None) -> dict[str, Any]:
    """What this release tells together with earlier ones of the same table."""
    return releases.compose_with_earlier(work.engine, work.context, work.order, before, recoding).to_dict()


def _locally(work: Work, ready: Ready) -> Made:
    """Each class in its own way: the rows are split or staged, and written."""
    composed = _compose(work, ready.before, None)
    split = ready.prepared is not None
    shown, details, people = _split(work, ready) if split else _state_aggregated(work, ready)
    rows = put_rows(work, shown)
    return Made(rows, details | composed | _usefulness(work, rows), people=people)


def _split(work: Work, ready: Ready) -> tuple[pa.Table, dict[str, Any], pa.Table | None]:
    from deniable.assess.released_rows import count_people
    from deniable.kanonymity.local_recoding import measure_local_loss, write_local
    from deniable.kanonymity.recoding import Form

    table, prepared = ready.rows, ready.prepared
    assert prepared is not None
    release, form = _local(prepared, work.order), Form(work.order.form)
    written, person = write_local(table, prepared, release, form), work.request.person
    people = None
    if person is not None:
        whole = replace(prepared, request=replace(work.request, identifiers=()))
        every = write_local(table, whole, release, form)
        cells, values = (every.select(n) for n in (work.request.quasi_identifiers, list_columns_counted(work.request)))
        people = count_people(cells, values, every[PERSON], table[PERSON])
    details = {
        "rows": table.num_rows,
        "released": written.num_rows,
        "suppressed": table.num_rows - written.num_rows,
        "classes": release.classes,
        "models": [str(model) for model in work.request.models],
        "loss": measure_local_loss(prepared, release, form),
    }
    return written, details, people


def _state_aggregated(work: Work, ready: Ready) -> tuple[pa.Table, dict[str, Any], None]:
    """Numbers that were replaced by the means of groups of k."""
    table, made = ready.rows, ready.aggregated
    assert made is not None
    gone = [name for name in work.request.identifiers if name in table.column_names]
    details = {
        "rows": table.num_rows,
        "released": table.num_rows,
        "suppressed": 0,
        "classes": int(made.group_of.max(initial=-1)) + 1,
        "models": [str(model) for model in work.request.models],
        "lost_variance": made.lost_variance,
    }
    return made.table.drop_columns(gone), details, None


def _risk(counted: pa.Table, found: Anonymized, request: Request) -> dict[str, Any]:
    """The risks of the table as it was and as it is released."""
    from dataclasses import asdict

    import numpy as np

    from deniable.kanonymity.risk import measure_risks

    known, before = list(request.quasi_identifiers), counted[COUNT]
    if set(counted.column_names) != {*known, COUNT}:  # counted with secrets, or by person
        before = counted.group_by(known).aggregate([(COUNT, "sum")])[f"{COUNT}_sum"]
    after = np.array(found.recoding.classes.sizes, np.int64)
    return {"risk": {"before": asdict(measure_risks(before.to_numpy())), "after": asdict(measure_risks(after))}}


def _usefulness(work: Work, rows: pa.Table | Path) -> dict[str, Any]:
    """What a classifier learns from the release, beside the original."""
    target = work.order.target
    if target is None:
        return {}
    from deniable.kanonymity.quality import measure_utility

    original = work.engine.run(statement("SELECT * FROM {}", TABLE))
    found = measure_utility(original, attach_released(work, rows, "released"), target, work.request.quasi_identifiers)
    accuracy = {"original": found.original, "released": found.released, "commonest": found.commonest}
    return {"accuracy": accuracy | {"target": target, "kept": found.kept}}


def _local(prepared: Prepared, order: Order) -> Any:
    from deniable.kanonymity.search.mondrian import mondrian
    from deniable.kanonymity.search.stages import optimal_then_local, suppress_cells

    if order.method == "cells":
        return suppress_cells(prepared)
    if order.method == "local":
        return optimal_then_local(prepared)
    return mondrian(prepared, relaxed=order.method == "mondrian-relaxed", sets=order.form == "sets")


def _details(found: Anonymized, request: Request) -> dict[str, Any]:
    solution, recoding = found.solution, found.recoding
    proof = solution.proof
    return {
        "rows": recoding.rows,
        "released": recoding.rows - (solution.suppressed if recoding.suppressed_rows == "drop" else 0),
        "suppressed": solution.suppressed,
        "classes": solution.classes,
        "models": [str(model) for model in request.models],
        str(request.measure): solution.cost,
        "levels": dict(zip(recoding.names, recoding.levels, strict=True)),
        "proof": {
            "optimal": proof.complete,
            "nodes": proof.nodes,
            "checks": proof.checks,
            "checked": proof.checked,
            "excluded_as_failing": proof.failing,
            "excluded_as_costlier": proof.costly,
            "gap": solution.gap,
        },
    }


def _points(found: Anonymized, request: Request) -> list[dict[str, Any]]:
    """The lattice as data for a picture."""
    from deniable.kanonymity.search.problem import LatticePoint, list_lattice_points

    names, told = request.quasi_identifiers, [field.name for field in fields(LatticePoint)]
    return [
        {name: getattr(point, name) for name in told} | {"levels": dict(zip(names, point.levels, strict=True))}
        for point in list_lattice_points(found.verdicts, found.solution, found.recoding.rows)
    ]


def _plain(value: object) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _plain(held) for name, held in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def release_map(
    order: Order, places: tuple[str, ...], digits: int, *, time: str | None = None, every: str | None = None,
    asker: Asker | None = None,
) -> MapReport:  # fmt: skip
    """Write the cells that hold at least k rows, with a statement beside them; a policy's rows come as it lets them."""
    from deniable.kanonymity.microaggregation import Grid, cut_to_grid
    from deniable.kanonymity.models import KAnonymity
    from deniable.kanonymity.request import Request

    columns = Grid(places, digits, 1, None, time, every).columns
    with (
        open_order(order, asker) as context,
        open_table(context, order) as (engine, schema),
        claim_outputs(order.out, rows=True),
    ):
        if order.quasi_identifiers or order.sensitive or order.columns or order.identifiers or order.hierarchies:
            raise ParameterError("A map has no columns but its own", remedy="Leave --qi and the like out, or --grid")
        k = demands(context.policy if context else None, order.asked).k
        roles = _roles_of_map(engine, context, schema, columns)
        before = releases.find_earlier(context, name_table(schema), order, maps=False)
        warnings = list(releases.compose_with_earlier(engine, context, order, before, None).warnings or ())
        grid = Grid(places, digits, k, find_person(engine, order, roles), time, every)
        if context is not None:
            context.admit()

        def read(*grids: Grid) -> pa.Table:
            named = dict.fromkeys(name for each in (grid, *grids) for name in (*each.columns, each.person) if name)
            return engine.run(statement("SELECT {} FROM {}", tuple(named), TABLE))

        warnings += releases.compose_with_maps(context, order, name_table(schema), read, grid)
        made = cut_to_grid(read(), grid)
        # Cells leave in the order of their corners, which tells nothing of the table's own.
        order = replace(order, keep_order=True)
        request, told = Request(columns, (KAnonymity(k),)), {"time": time, "every": every} if time else {}
        work = Work(engine, context, order, roles, request, "grid", grid.person)
        put_rows(work, made.cells)
        provenance = state_provenance(engine, context, {"method": "grid", "digits": digits, **told})
        report = _seal_map(work, made, provenance, warnings)
        releases.remember_map(context, name_table(schema), grid, made.cells)
        return report


def _roles_of_map(
    engine: Engine, context: Context | None, schema: TableSchema | None, columns: tuple[str, ...]
) -> Roles:
    """The columns of a map, if there are such columns and the policy lets the asker have them generalized."""
    check_columns(engine, columns)
    if context is None or schema is None:
        return Roles(None, columns, (), (), {})
    context.scope.columns_to_release(schema.name, columns)
    for name in columns:
        column = schema.column(name)
        if column is None or column.role is Role.IDENTIFIER:
            why = "is an identifier" if column else "is not declared"
            raise AccessRefused(
                f"column '{name}' of '{schema.name}' {why}", remedy="Declare it as a quasi-identifier of that table"
            )
    return Roles(schema, columns, (), (), {})


def _seal_map(work: Work, made: Map, provenance: Provenance, warnings: list[str]) -> MapReport:
    from deniable.assess.released_rows import Claim
    from deniable.kanonymity.request import to_spec

    out, request, rows = work.order.out, work.request, work.engine.count(TABLE)
    assert out is not None
    kinds, models = {each.name: each.type for each in made.cells.schema}, tuple(map(to_spec, request.models))
    corners = request.quasi_identifiers
    claim = Claim(kinds, rows, made.dropped, quasi_identifiers=corners, models=models, counts="count")
    details = {"rows": rows, "cells": made.cells.num_rows, "dropped": made.dropped}
    claimed = claim_models(models, work.person)
    sealed = publish_rows(work, stage_file(out), claim, claimed, provenance, details)
    cells, words = made.cells.num_rows, list(sealed.words)
    return MapReport(rows, cells, made.dropped, str(out), str(sealed.path), words, warnings)


def update(release: Path, order: Order, *, asker: Asker | None = None) -> UpdateReport:
    """Judge rows added to a release; write those that may be shown, with their statement and the grown recoding.

    They pass the gates of a first release of the same columns, and meet what the policy asks today.
    """
    from deniable.kanonymity.recoding import read_recoding
    from deniable.kanonymity.update import update_recoding

    recoding = read_recoding(releases.find_recoding(release))
    releases.refuse_other_columns(order, recoding)
    order = releases.ask_for_same_columns(order, recoding)
    with (
        open_order(order, asker) as context,
        open_table(context, order) as (engine, schema),
        claim_outputs(order.out, rows=True),
    ):
        releases.refuse_other_table(name_origin(context, schema), recoding)
        roles = roles_of(engine, context, schema, order, asked=False)
        releases.refuse_changed_roles(roles, recoding)
        request = releases.request_for_update(engine, context, order, roles, recoding)
        protected = find_protected(engine, order, roles, recoding.person)
        added = engine.run(rows_to_release(roles, engine, person=protected))
        judged = update_recoding(recoding, added, request.models)
        told: dict[str, Any] = {}
        if order.out is not None:
            releases.refuse_broken(judged, request, recoding)
            person = releases.find_person_of_update(engine, order, roles, recoding)
            work = Work(engine, context, order, roles, request, "update", person)
            told = _write_update(work, added, recoding, judged)
    names = ("rows", "shown", "waiting", "new_classes", "grown_classes", "broken", "search_again")
    figures = {name: getattr(judged, name) for name in names}
    return UpdateReport(**figures, output=str(order.out) if order.out else None, **told)


def _write_update(work: Work, added: pa.Table, before: Recoding, judged: Update) -> dict[str, Any]:
    """Write the rows that may be shown, certified by themselves against the table with them; what is told of them."""
    from deniable.kanonymity.recoding import Recoder
    from deniable.kanonymity.request import to_spec
    from deniable.kanonymity.update import keep_shown_classes, recode_shown_rows

    models = tuple(map(to_spec, work.request.models))
    grown = replace(judged.recoding, models=models, person=work.person)
    warnings = check.find_warnings(work.engine, work.roles, work.request, work.person)
    earlier = releases.find_earlier(work.context, name_table(work.roles.schema), work.order)
    composed = _compose(work, earlier, keep_shown_classes(before, judged))
    rows = put_rows(work, recode_shown_rows(_show_people(before), added, judged))
    details: dict[str, Any] = {"rows": judged.rows, "released": judged.shown, "suppressed": judged.waiting}
    made = Made(rows, details, people=_count_people(work, Recoder(before)))
    joint = measure_jointly(work, made)
    details |= {"joint": None if joint is None else joint.to_dict()}
    attack_released(work, made)
    whole = {name: _add_values(count_column(work.engine, name), held) for name, held in before.classes.values.items()}
    claim = replace(build_claim(work, made), whole=whole)
    parameters = {"method": "update", "quasi_identifiers": list(grown.names), "form": str(grown.form)}
    provenance = state_provenance(work.engine, work.context, parameters)
    keep_recoding(work, grown)
    claimed = claim_models(models, work.person)
    publish_rows(work, rows, claim, claimed, provenance, details)
    releases.remember_release(work.context, name_table(work.roles.schema), grown)
    told = {"joint": details["joint"], "attacks": details.get("attacks")}
    return told | {"warnings": [*warnings, *composed.get("warnings", ())] if judged.rows else []}


def _add_values(added: pa.Table, released: Sequence[Mapping[str, int]]) -> pa.Table:
    """The values of the rows that are added with those of the release before, in their order, and their counts."""
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = [None if text == "None" else text for held in released for text in held]
    counts = [count for held in released for count in held.values()]
    before = pa.table({"value": pc.cast(pa.array(texts, pa.string()), added["value"].type), "count": counts})
    both = pa.concat_tables([added.cast(before.schema), before])
    return both.group_by("value").aggregate([("count", "sum")]).rename_columns(["value", "count"]).sort_by("value")
