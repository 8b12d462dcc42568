"""Hierarchies and margins as questions: grouping sets with the best shares, then fitted so that they agree.

A hierarchy is `GROUP BY ROLLUP`, a set of margins is `GROUP BY GROUPING SETS`. Both go through the same compiler as any
other question, so contribution bounds, sensitivities, prices and the double entry are those of SQL; what is chosen here
is how much of the budget each grouping set gets, and what is done here afterwards is post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from numbers import Real
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.errors import ParameterError, QueryRefused, nearest
from deniable.policy.budget import Budget
from deniable.policy.schema import TableSchema
from deniable.query.calibration import BySet
from deniable.query.compile import compile_query
from deniable.query.execute import NoisyResults, Runner
from deniable.query.keys import Listed, PublicKeys
from deniable.query.measurements import Rows, Total
from deniable.query.plan import NodePlan, QueryPlan, Step
from deniable.query.sql.private_sql import key_names, render_keys_alone
from deniable.query.techniques.least_squares import (
    Fit,
    Margin,
    Tree,
    find_best_shares,
    fit_margins,
    fit_tree,
    predict_margin_variances,
    predict_tree_variances,
    round_top_down,
)

Keys = list[tuple[object, ...]]
MOST_WEIGHT = 10**9
"""The largest weight of a grouping set: beyond it the others would be forgotten."""


@dataclass(frozen=True, slots=True)
class SetsPlan:
    """A plan of grouping sets with what is public about them: names, keys, and the error of each after fitting."""

    query: QueryPlan
    columns: tuple[str, ...]
    margins: tuple[Margin, ...]
    keys: tuple[Keys, ...]
    tree: bool

    @property
    def node(self) -> NodePlan:
        """The one noisy node."""
        return self.query.nodes[0]

    @property
    def variances(self) -> list[float]:
        """The variance of the noise on a cell of each grouping set, in steps, as measured."""
        return [step.placed[0].deviation ** 2 for step in self.node.steps]

    @property
    def step(self) -> float:
        """What one step is worth."""
        return float(getattr(self.node.measurements[0], "step", 1))

    @property
    def sizes(self) -> list[int]:
        """How many values each column has."""
        return [len({key[margin.index(i)] for margin, keys in zip(self.margins, self.keys, strict=True)
                     if i in margin for key in keys}) for i in range(len(self.columns))]  # fmt: skip

    def fit_variances(self, measured: Sequence[float]) -> list[float]:
        """The variance of a cell of each grouping set after fitting (of a regular tree with as many cells)."""
        if not self.tree:
            return predict_margin_variances(self.sizes, self.margins, measured)
        order = self.from_the_top()
        found = predict_tree_variances([len(self.keys[i]) for i in order], [measured[i] for i in order])
        return [found[order.index(i)] for i in range(len(order))]

    def from_the_top(self) -> list[int]:
        """The places of the grouping sets, coarsest first."""
        return sorted(range(len(self.margins)), key=lambda i: len(self.margins[i]))


def compile_sets(
    text: str,
    columns: Sequence[str],
    tables: tuple[TableSchema, ...],
    engine: Runner,
    asked: Budget | None,
    importance: Mapping[str, float] | None,
    *,
    tree: bool,
    pure: bool = False,
) -> SetsPlan:
    """The plan with the best shares. The engine reads public keys only."""
    even = compile_query(text, tables, asked, pure=pure)
    _refuse_unfit(even)
    plan = _describe_sets(even, columns, engine, tree)
    _refuse_cells(plan)
    steps, gaussian = plan.node.steps, even.strategy != "pure"
    norms = [step.placed[0].norm(gaussian) for step in steps]
    wanted = _weigh_sets(importance, name_sets(plan))
    shares = find_best_shares(plan.fit_variances, norms, wanted, gaussian=gaussian)
    best = compile_query(text, tables, asked, weights=BySet(shares), pure=pure)
    return _describe_sets(best, columns, engine, tree)


def name_sets(plan: SetsPlan) -> list[str]:
    """The grouping sets by name: `total`, or the columns joined by commas."""
    if plan.tree:
        return [plan.columns[margin[-1]] if margin else "total" for margin in plan.margins]
    return [", ".join(plan.columns[i] for i in margin) or "total" for margin in plan.margins]


def _refuse_unfit(plan: QueryPlan) -> None:
    nodes = plan.nodes
    fine = len(nodes) == 1 and len(nodes[0].measurements) == 1 and not plan.free
    if not fine or not isinstance(nodes[0].measurements[0], Rows | Total) or len(nodes[0].recipes) != 1:
        raise QueryRefused("a hierarchy has one aggregate that adds up", expected="COUNT(*) or SUM of a column")
    if not all(isinstance(step.keys, PublicKeys) for step in nodes[0].steps):
        raise QueryRefused(
            "the cells of a hierarchy must be public",
            expected="Columns with declared categories, or columns of a public table",
            remedy="Declare categories in the policy, or join a public table that lists the cells",
        )


def _refuse_cells(plan: SetsPlan) -> None:
    """Refuse sets that are one set, and sets without cells, which have no error to share a budget by."""
    if len({frozenset(margin) for margin in plan.margins}) < len(plan.margins):
        raise QueryRefused("two grouping sets are of the same columns", remedy="Name each set once")
    if not all(plan.keys):
        raise QueryRefused("the hierarchy has no cells", expected="A public table that lists at least one")
    if plan.tree:
        _refuse_orphans([plan.keys[i] for i in plan.from_the_top()])


def _refuse_orphans(levels: Sequence[Keys]) -> None:
    for above, below in pairwise(levels):
        if len(set(below)) < len(below) or not {key[:-1] for key in below} <= set(above):
            raise QueryRefused("the cells are no tree", expected="A public table that lists each cell under one parent")


def _is_weight(value: Any) -> bool:
    return isinstance(value, Real) and 0 <= float(value) <= MOST_WEIGHT


def _weigh_sets(importance: Mapping[str, float] | None, names: Sequence[str]) -> list[float]:
    """How much each grouping set matters, 1 where nothing is said; refuses what is no weight."""
    given = {} if importance is None else importance
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise ParameterError("importance is a weight by the name of a grouping set", expected="importance={'state': 2}")
    unknown = next((name for name in given if name not in names), None)
    if unknown is not None:
        raise ParameterError(f"there is no grouping set '{unknown}'", remedy=nearest(unknown, names))
    if not all(_is_weight(w) for w in given.values()):
        raise ParameterError("a weight is not a number from 0 to a billion", expected="importance={'state': 2}")
    wanted = [float(given.get(name, 1)) for name in names]
    if not any(wanted):
        raise ParameterError("no grouping set has any weight", expected="importance={'state': 2}")
    return wanted


def _describe_sets(plan: QueryPlan, columns: Sequence[str], engine: Runner, tree: bool) -> SetsPlan:
    node = plan.nodes[0]
    if not tree and not all(_is_crossed(step) for step in node.steps):
        raise QueryRefused("margins are taken over declared categories", remedy="Use a hierarchy for nested columns")
    keys = tuple(_read_keys(step, engine) for step in node.steps)
    return SetsPlan(plan, tuple(columns), tuple(step.places for step in node.steps), keys, tree)


def _is_crossed(step: Step) -> bool:
    assert isinstance(step.keys, PublicKeys)
    return not step.keys.restriction and all(isinstance(part, Listed) for part in step.keys.parts)


def _read_keys(step: Step, engine: Runner) -> Keys:
    if not step.places:
        return [()]
    assert isinstance(step.keys, PublicKeys)
    found = engine.run(render_keys_alone(step.keys, step.places))
    return list(zip(*(found.column(name).to_pylist() for name in key_names(step.places)), strict=True))


def release_tree(plan: SetsPlan, measured: NoisyResults, confidence: float, *, nonnegative: bool) -> pa.Table:
    """One row for each cell of the tree, from the root down, with whole values that add up."""
    order = plan.from_the_top()
    parts, variances = measured[plan.node.node.name], plan.variances
    tree = Tree.of([plan.keys[i] for i in order])
    fit = fit_tree(tree, [parts[i].values[0] for i in order], [variances[i] for i in order])
    values = round_top_down(tree, fit, nonnegative=nonnegative)
    names = name_sets(plan)
    tables = [
        _build_rows(plan, names[i], i, values[depth], _compute_reach(plan, fit[depth], confidence))
        for depth, i in enumerate(order)
    ]
    return pa.concat_tables(tables, promote_options="permissive")


def release_margins(plan: SetsPlan, measured: NoisyResults, confidence: float) -> pa.Table:
    """One row for each cell of every margin; margins that share columns agree on them."""
    parts, sizes = measured[plan.node.node.name], plan.sizes
    shaped = [
        part.values[0].reshape([sizes[i] for i in margin]) for part, margin in zip(parts, plan.margins, strict=True)
    ]
    values = fit_margins(sizes, plan.margins, shaped, plan.variances)
    spread = plan.fit_variances(plan.variances)
    tables = []
    for i, name in enumerate(name_sets(plan)):
        fit = Fit(values[i].ravel(), np.full(values[i].size, spread[i]))
        tables.append(_build_rows(plan, name, i, fit.values, _compute_reach(plan, fit, confidence)))
    return pa.concat_tables(tables, promote_options="permissive")


def _compute_reach(plan: SetsPlan, fit: Fit, confidence: float) -> NDArray[np.float64]:
    """Half the width of the interval of each cell.

    A weighted sum of Laplace noises has lighter tails than one Laplace noise of the same variance, whose quantile is
    ln(1 / alpha) / sqrt(2) standard deviations.
    """
    alpha = 1 - confidence
    factor = -NormalDist().inv_cdf(alpha / 2)
    if plan.query.strategy != "gaussian":
        factor = max(factor, math.log(1 / alpha) / math.sqrt(2))
    reach: NDArray[np.float64] = factor * np.sqrt(fit.variances)
    return reach


def _build_rows(plan: SetsPlan, name: str, place: int, values: NDArray[Any], reach: NDArray[np.float64]) -> pa.Table:
    keys, margin = plan.keys[place], plan.margins[place]
    whole = plan.step == 1 and values.dtype.kind == "i"
    scaled = values if whole else values * plan.step
    columns: dict[str, Any] = {"level" if plan.tree else "margin": pa.array([name] * len(keys))}
    for i, column in enumerate(plan.columns):
        column_keys = [key[margin.index(i)] for key in keys] if i in margin else None
        columns[column] = pa.array(column_keys) if column_keys is not None else pa.nulls(len(keys))
    columns["value"] = pa.array(scaled)
    columns["value_low"], columns["value_high"] = (
        pa.array(scaled - reach * plan.step),
        pa.array(scaled + reach * plan.step),
    )
    return pa.table(columns)
