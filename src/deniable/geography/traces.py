"""Flows between regions, and a model of people's traces from which new traces are drawn.

A flow table counts rows by the regions of their two ends. A model of traces counts, for each person, the pair of the
first and the last region, the number of points, and the steps from one region to the next. A new trace is drawn in that
order: its two ends, its length, then a path of that length between the ends by the steps (a bridge of a Markov chain),
after the structure of AdaTrace (Gursoy et al. 2018). It remembers one point: what depends on more is not kept.

One person has at most `rows` rows of flows; or one trace of at most `longest` points, so one pair of ends, one length
and `longest` - 1 steps. What is counted are whole numbers; all else is made of the noisy counts.

Rows outside the box, and rows without a place (null, NaN) or a time, count nowhere and use up nobody's rows.
"""

# ruff: noqa: S608  (statements are made of our own words, quoted names and numbers; no user text)

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from deniable.dp.accounting import ComposedEvent, Event
from deniable.dp.samplers import SYSTEM, Entropy, salt
from deniable.engines.base import quote
from deniable.geography.grids import (
    EDGES,
    RASTER,
    SHARES,
    Box,
    Counted,
    Floats,
    Ints,
    Map,
    MapPlan,
    Noise,
    Reach,
    Regions,
    count_regions,
    divide_evenly,
    draw_feature,
    estimate_map,
    find_deviation,
    measure_map,
    outline_box,
    share_noise,
)
from deniable.policy.budget import Budget

MAP_SHARE = Fraction(3, 10)
"""Of the budget: for the map that regions are made of."""
TRACE_SHARES = (Fraction(1, 10), Fraction(3, 10), Fraction(3, 10))
"""Of the budget: for lengths, for pairs of ends, and for steps."""
LONGEST = 100
"""A trace of a model has at most so many points."""
MOST_DRAWN = 1_000_000
"""So many people are drawn at most."""


@dataclass(frozen=True, slots=True)
class FlowPlan:
    """What is measured of flows: a map of both ends, whose regions are paired, and the counts of pairs."""

    map: MapPlan
    slots: int
    reach: Reach
    noise: Noise

    @classmethod
    def within(cls, asked: Budget, box: Box, slots: int, rows: int, *, replaced: bool, pure: bool) -> FlowPlan:
        """The plan of flows within a budget; each row gives two points to the map and one pair."""
        ends, pairs = Reach.of(2 * rows, replaced), Reach.of(rows, replaced)
        parts = [*((share * MAP_SHARE, ends) for share in SHARES), (1 - MAP_SHARE, pairs)]
        noises = share_noise(asked, parts, pure=pure)
        return cls(MapPlan(box, 1, ends, noises[:-1]), slots, pairs, noises[-1])

    @property
    def event(self) -> Event:
        """All that the flows release."""
        return ComposedEvent((*(noise.event for noise in self.map.noises), self.noise.event))

    def choose_regions(self, found: Map) -> Regions:
        """The regions that are paired, from the noisy map of ends."""
        return divide_evenly(found, count_regions(float(found.totals[0]) / 2, find_deviation(self.noise), self.slots))


def measure_flows(
    plan: FlowPlan, start: tuple[Floats, Floats], end: tuple[Floats, Floats], slot: Ints, entropy: Entropy = SYSTEM
) -> tuple[Counted, Ints]:
    """The noisy map of both ends, and the noisy counts of pairs of regions in each slot; the last sight of the rows."""
    y, x = (np.concatenate(each) for each in zip(start, end, strict=True))
    counted = measure_map(plan.map, y, x, np.zeros(len(y), np.int64), entropy)
    regions = plan.choose_regions(estimate_map(plan.map, counted))
    pairs = (slot * regions.count + regions.locate(*start)) * regions.count + regions.locate(*end)
    exact = np.bincount(pairs, minlength=plan.slots * regions.count**2).astype(np.int64)
    return counted, np.asarray(plan.noise.release(exact, entropy), np.int64)


@dataclass(frozen=True, slots=True)
class TracePlan:
    """What is measured of traces of at most `longest` points: a map, lengths, pairs of ends, and steps."""

    map: MapPlan
    longest: int
    noises: tuple[Noise, Noise, Noise]

    @classmethod
    def within(cls, asked: Budget, box: Box, longest: int, *, replaced: bool, pure: bool) -> TracePlan:
        """The plan of traces within a budget."""
        points = Reach.of(longest, replaced)
        reaches = list_reaches(longest, replaced)
        parts = [*((share * MAP_SHARE, points) for share in SHARES), *zip(TRACE_SHARES, reaches, strict=True)]
        lengths, ends, steps = (noises := share_noise(asked, parts, pure=pure))[-3:]
        return cls(MapPlan(box, 1, points, noises[:-3]), longest, (lengths, ends, steps))

    @property
    def event(self) -> Event:
        """All that the model releases."""
        return ComposedEvent(tuple(noise.event for noise in (*self.map.noises, *self.noises)))

    def choose_regions(self, found: Map) -> Regions:
        """The regions that traces are sequences of, from the noisy map of all points."""
        return divide_evenly(found, count_regions(float(found.totals[0]), find_deviation(self.noises[2])))


def list_reaches(longest: int, replaced: bool) -> tuple[Reach, Reach, Reach]:
    """What one person moves in the counts of lengths, of pairs of ends, and of steps."""
    return Reach.of(1, replaced), Reach.of(1, replaced), Reach.of(max(1, longest - 1), replaced)


@dataclass(frozen=True, slots=True)
class TraceCounts:
    """The noisy counts of a model of traces, as they are stored."""

    map: Counted
    lengths: Ints
    ends: Ints
    steps: Ints


def measure_traces(plan: TracePlan, y: Floats, x: Floats, person: Ints, entropy: Entropy = SYSTEM) -> TraceCounts:
    """The noisy counts of traces: points in order of persons and, of each, of time; the last sight of the rows."""
    counted = measure_map(plan.map, y, x, np.zeros(len(y), np.int64), entropy)
    regions = plan.choose_regions(estimate_map(plan.map, counted))
    exact = count_traces(regions.locate(y, x), person, regions.count, plan.longest)
    lengths, ends, steps = (np.asarray(noise.release(each, entropy), np.int64)
                            for noise, each in zip(plan.noises, exact, strict=True))  # fmt: skip
    return TraceCounts(counted, lengths, ends, steps)


def count_traces(region: Ints, person: Ints, regions: int, longest: int) -> tuple[Ints, Ints, Ints]:
    """How many traces have each length, each pair of ends and each step; of points in order of persons and time.

    >>> lengths, ends, steps = count_traces(np.array([0, 1, 1, 0]), np.array([7, 7, 7, 8]), 2, 3)
    >>> lengths.tolist(), ends.tolist(), steps.tolist()
    ([1, 0, 1], [1, 1, 0, 0], [0, 1, 0, 1])
    """
    first = np.flatnonzero(np.diff(person, prepend=person[:1] - 1)) if len(person) else np.empty(0, np.int64)
    last = np.append(first[1:], len(person)) - 1 if len(first) else first
    lengths = np.bincount(last - first, minlength=longest).astype(np.int64)
    ends = np.bincount(region[first] * regions + region[last], minlength=regions**2).astype(np.int64)
    inside = person[1:] == person[:-1]
    steps = np.bincount((region[:-1] * regions + region[1:])[inside], minlength=regions**2).astype(np.int64)
    return lengths, ends, steps


@dataclass(frozen=True, slots=True, eq=False)
class TraceModel:
    """Chances of lengths, of pairs of ends and of steps, with the regions they speak of; made of noisy counts alone."""

    map: Map
    regions: Regions
    people: int
    lengths: Floats
    ends: Floats
    steps: Floats


def build_model(plan: TracePlan, counts: TraceCounts) -> TraceModel:
    """The model that noisy counts give: what is small beside the noise counts as nothing."""
    found = estimate_map(plan.map, counts.map)
    regions = plan.choose_regions(found)
    lengths, ends, steps = (
        clear_noise(each, find_deviation(noise)) for each, noise in
        zip((counts.lengths, counts.ends, counts.steps), plan.noises, strict=True)
    )  # fmt: skip
    people = max(0, round(float(counts.lengths.sum())))
    share = steps.reshape(regions.count, regions.count)
    common = share.sum(axis=0) + 1e-9
    rows = share + 1e-6 * common / common.sum()  # no step is impossible, so that every bridge can be drawn
    return TraceModel(found, regions, people, lengths, ends, rows / rows.sum(axis=1, keepdims=True))


def clear_noise(counts: Ints, deviation: float) -> Floats:
    """Shares of noisy counts: those that the noise alone could make are left out, and the rest keeps its sum.

    The threshold is that of the largest of so many noises (Donoho and Johnstone 1994), lowered until what is left is
    no less than the sum of all counts.
    """
    whole = max(float(counts.sum()), 1.0)
    high = deviation * math.sqrt(2 * math.log(max(2, len(counts))))
    for threshold in high * np.array([1.0, 0.75, 0.5, 0.25, 0.0]):
        kept: Floats = np.where(counts > threshold, counts, 0).astype(np.float64)
        if kept.sum() >= 0.9 * whole:
            break
    if kept.sum() <= 0:
        kept = np.ones(len(counts))
    shares: Floats = kept / kept.sum()
    return shares


def draw_traces(model: TraceModel, people: int, seed: int = 0) -> tuple[Ints, Ints, Ints, Floats]:
    """New traces: the number of the person, of the step, of the region, and a place in it for each point."""
    draws = np.random.default_rng(seed)
    lengths = draws.choice(len(model.lengths), people, p=model.lengths) + 1
    ends = draws.choice(len(model.ends), people, p=model.ends)
    begin, stop = np.divmod(ends, model.regions.count)
    paths = _draw_paths(model.steps, begin, stop, lengths, draws)
    person = np.repeat(np.arange(people), lengths)
    step = np.arange(len(person)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    region = np.concatenate(paths) if people else np.empty(0, np.int64)
    return person, step, region, _draw_places(model, region, draws)


def _draw_paths(steps: Floats, begin: Ints, stop: Ints, lengths: Ints, draws: np.random.Generator) -> Sequence[Ints]:
    """A path of each length between two ends: each step by its chance, and by that of the end being reached after.

    A trace of one point is where it begins.
    """
    reaching = [np.eye(len(steps))]
    for _ in range(int(lengths.max(initial=1))):
        reaching.append(steps @ reaching[-1])
    order = np.lexsort((stop, lengths))
    paths: list[Ints] = [np.empty(0, np.int64)] * len(begin)
    bounds = np.flatnonzero(np.diff(lengths[order] * len(steps) + stop[order], prepend=-1))
    for group in np.split(order, bounds[1:]) if len(order) else ():
        length, goal = int(lengths[group[0]]), int(stop[group[0]])
        at, walked = begin[group], [begin[group]]
        for left in range(length - 2, -1, -1):
            chances = steps[at] * reaching[left][:, goal]
            total = chances.cumsum(axis=1)
            pick = draws.random(len(group))[:, None] * total[:, -1:]
            at = np.minimum((total < pick).sum(axis=1), len(steps) - 1)
            walked.append(at)
        for place, path in zip(group.tolist(), np.column_stack(walked), strict=True):
            paths[place] = path
    return paths


def _draw_places(model: TraceModel, region: Ints, draws: np.random.Generator) -> Floats:
    """A latitude and longitude for each point: in its region, where the noisy map has points."""
    box, painted = model.map.box, model.map.paint(RASTER)
    found = np.empty((len(region), 2))
    for number in np.unique(region).tolist():
        where = np.flatnonzero(region == number)
        top, bottom, left, right = model.regions.corners[number].tolist()
        weights = painted[top:bottom, left:right].ravel() + 1e-12
        chosen = draws.choice(len(weights), len(where), p=weights / weights.sum())
        found[where, 0], found[where, 1] = top + chosen // (right - left), left + chosen % (right - left)
    found = (found + draws.random(found.shape)) / RASTER
    corner, size = (box.south, box.west), (box.north - box.south, box.east - box.west)
    return np.asarray(corner + found * size, np.float64)


HOURS = tuple(f"{hour:02d}:00" for hour in range(24))
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
SLOTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "hour": ("EXTRACT(hour FROM {})", HOURS),
    "part": ("FLOOR(EXTRACT(hour FROM {}) / 6)", ("00:00-06:00", "06:00-12:00", "12:00-18:00", "18:00-24:00")),
    "weekday": ("EXTRACT(isodow FROM {}) - 1", DAYS),
    "month": ("EXTRACT(month FROM {}) - 1", tuple(f"month {month}" for month in range(1, 13))),
}
"""The slots of time that rows are counted by: how each is computed, and their names, all of them public."""


@dataclass(frozen=True, slots=True)
class Points:
    """Which points count, in public words: of a table's rows inside a box, so many of each unit.

    `who` is the column that tells units apart, None where a row is one. `ordered` points are those of traces: the first
    ones of each unit by time. Others are chosen by a fresh secret salt.
    """

    table: str
    who: str | None
    box: Box
    rows: int
    at: tuple[str, ...]
    to: tuple[str, ...] | None = None
    time: str | None = None
    slots: str | None = None
    ordered: bool = False


def render_points(points: Points) -> str:
    """The statement that reads the points that count.

    A unit's choice depends on its own rows and the salt alone. Rows that are alike are numbered, so that each of them
    is as likely to be chosen as any other.
    """
    if points.ordered:
        return _render_traces(points)
    columns = [*_render_place(points.box, points.at, ""), *(_render_place(points.box, points.to or (), "2"))]
    columns.append(f"{_render_slot(points)} AS _slot")
    names = [column.rsplit(" AS ", 1)[1] for column in columns]
    known = " AND ".join(f"{name} IS NOT NULL" for name in names)
    who = f", {quote(points.who)} AS _who" if points.who is not None else ""
    source = f"SELECT {', '.join(columns)}{who} FROM {quote(points.table)}"
    listed = ", ".join(names)
    if points.who is None:
        return f"SELECT {listed} FROM ({source}) AS s WHERE {known}"
    copies = f"row_number() OVER (PARTITION BY _who, {listed} ORDER BY _who) AS _copy"
    numbered = f"SELECT *, {copies} FROM ({source}) AS s WHERE {known} AND _who IS NOT NULL"
    secret = int.from_bytes(salt(8), "little") >> 1
    chance = f"hash(hash(CAST({secret} AS UBIGINT), {listed}, _copy, _who))"
    rank = f"row_number() OVER (PARTITION BY _who ORDER BY {chance}, {listed}, _copy) AS _rank"
    return f"SELECT {listed} FROM (SELECT *, {rank} FROM ({numbered}) AS n) AS r WHERE _rank <= {points.rows}"


def _render_traces(points: Points) -> str:
    """The first points of each person, in order of persons and of time; people are numbers."""
    assert points.time is not None
    assert points.who is not None
    time = f"TRY_CAST({quote(points.time)} AS TIMESTAMP) AS _time"
    columns = ", ".join([*_render_place(points.box, points.at, ""), time, f"{quote(points.who)} AS _who"])
    known = " AND ".join(f"{name} IS NOT NULL" for name in ("_y", "_x", "_time", "_who"))
    source = f"SELECT * FROM (SELECT {columns} FROM {quote(points.table)}) AS s WHERE {known}"
    rank = "row_number() OVER (PARTITION BY _who ORDER BY _time, _y, _x) AS _rank"
    person = "dense_rank() OVER (ORDER BY _who) AS _person"
    ranked = f"SELECT _y, _x, {rank}, {person} FROM ({source}) AS k"
    return f"SELECT _y, _x, _person FROM ({ranked}) AS r WHERE _rank <= {points.rows} ORDER BY _person, _rank"


def _render_place(box: Box, columns: Sequence[str], ending: str) -> list[str]:
    """Latitude and longitude, null outside the box; 360 degrees of longitude more or less is the same place."""
    if not columns:
        return []
    y, x = (f"TRY_CAST({quote(name)} AS DOUBLE)" for name in columns)
    south, west, north, east = (f"CAST({each!r} AS DOUBLE)" for each in (box.south, box.west, box.north, box.east))
    across = " ".join(f"WHEN {at} BETWEEN {west} AND {east} THEN {at}" for at in (x, f"({x} + 360)", f"({x} - 360)"))
    return [f"CASE WHEN {y} BETWEEN {south} AND {north} THEN {y} END AS _y{ending}", f"CASE {across} END AS _x{ending}"]


def _render_slot(points: Points) -> str:
    if points.slots is None or points.time is None:
        return "CAST(0 AS BIGINT)"
    return f"CAST({SLOTS[points.slots][0].format(f'TRY_CAST({quote(points.time)} AS TIMESTAMP)')} AS BIGINT)"


ENDS = ("origin", "destination")


def collect_features(
    kind: str, rows: Sequence[dict[str, Any]], regions: Sequence[Sequence[float]]
) -> dict[str, list[Mapping[str, object]] | str]:
    """A GeoJSON document (RFC 7946): cells as polygons, flows as lines between regions, traces as points."""
    if kind == "map":
        features = [draw_feature(outline_box([row.pop(name) for name in EDGES]), row) for row in rows]
    elif kind == "flows":
        features = [draw_feature(outline_box(box), {"region": place}) for place, box in enumerate(regions)]
        for row in (each for each in rows if each["count"] > 0):
            line = [(row.pop(f"{end}_longitude"), row.pop(f"{end}_latitude")) for end in ENDS]
            told = {name: value for name, value in row.items() if not name.endswith(EDGES)}
            features.append(draw_feature({"type": "LineString", "coordinates": line}, told))
    else:
        latitude, longitude = list(rows[0])[-2:] if rows else ("", "")
        places = [[row.pop(longitude), row.pop(latitude)] for row in rows]
        features = [draw_feature({"type": "Point", "coordinates": place}, row)
                    for place, row in zip(places, rows, strict=True)]  # fmt: skip
    return {"type": "FeatureCollection", "features": features}
