"""A model file is data: it round-trips, it holds no row, and what is not one is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from deniable.errors import DataError, IntegrityError
from deniable.learn.model import LearnedModel, from_plain, load_model, save_model, to_plain
from deniable.learn.training import Task, plan_training, train_model
from deniable.policy.budget import ApproxDP
from learning import ROW, people, table


@pytest.fixture(scope="module", params=["charge", "ill"])
def model(request: pytest.FixtureRequest) -> LearnedModel:
    return train_model(plan_training(table(), ROW, Task(request.param), ApproxDP(1, "1e-6")), people(200))


def test_a_model_reads_back_as_it_was_written(model: LearnedModel, tmp_path: Path) -> None:
    save_model(model, tmp_path / "m.json")
    again = load_model(tmp_path / "m.json")
    assert again == model
    assert (again.predict(people(20)) == model.predict(people(20))).all()


def test_the_file_tells_what_it_learned_from_whom_and_at_what_price(model: LearnedModel) -> None:
    held = to_plain(model)
    assert held["guarantee"]["epsilon"] == "1"
    assert held["guarantee"]["unit"] == "one row"
    assert len(held["entries"]) == len(held["coefficients"])
    assert json.loads(json.dumps(held)) == held


@pytest.mark.parametrize(
    "spoil",
    [
        lambda held: held.pop("coefficients"),
        lambda held: held["coefficients"].append(1.0),
        lambda held: held["coefficients"].__setitem__(0, float("nan")),
        lambda held: held["coefficients"].__setitem__(0, "__import__('os')"),
        lambda held: held.__setitem__("form", "another model 1"),
        lambda held: held.__setitem__("method", "forest"),
        lambda held: held["features"][0].__setitem__("kind", "code"),
        lambda held: held["event"].__setitem__("kind", "free"),
        lambda held: held["guarantee"].__setitem__("neighbors", "nobody"),
        lambda held: held.__setitem__("features", None),
        lambda held: held["features"][0].__setitem__("lower", "1/0"),
        lambda held: held["features"][0].__setitem__("lower", "-1e400"),
        lambda held: held["features"][0].__setitem__("lower", "-1e30000000"),
        lambda held: held["guarantee"].__setitem__("epsilon", "1e30000000"),
        lambda held: held["event"].__setitem__("variance", "1e30000000"),
        lambda held: held["features"][1]["labels"].__setitem__(0, 1),
        lambda held: held["features"][1]["labels"].__setitem__(0, "\ud800"),
        lambda held: held["target"].__setitem__("name", "\ud800"),
        lambda held: held["features"][0].__setitem__("lower", "1000"),
        lambda held: held["features"][1].__setitem__("labels", [{"a": 1}, None]),
        lambda held: held["features"][1].__setitem__("name", None),
        lambda held: held["coefficients"].__setitem__(0, "1"),
        lambda held: held["coefficients"].__setitem__(0, True),
        lambda held: held["coefficients"].__setitem__(0, 1e308),
        lambda held: held["entries"].reverse(),
        lambda held: held.__setitem__("rows", "many"),
    ],
)
def test_a_changed_file_is_refused(model: LearnedModel, tmp_path: Path, spoil: object) -> None:
    held = to_plain(model)
    spoil(held)  # type: ignore[operator]
    (tmp_path / "m.json").write_text(json.dumps(held))
    with pytest.raises(IntegrityError, match="not a learned model"):
        load_model(tmp_path / "m.json")


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe", b"null", b"{}", b"[" * 100_000])
def test_what_is_no_model_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m.json").write_bytes(content)
    with pytest.raises(IntegrityError):
        load_model(tmp_path / "m.json")
    with pytest.raises(DataError):
        load_model(tmp_path / "missing.json")


def test_losses_are_low_where_the_model_fits(model: LearnedModel) -> None:
    rows = people(50)
    found = model.losses(rows)
    assert found.shape == (50,)
    assert (found >= 0).all()
    place, name = rows.column_names.index(model.target.name), model.target.name
    hole = rows.set_column(place, name, pa.nulls(50, rows[name].type))
    assert np.isnan(model.losses(hole)).all()


def test_plain_values_alone_make_the_model_again(model: LearnedModel) -> None:
    assert from_plain(to_plain(model)) == model
