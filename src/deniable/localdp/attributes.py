"""Several questions to one respondent: answer one of them, drawn at random, with the whole epsilon; or split it.

Ranges and quantiles are asked in this way, too: the questions are the levels of a hierarchy of intervals.
"""

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
from deniable.localdp.protocol import Answers, Frequencies, FrequencyProtocol, Responses, check_answers, normal_quantile
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


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A tree of intervals over positions 0 .. fanout^levels - 1 (Cormode, Kulkarni, Srivastava 2019).

    **Guarantee**: epsilon-local DP (replace one position): a respondent speaks once, on a level drawn at random.
    **Utility**: a range of any length errs by about 2 (fanout - 1) levels^2 variances over n, less after the levels
    are made consistent; flat counts err in proportion to the length.
    **Runtime**: one response a respondent; the tree has fanout^levels leaves.
    """

    fanout: int
    protocols: tuple[FrequencyProtocol, ...]

    def __post_init__(self) -> None:
        if self.fanout < 2 or not self.protocols:
            raise ParameterError("the hierarchy has no levels", expected="A fan-out of at least 2, one level or more")

    @classmethod
    def calibrate(cls, positions: int, epsilon: Amount, n: int, fanout: int = 4) -> Hierarchy:
        """The hierarchy over at least that many positions, each level with its best protocol."""
        if fanout < 2 or not 2 <= positions <= 1 << 20:
            raise ParameterError(f"{positions} positions in a fan-out of {fanout}", expected="2 to 1048576 positions")
        sizes = [fanout]
        while sizes[-1] < positions:
            sizes.append(sizes[-1] * fanout)
        heard = max(1, n // len(sizes))
        return cls(fanout, tuple(choose(size, epsilon, heard).protocol for size in sizes))

    @property
    def leaves(self) -> int:
        """Positions at the bottom."""
        return int(self.fanout ** len(self.protocols))

    @property
    def odds(self) -> Fraction:
        """The odds of one response."""
        return max(protocol.odds for protocol in self.protocols)

    def randomize(self, positions: Answers, entropy: Entropy = SYSTEM) -> tuple[Responses, ...]:
        """For each level, coarsest first, the responses of those who drew it."""
        checked = check_answers(positions, self.leaves)
        drawn = uniform_below(len(self.protocols), len(checked), entropy=entropy)
        return tuple(
            protocol.randomize(checked[drawn == level] * protocol.domain // self.leaves, entropy)
            for level, protocol in enumerate(self.protocols)
        )

    def estimate(self, responses: Sequence[Responses]) -> Ranges:
        """The consistent leaf counts, ready for ranges and quantiles."""
        n = sum(len(level[0]) for level in responses)
        if n == 0:
            raise DataError("there are no responses", remedy="Collect responses first")
        levels = [
            scale_up(protocol.estimate(protocol.tally(heard), len(heard[0])), n)
            for protocol, heard in zip(self.protocols, responses, strict=True)
        ]
        return Ranges(
            make_consistent(levels, self.fanout, n), tuple(float(level.variances.mean()) for level in levels), n
        )


def make_consistent(levels: Sequence[Frequencies], fanout: int, n: int) -> NDArray[np.float64]:
    """Leaf counts after generalized least squares on the tree: children add up to parents, the root to n.

    Upwards, a node is the average of its own count and its children's sum, weighted by inverse variance; downwards,
    each child takes an equal part of what its parent still differs by (Hay, Rastogi, Miklau, Suciu 2010).
    """
    merged = [level.counts for level in levels]
    # A level nobody drew has infinite variance; a very large one gives it the same weight of nothing.
    variance = [min(float(level.variances.mean()), 1e300) for level in levels]
    below = variance[-1]
    for height in range(len(levels) - 2, -1, -1):
        sums, summed = merged[height + 1].reshape(-1, fanout).sum(axis=1), fanout * below
        weight = summed / (summed + variance[height])
        merged[height] = weight * merged[height] + (1 - weight) * sums
        below = variance[height] * weight
    parents = np.array([float(n)])
    for counts in merged:
        gap = parents - counts.reshape(-1, fanout).sum(axis=1)
        parents = counts + np.repeat(gap / fanout, fanout)
    return parents


@dataclass(frozen=True, slots=True)
class Ranges:
    """Consistent counts of positions, with the variance of a node on each level."""

    counts: NDArray[np.float64]
    level_variances: tuple[float, ...]
    responses: int

    def share(self, start: int, end: int) -> Mean:
        """The share of respondents at positions start up to but excluding end, with a conservative error.

        The error is that of the fewest tree nodes that tile the range, before consistency made it smaller.
        """
        if not 0 <= start <= end <= len(self.counts):
            raise ParameterError(f"positions {start} to {end}", expected=f"Within 0 to {len(self.counts)}")
        variance = sum(count * self.level_variances[level] for level, count in self._tiles(start, end).items())
        whole = float(self.counts[start:end].sum())
        return Mean(whole / self.responses, float(np.sqrt(variance)) / self.responses, self.responses)

    def _tiles(self, start: int, end: int) -> dict[int, int]:
        """How many nodes of each level tile a range, or its complement if that takes fewer."""
        inside, before, after = (self._cover(*ends) for ends in ((start, end), (0, start), (end, len(self.counts))))
        outside = {level: before.get(level, 0) + after.get(level, 0) for level in {*before, *after}}
        return min((inside, outside), key=lambda tiles: sum(n * self.level_variances[at] for at, n in tiles.items()))

    def _cover(self, start: int, end: int) -> dict[int, int]:
        depth = len(self.level_variances)
        fanout = round(len(self.counts) ** (1 / depth))
        tiles: dict[int, int] = {}
        while start < end:
            size, level = 1, depth - 1
            while level > 0 and start % (size * fanout) == 0 and start + size * fanout <= end:
                size, level = size * fanout, level - 1
            tiles[level] = tiles.get(level, 0) + 1
            start += size
        return tiles

    def quantile(self, share: float, confidence: float = 0.95) -> tuple[int, int, int]:
        """The position below which this share of respondents lies, and an interval of positions around it."""
        if not 0 <= share <= 1:
            raise ParameterError(f"the share {share:g} is not a quantile", expected="Between 0 and 1")
        # Counts may be negative; the running maximum is the monotone curve that never undercuts what was seen.
        curve = np.maximum.accumulate(np.cumsum(self.counts)) / self.responses
        found = self._at(curve, share)
        reach = normal_quantile(confidence) * max(self.share(0, end).error for end in (found, found + 1))
        return found, self._at(curve, share - reach), self._at(curve, share + reach)

    def _at(self, curve: NDArray[np.float64], share: float) -> int:
        return min(int(np.searchsorted(curve, share, side="left")), len(curve) - 1)
