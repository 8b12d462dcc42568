"""Several questions to one respondent: answer one of them, drawn at random, with the whole epsilon; or split it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy, uniform_below
from deniable.errors import DataError, ParameterError
from deniable.localdp.likelihood_ratio import check_epsilon
from deniable.localdp.numeric.mechanisms import Duchi, Hybrid
from deniable.localdp.numeric.scale import Mean, Scale, mean_of, worst_variance
from deniable.localdp.protocol import Answers, Frequencies, FrequencyProtocol, Responses
from deniable.localdp.protocol_choice import choose
from deniable.policy.budget import Amount

Asked = FrequencyProtocol | Duchi | Hybrid
"""What one attribute is asked with: a frequency protocol, or one of the two best for means."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """Protocols for several attributes of one respondent.

    **Guarantee**: epsilon-local DP for the whole record (replace one respondent's answers). Sampled: the attribute is
    drawn without looking at the answers, so the epsilon is the largest of the protocols'. Split: epsilons add up.
    **Utility**: sampling d attributes multiplies the variance by d, splitting divides epsilon by d, which for small
    epsilon multiplies it by about d^2: sampling is the default.
    **Runtime**: one response (sampled) or d responses (split) a respondent.
    """

    protocols: tuple[Asked, ...]
    sampled: bool = True

    @classmethod
    def calibrate(cls, domains: Sequence[int | Scale], epsilon: Amount, n: int, sampled: bool = True) -> Attributes:
        """For each attribute, a number of answers or a scale, the protocol of least variance at its epsilon."""
        if not domains:
            raise ParameterError("there are no attributes", expected="At least one domain")
        each = check_epsilon(epsilon) / (1 if sampled else len(domains))
        heard = max(1, n // len(domains)) if sampled else n
        return cls(tuple(_choose_best(domain, each, heard) for domain in domains), sampled)

    @property
    def odds(self) -> Fraction:
        """The odds of one respondent's whole message."""
        odds = [protocol.odds for protocol in self.protocols]
        if self.sampled:
            return max(odds)
        total = Fraction(1)
        for one in odds:
            total *= one
        return total

    def randomize(self, columns: Sequence[Answers], entropy: Entropy = SYSTEM) -> tuple[Responses, ...]:
        """Responses to each attribute: of everybody (split), or of those who drew it (sampled)."""
        lengths = {len(column) for column in columns}
        if len(columns) != len(self.protocols) or len(lengths) != 1:
            raise DataError("the columns do not match the attributes", expected=f"{len(self.protocols)} equal columns")
        if not self.sampled:
            return tuple(p.randomize(column, entropy) for p, column in zip(self.protocols, columns, strict=True))
        drawn = uniform_below(len(columns), lengths.pop(), entropy=entropy)
        return tuple(
            protocol.randomize(column[drawn == index], entropy)
            for index, (protocol, column) in enumerate(zip(self.protocols, columns, strict=True))
        )

    def estimate(self, responses: Sequence[Responses], n: int) -> tuple[Frequencies | Mean, ...]:
        """For each attribute, unbiased counts of its answers among all n respondents, or the mean of its numbers."""
        return tuple(
            _estimate_attribute(protocol, heard, n) for protocol, heard in zip(self.protocols, responses, strict=True)
        )


def _choose_best(domain: int | Scale, epsilon: Fraction, heard: int) -> Asked:
    if isinstance(domain, Scale):
        bit, hybrid = Duchi.calibrate(domain, epsilon), Hybrid.calibrate(domain, epsilon)
        return bit if worst_variance(bit) <= worst_variance(hybrid) else hybrid
    return choose(domain, epsilon, heard).protocol


def _estimate_attribute(protocol: Asked, heard: Responses, n: int) -> Frequencies | Mean:
    if isinstance(protocol, Duchi | Hybrid):
        return mean_of(protocol, heard)
    return scale_up(protocol.estimate(protocol.tally(heard), len(heard[0])), n)


def scale_up(heard: Frequencies, n: int) -> Frequencies:
    """Counts among n people from a random part of them.

    To the noise, which grows with the square of the factor, comes the luck of the draw: n^2 f (1 - f) / m, with the
    finite population factor 1 - m / n, for a share f seen in a sample of m.
    """
    sample = heard.responses
    if sample == 0:
        size = len(heard.counts)
        return Frequencies(np.full(size, n / size), np.full(size, np.inf), n)
    factor = n / sample
    shares: NDArray[np.float64] = np.clip(heard.shares, 0, 1)
    luck = n**2 * shares * (1 - shares) / sample * max(1 - sample / n, 0.0)
    return Frequencies(heard.counts * factor, heard.variances * factor**2 + luck, n)
