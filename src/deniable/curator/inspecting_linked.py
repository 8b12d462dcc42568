"""Inspecting a model of people with their rows: two views, of people and of rows, each as that of one table."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.curator.inspecting import Question, View, compared, public_view
from deniable.errors import ParameterError, nearest

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.curator.hall import Curator
    from deniable.policy.schema import TableSchema
    from deniable.synth.linked import LinkedModel
    from deniable.synth.links import Link

PEOPLE, ROWS = "people", "rows"
"""The parts of a view."""


def public(path: Path, question: Question) -> View:
    """What a model file tells anyone."""
    from deniable.synth.linked_file import load_linked
    from deniable.synth.linked_rows import generate_linked

    model = load_linked(path)

    @cache
    def drawn() -> tuple[pa.Table, pa.Table]:
        return _gathered(model.link, *generate_linked(model))

    parts = divided(model, question)
    views = {
        PEOPLE: public_view(model.people, parts[PEOPLE], lambda: drawn()[0]),
        ROWS: public_view(model.rows, parts[ROWS], lambda: drawn()[1]),
    }
    return _told(model) | views


def steward(curator: Curator, path: Path, table: str, question: Question, seed: int = 0) -> View:
    """The same with the real people and rows beside it: not to be released."""
    from deniable.synth.linked_file import load_linked
    from deniable.synth.linked_rows import generate_linked

    model = load_linked(path)
    parts = divided(model, _with_workload(curator, model, question))
    real, made = _real(curator, model.link, table), _gathered(model.link, *generate_linked(model, seed=seed))
    views = {}
    for place, (part, own) in enumerate(((PEOPLE, model.people), (ROWS, model.rows))):
        view = public_view(own, parts[part], lambda place=place: made[place])  # type: ignore[misc]
        views[part] = compared(view, own, parts[part], real[place], made[place])
    utility = {part: view["utility"] for part, view in views.items()}
    return _told(model) | views | {"utility": utility}


def _told(model: LinkedModel) -> View:
    from deniable.curator.linked import told_linked

    link = model.link
    return {**told_linked(model), "link": {"child": link.child, "parent": link.parent, "key": link.key}}


def divided(model: LinkedModel, question: Question) -> dict[str, Question]:
    """What is asked of people, and what of rows; each part in the words of its own model."""
    parts = {PEOPLE: Question(), ROWS: Question()}
    for columns in question.marginals:
        part, names = spoken(model, columns)
        parts[part] = replace(parts[part], marginals=(*parts[part].marginals, names))
    if question.target is not None:
        part, names = spoken(model, (question.target,))
        parts[part] = replace(parts[part], target=names[0])
    if question.regression is not None:
        target, by = question.regression
        part, names = spoken(model, (target, *by))
        parts[part] = replace(parts[part], regression=(names[0], names[1:]))
    return parts


def spoken(model: LinkedModel, columns: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Of which part named columns speak, and how it calls them: a person's column has another name among rows."""
    from deniable.synth.links import AFTER, PERSON

    people, rows = model.people.description.domain.names, model.rows.description.domain.names
    if all(name in people for name in columns):
        return PEOPLE, columns
    calls = {name.removeprefix(PERSON).removeprefix(AFTER): name for name in rows} | {name: name for name in rows}
    for name in columns:
        if name not in calls:
            raise ParameterError(f"the model has no column '{name}'", remedy=nearest(name, [*people, *calls]))
    return ROWS, tuple(calls[name] for name in columns)


def _with_workload(curator: Curator, model: LinkedModel, question: Question) -> Question:
    """The question with the tables that the policy says matter, as far as the model speaks of their columns."""
    matter = []
    for columns in curator.policy.release.synthesize.workload:
        try:
            spoken(model, columns)
        except ParameterError:
            continue
        matter.append(columns)
    return replace(question, marginals=tuple(dict.fromkeys((*question.marginals, *matter))))


def _real(curator: Curator, link: Link, name: str) -> tuple[pa.Table, pa.Table]:
    """People and their rows, as they were described."""
    from deniable.curator.synthesizing import bounded, unbilled

    child = curator.policy.table(name)
    _refuse_other(child, [a.name for a in (*link.rows, *(() if link.parent else link.people))])
    if link.parent is None:
        return _gathered(link, None, bounded(unbilled(curator, name), None))
    parent = curator.policy.table(link.parent)
    _refuse_other(parent, [a.name for a in link.people])
    people = bounded(unbilled(curator, parent.name), None)
    return _gathered(link, people, bounded(unbilled(curator, name), None))


def _refuse_other(table: TableSchema, columns: list[str]) -> None:
    for column in columns:
        if column not in table.names:
            raise ParameterError(
                f"the table '{table.name}' has no column '{column}', which the model has",
                remedy="Inspect the model against the table that it describes",
            )


def _gathered(link: Link, people: pa.Table | None, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
    from deniable.synth.gathering import gathered

    return gathered(link, people if link.parent else None, rows)
