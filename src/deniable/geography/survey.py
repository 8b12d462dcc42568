"""Samples, weights and small areas: what a secret sample saves, what it adds to the error, and smoothing of shares.

**A secret sample.** Each unit is taken with probability 1 / weight, by a coin of its own from the operating system's
entropy; who was taken is never shown, and the next release draws anew. If what follows is epsilon_0-DP for one unit
added or removed, the whole is ln(1 + (e^epsilon_0 - 1) / weight)-DP (Li, Qardaji and Su 2012; Balle, Barthe and
Gaboardi 2018). That holds for pure epsilon and add-or-remove neighbors; other relations and zCDP have other bounds, and
are refused here. A sample that somebody knows, or that is used twice, saves nothing.

**Errors.** A weighted total errs by the noise, times the weight, and by the sample. Both are in its standard error.

**Small areas.** Shares of single areas are noisy. `smooth_areas` draws each towards what its group has in common, the
more the noisier it is (Fay and Herriot 1979), with the mean squared error of Prasad and Rao (1990). It sees published
numbers alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import localcontext
from fractions import Fraction
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting.cost import precise, round_above, round_down, to_decimal
from deniable.dp.samplers import SYSTEM, Entropy, bernoulli
from deniable.errors import ParameterError

Floats = NDArray[np.float64]
HAIR = Fraction(1, 10**12)
"""Taken off the inner epsilon, so that the amplified one is within what was asked however it is rounded."""


def amplify(inner: Fraction, weight: int) -> Fraction:
    """The epsilon of an inner epsilon after a secret sample of one in `weight`, rounded up.

    >>> float(amplify(Fraction(1), 1)), round(float(amplify(Fraction(1), 10)), 4)
    (1.0, 0.1586)
    """
    if weight == 1:
        return inner
    with localcontext(precise()):
        return round_above((1 + (to_decimal(inner).exp() - 1) / weight).ln())


def find_inner(epsilon: Fraction, weight: int) -> Fraction:
    """The epsilon that what follows a secret sample may have, so that the whole has at most this one.

    >>> inner = find_inner(Fraction(1), 10)
    >>> round(float(inner), 4), amplify(inner, 10) <= 1
    (2.9005, True)
    """
    if weight == 1:
        return epsilon
    with localcontext(precise()):
        inner = Fraction((1 + (to_decimal(epsilon).exp() - 1) * weight).ln())
    found = round_down(inner * (1 - HAIR))
    while amplify(found, weight) > epsilon:
        found = round_down(found * (1 - 1000 * HAIR))
    return found


def read_weight(rate: Fraction) -> int:
    """The whole number of people that one sampled person stands for.

    >>> read_weight(Fraction(1, 4))
    4
    """
    weight = 1 / Fraction(rate)
    if not 0 < rate <= 1 or weight.denominator != 1:
        raise ParameterError(
            f"a sample of {rate} is not one in a whole number", expected="1/2, 0.25, 0.1, 0.05: then weights are whole"
        )
    return int(weight)


def draw_sample(units: int, weight: int, entropy: Entropy = SYSTEM) -> NDArray[np.bool_]:
    """Which of so many units are taken: each by a coin of its own. Never to be shown."""
    return bernoulli(Fraction(1, weight), units, entropy=entropy)


def widen_deviations(deviations: Floats, values: Floats, weight: int, reach: int) -> Floats:
    """Standard deviations of weighted totals: of the noise and of the sample together.

    With N rows of units that have at most `reach` rows each, the sample adds at most reach N (weight - 1) to the
    variance of the weighted total. N is taken from the estimate, and at least one unit is.
    """
    sampling = _bound_sampling(values * weight, weight, reach)
    return np.asarray(np.where(deviations > 0, np.sqrt((weight * deviations) ** 2 + sampling), 0.0))


def _bound_sampling(weighted: Floats, weight: int, reach: int) -> Floats:
    return np.asarray(reach * np.maximum(weighted, reach) * (weight - 1))


def split_deviations(deviations: Floats, weighted: Floats, weight: int, reach: int) -> tuple[Floats, Floats]:
    """What `widen_deviations` joined: the standard deviations of the noise and of the sample in weighted totals.

    >>> wide = widen_deviations(np.array([6.0]), np.array([100.0]), 10, 1)
    >>> [float(np.round(each[0], 1)) for each in split_deviations(wide, np.array([1000.0]), 10, 1)]
    [60.0, 94.9]
    """
    sampling = np.where(deviations > 0, _bound_sampling(weighted, weight, reach), 0.0)
    return np.sqrt(np.maximum(deviations**2 - sampling, 0.0)), np.sqrt(sampling)


@dataclass(frozen=True, slots=True)
class WeightedTotal:
    """A weighted total of a survey: its standard error and interval hold the sample and the noise."""

    total: float
    error: float
    low: float
    high: float


def combine_errors(total: float, low: float, high: float, spread: float, confidence: float = 0.95) -> WeightedTotal:
    """The error of a noisy weighted total: `low` and `high` are the interval of its noise.

    `spread` is the noisy sum of w (w - 1) y^2 over the people of the survey, which estimates the variance of the sum of
    w y where each person is in the survey by a coin of probability 1 / w (Horvitz and Thompson 1952). People who come
    in clusters, or by quota, need another spread.

    >>> combine_errors(1000, 990, 1010, 400)  # doctest: +ELLIPSIS
    WeightedTotal(total=1000, error=20.64..., low=959.5..., high=1040.4...)
    """
    reach = NormalDist().inv_cdf((1 + confidence) / 2)
    error = math.hypot((high - low) / 2 / reach, math.sqrt(max(spread, 0.0)))
    return WeightedTotal(total, error, total - reach * error, total + reach * error)


def combine_ratio(
    total: Sequence[float], people: Sequence[float], spreads: Sequence[float], confidence: float = 0.95
) -> WeightedTotal:
    """A weighted mean, the noisy sum of w y by the noisy sum of w, each given with the ends of its interval of noise.

    `spreads` are the noisy sums of w (w - 1) times y^2, y and 1, from which the variance of the sample follows by
    linearization: the sum of w (w - 1) (y - mean)^2, by the square of the people. Noise is
    independent. Where the interval of the people reaches 0, nothing is known of the mean: its error is infinite.

    >>> combine_ratio((500, 490, 510), (1000, 990, 1010), (4500, 4500, 9000))  # doctest: +ELLIPSIS
    WeightedTotal(total=0.5, error=0.047..., low=0.406..., high=0.593...)
    """
    reach = NormalDist().inv_cdf((1 + confidence) / 2)
    if people[1] <= 0:
        return WeightedTotal(math.nan, math.inf, -math.inf, math.inf)
    mean = total[0] / people[0]
    sampling = max(spreads[0] - 2 * mean * spreads[1] + mean**2 * spreads[2], 0.0)
    noises = [(each[2] - each[1]) / 2 / reach for each in (total, people)]
    error = math.sqrt(noises[0] ** 2 + (mean * noises[1]) ** 2 + sampling) / people[0]
    return WeightedTotal(mean, error, mean - reach * error, mean + reach * error)


@dataclass(frozen=True, slots=True, eq=False)
class SmoothedAreas:
    """Smoothed values, their root mean squared errors, and the variance between areas that was found."""

    values: Floats
    errors: Floats
    between: float


def smooth_areas(values: Floats, variances: Floats, covariates: Floats | None = None) -> SmoothedAreas:
    """Draw each value towards what a linear model of the covariates (by default a common mean) says of it.

    `variances` are known: those of the noise. The variance between areas is found by moments (Fay and Herriot 1979):
    the weighted squared residuals equal their degrees of freedom. The errors are those of Prasad and Rao (1990). An
    area without noise stays as it is, and the others are not drawn towards it.

    >>> found = smooth_areas(np.array([0.1, 0.3, 0.2, 0.9]), np.array([1e-6, 1e-6, 1e-6, 1e3]))
    >>> np.round(found.values, 2).tolist()
    [0.1, 0.3, 0.2, 0.2]
    """
    design = np.ones((len(values), 1)) if covariates is None else covariates
    _check_estimates(values, variances, design)
    if (exact := variances == 0).any():
        smoothed, errors = values.copy(), np.zeros(len(values))
        found = smooth_areas(values[~exact], variances[~exact], design[~exact])
        smoothed[~exact], errors[~exact] = found.values, found.errors
        return SmoothedAreas(smoothed, errors, found.between)
    if len(values) <= design.shape[1] + 1:
        return SmoothedAreas(values.copy(), np.sqrt(variances), math.inf)
    between = _find_between(values, variances, design)
    weight = 1 / (between + variances)
    inverse = np.linalg.pinv(design.T @ (design * weight[:, None]))
    model = design @ (inverse @ (design.T @ (weight * values)))
    keep = between * weight
    smoothed = keep * values + (1 - keep) * model
    leverage = np.einsum("ij,jk,ik->i", design, inverse, design)
    first, second = keep * variances, (1 - keep) ** 2 * leverage
    third = variances**2 * weight**3 * 2 / np.sum(weight**2)
    return SmoothedAreas(smoothed, np.sqrt(first + second + 2 * third), between)


def _check_estimates(values: Floats, variances: Floats, design: Floats) -> None:
    if not len(values) == len(variances) == len(design) or design.ndim != 2:
        raise ParameterError(
            "values, variances and covariates are not of the same areas",
            expected="One value and one variance for each area, and a row of covariates",
        )
    if not all(np.isfinite(each).all() for each in (values, variances, design)) or (variances < 0).any():
        raise ParameterError(
            "a value, a variance or a covariate is not a number, or a variance is below 0",
            expected="Finite numbers, and variances of 0 or more",
        )


def _find_between(values: Floats, variances: Floats, design: Floats) -> float:
    """The variance between areas at which the weighted squares of the residuals are as large as expected, or 0."""

    def judge(between: float) -> float:
        weight = 1 / (between + variances)
        fitted = design @ (np.linalg.pinv(design.T @ (design * weight[:, None])) @ (design.T @ (weight * values)))
        return float(np.sum(weight * (values - fitted) ** 2) - (len(values) - design.shape[1]))

    low, high = 0.0, float(np.var(values) + np.max(variances)) + 1e-12
    if judge(low) <= 0:
        return 0.0
    while judge(high) > 0:
        high *= 2
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if judge(middle) > 0 else (low, middle)
    return (low + high) / 2


@dataclass(frozen=True, slots=True, eq=False)
class Shares:
    """For each area the share of its people in some cells: as published, smoothed within its parent, and its error."""

    published: Floats
    smoothed: Floats
    errors: Floats


def smooth_shares(
    part: Floats, whole: Floats, variance: float, total_variance: float, groups: Sequence[int], *, sampling: int = 0
) -> Shares:
    """Shares of areas, smoothed within each group of areas; an area without people has its group's share.

    The variance of a share follows from those of the two numbers by the delta method. Published numbers are fitted to
    one another and never negative, which makes them less noisy than that: the errors are rather too large. A secret
    sample adds `sampling` share (1 - share) / size: reach (weight - 1) for units of at most `reach` rows. There a share
    of 0 or 1 is taken as one of a sampled unit more or less.
    """
    size = np.maximum(whole, 1.0)
    share = np.clip(part / size, 0.0, 1.0)
    spread = (variance + share**2 * total_variance) / size**2
    if sampling:
        least = np.minimum(sampling / size, 0.5)
        taken = np.clip(share, least, 1 - least)
        spread += sampling * taken * (1 - taken) / size
    smoothed, errors = share.copy(), np.sqrt(spread)
    for group in sorted(set(groups)):
        inside = np.flatnonzero(np.asarray(groups) == group)
        found = smooth_areas(share[inside], spread[inside])
        smoothed[inside], errors[inside] = np.clip(found.values, 0.0, 1.0), np.minimum(found.errors, 1.0)
    return Shares(share, smoothed, errors)
