"""What is computed for each person is a function of the set of the person's rows: bit for bit that of a plain twin.

Nested questions are generated and compiled; the rows below each noisy aggregate, and its exact totals, are compared
with `relation_oracle`, under any number of threads, any order of rows, any form of the source, with little memory, and
on both sides of the size at which the engine changes how it joins.
"""

from __future__ import annotations

import math
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from deniable.dp.mechanisms import GaussianMechanism, LaplaceMechanism
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import QueryRefused
from deniable.policy.budget import ApproxDP, PureDP
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, TableSchema
from deniable.query.algebra.expression import Expression
from deniable.query.algebra.relation import (
    ExactAggregate,
    Measured,
    PerUnit,
    Relation,
    Summary,
    find_noisy_nodes,
    inputs_of,
)
from deniable.query.compile import compile_query
from deniable.query.execute import execute
from deniable.query.measurements import Measurement, Part, Rows, Total
from deniable.query.plan import QueryPlan, Step, parts_of
from deniable.query.sql import private_sql, render
from relation_oracle import UNIT, Bag, Row, Tables, compile_expression, evaluate_relation, round_half_away

WIDE = PrivacyUnit("u", max_groups=1_000, max_rows_per_group=100_000)
"""Bounds that never bite, so that totals are those of all rows."""
WHOLE, DECIMAL = ColumnType.INTEGER, ColumnType.DECIMAL


def bounded(name: str, low: int, high: int, step: Fraction) -> Column:
    return Column(name, DECIMAL, bounds=Bounds(Fraction(low), Fraction(high), step))


A = TableSchema(
    "a",
    "",
    (
        Column("u", WHOLE),
        Column("k", WHOLE, bounds=Bounds(0, 3)),
        bounded("x", -10, 10, Fraction(1, 1000)),
        bounded("y", 0, 1, Fraction(1, 10)),
        Column("r", DECIMAL),
        Column("n", WHOLE),
        Column("t"),
        Column("c", categories=("p", "q")),
    ),
    WIDE,
)
B = TableSchema(
    "b",
    "",
    (
        Column("u", WHOLE),
        Column("k", WHOLE, bounds=Bounds(0, 3)),
        bounded("z", -5, 5, Fraction(1, 100)),
        Column("w", DECIMAL),
    ),
    WIDE,
)
P = TableSchema("p", "", (Column("j", WHOLE), bounded("f", 0, 2, Fraction(1, 100)), Column("l")), public=True)
SCHEMAS = (A, B, P)
ARROW = {WHOLE: pa.int64(), DECIMAL: pa.float64(), ColumnType.TEXT: pa.string()}
DECIMALS = [0.1, 0.2, 0.3, 0.7, 1.1, 2.5, -0.1, -0.3, 0.0, -0.0, 1 / 3, 9.99, 3.0, 0.05, 1e-9, 0.6]
STRANGE = [float("nan"), float("inf"), float("-inf"), 1e300, -1e300, 5e-324, 1e16, -1e16, 2.0**53 + 2, None, -0.0]


# -- data -------------------------------------------------------------------------------------------------------------


def draw_records(seed: int, of_a: int, of_b: int, people: int) -> Tables:
    """Tables with decimals that floats cannot hold, and with everything that is awkward."""
    draw = random.Random(seed)

    def number() -> Any:
        return draw.choice(STRANGE) if draw.random() < 0.1 else draw.choice(DECIMALS)

    def person() -> Any:
        return None if draw.random() < 0.03 else draw.randrange(people)

    def row_of_a() -> Row:
        words = {"t": draw.choice(["ok", "Abc", " b ", "zz", None]), "c": draw.choice(["p", "q", "other", None])}
        whole = draw.choice([0, 1, -7, 3, 2**40, -(2**62), None])
        keys = {"u": person(), "k": draw.choice([0, 1, 2, 3, 9, None])}
        return {**keys, "x": number(), "y": number(), "r": number(), "n": whole, **words}

    def row_of_b() -> Row:
        return {"u": person(), "k": draw.choice([0, 1, 2, None]), "z": number(), "w": number()}

    listed = [(0, 0.1, "low"), (1, 0.25, "low"), (1, 1.5, "high"), (3, None, None), (None, 0.3, "none")]
    return {
        "a": [row_of_a() for _ in range(of_a)],
        "b": [row_of_b() for _ in range(of_b)],
        "p": [{"j": j, "f": f, "l": word} for j, f, word in listed],
    }


def as_frame(table: TableSchema, records: list[Row]) -> pa.Table:
    return pa.table({c.name: pa.array([r[c.name] for r in records], ARROW[c.type]) for c in table.columns})


def write_csv(table: TableSchema, records: list[Row], path: Path) -> Path:
    """Numbers are written as Python spells them, which reads back to the same number; NaN is null in a file of text."""
    lines = [",".join(column.name for column in table.columns)]
    lines += [",".join("" if (v := r[c.name]) is None or v != v else str(v) for c in table.columns) for r in records]
    path.write_text("\n".join(lines) + "\n")
    return path


def write_parquet(table: TableSchema, records: list[Row], path: Path) -> Path:
    """Many small row groups: each may be read by another thread."""
    pq.write_table(as_frame(table, records), path, row_group_size=max(16, len(records) // 40))
    return path


Form = Callable[[TableSchema, list[Row], Path], Any]
FORMS: dict[str, Form] = {
    "frame": lambda table, records, path: as_frame(table, records),
    "parquet": lambda table, records, path: write_parquet(table, records, path.with_suffix(".parquet")),
    "csv": lambda table, records, path: write_csv(table, records, path.with_suffix(".csv")),
}
WORLDS = [("frame", 1, 0), ("parquet", 2, 1), ("parquet", 8, 2), ("csv", 2, 3), ("frame", 8, 4), ("csv", 1, 5)]
"""Form of the source, threads, and the seed by which rows are shuffled; 0 leaves them as they are."""


def open_world(tables: Tables, form: str, threads: int, seed: int, folder: Path) -> DuckDBEngine:
    """An engine that holds the tables in one form, with their rows in an order of their own."""
    opened = DuckDBEngine(threads=threads, memory="256MB")
    for schema in SCHEMAS:
        records = list(tables[schema.name])
        if seed:
            random.Random(seed).shuffle(records)
        opened.attach(schema.name, FORMS[form](schema, records, folder / f"{schema.name}{seed}"), schema)
    return opened


# -- questions --------------------------------------------------------------------------------------------------------

NUMBERS, UNBOUNDED = "numbers", "unbounded"
Scope = dict[str, str]
"""The columns of a source: whether it is a bounded number, another number, or a text."""


class Writer:
    """Questions from a seed; most of them are answered, and a refused one is drawn again."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def question(self) -> str:
        """One question: noisy aggregates over one to three levels of sub-queries by person."""
        source, scope = self.source()
        for _ in range(self.draw.choice([1, 1, 2, 2, 3])):
            source, scope = self.per_person(source, scope)
        sums = [f"SUM(CLAMP({name}, -5, 5))" for name, kind in scope.items() if kind != "text" and name != "k"]
        asked = ["COUNT(*)", *self.draw.sample(sums, min(len(sums), self.draw.choice([0, 0, 1, 2])))]
        where = f" WHERE {self.condition(scope)}" if self.draw.random() < 0.4 else ""
        return f"SELECT {', '.join(asked)} FROM {source}{where}"

    def source(self) -> tuple[str, Scope]:
        """One table, two private ones joined by person or set under each other, or one beside a public table."""
        of_a = {"k": NUMBERS, "x": NUMBERS, "y": NUMBERS, "r": UNBOUNDED, "n": UNBOUNDED, "t": "text", "c": "text"}
        of_b = {"k": NUMBERS, "z": NUMBERS, "w": UNBOUNDED}
        both = {"x": NUMBERS, "y": NUMBERS, "r": UNBOUNDED, "z": NUMBERS, "w": UNBOUNDED, "c": "text", "k": NUMBERS}
        side = self.draw.choice(["JOIN", "JOIN", "LEFT JOIN"])
        also = self.draw.choice(["", " AND a.k = b.k", " AND a.y = b.z"])
        first, second = self.draw.sample(["a", "b"], 2)
        joined = f"SELECT {first}.u, {first}.k, x, y, r, c, z, w FROM {first} {side} {second} ON a.u = b.u{also}"
        summed = "SELECT u, SUM(x * y) AS s, MIN(r) AS m FROM a GROUP BY u"
        beside = f"SELECT b.u, b.k, z, w, s, m FROM b {side} ({summed}) AS g ON b.u = g.u"
        stacked = "SELECT u, k, x, r FROM a UNION ALL SELECT u, k, z * 2 AS x, w FROM b"
        public = f"SELECT a.u, a.k, x, y, f, l AS c FROM a {side} p ON a.k = p.j"
        commas = "SELECT a.u, a.k, x, y, r, c, z, w FROM b, a WHERE a.u = b.u AND b.k = a.k"
        looked_up = [
            "u IN (SELECT u FROM b WHERE z > 0.1)",
            "NOT EXISTS (SELECT 1 FROM b WHERE b.u = a.u AND b.k = a.k AND b.z <> a.x)",
            "EXISTS (SELECT * FROM b WHERE b.u = a.u AND b.z > a.y) OR k = 1",
        ]
        return self.draw.choice(
            [
                ("a", of_a),
                ("b", of_b),
                (f"({joined}) AS s", both),
                (f"({joined}) AS s", both),
                (f"({beside}) AS s", {**of_b, "s": UNBOUNDED, "m": UNBOUNDED}),
                (f"({stacked}) AS s", {"k": NUMBERS, "x": NUMBERS, "r": UNBOUNDED}),
                (f"({public}) AS s", {"k": NUMBERS, "x": NUMBERS, "y": NUMBERS, "f": NUMBERS, "c": "text"}),
                (f"({commas}) AS s", both),
                (f"(SELECT * FROM a WHERE {self.draw.choice(looked_up)}) AS s", of_a),
            ]
        )

    def per_person(self, source: str, scope: Scope) -> tuple[str, Scope]:
        """Each person's rows summarized, and some of the results left out."""
        key = "k" in scope and self.draw.random() < 0.5
        found = {f"s{i}": self.aggregate(scope) for i in range(self.draw.choice([1, 2, 3]))}
        items = ["u", *(["k"] if key else []), *(f"{text} AS {name}" for name, text in found.items())]
        where = f" WHERE {self.condition(scope)}" if self.draw.random() < 0.4 else ""
        having = ""
        if self.draw.random() < 0.6:
            tested = self.draw.choice(list(found.values()))
            having = f" HAVING {tested} {self.draw.choice(['>', '<=', '<>'])} {self.literal()}"
        grouped = f"SELECT {', '.join(items)} FROM {source}{where} GROUP BY u{', k' if key else ''}{having}"
        name = f"q{self.draw.randrange(10**6)}"
        return f"({grouped}) AS {name}", {**({"k": NUMBERS} if key else {}), **dict.fromkeys(found, UNBOUNDED)}

    def aggregate(self, scope: Scope) -> str:
        """An exact aggregate of an expression; sums only of what is bounded."""
        name = self.draw.choice(["SUM", "SUM", "SUM", "AVG", "AVG", "MIN", "MAX", "COUNT", "COUNT(DISTINCT", "*"])
        if name == "*":
            text = "COUNT(*)"
        elif name == "COUNT(DISTINCT":
            text = f"COUNT(DISTINCT {self.number(scope, 1, False)})"
        else:
            text = f"{name}({self.number(scope, 2, name in ('SUM', 'AVG'))})"
        return f"{text} FILTER (WHERE {self.condition(scope)})" if self.draw.random() < 0.15 else text

    def literal(self) -> str:
        """A number such as people write."""
        return self.draw.choice(["0.1", "0.2", "0.3", "0.6", "1", "0", "2.5", "-0.3", "3", "0.05"])

    def column(self, scope: Scope, bounds: bool) -> str:
        name = self.draw.choice([name for name, kind in scope.items() if kind != "text"])
        return f"CLAMP({name}, -7, 7.5)" if bounds and scope[name] == UNBOUNDED else name

    def number(self, scope: Scope, depth: int, bounds: bool) -> str:
        """A numeric expression of one row."""
        if depth == 0 or self.draw.random() < 0.2:
            return self.column(scope, bounds)
        a, b = self.number(scope, depth - 1, bounds), self.number(scope, 0, bounds)
        forms = [
            f"({a} * {b})", f"({a} * {b})", f"({a} - {b})", f"({a} + {b})", f"({a} / {self.draw.choice(['3', '0.7'])})",
            f"SIGN({a})", f"TRUNC({a} * 2)", f"POWER({a}, 2)",
            f"({a} % 0.7)", f"(-{a})", f"ABS({a})", f"FLOOR({a} * 2)", f"CEIL({a})", f"ROUND({a}, 1)", f"ROUND({a})",
            f"LEAST({a}, {b})", f"GREATEST({a}, {b}, 0.1)", f"CLAMP({a}, -3, 4.5)", f"COALESCE({a}, {b}, 0.3)",
            f"NULLIF({a}, {self.literal()})", f"CASE WHEN {self.condition(scope)} THEN {a} ELSE {b} END",
        ]  # fmt: skip
        return self.draw.choice(forms)

    def condition(self, scope: Scope) -> str:
        """A condition on one row."""
        a, b, sign = self.column(scope, False), self.column(scope, False), self.draw.choice(["<", ">=", "=", "<>"])
        forms = [
            f"{a} {sign} {self.literal()}", f"{a} {sign} {b}", f"{a} BETWEEN -1 AND 0.3", f"{a} IN (0.1, 1, 0)",
            f"{a} IS NULL", f"{a} IS NOT NULL", f"NOT ({a} > 0.2)", f"({a} > 0 OR {b} > 0)", f"({a} > 0 AND {b} < 3)",
            f"({a} * {b}) > 0.06",
        ]  # fmt: skip
        words = [name for name, kind in scope.items() if kind == "text"]
        if words and self.draw.random() < 0.3:
            t = self.draw.choice(words)
            forms = [f"UPPER({t}) = 'OK'", f"LENGTH(TRIM({t})) < 3", f"STARTS_WITH(LOWER({t}), 'a')", f"{t} = 'p'",
                     f"CONCAT({t}, '!') <> 'q!'"]  # fmt: skip
        return self.draw.choice(forms)


def compile_some(seed: int, count: int) -> Iterator[QueryPlan]:
    """So many answered questions; at most as many again may be refused."""
    writer, refused = Writer(seed), 0
    while count:
        try:
            yield compile_query(writer.question(), SCHEMAS, PureDP(Fraction(1)))
            count -= 1
        except QueryRefused:
            refused += 1
            assert refused < 3 * (count + 20), "nearly every question is refused"


# -- comparing --------------------------------------------------------------------------------------------------------


def spell_rows(columns: list[str], rows: list[Row]) -> Counter[tuple[str, ...]]:
    """The multiset of rows; Python spells a float so that no two bit patterns but those of NaN look alike."""
    return Counter(tuple(repr(row[name]) for name in columns) for row in rows)


def check_rows(node: Measured, bag: Bag, engine: DuckDBEngine, text: str) -> None:
    found = engine.run(render.render_relation(node.input))
    columns = [*bag.types, UNIT]
    ours, theirs = spell_rows(columns, found.to_pylist()), spell_rows(columns, bag.rows)
    assert ours == theirs, (text, columns, list((ours - theirs).items())[:3], list((theirs - ours).items())[:3])


def check_totals(node: Measured, step: Step, bag: Bag, engine: DuckDBEngine, text: str) -> None:
    wanted = private_sql.select_additive(step.placed, False, step.joints)
    (row,) = engine.run(private_sql.render_step(node, step, 20_260_511) or "").to_pylist()
    rows, types = number_cells([row for row in bag.rows if row[UNIT] is not None], bag.types, step)
    expected = {
        name: add_up(measurement, rows, types) * parts_of(measurement, step.limits)
        for name, measurement in wanted.items()
    }
    assert row == expected, (text, row, expected)


def number_cells(rows: list[Row], types: dict[str, str], step: Step) -> tuple[list[Row], dict[str, str]]:
    """The rows with the numbers of their cells."""
    for level in (level for joint in step.joints for level in joint.block.cells.columns):
        made = {name: compile_expression(tree, types) for name, tree in level}
        rows = [row | {name: compute(row) for name, compute in made.items()} for row in rows]
        types = types | dict.fromkeys(made, "BIGINT")
    return rows, types


def add_up(measurement: Measurement, rows: list[Row], types: dict[str, str]) -> int:
    """A count, or a sum of whole steps, over all rows."""
    assert isinstance(measurement, Rows | Total | Part)

    def compute(tree: Expression) -> Callable[[Row], Any]:
        return compile_expression(tree, types)

    kept = rows if measurement.condition is None else [r for r in rows if compute(measurement.condition)(r) is True]
    if measurement.argument is None:
        return len(kept)
    argument = compute(measurement.argument)
    if isinstance(measurement, Part) and measurement.order < 0:
        return sum(measurement.reach for row in kept if argument(row) is None)
    values = [value for row in kept if (value := argument(row)) is not None]
    if isinstance(measurement, Rows):
        return len(values)
    if isinstance(measurement, Part):
        return sum(_compute_part(_count_steps(float(value), measurement), measurement) for value in values)
    return sum(_count_bounded_steps(float(value), measurement) for value in values)


def _compute_part(v: int, part: Part) -> int:
    up, down = (v - part.lower) ** part.order, (part.upper - v) ** (part.degree - part.order)
    return math.comb(part.degree, part.order) * up * down


def _count_bounded_steps(value: float, total: Total) -> int:
    steps = _count_steps(value, total) - total.center
    return steps**2 if total.squared else steps


def _count_steps(value: float, total: Total | Part) -> int:
    steps = value if total.step == 1 else round_half_away(value / float(total.step))
    return round(max(float(total.lower), min(float(total.upper), steps)))


def check_plan(plan: QueryPlan, tables: Tables, engines: list[DuckDBEngine]) -> None:
    """The rows and the totals of every noisy aggregate, in every engine."""
    for node in plan.nodes:
        bag = evaluate_relation(node.node.input, tables)
        for engine in engines:
            check_rows(node.node, bag, engine, plan.text)
            for step in node.steps:
                check_totals(node.node, step, bag, engine, plan.text)


def compare_many(seed: int, count: int, sizes: tuple[int, int, int], folder: Path) -> None:
    """Each question in one of the engines, in turn: the twin stands for all the others."""
    tables = draw_records(seed, *sizes)
    worlds = [open_world(tables, *world, folder) for world in WORLDS]
    try:
        for i, plan in enumerate(compile_some(seed, count)):
            check_plan(plan, tables, [worlds[i % len(worlds)]])
    finally:
        for world in worlds:
            world.close()


# -- tests ------------------------------------------------------------------------------------------------------------

SIZES = [(90, 60, 14), (50, 130, 12), (130, 40, 25)]
"""Rows of a, rows of b, people: the larger side of a join is now one, now the other."""


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(3))
def test_nested_questions_are_bit_for_bit_those_of_the_twin(seed: int, tmp_path: Path) -> None:
    compare_many(seed, 60, SIZES[seed % 3], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 150))
def test_thousands_of_nested_questions_are_bit_for_bit_those_of_the_twin(seed: int, tmp_path: Path) -> None:
    compare_many(seed, 100, SIZES[seed % 3], tmp_path)


NESTED = (
    "SELECT COUNT(*) FROM (SELECT a.u, SUM(x * y) AS s FROM a JOIN b ON a.u = b.u "
    "GROUP BY a.u HAVING SUM(x * y) > 0.6) q"
)
LARGE = [
    "SELECT COUNT(*), SUM(CLAMP(s, -5, 5)) FROM (SELECT u, SUM(x * y) AS s FROM a GROUP BY u HAVING AVG(x) > 0.3) q",
    "SELECT COUNT(*) FROM (SELECT a.u, SUM(x * z) AS s, AVG(y) AS m FROM a JOIN b ON a.u = b.u GROUP BY a.u) q "
    "WHERE s > 0.6 AND m < 0.5",
    "SELECT COUNT(*) FROM (SELECT u, k, SUM(CLAMP(r, -3, 3) / 7) AS s, COUNT(DISTINCT r) AS d FROM a GROUP BY u, k) q "
    "WHERE s > 0.1 AND d > 1",
]


def test_larger_tables_give_the_rows_of_the_twin(tmp_path: Path) -> None:
    tables = draw_records(3, 15_000, 12_000, 6_000)
    engines = [open_world(tables, form, threads, seed, tmp_path) for form, threads, seed in WORLDS[1:5:2]]
    for text in LARGE:
        check_plan(compile_query(text, SCHEMAS, PureDP(Fraction(1))), tables, engines)
    for engine in engines:
        engine.close()


SPILLED = (
    "SELECT COUNT(*) FROM (SELECT u, x, SUM(x * y) AS s, AVG(y) AS m FROM a GROUP BY u, x HAVING SUM(x * y) > 0.6) q"
)


def make_many_rows(count: int) -> pa.Table:
    draw = np.random.default_rng(1)
    rows = {
        "u": draw.integers(0, count // 4, count),
        "x": draw.choice(DECIMALS, count),
        "y": draw.choice(DECIMALS, count),
    }
    return pa.table({c.name: rows.get(c.name, pa.nulls(count, ARROW[c.type])) for c in A.columns})


@contextmanager
def watch_folder(folder: Path) -> Iterator[set[str]]:
    """The names of all files that are under a folder at any time."""
    seen: set[str] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.002):
            seen.update(name for _, _, names in os.walk(folder) for name in names)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        done.set()
        watcher.join()


def test_sums_that_are_spilled_to_disk_are_those_of_the_twin(tmp_path: Path) -> None:
    """The twin computes every 64th person; all others are compared with an engine that has memory enough."""
    rows, node = make_many_rows(1_000_000), compile_query(SPILLED, SCHEMAS, PureDP(Fraction(1))).nodes[0].node
    found = []
    for memory in ("32MB", "1GB"):
        with DuckDBEngine(threads=2, memory=memory, scratch=str(tmp_path)) as engine, watch_folder(tmp_path) as seen:
            engine.attach("a", rows, A)
            sql = render.render_relation(node.input)
            found.append(engine.run(f"SELECT * FROM ({sql}) AS t ORDER BY ALL"))
        assert any("storage" in name for name in seen) is (memory == "32MB")
    assert found[0].equals(found[1])
    some = rows.filter(pc.equal(pc.bit_wise_and(rows["u"], 63), 0)).to_pylist()
    bag = evaluate_relation(node.input, {"a": some})
    kept = found[0].filter(pc.equal(pc.bit_wise_and(found[0][UNIT], 63), 0)).to_pylist()
    columns = [*bag.types, UNIT]
    assert spell_rows(columns, kept) == spell_rows(columns, bag.rows)


@pytest.mark.parametrize("people", [2_000, 2_001])
def test_sizes_around_the_change_of_the_build_side_give_the_rows_of_the_twin(people: int, tmp_path: Path) -> None:
    tables = {"a": [], "b": [], "p": []} | make_products(people, 2_000)
    engine = open_world(tables, "frame", 2, 0, tmp_path)
    check_plan(compile_query(NESTED, SCHEMAS, PureDP(Fraction(1))), tables, [engine])
    engine.close()


# -- known cases ------------------------------------------------------------------------------------------------------


def make_products(of_a: int, of_b: int) -> Tables:
    """People whose three products are 0.1, 0.2 and 0.3: their sum is 0.6 exactly, and in floats it depends on order."""
    empty = {"k": None, "r": None, "n": None, "t": None, "c": None}
    orders = [(0.1, 0.2, 0.3), (0.3, 0.2, 0.1), (0.2, 0.3, 0.1)]
    rows = [{"u": u, "x": x, "y": 1.0, **empty} for u in range(of_a) for x in orders[u % 3]]
    return {"a": rows, "b": [{"u": u, "k": None, "z": 1.0, "w": None} for u in range(of_b)]}


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """No noise: what is left is the exact arithmetic."""
    for mechanism in (LaplaceMechanism, GaussianMechanism):
        monkeypatch.setattr(mechanism, "release", lambda self, values, entropy=None: values)


def answer(text: str, schemas: tuple[TableSchema, ...], **rows: pa.Table) -> Any:
    """The one number of a question without noise."""
    with DuckDBEngine(threads=2) as engine:
        for schema in schemas:
            engine.attach(schema.name, rows[schema.name], schema)
        plan = compile_query(text, schemas, ApproxDP(Fraction(9_000), Fraction(1, 100)))
        return execute(plan, engine, intervals=False).to_pylist()[0]


@pytest.mark.usefixtures("silence")
def test_one_more_person_on_the_larger_side_moves_a_count_by_one_at_most() -> None:
    counts = []
    for people in (1_999, 2_000, 2_001):
        tables = make_products(people, 2_000)
        rows = {schema.name: as_frame(schema, tables[schema.name]) for schema in (A, B)}
        counts.append(next(iter(answer(NESTED, (A, B), **rows).values())))
    assert all(abs(one - other) <= 1 for one, other in pairwise(counts)), counts
    assert counts == [0, 0, 0], "0.1 + 0.2 + 0.3 is not above 0.6"


VALUES = TableSchema("v", "", (Column("u", WHOLE), bounded("x", 0, 10, Fraction(1))), PrivacyUnit("u", 1, 100))
HALF_NAN = pa.table({"u": list(range(10)), "x": [float("nan")] * 5 + [1.0] * 5})


@pytest.mark.usefixtures("silence")
@pytest.mark.parametrize(
    "text",
    [
        "SELECT SUM(x) AS s FROM v",
        "SELECT SUM(CLAMP(s, 0, 100)) AS s FROM (SELECT u, SUM(x) AS s FROM v GROUP BY u) q",
        "SELECT SUM(CLAMP(s, 0, 100)) AS s FROM (SELECT u, SUM(x) AS s FROM v GROUP BY u HAVING SUM(x) > 0) q",
    ],
)
@pytest.mark.parametrize("one", [False, True])
def test_five_nan_and_five_ones_sum_to_five(text: str, one: bool) -> None:
    """Clamped as a number NaN would be the upper bound, and the sum 55."""
    rows = HALF_NAN.set_column(0, "u", pa.array([7] * 10)) if one else HALF_NAN
    assert answer(text, (VALUES,), v=rows) == {"s": 5}


def check_text(tables: Tables, folder: Path, *texts: str) -> Bag:
    """Questions beside the twin; what the twin gives for the last."""
    plans = [compile_query(text, SCHEMAS, PureDP(Fraction(1))) for text in texts]
    engine = open_world(tables, "frame", 2, 0, folder)
    for plan in plans:
        check_plan(plan, tables, [engine])
    engine.close()
    return evaluate_relation(plans[-1].nodes[0].node.input, tables)


def repeat_row(count: int, **values: Any) -> Tables:
    """One person with so many equal rows in the table a, alternating between two keys."""
    row = {"u": 1, "x": None, "y": None, "r": None, "n": None, "t": None, "c": None, **values}
    return {"a": [{**row, "k": i % 2} for i in range(count)], "b": [], "p": []}


def test_a_sum_of_sums_is_not_cut_where_one_of_them_is_large(tmp_path: Path) -> None:
    inner = "SELECT u, k, SUM(x) AS s FROM a GROUP BY u, k"
    text = f"SELECT COUNT(*) FROM (SELECT u, SUM(s) AS v FROM ({inner}) q GROUP BY u) p WHERE v > 300"
    bag = check_text(repeat_row(40, x=10.0), tmp_path, text)
    assert [row["p.v"] for row in bag.rows] == [400.0]


def test_a_sum_for_each_person_can_be_clamped_and_summed_again(tmp_path: Path) -> None:
    text = "SELECT SUM(CLAMP(s, 0, 1000)) FROM (SELECT u, SUM(CLAMP(r, 0, 10)) AS s FROM a GROUP BY u) q"
    check_text(repeat_row(40, r=10.0), tmp_path, text)


@pytest.mark.parametrize("rows", [9, 10, 1_000])
def test_an_average_on_a_fine_grid_fails_for_no_number_of_rows(rows: int, tmp_path: Path) -> None:
    fine = "AVG(CLAMP(r, 0, 0.000000000000001) * 0.000001)"
    text = f"SELECT COUNT(*) FROM (SELECT u, {fine} AS m FROM a GROUP BY u) q WHERE m > 0"
    assert len(check_text(repeat_row(rows, r=0.5), tmp_path, text).rows) == 1


def test_arithmetic_on_infinities_is_null_and_never_nan(tmp_path: Path) -> None:
    tables = repeat_row(4)
    for place, value in enumerate([float("inf"), float("-inf"), 1e300, 0.1]):
        tables["a"][place] |= {"u": place, "r": value}
    asked = ["r % 2", "r - r", "r * r - r * r", "r / r", "r * 0", "ABS(r - r) + 1"]
    rest = "FROM a GROUP BY u) q WHERE m IS NULL OR m < 10"
    check_text(tables, tmp_path, *(f"SELECT COUNT(*) FROM (SELECT u, MAX({each}) AS m {rest}" for each in asked))


def test_a_product_of_forty_unbounded_numbers_is_computed(tmp_path: Path) -> None:
    """Each factor is written once: written twice for each operator, the statement would double with every one."""
    text = f"SELECT COUNT(*) FROM a WHERE {' * '.join(['r'] * 40)} > 0.5"
    check_text(repeat_row(3, r=1.5), tmp_path, text)


@pytest.mark.parametrize("side", ["JOIN", "LEFT JOIN"])
def test_whoever_would_make_more_than_a_million_pairs_is_left_out(side: str, tmp_path: Path) -> None:
    tables = repeat_row(1_001, x=0.1)
    tables["a"] += [{**tables["a"][0], "u": other} for other in (2, 3, 3, None)]
    tables["b"] = [{"u": u, "k": 0, "z": 0.3, "w": None} for u in [1] * 1_000 + [2, 2, 3, None]]
    bag = check_text(tables, tmp_path, f"SELECT COUNT(*) FROM a {side} b ON a.u = b.u")
    assert Counter(row[UNIT] for row in bag.rows if row[UNIT] is not None) == {2: 2, 3: 2}


@pytest.mark.parametrize(
    "source",
    ["b JOIN a ON a.u = b.u", "a AS one JOIN a AS other ON one.u = other.u", "b AS one JOIN b AS other USING (u)",
     "b JOIN a ON a.u = b.u JOIN a AS other ON other.u = a.u"],
)  # fmt: skip
def test_tables_are_read_by_their_own_names_on_both_sides_of_a_join(source: str, tmp_path: Path) -> None:
    check_text(draw_records(2, 60, 40, 20), tmp_path, f"SELECT COUNT(*) FROM {source}")


# -- the tests can fail -----------------------------------------------------------------------------------------------


def add_as_floats(aggregate: ExactAggregate, condition: str) -> str:
    """The broken twin: floats are added in whatever order they come."""
    assert aggregate.argument is not None
    return f"{aggregate.summary}(CAST({render.render_expression(aggregate.argument)} AS DOUBLE)){condition}"


def test_sums_of_floats_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "_render_sum_of_steps", add_as_floats)
    with pytest.raises(AssertionError):
        compare_many(0, 50, SIZES[0], tmp_path)


@pytest.mark.usefixtures("silence")
def test_sums_of_floats_move_the_count_of_the_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "_render_sum_of_steps", add_as_floats)
    with pytest.raises(AssertionError):
        test_one_more_person_on_the_larger_side_moves_a_count_by_one_at_most()


def test_the_questions_are_as_varied_as_they_should_be() -> None:
    """The comparison would be empty if no question were nested or joined."""
    plans = list(compile_some(0, 60))
    depths = Counter(max(_count_levels(node.input) for node in find_noisy_nodes(plan.relation)) for plan in plans)
    assert set(depths) >= {1, 2, 3}
    for word in (
        " JOIN b",
        " JOIN a",
        " JOIN (",
        "LEFT JOIN",
        " JOIN p",
        "UNION ALL",
        "HAVING",
        "COUNT(DISTINCT",
        "AVG(",
        "FILTER",
    ):
        assert any(word in plan.text for plan in plans), word


def _count_levels(relation: Relation) -> int:
    below = max((_count_levels(side) for side in inputs_of(relation)), default=0)
    return below + isinstance(relation, PerUnit)


def test_every_summary_of_the_algebra_is_asked() -> None:
    asked: set[Summary] = set()

    def collect(relation: Relation) -> None:
        if isinstance(relation, PerUnit):
            asked.update(aggregate.summary for _, aggregate in relation.aggregates)
        for side in inputs_of(relation):
            collect(side)

    for plan in compile_some(1, 60):
        collect(plan.relation)
    assert asked == set(Summary)


@pytest.mark.parametrize("written", ["nan", "NaN", "-nan", ""])
def test_a_number_that_is_none_is_null_in_a_csv_file_too(tmp_path: Path, written: str) -> None:
    from deniable import Curator
    from deniable.policy.document import parse

    (tmp_path / "t.csv").write_text(f"u,x\n1,5\n2,{written}\n3,7\n", encoding="utf-8")
    policy = parse(
        f"""
version: 1
dataset: d
tables:
  t:
    source: {tmp_path / "t.csv"}
    unit: {{column: u, max_groups: 1, max_rows_per_group: 1}}
    columns: {{u: {{type: integer}}, x: {{type: decimal, between: [0, 10], step: 1}}}}
budgets: {{dataset: {{epsilon: 30000}}}}
"""
    )
    with Curator(policy) as curator:
        found = curator.query("SELECT SUM(x) AS s, COUNT(x) AS n FROM t", epsilon=9999).to_pylist()[0]
    assert (found["s"], found["n"]) == (12, 2)
