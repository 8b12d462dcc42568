"""Charts as SVG text: intervals of noisy numbers, and what was spent over time.

Places along the width are percentages and everything else is in pixels, so that a chart fills a phone or a desk and its
words keep their size. Colors are classes of the style sheet; nothing here needs a script."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from markupsafe import Markup

from deniable.curator.query.metadata import format_figure
from deniable.policy.yaml_tree import reveal_controls

ROW, TOP, AXIS = 40, 6, 30
MOST_ROWS = 40
LONGEST_LINE, LINE = 38, 16
"""Letters of a label in one line, and how many pixels a further line takes."""
LONGEST_MARK = 5
"""Where numbers of an axis are longer, every second one is written: on a phone they would touch."""
LEFT, WIDTH = 2.0, 96.0
"""Percent of the width before the plot, and of the plot."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A noisy number with the ends of its interval; an end that is None is open."""

    label: str
    value: float
    low: float | None
    high: float | None


@dataclass(frozen=True, slots=True)
class Axis:
    """Numbers from one end to the other, with marks at round ones."""

    low: float
    high: float
    marks: tuple[float, ...]

    def place(self, value: float) -> str:
        """Where a number is, in percent of the width."""
        share = (value - self.low) / (self.high - self.low)
        return f"{LEFT + WIDTH * min(1.0, max(0.0, share)):.2f}%"


def choose_axis(values: Sequence[float], marks: int = 5) -> Axis:
    """An axis around numbers and 0, whose ends and marks are round.

    >>> choose_axis([12.0, 203.0]).marks
    (0, 50, 100, 150, 200, 250)
    """
    low, high = min(0.0, *values), max(0.0, *values)
    if high == low:
        high = 1.0
    rough = (high - low) / marks
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(each for each in (1, 2, 2.5, 5, 10) if rough <= each * power * 1.0000001)
    first, last = math.floor(low / step), math.ceil(high / step)
    rounded = tuple(_round(step * place) for place in range(first, last + 1))
    return Axis(rounded[0], rounded[-1], rounded)


def _round(value: float) -> float:
    near = float(f"{value:.10g}")
    return int(near) if near == int(near) else near


def draw_intervals(title: str, drawn: Sequence[Interval]) -> Markup:
    """One row for each number: its name, a dot where it is, and a bar over its interval; with a caption."""
    ends = [end for each in drawn for end in (each.value, each.low, each.high) if end is not None]
    if not ends or not all(map(math.isfinite, ends)):
        return Markup("")
    axis, labels = choose_axis(ends), [_break_label(each.label) for each in drawn]
    tops = list(accumulate((ROW + LINE * (len(lines) - 1) for lines in labels), initial=TOP))
    rows = Markup("").join(
        _draw_row(each, lines, axis, top) for each, lines, top in zip(drawn, labels, tops, strict=False)
    )
    return _wrap(title, tops[-1] + AXIS, _draw_axis(axis, tops[-1]) + rows)


def _break_label(label: str) -> list[str]:
    """The lines of a label, none longer than a phone has room for; hidden characters are written out."""
    return textwrap.wrap(reveal_controls(label), LONGEST_LINE, break_on_hyphens=False) or [""]


def _draw_row(each: Interval, lines: Sequence[str], axis: Axis, top: int) -> Markup:
    middle = top + 27 + LINE * (len(lines) - 1)
    low, high = (axis.low if each.low is None else each.low), (axis.high if each.high is None else each.high)
    bounded = each.low is not None or each.high is not None
    bar = Markup("")
    if bounded:
        bar = Markup('<line class="reach" x1="{}" x2="{}" y1="{y}" y2="{y}"/>').format(
            axis.place(low), axis.place(high), y=middle
        )
        bar += Markup("").join(_draw_end(end, axis, middle) for end in (each.low, each.high) if end is not None)
        bar += _draw_open(each, middle)
    dot = Markup('<circle class="value" cx="{}" cy="{}" r="5"/>').format(axis.place(each.value), middle)
    text = Markup("").join(
        Markup('<text class="label" x="{}%" y="{}">{}</text>').format(LEFT, top + 14 + LINE * place, line)
        for place, line in enumerate(lines)
    )
    return Markup("<g><title>{}</title>{}{}{}</g>").format(_describe(each), text, bar, dot)


def _draw_end(end: float, axis: Axis, middle: int) -> Markup:
    return Markup('<line class="end" x1="{x}" x2="{x}" y1="{}" y2="{}"/>').format(
        middle - 5, middle + 5, x=axis.place(end)
    )


def _draw_open(each: Interval, middle: int) -> Markup:
    """An arrow where an interval has no end."""
    if each.high is None:
        return Markup('<text class="open" x="{}%" y="{}" text-anchor="end">▶</text>').format(LEFT + WIDTH, middle + 5)
    if each.low is None:
        return Markup('<text class="open" x="{}%" y="{}">◀</text>').format(LEFT, middle + 5)
    return Markup("")


def _describe(each: Interval) -> str:
    named = f"{each.label}: {format_figure(each.value)}"
    if each.low is None and each.high is None:
        return named
    if each.low is None:
        return f"{named}, at most {format_figure(each.high or 0.0)}"
    if each.high is None:
        return f"{named}, at least {format_figure(each.low)}"
    return f"{named}, between {format_figure(each.low)} and {format_figure(each.high)}"


def _draw_axis(axis: Axis, base: int) -> Markup:
    parts, last = [], len(axis.marks) - 1
    crowded = last > 3 and max(len(f"{mark:,}") for mark in axis.marks) > LONGEST_MARK
    for place, mark in enumerate(axis.marks):
        x = axis.place(mark)
        anchor = "start" if place == 0 else "end" if place == last else "middle"
        parts.append(Markup('<line class="grid" x1="{x}" x2="{x}" y1="{}" y2="{}"/>').format(TOP, base, x=x))
        if crowded and place % 2:
            continue
        parts.append(
            Markup('<text class="mark" x="{}" y="{}" text-anchor="{}">{}</text>').format(
                x, base + 18, anchor, f"{mark:,}"
            )
        )
    return Markup("").join(parts)


@dataclass(frozen=True, slots=True)
class Spending:
    """What was spent in all at the end of a day, in parts that add up to it."""

    day: str
    parts: tuple[float, ...]

    @property
    def total(self) -> float:
        """All parts together."""
        return sum(self.parts)


PLOT, BARS, FEWEST_BARS = 150, 86.0, 8
MOST_ABOVE = 20.0
"""A limit so many times what was spent is too far above to be drawn."""
COLORS = 5
"""Parts have colors of their own up to here; the last color is that of all others."""


def draw_spending(title: str, names: Sequence[str], days: Sequence[Spending], limit: float | None = None) -> Markup:
    """Bars of what was spent in all, one for each day on which something was; parts stand on each other.

    The limit is a line, unless bars would be too low to be seen beside it: then the title says it.
    """
    if not days:
        return Markup("")
    most = max(each.total for each in days)
    near = limit is not None and limit <= MOST_ABOVE * most
    axis = choose_axis([most, limit] if near and limit is not None else [most], 3)
    room, base = BARS / max(len(days), FEWEST_BARS), TOP + 18 + PLOT
    parts = [_draw_level(mark, axis, base) for mark in axis.marks]
    if near and limit is not None:
        parts.append(_draw_limit(limit, axis, base))
    elif limit is not None:
        title += f"; the limit of the dataset is {format_figure(limit)}"
    for place, each in enumerate(days):
        parts += _draw_bar(each, names, axis, (LEFT + room * place, room * 0.8, base))
    ends = [(f"{LEFT}%", "start", days[0].day)]
    if len(days) > 1:
        last = min(LEFT + room * len(days), LEFT + BARS)
        ends.append((f"{max(last, 60):.2f}%", "end", days[-1].day))
    parts += [
        Markup('<text class="mark" x="{}" y="{}" text-anchor="{}">{}</text>').format(x, base + 18, anchor, day)
        for x, anchor, day in ends
    ]
    keys = Markup("").join(
        Markup('<span class="key c{}">{}</span>').format(min(place, COLORS - 1), name)
        for place, name in enumerate(names)
    )
    legend = Markup('<p class="legend note">{}</p>').format(keys)
    return _wrap(title, base + AXIS, Markup("").join(parts), legend)


def _draw_bar(each: Spending, names: Sequence[str], axis: Axis, at: tuple[float, float, int]) -> Iterator[Markup]:
    left, wide, below = at[0], at[1], float(at[2])
    for place, (name, part) in enumerate(zip(names, each.parts, strict=True)):
        high = PLOT * part / axis.high
        if part <= 0:
            continue
        below -= high
        told = f"{each.day}: {name}, {format_figure(part)} of {format_figure(each.total)} in all"
        yield Markup('<rect class="spent f{}" x="{:.2f}%" y="{:.1f}" width="{:.2f}%" height="{:.1f}">{}</rect>').format(
            min(place, COLORS - 1), left, below, wide, high, Markup("<title>{}</title>").format(told)
        )


def _draw_level(mark: float, axis: Axis, base: int) -> Markup:
    y = base - PLOT * mark / axis.high
    line = Markup('<line class="grid" x1="{}%" x2="{}%" y1="{y:.1f}" y2="{y:.1f}"/>').format(LEFT, LEFT + WIDTH, y=y)
    return line + Markup('<text class="mark" x="{}%" y="{:.1f}" text-anchor="end">{}</text>').format(
        LEFT + WIDTH, y - 3, f"{mark:,}"
    )


def _draw_limit(limit: float, axis: Axis, base: int) -> Markup:
    y = base - PLOT * limit / axis.high
    line = Markup('<line class="limit" x1="{}%" x2="{}%" y1="{y:.1f}" y2="{y:.1f}"/>').format(LEFT, LEFT + BARS, y=y)
    words = Markup('<text class="mark" x="{}%" y="{:.1f}">limit of the dataset, {}</text>')
    return line + words.format(LEFT, y - 4, format_figure(limit))


def _wrap(title: str, height: int, inside: Markup, legend: str = "") -> Markup:
    drawn = Markup('<svg class="chart" role="img" aria-label="{}" width="100%" height="{}">{}</svg>')
    return Markup("<figure><figcaption>{}</figcaption>{}{}</figure>").format(
        title, drawn.format(title, height, inside), legend
    )
