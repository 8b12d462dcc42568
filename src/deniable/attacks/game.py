"""The distinguishing game: two neighbors, one output; how often the best attacker wins, beside what epsilon allows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from deniable.attacks.audit import Runs
from deniable.attacks.base import Rate
from deniable.errors import ParameterError


@dataclass(frozen=True, slots=True)
class GamePoint:
    """One strategy of the attacker: false alarms and hits, and the most hits that (epsilon, delta) allows."""

    false_alarms: float
    hits: float
    bound: float


@dataclass(frozen=True, slots=True)
class Game:
    """The attacker's wins when a fair coin picks the neighbor, the most the claim allows, and the whole trade-off."""

    epsilon: float
    delta: float
    wins: Rate
    bound: float
    points: tuple[GamePoint, ...]

    @property
    def odds(self) -> float:
        """The bound as odds: e^epsilon to 1 when delta is 0."""
        return self.bound / (1 - self.bound) if self.bound < 1 else math.inf

    @property
    def beyond(self) -> bool:
        """Whether the attacker wins more often than the claim allows, beyond chance."""
        return self.wins.interval.low > self.bound


def distinguishing_game(
    left: Runs, right: Runs, *, epsilon: float, delta: float = 0.0, runs: int = 10_000, points: int = 40
) -> Game:
    """Play the game many times.

    **Scenario.** The attacker is given both neighboring tables and one output, drawn from either by a fair coin, and
    says which; success is the right one.
    **Method.** Half of the runs teach which outcomes are likelier under which neighbor, the other half are played.
    **Outcome.** The share of games won; under (epsilon, delta) at most (e^epsilon + delta)/(1 + e^epsilon).
    """
    if runs < 100:
        raise ParameterError("Fewer than 100 runs teach nothing", expected="Thousands of runs")
    samples = [np.asarray(side(runs), np.float64).reshape(runs, -1)[:, 0] for side in (left, right)]
    half = runs // 2
    edges = np.unique(np.quantile(np.concatenate([s[:half] for s in samples]), np.linspace(0, 1, 257)[1:-1]))
    bins = [np.searchsorted(edges, sample, side="right") for sample in samples]
    taught = [np.bincount(b[:half], minlength=len(edges) + 1) + 0.5 for b in bins]
    order = np.argsort(-taught[1] / taught[0], kind="stable")  # likeliest under the right neighbor first
    played = [np.bincount(b[half:], minlength=len(edges) + 1)[order] for b in bins]
    alarms, hits = (np.concatenate([[0.0], np.cumsum(part)]) / (runs - half) for part in played)
    says_right = (taught[1] > taught[0])[order]
    won = int(played[1][says_right].sum() + played[0][~says_right].sum())
    power = math.exp(min(epsilon, 700.0))
    kept = np.unique(np.linspace(0, len(alarms) - 1, points).astype(int))
    shown = tuple(GamePoint(float(alarms[i]), float(hits[i]), _most_hits(float(alarms[i]), power, delta)) for i in kept)
    return Game(epsilon, delta, Rate(won, 2 * (runs - half)), (power + delta) / (1 + power), shown)


def _most_hits(alarms: float, power: float, delta: float) -> float:
    """hits <= e^epsilon alarms + delta, and 1 - alarms <= e^epsilon (1 - hits) + delta."""
    return min(1.0, power * alarms + delta, 1 - (1 - alarms - delta) / power)
