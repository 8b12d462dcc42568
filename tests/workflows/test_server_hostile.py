"""Hostile clients: whatever they send, no data, no traceback and no hang comes back, and the server goes on."""

from __future__ import annotations

import contextlib
import random
import re
import socket
import struct
import time
from typing import Any

import httpx
import pytest

import server_fuzzer
from deniable.server.wire.catalog_queries import CatalogEngine

psycopg = pytest.importorskip("psycopg")

INJECTIONS = (
    "SELECT note FROM people",
    "SELECT COUNT(*) FROM people; SELECT note FROM people",
    "SELECT COUNT(*) FROM people UNION ALL SELECT note FROM people",
    "SELECT COUNT(*) FROM people UNION SELECT secret FROM read_csv('secret.csv')",
    "SELECT * FROM 'secret.csv'",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_csv_auto('people.parquet')",
    "SELECT * FROM glob('/*')",
    "SELECT content FROM pg_class, read_text('secret.csv')",
    "SELECT (SELECT note FROM people LIMIT 1)",
    "SELECT (SELECT string_agg(note, ',') FROM people) FROM pg_class",
    "SELECT MIN(note) FROM people",
    "SELECT getenv('HOME')",
    "SELECT * FROM duckdb_settings()",
    "SELECT * FROM duckdb_tables",
    "SELECT * FROM pragma_database_list",
    "SELECT * FROM sqlite_master",
    "SELECT current_setting('temp_directory')",
    "ATTACH '/etc/passwd' AS x",
    "COPY people TO '/dev/stdout'",
    "COPY (SELECT note FROM people) TO STDOUT",
    "INSTALL httpfs",
    "LOAD httpfs",
    "PRAGMA database_list",
    "CREATE TABLE x AS SELECT * FROM people",
    "INSERT INTO people VALUES ('x')",
    "DELETE FROM people",
    "DROP TABLE people",
    "UPDATE people SET note = ''",
    "CALL pragma_version()",
    "EXPLAIN ANALYZE SELECT note FROM people",
    "EXPLAIN (FORMAT JSON) SELECT note FROM people",
    "WITH x AS (SELECT note FROM people) SELECT * FROM x",
    "WITH RECURSIVE x(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM x) SELECT * FROM x, pg_class",
    "SELECT * FROM pg_class p1, pg_type p2, people",
    "SELECT * FROM pg_catalog.people",
    "SELECT * FROM main.people",
    "SELECT * FROM information_schema.people",
    "SELECT * FROM (SELECT * FROM people) AS pg_class",
    'SELECT * FROM pg_class, "people"',
    "SELECT relname FROM pg_class WHERE relname = (SELECT note FROM people LIMIT 1)",
    "VALUES ((SELECT note FROM people LIMIT 1))",
    "TABLE people",
    "SELECT note FROM people WHERE 1 = 1 -- COUNT(*)",
    "SELECT/**/note/**/FROM/**/people",
    "SELECT COUNT(*) FROM people GROUP BY note HAVING error(note)",
    "SELECT error(note) FROM people",
    "SELECT COUNT(*) / 0 FROM people WHERE CAST(note AS INTEGER) = 1",
    "DECLARE c CURSOR FOR SELECT note FROM people",
    "FETCH ALL FROM c",
    "PREPARE x AS SELECT note FROM people",
    "EXECUTE x",
    "DO $$ BEGIN PERFORM note FROM people; END $$",
    "LISTEN x",
    "SELECT '" + "a" * 99_000,
    "SELECT " + "(" * 5000 + "1" + ")" * 5000,
    "SELECT " + "-" * 3000 + "1",
    "\x00",
    "/* /* */",
    "$$",
    "'",
    ";;;;",
)


def is_alive(served: Any) -> None:
    """The server answers a good question and a new session."""
    with psycopg.connect(served.dsn(), connect_timeout=20) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)
    assert httpx.get(served.http + "/health", timeout=20).status_code == 200


@pytest.mark.quick_cases(20)
@pytest.mark.parametrize("statement", INJECTIONS, ids=range(len(INJECTIONS)))
def test_no_statement_reads_rows_files_or_settings_over_http(served, statement):
    headers = {"authorization": f"Bearer {served.tokens['ana']}"}
    for path in ("/v1/query", "/v1/explain"):
        body = {"sql": statement, "epsilon": "0.001"}
        told = httpx.post(served.http + path, json=body, headers=headers, timeout=60)
        assert told.status_code != 500, told.text[:500]
        for leak in ("CANARY", "root:", "Traceback", "memory_limit", str(served.folder)):
            assert leak not in told.text


def test_no_statement_reads_rows_files_or_settings_over_the_wire(served):
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        connection.execute("SET deniable.epsilon = 0.001")
        for statement in INJECTIONS:
            if "\x00" in statement:
                continue
            shown = ""
            try:
                cursor = connection.execute(statement)
                shown = str(cursor.fetchall()) if cursor.description else ""
            except psycopg.Error as refused:
                shown = f"{refused.sqlstate} {refused}"
            assert not shown.startswith(("XX000", "None")), (statement[:200], shown)
            for leak in ("CANARY", "root:", "Traceback", "memory_limit", str(served.folder)):
                assert leak not in shown, statement[:200]
    is_alive(served)


def startup(served: Any) -> socket.socket:
    """A connection that has entered with a token as password, under a name that has none of its own to prove."""
    return enter(served, served.tokens["ana"])[0]


def enter(served: Any, password: str) -> tuple[socket.socket, list[tuple[bytes, bytes]]]:
    """A connection, and what was said to it after its password."""
    wire = socket.create_connection(("127.0.0.1", served.postgres), timeout=20)
    content = struct.pack("!i", 196608) + b"user\0anybody\0database\0clinic\0\0"
    wire.sendall(struct.pack("!i", len(content) + 4) + content)
    read_until(wire, b"R")
    wire.sendall(message(b"p", password.encode() + b"\0"))
    return wire, read_until(wire, b"Z")


def read_until(wire: socket.socket, letter: bytes) -> list[tuple[bytes, bytes]]:
    """Messages up to one with a letter, or up to the end."""
    found = []
    while True:
        head = take(wire, 5)
        if len(head) < 5:
            return found
        body = take(wire, struct.unpack("!i", head[1:])[0] - 4)
        found.append((head[:1], body))
        if head[:1] == letter:
            return found


def take(wire: socket.socket, count: int) -> bytes:
    """So many bytes, or what there is."""
    parts = b""
    while len(parts) < count:
        try:
            piece = wire.recv(count - len(parts))
        except ConnectionError:
            break
        if not piece:
            break
        parts += piece
    return parts


def message(letter: bytes, body: bytes, length: int | None = None) -> bytes:
    """A message, whose length may lie."""
    return letter + struct.pack("!i", len(body) + 4 if length is None else length) + body


def ask_wire(served: Any) -> server_fuzzer.Ask:
    """Sends bytes to a session that has entered; the kind of an answer are its letters and codes."""

    def ask(sent: bytes) -> str:
        with startup(served) as wire:
            with contextlib.suppress(ConnectionError):
                wire.sendall(sent)
                wire.shutdown(socket.SHUT_WR)
            answers = read_until(wire, b"never")
        told = b"".join(body for _, body in answers)
        for leak in (b"Traceback", b"CANARY", b"CXX000"):
            assert leak not in told, server_fuzzer.escape(sent)
        codes = (re.search(rb"\0C(\w{5})\0", b"\0" + body) for letter, body in answers if letter in b"EN")
        letters = re.sub(r"(.)\1+", r"\1", b"".join(letter for letter, _ in answers).decode("latin-1"))
        return " ".join([letters or "-", *sorted({each[1].decode() for each in codes if each})])

    return ask


def ask_http(served: Any) -> server_fuzzer.Ask:
    """Sends bytes to the analysts' port; the kind of an answer is its status, its code and its first words."""
    token = served.tokens["ana"].encode()

    def ask(sent: bytes) -> str:
        answer = raw(served, sent.replace(b"TOKEN", token), patience=1)
        for leak in (b"Traceback", b"CANARY", b" 500 "):
            assert leak not in answer, server_fuzzer.escape(sent)
        head, _, body = answer.partition(b"\r\n\r\n")
        told = re.search(rb'"error": ?"(\w+)", ?"happened": ?"([^"\\\\]*)', body)
        shown = f"{told[1].decode()} {server_fuzzer.name_words(told[2].decode())}" if told else ""
        return f"{head[9:12].decode('latin-1') or '-'} {shown}".strip()

    return ask


PROTOCOLS = {"wire": ask_wire, "http": ask_http}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_in_the_corpus_ends_in_an_error_or_the_end_of_the_session(served, protocol):
    ask = PROTOCOLS[protocol](served)
    kinds = {ask(sent) for sent in server_fuzzer.read_corpus(protocol)}
    assert len(kinds) > 10, "a corpus holds inputs that are answered in many ways"
    is_alive(served)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_made_of_the_corpus_does_no_harm(served, protocol):
    seed = random.randrange(10**9) if server_fuzzer.ROUNDS else 7
    grown = server_fuzzer.grow(protocol, PROTOCOLS[protocol](served), server_fuzzer.ROUNDS or 1_500, seed)
    if server_fuzzer.ROUNDS:
        server_fuzzer.write_corpus(protocol, grown)
    is_alive(served)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_fuzzer_keeps_what_is_answered_anew_and_stops_at_harm(protocol):
    corpus = server_fuzzer.read_corpus(protocol)
    found = server_fuzzer.grow(protocol, lambda sent: f"{sent.count(bytes(1)) % 40}", 300)
    assert len(set(found) - set(corpus)) > 10
    assert len(set(found.values())) > len({sent.count(bytes(1)) % 40 for sent in corpus})

    def do_harm(sent: bytes) -> str:
        assert b"1e999" not in sent or sent in corpus
        return "always"

    with pytest.raises(AssertionError):
        server_fuzzer.grow(protocol, do_harm, 3_000)


def test_random_bytes_before_and_after_the_start_do_no_harm(served):
    rng = random.Random(7)
    for _ in range(30):
        with socket.create_connection(("127.0.0.1", served.postgres), timeout=20) as wire:
            wire.sendall(rng.randbytes(rng.randrange(1, 200)))
            wire.shutdown(socket.SHUT_WR)
            answer = take(wire, 1 << 20)
        assert b"Traceback" not in answer
        assert b"CANARY" not in answer
    with startup(served) as wire:
        for _ in range(50):
            letter = rng.choice(b"QPBDECHSFX").to_bytes(1, "big")
            try:
                wire.sendall(message(letter, rng.randbytes(rng.randrange(40))))
            except ConnectionError:
                break
    is_alive(served)


def test_bytes_before_the_tls_handshake_are_not_taken(serve, certificate):
    with serve(certificate=certificate[0], key=certificate[1]) as secured:
        with socket.create_connection(("127.0.0.1", secured.postgres), timeout=20) as wire:
            wire.sendall(struct.pack("!ii", 8, 80877103) + message(b"Q", b"SELECT 1\0"))
            answer = take(wire, 1000)
        assert b"unencrypted" in answer
        assert not answer.startswith(b"S")


def test_tokens_cannot_be_guessed_quickly(serve):
    from deniable.server.limits import Limits

    with serve(limits=Limits(guesses=5, quantum=0.001)) as strict:
        found = []
        for i in range(8):
            headers = {"authorization": f"Bearer deniable_{i}"}
            found.append(httpx.get(strict.http + "/v1/remaining", headers=headers).status_code)
        assert found == [401] * 5 + [429] * 3
        for _ in range(2):
            with pytest.raises(psycopg.OperationalError, match="too many"):
                psycopg.connect(strict.dsn().replace(strict.tokens["ana"], "deniable_guess"))
        psycopg.connect(strict.dsn()).close()  # a right token from the same address is let in


PATHS = (
    "/../../etc/passwd", "/static/../serve.py", "/static/..%2f..%2fserve.py", "/static/%2e%2e/serve.py", "//etc/passwd",
    "/v1/schema/..%2f..%2fetc%2fpasswd/dummies", "/v1/receipts/..%2f..", "/v1/receipts/%00", "/%ff%fe", "/first/x",
    "/.env", "/.git/config", "/v1/register/", "/static/", "/templates/base.html",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_paths_lead_nowhere_else(served, path):
    with socket.create_connection(("127.0.0.1", int(served.http.rsplit(":", 1)[1])), timeout=20) as wire:
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.tokens['ana']}\r\n"
        wire.sendall((head + "Connection: close\r\n\r\n").encode("latin-1"))
        answer = take(wire, 1 << 20)
    assert answer.split(b" ")[1] in (b"400", b"404")
    for leak in (b"root:", b"import ", b"CANARY", b"Traceback", b"{%"):
        assert leak not in answer


def raw(served: Any, sent: bytes, seconds: float = 20, patience: float = 0) -> bytes:
    """What the HTTP port answers to some bytes; a client with patience ends what it sends after so many seconds."""
    with socket.create_connection(("127.0.0.1", int(served.http.rsplit(":", 1)[1])), timeout=seconds) as wire:
        first = b""
        with contextlib.suppress(OSError):
            wire.sendall(sent)
            if patience:
                wire.settimeout(patience)
                with contextlib.suppress(TimeoutError):
                    first = wire.recv(1 << 16)
                wire.settimeout(seconds)
                wire.shutdown(socket.SHUT_WR)
        return first + take(wire, 1 << 16)


def test_header_tricks_are_refused(served):
    token = served.tokens["ana"]
    end = "Connection: close\r\n\r\n"
    for host in ("evil.example", "127.0.0.1:80@evil.example", "[::1]:80@evil.example", "127.0.0.1:80:80"):
        assert b"421" in raw(served, f"GET /v1/register HTTP/1.1\r\nHost: {host}\r\n{end}".encode())[:30], host
    long = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nA: " + b"x" * 100_000 + b"\r\n\r\n"
    assert raw(served, long).split(b" ")[1:2] in ([b"400"], [b"431"], [])
    smuggled = "POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n"
    answer = raw(served, (smuggled + end + "0\r\n\r\nGET /v1/releases HTTP/1.1\r\n\r\n").encode())
    assert b"200 OK" not in answer
    forged = "GET /v1/tokens HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 127.0.0.1\r\nX-Original-URL: /v1/audit\r\n"
    assert b"404" in raw(served, (forged + f"Authorization: Bearer {token}\r\n" + end).encode())[:30]
    for kind in ("Basic", "bearer bearer", "Token", ""):
        headers = {"authorization": f"{kind} {token}".strip()}
        assert httpx.get(served.http + "/v1/remaining", headers=headers).status_code == 401
    odd = httpx.post(served.http + "/v1/query", json={"sql": "SELECT 1"}, headers={
        "authorization": f"Bearer {token}", "x-request-id": "x" * 300})  # fmt: skip
    assert odd.status_code == 400


def test_oversized_and_endless_bodies_are_cut_off(served):
    headers = {"authorization": f"Bearer {served.tokens['ana']}", "content-type": "application/json"}
    large = httpx.post(served.http + "/v1/query", content=b" " * 200_000, headers=headers)
    assert large.status_code == 413

    def endless() -> Any:
        for _ in range(10_000):
            yield b"[" * 1000

    with contextlib.suppress(httpx.HTTPError):  # the connection may be closed while we are still sending
        assert httpx.post(served.http + "/v1/query", content=endless(), headers=headers).status_code == 413
    deep = httpx.post(served.http + "/v1/query", content=b"[" * 50_000, headers=headers)
    assert deep.status_code == 415
    is_alive(served)


def test_slow_clients_hold_nobody_up(served):
    port = int(served.http.rsplit(":", 1)[1])
    slow = [socket.create_connection(("127.0.0.1", port), timeout=20) for _ in range(30)]
    slow += [socket.create_connection(("127.0.0.1", served.postgres), timeout=20) for _ in range(30)]
    try:
        for wire in slow:
            wire.sendall(b"P")
        began = time.monotonic()
        is_alive(served)
        assert time.monotonic() - began < 20
    finally:
        for wire in slow:
            wire.close()


def test_statements_wait_until_their_client_reads_and_a_client_that_leaves_makes_no_noise(served, monkeypatch, capfd):
    begun: list[str] = []
    real = CatalogEngine.ask

    def ask(engine: CatalogEngine, statement: Any, *rest: Any) -> Any:
        begun.append(statement.text)
        return real(engine, statement, *rest)

    monkeypatch.setattr(CatalogEngine, "ask", ask)
    statement, count = "select repeat('x', 2000) from generate_series(1, 400);", 60  # 800,000 bytes each
    many = message(b"Q", (statement * count).encode() + b"\0")
    with startup(served) as wire:
        wire.sendall(many)
        seen = -1
        while seen != len(begun):
            seen = len(begun)
            time.sleep(1.5)
        assert 0 < seen < count, "the rest waits"
        is_alive(served)
        ended, answer = 0, b""
        while ended < count:
            part = wire.recv(1 << 20)
            assert part, "the server closed the connection"
            ended += (answer + part).count(b"SELECT 400\0")
            answer = (answer + part)[-10:]
    with startup(served) as wire:
        wire.sendall(many)
        until_begun = len(begun)
        while len(begun) == until_begun:
            time.sleep(0.05)
    is_alive(served)
    time.sleep(1)
    assert "Traceback" not in capfd.readouterr().err


def test_an_answer_about_the_catalog_is_limited_in_bytes_and_cells(served):
    many = ", ".join(f"repeat('x', 2000) AS c{place}" for place in range(16))
    cells = ", ".join(f"true AS c{place}" for place in range(60))
    pairs = "FROM generate_series(1, 1900) a, generate_series(1, 45) b"
    with psycopg.connect(served.dsn(), autocommit=True) as connection:
        for columns in (many, cells):
            with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="the answer about the catalog is too long"):
                connection.execute(f"SELECT {columns} {pairs}")
        assert len(connection.execute("SELECT * FROM pg_attribute").fetchall()) > 1
        assert len(connection.execute("SELECT 1 FROM generate_series(1, 1900) a").fetchall()) == 1900


def test_a_wrong_token_is_a_wrong_password_and_who_is_to_wait_is_told_so(serve):
    from deniable.server.limits import Limits

    with serve(limits=Limits(rate=0.001, burst=1)) as served:
        for password, said in ((served.tokens["ana"], b"Z"), (served.tokens["ana"], b"C53400"), ("no", b"C28P01")):
            wire, told = enter(served, password)
            wire.close()
            assert said in told[-1][0] + b"\0".join(part for part in told[-1][1].split(b"\0") if part[:1] == b"C")
        assert b"Wait 0.0" not in told[-1][1]


def test_a_portal_gives_its_rows_and_its_lines_once(served):
    def parse(sql: bytes) -> bytes:
        return message(b"P", b"\0" + sql + b"\0\0\0") + message(b"B", b"p\0\0" + struct.pack("!hhh", 0, 0, 0))

    def run(most: int) -> bytes:
        return message(b"E", b"p\0" + struct.pack("!i", most))

    with startup(served) as wire:
        asked = parse(b"SELECT a FROM generate_series(1, 5) a")
        wire.sendall(asked + run(2) + run(2) + run(2) + run(0) + message(b"S", b""))
        letters = b"".join(letter for letter, _ in read_until(wire, b"Z"))
        assert letters == b"12" + b"DDs" + b"DDs" + b"DC" + b"C" + b"Z"
        wire.sendall(message(b"C", b"Pp\0") + message(b"S", b""))
        read_until(wire, b"Z")
        wire.sendall(parse(b"COPY (SELECT 1 AS n) TO STDOUT") + run(0) + run(0) + message(b"S", b""))
        found = read_until(wire, b"Z")
        assert b"".join(letter for letter, _ in found) == b"12HdcCEZ"
        assert b"C55000\0" in found[-2][1]


def test_a_steward_is_needed_for_the_stewards_port(served):
    for path in ("/v1/requests", "/v1/tokens", "/v1/audit", "/v1/budgets"):
        assert httpx.get(served.steward + path).status_code == 401
    assert "Enter with your token" in httpx.get(served.steward + "/").text
    assert httpx.get(served.steward + "/first/guess").status_code == 403
    assert httpx.post(served.steward + "/first/guess").status_code == 403


def test_no_page_of_the_steward_is_shown_to_an_analyst(served):
    from deniable.server.service import Service
    from deniable.server.workbench.steward import OneTimeKey, StewardPages

    service = Service(served.curator)
    routes = StewardPages(service, OneTimeKey(), False).routes()
    service.close_threads()
    open_to_all = ("/static/", "/first/", "/enter", "/leave")
    paths = [each.path for each in routes if "GET" in (each.methods or ()) and not each.path.startswith(open_to_all)]
    assert {"/", "/budgets", "/estate", "/ledger", "/tokens"} <= set(paths)
    cookies = served.session("ana", "steward")
    with httpx.Client(base_url=served.steward, follow_redirects=True, cookies=cookies) as browser:
        entered = browser.post("/enter", data={"token": served.tokens["ana"]}, headers={"origin": served.steward})
        shown = {path: browser.get(re.sub(r"\{[^}]*\}", "x", path)).status_code for path in paths}
    assert entered.status_code == 403
    assert "This is the token of an analyst, who has no page here." in entered.text
    assert "auditor or steward" in entered.text
    assert "set-cookie" not in entered.headers
    assert {path: code for path, code in shown.items() if code not in (403, 404)} == {}


@pytest.mark.parametrize(
    "sent",
    [b"", b"\0", b"SCRAM-SHA-256\0", b"SCRAM-SHA-256\0\xff\xff\xff\xff", b"SCRAM-SHA-256\0\0\0\0\x04n,,n",
     b"SCRAM-SHA-256-PLUS\0\0\0\0\x03n,,", b"SCRAM-SHA-256\0\0\0\0\x0bn,,n=,r=\xff\xfe\xfd", b"x" * 70_000],
    ids=range(8),
)  # fmt: skip
def test_a_malformed_proof_ends_the_session_and_tells_nothing(served, sent):
    with socket.create_connection(("127.0.0.1", served.postgres), timeout=60) as wire:
        content = struct.pack("!i", 196608) + b"user\0ana\0database\0clinic\0\0"
        wire.sendall(struct.pack("!i", len(content) + 4) + content)
        assert b"SCRAM-SHA-256" in read_until(wire, b"R")[-1][1]
        wire.sendall(b"p" + struct.pack("!i", len(sent) + 4) + sent)
        found = read_until(wire, b"E")
        assert all(letter != b"Z" for letter, _ in found)
        assert b"Traceback" not in b"".join(body for _, body in found)
