"""Single values are read by the type wanted; bounds and their steps go together."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from datetime import date
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

import deniable.policy
from deniable.errors import ParameterError, Place, PolicyError
from deniable.policy.budget import exact
from deniable.policy.check import tree_checker
from deniable.policy.check.tree_checker import Misread
from deniable.policy.document import parse
from deniable.policy.yaml_tree import Leaf

HERE = Place("policy", 1)


def leaf(text: str, quoted: bool = False) -> Leaf:
    return Leaf(text, quoted, HERE)


@given(st.integers(-(10**30), 10**30))
def test_whole_numbers_are_read_as_they_are_written(number: int) -> None:
    assert tree_checker.read_whole(leaf(str(number))) == number
    assert tree_checker.read_amount(leaf(str(number))) == number


@given(st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**12), max_value=10**12))
def test_decimals_are_exact(number: object) -> None:
    assert tree_checker.read_amount(leaf(str(number))) == Fraction(str(number))


@pytest.mark.parametrize(
    "text", ["02138", "", "+", ".", "e5", "1e", "0x1f", "1,5", "nan", ".inf", "1e9999", "9" * 61, "1__0"]
)
def test_what_is_no_number_is_refused(text: str) -> None:
    with pytest.raises(Misread):
        tree_checker.read_amount(leaf(text))
    with pytest.raises(Misread):
        tree_checker.read_whole(leaf(text))


@pytest.mark.parametrize(
    ("text", "value"), [("1e-6", Fraction(1, 10**6)), (".5", Fraction(1, 2)), ("1.", 1), ("1_000", 1000)]
)
def test_the_ways_to_write_a_number(text: str, value: Fraction) -> None:
    assert tree_checker.read_amount(leaf(text)) == value


def test_a_value_without_a_declared_type_is_what_its_form_says_or_refused() -> None:
    read = [tree_checker.read_untyped(leaf(t)) for t in ("5", "0.5", "true", "2020-01-31", "NO", "yes")]
    assert read == [5, Fraction(1, 2), True, date(2020, 1, 31), "NO", "yes"]
    assert tree_checker.read_untyped(leaf("02138", quoted=True)) == "02138"
    for text in ("02138", "null", ""):
        with pytest.raises(Misread):
            tree_checker.read_untyped(leaf(text))


def column(entry: str) -> object:
    text = f"{{version: 1, dataset: d, tables: {{t: {{source: t.csv, unit: row, columns: {{a: {{{entry}}}}}}}}}}}"
    return parse(text).table("t").columns[0]


@given(st.integers(-1000, 1000), st.integers(-1000, 1000), st.integers(1, 50))
def test_bounds_are_taken_exactly_when_they_rise_in_whole_steps(low: int, high: int, step: int) -> None:
    fits = low <= high and low % step == 0 and high % step == 0
    try:
        column(f"type: integer, between: [{low}, {high}], step: {step}")
    except PolicyError:
        assert not fits
    else:
        assert fits


@pytest.mark.parametrize("amount", ["1e999999999", "-1e-999999999", "nan", "inf", True, "1/0", "x"])
def test_an_amount_that_is_no_finite_number_is_refused_at_once(amount: object) -> None:
    with pytest.raises(ParameterError):
        exact(amount)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "module", [m.name for m in pkgutil.walk_packages(deniable.policy.__path__, "deniable.policy.")]
)
def test_the_examples_in_the_docstrings_hold(module: str) -> None:
    assert doctest.testmod(importlib.import_module(module)).failed == 0
