"""The page that helps to choose an epsilon: the expected error of each number of a question, before it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deniable.reports import plots
from deniable.reports.blocks import Block, Callout, Page, Paragraph, Plot, Section


def page(sql: str, rows: Sequence[dict[str, Any]]) -> Page:
    """The page of one question."""
    lead = "What the noise would do to each number, by the epsilon spent on it. No data was read for this page."
    if not rows:
        free = Callout("This question measures nothing about anybody: it is free, and exact.")
        return Page("Expected errors", (Section("The question", (Paragraph(sql), free)),), lead)
    return Page("Expected errors", (Section("The question", (Paragraph(sql), *_plots(rows))),), lead)


def _plots(rows: Sequence[dict[str, Any]]) -> tuple[Block, ...]:
    """One plot for each unit of error: numbers that are counted in ranks do not belong beside sums."""
    units = dict.fromkeys(row["error_in"] for row in rows)
    return tuple(_plot([row for row in rows if row["error_in"] == unit], unit) for unit in units)


def _plot(rows: list[dict[str, Any]], unit: str) -> Plot:
    kept = [{key: row[key] for key in ("epsilon", "measurement", "error")} for row in rows]
    count = len({row["measurement"] for row in rows})
    alt = f"Expected error, in {unit}, of {count} measurements against epsilon: it falls as epsilon grows."
    spec = plots.lines(
        kept, x="epsilon", y="error", series="measurement", alt=alt, title=f"error ({unit})", log_x=True, log_y=True
    )
    return Plot(spec, caption="With 95% confidence the noise of one number is at most this.")
