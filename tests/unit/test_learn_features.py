"""Features come from the policy alone: one nonzero entry a column, clamped, with null apart."""

from __future__ import annotations

from datetime import date
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deniable.errors import DataError, ParameterError
from deniable.learn.features import (
    STEPS,
    ClassTarget,
    Design,
    Number,
    NumberTarget,
    build_design,
    build_target,
    encode_rows,
    encode_target,
    tie_knots,
)
from deniable.policy.schema import ColumnType
from learning import people, rows_of, table

FEATURES = ("age", "sex", "town", "born", "insured")
DESIGN = build_design(table(), FEATURES, "charge")


def test_entries_are_named_and_counted_by_the_policy() -> None:
    assert DESIGN.entries == (
        "intercept", "age", "age is null", "sex = F", "sex = M", "sex is null", "town = Ada", "town = Brin",
        "town = Cole", "born", "born is null", "insured = False", "insured = True", "insured is null",
    )  # fmt: skip
    assert DESIGN.blocks == 6
    assert DESIGN.owners.tolist() == [0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5, 5]


def test_four_rows_by_hand() -> None:
    rows = rows_of(
        [
            {"age": 50, "sex": "F", "town": "Cole", "born": date(1970, 1, 1), "insured": True},
            {"age": 0, "sex": None, "town": "Brin", "born": None, "insured": None},
            {"age": 250, "sex": "X", "town": "Elsewhere", "born": date(1820, 1, 1), "insured": False},
            {"age": None, "town": None},
        ]
    )
    s, found = STEPS, encode_rows(DESIGN, rows)
    # 1970-01-01 is 18,263 days after 1920-01-01, of 36,525: one half and half a day, which is no step of 1/1024.
    assert found[0].tolist() == [s, 0, 0, s, 0, 0, 0, 0, s, 0, 0, 0, s, 0]
    assert found[1].tolist() == [s, -s, 0, 0, 0, s, 0, s, 0, 0, s, 0, 0, s]
    assert found[2].tolist() == [s, s, 0, 0, 0, s, 0, 0, 0, -s, 0, s, 0, 0]
    assert found[3].tolist() == [s, 0, s, 0, 0, s, 0, 0, 0, 0, s, 0, 0, s]


VALUES = st.fixed_dictionaries(
    {
        "age": st.none() | st.integers(-(2**62), 2**62),
        "sex": st.none() | st.sampled_from(["F", "M", "X", ""]),
        "town": st.none() | st.sampled_from(["Ada", "Brin", "Cole", "?"]),
        "born": st.none() | st.dates(),
        "insured": st.none() | st.booleans(),
        "charge": st.none() | st.floats(),
        "ill": st.none() | st.booleans(),
    }
)


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(VALUES, max_size=6))
def test_every_block_has_at_most_one_entry_of_at_most_one_whatever_the_values(records: list[dict[str, object]]) -> None:
    found = encode_rows(DESIGN, rows_of(records)).astype(np.int64)
    for block in range(DESIGN.blocks):
        part = found[:, DESIGN.owners == block]
        assert ((part != 0).sum(axis=1) <= 1).all()
        assert (np.abs(part) <= STEPS).all()
    assert ((found**2).sum(axis=1) <= DESIGN.blocks * STEPS**2).all()
    bent = DESIGN.bend()
    found = encode_rows(bent, rows_of(records)).astype(np.int64)
    assert (found >= 0).all()
    for block in range(bent.blocks):
        part = found[:, bent.owners == block]
        assert ((part != 0).sum(axis=1) <= 2).all()
        assert (part.sum(axis=1) <= STEPS).all()
    assert ((found**2).sum(axis=1) <= bent.blocks * STEPS**2).all()
    steps, known = encode_target(build_target(table(), "charge"), rows_of(records))
    assert (np.abs(steps) <= STEPS).all()
    assert not steps[~known].any()


def test_a_number_is_shared_by_the_two_knots_beside_it() -> None:
    number = Number("age", ColumnType.INTEGER, Fraction(0), Fraction(90), True)
    made = Design((tie_knots(number),))
    assert made.entries == ("intercept", *(f"age = {10 * at}" for at in range(10)), "age is null")
    found = encode_rows(made, pa.table({"age": pa.array([0, 90, 45, None, -7, 10**9, 30])}))[:, 1:]
    names = [{made.entries[1 + at]: int(row[at]) for at in np.flatnonzero(row)} for row in found]
    low, high, half = {"age = 0": STEPS}, {"age = 90": STEPS}, {"age = 40": STEPS // 2, "age = 50": STEPS // 2}
    assert names == [low, high, half, {"age is null": STEPS}, low, high, {"age = 30": STEPS}]


def test_a_number_of_few_values_has_a_knot_for_each_and_one_of_a_single_value_is_constant() -> None:
    few, one = (tie_knots(Number("n", ColumnType.INTEGER, Fraction(2), Fraction(high), False)) for high in (4, 2))
    assert (few.entries, one.entries) == (("n = 2", "n = 3", "n = 4"), ("n = 2",))
    for knots, entries in ((few, [[0, STEPS, 0]]), (one, [[STEPS]])):
        assert encode_rows(Design((knots,)), pa.table({"n": [3]}))[:, 1:].tolist() == entries


@settings(deadline=None)  # a busy machine is no failure
@given(st.lists(VALUES, min_size=2, max_size=6))
def test_a_row_is_encoded_alike_in_any_company(records: list[dict[str, object]]) -> None:
    together = encode_rows(DESIGN, rows_of(records))
    alone = np.concatenate([encode_rows(DESIGN, rows_of([record])) for record in records])
    assert (together == alone).all()


def test_all_columns_that_can_be_features_are_taken_when_none_is_named() -> None:
    found = build_design(table(), None, "charge")
    assert [each.name for each in found.features] == ["pid", "age", "sex", "town", "born", "insured", "ill"][1:]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("age", "note"), "no public categories or bounds"),
        (("age", "aeg"), "Did you mean 'age'"),
        (("age", "age"), "named twice"),
        (("charge",), "is the target"),
        ((), "no column can be a feature"),
    ],
)
def test_features_that_cannot_be_are_refused(names: tuple[str, ...], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        build_design(table(), names, "charge")


def test_a_column_that_names_people_is_refused() -> None:
    from learning import PERSON

    with pytest.raises(ParameterError, match="names people"):
        build_design(table(PERSON), ("pid",), "charge")


def test_targets_are_numbers_or_one_value_against_the_others() -> None:
    assert isinstance(build_target(table(), "charge"), NumberTarget)
    ill = build_target(table(), "ill")
    assert isinstance(ill, ClassTarget)
    assert ill.positive is True
    values, known = encode_target(
        build_target(table(), "town", "Brin"), rows_of([{"town": "Brin"}, {"town": "Ada"}, {}])
    )
    assert values[known].tolist() == [1, 0]
    with pytest.raises(ParameterError, match="--positive"):
        build_target(table(), "town")
    with pytest.raises(ParameterError, match="Did you mean 'Brin'"):
        build_target(table(), "town", "Brinn")
    with pytest.raises(ParameterError, match="no positive value"):
        build_target(table(), "age", "50")


def test_rows_without_a_column_or_of_another_type_are_refused_without_quoting_them() -> None:
    rows = people(3)
    with pytest.raises(DataError, match="no column 'age'"):
        encode_rows(DESIGN, rows.drop_columns(["age"]))
    with pytest.raises(DataError) as refusal:
        encode_rows(DESIGN, rows.set_column(1, "age", pa.array(["secret-17", "2", "3"])))
    assert "secret" not in str(refusal.value)
