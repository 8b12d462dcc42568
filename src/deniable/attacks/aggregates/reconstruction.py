"""Linear reconstruction: many answers about random groups give away almost everybody (Dinur and Nissim 2003).

Noise does not help where it is small or where questions are repeated: answers are averaged and solved together, and
each person's value comes with its certainty."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from deniable.attacks import solvers
from deniable.attacks.outcome import Outcome, Rate
from deniable.errors import ParameterError, Stopped

SCENARIO = "Asking how many of many random groups have a secret property"


def decode_shares(
    groups: NDArray[np.bool_], answers: NDArray[np.float64], *, seconds: float | None = None
) -> NDArray[np.float64]:
    """The shares in [0, 1], one a person, whose counts miss the answers least in sum (LP decoding, by HiGHS).

    min sum |Ax - b| becomes linear with one slack a question: -s <= Ax - b <= s. Minimizing the sum, not the squares,
    forgives the few answers that are far off. In the dual there is one bounded variable a question and one row a
    person, which is the small side here: max b'y - sum(max(0, A'y)), -1 <= y <= 1, solved as that linear program.
    """
    if groups.ndim != 2 or len(groups) != len(answers):
        raise ParameterError("Groups and answers do not fit", expected="One row of members for each answer")
    if not groups.size:
        return np.full(groups.shape[1], 0.5)
    sparse, optimize = solvers.load_sparse(), solvers.load_optimize()
    questions, people = groups.shape
    # Variables: y (questions), z (people) with z >= A'y and z >= 0; the constraint's multipliers are the shares x.
    cost = np.concatenate([-np.asarray(answers, np.float64), np.ones(people)])
    matrix = sparse.hstack([sparse.csr_matrix(groups.T.astype(np.float64)), -sparse.identity(people)], format="csr")
    bounds = [(-1.0, 1.0)] * questions + [(0.0, None)] * people
    options = {} if seconds is None else {"time_limit": seconds}
    found = optimize.linprog(cost, A_ub=matrix, b_ub=np.zeros(people), bounds=bounds, method="highs", options=options)
    if found.status != 0:
        raise Stopped("The linear program was not solved in the time allowed", remedy="Allow more seconds", charge="")
    return np.asarray(np.clip(-np.asarray(found.ineqlin.marginals), 0.0, 1.0), np.float64)


def reconstruct(
    groups: NDArray[np.bool_],
    answers: NDArray[np.float64],
    secret: NDArray[np.bool_],
    *,
    seconds: float | None = None,
) -> Outcome:
    """Decode secret bits from noisy counts.

    **Scenario.** The intruder asks for counts of people with a secret property in many groups that are chosen by what
    is public, and receives answers with some error; success is a person's bit.
    **Method.** Linear programming finds the shares that fit best; each is rounded to a bit.
    **Outcome.** Bits recovered; the baseline guesses the commoner bit for all.
    """
    shares = decode_shares(groups, answers, seconds=seconds)
    right = int(((shares > 0.5) == secret).sum())
    common = int(max(secret.sum(), (~secret).sum())) if len(secret) else 0
    base = Rate(common, len(secret)) if len(secret) else 0.0
    error = float(np.abs(groups @ secret.astype(float) - answers).mean()) if len(answers) else 0.0
    figures = {"questions": len(answers), "mean_error": error}
    return Outcome("reconstruction", SCENARIO, Rate(right, len(secret)), base, figures=figures)


MOST_PEOPLE = 3_000
"""Noisy answers about more people are not solved together: the matrix of who is in which group would be too large."""
SURE = 0.95
"""A value is claimed from this certainty on."""
NEAR = 0.05
"""A number is found when it is within this share of the range that everybody knows."""


@dataclass(frozen=True, eq=False, repr=False)
class Estimates:
    """Each person's value as noisy answers tell it: its mean and deviation, how certain the claim is, and by what.

    `weights` has a row for each person and a column for each question: what an answer adds to the person's estimate.
    """

    value: NDArray[np.float64]
    deviation: NDArray[np.float64]
    certainty: NDArray[np.float64]
    weights: NDArray[np.float64]

    def find_telling_questions(self, most: int = 20) -> list[tuple[int, int]]:
        """The questions, by position, that weigh most for those who are surely known, and for how many of them."""
        known = np.flatnonzero(self.certainty >= SURE)
        if not len(known):
            return []
        told = np.bincount(np.abs(self.weights[known]).argmax(axis=1), minlength=self.weights.shape[1])
        order = np.argsort(-told, kind="stable")[:most]
        return [(int(place), int(told[place])) for place in order if told[place]]


def measure_noise(groups: NDArray[np.bool_], answers: NDArray[np.float64]) -> float:
    """The standard deviation of the answers' noise, by how far they contradict each other; 0 where they do not.

    Equal questions that were answered differently tell it alone; otherwise what no values explain does.
    """
    _, same = np.unique(groups, axis=0, return_inverse=True)
    same = same.reshape(-1)
    counts, sums = np.bincount(same), np.bincount(same, answers)
    spare = len(answers) - len(counts)
    if spare:
        return float(np.sqrt(((answers - (sums / counts)[same]) ** 2).sum() / spare))
    if min(groups.shape) > solvers.LARGE:
        return 0.0  # not measured: the rank of so many questions takes too long
    matrix = groups.astype(np.float64)
    values, _, rank, _ = np.linalg.lstsq(matrix, answers, rcond=None)
    left = float(((answers - matrix @ values) ** 2).sum())
    exact = 1e-16 * max(1.0, float((answers**2).sum()))
    return float(np.sqrt(left / (len(answers) - rank))) if rank < len(answers) and left > exact else 0.0


UNLIKELY, SURELY = 3.1, 1.645
"""Deviations: beyond the first, stated noise is not believed (once in a thousand); the second is 95% on one side."""


def measure_excess(groups: NDArray[np.bool_], answers: NDArray[np.float64], deviations: NDArray[np.float64]) -> float:
    """How many times larger the noise is, with 95% confidence at most, than stated; 1 where the residuals fit it.

    What no values explain, in squares of the stated deviation, has as mean its degrees of freedom d and, for Laplace
    noise, the variance 5 d (2 d for normal noise). The largest noise that fits follows from the 5% quantile of the
    chi-square distribution (Wilson and Hilferty 1931).
    """
    scaled, wanted = groups / deviations[:, None], answers / deviations
    if min(groups.shape) > solvers.LARGE:  # only equal questions are compared: the rank of so many takes too long
        _, same = np.unique(groups, axis=0, return_inverse=True)
        weights = 1 / deviations**2
        sums = np.bincount(same.reshape(-1), answers * weights) / np.bincount(same.reshape(-1), weights)
        left, free = float((((answers - sums[same.reshape(-1)]) / deviations) ** 2).sum()), len(answers) - len(sums)
    else:
        values, _, rank, _ = np.linalg.lstsq(scaled, wanted, rcond=None)
        left, free = float(((wanted - scaled @ values) ** 2).sum()), len(answers) - int(rank)
    if free < 1 or left <= free + UNLIKELY * np.sqrt(5.0 * free) + UNLIKELY**2:
        return 1.0
    least = free * max(1 - 2 / (9 * free) - SURELY * np.sqrt(2 / (9 * free)), 0.1) ** 3
    return float(np.sqrt(left / least))


def estimate_values(
    groups: NDArray[np.bool_],
    answers: NDArray[np.float64],
    deviations: NDArray[np.float64],
    low: float = 0.0,
    high: float = 1.0,
    *,
    bits: bool = False,
    reach: float | None = None,
) -> Estimates:
    """Solve noisy sums together: weighted least squares, where each answer counts by one over its noise's variance.

    Before any answer a value lies anywhere between `low` and `high` (a normal prior of the same deviation). The
    certainty of a number is the probability that it is within `reach` (a twentieth of that range). Of bits the share p
    of ones is estimated first: others have the mean p and the variance p (1 - p), and the odds of one person's bit are
    p / (1 - p) beforehand, times exp((m - 1/2)/s^2) for what the answers alone say, an estimate m with deviation s.
    """
    if bits:
        return _estimate_bits(groups, answers, deviations)
    prior = 12 / (high - low) ** 2
    scaled = groups / deviations[:, None]
    precision = scaled.T @ scaled + prior * np.eye(groups.shape[1])
    covariance = np.linalg.inv(precision)
    weights = covariance @ (groups / deviations[:, None] ** 2).T
    middle = (low + high) / 2
    value = middle + weights @ (answers - groups.sum(axis=1) * middle)
    deviation = np.sqrt(np.diag(covariance))
    near = NEAR * (high - low) if reach is None else reach
    certainty = np.array([2 * NormalDist().cdf(near / one) - 1 for one in deviation])
    return Estimates(value, deviation, certainty, weights)


ROUNDS = 8
"""How often the share of ones is estimated again from what is known of each bit."""
FEW_PEOPLE = 12
"""So few have few possible worlds, which are weighed one by one: others do not add up to normal noise there."""


def _weigh_worlds(scaled: NDArray[np.float64], told: NDArray[np.float64]) -> NDArray[np.float64]:
    """The chance of each bit over all worlds, where every number of ones is equally likely beforehand."""
    people = scaled.shape[1]
    worlds = (np.arange(1 << people)[:, None] >> np.arange(people) & 1).astype(np.float64)
    ones = worlds.sum(axis=1).astype(np.int64)
    choose = np.array([math.comb(people, one) for one in range(people + 1)], dtype=np.float64)
    logarithms = -((told - worlds @ scaled.T) ** 2).sum(axis=1) / 2 - np.log(choose[ones])
    weights = np.exp(logarithms - logarithms.max())
    chance: NDArray[np.float64] = weights @ worlds / weights.sum()
    return chance


def _estimate_bits(
    groups: NDArray[np.bool_], answers: NDArray[np.float64], deviations: NDArray[np.float64]
) -> Estimates:
    people = groups.shape[1]
    scaled = groups / deviations[:, None]
    said = scaled.T @ scaled
    share = 0.5
    for _ in range(ROUNDS):
        prior = 1 / (share * (1 - share))
        covariance = np.linalg.inv(said + prior * np.eye(people))
        weights = covariance @ (scaled / deviations[:, None]).T
        value = share + weights @ (answers - groups.sum(axis=1) * share)
        deviation = np.sqrt(np.diag(covariance))
        own = np.maximum(1 / deviation**2 - prior, 1e-12)  # what the answers say, without the prior
        alone = (value / deviation**2 - prior * share) / own
        odds = (np.log(share / (1 - share)) + (alone - 0.5) * own).clip(-700, 700)
        chance = 1 / (1 + np.exp(-odds))
        before, share = share, float((chance.sum() + 0.5) / (people + 1))
        if abs(share - before) < 1e-3:
            break
    if people <= FEW_PEOPLE:
        chance = _weigh_worlds(scaled, answers / deviations)
    return Estimates(chance, np.sqrt(chance * (1 - chance)), np.maximum(chance, 1 - chance), weights)


def solve_noisy_answers(
    groups: NDArray[np.bool_],
    answers: NDArray[np.float64],
    deviations: NDArray[np.float64],
    low: float = 0.0,
    high: float = 1.0,
    *,
    whole: bool = False,
    secret: NDArray[np.float64] | None = None,
    lines: NDArray[np.int64] | None = None,
) -> Outcome:
    """Average and solve answers with noise.

    **Scenario.** A log of answers to sums or counts over known groups, each with noise of a known deviation, some of
    them repeated; success is a person's value that the intruder is sure of (95%), and right about: within a twentieth
    of the range from `low` to `high`, and where values are `whole` numbers at least the nearest of them.
    **Method.** Weighted least squares over all answers; repetitions are averaged by it. Of two whole numbers one is
    chosen as a bit.
    **Outcome.** Values claimed rightly (without `secret`, all that were claimed) and the precision; the baseline says
    of as many people the one value that most have, or are near. Figures tell the noise, how many are sure, and which
    lines of the log gave most of them away.
    """
    bits, reach = whole and high - low == 1, max(NEAR * (high - low), 0.5 if whole else 0.0)
    told = answers - low * groups.sum(axis=1) if bits else answers
    found = estimate_values(groups, told, deviations, low, high, bits=bits, reach=reach)
    claimed = found.certainty >= SURE
    value = low + found.value if bits else found.value
    guess = np.round(value) if whole else value
    right, base = claimed, 0.0
    if secret is not None and len(secret):
        right, base = claimed & (np.abs(guess - secret) <= reach), _guess_blindly(secret, reach, whole)
    numbers = np.arange(1, len(answers) + 1) if lines is None else lines
    telling = [{"line": int(numbers[place]), "people": people} for place, people in found.find_telling_questions()]
    figures = {
        "questions": len(answers), "deviation": float(np.median(deviations)), "sure": int(claimed.sum()),
        "certainty": float(found.certainty.mean()) if len(claimed) else 0.0, "telling": telling,
    }  # fmt: skip
    precision = None if secret is None else Rate(int(right.sum()), int(claimed.sum()))
    return Outcome("reconstruction", "Averaging and solving noisy answers", Rate(int(right.sum()), len(claimed)), base,
                   precision=precision, figures=figures, claimed=int(claimed.sum()))  # fmt: skip


def _guess_blindly(secret: NDArray[np.float64], reach: float, whole: bool) -> float:
    """How often one value for everybody is right: that which most have, or have within reach.

    The best has somebody's value at the lower end of what is within reach of it; whole numbers are guessed as such.
    """
    ordered = np.sort(secret)
    guesses = np.floor(ordered + reach) if whole else ordered + reach
    near = np.searchsorted(ordered, guesses + reach, "right") - np.searchsorted(ordered, guesses - reach, "left")
    return float(near.max() / len(secret))
