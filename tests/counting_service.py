"""A service that answers counts about groups, in ways that fall to reconstruction and in one that does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from deniable.attacks.aggregates.reconstruction import reconstruct
from deniable.attacks.outcome import Outcome

Answering = Callable[[NDArray[np.bool_]], NDArray[np.float64]]
"""Answers counts: for each row of a matrix of groups, how many of its members have the property."""


def draw_groups(questions: int, people: int, seed: int = 0) -> NDArray[np.bool_]:
    """Groups each person is in with probability one half."""
    return np.random.default_rng(seed).random((questions, people)) < 0.5


def sweep_questions(
    answering: Answering, secret: NDArray[np.bool_], questions: Sequence[int], seed: int = 0
) -> tuple[Outcome, ...]:
    """Accuracy against the number of questions: the same groups, more and more of them."""
    groups = draw_groups(max(questions), len(secret), seed)
    answers = answering(groups)
    return tuple(reconstruct(groups[:count], answers[:count], secret) for count in questions)


def answer_exactly(secret: NDArray[np.bool_]) -> Answering:
    """Answers without error."""
    return lambda groups: groups.astype(np.float64) @ secret.astype(np.float64)


def answer_rounded(secret: NDArray[np.bool_], to: int) -> Answering:
    """Answers rounded to a multiple, as many tables are."""
    return lambda groups: np.round(answer_exactly(secret)(groups) / to) * to


def answer_with_fixed_noise(secret: NDArray[np.bool_], scale: float, salt: int = 0) -> Answering:
    """Answers with noise that is fixed for each group (so that repeating gains nothing), whatever was asked before."""

    def answer(groups: NDArray[np.bool_]) -> NDArray[np.float64]:
        noise = [np.random.default_rng([salt, *np.packbits(group).tolist()]).normal(0, scale) for group in groups]
        return groups @ secret.astype(np.float64) + np.array(noise)

    return answer


def bound_correct_bits(epsilon: float, common: float) -> float:
    """The share of bits that any attack can get right, on average, from answers that are epsilon-DP in total.

    A person's bit has prior odds of common : 1 - common; the answers multiply odds by at most e^epsilon.
    """
    odds = common / (1 - common) * float(np.exp(min(epsilon, 700.0))) if common < 1 else np.inf
    return 1.0 if odds == np.inf else odds / (1 + odds)
