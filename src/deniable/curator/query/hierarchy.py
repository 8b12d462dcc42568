"""Hierarchies and margins: many grouping sets measured together, so that children add up to their parents."""

# ruff: noqa: S608  (the text made here is a question for our own compiler, which refuses what it does not know)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from deniable.curator.query.sql import QueryAnswer
from deniable.errors import ParameterError

if TYPE_CHECKING:
    from deniable.curator.curator import Curator
    from deniable.governance.grants import Asker
    from deniable.policy.budget import Budget
    from deniable.query.techniques.grouping_sets import SetsPlan

NOTES = (
    "Values are fitted so that they agree; rounding moves a cell by less than one.",
    "Intervals are of the noise alone, for each cell by itself.",
)


def tree_statement(source: str, levels: Sequence[str], aggregate: str) -> str:
    """A tree as a question: the total, then one more column at each level."""
    if not levels:
        raise ParameterError("a hierarchy has at least one level", expected="levels=['state', 'county']")
    listed = ", ".join(levels)
    return f"SELECT {listed}, {aggregate} AS value FROM {source} GROUP BY ROLLUP ({listed})"


def margin_statement(source: str, margins: Sequence[Sequence[str]], aggregate: str) -> tuple[str, list[str]]:
    """A set of margins as a question, and the columns in their order."""
    if not margins or any(isinstance(margin, str) for margin in margins):
        raise ParameterError("margins are lists of columns", expected="margins=[['sex', 'party'], ['sex', 'zip']]")
    columns = list(dict.fromkeys(column for margin in margins for column in margin))
    sets = ", ".join(f"({', '.join(margin)})" for margin in margins)
    listed = "".join(f"{column}, " for column in columns)
    return f"SELECT {listed}{aggregate} AS value FROM {source} GROUP BY GROUPING SETS ({sets})", columns


def plan(
    curator: Curator,
    statement: str,
    columns: Sequence[str],
    asked: Budget | None,
    importance: Mapping[str, float] | None,
    who: Asker | None,
    *,
    tree: bool,
) -> SetsPlan:
    """The plan with the best shares; public keys are read, private rows are not."""
    from deniable.curator.charge import admit
    from deniable.query.techniques.grouping_sets import compile_sets

    tables = admit(curator, who)
    public = [table.name for table in curator.policy.tables if table.public]
    engine = curator.scopes.tables(who).attach(*public)
    return compile_sets(statement, _bare(columns), tables, engine, asked, importance, tree=tree)


def _bare(columns: Sequence[str]) -> list[str]:
    """Column names as they are shown: without the table."""
    return [column.rsplit(".", 1)[-1].strip('"') for column in columns]


def hierarchy(
    curator: Curator,
    source: str,
    levels: Sequence[str],
    asked: Budget | None,
    *,
    aggregate: str = "COUNT(*)",
    importance: Mapping[str, float] | None = None,
    nonnegative: bool = False,
    confidence: float = 0.95,
    who: Asker | None = None,
) -> QueryAnswer:
    """A tree of whole numbers that add up, each cell with its error."""
    from deniable.curator.charge import build_release, job_of, run_job
    from deniable.query.techniques.grouping_sets import release_tree

    sets = plan(curator, tree_statement(source, levels, aggregate), levels, asked, importance, who, tree=True)
    job = job_of(sets.query)
    settled = run_job(curator, job, who=who)
    rows = release_tree(sets, settled.stored.measured, confidence, nonnegative=nonnegative)
    release = build_release(
        curator, job, settled, rows, who, **describe_sets(sets), notes=list(NOTES), confidence=confidence
    )
    return QueryAnswer(release, settled.repeated, settled.receipt)


def margins(
    curator: Curator,
    source: str,
    wanted: Sequence[Sequence[str]],
    asked: Budget | None,
    *,
    aggregate: str = "COUNT(*)",
    importance: Mapping[str, float] | None = None,
    confidence: float = 0.95,
    who: Asker | None = None,
) -> QueryAnswer:
    """A set of margins that agree with each other, each cell with its error."""
    from deniable.curator.charge import build_release, job_of, run_job
    from deniable.query.techniques.grouping_sets import release_margins

    statement, columns = margin_statement(source, wanted, aggregate)
    sets = plan(curator, statement, columns, asked, importance, who, tree=False)
    job = job_of(sets.query)
    settled = run_job(curator, job, who=who)
    rows = release_margins(sets, settled.stored.measured, confidence)
    release = build_release(
        curator, job, settled, rows, who, **describe_sets(sets), notes=list(NOTES), confidence=confidence
    )
    return QueryAnswer(release, settled.repeated, settled.receipt)


def describe_sets(sets: SetsPlan) -> dict[str, Any]:
    """The grouping sets with their cells, share of the budget, and standard error as measured and as fitted."""
    from deniable.query.techniques.grouping_sets import name_sets

    measured = sets.variances
    fitted = sets.fit_variances(measured)
    return {
        "sets": [
            {
                "name": name,
                "cells": len(sets.keys[i]),
                "share": f"{float(sets.node.steps[i].placed[0].share):.4g}",
                "error_measured": measured[i] ** 0.5 * sets.step,
                "error_fitted": fitted[i] ** 0.5 * sets.step,
            }
            for i, name in enumerate(name_sets(sets))
        ],
        "strategy": sets.query.strategy,
    }


def explain(sets: SetsPlan) -> dict[str, Any]:
    """What a hierarchy or a set of margins would measure and cost, without touching private rows."""
    from deniable.query.explain import explain as explained

    return explained(sets.query) | describe_sets(sets)
