"""Differencing: figures that each cover many people, and subtracted from each other cover one.

Answers are subtracted from answers (a whole log by linear algebra), and a fine map from a coarse one: what small-cell
suppression hides in the finer release, the coarser one discloses.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks.codes import require_column
from deniable.attacks.generalized_cells import parse_cell
from deniable.attacks.nearest_records import convert_to_floats
from deniable.attacks.outcome import Outcome, Rate
from deniable.attacks.solvers import find_determined, solve_least_squares
from deniable.errors import ParameterError


@dataclass(frozen=True, slots=True)
class IsolatingPair:
    """Two questions of a log, by position, whose sets differ by these people (positions) only."""

    larger: int
    smaller: int
    people: tuple[int, ...]
    total: float


def find_isolating_pairs(
    masks: NDArray[np.bool_], totals: NDArray[np.float64], *, most: int = 1
) -> tuple[IsolatingPair, ...]:
    """The pairs of questions, one inside the other, that differ by at most `most` people."""
    count = masks.astype(np.float32)
    common = count @ count.T
    size = common.diagonal()
    inside = (common == size[None, :]) & (size[:, None] > size[None, :]) & (size[:, None] - size[None, :] <= most)
    return tuple(
        IsolatingPair(
            int(large), int(small),
            tuple(np.flatnonzero(masks[large] & ~masks[small]).tolist()), float(totals[large] - totals[small]),
        )
        for large, small in zip(*np.nonzero(inside), strict=True)
    )  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Isolated:
    """Who a log isolates: by a pair of answers, or by any combination of them, and with what value."""

    by_pair: NDArray[np.bool_]
    by_combination: NDArray[np.bool_]
    value: NDArray[np.float64]


def isolate_people(masks: NDArray[np.bool_], totals: NDArray[np.float64]) -> Isolated:
    """Find everybody whose value follows from exact answers; `value` holds it where it does, NaN elsewhere."""
    _check(masks, totals)
    different = np.unique(masks, axis=0) if masks.size else masks
    found = find_determined(different)
    value = np.where(found, solve_least_squares(masks, totals) if masks.size else np.nan, np.nan)
    return Isolated(_find_differing_people(different), found, value)


def _find_differing_people(masks: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Who is a group alone, or all that a group has beside another one inside it: by the sums of members' places."""
    found = np.zeros(masks.shape[1], np.bool_)
    count = masks.astype(np.float32)
    size, places = masks.sum(axis=1), masks @ np.arange(masks.shape[1])
    found[places[size == 1]] = True
    for large in range(len(masks)):
        small = np.flatnonzero(size == size[large] - 1)
        inside = small[count[small] @ count[large] == size[small]]
        found[places[large] - places[inside]] = True
    return found


def attack_by_differencing(
    masks: NDArray[np.bool_],
    totals: Sequence[float] | NDArray[np.float64],
    *,
    secret: NDArray[np.float64] | None = None,
    tolerance: float = 1e-6,
) -> Outcome:
    """Isolate people in a log of answers to sums and counts over known groups.

    **Scenario.** The intruder holds a log (or a set of published tables), knows who is in the group of each answer,
    and wants one person's value; success is a value within `tolerance`.
    **Method.** Pairs of groups that differ by one person, then every linear combination of all answers.
    **Outcome.** People whose value is determined (and right, where `secret` is given: with noisy answers it is not).
    The baseline guesses the commonest value of as many people.
    """
    answers = np.asarray(totals, np.float64)
    found = isolate_people(masks, answers)
    right = found.by_combination
    base = 0.0
    if secret is not None and len(secret):
        right = right & (np.abs(found.value - secret) <= tolerance)
        base = float(np.unique(secret, return_counts=True)[1].max() / len(secret))
    figures = {
        "answers": len(answers),
        "by_pair": int(found.by_pair.sum()),
        "by_combination": int(found.by_combination.sum()),
    }
    precision = None if secret is None else Rate(int(right.sum()), int(found.by_combination.sum()))
    warnings = () if secret is not None else ("answers are taken as exact: noise in them is not seen from here",)
    return Outcome("differencing", "Subtracting answers from each other", Rate(int(right.sum()), masks.shape[1]), base,
                   precision=precision, figures=figures, warnings=warnings,
                   claimed=int(found.by_combination.sum()))  # fmt: skip


def _check(masks: NDArray[np.bool_], totals: NDArray[np.float64]) -> None:
    if masks.ndim != 2 or len(masks) != len(totals):
        raise ParameterError("Groups and answers do not fit", expected="One row of members for each answer")


MOST_DIGITS = 6
MOST_PAIRS = 4_000_000
"""Columns with more pairs of values are not compared: they are no two levels of one hierarchy."""
Cell = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class HiddenCells:
    """What a coarse map tells of a fine one: `hidden` rows by coarse cell, `pinned` where one fine cell is left."""

    hidden: Mapping[Hashable, int]
    pinned: Mapping[Hashable, int]

    @property
    def people(self) -> int:
        """Suppressed rows that the coarse map betrays."""
        return sum(self.hidden.values())


def find_hidden_cells(
    coarse: Mapping[Hashable, int],
    fine: Mapping[Hashable, int],
    parent: Callable[[Hashable], Hashable],
    possible: Sequence[Hashable] = (),
) -> HiddenCells:
    """Subtract a fine map from a coarse one: what small-cell suppression hid, the difference shows.

    `possible` are all fine cells there are (land, roads); where all but one of a coarse cell are published, the
    remaining one holds the hidden rows.
    """
    shown: dict[Hashable, int] = {}
    for cell, count in fine.items():
        shown[parent(cell)] = shown.get(parent(cell), 0) + count
    hidden = {cell: count - shown.get(cell, 0) for cell, count in coarse.items() if count > shown.get(cell, 0)}
    blank: dict[Hashable, list[Hashable]] = {}
    for cell in possible:
        if cell not in fine:
            blank.setdefault(parent(cell), []).append(cell)
    pinned = {blank[cell][0]: count for cell, count in hidden.items() if len(blank.get(cell, ())) == 1}
    return HiddenCells(hidden, pinned)


Parents = tuple[Mapping[Hashable, Hashable], ...]
"""For each column, the coarse value that holds each fine one."""


def find_parents(coarse: pa.Table, fine: pa.Table, columns: Sequence[str]) -> Parents | None:
    """How the cells of a fine release lie in those of a coarse one; None where they do not."""
    found = []
    for name in columns:
        held = _find_column_parents(require_column(coarse, name), require_column(fine, name))
        if held is None:
            return None
        found.append(held)
    finer = any(len(set(held.values())) < len(held) for held in found)
    return tuple(found) if finer else None


def _find_column_parents(coarse: pa.ChunkedArray, fine: pa.ChunkedArray) -> Mapping[Hashable, Hashable] | None:
    if pa.types.is_floating(coarse.type) and pa.types.is_floating(fine.type):
        return _cut_to_grid(coarse, fine)
    large, small = ([str(value) for value in part.unique().to_pylist()] for part in (coarse, fine))
    if len(large) * len(small) > MOST_PAIRS:
        return None
    held = {value: [cell for cell in large if _covers(cell, value)] for value in small}
    # Cells of a coarse release that overlap (a star beside a decade) have no counts to subtract from.
    return {value: cells[0] for value, cells in held.items()} if all(len(c) == 1 for c in held.values()) else None


def _cut_to_grid(coarse: pa.ChunkedArray, fine: pa.ChunkedArray) -> Mapping[Hashable, Hashable]:
    """Numbers cut to fewer digits, both written by the lower corner of their cell."""
    digits = next(d for d in range(MOST_DIGITS + 1) if d == MOST_DIGITS or _has_digits(convert_to_floats(coarse), d))
    values = convert_to_floats(pa.chunked_array([fine.unique()]))
    cut = np.floor(values * 10**digits + 1e-6) / 10**digits  # the small part undoes what writing in decimals lost
    return {str(value): str(float(cell)) for value, cell in zip(values + 0.0, np.round(cut, digits) + 0.0, strict=True)}


def _has_digits(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], digits: int) -> bool:
    return bool(np.allclose(values, np.round(values, digits), atol=1e-9, equal_nan=True))


def _covers(coarse: str, fine: str) -> bool:
    """Equal; a generalized cell around a value or around both ends of an interval; or a beginning, as of a geohash."""
    if coarse == fine or fine.startswith(coarse):
        return True
    test = parse_cell(coarse)
    return test is not None and (test(fine) or all(test(end) for end in _ends(fine)))


def _ends(cell: str) -> tuple[str, ...]:
    low, comma, high = cell.strip("[()]").partition(",")
    if not comma or not cell.startswith("["):
        return (cell,)
    last = high.strip()
    try:  # the end of a half-open interval is not in it: a value just below stands for it
        return low.strip(), last if cell.endswith("]") else repr(float(last) - 1e-6)
    except ValueError:
        return (cell,)


def subtract_maps(coarse: pa.Table, fine: pa.Table, columns: Sequence[str], counts: str | None = None) -> Outcome:
    """Find the people whom a fine release suppresses, by the coarse release of the same table.

    **Scenario.** Two releases show the same columns, one more coarsely (a map at two resolutions, two levels of one
    hierarchy); small cells of the finer one were dropped. Success is a dropped person found in a coarse cell.
    **Method.** The counts of fine cells are taken from those of the coarse cell that holds them. `counts` names the
    column that says how many each row stands for; without it rows are counted.
    **Outcome.** People betrayed; figures say in how many cells, and how many cells betray one person alone.
    """
    held = find_parents(coarse, fine, columns)
    if held is None:
        raise ParameterError("The cells of one release do not lie in those of the other",
                             expected="The same columns, in one release more coarsely")  # fmt: skip
    large, small = (_count_cells(table, columns, counts) for table in (coarse, fine))
    up = {cell: _climb(held, cell) for cell in small}
    found = find_hidden_cells(large, small, lambda cell: up[cell])
    figures = {"cells": len(found.hidden), "alone": sum(count == 1 for count in found.hidden.values())}
    return Outcome("subtracted maps", "Subtracting a fine release from a coarse one",
                   Rate(found.people, sum(large.values())), 0.0, figures=figures)  # fmt: skip


def _climb(held: Parents, cell: Hashable) -> Cell:
    assert isinstance(cell, tuple)
    return tuple(part[value] for part, value in zip(held, cell, strict=True))


def _count_cells(table: pa.Table, columns: Sequence[str], counts: str | None) -> dict[Hashable, int]:
    """How many people each cell stands for."""
    measured: list[tuple[Any, str]] = [(counts, "sum")] if counts else [([], "count_all")]
    grouped = table.group_by(list(columns)).aggregate(measured)
    parts = [_write_keys(grouped[name]) for name in columns]
    numbers_of = grouped[f"{counts}_sum" if counts else "count_all"].to_pylist()
    return {key: int(number) for key, number in zip(zip(*parts, strict=True), numbers_of, strict=True)}


def _write_keys(values: pa.ChunkedArray) -> list[str]:
    """Values as keys; adding zero makes minus zero plain zero."""
    if pa.types.is_floating(values.type):
        return [str(value) for value in (convert_to_floats(values) + 0.0).tolist()]
    return [str(value) for value in values.to_pylist()]
