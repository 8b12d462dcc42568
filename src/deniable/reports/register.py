"""The public register as a page: every release with its technique, price, unit and date."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deniable.reports.blocks import Block, Callout, KeyFigure, KeyFigures, Page, Paragraph, Section, Table, Tone

HOW = (
    "Every release of this dataset is listed here, so that nobody needs to take our word. The list is written before a "
    "release is made and is chained by hashes: whoever keeps the head of the chain can tell whether a line was changed "
    "or left out later."
)


def build_register_page(told: dict[str, Any]) -> Page:
    """The page of the register, from the document that `deniable register --json` prints."""
    releases = told["releases"]
    sections = (
        Section("At a glance", _summarize_register(told)),
        Section("Releases", (Table.of([_build_row(each) for each in releases], "Every release, oldest first"),)),
        Section("How to check", (Paragraph(f"{HOW}\n\nThe head of the chain is {told['head']}."),)),
    )
    lead = f"{len(releases):,} releases of dataset '{told['dataset']}'."
    return Page(f"Register of releases: {told['dataset']}", sections, lead=lead, foot="Made by deniable.")


def _summarize_register(told: dict[str, Any]) -> tuple[Block, ...]:
    standing = told["standing"]
    figures = [
        KeyFigure(f"{standing['charged']:,}", "releases under differential privacy"),
        KeyFigure(f"{standing['without_guarantee']:,}", "releases without a formal guarantee"),
    ]
    if standing["spent"] is not None:
        remark = f"of {_render_amount(standing['limit'])}" if standing["limit"] else "no limit is set"
        figures.append(KeyFigure(_render_amount(standing["spent"]), "spent in all", remark))
    beware = "Releases without a formal guarantee are not in the total: no number bounds what they disclose."
    warning = (Callout(beware, Tone.WARNING),) if standing["without_guarantee"] else ()
    return (KeyFigures(tuple(figures)), *warning)


def _render_amount(budget: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in budget.items() if value != "0") or "nothing"


def _build_row(release: dict[str, Any]) -> dict[str, object]:
    tables: Sequence[str] = release["tables"]
    return {**release, "tables": ", ".join(tables)}
