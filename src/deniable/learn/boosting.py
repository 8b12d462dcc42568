"""Explainable boosting: one shape for each column, learned in turn from noisy histograms of residuals.

A model is the sum of one value for each column, looked up by the bin or category of a row: its *shape*. The columns
take turns (cyclic boosting; Nori, Caruana, Bu, Shen, Kulkarni 2021): the rows' residuals, and how fast these would
change (the *curvature*), are summed by the bins of one column, both sums are released with Gaussian noise, and the
column's shape moves by a Newton step. No split is searched, so nothing is spent on structure.

Between a row and the noise there are only integers: shapes are whole steps, a row's level is a sum of them, and its
residual is read from a table. A row lights one bin of a column, so it moves a release by at most the longest pair
(residual, curvature) in that table, whatever the model is by then.

What was released is then used as well as it can be, which costs nothing. The turns of a column are averaged, once the
first ones have found the neighborhood. Each shape is the mean of a Gaussian process, given those averages with their
known noise: smooth for numbers, independent for categories, and of a roughness that is weighed by how well it explains
what was released. Its deviation, with what clipping may bend, is the error that is told of a class.

Naive Bayes is one release of such histograms: counts by value of the target, of columns that are taken as independent
given it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import ComposedEvent, GaussianEvent, SelfComposedEvent, calibrate_gaussian
from deniable.dp.mechanisms import GaussianMechanism
from deniable.dp.mechanisms.mechanism import calibrate_part
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import ParameterError
from deniable.learn.calibration import CALIBRATED, Line, fit_line, plan_calibration, sum_missed
from deniable.learn.features import (
    STEPS,
    Bins,
    ClassTarget,
    Codes,
    Design,
    Feature,
    Fit,
    LabelsTarget,
    Numbers,
    NumberTarget,
    Progress,
)
from deniable.learn.logistic import MOST_TURNS, REACH, SHARPNESS, link_logistic
from deniable.policy.budget import Amount, Budget, exact

RESIDUE = 1 << 16
"""Steps of a residual of a class: RESIDUE is 1. They are fine, so that a probability of 1 in 1,000 is not rounded."""
LOGISTIC = link_logistic(RESIDUE)
PASSES = 8
CLIPS = {False: Fraction(1), True: Fraction(1, 4)}
"""The largest residual that counts, for classes (none is longer than 1) and (True) for numbers from -1 to 1."""
WIDEST = {False: 1, True: 2}
"""The longest residual there is: at a clip of this nothing is clipped."""
SETTLING = 2
"""Passes whose releases only lead to the neighborhood, and are left out of the averages."""
SHAPE = 1 << 16
"""Steps of a shape: SHAPE is 1. Below them are `SHARPNESS` cells of a table."""
HIGHEST = 8
"""Shapes beyond this (in size) act as this."""
CURVES = 2
"""A curvature counts so many times: (1-p)^2 + (CURVES p (1-p))^2 hardly exceeds the residual's own largest square."""

LEAST_REACH = 1 << 4
"""Steps of 1/STEPS that predictions of a number reach at least."""

Wholes = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Loss:
    """Residual and curvature of a row as whole numbers, from its level and its target alone."""

    most: int
    """The largest residual, in steps."""
    most_squared: int
    """How far one row moves a histogram of residuals and curvatures, in squared L2 norm: the most in the table."""
    numeric: bool
    residues: Wholes
    curves: Wholes
    """For classes, by target and cell of the level, 0 where clipped. For numbers it is the same for all: a step that
    counts clipped rows too is shorter than Newton's, and never too long."""

    @property
    def residue(self) -> int:
        """Steps of a residual of 1; those of a number are steps of the target."""
        return STEPS if self.numeric else RESIDUE

    @property
    def unit(self) -> int:
        """What a curvature of 1 counts."""
        return int(self.curves[0]) if self.numeric else CURVES * RESIDUE

    @property
    def bent(self) -> float:
        """How far clipping may bend an effect, as a share of it."""
        return 0.0 if self.most == WIDEST[self.numeric] * self.residue else BENT

    @property
    def spread(self) -> float:
        """The variance of a row's residual for each unit of curvature."""
        return (self.most / self.residue / 2) ** 2 if self.numeric else 1.0

    @property
    def roughness(self) -> float:
        """How large effects are, against those on a logit."""
        return 0.25 if self.numeric else 1.0

    def look_up(self, levels: Wholes, truth: Wholes) -> tuple[Wholes, Wholes]:
        """The residual and the curvature of each row."""
        cells = levels // (SHAPE // SHARPNESS)
        if self.numeric:
            away = truth - cells
            return np.clip(away, -self.most, self.most), np.full(len(away), self.curves[0])
        cells = np.clip(cells, -REACH * SHARPNESS, REACH * SHARPNESS - 1) + REACH * SHARPNESS
        return self.residues[truth, cells], self.curves[truth, cells]


def build_loss(target: ClassTarget | NumberTarget, clip: Fraction) -> Loss:
    """The logistic loss of a value against all others, or the squared loss of a number, with clipped residuals."""
    numeric = isinstance(target, NumberTarget)
    if not (0 if numeric else Fraction(1, 2)) < clip <= WIDEST[numeric]:
        raise ParameterError(
            "clip cannot be used", expected="Above 0 and at most 2 for a number, above 1/2 and at most 1 for a class"
        )
    most = max(1, int(clip * (STEPS if numeric else RESIDUE)))
    if numeric:
        return Loss(most, 2 * most**2, True, np.zeros(1, np.int64), np.array([most]))
    away, curve = np.array([[0], [RESIDUE]]) - LOGISTIC.table, CURVES * LOGISTIC.bends
    residues, curves = np.clip(away, -most, most), np.where(np.abs(away) > most, 0, curve)
    return Loss(most, int((residues**2 + curves**2).max()), False, residues, curves)


@dataclass(frozen=True, slots=True)
class BoostedPlan:
    """Shapes by `passes` turns of every column, after one release that counts the rows and one for the intercept.

    **Guarantee.** `releases` of the Gaussian mechanism, each on a vector that one row moves by at most the square root
    of `loss.most_squared`, and a unit by so much for each of its rows; for a number one more of `last`, see
    `calibration.py`; composition is adaptive. **Utility.** A bin with curvature c errs by about the noise's deviation
    / (c sqrt(passes - SETTLING)), less what smoothing takes off. For a class nothing is clipped by default, so that
    probabilities add up to the number of rows that have it. For a number residuals are clipped: each shape alone tells
    where most rows are, not their mean, and only the level and the stretch of the sum of all are those of the mean.
    With a clip of 2 nothing is clipped, for 8 times the noise. **Runtime.** passes passes over the rows, a few
    operations for each column.
    """

    design: Design
    target: ClassTarget | NumberTarget
    mechanism: GaussianMechanism
    loss: Loss
    passes: int = PASSES
    last: GaussianMechanism | None = None
    """Of a number: what its level and stretch are measured with at the end."""

    @property
    def releases(self) -> int:
        """How many histograms are released, with the count."""
        return 2 + self.passes * len(self.design.features)

    @property
    def event(self) -> SelfComposedEvent | ComposedEvent:
        """The same Gaussian every time, and for a number the last one."""
        turns = SelfComposedEvent(self.mechanism.event, self.releases)
        return turns if self.last is None else ComposedEvent((turns, self.last.event))

    def fit(self, codes: Codes, truth: Wholes, entropy: Entropy = SYSTEM, progress: Progress | None = None) -> Fit:
        """Count, then let every column take its turns."""
        rows = self.count_rows(len(codes), entropy)
        noise = math.sqrt(float(self.mechanism.variance))
        shapes = [Shape.of(width, each, self.loss) for width, each in self._list_blocks()]
        levels = np.zeros(len(codes), np.int64)
        for done, block in enumerate(self._list_turns(), start=1):
            shape, bins = shapes[block], codes[:, block]
            released = self.mechanism.release(sum_residuals(self.loss, levels, truth, bins, shape.width), entropy)
            if block or self.loss.numeric:
                moved = shape.take_turn(released, noise, self.loss, float(shapes[0].values[0]))
            else:
                moved = shape.start_at(*find_odds(float(released[0]) / RESIDUE, rows, noise / RESIDUE))
            levels += np.append(moved, 0)[bins]
            if progress is not None:
                progress(done / (self.releases - 1))
        line = None if self.last is None else self._find_line(self.last, shapes, levels, truth, rows, entropy)
        return self._convert(shapes, rows, line)

    @staticmethod
    def _find_line(
        last: GaussianMechanism, shapes: list[Shape], levels: Wholes, truth: Wholes, rows: float, entropy: Entropy
    ) -> Line:
        """Where the sum of the shapes has to lie; its middle and how far it reaches follow from what is public."""
        means = [shape.find_mean() for shape in shapes]
        middle = int(np.clip(sum(means), -1, 1) * STEPS)
        reaches = [np.abs(shape.values - mean).max() for shape, mean in zip(shapes, means, strict=True)]
        reach = int(np.clip(sum(reaches) * STEPS, LEAST_REACH, 2 * STEPS))
        told = levels // (SHAPE // STEPS)
        return fit_line(last, sum_missed(truth, told, middle, reach), rows, middle, reach, entropy)

    def count_rows(self, rows: int, entropy: Entropy) -> float:
        """The number of rows with noise, at least 1: each counts as much as the largest residual."""
        weight = math.isqrt(self.loss.most_squared)
        return max(1.0, float(self.mechanism.release([weight * rows], entropy)[0]) / weight)

    def _list_blocks(self) -> Iterator[tuple[int, Feature | None]]:
        yield 1, None
        for each in self.design.features:
            yield each.size, each

    def _list_turns(self) -> Iterator[int]:
        yield 0
        for _ in range(self.passes):
            yield from range(1, self.design.blocks)

    def _convert(self, shapes: list[Shape], rows: float, line: Line | None) -> Fit:
        """Shapes as coefficients, each column's about its mean, which goes to the intercept."""
        means = [shape.find_mean() for shape in shapes]
        level, whole = 0.0, None if self.loss.numeric else sum(means)
        for shape, mean in zip(shapes[1:], means[1:], strict=True):
            level += shape.center(None if whole is None else whole - mean)
        values = np.concatenate([shape.values for shape in shapes])
        variances = np.concatenate([shape.variances for shape in shapes])
        values[0] += level
        if isinstance(self.target, NumberTarget):
            # No errors: how far clipped residuals are from a number's effect depends on values that were not measured.
            if line is not None:
                values *= line.stretch
                values[0] += line.start
            values = values * float(self.target.column.half)
            values[0] += float(self.target.column.middle)
            return Fit(values, None, rows)
        return Fit(values, np.sqrt(variances + (self.loss.bent * values) ** 2), rows)


def plan_boosted(
    design: Design,
    target: ClassTarget | NumberTarget,
    budget: Budget,
    rows: int = 1,
    passes: int | None = None,
    clip: Amount | None = None,
) -> BoostedPlan:
    """The plan that keeps a budget, for units of at most `rows` rows."""
    passes = PASSES if passes is None else passes
    if not 1 <= passes <= MOST_TURNS:
        raise ParameterError("turns cannot be used", expected=f"1 to {MOST_TURNS}")
    loss = build_loss(target, CLIPS[isinstance(target, NumberTarget)] if clip is None else exact(clip, "clip"))
    made, squared = design.cut(), Fraction(rows**2 * loss.most_squared)
    releases = 2 + passes * len(made.features)
    if loss.numeric:
        mechanism = calibrate_part(budget, int(squared), (1 - CALIBRATED) / releases)
        return BoostedPlan(made, target, mechanism, loss, passes, plan_calibration(budget, rows, numeric=True))
    variance = calibrate_gaussian(budget, sensitivity_squared=releases * squared)
    return BoostedPlan(made, target, GaussianMechanism(variance, squared), loss, passes)


def find_odds(more: float, rows: float, noise: float) -> tuple[float, float]:
    """The log odds of a class with their variance, from the noisy sum of residuals at even odds.

    Counts below the noise count as much as it.
    """
    there, others = (max(rows / 2 + each, 1 + noise) for each in (more, -more))
    slope = 1 / there + 1 / others
    return math.log(there / others), slope + (noise * slope) ** 2


def sum_residuals(loss: Loss, levels: Wholes, truth: Wholes, bins: NDArray[np.int32], width: int) -> Wholes:
    """The sums of residuals and then of curvatures in each bin, as exact integers.

    `bincount` adds whole numbers of at most 2 RESIDUE in 64-bit floating point: exact below 2**36 rows.
    """
    sums = [np.bincount(bins, weights=part, minlength=width + 1)[:width] for part in loss.look_up(levels, truth)]
    return np.concatenate(sums).astype(np.int64)


@dataclass(slots=True, eq=False)
class Shape:
    """The values of one column's bins, with what was released of them so far: public."""

    kernels: list[Numbers]
    steps: Wholes
    values: Numbers
    variances: Numbers
    slopes: Numbers
    """The mean release of residuals, of curvatures, and the mean of the values at which they were measured."""
    curves: Numbers
    origins: Numbers
    turns: int = 0

    @classmethod
    def of(cls, width: int, each: Feature | None, loss: Loss) -> Shape:
        """The shape of a column (or of the intercept) before its first turn."""
        values, variances, slopes, curves, origins = np.zeros((5, width))
        kernels = build_kernels(each, width, loss.roughness)
        return cls(kernels, np.zeros(width, np.int64), values, variances, slopes, curves, origins)

    @property
    def width(self) -> int:
        """How many bins there are."""
        return len(self.steps)

    def take_turn(self, released: Wholes, noise: float, loss: Loss, level: float) -> Wholes:
        """Learn from one release: a Newton step from the averages, smoothed; and by how many steps each bin moved.

        `level` is the model's, about which the shape of a class lies.
        """
        self.turns += 1
        kept = max(1, self.turns - SETTLING)
        slopes, curves = released[: self.width] / loss.residue, released[self.width :] / loss.unit
        for mean, new in ((self.slopes, slopes), (self.curves, curves), (self.origins, self.steps / SHAPE)):
            mean += (new - mean) / kept
        # Half the deviation of its own noise is the least curvature that is believed.
        curve = np.maximum(self.curves, noise / loss.unit / math.sqrt(kept) / 2)
        variance = loss.spread / curve + (noise / loss.residue) ** 2 / (kept * curve**2)
        step = self.slopes / curve
        if not loss.numeric:
            step = np.where(variance < KNOWN, bend_step(level + self.origins, step), step)
        self.values, self.variances = smooth(self.origins + step, variance, self.kernels)
        return self._move()

    def start_at(self, level: float, variance: float) -> Wholes:
        """Take a value that is known; and by how many steps each bin moved."""
        self.values, self.variances = np.full(self.width, level), np.full(self.width, variance)
        return self._move()

    def _move(self) -> Wholes:
        before = self.steps
        self.steps = np.rint(np.clip(self.values, -HIGHEST, HIGHEST) * SHAPE).astype(np.int64)
        self.values = self.steps / SHAPE
        return self.steps - before

    def find_mean(self, level: float | None = None) -> float:
        """The mean of the values over the rows, as curvatures tell how many are in each bin.

        For classes the curvature of a row is p (1-p): with the log odds that all other columns add up to on average
        (`level`) it is divided by that.
        """
        weights = np.maximum(self.curves, 0.0) + 1e-9
        if level is not None:
            chances = 1 / (1 + np.exp(-np.clip(level + self.values, -HIGHEST, HIGHEST)))
            weights /= chances * (1 - chances)
        return float(weights @ self.values / weights.sum())

    def center(self, level: float | None = None) -> float:
        """Take the mean off the values; and what it was."""
        mean = self.find_mean(level)
        self.values = self.values - mean
        return mean


def bend_step(level: Numbers, step: Numbers) -> Numbers:
    """A Newton step of log odds, taken in probabilities: a long one would go far beyond a probability that is near.

    A chance falls to no less than an eighth in one step, of a class or of the others.
    """
    chances = 1 / (1 + np.exp(-np.clip(level, -REACH, REACH)))
    moved = chances + chances * (1 - chances) * step
    moved = np.clip(moved, chances / 8, 1 - (1 - chances) / 8)
    return np.asarray(np.log(moved / chances) - np.log((1 - moved) / (1 - chances)))


WALKS = (0.1, 0.3, 1.0, 3.0, 10.0, 20.0)
"""How far a number's shape may wander from its lower bound to its upper one."""
ROUGH = (0.5, 1.5)
"""How far single bins may stand out from a walk of 1."""
EFFECTS = (0.1, 0.2, 0.4, 0.8, 1.6)
"""How far categories may lie from their mean."""


KNOWN = 1 / 16
"""Steps of log odds whose variance is below this are bent: others are mostly noise, which smoothing takes off."""
BENT = 1 / 8
"""How far clipping residuals may bend an effect, as a share of it: measured up to 0.11 for a clip of 0.7 of classes."""
NEARLY = math.log(10)
"""Kernels whose likelihood is within this (in logarithms) of the best explain nearly as well."""


def build_kernels(each: Feature | None, width: int, size: float) -> list[Numbers]:
    """The covariances that a shape may have: a vector where bins are independent, else a matrix."""
    if not isinstance(each, Bins):
        return [np.full(width, (size * effect) ** 2) for effect in (EFFECTS if each is not None else (10.0,))]
    walk = np.minimum.outer(np.arange(each.count), np.arange(each.count)) / each.count
    found = [reach**2 * walk for reach in WALKS] + [walk + reach**2 * np.eye(each.count) for reach in ROUGH]
    return [size**2 * _add_null(kernel + 0.5, width) for kernel in found]


def _add_null(kernel: Numbers, width: int) -> Numbers:
    whole = 0.5 * np.eye(width)
    whole[: len(kernel), : len(kernel)] = kernel
    return whole


def smooth(seen: Numbers, variance: Numbers, kernels: list[Numbers]) -> tuple[Numbers, Numbers]:
    """Mean and variance of a Gaussian process given what was seen, over kernels weighed by their likelihood.

    The variance is the largest under any kernel that explains what was seen nearly as well as the best: where noise
    leaves open how large effects are, small ones are not taken for granted.
    """
    found = [_condition(seen, variance, kernel) for kernel in kernels]
    fits = np.array([each[0] for each in found])
    weights = np.exp(fits - fits.max())
    weights /= weights.sum()
    means, spreads = np.array([each[1] for each in found]), np.array([each[2] for each in found])
    mean = weights @ means
    open_to = fits >= fits.max() - NEARLY
    return mean, np.asarray((spreads + (means - mean) ** 2)[open_to].max(axis=0))


def _condition(seen: Numbers, variance: Numbers, kernel: Numbers) -> tuple[float, Numbers, Numbers]:
    """Log likelihood, mean and variance under one kernel."""
    if kernel.ndim == 1:
        total = kernel + variance
        fit = -0.5 * float((seen**2 / total + np.log(total)).sum())
        return fit, kernel / total * seen, kernel * variance / total
    root = np.linalg.cholesky(kernel + np.diag(variance))
    solved = np.linalg.solve(root, np.column_stack([seen, kernel]))
    whitened, across = solved[:, 0], solved[:, 1:]
    fit = -0.5 * float(whitened @ whitened) - float(np.log(np.diag(root)).sum())
    return fit, whitened @ across, np.maximum(np.diag(kernel) - (across**2).sum(axis=0), 0.0)


COARSE = 16
"""Bins of a number for naive Bayes: each is counted by itself, without smoothing."""


@dataclass(frozen=True, slots=True)
class BayesPlan:
    """Naive Bayes from one release of counts: of each entry of each column, by value of the target.

    **Guarantee.** One release of the Gaussian mechanism; a row adds 1 to one count of each block, so it moves the
    vector by the root of the number of blocks. **Utility.** A count errs by the noise's deviation; an entry that is
    rarer than that counts nearly nothing. **Runtime.** One pass over the rows.
    """

    design: Design
    target: LabelsTarget
    mechanism: GaussianMechanism

    @property
    def event(self) -> GaussianEvent:
        """One Gaussian release."""
        return self.mechanism.event

    def fit(self, codes: Codes, truth: Wholes, entropy: Entropy = SYSTEM, progress: Progress | None = None) -> Fit:
        """Count, add noise, take logarithms."""
        found = count_classes(self.design, len(self.target.column.labels), codes, truth)
        noisy = self.mechanism.release(found, entropy)
        if progress is not None:
            progress(1.0)
        counts = np.asarray(noisy, np.float64).reshape(-1, self.design.width)
        noise = math.sqrt(float(self.mechanism.variance))
        return Fit(weigh_counts(self.design, counts, noise).ravel(), None, max(1.0, float(counts[:, 0].sum())))


def plan_bayes(design: Design, target: LabelsTarget, budget: Budget, rows: int = 1) -> BayesPlan:
    """The plan that keeps a budget, for units of at most `rows` rows."""
    made = design.cut(COARSE)
    mechanism = GaussianMechanism.within(budget, sensitivity_squared=Fraction(rows**2 * made.blocks))
    return BayesPlan(made, target, mechanism)


def count_classes(design: Design, classes: int, codes: Codes, truth: Wholes) -> Wholes:
    """How many rows of each value of the target light each entry; the intercept's entry counts them all."""
    widths = [1, *(each.size for each in design.features)]
    found = [
        np.bincount(truth * (width + 1) + codes[:, block], minlength=classes * (width + 1)).reshape(classes, width + 1)
        for block, width in enumerate(widths)
    ]
    return np.hstack([counts[:, :-1] for counts in found]).astype(np.int64).ravel()


def weigh_counts(design: Design, counts: Numbers, noise: float) -> Numbers:
    """The logarithms of what a value of the target makes an entry more frequent; and of the values' own shares.

    As many rows as the noise may have made are added to each value's in the proportions of all rows, so that a value
    which noise hides is told by nothing, whatever its counts are; and to the values themselves, alike.
    """
    held, weights = np.maximum(counts, 0.0), np.zeros_like(counts)
    raised = held[:, 0] + 1 + noise
    weights[:, 0] = np.log(raised / raised.sum())
    for block in range(1, design.blocks):
        places = np.flatnonzero(design.owners == block)
        part, added = held[:, places], 1 + noise * len(places)
        # The noise of a sum over the values; an entry that is rarer than it is taken to be as frequent as it.
        common = np.maximum(counts[:, places].sum(axis=0), 1 + noise * math.sqrt(len(counts)))
        common /= common.sum()
        shares = (part + added * common) / (part.sum(axis=1, keepdims=True) + added)
        weights[:, places] = np.log(shares / common)
    return weights
