"""The embedded engine: DuckDB, sealed off from every file but the declared ones, and from the network."""

from deniable.engines.duckdb.engine import DuckDBEngine as DuckDBEngine

__all__ = ["DuckDBEngine"]
