"""`deniable request`, `approve`, `withdraw`, `subject`, `register`, `token`, `serve`, ...: governing a dataset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import DEFAULT_POLICY, JsonFlag, LedgerOption, PolicyOption, emit

if TYPE_CHECKING:
    from rich.console import Console

    from deniable.curator.governance.withdrawals import Reach


TokenId = Annotated[str, typer.Argument(metavar="ID", help="The token's id.", show_default=False)]
RequestId = Annotated[str, typer.Argument(metavar="ID", help="The request's id.", show_default=False)]
Reason = Annotated[str, typer.Option("--reason", help="Why; it is recorded.", show_default=False)]
Steward = Annotated[str, typer.Option("--by", help="Which steward decides, by name, as the policy lists them.")]
UnitColumn = Annotated[str, typer.Option("--column", help="The column that tells people apart.", show_default=False)]
Person = Annotated[str, typer.Argument(metavar="VALUE", help="The person's value of that column.", show_default=False)]


def request(
    technique: Annotated[str, typer.Argument(help="mask, anonymize or synthesize.", show_default=False)],
    tables: Annotated[list[str], typer.Argument(help="The tables wanted.", show_default=False)],
    analyst: Annotated[str, typer.Option(help="Who asks.", show_default=False)],
    purpose: Annotated[str, typer.Option(help="What for.", show_default=False)],
    policy: PolicyOption = DEFAULT_POLICY,
    ledger: LedgerOption = None,
    epsilon: Annotated[str | None, typer.Option(help="The budget of a synthetic release.")] = None,
    delta: Annotated[str | None, typer.Option(help="Its delta, such as 1e-6.")] = None,
    columns: Annotated[str | None, typer.Option(help="Only these columns, separated by commas.")] = None,
    k: Annotated[
        int | None, typer.Option(min=1, help="Rows that must look alike: no fewer than the policy says.")
    ] = None,
    justification: Annotated[str | None, typer.Option(help="What it is needed for; a purpose may demand it.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Ask for a release of rows; the steward sees its cost and its risk, and decides."""
    from deniable.curator.governance.steward import request as workflow

    named = None if columns is None else [name.strip() for name in columns.split(",")]
    stated = {"epsilon": epsilon, "delta": delta, "columns": named, "k": k, "justification": justification}
    parameters = {name: amount for name, amount in stated.items() if amount is not None}
    done = workflow(policy, ledger, analyst, purpose, technique, tables, parameters)
    emit(done.to_dict(), as_json, lambda console: _print_request(console, done))


def requests(
    policy: PolicyOption = DEFAULT_POLICY,
    ledger: LedgerOption = None,
    pending: Annotated[bool, typer.Option("--pending", help="Only those that wait for a decision.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List the requests for releases, with their cost, risk and decision."""
    from deniable.curator.governance.steward import requests as workflow

    found = workflow(policy, ledger, pending)
    emit([each.to_dict() for each in found], as_json, lambda console: _print_requests(console, found))


def approve(
    identity: RequestId, reason: Reason, policy: PolicyOption = DEFAULT_POLICY, ledger: LedgerOption = None,
    by: Steward = "steward", as_json: JsonFlag = False,
) -> None:  # fmt: skip
    """Approve a request, with a reason. Where the purpose demands two approvals, two different stewards do."""
    _decide_request(policy, ledger, identity, True, reason, by, as_json)


def decline(
    identity: RequestId, reason: Reason, policy: PolicyOption = DEFAULT_POLICY, ledger: LedgerOption = None,
    by: Steward = "steward", as_json: JsonFlag = False,
) -> None:  # fmt: skip
    """Decline a request, with a reason."""
    _decide_request(policy, ledger, identity, False, reason, by, as_json)


def terms(
    analyst: Annotated[str, typer.Option(help="Who asks.", show_default=False)],
    purpose: Annotated[str, typer.Option(help="What for.", show_default=False)],
    policy: PolicyOption = DEFAULT_POLICY,
    ledger: LedgerOption = None,
    acknowledge: Annotated[bool, typer.Option("--acknowledge", help="Acknowledge them; it is recorded.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show the terms of a purpose; an analyst acknowledges them once, and again when their wording changes."""
    from deniable.curator.governance.steward import show_terms

    found = show_terms(policy, ledger, analyst, purpose, acknowledge=acknowledge)
    state = "acknowledged" if found.acknowledged else "not acknowledged"
    text = f"{found.terms or 'There are no terms.'}\n{analyst}: {state}"
    emit(found.to_dict(), as_json, lambda console: console.print(text, markup=False))


def fulfill(
    identity: RequestId,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder for the released tables.", show_default=False)],
    policy: PolicyOption = DEFAULT_POLICY,
    ledger: LedgerOption = None,
    key: Annotated[list[str] | None, typer.Option(help="Where a masking key is: NAME=file:PATH and so on.")] = None,
    take_over: Annotated[
        bool, typer.Option("--take-over", help="It was begun in another folder, and nobody goes on there.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Make the release of an approved request, once."""
    from deniable.curator.governance.fulfill import fulfill as workflow

    done = workflow(policy, ledger, identity, out, key or (), take_over=take_over)
    emit(done.to_dict(), as_json, lambda console: _print_request(console, done))


def withdraw(
    value: Person, column: UnitColumn, policy: PolicyOption = DEFAULT_POLICY, ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:  # fmt: skip
    """Leave a person out of everything from now on. Says nothing on whether the person was there."""
    from deniable.curator.governance.steward import withdraw as workflow

    done, reach = workflow(policy, ledger, column, value)
    emit({**done.as_dict(), **reach.to_dict()}, as_json, lambda console: _print_reach(console, done.number, reach))


def reinstate(
    value: Person, column: UnitColumn, reason: Reason, policy: PolicyOption = DEFAULT_POLICY,
    ledger: LedgerOption = None, as_json: JsonFlag = False,
) -> None:  # fmt: skip
    """Take a person in again who withdrew and changed their mind; the steward says why."""
    from deniable.curator.governance.steward import reinstate as workflow

    done = workflow(policy, ledger, column, value, reason)
    text = f"Taken in again from now on; recorded as entry {done.number}."
    emit(done.as_dict(), as_json, lambda console: console.print(text, markup=False))


def subject(
    value: Person, column: UnitColumn, policy: PolicyOption = DEFAULT_POLICY, ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:  # fmt: skip
    """Tell which releases and purposes a person's rows may have been part of. Show it to that person alone."""
    from deniable.curator.governance.steward import subject as workflow

    found = workflow(policy, ledger, column, value)
    emit(found.to_dict(), as_json, lambda console: _print_subject(console, found))


def purge(policy: PolicyOption = DEFAULT_POLICY, ledger: LedgerOption = None, as_json: JsonFlag = False) -> None:
    """Forget every stored answer of a policy that has expired; the ledger stays."""
    from deniable.curator.governance.steward import purge as workflow

    forgotten = workflow(policy, ledger)
    text = f"{forgotten} stored answers are forgotten; the ledger stays."
    emit({"forgotten": forgotten}, as_json, lambda console: console.print(text, markup=False))


def register(
    policy: PolicyOption = DEFAULT_POLICY,
    ledger: LedgerOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write a page (.html).")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the public register: every release with its technique, epsilon, delta, unit and date."""
    from deniable.curator.governance.steward import register as workflow
    from deniable.storage import refuse_other_than_page

    refuse_other_than_page(out)
    found = workflow(policy, ledger)
    if out is not None:
        from deniable.reports.demo import build_register_page
        from deniable.reports.page import write

        write(build_register_page(found), out)
    emit(found.to_dict(), as_json, lambda console: _print_register(console, found))


def estate(
    folder: Annotated[Path, typer.Argument(help="A folder with policies in it, at any depth.")] = Path(),
    ledger: LedgerOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write a page (.html).")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show all policies of a folder together: who is in which dataset, what was released, what one person loses."""
    from deniable.curator.governance.estate import survey_estate
    from deniable.storage import refuse_other_than_page

    refuse_other_than_page(out)
    found = survey_estate(folder, ledger)
    if out is not None:
        from deniable.reports.demo import build_estate_page
        from deniable.reports.page import write

        write(build_estate_page(found.to_dict()), out)
    emit(found.to_dict(), as_json, lambda console: _print_estate(console, found))


def resume(
    analyst: Annotated[str, typer.Argument(help="Who was paused.", show_default=False)],
    policy: PolicyOption = DEFAULT_POLICY,
    ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Let an asker go on who was paused: three questions failed after they were charged. Look at the ledger first."""
    from deniable.curator.governance.steward import resume as workflow

    failures = workflow(policy, ledger, analyst)
    text = f"'{analyst}' may ask again; {failures} failures are counted no more."
    emit({"analyst": analyst, "failures": failures}, as_json, lambda console: console.print(text, markup=False))


def _decide_request(
    policy: Path, ledger: str | None, identity: str, approved: bool, reason: str, by: str, as_json: bool
) -> None:
    from deniable.curator.governance.steward import decide

    done = decide(policy, ledger, identity, approved, reason, by)
    emit(done.to_dict(), as_json, lambda console: _print_request(console, done))


def _print_reach(console: Console, number: int, reach: Reach) -> None:
    tables = ", ".join(reach.left_out_of)
    console.print(
        f"Left out of {tables} from now on; recorded as entry {number}. What was released before stays released.",
        markup=False,
    )
    for table, column in reach.not_left_out_of.items():
        how = (
            f"people are told apart by '{column}' there; withdraw that value too" if column else "its rows have no name"
        )
        console.print(f"Not left out of {table}: {how}.", markup=False)


def _print_request(console: Console, told: Mapping[str, Any]) -> None:
    what = f"{told['technique']} {', '.join(told['tables'])} by {told['analyst']} for {told['purpose']}"
    console.print(f"{told['id']}  {told['status']}: {what}", markup=False)
    asked = ", ".join(f"{name} {_render_parameter(value)}" for name, value in told["parameters"].items())
    console.print(f"  asked: {asked or 'as the policy says'}", markup=False)
    console.print("  cost: " + ", ".join(f"{name} {value}" for name, value in told["cost"].items()), markup=False)
    for table, risk in told.get("risk", {}).items():
        known = ", ".join(risk["columns"])
        words = f"{known} single out {risk['per_thousand'] / 10:g} % of the {risk.get('of') or 'rows'} of {table}"
        unknown = f"no column of {table} is declared as one that others know"
        console.print(f"  risk: {words if known else unknown}", markup=False)
    if told["justification"]:
        console.print(f"  needed for: {told['justification']}", markup=False)
    if told["approvals"] > 1:
        said = zip(told["approved_by"], told["reasons"], strict=True)
        names = "; ".join(f"{name} ({reason})" for name, reason in said) or "nobody yet"
        console.print(f"  approved by {names}; {told['approvals']} stewards must", markup=False)
    if told["reason"]:
        console.print(f"  reason: {told['reason']}", markup=False)
    if told.get("failed"):
        console.print(f"  approved, and not made: {told['failed']}", markup=False)
    if told.get("folder"):
        console.print(f"  begun in: {told['folder']}", markup=False)


def _render_parameter(value: Any) -> str:
    """What was asked, as words: names with commas, numbers of columns as column=number."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={each}" for name, each in value.items())
    return ", ".join(str(each) for each in value) if isinstance(value, list | tuple) else str(value)


def _print_requests(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    for told in found:
        _print_request(console, told)
    if not found:
        console.print("No request.")


def _print_subject(console: Console, found: Mapping[str, Any]) -> None:
    console.print(f"tables     {', '.join(found['tables']) or 'none'}", markup=False)
    console.print(f"withdrawn  {found['withdrawn'] or 'no'}", markup=False)
    console.print(f"purposes   {', '.join(found['purposes']) or 'none'}", markup=False)
    for words in found["words"]:
        console.print(words, markup=False)


def _print_register(console: Console, found: Mapping[str, Any]) -> None:
    for release in found["releases"]:
        console.print(_render_line(release), markup=False)
    standing = found["standing"]
    text = f"{standing['charged']} releases under differential privacy, {standing['without_guarantee']} without."
    console.print(text, markup=False)


def _print_estate(console: Console, found: Mapping[str, Any]) -> None:
    for dataset in found["datasets"]:
        made = ", ".join(f"{count} {name}" for name, count in dataset["techniques"].items()) or "nothing released"
        console.print(f"{dataset['dataset']} ({dataset['policy']}): {made}", markup=False)
    for people in found["people"]:
        spent = ", ".join(f"{name} {value}" for name, value in people["spent"].items() if value != "0") or "nothing"
        where = f"{people['known_by']}: {', '.join(people['places'])}"
        text = f"{where}; spent on one person in all: {spent}; releases of rows: {people['rows_released']}"
        console.print(text, markup=False)
    for column, tables in found["key_columns"].items():
        console.print(f"releases of rows lean on '{column}': {', '.join(tables)}", markup=False)
    for words in (*found["findings"], *(f"not read: {each}" for each in found["unread"])):
        console.print(f"! {words}", markup=False)


def _render_line(release: Mapping[str, Any]) -> str:
    dp = release["epsilon"] is not None
    price = f"epsilon {release['epsilon']:g}, delta {release['delta']:g}" if dp else "no formal guarantee"
    return f"{release['date']}  {release['technique']}: {price}; {release['unit']}; {', '.join(release['tables'])}"


token_app = typer.Typer(no_args_is_help=True, help="Give out tokens, list them, revoke them. A token is shown once.")


@token_app.command(epilog="Example: deniable token new ana --purpose research --days 30 -p policy.yaml")
def new(
    name: Annotated[str, typer.Argument(help="Who will use it, as the policy names analysts.", show_default=False)],
    policy: PolicyOption = DEFAULT_POLICY,
    ledger: LedgerOption = None,
    role: Annotated[str, typer.Option(help="steward, analyst, auditor or respondent.")] = "analyst",
    purpose: Annotated[list[str] | None, typer.Option(help="A purpose it is good for; may be repeated.")] = None,
    days: Annotated[
        float | None, typer.Option(help="Days until it expires, at most 3,660. [default: 90]", show_default=False)
    ] = None,
    column: Annotated[str | None, typer.Option(help="Of a respondent: the column that tells people apart.")] = None,
    value: Annotated[str | None, typer.Option(help="Of a respondent: the person's value of that column.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Give out a token. It is printed once; only its hash is kept, and a keyed digest of the person it is for."""
    from deniable.curator.governance.steward import new_token

    subject = None if column is None or value is None else (column, value)
    done = new_token(policy, ledger, name, role, purpose, days, subject)
    emit(done.to_dict(), as_json, lambda console: _print_token(console, done))


@token_app.command(name="list", epilog="Example: deniable token list -p policy.yaml")
def list_(policy: PolicyOption = DEFAULT_POLICY, ledger: LedgerOption = None, as_json: JsonFlag = False) -> None:
    """List the tokens that were given out, with what they are good for."""
    from deniable.curator.governance.steward import list_tokens

    found = list_tokens(policy, ledger)
    emit([each.to_dict() for each in found], as_json, lambda console: _print_tokens(console, found))


@token_app.command(epilog="Example: deniable token revoke 3f9a1c22d07b -p policy.yaml")
def revoke(
    identity: TokenId, policy: PolicyOption = DEFAULT_POLICY, ledger: LedgerOption = None, as_json: JsonFlag = False
) -> None:
    """End a token at once."""
    from deniable.curator.governance.steward import revoke_token

    done = revoke_token(policy, ledger, identity)
    text = f"Token {identity} of {done.name} is revoked."
    emit(done.to_dict(), as_json, lambda console: console.print(text, markup=False))


@token_app.command(epilog="Example: deniable token pause 3f9a1c22d07b --reason 'half of the budget in an hour'")
def pause(
    identity: TokenId, reason: Reason, policy: PolicyOption = DEFAULT_POLICY, ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:  # fmt: skip
    """Hold a token up until it is resumed; whoever holds it is refused meanwhile."""
    from deniable.curator.governance.steward import pause_token

    done = pause_token(policy, ledger, identity, reason)
    text = f"Token {identity} of {done.name} is paused."
    emit(done.to_dict(), as_json, lambda console: console.print(text, markup=False))


@token_app.command(name="resume", epilog="Example: deniable token resume 3f9a1c22d07b --reason 'explained by phone'")
def resume_token(
    identity: TokenId, reason: Reason, policy: PolicyOption = DEFAULT_POLICY, ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:  # fmt: skip
    """Let a token count again that was paused."""
    from deniable.curator.governance.steward import pause_token

    done = pause_token(policy, ledger, identity, reason, resume=True)
    text = f"Token {identity} of {done.name} counts again."
    emit(done.to_dict(), as_json, lambda console: console.print(text, markup=False))


epoch_app = typer.Typer(
    no_args_is_help=True, help="Say when the data is new, and see whether it changed without notice."
)


@epoch_app.command(name="new", epilog="Example: deniable epoch new -p policy.yaml --reason 'load of November'")
def new_epoch(
    reason: Reason, policy: PolicyOption = DEFAULT_POLICY, ledger: LedgerOption = None, as_json: JsonFlag = False
) -> None:
    """Begin a new epoch: from now on equal questions are answered, and charged, anew. All askers see it at once."""
    from deniable.curator.governance.steward import new_epoch as workflow

    done = workflow(policy, ledger, reason)
    emit(done.to_dict(), as_json, lambda console: _print_epoch(console, done))


@epoch_app.command(name="show", epilog="Example: deniable epoch show -p policy.yaml")
def show_epoch(policy: PolicyOption = DEFAULT_POLICY, ledger: LedgerOption = None, as_json: JsonFlag = False) -> None:
    """Show the epoch, and which private sources changed inside it. That is for the steward: askers see the epoch."""
    from deniable.curator.governance.steward import show_epoch as workflow

    found = workflow(policy, ledger)
    emit(found.to_dict(), as_json, lambda console: _print_epoch(console, found))


def _print_epoch(console: Console, found: Mapping[str, Any]) -> None:
    console.print(f"epoch     {found['epoch']}", markup=False)
    console.print(f"the next  {found['next']}", markup=False)
    if found["declared"]:
        console.print(f"declared  {found['declared']}: {found['reason']}", markup=False)
    for table in found["tables"]:
        console.print(f"source    {table['table']}: {table['source']}", markup=False)
    for warning in found["warnings"]:
        console.print(warning, markup=False)


def _print_token(console: Console, done: Mapping[str, Any]) -> None:
    console.print(done["token"], markup=False)
    purposes = "all purposes" if done["purposes"] is None else ", ".join(done["purposes"])
    text = f"Token {done['id']} for {done['role']} {done['name']}: {purposes}, until {done['expires']}."
    console.print(text + " It is not shown again.", markup=False)


def _print_tokens(console: Console, found: Sequence[Mapping[str, Any]]) -> None:
    for token in found:
        ends = f"paused {token['paused']}" if token.get("paused") else f"until {token['expires']}"
        state = f"revoked {token['revoked']}" if token["revoked"] else ends
        purposes = "all purposes" if token["purposes"] is None else ", ".join(token["purposes"])
        console.print(f"{token['id']}  {token['role']} {token['name']}: {purposes}; {state}", markup=False)
    if not found:
        console.print("No token was given out.")


SERVE_EXAMPLES = """\b
Examples:
  deniable serve policy.yaml
  deniable serve policy.yaml --port 9000 --postgres 0
  deniable serve policy.yaml --host 0.0.0.0 --certificate server.crt --key server.key --name data.clinic.example
"""


def serve(
    policy: Annotated[Path, typer.Argument(help="The policy file.", show_default=False)],
    ledger: Annotated[
        str | None,
        typer.Option(help="A SQLite file or a postgresql:// address.", show_default="beside the policy file"),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen on; others than loopback need TLS.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The analysts' HTTP port.", min=0, max=65535)] = 8400,
    steward: Annotated[
        str, typer.Option(help="The steward's own address and port, or the path of a Unix socket.")
    ] = "127.0.0.1:8401",
    postgres: Annotated[int, typer.Option(help="The PostgreSQL port; 0 for none.", min=0, max=65535)] = 5433,
    certificate: Annotated[Path | None, typer.Option(help="TLS certificate (PEM).", show_default=False)] = None,
    key: Annotated[Path | None, typer.Option(help="Its private key (PEM).", show_default=False)] = None,
    name: Annotated[
        list[str] | None, typer.Option(help="A host name by which clients reach the server.", show_default=False)
    ] = None,
    oidc: Annotated[
        Path | None,
        typer.Option(help="A file that describes an OpenID Connect issuer whose tokens count too.", show_default=False),
    ] = None,
    seconds: Annotated[float, typer.Option(help="The longest a question may take.", min=0.1)] = 30.0,
    rate: Annotated[float, typer.Option(help="Requests a second for one token.", min=0.1)] = 50.0,
    processes: Annotated[
        int,
        typer.Option(
            help="Processes that work questions out; the last takes costly ones. 0 for threads.", min=0, max=64
        ),
    ] = 2,
    proxy: Annotated[
        list[str] | None,
        typer.Option(help="The address of a proxy whose X-Forwarded-For is believed.", show_default=False),
    ] = None,
) -> None:
    """Serve a policy: tokens, budgets, HTTP, PostgreSQL and the ledger in one process. Stop with Ctrl-C."""
    from deniable.server.limits import Limits
    from deniable.server.serve import ServerOptions
    from deniable.server.serve import serve as served

    places = ServerOptions(host, port, steward, postgres or None, certificate, key, tuple(name or ()), oidc)
    limits = Limits(seconds=seconds, rate=rate, burst=4 * rate, processes=processes, proxies=tuple(proxy or ()))
    served(policy, ledger, places, limits)


MCP_EXAMPLES = """\b
Examples:
  deniable token new assistant --purpose research -p policy.yaml
  DENIABLE_TOKEN=... deniable mcp policy.yaml

\b
A running `deniable serve` offers the same at http://127.0.0.1:8400/mcp, where every request brings its token:
that is the way for an assistant on another machine than the data.
"""


def mcp(
    policy: Annotated[Path, typer.Argument(help="The policy file.", show_default=False)],
    ledger: Annotated[
        str | None,
        typer.Option(help="A SQLite file or a postgresql:// address.", show_default="beside the policy file"),
    ] = None,
    seconds: Annotated[float, typer.Option(help="The longest a question may take.", min=0.1)] = 30.0,
) -> None:
    """Let an AI assistant ask over the Model Context Protocol, through standard input and output.

    The token in the environment variable DENIABLE_TOKEN says who asks, for which purposes and within which budget.
    """
    import os

    from deniable.errors import ParameterError
    from deniable.server.limits import Limits
    from deniable.server.serve import run, serve_agent

    token = os.environ.get("DENIABLE_TOKEN", "").strip()
    if not token:
        raise ParameterError(
            "there is no token", expected="The environment variable DENIABLE_TOKEN",
            remedy="Give one out: deniable token new NAME --purpose PURPOSE",
        )  # fmt: skip
    run(serve_agent(policy, ledger, token, Limits(seconds=seconds)))
