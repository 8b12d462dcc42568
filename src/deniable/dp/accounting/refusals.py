"""What accountants say when they refuse, in one voice."""

from __future__ import annotations

from fractions import Fraction
from typing import NoReturn, Protocol

from deniable.dp.accounting.events import (
    ComposedEvent,
    Event,
    GaussianEvent,
    ParallelEvent,
    SelfComposedEvent,
    UnsupportedEvent,
)
from deniable.errors import NOTHING_CHARGED, BudgetExceeded, ParameterError
from deniable.policy.budget import ZCDP, Budget


class _Limited(Protocol):
    def remaining(self) -> Budget | None: ...


def refuse_unsupported(event: Event, accounting: str, instead: str) -> NoReturn:
    """Refuse an event that an accountant cannot price."""
    raise ParameterError(
        f"{accounting} accounting cannot price {_named(event)}",
        remedy=f"Use {instead} accounting, or another mechanism",
        charge=NOTHING_CHARGED,
        accounting=accounting,
    )


def refuse_over(unit: str, asked: Fraction, delta: Fraction, private: bool, account: _Limited) -> NoReturn:
    """Refuse an event that would pass the limit, saying what was asked and what is left."""
    if not private:
        raise BudgetExceeded("a release without a formal guarantee was asked under a privacy budget")
    left = account.remaining()
    assert left is not None
    amount = left.rho if isinstance(left, ZCDP) else left.epsilon
    raise BudgetExceeded(
        f"asked {unit} {shown(asked)}{_with_delta(delta)}, remaining {shown(amount)}{_with_delta(left.delta)}",
        remedy=f"Ask for at most {unit} {shown(amount)}" if amount > 0 else "The budget is used up",
        asked=float(asked),
        remaining=float(amount),
        delta=float(delta),
        delta_remaining=float(left.delta),
    )


def shown(amount: Fraction) -> str:
    """A number as a reader wants it: few digits, whole where it is whole."""
    return f"{float(amount):.6g}"


def _with_delta(delta: Fraction) -> str:
    return f" with delta {shown(delta)}" if delta else ""


def _named(event: Event) -> str:
    """The first thing inside an event that is not mere composition, in words."""
    match event:
        case ComposedEvent(events) | ParallelEvent(events):
            named = [_named(part) for part in events]
            return next((name for name in named if name.startswith(("Gaussian", "an event"))), "this composition")
        case SelfComposedEvent(inner, _):
            return _named(inner)
        case GaussianEvent():
            return "Gaussian noise"
        case UnsupportedEvent(reason):
            return f"an event that has no description{f' ({reason})' if reason else ''}"
        case _:
            return f"a {type(event).__name__}"
