"""Restrictions hold for every way of reading, on every engine, and change the version of the data."""

from __future__ import annotations

from fractions import Fraction

import pyarrow as pa
import pytest

from deniable.engines import Engine
from deniable.engines.base import Listed, Sampled
from deniable.errors import DataError


@pytest.fixture
def people(engine: Engine) -> Engine:
    engine.attach("people", pa.table({"id": [1, 2, 3, None], "sex": ["F", "M", "F", "F"]}))
    return engine


def ids(engine: Engine) -> list[int | None]:
    return engine.run("SELECT id FROM people").column("id").to_pylist()


def test_listed_rows_are_left_out_and_missing_values_stay(people: Engine) -> None:
    people.restrict("people", Listed("id", ("2", "no number", "77"), keep=False))
    assert ids(people) == [1, 3, None]
    assert people.count("people") == 3
    assert sum(batch.num_rows for batch in people.stream("people")) == 3


def test_only_listed_rows_are_kept_and_restrictions_add_up(people: Engine) -> None:
    people.restrict("people", Listed("sex", ("F",), keep=True), Listed("id", ("3",), keep=False))
    assert ids(people) == [1, None]
    people.restrict("people", Listed("id", (), keep=True))
    assert ids(people) == []


def test_another_call_replaces_the_restrictions_and_the_version_follows(people: Engine) -> None:
    whole = people.data_version("people")
    people.restrict("people", Listed("id", ("2",), keep=False))
    cut = people.data_version("people")
    people.restrict("people", Listed("id", ("3",), keep=False))
    assert len({whole, cut, people.data_version("people")}) == 3
    people.restrict("people")
    assert (ids(people), people.data_version("people")) == ([1, 2, 3, None], whole)


@pytest.mark.parametrize("column", ["unit", None])
def test_a_sample_keeps_whole_units_is_of_its_size_and_the_same_each_time(engine: Engine, column: str | None) -> None:
    engine.attach("visits", pa.table({"unit": [i // 4 for i in range(40_000)]}))
    engine.restrict("visits", Sampled(Fraction(1, 5), column, 12345))
    rows = engine.run("SELECT unit, count(*) AS n FROM visits GROUP BY unit").to_pylist()
    total = sum(row["n"] for row in rows)
    assert 7_500 < total < 8_500
    assert engine.count("visits") == total
    assert ({row["n"] for row in rows} == {4}) == (column is not None)
    engine.restrict("visits", Sampled(Fraction(1, 5), column, 54321))
    again = engine.run("SELECT unit, count(*) AS n FROM visits GROUP BY unit").to_pylist()
    assert sorted(map(str, again)) != sorted(map(str, rows))


def test_a_column_that_is_not_there_is_refused_and_values_are_not_shown(people: Engine) -> None:
    with pytest.raises(DataError, match="no column 'idd'"):
        people.restrict("people", Listed("idd", ("a secret",), keep=False))
    assert "a secret" not in repr(Listed("id", ("a secret",), keep=False))
    assert "12345" not in repr(Sampled(Fraction(1, 2), "id", 12345))
