"""`deniable parity`: which findings survive on synthetic rows, by method and epsilon."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import JsonFlag, LedgerOption, emit, open_curator, show_progress

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLES = """\\b
Examples:
  deniable parity town/findings.py --table visits -p town/policy.yaml --methods all --epsilon 0.5,1,2,4,10 --runs 20
  deniable parity findings.sql --methods auto,mst --epsilon 1 --journal runs.jsonl --report parity.html
"""

Findings = Annotated[
    list[Path], typer.Argument(help="Python functions of a table (.py) or SQL statements (.sql): yes, no or an effect.")
]


def parity(
    findings: Findings,
    table: Annotated[str | None, typer.Option(help="The table's name in the policy, if there are several.")] = None,
    policy: Annotated[Path, typer.Option("--policy", "-p", help="The policy file.")] = Path("policy.yaml"),
    methods: Annotated[str, typer.Option(help="Methods, separated by commas, or all.")] = "all",
    epsilon: Annotated[str, typer.Option(help="Epsilons, separated by commas.")] = "0.5,1,2,4,10",
    delta: Annotated[str, typer.Option(help="Delta of every description.")] = "1e-9",
    runs: Annotated[int, typer.Option(min=1, help="Runs of each method at each epsilon.")] = 20,
    workers: Annotated[int | None, typer.Option(min=1, help="Processes; one for each core, if not said.")] = None,
    journal: Annotated[Path | None, typer.Option(help="Keep finished runs here, and go on from it.")] = None,
    report: Annotated[Path | None, typer.Option(help="Also write a page.")] = None,
    ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Try findings on synthetic rows, many times: which conclusions hold, by method and epsilon?

    Nothing is charged, because nothing leaves: the outcome is for the steward.
    """
    import os

    from deniable.curator.synthesize.parity import Comparison, compare
    from deniable.reports.page import write
    from deniable.reports.tradeoffs import build_parity_page

    named, epsilons = (tuple(word.strip() for word in words.split(",")) for words in (methods, epsilon))
    cores = workers or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else workers or os.cpu_count()
    wanted = Comparison(table, tuple(findings), named, epsilons, delta, runs, journal, cores or 1)
    with open_curator(policy, ledger, charges=False) as curator, show_progress("Comparing") as tick:
        told = _build_document(compare(curator.context, wanted, tick))
    if report is not None:
        write(build_parity_page(told), report)
    emit(told, as_json, lambda console: _print_comparison(console, told))


def _build_document(found: Any) -> dict[str, Any]:
    """All of a comparison in plain values."""
    kept = [{"finding": k.finding, "method": k.method, "epsilon": k.epsilon, "kept": k.kept, "runs": k.runs,
             "share": k.share, "low": k.low, "high": k.high} for k in found.kept]  # fmt: skip
    findings = [{"finding": name, "text": text, "real": real} for name, text, real in found.findings]
    means = [
        {"method": method, "epsilon": epsilon, "share": share} for (method, epsilon), share in found.averages.items()
    ]
    return {"kept": kept, "averages": means, "findings": findings, "unsuited": dict(found.unsuited)}


def _print_comparison(console: Console, told: dict[str, Any]) -> None:
    from rich.table import Table

    epsilons = list(dict.fromkeys(row["epsilon"] for row in told["kept"]))
    for method in dict.fromkeys(row["method"] for row in told["kept"]):
        table = Table(
            box=None, header_style="bold", title=f"{method}: kept in this share of runs", title_justify="left"
        )
        table.add_column("finding")
        for epsilon in epsilons:
            table.add_column(f"eps {epsilon:g}", justify="right")
        for finding in told["findings"]:
            shares = {row["epsilon"]: f"{row['share']:.0%}" for row in told["kept"]
                      if (row["method"], row["finding"]) == (method, finding["finding"])}  # fmt: skip
            table.add_row(finding["finding"], *(shares.get(epsilon, "") for epsilon in epsilons))
        means = {row["epsilon"]: f"{row['share']:.0%}" for row in told["averages"] if row["method"] == method}
        table.add_row("all", *(means[epsilon] for epsilon in epsilons), style="bold")
        console.print(table)
    for method, why in told["unsuited"].items():
        console.print(f"{method} was left out: {why}", markup=False, style="dim")
    console.print("This compares with real rows: it is for the steward, not for release.", style="dim")
