"""Rows under conditions that few meet: drawn as quickly as others, with the values that rejection sampling gives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from deniable.dp.accounting import NoOpEvent
from deniable.synth import generate as generating
from deniable.synth.bins import CollapsedDomain
from deniable.synth.domain import Domain
from deniable.synth.estimate import Estimates
from deniable.synth.estimate import graphical_model as models
from deniable.synth.estimate.graphical_model import fit_condition, plan_condition
from deniable.synth.marginal import Codes
from deniable.synth.model import Description

CIRCLE = ((0, 1), (0, 2), (1, 2))
"""Two columns of which one value is rare, and a third that hangs on both."""
TAILS = ((2, 3), (3, 4), (1, 5))
DOMAIN = Domain(tuple("abcdef"), (2, 2, 3, 3, 2, 3))
RARE = {0: 1, 1: 1}
"""About one record in two thousand."""


def _joint() -> np.ndarray:
    """The whole table of a model over the circle and the tails; column c is mostly 2 only where a and b are 1."""
    lots = np.random.default_rng(3)
    effect = np.array([[0, 0, 0], [-1, 0, 2.5]])
    factors = {(0,): [0, -4.5], (1,): [0, -4.0], (0, 2): effect, (1, 2): effect, (0, 1): np.zeros((2, 2))}
    factors |= {clique: lots.normal(0, 1.2, DOMAIN.shape(clique)) for clique in TAILS}
    logs = np.zeros(DOMAIN.sizes)
    for clique, factor in factors.items():
        logs = logs + np.reshape(factor, [DOMAIN.sizes[p] if p in clique else 1 for p in range(len(DOMAIN))])
    table = np.exp(logs)
    return 50_000 * table / table.sum()


def _sum_over(table: np.ndarray, clique: tuple[int, ...]) -> np.ndarray:
    return table.sum(axis=tuple(axis for axis in range(table.ndim) if axis not in clique))


@pytest.fixture(scope="module")
def description() -> Description:
    joint = _joint()
    tables = {clique: _sum_over(joint, clique) for clique in (*CIRCLE, *TAILS)}
    columns = tuple(_sum_over(joint, (place,)) for place in range(len(DOMAIN)))
    estimates = Estimates(float(joint.sum()), columns, tables)
    same = CollapsedDomain(DOMAIN, tuple(np.arange(size, dtype=np.int32) for size in DOMAIN.sizes))
    return Description("auto", DOMAIN, same, (), (), estimates, NoOpEvent(), "")


def _count_pairs(codes: Codes) -> np.ndarray:
    """Shares of every pair of the columns of which nothing is asked, one after the other."""
    found = []
    for a, b in itertools.combinations(range(2, len(DOMAIN)), 2):
        cells = codes[a] * DOMAIN.sizes[b] + codes[b]
        found.append(np.bincount(cells, minlength=DOMAIN.sizes[a] * DOMAIN.sizes[b]) / codes.shape[1])
    return np.concatenate(found)


def _reject(description: Description, records: int) -> Codes:
    """The oracle: all kinds of records, of which those are kept that meet the condition."""
    drawn = generating.draw_records(description.estimates, DOMAIN, records, 11)
    return drawn[:, (drawn[0] == 1) & (drawn[1] == 1)]


def test_records_under_a_rare_condition_have_the_values_that_rejection_gives(
    description: Description, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = _reject(description, 900_000)
    assert 150 < kept.shape[1] < 2000
    asked: list[int] = []
    drawing = generating.draw_records
    monkeypatch.setattr(generating, "draw_records", lambda e, d, n, s: (asked.append(n), drawing(e, d, n, s))[1])
    made = generating.draw_meeting(description, RARE, 3000, (1, 0))
    assert (made[0] == 1).all()
    assert (made[1] == 1).all()
    assert asked == [], "nothing was drawn to be thrown away"
    # Each cell is as near to that of the oracle as chance in the oracle's own rows allows, at four deviations.
    told, found = _count_pairs(kept), _count_pairs(made)
    assert (np.abs(told - found) < 4 * np.sqrt(found * (1 - found) / kept.shape[1] + 1e-4)).all()


@pytest.mark.parametrize("given", [RARE, {4: 1}, {3: 2, 5: 0}, {0: 1, 4: 0, 5: 2}, {2: 0, 1: 1}])
def test_the_model_under_a_condition_is_the_whole_table_cut_at_it(
    description: Description, given: dict[int, int]
) -> None:
    joint = _joint()
    cut = joint[tuple(slice(given[p], given[p] + 1) if p in given else slice(None) for p in range(len(DOMAIN)))]
    plan = plan_condition(DOMAIN, description.estimates, given)
    model = fit_condition(DOMAIN, description.estimates, plan)
    assert plan.whole
    assert model.share == pytest.approx(cut.sum() / joint.sum(), rel=0.01)
    for clique, table in model.tables.items():
        assert table == pytest.approx(_sum_over(cut, clique) / cut.sum(), abs=2e-3)
    made = generating.draw_meeting(description, given, 20_000, (2, 0))
    for place in range(len(DOMAIN)):
        shares = np.bincount(made[place], minlength=DOMAIN.sizes[place]) / 20_000
        if place not in given:
            assert shares == pytest.approx(_sum_over(cut, (place,)) / cut.sum(), abs=0.01)
        else:
            assert shares[given[place]] == 1


def test_as_many_records_are_expected_as_the_columns_together_say(description: Description) -> None:
    joint = _joint()
    share = joint[1, :, 2].sum() / joint.sum()
    alone = joint[1].sum() * joint[:, :, 2].sum() / joint.sum() ** 2
    assert generating.estimate_share(description, {0: 1, 2: 2}) == pytest.approx(share, rel=0.01)
    assert share > 1.5 * alone
    assert generating.estimate_share(description, {}) == 1


def test_where_no_model_holds_all_tables_rejection_comes_first_and_is_bounded(
    description: Description, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    drawing = generating.draw_records
    monkeypatch.setattr(generating, "draw_records", lambda e, d, n, s: (asked.append(n), drawing(e, d, n, s))[1])
    monkeypatch.setattr(models, "MOST_CELLS", 10)
    monkeypatch.setattr(generating, "FEWEST_TRIED", 2000)
    monkeypatch.setattr(generating, "MOST_TRIED", 100_000)
    plan = plan_condition(DOMAIN, description.estimates, RARE)
    assert not plan.whole
    assert set(plan.core) < set(CIRCLE)
    made = generating.draw_meeting(description, RARE, 20, (1, 0))
    assert made.shape == (len(DOMAIN), 20)
    assert asked
    asked.clear()
    plan = plan_condition(DOMAIN, description.estimates, RARE)
    most = round(100_000 * fit_condition(DOMAIN, description.estimates, plan).share)
    assert generating.draw_meeting(description, RARE, round(1.5 * most), (1, 0)).shape == (6, round(1.5 * most))
    assert sum(asked) == 100_000, "more than half of what is asked for is found, and the rest drawn from the model"
    asked.clear()
    made = generating.draw_meeting(description, RARE, 5000, (1, 0))
    assert made.shape == (len(DOMAIN), 5000)
    assert (made[:2] == 1).all()
    assert sum(asked) <= 100_000


def test_values_that_were_never_seen_together_are_drawn_with_the_others_as_they_are(description: Description) -> None:
    tables = dict(description.estimates.tables)
    tables[3, 4] = np.array([[tables[3, 4][0].sum(), 0], *tables[3, 4][1:]])
    columns = [*description.estimates.columns[:4], tables[3, 4].sum(axis=0), description.estimates.columns[5]]
    estimates = Estimates(description.estimates.total, tuple(columns), tables)
    changed = Description("auto", DOMAIN, description.collapsed, (), (), estimates, NoOpEvent(), "")
    made = generating.draw_meeting(changed, {3: 0, 4: 1}, 4000, (3, 0))
    given = tables[2, 3][:, 0] / tables[2, 3][:, 0].sum()
    assert np.bincount(made[2], minlength=3) / 4000 == pytest.approx(given, abs=0.03)
