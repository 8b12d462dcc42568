"""The PLD accountant: privacy loss distributions, convolved by Google's dp-accounting (extra `pld`).

What all accountants share, and the choice among them by the word a policy uses, stand here too.

Every event is replaced by a pair of distributions on the line that dominates it, and dp-accounting composes these with
pessimistic rounding. The pairs:

- Discrete Laplace noise with L1 sensitivity D: the one-dimensional noise shifted by D dominates every vector of L1 norm
  D. Going from 0 to a vector entry by entry is a path whose trade-off functions compose (Dong, Roth and Su 2019,
  theorem 2.14), and for one log-concave noise the composed function of shifts a and b *is* that of shift a + b,
  because the same threshold test is best for each.
- Discrete Gaussian noise: the continuous Gaussian of variance less 4 (see `analytic_gaussian`); all of them compose
  into one.
- Anything else that is epsilon-DP: randomized response with that epsilon dominates it (Kairouz, Oh, Viswanath 2015).

A convolution takes a second or so for a hundred different events, so results are cached, and the cheap bounds (pure,
zCDP, one Gaussian) are taken where they are smaller or where dp-accounting cannot help."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Protocol, Self

from deniable.dp.accounting.composition import Composition, cheap_epsilon, compose_dominating_pairs
from deniable.dp.accounting.cost import float_above, refuse_over, refuse_unsupported, round_up
from deniable.dp.accounting.events import (
    ComposedEvent,
    Event,
    LaplaceEvent,
    NoOpEvent,
    PureEvent,
    SelfComposedEvent,
    check_count,
)
from deniable.dp.accounting.pure import PureAccountant
from deniable.dp.accounting.zcdp import ZCDPAccountant
from deniable.errors import MissingExtra, ParameterError, nearest
from deniable.policy.budget import ZCDP, Amount, ApproxDP, Budget, PureDP, budget, exact

INTERVAL = 1e-4
"""Width of the cells of the privacy loss; dp-accounting rounds up into them."""
NOTHING = NoOpEvent()
WIDEST_SHIFT = 1000
"""Above this sensitivity in steps, the discrete Laplace noise is dominated by a continuous one instead."""


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


@dataclass(frozen=True, slots=True)
class PLDAccountant:
    """Composition by privacy loss distributions: the tightest price for many events.

    As a privacy filter it is proven only for events fixed before the first answer is seen; use the pure or the zCDP
    accountant where an analyst chooses as she goes. The odometer may be read at any delta.
    """

    limit: ApproxDP | PureDP | None = None
    event: Event = NOTHING

    def supports(self, event: Event) -> bool:
        """Whether a dominating pair is known for the event; needs no dp-accounting."""
        return compose_dominating_pairs(event) is not None

    def fits(self, event: Event, count: int = 1) -> bool:
        """Whether the event could be composed without passing the limit."""
        if self.limit is None:
            return True
        after = self._after(event, count).compute_spent(self.limit.delta)
        return after is not None and after.epsilon <= self.limit.epsilon

    def compose(self, event: Event, count: int = 1) -> PLDAccountant:
        """The accountant after the event; refuses, changing nothing, what would pass the limit."""
        after = self._after(event, count)
        if self.limit is not None and not self.fits(event, count):
            cost, now = after.compute_spent(self.limit.delta), self.compute_spent(self.limit.delta)
            asked = Fraction(0) if cost is None or now is None else cost.epsilon - now.epsilon
            refuse_over("epsilon", asked, Fraction(0), cost is not None, self)
        return after

    def compute_spent(self, delta: Amount = Fraction(0)) -> PureDP | ApproxDP | None:
        """The (epsilon, delta) guarantee of everything so far; None where there is none at this delta."""
        wanted = exact(delta, "delta")
        cheap = cheap_epsilon(self.event, wanted)
        known = compose_dominating_pairs(self.event)
        if known is None or not known.private or known.delta > wanted or wanted >= 1:
            return None
        tight = _epsilon(known, wanted - known.delta) if wanted > known.delta and not known.is_free else None
        found = [epsilon for epsilon in (cheap, tight) if epsilon is not None]
        return budget(epsilon=min(found), delta=wanted) if found else None  # type: ignore[return-value]

    def epsilon(self, delta: Amount = 0) -> float:
        """The odometer's reading at this delta, rounded up; infinite where there is no guarantee."""
        spent = self.compute_spent(exact(delta, "delta"))
        return math.inf if spent is None else float_above(spent.epsilon)

    def compute_remaining(self) -> PureDP | ApproxDP | None:
        """The limit's epsilon less what is spent at its delta; more may fit, since these epsilons do not add up."""
        if self.limit is None:
            return None
        spent = self.compute_spent(self.limit.delta)
        left = self.limit.epsilon - spent.epsilon if spent else Fraction(0)
        return budget(epsilon=max(left, Fraction(0)), delta=self.limit.delta)  # type: ignore[return-value]

    def _after(self, event: Event, count: int) -> PLDAccountant:
        check_count(count)
        if not self.supports(event):
            refuse_unsupported(event, "pld", "zcdp")
        added = event if count == 1 else SelfComposedEvent(event, count)
        before = self.event.events if isinstance(self.event, ComposedEvent) else (self.event,)
        return replace(self, event=ComposedEvent((*before, added)))


@lru_cache(maxsize=1024)
def _epsilon(composed: Composition, delta: Fraction) -> Fraction | None:
    """Epsilon at a positive delta, rounded up; None where dp-accounting finds none."""
    epsilon = _distribution(composed).get_epsilon_for_delta(float(delta) * (1 - 1e-12))
    return round_up(Fraction(epsilon) * (1 + Fraction(1, 10**9))) if math.isfinite(epsilon) else None


@lru_cache(maxsize=64)
def _distribution(composed: Composition) -> Any:
    """The privacy loss distribution of a composition."""
    library = _load_library()
    parts = [_leaf(event).self_compose(count) for event, count in sorted(composed.leaves, key=repr)]
    if composed.gaussian:
        deviation = 1 / math.sqrt(float(composed.gaussian))
        parts.append(library.from_gaussian_mechanism(deviation, value_discretization_interval=INTERVAL))
    total = library.identity(value_discretization_interval=INTERVAL)
    for part in parts:
        total = total.compose(part)
    return total


@lru_cache(maxsize=1024)
def _leaf(event: LaplaceEvent | PureEvent) -> Any:
    """The privacy loss distribution of the pair that dominates one event."""
    library = _load_library()
    if isinstance(event, PureEvent):
        parameters = _parameters(float_above(event.epsilon))
        return library.from_privacy_parameters(parameters, value_discretization_interval=INTERVAL)
    shift = math.ceil(event.sensitivity)
    if shift <= WIDEST_SHIFT:
        return library.from_discrete_laplace_mechanism(
            float_above(1 / event.scale), shift, value_discretization_interval=INTERVAL
        )
    return library.from_laplace_mechanism(
        float(event.scale) * (1 - 1e-12), shift + _overhang(float(event.scale)), value_discretization_interval=INTERVAL
    )


def _overhang(scale: float) -> float:
    """How much farther a continuous Laplace must be shifted to dominate the discrete one of the same scale.

    With p = exp(-1/scale) the discrete tail is P[X >= k] = p^k / (1 + p), k >= 1. The continuous tail S(x) = e^(-x/b)/2
    equals it at x = k - c with c = scale ln(2 / (1 + p)), and by symmetry at x = k - 1 + c for k <= 0. A threshold test
    of shift D at k thus has the power of a continuous one shifted by D, or by D + 1 - 2c where the threshold passes
    zero; the points between are mixtures, below a concave curve.
    """
    return 1 - 2 * scale * math.log(2 / (1 + math.exp(-1 / scale)))


def _load_library() -> Any:
    try:
        from dp_accounting.pld import privacy_loss_distribution
    except ImportError:
        raise MissingExtra(
            "PLD accounting needs the dp-accounting package", remedy="Install it: pip install 'deniable[pld]'"
        ) from None
    return privacy_loss_distribution


def _parameters(epsilon: float) -> Any:
    from dp_accounting.pld.common import DifferentialPrivacyParameters

    return DifferentialPrivacyParameters(epsilon, 0)


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
