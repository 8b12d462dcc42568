"""The page of a map of places, of flows between regions, or of drawn traces: a picture, errors, whom it protects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from deniable.reports import plots
from deniable.reports.blocks import Block, Callout, KeyFigure, KeyFigures, Page, Paragraph, Plot, Section, Table

MOST_LISTED = 20
MOST_REGIONS = 8
EDGES = ("south", "west", "north", "east")
TITLES = {"map": "Map of places", "flows": "Flows between regions", "traces": "Drawn traces"}
CAPTIONS = {
    "map": "Darker is more. Each cell of the picture is a sum of noisy cells, shaded by the root of its count.",
    "flows": "The regions that rows are counted between, shaded by the rows that begin there.",
    "traces": "Where the points of drawn traces are.",
}
Row = Mapping[str, Any]


def build_places_page(told: Mapping[str, Any], cells: Sequence[Row], rows: Sequence[Row]) -> Page:
    """The page of an answer: its details, the cells of its picture, and its rows of the largest counts."""
    kind = told["kind"]
    sections = (
        Section("At a glance", _summarize(told)),
        Section("Picture", _draw_picture(kind, cells)),
        *((Section("Between regions", _draw_flows(told, rows)),) if kind == "flows" else ()),
        *((Section("The largest numbers", (_list_rows(rows),)),) if kind != "traces" else ()),
        Section("How to read it", (Paragraph(_explain(told)),)),
    )
    lead = "Every number has noise that hides each single one of the people behind it."
    return Page(f"{TITLES[kind]}: {told['table']}", lead=lead, sections=sections, foot="Drawn by deniable.")


def _summarize(told: Mapping[str, Any]) -> tuple[Block, ...]:
    figures = [KeyFigure(f"{float(value):.4g}", name) for name, value in told["cost"].items() if float(value)]
    if told["kind"] == "map":
        figures.append(KeyFigure(f"{told['cells']:,}", "cells", "finer where more points are"))
        whole = sum(each["count"] for each in told["totals"])
        figures.append(KeyFigure(f"{whole:,.0f}", "rows counted", f"at most {told['rows_of_a_person']:,} of a person"))
    elif told["kind"] == "flows":
        figures.append(KeyFigure(f"{len(told['regions']):,}", "regions", "of about equal weight"))
    else:
        figures.append(KeyFigure(f"{told['people']:,}", "people drawn", "none of them exists"))
    return KeyFigures(tuple(figures)), Callout(told["protects"], title="Whom this protects")


def _draw_picture(kind: str, cells: Sequence[Row]) -> tuple[Block, ...]:
    if not cells:
        return (Paragraph("There is nothing to draw."),)
    middle = sum(row["south"] + row["north"] for row in cells) / (2 * len(cells))
    most = max(cells, key=lambda row: row["count"])
    alt = (f"{TITLES[kind]} in {len(cells)} cells; the largest count, {most['count']:,.0f}, is near latitude "
           f"{most['south']:.3f} and longitude {most['west']:.3f}.")  # fmt: skip
    spec = plots.draw_map(cells, alt=alt, stretch=1 / max(0.1, math.cos(math.radians(middle))))
    largest = sorted(cells, key=lambda row: -row["count"])[:MOST_LISTED]
    return (Plot(spec, caption=CAPTIONS[kind], table=Table.of(largest, caption="The cells with the largest counts")),)


def _draw_flows(told: Mapping[str, Any], rows: Sequence[Row]) -> tuple[Block, ...]:
    """How many rows go from each region to each, where there are few enough; and where the regions are."""
    blocks: list[Block] = []
    if 1 < len(told["regions"]) <= MOST_REGIONS:
        sums: dict[tuple[Any, Any], float] = {}
        for row in rows:
            pair = (row["origin"], row["destination"])
            sums[pair] = sums.get(pair, 0.0) + row["count"]
        cells = [{"from region": str(one), "to region": str(two), "rows": sums[one, two]} for one, two in sorted(sums)]
        words, limits = "Rows from each region to each", (0.0, max([1.0, *sums.values()]))
        spec = plots.draw_heatmap(
            cells, x="to region", y="from region", value="rows", alt=words, form=",.0f", limits=limits
        )
        blocks.append(Plot(spec, caption=words))
    listed = [{"region": str(region)} | {name: round(end, 4) for name, end in zip(EDGES, box, strict=True)}
              for region, box in enumerate(told["regions"])]  # fmt: skip
    return (*blocks, Table.of(listed[:MOST_LISTED], caption="Where the regions are"))


def _list_rows(rows: Sequence[Row]) -> Table:
    largest = sorted(rows, key=lambda row: -row["count"])[:MOST_LISTED]
    shown = [
        {name.replace("count_", "").replace("_", " "): _round(name, value)
         for name, value in row.items() if not name.startswith(("origin_", "destination_"))}
        for row in largest
    ]  # fmt: skip
    return Table.of(shown, caption="Each count with its interval, and the standard deviation of its noise")


def _round(name: str, value: Any) -> Any:
    """Places to about a meter, counts to whole ones, their deviation to a tenth."""
    if not isinstance(value, float):
        return value
    if name.startswith("count"):
        return round(value)
    return round(value, 1 if name == "deviation" else 5)


def _explain(told: Mapping[str, Any]) -> str:
    notes = " ".join(told["notes"])
    if told["kind"] == "traces":
        return f"{notes}\n\nThe traces are drawn from noisy counts. No trace is that of a person."
    return (
        f"{notes}\n\nThe intervals speak of the noise alone and hold, each by itself, with {told['confidence']:.0%} "
        "confidence. Inside a cell nothing is known of where points are. A count below 0 is noise around a small count."
    )
