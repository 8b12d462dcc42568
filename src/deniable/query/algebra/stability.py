"""How a unit travels through a relation: which fields still name it, and how often one row of a table can appear.

Stability is what makes sensitivities true. For an id unit every private relation keeps the unit beside each row, and
contributions are bounded once, at the end, so the steps between need no constant. For a row unit nothing is bounded at
the end: the number of copies one row can have is counted here instead.
"""

from __future__ import annotations

from collections import Counter

from deniable.errors import InternalError
from deniable.policy.schema import Bounding, PrivacyUnit, TableSchema
from deniable.query.algebra.expression import ColumnRef
from deniable.query.algebra.relation import Join, PerUnit, Relation, Scan, Transform, Union, is_private, tables_of


def unit_fields(relation: Relation) -> frozenset[str]:
    """The fields that hold the privacy unit's own id."""
    match relation:
        case Scan(table, alias):
            unit = table.unit
            return frozenset({f"{alias}.{unit.column}"}) if unit is not None and unit.column else frozenset()
        case Transform(source, projections):
            known = unit_fields(source)
            return frozenset(n for n, e in projections if isinstance(e, ColumnRef) and e.name in known)
        case PerUnit(source, keys):
            known = unit_fields(source)
            return frozenset(n for n, e in keys if isinstance(e, ColumnRef) and e.name in known)
        case Join(left, right, outer):
            # The right side of a LEFT JOIN may be null where there is a unit all the same.
            return unit_fields(left) if outer else unit_fields(left) | unit_fields(right)
        case Union(inputs, fields):
            everywhere = [
                {i for i, field in enumerate(side.fields) if field.name in unit_fields(side)} for side in inputs
            ]
            return frozenset(fields[i].name for i in set.intersection(*everywhere))
        case _:
            return frozenset()


def unit_of(relation: Relation) -> PrivacyUnit:
    """The one unit of all private tables below; bounds are the tightest that any of them states."""
    units = [table.unit or PrivacyUnit() for table in tables_of(relation) if not table.public]
    if not units:
        raise InternalError("a public relation has no privacy unit")
    return PrivacyUnit(
        units[0].column,
        _tightest([unit.max_groups for unit in units]),
        _tightest([unit.max_rows_per_group for unit in units]),
        # Replacing one unit costs two add-or-remove steps, so the stricter relation holds for all.
        max((unit.neighboring for unit in units), key=lambda relation: relation.value == "replace"),
        Bounding.ROWS if any(unit.bounding is Bounding.ROWS for unit in units) else units[0].bounding,
        _tightest([unit.max_rows for unit in units]),
    )


def has_one_unit(relation: Relation) -> bool:
    """Whether all private tables agree on what a unit is: rows, or ids."""
    return len({(table.unit or PrivacyUnit()).is_row for table in tables_of(relation) if not table.public}) <= 1


def unit_kind(table: TableSchema) -> str:
    """What kind of id the table's unit has: ids of different types are never the same person."""
    unit = table.unit or PrivacyUnit()
    column = table.column(unit.column) if unit.column else None
    return "row" if unit.is_row else (column.type.value if column is not None else "text")


def count_copies(relation: Relation) -> Counter[str]:
    """For row units: how many rows of this relation one row of each private table can touch."""
    match relation:
        case Scan(table):
            return Counter({table.name: 1}) if not table.public else Counter()
        case Union(inputs):
            return sum((count_copies(side) for side in inputs), Counter())
        case Join(left, right):
            # A public side is reduced to one row for each join key (see sql/render), so it copies nothing.
            return count_copies(left) if is_private(left) else count_copies(right)
        case Transform(source) | PerUnit(source):
            return count_copies(source)
        case _:
            return Counter()


def has_one_row(relation: Relation) -> bool:
    """Whether each id has at most one row: its rows were summarized by the id alone, and nothing copied them since."""
    match relation:
        case PerUnit(source, keys):
            known = unit_fields(source)
            return all(isinstance(key, ColumnRef) and key.name in known for _, key in keys)
        case Transform(source):
            return has_one_row(source)
        case _:
            return False


def multiplicity(relation: Relation) -> int:
    """The largest number of rows that one row unit can touch; 1 for id units, which are bounded at the end."""
    if not unit_of(relation).is_row:
        return 1
    return max(count_copies(relation).values(), default=1)


def _tightest(bounds: list[int | None]) -> int | None:
    stated = [bound for bound in bounds if bound is not None]
    return min(stated) if stated else None
