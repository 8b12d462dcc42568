"""Columns that leave as they are and are nearly unique: whoever knows such a value finds the row, whatever k says.

k-anonymity speaks of quasi-identifiers only. A column that is released untouched, such as an exact charge, a time stamp
or free text, links a row to any other table that has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from deniable.curator.anonymize_order import TABLE, Roles, statement
from deniable.policy.roles import Role

if TYPE_CHECKING:
    from deniable.engines.base import Engine
    from deniable.kanonymity.request import Request

NEARLY = 0.1
"""A column is told of when so large a share of the rows has a value that fewer than k rows have."""


def warnings(engine: Engine, roles: Roles, request: Request) -> list[str]:
    """What a steward should know before the rows leave: names of columns, never a value."""
    return [*_rows_are_not_people(roles), *_left_out(roles, request), *_linkable(engine, roles, request)]


def _rows_are_not_people(roles: Roles) -> list[str]:
    """Where a person has several rows, a class of k rows may be fewer than k people."""
    unit = roles.schema.unit if roles.schema else None
    if unit is None or unit.is_row:
        return []
    return [f"k counts rows; the policy protects {unit}, who may have several rows in one class"]


def _left_out(roles: Roles, request: Request) -> list[str]:
    """Columns that a reader of the policy may expect in the release."""
    columns = roles.schema.columns if roles.schema else ()
    gone = [c.name for c in columns if c.name in request.identifiers and c.role is not Role.IDENTIFIER and c.mask]
    if not gone:
        return []
    return [
        f"left out, since the policy lets them out masked only: {', '.join(gone)}. To have them, mask the table first"
    ]


def _linkable(engine: Engine, roles: Roles, request: Request) -> list[str]:
    least = max([int(k) for model in request.models if (k := getattr(model, "k", None))] or [2])
    rare = {name: share for name in untouched(engine, roles, request) if (share := _rare(engine, name, least)) > NEARLY}
    if not rare:
        return []
    named = ", ".join(f"{name} ({share:.0%} of the rows)" for name, share in rare.items())
    return [
        f"nearly unique and released as they are: {named} have a value that fewer than {least} rows share, and whoever "
        "knows it finds the row. Make such a column a quasi-identifier (it is generalized) or an identifier (it is "
        "left out), or mask the table first"
    ]


def untouched(engine: Engine, roles: Roles, request: Request) -> Sequence[str]:
    """The columns that are released as they are."""
    names = roles.schema.names if roles.schema else [f.name for f in engine.describe(TABLE)]
    changed = {*request.quasi_identifiers, *request.identifiers}
    return [name for name in names if name not in changed]


def _rare(engine: Engine, name: str, least: int) -> float:
    """The share of rows whose value of a column fewer than so many rows have; a missing value tells nothing."""
    counted = "SELECT COUNT(*) AS n FROM {} WHERE {} IS NOT NULL GROUP BY {}"
    few = f"SELECT COALESCE(SUM(n) FILTER (n < {least}), 0) FROM ({statement(counted, TABLE, name, name)})"  # noqa: S608
    alone = int(engine.run(few).column(0)[0].as_py())
    return alone / max(engine.count(TABLE), 1)
