"""The page of an audit: the best attacker's wins beside what epsilon allows, and the proven lower bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deniable.reports import plots
from deniable.reports.blocks import Block, Callout, KeyFigure, KeyFigures, Page, Paragraph, Plot, Section, Tone

Found = Mapping[str, Any]


def audit_page(found: Found) -> Page:
    """The page, from the document that `deniable audit --json` prints."""
    sections = (
        Section("In one sentence", _verdict(found)),
        Section("The game", _game(found)),
        Section("The proof", _proof(found)),
    )
    lead = f"Can an intruder tell {found['neighbors']}, knowing everything else?"
    foot = f"{found['runs']:,} runs on each neighbor. No data was touched, and nothing was charged."
    return Page(f"Audit of {found['mechanism']}", sections, lead, foot)


def _verdict(found: Found) -> tuple[Block, ...]:
    wins, most = found["game"]["wins"], found["game"]["most"]
    bound = found["audit"]["epsilon_bound"]
    claim = f"epsilon {found['epsilon']:g}" + (f" and delta {found['delta']:g}" if found["delta"] else "")
    if found["failed"]:
        told = f"The claim of {claim} is refuted: epsilon is at least {bound:.3f}."
    else:
        told = (
            f"The claim of {claim} stands: the best attacker found wins {wins['share']:.1%} of games "
            f"({wins['low']:.1%} to {wins['high']:.1%}), where the claim allows {most:.1%}."
        )
    figures = (
        KeyFigure(f"{wins['share']:.1%}", "of games won", f"95%: {wins['low']:.1%} to {wins['high']:.1%}"),
        KeyFigure(f"{most:.1%}", "is the most that the claim allows", "a coin wins 50%"),
        KeyFigure(f"{bound:.3f}", "epsilon at least", f"claimed {found['epsilon']:g}"),
    )
    return Callout(told, Tone.DANGER if found["failed"] else Tone.GOOD), KeyFigures(figures)


def _game(found: Found) -> tuple[Block, ...]:
    words = (
        "A coin picks one of two tables that differ in one person; the attacker knows both, sees one answer, and says "
        "which table it came from. Each point is a strategy: how often it says 'with the person' rightly (hits), and "
        "how often wrongly (false alarms). No strategy may lie above the bound. The lowest line is a coin."
    )
    return Paragraph(words), game_plot(found["game"]["points"], found["epsilon"])


def game_plot(points: Sequence[Found], epsilon: float) -> Plot:
    """The distinguishing game: the best attacker's hits against false alarms, beside what epsilon allows."""
    drawn = (("best attacker", "hits"), ("bound of epsilon", "bound"), ("a coin", "false_alarms"))
    rows = [
        {"false alarms": point["false_alarms"], "hits": point[field], "who": who}
        for who, field in drawn
        for point in points
    ]
    over = sum(point["hits"] > point["bound"] for point in points)
    alt = (
        f"The best attacker's hits against false alarms: {over} of {len(points)} strategies above epsilon {epsilon:g}."
    )
    spec = plots.lines(rows, x="false alarms", y="hits", series="who", alt=alt)
    return Plot(spec, f"What the best attacker reaches, and what epsilon {epsilon:g} allows")


def _proof(found: Found) -> tuple[Block, ...]:
    proof = found["audit"]
    words = (
        f"An event was chosen on half of the runs and tested on the others, by the {proof['feature']} of the output: "
        f"it came {proof['likely']:,} times from one table and {proof['unlikely']:,} times from the other, in "
        f"{proof['tested']:,} runs each. With confidence {proof['confidence']:g}, epsilon is at least "
        f"{proof['epsilon_bound']:.3f}. An audit that refutes nothing proves nothing more: a cleverer attacker, or "
        "other neighbors, may do better."
    )
    return (Paragraph(words),)
