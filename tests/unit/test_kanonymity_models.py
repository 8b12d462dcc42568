"""Every privacy model against a twin written from its definition, and its declared monotonicity against a search."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.assess.certificate import measure_properties
from deniable.errors import ParameterError
from deniable.kanonymity.encoding import build_histograms
from deniable.kanonymity.hierarchy import from_rows
from deniable.kanonymity.models import (
    AverageRisk,
    BetaLikeness,
    Closeness,
    DeltaDisclosure,
    DeltaPresence,
    Distance,
    DistinctDiversity,
    EntropyDiversity,
    KAnonymity,
    KMap,
    PrivacyModel,
    RecursiveDiversity,
    holds,
)
from deniable.kanonymity.models.base import Classes, build_reference
from deniable.kanonymity.request import to_spec

VALUES = 4
EVERY_MODEL = (
    KAnonymity,
    KMap,
    DistinctDiversity,
    EntropyDiversity,
    RecursiveDiversity,
    Closeness,
    DeltaPresence,
    DeltaDisclosure,
    BetaLikeness,
    AverageRisk,
)
TREE = from_rows("s", [("0", "a", "*"), ("1", "a", "*"), ("2", "b", "*"), ("3", "b", "*")])

Table = list[tuple[list[int], int]]
"""Classes as lists of sensitive values, each with its people in the population."""


def classes_of(table: Table, whole: Sequence[int] | None = None) -> Classes:
    owner = np.array([c for c, (values, _) in enumerate(table) for _ in values], np.int64)
    values = np.array([v for held, _ in table for v in held], np.int32)
    held = build_histograms(owner, len(table), values, VALUES)
    totals = np.bincount(values if whole is None else np.array(whole), minlength=VALUES)
    return Classes(
        np.array([len(v) for v, _ in table], np.int64),
        {"s": held},
        {"s": build_reference(totals, TREE)},
        np.array([p for _, p in table], np.int64),
    )


def shares(values: Sequence[int]) -> list[float]:
    return [values.count(v) / len(values) for v in range(VALUES)]


def emd(p: list[float], q: list[float], distance: Callable[[int, int], float]) -> float:
    """Optimal transport by linear programming: the definition itself."""
    from scipy.optimize import linprog

    cost = [distance(a, b) for a in range(VALUES) for b in range(VALUES)]
    rows = [[1.0 if i // VALUES == a else 0.0 for i in range(VALUES**2)] for a in range(VALUES)]
    rows += [[1.0 if i % VALUES == b else 0.0 for i in range(VALUES**2)] for b in range(VALUES)]
    return float(linprog(cost, A_eq=rows, b_eq=p + q).fun)


def along_tree(a: int, b: int) -> float:
    return 0.0 if a == b else 0.5 if a // 2 == b // 2 else 1.0


DISTANCES: dict[Distance, Callable[[int, int], float]] = {
    Distance.EQUAL: lambda a, b: float(a != b),
    Distance.ORDERED: lambda a, b: abs(a - b) / (VALUES - 1),
    Distance.HIERARCHICAL: along_tree,
}


def recursive(values: list[int], c: float, rank: int) -> bool:
    counts = sorted(Counter(values).values(), reverse=True)
    return counts[0] < c * sum(counts[rank - 1 :])


def disclosure(values: list[int], whole: list[int], delta: float) -> bool:
    p, q = shares(values), shares(whole)
    return all(abs(math.log2(p[v] / q[v])) < delta for v in set(values))


def likeness(values: list[int], whole: list[int], beta: float, enhanced: bool) -> bool:
    p, q = shares(values), shares(whole)
    allowed = {v: min(beta, -math.log(q[v])) if enhanced else beta for v in set(values)}
    return all((p[v] - q[v]) / q[v] <= allowed[v] + 1e-12 for v in set(values))


def entropy(values: list[int]) -> float:
    return -sum(p * math.log2(p) for p in shares(values) if p)


TWINS: list[tuple[PrivacyModel, Callable[[list[int], int, list[int]], bool]]] = [
    (KAnonymity(3), lambda v, p, w: len(v) >= 3),
    (KMap(4), lambda v, p, w: p >= 4),
    (DeltaPresence(0.2, 0.6), lambda v, p, w: p > 0 and 0.2 - 1e-12 <= len(v) / p <= 0.6 + 1e-12),
    (DistinctDiversity("s", 2), lambda v, p, w: len(set(v)) >= 2),
    (EntropyDiversity("s", 1.8), lambda v, p, w: entropy(v) >= math.log2(1.8) - 1e-12),
    (RecursiveDiversity("s", 1.5, 2), lambda v, p, w: recursive(v, 1.5, 2)),
    (RecursiveDiversity("s", 3.0, 3), lambda v, p, w: recursive(v, 3.0, 3)),
    (DeltaDisclosure("s", 0.9), lambda v, p, w: disclosure(v, w, 0.9)),
    (
        DeltaDisclosure("s", 1.2, absent_violates=True),
        lambda v, p, w: set(v) == set(w) and disclosure(v, w, 1.2),
    ),
    (BetaLikeness("s", 0.7), lambda v, p, w: likeness(v, w, 0.7, False)),
    (BetaLikeness("s", 1.1, enhanced=True), lambda v, p, w: likeness(v, w, 1.1, True)),
    *(
        (Closeness("s", t, d), lambda v, p, w, t=t, d=d: emd(shares(v), shares(w), DISTANCES[d]) <= t + 1e-9)
        for d in Distance
        for t in (0.21, 0.43)
    ),
]

TABLES = st.lists(
    st.tuples(st.lists(st.integers(0, VALUES - 1), min_size=1, max_size=9), st.integers(0, 12)), min_size=1, max_size=4
)


@pytest.mark.parametrize(
    ("model", "twin"), TWINS, ids=lambda x: str(x) if not callable(x) or hasattr(x, "meets") else ""
)
@settings(max_examples=40, deadline=None)
@given(table=TABLES)
def test_a_model_holds_exactly_where_its_definition_holds(
    model: PrivacyModel, twin: Callable[[list[int], int, list[int]], bool], table: Table
) -> None:
    whole = [v for values, _ in table for v in values]
    expected = [twin(values, people, whole) for values, people in table]
    assert holds(model, classes_of(table)).tolist() == expected


def merged(one: tuple[list[int], int], other: tuple[list[int], int]) -> tuple[list[int], int]:
    return one[0] + other[0], one[1] + other[1]


def complete(values: list[int], missing: int) -> list[list[int]]:
    """Every table of known values that one with missing values may stand for."""
    gone = values.count(missing)
    known = [v for v in values if v != missing]
    return [known + list(each) for each in itertools.product(range(missing), repeat=gone)]


@settings(max_examples=60, deadline=None)
@given(table=st.lists(st.lists(st.integers(0, VALUES - 1), min_size=1, max_size=6), min_size=1, max_size=3))
def test_missing_values_make_a_class_as_diverse_as_the_least_diverse_table_they_may_stand_for(
    table: list[list[int]],
) -> None:
    missing = VALUES - 1
    classes = classes_of([(values, 1) for values in table])
    marked = replace(classes, references={"s": replace(classes.references["s"], missing=missing)})
    cells = pa.table(
        {
            "q": [str(c) for c, values in enumerate(table) for _ in values],
            "s": pa.array([None if v == missing else str(v) for values in table for v in values], pa.string()),
        }
    )
    for model, twin in TWINS:
        if isinstance(model, DistinctDiversity | EntropyDiversity | RecursiveDiversity):
            expected = [all(twin(known, 1, known) for known in complete(values, missing)) for values in table]
            assert holds(model, marked).tolist() == expected
            assert measure_properties(cells, ("q",), (to_spec(model),))[0].holds == all(expected)


def counterexample(model: PrivacyModel, *, both: bool, tries: int = 3000) -> Table | None:
    """Two classes of one table of which both hold (or at least the first), whose union does not."""
    chance = np.random.default_rng(7)
    for _ in range(tries):
        sizes = chance.integers(1, (9, 30))
        skew = chance.dirichlet(np.full(VALUES, 0.6), 2)
        pair: Table = [
            (chance.choice(VALUES, n, p=p).tolist(), int(n + chance.integers(0, 9)))
            for n, p in zip(sizes, skew, strict=True)
        ]
        rest = chance.choice(VALUES, chance.integers(0, 60), p=chance.dirichlet(np.full(VALUES, 0.6))).tolist()
        whole = pair[0][0] + pair[1][0] + rest
        first, second = holds(model, classes_of(pair, whole))
        union = holds(model, classes_of([merged(*pair)], whole))[0]
        if first and (second or not both) and not union:
            return pair
    return None


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("model", [model for model, _ in TWINS], ids=str)
def test_declared_monotonicity_has_no_counterexample_and_what_is_not_declared_has_one(model: PrivacyModel) -> None:
    assert (counterexample(model, both=True) is None) == model.under_generalization
    assert (counterexample(model, both=False) is None) == model.under_suppression


@pytest.mark.parametrize("model", [model for model, _ in TWINS], ids=str)
def test_implied_models_follow_and_are_monotone_under_suppression(model: PrivacyModel) -> None:
    chance = np.random.default_rng(3)
    for weaker in model.list_implied():
        assert weaker.under_suppression
    for _ in range(300):
        table: Table = [(chance.integers(0, VALUES, n).tolist(), int(n) + 3) for n in chance.integers(1, 8, 3)]
        classes = classes_of(table)
        for weaker in model.list_implied():
            assert not (holds(model, classes) & ~holds(weaker, classes)).any()


@pytest.mark.parametrize("model", [model for model, _ in TWINS], ids=str)
def test_no_split_of_a_class_suppresses_fewer_rows_than_the_model_says_are_lost(model: PrivacyModel) -> None:
    """Split a class at random in parts, keep the parts that hold, and count the rest."""
    chance = np.random.default_rng(5)
    tight = 0
    for _ in range(250):
        size = int(chance.integers(2, 14))
        values = chance.choice(VALUES, size, p=chance.dirichlet(np.full(VALUES, 0.7)))
        rest = chance.choice(VALUES, 12, p=chance.dirichlet(np.full(VALUES, 2.0))).tolist()
        people = int(size + chance.integers(0, 10))
        whole = values.tolist() + rest
        classes = classes_of([(values.tolist(), people)], whole)
        lost = float(model.bound_losses(model.measure(classes), classes)[0])
        part = chance.integers(0, int(chance.integers(1, 4)), size)
        shares = [people // len(set(part))] * len(set(part))
        shares[0] += people - sum(shares)
        parts: Table = [(values[part == p].tolist(), n) for p, n in zip(sorted(set(part)), shares, strict=True)]
        held = holds(model, classes_of(parts, whole))
        gone = sum(len(v) for (v, _), fine in zip(parts, held, strict=True) if not fine)
        assert gone >= lost - 1e-6
        tight += lost > 0
    assert tight or not model.under_suppression


@settings(max_examples=100, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12), risk=st.sampled_from([0.15, 0.25, 0.4, 1.0]))
def test_average_risk_releases_the_most_classes_by_size_that_it_can(sizes: list[int], risk: float) -> None:
    kept = AverageRisk(risk).release(np.array(sizes), np.ones(len(sizes), bool))
    fits = []
    for least in range(1, 11):
        rest = [n for n in sizes if n >= least]
        fits.append(not rest or len(rest) <= risk * sum(rest) * (1 + 1e-12))
    least = 1 + fits.index(True)
    assert kept.tolist() == [n >= least for n in sizes]


def test_average_risk_is_monotone_under_generalization() -> None:
    chance = np.random.default_rng(1)
    for _ in range(500):
        sizes = chance.integers(1, 9, 4)
        risk = AverageRisk(0.3)
        if risk.release(sizes, np.ones(4, bool)).all():
            joined = np.array([sizes[0] + sizes[1], *sizes[2:]])
            assert risk.release(joined, np.ones(3, bool)).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: KAnonymity(0),
        lambda: KMap(-1),
        lambda: DistinctDiversity("s", 0),
        lambda: EntropyDiversity("s", float("nan")),
        lambda: RecursiveDiversity("s", 0, 2),
        lambda: Closeness("s", 1.5),
        lambda: DeltaPresence(0.5, 0.4),
        lambda: DeltaDisclosure("s", 0),
        lambda: BetaLikeness("s", -1),
        lambda: AverageRisk(0),
    ],
)
def test_parameters_outside_their_domain_are_refused(make: Callable[[], object]) -> None:
    with pytest.raises(ParameterError):
        make()


def test_a_model_of_an_undeclared_column_names_the_nearest() -> None:
    with pytest.raises(ParameterError, match="Did you mean 's'"):
        holds(DistinctDiversity("ss", 2), classes_of([([0, 1], 2)]))


def test_every_model_tells_when_it_holds_what_it_protects_against_and_how_it_is_monotone() -> None:
    for model in EVERY_MODEL:
        for heading in ("**Holds when**", "**Protects against**", "**Monotone under**"):
            assert heading in (model.__doc__ or ""), model
