"""Models about how far a class's values may stray from the table's: t-closeness, delta-disclosure, beta-likeness."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from deniable.errors import ParameterError
from deniable.kanonymity.encoding import Counts, Histograms, build_histograms
from deniable.kanonymity.hierarchy import Codes
from deniable.kanonymity.models.base import (
    SLACK,
    Classes,
    Measured,
    PrivacyModel,
    Reference,
    Verdicts,
    name_weights,
    refuse_not_above,
    say_unit,
)


class Distance(StrEnum):
    """How far two sensitive values are apart."""

    EQUAL = "equal"
    """Any two different values are as far apart as any others."""
    ORDERED = "ordered"
    """By their places in the order of the values."""
    HIERARCHICAL = "hierarchical"
    """By the height of their lowest common group in the column's hierarchy."""


@dataclass(frozen=True, slots=True)
class Closeness:
    """t-closeness: the values of every class are distributed nearly as in the whole table (Li, Li,
    Venkatasubramanian 2007).

    **Holds when** the earth mover's distance between the class's and the table's distribution is at most t, both of
    rows, or both of people.
    **Protects against** learning much more about somebody in a class than about anybody in the table (skewness,
    similarity), **and not** against what the table itself tells about all.
    **Monotone under** generalization (the distance is convex), not suppression: a distant class merged in drags along.
    """

    column: str
    t: float
    distance: Distance = Distance.EQUAL
    person: str | None = None
    under_generalization: ClassVar[bool] = True
    under_suppression: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 <= self.t <= 1:
            raise ParameterError(f"t is {self.t}", expected="t is between 0 and 1")

    def measure(self, classes: Classes) -> Measured:
        """The distance of every class."""
        held, sizes, against = classes.weigh(self.column, self.person)
        if self.distance is Distance.ORDERED:
            return _measure_along_order(held, sizes, against.distribution)
        # On a tree with equal steps from leaf to root, mass leaves each group of each level through one edge: the
        # distance is the mean over levels of that between the groups, which are all equally far from each other.
        levels = self._levels(against)
        parts = (held if n == 0 else _merge_values(held, level) for n, level in enumerate(levels))
        shares = (np.bincount(level, against.distribution, against.size).astype(np.float64) for level in levels)
        return np.mean([_measure_equal(part, sizes, q) for part, q in zip(parts, shares, strict=True)], axis=0)  # type: ignore[no-any-return]

    def _levels(self, against: Reference) -> tuple[Codes, ...]:
        """The group of each value, level by level; the last level, at which all are one, tells nothing."""
        if self.distance is Distance.EQUAL:
            return against.groups[:1]
        if not against.hierarchical:
            raise ParameterError(
                f"t-closeness along the hierarchy of '{self.column}' was asked, and it has none",
                remedy="Declare a hierarchy for the sensitive column, or ask for equal or ordered distance",
            )
        return against.groups[:-1] or against.groups[:1]

    def meets(self, measured: Measured) -> Verdicts:
        """At most t."""
        return measured <= self.t + SLACK

    def list_implied(self) -> tuple[PrivacyModel, ...]:
        """Nothing that more rows could not undo."""
        return ()

    def bound_losses(self, measured: Measured, classes: Classes) -> Measured:
        """Kept parts are within t and so is their mixture; the rest can be no farther than the farthest value.

        With n rows at distance d, of which m are lost, convexity gives n d <= (n - m) t + m w, w the farthest. So it
        does with weights, of which no row has more than the heaviest.
        """
        _, sizes, against = classes.weigh(self.column, self.person)
        beyond = np.maximum(measured - self.t - SLACK, 0.0)
        lost = sizes / against.heaviest * beyond / max(self._farthest(against) - self.t, SLACK)
        return np.where(classes.sizes > 0, lost, 0.0)

    def _farthest(self, against: Reference) -> float:
        """The distance of a class that holds one value only, for the farthest value: distances are convex."""
        one = np.arange(against.size, dtype=np.int64)
        alone = Histograms(np.arange(against.size + 1), one.astype(np.int32), np.ones_like(one), against.size)
        name = name_weights(self.column, self.person)
        return float(self.measure(Classes(np.ones_like(one), {name: alone}, {name: against})).max())

    def __str__(self) -> str:
        return f"{self.t:g}-closeness of {self.column} ({self.distance} distance){say_unit(self.person)}"


@dataclass(frozen=True, slots=True)
class DeltaDisclosure:
    """The share of every value in a class is within a factor of its share in the table (Brickell, Shmatikov 2008).

    **Holds when** |log2(p / q)| < delta for every value of the class, p its share in the class and q in the table.
    **Protects against** large gains and large losses of belief, **and not** against many small ones.
    **Monotone under** nothing: a value absent from one class and present in the other is diluted when they merge. With
    `absent_violates`, a class that lacks a value of the table fails, and then it is monotone under generalization;
    ARX looks at present values only, which is the default here.
    """

    column: str
    delta: float
    absent_violates: bool = False
    person: str | None = None
    under_suppression: ClassVar[bool] = False

    def __post_init__(self) -> None:
        refuse_not_above("delta", self.delta, 0)

    @property
    def under_generalization(self) -> bool:
        """Only where an absent value is a violation."""
        return self.absent_violates

    def measure(self, classes: Classes) -> Measured:
        """The largest |log2(p / q)|."""
        held, _, against = classes.weigh(self.column, self.person)
        worst = _take_largest(held, np.abs(np.log2(compute_gains(classes, self.column, self.person))))
        if not self.absent_violates:
            return worst
        present, needed = np.diff(held.starts), np.count_nonzero(against.distribution)
        return np.where(present < needed, np.inf, worst)

    def meets(self, measured: Measured) -> Verdicts:
        """Below delta."""
        return measured < self.delta

    def list_implied(self) -> tuple[PrivacyModel, ...]:
        """Nothing that more rows could not undo."""
        return ()

    def bound_losses(self, _measured: Measured, classes: Classes, /) -> Measured:
        """Rows of a value beyond 2^delta times its share in the table."""
        return count_surplus(classes, self.column, self.person, 2.0**self.delta)

    def __str__(self) -> str:
        return f"{self.delta:g}-disclosure privacy of {self.column}{say_unit(self.person)}"


@dataclass(frozen=True, slots=True)
class BetaLikeness:
    """No value is much more likely in a class than in the table (Cao, Karras 2012).

    **Holds when** (p - q) / q is at most beta for every value; with `enhanced`, at most min(beta, -ln q), which also
    limits values that are frequent in the table.
    **Protects against** large relative gains of belief, of rare values above all, **and not** against losses.
    **Monotone under** generalization (p of a merged class lies between those of its parts), not suppression.
    """

    column: str
    beta: float
    enhanced: bool = False
    person: str | None = None
    under_generalization: ClassVar[bool] = True
    under_suppression: ClassVar[bool] = False

    def __post_init__(self) -> None:
        refuse_not_above("beta", self.beta, 0)

    def measure(self, classes: Classes) -> Measured:
        """The largest relative gain; with `enhanced`, as a multiple of what the value is allowed, times beta."""
        held, _, against = classes.weigh(self.column, self.person)
        gained = compute_gains(classes, self.column, self.person) - 1
        if self.enhanced:
            q = against.distribution[held.values]
            allowed = np.minimum(self.beta, -np.log(q))
            gained = np.where(gained <= allowed + SLACK, np.minimum(gained, self.beta), self.beta * 2 + gained)
        return _take_largest(held, gained)

    def meets(self, measured: Measured) -> Verdicts:
        """At most beta."""
        return measured <= self.beta + SLACK

    def list_implied(self) -> tuple[PrivacyModel, ...]:
        """Nothing that more rows could not undo."""
        return ()

    def bound_losses(self, _measured: Measured, classes: Classes, /) -> Measured:
        """Rows of a value beyond 1 + beta times its share in the table."""
        q = classes.weigh(self.column, self.person)[2].distribution
        allowed = np.minimum(self.beta, -np.log(np.maximum(q, 1e-300))) if self.enhanced else self.beta
        return count_surplus(classes, self.column, self.person, 1.0 + allowed)

    def __str__(self) -> str:
        return (
            f"{'enhanced' if self.enhanced else 'basic'} {self.beta:g}-likeness of {self.column}{say_unit(self.person)}"
        )


def compute_gains(classes: Classes, column: str, person: str | None) -> Measured:
    """For every entry of a column's histograms, the share of the value in its class over its share in the table."""
    held, sizes, against = classes.weigh(column, person)
    shares: Measured = held.counts / sizes[held.owners()] / against.distribution[held.values]
    return shares


def count_surplus(classes: Classes, column: str, person: str | None, factors: Measured | float) -> Measured:
    """How many rows must go so that no value's share exceeds its factor times its share in the table.

    With n rows, a share p of them with the value, and m lost, n p <= (n - m) c + m, c being the largest share allowed.
    Where rows have weights, as many go at least as the heaviest ones make up.
    """
    held, sizes, against = classes.weigh(column, person)
    most = np.minimum(factors * against.distribution, 1.0)[held.values] * (1 + SLACK)
    over = np.maximum(held.counts - sizes[held.owners()] * most, 0.0) / np.maximum(1.0 - most, SLACK)
    return np.maximum(_take_largest(held, over), 0.0) / against.heaviest


def _take_largest(held: Histograms, entries: Measured) -> Measured:
    starts = held.starts
    out = np.full(len(starts) - 1, -np.inf)
    some = np.flatnonzero(np.diff(starts))  # a class of the population alone has no entries
    if some.size:
        out[some] = np.maximum.reduceat(entries, starts[some])
    return out


def _measure_equal(held: Histograms, sizes: Counts, shares: NDArray[np.float64]) -> Measured:
    """The distance of every class when all values are equally far from each other."""
    owner = held.owners()
    over = np.maximum(held.counts / sizes[owner] - shares[held.values], 0.0)
    return np.bincount(owner, weights=over, minlength=len(sizes)).astype(np.float64)


def _merge_values(held: Histograms, groups: Codes) -> Histograms:
    """Histograms of groups of values; a group is numbered by one of its values."""
    return build_histograms(held.owners(), len(held.starts) - 1, groups[held.values], held.size, held.counts)


CELLS = 1 << 20
"""So many shares are compared at a time: classes times values may be far more than there are rows."""


def _measure_along_order(held: Histograms, sizes: Counts, shares: NDArray[np.float64]) -> Measured:
    """The distance of every class when values are equally spaced in their order.

    Between two neighbors flows the difference of the cumulative shares.
    """
    owner, out = held.owners(), np.zeros(len(sizes))
    step = max(1, CELLS // max(held.size, 1))
    for begin in range(0, len(sizes) if held.size > 1 else 0, step):
        end = min(begin + step, len(sizes))
        part = slice(held.starts[begin], held.starts[end])
        key = (owner[part] - begin) * held.size + held.values[part]
        own = np.bincount(key, held.counts[part] / sizes[owner[part]], (end - begin) * held.size)
        flow = np.cumsum(own.reshape(-1, held.size) - shares, axis=1)
        out[begin:end] = np.abs(flow).sum(axis=1) / (held.size - 1)
    return out
