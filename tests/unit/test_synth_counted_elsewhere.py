"""Tables of counts that an engine makes of rows are those that Python makes, and models of both are one."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest

from deniable.engines.duckdb import DuckDBEngine
from deniable.policy.budget import ApproxDP
from deniable.policy.schema import Bounds, Column, ColumnType, PrivacyUnit, Spec, TableSchema
from deniable.synth.describe import can_count_elsewhere, describe_table, encode_table
from deniable.synth.domain import Bins, Labels, ShapedText, attributes_of, build_domain, equal_cuts
from deniable.synth.encode import RowsElsewhere, find_steps, find_thresholds
from deniable.synth.marginal import count_all
from deniable.synth.methods import METHODS
from deniable.synth.model import to_plain
from seeded import SeededEntropy

ATTRIBUTES = (
    Labels("word", ColumnType.TEXT, ("a", "b'c", "Ü"), True),
    Labels("yes", ColumnType.BOOLEAN, (False, True), False),
    Labels("grade", ColumnType.INTEGER, (3, 1, -2), False),
    Bins("whole", ColumnType.INTEGER, Fraction(-3), Fraction(2), equal_cuts(300, 256), True),
    Bins("number", ColumnType.DECIMAL, Fraction(-1, 10), Fraction(1, 10), equal_cuts(70, 70), False),
    Bins("day", ColumnType.DATE, Fraction(-100), Fraction(7), equal_cuts(40, 40), True),
    Bins("moment", ColumnType.DATETIME, Fraction(-1000), Fraction(60), equal_cuts(400, 256), True),
)
ODD = (0.05, 0.15, -0.05, 0.25, float("inf"), -float("inf"), -0.0)


def some_rows(count: int = 1_500, seed: int = 1) -> pa.Table:
    """Rows with values at the edges of bins, outside of them, and missing."""
    drawn = random.Random(seed)

    def column(make: object, kind: pa.DataType) -> pa.Array:
        return pa.array([None if drawn.random() < 0.05 else make() for _ in range(count)], kind)  # type: ignore[operator]

    start = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
    moments = lambda: start + timedelta(microseconds=drawn.randint(-2 * 10**9, 30 * 10**9))  # noqa: E731
    return pa.table({
        "word": column(lambda: drawn.choice(("a", "b'c", "Ü", "z", "A")), pa.string()),
        "yes": column(lambda: drawn.random() < 0.5, pa.bool_()),
        "grade": column(lambda: drawn.choice((3, 1, -2, 9)), pa.int64()),
        "whole": column(lambda: drawn.choice((drawn.randint(-10, 700), -(2**63), 2**63 - 1)), pa.int64()),
        "number": column(lambda: drawn.choice((drawn.uniform(-1, 8), *ODD)), pa.float64()),
        "day": column(lambda: date.fromordinal(719_163 + drawn.randint(-150, 250)), pa.date32()),
        "moment": column(moments, pa.timestamp("us")),
    })  # fmt: skip


def test_tables_of_counts_are_those_of_the_codes() -> None:
    rows, domain = some_rows(), build_domain(ATTRIBUTES)
    cliques = [clique for size in (1, 2, 3) for clique in combinations(range(len(domain)), size)][:40]
    maps = [[code // 2 for code in range(size)] for size in domain.sizes]
    coarse = domain.resize(tuple(max(mapping) + 1 for mapping in maps))
    codes = encode_table(rows, ATTRIBUTES)
    joined = np.stack([np.array(mapping, np.int32)[column] for mapping, column in zip(maps, codes, strict=True)])
    with DuckDBEngine(threads=1) as engine:
        engine.attach("rows", rows)
        there = RowsElsewhere('SELECT * FROM "rows"', engine.run).encode(ATTRIBUTES)
        for exact, found in zip(count_all(codes, domain, cliques), count_all(there, domain, cliques), strict=True):
            assert (exact == found).all()
            assert exact.sum() == rows.num_rows
        found = count_all(there.replace_codes(maps), coarse, cliques)
    for exact, other in zip(count_all(joined, coarse, cliques), found, strict=True):
        assert (exact == other).all()


@pytest.mark.parametrize("attribute", [each for each in ATTRIBUTES if isinstance(each, Bins)], ids=lambda a: a.name)
def test_the_least_value_of_each_step_is_found_for_every_type(attribute: Bins) -> None:
    steps = list(range(1, attribute.steps))
    least = find_thresholds(attribute, steps)
    kinds = {ColumnType.INTEGER: pa.int64(), ColumnType.DECIMAL: pa.float64(), ColumnType.DATE: pa.date32()}
    kind = kinds.get(attribute.type, pa.timestamp("us"))
    assert find_steps(attribute, pa.array(least, kind))[0].tolist() == steps
    before = {
        ColumnType.INTEGER: lambda value: value - 1,
        ColumnType.DECIMAL: lambda value: float(np.nextafter(value, -np.inf)),
        ColumnType.DATE: lambda value: value - timedelta(days=1),
        ColumnType.DATETIME: lambda value: value - timedelta(microseconds=1),
    }[attribute.type]
    assert find_steps(attribute, pa.array(map(before, least), kind))[0].tolist() == [step - 1 for step in steps]


def test_a_step_that_no_value_reaches_has_no_least_value() -> None:
    beyond = Bins("whole", ColumnType.INTEGER, Fraction(2**62), Fraction(2**61), equal_cuts(9, 9), False)
    assert find_thresholds(beyond, [1, 8]) == [2**62 + 2**60, None]


COLUMNS = (
    Column("sex", categories=("F", "M")),
    Column("area", categories=("n1", "n2", "s1", "s2"), hierarchy=Spec("order", {"sizes": [2]})),
    Column("age", ColumnType.INTEGER, bounds=Bounds(0, 90)),
    Column("pay", ColumnType.INTEGER, bounds=Bounds(0, 100_000)),
    Column("ill", ColumnType.BOOLEAN),
)
TABLE = TableSchema("people", "people.csv", COLUMNS, PrivacyUnit())


@pytest.mark.parametrize("method", sorted(METHODS))
def test_a_model_is_the_same_whether_rows_are_here_or_are_counted_elsewhere(method: str) -> None:
    drawn = random.Random(3)
    sexes = [drawn.choice("FM") for _ in range(3_000)]
    rows = pa.table({
        "sex": sexes,
        "area": [drawn.choice(("n1", "n2", "s1") if sex == "F" else ("n1", "s2")) for sex in sexes],
        "age": [drawn.randint(0, 90) for _ in sexes],
        "pay": [drawn.choice((1_000, 25_000, drawn.randint(0, 100_000))) * (1 + (sex == "F")) // 2 for sex in sexes],
        "ill": [drawn.random() < (0.8 if sex == "F" else 0.2) for sex in sexes],
    })  # fmt: skip
    asked = {"workload": (("sex", "age", "ill"),)} if method in ("auto", "mwem") else {}
    statements: list[str] = []
    with DuckDBEngine(threads=1) as engine:
        engine.attach("people", rows)
        there = RowsElsewhere('SELECT * FROM "people"', lambda sql: (statements.append(sql), engine.run(sql))[1])
        models = [
            to_plain(describe_table(each, TABLE, ApproxDP(3, 1e-6), method, entropy=SeededEntropy(7), **asked))
            for each in (rows, there)
        ]
    assert models[0] == models[1]
    assert bool(statements) is not METHODS[method].free
    assert all("GROUPING SETS" in statement for statement in statements)


def test_texts_without_declared_values_are_not_counted_elsewhere() -> None:
    assert can_count_elsewhere(TABLE, None)
    noted = TableSchema("people", "people.csv", (*COLUMNS, Column("note")), PrivacyUnit())
    assert isinstance(attributes_of(noted)[-1], ShapedText)
    assert not can_count_elsewhere(noted, None)
    assert can_count_elsewhere(noted, ("sex", "age"))
