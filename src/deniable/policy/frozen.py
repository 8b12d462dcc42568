"""A mapping that cannot change: options and per-column settings stay what was read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Frozen(Mapping[K, V]):
    """A mapping with value equality and a hash, and without any way to alter it.

    >>> Frozen({"key": "people"})["key"]
    'people'
    """

    __slots__ = ("_entries",)

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        self._entries = dict(entries or {})

    def __getitem__(self, name: K) -> V:
        return self._entries[name]

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __hash__(self) -> int:
        return hash(frozenset(self._entries.items()))

    def __repr__(self) -> str:
        return f"Frozen({self._entries!r})"
