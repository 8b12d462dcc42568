"""Consistency, comparisons, ranges, strings and distributions: against brute force and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.errors import DataError, ParameterError
from deniable.localdp import postprocessing
from deniable.localdp.attributes import Hierarchy, make_consistent
from deniable.localdp.frequency.randomized_response import Direct
from deniable.localdp.frequency.sketch import HadamardSketch
from deniable.localdp.heavy_hitters import PrefixTree
from deniable.localdp.numeric.distribution import estimate_distribution, mean_of_shares
from deniable.localdp.numeric.mechanisms import BoundedLaplace, Window
from deniable.localdp.numeric.scale import Scale, mean_of
from deniable.localdp.protocol import Frequencies
from seeded import SeededEntropy

COUNTS = st.lists(st.floats(-50, 100), min_size=1, max_size=12)


@settings(deadline=None)
@given(COUNTS, st.floats(0.5, 200))
def test_projection_is_on_the_simplex_and_nothing_there_is_closer(counts, total):
    array = np.array(counts)
    held = postprocessing.project(array, total)
    assert (held >= 0).all()
    assert held.sum() == pytest.approx(total)
    # Optimality: moving weight from any positive coordinate to any other cannot come closer.
    gradient = held - array
    positive = held > 1e-9
    assert (gradient[:, None] >= gradient[positive].max() - 1e-6).all()


@settings(deadline=None)
@given(COUNTS, st.floats(0.5, 200))
def test_norm_sub_arrives_at_the_projection(counts, total):
    array = np.array(counts)
    assert postprocessing.norm_sub(array, total) == pytest.approx(postprocessing.project(array, total), abs=1e-6)


def test_base_cut_keeps_what_stands_clear_of_the_noise():
    found = Frequencies(np.array([500.0, 20.0, -30.0]), np.full(3, 100.0), 1000)
    assert postprocessing.base_cut(found).tolist() == [500.0, 0.0, 0.0]
    with pytest.raises(ParameterError):
        postprocessing.base_cut(found, confidence=1.5)


def test_known_totals_bind_each_group():
    held = postprocessing.with_known_totals(
        np.array([5.0, -1.0, 3.0, 9.0]), np.array([0, 0, 1, 1]), np.array([6.0, 10.0])
    )
    assert held.tolist() == [6.0, 0.0, 2.0, 8.0]
    with pytest.raises(ParameterError, match="groups"):
        postprocessing.with_known_totals(np.array([1.0]), np.array([0, 1]), np.array([1.0]))


def compare_shares(first: Frequencies, second: Frequencies) -> tuple[postprocessing.Difference, ...]:
    """For each answer, how far its share in the first group exceeds that in the second."""
    variances = postprocessing.vary_shares(first) + postprocessing.vary_shares(second)
    return postprocessing.assess_differences(first.shares - second.shares, variances)


def test_a_difference_between_groups_is_found_and_no_difference_is_not():
    protocol, entropy = Direct.calibrate(3, 1), SeededEntropy(8)
    alarms, found = 0, 0
    for _ in range(200):
        groups = [np.repeat([0, 1, 2], split) for split in ((1000, 600, 400), (1000, 600, 400), (600, 1000, 400))]
        told = [protocol.estimate(protocol.tally(protocol.randomize(g, entropy)), 2000) for g in groups]
        alarms += min(d.p_value for d in compare_shares(told[0], told[1])) < 0.05
        found += min(d.p_value for d in compare_shares(told[0], told[2])) < 0.05
    assert alarms <= 20  # Holm keeps false alarms at 5%; without the noise's variance far more would ring
    assert found >= 180


def test_ignoring_the_noise_would_ring_false_alarms():
    protocol, entropy, alarms = Direct.calibrate(3, 1), SeededEntropy(8), 0
    group = np.repeat([0, 1, 2], (1000, 600, 400))
    for _ in range(100):
        told = [protocol.estimate(protocol.tally(protocol.randomize(group, entropy)), 2000) for _ in range(2)]
        bare = [Frequencies(f.counts, np.zeros(3), 2000) for f in told]
        alarms += min(d.p_value for d in compare_shares(*bare)) < 0.05
    assert alarms > 20


def test_chi_square_tails_are_those_of_tables():
    assert postprocessing.chi_square_tail(3.841, 1) == pytest.approx(0.05, abs=1e-4)
    assert postprocessing.chi_square_tail(5.991, 2) == pytest.approx(0.05, abs=1e-4)
    assert postprocessing.chi_square_tail(18.307, 10) == pytest.approx(0.05, abs=1e-4)
    assert postprocessing.chi_square_tail(24.996, 15) == pytest.approx(0.05, abs=1e-4)
    assert postprocessing.chi_square_tail(0, 3) == 1


def test_homogeneity_on_told_answers_keeps_its_level():
    protocol, entropy = Direct.calibrate(4, 1), SeededEntropy(3)
    same = np.repeat(np.arange(4), (400, 300, 200, 100))
    other = np.repeat(np.arange(4), (100, 200, 300, 400))
    p_same = [
        postprocessing.compare_distributions([protocol.tally(protocol.randomize(same, entropy)) for _ in range(2)])[2]
        for _ in range(200)
    ]
    tallies = [protocol.tally(protocol.randomize(group, entropy)) for group in (same, other)]
    assert np.mean(np.array(p_same) < 0.05) < 0.11
    assert postprocessing.compare_distributions(tallies)[2] < 1e-6
    with pytest.raises(DataError):
        postprocessing.compare_distributions([np.array([1, 2])])


def test_a_difference_has_the_interval_of_its_error():
    (gap,) = postprocessing.assess_differences([6.0], [25.0])
    assert (gap.value, gap.error) == (6, 5)
    assert gap.interval(0.95)[0] == pytest.approx(6 - 1.96 * 5, abs=0.01)


def test_consistency_of_a_tree_is_least_squares():
    levels = [
        Frequencies(np.array([60.0, 30.0]), np.full(2, 4.0), 100),
        Frequencies(np.array([20.0, 35.0, 10.0, 30.0]), np.full(4, 9.0), 100),
    ]
    leaves = make_consistent(levels, 2, 100)
    # Brute force: minimize the weighted squares over leaves that add up to 100.
    design = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], float)
    weight = np.diag([1 / 4] * 2 + [1 / 9] * 4)
    seen = np.array([60, 30, 20, 35, 10, 30], float)
    system = np.block([[design.T @ weight @ design, np.ones((4, 1))], [np.ones((1, 4)), np.zeros((1, 1))]])
    solved = np.linalg.solve(system, np.append(design.T @ weight @ seen, 100))[:4]
    assert leaves == pytest.approx(solved)


def test_ranges_and_quantiles_of_a_hierarchy_hold_the_truth():
    rng = np.random.default_rng(0)
    ages = np.clip(rng.normal(45, 18, 40_000).astype(int), 0, 63)
    plan = Hierarchy.calibrate(64, 2, 40_000)
    found = plan.estimate(plan.randomize(ages, SeededEntropy(6)))
    assert found.counts.sum() == pytest.approx(40_000)
    for start, end in ((0, 64), (10, 30), (16, 48), (5, 6)):
        share = found.share(start, end)
        assert abs(share.value - ((ages >= start) & (ages < end)).mean()) < 4 * share.error + 1e-9
    median, low, high = found.quantile(0.5)
    assert low <= np.median(ages) <= high
    assert low <= median <= high
    with pytest.raises(ParameterError):
        found.share(5, 99)


def test_tiles_of_a_range_cover_it_exactly_once():
    found = Hierarchy.calibrate(64, 1, 100).estimate(Hierarchy.calibrate(64, 1, 100).randomize(np.arange(64)))
    for start in range(0, 64, 5):
        for end in range(start, 65, 7):
            sizes = {0: 16, 1: 4, 2: 1}
            assert sum(count * sizes[level] for level, count in found._cover(start, end).items()) == end - start


def test_heavy_strings_are_found_without_a_dictionary_and_light_ones_are_not_made_up():
    rng, entropy = np.random.default_rng(3), SeededEntropy(5)
    words, shares = ["flu", "asthma", "none"], [0.3, 0.25, 0.25]
    held = [words[i] for i in rng.choice(3, 16_000, p=np.array(shares) / sum(shares))]
    rare = ["".join(rng.choice(list("abcdefg"), 6)) for _ in range(4000)]
    tree = PrefixTree.calibrate(4, "abcdefghijklmnopqrstuvwxyz", 6)
    told = tree.randomize(held + rare, entropy)
    found = tree.discover(told)
    assert set(found) == set(words)
    counted = tree.count(told, found)
    truth = np.array([held.count(word) for word in found]) / 20_000
    low, high = (end / counted.responses for end in counted.interval(0.99999, population=True))
    assert ((low < truth) & (truth < high)).all()
    assert (truth > tree.least_share(20_000)).all()


def test_words_of_noise_alone_are_not_found_with_few_respondents_nor_with_many():
    """At most one survey in twenty may name one: of 150, more than 20 would be so by chance once in 10,000."""
    rng, tree = np.random.default_rng(4), PrefixTree("ab", 2, 1, 1, HadamardSketch.calibrate(1, hashes=8, width=64))
    empty = ["".join(rng.choice(list("cdefgh"), 2)) + str(i) for i in range(3000)]
    named = [tree.discover(tree.randomize(empty[:size], SeededEntropy(seed)))
             for size in (3, 40, 3000) for seed in range(50)]  # fmt: skip
    assert sum(any(set(word) & set("ab") for word in found) for found in named) <= 20


def test_a_word_is_counted_by_others_than_those_who_found_it():
    tree = PrefixTree("ab", 4, 2, 2, HadamardSketch.calibrate(4, hashes=4, width=16))
    turns, *sketch = tree.randomize(["ab"] * 500 + ["ba"] * 500, SeededEntropy(3))
    searching = turns < tree.levels
    search, others = (tuple(column[part] for column in (turns, *sketch)) for part in (searching, ~searching))
    assert tree.discover(search) == tree.discover((turns, *sketch))
    assert tree.discover(others) == ()
    assert (tree.count(others, ["ab"]).counts == tree.count((turns, *sketch), ["ab"]).counts).all()
    assert tree.count(search, ["ab"]).responses == 0


def test_foreign_characters_are_told_as_one_and_long_words_are_cut():
    tree = PrefixTree("abc", 4, 2, 1, HadamardSketch.calibrate(1))
    assert tree.cut("ab!c", 9) == tree.cut("ab\u00e9c", 9) == "ab\ufffdc"
    assert tree.cut("abcabc", 9) == "abca"
    assert (tree.cut("abc", 0), tree.cut("abc", 1), tree.cut("", 1)) == ("ab", "abc\0", "\0\0\0\0")
    for alphabet, longest, step, counting in (("aab", 4, 2, 1), ("", 4, 2, 1), ("ab", 5, 2, 1), ("ab", 4, 2, 0)):
        with pytest.raises(ParameterError):
            PrefixTree(alphabet, longest, step, counting, tree.sketch)


def test_the_square_wave_recovers_a_distribution_that_clamped_means_miss():
    rng, scale = np.random.default_rng(1), Scale.between(0, 100)
    values = np.concatenate((rng.normal(20, 5, 30_000), rng.normal(75, 6, 30_000))).clip(0, 100)
    truth = np.histogram(values, 20, (0, 100))[0] / len(values)
    wave = Window.square_wave(scale, 2)
    shares = estimate_distribution(wave, wave.randomize(scale.position_of(values), SeededEntropy(2)), 20)
    assert shares.sum() == pytest.approx(1)
    assert np.abs(shares - truth).sum() / 2 < 0.15
    clamped = BoundedLaplace.calibrate(scale, 2, clamped=True)
    skewed = values[values < 50]
    told = clamped.randomize(scale.position_of(skewed), SeededEntropy(2))
    assert mean_of(clamped, told).value > skewed.mean() + 5  # clamping draws the mean to the middle
    assert abs(mean_of_shares(estimate_distribution(clamped, told, 50), scale) - skewed.mean()) < 3


def test_matrices_of_window_and_laplace_are_stochastic():
    for protocol in (
        Window.square_wave(Scale.between(0, 9), 1, places=64),
        BoundedLaplace.calibrate(Scale.between(0, 9), 1),
    ):
        assert protocol.matrix(8).sum(axis=0) == pytest.approx(np.ones(8))
        assert (protocol.matrix(8) >= 0).all()
