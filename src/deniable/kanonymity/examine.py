"""Examine a table that anybody hands in: its k, its l, its t, and its risks, as it stands.

Nothing is known of how it was made. Cells are compared as they are: a missing value is a value like any other, and so
is a star.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from deniable.errors import ParameterError
from deniable.kanonymity.classes import Classes, Reference, reference
from deniable.kanonymity.encode import column_of, distinct
from deniable.kanonymity.hierarchy import Codes
from deniable.kanonymity.models import BetaLikeness, Closeness, DeltaDisclosure, DistinctDiversity, EntropyDiversity
from deniable.kanonymity.models.base import Measured
from deniable.kanonymity.risk import Blame, Risks, Uniqueness, blame, population_uniqueness, risks
from deniable.kanonymity.tuples import Counts, Histograms, distinct_rows, histogram


@dataclass(frozen=True, slots=True)
class SensitiveFindings:
    """A sensitive column in the weakest class: the fewest values, the largest distances, and who is certain.

    `certain` is the share of rows in classes with one value only: their value is known to whoever finds the class.
    `ordered_t` is there for numbers and dates.
    """

    column: str
    distinct_l: int
    entropy_l: float
    t: float
    ordered_t: float | None
    beta: float
    delta: float
    certain: float


@dataclass(frozen=True, slots=True)
class Findings:
    """What a table holds."""

    rows: int
    classes: int
    k: int
    mean_class: float
    smallest_classes: int
    sensitive: tuple[SensitiveFindings, ...]
    risks: Risks
    blame: tuple[Blame, ...]
    uniqueness: Uniqueness | None = None


def examine(
    table: pa.Table,
    quasi_identifiers: tuple[str, ...],
    sensitive: tuple[str, ...] = (),
    *,
    fraction: float | None = None,
    threshold: float = 0.2,
    blames: bool = True,
) -> Findings:
    """Measure a table; `fraction` is the share of the population in it, for estimates of uniqueness there."""
    if not quasi_identifiers:
        raise ParameterError("No quasi-identifier is named", remedy="Name the columns an intruder may know")
    coded = [_codes(table, name) for name in quasi_identifiers]
    columns, spans = [codes for codes, _ in coded], [span for _, span in coded]
    many, _, class_of = distinct_rows(columns, spans)
    sizes = np.bincount(class_of, minlength=many).astype(np.int64)
    smallest = int(sizes.min(initial=table.num_rows)) if many else 0
    return Findings(
        table.num_rows,
        many,
        smallest,
        table.num_rows / many if many else 0.0,
        int((sizes == smallest).sum()),
        tuple(_sensitive(table, name, class_of, sizes) for name in sensitive) if many else (),
        risks(sizes, threshold=threshold),
        blame(quasi_identifiers, columns, spans) if blames and many else (),
        None if fraction is None else population_uniqueness(sizes, fraction),
    )


def _codes(table: pa.Table, name: str) -> tuple[Codes, int]:
    values, positions = distinct(column_of(table, name))
    return np.where(positions < 0, len(values), positions).astype(np.int32), len(values) + 1


def _sensitive(table: pa.Table, name: str, class_of: Counts, sizes: Counts) -> SensitiveFindings:
    values, positions = distinct(column_of(table, name))
    ranked = _is_ordered(values)
    if ranked:
        place = np.empty(len(values), np.int64)
        place[np.argsort(values.to_numpy(zero_copy_only=False), kind="stable")] = np.arange(len(values))
        positions = np.append(place, -1)[positions].astype(np.int32)
    codes = np.where(positions < 0, len(values), positions).astype(np.int32)
    size = len(values) + 1
    held = histogram(class_of, len(sizes), codes, size)
    against = reference(held.total())
    classes = Classes(sizes, {name: held}, {name: against})
    distinct_values = DistinctDiversity(name, 1).measure(classes)
    return SensitiveFindings(
        name,
        int(distinct_values.min()),
        float(EntropyDiversity(name, 1).measure(classes).min()),
        float(Closeness(name, 1.0).measure(classes).max()),
        float(_ordered(held, sizes, against).max()) if ranked else None,
        float(max(BetaLikeness(name, 1.0).measure(classes).max(), 0.0)),
        float(DeltaDisclosure(name, 1.0).measure(classes).max()),
        float(sizes[distinct_values == 1].sum() / sizes.sum()),
    )


def _is_ordered(values: pa.Array) -> bool:
    kind = values.type
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_temporal(kind))


def _ordered(held: Histograms, sizes: Counts, against: Reference) -> Measured:
    """Earth mover's distance along the order, without a compiled kernel: between entries the flow changes linearly.

    With S(v) the table's cumulative share and P the class's, P is constant between the class's own values, so the sum
    of |P - S| over a run of values is read off prefix sums of S, split where S crosses P.
    """
    there = np.flatnonzero(against.distribution > 0)
    place = np.zeros(against.size, np.int64)
    place[there] = np.arange(len(there))
    table = np.cumsum(against.distribution[there])
    sums = np.concatenate([[0.0], np.cumsum(table)])
    owner = np.repeat(np.arange(len(sizes)), np.diff(held.starts))
    order = np.lexsort((held.values, owner))
    owner, at = owner[order], place[held.values[order]]
    share = np.cumsum(held.counts[order]) - np.concatenate([[0], np.cumsum(sizes)])[owner]
    level = share / sizes[owner]
    last = np.append(owner[1:] != owner[:-1], True)
    first = np.append(True, owner[1:] != owner[:-1])
    until = np.where(last, len(there), np.append(at[1:], 0))
    cross = np.clip(np.searchsorted(table, level), at, until)
    gap = level * (2 * cross - at - until) + sums[at] + sums[until] - 2 * sums[cross]
    total = np.bincount(owner, weights=gap, minlength=len(sizes)) + np.bincount(owner[first], weights=sums[at[first]])
    return np.asarray(total / max(len(there) - 1, 1), np.float64)
