"""The two sides of a controlled attack made even: as many people who were in the data as people who were not.

How often a predicate singles somebody out, or a nearest record is near, depends on how many people there are. On sides
of one size an intruder who learned nothing about anybody does equally well on both.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from deniable.attacks.codes import column


def evened(seen: pa.Table, others: pa.Table, names: Sequence[str], seed: int = 0) -> tuple[pa.Table, pa.Table]:
    """The named columns of equally many rows of both, taken at random from the larger."""
    size, generator = min(seen.num_rows, others.num_rows), np.random.default_rng(seed)
    return _some(seen, names, size, generator), _some(others, names, size, generator)


def _some(rows: pa.Table, names: Sequence[str], size: int, generator: np.random.Generator) -> pa.Table:
    shown = pa.table({name: column(rows, name) for name in names})
    return shown.take(pa.array(np.sort(generator.choice(rows.num_rows, size, replace=False))))
