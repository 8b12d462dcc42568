"""Repeatable bytes, for tests only: the product has no such source.

Noise that can be repeated can be subtracted, so a seed must never be reachable from a policy, a command or a server.
"""

from __future__ import annotations

from hashlib import shake_256


class SeededEntropy:
    """Bytes that depend on the seed alone: the same requests in the same order get the same answers."""

    __slots__ = ("_seed", "_taken")

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._taken = 0

    def take(self, count: int) -> bytes:
        """The next `count` bytes of the stream."""
        self._taken += 1
        return shake_256(f"{self._seed}/{self._taken}".encode()).digest(count)
