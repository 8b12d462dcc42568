"""Local recoding: Mondrian, stages, cells; microaggregation and the geographic scheme."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from deniable.errors import DataError, Infeasible, ParameterError
from deniable.kanonymity.anonymize import solve
from deniable.kanonymity.local_recoding import LocalRelease, measure_local_loss, write_local
from deniable.kanonymity.microaggregation import microaggregate, release_grid
from deniable.kanonymity.models import AverageRisk, Closeness, DistinctDiversity, EntropyDiversity, KAnonymity
from deniable.kanonymity.recoding import Form
from deniable.kanonymity.request import Prepared, Request, prepare
from deniable.kanonymity.risk import examine
from deniable.kanonymity.search.check import Checker
from deniable.kanonymity.search.mondrian import mondrian
from deniable.kanonymity.search.stages import optimal_then_local, suppress_cells
from deniable.policy.schema import Spec

QI = ("age", "city", "sex")
TREES = {
    "age": Spec("intervals", {"widths": (5, 10, 20)}),
    "city": Spec("tree", {"inline": {"any": {"north": ["Oslo", "Bergen", "Turku"], "south": ["Rome", "Bari"]}}}),
}


def people(rows: int = 400, seed: int = 0) -> pa.Table:
    chance = np.random.default_rng(seed)
    return pa.table(
        {
            "name": [f"person {n}" for n in range(rows)],
            "age": chance.integers(18, 90, rows),
            "city": chance.choice(["Oslo", "Bergen", "Turku", "Rome", "Bari"], rows).tolist(),
            "sex": chance.choice(["F", "M"], rows).tolist(),
            "illness": chance.choice(["flu", "cold", "gout", "rash"], rows, p=[0.4, 0.3, 0.2, 0.1]).tolist(),
        }
    )


MODELS = [
    (KAnonymity(4),),
    (KAnonymity(3), DistinctDiversity("illness", 2)),
    (KAnonymity(2), EntropyDiversity("illness", 2.0)),
    (KAnonymity(4), Closeness("illness", 0.35)),
]
METHODS = {
    "strict": mondrian,
    "relaxed": lambda p: mondrian(p, relaxed=True),
    "local": optimal_then_local,
    "cells": suppress_cells,
}


def prepared(models: tuple[object, ...], suppress: float = 0.0) -> tuple[pa.Table, Prepared]:
    table = people()
    return table, prepare(table, Request(QI, models, ("illness",), ("name",), suppress), TREES)  # type: ignore[arg-type]


@pytest.mark.parametrize("models", MODELS, ids=lambda ms: " + ".join(map(str, ms)))
@pytest.mark.parametrize("method", METHODS)
def test_what_is_written_meets_the_models(method: str, models: tuple[object, ...]) -> None:
    table, ready = prepared(models, 0.05)
    release = METHODS[method](ready)
    out = write_local(table, ready, release)
    found = examine(out, QI, ("illness",))
    wanted = {type(model).__name__: model for model in models}
    assert found.k >= wanted["KAnonymity"].k  # type: ignore[attr-defined]
    if "DistinctDiversity" in wanted:
        assert found.sensitive[0].distinct_l >= 2
    if "EntropyDiversity" in wanted:
        assert found.sensitive[0].entropy_l >= 2 - 1e-9
    if "Closeness" in wanted and out.num_rows == table.num_rows:
        assert found.sensitive[0].t <= 0.35 + 1e-9
    assert out.num_rows >= 0.95 * table.num_rows
    assert "name" not in out.column_names


@pytest.mark.parametrize("method", METHODS)
def test_every_row_lies_in_what_its_class_shows(method: str) -> None:
    _table, ready = prepared((KAnonymity(4),), 0.05)
    release = METHODS[method](ready)
    owner = release.class_of if release.by_row else release.class_of[ready.collapsed.tuple_of]
    for q, coded in enumerate(ready.columns):
        rank = np.argsort(release.orders[q])[coded.codes[owner >= 0]]
        assert (release.low[owner[owner >= 0], q] <= rank).all()
        assert (rank <= release.high[owner[owner >= 0], q]).all()


def test_strict_classes_do_not_overlap_and_cannot_be_split_again_in_halves_of_k() -> None:
    _, ready = prepared((KAnonymity(4),))
    release = mondrian(ready)
    for a in range(release.classes):
        apart = (release.high < release.low[a]) | (release.low > release.high[a])
        assert apart.any(axis=1).sum() == release.classes - 1
    assert release.sizes.min() >= 4


def test_relaxed_splitting_makes_at_least_as_many_classes() -> None:
    _, ready = prepared((KAnonymity(5),))
    assert mondrian(ready, relaxed=True).classes >= mondrian(ready).classes


def test_local_recoding_costs_less_than_the_best_level_for_all() -> None:
    _, ready = prepared((KAnonymity(4),), 0.05)
    whole = solve(Checker(ready.problem)).cost
    for method in (mondrian, METHODS["relaxed"], optimal_then_local):
        assert measure_local_loss(ready, method(ready)) <= whole + 1e-12


def test_categories_are_written_as_groups_of_their_hierarchy_and_numbers_as_intervals() -> None:
    table, ready = prepared((KAnonymity(4),))
    out = write_local(table, ready, mondrian(ready))
    assert set(out["city"].to_pylist()) <= {"Oslo", "Bergen", "Turku", "Rome", "Bari", "north", "south", "any"}
    assert any(label.startswith("[") for label in out["age"].to_pylist())
    release = mondrian(ready, sets=True)
    sets = write_local(table, ready, release, Form.SETS)
    assert measure_local_loss(ready, release, Form.SETS) <= measure_local_loss(ready, release)
    for city, shown in zip(table["city"].to_pylist(), sets["city"].to_pylist(), strict=True):
        assert city in shown.strip("{}").split(", ")
    document = write_local(table, ready, mondrian(ready), Form.JSON)
    assert any(label.startswith('{"low"') for label in document["age"].to_pylist())


def test_suppressed_cells_are_stars_and_all_other_cells_are_as_they_were() -> None:
    table, ready = prepared((KAnonymity(4),), 0.05)
    release = suppress_cells(ready)
    out = write_local(table, ready, release)
    kept = release.class_of[ready.collapsed.tuple_of] >= 0
    for name in QI:
        before = [str(v) for v, shown in zip(table[name].to_pylist(), kept, strict=True) if shown]
        assert all(new in (old, "*", "any") for old, new in zip(before, out[name].to_pylist(), strict=True))


def test_missing_values_stay_missing_or_become_stars_with_others() -> None:
    table = pa.table({"age": [20, 21, 22, 22, None, None, None, None]})
    ready = prepare(table, Request(("age",), (KAnonymity(4),)), {"age": TREES["age"]})
    assert write_local(table, ready, mondrian(ready))["age"].to_pylist() == ["[20, 25)"] * 4 + [None] * 4
    mixed = prepare(table, Request(("age",), (KAnonymity(5),)), {"age": TREES["age"]})
    assert write_local(table, mixed, mondrian(mixed))["age"].to_pylist() == ["*"] * 8


def test_a_table_that_as_a_whole_fails_is_refused() -> None:
    table = people(50)
    ready = prepare(table, Request(QI, (KAnonymity(2), DistinctDiversity("illness", 9)), ("illness",)), TREES)
    with pytest.raises(Infeasible, match="as a whole"):
        mondrian(ready)
    with pytest.raises(Infeasible, match="fit into no class"):
        suppress_cells(ready)


def test_models_of_the_whole_release_are_left_to_the_optimal_search() -> None:
    ready = prepare(people(50), Request(QI, (KAnonymity(2), AverageRisk(0.1))), TREES)
    for method in (mondrian, optimal_then_local, suppress_cells):
        with pytest.raises(ParameterError, match="optimal search"):
            method(ready)


def naive_mdav(points: np.ndarray, k: int) -> list[set[int]]:
    left, groups = list(range(len(points))), []

    def nearest(to: np.ndarray) -> set[int]:
        return set(sorted(left, key=lambda i: ((points[i] - to) ** 2).sum())[:k])

    while len(left) >= 2 * k:
        center = points[left].mean(axis=0)
        far = max(left, key=lambda i: ((points[i] - center) ** 2).sum())
        opposite = max(left, key=lambda i: ((points[i] - points[far]) ** 2).sum())
        for around in (points[far], points[opposite]):
            if len(left) >= 2 * k or around is points[far]:
                groups.append(nearest(around))
                left = [i for i in left if i not in groups[-1]]
    return [*groups, set(left)]


def test_microaggregation_makes_the_groups_of_mdav() -> None:
    chance = np.random.default_rng(5)
    raw = chance.normal(size=(60, 2))
    points = (raw - raw.mean(axis=0)) / raw.std(axis=0)
    made = microaggregate(pa.table({"x": raw[:, 0], "y": raw[:, 1]}), ("x", "y"), 4)
    found = {frozenset(np.flatnonzero(made.group_of == g).tolist()) for g in range(made.group_of.max() + 1)}
    assert found == {frozenset(group) for group in naive_mdav(points, 4)}


def test_microaggregation_keeps_means_and_is_k_anonymous() -> None:
    table = people(333)
    made = microaggregate(table, ("age",), 5)
    assert np.mean(made.table["age"]) == pytest.approx(np.mean(table["age"]))
    assert examine(made.table, ("age",)).k >= 5
    assert 0 < made.lost_variance < 0.1


@pytest.mark.filterwarnings("error")
def test_microaggregation_refuses_numbers_whose_squares_are_not_finite() -> None:
    with pytest.raises(DataError, match="'x' has numbers too large"):
        microaggregate(pa.table({"x": [1.0, 2.0, 1e300, -1e300]}), ("x",), 2)
    made = microaggregate(pa.table({"x": [1.0, 2.0, 1e100, -1e100]}), ("x",), 2)
    assert 0 <= made.lost_variance <= 1


def test_microaggregation_refuses_what_has_no_mean() -> None:
    with pytest.raises(DataError, match="missing values"):
        microaggregate(pa.table({"x": [1.0, None]}), ("x",), 1)
    with pytest.raises(DataError, match="not one of numbers"):
        microaggregate(pa.table({"x": ["a", "b"]}), ("x",), 1)
    with pytest.raises(Infeasible, match="k is 3, and there are fewer rows"):
        microaggregate(pa.table({"x": [1.0, 2.0]}), ("x",), 3)


def test_cells_of_a_map_under_k_are_dropped_and_counted() -> None:
    rides = pa.table({"lat": [1.11, 1.12, 1.13, 2.0, None], "lon": [5.0, 5.0, 5.0, 6.0, 1.0]})
    made = release_grid(rides, "lat", "lon", digits=1, k=3)
    assert made.cells.to_pylist() == [{"lat": 1.1, "lon": 5.0, "count": 3}]
    assert made.dropped == 2
    with pytest.raises(ParameterError, match="k is 0"):
        release_grid(rides, "lat", "lon", digits=1, k=0)


def test_a_release_does_not_show_its_rows_when_printed() -> None:
    _, ready = prepared((KAnonymity(4),))
    release: LocalRelease = mondrian(ready)
    assert "array" not in repr(release)


def test_a_map_counts_people_where_it_is_told_who_they_are() -> None:
    """Three rows of one person at one place are one person there."""
    rows = pa.table({"lat": [2.0] * 3 + [1.0] * 3, "lon": [5.0] * 3 + [4.0] * 3, "who": ["d", "d", "d", "a", "b", "c"]})
    assert release_grid(rows, "lat", "lon", digits=0, k=3).cells.num_rows == 2
    by_person = release_grid(rows, "lat", "lon", digits=0, k=3, person="who")
    assert by_person.cells.to_pylist() == [{"lat": 1.0, "lon": 4.0, "count": 3}]
    nobody = rows.set_column(2, "who", pa.array(["d", None, None, "a", "b", None]))
    assert release_grid(nobody, "lat", "lon", digits=0, k=3, person="who").cells.num_rows == 0
