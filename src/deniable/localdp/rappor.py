"""RAPPOR: a permanent noisy Bloom filter, remembered for life, and a fresh noisy copy of it for every report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy, uniform_below
from deniable.errors import Infeasible, ParameterError
from deniable.localdp import bits
from deniable.localdp.family import checked_width, positions, positions_of
from deniable.localdp.layout import Bits, Layout, Responses, Whole
from deniable.localdp.odds import checked
from deniable.localdp.protocol import Frequencies, Outcome
from deniable.localdp.unary import Unary
from deniable.policy.budget import Amount


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
        checked_width(self.width)
        if not (1 <= self.hashes <= self.width // 2 and 1 <= self.cohorts <= 1 << 12):
            raise ParameterError("the Bloom filter has no room", expected="hashes <= width / 2, up to 4096 cohorts")
        if not (0 < self.flip < bits.GRID // 2 and 0 < self.zero < self.one < bits.GRID):
            raise ParameterError("the probabilities tell nothing or everything", expected="flip < 1/2, zero < one")

    @classmethod
    def calibrated(
        cls, epsilon: Amount, width: int = 128, hashes: int = 2, cohorts: int = 64, one: int = 3, zero: int = 1
    ) -> Rappor:
        """The least permanent noise for a lifetime epsilon; reports show `one` and `zero` quarters of the bits as 1."""
        flip = Unary.symmetric(2, checked(epsilon) / hashes).flip
        return cls(width, hashes, cohorts, flip, one * bits.GRID // 4, zero * bits.GRID // 4)

    @property
    def odds(self) -> Fraction:
        """Lifetime odds: two filters differ in at most 2 hashes bits."""
        return Fraction(bits.GRID - self.flip, self.flip) ** (2 * self.hashes)

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
        lasting = Fraction(bits.GRID - self.flip if bit else self.flip, bits.GRID)
        return (lasting * self.one + (1 - lasting) * self.zero) / bits.GRID

    def filters(self, strings: Sequence[str], cohorts: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The exact Bloom filters: these stay with the respondent."""
        packed = np.zeros((len(strings), (self.width + 7) // 8), dtype=np.uint8)
        for index in range(self.hashes):
            places = positions_of(strings, cohorts * self.hashes + index, self.width)
            bits.set_bits(packed, places, np.ones(len(strings), dtype=np.bool_))
        return packed

    def permanent(self, strings: Sequence[str], entropy: Entropy = SYSTEM) -> Responses:
        """The cohort and the permanent response of each respondent: to be remembered, never sent twice afresh."""
        cohorts = uniform_below(self.cohorts, len(strings), entropy=entropy)
        flips = bits.biased_bits(self.flip, len(strings), self.width, entropy)
        return cohorts, self.filters(strings, cohorts) ^ flips

    def instantaneous(self, permanent: Responses, entropy: Entropy = SYSTEM) -> Responses:
        """A report from each permanent response."""
        cohorts, lasting = permanent
        ones = bits.biased_bits(self.one, len(cohorts), self.width, entropy)
        zeros = bits.biased_bits(self.zero, len(cohorts), self.width, entropy)
        return cohorts, (lasting & ones) | (~lasting & zeros)

    def randomize(self, strings: Sequence[str], entropy: Entropy = SYSTEM) -> Responses:
        """A first report of each string."""
        return self.instantaneous(self.permanent(strings, entropy), entropy)

    def tally(self, responses: Responses) -> NDArray[np.int64]:
        """For each cohort the ones at each place, and in the last column its number of reports."""
        ones = bits.group_sums(responses[1], responses[0], self.cohorts, self.width)
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
        hashed = positions(candidates, self.cohorts * self.hashes, self.width).astype(np.int64)
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
                    lasting = Fraction(bits.GRID - self.flip if bit else self.flip, bits.GRID)
                    one = lasting if lifetime else self._report_one(bit)
                    likelihood *= one if seen else 1 - one
                yield (cohort, shown), likelihood
