"""`deniable publish`, numbers of every period for one charge; `deniable places`, maps, flows and traces of people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import (
    DEFAULT_POLICY,
    JsonFlag,
    LedgerOption,
    PolicyOption,
    emit,
    name_asker,
    open_curator,
)
from deniable.errors import ParameterError
from deniable.outputs import claim_outputs

if TYPE_CHECKING:
    from rich.console import Console

    from deniable.curator import Curator
    from deniable.curator.query.places import PlacesAnswer, PlacesExplanation

EXAMPLES = """\b
Examples:
  deniable publish daily -p policy.yaml --explain
  deniable publish daily -p policy.yaml -o daily.csv --report daily.html
  deniable publish daily -p policy.yaml --first 2026-01-01 --last 2026-03-31

\b
From cron, once a day (a missed day is made up for by the next run):
  15 3 * * * deniable publish daily -p /srv/clinic/policy.yaml -o /srv/www/daily.csv --report /srv/www/daily.html
"""
SHOWN = 40
"""Rows that are printed."""
MOST_ON_PAGE = 10_000


def publish(
    stream: Annotated[str, typer.Argument(help="The stream's name in the policy.")],
    policy: PolicyOption = DEFAULT_POLICY,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write all that is published so far: .csv, .parquet or .json.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page with error bars (HTML).")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what it costs and how accurate it is; nothing is read or charged.")
    ] = False,
    until: Annotated[
        str | None, typer.Option(help="Publish periods up to this day alone, YYYY-MM-DD; all that ended, if not said.")
    ] = None,
    first: Annotated[
        str | None, typer.Option(help="With --last: the total from the period of this day, from what was published.")
    ] = None,
    last: Annotated[str | None, typer.Option(help="With --first: to the period of this day.")] = None,
    ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Publish a stream of the policy: every period that has ended is measured once, and the first run pays for all."""
    if (first is None) != (last is None):
        raise ParameterError("A total has two ends", expected="Both --first and --last, as YYYY-MM-DD")
    claimed: dict[str, Any] = {"pages": [report], "beside": [policy], "rows": True, "also": (".json",)}
    with open_curator(policy, ledger, charges=not explain) as curator, claim_outputs(out, **claimed):
        if explain:
            plan = curator.explain_publish(stream)
            emit(plan.to_dict(), as_json, lambda console: _print_plan(console, plan))
        elif first is not None and last is not None:
            rows = curator.total_between(stream, _parse_day(first), _parse_day(last))
            emit([row.to_dict() for row in rows], as_json, lambda console: _print_rows(console, rows))
        else:
            found = curator.publish(stream, until=None if until is None else _parse_day(until), out=out)
            if report is not None:
                from deniable.reports.page import write
                from deniable.reports.stream import build_stream_page

                write(build_stream_page(found.to_dict()), report)
            emit(found.to_dict(), as_json, lambda console: _print_report(console, found, out))


def _parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ParameterError(f"'{text}' is not a day", expected="A day as YYYY-MM-DD") from None


def _print_report(console: Console, report: Mapping[str, Any], out: Path | None) -> None:
    console.print(f"{report['stream']}: {report['closed']} of {report['periods']} periods are published, "
                  f"{report['closed_now']} of them now.", markup=False)  # fmt: skip
    console.print(f"{report['protects']} Epsilon {float(report['epsilon']):.6g}, delta {float(report['delta']):.2g}, "
                  "for all periods together.", markup=False)  # fmt: skip
    newest = max(row["last"] for row in report["rows"])
    _print_rows(console, [row for row in report["rows"] if row["last"] == newest])
    if out is not None:
        console.print(f"Wrote {out}", markup=False)
    for note in report["notes"]:
        console.print(note, markup=False)
    if report["next_day"] is not None:
        console.print(f"The next period can be published from {report['next_day']} on (UTC).")


def _print_rows(console: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    for row in rows[:SHOWN]:
        group = ", ".join(f"{name} {value}" for name, value in row["group"].items())
        words = f"{row['question']}{f' ({group})' if group else ''}, {row['span']} {row['first']} to {row['last']}"
        console.print(f"  {words}: {row['value']:,g} ({row['low']:,g} to {row['high']:,g})", markup=False)
    if len(rows) > SHOWN:
        console.print(f"  ... and {len(rows) - SHOWN} more: write them with -o")


def _print_plan(console: Console, plan: Mapping[str, Any]) -> None:
    console.print(plan["protects"], markup=False)
    console.print(f"Price: {plan['budget']}, charged once for {plan['periods']} periods. Nothing was charged now.")
    console.print(f"Measured: {plan['measured']}, with {plan['noise']} noise.", markup=False)
    for each in plan["errors"]:
        group = f" by {each['group']}" if each["group"] else ""
        window = "" if each["window"] is None else f", of the window {each['window']:,.4g}"
        console.print(
            f"  {each['question']}{group}: standard deviation of a period {each['period']:,.4g}{window}, of the whole "
            f"total {each['total']:,.4g} ({each['alone']:,.4g} if each period were measured by itself)",
            markup=False,
        )
    for note in plan["notes"]:
        console.print(note, markup=False)


PLACES_EXAMPLES = """\b
Examples:
  deniable places rides --at pickup_latitude,pickup_longitude -p policy.yaml --epsilon 1 --explain
  deniable places rides --at pickup_latitude,pickup_longitude --epsilon 1 -o map.geojson --report map.html
  deniable places rides --at pickup_latitude,pickup_longitude --time pickup_time --slots part --epsilon 1 -o day.csv
  deniable places rides --at pickup_latitude,pickup_longitude --to dropoff_latitude,dropoff_longitude \\
    --per-person 5 --epsilon 1 -o flows.csv
  deniable places rides --at pickup_latitude,pickup_longitude --time pickup_time --traces 10 --epsilon 1 -o new.csv

\b
How many people are named by a few points of their trace: deniable attack --trace (see its --help).
"""


def places(
    table: Annotated[str, typer.Argument(help="The table's name in the policy.")],
    at: Annotated[str, typer.Option(help="LATITUDE,LONGITUDE: columns of a place, in degrees.")],
    policy: PolicyOption = DEFAULT_POLICY,
    to: Annotated[str | None, typer.Option(help="LATITUDE,LONGITUDE of the other end: flows between regions.")] = None,
    epsilon: Annotated[str | None, typer.Option(help="Epsilon to spend, such as 0.5.")] = None,
    delta: Annotated[str, typer.Option(help="Delta to spend, such as 1e-6.")] = "0",
    rho: Annotated[str | None, typer.Option(help="Zero-concentrated budget, instead of epsilon.")] = None,
    time: Annotated[str | None, typer.Option(help="The column of the time: for --slots or --traces.")] = None,
    slots: Annotated[str | None, typer.Option(help="Count by hour, part (of a day), weekday or month.")] = None,
    traces: Annotated[
        int | None, typer.Option(help="Draw new traces, from the first so many points of each person.")
    ] = None,
    people: Annotated[
        int | None, typer.Option(help="With --traces: people to draw. [default: about all]", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="With --traces: the same seed draws the same traces.")] = 0,
    box: Annotated[
        str | None,
        typer.Option(help="SOUTH,WEST,NORTH,EAST in degrees. [default: the columns' bounds]", show_default=False),
    ] = None,
    per_person: Annotated[
        int | None, typer.Option(help="Rows of one person that count. [default: the unit's bound]", show_default=False)
    ] = None,
    grid: Annotated[str, typer.Option(help="Of a map: adaptive or uniform.")] = "adaptive",
    confidence: Annotated[float, typer.Option(help="Confidence of the intervals.")] = 0.95,
    nonnegative: Annotated[bool, typer.Option("--nonnegative", help="Cut counts off at 0 (biases sums).")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Only explain: no data is touched.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write .csv, .parquet or .geojson, with a statement.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write a page with a picture (HTML).")] = None,
    ledger: LedgerOption = None,
    analyst: Annotated[str, typer.Option(help="Who asks. [default: the steward]", show_default=False)] = "",
    purpose: Annotated[str, typer.Option(help="What for, as the policy names purposes.", show_default=False)] = "",
    as_json: JsonFlag = False,
) -> None:
    """Release a map of places, flows between regions, or new traces of people, with noise, within a budget."""
    asked: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rho": rho, "box": _parse_box(box)}
    asked["who"] = name_asker(analyst, purpose)
    ends = None if to is None else _split_columns(to)
    further: dict[str, Any] = {"time": time, "slots": slots, "per_person": per_person, "grid": grid}
    _refuse_unused_words(traces, ends, slots, per_person, grid, people)
    claimed: dict[str, Any] = {"pages": [report], "beside": [policy], "rows": True, "also": (".geojson",)}
    with open_curator(policy, ledger, charges=not explain) as curator, claim_outputs(out, **claimed):
        if explain:
            plan = curator.explain_places(table, _split_columns(at), ends, longest=traces, **asked, **further)
            emit(plan.to_dict(), as_json, lambda console: _print_places_plan(console, plan))
            return
        if traces is not None:
            asked |= {"longest": traces, "people": people, "seed": seed}
            found = curator.traces(table, _split_columns(at), time or "", out=out, **asked)
        else:
            further |= {"confidence": confidence, "nonnegative": nonnegative}
            found = curator.places(table, _split_columns(at), ends, out=out, **asked, **further)
        if report is not None:
            _write_places_page(curator, found, table, report)
        details = {**found.release.details, "repeated": found.repeated}
        emit({**details, "rows": found.to_pylist()} if as_json else {}, as_json,
             lambda console: _print_places(console, found, out))  # fmt: skip


def _refuse_unused_words(
    traces: int | None, ends: Sequence[str] | None, slots: str | None, per_person: int | None, grid: str,
    people: int | None,
) -> None:  # fmt: skip
    """Refuse what would change nothing: whoever said it would take the result for another one."""
    with_traces = {"--to": ends, "--slots": slots, "--per-person": per_person, "--grid uniform": grid != "adaptive"}
    unused = {name: traces is not None and said for name, said in with_traces.items()}
    unused["--people"] = traces is None and people is not None
    for name, said in unused.items():
        if said:
            raise ParameterError(f"{name} has no meaning {'with' if traces else 'without'} --traces",
                                 remedy=f"Leave {name} out")  # fmt: skip


def _split_columns(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _parse_box(text: str | None) -> tuple[float, ...] | None:
    try:
        return None if text is None else tuple(float(end) for end in text.split(","))
    except ValueError:
        raise ParameterError("--box was given wrongly", expected="--box SOUTH,WEST,NORTH,EAST in degrees") from None


def _write_places_page(curator: Curator, found: PlacesAnswer, table: str, path: Path) -> None:
    from deniable.curator.query.places import draw_cells
    from deniable.release.record import to_plain
    from deniable.reports.page import write
    from deniable.reports.places import build_places_page

    rows = found.rows
    counted = "count" in rows.column_names
    largest = rows.sort_by([("count", "descending")]).slice(0, MOST_ON_PAGE).to_pylist() if counted else []
    unit = curator.policy.table(table).unit
    protects = f"It is hidden whether {unit or 'one row'} are in the data at all."
    told = {**found.release.details, "table": table, "protects": protects}
    write(build_places_page(to_plain(told), draw_cells(found), largest), path)


MOST_PRINTED = 10
HIDDEN = ("deviation", "_latitude", "_longitude")
"""Columns that a terminal does not show: of a region its edges say more than its middle."""


def _print_places(console: Console, found: PlacesAnswer, out: Path | None) -> None:
    details: Any = found.release.details
    rows = found.rows
    if details["kind"] == "traces":
        console.print(f"{rows.num_rows:,} points of {details['people']:,} people who do not exist, in "
                      f"{len(details['regions'])} regions.")  # fmt: skip
    elif details["kind"] == "map":
        for total in details["totals"]:
            named = f"{total['slot']}: " if total["slot"] else ""
            console.print(
                f"{named}{total['count']:,.0f} rows ({total['low']:,.0f} to {total['high']:,.0f})", markup=False
            )
        console.print(f"{details['cells']:,} cells. The largest counts:")
    else:
        console.print(f"{rows.num_rows:,} flows between {len(details['regions'])} regions. The largest:")
    if "count" in rows.column_names:
        for row in rows.sort_by([("count", "descending")]).slice(0, MOST_PRINTED).to_pylist():
            reach = (row["count_high"] - row["count_low"]) / 2
            named = ", ".join(f"{name} {_show_value(value)}" for name, value in row.items()
                              if not name.startswith("count") and not name.endswith(HIDDEN))  # fmt: skip
            console.print(f"  {row['count']:,.0f} ± {reach:,.0f}: {named}", markup=False)
    if out is not None:
        console.print(f"Wrote {out}", markup=False)
    console.print(found.cost, markup=False)


def _show_value(value: object) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _print_places_plan(console: Console, plan: PlacesExplanation) -> None:
    amounts = ", ".join(f"{name} {value}" for name, value in plan.cost.items() if value != "0")
    console.print(f"Price: {amounts}, for {plan.unit}. Nothing was charged now.", markup=False)
    console.print(f"Box: south {plan.box[0]:g}, west {plan.box[1]:g}, north {plan.box[2]:g}, east {plan.box[3]:g}. "
                  f"Noise: {plan.mechanism}.", markup=False)  # fmt: skip
    for step, deviation in plan.deviations.items():
        console.print(f"  standard deviation of the noise in one {step}: {deviation:,.4g}", markup=False)
    for note in plan.notes:
        console.print(note, markup=False)
