"""What the governing commands share: the policy and the ledger they speak of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PolicyFile = Annotated[Path, typer.Option("--policy", "-p", help="The policy file.")]
LedgerPlace = Annotated[
    str | None,
    typer.Option(
        "--ledger",
        envvar="DENIABLE_LEDGER",
        help="The ledger: a file or a postgresql:// address. [default: POLICY.ledger.sqlite beside the policy]",
        show_default=False,
    ),
]
DEFAULT_POLICY = Path("policy.yaml")
