"""The exponential mechanism's choice in many groups at once, among runs of integers that have one cost each.

The work grows with the runs, not with the integers in them: a run stands for `width` candidates. As in `choice`, runs
are put in layers by the whole part L of their exponent, a layer is drawn with weight (its width) * exp(-L), a run
inside it by width, and it is kept with probability exp(-fraction) >= 1/e; groups that keep none draw again.

Layers are drawn by exact inversion. Weights are known here as integers `low` <= weight <= `low` + SLACK in units of a
group's own, so the first 31 bits of U decide, but about once in 10,000 draws; there the same U is revealed further and
compared with the law itself (`table.settle`), until it is certain.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers.bernoulli import flip
from deniable.dp.samplers.choice import LayerLaw
from deniable.dp.samplers.domain import non_negative
from deniable.dp.samplers.enclosure import exp_minus
from deniable.dp.samplers.entropy import SYSTEM, Entropy, Reader, words
from deniable.dp.samplers.exponent import ROOM, Exponents
from deniable.dp.samplers.table import settle
from deniable.dp.samplers.uniform import ones_below, uniform_below_each
from deniable.errors import ParameterError

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
    exponents = Exponents.of(costs - least[group], non_negative(unit, "unit"))
    layers = Layers.of(exponents.whole, widths, group)
    drawn, pending = np.empty(groups, dtype=np.int64), np.arange(groups)
    while pending.size:
        run = layers.run(layers.draw(pending, entropy), entropy)
        some = exponents.at(run)
        heads = flip(np.zeros_like(run), some.fraction, some.exact_fraction, entropy)
        drawn[pending[heads]] = run[heads]
        pending = pending[~heads]
    return kept[drawn]


@dataclass(frozen=True, slots=True)
class Layers:
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
    def of(cls, whole: Numbers, widths: Numbers, group: Numbers) -> Layers:
        """Sort runs into layers, and weigh them."""
        order = np.lexsort((whole, group))
        ends = np.cumsum(widths[order])
        whole, group = whole[order], group[order]
        new = np.flatnonzero((np.diff(whole, prepend=-1) != 0) | (np.diff(group, prepend=-1) != 0))
        starts = np.concatenate(([0], ends))[new]
        sizes = np.diff(np.append(starts, ends[-1]))
        level, mine = whole[new], group[new]
        return cls(order, ends, mine, level, starts, sizes, *_cumulative(level, sizes, mine))

    def draw(self, groups: Numbers, entropy: Entropy) -> Numbers:
        """One layer for each of some groups."""
        word = (words(entropy, 32, groups.size) >> np.uint32(32 - WORD)).astype(np.int64)
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


def _cumulative(level: Numbers, sizes: Numbers, group: Numbers) -> tuple[Numbers, Numbers]:
    """Cumulative weights of each group's layers between `floors` and `ceilings`, in units of 2**-31 of the whole."""
    low, high = _weights(level, sizes, group)
    first = np.flatnonzero(np.diff(group, prepend=-1))
    counts = np.diff(np.append(first, group.size))
    below, above = _running(low, first, counts), _running(high, first, counts)
    last = np.repeat(first + counts - 1, counts)
    floors = (below << WORD) // above[last]
    ceilings = np.minimum(-(-(above << WORD) // below[last]), 1 << WORD)
    # Where every layer is weighed, the last one takes what is left.
    ends = (first + counts - 1)[level[first + counts - 1] < DEEPEST]
    floors[ends] = ceilings[ends] = 1 << WORD
    before = np.concatenate(([0], ceilings[:-1]))
    before[first] = 0
    return (group << 32) + floors, before


def _running(weights: Numbers, first: Numbers, counts: Numbers) -> Numbers:
    """Sums of the weights from the start of each group on."""
    summed = np.cumsum(weights)
    return summed - np.repeat(summed[first] - weights[first], counts)


def _weights(level: Numbers, sizes: Numbers, group: Numbers) -> tuple[Numbers, Numbers]:
    """Integers low <= size * exp(-level) <= high in units of each group's own, the heaviest below 2**TOP.

    A size keeps its 31 highest bits and exp(-level) has 31, so their product p < 2**62 is too small by a share of less
    than 2**-28. Cut off to TOP bits, that is less than one unit, and cutting is less than another.
    """
    known = np.minimum(level, DEEPEST)
    lost = np.maximum(np.bitwise_count(ones_below(sizes)).astype(np.int64) - 31, 0)
    mantissas, exponents = _listed()
    product, exponent = (sizes >> lost) * mantissas[known], lost + exponents[known]
    reach = np.bitwise_count(ones_below(product)).astype(np.int64) + exponent
    top = np.maximum.reduceat(reach, np.flatnonzero(np.diff(group, prepend=-1)))
    place = np.cumsum(np.diff(group, prepend=group[0] if group.size else 0) != 0)
    low = product >> np.minimum(top[place] - TOP - exponent, 62)
    # Deeper layers than those listed weigh less than a unit, and are taken for nothing or a unit.
    return np.where(level < DEEPEST, low, 0), np.where(level < DEEPEST, low + SLACK, 1)


@cache
def _listed() -> tuple[Numbers, Numbers]:
    """exp(-L) for each layer as mantissa * 2**exponent, with a mantissa of 31 bits, cut off."""
    mantissas, exponents = [], []
    for level in range(DEEPEST + 1):
        low, _ = exp_minus(Fraction(level), 400)
        lost = low.bit_length() - 31
        mantissas.append(low >> lost)
        exponents.append(lost - 400)
    return np.array(mantissas, dtype=np.int64), np.array(exponents, dtype=np.int64)
