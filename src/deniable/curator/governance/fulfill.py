"""Fulfilling an approved request: the release is made as it was approved, and the request is closed with its id."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.governance.steward import ledger_of, open_curator
from deniable.errors import AccessRefused
from deniable.governance.grants import Asker, Role
from deniable.governance.requests import Status

if TYPE_CHECKING:
    from deniable.curator.curator import Curator
    from deniable.governance.requests import Request

Fulfillment = Callable[[Path, str, "Request", Path, Sequence[str]], None]


def fulfill(policy: Path, ledger: str | None, identity: str, out: Path, keys: Sequence[str] = ()) -> dict[str, Any]:
    """Make the release of an approved request into a folder; each table is one Parquet file there."""
    from deniable.curator.governance import requests
    from deniable.curator.governance.reports import RELEASES
    from deniable.release import Technique
    from deniable.storage import storage_errors

    with open_curator(policy, ledger) as curator:
        request, before = requests.find_approved(curator, identity), curator.ledger.store.last()
    with storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    FULFILLMENTS[request.technique](policy, ledger_of(policy, ledger), request, out, keys)
    with open_curator(policy, ledger) as curator:
        # Analysts may ask about the same tables meanwhile; their answers are not this release.
        new = [e for e in curator.ledger.entries(before, RELEASES) if e.technique != Technique.DP_QUERY]
        made = [e for e in new if set(e.tables) <= set(request.tables)]
        return requests.mark_fulfilled(curator, identity, made[-1].release).as_dict()


FULFILLING = "fulfilling"
"""Where servers note that they have begun to make a release, so that only one of them does."""


def releases_of(policy: Path) -> Path:
    """Where a server keeps the releases that it made: a folder beside the policy, one folder in it a request."""
    return policy.with_suffix(".releases")


def fulfill_once(policy: Path, ledger: str, identity: str) -> bool:
    """Make an approved release where a server keeps them, unless one has begun to; whether it was made here."""
    from deniable.storage import storage_errors

    me = secrets.token_bytes(16)
    with open_curator(policy, ledger) as curator:
        if curator.cabinet.keep(FULFILLING, identity, identity, me) != me:
            return False
    folder = releases_of(policy)
    with storage_errors(folder):
        folder.mkdir(mode=0o700, exist_ok=True)
    fulfill(policy, ledger, identity, folder / identity)
    return True


def find_release_file(curator: Curator, policy: Path, analyst: str, identity: str, table: str) -> Path | None:
    """The file of a release for the one who requested it; None where there is none, or it is somebody else's."""
    request = curator.governor.requests().get(identity)
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


def _mask(policy: Path, ledger: str, request: Request, out: Path, keys: Sequence[str]) -> None:
    from deniable.curator.mask.run import Request as Masking
    from deniable.curator.mask.run import mask

    mask(Masking(policy, {name: out / f"{name}.parquet" for name in request.tables}, keys=keys, ledger=ledger))


def _anonymize(policy: Path, ledger: str, request: Request, out: Path, keys: Sequence[str]) -> None:  # noqa: ARG001
    from deniable.curator.anonymize.request import Order
    from deniable.curator.anonymize.run import anonymize

    for name in request.tables:
        anonymize(Order(None, out / f"{name}.parquet", policy, name, ledger=ledger))


def _synthesize(policy: Path, ledger: str, request: Request, out: Path, keys: Sequence[str]) -> None:  # noqa: ARG001
    from deniable.curator.curator import Curator
    from deniable.curator.synthesize.run import Order, synthesize
    from deniable.policy.budget import budget

    asked, who = request.parameters, Asker(request.analyst, request.purpose, Role.ANALYST)
    amount = budget(asked.get("epsilon"), asked.get("delta", 0), asked.get("rho"))
    with Curator.open(policy, ledger=ledger) as curator:
        for name in request.tables:
            synthesize(curator, Order(name, amount), out / f"{name}.parquet", who=who)


FULFILLMENTS: dict[str, Fulfillment] = {"mask": _mask, "anonymize": _anonymize, "synthesize": _synthesize}
