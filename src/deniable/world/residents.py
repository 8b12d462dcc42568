"""The people of a town: where they live, when they were born, their sex and ethnicity.

A town has seven ZIP codes and about 7,700 people in each; a larger population is a county of such ZIP codes, up to 500
of them. The codes begin with 695 to 699, which are not in use, so they are nobody's.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

import numpy as np

from deniable.world.diagnoses import BANDS
from deniable.world.draws import Draws, Ints, dial, dials

SEXES = ("F", "M")
ETHNICITIES = ("Asian", "Black", "Hispanic", "Other", "White")
FIRST_ZIP, TOWN_ZIPS, MOST_ZIPS = 69501, 7, 499
PER_ZIP = 7714  # 54,000 residents in seven ZIP codes
TODAY = date(2026, 1, 1)
EPOCH = date(1970, 1, 1)
OLDEST, YOUNGEST = 100, 18

# Adults by year of age: level until 55, then thinning, men somewhat earlier than women.
_AGES = dials(
    [
        [100 if age < 55 else max(1, 100 - 12 * (age - 55) // 10 - (age - 55) ** 2 // 24) for age in range(18, 101)],
        [102 if age < 52 else max(1, 102 - 15 * (age - 52) // 10 - (age - 52) ** 2 // 22) for age in range(18, 101)],
    ]
)
_SEX = dial([515, 485])
# Five kinds of neighborhood, in turn over the ZIP codes: shares of each ethnicity, in the order above.
_NEIGHBORHOODS = dials(
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
        return ((ordinal(TODAY) - self.birth) * 4 // 1461).clip(YOUNGEST, OLDEST)

    @property
    def band(self) -> Ints:
        """The age band, 0 to 4."""
        return np.searchsorted(np.array(BANDS[1:]), self.age, side="right").astype(np.int64)


def ordinal(day: date) -> int:
    """Days since 1970-01-01."""
    return (day - EPOCH).days


def zips(people: int) -> int:
    """How many ZIP codes a population has."""
    return min(MOST_ZIPS, max(TOWN_ZIPS, people // PER_ZIP))


def draw(draws: Draws, size: int, first: int, people: int) -> Residents:
    """A chunk of residents of a population of `people`; `first` numbers the first of them."""
    zip_codes = draws.pick(dial([14 + (place * 3) % 5 for place in range(zips(people))]), size)
    sex = draws.pick(_SEX, size)
    age = YOUNGEST + draws.pick_by(_AGES, sex)
    # Whoever is `age` today was born in the year that ended `age` years ago.
    birth = ordinal(TODAY) - age * 1461 // 4 - 1 - draws.below(365, size)
    ethnicity = draws.pick_by(_NEIGHBORHOODS, zip_codes % 5)
    return Residents(np.arange(first, first + size, dtype=np.int64), zip_codes, birth, sex, ethnicity)
