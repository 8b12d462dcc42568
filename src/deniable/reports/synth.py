"""The page of a synthetic model: what was measured, histograms, associations; for the steward also the real rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deniable.reports import plots
from deniable.reports.blocks import Block, Callout, KeyFigure, KeyFigures, Page, Plot, Section, Table, Tone


def page(view: Mapping[str, Any]) -> Page:
    """One page from a view; the steward's is marked as such."""
    compared = "utility" in view
    sections = [_overview(view, compared), *([_utility(view["utility"])] if compared else [])]
    sections += [_histogram(histogram) for histogram in view["histograms"]]
    sections += [_associations(view["associations"])] if view["associations"] else []
    lead = f"Method {view['method']}: {view['reason']}."
    return Page("Synthetic model" + (", compared with the real rows" if compared else ""), tuple(sections), lead)


def _overview(view: Mapping[str, Any], compared: bool) -> Section:
    figures = KeyFigures(
        (
            KeyFigure(f"{view['estimated_rows']:,}", "rows, estimated"),
            KeyFigure(str(len(view["columns"])), "columns measured"),
            KeyFigure(f"{view['noise_in_a_table']:.1%}", "of the rows", "what noise alone moves in a table of several"),
        )
    )
    rows = [
        {"table": " x ".join(entry["columns"]), "cells": entry["cells"], "deviation of a count": entry["deviation"],
         "moved by noise alone": f"{entry['noise']:.1%}"} for entry in view["tables"]
    ]  # fmt: skip
    caution = Callout("This shows real rows' shares: it is for the steward, and not to be released.", Tone.DANGER)
    return Section("What was measured", (*((caution,) if compared else ()), figures, Table.of(rows)))


def _histogram(histogram: Mapping[str, Any]) -> Section:
    bars, column = histogram["bars"], histogram["column"]
    if "real" in bars[0]:
        rows = [{"value": b["value"], "of": of, "share": b[of]} for b in bars for of in ("real", "synthetic")]
        alt = f"Shares of the values of {column}, in real and synthetic rows side by side"
        return Section(column, (Plot(plots.histogram(rows, bin="value", count="share", series="of", alt=alt), alt),))
    rows = [{**bar, "low": max(bar["share"] - bar["error"], 0.0), "high": bar["share"] + bar["error"]} for bar in bars]
    alt = f"Estimated shares of the values of {column}, with 95% intervals of the noise"
    drawn = plots.bars(rows, category="value", value="share", low="low", high="high", alt=alt)
    return Section(column, (Plot(drawn, alt),))


def _associations(entries: list[Mapping[str, Any]]) -> Section:
    alt = "How much columns that were measured together say of one another, from 0 to 1"
    blocks: list[Block] = [Plot(_map(entries, "strength", alt), alt)]
    if "real" in entries[0]:
        beside = "The same associations in the real rows"
        blocks.append(Plot(_map(entries, "real", beside), beside))
    return Section("Associations", tuple(blocks))


def _map(entries: list[Mapping[str, Any]], value: str, alt: str) -> dict[str, Any]:
    form = ".2f"
    return plots.heatmap(entries, x="second", y="first", value=value, alt=alt, form=form, limits=(0.0, 1.0))


def _utility(found: Mapping[str, Any]) -> Section:
    rows = [
        {"columns together": entry["way"], "tables": entry["cliques"], "total variation": f"{entry['mean']:.3f}",
         "k-marginal score": f"{entry['score']:.0f}"} for entry in found["variation"]
    ]  # fmt: skip
    worst = [
        {"largest differences": " x ".join(names), "total variation": f"{far:.3f}"}
        for entry in found["variation"]
        for names, far in entry["worst"]
    ]
    blocks: list[Block] = [Table.of(rows), Table.of(worst)]
    if found["classifier"] is not None:
        blocks.append(Table.of([found["classifier"]], "How often a classifier is right on unseen real rows"))
    return Section("Against the real rows", tuple(blocks))
