"""A standing fuzzer of the guarantee: random questions under random policies, on tables that differ by one unit.

Each question is compiled and measured by the product's own code, once on a table and again on hostile neighbors of it:
a person more with many rows, many keys, huge or missing values, a person less, or one exchanged for another. Salts are
the same, and no noise is added; what the mechanisms are handed is written down instead. Then it is compared, by
arithmetic of its own, with what the noise was made for: the norm of the change against the scale, the losses of all
measurements together against the budget, the counts of private keys against the probability that their threshold lets
one through. Nothing else may differ: not which public keys there are, nor which statements run, nor whether one fails.
A question is measured only on neighbors that differ in a table which it names: on others nothing could change.

    python tests/guarantee_fuzzer.py --questions 10000 --seed 1 --state fuzz.json

A question is drawn from the seed and its number alone. With a state file a run that was stopped goes on where it was.
What it had found is looked for again first: what today's code no longer does is dropped, and said.
With `--quick` the engine plans a statement once for all tables: twice as many questions in the same time, but without
the engine's optimizer, whose plans are made for the rows of one table.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import re
import sys
import warnings
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import clinic
from deniable.dp.accounting import pure_cost, zcdp_cost
from deniable.dp.mechanisms import GaussianMechanism, KeyThreshold, LaplaceMechanism, QuantileMechanism
from deniable.errors import QueryRefused
from deniable.policy.budget import ZCDP, ApproxDP, Budget, PureDP
from deniable.policy.schema import Bounding, Bounds, Column, ColumnType, Neighboring, PrivacyUnit, TableSchema
from deniable.query import execute
from deniable.query.compile import compile_query
from deniable.query.execute import measure
from deniable.query.keys import PublicKeys
from deniable.query.plan import QueryPlan
from deniable.query.sql import private_sql
from sql_grammar import Grammar

Record = dict[str, Any]
World = dict[str, list[Record]]
Key = tuple[Any, ...]
MOST_CELLS = 400
"""Public groups of a question: more would be slow and show nothing else."""
QUESTIONS_A_POLICY = 12
ROUNDING = 1 + 1e-9
TINY = Fraction(1, 10**6)
BUDGETS: tuple[Budget, ...] = (
    PureDP(Fraction(1)),
    ApproxDP(Fraction(1), TINY),
    ApproxDP(Fraction(1, 10), TINY),
    ApproxDP(Fraction(20), Fraction(1, 100)),
    ZCDP(Fraction(1, 2)),
    ZCDP(Fraction(1, 10), TINY),
)


# -- policies, tables and their neighbors -----------------------------------------------------------------------------

INTEGERS = (Bounds(0, 100), Bounds(-20, 10), Bounds(7, 7), Bounds(-3, -1), Bounds(0, 1), Bounds(-(2**40), 2**41),
            Bounds(0, 100, Fraction(5)), None)  # fmt: skip
DECIMALS = (Bounds(Fraction(0), Fraction(250), Fraction(1, 2)), Bounds(Fraction(-1, 2), Fraction(1, 4), Fraction(1, 4)),
            Bounds(Fraction(-7), Fraction(9), Fraction(1, 100)), Bounds(Fraction(0), Fraction(10**9), Fraction(1)),
            None)  # fmt: skip
VALUES: dict[str, tuple[Any, ...]] = {
    "sex": ("F", "M", "X", "f", ""),
    "age": (-7, 0, 1, 5, 33, 60, 100, 2**62, -(2**63)),
    "delta": (-99, -20, -3, -1, 0, 10, 11, 2**63 - 1),
    "charge": (-1.0, -0.0, 0.25, 7.5, 249.9, 1e300, -1e308, math.inf, -math.inf, math.nan),
    "day": (date(2020, 2, 29), date(2020, 5, 1), date(2020, 12, 31), date(1, 1, 1), date(9999, 12, 31)),
    "seen": (datetime(2020, 1, 1, 23, 59), datetime(1999, 1, 1), datetime(2020, 6, 1, 1, 2, 3)),
    "insured": (True, False),
    "city": ("Ada", "Brin", "Cole", "Dorn", "Egg", ""),
    "score": (0, 1, 2, 800, -(2**63), 2**63 - 1),
    "ratio": (0.5, 1.0, -1e308, 1e-300, math.inf, math.nan),
    "note": ("ok", "", "ok ", "a longer text"),
}
HUGE = {"age": 2**62, "delta": 2**63 - 1, "charge": math.inf, "score": 2**63 - 1, "ratio": 1e308, "day": date.max,
        "sex": "F", "city": "Ada", "insured": True, "note": "ok"}  # fmt: skip
LOW = HUGE | {"age": -(2**63), "delta": -(2**63), "charge": -math.inf, "score": -(2**63), "ratio": -1e308,
              "day": date.min}  # fmt: skip
PEOPLE = 4
NEW = 739
PRIVATE = ("visits", "stays", "answers")
PEOPLE_TABLES, ROW_TABLES = frozenset({"visits", "stays"}), frozenset({"answers"})


def draw_tables(draw: random.Random) -> tuple[TableSchema, ...]:
    """The clinic under another policy: bounds, steps, categories, units and their bounds are drawn."""
    neighboring = draw.choice(list(Neighboring))
    columns = tuple(_draw_column(draw, column) for column in clinic.COLUMNS)
    people = [_draw_unit(draw, neighboring) for _ in range(2)]
    if draw.random() < 0.7:
        people[1] = people[0]
    return (
        TableSchema("visits", "visits.parquet", columns, people[0]),
        TableSchema("stays", "stays.parquet", columns, people[1]),
        TableSchema("answers", "answers.parquet", columns, PrivacyUnit(neighboring=draw.choice(list(Neighboring)))),
        clinic.REGIONS,
    )


def _draw_unit(draw: random.Random, neighboring: Neighboring) -> PrivacyUnit:
    bounding = draw.choice(list(Bounding))
    groups, rows = draw.randint(1, 4), draw.randint(1, 4)
    most = draw.randint(1, 6) if bounding is Bounding.ROWS and draw.random() < 0.7 else None
    return PrivacyUnit("pid", groups, rows, neighboring, bounding, most)


def _draw_column(draw: random.Random, column: Column) -> Column:
    nullable = draw.random() < 0.8
    match column.name:
        case "age" | "delta":
            return Column(column.name, column.type, nullable=nullable, bounds=draw.choice(INTEGERS))
        case "score":
            listed = draw.choice((None, None, (0, 1, 2), (-5, 800)))
            return Column("score", ColumnType.INTEGER, nullable=nullable, categories=listed)
        case "charge" | "ratio":
            return Column(column.name, column.type, nullable=nullable, bounds=draw.choice(DECIMALS))
        case "sex" | "city":
            every = ("F", "M", "X") if column.name == "sex" else ("Ada", "Brin", "Cole", "Dorn")
            listed = draw.choice((None, every, every[:2]))
            return Column(column.name, nullable=nullable, categories=listed)
        case "note":
            return Column("note", longest=draw.choice((None, 2, 200)))
        case _:
            return column


def draw_record(draw: random.Random, person: int | None) -> Record:
    """A row of one person, some of its values missing."""
    values = {name: draw.choice(choices) for name, choices in VALUES.items() if draw.random() < 0.85}
    return {"pid": person, **values}


def draw_world(draw: random.Random) -> World:
    """A few people with a few rows in each table; some rows belong to nobody."""

    def rows() -> list[Record]:
        return [draw_record(draw, draw.choice((None, *range(PEOPLE)))) for _ in range(draw.randint(0, 12))]

    return {"visits": rows(), "stays": rows(), "answers": rows()}


def draw_hostile_rows(draw: random.Random, person: int | None) -> tuple[str, list[Record]]:
    """The rows of somebody who means harm, and what kind of harm."""
    same = draw_record(draw, person)
    match draw.randrange(7):
        case 0:
            return "many rows", [draw_record(draw, person) for _ in range(30)]
        case 1:
            keys = [(s, c) for s in VALUES["sex"] for c in VALUES["city"]]
            return "many keys", [draw_record(draw, person) | {"sex": s, "city": c} for s, c in keys]
        case 2:
            return "huge values", [{**HUGE, "pid": person}] * draw.randint(1, 12)
        case 3:
            return "low values", [{**LOW, "pid": person}] * draw.randint(1, 12)
        case 4:
            return "missing values", [{"pid": person}] * draw.randint(1, 5)
        case 5:
            wide = [{**each, "city": c, "pid": person} for each in (HUGE, LOW) for c in VALUES["city"]]
            return "huge values in many keys", wide
        case _:
            return "one row many times", [same] * draw.randint(1, 20)


def draw_person_neighbor(draw: random.Random, world: World, tables: tuple[TableSchema, ...]) -> tuple[str, World]:
    """A world that differs by one person of the two tables of people."""
    person = draw.randrange(PEOPLE)
    kept = {name: [r for r in world[name] if r["pid"] != person] for name in ("visits", "stays")}
    if draw.random() < 0.3:
        return "somebody less", {**world, **kept}
    replaced = tables[0].unit is not None and tables[0].unit.neighboring is Neighboring.REPLACE
    base, person, word = (kept, person, "exchanged for") if replaced else (world, NEW, "somebody more with")
    harms = {name: draw_hostile_rows(draw, person) for name in ("visits", "stays")}
    told = " and ".join(harm for harm, _ in harms.values())
    return f"{word} {told}", {**world, **{name: base[name] + rows for name, (_, rows) in harms.items()}}


def draw_row_neighbor(draw: random.Random, world: World, tables: tuple[TableSchema, ...]) -> tuple[str, World]:
    """A world that differs by one row of the table of rows."""
    rows, unit = world["answers"], tables[2].unit
    place = draw.randrange(len(rows)) if rows else 0
    others = rows[:place] + rows[place + 1 :]
    if rows and draw.random() < 0.4:
        return "a row less", {**world, "answers": others}
    harm, more = draw_hostile_rows(draw, draw.choice((None, 0, NEW)))
    replaced = unit is not None and unit.neighboring is Neighboring.REPLACE
    word, base = ("a row exchanged for one of", others) if replaced else ("a row more of", rows)
    return f"{word} {harm}", {**world, "answers": [*base, draw.choice(more)]}


# -- questions --------------------------------------------------------------------------------------------------------


class Questions(Grammar):
    """Statements of the grammar, most of them such that they can be answered."""

    def statement(self) -> str:
        """Half of them of every construct there is, half of what the policy's columns are good for."""
        if self.draw.random() < 0.15:
            return super().statement()
        items = ", ".join(self.measured() for _ in range(self.draw.randint(1, 3)))
        key = self.key()
        source, options = self.people(), self.options()
        where = f" WHERE {self.condition(1)}" if self.draw.random() < 0.3 else ""
        text = f"SELECT {options}{items} FROM {source}{where}{f' GROUP BY {key}' if key else ''}"
        if self.draw.random() < 0.06 and not options:
            text = f"SELECT {key or '1'}, {items.split(', ')[0]} AS n FROM {source}{where}" + (
                f" GROUP BY {key}" if key and "(" not in key else ""
            )
            text = f"WITH w AS ({text}) SELECT SUM(CLAMP(n, 0, 9)), COUNT(*) FROM w"
        return text

    def value(self) -> str:
        """A number with bounds, of the policy or its own."""
        low = self.draw.choice((-1000, -5, 0, 0, 3))
        high = low + self.draw.choice((0, 1, 10, 10**6))
        return self.one("age", "delta", "charge", "score", "insured", f"CLAMP({self.number(2)}, {low}, {high})",
                        f"CLAMP({self.number(1)}, {low}, {high})", f"ABS({self.one('age', 'delta', 'charge')})",
                        "age * delta", "age - delta", "-charge", "COALESCE(age, delta)", "age % 7", "MONTH(day)",
                        f"CASE WHEN {self.condition(1)} THEN age ELSE delta END", "LENGTH(note)")  # fmt: skip

    def measured(self) -> str:
        """An aggregate over such a number."""
        x, q = self.value(), self.one("0", "0.1", "0.5", "0.75", "1")
        low = self.draw.choice((-9, 0, 4))
        per_group = f"contribution_bounds_per_group => ({low}, {low + self.draw.choice((0, 3, 100))})"
        filtered = f" FILTER (WHERE {self.condition(1)})" if self.draw.random() < 0.15 else ""
        if self.draw.random() < 0.2:
            return self.workload()
        return self.one("COUNT(*)", f"COUNT({self.any(1)})", f"COUNT(DISTINCT {self.any(1)})", "COUNT(DISTINCT pid)",
                        f"SUM({x})", f"SUM({x})", f"AVG({x})", f"VARIANCE({x})", f"STDDEV({x})", f"MEDIAN({x})",
                        f"QUANTILE({x}, {q})", f"QUANTILE({x}, 0.25), QUANTILE({x}, 0.5), QUANTILE({x}, 0.9)",
                        f"MIN({x})", f"MAX({x})", f"COUNT_IF({self.condition(1)})",
                        f"SUM({x}, {per_group})", f"AVG({x}, {per_group})") + filtered  # fmt: skip

    def key(self) -> str:
        """What is grouped by; often nothing."""
        return self.one("", "", "sex", "city", "insured", "city, sex", "age % 3", "DATE_TRUNC('quarter', day)",
                        "CASE WHEN age > 50 THEN 1 ELSE 0 END", "charge", "ROLLUP(sex, city)", "CUBE(sex, insured)",
                        "GROUPING SETS ((sex), (city), ())", "COALESCE(city, 'none')", "ratio", "seen", "score",
                        "note", self.any(1), f"{self.text(1)}, {self.number(1)}")  # fmt: skip

    def people(self) -> str:
        """A source: tables of people or of rows, plain, joined, united, or summarized by person first."""
        condition = self.condition(1)
        return self.one(
            "visits", "visits", "answers",
            "(SELECT v.*, r.region, r.inhabitants FROM visits v JOIN regions r ON v.city = r.city) r",
            "(SELECT v.*, region FROM answers v LEFT JOIN (SELECT city AS c, region FROM regions) r ON v.city = c) r",
            "(SELECT v.* FROM visits v JOIN stays s ON v.pid = s.pid) j",
            "(SELECT v.* FROM visits v JOIN stays s ON v.pid = s.pid AND v.city = s.city) j",
            "(SELECT s.* FROM visits v LEFT JOIN stays s ON v.pid = s.pid) j",
            "(SELECT * FROM visits UNION ALL SELECT * FROM stays) u",
            "(SELECT * FROM visits UNION ALL SELECT * FROM visits) u",
            "(SELECT * FROM answers UNION ALL SELECT * FROM answers) u",
            f"(SELECT * FROM answers WHERE {condition} UNION ALL SELECT * FROM answers "
            "UNION ALL SELECT * FROM answers) u",
            f"(SELECT * FROM visits WHERE {condition}) s",
            self.summary(), self.summary(), self.summary(),
            "(SELECT v.pid, v.sex, v.age, v.city, v.day, v.insured, v.note, v.score, s.delta, s.charge FROM visits v "
            "JOIN (SELECT pid, MAX(delta) AS delta, MIN(charge) AS charge FROM stays GROUP BY pid) s "
            "ON v.pid = s.pid) m",
        )  # fmt: skip

    def summary(self) -> str:
        """One row for each person, or for each person and key, made of all their rows."""
        keys = self.one("pid", "pid", "pid, sex", "pid, city", "sex, pid, note", "pid, insured")
        made = {"sex": "'F'", "city": "'Ada'", "note": "'ok'", "insured": "COUNT(*) > 1", "age": "COUNT(*)",
                "delta": self.one("SUM(delta)", "MIN(age)", "COUNT(DISTINCT city)"), "charge": "AVG(charge)",
                "score": self.one("MAX(score)", "SUM(age)"), "ratio": "MAX(ratio)", "day": "MIN(day)"}  # fmt: skip
        fields = ["pid", *(n if n in keys else f"{text} AS {n}" for n, text in made.items())]
        kept = f" HAVING {self.one('COUNT(*) > 1', 'SUM(delta) > 2', 'MAX(age) < 50')}" * (self.draw.random() < 0.3)
        return f"(SELECT {', '.join(fields)} FROM {self.one('visits', 'stays')} GROUP BY {keys}{kept}) p"

    def options(self) -> str:
        """What a question may say about contributions and shares."""
        if self.draw.random() < 0.75:
            return ""
        n = self.draw.randint(1, 5)
        chosen = self.one(f"max_groups_contributed = {n}", f"max_rows_per_group = {n}", f"max_rows_contributed = {n}",
                          "weights = optimal", "bias_share = 0.2",
                          f"max_groups_contributed = {n}, max_rows_per_group = {self.draw.randint(1, 3)}")  # fmt: skip
        return f"WITH DIFFERENTIAL_PRIVACY OPTIONS ({chosen}) "


# -- what the noise is handed -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class Handed:
    """What one mechanism was given: by key, and for ranks by key and value."""

    mechanism: Any
    values: dict[Key, int]


@dataclass(slots=True)
class StepRun:
    """One grouping set of one run: the keys that the engine gave, those shown, and what each mechanism was handed."""

    keys: list[Key] | None = None
    shown: list[Key] | None = None
    handed: list[Handed] = field(default_factory=list)
    statements: int = 0


class Worlds:
    """The engine: one world after another in the same tables."""

    def __init__(self, quick: bool = False) -> None:
        self.connection = duckdb.connect(config={"threads": 1})
        self.connection.register("regions", clinic.REGION_ROWS)
        self.connection.execute(f"SET enable_optimizer = {not quick}")
        self.quick, self.planned, self.parsed = quick, dict[str, str](), dict[str, duckdb.Statement]()
        for name in PRIVATE:
            self._fill(f"CREATE TABLE {name} AS SELECT * FROM rows_of_world", [])

    def enter(self, world: World) -> None:
        """Let the tables hold this world; statements that were planned stay planned."""
        for name in PRIVATE:
            self.connection.execute(f"DELETE FROM {name}")
            self._fill(f"INSERT INTO {name} SELECT * FROM rows_of_world", world[name])

    def _fill(self, statement: str, rows: list[Record]) -> None:
        rows_of_world = clinic.rows_of(rows)  # the engine finds it by its name; a view would undo what is planned
        self.connection.execute(statement)
        del rows_of_world

    def forget_statements(self) -> None:
        """The questions of another policy have other statements."""
        for name in self.planned.values():
            self.connection.execute(f"DEALLOCATE {name}")
        self.planned, self.parsed = {}, {}

    def run(self, sql: str, frames: Mapping[str, pa.Table]) -> pa.Table:
        """What a statement gives in this world; frames are read once, so nothing is planned ahead for them."""
        if self.quick and not frames:
            return self.connection.execute(f"EXECUTE {self._plan(sql)}").to_arrow_table()
        for name, frame in frames.items():
            self.connection.register(name, frame)
        found = self.connection.execute(self._parse(sql)).to_arrow_table()
        for name in frames:
            self.connection.unregister(name)
        return found

    def _parse(self, sql: str) -> duckdb.Statement:
        """The statement, parsed once for all worlds: what is read of it takes as long as planning and running it."""
        if sql not in self.parsed:
            (self.parsed[sql],) = self.connection.extract_statements(sql)
        return self.parsed[sql]

    def _plan(self, sql: str) -> str:
        if sql not in self.planned:
            name = f"statement_{len(self.planned)}"
            self.connection.execute(f"PREPARE {name} AS {sql}")
            self.planned[sql] = name
        return self.planned[sql]


class Recorder:
    """A runner, and the entropy, of one measuring; a later run of the same plan repeats the answers of the first."""

    def __init__(self, worlds: Worlds, nested: bool, first: Recorder | None = None) -> None:
        self.worlds, self.nested, self.first = worlds, nested, first
        self.steps: list[StepRun] = []

    def take(self, count: int) -> bytes:
        """The salt of the next step: the same in every run."""
        self.steps.append(StepRun())
        return hashlib.sha256(f"step {len(self.steps)}".encode()).digest()[:count]

    def run(self, sql: str, parameters: Any = None, *, frames: Mapping[str, pa.Table] | None = None, **_: Any) -> Any:
        """Run a statement; the first of a step says which keys there are."""
        found = self.worlds.run(sql, frames or {})
        step = self.steps[-1]
        step.statements += 1
        if step.keys is None:
            names = [name for name in found.column_names if name.startswith("k")]
            step.keys = list(zip(*(found.column(n).to_pylist() for n in names), strict=True)) if names else [()]
        return found

    def note(self, mechanism: Any, values: Any) -> Any:
        """Counts and sums that would get noise; they come back as they are, or as the first run had them."""
        step, numbers = self.steps[-1], np.asarray(values).tolist()
        keys = step.keys if step.keys is not None else [()]
        if keys and len(numbers) > len(keys):  # measured together: several numbers a group
            keys = [(*key, part) for key in keys for part in range(len(numbers) // len(keys))]
        handed = {key: int(value) for key, value in zip(keys, numbers, strict=True)}
        assert len(handed) == len(keys), "a group appears twice"
        step.handed.append(Handed(mechanism, handed))
        before = self._find_first_values() or handed
        return np.array(
            [before.get(key, 0) for key in keys], dtype=object if max(handed.values(), default=0) >> 62 else np.int64
        )

    def choose_keys(self, threshold: KeyThreshold, values: Any) -> Any:
        """Private keys: all are shown, or, where further questions read them, those of two people and more."""
        noisy = self.note(threshold, values)
        step, first = self.steps[-1], self._find_first_step()
        keys, counts = step.keys or [], step.handed[-1].values
        known = set(first.shown or []) if first is not None and self.nested else {
            key for key in keys if not self.nested or counts[key] >= 2
        }  # fmt: skip
        shown = [place for place, key in enumerate(keys) if key in known]
        step.shown = [keys[place] for place in shown]
        return np.array(shown, dtype=np.int64), noisy[shown]

    def note_ranks(self, mechanism: QuantileMechanism, values: Any, counts: Any, group: Any, groups: int) -> Any:
        """Values whose ranks would be chosen; the lower bound comes back."""
        step = self.steps[-1]
        keys = step.shown if step.shown is not None else step.keys if step.keys is not None else [()]
        rows = zip(values.tolist(), counts.tolist(), group.tolist(), strict=True)
        handed: Counter[Key] = Counter()
        for value, count, place in rows:
            handed[(*keys[place], value)] += count
        step.handed.append(Handed(mechanism, dict(handed)))
        return np.full((groups, len(mechanism.quantiles)), mechanism.lower, dtype=np.int64)

    def _find_first_step(self) -> StepRun | None:
        if self.first is None or len(self.first.steps) < len(self.steps):
            return None
        return self.first.steps[len(self.steps) - 1]

    def _find_first_values(self) -> dict[Key, int] | None:
        first, place = self._find_first_step(), len(self.steps[-1].handed) - 1
        return first.handed[place].values if first is not None and place < len(first.handed) else None


@contextmanager
def hand_over() -> Iterator[None]:
    """Let mechanisms hand what they are given to the recorder that stands in for their entropy."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the engine's hint that a few rows are copied
        for kind in (LaplaceMechanism, GaussianMechanism):
            patch.setattr(kind, "release", lambda self, values, entropy: entropy.note(self, values))
        patch.setattr(KeyThreshold, "release", lambda self, values, entropy: entropy.choose_keys(self, values))
        patch.setattr(QuantileMechanism, "release_groups", lambda self, *args: args[-1].note_ranks(self, *args[:-1]))
        for module, name in ((private_sql, "render_step"), (private_sql, "render_value_counts"), (execute, "check")):
            patch.setattr(module, name, _remember_last(getattr(module, name)))
        yield


def _remember_last(compute: Any) -> Any:
    """The same, computed once for all worlds: it is handed a plan and a salt, and no row."""
    found = OrderedDict[tuple[int, ...], tuple[tuple[Any, ...], Any]]()

    def look_up(*args: Any) -> Any:
        key = tuple(id(each) if not isinstance(each, int) else each for each in args)
        if key not in found:
            found[key] = (args, compute(*args))  # the arguments are held, so that nothing else gets their ids
        if len(found) > 200:
            found.popitem(last=False)
        return found[key][1]

    return look_up


# -- comparing --------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Loss:
    """What one neighbor loses in all measurements of a plan together."""

    epsilon: float = 0.0
    rho: float = 0.0
    gaussian: float = 0.0
    """The squares of the changes over the variances of Gaussian noise: mu squared."""
    delta: float = 0.0


def compare_runs(plan: QueryPlan, one: Recorder, other: Recorder) -> list[str]:
    """What two runs on neighbors show that the plan did not pay for."""
    steps = [step for node in plan.nodes for step in node.steps]
    if [s.statements for s in one.steps] != [s.statements for s in other.steps]:
        return ["other statements ran"]
    found, loss = list[str](), Loss()
    for step, left, right in zip(steps, one.steps, other.steps, strict=True):
        if isinstance(step.keys, PublicKeys) and left.keys != right.keys:
            found.append("other public keys appeared")
        for a, b in zip(left.handed, right.handed, strict=True):
            found += _compare_handed(a, b, set(left.keys or [()]) & set(right.keys or [()]), loss)
    return found + _compare_with_budget(plan, loss)


def _compare_handed(one: Handed, other: Handed, shared: set[Key], loss: Loss) -> list[str]:
    moves = {key: other.values.get(key, 0) - one.values.get(key, 0) for key in one.values.keys() | other.values.keys()}
    moved = [abs(move) for move in moves.values()]
    match one.mechanism:
        case LaplaceMechanism() | GaussianMechanism():
            return _weigh_noise(one.mechanism, moved, loss)
        case KeyThreshold() as threshold:
            found = _weigh_noise(threshold.noise, moved, loss)
            alone = [counts.get(key, 0) for key in moves for counts in (one.values, other.values)
                     if (key in one.values) is not (key in other.values) and key in counts]  # fmt: skip
            shown = sum(tail_above(threshold.noise, threshold.threshold - count) for count in alone)
            loss.delta += shown
            if shown > float(threshold.delta) * ROUNDING:
                found.append(
                    f"keys of one unit are shown with probability {shown:.3g}, paid {float(threshold.delta):.3g}"
                )
            return found
        case QuantileMechanism() as choice:
            # A key that is in one table alone is paid for by its threshold, with whatever is chosen in it.
            return _weigh_ranks(choice, {key: move for key, move in moves.items() if key[:-1] in shared}, loss)
    return [f"a mechanism that nobody compares: {type(one.mechanism).__name__}"]


def _weigh_noise(noise: LaplaceMechanism | GaussianMechanism, moved: list[int], loss: Loss) -> list[str]:
    """The change against the sensitivity, and what it costs under the noise's scale."""
    if isinstance(noise, LaplaceMechanism):
        size, claimed = Fraction(sum(moved)), noise.sensitivity
        loss.epsilon += float(size / noise.scale)
        loss.rho += float(size / noise.scale) ** 2 / 2
    else:
        size, claimed = Fraction(sum(move * move for move in moved)), noise.sensitivity_squared
        loss.gaussian += float(size / noise.variance)
        loss.rho += float(size / noise.variance) / 2
        loss.epsilon = math.inf if size else loss.epsilon
    return [f"moved by {size}, priced for {claimed} ({type(noise).__name__})"] if size > claimed else []


def _weigh_ranks(choice: QuantileMechanism, moves: dict[Key, int], loss: Loss) -> list[str]:
    """Values that came and went in each group, against those that a choice is made for."""
    came, went = Counter[Key](), Counter[Key]()
    for key, move in moves.items():
        (came if move > 0 else went)[key[:-1]] += abs(move)
    each = {group: max(came[group], went[group]) if choice.exchanged else came[group] + went[group]
            for group in came.keys() | went.keys()}  # fmt: skip
    most = choice.rows_per_unit if choice.exchanged or not came or not went else 2 * choice.rows_per_unit
    price = pure_cost(choice.event)
    assert price is not None
    times = Fraction(sum(each.values()), choice.rows_per_unit)
    loss.epsilon += float(times * price.amount)
    rho = zcdp_cost(choice.event)
    loss.rho += float(times * rho.amount) if rho is not None else math.inf
    loss.gaussian = math.inf if times else loss.gaussian
    return (
        [f"a choice lost {max(each.values())} values, priced for {most}"]
        if max(each.values(), default=0) > most
        else []
    )


def _compare_with_budget(plan: QueryPlan, loss: Loss) -> list[str]:
    """All losses together against what was asked, by the strategy that the plan names."""
    asked = plan.asked
    if asked is None:
        return ["rows were read for nothing"] if loss != Loss() else []
    found = (
        [f"keys are shown with probability {loss.delta:.3g} in all"]
        if loss.delta > float(asked.delta) * ROUNDING
        else []
    )
    if isinstance(asked, ZCDP):
        lost, paid = loss.rho, float(asked.rho)
    elif plan.strategy == "pure":
        lost, paid = loss.epsilon, float(asked.epsilon)
    elif plan.strategy == "zcdp":
        priced = zcdp_cost(plan.event)
        lost, paid = loss.rho, float(priced.amount) if priced is not None else 0.0
    else:
        lost, paid = delta_of_gaussian(float(asked.epsilon), loss.gaussian) + loss.delta, float(asked.delta)
    return found + ([f"lost {lost:.6g} in all, paid {paid:.6g} ({plan.strategy})"] if lost > paid * ROUNDING else [])


def delta_of_gaussian(epsilon: float, mu_squared: float) -> float:
    """The delta of a Gaussian mechanism at an epsilon (Balle and Wang 2018)."""
    if not 0 < mu_squared < math.inf:
        return 0.0 if mu_squared == 0 else 1.0
    mu = math.sqrt(mu_squared)
    below = lambda x: math.erfc(-x / math.sqrt(2)) / 2  # noqa: E731
    return below(mu / 2 - epsilon / mu) - math.exp(epsilon) * below(-mu / 2 - epsilon / mu)


@lru_cache(maxsize=4096)
def tail_above(noise: LaplaceMechanism | GaussianMechanism, least: int) -> float:
    """The probability that noise is at least so much, summed up anew."""
    if isinstance(noise, LaplaceMechanism):
        q = math.exp(-1 / float(noise.scale))
        return q**least / (1 + q) if least > 0 else 1 - q ** (1 - least) / (1 + q)
    deviation = math.sqrt(float(noise.variance))
    if deviation > 2_000:  # so wide that the sum is the integral
        return math.erfc((least - 0.5) / deviation / math.sqrt(2)) / 2
    line = np.arange(-int(40 * deviation) - 2, int(40 * deviation) + 3)
    weights = np.exp(-(line.astype(float) ** 2) / (2 * float(noise.variance)))
    return float(weights[line >= least].sum() / weights.sum())


# -- the run ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Found:
    """One thing that a question showed without paying for it, with all that is needed to see it again."""

    number: int
    question: str
    budget: str
    neighbor: str
    what: list[str]

    def tell(self) -> str:
        """The case in words; `draw_block` draws its tables again from the seed and the number."""
        return f"{name_question(self.number, self.question, self.budget)}, {self.neighbor}: {'; '.join(self.what)}"


def name_question(number: int, text: str, budget: object) -> str:
    """How a recorded case begins."""
    return f"question {number}: {text!r} with {budget}"


@dataclass(slots=True)
class Tally:
    """How far a run came."""

    seed: int
    next: int = 0
    asked: int = 0
    refused: int = 0
    compared: int = 0
    found: list[str] = field(default_factory=list)

    @classmethod
    def load(cls, seed: int, state: Path | None) -> Tally:
        """Where a run with this seed was stopped, or its beginning."""
        if state is None or not state.exists():
            return cls(seed)
        held = json.loads(state.read_text(encoding="utf-8"))
        return cls(**held) if held["seed"] == seed else cls(seed)

    def save(self, state: Path | None) -> None:
        """Keep it, whole or not at all."""
        if state is not None:
            beside = state.with_suffix(".new")
            beside.write_text(json.dumps({name: getattr(self, name) for name in self.__slots__}), encoding="utf-8")
            beside.replace(state)


def fuzz(
    questions: int,
    seed: int,
    neighbors: int = 2,
    state: Path | None = None,
    until_found: bool = False,
    quick: bool = False,
) -> Tally:
    """Ask until so many questions were measured on a table and its neighbors; refused ones do not count."""
    tally, worlds = Tally.load(seed, state), Worlds(quick)
    with hand_over():
        if tally.found:
            tally.found = find_again(tally, neighbors)
            tally.save(state)
        while tally.asked < questions and not (until_found and tally.found):
            for found in ask_some(worlds, seed, tally, neighbors):
                tally.found.append(found.tell())
            tally.save(state)
    return tally


def find_again(tally: Tally, neighbors: int) -> list[str]:
    """What was recorded and still occurs, with and without the engine's optimizer; what is gone is printed.

    A case whose question is drawn no more, since the grammar or the number of neighbors is another, cannot be looked
    for, and stays.
    """
    kept = []
    for told in tally.found:
        number = int(told.removeprefix("question ").partition(":")[0])
        start = (number - 1) // QUESTIONS_A_POLICY * QUESTIONS_A_POLICY
        block = draw_block(tally.seed, start, neighbors)
        if not any(told.startswith(name_question(*each) + ",") for each in block.questions):
            print(f"kept, since it cannot be asked again with these settings: {told}", flush=True)
            kept.append(told)
            continue
        runs = [ask_some(Worlds(quick), tally.seed, Tally(tally.seed, start), neighbors) for quick in (True, False)]
        again = dict.fromkeys(found.tell() for run in runs for found in run if found.number == number)
        if not again:
            print(f"dropped, since it no longer occurs: {told}", flush=True)
        kept += again
    return list(dict.fromkeys(kept))


@dataclass(frozen=True, slots=True)
class Block:
    """The questions of one policy, with their numbers and budgets, a world, and its neighbors."""

    tables: tuple[TableSchema, ...]
    world: World
    pairs: list[tuple[frozenset[str], str, World]]
    questions: list[tuple[int, str, Budget]]


def draw_block(seed: int, start: int, neighbors: int) -> Block:
    """The questions after this number; the seed and the number decide all of it."""
    draw = random.Random(f"{seed} {start}")
    tables, world = draw_tables(draw), draw_world(draw)
    pairs = [
        (differing, *make(draw, world, tables))
        for differing, make in ((PEOPLE_TABLES, draw_person_neighbor), (ROW_TABLES, draw_row_neighbor))
        for _ in range(neighbors)
    ]
    grammar, numbers = Questions(draw), range(start + 1, start + 1 + QUESTIONS_A_POLICY)
    return Block(tables, world, pairs, [(each, grammar.statement(), draw.choice(BUDGETS)) for each in numbers])


def ask_some(worlds: Worlds, seed: int, tally: Tally, neighbors: int) -> list[Found]:
    """The questions of one policy, on one world and its neighbors."""
    block, plans, found = draw_block(seed, tally.next, neighbors), list[tuple[int, QueryPlan, Budget]](), list[Found]()
    for number, text, budget in block.questions:
        plan = None
        try:
            plan = compile_or_none(text, block.tables, budget)
        except Exception as failure:
            what = [f"compiling failed: {type(failure).__name__}: {failure}"]
            found.append(Found(number, text, str(budget), "no table", what))
        tally.refused += plan is None
        if plan is not None:
            plans.append((number, plan, budget))
    tally.next += len(block.questions)
    tally.asked += len(plans)
    worlds.forget_statements()
    firsts = measure_all(worlds, block.world, [(plan, None) for _, plan, _ in plans])
    for differing, told, other in block.pairs:
        touched = [(*each, first) for each, first in zip(plans, firsts, strict=True)
                   if differing & set(re.findall(r"\w+", each[1].text))]  # fmt: skip
        seconds = measure_all(worlds, other, [(plan, first) for _, plan, _, first in touched])
        for (number, plan, budget, first), second in zip(touched, seconds, strict=True):
            tally.compared += 1
            what = judge(plan, first, second)
            if what:
                found.append(Found(number, plan.text, str(budget), told, what))
    return found


def compile_or_none(text: str, tables: tuple[TableSchema, ...], budget: Budget) -> QueryPlan | None:
    """The plan of a question that measures something and is not too large; None where it is refused."""
    try:
        plan = compile_query(text, tables, budget)
    except QueryRefused:
        return None
    keys = [step.keys for node in plan.nodes for step in node.steps]
    cells = [each.cells or 0 for each in keys if isinstance(each, PublicKeys)]
    return None if plan.free or sum(cells) > MOST_CELLS else plan


def measure_all(worlds: Worlds, world: World, plans: list[tuple[QueryPlan, Recorder | None]]) -> list[Recorder | str]:
    """What each plan hands to its noise on this world, or how it failed."""
    if plans:
        worlds.enter(world)
    return [measure_plan(worlds, plan, first) for plan, first in plans]


def measure_plan(worlds: Worlds, plan: QueryPlan, first: Any) -> Recorder | str:
    """One plan in the world that was entered."""
    recorder = Recorder(worlds, len(plan.nodes) > 1, first if isinstance(first, Recorder) else None)
    try:
        measure(plan, recorder, entropy=recorder)
    except Exception as failure:
        return f"{type(failure).__name__}: {failure}"
    return recorder


def judge(plan: QueryPlan, first: Recorder | str, second: Recorder | str) -> list[str]:
    """What is wrong between two runs; a failure is always wrong, since a row may have made it."""
    failures = [run for run in (first, second) if isinstance(run, str)]
    if failures:
        return [f"it failed: {failures[0]}"]
    assert isinstance(first, Recorder)
    assert isinstance(second, Recorder)
    return compare_runs(plan, first, second)


def main() -> int:
    """Fuzz from the command line; every case found is printed, and the exit code says whether there was one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--neighbors", type=int, default=2)
    parser.add_argument("--state", type=Path)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    tally = fuzz(args.questions, args.seed, args.neighbors, args.state, quick=args.quick)
    print(f"{tally.asked:,} questions, {tally.compared:,} neighbors compared, {tally.refused:,} refused, "
          f"{len(tally.found):,} found")  # fmt: skip
    print("\n".join(tally.found))
    return bool(tally.found)


if __name__ == "__main__":
    sys.exit(main())
