"""Privacy budgets as exact values: pure epsilon, (epsilon, delta), and zero-concentrated rho.

Budgets are Fractions, so ten charges of 0.1 are exactly 1 and a refusal never hangs on a rounding. A float is taken
by its shortest decimal form: 0.1 means one tenth, not the binary number nearest to it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_DOWN, ROUND_UP, Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

from deniable.errors import ParameterError

Amount = int | float | str | Decimal | Fraction

_LARGEST_EXPONENT = 1000  # 1e999999999 is a short text and a number that fills the memory


_LONGEST = 2_000
"""Characters of a number as text."""


def exact(amount: Amount, name: str = "amount") -> Fraction:
    """The rational that a written number means.

    >>> exact(0.1) * 10 == 1
    True
    """
    if isinstance(amount, Fraction):
        return amount
    try:
        if isinstance(amount, bool):
            raise ValueError
        if isinstance(amount, str) and (len(amount) > _LONGEST or "_" in amount or not amount.isascii()):
            raise ValueError  # Python reads 1_0 as ten
        if isinstance(amount, str) and "/" in amount:
            return Fraction(amount)
        number = Decimal(repr(amount) if isinstance(amount, float) else amount)
        if number and abs(number.adjusted()) > _LARGEST_EXPONENT:
            raise ValueError
        return Fraction(number)
    except (ValueError, TypeError, InvalidOperation, OverflowError, ZeroDivisionError):
        such = "1e-6" if name == "delta" else "0.5"
        raise ParameterError(f"{name} is not a finite number", expected=f"A number such as {such}") from None


_WRITTEN = re.compile(r"[+-]?(?:\d+/\d+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)", re.ASCII)
_LONGEST_WRITTEN = 8_600
"""Two whole numbers of as many digits as Python writes."""


def read_rational(text: object) -> Fraction:
    """The number in a file that was written as text, such as "1/3" or "0.01": at once, or refused at once.

    `Fraction` would take a short text for a number that fills the memory.
    """
    if not (isinstance(text, str) and len(text) <= _LONGEST_WRITTEN and _WRITTEN.fullmatch(text)):
        raise ParameterError("a number of a file is not written as a rational", expected="Text such as '1/3'")
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):  # more digits than Python reads, or nothing to divide by
        raise ParameterError("a number of a file is not a rational", expected="Text such as '1/3'") from None


def format_number(number: Fraction) -> str:
    """A number as people write it."""
    return str(number.numerator) if number.denominator == 1 else repr(float(number))


def _non_negative(amount: Fraction, name: str) -> None:
    if amount.numerator < 0:
        raise ParameterError(f"{name} is negative", expected=f"{name} is at least 0")


class Sayable:
    """What prints, also in notebooks, as people say it; its representation stays exact."""

    __slots__ = ()

    def __str__(self) -> str:
        return say_budget(self)  # type: ignore[arg-type]  # each budget is one

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(str(self))


NO_DELTA = Fraction(0)


@dataclass(frozen=True, slots=True)
class PureDP(Sayable):
    """epsilon-differential privacy."""

    epsilon: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", exact(self.epsilon, "epsilon"))
        _non_negative(self.epsilon, "epsilon")

    @property
    def delta(self) -> Fraction:
        """Pure privacy has no failure probability."""
        return NO_DELTA


@dataclass(frozen=True, slots=True)
class ApproxDP(Sayable):
    """(epsilon, delta)-differential privacy."""

    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", exact(self.epsilon, "epsilon"))
        object.__setattr__(self, "delta", exact(self.delta, "delta"))
        _non_negative(self.epsilon, "epsilon")
        _non_negative(self.delta, "delta")
        if self.delta >= 1:
            raise ParameterError("delta is 1 or more", expected="delta is a small probability such as 1e-6")


@dataclass(frozen=True, slots=True)
class ZCDP(Sayable):
    """rho-zero-concentrated differential privacy (Bun and Steinke 2016), with the delta of thresholds beside it."""

    rho: Fraction
    delta: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "rho", exact(self.rho, "rho"))
        object.__setattr__(self, "delta", exact(self.delta, "delta"))
        _non_negative(self.rho, "rho")
        _non_negative(self.delta, "delta")


Budget = PureDP | ApproxDP | ZCDP


def budget(epsilon: Amount | None = None, delta: Amount = 0, rho: Amount | None = None) -> Budget:
    """The budget that a request states, in the narrowest form.

    >>> budget(epsilon=0.5)
    PureDP(epsilon=Fraction(1, 2))
    """
    if (epsilon is None) == (rho is None):
        raise ParameterError("a budget needs epsilon or rho, and not both")
    if rho is not None:
        return ZCDP(exact(rho, "rho"), exact(delta, "delta"))
    assert epsilon is not None
    if exact(delta, "delta") == 0:
        return PureDP(exact(epsilon, "epsilon"))
    return ApproxDP(exact(epsilon, "epsilon"), exact(delta, "delta"))


LEAST, MOST, MOST_DELTA = Fraction(1, 10**100), 10_000, Fraction(1, 100)


def refuse_extreme(asked: Budget) -> Budget:
    """A budget that protects somebody: refuses 0, more than any protection is left under, and a large delta.

    >>> refuse_extreme(budget(epsilon=1))
    PureDP(epsilon=Fraction(1, 1))
    """
    amount = asked.rho if isinstance(asked, ZCDP) else asked.epsilon
    if amount <= 0:
        raise ParameterError("the budget is 0", expected="A budget above 0")
    if amount < LEAST:
        raise ParameterError("the budget is below 1e-100, and no answer would show anything", expected="Such as 0.1")
    if amount > MOST:
        raise ParameterError(f"the budget is above {MOST:,}, which protects nobody", expected="An epsilon around 1")
    if asked.delta > MOST_DELTA:
        raise ParameterError(
            "delta is above 0.01: with that probability anything may be shown", expected="delta such as 1e-6"
        )
    return asked


def add(left: Budget, right: Budget) -> Budget:
    """Sequential composition of two budgets of one kind: the amounts add up exactly."""
    match left, right:
        case ZCDP(), ZCDP():
            return ZCDP(left.rho + right.rho, left.delta + right.delta)
        case ((PureDP() | ApproxDP()), (PureDP() | ApproxDP())):
            return budget(left.epsilon + right.epsilon, left.delta + right.delta)
        case _:
            raise ParameterError("a zCDP budget and an epsilon budget do not add", remedy="Convert one of them first")


def covers(allowance: Budget, cost: Budget) -> bool:
    """Whether a cost fits inside an allowance of the same kind, in every component."""
    match allowance, cost:
        case ZCDP(), ZCDP():
            return cost.rho <= allowance.rho and cost.delta <= allowance.delta
        case ((PureDP() | ApproxDP()), (PureDP() | ApproxDP())):
            return cost.epsilon <= allowance.epsilon and cost.delta <= allowance.delta
        case _:
            raise ParameterError("a zCDP budget and an epsilon budget do not compare")


def split(whole: Budget, weights: tuple[Fraction, ...]) -> tuple[Budget, ...]:
    """Shares of a budget in proportion to positive weights; they add up to the whole exactly."""
    total = sum(weights, Fraction(0))
    if not weights or min(weights) <= 0:
        raise ParameterError("a budget is split by positive weights")
    match whole:
        case ZCDP(rho, delta):
            return tuple(ZCDP(rho * w / total, delta * w / total) for w in weights)
        case _:
            return tuple(budget(whole.epsilon * w / total, whole.delta * w / total) for w in weights)


def find_left(limit: Budget, spent: Budget | None, remaining: Budget) -> tuple[str, Fraction, Fraction]:
    """The unit in which what is left is told, what there was of it in all, and how much of it is left.

    An account may be kept in rho under a limit in epsilon: then it is told in rho, since that is what is enforced.
    """
    unit, left = ("rho", remaining.rho) if isinstance(remaining, ZCDP) else ("epsilon", remaining.epsilon)
    if isinstance(remaining, ZCDP) is isinstance(limit, ZCDP):
        return unit, _take_amount(limit), left
    return unit, left + (Fraction(0) if spent is None else _take_amount(spent)), left


def say_left(limit: Budget, spent: Budget | None, remaining: Budget) -> str:
    """What is left of a limit, as people say it; never more than there is.

    >>> say_left(PureDP(Fraction(2)), PureDP(Fraction(1, 2)), PureDP(Fraction(3, 2)))
    '1.5 of epsilon 2'
    >>> say_left(ApproxDP(Fraction(10), Fraction(1, 10**6)), ZCDP(Fraction(1, 4)), ZCDP(Fraction(1)))
    '1 of rho 1.25'
    """
    unit, whole, left = find_left(limit, spent, remaining)
    return say_part(unit, left, whole)


def say_part(unit: str, left: Fraction, whole: Fraction) -> str:
    """What is left of a whole, both rounded down; a delta that is all left is told once.

    >>> say_part("delta", Fraction(1, 10), Fraction(1, 10)), say_part("delta", Fraction(0), Fraction(1, 10))
    ('delta 0.1', '0 of delta 0.1')
    """
    if unit == "delta" and left == whole:
        return f"delta {round_amount(whole)}"
    return f"{round_amount(left)} of {unit} {round_amount(whole)}"


def say_share(limit: Budget, rho: Fraction, whole: Fraction, more: str = "") -> str:
    """What is left of a limit where totals are kept in rho: its share, and the rho that can be asked for.

    The share of an epsilon is told in percent, since no question of so much epsilon fits.

    >>> say_share(ApproxDP(Fraction(10), Fraction(1, 10**6)), Fraction(1), Fraction(5, 4), " with delta 5e-07")
    '80% of epsilon 10 (1 of rho 1.25 with delta 5e-07)'
    """
    exactly = say_part("rho", rho, whole) + more
    if isinstance(limit, ZCDP) or not whole:
        return exactly
    return f"{math.floor(100 * rho / whole)}% of epsilon {round_amount(limit.epsilon)} ({exactly})"


def round_amount(amount: Fraction, digits: int = 4) -> str:
    """An amount of at least 0 in so many digits, rounded down: what is shown can be asked for.

    >>> round_amount(Fraction(2, 3))
    '0.6666'
    """
    if not amount:
        return "0"
    step = Fraction(10) ** (math.floor(math.log10(amount.numerator) - math.log10(amount.denominator)) + 1 - digits)
    return f"{float(amount // step * step):.{digits}g}"


def say_budget(amount: Budget) -> str:
    """A budget as people say it.

    >>> say_budget(ApproxDP(Fraction(1, 2), Fraction(1, 10**6)))
    'epsilon 0.5 and delta 1e-06'
    """
    unit = "rho" if isinstance(amount, ZCDP) else "epsilon"
    shown = f"{unit} {_shorten(_take_amount(amount))}"
    return f"{shown} and delta {_shorten(amount.delta)}" if amount.delta else shown


def _take_amount(amount: Budget) -> Fraction:
    """The larger part of a budget, whatever it is counted in."""
    return amount.rho if isinstance(amount, ZCDP) else amount.epsilon


def _shorten(amount: Fraction) -> str:
    return f"{float(amount):.4g}"


def describe_amounts(amounts: Mapping[str, str]) -> str:
    """A cost as people say it: epsilon 0.5 and delta 1e-06; or what is left of both kinds."""
    if "epsilon" in amounts and "rho" in amounts:
        others = f"rho {amounts['rho']} and delta {amounts['delta']}"
        return f"epsilon {amounts['epsilon']} for pure questions, {others} for others"
    return " and ".join(f"{name} {value}" for name, value in amounts.items() if value != "0") or "nothing"


def say_cost(details: Mapping[str, Any], repeated: bool) -> str:
    """What an answer cost and what is left, in words."""
    spent = describe_amounts(details.get("cost") or {})
    left = f"; {shorten_left(str(details['left']))} is left" if details.get("left") else ""
    return f"{'A stored answer: nothing was charged' if repeated else f'Cost: {spent}'}{left}."


def shorten_left(left: str) -> str:
    """What is left in the unit of the policy; balances tell what is enforced beside it.

    >>> shorten_left("9.5 of epsilon 10 (pure questions; rho 1.2 and delta 5e-07 for others)")
    '9.5 of epsilon 10'
    >>> shorten_left("83% of epsilon 10 (1.228 of rho 1.478 with delta 5e-07)")
    '83% of epsilon 10'
    """
    return left if left.startswith("nothing") else left.partition(" (")[0]


def format_amount(amount: float | None, rounding: str = "") -> str:
    """An amount of budget with as many figures as a person reads: three below 100, none after the point above.

    `rounding` may be `up`, for what is taken, or `down`, for what is left, so that no price looks lower than it is.

    >>> [format_amount(each) for each in (8.1999, 0.0512345, 98233.0, 0.0)]
    ['8.2', '0.0512', '98,233', '0']
    >>> format_amount(1.265, "up"), format_amount(1.269, "down")
    ('1.27', '1.26')
    """
    if amount is None:
        return "no limit"
    if rounding and amount:
        exactly = Decimal(repr(amount))
        digits = Decimal(1).scaleb(min(exactly.adjusted() - 2, 0))
        amount = float(exactly.quantize(digits, ROUND_UP if rounding == "up" else ROUND_DOWN))
    return f"{amount:,.0f}" if abs(amount) >= 100 else f"{amount:.3g}"
