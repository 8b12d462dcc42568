"""A secret sample saves what is proven; errors have the sample in them; shares of small areas are smoothed."""

from __future__ import annotations

import csv
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable import Curator
from deniable.curator.query.tabulate import explain
from deniable.dp.mechanisms import LaplaceMechanism
from deniable.errors import ParameterError, PolicyError, QueryRefused
from deniable.geography.survey import (
    amplify,
    combine_errors,
    draw_sample,
    find_inner,
    read_weight,
    smooth_areas,
    smooth_shares,
)
from deniable.policy.budget import budget
from deniable.policy.document import read_unaccepted
from deniable.policy.tabulation import Partition, Select, Tabulation
from deniable.release.release import verify
from deniable.reports.page import render
from deniable.reports.stream import build_tabulation_page

POLICY = """
version: 1
dataset: d
tables:
  people:
    source: people.csv
    unit: %s
    columns:
      pid: {type: integer, role: identifier}
      sex: {categories: [F, M]}
budgets: {dataset: {epsilon: 1000}}
"""


@given(st.fractions("0.001", 20), st.integers(1, 1000))
def test_the_inner_epsilon_is_the_largest_that_a_sample_brings_within_what_is_asked(epsilon: Fraction, n: int) -> None:
    inner = find_inner(epsilon, n)
    assert amplify(inner, n) <= epsilon
    assert amplify(inner * (1 + Fraction(1, 10**8)), n) > epsilon
    assert inner >= epsilon * (1 - Fraction(1, 10**11))


@pytest.mark.parametrize("weight", [2, 5, 20])
def test_a_sample_before_a_coin_is_told_apart_as_little_as_is_claimed_and_less_would_be_wrong(weight: int) -> None:
    """Randomized response on whether somebody was taken: its loss is known outright, and is that of `amplify`."""
    inner = 2.0
    keep = math.exp(inner) / (1 + math.exp(inner))
    with_her = keep / weight + (1 - keep) * (1 - 1 / weight)
    loss = math.log(with_her / (1 - keep))
    claimed = float(amplify(Fraction(2), weight))
    assert loss == pytest.approx(claimed, rel=1e-9)
    assert claimed < inner * 0.75


def test_coins_are_thrown_for_each_unit_with_the_probability_said() -> None:
    taken = np.concatenate([draw_sample(4000, 4) for _ in range(10)])
    assert abs(taken.mean() - 0.25) < 5 * math.sqrt(0.25 * 0.75 / taken.size)
    assert abs(taken.mean() - 0.3) > 5 * math.sqrt(0.25 * 0.75 / taken.size)
    assert read_weight(Fraction(1, 10)) == 10
    for rate in ("0.3", "0", "2"):
        with pytest.raises((ParameterError, ZeroDivisionError)):
            read_weight(Fraction(rate) or Fraction(3, 2))


def make(folder: Path, unit: str) -> Path:
    rows = [f"{i},{'FM'[i % 3 == 0]}\n" for i in range(3000)]
    (folder / "people.csv").write_text("pid,sex\n" + "".join(rows))
    (folder / "policy.yaml").write_text(POLICY % unit)
    return folder / "policy.yaml"


@pytest.mark.parametrize("unit", ["row", "{column: pid, max_groups: 1, max_rows_per_group: 1}"])
def test_weighted_totals_are_unbiased_and_their_errors_hold_sample_and_noise(tmp_path: Path, unit: str) -> None:
    policy = make(tmp_path, unit)
    found = []
    with Curator.open(policy, ledger=tmp_path / "ledger.sqlite") as curator:
        for turn in range(20):
            plan = Tabulation(f"t{turn}", "people", budget(epsilon=2)) | Select(f"pid >= {-turn}", Fraction(1, 4))
            report = curator.tabulate(plan | Partition(("sex",)))
            assert report.total % 4 == 0
            found.append(report.totals[0])
        assert curator.context.ledger.balance()[0].spent.epsilon == 40  # type: ignore[union-attr]
    totals = np.array([each.total for each in found])
    expected = math.sqrt(3000 * 3)  # the sample alone: N (weight - 1)
    assert abs(totals.mean() - 3000) < 5 * expected / math.sqrt(20)
    assert 0.4 * expected < totals.std() < 1.9 * expected
    widths = [(each.high - each.low) / 2 for each in found]
    assert 1.9 * expected < np.mean(widths) < 3 * expected
    assert sum(each.low <= 3000 <= each.high for each in found) >= 16


@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(2)])
def test_expected_errors_are_of_the_weighted_numbers_and_tell_what_the_sample_adds(
    tmp_path: Path, epsilon: Fraction
) -> None:
    """With little epsilon it is the noise that counts, with much the sample: the interval holds both."""

    def plan(amount: Fraction) -> Tabulation:
        return Tabulation("t", "people", budget(epsilon=amount)) | Partition(("sex",))

    sample = Select(sample=Fraction(1, 4))
    with Curator.open(make(tmp_path, "row"), ledger=tmp_path / "ledger.sqlite") as curator:
        whole = explain(curator.context, plan(find_inner(epsilon, 4))).levels[0]
        told = explain(curator.context, plan(epsilon) | sample).levels[0]
        report = curator.tabulate(plan(epsilon) | sample)
    assert report.levels[0].to_dict() == told.to_dict()
    assert told.total_deviation == pytest.approx(4 * whole.total_deviation)
    assert told.cell_deviation == pytest.approx(4 * whole.cell_deviation)
    assert (whole.sample_deviation, told.sample_deviation) == (0, pytest.approx(math.sqrt(1000 * 3)))
    deviation = math.hypot(told.total_deviation, told.sample_deviation * math.sqrt(3000 / 1000))
    area = report.totals[0]
    assert (area.high - area.low) / 2 / deviation == pytest.approx(1.96, rel=0.2)
    assert area.noise_deviation == pytest.approx(told.total_deviation, abs=1e-3)
    assert math.hypot(area.noise_deviation, area.sample_deviation) == pytest.approx(deviation, rel=0.2)


def test_a_sample_is_told_of_in_the_report_the_page_the_file_and_its_statement(tmp_path: Path) -> None:
    """And nothing is said of one where everybody is counted."""
    plan = Tabulation("t", "people", budget(epsilon=1)) | Partition(("sex",))
    with Curator.open(make(tmp_path, "row"), ledger=tmp_path / "ledger.sqlite") as curator:
        for file, rate, added in (("whole.csv", Fraction(1), 0), ("sample.csv", Fraction(1, 4), math.sqrt(1000 * 3))):
            report = curator.tabulate(plan | Select(sample=rate), totals=tmp_path / file).to_dict()
            page = render(build_tabulation_page(report))
            statement = verify(tmp_path / file).body["details"]
            with (tmp_path / file).open() as rows:
                total = next(csv.DictReader(rows))
            sampled = added > 0
            assert report["levels"][0]["sample_deviation"] == pytest.approx(added)
            assert float(total["sample_deviation"]) == report["totals"][0]["sample_deviation"]
            assert (float(total["sample_deviation"]) > 0) == sampled
            assert ("54.77" in page) == ("the sample adds" in page) == ("sample deviation" in page) == sampled
            for notes in (report["notes"], statement["notes"]):
                assert any("secret sample" in note for note in notes) == sampled


def test_errors_of_sampled_shares_hold_what_the_sample_adds() -> None:
    """Shares of a sample of one in 10 of 400 areas of 1,000 people, a tenth of whom are meant: no noise at all."""
    draws = np.random.default_rng(5)
    whole = draws.binomial(1000, 0.1, 400) * 10.0
    part = draws.binomial((whole / 10).astype(int), 0.1) * 10.0
    told = smooth_shares(part, whole, 0.0, 0.0, [0] * 400, sampling=9)
    off = part / whole - 0.1
    direct = smooth_shares(part[:2], whole[:2], 0.0, 0.0, [0, 1], sampling=9).errors
    assert direct == pytest.approx([math.sqrt(np.mean(off**2))] * 2, rel=0.8)
    assert np.all(told.errors < 0.02)
    assert np.mean((told.smoothed - 0.1) ** 2) < np.mean(off**2) / 10
    assert np.mean(smooth_shares(part, whole, 0.0, 0.0, [0] * 400).errors) < 1e-5  # what the noise alone would say


def test_where_a_sample_saves_nothing_that_is_proven_it_is_refused(tmp_path: Path) -> None:
    policy = make(tmp_path, "{column: pid, max_groups: 1, max_rows_per_group: 1, neighboring: replace}")
    plan = Tabulation("t", "people", budget(epsilon=1)) | Select(sample=Fraction(1, 2)) | Partition(("sex",))
    with Curator.open(policy, ledger=tmp_path / "ledger.sqlite") as curator:
        with pytest.raises(QueryRefused, match="replaces"):
            curator.explain_tabulate(plan)
        gaussian = Tabulation("t", "people", budget(rho=1)) | Select(sample=Fraction(1, 2)) | Partition(("sex",))
        with pytest.raises(ParameterError, match="epsilon alone"):
            curator.explain_tabulate(gaussian)
    text = (
        policy.read_text()
        + "tabulation: {t: {table: people, cells: [sex], sample: 0.5, invariants: {all: total}, epsilon: 1}}\n"
    )
    policy.write_text(text)
    with pytest.raises(PolicyError):
        read_unaccepted(policy)


def test_intervals_of_weighted_totals_hold_the_population_and_those_of_the_noise_alone_do_not() -> None:
    generator = np.random.default_rng(12)
    weights = generator.choice([2, 5, 10], 2000)
    works = generator.random(2000) < 0.4
    truth = works.sum()
    noise, squares = LaplaceMechanism(Fraction(20), Fraction(10)), LaplaceMechanism(Fraction(180), Fraction(90))
    hits, alone = 0, 0
    for _ in range(300):
        taken = generator.random(2000) < 1 / weights
        w = weights[taken & works].astype(np.int64)
        total = int(noise.release(np.array([w.sum()]))[0])
        spread = int(squares.release(np.array([(w * (w - 1)).sum()]))[0])
        off = noise.accuracy(0.05)
        found = combine_errors(total, total - off, total + off, spread)
        hits += found.low <= truth <= found.high
        alone += abs(total - truth) <= off
    assert 0.91 < hits / 300 < 0.99
    assert alone / 300 < 0.85


def test_smoothing_has_less_error_than_what_it_smooths_and_says_how_much() -> None:
    generator = np.random.default_rng(8)
    raw, smooth, said = [], [], []
    for _ in range(40):
        truth = generator.normal(0.3, 0.05, 60)
        noise = generator.choice([0.01, 0.2], 60)
        seen = truth + generator.normal(0, noise)
        found = smooth_areas(seen, noise**2)
        raw.append(np.mean((seen - truth) ** 2))
        smooth.append(np.mean((found.values - truth) ** 2))
        said.append(np.mean(found.errors**2))
    assert np.mean(smooth) < 0.2 * np.mean(raw)
    assert 0.8 < np.mean(said) / np.mean(smooth) < 1.25


def test_smoothing_leaves_exact_values_and_follows_its_covariates() -> None:
    x = np.linspace(0, 1, 30)
    exact = np.column_stack([np.ones(30), x])
    seen = 2 + 3 * x
    assert smooth_areas(seen, np.full(30, 1e-9), exact).values == pytest.approx(seen, abs=1e-4)
    lone = seen.copy()
    lone[10] = 50.0
    variances = np.full(30, 1e-6)
    variances[10] = 1e4
    assert smooth_areas(lone, variances, exact).values[10] == pytest.approx(seen[10], abs=0.01)


def test_shares_of_tiny_areas_are_drawn_to_their_group_and_those_of_large_ones_stay() -> None:
    part = np.array([300.0, 280, 310, 9, 0, 0])
    whole = np.array([1000.0, 1000, 1000, 10, 3, 0])
    found = smooth_shares(part, whole, 20.0, 20.0, [0, 0, 0, 0, 0, 0])
    assert found.smoothed[0] == pytest.approx(0.3, abs=0.015)
    assert abs(found.smoothed[3] - 0.3) < abs(found.published[3] - 0.3) / 3
    assert found.smoothed[5] == pytest.approx(0.3, abs=0.05)
    assert found.errors[3] < 0.5


def test_an_exact_area_stays_as_it_is_and_is_not_taken_for_the_truth_of_all() -> None:
    """Before, the others became it, with an error of 0."""
    found = smooth_areas(np.array([0.1, 0.2, 0.3]), np.array([0.0, 1.0, 1.0]))
    assert found.values.tolist() == [0.1, 0.2, 0.3]
    assert found.errors.tolist() == [0.0, 1.0, 1.0]
    values, noise = np.array([0.1, 0.3, 0.2, 0.4, 0.9]), np.array([0.01, 0.01, 0.02, 0.01, 0.0])
    alone = smooth_areas(values[:4], noise[:4])
    together = smooth_areas(values, noise)
    assert together.values.tolist() == [*alone.values.tolist(), 0.9]
    assert together.errors.tolist() == [*alone.errors.tolist(), 0.0]


@pytest.mark.parametrize("wrong", [[0.1, -1.0, 0.1], [0.1, math.inf, 0.1], [0.1, math.nan, 0.1], [0.1, 0.1]])
def test_variances_that_are_none_are_refused(wrong: list[float]) -> None:
    with pytest.raises(ParameterError, match=r"same areas|not a number"):
        smooth_areas(np.array([0.1, 0.2, 0.3]), np.array(wrong))
    with pytest.raises(ParameterError, match=r"same areas|not a number"):
        smooth_areas(np.array([0.1, math.nan, 0.3]), np.ones(3))
