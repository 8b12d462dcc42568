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
    against: Annotated[
        Path | None, typer.Option(help="A file of heads that was kept elsewhere: each must be in the ledger.")
    ] = None,
    key: Annotated[
        str, typer.Option(help="The public key that those heads are signed with.", show_default="the register's")
    ] = "",
    as_json: JsonFlag = False,
) -> None:
    """Recompute the whole chain (exit code 2 when anything was changed, removed, reordered or cut off)."""
    from deniable.curator.governance.steward import verify as workflow

    found = workflow(policy, ledger, head, number, against, key)
    lines = [f"The ledger is what was written: {found['entries']} entries.", f"head {found['head']}"]
    if found.heads_compared is not None:
        how = "signatures are checked" if found.signatures_checked else "signatures are not checked: name --key"
        lines.append(f"It holds all {found.heads_compared} heads that were kept; {how}.")
    emit(found.to_dict(), as_json, lambda console: console.print("\n".join(lines), markup=False))


@app.command(epilog="Example: deniable ledger head -p policy.yaml --sign --to /mnt/elsewhere/heads.txt")
def head(
    policy: PolicyOption = DEFAULT_POLICY,
    ledger: LedgerOption = None,
    sign: Annotated[bool, typer.Option("--sign", help="Sign it with the curator's key.")] = False,
    to: Annotated[str, typer.Option(help="A file to append it to, or an http(s) address to send it to.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Print how far the ledger is, as a note for a witness: whoever keeps it can tell a ledger that lost entries."""
    from deniable.curator.governance.steward import show_head

    found = show_head(policy, ledger, sign=sign, to=to)
    emit(found.to_dict(), as_json, lambda console: console.print(found.note, end="", markup=False))


@app.command(epilog="Example: deniable ledger backup /mnt/backup/clinic-2026-11-16.backup -p policy.yaml")
def backup(
    file: Annotated[Path, typer.Argument(help="The file to write; it holds personal ids and keys.")],
    policy: PolicyOption = DEFAULT_POLICY,
    ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Copy the ledger and its stored answers into one file, as they are at one moment, and verify it."""
    from deniable.curator.governance.steward import back_up

    done = back_up(policy, ledger, file)
    text = f"{done.entries} entries and the stored answers are in {done.file}, and verified.\n{done.note}"
    emit(done.to_dict(), as_json, lambda console: console.print(text.rstrip("\n"), markup=False))


@app.command(epilog="Example: deniable ledger restore /mnt/backup/clinic-2026-11-16.backup -p policy.yaml")
def restore(
    file: Annotated[Path, typer.Argument(help="The backup.")],
    policy: PolicyOption = DEFAULT_POLICY,
    ledger: LedgerOption = None,
    lost: Annotated[bool, typer.Option("--lost", help="Everything newer than the backup is lost.")] = False,
    by: Annotated[str, typer.Option(help="Who decides this; else the system's name for you.")] = "",
    reason: Annotated[str, typer.Option(help="With --lost: why; it is written into the ledger.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Put a backup where no ledger is. An older one than was last used is refused, unless the newest is lost."""
    from getpass import getuser

    from deniable.curator.governance.steward import restore as workflow

    done = workflow(policy, ledger, file, lost=lost, by=by or getuser(), reason=reason)
    text = f"{done.entries} entries and the stored answers are restored.\n{done.note}"
    emit(done.to_dict(), as_json, lambda console: console.print(text.rstrip("\n"), markup=False))


@app.command(epilog="Example: deniable ledger export -p policy.yaml --form ecs --follow --after 1200")
def export(
    policy: PolicyOption = DEFAULT_POLICY,
    ledger: LedgerOption = None,
    form: Annotated[
        str, typer.Option(help="csv, jsonl, ecs (Elastic Common Schema), or google (dp-accounting).")
    ] = "csv",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A file; else standard output.")] = None,
    after: Annotated[int, typer.Option(min=0, help="Only entries after this number.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as entries are written, until Ctrl-C.")] = False,
) -> None:
    """Write the ledger as CSV, as JSON lines, in the names of ECS, or as one event of Google's dp-accounting."""
    from deniable.curator.governance.steward import export as workflow

    for piece in workflow(policy, ledger, form, out, after, follow=follow):
        sys.stdout.write(piece)
        if follow:
            sys.stdout.flush()


@app.command(epilog="Example: deniable ledger incidents -p policy.yaml --share 0.25")
def incidents(
    policy: PolicyOption = DEFAULT_POLICY,
    ledger: LedgerOption = None,
    after: Annotated[int, typer.Option(min=0, help="Only entries after this number.")] = 0,
    share: Annotated[
        float, typer.Option(min=0, max=1, help="Show who spends so much of what they may within an hour.")
    ] = 0.25,
    as_json: JsonFlag = False,
) -> None:
    """Show who asked what, and what is unusual: failures, bursts, clocks, values revealed. Then pause a token."""
    from deniable.curator.governance.steward import incidents as workflow

    found = workflow(policy, ledger, after, share)
    emit(found.to_dict(), as_json, lambda console: _print_incidents(console, found))


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


def _print_incidents(console: Console, found: Mapping[str, Any]) -> None:
    for each in found["usage"]:
        counts = f"{each['charges']} charges, {each['releases']} releases, {each['failures']} failures"
        busiest = "" if each["busiest_share"] is None else f"; busiest hour {each['busiest_share']:.0%}"
        text = f"{each['who']} {each['purpose']}: {counts}, spent {each['spent']:g}{busiest}; last {each['last']}"
        console.print(text, markup=False)
    for alert in found["alerts"]:
        console.print(f"! {alert['time']}  {alert['who']}: {alert['words']} (entry {alert['number']})", markup=False)
    if not found["alerts"]:
        console.print("Nothing unusual.")


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
