"""Count mean sketch and Hadamard count mean sketch: frequencies of strings from domains too large to list on a phone.

As Apple describes them ("Learning with privacy at scale", 2017): a respondent hashes the string with one of many
functions drawn at random, and sends either the noisy row of that function or one noisy bit of the row's Hadamard
transform. The collector adds rows up and reads any candidate string from them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy, uniform_below
from deniable.errors import ParameterError
from deniable.localdp import bits
from deniable.localdp.family import checked_width, positions, positions_of
from deniable.localdp.hadamard import odd_parity, transform
from deniable.localdp.layout import Bits, Layout, Responses, Whole
from deniable.localdp.odds import checked_odds, odds_below
from deniable.localdp.protocol import Frequencies, Outcome
from deniable.localdp.unary import Unary
from deniable.policy.budget import Amount

HASHES = 256
WIDTH = 1024
_CANDIDATES_AT_ONCE = 1 << 14


def _checked_shape(hashes: int, width: int) -> None:
    checked_width(width)
    if not 1 <= hashes <= 1 << 16:
        raise ParameterError(f"{hashes} hash functions", expected="1 to 65536 hash functions")


@dataclass(frozen=True, slots=True)
class CountMeanSketch:
    """Count mean sketch: the one-hot row of a random function, every bit flipped with 1 / (1 + e^(eps/2)).

    **Guarantee**: epsilon-local DP (replace one string), epsilon = 2 ln((1-q)/q) for flip probability q, whatever the
    strings: two rows differ in at most two bits.
    **Utility**: q(1-q)/(1-2q)^2 + 1/m a respondent, plus the sum of squared counts over (hashes x m) for collisions.
    **Runtime**: `width` bits a respondent; decoding takes `hashes` look-ups a candidate.
    """

    name: ClassVar[str] = "count-mean-sketch"
    hashes: int
    width: int
    flip: int

    def __post_init__(self) -> None:
        _checked_shape(self.hashes, self.width)
        if not 0 < self.flip < bits.GRID // 2:
            raise ParameterError(f"flip is {self.flip} of {bits.GRID}", expected=f"1 to {bits.GRID // 2 - 1}")

    @classmethod
    def calibrated(cls, epsilon: Amount, hashes: int = HASHES, width: int = WIDTH) -> CountMeanSketch:
        """The smallest exact flip probability that keeps to epsilon."""
        return cls(hashes, width, Unary.symmetric(2, epsilon).flip)

    @property
    def odds(self) -> Fraction:
        """Two strings differ in two bits of the row."""
        return Fraction(bits.GRID - self.flip, self.flip) ** 2

    @property
    def layout(self) -> Layout:
        """The function and its noisy row."""
        return (Whole("function", self.hashes), Bits("row", self.width))

    def randomize(self, strings: Sequence[str], entropy: Entropy = SYSTEM) -> Responses:
        """A function and a noisy row for each string."""
        functions = uniform_below(self.hashes, len(strings), entropy=entropy)
        rows = bits.biased_bits(self.flip, len(strings), self.width, entropy)
        bits.flip_bits(rows, positions_of(strings, functions, self.width))
        return functions, rows

    def tally(self, responses: Responses) -> NDArray[np.int64]:
        """Ones at each position of each function's row."""
        return bits.group_sums(responses[1], responses[0], self.hashes, self.width)

    def estimate(self, tally: NDArray[np.int64], responses: int, candidates: Sequence[str]) -> Frequencies:
        """Unbiased counts of candidate strings."""
        q = self.flip / bits.GRID
        seen = look_up(tally.astype(np.float64), candidates)
        return _without_collisions((seen - responses * q) / (1 - 2 * q), responses, self.variance(), tally.shape)

    def variance(self) -> float:
        """Variance per respondent of an estimated count, before collisions of frequent strings."""
        q, spread = self.flip / bits.GRID, self.width / (self.width - 1)
        return (q * (1 - q) / (1 - 2 * q) ** 2 + 1 / self.width / spread) * spread**2

    def likelihoods(self, string: str) -> Iterator[tuple[Outcome, Fraction]]:
        """Every function and row with its probability."""
        p, hashed = Fraction(bits.GRID - self.flip, bits.GRID), positions([string], self.hashes, self.width)[0]
        for function, row in product(range(self.hashes), product((0, 1), repeat=self.width)):
            likelihood = Fraction(1, self.hashes)
            for place, bit in enumerate(row):
                likelihood *= p if bit == (place == hashed[function]) else 1 - p
            yield (function, row), likelihood


@dataclass(frozen=True, slots=True)
class HadamardSketch:
    """Hadamard count mean sketch: one bit of the transformed row, flipped with 1 / (1 + e^eps).

    **Guarantee**: epsilon-local DP (replace one string), epsilon = ln(odds).
    **Utility**: ((e^eps + 1) / (e^eps - 1))^2 a respondent, plus collisions as in the count mean sketch.
    **Runtime**: three draws a respondent; message of a few bytes whatever the width.
    """

    name: ClassVar[str] = "hadamard-sketch"
    hashes: int
    width: int
    odds: Fraction

    def __post_init__(self) -> None:
        _checked_shape(self.hashes, self.width)
        checked_odds(self.odds)

    @classmethod
    def calibrated(cls, epsilon: Amount, hashes: int = HASHES, width: int = WIDTH) -> HadamardSketch:
        """The largest exact odds within epsilon."""
        return cls(hashes, width, odds_below(epsilon))

    @property
    def draws(self) -> tuple[int, ...]:
        """Bounds of the uniform integers that one response takes: function, coefficient, flip."""
        return (self.hashes, self.width, self.odds.numerator + self.odds.denominator)

    @property
    def layout(self) -> Layout:
        """The function, the coefficient and its noisy sign (1 is minus)."""
        return (Whole("function", self.hashes), Whole("coefficient", self.width), Whole("minus", 2))

    @property
    def _gain(self) -> float:
        return float((self.odds + 1) / (self.odds - 1))

    def randomize(self, strings: Sequence[str], entropy: Entropy = SYSTEM) -> Responses:
        """A function, a coefficient and a sign for each string."""
        function, coefficient, flip = (uniform_below(bound, len(strings), entropy=entropy) for bound in self.draws)
        minus = odd_parity(coefficient, positions_of(strings, function, self.width))
        return function, coefficient, (minus ^ (flip >= self.odds.numerator)).astype(np.int64)

    def tally(self, responses: Responses) -> NDArray[np.int64]:
        """Sums of signs for each coefficient of each function."""
        function, coefficient, minus = responses
        cells = self.hashes * self.width
        both = np.bincount((function * self.width + coefficient) * 2 + minus, minlength=2 * cells).reshape(cells, 2)
        return (both[:, 0] - both[:, 1]).reshape(self.hashes, self.width).astype(np.int64)

    def estimate(self, tally: NDArray[np.int64], responses: int, candidates: Sequence[str]) -> Frequencies:
        """Unbiased counts of candidate strings: rows are transformed back, then read as in the count mean sketch."""
        rows = transform(tally.astype(np.float64)) * self._gain
        return _without_collisions(look_up(rows, candidates), responses, self.variance(), tally.shape)

    def variance(self) -> float:
        """Variance per respondent of an estimated count, before collisions of frequent strings."""
        return (self._gain * self.width / (self.width - 1)) ** 2

    def likelihoods(self, string: str) -> Iterator[tuple[Outcome, Fraction]]:
        """Every function, coefficient and sign with its probability."""
        hashed = positions([string], self.hashes, self.width)[0]
        for function, coefficient, minus in product(range(self.hashes), range(self.width), (0, 1)):
            truth = (coefficient & int(hashed[function])).bit_count() & 1
            weight = self.odds if minus == truth else Fraction(1)
            yield (function, coefficient, minus), weight / (self.odds + 1) / (self.hashes * self.width)


def look_up(rows: NDArray[np.float64], candidates: Sequence[str]) -> NDArray[np.float64]:
    """For each candidate the sum, over all functions, of the row's entry where the function sends it."""
    hashes, width = rows.shape
    sums = np.empty(len(candidates))
    for start in range(0, len(candidates), _CANDIDATES_AT_ONCE):
        part = slice(start, start + _CANDIDATES_AT_ONCE)
        _gather(rows, positions(candidates[part], hashes, width), sums[part])
    return sums


@njit(cache=True)  # type: ignore[untyped-decorator]
def _gather(rows: Any, places: Any, sums: Any) -> None:
    for i in range(places.shape[0]):
        total = 0.0
        for j in range(places.shape[1]):
            total += rows[j, places[i, j]]
        sums[i] = total


def _without_collisions(
    raw: NDArray[np.float64], responses: int, variance: float, shape: tuple[int, ...]
) -> Frequencies:
    """Take out the share 1/m of other strings that lands on a candidate's places by chance, and price what is left.

    Strings that collide do so for all who hold them: that adds s = (sum of squared counts) / (hashes x width) to the
    variance of every candidate. Squared estimates add up to the true sum of squares and D (noise + s) for D
    candidates, which is solved for s.
    """
    hashes, width = shape
    counts = (raw - responses / width) * (width / (width - 1))
    noise = responses * variance
    excess = max(float((counts**2).sum()) - len(counts) * noise, 0.0)
    return Frequencies(counts, np.full(len(counts), noise + excess / (hashes * width + len(counts))), responses)


def heaviest(frequencies: Frequencies, candidates: Sequence[str], count: int) -> list[tuple[str, float, float]]:
    """The candidates of the largest estimated counts, each with its count and standard error."""
    order = np.argsort(-frequencies.counts, kind="stable")[:count]
    errors = frequencies.errors
    return [(candidates[i], float(frequencies.counts[i]), float(errors[i])) for i in order]
