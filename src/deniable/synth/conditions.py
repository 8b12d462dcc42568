"""Conditions: rows with given values alone, as `generate(where=...)` asks for them.

A value among values that the noise joined says no more of the other columns than all of them together do, so records
are drawn that have the joined value, and get the value itself (`generate.draw_meeting`). A value that no row can have
is refused, in the asker's own words."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import ParameterError, nearest
from deniable.synth.domain import Bins, Labels, arrow_type
from deniable.synth.encode import encode_column
from deniable.synth.estimate.residuals import project_to_simplex
from deniable.synth.marginal import Floats
from deniable.synth.model import Description, SynthModel

NULL_TEXT = "null"
"""How a condition writes null."""
LONGEST_SHOWN = 60
"""How much of a text of the asker's stands in a message."""


@dataclass(frozen=True, slots=True)
class Condition:
    """Columns with the values that rows have there, their codes, and the share of rows that is guessed to fit."""

    values: tuple[tuple[str, pa.Scalar], ...]
    codes: Mapping[int, int] = field(default_factory=dict)
    """By the place of the column in the model's domain."""
    share: float = 1.0

    def fits(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Of each row, whether it fits."""
        found = pa.array(np.ones(rows.num_rows, dtype=bool))
        for name, value in self.values:
            column = rows.column(name)
            held = pc.equal(column.cast(value.type, safe=False), value) if value.is_valid else pc.is_null(column)
            found = pc.and_(found, pc.fill_null(held, False))
        return found


def parse_condition(text: str) -> dict[str, str]:
    """Conditions as they are written.

    >>> parse_condition("sex=F, zip=02138")
    {'sex': 'F', 'zip': '02138'}
    """
    try:
        parts = [part.partition("=") for part in next(csv.reader([text], skipinitialspace=True), [])]
    except csv.Error:  # a line break outside quotes, or a text that is far too long
        parts = []
    names = {name.strip() for name, sign, _ in parts if sign}
    if not names or len(names) < len(parts) or "" in names:
        expected = 'Each column once, separated by commas: sex=F,payer=null; "town=A, B" where a value has a comma'
        raise ParameterError("a condition cannot be read", expected=expected)
    return {name.strip(): value.strip() for name, _, value in parts}


def build_condition(model: SynthModel, where: Mapping[str, str]) -> Condition:
    """The condition that a model's rows can meet; what none can meet is refused."""
    known = {attribute.name: attribute for attribute in model.attributes if isinstance(attribute, Labels | Bins)}
    values, names = parse_values(known, where), model.description.domain.names
    codes = {names.index(name): int(encode_column(known[name], pa.array([value]))[0]) for name, value in values}
    # As if columns were independent: a guess.
    shares = (estimate_share(model.description, place, code) for place, code in codes.items())
    return Condition(values, codes, math.prod(shares))


def parse_values(known: Mapping[str, Labels | Bins], where: Mapping[str, str]) -> tuple[tuple[str, pa.Scalar], ...]:
    """The values that are meant, by the columns that conditions can speak of."""
    for name in where:
        if name not in known:
            raise ParameterError(
                f"the model has no column '{_show_text(name)}' that conditions can speak of",
                expected=f"Columns with declared values: {', '.join(known)}",
                remedy=nearest(name, known) if len(name) <= LONGEST_SHOWN else "",
            )
    return tuple((name, _parse_scalar(known[name], text)) for name, text in where.items())


def estimate_share(description: Description, place: int, code: int) -> float:
    """The estimated share of records that have a value of a column."""
    joined = int(description.collapsed.maps[place][code])
    members = description.collapsed.members(place, joined)
    weights = weigh_members(description, place, members)
    within = float(weights[members == code].sum() / weights.sum())
    return within * float(description.estimates.columns[place][joined]) / max(description.estimates.total, 1.0)


def weigh_members(description: Description, place: int, members: NDArray[np.int64]) -> Floats:
    """What the values behind one joined code weigh: their noisy counts, made to be counts of the table that was seen.

    Counts are brought to the estimate of the joined code, never to the number of rows that are drawn: noise would weigh
    more the more the two differ.
    """
    if members.size == 1 or not description.one_way:
        return np.ones(members.size)
    estimated = float(description.estimates.columns[place][int(description.collapsed.maps[place][members[0]])])
    weights: Floats = project_to_simplex(description.one_way[place].counts[members], estimated) + 1e-9
    return weights


def _parse_scalar(attribute: Labels | Bins, text: str) -> pa.Scalar:
    kind = arrow_type(attribute)
    if text == NULL_TEXT and attribute.nullable:
        return pa.scalar(None, kind)
    try:
        value = pa.scalar(text, pa.string()).cast(kind)
    except (pa.ArrowInvalid, UnicodeEncodeError):
        value = pa.scalar(None, kind)
    if not value.is_valid or not _is_declared(attribute, value.as_py()):
        listed = [str(label) for label in attribute.labels] if isinstance(attribute, Labels) else []
        raise ParameterError(
            f"'{_show_text(text)}' is not a value of column '{attribute.name}'",
            remedy=nearest(text, listed) if len(text) <= LONGEST_SHOWN else "",
        )
    return value


def _show_text(text: str) -> str:
    """A text of the asker's in a message: not much of a long one, and no signs that cannot be printed."""
    shown = text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "..."
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in shown)


def _is_declared(attribute: Labels | Bins, value: Any) -> bool:
    if isinstance(attribute, Labels):
        return value in attribute.labels
    return attribute.holds(value)
