"""Events: what was run on the data, described exactly enough to be priced by any accountant.

A ledger stores events and never prices, so that a better accountant can price the past again. For this to stay sound:

- an event says what ran, in exact rationals; it holds no row, no answer and no seed;
- the meaning of a class or a field never changes and none is removed: a new mechanism gets a new class;
- `NonPrivateEvent` and `UnsupportedEvent` are real members: what has no guarantee is recorded, not forgotten.

All noise here is on the integers (multiples of a public step), so scales and sensitivities are counted in steps.
Neighbors differ by one privacy unit added or removed; a replaced unit is two such changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from deniable.errors import ParameterError
from deniable.policy.budget import Amount, exact


def _require_positive(amount: Amount, name: str) -> Fraction:
    value = exact(amount, name)
    if value <= 0:
        raise ParameterError(f"{name} is not positive", expected=f"{name} is greater than 0")
    return value


def _require_non_negative(amount: Amount, name: str) -> Fraction:
    value = exact(amount, name)
    if value < 0:
        raise ParameterError(f"{name} is negative", expected=f"{name} is at least 0")
    return value


@dataclass(frozen=True, slots=True)
class NoOpEvent:
    """Nothing about the data was released: a repeated answer, a public table, an insensitive query."""


@dataclass(frozen=True, slots=True)
class NonPrivateEvent:
    """Something without a formal guarantee was released; its price is infinite."""


@dataclass(frozen=True, slots=True)
class UnsupportedEvent:
    """Something ran that this family cannot describe; no accountant prices it."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class LaplaceEvent:
    """Discrete Laplace noise of `scale` on each entry of an integer vector of L1 sensitivity `sensitivity`.

    The noise takes the integer x with probability proportional to exp(-|x| / scale).
    """

    scale: Fraction
    sensitivity: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _require_positive(self.scale, "scale"))
        object.__setattr__(self, "sensitivity", _require_non_negative(self.sensitivity, "sensitivity"))

    @property
    def epsilon(self) -> Fraction:
        """The pure price: sensitivity / scale."""
        return self.sensitivity / self.scale


@dataclass(frozen=True, slots=True)
class GaussianEvent:
    """Discrete Gaussian noise on each entry of an integer vector of squared L2 sensitivity `sensitivity_squared`.

    The noise takes the integer x with probability proportional to exp(-x^2 / (2 variance)). Squares are stored because
    they stay rational: k entries that change by one each have L2 sensitivity sqrt(k).
    """

    variance: Fraction
    sensitivity_squared: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        object.__setattr__(self, "variance", _require_positive(self.variance, "variance"))
        object.__setattr__(
            self, "sensitivity_squared", _require_non_negative(self.sensitivity_squared, "sensitivity_squared")
        )

    @property
    def rho(self) -> Fraction:
        """The zCDP price: squared sensitivity / (2 variance) (Canonne, Kamath, Steinke 2020, theorem 14)."""
        return self.sensitivity_squared / (2 * self.variance)


@dataclass(frozen=True, slots=True)
class SampledGaussianEvent:
    """`count` releases with discrete Gaussian noise, each of a fresh sample that has every unit with chance `rate`.

    One unit moves a release of a sample that has it by at most the root of `sensitivity_squared`. All releases together
    are dominated by one continuous Gaussian whose variance is `ratio` times its squared sensitivity, but for the
    probability `delta`: that is proven when the event is made (see `sampled`), since the proof takes a while.
    """

    rate: Fraction
    variance: Fraction
    sensitivity_squared: Fraction
    count: int
    ratio: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        for name in ("rate", "variance", "sensitivity_squared", "ratio", "delta"):
            object.__setattr__(self, name, _require_positive(getattr(self, name), name))
        check_count(self.count)
        if self.rate >= 1 or self.delta >= 1:
            raise ParameterError("rate or delta is not below 1", expected="rate and delta are probabilities")

    @property
    def rho(self) -> Fraction:
        """The zCDP price, beside `delta`: that of the Gaussian that dominates."""
        return 1 / (2 * self.ratio)


@dataclass(frozen=True, slots=True)
class SelectionEvent:
    """A choice among candidates by their scores that is `epsilon`-DP.

    `bounded_range` holds for the exponential mechanism: the privacy losses of any two outcomes differ by at most
    epsilon. It does not hold for permute-and-flip (noisy max with exponential noise).
    """

    epsilon: Fraction
    bounded_range: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _require_non_negative(self.epsilon, "epsilon"))


@dataclass(frozen=True, slots=True)
class PureEvent:
    """Any mechanism known only to be `epsilon`-DP."""

    epsilon: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", _require_non_negative(self.epsilon, "epsilon"))


@dataclass(frozen=True, slots=True)
class RandomizedEvent:
    """A randomized answer: `odds` is the largest ratio of an answer's probabilities under two inputs, e^epsilon.

    The odds of a coin design are rational where epsilon = ln(odds) is not, so the event keeps the odds.
    """

    odds: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "odds", exact(self.odds, "odds"))
        if self.odds < 1:
            raise ParameterError("odds are below 1", expected="odds is a largest ratio, at least 1")


@dataclass(frozen=True, slots=True)
class ThresholdEvent:
    """Keys shown only above a noisy threshold: with probability `delta` a key of one unit alone is shown.

    The noise on the counts is an event of its own, composed with this one.
    """

    delta: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "delta", _require_non_negative(self.delta, "delta"))
        if self.delta > 1:
            raise ParameterError("delta is above 1", expected="delta is a probability")


@dataclass(frozen=True, slots=True)
class ComposedEvent:
    """Events one after another on the same units, each possibly chosen after seeing the answers before it."""

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))


@dataclass(frozen=True, slots=True)
class ParallelEvent:
    """Events on disjoint sets of units, the split being made without the data's help: the worst part counts.

    A unit that may be in several parts makes this a `ComposedEvent`; so does a replaced unit, which leaves one part
    and enters another.
    """

    events: tuple[Event, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "events", tuple(self.events))


@dataclass(frozen=True, slots=True)
class SelfComposedEvent:
    """The same event `count` times on the same units."""

    event: Event
    count: int

    def __post_init__(self) -> None:
        check_count(self.count)


Event = (
    NoOpEvent
    | NonPrivateEvent
    | UnsupportedEvent
    | LaplaceEvent
    | GaussianEvent
    | SampledGaussianEvent
    | SelectionEvent
    | PureEvent
    | RandomizedEvent
    | ThresholdEvent
    | ComposedEvent
    | ParallelEvent
    | SelfComposedEvent
)


def check_count(count: int) -> None:
    """Refuse a number of repetitions that is not a whole number from 0 up."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise ParameterError("count is not a whole number from 0 up", expected="count is 0, 1, 2, ...")


def build_randomized_event(probabilities: Sequence[Sequence[Amount]]) -> RandomizedEvent | NonPrivateEvent:
    """The event of a randomized answer from its table: one row an input, one column an answer.

    >>> build_randomized_event([["3/4", "1/4"], ["1/4", "3/4"]])
    RandomizedEvent(odds=Fraction(3, 1))
    """
    table = [[_require_non_negative(p, "probability") for p in row] for row in probabilities]
    if not table or len({len(row) for row in table}) != 1 or any(sum(row) != 1 for row in table):
        raise ParameterError(
            "the table is not one of probabilities", expected="Rows of one length, each adding up to exactly 1"
        )
    odds = Fraction(1)
    for answer in zip(*table, strict=True):
        if max(answer) > 0 and min(answer) == 0:
            return NonPrivateEvent()
        odds = max(odds, max(answer) / min(answer)) if max(answer) else odds
    return RandomizedEvent(odds)
