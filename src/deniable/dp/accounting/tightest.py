"""The best promise that needs no convolution: the least of the pure, the zCDP and the one-Gaussian bound.

Each is a true guarantee, so the smallest is too. This is what stands in where dp-accounting is not installed.
"""

from __future__ import annotations

from fractions import Fraction

from deniable.dp.accounting.analytic import epsilon_of_gaussian
from deniable.dp.accounting.conversion import epsilon_of_zcdp
from deniable.dp.accounting.dominating import dominating
from deniable.dp.accounting.events import Event
from deniable.dp.accounting.pure import pure_cost
from deniable.dp.accounting.zcdp import zcdp_cost
from deniable.policy.budget import Amount, exact


def cheap_epsilon(event: Event, delta: Amount = 0) -> Fraction | None:
    """The smallest epsilon that closed forms prove for an event at this delta; None where they prove none.

    >>> from deniable.dp.accounting.events import PureEvent, SelfComposedEvent
    >>> cheap_epsilon(SelfComposedEvent(PureEvent("1/10"), 10))
    Fraction(1, 1)
    >>> float(cheap_epsilon(SelfComposedEvent(PureEvent("1/100"), 1000), 1e-6))
    1.47159475054
    """
    wanted = exact(delta, "delta")
    bounds = (_pure(event, wanted), _zcdp(event, wanted), _gaussian(event, wanted))
    return min((bound for bound in bounds if bound is not None), default=None)


def _pure(event: Event, delta: Fraction) -> Fraction | None:
    cost = pure_cost(event)
    return cost.amount if cost and cost.private and cost.delta <= delta else None


def _zcdp(event: Event, delta: Fraction) -> Fraction | None:
    cost = zcdp_cost(event)
    if cost is None or not cost.private or cost.delta >= delta:
        return None
    return epsilon_of_zcdp(cost.amount, delta - cost.delta)


def _gaussian(event: Event, delta: Fraction) -> Fraction | None:
    """The analytic curve, where Gaussian noise and thresholds are all there is."""
    found = dominating(event)
    if found is None or not found.private or found.leaves or not found.gaussian or found.delta >= delta:
        return None
    return epsilon_of_gaussian(1 / found.gaussian, delta - found.delta)
