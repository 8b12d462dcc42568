"""Linear reconstruction: many answers about random groups give away almost everybody (Dinur and Nissim 2003)."""

from __future__ import annotations

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
