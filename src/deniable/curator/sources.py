"""Where the tables of a policy are: which engine reads them, and by what their content is known."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from deniable.engines import Engine
    from deniable.policy.document import Policy


def make_engine_for(policy: Policy, sources: Mapping[str, Any], rows: bool, **limits: Any) -> Engine:
    """An engine for the policy's tables: the one where they are, or for work on `rows` one that has them here."""
    from deniable.engines.base import is_in_database
    from deniable.engines.duckdb import DuckDBEngine

    if not any(is_in_database(sources.get(table.name, table.source)) for table in policy.tables):
        return DuckDBEngine(root=policy.folder, **limits)
    from deniable.engines.postgresql.engine import FetchingEngine, PostgreSQLEngine

    if rows:
        return FetchingEngine(root=policy.folder, **limits)
    from deniable.query.sql.dialects import render_for_postgresql

    return PostgreSQLEngine(render=render_for_postgresql, root=policy.folder, **limits)


def hash_content(source: Any, folder: Path) -> str | None:
    """The fingerprint of all that a source holds, wherever it is; None for rows that can be read only once."""
    from deniable.engines.base import is_in_database
    from deniable.engines.sources import hash_source

    if not is_in_database(source):
        return hash_source(source, folder)
    from deniable.engines.postgresql.tables import version_source

    return version_source(source)


def stamp_content(source: Any, folder: Path) -> tuple[str, str]:
    """Where a source is, by one name however it is written, and what changes when its rows may have changed."""
    from deniable.engines.base import is_in_database
    from deniable.engines.sources import stamp_source

    if not is_in_database(source):
        return stamp_source(source, folder)
    from deniable.engines.postgresql.tables import stamp_table

    return stamp_table(source)
