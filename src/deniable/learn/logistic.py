"""Logistic, multinomial and Poisson regression by noisy gradient descent: every row in every turn, clipped, summed
exactly, noised.

A row's gradient is its residual (predicted less true) times its entries. Both are integers here, so a gradient is an
integer vector, its norm is bounded by integer arithmetic, and the sum over rows does not depend on their order or
company. Floating point chooses *which* integer a residual is, from the row itself and the public weights alone; it is
never what bounds it. All rows take part in each turn: for Gaussian noise that is the most accurate way to spend a
budget, and composition is then exactly that of one Gaussian (Dong, Roth, Su 2019), where sampled batches would need a
numerical accountant.

A model of all values ends as one coefficient for each value of the target and each entry of the design; the values'
probabilities are in proportion to the exponentials of their sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import ComposedEvent, SelfComposedEvent
from deniable.dp.mechanisms import GaussianMechanism
from deniable.dp.mechanisms.mechanism import calibrate_part
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.errors import ParameterError
from deniable.learn.features import (
    CHUNK,
    STEPS,
    Design,
    Entries,
    Fit,
    LabelsTarget,
    Numbers,
    NumberTarget,
    Progress,
)
from deniable.learn.linear import (
    CLASS_BENDS,
    MOST_WEIGHT,
    WEIGHT,
    Curvature,
    Wholes,
    bound_class_step,
    bound_step,
    damp_curvature,
    refine_steps,
    share_classes,
    solve_class_step,
    solve_step,
    sum_class_step,
    sum_step,
)
from deniable.policy.budget import Amount, Budget, exact
from deniable.policy.schema import ColumnType

RESIDUE = 1 << 14
"""Steps of a residual in the descent: RESIDUE is 1."""
FINEST = 1 << 18
"""Steps of a residual in the last step, where noise leaves room for them: what is rare is then not rounded away."""
SHARPNESS = 1 << 10
"""Cells of a logit: the sigmoid is read from a table with so many cells for each unit."""
REACH = 16
"""Logits beyond this act as this."""
LOUD = 1 / 8
"""Damping beyond this, as a share of the rows, tells that noise is what limits the descent."""
TURNS, POISSON_TURNS, MOST_TURNS = 20, 30, 10_000
MOST_TIMES = 4.0
"""Expectations act as at most so many times the mean."""
BENDING = 1 / 4
"""The part of a residual's bound that the curvature of a row has in the last step: products are many."""
WHOLE = 1 << 24
"""Entries up to this many (128 MB) are kept as floating point; of more, a chunk at a time is converted in each turn."""
MOST_SOLVED = 1000
"""Coefficients of a multinomial regression, over all values, up to which last steps are made."""

Table = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class LogisticPlan:
    """Logistic regression by `turns` noisy gradients, after one turn that counts the rows and their entries.

    **Guarantee.** turns + 1 releases of the Gaussian mechanism, each on a vector that one row moves by at most the
    square root of `most_squared` (see `bound_residuals` and `count_entries`), and a unit by so much for each of its
    rows. The weights between turns are post-processing; composition is adaptive. **Utility.** The counts tell how
    strongly the loss may curve at most in each direction, so that steps are long where it is flat (see `Curvature`);
    they are damped until noise alone moves the logit of a row by about 1/2. Newton steps, each from a release of its
    own (`last`), end the descent and tell errors. **Runtime.** turns passes over the rows, 2 width operations each,
    and one of width^2 for each Newton step."""

    design: Design
    mechanism: GaussianMechanism
    most_squared: int
    turns: int = TURNS
    penalty: float = 1e-5
    adapts: bool = False
    """Whether residuals are clipped to half where noise is what limits the descent."""
    last: GaussianMechanism | None = None
    """The noise of each Newton step, where there are any."""
    fine: int = RESIDUE
    """The steps of a residual in them."""

    @property
    def event(self) -> ComposedEvent | SelfComposedEvent:
        """The same Gaussian in every turn, and once for the counts; then that of the last steps."""
        turns = SelfComposedEvent(self.mechanism.event, self.turns + 1)
        return turns if self.last is None else ComposedEvent((turns, SelfComposedEvent(self.last.event, NEWTON)))

    def fit(
        self, entries: Entries, truth: NDArray[np.int64], entropy: Entropy = SYSTEM, progress: Progress | None = None
    ) -> Fit:
        """Count, descend with momentum (Nesterov 1983), and make the last steps."""
        rows, counts = count_entries(
            self.mechanism,
            self.most_squared,
            entries,
            self.design,
            entropy,
            lambda scale: scale * truth.sum(keepdims=True),
        )
        (share,) = clip_shares(counts[-1:], self.measure_noise(rows, RESIDUE))
        start = math.log(share / (1 - share))
        link, fine = (replace(link_logistic(each), start=start) for each in (RESIDUE, self.fine))
        weights, bend = self._descend(entries, RESIDUE * truth, link, (rows, counts[:-1]), entropy, progress)
        return self._end(entries, self.fine * truth, fine, weights, bend, rows, entropy)

    def measure_noise(self, rows: float, residue: int) -> float:
        """The deviation of noise in a share of so many rows."""
        return math.sqrt(float(self.mechanism.variance)) / (residue * STEPS * rows)

    def _end(
        self,
        entries: Entries,
        wanted: NDArray[np.int64],
        link: Link,
        weights: Numbers,
        bend: Curvature,
        rows: float,
        entropy: Entropy,
    ) -> Fit:
        """The Newton steps from where the descent ended, with errors; without them, where it ended."""
        if self.last is None:
            return Fit(bend.center(weights), None, rows)
        unit, begun, added = link.residue * STEPS**2, self._begin(link), self.penalty * rows
        noise = (math.sqrt(float(self.last.variance)) / unit, link.times)
        for _ in range(NEWTON):
            noisy = self.last.release(sum_last(entries, wanted, weights, link), entropy).astype(np.float64) / unit
            noisy[: -self.design.width] *= link.times
            moved, effects = weights - begun, bend.center(weights)
            step, spread = solve_step(self.design, noisy, noise, moved, effects, added, link.sampled)
            weights = weights + step
        centered = np.column_stack([bend.center(each) for each in np.eye(self.design.width)])
        found, variance = centered @ weights, np.diag(centered @ spread @ centered.T)
        return Fit(found, np.sqrt(np.maximum(variance, 0.0) + bend.vary_center(found, rows)), rows)

    def _begin(self, link: Link) -> Numbers:
        start = np.zeros(self.design.width)
        start[0] = link.start
        return start

    def _descend(
        self,
        entries: Entries,
        wanted: NDArray[np.int64],
        link: Link,
        counted: tuple[float, Numbers],
        entropy: Entropy,
        progress: Progress | None,
    ) -> tuple[Numbers, Curvature]:
        """The weights at the end, and the curvature that tells how to center them."""
        rows, counts = counted
        sharper, bend = self.sharpen(rows, counts, link)
        most = bound_residuals(entries, self.most_squared // sharper**2)
        held = entries.astype(np.float64) if entries.size <= WHOLE else entries
        start = self._begin(link)

        def slope_at(weights: Numbers) -> Numbers:
            noisy = self.mechanism.release(sharper * sum_gradients(held, wanted, weights, most, link), entropy)
            return np.asarray(noisy / (sharper * link.residue * STEPS * rows) + self.penalty * (weights - start))

        return descend(slope_at, bend.divide, start, self.turns, progress), bend

    def sharpen(self, rows: float, counts: Numbers, link: Link) -> tuple[int, Curvature]:
        """How many times a gradient counts that is clipped to as small a part, and the curvature it is divided by.

        Its bound stays, and noise weighs less: twice where noise limits the descent; else clipping only costs.
        """
        plain = self.damp(rows, counts, link, 1)
        if not self.adapts or plain.damping <= LOUD:
            return 1, plain
        return 2, self.damp(rows, counts, link, 2)

    def damp(self, rows: float, counts: Numbers, link: Link, sharper: int) -> Curvature:
        """The curvature, damped by what noise may hide in the counts, and for the noise to come."""
        noise = self.measure_noise(rows, link.residue)
        clip = math.sqrt(self.most_squared / self.design.blocks) / (link.residue * STEPS)
        least = self.penalty / link.bend + (self.design.blocks - 1) * noise / clip
        return damp_curvature(self.design, counts, link.bend, least, noise / sharper, self.turns)


@dataclass(frozen=True, slots=True)
class PoissonPlan(LogisticPlan):
    """Poisson regression of a number from 0 up: the logarithm of the expected number is a sum of effects.

    **Guarantee.** As of `LogisticPlan`; the first release counts the sum of the target too (see `count_entries`).
    Numbers are shares of their upper bound. **Utility.** Expectations act as at most MOST_TIMES the noisy mean, which
    bounds how the loss can curve. Errors take a number's variance as its expectation. **Runtime.** That of
    `LogisticPlan`.
    """

    upper: float = 1.0
    """The upper bound of the target."""
    steps: int = STEPS
    """The target runs from -steps to steps."""

    def fit(
        self, entries: Entries, truth: NDArray[np.int64], entropy: Entropy = SYSTEM, progress: Progress | None = None
    ) -> Fit:
        """Count and sum, then descend from the mean."""
        rows, counts = count_entries(
            self.mechanism, self.most_squared, entries, self.design, entropy,
            lambda scale: self.share(truth, scale).sum(keepdims=True),
        )  # fmt: skip
        mean = float(np.clip(counts[-1], 1 / RESIDUE, 1.0))
        link, wanted = link_poisson(mean, self.upper), self.share(truth, RESIDUE)
        weights, bend = self._descend(entries, wanted, link, (rows, counts[:-1]), entropy, progress)
        link, wanted = link_poisson(mean, self.upper, self.fine), self.share(truth, self.fine)
        fit = self._end(entries, wanted, link, weights, bend, rows, entropy)
        fit.coefficients[0] += math.log(self.upper)
        return fit

    def share(self, truth: Wholes, steps: int) -> Wholes:
        """Targets as shares of the upper bound, in steps from 0 to so many, rounded."""
        return ((truth + self.steps) * steps + self.steps) // (2 * self.steps)


def link_poisson(mean: float, upper: float, residue: int = RESIDUE) -> Link:
    """What is expected, as a share of the upper bound: at most MOST_TIMES the mean.

    The loss curves by as much, and a number's variance is its expectation: as shares, less by the upper bound. Bends
    are told in steps that have BENDING of 1 for the most that can be expected.
    """
    most = min(1.0, MOST_TIMES * mean)
    table = _tabulate(np.exp, residue, most)
    bends = np.rint(table * (BENDING / most)).astype(np.int64)
    bends = np.minimum(bends, int(residue * BENDING))
    return Link(residue, table, MOST_TIMES * mean, math.log(mean), bends, most / BENDING, 1 / upper)


def count_entries(
    mechanism: GaussianMechanism,
    most_squared: int,
    entries: NDArray[Any],
    design: Design,
    entropy: Entropy,
    target: Callable[[int], Wholes] | None = None,
) -> tuple[float, Numbers]:
    """The number of rows with noise, at least 1, and the share of them that each entry has, and then the target.

    A row's entries have squared length of at most blocks STEPS^2, and count as often as the bound allows. So do sums of
    the target, which one row moves by at most the scale that they are asked for in.
    """
    weight = math.isqrt(most_squared // ((design.blocks + (target is not None)) * STEPS**2))
    sums = weight * entries.sum(axis=0, dtype=np.int64)
    if target is not None:
        sums = np.append(sums, target(weight * STEPS))
    noisy = mechanism.release(sums, entropy) / (weight * STEPS)
    rows = max(1.0, float(noisy[0]))
    return rows, np.asarray(noisy / rows, np.float64)


def clip_shares(shares: Numbers, noise: float) -> Numbers:
    """Noisy shares, of which none is nearer to 0 or 1 than twice the noise may bring it."""
    least = min(0.5, max(2 * noise, 1 / RESIDUE))
    return np.clip(shares, least, 1 - least)


def descend(
    slope_at: Callable[[Numbers], Numbers],
    divide: Callable[[Numbers], Numbers],
    start: Numbers,
    turns: int,
    progress: Progress | None,
) -> Numbers:
    """Weights after so many steps along a slope divided by its curvature, with Nesterov's momentum."""
    weights = ahead = start
    for turn in range(turns):
        moved = ahead - divide(slope_at(ahead))
        ahead = moved + turn / (turn + 3) * (moved - weights)
        weights = moved
        if progress is not None:
            progress((turn + 1) / turns)
    return weights


def plan_logistic(
    design: Design,
    budget: Budget,
    rows: int = 1,
    turns: int | None = None,
    clip: Amount | None = None,
    penalty: float = 1e-5,
) -> LogisticPlan:
    """The plan that keeps a budget, for units of at most `rows` rows; numbers become broken lines.

    `clip` is the share of the largest possible gradient to which each row's is clipped; where it is not said, the noisy
    counts decide (see `LogisticPlan.sharpen`).
    """
    turns = TURNS if turns is None else turns
    made, mechanism, most = _plan_turns(design, budget, rows, turns, clip, RESIDUE, 1 - LAST)

    def calibrate(fine: int) -> GaussianMechanism:
        link = link_logistic(fine)  # the residual of a positive row, and of another one, with their bend
        residues = np.concatenate([fine - link.table, -link.table])
        return calibrate_part(budget, bound_step(made, rows, np.tile(link.bends, 2), residues), LAST / NEWTON)

    fine, last = refine_steps(calibrate, STEPS, FINEST)
    return LogisticPlan(made, mechanism, most, turns, penalty, clip is None, last, fine)


def plan_poisson(
    design: Design,
    target: NumberTarget,
    budget: Budget,
    rows: int = 1,
    turns: int | None = None,
    clip: Amount | None = None,
    penalty: float = 1e-5,
) -> PoissonPlan:
    """The plan of a Poisson regression; see `plan_logistic`. The target runs from 0 to an upper bound."""
    column = target.column
    if column.type not in (ColumnType.INTEGER, ColumnType.DECIMAL) or column.lower != 0 or column.upper <= 0:
        raise ParameterError(
            f"the poisson method cannot predict '{target.name}', whose lower bound is not 0",
            expected="A number of events: bounds from 0 up",
            remedy="Declare between: [0, most], or use linear or boosted",
        )
    turns = POISSON_TURNS if turns is None else turns
    made, mechanism, most = _plan_turns(design, budget, rows, turns, clip, RESIDUE, 1 - LAST)

    def calibrate(fine: int) -> GaussianMechanism:
        return calibrate_part(
            budget, bound_step(made, rows, np.array([int(fine * BENDING)]), np.array([fine])), LAST / NEWTON
        )

    fine, last = refine_steps(calibrate, STEPS, FINEST)
    shown = (float(column.upper), STEPS << 10)
    return PoissonPlan(made, mechanism, most, turns, penalty, clip is None, last, fine, *shown)


def _plan_turns(
    design: Design,
    budget: Budget,
    rows: int,
    turns: int,
    clip: Amount | None,
    residue: int,
    part: Fraction = Fraction(1),
) -> tuple[Design, GaussianMechanism, int]:
    """The bent design, the noise of one turn, and how far a row moves it, squared.

    The turns and the counts together are one Gaussian whose squared sensitivity is that of one turn times their number.
    """
    share = exact(1 if clip is None else clip, "clip")
    if not Fraction(1, STEPS) <= share <= 1 or not 1 <= turns <= MOST_TURNS:
        raise ParameterError(
            "clip or turns cannot be used", expected=f"clip is 1/{STEPS} to 1, turns is 1 to {MOST_TURNS}"
        )
    made = design.bend()
    most = int(share**2 * made.blocks * (residue * STEPS) ** 2)
    return made, calibrate_part(budget, rows**2 * most, part / (turns + 1)), most


def bound_residuals(entries: Entries, most_squared: int) -> NDArray[np.int64]:
    """The largest whole residual of each row whose gradient keeps the bound: cap^2 |x|^2 <= most_squared, in integers.

    The intercept makes |x|^2 at least STEPS^2, so that the quotient is below 2**53, and its float root off by one at
    most, which is mended.
    """
    norms = np.einsum("ij,ij->i", entries, entries, dtype=np.int64)
    allowed = most_squared // norms
    root = np.sqrt(allowed.astype(np.float64)).astype(np.int64)
    return np.asarray(root - (root * root > allowed), np.int64)


def clip_residuals(residuals: NDArray[np.int64], most: NDArray[np.int64]) -> NDArray[np.int64]:
    """Residuals within their caps."""
    return np.clip(residuals, -most, most)


@dataclass(frozen=True, slots=True, eq=False)
class Link:
    """What is expected of a row, as a whole number read from a table by the cell of its logit."""

    residue: int
    """The steps of an expectation of 1."""
    table: Table
    bend: float
    """The most that the loss of one row curves."""
    start: float
    """The intercept from which the descent starts."""
    bends: Table
    """How strongly the loss of a row curves, by the cell of its logit, in steps of 1/residue."""
    times: float = 1.0
    """By how much less it curves than `bends` says: of what is small, more steps are told apart."""
    sampled: float = 1.0
    """The variance of a row's residual, as a share of how strongly its loss curves."""

    def look_up(self, logits: Numbers) -> NDArray[np.int64]:
        """The expectation for logits in steps of 1 / (WEIGHT STEPS).

        The sizes in a block add up to STEPS at most, so a logit is an integer below 2**30 * 2**10 * blocks: exact below
        8,192 columns. The table makes a residual a function of that integer, where a library's exponential may round
        differently for the last rows of an array than for the first.
        """
        return np.asarray(self.table[find_cells(logits)], np.int64)


def find_cells(logits: Numbers) -> NDArray[np.int64]:
    """The cell of a table for each logit, in steps of 1 / (WEIGHT STEPS)."""
    cell = np.floor(np.clip(logits / (WEIGHT * STEPS / SHARPNESS), -REACH * SHARPNESS, REACH * SHARPNESS - 1))
    return np.asarray(cell.astype(np.int64) + REACH * SHARPNESS)


def sum_gradients(
    entries: Entries | Numbers, wanted: NDArray[np.int64], weights: Numbers, most: NDArray[np.int64], link: Link
) -> NDArray[np.int64]:
    """The sum over rows of clipped residual times entries, as exact integers in steps of 1 / (residue STEPS)."""
    whole = np.rint(np.clip(weights, -MOST_WEIGHT, MOST_WEIGHT) * WEIGHT)
    total = np.zeros(entries.shape[1], np.int64)
    for start in range(0, len(entries), CHUNK):
        rows = slice(start, start + CHUNK)
        held = entries[rows].astype(np.float64, copy=False)
        residuals = link.look_up(held @ whole) - wanted[rows]
        total += (clip_residuals(residuals, most[rows]).astype(np.float64) @ held).astype(np.int64)
    return total


def _tabulate(expect: Callable[[Numbers], Numbers], residue: int, most: float = 1.0) -> Table:
    """What is expected in the middle of each cell of a logit, at most so much."""
    middle = (np.arange(-REACH * SHARPNESS, REACH * SHARPNESS) + 0.5) / SHARPNESS
    return np.asarray(np.rint(residue * np.minimum(expect(middle), most)), np.int64)


@lru_cache(maxsize=16)
def link_logistic(residue: int) -> Link:
    """The probability of the positive value, in such steps."""
    table = _tabulate(lambda middle: 1 / (1 + np.exp(-middle)), residue)
    bends = np.rint(table * (residue - table) / residue).astype(np.int64)
    return Link(residue, table, 1 / 4, 0.0, bends)


LAST, NEWTON = Fraction(3, 20), 2
"""The share of the budget that the last steps have, and how many they are: the second mends what the first missed."""


def sum_last(entries: Entries, wanted: NDArray[np.int64], weights: Numbers, link: Link) -> NDArray[Any]:
    """What a last step is computed from: curvature and residuals at these weights, as exact integers."""
    whole, cells = np.rint(np.clip(weights, -MOST_WEIGHT, MOST_WEIGHT) * WEIGHT), np.zeros(len(entries), np.int64)
    for start in range(0, len(entries), CHUNK):
        rows = slice(start, start + CHUNK)
        cells[rows] = find_cells(entries[rows].astype(np.float64) @ whole)
    return sum_step(entries, link.bends[cells], wanted - link.table[cells])


@dataclass(frozen=True, slots=True)
class MultinomialPlan:
    """Multinomial logistic regression by `turns` noisy gradients, after one turn that counts the rows and entries.

    **Guarantee.** turns + 1 releases of the Gaussian mechanism, each on a vector that one row moves by at most the
    square root of `most_squared`: see `sum_class_gradients`. Then those of the last steps: see `bound_class_step`.
    **Utility.** As of `LogisticPlan`: steps are damped where noise would move a row's logits by more than about 1/2,
    and the Newton steps tell errors. Coefficients add up to 0 over the values. **Runtime.** turns passes over the rows,
    2 width operations each for every value of the target, and some of width^2 for every two values.
    """

    design: Design
    target: LabelsTarget
    mechanism: GaussianMechanism
    turns: int = TURNS
    penalty: float = 1e-5
    last: GaussianMechanism | None = None
    """The noise of each Newton step, where there are any."""
    fine: int = RESIDUE
    """The steps of a residual in them."""

    @property
    def most_squared(self) -> int:
        """How far a row moves a gradient, squared: residuals of at most 2 RESIDUE^2, entries of blocks STEPS^2."""
        return 2 * self.design.blocks * (RESIDUE * STEPS) ** 2

    @property
    def event(self) -> ComposedEvent | SelfComposedEvent:
        """The same Gaussian in every turn, and once for the count; then that of the last steps."""
        descent = SelfComposedEvent(self.mechanism.event, self.turns + 1)
        return descent if self.last is None else ComposedEvent((descent, SelfComposedEvent(self.last.event, NEWTON)))

    def fit(self, entries: Entries, truth: Wholes, entropy: Entropy = SYSTEM, progress: Progress | None = None) -> Fit:
        """Count, descend with momentum (Nesterov 1983), and make the last steps."""
        classes = len(self.target.column.labels)
        rows, counts = count_entries(
            self.mechanism, self.most_squared, entries, self.design, entropy,
            lambda scale: scale * np.bincount(truth, minlength=classes),
        )  # fmt: skip
        noise = math.sqrt(float(self.mechanism.variance)) / (RESIDUE * STEPS * rows)
        start = np.zeros((classes, self.design.width))
        start[:, 0] = np.log(clip_shares(counts[-classes:], noise))
        start[:, 0] -= start[:, 0].mean()
        least = 2 * self.penalty + (self.design.blocks - 1) * noise
        bend = damp_curvature(self.design, counts[:-classes], 1 / 2, least, noise, self.turns)

        def slope_at(weights: Numbers) -> Numbers:
            noisy = self.mechanism.release(sum_class_gradients(entries, truth, weights).ravel(), entropy)
            return np.reshape(noisy, weights.shape) / (RESIDUE * STEPS * rows) + self.penalty * (weights - start)

        def divide(slope: Numbers) -> Numbers:
            return np.array([bend.divide(each) for each in slope])

        weights = descend(slope_at, divide, start, self.turns, progress)
        return self._end(entries, truth, (weights - weights.mean(axis=0), start), bend, rows, entropy)

    def _end(
        self,
        entries: Entries,
        truth: Wholes,
        ended: tuple[Numbers, Numbers],
        bend: Curvature,
        rows: float,
        entropy: Entropy,
    ) -> Fit:
        """The Newton steps from where the descent ended, with errors; without them, where it ended."""
        weights, start = ended
        centered = np.column_stack([bend.center(each) for each in np.eye(self.design.width)])
        if self.last is None:
            return Fit((weights @ centered.T).ravel(), None, rows)
        unit = self.fine * STEPS**2
        noise = (math.sqrt(float(self.last.variance)) / unit, 1 / CLASS_BENDS)
        for _ in range(NEWTON):
            sums = sum_class_step(entries, truth, weights, self.fine)
            noisy, effects = self.last.release(sums, entropy).astype(np.float64) / unit, weights @ centered.T
            step, spread = solve_class_step(self.design, noisy, noise, weights - start, effects, self.penalty * rows)
            weights = weights + step
        found = weights @ centered.T
        variances = [np.diag(centered @ each @ centered.T) + bend.vary_center(own, rows)
                     for each, own in zip(spread, found, strict=True)]  # fmt: skip
        return Fit(found.ravel(), np.sqrt(np.maximum(variances, 0.0)).ravel(), rows)


def plan_multinomial(
    design: Design, target: LabelsTarget, budget: Budget, rows: int = 1, turns: int | None = None, penalty: float = 1e-5
) -> MultinomialPlan:
    """The plan that keeps a budget, for units of at most `rows` rows; with errors up to MOST_SOLVED coefficients."""
    turns = TURNS if turns is None else turns
    if not 1 <= turns <= MOST_TURNS:
        raise ParameterError("turns cannot be used", expected=f"1 to {MOST_TURNS}")
    made = design.bend()
    squared = rows**2 * 2 * made.blocks * (RESIDUE * STEPS) ** 2
    solved = len(target.column.labels) * made.width <= MOST_SOLVED
    mechanism = calibrate_part(budget, squared, (1 - LAST if solved else Fraction(1)) / (turns + 1))
    if not solved:
        return MultinomialPlan(made, target, mechanism, turns, penalty)
    fine, last = refine_steps(
        lambda to: calibrate_part(budget, bound_class_step(made, rows, to), LAST / NEWTON), STEPS, FINEST
    )
    return MultinomialPlan(made, target, mechanism, turns, penalty, last, fine)


def sum_class_gradients(entries: Entries, truth: Wholes, weights: Numbers) -> Wholes:
    """The sum over rows of residuals times entries, by value of the target, in steps of 1 / (RESIDUE STEPS).

    A row's probabilities are rounded down, so they add up to at most RESIDUE: with p that of its own value, its
    residuals are RESIDUE - p there and at most as much in sum elsewhere. Their squares add up to 2 RESIDUE^2 at most.
    """
    whole = np.rint(np.clip(weights, -MOST_WEIGHT, MOST_WEIGHT) * WEIGHT)
    total = np.zeros(weights.shape, np.int64)
    for start in range(0, len(entries), CHUNK):
        held = entries[start : start + CHUNK].astype(np.float64)
        residuals = share_classes(held @ whole.T, RESIDUE)
        own = truth[start : start + CHUNK]
        residuals[np.arange(len(own)), own] -= RESIDUE
        total += (residuals.astype(np.float64).T @ held).astype(np.int64)
    return total
