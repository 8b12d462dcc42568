"""Disclosure risk of a table as it stands: four intruders, uniqueness, and its k, l and t.

- The *prosecutor* knows that the person is in the table: a row in a class of n is found with chance 1/n.
- The *journalist* does not, and looks in a population register: a row is found with chance 1/N, N the people of the
  population in its class. Where no population is given the prosecutor's risk stands in, which is never lower.
- The *marketer* links as many rows as possible: the expected share of correct links.
- The *Bayesian* intruder holds a prior, that is who the target may be and how likely, and names one row: the best guess
  among the f that fit. The score is the chance of being right: 1/f where all who fit are equally likely.

`examine` measures a table that anybody hands in. Nothing is known of how it was made. Cells are compared as they are: a
missing value is a cell like any other, and so is a star. Of secrets spellings of one text are one value, and a missing
one makes no class more diverse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from deniable.errors import ParameterError
from deniable.kanonymity.encoding import (
    NAME_THEM,
    Counts,
    Histograms,
    build_histograms,
    column_of,
    factorize,
    number_rows,
    unify_spellings,
)
from deniable.kanonymity.hierarchy import Codes
from deniable.kanonymity.models import BetaLikeness, Closeness, DeltaDisclosure, DistinctDiversity, EntropyDiversity
from deniable.kanonymity.models.base import Classes, Measured, Reference, build_reference

AT_RISK = 0.2
"""A row found with a chance above this counts as being at risk; 0.2 is a class of fewer than five."""


@dataclass(frozen=True, slots=True)
class Risk:
    """The risk of one intruder: the highest and the mean chance of a correct link, and the share of rows at risk."""

    highest: float
    mean: float
    at_risk: float


@dataclass(frozen=True, slots=True)
class BayesianRisk:
    """The expected score of one guess under a stated prior, over all targets and for the target easiest to find."""

    score: float
    highest: float
    prior: str


@dataclass(frozen=True, slots=True)
class Risks:
    """All four intruders, and how many rows are unique."""

    prosecutor: Risk
    journalist: Risk
    marketer: float
    bayesian: BayesianRisk
    sample_uniqueness: float
    threshold: float = AT_RISK


def measure_risks(sizes: Counts, people: Counts | None = None, threshold: float = AT_RISK) -> Risks:
    """The risks of classes of these sizes; `people` are those of the population in each class."""
    if not 0 < threshold <= 1:
        raise ParameterError(f"The threshold of risk is {threshold}", expected="A chance above 0 and at most 1")
    there = sizes > 0
    sizes = sizes[there]
    population = sizes if people is None else np.maximum(people[there], sizes)
    rows = max(int(sizes.sum()), 1)
    # A target of the population may also be somebody whose class is not in the table: a guess then scores nothing.
    everybody = rows if people is None else int(people[~there].sum() + population.sum())
    among = "table" if people is None else "population"
    return Risks(
        _measure_intruder(sizes, sizes, threshold),
        _measure_intruder(sizes, population, threshold),
        float((sizes / population).sum() / rows) if len(sizes) else 0.0,
        _score_alike(population, everybody, f"everybody in the {among} alike"),
        float((sizes == 1).sum() / rows),
        threshold,
    )


def _measure_intruder(sizes: Counts, among: Counts, threshold: float) -> Risk:
    rows = max(int(sizes.sum()), 1)
    if not len(sizes):
        return Risk(0.0, 0.0, 0.0)
    exposed = sizes[1.0 / among > threshold + 1e-12].sum() / rows
    return Risk(float(1.0 / among.min()), float((sizes / among).sum() / rows), float(exposed))


def _score_alike(population: Counts, everybody: int, prior: str) -> BayesianRisk:
    """All targets equally likely: of the f who fit one is named and is right with 1/f, so every class scores once."""
    if not len(population):
        return BayesianRisk(0.0, 0.0, prior)
    return BayesianRisk(len(population) / everybody, float(1 / population.min()), prior)


def score_guess(class_of: Counts, weights: Counts | Measured) -> BayesianRisk:
    """The Bayesian intruder whose prior has a weight for each row: the likeliest row of a class is named.

    >>> score_guess(np.array([0, 0, 0, 0]), np.array([1, 1, 1, 1])).score
    0.25
    >>> score_guess(np.array([0, 0, 1]), np.array([3, 1, 4])).score
    0.875
    """
    total = float(weights.sum())
    if not total > 0 or (weights < 0).any():
        raise ParameterError("The prior has no weight, or a negative one", expected="Weights of 0 or more, not all 0")
    best, mass = np.zeros(int(class_of.max()) + 1), np.bincount(class_of, weights=weights)
    np.maximum.at(best, class_of, weights)
    highest = float((best[mass > 0] / mass[mass > 0]).max())
    return BayesianRisk(float(best.sum() / total), highest, "as weighted")


@dataclass(frozen=True, slots=True)
class Blame:
    """What a column adds: the share of rows at risk, and unique, with all columns but this one."""

    column: str
    at_risk_without: float
    unique_without: float


def blame_columns(names: Sequence[str], columns: Sequence[Codes], sizes: Sequence[int]) -> tuple[Blame, ...]:
    """For every column, the risk that is left without it; the lower, the more the column is to blame."""
    found = []
    for q, name in enumerate(names):
        rest = [c for i, c in enumerate(columns) if i != q] or [np.zeros(len(columns[q]), np.int32)]
        spans = [s for i, s in enumerate(sizes) if i != q] or [1]
        _, _, number = number_rows(rest, spans)
        without = measure_risks(np.bincount(number))
        found.append(Blame(name, without.prosecutor.at_risk, without.sample_uniqueness))
    return tuple(sorted(found, key=lambda b: (b.at_risk_without, b.unique_without)))


@dataclass(frozen=True, slots=True)
class Uniqueness:
    """Estimates of the share of rows that are unique in the population, from a sample of a known share of it."""

    zayatz: float
    pitman: float


def estimate_uniqueness(sizes: Counts, fraction: float) -> Uniqueness:
    """Two classical estimators; where they disagree, believe the higher."""
    if not 0 < fraction <= 1:
        raise ParameterError(f"The sampling fraction is {fraction}", expected="A share above 0 and at most 1")
    sizes = sizes[sizes > 0]
    rows = int(sizes.sum())
    if rows == 0:
        return Uniqueness(0.0, 0.0)
    return Uniqueness(_estimate_zayatz(sizes, rows, fraction), _estimate_pitman(sizes, rows, fraction))


def _estimate_zayatz(sizes: Counts, rows: int, fraction: float) -> float:
    """Zayatz (1991): class sizes of the population taken as those of the sample; Bayes for 'unique there' given 'here'.

    A class of j people leaves one in the sample with probability j f (1 - f)^(j - 1).
    """
    values, counts = np.unique(sizes, return_counts=True)
    alone = counts * values * fraction * (1.0 - fraction) ** (values - 1)
    singles = float(counts[values == 1].sum())
    return singles * fraction / float(alone.sum()) * singles / rows if singles else 0.0


def _estimate_pitman(sizes: Counts, rows: int, fraction: float) -> float:
    """Pitman's model with Hoshino's (2001) closed-form estimates; uniques of a population of N are G N^alpha."""
    singles, doubles, classes = int((sizes == 1).sum()), int((sizes == 2).sum()), len(sizes)
    if singles == 0:
        return 0.0
    if doubles == 0 or fraction == 1:
        return singles / rows
    c = singles * (singles - 1) / doubles
    below = 2 * singles * classes + singles * c - rows * c
    theta = (rows * classes * c - singles * (rows - 1) * (2 * classes + c)) / below if below else 0.0
    alpha = (theta * (singles - rows) + (rows - 1) * singles) / (rows * classes)
    if not (0 < alpha < 1 and theta > -alpha):
        return singles / rows * fraction
    people = rows / fraction
    uniques = math.exp(math.lgamma(theta + 1) - math.lgamma(theta + alpha) + alpha * math.log(people))
    return min(uniques / people, singles / rows)


@dataclass(frozen=True, slots=True)
class SensitiveFindings:
    """A sensitive column in the weakest class: the fewest values, the largest distances, and who is certain.

    `certain` is the share of rows in classes with one value only: their value is known to whoever finds the class.
    `ordered_t` is there for numbers and dates.
    """

    column: str
    distinct_l: int
    entropy_l: float
    t: float
    ordered_t: float | None
    beta: float
    delta: float
    certain: float


@dataclass(frozen=True, slots=True)
class Findings:
    """What a table holds."""

    rows: int
    classes: int
    k: int
    mean_class: float
    smallest_classes: int
    sensitive: tuple[SensitiveFindings, ...]
    risks: Risks
    blame: tuple[Blame, ...]
    uniqueness: Uniqueness | None = None


def examine(
    table: pa.Table,
    quasi_identifiers: tuple[str, ...],
    sensitive: tuple[str, ...] = (),
    *,
    fraction: float | None = None,
    threshold: float = 0.2,
    blames: bool = True,
) -> Findings:
    """Measure a table; `fraction` is the share of the population in it, for estimates of uniqueness there."""
    if not quasi_identifiers:
        raise ParameterError("No quasi-identifier is named", remedy=NAME_THEM)
    coded = [_encode_cells(table, name) for name in quasi_identifiers]
    columns, spans = [codes for codes, _ in coded], [span for _, span in coded]
    many, _, class_of = number_rows(columns, spans)
    sizes = np.bincount(class_of, minlength=many).astype(np.int64)
    smallest = int(sizes.min(initial=table.num_rows)) if many else 0
    return Findings(
        table.num_rows,
        many,
        smallest,
        table.num_rows / many if many else 0.0,
        int((sizes == smallest).sum()),
        tuple(_measure_sensitive(table, name, class_of, sizes) for name in sensitive) if many else (),
        measure_risks(sizes, threshold=threshold),
        blame_columns(quasi_identifiers, columns, spans) if blames and many else (),
        None if fraction is None else estimate_uniqueness(sizes, fraction),
    )


def _encode_cells(table: pa.Table, name: str) -> tuple[Codes, int]:
    values, positions = factorize(column_of(table, name))
    return np.where(positions < 0, len(values), positions).astype(np.int32), len(values) + 1


def _measure_sensitive(table: pa.Table, name: str, class_of: Counts, sizes: Counts) -> SensitiveFindings:
    values, positions = factorize(unify_spellings(column_of(table, name)))
    ranked = is_ordered(values.type)
    if ranked:
        place = np.empty(len(values), np.int64)
        place[np.argsort(values.to_numpy(zero_copy_only=False), kind="stable")] = np.arange(len(values))
        positions = np.append(place, -1)[positions].astype(np.int32)
    codes = np.where(positions < 0, len(values), positions).astype(np.int32)
    size = len(values) + 1
    held = build_histograms(class_of, len(sizes), codes, size)
    against = build_reference(held.total(), missing=len(values))
    classes = Classes(sizes, {name: held}, {name: against})
    distinct_values = DistinctDiversity(name, 1).measure(classes)
    return SensitiveFindings(
        name,
        int(distinct_values.min()),
        float(EntropyDiversity(name, 1).measure(classes).min()),
        float(Closeness(name, 1.0).measure(classes).max()),
        float(_measure_ordered(held, sizes, against).max()) if ranked else None,
        float(max(BetaLikeness(name, 1.0).measure(classes).max(), 0.0)),
        float(DeltaDisclosure(name, 1.0).measure(classes).max()),
        float(sizes[distinct_values == 1].sum() / sizes.sum()),
    )


def is_ordered(kind: pa.DataType) -> bool:
    """Whether values of a type have an order to measure closeness along."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind))


def _measure_ordered(held: Histograms, sizes: Counts, against: Reference) -> Measured:
    """Earth mover's distance along the order, without a compiled kernel: between entries the flow changes linearly.

    With S(v) the table's cumulative share and P the class's, P is constant between the class's own values, so the sum
    of |P - S| over a run of values is read off prefix sums of S, split where S crosses P.
    """
    there = np.flatnonzero(against.distribution > 0)
    place = np.zeros(against.size, np.int64)
    place[there] = np.arange(len(there))
    table = np.cumsum(against.distribution[there])
    sums = np.concatenate([[0.0], np.cumsum(table)])
    owner = np.repeat(np.arange(len(sizes)), np.diff(held.starts))
    order = np.lexsort((held.values, owner))
    owner, at = owner[order], place[held.values[order]]
    share = np.cumsum(held.counts[order]) - np.concatenate([[0], np.cumsum(sizes)])[owner]
    level = share / sizes[owner]
    last = np.append(owner[1:] != owner[:-1], True)
    first = np.append(True, owner[1:] != owner[:-1])
    until = np.where(last, len(there), np.append(at[1:], 0))
    cross = np.clip(np.searchsorted(table, level), at, until)
    gap = level * (2 * cross - at - until) + sums[at] + sums[until] - 2 * sums[cross]
    total = np.bincount(owner, weights=gap, minlength=len(sizes)) + np.bincount(owner[first], weights=sums[at[first]])
    return np.asarray(total / max(len(there) - 1, 1), np.float64)
