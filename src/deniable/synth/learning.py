"""Learning what a policy leaves open about single columns: where numbers are cut, and which shapes texts have.

Paid from the budget before anything else is measured. What is left of it is for the description: the shares that were
not needed go there too, since all measurements are Gaussian, and such may be chosen one after another as long as their
total is fixed (Smith and Thakurta 2022).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import pyarrow as pa

from deniable.dp.accounting import GaussianEvent
from deniable.dp.accounting.analytic import SMOOTHING
from deniable.dp.samplers import SYSTEM, Entropy
from deniable.synth import shapes
from deniable.synth.attributes import Attribute, Bins, Made, Shaped, prefix
from deniable.synth.coding import places, whole
from deniable.synth.cuts import cut, rounds
from deniable.synth.marginal import Marginal
from deniable.synth.spending import Spending

CUTS, SHAPES = 0.05, 0.1
"""The most that cutting all numbers, and learning the shapes of all texts, may take of the amount."""


@dataclass(frozen=True, slots=True)
class Learned:
    """Attributes with nothing left open, what is left to spend, and what was run."""

    attributes: tuple[Attribute, ...]
    spend: Spending
    events: tuple[GaussianEvent, ...]


def learn(
    attributes: tuple[Attribute, ...], rows: Mapping[str, pa.ChunkedArray], spend: Spending, entropy: Entropy = SYSTEM
) -> Learned:
    """Learn the open columns of rows that are bounded already."""
    numbers = [a for a in attributes if isinstance(a, Bins) and rounds(a)]
    texts = [a for a in attributes if isinstance(a, Shaped) and not a.shapes]
    found: dict[str, Attribute] = {}
    measured: list[Marginal] = []
    for number in numbers:
        steps, null = places(number, whole(rows[number.name]))
        found[number.name], run = cut(number, steps[~null], spend, CUTS / len(numbers), entropy)
        measured += run
    for text in texts:
        learned, run = shapes.learn(_texts(rows[text.name]), spend, SHAPES / len(texts), entropy)
        found[text.name] = replace(text, shapes=learned)
        measured += run
    events = tuple(marginal.event for marginal in measured)
    known = settled(tuple(found.get(a.name, a) for a in attributes))
    return Learned(known, _left(spend, events), events)


def settled(attributes: tuple[Attribute, ...]) -> tuple[Attribute, ...]:
    """Texts of which there is nothing to code are made anew, unless nothing at all would be left to code."""
    anew = tuple(_anew(a) if isinstance(a, Shaped) and a.size == 1 else a for a in attributes)
    return attributes if all(isinstance(a, Made) for a in anew) else anew


def _anew(attribute: Shaped) -> Made:
    return Made(attribute.name, attribute.type, prefix(attribute.name))


def _texts(column: pa.ChunkedArray) -> pa.Array:
    return whole(column).cast(pa.string())


def _left(spend: Spending, events: tuple[GaussianEvent, ...]) -> Spending:
    """The spending without what the events took of it: their squared sensitivity over their variance, summed.

    With smoothing a variance is a little larger than its share needs, so this counts less than was handed out; the
    whole shares that were used are taken off instead by counting the variance without it.
    """
    smoothing = SMOOTHING if spend.smoothed else 0
    spent = sum((e.sensitivity_squared / (e.variance - smoothing) for e in events), Fraction(0))
    return replace(spend, amount=spend.amount - spent)
