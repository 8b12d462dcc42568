"""Referential integrity: what could be joined before masking can be joined after it, and nothing else can.

Columns masked consistently under one key and one domain form a *join class*. For every two of them in different tables
the values they share are counted before and after: an exact count of distinct values, both times. Equal counts mean
that every reference found its target again and that no two people were merged. When a key is rotated, a map of old to
new tokens keeps the joins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from deniable.engines.base import Engine, quote
from deniable.masking import columns, pseudonyms, vault
from deniable.masking.keys import Key
from deniable.masking.plan import MaskContext, TablePlan, build_mask
from deniable.policy.schema import Spec, TableSchema

# ruff: noqa: S608  (statements are made of our own words and quoted names)


CONSISTENT = ("token", "format_preserving", "codebook")


@dataclass(frozen=True, slots=True)
class JoinCheck:
    """Two columns of one class: distinct values shared before and after, and distinct values of each."""

    left: str
    right: str
    shared_before: int
    shared_after: int
    distinct_before: tuple[int, int]
    distinct_after: tuple[int, int]

    @property
    def kept(self) -> bool:
        """Whether exactly what joined before joins now."""
        return self.shared_before == self.shared_after and self.distinct_before == self.distinct_after

    def as_dict(self) -> dict[str, object]:
        """The shape that is printed and saved."""
        return {
            "left": self.left,
            "right": self.right,
            "shared_before": self.shared_before,
            "shared_after": self.shared_after,
            "kept": self.kept,
        }


def find_join_classes(plans: Mapping[str, TablePlan]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Columns (table, name) that get equal tokens for equal values, class by class."""
    classes: dict[tuple[object, ...], list[tuple[str, str]]] = defaultdict(list)
    for table, plan in plans.items():
        for column in plan.columns:
            if column.spec is not None and column.spec.kind in CONSISTENT:
                classes[_identify_class(column.spec)].append((table, column.name))
    return tuple(tuple(members) for members in classes.values() if len({table for table, _ in members}) > 1)


def _identify_class(spec: Spec) -> tuple[object, ...]:
    options = spec.options
    return (
        spec.kind,
        options["key"],
        options.get("domain", options["key"]),
        options.get("length"),
        options.get("vault"),
        options.get("normalize"),
    )


def check_joins(engine: Engine, plans: Mapping[str, TablePlan], released: Mapping[str, str]) -> tuple[JoinCheck, ...]:
    """Every pair of every class, counted in the sources and in the released tables (by their attached names)."""
    checks = []
    for members in find_join_classes(plans):
        for (left, a), (right, b) in combinations(members, 2):
            if left != right:
                how = _find_normal(plans[left], a)
                if how == "exact":
                    before = _count_shared(engine, left, a, right, b)
                else:
                    before = _count_normal(engine, left, a, right, b, how)
                after = _count_shared(engine, released[left], a, released[right], b)
                checks.append(JoinCheck(f"{left}.{a}", f"{right}.{b}", before[0], after[0], before[1:], after[1:]))
    return tuple(checks)


def _count_shared(engine: Engine, left: str, a: str, right: str, b: str) -> tuple[int, int, int]:
    one, two = _select_distinct(left, a), _select_distinct(right, b)
    sql = (
        f"SELECT (SELECT count(*) FROM ({one} INTERSECT {two}) AS shared) AS shared, "
        f"(SELECT count(*) FROM ({one}) AS one) AS one, (SELECT count(*) FROM ({two}) AS two) AS two"
    )
    row = engine.run(sql).to_pylist()[0]
    return int(row["shared"]), int(row["one"]), int(row["two"])


def _find_normal(plan: TablePlan, name: str) -> str:
    """Which spellings a column's mask takes for one value."""
    mask = next(column.mask for column in plan.columns if column.name == name)
    if isinstance(mask, vault.Codebook):
        return vault.describe_vault(mask.path, mask.key)[1]
    return mask.normalize if isinstance(mask, pseudonyms.Token) else "exact"


def _count_normal(engine: Engine, left: str, a: str, right: str, b: str, how: str) -> tuple[int, int, int]:
    """The same counts where several spellings are one value."""
    one, two = (
        pc.unique(columns.normalize_text(columns.as_text(read.column("v").combine_chunks()), how))
        for read in (engine.run(_select_distinct(left, a)), engine.run(_select_distinct(right, b)))
    )
    return int(pc.sum(pc.is_in(one, value_set=two)).as_py() or 0), len(one), len(two)


def _select_distinct(table: str, column: str) -> str:
    name = quote(column)
    return f"SELECT DISTINCT CAST({name} AS VARCHAR) AS v FROM {quote(table)} WHERE {name} IS NOT NULL"


COMPUTED = ("token", "format_preserving")


def map_tokens(engine: Engine, schema: TableSchema, old: Key, new: Key, folder: Path) -> list[pa.Table]:
    """One table (table, column, old_token, new_token) for each column that the key masks with computed tokens.

    Codebook tokens do not depend on the key and stay; dates and fakes must be released again.
    """
    found = []
    for column in schema.columns:
        spec = column.mask
        if spec is None or spec.kind not in COMPUTED or spec.options["key"] != old.name:
            continue
        name = quote(column.name)
        sql = f"SELECT DISTINCT {name} AS v FROM {quote(schema.name)} WHERE {name} IS NOT NULL"
        values = engine.run(sql).column("v").combine_chunks()
        both = [
            build_mask(spec, schema, column.name, MaskContext(lambda _name, key=key: key, folder))  # type: ignore[misc]
            for key in (old, new)
        ]
        rows = pa.RecordBatch.from_arrays([values], names=[column.name])
        tokens = [mask.apply(values, rows).cast(pa.string()) for mask in both]
        labels = [pa.array([text] * len(values), pa.string()) for text in (schema.name, column.name)]
        found.append(pa.Table.from_arrays([*labels, *tokens], names=["table", "column", "old_token", "new_token"]))
    return found
