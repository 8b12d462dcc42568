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

    from deniable.curator.governance.losses import LossReport

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
        lines.append(f"It holds all {found.heads_compared - (found.heads_lost or 0)} heads that were kept; {how}.")
        lines += [f"{found.heads_lost} other heads are of entries that it names as lost."] if found.heads_lost else []
    if not found.seals_checked:
        lines.append("The answer store is not beside it: the seals of its entries are not checked.")
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
    answers: Annotated[
        Path | None,
        typer.Option(help="With --lost: the answer store that is left (NAME.kept.sqlite), for who withdrew."),
    ] = None,
    statement: Annotated[
        list[Path] | None, typer.Option(help="With --lost: a released file, or its statement; may be repeated.")
    ] = None,
    server_gone: Annotated[
        bool,
        typer.Option("--server-gone", help="With --lost: the PostgreSQL server of the lost ledger is gone for good."),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Put a backup where no ledger is. An older one than was last used is refused, unless the newest is lost.

    With --lost it is shown and written down what is known to be lost, and nothing is served until `ledger settle`.
    """
    from getpass import getuser

    from deniable.curator.governance.steward import restore as workflow

    given = statement or ()
    who = by or getuser()
    done = workflow(
        policy, ledger, file, lost=lost, by=who, reason=reason, answers=answers, statements=given,
        server_gone=server_gone,
    )  # fmt: skip
    lines = [f"{done.entries} entries and the stored answers are restored.", *_describe_loss(done.loss)]
    text = "\n".join([*lines, done.note.rstrip("\n")])
    emit(done.to_dict(), as_json, lambda console: console.print(text, markup=False))


@app.command(epilog="Example: deniable ledger settle --epsilon 2 --withdrawals-entered --by sam --reason 'by receipts'")
def settle(
    policy: PolicyOption = DEFAULT_POLICY,
    ledger: LedgerOption = None,
    epsilon: Annotated[str | None, typer.Option(help="What the lost entries may have spent, in all.")] = None,
    delta: Annotated[str | None, typer.Option(help="Their delta, in all.")] = None,
    rho: Annotated[str | None, typer.Option(help="Zero-concentrated, instead of epsilon.")] = None,
    everything: Annotated[
        bool, typer.Option("--everything", help="They may have spent all that is left: close the budget.")
    ] = False,
    withdrawals_entered: Annotated[
        bool, typer.Option("--withdrawals-entered", help="Everybody who withdrew in them is entered again.")
    ] = False,
    people_missing: Annotated[
        int, typer.Option(min=0, help="So many who withdrew cannot be found out: their rows count again.")
    ] = 0,
    by: Annotated[str, typer.Option(help="Who decides this; else the system's name for you.")] = "",
    reason: Annotated[str, typer.Option(help="Why so much; it is written into the ledger.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Say what lost entries spent: it is charged, and the ledger serves again. After restore or separate --lost."""
    from getpass import getuser

    from deniable.curator.governance.steward import settle as workflow

    if everything and any(each is not None for each in (epsilon, delta, rho)):
        raise typer.BadParameter("Say --everything, or an amount.")
    spent = None if everything else (epsilon, delta, rho)
    entered, missing = withdrawals_entered, people_missing
    done = workflow(policy, ledger, by or getuser(), reason, spent=spent, entered=entered, missing=missing)
    amount = ", ".join(f"{name} {value}" for name, value in done.charged.items()) or "nothing"
    also = f", and from {done.also_since[:10]} to {done.also_until[:10]}" if done.also_since and done.also_until else ""
    text = (
        f"The loss of entry {done.loss} is settled: {amount} was charged for it, in every period of a purpose from "
        f"{done.since[:10]} to {done.until[:10]}{also}. The ledger serves again."
    )
    emit(done.to_dict(), as_json, lambda console: console.print(text, markup=False))


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
    lines += _describe_loss(found.loss)
    emit(found.to_dict(), as_json, lambda console: console.print("\n".join(lines), markup=False))


def _describe_loss(loss: LossReport | None) -> list[str]:
    """What is known to be lost, and what the steward does next."""
    if loss is None:
        return []
    last = f"entry {loss.after} of {loss.since}" if loss.after else "the beginning"
    known = f" (by {', '.join(loss.known_by)})" if loss.known_by else ""
    many = f"at least {loss.entries} entries{known}" if loss.entries else "nobody outside knows how many entries"
    lines = [f"Lost is what came after {last}: {many}."]
    kept = [f"{many} of '{name}'" for name, many in sorted(loss.stored.items())]
    lines += [f"The answer store had more values: {', '.join(kept)}."] if kept else []
    if loss.epsilon != "0" or loss.delta != "0":
        lines.append(f"Statements prove that epsilon {loss.epsilon}, delta {loss.delta} was spent since.")
    if loss.proven:
        lines.append(f"This user's record of ledgers proves that at least this was spent since: {loss.proven}.")
    if loss.withdrawals_recovered:
        lines.append(f"{loss.withdrawals_recovered} withdrawals were found and are entered again.")
    people = loss.stored.get("withdrawn", 0) - loss.withdrawals_recovered
    who = f"At least {people} people who withdrew are not known" if people > 0 else "Others may have withdrawn"
    lines += [
        f"Nothing is served until this is settled. {who}: enter every withdrawal after {loss.since or 'the beginning'}",
        "again (deniable withdraw), then say what was spent: deniable ledger settle --withdrawals-entered --epsilon",
        "AMOUNT, or --everything.",
    ]
    return lines


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
    for word in ("limit", "spent"):
        console.print(f"{word:<10} {_render_amount(standing[word])}", markup=False)
    console.print(f"remaining  {standing['left'] or 'no limit'}", markup=False)
    told = f"{standing['charged']} charged, {standing['without_guarantee']} without a formal guarantee"
    console.print(f"releases   {told}", markup=False)
    for entry in found["entries"]:
        about = " ".join(filter(None, (entry["analyst"], entry["purpose"], entry["technique"], *entry["tables"])))
        line = f"{entry['sequence']:>6}  {entry['time'][:19]}  {entry['act']:<8} {about}  {entry['hash'][:12]}"
        cause = entry["details"].get("cause", "")
        console.print(f"{line}  {cause}" if cause else line, markup=False)


def _render_amount(budget: dict[str, str] | None) -> str:
    if budget is None:
        return "no limit"
    return ", ".join(f"{name} {value}" for name, value in budget.items() if value != "0") or "0"
