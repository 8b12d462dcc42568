"""Fulfilling an approved request: the release is made as it was approved, and the request is closed with its id."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from deniable.curator.context import Context
from deniable.curator.governance import requests
from deniable.curator.governance.reports import RELEASES
from deniable.curator.governance.steward import open_policy
from deniable.errors import AccessRefused
from deniable.governance.grants import Asker, Role
from deniable.governance.requests import Status

if TYPE_CHECKING:
    from deniable.governance.requests import Request

Fulfillment = Callable[[Context, Path, "Request", Path, Sequence[str]], None]


def fulfill(
    policy: Path, ledger: str | None, identity: str, out: Path, keys: Sequence[str] = ()
) -> requests.RequestReport:
    """Make the release of an approved request into a folder; each table is one Parquet file there."""
    from deniable.release import Technique
    from deniable.storage import storage_errors

    with open_policy(policy, ledger) as context:
        request, before = requests.find_approved(context, identity), context.ledger.store.last()
    with storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    asker = Asker(request.analyst, request.purpose, Role.ANALYST)
    with open_policy(policy, ledger, asker) as context:
        FULFILLMENTS[request.technique](context, policy, request, out, keys)
    with open_policy(policy, ledger) as context:
        # Analysts may ask about the same tables meanwhile; their answers are not this release.
        new = [e for e in context.ledger.entries(before, RELEASES) if e.technique != Technique.DP_QUERY]
        made = [e for e in new if set(e.tables) <= set(request.tables)]
        return requests.report_request(requests.mark_fulfilled(context, identity, made[-1].release))


FULFILLING = "fulfilling"
"""Where servers note that they have begun to make a release, so that only one of them does."""


def releases_of(policy: Path) -> Path:
    """Where a server keeps the releases that it made: a folder beside the policy, one folder in it a request."""
    return policy.with_suffix(".releases")


def fulfill_once(policy: Path, ledger: str, identity: str) -> bool:
    """Make an approved release where a server keeps them, unless one has begun to; whether it was made here."""
    from deniable.storage import storage_errors

    me = secrets.token_bytes(16)
    with open_policy(policy, ledger) as context:
        if context.store.keep(FULFILLING, identity, identity, me) != me:
            return False
    folder = releases_of(policy)
    with storage_errors(folder):
        folder.mkdir(mode=0o700, exist_ok=True)
    fulfill(policy, ledger, identity, folder / identity)
    return True


def find_release_file(context: Context, policy: Path, analyst: str, identity: str, table: str) -> Path | None:
    """The file of a release for the one who requested it; None where there is none, or it is somebody else's."""
    request = context.state.requests().get(identity)
    if request is None or request.analyst != analyst or table not in request.tables:
        return None
    if request.status is not Status.RELEASED:
        raise AccessRefused(f"request '{identity}' is {request.status}", expected="It is made after the approval")
    file = releases_of(policy) / request.id / f"{table}.parquet"
    return file if file.is_file() else None


def forget_releases(policy: Path) -> int:
    """Remove the releases that a server kept, once the policy's term is over; says how many there were."""
    folder = releases_of(policy)
    kept = list(folder.iterdir()) if folder.is_dir() else []
    shutil.rmtree(folder, ignore_errors=True)
    return len(kept)


def _mask(context: Context, policy: Path, request: Request, out: Path, keys: Sequence[str]) -> None:
    from deniable.curator.mask.run import Request as MaskRequest
    from deniable.curator.mask.run import mask_tables

    mask_tables(context, MaskRequest(policy, {name: out / f"{name}.parquet" for name in request.tables}, keys=keys))


def _anonymize(context: Context, policy: Path, request: Request, out: Path, keys: Sequence[str]) -> None:  # noqa: ARG001
    from deniable.curator.anonymize.request import Order
    from deniable.curator.anonymize.run import anonymize_table

    for name in request.tables:
        anonymize_table(context, Order(None, out / f"{name}.parquet", context.policy, name))


def _synthesize(context: Context, policy: Path, request: Request, out: Path, keys: Sequence[str]) -> None:  # noqa: ARG001
    from deniable.curator.synthesize.run import Order, synthesize
    from deniable.policy.budget import budget

    asked = request.parameters
    amount = budget(asked.get("epsilon"), asked.get("delta", 0), asked.get("rho"))
    for name in request.tables:
        synthesize(context, Order(name, amount), out / f"{name}.parquet")


FULFILLMENTS: dict[str, Fulfillment] = {"mask": _mask, "anonymize": _anonymize, "synthesize": _synthesize}
