"""The results of a survey, drawn: bars with intervals for every question, and what privacy was kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deniable.reports import plots
from deniable.reports.blocks import Block, Callout, KeyFigure, KeyFigures, Page, Paragraph, Plot, Section, Table, Tone

Found = dict[str, Any]


def build_survey_page(told: dict[str, Any]) -> Page:
    """The page of a survey's results, from the document that `survey results --json` prints."""
    sections = (
        Section("At a glance", _summarize_survey(told)),
        *(_describe_question(found, told) for found in told["findings"]),
    )
    contrasts = told.get("contrasts") or []
    if contrasts:
        sections += (Section("Between groups", _describe_contrasts(contrasts)),)
    for title, name in (("Together", "joint"), ("Weighted by known totals", "weighted")):
        cells = told.get(name) or []
        rows = tuple((" and ".join(c["answers"]), *(round(c[n], 4) for n in ("share", "low", "high"))) for c in cells)
        if rows:
            sections += (Section(title, (Table(("answers", "share", "low", "high"), rows),)),)
    lead = "Every answer was randomized on the respondent's own device; these totals are corrected for it."
    return Page(told["title"], lead=lead, sections=sections, foot=f"Survey {told['survey']}, drawn by deniable.")


def _summarize_survey(told: dict[str, Any]) -> tuple[Block, ...]:
    amplified = told["amplified"]
    figures = [
        KeyFigure(f"{told['responses']:,}", "responses"),
        KeyFigure(f"{told['local_epsilon']:.3g}", "local epsilon", "what one person's message can tell, at most"),
    ]
    if amplified and str(amplified["method"]).startswith("none"):
        remark = "too few have answered for shuffling to hide anybody further: what is local holds"
        figures.append(KeyFigure("the same", "for the shuffled batch", remark))
    elif amplified:
        remark = f"for the shuffled batch, with delta {amplified['delta']:g}; {amplified['method']}"
        figures.append(KeyFigure(f"{amplified['epsilon']:.3g}", "central epsilon", remark))
    few = told["responses"] < 500
    warning = Callout("Fewer than 500 responses: the noise is large, read the intervals first.", Tone.WARNING)
    damage = told.get("damage") or ""
    damaged = (Callout(damage, Tone.WARNING),) if damage else ()
    return (KeyFigures(tuple(figures)), *((warning,) if few else ()), *damaged)


def _describe_question(found: Found, told: dict[str, Any]) -> Section:
    level = f"{told['confidence']:.0%}"
    if not found["responses"]:
        return Section(found["ask"], (Paragraph("Nobody answered this question."),))
    blocks: list[Block] = []
    if found["mean"]:
        low, high = found["mean"]["interval"]
        unit = f" {found['unit']}" if found["unit"] else ""
        blocks.append(
            KeyFigures(
                (KeyFigure(f"{found['mean']['value']:,.4g}{unit}", "mean", f"{level}: {low:,.4g} to {high:,.4g}"),)
            )
        )
    if found["shares"]:
        blocks.append(_draw_shares(found, level))
    if not blocks:
        blocks.append(
            Paragraph("No word stands clear of the noise: more responses, or a larger epsilon, find rarer ones.")
        )
    note = f"{found['responses']:,} responses at epsilon {found['epsilon']:.3g}. {_describe_poisoning(found)}"
    return Section(found["ask"], (*blocks, Paragraph(note)))


def _describe_poisoning(found: Found) -> str:
    """What hostile respondents could do to a finding."""
    if found.get("moved_by_one") is None:
        return ""
    number = bool(found["mean"])
    moved = f"{found['moved_by_one']:.3g} {found['unit']}".strip() if number else f"{found['moved_by_one']:.2%}"
    text = f"One hostile respondent can move this by {moved} at most."
    if found["overturned_by"] is None:
        return text
    done = "move the mean out of its interval" if number else "put another answer first"
    return f"{text} {found['overturned_by']:,} of them could {done}."


def _draw_shares(found: Found, level: str) -> Plot:
    ends = ("share", "low", "high")
    shares = found["shares"][:40]
    rows = [{"answer": share["answer"], **{end: min(1.0, max(0.0, share[end])) for end in ends}} for share in shares]
    beyond = any(not 0 <= share[end] <= 1 for share in shares for end in ends)
    top = max(rows, key=lambda row: row["share"])
    alt = f"Estimated shares of {len(rows)} answers; the largest is {top['answer']} with {top['share']:.0%}."
    spec = plots.draw_bars(
        rows,
        category="answer",
        value="share",
        low="low",
        high="high",
        alt=alt,
        title="estimated share",
        form=plots.PERCENT,
        limits=(0.0, 1.0),
    )
    cut = ". What noise puts below 0% or above 100% is drawn at the end of the axis; the table has it" if beyond else ""
    caption = f"Estimated shares with {level} intervals{cut}"
    return Plot(spec, caption=caption, table=_tabulate_shares(found["shares"]))


def _tabulate_shares(shares: Sequence[Found]) -> Table:
    rows = tuple(
        (s["answer"], round(s["share"], 4), round(s["low"], 4), round(s["high"], 4), round(s["consistent"], 4))
        for s in shares
    )
    return Table(("answer", "share", "low", "high", "made consistent"), rows)


def _describe_contrasts(contrasts: Sequence[dict[str, Any]]) -> tuple[Block, ...]:
    rows = tuple(
        (c["answer"], round(c["difference"], 4), round(c["low"], 4), round(c["high"], 4), f"{c['p_value']:.3g}")
        for c in contrasts
    )
    first = contrasts[0]
    text = (
        f"'{first['question']}' of the group {first['between'][0]}, less that of {first['between'][1]}. "
        "A group that was reported with noise is taken apart from the others; the interval holds that noise too. "
        "p-values are adjusted (Holm)."
    )
    return (Paragraph(text), Table(("answer", "difference", "low", "high", "p"), rows))


def plot_sweep(rungs: Sequence[dict[str, Any]], acceptable: float, chosen: float | None) -> Plot:
    """The epsilon sweep: accuracy against epsilon, with the accuracy that was asked for."""
    rows = [{"epsilon": r["epsilon"], "accuracy": r["accuracy"], "low": r["low"], "high": r["high"]} for r in rungs]
    found = f"the smallest acceptable epsilon is {chosen:g}" if chosen is not None else "no epsilon is acceptable"
    alt = f"Accuracy at {len(rows)} epsilons; {found}, at accuracy {acceptable:.0%} or more."
    spec = plots.draw_lines(rows, x="epsilon", y="accuracy", low="low", high="high", alt=alt, log_x=True,
                            form=plots.PERCENT, asked=acceptable)  # fmt: skip
    return Plot(spec, caption=f"Accuracy by epsilon; asked for {acceptable:.0%}")


def build_sweep_page(told: dict[str, Any]) -> Page:
    """The page of an epsilon sweep."""
    chosen = told["chosen"]
    figure = KeyFigure(
        f"{chosen:g}" if chosen is not None else "none",
        "smallest acceptable epsilon",
        f"{told['acceptable']:.0%} asked; {told['baseline']:.1%} without noise, {told['majority']:.1%} by guessing",
    )
    blocks: tuple[Block, ...] = (KeyFigures((figure,)), plot_sweep(told["rungs"], told["acceptable"], chosen))
    caution = Callout(
        "Choosing epsilon by accuracy looks at the clean table: do it on one you may look at, then fix epsilon.",
        Tone.WARNING,
    )
    return Page(f"Epsilon ladder for {told['label']}", sections=(Section("The ladder", (*blocks, caution)),))
