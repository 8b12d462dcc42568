"""Declared text keys on their way through the engine: as small numbers, and checked once.

A column with declared categories is read as null where its value is not declared. That test costs several times a
plain scan, and it is not needed where the column is a public group key: every row whose key is not declared is dropped
by the join with the list of keys, whatever else was computed from it. The same join can hand out the key's place in
the list, which is cheaper to hash, sort and compare than the text while contributions are bounded.
"""

from __future__ import annotations

from dataclasses import replace

from deniable.engines.base import quote
from deniable.query.expression import ColumnRef, Expression, Kind
from deniable.query.keys import Keys, Listed, PublicKeys
from deniable.query.relation import Measured, Relation, Scan, Transform
from deniable.query.sql.render import value


def codable(node: Measured, places: tuple[int, ...], keys: Keys) -> dict[int, Listed]:
    """The key places that are declared text columns as they were read, each with its list of values."""
    if not isinstance(keys, PublicKeys):
        return {}
    listed = {part.place: part for part in keys.parts if isinstance(part, Listed)}
    return {
        place: listed[place]
        for place in places
        if place in listed and _as_declared(node.keys[place][1], node.input, listed[place].values)
    }


def _as_declared(key: Expression, source: Relation, values: tuple[object, ...]) -> bool:
    field = _read(key, source)
    return field is not None and len(set(values)) == len(values) and all(isinstance(v, str) for v in values) and (
        any(f.name == field and f.facts.kind is Kind.TEXT and f.facts.domain == values for f in _scan(source).fields)
    )  # fmt: skip


def _read(key: Expression, source: Relation) -> str | None:
    """The field of a single table that a key is, unchanged by the row-wise steps between; None if it is not one."""
    while isinstance(source, Transform):
        if not isinstance(key, ColumnRef):
            return None
        key, source = dict(source.projections)[key.name], source.input
    return key.name if isinstance(key, ColumnRef) and isinstance(source, Scan) else None


def _scan(source: Relation) -> Scan:
    while isinstance(source, Transform):
        source = source.input
    assert isinstance(source, Scan)
    return source


def unchecked(node: Measured, places: tuple[int, ...], keys: Keys) -> Relation:
    """The node's input without the test of those key columns that the join with all keys tests anyway."""
    fields = {_read(node.keys[place][1], node.input) for place in codable(node, places, keys)}
    return _without(node.input, fields) if fields else node.input


def _without(source: Relation, names: set[str | None]) -> Relation:
    if isinstance(source, Transform):
        return replace(source, input=_without(source.input, names))
    assert isinstance(source, Scan)
    fields = tuple(
        replace(field, facts=field.facts.unbounded()) if field.name in names else field for field in source.fields
    )
    return replace(source, fields=fields)


def code(place: int) -> str:
    """The column of a key's place in its list."""
    return quote(f"#code{place}")


def listing(part: Listed, name: str) -> str:
    """A list of keys with their places: the columns `name` and `code(part.place)`."""
    values = ", ".join(value(v) for v in part.values)
    return f"SELECT unnest([{values}]) AS {name}, unnest(range({len(part.values)})) AS {code(part.place)}"


def joined(node: Measured, codes: dict[int, Listed]) -> str:
    """The joins that drop rows with undeclared keys and code the others; to stand after the relation `t`."""
    text = ""
    for place, part in codes.items():
        key = node.keys[place][1]
        assert isinstance(key, ColumnRef)
        word = quote(f"#word{place}")
        text += f" JOIN ({listing(part, word)}) AS w{place} ON t.{quote(key.name)} = w{place}.{word}"
    return text
