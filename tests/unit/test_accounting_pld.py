"""The PLD accountant: agrees with dp-accounting, never better than the truth, and does without it where it can."""

import itertools
import math
import sys
from fractions import Fraction

import numpy as np
import pytest

from deniable.dp.accounting import (
    ComposedEvent,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    ParallelEvent,
    PLDAccountant,
    PureEvent,
    RandomizedEvent,
    SelectionEvent,
    SelfComposedEvent,
    ThresholdEvent,
    ZCDPAccountant,
    cheap_epsilon,
    to_google,
)
from deniable.dp.accounting import pld as pld_module
from deniable.dp.accounting.composition import Composition
from deniable.errors import MissingExtra
from deniable.policy.budget import ApproxDP, PureDP

dp_event = pytest.importorskip("dp_accounting.dp_event")
pld = pytest.importorskip("dp_accounting.pld")
NeighboringRelation = pytest.importorskip("dp_accounting").NeighboringRelation
DELTA = Fraction(1, 10**6)


def test_it_prices_discrete_laplace_as_the_oracle_does():
    oracle = pld.PLDAccountant().compose(dp_event.DiscreteLaplaceDpEvent(0.1, 3), 50)
    ours = PLDAccountant().compose(LaplaceEvent(10, 3), 50)
    assert ours.epsilon(DELTA) == pytest.approx(oracle.get_epsilon(1e-6), rel=1e-6)


def test_it_prices_gaussian_noise_between_the_analytic_and_the_zcdp_bound():
    event = SelfComposedEvent(GaussianEvent(10_000, 100), 20)
    tight, zcdp = PLDAccountant().compose(event).epsilon(DELTA), ZCDPAccountant().compose(event).epsilon(DELTA)
    assert tight <= cheap_epsilon(event, DELTA) * (1 + 1e-9)
    oracle = pld.PLDAccountant().compose(dp_event.GaussianDpEvent(10.0), 20).get_epsilon(1e-6)
    assert oracle * 0.999 <= tight < 0.95 * zcdp


def test_it_is_tighter_than_the_cheap_bounds_for_a_mixture():
    event = ComposedEvent((SelfComposedEvent(LaplaceEvent(20, 1), 60), GaussianEvent(2000, 10)))
    assert PLDAccountant().compose(event).epsilon(DELTA) < float(cheap_epsilon(event, DELTA))


def test_it_is_never_above_the_cheap_bounds():
    event = SelfComposedEvent(SelectionEvent("1/10", bounded_range=True), 100)
    assert PLDAccountant().compose(event).epsilon(DELTA) <= float(cheap_epsilon(event, DELTA)) * (1 + 1e-15)


def laplace_delta(scale: float, shift: tuple[int, ...], epsilon: float) -> float:
    """The true delta of discrete Laplace noise under a shift of the vector, by summing over the lattice."""
    line = np.arange(-60, 61 + max(shift))
    left = right = np.ones(1)
    for step in shift:
        p, q = np.exp(-np.abs(line) / scale), np.exp(-np.abs(line - step) / scale)
        left = np.multiply.outer(left, p / p.sum()).ravel()
        right = np.multiply.outer(right, q / q.sum()).ravel()
    return float(np.maximum(left - math.exp(epsilon) * right, 0).sum())


def continuous_delta(scale: float, shift: float, epsilon: float) -> float:
    return max(0.0, 1 - math.exp((epsilon - shift / scale) / 2)) if epsilon <= shift / scale else 0.0


@pytest.mark.parametrize("scale", [0.7, 1.5, 3.0])
def test_one_entry_moved_all_the_way_is_the_worst_vector(scale):
    for epsilon in np.linspace(0, 4 / scale, 9):
        worst = laplace_delta(scale, (4,), epsilon)
        for shift in [(3, 1), (2, 2)]:
            assert laplace_delta(scale, shift, epsilon) <= worst + 1e-9


@pytest.mark.parametrize(("scale", "shift"), list(itertools.product([0.7, 1.5, 3.0], [1, 2, 5])))
def test_the_continuous_stand_in_dominates_the_discrete_noise(scale, shift):
    wider = shift + pld_module._overhang(scale)
    for epsilon in np.linspace(0, shift / scale, 12):
        assert laplace_delta(scale, (shift,), epsilon) <= continuous_delta(scale, wider, epsilon) + 1e-9
    same = [continuous_delta(scale, shift, e) < laplace_delta(scale, (shift,), e) for e in np.linspace(0, 1, 5)]
    assert any(same), "without the overhang the continuous noise would understate"


def test_wide_shifts_use_the_stand_in_and_agree_with_the_discrete_noise(monkeypatch):
    event = LaplaceEvent(9000, 900)
    discrete = PLDAccountant().compose(event, 10).epsilon(DELTA)
    monkeypatch.setattr(pld_module, "WIDEST_SHIFT", 1)
    pld_module._leaf.cache_clear()
    pld_module._distribution.cache_clear()
    pld_module._epsilon.cache_clear()
    assert PLDAccountant().compose(event, 10).epsilon(DELTA) == pytest.approx(discrete, rel=1e-2)
    pld_module._leaf.cache_clear()
    pld_module._distribution.cache_clear()
    pld_module._epsilon.cache_clear()


def test_parallel_parts_of_different_kinds_are_dominated_or_refused():
    account = PLDAccountant()
    assert account.compose(ParallelEvent((LaplaceEvent(10, 1), PureEvent("1/5")))).epsilon() == pytest.approx(0.2)
    assert account.supports(ParallelEvent((GaussianEvent(50), GaussianEvent(90))))
    assert not account.supports(ParallelEvent((GaussianEvent(50), PureEvent(1))))
    assert not account.supports(GaussianEvent(3))


def test_results_are_cached():
    event = LaplaceEvent(17, 1)
    PLDAccountant().compose(event, 5).epsilon(DELTA)
    before = pld_module._distribution.cache_info().hits + pld_module._epsilon.cache_info().hits
    PLDAccountant().compose(event, 5).epsilon(DELTA)
    assert pld_module._distribution.cache_info().hits + pld_module._epsilon.cache_info().hits > before


def test_without_dp_accounting_the_remedy_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting.pld", None)
    pld_module._leaf.cache_clear()
    with pytest.raises(MissingExtra, match=r"deniable\[pld\]"):
        PLDAccountant().compose(LaplaceEvent(23, 1), 7).epsilon(DELTA)
    assert cheap_epsilon(SelfComposedEvent(LaplaceEvent(23, 1), 7), DELTA) == Fraction(7, 23)


def build(form):
    """Google's event of a form."""
    kind = getattr(dp_event, form["class_name"])
    fields = {name: value for name, value in form.items() if name not in ("class_name", "module_name")}
    if "events" in fields:
        fields["events"] = [build(part) for part in fields["events"]]
    if "event" in fields:
        fields["event"] = build(fields["event"])
    return kind(**fields)


@pytest.mark.parametrize("event", [PureEvent("1/2"), SelectionEvent("1/2"), RandomizedEvent(Fraction(math.exp(0.5)))])
@pytest.mark.parametrize("count", [1, 30])
def test_a_pure_event_is_taken_by_the_oracle_and_priced_as_a_randomized_response(event, count):
    ours = pld.PLDAccountant().compose(build(to_google(event)), count).get_epsilon(1e-6)
    response = dp_event.RandomizedResponseDpEvent(noise_parameter=2 / (math.exp(0.5) + 1), num_buckets=2)
    replacing = pld.PLDAccountant(NeighboringRelation.REPLACE_ONE)
    theirs = [replacing.compose(response).get_epsilon(1e-6) for _ in range(count)][-1]
    assert ours == pytest.approx(theirs, rel=2e-4)
    assert ours >= theirs - 1e-3 * theirs


def test_a_pure_event_without_protection_is_exported_as_what_it_is():
    assert to_google(PureEvent(1000))["class_name"] == "NonPrivateDpEvent"
    assert to_google(RandomizedEvent(Fraction(10) ** 400))["class_name"] == "NonPrivateDpEvent"


def test_the_google_form_is_read_by_the_oracle_and_priced_no_better():
    event = ComposedEvent((SelfComposedEvent(LaplaceEvent(10, 1), 4), GaussianEvent(500, 1)))
    oracle = pld.PLDAccountant().compose(build(to_google(event))).get_epsilon(1e-6)
    assert PLDAccountant().compose(event).epsilon(DELTA) == pytest.approx(oracle, rel=1e-6)


class Library:
    """Stands for dp-accounting: writes down what it was asked to make."""

    def __init__(self):
        self.asked = []

    def __getattr__(self, name):
        def make(*arguments, **named):
            self.asked.append((name, *arguments, *named.items()))
            return self

        return make


@pytest.fixture
def library(monkeypatch):
    told = Library()
    monkeypatch.setattr(pld_module, "_load_library", lambda: told)
    return told


CELLS = ("value_discretization_interval", 1e-4)


@pytest.mark.parametrize(
    ("event", "asked"),
    [
        (LaplaceEvent(3, 5), ("from_discrete_laplace_mechanism", math.nextafter(1 / 3, 1), 5, CELLS)),
        (LaplaceEvent(4, Fraction(9, 2)), ("from_discrete_laplace_mechanism", 0.25, 5, CELLS)),
        (LaplaceEvent(4, 1000), ("from_discrete_laplace_mechanism", 0.25, 1000, CELLS)),
    ],
)
def test_discrete_noise_is_asked_for_with_its_rate_and_shift_rounded_up(library, event, asked):
    pld_module._leaf.__wrapped__(event)
    assert library.asked == [asked]


def test_a_shift_of_more_than_a_thousand_steps_is_asked_for_as_continuous_noise(library):
    pld_module._leaf.__wrapped__(LaplaceEvent(8, Fraction(2001, 2)))
    overhang = 1 - 16 * math.log(2 / (1 + math.exp(-1 / 8)))
    assert 0 < overhang < 1
    assert pld_module._overhang(8.0) == pytest.approx(overhang, rel=1e-12)
    assert library.asked == [("from_laplace_mechanism", 8 * (1 - 1e-12), 1001 + pld_module._overhang(8.0), CELLS)]


def test_a_pure_event_is_asked_for_with_its_epsilon_rounded_up_and_no_delta(library):
    pld_module._leaf.__wrapped__(PureEvent(Fraction(1, 10)))
    ((name, parameters, cells),) = library.asked
    assert (name, cells) == ("from_privacy_parameters", CELLS)
    assert Fraction(parameters.epsilon) >= Fraction(1, 10)
    assert (parameters.epsilon, parameters.delta) == (pytest.approx(0.1, rel=1e-15), 0)


def test_parts_are_composed_as_often_as_they_ran(library, monkeypatch):
    monkeypatch.setattr(pld_module, "_leaf", lambda event: library)
    leaves = frozenset({(PureEvent(1), 3), (LaplaceEvent(2, 1), 5)})
    pld_module._distribution.__wrapped__(Composition(leaves, gaussian=Fraction(1, 16)))
    assert library.asked == [
        ("self_compose", 5),
        ("self_compose", 3),
        ("from_gaussian_mechanism", 4.0, CELLS),
        ("identity", CELLS),
        *[("compose", library)] * 3,
    ]
    library.asked.clear()
    pld_module._distribution.__wrapped__(Composition(leaves))
    assert [name for name, *_ in library.asked] == ["self_compose", "self_compose", "identity", "compose", "compose"]


@pytest.mark.parametrize(("told", "found"), [(1.0, Fraction(1_000_000_001, 10**9)), (0.0, 0), (math.inf, None)])
def test_an_epsilon_is_asked_for_at_a_little_less_delta_and_told_a_little_higher(told, found, monkeypatch):
    asked = []

    class Distribution:
        def get_epsilon_for_delta(self, delta):
            asked.append(delta)
            return told

    monkeypatch.setattr(pld_module, "_distribution", lambda composed: Distribution())
    assert pld_module._epsilon.__wrapped__(Composition(), DELTA) == found
    assert asked == [1e-6 * (1 - 1e-12)]


def test_losses_are_looked_at_with_the_delta_that_thresholds_leave(monkeypatch):
    asked = []

    def epsilon(composed, delta):
        asked.append(delta)
        return Fraction(1, 100)

    monkeypatch.setattr(pld_module, "_epsilon", epsilon)
    tenth = Fraction(1, 10)
    account = PLDAccountant().compose(ThresholdEvent(tenth))
    assert account.compute_spent(tenth) == ApproxDP(0, tenth)
    assert account.compute_spent(2 * tenth) == ApproxDP(0, 2 * tenth)
    assert asked == [], "thresholds alone lose nothing else"
    both = account.compose(PureEvent(2))
    assert both.compute_spent(tenth) == ApproxDP(2, tenth)
    assert asked == [], "no delta is left"
    assert both.compute_spent(3 * tenth) == ApproxDP(Fraction(1, 100), 3 * tenth)
    assert asked == [2 * tenth]


def test_nothing_remains_after_what_has_no_price():
    assert PLDAccountant(PureDP(3), NonPrivateEvent()).compute_remaining() == PureDP(0)
    assert PLDAccountant(PureDP(3), PureEvent(1)).compute_remaining() == PureDP(2)
    assert PLDAccountant(PureDP(3), PureEvent(4)).compute_remaining() == PureDP(0)
    assert PLDAccountant(ApproxDP(3, "1e-6"), PureEvent(4)).compute_remaining() == ApproxDP(0, "1e-6")


def test_events_are_listed_one_after_another_and_repeated_ones_once():
    account = PLDAccountant().compose(PureEvent(1)).compose(PureEvent(2), 3).compose(PureEvent(3), 0)
    assert account.event == ComposedEvent(
        (pld_module.NOTHING, PureEvent(1), SelfComposedEvent(PureEvent(2), 3), SelfComposedEvent(PureEvent(3), 0))
    )
