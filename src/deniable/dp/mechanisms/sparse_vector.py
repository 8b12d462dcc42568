"""The sparse vector technique: many questions against a threshold, paying only for those that pass it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting.calibration import epsilon_of
from deniable.dp.accounting.events import PureEvent, SelfComposedEvent
from deniable.dp.mechanisms.mechanism import (
    Integers,
    LaplaceMechanism,
    add_noise,
    require_drawable,
    require_positive,
    split_alpha,
    take_integers,
)
from deniable.dp.samplers import SYSTEM, Entropy, discrete_laplace
from deniable.errors import ParameterError
from deniable.policy.budget import Amount, Budget, split


@dataclass(frozen=True, slots=True)
class AboveThreshold:
    """Finds, in order, the first answers whose noisy value reaches a noisy threshold; stops after `times` of them.

    Each find is a run of its own with fresh noise on the threshold and on every answer, and pays epsilon. Going on
    with the old threshold noise after a find would give away more than was paid (Lyu, Su, Li 2017).

    **Guarantee.** times * epsilon, pure, for answers that one unit moves by at most `sensitivity` each. Split epsilon
    in e1 for the threshold and e2 for the answers. Fix the noise of the answers passed over and shift the threshold
    noise by `sensitivity`, so that they still stay below: a factor exp(e1) with scale sensitivity / e1. The found
    answer must then make up for both shifts, 2 * sensitivity: a factor exp(e2) with scale 2 sensitivity / e2. With
    e1 = epsilon / 3 both scales are 3 sensitivity / epsilon. If all answers move one way (`monotonic`), the found
    answer needs one shift only, and with e1 = epsilon / 2 both scales are 2 sensitivity / epsilon.
    **Utility.** With probability 1 - alpha no find is more than accuracy(alpha, size) below the threshold, and no
    answer passed over more than that above it.
    **Runtime.** Linear in the answers, times `times`.

    >>> AboveThreshold(threshold=100, epsilon=1).scale
    Fraction(3, 1)
    """

    threshold: int
    epsilon: Fraction
    sensitivity: Fraction = Fraction(1)
    monotonic: bool = False
    times: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", require_positive(self.epsilon, "epsilon"))
        object.__setattr__(self, "sensitivity", require_positive(self.sensitivity, "sensitivity"))
        require_drawable(self.scale, "scale")
        if isinstance(self.times, bool) or self.times < 1:
            raise ParameterError("times is below 1", expected="how many finds are paid for, at least 1")

    @classmethod
    def within(
        cls, budget: Budget, threshold: int, sensitivity: Amount = 1, *, monotonic: bool = False, times: int = 1
    ) -> AboveThreshold:
        """The least noise with which so many finds keep a budget together."""
        if times < 1:
            raise ParameterError("times is below 1", expected="how many finds are paid for, at least 1")
        each = epsilon_of(split(budget, (Fraction(1),) * times)[0])
        return cls(threshold, each, require_positive(sensitivity, "sensitivity"), monotonic, times)

    @property
    def scale(self) -> Fraction:
        """The scale of the noise on the threshold and on each answer."""
        return (2 if self.monotonic else 3) * self.sensitivity / self.epsilon

    @property
    def event(self) -> SelfComposedEvent:
        """One epsilon-DP run for each find that is paid for, made or not."""
        return SelfComposedEvent(PureEvent(self.epsilon), self.times)

    def accuracy(self, alpha: float, size: int = 1) -> int:
        """How far from the threshold an answer among `size` can be on the wrong side, but with probability alpha."""
        noise, half = LaplaceMechanism(self.scale), split_alpha(alpha, 2)
        return noise.accuracy(half, self.times) + noise.accuracy(half, size * self.times)

    def release(self, values: Integers, entropy: Entropy = SYSTEM) -> NDArray[np.int64]:
        """The positions of the answers found, at most `times`, in order."""
        answers = take_integers(values, "answers")
        found: list[int] = []
        start = 0
        while len(found) < self.times and start < answers.size:
            first = self._first(answers[start:], entropy)
            if first is None:
                break
            found.append(start + first)
            start += first + 1
        return np.array(found, dtype=np.int64)

    def _first(self, answers: NDArray[Any], entropy: Entropy) -> int | None:
        """The first answer that reaches the threshold, under fresh noise."""
        threshold = self.threshold + int(discrete_laplace(self.scale, 1, entropy=entropy)[0])
        noisy = add_noise(answers, discrete_laplace(self.scale, answers.size, entropy=entropy))
        above = np.flatnonzero(noisy >= threshold)
        return int(above[0]) if above.size else None
