"""What every frequency protocol shares: the Protocol it meets, the layout of its responses, and the estimate.

A protocol declares its layout once: which integers and bit strings one response holds, and within which limits. The
serialization, the checks of hostile input and the browser's client all follow from that declaration, so nothing about
a response is written down twice."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import DataError, ParameterError

Answers = NDArray[np.int64]
Outcome = tuple[Any, ...]
"""One response as plain values, one for each field of the layout."""


class FrequencyProtocol(Protocol):
    """A randomizer and estimator pair over the answers 0 .. domain - 1."""

    name: ClassVar[str]

    @property
    def domain(self) -> int:
        """How many different answers there are."""

    @property
    def odds(self) -> Fraction:
        """The most any response's probability can differ between two answers, as a ratio: e to the true epsilon."""

    @property
    def layout(self) -> Layout:
        """The fields of one response."""

    def randomize(self, answers: Answers, entropy: Entropy = SYSTEM) -> Responses:
        """One response for each answer."""

    def tally(self, responses: Responses) -> NDArray[np.int64]:
        """The sufficient statistics of responses; tallies of two batches add up."""

    def estimate(self, tally: NDArray[np.int64], responses: int) -> Frequencies:
        """Unbiased counts of each answer, with their variances."""

    def variance(self, share: float = 0.0) -> float:
        """Variance, per respondent, of the estimated count of an answer that this share of people gave."""

    def likelihoods(self, answer: int) -> Iterator[tuple[Outcome, Fraction]]:
        """Every response that can leave for an answer, with its exact probability: for small domains."""


@dataclass(frozen=True, slots=True)
class Score:
    """How an estimated count follows from a whole number that n respondents add up to, each in steps of one.

    The number has mean `gain` times the count (after its offset is taken off) and variance
    base + slope c + curve c^2 at a true count c: among these respondents, or among all whom they stand for.
    """

    sums: NDArray[np.float64]
    gain: float
    base: NDArray[np.float64]
    among_these: tuple[NDArray[np.float64] | float, NDArray[np.float64] | float]
    among_all: tuple[NDArray[np.float64] | float, NDArray[np.float64] | float]
    range: int
    """How far apart one respondent's least and greatest part of the number are."""

    def interval(self, confidence: float, population: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """All counts whose number lies within so many standard deviations, and half a step, of the one found.

        The score interval with its continuity correction (Wilson 1927, Yates 1934): unlike that of the estimate give
        or take its error, it covers as often as it says from a few respondents on.
        """
        z = normal_quantile(confidence)
        slope, curve = self.among_all if population else self.among_these
        ends = []
        for half, side in ((-0.5, -1), (0.5, 1)):
            shifted = self.sums + half
            square, linear = self.gain**2 - z**2 * curve, 2 * shifted * self.gain + z**2 * slope
            root = np.sqrt(np.maximum(linear**2 - 4 * square * (shifted**2 - z**2 * self.base), 0))
            ends.append((linear + side * root) / (2 * square))
        found = self.sums / self.gain  # where nobody, or everybody, agrees, an end would lie beyond the estimate
        return np.minimum(ends[0], found), np.maximum(ends[1], found)


@dataclass(frozen=True, slots=True)
class Frequencies:
    """Estimated counts of each answer. They are unbiased, so they may be negative or fail to add up: see consistency.

    >>> counts = Frequencies(np.array([30.0, 70.0]), np.array([25.0, 25.0]), 100)
    >>> [round(float(low), 1) for low in counts.interval(0.95)[0]]
    [20.2, 60.2]
    """

    counts: NDArray[np.float64]
    variances: NDArray[np.float64]
    responses: int
    score: Score | None = None

    @property
    def shares(self) -> NDArray[np.float64]:
        """The counts as shares of all responses."""
        return self.counts / max(self.responses, 1)

    @property
    def errors(self) -> NDArray[np.float64]:
        """Standard errors of the counts."""
        return np.sqrt(self.variances)

    def interval(
        self, confidence: float = 0.95, population: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper ends of the confidence interval of each count, among these respondents.

        For a `population` that they are drawn from, the luck of the draw is added. Counts that were scaled up or
        solved for have the normal form, which is accurate from some hundred responses on.
        """
        if self.score is not None:
            return self.score.interval(confidence, population)
        held = np.clip(self.shares, 0, 1)
        luck = self.responses * held * (1 - held) if population else 0.0
        reach = normal_quantile(confidence) * np.sqrt(self.variances + luck)
        return self.counts - reach, self.counts + reach

    @property
    def influence(self) -> float:
        """The most people by which one respondent, who sends what serves best, moves a count; NaN if unknown."""
        return self.score.range / self.score.gain if self.score is not None else math.nan


def normal_quantile(confidence: float) -> float:
    """How many standard errors a two-sided interval of this confidence reaches."""
    if not 0 < confidence < 1:
        raise ParameterError(f"confidence is {confidence:g}", expected="A confidence between 0 and 1, such as 0.95")
    return NormalDist().inv_cdf((1 + confidence) / 2)


def student_quantile(confidence: float, degrees: int) -> float:
    """The same where the error was itself estimated, with so many degrees of freedom.

    Student's quantile by its expansion in 1 / degrees (Abramowitz and Stegun 26.7.5), right to 0.1% from 5 on.
    """
    z, n = normal_quantile(confidence), max(degrees, 1)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


def check_domain(domain: int, largest: int = 1 << 30) -> int:
    """The size of a domain, refused when there is nothing to hide or too much to count."""
    if not 2 <= domain <= largest:
        raise ParameterError(f"the domain has {domain} answers", expected=f"Between 2 and {largest} possible answers")
    return domain


def check_answers(answers: Answers, domain: int) -> Answers:
    """Answers as integers inside the domain; the refusal names no answer."""
    array = np.asarray(answers)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise DataError("the answers are not one column of whole numbers", expected=f"Indexes 0 to {domain - 1}")
    if array.size and not (int(array.min()) >= 0 and int(array.max()) < domain):
        raise DataError("some answers lie outside the domain", expected=f"Indexes 0 to {domain - 1}")
    return array.astype(np.int64, copy=False)


def estimate_from_support(support: NDArray[np.int64], responses: int, p: Fraction, q: Fraction) -> Frequencies:
    """Invert a pure protocol: a response supports the true answer with probability p, any other with q.

    E[support] = p c + q (n - c), hence c = (support - n q) / (p - q) (Wang, Blocki, Li, Jha 2017). The variance
    p(1-p) c + q(1-q) (n - c) is evaluated at the estimate, held within [0, n].
    """
    gap = float(p - q)
    counts: NDArray[np.float64] = (support.astype(np.float64) - responses * float(q)) / gap
    held = np.clip(counts, 0, responses)
    variances = (held * float(p * (1 - p)) + (responses - held) * float(q * (1 - q))) / gap**2
    return Frequencies(counts, variances, responses, score_support(support, responses, float(p), float(q)))


def join_frequencies(parts: Sequence[Frequencies]) -> Frequencies:
    """Counts of several estimates of the same respondents, one after the other."""
    counts, variances = (np.concatenate([getattr(part, name) for part in parts]) for name in ("counts", "variances"))
    scores = [part.score for part in parts if part.score is not None]
    joined = _join_scores(scores) if len(scores) == len(parts) and len({score.gain for score in scores}) == 1 else None
    return Frequencies(counts, variances, parts[0].responses, joined)


def _join_scores(scores: Sequence[Score]) -> Score:
    def spread(name: str, place: int) -> NDArray[np.float64]:
        return np.concatenate([np.broadcast_to(getattr(each, name)[place], each.sums.shape) for each in scores])

    return Score(
        np.concatenate([each.sums for each in scores]),
        scores[0].gain,
        np.concatenate([each.base for each in scores]),
        (spread("among_these", 0), spread("among_these", 1)),
        (spread("among_all", 0), spread("among_all", 1)),
        max(each.range for each in scores),
    )


def score_support(support: NDArray[Any], responses: int, p: float, q: float) -> Score:
    """The score of a pure protocol: among all, every response supports with the one chance q + share (p - q)."""
    gap, noise = p - q, q * (1 - q)
    return Score(
        support.astype(np.float64) - responses * q,
        gap,
        np.full(support.shape, responses * noise),
        (p * (1 - p) - noise, 0.0),
        (gap * (1 - 2 * q), -(gap**2) / max(responses, 1)),
        1,
    )


def support_variance(p: Fraction, q: Fraction, share: float) -> float:
    """Variance per respondent of an estimated count under a pure protocol, for an answer of this share."""
    gap = float(p - q)
    return (share * float(p * (1 - p)) + (1 - share) * float(q * (1 - q))) / gap**2


@dataclass(frozen=True, slots=True)
class Whole:
    """An integer from 0 up to but excluding `bound`."""

    name: str
    bound: int

    @property
    def bytes(self) -> int:
        """Bytes on the wire."""
        return max(1, ((self.bound - 1).bit_length() + 7) // 8)


@dataclass(frozen=True, slots=True)
class Selected:
    """An integer whose bound is the one that the field before it selects; where that is 0, no such response exists."""

    name: str
    bounds: tuple[int, ...]

    @property
    def bytes(self) -> int:
        """Bytes on the wire, the same for every bound."""
        return Whole(self.name, max(self.bounds)).bytes


@dataclass(frozen=True, slots=True)
class Bits:
    """A string of `length` bits; bit i is bit (i mod 8), counted from the least significant, of byte (i div 8)."""

    name: str
    length: int

    @property
    def bytes(self) -> int:
        """Bytes on the wire."""
        return (self.length + 7) // 8


@dataclass(frozen=True, slots=True)
class Chosen:
    """A set of `count` different integers below `bound`, sent in ascending order."""

    name: str
    count: int
    bound: int

    @property
    def bytes(self) -> int:
        """Bytes on the wire."""
        return self.count * Whole(self.name, self.bound).bytes


Field = Whole | Selected | Bits | Chosen
Layout = tuple[Field, ...]

Responses = tuple[NDArray[Any], ...]
"""Many responses as columns, an array a field: Whole, Selected (n,), Chosen (n, count) int64, Bits (n, bytes) uint8."""


def message_bytes(layout: Layout) -> int:
    """Bytes of one response in the binary form."""
    return sum(field.bytes for field in layout)


def count_responses(responses: Responses) -> int:
    """How many responses the columns hold."""
    return len(responses[0])
