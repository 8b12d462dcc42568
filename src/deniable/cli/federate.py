"""`deniable federate`: sums and models over tables that stay with their owners; the server sees the sum alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from deniable.cli.terminal import JsonFlag, LedgerOption, emit, open_curator, open_errors
from deniable.outputs import claim_outputs
from deniable.storage import refuse_unwritable, write_whole

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    no_args_is_help=True, help="Learn from tables that stay with their owners: masked sums, shared noise."
)

SHOWN = 20


@app.command(
    epilog="Example: deniable federate plan visits -p policy.yaml --method means --clients 10 --epsilon 1 -o round.json"
)
def plan(
    table: Annotated[str, typer.Argument(help="The table's name in the policy.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the round (JSON).")],
    clients: Annotated[int, typer.Option(min=2, help="How many clients take part.")],
    policy: Annotated[Path, typer.Option("--policy", "-p", help="The policy file.")] = Path("policy.yaml"),
    method: Annotated[str, typer.Option(help="means, histogram, linear, bayes or pca.")] = "means",
    target: Annotated[str | None, typer.Option(help="The column to predict, for linear and bayes.")] = None,
    features: Annotated[
        str | None, typer.Option(help="Columns, separated by commas. [default: all usable ones]")
    ] = None,
    epsilon: Annotated[str | None, typer.Option(help="Epsilon that each client spends, such as 1.")] = None,
    delta: Annotated[str | None, typer.Option(help="Delta that each client spends. [default: 1e-6]")] = None,
    rho: Annotated[str | None, typer.Option(help="Zero-concentrated budget, instead of epsilon.")] = None,
    least: Annotated[
        int | None, typer.Option(min=2, help="The fewest clients in a sum; the noise is for these. [default: 90%]")
    ] = None,
    colluding: Annotated[
        int, typer.Option(min=0, help="So many clients may tell the server their noise; the others add more.")
    ] = 0,
    count: Annotated[int | None, typer.Option(min=1, help="How many components, for pca. [default: 2]")] = None,
    ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Write down a round: columns, method, budget and clients. No row is read and nothing is charged."""
    from deniable.curator import federate
    from deniable.learn.federated import round_to_plain

    refuse_unwritable(out)
    chosen = [name.strip() for name in features.split(",")] if features else None
    with open_curator(policy, ledger, charges=False) as curator:
        made = federate.plan_round(
            curator.context, table, method, clients=clients, least=least, features=chosen, target=target,
            epsilon=epsilon, delta=delta, rho=rho, colluding=colluding, count=count,
        )  # fmt: skip
    write_whole(out, (json.dumps(round_to_plain(made), indent=1) + "\n").encode())
    found = federate.describe_round(made)
    told = (
        f"Wrote {out}: {found.method} of {', '.join(found.features)}, {found.numbers:,} numbers from each of "
        f"{found.clients} clients, at least {found.least} in the sum"
    )
    emit({"file": str(out), **found.to_dict()}, as_json, lambda console: console.print(told, markup=False))


@app.command(epilog="Example: deniable federate serve round.json --port 8790 -o result.json")
def serve(
    file: Annotated[Path, typer.Argument(help="The file of the round.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where to write the result (JSON): a model, or means.")],
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 is every network.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 is any free one.")] = 8790,
    patience: Annotated[float, typer.Option(help="Seconds after which a step goes on without those missing.")] = 60,
    as_json: JsonFlag = False,
) -> None:
    """Serve one round until its sum is there, and write what follows from it. The server sees no client's numbers."""
    from deniable.curator import federate
    from deniable.errors import DataError
    from deniable.server.federated import serve_round

    what = federate.read_round_file(file)
    console = open_errors()
    with claim_outputs(out, beside=[file]):
        state = serve_round(what, host, port, patience, lambda place: console.print(f"Serving the round at {place}"))
        if state.result is None:
            raise DataError(f"the round failed: {state.failure}", remedy="Serve it again, with a new plan")
        report = federate.write_result(what, state.result, out, sorted(state.left_out))
    emit({"file": str(out), **report.to_dict()}, as_json, lambda shown: _print_result(shown, out, report))


@app.command(epilog="Example: deniable federate join visits --server http://127.0.0.1:8790 -p policy.yaml")
def join(
    table: Annotated[str, typer.Argument(help="The table's name in this client's policy.")],
    server: Annotated[str, typer.Option(help="The address of the round's server.")],
    policy: Annotated[Path, typer.Option("--policy", "-p", help="This client's policy file.")] = Path("policy.yaml"),
    patience: Annotated[float, typer.Option(help="Seconds to wait for the round in all.")] = 120,
    ledger: LedgerOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Take part in a round with rows that stay here: charged to this client's ledger before they are read."""
    from deniable.curator import federate

    with open_curator(policy, ledger) as curator:
        found = federate.join_round(curator.context, table, server, patience=patience)
    told = f"Took part as client {found.place}; the sum has {found.clients} clients. Charged to this client's ledger."
    emit(found.to_dict(), as_json, lambda console: console.print("\n".join([told, *found.notes]), markup=False))


def _print_result(console: Console, out: Path, report: Mapping[str, Any]) -> None:
    rows = f"about {report['estimated_rows']:,} rows (a noisy count)"
    console.print(f"Wrote {out}: {report['method']} of {report['clients']} clients, {rows}", markup=False)
    if "left_out" in report:
        console.print(f"Left out, since their seeds did not agree with those of others: {report['left_out']}")
    listed = report.get("means") or report.get("coefficients") or []
    for each in listed[:SHOWN]:
        name, value, error = (each.get(word) for word in _name_fields(each))
        shown = "" if error is None else f" ± {error:.2g}"
        console.print(f"  {name:40s} {value:,.4g}{shown}", markup=False)
    if len(listed) > SHOWN:
        console.print(f"  ... and {len(listed) - SHOWN} more in the file")


def _name_fields(each: Mapping[str, Any]) -> tuple[str, str, str]:
    return ("entry", "mean", "error") if "entry" in each else ("feature", "coefficient", "error")
