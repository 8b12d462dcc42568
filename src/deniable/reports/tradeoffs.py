"""Pages that help to choose: expected error against epsilon, and information loss against risk in a lattice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deniable.reports import plots
from deniable.reports.blocks import Block, Callout, Page, Paragraph, Plot, Section, Table
from deniable.reports.plots import draw_scatter


def build_error_page(sql: str, rows: Sequence[Mapping[str, Any]]) -> Page:
    """The page of one question."""
    lead = "What the noise would do to each number, by the epsilon spent on it. No data was read for this page."
    if not rows:
        free = Callout("This question measures nothing about anybody: it is free, and exact.")
        return Page("Expected errors", (Section("The question", (Paragraph(sql), free)),), lead)
    return Page("Expected errors", (Section("The question", (Paragraph(sql), *_plot_errors(rows))),), lead)


def _plot_errors(rows: Sequence[Mapping[str, Any]]) -> tuple[Block, ...]:
    """One plot for each unit of error: numbers that are counted in ranks do not belong beside sums."""
    units = dict.fromkeys(row["error_in"] for row in rows)
    return tuple(_plot_unit([row for row in rows if row["error_in"] == unit], unit) for unit in units)


def _plot_unit(rows: list[Mapping[str, Any]], unit: str) -> Plot:
    kept = [{key: row[key] for key in ("epsilon", "measurement", "error")} for row in rows]
    count = len({row["measurement"] for row in rows})
    alt = f"Expected error, in {unit}, of {count} measurements against epsilon: it falls as epsilon grows."
    spec = plots.draw_lines(
        kept, x="epsilon", y="error", series="measurement", alt=alt, title=f"error ({unit})", log_x=True, log_y=True
    )
    return Plot(spec, caption="With 95% confidence the noise of one number is at most this.")


Spec = dict[str, Any]

CHOSEN, ACCEPTABLE, FAILING = "chosen", "acceptable", "fails a model"


def plot_lattice(points: Sequence[Mapping[str, Any]], measure: str = "loss") -> Spec:
    """Loss against risk, one point a node that was checked; nodes that fail are placed by their loss alone."""
    rows = [
        {
            measure: point["cost"] if point["cost"] is not None else point["base"],
            "mean risk": point["risk"],
            "node": CHOSEN if point["chosen"] else ACCEPTABLE if point["acceptable"] else FAILING,
            "levels": ", ".join(f"{name} {level}" for name, level in point["levels"].items()),
        }
        for point in points
    ]
    alt = f"{len(rows)} generalizations by {measure} and by the mean risk of re-identification; one is chosen."
    return draw_scatter(rows, x=measure, y="mean risk", series="node", alt=alt)


def build_lattice_page(report: Mapping[str, Any], measure: str = "loss") -> Page:
    """A page about one anonymization: what was found, the proof, the lattice."""
    blocks: list[Block] = [Paragraph(" ".join(report["words"])), Table.of(_list_facts(report), "What was released")]
    sections = [Section("The release", tuple(blocks))]
    if report["lattice"]:
        plot = Plot(plot_lattice(report["lattice"], measure))
        sections.append(Section("The lattice", (Paragraph(_describe_proof(report["proof"])), plot)))
    lead = f"{report['released']} of {report['rows']} rows released in {report['classes']} classes."
    return Page("A k-anonymous release", tuple(sections), lead)


def _list_facts(report: Mapping[str, Any]) -> list[dict[str, object]]:
    shown = ("rows", "released", "suppressed", "classes")
    facts: list[dict[str, object]] = [{"fact": name, "value": report[name]} for name in shown]
    facts += [{"fact": "model", "value": model} for model in report["models"]]
    return facts + [{"fact": f"level of {name}", "value": level} for name, level in report.get("levels", {}).items()]


def _describe_proof(proof: Mapping[str, Any]) -> str:
    counted = (
        f"Of {proof['nodes']} combinations of levels, {proof['checks']} were checked, {proof['excluded_as_failing']} "
        f"lie below one that fails, and {proof['excluded_as_costlier']} cost more than the best."
    )
    return counted + (" The release is optimal." if proof["optimal"] else f" The optimum is within {proof['gap']:.4g}.")
