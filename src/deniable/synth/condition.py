"""Conditions on generated rows: only those with given values. Post-processing of a public model: it costs nothing.

Rows are drawn and those that fit are kept, so what the other columns have to do with the condition stays as modeled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deniable.errors import ParameterError, nearest
from deniable.synth.domain import Bins, Labels, arrow_type
from deniable.synth.encode import encode_column
from deniable.synth.model import SynthModel

NULL = "null"


@dataclass(frozen=True, slots=True)
class Condition:
    """Columns with the values that kept rows have there, and the share of rows that is guessed to fit."""

    values: tuple[tuple[str, pa.Scalar], ...]
    share: float

    def keep(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that fit."""
        return rows.filter(self.fits(rows))

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
    parts = [part.partition("=") for part in text.split(",")]
    if any(not name.strip() or not sign for name, sign, _ in parts):
        raise ParameterError(
            "a condition cannot be read", expected="column=value, separated by commas: sex=F,payer=null"
        )
    return {name.strip(): value.strip() for name, _, value in parts}


def build_condition(model: SynthModel, where: Mapping[str, str]) -> Condition:
    """The condition that a model's rows can meet; what none can meet is refused."""
    known = {attribute.name: attribute for attribute in model.attributes if isinstance(attribute, Labels | Bins)}
    values = parse_values(known, where)
    return Condition(
        values,
        _estimate_share(model, [encode_column(known[name], pa.array([value])) for name, value in values], values),
    )


def parse_values(known: Mapping[str, Labels | Bins], where: Mapping[str, str]) -> tuple[tuple[str, pa.Scalar], ...]:
    """The values that are meant, by the columns that conditions can speak of."""
    for name in where:
        if name not in known:
            raise ParameterError(
                f"the model has no column '{name}' that conditions can speak of",
                expected=f"Columns with declared values: {', '.join(known)}",
                remedy=nearest(name, known),
            )
    return tuple((name, _parse_scalar(known[name], text)) for name, text in where.items())


def _estimate_share(
    model: SynthModel, codes: list[NDArray[np.int32]], values: tuple[tuple[str, pa.Scalar], ...]
) -> float:
    """The product of the estimated shares, as if columns were independent: a guess of how many rows to draw."""
    description, share = model.description, 1.0
    for code, (name, _) in zip(codes, values, strict=True):
        place = description.domain.names.index(name)
        counts = np.maximum(description.one_way[place].counts, 1.0)
        share *= float(counts[code[0]] / counts.sum())
    return share


def _parse_scalar(attribute: Labels | Bins, text: str) -> pa.Scalar:
    kind = arrow_type(attribute)
    if text == NULL and attribute.nullable:
        return pa.scalar(None, kind)
    try:
        value = pa.scalar(text, pa.string()).cast(kind)
    except pa.ArrowInvalid:
        value = pa.scalar(None, kind)
    if not value.is_valid or not _is_declared(attribute, value.as_py()):
        listed = [str(label) for label in attribute.labels] if isinstance(attribute, Labels) else []
        raise ParameterError(f"'{text}' is no value of column '{attribute.name}'", remedy=nearest(text, listed))
    return value


def _is_declared(attribute: Labels | Bins, value: Any) -> bool:
    if isinstance(attribute, Labels):
        return value in attribute.labels
    least, greatest = attribute.span(0, attribute.bins - 1)
    return bool(least <= value <= greatest)
