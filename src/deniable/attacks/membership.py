"""Membership: was somebody's record among those that a release, a synthetic table or a model was made from?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks.base import Deadline, Outcome, Progress, Rate, tell
from deniable.attacks.nearest import mixed, nearest
from deniable.errors import ParameterError

Scores = NDArray[np.float64]
FALSE_ALARMS = (0.01, 0.001)


@dataclass(frozen=True, slots=True)
class Curve:
    """How well scores tell members from others: the area under the curve, and members found at few false alarms.

    The interval of a rate is that of the members; where so few others leave not one false alarm, the threshold itself
    is uncertain, and `membership` warns.
    """

    area: float
    at: tuple[tuple[float, Rate], ...]


def separation(members: Scores, others: Scores, alarms: Sequence[float] = FALSE_ALARMS) -> Curve:
    """The area under the ROC curve (ties count half), and the true positive rate at each false positive rate."""
    both = np.concatenate([members, others])
    _, inverse, counts = np.unique(both, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse.reshape(-1)]
    area = (ranks[: len(members)].sum() - len(members) * (len(members) + 1) / 2) / max(1, len(members) * len(others))
    found = []
    for alarm in alarms:
        allowed = int(alarm * len(others))
        limit = np.sort(others)[::-1][allowed] if allowed < len(others) else -np.inf
        found.append((alarm, Rate(int((members > limit).sum()), len(members))))
    return Curve(float(area), tuple(found))


def membership(members: Scores, others: Scores, *, alarm: float = 0.01, name: str = "membership") -> Outcome:
    """Claim membership of those who score above a threshold that `alarm` of the others would pass.

    **Scenario.** The intruder has a score for each person (closeness to a release, loss of a model) and claims "was in
    it" above a threshold; success is a member claimed.
    **Method.** The threshold is set on every second of the others and tested on the rest, so that the false alarms are
    honest.
    **Outcome.** Members claimed; the control counts others claimed; figures hold the area under the curve and the
    true positive rates at 1% and 0.1% false positives.
    """
    if not len(members) or len(others) < 2:
        raise ParameterError("There is nobody to compare", expected="Scores of members, and of two others or more")
    chosen, tested = others[::2], others[1::2]
    allowed = int(alarm * len(chosen))
    limit = np.sort(chosen)[::-1][allowed]
    curve = separation(members, others)
    figures = {"area": curve.area} | {f"found_at_{share:g}": found.as_dict() for share, found in curve.at}
    few = f"fewer than {round(10 / alarm)} others: so few false alarms cannot be measured"
    return Outcome(
        name, "Claiming that somebody was in the data", Rate(int((members > limit).sum()), len(members)), alarm,
        Rate(int((tested > limit).sum()), len(tested)), figures=figures,
        warnings=(few,) if len(others) < 10 / alarm else (),
    )  # fmt: skip


def closeness(targets: pa.Table, released: pa.Table, columns: Sequence[str] | None = None) -> Scores:
    """The score by distance: how close the nearest released record is."""
    names = tuple(columns or [name for name in released.column_names if name in targets.column_names])
    theirs, ours = mixed([targets, released], names)
    found = nearest(theirs, ours, 1)[1]
    return -found[:, 0] if found.shape[1] else np.full(targets.num_rows, -np.inf)


def density(
    targets: pa.Table, released: pa.Table, reference: pa.Table, columns: Sequence[str] | None = None, neighbors: int = 5
) -> Scores:
    """The score by density: how much denser the release is around a person than a reference of other people.

    Distances to neighbors fall with the density; the mean logarithm of the first k in the reference, less that in the
    release, is high where the release has learned too much (overfitting shows locally: van Breugel et al. 2023).
    """
    names = tuple(columns or [name for name in released.column_names if name in targets.column_names])
    theirs, ours, public = mixed([targets, released, reference], names)
    near, usual = (nearest(theirs, part, neighbors)[1] for part in (ours, public))
    small = 1e-3  # an exact copy is at distance 0
    return np.asarray(np.log(usual + small).mean(axis=1) - np.log(near + small).mean(axis=1))


Train = Callable[[NDArray[np.int64], int], Callable[[NDArray[np.int64]], Scores]]
"""Trains on the rows at these places with a seed; gives back a scoring of rows, higher for what it fits better."""


def shadow_models(
    train: Train,
    population: int,
    *,
    shadows: int = 16,
    seed: int = 0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Learn from models trained on random halves how a record scores when it was in and when it was not.

    **Scenario.** The intruder can train the same kind of model (or make the same kind of release) on people like the
    targets, and sees the score of the true one; success is a member claimed.
    **Method.** Shadow models on random halves give each record a distribution of scores inside and outside; the claim
    is by the ratio of two normal likelihoods (Carlini et al. 2022). The last model plays the victim.
    **Outcome.** As `membership`.
    """
    if shadows < 4 or population < 4:
        raise ParameterError("Too few shadow models or people", expected="At least 4 of each")
    generator, deadline = np.random.default_rng(seed), Deadline(seconds)
    inside, scores = np.zeros((shadows + 1, population), np.bool_), np.zeros((shadows + 1, population))
    everybody = np.arange(population)
    for number in range(shadows + 1):
        deadline.check()
        chosen = generator.permutation(population)[: population // 2]
        inside[number, chosen] = True
        scores[number] = train(np.sort(chosen), int(generator.integers(2**31)))(everybody)
        tell(progress, (number + 1) / (shadows + 1))
    ratio = likelihood_ratio(scores[:-1], inside[:-1], scores[-1])
    return membership(ratio[inside[-1]], ratio[~inside[-1]], name="membership by shadow models")


def likelihood_ratio(scores: Scores, inside: NDArray[np.bool_], seen: Scores) -> Scores:
    """Log-likelihood of the seen score inside less outside; spreads are pooled over people, means are each person's.

    `scores` and `inside` have one row a shadow model and one column a person.
    """
    likelihood = []
    for group in (inside, ~inside):
        count = np.maximum(1, group.sum(axis=0))
        mean = np.where(group, scores, 0).sum(axis=0) / count
        spread = np.sqrt((np.where(group, scores - mean, 0) ** 2).sum() / max(1, group.sum() - len(mean))) + 1e-9
        likelihood.append(-(((seen - mean) / spread) ** 2) / 2 - np.log(spread))
    return np.asarray(likelihood[0] - likelihood[1])
