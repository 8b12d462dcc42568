"""Our own mechanisms, audited: the distinguishing game and the lower bound on epsilon, on two worst-case neighbors.

The neighbors are two tables that differ in one person, as a mechanism sees them: the counts 0 and 1, the scores that
one person turns, the answers yes and no. Nobody's data is touched, and nothing is charged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from deniable.assess.one_run_audit import ONE_RUN, audit_in_one_run
from deniable.attacks.dp_audit import Game, Runs, audit, play_distinguishing_game
from deniable.attacks.outcome import Progress, tell
from deniable.dp.mechanisms import ExponentialMechanism, GaussianMechanism, LaplaceMechanism
from deniable.errors import ParameterError, nearest
from deniable.localdp.frequency.randomized_response import Direct
from deniable.policy.budget import budget
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
