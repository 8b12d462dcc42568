"""How a question's budget is split over its measurements: evenly, by the analyst's weights, or for the least noise.

*Weights* belong to aggregates, in the order of the SELECT list. An aggregate of several measurements (an average is a
sum and a count) divides its weight among them, and a measurement that several aggregates share adds up their weights.

Without weights every measurement has an equal share, and quantiles that are chosen together one for each level.

*optimal* makes the sum of all squared relative deviations least. A unit that is in g groups makes Laplace noise of
deviation proportional to g / share, whose squares add up to the least for shares proportional to g^(2/3); Gaussian
noise has variance proportional to g / share, for which shares proportional to g^(1/2) are best.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from deniable.errors import ParameterError, QueryRefused
from deniable.policy.budget import exact
from deniable.query.measure import Recipe


@dataclass(frozen=True, slots=True)
class BySet:
    """One weight for each grouping set, in their order; the measurements of a set share it evenly."""

    weights: tuple[Fraction, ...]


Weights = tuple[Fraction, ...] | str | BySet | None
OPTIMAL = "optimal"
FINENESS = 1000


class Sharing(Protocol):
    """What is split over: the measurements of one grouping set, and a threshold if `parts` says one more."""

    @property
    def parts(self) -> int:
        """How many shares it takes."""

    @property
    def loads(self) -> tuple[int, ...]:
        """How many rounds of noise each of its parts takes: one, or the levels of quantiles chosen together."""

    @property
    def groups(self) -> int:
        """In how many groups one unit is."""

    @property
    def recipes(self) -> tuple[Recipe, ...]:
        """How its node's aggregates follow from its measurements."""


def weights_of(text: str | None) -> Weights:
    """Weights as OPTIONS writes them: `weights = (2, 1)`, or `weights = optimal`."""
    if text is None or text.lower() == OPTIMAL:
        return OPTIMAL if text else None
    try:
        return tuple(exact(part.strip(), "weight") for part in text.split(","))
    except ParameterError:
        raise QueryRefused("the weights are not numbers", expected="weights = (2, 1), or weights = optimal") from None


def shares(drafts: Sequence[Sharing], weights: Weights, strategy: str) -> list[list[Fraction]]:
    """Each measurement's part of the budget, and the threshold's after them; all of them add up to 1."""
    if weights is None:
        wanted = [[Fraction(load) for load in draft.loads] for draft in drafts]
    elif isinstance(weights, BySet):
        wanted = _by_set(drafts, weights.weights)
    elif isinstance(weights, str):
        power = 2 / 3 if strategy == "pure" else 1 / 2
        wanted = [[_rounded(draft.groups**power) * load for load in draft.loads] for draft in drafts]
    else:
        wanted = _weighted(drafts, weights)
    total = sum((weight for each in wanted for weight in each), Fraction(0))
    return [[weight / total for weight in each] for each in wanted]


def _by_set(drafts: Sequence[Sharing], weights: tuple[Fraction, ...]) -> list[list[Fraction]]:
    if len(weights) != len(drafts) or any(weight <= 0 for weight in weights):
        raise QueryRefused(
            f"there are {len(weights)} weights for {len(drafts)} grouping sets, or one of them is not positive",
            expected="One positive weight for each grouping set",
        )
    return [[weight / max(draft.parts, 1)] * draft.parts for draft, weight in zip(drafts, weights, strict=True)]


def _rounded(weight: float) -> Fraction:
    return Fraction(round(weight * FINENESS), FINENESS)


def _weighted(drafts: Sequence[Sharing], weights: tuple[Fraction, ...]) -> list[list[Fraction]]:
    nodes: list[tuple[Recipe, ...]] = []
    for draft in drafts:
        if not nodes or nodes[-1] is not draft.recipes:
            nodes.append(draft.recipes)
    count = sum(len(recipes) for recipes in nodes)
    if len(weights) != count or any(weight <= 0 for weight in weights):
        raise QueryRefused(
            f"there are {len(weights)} weights for {count} aggregates, or one of them is not positive",
            expected="One positive weight for each aggregate, in the order of the SELECT list",
        )
    return [_of(draft, weights[_start(nodes, draft) :]) for draft in drafts]


def _start(nodes: list[tuple[Recipe, ...]], draft: Sharing) -> int:
    place = next(i for i, recipes in enumerate(nodes) if recipes is draft.recipes)
    return sum(len(recipes) for recipes in nodes[:place])


def _of(draft: Sharing, weights: tuple[Fraction, ...]) -> list[Fraction]:
    count = 1 + max((place for recipe in draft.recipes for place in recipe.places), default=-1)
    found = [Fraction(0)] * count
    for recipe, weight in zip(draft.recipes, weights, strict=False):
        for place in recipe.places:
            found[place] += weight / len(recipe.places)
    mean = sum(found, Fraction(0)) / max(count, 1) or Fraction(1)
    return found + [mean] * (draft.parts - count)
