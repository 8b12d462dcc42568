"""The choice of a protocol follows the rules of the field and says why; wrong parameters are refused in words."""

from __future__ import annotations

import math

import numpy as np
import pytest

from deniable.errors import DataError, Infeasible, ParameterError
from deniable.localdp.attributes import Attributes
from deniable.localdp.frequency.hadamard import Hadamard, transform
from deniable.localdp.frequency.randomized_response import CoinDesign, Direct, warner
from deniable.localdp.frequency.subset import Subset
from deniable.localdp.frequency.unary import Unary
from deniable.localdp.likelihood_ratio import epsilon_of, is_within_epsilon, odds_below
from deniable.localdp.numeric.scale import Scale, mean_of
from deniable.localdp.protocol_choice import choose, choose_numeric


@pytest.mark.parametrize("epsilon", [0.5, 1, 2, 4])
def test_k_ary_is_chosen_exactly_while_it_beats_unary(epsilon):
    border = 3 * math.exp(epsilon) + 2
    for domain in (2, int(border) - 1, int(border) + 2, 500):
        if domain < 2:
            continue
        direct, unary = Direct.calibrate(domain, epsilon).variance(), Unary.calibrate(domain, epsilon).variance()
        assert (direct < unary) == (domain < border)
    assert choose(2, epsilon, 1000).name == "k-ary"


def test_the_choice_says_why_and_what_it_beat():
    choice = choose(domain=1024, epsilon=1, n=10_000, bytes=4)
    assert choice.name == "hadamard"
    assert "would need 128 bytes" in choice.reason
    assert choice.contenders[0].variance <= choice.contenders[-1].variance
    assert choose(16, 1, 1000).name == "subset selection"


def test_one_bit_hadamard_is_for_small_epsilon_only():
    assert Hadamard.calibrate(1000, "0.5").blocks == 1
    assert Hadamard.calibrate(1000, 4).blocks > 8
    one_bit, blocks = Hadamard(1000, 1, odds_below(4)), Hadamard.calibrate(1000, 4)
    assert blocks.variance() < one_bit.variance()


def test_numeric_choice_is_the_bit_for_small_and_the_hybrid_for_larger_epsilon():
    scale = Scale.between(0, 10)
    assert choose_numeric(scale, "0.3")[0] == "duchi"
    assert choose_numeric(scale, 2)[0] == "hybrid"


def test_exact_odds_never_exceed_the_claim_and_come_close():
    for epsilon in ("0.001", "0.1", "1", "2.5", "10", "16"):
        odds = odds_below(epsilon)
        assert is_within_epsilon(odds, epsilon)
        assert float(epsilon) - epsilon_of(odds) < 1e-6 / min(1, float(epsilon))
    assert not is_within_epsilon(odds_below(1) + odds_below(1, 1 << 20) / 10**6, 1)


@pytest.mark.parametrize("epsilon", [0, -1, 17, "nan", "much", True, float("inf")])
def test_an_epsilon_outside_its_domain_is_refused(epsilon):
    with pytest.raises(ParameterError):
        Direct.calibrate(4, epsilon)


def test_wrong_domains_and_answers_are_refused_without_quoting_them():
    for wrong in (0, 1, -4, 2**40):
        with pytest.raises(ParameterError):
            Direct.calibrate(wrong, 1)
    protocol = Direct.calibrate(4, 1)
    for answers in (np.array([4]), np.array([-1]), np.array([1.5]), np.array([[1]]), np.array(["a"])):
        with pytest.raises(DataError) as refusal:
            protocol.randomize(answers)
        assert "1.5" not in str(refusal.value)
    with pytest.raises(ParameterError):
        choose(4, 1, 0)
    with pytest.raises(Infeasible):
        choose(100_000, 1, 10, bytes=1)
    with pytest.raises(ParameterError):
        Subset(5, 5, odds_below(1))
    with pytest.raises(ParameterError):
        Hadamard(5, 3, odds_below(1))


def test_useless_or_bare_coin_designs_are_refused():
    for instructions in (("yes", "no"), ("truth",), ("truth", "opposite"), ("yes", "maybe")):
        with pytest.raises(ParameterError):
            CoinDesign(instructions)
    with pytest.raises(ParameterError):
        warner(1, 2)


def test_nobody_and_one_person_are_answered_too():
    for protocol in (
        Direct.calibrate(4, 1),
        Unary.calibrate(4, 1),
        Hadamard.calibrate(4, 1),
        Subset.calibrate(4, 1),
    ):
        nobody = protocol.estimate(protocol.tally(protocol.randomize(np.array([], dtype=np.int64))), 0)
        assert nobody.counts.tolist() == [0] * 4
        assert nobody.shares.tolist() == [0] * 4
        one = protocol.estimate(protocol.tally(protocol.randomize(np.array([2]))), 1)
        assert np.isfinite(one.interval()[0]).all()
    with pytest.raises(DataError):
        mean_of(choose_numeric(Scale.between(0, 1), 1)[1], (np.array([], dtype=np.int64), np.array([], dtype=np.int64)))


def test_scales_refuse_what_they_cannot_hold():
    with pytest.raises(ParameterError, match="step"):
        Scale.between(0, 10, 3)
    with pytest.raises(ParameterError):
        Scale.between(5, 5)
    with pytest.raises(DataError, match="missing"):
        Scale.between(0, 10).position_of(np.array([1.0, np.nan]))
    assert Scale.between(0, 10).position_of(np.array([-np.inf, np.inf])).tolist() == [0, 10]


def test_the_fast_transform_is_the_hadamard_matrix():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, 16))
    matrix = np.array([[(-1) ** (i & j).bit_count() for j in range(16)] for i in range(16)])
    assert transform(values) == pytest.approx(values @ matrix)


def test_attributes_refuse_columns_that_do_not_match():
    plan = Attributes.calibrate([3, 4], 1, 100)
    with pytest.raises(DataError):
        plan.randomize([np.array([0, 1])])
    with pytest.raises(DataError):
        plan.randomize([np.array([0]), np.array([0, 1])])
    assert Attributes.calibrate([3, 4], 1, 100, sampled=False).odds <= odds_below(1) * (1 + 1)
