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
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Any

from deniable.curator.charge import Job, run_job, still_charged
from deniable.curator.context import Context
from deniable.curator.scope import SAMPLE_KEYS, refuse_twice
from deniable.curator.train import budget_of
from deniable.errors import AccessRefused, DataError, ParameterError
from deniable.policy.budget import Amount
from deniable.policy.schema import PrivacyUnit, TableSchema
from deniable.release.record import Record, SparseRecord

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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


def join_round(context: Context, table: str, server: str, *, patience: float = 120.0) -> Joined:
    """Take part in the round of a server with one table: charged before its rows are read."""
    from deniable.learn.federated import check_table, read_round
    from deniable.learn.secure_sum import SumClient

    line = _Line(server, time.monotonic() + patience)
    what = read_round(line.reach("/round", time.monotonic() + patience / 4))
    context.admit()
    declared = context.scope.private_table(table)
    check_table(what, declared, declared.unit or PrivacyUnit())
    probe = SumClient(what.terms, 1)  # the place is told after the key was sent
    given = json.loads(line.ask("POST", "/join", probe.key))
    line.ticket, probe.place = str(given["ticket"]), int(given["place"])
    told = line.wait("shares")
    _refuse_second_place(context, told["keys"].values())
    dealt = probe.deal({int(place): b64decode(key) for place, key in told["keys"].items()})
    line.ask("POST", "/shares", json.dumps(_pack_dealt(dealt)).encode())
    told = line.wait("vectors")
    boxes = {int(place): b64decode(box) for place, box in told.get("boxes", {}).items()}
    hashes = {int(place): (b64decode(a), b64decode(b)) for place, (a, b) in told.get("hashes", {}).items()}
    probe.receive(boxes, hashes)
    vector = _measure_vector(context, what, declared)
    with still_charged():
        line.ask("POST", "/vectors", probe.mask(vector))
        told = line.wait("opening")
        shares = {str(place): _pack(share) for place, share in probe.open(told["answered"]).items()}
        line.ask("POST", "/opening", json.dumps(shares).encode())
        return Joined(what.name, probe.place, int(line.wait("done")["clients"]))


def _refuse_second_place(context: Context, keys: Iterable[str]) -> None:
    """A ledger's people are in a round once. The keys of its clients, which are drawn anew, tell the round."""
    named, mine = f"round {sha256(' '.join(sorted(keys)).encode()).hexdigest()}", token_bytes(16)
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
                told = json.loads(refusal.read(MOST_BYTES) or b"{}")
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
            told: dict[str, Any] = json.loads(self.ask("GET", "/step"))
            if told.get("failure"):
                raise DataError(f"the round failed: {told['failure']}", remedy="Join another round")
            if told["step"] == step:
                return told
            if time.monotonic() > self.until:
                raise DataError(f"the round did not reach the step '{step}' in time", remedy="Join another round")
            time.sleep(PAUSE)
