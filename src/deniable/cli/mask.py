"""`deniable mask`, and `key` and `vault`: a pseudonymized or Safe Harbor release, and the keys that it is made with."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import DEFAULT_POLICY, JsonFlag, LedgerOption, PolicyOption, emit, show_progress, watch_stop
from deniable.errors import DataError

if TYPE_CHECKING:
    from rich.console import Console

EXAMPLES = """\b
Examples:
  deniable mask people.csv --policy hr.yaml -o out.parquet
  deniable mask --policy clinic.yaml -o released/ --mode safe-harbor
"""


def mask(
    out: Annotated[Path, typer.Option("--out", "-o", help="A .parquet, .csv or .arrow file; a folder for all tables.")],
    source: Annotated[
        str | None,
        typer.Argument(help="The table's file or address; without it, all tables of the policy.", show_default=False),
    ] = None,
    policy: PolicyOption = DEFAULT_POLICY,
    table: Annotated[str | None, typer.Option(help="Which table of the policy the file is.")] = None,
    mode: Annotated[
        str, typer.Option(help="pseudonymize, or safe-harbor (all 18 identifiers removed).")
    ] = "pseudonymize",
    key: Annotated[
        list[str] | None,
        typer.Option(help="Where a key is: NAME=file:PATH, NAME=env:VARIABLE or NAME=command:PROGRAM."),
    ] = None,
    columns: Annotated[str | None, typer.Option(help="Release only these columns, separated by commas.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start over instead of continuing a killed run.")] = False,
    keep_order: Annotated[
        bool, typer.Option("--keep-order", help="Leave rows in the table's own order, which joins releases.")
    ] = False,
    presidio: Annotated[
        bool, typer.Option("--presidio", help="Let Presidio search free text as well (names), if it is installed.")
    ] = False,
    ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Mask identifiers as the policy says, keep joins working, and state plainly what remains.

    Columns that the policy does not declare are not released. A run that was killed goes on where it was.
    """
    only = None if columns is None else [name.strip() for name in columns.split(",")]
    how: dict[str, Any] = {"mode": mode, "keys": key or (), "columns": only, "fresh": fresh, "keep_order": keep_order}
    with watch_stop(), show_progress("Masking") as told:
        from deniable.curator.context import ledger_of
        from deniable.curator.mask import run

        place = ledger_of(policy, ledger)
        report = run.mask(run.request_for(policy, source, table, out, **how, presidio=presidio, ledger=place), told)
    emit(report.to_dict(), as_json, lambda console: _print_report(console, report))


def _print_report(console: Console, report: Mapping[str, Any]) -> None:
    from deniable.cli.attack import describe_limited

    for name, table in report["tables"].items():
        console.print(f"{name}: {table['rows']} rows written to {table['output']}", markup=False)
        for column, described in table["masks"].items():
            console.print(f"  {column}: {described}", markup=False)
        if table["withheld"]:
            console.print(f"  not released: {', '.join(table['withheld'])}", markup=False)
        for column, probability in table["token_collision_probability"].items():
            console.print(
                f"  two values of {column} share a token with probability {probability:.1e} at most", markup=False
            )
        for column, count in table["placeholder_dates"].items():
            console.print(
                f"  warning: {count} rows of {column} hold a placeholder such as 1900-01-01 or 9999-12-31. They were "
                "not shifted; write null for an unknown date",
                markup=False,
            )
        console.print(f"No formal guarantee: {table['guarantee']}.", markup=False)
        if table["joint"] is not None:
            console.print(f"  {table['joint']['words']}", markup=False)
        for name in ("joint_of_tables", "joint_with_earlier"):
            if name in table:
                console.print(f"  {table[name]['words']}", markup=False)
        for line in describe_limited(table.get("attacks")):
            console.print(f"  {line}", markup=False)
        for attack in table["remaining_attacks"]:
            console.print(f"  remains: {attack}", markup=False)
    _print_checks(console, report)


def _print_checks(console: Console, report: Mapping[str, Any]) -> None:
    for join in report["joins"]:
        console.print(
            f"{join['left']} and {join['right']} share {join['shared_after']} values, as before masking.", markup=False
        )
    for line in report["safe_harbor"]:
        columns = ", ".join(f"{column} {how}" for column, how in line["columns"].items())
        console.print(f"  ({line['category']}) {line['name']}: {line['status']}. {columns}", markup=False)


key_app = typer.Typer(no_args_is_help=True, help="Make, check and rotate masking keys. A key is never printed.")
vault_app = typer.Typer(no_args_is_help=True, help="Look into a codebook vault, with its key.")

Name = Annotated[str, typer.Argument(help="The key's name, as the policy says it.", show_default=False)]
Places = Annotated[
    list[str] | None, typer.Option("--key", help="NAME=file:PATH, NAME=env:VARIABLE or NAME=command:PROGRAM.")
]
KeyName = Annotated[str, typer.Option("--name", help="The name of the vault's key.")]
Vault = Annotated[Path, typer.Argument(help="The vault's file.", show_default=False)]


@key_app.command(epilog="Example: deniable key new people")
def new(
    name: Name,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The file; else one in the key folder.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Draw a new key from the operating system's entropy, into a file that only you can read.

    The key folder is $DENIABLE_KEYS, or ~/.deniable/keys. Keep a backup: a lost key cannot be recovered.
    """
    from deniable.curator.mask.keys import new as workflow

    done = workflow(name, out)
    text = f"Key '{name}' is in {done.file} (check value {done.check}). Keep a backup outside the releases."
    emit(done.to_dict(), as_json, lambda console: console.print(text, markup=False))


@key_app.command(epilog="Example: deniable key check people --policy clinic.yaml")
def check(
    name: Name,
    policy: Annotated[Path | None, typer.Option("--policy", "-p", help="Compare with what was used there.")] = None,
    key: Places = None,
    as_json: JsonFlag = False,
) -> None:
    """Say whether a key can be read, is undamaged, and is the one that was used before."""
    from deniable.curator.mask.keys import check as workflow

    done = workflow(name, key or (), policy)
    known = "the one used with this policy before" if done.confirmed else "readable and undamaged"
    text = f"Key '{name}' is {known} (check value {done.check}, {done.place})."
    emit(done.to_dict(), as_json, lambda console: console.print(text, markup=False))


@key_app.command(epilog="Example: deniable key rotate people --policy clinic.yaml --map old-to-new.parquet")
def rotate(
    name: Name,
    policy: Annotated[Path | None, typer.Option("--policy", "-p", help="The policy whose tables use the key.")] = None,
    map_file: Annotated[Path | None, typer.Option("--map", help="Where to write old and new tokens.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Replace a key by a new one and keep the old one beside it; write which token became which.

    The map ties old and new releases together: it is as secret as the key. Vaults of the policy are sealed anew.
    """
    from deniable.curator.mask.keys import rotate as workflow

    done = workflow(name, policy, map_file)
    emit(done.to_dict(), as_json, lambda console: _print_rotation(console, done))


@vault_app.command(name="show", epilog="Example: deniable vault show names.vault --name people")
def show(vault: Vault, name: KeyName, key: Places = None, as_json: JsonFlag = False) -> None:
    """Say how many values a vault holds, by domain."""
    from deniable.curator.mask.keys import vault_size

    counts = vault_size(vault, name, key or ())
    lines = [f"{domain}: {count} values" for domain, count in counts.items()] or ["The vault is empty."]
    emit(
        {"vault": str(vault), "values": counts}, as_json, lambda console: console.print("\n".join(lines), markup=False)
    )


@vault_app.command(epilog="Example: deniable vault reveal names.vault --name people --policy clinic.yaml < tokens.txt")
def reveal(
    vault: Vault,
    name: KeyName,
    domain: Annotated[str, typer.Option(help="The domain of the tokens; else the key's name.")] = "",
    key: Places = None,
    policy: PolicyOption = DEFAULT_POLICY,
    ledger: LedgerOption = None,
    by: Annotated[str, typer.Option(help="Who asks, for the ledger; else the system's name for you.")] = "",
    as_json: JsonFlag = False,
) -> None:
    """Turn tokens back into values: one token a line on standard input, one value a line on standard output.

    The policy's ledger records who asked for how many tokens of which vault.
    """
    from getpass import getuser

    from deniable.curator.mask.keys import reveal as workflow

    tokens = _read_lines()
    found = workflow(vault, name, tokens, domain, key or (), policy=policy, ledger=ledger, by=by or getuser())
    values = [found[token] or "" for token in tokens]
    emit({"values": found}, as_json, lambda console: console.print("\n".join(values), markup=False))


def _read_lines() -> list[str]:
    try:
        return [line.strip() for line in sys.stdin.buffer.read().decode("utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError:
        raise DataError("the tokens on standard input are not UTF-8 text", remedy="Convert them first") from None


def _print_rotation(console: Any, done: Mapping[str, Any]) -> None:
    text = f"Key '{done['key']}' is new (check value {done['check']}); the old one is kept as {done['old_key']}."
    console.print(text, markup=False)
    if "map" in done:
        console.print(f"{done['tokens']} tokens are mapped in {done['map']}: as secret as the key.", markup=False)
        for path in done["vaults"]:
            console.print(f"Vault {path} is sealed with the new key.", markup=False)
