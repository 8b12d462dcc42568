"""The page of a parity comparison: which method keeps how much at which epsilon, then every finding with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deniable.reports import plots
from deniable.reports.blocks import Block, Callout, Page, Paragraph, Plot, Section, Table, Tone

Row = Mapping[str, Any]
HOW_TO_READ = (
    "A finding is a conclusion that an analyst might publish. It is kept when the synthetic rows lead to the same yes "
    "or no, or to an effect of the same sign, as the real rows. 100% means that every synthetic table led to it; an "
    "effect that was lost altogether keeps its sign in half of the runs, by chance."
)
CAUTION = (
    "This compares with the real rows: it is for the steward, and is not to be released. Choose a method and an "
    "epsilon by it, then synthesize once. Statistical tests on synthetic rows find effects that are not there more "
    "often than they should at epsilon 1 and below (arXiv 2403.13612)."
)


def build_parity_page(told: Mapping[str, Any]) -> Page:
    """One plot of all methods, then a section for each of them."""
    kept = told["kept"]
    texts = {finding["finding"]: finding["text"] for finding in told["findings"]}
    methods = dict.fromkeys(str(row["method"]) for row in kept)
    sections = [_describe_methods(told["averages"], told["unsuited"]), _tabulate_findings(told["findings"])]
    sections += [
        _describe_method(method, [row for row in kept if row["method"] == method], texts) for method in methods
    ]
    lead = "Would the conclusions have been the same on synthetic rows?"
    return Page("Parity of findings", tuple(sections), lead, "For the steward: this page is made with real rows.")


def _describe_methods(rows: Sequence[Row], unsuited: Mapping[str, str]) -> Section:
    alt = "Share of findings kept, on average over findings and runs, by epsilon and method"
    drawn = plots.draw_lines(rows, x="epsilon", y="share", series="method", alt=alt, title="share kept", log_x=True)
    left = [{"method left out": method, "why": why} for method, why in unsuited.items()]
    blocks: list[Block] = [Paragraph(HOW_TO_READ), Plot(drawn, alt), Callout(CAUTION, Tone.WARNING)]
    return Section("Which method, which epsilon", (*blocks, *((Table.of(left),) if left else ())))


def _tabulate_findings(findings: Sequence[Row]) -> Section:
    rows = [{"finding": finding["text"], "on the real rows": _render_finding(finding["real"])} for finding in findings]
    return Section("The findings", (Table.of(rows),))


def _render_finding(real: bool | float) -> str:
    if isinstance(real, bool):
        return "holds" if real else "does not hold"
    return f"effect {real:+,.0f}" if abs(real) >= 1000 else f"effect {real:+.3g}"


def _describe_method(method: str, rows: list[Row], texts: Mapping[str, str]) -> Section:
    cells = [{"finding": row["finding"], "epsilon": f"{row['epsilon']:g}", "kept": row["share"]} for row in rows]
    alt = f"Share of runs of {method} in which each finding was kept, by epsilon"
    drawn = plots.draw_heatmap(cells, x="epsilon", y="finding", value="kept", alt=alt, form=".0%", limits=(0.0, 1.0))
    listed = [{"finding": texts[row["finding"]], "epsilon": row["epsilon"], "kept": f"{row['kept']} of {row['runs']}",
               "95% interval": f"{row['low']:.0%} to {row['high']:.0%}"} for row in rows]  # fmt: skip
    twin = Table.of(listed)
    return Section(f"Method {method}", (Plot(drawn, alt, twin),))
