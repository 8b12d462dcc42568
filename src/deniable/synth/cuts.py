"""Cutting numbers and dates where their records are: paid from the budget, decided from noisy counts.

A bounded column with many steps begins as equal bins. Bins that hold many records are cut again, and their parts again,
until a part is a single step, holds few records, or drowns in noise. So a value that many records share, such as zero,
gets a bin of its own, and sparse stretches stay whole.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from deniable.dp.samplers import Entropy
from deniable.synth.attributes import BINS, Bins
from deniable.synth.marginal import Marginal, measure
from deniable.synth.spending import Spending

PARTS = 16
"""How many parts a bin is cut into."""
MANY = 1 / 64
"""A bin with more than this share of the records is cut again."""
DEVIATIONS = 4.5
"""And only if its count stands out of the noise by so many deviations."""

Places = NDArray[np.int64]


def rounds(attribute: Bins) -> int:
    """How many rounds of cutting can be needed; none where every step has a bin already."""
    if attribute.steps <= BINS:
        return 0
    return 1 + math.ceil(math.log(attribute.steps / BINS, PARTS))


def cut(
    attribute: Bins, places: Places, spend: Spending, share: float, entropy: Entropy
) -> tuple[Bins, list[Marginal]]:
    """The attribute with learned cuts, and what was measured for them: at most its share, in equal parts a round.

    A record stands in at most one of the parts that a round counts, so a unit's records move a round's counts by at
    most their number, as in any marginal.
    """
    each, cuts, measured = share / max(rounds(attribute), 1), set(attribute.cuts), []
    parts = np.array(attribute.cuts, dtype=np.int64)
    first, last = parts[:-1], parts[1:]
    total = 0.0
    for _ in range(rounds(attribute)):
        counted = measure(_counts(places, first, last), (0,), spend.variance(each), spend.rows, entropy)
        measured.append(counted)
        total = total or max(float(counted.counts.sum()), 1.0)  # of the first round, in which every record counts
        enough = max(MANY * total, DEVIATIONS * math.sqrt(counted.variance))
        heavy = (counted.counts >= enough) & (last - first > 1)
        if not heavy.any():
            break
        first, last = _parts(first[heavy], last[heavy])
        cuts.update(first.tolist())
    return replace(attribute, cuts=tuple(sorted(cuts))), measured


def _counts(places: Places, first: Places, last: Places) -> Places:
    """How many records stand in each part; the parts are disjoint and in rising order."""
    at = np.searchsorted(first, places, side="right") - 1
    inside = (at >= 0) & (places < last[at])
    counts: Places = np.bincount(at[inside], minlength=first.size).astype(np.int64)
    return counts


def _parts(first: Places, last: Places) -> tuple[Places, Places]:
    """The parts of bins, in rising order, none empty."""
    edges = [np.unique(a + np.arange(PARTS + 1) * (b - a) // PARTS) for a, b in zip(first, last, strict=True)]
    return np.concatenate([edge[:-1] for edge in edges]), np.concatenate([edge[1:] for edge in edges])
