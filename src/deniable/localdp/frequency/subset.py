"""Subset selection: the response is a set of answers that contains the true one more often than not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import comb
from typing import Any, ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy, uniform_below
from deniable.errors import ParameterError
from deniable.localdp.likelihood_ratio import check_odds, odds_below
from deniable.localdp.protocol import (
    Answers,
    Chosen,
    Frequencies,
    Layout,
    Outcome,
    Responses,
    check_answers,
    check_domain,
    estimate_from_support,
    support_variance,
)
from deniable.policy.budget import Amount

_BATCH = 1 << 22


@dataclass(frozen=True, slots=True)
class Subset:
    """Subset selection (Ye and Barg 2018; Wang et al. 2016): `count` answers, the true one among them with p.

    **Guarantee**: epsilon-local DP (replace one answer), epsilon = ln(odds): any set holding the answer is `odds`
    times as likely as any set that does not.
    **Utility**: the least variance known for its kind: 3.11 a respondent at epsilon 1 with 16 answers.
    **Runtime**: `count` draws a respondent; message of `count` answers, about d / (e^eps + 1).
    """

    name: ClassVar[str] = "subset"
    domain: int
    count: int
    odds: Fraction

    def __post_init__(self) -> None:
        check_odds(self.odds)
        check_domain(self.domain, 1 << 20)
        if not 1 <= self.count < self.domain:
            raise ParameterError(f"sets of {self.count} of {self.domain} answers", expected="At least 1, and not all")

    @classmethod
    def calibrate(cls, domain: int, epsilon: Amount) -> Subset:
        """The size of set of least variance at this epsilon, about d / (e^eps + 1)."""
        odds = odds_below(epsilon)
        ideal = int(domain / (odds + 1))
        sizes = {min(max(size, 1), domain - 1) for size in (ideal, ideal + 1)}
        return min((cls(domain, size, odds) for size in sizes), key=lambda protocol: protocol.variance())

    @property
    def p(self) -> Fraction:
        """Probability that the set holds the answer."""
        weight = self.count * self.odds
        return weight / (weight + self.domain - self.count)

    @property
    def q(self) -> Fraction:
        """Probability that the set holds a given other answer."""
        return (self.p * (self.count - 1) + (1 - self.p) * self.count) / (self.domain - 1)

    @property
    def draws(self) -> tuple[int, ...]:
        """Bounds of the uniform integers of one response: hold or not, then a shuffle of the other answers' head."""
        hold = self.count * self.odds.numerator + (self.domain - self.count) * self.odds.denominator
        return (hold, *(self.domain - 1 - place for place in range(min(self.count, self.domain - 2))))

    @property
    def layout(self) -> Layout:
        """A set of answers."""
        return (Chosen("answers", self.count, self.domain),)

    def respond(self, answers: Answers, hold: NDArray[np.int64], picks: NDArray[np.int64]) -> Responses:
        """The sets that draws give; `picks` has one column for each step of the shuffle."""
        holding = hold < self.count * self.odds.numerator
        sets = np.empty((len(answers), self.count), dtype=np.int64)
        _draw_sets(answers, holding, picks, self.domain, sets)
        sets.sort(axis=1)
        return (sets,)

    def randomize(self, answers: Answers, entropy: Entropy = SYSTEM) -> Responses:
        """One set for each answer."""
        checked = check_answers(answers, self.domain)
        step = max(1, _BATCH // self.count)
        parts = [self._batch(checked[start : start + step], entropy) for start in range(0, len(checked), step)]
        return (np.concatenate(parts) if parts else np.empty((0, self.count), dtype=np.int64),)

    def _batch(self, answers: Answers, entropy: Entropy) -> NDArray[np.int64]:
        columns = [uniform_below(bound, len(answers), entropy=entropy) for bound in self.draws]
        picks = np.stack(columns[1:], axis=1) if len(columns) > 1 else np.empty((len(answers), 0), dtype=np.int64)
        sets: NDArray[np.int64] = self.respond(answers, columns[0], picks)[0]
        return sets

    def tally(self, responses: Responses) -> NDArray[np.int64]:
        """How many sets hold each answer."""
        return np.bincount(responses[0].ravel(), minlength=self.domain).astype(np.int64)

    def estimate(self, tally: NDArray[np.int64], responses: int) -> Frequencies:
        """Unbiased counts."""
        return estimate_from_support(tally, responses, self.p, self.q)

    def variance(self, share: float = 0.0) -> float:
        """Variance per respondent of an estimated count."""
        return support_variance(self.p, self.q, share)

    def likelihoods(self, answer: int) -> Iterator[tuple[Outcome, Fraction]]:
        """Every set of that size with its probability."""
        with_answer = self.p / comb(self.domain - 1, self.count - 1)
        without = (1 - self.p) / comb(self.domain - 1, self.count)
        for chosen in combinations(range(self.domain), self.count):
            yield (chosen,), with_answer if answer in chosen else without


@njit(cache=True)  # type: ignore[untyped-decorator]
def _draw_sets(answers: Any, holding: Any, picks: Any, domain: Any, sets: Any) -> None:
    """Deal each respondent a set: the head of a Fisher-Yates shuffle of the other answers, and the answer if held."""
    others = np.empty(domain - 1, dtype=np.int64)
    count, steps = sets.shape[1], picks.shape[1]
    for i in range(answers.size):
        for other in range(domain - 1):
            others[other] = other + (other >= answers[i])
        wanted = count - 1 if holding[i] else count
        for place in range(min(wanted, steps)):
            drawn = place + picks[i, place]
            others[place], others[drawn] = others[drawn], others[place]
        for place in range(wanted):
            sets[i, place] = others[place]
        if holding[i]:
            sets[i, count - 1] = answers[i]
