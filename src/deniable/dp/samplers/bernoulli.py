"""Coins of exactly known bias: a rational p, or exp(-gamma) for a rational gamma."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import count as levels

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable.dp.samplers.entropy import (
    SYSTEM,
    Entropy,
    Reader,
    draw_words,
    require_natural,
    require_non_negative,
    require_probability,
)
from deniable.dp.samplers.exponential import GUARD, SLACK, STEP, Exponents, exp_fixed, exp_minus, settle_below

WORD = 16  # bits of U compared at a time
PIECE = 1 << 16


def bernoulli(p: Fraction | int, size: int, *, entropy: Entropy = SYSTEM) -> NDArray[np.bool_]:
    """Draws True with probability p.

    >>> bernoulli(Fraction(1), 2).tolist(), bernoulli(Fraction(0), 2).tolist()
    ([True, True], [False, False])
    """
    p, size = require_probability(p), require_natural(size, "size")
    if p == 1:
        return np.ones(size, dtype=np.bool_)
    return _draw_below(lambda bits: (p.numerator << bits) // p.denominator, size, entropy)


def bernoulli_exp(gamma: Fraction | int, size: int, *, entropy: Entropy = SYSTEM) -> NDArray[np.bool_]:
    """Draws True with probability exp(-gamma), for any gamma >= 0.

    >>> bernoulli_exp(Fraction(0), 2).tolist()
    [True, True]
    """
    gamma, size = require_non_negative(gamma, "gamma"), require_natural(size, "size")
    if gamma == 0:
        return np.ones(size, dtype=np.bool_)
    return _draw_below(lambda bits: exp_floor(gamma, bits), size, entropy)


def exp_floor(gamma: Fraction, bits: int) -> int:
    """The first `bits` binary digits of exp(-gamma), gamma > 0: exp(-gamma) is irrational, so they do get certain."""
    guard = GUARD
    while True:
        low, high = exp_minus(gamma, bits + guard)
        if low >> guard == high >> guard:
            return low >> guard
        guard += STEP


def _draw_below(floor: Callable[[int], int], size: int, entropy: Entropy) -> NDArray[np.bool_]:
    """Whether U < x, given floor(bits) = floor(x * 2**bits): words of U are compared with the digits of x, and only
    those equal to the digit (one in 65,536) need the next word."""
    answer = np.empty(size, dtype=np.bool_)
    for start in range(0, size, PIECE):
        piece = answer[start : start + PIECE]
        tied = np.arange(piece.size)
        for level in levels(1):
            digit = floor(WORD * level) & (1 << WORD) - 1
            word = draw_words(entropy, WORD, tied.size)
            piece[tied] = word < digit
            tied = tied[word == digit]
            if not tied.size:
                break
    return answer


def bernoulli_exp_each(costs: ArrayLike, unit: Fraction | int, *, entropy: Entropy = SYSTEM) -> NDArray[np.bool_]:
    """For each integer cost c >= 0 draws True with probability exp(-c * unit).

    >>> bernoulli_exp_each([0, 10**6], Fraction(1)).tolist()
    [True, False]
    """
    exponents = Exponents.of(costs, require_non_negative(unit, "unit"))
    return flip(exponents.whole, exponents.fraction, exponents.exact, entropy)


def flip(
    whole: NDArray[np.int64], fraction: NDArray[np.uint64], exact: Callable[[int], Fraction], entropy: Entropy
) -> NDArray[np.bool_]:
    """True with probability exp(-gamma_i): 32 bits of U against a near value, or `exact(i)` where that is too close."""
    answer = np.empty(whole.size, dtype=np.bool_)
    for start in range(0, whole.size, PIECE):
        piece = slice(start, start + PIECE)
        near = exp_fixed(whole[piece], fraction[piece]).astype(np.int64)
        word = draw_words(entropy, 32, near.size).astype(np.int64)
        answer[piece] = word < near
        for i in np.flatnonzero(np.abs(word - near) <= SLACK).tolist():
            enclose = partial(exp_minus, exact(start + i))
            answer[start + i] = settle_below(int(word[i]), 32, enclose, Reader(entropy))
    return answer
