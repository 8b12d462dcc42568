"""Differencing: two answers that each cover many people, and together one (the March and April tables)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable.attacks.base import Outcome, Rate
from deniable.attacks.linear import determined, solve
from deniable.errors import ParameterError


@dataclass(frozen=True, slots=True)
class Published:
    """A published figure: its label, how many people it covers, and their total (a count of yes, a sum)."""

    label: str
    size: int
    total: float

    @classmethod
    def mean(cls, label: str, size: int, mean: float) -> Published:
        """A published mean, as the total it amounts to."""
        return cls(label, size, size * mean)


@dataclass(frozen=True, slots=True)
class Difference:
    """What is left when one figure is subtracted from another that covers the same people and `size` more."""

    minuend: str
    subtrahend: str
    size: int
    total: float

    @property
    def each(self) -> float | None:
        """The value of every one of the people left, where it follows: one person, or all or none of several."""
        if self.size == 1:
            return self.total
        return self.total / self.size if self.total in (0, self.size) else None


def difference(first: Published, second: Published) -> Difference:
    """Subtract the figure that covers fewer people from the other; the fewer must all be among the more.

    >>> march, april = Published("March", 3005, 202), Published("April", 3004, 201)
    >>> difference(march, april).each
    1
    """
    more, fewer = (first, second) if first.size >= second.size else (second, first)
    if more.size == fewer.size:
        raise ParameterError("Both figures cover as many people", expected="Figures about different numbers of people")
    return Difference(more.label, fewer.label, more.size - fewer.size, more.total - fewer.total)


@dataclass(frozen=True, slots=True)
class IsolatingPair:
    """Two questions of a log, by position, whose sets differ by these people (positions) only."""

    larger: int
    smaller: int
    people: tuple[int, ...]
    total: float


def isolating_pairs(
    masks: NDArray[np.bool_], totals: NDArray[np.float64], *, most: int = 1
) -> tuple[IsolatingPair, ...]:
    """The pairs of questions, one inside the other, that differ by at most `most` people."""
    count = masks.astype(np.float32)
    common = count @ count.T
    size = common.diagonal()
    inside = (common == size[None, :]) & (size[:, None] > size[None, :]) & (size[:, None] - size[None, :] <= most)
    return tuple(
        IsolatingPair(
            int(large), int(small),
            tuple(np.flatnonzero(masks[large] & ~masks[small]).tolist()), float(totals[large] - totals[small]),
        )
        for large, small in zip(*np.nonzero(inside), strict=True)
    )  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Isolated:
    """Who a log isolates: by a pair of answers, or by any combination of them, and with what value."""

    by_pair: NDArray[np.bool_]
    by_combination: NDArray[np.bool_]
    value: NDArray[np.float64]


def isolate(masks: NDArray[np.bool_], totals: NDArray[np.float64]) -> Isolated:
    """Find everybody whose value follows from exact answers; `value` holds it where it does, NaN elsewhere."""
    _check(masks, totals)
    by_pair = np.zeros(masks.shape[1], np.bool_)
    alone = masks.sum(axis=1) == 1
    by_pair[masks[alone].argmax(axis=1)] = bool(alone.any())
    for pair in isolating_pairs(masks, totals):
        by_pair[list(pair.people)] = True
    found = determined(masks)
    value = np.where(found, solve(masks, totals) if masks.size else np.nan, np.nan)
    return Isolated(by_pair, found, value)


def differencing(
    masks: NDArray[np.bool_],
    totals: Sequence[float] | NDArray[np.float64],
    *,
    secret: NDArray[np.float64] | None = None,
    tolerance: float = 1e-6,
) -> Outcome:
    """Isolate people in a log of answers to sums and counts over known groups.

    **Scenario.** The intruder holds a log (or a set of published tables), knows who is in the group of each answer,
    and wants one person's value; success is a value within `tolerance`.
    **Method.** Pairs of groups that differ by one person, then every linear combination of all answers.
    **Outcome.** People whose value is determined (and right, where `secret` is given: with noisy answers it is not).
    The baseline guesses the commonest value.
    """
    answers = np.asarray(totals, np.float64)
    found = isolate(masks, answers)
    right = found.by_combination
    base = 0.0
    if secret is not None and len(secret):
        right = right & (np.abs(found.value - secret) <= tolerance)
        base = float(np.unique(secret, return_counts=True)[1].max() / len(secret))
    figures = {
        "answers": len(answers),
        "by_pair": int(found.by_pair.sum()),
        "by_combination": int(found.by_combination.sum()),
    }
    precision = None if secret is None else Rate(int(right.sum()), int(found.by_combination.sum()))
    warnings = () if secret is not None else ("answers are taken as exact: noise in them is not seen from here",)
    return Outcome("differencing", "Subtracting answers from each other", Rate(int(right.sum()), masks.shape[1]), base,
                   precision=precision, figures=figures, warnings=warnings)  # fmt: skip


def _check(masks: NDArray[np.bool_], totals: NDArray[np.float64]) -> None:
    if masks.ndim != 2 or len(masks) != len(totals):
        raise ParameterError("Groups and answers do not fit", expected="One row of members for each answer")
