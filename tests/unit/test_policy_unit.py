"""The privacy unit: what its bounds say of rows."""

from __future__ import annotations

import pytest

from deniable.policy.schema import Bounding, PrivacyUnit


@pytest.mark.parametrize(
    ("unit", "learned"),
    [
        (PrivacyUnit(), 1),
        (PrivacyUnit("pid"), 1),
        (PrivacyUnit("pid", 5, 3), 3),
        (PrivacyUnit("pid", 5, 3, bounding=Bounding.ROWS, max_rows=10), 10),
    ],
)
def test_what_learns_from_whole_rows_sees_rows_in_all_else_those_of_a_group(unit: PrivacyUnit, learned: int) -> None:
    assert unit.rows_learned == learned
