"""Noisy maps of points on adaptive grids, and regions of about equal weight made of such a map.

A map is measured in three steps, after Qardaji, Yang and Li (Differentially Private Grids for Geospatial Data, 2013).
A noisy total chooses how fine a first grid is. The noisy counts of its cells choose how finely each of them is divided.
The parts are counted with noise. What is fine and what is coarse follows from noisy numbers alone. Then all counts are
joined by least squares, so that parts add up to their cell and cells to the total.

Which cell a point is in is computed from that point alone; what is counted are whole numbers. A person has at most
`rows` rows in all, so one person moves the counts of each step by `rows` times the points of a row at most.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import ComposedEvent, Event, rho_within
from deniable.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, ApproxDP, Budget, PureDP, split

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Noise = LaplaceMechanism | GaussianMechanism

SHARES = (Fraction(2, 100), Fraction(49, 100), Fraction(49, 100))
"""Of the budget: for the total, for the first grid and for the parts of its cells."""
UNIFORM_SHARES = (Fraction(2, 100), Fraction(98, 100))
POINTS_A_CELL = 10
"""The published constant c: a uniform grid has N epsilon / c cells."""
POINTS_A_PART = 5
"""The published constant c2: a cell is divided into N epsilon / c2 parts."""
SMALLEST_SIDE, LARGEST_SIDE = 10, 1024
"""A first grid has at least and at most so many rows and columns."""
MOST_LEAVES = 1 << 20
"""So many parts a map has at most, whatever its noisy counts say."""


@dataclass(frozen=True, slots=True)
class Box:
    """A part of the earth in degrees, public by declaration. East of the antimeridian, `east` is above 180.

    >>> box = Box(-20.0, 170.0, -10.0, 190.0)
    >>> box.shift(np.array([175.0, -175.0, 10.0])).tolist()
    [175.0, 185.0, nan]
    """

    south: float
    west: float
    north: float
    east: float

    def __post_init__(self) -> None:
        numbers = (self.south, self.west, self.north, self.east)
        if not all(math.isfinite(each) for each in numbers):
            raise ParameterError("the box of a map has an end that is not a number", expected=BOX_WORDS)
        if not (-90 <= self.south < self.north <= 90 and -360 <= self.west < self.east <= 540):
            raise ParameterError("the box of a map is empty, or not on the earth", expected=BOX_WORDS)
        if self.east - self.west > 360:
            raise ParameterError("the box of a map is wider than the earth", expected="At most 360 degrees")

    def shift(self, x: Floats) -> Floats:
        """Longitudes as they stand in the box: 360 degrees more or less is the same place; NaN is outside."""
        for turn in (360.0, -360.0):
            x = np.where((x < self.west) | (x > self.east), np.where(self._spans(x + turn), x + turn, x), x)
        return np.where(self._spans(x), x, np.nan)

    def _spans(self, x: Floats) -> NDArray[np.bool_]:
        return (x >= self.west) & (x <= self.east)

    def scale(self, y: Floats, x: Floats) -> tuple[Floats, Floats]:
        """Points of the box as parts of its height and width, from 0 up to but not including 1."""
        down = (y - self.south) / (self.north - self.south)
        across = (x - self.west) / (self.east - self.west)
        return np.clip(down, 0.0, BELOW_ONE), np.clip(across, 0.0, BELOW_ONE)


BOX_WORDS = "South, west, north, east in degrees, such as 44,-101,46,-99"
BELOW_ONE = math.nextafter(1.0, 0.0)


def list_budgets(asked: Budget, pure: bool) -> list[Budget]:
    """The budget as it is, and as rho where there is a delta to convert with and prices need not be pure."""
    if isinstance(asked, ApproxDP):
        rho = None if pure else rho_within(asked.epsilon, asked.delta)
        return [PureDP(asked.epsilon), *([ZCDP(rho)] if rho else [])]
    return [asked]


@dataclass(frozen=True, slots=True)
class Reach:
    """What one unit moves at most in a vector of counts: the sum of its changes, and the sum of their squares."""

    whole: int
    squared: int

    @classmethod
    def of(cls, rows: int, replaced: bool) -> Reach:
        """So many points, all of which may be in one cell; one who is replaced moves others to as many elsewhere."""
        return cls(2 * rows, 2 * rows**2) if replaced else cls(rows, rows**2)


def share_noise(asked: Budget, parts: Sequence[tuple[Fraction, Reach]], *, pure: bool) -> tuple[Noise, ...]:
    """The noise of several vectors of counts within one budget, each with its share: the kind with less in the last."""
    made = [_calibrate_parts(money, parts) for money in list_budgets(asked, pure)]
    return min(made, key=lambda noises: find_deviation(noises[-1]))


def _calibrate_parts(money: Budget, parts: Sequence[tuple[Fraction, Reach]]) -> tuple[Noise, ...]:
    shares = split(money, tuple(share for share, _ in parts))
    if isinstance(money, ZCDP):
        return tuple(GaussianMechanism.within(each, sensitivity_squared=reach.squared)
                     for each, (_, reach) in zip(shares, parts, strict=True))  # fmt: skip
    return tuple(LaplaceMechanism.within(each, reach.whole) for each, (_, reach) in zip(shares, parts, strict=True))


def find_deviation(noise: Noise) -> float:
    """The standard deviation of noise in one count, or what is small beside any count where it is less."""
    if isinstance(noise, GaussianMechanism):
        return max(LEAST_DEVIATION, math.sqrt(noise.variance))
    gone = math.exp(-1 / float(noise.scale))
    return max(LEAST_DEVIATION, math.sqrt(2 * gone) / -math.expm1(-1 / float(noise.scale)))


LEAST_DEVIATION = 1e-3


def find_reach(noise: Noise, reach: Reach) -> bool:
    """Whether noise is made for what one unit moves."""
    if isinstance(noise, LaplaceMechanism):
        return noise.sensitivity >= reach.whole
    return noise.sensitivity_squared >= reach.squared


def bound_errors(deviations: Floats, confidence: float) -> Floats:
    """How far a sum of independent whole noises is off at most, each times a factor of at most 1 in size.

    Such noise is discrete: with a small deviation it is nearly always 0, and else at least 1. So the quantile of
    continuous noise is no bound, and one step is added to it. Chebyshev's bound holds for all noise, and is less where
    the deviation is small. Where there is no noise, there is no error.
    """
    from statistics import NormalDist

    alpha = 1 - confidence
    times = max(-NormalDist().inv_cdf(alpha / 2), -math.log(alpha) / math.sqrt(2))
    return np.asarray(np.minimum(deviations / math.sqrt(alpha), times * deviations + 1))


@dataclass(frozen=True, slots=True)
class MapPlan:
    """What is measured of a map: its box, its slots of time, and the noise of each step. Fields are public."""

    box: Box
    slots: int
    reach: Reach
    noises: tuple[Noise, ...]
    """Of the totals, of the first grids, and of the parts; without the last one the grids are uniform."""

    @classmethod
    def within(cls, asked: Budget, box: Box, slots: int, reach: Reach, *, adaptive: bool, pure: bool) -> MapPlan:
        """The plan of a map within a budget."""
        shares = SHARES if adaptive else UNIFORM_SHARES
        return cls(box, slots, reach, share_noise(asked, [(share, reach) for share in shares], pure=pure))

    @property
    def adaptive(self) -> bool:
        """Whether cells of the first grid are divided."""
        return len(self.noises) > len(UNIFORM_SHARES)

    @property
    def event(self) -> Event:
        """All that a map releases."""
        return ComposedEvent(tuple(noise.event for noise in self.noises))

    @property
    def strength(self) -> float:
        """The epsilon of Laplace noise on single points that is as large as that of the whole budget in one step."""
        parts = [math.sqrt(2) / find_deviation(noise) for noise in self.noises]
        gaussian = isinstance(self.noises[0], GaussianMechanism)
        return math.sqrt(sum(each**2 for each in parts)) if gaussian else sum(parts)


@dataclass(frozen=True, slots=True)
class Counted:
    """The noisy counts of a map, as they are stored: totals of slots, first grids, and parts of their cells.

    `sides` are the rows (and columns) of each slot's first grid, `divided` those of each of its cells.
    """

    totals: Ints
    sides: Ints
    cells: Ints
    divided: Ints
    parts: Ints


def choose_side(total: float, strength: float, adaptive: bool) -> int:
    """How many rows and columns a grid has, by the published rules; no more cells than points.

    >>> choose_side(1_000_000, 1.0, adaptive=False), choose_side(1_000_000, 1.0, adaptive=True)
    (317, 80)
    """
    uniform = math.ceil(math.sqrt(max(0.0, total) * min(1.0, strength / POINTS_A_CELL)))
    if not adaptive:
        return int(min(max(uniform, 1), LARGEST_SIDE))
    return int(min(max(math.ceil(uniform / 4), SMALLEST_SIDE), LARGEST_SIDE))


def choose_divisions(cells: Ints, deviation: float) -> Ints:
    """Into how many rows and columns each cell is divided, from its noisy count; few enough in all."""
    strength = math.sqrt(2) / deviation
    wanted = np.sqrt(np.maximum(cells, 0) * min(1.0, strength / POINTS_A_PART))
    whole = float((np.maximum(np.ceil(wanted), 1.0) ** 2).sum())
    if whole > MOST_LEAVES:
        wanted = np.floor(wanted * math.sqrt(max(0.0, MOST_LEAVES - len(cells)) / whole))
    return np.maximum(np.ceil(wanted), 1).astype(np.int64)


def measure_map(plan: MapPlan, y: Floats, x: Floats, slot: Ints, entropy: Entropy = SYSTEM) -> Counted:
    """The noisy counts of points of the box: the last sight of them."""
    down, across = plan.box.scale(y, x)
    totals = _release(plan.noises[0], np.bincount(slot, minlength=plan.slots), entropy)
    side = [choose_side(float(each), plan.strength, plan.adaptive) for each in totals]
    sides = np.array([_limit_side(each, plan.slots) for each in side], np.int64)
    starts = np.concatenate([[0], np.cumsum(sides**2)])
    side_of = sides[slot]
    cell = starts[slot] + _floor(down * side_of) * side_of + _floor(across * side_of)
    cells = _release(plan.noises[1], np.bincount(cell, minlength=int(starts[-1])), entropy)
    if not plan.adaptive:
        return Counted(totals, sides, cells, np.ones(len(cells), np.int64), np.empty(0, np.int64))
    divided = choose_divisions(cells, find_deviation(plan.noises[2]))
    leaf = _find_leaves(divided, cell, down * side_of, across * side_of)
    parts = _release(plan.noises[2], np.bincount(leaf, minlength=int((divided**2).sum())), entropy)
    return Counted(totals, sides, cells, divided, parts)


def _limit_side(side: int, slots: int) -> int:
    """A side whose cells in all slots are not more than the most leaves of a map."""
    return max(1, min(side, math.isqrt(MOST_LEAVES // slots)))


def _release(noise: Noise, counts: NDArray[Any], entropy: Entropy) -> Ints:
    return np.asarray(noise.release(counts.astype(np.int64), entropy), np.int64)


def _floor(values: Floats) -> Ints:
    return np.floor(values).astype(np.int64)


def _find_leaves(divided: Ints, cell: Ints, down: Floats, across: Floats) -> Ints:
    """The part of each point's cell that it is in; `down` and `across` count cells."""
    starts = np.concatenate([[0], np.cumsum(divided**2)])
    times = divided[cell]
    rows, columns = (np.minimum(_floor((each - np.floor(each)) * times), times - 1) for each in (down, across))
    return starts[cell] + rows * times + columns


@dataclass(frozen=True, slots=True, eq=False)
class Map:
    """The leaves of a map: where each is, how many points it has, and the standard deviation of the noise in that."""

    box: Box
    sides: Ints
    divided: Ints
    slot: Ints
    edges: Floats
    """South, west, north, east of each leaf."""
    points: Floats
    deviations: Floats
    totals: Floats
    total_deviations: Floats

    def locate(self, down: Floats, across: Floats, slot: int = 0) -> Ints:
        """The leaf of each place, given as parts of the box's height and width."""
        side, first = int(self.sides[slot]), int((self.sides[:slot] ** 2).sum())
        cell = first + _floor(down * side) * side + _floor(across * side)
        return _find_leaves(self.divided, cell, down * side, across * side)

    def paint(self, size: int) -> Floats:
        """The points of all slots on a uniform raster of size times size: each leaf's spread evenly over it."""
        middle = (np.arange(size) + 0.5) / size
        down, across = (each.ravel() for each in np.meshgrid(middle, middle, indexing="ij"))
        areas = (self.edges[:, 2] - self.edges[:, 0]) * (self.edges[:, 3] - self.edges[:, 1])
        whole = (self.box.north - self.box.south) * (self.box.east - self.box.west)
        density = np.maximum(self.points, 0.0) * whole / (areas * size * size)
        found = np.zeros(size * size)
        for slot in range(len(self.sides)):
            found += density[self.locate(down, across, slot)]
        return found.reshape(size, size)


def estimate_map(plan: MapPlan, counted: Counted) -> Map:
    """The map that fits all noisy counts best, with the deviation of each number; post-processing alone.

    A cell is estimated twice, by its own count and by the sum of its parts; so is a total. What the better estimate
    adds is shared by parts equally, and by cells in proportion to their variances: least squares, in closed form.
    """
    variances = [find_deviation(noise) ** 2 for noise in plan.noises]
    sizes, cells = counted.divided**2, counted.cells.astype(np.float64)
    cell_of = np.repeat(np.arange(len(cells)), sizes)
    if plan.adaptive:
        parts = counted.parts.astype(np.float64)
        sums = np.add.reduceat(parts, np.concatenate([[0], np.cumsum(sizes)[:-1]])) if len(parts) else parts
        joint = 1 / (1 / variances[1] + 1 / (sizes * variances[2]))
        fitted = joint * (cells / variances[1] + sums / (sizes * variances[2]))
        leaf_variance = (variances[2] * (1 - 1 / sizes) + joint / sizes**2)[cell_of]
        leaves = parts + ((fitted - sums) / sizes)[cell_of]
    else:
        joint, fitted, leaves = np.full(len(cells), variances[1]), cells, cells
        leaf_variance = joint
    slot_of = np.repeat(np.arange(len(counted.sides)), counted.sides**2)
    spread = np.bincount(slot_of, joint, minlength=plan.slots)
    gap = counted.totals - np.bincount(slot_of, fitted, minlength=plan.slots)
    whole = spread + variances[0]
    leaves = leaves + (joint / sizes * (gap / whole)[slot_of])[cell_of]
    leaf_variance = leaf_variance - ((joint / sizes) ** 2 / whole[slot_of])[cell_of]
    totals = counted.totals.astype(np.float64) - gap * variances[0] / whole
    deviations = np.sqrt(np.maximum(leaf_variance, 0.0))
    edges = _draw_edges(plan.box, counted.sides, counted.divided)
    total_deviations = np.sqrt(variances[0] * spread / whole)
    slots = slot_of[cell_of]
    return Map(plan.box, counted.sides, counted.divided, slots, edges, leaves, deviations, totals, total_deviations)


def bound_leaves(plan: MapPlan, found: Map, confidence: float) -> Floats:
    """How far the points of each leaf are off at most.

    On a uniform grid a leaf has the noise of its own count, whose quantile is exact, and a small part of all other
    noise: Chebyshev's bound on that takes a tenth of the probability.
    """
    wide = bound_errors(found.deviations, confidence)
    if plan.adaptive:
        return wide
    alpha = 1 - confidence
    above, own = (find_deviation(noise) ** 2 for noise in plan.noises)
    cells = (found.sides**2)[found.slot]
    rest = own / (cells * own + above) * np.sqrt(above + (cells - 1) * own)
    return np.asarray(np.minimum(wide, plan.noises[1].accuracy(0.9 * alpha) + rest / math.sqrt(0.1 * alpha)))


def _draw_edges(box: Box, sides: Ints, divided: Ints) -> Floats:
    """South, west, north and east of each leaf, in degrees."""
    side_of = np.repeat(sides, sides**2)
    place = np.concatenate([np.arange(side**2) for side in sides])
    sizes = divided**2
    cell_of = np.repeat(np.arange(len(divided)), sizes)
    part = np.arange(len(cell_of)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    times, side = divided[cell_of], side_of[cell_of]
    rows = (place // side_of)[cell_of] * times + part // times
    columns = (place % side_of)[cell_of] * times + part % times
    height, width = (box.north - box.south) / (side * times), (box.east - box.west) / (side * times)
    south, west = box.south + rows * height, box.west + columns * width
    return np.column_stack([south, west, south + height, west + width])


def sum_within(edges: Floats, points: Floats, inside: Box) -> tuple[float, Floats]:
    """The points of a map inside a box, each leaf counted by the part of it that is inside, and those parts.

    360 degrees of longitude more or less is the same place. Refuses a box that reaches beyond the map: nothing was
    measured there.
    """
    ends: list[float] = [*edges[:, :2].min(axis=0).tolist(), *edges[:, 2:].max(axis=0).tolist()]
    south, west, north, east = ends
    tall = np.minimum(edges[:, 2], inside.north) - np.maximum(edges[:, 0], inside.south)
    wide, width = np.zeros(len(edges)), 0.0
    for turn in (-720.0, -360.0, 0.0, 360.0, 720.0):
        left, right = inside.west + turn, inside.east + turn
        wide += np.maximum(np.minimum(edges[:, 3], right) - np.maximum(edges[:, 1], left), 0.0)
        width += max(0.0, min(east, right) - max(west, left))
    outside = (south - inside.south, inside.north - north, inside.east - inside.west - width)
    if max(outside) > HAIR:
        raise ParameterError(
            "the box reaches beyond the map, and nothing was measured there",
            expected=f"A box inside {south:g},{west:g},{north:g},{east:g} (south, west, north, east)",
        )
    whole = (edges[:, 2] - edges[:, 0]) * (edges[:, 3] - edges[:, 1])
    parts = np.maximum(tall, 0.0) * wide / whole
    return float(parts @ points), parts


HAIR = 1e-9
"""Degrees by which the edge of a map may be off, since it is computed."""
PICTURE = 64
"""A picture has so many rows and columns of cells."""
EDGES = ("south", "west", "north", "east")
"""The names of the edges of a cell."""


def paint_raster(edges: Floats, counts: Floats, sure: NDArray[np.bool_] | None = None) -> list[dict[str, float]]:
    """The cells of a coarse picture of a map: of the part that holds nearly all points; cut cells count by parts.

    `sure` are the cells that more than noise is in, if any is: they decide which part is drawn.
    """
    if not len(counts):
        return []
    weights = np.where(sure, counts, 0.0) if sure is not None and sure.any() else counts
    south, west = (_choose_lines(edges[:, place], edges[:, place + 2], weights) for place in (0, 1))
    told: list[dict[str, float]] = []
    for bottom, top in pairwise(south.tolist()):
        strip = _sum_strip(edges, counts, bottom, top, west).tolist()
        for (left, right), count in zip(pairwise(west.tolist()), strip, strict=True):
            told.append(dict(zip((*EDGES, "count"), (bottom, left, top, right, round(count, 1)), strict=True)))
    return told


def _choose_lines(low: Floats, high: Floats, counts: Floats) -> Floats:
    """The lines of a picture along one side: from where one in a hundred points is below to where one is above."""
    order = np.argsort(low)
    sums = np.maximum(counts[order], 0.0).cumsum()
    first, last = (order[min(int(np.searchsorted(sums, part * sums[-1])), len(order) - 1)] for part in (0.01, 0.99))
    start, end = float(low[first]), float(high[last])
    return np.linspace(start, end if end > start else start + 1e-6, PICTURE + 1)


def _sum_strip(edges: Floats, counts: Floats, bottom: float, top: float, west: Floats) -> Floats:
    tall = np.minimum(edges[:, 2], top) - np.maximum(edges[:, 0], bottom)
    inside = np.flatnonzero(tall > 0)
    share = counts[inside] * tall[inside] / (edges[inside, 2] - edges[inside, 0])
    width = (edges[inside, 3] - edges[inside, 1])[:, None]
    parts: Floats = share @ np.diff(np.clip((west[None, :] - edges[inside, 1:2]) / width, 0.0, 1.0), axis=1)
    return parts


def turn_back(x: Any) -> Any:
    """Longitudes from -180 to 180."""
    return np.where(x > 180, x - 360, np.where(x < -180, x + 360, x))


def outline_box(box: Sequence[float]) -> Mapping[str, Any]:
    """A box as a polygon of GeoJSON; one that crosses the antimeridian is cut there, as RFC 7946 asks.

    >>> outline_box([0, 179, 1, 181])["type"], outline_box([0, 181, 1, 182])["coordinates"][0][0]
    ('MultiPolygon', [-179, 0])
    """
    south, west, north, east = box
    turn = 360 * math.floor((west + 180) / 360)
    west, east = west - turn, east - turn
    pieces = [(west, east)] if east <= 180 else [(west, 180.0), (-180.0, east - 360)]
    rings = [[[[w, south], [e, south], [e, north], [w, north], [w, south]]] for w, e in pieces]
    if len(rings) == 1:
        return {"type": "Polygon", "coordinates": rings[0]}
    return {"type": "MultiPolygon", "coordinates": rings}


def draw_feature(geometry: Mapping[str, object], properties: Mapping[str, object]) -> Mapping[str, object]:
    """A feature of GeoJSON."""
    return {"type": "Feature", "geometry": dict(geometry), "properties": dict(properties)}


RASTER = 1024
"""Regions are made of the cells of a raster of so many rows and columns."""
MOST_REGIONS = 200


Part = tuple[int, int, int, int]
"""The first row, the row after the last, the first column and the column after the last of a rectangle."""


@dataclass(frozen=True, slots=True, eq=False)
class Regions:
    """A partition of a box into regions of about equal weight: rectangles of a raster, numbered from 0."""

    box: Box
    corners: Ints
    """The first and the last row and column of each region (the last ones not included)."""
    labels: NDArray[np.int16]
    """The region of each cell of the raster."""

    @property
    def count(self) -> int:
        """How many regions there are."""
        return len(self.corners)

    @property
    def edges(self) -> Floats:
        """South, west, north and east of each region, in degrees."""
        high, wide = (self.box.north - self.box.south) / RASTER, (self.box.east - self.box.west) / RASTER
        rows, columns = self.corners[:, :2], self.corners[:, 2:]
        south, west = self.box.south + rows * high, self.box.west + columns * wide
        return np.column_stack([south[:, 0], west[:, 0], south[:, 1], west[:, 1]])

    def find_middles(self, found: Map) -> Floats:
        """Latitude and longitude of the middle of each region's points, by a noisy map; longitudes from -180 to 180."""
        weights, labels = found.paint(RASTER).ravel() + 1e-9, self.labels.ravel()
        whole = np.bincount(labels, weights, minlength=self.count)
        places = [(each + 0.5) / RASTER for each in divmod(np.arange(RASTER * RASTER), RASTER)]
        down, across = (np.bincount(labels, weights * place, minlength=self.count) / whole for place in places)
        box = self.box
        x = turn_back(box.west + across * (box.east - box.west))
        return np.column_stack([box.south + down * (box.north - box.south), x])

    def locate(self, y: Floats, x: Floats) -> Ints:
        """The region of each point of the box."""
        down, across = self.box.scale(y, x)
        found: Ints = self.labels[_floor(down * RASTER), _floor(across * RASTER)].astype(np.int64)
        return found


def count_regions(points: float, deviation: float, slots: int = 1) -> int:
    """How many regions make a table of pairs of them that is as fine as its noise allows, by the rule of grids."""
    cells = max(0.0, points) * min(1.0, math.sqrt(2) / deviation / POINTS_A_CELL) / slots
    return int(min(max(round(math.sqrt(cells)), 2), MOST_REGIONS))


def divide_evenly(found: Map, count: int) -> Regions:
    """At most so many regions: the heaviest is cut in two of about equal weight, again and again."""
    weights = found.paint(RASTER)
    sums = np.zeros((RASTER + 1, RASTER + 1))
    sums[1:, 1:] = weights.cumsum(axis=0).cumsum(axis=1)
    whole = (0, RASTER, 0, RASTER)
    queue: list[tuple[float, Part]] = [(-_weigh(sums, whole), whole)]
    done: list[Part] = []
    while queue and len(queue) + len(done) < count:
        _, part = heapq.heappop(queue)
        halves = _cut_part(sums, part)
        if halves is None:
            done.append(part)
            continue
        for half in halves:
            heapq.heappush(queue, (-_weigh(sums, half), half))
    corners = np.array(sorted([*done, *(part for _, part in queue)]), np.int64)
    labels = np.empty((RASTER, RASTER), np.int16)
    for number, (top, bottom, left, right) in enumerate(corners.tolist()):
        labels[top:bottom, left:right] = number
    return Regions(found.box, corners, labels)


def _weigh(sums: Floats, part: Part) -> float:
    top, bottom, left, right = part
    return float(sums[bottom, right] - sums[top, right] - sums[bottom, left] + sums[top, left])


def _cut_part(sums: Floats, part: Part) -> tuple[Part, Part] | None:
    """Two halves of about equal weight, along the longer side; None of a single cell."""
    top, bottom, left, right = part
    if bottom - top == right - left == 1:
        return None
    if bottom - top >= right - left:
        along = sums[top : bottom + 1, right] - sums[top : bottom + 1, left]
        cut = top + _find_half(along)
        return (top, cut, left, right), (cut, bottom, left, right)
    along = sums[bottom, left : right + 1] - sums[top, left : right + 1]
    cut = left + _find_half(along)
    return (top, bottom, left, cut), (top, bottom, cut, right)


def _find_half(along: Floats) -> int:
    """Where running sums pass half of what they add, at least one and at most all but one step in."""
    half = (along[0] + along[-1]) / 2
    place = int(np.searchsorted(along, half))
    if 0 < place < len(along) and half - along[place - 1] < along[place] - half:
        place -= 1
    return min(max(place, 1), len(along) - 2)
