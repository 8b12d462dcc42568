"""The hospital world: a town's voter roll and a year of visits to its hospital, with a governor to be found.

`people` counts the names on the roll. One resident in thirteen is not on it but may be a patient, so that a link from a
visit to the roll can be wrong, as in life. The table `truth` tells which voter is which patient: it is there to score
attacks, and nobody's release should ever hold such a table.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from deniable.world import diagnoses, governor, residents, text, visits
from deniable.world.draws import Draws, Ints, dials, scrambled
from deniable.world.names import Named, addresses
from deniable.world.residents import FIRST_ZIP, SEXES, TODAY, Residents, ordinal

CHUNK = 1 << 16
PARTIES = ("Democratic", "Republican", "unenrolled")
_KEY = 1
_PARTY = dials([[36, 18, 46], [36, 24, 40], [33, 32, 35], [34, 38, 28], [36, 42, 22]])


def reference() -> dict[str, pa.Table]:
    """The public list of diagnoses."""
    return {"diagnoses": diagnoses.table()}


def batches(people: int, seed: int) -> Iterator[dict[str, pa.Table]]:
    """Voters, visits and the truth between them, chunk by chunk; an empty town is one empty chunk."""
    for chunk in range(max(1, -(-people // CHUNK))):
        registered = min(CHUNK, people - chunk * CHUNK)
        yield _chunk(Draws(seed, _KEY, chunk), chunk, registered, people)


def _chunk(draws: Draws, chunk: int, registered: int, people: int) -> dict[str, pa.Table]:
    town = residents.draw(draws, registered + registered // 12, chunk * 2 * CHUNK, people)
    story = people >= governor.LEAST_PEOPLE
    town, his = governor.clear(town) if story else town, None
    if story and chunk == 0:
        town, his = governor.plant(town, registered)
    times = visits.counts(draws, town)
    names = Named(draws, town.sex)
    if his is not None:
        times[his] = max(1, times[his])
        names.rename(his, governor.GOVERNOR.given, governor.GOVERNOR.initial, governor.GOVERNOR.surname)
    return {
        "voters": _voters(draws, town, names, registered, his),
        "visits": visits.draw(draws, town, names, times, his),
        "truth": _truth(town.number[:registered][times[:registered] > 0]),
    }


def _voter_ids(number: Ints) -> pa.Array:
    return text.stamped("V########", scrambled(number, 10**8, 57_721_567, 31_415_926))


def _truth(number: Ints) -> pa.Table:
    return pa.table({"voter_id": _voter_ids(number), "patient_id": visits.patient_ids(number)})


def _voters(draws: Draws, town: Residents, names: Named, registered: int, his: int | None) -> pa.Table:
    address = addresses(draws, registered)
    if his is not None:
        he = np.arange(registered) == his
        address = text.where(~he, address, governor.GOVERNOR.address)
    birth = town.birth[:registered]
    adult = birth + 18 * 1461 // 4 + 1
    since = (adult + draws.below((ordinal(TODAY) - adult).clip(1), registered)).clip(max=ordinal(TODAY) - 1)
    return pa.table(
        {
            "voter_id": _voter_ids(town.number[:registered]),
            "name": names.full.slice(0, registered),
            "address": address,
            "zip": text.stamped("#####", FIRST_ZIP + town.zip[:registered]),
            "birth_date": text.days(birth),
            "sex": text.looked_up(SEXES, town.sex[:registered]),
            "party": text.looked_up(PARTIES, draws.pick_by(_PARTY, town.band[:registered])),
            "registered": text.days(since),
        }
    )
