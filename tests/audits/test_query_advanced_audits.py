"""Audits of rankings, watches and blocks: claims hold on the worst neighbors, and broken twins are caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from deniable.attacks.dp_audit import audit
from deniable.dp.mechanisms import ExponentialMechanism, QuantileMechanism
from deniable.policy.budget import PureDP
from deniable.policy.schema import Column, PrivacyUnit, TableSchema
from deniable.query.compile import compile_query, plan_relation
from deniable.query.techniques import sample_aggregate, top_k, watch

RUNS = 1_500
ACCUSED = pytest.mark.statistical(false_alarm=1e-3)
"""An audit accuses a sound mechanism with probability one less its confidence of 0.999 at most."""
KINDS = ("a", "b", "c")
SALES = TableSchema("sales", "", (Column("buyer"), Column("kind", categories=KINDS)), PrivacyUnit("buyer", 1, 1))


class Fixed:
    """An engine that gives one exact answer, so that thousands of runs need no database."""

    def __init__(self, counts: list[int]) -> None:
        self.answer = pa.table({"k0": list(KINDS), "m0": counts})

    def run(self, *_: Any, **__: Any) -> pa.Table:
        return self.answer


def _ranking(counts: list[int], change: Callable[[top_k.TopPlan], top_k.TopPlan]) -> Callable[[int], NDArray[Any]]:
    asked = PureDP(1)
    base = compile_query("SELECT kind, COUNT(DISTINCT buyer) AS n FROM sales GROUP BY kind", (SALES,), asked)
    plan = change(top_k.plan_top(base, 2, asked))
    engine = Fixed(counts)

    def once() -> list[int]:
        noisy = top_k.run_top(plan, engine)
        return [*(KINDS.index(key) for key in noisy.keys.column(0).to_pylist()), *noisy.values[0].tolist()]

    return lambda runs: np.array([once() for _ in range(runs)])


@ACCUSED
@pytest.mark.slow
def test_a_ranking_keeps_its_claim_when_a_unit_is_in_every_group() -> None:
    outcome = audit(_ranking([3, 3, 3], lambda p: p), _ranking([4, 4, 4], lambda p: p), epsilon=1, runs=RUNS)
    assert not outcome.violated, str(outcome)


def test_a_ranking_that_counts_a_unit_once_for_all_groups_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top_k, "check", lambda plan: None)

    def sharper(plan: top_k.TopPlan) -> top_k.TopPlan:
        choice = ExponentialMechanism(plan.choice.epsilon * 8, Fraction(1), True)
        return replace(plan, choice=choice, counting=replace(plan.counting, scale=plan.counting.scale / 8))

    outcome = audit(_ranking([3, 3, 3], sharper), _ranking([4, 4, 4], sharper), epsilon=1, runs=RUNS)
    assert outcome.violated, str(outcome)


def _watching(counts: list[int], change: Callable[[watch.WatchPlan], watch.WatchPlan]) -> Callable[[int], NDArray[Any]]:
    table = TableSchema("t", "", (Column("x"),), PrivacyUnit())
    base = compile_query("SELECT COUNT(*) FROM t", (table,), PureDP(1))
    plan = change(watch.plan_watch(base, 2, PureDP(1)))

    def once() -> int:
        made = watch.Watch(plan)
        return next((i for i, count in enumerate(counts) if made.compare(count)), len(counts))

    return lambda runs: np.array([once() for _ in range(runs)])


BEFORE, AFTER = [1, 1, 1, 1, 3], [2, 2, 2, 2, 4]
"""One unit more at every check: an exact watch for 2 rings at the last check before, and at the first one after."""


@ACCUSED
def test_a_watch_keeps_its_claim_over_many_checks() -> None:
    outcome = audit(_watching(BEFORE, lambda p: p), _watching(AFTER, lambda p: p), epsilon=1, runs=RUNS)
    assert not outcome.violated, str(outcome)


def test_a_watch_with_an_exact_threshold_and_little_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "check", lambda plan: None)

    def bold(plan: watch.WatchPlan) -> watch.WatchPlan:
        return replace(plan, mechanism=replace(plan.mechanism, epsilon=Fraction(8)))

    outcome = audit(_watching(BEFORE, bold), _watching(AFTER, bold), epsilon=1, runs=RUNS)
    assert outcome.violated, str(outcome)


def _blocks(rows: int, plan: sample_aggregate.BlocksPlan) -> Callable[[int], NDArray[Any]]:
    """The worst function: a block's result jumps from one bound to the other when the unit `w` is in it."""
    table = pa.table({"id": [f"p{i}" for i in range(6)] + ["w"] * rows})

    def worst(block: pa.Table) -> float:
        return 1.0 if "w" in block["id"].to_pylist() else 0.0

    return lambda runs: np.array([sample_aggregate.release_blocks(plan, worst, table, "id") for _ in range(runs)])


@ACCUSED
@pytest.mark.parametrize("aggregate", [pytest.param("median", marks=pytest.mark.slow), "mean"])
def test_blocks_keep_their_claim_against_the_worst_function(aggregate: str) -> None:
    plan = sample_aggregate.plan_blocks(2, (0, 1), 1, aggregate)
    outcome = audit(_blocks(0, plan), _blocks(1, plan), epsilon=1, runs=RUNS)
    assert not outcome.violated, str(outcome)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("aggregate", ["median", "mean"])
def test_blocks_with_far_too_little_noise_are_caught(aggregate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sample_aggregate, "check", lambda plan: None)
    plan = sample_aggregate.plan_blocks(2, (0, 1), 1, aggregate)
    noise = plan.mechanism
    weak = (
        replace(noise, epsilon=noise.epsilon * 60)
        if isinstance(noise, QuantileMechanism)
        else replace(noise, scale=noise.scale / 6)
    )
    plan = replace(plan, mechanism=weak)
    outcome = audit(_blocks(0, plan), _blocks(1, plan), epsilon=1, runs=RUNS)
    assert outcome.violated, str(outcome)


def _contribution(rows: list[int], read: bool = False) -> Callable[[int], NDArray[Any]]:
    """CONTRIBUTION AUTO over people with so many rows each: the bound that is chosen, and the noisy count under it."""
    from deniable.query.execute import measure
    from deniable.query.sql.binder import bind_statement
    from deniable.query.sql.clauses import Clauses
    from deniable.query.techniques import contribution

    table = TableSchema("t", "", (Column("id"), Column("x")), PrivacyUnit("id"))
    (search,) = contribution.plan_searches(*bind_statement("SELECT COUNT(*) FROM t CONTRIBUTION AUTO", (table,)))
    stage = plan_relation("people", search.node, Clauses("people"), PureDP(Fraction(1, 2)))
    finals = {
        edge: compile_query(
            f"SELECT COUNT(*) FROM t CONTRIBUTION (max_rows_per_group = {edge})", (table,), PureDP(Fraction(1, 2))
        )
        for edge in search.edges[:12]
    }
    people = [
        sum(1 for n in rows if low < n <= edge) for low, edge in zip((0, *search.edges), search.edges, strict=False)
    ]
    engine = Fixed([0, 0, 0])
    engine.answer = pa.table({"k0": list(range(len(search.edges))), "m0": people})

    def once() -> list[int]:
        found = measure(stage, engine)
        bound = contribution.choose_bound(search, stage, found, finals[1], 0.99).value
        bound = max(
            each for each in finals if each <= (min(e for e in search.edges if e >= max(rows)) if read else bound)
        )
        counted = Fixed([0, 0, 0])
        counted.answer = pa.table({"m0": [sum(min(n, bound) for n in rows)]})
        (noisy,) = measure(finals[bound], counted).values()
        return [bound, int(noisy[0].values[0][0])]

    return lambda runs: np.array([once() for _ in range(runs)])


FEW, AND_ONE = [1] * 20, [*([1] * 20), 16]
"""Twenty people with a row each, and one more with sixteen."""


@ACCUSED
@pytest.mark.slow
def test_bounds_that_are_found_keep_the_claim_with_a_person_of_many_rows() -> None:
    outcome = audit(_contribution(FEW), _contribution(AND_ONE), epsilon=1, runs=RUNS)
    assert not outcome.violated, str(outcome)


@pytest.mark.slow
def test_bounds_that_are_read_off_the_rows_are_caught() -> None:
    outcome = audit(_contribution(FEW, read=True), _contribution(AND_ONE, read=True), epsilon=1, runs=RUNS)
    assert outcome.violated, str(outcome)
