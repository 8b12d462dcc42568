"""A small multilayer perceptron by noisy gradients of samples (DP-SGD): one hidden layer between entries and target.

In each turn every person is in the sample by a secret coin of their own, and the gradients of their rows are clipped,
summed and noised. Between a row and the noise there are only integers. Weights are whole steps, so what reaches a
hidden unit is an exact sum; its activation, and what is expected of the row, are read from tables. A row's gradient is
an outer product: the errors at the units times what reached them. Both are whole numbers, so its length is known
without writing it out, and the sum over rows is one product of matrices.

**Clipping.** The lengths of a person's rows are added up (a sum of vectors is no longer than that), and where they are
longer than the bound, the errors of all these rows are shortened alike, and rounded towards 0. What is left is measured
again, in integers, each length rounded up. Floating point only proposes how much to shorten: a person whose lengths are
not within the bound by that measure would count as nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deniable.dp.accounting import ComposedEvent, SampledGaussianEvent, SelfComposedEvent
from deniable.dp.accounting.analytic_gaussian import SMOOTHING
from deniable.dp.accounting.cost import round_up
from deniable.dp.accounting.sampled import calibrate_sampled, has_price, split_budget
from deniable.dp.mechanisms import GaussianMechanism
from deniable.dp.mechanisms.mechanism import calibrate_part
from deniable.dp.samplers import SYSTEM, Entropy, bernoulli
from deniable.errors import ParameterError
from deniable.learn.calibration import (
    CALIBRATED,
    MOST_SQUARED,
    fit_line,
    shift_classes,
    spread_rows,
    sum_classes,
    sum_missed,
)
from deniable.learn.calibration import FINE as CHANCE
from deniable.learn.features import (
    CHUNK,
    STEPS,
    ClassTarget,
    Design,
    Entries,
    Fit,
    LabelsTarget,
    Numbers,
    NumberTarget,
    Progress,
)
from deniable.learn.linear import WEIGHT, estimate_shares, share_classes
from deniable.learn.logistic import SHARPNESS, count_entries, link_logistic
from deniable.policy.budget import Amount, Budget, exact
from deniable.policy.schema import Neighboring, PrivacyUnit

Wholes = NDArray[np.int64]
Goal = ClassTarget | NumberTarget | LabelsTarget

RESIDUE = STEPS
"""Steps of a residual: RESIDUE is 1."""
LOGISTIC = link_logistic(RESIDUE)
CHANCES = link_logistic(CHANCE)
LEAST_REACH = 1 / 64
"""Predictions of a number reach at least so far from their middle."""
HIDDEN, MOST_HIDDEN = 16, 256
TURNS, MOST_TURNS = 300, 10_000
RATE, LEAST_RATE = Fraction(1, 10), Fraction(1, 10_000)
CLIP, LEAST_CLIP, MOST_CLIP = Fraction(2), Fraction(1, 1000), 64
PACE = 0.03
COUNTED = Fraction(1, 50)
"""The share of the budget that counting the rows and their entries costs."""
FINE = 1 << 14
"""Steps of the errors at units: FINE is 1. They are finer than RESIDUE, since clipping makes them small."""
HIGHEST = 1 << 8
"""Weights beyond this (in size) act as this: sums stay exact."""
BEND = 8
"""What reaches a hidden unit acts as at most this."""
TANH = np.rint(STEPS * np.tanh((np.arange(-BEND * SHARPNESS, BEND * SHARPNESS) + 0.5) / SHARPNESS)).astype(np.int64)
"""The activation in the middle of each cell."""
KEPT = 1 - 2.0**-40
MOST_ROWS = 1 << 12
"""So many rows a person may have at most."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is public and chosen before a row is seen."""

    hidden: int = HIDDEN
    turns: int = TURNS
    rate: Fraction = RATE
    clip: Fraction = CLIP
    pace: float = PACE

    @property
    def most(self) -> int:
        """How far a person moves a sum of gradients."""
        return int(self.clip * FINE * STEPS)


@dataclass(frozen=True, slots=True)
class PerceptronPlan:
    """A perceptron by `turns` noisy gradients of samples, between one release of counts and one of its level.

    **Guarantee.** One release of `counting`, as of a logistic regression; then `turns` releases of `mechanism`, each of
    a sample that has every person with chance `rate`, on a sum that a person in the sample moves by at most
    `settings.most`; then one of `last` on all rows (`calibration.py`). The sample is secret and drawn anew in every
    turn: `event` is what that costs (see `dp/accounting/sampled.py`). The weights between turns are post-processing.
    **Utility.** For the same budget all people in every turn (a rate of 1) have less noise; samples save time.
    Clipping bends what is told of single groups; over all rows together, probabilities add up to the number of each
    value, and numbers have the right mean and stretch, but for noise. **Runtime.** turns passes over samples, about 6
    hidden width operations for each row.
    """

    design: Design
    target: Goal
    mechanism: GaussianMechanism
    counting: GaussianMechanism
    settings: Settings
    sampled: SampledGaussianEvent | None
    """What the turns cost; None where everyone takes part in each."""
    unit: str | None = None
    """The column that tells persons apart, where one may have several rows."""
    last: GaussianMechanism | None = None
    """What the level is measured with at the end: see `calibration.py`. A module of torch has none."""

    @property
    def event(self) -> ComposedEvent:
        """The counts, then the turns, then the level."""
        turns = self.sampled or SelfComposedEvent(self.mechanism.event, self.settings.turns)
        level = () if self.last is None else (self.last.event,)
        return ComposedEvent((self.counting.event, turns, *level))

    @property
    def outputs(self) -> int:
        """How many numbers come out: one, or one for each value of the target."""
        return len(self.target.column.labels) if isinstance(self.target, LabelsTarget) else 1

    def fit(
        self,
        entries: Entries,
        truth: Wholes,
        entropy: Entropy = SYSTEM,
        progress: Progress | None = None,
        units: Wholes | None = None,
    ) -> Fit:
        """Count, then descend (Adam, Kingma and Ba 2015); the end is the mean of the later half of the turns.

        `units` numbers the person of each row from 0 up; without it each row is a person.
        """
        squared = self.design.blocks * STEPS**2
        rows, counts = count_entries(self.counting, squared, entries, self.design, entropy)
        persons = np.arange(len(entries)) if units is None else units
        weights = self.place_weights()
        chosen, mean, pace = self.settings, np.zeros_like(weights), Pace(self.settings.pace, len(weights))
        late = chosen.turns // 2
        for turn in range(chosen.turns):
            drawn = draw_sample(persons, chosen.rate, entropy)
            exactly = self.sum_gradients(weights, entries[drawn], truth[drawn], persons[drawn])
            noisy = self.mechanism.release(exactly, entropy)
            slope = np.asarray(noisy, np.float64) / (FINE * STEPS * rows * float(chosen.rate))
            weights = np.clip(weights - pace.take_step(slope, turn, chosen.turns), -HIGHEST, HIGHEST)
            mean += weights if turn >= late else 0.0
            if progress is not None:
                progress((turn + 1) / chosen.turns)
        shares = estimate_shares(self.design, counts)
        weights = mean / (chosen.turns - late)
        if self.last is not None:
            weights = self.calibrate(self.last, weights, entries, truth, rows, shares, entropy)
        return Fit(weights, None, rows, tuple(shares.tolist()))

    def calibrate(
        self,
        last: GaussianMechanism,
        weights: Numbers,
        entries: Entries,
        truth: Wholes,
        rows: float,
        shares: Numbers,
        entropy: Entropy = SYSTEM,
    ) -> Numbers:
        """The weights with their outputs moved (and for a number stretched) to where the truth is."""
        network = Network.read(weights, self.design.width, self.outputs)
        parts = [network.tell(entries[at : at + CHUNK]) for at in range(0, max(len(entries), 1), CHUNK)]
        outer = weights[network.inner.size :].reshape(self.outputs, -1).copy()
        if isinstance(self.target, NumberTarget):
            middle, reach = find_reach(self.design, weights, shares)
            told = np.concatenate([np.floor(part[:, 0] / WEIGHT).astype(np.int64) for part in parts])
            line = fit_line(last, sum_missed(truth, told, middle, reach), rows, middle, reach, entropy)
            outer *= line.stretch
            outer[0, 0] += line.start
        else:
            sums = sum_classes(truth, np.concatenate([expect_classes(part) for part in parts]))
            odds = compute_outputs(weights, spread_rows(self.design, shares), self.outputs)
            odds = odds if self.outputs > 1 else np.column_stack([np.zeros(len(odds)), odds])
            moved = shift_classes(last, sums, odds, entropy)
            outer[:, 0] += moved if self.outputs > 1 else moved[1] - moved[0]
        return np.concatenate([weights[: network.inner.size], outer.ravel()])

    def place_weights(self) -> Numbers:
        """The weights to start from."""
        return start_weights(self.design, self.settings.hidden, self.outputs)

    def sum_gradients(self, weights: Numbers, entries: Entries, truth: Wholes, persons: Wholes) -> Wholes:
        """The sum of clipped gradients of a sample: exact, and what noise is added to."""
        network = Network.read(weights, self.design.width, self.outputs)
        return network.sum_gradients(self.target, entries, truth, persons, self.settings.most)


def plan_perceptron(
    design: Design,
    target: Goal,
    budget: Budget,
    unit: PrivacyUnit,
    *,
    hidden: int | None = None,
    turns: int | None = None,
    rate: Amount | None = None,
    clip: Amount | None = None,
    pace: float | None = None,
    calibrated: bool = True,
) -> PerceptronPlan:
    """The plan that keeps a budget; numbers become broken lines. `calibrated`: the level is measured at the end.

    Where no rate is said, samples are drawn if they have a price: a unit that is replaced has none, since it may be in
    the sample before and after, nor has a budget without a delta, or a very small or large one. Then everyone takes
    part in every turn.
    """
    replaced = unit.neighboring is Neighboring.REPLACE
    usual = RATE if has_price(budget) and not replaced else Fraction(1)
    chosen = Settings(
        HIDDEN if hidden is None else hidden,
        TURNS if turns is None else turns,
        usual if rate is None else exact(rate, "rate"),
        CLIP if clip is None else exact(clip, "clip"),
        PACE if pace is None else float(pace),
    )
    _check_settings(chosen, unit.rows_learned)
    if chosen.rate < 1 and replaced:
        raise ParameterError(
            "samples have no price where a unit is replaced", remedy="Use a rate of 1: everyone in every turn"
        )
    made, both = design.bend(), 2 if replaced else 1
    once, squared = (both * unit.rows_learned) ** 2 * made.blocks * STEPS**2, (both * chosen.most) ** 2
    level = (both * unit.rows_learned) ** 2 * MOST_SQUARED[isinstance(target, NumberTarget)]
    sampled, left = None, 1 - COUNTED - (CALIBRATED if calibrated else 0)
    if chosen.rate < 1:
        sampled = _price_samples(budget, Fraction(squared), chosen, left, given=rate is not None)
        chosen = chosen if sampled is not None else replace(chosen, rate=Fraction(1))
    if sampled is not None:
        allowed = split_budget(budget)[0]
        counting, last = (
            GaussianMechanism(round_up(moved / (allowed * share) + SMOOTHING), Fraction(moved))
            for moved, share in ((once, COUNTED), (level, CALIBRATED))
        )
        mechanism = GaussianMechanism(sampled.variance, Fraction(squared))
    else:
        counting, last = calibrate_part(budget, once, COUNTED), calibrate_part(budget, level, CALIBRATED)
        mechanism = calibrate_part(budget, squared, left / chosen.turns)
    owner = unit.column if unit.rows_learned > 1 else None
    return PerceptronPlan(made, target, mechanism, counting, chosen, sampled, owner, last if calibrated else None)


def _price_samples(
    budget: Budget, squared: Fraction, chosen: Settings, share: Fraction, *, given: bool
) -> SampledGaussianEvent | None:
    """The turns on samples within a budget; None where they have no price in it, and no rate was given."""
    try:
        return calibrate_sampled(budget, squared, chosen.rate, chosen.turns, share)
    except ParameterError:
        if given:
            raise
        return None


def _check_settings(chosen: Settings, rows: int) -> None:
    held = {
        f"hidden is 1 to {MOST_HIDDEN}": 1 <= chosen.hidden <= MOST_HIDDEN,
        f"turns is 1 to {MOST_TURNS}": 1 <= chosen.turns <= MOST_TURNS,
        "rate is above 0 and at most 1": LEAST_RATE <= chosen.rate <= 1,
        f"clip is from 1/{LEAST_CLIP.denominator} to {MOST_CLIP}": LEAST_CLIP <= chosen.clip <= MOST_CLIP,
        "learning_rate is above 0 and at most 10": 0 < chosen.pace <= 10,
        f"a person has at most {MOST_ROWS} rows": rows <= MOST_ROWS,
    }
    for expected, met in held.items():
        if not met:
            raise ParameterError(
                "a setting of the perceptron cannot be used", expected=expected[0].upper() + expected[1:]
            )


def draw_sample(persons: Wholes, rate: Fraction, entropy: Entropy) -> NDArray[np.int64]:
    """The rows of the persons who take part: each by a coin of their own."""
    if rate == 1 or not len(persons):
        return np.arange(len(persons))
    heads = bernoulli(rate, int(persons.max()) + 1, entropy=entropy)
    return np.flatnonzero(heads[persons])


def start_weights(design: Design, hidden: int, outputs: int) -> Numbers:
    """Weights to start from, around 0 and the same every time: so large that units differ, and no row is far from 0."""
    inner, outer = hidden * design.width, outputs * (hidden + 1)
    sizes = np.repeat([1 / math.sqrt(design.blocks), 1 / math.sqrt(hidden)], [inner, outer])
    return np.asarray(sizes * scatter(inner + outer))


def scatter(count: int) -> Numbers:
    """So many numbers from -1 to 1 without a pattern (SplitMix64; Steele, Lea, Flood 2014): public, and no noise."""
    mixed = np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray((mixed >> np.uint64(11)) / 2.0**52 - 1)


class Pace:
    """Adam: steps along the mean slope, divided by the root of the mean square of what was released. Public."""

    def __init__(self, pace: float, size: int) -> None:
        self.pace, self.slope, self.square = pace, np.zeros(size), np.zeros(size)

    def take_step(self, slope: Numbers, turn: int, turns: int) -> Numbers:
        """How far to go, less toward the end."""
        self.slope = 0.9 * self.slope + 0.1 * slope
        self.square = 0.99 * self.square + 0.01 * slope**2
        first, second = self.slope / (1 - 0.9 ** (turn + 1)), self.square / (1 - 0.99 ** (turn + 1))
        return np.asarray(self.pace * (1 - turn / turns) * first / (np.sqrt(second) + 1e-12))


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """Weights as whole steps (in floating point, for products of matrices): of the hidden units, and of the outputs."""

    inner: Numbers
    """A row for each hidden unit, a column for each entry."""
    outer: Numbers
    """A row for each output; the first column is its level."""

    @classmethod
    def read(cls, weights: Numbers, width: int, outputs: int) -> Network:
        """The network that a list of weights is."""
        whole = np.rint(np.clip(weights, -HIGHEST, HIGHEST) * WEIGHT)
        hidden = count_hidden(len(weights), width, outputs)
        return cls(whole[: hidden * width].reshape(hidden, width), whole[hidden * width :].reshape(outputs, hidden + 1))

    def activate(self, entries: Numbers) -> Wholes:
        """What leaves the hidden units of each row, in steps of 1/STEPS, after a constant 1.

        What reaches a unit is an integer below 2**8 2**16 2**10 times the blocks: exact, whatever rows are beside it.
        """
        reached = np.floor(entries @ self.inner.T / (WEIGHT * STEPS / SHARPNESS))
        cells = np.clip(reached, -BEND * SHARPNESS, BEND * SHARPNESS - 1).astype(np.int64) + BEND * SHARPNESS
        return np.hstack([np.full((len(entries), 1), STEPS), TANH[cells]])

    def tell(self, entries: Entries) -> Numbers:
        """The outputs of each row, as whole numbers in steps of 1 / (WEIGHT STEPS)."""
        return self.activate(entries.astype(np.float64)).astype(np.float64) @ self.outer.T

    def sum_gradients(self, target: Goal, entries: Entries, truth: Wholes, persons: Wholes, most: int) -> Wholes:
        """The sum over rows of clipped gradients, as exact integers in steps of 1 / (FINE STEPS)."""
        total = np.zeros(self.inner.size + self.outer.size, np.int64)
        for rows in split_persons(persons):
            held = entries[rows].astype(np.float64)
            left = self.activate(held)
            errors = self.find_errors(target, left, truth[rows])
            inner, outer = clip_errors(*errors, measure_rows(held), measure_rows(left), persons[rows], most)
            parts = (inner.astype(np.float64).T @ held, outer.astype(np.float64).T @ left.astype(np.float64))
            total += np.concatenate([part.ravel() for part in parts]).astype(np.int64)
        return total

    def find_errors(self, target: Goal, left: Wholes, truth: Wholes) -> tuple[Wholes, Wholes]:
        """The errors at the hidden units and at the outputs of each row, in steps of 1/FINE."""
        residues = find_residues(target, left.astype(np.float64) @ self.outer.T, truth)
        back = (residues.astype(np.float64) @ self.outer[:, 1:]).astype(np.int64) * (STEPS**2 - left[:, 1:] ** 2)
        return back // (RESIDUE * WEIGHT * STEPS**2 // FINE), residues * (FINE // RESIDUE)


def find_reach(design: Design, weights: Numbers, shares: Numbers) -> tuple[int, int]:
    """Around which prediction of a number the others lie, and how far, in steps of 1/STEPS: from what is public.

    How far is the sum over the columns of what one value of each changes for the average row; a row beyond that counts
    as there.
    """
    owners = design.owners
    rows = np.vstack([shares, np.where(owners == owners[:, None], np.eye(design.width), shares)])
    middle, *told = compute_outputs(weights, rows, 1)[:, 0]
    away = np.abs(np.array(told) - middle)
    whole = sum(float(away[owners == block].max()) for block in range(1, design.blocks))
    return int(np.clip(middle, -1, 1) * STEPS), int(np.clip(whole, LEAST_REACH, 2) * STEPS)


def expect_classes(logits: Numbers) -> Wholes:
    """Each value's probability for each row, in steps of 1/CHANCE, from whole logits alone."""
    if logits.shape[1] > 1:
        return share_classes(logits, CHANCE)
    positive = CHANCES.look_up(logits[:, 0])
    return np.column_stack([CHANCE - positive, positive])


def compute_outputs(weights: Numbers, rows: Numbers, outputs: int) -> Numbers:
    """What comes out for rows of entries from 0 to 1: a column for each output. For whoever predicts with a model."""
    width = rows.shape[1]
    hidden = count_hidden(len(weights), width, outputs)
    inner, outer = weights[: hidden * width].reshape(hidden, width), weights[hidden * width :].reshape(outputs, -1)
    return np.asarray(outer[:, 0] + np.tanh(rows @ inner.T) @ outer[:, 1:].T)


def count_hidden(weights: int, width: int, outputs: int) -> int:
    """How many hidden units so many weights are of."""
    hidden, rest = divmod(weights - outputs, width + outputs)
    if rest or hidden < 1:
        raise ValueError
    return hidden


def find_residues(target: Goal, logits: Numbers, truth: Wholes) -> Wholes:
    """What is expected of each row less what is there, in steps of 1/RESIDUE, from whole logits alone."""
    if isinstance(target, LabelsTarget):
        found = share_classes(logits, RESIDUE)
        found[np.arange(len(truth)), truth] -= RESIDUE
        return found
    if isinstance(target, ClassTarget):
        return np.asarray(LOGISTIC.look_up(logits) - RESIDUE * truth[:, None], np.int64)
    away = np.floor(logits / WEIGHT).astype(np.int64) - truth[:, None]
    return np.asarray(np.clip(away, -RESIDUE, RESIDUE), np.int64)


def split_persons(persons: Wholes, most: int = CHUNK) -> list[NDArray[np.int64]]:
    """Rows in chunks of at most so many that hold whole persons, none of whom has more."""
    order = np.argsort(persons, kind="stable")
    cuts, ranked = [0], persons[order]
    while cuts[-1] < len(order):
        end = min(cuts[-1] + most, len(order))
        # The first row of the person at the cut; a chunk is never empty, since persons have few rows.
        cuts.append(end if end == len(order) else int(np.searchsorted(ranked, ranked[end])))
    return [order[start:end] for start, end in pairwise(cuts)]


def measure_rows(values: NDArray[Any]) -> Wholes:
    """The squared length of each row of whole numbers, whose sums are exact in floating point too."""
    return np.asarray((values * values).sum(axis=1), np.int64)


def clip_errors(
    inner: Wholes, outer: Wholes, entries: Wholes, left: Wholes, persons: Wholes, most: int
) -> tuple[Wholes, Wholes]:
    """Errors that are shortened until the lengths of each person's rows add up to at most `most`.

    `entries` and `left` are the squared lengths of what the errors are multiplied with.
    """
    own = persons - persons.min()
    square = (inner**2).sum(axis=1) * entries.astype(np.float64) + (outer**2).sum(axis=1) * left.astype(np.float64)
    lengths = np.bincount(own, weights=np.ceil(np.sqrt(square)))
    rows = np.bincount(own)
    shorter = np.minimum(1.0, np.maximum(most - rows, 0) / np.maximum(lengths, 1.0) * KEPT)[own][:, None]
    inner, outer = np.trunc(inner * shorter).astype(np.int64), np.trunc(outer * shorter).astype(np.int64)
    within = measure_lengths(inner, outer, entries, left, own) <= most
    return inner * within[own][:, None], outer * within[own][:, None]


def measure_lengths(inner: Wholes, outer: Wholes, entries: Wholes, left: Wholes, own: Wholes) -> Wholes:
    """The lengths of each person's gradients, each rounded up, added up: in integers alone."""
    square = (inner**2).sum(axis=1) * entries + (outer**2).sum(axis=1) * left
    root = np.sqrt(square.astype(np.float64)).astype(np.int64)
    root -= root * root > square
    root += root * root < square
    return np.bincount(own, weights=root.astype(np.float64)).astype(np.int64)
