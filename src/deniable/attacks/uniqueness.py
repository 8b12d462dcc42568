"""Uniqueness: who is alone with a combination of columns, and the smallest combinations that single people out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks.codes import (
    Codes,
    count_equal_codes,
    deduplicate_columns,
    encode_column,
    encode_combinations,
    pack_codes,
    require_column,
)
from deniable.attacks.outcome import Deadline, Outcome, Progress, Rate, tell
from deniable.errors import ParameterError

SCENARIO = "Knowing the columns of one person"


def measure_uniqueness(table: pa.Table, knows: Sequence[str], *, unit: str | None = None) -> Outcome:
    """Count people who are alone with what an intruder knows of them.

    **Scenario.** The intruder knows somebody is in the table, and that person's values of some columns; success is that
    exactly one person fits.
    **Method.** Rows are counted by combination; with `unit`, the people behind them.
    **Outcome.** People alone with a combination of theirs; the baseline is picking one of all people.
    """
    columns = deduplicate_columns(knows)
    people = _number_people(table, unit)
    count = int(people.max(initial=-1)) + 1
    alone = np.unique(people[find_unique_rows(encode_combinations([table], columns, missing=True)[0], people)])
    expected = _expect_right_guesses(encode_combinations([table], columns, missing=True)[0], people)
    return Outcome(
        "uniqueness", f"{SCENARIO} ({', '.join(columns)})", Rate(len(alone), count), 1 / count if count else 0.0,
        figures={"expected_right_guesses": expected, "columns": list(columns)},
    )  # fmt: skip


def find_unique_rows(codes: Codes, people: Codes) -> NDArray[np.bool_]:
    """Which rows have a combination that is one person's only."""
    if not len(codes):
        return np.zeros(0, np.bool_)
    packed = pack_codes(codes)
    order = np.lexsort((people, packed))
    starts = np.flatnonzero(np.diff(packed[order], prepend=-1))
    low, high = np.minimum.reduceat(people[order], starts), np.maximum.reduceat(people[order], starts)
    return np.asarray((low == high)[packed])


def _expect_right_guesses(codes: Codes, people: Codes) -> float:
    """Right guesses, when the intruder picks one of the f people who fit: the score 1/f for each person.

    A person with several combinations is guessed by the rarest of them.
    """
    if not len(codes):
        return 0.0
    pairs = np.unique(np.column_stack([pack_codes(codes), people]), axis=0)
    best = np.zeros(int(people.max()) + 1)
    np.maximum.at(best, pairs[:, 1], 1 / count_equal_codes(pairs[:, 0]))
    return float(best.sum())


def _number_people(table: pa.Table, unit: str | None) -> Codes:
    return (
        np.arange(table.num_rows)
        if unit is None
        else pack_codes(encode_combinations([table], (unit,), missing=True)[0])
    )


@dataclass(frozen=True, slots=True)
class IdentifyingSet:
    """A set of columns that singles out this share of people, none of its subsets doing so."""

    columns: tuple[str, ...]
    share: float


def find_identifying_sets(
    table: pa.Table,
    columns: Sequence[str] | None = None,
    *,
    share: float = 0.5,
    most: int = 4,
    unit: str | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> tuple[IdentifyingSet, ...]:
    """The smallest sets of at most `most` columns that single out at least `share` of the people.

    Sets are tried by size. Adding a column never makes anybody less unique, so a set that contains a found one is not
    minimal and is skipped, and a column that alone finds enough is never combined.
    """
    if not 0 < share <= 1:
        raise ParameterError(f"A share of {share:g} of the people", expected="More than 0, at most 1")
    names = deduplicate_columns(columns or [name for name in table.column_names if name != unit])
    parts = {name: encode_column([require_column(table, name)], missing=True) for name in names}
    people, deadline = _number_people(table, unit), Deadline(seconds)
    found: list[IdentifyingSet] = []
    tried = list(_list_sets(names, most))
    for number, chosen in enumerate(tried):
        deadline.check()
        if not any(set(less.columns) <= set(chosen) for less in found):
            reached = _measure_share(parts, chosen, people)
            found += [IdentifyingSet(chosen, reached)] if reached >= share else []
        tell(progress, (number + 1) / len(tried))
    return tuple(sorted(found, key=lambda one: (len(one.columns), -one.share, one.columns)))


def _list_sets(names: Sequence[str], most: int) -> Iterator[tuple[str, ...]]:
    for size in range(1, min(most, len(names)) + 1):
        yield from combinations(names, size)


def _measure_share(parts: dict[str, Codes], chosen: Sequence[str], people: Codes) -> float:
    codes = parts[chosen[0]]
    for name in chosen[1:]:
        codes = pack_codes(codes) * (int(parts[name].max(initial=0)) + 1) + parts[name]
    count = int(people.max(initial=-1)) + 1
    return len(np.unique(people[find_unique_rows(codes, people)])) / count if count else 0.0


def blame_columns(table: pa.Table, knows: Sequence[str], *, unit: str | None = None) -> tuple[tuple[str, float], ...]:
    """For each known column, the share of people who stay unique when the intruder does not know it."""
    columns, people = deduplicate_columns(knows), _number_people(table, unit)
    parts = {name: encode_column([require_column(table, name)], missing=True) for name in columns}
    rest = {name: tuple(other for other in columns if other != name) for name in columns}
    shares = [(name, _measure_share(parts, others, people) if others else 0.0) for name, others in rest.items()]
    return tuple(sorted(shares, key=lambda pair: pair[1]))


def find_weakest_rows(table: pa.Table, knows: Sequence[str], most: int = 20) -> tuple[tuple[int, int], ...]:
    """The rows that fewest others resemble, as (position from 1, rows alike): for the steward's eyes only."""
    alike = count_equal_codes(encode_combinations([table], deduplicate_columns(knows), missing=True)[0])
    order = np.argsort(alike, kind="stable")[:most]
    return tuple((int(row) + 1, int(alike[row])) for row in order)
