"""What a privacy model is: a number measured on every class, a threshold for it, and declared monotonicity.

Two kinds of monotonicity are declared, and the search uses no other:

- *under generalization*: when all classes meet the model, so do all classes after merging some of them. Then, without
  suppression, whatever generalizes an acceptable node is acceptable.
- *under suppression*: a class that meets the model still meets it when any rows are merged into it. Then rows kept at a
  node are kept at every node above it, and what is suppressed at a node is suppressed at every node below it.

The second implies the first. A model that is not monotone under suppression may name weaker models that it implies and
that are, and may tell how many rows of a class are lost however the class is split: a kept part that is close to the
table cannot make up for the rest. The search prunes with both, and stays exact.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from deniable.errors import ParameterError
from deniable.kanonymity.classes import Classes

Measured = NDArray[np.float64]
Verdicts = NDArray[np.bool_]

SLACK = 1e-12
"""Sums of shares are not exact in floating point; thresholds that were met exactly must still count as met."""


@runtime_checkable
class PrivacyModel(Protocol):
    """A condition on each class of a release."""

    @property
    def under_generalization(self) -> bool:
        """Whether it is monotone under generalization."""

    @property
    def under_suppression(self) -> bool:
        """Whether it is monotone under suppression."""

    def measure(self, classes: Classes) -> Measured:
        """The number that the model is about, for every class."""

    def meets(self, measured: Measured) -> Verdicts:
        """Which measured numbers satisfy the threshold."""

    def implied(self) -> tuple[PrivacyModel, ...]:
        """Models that follow from this one and are monotone under suppression; itself where it is."""

    def lost(self, measured: Measured, classes: Classes) -> Measured:
        """For every class, how many of its rows any split of it must suppress, at least; 0 where nothing is known."""


def holds(model: PrivacyModel, classes: Classes) -> Verdicts:
    """Which classes meet a model."""
    return model.meets(model.measure(classes))


def at_least(name: str, value: float, least: float) -> None:
    """Refuse a parameter below its domain."""
    if not value >= least:
        raise ParameterError(f"{name} is {value}", expected=f"{name} is at least {least}")


def above(name: str, value: float, bound: float) -> None:
    """Refuse a parameter that is not above a bound."""
    if not value > bound:
        raise ParameterError(f"{name} is {value}", expected=f"{name} is above {bound}")
