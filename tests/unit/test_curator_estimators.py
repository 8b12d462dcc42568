"""Estimators in scikit-learn's manner: the same charge, the same policy, rows of any library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deniable import Curator, PrivateClassifier, PrivateKMeans, PrivatePCA, PrivateRegressor
from deniable.curator import train
from deniable.errors import BudgetExceeded, DataError, ParameterError
from deniable.policy.document import read
from learning import people

POLICY = """
version: 1
dataset: clinic
tables:
  visits:
    source: visits.parquet
    unit: {column: pid, max_groups: 1, max_rows_per_group: 1}
    columns:
      pid: {role: identifier, type: integer}
      age: {type: integer, between: [0, 100]}
      town: {categories: [Ada, Brin, Cole], nullable: false}
      charge: {type: decimal, between: [0, 1000], step: 0.01}
      ill: {type: boolean}
budgets:
  dataset: {epsilon: 3, delta: 1e-5, accounting: zcdp}
"""
ROWS = people(3000)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    pq.write_table(ROWS, tmp_path / "visits.parquet")
    (tmp_path / "policy.yaml").write_text(POLICY)
    return tmp_path / "policy.yaml"


def _classifier(policy: Any, **rest: Any) -> PrivateClassifier:
    return PrivateClassifier(policy, "visits", "ill", **{"features": ["age"], "epsilon": 1, "turns": 10, **rest})


def test_a_fit_reads_the_policys_source_and_is_charged_to_its_ledger(policy: Path) -> None:
    fitted = _classifier(policy).fit()
    chances = fitted.predict_proba(ROWS)
    assert chances.shape == (3000, 2)
    assert np.allclose(chances.sum(axis=1), 1)
    assert fitted.classes_.tolist() == [False, True]
    assert fitted.score(ROWS, ROWS["ill"]) > 0.8
    assert (fitted.predict(ROWS) == (chances[:, 1] > 0.5)).all()
    with Curator.open(policy) as curator:
        assert len([entry for entry in curator.ledger.entries() if "model" in str(entry)]) == 1
    with pytest.raises(BudgetExceeded):
        _classifier(policy, epsilon="2.99").fit()


def test_a_fit_without_budget_reads_no_row(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "_bound_rows", lambda *_: pytest.fail("rows were read"))
    with pytest.raises(BudgetExceeded):
        _classifier(policy, epsilon=50).fit(ROWS)


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "apart"])
def test_rows_of_any_library_are_learned_from_and_predicted(kind: str, policy: Path) -> None:
    made: Any = {"pandas": ROWS.to_pandas, "polars": lambda: pl.from_arrow(ROWS)}.get(kind, lambda: ROWS)()
    truth = None
    if kind == "apart":
        made, truth = ROWS.drop_columns("charge").to_pandas(), np.asarray(ROWS["charge"])
    fitted = PrivateRegressor(policy, "visits", "charge", features=["age", "town"], epsilon=1).fit(made, truth)
    assert fitted.score(made, np.asarray(ROWS["charge"])) > 0.5
    assert fitted.feature_names_in_ == ["age", "town"]


def test_an_array_has_the_features_in_their_order(policy: Path) -> None:
    fitted = _classifier(policy).fit()
    assert (fitted.predict(np.array([[0], [100]])) == [False, True]).all()
    with pytest.raises(DataError, match="no names"):
        fitted.predict(np.zeros((3, 2)))


def test_what_does_not_fit_together_is_refused_before_a_charge(policy: Path, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="PrivateRegressor"):
        PrivateClassifier(policy, "visits", "charge", epsilon=1).fit()
    with pytest.raises(ParameterError, match="PrivateClassifier"):
        PrivateRegressor(policy, "visits", "ill", epsilon=1).fit()
    with pytest.raises(ParameterError, match="no column 'il'"):
        PrivateClassifier(policy, "visits", "il", epsilon=1).fit()
    with pytest.raises(DataError, match="given apart"):
        _classifier(policy).fit(ROWS, ROWS["ill"])
    with pytest.raises(DataError, match="equally many"):
        _classifier(policy).fit(ROWS.drop_columns("ill"), [True])
    with pytest.raises(ParameterError, match="no ledger"):
        _classifier(read(policy)).fit(ROWS)
    with pytest.raises(ParameterError, match="not been fitted"):
        _classifier(policy).predict(ROWS)
    with Curator.open(policy) as curator:
        assert list(curator.ledger.entries()) == []
    assert _classifier(read(policy), ledger=tmp_path / "other.ledger").fit(ROWS).n_features_in_ == 1


def test_missing_targets_that_come_apart_are_nulls_and_mixed_ones_are_refused_without_a_value(policy: Path) -> None:
    features, towns = ROWS.select(["pid", "age"]).to_pandas(), ROWS["town"].to_pandas()
    towns[3] = np.nan
    towns[4] = None
    model = PrivateClassifier(policy, "visits", "town", features=["age"], method="bayes", epsilon=1)
    assert set(model.fit(features, towns).predict(features)) <= {"Ada", "Brin", "Cole"}
    mixed = towns.astype(object)
    mixed[5] = 1.5
    with pytest.raises(DataError, match="not of one type") as refusal:
        model.fit(features, mixed.where(mixed.index < 2999, "Secretville"))
    assert "Ada" not in str(refusal.value)
    assert "Secretville" not in str(refusal.value)


def test_columns_that_are_not_learned_from_may_be_left_out_and_others_not(policy: Path) -> None:
    assert _classifier(policy).fit(ROWS.select(["pid", "age", "ill"])).n_features_in_ == 1
    for lacking in (["age", "ill"], ["pid", "ill"], ["pid", "age"]):
        with pytest.raises(DataError, match="is declared"):
            _classifier(policy).fit(ROWS.select(lacking))


def test_parameters_are_read_and_set_by_name(policy: Path) -> None:
    made = _classifier(policy)
    again = PrivateClassifier(**made.get_params())
    assert again.get_params() == made.get_params()
    assert made.set_params(epsilon=2).epsilon == 2
    assert repr(made) == f"PrivateClassifier(policy={policy!r}, table='visits', target='ill', features=['age'], " + (
        "epsilon=2, turns=10)"
    )
    with pytest.raises(ParameterError, match="no parameter 'eps'"):
        made.set_params(eps=1)


def test_one_value_of_several_is_told_from_the_others(policy: Path) -> None:
    made = PrivateClassifier(policy, "visits", "town", features=["charge"], positive="Brin", epsilon=1, turns=5).fit()
    assert made.classes_.tolist() == ["other", "Brin"]
    assert set(made.predict(ROWS)) <= {"other", "Brin"}


@pytest.mark.parametrize("method", ["bayes", "multinomial"])
def test_all_values_are_told_apart(policy: Path, method: str) -> None:
    made = PrivateClassifier(policy, "visits", "town", features=["charge", "age"], method=method, epsilon=1).fit()
    assert made.classes_.tolist() == ["Ada", "Brin", "Cole"]
    assert np.allclose(made.predict_proba(ROWS).sum(axis=1), 1)
    assert made.score(ROWS, ROWS["town"]) > 0.4  # one in three by chance


def test_a_perceptron_in_scikit_learns_manner(policy: Path) -> None:
    own = {"hidden": 4, "turns": 60, "learning_rate": 0.05, "rate": "1/5"}
    made = PrivateClassifier(policy, "visits", "ill", features=["age"], method="mlp", epsilon=1, **own).fit()
    assert made.get_params()["rate"] == "1/5"
    assert made.predict_proba(ROWS).shape == (3000, 2)
    assert made.score(ROWS, ROWS["ill"]) > 0.7  # half by chance, 0.84 at best
    number = PrivateRegressor(policy, "visits", "charge", features=["age"], method="mlp", epsilon=1, **own).fit()
    assert number.score(ROWS, ROWS["charge"]) > 0.2
    several = PrivateClassifier(policy, "visits", "town", features=["charge"], method="mlp", epsilon=1, **own).fit()
    assert several.classes_.tolist() == ["Ada", "Brin", "Cole"]


def test_scikit_learn_clones_and_pipes_them(policy: Path) -> None:
    base, pipeline = pytest.importorskip("sklearn.base"), pytest.importorskip("sklearn.pipeline")
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    made = base.clone(_classifier(policy))
    assert base.is_classifier(made)
    assert base.is_regressor(PrivateRegressor(policy, "visits", "charge", epsilon=1))
    rows = pd.DataFrame({name: ROWS[name].to_pandas() for name in ("pid", "age", "ill")})
    piped = pipeline.make_pipeline(preprocessing.FunctionTransformer(), made).fit(rows)
    assert piped.predict_proba(rows).shape == (3000, 2)
    assert piped.get_params()["privateclassifier__epsilon"] == 1
    assert piped.score(rows, rows["ill"]) > 0.8


def test_groups_and_components_in_scikit_learns_manner(policy: Path) -> None:
    groups = PrivateKMeans(policy, "visits", n_clusters=2, features=["age", "town"], epsilon=1).fit()
    assert groups.cluster_centers_.shape == (2, 5)
    assert (groups.predict(ROWS) == groups.transform(ROWS).argmin(axis=1)).all()
    assert groups.score(ROWS) == pytest.approx(-((groups.transform(ROWS).min(axis=1)) ** 2).sum())
    axes = PrivatePCA(policy, "visits", features=["age", "charge"], epsilon=1).fit(
        ROWS.select(["pid", "age", "charge"])
    )
    assert axes.transform(ROWS).shape == (3000, 2)
    assert np.allclose(axes.components_ @ axes.components_.T, np.eye(2))
    assert axes.explained_variance_ratio_[0] > axes.explained_variance_ratio_[1] > 0
    assert PrivatePCA(**axes.get_params()).get_params() == axes.get_params()
    with pytest.raises(ParameterError, match="count or turns"):
        PrivateKMeans(policy, "visits", n_clusters=1, epsilon=1).fit()
    with pytest.raises(ParameterError, match="not been fitted"):
        PrivatePCA(policy, "visits", epsilon=1).transform(ROWS)


def test_scikit_learn_takes_groups_and_components(policy: Path) -> None:
    base, pipeline = pytest.importorskip("sklearn.base"), pytest.importorskip("sklearn.pipeline")
    made = PrivateKMeans(policy, "visits", n_clusters=2, features=["age"], epsilon="0.5")
    assert base.is_clusterer(base.clone(made))
    piped = pipeline.make_pipeline(PrivatePCA(policy, "visits", features=["age", "charge"], epsilon="0.5")).fit(ROWS)
    assert piped.transform(ROWS).shape == (3000, 2)


def test_arrow_readers_are_rows_too(policy: Path) -> None:
    reader = pa.RecordBatchReader.from_batches(ROWS.schema, ROWS.to_batches())
    assert _classifier(policy).fit(reader).n_features_in_ == 1
