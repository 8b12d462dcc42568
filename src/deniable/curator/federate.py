"""Federated rounds: plan one from a policy, and take part in one with rows that stay here.

A client charges its own ledger with the price of the whole round, for its own people, before it reads its rows: right
before its vector is sent, once enough others have dealt their shares. What leaves is masked; see
`learn/secure_sum.py` for what a server can learn.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from base64 import b64decode, b64encode
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Any

from deniable.curator.charge import Job, run_job, still_charged
from deniable.curator.context import Context
from deniable.curator.scope import SAMPLE_KEYS, refuse_twice
from deniable.curator.sources import note_rows_out, refuse_rows_here
from deniable.curator.train import budget_of
from deniable.errors import AccessRefused, DataError, ParameterError
from deniable.outputs import replace_files
from deniable.policy.budget import Amount
from deniable.policy.schema import PrivacyUnit, TableSchema
from deniable.release.record import Record, SparseRecord
from deniable.storage import write_whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from deniable.engines.base import Engine
    from deniable.learn.federated import Round, RoundResult

PAUSE = 0.2
"""Seconds between two questions for the step of the round."""
MOST_BYTES = 1 << 26
"""The largest answer that is read from a server."""


@dataclass(frozen=True, slots=True, eq=False)
class PlannedRound(Record):
    """What a round will be: public."""

    method: str
    table: str
    features: list[str]
    clients: int
    least: int
    numbers: int
    """How many numbers each client sends."""
    noise: float
    """The deviation of the noise in the sum of the fewest clients, in units of the method."""


@dataclass(frozen=True, slots=True, eq=False)
class Joined(Record):
    """What a client did in a round."""

    round: str
    place: int
    clients: int
    """How many clients' vectors are in the sum."""
    notes: list[str] = field(default_factory=list)
    """What there is to know of how the vector was made, such as that rows were brought here."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RoundReport(SparseRecord):
    """What a round tells: how many clients, about how many rows, and means or coefficients with their errors."""

    method: str
    clients: int
    estimated_rows: int
    means: list[dict[str, Any]] | None = None
    coefficients: list[dict[str, Any]] | None = None
    left_out: list[int] | None = None


def plan_round(
    context: Context,
    table: str,
    method: str,
    *,
    clients: int,
    least: int | None = None,
    features: Sequence[str] | None = None,
    target: str | None = None,
    epsilon: Amount | None = None,
    delta: Amount | None = None,
    rho: Amount | None = None,
    colluding: int = 0,
    count: int | None = None,
) -> Round:
    """A round over tables that are declared as this one; nothing is charged and no row is read."""
    from deniable.learn.federated import plan_round as plan

    context.admit()
    refuse_twice(features or ())
    declared = context.scope.private_table(table)
    fewest = max(2 * clients // 3 + 1, (9 * clients + 9) // 10) if least is None else least
    return plan(
        declared, declared.unit or PrivacyUnit(), method, budget_of(epsilon, delta, rho), clients=clients, least=fewest,
        features=None if features is None else tuple(features), target=target, colluding=colluding, count=count,
    )  # fmt: skip


def describe_round(what: Round) -> PlannedRound:
    """A round in numbers."""
    plan = what.plan
    noise = float(what.event.variance) ** 0.5 / what.scale
    return PlannedRound(
        what.method, what.table, [each.name for each in plan.design.features], what.clients, what.least,
        what.terms.length, noise,
    )  # fmt: skip


def read_round_file(path: Path) -> Round:
    """The round of a file."""
    from deniable.learn.federated import read_round

    try:
        return read_round(path.read_bytes())
    except OSError:
        raise DataError(f"'{path.name}' cannot be read", remedy="Name the file of a round") from None


def describe_result(what: Round, result: RoundResult, left_out: Sequence[int] = ()) -> RoundReport:
    """The result of a round, as it is printed and written."""
    means = [{"entry": each.entry, "mean": each.mean, "error": each.error} for each in result.means]
    model = result.model
    return RoundReport(
        method=what.method, clients=result.clients, estimated_rows=round(result.rows), means=means or None,
        coefficients=None if model is None else [each.to_dict() for each in model.coefficient_table()],
        left_out=sorted(left_out) or None,
    )  # fmt: skip


def write_result(what: Round, result: RoundResult, out: Path, left_out: Sequence[int] = ()) -> RoundReport:
    """Write a model, or means, with a statement of what is claimed of it, as of every release."""
    from deniable.learn.model import save_model
    from deniable.release import Provenance, seal

    report = describe_result(what, result, left_out)
    parameters = {name: getattr(what, name) for name in ("method", "table", "clients", "least", "colluding")}
    details = {"clients": result.clients, "left_out": sorted(left_out)}
    details |= {} if result.model is None else result.model.summarize()
    # Each client has a policy of its own, and read its own table: the server knows neither.
    with replace_files(out):
        if result.model is not None:
            save_model(result.model, out)
        else:
            write_whole(out, (json.dumps(report.to_dict(), indent=1) + "\n").encode())
        seal(out, what.guarantee, Provenance(None, {}, parameters | {"round": what.name}), details)
    return report


class RoundClient:
    """One client of a round, step by step, whatever carries its messages; `join_round` carries them over HTTP.

    What it answers is what the server takes in each step (`server/federated.py`). Nothing is charged and no row is read
    before the step of the vectors.
    """

    def __init__(self, context: Context, table: str, what: Round) -> None:
        """Refused where the table is not declared as the round has it."""
        from deniable.learn.federated import check_table
        from deniable.learn.secure_sum import SumClient

        context.admit()
        self._context, self._what = context, what
        self._table = context.scope.private_table(table)
        check_table(what, self._table, self._table.unit or PrivacyUnit())
        refuse_rows_here(self._table, context.scope.sources)
        self._sums = SumClient(what.terms, 1)  # the place is told after the key was sent

    @property
    def notes(self) -> list[str]:
        """What there is to know of how its vector is made, such as that rows are brought here."""
        return note_rows_out(self._table, self._context.scope.sources)

    @property
    def place(self) -> int:
        """The client's number in the round."""
        return self._sums.place

    @property
    def key(self) -> bytes:
        """The message of the first step."""
        return self._sums.key

    def answer(self, told: Mapping[str, Any]) -> bytes:
        """The message of a later step, from what the server told of it: shares, the masked vector, or an opening.

        Each step is answered once, which the ledger remembers, so that a client that starts again from an older state
        sends nothing twice.
        """
        steps = {"shares": self._deal, "vectors": self._mask, "opening": self._open}
        step = told.get("step") if hasattr(told, "get") else None
        if not isinstance(step, str) or step not in steps:
            with self._say_charged():
                raise DataError("the server's message is of no step that a client answers", expected=", ".join(steps))
        with self._say_charged():
            return steps[step](told)

    def _say_charged(self) -> AbstractContextManager[None]:
        """A refusal after the vector was charged does not say that nothing was."""
        return still_charged() if self._sums.sent else nullcontext()

    def _deal(self, told: Mapping[str, Any]) -> bytes:
        with _refuse_unreadable():
            keys = {int(place): b64decode(key, validate=True) for place, key in told["keys"].items()}
            place = int(told["place"])
        if keys.get(place) != self.key:
            raise DataError("the server's message has another key at this client's place")
        self._refuse_again("shares")
        _refuse_second_place(self._context, keys)
        self._sums.place = place
        with _refuse_unreadable():
            return json.dumps(_pack_dealt(self._sums.deal(keys))).encode()

    def _mask(self, told: Mapping[str, Any]) -> bytes:
        if self._sums.sent:
            self._refuse_again("vector")
        with _refuse_unreadable():
            boxes = {int(place): b64decode(box) for place, box in told.get("boxes", {}).items()}
            hashes = {int(place): (b64decode(a), b64decode(b)) for place, (a, b) in told.get("hashes", {}).items()}
            self._sums.receive(boxes, hashes)
        self._refuse_again("vector")
        vector = _measure_vector(self._context, self._what, self._table)
        with still_charged():
            return self._sums.mask(vector)

    def _open(self, told: Mapping[str, Any]) -> bytes:
        if not self._sums.sent:
            raise DataError("the server asks for an opening before this client has sent its vector")
        with still_charged():
            with _refuse_unreadable():
                came = [int(place) for place in told["answered"]]
            self._refuse_again("opening")
            return json.dumps({str(place): _pack(share) for place, share in self._sums.open(came).items()}).encode()

    def _refuse_again(self, step: str) -> None:
        """A second vector or opening would tell what one hides: the ledger keeps that a step was answered."""
        named, mine = f"{step} of {sha256(self.key).hexdigest()}", token_bytes(16)
        if self._context.store.keep(SAMPLE_KEYS, named, named, mine) != mine:
            raise AccessRefused(
                f"this client has answered the step of the {step} before, and does so once",
                remedy="Join another round", charge="What was charged for its vector, if it was sent, stays charged.",
            )  # fmt: skip

    def save(self) -> bytes:
        """Its state between two steps, for a program that ends in between. It is secret: it holds the masks."""
        return json.dumps({"round": _name_round(self._what), "sums": self._sums.save().decode()}).encode()

    def restore(self, saved: bytes) -> None:
        """Go on from what was saved last, in the same round; steps that were answered since are refused."""
        from deniable.learn.secure_sum import SumClient

        with _refuse_unreadable("the saved state of a client cannot be read"):
            held = json.loads(saved)
            if held["round"] != _name_round(self._what):
                raise DataError("the saved state is of another round", remedy="Join this round anew")
            self._sums = SumClient.restore(self._what.terms, held["sums"].encode())


def _name_round(what: Round) -> str:
    """A digest of all that a round is: its clients, least and noise too."""
    from deniable.learn.federated import round_to_plain

    return sha256(json.dumps(round_to_plain(what), sort_keys=True, default=str).encode()).hexdigest()


@contextmanager
def _refuse_unreadable(happened: str = "the server's message cannot be read") -> Iterator[None]:
    """Whatever is wrong with what came from elsewhere is a refusal."""
    try:
        yield
    except (KeyError, ValueError, TypeError, AttributeError, IndexError, RecursionError):
        raise DataError(happened, remedy="Join another round") from None


def _parse_answer(text: bytes, *needed: str) -> dict[str, Any]:
    """What a server says, which may not be ours."""
    with _refuse_unreadable("the server's answer cannot be read"):
        held: dict[str, Any] = json.loads(text)
        if not all(name in held.keys() for name in needed):  # noqa: SIM118  a list has no keys, and is refused
            raise ValueError
        return held


def join_round(context: Context, table: str, server: str, *, patience: float = 120.0) -> Joined:
    """Take part in the round of a server with one table: charged before its rows are read."""
    from deniable.learn.federated import read_round

    line = _Line(server, time.monotonic() + patience)
    what = read_round(line.reach("/round", time.monotonic() + patience / 4))
    client = RoundClient(context, table, what)
    line.ticket = str(_parse_answer(line.ask("POST", "/join", client.key), "ticket")["ticket"])
    line.ask("POST", "/shares", client.answer(line.wait("shares")))
    vector = client.answer(line.wait("vectors"))
    with still_charged():
        line.ask("POST", "/vectors", vector)
        line.ask("POST", "/opening", client.answer(line.wait("opening")))
        return Joined(what.name, client.place, int(line.wait("done")["clients"]), client.notes)


def _refuse_second_place(context: Context, keys: Mapping[int, bytes]) -> None:
    """A ledger's people are in a round once. The keys of its clients, which are drawn anew, tell the round."""
    named, mine = f"round {sha256(b''.join(sorted(keys.values()))).hexdigest()}", token_bytes(16)
    if context.store.keep(SAMPLE_KEYS, named, named, mine) != mine:
        raise AccessRefused(
            "the people of this ledger are in this round already: twice in one sum, they are protected half as well",
            expected="One client of a ledger in a round", remedy="Join another round",
        )  # fmt: skip


def _measure_vector(context: Context, what: Round, table: TableSchema) -> NDArray[np.int64]:
    """The client's noisy sums: charged, then read."""
    from deniable.learn.features import Structure
    from deniable.learn.federated import add_share
    from deniable.release import Technique
    from deniable.synth.describe import render_bounded_select

    assert table.unit is not None
    unit = table.unit
    target = () if what.target is None or isinstance(what.target, Structure) else (what.target.name,)
    columns = (*(each.name for each in what.design.features), *target)

    def measure(engine: Engine) -> NDArray[np.int64]:
        return add_share(what, engine.run(render_bounded_select(table, unit, unit.rows_learned, columns)))

    details = {"method": f"federated {what.method}", "clients": what.clients, "least": what.least}
    job = Job(
        Technique.DP_MODEL, f"federated round {what.name}", what.event, unit, (table.name,), measure, cost=what.budget,
        details=details,
    )  # fmt: skip
    found: NDArray[np.int64] = run_job(context, job).measured
    return found


def _pack(value: bytes) -> str:
    return b64encode(value).decode()


def _pack_dealt(dealt: Any) -> dict[str, Any]:
    return {
        "boxes": {str(place): _pack(box) for place, box in dealt.boxes.items()},
        "hashes": {str(place): [_pack(each) for each in pair] for place, pair in dealt.hashes.items()},
        "seeds": {str(place): _pack(seed) for place, seed in dealt.seeds.items()},
        "locked": _pack(dealt.locked),
        "own": [_pack(each) for each in dealt.own],
    }


@dataclass(slots=True, eq=False)
class _Line:
    """Requests to the server of a round."""

    server: str
    until: float
    ticket: str = ""

    def ask(self, verb: str, path: str, body: bytes | None = None) -> bytes:
        if not self.server.startswith(("http://", "https://")):
            raise ParameterError("the server is not an address", expected="http://host:port or https://host")
        wanted = urllib.request.Request(  # noqa: S310  the scheme was checked
            self.server.rstrip("/") + path, data=body, method=verb, headers={"ticket": self.ticket}
        )
        try:
            with urllib.request.urlopen(wanted, timeout=60) as answer:  # noqa: S310  the scheme was checked
                return bytes(answer.read(MOST_BYTES))
        except urllib.error.HTTPError as refusal:
            with refusal:
                told = _parse_answer(refusal.read(MOST_BYTES) or b"{}")
            raise DataError(f"the server refused: {told.get('error', 'no reason')}") from None
        except (OSError, ValueError):
            raise DataError(f"the server {self.server} did not answer", remedy="Check the address") from None

    def reach(self, path: str, until: float) -> bytes:
        """The first answer of a server, which may not have started yet."""
        while True:
            try:
                return self.ask("GET", path)
            except DataError:
                if time.monotonic() > until:
                    raise
            time.sleep(PAUSE)

    def wait(self, step: str) -> dict[str, Any]:
        """What is needed for a step, once the round is in it."""
        while True:
            told = _parse_answer(self.ask("GET", "/step"), "step")
            if told.get("failure"):
                raise DataError(f"the round failed: {told['failure']}", remedy="Join another round")
            if told["step"] == step:
                return told
            if time.monotonic() > self.until:
                raise DataError(f"the round did not reach the step '{step}' in time", remedy="Join another round")
            time.sleep(PAUSE)
