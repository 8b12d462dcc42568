"""Costs of events: exact amounts, rounded in favor of the people protected, and how they add up within a limit."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import NoReturn, Protocol

from deniable.dp.accounting.events import (
    ComposedEvent,
    Event,
    GaussianEvent,
    NonPrivateEvent,
    NoOpEvent,
    ParallelEvent,
    SampledGaussianEvent,
    SelfComposedEvent,
    UnsupportedEvent,
)
from deniable.errors import NOTHING_CHARGED, BudgetExceeded, ParameterError
from deniable.policy.budget import ZCDP, Budget

GUARD = Fraction(1, 10**30)
"""More than fifty-digit arithmetic can err over a few hundred operations."""


def precise(digits: int = 60) -> Context:
    """Arithmetic of that many digits, without overflow, to be used as `with localcontext(precise()):`."""
    return Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)


def to_decimal(value: Fraction) -> Decimal:
    """The value to the digits of the arithmetic in force."""
    return Decimal(value.numerator) / Decimal(value.denominator)


def round_up(value: Fraction, digits: int = 12) -> Fraction:
    """The smallest number of that many significant digits that is not below a value of at least 0.

    >>> round_up(Fraction(1, 3), 3)
    Fraction(167, 500)
    """
    step = _find_step(value, digits)
    return -((-value) // step) * step


def round_down(value: Fraction, digits: int = 12) -> Fraction:
    """The largest number of that many significant digits that is not above a value of at least 0."""
    step = _find_step(value, digits)
    return value // step * step


def round_above(value: Decimal, digits: int = 12) -> Fraction:
    """A computed number, widened by the guard, as a rational not below the true one; never below 0.

    Numbers nearer to 0 than the guard are replaced by it: the tail of a Gaussian may have millions of leading zeros,
    which a fraction would write out.
    """
    if abs(value) < to_decimal(GUARD):
        return 2 * GUARD
    return round_up(max(Fraction(value) * (1 + GUARD) + GUARD, Fraction(0)), digits)


def ln_above(value: Fraction, digits: int = 15) -> Fraction:
    """The natural logarithm of a value of at least 1, rounded up; exactly 0 at 1."""
    if value == 1:
        return Fraction(0)
    with localcontext(precise()):
        return round_above(to_decimal(value).ln(), digits)


def sqrt_above(value: Fraction, digits: int = 12) -> Fraction:
    """The square root of a value of at least 0, rounded up; exact where it is rational with few digits."""
    with localcontext(precise()):
        root = Fraction(to_decimal(value).sqrt())
    if root * root == value:
        return root
    return round_up(root * (1 + GUARD) + GUARD, digits)


def sqrt_below(value: Fraction, digits: int = 30) -> Fraction:
    """The square root of a value of at least 0, rounded down; exact where it is rational with few digits."""
    with localcontext(precise()):
        root = Fraction(to_decimal(value).sqrt())
    if root * root == value:
        return root
    return round_down(max(root * (1 - GUARD) - GUARD, Fraction(0)), digits)


def float_above(value: Fraction) -> float:
    """The smallest float that is not below the value."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def _find_step(value: Fraction, digits: int) -> Fraction:
    """The place of the last of that many significant digits of a value."""
    if value <= 0:
        return Fraction(1)
    magnitude = len(str(value.numerator // value.denominator)) if value >= 1 else 1 - _count_leading_zeros(value)
    return Fraction(10) ** (magnitude - digits)


def _count_leading_zeros(value: Fraction) -> int:
    """Places after the point, up to and with the first nonzero digit, of a value below 1."""
    return len(str(value.denominator // value.numerator))


@dataclass(frozen=True, slots=True)
class Cost:
    """An amount (epsilon or rho) with a delta beside it; `private` is false once something had no guarantee."""

    amount: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    private: bool = True

    def __add__(self, other: Cost) -> Cost:
        if self is FREE:
            return other
        return Cost(self.amount + other.amount, self.delta + other.delta, self.private and other.private)

    def times(self, count: int) -> Cost:
        """The cost of so many repetitions; none at all costs nothing."""
        if count == 1:
            return self
        return Cost(self.amount * count, self.delta * count, self.private) if count else FREE

    def within(self, amount: Fraction, delta: Fraction) -> bool:
        """Whether the cost fits in both limits."""
        return self.private and self.amount <= amount and self.delta <= delta


FREE = Cost()
EXPOSED = Cost(private=False)


def count_equal(event: Event) -> Event:
    """The same event, in which equal parts of a composition stand once, with how often they occur: quick to price.

    >>> from deniable.dp.accounting import PureEvent
    >>> count_equal(ComposedEvent((PureEvent(1), NoOpEvent(), PureEvent(1)))).events
    (SelfComposedEvent(event=PureEvent(epsilon=Fraction(1, 1)), count=2), NoOpEvent())
    """
    if not isinstance(event, ComposedEvent):
        return event
    counts = Counter(map(count_equal, event.events))
    return ComposedEvent(tuple(SelfComposedEvent(each, n) if n > 1 else each for each, n in counts.items()))


@lru_cache(maxsize=512)
def price(event: Event, leaf: Callable[[Event], Cost | None]) -> Cost | None:
    """The same as `fold`, remembered: each account on a path adds the same event."""
    return fold(event, leaf)


def fold(event: Event, leaf: Callable[[Event], Cost | None]) -> Cost | None:
    """The cost of an event from the costs of its leaves; None where a leaf cannot be priced."""
    match event:
        case NoOpEvent():
            return FREE
        case NonPrivateEvent():
            return EXPOSED
        case ComposedEvent(events):
            return _sum_costs(fold(part, leaf) for part in events)
        case SelfComposedEvent(inner, count):
            once = fold(inner, leaf)
            return None if once is None else once.times(count)
        case ParallelEvent(events):
            return _take_worst([fold(part, leaf) for part in events])
        case _:
            return leaf(event)


def _sum_costs(costs: Iterable[Cost | None]) -> Cost | None:
    total = FREE
    for cost in costs:
        if cost is None:
            return None
        total = total + cost
    return total


def _take_worst(costs: list[Cost | None]) -> Cost | None:
    """The largest amount with the largest delta: each part's guarantee is implied by the pair."""
    known = [cost for cost in costs if cost is not None]
    if len(known) < len(costs):
        return None
    amounts, deltas = [cost.amount for cost in known], [cost.delta for cost in known]
    return Cost(max(amounts, default=Fraction(0)), max(deltas, default=Fraction(0)), all(c.private for c in known))


class _Limited(Protocol):
    def compute_remaining(self) -> Budget | None: ...


def refuse_unsupported(event: Event, accounting: str, instead: str) -> NoReturn:
    """Refuse an event that an accountant cannot price."""
    raise ParameterError(
        f"{accounting} accounting cannot price {_describe_event(event)}",
        remedy=f"Use {instead} accounting, or another mechanism",
        charge=NOTHING_CHARGED,
        accounting=accounting,
    )


def refuse_over(
    unit: str, asked: Fraction, delta: Fraction, private: bool, account: _Limited, only_pure: Fraction = Fraction(0)
) -> NoReturn:
    """Refuse an event that would pass the limit, saying what was asked and what is left.

    `only_pure` is the largest epsilon that fits where nothing but a pure event does.
    """
    if not private:
        raise BudgetExceeded("a release without a formal guarantee was asked under a privacy budget")
    left = account.compute_remaining()
    assert left is not None
    amount = left.rho if isinstance(left, ZCDP) else left.epsilon
    told, rest = shorten(round_down(amount, 6)), _add_delta(round_down(left.delta, 6))
    remedy = f"Ask for at most {unit} {told}" if amount > 0 else "The budget is used up"
    if amount > 0 and delta > left.delta:
        rest = rest or " with delta 0"
        remedy += f"{rest}: the delta that was asked for is not left"
    if only_pure:
        remedy = f"Only a pure question fits, one without a delta: ask for at most {state_pure(only_pure)}"
    raise BudgetExceeded(
        f"asked {unit} {shorten(asked)}{_add_delta(delta)}, remaining {told}{rest}",
        remedy=remedy,
        unit=unit,
        asked=float(asked),
        remaining=float(amount),
        delta=float(delta),
        delta_remaining=float(left.delta),
    )


def state_pure(epsilon: Fraction) -> str:
    """An epsilon that a question may have at most, not rounded up."""
    return f"epsilon {shorten(round_down(epsilon, 6))}"


def shorten(amount: Fraction) -> str:
    """A number as a reader wants it: few digits, whole where it is whole."""
    return f"{float(amount):.6g}"


def _add_delta(delta: Fraction) -> str:
    return f" with delta {shorten(delta)}" if delta else ""


def _describe_event(event: Event) -> str:
    """The first thing inside an event that is not mere composition, in words."""
    match event:
        case ComposedEvent(events) | ParallelEvent(events):
            named = [_describe_event(part) for part in events]
            return next((name for name in named if name.startswith(("Gaussian", "an event"))), "this composition")
        case SelfComposedEvent(inner, _):
            return _describe_event(inner)
        case GaussianEvent() | SampledGaussianEvent():
            return "Gaussian noise"
        case UnsupportedEvent(reason):
            return f"an event that has no description{f' ({reason})' if reason else ''}"
        case _:
            return f"a {type(event).__name__}"
