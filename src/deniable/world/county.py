"""The county world: people by block, their friendships, and their calls to a help line, for releases beyond one table.

512 blocks lie in 32 counties of 2 states; one block in eight is empty. People live in circles of forty neighbors, in
which most friendships stay, and each circle has a club that most of it belongs to: so friends share a club far more
often than by chance. Calls come all year, more in winter. Friendships and circles never cross a chunk of people.
A poll asks one in four people whether they ride the bus, and one in two of those from 65 on, who ride it more than
twice as often: with weights of 4 and 2 it tells of everybody, without them too many do.

Planted: **a water main broke on 2025-08-14**: one call in twelve of the year is about water, in the week from that day.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import numpy as np
import pyarrow as pa

from deniable.world import arrays
from deniable.world.arrays import Draws, Ints, make_choice_table, scramble
from deniable.world.population import SEXES, to_ordinal

CHUNK = 1 << 15
STATES, COUNTIES, BLOCKS = 2, 16, 16
CLUBS = ("chess", "choir", "football", "garden", "none")
REASONS = ("health", "noise", "road", "water")
YEAR, BROKEN = date(2025, 1, 1), date(2025, 8, 14)
CIRCLE, OLD, OLDEST = 40, 65, 99
_KEY = 6
_BLOCK = make_choice_table([0 if i % 8 == 7 else 1 + (i * 37) % 23 for i in range(STATES * COUNTIES * BLOCKS)])
_AGE = make_choice_table([12 if age < 60 else max(1, 12 - (age - 60) // 4) for age in range(OLDEST + 1)])
_FRIENDS = make_choice_table([8, 12, 14, 14, 12, 10, 8, 6, 4, 3, 3, 2, 2, 1, 1])
_CALLS = make_choice_table([50, 24, 12, 7, 4, 2, 1])
_REASON = make_choice_table([40, 25, 25, 10])
_MONTH = make_choice_table([14, 13, 11, 9, 7, 6, 6, 6, 7, 9, 11, 13])


def reference() -> dict[str, pa.Table]:
    """The public list of blocks, also of those where nobody lives."""
    codes = _spell_blocks(np.arange(STATES * COUNTIES * BLOCKS))
    text = codes.to_pylist()
    return {"blocks": pa.table({"state": [c[:2] for c in text], "county": [c[:5] for c in text], "block": codes})}


def batches(people: int, seed: int) -> Iterator[dict[str, pa.Table]]:
    """People, friendships, calls and answers to the poll of a chunk of people at a time."""
    for start in range(0, max(1, people), CHUNK):
        yield _draw_chunk(Draws(seed, _KEY, start // CHUNK), start, min(CHUNK, people - start))


def _spell_blocks(index: Ints) -> pa.Array:
    """The code of a block: S1, C07 and B16 are the last block of a county."""
    state, rest = np.divmod(index, COUNTIES * BLOCKS)
    county, block = np.divmod(rest, BLOCKS)
    return arrays.format_digits("S#C##B##", (state + 1) * 10_000 + (county + 1) * 100 + block + 1)


def _draw_chunk(draws: Draws, start: int, size: int) -> dict[str, pa.Table]:
    number = np.arange(start, start + size, dtype=np.int64)
    person = scramble(number, 10**8, 61_803_399, 271_828)
    circle = np.arange(size) // CIRCLE
    clubs = draws.below(len(CLUBS) - 1, 1 + size // CIRCLE)
    club = np.where(draws.chance(650, size), clubs[circle], draws.below(len(CLUBS), size))
    people = pa.table(
        {
            "person": person,
            "block": _spell_blocks(draws.pick(_BLOCK, size)),
            "sex": arrays.look_up(SEXES, draws.below(2, size)),
            "age": draws.pick(_AGE, size),
            "club": arrays.look_up(CLUBS, club),
        }
    )
    drawn = {"people": people, "friends": _draw_friends(draws, person), "calls": _draw_calls(draws, person)}
    return drawn | {"poll": _draw_poll(draws, people)}


def _draw_poll(draws: Draws, people: pa.Table) -> pa.Table:
    """Who was asked, whether they ride the bus, and how many people each stands for."""
    old, size = people["age"].to_numpy() >= OLD, people.num_rows
    asked = np.where(old, draws.chance(500, size), draws.chance(250, size))
    bus = np.where(old, draws.chance(700, size), draws.chance(300, size)).astype(np.int64)
    taken = people.select(["person", "sex"]).append_column("bus", pa.array(bus))
    return taken.append_column("weight", pa.array(np.where(old, 2, 4).astype(np.int64))).filter(pa.array(asked))


def _draw_friends(draws: Draws, person: Ints) -> pa.Table:
    """Whom each person names: four in five from the own circle. Nobody names a friend twice, or themselves."""
    size = len(person)
    one = np.repeat(np.arange(size), draws.pick(_FRIENDS, size))
    near = np.minimum(one // CIRCLE * CIRCLE + draws.below(CIRCLE, len(one)), size - 1)
    other = np.where(draws.chance(800, len(one)), near, draws.below(max(1, size), len(one)))
    pairs = np.unique(np.stack([np.minimum(one, other), np.maximum(one, other)], axis=1)[one != other], axis=0)
    return pa.table({"one": person[pairs[:, 0]], "other": person[pairs[:, 1]]})


def _draw_calls(draws: Draws, person: Ints) -> pa.Table:
    who = np.repeat(person, draws.pick(_CALLS, len(person)))
    size, first = len(who), to_ordinal(YEAR)
    broken = draws.chance(83, size)
    usual = draws.pick(_MONTH, size) * 30 + draws.below(30, size)
    day = np.where(broken, to_ordinal(BROKEN) - first + draws.below(7, size), usual)
    reason = np.where(broken, REASONS.index("water"), draws.pick(_REASON, size))
    return pa.table({"person": who, "day": arrays.to_dates(day + first), "reason": arrays.look_up(REASONS, reason)})
