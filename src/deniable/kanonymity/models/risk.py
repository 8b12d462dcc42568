"""A model about the whole release rather than each class: the average risk of re-identification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from deniable.errors import ParameterError
from deniable.kanonymity.models.base import SLACK, Verdicts
from deniable.kanonymity.tuples import Counts


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
