"""Accuracies, budgets and guards of mechanisms, by formulas that are written out again here."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from statistics import NormalDist

import pytest

from deniable.dp.accounting import (
    PureAccountant,
    ZCDPAccountant,
    epsilon_of_zcdp,
    from_dict,
    pld,
    rho_within,
    zcdp_cost,
)
from deniable.dp.accounting.calibration import calibrate_gaussian, epsilon_of
from deniable.dp.accounting.composition import Composition, _dominate_all
from deniable.dp.accounting.events import GaussianEvent, PureEvent
from deniable.dp.accounting.zcdp import zcdp_within
from deniable.dp.mechanisms import (
    AboveThreshold,
    GaussianMechanism,
    LaplaceMechanism,
    QuantileMechanism,
    mechanism,
    threshold,
)
from deniable.dp.mechanisms.mechanism import split_alpha
from deniable.dp.mechanisms.quantile import Node, _split_budget, plan_order
from deniable.errors import ParameterError
from deniable.policy.budget import ZCDP, ApproxDP, PureDP


def naive_errors(mechanism: QuantileMechanism, node: Node, low: float, high: float, alpha: float) -> list[float]:
    """The error in rank of a choice and of all after it, part by part."""
    share, width = float(node.share), mechanism.upper - mechanism.lower + 1
    moved = mechanism.rows_per_unit * (1.0 if mechanism.exchanged else max(share, 1 - share))
    own = math.log(width / alpha) * 2 * moved / float(mechanism.epsilon)
    noise = moved / min(float(mechanism.epsilon) / 5, 8 / 5) * math.log(2 / alpha) + 1
    meant = (1 - share) * low + share * high
    found = [meant + own]
    if node.below is not None:
        found += naive_errors(mechanism, node.below, low, meant + max(own, noise), alpha)
    if node.above is not None:
        found += naive_errors(mechanism, node.above, meant + max(own, noise), high, alpha)
    return found


QUANTILES = [
    ("1/2",),
    ("1/4", "3/4"),
    ("1/10", "1/2", "4/5"),
    ("9/10", "99/100"),
    tuple(f"{n}/10" for n in range(1, 10)),
]


@pytest.mark.parametrize("quantiles", QUANTILES)
@pytest.mark.parametrize("upper", [1, 100, 10**9])
@pytest.mark.parametrize("epsilon", [Fraction(1, 3), Fraction(50)])
@pytest.mark.parametrize("size", [1, 7])
def test_the_accuracy_of_quantiles_is_the_largest_error_of_any_part(
    quantiles: tuple[str, ...], upper: int, epsilon: Fraction, size: int
) -> None:
    made = QuantileMechanism(tuple(Fraction(q) for q in quantiles), 0, upper, epsilon, rows_per_unit=3)
    nodes = made.order.nodes
    draws = len(nodes) + sum(node.divides for node in nodes)
    errors = [e for root in made.order.roots for e in naive_errors(made, root, 0.0, 0.0, 0.05 / size / draws)]
    assert made.accuracy(0.05, size) == math.ceil(max(errors) * (1 + 1e-9))


@pytest.mark.parametrize("quantiles", QUANTILES)
@pytest.mark.parametrize("amount", [Fraction(1, 7), Fraction(3), Fraction(40), Fraction(500)])
def test_choices_and_divisions_keep_a_budget_and_use_all_of_it(quantiles: tuple[str, ...], amount: Fraction) -> None:
    order = plan_order(tuple(Fraction(q) for q in quantiles))
    each = _split_budget(PureDP(amount), order.choices, order.divisions)
    assert order.choices * each + order.divisions * min(each / 5, Fraction(8, 5)) == amount
    spent = QuantileMechanism.within(ZCDP(amount), quantiles, 0, 10**6)
    cost = zcdp_cost(spent.event)
    assert cost is not None
    assert amount * Fraction(999_999, 1_000_000) <= cost.amount <= amount


def test_a_threshold_is_guarded_by_its_guard_and_the_size_of_its_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threshold, "GUARD", Fraction(1, 2))
    for scale, probability in ((Fraction(3), Fraction(1, 1000)), (Fraction(10), Fraction(1, 10**6))):
        with localcontext() as context:
            context.prec = 50
            q = (-Decimal(1) / Decimal(int(scale))).exp()
            allowed = Decimal(probability.numerator) / Decimal(probability.denominator)
            reach = -Decimal(int(scale)) * (allowed * (1 + q)).ln()
        assert threshold.laplace_reach.__wrapped__(scale, probability) == math.ceil(reach + (1 + reach) / 2)
    # Where the reach is below zero the guard grows with its size too: the least threshold is 1 all the same.
    assert threshold.laplace_reach.__wrapped__(Fraction(1, 10), Fraction(999, 1000)) == 1


@pytest.mark.parametrize(
    ("budget", "told"),
    [
        (PureDP(1), "no price without delta"),
        (ApproxDP(1, 0), "no price without delta"),
        (ApproxDP(0, "1e-6"), "no price without delta"),
        (ZCDP(0), "rho is 0"),
        (ZCDP(0, "1e-6"), "rho is 0"),
    ],
)
def test_a_budget_without_gaussian_noise_is_refused_by_its_reason(budget: object, told: str) -> None:
    with pytest.raises(ParameterError, match=told):
        calibrate_gaussian(budget, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("budget", [PureDP(0), ApproxDP(0, "1e-6"), ZCDP(0)])
def test_no_epsilon_is_refused_by_its_reason(budget: object) -> None:
    with pytest.raises(ParameterError, match="the budget is 0"):
        epsilon_of(budget)  # type: ignore[arg-type]


def test_one_of_several_is_dominated_by_the_common_one_the_widest_or_the_largest() -> None:
    leaf, other = frozenset({(PureEvent(1), 2)}), frozenset({(PureEvent(3), 1)})
    free, half = Composition(), Composition(gaussian=Fraction(1, 2))
    small, large = Fraction(1, 100), Fraction(1, 10)
    assert _dominate_all([Composition(leaf, delta=small), free]) == Composition(leaf, delta=small)
    assert _dominate_all([Composition(leaf, delta=small), Composition(leaf, delta=large)]) == Composition(
        leaf, delta=large
    )
    assert _dominate_all([half, Composition(gaussian=Fraction(2), delta=small)]) == Composition(
        gaussian=Fraction(2), delta=small
    )
    assert _dominate_all([Composition(leaf), Composition(other)]) == Composition(other)
    four = Composition(frozenset({(PureEvent(1), 4)}))
    assert (four.epsilon, Composition(leaf | other).epsilon, free.epsilon) == (4, 5, 0)
    assert _dominate_all([four, Composition(other)]) == Composition(frozenset({(PureEvent(4), 1)}))
    assert _dominate_all([Composition(leaf), None]) is None
    assert _dominate_all([Composition(leaf), half]) is None
    assert _dominate_all([Composition(leaf, Fraction(1, 2)), Composition(leaf, Fraction(1, 2))]) == Composition(
        leaf, Fraction(1, 2)
    )
    assert _dominate_all([Composition(leaf), Composition(leaf, private=False)]) == Composition(leaf, private=False)
    assert _dominate_all([]) == free


def test_after_what_has_no_price_nothing_is_left_of_a_limit() -> None:
    pure = PureAccountant(PureDP(3)).compose(PureEvent(1))
    rho = ZCDPAccountant(ZCDP(3)).compose(GaussianEvent(Fraction(1, 2)))
    assert (pure.compute_remaining(), rho.compute_remaining()) == (PureDP(2), ZCDP(2))
    broken = replace(pure, cost=replace(pure.cost, private=False)), replace(rho, cost=replace(rho.cost, private=False))
    assert [each.compute_remaining() for each in broken] == [PureDP(0), ZCDP(0)]
    assert [each.compute_spent() for each in broken] == [None, None]


@pytest.mark.parametrize("share", [-1, 1, Fraction(-1, 100), 2])
def test_a_share_for_thresholds_is_less_than_all(share: object) -> None:
    with pytest.raises(ParameterError, match="threshold_share is outside"):
        zcdp_within(ApproxDP(1, "1e-6"), share)  # type: ignore[arg-type]
    none, half = zcdp_within(ApproxDP(1, "1e-6"), 0), zcdp_within(ApproxDP(1, "1e-6"))
    assert (none.delta, half.delta) == (0, Fraction(1, 2 * 10**6))
    assert none.rho == rho_within(Fraction(1), Fraction(1, 10**6))
    assert half.rho == rho_within(Fraction(1), Fraction(1, 2 * 10**6))


def test_probabilities_are_split_over_values_released_together() -> None:
    assert split_alpha(0.05, 5) == 0.01
    for alpha, size, told in ((0.05, 0, "size is below 1"), (0.0, 1, "alpha"), (1.0, 1, "alpha")):
        with pytest.raises(ParameterError, match=told):
            split_alpha(alpha, size)


@pytest.mark.parametrize("alpha", [0.05, 0.3])
def test_accuracies_are_rounded_to_more_and_never_to_less(alpha: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanism, "_ROUNDING", 2.0)
    laplace = LaplaceMechanism(Fraction(7), Fraction(1))
    reach = 7 * math.log(2 / (alpha / 3 * (1 + math.exp(-1 / 7))))
    assert laplace.accuracy(alpha, 3) == math.ceil(2 * reach) - 1
    gaussian = GaussianMechanism(Fraction(49), Fraction(1))
    assert gaussian.accuracy(alpha, 3) == math.ceil(2 * 7 * NormalDist().inv_cdf(1 - alpha / 6))


def test_no_quantile_is_refused_and_one_integer_alone_is_always_chosen() -> None:
    for budget in (PureDP(1), ZCDP(1)):
        with pytest.raises(ParameterError, match="the quantiles are not numbers from 0 to 1"):
            QuantileMechanism.within(budget, (), 0, 10)
        alone = QuantileMechanism.within(budget, ("1/4", "3/4"), 5, 5)
        assert alone.release([1, 9, 5]).tolist() == [5, 5]
        assert alone.release([]).tolist() == [5, 5]


@pytest.mark.parametrize(
    ("quantiles", "largest"),
    [((1,), "9/10"), ((5,), "1/2"), ((1, 5), "9/10"), ((5, 9), "9/10"), ((1, 5, 9), "4/5")],
)
def test_the_sensitivity_of_several_quantiles_is_the_largest_of_a_choice(
    quantiles: tuple[int, ...], largest: str
) -> None:
    made = QuantileMechanism(tuple(Fraction(each, 10) for each in quantiles), 0, 100, Fraction(1))
    assert made.sensitivity == Fraction(largest)


@pytest.mark.parametrize("groups", [True, False, 0, -1])
def test_a_threshold_needs_a_whole_number_of_groups(groups: int) -> None:
    with pytest.raises(ParameterError, match="max_groups is below 1"):
        threshold.KeyThreshold(LaplaceMechanism(Fraction(10), Fraction(1)), Fraction(1, 10**6), groups)


@pytest.mark.parametrize("events", [{}, "", "ab", None, 7, {"kind": "pure", "epsilon": "1"}])
def test_parts_of_an_event_are_a_list(events: object) -> None:
    with pytest.raises(ParameterError, match="are not a list"):
        from_dict({"kind": "composed", "events": events})


def test_losses_are_asked_for_at_a_delta_that_is_not_larger_than_the_one_promised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[float] = []

    class Distribution:
        def get_epsilon_for_delta(self, delta: float) -> float:
            asked.append(delta)
            return 1.0

    monkeypatch.setattr(pld, "_distribution", lambda composed: Distribution())
    pld._epsilon.cache_clear()
    delta = Fraction(1, 10**6)
    found = pld._epsilon(Composition(), delta)
    pld._epsilon.cache_clear()
    assert found is not None
    assert found > 1
    assert 0.999_999_999 * float(delta) < asked[0] < float(delta)


@pytest.mark.parametrize("epsilon", [1, 0.5, "1/3", Fraction(2, 7)])
def test_a_quantiles_epsilon_is_exact_however_it_is_written(epsilon: object) -> None:
    made = QuantileMechanism((Fraction(1, 2),), 0, 100, epsilon)  # type: ignore[arg-type]
    assert (type(made.epsilon), made.epsilon) == (Fraction, Fraction(str(epsilon)))
    for wrong in (0, -1, "0"):
        with pytest.raises(ParameterError):
            QuantileMechanism((Fraction(1, 2),), 0, 100, wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("epsilon", "delta"), [("1", "1e-6"), ("0.1", "1e-5"), ("3", "1e-9"), ("0.01", "1e-3")])
def test_the_rho_within_a_promise_is_the_largest(epsilon: str, delta: str) -> None:
    promised, small = Fraction(epsilon), Fraction(delta)
    found = rho_within(promised, small)
    assert epsilon_of_zcdp(found, small) <= promised < epsilon_of_zcdp(found * (1 + Fraction(1, 10**9)), small)


@pytest.mark.parametrize(("times", "size", "alpha"), [(1, 1, 0.05), (3, 10, 0.1), (2, 500, 0.01)])
def test_a_search_errs_by_the_noise_of_threshold_and_answers_each_at_half_the_risk(
    times: int, size: int, alpha: float
) -> None:
    made = AboveThreshold(0, Fraction(1, 100), times=times)
    noise, half = LaplaceMechanism(made.scale), 1 - math.sqrt(1 - alpha)
    halves = {noise.accuracy(share, times) + noise.accuracy(share, size * times) for share in (alpha / 2, half)}
    assert min(halves) <= made.accuracy(alpha, size) <= max(halves)
