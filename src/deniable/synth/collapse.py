"""Collapsing rare values: what the noise hides anyway need not be measured in pairs.

Values whose noisy count is within a few deviations of zero are joined into one "rare" value for everything beyond the
one-way marginals. Values of an ordered column are joined with their neighbors instead, into stretches that hold enough
records. When rows are drawn, a joined value becomes one of its members in proportion to their estimates. All decided
from noisy counts, so it costs nothing: this is how numbers and dates are discretized.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable.synth.domain import Domain
from deniable.synth.marginal import Codes, Floats, Marginal

DEVIATIONS = 3.0
STRETCHES = 32
"""The most stretches that an ordered column is cut into."""


@dataclass(frozen=True, slots=True, eq=False)
class Collapsed:
    """For each column: the new code of each old one; the last new code stands for the rare ones, if there are any."""

    domain: Domain
    maps: tuple[NDArray[np.int32], ...]

    def apply(self, codes: Codes) -> Codes:
        """The coded table with rare values joined."""
        return np.stack([mapping[column] for mapping, column in zip(self.maps, codes, strict=True)]).astype(np.int32)

    def members(self, place: int, code: int) -> NDArray[np.int64]:
        """The old codes behind a new one."""
        return np.flatnonzero(self.maps[place] == code)

    def summed(self, place: int, counts: Floats) -> Floats:
        """Old one-way counts added up to new codes."""
        return np.bincount(self.maps[place], counts, self.domain.sizes[place]).astype(np.float64)

    def sizes(self, place: int) -> Floats:
        """How many old codes stand behind each new one."""
        return np.bincount(self.maps[place], minlength=self.domain.sizes[place]).astype(np.float64)


def collapse(domain: Domain, one_way: list[Marginal]) -> Collapsed:
    """Join the values that the noise hides."""
    maps = [_stretches(m) if place in domain.ordered else _rare(m) for place, m in enumerate(one_way)]
    sizes = tuple(int(mapping.max()) + 1 for mapping in maps)
    return Collapsed(domain.resized(sizes), tuple(maps))


def _rare(marginal: Marginal) -> NDArray[np.int32]:
    """Frequent values keep codes of their own, the rest share the last one; all keep theirs if that joins nothing."""
    seen = marginal.counts >= DEVIATIONS * np.sqrt(marginal.variance)
    if not seen.any() or (~seen).sum() <= 1:
        seen = np.ones_like(seen)
    mapping = np.full(seen.size, int(seen.sum()), dtype=np.int32)
    mapping[seen] = np.arange(int(seen.sum()), dtype=np.int32)
    return mapping


def _stretches(marginal: Marginal) -> NDArray[np.int32]:
    """Neighbors joined from the left until a stretch holds its part of the records, and more than its noise."""
    counts, deviation = marginal.counts, np.sqrt(marginal.variance)
    enough = max(float(np.maximum(counts, 0).sum()) / STRETCHES, 0.0)
    mapping = np.zeros(counts.size, dtype=np.int32)
    code, held, length = 0, 0.0, 0
    for place, count in enumerate(counts):
        if length and held >= max(enough, DEVIATIONS * deviation * np.sqrt(length)):
            code, held, length = code + 1, 0.0, 0
        mapping[place] = code
        held, length = held + count, length + 1
    return mapping
