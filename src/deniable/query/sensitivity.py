"""How much one unit can move a measurement: the numbers that noise is calibrated to.

For an id unit with at most g groups and r rows in each, and a measurement to which one row adds at most `reach`:

    in one group           L_inf = r * reach        (1 for a count of units; the stated bounds where given)
    over all groups        L1    = g * L_inf,       L2^2 = g * L_inf^2

A row unit is in one group; if the question can copy a row m times, all m copies may fall in that group: r = m, g = 1.
Replacing a unit is removing one vector a and adding another b, so the vector moves by at most twice as much. Where no
entry can be negative, |a_i - b_i|^2 <= a_i^2 + b_i^2, so the squared L2 norm is only twice as large, not four times.
"""

from __future__ import annotations

from dataclasses import dataclass

from deniable.query.measure import Distinct, Measurement, Ordered, Rows, Total, Units


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """What one unit changes: in one group, and over how many groups; `factor` is 2 when units are replaced."""

    per_group: int
    groups: int
    factor: int = 1
    signed: bool = True
    """Whether one unit can move a measurement up and another can move it down."""

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


def sensitivity_of(measurement: Measurement, rows: int | None, groups: int, replace: bool) -> Sensitivity:
    """The sensitivity of a measurement over all groups of one grouping set."""
    return Sensitivity(reach_of(measurement, rows), groups, 2 if replace else 1, _signed(measurement))


def _signed(measurement: Measurement) -> bool:
    match measurement:
        case Total(squared=True):
            return False
        case Total(per_group=(int(low), int(high))):
            return low < 0 < high
        case Total(lower=lower, upper=upper, center=center):
            return lower < center < upper
        case _:
            return False
