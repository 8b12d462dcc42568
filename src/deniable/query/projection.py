"""Questions that only pick and rename what was measured: their answer needs no engine, only Arrow columns.

Most questions of a dashboard are of this kind, and a statement of an engine costs milliseconds to parse and plan. Any
other post-processing (a predicate, an order, arithmetic) is left to the engine.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from deniable.query.expression import ColumnRef
from deniable.query.relation import Measured, PublicSelect, Relation

SAME_IN_AN_ENGINE = frozenset({pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.date32()})
"""Types that come back from an engine as they went in; a column of nulls alone, for one, does not."""


def projected(relation: Relation, frames: Mapping[str, pa.Table]) -> pa.Table | None:
    """The columns of a plain selection from a measured node; None where the engine has to do it."""
    if not isinstance(relation, PublicSelect) or not isinstance(relation.input, Measured) or not _plain(relation):
        return None
    frame, columns = frames[relation.input.name], {}
    for name, expression in relation.projections:
        if not isinstance(expression, ColumnRef) or expression.name not in frame.column_names or name in columns:
            return None
        columns[name] = frame.column(expression.name)
    return pa.table(columns) if all(each.type in SAME_IN_AN_ENGINE for each in columns.values()) else None


def _plain(select: PublicSelect) -> bool:
    """Whether it neither filters, groups, orders nor cuts."""
    ordered = select.order or select.limit is not None or select.offset or select.distinct
    return not (select.predicate or select.keys or select.aggregates or select.grouped or ordered)
