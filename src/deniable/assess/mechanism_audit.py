"""Our own mechanisms, audited: the distinguishing game and the lower bound on epsilon, on two worst-case neighbors.

The neighbors are two tables that differ in one person, as a mechanism sees them: the counts 0 and 1, the scores that
one person turns, the answers yes and no. Nobody's data is touched, and nothing is charged.

Training and synthesis are too slow to be run thousands of times, so many canaries share one run. A canary is a person
with a value of their own, put into the table or left out by a coin. The intruder sees what was learned, scores every
canary by what was learned of its value, and calls the highest in and the lowest out. Epsilon limits how many of these
calls are right (Steinke, Nasr and Jagielski 2023)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from deniable.attacks.dp_audit import Game, Run, Runs, audit, audit_one_run, play_distinguishing_game
from deniable.attacks.outcome import Progress, Rate, tell
from deniable.dp.mechanisms import ExponentialMechanism, GaussianMechanism, LaplaceMechanism
from deniable.errors import ParameterError, nearest
from deniable.localdp.frequency.randomized_response import Direct
from deniable.policy.budget import ApproxDP, budget
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, TableSchema
from deniable.release.record import Record

Neighbors = tuple[Runs, Runs]
MOST_POINTS = 40


@dataclass(frozen=True, slots=True)
class Claim:
    """What is audited: a mechanism, the epsilon and delta claimed of it, and what it really spends."""

    mechanism: str
    epsilon: Fraction
    delta: Fraction = Fraction(0)
    spends: Fraction | None = None
    runs: int = 20_000
    confidence: float = 0.999


def _laplace(epsilon: Fraction, _: Fraction) -> Neighbors:
    made = LaplaceMechanism.within(budget(epsilon))
    return tuple(_release_counts(made.release, count) for count in (0, 1))  # type: ignore[return-value]


def _gaussian(epsilon: Fraction, delta: Fraction) -> Neighbors:
    # A sensitivity of 20 steps: the grid on which the noise is drawn is then fine beside the noise.
    made = GaussianMechanism.within(budget(epsilon, delta), 20)
    return tuple(_release_counts(made.release, count) for count in (0, 20))  # type: ignore[return-value]


def _release_counts(release: Callable[[Any], Any], count: int) -> Runs:
    return lambda runs: release(np.full(runs, count, np.int64))


def _exponential(epsilon: Fraction, _: Fraction) -> Neighbors:
    made = ExponentialMechanism(epsilon)
    sides = ([1, 0, 0, 0], [0, 1, 1, 1])  # one person who moves every score, each by one, against the first
    return tuple(lambda runs, side=side: np.array([made.release(side) for _ in range(runs)]) for side in sides)  # type: ignore[return-value]


def _response(epsilon: Fraction, _: Fraction) -> Neighbors:
    made = Direct.calibrate(2, epsilon)
    return tuple(lambda runs, answer=answer: made.randomize(np.full(runs, answer))[0] for answer in (0, 1))  # type: ignore[return-value]


MECHANISMS: tuple[tuple[str, Callable[[Fraction, Fraction], Neighbors], str], ...] = (
    ("laplace", _laplace, "a count with Laplace noise, of 0 and of 1 people"),
    ("gaussian", _gaussian, "a sum with Gaussian noise, with and without one person; needs delta"),
    ("exponential", _exponential, "a choice of four by scores that one person moves"),
    ("response", _response, "one person's randomized response, who would say no and who would say yes"),
)
"""Every mechanism that can be audited, with its neighbors in words."""


TRAINED, LEARNED = 400, 4000
"""Canaries of a training, in which each has an entry of its own, and of a synthesis."""
SURE = 10
"""One canary in so many is called: those whose scores stand out most."""


def _train(epsilon: Fraction, delta: Fraction) -> Run:
    """A linear model of pay by who one is; the intruder sees all that its training releases, which is more than itself.

    A canary's score is the noisy count of its own value.
    """
    from deniable.learn.features import encode_rows, encode_target
    from deniable.learn.linear import LinearPlan, sum_moments
    from deniable.learn.training import Task, plan_training

    who = Column("who", ColumnType.INTEGER, categories=tuple(range(TRAINED)), nullable=False)
    pay = Column("pay", ColumnType.DECIMAL, bounds=Bounds(Fraction(0), Fraction(1)), nullable=False)
    unit = PrivacyUnit()
    what = plan_training(TableSchema("canaries", "", (who, pay), unit), unit, Task("pay"), ApproxDP(epsilon, delta))
    assert isinstance(what.plan, LinearPlan)
    plan = what.plan

    def run(inside: Any) -> Any:
        rows = pa.table({"who": np.flatnonzero(inside), "pay": np.ones(int(inside.sum()))})
        wanted, known = encode_target(what.target, rows)
        released = plan.mechanism.release(sum_moments(encode_rows(what.design, rows)[known], wanted[known]))
        return released[1 : TRAINED + 1]

    return run


def _synthesize(epsilon: Fraction, delta: Fraction) -> Run:
    """A description of one column in which each canary has a value of its own: its score is the value's noisy count."""
    from deniable.synth.domain import Domain
    from deniable.synth.marginal import convert_budget
    from deniable.synth.methods import METHODS, run_method

    domain, spend = Domain(("who",), (LEARNED,)), convert_budget(ApproxDP(epsilon, delta), 1)

    def run(inside: Any) -> Any:
        codes = np.flatnonzero(inside).astype(np.int32)[None, :]
        return run_method(codes, domain, METHODS["independent"], spend).one_way[0].counts.ravel()

    return run


ONE_RUN: dict[str, tuple[Callable[[Fraction, Fraction], Run], int, str]] = {
    "training": (_train, TRAINED, f"which of {TRAINED} people a linear model was trained on; needs delta"),
    "synthesis": (_synthesize, LEARNED, f"which of {LEARNED} people a synthetic model was learned from; needs delta"),
}
"""What is audited by one run: how it is run, how many canaries it has, and the question in words."""


def audit_in_one_run(
    name: str, spent: Fraction, epsilon: float, delta: Fraction, confidence: float
) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """The game, the proof and whether the claim is refuted, as plain values; a game is one call about one canary."""
    make, canaries, _ = ONE_RUN[name]
    found = audit_one_run(
        make(spent, delta), canaries, epsilon=epsilon, delta=float(delta), guesses=canaries // SURE,
        confidence=confidence,
    )  # fmt: skip
    most = 1 / (1 + math.exp(-epsilon))
    game = {"wins": Rate(found.correct, found.guesses).as_dict(), "most": most, "points": []}
    return game, asdict(found) | {"sentence": str(found)}, found.violated


def make_neighbors(name: str, epsilon: Fraction, delta: Fraction) -> tuple[Neighbors, str]:
    """The mechanism on two neighbors, and what they are."""
    for known, make, words in MECHANISMS:
        if known == name:
            return make(epsilon, delta), words
    names = [*(known for known, _, _ in MECHANISMS), *ONE_RUN]
    expected = f"One of {', '.join(names)}"
    raise ParameterError(f"There is no mechanism '{name}' to audit", expected=expected, remedy=nearest(name, names))


@dataclass(frozen=True, slots=True, eq=False)
class AuditReport(Record):
    """The distinguishing game against a mechanism: the best attacker's wins, and a proven lower bound on epsilon."""

    mechanism: str
    neighbors: str
    epsilon: float
    delta: float
    runs: int
    game: dict[str, Any]
    audit: dict[str, Any]
    failed: bool


def audit_claim(claim: Claim, progress: Progress | None = None) -> AuditReport:
    """Play the game and bound epsilon from below; plain values for the page and for JSON."""
    if claim.mechanism in ("gaussian", *ONE_RUN) and not 0 < claim.delta < 1:
        raise ParameterError("Gaussian noise has no epsilon without a delta", remedy="Say --delta 1e-5")
    spent = claim.epsilon if claim.spends is None else claim.spends
    if claim.mechanism in ONE_RUN:
        return _audit_in_one_run(claim, spent)
    (left, right), words = make_neighbors(claim.mechanism, spent, claim.delta)
    epsilon, delta = float(claim.epsilon), float(claim.delta)
    game = play_distinguishing_game(left, right, epsilon=epsilon, delta=delta, runs=claim.runs, points=MOST_POINTS)
    tell(progress, 0.5)
    bound = audit(left, right, epsilon=epsilon, delta=delta, runs=claim.runs, confidence=claim.confidence)
    tell(progress, 1.0)
    proven = asdict(bound) | {"sentence": str(bound)}
    return AuditReport(
        claim.mechanism, words, epsilon, delta, claim.runs, game=_plain(game), audit=proven, failed=bound.violated
    )


def _audit_in_one_run(claim: Claim, spent: Fraction) -> AuditReport:
    epsilon, delta = float(claim.epsilon), float(claim.delta)
    game, proof, failed = audit_in_one_run(claim.mechanism, spent, epsilon, claim.delta, claim.confidence)
    return AuditReport(claim.mechanism, ONE_RUN[claim.mechanism][2], epsilon, delta, 1, game, proof, failed)


def _plain(game: Game) -> dict[str, Any]:
    return {"wins": game.wins.as_dict(), "most": game.bound, "points": [asdict(point) for point in game.points]}
