"""Membership: was somebody's record among those that a release, a synthetic table or a model was made from?

Any score will do: closeness to a release, its density around a person, the loss of a trained model (minus the logarithm
of the probability of the true label, a squared error). The attacks on models see losses, never a model or a record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks.nearest_records import find_nearest, scale_tables
from deniable.attacks.outcome import Outcome, Rate
from deniable.errors import ParameterError

Scores = NDArray[np.float64]
FALSE_ALARMS = (0.01, 0.001)
FEWEST_TABLES = 4


@dataclass(frozen=True, slots=True)
class Curve:
    """How well scores tell members from others: the area under the curve, and members found at few false alarms.

    The interval of a rate is that of the members; where so few others leave not one false alarm, the threshold itself
    is uncertain, and `claim_membership` warns.
    """

    area: float
    at: tuple[tuple[float, Rate], ...]


def measure_separation(members: Scores, others: Scores, alarms: Sequence[float] = FALSE_ALARMS) -> Curve:
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


def claim_membership(members: Scores, others: Scores, *, alarm: float = 0.01, name: str = "membership") -> Outcome:
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
    curve = measure_separation(members, others)
    figures = {"area": curve.area} | {f"found_at_{share:g}": found.as_dict() for share, found in curve.at}
    few = f"fewer than {round(10 / alarm)} others: so few false alarms cannot be measured"
    scenario = f"Claiming that somebody was in the data{name.removeprefix('membership')}"
    return Outcome(
        name, scenario, Rate(int((members > limit).sum()), len(members)), alarm,
        Rate(int((tested > limit).sum()), len(tested)), figures=figures,
        warnings=(few,) if len(others) < 10 / alarm else (),
    )  # fmt: skip


def score_closeness(targets: pa.Table, released: pa.Table, columns: Sequence[str] | None = None) -> Scores:
    """The score by distance: how close the nearest released record is."""
    names = tuple(columns or [name for name in released.column_names if name in targets.column_names])
    theirs, ours = scale_tables([targets, released], names)
    found = find_nearest(theirs, ours, 1)[1]
    return -found[:, 0] if found.shape[1] else np.full(targets.num_rows, -np.inf)


def score_density(
    targets: pa.Table, released: pa.Table, reference: pa.Table, columns: Sequence[str] | None = None, neighbors: int = 5
) -> Scores:
    """The score by density: how much denser the release is around a person than a reference of other people.

    Distances to neighbors fall with the density; the mean logarithm of the first k in the reference, less that in the
    release, is high where the release has learned too much (overfitting shows locally: van Breugel et al. 2023).
    """
    names = tuple(columns or [name for name in released.column_names if name in targets.column_names])
    theirs, ours, public = scale_tables([targets, released, reference], names)
    near, usual = (find_nearest(theirs, part, neighbors)[1] for part in (ours, public))
    small = 1e-3  # an exact copy is at distance 0
    return np.asarray(np.log(usual + small).mean(axis=1) - np.log(near + small).mean(axis=1))


def compute_likelihood_ratio(scores: Scores, inside: NDArray[np.bool_], seen: Scores) -> Scores:
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


Losses = NDArray[np.float64]
_SMALL = 1e-12


def claim_by_loss(members: Losses, others: Losses, *, alarm: float = 0.01) -> Outcome:
    """Claim membership of records that a model fits well.

    **Scenario.** The intruder can ask a trained model for its loss on a record (or for the probability it gives to the
    true label) and claims "was trained on it" below a threshold; success is a member claimed.
    **Method.** One threshold for all records (Yeom et al. 2018), set on every second of the others and tested on the
    rest.
    **Outcome.** As `claim_membership`: true positives at 1% and 0.1% false positives with their intervals.
    """
    _check_losses(members, others)
    return claim_membership(-np.asarray(members, np.float64), -np.asarray(others, np.float64), alarm=alarm,
                      name="membership by loss")  # fmt: skip


def claim_by_shadow_losses(
    losses: Losses, inside: NDArray[np.bool_], seen: Losses, was_inside: NDArray[np.bool_], *, alarm: float = 0.01
) -> Outcome:
    """Claim membership by what shadow models say of each record by itself.

    **Scenario.** The intruder has trained models of the same kind on samples that hold a record and on samples that do
    not, and sees the loss of the true model on it; success is a member claimed.
    **Method.** `losses` has one row a shadow model and one column a record, `inside` says which records each was
    trained on. Losses are put on the scale of logits, where they are nearly normal; a record's claim is the ratio of
    the likelihoods of the `seen` loss inside and outside (Carlini et al. 2022). A record that is hard for everybody is
    not taken for a stranger, nor an easy one for a member.
    **Outcome.** As `claim_membership`; `was_inside` scores it.
    """
    if losses.shape != inside.shape or losses.shape[1:] != seen.shape or seen.shape != was_inside.shape:
        raise ParameterError("The shadow models and the records do not agree",
                             expected="One row a model, one column a record, and one seen loss for each")  # fmt: skip
    if not (inside.any(axis=0) & ~inside.all(axis=0)).all():
        raise ParameterError("Some record was in every shadow model, or in none",
                             expected="Each record in about half of the models")  # fmt: skip
    _check_losses(losses.reshape(-1), seen)
    ratio = compute_likelihood_ratio(convert_to_logits(losses), inside, convert_to_logits(seen))
    return claim_membership(ratio[was_inside], ratio[~was_inside], alarm=alarm, name="membership by shadow models")


def claim_by_shadow_tables(scores: Scores, inside: NDArray[np.bool_], *, alarm: float = 0.01) -> Outcome:
    """Claim membership by what a generator makes of samples that hold a record, and of samples that do not.

    **Scenario.** The intruder can run the same generator on people of the same kind, and sees one table that it made;
    success is somebody claimed who was in the sample behind that table.
    **Method.** `scores` has one row a table and one column a person (how near the table comes to them), `inside` who
    was in its sample. Each table is attacked in turn, the others being the shadows that say how a person's score lies
    when they are in and when they are not.
    **Outcome.** As `claim_membership`, over all tables.
    """
    if scores.shape != inside.shape or len(scores) < FEWEST_TABLES:
        raise ParameterError("There are too few tables to compare", expected=f"{FEWEST_TABLES} tables or more")
    members, others = [], []
    for place in range(len(scores)):
        rest = np.arange(len(scores)) != place
        able = inside[rest].any(axis=0) & ~inside[rest].all(axis=0)
        ratio = compute_likelihood_ratio(scores[rest][:, able], inside[rest][:, able], scores[place, able])
        members.append(ratio[inside[place, able]])
        others.append(ratio[~inside[place, able]])
    found = claim_membership(
        np.concatenate(members), np.concatenate(others), alarm=alarm, name="membership by shadow tables"
    )
    return replace(found, figures={**found.figures, "tables": len(scores)})


def convert_to_logits(losses: Losses) -> Losses:
    """Losses as logits of the probability given to the truth, higher for a better fit; p = e^-loss.

    ln(p / (1 - p)) = -loss - ln(1 - e^-loss), written so that tiny losses keep their digits.
    """
    kept = np.maximum(np.asarray(losses, np.float64), _SMALL)
    return np.asarray(-kept - np.log(-np.expm1(-kept)))


def bound_members_found(alarm: float, epsilon: float, delta: float = 0.0) -> float:
    """The most members that any attack finds at a false positive rate, when training was (epsilon, delta)-DP.

    hits <= e^epsilon alarm + delta, and 1 - alarm <= e^epsilon (1 - hits) + delta.

    >>> round(bound_members_found(0.01, 1.0), 4)
    0.0272
    """
    if not 0 <= alarm <= 1 or epsilon < 0 or not 0 <= delta < 1:
        raise ParameterError(
            "This is not a false positive rate, or not a claim", expected="0 <= alarm <= 1, epsilon >= 0"
        )
    power = math.exp(min(epsilon, 700.0))
    return min(1.0, power * alarm + delta, 1 - (1 - alarm - delta) / power)


def _check_losses(members: Losses, others: Losses) -> None:
    if not (np.isfinite(members).all() and np.isfinite(others).all()):
        raise ParameterError("A loss is not a number", expected="A finite loss for each record")
