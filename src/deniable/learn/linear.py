"""Linear regression from noisy sufficient statistics: one release, then algebra (ridge regression).

Let v = (x, t) be a row's entries with its target. The sum of the products v_i v_j (i <= j) over all rows is all that a
regression needs. It is released once with Gaussian noise; everything after is post-processing, so any number of
penalties or diagnostics could be read off the same release.

Solving sees no row. Moments are in units of the entries, and the noise on each of them is independent, with one known
deviation; the errors of the coefficients include it.

A Newton step of another regression (`solve_step`) is a linear regression of residuals with weighted rows, and is solved
in the same way."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import GaussianEvent
from deniable.dp.mechanisms import GaussianMechanism
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.learn.features import (
    CHUNK,
    STEPS,
    Design,
    Entries,
    Fit,
    Knots,
    Labels,
    Number,
    Numbers,
    NumberTarget,
    Progress,
)
from deniable.policy.budget import Budget

Wholes = NDArray[np.int64]
WEIGHT = 1 << 16
"""Steps of a weight in the product with entries: WEIGHT is 1."""
MOST_WEIGHT = 1 << 14
"""Weights beyond this (in size) act as this: the logit of a row stays exact."""
CLASS_BENDS = 4
"""How many times the products of two probabilities are taken, so that they move as far as residues do."""
DEEP = 1 << 30
"""The exponential of 0 in the table of exponentials."""
FINE = 1 << 8
"""Cells of that table for each unit; it ends where less than half a step of DEEP is left."""


@dataclass(frozen=True, slots=True)
class LinearPlan:
    """Ridge regression from one noisy release of the second moments.

    **Guarantee.** That of the Gaussian mechanism on the vector of products, for units of at most `rows` rows: see
    `sensitivity_squared`.
    **Utility.** With s the noise's deviation (in units of 1) and w entries, directions in which the rows weigh less
    than 2 s sqrt(w) are shrunk; the others err by about s / weight. The errors of the fit say so, entry by entry.
    **Runtime.** One pass over the rows, width^2 operations each; then width^3.
    """

    design: Design
    target: NumberTarget
    mechanism: GaussianMechanism
    penalty: float = 1e-4
    steps: int = STEPS
    """The fixed point of the target: finer than that of entries, so that rounding moves no coefficient visibly."""

    @property
    def event(self) -> GaussianEvent:
        """One Gaussian release."""
        return self.mechanism.event

    def fit(
        self, entries: Entries, truth: NDArray[np.int64], entropy: Entropy = SYSTEM, progress: Progress | None = None
    ) -> Fit:
        """Sum, add noise, solve."""
        noisy = self.mechanism.release(sum_moments(entries, truth, progress, self.steps), entropy)
        unit = float(STEPS * self.steps)
        deviation = math.sqrt(float(self.mechanism.variance)) / unit
        solved = solve_ridge(self.design, noisy / unit, deviation, self.penalty)
        half, middle = float(self.target.column.half), float(self.target.column.middle)
        coefficients = solved.coefficients * half
        coefficients[0] += middle
        assert solved.errors is not None
        return Fit(coefficients, solved.errors * half, solved.rows)


def plan_linear(
    design: Design,
    target: NumberTarget,
    budget: Budget,
    rows: int = 1,
    penalty: float = 1e-4,
    finest: int = STEPS << 10,
) -> LinearPlan:
    """The plan that keeps a budget, for units of at most `rows` rows; `finest` are the finest steps of the target."""

    def calibrate(steps: int) -> GaussianMechanism:
        squared = sensitivity_squared(design, rows, steps)
        return GaussianMechanism.within(budget, sensitivity_squared=squared)

    steps, mechanism = refine_steps(calibrate, STEPS, finest)
    return LinearPlan(design, target, mechanism, penalty, steps)


LOUDEST = 1 << 48
"""The deviation of noise, in steps, up to which steps are made finer."""


def refine_steps(
    calibrate: Callable[[int], GaussianMechanism], coarsest: int, finest: int
) -> tuple[int, GaussianMechanism]:
    """The finest steps in which noise is not too loud to be drawn, and that noise, which is in proportion to them."""
    room = LOUDEST / math.sqrt(float(calibrate(coarsest).variance))
    steps = min(finest, coarsest << int(math.log2(max(1.0, room))))
    return steps, calibrate(steps)


def sensitivity_squared(design: Design, rows: int, steps: int = STEPS) -> Fraction:
    """How far a unit of so many rows can move the vector of moments, in squared L2 norm.

    A row with its target has p = blocks + 1 entries that are not 0, each at most STEPS (the invariant of `features`).
    The squares of its products sum to (|v|^4 + sum of v_i^4) / 2 <= (p^2 + p) STEPS^4 / 2; k rows move the sum by at
    most k times the root of that. All products are in steps that are finer by steps / STEPS.
    """
    return bound_products(design.blocks + 1, rows) * (steps // STEPS) ** 2


def bound_products(p: int, rows: int) -> Fraction:
    """The same for rows of p entries that are not 0, whatever they are."""
    return Fraction(rows**2 * STEPS**4 * p * (p + 1), 2)


def sum_moments(
    entries: Entries, truth: NDArray[np.int64] | None, progress: Progress | None = None, steps: int = STEPS
) -> NDArray[np.int64]:
    """The sums of v_i v_j over all rows, i <= j, as exact integers; without a target, of the entries alone.

    A target is in `steps`, and the sums are in steps of 1 / (STEPS steps): its products with entries are taken as they
    are, those of entries so many times, and its square from the target in steps of 1 / STEPS.
    """
    width, finer = entries.shape[1] + (truth is not None), steps // STEPS
    total = np.zeros((width, width), np.int64)
    for start in range(0, len(entries), CHUNK):
        rows = slice(start, start + CHUNK)
        held = entries[rows].astype(np.float64)
        if truth is None:
            total += (held.T @ held).astype(np.int64)
        else:
            coarse = (truth[rows] + finer // 2) // finer
            total[:-1, :-1] += finer * (held.T @ held).astype(np.int64)
            total[:-1, -1] += (held.T @ truth[rows].astype(np.float64)).astype(np.int64)
            total[-1, -1] += finer * int(coarse @ coarse)
        if progress is not None:
            progress(min(1.0, (start + CHUNK) / len(entries)))
    return total[np.triu_indices(width)]


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """The noisy sums x x', x t and t^2, and which entries of x x' carry noise."""

    gram: Numbers
    right: Numbers
    square: float
    noisy: NDArray[np.bool_]
    products: float = 1.0
    """How many times the noise of x x' is as large as that of x t."""

    @property
    def rows(self) -> float:
        """How many rows there were, at least 1."""
        return max(1.0, float(self.gram[0, 0]))

    @property
    def means(self) -> Numbers:
        """The mean of each entry after the intercept."""
        return np.clip(self.gram[0, 1:] / self.rows, -1.0, 1.0)

    @property
    def centering(self) -> Numbers:
        """The map P of sums to sums of deviations from the mean: P (x x') P', P (x t)."""
        return np.column_stack([-self.means, np.eye(len(self.gram) - 1)])


def moments_of(design: Design, released: Numbers) -> Moments:
    """A released vector of moments in its parts.

    Two entries of one block are never nonzero together, so their products are 0 before noise: the noise is taken off.
    """
    width = design.width
    noisy = (design.owners[:, None] != design.owners[None, :]) | np.eye(width, dtype=np.bool_)
    upper = np.zeros((width + 1, width + 1))
    upper[np.triu_indices(width + 1)] = released
    whole = upper + np.triu(upper, 1).T
    return Moments(np.where(noisy, whole[:-1, :-1], 0.0), whole[:-1, -1], float(whole[-1, -1]), noisy)


def solve_ridge(design: Design, released: Numbers, deviation: float, penalty: float) -> Fit:
    """Coefficients and their errors from moments with noise of this deviation.

    Entries are measured from their noisy means, so that what noise hides is shrunk to the mean of the target, and where
    noise hides that too, to the middle of its bounds; the intercept is not penalized. Where the rows have an eigenvalue
    e, noise has one of up to n = 2 deviation sqrt(width): in place of 1/e stands e / (e^2 + n^2), which is 1/e where
    the rows speak and 0 where only noise does (a Wiener filter). The penalty, per row, is added to each e.
    """
    found = moments_of(design, released)
    inverse, pull = _filter_inverse(found, penalty * found.rows, 4 * design.width * deviation**2)
    weights = inverse @ (found.centering @ found.right)
    # The mean of a target anywhere within its bounds, given a noisy one: of few rows it is near their middle.
    level = float(np.clip(found.right[0] * found.rows / (found.rows**2 + 3 * deviation**2), -1.0, 1.0))
    whole = np.concatenate([[level - found.means @ weights], weights])
    left = float(found.square - 2 * whole @ found.right + whole @ found.gram @ whole)
    residual, hidden = max(deviation, left) / found.rows, _bound_hidden(design, found, weights, deviation)
    spread = _estimate_covariance(found, whole, inverse, (pull * hidden) @ pull.T, deviation, residual)
    effects = _map_effects(design, found.gram[0])
    told = effects @ whole
    variances = np.maximum(np.diag(effects @ spread @ effects.T), 0.0) + _vary_means(design, found, told, deviation)
    return Fit(told, np.sqrt(variances), found.rows)


def _vary_means(design: Design, found: Moments, effects: Numbers, deviation: float) -> Numbers:
    """How much the means that effects of values are measured from vary, by the sample and by noise in the counts.

    The intercept has the means of all columns: as they vary together, or as if each did by itself where that is more.
    """
    varied, held, apart = np.zeros(design.width), np.zeros(design.width), 0.0
    for block, each in enumerate(design.features, start=1):
        if isinstance(each, Labels):
            places = np.flatnonzero(design.owners == block)
            held[places] = effects[places]
            sizes = np.clip(found.gram[0, places], 0.0, found.rows) + deviation**2
            varied[places] = float(effects[places] ** 2 @ sizes) / found.rows**2
            apart += varied[places[0]]
    varied[0] = max(apart, float(held @ found.gram @ held) / found.rows**2)
    return varied


def _bound_hidden(design: Design, found: Moments, weights: Numbers, deviation: float) -> Numbers:
    """How large each coefficient may be, squared: as the largest that was found, and as one that spans the target.

    Values of a number may fill a small part of its bounds: what spans the target is then as much larger than 1.
    """
    largest = np.full(len(weights), float(np.max(weights**2, initial=1.0)))
    varied = np.diag(found.gram)[1:] / found.rows - found.means**2
    numbers = np.array([isinstance(design.features[owner - 1], Number) for owner in design.owners[1:]], np.bool_)
    spans = 1 / np.maximum(varied, max(deviation / found.rows, 1e-12))
    return np.where(numbers, np.maximum(largest, spans), largest)


def _filter_inverse(found: Moments, added: float, hidden: float) -> tuple[Numbers, Numbers]:
    """The filtered inverse of the centered sums, and the share of each coefficient that it leaves out."""
    return _filter_matrix(found.centering @ found.gram @ found.centering.T, added, hidden)


def _filter_matrix(sums: Numbers, added: float, hidden: float) -> tuple[Numbers, Numbers]:
    values, vectors = np.linalg.eigh(sums)
    rows = np.maximum(values, 0.0)
    raised = rows + added
    share = np.divide(raised, raised**2 + hidden, out=np.zeros_like(raised), where=raised > 0)
    return (vectors * share) @ vectors.T, (vectors * (1 - rows * share)) @ vectors.T


def _estimate_covariance(
    found: Moments, whole: Numbers, inverse: Numbers, pulled: Numbers, deviation: float, residual: float
) -> Numbers:
    """The covariance of the coefficients: of the sample, of the noise on the normal equations, and of the pull to 0.

    Rows are taken as independent with one residual variance, of which noise hides less than its own deviation. What
    was pulled away is unknown: it may be as large as the largest coefficient that was found, and as one that alone
    spans the target's range, which is 1 here.
    """
    center, means = found.centering, found.means
    noise = deviation**2 * _estimate_noise(found.products * whole, found.noisy)
    between = inverse @ (center @ (residual * found.gram + noise) @ center.T) @ inverse + pulled
    level = (residual * found.rows + noise[0, 0]) / found.rows**2
    cross = -(between @ means)
    return np.block([[np.array([[level + means @ between @ means]]), cross[None, :]], [cross[:, None], between]])


def _estimate_noise(whole: Numbers, noisy: NDArray[np.bool_]) -> Numbers:
    """The covariance, for noise of deviation 1, of what noise adds to the normal equations: e - E whole.

    E is symmetric with one independent number for each noisy pair, so entries i and j of E whole share the number
    E_ij, which is multiplied with whole_j in one and whole_i in the other.
    """
    shared = np.where(noisy, np.outer(whole, whole), 0.0)
    np.fill_diagonal(shared, 1.0 + noisy @ whole**2)
    return shared


def _map_effects(design: Design, counts: Numbers) -> Numbers:
    """The map of coefficients to effects: those of a column's values less their mean, which goes to the intercept.

    One of a column's values is always there, so a constant could move between them and the intercept, and none of the
    coefficients would mean anything alone. Values are weighted by their noisy counts. A value of no category, where
    null is not declared, lights no entry and so counts as that mean.
    """
    moved = np.eye(design.width)
    for block, each in enumerate(design.features, start=1):
        if isinstance(each, Labels):
            places = np.flatnonzero(design.owners == block)
            weights = np.maximum(counts[places], 1.0)
            weights /= weights.sum()
            moved[np.ix_(places, places)] -= weights
            moved[0, places] = weights
    return moved


def sum_step(entries: Entries, bends: NDArray[np.int64], residues: NDArray[np.int64]) -> NDArray[Any]:
    """The sums of b x_i x_j over rows, i <= j, and then those of STEPS r x_i, with a bend b and residue r for each row.

    Bends and residues are at most 2**18, so that partial sums of a chunk are below 2**53: exact. Sums of all chunks are
    integers of Python, which have no end.
    """
    width = entries.shape[1]
    gram, right = np.zeros((width, width), np.object_), np.zeros(width, np.object_)
    for start in range(0, len(entries), FEWER):
        rows = slice(start, start + FEWER)
        held = entries[rows].astype(np.float64)
        gram += ((held * bends[rows, None]).T @ held).astype(np.int64)
        right += (residues[rows].astype(np.float64) @ held).astype(np.int64)
    return np.concatenate([gram[np.triu_indices(width)], STEPS * right])


FEWER = CHUNK // 4
"""Rows of a chunk where products are multiplied once more."""


def bound_step(design: Design, rows: int, bends: NDArray[np.int64], residues: NDArray[np.int64]) -> int:
    """How far a unit of so many rows can move these sums, in squared L2 norm, where a row has one of these pairs.

    As in `sensitivity_squared`, with p blocks: b^2 (p^2 + p) STEPS^4 / 2 for the products, r^2 p STEPS^4 for the rest.
    """
    p = design.blocks
    longest = int((bends**2 * (p * (p + 1) // 2) + residues**2 * p).max())
    return rows**2 * STEPS**4 * longest


def solve_step(
    design: Design,
    released: Numbers,
    noise: tuple[float, float],
    weights: Numbers,
    effects: Numbers,
    added: float,
    sampled: float = 1.0,
) -> tuple[Numbers, Numbers]:
    """The Newton step from these weights, and the covariance of where it leads; `added` is the penalty of all rows.

    `noise` is the deviation of the sums, and how many times that of the products is as large. A row's residual has the
    variance that its bend is, times `sampled`, so that of the sample is the inverse of the sums (the model's form taken
    as true). A step that noise hides is not made: the coefficient may then be as far away as the largest
    effect, and as 1. Effects are the weights about the mean of their column: what else these are is by chance.
    """
    width, pairs = design.width, len(released) - design.width
    upper = np.zeros((width, width))
    upper[np.triu_indices(width)] = released[:pairs]
    noisy = list_products(design)
    gram, right = np.where(noisy, upper + np.triu(upper, 1).T, 0.0), released[pairs:] - added * weights
    deviation, products = noise
    found = Moments(gram, right, 0.0, noisy, products)
    inverse, pull = _filter_inverse(found, added, 4 * width * (deviation * products) ** 2)
    slopes = inverse @ (found.centering @ found.right)
    step = np.concatenate([[found.right[0] / found.rows - found.means @ slopes], slopes])
    unknown = float(np.max(effects[1:] ** 2, initial=1.0))
    spread = _estimate_covariance(found, step, inverse, unknown * pull @ pull.T, deviation, sampled)
    return step, spread + _miss_squared(step, gram) * np.eye(width)


def _miss_squared(step: Numbers, gram: Numbers) -> float:
    """How far a Newton step may end from its goal, squared: the mean square of what it moves the rows by."""
    return float((max(0.0, step @ gram @ step) / max(1.0, gram[0, 0])) ** 2)


def bound_class_step(design: Design, rows: int, fine: int) -> int:
    """How far a unit of so many rows can move the sums of the last step, in squared L2 norm.

    As in `bound_step`, with p blocks and the squares of all bends and residues of a row. Residues: 2 fine^2, as in
    `sum_class_gradients`. Bends: probabilities a, b, ... have the sum of a^2 b^2 over all twos at most 1/16, since
    giving the smaller two to one value adds to it until two are left, each 1/2. So bends have fine^2.
    """
    p = design.blocks
    return rows**2 * STEPS**4 * fine**2 * (p * (p + 1) // 2 + 2 * p)


def sum_class_step(entries: Entries, truth: Wholes, weights: Numbers, fine: int) -> NDArray[Any]:
    """What the last step is computed from, as exact integers, in steps of 1 / (fine STEPS^2).

    The sums of b x_i x_j over rows, i <= j, for every two values of the target, with CLASS_BENDS times the product of
    their probabilities as the bend b; then those of STEPS r x_i for every value, with its residue r.
    """
    classes, width = weights.shape
    whole = np.rint(np.clip(weights, -MOST_WEIGHT, MOST_WEIGHT) * WEIGHT)
    twos, upper = list(itertools.combinations(range(classes), 2)), np.triu_indices(width)
    products, right = np.zeros((len(twos), len(upper[0])), np.object_), np.zeros((classes, width), np.object_)
    for start in range(0, len(entries), FEWER):
        held, own = entries[start : start + FEWER].astype(np.float64), truth[start : start + FEWER]
        shares = share_classes(held @ whole.T, fine)
        for place, (a, b) in enumerate(twos):
            bends = CLASS_BENDS * shares[:, a] * shares[:, b] // fine
            products[place] += ((held * bends[:, None]).T @ held).astype(np.int64)[upper]
        shares[np.arange(len(own)), own] -= fine
        right -= (shares.astype(np.float64).T @ held).astype(np.int64)
    return np.concatenate([products.ravel(), STEPS * right.ravel()])


def share_classes(logits: Numbers, fine: int, cell: int = WEIGHT * STEPS // FINE) -> Wholes:
    """Each value's probability in steps of 1/fine, rounded down, by integers alone from whole logits."""
    cells = ((logits.max(axis=1, keepdims=True) - logits + cell // 2) // cell).astype(np.int64)
    powers = _POWERS[np.minimum(cells, len(_POWERS) - 1)]
    return np.asarray(powers * fine // powers.sum(axis=1, keepdims=True), np.int64)


_POWERS = np.rint(DEEP * np.exp(-np.arange(22 * FINE) / FINE)).astype(np.int64)


def solve_class_step(
    design: Design,
    released: Numbers,
    noise: tuple[float, float],
    weights: Numbers,
    effects: Numbers,
    added: float,
) -> tuple[Numbers, list[Numbers]]:
    """The same for a multinomial regression: the step, and the covariance of where it leads, by value of the target.

    Two values' sums of products p q x x' are told once for both: they stand negative between the two, and are added to
    what each has by itself (as in the Laplacian of a graph). A constant can be added to the coefficients of all values,
    so what is solved for adds up to 0 over them. `noise` is as in `solve_step`, by which the noise on the sums of all
    values together has an eigenvalue of up to 2 deviation sqrt(2 classes width).
    """
    (classes, width), (deviation, products) = weights.shape, noise
    noisy, upper = list_products(design), np.triu_indices(width)
    twos = list(itertools.combinations(range(classes), 2))
    told = released[: len(twos) * len(upper[0])].reshape(len(twos), -1) * products
    right = released[told.size :] - added * weights.ravel()
    # Deviations from the mean over the values, in coordinates of their own.
    lift = np.kron(np.linalg.eigh(np.eye(classes) - 1 / classes)[1][:, 1:], np.eye(width))
    held = []
    for each in told:
        half = np.zeros((width, width))
        half[upper] = each
        held.append(np.where(noisy, half + np.triu(half, 1).T, 0.0))
    own = _join_twos(held, classes)
    sums = lift.T @ own @ lift
    inverse, pull = _filter_matrix(sums, added, 8 * classes * width * (deviation * products) ** 2)
    step = (lift @ inverse @ (lift.T @ right)).reshape(classes, width)
    # What noise adds to the equations: the step is multiplied with that of the products, and that of residues is added.
    between = [_estimate_noise(products * (step[a] - step[b]), noisy) - np.eye(width) for a, b in twos]
    varied = lift.T @ (_join_twos(between, classes) + np.eye(classes * width)) @ lift
    unknown = float(np.max(effects**2, initial=1.0))
    spread = lift @ (spread_classes(inverse, sums, deviation**2 * varied) + unknown * pull @ pull.T) @ lift.T
    parts = [slice(at, at + width) for at in range(0, classes * width, width)]
    return step, [
        spread[part, part] + _miss_squared(each, own[part, part]) * np.eye(width)
        for part, each in zip(parts, step, strict=True)
    ]


def spread_classes(inverse: Numbers, sums: Numbers, noise: Numbers) -> Numbers:
    """The covariance of what is solved for: a sample's is the inverse of the sums, and the noise's comes to it."""
    return inverse @ (sums + noise) @ inverse


def _join_twos(held: list[Numbers], classes: int) -> Numbers:
    """The matrix over all values that has what every two of them share: negative between them, and added to each."""
    width = len(held[0])
    whole = np.zeros((classes, width, classes, width))
    for (a, b), each in zip(itertools.combinations(range(classes), 2), held, strict=True):
        whole[a, :, a] += each
        whole[b, :, b] += each
        whole[a, :, b] = whole[b, :, a] = -each
    return whole.reshape(classes * width, classes * width)


def list_products(design: Design) -> NDArray[np.bool_]:
    """Which products of two entries can differ from 0: of different columns, of one entry, of neighboring knots."""
    found = (design.owners[:, None] != design.owners) | np.eye(design.width, dtype=np.bool_)
    for block, each in enumerate(design.features, start=1):
        if isinstance(each, Knots):
            places = np.flatnonzero(design.owners == block)[: each.count]
            found[places[:-1], places[1:]] = found[places[1:], places[:-1]] = True
    return np.asarray(found, np.bool_)


SPREAD = 52.5
"""Noise of turn t is carried on by the momentum: the product of s/(s + 3) from t to s is about (t/s)^3, so it moves the
end by t/2 (1 - (t/T)^2) steps. Over T turns the squares add up to T^3 (1/3 - 2/5 + 1/7) / 4 = T^3 / SPREAD."""
WANDER = 0.5
"""How far noise may move the logit of a row, in its root mean square."""
TINY = 1e-9


class Curvature:
    """The most that a loss can curve, from the shares of the entries alone: bend (f f' + (p - 1) V + damping I).

    f are the shares, and V is, for each of the p - 1 columns by itself, diag(f) - f f'. No covariance of entries is
    larger than (p - 1) V, however the columns hang together, so a step that is divided by this never overshoots. It
    is diag(d) + U C U' with one column of U for each block: the inverse needs no more than p x p algebra.
    """

    def __init__(self, design: Design, shares: Numbers, bend: float, damping: float) -> None:
        self.owners, self.shares, self.bend, self.damping = design.owners, shares, bend, damping
        blocks = design.blocks
        self.core = core = np.ones((blocks, blocks)) - np.diag([0.0] + [blocks - 1.0] * (blocks - 1))
        inside = np.where(self.owners > 0, (blocks - 1) * shares, 0.0)
        self.diagonal = inside + damping
        self.reach = shares / self.diagonal
        self.masses = self._sum_blocks(shares * self.reach)
        self.middle = np.linalg.solve(np.eye(blocks) + core * self.masses, core)

    def _sum_blocks(self, values: Numbers) -> Numbers:
        return np.asarray(np.bincount(self.owners, weights=values, minlength=len(self.core)), np.float64)

    def divide(self, slope: Numbers) -> Numbers:
        """The slope divided by the curvature."""
        plain = slope / self.diagonal
        shared = self.middle @ self._sum_blocks(self.shares * plain)
        return np.asarray((plain - self.reach * shared[self.owners]) / self.bend)

    def center(self, weights: Numbers) -> Numbers:
        """Each column's weights about their mean over the rows, which goes to the intercept.

        One of a column's values is always there, so a constant could move between them and the intercept.
        """
        sums = np.maximum(self._sum_blocks(self.shares), TINY)
        means = self._sum_blocks(self.shares * weights) / sums
        means[0] = 0.0
        found = weights - means[self.owners]
        found[0] += means.sum()
        return np.asarray(found)

    def vary_center(self, effects: Numbers, rows: float) -> Numbers:
        """How much the means that effects are measured from vary by the sample, for each effect: its variance."""
        means = self._sum_blocks(self.shares * effects**2) / rows
        means[0] = means[1:].sum()
        return np.asarray(means[self.owners])

    def measure_wander(self) -> float:
        """The root mean square of x / curvature over rows x whose columns are independent: what noise does to logits.

        By columns: the mean of |x|^2 is |mean|^2 and, for each block, the mean of its square less that of its mean.
        """
        weights = self._sum_blocks(self.reach**2)
        own, across = np.diag(self.middle), (self.middle**2).T @ weights
        single = 1 / self.diagonal**2 + self.reach**2 * (across[self.owners] - 2 * own[self.owners] / self.diagonal)
        blocks = weights * (1 - 2 * self.masses * own) + self.masses**2 * across
        spread = self._sum_blocks(self.shares * single) - blocks
        center = self.divide(self.shares) * self.bend
        return math.sqrt(max(0.0, float(center @ center + spread[1:].sum()))) / self.bend


def damp_curvature(design: Design, counts: Numbers, bend: float, least: float, noise: float, turns: int) -> Curvature:
    """The curvature whose damping is at least so much, and enough that noise moves a logit by no more than WANDER."""
    shares, far = estimate_shares(design, counts), noise * math.sqrt(turns**3 / SPREAD)
    damping = max(least, TINY)
    while (found := Curvature(design, shares, bend, damping)).measure_wander() * far > WANDER:
        damping *= 1.25
    return found


def estimate_shares(design: Design, counts: Numbers) -> Numbers:
    """The share of rows that each entry has: from 0 up, at most 1 in a block, and 1 for the intercept."""
    held = np.clip(counts, 0.0, 1.0)
    held[0] = 1.0
    sums = np.bincount(design.owners, weights=held)
    return np.asarray(held / np.maximum(sums, 1.0)[design.owners])
