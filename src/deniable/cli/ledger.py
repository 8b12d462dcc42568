"""`deniable ledger`: read the record, prove that it was not changed, take it elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import DEFAULT_POLICY, JsonFlag, LedgerOption, PolicyOption, emit

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(no_args_is_help=True, help="Read the record of what was spent, verify it, export it.")


@app.command(epilog="Example: deniable ledger show -p policy.yaml --last 20")
def show(
    policy: PolicyOption = DEFAULT_POLICY,
    ledger: LedgerOption = None,
    last: Annotated[int, typer.Option(min=0, help="How many entries to show.")] = 10,
    as_json: JsonFlag = False,
) -> None:
    """Show what is spent and left, and the last entries."""
    from deniable.curator.governance.steward import show as workflow

    found = workflow(policy, ledger, last)
    emit(found.to_dict(), as_json, lambda console: _print_standing(console, found))


@app.command(epilog="Example: deniable ledger verify -p policy.yaml --head 6dfb28d7... --number 12")
def verify(
    policy: PolicyOption = DEFAULT_POLICY,
    ledger: LedgerOption = None,
    head: Annotated[str | None, typer.Option(help="The head in a receipt: shows that nothing was cut off.")] = None,
    number: Annotated[int | None, typer.Option(help="The number in the same receipt.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Recompute the whole chain (exit code 2 when anything was changed, removed, reordered or cut off)."""
    from deniable.curator.governance.steward import verify as workflow

    found = workflow(policy, ledger, head, number)
    text = f"The ledger is what was written: {found['entries']} entries.\nhead {found['head']}"
    emit(found.to_dict(), as_json, lambda console: console.print(text, markup=False))


@app.command(epilog="Example: deniable ledger export -p policy.yaml --form csv -o ledger.csv")
def export(
    policy: PolicyOption = DEFAULT_POLICY,
    ledger: LedgerOption = None,
    form: Annotated[str, typer.Option(help="csv, jsonl, or google (events of Google's dp-accounting).")] = "csv",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A file; else standard output.")] = None,
) -> None:
    """Write the ledger as CSV, as JSON lines, or as one event of Google's dp-accounting."""
    from deniable.curator.governance.steward import export as workflow

    for piece in workflow(policy, ledger, form, out):
        sys.stdout.write(piece)


@app.command(epilog="Example: deniable ledger separate -p study.yaml --by ana --reason 'other people: the 2019 cohort'")
def separate(
    policy: PolicyOption = DEFAULT_POLICY,
    ledger: LedgerOption = None,
    by: Annotated[str, typer.Option(help="Who decides this; else the system's name for you.")] = "",
    reason: Annotated[str, typer.Option(help="Why; it is written into the ledger.")] = "",
    lost: Annotated[bool, typer.Option("--lost", help="The newest copy of the ledger is lost: begin anew.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Give a policy a budget of its own although another ledger protects the same rows; or begin a lost ledger anew.

    One person's loss is then the sum over all ledgers that protect the rows.
    """
    from getpass import getuser

    from deniable.curator.governance.steward import separate as workflow

    found = workflow(policy, ledger, by or getuser(), reason, lost=lost)
    lines = [f"The ledger {found['ledger']} has a budget of its own."]
    lines += [f"The same rows are protected by {other}: the budgets add up." for other in found["beside"]]
    lines += (
        [f"{found['entries_lost']} entries are lost: lower the budgets by what they may have spent."] if lost else []
    )
    emit(found.to_dict(), as_json, lambda console: console.print("\n".join(lines), markup=False))


def _print_standing(console: Console, found: Mapping[str, Any]) -> None:
    standing = found["standing"]
    for word in ("limit", "spent", "remaining"):
        console.print(f"{word:<10} {_render_amount(standing[word])}", markup=False)
    told = f"{standing['charged']} charged, {standing['without_guarantee']} without a formal guarantee"
    console.print(f"releases   {told}", markup=False)
    for entry in found["entries"]:
        about = " ".join(filter(None, (entry["analyst"], entry["purpose"], entry["technique"], *entry["tables"])))
        line = f"{entry['sequence']:>6}  {entry['time'][:19]}  {entry['act']:<8} {about}  {entry['hash'][:12]}"
        console.print(line, markup=False)


def _render_amount(budget: dict[str, str] | None) -> str:
    if budget is None:
        return "no limit"
    return ", ".join(f"{name} {value}" for name, value in budget.items() if value != "0") or "0"
