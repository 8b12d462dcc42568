"""Synthesizing people with their rows: a sequence of rows for each person, or a parent table and its children."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.recording import after_the_charge, still_charged
from deniable.curator.synthesizing import Charged, Order, Progress, bounded, guarantee, model_path, told, unbilled

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.hall import Curator
    from deniable.governance.grants import Asker
    from deniable.release import Release
    from deniable.synth.linked import LinkedModel
    from deniable.synth.links import Link


def describe(curator: Curator, order: Order, who: Asker | None = None, out: Path | None = None) -> LinkedModel:
    """The model of a table and of its people: charged once, before the data is touched."""
    charged = charge(curator, order, who, out)
    with after_the_charge():
        return learned(curator, order, charged, *tables(charged))


@dataclass(frozen=True, slots=True)
class Linked:
    """A description that is paid for: how rows belong to people, and where both are."""

    link: Link
    rows: Charged
    people: Charged | None


def charge(curator: Curator, order: Order, who: Asker | None = None, out: Path | None = None) -> Linked:
    """Refuse what cannot be described, or written where it is wanted; then charge for it."""
    link = _checked(curator, order)
    if out is not None:
        parent_path(link, out)
    rows = unbilled(curator, link.child)
    people = unbilled(curator, link.parent) if link.parent else None
    _charge(curator, order, link, rows.most_rows, who)
    return Linked(link, rows, people)


def tables(charged: Linked) -> tuple[pa.Table | None, pa.Table]:
    """People, where they have a table, and their rows, at most so many each."""
    people = bounded(charged.people, None) if charged.people else None
    return people, bounded(charged.rows, None)


def learned(curator: Curator, order: Order, charged: Linked, people: pa.Table | None, rows: pa.Table) -> LinkedModel:
    """What is learned of people and their bounded rows."""
    from deniable.synth.linked import linked_model_of

    release, link = curator.policy.release, charged.link
    rest: Any = {"truths": release.truths, "neighbors": charged.rows.most_rows // link.most}
    return linked_model_of(rows, people, link, order.budget, order.method, workload=release.synthesize.workload, **rest)


def _checked(curator: Curator, order: Order) -> Link:
    """The link, if the tables can be described."""
    from deniable.curator.governing import refuse_expired
    from deniable.errors import ParameterError
    from deniable.synth.describing import method_named
    from deniable.synth.links import is_linked, link_of

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
    if method_named(order.method).free:
        raise ParameterError("people with their rows are measured", expected="A method that measures, such as auto")
    parent = curator.policy.table(child.parent) if child.parent else None
    return link_of(child, parent, curator.policy.release.truths)


def _charge(curator: Curator, order: Order, link: Link, most_rows: int, who: Asker | None) -> None:
    from deniable.synth.spending import spending

    event = spending(order.budget, most_rows).event
    unit = str(curator.policy.table(link.child).unit)
    about = {"tables": _tables(link), "unit": unit, "question": repr(order)}
    curator.record("differentially private synthesis", event, who=who, **about)


def _tables(link: Link) -> tuple[str, ...]:
    return (link.child, link.parent) if link.parent else (link.child,)


def synthesize(
    curator: Curator, order: Order, out: Path, *, rows: int | None = None, seed: int = 0,
    progress: Progress | None = None, who: Asker | None = None,
) -> Release:  # fmt: skip
    """Describe a table with its people, and write the rows of so many people, their parents, model and statements."""
    from deniable.synth.linked_file import save_linked

    model = describe(curator, order, who, out)
    with still_charged():
        made = _written(curator.scopes.tables().engine, model, out, rows, seed, progress)
        save_linked(model, model_path(out))
        return _sealed(curator, order, model, out, seed, made)


@still_charged()
def written(
    curator: Curator, order: Order, model: LinkedModel, out: Path, people: pa.Table, rows: pa.Table, *, seed: int,
    **further: Any,
) -> Release:  # fmt: skip
    """Write people and rows that were drawn already, the model and the statements; `further` are public details."""
    from deniable.synth.linked_file import save_linked

    engine, parents = curator.scopes.tables().engine, parent_path(model.link, out)
    made = {out: engine.write(rows, out)}
    if parents is not None:
        made[parents] = engine.write(people, parents)
    save_linked(model, model_path(out))
    return _sealed(curator, order, model, out, seed, made, **further)


def _sealed(
    curator: Curator, order: Order, model: LinkedModel, out: Path, seed: int, made: dict[Path, int], **further: Any
) -> Release:
    """A statement beside each file; the release is that of the rows."""
    from deniable.release import Provenance, Release, seal

    versions = curator.scopes.tables().version(*_tables(model.link))
    parameters = {"method": order.method, "seed": seed, "table": order.table}
    provenance = Provenance(curator.policy.hash, versions, parameters)
    claimed = guarantee(curator, order)
    files = {path.name: count for path, count in made.items()}
    details = {"rows": made[out], "files": files, **told_linked(model), **further}
    for path in made:
        seal(path, claimed, provenance, {**details, "rows": made[path]})
    return Release(out, claimed, provenance, details)


def described(curator: Curator, order: Order, out: Path) -> dict[str, Any]:
    """Describe a table with its people and keep the model in a file."""
    from deniable.synth.linked_file import save_linked

    model = describe(curator, order)
    with still_charged():
        save_linked(model, out)
    return told_linked(model)


def generate(
    path: Path, out: Path, *, rows: int | None = None, seed: int = 0, where: str | None = None,
    progress: Progress | None = None,
) -> int:  # fmt: skip
    """Rows of so many people from a model file alone, and the people beside them where they have a table."""
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.synth.condition import parsed
    from deniable.synth.linked_condition import linked_condition
    from deniable.synth.linked_file import load_linked

    model = load_linked(path)
    only = parsed(where) if where is not None else {}
    linked_condition(model.link, only)
    with DuckDBEngine() as engine:
        return _written(engine, model, out, rows, seed, progress, only)[out]


def _written(
    engine: Any, model: LinkedModel, out: Path, people: int | None, seed: int, progress: Progress | None,
    where: dict[str, str] | None = None,
) -> dict[Path, int]:  # fmt: skip
    """The files that were written, with their rows: children, and parents beside them under their table's name."""
    from deniable.synth.linked_rows import linked_batches, person_batches

    parents = parent_path(model.link, out)
    made = {out: engine.write((rows for _, rows in linked_batches(model, people, seed, progress, where)), out)}
    if parents is not None:
        made[parents] = engine.write(person_batches(model, people, seed, where), parents)
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


def told_linked(model: LinkedModel) -> dict[str, Any]:
    """What a model says of itself: public."""
    people, rows = told(model.people), told(model.rows)
    return {
        **rows,
        "estimated_people": people["estimated_rows"],
        "made_anew": [*people["made_anew"], *rows["made_anew"]],
        "columns": [*people["columns"], *rows["columns"]],
        "measured": [*people["measured"], *rows["measured"]],
        "reason": f"people: {people['reason']}; rows: {rows['reason']}",
        "noise_in_a_table": max(people["noise_in_a_table"], rows["noise_in_a_table"]),
    }
