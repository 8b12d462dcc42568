"""How much one unit may contribute to a question: the policy's bounds, as the question tightens them.

A question never loosens what the policy states. It may take another form of bounding, as long as no unit has more rows
over all groups than the policy's own form would let it have: the guarantee is that of the noise, which is made for the
form in force, and the form only decides which rows are given up.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from deniable.errors import ParameterError, QueryRefused
from deniable.policy.budget import exact
from deniable.policy.schema import Bounding, PrivacyUnit
from deniable.query.algebra.relation import Measured, has_one_unit, unit_of
from deniable.query.keys import Keys, PublicKeys
from deniable.query.measurements import Measurement
from deniable.query.plan import Limits, is_bounded_in_each_group
from deniable.query.sql.clauses import Clauses

GROUPS, IN_EACH, IN_ALL = "max_groups_contributed", "max_rows_per_group", "max_rows_contributed"


def bound_unit(node: Measured, clauses: Clauses) -> PrivacyUnit:
    """The unit with its contribution bounds; a question may tighten what the policy states, and never loosen it."""
    if not has_one_unit(node.input):
        raise QueryRefused("the tables of this question protect different units: rows in one, ids in another")
    unit = unit_of(node.input)
    named = clauses.options.get("privacy_unit_column")
    if named is not None and named.lower() != (unit.column or "").lower():
        raise QueryRefused("the privacy unit is the policy's to choose", expected=f"The unit is {unit}")
    if unit.is_row:
        return unit
    asked = {
        name: _parse_natural(clauses.options[name], name)
        for name in (GROUPS, IN_EACH, IN_ALL)
        if name in clauses.options
    }
    if IN_ALL in asked:
        return _bound_rows(unit, asked)
    return _bound_groups(unit, asked.get(GROUPS), asked.get(IN_EACH))


def _bound_rows(unit: PrivacyUnit, asked: dict[str, int]) -> PrivacyUnit:
    """So many rows over all groups, and no more than the policy's bounds make of groups times rows."""
    if len(asked) > 1:
        raise QueryRefused(
            f"{IN_ALL} bounds rows over all groups, and cannot stand beside bounds of groups",
            expected=f"{IN_ALL}, or {GROUPS} and {IN_EACH}",
        )
    return replace(unit, bounding=Bounding.ROWS, max_rows=_least(asked[IN_ALL], unit.rows_in_all))


def _bound_groups(unit: PrivacyUnit, groups: int | None, rows: int | None) -> PrivacyUnit:
    if unit.bounding is not Bounding.ROWS:
        groups, rows = _least(groups, unit.max_groups), _least(rows, unit.max_rows_per_group)
        return replace(unit, max_groups=groups, max_rows_per_group=rows)
    if groups is None and rows is None:
        return unit
    # From rows in all to groups and rows in each: their product stays within what the policy allows.
    most = unit.rows_in_all
    if most is not None:
        rows = None if rows is None else min(rows, most)
        groups = min(groups, most) if groups is not None else most // (rows or 1)
        rows = min(rows or most, most // groups)
    return replace(unit, bounding=Bounding.SAMPLE, max_rows=None, max_groups=groups, max_rows_per_group=rows)


def _least(*bounds: int | None) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)


def _parse_natural(text: str, name: str) -> int:
    try:
        number = exact(text, name)
    except ParameterError:
        number = Fraction(0)
    if number.denominator != 1 or not 1 <= number <= 10**9:
        raise QueryRefused(f"{name} is not a whole number from 1 up")
    return int(number)


def bound_to_one_row(unit: PrivacyUnit) -> PrivacyUnit:
    """A unit that has one row by construction."""
    return replace(unit, bounding=Bounding.SAMPLE, max_rows=None, max_groups=1, max_rows_per_group=1)


def limits_of(
    places: tuple[int, ...], keys: Keys, unit: PrivacyUnit, found: tuple[Measurement, ...]
) -> tuple[Limits, int]:
    """The limits in force for a grouping set of an id unit, and in how many of its groups one unit can be."""
    cells = keys.cells if isinstance(keys, PublicKeys) else None
    if unit.bounding is Bounding.ROWS:
        most = unit.rows_in_all
        if most is None:
            raise _refuse_missing_bound("max_rows", IN_ALL, unit)
        return Limits(None, most, in_all=True), 1 if not places else min(most, cells or most)
    groups = 1 if not places else unit.max_groups
    if groups is None:
        raise _refuse_missing_bound("max_groups", GROUPS, unit)
    groups = min(groups, cells) if cells else groups
    rows = unit.max_rows_per_group
    if rows is None:
        if not all(is_bounded_in_each_group(measurement) for measurement in found):
            raise _refuse_missing_bound("max_rows_per_group", IN_EACH, unit)
        rows = 1
    # Scaling leaves a unit in all its keys; private keys are shown because somebody is in them, so they are sampled.
    scaled = unit.bounding is Bounding.SCALE and bool(places) and isinstance(keys, PublicKeys)
    chooses = bool(places) and (cells is None or groups < cells)
    return Limits(groups if chooses or scaled else None, rows, norm=2 if scaled else None), groups


def _refuse_missing_bound(name: str, option: str, unit: PrivacyUnit) -> QueryRefused:
    return QueryRefused(
        f"the policy does not bound {name} of {unit}",
        remedy=f"Declare {name} in the policy, or write OPTIONS ({option} = 5) in the question",
    )
