"""Sketches of strings from domains too large to list: count mean sketch, Hadamard count mean sketch, RAPPOR.

As Apple describes the first two ("Learning with privacy at scale", 2017): a respondent hashes the string with one of
many functions drawn at random, and sends either the noisy row of that function or one noisy bit of the row's Hadamard
transform. RAPPOR remembers a noisy Bloom filter for life and sends a fresh noisy copy of it in every report. The
collector adds reports up and reads any candidate string from them.

All of them hash by one family: function j maps a string v to 16-bit word (j mod 16), little-endian, of
SHA-256(le32(j div 16) || utf8(v)), reduced to the low bits of a power-of-two width. One digest so serves sixteen
functions, and any client can compute it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from hashlib import sha256
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy, uniform_below
from deniable.errors import Infeasible, ParameterError
from deniable.localdp.frequency import unary
from deniable.localdp.frequency.hadamard import has_odd_parity, transform
from deniable.localdp.frequency.unary import Unary
from deniable.localdp.likelihood_ratio import check_epsilon, check_odds, odds_below
from deniable.localdp.protocol import Bits, Frequencies, Layout, Outcome, Responses, Whole, score_support
from deniable.policy.budget import Amount

HASHES = 256
WIDTH = 1024
_CANDIDATES_AT_ONCE = 1 << 14


def _check_shape(hashes: int, width: int) -> None:
    check_width(width)
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
        _check_shape(self.hashes, self.width)
        if not 0 < self.flip < unary.GRID // 2:
            raise ParameterError(f"flip is {self.flip} of {unary.GRID}", expected=f"1 to {unary.GRID // 2 - 1}")

    @classmethod
    def calibrate(cls, epsilon: Amount, hashes: int = HASHES, width: int = WIDTH) -> CountMeanSketch:
        """The smallest exact flip probability that keeps to epsilon."""
        return cls(hashes, width, Unary.symmetric(2, epsilon).flip)

    @property
    def odds(self) -> Fraction:
        """Two strings differ in two bits of the row."""
        return Fraction(unary.GRID - self.flip, self.flip) ** 2

    @property
    def layout(self) -> Layout:
        """The function and its noisy row."""
        return (Whole("function", self.hashes), Bits("row", self.width))

    def randomize(self, strings: Sequence[str], entropy: Entropy = SYSTEM) -> Responses:
        """A function and a noisy row for each string."""
        functions = uniform_below(self.hashes, len(strings), entropy=entropy)
        rows = unary.draw_biased_bits(self.flip, len(strings), self.width, entropy)
        unary.flip_bits(rows, hash_each_string(strings, functions, self.width))
        return functions, rows

    def tally(self, responses: Responses) -> NDArray[np.int64]:
        """Ones at each position of each function's row."""
        return unary.sum_groups(responses[1], responses[0], self.hashes, self.width)

    def estimate(self, tally: NDArray[np.int64], responses: int, candidates: Sequence[str]) -> Frequencies:
        """Unbiased counts of candidate strings."""
        q = self.flip / unary.GRID
        seen = look_up(tally.astype(np.float64), candidates)
        return _remove_collisions((seen - responses * q) / (1 - 2 * q), responses, self.variance(), tally.shape)

    def variance(self) -> float:
        """Variance per respondent of an estimated count, before collisions of frequent strings."""
        q, spread = self.flip / unary.GRID, self.width / (self.width - 1)
        return (q * (1 - q) / (1 - 2 * q) ** 2 + 1 / self.width / spread) * spread**2

    def likelihoods(self, string: str) -> Iterator[tuple[Outcome, Fraction]]:
        """Every function and row with its probability."""
        p, hashed = Fraction(unary.GRID - self.flip, unary.GRID), hash_strings([string], self.hashes, self.width)[0]
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
        _check_shape(self.hashes, self.width)
        check_odds(self.odds)

    @classmethod
    def calibrate(cls, epsilon: Amount, hashes: int = HASHES, width: int = WIDTH) -> HadamardSketch:
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
        minus = has_odd_parity(coefficient, hash_each_string(strings, function, self.width))
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
        raw = look_up(rows, candidates)
        found = _remove_collisions(raw, responses, self.variance(), tally.shape)
        # Each response agrees with a candidate or not: a pure protocol, whose q holds the chance collisions.
        p, q = (1 + 1 / self._gain) / 2, (1 + 1 / self._gain / self.width) / 2
        score = score_support((raw / self._gain + responses) / 2, responses, p, q)
        collisions = np.maximum(found.variances - responses * self.variance(), 0) * score.gain**2
        return replace(found, score=replace(score, base=score.base + collisions))

    def variance(self) -> float:
        """Variance per respondent of an estimated count, before collisions of frequent strings."""
        return (self._gain * self.width / (self.width - 1)) ** 2

    def likelihoods(self, string: str) -> Iterator[tuple[Outcome, Fraction]]:
        """Every function, coefficient and sign with its probability."""
        hashed = hash_strings([string], self.hashes, self.width)[0]
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
        _gather(rows, hash_strings(candidates[part], hashes, width), sums[part])
    return sums


@njit(cache=True)  # type: ignore[untyped-decorator]
def _gather(rows: Any, places: Any, sums: Any) -> None:
    for i in range(places.shape[0]):
        total = 0.0
        for j in range(places.shape[1]):
            total += rows[j, places[i, j]]
        sums[i] = total


def _remove_collisions(
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


def rank_heaviest(frequencies: Frequencies, candidates: Sequence[str], count: int) -> list[tuple[str, float, float]]:
    """The candidates of the largest estimated counts, each with its count and standard error."""
    order = np.argsort(-frequencies.counts, kind="stable")[:count]
    errors = frequencies.errors
    return [(candidates[i], float(frequencies.counts[i]), float(errors[i])) for i in order]


@dataclass(frozen=True, slots=True)
class Rappor:
    """RAPPOR (Erlingsson, Pihur, Korolova 2014).

    A string sets `hashes` bits of a Bloom filter of its cohort. Each bit is flipped with f/2 = flip / 65536, once and
    for ever: the permanent response. Each report then shows a 1 with `one` / 65536 where the permanent bit is set and
    with `zero` / 65536 where it is not.

    **Guarantee**: epsilon-local DP (replace one string) over any number of reports, with
    epsilon = 2 hashes ln((1 - f/2) / (f/2)); a single report has the smaller `report_odds`.
    **Utility**: counts of candidates by least squares on the debiased bits.
    **Runtime**: `width` bits a report.
    """

    name: ClassVar[str] = "rappor"
    width: int
    hashes: int
    cohorts: int
    flip: int
    one: int
    zero: int

    def __post_init__(self) -> None:
        check_width(self.width)
        if not (1 <= self.hashes <= self.width // 2 and 1 <= self.cohorts <= 1 << 12):
            raise ParameterError("the Bloom filter has no room", expected="hashes <= width / 2, up to 4096 cohorts")
        if not (0 < self.flip < unary.GRID // 2 and 0 < self.zero < self.one < unary.GRID):
            raise ParameterError("the probabilities tell nothing or everything", expected="flip < 1/2, zero < one")

    @classmethod
    def calibrate(
        cls, epsilon: Amount, width: int = 128, hashes: int = 2, cohorts: int = 64, one: int = 3, zero: int = 1
    ) -> Rappor:
        """The least permanent noise for a lifetime epsilon; reports show `one` and `zero` quarters of the bits as 1."""
        flip = Unary.symmetric(2, check_epsilon(epsilon) / hashes).flip
        return cls(width, hashes, cohorts, flip, one * unary.GRID // 4, zero * unary.GRID // 4)

    @property
    def odds(self) -> Fraction:
        """Lifetime odds: two filters differ in at most 2 hashes bits."""
        return Fraction(unary.GRID - self.flip, self.flip) ** (2 * self.hashes)

    @property
    def report_odds(self) -> Fraction:
        """Odds of one report alone."""
        p, q = self._report_one(1), self._report_one(0)
        return (p * (1 - q) / (q * (1 - p))) ** self.hashes

    @property
    def layout(self) -> Layout:
        """The cohort and a noisy filter."""
        return (Whole("cohort", self.cohorts), Bits("filter", self.width))

    def _report_one(self, bit: int) -> Fraction:
        """Pr[a report's bit is 1] for a true filter bit."""
        lasting = Fraction(unary.GRID - self.flip if bit else self.flip, unary.GRID)
        return (lasting * self.one + (1 - lasting) * self.zero) / unary.GRID

    def filters(self, strings: Sequence[str], cohorts: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The exact Bloom filters: these stay with the respondent."""
        packed = np.zeros((len(strings), (self.width + 7) // 8), dtype=np.uint8)
        for index in range(self.hashes):
            places = hash_each_string(strings, cohorts * self.hashes + index, self.width)
            unary.set_bits(packed, places, np.ones(len(strings), dtype=np.bool_))
        return packed

    def permanent(self, strings: Sequence[str], entropy: Entropy = SYSTEM) -> Responses:
        """The cohort and the permanent response of each respondent: to be remembered, never sent twice afresh."""
        cohorts = uniform_below(self.cohorts, len(strings), entropy=entropy)
        flips = unary.draw_biased_bits(self.flip, len(strings), self.width, entropy)
        return cohorts, self.filters(strings, cohorts) ^ flips

    def instantaneous(self, permanent: Responses, entropy: Entropy = SYSTEM) -> Responses:
        """A report from each permanent response."""
        cohorts, lasting = permanent
        ones = unary.draw_biased_bits(self.one, len(cohorts), self.width, entropy)
        zeros = unary.draw_biased_bits(self.zero, len(cohorts), self.width, entropy)
        return cohorts, (lasting & ones) | (~lasting & zeros)

    def randomize(self, strings: Sequence[str], entropy: Entropy = SYSTEM) -> Responses:
        """A first report of each string."""
        return self.instantaneous(self.permanent(strings, entropy), entropy)

    def tally(self, responses: Responses) -> NDArray[np.int64]:
        """For each cohort the ones at each place, and in the last column its number of reports."""
        ones = unary.sum_groups(responses[1], responses[0], self.cohorts, self.width)
        return np.column_stack((ones, np.bincount(responses[0], minlength=self.cohorts)))

    def estimate(self, tally: NDArray[np.int64], responses: int, candidates: Sequence[str]) -> Frequencies:
        """Counts of candidates: least squares of the debiased bits on the candidates' filters.

        Respondents choose cohorts evenly, so a count shows in each cohort as count / cohorts. Variances are the
        sandwich estimate, once with places and once with whole cohorts as the independent units, whichever is larger:
        residuals hold the noise of reports, and the luck of the cohorts which all places of one share.
        """
        p, q = float(self._report_one(1)), float(self._report_one(0))
        debiased = ((tally[:, :-1] - tally[:, -1:] * q) / (p - q)).ravel()
        design = self._design(candidates)
        normal = design.T @ design
        if np.linalg.matrix_rank(normal) < len(candidates):
            raise Infeasible("the filters cannot tell the candidates apart", remedy="Add cohorts, or name fewer")
        solver = np.linalg.solve(normal, design.T)
        found = solver @ debiased
        pulls = solver * (debiased - design @ found)
        by_cohort = pulls.reshape(len(candidates), self.cohorts, self.width).sum(axis=2)
        variances = np.maximum((pulls**2).sum(axis=1), (by_cohort**2).sum(axis=1))
        freedom = len(debiased) / max(len(debiased) - len(candidates), 1)
        return Frequencies(self.cohorts * found, self.cohorts**2 * freedom * variances, responses)

    def _design(self, candidates: Sequence[str]) -> NDArray[np.float64]:
        """Rows: places of all cohorts' filters; columns: candidates; 1 where the candidate sets the place."""
        hashed = hash_strings(candidates, self.cohorts * self.hashes, self.width).astype(np.int64)
        design = np.zeros((self.cohorts * self.width, len(candidates)))
        for index in range(self.cohorts * self.hashes):
            design[index // self.hashes * self.width + hashed[:, index], np.arange(len(candidates))] = 1
        return design

    def likelihoods(self, string: str, lifetime: bool = True) -> Iterator[tuple[Outcome, Fraction]]:
        """Every cohort with every permanent filter (lifetime) or every single report, and its probability."""
        for cohort in range(self.cohorts):
            packed = self.filters([string], np.array([cohort]))[0]
            truth = np.unpackbits(packed, bitorder="little")[: self.width]
            for shown in product((0, 1), repeat=self.width):
                likelihood = Fraction(1, self.cohorts)
                for bit, seen in zip(truth.tolist(), shown, strict=True):
                    lasting = Fraction(unary.GRID - self.flip if bit else self.flip, unary.GRID)
                    one = lasting if lifetime else self._report_one(bit)
                    likelihood *= one if seen else 1 - one
                yield (cohort, shown), likelihood


WORDS = 16
WIDEST = 1 << 16


def check_width(width: int) -> int:
    """A width the family can address: a power of two up to 65,536."""
    if not 2 <= width <= WIDEST or width & (width - 1):
        raise ParameterError(f"width is {width}", expected=f"A power of two from 2 to {WIDEST}")
    return width


def hash_strings(strings: Sequence[str], hashes: int, width: int) -> NDArray[np.uint16]:
    """Where each of the first `hashes` functions sends each string: an array of strings by functions."""
    prefixes = [block.to_bytes(4, "little") for block in range(-(-hashes // WORDS))]
    encoded = [string.encode() for string in strings]
    digests = b"".join([sha256(prefix + text).digest() for text in encoded for prefix in prefixes])
    words = np.frombuffer(digests, dtype="<u2").reshape(len(encoded), -1)[:, :hashes]
    return words & np.uint16(width - 1)


def hash_each_string(strings: Sequence[str], functions: NDArray[np.int64], width: int) -> NDArray[np.int64]:
    """Where the function beside each string sends it."""
    blocks, words = np.divmod(functions, WORDS)
    prefixes = [block.to_bytes(4, "little") for block in range(int(blocks.max(initial=0)) + 1)]
    digests = b"".join(
        [sha256(prefixes[block] + text.encode()).digest() for text, block in zip(strings, blocks.tolist(), strict=True)]
    )
    table = np.frombuffer(digests, dtype="<u2").reshape(len(strings), WORDS)
    return (table[np.arange(len(strings)), words] & np.uint16(width - 1)).astype(np.int64)
