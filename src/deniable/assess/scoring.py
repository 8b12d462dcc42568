"""Scoring: which entry of a register each released row truly belongs to, from a table that maps one to the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks.codes import one
from deniable.errors import DataError

Places = NDArray[np.int64]


def entries(release: pa.Table, register: pa.Table, truth: pa.Table) -> Places:
    """For each released row its entry in the register, -1 where it has none.

    The truth has one column that the release has too, and one that the register has.
    """
    ours = [name for name in truth.column_names if name in release.column_names]
    theirs = [name for name in truth.column_names if name in register.column_names and name not in ours]
    if len(ours) != 1 or len(theirs) != 1:
        raise DataError(
            "The truth does not map released rows to the register",
            expected="One column that the release has, and one that the register has",
            charge="",
        )
    released, left = np.split(one([release[ours[0]], truth[ours[0]]]), [release.num_rows])
    registered, right = np.split(one([register[theirs[0]], truth[theirs[0]]]), [register.num_rows])
    entry_of = _lookup(registered, np.arange(len(registered)))
    target = _lookup(left, entry_of(right))
    return target(released)


def _lookup(keys: Places, values: Places) -> Callable[[Places], Places]:
    """A function from keys to values; -1 for a key that is not there."""
    size = int(keys.max(initial=-1)) + 1
    table = np.full(size + 1, -1, np.int64)
    table[keys] = values

    def find(wanted: Places) -> Places:
        known = (wanted >= 0) & (wanted < size)
        return np.asarray(np.where(known, table[np.where(known, wanted, size)], -1))

    return find
