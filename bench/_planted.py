"""Findings of three columns and more that are planted in the world's tables, and how often a method keeps their sign.

Each is a difference that no pair of columns shows, or hardly: see the modules of `deniable.world`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deniable import world
from deniable.policy.budget import ApproxDP
from deniable.policy.document import parse
from deniable.policy.schema import TableSchema
from deniable.synth.describe import describe_table
from deniable.synth.generate import generate

EPSILONS = (1.0, math.e)
METHODS = ("correlated", "mst", "auto")


@dataclass(frozen=True, slots=True)
class Planted:
    """A finding: the world's table, its people, the most rows a person has, the columns, the signed effect."""

    name: str
    world: str
    table: str
    people: int
    most_rows: int
    columns: tuple[str, ...]
    effect: Callable[[pa.Table], float]


def _only(rows: pa.Table, **values: str) -> pa.Table:
    for name, value in values.items():
        rows = rows.filter(pc.equal(rows[name], value))
    return rows


def _mean(rows: pa.Table, name: str) -> float:
    value = pc.mean(rows[name]).as_py()
    return math.nan if value is None else float(value)


def _share(rows: pa.Table, name: str, value: str) -> float:
    return float(np.mean(pc.fill_null(pc.equal(rows[name], value), False).to_numpy(zero_copy_only=False)))


def unequal_charges(rows: pa.Table) -> float:
    """Hispanic women are charged more than Hispanic men."""
    hispanic = _only(rows, ethnicity="Hispanic")
    return _mean(_only(hispanic, sex="F"), "charge") - _mean(_only(hispanic, sex="M"), "charge")


def young_men_of_the_north(rows: pa.Table) -> float:
    """Men of 18 to 24 use drugs more often in the North than elsewhere."""
    young = _only(rows, age_group="18-24", sex="M")
    north = pc.equal(young["region"], "North")
    return _share(young.filter(north), "used_drugs", "yes") - _share(
        young.filter(pc.invert(north)), "used_drugs", "yes"
    )


def women_of_long_service(rows: pa.Table) -> float:
    """In athletics, women who came before 2016 are paid less than men who did."""
    early = _only(rows, job="athletics")
    early = early.filter(pc.less(early["hired"], date(2016, 1, 1)))
    return _mean(_only(early, sex="M"), "salary") - _mean(_only(early, sex="F"), "salary")


PLANTED = (
    Planted("unequal charges", "hospital", "visits", 54_000, 3, ("sex", "ethnicity", "charge"), unequal_charges),
    Planted("young men of the North", "survey", "survey", 20_000, 1,
            ("age_group", "sex", "region", "used_drugs"), young_men_of_the_north),
    Planted("women of long service", "salaries", "salaries", 60_000, 1,
            ("job", "sex", "hired", "salary"), women_of_long_service),
)  # fmt: skip


def kept(runs: int) -> dict[tuple[str, float], list[float]]:
    """For every method and epsilon, the share of runs in which each planted finding keeps its sign.

    `auto asked` is told which columns the finding is about, as `deniable parity` tells it.
    """
    found: dict[tuple[str, float], list[float]] = {}
    for planted in PLANTED:
        rows, table = _table(planted)
        assert planted.effect(rows) > 0, "the finding is true of the real rows"
        for epsilon in EPSILONS:
            for method in (*METHODS, "auto asked"):
                signs = [_effect(planted, rows, table, method, epsilon, run) > 0 for run in range(runs)]
                found.setdefault((method, epsilon), []).append(float(np.mean(signs)))
    return found


def _effect(planted: Planted, rows: pa.Table, table: TableSchema, method: str, epsilon: float, run: int) -> float:
    name, _, asked = method.partition(" ")
    workload = (planted.columns,) if asked else ()
    model = describe_table(
        rows, table, ApproxDP(epsilon, "1e-9"), name, most_rows=planted.most_rows, workload=workload,
        columns=_columns(table),
    )  # fmt: skip
    return planted.effect(generate(model, seed=run))


def _columns(table: TableSchema) -> tuple[str, ...]:
    """The columns with public values: texts are another matter."""
    return tuple(c.name for c in table.columns if c.categories is not None or c.bounds is not None)


def _table(planted: Planted) -> tuple[pa.Table, TableSchema]:
    """The rows, at most so many of each person, and the policy's table."""
    rows = world.make(planted.world, planted.people)[planted.table]
    if planted.most_rows > 1:
        who = rows[table_unit(planted)].to_numpy()
        order = np.random.default_rng(0).permutation(rows.num_rows)
        _, first = np.unique(who[order], return_inverse=True)
        ranked = np.argsort(first, kind="stable")
        starts = np.flatnonzero(np.diff(first[ranked], prepend=-1))
        rank = np.arange(ranked.size) - np.repeat(starts, np.diff([*starts, ranked.size]))
        rows = rows.take(np.sort(order[ranked[rank < planted.most_rows]]))
    return rows, parse(world.policy(planted.world)).table(planted.table)


def table_unit(planted: Planted) -> str:
    """The column of the person."""
    unit = parse(world.policy(planted.world)).table(planted.table).unit
    assert unit is not None
    assert unit.column is not None
    return unit.column
