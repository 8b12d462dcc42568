"""Anonymize a table: prepare, search, and say what was found as a recoding that can be applied and kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from deniable.errors import Infeasible
from deniable.kanonymity.builders.specs import freeze_spec
from deniable.kanonymity.encoding import Coded, Declared, Histograms
from deniable.kanonymity.hierarchy import TOP, Codes, Hierarchy, Label
from deniable.kanonymity.models import KAnonymity, PrivacyModel, holds
from deniable.kanonymity.models.base import Classes, looks_inside
from deniable.kanonymity.recoding import ColumnRecoding, Form, Recoder, Recoding, ReleasedClasses, Suppressed
from deniable.kanonymity.request import Prepared, Request, prepare, to_spec
from deniable.kanonymity.search.check import Checker
from deniable.kanonymity.search.problem import ENUMERABLE, Levels, Released, Solution, Verdict
from deniable.policy.schema import Spec

Progress = Callable[[float], None]


@dataclass(frozen=True, eq=False, repr=False)
class Anonymized:
    """The recoding found, what it costs with the proof, and every node that was checked on the way."""

    recoding: Recoding
    solution: Solution
    verdicts: tuple[Verdict, ...]
    hierarchies: tuple[Hierarchy, ...]


def anonymize(
    table: pa.Table,
    request: Request,
    hierarchies: Mapping[str, Declared] | None = None,
    *,
    population: pa.Table | None = None,
    counts: str | None = None,
    form: Form = Form.TEXT,
    suppressed_rows: Suppressed = Suppressed.DROP,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Anonymized:
    """The best full-domain recoding that meets the models, optimal unless time runs out or the lattice is too large."""
    prepared = prepare(table, request, hierarchies, population=population, counts=counts)
    return search(prepared, form=form, suppressed_rows=suppressed_rows, seconds=seconds, progress=progress)


def search(
    prepared: Prepared,
    *,
    form: Form = Form.TEXT,
    suppressed_rows: Suppressed = Suppressed.DROP,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Anonymized:
    """The best recoding of a table that was prepared."""
    checker = Checker(prepared.problem)
    solution = solve(checker, seconds, progress)
    recoding = describe_recoding(prepared, checker, solution, form, suppressed_rows)
    built = tuple(coded.hierarchy for coded in prepared.columns)
    return Anonymized(recoding, solution, tuple(checker.verdicts.values()), built)


def solve(checker: Checker, seconds: float | None = None, progress: Progress | None = None) -> Solution:
    """Search all nodes where they can be listed, best-first where they cannot; refuse what no node can meet."""
    if checker.problem.lattice.nodes > ENUMERABLE:
        from deniable.kanonymity.search.anytime import AnytimeSearch

        solution = AnytimeSearch(checker.problem, checker).run(progress, seconds)
    else:
        from deniable.kanonymity.search.optimal import OptimalSearch

        solution = OptimalSearch(checker.problem, checker).run(progress, seconds)
    if solution is None:
        raise explain_infeasible(checker)
    return solution


def explain_infeasible(checker: Checker) -> Infeasible:
    """Why no node is acceptable, and what would be: measured on the most general node and on all that were checked."""
    problem, rows = checker.problem, max(checker.problem.tuples.rows, 1)
    checker.check(problem.lattice.top)
    fewest = _count_fewest_suppressed(checker)
    open_tops = [h.column for h in problem.hierarchies if h.levels[-1].size > 1]
    hints = [f"allow {np.ceil(1000 * fewest / rows) / 10:g}% of the rows to be suppressed"] if fewest < rows else []
    whole = checker.classes(checker.group_all())
    if open_tops and all(holds(model, whole).all() for model in problem.models):
        hints.append(f"let {', '.join(open_tops)} be generalized to one group")
    hints += [_suggest_weaker(model, whole) for model in problem.models if looks_inside(model)]
    asked = " and ".join(str(model) for model in (*problem.models, *problem.risks))
    return Infeasible(
        f"No generalization meets {asked} with so few rows suppressed",
        expected="More suppressed rows, or weaker models"
        if fewest < rows
        else "More suppressed rows do not help: at every node checked, no class meets them",
        remedy=_capitalize("; or ".join(hint for hint in hints if hint) or "ask for weaker models"),
    )


MOST_MEASURED = 200
"""So many of the nodes that were checked are measured again for what they would suppress."""


def _count_fewest_suppressed(checker: Checker) -> int:
    """How many rows the best of the nodes that were checked suppresses: with so many allowed, it is acceptable.

    A verdict counts fewer where the sizes alone were over the limit: it says from below which nodes to measure.
    """
    fewest = checker.problem.tuples.rows
    for verdict in sorted(checker.verdicts.values(), key=lambda one: one.suppressed)[:MOST_MEASURED]:
        if verdict.suppressed >= fewest:
            break
        fewest = min(fewest, checker.count_suppressed(verdict.levels))
    return fewest


def _capitalize(words: str) -> str:
    return words[0].upper() + words[1:]


def _suggest_weaker(model: PrivacyModel, whole: Classes) -> str:
    """What all rows in one class measure: no release of the whole table does better than the table itself."""
    measured = model.measure(whole)
    if model.meets(measured).all():
        return ""
    return f"ask less than {model}: generalizing everything reaches {float(measured[0]):.4g}"


def describe_recoding(
    prepared: Prepared,
    checker: Checker,
    solution: Solution,
    form: Form = Form.TEXT,
    suppressed_rows: Suppressed = Suppressed.DROP,
) -> Recoding:
    """The recoding of a node: words for each column, and the classes that are released."""
    grouped, released = checker.release_classes(solution.levels)
    released = released & (grouped.sizes > 0)
    request, levels = prepared.request, prepared.absolute(solution.levels)
    classes = ReleasedClasses(
        _list_labels(prepared, levels, grouped.take_codes(released)),
        tuple(grouped.sizes[released].tolist()),
        _list_values(prepared, checker.merge_histograms(grouped), released),
    )
    return Recoding(
        tuple(_describe_column(coded, level) for coded, level in zip(prepared.columns, levels, strict=True)),
        classes,
        request.sensitive,
        request.identifiers,
        tuple(to_spec(model) for model in request.models),
        prepared.problem.tuples.rows,
        solution.suppressed,
        request.suppress,
        form,
        suppressed_rows if _can_stay(request, classes, solution.suppressed) else Suppressed.DROP,
    )


def _can_stay(request: Request, classes: ReleasedClasses, suppressed: int) -> bool:
    """Whether suppressed rows can stay as *: they look alike, so they must be as many as any class, and like none."""
    least = max((model.k for model in request.models if isinstance(model, KAnonymity)), default=1)
    return (
        request.person is None
        and suppressed >= least
        and not any(set(labels) <= {TOP, None} for labels in classes.tuples)
    )


def _describe_column(coded: Coded, level: int) -> ColumnRecoding:
    built = coded.hierarchy
    spec = coded.spec or Spec("tree", {})
    return ColumnRecoding(built.column, freeze_spec(spec, built, coded.values), level, built.height)


def _list_labels(prepared: Prepared, levels: Levels, codes: Codes) -> tuple[tuple[Label, ...], ...]:
    chosen = [coded.hierarchy.levels[level] for coded, level in zip(prepared.columns, levels, strict=True)]
    columns = [[level.labels[g] for g in level.groups[codes[:, q]]] for q, level in enumerate(chosen)]
    return tuple(zip(*columns, strict=True))


def _list_values(
    prepared: Prepared, held: tuple[Histograms, ...], released: Released
) -> Mapping[str, tuple[Mapping[str, int], ...]]:
    out = {}
    for name, coded, histograms in zip(prepared.request.sensitive, prepared.sensitive, held, strict=False):
        leaves = coded.hierarchy.leaves
        out[name] = tuple(
            {
                str(leaves[histograms.values[e]]): int(histograms.counts[e])
                for e in range(histograms.starts[c], histograms.starts[c + 1])
            }
            for c in np.flatnonzero(released)
        )
    return out


def recode_table(table: pa.Table, recoding: Recoding) -> pa.Table:
    """A table recoded in one piece."""
    return Recoder(recoding).recode(table)
