"""k-ary randomized response: keep the answer, or give another one, each other equally likely."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy, uniform_below
from deniable.localdp.layout import Layout, Responses, Whole
from deniable.localdp.odds import checked_odds, odds_below
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
class Direct:
    """k-ary (categorical) randomized response.

    **Guarantee**: epsilon-local DP (replace one answer), epsilon = ln(odds).
    **Utility**: variance of a count (e^eps + k - 2) / (e^eps - 1)^2 a respondent; best of all when k < 3 e^eps + 2.
    **Runtime**: one draw a respondent; message of log2 k bits.

    >>> Direct.calibrated(domain=4, epsilon=1).odds < Fraction(2718282, 1000000)
    True
    """

    name: ClassVar[str] = "k-ary"
    domain: int
    odds: Fraction

    def __post_init__(self) -> None:
        checked_odds(self.odds)
        checked_domain(self.domain)

    @classmethod
    def calibrated(cls, domain: int, epsilon: Amount) -> Direct:
        """The randomizer of this domain whose epsilon is as close below the given one as the grid allows."""
        return cls(domain, odds_below(epsilon))

    @property
    def draws(self) -> tuple[int, ...]:
        """Bounds of the uniform integers that one response takes."""
        return (self.odds.numerator + (self.domain - 1) * self.odds.denominator,)

    @property
    def p(self) -> Fraction:
        """Probability to keep the answer: e^eps / (e^eps + k - 1)."""
        return Fraction(self.odds.numerator, self.draws[0])

    @property
    def q(self) -> Fraction:
        """Probability of any one other answer: 1 / (e^eps + k - 1)."""
        return Fraction(self.odds.denominator, self.draws[0])

    @property
    def layout(self) -> Layout:
        """One answer."""
        return (Whole("answer", self.domain),)

    def respond(self, answers: Answers, draw: NDArray[np.int64]) -> Responses:
        """The response that a draw below `draws[0]` gives.

        The first `numerator` draws keep the answer; the others fall in runs of `denominator`, one run for each of
        the other answers, which are the domain with a gap at the answer.
        """
        given = np.empty(len(answers), dtype=np.int64)
        _keep_or_deal(answers, draw, self.odds.numerator, self.odds.denominator, given)
        return (given,)

    def randomize(self, answers: Answers, entropy: Entropy = SYSTEM) -> Responses:
        """One response for each answer."""
        checked = checked_answers(answers, self.domain)
        return self.respond(checked, uniform_below(self.draws[0], len(checked), entropy=entropy))

    def tally(self, responses: Responses) -> NDArray[np.int64]:
        """How often each answer was given."""
        return np.bincount(responses[0], minlength=self.domain).astype(np.int64)

    def estimate(self, tally: NDArray[np.int64], responses: int) -> Frequencies:
        """The exact inversion of C'_i = p C_i + q (n - C_i)."""
        return from_support(tally, responses, self.p, self.q)

    def variance(self, share: float = 0.0) -> float:
        """Variance per respondent of an estimated count."""
        return support_variance(self.p, self.q, share)

    def likelihoods(self, answer: int) -> Iterator[tuple[Outcome, Fraction]]:
        """Each answer with its probability."""
        for given in range(self.domain):
            yield (given,), self.p if given == answer else self.q


@njit(cache=True)  # type: ignore[untyped-decorator]
def _keep_or_deal(answers: Any, draw: Any, numerator: Any, denominator: Any, given: Any) -> None:
    for i in range(answers.size):
        other = (draw[i] - numerator) // denominator
        given[i] = answers[i] if draw[i] < numerator else other + (other >= answers[i])
