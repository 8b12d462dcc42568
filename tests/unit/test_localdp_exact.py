"""Small promises of local randomizers, each by hand or by a naive twin: limits, losses, variances, messages."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from deniable.errors import DataError, ParameterError
from deniable.localdp.attributes import Attributes, Hierarchy, scale_up
from deniable.localdp.client import Memory, Refused, encode
from deniable.localdp.frequency.hadamard import Hadamard
from deniable.localdp.frequency.hashing import LocalHashing
from deniable.localdp.frequency.randomized_response import Direct, warner
from deniable.localdp.frequency.sketch import HadamardSketch, Rappor, _remove_collisions
from deniable.localdp.frequency.subset import Subset
from deniable.localdp.likelihood_ratio import check_epsilon, odds_below
from deniable.localdp.numeric.mechanisms import PLACES, BoundedLaplace, Duchi, Hybrid, Window
from deniable.localdp.numeric.scale import Scale, check_positions, mean_of, worst_variance
from deniable.localdp.protocol import (
    Bits,
    Chosen,
    Frequencies,
    Whole,
    check_answers,
    check_domain,
    estimate_from_support,
    normal_quantile,
    support_variance,
)
from deniable.localdp.serialization import check, from_bytes, from_json, to_bytes, to_json
from deniable.localdp.shuffle_model import _half_binomial, bound_delta

ODDS = odds_below(1)
TEN = Scale.between(0, 10)


def test_a_number_is_asked_by_the_bit_where_the_hybrid_is_no_better() -> None:
    """At a small epsilon the hybrid is the bit with an arm that is never used, and a longer message."""
    for epsilon, expected in (("0.3", Duchi), (2, Hybrid)):
        (chosen,) = Attributes.calibrate([TEN], epsilon, 1000).protocols
        assert isinstance(chosen, expected)


def test_an_attribute_that_nobody_drew_is_even_and_without_any_certainty() -> None:
    found = scale_up(Frequencies(np.zeros(4), np.zeros(4), 0), 100)
    assert found.counts.tolist() == [25.0] * 4
    assert np.isinf(found.variances).all()
    assert found.responses == 100


def test_counts_from_a_part_of_all_grow_with_the_square_and_with_the_luck_of_the_draw() -> None:
    found = scale_up(Frequencies(np.array([10.0, 30.0]), np.array([5.0, 7.0]), 40), 100)
    assert found.counts.tolist() == [25.0, 75.0]
    luck = 100**2 * 0.25 * 0.75 / 40 * (1 - 40 / 100)
    assert found.variances.tolist() == pytest.approx([5 * 6.25 + luck, 7 * 6.25 + luck])
    everybody = scale_up(Frequencies(np.array([10.0, 30.0]), np.array([5.0, 7.0]), 40), 40)
    assert everybody.variances.tolist() == [5.0, 7.0]


SCALE: dict[str, Any] = {"lower": [0, 1], "upper": [8, 1], "steps": 8}


def recipe_costing(numerator: int, denominator: int) -> dict[str, Any]:
    """A recipe of exactly this epsilon."""
    return {"protocol": "laplace", "scale": SCALE, "claimed": [numerator, denominator], "clamped": False}


def test_tenths_of_an_allowance_add_up_to_all_of_it() -> None:
    memory = Memory(allowance=0.3)
    for answer in range(3):
        memory.response("q", recipe_costing(1, 10), answer)
    with pytest.raises(Refused, match=r"told 0\.3 of 0\.3"):
        memory.response("q", recipe_costing(1, 10**6), 3)
    with pytest.raises(Refused):
        Memory(allowance=1.0).response("q", recipe_costing(10**10 + 15, 10**10), 0)


def test_a_question_is_answered_as_often_as_allowed_and_each_month_has_its_own_allowance() -> None:
    months = ["may"]
    memory = Memory(most_answers=2, allowance=1.0, name_period=lambda: months[-1])
    first = memory.response("q", recipe_costing(1, 2), 0)
    assert memory.response("q", recipe_costing(1, 2), 0) == first
    with pytest.raises(Refused, match="2 times"):
        memory.response("q", recipe_costing(1, 2), 2)
    with pytest.raises(Refused, match="this device has told 1 of 1"):
        memory.response("other", recipe_costing(1, 2), 0)
    months.append("june")
    memory.response("other", recipe_costing(1, 1), 0)


def test_a_survey_may_ask_a_device_less_often_but_not_more() -> None:
    memory = Memory(most_answers=2)
    memory.response("q", recipe_costing(1, 2), 0, most_answers=1)
    with pytest.raises(Refused, match="1 times"):
        memory.response("q", recipe_costing(1, 2), 0, most_answers=1)
    memory.response("q", recipe_costing(1, 2), 0, most_answers=100)
    with pytest.raises(Refused, match="2 times"):
        memory.response("q", recipe_costing(1, 2), 0, most_answers=100)


def test_numbers_are_held_to_their_bounds_and_rounded_to_the_nearest_step() -> None:
    question = {"type": "number", "lower": -1, "upper": 1, "steps": 4}
    assert [encode(question, x)[0] for x in (-9, -1, -0.76, -0.74, 0, 0.24, 0.26, 1, 9)] == [0, 0, 0, 1, 2, 2, 3, 4, 4]
    assert encode({"type": "several", "name": "q", "options": ["a", "b", "c"]}, ["c", "a"]) == [1, 0, 1]
    assert encode({"type": "one", "name": "q", "options": ["a", "b", "c"]}, "c") == [2]
    with pytest.raises(Refused, match="is one of a, b"):
        encode({"type": "several", "name": "q", "options": ["a", "b"]}, ["a", "x"])


def test_the_largest_domain_of_hadamard_responses_is_two_to_the_twenty_six() -> None:
    assert Hadamard(1 << 26, 1, ODDS).domain == 1 << 26
    with pytest.raises(ParameterError):
        Hadamard((1 << 26) + 1, 1, ODDS)
    for blocks in (0, 3, 6, -2):
        with pytest.raises(ParameterError, match="blocks"):
            Hadamard(100, blocks, ODDS)


@pytest.mark.parametrize("said", [[], [0], [1], [0, 0, 1], [1, 1, 1, 0]])
def test_a_tally_of_coins_counts_no_and_yes_even_where_nobody_said_it(said: list[int]) -> None:
    assert warner(3).tally((np.array(said, dtype=np.int64),)).tolist() == [said.count(0), said.count(1)]


def test_losses_are_the_logarithm_of_the_odds() -> None:
    for protocol in (
        Duchi(TEN, Fraction(3)),
        Window(TEN, 4, 2, Fraction(3)),
        Hybrid(Duchi(TEN, Fraction(2)), Window(TEN, 4, 2, Fraction(3)), 9),
    ):
        assert protocol.epsilon == pytest.approx(math.log(3), rel=1e-12)
    assert BoundedLaplace.calibrate(TEN, "1.5").epsilon == 1.5


def test_a_window_has_at_least_one_place_and_one_cell() -> None:
    assert Window(TEN, 1, 1, Fraction(2)).cells == 2
    for places, width in ((0, 1), (1, 0), (0, 0)):
        with pytest.raises(ParameterError, match="no room"):
            Window(TEN, places, width, Fraction(2))


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1, 2.5, 8])
def test_widths_of_windows_are_those_of_the_papers(epsilon: float) -> None:
    power = math.exp(epsilon)
    b = (epsilon * power - power + 1) / (2 * power * (power - 1 - epsilon))
    assert Window.square_wave(TEN, epsilon).width == pytest.approx(max(1, round(PLACES * 2 * b)), abs=1)
    assert Window.piecewise(TEN, epsilon).width == max(1, round(PLACES / math.exp(epsilon / 2)))
    for tiny in ("0.0001", "0.00001", "0.000002"):
        assert Window.square_wave(TEN, tiny).width == PLACES


@pytest.mark.parametrize("steps", [1, 2, 7, 10])
def test_the_worst_variance_is_that_of_the_worst_position(steps: int) -> None:
    scale = Scale.between(0, steps)
    for protocol in (
        Duchi.calibrate(scale, 1),
        Window.piecewise(scale, 1, 60),
        Window.piecewise(scale, 3, 60),
        Hybrid.calibrate(scale, 2),
        BoundedLaplace.calibrate(scale, 1),
    ):
        naive = max(protocol.variance(position) for position in range(steps + 1)) / steps**2
        assert worst_variance(protocol) == pytest.approx(naive, rel=1e-9)


@pytest.mark.parametrize(
    "protocol", [Duchi(TEN, Fraction(3)), Window(TEN, 6, 3, Fraction(3)), Window(TEN, 10, 1, Fraction(7))]
)
def test_readings_of_numbers_are_unbiased_with_the_variance_told(protocol: Any) -> None:
    """By hand over all responses, from their exact likelihoods."""
    for position in range(11):
        law = [(value, float(chance)) for (value,), chance in protocol.likelihoods(position)]
        readings = protocol.positions((np.array([value for value, _ in law]),))
        mean = sum(chance * reading for (_, chance), reading in zip(law, readings, strict=True))
        spread = sum(chance * (reading - mean) ** 2 for (_, chance), reading in zip(law, readings, strict=True))
        assert sum(chance for _, chance in law) == pytest.approx(1)
        assert mean == pytest.approx(position)
        assert protocol.variance(position) == pytest.approx(spread)


@pytest.mark.parametrize("position", range(11))
def test_a_window_answers_as_its_likelihoods_say(position: int) -> None:
    """Every draw of both uniform integers is tried: their share is the probability, exactly."""
    protocol = Window(TEN, 6, 3, Fraction(3, 2))
    counts: dict[int, int] = {}
    bounds = protocol.draws
    for draws in product(*map(range, bounds)):
        (cell,) = protocol.respond(np.array([position]), *(np.array([draw]) for draw in draws))
        counts[int(cell[0])] = counts.get(int(cell[0]), 0) + 1
    expected = {cell: chance for (cell,), chance in protocol.likelihoods(position)}
    assert {cell: Fraction(count, math.prod(bounds)) for cell, count in counts.items()} == expected


def test_positions_off_the_scale_are_refused_and_not_named() -> None:
    assert check_positions(np.array([0, 10]), TEN).tolist() == [0, 10]
    assert check_positions(np.array([], dtype=np.int64), TEN).tolist() == []
    for wrong in ([-1, 5], [5, 11]):
        with pytest.raises(DataError, match="off the scale") as refusal:
            check_positions(np.array(wrong), TEN)
        assert str(wrong[0]) not in refusal.value.happened
    for shape in (np.array([[1]]), np.array([1.0]), np.array(["1"])):
        with pytest.raises(DataError, match="whole numbers"):
            check_positions(shape, TEN)


def test_the_mean_of_one_has_all_the_spread_there_is_and_of_none_is_refused() -> None:
    noise = BoundedLaplace.calibrate(Scale.between(10, 20, "0.5"), 16)
    one = mean_of(noise, (np.array([6 + noise.reach]),))
    assert (one.value, one.responses) == (13.0, 1)
    assert one.error == pytest.approx(math.sqrt(0.3 * 0.7 * 10**2 + noise.variance(0) * 0.5**2))
    low, high = one.interval()
    assert low < 10
    assert 20 < high < math.inf
    two = mean_of(noise, (np.array([6, 10]) + noise.reach,))
    assert (two.value, two.responses) == (14.0, 2)
    assert two.error == pytest.approx(math.sqrt(8) * 0.5 / math.sqrt(2))
    with pytest.raises(DataError, match="no responses"):
        mean_of(noise, (np.array([], dtype=np.int64),))


def test_scales_are_cut_into_whole_steps_and_round_to_the_nearest() -> None:
    scale = Scale.between(-1, 1, "0.5")
    assert (scale.steps, scale.step) == (4, Fraction(1, 2))
    assert scale.position_of(np.array([-2, -0.8, -0.7, 0.2, 0.3, 5])).tolist() == [0, 0, 1, 2, 3, 4]
    assert scale.value_of(np.array([0, 1, 4])).tolist() == [-1.0, -0.5, 1.0]
    for lower, upper, step in ((0, 1, "0.3"), (0, 1, 0), (0, 1, -1), (1, 1, 1), (2, 1, 1), (0, 1 << 31, 1)):
        with pytest.raises(ParameterError):
            Scale.between(lower, upper, step)
    with pytest.raises(DataError, match="missing"):
        scale.position_of(np.array([0.0, math.nan]))


LAYOUT = (Whole("x", 300), Bits("b", 11), Chosen("c", 3, 300))
GOOD = (np.array([299, 0]), np.array([[255, 7], [0, 0]], dtype=np.uint8), np.array([[0, 1, 299], [5, 6, 7]]))


def test_messages_are_read_as_they_were_written() -> None:
    for read in (from_bytes(LAYOUT, to_bytes(LAYOUT, GOOD)), from_json(LAYOUT, to_json(LAYOUT, GOOD))):
        for found, sent in zip(read, GOOD, strict=True):
            assert found.tolist() == sent.tolist()
    assert [len(column) for column in from_bytes(LAYOUT, b"")] == [0, 0, 0]
    assert to_json(LAYOUT, GOOD)[0] == [299, "ff07", [0, 1, 299]]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, [300, 0]),
        (1, np.array([[0, 8], [0, 0]], dtype=np.uint8)),
        (2, [[0, 1, 300], [5, 6, 7]]),
        (2, [[0, 1, 2], [5, 5, 7]]),
        (2, [[0, 1, 2], [5, 7, 6]]),
        (2, [[2, 1, 0], [5, 6, 7]]),
    ],
)
def test_bytes_that_no_client_sends_are_refused(place: int, value: Any) -> None:
    columns = list(GOOD)
    columns[place] = np.asarray(value)
    with pytest.raises(DataError, match="does not fit its protocol"):
        from_bytes(LAYOUT, to_bytes(LAYOUT, tuple(columns)))


def test_bytes_of_another_length_are_refused() -> None:
    message = to_bytes(LAYOUT, GOOD)
    for wrong in (message[:-1], message + b"\0"):
        with pytest.raises(DataError):
            from_bytes(LAYOUT, wrong)


@pytest.mark.parametrize(
    "response",
    [
        [299, "ff07", [0, 1, 300]], [299, "ff07", [-1, 1, 2]], [299, "ff07", [1, 1, 2]], [299, "ff07", [2, 1, 3]],
        [299, "ff07", [0, 1]], [299, "ff07", [0, 1, True]], [299, "ff08", [0, 1, 2]], [299, "FF07", [0, 1, 2]],
        [299, "ff7", [0, 1, 2]], [300, "ff07", [0, 1, 2]], [-1, "ff07", [0, 1, 2]], [True, "ff07", [0, 1, 2]],
        [1.0, "ff07", [0, 1, 2]], [299, "ff07"], "x", [299, "ff07", [0, 1, 2], 1],
    ],
)  # fmt: skip
def test_json_that_no_client_sends_is_refused(response: object) -> None:
    check(LAYOUT, [299, "ff07", [0, 1, 299]])
    check(LAYOUT, [0, "0000", [0, 1, 2]])
    with pytest.raises(DataError):
        check(LAYOUT, response)


def _naive_delta(clones: int, truth: float, epsilon: float) -> float:
    """Every count of the clones' larger side, in the definition of delta."""
    chance = [
        Fraction(math.comb(clones, a), 2**clones) if 0 <= a <= clones else Fraction(0) for a in range(-1, clones + 2)
    ]
    t, odds = Fraction(truth), Fraction(math.exp(epsilon))
    total = Fraction(0)
    for a in range(clones + 2):
        before, here = chance[a], chance[a + 1]
        total += max(t * before + (1 - t) * here - odds * ((1 - t) * before + t * here), Fraction(0))
    return float(total)


@pytest.mark.parametrize("clones", [0, 1, 2, 3, 10, 63, 64, 700])
@pytest.mark.parametrize(("local", "epsilon"), [(1, 0.1), (1, 0.9), (4, 0.01), (4, 0.5), (4, 3.9), (2, 2.5)])
def test_delta_after_shuffling_is_the_sum_over_all_counts(clones: int, local: float, epsilon: float) -> None:
    truth = math.exp(local) / (math.exp(local) + 1)
    one_group = np.array([clones]), np.array([1.0])
    assert bound_delta(local, epsilon, one_group) == pytest.approx(
        _naive_delta(clones, truth, epsilon), rel=1e-9, abs=1e-15
    )


@pytest.mark.parametrize("trials", [0, 1, 7, 500])
def test_halves_are_binomial_and_nothing_lies_outside(trials: int) -> None:
    counts = np.arange(-1, trials + 2)
    naive = [0.0, *(float(Fraction(math.comb(trials, a), 2**trials)) for a in range(trials + 1)), 0.0]
    assert _half_binomial(counts, trials).tolist() == pytest.approx(naive, rel=1e-9, abs=1e-300)


# Parameters that tell nothing or everything


@pytest.mark.parametrize("odds", [Fraction(1), Fraction(1, 2), Fraction(0), Fraction(-3)])
@pytest.mark.parametrize(
    "make",
    [
        lambda odds: Hadamard(10, 1, odds),
        lambda odds: Direct(10, odds),
        lambda odds: Subset(10, 3, odds),
        lambda odds: HadamardSketch(4, 16, odds),
        lambda odds: LocalHashing(10, 4, odds),
        lambda odds: Duchi(TEN, odds),
        lambda odds: Window(TEN, 4, 2, odds),
    ],
    ids=["hadamard", "k-ary", "subset", "sketch", "hashing", "duchi", "window"],
)
def test_odds_that_tell_nothing_are_refused(make: Any, odds: Fraction) -> None:
    assert make(Fraction(3)) is not None
    with pytest.raises(ParameterError):
        make(odds)


def test_epsilons_are_above_nothing_and_at_most_sixteen() -> None:
    assert [check_epsilon(each) for each in ("0.001", 16)] == [Fraction(1, 1000), 16]
    for wrong in (0, -1, "16.001"):
        with pytest.raises(ParameterError, match="epsilon is"):
            check_epsilon(wrong)
    for epsilon in ("0.01", 1, 5, 16):
        odds = odds_below(epsilon, 1000)
        assert odds <= math.exp(float(epsilon)) < odds + Fraction(1, 1000)


def test_domains_answers_and_confidences_outside_their_range_are_refused() -> None:
    assert [check_domain(2), check_domain(9, 9)] == [2, 9]
    for domain, largest in ((1, 9), (10, 9), (0, 9), ((1 << 30) + 1, 1 << 30)):
        with pytest.raises(ParameterError, match="the domain has"):
            check_domain(domain, largest)
    assert check_answers(np.array([0, 8]), 9).tolist() == [0, 8]
    assert check_answers(np.array([]), 9).tolist() == []
    for wrong in ([-1, 3], [3, 9]):
        with pytest.raises(DataError, match="outside the domain"):
            check_answers(np.array(wrong), 9)
    for shape in (np.array([[1]]), np.array([1.5])):
        with pytest.raises(DataError, match="one column"):
            check_answers(shape, 9)
    assert normal_quantile(0.95) == pytest.approx(1.959964, rel=1e-6)
    for confidence in (0.0, 1.0, -0.5, 2.0):
        with pytest.raises(ParameterError, match="confidence is"):
            normal_quantile(confidence)


def test_filters_have_room_and_their_bits_tell_neither_nothing_nor_everything() -> None:
    good = {"width": 16, "hashes": 8, "cohorts": 1 << 12, "flip": 1, "one": 65535, "zero": 1}
    assert Rappor(**good).cohorts == 4096
    assert Rappor(**good | {"flip": 32767, "hashes": 1, "cohorts": 1}).flip == 32767
    wrong: list[dict[str, int]] = [
        {"hashes": 0}, {"hashes": 9}, {"cohorts": 0}, {"cohorts": 4097}, {"flip": 0}, {"flip": 32768},
        {"zero": 0}, {"one": 1}, {"one": 65536}, {"zero": 65535},
    ]  # fmt: skip
    for change in wrong:
        with pytest.raises(ParameterError):
            Rappor(**good | change)


# Estimates


def test_counts_are_inverted_from_support_and_their_variance_is_held_inside() -> None:
    p, q = Fraction(3, 4), Fraction(1, 4)
    found = estimate_from_support(np.array([25, 50, 90, 10]), 100, p, q)
    assert found.counts.tolist() == [0.0, 50.0, 130.0, -30.0]
    assert found.variances.tolist() == pytest.approx([100 * 3 / 16 / 0.25] * 4)
    uneven = estimate_from_support(np.array([30]), 100, Fraction(1, 2), Fraction(1, 10))
    assert uneven.counts.tolist() == pytest.approx([50.0])
    assert uneven.variances.tolist() == pytest.approx([(50 * 0.25 + 50 * 0.09) / 0.16])
    assert support_variance(Fraction(1, 2), Fraction(1, 10), 0.5) == pytest.approx((0.5 * 0.25 + 0.5 * 0.09) / 0.16)
    assert uneven.shares.tolist() == pytest.approx([0.5])
    assert Frequencies(np.array([3.0]), np.array([4.0]), 0).shares.tolist() == [3.0]
    low, high = Frequencies(np.array([10.0]), np.array([4.0]), 20).interval(0.95)
    assert (low[0], high[0]) == pytest.approx((10 - 3.919928, 10 + 3.919928), rel=1e-6)


def test_collisions_of_strings_are_taken_out_and_priced() -> None:
    raw, responses, variance, (hashes, width) = np.array([60.0, 20.0, 12.0]), 100, 0.5, (4, 10)
    found = _remove_collisions(raw, responses, variance, (hashes, width))
    counts = [(each - 10) * 10 / 9 for each in raw]
    excess = sum(count**2 for count in counts) - 3 * 50
    assert found.counts.tolist() == pytest.approx(counts)
    assert found.variances.tolist() == pytest.approx([50 + excess / 43] * 3)
    calm = _remove_collisions(np.array([10.0, 11.0]), responses, variance, (hashes, width))
    assert calm.variances.tolist() == [50.0, 50.0], "squares below their noise tell of no collision"


@pytest.mark.parametrize("epsilon", ["0.5", 2, 16])
def test_the_variance_of_bounded_noise_is_that_of_the_discrete_law(epsilon: Any) -> None:
    protocol = BoundedLaplace.calibrate(TEN, epsilon)
    ratio = math.exp(-1 / float(protocol.noise_scale))
    naive = sum(2 * k * k * ratio**k for k in range(1, 4000)) * (1 - ratio) / (1 + ratio)
    assert protocol.variance(3) == pytest.approx(naive, rel=1e-9)
    assert protocol.reach == math.ceil(44 * protocol.noise_scale)
    assert BoundedLaplace.calibrate(TEN, epsilon, clamped=True).reach == 0


def test_the_hybrid_uses_its_window_in_no_case_or_in_the_balanced_share() -> None:
    assert Hybrid.calibrate(TEN, "0.3").window_turns == 0
    assert Hybrid.calibrate(TEN, 2).window_turns == round((1 - math.exp(-1)) * 65536)


def test_fields_take_as_few_bytes_as_hold_them() -> None:
    assert [Whole("x", bound).bytes for bound in (1, 2, 256, 257, 1 << 16, (1 << 16) + 1)] == [1, 1, 1, 2, 2, 3]
    assert [Bits("b", length).bytes for length in (1, 8, 9, 16)] == [1, 1, 2, 2]
    assert Chosen("c", 3, 257).bytes == 6


def test_hierarchies_have_at_least_two_positions_and_a_fan_out_of_two() -> None:
    assert len(Hierarchy.calibrate(2, 1, 100, fanout=2).protocols) == 1
    assert len(Hierarchy.calibrate(17, 1, 100).protocols) == 3
    assert len(Hierarchy.calibrate(16, 1, 100).protocols) == 2
    for positions, fanout in ((1, 4), ((1 << 20) + 1, 4), (10, 1), (10, 0)):
        with pytest.raises(ParameterError, match="positions in a fan-out"):
            Hierarchy.calibrate(positions, 1, 100, fanout)
    for fanout, protocols in ((1, (Direct(4, Fraction(3)),)), (4, ())):
        with pytest.raises(ParameterError, match="no levels"):
            Hierarchy(fanout, protocols)


@pytest.mark.parametrize("clamped", [False, True])
def test_responses_of_bounded_noise_are_mirrored_with_the_scale(clamped: bool) -> None:
    matrix = BoundedLaplace.calibrate(Scale.between(0, 4), 8, clamped).matrix(4)
    assert matrix.sum(axis=0) == pytest.approx(np.ones(4))
    assert matrix == pytest.approx(matrix[::-1, ::-1])
