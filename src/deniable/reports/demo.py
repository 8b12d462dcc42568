"""The page of the demonstration: chapters with their sentences, tables and people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deniable.reports import plots
from deniable.reports.blocks import Block, Commands, Page, Paragraph, Plot, Section, Table


def build_demo_page(title: str, chapters: Sequence[Mapping[str, Any]]) -> Page:
    """One section a chapter."""
    return Page(title, tuple(_build_section(chapter) for chapter in chapters))


def _build_section(chapter: Mapping[str, Any]) -> Section:
    blocks: list[Block] = [Paragraph("\n\n".join(chapter["sentences"]))]
    if chapter["bars"]:
        blocks.append(_draw_bars(chapter["table"], chapter["bars"], chapter["title"]))
    elif chapter["table"]:
        blocks.append(Table.of(chapter["table"]))
    if chapter["people"]:
        count, label = chapter["people"]
        blocks.append(Plot(plots.draw_people(count, label=label, alt=f"{count} {label}"), f"{count} {label}"))
    if chapter["commands"]:
        blocks.append(Commands(tuple(chapter["commands"]), "Do it yourself:"))
    return Section(chapter["title"], tuple(blocks))


def _draw_bars(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], title: str) -> Plot:
    """The table as bars: what each is, how long it is and, if known, between which ends the truth lies."""
    category, value, *ends = columns
    low, high = ends if ends else (None, None)
    alt = f"{title}: " + ", ".join(f"{row[category]} {row[value]}" for row in rows)
    return Plot(
        plots.draw_bars(rows, category=category, value=value, low=low, high=high, alt=alt), table=Table.of(rows)
    )
