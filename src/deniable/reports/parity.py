"""The page of a parity comparison: a heat map of kept findings, and the table with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deniable.reports import plots
from deniable.reports.blocks import Callout, Page, Paragraph, Plot, Section, Table


def page(rows: Sequence[Mapping[str, Any]]) -> Page:
    """One section a method."""
    methods = dict.fromkeys(str(row["method"]) for row in rows)
    sections = tuple(_section(method, [row for row in rows if row["method"] == method]) for method in methods)
    lead = "Would the conclusions have been the same on synthetic rows? The share of runs that kept each finding."
    return Page("Parity of findings", (*sections, _caution()), lead)


def _section(method: str, rows: list[Mapping[str, Any]]) -> Section:
    cells = [{"finding": row["finding"], "epsilon": f"{row['epsilon']:g}", "kept": row["share"]} for row in rows]
    alt = f"Share of runs of {method} in which each finding was kept, by epsilon"
    drawn = plots.heatmap(cells, x="epsilon", y="finding", value="kept", alt=alt)
    listed = Table.of([{"finding": r["finding"], "epsilon": r["epsilon"], "kept": f"{r['kept']} of {r['runs']}",
                        "95% interval": f"{r['low']:.2f} to {r['high']:.2f}"} for r in rows])  # fmt: skip
    return Section(method, (Plot(drawn, alt), listed))


def _caution() -> Section:
    text = (
        "This compares with the real rows: it is for the steward, and is not to be released. Tests on synthetic rows "
        "find effects that are not there more often than they should at epsilon 1 and below (arXiv 2403.13612)."
    )
    return Section(
        "Before you rely on it", (Callout(text), Paragraph("A finding is kept when its answer or its sign is."))
    )
