"""Published statistics: records and small cells given away, against brute force over all tables with the margins."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.assess.published_statistics import SMALL, attack_statistics, bound_published, read_published
from deniable.attacks import solvers
from deniable.attacks.aggregates.cell_bounds import bound_margins
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
    whole = json.dumps(BLOCK).replace("30.0", "30")
    assert attack_statistics(whole)[0].outcomes[0].figures["worlds"] == 1  # nobody said that 30 was rounded
    rounded = attack_statistics(whole.replace('"mean": 30,', '"mean": 30, "rounded": 1,'))[0].outcomes[0]
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


def test_a_cube_falls_to_its_faces_and_without_a_solver_bounds_are_not_called_the_best(monkeypatch):
    cube = np.zeros((2, 2, 2), int)
    cube[0, 0, 0] = 2
    told, _ = publish(cube, ((0, 1), (0, 2), (1, 2)))
    (solved,) = solve(told).outcomes
    assert (solved.figures["given_away"], solved.figures["exact"]) == (8, 8)  # zeros in margins are zeros in cells
    assert not solved.warnings
    monkeypatch.setattr(solvers, "import_module", lambda name: (_ for _ in ()).throw(ImportError(name)))
    alone = solve(told).outcomes[0]
    assert (alone.figures["given_away"], alone.figures["exact"]) == (8, 0)
    assert "better ones may exist" in alone.warnings[0]
    plain, _ = publish(np.array([[1, 5], [7, 9]]), ((0, 1),))
    assert solve(plain).outcomes[0].attack.successes == 1


def test_hair_and_eyes_are_read_from_two_published_tables_and_bounded():
    hair = pa.table({"hair": ["blond", "brown"], "people": [12, 18]})
    eyes = pa.table({"eyes": ["brown", "blue", "Total"], "people": ["14", "16", "30"]})
    cells = read_published([hair, eyes], "people")
    assert cells.axes == {"hair": ("blond", "brown"), "eyes": ("brown", "blue")}
    found = bound_published(cells)
    assert found.figures["given_away"] == 0
    assert found.attack.trials == 30
    ends = bound_margins(cells.shape, cells.margins)
    assert (ends.low.ravel().tolist(), ends.high.ravel().tolist()) == ([0, 0, 2, 4], [12, 12, 14, 16])


def test_a_suppressed_cell_that_a_total_gives_away_is_named():
    printed = {
        "ward": ["A", "A", "B", "B", "A", "B", None],
        "ill": ["yes", "no", "yes", "no", "Total", "total", None],
        "people": ["*", "12", "7", "1,009", "15", "1016", "1031"],
    }
    cells = read_published([pa.table(printed)], "people", suppressed=(1, 4))
    found = bound_published(cells)
    assert {"cell": {"ward": "A", "ill": "yes"}, "low": 3, "high": 3} in found.figures["hidden"]
    assert (found.figures["recovered"], found.figures["suppressed"]) == (1, 1)
    assert found.attack.successes == 3
    without = pa.table(printed).slice(0, 5)  # a sum that is not listed is unknown, and nothing that was suppressed
    again = bound_published(read_published([without], "people", suppressed=(1, 4)))
    assert (again.figures["recovered"], again.figures["suppressed"], again.attack.trials) == (1, 1, 1031)


def test_an_absent_combination_counted_nobody_unless_it_was_suppressed_too():
    listed = pa.table({"ward": ["A", "B"], "ill": ["yes", "no"], "n": [5, 6]})
    shown = bound_published(read_published([listed], "n"))
    assert shown.figures["given_away"] == 4
    hidden = bound_published(read_published([listed], "n", suppressed=(0, 4), absent=True))
    assert (hidden.figures["given_away"], hidden.figures["suppressed"]) == (2, 2)


def test_suppressed_counts_of_a_file_have_limits():
    margins = [
        {"over": ["a", "b"], "counts": [[None, 3], [4, 5]], "suppressed": [1, 2]},
        {"over": [], "counts": 13},
    ]
    (found,) = solve({"cells": {"axes": {"a": [1, 2], "b": ["x", "y"]}, "margins": margins}}).outcomes
    assert found.figures["hidden"] == [{"cell": {"a": "1", "b": "x"}, "low": 1, "high": 1}]


def test_a_combination_that_is_listed_twice_is_refused():
    with pytest.raises(DataError, match="twice"):
        read_published([pa.table({"a": ["x", "x"], "n": [1, 2]})], "n")
    with pytest.raises(ParameterError, match="column of counts"):
        read_published([pa.table({"a": ["x"]})], "n")


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


AGES = {"attributes": {"age": [0, 90], "sex": [0, 1]}}


@pytest.mark.parametrize(
    ("statistics", "told"),
    [
        ([{"count": 2, "of": "age", "mean": 95}], "contradict each other"),
        ([{"count": 3}, {"count": 5, "where": {"sex": 0}}], "contradict each other"),
        ([{"count": 2, "of": "age", "mean": 38.0, "median": 80}], "contradict each other"),
        ([{"count": 2, "of": "age", "meen": 38.0}], "Statistic 1 has an unknown key 'meen'.*Did you mean 'mean'"),
        ([{"count": 2}, {"count": 1, "where": {"age": [50, 40]}}], "Limits go from 50 to 40"),
        ([{"count": 2.5}], "does not say what was published"),
        ([{"count": -2}], "does not say what was published"),
        ([{"count": True}], "does not say what was published"),
    ],
)
def test_statistics_that_no_table_fits_are_refused(statistics, told):
    with pytest.raises(DataError, match=told):
        attack_statistics(json.dumps(AGES | {"statistics": statistics}))


def test_parts_that_are_not_known_are_refused():
    fine = AGES | {"statistics": [{"count": 2}]}
    with pytest.raises(DataError, match="Limits go from 90 to 0"):
        attack_statistics(json.dumps(fine | {"attributes": {"age": [90, 0]}}))
    with pytest.raises(DataError, match="The file has an unknown key 'statistic'"):
        attack_statistics(json.dumps(fine | {"statistic": []}))
    with pytest.raises(DataError, match="a key twice"):
        attack_statistics('{"attributes": {}, "statistics": [], "statistics": []}')
    with pytest.raises(DataError, match="Margin 1 has an unknown key"):
        attack_statistics('{"cells": {"axes": {"a": ["x"]}, "margins": [{"over": ["a"], "counts": [1], "count": 1}]}}')
