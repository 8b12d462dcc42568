"""Uniform integers and uniform permutations."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers.entropy import SYSTEM, Entropy, draw_in_chunks, draw_words, require_natural
from deniable.errors import ParameterError

LARGEST_BOUND = 1 << 63


def uniform_below(bound: int, size: int, *, entropy: Entropy = SYSTEM) -> NDArray[np.int64]:
    """Draws integers uniformly from [0, bound), for a bound from 1 to 2**63.

    >>> uniform_below(1, 3).tolist()
    [0, 0, 0]
    """
    bound, size = require_natural(bound, "bound", LARGEST_BOUND), require_natural(size, "size")
    if bound == 0:
        raise ParameterError("bound is 0", expected="At least one integer to choose from")
    return draw_in_chunks(size, partial(_draw, bound, entropy))


def _draw(bound: int, entropy: Entropy, count: int) -> NDArray[np.int64]:
    """Words below the largest multiple of `bound` are uniform modulo `bound`; the rest, less than half, is dropped."""
    bits = next(width for width in (8, 16, 32, 64) if bound <= 1 << width)
    word = draw_words(entropy, bits, count)
    surplus = (1 << bits) % bound
    if surplus:
        word = word[word < word.dtype.type((1 << bits) - surplus)]
    return (word % word.dtype.type(bound) if bound < 1 << bits else word).astype(np.int64)


def uniform_below_each(bounds: NDArray[np.int64], *, entropy: Entropy = SYSTEM) -> NDArray[np.int64]:
    """Draws an integer uniformly from [0, bound) for each bound, from 1 to 2**62: as many bits as can hold it, drawn
    again when too large.

    >>> uniform_below_each(np.array([1, 1])).tolist()
    [0, 0]
    """
    answer = np.zeros_like(bounds)
    masks = ones_below(bounds - 1)
    pending = np.arange(bounds.size)
    while pending.size:
        word = (draw_words(entropy, 64, pending.size) >> np.uint64(1)).astype(np.int64) & masks[pending]
        answer[pending] = word
        pending = pending[word >= bounds[pending]]
    return answer


def ones_below(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """All bits up to the highest one set: 2**bit_length - 1."""
    masks = values.copy()
    for shift in (1, 2, 4, 8, 16, 32):
        masks |= masks >> shift
    return masks


def permutation(n: int, *, entropy: Entropy = SYSTEM) -> NDArray[np.int64]:
    """A uniform order of 0, ..., n - 1: the order of independent 64-bit keys.

    Given that all keys differ, every order is equally likely by symmetry; so a tie, which has probability below
    n**2 / 2**65, draws all keys again.
    """
    n = require_natural(n, "n")
    while True:
        keys = draw_words(entropy, 64, n)
        order = np.argsort(keys, kind="stable")
        if not np.any(keys[order[1:]] == keys[order[:-1]]):
            return order.astype(np.int64)
