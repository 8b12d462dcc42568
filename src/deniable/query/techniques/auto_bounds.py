"""Automatic bounds: a noisy histogram over powers of two, of both signs, finds where a column's values are.

Bounds that were read from the data would leak its extremes. So a share of the budget buys a histogram with fixed bins
(0, then (1, 2], (2, 4], ... and the same below zero): an ordinary question, compiled, priced and charged like any.
The bounds are the outer edges of the bins that rise above what noise alone reaches, so single extreme rows are clamped.

**Guarantee.** That of the question: each unit is in one bin. The rest is post-processing.
**Utility.** With the stated confidence no empty bin is taken for a full one; a bin is found once it has about twice the
threshold of units. Bounds are powers of two, at most twice as wide as needed.
"""

# ruff: noqa: S608  (the text made here is a question for our own compiler, which refuses what it does not know)

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from deniable.errors import QueryRefused, nearest
from deniable.policy.schema import Column, TableSchema
from deniable.query.algebra.expression import Call, Expression, Kind
from deniable.query.execute import NoisyResults
from deniable.query.plan import QueryPlan

LARGEST = 52
"""The outermost edge is 2^52; beyond it values count as in the outermost bin."""
FINEST = {True: 0, False: -10}
"""The innermost edge by whether the column holds whole numbers: 2^0 = 1, or 2^-10."""
LEAST = 10
"""A bin needs more units than this, however little noise there is: bounds are for the many, not for an outlier."""
SHARE = Fraction(1, 10)
"""The part of a question's budget that AUTO_CLAMP spends on finding bounds."""


@dataclass(frozen=True, slots=True)
class FoundBounds:
    """Noisy bounds: public, like any answer. `found` is false where no bin rose above the noise."""

    lower: Fraction
    upper: Fraction
    threshold: int
    """A bin counted from so many units (with noise) on."""
    found: bool = True

    @property
    def written(self) -> tuple[str, str]:
        """Both ends as SQL numbers."""
        return _render_number(self.lower), _render_number(self.upper)


def _render_number(value: Fraction) -> str:
    return str(int(value)) if value.denominator == 1 else f"{float(value):.10f}".rstrip("0")


def bin_edges(whole: bool) -> tuple[Fraction, ...]:
    """The positive edges of the bins, rising."""
    return tuple(Fraction(2) ** power for power in range(FINEST[whole], LARGEST + 1))


def write_bounds_query(table: TableSchema, column: Column) -> str:
    """The question whose answer has one row for each bin: its number (0 around zero, negative below) and its units."""
    name = f'"{column.name}"'
    unit = table.unit.column if table.unit else None
    counted = f'COUNT(DISTINCT "{unit}")' if unit else "COUNT(*)"
    options = "WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 1) " if unit else ""
    bins = _render_bins(name, column.type == "integer")
    return f'SELECT {options}{bins} AS bin, {counted} AS units FROM "{table.name}" WHERE {name} IS NOT NULL GROUP BY 1'


def write_bounds_query_over(argument: str, rows: str, condition: str, named: str = "") -> str:
    """The same for an expression over the rows of FROM, JOIN and WHERE: each unit counts once, by one of its rows."""
    select = "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (max_groups_contributed = 1, max_rows_per_group = 1)"
    where = f"({condition}) AND ({argument}) IS NOT NULL" if condition else f"({argument}) IS NOT NULL"
    bins = _render_bins(f"({argument})", whole=False)
    return f"{named} {select} {bins} AS bin, COUNT(*) AS units {rows} WHERE {where} GROUP BY 1".strip()


def _render_bins(name: str, whole: bool) -> str:
    rising, zero = bin_edges(whole), "0" if whole else _render_number(bin_edges(False)[0] / 2)
    above = [f"WHEN {name} > {_render_number(edge)} THEN {i + 2}" for i, edge in reversed(list(enumerate(rising[:-1])))]
    below = [
        f"WHEN {name} < {_render_number(-edge)} THEN {-(i + 2)}" for i, edge in reversed(list(enumerate(rising[:-1])))
    ]
    inner = [f"WHEN {name} > {zero} THEN 1", f"WHEN {name} < -{zero} THEN -1"]
    return f"CASE {' '.join([*above, *below, *inner])} ELSE 0 END"


def find_numeric_column(table: TableSchema, name: str) -> Column:
    """The column to be bounded, or a refusal that names the nearest."""
    known = {column.name.lower(): column for column in table.columns}
    column = known.get(name.lower())
    if column is None:
        raise QueryRefused(f"there is no column '{name}' in '{table.name}'", remedy=nearest(name, known))
    if not column.type.numeric:
        raise QueryRefused(f"bounds are found for numbers, and '{column.name}' is {column.type}")
    if table.public:
        raise QueryRefused(f"'{table.name}' is public: its bounds need no privacy")
    return column


def read_bounds(plan: QueryPlan, measured: NoisyResults, whole: bool, confidence: float) -> FoundBounds:
    """The outer edges of the bins that rise above the noise; those of whole numbers begin at 1."""
    node = plan.nodes[0]
    noisy = measured[node.node.name][0]
    bins = np.array(noisy.keys.column(0).to_pylist(), dtype=np.int64)
    threshold = max(node.steps[0].placed[0].accuracy(1 - confidence, max(bins.size, 1)), LEAST)
    full = np.sort(bins[noisy.values[0] > threshold])
    if not full.size:
        return FoundBounds(Fraction(0), Fraction(1), threshold, found=False)
    return FoundBounds(_lower_edge(int(full[0]), whole), _upper_edge(int(full[-1]), whole), threshold)


def round_bounds(found: FoundBounds, plan: QueryPlan) -> FoundBounds:
    """Bounds of an expression that has whole numbers are whole numbers too."""
    (_, bins), *_ = plan.nodes[0].node.keys
    if not any(ref.facts.kind is Kind.INTEGER for ref in _find_compared(bins)):
        return found
    return replace(found, lower=Fraction(math.floor(found.lower)), upper=Fraction(math.ceil(found.upper)))


def _find_compared(bins: Expression) -> Iterator[Expression]:
    """What the first condition of the CASE compares with an edge."""
    if isinstance(bins, Call) and isinstance(bins.arguments[0], Call):
        yield bins.arguments[0].arguments[0]


def _upper_edge(number: int, whole: bool) -> Fraction:
    """The upper edge of a bin: 0 is around zero, 1 ends at the first edge, -1 at zero."""
    if number <= 0:
        return Fraction(0) if number == 0 or number == -1 else -bin_edges(whole)[-number - 2]
    return bin_edges(whole)[number - 1]


def _lower_edge(number: int, whole: bool) -> Fraction:
    return -_upper_edge(-number, whole)
