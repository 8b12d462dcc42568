"""A composition of events as pairs of distributions that dominate it, and the best bound that needs no convolution.

Composition is flattened: Gaussian events become one number, thresholds their delta, and what remains is a bag of
Laplace and pure leaves with known dominating pairs, which the PLD accountant convolves.

`cheap_epsilon` is the least of the pure, the zCDP and the one-Gaussian bound. Each is a true guarantee, so the
smallest is too. It is used where dp-accounting is not installed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from deniable.dp.accounting.analytic_gaussian import SMOOTHING, epsilon_of_gaussian, keeps_epsilon
from deniable.dp.accounting.cost import ln_above
from deniable.dp.accounting.events import (
    ComposedEvent,
    Event,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    NoOpEvent,
    ParallelEvent,
    PureEvent,
    RandomizedEvent,
    SampledGaussianEvent,
    SelectionEvent,
    SelfComposedEvent,
    ThresholdEvent,
)
from deniable.dp.accounting.pure import pure_cost
from deniable.dp.accounting.zcdp import epsilon_of_zcdp, rho_within, zcdp_cost
from deniable.policy.budget import Amount, exact

Leaf = LaplaceEvent | PureEvent


@dataclass(frozen=True, slots=True)
class Composition:
    """A bag of leaves with counts, the sum of squared sensitivity / (variance - 4) of Gaussians, and delta beside."""

    leaves: frozenset[tuple[Leaf, int]] = frozenset()
    gaussian: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    private: bool = True

    def __add__(self, other: Composition) -> Composition:
        bag = Counter(dict(self.leaves)) + Counter(dict(other.leaves))
        return Composition(
            frozenset(bag.items()),
            self.gaussian + other.gaussian,
            self.delta + other.delta,
            self.private and other.private,
        )

    def times(self, count: int) -> Composition:
        """So many repetitions."""
        if count == 0:
            return Composition()
        leaves = frozenset((leaf, each * count) for leaf, each in self.leaves)
        return Composition(leaves, self.gaussian * count, self.delta * count, self.private)

    @property
    def is_free(self) -> bool:
        """Whether nothing but thresholds is in it."""
        return not self.leaves and not self.gaussian

    @property
    def epsilon(self) -> Fraction:
        """The sum of the leaves' epsilons."""
        return sum((leaf.epsilon * count for leaf, count in self.leaves), Fraction(0))


def compose_dominating_pairs(event: Event) -> Composition | None:
    """The composition of pairs that dominates an event, or None where no pair is known."""
    match event:
        case ComposedEvent(events):
            total: Composition | None = Composition()
            for part in events:
                found = compose_dominating_pairs(part)
                total = None if found is None or total is None else total + found
            return total
        case SelfComposedEvent(inner, count):
            once = compose_dominating_pairs(inner)
            return None if once is None else once.times(count)
        case ParallelEvent(events):
            return _dominate_all([compose_dominating_pairs(part) for part in events])
        case _:
            return _dominate_leaf(event)


def _dominate_leaf(event: Event) -> Composition | None:
    match event:
        case NoOpEvent():
            return Composition()
        case NonPrivateEvent():
            return Composition(private=False)
        case LaplaceEvent():
            return Composition(frozenset({(event, 1)})) if event.sensitivity else Composition()
        case PureEvent() | SelectionEvent():
            return Composition(frozenset({(PureEvent(event.epsilon), 1)})) if event.epsilon else Composition()
        case RandomizedEvent(odds):
            return _dominate_leaf(PureEvent(ln_above(odds)))
        case ThresholdEvent(delta):
            return Composition(delta=delta)
        case GaussianEvent(variance, squared) if variance > SMOOTHING or squared == 0:
            return Composition(gaussian=squared / (variance - SMOOTHING)) if squared else Composition()
        case SampledGaussianEvent(ratio=ratio, delta=delta):
            return Composition(gaussian=1 / ratio, delta=delta)
        case _:
            return None


def _dominate_all(parts: list[Composition | None]) -> Composition | None:
    """A composition that dominates each part: the common one, the widest Gaussian, or the largest epsilon."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    delta = max((part.delta for part in known), default=Fraction(0))
    private = all(part.private for part in known)
    known = [part for part in known if not part.is_free]
    if not any(part.leaves for part in known):
        return Composition(gaussian=max((p.gaussian for p in known), default=Fraction(0)), delta=delta, private=private)
    if len({(part.leaves, part.gaussian) for part in known}) == 1:
        return Composition(known[0].leaves, known[0].gaussian, delta, private)
    if any(part.gaussian for part in known):
        return None
    return Composition(frozenset({(PureEvent(max(p.epsilon for p in known)), 1)}), delta=delta, private=private)


def cheap_epsilon(event: Event, delta: Amount = 0) -> Fraction | None:
    """The smallest epsilon that closed forms prove for an event at this delta; None where they prove none.

    >>> from deniable.dp.accounting.events import PureEvent, SelfComposedEvent
    >>> cheap_epsilon(SelfComposedEvent(PureEvent("1/10"), 10))
    Fraction(1, 1)
    >>> float(cheap_epsilon(SelfComposedEvent(PureEvent("1/100"), 1000), 1e-6))
    1.47159475054
    """
    wanted = exact(delta, "delta")
    bounds = (_bound_by_pure(event, wanted), _bound_by_zcdp(event, wanted), _bound_by_gaussian(event, wanted))
    return min((bound for bound in bounds if bound is not None), default=None)


def _bound_by_pure(event: Event, delta: Fraction) -> Fraction | None:
    cost = pure_cost(event)
    return cost.amount if cost and cost.private and cost.delta <= delta else None


def _bound_by_zcdp(event: Event, delta: Fraction) -> Fraction | None:
    cost = zcdp_cost(event)
    if cost is None or not cost.private or cost.delta >= delta:
        return None
    return epsilon_of_zcdp(cost.amount, delta - cost.delta)


def _bound_by_gaussian(event: Event, delta: Fraction) -> Fraction | None:
    """The analytic curve, where Gaussian noise and thresholds are all there is."""
    found = compose_dominating_pairs(event)
    if found is None or not found.private or found.leaves or not found.gaussian or found.delta >= delta:
        return None
    return epsilon_of_gaussian(1 / found.gaussian, delta - found.delta)


def keeps_limit(event: Event, epsilon: Fraction, delta: Fraction) -> bool:
    """Whether closed forms prove an event to be (epsilon, delta)-DP, the limit itself included.

    The same bounds as `cheap_epsilon`, each asked at the limit: a search for the least epsilon ends a hair above it,
    and what was calibrated to the limit exactly must not seem to pass it.
    """
    pure, concentrated, found = pure_cost(event), zcdp_cost(event), compose_dominating_pairs(event)
    if pure is not None and pure.within(epsilon, delta):
        return True
    if concentrated is not None and concentrated.delta < delta:
        rho = rho_within(epsilon, delta - concentrated.delta)
        if concentrated.within(rho, delta):
            return True
    if found is not None and found.private and not found.leaves and found.gaussian:
        ratio = 1 / found.gaussian
        if keeps_epsilon(ratio, epsilon, delta - found.delta):
            return True
    least = cheap_epsilon(event, delta)
    return least is not None and least <= epsilon
