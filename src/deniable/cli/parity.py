"""`deniable parity`: which findings survive on synthetic rows, by method and epsilon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.screen import JsonFlag, emit, progress

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLES = """\\b
Examples:
  deniable parity findings.py --table visits -p town/policy.yaml --epsilon 0.5,1,2 --runs 20
  deniable parity findings.py --table salaries --methods auto,mst --epsilon 1 --report parity.html
"""


def parity(
    findings: Annotated[Path, typer.Argument(help="A Python file: functions from a table to yes, no or an effect.")],
    table: Annotated[str, typer.Option(help="The table's name in the policy.")],
    policy: Annotated[Path, typer.Option("--policy", "-p", help="The policy file.")] = Path("policy.yaml"),
    methods: Annotated[str, typer.Option(help="Methods, separated by commas, or all.")] = "all",
    epsilon: Annotated[str, typer.Option(help="Epsilons, separated by commas.")] = "0.5,1,2",
    delta: Annotated[str, typer.Option(help="Delta of every description.")] = "1e-9",
    runs: Annotated[int, typer.Option(min=1, help="Runs of each method at each epsilon.")] = 10,
    journal: Annotated[Path | None, typer.Option(help="Keep finished runs here, and go on from it.")] = None,
    report: Annotated[Path | None, typer.Option(help="Also write a page.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Try the steward's findings on synthetic rows. Nothing is charged, because nothing leaves."""
    from deniable.curator import Curator
    from deniable.curator.parity import Comparison, compare
    from deniable.reports import parity as drawn
    from deniable.reports.page import write

    chosen = ("independent", "mst", "correlated", "auto") if methods == "all" else tuple(methods.split(","))
    wanted = Comparison(table, findings, chosen, tuple(epsilon.split(",")), delta, runs, journal)
    with Curator.open(policy) as curator, progress("Comparing") as tick:
        kept = compare(curator, wanted, tick)
    rows = [{"finding": k.finding, "method": k.method, "epsilon": k.epsilon, "kept": k.kept, "runs": k.runs,
             "share": k.share, "low": k.low, "high": k.high} for k in kept]  # fmt: skip
    if report is not None:
        write(drawn.page(rows), report)
    emit(rows, as_json, lambda console: _told(console, rows))


def _told(console: Console, rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    columns = list(dict.fromkeys((row["method"], row["epsilon"]) for row in rows))
    table = Table(box=None, header_style="bold")
    table.add_column("finding")
    for method, epsilon in columns:
        table.add_column(f"{method} {epsilon:g}", justify="right")
    for name in dict.fromkeys(row["finding"] for row in rows):
        shares = {(row["method"], row["epsilon"]): f"{row['share']:.0%}" for row in rows if row["finding"] == name}
        table.add_row(name, *(shares.get(column, "") for column in columns))
    console.print(table)
