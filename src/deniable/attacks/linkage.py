"""Linkage: a register with names is joined to a release on what both have (Sweeney 1997)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks import generalized_cells
from deniable.attacks.codes import Codes, deduplicate_columns, encode_combinations, pack_codes
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
        return Outcome("linkage", SCENARIO, Rate(right, people), guess, control, Rate(right, claimed), figures, warning)
    if len(truth) != len(links.row):
        raise ParameterError("The truth is not one entry for each row of the release")
    correct = links.claimed & (links.row == truth)
    right = _count_people(person, correct)
    wrong = _count_people(person, chance.claimed & (chance.row == truth))
    return Outcome(
        "linkage", SCENARIO, Rate(right, people), guess, Rate(wrong, people),
        Rate(int(correct.sum()), int(links.claimed.sum())), figures,
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
