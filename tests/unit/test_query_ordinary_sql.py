"""Questions as people and tools write them: what is answered is what plain SQL gives, but for noise and bounds.

The business questions of TPC-H run over a small generated company, with contribution bounds so wide that nothing is
cut and with no noise: DuckDB, which reads the question as it is written, is the oracle."""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deniable.curator import Curator
from deniable.engines.duckdb import DuckDBEngine
from deniable.errors import ParameterError, PolicyError
from deniable.policy.budget import ApproxDP
from deniable.policy.document import parse
from deniable.policy.schema import ColumnType, Link, TableSchema
from deniable.query.algebra.relation import tables_of
from deniable.query.compile import compile_query
from deniable.query.execute import execute
from deniable.query.plan import QueryPlan
from deniable.query.sql import private_sql

sys.path.append(str(Path(__file__).parents[2] / "bench"))
from sql_coverage import Question, read_questions, read_tables

HUGE = ApproxDP(Fraction(9_999), Fraction(1, 100))
TYPES = {
    ColumnType.INTEGER: pa.int64(),
    ColumnType.DECIMAL: pa.float64(),
    ColumnType.TEXT: pa.string(),
    ColumnType.DATE: pa.date32(),
}
NATIONS = ("FRANCE", "GERMANY", "BRAZIL", "CANADA", "SAUDI ARABIA", "CHINA")
REGIONS = ("EUROPE", "AMERICA", "ASIA")
BRANDS = ("Brand#12", "Brand#23", "Brand#34", "Brand#45")
KINDS = ("ECONOMY ANODIZED STEEL", "PROMO BURNISHED BRASS", "MEDIUM POLISHED TIN", "SMALL PLATED BRASS")
BOXES = ("SM CASE", "MED BOX", "MED BAG", "LG PACK")


def widen(table: TableSchema) -> TableSchema:
    """The table with bounds that cut nothing."""
    if table.unit is None:
        return table
    return replace(table, unit=replace(table.unit, max_groups=1_000, max_rows_per_group=1_000))


TABLES = tuple(widen(table) for table in read_tables("tpch"))
SCHEMAS = {table.name: table for table in TABLES}


def day(choose: random.Random, first: int = 1992, years: int = 6) -> date:
    return date(first, 1, 1) + timedelta(days=choose.randrange(365 * years))


def make_company(seed: int) -> dict[str, list[dict[str, Any]]]:
    """A few customers, orders, lines, parts and suppliers: enough that most questions find something."""
    choose = random.Random(seed)
    pick, count = choose.choice, choose.randrange
    made: dict[str, list[dict[str, Any]]] = {
        "region": [{"r_regionkey": i, "r_name": name} for i, name in enumerate(REGIONS)],
        "nation": [
            {"n_nationkey": i, "n_name": name, "n_regionkey": (0, 0, 1, 1, 2, 2)[i]} for i, name in enumerate(NATIONS)
        ],
        "supplier": [
            {"s_suppkey": i, "s_name": f"Supplier {i}", "s_address": f"street {i}", "s_nationkey": i % 6,
             "s_phone": f"{10 + i}", "s_acctbal": float(i), "s_comment": pick(("fine", "Customer has Complaints"))}
            for i in range(1, 13)
        ],
        "part": [
            {"p_partkey": i, "p_name": pick(("forest green", "blue", "dark green")), "p_mfgr": f"m{i % 3}",
             "p_brand": BRANDS[i % 4], "p_type": KINDS[count(4)], "p_size": pick((1, 3, 5, 14, 15, 15)),
             "p_container": BOXES[i % 4], "p_retailprice": 10.0 + i}
            for i in range(1, 25)
        ],
        "partsupp": [
            {"ps_partkey": p, "ps_suppkey": (p * k) % 12 + 1, "ps_availqty": 30 + count(100),
             "ps_supplycost": float(1 + count(90))}
            for p in range(1, 25) for k in (1, 5)
        ],
        "customer": [
            {"c_custkey": i, "c_name": f"c{i}", "c_address": "a", "c_nationkey": i % 6,
             "c_phone": f"{pick((13, 31, 23, 29, 44))}-{i}", "c_acctbal": float(count(900) - 100),
             "c_mktsegment": pick(("BUILDING", "MACHINERY")), "c_comment": ""}
            for i in range(1, 41)
        ],
        "orders": [
            {"o_orderkey": i, "o_custkey": count(30) + 1, "o_orderstatus": pick("FOP"), "o_totalprice": 0.0,
             "o_orderdate": day(choose), "o_orderpriority": pick(("1-URGENT", "2-HIGH", "5-LOW")), "o_clerk": "",
             "o_shippriority": 0, "o_comment": pick(("", "special deposits requests", "quick"))}
            for i in range(1, 201)
        ],
        "lineitem": [],
    }  # fmt: skip
    for order in made["orders"]:
        for line in range(1, 2 + count(5)):
            part = made["partsupp"][count(48)]
            ship = order["o_orderdate"] + timedelta(days=count(100))
            made["lineitem"].append(
                {"l_orderkey": order["o_orderkey"], "l_partkey": part["ps_partkey"], "l_suppkey": part["ps_suppkey"],
                 "l_linenumber": line, "l_quantity": float(1 + count(49)), "l_extendedprice": float(count(90_000)),
                 "l_discount": count(11) / 100, "l_tax": count(9) / 100, "l_returnflag": pick("ANR"),
                 "l_linestatus": pick("FO"), "l_shipdate": ship, "l_commitdate": ship + timedelta(days=count(40) - 9),
                 "l_receiptdate": ship + timedelta(days=count(30)),
                 "l_shipinstruct": pick(("DELIVER IN PERSON", "NONE")), "l_shipmode": pick(("AIR", "MAIL", "SHIP")),
                 "l_comment": ""}
            )  # fmt: skip
    return made


def as_arrow(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    fields = [pa.field(column.name, TYPES[column.type]) for column in SCHEMAS[name].columns]
    return pa.Table.from_pylist(rows, schema=pa.schema(fields))


@pytest.fixture(scope="module")
def company() -> dict[str, pa.Table]:
    return {name: as_arrow(name, rows) for name, rows in make_company(8).items()}


@pytest.fixture(scope="module")
def engine(company: dict[str, pa.Table]) -> DuckDBEngine:
    engine = DuckDBEngine()
    for name, rows in company.items():
        engine.attach(name, rows, SCHEMAS[name])
    return engine


@pytest.fixture(scope="module")
def oracle(company: dict[str, pa.Table]) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    for name, rows in company.items():
        connection.register(name, rows)
    return connection


def comparable(row: dict[str, Any]) -> tuple[str, ...]:
    """One spelling for equal values; averages and sums over a grid of steps are compared as far as the steps go."""

    def spelled(value: Any) -> str:
        if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            return f"{float(value):.3g}"
        return str(value).removesuffix(" 00:00:00")

    return tuple(spelled(value) for value in row.values())


ASKED = [question for question in read_questions("tpch") if not question.rows]


@pytest.mark.parametrize("question", ASKED, ids=[question.name for question in ASKED])
@pytest.mark.usefixtures("silence")
def test_business_questions_are_answered_as_plain_sql_does(
    question: Question, engine: DuckDBEngine, oracle: duckdb.DuckDBPyConnection
) -> None:
    plan = compile_query(question.sql, TABLES, HUGE)
    answered = execute(plan, engine, intervals=False).to_pylist()
    exactly = oracle.sql(question.sql).to_arrow_table().to_pylist()
    assert not Counter(map(comparable, exactly)) - Counter(map(comparable, answered))
    extra = Counter(map(comparable, answered)) - Counter(map(comparable, exactly))
    # Public keys that nobody has appear too.
    assert all({"0", "None", "-0"} & set(row) for row in extra)


# -- people who are named by another table -----------------------------------------------------------------------------

LINES = [
    "SELECT COUNT(*), SUM(l_quantity) FROM lineitem",
    "SELECT l_returnflag, SUM(l_extendedprice), AVG(l_discount) FROM lineitem GROUP BY l_returnflag",
    "SELECT l_shipmode, COUNT(*) FROM lineitem, orders WHERE l_orderkey = o_orderkey GROUP BY l_shipmode",
    "SELECT o_orderpriority, COUNT(*) FROM orders WHERE EXISTS (SELECT * FROM lineitem WHERE l_orderkey = o_orderkey "
    "AND l_commitdate < l_receiptdate) GROUP BY o_orderpriority",
    "SELECT COUNT(*) FROM lineitem l1 WHERE EXISTS (SELECT * FROM lineitem l2 WHERE l2.l_orderkey = l1.l_orderkey "
    "AND l2.l_suppkey <> l1.l_suppkey)",
    "SELECT l_suppkey, COUNT(*) FROM lineitem GROUP BY l_suppkey",
    "SELECT COUNT(*) FROM (SELECT l_orderkey, SUM(l_quantity) AS q FROM lineitem GROUP BY l_orderkey) AS t WHERE q > 9",
]
NARROW = tuple(
    replace(table, unit=replace(table.unit, max_groups=2, max_rows_per_group=3)) if table.unit is not None else table
    for table in TABLES
)


def total_groups(plan: QueryPlan, connection: duckdb.DuckDBPyConnection) -> list[dict[tuple[Any, ...], int]]:
    """The exact numbers of each measurement of a plan by group, with a fixed salt."""
    found = []
    for node in plan.nodes:
        for step in node.steps:
            wanted = private_sql.select_additive(step.placed, step.threshold is not None, step.joints)
            rows = connection.sql(private_sql.render_step(node.node, step, 5) or "").to_arrow_table().to_pylist()
            keys = private_sql.key_names(step.places)
            joint = [name for name in wanted if name.startswith("j")]
            found += [{tuple(row[key] for key in keys): int(row[n]) for row in rows} for n in wanted if n not in joint]
            found += [{(*(row[key] for key in keys), n): int(row[n]) for row in rows for n in joint}] if joint else []
    return found


@pytest.mark.parametrize("sql", LINES)
def test_taking_a_customer_away_moves_no_number_of_their_lines_further_than_its_sensitivity(sql: str) -> None:
    """Two orders of different customers have one number, so that some lines lead to both of them."""
    made = make_company(3)
    made["orders"].append(made["orders"][0] | {"o_custkey": 40})
    plan = compile_query(sql, NARROW, ApproxDP(Fraction(1), Fraction(1, 10**6)))
    steps = [step for node in plan.nodes for step in node.steps]
    norms = [p.sensitivity.l1 for step in steps for p in step.placed if p.mixed is None]
    norms += [step.threshold.max_groups for step in steps if step.threshold is not None]
    norms += [joint.sensitivity.l1 for step in steps for joint in step.joints]
    connection = duckdb.connect()
    for name, rows in made.items():
        connection.register(name, as_arrow(name, rows))
    every, moved = total_groups(plan, connection), 0
    for customer in (1, 7, 29, 40, made["orders"][0]["o_custkey"]):
        connection.register("orders", as_arrow("orders", [r for r in made["orders"] if r["o_custkey"] != customer]))
        for norm, one, other in zip(norms, every, total_groups(plan, connection), strict=True):
            change = sum(abs(one.get(key, 0) - other.get(key, 0)) for key in one.keys() | other.keys())
            assert change <= norm
            moved += change
    assert moved > 0


def test_a_line_counts_for_the_customer_of_its_order() -> None:
    """However many lines and orders she has, a customer counts for her bounds."""
    (step,) = compile_query("SELECT COUNT(*) FROM lineitem", NARROW, HUGE).nodes[0].steps
    assert step.limits.rows == 3
    assert compile_query("SELECT COUNT(*) FROM lineitem", NARROW, HUGE).unit.column == "orders.o_custkey"


def test_steps_through_several_tables_lead_to_the_person(engine: DuckDBEngine) -> None:
    lines = next(table for table in TABLES if table.name == "lineitem")
    assert lines.unit is not None
    further = (*lines.unit.via, Link("o_custkey", "customer", "c_custkey"))
    tables = tuple(
        replace(table, unit=replace(table.unit, via=further, column="customer.c_custkey"))
        if table is lines and table.unit is not None
        else table
        for table in TABLES
    )
    sql = "SELECT COUNT(*) AS n, SUM(l_quantity) AS q FROM lineitem"
    one, other = (compile_query(sql, each, HUGE) for each in (TABLES, tables))
    assert {table.name for table in tables_of(other.nodes[0].node)} == {"lineitem", "orders", "customer"}
    exact = [execute(plan, engine, intervals=False).to_pylist()[0] for plan in (one, other)]
    assert exact[0]["n"] == pytest.approx(exact[1]["n"], abs=3)


POLICY = """
version: 1
dataset: shop
tables:
  orders:
    source: orders.parquet
    unit: {{column: person, max_groups: 2, max_rows_per_group: 2}}
    columns: {{id: {{type: integer, role: identifier}}, person: {{type: integer, role: identifier}}}}
  lines:
    source: lines.parquet
    unit: {{via: [{steps}], max_groups: 2, max_rows_per_group: 2}}
    columns:
      order_id: {{type: {kind}, role: identifier}}
      amount: {{type: integer, between: [0, 9], role: sensitive}}
  shops: {{source: shops.parquet, public: true, columns: {{id: {{type: integer}}}}}}
budgets:
  dataset: {{epsilon: 10, delta: 1e-6, accounting: zcdp}}
"""


def test_a_policy_says_by_which_steps_rows_lead_to_a_person() -> None:
    table = parse(POLICY.format(steps="order_id = orders.id", kind="integer")).table("lines")
    assert table.unit is not None
    assert table.unit.via == (Link("order_id", "orders", "id"),)
    assert table.unit.column == "orders.person"
    assert not table.unit.is_row


@pytest.mark.parametrize(
    ("steps", "kind", "what"),
    [
        ("order_id = orders.nowhere", "integer", "orders.nowhere"),
        ("nowhere = orders.id", "integer", "lines.nowhere"),
        ("order_id = buyers.id", "integer", "buyers.id"),
        ("order_id = shops.id", "integer", "shops.id"),
        ("order_id = lines.order_id", "integer", "no column that tells people apart"),
        ("order_id = orders.id", "text", "cannot be compared exactly"),
        ("order_id", "integer", "order_id"),
    ],
)
def test_steps_that_lead_to_nobody_are_mistakes_of_the_policy(steps: str, kind: str, what: str) -> None:
    with pytest.raises(PolicyError, match=what):
        parse(POLICY.format(steps=steps, kind=kind))


def test_only_questions_in_sql_follow_the_steps_to_a_person(tmp_path: Path) -> None:
    """Rows that leave, models and techniques over one table would take each line for a person of its own."""
    orders = [{"id": i, "person": i // 2} for i in range(40)]
    pq.write_table(pa.Table.from_pylist(orders), tmp_path / "orders.parquet")
    lines = pa.Table.from_pylist([{"order_id": i % 40, "amount": 3} for i in range(120)])
    pq.write_table(lines, tmp_path / "lines.parquet")
    pq.write_table(pa.table({"id": [1]}), tmp_path / "shops.parquet")
    path = tmp_path / "policy.yaml"
    path.write_text(POLICY.format(steps="order_id = orders.id", kind="integer"))
    with Curator.open(path) as curator:
        answer = curator.query("SELECT SUM(amount) AS s FROM lines", epsilon=1)
        # Each of 20 people counts for two rows of her six; noise of scale 18 passes 400 once in 4e9 times.
        assert abs(answer.to_pylist()[0]["s"] - 120) < 400
        assert "orders.person" in str(answer.release.guarantee)
        for use in (
            lambda: curator.synthesize("lines", tmp_path / "out.parquet", epsilon=1),
            lambda: curator.mask("lines"),
            lambda: curator.sample_and_aggregate(len, "lines", blocks=4, bounds=(0, 2), epsilon=1),
        ):
            with pytest.raises(ParameterError, match="is said by another table"):
                use()
