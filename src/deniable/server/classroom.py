"""A class that answers with phones: one question at a time, randomized on each phone, counted in memory.

The teacher opens a round with a key; phones in the network fetch the question and send one bit each, which the phone
has randomized. Nothing is written to a disk or a log, and no answer is kept beside who sent it: a round is two counts
and the tickets that have answered. Estimates are made in the teacher's browser.

Phones may be hostile: requests are small, of one shape and limited for each address; texts are sent as JSON, which the
pages set as text. A phone can still lie, as a person with coins can: it moves the count by one."""

from __future__ import annotations

import hmac
import ipaddress
import json
import secrets
import socket
from collections import Counter
from dataclasses import asdict, dataclass, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any
from urllib.parse import urlsplit

from deniable.errors import ParameterError, StorageError
from deniable.reports.lessons import build_pages

MOST_PHONES = 500
MOST_TICKETS_AN_ADDRESS = 4
"""Phones behind one address, as behind one router; more tickets would let one phone vote often."""
MOST_CONNECTIONS_AN_ADDRESS = 16
MOST_BYTES = 1000
MOST_LETTERS = 200
DESIGNS = ("coins", "envelopes", "die")
SECONDS = 10


class Refused(Exception):
    """A request that is answered with an error; the words are ours alone."""

    def __init__(self, status: HTTPStatus, words: str) -> None:
        super().__init__(words)
        self.status, self.words = status, words


@dataclass(frozen=True, slots=True)
class Round:
    """What phones may know of a round."""

    number: int = 0
    question: str = ""
    design: str = "coins"
    is_open: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """What the teacher sees besides: counts, and how many phones have joined."""

    yes: int
    answers: int
    phones: int


class Classroom:
    """The rounds of one class: the question that is open, two counts, and who has answered."""

    def __init__(self) -> None:
        self.key, self.identity, self.round = secrets.token_urlsafe(16), secrets.token_hex(8), Round()
        self._lock, self._tickets, self._issued = Lock(), set[str](), Counter[str]()
        self._counts, self._answered = [0, 0], set[str]()

    def count(self) -> Tally:
        """The counts of the round."""
        with self._lock:
            return Tally(self._counts[1], sum(self._counts), len(self._tickets))

    def open_round(self, question: object, design: object) -> None:
        """Ask a new question; counts begin at zero."""
        if not isinstance(question, str) or not 1 <= len(question.strip()) <= MOST_LETTERS:
            raise Refused(HTTPStatus.BAD_REQUEST, f"A question has 1 to {MOST_LETTERS} letters.")
        if design not in DESIGNS:
            raise Refused(HTTPStatus.BAD_REQUEST, "Chance comes from coins, envelopes or die.")
        with self._lock:
            self.round = Round(self.round.number + 1, question.strip(), str(design), True)
            self._counts, self._answered = [0, 0], set()

    def close_round(self) -> None:
        """Take no more answers."""
        with self._lock:
            self.round = replace(self.round, is_open=False)

    def issue_ticket(self, address: str) -> str:
        """A phone's right to one answer a round."""
        with self._lock:
            if len(self._tickets) >= MOST_PHONES or self._issued[address] >= MOST_TICKETS_AN_ADDRESS:
                raise Refused(HTTPStatus.TOO_MANY_REQUESTS, "Too many phones have joined from here.")
            ticket = secrets.token_urlsafe(12)
            self._tickets.add(ticket)
            self._issued[address] += 1
            return ticket

    def take_answer(self, ticket: object, number: object, answer: object) -> None:
        """Count one randomized bit."""
        if answer not in (0, 1) or isinstance(answer, bool | float):
            raise Refused(HTTPStatus.BAD_REQUEST, "An answer is 0 or 1.")
        with self._lock:
            if not isinstance(ticket, str) or ticket not in self._tickets:
                raise Refused(HTTPStatus.FORBIDDEN, "This ticket is not known.")
            if number != self.round.number or not self.round.is_open:
                raise Refused(HTTPStatus.CONFLICT, "This round is closed.")
            if ticket in self._answered:
                raise Refused(HTTPStatus.CONFLICT, "This phone has answered.")
            self._answered.add(ticket)
            self._counts[int(str(answer))] += 1


class ClassServer(ThreadingHTTPServer):
    """The lessons and a classroom over HTTP; one request a connection, few connections an address."""

    daemon_threads = True

    def __init__(self, host: str, port: int) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.classroom = Classroom()
        self.pages = {f"/{name}": text.encode() for name, text in build_pages(served=True).items()}
        self.pages["/"] = self.pages["/join.html"]
        self._busy, self._guard = Counter[str](), Lock()
        super().__init__((host, port), Handler)

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002 - http.server gives both
        """Whether the address has not too many connections open already."""
        with self._guard:
            if self._busy[client_address[0]] >= MOST_CONNECTIONS_AN_ADDRESS:
                return False
            self._busy[client_address[0]] += 1
            return True

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Handle one request, and give its place free again."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._guard:
                self._busy[client_address[0]] -= 1

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is nobody's concern, and nothing of it is printed."""

    @property
    def place(self) -> str:
        """The address of this computer, as a browser on it writes it."""
        host, port = self.server_address[:2]
        name = str(host)
        return f"http://{'127.0.0.1' if name in ('0.0.0.0', '::') else f'[{name}]' if ':' in name else name}:{port}"  # noqa: S104

    @property
    def phones_place(self) -> str:
        """The address to write on the board."""
        host, port = self.server_address[:2]
        return f"http://{find_own_address()}:{port}" if str(host) in ("0.0.0.0", "::") else self.place  # noqa: S104


def start_server(host: str, port: int) -> ClassServer:
    """A server that listens; whoever starts it lets it serve."""
    try:
        return ClassServer(host, port)
    except OverflowError as refused:
        raise ParameterError(f"There is no port {port}", expected="a port from 0 to 65535") from refused
    except OSError as refused:
        raise StorageError(
            f"Nothing can listen at {host}:{port}: {refused.strerror}",
            remedy="Choose another --host or --port",
            charge="",
        ) from refused


def find_own_address() -> str:
    """This computer's address in its network. No packet is sent: the system only looks up a route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


class Handler(BaseHTTPRequestHandler):
    """One request: a page, or a small JSON document."""

    server: ClassServer
    timeout = SECONDS
    server_version, sys_version = "deniable", ""

    def do_GET(self) -> None:  # the name that http.server asks for
        """Answer with a page, or with the round."""
        self._answer(self._read_get)

    def do_POST(self) -> None:
        """Take a ticket, an answer, or a word of the teacher."""
        self._answer(self._read_post)

    def _answer(self, act: Any) -> None:
        try:
            self._check_host()
            kind, body = act(urlsplit(self.path).path)
            self._send(HTTPStatus.OK, kind, body)
        except Refused as refused:
            self._send(refused.status, "application/json", _encode({"error": refused.words}))

    def _read_get(self, path: str) -> tuple[str, bytes]:
        if path == "/round":
            return "application/json", _encode(self._describe_round())
        if path == "/teach/round":
            self._check_key()
            counts = asdict(self.server.classroom.count())
            return "application/json", _encode({**self._describe_round(), **counts, "join": self.server.phones_place})
        if path not in self.server.pages:
            raise Refused(HTTPStatus.NOT_FOUND, "There is no such page.")
        return "text/html; charset=utf-8", self.server.pages[path]

    def _describe_round(self) -> dict[str, object]:
        return {"class": self.server.classroom.identity, **asdict(self.server.classroom.round)}

    def _read_post(self, path: str) -> tuple[str, bytes]:
        room, body = self.server.classroom, self._read_body()
        if path == "/ticket":
            return "application/json", _encode({"ticket": room.issue_ticket(str(self.client_address[0]))})
        if path == "/answer":
            room.take_answer(body.get("ticket"), body.get("round"), body.get("answer"))
        elif path == "/teach/open":
            self._check_key()
            room.open_round(body.get("question"), body.get("design"))
        elif path == "/teach/close":
            self._check_key()
            room.close_round()
        else:
            raise Refused(HTTPStatus.NOT_FOUND, "There is no such page.")
        return "application/json", _encode({})

    def _read_body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if self.headers.get("Content-Type") != "application/json" or not (length.isascii() and length.isdigit()):
            raise Refused(HTTPStatus.BAD_REQUEST, "A JSON document with its length was expected.")
        if len(length) > 6 or int(length) > MOST_BYTES:
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"At most {MOST_BYTES} bytes are read.")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise Refused(HTTPStatus.BAD_REQUEST, "A JSON document was expected.")
        return body

    def _check_key(self) -> None:
        given = self.headers.get("X-Class-Key", "")
        if not hmac.compare_digest(given.encode(), self.server.classroom.key.encode()):
            raise Refused(HTTPStatus.FORBIDDEN, "Only the teacher's page, with its key, may do this.")

    def _check_host(self) -> None:
        """Refuse names: a page elsewhere could let its own name mean this computer, and ask through our browser."""
        host = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
        try:
            ipaddress.ip_address(host)
        except ValueError:
            if host != "localhost":
                words = "Open this server by its address in numbers."
                raise Refused(HTTPStatus.MISDIRECTED_REQUEST, words) from None

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        headers = {"Content-Type": kind, "Content-Length": str(len(body)), "Cache-Control": "no-store",
                   "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
                   "Content-Security-Policy": "frame-ancestors 'none'"}  # fmt: skip
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep no log: it would say which phone answered when."""


def _encode(document: dict[str, object]) -> bytes:
    return json.dumps(document).encode()
