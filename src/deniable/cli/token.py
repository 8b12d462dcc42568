"""`deniable token`: give out tokens, list them, revoke them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.office import DEFAULT_POLICY, LedgerPlace, PolicyFile
from deniable.cli.screen import JsonFlag, emit

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(no_args_is_help=True, help="Give out tokens, list them, revoke them. A token is shown once.")


@app.command(epilog="Example: deniable token new ana --purpose research --days 30 -p policy.yaml")
def new(
    name: Annotated[str, typer.Argument(help="Who will use it, as the policy names analysts.", show_default=False)],
    policy: PolicyFile = DEFAULT_POLICY,
    ledger: LedgerPlace = None,
    role: Annotated[str, typer.Option(help="steward, analyst, auditor or respondent.")] = "analyst",
    purpose: Annotated[list[str] | None, typer.Option(help="A purpose it is good for; may be repeated.")] = None,
    days: Annotated[float | None, typer.Option(help="Days until it expires. [default: 90]", show_default=False)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Give out a token. It is printed once; only its hash is kept."""
    from deniable.curator.offices import new_token

    done = new_token(policy, ledger, name, role, purpose, days)
    emit(done, as_json, lambda console: _given(console, done))


@app.command(name="list", epilog="Example: deniable token list -p policy.yaml")
def list_(policy: PolicyFile = DEFAULT_POLICY, ledger: LedgerPlace = None, as_json: JsonFlag = False) -> None:
    """List the tokens that were given out, with what they are good for."""
    from deniable.curator.offices import list_tokens

    found = list_tokens(policy, ledger)
    emit(found, as_json, lambda console: _listed(console, found))


@app.command(epilog="Example: deniable token revoke 3f9a1c22d07b -p policy.yaml")
def revoke(
    identity: Annotated[str, typer.Argument(metavar="ID", help="The token's id.", show_default=False)],
    policy: PolicyFile = DEFAULT_POLICY,
    ledger: LedgerPlace = None,
    as_json: JsonFlag = False,
) -> None:
    """End a token at once."""
    from deniable.curator.offices import revoke_token

    done = revoke_token(policy, ledger, identity)
    emit(done, as_json, lambda console: console.print(f"Token {identity} of {done['name']} is revoked.", markup=False))


def _given(console: Console, done: dict[str, Any]) -> None:
    console.print(done["token"], markup=False)
    purposes = "all purposes" if done["purposes"] is None else ", ".join(done["purposes"])
    text = f"Token {done['id']} for {done['role']} {done['name']}: {purposes}, until {done['expires']}."
    console.print(text + " It is not shown again.", markup=False)


def _listed(console: Console, found: list[dict[str, Any]]) -> None:
    for token in found:
        state = f"revoked {token['revoked']}" if token["revoked"] else f"until {token['expires']}"
        purposes = "all purposes" if token["purposes"] is None else ", ".join(token["purposes"])
        console.print(f"{token['id']}  {token['role']} {token['name']}: {purposes}; {state}", markup=False)
    if not found:
        console.print("No token was given out.")
