"""Pages of attacks: the motivated-intruder test, an expert's determination, a first release, the distinguishing game.

The first tells how many people are exposed, by whom, knowing what, and how sure; the second documents all of that for
the expert who signs; the third shows a data officer a first release, attacked before and after; the last sets the best
attacker's wins beside what epsilon allows, and the proven lower bound."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from deniable.reports import plots
from deniable.reports.blocks import (
    Block,
    Callout,
    Commands,
    KeyFigure,
    KeyFigures,
    Page,
    Paragraph,
    Plot,
    Section,
    Table,
    Tone,
)
from deniable.reports.tradeoffs import draw_sizes

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
        KeyFigure(f"{worst['per_thousand']:,}", "exposed of 1,000", f"95%: {rate['low']:.1%} to {rate['high']:.1%}"),
        KeyFigure(f"{worst['excess']:.0%}", "beyond the control or guessing", worst["attack"]),
    ]
    if worst["precision"]:
        figures.append(KeyFigure(f"{worst['precision']['share']:.0%}", "right when a claim is made"))
    return tuple(figures)


def _describe_attacks(found: Found) -> tuple[Block, ...]:
    rows = list_all_rates(_list_outcomes(found))
    if not rows:
        return (Paragraph("No attack was run."),)
    alt = "; ".join(f"{outcome['attack']} {outcome['exposed']['share']:.0%}" for outcome in _list_outcomes(found)) + "."
    spec = plots.draw_bars(
        rows,
        category="attack",
        value="share",
        low="low",
        high="high",
        series="who",
        alt=alt,
        title="success",
        form=plots.PERCENT,
    )
    told = [outcome["sentence"] for outcome in _list_outcomes(found)]
    warned = [f"{outcome['attack']}: {warning}" for outcome in _list_outcomes(found) for warning in outcome["warnings"]]
    blocks: list[Block] = [Plot(spec, "Success of each attack with 95% intervals, beside its control"),
                           Paragraph("\n\n".join(told))]  # fmt: skip
    return (*blocks, *((Callout("\n\n".join(warned), Tone.WARNING, "Beware"),) if warned else ()))


# dictionaries: rows of a plot, in the words of Vega-Lite
def list_all_rates(outcomes: Sequence[Found]) -> list[dict[str, object]]:
    """How often each attack succeeds, and its control; attacks of one name are told apart by their scenarios."""
    told = [list_success_rates(outcome) for outcome in outcomes]
    names = Counter(str(rows[0]["attack"]) for rows in told if rows)
    return [
        row | {"attack": outcome["scenario"]} if names[str(row["attack"])] > 1 else row
        for outcome, rows in zip(outcomes, told, strict=True)
        for row in rows
    ]


# a dictionary: rows of a plot, in the words of Vega-Lite
def list_success_rates(outcome: Found) -> list[dict[str, object]]:
    """How often an attack succeeds, and its control: two rows for a plot of bars."""
    units = {"facts": "facts", "width": "columns"}
    more = [f"{outcome['figures'][key]} {word}" for key, word in units.items() if outcome["figures"].get(key)]
    named = ", ".join([outcome["attack"], *more])
    parts = [("attack", outcome["exposed"])] + ([("control", outcome["control"])] if outcome["control"] else [])
    parts = [(who, rate) for who, rate in parts if rate["trials"]]  # of nothing tried, nothing can be drawn
    return [
        {"attack": named, "who": who, "share": rate["share"], "low": rate["low"], "high": rate["high"]}
        for who, rate in parts
    ]


def _describe_curve(found: Found) -> tuple[Block, ...]:
    curve = found.get("curve", [])
    if not curve:
        return ()
    alt = f"Knowing {curve[-1]['known']} columns singles out {curve[-1]['share']:.0%} of people."
    spec = plots.draw_lines(curve, x="known", y="share", low="low", high="high", alt=alt, title="share singled out",
                            form=plots.PERCENT)  # fmt: skip
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
    spec = plots.draw_bars(rows, category="column", value="unique_without", alt=alt, title="unique without it",
                           form=plots.PERCENT)  # fmt: skip
    return (*said, Plot(spec, "People who stay unique when the intruder does not know a column"))


def _describe_thresholds(found: Found) -> tuple[Block, ...]:
    rows = [
        {"attack": one["attack"], "exposed": f"{one['exposed']:.1%}", "allowed": f"{one['most']:.1%}",
         "verdict": "failed" if one["failed"] else "met"}
        for one in found["verdicts"]
    ]  # fmt: skip
    rows += [
        {"attack": name, "exposed": "not measured", "allowed": f"{found['limits'][name]:.1%}", "verdict": "failed"}
        for name in found["untried"]
    ]
    rows += [
        {
            "attack": name,
            "exposed": f"does not apply: {why}",
            "allowed": f"{found['limits'][name]:.1%}",
            "verdict": "holds",
        }
        for name, why in found.get("inapplicable", {}).items()
    ]
    if not rows:
        return ()
    if found["failed"]:
        return (Callout("A threshold is passed or was not measured: this must not leave.", Tone.DANGER), Table.of(rows))
    return (Callout("All thresholds are met.", Tone.GOOD), Table.of(rows))


def _list_skipped(found: Found) -> tuple[Block, ...]:
    rows = [{"attack": made["attack"], "why": made["skipped"]} for made in found["attacks"] if made["skipped"]]
    return (Table.of(rows, "Options in brackets are those of the command deniable attack"),) if rows else ()


def _list_weakest(found: Found) -> tuple[Block, ...]:
    rows = [{"row": one["row"], "rows alike": one["alike"]} for one in found.get("weakest", [])]
    if not rows:
        return ()
    note = Callout("Positions in the file, counted from 1. Do not pass this page on with the release.", Tone.WARNING)
    return (note, Table.of(rows))


def build_expert_page(found: Found) -> Page:
    """The page, from the document that `deniable release expert --json` prints."""
    test = found["test"]
    sections = (
        Section("Summary", _summarize_determination(found)),
        Section("The release", _describe_release(found["release"])),
        Section("Data flow", (Table.of(found["flow"]),)),
        Section("Recipients", _list_recipients(found["recipients"])),
        Section("What an intruder may know", _describe_columns(found["columns"])),
        Section("Motivated-intruder test", (*_tabulate_attacks(test), *_describe_attacks(test))),
        Section("Measured risk", _describe_risks(found)),
        Section("Residual risk", _describe_residual(found)),
        Section("Method", (Paragraph("\n\n".join(found["method"])),)),
        Section("Limits", (Paragraph("\n\n".join(found["limits"])),)),
        Section("Determination", _draw_signatures()),
    )
    lead = f"Expert determination of the risk of {found['subject']} (45 CFR 164.514(b)(1))."
    return Page("Expert determination", sections, lead, "No row of the data is shown. To be signed by the expert.")


def _summarize_determination(found: Found) -> tuple[Block, ...]:
    tone = Tone.DANGER if found["test"]["failed"] else Tone.GOOD if found["test"]["verdicts"] else Tone.WARNING
    risks, residual, figures = found.get("risks"), found["residual"], []
    if risks:
        figures.append(KeyFigure(f"{risks['k']}", "rows in the smallest class", f"{risks['classes']:,} classes"))
        figures.append(KeyFigure(f"{risks['prosecutor']['highest']:.1%}", "highest chance to find a row"))
    if residual:
        span = f"95%: {residual['low']:.1%} to {residual['high']:.1%}"
        figures.append(
            KeyFigure(f"{residual['share']:.1%}", f"exposed by the strongest attack ({residual['attack']})", span)
        )
    return (Callout(found["verdict"], tone), *((KeyFigures(tuple(figures)),) if figures else ()))


def _describe_release(told: Found) -> tuple[Block, ...]:
    facts = {"file": told["file"], "rows": f"{told['rows']:,}", "columns": ", ".join(told["columns"]),
             "technique": told["technique"], "made": told.get("made"), "sha256": told.get("sha256")}  # fmt: skip
    rows = tuple((name, value) for name, value in facts.items() if value is not None)
    promises = (Paragraph("\n\n".join(told["promises"])),) if told["promises"] else ()
    return (Table(("", "as stated with the file"), rows), *promises)


def _list_recipients(recipients: Sequence[str]) -> tuple[Block, ...]:
    if not recipients:
        return (Callout("No recipient was named. Say --recipient for each who will hold the data.", Tone.WARNING),)
    return (Table.of([{"anticipated recipient": name} for name in recipients]),)


def _describe_columns(columns: Sequence[Found]) -> tuple[Block, ...]:
    rows = [
        {"column": one["column"], "role": one["role"], "known": one["taken as known"],
         "singles out": f"{one['singles out']:.1%}", "occurs again": "", "found elsewhere": ""}
        for one in columns
    ]  # fmt: skip
    told = (
        "A column matters when its value occurs again in relation to the person, when others can find it in another "
        "source, and when it tells people apart. The last is measured: the share of rows that the column alone singles "
        "out. The first two are left empty for the expert to fill in."
    )
    return (Paragraph(told), Table.of(rows))


def _tabulate_attacks(test: Found) -> tuple[Block, ...]:
    """Every attack, tried or not, with its interval and what it is measured against."""
    rows = []
    for made in test["attacks"]:
        for one in made["outcomes"]:
            rate, beside = one["exposed"], one["control"] or one["baseline"]
            rows.append({"attack": one["attack"], "exposed": f"{rate['share']:.1%}", "of": rate["trials"],
                         "95% interval": f"{rate['low']:.1%} to {rate['high']:.1%}",
                         "control" if one["control"] else "guessing": f"{beside['share']:.1%}"})  # fmt: skip
    return (Table.of(rows, "Attacks that were tried"), *_list_skipped(test), *_describe_thresholds(test))


def _describe_risks(found: Found) -> tuple[Block, ...]:
    risks = found.get("risks")
    if not risks:
        return (Callout("No column was taken as known, so no class of rows could be counted.", Tone.WARNING),)
    return (Table.of(list_intruders(risks), "Counted over all released rows, not sampled"),)


# dictionaries: rows of a table
def list_intruders(risks: Found) -> list[dict[str, object]]:
    """The four intruders, the chance of each to be right at worst and on average, and what each is taken to hold."""
    held = {
        "prosecutor": "knows that the person is in the table",
        "journalist": "looks in the population",
        "marketer": "links as many rows as possible",
    }
    rows: list[dict[str, object]] = []
    for name, words in held.items():
        one = risks[name]
        highest, mean = (one["highest"], one["mean"]) if isinstance(one, Mapping) else (None, one)
        shown = None if highest is None else f"{highest:.1%}"
        rows.append({"intruder": name, "highest": shown, "mean": f"{mean:.1%}", "who": words})
    guess = risks["bayesian"]
    words = f"names one row; prior: {guess['prior']}"
    return [
        *rows,
        {"intruder": "Bayesian", "highest": f"{guess['highest']:.1%}", "mean": f"{guess['score']:.1%}", "who": words},
    ]


def _describe_residual(found: Found) -> tuple[Block, ...]:
    residual = found["residual"]
    if residual is None:
        return (Callout("No attack applied: nothing is known about the risk.", Tone.WARNING),)
    told = (
        f"The strongest attack was {residual['attack']} ({residual['scenario']}). It succeeds for "
        f"{residual['share']:.1%} (95%: {residual['low']:.1%} to {residual['high']:.1%}), where "
        f"{residual['without_the_release']:.1%} succeed without the person's row or by guessing. Beyond that the "
        f"release adds {residual['excess']:.1%} of what was left. At the upper end of the interval, at most "
        f"{residual['rows_at_most']:,} rows would be exposed to this intruder."
    )
    return (Paragraph(told),)


def _draw_signatures() -> tuple[Block, ...]:
    told = (
        "I have appropriate knowledge of and experience with generally accepted statistical and scientific principles "
        "and methods for rendering information not individually identifiable. Applying them, I determine that the risk "
        "is very small that the information could be used, alone or with other reasonably available information, by an "
        "anticipated recipient to identify an individual who is a subject of it. The methods and results are "
        "documented above."
    )
    lines = ("Name", "Qualification", "What counts as very small, and why", "Stands until", "Date", "Signature")
    line = "_" * 24
    rows = tuple((name, line, line) for name in lines)
    return (Paragraph(told), Table(("", "expert", "for the data steward"), rows))


def build_start_page(found: Found) -> Page:
    """The page for the data officer, from the document that `deniable start --json` prints."""
    sections = (
        Section("In short", _summarize_start(found)),
        Section("What leaves of each column", _describe_changes(found)),
        Section("What was decided", (Table(("decision", "answer"), tuple(_list_decisions(found))),)),
        Section("Exposed if the table were given away as it is", _describe_start_attack(found["before"])),
        Section("Exposed by what was released", _describe_start_attack(found["after"])),
        Section("What is promised, and what not", (Paragraph("\n\n".join(found["release"]["words"])),)),
        Section("Read back", (Paragraph("\n\n".join(found["verified"]["proves"])),)),
        Section("Who gets which file", (Table(("file", "for whom"), tuple(found["files"].items())),)),
        Section("The same by hand", tuple(Commands((one["command"],), one["step"]) for one in found["commands"])),
        Section(
            "Released by",
            (Table(("", ""), tuple((name, "_" * 24) for name in ("Data steward", "Data officer", "Date"))),),
        ),
    )
    return Page(
        "First release",
        sections,
        f"{found['title'][:1].upper()}{found['title'][1:]}.",
        "For the steward and the data officer. No row of the table is shown.",
    )


def _summarize_start(found: Found) -> tuple[Block, ...]:
    passed = found["after"]["failed"]
    told = "A limit is passed: the release was removed." if passed else "Every limit of the policy is met."
    figures = [KeyFigure(f"{found['release']['released']:,}", "rows released", f"the table has {found['rows']:,}")]
    if "uniqueness" in found["before"]["exposed"]:
        share, known = found["before"]["exposed"]["uniqueness"], ", ".join(found["before"]["knows"])
        figures.append(KeyFigure(f"{share:.1%}", "singled out before", f"by {known}"))
    if judged := found["after"].get("verdicts"):
        worst = max(judged, key=lambda one: float(one["exposed"]))
        allowed = f"{worst['attack'].replace('_', ' ')}; at most {worst['most']:.0%} is allowed"
        figures.append(KeyFigure(f"{worst['exposed']:.1%}", "exposed after, at worst", allowed))
    if "audit" in found["after"]:
        wins = found["after"]["audit"]["game"]["wins"]
        figures.append(KeyFigure(f"{wins['share']:.1%}", "of games won by the best attacker", "half is a coin"))
    if lost := [one["column"] for one in found["columns"] if one["after"].startswith(("left out", "lost whole"))]:
        told += f" Nothing leaves of {', '.join(lost)}: see below why."
    tone = Tone.DANGER if passed else Tone.WARNING if lost else Tone.GOOD
    return (Callout(told, tone), KeyFigures(tuple(figures)))


def _list_decisions(found: Found) -> list[tuple[str, str]]:
    """Decisions that are one word or number; what was decided on columns has a table of its own."""
    decided = {name: str(value) for name, value in found["decisions"].items() if not isinstance(value, Mapping)}
    leaving = [
        one for one in found["columns"] if one["role"] == "sensitive" and not one["after"].startswith("left out")
    ]
    if "l" in decided and not leaving:
        decided["l"] += " (of no column: none that is sensitive leaves)"
    return [(name.replace("_", " "), value) for name, value in decided.items()]


def _describe_changes(found: Found) -> tuple[Block, ...]:
    """A table of what became of each column; of k-anonymous rows with the sizes of the classes."""
    names = ("column", "role", "before", "after", "why")
    table = Table(names, tuple(tuple(one[name] for name in names) for one in found["columns"]))
    sizes = found["release"].get("sizes")
    return (table, draw_sizes(sizes)) if sizes else (table,)


def _describe_start_attack(found: Found) -> tuple[Block, ...]:
    if "audit" in found:
        game = found["audit"]["game"]
        told = f"The best attacker wins {game['wins']['share']:.1%} of games, and epsilon allows {game['most']:.1%}."
        return (Paragraph(f"{told} {found['audit']['audit']['sentence']}"),)
    joint = (Paragraph(found["joint"]["words"]),) if found.get("joint") else ()
    rows = _tabulate_attacks({**found, "attacks": [made for made in found["attacks"] if made["outcomes"]]})
    remark = (Paragraph(found["remark"]),) if found.get("remark") else ()
    return (*rows, *joint, *remark)


def build_audit_page(found: Found) -> Page:
    """The page, from the document that `deniable audit --json` prints."""
    sections = (
        Section("In one sentence", _describe_verdict(found)),
        Section("The game", _describe_game(found)),
        Section("The proof", _describe_proof(found)),
    )
    lead = f"Can an intruder tell apart two inputs, knowing everything else? {found['neighbors'].capitalize()}."
    runs = "One run" if found["runs"] == 1 else f"{found['runs']:,} runs on each neighbor"
    foot = f"{runs}. No private table was read, and nothing was charged."
    return Page(f"Audit of {found['mechanism']}", sections, lead, foot)


def _describe_verdict(found: Found) -> tuple[Block, ...]:
    wins, most = found["game"]["wins"], found["game"]["most"]
    claimed = "epsilon" if found["mu"] is None else "mu"
    bound, claim = found["audit"][f"{claimed}_bound"], found["claimed"]
    if found["failed"]:
        told = f"The claim of {claim} is refuted: {claimed} is at least {bound:.3f}."
    else:
        told = (
            f"The claim of {claim} stands: the best attacker found wins {wins['share']:.1%} of games "
            f"({wins['low']:.1%} to {wins['high']:.1%}), where the claim allows {most:.1%}."
        )
    figures = (
        KeyFigure(f"{wins['share']:.1%}", "of games won", f"95%: {wins['low']:.1%} to {wins['high']:.1%}"),
        KeyFigure(f"{most:.1%}", "is the most that the claim allows", "a coin wins 50%"),
        KeyFigure(f"{bound:.3f}", f"{claimed} at least", f"claimed {found[claimed]:g}"),
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
    return Paragraph(words), plot_game(found["game"]["points"], found["claimed"])


def plot_game(points: Sequence[Found], claimed: str) -> Plot:
    """The distinguishing game: the best attacker's hits against false alarms, beside what the claim allows."""
    drawn = (("best attacker", "hits"), ("bound of the claim", "bound"), ("a coin", "false_alarms"))
    rows = [
        {"false alarms": point["false_alarms"], "hits": point[field], "who": who}
        for who, field in drawn
        for point in points
    ]
    over = sum(point["hits"] > point["bound"] for point in points)
    alt = f"The best attacker's hits against false alarms: {over} of {len(points)} strategies above {claimed}."
    spec = plots.draw_lines(rows, x="false alarms", y="hits", series="who", alt=alt, form=plots.PERCENT)
    return Plot(spec, f"What the best attacker reaches, and what {claimed} allows")


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
    bounds = (
        f"Delta is at least {proof['delta_bound']:.2g} at epsilon {proof['epsilon']:g}, and mu at least "
        f"{proof['mu_bound']:.3f}."
    )
    return Paragraph(f"{words} {bounds}"), Paragraph("Not seen: " + "; ".join(found["blind"]) + ".")
