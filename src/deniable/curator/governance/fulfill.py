"""Fulfilling an approved request: the release is made as it was approved, and the request is closed with its id."""

from __future__ import annotations

import re
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from deniable.curator.charge import recall_charges
from deniable.curator.context import Context, ledger_of
from deniable.curator.governance import requests
from deniable.curator.governance.reports import FOLDER, PUBLISHED, RELEASES, find_failures, list_folders
from deniable.curator.governance.steward import open_policy
from deniable.errors import CHARGED, AccessRefused, BudgetExceeded, DataError, DeniableError
from deniable.governance.grants import Asker, Role
from deniable.governance.requests import Status
from deniable.policy.document import read
from deniable.policy.schema import holds_secret
from deniable.release import verify

if TYPE_CHECKING:
    from deniable.curator.synthesize.run import Order as SynthesisOrder
    from deniable.governance.requests import Request
    from deniable.ledger import Entry

Fulfillment = Callable[[Context, Path, "Request", Path, Sequence[str]], None]


def fulfill(
    policy: Path, ledger: str | None, identity: str, out: Path, keys: Sequence[str] = (), *, take_over: bool = False
) -> requests.RequestReport:
    """Make the release of an approved request into a folder, as it was approved; each table is one Parquet file there.

    What fails may be tried again: a table that was charged is not charged again, and one that was written is kept. So
    may a synthetic release whose folder was deleted: the same rows are made again from what was measured. What was
    begun in another folder is made there, unless the steward says that it is to be taken over from there.
    """
    from deniable.storage import storage_errors

    with open_policy(policy, ledger) as context, _recall_tries(context, identity):
        again = _is_deleted(context, identity, out)
        request = requests.find_approved(context, identity, again=again)
    asker = Asker(request.analyst, request.purpose, Role.ANALYST)
    with open_policy(policy, ledger, asker) as context, _recall_tries(context, identity):
        requests.check_request(context, request.technique, request.tables, request.parameters)
        _refuse_overspending(context, request)
        with _hold_request(ledger_of(policy, ledger), request), _hold_folder(out, f"request '{identity}'"):
            requests.find_approved(context, identity, again=again)  # another process may have made it meanwhile
            _claim_folder(context, request, out, take_over=take_over)
            with _tell_charges(context, request), storage_errors(out):
                FULFILLMENTS[request.technique](context, policy, request, out, keys)
                return _close_request(policy, ledger, request, out, again=again)  # in the lock: nobody makes it again


def _close_request(
    policy: Path, ledger: str | None, request: Request, out: Path, *, again: bool
) -> requests.RequestReport:
    """Note that a request is fulfilled, and by which files: of those that several tries published only these count."""
    with open_policy(policy, ledger) as context:
        if again:
            return requests.report_request(requests.find_request(context, request.id))
        made = [entry.release for entry in _find_releases(context, request).values()]
        files = [verify(out / f"{table}.parquet").body["file"]["sha256"] for table in request.tables]
        return requests.report_request(requests.mark_fulfilled(context, request.id, *made, files=files))


@contextmanager
def _hold_request(ledger: str, request: Request) -> Iterator[None]:
    """Let one process at a time make a request, also of several hosts over one database, which share no disk."""
    if not ledger.startswith("postgres"):
        yield
        return
    from deniable.ledger.postgres import hold_name
    from deniable.storage import Locked

    with hold_name(ledger, f"request {request.id}") as held:
        if not held:
            raise Locked(f"another process works on request '{request.id}'", remedy="Wait for it to end")
        yield


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
    files = [out / f"{name}.parquet" for name in request.tables]
    return _find_folder(context, request) == out.resolve() and not all(file.is_file() for file in files)


def _claim_folder(context: Context, request: Request, out: Path, *, take_over: bool) -> None:
    """Refuse a second folder: of what is made under one charge there is one, until it is taken over."""
    mine, name = str(out.resolve()), _name_try(request)
    last = str(_find_folder(context, request) or context.store.keep(FOLDER, name, name, mine.encode()).decode())
    if last == mine:
        return
    if not take_over:
        raise AccessRefused(
            f"request '{request.id}' was begun in another folder",
            expected=f"It is made once, in '{last}'",
            remedy="Name that folder with --out; if it is gone, or its server does not come back, say --take-over",
        )
    later = f"{name} {time.time_ns():020d}"
    context.store.keep(FOLDER, later, later, mine.encode())


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


def releases_of(policy: Path) -> Path:
    """Where a server keeps the releases that it made: a folder beside the policy, one folder in it a request."""
    return policy.with_suffix(".releases")


def say_command(policy: Path, ledger: str, identity: str) -> str:
    """The command that makes a request where a server keeps its releases; without a password in an address."""
    words = ["deniable", "fulfill", identity, "-p", str(policy), "-o", str(releases_of(policy) / identity)]
    if ledger != ledger_of(policy, None):
        words += ["--ledger", _leave_out_passwords(ledger) if "://" in ledger else ledger]
    return shlex.join(words)


def _leave_out_passwords(address: str) -> str:
    """An address without the passwords before its host and among its options."""
    parts = urlsplit(address)
    options = [each for each in parts.query.split("&") if not holds_secret(each)]
    return parts._replace(netloc=re.sub(r":.*@", "@", parts.netloc), query="&".join(options)).geturl()


def refuse_changed_file(policy: Path, served: str) -> None:
    """Refuse to approve while the policy's file is another policy than the one that is served: none could be made."""
    if read(policy).hash != served:
        raise AccessRefused(
            "the policy's file was changed after the server was started",
            expected="The policy under which a request is approved is the one by which it is made",
            remedy="Start the server again, and approve it then; or put the file back as it was",
        )


def fulfill_once(policy: Path, ledger: str, identity: str, *, again: bool = False) -> bool:
    """Make an approved release where a server keeps them, unless another process makes it; whether it was made here.

    Of several servers one makes it: they are told apart by the folder that is noted first, and by the lock on it. With
    `again`, which is a steward's wish, it is taken over from another folder, and refused where a process has this one.
    """
    from deniable.storage import Locked, storage_errors

    folder = releases_of(policy)
    with open_policy(policy, ledger) as context, _recall_tries(context, identity):
        if not again and not _is_unmade(context, requests.find_request(context, identity), folder):
            return False
        with storage_errors(folder):
            folder.mkdir(mode=0o700, exist_ok=True)
    try:
        fulfill(policy, ledger, identity, folder / identity, take_over=again)
    except (AccessRefused, Locked) as refusal:
        with open_policy(policy, ledger) as context:
            ours = _is_unmade(context, requests.find_request(context, identity), folder)
        if again or (ours and not isinstance(refusal, Locked)):
            raise
        return False
    return True


def list_unmade(context: Context, policy: Path, *, failed: bool) -> list[str]:
    """The requests that a server was to make here and has not: it ended before, or, if wanted, they failed then."""
    left_out, elsewhere = {} if failed else find_failures(context), list_begun_elsewhere(context, policy)
    return [each.id for each in _list_waiting(context) if each.id not in left_out and each.id not in elsewhere]


def list_begun_elsewhere(context: Context, policy: Path) -> dict[str, str]:
    """The folders in which other servers began what they were to make and have not, by request."""
    folders, here = list_folders(context), releases_of(policy)
    known = {each.id: folders[each.id] for each in _list_waiting(context) if each.id in folders}
    return {name: place for name, place in known.items() if place != str((here / name).resolve())}


def _list_waiting(context: Context) -> list[Request]:
    """The requests that were approved at a server, and are not made yet."""
    return [each for each in context.state.requests().values() if each.by_server and each.status is Status.APPROVED]


def _is_unmade(context: Context, request: Request, folder: Path) -> bool:
    """Whether a request is approved, not made yet, and not begun outside of this folder."""
    begun = _find_folder(context, request)
    return request.status is Status.APPROVED and begun in (None, (folder / request.id).resolve())


def _find_folder(context: Context, request: Request) -> Path | None:
    """The folder in which a request was begun, or by which it was taken over."""
    noted = list_folders(context, request).get(request.id)
    return None if noted is None else Path(noted)


def find_release_file(context: Context, policy: Path, analyst: str, identity: str, table: str) -> Path | None:
    """The file of a release for the one who requested it; None where there is none, or it is somebody else's.

    It is in the folder in which the request was made, and is given away only as it was published.
    """
    request = context.state.requests().get(identity)
    if request is None or request.analyst != analyst or table not in request.tables:
        return None
    if request.status is not Status.RELEASED:
        with _recall_tries(context, identity):
            raise AccessRefused(
                f"request '{identity}' is {request.status}", expected="It is made after the approval",
                remedy="See how it stands: deniable requests",
            )  # fmt: skip
    folder = _find_folder(context, request) or releases_of(policy) / request.id
    if not _is_published(context, request, folder / f"{table}.parquet"):
        raise DataError(
            f"'{table}' of request '{identity}' was released, and this server does not have its file",
            expected="The file as it was released, in the folder in which it was made",
            remedy="Ask the steward for it, who made it by hand or moved it",
        )
    return folder / f"{table}.parquet"


def _is_published(context: Context, request: Request, file: Path) -> bool:
    """Whether a file is one that left with a request, unchanged, by the digests in the ledger."""
    made = request.release.split()
    left = set(request.files) or {
        str(each.details.get("file")) for each in context.ledger.entries(acts=PUBLISHED) if each.release in made
    }
    try:
        return verify(file).body["file"]["sha256"] in left
    except (DeniableError, OSError):
        return False


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
