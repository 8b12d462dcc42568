"""Unary encoding: one bit for every possible answer, each flipped on its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy, uniform_below
from deniable.errors import ParameterError
from deniable.localdp import bits
from deniable.localdp.layout import Bits, Layout, Responses
from deniable.localdp.odds import checked, odds_below, within
from deniable.localdp.protocol import (
    Answers,
    Frequencies,
    Outcome,
    checked_answers,
    checked_domain,
    from_support,
    support_variance,
)
from deniable.policy.budget import Amount


@dataclass(frozen=True, slots=True)
class Unary:
    """Unary encoding (Wang et al. 2017): the answer's bit is 1 with probability p, every other bit with q.

    **Guarantee**: epsilon-local DP (replace one answer), epsilon = ln(p (1-q) / (q (1-p))): two answers differ in two
    bits. p and q are multiples of 2^-16.
    **Utility**: optimized (p = 1/2): 4 e^eps / (e^eps - 1)^2 a respondent, whatever the domain; symmetric
    (p = 1 - q): e^(eps/2) / (e^(eps/2) - 1)^2.
    **Runtime**: one bit a possible answer, drawn and counted; message of as many bits.
    """

    name: ClassVar[str] = "unary"
    domain: int
    keep: int
    flip: int

    def __post_init__(self) -> None:
        checked_domain(self.domain, 1 << 24)
        if not 0 < self.flip < self.keep < bits.GRID:
            raise ParameterError(
                f"bits kept {self.keep} and flipped {self.flip} of {bits.GRID}", expected="0 < flip < keep < 65536"
            )

    @classmethod
    def optimized(cls, domain: int, epsilon: Amount) -> Unary:
        """p = 1/2: the least variance for a rare answer."""
        odds_below(epsilon, bits.GRID)
        return cls(domain, bits.GRID // 2, _smallest_flip(epsilon, 1))

    @classmethod
    def symmetric(cls, domain: int, epsilon: Amount) -> Unary:
        """Both kinds of bits flipped with 1 / (1 + e^(eps/2)), as in basic RAPPOR and the count mean sketch."""
        odds_below(epsilon, bits.GRID)
        flip = _smallest_flip(epsilon, 2)
        return cls(domain, bits.GRID - flip, flip)

    @property
    def p(self) -> Fraction:
        """Probability that the answer's bit is 1."""
        return Fraction(self.keep, bits.GRID)

    @property
    def q(self) -> Fraction:
        """Probability that any other bit is 1."""
        return Fraction(self.flip, bits.GRID)

    @property
    def odds(self) -> Fraction:
        """Two answers differ in two bits: one goes from p to q, the other from 1-q to 1-p."""
        return self.p * (1 - self.q) / (self.q * (1 - self.p))

    @property
    def layout(self) -> Layout:
        """A bit for each possible answer."""
        return (Bits("bits", self.domain),)

    def randomize(self, answers: Answers, entropy: Entropy = SYSTEM) -> Responses:
        """One bit string for each answer."""
        checked = checked_answers(answers, self.domain)
        strings = bits.biased_bits(self.flip, len(checked), self.domain, entropy)
        kept = uniform_below(bits.GRID, len(checked), entropy=entropy) < self.keep
        bits.set_bits(strings, checked, kept)
        return (strings,)

    def tally(self, responses: Responses) -> NDArray[np.int64]:
        """How many strings have each bit set."""
        return bits.column_sums(responses[0], self.domain)

    def estimate(self, tally: NDArray[np.int64], responses: int) -> Frequencies:
        """Unbiased counts."""
        return from_support(tally, responses, self.p, self.q)

    def variance(self, share: float = 0.0) -> float:
        """Variance per respondent of an estimated count."""
        return support_variance(self.p, self.q, share)

    def likelihoods(self, answer: int) -> Iterator[tuple[Outcome, Fraction]]:
        """All 2^domain bit strings with their probabilities."""
        for string in product((0, 1), repeat=self.domain):
            likelihood = Fraction(1)
            for position, bit in enumerate(string):
                one = self.p if position == answer else self.q
                likelihood *= one if bit else 1 - one
            yield (string,), likelihood


def _smallest_flip(epsilon: Amount, differing: int) -> int:
    """The smallest q = flip / 2^16 for which ((1-q)/q)^differing <= e^epsilon, at least 1."""
    target = checked(epsilon) / differing
    # Monotone in flip: bisect between the impossible 0 and the useless half.
    low, high = 0, bits.GRID // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if within(Fraction(bits.GRID - middle, middle), target) else (middle, high)
    if high == bits.GRID // 2:
        raise ParameterError("epsilon is too small for 16-bit probabilities", expected="At least 0.001")
    return high
