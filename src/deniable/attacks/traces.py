"""Traces: how many people are singled out by a few points of where they were and when.

**Scenario.** A table has several points of each person: a place, a time, and a name or token that joins a person's
points. The intruder saw somebody at some of them (a photo, a receipt, a shared ride) and looks for the traces that hold
them all. Success is that exactly one trace does: then all its other points are known.
**Method.** After de Montjoye et al. (Unique in the Crowd, 2013): people are drawn, and of each so many different points
at random; places are known to a number of decimals, times to a minute, hour, day or week. With the original rows the
points are drawn there and looked for in the release.
**Outcome.** The share of people singled out. The baseline is naming one of the people by chance. Where the release has
other names for people than the original (tokens, drawn people), a single match is taken for right, and the baseline is
how often points of different people meet in one trace. People with fewer points than are known are not tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.attacks.codes import encode_column, pack_codes, require_column
from deniable.attacks.outcome import Deadline, Outcome, Rate
from deniable.errors import DataError, ParameterError

Ints = NDArray[np.int64]
SECONDS = {"minute": 60, "hour": 3600, "day": 86_400, "week": 604_800, "never": 0}
"""How long the units of time are to which the intruder knows a time; never is not at all."""
KNOWN = (1, 2, 4)
"""How many points the intruder knows."""
MOST_DIGITS = 7


@dataclass(frozen=True, slots=True)
class Resolution:
    """How well the intruder knows a point: decimals of a degree (2 is about a kilometer), and a unit of time."""

    digits: int
    time: str

    def __post_init__(self) -> None:
        whole = isinstance(self.digits, int) and not isinstance(self.digits, bool)
        if not whole or not 0 <= self.digits <= MOST_DIGITS:
            raise ParameterError(f"a place to {self.digits} decimals", expected=f"0 to {MOST_DIGITS} decimals")
        if self.time not in SECONDS:
            raise ParameterError(f"'{self.time}' is not a unit of time", expected=", ".join(SECONDS))

    def __str__(self) -> str:
        place = f"places to {self.digits} decimal{'' if self.digits == 1 else 's'}"
        return f"{place}, no times" if self.time == "never" else f"{place}, times to the {self.time}"


RESOLUTIONS = (Resolution(3, "hour"), Resolution(2, "hour"), Resolution(2, "day"), Resolution(1, "day"))
TIMELESS = (Resolution(3, "never"), Resolution(2, "never"), Resolution(1, "never"))


@dataclass(frozen=True, eq=False, repr=False)
class Traces:
    """Different points of each trace, as numbers: `points` are those of trace t from starts[t] to starts[t + 1].

    `holders` are the traces that hold each point, from holding[p] to holding[p + 1].
    """

    points: Ints
    starts: Ints
    holders: Ints
    holding: Ints

    @classmethod
    def of(cls, trace: Ints, point: Ints, traces: int, points: int) -> Traces:
        """The traces of rows, each with the number of its trace and of its point."""
        pairs = np.unique(trace * points + point)
        whose, what = np.divmod(pairs, max(1, points))
        by_point = np.argsort(what, kind="stable")
        starts = np.searchsorted(whose, np.arange(traces + 1))
        return cls(what, starts, whose[by_point], np.searchsorted(what[by_point], np.arange(points + 1)))

    def find_holders(self, points: Ints) -> Ints:
        """The traces that hold all of some points."""
        lists = sorted((self.holders[self.holding[p] : self.holding[p + 1]] for p in points.tolist()), key=len)
        found: Ints = lists[0]
        for each in lists[1:]:
            if not len(found):
                break
            found = np.intersect1d(found, each, assume_unique=True)
        return found


def sweep_traces(
    release: pa.Table,
    columns: Sequence[str],
    *,
    original: pa.Table | None = None,
    resolutions: Sequence[Resolution] = (),
    known: Sequence[int] = KNOWN,
    targets: int = 500,
    seed: int = 0,
    seconds: float | None = None,
) -> tuple[Outcome, ...]:
    """How many people are singled out, for each resolution and number of points.

    `columns` are the person, latitude, longitude and, if there is one, the time; the usual resolutions are tried where
    none is named.
    """
    timed = len(columns) == 4
    if len(set(columns)) != len(columns) or len(columns) not in (3, 4):
        expected = "person,latitude,longitude,time, once each; or without the time"
        raise ParameterError("--trace names other than three or four columns", expected=expected)
    if not timed and any(each.time != "never" for each in resolutions):
        raise ParameterError("a time is known of a trace without times", expected="The unit never, such as 2,never")
    deadline = Deadline(seconds)
    tables = (release,) if original is None else (release, original)
    people = _number_people(tables, columns[0])
    places = [[_read_degrees(table, name) for table in tables] for name in columns[1:3]]
    times = [_read_seconds(t, columns[3]) if timed else np.zeros(t.num_rows, np.int64) for t in tables]
    found = []
    for resolution in resolutions or (RESOLUTIONS if timed else TIMELESS):
        traces = _code_traces(people, places, times, resolution)
        for count in known:
            deadline.check()
            found.append(_single_out(traces, people, count, targets, seed, resolution))
    return tuple(found)


def _number_people(tables: Sequence[pa.Table], column: str) -> list[Ints]:
    """The person of each row of each table, by one numbering; -1 is nobody."""
    codes = encode_column([require_column(table, column) for table in tables])
    return list(np.split(codes, np.cumsum([table.num_rows for table in tables])[:-1]))


def _read_degrees(table: pa.Table, name: str) -> NDArray[np.float64]:
    try:
        values = pc.cast(require_column(table, name), pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(
            f"Column '{name}' is not one of coordinates", expected="Degrees as numbers", charge=""
        ) from None
    return np.asarray(pc.fill_null(values, np.nan).to_numpy(), np.float64)


UNKNOWN = np.iinfo(np.int64).min


def _read_seconds(table: pa.Table, name: str) -> Ints:
    """Seconds since 1970; the smallest number where there is no time."""
    try:
        values = pc.cast(require_column(table, name), pa.timestamp("s"), safe=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(
            f"Column '{name}' is not one of times", expected="Dates, or times such as 2025-06-01 08:30:00", charge=""
        ) from None
    return np.asarray(pc.fill_null(pc.cast(values, pa.int64()), UNKNOWN).to_numpy(), np.int64)


def _code_traces(
    people: Sequence[Ints], places: Sequence[Sequence[NDArray[np.float64]]], times: Sequence[Ints], known: Resolution
) -> list[Traces]:
    """The traces of each table at one resolution, with points and people numbered alike in all of them."""
    step = SECONDS[known.time]
    when = [np.where(each == UNKNOWN, 0, each // step) if step else np.zeros_like(each) for each in times]
    where = [[np.floor(np.nan_to_num(each, posinf=0, neginf=0) * 10.0**known.digits + 1e-6).astype(np.int64)
              for each in axis] for axis in places]  # fmt: skip
    parts = [np.concatenate(each) for each in (*where, when)]
    # West, south and before 1970 are below 0, which stands for nobody in codes: all are counted from the least.
    parts = [part - part.min(initial=0) for part in parts]
    codes = pack_codes(parts[0])
    for part in parts[1:]:
        packed = pack_codes(part)
        codes = pack_codes(codes * (int(packed.max(initial=0)) + 1) + packed)
    points, traces = int(codes.max(initial=-1)) + 1, max(int(each.max(initial=-1)) for each in people) + 1
    found, start = [], 0
    for table, persons in enumerate(people):
        own = codes[start : start + len(persons)]
        start += len(persons)
        there = (persons >= 0) & (times[table] != UNKNOWN) if step else persons >= 0
        there &= np.isfinite(places[0][table]) & np.isfinite(places[1][table])
        found.append(Traces.of(persons[there], own[there], traces, points))
    return found


def _single_out(
    traces: Sequence[Traces], people: Sequence[Ints], count: int, targets: int, seed: int, known: Resolution
) -> Outcome:
    """Draw people and points of theirs, and look who else holds them."""
    release, source = traces[0], traces[-1]
    draws = np.random.default_rng([seed, count, known.digits, SECONDS[known.time]])
    able = np.flatnonzero(np.diff(source.starts) >= count)
    chosen = draws.permutation(able)[:targets]
    named = bool(np.isin(np.unique(people[0]), np.unique(people[-1])).any())
    right = lucky = alone = 0
    for person in chosen.tolist():
        own = source.points[source.starts[person] : source.starts[person + 1]]
        holders = release.find_holders(draws.choice(own, count, replace=False))
        alone += len(holders) == 1
        right += len(holders) == 1 and (not named or int(holders[0]) == person)
        if not named:
            lucky += _meet_one(release, source, draws.choice(able, count), draws)
    words = f"Knowing {count} point{'' if count == 1 else 's'} of a trace ({known})"
    baseline = 1 / max(1, len(able)) if named else Rate(int(lucky), len(chosen))
    warnings = () if named else ("people have other names in the release: one match is taken for right",)
    figures = {"points": count, "digits": known.digits, "time": known.time, "traces": len(able)}
    return Outcome("traces", words, Rate(int(right), len(chosen)), baseline, figures=figures, warnings=warnings,
                   claimed=alone if named else None)  # fmt: skip


def _meet_one(release: Traces, source: Traces, strangers: Ints, draws: np.random.Generator) -> bool:
    """Whether points of different people, one of each, are all held by exactly one trace."""
    ends = zip(source.starts[strangers], source.starts[strangers + 1], strict=True)
    mixed = np.unique([source.points[draws.integers(start, end)] for start, end in ends])
    return len(mixed) == len(strangers) and len(release.find_holders(mixed)) == 1
