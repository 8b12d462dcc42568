"""`deniable hierarchy`: a tree of counts or sums in which children add up to their parents."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import JsonFlag, LedgerOption, emit, name_asker, open_curator

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLES = """\b
Examples:
  deniable hierarchy visits payer sex diagnosis --epsilon 1
  deniable hierarchy visits payer sex --epsilon 1 --explain
  deniable hierarchy visits payer --aggregate "SUM(charge)" --epsilon 1 -o totals.csv
"""


def hierarchy(
    source: Annotated[str, typer.Argument(help="A table of the policy, or tables joined: a JOIN b ON a.x = b.x.")],
    levels: Annotated[list[str], typer.Argument(help="Columns, from the coarsest to the finest.")],
    policy: Annotated[Path, typer.Option("--policy", "-p", help="The policy file.")] = Path("policy.yaml"),
    epsilon: Annotated[str | None, typer.Option(help="Epsilon to spend, such as 1.")] = None,
    delta: Annotated[str, typer.Option(help="Delta to spend, such as 1e-6.")] = "0",
    rho: Annotated[str | None, typer.Option(help="Zero-concentrated budget, instead of epsilon.")] = None,
    aggregate: Annotated[str, typer.Option(help="What is added up: COUNT(*) or SUM of a column.")] = "COUNT(*)",
    nonnegative: Annotated[bool, typer.Option("--nonnegative", help="No cell below 0 (biases small cells).")] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Only explain: no private row is read.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write rows and statement to a file.")] = None,
    ledger: LedgerOption = None,
    analyst: Annotated[str, typer.Option(help="Who asks. [default: the steward]", show_default=False)] = "",
    purpose: Annotated[str, typer.Option(help="What for, as the policy names purposes.", show_default=False)] = "",
    as_json: JsonFlag = False,
) -> None:
    """Release a tree: total, groups, groups of groups; children add up to their parents exactly."""
    from deniable.curator.query.sql import write_answer
    from deniable.storage import refuse_unwritable

    refuse_unwritable(out, rows=True)
    budget: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "rho": rho, "aggregate": aggregate}
    with open_curator(policy, ledger, charges=not explain) as curator:
        if explain:
            told = curator.explain_hierarchy(source, levels, **budget)
            emit(told.to_dict(), as_json, lambda console: _print_sets(console, told))
            return
        who = name_asker(analyst, purpose)
        answer = curator.hierarchy(source, levels, nonnegative=nonnegative, who=who, **budget)
        if out is not None:
            write_answer(curator.context, answer, out)
        document = {"rows": answer.to_pylist(), **dict(answer.release.details)}
        emit(document, as_json, lambda console: _print_tree(console, answer, levels))


def _print_tree(console: Console, answer: Any, levels: list[str]) -> None:
    from rich.table import Table

    names = [level.rsplit(".", 1)[-1] for level in levels]
    table = Table(box=None, header_style="bold")
    for name in names:
        table.add_column(name)
    table.add_column("value", justify="right")
    rows = answer.to_pylist()
    for row in rows[:60]:
        reach = (row["value_high"] - row["value_low"]) / 2
        table.add_row(*(str(row[name] or "") for name in names), f"{row['value']:,} [dim]± {reach:,.4g}[/]")
    console.print(table)
    if len(rows) > 60:
        console.print(f"... and {len(rows) - 60:,} more rows; write them with --out")
    _print_sets(console, dict(answer.release.details))


def _print_sets(console: Console, told: Mapping[str, Any]) -> None:
    cost = ", ".join(f"{name} {value}" for name, value in told["cost"].items() if value != "0")
    console.print(f"Cost: {cost}")
    for part in told["sets"]:
        console.print(
            f"{part['name']}: {part['cells']:,} cells, share {part['share']} of the budget, standard error "
            f"{part['error_fitted']:,.4g} (as measured {part['error_measured']:,.4g})",
            style="dim",
        )
