"""From a budget to mechanisms: how it is split over the measurements, and the noise that each share buys.

Three strategies are possible, and the one that gives the least noise is taken:

*pure*      Laplace noise and exponential choices, epsilons added up. Needs no delta but for thresholds.
*zcdp*      Everything priced in rho: Gaussian noise, or Laplace where its scale is smaller, and choices.
*gaussian*  Gaussian noise alone, all of it priced as one Gaussian by the analytic curve, tighter than zCDP.

A measurement with share w of the budget gets w epsilon, w rho, or noise for squared sensitivity / w: for Gaussians
with variances v_i = c s_i / w_i (s_i the squared sensitivities), the whole has sum s_i / v_i = sum w_i / c = 1 / c.
(The smoothing that the proof for discrete noise asks of each is added to its variance.)

Without weights every measurement has an equal share, and quantiles that are chosen together one for each level.
*Weights* belong to aggregates, in the order of the SELECT list: an aggregate of several measurements divides its weight
among them, and a measurement that several aggregates share adds up their weights. *optimal* makes the sum of all
squared relative deviations least. A unit that is in g groups makes Laplace noise of deviation proportional to
g / share, whose squares add up to the least for shares proportional to g^(2/3); Gaussian noise has variance
proportional to g / share, for which shares proportional to g^(1/2) are best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from deniable.dp.accounting import epsilon_of, rho_within
from deniable.dp.accounting.analytic_gaussian import SMOOTHING, ratio_within
from deniable.dp.accounting.cost import round_up
from deniable.dp.mechanisms import GaussianMechanism, KeyThreshold, LaplaceMechanism, QuantileMechanism
from deniable.dp.mechanisms.quantile import plan_order
from deniable.errors import ParameterError, QueryRefused
from deniable.policy.budget import ZCDP, ApproxDP, Budget, PureDP, exact
from deniable.query.measurements import Measurement, Ordered, Recipe
from deniable.query.plan import Sensitivity

STRATEGIES = ("pure", "zcdp", "gaussian")


@dataclass(frozen=True, slots=True)
class Spending:
    """A strategy with the money it has: for mechanisms, and (delta) for the thresholds of private keys."""

    strategy: str
    budget: Budget
    threshold_delta: Fraction


def list_spendings(asked: Budget, thresholds: int, ordered: bool) -> tuple[Spending, ...]:
    """The strategies that a budget allows for a question with so many thresholds."""
    delta = asked.delta
    if thresholds and delta == 0:
        raise QueryRefused(
            "the groups of this question are not public, and showing them needs a delta",
            expected="A budget with a delta such as 1e-6",
            remedy="State a delta, or declare the key's categories in the policy (in Python, categories=)",
        )
    found = []
    if not isinstance(asked, ZCDP):
        found.append(Spending("pure", PureDP(asked.epsilon), delta / thresholds if thresholds else Fraction(0)))
    rest = delta / 2 if thresholds else delta
    each = (delta - rest) / thresholds if thresholds else Fraction(0)
    if isinstance(asked, ZCDP):
        found.append(Spending("zcdp", ZCDP(asked.rho), delta / thresholds if thresholds else Fraction(0)))
    elif delta > 0:
        if rho := rho_within(asked.epsilon, rest):
            found.append(Spending("zcdp", ZCDP(rho), each))
        if not ordered and ratio_within(asked.epsilon, rest) is not None:
            found.append(Spending("gaussian", ApproxDP(asked.epsilon, rest), each))
    return tuple(found)


def choose_mechanism(
    measurement: Measurement,
    sensitivity: Sensitivity,
    spending: Spending,
    share: Fraction,
    gaussian_only: bool,
    one_group: bool = False,
) -> LaplaceMechanism | GaussianMechanism | QuantileMechanism:
    """The mechanism that a share of the spending buys."""
    if isinstance(measurement, Ordered):
        return _calibrate_quantile(measurement, sensitivity, spending, share, one_group)
    return calibrate_noise(sensitivity, spending, share, gaussian_only)


def calibrate_noise(
    sensitivity: Sensitivity, spending: Spending, share: Fraction, gaussian_only: bool = False
) -> LaplaceMechanism | GaussianMechanism:
    """Additive noise for a vector of this sensitivity."""
    l1, squared = max(sensitivity.l1, 1), max(sensitivity.l2_squared, 1)
    match spending.budget:
        case PureDP(epsilon):
            return LaplaceMechanism(Fraction(l1) / (epsilon * share), Fraction(l1))
        case ZCDP(rho):
            gaussian = GaussianMechanism(squared / (2 * rho * share), Fraction(squared))
            if gaussian_only:
                return gaussian
            laplace = LaplaceMechanism(Fraction(l1) / epsilon_of(ZCDP(rho * share)), Fraction(l1))
            return laplace if 2 * laplace.scale**2 < gaussian.variance else gaussian
        case ApproxDP() as budget:
            ratio = ratio_within(budget.epsilon, budget.delta)
            assert ratio is not None
            return GaussianMechanism(round_up(ratio * squared / share + SMOOTHING, 12), Fraction(squared))


def _calibrate_quantile(
    measurement: Ordered, sensitivity: Sensitivity, spending: Spending, share: Fraction, one_group: bool
) -> QuantileMechanism:
    """One release in each group; a unit takes part in as many of them as it has groups, twice when it is replaced.

    Where everybody is in one group, a unit that is replaced has its values exchanged there: one release, in which
    each of them counts for 1 instead of max(q, 1 - q). What is sharper is taken: always that for epsilon, and for rho
    if max(q, 1 - q) > sqrt(1/2).
    """
    times, exchanged = sensitivity.groups * sensitivity.factor, False
    order = plan_order(measurement.quantiles)
    if one_group and sensitivity.factor == 2 and not order.joint:
        farthest = max(max(q, 1 - q) for q in measurement.quantiles)
        exchanged = isinstance(spending.budget, PureDP) or 2 * farthest**2 > 1
        times = sensitivity.groups if exchanged else times
    match spending.budget:
        case PureDP(epsilon):
            part: Budget = PureDP(epsilon * share / times)
        case ZCDP(rho):
            part = ZCDP(rho * share / times)
        case _:
            raise AssertionError("quantiles have no Gaussian form")
    return QuantileMechanism.within(
        part,
        measurement.quantiles,
        measurement.lower,
        measurement.upper,
        rows_per_unit=sensitivity.per_group,
        exchanged=exchanged,
    )


def calibrate_threshold(
    groups: int, factor: int, spending: Spending, share: Fraction, gaussian_only: bool = False
) -> KeyThreshold:
    """The threshold on counts of units that keeps its share; a replaced unit is in up to twice as many groups."""
    noise = calibrate_noise(Sensitivity(1, groups * factor), spending, share, gaussian_only)
    return KeyThreshold(noise, spending.threshold_delta, groups * factor)


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


def parse_weights(text: str | None) -> Weights:
    """Weights as OPTIONS writes them: `weights = (2, 1)`, or `weights = optimal`."""
    if text is None or text.lower() == OPTIMAL:
        return OPTIMAL if text else None
    try:
        return tuple(exact(part.strip(), "weight") for part in text.split(","))
    except ParameterError:
        raise QueryRefused("the weights are not numbers", expected="weights = (2, 1), or weights = optimal") from None


def split_shares(drafts: Sequence[Sharing], weights: Weights, strategy: str) -> list[list[Fraction]]:
    """Each measurement's part of the budget, and the threshold's after them; all of them add up to 1."""
    if weights is None:
        wanted = [[Fraction(load) for load in draft.loads] for draft in drafts]
    elif isinstance(weights, BySet):
        wanted = _spread_by_set(drafts, weights.weights)
    elif isinstance(weights, str):
        power = 2 / 3 if strategy == "pure" else 1 / 2
        wanted = [[_round_weight(draft.groups**power) * load for load in draft.loads] for draft in drafts]
    else:
        wanted = _spread_weights(drafts, weights)
    total = sum((weight for each in wanted for weight in each), Fraction(0))
    return [[weight / total for weight in each] for each in wanted]


def _spread_by_set(drafts: Sequence[Sharing], weights: tuple[Fraction, ...]) -> list[list[Fraction]]:
    if len(weights) != len(drafts) or any(weight <= 0 for weight in weights):
        raise QueryRefused(
            f"there are {len(weights)} weights for {len(drafts)} grouping sets, or one of them is not positive",
            expected="One positive weight for each grouping set",
        )
    return [[weight / max(draft.parts, 1)] * draft.parts for draft, weight in zip(drafts, weights, strict=True)]


def _round_weight(weight: float) -> Fraction:
    return Fraction(round(weight * FINENESS), FINENESS)


def _spread_weights(drafts: Sequence[Sharing], weights: tuple[Fraction, ...]) -> list[list[Fraction]]:
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
    return [_spread_over_draft(draft, weights[_find_start(nodes, draft) :]) for draft in drafts]


def _find_start(nodes: list[tuple[Recipe, ...]], draft: Sharing) -> int:
    place = next(i for i, recipes in enumerate(nodes) if recipes is draft.recipes)
    return sum(len(recipes) for recipes in nodes[:place])


def _spread_over_draft(draft: Sharing, weights: tuple[Fraction, ...]) -> list[Fraction]:
    count = 1 + max((place for recipe in draft.recipes for place in recipe.places), default=-1)
    found = [Fraction(0)] * count
    for recipe, weight in zip(draft.recipes, weights, strict=False):
        for place in recipe.places:
            found[place] += weight / len(recipe.places)
    mean = sum(found, Fraction(0)) / max(count, 1) or Fraction(1)
    return found + [mean] * (draft.parts - count)
