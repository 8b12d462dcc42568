"""Quantiles beside OpenDP at the same epsilon, several of them beside a split budget, and their CPU in many groups.

`bench/query.py` runs it. Each shape is drawn many times, and answers of both sides are compared on the same tables:
which ties happen to lie beside the median of one table says little about the next. The error is one of rank: how many
values too many are on one side of an answer. Means are shown with their standard errors over the tables.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np
from _query_accuracy import peer
from _query_tables import bar, best, schema, shown
from numpy.typing import NDArray

from deniable.dp.mechanisms import QuantileMechanism
from deniable.engines.duckdb import DuckDBEngine
from deniable.policy.budget import PureDP
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, TableSchema
from deniable.query.compile import compile_query
from deniable.query.execute import execute

ROWS, DRAWS, HIGHEST = 500, 100, 1000
SHAPES = {
    "skewed": "least(1000, floor(exp(hash(i) % 690 / 100.0)))::BIGINT",
    "even": "(hash(i) % 1001)::BIGINT",
    "bell": "((hash(i) % 301 + hash(i + 1000000) % 301 + hash(i + 2000000) % 301) + 50)::BIGINT",
    "two hills": "(200 + 600 * (i % 2) + hash(i) % 80)::BIGINT",
    "heaped": "(50 * (hash(i) % 21))::BIGINT",
    "many zeros": "(CASE WHEN hash(i + 1000000) % 10 < 4 THEN 0 ELSE hash(i) % 1001 END)::BIGINT",
}
ASKED = {"median": ("1/2",), "quartiles": ("1/4", "1/2", "3/4"), "deciles": tuple(f"{i}/10" for i in range(1, 10))}
ANSWERS = {"median": 100, "quartiles": 4, "deciles": 2}
"""From each side, for each table."""
NOTHING = 0.01
"""An error in rank that is none."""

OPENDP = """
import json, sys, warnings
warnings.simplefilter("ignore")
from fractions import Fraction
import polars as pl
import opendp.prelude as dp
dp.enable_features("contrib")
folder, asked, answers = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
space = dp.vector_domain(dp.atom_domain(T="i64")), dp.symmetric_distance()
candidates, pure, out = list(range(1001)), dp.max_divergence(), {}
for name, quantiles in asked.items():
    # The mechanism behind dp.quantile, made once: a Polars query takes seconds to be made, whatever the table.
    made = [
        dp.binary_search_chain(
            lambda scale: dp.m.make_private_quantile(*space, pure, candidates, float(Fraction(q)), scale),
            1, 1.0 / len(quantiles))
        for q in quantiles
    ]
    out[name] = {}
    for shape in json.loads(sys.argv[4]):
        tables = pl.read_parquet(f"{folder}/{shape}.parquet").group_by("draw").agg("v").sort("draw")["v"].to_list()
        out[name][shape] = [[[m(v) for m in made] for _ in range(answers[name])] for v in tables]
print(json.dumps([out]))
"""

Numbers = NDArray[np.int64]


def quantiles(plain: duckdb.DuckDBPyConnection, folder: Path, opendp: Path | None) -> None:
    """Rank errors at epsilon 1 in all, unit = row: ours, ours with a budget that is split, and OpenDP's (split too)."""
    tables = {shape: _drawn(plain, folder, shape) for shape in SHAPES}
    theirs: dict[str, dict[str, list[list[list[int]]]]] = {}
    if opendp is not None:
        told = (json.dumps(ASKED), json.dumps(ANSWERS), json.dumps(list(SHAPES)))
        (theirs,) = peer(opendp, OPENDP, str(folder), *told)  # type: ignore[assignment]
    for name in ASKED:
        for shape, drawn in tables.items():
            other = np.array(theirs[name][shape]) if theirs else None
            _compare(name, shape, drawn, other)


def _drawn(plain: duckdb.DuckDBPyConnection, folder: Path, shape: str) -> list[Numbers]:
    """The tables of one shape, also as a file for the peer."""
    rows = f"SELECT range // {ROWS} AS draw, range AS i FROM range({ROWS * DRAWS})"
    plain.execute(f"COPY (SELECT draw, {SHAPES[shape]} AS v FROM ({rows})) TO '{folder}/{shape}.parquet'")
    found = plain.sql(f"SELECT v FROM '{folder}/{shape}.parquet' ORDER BY draw, v").fetchnumpy()["v"]
    return list(found.reshape(DRAWS, ROWS))


def _compare(name: str, shape: str, tables: list[Numbers], theirs: Numbers | None) -> None:
    asked, times = ASKED[name], ANSWERS[name]
    ours = np.array([_errors(v, _ours(name, v, times), asked) for v in tables])
    line, others = f"{name} of {ROWS} rows, {shape}: mean rank error ours {_told(ours)}", {}
    if len(asked) > 1:
        others["split epsilon"] = np.array([_errors(v, _split(asked, v, times), asked) for v in tables])
    if theirs is not None:
        others["OpenDP"] = np.array([_errors(v, found, asked) for v, found in zip(tables, theirs, strict=True)])
    print(", ".join([line, *(f"{other} {_told(found)}" for other, found in others.items())]), flush=True)
    for other, found in others.items():
        _beyond_chance(f"{name} beside {other}, {shape}", ours, found)


def _told(errors: NDArray[np.float64]) -> str:
    return f"{errors.mean():.3f} +- {errors.std() / np.sqrt(errors.size):.3f}"


def _beyond_chance(name: str, ours: NDArray[np.float64], others: NDArray[np.float64]) -> None:
    """Better by more than three standard errors; where neither side errs there is nothing to be better at."""
    if max(ours.mean(), others.mean()) < NOTHING:
        bar(f"our rank error of {name}: neither errs", float(ours.mean()), NOTHING)
        return
    differences = ours - others
    error = float(differences.std() / np.sqrt(differences.size))
    bar(f"our rank error of {name}, difference in standard errors", float(differences.mean()) / error, -3.0)


def _ours(name: str, values: Numbers, times: int) -> Numbers:
    """Answers from the mechanism of a question; here all at once, as groups."""
    listed = ", ".join(str(float(Fraction(q))) for q in ASKED[name])
    plan = compile_query(
        f"SELECT QUANTILE(v, [{listed}]) FROM small", (schema(PrivacyUnit(), "small", HIGHEST),), PureDP(1)
    )
    (placed,) = plan.nodes[0].steps[0].placed
    assert isinstance(placed.mechanism, QuantileMechanism)
    return _released(placed.mechanism, values, times)


def _split(asked: tuple[str, ...], values: Numbers, times: int) -> Numbers:
    """Each quantile by itself, with its share of epsilon."""
    share = PureDP(Fraction(1, len(asked)))
    made = [QuantileMechanism.within(share, (q,), 0, HIGHEST) for q in asked]
    return np.concatenate([_released(each, values, times) for each in made], axis=1)


def _released(mechanism: QuantileMechanism, values: Numbers, times: int) -> Numbers:
    distinct, counts = np.unique(values, return_counts=True)
    group = np.repeat(np.arange(times), distinct.size)
    return mechanism.release_groups(np.tile(distinct, times), np.tile(counts, times), group, times)


def _errors(values: Numbers, answers: Numbers, asked: tuple[str, ...]) -> float:
    """The mean error in rank over the answers and quantiles of one table."""
    targets = np.array([float(Fraction(q)) for q in asked]) * values.size
    below = np.searchsorted(values, answers, "left")
    above = values.size - np.searchsorted(values, answers, "right")
    found = np.maximum(np.maximum(below - targets, above - (values.size - targets)), 0)
    return float(found.mean())


def many_medians(plain: duckdb.DuckDBPyConnection) -> None:
    """The median of 10,000 groups among 101 integers, and of 100 groups among a million."""
    for groups, highest, limit in ((10_000, 100, 3), (100, 10**6, 1)):
        taken = best(_question(plain, groups, highest, "MEDIAN(v)"), 3)
        print(f"MEDIAN of {groups:,} groups among {highest + 1:,} integers, 500,000 rows: {shown(taken)}")
        bar(f"medians of {groups:,} groups among {highest + 1:,} integers, CPU s", taken[0], limit)
        taken = best(_question(plain, groups, highest, "QUANTILE(v, [0.25, 0.5, 0.75])"), 3)
        print(f"    their quartiles together: {shown(taken)}")


def _question(plain: duckdb.DuckDBPyConnection, groups: int, highest: int, aggregate: str) -> Callable[[], object]:
    keys = plain.sql(f"SELECT range AS id FROM range({groups})").to_arrow_table()
    value = f"(hash(range + 1) % {highest + 1})::BIGINT"
    sql = f"SELECT (hash(range) % {groups})::BIGINT AS id, {value} AS v FROM range(500000)"
    listed = TableSchema("keys", "", (Column("id", ColumnType.INTEGER),), public=True)
    columns = (Column("id", ColumnType.INTEGER), Column("v", ColumnType.INTEGER, bounds=Bounds(0, highest)))
    private = TableSchema("facts", "", columns, PrivacyUnit())
    asked = f"SELECT keys.id, {aggregate} FROM facts JOIN keys ON facts.id = keys.id GROUP BY keys.id"
    engine = DuckDBEngine()
    engine.attach("keys", keys, listed)
    engine.attach("facts", plain.sql(sql).to_arrow_table(), private)
    plan = compile_query(asked, (listed, private), PureDP(1))
    return lambda: execute(plan, engine)
