"""A cache whose entries live for a tenth of a second: for grants, and for answers that were repeats already.

A dashboard asks the same question many times a second. Its answer is public to its asker already and costs nothing, so
it need not be looked up each time. The price is that a revoked token, a changed file or the end of a term is noticed
up to a tenth of a second later, and only for answers that this asker has seen. Nothing that is charged passes here."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Told = TypeVar("Told")
SECONDS = 0.1
MOST_ENTRIES = 1000


class TTLCache(Generic[Told]):
    """Values by key, each for a moment; used by the event loop alone.

    >>> recent: TTLCache[int] = TTLCache()
    >>> recent.put("one", 1)
    >>> recent.get("one")
    1
    """

    def __init__(self, seconds: float = SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._held: OrderedDict[Hashable, tuple[float, Told]] = OrderedDict()

    def get(self, key: Hashable) -> Told | None:
        """The value, if it was put a moment ago."""
        found = self._held.get(key)
        return found[1] if found is not None and self._clock() - found[0] <= self._seconds else None

    def put(self, key: Hashable, value: Told) -> None:
        """Remember a value from now on, for a moment."""
        self._held[key] = (self._clock(), value)
        self._held.move_to_end(key)
        if len(self._held) > MOST_ENTRIES:
            self._held.popitem(last=False)
