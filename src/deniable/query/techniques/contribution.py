"""CONTRIBUTION AUTO: how many groups and rows of one person count, found with noise for a share of the budget.

Bounds that were read from the data would tell of the person with the most rows. So for each bound a histogram is bought
first: how many people are in one group, in two, in three and so on, with fixed bins. Each person is in one bin, so it
is an ordinary question, compiled, priced, charged and checked like any. The bound is then the one for which the noise
of the question and what it would cut, by the histogram, are least together.

**Guarantee.** That of the questions; the choice is post-processing of their noisy counts.
**Utility.** A bin counts for empty below what noise alone reaches, so that at most about as many people are cut as the
threshold says; bounds are at most 1.5 times as large as needed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from deniable.errors import QueryRefused
from deniable.policy.schema import Bounding
from deniable.query import bias
from deniable.query.algebra.expression import ColumnRef, Expression, literal
from deniable.query.algebra.functions import call
from deniable.query.algebra.relation import (
    Field,
    Measure,
    Measured,
    NoisyAggregate,
    PerUnit,
    Relation,
    find_noisy_nodes,
    has_one_row,
)
from deniable.query.execute import NoisyResults
from deniable.query.keys import PublicKeys, keys_of
from deniable.query.plan import GROUPS, IN_ALL, IN_EACH, QueryPlan, bound_unit
from deniable.query.sql.clauses import Clauses

EDGES = (1, 2, 3, *(edge for power in range(2, 20) for edge in (2**power, 3 * 2 ** (power - 1))))
"""The largest count of each bin: 1, 2, 3, 4, 6, 8, 12, ...; whoever has more is in the last one."""


@dataclass(frozen=True, slots=True)
class Search:
    """A bound that is to be found: the option that states it, and the histogram of people that it is chosen by."""

    option: str
    node: Measured
    edges: tuple[int, ...]
    spread: int
    """Over how many groups that are shown what is cut is spread."""


@dataclass(frozen=True, slots=True)
class FoundBound:
    """A bound that was found: public, like any answer. `found` is false where no bin rose above the noise."""

    option: str
    value: int
    threshold: int
    """A bin counted from so many people (with noise) on."""
    found: bool


def plan_searches(relation: Relation, clauses: Clauses) -> tuple[Search, ...]:
    """The bounds that a question leaves open; none where each person has one row by construction."""
    nodes = find_noisy_nodes(relation)
    if not nodes:
        return ()
    if len(nodes) != 1:
        raise QueryRefused(
            f"CONTRIBUTION AUTO finds the bounds of one SELECT over people, and here are {len(nodes)}",
            remedy="Ask each SELECT by itself, or state the bounds: "
            "CONTRIBUTION (max_groups_contributed = 3, max_rows_per_group = 2)",
        )
    (node,) = nodes
    unit = bound_unit(node, clauses)
    if unit.is_row:
        raise QueryRefused(
            "each row is a unit here, and contributes itself alone", remedy="Leave out CONTRIBUTION AUTO"
        )
    if has_one_row(node.input):
        return ()
    if unit.bounding is Bounding.ROWS:
        return _list_open(node, (IN_ALL, "n", bias.count_rows_in_all(node), unit.rows_in_all, 1))
    keys = [keys_of(node, places) for places in node.grouping_sets]
    cells = max(((each.cells or 1) if isinstance(each, PublicKeys) else 1 for each in keys), default=1)
    most = cells if all(isinstance(each, PublicKeys) for each in keys) else None
    counted, found = bias.count_contributions(node), []
    if node.keys:
        found.append((GROUPS, "groups", counted, min(unit.max_groups or EDGES[-1], most or EDGES[-1]), cells))
    if not all(each.measure is Measure.UNITS or each.per_group for _, each in node.aggregates):
        found.append((IN_EACH, "most", counted, unit.max_rows_per_group, cells))
    return _list_open(node, *found)


def _list_open(node: Measured, *wanted: tuple[str, str, PerUnit, int | None, int]) -> tuple[Search, ...]:
    found = []
    for option, column, counted, most, spread in wanted:
        edges = EDGES if most is None else (*(edge for edge in EDGES if edge < most), most)
        found.append(Search(option, _build_histogram(node, option, column, counted, edges), edges, spread))
    return tuple(found)


def _build_histogram(node: Measured, option: str, column: str, counted: PerUnit, edges: tuple[int, ...]) -> Measured:
    """How many people are in each bin."""
    value = ColumnRef(column, bias.COUNTED)
    parts: list[Expression] = []
    for place, edge in enumerate(edges[:-1]):
        parts += [call("le", value, literal(edge)), literal(place)]
    bins = call("case", *parts, literal(len(edges) - 1)) if parts else literal(0)
    people = NoisyAggregate(Measure.UNITS, None, text=f"people by {option}")
    facts = replace(bias.COUNTED, public=True)
    fields = (Field("k0", replace(bins.facts, public=True)), Field("a0", facts))
    return Measured(counted, (("k0", bins),), ((0,),), (("a0", people),), fields, f"{node.name}_{option}")


def choose_bound(
    search: Search, plan: QueryPlan, measured: NoisyResults, question: QueryPlan, confidence: float
) -> FoundBound:
    """The bound with the least of expected noise and of what would be cut, by the bins that rise above the noise.

    `question` is the plan of what is asked, with bounds of 1. Laplace noise grows with the bound, and Gaussian noise
    with the root of a bound on groups.
    """
    noisy, placed = measured[search.node.name][0], plan.nodes[0].steps[0].placed[0]
    edges = np.array(search.edges, dtype=np.float64)
    threshold = placed.accuracy(1 - confidence, len(edges))
    people = np.zeros(len(edges))
    people[np.array(noisy.keys.column(0).to_pylist(), dtype=np.int64)] = noisy.values[0]
    people = np.where(people > threshold, people, 0)
    grown = np.sqrt(edges) if question.strategy != "pure" and search.option == GROUPS else edges
    cut = np.maximum(edges[np.newaxis, :] - edges[:, np.newaxis], 0) @ people
    best = int(np.argmin(_expect_noise(question) * grown + cut / search.spread))
    return FoundBound(search.option, search.edges[best], threshold, bool(people.any()))


def _expect_noise(question: QueryPlan) -> float:
    """The mean deviation of a question's noise, in rows of the largest reach."""
    gaussian = question.strategy != "pure"
    placed = [each for node in question.nodes for step in node.steps for each in step.placed if each.norm(gaussian)]
    return float(np.mean([each.deviation / each.norm(gaussian) for each in placed])) if placed else 0.0


def list_narrower(found: tuple[FoundBound, ...]) -> list[tuple[FoundBound, ...]]:
    """The same bounds, none above an ever smaller number, the largest first; at the end all are 1."""
    widest = max((each.value for each in found), default=1)
    smaller = [edge for edge in reversed(EDGES) if edge < widest] or [1]
    return [tuple(replace(each, value=min(each.value, edge)) for each in found) for edge in smaller]


def write_bounds(values: dict[str, int]) -> str:
    """The clause that states bounds.

    >>> write_bounds({"max_groups_contributed": 3, "max_rows_per_group": 2})
    'CONTRIBUTION (max_groups_contributed = 3, max_rows_per_group = 2)'
    """
    return f"CONTRIBUTION ({', '.join(f'{name} = {value}' for name, value in values.items())})" if values else ""
