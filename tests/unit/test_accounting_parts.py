"""Parts of the accountants one by one: roundings by decimals, sums of costs, dominating pairs, calibration, forms."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Decimal, localcontext
from fractions import Fraction
from typing import Any

import pytest

from deniable.dp.accounting import (
    ComposedEvent,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    NoOpEvent,
    ParallelEvent,
    PureEvent,
    RandomizedEvent,
    SelectionEvent,
    SelfComposedEvent,
    ThresholdEvent,
    UnsupportedEvent,
    accountant_for,
    build_randomized_event,
    calibrate_gaussian,
    calibrate_laplace,
    calibration,
    cheap_epsilon,
    composition,
    epsilon_of,
    from_dict,
    pure_cost,
    to_dict,
    to_google,
    zcdp_cost,
)
from deniable.dp.accounting.composition import Composition, compose_dominating_pairs
from deniable.dp.accounting.cost import (
    GUARD,
    Cost,
    float_above,
    ln_above,
    precise,
    refuse_over,
    refuse_unsupported,
    round_above,
    round_down,
    round_up,
    shorten,
    sqrt_above,
)
from deniable.errors import BudgetExceeded, ParameterError
from deniable.policy.budget import ZCDP, ApproxDP, PureDP

THIRD = Fraction(1, 3)


# ---- roundings


def rounded(value: Fraction, digits: int, how: str) -> Fraction:
    """By the decimals of the standard library: so many significant digits, to one side."""
    with localcontext(precise(digits)) as context:
        context.rounding = how
        return Fraction(Decimal(value.numerator) / Decimal(value.denominator))


VALUES = [
    *(Fraction(n) for n in (1, 9, 10, 11, 99, 100, 12345678)),
    *(Fraction(1, n) for n in (3, 7, 9, 10, 11, 99, 101, 10**9 + 7)),
    *(Fraction(n, 7) for n in (6, 8, 69, 71, 10**9)),
    Fraction(999_999, 10**6),
    Fraction(99_999, 10**6),
]


@pytest.mark.parametrize("digits", [1, 2, 5, 12, 15])
@pytest.mark.parametrize("value", VALUES, ids=str)
def test_numbers_are_rounded_to_so_many_significant_digits(value: Fraction, digits: int) -> None:
    assert round_up(value, digits) == rounded(value, digits, ROUND_CEILING)
    assert round_down(value, digits) == rounded(value, digits, ROUND_FLOOR)


def test_twelve_digits_are_usual_and_nothing_stays_nothing() -> None:
    assert round_up(THIRD) == Fraction(333_333_333_334, 10**12)
    assert round_down(THIRD) == Fraction(333_333_333_333, 10**12)
    assert round_up(Fraction(0)) == round_down(Fraction(0)) == 0
    context = precise()
    assert (context.prec, context.Emax, context.Emin, precise(7).prec) == (60, MAX_EMAX, MIN_EMIN, 7)


@pytest.mark.parametrize("value", ["1", "0.3", "-0.3", "1e-30", "-1e-30", "1.5e-30", "12345.6789012345", "1e-29"])
def test_a_computed_number_is_widened_by_a_share_and_a_constant(value: str) -> None:
    exactly = Fraction(value)
    assert round_above(Decimal(value)) == round_up(max(exactly * (1 + GUARD) + GUARD, Fraction(0)))
    assert round_above(Decimal(value), 5) == round_up(max(exactly * (1 + GUARD) + GUARD, Fraction(0)), 5)


@pytest.mark.parametrize("value", ["0", "9.99e-31", "-9.99e-31", "1e-400"])
def test_a_number_nearer_to_zero_than_the_guard_is_twice_the_guard(value: str) -> None:
    assert round_above(Decimal(value)) == 2 * GUARD == Fraction(2, 10**30)


@pytest.mark.parametrize("value", [Fraction(2), Fraction(3, 2), Fraction(10**9), 1 + Fraction(1, 10**6)])
def test_a_logarithm_has_fifteen_digits_and_is_rounded_up(value: Fraction) -> None:
    with localcontext(precise(100)):
        truth = Fraction((Decimal(value.numerator) / Decimal(value.denominator)).ln())
    assert ln_above(value) == round_up(truth * (1 + GUARD) + GUARD, 15)
    assert ln_above(value, 4) == round_up(truth, 4)
    assert ln_above(Fraction(1)) == 0


@pytest.mark.parametrize("value", [Fraction(2), Fraction(1, 3), Fraction(10**11 + 1), Fraction(7, 10**9)])
def test_a_root_has_twelve_digits_and_is_rounded_up(value: Fraction) -> None:
    with localcontext(precise(100)):
        truth = Fraction((Decimal(value.numerator) / Decimal(value.denominator)).sqrt())
    assert sqrt_above(value) == round_up(truth * (1 + GUARD) + GUARD)
    assert sqrt_above(value, 4) == round_up(truth, 4)
    assert sqrt_above(Fraction(49, 10**8)) == Fraction(7, 10**4)
    assert sqrt_above(Fraction(0)) == 0


def test_a_root_just_below_a_round_number_is_not_taken_for_it() -> None:
    """What fifty digits cannot tell from the round number is rounded up as if it were above it."""
    less = 1 - Fraction(1, 10**40)
    assert sqrt_above(9 * less) == 3 + Fraction(1, 10**11)
    assert sqrt_above(less / 16) == Fraction(1, 4) + Fraction(1, 10**12)


def test_a_float_is_the_least_that_is_not_below() -> None:
    assert float_above(Fraction(1, 4)) == 0.25
    for value in (Fraction(1, 10), THIRD, Fraction(2, 3), Fraction(7, 10)):
        found = float_above(value)
        assert Fraction(math.nextafter(found, 0)) < value <= Fraction(found)


# ---- costs


def test_costs_add_up_repeat_and_fit() -> None:
    one, other = Cost(THIRD, Fraction(1, 10)), Cost(Fraction(1), Fraction(1, 5), private=False)
    assert one + other == Cost(Fraction(4, 3), Fraction(3, 10), private=False)
    assert one + one == Cost(2 * THIRD, Fraction(1, 5))
    assert one.times(3) == Cost(Fraction(1), Fraction(3, 10))
    assert (one.times(0), other.times(0), other.times(2).private) == (Cost(), Cost(), False)
    assert one.within(THIRD, Fraction(1, 10))
    assert not one.within(THIRD - GUARD, Fraction(1, 10))
    assert not one.within(THIRD, Fraction(1, 10) - GUARD)
    assert not other.within(Fraction(9), Fraction(1))


EVENTS: list[tuple[Any, Cost | None, Cost | None]] = [
    (NoOpEvent(), Cost(), Cost()),
    (NonPrivateEvent(), Cost(private=False), Cost(private=False)),
    (UnsupportedEvent(), None, None),
    (PureEvent(1), Cost(Fraction(1)), Cost(Fraction(1, 2))),
    (GaussianEvent(2, 3), None, Cost(Fraction(3, 4))),
    (ThresholdEvent(THIRD), Cost(delta=THIRD), Cost(delta=THIRD)),
    (ComposedEvent(()), Cost(), Cost()),
    (ComposedEvent((PureEvent(1), ThresholdEvent(THIRD))), Cost(Fraction(1), THIRD), Cost(Fraction(1, 2), THIRD)),
    (ComposedEvent((PureEvent(1), UnsupportedEvent())), None, None),
    (ComposedEvent((UnsupportedEvent(), PureEvent(1))), None, None),
    (SelfComposedEvent(PureEvent(1), 3), Cost(Fraction(3)), Cost(Fraction(3, 2))),
    (SelfComposedEvent(UnsupportedEvent(), 3), None, None),
    (ParallelEvent(()), Cost(), Cost()),
    (ParallelEvent((PureEvent(1), PureEvent(2), ThresholdEvent(THIRD))),
     Cost(Fraction(2), THIRD), Cost(Fraction(2), THIRD)),
    (ParallelEvent((PureEvent(1), NonPrivateEvent())),
     Cost(Fraction(1), private=False), Cost(Fraction(1, 2), private=False)),
    (ParallelEvent((PureEvent(1), UnsupportedEvent())), None, None),
    (RandomizedEvent(1), Cost(), Cost()),
    (RandomizedEvent(3), Cost(ln_above(Fraction(3))), Cost(ln_above(Fraction(3)) ** 2 / 2)),
]  # fmt: skip


@pytest.mark.parametrize(("event", "pure", "rho"), EVENTS, ids=lambda each: repr(each)[:40])
def test_every_kind_of_event_has_its_price(event: Any, pure: Cost | None, rho: Cost | None) -> None:
    assert pure_cost(event) == pure
    assert zcdp_cost(event) == rho


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (GaussianEvent(9), "cannot price Gaussian noise"),
        (ComposedEvent((PureEvent(1), GaussianEvent(9))), "cannot price Gaussian noise"),
        (ParallelEvent((PureEvent(1), GaussianEvent(9))), "cannot price Gaussian noise"),
        (SelfComposedEvent(GaussianEvent(9), 3), "cannot price Gaussian noise"),
        (ComposedEvent((PureEvent(1),)), "cannot price this composition"),
        (UnsupportedEvent(), r"cannot price an event that has no description\."),
        (UnsupportedEvent("a sketch"), r"cannot price an event that has no description \(a sketch\)"),
        (PureEvent(1), "cannot price a PureEvent"),
    ],
)
def test_an_event_that_cannot_be_priced_is_named(event: Any, told: str) -> None:
    with pytest.raises(ParameterError) as refusal:
        refuse_unsupported(event, "pure", "zcdp")
    assert refusal.match(told)
    assert refusal.value.remedy == "Use zcdp accounting, or another mechanism"


@pytest.mark.parametrize(("left", "remedy"), [(PureDP(THIRD), "at most epsilon 0.333333"), (PureDP(0), "used up")])
def test_a_refusal_says_how_much_can_still_be_asked(left: PureDP, remedy: str) -> None:
    class Account:
        def compute_remaining(self) -> PureDP:
            return left

    with pytest.raises(BudgetExceeded) as refusal:
        refuse_over("epsilon", Fraction(2), Fraction(0), True, Account())
    assert remedy in (refusal.value.remedy or "")
    assert (shorten(THIRD), shorten(Fraction(5)), shorten(Fraction(1, 10**7))) == ("0.333333", "5", "1e-07")


# ---- dominating pairs


PAIRS: list[tuple[Any, Composition | None]] = [
    (NoOpEvent(), Composition()),
    (NonPrivateEvent(), Composition(private=False)),
    (UnsupportedEvent(), None),
    (LaplaceEvent(3, 2), Composition(frozenset({(LaplaceEvent(3, 2), 1)}))),
    (LaplaceEvent(3, 0), Composition()),
    (PureEvent(2), Composition(frozenset({(PureEvent(2), 1)}))),
    (SelectionEvent(2, bounded_range=True), Composition(frozenset({(PureEvent(2), 1)}))),
    (PureEvent(0), Composition()),
    (RandomizedEvent(1), Composition()),
    (RandomizedEvent(3), Composition(frozenset({(PureEvent(ln_above(Fraction(3))), 1)}))),
    (ThresholdEvent(THIRD), Composition(delta=THIRD)),
    (GaussianEvent(4, 1), None),
    (GaussianEvent(4, 0), Composition()),
    (GaussianEvent(1, 0), Composition()),
    (GaussianEvent(9, 0), Composition()),
    (GaussianEvent(Fraction(9, 2), 3), Composition(gaussian=Fraction(6))),
    (ComposedEvent(()), Composition()),
    (ComposedEvent((PureEvent(2), PureEvent(2), GaussianEvent(6, 1), ThresholdEvent(THIRD))),
     Composition(frozenset({(PureEvent(2), 2)}), Fraction(1, 2), THIRD)),
    (ComposedEvent((PureEvent(2), GaussianEvent(4), PureEvent(2))), None),
    (ComposedEvent((PureEvent(2), NonPrivateEvent())), Composition(frozenset({(PureEvent(2), 1)}), private=False)),
    (SelfComposedEvent(ComposedEvent((PureEvent(2), GaussianEvent(6, 1), ThresholdEvent(THIRD))), 2),
     Composition(frozenset({(PureEvent(2), 2)}), Fraction(1), 2 * THIRD)),
    (SelfComposedEvent(NonPrivateEvent(), 2), Composition(private=False)),
    (SelfComposedEvent(NonPrivateEvent(), 0), Composition()),
    (SelfComposedEvent(GaussianEvent(4), 2), None),
    (ParallelEvent((GaussianEvent(6, 1), GaussianEvent(5, 1))), Composition(gaussian=Fraction(1))),
    (ParallelEvent((PureEvent(2), GaussianEvent(6, 1))), None),
]  # fmt: skip


@pytest.mark.parametrize(("event", "expected"), PAIRS, ids=lambda each: repr(each)[:50])
def test_every_kind_of_event_has_the_pairs_that_dominate_it(event: Any, expected: Composition | None) -> None:
    assert compose_dominating_pairs(event) == expected


def test_a_composition_is_free_where_nothing_but_thresholds_is_in_it() -> None:
    assert Composition(delta=THIRD).is_free
    assert not Composition(gaussian=THIRD).is_free
    assert not Composition(frozenset({(PureEvent(1), 1)})).is_free


def test_cheap_bounds_are_true_at_the_delta_of_thresholds_and_below_it_there_is_none() -> None:
    small = Fraction(1, 10**6)
    both = ComposedEvent((PureEvent(2), ThresholdEvent(small)))
    assert cheap_epsilon(both, small) == composition._bound_by_pure(both, small) == 2
    assert composition._bound_by_zcdp(both, small) is None
    assert cheap_epsilon(both, small / 2) is None
    assert composition._bound_by_zcdp(both, 2 * small) == composition.epsilon_of_zcdp(Fraction(2), small)
    noise = ComposedEvent((GaussianEvent(104, 25), ThresholdEvent(small)))
    assert composition._bound_by_gaussian(noise, small) is None
    assert composition._bound_by_gaussian(noise, 3 * small) == composition.epsilon_of_gaussian(Fraction(4), 2 * small)
    assert cheap_epsilon(noise, 3 * small) == composition._bound_by_gaussian(noise, 3 * small)
    assert composition._bound_by_gaussian(both, 3 * small) is None
    for event in (ComposedEvent((NonPrivateEvent(), GaussianEvent(104, 25))), ThresholdEvent(small), GaussianEvent(4)):
        assert composition._bound_by_gaussian(event, 3 * small) is None
    assert cheap_epsilon(NonPrivateEvent(), small) is None
    assert cheap_epsilon(UnsupportedEvent(), small) is None
    assert cheap_epsilon(ThresholdEvent(small), small) == 0


# ---- calibration


@pytest.mark.parametrize(
    ("rho", "ratio", "variance"),
    [
        (THIRD, None, Fraction(15)),
        (Fraction(0), THIRD, Fraction(733_333_334, 10**8)),
        (Fraction(3, 7), None, Fraction(116_666_667, 10**7)),
        (THIRD, THIRD, Fraction(733_333_334, 10**8)),
        (Fraction(5), THIRD, Fraction(1)),
    ],
)
def test_the_smaller_of_two_proven_variances_is_taken_in_nine_digits(
    rho: Fraction, ratio: Fraction | None, variance: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of squared sensitivity 10: 10 / (2 rho), and 10 times the ratio with 4 for the noise being discrete."""
    monkeypatch.setattr(calibration, "rho_within", lambda epsilon, delta: rho)
    monkeypatch.setattr(calibration, "ratio_within", lambda epsilon, delta: ratio)
    assert calibrate_gaussian(ApproxDP(1, "1e-6"), sensitivity_squared=10) == variance


def test_a_budget_that_proves_no_variance_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "rho_within", lambda epsilon, delta: Fraction(0))
    monkeypatch.setattr(calibration, "ratio_within", lambda epsilon, delta: None)
    with pytest.raises(ParameterError, match="too small to be calibrated"):
        calibrate_gaussian(ApproxDP(1, "1e-6"), 1)


@pytest.mark.parametrize(
    ("rho", "epsilon"), [("1/8", "1/2"), ("2", "2"), ("9/2", "9/2"), ("8", "8"), ("1/2", "1"), ("49/50", "7/5")]
)
def test_a_pure_mechanism_may_use_the_root_of_twice_rho_or_rho(rho: str, epsilon: str) -> None:
    assert epsilon_of(ZCDP(rho)) == Fraction(epsilon)
    assert calibrate_laplace(ZCDP(rho), 3) == 3 / Fraction(epsilon)


@pytest.mark.parametrize("rho", [THIRD, Fraction(1, 7), Fraction(1, 10**9)])
def test_an_irrational_root_is_rounded_down_in_twelve_digits(rho: Fraction) -> None:
    epsilon = epsilon_of(ZCDP(rho))
    assert epsilon**2 <= 2 * rho < (epsilon * (1 + Fraction(3, 10**11))) ** 2
    assert epsilon == round_down(2 * rho / sqrt_above(2 * rho))


@pytest.mark.parametrize("wrong", [0, -1])
def test_a_sensitivity_is_positive_and_given_once(wrong: int) -> None:
    for ask in (
        lambda: calibrate_laplace(PureDP(1), wrong),
        lambda: calibrate_gaussian(ZCDP(1), wrong),
        lambda: calibrate_gaussian(ZCDP(1), sensitivity_squared=wrong),
    ):
        with pytest.raises(ParameterError, match="the sensitivity is not positive"):
            ask()
    for named in ({}, {"sensitivity": 1, "sensitivity_squared": 1}):
        with pytest.raises(ParameterError, match="a sensitivity is given once"):
            calibrate_gaussian(ZCDP(1), **named)  # type: ignore[arg-type]
    assert calibrate_gaussian(ZCDP(1), 3) == calibrate_gaussian(ZCDP(1), sensitivity_squared=9) == Fraction(9, 2)


# ---- events and their forms


@pytest.mark.parametrize(
    ("make", "least", "told"),
    [
        (lambda x: LaplaceEvent(x), None, "scale is not positive"),
        (lambda x: LaplaceEvent(1, x), 0, "sensitivity is negative"),
        (lambda x: GaussianEvent(x), None, "variance is not positive"),
        (lambda x: GaussianEvent(1, x), 0, "sensitivity_squared is negative"),
        (lambda x: SelectionEvent(x), 0, "epsilon is negative"),
        (lambda x: PureEvent(x), 0, "epsilon is negative"),
        (lambda x: ThresholdEvent(x), 0, "delta is negative"),
    ],
)
def test_amounts_of_events_have_a_least_value(make: Callable[[Any], Any], least: int | None, told: str) -> None:
    for wrong in (-1, "-1e-9") if least == 0 else (0, -1):
        with pytest.raises(ParameterError, match=told):
            make(wrong)
    made = make("1/3")
    assert {type(getattr(made, name)) for name in made.__dataclass_fields__} <= {Fraction, bool}
    if least == 0:
        make(0)


def test_probabilities_odds_and_counts_have_their_range() -> None:
    assert ThresholdEvent(1).delta == 1
    assert RandomizedEvent(1).odds == 1
    assert type(RandomizedEvent("3/2").odds) is Fraction
    for make, told in (
        (lambda: ThresholdEvent("1.000001"), "delta is above 1"),
        (lambda: RandomizedEvent("0.999999"), "odds are below 1"),
        (lambda: SelfComposedEvent(NoOpEvent(), -1), "count"),
        (lambda: SelfComposedEvent(NoOpEvent(), True), "count"),
        (lambda: SelfComposedEvent(NoOpEvent(), 1.0), "count"),  # type: ignore[arg-type]
    ):
        with pytest.raises(ParameterError, match=told):
            make()
    assert SelfComposedEvent(NoOpEvent(), 0).count == 0
    assert ComposedEvent([PureEvent(1)]).events == ParallelEvent([PureEvent(1)]).events == (PureEvent(1),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "odds"),
    [
        ([["3/4", "1/4"], ["1/4", "3/4"]], 3),
        ([["1/2", "1/2"]], 1),
        ([["1/2", "1/2", 0], ["1/3", "2/3", 0]], Fraction(3, 2)),
        ([["9/10", "1/10"], ["1/2", "1/2"], ["8/10", "2/10"]], 5),
        ([[1, 0], ["1/2", "1/2"]], None),
    ],
)
def test_the_odds_of_a_table_are_its_largest_ratio_in_a_column(table: Any, odds: Any) -> None:
    assert build_randomized_event(table) == (NonPrivateEvent() if odds is None else RandomizedEvent(odds))


@pytest.mark.parametrize("table", [[], [["1/2", "1/2"], [1]], [["1/2", "1/3"]], [[1], ["1/2"]], [[2, -1]]])
def test_what_is_no_table_of_probabilities_is_refused(table: Any) -> None:
    with pytest.raises(ParameterError, match="probabilit"):
        build_randomized_event(table)


def test_odds_of_the_largest_epsilon_are_still_exported() -> None:
    with localcontext(precise(300)):
        odds = int(Decimal(500).exp())
    assert math.log(odds) == 500
    assert to_google(RandomizedEvent(odds))["class_name"] == "DiscreteLaplaceDpEvent"


def up_twice(value: float) -> float:
    return math.nextafter(math.nextafter(value, math.inf), math.inf)


@pytest.mark.parametrize(
    ("event", "name", "fields"),
    [
        (NoOpEvent(), "NoOpDpEvent", {}),
        (NonPrivateEvent(), "NonPrivateDpEvent", {}),
        (UnsupportedEvent(), "UnsupportedDpEvent", {}),
        (ThresholdEvent(THIRD), "UnsupportedDpEvent", {}),
        (ParallelEvent(()), "UnsupportedDpEvent", {}),
        (LaplaceEvent(4, Fraction(5, 2)), "DiscreteLaplaceDpEvent", {"noise_parameter": 0.25, "sensitivity": 3}),
        (GaussianEvent(13, 4), "GaussianDpEvent", {"noise_multiplier": 1.5}),
        (GaussianEvent(4, 2), "ZCDpEvent", {"rho": 0.25, "xi": 0.0}),
        (GaussianEvent(13, 0), "ZCDpEvent", {"rho": 0.0, "xi": 0.0}),
        (PureEvent(0), "NoOpDpEvent", {}),
        (RandomizedEvent(1), "NoOpDpEvent", {}),
        (PureEvent("1/2"), "DiscreteLaplaceDpEvent", {"noise_parameter": up_twice(0.5), "sensitivity": 1}),
        (SelectionEvent("1/2"), "DiscreteLaplaceDpEvent", {"noise_parameter": up_twice(0.5), "sensitivity": 1}),
        (RandomizedEvent(3), "DiscreteLaplaceDpEvent", {"noise_parameter": up_twice(math.log(3)), "sensitivity": 1}),
        (PureEvent("499.5"), "DiscreteLaplaceDpEvent", {"noise_parameter": up_twice(499.5), "sensitivity": 1}),
        (PureEvent(500), "NonPrivateDpEvent", {}),
        (RandomizedEvent(10**216), "DiscreteLaplaceDpEvent",
         {"noise_parameter": up_twice(216 * math.log(10)), "sensitivity": 1}),
        (RandomizedEvent(10**218), "NonPrivateDpEvent", {}),
        (RandomizedEvent(10**299), "NonPrivateDpEvent", {}),
        (RandomizedEvent(10**400), "NonPrivateDpEvent", {}),
    ],
)  # fmt: skip
def test_an_event_is_exported_as_something_that_is_no_better(event: Any, name: str, fields: dict[str, Any]) -> None:
    told = to_google(event)
    assert (told.pop("module_name"), told.pop("class_name")) == ("dp_accounting.dp_event", name)
    assert told.keys() == fields.keys()
    for field, value in fields.items():
        assert told[field] == (pytest.approx(value, rel=1e-14) if name.startswith("Discrete") else value)
        if name.startswith("Discrete") and not isinstance(event, RandomizedEvent):
            assert told[field] == value
    nested = to_google(ComposedEvent((event, SelfComposedEvent(event, 3))))
    assert nested["events"] == [to_google(event), to_google(SelfComposedEvent(event, 3))]
    assert to_google(SelfComposedEvent(event, 3))["count"] == 3


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({}, "no known name"),
        ([], "no known name"),
        ({"kind": "nonsense"}, "no known name"),
        ({"kind": 3}, "no known name"),
        ({"kind": "pure"}, "fields of a 'pure' event"),
        ({"kind": "pure", "epsilon": "1", "more": "1"}, "fields of a 'pure' event"),
        ({"kind": "pure", "epsilon": 1}, "not written as a rational"),
        ({"kind": "pure", "epsilon": "x"}, "not written as a rational"),
        ({"kind": "pure", "epsilon": "1/0"}, "not a rational"),
        ({"kind": "selection", "epsilon": "1", "bounded_range": 1}, "neither true nor false"),
        (
            {"kind": "self-composed", "event": {"kind": "no-op"}, "count": "2"},
            "a count of an event is not a whole number",
        ),
        (
            {"kind": "self-composed", "event": {"kind": "no-op"}, "count": True},
            "a count of an event is not a whole number",
        ),
        (
            {"kind": "self-composed", "event": {"kind": "no-op"}, "count": 1.0},
            "a count of an event is not a whole number",
        ),
        ({"kind": "composed", "events": "ab"}, "not a list"),
    ],
)
def test_a_form_that_describes_no_event_is_refused(form: Any, told: str) -> None:
    with pytest.raises(ParameterError, match=told):
        from_dict(form)


@pytest.mark.parametrize(("kind", "told"), [("no-op", "Fields: none"), ("laplace", "Fields: scale, sensitivity")])
def test_a_form_with_other_fields_is_told_those_of_its_event(kind: str, told: str) -> None:
    with pytest.raises(ParameterError) as refusal:
        from_dict({"kind": kind, "size": "1"})
    assert refusal.value.expected == told


@pytest.mark.parametrize("event", [event for event, *_ in EVENTS] + [event for event, _ in PAIRS], ids=repr)
def test_an_event_is_the_same_after_it_was_written_and_read(event: Any) -> None:
    assert from_dict(to_dict(event)) == event


@pytest.mark.parametrize(
    ("word", "limit", "told"),
    [
        ("pure", ZCDP(1), "pure accounting keeps no rho"),
        ("pld", ZCDP(1), "pld accounting keeps no rho"),
        ("zcdp", PureDP(1), "needs a delta"),
        ("zcdp", ApproxDP(1, 0), "needs a delta"),
        ("sum", None, "unknown accounting 'sum'"),
    ],
)
def test_an_accounting_that_cannot_keep_a_limit_is_refused(word: str, limit: Any, told: str) -> None:
    with pytest.raises(ParameterError, match=told):
        accountant_for(word, limit)


def test_each_accounting_keeps_its_limit() -> None:
    for word, limit in (("pure", PureDP(1)), ("pld", ApproxDP(1, "1e-6")), ("zcdp", ZCDP(1)), ("zcdp", None)):
        assert accountant_for(word, limit).limit == limit
    made = accountant_for("zcdp", ApproxDP(1, "1e-6"))
    assert made.limit is not None
    assert made.limit.delta == Fraction(1, 2 * 10**6)
