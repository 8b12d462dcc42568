"""Hierarchies and margins: many grouping sets measured together, so that children add up to their parents.

And weighted estimates of a survey, whose sums are measured together: each person stands for `weight` people. They are
one question in SQL, so that price, bounds and charge are those of that question; what is shown follows from its answer.
"""

# ruff: noqa: S608  (the text made here is a question for our own compiler, which refuses what it does not know)

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from deniable.curator.charge import after_the_charge, job_of, run_job
from deniable.curator.context import Context
from deniable.curator.query import auto_bounds
from deniable.curator.query.sql import (
    QueryAnswer,
    answer_job,
    bare_name,
    check_columns,
    check_confidence,
    compile_sql,
    is_pure,
    note_missing_ids,
    note_places,
    refuse_elsewhere,
    state_budget,
)
from deniable.engines.base import quote
from deniable.errors import ParameterError

if TYPE_CHECKING:
    from deniable.policy.budget import Amount, Budget
    from deniable.query.explain import SetsExplanation, SetsSummary
    from deniable.query.techniques.grouping_sets import SetsPlan

LEVELS = "levels=['state', 'county']"
MARGINS = "margins=[['sex', 'party'], ['sex', 'zip']]"
NOTES = (
    "Values are fitted so that they agree; rounding moves a cell by less than one.",
    "Intervals are of the noise alone, for each cell by itself.",
)


def tree_statement(source: str, levels: Sequence[str], aggregate: str) -> str:
    """A tree as a question: the total, then one more column at each level."""
    levels = check_columns(levels, LEVELS)
    if not levels:
        raise ParameterError("a hierarchy has at least one level", expected=LEVELS)
    listed = ", ".join(levels)
    return f"SELECT {listed}, {aggregate} AS value FROM {source} GROUP BY ROLLUP ({listed})"


def margin_statement(source: str, margins: Sequence[Sequence[str]], aggregate: str) -> tuple[str, list[str]]:
    """A set of margins as a question, and the columns in their order; a margin that is named twice is measured once."""
    if not isinstance(margins, Sequence) or not margins or not all(_is_margin(margin) for margin in margins):
        raise ParameterError("margins are lists of columns", expected=MARGINS)
    columns = check_columns(list(dict.fromkeys(column for margin in margins for column in margin)), MARGINS)
    wanted = dict.fromkeys(tuple(sorted(set(margin), key=columns.index)) for margin in margins)
    sets = ", ".join(f"({', '.join(margin)})" for margin in wanted)
    listed = "".join(f"{column}, " for column in columns)
    return f"SELECT {listed}{aggregate} AS value FROM {source} GROUP BY GROUPING SETS ({sets})", columns


def _is_margin(margin: object) -> bool:
    return isinstance(margin, Sequence) and not isinstance(margin, str) and all(isinstance(c, str) for c in margin)


def plan(
    context: Context,
    statement: str,
    columns: Sequence[str],
    asked: Budget | None,
    importance: Mapping[str, float] | None,
    *,
    tree: bool,
) -> SetsPlan:
    """The plan with the best shares; public keys are read, private rows are not."""
    from deniable.query.techniques.grouping_sets import compile_sets

    tables = context.admit_tables()
    public = [table.name for table in context.policy.tables if table.public]
    engine = context.scope.attach_public(*public)
    shown = [bare_name(column) for column in columns]
    sets = compile_sets(statement, shown, tables, engine, asked, importance, tree=tree, pure=is_pure(context))
    refuse_elsewhere(context, sets.query)
    return sets


def hierarchy(
    context: Context,
    source: str,
    levels: Sequence[str],
    asked: Budget | None,
    *,
    aggregate: str = "COUNT(*)",
    importance: Mapping[str, float] | None = None,
    nonnegative: bool = False,
    confidence: float = 0.95,
) -> QueryAnswer:
    """A tree of whole numbers that add up, each cell with its error."""
    from deniable.query.techniques.grouping_sets import release_tree

    check_confidence(confidence)
    sets = plan(context, tree_statement(source, levels, aggregate), levels, asked, importance, tree=True)
    job = job_of(sets.query)
    result = run_job(context, job)
    with after_the_charge():
        rows = release_tree(sets, result.measured, confidence, nonnegative=nonnegative)
    details = {**describe_sets(sets).to_dict(), "notes": list(NOTES), "confidence": confidence}
    return answer_job(context, job, result, rows, **details)


def margins(
    context: Context,
    source: str,
    wanted: Sequence[Sequence[str]],
    asked: Budget | None,
    *,
    aggregate: str = "COUNT(*)",
    importance: Mapping[str, float] | None = None,
    confidence: float = 0.95,
) -> QueryAnswer:
    """A set of margins that agree with each other, each cell with its error."""
    from deniable.query.techniques.grouping_sets import release_margins

    check_confidence(confidence)
    statement, columns = margin_statement(source, wanted, aggregate)
    sets = plan(context, statement, columns, asked, importance, tree=False)
    job = job_of(sets.query)
    result = run_job(context, job)
    with after_the_charge():
        rows = release_margins(sets, result.measured, confidence)
    details = {**describe_sets(sets).to_dict(), "notes": list(NOTES), "confidence": confidence}
    return answer_job(context, job, result, rows, **details)


def describe_sets(sets: SetsPlan) -> SetsSummary:
    """The grouping sets with their cells, share of the budget, and standard error as measured and as fitted."""
    from deniable.query.explain import SetPlan, SetsSummary
    from deniable.query.techniques.grouping_sets import name_sets

    measured = sets.variances
    fitted = sets.fit_variances(measured)
    told = [
        SetPlan(
            name=name,
            cells=len(sets.keys[i]),
            share=f"{float(sets.node.steps[i].placed[0].share):.4g}",
            error_measured=measured[i] ** 0.5 * sets.step,
            error_fitted=fitted[i] ** 0.5 * sets.step,
        )
        for i, name in enumerate(name_sets(sets))
    ]
    return SetsSummary(told, sets.query.strategy)


def explain_tree(
    context: Context,
    source: str,
    levels: Sequence[str],
    asked: Budget | None,
    *,
    aggregate: str = "COUNT(*)",
    importance: Mapping[str, float] | None = None,
) -> SetsExplanation:
    """What a hierarchy would measure and cost, without touching private rows."""
    statement = tree_statement(source, levels, aggregate)
    return _explain(context, plan(context, statement, levels, asked, importance, tree=True))


def explain_margins(
    context: Context,
    source: str,
    wanted: Sequence[Sequence[str]],
    asked: Budget | None,
    *,
    aggregate: str = "COUNT(*)",
    importance: Mapping[str, float] | None = None,
) -> SetsExplanation:
    """What a set of margins would measure and cost, without touching private rows."""
    statement, columns = margin_statement(source, wanted, aggregate)
    return _explain(context, plan(context, statement, columns, asked, importance, tree=False))


def _explain(context: Context, sets: SetsPlan) -> SetsExplanation:
    from deniable.query.explain import SetsExplanation
    from deniable.query.explain import explain as explain_plan

    told = explain_plan(sets.query)
    private = job_of(sets.query).private
    notes = [*told.notes, *note_missing_ids(context, private), *note_places(context, private)]
    return SetsExplanation(**(told | {"notes": notes}), sets=describe_sets(sets).sets)


TOTAL, MEAN = "total", "mean"
SUMS = ("total", "spread", "people", "people_spread", "joint")
TAKEN = {f"{name}{end}" for name in (*SUMS, MEAN) for end in ("", "_low", "_high")} | {"standard_error"}
WEIGHTED = (
    "Intervals include the error of the sample and of the noise. They hold where people are in the survey "
    "independently of one another, each with probability 1 / weight; clusters and quotas have other errors."
)
SCALED = (
    "Intervals include the error of the sample and of the noise. Weights below 1 are declared, so weights are taken "
    "up to a common factor: the intervals hold where people are in the survey independently of one another, each with "
    "a probability that is the inverse of their weight times one number; clusters and quotas have other errors."
)


def ask_weighted(
    context: Context, table: str, of: str = "", *, weight: str, by: Sequence[str] = (), where: str = "",
    statistic: str = TOTAL,
) -> tuple[str, str]:  # fmt: skip
    """The question of a weighted estimate, and what holds of its intervals; no row is read.

    Refuses weights that the policy lets be less than a person can stand for.
    """
    least = _find_least_weight(context, table, weight)
    if least is not None and (least < 0 or (least < 1 and statistic == TOTAL)):
        below = "negative" if least < 0 else "below 1, and a person stands for one at least"
        raise ParameterError(
            f"weights of '{bare_name(weight)}' may be {below}",
            expected="between: [1, ...] in the policy for a total, and [0, ...] for a mean",
            remedy="Weights whose mean is 1 have no total: ask for the mean, or multiply them by people in the "
            "population for each one in the survey",
        )
    scaled = least is not None and least < 1
    told = write_question(table, of, weight=weight, by=by, where=where, statistic=statistic, scaled=scaled)
    return told, SCALED if scaled else WEIGHTED


def _find_least_weight(context: Context, table: str, weight: str) -> Fraction | None:
    """The declared lower bound of the weights; None where there is no such column, which the question's compiler tells.

    It is looked up as the compiler looks names up: in any case.
    """
    from deniable.policy.schema import number_of

    wanted, name = _bare_table(table).lower(), bare_name(weight).lower()
    found = [each for each in context.admit_tables() if each.name.lower() == wanted]
    column = next((each for known in found for each in known.columns if each.name.lower() == name), None)
    if column is None:
        return None
    if column.bounds is None:
        raise ParameterError(
            f"column '{column.name}' of '{found[0].name}' has no declared bounds, and weights need them",
            expected="The most people that one stands for", remedy="Declare between: [1, 100] in the policy",
        )  # fmt: skip
    return Fraction(number_of(column.bounds.lower))


def write_question(
    table: str, of: str = "", *, weight: str, by: Sequence[str] = (), where: str = "", statistic: str = TOTAL,
    scaled: bool = False,
) -> str:  # fmt: skip
    """The sums of a weighted estimate as a question in SQL; without a column people are counted.

    The spread of a sum of w y has w (w - 1) for each person, who is in the survey with probability 1 / w. Where weights
    are `scaled` by a number that nobody stated, it has w², which is never less, and so are the intervals of a mean.

    >>> write_question("survey", weight="w")
    'SELECT SUM("w") AS total, SUM("w" * ("w" - 1)) AS spread FROM "survey"'
    """
    if statistic not in (TOTAL, MEAN) or (statistic == MEAN and not of):
        raise ParameterError("there is no such weighted estimate", expected="total, or mean of a column")
    names = [bare_name(each) for each in check_columns(by, "by=['sex']")]
    if taken := [name for name in names if name.lower() in TAKEN]:
        raise ParameterError(
            f"the answer has a column '{taken[0]}' of its own", expected="Groups by columns of other names",
            remedy="Ask for the sums in SQL, and name the column as you like",
        )  # fmt: skip
    keys = [quote(name) for name in names]
    w, y = quote(bare_name(weight)), quote(bare_name(of)) if of else ""
    times = f" * {y}" if of else ""
    spread = f"{w} * {w}" if scaled else f"{w} * ({w} - 1)"
    sums = [f"SUM({w}{times}) AS total", f"SUM({spread}{times}{times}) AS spread"]
    if statistic == MEAN:
        sums += [f"SUM({w}) AS people", f"SUM({spread}) AS people_spread", f"SUM({spread}{times}) AS joint"]
    # Whoever gave no value is in neither sum of a mean.
    kept = [f"(\n{where}\n)" if where else "", f"{y} IS NOT NULL" if statistic == MEAN else ""]
    condition = f" WHERE {' AND '.join(filter(None, kept))}" if any(kept) else ""
    groups = f" GROUP BY {', '.join(keys)}" if keys else ""
    return f"SELECT {', '.join([*keys, *sums])} FROM {quote(_bare_table(table))}{condition}{groups}"


def _bare_table(name: str) -> str:
    """A table's name without quotation marks; a point in it is part of the name."""
    return name.strip('"')


def weighted(
    context: Context,
    table: str,
    of: str = "",
    *,
    weight: str,
    by: Sequence[str] = (),
    where: str = "",
    statistic: str = TOTAL,
    epsilon: Amount | None = None,
    delta: Amount = 0,
    rho: Amount | None = None,
    confidence: float = 0.95,
) -> QueryAnswer:
    """For each group the weighted estimate with its standard error and interval."""
    import pyarrow as pa

    budget = state_budget(epsilon, delta, rho)
    if where:  # by itself first: what is no condition alone could end the parentheses around it
        compile_sql(context, f"SELECT COUNT(*) FROM {quote(_bare_table(table))} WHERE {where}", budget)
    statement, note = ask_weighted(context, table, of, weight=weight, by=by, where=where, statistic=statistic)
    answer = auto_bounds.query(context, statement, budget, confidence=confidence)
    with after_the_charge():
        rows = [_estimate_row(row, statistic, confidence) for row in answer.to_pylist()]
        notes: Any = answer.release.details.get("notes") or []
        details = {**answer.release.details, "notes": [*notes, note], "statistic": statistic}
        return replace(answer, release=replace(answer.release, rows=pa.Table.from_pylist(rows), details=details))


def _estimate_row(row: Mapping[str, Any], statistic: str, confidence: float) -> dict[str, Any]:
    from deniable.geography.survey import combine_errors, combine_ratio

    keys = {name: value for name, value in row.items() if name not in TAKEN}
    total = [float(row[f"total{end}"]) for end in ("", "_low", "_high")]
    if statistic == TOTAL:
        found = combine_errors(total[0], total[1], total[2], float(row["spread"]), confidence)
    else:
        people = [float(row[f"people{end}"]) for end in ("", "_low", "_high")]
        spreads = [float(row[name]) for name in ("spread", "joint", "people_spread")]
        found = combine_ratio(total, people, spreads, confidence)
    told = {statistic: found.total, f"{statistic}_low": found.low, f"{statistic}_high": found.high}
    return keys | told | {"standard_error": found.error}
