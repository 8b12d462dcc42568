"""The page of a story: chapters with their sentences, tables and people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deniable.reports import plots
from deniable.reports.blocks import Block, Page, Paragraph, Plot, Section, Table


def page(title: str, chapters: Sequence[Mapping[str, Any]]) -> Page:
    """One section a chapter."""
    return Page(title, tuple(_section(chapter) for chapter in chapters))


def _section(chapter: Mapping[str, Any]) -> Section:
    blocks: list[Block] = [Paragraph("\n\n".join(chapter["sentences"]))]
    if chapter["table"]:
        blocks.append(Table.of(chapter["table"]))
    if chapter["people"]:
        count, label = chapter["people"]
        blocks.append(Plot(plots.people(count, label=label, alt=f"{count} {label}"), f"{count} {label}"))
    if chapter["commands"]:
        blocks.append(Paragraph("Do it yourself: " + "; ".join(chapter["commands"])))
    return Section(chapter["title"], tuple(blocks))
