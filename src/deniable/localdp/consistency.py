"""Post-processing of estimated counts: what must be true of any real counts is made true, at no privacy cost.

Unbiased estimates may be negative or miss their total. Each function here gives the nearest counts, in its own sense,
that are not negative and add up. They are no longer unbiased: use the raw ones for sums and intervals.
"""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from deniable.errors import ParameterError
from deniable.localdp.protocol import Frequencies

Counts = NDArray[np.float64]


def _checked(counts: Counts, total: float) -> Counts:
    array = np.asarray(counts, dtype=np.float64)
    if array.ndim != 1 or not array.size or not np.isfinite(array).all() or not (np.isfinite(total) and total >= 0):
        raise ParameterError("counts or their total are not finite", expected="Counts, and a total of 0 or more")
    return array


def project(counts: Counts, total: float) -> Counts:
    """The closest non-negative counts (least squares) that add up to the total: projection onto the simplex.

    >>> project(np.array([0.8, 0.4, -0.1]), 1.0).round(2).tolist()
    [0.7, 0.3, 0.0]
    """
    array = _checked(counts, total)
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
    array = _checked(counts, total).copy()
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
