"""Cancelling a question that runs: it alone is stopped, and stays charged; and a worker pool that loses a process."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from deniable.curator.governance import requests
from deniable.errors import Cancelled
from deniable.policy.document import read
from deniable.query import execute
from deniable.server.limits import Limits
from deniable.server.scheduler import Scheduler
from deniable.server.service import Service

FOREVER = "SELECT sum(a.range * b.range % 7) AS m0 FROM range(1000000) a, range(1000000) b"
SLOW, QUICK = "SELECT COUNT(*) AS n FROM people WHERE age > 77", "SELECT COUNT(*) AS n FROM people WHERE age > 76"


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """One question whose work in the engine does not end by itself within any test."""
    real = execute.measure

    def measure(plan: Any, engine: Any, **rest: Any) -> Any:
        return engine.run(FOREVER) if plan.text == SLOW else real(plan, engine, **rest)

    monkeypatch.setattr(execute, "measure", measure)


def charged(served: Any, sql: str) -> bool:
    return any(each.details.get("asked") == sql for each in served.curator.ledger.entries(acts=("charge",)))


def until(holds: Any) -> None:
    for _ in range(1200):
        if holds():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come to that")


def ask(served: Any, sql: str, request: str, found: dict[str, Any] | None = None, token: str = "") -> httpx.Response:
    header = {"authorization": f"Bearer {token or served.tokens['ana']}", "x-request-id": request}
    answer = httpx.post(f"{served.http}/v1/query", json={"sql": sql, "epsilon": "1"}, headers=header, timeout=120)
    if found is not None:
        found[request] = answer
    return answer


def test_over_http_one_running_question_is_stopped_and_stays_charged(serve, endless):
    with serve() as served:
        found: dict[str, Any] = {}
        asking = threading.Thread(target=ask, args=(served, SLOW, "slow", found))
        asking.start()
        until(lambda: charged(served, SLOW))
        assert ask(served, QUICK, "quick").status_code == 200, "others go on meanwhile"
        header = {"authorization": f"Bearer {served.tokens['ben']}"}
        httpx.delete(f"{served.http}/v1/queries/slow", headers=header, timeout=120)
        assert asking.is_alive(), "nobody else can stop it"
        header = {"authorization": f"Bearer {served.tokens['ana']}"}
        told = httpx.delete(f"{served.http}/v1/queries/slow", headers=header, timeout=120).json()
        assert (told["cancelled"], told["begun"]) == (True, True), "it is stopped, and was begun"
        asking.join(60)
        assert found["slow"].status_code == 409
        assert (found["slow"].json()["error"], found["slow"].json()["charged"]) == ("cancelled", True)
        assert len([each for each in served.curator.ledger.entries(acts=("charge",)) if each.request == "slow"]) == 1


def test_taking_back_an_id_stops_all_questions_of_that_id_and_no_others():
    async def run() -> None:
        scheduler, both = Scheduler(SimpleNamespace(interrupt=lambda _thread: None), Limits()), threading.Barrier(3)

        def work(stop: threading.Event) -> bool:
            both.wait(60)
            return stop.wait(60)

        # The same question in three forms, of which two are worked on at once and one waits; and one of another id.
        forms = [asyncio.create_task(scheduler.charge("ana", work, form, "own")) for form in ("a", "b", "c")]
        other = asyncio.create_task(scheduler.charge("ana", lambda stop: stop.is_set(), "a", "other"))
        await asyncio.to_thread(both.wait, 60)
        assert scheduler.cancel("ben", "own") is None
        assert scheduler.cancel("ana", "own") == (False, None)
        found = await asyncio.gather(*forms, return_exceptions=True)
        assert found[:2] == [True, True]
        assert isinstance(found[2], Cancelled)
        assert await other is False
        assert scheduler.cancel("ana", "own") is None
        scheduler.close()

    asyncio.run(run())


@pytest.mark.parametrize("request_id", ["", "slow"])
def test_over_the_wire_one_running_question_is_stopped_and_the_session_goes_on(serve, endless, request_id):
    psycopg = pytest.importorskip("psycopg")
    with serve() as served, psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute("SET deniable.epsilon = 1")
        if request_id:
            connection.execute(f"SET deniable.request = '{request_id}'")
        canceller = threading.Thread(
            target=lambda: (until(lambda: charged(served, SLOW)), connection.cancel_safe(timeout=60))
        )
        canceller.start()
        with pytest.raises(psycopg.errors.QueryCanceled, match="cancelled after it was charged") as told:
            connection.execute(SLOW)
        assert "The charge stands" in told.value.diag.message_detail
        canceller.join()
        connection.execute("RESET deniable.request")
        assert connection.execute(QUICK).fetchone() is not None
        until(lambda: served.curator.context.scope.engine._running == {})


def test_a_sessions_own_time_limit_stops_its_statements_and_says_what_was_charged(serve, endless):
    psycopg = pytest.importorskip("psycopg")
    limited = {"options": "'-c deniable.epsilon=1 -c statement_timeout=4s'"}
    with serve() as served, psycopg.connect(served.dsn(**limited), autocommit=True) as connection:
        assert connection.execute("SHOW statement_timeout").fetchone() == ("4s",)
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout") as told:
            connection.execute(SLOW)
        assert ("The charge stands" in told.value.diag.message_detail) == charged(served, SLOW)
        assert connection.execute(QUICK).fetchone() is not None, "quick statements are answered as before"
        connection.execute("SET statement_timeout = 1")
        many = ", ".join(f"SUM(age + {i}) AS s{i}" for i in range(150))  # it takes far longer than a busy server's turn
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout") as told:
            connection.execute(f"SELECT {many} FROM people")
        connection.execute("SET statement_timeout = 0")
        with pytest.raises(psycopg.Error, match="statement_timeout"):
            connection.execute("SET statement_timeout = 'soon'")
        shown = {"90000": "90s", "120000": "2min", "1500": "1500ms", "0": "0"}
        for written, normal in shown.items():
            connection.execute(f"SET lock_timeout = {written}")
            assert connection.execute("SHOW lock_timeout").fetchone() == (normal,)


def test_what_is_taken_back_before_its_charge_costs_nothing(serve):
    from deniable.errors import Stopped

    with serve() as served:
        stop = threading.Event()
        stop.set()
        with pytest.raises(Stopped, match="before it was charged"):
            served.curator.query(QUICK, epsilon=1, stop=stop)
        assert not charged(served, QUICK)


# A thousand people with 100 visits each: three of them joined by person are 1,000,000,000 rows, far longer than a test.
VISITS = "  visits: {source: visits.parquet, unit: {column: id, max_rows: 1}, columns: {id: {type: integer}}}\n"
ENDLESS = "SELECT COUNT(*) AS n FROM visits a JOIN visits b ON a.id = b.id JOIN visits c ON b.id = c.id"


def test_a_question_running_in_a_worker_process_is_stopped_and_the_pool_goes_on(
    serve, tmp_path: Path, clinic_policy: str
):
    from deniable.server.limits import Limits
    from deniable.server.worker_pool import SLOTS

    pq.write_table(pa.table({"id": list(range(1000)) * 100}), tmp_path / "visits.parquet")
    policy = clinic_policy.replace("  towns:", VISITS + "  towns:")
    limits = Limits(rate=5000, burst=20_000, at_once=64, quantum=0.005, seconds=600, processes=2)
    with serve(policy, limits) as served:
        workers = [worker.process.pid for worker in served.pool._workers]
        found: dict[str, Any] = {}
        asking = threading.Thread(target=ask, args=(served, ENDLESS, "slow", found))
        asking.start()
        until(lambda: charged(served, ENDLESS))
        assert ask(served, QUICK, "quick").status_code == 200, "others go on meanwhile"
        assert asking.is_alive(), "it does not end by itself"
        header = {"authorization": f"Bearer {served.tokens['ana']}"}
        told = httpx.delete(f"{served.http}/v1/queries/slow", headers=header, timeout=120).json()
        assert (told["cancelled"], told["charged"]) == (True, True), "the ledger knows what another process charged"
        asking.join(60)
        assert found["slow"].status_code == 409
        refusal = found["slow"].json()
        assert (refusal["error"], refusal["charged"]) == ("cancelled", True)
        assert "The charge stands" in refusal["message"]
        assert len([each for each in served.curator.ledger.entries(acts=("charge",)) if each.request == "slow"]) == 1

        # Every seat of both processes is there again, and no process had to be replaced.
        sqls = [f"SELECT COUNT(*) AS n FROM people WHERE age > {i}" for i in range(2 * SLOTS * len(workers))]
        askers = [threading.Thread(target=ask, args=(served, sql, sql, found)) for sql in sqls]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join(60)
        assert [found[sql].status_code for sql in sqls] == [200] * len(sqls)
        assert [worker.process.pid for worker in served.pool._workers] == workers


def test_a_pool_that_loses_a_process_goes_on_and_charges_a_request_once(tmp_path: Path, write_policy):
    from deniable.curator import Curator
    from deniable.errors import QueryRefused
    from deniable.governance.grants import Asker, Role
    from deniable.server.refusals import TimedOut
    from deniable.server.worker_pool import WorkerPool

    policy, ledger = write_policy(tmp_path), str(tmp_path / "ledger.sqlite")
    question = {"sql": QUICK, "epsilon": "1", "who": Asker("ana", "research", Role.ANALYST), "request": "one"}
    pool, spent = WorkerPool(policy, ledger, 1), []
    try:
        first = pool.work("query", question, spent.append, costly=False)
        whole = policy.read_text()
        policy.write_text(whole.replace("ana", "anna"))  # a process that is started later has the policy of the server
        pool._workers[0].process.kill()
        pool._workers[0].process.join()
        again = pool.work("query", question, spent.append, costly=False)
        assert again.rows.equals(first.rows)
        assert again.repeated
        policy.write_text(whole)
        threading.Timer(0.3, pool._workers[0].process.kill).start()
        with pytest.raises(TimedOut) as lost:  # it dies while it works
            ask_until_refused(pool, question, spent)
        assert lost.value.as_dict()["charged"] is None, "nobody knows what the process did last"
        assert "the process that worked on it has ended" in str(lost.value)
        assert min(spent) > 0
        with pytest.raises(QueryRefused):
            pool.work("query", question | {"sql": "SELECT id FROM people", "request": "two"}, spent.append, costly=True)
    finally:
        pool.close()
    with Curator.open(policy, ledger=ledger) as curator:
        charged = [each.request for each in curator.ledger.entries(acts=("charge",))]
        assert len(charged) == len(set(charged))
        assert charged[0] == "one"


def ask_until_refused(pool: Any, question: dict[str, Any], spent: list[float]) -> None:
    for number in range(10_000):
        other = {"sql": f"{QUICK} AND age + {number} > 0", "request": f"{number}", "epsilon": "0.001"}
        pool.work("query", question | other, spent.append, costly=False)


def test_a_process_that_ends_while_it_starts_is_told_as_one_that_ended_and_nothing_is_charged(tmp_path, write_policy):
    from deniable.server.refusals import TimedOut
    from deniable.server.worker_pool import WorkerPool

    pool = WorkerPool(write_policy(tmp_path), str(tmp_path / "ledger.sqlite"), 1)
    try:
        place, question = pool._where, {"sql": "SELECT COUNT(*) FROM people", "epsilon": "0.1"}
        pool._workers[0].process.kill()
        pool._workers[0].process.join()
        pool._where = (place[0], str(tmp_path / "gone" / "ledger.sqlite"), place[2])  # the next one ends at once
        with pytest.raises(TimedOut, match=r"could not be started.*Nothing was charged"):
            pool.work("explain", question, lambda _: None, costly=False)
        pool._where = place
        assert pool.work("explain", question, lambda _: None, costly=False).to_dict()["cost"]["epsilon"] == "0.1"
    finally:
        pool.close()


def test_quick_questions_are_not_worked_on_beside_costly_ones(tmp_path: Path, write_policy):
    from deniable.server.worker_pool import COSTLY_SLOTS, SLOTS, WorkerPool

    pool = WorkerPool(write_policy(tmp_path), str(tmp_path / "ledger.sqlite"), 2)
    try:
        first, last = pool._workers
        assert {pool._find_free(costly=False).worker for _ in range(3)} == {first}
        idle = [pool._take_slot(costly=False) for _ in range(4)]
        assert {slot.worker for slot in idle} == {first, last}  # nothing is costly: every core is used
        costly = pool._take_slot(costly=True)
        assert costly.worker is last
        quick = [pool._take_slot(costly=False) for _ in range(SLOTS - sum(slot.worker is first for slot in idle))]
        assert {slot.worker for slot in quick} == {first}
        assert pool._find_free(costly=False) is None  # it waits for a place in the first process
        pool._return_slot(costly)
        assert pool._find_free(costly=False).worker is last
        assert sum(slot.costly for slot in pool._free) == COSTLY_SLOTS
    finally:
        pool.close()


def test_who_asked_costly_questions_has_one_place_until_they_are_quick_again(tmp_path: Path, write_policy):
    from deniable.server.scheduler import COSTLY_SECONDS, ThreadPool

    threads = ThreadPool(8, lambda _thread: None)
    try:
        assert not threads.is_costly("eve")
        threads.begin("eve", lambda _stop: threads.add_seconds(10 * COSTLY_SECONDS)).result(10)
        threads.begin("ana", lambda _stop: None).result(10)
        wait_until(lambda: threads.is_costly("eve"))
        running, go_on = [], threading.Event()
        for owner in ("eve", "ana"):
            for _ in range(6):
                threads.begin(owner, lambda _stop, owner=owner: (running.append(owner), go_on.wait(10)))
        wait_until(lambda: len(running) == 5)
        assert sorted(running) == ["ana"] * 4 + ["eve"]
        go_on.set()
    finally:
        threads.close()


def test_one_question_that_took_longer_by_chance_does_not_make_its_asker_costly():
    from deniable.server.scheduler import COSTLY_SECONDS, ONCE_SECONDS, ThreadPool

    threads = ThreadPool(2, lambda _thread: None)

    def ask(owner: str, *pieces: float) -> bool:
        for seconds in pieces:
            threads.begin(owner, lambda _stop, seconds=seconds: threads.add_seconds(seconds)).result(10)
            wait_until(lambda: not threads._running[owner])
        return threads.is_costly(owner)

    try:
        once = (COSTLY_SECONDS + ONCE_SECONDS) / 2
        assert not ask("ana", 0.01, once, *[0.01] * 30, once, 0.01)  # one in thirty
        assert ask("ben", 0.01, once, 0.01, once)
        assert not ask("ben", *[0.01] * 30)  # it is forgotten
        assert ask("eve", 0.01, 1.1 * ONCE_SECONDS)
        assert ask("eve", *[0.01] * 4, 10 * ONCE_SECONDS, *[0.01] * 20)
    finally:
        threads.close()


def wait_until(holds) -> None:
    """Wait for something that another thread brings about."""
    until = time.monotonic() + 10
    while not holds() and time.monotonic() < until:
        time.sleep(0.01)
    assert holds()


@pytest.mark.parametrize("end", ["revoke", "pause", "expire"])
def test_a_question_that_waits_while_its_token_ends_is_refused_and_costs_nothing(serve, endless, end, monkeypatch):
    real, admitted = Service._check_later, list[str]()
    monkeypatch.setattr("deniable.server.service.REPEAT_SECONDS", 0)  # however little it waits
    monkeypatch.setattr(Service, "_check_later", lambda self, grant: admitted.append(grant.id) or real(self, grant))
    with serve(limits=Limits(workers=2)) as served:
        context, found = served.curator.context, dict[str, Any]()
        slow = threading.Thread(target=ask, args=(served, SLOW, "slow", found))
        slow.start()
        until(lambda: charged(served, SLOW))
        token, grant = requests.issue(context, "ana", purposes=["research"], days=3 / 86_400 if end == "expire" else 1)
        waits = threading.Thread(target=ask, args=(served, QUICK, "waits", found, token))
        waits.start()
        until(lambda: grant.id in admitted)
        if end == "expire":
            until(lambda: grant.expires < datetime.now(UTC))
        else:
            {"revoke": requests.revoke, "pause": requests.pause}[end](context, grant.id)
        httpx.delete(f"{served.http}/v1/queries/slow", headers={"authorization": f"Bearer {served.tokens['ana']}"})
        slow.join(60)
        waits.join(60)
        assert found["waits"].status_code == 401
        assert (found["waits"].json()["error"], found["waits"].json()["charged"]) == ("token", False)
        assert not charged(served, QUICK)


def test_a_server_says_that_its_policy_file_was_edited(tmp_path: Path, write_policy):
    from deniable.server.serve import _watch_policy

    async def edit() -> list[str]:
        said, policy = [], write_policy(tmp_path)
        whole, opened = policy.read_text(), read(policy).hash
        policy.write_text(edited := whole.replace("between: [0, 100]", "between: [0, 99]"))
        assert edited != whole
        watching = asyncio.create_task(_watch_policy(policy, opened, said.append, every=0.01))
        while not said:  # it was edited before the server looked at it for the first time
            await asyncio.sleep(0.01)
        policy.write_text(whole + "# the same policy\n")
        await asyncio.sleep(0.2)
        assert len(said) == 1
        policy.write_text(whole + "nonsense: [")
        while len(said) < 2:
            await asyncio.sleep(0.01)
        policy.write_text(whole)
        await asyncio.sleep(0.2)
        watching.cancel()
        return said

    told = "policy.yaml was edited: this server goes on with the policy it opened; restart it for the new one"
    assert asyncio.run(edit()) == [told, told]


def test_what_runs_when_the_server_ends_is_stopped_and_pauses_nobody(tmp_path: Path, write_policy):
    """A question that outlived its server was entered as a failure of its asker, of whom three pause her."""
    from deniable.curator import Curator
    from deniable.governance.grants import Asker, Role
    from deniable.server.worker_pool import _Worker

    policy, ledger = write_policy(tmp_path), str(tmp_path / "ledger.sqlite")
    running = threading.Event()

    def run(*_: Any, **__: Any) -> None:
        running.set()
        for _ in range(1_000):
            if stopped.is_set():
                raise RuntimeError("interrupted")
            time.sleep(0.01)

    stopped = threading.Event()
    with Curator.open(policy, ledger=ledger) as curator, pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute, "measure", run)
        patch.setattr(type(curator), "interrupt", lambda _curator, _thread: stopped.set())
        worker = _Worker(curator)
        given = {"sql": QUICK, "epsilon": "1", "who": Asker("ana", "research", Role.ANALYST), "request": "one"}
        asked = threading.Thread(target=worker._do_work, args=(0, 1, "query", given), daemon=True)
        asked.start()
        assert running.wait(30)
        worker.stop_all()
        asked.join(30)
        assert not asked.is_alive()
        assert [entry.act for entry in curator.ledger.entries()].count("fail") == 0
        assert len(list(curator.ledger.entries(acts=("charge",)))) == 1


def test_an_address_without_a_port_and_a_proxy_by_name_are_refused():
    from deniable.errors import ParameterError
    from deniable.server.serve import ServerOptions, _steward_host

    for given in ("127.0.0.1", "localhost"):
        with pytest.raises(ParameterError, match="has no port"):
            _steward_host(ServerOptions(steward=given))
    with pytest.raises(ParameterError, match=r"'proxy\.example' is not an address"):
        Limits(proxies=("proxy.example",))
