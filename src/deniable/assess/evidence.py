"""Evidence made ready for attacks: the true register entry of each row, and the two sides of a control made equal.

Whether a linked name is right is read from a table that maps released rows to the register. How often a predicate
singles somebody out, or a nearest record is near, depends on how many people there are: on sides of one size an
intruder who learned nothing about anybody does equally well on both."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks.codes import encode_column, require_column
from deniable.errors import DataError

Places = NDArray[np.int64]


def match_true_entries(release: pa.Table, register: pa.Table, truth: pa.Table) -> Places:
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
    released, left = np.split(encode_column([release[ours[0]], truth[ours[0]]]), [release.num_rows])
    registered, right = np.split(encode_column([register[theirs[0]], truth[theirs[0]]]), [register.num_rows])
    entry_of = _make_lookup(registered, np.arange(len(registered)))
    target = _make_lookup(left, entry_of(right))
    return target(released)


def _make_lookup(keys: Places, values: Places) -> Callable[[Places], Places]:
    """A function from keys to values; -1 for a key that is not there."""
    size = int(keys.max(initial=-1)) + 1
    table = np.full(size + 1, -1, np.int64)
    table[keys] = values

    def find(wanted: Places) -> Places:
        known = (wanted >= 0) & (wanted < size)
        return np.asarray(np.where(known, table[np.where(known, wanted, size)], -1))

    return find


def equalize_sides(seen: pa.Table, others: pa.Table, names: Sequence[str], seed: int = 0) -> tuple[pa.Table, pa.Table]:
    """The named columns of equally many rows of both, taken at random from the larger."""
    size, generator = min(seen.num_rows, others.num_rows), np.random.default_rng(seed)
    return _sample_columns(seen, names, size, generator), _sample_columns(others, names, size, generator)


def _sample_columns(rows: pa.Table, names: Sequence[str], size: int, generator: np.random.Generator) -> pa.Table:
    shown = pa.table({name: require_column(rows, name) for name in names})
    return shown.take(pa.array(np.sort(generator.choice(rows.num_rows, size, replace=False))))
