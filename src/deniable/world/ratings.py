"""The ratings world: who rated which film, how, and on which day, with long tails on both sides.

At 480,000 people there are about 100 million ratings, the size of the set that Narayanan and Shmatikov linked to named
profiles. A few people rate thousands of films and half rate fewer than a hundred; a few films are seen by everybody and
most by hardly anyone, which is why eight ratings single a person out. Nobody rates a film twice.

Planted: films differ in quality, people in kindness, and everyone rates films of one favorite genre half a star higher.
A person's ratings lie within the time since joining, in sittings of several films on one day.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.world import arrays
from deniable.world.arrays import Draws, Ints, draw_quantiles, make_choice_table, scramble, tabulate_lognormal
from deniable.world.population import read_words, to_ordinal

CHUNK = 1 << 12  # people; about 850,000 ratings
FILMS = 17_770
GENRES = ("Action", "Animation", "Comedy", "Documentary", "Drama", "Horror", "Romance", "Science fiction")
FIRST_DAY, LAST_DAY = date(2019, 1, 1), date(2025, 12, 31)
MOST_RATINGS = 4000
_KEY = 4
# Median 110 ratings a person before doubles are dropped and the upper end is cut; about 208 on average after that.
_ACTIVITY = tabulate_lognormal(1.26, center=110)
# Popularity falls like 1/rank, flattened at the top so that nobody runs out of films to see.
_POPULARITY = [10_000_000 // (rank + 60) for rank in range(FILMS)]
_FINE = 1 << 20  # entries of the popularity table: 65,536 would lose the tail


def _tabulate_popularity() -> NDArray[np.int16]:
    ends = np.cumsum(np.array(_POPULARITY, dtype=np.int64)) * _FINE // sum(_POPULARITY)
    return np.repeat(np.arange(FILMS, dtype=np.int16), np.diff(ends, prepend=0))


_FILM = _tabulate_popularity()
_STYLE = Draws(20_260_101, _KEY)  # films are the same in every generated world
_QUALITY = (_STYLE.bell(FILMS) >> 8).astype(np.int16)  # deviation 148 of 256 to a star
_GENRE = _STYLE.pick(make_choice_table([14, 6, 22, 9, 26, 8, 10, 5]), FILMS).astype(np.int8)
_YEAR = 1950 + _STYLE.pick(make_choice_table([10 + age for age in range(75)]), FILMS)
_FIRST, _SECOND = read_words("film_beginnings"), read_words("film_endings")


def reference() -> dict[str, pa.Table]:
    """The public list of films."""
    number = np.arange(FILMS)
    first = arrays.look_up(_FIRST, number % len(_FIRST))
    second = arrays.look_up(_SECOND, number // len(_FIRST) % len(_SECOND))
    part = pa.array(1 + number // (len(_FIRST) * len(_SECOND))).cast(pa.string())
    return {
        "films": pa.table(
            {
                "film_id": pa.array(number, pa.int32()),
                "title": arrays.join_parts("The", first, second, part, between=" "),
                "year": pa.array(_YEAR, pa.int32()),
                "genre": arrays.look_up(GENRES, _GENRE.astype(np.int64)),
            }
        )
    }


def batches(people: int, seed: int) -> Iterator[dict[str, pa.Table]]:
    """The ratings of a chunk of people at a time."""
    for start in range(0, max(1, people), CHUNK):
        yield {"ratings": _draw_chunk(Draws(seed, _KEY, start // CHUNK), start, min(CHUNK, people - start))}


def _draw_chunk(draws: Draws, start: int, size: int) -> pa.Table:
    number = np.arange(start, start + size, dtype=np.int64)
    viewer = scramble(number, 10**8, 86_602_541, 5_040).astype(np.int32)
    who, film = _draw_views(draws, size)
    columns = {
        "viewer_id": pa.array(viewer[who], pa.int32()),
        "film_id": pa.array(film, pa.int32()),
        "rating": pa.array(_draw_stars(draws, size, who, film), pa.int8()),
        "day": arrays.to_dates(_draw_days(draws, size, who)),
    }
    return pa.table(columns)


def _draw_views(draws: Draws, size: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Who saw what: films drawn by popularity, doubles dropped by sorting (person, film) packed into 32 bits."""
    times = draw_quantiles(_ACTIVITY, draws.indexes(size)).clip(1, MOST_RATINGS)
    who = np.repeat(np.arange(size, dtype=np.uint32), times)
    lots = draws.raw((len(who) + 1) // 2).astype("<u8", copy=False).view("<u4")[: len(who)]
    pairs = (who << np.uint32(15)) | _FILM[lots >> np.uint32(12)].astype(np.uint32)
    pairs.sort()
    pairs = pairs[np.diff(pairs, prepend=np.uint32(0xFFFFFFFF)) != 0]
    return (pairs >> np.uint32(15)).astype(np.int32), (pairs & np.uint32(0x7FFF)).astype(np.int32)


def _draw_stars(draws: Draws, size: int, who: NDArray[np.int32], film: NDArray[np.int32]) -> NDArray[np.int8]:
    """One to five: 256 parts to a star, from quality, kindness, taste and mood."""
    kindness = (draws.bell(size) >> 9).astype(np.int16)
    favorite = draws.below(len(GENRES), size).astype(np.int8)
    mood = (draws.indexes(len(who)) >> np.uint16(6)).astype(np.int16) - np.int16(512)
    parts = _QUALITY[film] + kindness[who] + mood + np.int16(128) * (_GENRE[film] == favorite[who]).astype(np.int16)
    stars = (parts + np.int16(3 * 256 + 256)) >> np.int16(8)
    return np.asarray(stars.clip(1, 5), dtype=np.int8)


def _draw_days(draws: Draws, size: int, who: NDArray[np.int32]) -> Ints:
    """A person joins on some day and has sixteen sittings after it; every rating falls into one of them."""
    first, last = to_ordinal(FIRST_DAY), to_ordinal(LAST_DAY)
    joined = draws.below(last - first - 30, size)
    sittings = joined[:, None] + draws.below(np.repeat(last - first - joined, 16), 16 * size).reshape(size, 16)
    which = draws.indexes(len(who)) >> np.uint16(12)
    return np.asarray(first + sittings[who, which])
