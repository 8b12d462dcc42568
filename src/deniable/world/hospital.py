"""The hospital world: a town's voter roll and a year of visits to its hospital, with a governor to be found.

`people` counts the names on the roll. One resident in thirteen is not on it but may be a patient, so that a link from a
visit to the roll can be wrong, as in life. The table `truth` tells which voter is which patient: it is there to score
attacks, and nobody's release should ever hold such a table.

In 1997 Latanya Sweeney found the record of the governor of Massachusetts in a table of hospital visits without names:
of the 54,000 residents of Cambridge six shared his birth date, three of these were men, one lived in his ZIP code. In
every generated town from 100 people on, the same holds for a governor who never lived.

Planted, besides the governor and the dependence of diagnosis on age and sex:

- a patient's visits tend to repeat one main diagnosis;
- charges grow with the nights stayed, and nights with age;
- the payer depends on age and ethnicity;
- **unequal charges**: from 60 on, Hispanic women are charged a quarter more, and Hispanic men a quarter less, than
  others with the same diagnosis and stay. Over Hispanics, over women, over the old, or any two of these together, this
  nearly cancels: only the three together show it;
- **missed diagnosis**: Black men of 30 to 44 are given the code for depression a third as often as other men
  of their age."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import date, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deniable.world import arrays, population
from deniable.world.arrays import (
    Draws,
    Ints,
    draw_quantiles,
    make_choice_table,
    make_choice_tables,
    scramble,
    tabulate_lognormal,
)
from deniable.world.population import (
    BANDS,
    CODES,
    DIAGNOSES,
    ETHNICITIES,
    FIRST_ZIP,
    SEXES,
    TODAY,
    TOWN_ZIPS,
    Names,
    Residents,
    draw_addresses,
    find_code,
    to_ordinal,
)

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


def plant_governor(residents: Residents, registered: int) -> tuple[Residents, int]:
    """Put the governor and the five who share his birth date among the first `registered` people; say his place."""
    places = (np.arange(6) + 1) * registered // 8
    birth, sex, zips = residents.birth.copy(), residents.sex.copy(), residents.zip.copy()
    birth[places], sex[places], zips[places] = to_ordinal(GOVERNOR.birth_date), _SEX, _ZIP
    return replace(residents, birth=birth, sex=sex, zip=zips), int(places[0])


def clear_birth_date(residents: Residents) -> Residents:
    """Nobody else in his town shares his birth date: who would, was born a day later."""
    same = (residents.birth == to_ordinal(GOVERNOR.birth_date)) & (residents.zip < TOWN_ZIPS)
    return replace(residents, birth=residents.birth + same)


YEAR = 2025
PAYERS = ("Medicaid", "Medicare", "private", "self-pay")
MOST_VISITS, MOST_NIGHTS, MOST_CENTS = 12, 60, 25_000_000
CENTS_A_NIGHT = 230_000
BLACK, HISPANIC = ETHNICITIES.index("Black"), ETHNICITIES.index("Hispanic")

_OPENINGS = ("Seen for ", "Presents with ", "Brought in with ", "Comes again with ")
_CLOSINGS = (
    "No further complaints.",
    "Left in good state.",
    "To return in two weeks.",
    "Family informed.",
    "See chart.",
)

# Half of those who come at all come once, a quarter twice, and so on; who comes at all depends on the age band.
_VISITS = make_choice_tables(
    [[never * 4095] + [(100 - never) << (12 - k) for k in range(1, MOST_VISITS + 1)] for never in (70, 66, 60, 48, 36)]
)
_SPREAD_NIGHTS, _SPREAD_CHARGE = tabulate_lognormal(0.6), tabulate_lognormal(0.35)
_PROCEDURE = make_choice_table([60, 30, 10])
_PAYER = make_choice_tables(
    [[5, 88, 6, 1], [20, 6, 64, 10], [30, 6, 50, 14]]
)  # from 65; below; below, of a poorer group


def _weigh_diagnoses(band: int, sex: int, black: int) -> list[int]:
    missed = black and sex == 1 and BANDS[band] == 30
    return [
        3 * d.by_age[band] * (d.men if sex else d.women) // (3 if missed and d.code == "F32.9" else 1)
        for d in DIAGNOSES
    ]


_DIAGNOSIS = make_choice_tables(
    [_weigh_diagnoses(band, sex, black) for band in range(5) for sex in (0, 1) for black in (0, 1)]
)


def _weigh_days(winter: bool) -> list[int]:
    days = [date(YEAR, 1, 1) + timedelta(n) for n in range(365)]
    return [(7 if day.weekday() > 4 else 10) * (2 if winter and day.month in (12, 1, 2) else 1) for day in days]


_ADMISSION = make_choice_tables([_weigh_days(False), _weigh_days(True)])
_NIGHTS = np.array([d.nights for d in DIAGNOSES])
_CENTS = np.array([100 * d.dollars for d in DIAGNOSES])
_WINTER = np.array([int(d.winter) for d in DIAGNOSES])


def draw_visit_counts(draws: Draws, residents: Residents) -> Ints:
    """How often each resident visits in the year."""
    return draws.pick_by(_VISITS, residents.band)


def format_patient_ids(number: Ints) -> pa.Array:
    """Patients' numbers at the hospital, which do not tell the order of the roll."""
    return arrays.format_digits("P########", scramble(number, 10**8, 61_803_399, 27_182_818))


def draw_visits(draws: Draws, residents: Residents, names: Names, times: Ints, governor: int | None) -> pa.Table:
    """The visits of a chunk of residents, each visiting as often as `times` says."""
    who = np.repeat(np.arange(len(times)), times)
    diagnosis = _draw_diagnoses(draws, residents, who, times)
    admission = to_ordinal(date(YEAR, 1, 1)) + draws.pick_by(_ADMISSION, _WINTER[diagnosis])
    if governor is not None:
        his = int(times[:governor].sum())
        diagnosis[his], admission[his] = find_code(GOVERNOR.diagnosis), to_ordinal(GOVERNOR.admission)
    nights = _draw_nights(draws, residents.band[who], diagnosis)
    columns = {
        "patient_id": format_patient_ids(residents.number[who]),
        "zip": arrays.format_digits("#####", FIRST_ZIP + residents.zip[who]),
        "birth_date": arrays.to_dates(residents.birth[who]),
        "sex": arrays.look_up(SEXES, residents.sex[who]),
        "ethnicity": arrays.look_up(ETHNICITIES, residents.ethnicity[who]),
        "admission": arrays.to_dates(admission),
        "discharge": arrays.to_dates(admission + nights),
        "diagnosis": arrays.look_up(CODES, diagnosis),
        "procedure": _draw_procedures(draws, diagnosis),
        "charge": arrays.to_hundredths(_draw_charges(draws, residents, who, diagnosis, nights)),
        "payer": _draw_payers(draws, residents, who),
    }
    contacts = _format_contacts(residents.number[who], names, who)
    return pa.table(
        columns | {"note": _draw_notes(draws, diagnosis, contacts, names.full.take(pa.array(who)))} | contacts
    )


def _draw_diagnoses(draws: Draws, residents: Residents, who: Ints, times: Ints) -> Ints:
    """Three visits in five have the patient's main diagnosis; a delivery happens once in the year."""
    row = (residents.band * 2 + residents.sex) * 2 + (residents.ethnicity == BLACK)
    main = draws.pick_by(_DIAGNOSIS, row)
    drawn = np.where(draws.chance(600, len(who)), main[who], draws.pick_by(_DIAGNOSIS, row[who]))
    firsts = np.zeros(len(who), dtype=bool)
    firsts[(np.cumsum(times) - times)[times > 0]] = True
    return np.where(~firsts & (drawn == find_code("O80")), find_code("N39.0"), drawn)


def _draw_nights(draws: Draws, band: Ints, diagnosis: Ints) -> Ints:
    typical = _NIGHTS[diagnosis] * (4 + band)  # a fifth longer with every band
    return ((typical * draw_quantiles(_SPREAD_NIGHTS, draws.indexes(len(band)))) // (5 * 1024)).clip(0, MOST_NIGHTS)


def _draw_charges(draws: Draws, residents: Residents, who: Ints, diagnosis: Ints, nights: Ints) -> Ints:
    cents = _CENTS[diagnosis] + CENTS_A_NIGHT * nights
    cents = (cents * draw_quantiles(_SPREAD_CHARGE, draws.indexes(len(who)))) >> 10
    unequal = ((residents.ethnicity == HISPANIC) & (residents.band >= 3))[who]
    quarters = np.where(unequal, np.where(residents.sex[who] == 0, 5, 3), 4)
    return (cents * quarters // 4).clip(0, MOST_CENTS)


def _draw_payers(draws: Draws, residents: Residents, who: Ints) -> pa.Array:
    poorer = (residents.ethnicity == BLACK) | (residents.ethnicity == HISPANIC)
    group = np.where(residents.age >= 65, 0, 1 + poorer)
    return arrays.look_up(PAYERS, draws.pick_by(_PAYER, group[who]))


def _draw_procedures(draws: Draws, diagnosis: Ints) -> pa.Array:
    every = [procedure for d in DIAGNOSES for procedure in d.procedures]
    return arrays.look_up(every, diagnosis * 3 + draws.pick(_PROCEDURE, len(diagnosis)))


def _format_contacts(number: Ints, names: Names, who: Ints) -> dict[str, pa.Array]:
    """Direct identifiers of a visit's patient, all in ranges that are never given to anybody.

    Telephone area codes 990 to 999 are reserved; social security numbers never begin with 9, and groups 01 to 49 of
    such numbers are not given to taxpayers either; example.org is nobody's.
    """
    phone = scramble(number, 80_000_000, 32_452_843, 5_550_123)
    phone = phone // 8_000_000 * 10_000_000 + 2_000_000 + phone % 8_000_000
    area, rest = np.divmod(scramble(number, 100 * 49 * 9999, 32_452_843, 1_234_567), 49 * 9999)
    group, serial = np.divmod(rest, 9999)
    people = pa.array(who)
    given, surname = names.given.take(people), names.surname.take(people)
    mailbox = arrays.join_parts(
        given, surname, arrays.format_digits("########", scramble(number, 10**8, 69_314_719, 4_669_201)), between="."
    )
    return {
        "medical_record_number": arrays.format_digits(
            "MRN-#########", scramble(number, 10**9, 141_421_357, 173_205_081)
        ),
        "phone": arrays.format_digits("(99#) ###-####", phone),
        "email": arrays.join_parts(pc.utf8_lower(mailbox), "@example.org"),
        "ssn": arrays.format_digits("9##-##-####", area * 1_000_000 + (group + 1) * 10_000 + serial + 1),
    }


def _draw_notes(draws: Draws, diagnosis: Ints, contacts: dict[str, pa.Array], name: pa.Array) -> pa.Array:
    """What somebody typed: a complaint, and in two of five notes something that identifies the patient."""
    size, lot = len(diagnosis), draws.below(1000, len(diagnosis))
    mention = arrays.where(
        lot < 600, pa.nulls(size, pa.string()).fill_null(""), arrays.join_parts("Patient ", name, " upset. ")
    )
    for low, high, before, column, after in (
        (600, 750, "Call back at ", "phone", ". "),
        (750, 850, "Merged with ", "medical_record_number", ". "),
        (850, 930, "Send the letter to ", "email", ". "),
        (930, 980, "Card shows ", "ssn", ". "),
    ):
        mention = arrays.where((lot >= low) & (lot < high), arrays.join_parts(before, contacts[column], after), mention)
    complaint = arrays.look_up([d.complaint + ". " for d in DIAGNOSES], diagnosis)
    opening = arrays.look_up(_OPENINGS, draws.below(len(_OPENINGS), size))
    return arrays.join_parts(opening, complaint, mention, arrays.look_up(_CLOSINGS, draws.below(len(_CLOSINGS), size)))


CHUNK = 1 << 16
PARTIES = ("Democratic", "Republican", "unenrolled")
_KEY = 1
_PARTY = make_choice_tables([[36, 18, 46], [36, 24, 40], [33, 32, 35], [34, 38, 28], [36, 42, 22]])


def reference() -> dict[str, pa.Table]:
    """The public list of diagnoses."""
    return {"diagnoses": population.list_diagnoses()}


def batches(people: int, seed: int) -> Iterator[dict[str, pa.Table]]:
    """Voters, visits and the truth between them, chunk by chunk; an empty town is one empty chunk."""
    for chunk in range(max(1, -(-people // CHUNK))):
        registered = min(CHUNK, people - chunk * CHUNK)
        yield _draw_chunk(Draws(seed, _KEY, chunk), chunk, registered, people)


def _draw_chunk(draws: Draws, chunk: int, registered: int, people: int) -> dict[str, pa.Table]:
    town = population.draw_residents(draws, registered + registered // 12, chunk * 2 * CHUNK, people)
    story = people >= LEAST_PEOPLE
    town, his = clear_birth_date(town) if story else town, None
    if story and chunk == 0:
        town, his = plant_governor(town, registered)
    times = draw_visit_counts(draws, town)
    names = Names(draws, town.sex)
    if his is not None:
        times[his] = max(1, times[his])
        names.rename(his, GOVERNOR.given, GOVERNOR.initial, GOVERNOR.surname)
    return {
        "voters": _draw_voters(draws, town, names, registered, his),
        "visits": draw_visits(draws, town, names, times, his),
        "truth": _link_patients(town.number[:registered][times[:registered] > 0]),
    }


def _format_voter_ids(number: Ints) -> pa.Array:
    return arrays.format_digits("V########", scramble(number, 10**8, 57_721_567, 31_415_926))


def _link_patients(number: Ints) -> pa.Table:
    return pa.table({"voter_id": _format_voter_ids(number), "patient_id": format_patient_ids(number)})


def _draw_voters(draws: Draws, town: Residents, names: Names, registered: int, his: int | None) -> pa.Table:
    address = draw_addresses(draws, registered)
    if his is not None:
        he = np.arange(registered) == his
        address = arrays.where(~he, address, GOVERNOR.address)
    birth = town.birth[:registered]
    adult = birth + 18 * 1461 // 4 + 1
    since = (adult + draws.below((to_ordinal(TODAY) - adult).clip(1), registered)).clip(max=to_ordinal(TODAY) - 1)
    return pa.table(
        {
            "voter_id": _format_voter_ids(town.number[:registered]),
            "name": names.full.slice(0, registered),
            "address": address,
            "zip": arrays.format_digits("#####", FIRST_ZIP + town.zip[:registered]),
            "birth_date": arrays.to_dates(birth),
            "sex": arrays.look_up(SEXES, town.sex[:registered]),
            "party": arrays.look_up(PARTIES, draws.pick_by(_PARTY, town.band[:registered])),
            "registered": arrays.to_dates(since),
        }
    )
