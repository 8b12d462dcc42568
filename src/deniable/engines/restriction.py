"""Restrictions: rows that a source does not show, wherever and however it is read.

People who withdrew are left out, an analyst with a row allow-list sees only the rows listed, and a record-level release
is cut down to a sample. An engine puts restrictions inside the view under which a source is known, so that no statement
can go around them. Their values may be data: they are never shown.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Listed:
    """Rows by the values of one column, written as text: kept only if listed, or left out if listed.

    A missing value is not listed.
    """

    column: str
    values: tuple[str, ...] = field(repr=False)
    keep: bool


@dataclass(frozen=True, slots=True)
class Sampled:
    """A share of the units (all rows of a value of `column` together), or of the rows where there is no column.

    `salt` makes the choice secret, and the same for every reading.
    """

    share: Fraction
    column: str | None
    salt: int = field(repr=False)


Restriction = Listed | Sampled


def fingerprint(restrictions: tuple[Restriction, ...]) -> list[str]:
    """Texts that differ when other rows are shown; for data versions."""
    return [hashlib.sha256(repr(_plain(each)).encode()).hexdigest() for each in restrictions]


def _plain(restriction: Restriction) -> tuple[object, ...]:
    if isinstance(restriction, Listed):
        return ("listed", restriction.column, sorted(restriction.values), restriction.keep)
    return ("sampled", str(restriction.share), restriction.column, restriction.salt)
