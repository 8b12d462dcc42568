"""The anytime search against the optimal one, and its certified bound."""

from __future__ import annotations

import numpy as np
import pytest

from deniable.kanonymity.anonymize import solve
from deniable.kanonymity.encoding import collapse
from deniable.kanonymity.hierarchy import from_rows
from deniable.kanonymity.models import Closeness, DistinctDiversity, KAnonymity, PrivacyModel
from deniable.kanonymity.models.base import build_reference
from deniable.kanonymity.quality import MEASURES, Discernibility, Loss, Measure
from deniable.kanonymity.search.anytime import AnytimeSearch, Part, divide_problem, enumerate_nodes
from deniable.kanonymity.search.check import Checker
from deniable.kanonymity.search.optimal import OptimalSearch
from deniable.kanonymity.search.problem import ENUMERABLE, Problem


def problem(
    columns: int, rows: int, models: tuple[PrivacyModel, ...] = (KAnonymity(3),), measure: Measure | None = None
) -> Problem:
    chance = np.random.default_rng(columns)
    tree = [(str(n), str(n // 2), str(n // 4)) for n in range(8)]
    hierarchies = tuple(from_rows(f"q{q}", tree) for q in range(columns))
    base = chance.integers(0, 8, rows)
    codes = [((base + chance.integers(0, 3, rows)) % 8).astype(np.int32) for _ in hierarchies]
    values = chance.integers(0, 3, rows).astype(np.int32)
    tuples = collapse(codes, [8] * columns, [(values, 3)]).tuples
    against = {"s": build_reference(np.bincount(values, minlength=3))}
    return Problem(tuples, hierarchies, models, measure or Loss(), rows // 20, ("s",), against)


@pytest.mark.parametrize(
    "models", [(KAnonymity(3),), (KAnonymity(2), DistinctDiversity("s", 2)), (KAnonymity(3), Closeness("s", 0.4))]
)
@pytest.mark.parametrize("measure", MEASURES, ids=str)
def test_the_bound_is_never_above_the_optimum_and_the_solution_never_below(
    models: tuple[PrivacyModel, ...], measure: Measure
) -> None:
    small = problem(4, 120, models, measure)
    optimum = OptimalSearch(small, Checker(small)).run()
    found = AnytimeSearch(small, Checker(small)).run(seconds=0.4)
    assert optimum is not None
    assert found is not None
    assert found.proof.bound <= optimum.cost + 1e-9
    assert found.cost >= optimum.cost - 1e-9
    if found.proof.complete:
        assert found.cost == pytest.approx(optimum.cost)


def test_given_enough_time_the_solution_is_proved_optimal() -> None:
    small = problem(4, 120)
    found = AnytimeSearch(small, Checker(small)).run(seconds=20)
    optimum = OptimalSearch(small, Checker(small)).run()
    assert found is not None
    assert optimum is not None
    assert found.proof.complete
    assert (found.gap, found.cost) == (0.0, pytest.approx(optimum.cost))


def test_a_lattice_beyond_ten_million_nodes_is_searched_with_a_certified_gap() -> None:
    large = problem(14, 400)
    assert large.lattice.nodes > ENUMERABLE
    found = solve(Checker(large), seconds=1.5)
    assert 0 < found.proof.bound <= found.cost
    assert found.suppressed <= large.limit
    assert found.gap == pytest.approx(found.cost - found.proof.bound)


def test_what_no_node_meets_is_none() -> None:
    impossible = problem(3, 50, (KAnonymity(51),))
    assert AnytimeSearch(impossible, Checker(impossible)).run(seconds=0.2) is None


def test_parts_bound_every_node_from_below() -> None:
    small = problem(4, 120)
    checker = Checker(small)
    divided = divide_problem(checker)
    assert sorted(q for part in divided for q in part.columns) == [0, 1, 2, 3]
    for bound, levels in enumerate_nodes(divided, 4):
        verdict = checker.check(levels)
        assert not verdict.acceptable or verdict.cost >= bound - 1e-9


def test_combinations_come_once_each_in_the_order_of_their_sums() -> None:
    made = [Part((0,), np.array([[0], [1], [2]], np.int8), np.array([0.0, 1.0, 5.0])) for _ in range(2)]
    second = Part((1,), np.array([[0], [1]], np.int8), np.array([0.0, 2.0]))
    found = list(enumerate_nodes([made[0], second], 2))
    assert [bound for bound, _ in found] == sorted(bound for bound, _ in found)
    assert len({levels for _, levels in found}) == 6


def test_time_running_out_in_the_optimal_search_leaves_a_bound() -> None:
    large = problem(9, 600, measure=Discernibility())
    found = OptimalSearch(large, Checker(large)).run(seconds=0.05)
    assert found is not None
    assert not found.proof.complete
    assert found.proof.bound <= found.cost
