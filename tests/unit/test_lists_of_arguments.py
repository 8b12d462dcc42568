"""Lists are taken in whatever form Python users hold them; what is no list is refused, and a table is none."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from deniable import Curator, count, mean, sample_and_aggregate
from deniable.errors import DeniableError, ParameterError
from deniable.query.builder import col

ROWS = {"id": list(range(40)), "age": [each % 90 for each in range(40)], "sex": ["F", "M"] * 20}
COUNT = "SELECT COUNT(*) AS n FROM data"
FORMS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "keys": lambda values: dict.fromkeys(values).keys(),
    "generator": lambda values: (each for each in values),
    "array": np.array,
    "series": pd.Series,
    "index": pd.Index,
    "polars": pl.Series,
    "arrow": pa.array,
}


def open_frame(**more: Any) -> Curator:
    return Curator.from_frame(pa.table(ROWS), unit="id", budget=5, bounds={"age": (0, 100)}, **more)


@pytest.mark.parametrize("form", FORMS)
def test_a_list_may_come_in_any_form(form: str) -> None:
    make = FORMS[form]
    with open_frame(categories={"sex": make(["F", "M"])}) as curator:
        if form != "set":
            [answer] = curator.query_batch(make([COUNT]), epsilon=0.1)
            assert answer.to_pylist()[0]["n"] is not None
        assert curator.check("data", make(["sex", "age"]))
        assert "IN ('F', 'M')" in col("sex").is_in(make(["F", "M"])).text


@pytest.mark.parametrize("given", ["SELECT 1", 3, pd.DataFrame({"sex": [1]}), pa.table({"sex": [1]}), {"sex": 1}])
def test_what_is_no_list_is_refused_and_a_table_is_none(given: Any) -> None:
    with open_frame() as curator:
        with pytest.raises(ParameterError, match=r"questions is .* It is a list of texts\. Nothing was charged"):
            curator.query_batch(given, epsilon=0.1)
        with pytest.raises(ParameterError, match=r"is_in takes a list of one or more values|neither true nor false"):
            col("sex").is_in(given)


def test_a_set_is_refused_where_the_order_means_something() -> None:
    """Levels of a hierarchy, and longitude and latitude, were taken in the order of the alphabet."""
    with open_frame() as curator:
        for call in (
            lambda: curator.query_batch({COUNT}, epsilon=0.1),  # type: ignore[arg-type]
            lambda: curator.hierarchy("data", {"sex", "age"}, epsilon=0.1),  # type: ignore[arg-type]
            lambda: curator.places("data", at={"y", "x"}, epsilon=0.1),  # type: ignore[arg-type]
        ):
            with pytest.raises(ParameterError, match=r"is a set, which has no order\. A list or a tuple"):
                call()
    with pytest.raises(ParameterError, match="bounds is a set"):
        Curator.from_frame(pa.table(ROWS), unit="id", budget=1, bounds={"age": {0, 100}})  # type: ignore[dict-item]


def test_no_delta_is_a_delta_of_nothing() -> None:
    with open_frame() as curator:
        assert curator.query(COUNT, epsilon=0.1, delta=None).release.details["cost"]["epsilon"] == "0.1"  # type: ignore[arg-type]
        with pytest.raises(ParameterError, match="epsilon is a list"):
            curator.query(COUNT, epsilon=[0.1])  # type: ignore[arg-type]


def test_rho_is_refused_where_epsilons_are_added_up() -> None:
    """A large rho was told as an epsilon that is too large, a small one as noise that has no price."""
    with open_frame() as curator:
        for rho in (5, 0.005):
            with pytest.raises(
                ParameterError, match=r"states rho, and this policy adds up epsilon.*Nothing was charged"
            ):
                curator.query(COUNT, rho=rho)
            with pytest.raises(ParameterError, match="states rho, and this policy adds up epsilon"):
                curator.explain(COUNT, rho=rho)


def test_a_column_that_was_numbered_is_named_in_the_refusal() -> None:
    with pytest.raises(ParameterError, match=r"no column 'a'.*It is named 'a_2' here"):
        Curator.from_frame(pa.table({"id": [1], "A": [1], "a": [2]}), unit="id", budget=1, bounds={"a": (0, 1)})


@pytest.mark.parametrize(
    ("called", "said"),
    [
        (lambda curator: curator.query(COUNT, epsilon=0.1, stop=-1), "stop is of type int. It is a threading.Event"),
        (lambda curator: curator.inspect("m.json", regression=-1), "regression is of type int. It is a pair"),
        (lambda curator: curator.record("custom", event=-1), "event is of type int. It is an event of"),
        (lambda curator: curator.tabulate("none.yaml"), "there is no file 'none.yaml'"),
        (lambda curator: curator.predict("none.json", pa.table(ROWS), "o.csv"), "there is no file 'none.json'"),
    ],
)
def test_what_is_of_another_type_or_not_there_is_named(called: Callable[[Curator], Any], said: str) -> None:
    with open_frame() as curator, pytest.raises(DeniableError, match=re.escape(said)):
        called(curator)


def test_rows_at_hand_are_aggregated_by_a_function_of_a_table() -> None:
    with pytest.raises(ParameterError, match="the function cannot be called"):
        sample_and_aggregate("mean", pa.table(ROWS), "id", 5, (0, 1), 1)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="a value of type int is not a table"):
        sample_and_aggregate(len, 5, "id", 5, (0, 1), 1)  # type: ignore[arg-type]


def test_a_file_whose_numbers_can_be_read_in_two_ways_is_told(tmp_path: Path) -> None:
    """`policy init` says so, and the same file in Python was read without a word."""
    (tmp_path / "pay.csv").write_text("id;x\n" + "".join(f"{n};{n % 9 + 1}.234\n" for n in range(40)))
    with pytest.warns(UserWarning, match="numbers such as 1.234 are read with a decimal point"):
        Curator.from_frame(tmp_path / "pay.csv", unit="id", budget=1, bounds={"x": (0, 20000)})


@pytest.mark.parametrize("form", ["list", "set", "generator", "array", "series"])
def test_the_builder_takes_lists_of_keys_and_of_aggregates(form: str) -> None:
    with open_frame(categories={"sex": ["F", "M"]}) as curator:
        asked = curator.table("data").group_by(FORMS[form](["sex"])).agg([count(), mean("age")])
        assert asked.ask(epsilon=1).list_columns()[:1] == ["sex"]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, pa.table])
def test_a_report_of_a_frame_holds_no_value_of_it(frame: Callable[..., Any]) -> None:
    """The frame itself was the name of the source, and was printed with the report."""
    rows = frame(ROWS | {"note": [f"Zebediah {n}" for n in range(40)]})
    report = Curator.scan(rows, "id")
    assert report.source == "the table at hand"
    assert "Zebediah" not in str(report) + repr(report) + str(report.to_dict())
    with pytest.raises(DeniableError, match="'the table at hand' has no rows"):
        Curator.scan(rows[:0], "id")


@pytest.mark.parametrize("missing", [None, float("nan")])
def test_a_missing_value_is_no_category(missing: Any) -> None:
    with pytest.raises(ParameterError, match="have a missing value among them"):
        open_frame(categories={"sex": [missing, "F"]})
