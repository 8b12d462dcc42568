"""Linkability: two halves of a person's columns, put together by a released table (the second criterion of WP29)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks.nearest_records import MixedRows, find_nearest, scale_tables
from deniable.attacks.outcome import Outcome, Progress, Rate


def link_halves(
    original: pa.Table,
    released: pa.Table,
    columns: tuple[Sequence[str], Sequence[str]],
    *,
    control: pa.Table | None = None,
    attacks: int = 500,
    neighbors: int = 1,
    seed: int = 0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Tell which rows of two registers are the same person, through a released table.

    **Scenario.** One register holds some columns of people, another holds others; neither has names in common. The
    intruder puts two entries together when both are nearest to the same released row. Success is the right pair.
    **Method.** Nearest neighbors in the released table by either set of columns; a link where the sets of `neighbors`
    meet. Rows that are equally near are told apart by lot, for either side by itself: were the first of them taken on
    both sides, common values would meet in the first rows, and chance would look like a link. The control does so for
    people who were not in the original table.
    **Outcome.** Targets linked; the baseline is what sets of neighbors drawn blindly would give.
    """
    generator = np.random.default_rng(seed)
    rates, rows = [], max(1, released.num_rows)
    for table in (original, control):
        if table is None:
            continue
        targets = np.sort(generator.choice(table.num_rows, min(attacks, table.num_rows), replace=False))
        sides = [scale_tables([table, released], part) for part in columns]
        places = [_find_near_rows(side, targets, neighbors, generator, seconds, progress) for side in sides]
        met = (places[0][:, :, None] == places[1][:, None, :]).any(axis=(1, 2))
        rates.append(Rate(int(met.sum()), len(targets)))
    kept = min(neighbors, rows)
    blind = 1 - float(np.prod([max(0, rows - kept - i) / (rows - i) for i in range(kept)]))
    return Outcome(
        "linkability", "Putting two half-known records together", rates[0], blind,
        rates[1] if control is not None else None, figures={"neighbors": neighbors},
    )  # fmt: skip


def _find_near_rows(
    side: list[MixedRows],
    targets: NDArray[np.int64],
    neighbors: int,
    generator: np.random.Generator,
    seconds: float | None,
    progress: Progress | None,
) -> NDArray[np.int64]:
    """The nearest released rows, looked for in an order drawn by lot: the first of equals is then any of them."""
    order = generator.permutation(side[1].rows)
    place = find_nearest(side[0].take(targets), side[1].take(order), neighbors, seconds=seconds, progress=progress)[0]
    return np.asarray(order[place], np.int64)
