"""Downcoding by ends: an interval written from the lowest to the highest value of a class tells both (Cohen 2022)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deniable.attacks.base import Outcome, Rate
from deniable.attacks.codes import column, together
from deniable.attacks.generalized import containing
from deniable.attacks.nearest import is_number, numbers

_CLOSED = re.compile(r"^\[\s*(-?[\d.]+)\s*,\s*(-?[\d.]+)\s*\]$")
Ends = tuple[float, float]


def tight(release: pa.Table, people: pa.Table, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns of numbers that the release writes as closed intervals: where an intruder guesses at the ends."""
    shown = [name for name in columns if name in people.column_names and is_number(people[name].type)]
    return tuple(name for name in shown if any(_ends(cell) for cell in _cells(release, name)))


def downcoding(
    release: pa.Table, people: pa.Table, columns: Sequence[str], *, classes: int = 500, seed: int = 0
) -> Outcome:
    """Read exact values off the ends of intervals.

    **Scenario.** The intruder has the release alone, and knows that a local recoding (Mondrian) writes the numbers of a
    class from the lowest to the highest. Success is an exact value that somebody of the class has: the cells are finer
    than the steward released them, and a class of k people has k - 2 left to hide among.
    **Method.** For each class and each closed interval [a, b], claim that somebody in it has a, and somebody has b.
    **Outcome.** Rows whose value in some column is told so, and precision; the baseline picks one of the values that
    the interval allows.
    """
    names = tight(release, people, columns)
    sample = _some_classes(release, columns, classes, seed)
    of_row, within = containing(sample, people, columns)
    sizes = np.bincount(of_row, minlength=len(within))
    first = pa.array(np.unique(of_row, return_index=True)[1])
    told, chances = np.zeros((len(names), len(within)), np.int64), []
    for place, name in enumerate(names):
        values, cells = numbers(column(people, name)), sample[name].take(first).cast(pa.string()).to_pylist()
        for number, ends in ((n, found) for n, cell in enumerate(cells) if (found := _ends(cell)) is not None):
            told[place, number] = np.isin(ends, values[within[number]]).sum()
            chances.append(1 / max(1, len(np.unique(values[(values >= ends[0]) & (values <= ends[1])]))))
    exposed = int(np.minimum(told.max(axis=0, initial=0), sizes).sum())
    return Outcome(
        "downcoding", "Reading exact values off the ends of intervals", Rate(exposed, int(sizes.sum())),
        float(np.mean(chances)) if chances else 0.0, precision=Rate(int(told.sum()), 2 * len(chances)),
        figures={"columns": list(names), "classes": len(within)},
    )  # fmt: skip


def _some_classes(release: pa.Table, columns: Sequence[str], classes: int, seed: int) -> pa.Table:
    """The rows of so many classes, drawn at random: memory stays bounded by them."""
    codes = together([release], columns, missing=True)[0]
    every = np.unique(codes)
    if len(every) <= classes:
        return release
    chosen = np.random.default_rng(seed).choice(every, classes, replace=False)
    return release.take(pa.array(np.flatnonzero(np.isin(codes, chosen))))


def _cells(release: pa.Table, name: str) -> list[str]:
    values = column(release, name)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return []
    return [cell for cell in pc.unique(values).to_pylist() if cell is not None]


def _ends(cell: str | None) -> Ends | None:
    found = _CLOSED.match(cell or "")
    if found is None or float(found[1]) >= float(found[2]):
        return None
    return float(found[1]), float(found[2])
