"""The page of a synthetic release that was attacked before it left: verdict, attacks beside their controls, limits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deniable.reports import plots, synth
from deniable.reports.blocks import Block, Callout, KeyFigure, KeyFigures, Page, Paragraph, Plot, Section, Table, Tone
from deniable.reports.exposure import success

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


def page(told: Found, view: Found | None = None) -> Page:
    """The steward's page of a release, or of one that was stopped; a view adds the comparison with the real rows."""
    proved = told.get("attack")
    sections = [*((_verdict(proved), _attacks(proved)) if proved is not None else ())]
    if view is not None:
        sections += synth.page(view).sections
    elif told["file"] is not None:
        sections.append(_made(told))
    lead = f"The synthetic table {Path(told['file']).name}." if told["file"] else "Nothing was released."
    return Page("Synthetic release", tuple(sections), lead, "For the steward: this page is made with real rows.")


def _verdict(proved: Found) -> Section:
    worst = max(_outcomes(proved), key=lambda outcome: float(outcome["excess"]), default=None)
    figures = [
        KeyFigure(f"{proved['rows']:,}", "synthetic rows attacked"),
        KeyFigure(f"{proved['people_held_out']:,}", "real rows on each side", "in the data, and held out of it"),
    ]
    if worst is not None:
        figures.insert(0, KeyFigure(f"{worst['excess']:.1%}", "the largest gain over the control", worst["attack"]))
    return Section("Verdict", (_callout(proved), KeyFigures(tuple(figures)), *_limits(proved), _caution(proved)))


def _callout(proved: Found) -> Callout:
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


def _limits(proved: Found) -> tuple[Block, ...]:
    rows = [
        {"attack": one["attack"], "gain over the control": f"{one['exposed']:.1%}", "allowed": f"{one['most']:.1%}",
         "verdict": "FAILED" if one["failed"] else "met"} for one in proved["verdicts"]
    ]  # fmt: skip
    rows += [
        {"attack": name, "gain over the control": "not tried", "allowed": f"{proved['limits'][name]:.1%}",
         "verdict": "FAILED"} for name in proved["untried"]
    ]  # fmt: skip
    return (Table.of(rows, "Limits of the policy (release: attack: most)"),) if rows else ()


def _caution(proved: Found) -> Callout:
    return Callout(f"Control group: {proved['control']}. {proved['remark']}", Tone.WARNING, "Do not pass this on")


def _attacks(proved: Found) -> Section:
    outcomes = _outcomes(proved)
    blocks: list[Block] = [Paragraph(HOW_TO_READ)]
    if outcomes:
        names = {"attack": "people in the data", "control": "people held out"}
        bars = [{**row, "who": names[str(row["who"])]} for outcome in outcomes for row in success(outcome)]
        alt = "How often each attack succeeds on people in the data and on people held out, with 95% intervals"
        drawn = plots.bars(
            bars, category="attack", value="share", low="low", high="high", series="who", alt=alt, title="success"
        )
        blocks += [Plot(drawn, alt), _table(outcomes)]
    skipped = [{"not tried": one["attack"], "why": one["skipped"]} for one in proved["attacks"] if one["skipped"]]
    warned = [f"{o['attack']}: {warning}" for o in outcomes for warning in o["warnings"]]
    blocks += [Callout("\n\n".join(warned), Tone.WARNING, "How far to trust these rates")] if warned else []
    return Section("Attacks", (*blocks, *((Table.of(skipped),) if skipped else ())))


def _table(outcomes: list[Found]) -> Table:
    rows = [
        {"attack": outcome["attack"], "the intruder asks": _question(outcome),
         "people in the data": f"{outcome['exposed']['share']:.1%}",
         "people held out": f"{outcome['control']['share']:.1%}" if outcome["control"] else "not tried",
         "gain": f"{outcome['excess']:.1%}"} for outcome in outcomes
    ]  # fmt: skip
    return Table.of(rows, "The gain is the difference, as a share of what was left to gain; never below 0")


def _question(outcome: Found) -> str:
    secret = outcome["figures"].get("secret")
    if secret:
        return f"What is this person's {secret}?"
    # Of linked tables an attack is named with its table: membership (patients).
    return QUESTIONS.get(outcome["attack"].partition(" (")[0], str(outcome["scenario"]))


def _outcomes(proved: Found) -> list[Found]:
    return [outcome for made in proved["attacks"] for outcome in made["outcomes"]]


def _made(told: Found) -> Section:
    figures = (
        KeyFigure(f"{told['rows']:,}", "synthetic rows"),
        KeyFigure(told["method"], "method", told["reason"]),
        KeyFigure(f"{told['noise_in_a_table']:.1%}", "of the rows", "moved by noise alone in a table of several"),
    )
    return Section("What was made", (KeyFigures(figures), Table.of([{"tables measured": t} for t in told["measured"]])))
