"""Ranges of numbers hold the numbers they stand for, whatever their size; drafted ones are always a tree."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from deniable.errors import DataError, ParameterError
from deniable.kanonymity.anonymize import anonymize, recode_table
from deniable.kanonymity.builders.exact import find_slots, read_numbers, write_number
from deniable.kanonymity.builders.numbers import Intervals
from deniable.kanonymity.builders.specs import draft_column, make_builder
from deniable.kanonymity.hierarchy import Hierarchy
from deniable.kanonymity.local_recoding import write_local
from deniable.kanonymity.microaggregation import microaggregate
from deniable.kanonymity.models import KAnonymity
from deniable.kanonymity.quality import _measure_penalty
from deniable.kanonymity.recoding import Form, from_document, to_document
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
    _, numbers = read_numbers("x", pa.array([-4.6e-38, 0.0, 7e286]))
    assert find_slots(numbers, 0, 5e286).tolist() == [-1, 0, 1]


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
    assert write_number(0.1) == "0.1"
    assert write_number(Fraction("12345678901234567890.12")) == "12345678901234567890.12"
    assert write_number(-(2**63) - 1) == "-9223372036854775809"


def test_a_refused_hierarchy_shows_no_range_of_numbers() -> None:
    with pytest.raises(ParameterError, match="level 2 splits a group of level 1") as refused:
        make_builder(Spec("intervals", {"widths": (5.0, 7.0)})).hierarchy("x", pa.array([1.0, 6.0, 8.0, 13.0]))
    assert "[" not in str(refused.value)


BEYOND = {"2^60": 2**60, "-2^60": -(2**60), "2^53": 2**53 - 40, "2^63": 2**63 - 100, "0": 0}
EVERY: dict[str, dict[str, tuple[int, ...]]] = {
    "rounding": {"to": (2, 20)},
    "intervals": {"widths": (20, 40)},
    "brackets": {"edges": (30, 31, 60)},
    "quantiles": {"quantiles": (4, 2)},
}


def declare(kind: str, first: int, tails: tuple[str, ...]) -> Spec:
    options: dict[str, object] = dict(EVERY[kind])
    if kind == "brackets":
        options["edges"] = tuple(first + edge for edge in EVERY[kind]["edges"])
    options |= {end: Fraction(first + {"top": 71, "bottom": 13}[end]) for end in tails}
    return Spec("intervals" if kind == "quantiles" else kind, options)


def holds_cell(cell: str, number: int, width: int) -> bool:
    """Whether a cell stands for a number: a range, an open end, or the multiple that it was rounded down to."""
    if cell[0] in "[(":
        low, high = cell[1:-1].split(", ")
        return (low == "-inf" or int(low) <= number) and (high == "inf" or number < int(high))
    if cell[0] in "<>":
        return number <= int(cell[3:]) if cell[0] == "<" else number >= int(cell[3:])
    return int(cell) <= number < int(cell) + width


@pytest.mark.parametrize("tails", [(), ("top",), ("bottom",), ("top", "bottom")], ids=repr)
@pytest.mark.parametrize("kind", EVERY)
@pytest.mark.parametrize("first", BEYOND)
def test_each_hierarchy_of_whole_numbers_is_exact(first: str, kind: str, tails: tuple[str, ...]) -> None:
    numbers = [BEYOND[first] + n for n in range(100)]
    built = make_builder(declare(kind, BEYOND[first], tails)).hierarchy("x", pa.array(numbers))
    for place, level in enumerate(built.levels[:-1]):
        assert len(set(level.labels)) == len(level.labels), "two groups are never written alike"
        width = 1 if not place else EVERY["rounding"]["to"][place - 1]
        for leaf, group in zip(built.leaves, level.groups, strict=True):
            assert leaf is not None
            assert holds_cell(level.labels[group] or "", int(leaf), width)
            assert level.ends is not None
            assert level.ends[group, 0] <= int(leaf) <= level.ends[group, 1]


@pytest.mark.parametrize("first", BEYOND)
@pytest.mark.parametrize("kind", EVERY)
def test_a_recoding_that_was_kept_says_the_same_of_rows_to_come(first: str, kind: str) -> None:
    numbers = pa.array([BEYOND[first] + n for n in range(100)])
    spec = declare(kind, BEYOND[first], ("top",))
    built = make_builder(spec).hierarchy("x", numbers)
    rows = pa.table({"x": numbers})
    kept = anonymize(rows, Request(("x",), (KAnonymity(2),)), {"x": spec}).recoding
    read = from_document(json.loads(json.dumps(to_document(kept)))).columns[0].spec
    assert list(make_builder(read).hierarchy("x", numbers).rows()) == list(built.rows())


@pytest.mark.parametrize(
    ("arrow", "steps", "kind"),
    [
        (pa.int64(), (20,), pa.int64()),
        (pa.int8(), (100,), pa.int64()),
        (pa.uint64(), (20,), pa.uint64()),
        (pa.int64(), (Fraction(5, 2),), pa.decimal128(38, 1)),
        (pa.decimal128(20, 0), (20,), pa.decimal128(38, 0)),
        (pa.float64(), (20,), pa.float64()),
    ],
)
def test_rounded_numbers_keep_a_type_that_holds_them(arrow: pa.DataType, steps: tuple[int, ...], kind: object) -> None:
    rows = pa.table({"x": pa.array([16, 17, 41, 42]).cast(arrow)})
    made = anonymize(rows, Request(("x",), (KAnonymity(2),)), {"x": Spec("rounding", {"to": steps})}).recoding
    assert made.levels == (1,)
    assert recode_table(rows, made)["x"].type == kind


def test_rounding_goes_down_as_it_is_written() -> None:
    built = make_builder(Spec("rounding", {"to": (Fraction(1, 10), 2)})).hierarchy("x", pa.array([0.3, 1.9, -0.9]))
    assert list(built.rows()) == [("-0.9", "-0.9", "-2", "*"), ("0.3", "0.3", "0", "*"), ("1.9", "1.9", "0", "*")]


def test_multiples_below_all_whole_numbers_are_refused_in_words() -> None:
    rows = pa.table({"x": [-(2**63) + n for n in range(12)]})
    made = anonymize(rows, Request(("x",), (KAnonymity(4),)), {"x": Spec("rounding", {"to": (20,)})}).recoding
    with pytest.raises(DataError, match="rounded down, is below all whole numbers of 64 bits"):
        recode_table(rows, made)


@pytest.mark.parametrize("form", [Form.BOUNDS, Form.JSON])
def test_ends_beyond_floats_are_written_exactly_or_refused(form: Form) -> None:
    rows = pa.table({"x": [2**60 + n for n in range(80)]})
    spec = Spec("intervals", {"widths": (20,)})
    made = anonymize(rows, Request(("x",), (KAnonymity(4),)), {"x": spec}, form=form).recoding
    if form is Form.BOUNDS:
        with pytest.raises(DataError, match="end at numbers that no column of floating-point numbers holds"):
            recode_table(rows, made)
        return
    for number, cell in zip(rows["x"].to_pylist(), recode_table(rows, made)["x"].to_pylist(), strict=True):
        ends = json.loads(cell)
        assert ends["low"] <= number < ends["high"]
        assert ends["high"] - ends["low"] == 20


def test_numbers_in_texts_are_in_the_order_of_numbers() -> None:
    built = Intervals((5,)).hierarchy("x", pa.array(["10", "9", "-2"]))
    assert built.leaves == ("-2", "9", "10")


def test_drafted_intervals_of_large_whole_numbers_are_as_wide_as_the_numbers_are_apart() -> None:
    assert draft_column(pa.array([2**60 + n for n in range(100)])).options["widths"] == (2, 4, 8, 16)


@pytest.mark.parametrize("first", [2**60, -(2**60)])
def test_means_of_whole_numbers_beyond_floats_are_refused(first: int) -> None:
    with pytest.raises(DataError, match=r"beyond 2\^53, which floating point does not tell apart"):
        microaggregate(pa.table({"x": [first + n for n in range(10)]}), ("x",), 2)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_missing_values_beside_large_numbers_are_measured_without_a_warning() -> None:
    built = Intervals((20,)).hierarchy("x", pa.array([2**60 + n for n in range(80)])).with_missing()
    assert np.isfinite([_measure_penalty(built, level) for level in range(built.height)]).all()
