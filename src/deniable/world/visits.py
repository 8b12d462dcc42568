"""A year of hospital visits by a town's residents.

Planted, besides the dependence of diagnosis on age and sex:

- a patient's visits tend to repeat one main diagnosis;
- charges grow with the nights stayed, and nights with age;
- the payer depends on age and ethnicity;
- **unequal charges**: from 60 on, Hispanic women are charged a quarter more, and Hispanic men a quarter less, than
  others with the same diagnosis and stay. Over Hispanics, over women, over the old, or any two of these together, this
  nearly cancels: only the three together show it;
- **missed diagnosis**: Black men of 30 to 44 are given the code for depression a third as often as other men
  of their age.
"""

from __future__ import annotations

from datetime import date, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deniable.world import text
from deniable.world.diagnoses import BANDS, CODES, DIAGNOSES, place
from deniable.world.draws import Draws, Ints, dial, dials, lognormal, quantile, scrambled
from deniable.world.governor import GOVERNOR
from deniable.world.names import Named
from deniable.world.residents import ETHNICITIES, FIRST_ZIP, SEXES, Residents, ordinal

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
_VISITS = dials(
    [[never * 4095] + [(100 - never) << (12 - k) for k in range(1, MOST_VISITS + 1)] for never in (70, 66, 60, 48, 36)]
)
_SPREAD_NIGHTS, _SPREAD_CHARGE = lognormal(0.6), lognormal(0.35)
_PROCEDURE = dial([60, 30, 10])
_PAYER = dials([[5, 88, 6, 1], [20, 6, 64, 10], [30, 6, 50, 14]])  # from 65; below; below, of a poorer group


def _diagnosis_weights(band: int, sex: int, black: int) -> list[int]:
    missed = black and sex == 1 and BANDS[band] == 30
    return [
        3 * d.by_age[band] * (d.men if sex else d.women) // (3 if missed and d.code == "F32.9" else 1)
        for d in DIAGNOSES
    ]


_DIAGNOSIS = dials([_diagnosis_weights(band, sex, black) for band in range(5) for sex in (0, 1) for black in (0, 1)])


def _days_of_year(winter: bool) -> list[int]:
    days = [date(YEAR, 1, 1) + timedelta(n) for n in range(365)]
    return [(7 if day.weekday() > 4 else 10) * (2 if winter and day.month in (12, 1, 2) else 1) for day in days]


_ADMISSION = dials([_days_of_year(False), _days_of_year(True)])
_NIGHTS = np.array([d.nights for d in DIAGNOSES])
_CENTS = np.array([100 * d.dollars for d in DIAGNOSES])
_WINTER = np.array([int(d.winter) for d in DIAGNOSES])


def counts(draws: Draws, residents: Residents) -> Ints:
    """How often each resident visits in the year."""
    return draws.pick_by(_VISITS, residents.band)


def patient_ids(number: Ints) -> pa.Array:
    """Patients' numbers at the hospital, which do not tell the order of the roll."""
    return text.stamped("P########", scrambled(number, 10**8, 61_803_399, 27_182_818))


def draw(draws: Draws, residents: Residents, names: Named, times: Ints, governor: int | None) -> pa.Table:
    """The visits of a chunk of residents, each visiting as often as `times` says."""
    who = np.repeat(np.arange(len(times)), times)
    diagnosis = _diagnoses(draws, residents, who, times)
    admission = ordinal(date(YEAR, 1, 1)) + draws.pick_by(_ADMISSION, _WINTER[diagnosis])
    if governor is not None:
        his = int(times[:governor].sum())
        diagnosis[his], admission[his] = place(GOVERNOR.diagnosis), ordinal(GOVERNOR.admission)
    nights = _nights(draws, residents.band[who], diagnosis)
    columns = {
        "patient_id": patient_ids(residents.number[who]),
        "zip": text.stamped("#####", FIRST_ZIP + residents.zip[who]),
        "birth_date": text.days(residents.birth[who]),
        "sex": text.looked_up(SEXES, residents.sex[who]),
        "ethnicity": text.looked_up(ETHNICITIES, residents.ethnicity[who]),
        "admission": text.days(admission),
        "discharge": text.days(admission + nights),
        "diagnosis": text.looked_up(CODES, diagnosis),
        "procedure": _procedures(draws, diagnosis),
        "charge": text.hundredths(_charges(draws, residents, who, diagnosis, nights)),
        "payer": _payers(draws, residents, who),
    }
    contacts = _contacts(residents.number[who], names, who)
    return pa.table(columns | {"note": _notes(draws, diagnosis, contacts, names.full.take(pa.array(who)))} | contacts)


def _diagnoses(draws: Draws, residents: Residents, who: Ints, times: Ints) -> Ints:
    """Three visits in five have the patient's main diagnosis; a delivery happens once in the year."""
    row = (residents.band * 2 + residents.sex) * 2 + (residents.ethnicity == BLACK)
    main = draws.pick_by(_DIAGNOSIS, row)
    drawn = np.where(draws.chance(600, len(who)), main[who], draws.pick_by(_DIAGNOSIS, row[who]))
    firsts = np.zeros(len(who), dtype=bool)
    firsts[(np.cumsum(times) - times)[times > 0]] = True
    return np.where(~firsts & (drawn == place("O80")), place("N39.0"), drawn)


def _nights(draws: Draws, band: Ints, diagnosis: Ints) -> Ints:
    typical = _NIGHTS[diagnosis] * (4 + band)  # a fifth longer with every band
    return ((typical * quantile(_SPREAD_NIGHTS, draws.faces(len(band)))) // (5 * 1024)).clip(0, MOST_NIGHTS)


def _charges(draws: Draws, residents: Residents, who: Ints, diagnosis: Ints, nights: Ints) -> Ints:
    cents = _CENTS[diagnosis] + CENTS_A_NIGHT * nights
    cents = (cents * quantile(_SPREAD_CHARGE, draws.faces(len(who)))) >> 10
    unequal = ((residents.ethnicity == HISPANIC) & (residents.band >= 3))[who]
    quarters = np.where(unequal, np.where(residents.sex[who] == 0, 5, 3), 4)
    return (cents * quarters // 4).clip(0, MOST_CENTS)


def _payers(draws: Draws, residents: Residents, who: Ints) -> pa.Array:
    poorer = (residents.ethnicity == BLACK) | (residents.ethnicity == HISPANIC)
    group = np.where(residents.age >= 65, 0, 1 + poorer)
    return text.looked_up(PAYERS, draws.pick_by(_PAYER, group[who]))


def _procedures(draws: Draws, diagnosis: Ints) -> pa.Array:
    every = [procedure for d in DIAGNOSES for procedure in d.procedures]
    return text.looked_up(every, diagnosis * 3 + draws.pick(_PROCEDURE, len(diagnosis)))


def _contacts(number: Ints, names: Named, who: Ints) -> dict[str, pa.Array]:
    """Direct identifiers of a visit's patient, all in ranges that are never given to anybody.

    Telephone area codes 990 to 999 are reserved; social security numbers never begin with 9, and groups 01 to 49 of
    such numbers are not given to taxpayers either; example.org is nobody's.
    """
    phone = scrambled(number, 80_000_000, 32_452_843, 5_550_123)
    phone = phone // 8_000_000 * 10_000_000 + 2_000_000 + phone % 8_000_000
    area, rest = np.divmod(scrambled(number, 100 * 49 * 9999, 32_452_843, 1_234_567), 49 * 9999)
    group, serial = np.divmod(rest, 9999)
    people = pa.array(who)
    given, surname = names.given.take(people), names.surname.take(people)
    mailbox = text.joined(
        given, surname, text.stamped("########", scrambled(number, 10**8, 69_314_719, 4_669_201)), between="."
    )
    return {
        "medical_record_number": text.stamped("MRN-#########", scrambled(number, 10**9, 141_421_357, 173_205_081)),
        "phone": text.stamped("(99#) ###-####", phone),
        "email": text.joined(pc.utf8_lower(mailbox), "@example.org"),
        "ssn": text.stamped("9##-##-####", area * 1_000_000 + (group + 1) * 10_000 + serial + 1),
    }


def _notes(draws: Draws, diagnosis: Ints, contacts: dict[str, pa.Array], name: pa.Array) -> pa.Array:
    """What somebody typed: a complaint, and in two of five notes something that identifies the patient."""
    size, lot = len(diagnosis), draws.below(1000, len(diagnosis))
    mention = text.where(
        lot < 600, pa.nulls(size, pa.string()).fill_null(""), text.joined("Patient ", name, " upset. ")
    )
    for low, high, before, column, after in (
        (600, 750, "Call back at ", "phone", ". "),
        (750, 850, "Merged with ", "medical_record_number", ". "),
        (850, 930, "Send the letter to ", "email", ". "),
        (930, 980, "Card shows ", "ssn", ". "),
    ):
        mention = text.where((lot >= low) & (lot < high), text.joined(before, contacts[column], after), mention)
    complaint = text.looked_up([d.complaint + ". " for d in DIAGNOSES], diagnosis)
    opening = text.looked_up(_OPENINGS, draws.below(len(_OPENINGS), size))
    return text.joined(opening, complaint, mention, text.looked_up(_CLOSINGS, draws.below(len(_CLOSINGS), size)))
