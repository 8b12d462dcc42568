"""Federated rounds: as with all rows in one place, noise for the fewest clients, documents that are read back."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from deniable.attacks.dp_audit import audit
from deniable.dp.accounting import cheap_epsilon
from deniable.errors import DataError, ParameterError, PolicyError
from deniable.learn import federated
from deniable.learn.federated import (
    LEAST,
    Round,
    add_share,
    check_table,
    collect,
    conclude,
    encode_for,
    plan_round,
    read_round,
    round_to_plain,
)
from deniable.policy.budget import ZCDP, ApproxDP
from deniable.policy.schema import Bounds, Column, ColumnType, Neighboring, PrivacyUnit, TableSchema
from learning import PERSON, ROW, people, rows_of, table

BUDGET = ApproxDP(Fraction(1), Fraction("1e-6"))
METHODS: list[tuple[str, dict[str, Any]]] = [
    ("means", {}),
    ("histogram", {}),
    ("linear", {"target": "charge"}),
    ("bayes", {"target": "town"}),
    ("pca", {}),
]


def _round(method: str = "means", **rest: Any) -> Round:
    rest = {"clients": 10, "least": 8, "features": ("age", "sex"), **rest}
    return plan_round(table(), ROW, method, rest.pop("budget", BUDGET), **rest)


@pytest.mark.parametrize(("method", "rest"), METHODS)
def test_exact_sums_of_clients_are_those_of_all_rows_together(method: str, rest: dict[str, Any]) -> None:
    what = _round(method, **rest)
    parts = [people(50, seed) for seed in range(4)]
    plan, whole = what.plan, pa.concat_tables(parts)
    apart = sum(collect(plan, encode_for(plan, what.target, part)) for part in parts)
    assert (apart == collect(plan, encode_for(plan, what.target, whole))).all()
    assert len(apart) == what.terms.length


@pytest.mark.parametrize(("method", "rest"), METHODS)
def test_a_round_finds_what_is_there_and_its_document_is_read_back(method: str, rest: dict[str, Any]) -> None:
    what = read_round(json.dumps(round_to_plain(_round(method, **rest))))
    assert what == replace(_round(method, **rest), name=what.name)
    clients = [people(600, seed) for seed in range(9)]
    found = conclude(what, np.sum([add_share(what, rows) for rows in clients], axis=0), 9)
    # Noise of a count: sqrt(17.85 * 9/8 * blocks) rows or so; 5,400 within 200 of them.
    assert found.rows == pytest.approx(5400, abs=200)
    ages = np.concatenate([np.asarray(rows["age"]) for rows in clients])
    told = {each.entry: each for each in found.means}
    if method == "means":
        assert abs(told["age"].mean - ages.mean()) < 5 * told["age"].error < 5
    if method == "histogram":
        assert abs(told["age from 0 to 7"].mean - np.mean(ages < 7)) < 5 * told["age from 0 to 7"].error
    if method == "linear":
        assert found.model is not None
        age = found.model.coefficient_table()[1]
        assert abs(age.coefficient - 3) < 5 * age.error < 3
    if method in ("bayes", "pca"):
        assert found.model is not None
        assert len(found.model.predict(clients[0])) == 600


@pytest.mark.parametrize("budget", [BUDGET, ApproxDP(Fraction(8), Fraction("1e-9")), ZCDP(Fraction("1/10"))])
@pytest.mark.parametrize(("method", "rest"), METHODS)
def test_the_noise_of_the_fewest_honest_clients_keeps_the_budget(
    method: str, rest: dict[str, Any], budget: ApproxDP | ZCDP
) -> None:
    what = _round(method, budget=budget, colluding=2, **rest)
    assert what.share >= LEAST
    assert what.honest == 6
    assert what.event.variance < what.share * 6
    if isinstance(budget, ZCDP):
        assert what.event.rho <= budget.rho
    else:
        spent = cheap_epsilon(what.event, budget.delta)
        assert spent is not None
        assert spent <= budget.epsilon
    # and is hardly more than that: a round costs what it takes
    assert what.share * 6 / what.scale**2 <= what.plan.mechanism.variance * Fraction(9, 8)


def test_the_shares_of_the_noise_have_the_stated_variance() -> None:
    what = _round("histogram", features=("age",))
    nobody = people(0)
    drawn = np.concatenate([add_share(what, nobody) for _ in range(600)]).astype(float)
    # A variance of k draws errs by sqrt(2 / k) of itself: five of these on either side, and 10% less or more is found.
    far = 5 * np.sqrt(2 / len(drawn))
    assert far < 0.1
    assert abs(drawn.var() / what.share - 1) < far


WORST = {"age": 100, "sex": "F"}


def _sums(what: Round, records: list[dict[str, Any]], toward: np.ndarray) -> Any:
    """What the server sees of `least` clients, one of which has these rows, along the direction of one person."""
    exact = float(collect(what.plan, encode_for(what.plan, what.target, rows_of(records))) * what.scale @ toward)
    unit = what.plan.mechanism.sensitivity_squared * what.scale**2
    mechanism = federated.GaussianMechanism(Fraction(what.share), unit)

    def run(count: int) -> np.ndarray:
        size = (count, what.least, len(toward))
        noise = np.asarray(mechanism.release(np.zeros(int(np.prod(size)), np.int64)), float).reshape(size)
        return exact + noise.sum(axis=1) @ toward

    return run


def _audited(what: Round, **rest: Any) -> Any:
    one = collect(what.plan, encode_for(what.plan, what.target, rows_of([WORST]))) * what.scale
    runs = [_sums(what, records, one.astype(float)) for records in ([], [WORST])]
    return audit(*runs, epsilon=1.0, delta=0.05, **rest)


def test_a_round_of_the_fewest_clients_stays_under_its_claim_and_one_with_noise_for_all_is_caught() -> None:
    what = _round("histogram", budget=ApproxDP(1, Fraction("0.05")), clients=24, least=17, features=("sex",))
    assert not _audited(what, runs=4000, confidence=1 - 1e-6).violated
    # The twin's clients each draw a third of the share, as if three times as many would answer.
    twin = replace(what, least=3 * what.least, clients=3 * what.least)
    seen = _Fewer(twin, what.least)
    assert _audited(seen, runs=6000, confidence=0.999).violated  # type: ignore[arg-type]


class _Fewer:
    """A round of which fewer clients answer than its noise is for."""

    def __init__(self, what: Round, least: int) -> None:
        self.what, self.least = what, least

    def __getattr__(self, name: str) -> Any:
        return getattr(self.what, name)


def test_a_table_that_is_declared_otherwise_or_has_more_rows_of_a_person_is_refused() -> None:
    what = _round("linear", target="charge")
    check_table(what, table(), ROW)
    wider = TableSchema(
        "visits", "", (Column("age", ColumnType.INTEGER, bounds=Bounds(0, 120)), *table().columns[2:]), ROW
    )
    with pytest.raises(PolicyError, match="otherwise"):
        check_table(what, wider, ROW)
    with pytest.raises(PolicyError, match="no column 'sex'"):
        check_table(what, TableSchema("visits", "", table().columns[:2], ROW), ROW)
    with pytest.raises(PolicyError, match="2 rows"):
        check_table(what, table(PERSON), PERSON)
    with pytest.raises(PolicyError, match="2 rows"):
        check_table(what, table(), PrivacyUnit(neighboring=Neighboring.REPLACE))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"method": "kmeans"}, "no federated method"),
        ({"method": "linear"}, "needs a target"),
        ({"target": "charge"}, "has no target"),
        ({"method": "linear", "target": "town"}, "bounded number|3 values"),
        ({"clients": 1}, "terms of the sum"),
        ({"least": 5}, "terms of the sum"),
        ({"colluding": 8}, "colluding is not smaller"),
        ({"features": ("note",)}, "no public categories"),
    ],
)
def test_what_cannot_be_a_round_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        _round(change.pop("method", "means"), **change)


@pytest.mark.parametrize(
    "change",
    [
        {"form": "another"}, {"method": "boosted"}, {"clients": 10**9}, {"least": 2}, {"least": "8"}, {"rows": 0},
        {"budget": {"epsilon": "1"}}, {"budget": {"epsilon": "-1", "delta": "1e-6"}}, {"name": "short"},
        {"features": [{"kind": "labels"}]}, {"colluding": -1}, {"unit": 7},
    ],
)  # fmt: skip
def test_a_document_that_is_no_round_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="not a federated round"):
        read_round(json.dumps(round_to_plain(_round()) | change))
    with pytest.raises(DataError, match="not a federated round"):
        read_round(b"\xff{")


@pytest.mark.parametrize(
    ("method", "rest", "said"),
    [("means", {"count": 3}, "means takes no count"), ("bayes", {"target": "charge"}, r"to tell apart. Use linear\.")],
)
def test_a_refusal_of_a_round_names_what_a_round_has(method: str, rest: dict[str, Any], said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        _round(method, **rest)


def test_shares_of_values_are_shares_whatever_the_noise() -> None:
    what = _round("means", budget=ApproxDP(Fraction(1, 10), Fraction("1e-9")))
    for seed in range(6):
        parts = [people(20, 3 * seed + n) for n in range(9)]
        found = conclude(what, np.sum([add_share(what, rows) for rows in parts], axis=0), 9)
        assert all(0 <= each.mean <= 1 for each in found.means if " = " in each.entry or " is null" in each.entry)
