"""The server of a federated round: takes masked vectors over HTTP, and ends with the sum. It never sees a client's own.

Steps are those of `learn/secure_sum.py`. A step ends when all that are in it have sent, or after `patience` seconds;
with fewer than the round's least number the round has failed. A client is told apart by a ticket that it gets when it
joins.
Put it behind https: the masks protect vectors, not the names of those who take part.
"""

from __future__ import annotations

import hmac
import json
import secrets
import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Lock, Thread
from typing import Any

from deniable.errors import DataError, DeniableError, ParameterError, StorageError
from deniable.learn.federated import Round, RoundResult, conclude, round_to_plain
from deniable.learn.secure_sum import Dealt, SumServer

STEPS = ("keys", "shares", "vectors", "opening", "done")
SECONDS = 30
"""How long one request may take."""
LINE = 600
"""Bytes of one client in a message, and more."""


def pack(value: bytes) -> str:
    """Bytes as text for JSON."""
    return b64encode(value).decode()


def _unpack_dealt(held: dict[str, Any]) -> Dealt:
    def pair(values: list[str]) -> tuple[bytes, bytes]:
        one, two = values
        return b64decode(one), b64decode(two)

    return Dealt(
        {int(place): b64decode(box) for place, box in held["boxes"].items()},
        {int(place): pair(values) for place, values in held["hashes"].items()},
        {int(place): b64decode(seed) for place, seed in held["seeds"].items()},
        b64decode(held["locked"]),
        pair(held["own"]),
    )


@dataclass(slots=True, eq=False)
class FederatedServer:
    """One round: which step it is in, who is there, and the result in the end."""

    what: Round
    patience: float = 60.0
    sums: SumServer = field(init=False)
    step: str = STEPS[0]
    tickets: dict[str, int] = field(default_factory=dict)
    result: RoundResult | None = None
    failure: str = ""
    left_out: set[int] = field(default_factory=set)
    """Clients whose pair seeds did not agree with those of others."""
    ended: Event = field(default_factory=Event)
    began: float = 0.0
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.sums, self.began = SumServer(self.what.terms), time.monotonic()

    def join(self, key: bytes) -> dict[str, Any]:
        """A place in the round for a key, and the ticket of all further messages."""
        with self._lock:
            self._require_step("keys")
            place, ticket = len(self.sums.keys) + 1, secrets.token_hex(16)
            self.sums.take_key(place, key)
            self.tickets[ticket] = place
            self._advance()
            return {"place": place, "ticket": ticket}

    def find_place(self, ticket: str) -> int:
        """The place of a ticket."""
        for known, place in self.tickets.items():
            if hmac.compare_digest(known.encode(), ticket.encode("utf-8", "surrogatepass")):
                return place
        raise DataError("this ticket is not one of the round", remedy="Join the round first")

    def take(self, ticket: str, step: str, text: bytes) -> None:
        """A message of the step that the round is in."""
        with self._lock:
            self._advance()
            place = self.find_place(ticket)
            self._require_step(step)
            try:
                self._take(place, step, text)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise DataError(
                    "the message is not one of this step", remedy="Use the client of this program"
                ) from None
            self._advance()

    def _take(self, place: int, step: str, text: bytes) -> None:
        if step == "shares":
            self.sums.take_shares(place, _unpack_dealt(json.loads(text)))
        elif step == "vectors":
            self.sums.take_vector(place, text)
        else:
            shares = {int(dealer): b64decode(share) for dealer, share in json.loads(text).items()}
            self.sums.take_opening(place, shares)

    def _require_step(self, step: str) -> None:
        if step != self.step:
            if not self.step or self.step == "failed":
                raise DataError("the round has failed", remedy="Join another round")
            raise DataError(f"the round is in the step '{self.step}'", remedy="Ask for the step again")

    def tell(self, ticket: str) -> dict[str, Any]:
        """The step, and what this client needs for it."""
        with self._lock:
            self._advance()
            place, sums = self.find_place(ticket), self.sums
            told: dict[str, Any] = {"step": self.step, "place": place, "failure": self.failure}
            if self.step == "shares":
                told["keys"] = {str(one): pack(key) for one, key in sums.keys.items()}
            if self.step == "vectors" and place in sums.dealt:
                boxes, hashes = sums.list_boxes(place)
                told["boxes"] = {str(one): pack(box) for one, box in boxes.items()}
                told["hashes"] = {str(one): [pack(each) for each in pair] for one, pair in hashes.items()}
            if self.step == "opening":
                told["answered"] = sorted(sums.vectors)
            if self.step == "done":
                told["clients"] = len(sums.vectors)
            return told

    def watch(self, over: bool = False) -> None:
        """End the step if its time is over, or if the caller says so."""
        with self._lock:
            self._advance(over)

    def _advance(self, over: bool = False) -> None:
        """Go to the next step where all have sent, or where the time is over."""
        if self.step in ("done", ""):
            return
        sums, terms = self.sums, self.sums.terms
        by_step: dict[str, Mapping[int, object]] = {
            "keys": sums.keys,
            "shares": sums.dealt,
            "vectors": sums.vectors,
            "opening": sums.openings,
        }
        sent = by_step[self.step]
        awaited = {"keys": terms.clients, "shares": len(sums.keys), "vectors": len(sums.dealt)}
        late = over or time.monotonic() - self.began > self.patience
        if len(sent) < awaited.get(self.step, len(sums.vectors)) and not late:
            return
        if self.step == "shares":
            self.left_out = sums.find_unequal_pairs()
            sums.leave_out(self.left_out)
        enough = terms.threshold if self.step == "opening" else terms.least
        if len(sent) < enough:
            self._fail(f"{len(sent)} clients were left in the step '{self.step}', and {enough} are needed")
        elif self.step == "opening":
            self._conclude()
        else:
            self.step, self.began = STEPS[STEPS.index(self.step) + 1], time.monotonic()

    def _conclude(self) -> None:
        try:
            self.result = conclude(self.what, self.sums.total(), len(self.sums.vectors))
        except DataError as refusal:
            self._fail(refusal.happened)
            return
        self.step = "done"
        self.ended.set()

    def _fail(self, why: str) -> None:
        self.step, self.failure = "", why
        self.ended.set()


class _Handler(BaseHTTPRequestHandler):
    """Routes: GET /round and /step; POST /join, /shares, /vectors and /opening. A ticket is a header."""

    round: FederatedServer
    timeout = SECONDS
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        routes: dict[str, Callable[[], dict[str, Any]]] = {
            "/round": lambda: round_to_plain(self.round.what),
            "/step": lambda: self.round.tell(self.headers.get("ticket", "")),
        }
        self._answer(routes.get(self.path))

    def do_POST(self) -> None:
        text = self._read()
        if text is None:
            return
        if self.path == "/join":
            self._answer(lambda: self.round.join(text))
        elif self.path in ("/shares", "/vectors", "/opening"):
            self._answer(lambda: self._take(text))
        else:
            self._answer(None)

    def _take(self, text: bytes) -> dict[str, Any]:
        self.round.take(self.headers.get("ticket", ""), self.path[1:], text)
        return {}

    def _read(self) -> bytes | None:
        terms = self.round.sums.terms
        most = max(terms.length * terms.bits // 8, LINE * (terms.clients + 2))
        size = self.headers.get("content-length", "")
        if not size.isdecimal() or int(size) > most:
            self.close_connection = True
            self._send(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": "the message is larger than the round allows"})
            return None
        return self.rfile.read(int(size))

    def _answer(self, tell: Callable[[], dict[str, Any]] | None) -> None:
        if tell is None:
            self._send(HTTPStatus.NOT_FOUND, {"error": "there is no such page"})
            return
        try:
            self._send(HTTPStatus.OK, tell())
        except DeniableError as refusal:
            self._send(HTTPStatus.CONFLICT, {"error": str(refusal)})

    def _send(self, status: HTTPStatus, document: dict[str, Any]) -> None:
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: Any) -> None:
        """Nothing is logged: who takes part is not for a file."""


class _Listener(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is nobody's concern: the round waits for it, or goes on without."""


def serve_round(
    what: Round, host: str, port: int, patience: float, ready: Callable[[str], None] = lambda _: None
) -> FederatedServer:
    """Serve one round until it is done or has failed; `ready` is told the address."""
    if patience <= 0:
        raise ParameterError("patience is not above 0", expected="Seconds, such as 60")
    state = FederatedServer(what, patience)
    try:
        listener = _Listener((host, port), type("Handler", (_Handler,), {"round": state}))
    except OSError:
        raise StorageError(f"port {port} of {host} cannot be listened on", remedy="Name a free port") from None
    listener.daemon_threads = True
    thread = Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    try:
        ready(f"http://{host}:{listener.server_address[1]}")
        while not state.ended.wait(min(1.0, patience / 4)):
            state.watch()
        # Clients that ask once more are told how it ended.
        time.sleep(min(3.0, patience / 4))
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()
    return state
