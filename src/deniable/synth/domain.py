"""Domain: the columns of a coded table, and how many values each has. One verb: `project`."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

from deniable.errors import ParameterError

Clique = tuple[int, ...]
"""Columns that are measured together, by their places, in rising order."""


@dataclass(frozen=True, slots=True)
class Domain:
    """Columns with the number of values each can take; codes run from 0 to size - 1.

    >>> Domain(("sex", "age"), (2, 90)).cells((0, 1))
    180
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    ordered: frozenset[int] = frozenset()
    """The places of columns whose neighboring codes are neighboring values."""
    given: frozenset[int] = frozenset()
    """The places of columns that are never drawn, only drawn from: what they have to do with one another is no use."""

    def __post_init__(self) -> None:
        if len(self.names) != len(self.sizes) or len(set(self.names)) != len(self.names):
            raise ParameterError("a domain has one size for each of its differently named columns")
        if any(size < 1 for size in self.sizes):
            raise ParameterError("a column of a domain has no value", expected="Sizes of at least 1")

    def __len__(self) -> int:
        return len(self.names)

    def project(self, clique: Clique) -> Domain:
        """The domain of some of the columns."""
        return Domain(tuple(self.names[place] for place in clique), tuple(self.sizes[place] for place in clique))

    def resized(self, sizes: tuple[int, ...]) -> Domain:
        """The same columns with other numbers of values."""
        return replace(self, sizes=sizes)

    def shape(self, clique: Clique) -> tuple[int, ...]:
        """The sizes of a clique's columns."""
        return tuple(self.sizes[place] for place in clique)

    def useful(self, size: int) -> list[Clique]:
        """All cliques of so many columns that are not wholly given.

        >>> Domain(("a", "b", "c"), (2, 2, 2), given=frozenset({0, 1})).useful(2)
        [(0, 2), (1, 2)]
        """
        cliques = itertools.combinations(range(len(self)), size)
        return [clique for clique in cliques if not self.given.issuperset(clique)]

    def cells(self, clique: Clique) -> int:
        """How many combinations a clique has."""
        return math.prod(self.shape(clique))
