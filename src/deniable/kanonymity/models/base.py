"""Equivalence classes, and what a privacy model is: a number measured on every class, a threshold, monotonicity.

A class is the rows that look alike after generalization. Two kinds of monotonicity are declared by a model, and the
search uses no other:

- *under generalization*: when all classes meet the model, so do all classes after merging some of them. Then, without
  suppression, whatever generalizes an acceptable node is acceptable.
- *under suppression*: a class that meets the model still meets it when any rows are merged into it. Then rows kept at a
  node are kept at every node above it, and what is suppressed at a node is suppressed at every node below it.

The second implies the first. A model that is not monotone under suppression may name weaker models that it implies and
that are, and may tell how many rows of a class are lost however the class is split: a kept part that is close to the
table cannot make up for the rest. The search prunes with both, and stays exact.

Models count rows, or people where they name the column that tells people apart (`person`; all rows without one are one
person). A model of shares then gives each person the same weight in the table: a row weighs the n-th part of a person
who has n rows in the whole table, whatever class it is in. So the shares of merged classes lie between those of their
parts, as with rows, and what is monotone for rows is so for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from deniable.errors import ParameterError, nearest
from deniable.kanonymity.encoding import Counts, Histograms
from deniable.kanonymity.hierarchy import Codes, Hierarchy

Shares = NDArray[np.float64]


@dataclass(frozen=True, eq=False, repr=False)
class Reference:
    """A sensitive column in the whole table: its distribution, and the groups of its values level by level.

    `groups[0]` is every value by itself; further levels come from the column's hierarchy, for distances along it.
    """

    distribution: Shares
    groups: tuple[Codes, ...]
    hierarchical: bool = False
    heaviest: int = 1
    """The largest weight of a row; 1 where rows are counted."""
    pairs: tuple[Codes, Codes] | None = None
    """Where entries are pairs of a value and a person, the value and the person of each."""
    missing: int = -1
    """The code of a missing value, if there is one."""

    @property
    def size(self) -> int:
        """How many values there are."""
        return len(self.distribution)


def build_reference(
    counts: Counts, hierarchy: Hierarchy | None = None, heaviest: int = 1, missing: int = -1
) -> Reference:
    """The reference of a column from its histogram over all rows, suppressed ones included."""
    total = max(int(counts.sum()), 1)
    own = (np.arange(len(counts), dtype=np.int32),)
    if hierarchy is None:
        return Reference(counts / total, own, heaviest=heaviest, missing=missing)
    levels = tuple(level.groups for level in hierarchy.levels)
    return Reference(counts / total, levels, hierarchical=True, heaviest=heaviest, missing=missing)


def name_weights(column: str, person: str | None) -> str:
    """The name of a column's histograms: of its rows, or of its rows weighed so that all people count the same."""
    return column if person is None else f"{column}\0weighed"


def name_pairs(column: str) -> str:
    """The name of the histograms of a column's values together with the person who has them."""
    return f"{column}\0people"


@dataclass(frozen=True, eq=False, repr=False)
class Classes:
    """Classes by number: their sizes, their histograms of sensitive columns, their people in the population."""

    sizes: Counts
    sensitive: Mapping[str, Histograms] = field(default_factory=dict)
    references: Mapping[str, Reference] = field(default_factory=dict)
    population: Counts | None = None

    def __len__(self) -> int:
        return len(self.sizes)

    def histograms(self, column: str) -> Histograms:
        """The histograms of a sensitive column, or a refusal that names those there are."""
        if column not in self.sensitive:
            raise ParameterError(
                f"Column '{column}' was not declared sensitive",
                expected=f"Sensitive columns: {', '.join(self.sensitive) or 'none'}",
                remedy=nearest(column, self.sensitive) or "Name the column among the sensitive ones",
            )
        return self.sensitive[column]

    def weigh(self, column: str, person: str | None) -> tuple[Histograms, Counts, Reference]:
        """A column's histograms in rows or in parts of people, what they sum up to in each class, and the table's."""
        name = name_weights(column, person)
        held, against = self.histograms(name), self.references[name]
        if person is None:
            return held, np.maximum(self.sizes, 1), against
        totals = np.bincount(held.owners(), weights=held.counts, minlength=len(self)).astype(np.int64)
        return held, np.maximum(totals, 1), against

    def people(self) -> Counts:
        """How many people of the population are in each class."""
        if self.population is None:
            raise ParameterError(
                "This privacy model needs the population the rows were drawn from",
                remedy="Give the population table with the same quasi-identifiers",
            )
        return self.population


def gather_histograms(histograms: Sequence[Histograms], names: Sequence[str]) -> Mapping[str, Histograms]:
    """Histograms by the names of their columns."""
    return dict(zip(names, histograms, strict=True))


Measured = NDArray[np.float64]
Verdicts = NDArray[np.bool_]

SLACK = 1e-12
"""Sums of shares are not exact in floating point; thresholds that were met exactly must still count as met."""


@runtime_checkable
class PrivacyModel(Protocol):
    """A condition on each class of a release."""

    @property
    def under_generalization(self) -> bool:
        """Whether it is monotone under generalization."""

    @property
    def under_suppression(self) -> bool:
        """Whether it is monotone under suppression."""

    def measure(self, classes: Classes) -> Measured:
        """The number that the model is about, for every class."""

    def meets(self, measured: Measured) -> Verdicts:
        """Which measured numbers satisfy the threshold."""

    def list_implied(self) -> tuple[PrivacyModel, ...]:
        """Models that follow from this one and are monotone under suppression; itself where it is."""

    def bound_losses(self, measured: Measured, classes: Classes) -> Measured:
        """For every class, how many of its rows any split of it must suppress, at least; 0 where nothing is known."""


def holds(model: PrivacyModel, classes: Classes) -> Verdicts:
    """Which classes meet a model."""
    return model.meets(model.measure(classes))


def looks_inside(model: object) -> bool:
    """Whether a model needs more of a class than its size."""
    return bool(getattr(model, "column", None) or getattr(model, "person", None))


def say_unit(person: str | None) -> str:
    """What a model counts, after its name."""
    return "" if person is None else ", counted in people"


def refuse_below(name: str, value: float, least: float) -> None:
    """Refuse a parameter below its domain."""
    if not value >= least:
        raise ParameterError(f"{name} is {value}", expected=f"{name} is at least {least}")


def refuse_not_above(name: str, value: float, bound: float) -> None:
    """Refuse a parameter that is not above a bound."""
    if not value > bound:
        raise ParameterError(f"{name} is {value}", expected=f"{name} is above {bound}")
