"""Consistency between grouping sets: children adjusted so that they add up to their parents. Free post-processing.

A ROLLUP measures nation, states and counties each with noise of its own, so they do not add up. The adjusted cells x of
the finest set are the weighted least squares solution of "the cells of every set, summed from x, are as measured", each
set weighted by one over its noise's variance: of all linear estimates that add up, it has the least variance. Cells are
then rounded to whole steps and the other sets are summed from them, so they add up exactly.

Only counts and sums over public keys can be made to add up; other aggregates of the question stay as they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.errors import QueryRefused
from deniable.query.execute import Noisy
from deniable.query.keys import PrivateKeys
from deniable.query.measure import Rows, Total
from deniable.query.plan import NodePlan, QueryPlan

Cells = NDArray[np.float64]
ROUNDS = 200
"""Conjugate gradients end after as many rounds as there are different eigenvalues: one for each grouping set, where all
combinations of keys are there."""
TOLERANCE = 1e-12


def refuse_inconsistent(plan: QueryPlan) -> None:
    """Refuse, before anything is charged, a question whose grouping sets cannot be made to add up."""
    for node in plan.nodes:
        if len(node.steps) > 1 and (any(isinstance(s.keys, PrivateKeys) for s in node.steps) or _finest(node) is None):
            raise QueryRefused(
                "the grouping sets of this question cannot be made consistent",
                expected="Public keys, and one grouping set that has all keys of the others",
                remedy="Declare the categories of the keys, or use ROLLUP or CUBE",
            )


def adjusted(node: NodePlan, parts: tuple[Noisy, ...]) -> tuple[Noisy, ...]:
    """The measurements of a node's grouping sets, counts and sums adding up; unchanged where there is one set."""
    finest = _finest(node)
    if len(parts) < 2 or finest is None:
        return parts
    parents = [_parents(node, parts, finest, i) for i in range(len(parts))]
    values = [list(part.values) for part in parts]
    for m, measurement in enumerate(node.measurements):
        if isinstance(measurement, Rows) or (isinstance(measurement, Total) and measurement.per_group is None):
            weights = [step.placed[m].deviation ** -2 for step in node.steps]
            cells = np.rint(_solved([part.values[m] for part in parts], parents, weights, finest)).astype(np.int64)
            for i, part in enumerate(parts):
                values[i][m] = np.zeros(len(part.values[m]), dtype=np.int64)
                np.add.at(values[i][m], parents[i], cells)
    return tuple(Noisy(part.keys, tuple(found)) for part, found in zip(parts, values, strict=True))


def _finest(node: NodePlan) -> int | None:
    """The grouping set that has the keys of all others."""
    every = {place for step in node.steps for place in step.places}
    return next((i for i, step in enumerate(node.steps) if set(step.places) == every), None)


def _parents(node: NodePlan, parts: tuple[Noisy, ...], finest: int, coarse: int) -> NDArray[np.int64]:
    """For each cell of the finest set, the cell of a coarser one that it belongs to."""
    names = [node.node.keys[place][0] for place in node.steps[coarse].places]
    rows = parts[finest].keys.num_rows
    if not names:
        return np.zeros(rows, dtype=np.int64)
    places = {key: i for i, key in enumerate(_keys(parts[coarse], names))}
    return np.array([places[key] for key in _keys(parts[finest], names)], dtype=np.int64)


def _keys(part: Noisy, names: list[str]) -> list[tuple[Any, ...]]:
    return list(zip(*(part.keys.column(name).to_pylist() for name in names), strict=True))


def _solved(measured: list[NDArray[Any]], parents: list[NDArray[np.int64]], weights: list[float], finest: int) -> Cells:
    """Conjugate gradients on the normal equations; sums over cells and their transposes are the only products."""

    def up(cells: Cells, i: int) -> Cells:
        summed: Cells = np.bincount(parents[i], weights=cells, minlength=len(measured[i])).astype(np.float64)
        return summed

    def normal(cells: Cells) -> Cells:
        product: Cells = np.sum([w * up(cells, i)[parents[i]] for i, w in enumerate(weights)], axis=0)
        return product

    target = np.sum([w * measured[i].astype(np.float64)[parents[i]] for i, w in enumerate(weights)], axis=0)
    cells = measured[finest].astype(np.float64)
    rest = target - normal(cells)
    way, size = rest.copy(), float(rest @ rest)
    goal = TOLERANCE * max(float(target @ target), 1.0)
    for _ in range(ROUNDS):
        if size <= goal:
            break
        moved = normal(way)
        cells = cells + (length := size / float(way @ moved)) * way
        rest = rest - length * moved
        way, size = rest + (float(rest @ rest) / size) * way, float(rest @ rest)
    return cells
