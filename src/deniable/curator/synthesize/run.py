"""Synthesize: charge, describe (the last sight of the data), generate, release; each also by itself.

A table is synthesized by itself, or with its people: a sequence of rows for each person, or a parent table and its
children."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.charge import after_the_charge, still_charged
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, Budget
from deniable.policy.schema import Neighboring
from deniable.storage import refuse_missing_folder

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.curator import Curator
    from deniable.governance.grants import Asker
    from deniable.policy.schema import PrivacyUnit, TableSchema
    from deniable.release import Guarantee, Release
    from deniable.synth.linked import LinkedModel
    from deniable.synth.linked.link import Link
    from deniable.synth.model import SynthModel


def describe_linked(curator: Curator, order: Order, who: Asker | None = None, out: Path | None = None) -> LinkedModel:
    """The model of a table and of its people: charged once, before the data is touched."""
    charged = charge_linked(curator, order, who, out)
    with after_the_charge():
        return learn_linked(curator, order, charged, *bound_linked_rows(charged))


@dataclass(frozen=True, slots=True)
class LinkedSource:
    """A description that is paid for: how rows belong to people, and where both are."""

    link: Link
    rows: Source
    people: Source | None


def charge_linked(curator: Curator, order: Order, who: Asker | None = None, out: Path | None = None) -> LinkedSource:
    """Refuse what cannot be described, or written where it is wanted; then charge for it."""
    link = _check_link(curator, order)
    if out is not None:
        parent_path(link, out)
    rows = open_source(curator, link.child)
    people = open_source(curator, link.parent) if link.parent else None
    _charge_link(curator, order, link, rows.most_rows, who)
    return LinkedSource(link, rows, people)


def bound_linked_rows(charged: LinkedSource) -> tuple[pa.Table | None, pa.Table]:
    """People, where they have a table, and their rows, at most so many each."""
    people = bound_rows(charged.people, None) if charged.people else None
    return people, bound_rows(charged.rows, None)


def learn_linked(
    curator: Curator, order: Order, charged: LinkedSource, people: pa.Table | None, rows: pa.Table
) -> LinkedModel:
    """What is learned of people and their bounded rows."""
    from deniable.synth.linked import describe_linked

    release, link = curator.policy.release, charged.link
    rest: Any = {"truths": release.truths, "neighbors": charged.rows.most_rows // link.most}
    return describe_linked(rows, people, link, order.budget, order.method, workload=release.synthesize.workload, **rest)


def _check_link(curator: Curator, order: Order) -> Link:
    """The link, if the tables can be described."""
    from deniable.curator.governance.requests import refuse_expired
    from deniable.errors import ParameterError
    from deniable.synth.describe import find_method
    from deniable.synth.linked.link import is_linked, link_of

    refuse_expired(curator)
    child = curator.policy.table(order.table)
    if not is_linked(child):
        raise ParameterError(
            f"the policy does not link the rows of '{child.name}' to people",
            remedy="Declare sequence: COLUMN, or parent: TABLE, for that table",
        )
    if order.columns is not None or order.workload or order.areas:
        raise ParameterError(
            f"'{child.name}' is synthesized with its people, whole",
            remedy="Leave out --columns, --workload and --areas",
        )
    if find_method(order.method).free:
        raise ParameterError("people with their rows are measured", expected="A method that measures, such as auto")
    parent = curator.policy.table(child.parent) if child.parent else None
    return link_of(child, parent, curator.policy.release.truths)


def _charge_link(curator: Curator, order: Order, link: Link, most_rows: int, who: Asker | None) -> None:
    from deniable.synth.marginal import convert_budget

    event = convert_budget(order.budget, most_rows).event
    unit = str(curator.policy.table(link.child).unit)
    about = {"tables": _linked_tables(link), "unit": unit, "question": repr(order)}
    curator.record("differentially private synthesis", event, who=who, **about)


def _linked_tables(link: Link) -> tuple[str, ...]:
    return (link.child, link.parent) if link.parent else (link.child,)


def _synthesize_linked(
    curator: Curator, order: Order, out: Path, *, rows: int | None = None, seed: int = 0,
    progress: Progress | None = None, who: Asker | None = None,
) -> Release:  # fmt: skip
    """Describe a table with its people, and write the rows of so many people, their parents, model and statements."""
    from deniable.synth.linked import save_linked

    model = describe_linked(curator, order, who, out)
    with still_charged():
        made = _write_files(curator.scopes.tables().engine, model, out, rows, seed, progress)
        save_linked(model, model_path(out))
        return _seal_linked(curator, order, model, out, seed, made)


@still_charged()
def write_linked(
    curator: Curator, order: Order, model: LinkedModel, out: Path, people: pa.Table, rows: pa.Table, *, seed: int,
    **further: Any,
) -> Release:  # fmt: skip
    """Write people and rows that were drawn already, the model and the statements; `further` are public details."""
    from deniable.synth.linked import save_linked

    engine, parents = curator.scopes.tables().engine, parent_path(model.link, out)
    made = {out: engine.write(rows, out)}
    if parents is not None:
        made[parents] = engine.write(people, parents)
    save_linked(model, model_path(out))
    return _seal_linked(curator, order, model, out, seed, made, **further)


def _seal_linked(
    curator: Curator, order: Order, model: LinkedModel, out: Path, seed: int, made: dict[Path, int], **further: Any
) -> Release:
    """A statement beside each file; the release is that of the rows."""
    from deniable.release import Provenance, Release, seal

    versions = curator.scopes.tables().version(*_linked_tables(model.link))
    parameters = {"method": order.method, "seed": seed, "table": order.table}
    provenance = Provenance(curator.policy.hash, versions, parameters)
    claimed = guarantee(curator, order)
    files = {path.name: count for path, count in made.items()}
    details = {"rows": made[out], "files": files, **summarize_linked(model), **further}
    for path in made:
        seal(path, claimed, provenance, {**details, "rows": made[path]})
    return Release(out, claimed, provenance, details)


def _describe_linked_to_file(curator: Curator, order: Order, out: Path) -> dict[str, Any]:
    """Describe a table with its people and keep the model in a file."""
    from deniable.synth.linked import save_linked

    model = describe_linked(curator, order)
    with still_charged():
        save_linked(model, out)
    return summarize_linked(model)


def _generate_linked(
    path: Path, out: Path, *, rows: int | None = None, seed: int = 0, where: str | None = None,
    progress: Progress | None = None,
) -> int:  # fmt: skip
    """Rows of so many people from a model file alone, and the people beside them where they have a table."""
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.synth.condition import parse_condition
    from deniable.synth.linked import load_linked
    from deniable.synth.linked.generate import build_linked_condition

    model = load_linked(path)
    only = parse_condition(where) if where is not None else {}
    build_linked_condition(model.link, only)
    with DuckDBEngine() as engine:
        return _write_files(engine, model, out, rows, seed, progress, only)[out]


def _write_files(
    engine: Any, model: LinkedModel, out: Path, people: int | None, seed: int, progress: Progress | None,
    where: dict[str, str] | None = None,
) -> dict[Path, int]:  # fmt: skip
    """The files that were written, with their rows: children, and parents beside them under their table's name."""
    from deniable.synth.linked.generate import generate_linked_batches, generate_people_batches

    parents = parent_path(model.link, out)
    made = {out: engine.write((rows for _, rows in generate_linked_batches(model, people, seed, progress, where)), out)}
    if parents is not None:
        made[parents] = engine.write(generate_people_batches(model, people, seed, where), parents)
    return made


def parent_path(link: Link, out: Path) -> Path | None:
    """Where the people of a file are written: beside it, under the parent table's name."""
    from deniable.errors import ParameterError

    if link.parent is None:
        return None
    path = out.with_name(link.parent + out.suffix)
    if path == out:
        raise ParameterError(
            f"'{out.name}' is the name of the parent's file", remedy="Choose another name for the rows"
        )
    return path


def summarize_linked(model: LinkedModel) -> dict[str, Any]:
    """What a model says of itself: public."""
    people, rows = describe_model(model.people), describe_model(model.rows)
    return {
        **rows,
        "estimated_people": people["estimated_rows"],
        "made_anew": [*people["made_anew"], *rows["made_anew"]],
        "columns": [*people["columns"], *rows["columns"]],
        "measured": [*people["measured"], *rows["measured"]],
        "reason": f"people: {people['reason']}; rows: {rows['reason']}",
        "noise_in_a_table": max(people["noise_in_a_table"], rows["noise_in_a_table"]),
    }


Progress = Callable[[float], None]
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
    """With its people, as the policy links them."""


def describe(curator: Curator, order: Order, who: Asker | None = None) -> SynthModel:
    """The model of a table: charged before the data is touched."""
    charged = charge(curator, order, who)
    with after_the_charge():
        return learn_model(curator, order, charged, bound_rows(charged, order.columns))


@dataclass(frozen=True, slots=True)
class Source:
    """A description that is paid for: the table, its unit, the most rows a neighbor may differ by, and the engine."""

    table: TableSchema
    unit: PrivacyUnit
    most_rows: int
    engine: Any


def charge(curator: Curator, order: Order, who: Asker | None = None) -> Source:
    """Refuse what cannot be described; then charge for it."""
    from deniable.curator.governance.requests import refuse_expired
    from deniable.synth.describe import price_description, refuse_unsuited

    refuse_expired(curator)
    table, _ = _private(curator, order.table)
    refuse_unsuited(table, order.method, order.columns, workload_of(curator, order), order.areas)
    source = open_source(curator, order.table)
    event = price_description(order.method, order.budget, source.most_rows)
    about = {"tables": (table.name,), "unit": str(source.unit), "question": repr(order)}
    curator.record("differentially private synthesis", event, who=who, **about)
    return source


def open_source(curator: Curator, name: str) -> Source:
    """The same before it is charged: enough for the steward's own eyes, as long as nothing leaves."""
    table, unit = _private(curator, name)
    most = unit.rows_learned * (2 if unit.neighboring is Neighboring.REPLACE else 1)
    curator.scopes.refresh(curator.governor.withdrawals())
    return Source(table, unit, most, curator.scopes.tables().attach(table.name))


def bound_rows(charged: Source, columns: tuple[str, ...] | None) -> pa.Table:
    """The rows, at most so many of each unit, chosen by a fresh secret salt."""
    from deniable.synth.describe import render_bounded_select

    unit = charged.unit
    rows: pa.Table = charged.engine.run(render_bounded_select(charged.table, unit, unit.rows_learned, columns))
    return rows


def learn_model(curator: Curator, order: Order, charged: Source, rows: pa.Table) -> SynthModel:
    """What is learned of bounded rows."""
    from deniable.synth.describe import describe_table

    truths = curator.policy.release.truths
    wanted = {"workload": workload_of(curator, order), "areas": order.areas}
    rest = {"most_rows": charged.most_rows, "columns": order.columns, "truths": truths, **wanted}
    return describe_table(rows, charged.table, order.budget, order.method, **rest)  # type: ignore[arg-type]


def workload_of(curator: Curator, order: Order) -> Workload:
    """The tables that are asked for: by the order, and by the policy of columns that are described."""
    table = curator.policy.table(order.table)
    described = table.names if order.columns is None else order.columns
    return tuple(dict.fromkeys((*order.workload, *curator.policy.release.synthesize.select_workload(described))))


def synthesize(
    curator: Curator,
    order: Order,
    out: Path,
    *,
    rows: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    who: Asker | None = None,
) -> Release:
    """Describe a table and write synthetic rows, the model and the statement."""
    refuse_missing_folder(out)
    if order.linked:
        return _synthesize_linked(curator, order, out, rows=rows, seed=seed, progress=progress, who=who)
    described = describe(curator, order, who)
    return write_release(curator, order, described, out, rows=rows, seed=seed, progress=progress)


@still_charged()
def write_release(
    curator: Curator, order: Order, model: SynthModel, out: Path, *, rows: int | None = None, seed: int = 0,
    progress: Progress | None = None, drawn: pa.Table | None = None, **further: Any,
) -> Release:  # fmt: skip
    """Write rows of a model (or those drawn from it already) as a release, with the model beside them.

    `further` are public details of the release.
    """
    from deniable.release import Provenance, Release, seal
    from deniable.synth.generate import generate_batches
    from deniable.synth.model import save

    shown = generate_batches(model, rows, seed, progress) if drawn is None else drawn
    made = curator.scopes.tables().engine.write(shown, out)
    save(model, model_path(out))
    versions = curator.scopes.tables().version(order.table)
    parameters = {"method": order.method, "seed": seed, "table": order.table}
    provenance = Provenance(curator.policy.hash, versions, parameters)
    details = {
        "rows": made,
        **describe_model(model),
        "asked": describe_workload(model, workload_of(curator, order)),
        **further,
    }
    claimed = guarantee(curator, order)
    seal(out, claimed, provenance, details)
    return Release(out, claimed, provenance, details)


def describe_to_file(curator: Curator, order: Order, out: Path) -> dict[str, Any]:
    """Describe a table and keep the model in a file."""
    refuse_missing_folder(out)
    from deniable.synth.model import save

    if order.linked:
        return _describe_linked_to_file(curator, order, out)
    model = describe(curator, order)
    with still_charged():
        save(model, out)
    return {**describe_model(model), "asked": describe_workload(model, workload_of(curator, order))}


def generate(
    path: Path, out: Path, *, rows: int | None = None, seed: int = 0, where: str | None = None,
    progress: Progress | None = None,
) -> int:  # fmt: skip
    """Rows from a model file alone: no data, no budget."""
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.synth.condition import build_condition, parse_condition
    from deniable.synth.generate import generate_batches
    from deniable.synth.linked import is_linked_file
    from deniable.synth.model import load

    if is_linked_file(path):
        return _generate_linked(path, out, rows=rows, seed=seed, where=where, progress=progress)
    model = load(path)
    only = parse_condition(where) if where is not None else {}
    build_condition(model, only)
    with DuckDBEngine() as engine:
        return engine.write(generate_batches(model, rows, seed, progress, only), out)


def model_path(out: Path) -> Path:
    """Where the model of a synthetic file stands."""
    return out.with_name(out.name + ".model.json")


def describe_model(model: SynthModel) -> dict[str, Any]:
    """What a model says of itself: public."""
    description = model.description
    names = description.domain.names
    measured = [" x ".join(names[place] for place in marginal.clique) for marginal in description.cliques]
    made = [a.name for a in model.attributes if a.name not in names]
    return {
        "method": description.method,
        "estimated_rows": round(description.estimates.total),
        "columns": list(names),
        "made_anew": made,
        "reason": description.reason,
        "measured": measured,
        "noise_in_a_table": round(description.estimates.noise, 4),
    }


def describe_workload(model: SynthModel, workload: Workload) -> list[dict[str, str]]:
    """Each table that was asked for, and how it was measured: public."""
    names, held = model.description.domain.names, model.description.cliques
    found = []
    for wanted in workload:
        holding = [m for m in held if {names[place] for place in m.clique}.issuperset(wanted)]
        whole = any(not marginal.maps for marginal in holding)
        how = "measured" if whole else "measured by groups of values" if holding else "not measured"
        found.append({"table": " x ".join(wanted), "how": how})
    return found


def _private(curator: Curator, name: str) -> tuple[TableSchema, PrivacyUnit]:
    table = curator.policy.table(name)
    if table.public or table.unit is None:
        raise ParameterError(f"the table '{name}' is public", remedy="A public table needs no synthetic twin")
    return table, table.unit


def guarantee(curator: Curator, order: Order) -> Guarantee:
    """What is claimed of a synthetic table."""
    from deniable.dp.accounting import epsilon_of_zcdp
    from deniable.policy.budget import exact
    from deniable.release import Guarantee, Technique

    _, unit = _private(curator, order.table)
    if isinstance(order.budget, ZCDP):
        delta = exact("1e-9")
        epsilon = epsilon_of_zcdp(order.budget.rho, delta)
        stated = {"epsilon": epsilon, "delta": delta}
        return Guarantee.differential(Technique.DP_SYNTHETIC, unit, order.budget, unit.neighboring, **stated)
    return Guarantee.differential(Technique.DP_SYNTHETIC, unit, order.budget, unit.neighboring)
