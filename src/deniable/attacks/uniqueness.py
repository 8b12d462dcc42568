"""Uniqueness: who is alone with a combination of columns, and the smallest combinations that single people out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

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
    codes = pack_codes(encode_combinations([table], columns, missing=True)[0])
    alone = np.unique(people[find_unique_rows(codes, people)])
    expected = _expect_right_guesses(codes, people)
    return Outcome(
        "uniqueness", f"{SCENARIO} ({', '.join(columns)})", Rate(len(alone), count), 1 / count if count else 0.0,
        figures={"expected_right_guesses": expected, "columns": list(columns)}, claimed=len(alone),
    )  # fmt: skip


def find_unique_rows(codes: Codes, people: Codes) -> NDArray[np.bool_]:
    """Which rows have a combination that is one person's only; combinations are numbered densely from 0."""
    if not len(codes):
        return np.zeros(0, np.bool_)
    # Each combination remembers one of its people; whoever else has it shows that it is not one person's only.
    owner = np.full(int(codes.max()) + 1, -1, np.int64)
    owner[codes] = people
    shared = np.zeros(len(owner), np.bool_)
    shared[codes[owner[codes] != people]] = True
    return np.asarray(~shared[codes])


def _expect_right_guesses(codes: Codes, people: Codes) -> float:
    """Right guesses, when the intruder picks one of the f people who fit: the score 1/f for each person.

    A person with several combinations is guessed by the rarest of them.
    """
    if not len(codes):
        return 0.0
    count = int(people.max()) + 1
    if count == len(codes):  # everybody has one row, and one combination
        return float((1 / count_equal_codes(codes)).sum())
    # One number a pair, which sorts many times faster than two.
    theirs, whose = np.divmod(np.unique(pack_codes(codes) * count + people), count)
    best = np.zeros(count)
    np.maximum.at(best, whose, 1 / count_equal_codes(theirs))
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
    """The share of people who are alone with a combination of theirs. Sorting numbers is faster than hashing them."""
    count = int(people.max(initial=-1)) + 1
    if not count:
        return 0.0
    codes, span = _join_codes([parts[name] for name in chosen])
    codes = codes if span * count < _FULL else pack_codes(codes)
    pairs = np.sort(codes * count + people)
    theirs, whose = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], count)
    first = np.diff(theirs, prepend=-1) > 0
    alone = np.zeros(count, np.bool_)
    alone[whose[first & np.append(first[1:], True)]] = True
    return float(alone.mean())


_FULL = 1 << 62


def _join_codes(parts: Sequence[Codes]) -> tuple[Codes, int]:
    """One number for each combination, and one that is larger than all of them."""
    codes, span = parts[0], int(parts[0].max(initial=0)) + 1
    for part in parts[1:]:
        width = int(part.max(initial=0)) + 1
        if span * width >= _FULL:
            codes = pack_codes(codes)
            span = int(codes.max(initial=0)) + 1
        codes, span = codes * width + part, span * width
    return codes, span


def _combine_codes(parts: Sequence[Codes]) -> Codes:
    """One number for each combination, none much larger than there are rows."""
    codes, span = _join_codes(parts)
    return codes if span < 4 * len(codes) else pack_codes(codes)


SIZES = (2, 3, 5)
"""How many columns somebody may know of a person, beside all of them."""
MOST_SETS = 2_000
"""So many sets of one size are all tried; where there are more, the strongest sets found so far are grown."""
MOST_COLUMNS = 60
BEAM = 8
SEARCHED_ROWS = 20_000
"""Sets are searched on so many rows; the strongest are then measured on all."""


@dataclass(frozen=True, slots=True)
class JointRisk:
    """What somebody could do who knows several released columns of one person.

    `together` is the share of people whom all columns of one of their rows single out; `sets` are the strongest sets of
    two, three and five columns that were found, of `searched` columns. Shares are exact on the rows given. Where
    `exhaustive`, no other set of these sizes was stronger on the rows searched. Where other columns link the rows of a
    person, such as a token, `linked` is the share whom all columns of all linked rows single out.
    """

    people: int
    columns: tuple[str, ...]
    together: float
    sets: tuple[IdentifyingSet, ...]
    searched: int
    exhaustive: bool
    linked: float | None = None

    @property
    def worst(self) -> float:
        """The share whom all columns single out, of one row or of all rows that are linked."""
        return self.together if self.linked is None else max(self.together, self.linked)


def measure_joint_risk(
    table: pa.Table,
    columns: Sequence[str] | None = None,
    *,
    unit: str | None = None,
    sizes: Sequence[int] = SIZES,
    links: Sequence[str] = (),
) -> JointRisk:
    """Measure how many people are alone with what is released of them.

    **Scenario.** The intruder knows somebody is in the table, and that person's values of any two, three or five of the
    released columns, or of all; success is that exactly one person fits.
    **Method.** All columns are combined and counted exactly. Sets are searched from pairs upwards on a sample of rows:
    all sets of a size where they are few, else the strongest so far grown by one column; the best are counted exactly.
    Rows with one value of a column of `links` are known to be one person's: whoever knows them all compares them all.
    **Outcome.** The shares of people singled out.
    """
    names = deduplicate_columns(columns or [name for name in table.column_names if name != unit])
    people = _number_people(table, unit)
    parts = {name: encode_column([require_column(table, name)], missing=True) for name in names}
    together = _measure_share(parts, names, people)
    useful = _choose_telling(parts)
    found, exhaustive = [], len(useful) == len([name for name in names if parts[name].max(initial=0) > 0])
    step = max(1, table.num_rows // SEARCHED_ROWS)
    sample, whose = {name: parts[name][::step] for name in useful}, pack_codes(people[::step])
    best: list[tuple[str, ...]] = [(name,) for name in useful]
    most = max(sizes, default=0) if together else 0  # whom all columns together do not single out, fewer do not
    for size in range(2, min(most, len(useful)) + 1):
        few = comb(len(useful), size) <= MOST_SETS
        tried = list(combinations(useful, size)) if few else _grow_sets(best, useful)
        best = sorted(tried, key=lambda chosen: -_measure_share(sample, chosen, whose))[:BEAM]
        if size in sizes:
            shares = [IdentifyingSet(chosen, _measure_share(parts, chosen, people)) for chosen in best[:3]]
            found.append(max(shares, key=lambda one: one.share))
            exhaustive &= few
    linked = _measure_linked(table, parts, people, links, unit) if links else None
    return JointRisk(int(people.max(initial=-1)) + 1, names, together, tuple(found), len(useful), exhaustive, linked)


SAME = 0.95
"""A column stays the same within a person where it does for so many of the people: then it can link with others."""


def _measure_linked(
    table: pa.Table, parts: dict[str, Codes], people: Codes, links: Sequence[str], unit: str | None
) -> float | None:
    """The largest share whom their linked rows single out, by any column that links; None where none links two rows."""
    codes, shares = _combine_codes(list(parts.values())), []
    each = {name: encode_column([require_column(table, name)]) for name in links}
    same = tuple(name for name in links if unit and _stays_same(each[name], people))
    for chosen in list_linking_sets(links, same):
        groups = _number_groups([each[name] for name in chosen])
        if int(groups.max(initial=-1)) + 1 < len(groups):
            profiles = _number_profiles(codes, groups)[groups]
            alone = np.zeros(int(people.max()) + 1, np.bool_)
            alone[people[find_unique_rows(profiles, people if unit else groups)]] = True
            shares.append(float(alone.mean()))
    return max(shares, default=None)


def list_linking_sets(links: Sequence[str], same: Sequence[str]) -> list[tuple[str, ...]]:
    """By what rows are linked: each column, and all together that stay the same within a person, as two names do.

    >>> list_linking_sets(["first", "last", "visit"], ["first", "last"])
    [('first',), ('last',), ('visit',), ('first', 'last')]
    """
    return list(dict.fromkeys((*((name,) for name in links), *([tuple(same)] if same else []))))


def _stays_same(codes: Codes, people: Codes) -> bool:
    """Whether a column has one value for each of nearly all people."""
    pairs = np.unique(np.column_stack([people, codes]), axis=0)[:, 0]
    return bool((np.bincount(pairs) == 1).mean() >= SAME) if len(pairs) else False


def _number_groups(links: Sequence[Codes]) -> Codes:
    """Rows that are linked as one number; a row without a value in any of the columns is linked with none."""
    codes = _combine_codes([link + 1 for link in links])
    nowhere = np.all([link < 0 for link in links], axis=0)
    return pack_codes(np.where(nowhere, int(codes.max(initial=0)) + 1 + np.arange(len(codes)), codes))


def _number_profiles(codes: Codes, groups: Codes) -> Codes:
    """For each group of rows the number of what its rows are, in whatever order; equal profiles have one number.

    Each combination gets a random number of 64 bits, and a profile is their sum: two that differ have the same sum with
    a probability of 2**-64.
    """
    drawn = np.random.default_rng(1).integers(0, 1 << 64, int(codes.max(initial=0)) + 1, np.uint64)
    sums = np.zeros(int(groups.max(initial=-1)) + 1, np.uint64)
    np.add.at(sums, groups, drawn[codes])
    return np.unique(sums, return_inverse=True)[1].astype(np.int64)


def _choose_telling(parts: dict[str, Codes]) -> tuple[str, ...]:
    """The columns that tell most people apart, by the chance that two rows differ; a column of one value tells none."""
    apart = {}
    for name, codes in parts.items():
        counts = np.bincount(codes) if len(codes) else np.zeros(1)
        apart[name] = 1 - float(((counts / max(len(codes), 1)) ** 2).sum())
    useful = [name for name in parts if apart[name] > 0]
    return tuple(sorted(useful, key=lambda name: -apart[name])[:MOST_COLUMNS])


def _grow_sets(best: Sequence[tuple[str, ...]], names: Sequence[str]) -> list[tuple[str, ...]]:
    """Every set with one column more than one of the best."""
    grown = {tuple(sorted((*chosen, name))) for chosen in best for name in names if name not in chosen}
    return sorted(grown)


def sweep_knowledge(
    table: pa.Table, columns: Sequence[str], *, unit: str | None = None
) -> tuple[tuple[tuple[str, ...], Rate], ...]:
    """For each number of known columns the worst choice of so many, and how many people it singles out."""
    people = _number_people(table, unit)
    count = int(people.max(initial=-1)) + 1
    parts = {name: encode_column([require_column(table, name)], missing=True) for name in columns}
    found = []
    for size in range(1, len(columns) + 1):
        tried = ((_measure_share(parts, chosen, people), chosen) for chosen in combinations(columns, size))
        share, worst = max(tried, key=lambda pair: pair[0])
        found.append((worst, Rate(round(share * count), count)))
    return tuple(found)


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
