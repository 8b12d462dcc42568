"""Models about how many sensitive values a class holds: distinct, entropy and recursive l-diversity."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from deniable.kanonymity.models.base import (
    SLACK,
    Classes,
    Measured,
    PrivacyModel,
    Verdicts,
    refuse_below,
    refuse_not_above,
)


@dataclass(frozen=True, slots=True)
class DistinctDiversity:
    """Every class holds at least l different sensitive values (Machanavajjhala et al. 2006).

    **Holds when** the number of different values in the class is at least l.
    **Protects against** certainty about the value of a known row, **and not** against a strong guess: one value may
    still be nearly everybody's.
    **Monotone under** generalization and suppression: more rows never remove a value.
    """

    column: str
    l: int  # noqa: E741  the field's own letter
    under_generalization: ClassVar[bool] = True
    under_suppression: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_below("l", self.l, 1)

    def measure(self, classes: Classes) -> Measured:
        """The number of different values."""
        return np.diff(classes.histograms(self.column).starts).astype(np.float64)

    def meets(self, measured: Measured) -> Verdicts:
        """At least l."""
        return measured >= self.l

    def list_implied(self) -> tuple[PrivacyModel, ...]:
        """Itself."""
        return (self,)

    def bound_losses(self, measured: Measured, classes: Classes) -> Measured:
        """All rows of a class with too few values: its parts have no more."""
        return np.where(self.meets(measured), 0, classes.sizes)

    def __str__(self) -> str:
        return f"distinct {self.l}-diversity of {self.column}"


@dataclass(frozen=True, slots=True)
class EntropyDiversity:
    """The values of every class are as uncertain as l equally likely ones.

    **Holds when** 2 to the power of the entropy of the class's values is at least l.
    **Protects against** strong guesses as well as certainty, **and not** against similar values or skewness.
    **Monotone under** generalization (entropy is concave), not suppression: a class of one value merged in lowers it.
    """

    column: str
    l: float  # noqa: E741
    under_generalization: ClassVar[bool] = True
    under_suppression: ClassVar[bool] = False

    def __post_init__(self) -> None:
        refuse_below("l", self.l, 1)

    def measure(self, classes: Classes) -> Measured:
        """The effective number of values."""
        histograms = classes.histograms(self.column)
        weighted = histograms.counts * np.log(histograms.counts)
        sums = np.bincount(classes.owners(self.column), weights=weighted, minlength=len(classes))
        sizes = np.maximum(classes.sizes, 1)
        return np.exp(np.log(sizes) - sums / sizes)

    def meets(self, measured: Measured) -> Verdicts:
        """At least l."""
        return measured >= self.l * (1 - SLACK)

    def list_implied(self) -> tuple[PrivacyModel, ...]:
        """At least so many different values, since entropy is at most the logarithm of their number."""
        return (DistinctDiversity(self.column, math.ceil(self.l * (1 - SLACK))),)

    def bound_losses(self, measured: Measured, _classes: Classes, /) -> Measured:
        """Nothing is known."""
        return np.zeros(len(measured))

    def __str__(self) -> str:
        return f"entropy {self.l:g}-diversity of {self.column}"


@dataclass(frozen=True, slots=True)
class RecursiveDiversity:
    """The most frequent value is not too frequent: recursive (c, l)-diversity.

    **Holds when** r1 < c (rl + ... + rm), where r1 >= r2 >= ... are the counts of the class's m values.
    **Protects against** guesses by somebody who can rule out l - 2 values, **and not** against similar values.
    **Monotone under** generalization (Machanavajjhala et al. 2006), not suppression.
    """

    column: str
    c: float
    l: int  # noqa: E741
    under_generalization: ClassVar[bool] = True
    under_suppression: ClassVar[bool] = False

    def __post_init__(self) -> None:
        refuse_not_above("c", self.c, 0)
        refuse_below("l", self.l, 1)

    def measure(self, classes: Classes) -> Measured:
        """r1 / (rl + ... + rm), infinite where there are fewer than l values."""
        histograms, owner = classes.histograms(self.column), classes.owners(self.column)
        falling = histograms.counts[np.lexsort((-histograms.counts, owner))].astype(np.float64)
        starts = histograms.starts[:-1]
        rank = np.arange(len(falling)) - starts[owner]
        tail = np.bincount(owner, weights=np.where(rank >= self.l - 1, falling, 0.0), minlength=len(classes))
        most = np.append(falling, 0.0)[starts]
        ratios: Measured = np.divide(most, tail, out=np.full(len(classes), np.inf), where=tail > 0)
        return ratios

    def meets(self, measured: Measured) -> Verdicts:
        """Below c."""
        return measured < self.c

    def list_implied(self) -> tuple[PrivacyModel, ...]:
        """At least l different values, or the sum on the right is empty."""
        return (DistinctDiversity(self.column, self.l),)

    def bound_losses(self, measured: Measured, _classes: Classes, /) -> Measured:
        """Nothing is known."""
        return np.zeros(len(measured))

    def __str__(self) -> str:
        return f"recursive ({self.c:g}, {self.l})-diversity of {self.column}"
