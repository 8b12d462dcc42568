"""Disclosure risk of a table as it stands: three intruders, uniqueness, and what each column is to blame for.

- The *prosecutor* knows that the person is in the table: a row in a class of n is found with chance 1/n.
- The *journalist* does not, and looks in a population register: a row is found with chance 1/N, N the people of the
  population in its class. Where no population is given the prosecutor's risk stands in, which is never lower.
- The *marketer* links as many rows as possible: the expected share of correct links.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deniable.errors import ParameterError
from deniable.kanonymity.hierarchy import Codes
from deniable.kanonymity.tuples import Counts, distinct_rows

AT_RISK = 0.2
"""A row found with a chance above this counts as being at risk; 0.2 is a class of fewer than five."""


@dataclass(frozen=True, slots=True)
class Risk:
    """The risk of one intruder: the highest and the mean chance of a correct link, and the share of rows at risk."""

    highest: float
    mean: float
    at_risk: float


@dataclass(frozen=True, slots=True)
class Risks:
    """All three intruders, and how many rows are unique."""

    prosecutor: Risk
    journalist: Risk
    marketer: float
    sample_uniqueness: float
    threshold: float = AT_RISK


def risks(sizes: Counts, people: Counts | None = None, threshold: float = AT_RISK) -> Risks:
    """The risks of classes of these sizes; `people` are those of the population in each class."""
    if not 0 < threshold <= 1:
        raise ParameterError(f"The threshold of risk is {threshold}", expected="A chance above 0 and at most 1")
    there = sizes > 0
    sizes = sizes[there]
    population = sizes if people is None else np.maximum(people[there], sizes)
    rows = max(int(sizes.sum()), 1)
    return Risks(
        _risk(sizes, sizes, threshold),
        _risk(sizes, population, threshold),
        float((sizes / population).sum() / rows) if len(sizes) else 0.0,
        float((sizes == 1).sum() / rows),
        threshold,
    )


def _risk(sizes: Counts, among: Counts, threshold: float) -> Risk:
    rows = max(int(sizes.sum()), 1)
    if not len(sizes):
        return Risk(0.0, 0.0, 0.0)
    exposed = sizes[1.0 / among > threshold + 1e-12].sum() / rows
    return Risk(float(1.0 / among.min()), float((sizes / among).sum() / rows), float(exposed))


def row_risks(class_of: NDArray[np.int64]) -> NDArray[np.float64]:
    """The prosecutor's chance for every row."""
    sizes = np.bincount(class_of) if len(class_of) else np.zeros(0, np.int64)
    return np.asarray(1.0 / sizes[class_of], np.float64)


@dataclass(frozen=True, slots=True)
class Blame:
    """What a column adds: the share of rows at risk, and unique, with all columns but this one."""

    column: str
    at_risk_without: float
    unique_without: float


def blame(names: Sequence[str], columns: Sequence[Codes], sizes: Sequence[int]) -> tuple[Blame, ...]:
    """For every column, the risk that is left without it; the lower, the more the column is to blame."""
    found = []
    for q, name in enumerate(names):
        rest = [c for i, c in enumerate(columns) if i != q] or [np.zeros(len(columns[q]), np.int32)]
        spans = [s for i, s in enumerate(sizes) if i != q] or [1]
        _, _, number = distinct_rows(rest, spans)
        without = risks(np.bincount(number))
        found.append(Blame(name, without.prosecutor.at_risk, without.sample_uniqueness))
    return tuple(sorted(found, key=lambda b: (b.at_risk_without, b.unique_without)))


@dataclass(frozen=True, slots=True)
class Uniqueness:
    """Estimates of the share of rows that are unique in the population, from a sample of a known share of it."""

    zayatz: float
    pitman: float


def population_uniqueness(sizes: Counts, fraction: float) -> Uniqueness:
    """Two classical estimators; where they disagree, believe the higher."""
    if not 0 < fraction <= 1:
        raise ParameterError(f"The sampling fraction is {fraction}", expected="A share above 0 and at most 1")
    sizes = sizes[sizes > 0]
    rows = int(sizes.sum())
    if rows == 0:
        return Uniqueness(0.0, 0.0)
    return Uniqueness(_zayatz(sizes, rows, fraction), _pitman(sizes, rows, fraction))


def _zayatz(sizes: Counts, rows: int, fraction: float) -> float:
    """Zayatz (1991): class sizes of the population taken as those of the sample; Bayes for 'unique there' given 'here'.

    A class of j people leaves one in the sample with probability j f (1 - f)^(j - 1).
    """
    values, counts = np.unique(sizes, return_counts=True)
    alone = counts * values * fraction * (1.0 - fraction) ** (values - 1)
    singles = float(counts[values == 1].sum())
    return singles * fraction / float(alone.sum()) * singles / rows if singles else 0.0


def _pitman(sizes: Counts, rows: int, fraction: float) -> float:
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
