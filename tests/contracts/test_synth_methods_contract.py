"""What every method of synthesis promises, whatever it measures: cost, charge, shape, types, and small tables."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.dp.accounting import GaussianEvent, NoOpEvent, cheap_epsilon, zcdp_cost
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, ApproxDP
from deniable.synth.domain import Areas, Domain
from deniable.synth.generate import draw_records, restore_codes
from deniable.synth.marginal import GaussianBudget, convert_budget
from deniable.synth.methods import METHODS, run_method
from deniable.synth.model import Description

PAID = [name for name, method in METHODS.items() if not method.free]
SPEND = convert_budget(ApproxDP(1, 1e-6), 1)


def _areas(domain: Domain) -> Areas:
    """The values of the first column in two halves, if it has so many."""
    size = domain.sizes[0]
    halves = [np.arange(size) * 2 // size] if size > 2 else []
    return Areas(0, (*halves, np.arange(size)))


def _described(codes: np.ndarray, domain: Domain, method: str, spend: GaussianBudget = SPEND) -> Description:
    return run_method(codes, domain, METHODS[method], spend, areas=_areas(domain))


def _drawn(description: Description, records: int) -> np.ndarray:
    return restore_codes(description, draw_records(description.estimates, description.collapsed.domain, records, 0), 0)


def _table(records: int = 3000) -> tuple[np.ndarray, Domain]:
    generator = np.random.default_rng(5)
    first = generator.integers(0, 4, records)
    second = np.where(generator.random(records) < 0.9, first, generator.integers(0, 4, records))
    third = generator.integers(0, 3, records)
    return np.stack([first, second, third]).astype(np.int32), Domain(("a", "b", "c"), (4, 4, 3))


@pytest.mark.parametrize("method", PAID)
@pytest.mark.parametrize("epsilon", [Fraction(1, 10), 1, 10])
def test_what_is_measured_costs_no_more_than_the_budget(method: str, epsilon: Fraction) -> None:
    codes, domain = _table()
    description = _described(codes, domain, method, convert_budget(ApproxDP(epsilon, 1e-6), 1))
    spent = cheap_epsilon(description.event, Fraction(1, 10**6))
    assert spent is not None
    assert spent <= epsilon


@pytest.mark.parametrize("method", PAID)
def test_with_something_to_learn_nearly_all_of_the_budget_is_used(method: str) -> None:
    codes, domain = _table()
    spent = cheap_epsilon(_described(codes, domain, method).event, Fraction(1, 10**6))
    assert spent is not None
    assert spent > Fraction(9, 10)


@pytest.mark.parametrize("method", PAID)
@pytest.mark.parametrize("rows", [1, 3])
def test_what_is_charged_before_is_at_least_what_is_measured_after(method: str, rows: int) -> None:
    codes, domain = _table(500)
    for budget in (ApproxDP(1, 1e-6), ApproxDP(9, 1e-6), ZCDP(Fraction(1, 20))):
        spend = convert_budget(budget, rows)
        charged, measured = zcdp_cost(spend.event), zcdp_cost(_described(codes, domain, method, spend).event)
        assert charged is not None
        assert measured is not None
        assert measured.amount <= charged.amount


@pytest.mark.parametrize("method", PAID)
def test_every_measurement_is_gaussian_and_in_the_event(method: str) -> None:
    codes, domain = _table(500)
    description = _described(codes, domain, method)
    events = list(description.event.events)  # type: ignore[union-attr]
    assert all(isinstance(event, GaussianEvent) for event in events)
    for marginal in (*description.one_way, *description.cliques):
        assert marginal.event in events


def test_a_method_that_looks_at_nothing_costs_nothing_and_says_the_same_of_every_table() -> None:
    codes, domain = _table(500)
    full, empty = _described(codes, domain, "random"), _described(codes[:, :0], domain, "random")
    assert isinstance(full.event, NoOpEvent)
    assert _drawn(full, 200).tolist() == _drawn(empty, 200).tolist()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("records", "sizes"),
    [(0, (3, 2, 2)), (1, (3, 2, 2)), (50, (5,)), (0, (1,)), (200, (1, 4, 1)), (300, (1000, 2, 3)), (40, (2,) * 9)],
    ids=["no rows", "one row", "one column", "one value", "constant columns", "1,000 categories", "more columns"],
)
def test_small_and_odd_tables_are_described_and_drawn_within_their_domain(
    method: str, records: int, sizes: tuple[int, ...]
) -> None:
    domain = Domain(tuple(f"c{i}" for i in range(len(sizes))), sizes)
    generator = np.random.default_rng(1)
    codes = np.stack([generator.integers(0, size, records) for size in sizes]).astype(np.int32)
    description = _described(codes, domain, method)
    assert description.method == method
    assert description.reason
    made = _drawn(description, 60)
    assert made.shape == (len(sizes), 60)
    assert all(own.min() >= 0 and own.max() < size for own, size in zip(made, sizes, strict=True))
    json.dumps([float(v) for column in description.estimates.columns for v in column], allow_nan=False)


@pytest.mark.parametrize("method", METHODS)
@given(case=st.integers(0, 10**6))
@settings(max_examples=12, deadline=None)
def test_estimates_are_nowhere_negative_and_every_table_adds_up_to_the_records(method: str, case: int) -> None:
    generator = np.random.default_rng(case)
    sizes = tuple(int(size) for size in generator.integers(1, 6, int(generator.integers(1, 6))))
    domain = Domain(tuple(f"c{i}" for i in range(len(sizes))), sizes)
    codes = np.stack([generator.integers(0, size, 400) for size in sizes]).astype(np.int32)
    estimates = _described(codes, domain, method).estimates
    for values in (*estimates.columns, *estimates.tables.values()):
        assert values.min() >= 0
        assert values.sum() == pytest.approx(estimates.total, rel=1e-3)


def test_areas_that_overlap_are_refused() -> None:
    with pytest.raises(ParameterError, match="lies in two others"):
        Areas(0, (np.array([0, 1, 1]), np.array([0, 0, 1])))


def test_a_table_without_areas_is_refused_by_the_hierarchical_method() -> None:
    codes, domain = _table(10)
    with pytest.raises(ParameterError, match="lie in one another"):
        run_method(codes, domain, METHODS["hierarchical"], SPEND)
