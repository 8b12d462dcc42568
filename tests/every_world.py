"""Minimality by brute force: every table that could lie behind a release is anonymized again.

The product deals values out class by class and asks its own search (`attacks.minimality`); here all worlds are listed,
so the two can be compared on small tables.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import permutations
from typing import Any

Row = tuple[Any, ...]
Anonymizer = Callable[[Sequence[Row]], Sequence[Row]]
"""What was run: exact rows (quasi-identifiers, then the sensitive value) to released rows."""


def infer_by_minimality(
    people: Sequence[Row], released: Sequence[Row], anonymizer: Anonymizer
) -> list[dict[Any, float]]:
    """For each person the shares of sensitive values over all ways to deal them out that give the same release."""
    ways = dict.fromkeys(permutations([row[-1] for row in released]))
    worlds = [[(*person, value) for person, value in zip(people, way, strict=True)] for way in ways]
    kept = [world for world in worlds if Counter(anonymizer(world)) == Counter(released)]
    counts = [Counter(world[place][-1] for world in kept) for place in range(len(released))]
    return [{value: n / len(kept) for value, n in count.items()} for count in counts]
