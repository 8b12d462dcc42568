"""Utility: how far a synthetic table is from the real one, in marginals, in a classifier and in a regression.

Marginals are of one to three columns, over one coarse domain for both tables. The classifier is trained on either and
tested on real records. The regression is ordinary least squares with intervals that hold under unequal spread (White
1980, HC1); overlap is that of Karr et al. (2006): the mean share of both intervals that their intersection takes; 1 is
agreement, 0 is none. These are comparisons with real rows: for the steward, not for release."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from deniable.attacks.membership import measure_separation
from deniable.engines.base import Engine, quote
from deniable.errors import ParameterError
from deniable.policy.schema import ColumnType
from deniable.synth.bins import CollapsedDomain
from deniable.synth.domain import Attribute, Bins, Clique, Coded, Domain, Labels
from deniable.synth.encode import encode_column, find_steps, to_array
from deniable.synth.marginal import Codes, count

MOST_CLIQUES = 2000
"""Of more cliques than this, as many are taken at equal distances along their list."""
MOST_RECORDS = 20_000
STRETCHES = 16
TURNS = 300
PENALTY = 1e-4

Numbers = NDArray[np.float64]


def build_comparison_domain(attributes: Sequence[Coded]) -> CollapsedDomain:
    """What tables are compared over: every listed value, and numbers and dates in up to 16 equal stretches.

    It follows from the policy and not from what a model joined: a model that joins everything must not look perfect.
    """
    maps = tuple(_stretch_bins(a) if isinstance(a, Bins) else np.arange(a.size, dtype=np.int32) for a in attributes)
    sizes = tuple(int(mapping.max()) + 1 for mapping in maps)
    return CollapsedDomain(Domain(tuple(a.name for a in attributes), sizes), maps)


def _stretch_bins(attribute: Bins) -> NDArray[np.int32]:
    """Each bin to the stretch in which it begins, without gaps; null stays apart."""
    begins = np.array(attribute.cuts[:-1], dtype=np.int64) * STRETCHES // attribute.steps
    codes = np.unique(begins, return_inverse=True)[1].astype(np.int32)
    return np.append(codes, codes[-1] + 1).astype(np.int32) if attribute.nullable else codes


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """Two tables as classifiers see them: codes of both, and over what."""

    real: Codes
    made: Codes
    domain: Domain


def code_inputs(attributes: Sequence[Coded], real: pa.Table, made: pa.Table) -> Inputs:
    """Listed values as they are, and numbers and dates in stretches of about as many real rows each.

    A number that a sixteenth of the real rows have, such as an exact zero, is a stretch of its own: in equal parts of
    the declared range what it says would be hidden. Cuts follow real rows: for the steward, not for release.
    """
    parts = [_code_input(each, real.column(each.name), made.column(each.name)) for each in attributes]
    sizes = tuple(size for *_, size in parts)
    seen, drawn = (np.stack([part[side] for part in parts]).astype(np.int32) for side in (0, 1))
    return Inputs(seen, drawn, Domain(tuple(each.name for each in attributes), sizes))


def _code_input(attribute: Coded, *columns: pa.ChunkedArray) -> tuple[Codes, Codes, int]:
    if not isinstance(attribute, Bins):
        first, second = (encode_column(attribute, column) for column in columns)
        return first, second, attribute.size
    (real, real_null), (made, made_null) = (find_steps(attribute, to_array(column)) for column in columns)
    ends = _cut_evenly(real[~real_null])
    missing = ends.size + 1 if attribute.nullable else 0
    seen = np.where(real_null, missing, np.searchsorted(ends, real, side="right"))
    drawn = np.where(made_null, missing, np.searchsorted(ends, made, side="right"))
    return seen.astype(np.int32), drawn.astype(np.int32), ends.size + 1 + attribute.nullable


def _cut_evenly(steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """The steps at which stretches begin, but for the first."""
    values, counts = np.unique(steps, return_counts=True)
    often = counts * STRETCHES >= steps.size
    frequent, others = values[often], np.repeat(values[~often], counts[~often])
    places = np.arange(1, STRETCHES) * others.size // STRETCHES
    begins = np.concatenate([frequent, frequent + 1, others[places] if others.size else others])
    return np.unique(begins).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Variation:
    """Total variation over all cliques of so many columns, the worst of them first."""

    way: int
    cliques: int
    mean: float
    worst: tuple[tuple[tuple[str, ...], float], ...]

    @property
    def score(self) -> float:
        """The k-marginal score of NIST's SDNist: 1000 is agreement everywhere, 0 none."""
        return 1000 * (1 - self.mean)


@dataclass(frozen=True, slots=True)
class Classified:
    """How often a logistic regression is right on real records it has not seen, by what it was trained on."""

    target: str
    on_real: float
    on_synthetic: float
    majority: float
    """How often the most frequent value would have been right."""


def measure_distance(real: Codes, made: Codes, domain: Domain, clique: Clique) -> float:
    """Total variation of one marginal: half the summed differences of shares; 1 where one table has no rows."""
    if not real.shape[1] or not made.shape[1]:
        return 0.0 if real.shape[1] == made.shape[1] else 1.0
    shares = [count(codes, domain, clique) / codes.shape[1] for codes in (real, made)]
    return float(np.abs(shares[0] - shares[1]).sum() / 2)


def measure_variation(real: Codes, made: Codes, domain: Domain, way: int, worst: int = 5) -> Variation | None:
    """All marginals of so many columns; none where the table has fewer."""
    cliques: list[Clique] = list(itertools.combinations(range(len(domain)), way))
    taken = [
        cliques[i] for i in np.unique(np.linspace(0, len(cliques) - 1, min(len(cliques), MOST_CLIQUES), dtype=int))
    ]
    if not taken:
        return None
    found = {clique: measure_distance(real, made, domain, clique) for clique in taken}
    farthest = sorted(found, key=lambda clique: -found[clique])[:worst]
    named = tuple((tuple(domain.names[place] for place in clique), found[clique]) for clique in farthest)
    return Variation(way, len(taken), float(np.mean(list(found.values()))), named)


@dataclass(frozen=True, slots=True)
class Workload:
    """Total variation of marginals that somebody asked for, each and on average."""

    mean: float
    marginals: tuple[tuple[tuple[str, ...], float], ...]


def measure_workload(real: Codes, made: Codes, domain: Domain, cliques: Sequence[Clique]) -> Workload | None:
    """The error of a given list of marginals; none where none is given."""
    found = [(tuple(domain.names[place] for place in c), measure_distance(real, made, domain, c)) for c in cliques]
    return Workload(float(np.mean([far for _, far in found])), tuple(found)) if found else None


def choose_target(domain: Domain, among: Sequence[str] | None = None) -> str | None:
    """The last column (of those named) with two to ten values."""
    sized = zip(domain.names, domain.sizes, strict=True)
    fit = [name for name, size in sized if 2 <= size <= 10 and (among is None or name in among)]
    return fit[-1] if fit else None


def compare_classifiers(real: Codes, made: Codes, domain: Domain, target: str, seed: int = 0) -> Classified | None:
    """Train on half of the real records and on as many synthetic ones, test on the other half; none on a few rows."""
    half = min(real.shape[1] // 2, MOST_RECORDS)
    if half < 2 or not made.shape[1]:
        return None
    generator = np.random.default_rng(seed)
    order = generator.permutation(real.shape[1])
    seen, tested = real[:, order[:half]], real[:, order[half : 2 * half]]
    drawn = made[:, generator.permutation(made.shape[1])[:half]]
    place = domain.names.index(target)
    rates = [_score_weights(_train_softmax(codes, domain, place), tested, domain, place) for codes in (seen, drawn)]
    frequent = int(np.bincount(seen[place]).argmax())
    return Classified(target, rates[0], rates[1], float((tested[place] == frequent).mean()))


def _encode_features(codes: Codes, domain: Domain, target: int) -> Numbers:
    """One column for each value of each column but the target, and a constant one."""
    columns = [np.ones((codes.shape[1], 1))]
    columns += [np.eye(size)[codes[place]] for place, size in enumerate(domain.sizes) if place != target]
    return np.concatenate(columns, axis=1)


def _train_softmax(codes: Codes, domain: Domain, target: int) -> Numbers:
    """Weights of a softmax regression, by gradient descent with momentum (Nesterov 1983).

    With one-hot features a record's features have squared norm of at most the number of columns, so the gradient of
    the mean loss changes at most half as fast: that bound is the step.
    """
    features, wanted = _encode_features(codes, domain, target), np.eye(domain.sizes[target])[codes[target]]
    step = 2.0 / len(domain)
    weights = ahead = np.zeros((features.shape[1], wanted.shape[1]))
    for turn in range(TURNS):
        gradient = features.T @ (_softmax(features @ ahead) - wanted) / len(features) + PENALTY * ahead
        moved = ahead - step * gradient
        ahead = moved + turn / (turn + 3) * (moved - weights)
        weights = moved
    return weights


def _softmax(scores: Numbers) -> Numbers:
    raised = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Numbers = raised / raised.sum(axis=1, keepdims=True)
    return shares


def _score_weights(weights: Numbers, codes: Codes, domain: Domain, target: int) -> float:
    guessed = (_encode_features(codes, domain, target) @ weights).argmax(axis=1)
    return float((guessed == codes[target]).mean())


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


def choose_regression(attributes: Sequence[Attribute]) -> tuple[str, tuple[str, ...]] | None:
    """The last number, explained by all other numbers and by columns of few values; None without a number."""
    numbers = [
        a.name for a in attributes if isinstance(a, Bins) and a.type not in (ColumnType.DATE, ColumnType.DATETIME)
    ]
    few = [a.name for a in attributes if isinstance(a, Labels) and len(a.labels) <= MOST_LABELS]
    explaining = tuple(name for name in (*few, *numbers[:-1]))
    return (numbers[-1], explaining) if numbers and explaining else None


def compare_regressions(
    real: pa.Table, made: pa.Table, attributes: Sequence[Attribute], target: str, by: Sequence[str]
) -> Regression | None:
    """Both tables' regressions; None where one has too few rows. A term that a table does not determine is left out:
    where columns say the same, or where nobody has the value to which it is compared."""
    known = {attribute.name: attribute for attribute in attributes}
    designs = [_design(rows, known, target, by) for rows in (real, made)]
    fits = [_fit(wanted, columns) for wanted, columns, _ in designs]
    names = designs[0][2]
    if any(fit is None for fit in fits) or len(names) > MOST_TERMS:
        return None
    first, second = (fit for fit in fits if fit is not None)
    told = list(zip(names, first, second, strict=True))[1:]
    terms = tuple(Term(name, a, b) for name, a, b in told if a is not None and b is not None)
    return Regression(target, terms) if terms else None


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


def _fit(wanted: Numbers, columns: Numbers) -> list[Estimate | None] | None:
    """Least squares with the sandwich of White; None for a term that the columns do not determine."""
    records, terms = columns.shape
    if records <= terms + 1:
        return None
    # Scaled columns keep the products well conditioned; a constant column has no spread and stays as it is.
    scale = np.where((spread := columns.std(axis=0)) > 0, spread, 1.0)
    scaled = columns / scale
    inverse = np.linalg.pinv(scaled.T @ scaled, hermitian=True)
    determined = np.abs(np.diag(inverse @ (scaled.T @ scaled)) - 1) < 1e-6
    coefficients = inverse @ scaled.T @ wanted
    left = wanted - scaled @ coefficients
    meat = (scaled * left[:, np.newaxis] ** 2).T @ scaled * (records / (records - terms))
    errors = np.sqrt(np.maximum(np.diag(inverse @ meat @ inverse), 0.0)) / scale
    values = coefficients / scale
    return [
        Estimate(float(v), float(v - NORMAL_95 * e), float(v + NORMAL_95 * e)) if known else None
        for v, e, known in zip(values, errors, determined, strict=True)
    ]


Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Classification:
    """Accuracy at one half, the area under the ROC curve (none where one class is absent), and the majority's share."""

    rows: int
    accuracy: float
    area: float | None
    majority: float
    """The accuracy of always saying what is most frequent among the rows learned from."""


@dataclass(frozen=True, slots=True)
class RegressionScores:
    """The root mean squared error, the same of always saying the mean of the rows learned from, and R^2."""

    rows: int
    error: float
    mean_error: float
    r_squared: float | None
    """The share of the variance that is explained; none where there is no variance."""


def score_classification(truth: Flags, probability: Numbers, learned_from: Flags) -> Classification | None:
    """How well probabilities tell the truth; none where no row is left to test."""
    if not len(truth):
        return None
    usual = bool(learned_from.mean() > 0.5) if len(learned_from) else False
    both = truth.any() and not truth.all()
    area = measure_separation(probability[truth], probability[~truth]).area if both else None
    right = float(((probability > 0.5) == truth).mean())
    return Classification(len(truth), right, area, float((truth == usual).mean()))


def score_regression(truth: Numbers, predicted: Numbers, learned_from: Numbers) -> RegressionScores | None:
    """How near predictions are to the truth; none where no row is left to test."""
    if not len(truth):
        return None
    usual = float(learned_from.mean()) if len(learned_from) else 0.0
    error, variance = float(((predicted - truth) ** 2).mean()), float(truth.var())
    explained = 1 - error / variance if variance > 0 else None
    return RegressionScores(len(truth), error**0.5, float(((truth - usual) ** 2).mean()) ** 0.5, explained)


# ruff: noqa: S608  (statements here are made of our own words and quoted names; no user text)


@dataclass(frozen=True, slots=True)
class Uniqueness:
    """Of `rows` rows (or people), `alone` are the only ones with their combination, `few` share it with up to four."""

    columns: tuple[str, ...]
    rows: int
    alone: int
    few: int

    @property
    def share(self) -> float:
        """The share of rows that are alone; 0 for an empty table."""
        return self.alone / self.rows if self.rows else 0.0

    @property
    def per_thousand(self) -> int:
        """How many of 1,000 people that is."""
        return round(1000 * self.share)


def count_unique_rows(engine: Engine, table: str, columns: tuple[str, ...], unit: str | None = None) -> Uniqueness:
    """Count rows by their combination of columns, inside the engine; with a `unit`, people who have one in a row."""
    if not columns:
        raise ParameterError(
            "no column was named", expected="One or more columns that an intruder may know", remedy="Name them"
        )
    keys, rows = ", ".join(quote(column) for column in columns), quote(table)
    if unit is None:
        counted = f"SELECT count(*) AS n FROM {rows} GROUP BY {keys}"
        sums = "sum(n) AS rows, sum(n) FILTER (WHERE n = 1) AS alone, sum(n) FILTER (WHERE n <= 5) AS few"
        found = engine.run(f"SELECT {sums} FROM ({counted}) AS c")
    else:
        who = quote(unit)
        of_few = f"SELECT {keys}, count(DISTINCT {who}) AS n FROM {rows} GROUP BY {keys}"
        same = " AND ".join(f"r.{quote(column)} IS NOT DISTINCT FROM c.{quote(column)}" for column in columns)
        sums = ", ".join(
            f"count(DISTINCT CASE WHEN n <= {most} THEN {who} END) AS {name}"
            for name, most in (("alone", 1), ("few", 5))
        )
        found = engine.run(
            f"SELECT count(DISTINCT {who}) AS rows, {sums} FROM {rows} AS r JOIN ({of_few}) AS c ON {same}"
        )
    (row,) = found.to_pylist()
    return Uniqueness(columns, *(int(row[name] or 0) for name in ("rows", "alone", "few")))
