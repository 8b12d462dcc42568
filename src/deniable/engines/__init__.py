"""The data's one door: engines read declared sources, run SQL of our own making, and write files.

No other room imports a database driver. An engine never sees the text of a user's query: what it runs was rendered
from our own relations. `Engine` is the protocol; `deniable.engines.duckdb.DuckDBEngine` is the embedded engine.
"""

from __future__ import annotations

from deniable.engines.base import Engine, Field, quote
from deniable.engines.extras import require
from deniable.policy.dialect import BadRows, CsvDialect

__all__ = ["BadRows", "CsvDialect", "Engine", "Field", "quote", "require"]
