"""Columns that borrow from one another (`like`): followed to the one that states it, and never in a circle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from deniable.errors import Place
from deniable.policy.mistakes import Mistakes

T = TypeVar("T")


def follow(
    likes: Mapping[str, str], stated: Mapping[str, T], what: str, places: Mapping[str, Place], mistakes: Mistakes
) -> dict[str, T]:
    """For each borrowing column what the column at the end of its chain states; unknown names are left to others."""
    found: dict[str, T] = {}
    for name in likes:
        path, here = [name], likes[name]
        while here in likes and here not in path:
            path.append(here)
            here = likes[here]
        if here in path:
            circle = path[path.index(here) :]
            if name == min(circle):  # a circle is one mistake, whoever leads into it
                way = " -> ".join([*circle, here])
                mistakes.add(places[name], f"column '{name}' takes its {what} from itself: {way}", "One states its own")
        elif here in stated and stated[here] is None:
            mistakes.add(places[name], f"column '{name}' takes its {what} from '{here}', which has none")
        elif here in stated:
            found[name] = stated[here]
    return found
