"""The standard question by Tumult Analytics, run by a Python that has it (`bench/engines.py --tumult`).

Prints three numbers: the CPU seconds of the start of Spark, of the first answer, and the least of three later ones.
"""

from __future__ import annotations

import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable
from _processes import cpu_seconds
from pyspark.sql import SparkSession
from tmlt.analytics import (
    AddRowsWithID,
    KeySet,
    MaxGroupsPerID,
    MaxRowsPerGroupPerID,
    PureDPBudget,
    QueryBuilder,
    Session,
)

BEGUN = cpu_seconds()
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
    "spark.driver.memory": "6g",
}
builder = SparkSession.builder.master("local[*]")
for name, value in SETTINGS.items():
    builder = builder.config(name, value)
rows = builder.getOrCreate().read.parquet(sys.argv[1]).select("user", "k", "v")
STARTED = cpu_seconds() - BEGUN


def ask() -> float:
    """CPU seconds of both aggregates of the question."""
    begun = cpu_seconds()
    allowed, each = PureDPBudget(1), PureDPBudget(0.5)
    session = Session.from_dataframe(
        privacy_budget=allowed, source_id="t", dataframe=rows, protected_change=AddRowsWithID("user")
    )
    keys = KeySet.from_dict({"k": [f"k{place:02d}" for place in range(100)]})
    bounded = QueryBuilder("t").enforce(MaxGroupsPerID("k", 5)).enforce(MaxRowsPerGroupPerID("k", 2)).groupby(keys)
    for question in (bounded.count(), bounded.sum("v", 0, 100)):
        assert len(session.evaluate(question, each).collect()) == 100
    return cpu_seconds() - begun


print(STARTED, ask(), min(ask() for _ in range(3)))
