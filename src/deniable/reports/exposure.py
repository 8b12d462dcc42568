"""The page of the motivated-intruder test: how many people are exposed, by whom, knowing what, and how sure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deniable.reports import plots
from deniable.reports.blocks import Block, Callout, KeyFigure, KeyFigures, Page, Paragraph, Plot, Section, Table, Tone

Found = Mapping[str, Any]


def exposure_page(found: Found) -> Page:
    """The page, from the document that `deniable attack --json` prints."""
    sections = [
        Section("In one sentence", _sentence(found)),
        Section("Attacks", _attacks(found)),
        *_section("What knowing more adds", _curve(found)),
        *_section("Which columns are to blame", _blame(found)),
        *_section("Thresholds", _verdicts(found)),
        *_section("What was not tried", _skipped(found)),
        *_section("Weakest records", _weakest(found)),
    ]
    lead = f"What an intruder could do with {found['subject']}" + (
        f", knowing {', '.join(found['knows'])}." if found["knows"] else "."
    )
    return Page("Exposure", tuple(sections), lead, "For the steward: this page tells where the data are weak.")


def _section(heading: str, blocks: tuple[Block, ...]) -> tuple[Section, ...]:
    return (Section(heading, blocks),) if blocks else ()


def _outcomes(found: Found) -> list[Found]:
    return [outcome for made in found["attacks"] for outcome in made["outcomes"]]


def _worst(found: Found) -> Found | None:
    return max(_outcomes(found), key=lambda outcome: (outcome["excess"], outcome["per_thousand"]), default=None)


def _sentence(found: Found) -> tuple[Block, ...]:
    worst = _worst(found)
    if worst is None:
        return (Callout("No attack applied: nothing is known about the risk.", Tone.WARNING),)
    count = worst["per_thousand"]
    tone = Tone.DANGER if found["failed"] else (Tone.WARNING if count else Tone.GOOD)
    label = "of 1,000 people are exposed"
    crowd = Plot(plots.people(min(1000, count), label=label, alt=f"{count} {label}."), worst["scenario"])
    return (Callout(worst["sentence"], tone), KeyFigures(_figures(worst)), crowd, *_before(found))


def _before(found: Found) -> tuple[Block, ...]:
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


def _figures(worst: Found) -> tuple[KeyFigure, ...]:
    rate = worst["exposed"]
    figures = [
        KeyFigure(f"{worst['per_thousand']}", "exposed of 1,000", f"95%: {rate['low']:.1%} to {rate['high']:.1%}"),
        KeyFigure(f"{worst['excess']:.0%}", "beyond the control or guessing", worst["attack"]),
    ]
    if worst["precision"]:
        figures.append(KeyFigure(f"{worst['precision']['share']:.0%}", "right when a claim is made"))
    return tuple(figures)


def _attacks(found: Found) -> tuple[Block, ...]:
    rows = [row for outcome in _outcomes(found) for row in success(outcome)]
    if not rows:
        return (Paragraph("No attack was run."),)
    alt = "; ".join(f"{outcome['attack']} {outcome['exposed']['share']:.0%}" for outcome in _outcomes(found)) + "."
    spec = plots.bars(
        rows, category="attack", value="share", low="low", high="high", series="who", alt=alt, title="success"
    )
    told = [outcome["sentence"] for outcome in _outcomes(found)]
    warned = [f"{outcome['attack']}: {warning}" for outcome in _outcomes(found) for warning in outcome["warnings"]]
    blocks: list[Block] = [Plot(spec, "Success of each attack with 95% intervals, beside its control"),
                           Paragraph("\n\n".join(told))]  # fmt: skip
    return (*blocks, *((Callout("\n".join(warned), Tone.WARNING, "Beware"),) if warned else ()))


def success(outcome: Found) -> list[dict[str, object]]:
    """How often an attack succeeds, and its control: two rows for a plot of bars."""
    units = {"facts": "facts", "width": "columns"}
    more = [f"{outcome['figures'][key]} {word}" for key, word in units.items() if outcome["figures"].get(key)]
    named = ", ".join([outcome["attack"], *more])
    parts = [("attack", outcome["exposed"])] + ([("control", outcome["control"])] if outcome["control"] else [])
    return [
        {"attack": named, "who": who, "share": rate["share"], "low": rate["low"], "high": rate["high"]}
        for who, rate in parts
    ]


def _curve(found: Found) -> tuple[Block, ...]:
    curve = found.get("curve", [])
    if not curve:
        return ()
    alt = f"Knowing {curve[-1]['known']} columns singles out {curve[-1]['share']:.0%} of people."
    spec = plots.lines(curve, x="known", y="share", low="low", high="high", alt=alt, title="share singled out")
    sets = [{"columns": " + ".join(one["columns"]), "singled out": f"{one['share']:.1%}"}
            for one in found.get("identifying_sets", [])[:20]]  # fmt: skip
    tables = (Table.of(sets, "Smallest sets of columns that single out half of the people or more"),) if sets else ()
    return (Plot(spec, "The worst choice of so many columns"), *tables)


def _blame(found: Found) -> tuple[Block, ...]:
    rows = found.get("blame", [])
    said = (Callout(found["because"], Tone.WARNING, "Left as they are"),) if found.get("because") else ()
    if not rows:
        return said
    alt = f"Without {rows[0]['column']}, {rows[0]['unique_without']:.0%} of people would be unique."
    spec = plots.bars(rows, category="column", value="unique_without", alt=alt, title="unique without it")
    return (*said, Plot(spec, "People who stay unique when the intruder does not know a column"))


def _verdicts(found: Found) -> tuple[Block, ...]:
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


def _skipped(found: Found) -> tuple[Block, ...]:
    rows = [{"attack": made["attack"], "why": made["skipped"]} for made in found["attacks"] if made["skipped"]]
    return (Table.of(rows),) if rows else ()


def _weakest(found: Found) -> tuple[Block, ...]:
    rows = [{"row": one["row"], "rows alike": one["alike"]} for one in found.get("weakest", [])]
    if not rows:
        return ()
    note = Callout("Positions in the file, counted from 1. Do not pass this page on with the release.", Tone.WARNING)
    return (note, Table.of(rows))
