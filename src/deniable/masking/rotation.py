"""Changing a key without losing the joins: for every value masked under it, the old token beside the new one."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from deniable.engines.base import Engine, quote
from deniable.masking.keys import Key
from deniable.masking.plan import Workshop, build
from deniable.policy.schema import TableSchema

COMPUTED = ("token", "format_preserving")


def token_map(engine: Engine, schema: TableSchema, old: Key, new: Key, folder: Path) -> list[pa.Table]:
    """One table (table, column, old_token, new_token) for each column that the key masks with computed tokens.

    Codebook tokens do not depend on the key and stay; dates and fakes must be released again.
    """
    found = []
    for column in schema.columns:
        spec = column.mask
        if spec is None or spec.kind not in COMPUTED or spec.options["key"] != old.name:
            continue
        name = quote(column.name)
        sql = f"SELECT DISTINCT {name} AS v FROM {quote(schema.name)} WHERE {name} IS NOT NULL"  # noqa: S608  quoted names
        values = engine.run(sql).column("v").combine_chunks()
        both = [
            build(spec, schema, column.name, Workshop(lambda _name, key=key: key, folder))  # type: ignore[misc]
            for key in (old, new)
        ]
        rows = pa.RecordBatch.from_arrays([values], names=[column.name])
        tokens = [mask.apply(values, rows).cast(pa.string()) for mask in both]
        labels = [pa.array([text] * len(values), pa.string()) for text in (schema.name, column.name)]
        found.append(pa.Table.from_arrays([*labels, *tokens], names=["table", "column", "old_token", "new_token"]))
    return found
