"""What a description may spend: all its measurements are Gaussian, so they are priced together as one Gaussian.

With squared sensitivities s_i and variances v_i, a set of Gaussian measurements is worth sum s_i / v_i, whatever their
shapes, and (epsilon, delta) buys a fixed amount of it (`amount`, by the analytic curve; zCDP where that is tighter).
Shares of the amount are handed out; nothing is spent twice, and what is left at the end was not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from deniable.dp.accounting import GaussianEvent, rho_within
from deniable.dp.accounting.analytic import SMOOTHING, ratio_within
from deniable.dp.accounting.rounding import round_up
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, ApproxDP, Budget


@dataclass(frozen=True, slots=True)
class Spending:
    """A total worth of Gaussian measurements, for units of at most `rows` records."""

    amount: Fraction
    rows: int
    smoothed: bool
    """Whether each variance carries the smoothing that the analytic curve asks of discrete noise."""

    @property
    def event(self) -> GaussianEvent:
        """All that may be measured, as one Gaussian: what is charged before any of it is.

        It carries no smoothing: many measurements, each with its own, are worth up to the whole amount in zCDP, and
        one Gaussian with smoothing would be worth less than they are.
        """
        return GaussianEvent(self.rows**2 / self.amount, Fraction(self.rows**2))

    def variance(self, share: float, squared: int | None = None) -> Fraction:
        """The variance that a share of the amount buys for a squared sensitivity (that of one marginal, if not given).

        Shares are cut to whole billionths, downwards, so that shares that add up to one never cost more.
        """
        part = Fraction(int(share * 10**9), 10**9) * self.amount
        if part <= 0:
            raise ParameterError(
                "a share of the budget is too small", remedy="Ask for fewer columns or a larger epsilon"
            )
        wanted = self.rows**2 if squared is None else squared
        return round_up(wanted / part + (SMOOTHING if self.smoothed else 0), 9)


NOTHING = Spending(Fraction(0), 1, False)
"""For methods that measure nothing."""


def spending(budget: Budget, rows: int) -> Spending:
    """The spending that a budget allows."""
    match budget:
        case ZCDP(rho) if rho > 0:
            return Spending(2 * rho, rows, False)
        case ApproxDP(epsilon, delta) if epsilon > 0 and delta > 0:
            ratio, rho = ratio_within(epsilon, delta), rho_within(epsilon, delta)
            choices = [Spending(1 / ratio, rows, True)] if ratio is not None else []
            choices += [Spending(2 * rho, rows, False)] if rho else []
            if choices:
                return max(choices, key=lambda choice: choice.amount)
    raise ParameterError(
        "synthetic data is measured with Gaussian noise, which needs a delta",
        expected="epsilon and delta above 0, or rho",
        remedy="State a delta such as 1e-6",
    )
