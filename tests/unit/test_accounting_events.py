"""Events refuse what cannot have happened, and survive the way to a file and back."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deniable.dp.accounting import (
    ComposedEvent,
    GaussianEvent,
    LaplaceEvent,
    NonPrivateEvent,
    NoOpEvent,
    ParallelEvent,
    PureEvent,
    RandomizedEvent,
    SampledGaussianEvent,
    SelectionEvent,
    SelfComposedEvent,
    ThresholdEvent,
    UnsupportedEvent,
    build_randomized_event,
    from_dict,
    to_dict,
    to_google,
)
from deniable.errors import ParameterError

positive = st.fractions(min_value=Fraction(1, 10**9), max_value=10**9)
below_one = st.fractions(min_value=Fraction(1, 10**9), max_value=Fraction(99, 100))
leaves = st.one_of(
    st.just(NoOpEvent()),
    st.just(NonPrivateEvent()),
    st.builds(UnsupportedEvent, st.text(max_size=5)),
    st.builds(LaplaceEvent, positive, positive),
    st.builds(GaussianEvent, positive, positive),
    st.builds(SelectionEvent, positive, st.booleans()),
    st.builds(PureEvent, positive),
    st.builds(RandomizedEvent, st.fractions(min_value=1, max_value=100)),
    st.builds(ThresholdEvent, st.fractions(min_value=0, max_value=1)),
    st.builds(SampledGaussianEvent, below_one, positive, positive, st.integers(0, 5), positive, below_one),
)
events = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(ComposedEvent, st.lists(inner, max_size=3)),
        st.builds(ParallelEvent, st.lists(inner, max_size=3)),
        st.builds(SelfComposedEvent, inner, st.integers(0, 5)),
    ),
    max_leaves=6,
)


@given(events)
def test_every_event_survives_json(event):
    assert from_dict(json.loads(json.dumps(to_dict(event)))) == event


@given(events)
def test_every_event_has_a_google_form_made_of_json_values(event):
    form = to_google(event)
    assert json.loads(json.dumps(form)) == form
    assert str(form["class_name"]).endswith("DpEvent")


@given(events)
def test_events_are_hashable_values(event):
    assert hash(event) == hash(from_dict(to_dict(event)))


@pytest.mark.parametrize(
    "form",
    [
        {},
        [],
        {"kind": "laplac", "scale": "1", "sensitivity": "1"},
        {"kind": "laplace", "scale": "1"},
        {"kind": "laplace", "scale": "1", "sensitivity": "1", "seed": "7"},
        {"kind": "laplace", "scale": 0.1, "sensitivity": "1"},
        {"kind": "laplace", "scale": "0", "sensitivity": "1"},
        {"kind": "laplace", "scale": "1/0", "sensitivity": "1"},
        {"kind": "laplace", "scale": "ten", "sensitivity": "1"},
        {"kind": "selection", "epsilon": "1", "bounded_range": 1},
        {"kind": "self-composed", "event": {"kind": "no-op"}, "count": -1},
        {"kind": "self-composed", "event": {"kind": "no-op"}, "count": True},
        {"kind": "self-composed", "event": "no-op", "count": 1},
        {"kind": "composed", "events": "no-op"},
    ],
)
def test_a_malformed_event_is_refused(form):
    with pytest.raises(ParameterError):
        from_dict(form)


def test_a_misspelled_kind_is_answered_with_the_nearest():
    with pytest.raises(ParameterError, match="Did you mean 'laplace'"):
        from_dict({"kind": "laplac", "scale": "1", "sensitivity": "1"})


@pytest.mark.parametrize(
    "build",
    [
        lambda: LaplaceEvent(0, 1),
        lambda: LaplaceEvent(-1, 1),
        lambda: LaplaceEvent(1, -1),
        lambda: LaplaceEvent(float("nan"), 1),
        lambda: GaussianEvent(0),
        lambda: GaussianEvent(1, -1),
        lambda: PureEvent(-1),
        lambda: PureEvent(float("inf")),
        lambda: ThresholdEvent(2),
        lambda: RandomizedEvent("1/2"),
        lambda: SelfComposedEvent(NoOpEvent(), -1),
        lambda: SelfComposedEvent(NoOpEvent(), 1.5),
    ],
)
def test_an_impossible_event_is_refused(build):
    with pytest.raises(ParameterError):
        build()


def test_a_float_means_its_decimal():
    assert LaplaceEvent(0.1, 1).epsilon == 10
    assert PureEvent(0.1).epsilon == Fraction(1, 10)


def test_an_answer_that_only_one_input_can_give_has_no_guarantee():
    assert build_randomized_event([["1/2", "1/2", 0], [0, "1/2", "1/2"]]) == NonPrivateEvent()


def test_an_answer_that_no_input_gives_does_not_matter():
    assert build_randomized_event([["3/4", "1/4", 0], ["1/4", "3/4", 0]]) == RandomizedEvent(3)


@pytest.mark.parametrize("table", [[], [["1/2", "1/3"]], [["1"], ["1/2", "1/2"]], [["3/2", "-1/2"]]])
def test_a_table_that_is_not_one_of_probabilities_is_refused(table):
    with pytest.raises(ParameterError):
        build_randomized_event(table)
