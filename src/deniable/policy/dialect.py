"""How a CSV file is written, where that cannot be found out from the file itself."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from enum import StrEnum


class BadRows(StrEnum):
    """What to do with lines of a CSV file that do not fit."""

    REFUSE = "refuse"
    """Refuse the file, naming the lines (the default)."""
    SKIP = "skip"
    """Leave out lines with too many or too few fields, and read a value of the wrong type as null."""


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """How a CSV file is written; whatever is None is found out from the file.

    `encoding` is any codec that Python knows. Without it a byte-order mark decides, then UTF-8 is expected; no other
    encoding is guessed, since a wrong guess changes names silently.
    """

    delimiter: str | None = None
    quote: str | None = None
    header: bool | None = None
    encoding: str | None = None
    null: str = ""
    bad_rows: BadRows = BadRows.REFUSE


def written_in(encoding: str | None) -> CsvDialect | None:
    """How a CSV file is written whose encoding alone was told; None finds out, and expects UTF-8."""
    return None if encoding is None else CsvDialect(encoding=encoding)


def codec(name: str) -> str | None:
    """The one name of an encoding of text, or None if there is none of that name.

    >>> codec("Latin1"), codec("rot13"), codec("latin-11")
    ('iso8859-1', None, None)
    """
    try:
        "".encode(name)  # refuses codecs that are known and not of text, such as rot13
        return codecs.lookup(name).name
    except (LookupError, ValueError):
        return None
