"""Models about how many people share a class: k-anonymity, k-map, delta-presence, and the average risk.

The average risk of re-identification is a condition on the whole release rather than on each class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from deniable.errors import ParameterError
from deniable.kanonymity.encoding import Counts
from deniable.kanonymity.models.base import (
    SLACK,
    Classes,
    Measured,
    PrivacyModel,
    Verdicts,
    name_pairs,
    refuse_below,
    say_unit,
)


@dataclass(frozen=True, slots=True)
class KAnonymity:
    """Every row looks like at least k - 1 others, or like rows of at least k - 1 other people.

    **Holds when** a class has at least k rows; counted in people, when it has rows of at least k different ones.
    **Protects against** singling a row out by its quasi-identifiers, or a person who has several rows, **and not**
    against learning what all rows of a class have in common.
    **Monotone under** generalization and suppression: more rows never make a class smaller, nor remove a person.
    """

    k: int
    person: str | None = None
    under_generalization: ClassVar[bool] = True
    under_suppression: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_below("k", self.k, 1)

    def measure(self, classes: Classes) -> Measured:
        """The size of every class, or the number of its people."""
        if self.person is None:
            return classes.sizes.astype(np.float64)
        return np.diff(classes.histograms(name_pairs(self.person)).starts).astype(np.float64)

    def meets(self, measured: Measured) -> Verdicts:
        """At least k."""
        return measured >= self.k

    def list_implied(self) -> tuple[PrivacyModel, ...]:
        """Itself, and where people are counted, as many rows, which are counted faster."""
        return (self,) if self.person is None else (KAnonymity(self.k), self)

    def bound_losses(self, measured: Measured, classes: Classes) -> Measured:
        """All rows of a class that is too small: its parts are smaller still."""
        return np.where(self.meets(measured), 0, classes.sizes)

    def __str__(self) -> str:
        return f"{self.k}-anonymity{say_unit(self.person)}"


@dataclass(frozen=True, slots=True)
class KMap:
    """Every row looks like at least k people of the population it was drawn from.

    **Holds when** at least k people of the population share the class.
    **Protects against** linking a row to a population register, **and not** against somebody who knows who is in the
    sample.
    **Monotone under** generalization and suppression.
    """

    k: int
    under_generalization: ClassVar[bool] = True
    under_suppression: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_below("k", self.k, 1)

    def measure(self, classes: Classes) -> Measured:
        """The people of the population in every class."""
        return classes.people().astype(np.float64)

    def meets(self, measured: Measured) -> Verdicts:
        """At least k."""
        return measured >= self.k

    def list_implied(self) -> tuple[PrivacyModel, ...]:
        """Itself."""
        return (self,)

    def bound_losses(self, measured: Measured, classes: Classes) -> Measured:
        """All rows of a class that is too small: its parts are smaller still."""
        return np.where(self.meets(measured), 0, classes.sizes)

    def __str__(self) -> str:
        return f"{self.k}-map"


@dataclass(frozen=True, slots=True)
class DeltaPresence:
    """Whether somebody of the population is in the table stays uncertain (Nergiz, Atzori, Clifton 2007).

    **Holds when** in every class the share of the population that is in the table lies between `least` and `most`.
    **Protects against** learning that somebody is, or is not, in the table, **and not** against learning about those
    known to be in it.
    **Monotone under** generalization (the share of a merged class lies between those of its parts), not suppression.
    """

    least: float
    most: float
    under_generalization: ClassVar[bool] = True
    under_suppression: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most <= 1:
            raise ParameterError(
                f"delta-presence between {self.least} and {self.most}", expected="0 <= least <= most <= 1"
            )

    def measure(self, classes: Classes) -> Measured:
        """The share of each class's people who are in the table."""
        people = classes.people()
        shares: Measured = np.divide(classes.sizes, people, out=np.full(len(people), np.inf), where=people > 0)
        return shares

    def meets(self, measured: Measured) -> Verdicts:
        """Between the least and the most."""
        return (measured >= self.least - SLACK) & (measured <= self.most + SLACK)

    def list_implied(self) -> tuple[PrivacyModel, ...]:
        """Nothing that more rows could not undo."""
        return ()

    def bound_losses(self, _measured: Measured, classes: Classes, /) -> Measured:
        """Rows beyond the most that the class's people allow."""
        surplus: Measured = classes.sizes - self.most * classes.people() - SLACK * classes.sizes
        return np.maximum(surplus, 0.0)

    def __str__(self) -> str:
        return f"({self.least:g}, {self.most:g})-presence"


@dataclass(frozen=True, slots=True)
class AverageRisk:
    """The chance of a correct link, averaged over all released rows, is at most `risk`.

    **Holds when** classes / rows <= risk over what is released: each class yields one correct link in expectation.
    **Protects against** the marketer, who wants many links, **and not** the single person in a small class.
    **Monotone under** generalization (merging lowers the number of classes). Where it fails, classes are suppressed by
    size, smallest first and all of one size together; which rows those are is not monotone.
    """

    risk: float
    under_generalization: ClassVar[bool] = True
    under_suppression: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 < self.risk <= 1:
            raise ParameterError(f"The average risk is {self.risk}", expected="A risk above 0 and at most 1")

    def release(self, sizes: Counts, kept: Verdicts) -> Verdicts:
        """Which classes can be released, of those that are kept so far."""
        by_size = np.bincount(sizes[kept]) if kept.any() else np.zeros(1, np.int64)
        classes = np.cumsum(by_size[::-1])[::-1]
        rows = np.cumsum((by_size * np.arange(len(by_size)))[::-1])[::-1]
        fine = classes <= self.risk * rows * (1 + SLACK)
        least = int(np.argmax(fine)) if fine.any() else len(by_size)
        return kept & (sizes >= least)

    def __str__(self) -> str:
        return f"average risk at most {self.risk:g}"
