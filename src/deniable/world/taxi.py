"""The taxi world: rides with places and times, most between busy places, a few alone in the fields.

Coordinates lie around a city that is on no map (near 45 N, 100 W), to five decimals, about one meter. Nine rides in ten
begin or end near one of twelve hotspots, with rush hours; everybody has a home. One ride in two hundred goes to a lone
place that nobody else visits: these are the rides that a coarse map keeps and a fine map suppresses, and the difference
betrays them. Fares grow with the way, and tips are given by card only.

Planted: **night rides of three or more passengers from the stadium** are paid in cash twice as often as others.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.world import arrays
from deniable.world.arrays import Draws, Ints, make_choice_table, make_choice_tables, scramble
from deniable.world.population import to_ordinal

CHUNK = 1 << 15
LATITUDE, LONGITUDE = 4_500_000, -10_000_000  # the center, in units of 0.00001 degree
MONTH, DAYS = date(2025, 6, 1), 30
PAYMENTS = ("card", "cash")
HOTSPOTS = (
    "Airport", "Central Station", "City Hall", "Clinic", "Harbor", "Hotel Row", "Market", "Museum", "Office Park",
    "Stadium", "Theater", "University",
)  # fmt: skip
MOST_RIDES, MOST_CENTS = 60, 20_000
_KEY = 5
_STADIUM = HOTSPOTS.index("Stadium")
_SPOT_LAT = np.array([9000, 200, 0, -1500, -2600, 600, 350, 900, 3100, -3900, 450, 2200])
_SPOT_LON = np.array([-7000, -300, 0, 1200, 2500, -800, 500, -250, 3600, -1700, -120, -2400])
_SPOT = make_choice_table([16, 18, 8, 4, 5, 9, 10, 5, 9, 5, 6, 8])
_HOUR = make_choice_tables([[4, 3, 2, 2, 2, 3, 6, 11, 14, 11, 9, 9, 10, 9, 9, 10, 12, 15, 16, 14, 12, 11, 9, 7]])[0]
_RIDES = make_choice_table([(30 if rides < 3 else 240 // (rides + 4)) for rides in range(MOST_RIDES)])
_PASSENGERS = make_choice_table([70, 16, 6, 4, 3, 1])


def reference() -> dict[str, pa.Table]:
    """The public list of hotspots."""
    places = {"latitude": (LATITUDE + _SPOT_LAT) / 1e5, "longitude": (LONGITUDE + _SPOT_LON) / 1e5}
    return {"hotspots": pa.table({"place": list(HOTSPOTS)} | places)}


def batches(people: int, seed: int) -> Iterator[dict[str, pa.Table]]:
    """The rides of a chunk of riders at a time."""
    for start in range(0, max(1, people), CHUNK):
        yield {"rides": _draw_chunk(Draws(seed, _KEY, start // CHUNK), start, min(CHUNK, people - start))}


def _draw_chunk(draws: Draws, start: int, riders: int) -> pa.Table:
    home = draws.bell(riders) >> 4, draws.bell(riders) >> 4
    who = np.repeat(np.arange(riders), draws.pick(_RIDES, riders))
    size = len(who)
    spot, from_spot, lone = draws.pick(_SPOT, size), draws.chance(500, size), draws.chance(5, size)
    homes = home[0][who] + (draws.bell(size) >> 13), home[1][who] + (draws.bell(size) >> 13)
    busy = _SPOT_LAT[spot] + (draws.bell(size) >> 10), _SPOT_LON[spot] + (draws.bell(size) >> 10)
    away = _draw_far_ends(draws, lone, homes)
    pickup = tuple(np.where(from_spot, b, h) for b, h in zip(busy, away, strict=True))
    dropoff = tuple(np.where(from_spot, h, b) for b, h in zip(busy, away, strict=True))
    way = np.abs(pickup[0] - dropoff[0]) * 111 // 100 + np.abs(pickup[1] - dropoff[1]) * 79 // 100  # meters
    hour = draws.pick(_HOUR, size)
    passengers = 1 + draws.pick(_PASSENGERS, size)
    planted = from_spot & (spot == _STADIUM) & (passengers >= 3) & ((hour >= 20) | (hour < 5))
    cash = draws.chance(np.where(planted, 640, 320), size)
    fare = (300 + way * 22 // 100 + draws.below(200, size)).clip(300, MOST_CENTS)
    seconds = draws.below(DAYS, size) * 86_400 + hour * 3600 + draws.below(3600, size)
    number = np.arange(start, start + riders, dtype=np.int64)
    return pa.table(
        {
            "rider_id": arrays.format_digits("T########", scramble(number, 10**8, 73_205_081, 1_729)[who]),
            "pickup_time": _to_timestamps(seconds),
            "dropoff_time": _to_timestamps(seconds + 120 + way // 8 + draws.below(400, size)),
            "pickup_latitude": (LATITUDE + pickup[0]) / 1e5,
            "pickup_longitude": (LONGITUDE + pickup[1]) / 1e5,
            "dropoff_latitude": (LATITUDE + dropoff[0]) / 1e5,
            "dropoff_longitude": (LONGITUDE + dropoff[1]) / 1e5,
            "passengers": pa.array(passengers, pa.int64()),
            "payment": arrays.look_up(PAYMENTS, cash.astype(np.int64)),
            "fare": arrays.to_hundredths(fare),
            "tip": arrays.to_hundredths(np.where(cash, 0, fare * draws.below(26, size) // 100)),
        }
    )


def _draw_far_ends(draws: Draws, lone: NDArray[np.bool_], homes: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
    """The end of a ride that is not a hotspot: near home, or for a lone ride somewhere out in the fields."""
    size = len(lone)
    far = draws.below(80_000, size) - 40_000, draws.below(80_000, size) - 40_000
    return np.where(lone, far[0], homes[0]), np.where(lone, far[1], homes[1])


def _to_timestamps(seconds: Ints) -> pa.Array:
    return pa.array((seconds + to_ordinal(MONTH) * 86_400) * 1_000_000, pa.int64()).cast(pa.timestamp("us"))
