"""Refusals of values say nothing of how many there are: neither in their words nor in their fields."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from deniable.errors import DeniableError
from deniable.kanonymity.builders.categories import from_rows
from deniable.kanonymity.builders.specs import make_builder
from deniable.kanonymity.encoding import encode_column
from deniable.kanonymity.quality import estimate_accuracy
from deniable.policy.schema import Spec

TREE = from_rows("city", [("Oslo", "N"), ("Rome", "S")])


def repeat(value: object, times: int) -> pa.Table:
    return pa.table({"city": pa.array([value] * times), "age": pa.array(range(times))})


def encode_cities(count: int) -> None:
    strange = pa.chunked_array([["Oslo", *(f"Elsewhere {place}" for place in range(count))]])
    encode_column("city", strange, TREE)


def build_standard(count: int) -> None:
    values = pa.array(["A00", *(f"!{place}" for place in range(count))])
    make_builder(Spec("standard", {"name": "icd-10"})).hierarchy("code", values)


REFUSED: list[Callable[[int], object]] = [
    encode_cities,
    build_standard,
    lambda count: estimate_accuracy(repeat("Oslo", count), "city", ("age",)),
]


@pytest.mark.parametrize("refuse", REFUSED)
def test_a_refusal_of_other_rows_has_the_same_words(refuse: Callable[[int], object]) -> None:
    told = set()
    for count in (2, 3, 4):
        with pytest.raises(DeniableError) as refused:
            refuse(count)
        told.add(str(refused.value))
        assert "count" not in refused.value.fields
    assert len(told) == 1
