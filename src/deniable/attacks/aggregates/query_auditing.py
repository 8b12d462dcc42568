"""Query auditing: from answers to sums, counts and maxima, who is determined, and how tightly are others bounded?"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.attacks import solvers
from deniable.attacks.outcome import Deadline, Outcome, Progress, Rate, tell
from deniable.attacks.solvers import find_determined, solve_least_squares
from deniable.errors import ParameterError

Groups = NDArray[np.bool_]
Answers = NDArray[np.float64]


class Status(IntEnum):
    """What the answers say about a person."""

    OPEN = 0
    DETERMINED = 1
    UNKNOWN = 2
    """The time limit ended before it was decided."""


@dataclass(frozen=True, eq=False, repr=False)
class Verdicts:
    """For each person: the status, and the least and greatest value consistent with all answers."""

    status: NDArray[np.int8]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @property
    def determined(self) -> NDArray[np.bool_]:
        """Whose value the answers give away."""
        return np.asarray(self.status == Status.DETERMINED)

    def outcome(self, secret: NDArray[np.float64] | None = None) -> Outcome:
        """People determined (rightly, given the secret); figures count those still open and those not decided."""
        right = self.determined if secret is None else self.determined & (np.abs(self.low - secret) <= 1e-6)
        counts = {status.name.lower(): int((self.status == status).sum()) for status in Status}
        undecided = counts["unknown"]
        warnings = (f"{undecided} people were not decided within the time limit",) if undecided else ()
        found = Rate(int(right.sum()), len(self.status))
        return Outcome("auditing", "Solving the answered questions", found, 0.0, figures=counts, warnings=warnings)


def _check_shapes(groups: Groups, answers: Answers) -> None:
    if groups.ndim != 2 or len(groups) != len(answers):
        raise ParameterError("Groups and answers do not fit", expected="One row of members for each answer")


def audit_sums(
    groups: Groups,
    answers: Answers,
    low: float = -np.inf,
    high: float = np.inf,
    *,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Verdicts:
    """Audit sums of real numbers.

    **Scenario.** A log of exact sums over known groups; success is one person's number.
    **Method.** Without limits on the numbers a person is determined exactly when the unit vector lies in the row space
    (linear algebra). With limits (salaries are not negative) two linear programs bound each person; equal bounds
    determine.
    **Outcome.** Status and bounds for each person.
    """
    _check_shapes(groups, answers)
    people = groups.shape[1]
    fixed = find_determined(groups)
    value = solve_least_squares(groups, answers) if groups.size else np.zeros(people)
    lows, highs = np.where(fixed, value, low), np.where(fixed, value, high)
    status = np.where(fixed, Status.DETERMINED, Status.OPEN).astype(np.int8)
    if np.isfinite(low) or np.isfinite(high):
        _tighten_bounds(groups, answers, (low, high), status, lows, highs, Deadline(seconds), progress)
    return Verdicts(status, lows, highs)


def _tighten_bounds(
    groups: Groups,
    answers: Answers,
    limits: tuple[float, float],
    status: NDArray[np.int8],
    lows: NDArray[np.float64],
    highs: NDArray[np.float64],
    deadline: Deadline,
    progress: Progress | None,
) -> None:
    """Tighten each open person's bounds by linear programs; those not reached in time are unknown."""
    optimize, people = solvers.load_optimize(), groups.shape[1]
    finite = tuple(None if not np.isfinite(end) else end for end in limits)
    for person in np.flatnonzero(status == Status.OPEN):
        if deadline.passed:
            status[person] = Status.UNKNOWN
            continue
        ends = []
        for sign in (1.0, -1.0):
            cost = np.zeros(people)
            cost[person] = sign
            found = optimize.linprog(cost, A_eq=groups.astype(float), b_eq=answers, bounds=finite, method="highs")
            if found.status == 2:
                raise ParameterError("No values within the limits give these answers")
            ends.append(sign * found.fun if found.status == 0 else -sign * np.inf)
        lows[person], highs[person] = ends
        if ends[1] - ends[0] <= 1e-7 * max(1.0, abs(ends[0])):
            status[person] = Status.DETERMINED
        tell(progress, (person + 1) / people)


def audit_counts(
    groups: Groups, answers: Answers, *, seconds: float | None = 10.0, progress: Progress | None = None
) -> Verdicts:
    """Audit counts of a secret yes or no (sums of Booleans).

    **Scenario.** A log of exact counts of people with a property; success is one person's bit.
    **Method.** Deciding this is coNP-complete, so a solver searches a world in which the person's bit is the other one.
    None exists: determined. Each world found frees everybody in whom it differs from the first.
    **Outcome.** Status and bounds; unknown where the time ended first.
    """
    _check_shapes(groups, answers)
    deadline, people = Deadline(seconds), groups.shape[1]
    first = _find_world(groups, answers, None, deadline)
    status = np.full(people, Status.UNKNOWN, np.int8)
    lows, highs = np.zeros(people), np.ones(people)
    if first is None:
        return Verdicts(status, lows, highs)
    if not len(first):
        raise ParameterError("No yes and no give these counts", expected="Exact counts of one and the same population")
    for person in range(people):
        if status[person] == Status.UNKNOWN and not deadline.passed:
            other = _find_world(groups, answers, (person, not first[person]), deadline)
            if other is None:
                continue
            if not len(other):
                status[person], lows[person], highs[person] = Status.DETERMINED, first[person], first[person]
            else:
                status[(other != first) & (status == Status.UNKNOWN)] = Status.OPEN
        tell(progress, (person + 1) / people)
    return Verdicts(status, lows, highs)


def _find_world(
    groups: Groups, answers: Answers, fixed: tuple[int, bool] | None, deadline: Deadline
) -> NDArray[np.bool_] | None:
    """Bits that give the answers, empty where none do, None where the time ended before it was known."""
    cp = solvers.load_cp_sat()
    model = cp.CpModel()
    bits: list[Any] = [model.new_bool_var(f"x{person}") for person in range(groups.shape[1])]
    for group, answer in zip(groups, answers, strict=True):
        model.add(sum(bits[person] for person in np.flatnonzero(group)) == round(float(answer)))
    if fixed is not None:
        model.add(bits[fixed[0]] == int(fixed[1]))
    solver = cp.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 1
    if deadline.left is not None:
        solver.parameters.max_time_in_seconds = deadline.left
    found = solver.solve(model)
    if found in (cp.OPTIMAL, cp.FEASIBLE):
        return np.array([solver.value(bit) for bit in bits], np.bool_)
    return np.zeros(0, np.bool_) if found == cp.INFEASIBLE else None


def audit_maxima(groups: Groups, answers: Answers, low: float = -np.inf) -> Verdicts:
    """Audit maxima.

    **Scenario.** A log of exact maxima over known groups; success is one person's number.
    **Method.** Everybody is at most the least maximum of the groups they are in. Each group needs somebody who
    reaches its maximum; where one person alone can, that person's number is known (Chin 1986).
    **Outcome.** Status and bounds for each person.
    """
    _check_shapes(groups, answers)
    high = np.array([answers[groups[:, person]].min(initial=np.inf) for person in range(groups.shape[1])])
    lows = np.full(groups.shape[1], float(low))
    for group, answer in zip(groups, answers, strict=True):
        able = np.flatnonzero(group & (high == answer))
        if not len(able):
            raise ParameterError("No values have these maxima", expected="Exact maxima of one and the same population")
        if len(able) == 1:
            lows[able[0]] = answer
    status = np.where(lows == high, Status.DETERMINED, Status.OPEN).astype(np.int8)
    return Verdicts(status, lows, high)
