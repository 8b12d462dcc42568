"""The page of a synthetic model: what was measured, with error bars; for the steward beside the real rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from deniable.reports import plots
from deniable.reports.blocks import Block, Callout, KeyFigure, KeyFigures, Page, Paragraph, Plot, Section, Table, Tone

View = Mapping[str, Any]
MOST_CELLS = 60
"""Tables with more cells fill a page and tell little: they stand in the JSON."""
MEASURED = (
    "The model is made of counts to which random noise was added, so that no single person shows. Each line is a table "
    "that was counted. With a chance of 95%, any one of its counts is off by no more than the figure given; a table "
    "that noise moves by more than a tenth of the rows should not be read cell by cell."
)
ASSOCIATIONS = (
    "0 means that knowing one column says nothing about the other, 1 that it decides it. Noise in a large table looks "
    "like a weak association: small values mean little. Only columns that were counted together are shown."
)
CLOSE = (
    "Total variation is the share of rows that would have to change for the synthetic table to equal the real one, in "
    "so many columns at a time; numbers and dates count in 16 equal stretches. The k-marginal score is the same on a "
    "scale up to 1000 for agreement."
)
CELLS = (
    "Tables of up to 60 cells, with the 95% interval of the noise on each cell. Ask for others by name (--marginal). "
    "Rare values, and neighbors that hold too few rows to stand out from the noise, are joined."
)
LINKED = (
    "People are drawn first, with the number of their rows. Rows are drawn for a person, whose columns are called "
    "'(person)' here, and after the row before it, '(previous)'; '(since)' is how long after, '(after)' how long after "
    "the row's own time, and '(repeats)' whether a value is that of the row before."
)
CAUTION = "This shows real rows' shares, without noise: it is for the steward, and not to be released."


def page(view: View) -> Page:
    """One page from a view; the steward's is marked as such."""
    if "link" in view:
        return _linked(view)
    compared = "utility" in view
    sections = [_overview(view, compared), *(_utility(view["utility"]) if compared else ())]
    sections += [_histogram(histogram) for histogram in view["histograms"]]
    small = [entry for entry in view["marginals"] if 1 < len(entry["cells"]) <= MOST_CELLS]
    sections += [_marginals(small)] if small else []
    sections += [_associations(view["associations"])] if view["associations"] else []
    lead = f"Method {view['method']}: {view['reason']}."
    foot = "For the steward: this page is made with real rows." if compared else "Made from the model alone."
    return Page("Synthetic model" + (", compared with the real rows" if compared else ""), tuple(sections), lead, foot)


def _linked(view: View) -> Page:
    """People and their rows on one page: the sections of both, one after the other."""
    link = view["link"]
    people = link["parent"] or f"people of {link['child']}"
    sections = [
        replace(section, heading=f"{name}: {section.heading}")
        for name, part in ((people, view["people"]), (link["child"], view["rows"]))
        for section in page(part).sections
    ]
    foot = "For the steward: this page is made with real rows." if "utility" in view else "Made from the model alone."
    return Page("Synthetic model of people with their rows", tuple(sections), LINKED, foot)


def _overview(view: View, compared: bool) -> Section:
    figures = KeyFigures(
        (
            KeyFigure(f"{view['estimated_rows']:,}", "rows, estimated"),
            KeyFigure(str(len(view["columns"])), "columns measured"),
            KeyFigure(f"{view['noise_in_a_table']:.1%}", "of the rows", "moved by noise alone in a table of several"),
        )
    )
    rows = [
        {"table": " x ".join(entry["columns"]), "cells": entry["cells"],
         "one count is off by up to": round(1.959964 * entry["deviation"], 1), "in shares": f"{entry['error']:.2%}",
         "noise moves": f"{entry['noise']:.1%} of the rows"} for entry in view["tables"]
    ]  # fmt: skip
    made = ", ".join(view["made_anew"])
    anew = (Paragraph(f"Made anew, with nothing learned of them: {made}."),) if made else ()
    caution = (Callout(CAUTION, Tone.DANGER, "Do not pass this on"),) if compared else ()
    return Section("What was measured", (*caution, figures, Paragraph(MEASURED), Table.of(rows), *anew))


def _histogram(histogram: View) -> Section:
    bars, column = histogram["bars"], histogram["column"]
    if "real" in bars[0]:
        rows = [{"value": b["value"], "of": of, "share": b[of]} for b in bars for of in ("real", "synthetic")]
        alt = f"Shares of the values of {column}, in real and synthetic rows side by side"
        drawn = plots.bars(rows, category="value", value="share", series="of", alt=alt)
        return Section(column, (Plot(drawn, alt),))
    rows = [{**bar, "low": max(bar["share"] - bar["error"], 0.0), "high": min(bar["share"] + bar["error"], 1.0)}
        for bar in bars
    ]  # fmt: skip
    alt = f"Estimated shares of the values of {column}, with 95% intervals of the noise"
    drawn = plots.bars(rows, category="value", value="share", low="low", high="high", alt=alt)
    return Section(column, (Plot(drawn, alt),))


def _marginals(entries: list[View]) -> Section:
    """Small tables, cell by cell, each with its error bar."""
    return Section("Tables, cell by cell", (Paragraph(CELLS), *(_marginal(entry) for entry in entries)))


def _marginal(entry: View) -> Table:
    rows = [dict(zip(entry["columns"], cell["values"], strict=True)) | _cell(cell) for cell in entry["cells"]]
    name, by = " x ".join(entry["columns"]), " x ".join(entry["measured"] or ())
    told = f"{name}, counted in {by}" if by != name else name
    return Table.of(rows, told if by else f"{name}: not counted together, so no error bar is known")


def _cell(cell: View) -> dict[str, str]:
    error = f" ± {cell['error']:.2%}" if cell["error"] is not None else ""
    told = {"share of the rows": f"{cell['share']:.2%}{error}"}
    return told | ({"in the real rows": f"{cell['real']:.2%}"} if "real" in cell else {})


def _associations(entries: list[View]) -> Section:
    alt = "How much columns that were measured together say of one another, from 0 to 1"
    blocks: list[Block] = [Paragraph(ASSOCIATIONS), Plot(_map(entries, "strength", alt), alt)]
    if "real" in entries[0]:
        beside = "The same associations in the real rows"
        blocks.append(Plot(_map(entries, "real", beside), beside))
    return Section("Associations", tuple(blocks))


def _map(entries: list[View], value: str, alt: str) -> dict[str, Any]:
    form = ".2f"
    return plots.heatmap(entries, x="second", y="first", value=value, alt=alt, form=form, limits=(0.0, 1.0))


def _utility(found: View) -> tuple[Section, ...]:
    rows = [
        {"columns together": entry["way"], "tables compared": entry["cliques"],
         "total variation, on average": f"{entry['mean']:.3f}", "k-marginal score": f"{entry['score']:.0f}"}
        for entry in found["variation"]
    ]  # fmt: skip
    worst = [
        {"largest differences": " x ".join(names), "total variation": f"{far:.3f}"}
        for entry in found["variation"]
        for names, far in entry["worst"]
    ]
    blocks: list[Block] = [Paragraph(CLOSE), Table.of(rows), Table.of(worst)]
    if found["workload"] is not None:
        asked = [{"asked for": " x ".join(names), "total variation": f"{far:.3f}"}
                 for names, far in found["workload"]["marginals"]]  # fmt: skip
        blocks.append(Table.of(asked, f"Tables asked for: {found['workload']['mean']:.3f} on average"))
    if found["classifier"] is not None:
        blocks.append(_classifier(found["classifier"]))
    close = Section("Against the real rows", tuple(blocks))
    return (close, _regression(found["regression"])) if found["regression"] is not None else (close,)


def _classifier(rates: View) -> Table:
    row = {
        "trained on real rows": f"{rates['on_real']:.1%}",
        "trained on synthetic rows": f"{rates['on_synthetic']:.1%}",
        "always the most frequent value": f"{rates['majority']:.1%}",
    }
    return Table.of([row], f"How often a classifier guesses {rates['target']} rightly, on real rows it has not seen")


def _regression(found: View) -> Section:
    text = (
        f"An analyst who explains {found['target']} by {', '.join(found['by'])} gets these coefficients from real and "
        f"from synthetic rows, with 95% intervals. The intervals overlap by {found['overlap']:.0%} on average, and "
        f"{found['covered']:.0%} of the real coefficients lie in the synthetic intervals. Intervals from synthetic "
        "rows know nothing of the noise, so they are too narrow. Categories are compared with the first one; dates "
        "count in years."
    )
    rows = [
        {"term": term["name"], "real": _interval(term["real"]), "synthetic": _interval(term["synthetic"]),
         "overlap": f"{term['overlap']:.0%}", "same direction": "yes" if term["same_sign"] else "NO"}
        for term in found["terms"]
    ]  # fmt: skip
    return Section("A regression on both", (Paragraph(text), Table.of(rows)))


def _interval(estimate: View) -> str:
    return f"{_figure(estimate['value'])} ({_figure(estimate['low'])} to {_figure(estimate['high'])})"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
