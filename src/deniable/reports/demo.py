"""Pages of the demo, of the public register, and of the estate of all policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from math import log, sqrt
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


def build_demo_page(title: str, chapters: Sequence[Mapping[str, Any]]) -> Page:
    """One section a chapter."""
    return Page(title, tuple(_build_section(chapter) for chapter in chapters))


def _build_section(chapter: Mapping[str, Any]) -> Section:
    blocks: list[Block] = [Paragraph("\n\n".join(chapter["sentences"]))]
    if chapter["bars"]:
        blocks.append(_draw_bars(chapter["table"], chapter["bars"], chapter["title"]))
    elif chapter["table"]:
        blocks.append(Table.of(chapter["table"]))
    if chapter["people"]:
        count, label = chapter["people"]
        blocks.append(Plot(plots.draw_people(count, label=label, alt=f"{count} {label}"), f"{count} {label}"))
    if chapter["commands"]:
        blocks.append(Commands(tuple(chapter["commands"]), "Do it yourself:"))
    return Section(chapter["title"], tuple(blocks))


def _draw_bars(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], title: str) -> Plot:
    """The table as bars: what each is, how long it is and, if known, between which ends the truth lies."""
    category, value, *ends = columns
    low, high = ends if ends else (None, None)
    alt = f"{title}: " + ", ".join(f"{row[category]} {row[value]}" for row in rows)
    return Plot(
        plots.draw_bars(rows, category=category, value=value, low=low, high=high, alt=alt), table=Table.of(rows)
    )


HOW = (
    "Every release of this dataset is listed here, so that nobody needs to take our word. The list is written before a "
    "release is made and is chained by hashes: whoever keeps the head of the chain can tell whether a line was changed "
    "or left out later."
)


def build_register_page(told: Mapping[str, Any]) -> Page:
    """The page of the register, from the document that `deniable register --json` prints."""
    releases = told["releases"]
    sections = (
        Section("At a glance", (*_summarize_register(told), *_draw_spending(releases))),
        Section("Releases", (Table.of([_build_row(each) for each in releases], "Every release, oldest first"),)),
        Section("How to check", (Paragraph(f"{HOW}\n\nThe head of the chain is {told['head']}."),)),
    )
    lead = f"{len(releases):,} releases of dataset '{told['dataset']}'."
    return Page(f"Register of releases: {told['dataset']}", sections, lead=lead, foot="Made by deniable.")


def _summarize_register(told: Mapping[str, Any]) -> tuple[Block, ...]:
    standing = told["standing"]
    figures = [
        KeyFigure(f"{standing['charged']:,}", "releases under differential privacy"),
        KeyFigure(f"{standing['without_guarantee']:,}", "releases without a formal guarantee"),
    ]
    if standing["spent"] is not None:
        figures.append(_show_spending(standing))
    beware = "Releases without a formal guarantee are not in the total: no number bounds what they disclose."
    warning = (Callout(beware, Tone.WARNING),) if standing["without_guarantee"] else ()
    return (KeyFigures(tuple(figures)), *warning)


def _show_spending(standing: Mapping[str, Any]) -> KeyFigure:
    """What is spent, as a share of the budget where both are counted alike."""
    spent, limit, left = standing["spent"], standing["limit"], standing.get("remaining") or {}
    if not limit:
        return KeyFigure(_render_amount(spent), "spent in all", "no limit is set")
    counted = next((name for name in ("rho", "epsilon") if name in spent and name in left), None)
    whole = float(spent[counted]) + float(left[counted]) if counted else 0.0
    if counted is None or not whole:
        return KeyFigure(_render_amount(spent), "spent in all", f"of {_render_amount(limit)}")
    remark = f"the budget is {_render_amount(limit)}"
    return KeyFigure(f"{float(spent[counted]) / whole:.1%}", "of the budget is spent", remark)


def _draw_spending(releases: Sequence[Mapping[str, Any]]) -> tuple[Block, ...]:
    """Epsilon over time, added up release by release; nothing where all was released on one day."""
    charged = [each for each in releases if each.get("epsilon") is not None]
    days = sorted({str(each["date"]) for each in charged})
    if len(days) < FEWEST_DAYS:
        return ()
    rows = [
        {"day": date.fromisoformat(day), "epsilon": sum(float(one["epsilon"]) for one in charged if one["date"] <= day)}
        for day in days
    ]
    alt = f"Epsilon of all releases together, from {days[0]} to {days[-1]}: {rows[-1]['epsilon']:g} in the end."
    told = "Epsilon of all releases so far, simply added up; the ledger's accountant counts otherwise"
    return (Plot(plots.draw_lines(rows, x="day", y="epsilon", alt=alt), told),)


FEWEST_DAYS = 2


def _render_amount(budget: dict[str, str]) -> str:
    """A budget in epsilon and delta; what is counted in rho is told by the epsilon that it implies."""
    if "rho" in budget and "epsilon" not in budget:
        rho, delta = float(budget["rho"]), float(budget.get("delta") or 0) or 1e-6
        return f"epsilon {rho + 2 * sqrt(rho * log(1 / delta)):.2g} at delta {delta:g}" if rho else "nothing"
    return ", ".join(f"{name} {value}" for name, value in budget.items() if value != "0") or "nothing"


def _build_row(release: Mapping[str, Any]) -> dict[str, object]:
    """One line: who is protected, and what was claimed, before the id, which is long."""
    shown = {name: value for name, value in release.items() if name not in ("release", "tables")}
    return {
        "date": shown.pop("date", None),
        "tables": ", ".join(release["tables"]),
        **shown,
        "release": release["release"],
    }


def build_estate_page(told: Mapping[str, Any]) -> Page:
    """The page of the estate, from the document that `deniable estate --json` prints."""
    datasets, findings = told["datasets"], [*told["findings"], *(f"Not read: {each}" for each in told["unread"])]
    beware = tuple(Callout(words, Tone.WARNING) for words in findings)
    leaning = [{"column": name, "tables": ", ".join(tables)} for name, tables in told["key_columns"].items()]
    sections = (
        Section("At a glance", (_count_estate(told), *(beware or (Callout("Nothing undoes another.", Tone.GOOD),)))),
        Section("People", (Table.of([_describe_people(each) for each in told["people"]], "Who is where"),)),
        Section("Datasets", (Table.of([_describe_dataset(each) for each in datasets], "What each released"),)),
        *((Section("Key columns", (Table.of(leaning, "What releases of rows lean on"),)),) if leaning else ()),
    )
    return Page("Estate of datasets", sections, lead=f"{len(datasets)} policies.", foot="Made by deniable.")


def _count_estate(told: Mapping[str, Any]) -> KeyFigures:
    tables = sum(len(each["tables"]) for each in told["datasets"])
    released = sum(sum(each["techniques"].values()) for each in told["datasets"])
    counts = ((len(told["datasets"]), "datasets"), (tables, "tables"), (released, "releases"))
    return KeyFigures(tuple(KeyFigure(f"{count:,}", label) for count, label in counts))


def _describe_people(people: Mapping[str, Any]) -> dict[str, object]:
    spent = _render_amount(people["spent"])
    where = ", ".join(people["places"])
    return {
        "known by": people["known_by"],
        "in": where,
        "spent on one": spent,
        "rows released": people["rows_released"],
    }


def _describe_dataset(dataset: Mapping[str, Any]) -> dict[str, object]:
    made = ", ".join(f"{count} {name}" for name, count in dataset["techniques"].items()) or "nothing"
    spent = dataset["standing"]["spent"] if dataset["standing"] else None
    columns = "; ".join(f"{table['name']}: {', '.join(table['columns'])}" for table in dataset["tables"])
    told = {"dataset": dataset["dataset"], "policy": dataset["policy"], "columns": columns, "released": made}
    return {**told, "spent": _say_spent(dataset["standing"]) if spent else "nothing"}


def _say_spent(standing: Mapping[str, Any]) -> str:
    """A share of the budget, where there is one."""
    shown = _show_spending(standing)
    return f"{shown.value} {shown.label.removesuffix(' is spent').removesuffix('spent in all')}".strip()
