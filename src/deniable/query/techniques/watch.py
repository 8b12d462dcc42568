"""Tell me when a count passes T: asked again and again, paid for once (the sparse vector technique).

A watch compares a count of a private table with a threshold, both with noise, whenever it is asked. "Not yet" costs
nothing further, however often it is said; "now" ends the watch. The noise of the threshold is drawn once and kept in
the watch, out of sight, so a watch lives in one process; a new one is a new charge.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from deniable.dp.mechanisms import AboveThreshold
from deniable.dp.mechanisms.mechanism import add_noise
from deniable.dp.samplers import SYSTEM, Entropy, discrete_laplace
from deniable.errors import InternalError, ParameterError, QueryRefused
from deniable.policy.budget import Budget
from deniable.policy.schema import Neighboring
from deniable.query.double_entry import price
from deniable.query.execute import Runner
from deniable.query.explain import WatchSummary
from deniable.query.measurements import Rows, Units
from deniable.query.plan import QueryPlan
from deniable.query.sql import private_sql


@dataclass(frozen=True, slots=True)
class WatchPlan:
    """A count, a threshold and the mechanism that compares them."""

    base: QueryPlan
    mechanism: AboveThreshold
    asked: Budget
    cost: Budget


def plan_watch(base: QueryPlan, threshold: int, asked: Budget) -> WatchPlan:
    """The plan of a watch over a question `SELECT COUNT(...) FROM ... WHERE ...` without groups."""
    nodes = base.nodes
    if len(nodes) != 1 or len(nodes[0].steps) != 1 or nodes[0].steps[0].places or len(nodes[0].measurements) != 1:
        raise QueryRefused("a watch is over one count", expected="SELECT COUNT(*) FROM visits WHERE ...")
    if not isinstance(nodes[0].measurements[0], Rows | Units) or base.unit is None:
        raise QueryRefused("a watch is over a count of rows or of units", expected="SELECT COUNT(*) FROM visits")
    if isinstance(threshold, bool) or not isinstance(threshold, int) or abs(threshold) > 1 << 60:
        raise ParameterError("the threshold is not a whole number", expected="threshold=1000")
    # One unit more moves every count the same way, at every time; a replaced unit may move them both ways.
    monotonic = base.unit.neighboring is Neighboring.ADD_REMOVE
    sensitivity = nodes[0].steps[0].placed[0].sensitivity
    mechanism = AboveThreshold.within(asked, threshold, sensitivity.l1, monotonic=monotonic)
    plan = WatchPlan(base, mechanism, asked, price(mechanism.event, asked))
    check(plan)
    return plan


def check(plan: WatchPlan) -> None:
    """Double entry: the mechanism must be made for the count's sensitivity, and cost what was asked."""
    placed, unit = plan.base.nodes[0].steps[0].placed[0], plan.base.unit
    assert unit is not None
    fits = plan.mechanism.sensitivity >= placed.sensitivity.l1 and plan.mechanism.times == 1
    one_way = not plan.mechanism.monotonic or unit.neighboring is Neighboring.ADD_REMOVE
    if not (fits and one_way and price(plan.mechanism.event, plan.asked) == plan.cost):
        raise InternalError("the watch is not made for what it counts", remedy="Nothing was run")


def describe_watch(plan: WatchPlan, confidence: float) -> WatchSummary:
    """The plan in plain values, for explaining it without data."""
    node, step = plan.base.nodes[0], plan.base.nodes[0].steps[0]
    wanted = private_sql.select_additive(step.placed, False)
    return WatchSummary(
        threshold=plan.mechanism.threshold,
        sensitivity=step.placed[0].sensitivity.l1,
        mechanism="sparse vector (above threshold), discrete Laplace",
        scale=float(plan.mechanism.scale),
        error=plan.mechanism.accuracy(1 - confidence),
        confidence=confidence,
        statement=private_sql.render_totals(node.node, step.places, wanted, step.limits, step.keys, 0),
    )


def read_count(plan: WatchPlan, engine: Runner, entropy: Entropy = SYSTEM) -> int:
    """The exact bounded count, now. It must not leave but through a Watch."""
    node, step = plan.base.nodes[0].node, plan.base.nodes[0].steps[0]
    salt = int.from_bytes(entropy.take(8), "little") >> 1
    wanted = private_sql.select_additive(step.placed, False)
    found = engine.run(private_sql.render_totals(node, step.places, wanted, step.limits, step.keys, salt))
    return int(found.column(step.placed[0].column)[0].as_py())


class Watch:
    """A paid watch: `compare` says whether the count has passed the threshold, until it has."""

    __slots__ = ("_entropy", "_height", "passed", "plan")

    def __init__(self, plan: WatchPlan, entropy: Entropy = SYSTEM) -> None:
        check(plan)
        self.plan = plan
        self.passed = False
        self._entropy = entropy
        self._height = plan.mechanism.threshold + self._noise()

    def compare(self, count: int) -> bool:
        """Whether the noisy count reaches the noisy threshold; after the first True the watch is over."""
        if self.passed:
            raise ParameterError(
                "this watch is over: the count has passed", remedy="Start a new watch, at a new charge"
            )
        self.passed = count + self._noise() >= self._height
        return self.passed

    def _noise(self) -> int:
        drawn = discrete_laplace(self.plan.mechanism.scale, 1, entropy=self._entropy)
        return int(add_noise(np.zeros(1, dtype=np.int64), drawn)[0])

    def __repr__(self) -> str:
        return f"Watch(threshold={self.plan.mechanism.threshold}, passed={self.passed})"

    def __reduce__(self) -> Any:
        raise ParameterError("a watch is not stored: its threshold's noise must stay out of sight")
