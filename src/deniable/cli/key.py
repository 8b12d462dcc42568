"""`deniable key` and `deniable vault`: make, check and rotate masking keys; look into a vault with its key."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from deniable.cli.terminal import DEFAULT_POLICY, JsonFlag, LedgerOption, PolicyOption, emit
from deniable.errors import DataError

app = typer.Typer(no_args_is_help=True, help="Make, check and rotate masking keys. A key is never printed.")
vault_app = typer.Typer(no_args_is_help=True, help="Look into a codebook vault, with its key.")

Name = Annotated[str, typer.Argument(help="The key's name, as the policy says it.", show_default=False)]
Places = Annotated[
    list[str] | None, typer.Option("--key", help="NAME=file:PATH, NAME=env:VARIABLE or NAME=command:PROGRAM.")
]
KeyName = Annotated[str, typer.Option("--name", help="The name of the vault's key.")]
Vault = Annotated[Path, typer.Argument(help="The vault's file.", show_default=False)]


@app.command(epilog="Example: deniable key new people")
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


@app.command(epilog="Example: deniable key check people --policy clinic.yaml")
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


@app.command(epilog="Example: deniable key rotate people --policy clinic.yaml --map old-to-new.parquet")
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
