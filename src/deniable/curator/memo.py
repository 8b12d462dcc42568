"""A bounded memory of things that are costly to make again: plans of questions, and answers as they were shown."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Made = TypeVar("Made")


class Memo(Generic[Made]):
    """The things made last, by what they were made from; the longest unused is forgotten first.

    >>> memo: Memo[int] = Memo(2)
    >>> memo.get("two", lambda: 2), memo.get("two", lambda: 3)
    (2, 2)
    """

    def __init__(self, most: int = 1024) -> None:
        self._most = most
        self._held: OrderedDict[Hashable, Made] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """What was made for a key, or is made now; what raises is not remembered."""
        found = self.find(key)
        if found is None:
            found = make()
            self.put(key, found)
        return found

    def find(self, key: Hashable) -> Made | None:
        """What is remembered for a key."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                self._held.move_to_end(key)
            return found

    def put(self, key: Hashable, made: Made) -> None:
        """Remember something for a key, instead of what was remembered for it."""
        with self._lock:
            self._held[key] = made
            self._held.move_to_end(key)
            if len(self._held) > self._most:
                self._held.popitem(last=False)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._held.clear()
