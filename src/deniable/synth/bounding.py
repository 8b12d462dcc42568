"""Bounding a unit's rows before they are described: at most so many, chosen by a hash with a fresh secret salt."""

# ruff: noqa: S608  (statements here are made of our own words and quoted names; no user text)

from __future__ import annotations

from deniable.dp.samplers import salt
from deniable.engines.base import quote
from deniable.policy.schema import TableSchema
from deniable.policy.unit import PrivacyUnit


def statement(table: TableSchema, unit: PrivacyUnit, most: int, columns: tuple[str, ...] | None) -> str:
    """The statement that reads the bounded rows. The choice depends on the unit's own rows and the salt alone."""
    names = [column.name for column in table.columns if columns is None or column.name in columns]
    shown = ", ".join(quote(name) for name in names)
    source = quote(table.name)
    if unit.column is None:
        return f"SELECT {shown} FROM {source}"
    who, secret = quote(unit.column), int.from_bytes(salt(8), "little") >> 1
    every = ", ".join(quote(column.name) for column in table.columns)
    rank = f"row_number() OVER (PARTITION BY {who} ORDER BY hash(CAST({secret} AS UBIGINT), {every}))"
    ranked = f"SELECT *, {rank} AS _rank FROM {source} WHERE {who} IS NOT NULL"
    return f"SELECT {shown} FROM ({ranked}) AS t WHERE _rank <= {most}"
