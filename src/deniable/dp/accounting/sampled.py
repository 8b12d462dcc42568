"""Gaussian noise on samples: what rounds cost in which every unit takes part by its own secret coin.

**One round.** With chance `rate` a unit is in the sample, and then it moves the sum by up to m deviations of the noise.
The pair N(0, 1) and (1 - rate) N(0, 1) + rate N(m, 1), in both orders, dominates a round, and pairs compose adaptively
(Zhu, Dong, Wang 2022). The noise is discrete: see `analytic_gaussian`, whose rounding does not know of the sample.

**Many rounds.** The privacy loss is put on a grid, and the distributions are convolved by a Fourier transform. Each
cell of the grid is split between its two ends so that its probability under both distributions of the pair stays:
the curve of delta is then a chord above the true one (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022). What lies
beyond the grid is counted as infinite loss, and SLACK is added to every delta for floating point.

**One Gaussian.** Rounds are not kept as a curve: a ledger could not add it up. Sought is one Gaussian, shifted by m
deviations, such that for every epsilon

    delta of the rounds <= delta' + (1 - delta') delta of the Gaussian.

The right side is the curve of a pair that is perfectly told apart with probability delta', and else that Gaussian. So
the rounds are delta'-approximately (m^2 / 2)-zCDP, and add up with everything else. Negative epsilons follow from the
pair in the other order. Between two points of the grid the left side is at most that at the first, the right side at
least that at the second. With a delta' of 1e-8 the Gaussian is shifted by a few hundredths more than the limit of many
rounds (Bu, Dong, Long, Su 2020)."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting.analytic_gaussian import SMOOTHING, ratio_within
from deniable.dp.accounting.cost import round_up
from deniable.dp.accounting.events import SampledGaussianEvent
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, ApproxDP, Budget

Numbers = NDArray[np.float64]

INTERVAL = 5e-4
"""Width of the cells of the privacy loss."""
FAR = 8.5
"""What lies so many deviations out has a probability below 1e-16 in a round."""
SLACK = 1e-10
"""More than the Fourier transform, and the probability of what is cut off beside it, can err."""
LEAST_DELTA = Fraction(1, 10**9)
"""The least delta' that SLACK leaves room for."""
ASIDE = Fraction(1, 100)
"""The share of a budget's delta that is set aside as delta'."""
LEAST_RATIO = Fraction(1, 100)
MOST_CELLS = 1 << 22
POINTS = 4000
"""Points at which two curves are compared, about."""
LARGEST, BLOCK = 700.0, 1_000_000
"""The exponential of a larger loss may not be finite; so many cells of the grid have losses less far apart."""
CLOSE = 1e-3
"""A calibration within this (of the squared shift) below what is allowed is close enough."""


def state_sampled(rate: Fraction, variance: Fraction, squared: Fraction, count: int, delta: Fraction) -> (
    SampledGaussianEvent
):  # fmt: skip
    """The event of so many rounds, with the Gaussian that is proven to dominate them but for delta."""
    if variance <= SMOOTHING:
        raise ParameterError("the noise of a round is too small", expected=f"a variance above {SMOOTHING} steps")
    shift = find_shift(rate, (variance - SMOOTHING) / squared, count, delta)
    return SampledGaussianEvent(rate, variance, squared, count, 1 / shift, delta)


def calibrate_sampled(
    budget: Budget, squared: Fraction, rate: Fraction, count: int, share: Fraction = Fraction(1)
) -> SampledGaussianEvent:
    """Rounds with nearly the least noise that keep a share of a budget, as one Gaussian release of it would."""
    allowed, delta = split_budget(budget)
    wanted = float(allowed * share)
    # Many rounds tend to one Gaussian whose squared shift is rate^2 count (exp(1 / ratio) - 1).
    ratio = 1 / math.log1p(wanted / (float(rate) ** 2 * count))
    steep = -1 / ratio / math.expm1(-1 / ratio)  # by how many percent the shift falls for one percent of the ratio
    before = None
    for _ in range(40):
        if ratio < LEAST_RATIO:
            break
        variance = round_up(Fraction(ratio) * squared + SMOOTHING, 9)
        event = state_sampled(rate, variance, squared, count, delta)
        got = float(1 / event.ratio)
        if wanted * (1 - CLOSE) <= got and 1 / event.ratio <= allowed * share:
            return event
        if before is not None and before[0] != ratio:
            steep = min(max(math.log(before[1] / got) / math.log(ratio / before[0]), 1.0), 50.0)
        before = (ratio, got)
        ratio *= (got / wanted * (1 + CLOSE / 2)) ** (1 / steep)
    raise ParameterError(
        "no noise was found with which these rounds on samples have a price within this budget",
        expected="A budget that is neither very small nor very large for so many turns",
        remedy="Leave the rate out, or use a rate of 1: then everyone takes part in every turn",
    )


def has_price(budget: Budget) -> bool:
    """Whether a budget has the delta that rounds on samples need."""
    if isinstance(budget, ZCDP):
        return budget.delta >= LEAST_DELTA
    return isinstance(budget, ApproxDP) and budget.delta >= 10 * LEAST_DELTA


def split_budget(budget: Budget) -> tuple[Fraction, Fraction]:
    """The squared shift of the Gaussian that a budget allows, and the delta that is set aside beside it."""
    match budget:
        case ApproxDP(epsilon, delta) if has_price(budget):
            aside = max(LEAST_DELTA, delta * ASIDE)
            if (ratio := ratio_within(epsilon, delta - aside)) is not None:
                return 1 / ratio, aside
        case ZCDP(rho, delta) if has_price(budget):
            return 2 * rho, delta
    least = f"A delta of at least {float(10 * LEAST_DELTA):g} with epsilon, of {float(LEAST_DELTA):g} with rho"
    large = has_price(budget)
    what = "an epsilon" if large else "a delta"
    raise ParameterError(
        "rounds on samples have no price within this budget" + ": its epsilon is too large" * large,
        expected="An epsilon for which Gaussian noise can be computed" if large else least,
        remedy=f"State such {what}, or let everyone take part in every turn: a rate of 1",
    )


@lru_cache(maxsize=256)
def find_shift(rate: Fraction, ratio: Fraction, count: int, delta: Fraction) -> Fraction:
    """The squared shift of one Gaussian that dominates so many rounds but for delta, rounded up.

    `ratio` is the variance of a round's noise over the squared sensitivity.
    """
    if not 0 < rate < 1 or delta < LEAST_DELTA or not 1 <= count <= 10**6:
        raise ParameterError("rate, delta or the number of rounds cannot be used")
    if ratio < LEAST_RATIO:
        raise ParameterError("the noise of a round is too small to be priced", expected="more noise, or fewer rounds")
    curves = compute_curves(float(rate), math.sqrt(1 / ratio) * (1 + 1e-12), count)
    aside = float(delta)

    def holds(shift: float) -> bool:
        return all(_is_below(losses, deltas, aside, shift) for losses, deltas in curves)

    low, high = 1e-9, 1e3
    if not holds(high):
        raise ParameterError("the noise of a round is too small to be priced", expected="more noise, or fewer rounds")
    while high > low * (1 + 1e-4):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return round_up(Fraction(high) ** 2, 9)


def compute_curves(rate: float, shift: float, count: int) -> list[tuple[Numbers, Numbers]]:
    """Epsilons from 0 up, and a delta at each that is at least the true one: for a unit removed, and for one added."""
    return [_measure_deltas(*_convolve(*_discretize(rate, shift, removed), count)) for removed in (True, False)]


def _is_below(epsilons: Numbers, deltas: Numbers, aside: float, shift: float) -> bool:
    """Whether a curve stays below that of a Gaussian with a delta beside it; see the module."""
    inside = np.flatnonzero(~(deltas <= aside - SLACK))  # also what is no number
    if not len(inside):
        return True
    places = inside[:: max(1, len(inside) // POINTS)]
    last = min(int(inside[-1]) + 1, len(epsilons) - 1)
    if not deltas[last] <= aside - SLACK or epsilons[0] > INTERVAL / 2:
        return False  # the grid begins above 0, or ends before the curve is below delta'
    after = np.append(places[1:], last)
    return bool((deltas[places] + SLACK <= aside + (1 - aside) * _gaussian_deltas(epsilons[after], shift)).all())


def _gaussian_deltas(epsilons: Numbers, shift: float) -> Numbers:
    """Balle and Wang's delta of one Gaussian; see `analytic_gaussian`."""
    near, far = shift / 2 - epsilons / shift, shift / 2 + epsilons / shift
    beyond = np.exp(-(near**2) / 2) / (far * math.sqrt(2 * math.pi))  # Mills: no less than exp(epsilon) times the tail
    tails = np.where(epsilons < LARGEST, np.exp(np.minimum(epsilons, LARGEST)) * _tail(far), beyond)
    return np.asarray(_tail(-near) - tails)


def _tail(places: Numbers) -> Numbers:
    """The probability that a standard normal number is above each place."""
    root = math.sqrt(0.5)
    return np.array([0.5 * math.erfc(place * root) for place in places.tolist()])


def _discretize(rate: float, shift: float, removed: bool) -> tuple[int, Numbers, float]:
    """The privacy loss of one round on the grid: its first cell, the probabilities from there, and that of the rest.

    In deviations of the noise, a point x has the loss ln(1 - rate + rate exp(shift x - shift^2 / 2)) where the unit is
    removed, and the opposite where it is added.
    """
    ends = [math.log1p(rate * math.expm1(shift * x - shift**2 / 2)) for x in (-FAR, FAR + shift)]
    first, last = math.floor(ends[0] / INTERVAL), math.ceil(ends[1] / INTERVAL)
    if last - first > MOST_CELLS:
        raise ParameterError("the noise of a round is too small to be priced", expected="more noise")
    losses = _place(first, last + 1 - first)
    with np.errstate(divide="ignore"):
        points = (np.log1p(np.maximum(np.expm1(losses) / rate, -1.0)) + shift**2 / 2) / shift
    without, with_it = _measure_cells(points), _measure_cells(points - shift)
    mixed = (1 - rate) * without + rate * with_it
    if removed:
        true, other = mixed, without
    else:
        true, other, first = without[::-1], mixed[::-1], -last
        losses = -losses[::-1]
    upper = np.clip((true - np.exp(np.minimum(losses[:-1], LARGEST)) * other) / -math.expm1(-INTERVAL), 0.0, true)
    masses = np.zeros(len(losses))
    masses[:-1] += true - upper
    masses[1:] += upper
    return first, masses, max(0.0, 1 - float(masses.sum())) + 1e-16


def _measure_cells(points: Numbers) -> Numbers:
    """The probability of a standard normal number between neighboring points, from whichever tail is smaller."""
    above, below = _tail(points), _tail(-points)
    return np.maximum(np.where(points[:-1] > 0, above[:-1] - above[1:], below[1:] - below[:-1]), 0.0)


def _convolve(first: int, masses: Numbers, beyond: float, count: int) -> tuple[int, Numbers, float]:
    """The privacy loss of so many rounds: the transform wraps around a window outside which almost nothing lies."""
    losses = _place(first, len(masses))
    top, bottom = _bound_sum(losses, masses, count), -_bound_sum(-losses, masses, count)
    cells = 1 << math.ceil(math.log2((top - bottom) / INTERVAL + 2))
    if cells > MOST_CELLS:
        raise ParameterError("the noise of a round is too small to be priced", expected="more noise, or fewer rounds")
    wrapped = np.bincount(np.arange(len(masses)) % cells, weights=masses, minlength=cells)
    found = np.fft.irfft(np.fft.rfft(wrapped) ** count, cells)
    start = math.floor(bottom / INTERVAL)
    return start, np.maximum(np.roll(found, (count * first - start) % cells), 0.0), -math.expm1(
        count * math.log1p(-min(beyond, 0.5))
    )  # fmt: skip


def _place(first: int, count: int) -> Numbers:
    """The losses of so many cells."""
    return np.asarray((first + np.arange(count)) * INTERVAL, np.float64)


def _bound_sum(losses: Numbers, masses: Numbers, count: int) -> float:
    """What the sum of so many losses passes with a probability below 1e-13 (Chernoff)."""
    least, best = float(losses.max()), math.inf
    for factor in np.exp(np.linspace(-3, 9, 60)).tolist():
        if factor * abs(least) < 600:
            best = min(best, (count * math.log(float(masses @ np.exp(factor * losses))) + 30) / factor)
    return min(best, count * least) if least > 0 else best


def _measure_deltas(start: int, masses: Numbers, beyond: float) -> tuple[Numbers, Numbers]:
    """Each epsilon of the grid from 0 up, with the delta of a privacy loss."""
    losses = _place(start, len(masses))
    kept = losses >= -INTERVAL / 2
    losses, masses = losses[kept], masses[kept]
    above = np.cumsum(masses[::-1])[::-1]
    lost = np.zeros(len(losses))
    for first in range(0, len(losses), BLOCK):  # exponentials of differences are finite
        part = losses[first:] - (losses[first] if first else 0.0)
        weighed = np.cumsum((masses[first:] * np.exp(-part))[::-1])[::-1]
        lost[first : first + BLOCK] = np.exp(part[:BLOCK]) * weighed[:BLOCK]
    return losses, beyond + np.maximum(above - lost, 0.0)
