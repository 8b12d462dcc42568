"""Standard scores of synthetic rows, as other projects define them, so that their users can compare.

*Quality* and *diagnostic* follow the reports of SDMetrics (DataCebo, docs.sdv.dev/sdmetrics): shapes of columns by the
complement of the Kolmogorov-Smirnov statistic (numbers, dates) or of total variation (categories), trends of pairs by
the similarity of correlations or of contingency tables, validity of values, and structure. *K-marginal* is the score of
NIST's SDNist (Task, Bhagat and Howarth 2023): 1000 (1 - total variation), the mean over marginals of k columns. *TSTR*
(Esteban, Hyland and Raetsch 2017) trains on synthetic rows and tests on real ones; here gradient boosting (Friedman
2001) of shallow trees, whose Newton steps and gains are those of Chen and Guestrin (2016).

Differences, all stated in the documentation: null is left out of correlations, all marginals up to a number are taken
instead of a random few, and the boosting is our own. These compare with real rows: for the steward, not for release."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.assess.utility import Inputs, Numbers, build_comparison_domain, code_inputs, measure_variation
from deniable.attacks.membership import measure_separation
from deniable.synth.domain import Attribute, Bins, Labels, Surrogate
from deniable.synth.encode import encode_column, find_steps, to_array
from deniable.synth.marginal import Codes

EQUAL_BINS = 10
"""Numbers beside categories are cut into so many equal bins between the least and the greatest real value."""
MOST_PAIRS = 2000
"""Of more pairs than this, as many are taken at equal distances along their list."""


@dataclass(frozen=True, slots=True)
class Score:
    """A score from 0 to 1 of some columns; none where it is not defined, such as the correlation of a constant."""

    columns: tuple[str, ...]
    metric: str
    value: float | None


@dataclass(frozen=True, slots=True)
class Property:
    """A property of a report: the mean of its scores, which are listed from the worst on."""

    name: str
    value: float | None
    scores: tuple[Score, ...]


@dataclass(frozen=True, slots=True)
class Report:
    """A report: its properties, and their mean."""

    value: float | None
    properties: tuple[Property, ...]


@dataclass(frozen=True, slots=True)
class TrainedScore:
    """Gradient boosting tested on real rows that it has not seen, by what it was trained on."""

    target: str
    accuracy_on_synthetic: float
    accuracy_on_real: float
    area_on_synthetic: float | None
    """Under the ROC curve; for a target of two values alone."""
    area_on_real: float | None
    majority: float


@dataclass(frozen=True, slots=True)
class Scores:
    """All standard scores of synthetic rows beside real ones."""

    quality: Report
    diagnostic: Report
    k_marginal: dict[str, float]
    """By the number of columns, from 0 to 1000."""
    tstr: TrainedScore | None


def score_tables(real: pa.Table, made: pa.Table, attributes: Sequence[Attribute], target: str | None) -> Scores:
    """The scores of two tables with the same columns; TSTR predicts `target`, and is left out without one."""
    pairs = [_read_columns(each, real, made) for each in attributes if isinstance(each, Bins | Labels)]
    coded = [attribute for attribute in attributes if isinstance(attribute, Bins | Labels)]
    measure = build_comparison_domain(coded)
    seen, drawn = (measure.apply(_encode_columns(coded, table)) if coded else _NO_COLUMN for table in (real, made))
    marginals = {k: measure_variation(seen, drawn, measure.domain, k) for k in (2, 3)}
    ordered = frozenset(place for place, each in enumerate(coded) if isinstance(each, Bins))
    return Scores(
        _build_report(_score_shapes(pairs), _score_trends(pairs)),
        _build_report(_score_validity(pairs, real, made, attributes), _score_structure(real, made, attributes)),
        {str(k): found.score for k, found in marginals.items() if found is not None},
        _score_boosting(code_inputs(coded, real, made), ordered, target) if target is not None else None,
    )


_NO_COLUMN: Codes = np.zeros((0, 0), dtype=np.int32)


def _encode_columns(coded: Sequence[Bins | Labels], table: pa.Table) -> Codes:
    return np.stack([encode_column(each, table.column(each.name)) for each in coded])


@dataclass(frozen=True, slots=True, eq=False)
class _ColumnPair:
    """One column of both tables: whole numbers that keep the order of values, and which are null."""

    name: str
    continuous: bool
    real: NDArray[np.int64]
    real_null: NDArray[np.bool_]
    made: NDArray[np.int64]
    made_null: NDArray[np.bool_]

    @property
    def sides(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The values that are not null."""
        return self.real[~self.real_null], self.made[~self.made_null]

    def cut(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Codes from 0 on, numbers in equal bins of the real range with one bin on each side; null is the last code."""
        if not self.continuous:
            last = int(max(self.real.max(initial=0), self.made.max(initial=0))) + 1
            return np.where(self.real_null, last, self.real), np.where(self.made_null, last, self.made)
        held, last = self.sides[0], EQUAL_BINS + 2
        edges = np.linspace(held.min(), held.max(), EQUAL_BINS + 1) if held.size else np.arange(EQUAL_BINS + 1.0)
        return (
            np.where(self.real_null, last, np.digitize(self.real, edges)),
            np.where(self.made_null, last, np.digitize(self.made, edges)),
        )


def _read_columns(attribute: Bins | Labels, real: pa.Table, made: pa.Table) -> _ColumnPair:
    found: list[NDArray[np.int64] | NDArray[np.bool_]] = []
    for table in (real, made):
        column = to_array(table.column(attribute.name))
        if isinstance(attribute, Bins):
            found += find_steps(attribute, column)
        else:
            codes = encode_column(attribute, column).astype(np.int64)
            found += [codes, codes >= len(attribute.labels)]
    return _ColumnPair(attribute.name, isinstance(attribute, Bins), *found)  # type: ignore[arg-type]


def _build_report(*properties: Property) -> Report:
    return Report(_mean([each.value for each in properties]), properties)


def _build_property(name: str, scores: Sequence[Score]) -> Property:
    worst = sorted(scores, key=lambda score: (score.value is None, score.value or 0.0))
    return Property(name, _mean([score.value for score in scores]), tuple(worst))


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _score_shapes(pairs: Sequence[_ColumnPair]) -> Property:
    scores = [
        Score((each.name,), "KSComplement", complement_ks(*each.sides))
        if each.continuous
        else Score((each.name,), "TVComplement", complement_tv(*each.sides))
        for each in pairs
    ]
    return _build_property("column shapes", scores)


def complement_ks(real: NDArray[np.int64], made: NDArray[np.int64]) -> float | None:
    """One less the largest difference of the two distribution functions.

    >>> complement_ks(np.array([1, 2, 3, 4]), np.array([3, 4, 5, 6]))
    0.5
    """
    if not real.size or not made.size:
        return None
    every = np.union1d(real, made)
    below = [np.searchsorted(np.sort(side), every, side="right") / side.size for side in (real, made)]
    return 1.0 - float(np.abs(below[0] - below[1]).max())


def complement_tv(real: NDArray[np.int64], made: NDArray[np.int64]) -> float | None:
    """One less half the summed differences of shares.

    >>> complement_tv(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]))
    0.75
    """
    if not real.size or not made.size:
        return None
    last = int(max(real.max(), made.max())) + 1
    shares = [np.bincount(side, minlength=last) / side.size for side in (real, made)]
    return 1.0 - float(np.abs(shares[0] - shares[1]).sum() / 2)


def _score_trends(columns: Sequence[_ColumnPair]) -> Property:
    every = list(itertools.combinations(range(len(columns)), 2))
    taken = np.unique(np.linspace(0, len(every) - 1, min(len(every), MOST_PAIRS), dtype=int))
    cuts: dict[int, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
    scores = []
    for a, b in (every[i] for i in taken):
        first, second = columns[a], columns[b]
        names = (first.name, second.name)
        if first.continuous and second.continuous:
            scores.append(Score(names, "CorrelationSimilarity", _compare_correlations(first, second)))
            continue
        for place in (a, b):
            cuts.setdefault(place, columns[place].cut())
        size = int(max(codes.max(initial=0) for codes in cuts[b])) + 1
        joined = [one * size + other for one, other in zip(cuts[a], cuts[b], strict=True)]
        scores.append(Score(names, "ContingencySimilarity", complement_tv(joined[0], joined[1])))
    return _build_property("column pair trends", scores)


def _compare_correlations(first: _ColumnPair, second: _ColumnPair) -> float | None:
    """One less half the difference of Pearson's correlations, over rows in which both are known."""
    real = _correlate(first.real, second.real, first.real_null | second.real_null)
    made = _correlate(first.made, second.made, first.made_null | second.made_null)
    return None if real is None or made is None else 1.0 - abs(real - made) / 2


def _correlate(a: NDArray[np.int64], b: NDArray[np.int64], null: NDArray[np.bool_]) -> float | None:
    x, y = a[~null].astype(np.float64), b[~null].astype(np.float64)
    if x.size < 2 or x.std() == 0 or y.std() == 0:
        return None
    return float(np.corrcoef(x, y)[0, 1])


def _score_validity(
    pairs: Sequence[_ColumnPair], real: pa.Table, made: pa.Table, attributes: Sequence[Attribute]
) -> Property:
    scores = [
        Score((each.name,), "BoundaryAdherence" if each.continuous else "CategoryAdherence", _find_valid(each))
        for each in pairs
    ]
    scores += [
        Score((each.name,), "KeyUniqueness", _share_unique(made, each.name))
        for each in attributes
        if isinstance(each, Surrogate) and _is_key(real, each.name)
    ]
    return _build_property("data validity", scores)


def _find_valid(each: _ColumnPair) -> float | None:
    """The share of synthetic values within the real range, or among the real categories (null among them)."""
    real, made = each.sides
    if each.continuous:
        return float(((made >= real.min()) & (made <= real.max())).mean()) if real.size and made.size else None
    if not each.made.size or not each.real.size:
        return None
    known = np.isin(each.made, real) & ~each.made_null
    return float((known | (each.made_null & bool(each.real_null.any()))).mean())


def _is_key(table: pa.Table, name: str) -> bool:
    return name in table.column_names and _share_unique(table, name) == 1.0


def _share_unique(table: pa.Table, name: str) -> float | None:
    """The share of rows whose value is there and comes for the first time."""
    if not table.num_rows or name not in table.column_names:
        return None
    return float(pc.count_distinct(table.column(name), mode="only_valid").as_py() / table.num_rows)


def _score_structure(real: pa.Table, made: pa.Table, attributes: Sequence[Attribute]) -> Property:
    """The share of columns that both tables have, of all that either has."""
    described = {attribute.name for attribute in attributes}
    own, other = described.intersection(real.column_names), set(made.column_names)
    share = len(own & other) / len(own | other) if own | other else None
    return _build_property("data structure", [Score((), "TableStructure", share)])


TURNS, DEPTH, RATE, RIDGE, LEAST_WEIGHT = 60, 3, 0.2, 1.0, 1.0
MOST_RECORDS = 10_000


def _score_boosting(inputs: Inputs, ordered: frozenset[int], target: str) -> TrainedScore | None:
    """Train on half of the real records and on as many synthetic ones, test on the other half; none on a few rows."""
    real, made, domain = inputs.real, inputs.made, inputs.domain
    half, place = min(real.shape[1] // 2, MOST_RECORDS), domain.names.index(target)
    if half < 2 or not made.shape[1] or len(domain) < 2:
        return None
    lots = np.random.default_rng(0)
    order = lots.permutation(real.shape[1])
    seen, tested = real[:, order[:half]], real[:, order[half : 2 * half]]
    drawn = made[:, lots.permutation(made.shape[1])[:half]]
    others = [p for p in range(len(domain)) if p != place]
    sizes = [domain.sizes[p] for p in others]
    rising = [p in ordered for p in others]
    truth, found = tested[place], []
    for side in (drawn, seen):
        model = train_boosting(side[others], sizes, rising, side[place], domain.sizes[place])
        scores = model.score(tested[others])
        found.append((float((scores.argmax(axis=0) == truth).mean()), _measure_area(scores, truth)))
    majority = float((truth == np.bincount(seen[place]).argmax()).mean())
    return TrainedScore(target, found[0][0], found[1][0], found[0][1], found[1][1], majority)


def _measure_area(scores: Numbers, truth: Codes) -> float | None:
    if scores.shape[0] != 2 or not 0 < truth.sum() < truth.size:
        return None
    margin = scores[1] - scores[0]
    return float(measure_separation(margin[truth == 1], margin[truth == 0]).area)


@dataclass(frozen=True, slots=True, eq=False)
class _Tree:
    """A whole tree: for each node of each level its column and which codes go right; then the leaves."""

    levels: tuple[tuple[NDArray[np.int64], NDArray[np.bool_]], ...]
    leaves: Numbers

    def predict(self, codes: Codes) -> Numbers:
        """The leaf of each record."""
        at: NDArray[np.int64] = np.zeros(codes.shape[1], dtype=np.int64)
        for columns, right in self.levels:
            at = 2 * at + right[at, codes[columns[at], np.arange(at.size)]]
        found: Numbers = self.leaves[at]
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Boosting:
    """Trees for each class but the first of two, added up."""

    start: Numbers
    trees: tuple[tuple[int, _Tree], ...]

    def score(self, codes: Codes) -> Numbers:
        """The logits of each class, by record."""
        scores: Numbers = np.repeat(self.start[:, np.newaxis], codes.shape[1], axis=1)
        for place, tree in self.trees:
            scores[place] += tree.predict(codes)
        return scores


def train_boosting(codes: Codes, sizes: Sequence[int], ordered: Sequence[bool], truth: Codes, classes: int) -> Boosting:
    """Gradient boosting of coded columns: softmax loss, one tree a class and turn, one alone where there are two."""
    shares = (np.bincount(truth, minlength=classes) + 1.0) / (truth.size + classes)
    start = np.log(shares)
    scores: Numbers = np.repeat(start[:, np.newaxis], truth.size, axis=1)
    wanted, trees = np.eye(classes)[truth].T, []
    for _ in range(TURNS):
        raised = np.exp(scores - scores.max(axis=0))
        chances = raised / raised.sum(axis=0)
        for place in range(1 if classes == 2 else 0, classes):
            slope, curve = chances[place] - wanted[place], chances[place] * (1 - chances[place])
            tree = _grow_tree(codes, sizes, ordered, slope, np.maximum(curve, 1e-6))
            scores[place] += tree.predict(codes)
            trees.append((place, tree))
    return Boosting(start, tuple(trees))


def _grow_tree(codes: Codes, sizes: Sequence[int], ordered: Sequence[bool], slope: Numbers, curve: Numbers) -> _Tree:
    at: NDArray[np.int64] = np.zeros(codes.shape[1], dtype=np.int64)
    levels = []
    for level in range(DEPTH):
        nodes = 2**level
        columns, right = np.zeros(nodes, dtype=np.int64), np.zeros((nodes, max(sizes)), dtype=bool)
        best = np.zeros(nodes)
        for place, size in enumerate(sizes):
            gains, sides = _find_splits(at * size + codes[place], (nodes, size), ordered[place], slope, curve)
            better = gains > best
            columns[better], best[better] = place, gains[better]
            right[better] = False
            right[better, :size] = sides[better]
        levels.append((columns, right))
        at = 2 * at + right[at, codes[columns[at], np.arange(at.size)]]
    sums = [np.bincount(at, weights, 2**DEPTH) for weights in (slope, curve)]
    return _Tree(tuple(levels), -RATE * sums[0] / (sums[1] + RIDGE))


def _find_splits(
    cells: NDArray[np.int64], shape: tuple[int, int], ordered: bool, slope: Numbers, curve: Numbers
) -> tuple[Numbers, NDArray[np.bool_]]:
    """For each node the best split of one column: its gain, and which codes go right.

    Categories are ordered by their Newton step first; the best split of all is then between neighbors (Fisher 1958).
    """
    g, h = (np.bincount(cells, weights, shape[0] * shape[1]).reshape(shape) for weights in (slope, curve))
    order = np.tile(np.arange(shape[1]), (shape[0], 1)) if ordered else np.argsort(g / (h + RIDGE), axis=1)
    left_g, left_h = (np.take_along_axis(each, order, axis=1).cumsum(axis=1) for each in (g, h))
    all_g, all_h = left_g[:, -1:], left_h[:, -1:]
    right_g, right_h = all_g - left_g, all_h - left_h
    gains = left_g**2 / (left_h + RIDGE) + right_g**2 / (right_h + RIDGE) - all_g**2 / (all_h + RIDGE)
    gains = np.where((left_h >= LEAST_WEIGHT) & (right_h >= LEAST_WEIGHT), gains, 0.0)
    cut = gains.argmax(axis=1)
    sides = np.zeros(shape, dtype=bool)
    np.put_along_axis(sides, order, np.arange(shape[1]) > cut[:, np.newaxis], axis=1)
    best: Numbers = gains[np.arange(shape[0]), cut]
    return best, sides
