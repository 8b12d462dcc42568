"""Ranges and quantiles: a hierarchy of intervals, each respondent reporting where they lie on one level of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy, uniform_below
from deniable.errors import DataError, ParameterError
from deniable.localdp.attributes import scale_up
from deniable.localdp.numeric.scale import Mean
from deniable.localdp.protocol import Answers, Frequencies, FrequencyProtocol, Responses, check_answers, normal_quantile
from deniable.localdp.protocol_choice import choose
from deniable.policy.budget import Amount


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
