"""Where the compiler meets files and frames: forms of ids, times and numbers, texts and patterns, odd arguments."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deniable import Curator, col, count
from deniable.errors import DataError, DeniableError, ParameterError, QueryRefused
from deniable.policy.document import parse

UNIT = "unit: {column: id, max_groups: 1, max_rows_per_group: 1}"
MANY = 1000


def policy_of(columns: str, *tables: str, more: str = "") -> str:
    told = "".join(f"  {name}: {{source: {name}.parquet, {UNIT}, columns: {{{columns}}}}}\n" for name in tables)
    return f"version: 1\ndataset: d\ntables:\n{told}budgets: {{dataset: {{epsilon: 100000}}}}\n{more}"


def open_frames(columns: str, **frames: Any) -> Curator:
    return Curator(parse(policy_of(columns, *frames)), sources=frames)


@pytest.mark.parametrize("kind", ["decimal", "datetime"])
@pytest.mark.parametrize(
    "question",
    [
        "SELECT COUNT(*) FROM l JOIN r ON l.id = r.id",
        "SELECT COUNT(*) FROM (SELECT id FROM l UNION ALL SELECT id FROM r) q",
        "SELECT COUNT(*) FROM (SELECT a.id FROM l a JOIN l b ON a.id = b.id) x JOIN r ON x.id = r.id",
    ],
)
def test_ids_that_files_hold_in_several_forms_are_not_compared_between_tables(kind: str, question: str) -> None:
    """As DOUBLE a thousand ids of twenty digits are one: a person moved a count by 1,000 at a price of 1."""
    frame = pa.table(
        {"id": pa.array([1, 2], pa.int64()).cast(pa.float64() if kind == "decimal" else pa.timestamp("us"))}
    )
    with open_frames(f"id: {{type: {kind}}}", l=frame, r=frame) as curator:
        with pytest.raises(QueryRefused, match=f"ids of the type '{kind}', which cannot be compared exactly"):
            curator.explain(question, epsilon=1)
        curator.explain("SELECT COUNT(*) FROM l a JOIN l b ON a.id = b.id", epsilon=1)


def test_long_ids_of_a_decimal_file_and_a_text_file_never_meet(tmp_path: Path) -> None:
    ids = [Decimal(10**20 + n) for n in range(MANY)]
    pq.write_table(pa.table({"id": pa.array(ids, pa.decimal128(22, 0))}), tmp_path / "l.parquet")
    (tmp_path / "r.csv").write_text(f"id\n{10**20}\n")
    text = policy_of("id: {type: decimal}", "l", "r").replace("r.parquet", "r.csv")
    with (
        Curator(parse(text, folder=tmp_path)) as curator,
        pytest.raises(QueryRefused, match="cannot be compared exactly"),
    ):
        curator.query("SELECT COUNT(*) FROM l JOIN r ON l.id = r.id", epsilon=500)


def test_bounds_of_products_of_products_stay_short() -> None:
    """Compiling never ended: each level multiplied the digits of the bounds by 150."""
    product, inner = "*".join(["x"] * 150), "SELECT id, x FROM v"
    for level in range(3):
        inner = f"SELECT id, {product} AS x FROM ({inner}) AS q{level}"
    frame = pa.table({"id": [1, 2], "x": [1.0, 2.0]})
    with open_frames("id: {type: integer}, x: {type: decimal, between: [0, 100], step: 0.01}", v=frame) as curator:
        curator.explain(f"SELECT COUNT(*) FROM ({inner}) z WHERE x > 1", epsilon=1)
        with pytest.raises(QueryRefused, match="bounds"):
            curator.explain(f"SELECT SUM(x) FROM ({inner}) z", epsilon=1)


@pytest.mark.parametrize("operator", ["LIKE", "ILIKE"])
def test_a_pattern_with_any_character_counts_as_often_as_it_is_compared(operator: str) -> None:
    frame = pa.table({"id": [1], "x": ["a"]})
    with open_frames("id: {type: integer}, x: {}", v=frame) as curator:
        long = "a" * 240
        curator.explain(f"SELECT COUNT(*) FROM v WHERE x LIKE '%{long}%'", epsilon=1)
        with pytest.raises(QueryRefused, match="steps of work"):
            curator.explain(f"SELECT COUNT(*) FROM v WHERE x {operator} '%{long}_b'", epsilon=1)
        curator.explain(f"SELECT COUNT(*) FROM v WHERE x {operator} '%a_b%'", epsilon=1)


@pytest.mark.parametrize("argument", ["NULL", "CAST(NULL AS INTEGER)", "x + NULL", "5"])
def test_bounds_of_what_is_always_missing_are_found_to_be_none(argument: str) -> None:
    with open_frames(
        "id: {type: integer}, x: {type: integer, between: [0, 9]}", v=pa.table({"id": [1], "x": [2]})
    ) as c:
        assert c.query(f"SELECT SUM(AUTO_CLAMP({argument})) AS s FROM v", epsilon=10).rows.num_rows == 1


def times(unit: str, *texts: str) -> pd.Series[Any]:
    return pd.Series(np.array(texts, dtype=f"datetime64[{unit}]")).dt.tz_localize("UTC")


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_of_a_zone_are_read_in_every_precision(unit: str) -> None:
    frame = pd.DataFrame({"id": range(3), "x": times(unit, "2021-01-01", "2022-01-01", "2019-06-01")})
    with open_frames("id: {type: integer}, x: {type: datetime}", v=frame) as curator:
        asked = "SELECT COUNT(*) AS n FROM v WHERE x > TIMESTAMP '2020-01-01 00:00:00'"
        assert curator.query(asked, epsilon=500).to_pylist()[0]["n"] == 2


def test_a_time_beyond_what_engines_hold_is_refused_when_the_frame_is_attached() -> None:
    frame = pd.DataFrame({"id": range(2), "x": times("s", "2021-01-01", "300000-01-01")})
    with (
        open_frames("id: {type: integer}, x: {type: datetime}", v=frame) as curator,
        pytest.raises(DataError, match="beyond the year 294247"),
    ):
        curator.query("SELECT COUNT(x) FROM v", epsilon=1)


def test_half_precision_numbers_of_a_frame_are_read() -> None:
    frame = pd.DataFrame({"id": range(4), "x": np.array([1, 2, 3, 4], dtype=np.float16)})
    with open_frames("id: {type: integer}, x: {type: decimal, between: [0, 9], step: 1}", v=frame) as curator:
        assert round(curator.query("SELECT SUM(x) AS s FROM v", epsilon=500).to_pylist()[0]["s"]) == 10


def test_odd_arguments_are_refused_in_words() -> None:
    text = policy_of("id: {type: integer}, x: {categories: [a, b]}", "v")
    text = text.replace("budgets:", "  pub: {source: pub.csv, public: true}\nbudgets:")
    frame = pa.table({"id": [1], "x": ["a"]})
    with Curator(parse(text), sources={"v": frame, "pub": pa.table({"x": ["a"]})}) as curator:
        with pytest.raises(ParameterError, match="public table"):
            curator.top("pub", ["x"], 2, epsilon=1)
        for odd in ([1], None, b"SELECT 1", 7):
            with pytest.raises(ParameterError, match="It is a text"):
                curator.query(odd, epsilon=1)  # type: ignore[arg-type]
        for keys in (None, 5, [1]):
            with pytest.raises(DeniableError):
                curator.top("v", keys, 2, epsilon=1)  # type: ignore[arg-type]
        for column in (None, 3):
            with pytest.raises(DeniableError):
                curator.find_bounds("v", column, epsilon=1)  # type: ignore[arg-type]
            with pytest.raises(DeniableError):
                curator.find_bounds(column, "x", epsilon=1)  # type: ignore[arg-type]


def test_an_epoch_whose_copy_cannot_be_read_does_not_begin(tmp_path: Path) -> None:
    (tmp_path / "v.csv").write_text("id,x\n" + "".join(f"{n},{n % 9}\n" for n in range(30)))
    text = policy_of("id: {type: integer}, x: {type: integer, between: [0, 9]}", "v", more="epochs: {copies: kept}\n")
    (tmp_path / "policy.yaml").write_text(text.replace("v.parquet", "v.csv"))
    with Curator.open(tmp_path / "policy.yaml") as curator:
        first = curator.epoch
        (tmp_path / "v.csv").write_text("id,x\n1,oops\n")
        with pytest.raises(DataError, match="not of the declared type"):
            curator.new_epoch("a load")
        assert curator.epoch == first
        (tmp_path / "v.csv").write_text("id,x\n1,1\n")
        curator.new_epoch("mended")
        assert curator.epoch != first


def test_an_epoch_whose_copy_is_damaged_does_not_begin(tmp_path: Path) -> None:
    """A text that is no text made every question fail that reads its column, after it was charged."""
    good = pa.table({"id": [1, 2], "x": ["a", "b"]})
    pq.write_table(good, tmp_path / "v.parquet")
    text = policy_of("id: {type: integer}, x: {}", "v", more="epochs: {copies: kept}\n")
    (tmp_path / "policy.yaml").write_text(text)
    with Curator.open(tmp_path / "policy.yaml") as curator:
        first = curator.epoch
        broken = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff\xfe"], pa.binary()).buffers())
        pq.write_table(pa.table({"id": [1, 2], "x": broken}), tmp_path / "v.parquet")
        with pytest.raises(DeniableError):
            curator.new_epoch("a load")
        assert curator.epoch == first


def test_names_with_dots_can_be_asked_in_sql_and_by_methods() -> None:
    frame = pa.table({"id": range(200), "a.b": [n % 50 for n in range(200)], "k": ["p", "q"] * 100})
    given: dict[str, Any] = {"bounds": {"a.b": (0, 50)}, "categories": {"k": ["p", "q"]}, "name": "my.table"}
    with Curator.from_frame(frame, "id", 1e5, **given) as curator:
        asked = [
            'SELECT COUNT(*) AS n FROM "my.table" WHERE "a.b" > 3',
            'SELECT COUNT(*) AS n FROM my.table WHERE my.table."a.b" > 3',
            "SELECT COUNT(*) AS n FROM \"my.table\" AS t WHERE t.\"a.b\" > 3 AND t.k IN ('p', 'q')",
            'SELECT COUNT(*) AS n FROM "my.table" WHERE "my.table"."a.b" > 3',
            curator.table("my.table").filter(col("a.b") > 3).agg(count(name="n")).sql,
        ]
        assert [curator.query(each, epsilon=500).rows["n"].to_pylist() for each in asked] == [[184]] * 5
        with pytest.raises(QueryRefused, match=r"no column 'a\.c'"):
            curator.explain('SELECT COUNT(*) FROM "my.table" WHERE a.c > 3', epsilon=1)
        with pytest.raises(QueryRefused, match=r"no table 'my\.tables'"):
            curator.explain("SELECT COUNT(*) FROM my.tables", epsilon=1)


@pytest.mark.parametrize(
    "condition",
    ["n = CAST('9007199254740993' AS BIGINT)", "CAST(n AS BIGINT) = 9007199254740993",
     "n = CAST(9007199254740993 AS BIGINT)", "n = 9007199254740993"],
)  # fmt: skip
def test_whole_numbers_beyond_those_of_a_double_are_compared_as_they_are(condition: str) -> None:
    frame = pa.table({"id": range(300), "n": [2**53 + 1 + place % 3 for place in range(300)]})
    with Curator.from_frame(frame, "id", 1e5, bounds={"n": (0, 2**62)}, name="t") as curator:
        answer = curator.query(f"SELECT COUNT(*) AS n FROM t WHERE {condition}", epsilon=500)
        assert answer.rows["n"].to_pylist() == [100]


@pytest.mark.parametrize(
    "condition",
    ["n = -9223372036854775808", "n <= -9223372036854775808", "n IN (-9223372036854775808, 5)",
     "n BETWEEN -9223372036854775808 AND -9223372036854775807", "NOT n > -9223372036854775808",
     "n IS NOT DISTINCT FROM -(9223372036854775808)", "n = CAST('-9223372036854775808' AS BIGINT)"],
)  # fmt: skip
def test_the_least_whole_number_of_64_bits_is_compared_as_it_is(condition: str) -> None:
    frame = pa.table({"id": range(300), "n": [-(2**63) + 1025 * (place % 3) for place in range(300)]})
    with Curator.from_frame(frame, "id", 1e5, name="t") as curator:
        answer = curator.query(f"SELECT COUNT(*) AS n FROM t WHERE {condition}", epsilon=500)
        assert answer.rows["n"].to_pylist() == [100]
        with pytest.raises(QueryRefused, match="too large"):
            curator.explain(f"SELECT COUNT(*) AS n FROM t WHERE n = {2**63}", epsilon=1)


@pytest.mark.parametrize("none", ["WHERE FALSE", "WHERE 2 < 1", "LIMIT 0"])
@pytest.mark.parametrize(
    "aggregate", ["MEDIAN(n)", "QUANTILE(n, 0.9)", "STDDEV(n)", "CORR(n, n)", "HISTOGRAM(n, 3)", "COUNT_IF(n > 3)",
                  "SUM(DISTINCT n)", "COUNT(*)", "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY n)"],
)  # fmt: skip
def test_a_question_that_takes_no_rows_is_free_whatever_it_aggregates(aggregate: str, none: str) -> None:
    with Curator.from_frame(pa.table({"id": [1], "n": [3]}), "id", 1, bounds={"n": (0, 9)}, name="t") as curator:
        answer = curator.query(f"SELECT {aggregate} AS m FROM t {none}", epsilon=1)
        counts = aggregate.startswith("COUNT")
        empty = none == "LIMIT 0" or "HISTOGRAM" in aggregate
        assert answer.rows["m"].to_pylist() == ([] if empty else [0 if counts else None])
        assert answer.receipt is None
        with pytest.raises(QueryRefused, match="MEDAN"):
            curator.query(f"SELECT MEDAN(n) AS m FROM t {none}", epsilon=1)
