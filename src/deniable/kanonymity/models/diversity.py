"""Models about how many sensitive values a class holds: distinct, entropy and recursive l-diversity.

Each counts rows, or people where `person` names the column that tells them apart.

A missing value may be any value, and makes no class more diverse: it counts as the commonest one of its class. Of all
that missing values could be, this is the least diverse, in each of these models; so what is monotone stays so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from deniable.kanonymity.encoding import Histograms
from deniable.kanonymity.hierarchy import Codes
from deniable.kanonymity.models.base import (
    SLACK,
    Classes,
    Measured,
    PrivacyModel,
    Verdicts,
    name_pairs,
    refuse_below,
    refuse_not_above,
    say_unit,
)

Places = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DistinctDiversity:
    """Every class holds at least l different sensitive values (Machanavajjhala et al. 2006).

    **Holds when** the number of different known values in the class is at least l. Counted in people: when l different
    people of the class have l different values between them, one each. Then no few people carry the diversity by having
    many values: whoever sets one person's rows aside, that person for instance, still finds l - 1.
    **Protects against** certainty about the value of a known row, **and not** against a strong guess: one value may
    still be nearly everybody's.
    **Monotone under** generalization and suppression: more rows never remove a value, nor a person who has it.
    """

    column: str
    l: int  # noqa: E741  the field's own letter
    person: str | None = None
    under_generalization: ClassVar[bool] = True
    under_suppression: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_below("l", self.l, 1)

    def measure(self, classes: Classes) -> Measured:
        """The number of different values; of people with different values, l or more being all the same."""
        if self.person is not None:
            return _match_people(classes, self.column, self.l)
        held, missing = classes.histograms(self.column), classes.references[self.column].missing
        values = np.diff(held.starts)
        return (values - (_find_missing(held, missing) & (values > 1))).astype(np.float64)

    def meets(self, measured: Measured) -> Verdicts:
        """At least l."""
        return measured >= self.l

    def list_implied(self) -> tuple[PrivacyModel, ...]:
        """Itself, and where people are counted, as many different values in rows, which are counted faster."""
        return (self,) if self.person is None else (DistinctDiversity(self.column, self.l), self)

    def bound_losses(self, measured: Measured, classes: Classes) -> Measured:
        """All rows of a class with too few values: its parts have no more."""
        return np.where(self.meets(measured), 0, classes.sizes)

    def __str__(self) -> str:
        return f"distinct {self.l}-diversity of {self.column}{say_unit(self.person)}"


def _find_missing(held: Histograms, missing: int) -> NDArray[np.bool_]:
    """Which classes have missing values."""
    there = np.zeros(len(held.starts) - 1, np.bool_)
    there[held.owners()[held.values == missing]] = True
    return there


def _count_missing_with_commonest(held: Histograms, missing: int) -> Histograms:
    """Histograms in which missing values are the commonest value of their class; where there is no other, they stay."""
    owner, gone = held.owners(), held.values == missing
    gone &= np.diff(held.starts)[owner] > 1
    if not gone.any():
        return held
    counts = held.counts.copy()
    order = np.lexsort((np.where(gone, -1, counts), owner))
    commonest = order[held.starts[1:] - 1]  # of a class without entries another's, which nobody asks for
    counts[commonest[owner[gone]]] += counts[gone]
    starts = np.concatenate([[0], np.cumsum(np.bincount(owner[~gone], minlength=len(held.starts) - 1))])
    return Histograms(starts, held.values[~gone], counts[~gone], held.size)


def _match_people(classes: Classes, column: str, enough: int) -> Measured:
    """How many people of each class have different values, one each; counting may end where they are enough.

    Where every person picks the value that the fewest others of the class have, the values picked are a number that is
    reached. Only where it is below both `enough` and what the class could reach, people are matched one by one.
    """
    every = classes.histograms(name_pairs(column))
    known = _part_pairs(classes, column, every)[0] != classes.references[name_pairs(column)].missing
    starts = np.concatenate([[0], np.cumsum(np.bincount(every.owners()[known], minlength=len(classes)))])
    held = Histograms(starts, every.values[known], every.counts[known], every.size)
    owner, (value, person) = held.owners(), _part_pairs(classes, column, held)
    few = np.minimum(_count_pairs(owner, value, len(classes))[0], _count_pairs(owner, person, len(classes))[0])
    of_value = _count_pairs(owner, value, len(classes))[1]
    order = np.lexsort((of_value, person, owner))
    first = np.ones(len(order), np.bool_)
    first[1:] = (np.diff(owner[order]) != 0) | (np.diff(person[order]) != 0)
    picks = order[first]
    reached = _count_pairs(owner[picks], value[picks], len(classes))[0].astype(np.float64)
    for c in np.flatnonzero((reached < few) & (reached < enough)):
        part = slice(held.starts[c], held.starts[c + 1])
        reached[c] = _match(value[part].tolist(), person[part].tolist())
    return np.maximum(reached, np.diff(every.starts) > 0)


def _part_pairs(classes: Classes, column: str, held: Histograms) -> tuple[Codes, Codes]:
    pairs = classes.references[name_pairs(column)].pairs
    assert pairs is not None
    return pairs[0][held.values], pairs[1][held.values]


def _count_pairs(owner: Places, codes: Codes, many: int) -> tuple[Places, Places]:
    """How many different codes each owner has, and for each entry how many entries of its owner have its code."""
    span = int(codes.max(initial=0)) + 1
    keys, place, counts = np.unique(owner * span + codes, return_inverse=True, return_counts=True)
    return np.bincount(keys // span, minlength=many), counts[place]


def _match(values: list[int], people: list[int]) -> int:
    """The most values that can be given to different people who have them, by augmenting paths (Kuhn 1955)."""
    having: dict[int, list[int]] = {}
    for value, person in zip(values, people, strict=True):
        having.setdefault(value, []).append(person)
    given: dict[int, int] = {}
    holder: dict[int, int] = {}
    return sum(_give(value, having, given, holder) for value in having)


def _give(value: int, having: dict[int, list[int]], given: dict[int, int], holder: dict[int, int]) -> bool:
    """Find a person for one more value, where others may have to pass theirs on."""
    came: dict[int, int] = {}
    waiting = [value]
    for wanted in waiting:
        for person in having[wanted]:
            if person in came:
                continue
            came[person] = wanted
            if person in given:
                waiting.append(given[person])
                continue
            _pass_on(person, came, given, holder)
            return True
    return False


def _pass_on(free: int, came: dict[int, int], given: dict[int, int], holder: dict[int, int]) -> None:
    """Give a free person the value by which the search came, and so on back to the value that had nobody."""
    person: int | None = free
    while person is not None:
        value = came[person]
        before = holder.get(value)
        given[person], holder[value] = value, person
        person = before


@dataclass(frozen=True, slots=True)
class EntropyDiversity:
    """The values of every class are as uncertain as l equally likely ones.

    **Holds when** 2 to the power of the entropy of the class's values is at least l.
    **Protects against** strong guesses as well as certainty, **and not** against similar values or skewness.
    **Monotone under** generalization (entropy is concave), not suppression: a class of one value merged in lowers it.
    """

    column: str
    l: float  # noqa: E741
    person: str | None = None
    under_generalization: ClassVar[bool] = True
    under_suppression: ClassVar[bool] = False

    def __post_init__(self) -> None:
        refuse_below("l", self.l, 1)

    def measure(self, classes: Classes) -> Measured:
        """The effective number of values."""
        held, sizes, against = classes.weigh(self.column, self.person)
        held = _count_missing_with_commonest(held, against.missing)
        weighted = held.counts * np.log(held.counts)
        sums = np.bincount(held.owners(), weights=weighted, minlength=len(classes))
        return np.exp(np.log(sizes) - sums / sizes)

    def meets(self, measured: Measured) -> Verdicts:
        """At least l."""
        return measured >= self.l * (1 - SLACK)

    def list_implied(self) -> tuple[PrivacyModel, ...]:
        """At least so many different values, since entropy is at most the logarithm of their number."""
        return (DistinctDiversity(self.column, math.ceil(self.l * (1 - SLACK))),)

    def bound_losses(self, measured: Measured, _classes: Classes, /) -> Measured:
        """Nothing is known."""
        return np.zeros(len(measured))

    def __str__(self) -> str:
        return f"entropy {self.l:g}-diversity of {self.column}{say_unit(self.person)}"


@dataclass(frozen=True, slots=True)
class RecursiveDiversity:
    """The most frequent value is not too frequent: recursive (c, l)-diversity.

    **Holds when** r1 < c (rl + ... + rm), where r1 >= r2 >= ... are the counts of the class's m values, or their
    weights where people are counted.
    **Protects against** guesses by somebody who can rule out l - 2 values, **and not** against similar values.
    **Monotone under** generalization (Machanavajjhala et al. 2006; their proof adds counts, and weights add up as
    well), not suppression.
    """

    column: str
    c: float
    l: int  # noqa: E741
    person: str | None = None
    under_generalization: ClassVar[bool] = True
    under_suppression: ClassVar[bool] = False

    def __post_init__(self) -> None:
        refuse_not_above("c", self.c, 0)
        refuse_below("l", self.l, 1)

    def measure(self, classes: Classes) -> Measured:
        """r1 / (rl + ... + rm), infinite where there are fewer than l values."""
        histograms, _, against = classes.weigh(self.column, self.person)
        histograms = _count_missing_with_commonest(histograms, against.missing)
        owner = histograms.owners()
        falling = histograms.counts[np.lexsort((-histograms.counts, owner))].astype(np.float64)
        starts = histograms.starts[:-1]
        rank = np.arange(len(falling)) - starts[owner]
        tail = np.bincount(owner, weights=np.where(rank >= self.l - 1, falling, 0.0), minlength=len(classes))
        most = np.append(falling, 0.0)[starts]
        ratios: Measured = np.divide(most, tail, out=np.full(len(classes), np.inf), where=tail > 0)
        return ratios

    def meets(self, measured: Measured) -> Verdicts:
        """Below c."""
        return measured < self.c

    def list_implied(self) -> tuple[PrivacyModel, ...]:
        """At least l different values, or the sum on the right is empty."""
        return (DistinctDiversity(self.column, self.l),)

    def bound_losses(self, measured: Measured, _classes: Classes, /) -> Measured:
        """Nothing is known."""
        return np.zeros(len(measured))

    def __str__(self) -> str:
        return f"recursive ({self.c:g}, {self.l})-diversity of {self.column}{say_unit(self.person)}"
