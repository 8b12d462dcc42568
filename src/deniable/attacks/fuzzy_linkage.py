"""Fuzzy linkage: names with typos, swapped dates, ages instead of birth dates (Fellegi and Sunter 1969).

Two spellings are compared in degrees: 0 missing on either side, 1 different, 2 close, 3 equal. Names are close by Jaro
and Winkler's measure; dates when day and month are swapped, when one of year, month and day differs, or when one
character is mistyped. How much an agreement tells is learned from the pairs themselves, without examples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations

import numba as nb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.attacks.codes import Codes, require_column
from deniable.attacks.linkage import Links
from deniable.attacks.outcome import Deadline, Outcome, Progress, Rate, tell
from deniable.errors import ParameterError

MISSING, DIFFERENT, CLOSE, EQUAL = 0, 1, 2, 3
NAMES_CLOSE = 0.88
_LONGEST = 48


def encode_letters(texts: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Texts as one run of lower-case bytes and where each begins; longer ones are cut."""
    spelled = [(text or "").lower().encode()[:_LONGEST] for text in texts.to_pylist()]
    starts = np.cumsum([0, *map(len, spelled)]).astype(np.int64)
    return np.frombuffer(b"".join(spelled), np.uint8), starts


@nb.njit(cache=True, nogil=True)
def compare_names(signs, starts, left, right, degree):  # type: ignore[no-untyped-def]
    """Degrees of likeness of numbered texts by pairs; a number below 0 is missing."""
    seen = np.zeros(64, np.bool_)
    taken = np.zeros(64, np.bool_)
    for i in range(len(left)):
        a, b = left[i], right[i]
        if a < 0 or b < 0:
            degree[i] = 0
        elif a == b:
            degree[i] = 3
        else:
            alike = _jaro_winkler(signs[starts[a] : starts[a + 1]], signs[starts[b] : starts[b + 1]], seen, taken)
            degree[i] = 2 if alike >= NAMES_CLOSE else 1


@nb.njit(cache=True, nogil=True)
def _jaro_winkler(a, b, seen, taken):  # type: ignore[no-untyped-def]
    """Shared letters within reach, less half the swapped ones, and a bonus for a common beginning of up to four."""
    n, m = len(a), len(b)
    if n == 0 or m == 0:
        return 0.0
    reach = max(0, max(n, m) // 2 - 1)
    for i in range(n):
        seen[i] = False
    for j in range(m):
        taken[j] = False
    shared = 0
    for i in range(n):
        for j in range(max(0, i - reach), min(m, i + reach + 1)):
            if not taken[j] and a[i] == b[j]:
                seen[i] = taken[j] = True
                shared += 1
                break
    if shared == 0:
        return 0.0
    swapped, j = 0, 0
    for i in range(n):
        if seen[i]:
            while not taken[j]:
                j += 1
            if a[i] != b[j]:
                swapped += 1
            j += 1
    jaro = (shared / n + shared / m + (shared - swapped / 2) / shared) / 3
    prefix = 0
    while prefix < min(4, n, m) and a[prefix] == b[prefix]:
        prefix += 1
    return jaro + 0.1 * prefix * (1 - jaro)


@nb.njit(cache=True, nogil=True)
def compare_dates(signs, starts, left, right, degree):  # type: ignore[no-untyped-def]
    """Degrees of likeness of dates written YYYY-MM-DD; anything else is compared sign by sign."""
    for i in range(len(left)):
        a, b = left[i], right[i]
        if a < 0 or b < 0:
            degree[i] = 0
        elif a == b:
            degree[i] = 3
        else:
            one, other = signs[starts[a] : starts[a + 1]], signs[starts[b] : starts[b + 1]]
            degree[i] = 2 if _are_dates_close(one, other) else 1


@nb.njit(cache=True, nogil=True)
def _are_dates_close(a, b):  # type: ignore[no-untyped-def]
    if len(a) != len(b):
        return False
    wrong = 0
    for i in range(len(a)):
        wrong += a[i] != b[i]
    if wrong <= 1:
        return True
    if len(a) != 10:
        return False
    year, month, day = True, True, True
    for i in range(4):
        year = year and a[i] == b[i]
    for i in range(2):
        month = month and a[5 + i] == b[5 + i]
        day = day and a[8 + i] == b[8 + i]
    swapped = year and a[5] == b[8] and a[6] == b[9] and a[8] == b[5] and a[9] == b[6]
    return swapped or (year and (month or day)) or (month and day)


@nb.njit(cache=True, nogil=True)
def compare_values(left, right, degree):  # type: ignore[no-untyped-def]
    """Equal or not: for values without a spelling, such as sex."""
    for i in range(len(left)):
        degree[i] = 0 if left[i] < 0 or right[i] < 0 else (3 if left[i] == right[i] else 1)


@nb.njit(cache=True, nogil=True)
def compare_numbers(numbers, left, right, reach, degree):  # type: ignore[no-untyped-def]
    """Numbers, such as ages: close within `reach`."""
    for i in range(len(left)):
        if left[i] < 0 or right[i] < 0:
            degree[i] = 0
        elif left[i] == right[i]:
            degree[i] = 3
        else:
            degree[i] = 2 if abs(numbers[left[i]] - numbers[right[i]]) <= reach else 1


MOST_PAIRS = 12_000_000
ROUNDS = 12
SCENARIO = "Joining a register with names, errors allowed for,"


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
        degree = np.zeros(len(left), np.int8)
        if self.field.like is Like.VALUE:
            compare_values(left, right, degree)
        elif self.field.like is Like.AGE:
            numbers = np.array([float(value) for value in self.values.to_pylist()])
            compare_numbers(numbers, left, right, 1.0, degree)
        else:
            compare = compare_names if self.field.like is Like.NAME else compare_dates
            compare(*encode_letters(self.values), left, right, degree)
        return degree


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
    skipped first when there would be more than `most_pairs`. How telling agreement is, is learned from the pairs
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
    keys = np.unique(np.concatenate(found))
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
        control = Rate(by_chance, rows)
        return Outcome(
            "fuzzy linkage", SCENARIO, Rate(right, rows), guess, control, Rate(right, claims), figures, warning
        )
    right = int((links.claimed & (links.row == truth)).sum())
    control = Rate(int((chance.claimed & (chance.row == truth)).sum()), rows)
    return Outcome("fuzzy linkage", SCENARIO, Rate(right, rows), guess, control, Rate(right, claims), figures)
