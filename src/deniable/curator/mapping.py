"""The journey of a released map: coordinates cut to a grid, cells under k dropped, one row a cell with its count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from deniable.errors import ParameterError

TABLE = "table"


def release_map(source: Any, out: Path, columns: tuple[str, ...], digits: int, k: int) -> dict[str, Any]:
    """Write the cells that hold at least k rows, with a statement beside them."""
    from deniable.engines.base import quote
    from deniable.engines.duckdb import DuckDBEngine
    from deniable.engines.naming import require_columns
    from deniable.kanonymity.geo import grid

    if len(columns) != 2:
        raise ParameterError(f"{len(columns)} columns are named for a grid", expected="Latitude and longitude")
    with DuckDBEngine(root=Path.cwd()) as engine:
        engine.attach(TABLE, source)
        require_columns([f.name for f in engine.describe(TABLE)], columns, str(source))
        rows = engine.run(f"SELECT {', '.join(map(quote, columns))} FROM {quote(TABLE)}")  # noqa: S608  quoted names
        made = grid(rows, *columns, digits=digits, k=k)
        engine.write(made.cells, out)
        return _sealed(engine.data_version(TABLE), out, rows.num_rows, made, digits, k)


def _sealed(version: str, out: Path, rows: int, made: Any, digits: int, k: int) -> dict[str, Any]:
    from deniable.release import Guarantee, Property, Provenance, seal

    claim = Guarantee.syntactic((Property("k-anonymity", (("k", str(k)),)),))
    details = {"rows": rows, "cells": made.cells.num_rows, "dropped": made.dropped}
    provenance = Provenance(None, {TABLE: version}, {"method": "grid", "digits": digits})
    sealed = seal(out, claim, provenance, details)
    return details | {"output": str(out), "statement": str(sealed.path), "words": list(sealed.words)}
