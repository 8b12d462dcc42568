"""Published statistics: records and small cells given away, against brute force over all tables with the margins."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.assess.published_statistics import SMALL, attack_statistics
from deniable.attacks import solvers
from deniable.errors import DataError, ParameterError

BLOCK = {
    "attributes": {"age": [0, 90], "female": [0, 1]},
    "statistics": [
        {"count": 3, "of": "age", "mean": 30.0, "median": 20},
        {"where": {"female": 1}, "count": 1, "of": "age", "mean": 10},
        {"where": {"age": [60, 90]}},
        {"where": {"age": [61, 90]}, "suppressed": 0},
    ],
}


def solve(told):
    (attempt,) = attack_statistics(json.dumps(told))
    assert attempt.name == "tables"
    return attempt


def test_three_records_follow_from_what_was_printed():
    # A woman of 10; the median is 20, so somebody is 20; nobody is over 60, so the sum of 90 leaves 60.
    (found,) = solve(BLOCK).outcomes
    assert (found.attack.successes, found.figures["unique"]) == (3, True)
    rounded = attack_statistics(json.dumps(BLOCK).replace("30.0", "30"))[0].outcomes[0]
    assert rounded.figures["worlds"] == 2  # 59 or 60: a mean of 29.7 is printed as 30 too
    assert rounded.attack.successes == 2


def test_a_printed_mean_stands_for_all_that_round_to_it():
    told = {"attributes": {"age": [0, 99]}, "statistics": [{"count": 2, "of": "age", "mean": 0.5}]}
    assert solve(told).outcomes[0].figures["worlds"] == 1  # 0 and 1
    twenty = '{"attributes": {"ill": [0, 1]}, "statistics": [{"count": 20, "of": "ill", "mean": 0.50}]}'
    for text, worlds in ((twenty, 1), (twenty.replace("0.50", "0.5"), 3)):  # ten; nine, ten or eleven
        assert attack_statistics(text)[0].outcomes[0].figures["worlds"] == worlds


def tables_with(shape, margins):
    """Every table of counts up to the largest margin that has these margins."""
    most = max(int(np.max(counts)) for _, counts in margins)
    for cells in itertools.product(range(most + 1), repeat=int(np.prod(shape))):
        table = np.array(cells).reshape(shape)
        rest = [tuple(a for a in range(len(shape)) if a not in axes) for axes, _ in margins]
        if all((table.sum(axis=drop) == counts).all() for drop, (_, counts) in zip(rest, margins, strict=True)):
            yield table


def publish(table, margins):
    names = [f"axis {n}" for n in range(table.ndim)]
    shown = []
    for axes in margins:
        rest = tuple(a for a in range(table.ndim) if a not in axes)
        shown.append((axes, table.sum(axis=rest)))
    axes = {name: list(range(size)) for name, size in zip(names, table.shape, strict=True)}
    listed = [{"over": [names[a] for a in over], "counts": counts.tolist()} for over, counts in shown]
    return {"cells": {"axes": axes, "margins": listed}}, shown


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1), st.sampled_from([((2, 2), ((0,), (1,))), ((2, 3), ((0,), (1,))), ((2, 2), ((0, 1),))])
)
def test_small_cells_are_given_away_where_every_table_agrees(seed, case):
    shape, margins = case
    table = np.random.default_rng(seed).integers(0, 3, shape)
    told, shown = publish(table, margins)
    every = np.array(list(tables_with(shape, shown)))
    known = (every == every[0]).all(axis=0)
    (found,) = solve(told).outcomes
    assert found.figures["given_away"] == known.sum()
    assert found.attack.successes == table[known & (table <= SMALL)].sum()
    assert found.attack.trials == table.sum()


def test_a_cube_falls_to_its_faces_with_a_solver_and_not_without(monkeypatch):
    cube = np.zeros((2, 2, 2), int)
    cube[0, 0, 0] = 2
    told, _ = publish(cube, ((0, 1), (0, 2), (1, 2)))
    assert solve(told).outcomes[0].figures["given_away"] == 8  # zeros in margins are zeros in cells
    monkeypatch.setattr(solvers, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    alone = solve(told).outcomes[0]
    assert alone.figures["given_away"] == 7  # at most a margin of 0; the last cell is between 0 and 2
    plain, _ = publish(np.array([[1, 5], [7, 9]]), ((0, 1),))
    assert solve(plain).outcomes[0].attack.successes == 1


@pytest.mark.parametrize(
    "text",
    ["nonsense", "[]", "{}", '{"statistics": [{}]}', '{"attributes": {"age": 3}, "statistics": []}',
     '{"cells": {"axes": {"a": [1, 2]}, "margins": [{"over": ["b"], "counts": [1, 2]}]}}'],
)  # fmt: skip
def test_what_says_nothing_is_refused_with_an_example(text):
    with pytest.raises(DataError, match='"attributes"'):
        attack_statistics(text)


def test_margins_of_different_tables_are_refused():
    told, _ = publish(np.array([[1, 2], [3, 4]]), ((0,), (1,)))
    told["cells"]["margins"][0]["counts"] = [9, 9]
    with pytest.raises(ParameterError, match="same total"):
        solve(told)
