"""The other way round: from the error an analyst can live with to the least epsilon, before any data is read.

WITHIN 100 asks that each count or sum err by at most 100, with the stated confidence for each number. WITHIN 5% needs a
public size, since what 5% is of must not be read from the data: WITHIN 5% OF 20000 says that a group has about 20,000
rows, and means 5% of 20,000 for a count, of 20,000 times the largest value for a sum, and of the width between the
bounds for an average.
"""

from __future__ import annotations

from fractions import Fraction

from deniable.errors import QueryRefused
from deniable.policy.budget import ZCDP, Budget, budget
from deniable.query.compile import plan_for
from deniable.query.measure import Recipe, Total
from deniable.query.plan import NodePlan, QueryPlan, Step
from deniable.query.relation import Measure, Relation
from deniable.query.shares import Weights
from deniable.query.sql.clauses import Clauses, Within

LEAST, MOST = Fraction(1, 10**6), Fraction(1000)
ROUNDS = 24
"""Bisections on a logarithmic grid: epsilon is found within a factor of 1.0000013."""


def cheapest(
    text: str, relation: Relation, clauses: Clauses, asked: Budget | None, weights: Weights = None
) -> QueryPlan:
    """The plan with the least epsilon that meets the WITHIN clause; a budget stated beside it is the most to spend."""
    within = clauses.within
    assert within is not None
    if isinstance(asked, ZCDP):
        raise QueryRefused(
            "WITHIN finds an epsilon, and the budget is stated in rho", remedy="State a delta, or nothing"
        )
    delta = asked.delta if asked is not None else Fraction(clauses.options.get("delta", 0))

    def plan(epsilon: Fraction) -> QueryPlan:
        return plan_for(text, relation, clauses, budget(epsilon, delta), weights)

    most = asked.epsilon if asked is not None and asked.epsilon > 0 else MOST
    best = plan(most)
    if best.free:
        return best
    if not _meets(best, within):
        raise QueryRefused(
            f"no epsilon up to {float(most):g} reaches the accuracy that was asked",
            remedy="Allow a larger error, or narrow the bounds of what is summed",
        )
    return _bisected(plan, best, most, within)


def _bisected(plan: object, best: QueryPlan, most: Fraction, within: Within) -> QueryPlan:
    """Shrink epsilon by powers of two, then refine: noise falls as epsilon grows, so the condition is monotone."""
    assert callable(plan)
    low, high = LEAST, most
    for _ in range(ROUNDS):
        middle = Fraction(round(float(low * high) ** 0.5, 9)).limit_denominator(10**9)
        if not low < middle < high:
            break
        trial = plan(middle)
        if _meets(trial, within):
            best, high = trial, middle
        else:
            low = middle
    return best


def _meets(plan: QueryPlan, within: Within) -> bool:
    alpha = float(1 - within.confidence)
    return all(
        _error(recipe, step, alpha, within) <= _allowed(recipe, node, within)
        for node in plan.nodes
        for step in node.steps
        for recipe in node.recipes
    )


def _allowed(recipe: Recipe, node: NodePlan, within: Within) -> float:
    if not within.relative:
        return float(within.error)
    if within.relative_to is None:
        raise QueryRefused(
            "WITHIN a percentage needs to know of what, and that must not be read from the data",
            remedy="Write WITHIN 5% OF 20000, with the number of rows you expect in a group",
        )
    share = within.error / 100
    measurement = node.measurements[recipe.places[0]]
    match recipe.measure:
        case Measure.SUM:
            assert isinstance(measurement, Total)
            return float(share * within.relative_to * max(abs(measurement.lower), abs(measurement.upper)) * recipe.step)
        case Measure.AVG:
            assert recipe.lower is not None
            assert recipe.upper is not None
            return float(share * (recipe.upper - recipe.lower))
        case _:
            return float(share * within.relative_to)


def _error(recipe: Recipe, step: Step, alpha: float, within: Within) -> float:
    """The error that the aggregate passes with probability alpha."""
    placed = [step.placed[place] for place in recipe.places]
    match recipe.measure:
        case Measure.COUNT | Measure.SUM:
            return placed[0].error(alpha)
        case Measure.AVG if within.relative_to is not None:
            # |mean - noisy mean| <= (error of the sum + half the width * error of the count) / rows
            assert recipe.lower is not None
            assert recipe.upper is not None
            half = float(recipe.upper - recipe.lower) / 2
            return (placed[0].error(alpha / 2) + half * placed[1].error(alpha / 2)) / float(within.relative_to)
        case _:
            raise QueryRefused(
                f"WITHIN cannot promise an error for {recipe.measure.value} without reading the data",
                remedy="Use it with COUNT and SUM; for AVG write WITHIN 1 OF 20000, the rows expected in a group",
            )
