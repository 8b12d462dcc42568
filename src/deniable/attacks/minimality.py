"""Minimality and downcoding: a release that generalizes no more than needed says why it had to (Wong 2007, Cohen 2022).

Minimality asks: among the tables that could lie behind a release, from which would this anonymizer have made exactly
this release? The others are out, and what the remaining ones have in common is known, although every class of the
release looks well mixed. Downcoding needs no search: an interval written from the lowest to the highest value of a
class tells both.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.attacks.codes import encode_combinations, require_column
from deniable.attacks.generalized_cells import find_containing
from deniable.attacks.nearest_records import convert_to_floats, is_number
from deniable.attacks.outcome import Deadline, Outcome, Progress, Rate, tell


@dataclass(frozen=True, eq=False, repr=False)
class Beliefs:
    """For each cell that the intruder wants, how likely each value is, over the worlds that remain."""

    share: tuple[Mapping[Any, float], ...]
    worlds: int
    tried: int
    complete: bool

    @property
    def best(self) -> tuple[Any, ...]:
        """The likeliest value of each cell."""
        return tuple(max(one, key=lambda v: (one[v], str(v))) if one else None for one in self.share)


def infer_within_classes(
    classes: NDArray[np.int64],
    values: Sequence[Any],
    same_release: Callable[[Sequence[Any]], bool],
    *,
    most: int = 1_000,
    seed: int = 0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Beliefs:
    """Infer sensitive values from how much was generalized, class by class.

    **Scenario.** The intruder knows everybody's quasi-identifiers (a register of all who are in the table), the release
    and the algorithm: the class of each person and the values of each class are known, who has which value is not.
    Success is a sensitive value.
    **Method.** The values of each class are dealt out to
    its people in all ways, or in `most` random ones; those after which the anonymizer would have made the same release
    (`same_release`) are kept.
    **Outcome.** For each person the shares of values over the kept ways; without `same_release` they are the shares of
    the class.
    """
    groups = [np.flatnonzero(classes == one).tolist() for one in np.unique(classes)]
    ways = math.prod([_count_orders([values[i] for i in group]) for group in groups])
    dealt = (
        _deal_all_ways(groups, values)
        if ways <= most
        else _deal_at_random(groups, values, most, np.random.default_rng(seed))
    )
    counts: list[Counter[Any]] = [Counter() for _ in values]
    deadline, tried, kept = Deadline(seconds), 0, 0
    for deal in dealt:
        if deadline.passed:
            return Beliefs(_shares(counts, kept), kept, tried, False)
        tried += 1
        if same_release(deal):
            kept += 1
            for count, value in zip(counts, deal, strict=True):
                count[value] += 1
        tell(progress, tried / min(ways, most))
    return Beliefs(_shares(counts, kept), kept, tried, ways <= most)


def _count_orders(values: Sequence[Any]) -> int:
    """In how many different orders these values can stand."""
    return math.factorial(len(values)) // math.prod(math.factorial(n) for n in Counter(values).values())


def _deal_all_ways(groups: Sequence[list[int]], values: Sequence[Any]) -> Iterator[list[Any]]:
    every = [list(dict.fromkeys(permutations([values[i] for i in group]))) for group in groups]
    for chosen in product(*every):
        deal = list(values)
        for group, part in zip(groups, chosen, strict=True):
            for place, value in zip(group, part, strict=True):
                deal[place] = value
        yield deal


def _deal_at_random(
    groups: Sequence[list[int]], values: Sequence[Any], most: int, generator: np.random.Generator
) -> Iterator[list[Any]]:
    for _ in range(most):
        deal = list(values)
        for group in groups:
            for place, other in zip(group, generator.permutation(group).tolist(), strict=True):
                deal[place] = values[other]
        yield deal


def _shares(counts: Sequence[Counter[Any]], kept: int) -> tuple[Mapping[Any, float], ...]:
    return tuple({value: n / kept for value, n in count.items()} for count in counts)


def assume_class_shares(classes: NDArray[np.int64], values: Sequence[Any]) -> Beliefs:
    """The beliefs of one who takes the classes as they are: everybody has each value of the class alike."""
    counts = {
        int(one): Counter(values[i] for i in np.flatnonzero(classes == one).tolist()) for one in np.unique(classes)
    }
    shares = tuple({value: n / counts[int(one)].total() for value, n in counts[int(one)].items()} for one in classes)
    return Beliefs(shares, 1, 1, True)


def score_beliefs(beliefs: Beliefs, naive: Beliefs | None, truth: Sequence[Any], *, sure: float = 0.9) -> Outcome:
    """People whose true value the intruder holds with at least `sure`; the control is the same without minimality.

    `naive` are the beliefs of one who takes the classes as they are (an anonymizer that always agrees).
    """
    right = sum(share.get(value, 0.0) >= sure for share, value in zip(beliefs.share, truth, strict=True))
    claimed = sum(max(share.values(), default=0.0) >= sure for share in beliefs.share)
    base = max(Counter(truth).values()) / len(truth) if truth else 0.0
    plain = None
    if naive is not None:
        known = sum(share.get(value, 0.0) >= sure for share, value in zip(naive.share, truth, strict=True))
        plain = Rate(known, len(truth))
    warnings = () if beliefs.complete else ("worlds were sampled, not exhausted",)
    return Outcome("minimality", "Knowing how the release was made", Rate(right, len(truth)), base, plain,
                   figures={"worlds": beliefs.worlds, "tried": beliefs.tried}, warnings=warnings,
                   claimed=claimed)  # fmt: skip


_CLOSED = re.compile(r"^\[\s*(-?[\d.]+)\s*,\s*(-?[\d.]+)\s*\]$")
Ends = tuple[float, float]


def find_closed_intervals(release: pa.Table, people: pa.Table, columns: Sequence[str]) -> tuple[str, ...]:
    """The columns of numbers that the release writes as closed intervals: where an intruder guesses at the ends."""
    shown = [name for name in columns if name in people.column_names and is_number(people[name].type)]
    return tuple(name for name in shown if any(_parse_ends(cell) for cell in _list_cells(release, name)))


def read_interval_ends(
    release: pa.Table, people: pa.Table, columns: Sequence[str], *, classes: int = 500, seed: int = 0
) -> Outcome:
    """Read exact values off the ends of intervals.

    **Scenario.** The intruder has the release alone, and knows that a local recoding (Mondrian) writes the numbers of a
    class from the lowest to the highest. Success is an exact value that somebody of the class has: the cells are finer
    than the steward released them, and a class of k people has k - 2 left to hide among.
    **Method.** For each class and each closed interval [a, b], claim that somebody in it has a, and somebody has b.
    **Outcome.** Rows whose value in some column is disclosed, and precision; the baseline picks one of the values that
    the interval allows.
    """
    names = find_closed_intervals(release, people, columns)
    sample = _sample_classes(release, columns, classes, seed)
    of_row, within = find_containing(sample, people, columns)
    sizes = np.bincount(of_row, minlength=len(within))
    first = pa.array(np.unique(of_row, return_index=True)[1])
    told, chances = np.zeros((len(names), len(within)), np.int64), []
    written = np.zeros(told.shape, np.bool_)
    for place, name in enumerate(names):
        values, cells = (
            convert_to_floats(require_column(people, name)),
            sample[name].take(first).cast(pa.string()).to_pylist(),
        )
        for number, ends in ((n, found) for n, cell in enumerate(cells) if (found := _parse_ends(cell)) is not None):
            written[place, number] = True
            told[place, number] = np.isin(ends, values[within[number]]).sum()
            chances.append(1 / max(1, len(np.unique(values[(values >= ends[0]) & (values <= ends[1])]))))
    exposed = int(np.minimum(told.max(axis=0, initial=0), sizes).sum())
    claimed = int(np.minimum(2 * written.any(axis=0), sizes).sum())
    return Outcome(
        "downcoding", "Reading exact values off the ends of intervals", Rate(exposed, int(sizes.sum())),
        float(np.mean(chances)) if chances else 0.0, precision=Rate(int(told.sum()), 2 * len(chances)),
        figures={"columns": list(names), "classes": len(within)}, claimed=claimed,
    )  # fmt: skip


def _sample_classes(release: pa.Table, columns: Sequence[str], classes: int, seed: int) -> pa.Table:
    """The rows of so many classes, drawn at random: memory stays bounded by them."""
    codes = encode_combinations([release], columns, missing=True)[0]
    every = np.unique(codes)
    if len(every) <= classes:
        return release
    chosen = np.random.default_rng(seed).choice(every, classes, replace=False)
    return release.take(pa.array(np.flatnonzero(np.isin(codes, chosen))))


def _list_cells(release: pa.Table, name: str) -> list[str]:
    values = require_column(release, name)
    if pa.types.is_dictionary(values.type):
        values = values.cast(values.type.value_type)
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return []
    return [cell for cell in pc.unique(values).to_pylist() if cell is not None]


def _parse_ends(cell: str | None) -> Ends | None:
    found = _CLOSED.match(cell or "")
    if found is None or float(found[1]) >= float(found[2]):
        return None
    return float(found[1]), float(found[2])
