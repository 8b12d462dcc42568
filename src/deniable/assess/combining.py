"""What several releases tell together: the ways to combine them that apply, tried on the same people."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from deniable.attacks.base import Outcome
from deniable.attacks.combining import join_releases
from deniable.attacks.crossing import cross, publishes_means, shown, subtract_means
from deniable.attacks.resolutions import parents, subtract_maps
from deniable.errors import ParameterError

if TYPE_CHECKING:
    from deniable.assess.risk import Evidence, Settings

COUNT = "count"
"""The column that says, in a released map, how many rows a cell stands for."""


def combined(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    """Every way to combine the release with the others that applies; none is an error of the caller."""
    found = (*_crossed(evidence, settings), *_subtracted(evidence), *_joined(evidence, settings))
    if not found:
        raise ParameterError(
            "The releases have nothing to combine",
            expected="Columns in common: what an intruder knows, a sensitive column, or cells at two resolutions",
        )
    return found


def _crossed(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    """Crossing needs people: the original rows, which also score it, or a register of those who are in."""
    people = evidence.original if evidence.original is not None else evidence.register
    knows = evidence.knowledge or evidence.knows
    if people is None or not knows:
        return ()
    tables = (evidence.release, *evidence.others)
    found: list[Outcome] = []
    for name in evidence.sensitive:
        having = [place for place, table in enumerate(tables) if name in table.column_names]
        if len(having) < 2:
            continue
        noisy = [bool(evidence.noisy[place]) if place < len(evidence.noisy) else False for place in having]
        releases = shown([tables[place] for place in having], knows, noisy)
        if publishes_means(releases, name):
            found.append(subtract_means(releases, people, name))
        else:
            found += cross(
                releases, _sample(people, settings), name, scored=name in people.column_names, seconds=settings.seconds
            )
    return tuple(found)


def _subtracted(evidence: Evidence) -> tuple[Outcome, ...]:
    """Pairs of releases that show the known columns at two resolutions, the coarser one first."""
    found = []
    for other in evidence.others:
        columns = [name for name in evidence.knows if all(name in t.column_names for t in (evidence.release, other))]
        for coarse, fine in ((evidence.release, other), (other, evidence.release)):
            if columns and parents(coarse, fine, columns) is not None:
                counted = COUNT if all(COUNT in table.column_names for table in (coarse, fine)) else None
                found.append(subtract_maps(coarse, fine, columns, counted))
                break
    return tuple(found)


def _joined(evidence: Evidence, settings: Settings) -> tuple[Outcome, ...]:
    """Pairs of releases of which each shows what the other does not, joined on all that both show."""
    found = []
    for other in evidence.others:
        ours, theirs = evidence.release.column_names, other.column_names
        shared = [name for name in ours if name in theirs]
        if shared and set(theirs) - set(ours) and set(ours) - set(theirs):
            sample = _sample(evidence.release, settings)
            found.append(join_releases(sample, other, shared, seed=settings.seed, seconds=settings.seconds))
    return tuple(found)


def _sample(table: pa.Table, settings: Settings) -> pa.Table:
    generator = np.random.default_rng(settings.seed)
    size = min(settings.attacks, table.num_rows)
    return table.take(pa.array(np.sort(generator.choice(table.num_rows, size, replace=False))))
