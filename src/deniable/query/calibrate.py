"""From a budget to mechanisms: three ways to spend it, and the one that gives the least noise is taken.

*pure*      Laplace noise and exponential choices, epsilons added up. Needs no delta but for thresholds.
*zcdp*      Everything priced in rho: Gaussian noise, or Laplace where its scale is smaller, and choices.
*gaussian*  Gaussian noise alone, all of it priced as one Gaussian by the analytic curve, tighter than zCDP.

A measurement with share w of the budget gets w epsilon, w rho, or noise for squared sensitivity / w: for Gaussians
with variances v_i = c s_i / w_i (s_i the squared sensitivities), the whole has sum s_i / v_i = sum w_i / c = 1 / c.
(The smoothing that the proof for discrete noise asks of each is added to its variance.)
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from deniable.dp.accounting import epsilon_of, rho_within
from deniable.dp.accounting.analytic import SMOOTHING, ratio_within
from deniable.dp.accounting.rounding import round_up
from deniable.dp.mechanisms import GaussianMechanism, KeyThreshold, LaplaceMechanism, QuantileMechanism
from deniable.dp.mechanisms.quantile_tree import ordered
from deniable.errors import QueryRefused
from deniable.policy.budget import ZCDP, ApproxDP, Budget, PureDP
from deniable.query.measure import Measurement, Ordered
from deniable.query.sensitivity import Sensitivity

STRATEGIES = ("pure", "zcdp", "gaussian")


@dataclass(frozen=True, slots=True)
class Spending:
    """A strategy with the money it has: for mechanisms, and (delta) for the thresholds of private keys."""

    strategy: str
    budget: Budget
    threshold_delta: Fraction


def spendings(asked: Budget, thresholds: int, ordered: bool) -> tuple[Spending, ...]:
    """The strategies that a budget allows for a question with so many thresholds."""
    delta = asked.delta
    if thresholds and delta == 0:
        raise QueryRefused(
            "the groups of this question are not public, and showing them needs a delta",
            expected="A budget with a delta such as 1e-6",
            remedy="State a delta, or declare the key's categories in the policy",
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


def mechanism(
    measurement: Measurement,
    sensitivity: Sensitivity,
    spending: Spending,
    share: Fraction,
    gaussian_only: bool,
    one_group: bool = False,
) -> LaplaceMechanism | GaussianMechanism | QuantileMechanism:
    """The mechanism that a share of the spending buys."""
    if isinstance(measurement, Ordered):
        return _quantile(measurement, sensitivity, spending, share, one_group)
    return noise_for(sensitivity, spending, share, gaussian_only)


def noise_for(
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


def _quantile(
    measurement: Ordered, sensitivity: Sensitivity, spending: Spending, share: Fraction, one_group: bool
) -> QuantileMechanism:
    """One release in each group; a unit takes part in as many of them as it has groups, twice when it is replaced.

    Where everybody is in one group, a unit that is replaced has its values exchanged there: one release, in which
    each of them counts for 1 instead of max(q, 1 - q). What is sharper is taken: always that for epsilon, and for rho
    if max(q, 1 - q) > sqrt(1/2).
    """
    times, exchanged = sensitivity.groups * sensitivity.factor, False
    order = ordered(measurement.quantiles)
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


def threshold(
    groups: int, factor: int, spending: Spending, share: Fraction, gaussian_only: bool = False
) -> KeyThreshold:
    """The threshold on counts of units that keeps its share; a replaced unit is in up to twice as many groups."""
    noise = noise_for(Sensitivity(1, groups * factor), spending, share, gaussian_only)
    return KeyThreshold(noise, spending.threshold_delta, groups * factor)
