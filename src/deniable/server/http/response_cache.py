"""The response cache: what an asker was answered a moment ago is sent again, byte for byte, before anything is parsed.

Only answers that were repeats already pass here: nothing is charged, and nothing is sent that this asker, with this
token and these very bytes, was not sent within the last tenth of a second (`REPEAT_SECONDS`). The token is still looked
at, rates are still kept, and a request that names an id takes the usual way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from cachetools import TTLCache

from deniable.server.http.endpoints import BODY_SECONDS, LATE_BODY, is_too_long, respond_refusal
from deniable.server.limits import MOST_REPEATS, REPEAT_SECONDS
from deniable.server.refusals import TimedOut

if TYPE_CHECKING:
    from deniable.server.monitoring import Metrics
    from deniable.server.service import Service

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
Receive = Callable[[], Awaitable[Message]]
PATH = "/v1/query"
REPEATED = (b"x-deniable-repeated", b"true")
LARGEST_ANSWER = 65_536
"""Bytes of an answer that is remembered: larger ones would make the memory of a server depend on its askers."""
KEY_HEADERS = (b"authorization", b"accept", b"content-type")
"""Headers that decide the answer, beside the body."""


class ResponseCache:
    """An application before which answers are remembered for a moment."""

    def __init__(self, application: Any, service: Service, metrics: Metrics) -> None:
        self._application = application
        self._service = service
        self._metrics = metrics
        self._responses: TTLCache[Any, tuple[list[Any], bytes]] = TTLCache(MOST_REPEATS, REPEAT_SECONDS)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Send the stored response again, or pass the request on."""
        asked = scope["type"] == "http" and scope["path"] == PATH and scope["method"] == "POST"
        # Nothing is waited for from a token that was not valid a moment ago, nor a body that is refused anyway.
        given = dict(scope["headers"]) if asked else {}
        token = given.get(b"authorization", b"")[7:].decode("latin-1").strip()
        declared = given.get(b"content-length", b"").decode("latin-1")
        if not self._service.is_admitted(token) or is_too_long(declared, self._service.limits.body):
            await self._application(scope, receive, send)
            return
        since = time.monotonic()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                first = await receive()
        except TimeoutError:
            await respond_refusal(TimedOut(LATE_BODY))(scope, receive, send)
            return
        key = _build_key(scope, first)
        stored = self._responses.get(key) if key is not None else None
        if stored is not None and self._service.admit_again(token):
            await send({"type": "http.response.start", "status": 200, "headers": stored[0]})
            await send({"type": "http.response.body", "body": stored[1]})
            self._metrics.count_request("query", 200, time.monotonic() - since)
            return
        await self._application(
            scope, _replay_first(first, receive), send if key is None else self._remember_answers(key, send)
        )

    def _remember_answers(self, key: Any, send: Send) -> Send:
        """A way out on which repeated answers are remembered."""
        headers: list[Any] = []

        async def send_and_remember(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                headers.extend(message["headers"])
            elif (
                REPEATED in headers and not message.get("more_body") and len(message.get("body", b"")) <= LARGEST_ANSWER
            ):
                self._responses[key] = (headers, message.get("body", b""))
            await send(message)

        return send_and_remember


def _build_key(scope: Any, first: Message) -> Any:
    """What decides the answer to a request that came whole and names no id; None for any other."""
    if first["type"] != "http.request" or first.get("more_body"):
        return None
    found = dict(scope["headers"])
    # A header that comes twice could be read one way here and another way by the application.
    if len(found) != len(scope["headers"]) or b"x-request-id" in found:
        return None
    if found.get(b"authorization", b"")[:7].lower() != b"bearer ":
        return None
    return (*(found.get(name, b"") for name in KEY_HEADERS), first.get("body", b""))


def _replay_first(first: Message, receive: Receive) -> Receive:
    """The request's messages from the first on."""
    kept = [first]

    async def receive_again() -> Message:
        return kept.pop() if kept else await receive()

    return receive_again
