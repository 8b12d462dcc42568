"""Random choice among candidates with integer costs: the exponential mechanism's law, and permute-and-flip.

Costs are integers (the best utility minus each utility), and one rational `unit` turns them into exponents: candidate i
has gamma_i = cost_i * unit. For a utility of sensitivity s, unit = epsilon / (2 s).

**In many groups at once.** The work grows with the runs of equal cost, not with the integers in them: a run stands for
`width` candidates. Runs are put in layers by the whole part L of their exponent, a layer is drawn with weight (its
width) * exp(-L), a run inside it by width, and it is kept with probability exp(-fraction) >= 1/e; groups that keep none
draw again. Layers are drawn by exact inversion. Weights are known here as integers `low` <= weight <= `low` + SLACK in
units of a group's own, so the first 31 bits of U decide, but about once in 10,000 draws; there the same U is revealed
further and compared with the law itself (`table.settle`), until it is certain."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from deniable.dp.samplers.bernoulli import flip
from deniable.dp.samplers.entropy import (
    CHUNK,
    SYSTEM,
    Entropy,
    Reader,
    draw_in_chunks,
    draw_words,
    require_natural,
    require_non_negative,
)
from deniable.dp.samplers.exponential import ROOM, Enclosure, Exponents, exp_minus, require_integers
from deniable.dp.samplers.table import Table, settle
from deniable.dp.samplers.uniform import ones_below, uniform_below_each
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
    exponents, size = _shift_exponents(costs, unit), require_natural(size, "size")
    layers = _build_layers(exponents, _require_widths(widths, exponents.costs.size))
    return draw_in_chunks(size, lambda count: _propose(layers, exponents, entropy, count))


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
    exponents, size = _shift_exponents(costs, unit), require_natural(size, "size")
    return draw_in_chunks(size, lambda count: _flip_and_choose(exponents, entropy, count))


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
        exponents = Exponents.of(np.where(mine, above, 0).ravel(), require_non_negative(unit, "unit"))
        heads = flip(exponents.whole, exponents.fraction, exponents.exact, entropy).reshape(piece.shape)
        drawn[start : start + step] = _choose_one(heads & mine, entropy)
    return drawn


def _flip_and_choose(exponents: Exponents, entropy: Entropy, count: int) -> NDArray[np.int64]:
    """As many draws (at most `count`, at least one) as flips of all candidates fit in a chunk."""
    candidates = exponents.costs.size
    rows = max(1, min(count, CHUNK // candidates))
    whole, fraction = np.tile(exponents.whole, rows), np.tile(exponents.fraction, rows)
    heads = flip(whole, fraction, lambda i: exponents.exact(i % candidates), entropy)
    return _choose_one(heads.reshape(rows, candidates), entropy)


def _choose_one(heads: NDArray[np.bool_], entropy: Entropy) -> NDArray[np.int64]:
    """A uniform choice among the heads of each row."""
    shown = np.cumsum(heads, axis=1, dtype=np.int64)
    chosen = uniform_below_each(shown[:, -1], entropy=entropy)
    first: NDArray[np.int64] = np.argmax(shown > chosen[:, np.newaxis], axis=1)
    return first


def _shift_exponents(costs: ArrayLike, unit: Fraction | int) -> Exponents:
    """Exponents above that of the cheapest candidate."""
    taken = require_integers(costs, "costs")
    if not taken.size:
        raise ParameterError("There is no candidate", expected="At least one cost")
    least, most = int(taken.min()), int(taken.max())
    if most - least >= ROOM:
        raise ParameterError("Costs differ by 2**62 or more", expected="A smaller range of costs")
    return Exponents.of(taken - least, require_non_negative(unit, "unit"))


def _require_widths(widths: ArrayLike | None, count: int) -> NDArray[np.int64]:
    if widths is None:
        return np.ones(count, dtype=np.int64)
    taken = require_integers(widths, "widths")
    if taken.size != count:
        raise ParameterError(f"There are {count} costs and {taken.size} widths", expected="One width for each cost")
    if int(taken.min()) < 0 or sum(_sum_in_parts(taken)) >= ROOM or not taken.any():
        raise ParameterError("The widths cannot be taken", expected="Widths of at least 0 with a sum from 1 to 2**62")
    return taken


def _sum_in_parts(values: NDArray[np.int64]) -> tuple[int, int]:
    """The exact sum in two parts that cannot overflow: high halves and low halves."""
    low = values & (1 << 31) - 1
    return int((values >> 31).sum()) << 31, int(low.sum())


@cache
def _weigh_level(level: int, precision: int) -> Enclosure:
    """exp(-level): a few hundred numbers, the same for all data."""
    return exp_minus(Fraction(level), precision)


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
            low, high = _weigh_level(level, precision)
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


def _build_layers(exponents: Exponents, widths: NDArray[np.int64]) -> Layers:
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


Numbers = NDArray[np.int64]

WORD = 31
"""Bits of U that are revealed for every draw."""
TOP = 25
"""A group's heaviest layer has about so many bits: fewer than 2**6 layers weigh as much, so all fit in WORD bits."""
SLACK = 2
DEEPEST = 192
"""From this layer on, even 2**62 candidates weigh less than 2**-200 of the best one."""


def exponential_choice_groups(
    costs: Numbers, unit: Fraction | int, widths: Numbers, group: Numbers, groups: int, *, entropy: Entropy = SYSTEM
) -> Numbers:
    """For each group the position of one of its runs, with probability proportional to width * exp(-cost * unit).

    Runs stand in the order of their groups, and each group has a candidate; all widths add up to less than 2**62.

    >>> ones = np.ones(4, dtype=np.int64)
    >>> costs, group = np.array([5, 0, -7, 5]), np.array([0, 0, 1, 1])
    >>> exponential_choice_groups(costs, Fraction(1000), ones, group, 2).tolist()
    [1, 2]
    """
    if np.unique(group[widths > 0]).size != groups or int(widths.astype(object).sum()) >= ROOM:
        raise ParameterError("The widths cannot be taken", expected="A candidate in each group, 2**62 in all at most")
    kept = np.flatnonzero(widths)
    costs, widths, group = costs[kept], widths[kept], group[kept]
    least = np.minimum.reduceat(costs, np.searchsorted(group, np.arange(groups)))
    exponents = Exponents.of(costs - least[group], require_non_negative(unit, "unit"))
    layers = GroupedLayers.of(exponents.whole, widths, group)
    drawn, pending = np.empty(groups, dtype=np.int64), np.arange(groups)
    while pending.size:
        run = layers.run(layers.draw(pending, entropy), entropy)
        some = exponents.at(run)
        heads = flip(np.zeros_like(run), some.fraction, some.exact_fraction, entropy)
        drawn[pending[heads]] = run[heads]
        pending = pending[~heads]
    return kept[drawn]


@dataclass(frozen=True, slots=True)
class GroupedLayers:
    """The occupied layers of all groups, in their order, and the runs in the order of their layers."""

    order: Numbers
    ends: Numbers
    """Summed widths of the ordered runs."""
    group: Numbers
    level: Numbers
    starts: Numbers
    """For each layer: the summed widths before it, and (`sizes`) in it."""
    sizes: Numbers
    floors: Numbers
    """(group << 32) + F with F <= 2**31 P(this layer of the group, or one before)."""
    ceilings: Numbers
    """The same from above, for the layers before each; without the group."""

    @classmethod
    def of(cls, whole: Numbers, widths: Numbers, group: Numbers) -> GroupedLayers:
        """Sort runs into layers, and weigh them."""
        order = np.lexsort((whole, group))
        ends = np.cumsum(widths[order])
        whole, group = whole[order], group[order]
        new = np.flatnonzero((np.diff(whole, prepend=-1) != 0) | (np.diff(group, prepend=-1) != 0))
        starts = np.concatenate(([0], ends))[new]
        sizes = np.diff(np.append(starts, ends[-1]))
        level, mine = whole[new], group[new]
        return cls(order, ends, mine, level, starts, sizes, *_accumulate_weights(level, sizes, mine))

    def draw(self, groups: Numbers, entropy: Entropy) -> Numbers:
        """One layer for each of some groups."""
        word = (draw_words(entropy, 32, groups.size) >> np.uint32(32 - WORD)).astype(np.int64)
        layer: Numbers = np.searchsorted(self.floors, (groups << 32) + word, side="right")
        inside = np.minimum(layer, self.group.size - 1)
        certain = (layer == inside) & (self.group[inside] == groups) & (self.ceilings[inside] <= word)
        for i in np.flatnonzero(~certain).tolist():
            first, last = np.searchsorted(self.group, (groups[i], groups[i] + 1))
            law = LayerLaw(tuple(self.level[first:last].tolist()), tuple(self.sizes[first:last].tolist()))
            layer[i] = first + settle(law, int(word[i]), WORD, Reader(entropy))
        return layer

    def run(self, layer: Numbers, entropy: Entropy) -> Numbers:
        """A run of each of these layers, by width."""
        at = self.starts[layer] + uniform_below_each(self.sizes[layer], entropy=entropy)
        found: Numbers = self.order[np.searchsorted(self.ends, at, side="right")]
        return found


def _accumulate_weights(level: Numbers, sizes: Numbers, group: Numbers) -> tuple[Numbers, Numbers]:
    """Cumulative weights of each group's layers between `floors` and `ceilings`, in units of 2**-31 of the whole."""
    low, high = _weigh_layers(level, sizes, group)
    first = np.flatnonzero(np.diff(group, prepend=-1))
    counts = np.diff(np.append(first, group.size))
    below, above = _sum_within_groups(low, first, counts), _sum_within_groups(high, first, counts)
    last = np.repeat(first + counts - 1, counts)
    floors = (below << WORD) // above[last]
    ceilings = np.minimum(-(-(above << WORD) // below[last]), 1 << WORD)
    # Where every layer is weighed, the last one takes what is left.
    ends = (first + counts - 1)[level[first + counts - 1] < DEEPEST]
    floors[ends] = ceilings[ends] = 1 << WORD
    before = np.concatenate(([0], ceilings[:-1]))
    before[first] = 0
    return (group << 32) + floors, before


def _sum_within_groups(weights: Numbers, first: Numbers, counts: Numbers) -> Numbers:
    """Sums of the weights from the start of each group on."""
    summed = np.cumsum(weights)
    return summed - np.repeat(summed[first] - weights[first], counts)


def _weigh_layers(level: Numbers, sizes: Numbers, group: Numbers) -> tuple[Numbers, Numbers]:
    """Integers low <= size * exp(-level) <= high in units of each group's own, the heaviest below 2**TOP.

    A size keeps its 31 highest bits and exp(-level) has 31, so their product p < 2**62 is too small by a share of less
    than 2**-28. Cut off to TOP bits, that is less than one unit, and cutting is less than another.
    """
    known = np.minimum(level, DEEPEST)
    lost = np.maximum(np.bitwise_count(ones_below(sizes)).astype(np.int64) - 31, 0)
    mantissas, exponents = _tabulate_powers()
    product, exponent = (sizes >> lost) * mantissas[known], lost + exponents[known]
    reach = np.bitwise_count(ones_below(product)).astype(np.int64) + exponent
    top = np.maximum.reduceat(reach, np.flatnonzero(np.diff(group, prepend=-1)))
    place = np.cumsum(np.diff(group, prepend=group[0] if group.size else 0) != 0)
    low = product >> np.minimum(top[place] - TOP - exponent, 62)
    # Deeper layers than those listed weigh less than a unit, and are taken for nothing or a unit.
    return np.where(level < DEEPEST, low, 0), np.where(level < DEEPEST, low + SLACK, 1)


@cache
def _tabulate_powers() -> tuple[Numbers, Numbers]:
    """exp(-L) for each layer as mantissa * 2**exponent, with a mantissa of 31 bits, cut off."""
    mantissas, exponents = [], []
    for level in range(DEEPEST + 1):
        low, _ = exp_minus(Fraction(level), 400)
        lost = low.bit_length() - 31
        mantissas.append(low >> lost)
        exponents.append(lost - 400)
    return np.array(mantissas, dtype=np.int64), np.array(exponents, dtype=np.int64)
