"""Fuzzing: generated and mutated statements give an answer or a refusal; never a traceback, never a value of a row."""

from __future__ import annotations

import random
from datetime import date, datetime
from fractions import Fraction

import pyarrow as pa
import pytest

import clinic
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import QueryRefused
from deniable.policy.budget import ZCDP, ApproxDP, Budget, PureDP
from deniable.policy.schema import Bounding, Neighboring
from deniable.query.compile import compile_query
from deniable.query.execute import execute
from deniable.query.keys import PublicKeys
from deniable.query.plan import QueryPlan
from sql_grammar import Grammar

MOST_CELLS = 1_000
CANARIES = ("CANARY", "739155", "2020-07-13", "73.9155")
TABLES = {
    "plain": clinic.TABLES,
    "scaled": clinic.with_unit(bounding=Bounding.SCALE),
    "replaced": clinic.with_unit(neighboring=Neighboring.REPLACE, max_groups=1),
}
BUDGETS: tuple[Budget, ...] = (
    PureDP(Fraction(1)),
    ApproxDP(Fraction(1), Fraction(1, 10**6)),
    ZCDP(Fraction(1, 2)),
    ApproxDP(Fraction(1, 10**6), Fraction(1, 10**9)),
    PureDP(Fraction(9999)),
    ZCDP(Fraction(1, 100), Fraction(1, 10**8)),
    ApproxDP(Fraction(30), Fraction(1, 2)),
    ApproxDP(Fraction(30), Fraction(1, 100)),
)


def canary_rows() -> pa.Table:
    """Rows whose every value would be noticed in a message, among values that break careless arithmetic."""
    odd = [
        {
            "pid": 739155,
            "sex": "CANARY",
            "age": 739155,
            "delta": -739155,
            "charge": 73.9155,
            "city": "CANARY-CITY",
            "day": date(2020, 7, 13),
            "seen": datetime(2020, 7, 13, 1, 2, 3),
            "insured": True,
            "score": 739155,
            "ratio": 73.9155,
            "note": 'CANARY\'s "note"; %_\\',
        },
        {"pid": 1, "score": 2**63 - 1, "ratio": float("inf"), "charge": 1e308, "note": "", "city": ""},
        {"pid": 2, "score": -(2**63), "ratio": float("-inf"), "charge": -1e308, "note": "\x00\t\n", "day": date.max},
        {"pid": None, "score": 0, "ratio": 0.0, "day": date.min, "seen": datetime(1, 1, 1)},
        {"pid": 3},
        {"pid": 3, "ratio": float("nan"), "age": 0, "delta": 0, "charge": -0.0},
    ]
    return clinic.rows_of(odd * 3)


@pytest.fixture(scope="module")
def canaries() -> DuckDBEngine:
    return clinic.engine(visits=canary_rows(), stays=canary_rows(), answers=canary_rows())


def ask(text: str, which: str, budget: Budget, engine: DuckDBEngine, run: bool) -> str:
    """'answered', 'compiled' or 'refused'; whatever else is raised fails the test."""
    try:
        plan = compile_query(text, TABLES[which], budget)
    except QueryRefused as refusal:
        return "told" if any(canary in refusal.message for canary in CANARIES) else "refused"
    if not run or cells(plan) > MOST_CELLS:
        return "compiled"
    execute(plan, engine)
    return "answered"


def cells(plan: QueryPlan) -> int:
    """How many groups the largest step of a plan shows: some generated questions ask for millions."""
    keys = [step.keys for node in plan.nodes for step in node.steps]
    return max((each.cells or 0 for each in keys if isinstance(each, PublicKeys)), default=0)


def fuzz(count: int, seed: int, engine: DuckDBEngine, every: int) -> dict[str, int]:
    draw, told = random.Random(seed), {"answered": 0, "compiled": 0, "refused": 0}
    grammar = Grammar(draw)
    for i in range(count):
        text = grammar.statement()
        if draw.random() < 0.3:
            text = grammar.mutated(text)
        which, budget = draw.choice(list(TABLES)), draw.choice(BUDGETS)
        try:
            told[ask(text, which, budget, engine, run=i % every == 0)] += 1
        except Exception as failure:
            raise AssertionError(f"{text!r} under {which}, {budget}") from failure
    return told


def test_hundreds_of_statements_are_answered_or_refused(canaries: DuckDBEngine) -> None:
    told = fuzz(500, 7, canaries, every=8)
    assert told["answered"] + told["compiled"] > 100
    assert told["refused"] > 100


@pytest.mark.slow
def test_twenty_thousand_statements_are_answered_or_refused(canaries: DuckDBEngine) -> None:
    told = fuzz(20_000, 11, canaries, every=1)
    assert told["answered"] > 5_000


def test_bytes_that_are_no_sql_are_refused(canaries: DuckDBEngine) -> None:
    draw = random.Random(3)
    for _ in range(200):
        text = "".join(
            chr(draw.choice([*range(32, 127), 0, 10, 233, 0x1F600, 0xFFFF])) for _ in range(draw.randint(0, 60))
        )
        assert ask(text, "plain", BUDGETS[0], canaries, run=True) in ("refused", "answered")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5_000 + "1" + ")" * 5_000,
        "SELECT " + "-" * 3_000 + "1",
        "SELECT COUNT(*) FROM visits WHERE " + " AND ".join(["age > 1"] * 2_000),
        "SELECT " + "ABS(" * 400 + "1" + ")" * 400,
    ],
)
def test_depth_and_length_are_refused_not_survived(text: str, canaries: DuckDBEngine) -> None:
    assert ask(text, "plain", BUDGETS[0], canaries, run=True) in ("refused", "answered")
