"""The order in which several quantiles are chosen: the middle one first, then each side of it among its own rows.

After Kaplan, Schnapp and Stemmer (2022). A choice divides the rows at its value: those below go on to the quantiles
below, those above to the quantiles above. Each row is in one part of every level, so m quantiles cost bit_length(m)
choices instead of m, and the answers cannot cross. In a part that stands for the rows between the quantiles `lower` and
`upper` the quantile q is looked for at share (q - lower) / (upper - lower) of the part's rows.

A choice costs the more the farther its share is from 1/2. So where a level has room for it, a part may first be divided
in its middle though nobody asked for that quantile: 0.25 and 0.75 are found as the halves of two halves. And where
quantiles are few and far out (0.9 and 0.99) nothing is gained by an order: then each is chosen among all rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

FINEST = 10**6
"""The largest denominator of a quantile, and of a share (which is rounded to it: a millionth of a row in a million)."""

DIVIDING = Fraction(1, 5)
"""What dividing the ties costs, as a part of a choice: ties need little where there are few of them, and where there
are many an error of a few ranks among them."""


@dataclass(frozen=True, slots=True)
class Node:
    """One choice: the quantile, its share of the rows of its part, and what is chosen on either side afterwards."""

    quantile: Fraction
    share: Fraction
    below: Node | None = None
    above: Node | None = None

    @property
    def divides(self) -> bool:
        """Whether its rows are divided for further choices."""
        return self.below is not None or self.above is not None

    @property
    def nodes(self) -> Iterator[Node]:
        """This choice and all after it."""
        yield self
        for child in (self.below, self.above):
            if child is not None:
                yield from child.nodes


@dataclass(frozen=True, slots=True)
class Order:
    """All choices: each root is chosen among all rows. A row takes part in so many `choices` and `divisions`."""

    roots: tuple[Node, ...]
    choices: int
    divisions: int

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every choice."""
        return tuple(node for root in self.roots for node in root.nodes)

    @property
    def joint(self) -> bool:
        """Whether quantiles are chosen one inside the other."""
        return self.divisions > 0


@lru_cache(maxsize=256)
def plan_order(quantiles: tuple[Fraction, ...]) -> Order:
    """The order with the least error for these quantiles.

    >>> quartiles = plan_order((Fraction(1, 4), Fraction(3, 4)))
    >>> quartiles.choices, quartiles.roots[0].quantile, quartiles.roots[0].below.share
    (2, Fraction(1, 2), Fraction(1, 2))
    >>> plan_order((Fraction(9, 10), Fraction(99, 100))).joint
    False
    """
    listed = sorted(set(quantiles))
    apart = Order(tuple(Node(q, q) for q in listed), len(listed), 0)
    if len(listed) < 2:
        return apart
    depth = len(listed).bit_length()
    root = _grow_tree(listed, Fraction(0), Fraction(1), depth)
    assert root is not None
    nested = Order((root,), depth, depth - 1)
    return min(apart, nested, key=lambda order: _average_error(order, listed))


def _average_error(order: Order, quantiles: list[Fraction]) -> float:
    """The mean error in rank that is to be expected, as a multiple of what all of epsilon would give for a median."""
    each = order.choices + float(DIVIDING) * order.divisions
    found = {q: e for root in order.roots for q, e in _propagate_errors(root, 0.0, 0.0)}
    return each * sum(found[q] for q in quantiles) / len(quantiles)


def _propagate_errors(node: Node, low: float, high: float) -> Iterator[tuple[Fraction, float]]:
    """A choice errs by 2 max(share, 1 - share) of its own, and by the weighted errors of the ends of its part."""
    share = float(node.share)
    mine = math.hypot(2 * max(share, 1 - share), (1 - share) * low, share * high)
    yield node.quantile, mine
    if node.below is not None:
        yield from _propagate_errors(node.below, low, mine)
    if node.above is not None:
        yield from _propagate_errors(node.above, mine, high)


def _grow_tree(quantiles: list[Fraction], lower: Fraction, upper: Fraction, depth: int) -> Node | None:
    if not quantiles:
        return None
    chosen = _choose_first(quantiles, (lower + upper) / 2, depth)
    below, above = ([q for q in quantiles if q < chosen], [q for q in quantiles if q > chosen])
    share = ((chosen - lower) / (upper - lower)).limit_denominator(FINEST)
    return Node(chosen, share, _grow_tree(below, lower, chosen, depth - 1), _grow_tree(above, chosen, upper, depth - 1))


def _choose_first(quantiles: list[Fraction], middle: Fraction, depth: int) -> Fraction:
    """The quantile nearest to the middle that leaves no more on either side than the levels below can take."""
    room = (1 << depth - 1) - 1
    below = sum(q < middle for q in quantiles)
    helped = middle not in quantiles and below <= room and len(quantiles) - below <= room
    fitting = [q for i, q in enumerate(quantiles) if i <= room and len(quantiles) - 1 - i <= room]
    return middle if helped else min(fitting, key=lambda q: (abs(q - middle), q))
