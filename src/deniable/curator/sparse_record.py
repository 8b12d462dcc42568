"""Records of workflows whose results differ from case to case: what does not apply is not there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

from deniable.release.record import Record


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
