"""The contribution bounds in force for one grouping set, and how finely bounded numbers are measured.

Four forms, each of which the rendered SQL enforces (see `sql/exact` and `sql/scaling`) and `sensitivity` prices:

*by row*      each row is a unit, nothing is bounded;
*sampled*     a unit keeps at most `groups` groups and counts for at most `rows` rows in each;
*in all*      a unit keeps at most `rows` rows, in whichever groups they are;
*to a norm*   a unit keeps everything, and its vector over groups is scaled down to the L1 or L2 norm that the sampled
              form with the same bounds could reach.
"""

from __future__ import annotations

from dataclasses import dataclass

FINE = 1 << 12
"""Numbers scaled to a norm are measured so finely that the most one unit adds in a group has at least so many parts."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Contribution bounds; `groups` is None where no choice of groups is needed."""

    groups: int | None
    rows: int | None
    by_row: bool = False
    """Each row is a unit: nothing is bounded."""
    norm: int | None = None
    """1 or 2: the unit's vector over groups is scaled to this norm instead of choosing groups."""
    in_all: bool = False
    """`rows` bounds a unit's rows over all groups together."""

    @property
    def scaled(self) -> bool:
        """Whether vectors are scaled to a norm."""
        return self.norm is not None


def parts_for(reach: int) -> int:
    """Into how many parts a step is cut (a power of two) where one unit adds at most `reach` steps to a group.

    A count scaled by 0.9 is no whole number; cut off to one it would be lost. In parts, less than reach / FINE is lost.
    What no unit can move needs no parts.

    >>> parts_for(1), parts_for(10_000), parts_for(0)
    (4096, 1, 1)
    """
    parts = 1
    while 0 < parts * reach < FINE:
        parts *= 2
    return parts
