"""The page of a stream: what was published of each question, over time, with its error bars, and whom it protects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        {"day": row["last"], "group": _name_group(row), "value": row["value"], "low": row["low"], "high": row["high"]}
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
