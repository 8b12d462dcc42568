"""`deniable publish`: numbers of every day, week or month, for one charge that covers all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import DEFAULT_POLICY, JsonFlag, LedgerOption, PolicyOption, emit, open_curator
from deniable.errors import ParameterError
from deniable.storage import refuse_unwritable

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLES = """\\b
Examples:
  deniable publish daily -p policy.yaml --explain
  deniable publish daily -p policy.yaml -o daily.csv --report daily.html
  deniable publish daily -p policy.yaml --first 2026-01-01 --last 2026-03-31

\\b
From cron, once a day (a missed day is made up for by the next run):
  15 3 * * * deniable publish daily -p /srv/clinic/policy.yaml -o /srv/www/daily.csv --report /srv/www/daily.html
"""
SHOWN = 40


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
    """Publish a declared stream: every period that has ended is measured once, and the first run pays for all."""
    if (first is None) != (last is None):
        raise ParameterError("A total has two ends", expected="Both --first and --last, as YYYY-MM-DD")
    refuse_unwritable(report, beside=[policy, *([out] if out is not None else [])])
    with open_curator(policy, ledger, charges=not explain) as curator:
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
        raise ParameterError(f"'{text}' is no day", expected="A day as YYYY-MM-DD") from None


def _print_report(console: Console, report: Mapping[str, Any], out: Path | None) -> None:
    console.print(f"{report['stream']}: {report['closed']} of {report['periods']} periods are published, "
                  f"{report['closed_now']} of them now.", markup=False)  # fmt: skip
    console.print(f"{report['protects']} Epsilon {float(report['epsilon']):.6g}, delta {float(report['delta']):.2g}, "
                  "for all periods together.", markup=False)  # fmt: skip
    newest = max(row["last"] for row in report["rows"])
    _print_rows(console, [row for row in report["rows"] if row["last"] == newest])
    if out is not None:
        console.print(f"Wrote {out}", markup=False)
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
    for each in plan["errors"]:
        group = f" by {each['group']}" if each["group"] else ""
        window = "" if each["window"] is None else f", of the window {each['window']:,.4g}"
        console.print(
            f"  {each['question']}{group}: standard deviation of a period {each['period']:,.4g}{window}, of the whole "
            f"total {each['total']:,.4g} ({each['alone']:,.4g} if each period were measured by itself)",
            markup=False,
        )
