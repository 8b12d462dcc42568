"""Post-processing, at no privacy cost: counts made consistent, groups compared, a regression on randomized records.

Unbiased estimates may be negative or miss their total. The first functions give the nearest counts, each in its own
sense, that are not negative and add up; those are no longer unbiased: use the raw ones for sums and intervals. The
next test whether groups differ, and account for the noise that each respondent added.

The last explain a number by other columns of a table that was randomized record by record. Noise in a feature draws its
coefficient to zero (attenuation). Each record gives unbiased readings of its features, of their products and of their
products with the target, so that the normal equations have the expectation that the true records would give. A category
stands for its labels but the first; numbers are taken from the middle of their scale, where missing ones were put."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import NormalDist

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.errors import DataError, ParameterError
from deniable.localdp.numeric.scale import CERTAIN
from deniable.localdp.protocol import Frequencies, normal_quantile, student_quantile
from deniable.localdp.records import (
    ColumnPlan,
    NumberPlan,
    RecordPlan,
    find_middle,
    name_given_column,
    randomize,
    read_labels,
    read_numbers,
)

Floats = NDArray[np.float64]
Counts = Floats


def _check_counts(counts: Counts, total: float) -> Counts:
    array = np.asarray(counts, dtype=np.float64)
    if array.ndim != 1 or not array.size or not np.isfinite(array).all() or not (np.isfinite(total) and total >= 0):
        raise ParameterError("counts or their total are not finite", expected="Counts, and a total of 0 or more")
    return array


def project(counts: Counts, total: float) -> Counts:
    """The closest non-negative counts (least squares) that add up to the total: projection onto the simplex.

    >>> project(np.array([0.8, 0.4, -0.1]), 1.0).round(2).tolist()
    [0.7, 0.3, 0.0]
    """
    array = _check_counts(counts, total)
    ordered = np.sort(array)[::-1]
    # The largest prefix whose members all stay positive after an equal cut decides the cut (Duchi et al. 2008).
    cuts = (np.cumsum(ordered) - total) / np.arange(1, len(array) + 1)
    kept = int(np.flatnonzero(ordered - cuts >= 0)[-1])
    held: Counts = np.maximum(array - cuts[kept], 0)
    return held


def norm_sub(counts: Counts, total: float) -> Counts:
    """Negative counts to zero, the same amount off all others, again until they add up (Wang et al. 2020).

    When the total is out of reach from above the excess goes to all; this is the projection, found step by step.
    """
    array = _check_counts(counts, total).copy()
    positive = np.ones(len(array), dtype=np.bool_)
    while True:
        shift = (total - array[positive].sum()) / positive.sum()
        shifted = np.where(positive, array + shift, 0.0)
        if (shifted[positive] >= 0).all():
            return shifted
        positive &= shifted > 0
        if not positive.any():
            positive[int(np.argmax(array))] = True


def base_cut(frequencies: Frequencies, confidence: float = 0.95) -> Counts:
    """Counts that do not stand clear of the noise are set to zero; the others stay as they are.

    The threshold asks that all truly empty answers together fall below it with this confidence.
    """
    if not 0 < confidence < 1:
        raise ParameterError(f"confidence is {confidence:g}", expected="A confidence between 0 and 1, such as 0.95")
    clear = NormalDist().inv_cdf(confidence ** (1 / len(frequencies.counts))) * frequencies.errors
    return np.where(frequencies.counts > clear, frequencies.counts, 0.0)


def with_known_totals(counts: Counts, groups: NDArray[np.int64], totals: Counts) -> Counts:
    """Counts made non-negative and consistent with known totals of disjoint groups of answers.

    `groups[i]` is the group of answer i; group g adds up to totals[g], known from outside (a census, a design).
    """
    array = np.asarray(counts, dtype=np.float64).copy()
    if len(groups) != len(array) or set(np.unique(groups).tolist()) != set(range(len(totals))):
        raise ParameterError("the groups do not cover the answers", expected="One known total for each group")
    for group, total in enumerate(totals):
        members = groups == group
        array[members] = project(array[members], float(total))
    return array


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference between two groups, its standard error and the two-sided p-value of no difference."""

    value: float
    error: float
    p_value: float

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The normal confidence interval of the difference."""
        reach = normal_quantile(confidence) * self.error
        return self.value - reach, self.value + reach


def assess_differences(values: Iterable[float], variances: Iterable[float]) -> tuple[Difference, ...]:
    """Differences with their variances, each tested against none.

    The p-values are adjusted for testing all of them at once (Holm 1979).
    """
    errors = [math.sqrt(variance) for variance in variances]
    found = [(float(value), error) for value, error in zip(values, errors, strict=True)]
    raw = [math.erfc(abs(value) / error / math.sqrt(2)) if error > 0 else float(value == 0) for value, error in found]
    return tuple(Difference(*pair, p) for pair, p in zip(found, adjust_by_holm(raw), strict=True))


def vary_shares(group: Frequencies) -> NDArray[np.float64]:
    """The variances of shares in the population that a group stands for: noise and luck of the draw.

    The luck is that of a share which two more of either kind would leave (Agresti and Coull 1998): in a small group a
    share that is found to be 0 or 1 may be another.
    """
    shares = (np.clip(group.counts, 0, group.responses) + 2) / (group.responses + 4)
    return group.variances / group.responses**2 + shares * (1 - shares) / group.responses


def adjust_by_holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted so that the chance of any false alarm among them stays below the level used."""
    order = np.argsort(p_values, kind="stable")
    adjusted, running = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, (len(p_values) - rank) * p_values[int(index)]))
        adjusted[int(index)] = running
    return adjusted


def compare_distributions(tallies: Sequence[NDArray[np.int64]]) -> tuple[float, int, float]:
    """Chi-square test, on k-ary responses as given, that all groups have one distribution: statistic, degrees, p.

    Groups with the same truth have the same distribution of randomized responses, so Pearson's test holds on those
    without any correction: noise costs power, not validity. (Testing *estimated* counts this way would be wrong.)
    """
    table = np.array(tallies, dtype=np.float64)
    table = table[:, table.sum(axis=0) > 0]
    if len(table) < 2 or table.shape[1] < 2 or (table.sum(axis=1) == 0).any():
        raise DataError("the groups cannot be compared", expected="Two groups or more, each with responses")
    expected = table.sum(axis=1, keepdims=True) * table.sum(axis=0, keepdims=True) / table.sum()
    statistic = float(((table - expected) ** 2 / expected).sum())
    degrees = (table.shape[0] - 1) * (table.shape[1] - 1)
    return statistic, degrees, chi_square_tail(statistic, degrees)


def chi_square_tail(statistic: float, degrees: int) -> float:
    """The probability that a chi-square variable of so many degrees exceeds the statistic.

    Q(a, x) by recurrence on whole steps of a: Q(a + 1, x) = Q(a, x) + x^a e^-x / Gamma(a + 1), started at
    Q(1/2, x) = erfc(sqrt x) or Q(1, x) = e^-x.
    """
    half = statistic / 2
    if half <= 0:
        return 1.0
    shape, tail = (0.5, math.erfc(math.sqrt(half))) if degrees % 2 else (1.0, math.exp(-half))
    while shape < degrees / 2:
        tail += math.exp(shape * math.log(half) - half - math.lgamma(shape + 1))
        shape += 1
    return min(tail, 1.0)


MOST_TERMS = 40
"""Of a regression: the products of all pairs of terms vary together."""
SURE = 0.98
"""That noise does not hide the spread of a feature; else a few intervals would be given by chance, and be wrong."""
DRAWN = 4000
"""Records that are randomized again to learn how far noise spreads the equations."""


@dataclass(frozen=True, slots=True)
class Coefficient:
    """One coefficient of a regression and its interval; none where too few records tell the features from noise."""

    term: str
    value: float
    interval: tuple[float, float] | None


def regress(
    made: RecordPlan, table: pa.Table, target: str, features: Sequence[str], confidence: float = 0.95
) -> tuple[Coefficient, ...]:
    """The coefficients of a number on other columns, each with an interval.

    An interval holds all values of a coefficient for which the records' equations are not too far from 0, whatever the
    other coefficients are (Anderson and Rubin 1949, Fieller 1954). Where noise hides the spread of a feature no value
    is too far, and no coefficient has an interval.
    """
    column = made.column(target)
    if not isinstance(column, NumberPlan) or target in features or not features:
        raise ParameterError(f"'{target}' cannot be regressed on these", expected="A number, on one or more others")
    terms, seen = _read_equations(made, table, column, features)
    if table.num_rows <= len(terms):
        raise DataError("there are fewer records than a regression of these terms needs", remedy="Name fewer columns")
    if len(terms) > MOST_TERMS:
        expected = f"At most {MOST_TERMS}: one for each number, and one for each label of a category but the first"
        raise ParameterError(f"the regression has {len(terms)} terms", expected=expected, remedy="Name fewer columns")
    means = seen.mean(axis=0)
    if np.linalg.matrix_rank(means[:, 1:]) < len(terms):
        raise DataError("the features cannot be told apart", remedy="Name fewer of them")
    again = _randomize_again(made, table, [target, *features])
    drawn = _read_equations(made, again, column, features)[1]
    fitted = Equations(table.num_rows, means, _vary_together(seen), _vary_together(drawn))
    # numbers of the target are counted from the middle of its scale, which only the intercept notices
    shifts = [find_middle(column)] + [0.0] * (len(terms) - 1)
    told = fitted.tells_features(max(confidence, SURE))
    ends = [fitted.find_interval(place, confidence) if told else None for place in range(len(terms))]
    return tuple(
        _shift(Coefficient(*found), shift)
        for *found, shift in zip(terms, fitted.solution.tolist(), ends, shifts, strict=True)
    )


def _shift(found: Coefficient, by: float) -> Coefficient:
    ends = found.interval
    moved = None if ends is None else (ends[0] + by, ends[1] + by)
    return Coefficient(found.term, float(found.value + by), moved)


def _read_equations(
    made: RecordPlan, table: pa.Table, target: NumberPlan, features: Sequence[str]
) -> tuple[list[str], Floats]:
    """The terms, and unbiased normal equations of each record: the right side, then a column for each term."""
    ones = np.ones(table.num_rows)
    terms, readings, squares, blocks = ["intercept"], [ones], [ones], [0]
    for place, name in enumerate(features, start=1):
        names, given, squared = _read_feature(made.column(name), table)
        terms, readings, squares = terms + names, readings + given, squares + squared
        blocks += [place] * len(names)
    told = np.stack(readings, 1)
    products = told[:, :, None] * told[:, None, :]
    products[:, np.equal.outer(blocks, blocks)] = 0.0  # two labels of one column never go together
    diagonal = np.arange(len(terms))
    products[:, diagonal, diagonal] = np.stack(squares, 1)
    right = told * (read_numbers(target, table) - find_middle(target))[:, None]
    return terms, np.concatenate([right[:, :, None], products], axis=2)


def _read_feature(column: ColumnPlan, table: pa.Table) -> tuple[list[str], list[Floats], list[Floats]]:
    """The terms of a feature, and for each record an unbiased reading of each of them and of its square."""
    if isinstance(column, NumberPlan):
        scale = column.protocol.scale
        numbers = read_numbers(column, table) - find_middle(column)
        noise = column.protocol.variance(0) * float(scale.step) ** 2
        return [column.name], [numbers], [numbers**2 - noise]
    told, p, q = read_labels(column, table), float(column.protocol.p), float(column.protocol.q)
    readings = [((told == index) - q) / (p - q) for index in range(1, len(column.labels))]
    names = [f"{column.name} = {'(missing)' if label is None else label}" for label in column.labels[1:]]
    return names, readings, readings  # the square of an indicator is the indicator


def _randomize_again(made: RecordPlan, table: pa.Table, names: Sequence[str]) -> pa.Table:
    """Many records that could be the true ones, randomized as those were: released values, moved into their scales.

    Noise has a heavy tail that few records do not show; its law is known, so that many draws do. They are new in each
    run, so that the ends of an interval of few records vary by some percent from one run to the next.
    """
    rows = np.resize(np.arange(table.num_rows), DRAWN)
    if table.num_rows > DRAWN:
        rows = np.linspace(0, table.num_rows - 1, DRAWN).astype(np.int64)
    columns, likely = [column for column in made.columns if column.name in names], {}
    for column in columns:
        if isinstance(column, NumberPlan):
            scale = column.protocol.scale
            likely[column.name] = np.clip(read_numbers(column, table), float(scale.lower), float(scale.upper))[rows]
            if column.given is not None:
                given = table.column(name_given_column(column.name)).to_numpy().astype(np.bool_)[rows]
                likely[column.name] = pa.array(likely[column.name], mask=~given)
        else:
            likely[column.name] = table.column(column.name).take(pa.array(rows))
    return randomize(RecordPlan(tuple(columns), made.epsilon), pa.table(likely))


def _vary_together(equations: Floats) -> Floats:
    """The covariances of the entries of records' equations: row and column of one, row and column of the other."""
    rows, columns = equations.shape[1:]
    spread = np.cov(equations.reshape(len(equations), -1), rowvar=False)
    return np.asarray(spread.reshape(rows, columns, rows, columns))


@dataclass(frozen=True)
class Equations:
    """Normal equations as means over records, and how far one record's equations spread: seen, and by known noise."""

    records: int
    means: Floats
    seen: Floats
    known: Floats

    @cached_property
    def solution(self) -> Floats:
        """The coefficients that make the means 0."""
        return np.asarray(np.linalg.solve(self.means[:, 1:], self.means[:, 0]))

    def tells_features(self, confidence: float) -> bool:
        """Whether no coefficient could be infinite: each feature has more spread than its noise explains."""
        freedom = self.records - len(self.means)
        if freedom < 5:
            return False
        most = student_quantile(confidence, freedom) ** 2
        return all(self._measure(place, 1.0, whole=0.0) > most for place in range(len(self.means)))

    def find_interval(self, place: int, confidence: float) -> tuple[float, float] | None:
        """All values of one coefficient that the equations allow, or None where they allow any."""
        most = student_quantile(confidence, self.records - len(self.means)) ** 2
        inverse = np.linalg.inv(self.means[:, 1:])
        spread = inverse @ self._spread(np.concatenate([[1.0], -self.solution])) @ inverse.T
        error = math.sqrt(max(spread[place, place], 0.0) / self.records)
        low, high = (self._find_end(place, sign * 2 * error, most) for sign in (-1, 1))
        return None if low is None or high is None else (low, high)

    def _find_end(self, place: int, step: float, most: float) -> float | None:
        """The last value on this side that the equations allow."""
        start = inside = float(self.solution[place])
        outside = start + step
        for _ in range(30):
            if step == 0 or self._measure(place, outside) > most:
                break
            inside, outside = outside, start + 2 * (outside - start)
        else:
            return None
        for _ in range(8):
            middle = (inside + outside) / 2
            inside, outside = (inside, middle) if self._measure(place, middle) > most else (middle, outside)
        return outside

    def _measure(self, place: int, value: float, whole: float = 1.0) -> float:
        """How far from 0 the equations are, in squared errors, at the best of the other coefficients.

        Without the right side (`whole` of 0) this is what it tends to as the coefficient grows.
        """
        others = np.delete(np.arange(len(self.means)), place)
        left, weights = self.means[:, 1:], np.zeros(1 + len(self.means))
        weights[0], weights[1:] = whole, -whole * self.solution
        weights[1 + place] = -value
        target, least = whole * self.means[:, 0] - value * left[:, place], math.inf
        root = np.linalg.cholesky(self._spread(weights))
        for _ in range(3):
            sides = np.linalg.solve(root, np.column_stack([left[:, others], target]))
            weights[1 + others] = -np.linalg.lstsq(sides[:, :-1], sides[:, -1], rcond=None)[0]
            root = np.linalg.cholesky(self._spread(weights))
            off = np.linalg.solve(root, self.means @ weights)
            least = min(least, self.records * float(off @ off))
        return least

    def _spread(self, weights: Floats) -> Floats:
        """The covariance of one record's equations, at least that of known noise where few records show their own."""
        seen, known = (np.swapaxes(each @ weights, 1, 2) @ weights for each in (self.seen, self.known))
        least = 1e-12 * (np.trace(seen) + np.trace(known)) + 1e-300
        root = np.linalg.cholesky(seen + least * np.eye(len(seen)))
        half = np.linalg.solve(root, known)
        ratios, axes = np.linalg.eigh(np.linalg.solve(root, half.T))
        more = min(1.0, CERTAIN / self.records) * np.maximum(ratios - 1, 0)
        turned = root @ axes
        return np.asarray((turned * (1 + more)) @ turned.T + least * np.eye(len(seen)))
