"""Linkage: a register with names is joined to a release on what both have, exactly (Sweeney 1997) or with errors.

With errors: names with typos, swapped dates, ages instead of birth dates (Fellegi and Sunter 1969). Two spellings are
compared in degrees: 0 missing on either side, 1 different, 2 close, 3 equal. Names are close by Jaro and Winkler's
measure, as rapidfuzz computes it; dates when day and month are swapped, when one of year, month and day differs, or
when one character is mistyped. How much an agreement tells is learned from the pairs themselves, without examples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from rapidfuzz.distance import JaroWinkler
from rapidfuzz.process import cpdist

from deniable.attacks import generalized_cells
from deniable.attacks.codes import Codes, deduplicate_columns, encode_combinations, pack_codes, require_column
from deniable.attacks.outcome import Deadline, Outcome, Progress, Rate, tell
from deniable.errors import ParameterError

SCENARIO = "Joining a register with names"


@dataclass(frozen=True, eq=False, repr=False)
class Links:
    """For every row of the release the one row of the register it fits (-1: none or several), and how many it fits."""

    row: NDArray[np.int64]
    candidates: NDArray[np.int64]

    @property
    def claimed(self) -> NDArray[np.bool_]:
        """Which rows of the release the intruder puts a name to."""
        return self.row >= 0


def find_links(release: pa.Table, register: pa.Table, knows: Sequence[str], *, seconds: float | None = None) -> Links:
    """The intruder's join: a name is claimed where exactly one entry of the register fits.

    Where the release is generalized (`1980s`, `[30, 40)`, `695**`, `*`), an entry fits when it lies within.
    """
    columns = deduplicate_columns(knows)
    if generalized_cells.is_generalized(release, register, columns):
        row, candidates = generalized_cells.match_entries(release, register, columns, Deadline(seconds))
        return Links(row, candidates)
    ours, theirs = encode_combinations([release, register], columns)
    return _join_codes(ours, theirs)


def _join_codes(ours: Codes, theirs: Codes) -> Links:
    """Both sides numbered together once; then a join is two lookups."""
    packed = pack_codes(np.concatenate([ours, theirs]))
    mine, other = packed[: len(ours)], packed[len(ours) :]
    known = other >= 0
    size = int(packed.max(initial=-1)) + 1
    times, entry = np.bincount(other[known], minlength=size), np.full(size + 1, -1, np.int64)
    entry[other[known]] = np.flatnonzero(known)
    # A missing combination is -1: the last place of both arrays, which nobody in the register has.
    many = np.append(times, 0)[mine].astype(np.int64)
    return Links(np.where(many == 1, entry[mine], -1), many)


def link_register(
    release: pa.Table,
    register: pa.Table,
    knows: Sequence[str],
    *,
    truth: NDArray[np.int64] | None = None,
    unit: str | None = None,
    seed: int = 0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Put names to the rows of a release.

    **Scenario.** The intruder holds a register (a voter roll, a staff list) with names and the columns `knows`, and a
    release with the same columns; success is a row of the release with the right name.
    **Method.** An exact join, or containment where the release is generalized; a name is claimed where one entry of
    the register fits. The control links a register in which each column was shuffled by itself: what remains is chance.
    **Outcome.** Rows (people, with `unit`) named rightly where `truth` gives each row's entry in the register (-1: not
    in it); without it, rows named at all, less those that the control shows to be chance; precision is then estimated.
    """
    links = find_links(release, register, knows, seconds=seconds)
    tell(progress, 0.5)
    chance = find_links(release, _shuffle_columns(register, deduplicate_columns(knows), seed), knows, seconds=seconds)
    tell(progress, 1.0)
    person = _number_people(release, unit)
    return _measure_links(links, chance, person, register.num_rows, truth)


def _measure_links(
    links: Links, chance: Links, person: Codes, entries: int, truth: NDArray[np.int64] | None
) -> Outcome:
    people = int(person.max(initial=-1)) + 1
    claimed, by_chance = _count_people(person, links.claimed), _count_people(person, chance.claimed)
    figures = {"claimed": claimed, "register": entries, "claimed_by_chance": by_chance,
               "expected": float((1 / np.maximum(links.candidates, 1))[links.candidates > 0].sum())}  # fmt: skip
    guess = 1 / entries if entries else 0.0
    if truth is None:
        right = max(0, claimed - by_chance)
        warning = ("no truth to check against: precision is estimated from a shuffled register",)
        # Names claimed by chance are already taken off; one in so many entries of them would be right.
        control = Rate(min(people, round(by_chance * guess)), people)
        return Outcome("linkage", SCENARIO, Rate(right, people), guess, control, Rate(right, claimed), figures, warning,
                       claimed)  # fmt: skip
    if len(truth) != len(links.row):
        raise ParameterError("The truth is not one entry for each row of the release")
    correct = links.claimed & (links.row == truth)
    right = _count_people(person, correct)
    wrong = _count_people(person, chance.claimed & (chance.row == truth))
    return Outcome(
        "linkage", SCENARIO, Rate(right, people), guess, Rate(wrong, people),
        Rate(int(correct.sum()), int(links.claimed.sum())), figures, claimed=claimed,
    )  # fmt: skip


def _number_people(release: pa.Table, unit: str | None) -> Codes:
    if unit is None:
        return np.arange(release.num_rows)
    return pack_codes(encode_combinations([release], (unit,), missing=True)[0])


def _count_people(person: Codes, rows: NDArray[np.bool_]) -> int:
    return len(np.unique(person[rows]))


def _shuffle_columns(register: pa.Table, columns: Sequence[str], seed: int) -> pa.Table:
    """The register's columns each in an order of its own: the same values, nobody's combination."""
    generator = np.random.default_rng(seed)
    size = register.num_rows
    return pa.table({name: register[name].take(pa.array(generator.permutation(size))) for name in columns})


# Errors allowed for.

MISSING, DIFFERENT, CLOSE, EQUAL = 0, 1, 2, 3
NAMES_CLOSE = 0.88
YEARS_CLOSE = 1

IsClose = Callable[[Codes, Codes], NDArray[np.bool_]]
"""Which pairs of differing values, given by their numbers, are close."""


def grade_pairs(left: Codes, right: Codes, is_close: IsClose | None = None) -> NDArray[np.int8]:
    """Degrees of likeness of numbered values by pairs; a number below 0 is missing.

    Millions of pairs of rows are a few hundred thousand pairs of values, so each pair of values is compared once.
    """
    degree = np.where(left == right, EQUAL, DIFFERENT).astype(np.int8)
    degree[(left < 0) | (right < 0)] = MISSING
    differ = np.flatnonzero(degree == DIFFERENT)
    if is_close is not None and len(differ):
        width = int(right.max()) + 1
        kinds, kind = np.unique(left[differ] * width + right[differ], return_inverse=True)
        degree[differ] += is_close(kinds // width, kinds % width)[kind]
    return degree


def compare_names(values: pa.Array) -> IsClose:
    """Names alike by Jaro and Winkler, whatever their case."""
    words = np.array([text.lower() for text in values.to_pylist()], object)

    def is_close(left: Codes, right: Codes) -> NDArray[np.bool_]:
        pairs = words[left].tolist(), words[right].tolist()
        alike = cpdist(*pairs, scorer=JaroWinkler.similarity, score_cutoff=NAMES_CLOSE, dtype=np.float64)
        return np.asarray(alike >= NAMES_CLOSE)

    return is_close


def compare_dates(values: pa.Array) -> IsClose:
    """Dates written YYYY-MM-DD; anything else is compared sign by sign."""
    texts = [*values.to_pylist(), "YYYY-MM-DD"]  # the last one only makes every row wide enough for a date
    signs = np.array(texts, np.str_).view(np.uint32).reshape(len(texts), -1)
    length = np.array([len(text) for text in texts])

    def is_close(left: Codes, right: Codes) -> NDArray[np.bool_]:
        a, b = signs[left], signs[right]
        same_length = length[left] == length[right]
        is_date = length[left] == len("YYYY-MM-DD")
        return np.asarray(same_length & (((a != b).sum(axis=1) <= 1) | (is_date & _are_parts_close(a, b))))

    return is_close


_YEAR, _MONTH, _DAY = slice(0, 4), slice(5, 7), slice(8, 10)


def _are_parts_close(a: NDArray[np.uint32], b: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Whether two of year, month and day agree, or day and month are swapped."""
    year, month, day = ((a[:, part] == b[:, part]).all(axis=1) for part in (_YEAR, _MONTH, _DAY))
    swapped = year & (a[:, _MONTH] == b[:, _DAY]).all(axis=1) & (a[:, _DAY] == b[:, _MONTH]).all(axis=1)
    return np.asarray(swapped | (year & (month | day)) | (month & day))


def compare_ages(values: pa.Array) -> IsClose:
    """Ages, close within a year."""
    numbers = np.array([float(value) for value in values.to_pylist()])
    return lambda left, right: np.abs(numbers[left] - numbers[right]) <= YEARS_CLOSE


MOST_PAIRS = 12_000_000
ROUNDS = 12
LOOSELY = "Joining a register with names, errors allowed for,"


class Like(StrEnum):
    """How a column is compared."""

    NAME = "name"
    DATE = "date"
    VALUE = "value"
    AGE = "age"
    """A birth date in the register against an age in the release, or ages on both sides; a year off is close."""


@dataclass(frozen=True, slots=True)
class Field:
    """A column that both tables have, and how it is compared; `register` is its name there if another."""

    column: str
    like: Like = Like.VALUE
    register: str | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Pairs:
    """Candidate pairs of rows, and the log-odds (base 2) that a pair is one person."""

    release: NDArray[np.int64]
    register: NDArray[np.int64]
    weight: NDArray[np.float64]
    skipped: int = 0
    """Pairs in blocks too large to be compared."""


@dataclass(frozen=True, eq=False, repr=False)
class _CodedField:
    """A field over both tables: numbers of values, their spelling, how often each occurs."""

    field: Field
    left: Codes
    right: Codes
    values: pa.Array
    often: NDArray[np.float64]

    def degrees(self, left: Codes, right: Codes) -> NDArray[np.int8]:
        compare = _COMPARISONS.get(self.field.like)
        return grade_pairs(left, right, compare(self.values) if compare else None)


_COMPARISONS = {Like.NAME: compare_names, Like.DATE: compare_dates, Like.AGE: compare_ages}


def score_pairs(
    release: pa.Table,
    register: pa.Table,
    fields: Sequence[Field],
    *,
    year: int | None = None,
    most_pairs: int = MOST_PAIRS,
    seed: int = 0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Pairs:
    """Candidate pairs with their log-odds; `year` is when ages were taken, to compare them with birth dates.

    Only pairs are compared that agree exactly in two fields, or in one rare value (blocking); the largest blocks are
    skipped first when there would be more than `most_pairs`. How informative agreement is, is learned from the pairs
    themselves by expectation maximization, and agreement on a rare value tells more.
    """
    if not fields:
        raise ParameterError("No column to compare was named", expected="One or more fields")
    deadline = Deadline(seconds)
    coded = [_encode_field(release, register, field, year) for field in fields]
    left, right, skipped = _candidates(coded, register.num_rows, most_pairs, deadline)
    tell(progress, 0.3)
    degrees = []
    for part in coded:
        deadline.check()
        degrees.append(part.degrees(part.left[left], part.right[right]))
    tell(progress, 0.8)
    weight = _weights(coded, degrees, left, _chance(coded, seed))
    tell(progress, 1.0)
    return Pairs(left, right, weight, skipped)


def _encode_field(release: pa.Table, register: pa.Table, field: Field, year: int | None) -> _CodedField:
    ours = require_column(release, field.column)
    theirs = require_column(register, field.register or field.column)
    if field.like is Like.AGE:
        ours, theirs = _convert_to_age(ours, year), _convert_to_age(theirs, year)
    texts = pa.chunked_array([*ours.cast(pa.string()).chunks, *theirs.cast(pa.string()).chunks], pa.string())
    encoded = pc.if_else(pc.equal(texts, ""), None, texts).combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    often = np.bincount(codes[codes >= 0], minlength=len(encoded.dictionary)) / max(1, (codes >= 0).sum())
    return _CodedField(field, codes[: len(ours)], codes[len(ours) :], encoded.dictionary, often)


def _convert_to_age(values: pa.ChunkedArray, year: int | None) -> pa.ChunkedArray:
    if not pa.types.is_date(values.type):
        return values
    if year is None:
        raise ParameterError("A birth date is compared with an age", remedy="Say in which year the ages were taken")
    return pc.subtract(pa.scalar(year, pa.int64()), pc.year(values))


def _blocks(coded: Sequence[_CodedField]) -> Iterator[tuple[Codes, Codes]]:
    """Blocking keys: each field by itself, and every two fields together."""
    for part in coded:
        yield part.left, part.right
    for one, other in combinations(coded, 2):
        width = len(other.values) + 1
        yield tuple(
            np.where((a < 0) | (b < 0), -1, a * width + b)
            for a, b in ((one.left, other.left), (one.right, other.right))
        )  # type: ignore[misc]


def _candidates(coded: Sequence[_CodedField], entries: int, most: int, deadline: Deadline) -> tuple[Codes, Codes, int]:
    """Pairs that share a block, each once; blocks are taken from the smallest up while there is room."""
    found: list[Codes] = [np.zeros(0, np.int64)]
    skipped, share = 0, most // max(1, len(coded) * (len(coded) + 1) // 2)
    for left, right in _blocks(coded):
        deadline.check()
        pairs, missed = _block_pairs(left, right, entries, share)
        found.append(pairs)
        skipped += missed
    keys = np.sort(np.concatenate(found))  # numpy.unique hashes, which takes several times as long on mostly new keys
    keys = keys[np.diff(keys, prepend=-1) > 0]
    return keys // max(1, entries), keys % max(1, entries), skipped


def _block_pairs(left: Codes, right: Codes, entries: int, most: int) -> tuple[Codes, int]:
    order = np.argsort(right, kind="stable")
    keys = right[order]
    first = np.searchsorted(keys, left, side="left")
    many = np.where(left < 0, 0, np.searchsorted(keys, left, side="right") - first)
    rows = np.argsort(many, kind="stable")
    fits = np.searchsorted(np.cumsum(many[rows]), most, side="right")
    taken = rows[:fits]
    counts = many[taken]
    whose = np.repeat(taken, counts)
    place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(first[taken], counts)
    return whose * entries + order[place], int(many.sum() - counts.sum())


def _chance(coded: Sequence[_CodedField], seed: int, draws: int = 20_000) -> NDArray[np.float64]:
    """How often each degree occurs between two people at random: one row a field, one column a degree."""
    generator = np.random.default_rng(seed)
    shares = np.full((len(coded), 4), 1e-6)
    for place, part in enumerate(coded):
        if len(part.left) and len(part.right):
            a = part.left[generator.integers(0, len(part.left), draws)]
            b = part.right[generator.integers(0, len(part.right), draws)]
            shares[place] += np.bincount(part.degrees(a, b), minlength=4) / draws
    told = shares[:, 1:].sum(axis=1, keepdims=True)
    return np.asarray(shares / told)


def _weights(
    coded: Sequence[_CodedField], degrees: Sequence[NDArray[np.int8]], left: Codes, chance: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Log-odds of every pair: learned from the patterns of degrees, then sharpened by how rare an agreed value is."""
    count = len(left)
    if not count:
        return np.zeros(0)
    pattern = np.zeros(count, np.int64)
    for degree in degrees:
        pattern = pattern * 4 + degree
    kinds, times = np.unique(pattern, return_counts=True)
    table = np.column_stack([kinds // 4**place % 4 for place in reversed(range(len(coded)))])
    every = len(coded[0].left) * len(coded[0].right)
    agreement, prior = _learn(table, times.astype(np.float64), chance, every)
    weight = np.full(count, math.log2(prior / (1 - prior)))
    ratios = np.log2(agreement / chance)
    for place, part in enumerate(coded):
        degree = degrees[place]
        told = np.where(degree == 0, 0.0, ratios[place][degree])
        rare = np.log2(agreement[place, EQUAL] / np.maximum(part.often[np.maximum(part.left[left], 0)], 1e-9))
        weight += np.where(degree == EQUAL, rare, told)
    return weight


def _learn(
    table: NDArray[np.int64], times: NDArray[np.float64], chance: NDArray[np.float64], every: int
) -> tuple[NDArray[np.float64], float]:
    """Degrees among true pairs and their share of all pairs, by expectation maximization.

    The chance degrees are those of pairs at random, so the share is one of all pairs too, not of the candidates, which
    agree by their making.
    """
    fields = table.shape[1]
    agreement = np.tile([1.0, 0.05, 0.15, 0.8], (fields, 1))
    prior = min(0.5, 1 / math.sqrt(every))
    for _ in range(ROUNDS):
        odds = np.full(len(table), prior / (1 - prior))
        for place in range(fields):
            degree = table[:, place]
            odds *= np.where(degree == 0, 1.0, agreement[place, degree] / chance[place, degree])
        match = odds / (1 + odds) * times
        prior = float(np.clip(match.sum() / every, 1e-15, 0.5))
        for place in range(fields):
            seen = np.bincount(table[:, place], weights=match, minlength=4)[1:] + np.array([0.01, 0.01, 0.1])
            agreement[place, DIFFERENT:] = np.maximum(seen / seen.sum(), 1e-4)
    return agreement, prior


def choose_links(pairs: Pairs, rows: int, sure: float = 0.5) -> Links:
    """For every row of the release the entry that is likelier than all other entries and nobody together."""
    row, candidates = np.full(rows, -1, np.int64), np.bincount(pairs.release, minlength=rows)
    if not len(pairs.release):
        return Links(row, candidates)
    odds = np.exp2(np.clip(pairs.weight, -60, 60))
    total = np.bincount(pairs.release, weights=odds, minlength=rows)
    certain = odds / (1 + total[pairs.release]) > sure
    row[pairs.release[certain]] = pairs.register[certain]
    return Links(row, candidates.astype(np.int64))


def link_with_errors(
    release: pa.Table,
    register: pa.Table,
    fields: Sequence[Field],
    *,
    truth: NDArray[np.int64] | None = None,
    year: int | None = None,
    seed: int = 0,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Put names to rows although values are mistyped, swapped or coarsened.

    **Scenario.** As in `linkage`, with a register in which names and dates are spelled otherwise, or hold a birth date
    where the release holds an age; success is a row with the right name.
    **Method.** Blocking, degrees of likeness, log-odds learned without examples; a name is claimed where one entry is
    likelier than all others together. The control links a register whose columns were shuffled.
    **Outcome.** Rows named rightly, given `truth`; else rows claimed. `skipped` pairs were in blocks too large.
    """
    pairs = score_pairs(release, register, fields, year=year, seed=seed, seconds=seconds, progress=progress)
    links = choose_links(pairs, release.num_rows)
    names = list(dict.fromkeys(field.register or field.column for field in fields))
    generator = np.random.default_rng(seed)
    mixed = pa.table({n: register[n].take(pa.array(generator.permutation(register.num_rows))) for n in names})
    chance = choose_links(score_pairs(release, mixed, fields, year=year, seed=seed, seconds=seconds), release.num_rows)
    claims, rows = int(links.claimed.sum()), release.num_rows
    guess = 1 / register.num_rows if register.num_rows else 0.0
    figures = {"claimed": claims, "pairs": len(pairs.release), "skipped": pairs.skipped}
    by_chance = int(chance.claimed.sum())
    if truth is None:
        warning = ("no truth to check against: precision is estimated from a shuffled register",)
        right = max(0, claims - by_chance)
        control = Rate(min(rows, round(by_chance * guess)), rows)  # those by chance are already taken off
        return Outcome("fuzzy linkage", LOOSELY, Rate(right, rows), guess, control, Rate(right, claims), figures,
                       warning, claims)  # fmt: skip
    right = int((links.claimed & (links.row == truth)).sum())
    control = Rate(int((chance.claimed & (chance.row == truth)).sum()), rows)
    return Outcome("fuzzy linkage", LOOSELY, Rate(right, rows), guess, control, Rate(right, claims), figures,
                   claimed=claims)  # fmt: skip
