"""Hostile input at the wire: whatever does not fit the layout is refused, and nothing of it is repeated."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.errors import DataError, ParameterError
from deniable.localdp import serialization
from deniable.localdp.frequency.hashing import LocalHashing
from deniable.localdp.frequency.randomized_response import Direct
from deniable.localdp.frequency.sketch import CountMeanSketch
from deniable.localdp.frequency.subset import Subset
from deniable.localdp.frequency.unary import Unary

KARY, UNARY, SUBSET = Direct.calibrate(4, 1), Unary.calibrate(13, 1), Subset(9, 3, Direct.calibrate(4, 1).odds)
HASHING = LocalHashing.calibrate(9, 1)


@pytest.mark.parametrize(
    ("protocol", "response"),
    [
        (KARY, [4]),
        (KARY, [-1]),
        (KARY, [True]),
        (KARY, [1.0]),
        (KARY, ["1"]),
        (KARY, [None]),
        (KARY, []),
        (KARY, [1, 1]),
        (KARY, 1),
        (KARY, {"0": 1}),
        (KARY, [10**400]),
        (UNARY, ["ffff"]),  # bits beyond the thirteenth
        (UNARY, ["ff"]),
        (UNARY, ["FF1F"]),
        (UNARY, ["zz1f"]),
        (UNARY, [[255, 31]]),
        (SUBSET, [[3, 2, 1]]),
        (SUBSET, [[1, 1, 2]]),
        (SUBSET, [[1, 2, 9]]),
        (SUBSET, [[-1, 2, 3]]),
        (SUBSET, [[1, 2]]),
        (SUBSET, [[1, 2, True]]),
        (SUBSET, ["123"]),
        (HASHING, [2**32, 0]),
        (HASHING, [0, HASHING.buckets]),
    ],
)
def test_a_response_that_does_not_fit_is_refused(protocol, response):
    with pytest.raises(DataError) as refusal:
        serialization.from_json(protocol.layout, [response])
    assert str(refusal.value).startswith("a response does not fit its protocol")


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None)
@given(ANYTHING)
def test_arbitrary_json_is_either_read_exactly_or_refused(response):
    for protocol in (KARY, UNARY, SUBSET, HASHING):
        try:
            columns = serialization.from_json(protocol.layout, [response])
        except DataError:
            continue
        assert serialization.to_json(protocol.layout, columns) == [response]


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_arbitrary_bytes_are_either_read_exactly_or_refused(message):
    for protocol in (KARY, UNARY, SUBSET, HASHING, CountMeanSketch.calibrate(1, 3, 16)):
        try:
            columns = serialization.from_bytes(protocol.layout, message)
        except DataError:
            continue
        assert serialization.to_bytes(protocol.layout, columns) == message


def test_unknown_and_broken_recipes_are_refused_with_the_nearest_name():
    with pytest.raises(ParameterError, match="Did you mean 'k-ary'"):
        serialization.protocol_of({"protocol": "k-arry"})
    with pytest.raises(ParameterError, match="incomplete"):
        serialization.protocol_of({"protocol": "k-ary", "domain": 4})
    with pytest.raises(ParameterError):
        serialization.protocol_of({"protocol": "k-ary", "domain": 4, "odds": [1, 0]})
    with pytest.raises(ParameterError):
        serialization.protocol_of({"protocol": "unary", "domain": 4, "keep": 1, "flip": 9})


def test_odds_that_are_not_above_one_are_refused():
    for odds in ([1, 1], [1, 2], [-3, 1]):
        with pytest.raises(ParameterError):
            serialization.protocol_of({"protocol": "k-ary", "domain": 4, "odds": odds})
