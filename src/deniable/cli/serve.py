"""`deniable serve`: one command opens a policy to analysts, over HTTP and to every PostgreSQL client."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLES = """\b
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
        int, typer.Option(help="Processes that work questions out, one for each core; 0 for threads.", min=0, max=64)
    ] = 0,
) -> None:
    """Serve a policy: tokens, budgets, HTTP, PostgreSQL and the ledger in one process. Stop with Ctrl-C."""
    from deniable.server.limits import Limits
    from deniable.server.serve import ServerOptions
    from deniable.server.serve import serve as served

    places = ServerOptions(host, port, steward, postgres or None, certificate, key, tuple(name or ()), oidc)
    served(policy, ledger, places, Limits(seconds=seconds, rate=rate, burst=4 * rate, processes=processes))
