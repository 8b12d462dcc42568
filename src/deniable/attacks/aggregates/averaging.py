"""Averaging: the same question asked again and again; fresh noise cancels, and so do repeated local reports."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from deniable.attacks.outcome import Outcome, Rate

Asking = Callable[[int], NDArray[np.float64]]
"""Asks one question so many times, and returns the answers."""
Randomizer = Callable[[NDArray[np.int64]], NDArray[np.int64]]
"""One round of a local randomizer: everybody's answer to everybody's response."""


def average_answers(answers: NDArray[np.float64]) -> tuple[float, float]:
    """The mean of repeated answers and its standard error; the error falls with the root of their number.

    Answers that are all the same were remembered, not drawn again: the error is then that of one, unknown from here.
    """
    values = np.asarray(answers, np.float64)
    if len(values) < 2 or values.std() == 0:
        return float(values.mean()) if len(values) else math.nan, math.nan
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


def ask_repeatedly(ask: Asking, truths: Sequence[float], *, repeats: int = 100, within: float = 0.5) -> Outcome:
    """Ask every question many times and average.

    **Scenario.** A service adds fresh noise to each answer and does not count questions; the intruder repeats one.
    Success is an answer within `within` of the truth (half a person, for counts).
    **Method.** The mean of all answers; `ask` gives repeated answers to one question after the other.
    **Outcome.** Questions whose truth is found; the control is the first answer alone.
    """
    means, firsts = [], []
    for _ in truths:
        answers = ask(repeats)
        means.append(average_answers(answers)[0])
        firsts.append(float(answers[0]))
    target = np.asarray(truths, np.float64)
    found = int((np.abs(np.array(means) - target) < within).sum())
    once = Rate(int((np.abs(np.array(firsts) - target) < within).sum()), len(target))
    return Outcome("averaging", f"Asking the same question {repeats} times", Rate(found, len(target)), 0.0, once,
                   figures={"repeats": repeats})  # fmt: skip


def collect_reports(randomizer: Randomizer, secret: NDArray[np.int64], *, rounds: int = 100) -> Outcome:
    """Collect the local reports of the same people over many rounds.

    **Scenario.** People answer the same question every day through a local randomizer; the collector keeps the
    responses by person. Success is a person's true answer.
    **Method.** The response that a person gave most often; ties go to the first.
    **Outcome.** People named; the control uses their first response alone, the baseline the commonest answer.
    """
    kinds = int(secret.max(initial=0)) + 1
    votes = np.zeros((len(secret), kinds), np.int64)
    first = np.zeros_like(secret)
    for number in range(rounds):
        responses = np.asarray(randomizer(secret))
        first = responses if number == 0 else first
        known = (responses >= 0) & (responses < kinds)
        np.add.at(votes, (np.flatnonzero(known), responses[known]), 1)
    people = len(secret)
    right = int((votes.argmax(axis=1) == secret).sum()) if people else 0
    base = Rate(int(np.bincount(secret).max()), people) if people else 0.0
    return Outcome("longitudinal", f"Collecting {rounds} reports of each person", Rate(right, people), base,
                   Rate(int((first == secret).sum()), people), figures={"rounds": rounds})  # fmt: skip


def compute_posterior(noisy_total: float, others: float, scale: float, prior: float = 0.5) -> float:
    """How sure an intruder is that one person's bit is 1, holding a Laplace answer and the exact count of all others.

    This combines a DP answer with a non-private release: the odds move by exp((|t - o| - |t - o - 1|) / scale), never
    by more than e^epsilon with epsilon = 1 / scale, however exact the rest is.
    """
    shift = (abs(noisy_total - others) - abs(noisy_total - others - 1)) / scale
    odds = prior / (1 - prior) * math.exp(shift)
    return odds / (1 + odds)
