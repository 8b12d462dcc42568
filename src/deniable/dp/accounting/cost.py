"""What the accountants share: costs that add up, and the refusal of what cannot be priced or would pass a limit.

The pure and the zCDP accountant keep one amount (epsilon, or rho) and the delta of thresholds beside it, both exact.
Sequential composition adds both, parts on disjoint units count by their worst, and one release without a guarantee
spoils the sum for good. A refusal says what was asked and what is left, and that nothing was charged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import NoReturn, Protocol

from deniable.dp.accounting.events import (
    ComposedEvent,
    Event,
    GaussianEvent,
    NonPrivateEvent,
    NoOpEvent,
    ParallelEvent,
    SelfComposedEvent,
    UnsupportedEvent,
)
from deniable.errors import NOTHING_CHARGED, BudgetExceeded, ParameterError
from deniable.policy.budget import ZCDP, Budget


@dataclass(frozen=True, slots=True)
class Cost:
    """An amount (epsilon or rho) with a delta beside it; `private` is false once something had no guarantee."""

    amount: Fraction = Fraction(0)
    delta: Fraction = Fraction(0)
    private: bool = True

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.amount + other.amount, self.delta + other.delta, self.private and other.private)

    def times(self, count: int) -> Cost:
        """The cost of so many repetitions; none at all costs nothing."""
        return Cost(self.amount * count, self.delta * count, self.private) if count else FREE

    def within(self, amount: Fraction, delta: Fraction) -> bool:
        """Whether the cost fits in both limits."""
        return self.private and self.amount <= amount and self.delta <= delta


FREE = Cost()
EXPOSED = Cost(private=False)


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


def refuse_over(unit: str, asked: Fraction, delta: Fraction, private: bool, account: _Limited) -> NoReturn:
    """Refuse an event that would pass the limit, saying what was asked and what is left."""
    if not private:
        raise BudgetExceeded("a release without a formal guarantee was asked under a privacy budget")
    left = account.compute_remaining()
    assert left is not None
    amount = left.rho if isinstance(left, ZCDP) else left.epsilon
    raise BudgetExceeded(
        f"asked {unit} {shorten(asked)}{_add_delta(delta)}, remaining {shorten(amount)}{_add_delta(left.delta)}",
        remedy=f"Ask for at most {unit} {shorten(amount)}" if amount > 0 else "The budget is used up",
        asked=float(asked),
        remaining=float(amount),
        delta=float(delta),
        delta_remaining=float(left.delta),
    )


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
        case GaussianEvent():
            return "Gaussian noise"
        case UnsupportedEvent(reason):
            return f"an event that has no description{f' ({reason})' if reason else ''}"
        case _:
            return f"a {type(event).__name__}"
