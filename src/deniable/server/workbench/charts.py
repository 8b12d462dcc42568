"""Charts as SVG text: intervals of noisy numbers, and what was spent over time.

Places along the width are percentages and everything else is in pixels, so that a chart fills a phone or a desk and its
words keep their size. Colors are classes of the style sheet; nothing here needs a script."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

ROW, TOP, AXIS = 40, 6, 30
MOST_ROWS = 40
LONGEST_LABEL = 38
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
    axis, height = choose_axis(ends), TOP + ROW * len(drawn) + AXIS
    rows = Markup("").join(_draw_row(each, axis, TOP + ROW * place) for place, each in enumerate(drawn))
    return _wrap(title, height, _draw_axis(axis, height - AXIS) + rows)


def _draw_row(each: Interval, axis: Axis, top: int) -> Markup:
    middle = top + 27
    name = each.label if len(each.label) <= LONGEST_LABEL else each.label[: LONGEST_LABEL - 1] + "…"
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
    text = Markup('<text class="label" x="{}%" y="{}">{}</text>').format(LEFT, top + 14, name)
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
    if each.low is None and each.high is None:
        return f"{each.label}: {each.value:,.6g}"
    if each.low is None:
        return f"{each.label}: {each.value:,.6g}, at most {each.high:,.6g}"
    if each.high is None:
        return f"{each.label}: {each.value:,.6g}, at least {each.low:,.6g}"
    return f"{each.label}: {each.value:,.6g}, between {each.low:,.6g} and {each.high:,.6g}"


def _draw_axis(axis: Axis, base: int) -> Markup:
    parts = []
    for place, mark in enumerate(axis.marks):
        x, last = axis.place(mark), len(axis.marks) - 1
        anchor = "start" if place == 0 else "end" if place == last else "middle"
        parts.append(Markup('<line class="grid" x1="{x}" x2="{x}" y1="{}" y2="{}"/>').format(TOP, base, x=x))
        parts.append(
            Markup('<text class="mark" x="{}" y="{}" text-anchor="{}">{}</text>').format(
                x, base + 18, anchor, f"{mark:,}"
            )
        )
    return Markup("").join(parts)


@dataclass(frozen=True, slots=True)
class Spending:
    """What was spent in all at the end of a day."""

    day: str
    total: float


PLOT = 150


def draw_spending(title: str, days: Sequence[Spending], limit: float | None) -> Markup:
    """Bars of what was spent in all, one for each day on which something was, and a line at the limit."""
    if not days:
        return Markup("")
    highest = max([each.total for each in days] + ([limit] if limit is not None else []))
    axis = choose_axis([highest], 3)
    room, base = WIDTH / max(len(days), 8), TOP + 18 + PLOT
    parts = [_draw_level(mark, axis, base) for mark in axis.marks]
    for place, each in enumerate(days):
        high = max(1.0, PLOT * each.total / axis.high)
        parts.append(
            Markup('<rect class="spent" x="{:.2f}%" y="{:.1f}" width="{:.2f}%" height="{:.1f}">{}</rect>').format(
                LEFT + room * place, base - high, room * 0.8, high,
                Markup("<title>{}</title>").format(f"{each.day}: {each.total:,.4g} in all"),
            )
        )  # fmt: skip
    if limit is not None:
        y = f"{base - PLOT * limit / axis.high:.1f}"
        parts.append(
            Markup('<line class="limit" x1="{}%" x2="{}%" y1="{y}" y2="{y}"/>').format(LEFT, LEFT + WIDTH, y=y)
        )
    ends = [(f"{LEFT}%", "start", days[0].day)]
    if len(days) > 1:
        last = min(LEFT + room * len(days), LEFT + WIDTH)
        ends.append((f"{max(last, 55):.2f}%", "end", days[-1].day))
    parts += [
        Markup('<text class="mark" x="{}" y="{}" text-anchor="{}">{}</text>').format(x, base + 18, anchor, day)
        for x, anchor, day in ends
    ]
    return _wrap(title, base + AXIS, Markup("").join(parts))


def _draw_level(mark: float, axis: Axis, base: int) -> Markup:
    y = base - PLOT * mark / axis.high
    line = Markup('<line class="grid" x1="{}%" x2="{}%" y1="{y:.1f}" y2="{y:.1f}"/>').format(LEFT, LEFT + WIDTH, y=y)
    return line + Markup('<text class="mark" x="{}%" y="{:.1f}" text-anchor="end">{}</text>').format(
        LEFT + WIDTH, y - 3, f"{mark:,}"
    )


def _wrap(title: str, height: int, inside: Markup) -> Markup:
    drawn = Markup('<svg class="chart" role="img" aria-label="{}" width="100%" height="{}">{}</svg>')
    return Markup("<figure><figcaption>{}</figcaption>{}</figure>").format(title, drawn.format(title, height, inside))
