"""How noisy numbers are shown to people: with their error beside them, as lines, tables of HTML and pictures.

Answers of a curator and of a server look alike because both are shown here; it needs the standard library alone.
"""

from __future__ import annotations

import html
import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from deniable.errors import ParameterError, StorageError, guard_arguments

MOST_LINES, MOST_SHOWN = 20, 200
"""Rows that are shown as lines of text, and in a table of HTML."""


class ShownNumbers:
    """Rows of numbers with their intervals, which look well in a terminal and in notebooks, and can be drawn."""

    __slots__ = ()

    @abstractmethod
    def to_pylist(self) -> Sequence[Mapping[str, Any]]:
        """A list of rows."""

    @property
    @abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The names of all columns, those of the ends of intervals too."""

    @property
    @abstractmethod
    def details(self) -> Mapping[str, Any]:
        """All that goes with the numbers: aggregates, cost, what is left, notes."""

    @abstractmethod
    def describe_cost(self) -> str:
        """What the numbers cost and what is left, in words."""

    @property
    def notes(self) -> list[str]:
        """What a reader must know to use the numbers, such as rows that were not counted."""
        return list(self.details.get("notes") or [])

    @property
    def epoch(self) -> str:
        """The epoch of the data in which it was given: within one, an equal question has this answer."""
        return str(self.details.get("epoch") or "")

    @property
    def remaining(self) -> Mapping[str, str] | None:
        """What was left after it; None without a budget."""
        left = self.details.get("remaining")
        return None if left is None else dict(left)

    def list_columns(self) -> list[str]:
        """The names of all columns, those of the ends of intervals too."""
        return list(self.columns)

    def scalar(self) -> Any:
        """The first number of the first row; None where there is no row."""
        rows, keys = self.to_pylist(), self._list_keys()
        names = [name for name in list_shown(self.list_columns()) if name not in keys]
        return rows[0][(names or keys)[0]] if rows else None

    def plot(self, *numbers: str) -> Plotted:
        """Bars with their intervals, one for each row, of all numbers or of those that are named; notebooks show it."""
        known = [name for name in self.list_columns() if f"{name}_low" in self.list_columns()]
        for name in numbers:
            if name not in known:
                expected = f"Numbers with an interval: {', '.join(known) or 'none'}"
                raise ParameterError(f"the answer has no number '{name}' to draw", expected=expected)
        if not known:
            raise ParameterError("the answer has no number with an interval to draw", remedy="Show it as a table")
        return Plotted(draw_panels(self.to_pylist(), numbers or known, self._list_keys()))

    def _list_keys(self) -> list[str]:
        """The columns that are neither numbers with an interval nor the ends of one."""
        names = self.list_columns()
        return [name for name in list_shown(names) if f"{name}_low" not in names]

    def render_rows(self) -> str:
        """The numbers with their error as a table of HTML."""
        shown, rows = list_shown(self.list_columns()), self.to_pylist()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in shown)
        body = "".join(f"<tr>{''.join(_cell(row, name) for name in shown)}</tr>" for row in rows[:MOST_SHOWN])
        more = f"<p>... and {len(rows) - MOST_SHOWN:,} more rows</p>" if len(rows) > MOST_SHOWN else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"

    def _repr_html_(self) -> str:
        """For notebooks: numbers with their error, and what they cost."""
        notes = "".join(f"<p>Note: {html.escape(note)}</p>" for note in self.notes)
        return f"{self.render_rows()}<p>{html.escape(self.describe_cost())}</p>{notes}"

    def render_lines(self) -> str:
        """The numbers with their error as lines of text."""
        shown, rows = list_shown(self.list_columns()), self.to_pylist()
        lines = ["  ".join(f"{name} {show_number(row, name)}" for name in shown) for row in rows[:MOST_LINES]]
        more = [f"... and {len(rows) - MOST_LINES:,} more rows"] if len(rows) > MOST_LINES else []
        return "\n".join([*(lines or ["no row"]), *more])

    def __repr__(self) -> str:
        return "\n".join([self.render_lines(), self.describe_cost(), *(f"Note: {note}" for note in self.notes)])


guard_arguments(ShownNumbers)
Shown = TypeVar("Shown", bound=ShownNumbers)


class ShownBatch(Generic[Shown]):
    """The answers to several questions that were asked together, in their order; a sequence of answers."""

    __slots__ = ()

    answers: tuple[Shown, ...]

    @abstractmethod
    def list_questions(self) -> Sequence[str]:
        """The questions, in their order."""

    @property
    def paid(self) -> Shown:
        """An answer that states the cost of the whole batch: the first that is not free."""
        return next((answer for answer in self.answers if answer.details.get("aggregates")), self.answers[0])

    @property
    def remaining(self) -> Mapping[str, str] | None:
        """What was left after them; None without a budget."""
        return self.paid.remaining

    def __len__(self) -> int:
        return len(self.answers)

    def __iter__(self) -> Iterator[Shown]:
        return iter(self.answers)

    def __getitem__(self, place: int) -> Shown:
        return self.answers[place]

    def _repr_html_(self) -> str:
        """For notebooks: each question with its numbers; then what all of them cost."""
        shown = [
            f"<p><code>{html.escape(text)}</code></p>{answer.render_rows()}"
            for text, answer in zip(self.list_questions(), self.answers, strict=True)
        ]
        return f"{''.join(shown)}<p>{html.escape(self.paid.describe_cost())}</p>"

    def __repr__(self) -> str:
        pairs = zip(self.list_questions(), self.answers, strict=True)
        return "\n".join([*(f"{text}\n{answer.render_lines()}" for text, answer in pairs), self.paid.describe_cost()])


def list_shown(columns: Sequence[str]) -> list[str]:
    """The columns without the ends of intervals."""
    ends = {f"{name}_{end}" for name in columns for end in ("low", "high")}
    return [name for name in columns if name not in ends]


def show_number(row: Mapping[str, Any], name: str) -> str:
    """One value of a row, with its error where it has one: the digits follow the error, of which two are shown.

    >>> show_number({"n": 1204.5, "n_low": 1190.5, "n_high": 1218.5}, "n")
    '1,204 ± 14'
    >>> show_number({"n": 43.8725, "n_low": 40.7305, "n_high": 47.0145}, "n"), show_number({"n": 15000912345.5}, "n")
    ('43.9 ± 3.1', '15,000,912,346')
    """
    value, low, high = row[name], row.get(f"{name}_low"), row.get(f"{name}_high")
    if low is None or high is None:
        return _show_plain(value)
    error = (high - low) / 2
    if not 1e-6 < error < math.inf:
        return f"{_show_plain(value)} ± {error:,.4g}"
    digits = max(0, 1 - math.floor(math.log10(error)))
    shown = f"{value:,.{digits}f}" if isinstance(value, float) else _show_plain(value)
    return f"{shown} ± {error:,.{digits}f}"


def _show_plain(value: Any) -> str:
    """A value without an error: six digits of a number, and all before its point."""
    if isinstance(value, float):
        return f"{value:,.0f}" if 1e5 <= abs(value) < 1e18 else f"{value:,.6g}"
    return f"{value:,}" if type(value) is int else str(value)


def _cell(row: Mapping[str, Any], name: str) -> str:
    number, mark, error = show_number(row, name).partition(" ± ")
    return f"<td>{html.escape(number)}{f' <small>&plusmn; {html.escape(error)}</small>' if mark else ''}</td>"


@dataclass(frozen=True, slots=True, repr=False)
class Plotted:
    """A picture of an answer: `svg` is its text, which notebooks show and files may hold."""

    svg: str

    def __repr__(self) -> str:
        return f"<picture in SVG, {len(self.svg):,} characters; .save('name.svg') writes it>"

    def _repr_svg_(self) -> str:
        return self.svg

    def save(self, path: str | Path) -> Path:
        """Write the picture to an SVG file."""
        if Path(path).suffix.lower() != ".svg":
            raise ParameterError(
                f"a picture cannot be written as '{Path(path).suffix}'",
                expected="A file whose name ends in .svg",
                remedy="Browsers, Word and LibreOffice open SVG files, and convert them",
            )
        try:
            Path(path).write_text(self.svg, encoding="utf-8")
        except OSError as failure:
            why = failure.strerror or type(failure).__name__
            raise StorageError(f"{path} could not be written ({why})", remedy="Name another file", charge="") from None
        return Path(path)


LEFT, WIDE, LINE = 180, 360, 24
"""Where bars begin, how wide they may be, and how high a row is, in pixels."""
MOST_LETTERS = 26
"""Letters of a label; the whole of it is shown when it is pointed at."""


def draw_panels(rows: Sequence[Mapping[str, Any]], numbers: Sequence[str], keys: Sequence[str]) -> str:
    """Bars with intervals as SVG: a panel for each number, with its own axis, and in it a bar for each row."""
    high = LINE * len(rows) + 3 * LINE
    panels = [
        f'<g transform="translate(0 {place * high})">{_draw_panel(rows, name, keys)}</g>'
        for place, name in enumerate(numbers)
    ]
    size = f'width="{LEFT + WIDE + 40}" height="{high * len(numbers)}"'
    words = html.escape(f"{', '.join(numbers)} of {len(rows)} rows, with intervals", quote=True)
    begin = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{words}"'
    return f'{begin} font-family="sans-serif" font-size="12">{"".join(panels)}</svg>'


def _draw_panel(rows: Sequence[Mapping[str, Any]], number: str, keys: Sequence[str]) -> str:
    names = (number, f"{number}_low", f"{number}_high")
    spans = [None if any(row.get(name) is None for name in names) else [float(row[name]) for name in names]
             for row in rows]  # fmt: skip
    ends = [end for span in spans if span for end in span if math.isfinite(end)]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    high = high if high > low else low + 1
    foot = LINE * len(rows) + 30

    def place(value: float) -> float:
        """Where a number stands; an end that is not known lies at the edge."""
        return LEFT + (min(max(value, low), high) - low) / (high - low) * WIDE

    lines = [f'<text x="{LEFT}" y="18" font-weight="bold">{html.escape(number)}</text>']
    for tick in _choose_ticks(low, high):
        x = place(tick)
        lines.append(
            f'<path d="M{x:.1f} 26V{foot}" stroke="#ccc"/>'
            f'<text x="{x:.1f}" y="{foot + 16}" text-anchor="middle" fill="#555">{tick:,.6g}</text>'
        )
    for line, (row, span) in enumerate(zip(rows, spans, strict=True)):
        top = LINE * line + 30
        label = ", ".join(str(row[key]) for key in keys) or number
        short = html.escape(label if len(label) <= MOST_LETTERS else f"{label[: MOST_LETTERS - 1]}…")
        lines.append(
            f'<text x="{LEFT - 8}" y="{top + 12}" text-anchor="end">{short}<title>{html.escape(label)}</title></text>'
        )
        if span is None:
            lines.append(f'<text x="{place(0):.1f}" y="{top + 12}" fill="#555">no value</text>')
            continue
        zero, end, left, right = (place(value) for value in (0.0, *span))
        lines.append(
            f'<rect x="{min(zero, end):.1f}" y="{top}" width="{abs(end - zero):.1f}" height="16" fill="#4c78a8"/>'
            f'<path d="M{left:.1f} {top + 8}H{right:.1f}" stroke="#222" stroke-width="2"/>'
        )
    return "".join(lines)


def _choose_ticks(low: float, high: float) -> list[float]:
    """Round numbers from low to high, three to seven of them.

    >>> _choose_ticks(0, 1218.5)
    [0.0, 500.0, 1000.0]
    """
    rough = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= rough)
    return [step * place for place in range(math.ceil(low / step), math.floor(high / step) + 1)]
