"""From collapsed codes back to the full domain: a rare value becomes one of its members, in proportion to estimates."""

from __future__ import annotations

import numpy as np

from deniable.synth.conditional import apportioned
from deniable.synth.description import Description
from deniable.synth.marginal import Codes
from deniable.synth.simplex import project


def restore(description: Description, drawn: Codes, seed: int | tuple[int, ...]) -> Codes:
    """The drawn records over the full domain."""
    start = seed if isinstance(seed, tuple) else (seed,)
    generator = np.random.default_rng((*start, 1))
    return np.stack([_column(description, place, drawn[place], generator) for place in range(len(description.domain))])


def _column(description: Description, place: int, drawn: Codes, generator: np.random.Generator) -> Codes:
    collapsed = description.collapsed
    members = [collapsed.members(place, code) for code in range(collapsed.domain.sizes[place])]
    values: Codes = np.array([own[0] for own in members], dtype=np.int32)[drawn]
    if all(own.size == 1 for own in members):
        return values
    order = np.argsort(drawn.astype(np.uint16) if len(members) <= 1 << 16 else drawn, kind="stable")  # radix sort
    ends = np.cumsum(np.bincount(drawn, minlength=len(members)))
    for own, at in zip(members, np.split(order, ends[:-1]), strict=True):
        if own.size > 1 and at.size:
            weights = project(description.one_way[place].counts[own], float(at.size)) + 1e-9
            values[at] = generator.permutation(np.repeat(own, apportioned(weights, at.size, generator)))
    return values
