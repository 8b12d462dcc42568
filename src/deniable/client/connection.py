"""A connection to a server: questions that are safe to send again.

Every question has a request id. When the network fails or the server is busy, it is sent again under the same id, and
the server charges an id once. Refusals come back as the same exceptions that a curator raises in this process.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import math
import os
import shutil
import socket
import ssl
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from deniable import errors
from deniable.client.answer import Answer, BatchAnswer
from deniable.errors import (
    AccessRefused,
    DeniableError,
    ParameterError,
    Stopped,
    check_keywords,
    check_seconds,
    guard_arguments,
    guard_call,
)
from deniable.query.builder import drop_zone
from deniable.storage import whole_file

UNREACHED = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)
"""What happens where no server answers, or another one than ours."""
NEVER_ARRIVED = (ConnectionRefusedError, socket.gaierror)
"""What happens where no request can have arrived, so that nothing was charged."""
ATTEMPTS = 5
AGAIN = (429, 502, 503, 504)
"""Statuses after which the same request may be sent again."""
Result = TypeVar("Result")
LOOPBACK = ("localhost", "127.0.0.1", "::1")


@guard_call
def connect(
    url: str, token: str | None = None, *, purpose: str = "", timeout: float = 60.0, tls: ssl.SSLContext | None = None
) -> Connection:
    """A connection to a server; the token may also stand in the variable DENIABLE_TOKEN.

    >>> server = connect("http://127.0.0.1:8400", "deniable_...")                          # doctest: +SKIP
    >>> server.query("SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex", epsilon=0.5)    # doctest: +SKIP
    """
    given = token if token is not None else os.environ.get("DENIABLE_TOKEN", "")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ParameterError(
            "this is not the address of a server",
            expected="Something like https://data.clinic.example",
            remedy="For a policy file use Curator.open",
        )
    if not given:
        raise AccessRefused("there is no token", remedy="Give one, or set DENIABLE_TOKEN", charge="")
    if parts.scheme == "http" and parts.hostname not in LOOPBACK:
        raise ParameterError("a token may not travel unencrypted to another machine", remedy="Use https://")
    check_seconds(timeout)
    return Connection(url.rstrip("/"), given, purpose, timeout, tls)


@dataclass(frozen=True, slots=True)
class Connection:
    """A server and a token."""

    url: str
    token: str = field(repr=False)
    purpose: str = ""
    timeout: float = 60.0
    tls: ssl.SSLContext | None = field(default=None, repr=False)

    def query(
        self,
        sql: str,
        parameters: Sequence[Any] = (),
        *,
        epsilon: str | float | None = None,
        delta: str | float = 0,
        rho: str | float | None = None,
        request: str | None = None,
        confidence: float | None = None,
        **rest: Any,
    ) -> Answer:
        """Ask a question; under one request id it is charged once, however often it is sent.

        `rest` are further fields of the server's question, for a server that is newer than this client.
        """
        body = self._build_question(sql, parameters, epsilon, delta, rho) | rest
        body |= {} if confidence is None else {"confidence": confidence}
        found = self.post("/v1/query", body, {"X-Request-Id": request or uuid.uuid4().hex})
        return _read_answer(found)

    def query_batch(
        self,
        questions: Sequence[str],
        *,
        epsilon: str | float | None = None,
        delta: str | float = 0,
        rho: str | float | None = None,
        request: str | None = None,
        confidence: float | None = None,
        **rest: Any,
    ) -> BatchAnswer:
        """Ask several questions with one budget and one charge; the answers stand in the order of the questions.

        >>> tiles = ["SELECT COUNT(*) FROM visits", "SELECT AVG(charge) FROM visits"]
        >>> visits, charge = server.query_batch(tiles, epsilon=0.5)                          # doctest: +SKIP
        """
        body = self._build_batch(questions, epsilon, delta, rho) | rest
        body |= {} if confidence is None else {"confidence": confidence}
        found = self.post("/v1/batch", body, {"X-Request-Id": request or uuid.uuid4().hex})
        repeated = bool(found["repeated"])
        return BatchAnswer(tuple(_read_answer(each | {"repeated": repeated}) for each in found["answers"]), repeated)

    # Dictionaries: JSON as the server sent it. A server may be newer than its client and tell more, which is not lost.

    def explain(self, sql: str, parameters: Sequence[Any] = (), **budget: Any) -> dict[str, Any]:
        """The privacy plan of a question; nothing is charged."""
        check_keywords(self._build_question, budget, "explain")
        return self.post("/v1/explain", self._build_question(sql, parameters, **budget))

    def explain_batch(self, questions: Sequence[str], **budget: Any) -> dict[str, Any]:
        """What several questions would cost together, which of them are measured together, and each error."""
        check_keywords(self._build_batch, budget, "explain_batch")
        return self.post("/v1/batch/explain", self._build_batch(questions, **budget))

    def preview(self, sql: str, parameters: Sequence[Any] = (), **budget: Any) -> dict[str, Any]:
        """What a question would take of your budget, how many like it fit, and how exact it would be."""
        check_keywords(self._build_question, budget, "preview")
        return self.post("/v1/preview", self._build_question(sql, parameters, **budget))

    def balance(self) -> list[dict[str, Any]]:
        """What is left from the dataset down to you."""
        return list(self.get("/v1/remaining", purpose=self.purpose)["balance"])

    def schema(self) -> list[dict[str, Any]]:
        """The tables and columns that you may name."""
        return list(self.get("/v1/schema", purpose=self.purpose)["tables"])

    def epoch(self) -> str:
        """The epoch of the data now: within one, an equal question has the same answer at no further cost."""
        return str(self.get("/v1/schema", purpose=self.purpose)["epoch"])

    def dummies(self, table: str, rows: int = 100) -> Answer:
        """Invented rows of a table's shape, for trying code; no data is behind them."""
        found = self.get(f"/v1/schema/{quote(table, safe='')}/dummies", rows=rows, purpose=self.purpose)
        return Answer(tuple(found["rows"]), tuple(found["columns"]), {"invented": True})

    def releases(self) -> list[dict[str, Any]]:
        """Your own releases, the newest first."""
        return list(self.get("/v1/releases")["releases"])

    def receipt(self, release: str) -> dict[str, Any]:
        """The receipt of one of them."""
        return self.get(f"/v1/receipts/{quote(release, safe='')}")

    def register(self) -> dict[str, Any]:
        """The public register of all releases."""
        return self.get("/v1/register")

    def request(self, technique: str, tables: Sequence[str], **parameters: Any) -> dict[str, Any]:
        """Ask the steward for a masked, anonymized or synthetic release."""
        body = {"technique": technique, "tables": list(tables), "parameters": parameters, "purpose": self.purpose}
        return self.post("/v1/requests", body)

    def requests(self) -> list[dict[str, Any]]:
        """Your requests and their decisions."""
        return list(self.get("/v1/requests")["requests"])

    def download(self, request: str, table: str, path: str | Path) -> Path:
        """Write a table of a release that you requested, once it was approved and made, to a Parquet file."""
        place = f"/v1/requests/{quote(request, safe='')}/tables/{quote(table, safe='')}"
        asked = urllib.request.Request(self.url + place, headers={"Authorization": f"Bearer {self.token}"})  # noqa: S310
        try:
            response = urllib.request.urlopen(asked, timeout=self.timeout, context=self.tls)  # noqa: S310  checked
            with response, whole_file(Path(path)) as file:
                shutil.copyfileobj(response, file)
        except urllib.error.HTTPError as failure:
            raise _read_refusal(failure) from None
        except UNREACHED:
            raise _build_unreachable(self.url) from None
        return Path(path)

    def cancel(self, request: str) -> bool:
        """Take back a question; whether one was there. One that had begun is stopped, and stays charged."""
        return bool(self._send("DELETE", f"/v1/queries/{quote(request, safe='')}")["cancelled"])

    def get(self, path: str, **query: Any) -> dict[str, Any]:
        """A document of the API."""
        given = {name: value for name, value in query.items() if value != ""}
        return self._send("GET", f"{path}?{urlencode(given)}" if given else path)

    def post(self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Send a document to the API, and get one."""
        return self._send("POST", path, json.dumps(body, default=_write_value).encode(), headers or {})

    def _build_question(
        self,
        sql: str,
        parameters: Sequence[Any] = (),
        epsilon: str | float | None = None,
        delta: str | float = 0,
        rho: str | float | None = None,
    ) -> dict[str, Any]:
        amounts = _write_amounts(epsilon, delta, rho)
        return {"sql": sql, "parameters": list(map(_write_parameter, parameters)), "purpose": self.purpose} | amounts

    def _build_batch(
        self,
        questions: Sequence[str],
        epsilon: str | float | None = None,
        delta: str | float = 0,
        rho: str | float | None = None,
    ) -> dict[str, Any]:
        if isinstance(questions, str):
            raise ParameterError(
                "a batch is a list of questions",
                expected="A list of SELECT statements, each as text",
                charge=errors.NOTHING_CHARGED,
            )
        return {"questions": list(questions), "purpose": self.purpose} | _write_amounts(epsilon, delta, rho)

    def _send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        asked = urllib.request.Request(self.url + path, body, dict(headers or {}), method=method)  # noqa: S310  checked
        asked.add_header("Authorization", f"Bearer {self.token}")
        asked.add_header("Accept", "application/json")
        if body is not None:
            asked.add_header("Content-Type", "application/json")
        # Only what the server can recognize as the same request is sent twice.
        safe = method != "POST" or "X-Request-Id" in (headers or {})
        arrived = False
        for attempt in range(ATTEMPTS):
            last = attempt + 1 == ATTEMPTS or not safe
            try:
                with urllib.request.urlopen(asked, timeout=self.timeout, context=self.tls) as response:  # noqa: S310
                    found: dict[str, Any] = json.load(response)
                    return found
            except urllib.error.HTTPError as failure:
                refusal = _read_refusal(failure)
                if last or failure.code not in AGAIN:
                    raise refusal from None
            except (*UNREACHED, json.JSONDecodeError) as failure:
                arrived |= not isinstance(getattr(failure, "reason", failure), NEVER_ARRIVED)
                if last:
                    break
            time.sleep(0.1 * 2**attempt)
        raise _build_unreachable(self.url, (headers or {}).get("X-Request-Id", ""), arrived) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is kept open between calls."""


@guard_call
def connect_async(
    url: str, token: str | None = None, *, purpose: str = "", timeout: float = 60.0, tls: ssl.SSLContext | None = None
) -> AsyncConnection:
    """The same as `connect`, for `async` code: `await server.query(...)`."""
    return AsyncConnection(connect(url, token, purpose=purpose, timeout=timeout, tls=tls))


@dataclass(frozen=True, slots=True)
class AsyncConnection:
    """A connection whose calls are awaited; each runs in a thread of its own, so others go on meanwhile.

    A question whose task is cancelled is taken back at the server: uncharged if it was not begun.
    """

    connection: Connection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is kept open between calls."""

    async def query(
        self,
        sql: str,
        parameters: Sequence[Any] = (),
        *,
        epsilon: str | float | None = None,
        delta: str | float = 0,
        rho: str | float | None = None,
        request: str | None = None,
        confidence: float | None = None,
    ) -> Answer:
        """Ask a question; under one request id it is charged once, however often it is sent."""
        given: Any = {"epsilon": epsilon, "delta": delta, "rho": rho, "confidence": confidence}
        return await self._ask(partial(self.connection.query, sql, parameters, **given), request)

    async def query_batch(
        self,
        questions: Sequence[str],
        *,
        epsilon: str | float | None = None,
        delta: str | float = 0,
        rho: str | float | None = None,
        request: str | None = None,
        confidence: float | None = None,
    ) -> BatchAnswer:
        """Ask several questions with one budget and one charge; the answers stand in the order of the questions."""
        given: Any = {"epsilon": epsilon, "delta": delta, "rho": rho, "confidence": confidence}
        return await self._ask(partial(self.connection.query_batch, questions, **given), request)

    async def _ask(self, call: Callable[..., Result], request: str | None) -> Result:
        """Ask in a thread under a request id, and take it back where the task is cancelled."""
        asked = request or uuid.uuid4().hex
        try:
            return await asyncio.to_thread(call, request=asked)
        except asyncio.CancelledError:
            with suppress(DeniableError):
                await asyncio.shield(asyncio.to_thread(self.connection.cancel, asked))
            raise

    async def explain(self, sql: str, parameters: Sequence[Any] = (), **budget: Any) -> dict[str, Any]:
        """The privacy plan of a question; nothing is charged."""
        return await asyncio.to_thread(self.connection.explain, sql, parameters, **budget)

    async def explain_batch(self, questions: Sequence[str], **budget: Any) -> dict[str, Any]:
        """What several questions would cost together, which of them are measured together, and each error."""
        return await asyncio.to_thread(self.connection.explain_batch, questions, **budget)

    async def preview(self, sql: str, parameters: Sequence[Any] = (), **budget: Any) -> dict[str, Any]:
        """What a question would take of your budget, how many like it fit, and how exact it would be."""
        return await asyncio.to_thread(self.connection.preview, sql, parameters, **budget)

    async def balance(self) -> list[dict[str, Any]]:
        """What is left from the dataset down to you."""
        return await asyncio.to_thread(self.connection.balance)

    async def schema(self) -> list[dict[str, Any]]:
        """The tables and columns that you may name."""
        return await asyncio.to_thread(self.connection.schema)

    async def epoch(self) -> str:
        """The epoch of the data now: within one, an equal question has the same answer at no further cost."""
        return await asyncio.to_thread(self.connection.epoch)

    async def dummies(self, table: str, rows: int = 100) -> Answer:
        """Invented rows of a table's shape, for trying code; no data is behind them."""
        return await asyncio.to_thread(self.connection.dummies, table, rows)

    async def receipt(self, release: str) -> dict[str, Any]:
        """The receipt of one of your releases."""
        return await asyncio.to_thread(self.connection.receipt, release)

    async def get(self, path: str, **query: Any) -> dict[str, Any]:
        """A document of the API."""
        return await asyncio.to_thread(self.connection.get, path, **query)

    async def post(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Send a document to the API, and get one."""
        return await asyncio.to_thread(self.connection.post, path, body, headers)

    async def releases(self) -> list[dict[str, Any]]:
        """Your own releases, the newest first."""
        return await asyncio.to_thread(self.connection.releases)

    async def register(self) -> dict[str, Any]:
        """The public register of all releases."""
        return await asyncio.to_thread(self.connection.register)

    async def request(self, technique: str, tables: Sequence[str], **parameters: Any) -> dict[str, Any]:
        """Ask the steward for a masked, anonymized or synthetic release."""
        return await asyncio.to_thread(self.connection.request, technique, tables, **parameters)

    async def requests(self) -> list[dict[str, Any]]:
        """Your requests and their decisions."""
        return await asyncio.to_thread(self.connection.requests)

    async def download(self, request: str, table: str, path: str | Path) -> Path:
        """Write a table of a release that you requested, once it was approved and made, to a Parquet file."""
        return await asyncio.to_thread(self.connection.download, request, table, path)

    async def cancel(self, request: str) -> bool:
        """Take back a question; whether one was there."""
        return await asyncio.to_thread(self.connection.cancel, request)


def _write_parameter(value: object) -> object:
    """A value of a statement; one of a type that JSON does not have, by the name of its type."""
    match value:
        case datetime():
            return {"timestamp": str(drop_zone(value))}
        case date():
            return {"date": str(value)}
        case Decimal():
            return {"decimal": str(value)}
        case uuid.UUID():
            return str(value)
        case float() if not math.isfinite(value):
            raise ParameterError("a parameter is NaN or infinite", expected="A finite number, or None for null")
        case None | bool() | int() | float() | str():
            return value
        case _:
            raise ParameterError(
                f"a parameter is of type {type(value).__name__}, which no column has",
                expected="A text, a number, a truth value, a date, a datetime or None",
            )


def _write_value(value: object) -> str:
    """A value that JSON does not have, as a text; a moment with a time zone in UTC, since columns have none."""
    return str(drop_zone(value) if isinstance(value, datetime) else value)


def _write_amounts(
    epsilon: str | float | None, delta: str | float | None, rho: str | float | None
) -> dict[str, str | None]:
    """A budget as the server takes it: exact decimals as texts."""
    given = {"epsilon": epsilon, "delta": delta, "rho": rho}
    amounts = {name: None if amount is None else str(amount) for name, amount in given.items()}
    return amounts | {"delta": amounts["delta"] or "0"}


def _read_answer(document: Mapping[str, Any]) -> Answer:
    details = {name: value for name, value in document.items() if name not in ("rows", "columns")}
    return Answer(tuple(document["rows"]), tuple(document["columns"]), details)


_KINDS: dict[str, type[DeniableError]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, DeniableError)
    and kind not in (errors.ExecutionFailed, errors.BudgetUnstated)  # these choose their words themselves
} | {"token": AccessRefused}


_TOLD = ("error", "happened", "expected", "remedy", "charged", "source", "line", "column", "charge", "place")
"""What every refusal tells, and the names of its parameters; the rest are fields of its own."""


def _read_refusal(failure: urllib.error.HTTPError) -> DeniableError:
    """The refusal in a response, as the exception that it was on the server."""
    try:
        told = json.loads(failure.read(1 << 20))
        kind = _KINDS.get(told["error"], DeniableError)
        known = errors.CHARGED if told["charged"] else errors.NOTHING_CHARGED
        charge = errors.UNKNOWN if told["charged"] is None else known
        place = errors.Place("query", told["line"], told.get("column", 0)) if "line" in told else None
        happened, expected, remedy = (told[name] for name in ("happened", "expected", "remedy"))
        more = {name: value for name, value in told.items() if name not in _TOLD and isinstance(value, str | int)}
        refusal = kind(happened, expected=expected, remedy=remedy, charge=charge, place=place, **more)
        if "charged_before" in more:
            refusal.recall_charge(str(more["charged_before"]))
        return refusal
    except (ValueError, KeyError, TypeError):
        return Stopped(f"the server answered with status {failure.code}", remedy="Try again later", charge="")


def _build_unreachable(url: str, request: str = "", arrived: bool = True) -> Stopped:
    """A server that gave no answer of deniable's; whether a question was charged is known under its request id."""
    if not arrived:
        remedy = "Check that the server runs, and its address"
        return Stopped(f"no server listens at {url}", remedy=remedy, request=request)
    happened = f"the server at {url} cannot be reached, did not answer in time, or is not a server of deniable"
    again = f"Ask again with request='{request}', under which it is charged once"
    remedy = f"Check the address. {again}" if request else "Check the address, and try again"
    return Stopped(happened, remedy=remedy, charge=errors.UNSURE if request else "", request=request)


guard_arguments(Connection)
guard_arguments(AsyncConnection)
