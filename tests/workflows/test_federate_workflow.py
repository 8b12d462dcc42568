"""A federated round between processes, over HTTP: one drops out, the sum is there, every client is charged first."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from deniable import Curator, release
from deniable.curator import federate
from deniable.errors import AccessRefused, BudgetExceeded, DataError, PolicyError
from deniable.learn.federated import Round, conclude, read_round, round_to_plain
from deniable.learn.secure_sum import SumClient
from deniable.release.release import verify
from deniable.server.federated import FederatedServer, serve_round
from learning import people
from unit.test_curator_train import POLICY

CLIENTS = 4


def _clinic(folder: Path, seed: int, policy: str = POLICY) -> Path:
    folder.mkdir()
    pq.write_table(people(800, seed), folder / "visits.parquet")
    (folder / "towns.csv").write_text("town\nAda\n")
    (folder / "policy.yaml").write_text(policy)
    return folder / "policy.yaml"


@pytest.fixture
def clinics(tmp_path: Path) -> list[Path]:
    return [_clinic(tmp_path / f"clinic{seed}", seed) for seed in range(CLIENTS)]


def _plan(policy: Path, method: str = "means", **rest: Any) -> Round:
    with Curator.open(policy) as curator:
        return federate.plan_round(
            curator.context, "visits", method,
            **{"clients": CLIENTS, "least": 3, "features": ["age", "town"], "epsilon": 1, **rest},
        )  # fmt: skip


class Served:
    """A round that is served in a thread, while clients of this process or others take part."""

    def __init__(self, what: Round, patience: float = 30.0) -> None:
        self.address, self.state = "", FederatedServer(what)
        ready = threading.Event()

        def tell(address: str) -> None:
            self.address = address
            ready.set()

        def serve() -> None:
            self.state = serve_round(what, "127.0.0.1", 0, patience, tell)

        self.thread = threading.Thread(target=serve)
        self.thread.start()
        assert ready.wait(30)

    def finish(self) -> FederatedServer:
        self.thread.join(60)
        return self.state


def _join(policy: Path, address: str, told: list[Any]) -> threading.Thread:
    def run() -> None:
        try:
            with Curator.open(policy) as curator:
                told.append(federate.join_round(curator.context, "visits", address, patience=40))
        except Exception as failure:  # what a client saw is looked at by the test
            told.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def _entries(policy: Path) -> list[str]:
    with Curator.open(policy) as curator:
        return [str(each) for each in curator.ledger.entries() if "federated" in str(each)]


def test_four_processes_sum_and_each_is_charged_in_its_own_ledger(clinics: list[Path], tmp_path: Path) -> None:
    def start(*words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", "from deniable.cli.main import main; main()", "federate", *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path)

    words = ("--method", "linear", "--target", "charge", "--features", "age,town", "--clients", "4", "--epsilon", "1")
    planned = start("plan", "visits", "-p", str(clinics[0]), *words, "--least", "3", "-o", "round.json", "--json")
    out, error = planned.communicate(timeout=120)
    assert planned.returncode == 0, error
    assert json.loads(out)["clients"] == 4
    assert not _entries(clinics[0])
    server = start("serve", "round.json", "--port", "0", "-o", "model.json", "--json")
    assert server.stderr is not None
    address = server.stderr.readline().split()[-1]
    joined = [start("join", "visits", "--server", address, "-p", str(policy)) for policy in clinics]
    for client in joined:
        said, error = client.communicate(timeout=120)
        assert client.returncode == 0, error
        assert "the sum has 4 clients" in said
    told = json.loads(server.communicate(timeout=120)[0])
    assert told["clients"] == 4
    found = {each["feature"]: each for each in told["coefficients"]}
    assert abs(found["age"]["coefficient"] - 3) < 5 * found["age"]["error"]
    assert [len(_entries(policy)) for policy in clinics] == [1] * 4
    assert "linear" in (tmp_path / "model.json").read_text()
    statement = verify(tmp_path / "model.json")
    assert statement.body["guarantee"]["technique"] == "differentially private model"
    assert statement.body["provenance"]["parameters"]["least"] == 3
    assert statement.body["details"]["clients"] == 4


def test_a_client_that_leaves_after_dealing_is_not_in_the_sum_which_is_exact(
    clinics: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vectors that were sent are remembered before they are masked: their sum is what the server finds."""
    sent: list[np.ndarray] = []
    honest = SumClient.mask

    def spied(client: SumClient, vector: np.ndarray) -> bytes:
        if client.place == 2:
            raise DataError("this client left")
        sent.append(vector)
        return honest(client, vector)

    monkeypatch.setattr(SumClient, "mask", spied)
    what = _plan(clinics[0])
    served, told = Served(what, patience=8.0), []
    for thread in [_join(policy, served.address, told) for policy in clinics]:
        thread.join(60)
    state = served.finish()
    assert [str(each) for each in told if isinstance(each, Exception)] == [
        "this client left. The charge stands: the data had been touched."
    ]
    assert state.result is not None
    assert state.result.clients == 3
    assert (state.sums.total() == np.sum(sent, axis=0)).all()
    assert abs(state.result.rows - 2400) < 200


def test_the_people_of_a_ledger_are_in_a_round_once(clinics: list[Path]) -> None:
    what = _plan(clinics[0])
    served, told = Served(what, patience=8.0), []
    for thread in [_join(policy, served.address, told) for policy in (clinics[0], *clinics[:3])]:
        thread.join(60)
    state = served.finish()
    failures = [each for each in told if isinstance(each, Exception)]
    assert [type(each) for each in failures] == [AccessRefused]
    assert "in this round already" in str(failures[0])
    assert state.result is not None
    assert state.result.clients == 3
    with Curator.open(clinics[0]) as curator:
        assert len(list(curator.ledger.entries(acts=("charge",)))) == 1


def test_a_client_without_budget_sends_nothing_and_the_round_fails_for_want_of_clients(
    clinics: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poor = [_clinic(tmp_path / f"poor{seed}", seed, POLICY.replace("epsilon: 3,", "epsilon: 0.1,").replace(
        "research: {epsilon: 2}", "research: {epsilon: 0.1}").replace("epsilon: 1, columns", "epsilon: 0.1, columns"))
        for seed in range(2)]  # fmt: skip
    served, told = Served(_plan(clinics[0]), patience=8.0), []
    for thread in [_join(policy, served.address, told) for policy in (*poor, *clinics[:2])]:
        thread.join(60)
    state = served.finish()
    assert state.result is None
    assert "2 clients were left in the step 'vectors', and 3 are needed" in state.failure
    assert sorted(type(each).__name__ for each in told) == [
        "BudgetExceeded",
        "BudgetExceeded",
        "DataError",
        "DataError",
    ]
    assert [len(_entries(policy)) for policy in poor] == [0, 0]
    assert isinstance(next(each for each in told if isinstance(each, BudgetExceeded)), BudgetExceeded)


def test_a_policy_that_declares_otherwise_or_has_expired_takes_no_part(clinics: list[Path], tmp_path: Path) -> None:
    what = _plan(clinics[0])
    served = Served(what, patience=8.0)
    other = _clinic(tmp_path / "other", 9, POLICY.replace("between: [0, 100]", "between: [0, 120]"))
    late = _clinic(tmp_path / "late", 9, POLICY + "expires: 2020-01-01\n")
    for policy, kind in ((other, PolicyError), (late, AccessRefused)):
        told: list[Any] = []
        _join(policy, served.address, told).join(60)
        assert isinstance(told[0], kind)
        assert not _entries(policy)
    assert served.finish().result is None


def test_the_charge_is_written_before_rows_are_read_and_stands(
    clinics: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deniable.learn.federated.add_share", lambda *_: 1 / 0)
    served, told = Served(_plan(clinics[0]), patience=2.0), []
    for thread in [_join(policy, served.address, told) for policy in clinics]:
        thread.join(60)
    served.finish()
    assert {type(each).__name__ for each in told} == {"ExecutionFailed"}
    assert [len(_entries(policy)) for policy in clinics] == [1] * CLIENTS


def test_who_has_no_ticket_or_sends_nonsense_is_refused(clinics: list[Path]) -> None:
    state = FederatedServer(_plan(clinics[0]))
    with pytest.raises(DataError, match="ticket"):
        state.tell("none")
    given = state.join(SumClient(state.sums.terms, 1).key)
    with pytest.raises(DataError, match="the step 'keys'"):
        state.take(given["ticket"], "vectors", b"")
    for _ in range(CLIENTS - 1):
        state.join(SumClient(state.sums.terms, 1).key)
    assert state.step == "shares"
    with pytest.raises(DataError, match="the step 'shares'"):
        state.join(SumClient(state.sums.terms, 1).key)
    for alien in ("é", "\udce9", ""):
        with pytest.raises(DataError, match="ticket"):
            state.tell(alien)
    for nonsense in (b"", b"[]", b"{}", b'{"boxes": 1}', b"\xff", b"[" * 200_000):
        with pytest.raises(DataError, match="not one of this step"):
            state.take(given["ticket"], "shares", nonsense)


def _steps(what: Round, curators: list[Curator]) -> tuple[FederatedServer, list[federate.RoundClient], list[str]]:
    """Clients that have dealt their shares, step by step, in one process."""
    server = FederatedServer(what, 1000)
    clients = [federate.RoundClient(each.context, "visits", what) for each in curators]
    tickets = [server.join(each.key)["ticket"] for each in clients]
    dealt = [
        each.answer(json.loads(json.dumps(server.tell(ticket)))) for each, ticket in zip(clients, tickets, strict=True)
    ]
    for ticket, told in zip(tickets, dealt, strict=True):
        server.take(ticket, "shares", told)
    return server, clients, tickets


def test_a_client_that_starts_again_from_an_older_state_sends_and_charges_nothing_twice(clinics: list[Path]) -> None:
    """A second vector under one mask, or a second opening, would tell what one hides."""
    what = _plan(clinics[0])
    with ExitStack() as stack:
        curators = [stack.enter_context(Curator.open(each)) for each in clinics]
        server, clients, tickets = _steps(what, curators)
        asked = json.loads(json.dumps(server.tell(tickets[0])))
        before, me = clients[0].save(), curators[0].context
        clients[0].answer(asked)
        head, sent = curators[0].ledger.head(), clients[0].save()

        def again(state: bytes, told: Any, other: Round = what) -> None:
            client = federate.RoundClient(me, "visits", other)
            client.restore(state)
            client.answer(told)

        with pytest.raises(AccessRefused, match="step of the vector before"):
            again(before, asked)
        with pytest.raises(AccessRefused, match="step of the vector before"):
            clients[0].answer(asked)
        clients[0].answer({"step": "opening", "answered": [1, 2, 3]})
        with pytest.raises(AccessRefused, match="step of the opening before"):
            again(sent, {"step": "opening", "answered": [1, 2, 4]})
        fewer = read_round(json.dumps(round_to_plain(what) | {"clients": 2, "least": 2}))
        with pytest.raises(DataError, match="another round"):
            again(sent, {"step": "opening", "answered": [1, 2]}, fewer)
        assert curators[0].ledger.head() == head, "one charge"


@pytest.mark.parametrize(
    "told",
    [
        {}, {"step": "shares"}, {"step": "shares", "place": "x", "keys": {}}, {"step": "vectors", "boxes": [1]},
        {"step": "opening", "answered": [1, 2, 3]}, {"step": "done"}, None, [],
    ],
    ids=str,
)  # fmt: skip
def test_a_message_that_no_server_of_ours_sends_is_refused_and_nothing_is_charged(
    clinics: list[Path], told: Any
) -> None:
    what = _plan(clinics[0])
    with Curator.open(clinics[0]) as curator:
        client = federate.RoundClient(curator.context, "visits", what)
        with pytest.raises(DataError, match="Nothing was charged"):
            client.answer(told)
        with pytest.raises(DataError, match="saved state"):
            client.restore(b"{}")
        assert not _entries(clinics[0])


def test_a_refusal_after_the_vector_says_that_it_was_charged(clinics: list[Path]) -> None:
    with ExitStack() as stack:
        curators = [stack.enter_context(Curator.open(each)) for each in clinics]
        server, clients, tickets = _steps(_plan(clinics[0]), curators)
        clients[0].answer(json.loads(json.dumps(server.tell(tickets[0]))))
        assert len(_entries(clinics[0])) == 1
        for told in (None, [], {}, {"step": ["opening"]}, {"step": "opening"}, {"step": "shares"}):
            with pytest.raises(DataError) as refusal:
                clients[0].answer(told)  # type: ignore[arg-type]
            assert "othing was charged" not in str(refusal.value), told
            assert "charge" in str(refusal.value), told


def test_a_ticket_beyond_ascii_and_deep_answers_are_refused_over_http(clinics: list[Path]) -> None:
    served = Served(_plan(clinics[0]), patience=3.0)
    host = served.address.split("//")[1]
    for ticket in ("é".encode(), b"\xff", b"no"):
        line = http.client.HTTPConnection(host, timeout=20)
        line.putrequest("GET", "/step")
        line.putheader("ticket", ticket)
        line.endheaders()
        answer = line.getresponse()
        assert (answer.status, "ticket" in answer.read().decode()) == (409, True)
        line.close()
    for text in (b"[" * 200_000, b"[]", b"nonsense", b"{}"):
        with pytest.raises(DataError, match="cannot be read"):
            federate._parse_answer(text, "step")
    served.finish()


@pytest.mark.parametrize("step", ["write_whole", "seal"])
def test_a_result_that_is_stopped_while_it_is_written_is_not_there(
    clinics: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    what, out = _plan(clinics[0]), tmp_path / "out.json"
    result = conclude(what, np.zeros(what.terms.length, np.int64), CLIENTS)

    def stop(*given: Any) -> None:
        written(*given)
        raise KeyboardInterrupt

    owner: Any = federate if step == "write_whole" else release
    written = getattr(owner, step)
    monkeypatch.setattr(owner, step, stop)
    with pytest.raises(KeyboardInterrupt):
        federate.write_result(what, result, out)
    assert not [each.name for each in tmp_path.iterdir() if each.name.startswith("out")]
    monkeypatch.undo()
    federate.write_result(what, result, out)
    assert verify(out).body["provenance"]["parameters"]["round"] == what.name
