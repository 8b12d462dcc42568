"""Unary encoding: one bit for each possible answer, each bit randomized; and the random bit strings it is made of.

Bit strings are packed, low bit first. Biased bits are drawn exactly, many rows at once, and added up by columns; RAPPOR
and the count mean sketch draw and count theirs here too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import product
from typing import Any, ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy, uniform_below
from deniable.errors import ParameterError
from deniable.localdp.likelihood_ratio import check_epsilon, is_within_epsilon, odds_below
from deniable.localdp.protocol import (
    Answers,
    Bits,
    Frequencies,
    Layout,
    Outcome,
    Responses,
    check_answers,
    check_domain,
    estimate_from_support,
    support_variance,
)
from deniable.policy.budget import Amount


@dataclass(frozen=True, slots=True)
class Unary:
    """Unary encoding (Wang et al. 2017): the answer's bit is 1 with probability p, every other bit with q.

    **Guarantee**: epsilon-local DP (replace one answer), epsilon = ln(p (1-q) / (q (1-p))): two answers differ in two
    bits. p and q are multiples of 2^-16.
    **Utility**: optimized (p = 1/2): 4 e^eps / (e^eps - 1)^2 a respondent, whatever the domain; symmetric
    (p = 1 - q): e^(eps/2) / (e^(eps/2) - 1)^2.
    **Runtime**: one bit a possible answer, drawn and counted; message of as many bits.
    """

    name: ClassVar[str] = "unary"
    domain: int
    keep: int
    flip: int

    def __post_init__(self) -> None:
        check_domain(self.domain, 1 << 24)
        if not 0 < self.flip < self.keep < GRID:
            raise ParameterError(
                f"bits kept {self.keep} and flipped {self.flip} of {GRID}", expected="0 < flip < keep < 65536"
            )

    @classmethod
    def calibrate(cls, domain: int, epsilon: Amount) -> Unary:
        """p = 1/2: the least variance for a rare answer."""
        odds_below(epsilon, GRID)
        return cls(domain, GRID // 2, _smallest_flip(epsilon, 1))

    @classmethod
    def symmetric(cls, domain: int, epsilon: Amount) -> Unary:
        """Both kinds of bits flipped with 1 / (1 + e^(eps/2)), as in basic RAPPOR and the count mean sketch."""
        odds_below(epsilon, GRID)
        flip = _smallest_flip(epsilon, 2)
        return cls(domain, GRID - flip, flip)

    @property
    def p(self) -> Fraction:
        """Probability that the answer's bit is 1."""
        return Fraction(self.keep, GRID)

    @property
    def q(self) -> Fraction:
        """Probability that any other bit is 1."""
        return Fraction(self.flip, GRID)

    @property
    def odds(self) -> Fraction:
        """Two answers differ in two bits: one goes from p to q, the other from 1-q to 1-p."""
        return self.p * (1 - self.q) / (self.q * (1 - self.p))

    @property
    def layout(self) -> Layout:
        """A bit for each possible answer."""
        return (Bits("bits", self.domain),)

    def randomize(self, answers: Answers, entropy: Entropy = SYSTEM) -> Responses:
        """One bit string for each answer."""
        checked = check_answers(answers, self.domain)
        strings = draw_biased_bits(self.flip, len(checked), self.domain, entropy)
        kept = uniform_below(GRID, len(checked), entropy=entropy) < self.keep
        set_bits(strings, checked, kept)
        return (strings,)

    def tally(self, responses: Responses) -> NDArray[np.int64]:
        """How many strings have each bit set."""
        return sum_columns(responses[0], self.domain)

    def estimate(self, tally: NDArray[np.int64], responses: int) -> Frequencies:
        """Unbiased counts."""
        return estimate_from_support(tally, responses, self.p, self.q)

    def variance(self, share: float = 0.0) -> float:
        """Variance per respondent of an estimated count."""
        return support_variance(self.p, self.q, share)

    def likelihoods(self, answer: int) -> Iterator[tuple[Outcome, Fraction]]:
        """All 2^domain bit strings with their probabilities."""
        for string in product((0, 1), repeat=self.domain):
            likelihood = Fraction(1)
            for position, bit in enumerate(string):
                one = self.p if position == answer else self.q
                likelihood *= one if bit else 1 - one
            yield (string,), likelihood


def _smallest_flip(epsilon: Amount, differing: int) -> int:
    """The smallest q = flip / 2^16 for which ((1-q)/q)^differing <= e^epsilon, at least 1."""
    target = check_epsilon(epsilon) / differing
    # Monotone in flip: bisect between the impossible 0 and the useless half.
    low, high = 0, GRID // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_within_epsilon(Fraction(GRID - middle, middle), target) else (middle, high)
    if high == GRID // 2:
        raise ParameterError("epsilon is too small for 16-bit probabilities", expected="At least 0.001")
    return high


GRID_BITS = 16
GRID = 1 << GRID_BITS
_UNDECIDED = 256
_CHUNK_BYTES = 1 << 22


def draw_biased_bits(ones: int, rows: int, length: int, entropy: Entropy = SYSTEM) -> NDArray[np.uint8]:
    """`rows` strings of `length` independent bits, each 1 with probability ones / 65536 exactly; packed, low bit first.

    A byte of eight such bits has one of 256 values whose probabilities are multiples of 2^-128. Sixteen random bits
    decide which, unless they fall across a border between two values (255 of 65,536 do); then 112 more bits decide.
    Entropy used: about 2 bits for each bit drawn, against 16 by comparing each with a threshold.
    """
    if not 0 <= ones <= GRID:
        raise ParameterError(f"{ones} of {GRID} is not a probability", expected=f"0 to {GRID}")
    width = (length + 7) // 8
    packed = np.empty(rows * width, dtype=np.uint8)
    table, high, low = _byte_table(ones)
    for start in range(0, packed.size, _CHUNK_BYTES):
        _draw_bytes(packed[start : start + _CHUNK_BYTES], table, high, low, entropy)
    strings = packed.reshape(rows, width)
    if length % 8 and rows:
        strings[:, -1] &= (1 << length % 8) - 1
    return strings


def _draw_bytes(
    packed: NDArray[np.uint8],
    table: NDArray[np.uint16],
    high: NDArray[np.uint64],
    low: NDArray[np.uint64],
    entropy: Entropy,
) -> None:
    chunks = np.frombuffer(entropy.take(2 * packed.size), dtype=np.uint16)
    undecided = np.empty(packed.size, dtype=np.int64)
    count = _look_up(chunks, table, packed, undecided)
    positions = undecided[:count]
    tails = np.frombuffer(entropy.take(16 * count), dtype=np.uint64).reshape(count, 2)
    # The sixteen bits already drawn stay in front; 48 + 64 new ones follow.
    heads = (chunks[positions].astype(np.uint64) << np.uint64(48)) | (tails[:, 0] >> np.uint64(16))
    _bisect_borders(heads, tails[:, 1], high, low, packed, positions)


@lru_cache(maxsize=64)
def _byte_table(ones: int) -> tuple[NDArray[np.uint16], NDArray[np.uint64], NDArray[np.uint64]]:
    """The byte that each 16-bit prefix decides (or 256), and the 256 lower borders as halves of 128-bit integers."""
    weights = [ones ** value.bit_count() * (GRID - ones) ** (8 - value.bit_count()) for value in range(256)]
    borders = [0]
    for weight in weights:
        borders.append(borders[-1] + weight)  # multiples of 2^-128: the last is 2^128
    table = np.full(1 << 16, _UNDECIDED, dtype=np.uint16)
    cell = 1 << 112
    for value in range(256):
        table[-(-borders[value] // cell) : borders[value + 1] // cell] = value
    high = np.array([border >> 64 for border in borders[:256]], dtype=object)
    low = np.array([border & ((1 << 64) - 1) for border in borders[:256]], dtype=object)
    clipped = np.array([min(int(h), (1 << 64) - 1) for h in high], dtype=np.uint64)
    return table, clipped, low.astype(np.uint64)


@njit(cache=True)  # type: ignore[untyped-decorator]
def _look_up(chunks: Any, table: Any, packed: Any, undecided: Any) -> int:
    count = 0
    for i in range(chunks.size):
        value = table[chunks[i]]
        packed[i] = value
        undecided[count] = i
        count += value == 256
    return count


@njit(cache=True)  # type: ignore[untyped-decorator]
def _bisect_borders(heads: Any, tails: Any, high: Any, low: Any, packed: Any, positions: Any) -> None:
    """Find, by bisection, the last border that is not above each 128-bit number."""
    for i in range(heads.size):
        below, above = 0, 256
        while above - below > 1:
            middle = (below + above) // 2
            reached = heads[i] > high[middle] or (heads[i] == high[middle] and tails[i] >= low[middle])
            below, above = (middle, above) if reached else (below, middle)
        packed[positions[i]] = below


def set_bits(strings: NDArray[np.uint8], positions: NDArray[np.int64], values: NDArray[np.bool_]) -> None:
    """Overwrite one bit of each string."""
    rows = np.arange(len(strings))
    byte = positions >> 3
    mask = (1 << (positions & 7)).astype(np.uint8)
    strings[rows, byte] = np.where(values, strings[rows, byte] | mask, strings[rows, byte] & ~mask)


def flip_bits(strings: NDArray[np.uint8], positions: NDArray[np.int64]) -> None:
    """Turn one bit of each string over."""
    strings[np.arange(len(strings)), positions >> 3] ^= (1 << (positions & 7)).astype(np.uint8)


def sum_columns(strings: NDArray[np.uint8], length: int) -> NDArray[np.int64]:
    """How many strings have a 1 at each of the first `length` positions."""
    sums: NDArray[np.int64] = sum_groups(strings, np.zeros(len(strings), dtype=np.int64), 1, length)[0]
    return sums


def sum_groups(
    strings: NDArray[np.uint8], groups: NDArray[np.int64], group_count: int, length: int
) -> NDArray[np.int64]:
    """Column sums within each group of strings: an array of groups by positions."""
    rows, width = strings.shape
    words = -(-width // 8)
    if width % 8 or not strings.flags.c_contiguous:
        padded = np.zeros((rows, words * 8), dtype=np.uint8)
        padded[:, :width] = strings
        strings = padded
    sums = np.zeros((group_count, words * 64), dtype=np.int64)
    order = np.argsort(groups, kind="stable") if group_count > 1 else np.arange(rows)
    _add_columns(strings.view("<u8"), order, groups, sums)
    return sums[:, :length]


@njit(cache=True)  # type: ignore[untyped-decorator]
def _add_columns(words: Any, order: Any, groups: Any, sums: Any) -> None:
    """Add rows, taken in an order that keeps groups together, to the sums of their group.

    Eight bit planes hold 64 counters of up to 255 in each column of words; adding a row ripples its bits as carries
    through the planes, and the planes are emptied into the sums before they overflow or the group changes.
    """
    width = words.shape[1]
    planes = np.zeros((8, width), dtype=np.uint64)
    carry = np.zeros(width, dtype=np.uint64)
    held = 0
    for position in range(order.size):
        row = order[position]
        for w in range(width):
            carry[w] = words[row, w]
        for level in range(8):
            for w in range(width):
                both = planes[level, w] & carry[w]
                planes[level, w] ^= carry[w]
                carry[w] = both
        held += 1
        last = position + 1 == order.size or groups[order[position + 1]] != groups[row]
        if held == 255 or last:
            _flush_planes(planes, sums[groups[row]])
            held = 0


@njit(cache=True)  # type: ignore[untyped-decorator]
def _flush_planes(planes: Any, sums: Any) -> None:
    for level in range(8):
        for w in range(planes.shape[1]):
            word = planes[level, w]
            for bit in range(64):
                sums[w * 64 + bit] += np.int64((word >> np.uint64(bit)) & np.uint64(1)) << level
            planes[level, w] = 0
