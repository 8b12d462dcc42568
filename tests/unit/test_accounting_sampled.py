"""Rounds of Gaussian noise on samples: no cheaper than Google's PLD, hardly dearer, one price everywhere."""

from fractions import Fraction

import numpy as np
import pytest

from deniable.dp.accounting import (
    ComposedEvent,
    GaussianEvent,
    PLDAccountant,
    SampledGaussianEvent,
    ZCDPAccountant,
    cheap_epsilon,
    from_dict,
    pure_cost,
    sampled,
    to_dict,
    to_google,
    zcdp_cost,
)
from deniable.dp.accounting.composition import Composition, compose_dominating_pairs
from deniable.dp.accounting.cost import Cost
from deniable.dp.accounting.sampled import calibrate_sampled, compute_curves, find_shift, has_price, state_sampled
from deniable.errors import BudgetExceeded, ParameterError
from deniable.policy.budget import ZCDP, ApproxDP, PureDP

DELTA = Fraction(1, 10**6)
SQUARED = Fraction(2**40)
ROUNDS = [("1/10", 5.0, 300), ("1/4", 8.0, 100), ("1/2", 3.0, 10), ("1/100", 1.2, 500), ("9/10", 20.0, 50)]


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("rate", "deviation", "count"), ROUNDS)
def test_curves_are_above_googles_and_within_one_percent(rate: str, deviation: float, count: int) -> None:
    library = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    low, high = (
        library.from_gaussian_mechanism(
            deviation,
            sampling_prob=float(Fraction(rate)),
            value_discretization_interval=1e-4,
            pessimistic_estimate=careful,
        ).self_compose(count)
        for careful in (False, True)
    )
    (epsilons, removed), (others, added) = compute_curves(float(Fraction(rate)), 1 / deviation, count)
    for epsilon in (0.0, 0.1, 0.5, 1.0, 2.0):
        ours = max(np.interp(epsilon, epsilons, removed), np.interp(epsilon, others, added))
        assert low.get_delta_for_epsilon(epsilon) <= ours + 1e-12
        assert ours <= high.get_delta_for_epsilon(epsilon) * 1.01 + 1e-9


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("epsilon", "rate", "count"), [(1, "1/10", 300), (4, "1/10", 100), ("0.1", "1/4", 40), (1, "1/2", 4)]
)
def test_a_calibrated_event_keeps_its_budget_by_googles_account_and_spends_nearly_all(
    epsilon: str | int, rate: str, count: int
) -> None:
    library = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    event = calibrate_sampled(ApproxDP(epsilon, DELTA), SQUARED, Fraction(rate), count)
    deviation = float((event.variance - 4) / event.sensitivity_squared) ** 0.5
    told = library.from_gaussian_mechanism(
        deviation, sampling_prob=float(Fraction(rate)), value_discretization_interval=1e-4
    ).self_compose(count)
    spent = cheap_epsilon(event, DELTA)
    assert spent is not None
    assert told.get_epsilon_for_delta(float(DELTA)) <= float(spent) <= float(Fraction(epsilon))
    assert told.get_epsilon_for_delta(float(DELTA)) > 0.9 * float(Fraction(epsilon))


def test_one_gaussian_dominates_the_rounds_at_every_epsilon() -> None:
    """The claim itself, on a grid of its own, with the deltas that Google's account gives."""
    library = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution")
    rate, count, aside = Fraction(1, 5), 60, Fraction(1, 10**8)
    shift = float(find_shift(rate, Fraction(16), count, aside)) ** 0.5
    rounds = library.from_gaussian_mechanism(
        4.0, sampling_prob=0.2, value_discretization_interval=1e-4, pessimistic_estimate=False
    ).self_compose(count)
    one = library.from_gaussian_mechanism(1 / shift, value_discretization_interval=1e-4)
    for epsilon in np.linspace(0, 4, 81).tolist():
        allowed = 1e-8 + (1 - 1e-8) * one.get_delta_for_epsilon(epsilon)
        assert rounds.get_delta_for_epsilon(epsilon) <= allowed + 1e-12
    # A Gaussian that is shifted a tenth less does not.
    less = library.from_gaussian_mechanism(1.1 / shift, value_discretization_interval=1e-4)
    assert any(
        rounds.get_delta_for_epsilon(epsilon) > 1e-8 + less.get_delta_for_epsilon(epsilon)
        for epsilon in np.linspace(0, 4, 81).tolist()
    )


def test_a_sampled_event_has_one_price_for_every_accountant() -> None:
    event = state_sampled(Fraction(1, 10), 30 * SQUARED, SQUARED, 200, Fraction(1, 10**8))
    assert pure_cost(event) is None
    assert zcdp_cost(event) == Cost(1 / (2 * event.ratio), Fraction(1, 10**8))
    assert compose_dominating_pairs(event) == Composition(gaussian=1 / event.ratio, delta=event.delta)
    # Without samples the same rounds cost a hundred times as much, or nearly: rate^2.
    whole = 200 / (2 * Fraction(30))
    assert whole / 100 < event.rho < whole / 80
    other = GaussianEvent(100)
    both = ComposedEvent((event, other))
    assert zcdp_cost(both) == Cost(event.rho + other.rho, event.delta)
    told = PLDAccountant().compose(both).epsilon(DELTA)
    assert told <= float(cheap_epsilon(both, DELTA) or 0) * (1 + 1e-9)
    account = ZCDPAccountant.within(ApproxDP(2, DELTA)).compose(event)
    assert account.cost.delta == event.delta
    with pytest.raises(BudgetExceeded):
        ZCDPAccountant.within(ApproxDP("0.01", DELTA)).compose(event)


def test_a_sampled_event_survives_a_file_and_is_priced_by_google_at_no_more() -> None:
    accounting = pytest.importorskip("dp_accounting")
    event = state_sampled(Fraction(1, 10), 30 * SQUARED, SQUARED, 200, Fraction(1, 10**8))
    assert from_dict(to_dict(event)) == event
    form = to_google(event)
    assert form["class_name"] == "SelfComposedDpEvent"
    drawn = form["event"]
    assert isinstance(drawn, dict)
    inner = accounting.PoissonSampledDpEvent(
        drawn["sampling_probability"], accounting.GaussianDpEvent(drawn["event"]["noise_multiplier"])
    )
    account = pytest.importorskip("dp_accounting.pld").PLDAccountant()
    account.compose(accounting.SelfComposedDpEvent(inner, form["count"]))
    assert account.get_epsilon(float(DELTA)) <= float(cheap_epsilon(event, DELTA) or 0)


def test_more_noise_smaller_samples_and_fewer_rounds_cost_less() -> None:
    base = (Fraction(1, 4), Fraction(25), 50, Fraction(1, 10**8))
    price = find_shift(*base)
    for place, less in ((0, Fraction(1, 5)), (1, Fraction(30)), (2, 40), (3, Fraction(1, 10**7))):
        changed = [*base]
        changed[place] = less  # type: ignore[call-overload]
        assert find_shift(*changed) < price  # type: ignore[arg-type]


def test_what_cannot_be_priced_is_refused() -> None:
    assert has_price(ApproxDP(1, "1e-8"))
    assert has_price(ZCDP("0.1", "1e-9"))
    for budget in (PureDP(1), ApproxDP(1, "1e-9"), ZCDP("0.1")):
        assert not has_price(budget)
        with pytest.raises(ParameterError, match="no price within this budget"):
            calibrate_sampled(budget, SQUARED, Fraction(1, 10), 10)
    with pytest.raises(ParameterError, match=r"its epsilon is too large.*State such an epsilon"):
        calibrate_sampled(ApproxDP(9999, "1e-6"), SQUARED, Fraction(1, 10), 10)
    event = calibrate_sampled(ZCDP("0.1", "1e-8"), SQUARED, Fraction(1, 10), 50)
    assert event.rho <= Fraction(1, 10)
    assert event.delta == Fraction(1, 10**8)
    with pytest.raises(ParameterError, match="too small"):
        state_sampled(Fraction(1, 10), Fraction(4), Fraction(1), 10, DELTA)
    with pytest.raises(ParameterError, match="too small to be priced"):
        find_shift(Fraction(1, 2), Fraction(1, 1000), 1000, DELTA)
    for wrong in ({"rate": 1}, {"rate": 0}, {"delta": 1}, {"count": -1}, {"ratio": 0}):
        fields = {"rate": "1/2", "variance": 9, "sensitivity_squared": 1, "count": 1, "ratio": 1, "delta": "1e-8"}
        with pytest.raises(ParameterError):
            SampledGaussianEvent(**(fields | wrong))  # type: ignore[arg-type]


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(("rate", "shift", "count"), [(0.1, 8.0, 30), (0.5, 8.0, 20), (0.9, 9.9, 9)])
def test_losses_whose_exponential_is_not_finite_are_priced_without_a_warning(
    rate: float, shift: float, count: int
) -> None:
    curves = compute_curves(rate, shift, count)
    assert max(losses[-1] for losses, _ in curves) > 710, "or nothing is tested"
    for _, deltas in curves:
        assert np.isfinite(deltas).all()
        assert (np.diff(deltas) <= 1e-9).all(), "beyond there, too, a delta falls"


@pytest.mark.parametrize("shift", [20.0, 40.0])
def test_a_gaussian_curve_is_no_higher_where_it_is_bounded(shift: float) -> None:
    epsilons = np.array([699.9, 700.0, 700.1])
    near, above, beyond = sampled._gaussian_deltas(epsilons, shift)
    assert 0 <= beyond < above < near


def test_what_is_no_number_is_never_below_a_curve() -> None:
    losses = np.arange(4) * sampled.INTERVAL
    deltas = np.array([1e-4, 1e-5, 1e-12, 1e-12])
    assert sampled._is_below(losses, deltas, 1e-6, 10.0)
    for place in range(4):
        wrong = deltas.copy()
        wrong[place] = np.nan
        assert not sampled._is_below(losses, wrong, 1e-6, 10.0)


@pytest.mark.parametrize(("epsilon", "turns"), [("0.0001", 20), (500, 5)])
def test_rounds_that_the_grid_cannot_price_are_refused_with_what_to_change(epsilon: str | int, turns: int) -> None:
    with pytest.raises(ParameterError, match="Leave the rate out, or use a rate of 1"):
        calibrate_sampled(ApproxDP(epsilon, "1e-6"), SQUARED, Fraction(1, 10), turns)
