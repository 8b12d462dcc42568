"""Calibration: from a budget and a sensitivity to the smallest noise that keeps the budget, erring to more noise.

Scales are exact rationals in steps. A closed form is returned exactly, so that its price is the budget to the last
digit; a bisection returns its upper end, whose price was proven to be within the budget."""

from __future__ import annotations

from fractions import Fraction

from deniable.dp.accounting.analytic_gaussian import SMOOTHING, ratio_within
from deniable.dp.accounting.cost import round_down, round_up, sqrt_above
from deniable.dp.accounting.zcdp import rho_within
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, Amount, ApproxDP, Budget, PureDP, exact


def calibrate_laplace(budget: Budget, sensitivity: Amount = 1) -> Fraction:
    """The scale of discrete Laplace noise for an L1 sensitivity: sensitivity / epsilon.

    A delta in the budget is not used. For zCDP, epsilon is the largest with min(epsilon^2 / 2, epsilon) <= rho.

    >>> calibrate_laplace(PureDP(0.5), sensitivity=3)
    Fraction(6, 1)
    """
    return _require_sensitivity(sensitivity) / epsilon_of(budget)


def calibrate_gaussian(
    budget: Budget, sensitivity: Amount | None = None, *, sensitivity_squared: Amount | None = None
) -> Fraction:
    """The variance of discrete Gaussian noise for an L2 sensitivity, given itself or as its square.

    For zCDP the closed form, squared sensitivity / (2 rho). For (epsilon, delta) the smaller of two variances that are
    each proven: by the analytic Gaussian (see `analytic_gaussian` for why it holds on the integers), and by zCDP.

    >>> calibrate_gaussian(ZCDP("1/50"), sensitivity=2)
    Fraction(100, 1)
    >>> float(calibrate_gaussian(ApproxDP(1, 1e-6), sensitivity=100)) ** 0.5
    422.4726239651511
    """
    squared = _square_sensitivity(sensitivity, sensitivity_squared)
    match budget:
        case ZCDP(rho, _) if rho > 0:
            return squared / (2 * rho)
        case ApproxDP(epsilon, delta) if epsilon > 0 and delta > 0:
            return _calibrate_variance(epsilon, delta, squared)
        case PureDP() | ApproxDP():
            raise ParameterError(
                "Gaussian noise has no price without delta",
                expected="a budget with epsilon and delta above 0, or with rho",
                remedy="State a delta such as 1e-6, or use Laplace noise",
            )
        case _:
            raise ParameterError("rho is 0", expected="a budget above 0")


def epsilon_of(budget: Budget) -> Fraction:
    """The epsilon that one pure mechanism may use within a budget, rounded down where it is irrational.

    >>> epsilon_of(ZCDP("1/8"))
    Fraction(1, 2)
    """
    if isinstance(budget, ZCDP):
        root = sqrt_above(2 * budget.rho)
        exactly = root * root == 2 * budget.rho
        epsilon = max(root if exactly else round_down(2 * budget.rho / root), budget.rho)
    else:
        epsilon = budget.epsilon
    if epsilon <= 0:
        raise ParameterError("the budget is 0", expected="a budget above 0")
    return epsilon


def _calibrate_variance(epsilon: Fraction, delta: Fraction, squared: Fraction) -> Fraction:
    proven = []
    if rho := rho_within(epsilon, delta):
        proven.append(round_up(squared / (2 * rho), 9))
    if (ratio := ratio_within(epsilon, delta)) is not None:
        proven.append(round_up(ratio * squared + SMOOTHING, 9))
    if not proven:
        raise ParameterError("the budget is too small to be calibrated", expected="a larger epsilon or delta")
    return min(proven)


def _require_sensitivity(amount: Amount) -> Fraction:
    value = exact(amount, "sensitivity")
    if value <= 0:
        raise ParameterError(
            "the sensitivity is not positive",
            expected="a sensitivity above 0",
            remedy="A query that no unit can change needs no noise: release it as it is",
        )
    return value


def _square_sensitivity(sensitivity: Amount | None, squared: Amount | None) -> Fraction:
    if (sensitivity is None) == (squared is None):
        raise ParameterError("a sensitivity is given once", expected="sensitivity or sensitivity_squared")
    if squared is not None:
        return _require_sensitivity(squared)
    assert sensitivity is not None
    return _require_sensitivity(sensitivity) ** 2
