"""Random choice among candidates with integer costs: the exponential mechanism's law, and permute-and-flip.

Costs are integers (the best utility minus each utility), and one rational `unit` turns them into exponents: candidate i
has gamma_i = cost_i * unit. For a utility of sensitivity s, unit = epsilon / (2 s).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable.dp.samplers.bernoulli import flip
from deniable.dp.samplers.chunks import CHUNK, filled
from deniable.dp.samplers.domain import natural, non_negative
from deniable.dp.samplers.enclosure import Enclosure, exp_minus
from deniable.dp.samplers.entropy import SYSTEM, Entropy
from deniable.dp.samplers.exponent import ROOM, Exponents, integers
from deniable.dp.samplers.table import Table
from deniable.dp.samplers.uniform import uniform_below_each
from deniable.errors import ParameterError


def exponential_choice(
    costs: ArrayLike,
    unit: Fraction | int,
    size: int = 1,
    *,
    widths: ArrayLike | None = None,
    entropy: Entropy = SYSTEM,
) -> NDArray[np.int64]:
    """Draws positions i with probability proportional to widths[i] * exp(-costs[i] * unit).

    Widths are counts of equally good candidates that stand together, such as the integers between two neighbors in
    sorted data; without them each candidate counts once. Costs may be shifted by any constant.
    Candidates are put in layers by the whole part L of their exponent. A layer is drawn with weight (its width) *
    exp(-L), a candidate inside it by width, and it is kept with probability exp(-fraction) >= 1/e; else all is redrawn.

    >>> exponential_choice([5, 0, 5], Fraction(1000)).tolist()
    [1]
    """
    exponents, size = _exponents(costs, unit), natural(size, "size")
    layers = _layers(exponents, _widths(widths, exponents.costs.size))
    return filled(size, lambda count: _propose(layers, exponents, entropy, count))


def permute_and_flip(
    costs: ArrayLike, unit: Fraction | int, size: int = 1, *, entropy: Entropy = SYSTEM
) -> NDArray[np.int64]:
    """Draws positions by permute-and-flip (McKenna and Sheldon 2020): candidates in random order, the first whose coin
    of bias exp(-cost * unit) shows heads. Costs may be shifted by any constant; the cheapest always shows heads.

    Its expected cost is never above that of the exponential mechanism with the same unit, at the same guarantee.
    Order and coins are independent, so the first heads in a random order is a uniform choice among all heads: every
    coin is flipped, and one of the heads is drawn.

    >>> permute_and_flip([5, 0, 5], Fraction(1000)).tolist()
    [1]
    """
    exponents, size = _exponents(costs, unit), natural(size, "size")
    return filled(size, lambda count: _one_of_the_heads(exponents, entropy, count))


def permute_and_flip_rows(
    costs: NDArray[np.int64],
    unit: Fraction | int,
    *,
    allowed: NDArray[np.bool_] | None = None,
    entropy: Entropy = SYSTEM,
) -> NDArray[np.int64]:
    """One draw by permute-and-flip for each row of a matrix of costs, among its columns, or those that are allowed
    (at least one in each row).

    >>> permute_and_flip_rows(np.array([[5, 0, 5], [0, 9, 9]]), Fraction(1000)).tolist()
    [1, 0]
    """
    rows, candidates = costs.shape
    drawn = np.empty(rows, dtype=np.int64)
    step = max(1, CHUNK // max(candidates, 1))
    for start in range(0, rows, step):
        piece = costs[start : start + step]
        mine = np.True_ if allowed is None else allowed[start : start + step]
        above = piece - piece.min(axis=1, keepdims=True, where=mine, initial=np.iinfo(np.int64).max)
        exponents = Exponents.of(np.where(mine, above, 0).ravel(), non_negative(unit, "unit"))
        heads = flip(exponents.whole, exponents.fraction, exponents.exact, entropy).reshape(piece.shape)
        drawn[start : start + step] = _one_of(heads & mine, entropy)
    return drawn


def _one_of_the_heads(exponents: Exponents, entropy: Entropy, count: int) -> NDArray[np.int64]:
    """As many draws (at most `count`, at least one) as flips of all candidates fit in a chunk."""
    candidates = exponents.costs.size
    rows = max(1, min(count, CHUNK // candidates))
    whole, fraction = np.tile(exponents.whole, rows), np.tile(exponents.fraction, rows)
    heads = flip(whole, fraction, lambda i: exponents.exact(i % candidates), entropy)
    return _one_of(heads.reshape(rows, candidates), entropy)


def _one_of(heads: NDArray[np.bool_], entropy: Entropy) -> NDArray[np.int64]:
    """A uniform choice among the heads of each row."""
    shown = np.cumsum(heads, axis=1, dtype=np.int64)
    chosen = uniform_below_each(shown[:, -1], entropy=entropy)
    first: NDArray[np.int64] = np.argmax(shown > chosen[:, np.newaxis], axis=1)
    return first


def _exponents(costs: ArrayLike, unit: Fraction | int) -> Exponents:
    """Exponents above that of the cheapest candidate."""
    taken = integers(costs, "costs")
    if not taken.size:
        raise ParameterError("There is no candidate", expected="At least one cost")
    least, most = int(taken.min()), int(taken.max())
    if most - least >= ROOM:
        raise ParameterError("Costs differ by 2**62 or more", expected="A smaller range of costs")
    return Exponents.of(taken - least, non_negative(unit, "unit"))


def _widths(widths: ArrayLike | None, count: int) -> NDArray[np.int64]:
    if widths is None:
        return np.ones(count, dtype=np.int64)
    taken = integers(widths, "widths")
    if taken.size != count:
        raise ParameterError(f"There are {count} costs and {taken.size} widths", expected="One width for each cost")
    if int(taken.min()) < 0 or sum(_parts(taken)) >= ROOM or not taken.any():
        raise ParameterError("The widths cannot be taken", expected="Widths of at least 0 with a sum from 1 to 2**62")
    return taken


def _parts(values: NDArray[np.int64]) -> tuple[int, int]:
    """The exact sum in two parts that cannot overflow: high halves and low halves."""
    low = values & (1 << 31) - 1
    return int((values >> 31).sum()) << 31, int(low.sum())


@dataclass(frozen=True, slots=True)
class LayerLaw:
    """Outcome k: the k-th occupied layer, at level levels[k], with weight sizes[k] * exp(-levels[k])."""

    levels: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def finite(self) -> bool:
        """Layers far down are left out at low precision."""
        return self.levels[-1] <= self._deepest(0)

    def weights(self, precision: int) -> list[Enclosure]:
        """The layers whose weight can be seen at this precision; the first one always."""
        listed = []
        for level, size in zip(self.levels, self.sizes, strict=True):
            if level > self._deepest(precision):
                break
            low, high = exp_minus(Fraction(level), precision)
            listed.append((size * low, size * high))
        return listed

    def total(self, precision: int) -> Enclosure:
        """The listed weights; all that is left out weighs at most its size times 2**-precision / (whole size)."""
        listed = self.weights(precision)
        left_out = 0 if len(listed) == len(self.levels) else 1
        return sum(low for low, _ in listed), sum(high for _, high in listed) + left_out

    def _deepest(self, precision: int) -> int:
        """A level from which on exp(-level) * (whole size) < 2**-precision, as exp(-1) < 1/2."""
        return precision + sum(self.sizes).bit_length()


@dataclass(frozen=True, slots=True)
class Layers:
    """Candidates sorted by layer: `order` lists them, `ends` sums up their widths, `starts` is where a layer begins."""

    table: Table
    order: NDArray[np.int64]
    ends: NDArray[np.int64]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]


def _layers(exponents: Exponents, widths: NDArray[np.int64]) -> Layers:
    occupied = np.flatnonzero(widths)
    order = occupied[np.argsort(exponents.whole[occupied], kind="stable")]
    ends = np.cumsum(widths[order])
    levels, first = np.unique(exponents.whole[order], return_index=True)
    starts = np.concatenate(([0], ends))[first]
    sizes = np.diff(np.append(starts, ends[-1]))
    # Counted from the first occupied layer: a constant in all exponents cancels, and the first weight stays visible.
    table = Table(LayerLaw(tuple((levels - levels[0]).tolist()), tuple(sizes.tolist())))
    return Layers(table, order, ends, starts, sizes)


def _propose(layers: Layers, exponents: Exponents, entropy: Entropy, count: int) -> NDArray[np.int64]:
    """`count` proposals, returned where they are kept."""
    layer = layers.table.draw(count, entropy)
    inside = uniform_below_each(layers.sizes[layer], entropy=entropy)
    candidate = layers.order[np.searchsorted(layers.ends, layers.starts[layer] + inside, side="right")]
    some = exponents.at(candidate)
    return candidate[flip(np.zeros_like(candidate), some.fraction, some.exact_fraction, entropy)]
