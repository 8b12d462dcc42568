"""Entropy whose bytes a test spells out: every word, or the very word around a threshold."""

from __future__ import annotations

import numpy as np


class Spelled:
    """Entropy that spells out some bytes and is 0 from there on."""

    def __init__(self, *pieces: bytes) -> None:
        self.rest = b"".join(pieces)

    def take(self, count: int) -> bytes:
        piece, self.rest = self.rest[:count], self.rest[count:]
        return piece.ljust(count, b"\x00")


def spell(values: object, bits: int) -> bytes:
    return np.asarray(values, dtype=np.dtype(f"<u{bits // 8}")).tobytes()
