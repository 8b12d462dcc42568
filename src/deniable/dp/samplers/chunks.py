"""Large requests in small pieces, so that memory beyond the answer stays bounded and work stays in the cache."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

CHUNK = 1 << 15  # draws at a time: some 256 KiB for each array of 64-bit integers


def filled(size: int, draw: Callable[[int], NDArray[np.int64]]) -> NDArray[np.int64]:
    """`size` draws from `draw(count)`, which may return fewer than it was asked for (but not always none).

    Pieces are joined in the order drawn and cut at `size`: the draws are independent, so neither changes their law.
    """
    answer = np.empty(size, dtype=np.int64)
    done = 0
    while done < size:
        piece = draw(min(CHUNK, size - done))
        answer[done : done + piece.size] = piece
        done += piece.size
    return answer
