"""What every method of learning is: a plan that states its price, and a fit that keeps it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import Event
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.learn.features import Entries

Numbers = NDArray[np.float64]
Progress = Callable[[float], None]

CHUNK = 1 << 16
"""Rows that are multiplied at once, as floating-point numbers that hold integers.

Products of entries are below 2**31 and 2**16 of them are added, so every partial sum is an integer below 2**53: exact
in 64-bit floating point, in whatever order a library adds them. Sums of chunks are added as 64-bit integers.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """What was learned, in units of the entries and (for a number) of the target's own values: public."""

    coefficients: Numbers
    errors: Numbers | None
    """Standard errors with the noise in them, where the method has them."""
    rows: float
    """How many rows were learned from, with noise."""


class Plan(Protocol):
    """A method with all that it needs to know before a row is seen."""

    @property
    def event(self) -> Event:
        """What fitting will release, for any accountant to price."""

    def fit(
        self, entries: Entries, truth: NDArray[np.int64], entropy: Entropy = SYSTEM, progress: Progress | None = None
    ) -> Fit:
        """Learn from rows: the only deed that sees them, and all of it has passed through noise."""
