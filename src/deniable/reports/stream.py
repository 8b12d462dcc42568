"""Pages of numbers with error bars: a stream over time, a tabulation, a weighted survey, and a network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

from deniable.reports import plots
from deniable.reports.blocks import Block, Callout, KeyFigure, KeyFigures, Page, Paragraph, Plot, Section, Table

SPANS = {"period": "Each period", "window": "The sliding window", "total": "Since the start"}
MOST_LINES = 7
"""Groups that are drawn as lines of one plot; more of them are listed."""
Row = Mapping[str, Any]


def build_stream_page(told: Mapping[str, Any]) -> Page:
    """The page of a stream, from the document that `deniable publish --json` prints."""
    questions = dict.fromkeys(row["question"] for row in told["rows"])
    sections = (
        Section("At a glance", _summarize(told)),
        *(_describe_question(name, [r for r in told["rows"] if r["question"] == name], told) for name in questions),
        Section("How to read it", (Paragraph(_explain(told)),)),
    )
    lead = "Every number has noise that hides each single one of the people behind it."
    return Page(f"Stream {told['stream']}", lead=lead, sections=sections, foot="Drawn by deniable.")


def _summarize(told: Mapping[str, Any]) -> tuple[Block, ...]:
    coming = f"the next one from {told['next_day']} on" if told["next_day"] else "all of them"
    figures = (
        KeyFigure(f"{told['closed']:,} of {told['periods']:,}", "periods published", coming),
        KeyFigure(f"{told['epsilon']:.4g}", "epsilon", "for all periods together, charged once"),
        KeyFigure(f"{told['delta']:.2g}", "delta"),
    )
    return KeyFigures(figures), Callout(told["protects"], title="Whom this protects")


def _describe_question(name: str, rows: Sequence[Row], told: Mapping[str, Any]) -> Section:
    blocks: list[Block] = []
    for span, words in SPANS.items():
        found = [row for row in rows if row["span"] == span]
        if found:
            blocks.append(_draw_span(name, words, found, f"{told['confidence']:.0%}"))
    return Section(name, tuple(blocks))


def _draw_span(name: str, words: str, rows: Sequence[Row], level: str) -> Block:
    flat = [
        {
            "day": date.fromisoformat(row["last"]),
            "group": _name_group(row),
            "value": row["value"],
            "low": row["low"],
            "high": row["high"],
        }
        for row in rows
    ]
    groups = {row["group"] for row in flat}
    if len(groups) > MOST_LINES:
        return Table.of([row for row in flat if row["day"] == flat[-1]["day"]], caption=f"{words}, the newest ones")
    newest = flat[-1]
    alt = f"{words}: {name} over time, {len(flat)} numbers up to {newest['day']}, the last one {newest['value']:,g}."
    series = "group" if len(groups) > 1 else None
    spec = plots.draw_lines(flat, x="day", y="value", low="low", high="high", series=series, alt=alt, title=name)
    return Plot(spec, caption=f"{words}, with {level} intervals of the noise")


def _name_group(row: Row) -> str:
    return ", ".join(str(value) for value in row["group"].values()) or "all"


def _explain(told: Mapping[str, Any]) -> str:
    return (
        f"The intervals speak of the noise alone and hold, each by itself, with {told['confidence']:.0%} confidence. "
        "A period is read once. Rows that come later, or are corrected later, change nothing that was published.\n\n"
        "Totals over several periods are more accurate than the sum of their periods' intervals suggests: the noise of "
        "different periods is made to cancel. Sums of published periods and published totals agree."
    )


def build_tabulation_page(told: Mapping[str, Any]) -> Page:
    """The page of a tabulation, from the document that `deniable tabulate --json` prints."""
    figures = (
        KeyFigure(f"{told['total']:,}", "counted", f"in {told['areas']:,} areas of {told['cells']:,} cells"),
        KeyFigure(f"{told['epsilon']:.4g}", "epsilon", "for everything here together, charged once"),
        KeyFigure(f"{told['delta']:.2g}", "delta"),
    )
    sampled = any(row["sample_deviation"] for row in told["levels"])
    expected = [
        {"level": row["level"], "areas": row["areas"],
         "standard deviation of a total": _shorten(row["total_deviation"]),
         "standard deviation of a cell": _shorten(row["cell_deviation"])}
        | ({"the sample adds, to a number of 1,000": _shorten(row["sample_deviation"])} if sampled else {})
        | {"exact": row["exact"] or "nothing"}
        for row in told["levels"]
    ]  # fmt: skip
    before = "Of the noise, before the bound at zero" if sampled else "Before the bound at zero"
    found = [
        {"level": row["level"], "size": _name_size(row), "areas": row["areas"], "total off by": row["total_error"],
         "bias of a total": row["total_bias"], "cell off by": row["cell_error"]}
        for row in told["errors"]
    ]  # fmt: skip
    sections = (
        Section("At a glance", (KeyFigures(figures), Callout(told["protects"], title="Whom this protects"))),
        Section("Expected errors by level", (Table.of(expected, caption=before),)),
        Section("Errors by size of area", (_draw_errors(told["errors"]), Table.of(found, caption=REPEATED))),
        Section("Totals", _show_totals(told["totals"], f"{told['confidence']:.0%}")),
        Section("How to read it", tuple(Paragraph(note) for note in told["notes"])),
    )
    lead = "Numbers are whole, never negative, and add up from the smallest areas to everybody."
    return Page(f"Tabulation {told['tabulation']}", lead=lead, sections=sections, foot="Drawn by deniable.")


REPEATED = "From repeating the release on its own result"
MOST_BARS = 40
MOST_TOTALS = 100
"""Totals that stand on a page; more of them are in the file."""


def _draw_errors(errors: Sequence[Row]) -> Plot:
    rows = [
        {"areas": f"{row['level']} of {_name_size(row)}", "off by": row[field], "number": number}
        for row in errors
        for field, number in (("total_error", "a total"), ("cell_error", "a cell"))
    ]
    alt = f"How far totals and cells are off, for {len(errors)} groups of areas by level and size"
    drawn = plots.draw_bars(rows, category="areas", value="off by", series="number", alt=alt, title="off by, people")
    return Plot(drawn, "How far a number is off, on average, by level and number of people in the area")


def _show_totals(totals: Sequence[Row], level: str) -> tuple[Block, ...]:
    """The levels that fit: the most detailed of them as bars, then as a table that can be searched."""
    levels: dict[str, list[Row]] = {}
    for row in totals:
        levels.setdefault(row["level"], []).append(row)
    blocks: list[Block] = []
    if drawable := [name for name, rows in levels.items() if 1 < len(rows) <= MOST_BARS]:
        rows = [{"area": row["area"], **{name: row[name] for name in ("total", "low", "high")}}
                for row in levels[drawable[-1]]]  # fmt: skip
        alt = f"The total of each {drawable[-1]}, with {level} intervals"
        blocks.append(Plot(plots.draw_bars(rows, category="area", value="total", low="low", high="high", alt=alt), alt))
    sampled = any(row["sample_deviation"] for row in totals)
    listed = [row for rows in levels.values() for row in (rows if len(rows) <= MOST_TOTALS else ())]
    shown = [
        {"level": row["level"], "area": row["area"], "total": row["total"],
         f"{level} interval": f"{row['low']:,.0f} to {row['high']:,.0f}"}
        | ({f"{kind} deviation": _shorten(row[f"{kind}_deviation"]) for kind in ("noise", "sample")} if sampled else {})
        for row in listed
    ]  # fmt: skip
    if shown:
        blocks.append(replace(Table.of(shown, caption=f"With {level} intervals"), search="Search the areas"))
    rest = [f"{len(rows):,} of level {name}" for name, rows in levels.items() if len(rows) > MOST_TOTALS]
    if rest:
        blocks.append(Paragraph(f"Not listed here, and in the file of totals (--totals): {'; '.join(rest)}."))
    return tuple(blocks)


def build_weighted_page(told: Mapping[str, Any]) -> Page:
    """The page of a weighted estimate: the document that `deniable weighted --json` prints, and whom it protects."""
    rows, statistic, level = told["rows"], told["statistic"], f"{told['confidence']:.0%}"
    ends = {statistic, f"{statistic}_low", f"{statistic}_high", "standard_error"}
    words = f"The {statistic} in the population, estimated from the survey"
    blocks: list[Block] = []
    if 1 < len(rows) <= MOST_BARS:  # what is not known at all has no bar
        bars = [
            {"group": ", ".join(str(value) for name, value in row.items() if name not in ends),
             statistic: row[statistic], "low": row[f"{statistic}_low"], "high": row[f"{statistic}_high"]}
            for row in rows if math.isfinite(row["standard_error"])
        ]  # fmt: skip
        alt = f"{words}, for {len(bars)} groups with {level} intervals."
        spec = plots.draw_bars(bars, category="group", value=statistic, low="low", high="high", alt=alt)
        blocks.append(Plot(spec, caption=f"{words}, with {level} intervals of sample and noise"))
    listed = [_join_ends(row, level) for row in rows[:MOST_ROWS]]
    blocks.append(Table.of(listed, caption=f"With {level} intervals of sample and noise, each by itself"))
    figures = tuple(KeyFigure(str(value), name) for name, value in (told["cost"] or {}).items() if value != "0")
    if len(rows) == 1:
        figures = (_show_figure(statistic, rows[0], level), *figures)
    sections = (
        Section("At a glance", (KeyFigures(figures), Callout(told["protects"], title="Whom this protects"))),
        Section(statistic.capitalize(), tuple(blocks)),
        Section("How to read it", tuple(Paragraph(note) for note in told["notes"])),
    )
    return Page(f"Survey: weighted {statistic}", lead=f"{words}.", sections=sections, foot="Drawn by deniable.")


CURVES = {"degrees": ("degree", "nodes_at_least", "Nodes with at least so many edges"),
          "spread": ("step", "reached", "The share of nodes that a rumor has reached")}  # fmt: skip
MOST_ROWS = 200
"""Rows of a network's statistic that stand on its page."""


def build_network_page(told: Mapping[str, Any]) -> Page:
    """The page of a statistic of a network, from the document that `deniable network --json` prints."""
    rows, statistic, level = told["rows"], told["statistic"], f"{told['confidence']:.0%}"
    blocks: list[Block] = []
    if statistic in CURVES and len(rows) > 1:
        x, y, words = CURVES[statistic]
        flat = [{x: row[x], y: row[y], "low": row[f"{y}_low"], "high": row[f"{y}_high"]} for row in rows]
        alt = f"{words}, by {x} from {rows[0][x]} to {rows[-1][x]}."
        spec = plots.draw_lines(flat, x=x, y=y, low="low", high="high", alt=alt, title=words)
        blocks.append(Plot(spec, caption=f"{words}, with {level} intervals"))
    if statistic == "mixing" and rows:
        names = ("from", "to") if "from" in rows[0] else ("group", "with")
        both = [{"group": row[one], "with": row[two], "edges": row["edges"]} for row in rows
                for one, two in ((names, names[::-1]) if "group" in names else (names,))]  # fmt: skip
        words = "Edges between each two groups"
        limits = (0.0, max([1.0, *(float(row["edges"]) for row in rows)]))
        cells = list({(row["group"], row["with"]): row for row in both}.values())
        spec = plots.draw_heatmap(cells, x="with", y="group", value="edges", alt=words, form=",.0f", limits=limits)
        blocks.append(Plot(spec, caption=words))
    told_rows = [_join_ends(row, level) for row in rows[:MOST_ROWS]]
    blocks.append(Table.of(told_rows, caption=f"With {level} intervals, each by itself"))
    cost = told["cost"] or {}
    figures = tuple(KeyFigure(str(value), name) for name, value in cost.items() if value != "0")
    if len(rows) == 1:
        figures = tuple(_show_figure(name, rows[0], level) for name in rows[0] if f"{name}_low" in rows[0]) + figures
    sections = (
        Section("At a glance", (KeyFigures(figures), Callout(told["hides"], title="What is hidden"))),
        Section(statistic.capitalize(), tuple(blocks)),
        Section("How to read it", tuple(Paragraph(note) for note in told["notes"])),
    )
    lead = "Every number has noise that hides one edge, or one node with all its edges."
    return Page(f"Network: {statistic}", lead=lead, sections=sections, foot="Drawn by deniable.")


def _show_figure(name: str, row: Row, level: str) -> KeyFigure:
    interval = f"{level}: {_shorten(row[f'{name}_low'])} to {_shorten(row[f'{name}_high'])}"
    return KeyFigure(_shorten(row[name]), name.replace("_", " "), interval)


def _join_ends(row: Row, level: str) -> dict[str, object]:
    """A row whose intervals stand in one column each, under names that people read."""
    told: dict[str, object] = {}
    for name, value in row.items():
        if any(name == f"{other}{end}" for other in row for end in ("_low", "_high")):
            continue
        words = name.replace("_", " ")
        told[words] = _shorten(value) if isinstance(value, float) else value
        if f"{name}_low" in row:
            told[f"{words}, {level} interval"] = f"{_shorten(row[f'{name}_low'])} to {_shorten(row[f'{name}_high'])}"
    return told


def _shorten(number: float | None) -> str:
    """Four figures, and never a power of ten where a number is large."""
    if number is None:
        return "unknown"
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def _name_size(row: Row) -> str:
    if row["most"] == row["least"]:
        return f"{row['least']:,}"
    return f"{row['least']:,} and more" if row["most"] is None else f"{row['least']:,} to {row['most']:,}"
