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


class Grammar:
    """Random statements: mostly sensible, of every construct there is."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def one(self, *choices: str) -> str:
        return self.draw.choice(choices)

    def number(self, depth: int) -> str:
        if depth <= 0 or self.draw.random() < 0.3:
            return self.one("age", "delta", "charge", "score", "ratio", "1", "0", "-3", "2.5", "1e9", "NULL", "0.001")
        x, y, text, day = self.number(depth - 1), self.number(depth - 1), self.text(depth - 1), self.day(depth - 1)
        op = self.one("+", "-", "*", "/", "%")
        return self.one(
            f"({x} {op} {y})",
            f"({x} {op} {y})",
            f"ABS({x})",
            f"-{x}",
            f"FLOOR({x})",
            f"CEIL({x})",
            f"ROUND({x})",
            f"ROUND({x}, 1)",
            f"SQRT({x})",
            f"EXP({x})",
            f"LN({x})",
            f"LEAST({x}, {y})",
            f"GREATEST({x}, {y})",
            f"CLAMP({x}, -5, 50)",
            f"COALESCE({x}, {y})",
            f"NULLIF({x}, {y})",
            f"LENGTH({text})",
            f"YEAR({day})",
            f"EXTRACT({self.one('month', 'dow', 'week', 'doy', 'hour', 'second')} FROM {day})",
            f"DATE_DIFF('day', {day}, day)",
            f"CAST({self.any(depth - 1)} AS {self.one('INTEGER', 'DOUBLE', 'BIGINT')})",
            f"CASE WHEN {self.condition(depth - 1)} THEN {x} ELSE {y} END",
            f"(day - {day})",
        )

    def text(self, depth: int) -> str:
        if depth <= 0 or self.draw.random() < 0.4:
            return self.one("sex", "city", "note", "'F'", "'it''s'", "''", "NULL")
        x, n = self.text(depth - 1), self.number(depth - 1)
        return self.one(
            f"LOWER({x})",
            f"UPPER({x})",
            f"TRIM({x})",
            f"SUBSTRING({x}, {n}, 2)",
            f"LEFT({x}, {n})",
            f"RIGHT({x}, 1)",
            f"REPLACE({x}, 'A', {x})",
            f"CONCAT({x}, '-', city)",
            f"{x} || note",
            f"CAST({self.any(depth - 1)} AS TEXT)",
            f"COALESCE({x}, 'none')",
            f"CASE sex WHEN 'F' THEN {x} END",
        )

    def day(self, depth: int) -> str:
        if depth <= 0 or self.draw.random() < 0.5:
            return self.one("day", "day", "seen", "DATE '2020-02-29'", "NULL", "CAST(seen AS DATE)")
        x = self.day(depth - 1)
        unit = self.one("year", "quarter", "month", "week", "day", "hour", "minute")
        return self.one(
            f"DATE_TRUNC('{unit}', {x})",
            f"({x} + 30)",
            f"({x} - delta)",
            f"CAST({x} AS TIMESTAMP)",
            f"CAST({self.text(depth - 1)} AS DATE)",
            f"COALESCE({x}, day)",
        )

    def condition(self, depth: int) -> str:
        if depth <= 0 or self.draw.random() < 0.2:
            return self.one("insured", "age > 30", "sex = 'F'", "TRUE", "note IS NULL", "city LIKE 'C%'")
        x, c, t = self.number(depth - 1), self.condition(depth - 1), self.text(depth - 1)
        return self.one(
            f"{x} {self.one('<', '<=', '=', '<>', '>')} {self.number(depth - 1)}",
            f"NOT {c}",
            f"({c} OR insured)",
            f"({c} AND {self.condition(depth - 1)})",
            f"{x} IN (1, 2, {x})",
            f"{x} BETWEEN 0 AND {x}",
            f"{t} LIKE '%a_'",
            f"{t} ILIKE {t}",
            f"{t} IS NOT NULL",
            f"STARTS_WITH({t}, 'C')",
            f"CONTAINS({t}, {t})",
            f"({c}) IS TRUE",
            f"{self.day(depth - 1)} > DATE '2020-03-01'",
            "day >= '2020-01-01'",
            f"{t} = {t}",
        )

    def any(self, depth: int) -> str:
        return self.draw.choice([self.number, self.text, self.day, self.condition])(depth)

    def aggregate(self) -> str:
        x, y, filtered = self.number(2), self.any(2), ""
        if self.draw.random() < 0.15:
            filtered = f" FILTER (WHERE {self.condition(1)})"
        clamped = f"CLAMP({x}, 0, 100)"
        return filtered.join(
            (
                self.one(
                    "COUNT(*)",
                    "COUNT(*)",
                    f"COUNT({y})",
                    f"COUNT(DISTINCT {y})",
                    "COUNT(DISTINCT pid)",
                    f"SUM({clamped})",
                    f"SUM({x})",
                    f"AVG({clamped})",
                    f"VARIANCE({clamped})",
                    f"STDDEV({x})",
                    f"VAR_POP({clamped})",
                    f"MIN({clamped})",
                    f"MAX({self.day(1)})",
                    f"MEDIAN({clamped})",
                    f"QUANTILE({clamped}, 0.25)",
                    f"QUANTILE({clamped}, [0.1, 0.9])",
                    "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY age)",
                    f"SUM({self.condition(1)})",
                    f"COUNT_IF({self.condition(1)})",
                    f"SUM({x}, contribution_bounds_per_group => (0, 10))",
                ),
                "",
            )
        )

    def source(self) -> str:
        return self.one(
            "visits",
            "visits",
            "visits",
            "answers",
            "visits v",
            "(SELECT * FROM visits WHERE age > 1) s",
            "visits JOIN regions ON visits.city = regions.city",
            "visits v LEFT JOIN stays s ON v.pid = s.pid",
            "(SELECT pid, sex, city, day, seen, note, insured, COUNT(*) AS age, SUM(delta) AS delta, AVG(charge) "
            "AS charge, MAX(score) AS score, MIN(ratio) AS ratio FROM visits "
            "GROUP BY pid, sex, city, day, seen, note, insured) p",
            "(SELECT * FROM visits UNION ALL SELECT * FROM stays) u",
            "regions",
            f"(SELECT *, {self.number(1)} AS extra FROM answers) e",
        )

    def statement(self) -> str:
        items = [self.aggregate() for _ in range(self.draw.randint(1, 3))]
        keys = [self.any(1) for _ in range(self.draw.choice([0, 0, 1, 1, 2]))]
        grouping = ", ".join(keys)
        if len(keys) == 2 and self.draw.random() < 0.4:
            grouping = f"{self.one('ROLLUP', 'CUBE')}({grouping})"
        text = f"SELECT {', '.join([*keys, *items])} FROM {self.source()}"
        text += f" WHERE {self.condition(2)}" if self.draw.random() < 0.4 else ""
        text += f" GROUP BY {grouping}" if keys else ""
        text += self.one("", "", "", " HAVING COUNT(*) > 3", " ORDER BY 1", " LIMIT 3", " ORDER BY 1 DESC LIMIT 2")
        if self.draw.random() < 0.05:
            text = f"WITH w AS ({text}) SELECT COUNT(*) AS n FROM w"
        if self.draw.random() < 0.03:
            text += " WITHIN 100 CONFIDENCE 0.9"
        return text

    def mutated(self, text: str) -> str:
        words = text.replace("(", " ( ").replace(")", " ) ").replace(",", " , ").split()
        for _ in range(self.draw.randint(1, 3)):
            at = self.draw.randrange(len(words))
            match self.draw.randrange(5):
                case 0:
                    del words[at]
                case 1:
                    words.insert(at, self.draw.choice(words))
                case 2:
                    words[at] = self.draw.choice(words)
                case 3:
                    words[at] = self.one(
                        "SELECT",
                        "*",
                        ")",
                        "(",
                        "NULL",
                        "OVER ()",
                        "random()",
                        "'",
                        "read_csv('x')",
                        ";",
                        "DISTINCT",
                        "JOIN",
                        "--",
                        "1e400",
                        "\u00e9",
                        "LIMIT -1",
                        "now()",
                        "x.y.z",
                        "?",
                    )
                case _:
                    words[at] = words[at][:-1] or ","
            words = words or ["SELECT"]
        return " ".join(words)


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


def test_two_thousand_statements_are_answered_or_refused(canaries: DuckDBEngine) -> None:
    told = fuzz(2_000, 7, canaries, every=8)
    assert told["answered"] + told["compiled"] > 400
    assert told["refused"] > 400


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
