"""Ranges of numbers hold the numbers they stand for, whatever their size; drafted ones are always a tree."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest

from deniable.errors import ParameterError
from deniable.kanonymity.builders.numbers import Intervals, find_slots, numbers_of, write_exactly, write_number
from deniable.kanonymity.builders.specs import draft_column, make_builder
from deniable.kanonymity.hierarchy import Hierarchy
from deniable.kanonymity.local_recoding import write_local
from deniable.kanonymity.models import KAnonymity
from deniable.kanonymity.recoding import Form
from deniable.kanonymity.request import Request, prepare
from deniable.kanonymity.search.mondrian import mondrian
from deniable.policy.schema import Spec

Draw = Callable[[random.Random], object]
KINDS: dict[str, tuple[Draw, pa.DataType]] = {
    "huge spread": (lambda draw: draw.choice([-1, 1]) * draw.random() * 10 ** draw.uniform(-300, 308), pa.float64()),
    "tiny": (lambda draw: draw.choice([0.0, 5e-324, 1e-323, 3e-320, -1e-310, -4.6e-38]), pa.float64()),
    "tenths": (lambda draw: round(draw.uniform(-5, 5), 1), pa.float64()),
    "64 bits": (lambda draw: draw.randint(-(2**63), 2**63 - 1), pa.int64()),
    "unsigned": (lambda draw: draw.choice([2**64 - 1, 2**63, draw.randint(0, 2**64 - 1)]), pa.uint64()),
    "around 2^53": (lambda draw: draw.randint(2**53 - 60, 2**53 + 60), pa.int64()),
    "long decimals": (lambda draw: Decimal(draw.randint(-(10**30), 10**30)) / 100, pa.decimal128(38, 2)),
}


def hold(label: str, number: Fraction) -> bool:
    """Whether a half-open range, as it is written, holds a number."""
    low, high = label[1:-1].split(", ")
    return (low == "-inf" or Fraction(low) <= number) and (high == "inf" or number < Fraction(high))


def assert_held(built: Hierarchy) -> None:
    for level in built.levels[1:-1]:
        for leaf, group in zip(built.leaves, level.groups, strict=True):
            label = level.labels[group]
            assert leaf is not None
            assert label is not None
            assert hold(label, Fraction(leaf)), "a range does not hold its number"


@pytest.mark.parametrize("kind", KINDS)
def test_drafted_ranges_hold_their_numbers_and_are_a_tree(kind: str) -> None:
    draw = random.Random(3)
    make, arrow = KINDS[kind]
    for _ in range(25):
        values = pa.array(list({make(draw) for _ in range(draw.randint(3, 60))}), arrow)
        spec = draft_column(values)
        if spec.kind == "intervals":
            assert_held(make_builder(spec).hierarchy("x", values))


@pytest.mark.parametrize("widths", [(0.1, 0.2, 1.0), (0.3,), (1.0, 5.0, 10.0), (7.0, 21.0), (1e-9, 1.0)])
@pytest.mark.parametrize("kind", ["tenths", "around 2^53"])
def test_declared_ranges_hold_their_numbers(kind: str, widths: tuple[float, ...]) -> None:
    draw = random.Random(5)
    make, arrow = KINDS[kind]
    values = pa.array(list({make(draw) for _ in range(60)}), arrow)
    assert_held(Intervals(widths, 0.5 if widths == (0.3,) else 0.0).hierarchy("x", values))


def test_edges_are_multiples_as_they_are_written() -> None:
    built = Intervals((0.1,)).hierarchy("x", pa.array([0.3, 0.7]))
    assert built.levels[1].labels == ("[0.3, 0.4)", "[0.7, 0.8)")


def test_a_tiny_number_below_zero_is_not_above_it() -> None:
    values = pa.array([-4.6e-38, 0.0, 7e286])
    assert find_slots(values, numbers_of("x", values), 0.0, 5e286).tolist() == [-1, 0, 1]


@pytest.mark.parametrize("relaxed", [False, True])
@pytest.mark.parametrize("form", [Form.TEXT, Form.JSON])
def test_mondrian_writes_whole_numbers_exactly(relaxed: bool, form: Form) -> None:
    draw = random.Random(1)
    numbers = [draw.randint(-(2**63), 2**63 - 1) for _ in range(60)] + [2**53 + n for n in range(40)]
    rows = pa.table({"x": numbers})
    ready = prepare(rows, Request(("x",), (KAnonymity(3),)))
    made = write_local(rows, ready, mondrian(ready, relaxed=relaxed), form)["x"].to_pylist()
    assert len(made) == len(numbers)
    shown = {label for label in made if label != "*"}
    ends = set()
    for label in shown:
        found = json.loads(label) if form is Form.JSON else label[1:-1].split(", ")
        ends |= {int(end) for end in (found.values() if isinstance(found, dict) else found)}
    assert ends <= set(numbers), "each end is one of the numbers, to the last digit"


def test_numbers_are_written_with_the_digits_they_have() -> None:
    assert write_number(1e15) == "1000000000000000"
    assert write_number(1e300) == "1e+300"
    assert write_exactly(0.1, "0.1") == "0.1"
    assert write_exactly(float(10**19), "12345678901234567890.12") == "12345678901234567890.12"
    assert write_exactly(3.0, "no number") == "3"


def test_a_refused_hierarchy_shows_no_range_of_numbers() -> None:
    with pytest.raises(ParameterError, match="level 2 splits a group of level 1") as refused:
        make_builder(Spec("intervals", {"widths": (5.0, 7.0)})).hierarchy("x", pa.array([1.0, 6.0, 8.0, 13.0]))
    assert "[" not in str(refused.value)
