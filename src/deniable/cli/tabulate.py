"""`deniable tabulate`: counts by area and cell, as of a census: whole, never negative, and adding up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import (
    DEFAULT_POLICY,
    JsonFlag,
    LedgerOption,
    PolicyOption,
    emit,
    open_curator,
    show_progress,
)
from deniable.errors import ParameterError
from deniable.outputs import claim_outputs

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLES = """\b
Examples:
  deniable tabulate census -p policy.yaml --explain
  deniable tabulate census -p policy.yaml -o census.parquet --totals totals.csv --report census.html
  deniable tabulate plan.yaml -p policy.yaml -o census.csv

\b
A plan in the policy, under tabulation: (in a file of its own, without the name):
  census:
    table: people
    areas: {levels: [state, county, block], table: blocks}
    cells: [sex, age]
    breaks: {age: [0, 18, 65]}
    invariants: {state: total}
    rho: 0.5
"""
SHOWN = 20


def tabulate(
    plan: Annotated[
        str, typer.Argument(help="The tabulation's name in the policy, or a plan in a file: .yaml, .yml or .json.")
    ],
    policy: PolicyOption = DEFAULT_POLICY,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write every cell that is not empty: .parquet, .csv or .arrow.")
    ] = None,
    totals: Annotated[
        Path | None, typer.Option(help="Write the total of every area of every level, with intervals.")
    ] = None,
    shares: Annotated[
        Path | None, typer.Option(help="With --of: write the share of such people in every area, smoothed.")
    ] = None,
    of: Annotated[str, typer.Option(help="Values of cells, as age=65-99 or sex=F,age=0-17.")] = "",
    report: Annotated[Path | None, typer.Option(help="Write a page with errors by level and size (HTML).")] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say the price of each operator and the errors; nothing is charged.")
    ] = False,
    ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Count people by area and cell, as a census does: measured with noise, then made whole and consistent.

    Exact totals that the plan names (invariants) are not private. A run that was killed is not charged again.
    """
    if (shares is None) == bool(of):
        raise ParameterError("shares are of some people", expected="Both --shares FILE and --of COLUMN=VALUE")
    files = [each for each in (out, totals, shares) if each is not None]
    chosen = {name.strip(): value.strip() for name, _, value in (each.partition("=") for each in of.split(",") if each)}
    claimed: dict[str, Any] = {"pages": [report], "beside": [policy], "rows": True}
    with open_curator(policy, ledger, charges=not explain) as curator, claim_outputs(*files, **claimed):
        if explain:
            told = curator.explain_tabulate(plan)
            emit(told.to_dict(), as_json, lambda console: _print_plan(console, told))
            return
        with show_progress("Tabulating") as progress:
            found = curator.tabulate(plan, out=out, totals=totals, shares=shares, of=chosen, progress=progress)
        if report is not None:
            from deniable.reports.page import write
            from deniable.reports.stream import build_tabulation_page

            write(build_tabulation_page(found.to_dict()), report)
        emit(found.to_dict(), as_json, lambda console: _print_report(console, found, files))


def _print_plan(console: Console, plan: Mapping[str, Any]) -> None:
    console.print(plan["protects"], markup=False)
    console.print(f"Price: {plan['budget']} in all. Nothing was charged now.", markup=False)
    for each in plan["operators"]:
        noise = "" if each["deviation"] is None else f", noise of standard deviation {each['deviation']:,.4g}"
        console.print(f"  {each['operator']:<9} {each['what']}: {each['price']}{noise}", markup=False)
    _print_levels(console, plan)


def _count_areas(told: Mapping[str, Any]) -> str:
    return f"{told['areas']:,} area{'' if told['areas'] == 1 else 's'}"


def _print_levels(console: Console, told: Mapping[str, Any]) -> None:
    console.print("Expected standard deviations, before the bound at zero:", markup=False)
    for each in told["levels"]:
        exact = f" (exact: {each['exact']})" if each["exact"] else ""
        console.print(
            f"  {each['level']}: {_count_areas(each)}, of a total {each['total_deviation']:,.4g}{exact}, "
            f"of a cell {each['cell_deviation']:,.4g}",
            markup=False,
        )
    if sampled := told["levels"][0]["sample_deviation"]:
        console.print(
            f"  The sample adds to each, by the root of the sum of squares: {sampled:,.4g} to a number of 1,000, "
            "twice that to four times as many.",
            markup=False,
        )


def _print_report(console: Console, report: Mapping[str, Any], files: Sequence[Path]) -> None:
    paid = "" if report["charged"] else " It was published before; nothing was charged now."
    console.print(f"{report['tabulation']}: {report['total']:,} counted in {report['areas']:,} areas of "
                  f"{report['cells']:,} cells.{paid}", markup=False)  # fmt: skip
    console.print(f"{report['protects']} Epsilon {float(report['epsilon']):.6g}, delta {float(report['delta']):.2g}.",
                  markup=False)  # fmt: skip
    _print_levels(console, report)
    console.print("Errors of what is published, found by repeating the release on its own result:", markup=False)
    for each in report["errors"]:
        most = (
            f" to {each['most']:,}" if each["most"] not in (None, each["least"]) else ("+" if not each["most"] else "")
        )
        size = "0" if each["most"] == 0 else f"{each['least']:,}{most}"
        console.print(
            f"  {each['level']} of {size}: {_count_areas(each)}, total off by {each['total_error']:,.3g} "
            f"(bias {each['total_bias']:+,.2g}), cell by {each['cell_error']:,.3g}",
            markup=False,
        )
    for row in report["totals"][:SHOWN]:
        console.print(f"  {row['area']}: {row['total']:,} ({row['low']:,g} to {row['high']:,g})", markup=False)
    certified = report["certified"] or {}
    for path in files:
        checked = ", read back and certified" if path.name in certified else ""
        console.print(f"Wrote {path}{checked}", markup=False)
