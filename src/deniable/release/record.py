"""Records: frozen results with named fields, which cross packages instead of dictionaries.

A record is also a read-only mapping of its fields, so that `report["rows"]` and `{**report}` work as on plain values,
and `to_dict` gives plain values all the way down, for JSON. Fields are public: a record never holds rows. No field is
named like a method of mappings (keys, values, items, get)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, fields, is_dataclass
from datetime import date
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Record(Mapping[str, Any]):
    """Base of results: subclasses are frozen dataclasses with `eq=False`, so that they compare as mappings.

    >>> @dataclass(frozen=True, slots=True, eq=False)
    ... class Sizes(Record):
    ...     rows: int
    ...     groups: tuple[int, ...] = ()
    >>> sizes = Sizes(3, (1, 2))
    >>> sizes.rows, sizes["groups"], sizes.to_dict(), sizes == {"rows": 3, "groups": (1, 2)}
    (3, (1, 2), {'rows': 3, 'groups': [1, 2]}, True)
    """

    def __getitem__(self, name: str) -> Any:
        if name in self.__dataclass_fields__:
            return getattr(self, name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (field.name for field in fields(self))

    def __len__(self) -> int:
        return len(fields(self))

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self, **other}

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain values, for JSON."""
        return {name: to_plain(self[name]) for name in self}

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        """For notebooks: a line for each field, and lines below it for what it holds."""
        printer.text(str(self))

    def __str__(self) -> str:
        return "\n".join(_list_lines(self.to_dict()))


def _list_lines(value: Any, indent: str = "") -> list[str]:
    """Plain values as lines, nested ones below their name.

    >>> _list_lines({"cost": {"epsilon": "1"}, "notes": ["a", "b"], "left": None})
    ['cost:', '  epsilon: 1', 'notes:', '  - a', '  - b', 'left: none']
    """
    named = value.items() if isinstance(value, dict) else (("-", part) for part in value)
    lines = []
    for name, part in named:
        mark = name if name == "-" else f"{name}:"
        if isinstance(part, dict | list):
            lines += [f"{indent}{mark}", *_list_lines(part, f"{indent}  ")]
        else:
            lines.append(f"{indent}{mark} {'none' if part is None else part}")
    return lines


PLAIN = (str, int, float, bool)
"""Types that most values have and that stay as they are."""


def to_plain(value: Any) -> Any:
    """A value in lists, dictionaries, texts and numbers alone.

    >>> to_plain({"at": date(2026, 1, 2), "share": Fraction(1, 4), "names": ("a", "b")})
    {'at': '2026-01-02', 'share': 0.25, 'names': ['a', 'b']}
    """
    if value is None or type(value) in PLAIN:
        return value
    if isinstance(value, Mapping):
        return {str(name): to_plain(part) for name, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, list | tuple | Set):
        return [to_plain(part) for part in value]
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, PurePath) else value


@dataclass(frozen=True, slots=True, eq=False)
class SparseRecord(Record):
    """A record without its optional fields that are None: they are in neither the mapping nor the JSON.

    A field is optional if its default is None. As attributes all fields can be read.

    >>> @dataclass(frozen=True, slots=True, eq=False)
    ... class Found(SparseRecord):
    ...     rows: int
    ...     reason: str | None
    ...     groups: int | None = None
    >>> found = Found(3, None)
    >>> found.to_dict(), "groups" in found, found.groups
    ({'rows': 3, 'reason': None}, False, None)
    """

    def __getitem__(self, name: str) -> Any:
        if name in iter(self):
            return getattr(self, name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        for field in fields(self):
            if field.default is not None or getattr(self, field.name) is not None:
                yield field.name

    def __len__(self) -> int:
        return sum(1 for _ in iter(self))
