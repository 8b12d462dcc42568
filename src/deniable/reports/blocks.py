"""What a page is made of: frozen nouns, holding numbers and words that are public already.

A page shows results; whoever makes one answers for what is in it. No block reads a table or computes a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from deniable.errors import ParameterError


class Tone(StrEnum):
    """How urgent a callout is; the word is printed, so that the color is never the only sign."""

    NOTE = "note"
    GOOD = "good"
    WARNING = "warning"
    DANGER = "danger"


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Running text; a blank line begins a new paragraph."""

    text: str


@dataclass(frozen=True, slots=True)
class KeyFigure:
    """One number worth remembering: the value as it shall be read, what it is, and a remark."""

    value: str
    label: str
    remark: str = ""


@dataclass(frozen=True, slots=True)
class KeyFigures:
    """Key figures in one row."""

    figures: tuple[KeyFigure, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and rows; numbers are set right-aligned, with separators between thousands.

    With `search`, the label of a search box, readers filter the rows by words; the last column is then added up.
    With `fold`, words to open it by, it is closed until somebody does.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    caption: str = ""
    search: str = ""
    fold: str = ""

    def __post_init__(self) -> None:
        ragged = [place for place, row in enumerate(self.rows, start=1) if len(row) != len(self.columns)]
        if ragged:
            happened = f"Row {ragged[0]} of a table has {len(self.rows[ragged[0] - 1])} cells"
            raise ParameterError(happened, expected=f"{len(self.columns)}, one for each column")

    @staticmethod
    def of(rows: Sequence[Mapping[str, object]], caption: str = "", search: str = "", fold: str = "") -> Table:
        """A table of dicts, with the columns in the order in which they first appear."""
        columns = tuple(dict.fromkeys(name for row in rows for name in row))
        return Table(columns, tuple(tuple(row.get(name) for name in columns) for row in rows), caption, search, fold)


@dataclass(frozen=True, slots=True)
class Callout:
    """A remark set apart: what to note, what is good, what to beware of."""

    text: str
    tone: Tone = Tone.NOTE
    title: str = ""


@dataclass(frozen=True, slots=True)
class Commands:
    """What to type, a line each, after a word of introduction."""

    lines: tuple[str, ...]
    lead: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    """A Vega-Lite specification with its caption; its `description` is the alt text, and its rows the table twin.

    `table` replaces the twin, where other columns tell it better.
    """

    spec: Mapping[str, Any]
    caption: str = ""
    table: Table | None = None

    def __post_init__(self) -> None:
        if not str(self.spec.get("description") or "").strip():
            raise ParameterError(
                "A plot has no alt text",
                expected="a 'description' in the specification: a sentence that says what it shows",
            )

    @property
    def twin(self) -> Table:
        """The drawn numbers as a table."""
        if self.table is not None:
            return self.table
        rows = self.spec.get("data", {}).get("values") or self.spec.get("usermeta", {}).get("rows") or []
        return Table.of(rows)


Block = Paragraph | KeyFigures | Table | Callout | Commands | Plot


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and what stands under it."""

    heading: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """A whole report: title, one sentence of lead, sections, and a line at the foot (what made it, when, from what)."""

    title: str
    sections: tuple[Section, ...]
    lead: str = ""
    foot: str = ""
    language: str = "en"
