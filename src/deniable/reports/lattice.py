"""The lattice of generalizations as a picture: what each node costs against what it risks, and which was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deniable.reports.blocks import Block, Page, Paragraph, Plot, Section, Table
from deniable.reports.plots import scatter

Spec = dict[str, Any]

CHOSEN, ACCEPTABLE, FAILING = "chosen", "acceptable", "fails a model"


def lattice_plot(points: Sequence[Mapping[str, Any]], measure: str = "loss") -> Spec:
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
    return scatter(rows, x=measure, y="mean risk", series="node", alt=alt)


def lattice_page(report: Mapping[str, Any], measure: str = "loss") -> Page:
    """A page about one anonymization: what was found, the proof, the lattice."""
    blocks: list[Block] = [Paragraph(" ".join(report["words"])), Table.of(_facts(report), "What was released")]
    sections = [Section("The release", tuple(blocks))]
    if report["lattice"]:
        plot = Plot(lattice_plot(report["lattice"], measure))
        sections.append(Section("The lattice", (Paragraph(_proof(report["proof"])), plot)))
    lead = f"{report['released']} of {report['rows']} rows released in {report['classes']} classes."
    return Page("A k-anonymous release", tuple(sections), lead)


def _facts(report: Mapping[str, Any]) -> list[dict[str, object]]:
    shown = ("rows", "released", "suppressed", "classes")
    facts: list[dict[str, object]] = [{"fact": name, "value": report[name]} for name in shown]
    facts += [{"fact": "model", "value": model} for model in report["models"]]
    return facts + [{"fact": f"level of {name}", "value": level} for name, level in report.get("levels", {}).items()]


def _proof(proof: Mapping[str, Any]) -> str:
    counted = (
        f"Of {proof['nodes']} combinations of levels, {proof['checks']} were checked, {proof['excluded_as_failing']} "
        f"lie below one that fails, and {proof['excluded_as_costlier']} cost more than the best."
    )
    return counted + (" The release is optimal." if proof["optimal"] else f" The optimum is within {proof['gap']:.4g}.")
