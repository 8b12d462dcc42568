"""Training through the curator: charged first, bounded by unit, without those who withdrew, tested on others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from deniable import Curator
from deniable.curator import train
from deniable.curator.federate import plan_round
from deniable.errors import (
    AccessRefused,
    BudgetExceeded,
    DataError,
    DeniableError,
    ExecutionFailed,
    ParameterError,
    StorageError,
)
from deniable.learn.logistic import LogisticPlan
from deniable.policy.document import parse
from deniable.release import Technique
from deniable.reports.page import render
from deniable.reports.tradeoffs import build_training_page
from learning import people

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.parquet
    unit: {column: pid, max_groups: 1, max_rows_per_group: 2}
    columns:
      pid: {role: identifier, type: integer}
      age: {type: integer, between: [0, 100]}
      sex: {categories: [F, M]}
      town: {categories: [Ada, Brin, Cole], nullable: false}
      charge: {type: decimal, between: [0, 1000], step: 0.01, role: sensitive}
      ill: {type: boolean, role: sensitive}
  towns: {source: towns.csv, public: true}
budgets:
  dataset: {epsilon: 3, delta: 1e-5, accounting: zcdp}
  purposes: {research: {epsilon: 2}}
  analysts:
    ana: {purposes: [research], epsilon: 1, columns: [age, charge]}
"""


def _curator(rows: pa.Table | None = None, policy: str = POLICY, **rest: Any) -> Curator:
    sources = {"visits": people(400) if rows is None else rows, "towns": pa.table({"town": ["Ada"]})}
    return Curator(parse(policy), sources=sources, **rest)


def test_a_model_is_a_release_with_its_guarantee() -> None:
    with _curator() as curator:
        trained = curator.train("visits", "charge", features=["age", "town"], epsilon=1)
        assert trained.release.guarantee.technique is Technique.DP_MODEL
        assert trained.release.guarantee.unit == "all rows of one pid"
        assert trained.release.rows.column("feature").to_pylist()[:2] == ["intercept", "age"]
        assert trained.release.details["target"] == "charge"
        assert trained.evaluation is None
        assert trained.predict(people(7)).shape == (7,)


@pytest.mark.parametrize("kind", ["pandas", "polars", "lazy", "batch", "reader"])
def test_a_frame_of_any_library_is_predicted_alike(kind: str) -> None:
    pytest.importorskip("polars" if kind == "lazy" else kind if kind in ("pandas", "polars") else "pyarrow")
    rows = people(7)
    with _curator() as curator:
        trained = curator.train("visits", "charge", features=["age", "sex"], epsilon=1)
    frame: Any = rows
    if kind == "pandas":
        frame = rows.to_pandas()
    elif kind in ("polars", "lazy"):
        import polars

        frame = polars.from_arrow(rows)
        frame = frame.lazy() if kind == "lazy" else frame
    elif kind in ("batch", "reader"):
        frame = rows.to_batches()[0] if kind == "batch" else rows.to_reader()
    assert (trained.predict(frame) == trained.predict(rows)).all()
    with pytest.raises(DataError, match="is not a table"):
        trained.predict(7)


def test_the_charge_is_written_before_the_rows_are_read_and_stands_when_reading_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a secret of the data")

    with _curator() as curator:
        before = curator.remaining()
        monkeypatch.setattr(train, "_bound_rows", fail)
        with pytest.raises(ExecutionFailed) as refusal:
            curator.train("visits", "charge", epsilon=1)
        assert "secret" not in str(refusal.value)
        assert curator.remaining() != before


def test_a_budget_that_is_not_there_is_refused_and_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "_bound_rows", lambda *_: pytest.fail("rows were read"))
    with _curator() as curator:
        before = curator.remaining()
        with pytest.raises(BudgetExceeded):
            curator.train("visits", "ill", epsilon=50)
        assert curator.remaining() == before


UNUSED = (
    ("charge", {"clip": 7}),
    ("charge", {"clip": "x"}),
    ("charge", {"turns": 3}),
    ("charge", {"method": "boosted", "penalty": 1.0}),
    ("sex", {"method": "multinomial", "clip": 1}),
    ("sex", {"method": "bayes", "turns": 3}),
    ("sex", {"method": "bayes", "penalty": 1.0}),
    ("sex", {"method": "mlp", "penalty": 1.0}),
    ("ill", {"method": "logistic", "hidden": 3}),
)


@pytest.mark.parametrize(("target", "settings"), UNUSED, ids=str)
def test_a_setting_that_the_method_does_not_have_is_refused_before_the_charge(
    target: str, settings: dict[str, Any]
) -> None:
    with _curator() as curator:
        with pytest.raises(ParameterError, match=r" has no (clip|turns|penalty|hidden)"):
            curator.train("visits", target, epsilon=1, **settings)
        assert curator.ledger.head() is None


@pytest.mark.parametrize(
    ("target", "settings", "told"),
    [
        ("ill", {"method": "mlp", "hidden": 1.5}, "hidden is not a whole number"),
        ("ill", {"method": "mlp", "hidden": "4"}, "hidden is a text"),
        ("ill", {"method": "mlp", "choose": {"hidden": [4.5, 8]}}, "hidden is not a whole number"),
        ("ill", {"method": "logistic", "turns": 2.5}, "turns is not a whole number"),
        (None, {"method": "kmeans", "count": 2.0}, "count is not a whole number"),
        (None, {"method": "pca", "count": True}, "count is of type bool"),
        ("charge", {"penalty": 1e308}, "penalty is not a number"),
        ("charge", {"penalty": "1"}, "penalty is a text"),
        ("charge", {"penalty": float("nan")}, "penalty is not a number"),
        ("ill", {"method": "mlp", "learning_rate": "a"}, "learning_rate is a text"),
        ("ill", {"method": None}, "method is None"),
        ("ill", {"positive": 1}, "positive is of type int"),
        ("ill", {"features": [1]}, "features is a list of int"),
        ("ill", {"epsilon": "1e400"}, "above 10,000"),
    ],
    ids=str,
)
def test_a_setting_of_another_kind_is_refused_before_the_charge(
    target: str | None, settings: dict[str, Any], told: str
) -> None:
    with _curator() as curator:
        with pytest.raises(ParameterError, match=told):
            curator.train("visits", target, **{"epsilon": 1} | settings)
        assert curator.ledger.head() is None


def test_settings_of_a_grid_in_numpy_are_taken() -> None:
    with _curator() as curator:
        model = curator.train("visits", "ill", epsilon=1, choose={"penalty": np.logspace(-3, -2, 2)})
        assert model.chosen is not None
        assert type(model.chosen["penalty"]) is float
        curator.train("visits", None, method="kmeans", count=np.int64(2), features=["age"], epsilon=np.float32(0.5))


def test_a_feature_that_is_named_twice_is_refused_before_the_charge() -> None:
    with _curator() as curator:
        with pytest.raises(ParameterError, match="the column 'age' is named twice"):
            curator.train("visits", "charge", features=["age", "town", "age"], epsilon=1)
        with pytest.raises(ParameterError, match="the column 'age' is named twice"):
            plan_round(curator.context, "visits", "mean", clients=5, features=["age", "age"], epsilon=1, delta="1e-6")
        assert curator.ledger.head() is None


def test_two_trainings_are_charged_twice() -> None:
    with _curator() as curator:
        first = curator.train("visits", "ill", epsilon="0.1").model
        left = curator.remaining()
        second = curator.train("visits", "ill", epsilon="0.1").model
        assert curator.remaining() != left
        assert first.coefficients != second.coefficients


def _spied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    seen: list[int] = []
    honest = LogisticPlan.fit
    monkeypatch.setattr(
        LogisticPlan, "fit", lambda plan, entries, *rest: (seen.append(len(entries)), honest(plan, entries, *rest))[1]
    )
    return seen


def test_a_unit_with_many_rows_counts_with_two(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, rows = _spied(monkeypatch), people(100)
    same = rows.set_column(0, "pid", pa.array([7] * 90 + list(range(10))))
    with _curator(same) as curator:
        curator.train("visits", "ill", epsilon="0.1")
    assert seen == [2 + 9]  # the ten others are nine with one row each, and the one called 7 again


def test_who_withdrew_is_not_learned_from(monkeypatch: pytest.MonkeyPatch) -> None:
    from deniable.curator.governance import withdrawals

    seen = _spied(monkeypatch)
    with _curator(people(50)) as curator:
        curator.train("visits", "ill", epsilon="0.1")
        withdrawals.withdraw(curator.context, "pid", "3")
        curator.train("visits", "ill", epsilon="0.1")
    assert seen == [50, 49]


def test_an_expired_policy_and_a_public_table_are_refused() -> None:
    with _curator(policy=POLICY + "expires: 2020-01-01\n") as curator, pytest.raises(AccessRefused, match="expired"):
        curator.train("visits", "ill", epsilon=1)
    with _curator() as curator:
        with pytest.raises(ParameterError, match="'towns' is public"):
            curator.train("towns", "ill", epsilon=1)
        with pytest.raises(DeniableError, match="Did you mean 'visits'"):
            curator.train("visit", "ill", epsilon=1)


def test_an_analyst_learns_only_from_columns_that_she_may_name() -> None:
    from deniable.governance.grants import Asker, Role

    ana = Asker("ana", "research", Role.ANALYST)
    with _curator() as curator:
        curator.train("visits", "charge", epsilon="0.1", who=ana)
        with pytest.raises(ParameterError, match="no column 'ill'"):
            curator.train("visits", "ill", epsilon="0.1", who=ana)
        with pytest.raises(AccessRefused, match="real rows"):
            curator.train("visits", "charge", epsilon="0.1", who=ana, evaluate=True)


def test_people_who_are_tested_on_took_no_part_in_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[set[int]] = []
    honest = train._split_rows

    def spied(*given: Any) -> Any:
        found = honest(*given)
        parts.extend(set(part["pid"].to_pylist()) for part in found)
        return found

    monkeypatch.setattr(train, "_split_rows", spied)
    rows = people(400)
    twice = rows.set_column(0, "pid", pa.array(np.arange(400) // 2))
    with _curator(twice) as curator:
        figures = curator.train("visits", "ill", epsilon=1, evaluate=True).evaluation
    learned, tested = parts
    # 200 people, each held out with chance 1/5: none or all with a chance below 1e-19.
    assert learned
    assert tested
    assert not learned & tested
    assert learned | tested == set(range(200))
    assert figures is not None
    assert set(figures) == {"rows", "accuracy", "area", "majority"}
    assert figures["rows"] == 2 * len(tested)


def test_the_evaluation_of_a_number_has_its_baseline_and_an_empty_table_has_none() -> None:
    with _curator() as curator:
        figures = curator.train("visits", "charge", epsilon=1, evaluate=True).evaluation
        assert figures is not None
        assert set(figures) == {"rows", "error", "mean_error", "r_squared"}
    with _curator(people(0)) as curator:
        assert curator.train("visits", "ill", epsilon=1, evaluate=True).evaluation is None


def _page(method: str, target: str, **rest: Any) -> str:
    with _curator(people(600)) as curator:
        trained = curator.train("visits", target, features=["age", "sex"], method=method, epsilon=1, **rest)
    return render(build_training_page(train.describe_model(trained)))


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("linear", "charge"),
        ("logistic", "ill"),
        ("poisson", "charge"),
        ("boosted", "ill"),
        ("bayes", "town"),
        ("multinomial", "town"),
        ("mlp", "ill"),
        ("mlp", "town"),
    ],
)
def test_the_page_of_a_model_shows_its_price_and_every_column(method: str, target: str) -> None:
    rest = {} if method in ("linear", "bayes") else {"turns": 2}
    public, tested = _page(method, target, **rest), _page(method, target, **rest, evaluate=True)
    for page in (public, tested):
        assert f"Model of {target}" in page
        assert "all rows of one pid" in page
        assert "Effects of the values of age" in page
        assert "Effects of the values of sex" in page
        told = method in ("linear", "logistic", "poisson", "boosted", "multinomial")
        assert ("Effects of the values of sex, with intervals of 95%" in page) == told
        # Null has no place on the axis of ages, and stands below it; the other one is that of sex.
        assert method == "linear" or page.count("<td>is null</td>") >= 2
    assert "Do not pass this on" not in public
    assert "Do not pass this on" in tested
    assert ("against the share of false alarms" in tested) == (target == "ill")


@pytest.mark.parametrize(("method", "kind"), [("kmeans", "group"), ("pca", "component")])
def test_the_page_of_a_structure_shows_its_shares_and_every_column(method: str, kind: str) -> None:
    for rest in ({}, {"evaluate": True}):
        with _curator(people(600)) as curator:
            trained = curator.train("visits", features=["age", "sex"], method=method, count=2, epsilon=1, **rest)
        page = render(build_training_page(train.describe_model(trained)))
        assert f"Model of {kind}" in page
        assert f"{kind} 2" in page
        assert "How large each is" in page
        assert "Effects of the values of age" in page
        assert ("Do not pass this on" in page) == bool(rest)
    assert trained.evaluation is not None
    assert set(trained.evaluation) == {"rows", "explained"}
    assert 0 < trained.evaluation["explained"] < 1


def test_the_curves_of_an_evaluation_are_those_of_the_rows_held_out() -> None:
    with _curator(people(3000)) as curator:
        model = curator.train("visits", "ill", features=["age"], epsilon=1, turns=20).model
    rows = people(2000, 5)
    points = train.trace_curves(model, rows)
    assert points is not None
    roc = [(each.x, each.y) for each in points if each.curve == "roc"]
    assert roc[0] == (0, 0)
    assert roc[-1] == (1, 1)
    chances, truth = model.predict(rows), np.asarray(rows["ill"])
    limit = np.quantile(chances, 0.5)  # the middle point, counted by hand
    assert roc[11] == (np.mean(chances[~truth] >= limit), np.mean(chances[truth] >= limit))
    told = [(each.x, each.y) for each in points if each.curve == "calibration"]
    assert len(told) == 10
    lowest = np.argsort(chances, kind="stable")[:200]
    assert told[0] == (chances[lowest].mean(), truth[lowest].mean())


def test_a_written_model_is_sealed_and_holds_no_evaluation(tmp_path: Path) -> None:
    from deniable.learn.model import load_model
    from deniable.release import verify

    out = tmp_path / "model.json"
    with _curator() as curator:
        trained = curator.train("visits", "charge", epsilon=1, evaluate=True, out=out)
    assert load_model(out) == trained.model
    statement = verify(out)
    assert statement.body["guarantee"]["technique"] == "differentially private model"
    for text in (out.read_text(), statement.path.read_text()):
        assert "r_squared" not in text
        assert "mean_error" not in text


def test_a_folder_that_is_not_there_is_refused_before_the_charge(tmp_path: Path) -> None:
    with _curator() as curator:
        before = curator.remaining()
        with pytest.raises(StorageError, match="Nothing was charged"):
            curator.train("visits", "charge", epsilon=1, out=tmp_path / "missing" / "model.json")
        assert curator.remaining() == before


def test_a_name_that_cannot_be_written_is_refused_before_the_charge(tmp_path: Path) -> None:
    (tmp_path / "model.json").mkdir()
    with _curator() as curator:
        with pytest.raises(StorageError, match="Nothing was charged"):
            curator.train("visits", "charge", epsilon=1, out=tmp_path / "model.json")
        assert list(curator.ledger.entries()) == []


def test_a_disk_that_refuses_the_model_has_not_undone_the_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk that was fine when it was looked at refuses afterwards."""

    def refuse(path: Path, _content: bytes) -> None:
        raise StorageError(f"{path.name} could not be written")

    monkeypatch.setattr("deniable.learn.model.write_whole", refuse)
    with _curator() as curator, pytest.raises(StorageError, match="The charge stands"):
        curator.train("visits", "charge", epsilon=1, out=tmp_path / "model.json")
