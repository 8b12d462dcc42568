"""Inspect a synthetic model: the public view from the model alone, and the steward's against the real rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from deniable.curator.context import Context
from deniable.curator.sources import refuse_rows_here
from deniable.curator.synthesize.parity import read_findings
from deniable.curator.synthesize.run import AnyModel, Linked, links_of, load_model, read_bounded, select_all
from deniable.errors import AccessRefused, ParameterError, nearest
from deniable.synth.inspect import (
    PEOPLE,
    ROWS,
    LinkedModelSummary,
    ModelSummary,
    describe_model,
    name_parts,
    summarize_linked,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from deniable.assess.parity import Finding
    from deniable.policy.schema import TableSchema
    from deniable.synth.marginal import Codes
    from deniable.synth.model import SynthModel


MOST_SHOWN = 400
"""Measured tables with more cells are listed only if they are asked for by name."""
MOST_ASSOCIATED = 16
"""Associations of so many columns are compared pair by pair."""
MOST_PAIRED = 100_000


@dataclass(frozen=True, slots=True)
class Question:
    """What to look at: marginals by their columns, the column a classifier guesses, a regression and its columns.

    With `scores`, the standard scores of other projects as well (`assess.scores`). `findings` are files of
    conclusions, as `deniable parity` takes them, that are drawn from the real and from the synthetic rows.
    """

    marginals: tuple[tuple[str, ...], ...] = ()
    target: str | None = None
    regression: tuple[str, tuple[str, ...]] | None = None
    scores: bool = False
    findings: tuple[Path, ...] = ()


def read_formula(text: str | None) -> tuple[str, tuple[str, ...]] | None:
    """A regression in words: the column that is explained, and those that explain it.

    >>> read_formula("charge ~ sex + age")
    ('charge', ('sex', 'age'))
    """
    if text is None:
        return None
    target, tilde, right = text.partition("~")
    by = tuple(word.strip() for word in right.split("+") if word.strip())
    if not (tilde and target.strip() and by):
        raise ParameterError("a regression was given wrongly", expected="TARGET ~ COLUMN + COLUMN")
    return target.strip(), by


@dataclass(frozen=True, slots=True, eq=False)
class ModelView(ModelSummary):
    """What a model tells anyone: the tables it measured, histograms, associations, and marginals cell by cell."""

    tables: list[dict[str, Any]]
    histograms: list[dict[str, Any]]
    associations: list[dict[str, Any]]
    marginals: list[dict[str, Any]]
    asked_marginals: int


@dataclass(frozen=True, slots=True, eq=False)
class ComparedView(ModelView):
    """A view with the real rows beside it, and how useful the synthetic ones are: for the steward alone."""

    utility: dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class LinkedView(LinkedModelSummary):
    """What a model of people with their rows tells anyone: how they are linked, and a view of each."""

    link: dict[str, str | None]
    people: ModelView
    rows: ModelView


@dataclass(frozen=True, slots=True, eq=False)
class FamilyView(LinkedModelSummary):
    """The same of several tables of rows, each with its view."""

    link: dict[str, Any]
    people: ModelView
    tables: dict[str, ModelView]


@dataclass(frozen=True, slots=True, eq=False)
class ComparedFamilyView(FamilyView):
    """The same with the real people and rows beside it: for the steward alone."""

    utility: dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class ComparedLinkedView(LinkedView):
    """The same with the real people and rows beside it: for the steward alone."""

    utility: dict[str, Any]


View: TypeAlias = ModelView | LinkedView | FamilyView


def public(held: AnyModel | str | Path, question: Question | None = None) -> View:
    """What a model, or a model file, tells anyone."""
    from deniable.synth.model import SynthModel

    if question is not None and (question.scores or question.findings):
        what = "scores" if question.scores else "findings"
        raise ParameterError(f"{what} compare with the real rows", remedy="Name the real table: --against, or against=")
    model = load_model(Path(held)) if isinstance(held, str | Path) else held
    if not isinstance(model, SynthModel):
        return _public_linked(model, question or Question())
    return public_view(model, question or Question())


def steward(
    context: Context, held: AnyModel | str | Path, table: str, question: Question | None = None,
    seed: int = 0,
) -> View:  # fmt: skip
    """The public view with the real rows beside it: not to be released. Nothing is charged, because nothing leaves."""
    from deniable.synth.generate import generate
    from deniable.synth.model import SynthModel

    if context.asker is not None:
        raise AccessRefused("real rows are shown beside a model, without noise", remedy="Only the steward may do that")
    model = load_model(Path(held)) if isinstance(held, str | Path) else held
    if not isinstance(model, SynthModel):
        if question is not None and question.findings:
            raise ParameterError("findings are about one table, and this model has people with their rows")
        return _steward_linked(context, model, table, question or Question(), seed)
    asked = _with_workload(question or Question(), context, model)
    findings, rows = read_findings(asked.findings, table), _real(context, model, table)
    drawn = generate(model, seed=seed)
    view = compare_view(public_view(model, asked), model, asked, rows, drawn)
    if findings:
        view.utility["findings"] = _draw_conclusions(findings, rows, drawn)
    return view


def _draw_conclusions(findings: Sequence[Finding], rows: pa.Table, drawn: pa.Table) -> list[dict[str, Any]]:
    """What each finding says of the real and of the drawn rows, and whether it is the same."""
    from deniable.assess.parity import evaluate_finding, is_same_conclusion, require_conclusions

    real = require_conclusions(findings, rows)
    made = {finding.name: evaluate_finding(finding, drawn) for finding in findings}
    return [
        {"finding": each.name, "text": each.text, "real": real[each.name], "synthetic": made[each.name],
         "kept": is_same_conclusion(real[each.name], made[each.name])} for each in findings
    ]  # fmt: skip


def compare_view(view: ModelView, model: SynthModel, asked: Question, rows: pa.Table, drawn: pa.Table) -> ComparedView:
    """A public view with real rows, and rows drawn from the model, beside it."""
    real, made = _encode(model, rows), _encode(model, drawn)
    joined = model.description.collapsed
    view = _beside(view, model, joined.apply(real), joined.apply(made))
    found = _utility(model, rows, drawn, asked) | {"regression": _regression(model, rows, drawn, asked)}
    if asked.scores:
        from deniable.assess.scores import score_tables

        target = found["classifier"]["target"] if found["classifier"] is not None else None
        found["scores"] = asdict(score_tables(rows, drawn, model.attributes, target))
    return ComparedView(**view, utility=found)


def _with_workload(question: Question, context: Context, model: SynthModel) -> Question:
    """The question with the tables that the policy says matter, as far as the model has their columns."""
    matter = context.policy.release.synthesize.select_workload(model.description.domain.names)
    return replace(question, marginals=tuple(dict.fromkeys((*question.marginals, *matter))))


def public_view(model: SynthModel, question: Question, drawn: Callable[[], pa.Table] | None = None) -> ModelView:
    """What a model tells anyone; `drawn` gives its rows where they are drawn by a larger model."""
    from deniable.synth import inspect
    from deniable.synth.inspect import tabulate_marginal

    measured = inspect.list_measurements(model)
    joint = [entry.columns for entry in measured if len(entry.columns) > 1 and entry.cells <= MOST_SHOWN]
    wanted = dict.fromkeys((*question.marginals, *joint))
    return ModelView(
        **describe_model(model),
        tables=[asdict(entry) for entry in measured],
        histograms=[asdict(histogram) for histogram in inspect.build_histograms(model)],
        associations=[asdict(association) for association in inspect.list_associations(model)],
        marginals=[asdict(tabulate_marginal(model, columns, drawn)) for columns in wanted],
        asked_marginals=len(question.marginals),
    )


def _real(context: Context, model: SynthModel, name: str) -> pa.Table:
    """The table's rows."""
    table = context.policy.table(name)
    for column in model.description.domain.names:
        if column not in table.names:
            raise ParameterError(
                f"the table '{name}' has no column '{column}', which the model has",
                remedy="Inspect the model against the table that it describes",
            )
    refuse_rows_here(table, context.scope.sources)
    return context.scope.attach(table.name).run(select_all(table))


def _encode(model: SynthModel, rows: Any) -> Codes:
    import numpy as np

    from deniable.synth.domain import Surrogate
    from deniable.synth.encode import encode_column

    coded = [attribute for attribute in model.attributes if not isinstance(attribute, Surrogate)]
    return np.stack([encode_column(attribute, rows.column(attribute.name)) for attribute in coded])


def _beside(view: ModelView, model: SynthModel, real: Codes, made: Codes) -> ModelView:
    """Each bar and cell with its share of the real and of the drawn rows, each association with the real one."""
    from deniable.synth.bins import sum_by_group
    from deniable.synth.inspect import association_strength, locate_columns
    from deniable.synth.marginal import count

    domain = model.description.collapsed.domain
    listed: list[tuple[Any, tuple[int, ...], Any]] = [
        (histogram["bars"], (place,), ()) for place, histogram in enumerate(view.histograms)
    ]
    listed += [(entry["cells"], locate_columns(model, entry["columns"]), entry["groups"]) for entry in view.marginals]
    for entries, clique, groups in listed:
        for name, codes in (("real", real), ("synthetic", made)):
            shares = sum_by_group(count(codes, domain, clique) / max(codes.shape[1], 1), groups)
            for entry, share in zip(entries, shares.ravel(), strict=True):
                entry[name] = float(share)
    for entry in view.associations:
        pair = (domain.names.index(entry["first"]), domain.names.index(entry["second"]))
        entry["real"] = association_strength(count(real, domain, pair).astype(float))
    return view


def _utility(model: SynthModel, rows: pa.Table, drawn: pa.Table, question: Question) -> dict[str, Any]:
    from deniable.assess.utility import (
        build_comparison_domain,
        choose_target,
        code_inputs,
        compare_classifiers,
        measure_variation,
        measure_workload,
    )
    from deniable.synth.domain import Labels, Surrogate
    from deniable.synth.inspect import locate_columns

    coded = [attribute for attribute in model.attributes if not isinstance(attribute, Surrogate)]
    measure = build_comparison_domain(coded)
    real, made = (measure.apply(_encode(model, table)) for table in (rows, drawn))
    domain = measure.domain
    listed = [attribute.name for attribute in model.attributes if isinstance(attribute, Labels)]
    wanted = question.target or choose_target(domain, listed)
    if wanted is not None and wanted not in domain.names:
        raise ParameterError(f"the model has no column '{wanted}'", remedy=nearest(wanted, domain.names))
    found = [v for way in (1, 2, 3) if (v := measure_variation(real, made, domain, way)) is not None]
    inputs = code_inputs(coded, rows, drawn) if wanted is not None else None
    rates = compare_classifiers(inputs.real, inputs.made, inputs.domain, wanted) if inputs and wanted else None
    asked = measure_workload(real, made, domain, [locate_columns(model, columns) for columns in question.marginals])
    return {
        "variation": [{**asdict(entry), "score": entry.score} for entry in found],
        "classifier": asdict(rates) if rates is not None else None,
        "workload": asdict(asked) if asked is not None else None,
        "associations": _compare_associations(real, made, domain),
    }


def _compare_associations(real: Codes, made: Codes, domain: Any) -> list[dict[str, Any]]:
    """How much each pair of columns says of one another, in the real and in the drawn rows; of the first columns.

    Pairs of so many cells that rows fill almost none of them are left out.
    """
    from deniable.synth.inspect import association_strength
    from deniable.synth.marginal import count

    return [
        {"first": domain.names[one], "second": domain.names[two],
         "real": association_strength(count(real, domain, (one, two)).astype(float)),
         "synthetic": association_strength(count(made, domain, (one, two)).astype(float))}
        for one, two in itertools.combinations(range(min(len(domain.names), MOST_ASSOCIATED)), 2)
        if domain.cells((one, two)) <= MOST_PAIRED
    ]  # fmt: skip


def _regression(model: SynthModel, real: pa.Table, made: pa.Table, question: Question) -> dict[str, Any] | None:
    """The regression asked for, or the usual one; none where the table has nothing to regress."""
    from deniable.assess.utility import choose_regression, compare_regressions

    chosen = question.regression or choose_regression(model.attributes)
    if chosen is None:
        return None
    target, by = chosen
    _refuse_unfit(model, (target, *by))
    found = compare_regressions(real, made, model.attributes, target, by)
    if found is None:
        return None
    terms = [{**asdict(term), "overlap": term.overlap, "covered": term.covered, "same_sign": term.same_sign}
             for term in found.terms]  # fmt: skip
    return {"target": found.target, "by": list(by), "terms": terms, "overlap": found.overlap, "covered": found.covered}


def _refuse_unfit(model: SynthModel, names: tuple[str, ...]) -> None:
    from deniable.synth.domain import Bins, Labels

    fit = [attribute.name for attribute in model.attributes if isinstance(attribute, Bins | Labels)]
    for name in names:
        if name not in fit:
            raise ParameterError(
                f"column '{name}' cannot stand in a regression",
                expected=f"Columns with numbers, dates or categories: {', '.join(fit)}",
                remedy=nearest(name, fit),
            )
    wide = next(
        (a for a in model.attributes if a.name == names[0] and isinstance(a, Labels) and len(a.labels) != 2), None
    )
    if wide is not None:
        raise ParameterError(
            f"column '{wide.name}' cannot be explained by a regression",
            expected="A number, a date, or a column of two values",
        )


def _public_linked(model: Linked, question: Question) -> LinkedView | FamilyView:
    """What a model tells anyone."""
    from deniable.synth.linked.generate import generate_family

    @cache
    def draw_tables() -> dict[str, pa.Table]:
        return _gather(model, *generate_family(model))

    asked = divide_question(model, question)
    views = {
        part: public_view(own, asked[part], lambda part=part: draw_tables()[part])  # type: ignore[misc]
        for part, own in name_parts(model).items()
    }
    return _join_views(model, views)


def _steward_linked(
    context: Context, model: Linked, table: str, question: Question, seed: int = 0
) -> LinkedView | FamilyView:
    """The same with the real people and rows beside it: not to be released."""
    from deniable.synth.linked.generate import generate_family

    asked = divide_question(model, _with_linked_workload(context, model, question))
    real, made = _real_linked(context, model, table), _gather(model, *generate_family(model, seed=seed))
    views = {}
    for part, own in name_parts(model).items():
        view = public_view(own, asked[part], lambda part=part: made[part])  # type: ignore[misc]
        views[part] = compare_view(view, own, asked[part], real[part], made[part])
    return _join_views(model, views, {part: view.utility for part, view in views.items()})


def _join_views(
    model: Linked, views: Mapping[str, ModelView], utility: dict[str, Any] | None = None
) -> LinkedView | FamilyView:
    """The views of people and rows as one, with the comparison where there is one."""
    link = links_of(model)[0]
    about: dict[str, Any] = {"parent": link.parent, "key": link.key}
    told: dict[str, Any] = {**summarize_linked(model), "people": views[PEOPLE]}
    compared: dict[str, Any] = {} if utility is None else {"utility": utility}
    if ROWS in views:
        told |= {"link": {"child": link.child, **about}, "rows": views[ROWS]}
        return (ComparedLinkedView if compared else LinkedView)(**told, **compared)
    tables = {name: view for name, view in views.items() if name != PEOPLE}
    told |= {"link": {"children": list(tables), **about}, "tables": tables}
    return (ComparedFamilyView if compared else FamilyView)(**told, **compared)


def divide_question(model: Linked, question: Question) -> dict[str, Question]:
    """What is asked of people, and what of rows; each part in the words of its own model."""
    parts = {part: Question(scores=question.scores) for part in name_parts(model)}
    for columns in question.marginals:
        part, names = name_columns(model, columns)
        parts[part] = replace(parts[part], marginals=(*parts[part].marginals, names))
    if question.target is not None:
        part, names = name_columns(model, (question.target,))
        parts[part] = replace(parts[part], target=names[0])
    if question.regression is not None:
        target, by = question.regression
        part, names = name_columns(model, (target, *by))
        parts[part] = replace(parts[part], regression=(names[0], names[1:]))
    return parts


def name_columns(model: Linked, columns: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Of which part named columns speak, and how it calls them: a person's column has another name among rows."""
    from deniable.synth.linked.link import AFTER, PERSON

    known: list[str] = []
    for part, own in name_parts(model).items():
        names = own.description.domain.names
        calls = {} if part == PEOPLE else {n.removeprefix(PERSON).removeprefix(AFTER): n for n in names}
        calls |= {name: name for name in names}
        if all(name in calls for name in columns):
            return part, tuple(calls[name] for name in columns)
        known += calls
    missing = next((name for name in columns if name not in known), None)
    if missing is not None:
        raise ParameterError(f"the model has no column '{missing}'", remedy=nearest(missing, known))
    raise ParameterError(
        f"{' x '.join(columns)} are columns of several tables of rows", expected="Columns of one table"
    )


def _with_linked_workload(context: Context, model: Linked, question: Question) -> Question:
    """The question with the tables that the policy says matter, as far as the model speaks of their columns."""
    matter = []
    for columns in context.policy.release.synthesize.workload:
        try:
            name_columns(model, columns)
        except ParameterError:
            continue
        matter.append(columns)
    return replace(question, marginals=tuple(dict.fromkeys((*question.marginals, *matter))))


def _real_linked(context: Context, model: Linked, name: str) -> dict[str, pa.Table]:
    """People and their rows, as they were described."""
    links = links_of(model)
    parent = None if links[0].parent is None else context.policy.table(links[0].parent)
    children = [context.policy.table(name if len(links) == 1 else link.child) for link in links]
    for link, child in zip(links, children, strict=True):
        _refuse_other(child, [a.name for a in (*link.rows, *(() if link.parent else link.people))])
    if parent is None:
        return _gather(model, None, [read_bounded(context, name)])
    _refuse_other(parent, [a.name for a in links[0].people])
    people = read_bounded(context, parent.name)
    return _gather(model, people, [read_bounded(context, child.name) for child in children])


def _refuse_other(table: TableSchema, columns: list[str]) -> None:
    for column in columns:
        if column not in table.names:
            raise ParameterError(
                f"the table '{table.name}' has no column '{column}', which the model has",
                remedy="Inspect the model against the table that it describes",
            )


def _gather(model: Linked, people: pa.Table | None, tables: Sequence[pa.Table]) -> dict[str, pa.Table]:
    """Tables of people and of rows as the parts of a model speak of them: the columns that each part describes."""
    from deniable.synth.linked.link import derive_family_tables

    links = links_of(model)
    persons, owned = derive_family_tables(links, people if links[0].parent else None, tables)
    found = {}
    for (part, own), derived in zip(name_parts(model).items(), (persons, *owned), strict=True):
        described = {attribute.name for attribute in own.attributes}
        found[part] = derived.select([name for name in derived.column_names if name in described])
    return found
