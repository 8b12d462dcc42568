"""Access to data: engines read declared sources, run SQL of our own making, and write files.

No other package imports a database driver. An engine never sees the text of a user's query: what it runs was rendered
from our own relations. `Engine` is the protocol; `deniable.engines.duckdb.DuckDBEngine` is the embedded engine."""

from __future__ import annotations

from deniable.engines.base import Engine, Field, quote
from deniable.engines.sources import require_driver
from deniable.policy.schema import BadRows, CsvDialect

__all__ = ["BadRows", "CsvDialect", "Engine", "Field", "quote", "require_driver"]


def __dir__() -> list[str]:
    """What is public."""
    return sorted(__all__)
