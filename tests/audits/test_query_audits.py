"""Audits of questions end to end: the claim holds for each kind of question, and broken twins are caught.

Neighbors differ in one worst unit. An execution is costly, so what is audited here is one engine run for each neighbor
and many draws of the noise that the plan places on it; the bounding, the keys and the thresholds are the real ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import clinic
from deniable.attacks.dp_audit import audit
from deniable.engines.duckdb import DuckDBEngine
from deniable.policy.budget import ApproxDP, Budget, PureDP
from deniable.policy.schema import Bounding
from deniable.query import execute as execution
from deniable.query.compile import compile_query
from deniable.query.execute import measure
from deniable.query.plan import QueryPlan

RUNS = 2_000
ACCUSED = pytest.mark.statistical(false_alarm=1e-3)
"""An audit accuses a sound plan with probability one less its confidence of 0.999 at most."""
ONE = PureDP(Fraction(1))
WITH_KEYS = ApproxDP(Fraction(1), Fraction(1, 100))
OTHERS = [{"pid": i, "sex": "FM"[i % 2], "age": 50, "city": "Ada", "insured": True} for i in range(4)]
WORST = [
    {"pid": 99, "sex": sex, "age": 100, "city": city, "insured": insured}
    for sex in "FM"
    for city in ("Ada", "lair")
    for insured in (True, False)
    for _ in range(4)
]
STAYS = [{"pid": row["pid"], "age": 10} for row in OTHERS + WORST[:3]]
HIDDEN = -(10**6)


class Replaying:
    """An engine that runs each statement once for each salt it has seen, and remembers the exact answer."""

    def __init__(self, engine: DuckDBEngine, salts: int = 5) -> None:
        self.engine, self.salts, self.known = engine, salts, {}

    def run(self, sql: str, *, frames: Any = None, **_: Any) -> Any:
        if sql not in self.known:
            self.known[sql] = self.engine.run(sql, frames=frames)
        return self.known[sql]


def runs_of(
    plan: QueryPlan, rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> Callable[[int], NDArray[Any]]:
    """Runs of a plan on one input: the noisy numbers of all its groups, HIDDEN where a private key is not shown."""
    engine = Replaying(clinic.engine(visits=clinic.rows_of(rows), stays=clinic.rows_of(STAYS)))
    keys = sorted({str(row.get("city")) for row in OTHERS + WORST})

    def once(salt: int) -> list[int]:
        monkeypatch.setattr(execution, "_draw_salt", lambda entropy: salt % engine.salts)
        (part,) = measure(plan, engine)[plan.nodes[0].node.name]
        if plan.nodes[0].steps[0].threshold is None:
            return [int(v) for values in part.values for v in values]
        shown = {str(k): i for i, k in enumerate(part.keys.column(0).to_pylist())}
        return [int(values[shown[k]]) if k in shown else HIDDEN for k in keys for values in part.values]

    return lambda runs: np.array([once(i) for i in range(runs)])


IN_ALL = clinic.with_unit(bounding=Bounding.ROWS, max_groups=None, max_rows_per_group=None, max_rows=2)
SCALED = clinic.with_unit(bounding=Bounding.SCALE, max_groups=1, max_rows_per_group=2)
RANKED = ("median", "quartiles")
FOUR_GROUPS = "SELECT sex, insured, COUNT(*) FROM visits GROUP BY sex, insured"
QUESTIONS = {
    "count": ("SELECT COUNT(*) FROM visits", ONE, clinic.TABLES),
    "counts": ("SELECT sex, COUNT(*) FROM visits GROUP BY sex", ONE, clinic.TABLES),
    "sum": ("SELECT SUM(age) FROM visits", ONE, clinic.TABLES),
    "average": ("SELECT AVG(age) FROM visits", ONE, clinic.TABLES),
    "median": ("SELECT MEDIAN(CLAMP(age, 50, 100)) FROM visits", ONE, clinic.TABLES),
    # Two integers to choose from: among many, the three choices scatter, and no event is seen often enough to tell.
    "quartiles": ("SELECT QUANTILE(CLAMP(age, 50, 51), [0.25, 0.5, 0.75]) FROM visits", ONE, clinic.TABLES),
    "private keys": ("SELECT city, COUNT(DISTINCT pid) FROM visits GROUP BY city", WITH_KEYS, clinic.TABLES),
    "join": ("SELECT COUNT(*) FROM visits v JOIN stays s ON v.pid = s.pid", ONE, clinic.TABLES),
    "rows in all": (FOUR_GROUPS, ONE, IN_ALL),
    "scaled to a norm": (FOUR_GROUPS, ONE, SCALED),
}


DEAR = ("quartiles", "median", "average", "private keys", "join")
"""Questions whose audits take longest: they run with the slow tests, their broken twins every time."""


def audited(plan: QueryPlan, budget: Budget, monkeypatch: pytest.MonkeyPatch, runs: int = RUNS) -> Any:
    left, right = runs_of(plan, OTHERS, monkeypatch), runs_of(plan, OTHERS + WORST, monkeypatch)
    return audit(left, right, epsilon=float(budget.epsilon), delta=float(budget.delta), runs=runs)


@ACCUSED
@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in DEAR)) for name in QUESTIONS])
def test_the_claim_of_a_question_is_not_refuted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sql, budget, tables = QUESTIONS[name]
    outcome = audited(compile_query(sql, tables, budget), budget, monkeypatch, 1_000 if name in RANKED else RUNS)
    assert not outcome.violated, str(outcome)


def twin(plan: QueryPlan, **changes: Any) -> QueryPlan:
    """The plan with its first step changed; its double entry would refuse it, so that is switched off beside it."""
    node = plan.nodes[0]
    return replace(plan, nodes=(replace(node, steps=(replace(node.steps[0], **changes),)),))


def half_noise(plan: QueryPlan) -> QueryPlan:
    placed = tuple(
        replace(p, mechanism=replace(p.mechanism, scale=p.mechanism.scale / 4)) for p in plan.nodes[0].steps[0].placed
    )
    return twin(plan, placed=placed)


def sharp_choices(plan: QueryPlan) -> QueryPlan:
    """Each choice has the whole budget and more, as if they were made on rows of different people."""
    (placed,) = plan.nodes[0].steps[0].placed
    return twin(plan, placed=(replace(placed, mechanism=replace(placed.mechanism, epsilon=Fraction(6))),))


def unbounded_rows(plan: QueryPlan) -> QueryPlan:
    return twin(plan, limits=replace(plan.nodes[0].steps[0].limits, rows=100))


def unbounded_groups(plan: QueryPlan) -> QueryPlan:
    return twin(plan, limits=replace(plan.nodes[0].steps[0].limits, groups=None))


def in_each_group(plan: QueryPlan) -> QueryPlan:
    return twin(plan, limits=replace(plan.nodes[0].steps[0].limits, in_all=False))


def larger_norm(plan: QueryPlan) -> QueryPlan:
    return twin(plan, limits=replace(plan.nodes[0].steps[0].limits, groups=100))


class AllKeys:
    """A threshold that shows every key it finds."""

    def __init__(self, honest: Any) -> None:
        self.honest = honest

    def release(self, values: Any, entropy: Any) -> Any:
        return np.arange(len(values)), self.honest.noise.release(values, entropy)


def no_threshold(plan: QueryPlan) -> QueryPlan:
    return twin(plan, threshold=AllKeys(plan.nodes[0].steps[0].threshold))


FEW_GROUPS = clinic.with_unit(max_groups=1)
TWINS = {
    "a quarter of the noise": (half_noise, *QUESTIONS["count"]),
    "each of several quantiles has more than the whole budget": (sharp_choices, *QUESTIONS["quartiles"]),
    "rows are not bounded": (unbounded_rows, *QUESTIONS["count"]),
    "groups are not bounded": (unbounded_groups, FOUR_GROUPS, ONE, FEW_GROUPS),
    "keys have no threshold": (no_threshold, *QUESTIONS["private keys"]),
    "rows are bounded in each group and not in all": (in_each_group, *QUESTIONS["rows in all"]),
    "a vector is scaled to a larger norm": (larger_norm, *QUESTIONS["scaled to a norm"]),
}


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("name", TWINS)
def test_a_broken_twin_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    broken, sql, budget, tables = TWINS[name]
    monkeypatch.setattr(execution, "check", lambda plan: None)
    outcome = audited(broken(compile_query(sql, tables, budget)), budget, monkeypatch)
    assert outcome.violated, str(outcome)


@ACCUSED
@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_long_audits_refute_no_claim(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sql, budget, tables = QUESTIONS[name]
    outcome = audited(compile_query(sql, tables, budget), budget, monkeypatch, 30_000)
    assert not outcome.violated, str(outcome)
    if name != "private keys":  # there the person is alone in a key, which stays hidden but with probability delta
        assert outcome.epsilon_bound > 0.3, "an audit that sees nothing proves nothing"
