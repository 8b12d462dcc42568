"""Keys as codes: undeclared and missing keys are dropped before they can use up a unit's groups."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pyarrow as pa
import pytest

from deniable.engines import Engine
from deniable.policy.budget import PureDP
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, TableSchema
from deniable.query.compile import compile_query
from deniable.query.sql import private_sql

KEYS = ("a", "b", "it's")
ROWS = [(1, "a", 3), (1, "x", 9), (1, None, 9), (2, "b", 5), (2, "b", 6), (2, "y", 1), (3, "it's", 2), (None, "a", 4)]


def _statement(sql: str, unit: PrivacyUnit) -> tuple[TableSchema, str, list[int], bool]:
    columns = (
        Column("id", ColumnType.INTEGER),
        Column("k", categories=KEYS),
        Column("v", ColumnType.INTEGER, bounds=Bounds(0, 10)),
    )
    table = TableSchema("t", "t.parquet", columns, unit)
    each = (Fraction(1),) * (sql.count("COUNT(") + sql.count("SUM("))  # measured one by one
    node = compile_query(sql, (table,), PureDP(1), weights=each).nodes[0]
    step = node.steps[0]
    wanted = private_sql.select_additive(step.placed, False)
    text = private_sql.render_totals(node.node, step.places, wanted, step.limits, step.keys, 7)
    parts = [placed.sensitivity.parts for placed in step.placed]
    return table, text, parts, bool(private_sql.find_codable(node.node, step.places, step.keys))


def _run(engine: Engine, sql: str, unit: PrivacyUnit) -> dict[str, tuple[int, int]]:
    table, text, parts, coded = _statement(sql, unit)
    assert coded
    ids, keys, values = zip(*ROWS, strict=True)
    engine.attach("t", pa.table({"id": ids, "k": keys, "v": values}), table)
    rows = engine.run(text).to_pylist()
    assert all(row["m1"] % parts[1] == 0 for row in rows if unit.max_rows_per_group != 1)
    return {row["k0"]: (row["m0"], row["m1"] // parts[1]) for row in rows}


@pytest.mark.parametrize("unit", [PrivacyUnit(), PrivacyUnit("id", 3, 5)], ids=["row", "id"])
def test_undeclared_keys_are_left_out_and_every_declared_key_appears(engine: Engine, unit: PrivacyUnit) -> None:
    found = _run(engine, "SELECT k, COUNT(*), SUM(v) FROM t GROUP BY k", unit)
    rows, total = Counter[str](), Counter[str]()
    for who, key, value in ROWS:
        if key in KEYS and (who is not None or unit.is_row):
            rows[key] += 1
            total[key] += value
    assert found == {key: (rows[key], total[key]) for key in KEYS}


def test_an_undeclared_key_does_not_use_up_a_group_of_its_unit(engine: Engine) -> None:
    found = _run(engine, "SELECT k, COUNT(*), SUM(v) FROM t GROUP BY k", PrivacyUnit("id", 1, 1))
    assert {key: rows for key, (rows, _) in found.items()} == {"a": 1, "b": 1, "it's": 1}


def test_where_sees_the_same_rows_with_codes(engine: Engine) -> None:
    found = _run(
        engine, "SELECT k, COUNT(*), SUM(v) FROM t WHERE k <> 'a' AND v < 6 GROUP BY k", PrivacyUnit("id", 2, 2)
    )
    assert found == {"b": (1, 5), "it's": (1, 2)}


@pytest.mark.parametrize("sql", ["SELECT k = 'a', COUNT(*) FROM t GROUP BY 1", "SELECT v, COUNT(*) FROM t GROUP BY v"])
def test_computed_and_numeric_keys_are_not_coded(sql: str) -> None:
    assert not _statement(sql, PrivacyUnit("id", 1, 1))[-1]
