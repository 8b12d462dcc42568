"""Bounds of cells behind published tables, against every table that fits; a proof holds whatever its weights."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from deniable.attacks import solvers
from deniable.attacks.aggregates import cell_bounds
from deniable.attacks.aggregates.cell_bounds import FAR, Margin, bound_cells, bound_margins
from deniable.errors import ParameterError

SHAPES = ((2, 2), (2, 3), (3, 2), (2, 2, 2), (2, 4))


def add_up(tables, axes):
    """Sums over the axes that are not named, in the order in which the others are; the first axis numbers tables."""
    rest = tuple(1 + axis for axis in range(tables.ndim - 1) if axis not in axes)
    sums = tables.sum(axis=rest) if rest else tables
    return sums.transpose([0, *(1 + np.argsort(np.argsort(axes)))]) if axes else sums


def publish(rng):
    """A random table, one to three margins of it with some counts hidden, and every table that fits them."""
    shape = SHAPES[rng.integers(len(SHAPES))]
    most = 2 if len(shape) == 3 or max(shape) == 4 else 3
    every = np.array(list(itertools.product(range(most + 1), repeat=int(np.prod(shape))))).reshape(-1, *shape)
    table = every[rng.integers(len(every))]
    orders = [axes for size in range(len(shape) + 1) for axes in itertools.permutations(range(len(shape)), size)]
    # Nobody publishes more than `most` in a cell, so that there are finitely many tables to try.
    margins = [Margin.of(range(len(shape)), np.full(shape, None), (0, most))]
    for axes in rng.choice(len(orders), rng.integers(1, 4)):
        sums = np.asarray(add_up(table[None], orders[axes])[0])
        shown = np.where(rng.random(sums.shape) < 0.35, None, sums.astype(object))
        margins.append(Margin.of(orders[axes], shown, (0, FAR if rng.random() < 0.3 else int(sums.max()))))
    fits = np.ones(len(every), bool)
    for margin in margins:
        sums = add_up(every, margin.axes)
        fits &= ((sums >= margin.low) & (sums <= margin.high)).reshape(len(every), -1).all(axis=1)
    return shape, margins, every[fits]


@pytest.mark.slow
def test_bounds_of_250_sets_of_tables_are_those_of_all_tables_that_fit():
    rng = np.random.default_rng(11)
    for _ in range(250):
        shape, margins, every = publish(rng)
        found = bound_cells(shape, margins)
        assert found.low.tolist() == every.min(axis=0).tolist()
        assert found.high.tolist() == every.max(axis=0).tolist()
        assert found.exact.all()
        totals = every.reshape(len(every), -1).sum(axis=1)
        assert found.total == (totals.min(), totals.max())
        for margin, (low, high) in zip(margins, found.margins, strict=True):
            sums = add_up(every, margin.axes)
            assert low.tolist() == sums.min(axis=0).tolist()
            assert high.tolist() == sums.max(axis=0).tolist()


def test_a_proof_holds_whatever_the_weights():
    rng = np.random.default_rng(5)
    for _ in range(60):
        shape, margins, every = publish(rng)
        system = cell_bounds._System.of(shape, margins)
        flat = every.reshape(len(every), -1)
        for cell in range(flat.shape[1]):
            cost = np.zeros(flat.shape[1], np.int64)
            cost[cell] = 1
            proven = system.prove(cost, rng.normal(size=len(system.low)))
            assert proven is None or proven <= flat[:, cell].min()


def test_without_a_solver_bounds_hold_and_claim_nothing_that_is_not_so(monkeypatch):
    monkeypatch.setattr(solvers, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    rng = np.random.default_rng(6)
    for _ in range(60):
        shape, margins, every = publish(rng)
        found = bound_margins(shape, margins)
        assert (found.low <= every.min(axis=0)).all()
        assert (found.high >= every.max(axis=0)).all()
        assert not found.exact.any()


def test_one_suppressed_cell_in_a_row_follows_from_the_total():
    shown = [[12, None], [7, 9]]
    alone = bound_cells((2, 2), [Margin.of((0, 1), shown, (1, 4)), Margin.of((0,), [15, 16])])
    assert (alone.low[0, 1], alone.high[0, 1]) == (3, 3)
    without = bound_cells((2, 2), [Margin.of((0, 1), shown, (1, 4))])
    assert (without.low[0, 1], without.high[0, 1]) == (1, 4)
    unknown = bound_cells((2, 2), [Margin.of((0, 1), shown)])
    assert (unknown.low[0, 1], unknown.high[0, 1]) == (0, FAR)
    assert unknown.total == (28, FAR)


def test_branch_and_bound_alone_finds_the_same_bounds_and_is_named(monkeypatch):
    monkeypatch.setattr(cell_bounds._Search, "_solve", lambda *_: None)
    rng, searched = np.random.default_rng(8), 0
    for _ in range(40):
        shape, margins, every = publish(rng)
        found = bound_cells(shape, margins)
        assert found.low.tolist() == every.min(axis=0).tolist()
        assert found.high.tolist() == every.max(axis=0).tolist()
        searched += int(found.searched.sum())
    assert searched > 0


def test_a_table_of_whole_numbers_that_fractions_alone_would_allow_is_refused(monkeypatch):
    monkeypatch.setattr(cell_bounds, "ROUNDS", 0)
    thirds = [Margin.of((0,), [1, 1]), Margin.of((1,), [1, 1]), Margin.of((0, 1), [[None, 0], [None, None]], (0, 0))]
    with pytest.raises(ParameterError, match="No table"):
        bound_cells((2, 2), thirds)


@pytest.mark.parametrize(
    ("shape", "margins"),
    [
        ((2, 2), [Margin.of((0,), [1, 2]), Margin.of((1,), [2, 2])]),
        ((2,), [Margin.of((0,), [1, 2]), Margin.of((), 4)]),
        ((2,), [Margin.of((0,), [-1, 2])]),
        ((2,), [Margin.of((0,), [1, 2, 3])]),
        ((2,), []),
        ((1000, 1000), [Margin.of((), 4)]),
    ],
)
def test_what_no_table_can_have_is_refused(shape, margins):
    with pytest.raises(ParameterError):
        bound_margins(shape, margins)


def test_when_time_is_over_the_bounds_hold_and_are_not_called_exact():
    table = np.random.default_rng(3).integers(0, 9, (6, 6))
    margins = [Margin.of((0,), table.sum(axis=1)), Margin.of((1,), table.sum(axis=0)), Margin.of((), table.sum())]
    found = bound_cells((6, 6), margins, seconds=1e-9)
    assert (found.low <= table).all()
    assert (table <= found.high).all()
    assert not found.exact.any()
