"""The governor's story, planted: whoever holds the voter roll finds his visit by ZIP code, birth date and sex.

In 1997 Latanya Sweeney found the record of the governor of Massachusetts in a table of hospital visits without names:
of the 54,000 residents of Cambridge six shared his birth date, three of these were men, one lived in his ZIP code. In
every generated town from 100 people on, the same holds for a governor who never lived.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import date

import numpy as np

from deniable.world.residents import FIRST_ZIP, TOWN_ZIPS, Residents, ordinal

LEAST_PEOPLE = 100  # a smaller town has no governor


@dataclass(frozen=True, slots=True)
class Governor:
    """What the newspapers know of him, and what his visit discloses."""

    given: str
    initial: str
    surname: str
    address: str
    zip: str
    birth_date: date
    sex: str
    admission: date
    diagnosis: str

    @property
    def name(self) -> str:
        """As on the roll."""
        return f"{self.given} {self.initial}. {self.surname}"


GOVERNOR = Governor(
    "Theodore", "W", "Ashbourne", "1 State House Road", "69503", date(1961, 10, 9), "M", date(2025, 5, 18), "R55"
)

_HOME = int(GOVERNOR.zip) - FIRST_ZIP
# Those who share his birth date: himself first, then two men and three women who live elsewhere in the town.
_SEX = np.array([1, 1, 1, 0, 0, 0])
_ZIP = np.array([_HOME, 4, 5, 0, 1, 6])


def plant(residents: Residents, registered: int) -> tuple[Residents, int]:
    """Put the governor and the five who share his birth date among the first `registered` people; say his place."""
    places = (np.arange(6) + 1) * registered // 8
    birth, sex, zips = residents.birth.copy(), residents.sex.copy(), residents.zip.copy()
    birth[places], sex[places], zips[places] = ordinal(GOVERNOR.birth_date), _SEX, _ZIP
    return replace(residents, birth=birth, sex=sex, zip=zips), int(places[0])


def clear(residents: Residents) -> Residents:
    """Nobody else in his town shares his birth date: who would, was born a day later."""
    same = (residents.birth == ordinal(GOVERNOR.birth_date)) & (residents.zip < TOWN_ZIPS)
    return replace(residents, birth=residents.birth + same)
