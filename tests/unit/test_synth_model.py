"""Models and tables: types, nulls and bounds come back; a model file is data and holds no row."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from deniable.errors import IntegrityError, ParameterError
from deniable.policy.budget import ZCDP, ApproxDP
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, Role, Spec, TableSchema
from deniable.synth.describe import describe_table
from deniable.synth.domain import attributes_of
from deniable.synth.encode import encode_column
from deniable.synth.generate import generate, generate_batches
from deniable.synth.model import load, save, to_plain

COLUMNS = (
    Column("id", ColumnType.TEXT, Role.IDENTIFIER),
    Column("sex", ColumnType.TEXT, categories=("F", "M"), nullable=False),
    Column("smoker", ColumnType.BOOLEAN),
    Column("age", ColumnType.INTEGER, bounds=Bounds(0, 120), nullable=False),
    Column("charge", ColumnType.DECIMAL, bounds=Bounds(Fraction(0), Fraction(1000), Fraction(1, 100))),
    Column("seen", ColumnType.DATE, bounds=Bounds(date(2020, 1, 1), date(2020, 12, 31)), nullable=False),
    Column("note", ColumnType.TEXT),
)
PEOPLE = TableSchema("people", "people.csv", COLUMNS, PrivacyUnit())
SECRET = "canary-8c1f"


def _rows(count: int = 400) -> pa.Table:
    return pa.table(
        {
            "id": [f"{SECRET}-{i}" for i in range(count)],
            "sex": ["F" if i % 3 else "M" for i in range(count)],
            "smoker": [None if i % 4 == 0 else i % 2 == 0 for i in range(count)],
            "age": [20 + i % 60 for i in range(count)],
            "charge": [None if i % 5 == 0 else (i % 97) + 0.25 for i in range(count)],
            "seen": [date(2020, 1 + i % 12, 1 + i % 28) for i in range(count)],
            "note": [SECRET] * count,
        }
    )


def _model(count: int = 400):  # type: ignore[no-untyped-def]
    return describe_table(_rows(count), PEOPLE, ApproxDP(3, 1e-6))


def test_types_bounds_and_nulls_come_back_as_declared() -> None:
    made = generate(_model(), 300, seed=1)
    assert made.num_rows == 300
    assert set(made["sex"].to_pylist()) <= {"F", "M"}
    assert set(made["smoker"].to_pylist()) <= {True, False, None}
    assert None in made["smoker"].to_pylist()
    assert all(isinstance(age, int) and 0 <= age <= 120 for age in made["age"].to_pylist())
    assert all(c is None or abs(c * 100 - round(c * 100)) < 1e-6 for c in made["charge"].to_pylist())
    assert all(date(2020, 1, 1) <= day <= date(2020, 12, 31) for day in made["seen"].to_pylist())


def test_identifiers_and_texts_are_made_anew_and_hold_nothing_of_the_data() -> None:
    made = generate(_model(), 5)
    assert made["id"].to_pylist() == [f"synthetic-id-{i}" for i in range(1, 6)]
    assert SECRET not in json.dumps(made.to_pylist(), default=str)


def test_a_model_file_holds_no_row_and_gives_the_same_rows_for_the_same_seed(tmp_path: Path) -> None:
    model = _model()
    save(model, tmp_path / "people.json")
    assert SECRET not in (tmp_path / "people.json").read_text()
    assert generate(load(tmp_path / "people.json"), 200, 7).equals(generate(model, 200, 7))
    assert not generate(model, 200, 7).equals(generate(model, 200, 8))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"form": "deniable synthetic model, version 1"}', "import os"])
def test_whatever_is_not_a_model_is_refused_and_never_run(text: str, tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(text)
    with pytest.raises(IntegrityError, match="not a model"):
        load(tmp_path / "m.json")


def test_a_model_with_a_changed_shape_is_refused(tmp_path: Path) -> None:
    plain = to_plain(_model())
    plain["collapsed"][0] = [0]
    (tmp_path / "m.json").write_text(json.dumps(plain))
    with pytest.raises(IntegrityError):
        load(tmp_path / "m.json")


def _list_paths(held: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    parts = held.items() if isinstance(held, dict) else enumerate(held[:3]) if isinstance(held, list) else ()
    return [path, *(found for key, part in parts for found in _list_paths(part, (*path, key)))]


def test_one_value_changed_is_refused_or_the_model_still_draws_rows(tmp_path: Path) -> None:
    save(_model(), path := tmp_path / "model.json")
    whole = path.read_text(encoding="utf-8")
    for place in _list_paths(json.loads(whole))[1:]:
        for odd in (None, -1, True, float("nan"), 2**70, 1e308, [], [None], "x", {}):
            changed = held = json.loads(whole)
            for key in place[:-1]:
                held = held[key]
            held[place[-1]] = odd
            path.write_text(json.dumps(changed), encoding="utf-8")
            with contextlib.suppress(IntegrityError, ParameterError):
                generate(load(path), 3)


TRUTHS = (
    Spec("order", {"columns": ("age", "charge")}), Spec("holds", {"condition": "age >= 10 OR smoker = false"}),
    Spec("impossible", {"when": {"sex": ("F",), "age": (3,)}}),
)  # fmt: skip


@pytest.mark.parametrize(
    "spoil",
    [
        lambda held: held["truths"][0].__setitem__("kind", "odd"),
        lambda held: held["truths"][0].__setitem__("options", {}),
        lambda held: held["truths"][0]["options"].__setitem__("columns", [[]]),
        lambda held: held["truths"][0]["options"].__setitem__("columns", ["age", "sex"]),
        lambda held: held["truths"][1]["options"].__setitem__("condition", "age >= " + "9" * 5000),
        lambda held: held["truths"][2]["options"].__setitem__("when", ["sex"]),
        lambda held: held["truths"][2]["options"]["when"].__setitem__("age", float("inf")),
        lambda held: held["truths"][2]["options"]["when"].__setitem__("age", "1e30000000"),
        lambda held: held["truths"][2]["options"]["when"].__setitem__("age", [[]]),
        lambda held: held["attributes"][3].__setitem__("step", "1e-30000000"),
        lambda held: held["attributes"][3].__setitem__("lower", "1e30000000"),
        lambda held: held["attributes"][0].__setitem__("name", "\ud800"),
        lambda held: held["event"].__setitem__("kind", "free"),
        lambda held: held["columns"][0]["event"].__setitem__("variance", "1e30000000"),
        lambda held: held["estimates"]["columns"].__setitem__(0, [0.0, 0.0]),
    ],
)
def test_a_changed_part_is_refused_at_once_and_in_words(spoil: Callable[[Any], None], tmp_path: Path) -> None:
    """They ended in an internal error, in a refusal that named no file, or never."""
    held = json.loads(json.dumps(to_plain(replace(_model(), truths=TRUTHS))))
    (path := tmp_path / "model.json").write_text(json.dumps(held), encoding="utf-8")
    assert generate(load(path), 3).num_rows == 3
    spoil(held)
    path.write_text(json.dumps(held), encoding="utf-8")
    with pytest.raises(IntegrityError, match=r"'model.json' is not a model of ours"):
        load(path)


@pytest.mark.parametrize("odd", [True, -1.0, float("nan"), None])
def test_an_estimate_that_is_no_count_is_refused(odd: object, tmp_path: Path) -> None:
    held = json.loads(json.dumps(to_plain(_model())))
    held["estimates"]["columns"][0][0] = odd
    (path := tmp_path / "model.json").write_text(json.dumps(held), encoding="utf-8")
    with pytest.raises(IntegrityError):
        load(path)


def test_values_outside_the_declaration_become_null_or_the_nearest_bound() -> None:
    by_name = {attribute.name: attribute for attribute in attributes_of(PEOPLE)}
    smoker, age = by_name["smoker"], by_name["age"]
    assert encode_column(smoker, pa.array([True, None, False])).tolist() == [1, 2, 0]  # type: ignore[arg-type]
    assert encode_column(age, pa.array([-5, 0, 120, 999])).tolist() == [0, 0, 120, 120]  # type: ignore[arg-type]


def test_a_number_without_bounds_is_refused_before_any_row_is_read() -> None:
    bare = TableSchema("t", "t.csv", (Column("x", ColumnType.INTEGER),), PrivacyUnit())
    with pytest.raises(ParameterError, match="no public bounds"):
        describe_table(pa.table({"x": [1]}), bare, ApproxDP(1, 1e-6))


def test_an_unknown_method_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(ParameterError, match="Did you mean 'auto'"):
        describe_table(_rows(3), PEOPLE, ApproxDP(1, 1e-6), "autoo")


def test_rows_are_drawn_in_batches_of_bounded_size() -> None:
    sizes = [batch.num_rows for batch in generate_batches(_model(50), 600_001)]
    assert sizes == [500_000, 100_001]


def test_a_zcdp_budget_is_taken_as_it_is() -> None:
    assert describe_table(_rows(50), PEOPLE, ZCDP("0.5")).description.method == "auto"
