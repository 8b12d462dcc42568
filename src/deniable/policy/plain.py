"""From checked values that know their place to the plain frozen values that a policy keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from deniable.errors import Place
from deniable.policy.checking import REFUSED, Chosen, Item
from deniable.policy.frozen import Frozen
from deniable.policy.reading import Leaf
from deniable.policy.schema import Spec


class Section:
    """Entries of a checked record, read by key; what was refused by the check is absent."""

    def __init__(self, item: Item | None) -> None:
        self._item = item
        self._given: dict[str, Item] = item.value if item is not None and isinstance(item.value, dict) else {}
        self._entries = {name: each for name, each in self._given.items() if each.value is not REFUSED}

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __getitem__(self, name: str) -> Item:
        return self._entries[name]

    def was_given(self, name: str) -> bool:
        """Whether a key is there, be its value taken or refused."""
        return name in self._given

    @property
    def place(self) -> Place:
        """Where the entries begin."""
        assert self._item is not None
        return self._item.place

    def get(self, name: str, default: Any) -> Any:
        """The plain value of a key, or the default."""
        return plain(self._entries[name]) if name in self._entries else default

    def place_of(self, name: str) -> Place:
        """Where the value of a key stands."""
        return self._entries[name].place

    def section(self, name: str) -> Section:
        """The entries under a key; empty if they are absent or not entries."""
        return Section(self._entries.get(name))


def plain(value: object) -> Any:
    """A value without its places: entries become Frozen, lists tuples, kinds Specs."""
    match value:
        case Item():
            return plain(value.value)
        case Chosen():
            return spec(value)
        case dict():
            return Frozen({name: plain(each) for name, each in value.items()})
        case tuple():
            return tuple(plain(each) for each in value)
        case Leaf():
            return value.text
        case _:
            return value


def spec(chosen: Chosen) -> Spec:
    """A kind with its options."""
    return Spec(chosen.kind, Frozen({name: plain(item) for name, item in chosen.options.items()}))
