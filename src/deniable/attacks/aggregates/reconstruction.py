"""Linear reconstruction: many answers about random groups give away almost everybody (Dinur and Nissim 2003)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from deniable.attacks import solvers
from deniable.attacks.outcome import Deadline, Outcome, Progress, Rate, tell
from deniable.errors import ParameterError, Stopped

SCENARIO = "Asking how many of many random groups have a secret property"
Answering = Callable[[NDArray[np.bool_]], NDArray[np.float64]]
"""Answers counts: for each row of a matrix of groups, how many of its members have the property."""


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


def draw_groups(questions: int, people: int, seed: int = 0) -> NDArray[np.bool_]:
    """Groups each person is in with probability one half."""
    return np.random.default_rng(seed).random((questions, people)) < 0.5


def sweep_questions(
    answering: Answering,
    secret: NDArray[np.bool_],
    questions: Sequence[int],
    *,
    seed: int = 0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> tuple[Outcome, ...]:
    """Accuracy against the number of questions: the same groups, more and more of them."""
    groups = draw_groups(max(questions), len(secret), seed)
    answers = np.asarray(answering(groups), np.float64)
    deadline, found = Deadline(seconds), []
    for place, count in enumerate(questions):
        deadline.check()
        found.append(reconstruct(groups[:count], answers[:count], secret, seconds=deadline.left))
        tell(progress, (place + 1) / len(questions))
    return tuple(found)


def answer_exactly(secret: NDArray[np.bool_]) -> Answering:
    """Answers without error."""
    return lambda groups: np.asarray(groups.astype(np.float64) @ secret.astype(np.float64))


def answer_rounded(secret: NDArray[np.bool_], to: int) -> Answering:
    """Answers rounded to a multiple, as many tables are."""
    return lambda groups: np.asarray(np.round(answer_exactly(secret)(groups) / to) * to)


def answer_with_fixed_noise(secret: NDArray[np.bool_], scale: float, salt: int = 0) -> Answering:
    """Answers with noise that is fixed for each group (so that repeating gains nothing), whatever was asked before."""

    def answer(groups: NDArray[np.bool_]) -> NDArray[np.float64]:
        noise = [np.random.default_rng([salt, *np.packbits(group).tolist()]).normal(0, scale) for group in groups]
        return np.asarray(groups @ secret.astype(np.float64) + np.array(noise))

    return answer


def bound_correct_bits(epsilon: float, common: float) -> float:
    """The share of bits that any attack can get right, on average, from answers that are epsilon-DP in total.

    A person's bit has prior odds of common : 1 - common; the answers multiply odds by at most e^epsilon.
    """
    odds = common / (1 - common) * float(np.exp(min(epsilon, 700.0))) if common < 1 else np.inf
    return 1.0 if odds == np.inf else odds / (1 + odds)
