"""Exact inversion: draws from a discrete law by comparing a lazily revealed uniform number with its cumulative weights.

A law need not be known exactly, only to any precision asked for. The table keeps, in units of 2**-48, integers
floor[k] <= 2**48 * P(outcome <= k) <= ceiling[k]. With the first 48 bits w of U, outcome k is certain when
ceiling[k - 1] <= w < floor[k]. Otherwise (about once in 10**11 draws) more bits are revealed and the law is asked for
more precision, without end: the draw follows the law exactly, not merely to 48 bits.
Most draws are certain after 16 bits, which a guide with one entry for each 16-bit prefix tells at once.
"""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from itertools import accumulate
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers.entropy import Entropy, Reader, draw_words
from deniable.dp.samplers.exponential import GUARD, STEP, Enclosure

PREFIX = 16  # bits of U revealed for every draw
REST = 32  # bits revealed when the prefix does not decide
BITS = PREFIX + REST
WORTH_A_GUIDE = 4096  # draws for which building the guide pays
UNDECIDED = -1  # in a guide of 16-bit outcomes: every law here lists fewer than 2**15 of them


class Law(Protocol):
    """A distribution on outcomes 0, 1, 2, ..., given by enclosures of weights that need not sum to one."""

    def weights(self, precision: int) -> list[Enclosure]:
        """Weights of the first outcomes: all of them, or enough that the rest is of the order of 2**-precision."""
        ...

    def total(self, precision: int) -> Enclosure:
        """The sum of all weights, listed or not."""
        ...

    @property
    def finite(self) -> bool:
        """Whether `weights` always lists every outcome, so that the last one takes what is left."""
        ...


def accumulate_weights(law: Law, bits: int) -> tuple[list[int], list[int]]:
    """Integers floor[k] <= 2**bits * P(outcome <= k) <= ceiling[k] for the outcomes that matter at that precision."""
    precision = bits + GUARD
    listed, (least, most) = law.weights(precision), law.total(precision)
    floors = [(low << bits) // most for low in accumulate(low for low, _ in listed)]
    ceilings = [-(-(high << bits) // least) for high in accumulate(high for _, high in listed)]
    if law.finite:
        floors[-1] = ceilings[-1] = 1 << bits
    return floors, [min(high, 1 << bits) for high in ceilings]


def settle(law: Law, word: int, bits: int, reader: Reader) -> int:
    """The outcome for a U in [word, word + 1) / 2**bits, revealing more of U until it is certain."""
    while True:
        floors, ceilings = accumulate_weights(law, bits)
        outcome = bisect_right(floors, word)
        if outcome < len(floors) and (outcome == 0 or ceilings[outcome - 1] <= word):
            return outcome
        word, bits = word << STEP | reader.integer(STEP), bits + STEP


class Table:
    """The cumulative weights of one law, ready for many draws."""

    def __init__(self, law: Law) -> None:
        floors, ceilings = accumulate_weights(law, BITS)
        self._law = law
        self._floors = np.array(floors, dtype=np.int64)
        self._ceilings = np.array([0, *ceilings], dtype=np.int64)  # ceilings[k] bounds what lies before outcome k

    def draw(self, size: int, entropy: Entropy) -> NDArray[np.int64]:
        """`size` independent outcomes."""
        prefix = draw_words(entropy, PREFIX, size)
        if size < WORTH_A_GUIDE:
            return self._finish(prefix, entropy)
        outcomes: NDArray[np.int64] = self._guide[prefix].astype(np.int64)
        open_ = np.flatnonzero(outcomes == UNDECIDED)
        outcomes[open_] = self._finish(prefix[open_], entropy)
        return outcomes

    def _finish(self, prefix: NDArray[np.uint16], entropy: Entropy) -> NDArray[np.int64]:
        """Reveal the rest of the 48 bits and search; what is still uncertain is settled one by one."""
        rest = draw_words(entropy, REST, prefix.size)
        word = prefix.astype(np.int64) << REST | rest
        outcomes: NDArray[np.int64] = np.searchsorted(self._floors, word, side="right")
        uncertain = (outcomes == self._floors.size) | (self._ceilings[outcomes] > word)
        for i in np.flatnonzero(uncertain):
            outcomes[i] = settle(self._law, int(word[i]), BITS, Reader(entropy))
        return outcomes

    @cached_property
    def _guide(self) -> NDArray[np.int16]:
        """For each prefix the outcome that is certain whatever the remaining bits are, or UNDECIDED."""
        first = -(-self._ceilings[:-1] >> REST)
        counts = np.maximum((self._floors >> REST) - first, 0)
        ends = np.cumsum(counts)
        guide = np.full(1 << PREFIX, UNDECIDED, dtype=np.int16)
        cells = np.arange(ends[-1]) + np.repeat(first - (ends - counts), counts)
        guide[cells] = np.repeat(np.arange(counts.size), counts)
        return guide
