"""Post-processing of estimates, at no privacy cost: counts made consistent, and groups of respondents compared.

Unbiased estimates may be negative or miss their total. The first functions give the nearest counts, each in its own
sense, that are not negative and add up; those are no longer unbiased: use the raw ones for sums and intervals. The
others test whether groups differ, and account for the noise that each respondent added."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from deniable.errors import DataError, ParameterError
from deniable.localdp.numeric.scale import Mean, MeanAmong
from deniable.localdp.protocol import Frequencies, normal_quantile

Counts = NDArray[np.float64]


def _check_counts(counts: Counts, total: float) -> Counts:
    array = np.asarray(counts, dtype=np.float64)
    if array.ndim != 1 or not array.size or not np.isfinite(array).all() or not (np.isfinite(total) and total >= 0):
        raise ParameterError("counts or their total are not finite", expected="Counts, and a total of 0 or more")
    return array


def project(counts: Counts, total: float) -> Counts:
    """The closest non-negative counts (least squares) that add up to the total: projection onto the simplex.

    >>> project(np.array([0.8, 0.4, -0.1]), 1.0).round(2).tolist()
    [0.7, 0.3, 0.0]
    """
    array = _check_counts(counts, total)
    ordered = np.sort(array)[::-1]
    # The largest prefix whose members all stay positive after an equal cut decides the cut (Duchi et al. 2008).
    cuts = (np.cumsum(ordered) - total) / np.arange(1, len(array) + 1)
    kept = int(np.flatnonzero(ordered - cuts >= 0)[-1])
    held: Counts = np.maximum(array - cuts[kept], 0)
    return held


def norm_sub(counts: Counts, total: float) -> Counts:
    """Negative counts to zero, the same amount off all others, again until they add up (Wang et al. 2020).

    When the total is out of reach from above the excess goes to all; this is the projection, found step by step.
    """
    array = _check_counts(counts, total).copy()
    positive = np.ones(len(array), dtype=np.bool_)
    while True:
        shift = (total - array[positive].sum()) / positive.sum()
        shifted = np.where(positive, array + shift, 0.0)
        if (shifted[positive] >= 0).all():
            return shifted
        positive &= shifted > 0
        if not positive.any():
            positive[int(np.argmax(array))] = True


def base_cut(frequencies: Frequencies, confidence: float = 0.95) -> Counts:
    """Counts that do not stand clear of the noise are set to zero; the others stay as they are.

    The threshold asks that all truly empty answers together fall below it with this confidence.
    """
    if not 0 < confidence < 1:
        raise ParameterError(f"confidence is {confidence:g}", expected="A confidence between 0 and 1, such as 0.95")
    clear = NormalDist().inv_cdf(confidence ** (1 / len(frequencies.counts))) * frequencies.errors
    return np.where(frequencies.counts > clear, frequencies.counts, 0.0)


def with_known_totals(counts: Counts, groups: NDArray[np.int64], totals: Counts) -> Counts:
    """Counts made non-negative and consistent with known totals of disjoint groups of answers.

    `groups[i]` is the group of answer i; group g adds up to totals[g], known from outside (a census, a design).
    """
    array = np.asarray(counts, dtype=np.float64).copy()
    if len(groups) != len(array) or set(np.unique(groups).tolist()) != set(range(len(totals))):
        raise ParameterError("the groups do not cover the answers", expected="One known total for each group")
    for group, total in enumerate(totals):
        members = groups == group
        array[members] = project(array[members], float(total))
    return array


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between two groups, its standard error and the two-sided p-value of no difference."""

    value: float
    error: float
    p_value: float

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The normal confidence interval of the difference."""
        reach = normal_quantile(confidence) * self.error
        return self.value - reach, self.value + reach


def _assess_difference(value: float, variance: float) -> Difference:
    error = math.sqrt(variance)
    p_value = math.erfc(abs(value) / error / math.sqrt(2)) if error > 0 else float(value == 0)
    return Difference(value, error, p_value)


def compare_shares(first: Frequencies, second: Frequencies) -> tuple[Difference, ...]:
    """For each answer, how far its share in the first group exceeds that in the second.

    Groups are samples of larger populations, so to the noise comes the luck of the draw, f (1 - f) / n. The p-values
    are adjusted for testing all answers at once (Holm 1979).
    """
    if len(first.counts) != len(second.counts) or not (first.responses and second.responses):
        raise DataError("the groups cannot be compared", expected="The same answers, and responses in both groups")
    variances = _share_variance(first) + _share_variance(second)
    gaps = first.shares - second.shares
    raw = [_assess_difference(float(gap), float(variance)) for gap, variance in zip(gaps, variances, strict=True)]
    adjusted = adjust_by_holm([difference.p_value for difference in raw])
    return tuple(Difference(d.value, d.error, p) for d, p in zip(raw, adjusted, strict=True))


def _share_variance(group: Frequencies) -> NDArray[np.float64]:
    shares = np.clip(group.shares, 0, 1)
    return group.variances / group.responses**2 + shares * (1 - shares) / group.responses


def compare_means(first: Mean | MeanAmong, second: Mean | MeanAmong) -> Difference:
    """How far the first mean exceeds the second; their errors already hold noise and luck."""
    return _assess_difference(first.value - second.value, first.error**2 + second.error**2)


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted so that the chance of any false alarm among them stays below the level used."""
    order = np.argsort(p_values, kind="stable")
    adjusted, running = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[int(index)]))
        adjusted[int(index)] = running
    return adjusted


def compare_distributions(tallies: Sequence[NDArray[np.int64]]) -> tuple[float, int, float]:
    """Chi-square test, on k-ary responses as given, that all groups have one distribution: statistic, degrees, p.

    Groups with the same truth have the same distribution of randomized responses, so Pearson's test holds on those
    without any correction: noise costs power, not validity. (Testing *estimated* counts this way would be wrong.)
    """
    table = np.array(tallies, dtype=np.float64)
    table = table[:, table.sum(axis=0) > 0]
    if len(table) < 2 or table.shape[1] < 2 or (table.sum(axis=1) == 0).any():
        raise DataError("the groups cannot be compared", expected="Two groups or more, each with responses")
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True) / table.sum()
    statistic = float(((table - expected) ** 2 / expected).sum())
    degrees = (table.shape[0] - 1) * (table.shape[1] - 1)
    return statistic, degrees, chi_square_tail(statistic, degrees)


def chi_square_tail(statistic: float, degrees: int) -> float:
    """The probability that a chi-square variable of so many degrees exceeds the statistic.

    Q(a, x) by recurrence on whole steps of a: Q(a + 1, x) = Q(a, x) + x^a e^-x / Gamma(a + 1), started at
    Q(1/2, x) = erfc(sqrt x) or Q(1, x) = e^-x.
    """
    half = statistic / 2
    if half <= 0:
        return 1.0
    shape, tail = (0.5, math.erfc(math.sqrt(half))) if degrees % 2 else (1.0, math.exp(-half))
    while shape < degrees / 2:
        tail += math.exp(shape * math.log(half) - half - math.lgamma(shape + 1))
        shape += 1
    return min(tail, 1.0)
