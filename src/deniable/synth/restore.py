"""From collapsed codes back to the full domain: a rare value becomes one of its members, in proportion to estimates."""

from __future__ import annotations

import numpy as np

from deniable.synth.conditional import apportioned
from deniable.synth.marginal import Codes
from deniable.synth.methods import Description
from deniable.synth.simplex import project


def restore(description: Description, drawn: Codes, seed: int | tuple[int, ...]) -> Codes:
    """The drawn records over the full domain."""
    start = seed if isinstance(seed, tuple) else (seed,)
    generator = np.random.default_rng((*start, 1))
    return np.stack([_column(description, place, drawn[place], generator) for place in range(len(description.domain))])


def _column(description: Description, place: int, drawn: Codes, generator: np.random.Generator) -> Codes:
    collapsed = description.collapsed
    values = np.empty(drawn.size, dtype=np.int32)
    for code in range(collapsed.domain.sizes[place]):
        members, at = collapsed.members(place, code), np.flatnonzero(drawn == code)
        if members.size == 1:
            values[at] = members[0]
        elif at.size:
            weights = project(description.one_way[place].counts[members], float(at.size)) + 1e-9
            counts = apportioned(weights, at.size, generator)
            values[at] = generator.permutation(np.repeat(members, counts))
    return values
