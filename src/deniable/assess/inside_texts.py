"""What is inside the texts and lists of outputs: words, characters and entries, counted in columns of their own.

A text has far more words and sequences of characters than a table can have columns. The runs that an audit learns from
choose those that differ most between the two inputs; the runs that test are not looked at, so the audit stays exact.
Long texts are read up to a limit, and what is beyond it is said.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.attacks.dp_audit import list_learning_runs

Ids = NDArray[np.uint64]
Whole = NDArray[np.int64]

WORD = re.compile(r"\w+|[^\w\s]")
CHARACTERS, WORDS = (1, 2, 3, 4, 5, 6, 8), (1, 2)
"""Sequences of so many neighboring characters, and of so many neighboring words or entries, are counted."""
PLACES = 64
"""Words and characters are looked at by their place up to so many places from either end."""
MOST_READ = 10_000
"""Of the texts of one output so many characters are read, and of its lists so many entries."""
MOST_LEARNED = 3_000_000
"""Characters (or words) of all the runs that choose; of longer texts fewer runs choose."""
AT_ONCE = 500_000
MOST_CHOSEN, SHORTLISTED, FEWEST = 48, 12, 3
"""Columns that are added in all; by each kind and score; and in how many runs one is seen at least."""
APART, SURE = 3.0, 1.5
"""Standard deviations from which means are apart, and by which a ratio is lowered."""
HIDDEN = "told"
"""Where the words of an error are: what is in them is not shown."""


@dataclass(slots=True)
class Inside:
    """The texts and the lists of one output, each with the way to it; a place in a list is no part of the way."""

    texts: list[tuple[str, str]] = field(default_factory=list)
    lists: list[tuple[str, list[str]]] = field(default_factory=list)

    def cut(self) -> Inside:
        """As much of it as is read."""
        found, left = Inside(), MOST_READ
        for way, text in self.texts:
            found.texts.append((way, text[:left]))
            left -= min(left, len(text))
        left = MOST_READ
        for way, entries in self.lists:
            found.lists.append((way, entries[:left]))
            left -= min(left, len(entries))
        return found

    @property
    def size(self) -> int:
        """How many characters and entries it has."""
        return sum(len(text) for _, text in self.texts) + sum(len(entries) for _, entries in self.lists)


@dataclass(frozen=True, slots=True)
class Counted:
    """Columns of counts for both inputs, what each counts, and what was not looked at."""

    tables: tuple[Whole, Whole]
    names: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def count_inside(sides: Sequence[Sequence[Inside]], batches: int = 0) -> Counted:
    """Count what differs most inside the texts and lists of the runs that an audit learns from."""
    read = [[output.cut() for output in side] for side in sides]
    learning = [[side[place] for place in list_learning_runs(len(side), batches)] for side in read]
    few = _limit_runs(learning)
    codes = _Codes()
    shortlist: list[_Found] = []
    for of in dict.fromkeys(kind.of for kind in _KINDS) if all(few) else ():  # of no run nothing is learned
        parts = _join_parts(few[0] + few[1], of, codes)
        for kind in (kind for kind in _KINDS if kind.of == of):
            shortlist += _shortlist(kind, parts, (len(few[0]), len(few[1])))
    codes.closed = True
    chosen = _choose(shortlist)
    tables = tuple(_count(side, chosen, codes) for side in read)
    names = tuple(each.kind.name(each.spot, few[0] + few[1]) for each in chosen)
    return Counted((tables[0], tables[1]), names, tuple(_say_unread(sides, learning, few)))


def _limit_runs(learning: list[list[Inside]]) -> list[list[Inside]]:
    """As many of the runs of each input as can be read within the limit, the first ones (they are mixed)."""
    found = []
    for side in learning:
        sizes = np.cumsum([output.size for output in side])
        found.append(side[: max(1, int(np.searchsorted(sizes, MOST_LEARNED // 2, side="right")))])
    return found


def _say_unread(
    sides: Sequence[Sequence[Inside]], learning: Sequence[Sequence[Inside]], few: Sequence[Sequence[Inside]]
) -> Iterator[str]:
    every = [output for side in sides for output in side]
    if any(output.texts for output in every):
        yield (
            "in texts, what is not told by numbers, lines, words, two neighboring words, up to "
            f"{max(CHARACTERS)} neighboring characters, or how often and where these occur, or the same in base64 or "
            "hexadecimal digits, forwards or backwards"
        )
    if any(max(_measure_part(output.texts), _measure_part(output.lists)) > MOST_READ for output in every):
        yield f"in long outputs, words and entries beyond the first {MOST_READ} characters of texts or entries of lists"
    if any(len(short) < len(whole) for short, whole in zip(few, learning, strict=True)):
        runs = min(map(len, few))
        yield (
            f"rare words and sequences of characters: the texts are long, so {runs} runs on each input chose which "
            "are counted"
        )


ENCODED = (re.compile(r"[A-Za-z0-9+/]{4,}"), re.compile(r"[A-Za-z0-9_-]{4,}"))
"""What may be base64 (in either alphabet) or hexadecimal digits."""


def decode_texts(text: str) -> Iterator[str]:
    """Texts that are inside a text as base64 or as hexadecimal digits, forwards or backwards.

    >>> list(decode_texts("token QWxpY2U=")), list(decode_texts("end 3696c614"))
    (['Alice'], ['Alic'])
    """
    for way in (text[:MOST_READ], text[:MOST_READ][::-1]):
        for token in dict.fromkeys(found for each in ENCODED for found in each.findall(way)):
            for decode in (bytes.fromhex, _decode_base64):
                try:
                    decoded = decode(token).decode()
                except (ValueError, binascii.Error):
                    continue
                if len(decoded) > 1 and decoded.isprintable():
                    yield decoded


def _decode_base64(token: str) -> bytes:
    return base64.urlsafe_b64decode(token.translate(_URLSAFE) + "=" * (-len(token) % 4))


_URLSAFE = str.maketrans("+/", "-_")


def _measure_part(part: Sequence[tuple[str, Any]]) -> int:
    return sum(len(inside) for _, inside in part)


# Sequences of codes: characters of texts, words of texts, entries of lists.


@dataclass(slots=True)
class _Codes:
    """Numbers of words and of ways, in the order in which they were seen; once closed, 0 for all others."""

    words: dict[str, int] = field(default_factory=dict)
    ways: dict[str, int] = field(default_factory=dict)
    closed: bool = False

    def number(self, known: dict[str, int], text: str) -> int:
        return known.get(text, 0) if self.closed else known.setdefault(text, len(known) + 1)


@dataclass(frozen=True, slots=True)
class _Parts:
    """Sequences one after the other: codes, and for each code its output, its way and its places from both ends."""

    codes: Ids
    owners: Whole
    ways: Ids
    start: Whole
    end: Whole


def _list_sequences(output: Inside, of: str) -> Iterator[tuple[str, Any]]:
    if of == "character":
        yield from ((way, text) for way, text in output.texts if len(text) > 1)
    elif of == "word":
        found = ((way, WORD.findall(text)) for way, text in output.texts)
        yield from ((way, words) for way, words in found if len(words) > 1)
    else:
        yield from ((way, entries) for way, entries in output.lists if len(entries) > 1)


def _join_parts(outputs: Sequence[Inside], of: str, codes: _Codes) -> _Parts:
    numbers, lengths, owners, ways = [], [], [], []
    for owner, output in enumerate(outputs):
        for way, sequence in _list_sequences(output, of):
            if of == "character":
                numbers.append(np.frombuffer(sequence.encode("utf-32-le", "surrogatepass"), np.uint32))
            else:
                numbers.append(np.array([codes.number(codes.words, word) for word in sequence], np.uint32))
            lengths.append(len(sequence))
            owners.append(owner)
            ways.append(codes.number(codes.ways, way))
    size = np.array(lengths, np.int64)
    joined = np.concatenate(numbers).astype(np.uint64) if numbers else np.zeros(0, np.uint64)
    start = np.arange(len(joined)) - np.repeat(np.cumsum(size) - size, size)
    return _Parts(joined, np.repeat(np.array(owners, np.int64), size), np.repeat(np.array(ways, np.uint64), size),
                  start, np.repeat(size, size) - 1 - start)  # fmt: skip


_KEYS = np.random.default_rng(20261117).integers(1, 2**63, 16, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


@dataclass(frozen=True, slots=True)
class _Kind:
    """Sequences of `size` characters, words or entries; or, with `end`, a single one and its place from that end."""

    of: str
    size: int
    end: str = ""

    def read(self, parts: _Parts) -> tuple[Ids, Whole, Whole]:
        """A number for each sequence, the output that has it, and where it begins."""
        ids = parts.ways * _KEYS[-1] + _KEYS[-2] // np.uint64(self.size)
        if self.end:
            place = parts.start if self.end == "start" else parts.end
            ids += (parts.codes + np.uint64(1)) * _KEYS[0] + place.astype(np.uint64) * _KEYS[-3]
            spots = np.flatnonzero(place < PLACES)
        else:
            for step in range(self.size):
                ids[: len(ids) - step] += (parts.codes[step:] + np.uint64(1)) * _KEYS[step]
            spots = np.flatnonzero(parts.end >= self.size - 1)
        ids ^= ids >> np.uint64(31)
        return ids[spots], parts.owners[spots], spots

    def name(self, spot: int, outputs: Sequence[Inside]) -> str:
        """What is counted, in words."""
        for output in outputs:
            for way, sequence in _list_sequences(output, self.of):
                if spot < len(sequence):
                    return f"{way} {self._describe(sequence, spot, way)}".strip()
                spot -= len(sequence)
        raise AssertionError("a place that is in no output")

    def _describe(self, sequence: Any, spot: int, way: str) -> str:
        shown = "" if way.split(".")[-1] == HIDDEN else self._show(sequence[spot : spot + self.size])
        if self.end:
            place = spot + 1 if self.end == "start" else len(sequence) - spot
            return f"{self.of} {place}{'' if self.end == 'start' else ' from the end'} {shown}".strip()
        several = {"entry": "entries"}.get(self.of, f"{self.of}s") if self.size > 1 else self.of
        return f"{several} {shown}".strip()

    @staticmethod
    def _show(part: Any) -> str:
        text = part if isinstance(part, str) else " ".join(part)
        return repr(text if len(text) <= 40 else text[:40] + "...")


_KINDS = (
    *(_Kind("entry", size) for size in WORDS),
    *(_Kind("word", size) for size in WORDS),
    *(_Kind("word", 1, end) for end in ("start", "end")),
    *(_Kind("character", size) for size in CHARACTERS),
    *(_Kind("character", 1, end) for end in ("start", "end")),
)


# The choice, by the runs that an audit learns from.


@dataclass(frozen=True, slots=True)
class _Found:
    """A sequence, where it was first seen, in which runs how often (as one number), and how it scores."""

    kind: _Kind
    id: int
    spot: int
    runs: int
    scores: tuple[float, ...]


def _shortlist(kind: _Kind, parts: _Parts, runs: tuple[int, int]) -> list[_Found]:
    """The sequences of a kind that score best by each score."""
    ids, owners, spots = kind.read(parts)
    if not len(ids):
        return []
    order = np.argsort(ids, kind="stable")  # owners ascend, and stay so within each sequence
    sorted_ids, sorted_owners = ids[order], owners[order]
    begins = np.flatnonzero(_changes(sorted_ids) | _changes(sorted_owners))
    times = np.diff(np.append(begins, len(ids)))
    seen, holder = sorted_ids[begins], sorted_owners[begins]
    first = np.flatnonzero(_changes(seen))
    often = np.diff(np.append(first, len(seen)))
    kept = (often >= FEWEST) | (len(first) <= SHORTLISTED)
    mixed = (holder.astype(np.uint64) + np.uint64(1)) * _KEYS[0]
    mixed = (mixed ^ (mixed >> np.uint64(29))) * _KEYS[1] * times.astype(np.uint64)
    marks = np.add.reduceat(mixed, first)
    scores = _score(times.astype(np.float64), holder >= runs[0], first, runs)
    places: set[int] = set()
    for row in scores:
        row[~kept] = -np.inf
        places |= set(np.argsort(-row, kind="stable")[: 4 * SHORTLISTED].tolist())
    return [
        _Found(kind, int(seen[first[p]]), int(spots[order[begins[first[p]]]]), int(marks[p]), tuple(scores[:, p]))
        for p in sorted(places) if kept[p]
    ]  # fmt: skip


def _changes(values: NDArray[Any]) -> NDArray[np.bool_]:
    return np.concatenate([[True], values[1:] != values[:-1]])


def _score(times: NDArray[np.float64], second: NDArray[np.bool_], first: Whole, runs: tuple[int, int]) -> Any:
    """How far the two inputs are apart, each from 0 up where it is worth a look: by means, and by ratios of shares."""

    def total(values: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        both = np.add.reduceat(values, first)
        other = np.add.reduceat(values * second, first)
        return both - other, other

    sums, squares, fourth = (total(times**power) for power in (1, 2, 4))
    scores = [_compare_means(sums, squares, runs), _compare_means(squares, fourth, runs)]
    for least in (1, 2, 3):
        hits = total((times >= least).astype(np.float64))
        misses = tuple(count - hit for count, hit in zip(runs, hits, strict=True))
        for one, other in (hits, misses):
            scores += [_compare_shares(one, other, runs), _compare_shares(other, one, runs[::-1])]
    return np.array(scores)


def _compare_means(sums: Any, squares: Any, runs: tuple[int, int]) -> NDArray[np.float64]:
    means = [total / count for total, count in zip(sums, runs, strict=True)]
    spread = [
        (square / count - mean**2 + 1 / count) / count for square, count, mean in zip(squares, runs, means, strict=True)
    ]
    return np.asarray(np.abs(means[0] - means[1]) / np.sqrt(spread[0] + spread[1]) - APART)


def _compare_shares(likely: Any, unlikely: Any, runs: tuple[int, int]) -> NDArray[np.float64]:
    ratio = np.log((likely + 0.5) / (unlikely + 0.5) * (runs[1] / runs[0]))
    return np.asarray(ratio - SURE * np.sqrt(1 / (likely + 0.5) + 1 / (unlikely + 0.5)))


def _choose(shortlist: list[_Found]) -> list[_Found]:
    """The best of each score in turn; of sequences that occur in the same runs, the first kind."""
    if not shortlist:
        return []
    ranked = [
        [each for each in sorted(shortlist, key=lambda one: -one.scores[score]) if each.scores[score] > 0]
        for score in range(len(shortlist[0].scores))
    ]
    chosen: dict[int, _Found] = {}
    for row in zip_longest(*ranked):
        for each in row:
            if each is not None and len(chosen) < MOST_CHOSEN:
                chosen.setdefault(each.runs, each)
    return list(chosen.values())


def _count(side: Sequence[Inside], chosen: Sequence[_Found], codes: _Codes) -> Whole:
    """How often each output has each of the sequences that were chosen."""
    table = np.zeros((len(side), len(chosen)), np.int64)
    for begin, outputs in _list_chunks(side) if chosen else ():
        for of in dict.fromkeys(each.kind.of for each in chosen):
            parts = _join_parts(outputs, of, codes)
            for kind in dict.fromkeys(each.kind for each in chosen if each.kind.of == of):
                columns = np.array(sorted((c for c, each in enumerate(chosen) if each.kind == kind),
                                          key=lambda column: chosen[column].id))  # fmt: skip
                ids = np.array([chosen[column].id for column in columns], np.uint64)
                found, owners, _ = kind.read(parts)
                at = np.searchsorted(ids, found).clip(0, len(ids) - 1)
                held = ids[at] == found
                np.add.at(table, (begin + owners[held], columns[at[held]]), 1)
    return table


def _list_chunks(side: Sequence[Inside]) -> Iterator[tuple[int, Sequence[Inside]]]:
    """Outputs in parts that fit into memory."""
    sizes = np.cumsum([output.size for output in side])
    begin = 0
    while begin < len(side):
        before = sizes[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(sizes, before + AT_ONCE, side="right")))
        yield begin, side[begin:end]
        begin = end
