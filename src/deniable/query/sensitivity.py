"""How much one unit can move a measurement under the contribution bounds in force: what noise is calibrated to.

`Limits` are the contribution bounds of one grouping set, in four forms that the rendered SQL enforces
(`sql/private_sql`):

*by row*      each row is a unit, nothing is bounded;
*sampled*     a unit keeps at most `groups` groups and counts for at most `rows` rows in each;
*in all*      a unit keeps at most `rows` rows, in whichever groups they are;
*to a norm*   a unit keeps everything, and its vector over groups is scaled down to the L1 or L2 norm that the sampled
              form with the same bounds could reach.

For an id unit with at most g groups and r rows in each, and a measurement to which one row adds at most `reach`:

    in one group           L_inf = r * reach        (1 for a count of units; the stated bounds where given)
    over all groups        L1    = g * L_inf,       L2^2 = g * L_inf^2

With at most m rows in all, in whichever groups, the rows of one group add up to m_i * reach with sum m_i <= m, so

    over all groups        L1    = m * reach,       L2^2 = (m * reach)^2    (all rows in one group)

which is one group with r = m: Laplace noise costs the same as for g * r = m, and Gaussian noise more. (A unit is in at
most m groups, which is what a count of units, or a sum with stated bounds in each group, pays for. A choice by ranks
with unit epsilon / (2 m max(q, 1 - q)) loses epsilon m_i / m in a group with m_i rows, so epsilon over all of them.)

Scaled to a norm, a unit's vector keeps the L1 norm, or the L2 norm, that the sampled form with the same g and r could
reach: the noise must be of the same norm. Such numbers are no whole steps; they are measured in `parts` of a step.

A row unit is in one group; if the query can copy a row m times, all m copies may fall in that group: r = m, g = 1.
Replacing a unit is removing one vector a and adding another b, so the vector moves by at most twice as much. Where no
entry can be negative, |a_i - b_i|^2 <= a_i^2 + b_i^2, so the squared L2 norm is only twice as large, not four times."""

from __future__ import annotations

from dataclasses import dataclass

from deniable.query.measurements import Distinct, Measurement, Ordered, Rows, Total, Units

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


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What one unit changes: in one group, and over how many groups; `factor` is 2 when units are replaced."""

    per_group: int
    groups: int
    factor: int = 1
    signed: bool = True
    """Whether one unit can move a measurement up and another can move it down."""
    parts: int = 1
    """Numbers are measured, and `per_group` is counted, in so many parts of a step."""

    @property
    def l1(self) -> int:
        """The L1 norm of the change of the whole vector."""
        return self.factor * self.groups * self.per_group

    @property
    def l2_squared(self) -> int:
        """The squared L2 norm of the change of the whole vector."""
        return (self.factor**2 if self.signed else self.factor) * self.groups * self.per_group**2


def reach_of(measurement: Measurement, rows: int | None) -> int:
    """The most that one unit with at most `rows` rows in a group moves a measurement of that group."""
    r = rows if rows is not None else 1
    match measurement:
        case Units():
            return 1
        case Rows() | Distinct() | Ordered():
            return r
        case Total(per_group=(int(low), int(high))):
            return max(abs(low), abs(high))
        case Total():
            return r * measurement.reach


def sensitivity_of(
    measurement: Measurement, limits: Limits, groups: int, replace: bool, whole: bool = False
) -> Sensitivity:
    """The sensitivity of a measurement over all groups of one grouping set; `whole` ones are not cut into parts."""
    reach = reach_of(measurement, limits.rows)
    # Distinct values are bounded by sampling in every form.
    parts = parts_for(reach) if limits.scaled and not whole and not isinstance(measurement, Distinct) else 1
    if limits.in_all and not is_bounded_in_each_group(measurement):
        groups = 1
    return Sensitivity(reach * parts, groups, 2 if replace else 1, is_signed(measurement), parts)


def is_bounded_in_each_group(measurement: Measurement) -> bool:
    """Whether what a unit adds to a group is bounded there, however many rows it has."""
    return isinstance(measurement, Units) or (isinstance(measurement, Total) and measurement.per_group is not None)


def is_signed(measurement: Measurement) -> bool:
    """Whether a unit can add less than nothing."""
    match measurement:
        case Total(squared=True):
            return False
        case Total(per_group=(int(low), int(high))):
            return low < 0 < high
        case Total(lower=lower, upper=upper, center=center):
            return lower < center < upper
        case _:
            return False
