"""Hadamard response: a response is a column of a Hadamard matrix, more likely where the answer's row has a plus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from deniable.dp.samplers import SYSTEM, Entropy, uniform_below
from deniable.errors import ParameterError
from deniable.localdp.likelihood_ratio import check_odds, odds_below
from deniable.localdp.protocol import (
    Answers,
    Frequencies,
    Layout,
    Outcome,
    Responses,
    Score,
    Whole,
    check_answers,
    check_domain,
    score_support,
)
from deniable.policy.budget import Amount


def transform(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The Walsh-Hadamard transform along the last axis, whose length is a power of two: n log n additions."""
    length = values.shape[-1]
    work = np.array(values, dtype=np.float64)
    span = 1
    while span < length:
        pairs = work.reshape(*values.shape[:-1], length // (2 * span), 2, span)
        work = np.stack((pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]), axis=-2)
        span *= 2
    return work.reshape(values.shape)


def has_odd_parity(left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether the Hadamard matrix has a minus at (left, right): the parity of the bits they share."""
    odd: NDArray[np.bool_] = (np.bitwise_count(left & right) & 1).astype(np.bool_)
    return odd


@dataclass(frozen=True, slots=True)
class Hadamard:
    """Hadamard response (Acharya, Sun, Zhang 2019), with as many diagonal blocks as the epsilon deserves.

    Answers are dealt over `blocks` copies of a Hadamard matrix of order `order`; each owns one row (never the first,
    which is all plus) and the half of its block's columns that carry a plus. The response is one of all columns; the
    columns owned are `odds` times as likely as any other. With one block this is the one-bit form for small epsilon.

    **Guarantee**: epsilon-local DP (replace one answer), epsilon = ln(odds).
    **Utility**: one block: ((e^eps + 1) / (e^eps - 1))^2 a respondent; several: about 8 / (e^eps - 1).
    **Runtime**: three draws a respondent, one fast transform at the collector; message of log2(2 d) bits.
    """

    name: ClassVar[str] = "hadamard"
    domain: int
    blocks: int
    odds: Fraction

    def __post_init__(self) -> None:
        check_odds(self.odds)
        check_domain(self.domain, 1 << 26)
        if self.blocks < 1 or self.blocks & (self.blocks - 1):
            raise ParameterError(f"{self.blocks} blocks", expected="A power of two")

    @classmethod
    def calibrate(cls, domain: int, epsilon: Amount) -> Hadamard:
        """As many blocks as make the variance of an average answer least."""
        odds = odds_below(epsilon)
        largest = domain.bit_length()
        candidates = (cls(domain, 1 << power, odds) for power in range(largest))
        return min(candidates, key=lambda protocol: protocol.variance())

    @property
    def rows(self) -> int:
        """How many answers a block holds."""
        return -(-self.domain // self.blocks)

    @property
    def order(self) -> int:
        """Order of the matrix: the smallest power of two that has enough rows beside the first."""
        return 1 << self.rows.bit_length()

    @property
    def draws(self) -> tuple[int, ...]:
        """Bounds of the uniform integers that one response takes: inside or outside, a column, a place outside."""
        # Of the 2 blocks halves of columns one is owned and weighs `odds`, the others weigh 1 each.
        outside = 2 * self.blocks - 1
        return (self.odds.numerator + outside * self.odds.denominator, self.order, outside)

    @property
    def layout(self) -> Layout:
        """One column."""
        return (Whole("column", self.order * self.blocks),)

    @property
    def _scale(self) -> float:
        """What one unit of the signed sum is worth in people: (odds + 2 blocks - 1) / (odds - 1).

        The signed sum of one's own block is plus less minus columns: its mean is (odds - 1) / (odds + 2 blocks - 1)
        for the owner of the row, and 0 for everybody else, since two rows agree in half of their columns.
        """
        return float((self.odds + 2 * self.blocks - 1) / (self.odds - 1))

    def _place(self, answers: Answers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        block, row = np.divmod(answers, self.rows)
        return block, row + 1

    def respond(
        self, answers: Answers, weight: NDArray[np.int64], column: NDArray[np.int64], elsewhere: NDArray[np.int64]
    ) -> Responses:
        """The response that three draws give.

        A column of the wrong sign is moved to the right one by toggling the lowest bit of the row: a bijection, so
        the choice stays uniform. Outside lie 2 blocks - 1 halves: the minus half of the own block (draw 0) and the
        other blocks (two draws each), of which any column will do.
        """
        columns = np.empty(len(answers), dtype=np.int64)
        _choose_columns(answers, weight, column, elsewhere, self.odds.numerator, self.rows, self.order, columns)
        return (columns,)

    def randomize(self, answers: Answers, entropy: Entropy = SYSTEM) -> Responses:
        """One column for each answer."""
        checked = check_answers(answers, self.domain)
        weight, column = (uniform_below(bound, len(checked), entropy=entropy) for bound in self.draws[:2])
        halves = self.draws[2]
        elsewhere = uniform_below(halves, len(checked), entropy=entropy) if halves > 1 else np.zeros_like(column)
        return self.respond(checked, weight, column, elsewhere)

    def tally(self, responses: Responses) -> NDArray[np.int64]:
        """How often each column was given."""
        return np.bincount(responses[0], minlength=self.order * self.blocks).astype(np.int64)

    def estimate(self, tally: NDArray[np.int64], responses: int) -> Frequencies:
        """Unbiased counts: plus columns less minus columns in the answer's block, rescaled.

        The signed sum of a respondent is +1, -1 or 0, so its second moment is the share of responses in the block.
        """
        spread = tally.reshape(self.blocks, self.order).astype(np.float64)
        block, row = self._place(np.arange(self.domain, dtype=np.int64))
        counts = self._scale * transform(spread)[block, row]
        in_block = spread.sum(axis=1)[block]
        held = np.clip(counts, 0, responses)
        variances = np.maximum(self._scale**2 * in_block - held, 0)  # each owner has mean exactly 1, the others 0
        return Frequencies(counts, variances, responses, self._score(counts, in_block, responses))

    def _score(self, counts: NDArray[np.float64], in_block: NDArray[np.float64], responses: int) -> Score:
        """The signed sum as a score; with one block every response is in it, and the sum goes in steps of two."""
        gain = 1 / self._scale
        if self.blocks == 1:
            return score_support((counts * gain + responses) / 2, responses, (1 + gain) / 2, 0.5)
        # The share of responses in the block is estimated too: two standard deviations and a half more of them.
        spare = in_block + 2.5 * np.sqrt(in_block + 1)
        base = np.minimum(spare, responses)
        return Score(counts * gain, gain, base, (-(gain**2), 0.0), (0.0, -(gain**2) / max(responses, 1)), 2)

    def variance(self, share: float = 0.0) -> float:
        """Variance per respondent of an estimated count, where the block holds an even share of the others."""
        total = float(self.odds) + 2 * self.blocks - 1
        in_block = share + (1 - share) * (self.rows - 1) / (self.domain - 1)
        own, other = (float(self.odds) + 1) / total, 2 / total
        return self._scale**2 * (in_block * own + (1 - in_block) * other) - share

    def likelihoods(self, answer: int) -> Iterator[tuple[Outcome, Fraction]]:
        """Each column with its probability."""
        total = (self.odds + 2 * self.blocks - 1) * (self.order // 2)
        block, row = divmod(answer, self.rows)
        for given in range(self.order * self.blocks):
            owned = given // self.order == block and ((given % self.order) & (row + 1)).bit_count() % 2 == 0
            yield (given,), (self.odds if owned else Fraction(1)) / total


@njit(cache=True)  # type: ignore[untyped-decorator]
def _choose_columns(
    answers: Any, weight: Any, column: Any, elsewhere: Any, keep: Any, rows: Any, order: Any, out: Any
) -> None:
    for i in range(answers.size):
        block, row = answers[i] // rows, answers[i] % rows + 1
        inside = weight[i] < keep
        if not inside and elsewhere[i] > 0:
            other = (elsewhere[i] - 1) // 2
            out[i] = (other + (other >= block)) * order + column[i]
            continue
        shared = column[i] & row
        for shift in (32, 16, 8, 4, 2, 1):
            shared ^= shared >> shift  # folds the parity of all bits into the lowest
        minus = (shared & 1) == 1
        out[i] = block * order + (column[i] ^ (row & -row) if minus == inside else column[i])
