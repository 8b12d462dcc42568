"""The Accountant protocol, and the choice among accountants by the word a policy uses."""

from __future__ import annotations

from typing import Protocol, Self

from deniable.dp.accounting.events import Event
from deniable.dp.accounting.pld import PLDAccountant
from deniable.dp.accounting.pure import PureAccountant
from deniable.dp.accounting.zcdp import ZCDPAccountant
from deniable.errors import ParameterError, nearest
from deniable.policy.budget import ZCDP, Amount, ApproxDP, Budget, PureDP


class Accountant(Protocol):
    """Prices events and adds them up; a frozen value, so composing makes a new one.

    With a `limit` it is a privacy filter: it refuses before the limit is passed, and a refused event changes nothing.
    Without one it is an odometer that may be read at any time.
    """

    @property
    def limit(self) -> Budget | None:
        """What may be spent in all, or None."""

    def supports(self, event: Event) -> bool:
        """Whether this accountant can price the event."""

    def fits(self, event: Event, count: int = 1) -> bool:
        """Whether so many of the event could be composed without passing the limit."""

    def compose(self, event: Event, count: int = 1) -> Self:
        """The accountant after so many of the event; BudgetExceeded if that would pass the limit."""

    def compute_spent(self, delta: Amount = ...) -> Budget | None:
        """The guarantee of all events so far; None where there is none."""

    def epsilon(self, delta: Amount = 0) -> float:
        """Epsilon of all events so far at this delta, rounded up; infinite where there is no guarantee."""

    def compute_remaining(self) -> Budget | None:
        """What the limit still allows; None without a limit."""


ACCOUNTING = ("pure", "zcdp", "pld")


def accountant_for(accounting: str, limit: Budget | None = None) -> PureAccountant | ZCDPAccountant | PLDAccountant:
    """The accountant that a policy's word names, with its limit.

    >>> accountant_for("zcdp", ApproxDP(1, 1e-6)).compute_remaining()
    PureDP(epsilon=Fraction(1, 1))
    """
    match accounting, limit:
        case (("pure" | "pld"), ZCDP()):
            raise ParameterError(f"{accounting} accounting keeps no rho", remedy="State epsilon, or say zcdp")
        case "pure", (PureDP() | ApproxDP() | None):
            return PureAccountant(limit)
        case "pld", (PureDP() | ApproxDP() | None):
            return PLDAccountant(limit)
        case "zcdp", (ZCDP() | None):
            return ZCDPAccountant(limit)
        case "zcdp", ApproxDP() if limit.delta > 0:
            return ZCDPAccountant.within(limit)
        case "zcdp", _:
            raise ParameterError("zcdp accounting needs a delta", remedy="State a delta such as 1e-6 in the budget")
        case _:
            raise ParameterError(
                f"unknown accounting '{accounting}'",
                expected=f"one of {', '.join(ACCOUNTING)}",
                remedy=nearest(accounting, ACCOUNTING),
            )
