"""Shapes of texts: which runs of letters, digits and signs they are made of, learned with noise; nothing else of them.

A shape writes `A` for a capital, `a` for a small letter, `9` for a digit, itself for a listed sign, and `?` for
anything else: "Ann-7" has the shape `Aaa-9`. Shapes are learned run by run, as a tree: all continuations of the
beginnings kept so far are counted with noise, and those that stand out are kept. Which continuations exist is public,
so a run costs one Gaussian measurement, and a text of one person alone stays below the noise. A beginning without a
continuation that stands out is a shape by itself, marked with an ellipsis: generated texts with such a beginning end
there."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.dp.samplers import Entropy
from deniable.synth.marginal import GaussianBudget, Marginal, measure_counts

SIGNS = " -_./,:;@#&+*=%$()[]'\""
LONGEST = 12
"""Longer runs of letters or digits count as this long."""
RUNS = 8
"""What follows after so many runs is not looked at."""
MOST = 24
"""The most beginnings that are kept at each run."""
DEVIATIONS = 4.5
OPEN = "\u2026"
END = ""
RUN_OF = re.compile(r"[A-Z]+|[a-z]+|[0-9]+|.", re.DOTALL)
LETTERS = "qvwxyz"
"""Made texts use these letters alone, so that nobody takes them for names."""

TOKENS: tuple[str, ...] = (END, *(kind * n for kind in "Aa9" for n in range(1, LONGEST + 1)), *SIGNS, "?")
"""Every run there can be; the empty one ends a text."""
PLACE = {token: place for place, token in enumerate(TOKENS)}

Places = NDArray[np.int64]


def split_runs(text: str) -> list[str]:
    """The first runs of a text, with the end if it is reached.

    >>> split_runs("Ann-7")
    ['A', 'aa', '-', '9', '']
    """
    found = [_run_shape(match.group()) for match in _first_runs(text)]
    return found[:RUNS] if len(found) > RUNS else [*found, END][:RUNS]


def _first_runs(text: str) -> Iterable[re.Match[str]]:
    return (match for match, _ in zip(RUN_OF.finditer(text), range(RUNS + 1), strict=False))


def _run_shape(run: str) -> str:
    first = run[0]
    if first.isascii() and first.isalnum():
        return ("9" if first.isdigit() else "A" if first.isupper() else "a") * min(len(run), LONGEST)
    return first if first in SIGNS else "?"


def learn_shapes(
    texts: pa.Array, spend: GaussianBudget, share: float, entropy: Entropy
) -> tuple[tuple[str, ...], list[Marginal]]:
    """The shapes of a column that stand out, and what was measured: at most its share, in equal parts a run."""
    tokens, times = _tokenize(texts)
    kept, shapes, measured = [""], [], []
    node = np.zeros(times.size, dtype=np.int64)
    for run in range(RUNS):
        cells = node * len(TOKENS) + tokens[:, run]
        inside = (node >= 0) & (tokens[:, run] >= 0)
        exact = np.bincount(cells[inside], times[inside], len(kept) * len(TOKENS)).astype(np.int64)
        counted = measure_counts(exact, (0,), spend.variance(share / RUNS), spend.rows, entropy)
        measured.append(counted)
        heavy = _heavy_cells(counted)
        shapes += [kept[k] + OPEN for k in sorted(set(range(len(kept))) - set(heavy // len(TOKENS))) if kept[k]]
        shapes += [kept[cell // len(TOKENS)] for cell in heavy if cell % len(TOKENS) == PLACE[END]]
        grown = [cell for cell in heavy if cell % len(TOKENS) != PLACE[END]]
        node = _follow_beginnings(cells, inside, grown, exact.size)
        kept = [kept[cell // len(TOKENS)] + TOKENS[cell % len(TOKENS)] for cell in grown]
        if not kept:
            return tuple(shapes), measured
    return (*shapes, *(beginning + OPEN for beginning in kept)), measured


def _tokenize(texts: pa.Array) -> tuple[Places, Places]:
    """The runs of each distinct text, by their places among all runs (-1 after the end), and how often it comes."""
    counted = texts.drop_null().value_counts()
    values, times = counted.field("values").to_pylist(), counted.field("counts").to_numpy(zero_copy_only=False)
    tokens = np.full((len(values), RUNS), -1, dtype=np.int64)
    for row, value in zip(tokens, values, strict=True):
        found = [PLACE[token] for token in split_runs(str(value))]
        row[: len(found)] = found
    return tokens, times.astype(np.int64)


def _heavy_cells(counted: Marginal) -> Places:
    """The cells that stand out of the noise, the largest if there are too many."""
    out = np.flatnonzero(counted.counts >= DEVIATIONS * math.sqrt(counted.variance))
    most = out[np.argsort(-counted.counts[out], kind="stable")][:MOST]
    return np.sort(most).astype(np.int64)


def _follow_beginnings(cells: Places, inside: NDArray[np.bool_], grown: Sequence[int], size: int) -> Places:
    """The kept beginning that each text has now, or -1."""
    new = np.full(size, -1, dtype=np.int64)
    new[np.asarray(grown, dtype=np.int64)] = np.arange(len(grown))
    found: Places = np.where(inside, new[np.where(inside, cells, 0)], -1)
    return found


def match_shapes(texts: pa.Array, shapes: Sequence[str]) -> NDArray[np.int32]:
    """The place of each text's shape, or their number where it has none of them; no text is null."""
    place = {shape: code for code, shape in enumerate(shapes)}
    distinct = texts.dictionary_encode()
    codes = np.array(
        [_find_shape(split_runs(str(text)), place, len(shapes)) for text in distinct.dictionary.to_pylist()] or [0]
    )
    found: NDArray[np.int32] = codes.astype(np.int32)[distinct.indices.to_numpy(zero_copy_only=False)]
    return found


def _find_shape(found: list[str], place: dict[str, int], none: int) -> int:
    beginning = ""
    for run in found:
        if run == END:
            return place.get(beginning, none)
        beginning += run
        if beginning + OPEN in place:
            return place[beginning + OPEN]
    return none


def generate_texts(shape: str, records: int, generator: np.random.Generator) -> pa.Array:
    """So many texts of one shape, from letters that no name is made of and any digits."""
    pattern = shape.removesuffix(OPEN)
    if not pattern:
        return pa.array([""] * records, pa.string())
    choices = {"A": LETTERS.upper(), "a": LETTERS, "9": "0123456789"}
    columns = [np.frombuffer(choices.get(sign, sign).encode(), dtype=np.uint8) for sign in pattern]
    letters = np.stack([own[generator.integers(0, own.size, records)] for own in columns], axis=1)
    ends = np.arange(records + 1, dtype=np.int32) * len(pattern)
    return pa.StringArray.from_buffers(records, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(letters)))
