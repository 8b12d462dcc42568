"""Questions as Superset writes them for PostgreSQL, in the form of tools.sql, where they are kept.

Its package for points on maps has no wheel, is not needed here, and is left out:

    python -m venv v && v/bin/pip install uv && echo "python-geohash; python_version < '3'" > without.txt
    v/bin/uv pip install --python v/bin/python --override without.txt apache-superset psycopg2-binary \\
        "flask-caching<2.4" cachetools
    v/bin/python bench/sql_questions/capture_superset.py
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import types
from datetime import datetime
from pathlib import Path
from typing import Any

COLUMNS = {
    "sales": {
        "customer_id": "BIGINT",
        "order_id": "BIGINT",
        "order_date": "DATE",
        "created_at": "TIMESTAMP WITHOUT TIME ZONE",
        "region": "VARCHAR",
        "category": "VARCHAR",
        "product": "VARCHAR",
        "status": "VARCHAR",
        "amount": "NUMERIC",
        "quantity": "BIGINT",
        "discount": "NUMERIC",
        "is_gift": "BOOLEAN",
    },
    "customers": {
        "customer_id": "BIGINT",
        "segment": "VARCHAR",
        "city": "VARCHAR",
        "birth_year": "BIGINT",
        "signup": "DATE",
    },
}
SINCE, UNTIL = datetime(2023, 6, 1), datetime(2024, 6, 1)  # Superset's moments have no zone


def measure(function: str, column: str) -> dict[str, Any]:
    """A metric as the chart's form makes it."""
    return {
        "expressionType": "SIMPLE",
        "aggregate": function,
        "column": {"column_name": column, "type": COLUMNS["sales"].get(column, "VARCHAR")},
        "label": f"{function}({column})",
    }


def written(text: str, label: str) -> dict[str, Any]:
    """A metric in SQL."""
    return {"expressionType": "SQL", "sqlExpression": text, "label": label}


def only(column: str, operator: str, value: Any) -> dict[str, Any]:
    """A filter of a chart."""
    return {"col": column, "op": operator, "val": value}


TOTAL = measure("SUM", "amount")
PERIOD = {"granularity": "order_date", "from_dttm": SINCE, "to_dttm": UNTIL}
ASKED: dict[str, dict[str, Any]] = {
    "a bar chart": {"groupby": ["region"], "metrics": ["count"], "orderby": [("count", False)]},
    "a line chart by month": {
        **PERIOD, "metrics": [TOTAL], "is_timeseries": True, "extras": {"time_grain_sqla": "P1M"},
        "orderby": [(TOTAL, False)],
    },
    "a line chart by week and category, of a range of moments": {
        **PERIOD, "granularity": "created_at", "groupby": ["category"], "metrics": ["count"], "is_timeseries": True,
        "extras": {"time_grain_sqla": "P1W"},
    },
    "a line chart by quarter, limited to two series": {
        **PERIOD, "groupby": ["category"], "metrics": [TOTAL], "is_timeseries": True, "series_limit": 2,
        "series_columns": ["category"], "series_limit_metric": TOTAL, "extras": {"time_grain_sqla": "P3M"},
    },
    "series limited, with the others": {
        **PERIOD, "groupby": ["category"], "metrics": [TOTAL], "is_timeseries": True, "series_limit": 2,
        "series_columns": ["category"], "series_limit_metric": TOTAL, "group_others_when_limit_reached": True,
        "extras": {"time_grain_sqla": "P1Y"},
    },
    "hours of a day": {
        "granularity": "created_at", "from_dttm": SINCE, "to_dttm": datetime(2023, 6, 2),
        "metrics": ["count"], "is_timeseries": True, "extras": {"time_grain_sqla": "PT1H"},
    },
    "a big number with filters": {
        "metrics": [measure("COUNT_DISTINCT", "customer_id")], "filter": [only("region", "IN", ["north", "east"])],
    },
    "a big number of a range of moments": {
        "metrics": [TOTAL], "filter": [only("created_at", "TEMPORAL_RANGE", "2023-06-01 : 2023-07-01")],
    },
    "a pivot table": {
        "groupby": ["region", "category"], "metrics": [TOTAL, "count", measure("AVG", "quantity")],
        "filter": [only("region", "!=", "west"), only("is_gift", "IS NOT NULL", None)], "orderby": [(TOTAL, False)],
    },
    "a table with a ratio and a having": {
        "groupby": ["status"],
        "metrics": [written("SUM(amount) / NULLIF(SUM(quantity), 0)", "price"), written("COUNT(*)", "n")],
        "extras": {"having": "COUNT(*) > 10", "where": "quantity > 0"},
    },
    "shares by a condition": {
        "groupby": ["region"],
        "metrics": [written("SUM(CASE WHEN status = 'returned' THEN 1 ELSE 0 END) * 1.0 / COUNT(*)", "returned")],
    },
    "a dimension in SQL": {
        "columns": [{"expressionType": "SQL", "sqlExpression": "FLOOR(amount / 50) * 50", "label": "bin"}],
        "metrics": ["count"], "orderby": [("count", False)],
    },
    "least and greatest by region": {
        "groupby": ["region"], "metrics": [measure("MIN", "quantity"), measure("MAX", "quantity")],
    },
    "texts like a pattern": {
        "groupby": ["category"], "metrics": ["count"],
        "filter": [only("product", "ILIKE", "%set%"), only("amount", ">=", 10), only("status", "NOT IN", ["open"])],
    },
    "true or false": {"groupby": ["is_gift"], "metrics": [TOTAL], "filter": [only("is_gift", "IS TRUE", None)]},
    "the values of a filter": {"groupby": ["category"], "metrics": [], "is_timeseries": False},
    "rows: the rows of a table": {"columns": ["customer_id", "region", "amount"], "metrics": [], "row_limit": 100},
}  # fmt: skip
VIRTUAL = "SELECT region, amount, status FROM sales WHERE status = 'paid'"


def main() -> None:
    """Start Superset with a data set of its own in memory, and print what its charts would ask."""
    sys.modules["geohash"] = types.ModuleType("geohash")
    folder = Path(tempfile.mkdtemp())
    (folder / "superset_config.py").write_text(
        f"SECRET_KEY = 'not a secret'\nSQLALCHEMY_DATABASE_URI = 'sqlite:///{folder}/superset.db'\n"
    )
    os.environ["SUPERSET_CONFIG_PATH"] = str(folder / "superset_config.py")
    from superset.app import create_app

    with create_app().app_context():
        capture()


def capture() -> None:
    """Print each question with its place."""
    from superset.connectors.sqla.models import SqlaTable, SqlMetric, TableColumn
    from superset.models.core import Database

    Database.get_default_schema = lambda *_: "public"  # asked from the database, where there is one
    database = Database(database_name="shop", sqlalchemy_uri="postgresql+psycopg2://analyst@localhost/shop")

    def data_set(name: str, sql: str | None = None, kept: tuple[str, ...] = ()) -> SqlaTable:
        columns = {each: kind for each, kind in COLUMNS["sales"].items() if not kept or each in kept}
        return SqlaTable(
            table_name=name, schema="public", database=database, sql=sql, main_dttm_col="order_date",
            columns=[
                TableColumn(column_name=each, type=kind, is_dttm=kind.startswith(("DATE", "TIMESTAMP")))
                for each, kind in columns.items()
            ],
            metrics=[SqlMetric(metric_name="count", expression="COUNT(*)")],
        )  # fmt: skip

    sales = data_set("sales")
    paid = data_set("paid", VIRTUAL, ("region", "amount", "status"))
    asked = [(sales, wants, question) for wants, question in ASKED.items()]
    asked.append((paid, "a virtual data set", {"groupby": ["region"], "metrics": [measure("AVG", "amount")]}))
    for place, (table, wants, question) in enumerate(asked, 1):
        rows, words = (" rows", wants.removeprefix("rows: ")) if wants.startswith("rows: ") else ("", wants)
        full = {"is_timeseries": False, "filter": [], "row_limit": 10000, "columns": [], "groupby": [], **question}
        sql = table.get_query_str_extended({"extras": {}, "metrics": [], "granularity": None, **full}).sql
        print(f"-- superset {place}{rows}: {words}")
        print(re.sub(r"\s+", " ", sql).strip())


if __name__ == "__main__":
    main()
