"""Optimized local hashing: hash the answer to a few buckets with a seed of one's own, then k-ary response on those."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy, uniform_below
from deniable.localdp.frequency.randomized_response import Direct
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
    support_variance,
)
from deniable.policy.budget import Amount

SEEDS = 1 << 32


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator]
def _mix(value: Any, seed: Any) -> Any:
    """A 32-bit hash of a value under a seed: Weyl step, then the three-round mixer found by Wellons ("triple32").

    Every operation is on 32-bit words, so that browsers compute the same with Math.imul.
    """
    word = np.uint32(value * np.uint32(0x9E3779B1)) ^ seed
    word = np.uint32((word ^ (word >> np.uint32(17))) * np.uint32(0xED5AD4BB))
    word = np.uint32((word ^ (word >> np.uint32(11))) * np.uint32(0xAC4C1B51))
    word = np.uint32((word ^ (word >> np.uint32(15))) * np.uint32(0x31848BAB))
    return np.uint32(word ^ (word >> np.uint32(14)))


@njit(cache=True)  # type: ignore[untyped-decorator]
def _assign_buckets(values: Any, seeds: Any, buckets: Any, out: Any) -> None:
    for i in range(values.size):
        out[i] = (np.uint64(_mix(np.uint32(values[i]), np.uint32(seeds[i]))) * np.uint64(buckets)) >> np.uint64(32)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _count_support(seeds: Any, given: Any, buckets: Any, support: Any) -> None:
    """Add 1 to every value whose bucket under a response's seed is the bucket given.

    A bucket is the range of hashes [ceil(y 2^32 / g), ceil((y+1) 2^32 / g)), so a compare replaces the product.
    """
    for i in range(seeds.size):
        seed = np.uint32(seeds[i])
        low = np.uint32((np.uint64(given[i]) * np.uint64(4294967296) + np.uint64(buckets - 1)) // np.uint64(buckets))
        end = (np.uint64(given[i] + 1) * np.uint64(4294967296) + np.uint64(buckets - 1)) // np.uint64(buckets)
        span = np.uint32(end - np.uint64(low) - np.uint64(1))
        for value in range(support.size):
            inside = np.uint32(_mix(np.uint32(value), seed) - low) <= span
            support[value] += np.uint32(inside)


def bucket_of(values: NDArray[np.int64], seeds: NDArray[np.int64], buckets: int) -> NDArray[np.int64]:
    """The bucket of each value under the seed beside it: floor(hash * buckets / 2^32)."""
    out = np.empty(len(values), dtype=np.int64)
    _assign_buckets(values, seeds, buckets, out)
    return out


@dataclass(frozen=True, slots=True)
class LocalHashing:
    """Optimized local hashing (Wang et al. 2017).

    **Guarantee**: epsilon-local DP (replace one answer), epsilon = ln(odds): given the seed, which is independent of
    the answer, the response is k-ary on the buckets. It holds whatever the quality of the hash.
    **Utility**: with about e^eps + 1 buckets, 4 e^eps / (e^eps - 1)^2 a respondent, whatever the domain.
    **Runtime**: two draws a respondent; the collector hashes every possible answer for every response. Message of
    four bytes of seed and a bucket.
    """

    name: ClassVar[str] = "hashing"
    domain: int
    buckets: int
    odds: Fraction

    def __post_init__(self) -> None:
        check_odds(self.odds)
        check_domain(self.domain)
        check_domain(self.buckets, 1 << 20)

    @classmethod
    def calibrate(cls, domain: int, epsilon: Amount) -> LocalHashing:
        """The number of buckets of least variance at this epsilon."""
        odds = odds_below(epsilon)
        ideal = int(odds) + 1
        candidates = (cls(domain, max(2, min(buckets, 1 << 20)), odds) for buckets in (ideal, ideal + 1, ideal + 2))
        return min(candidates, key=lambda protocol: protocol.variance())

    @property
    def _inner(self) -> Direct:
        return Direct(self.buckets, self.odds)

    @property
    def draws(self) -> tuple[int, ...]:
        """Bounds of the uniform integers that one response takes: the seed, then the k-ary draw."""
        return (SEEDS, *self._inner.draws)

    @property
    def p(self) -> Fraction:
        """Probability that a response supports the true answer."""
        return self._inner.p

    @property
    def q(self) -> Fraction:
        """Probability, over seeds, that a response supports another answer."""
        return Fraction(1, self.buckets)

    @property
    def layout(self) -> Layout:
        """A seed and a bucket."""
        return (Whole("seed", SEEDS), Whole("bucket", self.buckets))

    def respond(self, answers: Answers, seed: NDArray[np.int64], draw: NDArray[np.int64]) -> Responses:
        """The response that a seed and a k-ary draw give."""
        return (seed, *self._inner.respond(bucket_of(answers, seed, self.buckets), draw))

    def randomize(self, answers: Answers, entropy: Entropy = SYSTEM) -> Responses:
        """A seed and a bucket for each answer."""
        checked = check_answers(answers, self.domain)
        seed, draw = (uniform_below(bound, len(checked), entropy=entropy) for bound in self.draws)
        return self.respond(checked, seed, draw)

    def tally(self, responses: Responses) -> NDArray[np.int64]:
        """How many responses support each answer."""
        support = np.zeros(self.domain, dtype=np.uint32)
        _count_support(responses[0], responses[1], self.buckets, support)
        return support.astype(np.int64)

    def estimate(self, tally: NDArray[np.int64], responses: int) -> Frequencies:
        """Unbiased counts."""
        return estimate_from_support(tally, responses, self.p, self.q)

    def variance(self, share: float = 0.0) -> float:
        """Variance per respondent of an estimated count."""
        return support_variance(self.p, self.q, share)

    def likelihoods(self, answer: int, seeds: range = range(64)) -> Iterator[tuple[Outcome, Fraction]]:
        """Responses with their probabilities, for some of the 2^32 seeds: each seed is alike in what it allows."""
        answers = np.full(len(seeds), answer, dtype=np.int64)
        inside = bucket_of(answers, np.array(seeds, dtype=np.int64), self.buckets)
        for seed, bucket in zip(seeds, inside, strict=True):
            for (given,), likelihood in self._inner.likelihoods(int(bucket)):
                yield (seed, given), likelihood / SEEDS
