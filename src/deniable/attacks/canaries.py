"""The one-run audit: many canaries, each in or out by a coin, and one run of the mechanism (Steinke et al. 2023)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable.attacks.confidence import incomplete_beta
from deniable.errors import ParameterError

Run = Callable[[NDArray[np.bool_]], NDArray[np.float64]]
"""Runs the mechanism once with the canaries that are in, and scores every canary: higher where it seems to be in."""


@dataclass(frozen=True, slots=True)
class OneRunOutcome:
    """What one run proves: epsilon is at least `epsilon_bound` (at `delta`), with `confidence`."""

    epsilon: float
    delta: float
    epsilon_bound: float
    confidence: float
    canaries: int
    guesses: int
    correct: int

    @property
    def violated(self) -> bool:
        """Whether the claim is refuted."""
        return self.epsilon_bound > self.epsilon

    def __str__(self) -> str:
        verdict = "refuted" if self.violated else "not refuted"
        claim = f"claimed {self.epsilon:.3f}, delta {self.delta:g}"
        return (
            f"epsilon is at least {self.epsilon_bound:.3f} ({claim}): {verdict}; "
            f"{self.correct} of {self.guesses} guesses right about {self.canaries} canaries, in one run"
        )


def audit_one_run(
    run: Run,
    canaries: int,
    *,
    epsilon: float,
    delta: float = 0.0,
    guesses: int | None = None,
    confidence: float = 0.999,
    seed: int = 0,
) -> OneRunOutcome:
    """Bound epsilon from below by a single run.

    **Scenario.** Some records (canaries) are put into the data by independent coins; the intruder sees one output and
    guesses for some of them whether they were in. Success is more right guesses than epsilon allows.
    **Method.** The canaries with the highest scores are called in, those with the lowest out, `guesses` in all (a
    third of them unless told; fixed beforehand). Under epsilon-DP each guess is right with at most
    e^epsilon/(1 + e^epsilon) given all others, so the number of right ones is at most binomial; delta adds what the
    theorem says.
    **Outcome.** The largest epsilon at which so many right guesses would be rarer than 1 - confidence.
    """
    called = canaries // 3 if guesses is None else guesses
    if not 2 <= called <= canaries or not 0 < confidence < 1 or epsilon < 0 or not 0 <= delta < 1:
        raise ParameterError(
            "This is not a claim that one run can test", expected="2 or more guesses, at most canaries"
        )
    inside = np.random.default_rng(seed).random(canaries) < 0.5
    scores = np.asarray(run(inside), np.float64)
    if scores.shape != (canaries,):
        raise ParameterError("The run did not score every canary once")
    order = np.argsort(scores, kind="stable")
    high, low = order[-(called - called // 2) :], order[: called // 2]
    correct = int(inside[high].sum() + (~inside[low]).sum())
    bound = _bound(canaries, called, correct, delta, 1 - confidence)
    return OneRunOutcome(epsilon, delta, bound, confidence, canaries, called, correct)


def _bound(canaries: int, guesses: int, correct: int, delta: float, chance: float) -> float:
    low, high = 0.0, 40.0
    if p_value(canaries, guesses, correct, 0.0, delta) > chance:
        return 0.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(canaries, guesses, correct, middle, delta) <= chance else (low, middle)
    return low


def p_value(canaries: int, guesses: int, correct: int, epsilon: float, delta: float) -> float:
    """How likely so many right guesses are, at most, under (epsilon, delta).

    With delta = 0 this is the binomial tail. Otherwise each canary is lost with probability 2 delta at most, and losing
    i of them can turn a result that is i short into this one: alpha is the most that this gains for each.
    """
    q = 1 / (1 + math.exp(-epsilon))
    tail = incomplete_beta(correct, guesses - correct + 1, q) if correct else 1.0
    if delta == 0:
        return tail
    alpha, total = 0.0, 0.0
    for short in range(1, correct + 1):
        total += _pmf(guesses, correct - short, q)
        alpha = max(alpha, total / short)
    return min(1.0, tail + 2 * canaries * delta * alpha)


def _pmf(n: int, k: int, q: float) -> float:
    if q in (0.0, 1.0):
        return float(k == n * q)
    log = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) + k * math.log(q) + (n - k) * math.log1p(-q)
    return math.exp(log)
