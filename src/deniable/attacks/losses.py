"""Losses: was a record among those a model was trained on, told by how well the model fits it?

Any model will do that gives a loss for a record: minus the logarithm of the probability of the true label, a squared
error. What is here sees losses, never a model or a record.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from deniable.attacks.base import Outcome
from deniable.attacks.membership import likelihood_ratio, membership
from deniable.errors import ParameterError

Losses = NDArray[np.float64]
_SMALL = 1e-12


def by_loss(members: Losses, others: Losses, *, alarm: float = 0.01) -> Outcome:
    """Claim membership of records that a model fits well.

    **Scenario.** The intruder can ask a trained model for its loss on a record (or for the probability it gives to the
    true label) and claims "was trained on it" below a threshold; success is a member claimed.
    **Method.** One threshold for all records (Yeom et al. 2018), set on every second of the others and tested on the
    rest.
    **Outcome.** As `membership`: true positives at 1% and 0.1% false positives with their intervals.
    """
    _check(members, others)
    return membership(-np.asarray(members, np.float64), -np.asarray(others, np.float64), alarm=alarm,
                      name="membership by loss")  # fmt: skip


def by_shadows(
    losses: Losses, inside: NDArray[np.bool_], seen: Losses, was_inside: NDArray[np.bool_], *, alarm: float = 0.01
) -> Outcome:
    """Claim membership by what shadow models say of each record by itself.

    **Scenario.** The intruder has trained models of the same kind on samples that hold a record and on samples that do
    not, and sees the loss of the true model on it; success is a member claimed.
    **Method.** `losses` has one row a shadow model and one column a record, `inside` says which records each was
    trained on. Losses are put on the scale of logits, where they are nearly normal; a record's claim is the ratio of
    the likelihoods of the `seen` loss inside and outside (Carlini et al. 2022). A record that is hard for everybody is
    not taken for a stranger, nor an easy one for a member.
    **Outcome.** As `membership`; `was_inside` scores it.
    """
    if losses.shape != inside.shape or losses.shape[1:] != seen.shape or seen.shape != was_inside.shape:
        raise ParameterError("The shadow models and the records do not agree",
                             expected="One row a model, one column a record, and one seen loss for each")  # fmt: skip
    if not (inside.any(axis=0) & ~inside.all(axis=0)).all():
        raise ParameterError("Some record was in every shadow model, or in none",
                             expected="Each record in about half of the models")  # fmt: skip
    _check(losses.reshape(-1), seen)
    ratio = likelihood_ratio(logits(losses), inside, logits(seen))
    return membership(ratio[was_inside], ratio[~was_inside], alarm=alarm, name="membership by shadow models")


def logits(losses: Losses) -> Losses:
    """Losses as logits of the probability given to the truth, higher for a better fit; p = e^-loss.

    ln(p / (1 - p)) = -loss - ln(1 - e^-loss), written so that tiny losses keep their digits.
    """
    kept = np.maximum(np.asarray(losses, np.float64), _SMALL)
    return np.asarray(-kept - np.log(-np.expm1(-kept)))


def most_found(alarm: float, epsilon: float, delta: float = 0.0) -> float:
    """The most members that any attack finds at a false positive rate, when training was (epsilon, delta)-DP.

    hits <= e^epsilon alarm + delta, and 1 - alarm <= e^epsilon (1 - hits) + delta.

    >>> round(most_found(0.01, 1.0), 4)
    0.0272
    """
    if not 0 <= alarm <= 1 or epsilon < 0 or not 0 <= delta < 1:
        raise ParameterError("This is no false positive rate, or no claim", expected="0 <= alarm <= 1, epsilon >= 0")
    power = math.exp(min(epsilon, 700.0))
    return min(1.0, power * alarm + delta, 1 - (1 - alarm - delta) / power)


def _check(members: Losses, others: Losses) -> None:
    if not (np.isfinite(members).all() and np.isfinite(others).all()):
        raise ParameterError("A loss is not a number", expected="A finite loss for each record")
