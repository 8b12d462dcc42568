"""The class with phones over real HTTP: what the teacher may do, and what hostile phones may not."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from deniable.errors import DeniableError
from deniable.server import classroom
from deniable.server.classroom import ClassServer, start_server


@pytest.fixture
def server() -> Iterator[ClassServer]:
    with start_server("127.0.0.1", 0) as opened:
        thread = threading.Thread(target=opened.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield opened
        opened.shutdown()
        thread.join()


def call(server: ClassServer, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=60)
    sent = json.dumps(body) if method == "POST" else None
    kind = {"Content-Type": "application/json"} if method == "POST" else {}
    connection.request(method, path, sent, kind | {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    told = json.loads(text) if answer.headers["Content-Type"] == "application/json" else text
    return answer.status, told


def teach(server: ClassServer, path: str, body: Any = None) -> tuple[int, Any]:
    return call(server, "POST" if body is not None else "GET", path, body, X_Class_Key=server.classroom.key)


def join(server: ClassServer) -> str:
    status, told = call(server, "POST", "/ticket", {})
    assert status == 200
    return told["ticket"]


def answer(server: ClassServer, ticket: str, bit: object, number: int = 1) -> int:
    return call(server, "POST", "/answer", {"ticket": ticket, "round": number, "answer": bit})[0]


OPEN = {"question": "Did you?", "design": "coins"}


def test_answers_of_an_open_round_are_counted_and_only_the_teacher_sees_the_counts(server):
    assert teach(server, "/teach/open", OPEN)[0] == 200
    assert [answer(server, join(server), bit) for bit in (1, 0, 1)] == [200] * 3
    _, told = teach(server, "/teach/round")
    assert (told["yes"], told["answers"], told["phones"], told["question"]) == (2, 3, 3, "Did you?")
    status, public = call(server, "GET", "/round")
    assert status == 200
    assert set(public) == {"class", "number", "question", "design", "is_open"}


@pytest.mark.parametrize("path", ["/teach/open", "/teach/close"])
@pytest.mark.parametrize("key", ["", "wrong", "schlüssel"])
def test_without_the_key_nobody_opens_or_closes_a_round(server, path, key):
    assert call(server, "POST", path, OPEN, X_Class_Key=key.encode().decode("latin-1"))[0] == 403
    assert call(server, "GET", "/teach/round", X_Class_Key=key.encode().decode("latin-1"))[0] == 403
    assert call(server, "GET", "/round")[1]["number"] == 0


def test_a_phone_answers_once_a_round_and_only_while_it_is_open(server):
    ticket = join(server)
    assert answer(server, ticket, 1) == 409  # nothing is open
    teach(server, "/teach/open", OPEN)
    assert answer(server, ticket, 1) == 200
    assert answer(server, ticket, 1) == 409
    teach(server, "/teach/open", OPEN)
    assert answer(server, ticket, 1, number=1) == 409  # the last round
    assert answer(server, ticket, 0, number=2) == 200
    teach(server, "/teach/close", {})
    assert answer(server, join(server), 0, number=2) == 409
    assert teach(server, "/teach/round")[1]["answers"] == 1


@pytest.mark.parametrize("bit", [2, -1, True, 1.0, "1", None, [1], {"a": 1}])
def test_only_a_bit_is_an_answer(server, bit):
    teach(server, "/teach/open", OPEN)
    assert answer(server, join(server), bit) == 400
    assert teach(server, "/teach/round")[1]["answers"] == 0


def test_one_address_gets_few_tickets_and_an_invented_ticket_counts_for_nothing(server):
    for _ in range(classroom.MOST_TICKETS_AN_ADDRESS):
        join(server)
    assert call(server, "POST", "/ticket", {})[0] == 429
    teach(server, "/teach/open", OPEN)
    assert answer(server, "invented", 1) == 403
    assert teach(server, "/teach/round")[1]["answers"] == 0


def test_the_class_has_a_largest_size(monkeypatch):
    monkeypatch.setattr(classroom, "MOST_PHONES", 3)
    room = classroom.Classroom()
    for number in range(3):
        room.issue_ticket(f"10.0.0.{number}")
    with pytest.raises(classroom.Refused, match="Too many phones"):
        room.issue_ticket("10.0.0.9")


def send_raw(server: ClassServer, text: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", server.server_address[1]), timeout=60) as peer:
        peer.sendall(text)
        with contextlib.suppress(OSError):  # it may have closed the connection already
            peer.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: peer.recv(65536), b""))


@pytest.mark.parametrize(
    ("head", "body", "status"),
    [
        ("Content-Type: application/json\r\nContent-Length: 100000000", "", b"413"),
        ("Content-Type: application/json\r\nContent-Length: 99999999999999999999999", "", b"413"),
        ("Content-Type: application/json\r\nContent-Length: -5", "", b"400"),
        ("Content-Type: application/json", "", b"400"),
        ("Content-Type: application/json\r\nTransfer-Encoding: chunked", "2\r\n{}\r\n0\r\n\r\n", b"400"),
        ("Content-Type: text/plain\r\nContent-Length: 2", "{}", b"400"),  # what another site's form could send
        ("Content-Type: application/json\r\nContent-Length: 2", "[]", b"400"),
        ("Content-Type: application/json\r\nContent-Length: 2", "{{", b"400"),
        ("Content-Type: application/json\r\nContent-Length: 900", "[" * 900, b"400"),
    ],
)
def test_requests_of_another_shape_are_refused_in_our_words(server, head, body, status):
    got = send_raw(server, f"POST /ticket HTTP/1.1\r\nHost: 127.0.0.1\r\n{head}\r\n\r\n{body}".encode())
    assert got.split()[1] == status
    assert b'{"error": "' in got


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "127.0.0.1.evil.example"])
def test_a_name_in_place_of_the_address_is_refused(server, host):
    assert call(server, "GET", "/round", Host=host)[0] == 421


def test_names_and_texts_of_a_question_are_limited(server):
    for body in (
        {**OPEN, "question": "x" * 201},
        {**OPEN, "question": " "},
        {**OPEN, "question": 5},
        {**OPEN, "design": "x"},
        {},
    ):
        assert teach(server, "/teach/open", body)[0] == 400
    assert call(server, "GET", "/round")[1]["number"] == 0


@pytest.mark.parametrize("path", ["/../pyproject.toml", "/static/toy.js", "//etc/passwd", "/%2e%2e/x", "/class.html/x"])
def test_nothing_but_the_pages_is_served(server, path):
    assert call(server, "GET", path)[0] == 404


def test_a_crowd_of_idle_connections_from_one_address_does_not_stop_the_others(server, monkeypatch):
    monkeypatch.setattr(classroom, "MOST_CONNECTIONS_AN_ADDRESS", 3)
    idle = [socket.create_connection(("127.0.0.1", server.server_address[1])) for _ in range(3)]
    for peer in idle:
        peer.sendall(b"GET /round HTTP/1.1\r\n")
    fourth = send_raw(server, b"GET /round HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    assert fourth == b""  # closed at once
    idle[0].sendall(b"Host: 127.0.0.1\r\n\r\n")
    assert idle[0].recv(65536).startswith(b"HTTP/1.0 200")
    for peer in idle:
        peer.close()


def test_what_is_answered_may_not_be_framed_sniffed_or_kept(server):
    got = send_raw(server, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").split(b"\r\n\r\n")[0].decode().lower()
    for header in ("frame-ancestors 'none'", "nosniff", "no-store", "no-referrer"):
        assert header in got


def test_a_port_that_is_taken_is_a_refusal(server):
    with pytest.raises(DeniableError, match="Nothing can listen"):
        start_server("127.0.0.1", server.server_address[1])
