"""Names for people who do not exist: common given names, surnames put together from parts, streets of no town.

A full name may by chance be somebody's; no line in the world describes that person.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files

import numpy as np
import pyarrow as pa

from deniable.world.draws import Draws, Ints, dial, dials
from deniable.world.text import joined, looked_up, where


def words(key: str) -> list[str]:
    """A list of words from `words.toml`."""
    listed = tomllib.loads((files("deniable.world") / "words.toml").read_text(encoding="utf-8"))
    return str(listed[key]).split()


WOMEN, MEN, COMMON = words("women"), words("men"), words("surnames")
SURNAMES = (*COMMON, *(front + back for front in words("surname_beginnings") for back in words("surname_endings")))
STREETS = tuple(f"{name} {kind}" for kind in words("street_kinds") for name in words("street_names"))
INITIALS = tuple("ABCDEFGHIJKLMNOPRSTVW")

_GIVEN = WOMEN + MEN
_GIVEN_DIALS = dials(
    [
        [600 // (rank + 8) for rank in range(len(WOMEN))] + [0] * len(MEN),
        [0] * len(WOMEN) + [600 // (rank + 8) for rank in range(len(MEN))],
    ]
)
# A few surnames are common, the others come in equal small numbers.
_SURNAME_DIAL = dial([400 // (rank + 6) for rank in range(len(COMMON))] + [1] * (len(SURNAMES) - len(COMMON)))


class Named:
    """Names of a chunk of people: given name by sex (0 women, 1 men), an initial, a surname."""

    def __init__(self, draws: Draws, sex: Ints) -> None:
        self.given = looked_up(_GIVEN, draws.pick_by(_GIVEN_DIALS, sex))
        self.initial = looked_up(INITIALS, draws.below(len(INITIALS), len(sex)))
        self.surname = looked_up(SURNAMES, draws.pick(_SURNAME_DIAL, len(sex)))

    def rename(self, place: int, given: str, initial: str, surname: str) -> None:
        """Give the person at this place a name chosen by hand."""
        there = np.arange(len(self.given)) == place
        self.given = where(~there, self.given, given)
        self.initial = where(~there, self.initial, initial)
        self.surname = where(~there, self.surname, surname)

    @property
    def full(self) -> pa.Array:
        """'Given I. Surname'."""
        return joined(self.given, joined(self.initial, "."), self.surname, between=" ")


def addresses(draws: Draws, size: int) -> pa.Array:
    """'17 Cedar Street': house numbers from 1 to 400."""
    numbers = pa.array(1 + draws.below(400, size)).cast(pa.string())
    return joined(numbers, looked_up(STREETS, draws.below(len(STREETS), size)), between=" ")
