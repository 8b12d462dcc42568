"""The samplers' laws, tested with power: the right scale passes, 30% more or less fails, on the same draws.

The entropy is seeded, so a verdict never changes from run to run; the limits are those of a one-in-a-million alarm.
"""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from deniable.dp.samplers import (
    bernoulli_exp_each,
    discrete_gaussian,
    discrete_laplace,
    exponential_choice,
    geometric,
    permutation,
    permute_and_flip,
    uniform_below,
)
from deniable.dp.samplers.entropy import Reader, discrete_gaussian_once, discrete_laplace_once
from seeded import SeededEntropy

ALARM = 1e-6
CELLS = 40
Cdf = Callable[[NDArray[np.int64], float], NDArray[np.float64]]


def laplace_cdf(x: NDArray[np.int64], scale: float) -> NDArray[np.float64]:
    q = np.exp(-1 / scale)
    return np.where(x >= 0, 1 - np.exp(-(x + 1.0) / scale) / (1 + q), np.exp(x / scale) / (1 + q))


def gaussian_cdf(x: NDArray[np.int64], sigma: float) -> NDArray[np.float64]:
    if sigma > 1000:  # the sum over integers and the integral agree to many digits here
        return np.asarray(stats.norm.cdf((x + 0.5) / sigma))
    support = np.arange(-int(12 * sigma) - 20, int(12 * sigma) + 21)
    weights = np.exp(-(support**2) / (2 * sigma**2))
    return np.cumsum(weights / weights.sum())[np.clip(x - support[0], 0, support.size - 1)]


def geometric_cdf(x: NDArray[np.int64], scale: float) -> NDArray[np.float64]:
    return 1 - np.exp(-(x + 1.0) / scale)


def p_value(drawn: NDArray[np.int64], cdf: Cdf, scale: float) -> float:
    """Chi-square over cells of about equal probability; cells are cut at quantiles of the draws' law."""
    cuts = np.unique(np.quantile(np.sort(drawn), np.linspace(0, 1, CELLS + 1)[1:-1], method="nearest"))
    observed = np.bincount(np.searchsorted(cuts, drawn), minlength=cuts.size + 1)
    expected = np.diff(np.concatenate(([0.0], cdf(cuts, scale), [1.0]))) * drawn.size
    seen = expected > 5
    observed = np.append(observed[seen], observed[~seen].sum())
    expected = np.append(expected[seen], max(expected[~seen].sum(), 1e-9))
    return float(stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), seen.sum()))


LAWS: dict[str, tuple[Callable[..., NDArray[np.int64]], Cdf]] = {
    "geometric": (lambda s, n, **k: geometric(s, n, **k), geometric_cdf),
    "discrete Laplace": (lambda s, n, **k: discrete_laplace(s, n, **k), laplace_cdf),
    "discrete Gaussian": (lambda s, n, **k: discrete_gaussian(s * s, n, **k), gaussian_cdf),
}
SCALES = [Fraction(1, 2), Fraction(10, 3), Fraction(63), Fraction(65), Fraction(10_000), Fraction(10**9)]


@pytest.mark.parametrize("scale", SCALES, ids=str)
@pytest.mark.parametrize("name", LAWS)
def test_the_right_scale_passes_and_thirty_percent_more_or_less_fails(name: str, scale: Fraction) -> None:
    draw, cdf = LAWS[name]
    drawn = draw(scale, 200_000, entropy=SeededEntropy(11))
    assert p_value(drawn, cdf, float(scale)) > ALARM
    for off in (0.7, 1.3):
        assert p_value(drawn, cdf, off * float(scale)) < ALARM


@pytest.mark.parametrize("name", ["discrete Laplace", "discrete Gaussian"])
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(10, 3), Fraction(200)], ids=str)
def test_single_draws_and_tables_follow_the_same_law(name: str, scale: Fraction) -> None:
    draw, cdf = LAWS[name]
    reader = Reader(SeededEntropy(12))
    once = discrete_laplace_once if name == "discrete Laplace" else lambda s, r: discrete_gaussian_once(s * s, r)
    single = np.array([once(scale, reader) for _ in range(12_000)])
    assert p_value(single, cdf, float(scale)) > ALARM
    assert stats.ks_2samp(single, draw(scale, 100_000, entropy=SeededEntropy(13))).pvalue > ALARM
    assert stats.ks_2samp(single, draw(scale * Fraction(13, 10), 100_000, entropy=SeededEntropy(13))).pvalue < ALARM


@pytest.mark.parametrize("scale", [Fraction(10), Fraction(10_000)], ids=str)
def test_noise_is_symmetric_and_free_of_serial_correlation(scale: Fraction) -> None:
    for draw, _ in (LAWS["discrete Laplace"], LAWS["discrete Gaussian"]):
        drawn = draw(scale, 400_000, entropy=SeededEntropy(14))
        positive, negative = np.count_nonzero(drawn > 0), np.count_nonzero(drawn < 0)
        assert stats.binomtest(positive, positive + negative).pvalue > ALARM
        assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 5 / np.sqrt(drawn.size)


@pytest.mark.parametrize("bound", [3, 1000, 65_537, 3 * 2**40])
def test_uniform_integers_are_uniform(bound: int) -> None:
    drawn = uniform_below(bound, 200_000, entropy=SeededEntropy(15))
    cells = min(bound, 50)
    edges = [bound * i // cells for i in range(1, cells)]
    observed = np.bincount(np.searchsorted(edges, drawn, side="right"), minlength=cells)
    share = np.diff([0, *edges, bound]) / bound
    assert stats.chisquare(observed, share * drawn.size).pvalue > ALARM


def test_all_orders_of_four_are_equally_likely() -> None:
    entropy = SeededEntropy(16)
    codes = [int("".join(map(str, permutation(4, entropy=entropy).tolist()))) for _ in range(12_000)]
    observed = np.unique(codes, return_counts=True)[1]
    assert observed.size == 24
    assert stats.chisquare(observed).pvalue > ALARM


def test_coins_with_one_exponent_each_have_their_biases() -> None:
    costs = np.repeat(np.arange(0, 40), 10_000)
    heads = bernoulli_exp_each(costs, Fraction(1, 7), entropy=SeededEntropy(17)).reshape(40, -1).sum(axis=1)
    for cost, count in enumerate(heads.tolist()):
        assert stats.binomtest(count, 10_000, float(np.exp(-cost / 7))).pvalue > ALARM / 10
    assert stats.binomtest(int(heads[7]), 10_000, float(np.exp(-1.3))).pvalue < ALARM


def test_the_exponential_choice_follows_width_and_cost() -> None:
    costs, widths = np.array([3, 0, 1, 12, 5, 1]), np.array([10, 1, 4, 10**5, 0, 7])
    drawn = exponential_choice(costs, Fraction(3, 4), 200_000, widths=widths, entropy=SeededEntropy(18))
    observed = np.bincount(drawn, minlength=6)
    assert observed[4] == 0
    for unit, passes in ((0.75, True), (0.75 * 1.3, False), (0.75 * 0.7, False)):
        weights = widths * np.exp(-unit * costs)
        expected = (weights / weights.sum() * drawn.size)[widths > 0]
        assert (stats.chisquare(observed[widths > 0], expected).pvalue > ALARM) == passes


def permute_and_flip_law(gammas: NDArray[np.float64]) -> NDArray[np.float64]:
    """Brute force: over all sets of heads, one of them uniformly."""
    law = np.zeros(gammas.size)
    for heads in range(1, 1 << gammas.size):
        member = (heads >> np.arange(gammas.size) & 1).astype(bool)
        law[member] += np.prod(np.where(member, np.exp(-gammas), 1 - np.exp(-gammas))) / member.sum()
    return law


def test_permute_and_flip_follows_its_law() -> None:
    costs = np.array([4, 2, 9, 3])
    drawn = permute_and_flip(costs, Fraction(1, 2), 100_000, entropy=SeededEntropy(19))
    observed = np.bincount(drawn, minlength=4)
    for unit, passes in ((0.5, True), (0.65, False), (0.35, False)):
        expected = permute_and_flip_law((costs - 2) * unit) * drawn.size
        assert (stats.chisquare(observed, expected).pvalue > ALARM) == passes


@pytest.mark.slow
@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("scale", [Fraction(1, 2), Fraction(64), Fraction(10_000)], ids=str)
def test_ten_million_draws_from_the_operating_system_show_no_deviation(name: str, scale: Fraction) -> None:
    draw, cdf = LAWS[name]
    assert p_value(draw(scale, 10**7), cdf, float(scale)) > ALARM
