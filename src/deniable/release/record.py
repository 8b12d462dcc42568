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
        """For IPython in a terminal: a line for each field, and lines below it for what it holds."""
        printer.text(str(self))

    def _repr_html_(self) -> str:
        """For notebooks: a table of the fields, in which a list of records is a table of its own."""
        return _render_html(self.to_dict())

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


MOST_SHOWN = 200
"""Rows of a table of HTML."""


def _render_html(value: Any) -> str:
    """Plain values as HTML: named values as a table of two columns, a list of records as one table of them.

    >>> _render_html([{"n": 1204}, {"sex": "<b>"}])
    '<table><tr><th>n</th><th>sex</th></tr><tr><td>1,204</td><td></td></tr><tr><td></td><td>&lt;b&gt;</td></tr></table>'
    """
    from html import escape  # its tables of names take longer than the rest of this module

    if isinstance(value, dict):
        rows = [[name, part] for name, part in value.items()]
        return _render_table([], rows) if rows else "none"
    if isinstance(value, list):
        if value and all(isinstance(part, dict) for part in value):
            head = list(dict.fromkeys(name for part in value for name in part))
            return _render_table(head, [[part.get(name, "") for name in head] for part in value])
        return "<br>".join(_render_html(part) for part in value[:MOST_SHOWN]) or "none"
    if isinstance(value, float):
        return f"{value:,.6g}"
    return escape("none" if value is None else f"{value:,}" if type(value) is int else str(value))


def _render_table(head: list[str], rows: list[list[Any]]) -> str:
    """Rows of values; where there is no head, the first value of each row is its name."""
    lines = ["".join(f"<th>{_render_html(name)}</th>" for name in head)] if head else []
    for row in rows[:MOST_SHOWN]:
        name = "" if head else f"<th>{_render_html(str(row[0]))}</th>"
        lines.append(name + "".join(f"<td>{_render_html(part)}</td>" for part in row[not head :]))
    more = f"<p>... and {len(rows) - MOST_SHOWN:,} more</p>" if len(rows) > MOST_SHOWN else ""
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>{more}"


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
