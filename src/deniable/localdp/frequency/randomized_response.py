"""Randomized response: to one yes-or-no question by coins and envelopes, and k-ary over a domain of answers.

A design by hand is a fair draw among a few equally likely instructions, so its probabilities are counts over a
handful of cases and its epsilon is the logarithm of a small fraction. k-ary randomized response keeps the answer with
probability e^eps / (e^eps + k - 1) and gives each other one equally often."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy, uniform_below
from deniable.errors import ParameterError
from deniable.localdp.likelihood_ratio import check_odds, odds_below
from deniable.localdp.protocol import (
    Answers,
    Frequencies,
    Layout,
    Outcome,
    Responses,
    Whole,
    check_answers,
    check_domain,
    estimate_from_support,
    join_frequencies,
    support_variance,
)
from deniable.policy.budget import Amount

TELL = {"yes": (1, 1), "no": (0, 0), "truth": (0, 1), "opposite": (1, 0)}
"""What each instruction answers under a true no and a true yes."""


@dataclass(frozen=True, slots=True)
class CoinDesign:
    """Draw one of several equally likely instructions and follow it; the collector sees the answer, not the draw.

    **Guarantee**: epsilon-local DP (replace one answer), epsilon = ln max(p/q, (1-q)/(1-p)) where p and q are the
    shares of instructions that say yes under a true yes and a true no.
    **Utility**: estimate (share - q) / (p - q); variance p(1-p) or q(1-q) over (p-q)^2 a respondent.
    **Runtime**: one draw a respondent.

    >>> two_coins().odds, three_envelopes().odds
    (Fraction(3, 1), Fraction(2, 1))
    """

    name: ClassVar[str] = "coins"
    instructions: tuple[str, ...]
    domain: ClassVar[int] = 2
    layout: ClassVar[Layout] = (Whole("answer", 2),)

    def __post_init__(self) -> None:
        for word in self.instructions:
            if word not in TELL:
                raise ParameterError("an instruction is unknown", expected=f"One of {', '.join(TELL)}")
        if not self.q < self.p:
            raise ParameterError("the instructions tell nothing about the truth", expected="Some truthful instruction")
        if self.q == 0 or self.p == 1:
            raise ParameterError("an answer would prove the truth", expected="Both answers possible under either truth")

    def _yes(self, truth: int) -> Fraction:
        return Fraction(sum(TELL[word][truth] for word in self.instructions), len(self.instructions))

    @property
    def p(self) -> Fraction:
        """Pr[yes given yes]."""
        return self._yes(1)

    @property
    def q(self) -> Fraction:
        """Pr[yes given no]."""
        return self._yes(0)

    @property
    def odds(self) -> Fraction:
        """The larger of the odds that a yes and a no give."""
        return max(self.p / self.q, (1 - self.q) / (1 - self.p))

    def respond(self, answers: Answers, draw: NDArray[np.int64]) -> NDArray[np.int64]:
        """Follow the drawn instructions."""
        told = np.array([TELL[word] for word in self.instructions], dtype=np.int64)
        return told[draw, answers]

    def randomize(self, answers: Answers, entropy: Entropy = SYSTEM) -> Responses:
        """One yes (1) or no (0) for each true answer."""
        checked = check_answers(answers, 2)
        return (self.respond(checked, uniform_below(len(self.instructions), len(checked), entropy=entropy)),)

    def tally(self, responses: Responses) -> NDArray[np.int64]:
        """How many said no and yes."""
        return np.bincount(responses[0], minlength=2).astype(np.int64)

    def estimate(self, tally: NDArray[np.int64], responses: int) -> Frequencies:
        """Unbiased counts of no and yes. With two coins the share of yes is 2a - 1/2, with three envelopes 3a - 1."""
        noes = estimate_from_support(tally[:1], responses, 1 - self.q, 1 - self.p)
        return join_frequencies([noes, estimate_from_support(tally[1:], responses, self.p, self.q)])

    def variance(self, share: float = 0.0) -> float:
        """Variance per respondent of the estimated count of yes."""
        return support_variance(self.p, self.q, share)

    def likelihoods(self, answer: int) -> Iterator[tuple[Outcome, Fraction]]:
        """No and yes, each with its probability."""
        yes = self._yes(answer)
        yield (0,), 1 - yes
        yield (1,), yes


def two_coins() -> CoinDesign:
    """Tails: tell the truth. Heads: a second coin answers. epsilon = ln 3."""
    return CoinDesign(("truth", "truth", "yes", "no"))


def three_envelopes() -> CoinDesign:
    """Draw one of three envelopes: "yes", "no", "tell the truth". epsilon = ln 2."""
    return CoinDesign(("yes", "no", "truth"))


def warner(truth: int = 2, lie: int = 1) -> CoinDesign:
    """Warner 1965: tell the truth with probability truth / (truth + lie), else lie. epsilon = ln(truth / lie)."""
    if not 0 < lie < truth <= 1000:
        raise ParameterError(f"{truth} truths to {lie} lies", expected="More truths than lies, and some lies")
    return CoinDesign(("truth",) * truth + ("opposite",) * lie)


@dataclass(frozen=True, slots=True)
class Direct:
    """k-ary (categorical) randomized response.

    **Guarantee**: epsilon-local DP (replace one answer), epsilon = ln(odds).
    **Utility**: variance of a count (e^eps + k - 2) / (e^eps - 1)^2 a respondent; best of all when k < 3 e^eps + 2.
    **Runtime**: one draw a respondent; message of log2 k bits.

    >>> Direct.calibrate(domain=4, epsilon=1).odds < Fraction(2718282, 1000000)
    True
    """

    name: ClassVar[str] = "k-ary"
    domain: int
    odds: Fraction

    def __post_init__(self) -> None:
        check_odds(self.odds)
        check_domain(self.domain)

    @classmethod
    def calibrate(cls, domain: int, epsilon: Amount) -> Direct:
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
        _keep_or_replace(answers, draw, self.odds.numerator, self.odds.denominator, given)
        return (given,)

    def randomize(self, answers: Answers, entropy: Entropy = SYSTEM) -> Responses:
        """One response for each answer."""
        checked = check_answers(answers, self.domain)
        return self.respond(checked, uniform_below(self.draws[0], len(checked), entropy=entropy))

    def tally(self, responses: Responses) -> NDArray[np.int64]:
        """How often each answer was given."""
        return np.bincount(responses[0], minlength=self.domain).astype(np.int64)

    def estimate(self, tally: NDArray[np.int64], responses: int) -> Frequencies:
        """The exact inversion of C'_i = p C_i + q (n - C_i)."""
        return estimate_from_support(tally, responses, self.p, self.q)

    def variance(self, share: float = 0.0) -> float:
        """Variance per respondent of an estimated count."""
        return support_variance(self.p, self.q, share)

    def likelihoods(self, answer: int) -> Iterator[tuple[Outcome, Fraction]]:
        """Each answer with its probability."""
        for given in range(self.domain):
            yield (given,), self.p if given == answer else self.q


@njit(cache=True)  # type: ignore[untyped-decorator]
def _keep_or_replace(answers: Any, draw: Any, numerator: Any, denominator: Any, given: Any) -> None:
    for i in range(answers.size):
        other = (draw[i] - numerator) // denominator
        given[i] = answers[i] if draw[i] < numerator else other + (other >= answers[i])
