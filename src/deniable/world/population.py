"""The people of the generated world: their names, where they live, when they were born, and which diagnoses they get.

Given names are common, surnames are put together from parts, streets are of no town; a full name may by chance be
somebody's, but no line in the world describes that person. A town has seven ZIP codes and about 7,700 people in each; a
larger population is a county of such ZIP codes, up to 500 of them. The codes begin with 695 to 699, which are not in
use, so they are nobody's.

The weights of the ICD-10-like codes in `diagnoses.csv` are plausible, not measured: they plant the dependence of
diagnosis on age and sex that attacks, synthesis and parity findings are tested against. Ages come in five bands: 18 to
29, 30 to 44, 45 to 59, 60 to 74, 75 and over."""

from __future__ import annotations

import csv
import tomllib
from dataclasses import dataclass
from datetime import date
from importlib.resources import files

import numpy as np
import pyarrow as pa

from deniable.world.arrays import Draws, Ints, join_parts, look_up, make_choice_table, make_choice_tables, where


def read_words(key: str) -> list[str]:
    """A list of words from `words.toml`."""
    listed = tomllib.loads((files("deniable.world") / "words.toml").read_text(encoding="utf-8"))
    return str(listed[key]).split()


WOMEN, MEN, COMMON = read_words("women"), read_words("men"), read_words("surnames")
SURNAMES = (
    *COMMON,
    *(front + back for front in read_words("surname_beginnings") for back in read_words("surname_endings")),
)
STREETS = tuple(f"{name} {kind}" for kind in read_words("street_kinds") for name in read_words("street_names"))
INITIALS = tuple("ABCDEFGHIJKLMNOPRSTVW")

_GIVEN = WOMEN + MEN
_GIVEN_TABLES = make_choice_tables(
    [
        [600 // (rank + 8) for rank in range(len(WOMEN))] + [0] * len(MEN),
        [0] * len(WOMEN) + [600 // (rank + 8) for rank in range(len(MEN))],
    ]
)
# A few surnames are common, the others come in equal small numbers.
_SURNAME_TABLE = make_choice_table(
    [400 // (rank + 6) for rank in range(len(COMMON))] + [1] * (len(SURNAMES) - len(COMMON))
)


class Names:
    """Names of a chunk of people: given name by sex (0 women, 1 men), an initial, a surname."""

    def __init__(self, draws: Draws, sex: Ints) -> None:
        self.given = look_up(_GIVEN, draws.pick_by(_GIVEN_TABLES, sex))
        self.initial = look_up(INITIALS, draws.below(len(INITIALS), len(sex)))
        self.surname = look_up(SURNAMES, draws.pick(_SURNAME_TABLE, len(sex)))

    def rename(self, place: int, given: str, initial: str, surname: str) -> None:
        """Give the person at this place a name chosen by hand."""
        there = np.arange(len(self.given)) == place
        self.given = where(~there, self.given, given)
        self.initial = where(~there, self.initial, initial)
        self.surname = where(~there, self.surname, surname)

    @property
    def full(self) -> pa.Array:
        """'Given I. Surname'."""
        return join_parts(self.given, join_parts(self.initial, "."), self.surname, between=" ")


def draw_addresses(draws: Draws, size: int) -> pa.Array:
    """'17 Cedar Street': house numbers from 1 to 400."""
    numbers = pa.array(1 + draws.below(400, size)).cast(pa.string())
    return join_parts(numbers, look_up(STREETS, draws.below(len(STREETS), size)), between=" ")


BANDS = (18, 30, 45, 60, 75)  # each band begins at this age


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A code with its chapter; weights by age band; weight factors for women and men; stay and cost; procedures."""

    code: str
    name: str
    category: str
    by_age: tuple[int, ...]
    women: int
    men: int
    nights: int  # of a typical stay
    dollars: int  # charged beside the nights
    winter: bool  # whether it comes more often in winter
    procedures: tuple[str, ...]  # three, the usual one first
    complaint: str  # what brings the patient, in the words of a note


def _read_diagnoses() -> tuple[Diagnosis, ...]:
    with (files("deniable.world") / "diagnoses.csv").open(encoding="utf-8") as lines:
        return tuple(_parse_diagnosis(row) for row in csv.DictReader(lines))


def _parse_diagnosis(row: dict[str, str]) -> Diagnosis:
    return Diagnosis(
        code=row["code"],
        name=row["name"],
        category=row["category"],
        by_age=tuple(int(row[f"age_{band}"]) for band in BANDS),
        women=int(row["women"]),
        men=int(row["men"]),
        nights=int(row["nights"]),
        dollars=int(row["dollars"]),
        winter=row["winter"] == "yes",
        procedures=tuple(row["procedures"].split(" / ")),
        complaint=row["complaint"],
    )


DIAGNOSES = _read_diagnoses()
CODES = tuple(diagnosis.code for diagnosis in DIAGNOSES)


def find_code(code: str) -> int:
    """Where a code stands in the list."""
    return CODES.index(code)


def list_diagnoses() -> pa.Table:
    """The public list of codes: code, name, category."""
    return pa.table(
        {
            "code": list(CODES),
            "name": [diagnosis.name for diagnosis in DIAGNOSES],
            "category": [diagnosis.category for diagnosis in DIAGNOSES],
        }
    )


SEXES = ("F", "M")
ETHNICITIES = ("Asian", "Black", "Hispanic", "Other", "White")
FIRST_ZIP, TOWN_ZIPS, MOST_ZIPS = 69501, 7, 499
PER_ZIP = 7714  # 54,000 residents in seven ZIP codes
TODAY = date(2026, 1, 1)
EPOCH = date(1970, 1, 1)
OLDEST, YOUNGEST = 100, 18

# Adults by year of age: level until 55, then thinning, men somewhat earlier than women.
_AGES = make_choice_tables(
    [
        [100 if age < 55 else max(1, 100 - 12 * (age - 55) // 10 - (age - 55) ** 2 // 24) for age in range(18, 101)],
        [102 if age < 52 else max(1, 102 - 15 * (age - 52) // 10 - (age - 52) ** 2 // 22) for age in range(18, 101)],
    ]
)
_SEX = make_choice_table([515, 485])
# Five kinds of neighborhood, in turn over the ZIP codes: shares of each ethnicity, in the order above.
_NEIGHBORHOODS = make_choice_tables(
    [[6, 10, 14, 4, 66], [4, 44, 18, 4, 30], [7, 12, 46, 5, 30], [24, 6, 10, 6, 54], [3, 5, 8, 3, 81]]
)


@dataclass(frozen=True, slots=True)
class Residents:
    """A chunk of people as arrays: numbers from `first` on, ZIP as a place in the list, days since 1970."""

    number: Ints
    zip: Ints
    birth: Ints
    sex: Ints
    ethnicity: Ints

    @property
    def age(self) -> Ints:
        """Whole years at the world's today (a leap day more or less does not matter here)."""
        return ((to_ordinal(TODAY) - self.birth) * 4 // 1461).clip(YOUNGEST, OLDEST)

    @property
    def band(self) -> Ints:
        """The age band, 0 to 4."""
        return np.searchsorted(np.array(BANDS[1:]), self.age, side="right").astype(np.int64)


def to_ordinal(day: date) -> int:
    """Days since 1970-01-01."""
    return (day - EPOCH).days


def count_zips(people: int) -> int:
    """How many ZIP codes a population has."""
    return min(MOST_ZIPS, max(TOWN_ZIPS, people // PER_ZIP))


def draw_residents(draws: Draws, size: int, first: int, people: int) -> Residents:
    """A chunk of residents of a population of `people`; `first` numbers the first of them."""
    zip_codes = draws.pick(make_choice_table([14 + (place * 3) % 5 for place in range(count_zips(people))]), size)
    sex = draws.pick(_SEX, size)
    age = YOUNGEST + draws.pick_by(_AGES, sex)
    # Whoever is `age` today was born in the year that ended `age` years ago.
    birth = to_ordinal(TODAY) - age * 1461 // 4 - 1 - draws.below(365, size)
    ethnicity = draws.pick_by(_NEIGHBORHOODS, zip_codes % 5)
    return Residents(np.arange(first, first + size, dtype=np.int64), zip_codes, birth, sex, ethnicity)
