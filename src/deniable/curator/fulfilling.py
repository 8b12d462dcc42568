"""Fulfilling an approved request: the release is made as it was approved, and the request is closed with its id."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.offices import ledger_of, office
from deniable.governance.grants import Asker, Role

if TYPE_CHECKING:
    from deniable.governance.requests import Request

Deed = Callable[[Path, str, "Request", Path, Sequence[str]], None]


def fulfill(policy: Path, ledger: str | None, identity: str, out: Path, keys: Sequence[str] = ()) -> dict[str, Any]:
    """Make the release of an approved request into a folder; each table is one Parquet file there."""
    from deniable.curator import governing
    from deniable.curator.telling import RELEASES
    from deniable.storage import storage_errors

    with office(policy, ledger) as curator:
        request, before = governing.approved(curator, identity), curator.ledger.store.last()
    with storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    DEEDS[request.technique](policy, ledger_of(policy, ledger), request, out, keys)
    with office(policy, ledger) as curator:
        made = [e for e in curator.ledger.entries(before, RELEASES) if set(e.tables) <= set(request.tables)]
        return governing.fulfilled(curator, identity, made[-1].release).as_dict()


def _mask(policy: Path, ledger: str, request: Request, out: Path, keys: Sequence[str]) -> None:
    from deniable.curator.masking import Request as Masking
    from deniable.curator.masking import mask

    mask(Masking(policy, {name: out / f"{name}.parquet" for name in request.tables}, keys=keys, ledger=ledger))


def _anonymize(policy: Path, ledger: str, request: Request, out: Path, keys: Sequence[str]) -> None:  # noqa: ARG001
    from deniable.curator.anonymize_order import Order
    from deniable.curator.anonymizing import anonymize

    for name in request.tables:
        anonymize(Order(None, out / f"{name}.parquet", policy, name, ledger=ledger))


def _synthesize(policy: Path, ledger: str, request: Request, out: Path, keys: Sequence[str]) -> None:  # noqa: ARG001
    from deniable.curator.hall import Curator
    from deniable.curator.synthesizing import Order, synthesize
    from deniable.policy.budget import budget

    asked, who = request.parameters, Asker(request.analyst, request.purpose, Role.ANALYST)
    amount = budget(asked.get("epsilon"), asked.get("delta", 0), asked.get("rho"))
    with Curator.open(policy, ledger=ledger) as curator:
        for name in request.tables:
            synthesize(curator, Order(name, amount), out / f"{name}.parquet", who=who)


DEEDS: dict[str, Deed] = {"mask": _mask, "anonymize": _anonymize, "synthesize": _synthesize}
