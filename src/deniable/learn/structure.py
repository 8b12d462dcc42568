"""Structure without a target: groups of rows (k-means) and principal components, both from noisy sums of entries.

Groups are found by Lloyd's iteration. The centers are public whole numbers, so which of them is nearest to a row is
integer arithmetic on that row alone; the sums of the rows nearest to each center are released with Gaussian noise, and
the next centers are computed from what was released. The first centers come from a noisy count of each column's values,
by the same noise: rows are imagined whose columns are independent, and grouped.

Components are the directions in which the entries vary most: one noisy release of all products of two entries, as for a
linear regression, then algebra.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import GaussianEvent, SelfComposedEvent, calibrate_gaussian
from deniable.dp.mechanisms import GaussianMechanism
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import ParameterError
from deniable.learn.features import (
    CHUNK,
    COMPONENT,
    GROUP,
    MOST_PARTS,
    STEPS,
    Design,
    Entries,
    Feature,
    Fit,
    Number,
    Numbers,
    Progress,
    Structure,
)
from deniable.learn.linear import bound_products, sum_moments
from deniable.learn.logistic import MOST_TURNS
from deniable.policy.budget import Budget

TURNS = 6
BINS = 16
"""Cells of a number in the count that the first centers come from."""
IMAGINED, TRIES, ROUNDS = 2048, 8, 12
"""Imagined rows, from how many starts they are grouped, and how often the centers move in each."""
FEWEST = 4.0
"""A group whose noisy count is below so many deviations of its noise is taken to be empty."""
SETTLING = 2
"""The last turns, in which no group is split any more: the centers come to rest."""
WORTH = 0.4
"""Splitting a group is expected to take off so much of its spread."""

Wholes = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class GroupsPlan:
    """k-means by `turns` noisy sums of the rows nearest to each center, after one release that counts values.

    **Guarantee.** turns + 1 releases of the Gaussian mechanism, each on a vector that one row moves by at most the
    square root of `most_squared`: see `sum_groups` and `count_values`. Which group a row is in depends on that row and
    on public centers, so a row moves the sums of one group. **Utility.** A center errs by about the noise's deviation
    divided by the number of rows in its group. **Runtime.** turns passes over the rows, groups x width operations each.
    """

    design: Design
    target: Structure
    mechanism: GaussianMechanism
    turns: int = TURNS

    @property
    def event(self) -> SelfComposedEvent:
        """The same Gaussian in every turn, and once for the count of values."""
        return SelfComposedEvent(self.mechanism.event, self.turns + 1)

    def fit(self, entries: Entries, truth: Wholes, entropy: Entropy = SYSTEM, progress: Progress | None = None) -> Fit:  # noqa: ARG002  nothing is predicted
        """Count, imagine rows, and move the centers."""
        counted = self.mechanism.release(count_values(self.design, entries), entropy)
        imagined = imagine_rows(self.design, counted)
        centers = round_centers(place_centers(imagined, self.target.count))
        noise = math.sqrt(float(self.mechanism.variance)) / STEPS
        for turn in range(self.turns):
            noisy = self.mechanism.release(sum_groups(self.design, entries, centers).ravel(), entropy)
            found = Groups.of(self.design, np.reshape(noisy, (len(centers), -1)) / STEPS, centers, noise)
            left = self.turns - turn - 1
            found = found.free_twins() if left >= SETTLING else found
            centers = round_centers(found.fill_empty(imagined) if left else found.centers)
            if progress is not None:
                progress((turn + 1) / self.turns)
        return Fit((centers / STEPS).ravel(), found.estimate_errors(noise).ravel(), found.rows, found.shares)


def plan_groups(
    design: Design, count: int | None, budget: Budget, rows: int = 1, turns: int | None = None
) -> GroupsPlan:
    """The plan that keeps a budget, for units of at most `rows` rows."""
    turns = TURNS if turns is None else turns
    if count is None or not 2 <= count <= MOST_PARTS or not 1 <= turns <= MOST_TURNS:
        raise ParameterError(
            "count or turns cannot be used",
            expected=f"count (how many groups) is 2 to {MOST_PARTS}, turns is 1 to {MOST_TURNS}",
            remedy="State how many groups to find, such as count=4 (--count 4)",
        )
    squared = Fraction(rows**2 * bound_groups(design))
    variance = calibrate_gaussian(budget, sensitivity_squared=(turns + 1) * squared)
    return GroupsPlan(design, Structure(GROUP, count), GaussianMechanism(variance, squared), turns)


def bound_groups(design: Design) -> int:
    """How far a row moves the sums, squared: its entries blocks STEPS^2, and its squared length at most STEPS^2."""
    return (design.blocks + 1) * STEPS**2


def count_values(design: Design, entries: Entries) -> Wholes:
    """How many rows have each category, each of BINS stretches of a number, or null; each counts STEPS.

    A row adds to one cell of each block at most, and to the first cell, which counts all rows.
    """
    found = [np.array([len(entries)])]
    for place, each in _list_places(design):
        block = entries[:, place : place + each.size]
        if not isinstance(each, Number):
            found.append(np.count_nonzero(block, axis=0))
            continue
        cells = (block[:, 0].astype(np.int64) + STEPS) * BINS // (2 * STEPS + 1)
        missing = np.any(block[:, 1:] != 0, axis=1)
        found += [np.bincount(cells[~missing], minlength=BINS), np.array([np.count_nonzero(missing)])]
    return np.concatenate(found).astype(np.int64) * STEPS


def _list_places(design: Design) -> list[tuple[int, Feature]]:
    """The first entry of each feature."""
    starts = np.cumsum([1, *(each.size for each in design.features)])
    return list(zip(starts.tolist(), design.features, strict=False))


def imagine_rows(design: Design, counted: Wholes) -> Numbers:
    """Rows whose columns are independent and have the counted values; from a fixed seed, since nothing here is secret.

    Entries are in units of 1, and a number lies in the middle of its cell.
    """
    draw, start = np.random.default_rng(0), 1
    rows = np.zeros((IMAGINED, design.width))
    rows[:, 0] = 1.0
    for place, each in _list_places(design):
        cells = BINS + 1 if isinstance(each, Number) else each.size
        weights = np.maximum(np.asarray(counted[start : start + cells], np.float64), 0.0) + 1e-9
        chosen = draw.choice(cells, IMAGINED, p=weights / weights.sum())
        if isinstance(each, Number):
            inside = chosen < BINS
            rows[inside, place] = (chosen[inside] + 0.5) * 2 / BINS - 1
            if each.nullable:
                rows[~inside, place + 1] = 1.0
        else:
            rows[np.arange(IMAGINED), place + chosen] = 1.0
        start += cells
    return rows


def place_centers(imagined: Numbers, count: int) -> Numbers:
    """The best of several groupings of imagined rows, each begun far apart (Arthur, Vassilvitskii 2007)."""
    draw = np.random.default_rng(1)
    found = [_group_imagined(imagined, count, draw) for _ in range(TRIES)]
    return min(found, key=lambda each: each[0])[1]


def _group_imagined(imagined: Numbers, count: int, draw: np.random.Generator) -> tuple[float, Numbers]:
    centers = imagined[draw.integers(0, len(imagined), 1)]
    while len(centers) < count:
        away = _measure_distances(imagined, centers).min(axis=1) + 1e-12
        centers = np.vstack([centers, imagined[draw.choice(len(imagined), p=away / away.sum())]])
    for _ in range(ROUNDS):
        nearest = _measure_distances(imagined, centers).argmin(axis=1)
        held = [imagined[nearest == place] for place in range(count)]
        centers = np.array([part.mean(axis=0) if len(part) else centers[place] for place, part in enumerate(held)])
    return float(_measure_distances(imagined, centers).min(axis=1).sum()), centers


def _measure_distances(rows: Numbers, centers: Numbers) -> Numbers:
    squares = (rows**2).sum(axis=1)[:, None] - 2 * rows @ centers.T + (centers**2).sum(axis=1)
    return np.asarray(np.maximum(squares, 0.0))


def round_centers(centers: Numbers) -> Wholes:
    """Centers in whole steps, within the range of entries."""
    return np.rint(np.clip(centers, -1.0, 1.0) * STEPS).astype(np.int64)


def find_nearest(entries: Entries, centers: Wholes) -> Wholes:
    """The nearest center to each row, the first of several: by 2 x.c - |c|^2, which are integers.

    With w entries they stay below 3 w STEPS^2, exact in 64-bit floating point.
    """
    plain = centers.astype(np.float64)
    lengths = (plain**2).sum(axis=1)
    pieces = [
        (2 * entries[start : start + CHUNK].astype(np.float64) @ plain.T - lengths).argmax(axis=1)
        for start in range(0, max(1, len(entries)), CHUNK)
    ]
    return np.concatenate(pieces).astype(np.int64)


def sum_groups(design: Design, entries: Entries, centers: Wholes) -> Wholes:
    """For each center the sums of the entries of its rows, and of their squared lengths, as exact integers.

    The intercept's entry counts the rows. The squared length of a row without its intercept is at most
    (blocks - 1) STEPS^2; it is divided by (blocks - 1) STEPS, rounding down, to be at most STEPS.
    """
    count, width = centers.shape
    total = np.zeros((count, width + 1), np.int64)
    for start in range(0, len(entries), CHUNK):
        held = entries[start : start + CHUNK]
        squares = np.einsum("ij,ij->i", held[:, 1:], held[:, 1:], dtype=np.int64) // ((design.blocks - 1) * STEPS)
        inside = (find_nearest(held, centers)[:, None] == np.arange(count)).astype(np.float64)
        total += (inside.T @ np.column_stack([held, squares]).astype(np.float64)).astype(np.int64)
    return total


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """What one release says of the groups, in units of the entries: public."""

    centers: Numbers
    counts: Numbers
    spreads: Numbers
    """The sum of squared distances from the center, in each group; at least 0."""
    empty: NDArray[np.bool_]

    @classmethod
    def of(cls, design: Design, noisy: Numbers, before: Wholes, noise: float) -> Groups:
        """Centers, counts and spreads; a group that noise hides keeps its center."""
        counts, floor = noisy[:, 0], np.maximum(noisy[:, 0], 1.0)
        lowest = np.where(_find_numbers(design), -1.0, 0.0)
        centers = np.clip(noisy[:, :-1] / floor[:, None], lowest, 1.0)
        empty = counts < FEWEST * noise
        centers[empty] = before[empty] / STEPS
        centers[:, 0] = 1.0
        lengths = noisy[:, -1] * (design.blocks - 1) + counts * (design.blocks - 1) / (2 * STEPS)
        spreads = np.maximum(lengths - floor * (centers[:, 1:] ** 2).sum(axis=1), 0.0)
        return cls(centers, counts, np.where(empty, 0.0, spreads), empty)

    @property
    def rows(self) -> float:
        """How many rows there were, at least 1."""
        return max(1.0, float(self.counts.sum()))

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of the rows in each group."""
        held = np.maximum(self.counts, 0.0)
        return tuple((held / max(1.0, float(held.sum()))).tolist())

    def free_twins(self) -> Groups:
        """The same, one of two groups marked as empty where joining them costs less than splitting the widest gains.

        Joining groups of n and m rows adds n m / (n + m) times the squared distance of their centers to the spread.
        """
        counts = np.where(self.empty, 0.0, np.maximum(self.counts, 0.0))
        sizes = np.outer(counts, counts) / np.maximum(counts[:, None] + counts, 1.0)
        costs = sizes * _measure_distances(self.centers, self.centers)
        np.fill_diagonal(costs, np.inf)
        costs[self.empty], costs[:, self.empty] = np.inf, np.inf
        one, other = np.unravel_index(costs.argmin(), costs.shape)
        widest = int(self.spreads.argmax())
        if widest in (one, other) or costs[one, other] >= WORTH * self.spreads[widest]:
            return self
        joined, empty = self.centers.copy(), self.empty.copy()
        joined[one] = (counts[one] * joined[one] + counts[other] * joined[other]) / (counts[one] + counts[other])
        empty[other] = True
        return Groups(joined, self.counts, self.spreads, empty)

    def fill_empty(self, imagined: Numbers) -> Numbers:
        """Centers of which each empty one now splits the widest group, along the longest axis of imagined rows there.

        Each half of a split group counts for half of its spread, so that the next empty one may split another.
        """
        centers, spreads = self.centers.copy(), self.spreads.copy()
        for place in np.flatnonzero(self.empty):
            widest = int(spreads.argmax())
            held = imagined[_measure_distances(imagined, centers).argmin(axis=1) == widest]
            if widest == place or len(held) < 2:
                centers[place] = imagined[_measure_distances(imagined, centers).min(axis=1).argmax()]
                continue
            _, lengths, axes = np.linalg.svd(held - held.mean(axis=0), full_matrices=False)
            step = axes[0] * lengths[0] / math.sqrt(len(held))
            centers[place], centers[widest] = centers[widest] + step, centers[widest] - step
            spreads[place] = spreads[widest] = spreads[widest] / 2
        return centers

    def estimate_errors(self, noise: float) -> Numbers:
        """One standard deviation of each entry of each center: of the noise in its sum and count, and of the sample.

        The variance of one entry is at most the mean squared distance in the group. No error exceeds 2, the range of
        an entry: that is said of groups which noise hides.
        """
        counts = np.maximum(self.counts, 1.0)[:, None]
        noisy = noise**2 * (1 + self.centers**2) / counts**2
        found = np.sqrt(noisy + self.spreads[:, None] / counts**2)
        found = np.where(self.empty[:, None], 2.0, np.minimum(found, 2.0))
        found[:, 0] = 0.0
        return np.asarray(found)


def _find_numbers(design: Design) -> NDArray[np.bool_]:
    """Which entries are those of numbers, and may be below 0."""
    found = np.zeros(design.width, np.bool_)
    for place, each in _list_places(design):
        found[place] = isinstance(each, Number)
    return found


@dataclass(frozen=True, slots=True)
class ComponentsPlan:
    """Principal components from one noisy release of all products of two entries.

    **Guarantee.** That of the Gaussian mechanism on the vector of products: see `bound_products`. **Utility.** With
    n rows, noise of deviation s turns a component by about s / (n g), where g is how much more variance it has than
    the next one; the errors say so. **Runtime.** One pass over the rows, width^2 operations each; then width^3.
    """

    design: Design
    target: Structure
    mechanism: GaussianMechanism

    @property
    def event(self) -> GaussianEvent:
        """One Gaussian release."""
        return self.mechanism.event

    def fit(self, entries: Entries, truth: Wholes, entropy: Entropy = SYSTEM, progress: Progress | None = None) -> Fit:  # noqa: ARG002  nothing is predicted
        """Sum, add noise, turn to the axes."""
        noisy = self.mechanism.release(sum_moments(entries, None, progress), entropy)
        deviation = math.sqrt(float(self.mechanism.variance)) / STEPS**2
        return find_components(self.design, noisy / float(STEPS**2), deviation, self.target.count)


def plan_components(design: Design, count: int | None, budget: Budget, rows: int = 1) -> ComponentsPlan:
    """The plan that keeps a budget, for units of at most `rows` rows."""
    most = min(MOST_PARTS, design.width - 1)
    count = min(2, most) if count is None else count
    if not 1 <= count <= most:
        raise ParameterError(
            "count cannot be used", expected=f"count (how many components) is 1 to {most} for these columns"
        )
    squared = bound_products(design.blocks, rows)
    mechanism = GaussianMechanism.within(budget, sensitivity_squared=squared)
    return ComponentsPlan(design, Structure(COMPONENT, count), mechanism)


def find_components(design: Design, released: Numbers, deviation: float, count: int) -> Fit:
    """The axes of most variance, from products with noise of this deviation.

    Two entries of one block are never nonzero together, so their product is 0 before noise: the noise is taken off.
    The largest loading of an axis is positive. The intercept of an axis is its mean coordinate, taken away.
    """
    width, upper = design.width, np.zeros((design.width, design.width))
    upper[np.triu_indices(width)] = released
    apart = (design.owners[:, None] != design.owners[None, :]) | np.eye(width, dtype=np.bool_)
    products = np.where(apart, upper + np.triu(upper, 1).T, 0.0)
    rows = max(1.0, float(products[0, 0]))
    means = np.clip(products[0, 1:] / rows, -1.0, 1.0)
    values, axes = np.linalg.eigh(products[1:, 1:] / rows - np.outer(means, means))
    values, axes = np.maximum(values[::-1], 0.0), axes[:, ::-1].T
    axes = axes * np.where(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)] < 0, -1.0, 1.0)[:, None]
    errors = estimate_turning(values, axes, rows, deviation / rows)[:count]
    levels = np.sqrt(values[:count] / rows + (deviation / rows) ** 2)
    shares = values[:count] / max(float(values.sum()), 1e-12)
    whole = np.column_stack([-(axes[:count] @ means), axes[:count]])
    return Fit(whole.ravel(), np.column_stack([levels, errors]).ravel(), rows, tuple(shares.tolist()))


def estimate_turning(values: Numbers, axes: Numbers, rows: float, noise: float) -> Numbers:
    """One standard deviation of each loading, to the first order: axis i turns toward axis j by e_ij / (v_i - v_j).

    e_ij is the entry of noise and sample between the two axes: the noise's variance, and v_i v_j / rows for rows that
    are about normal. No error exceeds 1, the length of an axis: that is said where noise hides which axis is which.
    """
    gaps = values[:, None] - values[None, :]
    np.fill_diagonal(gaps, np.inf)
    pull = (noise**2 + np.outer(values, values) / rows) / np.maximum(gaps**2, 1e-24)
    return np.minimum(np.sqrt(pull @ axes**2), 1.0)
