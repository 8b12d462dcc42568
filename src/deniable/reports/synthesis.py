"""Pages of synthetic data: a model with its error bars, and a release that was attacked before it left.

For the steward a model stands beside the real rows; a release shows its verdict, the attacks beside their controls, and
the limits of the policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from deniable.reports import plots
from deniable.reports.attacks import list_all_rates
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
COMPARED = (
    "0 means that knowing one column says nothing about the other, 1 that it decides it. Where the real rows are dark "
    "and the synthetic ones pale, an association was lost. In few rows, columns of many values look associated even "
    "where they are not, in both."
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
SCORES = (
    "From the published definitions of other projects, to compare with their tools: 100% and 1000 are perfect "
    "agreement. TSTR trains on synthetic rows and tests on real ones."
)
CAUTION = "This shows real rows' shares, without noise: it is for the steward, and not to be released."


def build_model_page(view: View) -> Page:
    """One page from a view; the steward's is marked as such."""
    if "link" in view:
        return _build_linked_page(view)
    compared = "utility" in view
    sections = [_describe_overview(view, compared)]
    if pairs := (view["utility"] if compared else {}).get("associations"):
        sections.append(compare_associations(pairs))
    elif view["associations"]:
        sections.append(_describe_associations(view["associations"]))
    sections += [_draw_histogram(histogram) for histogram in view["histograms"]]
    sections += _describe_utility(view["utility"]) if compared else ()
    sections.append(_describe_tables(view))
    small = [entry for entry in view["marginals"] if 1 < len(entry["cells"]) <= MOST_CELLS]
    sections += [_describe_marginals(small)] if small else []
    lead = "What the synthetic rows say well, what they say badly, and where that comes from."
    foot = "For the steward: this page is made with real rows." if compared else "Made from the model alone."
    return Page("Synthetic model" + (", compared with the real rows" if compared else ""), tuple(sections), lead, foot)


def _build_linked_page(view: View) -> Page:
    """People and their rows on one page: the sections of both, one after the other."""
    link = view["link"]
    people = link["parent"] or f"people of {link['child']}"
    tables = view["tables"] if "tables" in view else {link["child"]: view["rows"]}
    sections = [
        replace(section, heading=f"{name}: {section.heading}")
        for name, part in ((people, view["people"]), *tables.items())
        for section in build_model_page(part).sections
    ]
    foot = "For the steward: this page is made with real rows." if "utility" in view else "Made from the model alone."
    return Page("Synthetic model of people with their rows", tuple(sections), LINKED, foot)


def _describe_overview(view: View, compared: bool) -> Section:
    figures = KeyFigures(
        (
            KeyFigure(f"{view['estimated_rows']:,}", "rows, estimated"),
            KeyFigure(str(len(view["columns"])), "columns measured"),
            _show_noise(view["noise_in_a_table"]),
        )
    )
    caution = (Callout(CAUTION, Tone.DANGER, "Do not pass this on"),) if compared else ()
    return Section("In short", (*caution, figures, Paragraph(_say_use(view["tables"]))))


def _say_use(tables: list[View]) -> str:
    """What the noise leaves to be read: shares of one column, of several together, and how small a group may be."""
    told = []
    for entries, what in (([e for e in tables if len(e["columns"]) == 1], "one column"),
                          ([e for e in tables if len(e["columns"]) > 1], "several columns together")):  # fmt: skip
        good = [entry for entry in entries if entry["noise"] <= MOST_NOISE]
        if entries:
            told.append(
                f"Good for {len(good)} of {len(entries)} tables of {what}: there noise moves at most "
                f"{MOST_NOISE:.0%} of the rows, in the worst {max(entry['noise'] for entry in entries):.1%}."
            )
    lost = max((WIDTH * entry["deviation"] for entry in tables), default=0.0)
    return " ".join([*told, f"Not good for groups of fewer than about {lost:,.0f} rows: the noise hides them."])


MOST_NOISE = 0.1
"""A table that noise moves by more should not be read cell by cell."""
WIDTH = 1.959964
"""Deviations on either side of an interval of 95%."""


def _describe_tables(view: View) -> Section:
    rows = [
        {"table": " x ".join(entry["columns"]), "cells": entry["cells"],
         "one count is off by up to": round(WIDTH * entry["deviation"], 1), "in shares": f"{entry['error']:.2%}",
         "noise moves": f"{entry['noise']:.1%} of the rows"} for entry in view["tables"]
    ]  # fmt: skip
    made = ", ".join(view["made_anew"])
    anew = (Paragraph(f"Random new values, with nothing learned from the real ones: {made}."),) if made else ()
    how = Paragraph(f"Method {view['method']}: {view['reason']}.")
    table = Table.of(rows, fold=f"Every table that was counted: {len(rows)}")
    return Section("What was measured", (Paragraph(MEASURED), how, table, *anew))


def _draw_histogram(histogram: View) -> Section:
    bars, column = histogram["bars"], histogram["column"]
    if "real" in bars[0]:
        rows = [{"value": b["value"], "of": of, "share": b[of]} for b in bars for of in ("real", "synthetic")]
        alt = f"Shares of the values of {column}, in real and synthetic rows side by side"
        drawn = plots.draw_bars(rows, category="value", value="share", series="of", alt=alt, form=plots.PERCENT)
        return Section(column, (Plot(drawn, alt),))
    rows = [{**bar, "low": max(bar["share"] - bar["error"], 0.0), "high": min(bar["share"] + bar["error"], 1.0)}
        for bar in bars
    ]  # fmt: skip
    alt = f"Estimated shares of the values of {column}, with 95% intervals of the noise"
    drawn = plots.draw_bars(rows, category="value", value="share", low="low", high="high", alt=alt, form=plots.PERCENT)
    return Section(column, (Plot(drawn, alt),))


def _describe_marginals(entries: list[View]) -> Section:
    """Small tables, cell by cell, each with its error bar."""
    return Section("Tables, cell by cell", (Paragraph(CELLS), *(_tabulate_marginal(entry) for entry in entries)))


def _tabulate_marginal(entry: View) -> Table:
    rows = [dict(zip(entry["columns"], cell["values"], strict=True)) | _render_cell(cell) for cell in entry["cells"]]
    name, by = " x ".join(entry["columns"]), " x ".join(entry["measured"] or ())
    told = f"{name}, counted in {by}" if by != name else name
    words = told if by else f"{name}: not counted together, so no error bar is known"
    return Table.of(rows, fold=words)


def _render_cell(cell: View) -> dict[str, str]:
    error = f" ± {cell['error']:.2%}" if cell["error"] is not None else ""
    told = {"share of the rows": f"{cell['share']:.2%}{error}"}
    return told | ({"in the real rows": f"{cell['real']:.2%}"} if "real" in cell else {})


def _describe_associations(entries: list[View]) -> Section:
    alt = "How much columns that were measured together say of one another, from 0 to 1"
    blocks: list[Block] = [Paragraph(ASSOCIATIONS), Plot(_draw_map(entries, "strength", alt), alt)]
    if "real" in entries[0]:
        beside = "The same associations in the real rows"
        blocks.append(Plot(_draw_map(entries, "real", beside), beside))
    return Section("Associations", tuple(blocks))


def compare_associations(pairs: list[View]) -> Section:
    """Every pair of columns in the real rows, and in the synthetic ones: what was kept, and what was lost."""
    told = [(of, f"How much columns say of one another in the {of} rows, from 0 to 1") for of in ("real", "synthetic")]
    rows = [{"column": each["first"], "other column": each["second"], **each} for each in pairs]
    names: dict[str, Any] = {"x": "other column", "y": "column", "form": ".2f", "limits": (0.0, 1.0)}
    maps = [Plot(plots.draw_heatmap(rows, value=of, alt=alt, **names), alt) for of, alt in told]
    return Section("Associations", (Paragraph(COMPARED), *maps))


def _draw_map(entries: list[View], value: str, alt: str) -> dict[str, Any]:
    form = ".2f"
    return plots.draw_heatmap(entries, x="second", y="first", value=value, alt=alt, form=form, limits=(0.0, 1.0))


def _describe_utility(found: View) -> tuple[Section, ...]:
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
        blocks.append(_tabulate_classifier(found["classifier"]))
    sections = [Section("Against the real rows", tuple(blocks))]
    sections += [_describe_regression(found["regression"])] if found["regression"] is not None else []
    sections += [_describe_findings(found["findings"])] if "findings" in found else []
    sections += [_describe_scores(found["scores"])] if "scores" in found else []
    return tuple(sections)


def _describe_findings(found: list[View]) -> Section:
    """Which conclusions of an analyst the synthetic rows keep."""
    rows = [
        {"finding": each["text"], "real": _render_conclusion(each["real"]),
         "synthetic": _render_conclusion(each["synthetic"]), "kept": "yes" if each["kept"] else "NO"} for each in found
    ]  # fmt: skip
    text = (
        f"{sum(each['kept'] for each in found)} of {len(found)} findings are kept: the answer is the same, or the "
        "effect has the same direction. Other rows drawn from the model may lead to other answers; deniable parity "
        "tries many."
    )
    return Section("Findings on both", (Paragraph(text), Table.of(rows)))


def _render_conclusion(said: bool | float | None) -> str:
    if said is None:
        return "nothing"
    return ("yes" if said else "no") if isinstance(said, bool) else _render_figure(said)


def _describe_scores(found: View) -> Section:
    """The standard scores of other projects."""
    rows = [
        {"score": f"SDMetrics {title}: {each['name']}", "value": _render_share(each["value"])}
        for title in ("quality", "diagnostic")
        for each in ({"name": "overall", "value": found[title]["value"]}, *found[title]["properties"])
    ]
    rows += [{"score": f"SDNist k-marginal, k = {k}", "value": f"{score:.0f} of 1000"}
             for k, score in found["k_marginal"].items()]  # fmt: skip
    if (rates := found["tstr"]) is not None:
        trained = (f"{rates[f'accuracy_on_{side}']:.1%} trained on {side} rows" for side in ("synthetic", "real"))
        rows.append({"score": f"TSTR, gradient boosting of {rates['target']}", "value": ", ".join(trained)})
    return Section("Standard scores", (Paragraph(SCORES), Table.of(rows)))


def _render_share(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.1%}"


def _tabulate_classifier(rates: View) -> Table:
    row = {
        "trained on real rows": f"{rates['on_real']:.1%}",
        "trained on synthetic rows": f"{rates['on_synthetic']:.1%}",
        "always the most frequent value": f"{rates['majority']:.1%}",
    }
    return Table.of([row], f"How often a classifier guesses {rates['target']} rightly, on real rows it has not seen")


def _describe_regression(found: View) -> Section:
    text = (
        f"An analyst who explains {found['target']} by {', '.join(found['by'])} gets these coefficients from real and "
        f"from synthetic rows, with 95% intervals. The intervals overlap by {found['overlap']:.0%} on average, and "
        f"{found['covered']:.0%} of the real coefficients lie in the synthetic intervals. Intervals from synthetic "
        "rows know nothing of the noise, so they are too narrow. Categories are compared with the first one; dates "
        "count in years."
    )
    rows = [
        {"term": term["name"], "real": _render_interval(term["real"]), "synthetic": _render_interval(term["synthetic"]),
         "overlap": f"{term['overlap']:.0%}", "same direction": "yes" if term["same_sign"] else "NO"}
        for term in found["terms"]
    ]  # fmt: skip
    return Section("A regression on both", (Paragraph(text), Table.of(rows)))


def _render_interval(estimate: View) -> str:
    return (
        f"{_render_figure(estimate['value'])} ({_render_figure(estimate['low'])} to {_render_figure(estimate['high'])})"
    )


def _render_figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


Found = Mapping[str, Any]
HOW_TO_READ = (
    "Each attack is tried twice: on people whose rows the model was made from, and on people it never saw. What "
    "succeeds on both alike is true of people in general, as a medical finding is. Only what succeeds more often on "
    "people in the data tells something about them in particular; that part is called the gain here. Small gains, "
    "within the intervals drawn, are chance."
)
QUESTIONS = {
    "membership": "Was this person in the data?",
    "singling out": "Is there exactly one person like this?",
    "linkability": "Are these two half-known records the same person?",
}


def build_release_page(told: Found, view: Found | None = None) -> Page:
    """The steward's page of a release, or of one that was stopped; a view adds the comparison with the real rows."""
    proved = told.get("attack")
    sections = [*((_describe_verdict(proved), _describe_attacks(proved)) if proved is not None else ())]
    if view is not None:
        sections += build_model_page(view).sections
    elif told["file"] is not None:
        sections.append(_describe_release(told))
    lead = f"The synthetic table {Path(told['file']).name}." if told["file"] else "Nothing was released."
    return Page("Synthetic release", tuple(sections), lead, "For the steward: this page is made with real rows.")


def _describe_verdict(proved: Found) -> Section:
    worst = max(_list_outcomes(proved), key=lambda outcome: float(outcome["excess"]), default=None)
    figures = [
        KeyFigure(f"{proved['rows']:,}", "synthetic rows attacked"),
        KeyFigure(f"{proved['people_held_out']:,}", "real rows on each side", "in the data, and held out of it"),
    ]
    if worst is not None:
        figures.insert(0, KeyFigure(f"{worst['excess']:.1%}", "the largest gain over the control", worst["attack"]))
    return Section(
        "Verdict",
        (_describe_decision(proved), KeyFigures(tuple(figures)), *_tabulate_limits(proved), _describe_caution(proved)),
    )


def _describe_decision(proved: Found) -> Callout:
    if proved["failed"]:
        text = (
            "The release was stopped and nothing was written: an attack gains more than the policy allows, or one that "
            "the policy limits could not be tried. The charge stands, because the data were touched: "
            f"{proved['charged']}."
        )
        return Callout(text, Tone.DANGER, "Not released")
    if not proved["verdicts"]:
        return Callout("The policy sets no limit for these attacks, so nothing was judged.", Tone.WARNING, "Released")
    return Callout("Every attack that the policy limits stays under its limit.", Tone.GOOD, "Released")


def _tabulate_limits(proved: Found) -> tuple[Block, ...]:
    rows = [
        {"attack": one["attack"], "gain over the control": f"{one['exposed']:.1%}", "allowed": f"{one['most']:.1%}",
         "verdict": "FAILED" if one["failed"] else "met"} for one in proved["verdicts"]
    ]  # fmt: skip
    rows += [
        {"attack": name, "gain over the control": "not tried", "allowed": f"{proved['limits'][name]:.1%}",
         "verdict": "FAILED"} for name in proved["untried"]
    ]  # fmt: skip
    return (Table.of(rows, "Limits of the policy (release: attack: most)"),) if rows else ()


def _describe_caution(proved: Found) -> Callout:
    return Callout(f"Control group: {proved['control']}. {proved['remark']}", Tone.WARNING, "Do not pass this on")


def _describe_attacks(proved: Found) -> Section:
    outcomes = _list_outcomes(proved)
    blocks: list[Block] = [Paragraph(HOW_TO_READ)]
    if outcomes:
        names = {"attack": "people in the data", "control": "people held out"}
        bars = [{**row, "who": names[str(row["who"])]} for row in list_all_rates(outcomes)]
        alt = "How often each attack succeeds on people in the data and on people held out, with 95% intervals"
        drawn = plots.draw_bars(
            bars,
            category="attack",
            value="share",
            low="low",
            high="high",
            series="who",
            alt=alt,
            title="success",
            form=plots.PERCENT,
        )
        blocks += [Plot(drawn, alt), _tabulate_outcomes(outcomes)]
    skipped = [{"not tried": one["attack"], "why": one["skipped"]} for one in proved["attacks"] if one["skipped"]]
    warned = [f"{o['attack']}: {warning}" for o in outcomes for warning in o["warnings"]]
    blocks += [Callout("\n\n".join(warned), Tone.WARNING, "How far to trust these rates")] if warned else []
    return Section("Attacks", (*blocks, *((Table.of(skipped),) if skipped else ())))


def _tabulate_outcomes(outcomes: list[Found]) -> Table:
    rows = [
        {"attack": outcome["attack"], "the intruder asks": _ask_question(outcome),
         "people in the data": f"{outcome['exposed']['share']:.1%}",
         "people held out": f"{outcome['control']['share']:.1%}" if outcome["control"] else "not tried",
         "gain": f"{outcome['excess']:.1%}"} for outcome in outcomes
    ]  # fmt: skip
    return Table.of(rows, "The gain is the difference, as a share of what was left to gain; never below 0")


def _ask_question(outcome: Found) -> str:
    secret = outcome["figures"].get("secret")
    if secret:
        return f"What is this person's {secret}?"
    # Of linked tables an attack is named with its table: membership (patients).
    return QUESTIONS.get(outcome["attack"].partition(" (")[0], str(outcome["scenario"]))


def _list_outcomes(proved: Found) -> list[Found]:
    return [outcome for made in proved["attacks"] for outcome in made["outcomes"]]


def _describe_release(told: Found) -> Section:
    figures = (
        KeyFigure(f"{told['rows']:,}", "synthetic rows"),
        KeyFigure(told["method"], "method", told["reason"]),
        _show_noise(told["noise_in_a_table"]),
    )
    measured = [{"tables measured": table} for table in told["measured"]]
    return Section("What was made", (KeyFigures(figures), *((Table.of(measured),) if measured else ())))


def _show_noise(noise: float | None) -> KeyFigure:
    if noise is None:
        return KeyFigure("none", "measured", "of tables of several columns: columns are independent")
    return KeyFigure(f"{noise:.1%}", "of the rows", "moved by noise alone in a table of several")
