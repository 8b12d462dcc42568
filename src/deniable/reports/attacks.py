"""Pages of attacks: the motivated-intruder test of a release, and the distinguishing game against a mechanism.

The first tells how many people are exposed, by whom, knowing what, and how sure; the second sets the best attacker's
wins beside what epsilon allows, and the proven lower bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deniable.reports import plots
from deniable.reports.blocks import Block, Callout, KeyFigure, KeyFigures, Page, Paragraph, Plot, Section, Table, Tone

Found = Mapping[str, Any]


def build_exposure_page(found: Found) -> Page:
    """The page, from the document that `deniable attack --json` prints."""
    sections = [
        Section("In one sentence", _describe_worst(found)),
        Section("Attacks", _describe_attacks(found)),
        *_section_unless_empty("What knowing more adds", _describe_curve(found)),
        *_section_unless_empty("Which columns are to blame", _describe_blame(found)),
        *_section_unless_empty("Thresholds", _describe_thresholds(found)),
        *_section_unless_empty("What was not tried", _list_skipped(found)),
        *_section_unless_empty("Weakest records", _list_weakest(found)),
    ]
    lead = f"What an intruder could do with {found['subject']}" + (
        f", knowing {', '.join(found['knows'])}." if found["knows"] else "."
    )
    return Page("Exposure", tuple(sections), lead, "For the steward: this page tells where the data are weak.")


def _section_unless_empty(heading: str, blocks: tuple[Block, ...]) -> tuple[Section, ...]:
    return (Section(heading, blocks),) if blocks else ()


def _list_outcomes(found: Found) -> list[Found]:
    return [outcome for made in found["attacks"] for outcome in made["outcomes"]]


def _find_worst(found: Found) -> Found | None:
    return max(_list_outcomes(found), key=lambda outcome: (outcome["excess"], outcome["per_thousand"]), default=None)


def _describe_worst(found: Found) -> tuple[Block, ...]:
    worst = _find_worst(found)
    if worst is None:
        return (Callout("No attack applied: nothing is known about the risk.", Tone.WARNING),)
    count = worst["per_thousand"]
    tone = Tone.DANGER if found["failed"] else (Tone.WARNING if count else Tone.GOOD)
    label = "of 1,000 people are exposed"
    crowd = Plot(plots.draw_people(min(1000, count), label=label, alt=f"{count} {label}."), worst["scenario"])
    return (Callout(worst["sentence"], tone), KeyFigures(_list_figures(worst)), crowd, *_compare_before(found))


def _compare_before(found: Found) -> tuple[Block, ...]:
    """People exposed of 1,000 by the same intruder, had the original rows been released, and now."""
    after = {made["attack"]: made["outcomes"][0]["per_thousand"] for made in found["attacks"] if made["outcomes"]}
    rows = [
        {"attack": name, "before": outcome["per_thousand"], "after": after[name]}
        for name, outcome in found.get("before", {}).items()
        if name in after
    ]
    return (
        (Table.of(rows, "People exposed of 1,000, before (the original rows as they are) and after"),) if rows else ()
    )


def _list_figures(worst: Found) -> tuple[KeyFigure, ...]:
    rate = worst["exposed"]
    figures = [
        KeyFigure(f"{worst['per_thousand']}", "exposed of 1,000", f"95%: {rate['low']:.1%} to {rate['high']:.1%}"),
        KeyFigure(f"{worst['excess']:.0%}", "beyond the control or guessing", worst["attack"]),
    ]
    if worst["precision"]:
        figures.append(KeyFigure(f"{worst['precision']['share']:.0%}", "right when a claim is made"))
    return tuple(figures)


def _describe_attacks(found: Found) -> tuple[Block, ...]:
    rows = [row for outcome in _list_outcomes(found) for row in list_success_rates(outcome)]
    if not rows:
        return (Paragraph("No attack was run."),)
    alt = "; ".join(f"{outcome['attack']} {outcome['exposed']['share']:.0%}" for outcome in _list_outcomes(found)) + "."
    spec = plots.draw_bars(
        rows, category="attack", value="share", low="low", high="high", series="who", alt=alt, title="success"
    )
    told = [outcome["sentence"] for outcome in _list_outcomes(found)]
    warned = [f"{outcome['attack']}: {warning}" for outcome in _list_outcomes(found) for warning in outcome["warnings"]]
    blocks: list[Block] = [Plot(spec, "Success of each attack with 95% intervals, beside its control"),
                           Paragraph("\n\n".join(told))]  # fmt: skip
    return (*blocks, *((Callout("\n".join(warned), Tone.WARNING, "Beware"),) if warned else ()))


# a dictionary: rows of a plot, in the words of Vega-Lite
def list_success_rates(outcome: Found) -> list[dict[str, object]]:
    """How often an attack succeeds, and its control: two rows for a plot of bars."""
    units = {"facts": "facts", "width": "columns"}
    more = [f"{outcome['figures'][key]} {word}" for key, word in units.items() if outcome["figures"].get(key)]
    named = ", ".join([outcome["attack"], *more])
    parts = [("attack", outcome["exposed"])] + ([("control", outcome["control"])] if outcome["control"] else [])
    return [
        {"attack": named, "who": who, "share": rate["share"], "low": rate["low"], "high": rate["high"]}
        for who, rate in parts
    ]


def _describe_curve(found: Found) -> tuple[Block, ...]:
    curve = found.get("curve", [])
    if not curve:
        return ()
    alt = f"Knowing {curve[-1]['known']} columns singles out {curve[-1]['share']:.0%} of people."
    spec = plots.draw_lines(curve, x="known", y="share", low="low", high="high", alt=alt, title="share singled out")
    sets = [{"columns": " + ".join(one["columns"]), "singled out": f"{one['share']:.1%}"}
            for one in found.get("identifying_sets", [])[:20]]  # fmt: skip
    tables = (Table.of(sets, "Smallest sets of columns that single out half of the people or more"),) if sets else ()
    return (Plot(spec, "The worst choice of so many columns"), *tables)


def _describe_blame(found: Found) -> tuple[Block, ...]:
    rows = found.get("blame", [])
    said = (Callout(found["because"], Tone.WARNING, "Left as they are"),) if found.get("because") else ()
    if not rows:
        return said
    alt = f"Without {rows[0]['column']}, {rows[0]['unique_without']:.0%} of people would be unique."
    spec = plots.draw_bars(rows, category="column", value="unique_without", alt=alt, title="unique without it")
    return (*said, Plot(spec, "People who stay unique when the intruder does not know a column"))


def _describe_thresholds(found: Found) -> tuple[Block, ...]:
    rows = [
        {"attack": one["attack"], "exposed": f"{one['exposed']:.1%}", "allowed": f"{one['most']:.1%}",
         "verdict": "failed" if one["failed"] else "met"}
        for one in found["verdicts"]
    ]  # fmt: skip
    if not rows:
        return ()
    if found["failed"]:
        return (Callout("A threshold is passed: this must not leave.", Tone.DANGER), Table.of(rows))
    return (Callout("All thresholds are met.", Tone.GOOD), Table.of(rows))


def _list_skipped(found: Found) -> tuple[Block, ...]:
    rows = [{"attack": made["attack"], "why": made["skipped"]} for made in found["attacks"] if made["skipped"]]
    return (Table.of(rows),) if rows else ()


def _list_weakest(found: Found) -> tuple[Block, ...]:
    rows = [{"row": one["row"], "rows alike": one["alike"]} for one in found.get("weakest", [])]
    if not rows:
        return ()
    note = Callout("Positions in the file, counted from 1. Do not pass this page on with the release.", Tone.WARNING)
    return (note, Table.of(rows))


def build_audit_page(found: Found) -> Page:
    """The page, from the document that `deniable audit --json` prints."""
    sections = (
        Section("In one sentence", _describe_verdict(found)),
        Section("The game", _describe_game(found)),
        Section("The proof", _describe_proof(found)),
    )
    lead = f"Can an intruder tell {found['neighbors']}, knowing everything else?"
    runs = "One run" if found["runs"] == 1 else f"{found['runs']:,} runs on each neighbor"
    foot = f"{runs}. No data was touched, and nothing was charged."
    return Page(f"Audit of {found['mechanism']}", sections, lead, foot)


def _describe_verdict(found: Found) -> tuple[Block, ...]:
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


def _describe_game(found: Found) -> tuple[Block, ...]:
    if not found["game"]["points"]:
        words = (
            "Each of many people was put into the table or left out by a coin. The attacker sees what was learned from "
            "it in one run, and calls those in of whom it seems to tell most, and those out of whom it tells least. "
            "Each call is a game, won when it is right."
        )
        return (Paragraph(words),)
    words = (
        "A coin picks one of two tables that differ in one person; the attacker knows both, sees one answer, and says "
        "which table it came from. Each point is a strategy: how often it says 'with the person' rightly (hits), and "
        "how often wrongly (false alarms). No strategy may lie above the bound. The lowest line is a coin."
    )
    return Paragraph(words), plot_game(found["game"]["points"], found["epsilon"])


def plot_game(points: Sequence[Found], epsilon: float) -> Plot:
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
    spec = plots.draw_lines(rows, x="false alarms", y="hits", series="who", alt=alt)
    return Plot(spec, f"What the best attacker reaches, and what epsilon {epsilon:g} allows")


def _describe_proof(found: Found) -> tuple[Block, ...]:
    proof = found["audit"]
    if "canaries" in proof:
        words = (
            f"{proof['correct']:,} of {proof['guesses']:,} calls about {proof['canaries']:,} people were right. With "
            f"confidence {proof['confidence']:g}, epsilon is at least {proof['epsilon_bound']:.3f}. One run proves "
            "less than many: where nothing is refuted, nothing more is proven."
        )
        return (Paragraph(words),)
    words = (
        f"An event was chosen on half of the runs and tested on the others, by the {proof['feature']} of the output: "
        f"it came {proof['likely']:,} times from one table and {proof['unlikely']:,} times from the other, in "
        f"{proof['tested']:,} runs each. With confidence {proof['confidence']:g}, epsilon is at least "
        f"{proof['epsilon_bound']:.3f}. An audit that refutes nothing proves nothing more: a cleverer attacker, or "
        "other neighbors, may do better."
    )
    return (Paragraph(words),)
