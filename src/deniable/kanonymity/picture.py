"""The lattice as data: every node that was checked, with its loss and its risk, for a plot or a table."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from deniable.kanonymity.lattice import Levels
from deniable.kanonymity.search.problem import Solution, Verdict


@dataclass(frozen=True, slots=True)
class LatticePoint:
    """One node: its levels, how general it is, what it costs, the mean risk of its release, and what became of it."""

    levels: Levels
    height: int
    cost: float | None
    base: float
    risk: float
    suppressed: int
    acceptable: bool
    chosen: bool


def lattice_points(verdicts: Iterable[Verdict], solution: Solution, rows: int) -> tuple[LatticePoint, ...]:
    """The nodes that a search checked, the least general first.

    Nodes that were excluded without a check are not there: their number stands in the proof. The risk is the
    marketer's, classes over released rows; a node without any released row has risk 0.
    """
    points = [
        LatticePoint(
            verdict.levels,
            sum(verdict.levels),
            verdict.cost if verdict.acceptable else None,
            verdict.base,
            verdict.classes / (rows - verdict.suppressed) if rows > verdict.suppressed else 0.0,
            verdict.suppressed,
            verdict.acceptable,
            verdict.levels == solution.levels,
        )
        for verdict in verdicts
    ]
    return tuple(sorted(points, key=lambda point: (point.height, point.levels)))
