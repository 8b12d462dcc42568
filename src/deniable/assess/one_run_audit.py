"""Training and synthesis, audited by one run: too slow to be run thousands of times, so many canaries share one run.

A canary is a person with a value of their own, put into the table or left out by a coin. The intruder sees what was
learned, scores every canary by what was learned of its value, and calls the highest in and the lowest out. Epsilon
limits how many of these calls are right (Steinke, Nasr and Jagielski 2023). Nobody's data is touched.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa

from deniable.attacks.dp_audit import Run, audit_one_run
from deniable.attacks.outcome import Rate
from deniable.policy.budget import ApproxDP
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, TableSchema

TRAINED, LEARNED = 400, 4000
"""Canaries of a training, in which each has an entry of its own, and of a synthesis."""
SURE = 10
"""One canary in so many is called: those whose scores stand out most."""


def _train(epsilon: Fraction, delta: Fraction) -> Run:
    """A linear model of pay by who one is; the intruder sees all that its training releases, which is more than itself.

    A canary's score is the noisy count of its own value.
    """
    from deniable.learn.features import encode_rows, encode_target
    from deniable.learn.linear import LinearPlan, sum_moments
    from deniable.learn.training import Task, plan_training

    who = Column("who", ColumnType.INTEGER, categories=tuple(range(TRAINED)), nullable=False)
    pay = Column("pay", ColumnType.DECIMAL, bounds=Bounds(Fraction(0), Fraction(1)), nullable=False)
    unit = PrivacyUnit()
    what = plan_training(TableSchema("canaries", "", (who, pay), unit), unit, Task("pay"), ApproxDP(epsilon, delta))
    assert isinstance(what.plan, LinearPlan)
    plan = what.plan

    def run(inside: Any) -> Any:
        rows = pa.table({"who": np.flatnonzero(inside), "pay": np.ones(int(inside.sum()))})
        wanted, known = encode_target(what.target, rows)
        released = plan.mechanism.release(sum_moments(encode_rows(what.design, rows)[known], wanted[known]))
        return released[1 : TRAINED + 1]

    return run


def _synthesize(epsilon: Fraction, delta: Fraction) -> Run:
    """A description of one column in which each canary has a value of its own: its score is the value's noisy count."""
    from deniable.synth.domain import Domain
    from deniable.synth.marginal import convert_budget
    from deniable.synth.methods import METHODS, run_method

    domain, spend = Domain(("who",), (LEARNED,)), convert_budget(ApproxDP(epsilon, delta), 1)

    def run(inside: Any) -> Any:
        codes = np.flatnonzero(inside).astype(np.int32)[None, :]
        return run_method(codes, domain, METHODS["independent"], spend).one_way[0].counts.ravel()

    return run


ONE_RUN: dict[str, tuple[Callable[[Fraction, Fraction], Run], int, str]] = {
    "training": (_train, TRAINED, f"which of {TRAINED} people a linear model was trained on; needs delta"),
    "synthesis": (_synthesize, LEARNED, f"which of {LEARNED} people a synthetic model was learned from; needs delta"),
}
"""What is audited by one run: how it is run, how many canaries it has, and the question in words."""


def audit_in_one_run(
    name: str, spent: Fraction, epsilon: float, delta: Fraction, confidence: float
) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """The game, the proof and whether the claim is refuted, as plain values; a game is one call about one canary."""
    make, canaries, _ = ONE_RUN[name]
    found = audit_one_run(
        make(spent, delta), canaries, epsilon=epsilon, delta=float(delta), guesses=canaries // SURE,
        confidence=confidence,
    )  # fmt: skip
    most = 1 / (1 + math.exp(-epsilon))
    game = {"wins": Rate(found.correct, found.guesses).as_dict(), "most": most, "points": []}
    return game, asdict(found) | {"sentence": str(found)}, found.violated
