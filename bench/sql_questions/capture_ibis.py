"""Questions as ibis writes them for PostgreSQL, in the form of tools.sql, where they are kept.

python -m venv v && v/bin/pip install "ibis-framework[duckdb]" && v/bin/python bench/sql_questions/capture_ibis.py
"""

from __future__ import annotations

import ibis
from ibis import _

sales = ibis.table(
    {
        "customer_id": "int64",
        "order_id": "int64",
        "order_date": "date",
        "created_at": "timestamp",
        "region": "string",
        "category": "string",
        "product": "string",
        "status": "string",
        "amount": "decimal(10, 2)",
        "quantity": "int64",
        "discount": "decimal(4, 2)",
        "is_gift": "boolean",
    },
    name="sales",
)
customers = ibis.table(
    {"customer_id": "int64", "segment": "string", "city": "string", "birth_year": "int64", "signup": "date"},
    name="customers",
)
regions = ibis.table({"region": "string", "manager": "string", "target": "decimal(10, 2)"}, name="regions")
asked = {
    "group_by and aggregate": sales.group_by("region").aggregate(total=_.amount.sum(), n=_.count()),
    "a filter after an aggregate, and its order": sales.group_by("category")
    .aggregate(mean=_.amount.mean())
    .filter(_.mean > 10)
    .order_by(ibis.desc("mean")),
    "a new column, and its counts": sales.mutate(big=_.amount > 100).group_by("big").aggregate(n=_.count()),
    "months": sales.group_by(month=_.created_at.truncate("M")).aggregate(q=_.quantity.sum()).order_by("month"),
    "where in aggregates": sales.aggregate(
        paid=_.amount.sum(where=_.status == "paid"),
        gift=_.amount.mean(where=_.is_gift),
        a=_.product.count(where=_.product.startswith("a")),
    ),
    "a correlation and a covariance": sales.aggregate(
        c=_.amount.corr(_.quantity, how="pop"), v=_.amount.cov(_.discount, how="pop")
    ),
    "value counts": sales.status.value_counts().order_by(ibis.desc("status_count")),
    "a rank over a summary": sales.group_by("region")
    .aggregate(total=_.amount.sum())
    .mutate(rank=ibis.row_number().over(order_by=ibis.desc("total"))),
    "a logarithm, a power and a greatest": sales.aggregate(
        l=ibis.greatest(_.amount, 1).ln().mean(), p=(_.quantity**2).sum(), g=(_.amount + 1).log10().mean()
    ),
    "a join with a public table": sales.join(regions, "region")
    .filter(_.target >= 1000)
    .group_by("manager")
    .aggregate(n=_.count()),
    "a join over people": sales.join(customers, "customer_id")
    .group_by("segment")
    .aggregate(n=_.count(), people=_.customer_id.nunique()),
    "a pivot": sales.group_by("region").aggregate(
        **{s: _.amount.sum(where=_.status == s) for s in ("paid", "open", "returned")}
    ),
    "a case": sales.aggregate(late=ibis.cases((_.order_date > ibis.date("2024-06-30"), 1), else_=0).sum()),
    "buckets": sales.group_by(bucket=_.amount.bucket([0, 50, 100, 500])).aggregate(n=_.count()),
    "quantiles": sales.aggregate(m=_.amount.median(), q=_.amount.quantile(0.9)),
    "having": sales.group_by("region").having(_.count() > 10).aggregate(s=_.amount.std()),
    "topk": sales.category.topk(2),
    "a share of all": sales.group_by("region").aggregate(total=_.amount.sum()).mutate(share=_.total / _.total.sum()),
    "between and isin": sales.filter(_.region.isin(["north", "east"]), _.amount.between(1, 100)).aggregate(n=_.count()),
    "a week day": sales.group_by(day=_.order_date.day_of_week.index()).aggregate(n=_.count()),
    "rows: rows of people": sales.select("customer_id", "amount").limit(10),
}
for place, (wants, expression) in enumerate(asked.items(), 1):
    rows, words = (" rows", wants.removeprefix("rows: ")) if wants.startswith("rows: ") else ("", wants)
    print(f"-- ibis {place}{rows}: {words}")
    print(" ".join(ibis.to_sql(expression, dialect="postgres").split()))
