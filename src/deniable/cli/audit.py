"""`deniable audit`: our own mechanisms on trial, with the distinguishing game drawn beside what epsilon allows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.screen import JsonFlag, emit, progress

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLES = """\b
Examples:
  deniable audit laplace --epsilon 1
  deniable audit gaussian --epsilon 1 --delta 1e-3 --runs 100000 --report audit.html
  deniable audit response --epsilon 0.5 --json
  deniable audit laplace --epsilon 1 --spends 3          (a broken twin: it is caught)
"""


def audit(
    mechanism: Annotated[str, typer.Argument(help="laplace, gaussian, exponential or response.")],
    epsilon: Annotated[str, typer.Option(help="The epsilon that is claimed.")] = "1",
    delta: Annotated[str, typer.Option(help="The delta that is claimed.")] = "0",
    spends: Annotated[str | None, typer.Option(help="Epsilon really spent: makes a broken twin.")] = None,
    runs: Annotated[int, typer.Option(help="Runs on each neighbor.", min=400)] = 20_000,
    confidence: Annotated[float, typer.Option(help="Of the lower bound on epsilon.")] = 0.999,
    report: Annotated[Path | None, typer.Option(help="Write the page with the game (HTML).")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Play the distinguishing game against a mechanism, and prove a lower bound on its epsilon.

    No data is touched and nothing is charged. Exit code 2 when the claim is refuted.
    """
    from deniable.curator import auditing

    with progress("Auditing") as told:
        found = auditing.audit(
            mechanism, epsilon, delta, spends=spends, runs=runs, confidence=confidence, progress=told
        )
    if report is not None:
        from deniable.reports.audit import audit_page
        from deniable.reports.page import write

        write(audit_page(found), report)
    emit(found, as_json, lambda console: _show(console, found))
    if found["failed"]:
        raise typer.Exit(2)


def _show(console: Console, found: dict[str, Any]) -> None:
    wins = found["game"]["wins"]
    console.print(f"{found['mechanism']}: {found['neighbors']}", markup=False)
    told = f"the best attacker wins {wins['share']:.1%} of games ({wins['low']:.1%} to {wins['high']:.1%})"
    console.print(f"{told}; epsilon allows {found['game']['most']:.1%}", markup=False)
    console.print(found["audit"]["sentence"], markup=False)
