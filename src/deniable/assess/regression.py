"""Regressions on synthetic and on real rows side by side: coefficients, their intervals, and how far these overlap.

An ordinary least-squares regression with intervals that hold under unequal spread (White 1980, HC1). Overlap is that of
Karr et al. (2006): the mean share of both intervals that their intersection takes; 1 is agreement, 0 is none. These are
comparisons with real rows: for the steward, not for release.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.policy.schema import ColumnType
from deniable.synth.attributes import Attribute, Bins, Labels

Numbers = NDArray[np.float64]
NORMAL_95 = 1.959964
MOST_LABELS = 12
"""A column with more values is not put into a regression unless it is asked for."""
DAYS_A_YEAR = 365.25
MOST_TERMS = 200


@dataclass(frozen=True, slots=True)
class Estimate:
    """A coefficient with its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Term:
    """A term of the regression on both tables; `real` lies in the synthetic interval where `covered`."""

    name: str
    real: Estimate
    synthetic: Estimate

    @property
    def overlap(self) -> float:
        """The mean share of both intervals that lies in both."""
        shared = min(self.real.high, self.synthetic.high) - max(self.real.low, self.synthetic.low)
        widths = [max(each.high - each.low, 1e-300) for each in (self.real, self.synthetic)]
        return float(np.mean([min(max(shared, 0.0) / width, 1.0) for width in widths]))

    @property
    def covered(self) -> bool:
        """Whether the real coefficient lies in the synthetic interval."""
        return self.synthetic.low <= self.real.value <= self.synthetic.high

    @property
    def same_sign(self) -> bool:
        """Whether both say that the effect goes the same way."""
        return (self.real.value > 0) == (self.synthetic.value > 0)


@dataclass(frozen=True, slots=True)
class Regression:
    """What explains a column, on both tables."""

    target: str
    terms: tuple[Term, ...]

    @property
    def overlap(self) -> float:
        """The mean overlap of the terms' intervals."""
        return float(np.mean([term.overlap for term in self.terms]))

    @property
    def covered(self) -> float:
        """The share of terms whose real coefficient lies in the synthetic interval."""
        return float(np.mean([term.covered for term in self.terms]))


def usual(attributes: Sequence[Attribute]) -> tuple[str, tuple[str, ...]] | None:
    """The last number, explained by all other numbers and by columns of few values; None without a number."""
    numbers = [
        a.name for a in attributes if isinstance(a, Bins) and a.type not in (ColumnType.DATE, ColumnType.DATETIME)
    ]
    few = [a.name for a in attributes if isinstance(a, Labels) and len(a.labels) <= MOST_LABELS]
    explaining = tuple(name for name in (*few, *numbers[:-1]))
    return (numbers[-1], explaining) if numbers and explaining else None


def regressed(
    real: pa.Table, made: pa.Table, attributes: Sequence[Attribute], target: str, by: Sequence[str]
) -> Regression | None:
    """Both tables' regressions; None where one has too few rows, or where columns say the same."""
    known = {attribute.name: attribute for attribute in attributes}
    designs = [_design(rows, known, target, by) for rows in (real, made)]
    fits = [_fit(wanted, columns) for wanted, columns, _ in designs]
    names = designs[0][2]
    if any(fit is None for fit in fits) or len(names) > MOST_TERMS:
        return None
    first, second = (fit for fit in fits if fit is not None)
    terms = [Term(name, a, b) for name, a, b in zip(names, first, second, strict=True)]
    return Regression(target, tuple(terms[1:]))


def _design(
    rows: pa.Table, known: dict[str, Attribute], target: str, by: Sequence[str]
) -> tuple[Numbers, Numbers, list[str]]:
    """The target and the terms, a constant first, of the rows that have them all."""
    parts = [(name, *_terms(known[name], rows.column(name))) for name in (target, *by)]
    kept = np.logical_and.reduce([~np.isnan(values).any(axis=1) for _, values, _ in parts])
    names = ["constant", *(label for _, _, labels in parts[1:] for label in labels)]
    columns = np.concatenate([np.ones((rows.num_rows, 1)), *(values for _, values, _ in parts[1:])], axis=1)
    return parts[0][1][kept, -1], columns[kept], names


def _terms(attribute: Attribute, column: pa.ChunkedArray) -> tuple[Numbers, list[str]]:
    """Numbers as they are, dates in years, and one column for each value but the first; null is not a number."""
    if isinstance(attribute, Bins):
        return _number(attribute, column)[:, np.newaxis], [attribute.name]
    assert isinstance(attribute, Labels)
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    encoded = values.dictionary_encode()
    place = {label: code for code, label in enumerate(attribute.labels)}
    table = np.array([place.get(value, np.nan) for value in encoded.dictionary.to_pylist()] + [np.nan])
    codes = table[encoded.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False).astype(np.int64)]
    shown = range(1, len(attribute.labels))
    dummies = np.where(np.isnan(codes)[:, np.newaxis], np.nan, codes[:, np.newaxis] == np.array(shown, dtype=float))
    return dummies, [f"{attribute.name} = {attribute.labels[code]}" for code in shown]


def _number(attribute: Bins, column: pa.ChunkedArray) -> Numbers:
    if attribute.type is ColumnType.DATE:
        days = column.cast(pa.date32()).cast(pa.int32()).cast(pa.float64()).to_numpy(zero_copy_only=False)
        return np.asarray(days / DAYS_A_YEAR)
    if attribute.type is ColumnType.DATETIME:
        seconds = column.cast(pa.timestamp("s"), safe=False).cast(pa.int64()).cast(pa.float64())
        return np.asarray(seconds.to_numpy(zero_copy_only=False) / 86_400 / DAYS_A_YEAR)
    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False))


def _fit(wanted: Numbers, columns: Numbers) -> list[Estimate] | None:
    """Least squares with the sandwich of White; a term that is constant in a table has no interval to speak of."""
    records, terms = columns.shape
    if records <= terms + 1:
        return None
    # Scaled columns keep the products well conditioned; a constant column has no spread and stays as it is.
    scale = np.where((spread := columns.std(axis=0)) > 0, spread, 1.0)
    scaled = columns / scale
    inverse = np.linalg.pinv(scaled.T @ scaled)
    coefficients = inverse @ scaled.T @ wanted
    left = wanted - scaled @ coefficients
    meat = (scaled * left[:, np.newaxis] ** 2).T @ scaled * (records / (records - terms))
    errors = np.sqrt(np.maximum(np.diag(inverse @ meat @ inverse), 0.0)) / scale
    values = coefficients / scale
    return [
        Estimate(float(v), float(v - NORMAL_95 * e), float(v + NORMAL_95 * e))
        for v, e in zip(values, errors, strict=True)
    ]
