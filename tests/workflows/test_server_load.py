"""A server goes on for those with a token while others hold connections, guess, send costly work or stall it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.requests import Request

from deniable.errors import ParameterError
from deniable.server import serve as serve_module
from deniable.server.http.endpoints import read_client_address
from deniable.server.limits import Connections, Limits
from deniable.server.scheduler import COSTLY_SECONDS, ThreadPool
from deniable.server.serve import ServerOptions, _require_tls
from deniable.server.workbench import steward

COUNT = {"sql": "SELECT COUNT(*) AS n FROM people", "epsilon": "0.001"}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def open_halves(address: str, count: int) -> list[socket.socket]:
    """Connections that have sent half of their headers."""
    host, port = address.removeprefix("http://").split(":")
    opened = []
    for _ in range(count):
        half = socket.create_connection((host, int(port)), 5)
        half.sendall(b"POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-")
        opened.append(half)
    return opened


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0.01)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def read_status(connection: socket.socket) -> bytes:
    """The status line of what a server answers; empty where it closed without an answer."""
    connection.settimeout(10)
    return connection.recv(4096).split(b"\r\n")[0]


def test_a_request_is_parsed_once_its_headers_are_whole(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    auto = pytest.importorskip("uvicorn.protocols.http.auto")
    made, begin = [], auto.AutoHTTPProtocol.__init__

    def count_parser(protocol: Any, *args: Any, **given: Any) -> None:
        made.append(protocol)
        begin(protocol, *args, **given)

    monkeypatch.setattr(auto.AutoHTTPProtocol, "__init__", count_parser)
    with serve(limits=Limits(http_connections=200, header_seconds=30, quantum=0)) as up:
        halves = open_halves(up.http, 60)
        assert httpx.get(up.http + "/health").status_code == 200
        assert len(made) == 1, "the 60 that came before it and are not whole have no parser"
        halves[0].sendall(b"Length: 2\r\n")
        halves[0].sendall(b"\r\n{}")
        assert read_status(halves[0]).startswith(b"HTTP/1.1 401"), "one that is whole is answered as ever"
        assert len(made) == 2
        for each in halves:
            each.close()


@pytest.mark.parametrize(
    "sent",
    [b"nonsense\r\n", b"GET /health HTTP/9.9\r\n", b"\x16\x03\x01\n", b"GET / HTTP/1.1\r\nX: " + b"x" * 70_000],
    ids=["no request", "another version", "TLS", "too long"],
)
def test_what_is_no_request_is_refused_without_a_wait(serve: Any, sent: bytes) -> None:
    with serve(limits=Limits(header_seconds=600)) as up:
        host, port = up.http.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), 5) as connection:
            connection.sendall(sent + b"\r\n\r\n" * (len(sent) > 1000))
            assert read_status(connection).split(b" ")[1] in (b"400", b"431")


def test_a_server_that_stops_closes_half_sent_requests(serve: Any) -> None:
    with serve(limits=Limits(header_seconds=600)) as up:
        halves = open_halves(up.http, 3)
        assert httpx.get(up.http + "/health").status_code == 200
    assert all(is_closed(each) for each in halves)
    for each in halves:
        each.close()


def test_half_sent_headers_hold_no_place_from_those_with_a_token(serve: Any) -> None:
    limits = Limits(rate=5000, burst=20000, http_connections=40, header_seconds=1.5, quantum=0)
    with serve(limits=limits) as up, httpx.Client(headers=bearer(up.tokens["ana"])) as before:
        assert before.post(up.http + "/v1/query", json=COUNT).status_code == 200
        halves = open_halves(up.http, 200)
        assert before.post(up.http + "/v1/query", json=COUNT).status_code == 200, "who was let in stays"
        for _ in range(5):
            fresh = httpx.post(up.http + "/v1/query", json=COUNT, headers=bearer(up.tokens["ana"]))
            assert fresh.status_code == 200, "who comes with a token is let in"
        assert sum(map(is_closed, halves)) >= 160, "strangers have half of the room from one address"
        deadline = time.monotonic() + 20
        while not all(map(is_closed, halves)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert all(map(is_closed, halves)), "headers that do not come are not waited for"
        for half in halves:
            half.close()


def test_a_second_request_that_stops_in_its_headers_is_not_waited_for(serve: Any) -> None:
    with serve(limits=Limits(header_seconds=0.3)) as up:
        host, port = up.http.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), 5) as slow:
            slow.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            told = b""
            while not told.endswith(b"}"):  # headers and body may come apart
                told += slow.recv(4096)
            assert b"200 OK" in told
            slow.sendall(b"GET /health HTTP/1.1\r\nHo")
            slow.settimeout(20)
            with contextlib.suppress(ConnectionError):
                assert slow.recv(1) == b""


def test_half_sent_bodies_without_a_token_hold_no_place(serve: Any) -> None:
    limits = Limits(rate=5000, burst=20000, http_connections=40, quantum=0)
    half = (
        b"POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 600\r\n\r\n{"
    )
    with serve(limits=limits) as up:
        host, port = up.http.removeprefix("http://").split(":")
        halves = [socket.create_connection((host, int(port)), 5) for _ in range(100)]
        for each in halves:
            with contextlib.suppress(OSError):  # it had to make room
                each.sendall(half)
        for _ in range(5):
            assert httpx.post(up.http + "/v1/query", json=COUNT, headers=bearer(up.tokens["ana"])).status_code == 200
        for each in halves:
            each.close()


def test_one_asker_keeps_a_quarter_of_the_room(serve: Any) -> None:
    psycopg = pytest.importorskip("psycopg")
    limits = Limits(rate=5000, burst=20000, http_connections=40, connections=8, quantum=0, header_seconds=600)
    with serve(limits=limits) as up, contextlib.ExitStack() as held:
        told = []
        for _ in range(30):
            client = held.enter_context(httpx.Client(headers=bearer(up.tokens["ana"])))
            told.append(client.get(up.http + "/v1/remaining").status_code)
        assert (told.count(200), told.count(503)) == (10, 20)
        assert httpx.get(up.http + "/v1/remaining", headers=bearer(up.tokens["ben"])).status_code == 200
        for _ in range(2):
            held.enter_context(psycopg.connect(up.dsn()))
        with pytest.raises(psycopg.OperationalError, match="2 connections of yours are open"):
            psycopg.connect(up.dsn())
        with psycopg.connect(up.dsn("ben")) as other:
            assert other.execute("SELECT 1").fetchone()[0] == 1


def test_silent_postgres_connections_make_room_for_one_with_a_token(serve: Any) -> None:
    psycopg = pytest.importorskip("psycopg")
    limits = Limits(connections=8, rate=5000, burst=20000)
    with serve(limits=limits) as up, psycopg.connect(up.dsn(), autocommit=True) as before:
        silent = [socket.create_connection(("127.0.0.1", up.postgres), 5) for _ in range(40)]
        with psycopg.connect(up.dsn(), autocommit=True) as fresh:
            assert fresh.execute("SELECT 1").fetchone()[0] == 1
        assert before.execute("SELECT 1").fetchone()[0] == 1
        for each in silent:
            each.close()


def test_wrong_tokens_from_an_address_do_not_lock_out_right_ones(serve: Any) -> None:
    with serve(limits=Limits(guesses=5, rate=5000, burst=20000, quantum=0)) as up:
        wrong = [httpx.get(up.http + "/v1/remaining", headers=bearer(f"deniable_{i}")) for i in range(12)]
        assert [each.status_code for each in wrong] == [401] * 5 + [429] * 7
        assert httpx.get(up.http + "/v1/remaining", headers=bearer(up.tokens["ana"])).status_code == 200


@pytest.mark.parametrize(
    ("peer", "said", "found"),
    [
        ("10.0.0.1", "198.51.100.7", "198.51.100.7"),
        ("10.0.0.1", "6.6.6.6, 198.51.100.7", "198.51.100.7"),
        ("10.0.0.1", "6.6.6.6, 198.51.100.7, 10.0.0.2", "198.51.100.7"),
        ("203.0.113.9", "198.51.100.7", "203.0.113.9"),
        ("10.0.0.1", "", "10.0.0.1"),
    ],
)
def test_only_known_proxies_say_where_a_request_comes_from(peer: str, said: str, found: str) -> None:
    scope = {"type": "http", "client": (peer, 1), "headers": [(b"x-forwarded-for", said.encode())]}
    assert read_client_address(Request(scope), ("10.0.0.1", "10.0.0.2")) == found
    assert read_client_address(Request(scope)) == peer


def test_the_oldest_stranger_makes_room_and_the_admitted_stay() -> None:
    closed: list[int] = []
    room = Connections(8)
    for i in range(3):
        assert room.enter(i, f"address {i}", lambda i=i: closed.append(i))
        room.admit(i, f"asker {i}")
    for i in range(3, 20):
        assert room.enter(i, f"address {i}", lambda i=i: closed.append(i))
    assert closed == list(range(3, 15))
    assert len(room) == 8
    for i in range(20, 26):
        room.enter(i, "one address", lambda i=i: closed.append(i))
    assert {20, 21} <= set(closed), "one address has half"
    room.begin(22)
    for i in range(26, 30):
        room.enter(i, "one address", lambda i=i: closed.append(i))
    assert 22 not in closed, "its request is worked on"
    room.rest(22)
    for i in range(30, 40):
        room.enter(i, "one address", lambda i=i: closed.append(i))
    assert 22 in closed, "it waits like the others"
    for i in range(15, 40):
        room.admit(i, f"asker {i}")
    assert len(room) == 8
    assert not room.enter(99, "late", lambda: None), "no stranger is left to make room"
    for i in range(99):
        room.leave(i)
    assert len(room) == 0


def run_pool(owners: list[str], cost: float, count: int = 4) -> list[dict[str, int]]:
    """How many threads each owner had, at every beginning of a piece of work."""
    pool, running, seen, lock = ThreadPool(count, lambda _thread: None), dict.fromkeys(owners, 0), [], threading.Lock()

    def work(owner: str) -> None:
        with lock:
            running[owner] += 1
            seen.append(dict(running))
        until = time.thread_time() + cost
        while time.thread_time() < until:
            pass
        time.sleep(0.01)
        with lock:
            running[owner] -= 1

    begun = [pool.begin(owner, lambda _stop, owner=owner: work(owner)) for owner in owners for _ in range(12)]
    for each in begun:
        each.result(60)
    pool.close()
    return seen


def test_no_asker_has_all_threads_and_askers_take_turns() -> None:
    seen = run_pool(["hostile", "polite"], 0.0)
    assert max(each["hostile"] for each in seen) == 2
    first = next(i for i, each in enumerate(seen) if each["polite"])
    assert first <= 4, "twelve were in the line before, and two of them were begun"


def test_an_asker_of_costly_work_has_one_thread_at_a_time() -> None:
    seen = run_pool(["hostile"], COSTLY_SECONDS * 6)
    assert [each["hostile"] for each in seen[4:]] == [1] * 8


def test_quick_questions_between_costly_ones_hide_none_of_them() -> None:
    pool = ThreadPool(4, lambda _thread: None)
    for _ in range(2):
        pool.begin("hostile", lambda _stop: pool.add_seconds(COSTLY_SECONDS * 8)).result(60)
        for _ in range(10):
            pool.begin("hostile", lambda _stop: None).result(60)
    assert pool.is_costly("hostile")
    for _ in range(40):
        pool.begin("hostile", lambda _stop: None).result(60)
    assert not pool.is_costly("hostile"), "whoever asks quick ones for a while is one of the quick"
    pool.close()


def test_an_explanation_with_thousands_of_measurements_is_refused_before_it_is_worked_out(serve: Any) -> None:
    with serve() as up:
        items = ", ".join(f"SUM(age + {i}) AS s{i}" for i in range(900))
        sql = f"SELECT sex, {items} FROM people GROUP BY CUBE (sex, age, seen)"
        asked = {"sql": sql, "epsilon": "1"}
        told = httpx.post(up.http + "/v1/explain", json=asked, headers=bearer(up.tokens["ana"]), timeout=60)
        assert told.status_code == 400
        assert "measurements" in told.json()["message"]
        assert told.json()["charged"] is False


def test_answers_are_written_in_pieces_and_long_values_are_read_in_their_askers_turn(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    psycopg = pytest.importorskip("psycopg")
    from deniable.server.wire import codec, prepared_statements
    from deniable.server.wire.session import Session

    send, flush, expand = Session._send, Session._flush, prepared_statements.expand_arrays
    since, most, threads = [0], [0], set()

    def count(self: Any, message: bytes) -> None:
        since[0] += 200 * (message[:1] in b"Dd")
        most[0] = max(most[0], since[0])
        send(self, message)

    async def rest(self: Any) -> None:
        since[0] = 0
        await flush(self)

    def note(*given: Any) -> Any:
        threads.add(threading.current_thread().name)
        return expand(*given)

    monkeypatch.setattr(Session, "_send", count)
    monkeypatch.setattr(Session, "_flush", rest)
    monkeypatch.setattr(prepared_statements, "expand_arrays", note)
    wide = f"SELECT {', '.join(['a'] * 200)} FROM generate_series(1, 500) a"
    with serve() as served, psycopg.connect(served.dsn(), autocommit=True) as connection:
        assert len(connection.execute(wide).fetchall()) == 500
        with connection.cursor() as cursor, cursor.copy(f"COPY ({wide}) TO STDOUT (FORMAT binary)") as copy:
            assert len(list(copy.rows())) == 500
        assert 0 < most[0] <= codec.PIECE_CELLS
        connection.execute("SET deniable.epsilon = 1")
        names = [f"name {place}" for place in range(1000)]
        connection.execute("SELECT COUNT(*) FROM people WHERE sex = ANY(%s)", (names,))
    assert threads
    assert all(name.startswith("deniable") for name in threads), threads


def test_the_stewards_port_needs_tls_too() -> None:
    with pytest.raises(ParameterError, match="unencrypted"):
        _require_tls(ServerOptions(steward="0.0.0.0:8401"))
    with pytest.raises(ParameterError, match="no port 99999"):
        _require_tls(ServerOptions(steward="127.0.0.1:99999"))
    _require_tls(ServerOptions(steward="127.0.0.1:8401"))
    assert serve_module._steward_host(ServerOptions(steward=":8401")) == "127.0.0.1", "no address is not every address"
    _require_tls(ServerOptions(steward="steward.sock"))


def test_the_first_link_is_over_after_some_minutes_and_when_there_is_a_steward(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve() as up:  # which has issued a steward's token since it started
        refused = httpx.post(up.link, headers={"origin": up.steward})
        assert refused.status_code == 403
        assert "steward already" in refused.text
    key, text = steward.OneTimeKey.new()
    assert key.fits(text)
    monkeypatch.setattr(steward, "LINK_SECONDS", -1.0)
    assert not key.fits(text)


def test_metrics_and_everybodys_budgets_need_a_role(serve: Any) -> None:
    with serve() as up:
        for path in ("/metrics", "/v1/budgets"):
            statuses = [
                httpx.get(up.steward + path, headers=bearer(up.tokens[who])).status_code for who in ("ana", "auditor")
            ]
            assert statuses == [403, 200], path
            assert httpx.get(up.steward + path).status_code == 401


def test_the_steward_can_be_reached_by_the_names_that_were_given(serve: Any) -> None:
    with serve(hosts=("data.clinic.example",)) as up:
        for host, status in (("data.clinic.example", 401), ("evil.example", 421)):
            found = httpx.get(up.steward + "/v1/budgets", headers={"host": host})
            assert found.status_code == status, host


def test_a_stalled_ledger_stops_neither_health_nor_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a look into the record does not answer is refused in time, and who does not need it is served meanwhile."""
    from deniable.errors import StorageError
    from deniable.server import service as service_module
    from deniable.server.service import Service

    monkeypatch.setattr(service_module, "RECORD_SECONDS", 0.3)
    gone_on = threading.Event()
    curator: Any = SimpleNamespace(interrupt=lambda _thread: None)

    async def run() -> float:
        service = Service(curator, Limits())
        since, longest = time.monotonic(), 0.0
        looked = asyncio.create_task(service.read_record(lambda: gone_on.wait(20)))
        while not looked.done():
            before = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - before)
        with pytest.raises(StorageError, match="in time"):
            await looked
        assert time.monotonic() - since < 10
        gone_on.set()
        service.close_threads()
        return longest

    assert asyncio.run(run()) < 5


def test_a_postgres_ledger_that_is_locked_stops_questions_and_nothing_else(
    serve: Any, postgres_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    psycopg = pytest.importorskip("psycopg")
    from deniable.ledger import postgres
    from deniable.server import service as service_module

    monkeypatch.setattr(postgres, "WAIT_SECONDS", 3)
    monkeypatch.setattr(service_module, "RECORD_SECONDS", 1.0)
    with serve(ledger=postgres_address) as up:
        ana = bearer(up.tokens["ana"])
        assert httpx.get(up.http + "/ready").status_code == 200
        with psycopg.connect(postgres_address) as other:
            other.execute("LOCK TABLE deniable_entries IN ACCESS EXCLUSIVE MODE")
            waiting = threading.Thread(target=httpx.post, args=(up.http + "/v1/query",), kwargs={
                "json": COUNT, "headers": ana, "timeout": 60})  # fmt: skip
            waiting.start()
            assert httpx.get(up.http + "/ready", timeout=50).status_code == 503
            refused = httpx.get(up.http + "/v1/remaining", headers=ana, timeout=50)
            assert refused.status_code == 503
            assert refused.json()["charged"] is False
            assert httpx.get(up.http + "/health", timeout=50).status_code == 200
            waiting.join(60)
        assert httpx.post(up.http + "/v1/query", json=COUNT, headers=ana, timeout=60).status_code == 200


@pytest.mark.parametrize("processes", [0, 1])
def test_a_ledger_in_a_file_that_another_process_holds_is_told_as_busy(serve: Any, processes: int) -> None:
    limits = Limits(rate=5000, burst=20000, at_once=64, seconds=20, processes=processes)
    with serve(limits=limits) as up:
        ana, other = bearer(up.tokens["ana"]), {**COUNT, "sql": COUNT["sql"] + " WHERE age > 41"}
        ask = partial(httpx.post, headers=ana, timeout=60)
        assert ask(up.http + "/v1/query", json=COUNT).status_code == 200
        with contextlib.closing(sqlite3.connect(up.ledger, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            told: list[Any] = []
            waiting = threading.Thread(target=lambda: told.append(ask(up.http + "/v1/query", json=other)))
            waiting.start()
            assert ask(up.http + "/v1/explain", json=other).status_code == 200
            stored = ask(up.http + "/v1/query", json=COUNT)
            assert (stored.status_code, stored.headers["x-deniable-charged"]) == (200, "false")
            ready = httpx.get(up.http + "/ready", timeout=60)
            assert ready.status_code == 503
            assert "busy" in ready.json()["status"]
            waiting.join(60)
            assert (told[0].status_code, told[0].json()["error"], told[0].json()["charged"]) == (503, "locked", False)
            assert "the ledger is busy" in told[0].json()["message"]
            assert int(told[0].headers["retry-after"]) >= 1
            psycopg = pytest.importorskip("psycopg")
            with psycopg.connect(up.dsn(), autocommit=True) as connection:
                connection.execute("SET deniable.epsilon = 0.1")
                with pytest.raises(psycopg.errors.LockNotAvailable, match="Nothing was charged"):
                    connection.execute("SELECT COUNT(*) AS n FROM people WHERE age > 42")
            holder.execute("ROLLBACK")
        assert httpx.get(up.http + "/ready").status_code == 200
        assert ask(up.http + "/v1/query", json=other).status_code == 200
        assert sum(1 for _ in up.curator.ledger.entries(acts=("charge",))) == 2


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("processes", [0, 1])
@pytest.mark.parametrize("held", ["the answer store", "the user's record of ledgers"])
def test_a_file_beside_the_ledger_that_another_process_holds_is_told_as_busy(
    serve: Any, held: str, processes: int
) -> None:
    """Who is the first to find it held was charged before; nobody after is, until it is let go of."""
    from deniable.ledger.sqlite import place_answers
    from deniable.ledger.witness import Witness

    limits = Limits(rate=5000, burst=20000, at_once=64, seconds=25, processes=processes)
    with serve(limits=limits) as up:
        ask = partial(httpx.post, headers=bearer(up.tokens["ana"]), timeout=60)
        first, second = ({**COUNT, "sql": COUNT["sql"] + f" WHERE age > {age}"} for age in (41, 42))
        assert ask(up.http + "/v1/query", json=COUNT).status_code == 200
        path = place_answers(up.ledger) if held == "the answer store" else Witness().path
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            found = ask(up.http + "/v1/query", json=first)
            if held == "the answer store":
                assert (found.status_code, found.json()["error"], found.json()["charged"]) == (503, "locked", True)
                assert f"{held} is busy" in found.json()["message"]
                assert int(found.headers["retry-after"]) >= 1
            else:
                assert found.status_code == 200, "an entry that is noted later is answered"
            told = ask(up.http + "/v1/query", json=second)
            assert (told.status_code, told.json()["error"], told.json()["charged"]) == (503, "locked", False)
            assert f"{held} is busy" in told.json()["message"]
            assert int(told.headers["retry-after"]) >= 1
            assert ask(up.http + "/v1/explain", json=second).status_code == 200
            stored = ask(up.http + "/v1/query", json=COUNT)
            assert (stored.status_code, stored.headers["x-deniable-charged"]) == (200, "false")
            ready = httpx.get(up.http + "/ready", timeout=60)
            assert (ready.status_code, ready.json()["status"].partition(":")[0]) == (503, f"{held} is busy")
            holder.execute("ROLLBACK")
        assert httpx.get(up.http + "/ready").status_code == 200
        again = ask(up.http + "/v1/query", json=first)
        assert (again.status_code, again.headers["x-deniable-charged"]) == (200, "false"), "under its first charge"
        assert ask(up.http + "/v1/query", json=second).status_code == 200
        assert sum(1 for _ in up.curator.ledger.entries(acts=("charge",))) == 3


def test_a_full_disk_is_told_by_ready_and_until_it_has_room_again(tmp_path: Path) -> None:
    """A disk of three megabytes in memory, mounted in a namespace of its own, which ends with the process in it."""
    program = """
        import asyncio, os, pathlib, sys
        from deniable import Curator
        from deniable.server.http import steward_api
        from deniable.server.service import Service
        from deniable.server import service as service_module

        service_module.ROOM_SECONDS = 0
        folder = pathlib.Path(sys.argv[1])
        (folder / "people.csv").write_text("id,age\\n" + "".join(f"p{n},{n}\\n" for n in range(40)))
        (folder / "policy.yaml").write_text(
            "version: 1\\ndataset: clinic\\ntables: {people: {source: people.csv, unit: {column: id}, columns: "
            "{id: {type: text}, age: {type: integer, between: [0, 100]}}}}\\nbudgets: {dataset: {epsilon: 10}}\\n")

        async def look(service):
            class Asked:
                pass
            call = Asked()
            call.service = service
            found = await steward_api.check_ready(call)
            print(found.status_code, found.body.decode(), found.headers.get("retry-after"))

        async def run(service):
            await look(service)
            with (folder / "filler").open("wb", 0) as file:
                try:
                    while True:
                        file.write(bytes(4096))
                except OSError:
                    pass
            await look(service)
            (folder / "filler").unlink()
            await look(service)

        with Curator.open(folder / "policy.yaml") as curator:
            service = Service(curator)
            asyncio.run(run(service))
            service.close_threads()
    """
    mounted = 'mount -t tmpfs -o size=3m tmpfs "$1" || exit 77; exec "$2" -c "$3" "$1"'
    arguments = ["sh", "-c", mounted, "sh", str(tmp_path), sys.executable, textwrap.dedent(program)]
    try:
        ran = subprocess.run(
            ["unshare", "--mount", "--map-root-user", *arguments], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("this system has no unshare")
    if "unshare" in ran.stderr or ran.returncode == 77:
        pytest.skip("this process may not mount a small disk")
    ok, full = '200 {"status": "ok"} None', '503 {"status": "the ledger cannot be written to: the disk is full"} 5'
    assert ran.stdout.splitlines() == [ok, full, ok], ran.stderr


def test_a_respondents_token_is_for_one_person(serve: Any) -> None:
    with serve() as up:
        steward = bearer(up.tokens["steward"])
        asked = {"name": "p7", "role": "respondent", "column": "id", "value": "p7"}
        issued = httpx.post(up.steward + "/v1/tokens", json=asked, headers=steward)
        assert issued.status_code == 201, issued.text
        own, me, other = (
            bearer(issued.json()["token"]),
            {"column": "id", "value": "p7"},
            {"column": "id", "value": "p8"},
        )
        for port in (up.http, up.steward):
            for path in ("/v1/withdrawals", "/v1/subject"):
                refused = httpx.post(port + path, json=other, headers=own)
                assert refused.status_code == 403, (port, path)
                assert "another person" in refused.text
        assert httpx.post(up.http + "/v1/subject", json=me, headers=own).json()["withdrawn"] is None
        assert httpx.post(up.http + "/v1/withdrawals", json=me, headers=own).status_code == 201
        assert httpx.post(up.http + "/v1/subject", json=me, headers=own).json()["withdrawn"]
        again = me | {"reason": "she agreed in writing"}
        assert httpx.post(up.steward + "/v1/reinstatements", json=again, headers=own).status_code == 403
        assert httpx.post(up.steward + "/v1/reinstatements", json=again, headers=steward).status_code == 201
        assert httpx.post(up.http + "/v1/subject", json=me, headers=own).json()["withdrawn"] is None
        acts = [entry.act for entry in up.curator.ledger.entries(acts=("withdraw", "reinstate"))]
        assert acts == ["withdraw", "reinstate"]
        nobody = {"name": "p9", "role": "respondent"}
        assert httpx.post(up.steward + "/v1/tokens", json=nobody, headers=steward).status_code == 400


@pytest.mark.parametrize("act", ["pause", "revoke"])
def test_an_open_session_ends_with_its_token(serve: Any, act: str) -> None:
    psycopg = pytest.importorskip("psycopg")
    with serve() as up, psycopg.connect(up.dsn(), autocommit=True) as session:
        session.execute("SET deniable.epsilon = 1")
        session.execute("SELECT COUNT(*) AS n FROM people").fetchone()
        tokens = httpx.get(up.steward + "/v1/tokens", headers=bearer(up.tokens["steward"])).json()["tokens"]
        path = f"{up.steward}/v1/tokens/{next(each['id'] for each in tokens if each['name'] == 'ana')}"
        if act == "pause":
            httpx.post(path + "/pause", json={"reason": "looked at"}, headers=bearer(up.tokens["steward"]))
        else:
            httpx.delete(path, headers=bearer(up.tokens["steward"]))
        time.sleep(0.3)
        for question in ("SELECT COUNT(*) AS m FROM people", "SELECT 1", "EXPLAIN SELECT COUNT(*) FROM people"):
            with pytest.raises(psycopg.Error, match=r"token is (paused|not valid)"):
                session.execute(question)
        assert len(list(up.curator.ledger.entries(acts=("charge",)))) == 1


def test_servers_over_one_postgres_share_the_limits_of_an_asker(serve, clinic_policy, postgres_address, monkeypatch):
    monkeypatch.setattr("deniable.server.serve.SHARE_SECONDS", 0.05)
    limits = Limits(rate=0.01, burst=20, quantum=0.005)
    with serve(clinic_policy, limits, ledger=postgres_address) as first:
        with serve(clinic_policy, limits, ledger=postgres_address) as second:
            for each in (first, second):
                wait_for_servers(each, 2)
            time.sleep(1)  # until both have looked again
            header = {"authorization": f"Bearer {first.tokens['ana']}"}
            places = [f"{each.http}/v1/remaining" for each in (first, second) for _ in range(20)]
            told = [httpx.get(place, headers=header, timeout=60).status_code for place in places]
            assert (told.count(200), told.count(429)) == (20, 20)
        wait_for_servers(first, 1)


def wait_for_servers(served: Any, number: int) -> None:
    """Wait until a server's ledger counts so many servers."""
    until = time.monotonic() + 30
    while (found := served.curator.ledger.store.count_servers()) != number and time.monotonic() < until:
        time.sleep(0.05)
    assert found == number
