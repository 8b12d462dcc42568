"""Fulfilling an approved request: the release is made as it was approved, and the request is closed with its id."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deniable.curator.charge import recall_charges
from deniable.curator.context import Context
from deniable.curator.governance import requests
from deniable.curator.governance.reports import RELEASES
from deniable.curator.governance.steward import open_policy
from deniable.errors import CHARGED, AccessRefused, BudgetExceeded, DeniableError
from deniable.governance.grants import Asker, Role
from deniable.governance.requests import Status
from deniable.policy.document import read
from deniable.release import verify

if TYPE_CHECKING:
    from deniable.curator.synthesize.run import Order as SynthesisOrder
    from deniable.governance.requests import Request
    from deniable.ledger import Entry

Fulfillment = Callable[[Context, Path, "Request", Path, Sequence[str]], None]
FOLDER = "fulfilled into"
"""Where it is noted into which folder a request is made, before anything is measured: there is one."""


def fulfill(
    policy: Path, ledger: str | None, identity: str, out: Path, keys: Sequence[str] = ()
) -> requests.RequestReport:
    """Make the release of an approved request into a folder, as it was approved; each table is one Parquet file there.

    What fails may be tried again: a table that was charged is not charged again, and one that was written is kept. So
    may a synthetic release whose folder was deleted: the same rows are made again from what was measured.
    """
    from deniable.storage import storage_errors

    with open_policy(policy, ledger) as context, _recall_tries(context, identity):
        again = _is_deleted(context, identity, out)
        request = requests.find_approved(context, identity, again=again)
    asker = Asker(request.analyst, request.purpose, Role.ANALYST)
    with open_policy(policy, ledger, asker) as context, _recall_tries(context, identity):
        requests.check_request(context, request.technique, request.tables, request.parameters)
        _refuse_overspending(context, request)
        with _hold_folder(out, f"request '{identity}'"):
            requests.find_approved(context, identity, again=again)  # another process may have made it meanwhile
            _claim_folder(context, request, out)
            with _tell_charges(context, request), storage_errors(out):
                FULFILLMENTS[request.technique](context, policy, request, out, keys)
                return _close_request(policy, ledger, request, again=again)  # in the lock: nobody else makes it again


def _close_request(policy: Path, ledger: str | None, request: Request, *, again: bool) -> requests.RequestReport:
    with open_policy(policy, ledger) as context:
        if again:
            return requests.report_request(requests.find_request(context, request.id))
        made = [entry.release for entry in _find_releases(context, request).values()]
        return requests.report_request(requests.mark_fulfilled(context, request.id, *made))


@contextmanager
def _hold_folder(out: Path, what: str) -> Iterator[None]:
    """Make a folder and hold its lock; what is refused leaves no folder behind that was not there."""
    from deniable.storage import LOCK, lock_folder, storage_errors

    made = not out.exists()
    with storage_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    try:
        with lock_folder(out, what):
            try:
                yield
            except BaseException:
                with suppress(OSError):
                    if [each.name for each in out.iterdir()] == [LOCK]:
                        (out / LOCK).unlink()
                raise
    except BaseException:
        with suppress(OSError):
            if made:
                out.rmdir()  # only if it is empty
        raise


def _is_deleted(context: Context, identity: str, out: Path) -> bool:
    """Whether a synthetic release was made into this very folder, and a file of it is gone.

    Masked and k-anonymous rows are read anew from the data, which may have changed: those are another release.
    """
    request = requests.find_request(context, identity)
    if request.status is not Status.RELEASED or request.technique != "synthesize":
        return False
    folder = context.store.find(FOLDER, _name_try(request))
    here = folder is not None and folder.decode() == str(out.resolve())
    return here and not all((out / f"{name}.parquet").is_file() for name in request.tables)


def _claim_folder(context: Context, request: Request, out: Path) -> None:
    """Refuse a second folder: of what is made under one charge there is one."""
    mine, name = str(out.resolve()), _name_try(request)
    first = context.store.keep(FOLDER, name, name, mine.encode()).decode()
    if first != mine:
        raise AccessRefused(
            f"request '{request.id}' was begun in another folder",
            expected=f"It is made once, in '{first}'",
            remedy="Name that folder with --out",
        )


@contextmanager
def _tell_charges(context: Context, request: Request) -> Iterator[None]:
    """Let a refusal say that tables which were made before it are charged."""
    before = len(_find_releases(context, request))
    try:
        yield
    except DeniableError as refusal:
        made = list(_find_releases(context, request).values())[before:]
        if any(entry.act == "charge" for entry in made):
            refusal.charged = CHARGED
            refusal.args = (refusal.message,)
        raise


@contextmanager
def _recall_tries(context: Context, identity: str) -> Iterator[None]:
    """Let a refusal say what earlier tries of a request charged."""
    request = context.state.requests().get(identity)
    if request is None:
        yield
        return
    with recall_charges(context, *_name_tries(request), analyst=request.analyst):
        yield


def _name_tries(request: Request) -> tuple[str, ...]:
    return (_name_try(request), *(_name_try(request, table) for table in request.tables))


def _name_try(request: Request, table: str = "") -> str:
    """The request id under which a release is charged or recorded, so that a second try is known as the same."""
    return f"fulfill {request.id} {table}".rstrip()


def _find_releases(context: Context, request: Request) -> dict[str, Entry]:
    """What the ledger holds of this very request, by the name of the try."""
    names = _name_tries(request)
    return {entry.request: entry for entry in context.ledger.entries(acts=RELEASES) if entry.request in names}


def _refuse_overspending(context: Context, request: Request) -> None:
    """Refuse before the first charge if the charges of all tables together do not fit."""
    from deniable.curator.synthesize.run import plan_description
    from deniable.dp.accounting import ComposedEvent

    if request.technique != "synthesize":
        return
    charged, orders = _find_releases(context, request), _synthetic_orders(context, request)
    jobs = [plan_description(context, order)[2] for order in orders if order.identity not in charged]
    events = tuple(job.event for job in jobs if job.event is not None)
    if events and context.ledger.fits(ComposedEvent(events), *context.path) == 0:
        raise BudgetExceeded(
            f"the {len(events)} tables of request '{request.id}' do not fit in what is left",
            expected=f"They cost {', '.join(f'{name} {amount}' for name, amount in request.cost.items())} in all",
            remedy="Decline it, or raise the budget in the policy",
        )


def _synthetic_orders(context: Context, request: Request) -> list[SynthesisOrder]:
    orders = requests.synthetic_orders(context, request.tables, request.parameters)
    return [replace(order, identity=_name_try(request, order.table)) for order in orders]


def _is_made(request: Request, table: str, file: Path) -> bool:
    """Whether a table was written by an earlier try, into this folder, and is still there."""
    return file.is_file() and _read_parameters(file).get("request") == _name_try(request, table)


def _read_parameters(file: Path) -> Mapping[str, Any]:
    """How a released file was made; nothing where it was changed, or a killed try left it without a statement."""
    try:
        parameters: Mapping[str, Any] = verify(file).body["provenance"]["parameters"]
    except DeniableError:
        return {}
    return parameters


FULFILLING = "fulfilling"
"""Where servers note that they have begun to make a release, so that only one of them does."""


def releases_of(policy: Path) -> Path:
    """Where a server keeps the releases that it made: a folder beside the policy, one folder in it a request."""
    return policy.with_suffix(".releases")


def refuse_changed_file(policy: Path, served: str) -> None:
    """Refuse to approve while the policy's file is another policy than the one that is served: none could be made."""
    if read(policy).hash != served:
        raise AccessRefused(
            "the policy's file was changed after the server was started",
            expected="The policy under which a request is approved is the one by which it is made",
            remedy="Start the server again, and approve it then; or put the file back as it was",
        )


def fulfill_once(policy: Path, ledger: str, identity: str, *, again: bool = False) -> bool:
    """Make an approved release where a server keeps them, unless one has begun to; whether it was made here.

    With `again` it is made although one had begun: the steward saw that it failed. Two at once are told apart by the
    lock on the folder.
    """
    from deniable.storage import storage_errors

    me = secrets.token_bytes(16)
    with open_policy(policy, ledger) as context:
        if requests.find_request(context, identity).status is Status.PENDING:
            return False  # one steward approved, and another one must
        if context.store.keep(FULFILLING, identity, identity, me) != me and not again:
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

    asked = request.parameters
    mask_tables(
        context,
        MaskRequest(
            policy,
            {name: out / f"{name}.parquet" for name in request.tables},
            mode=requests.read_mode(asked),
            keys=keys,
            columns=requests.columns_by_table(context, "mask", request.tables, asked),
            identity=_name_try(request),
        ),
    )


def _anonymize(context: Context, policy: Path, request: Request, out: Path, keys: Sequence[str]) -> None:  # noqa: ARG001
    from deniable.curator.anonymize.request import Order
    from deniable.curator.anonymize.run import anonymize_table

    asked = requests.read_demands(request.parameters)
    columns = requests.columns_by_table(context, "anonymize", request.tables, request.parameters)
    for name in request.tables:
        file, identity = out / f"{name}.parquet", _name_try(request, name)
        anonymize_table(
            context, Order(None, file, context.policy, name, asked=asked, columns=columns[name], identity=identity)
        )


def _synthesize(context: Context, policy: Path, request: Request, out: Path, keys: Sequence[str]) -> None:  # noqa: ARG001
    from deniable.curator.synthesize.run import synthesize

    for order in _synthetic_orders(context, request):
        file = out / f"{order.table}.parquet"
        if not _is_made(request, order.table, file):
            synthesize(context, order, file)


FULFILLMENTS: dict[str, Fulfillment] = {"mask": _mask, "anonymize": _anonymize, "synthesize": _synthesize}
