"""Limits of a server: bytes, seconds, questions a second, guesses of tokens, connections; a time refusals share.

Nothing here depends on data. Rates are token buckets: a bucket holds `burst` drops, refills at `rate` a second, and
each request takes one.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from deniable.errors import ParameterError, check_seconds
from deniable.server.refusals import Busy, TooManyRequests

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
"""Names of this machine for itself."""
REPEAT_SECONDS = 0.1
"""How long a grant, and an answer that was a repeat already, is remembered before it is looked up again.

A dashboard asks the same question many times a second. Its answer is public to its asker already and costs nothing.
The price is that a revoked token, a changed file or the end of a term is noticed up to a tenth of a second later, and
only for answers that this asker has seen. Nothing that is charged is remembered so. Only the event loop uses these
caches, so they need no lock.
"""
MOST_REPEATS = 1000
MOST_BUCKETS = 10_000
"""Beyond so many askers the longest unheard is forgotten, so that memory stays flat; it had time to refill."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one server allows."""

    seconds: float = 30.0
    """The longest a question may take."""
    body: int = 65_536
    """The most bytes of a request."""
    rate: float = 50.0
    """Requests a second for one token."""
    burst: float = 200.0
    guesses: float = 10.0
    """Wrong tokens from one address before it must wait."""
    at_once: int = 8
    """Questions of one asker that are worked on or wait."""
    waiting: int = 256
    """Questions of everybody that wait."""
    workers: int = 8
    """Threads; one asker has at most half of them."""
    processes: int = 0
    """Processes beside the server's own that work questions out; 0 has its threads do it."""
    connections: int = 200
    """Connections of PostgreSQL."""
    http_connections: int = 1000
    """Connections of each HTTP port."""
    header_seconds: float = 10.0
    """The longest that the first line and the headers of a request may take to arrive."""
    proxies: tuple[str, ...] = ()
    """Addresses of proxies whose X-Forwarded-For is believed."""
    quantum: float = 0.02
    """Answers that were charged, and refusals, leave at whole multiples of so many seconds after the request."""

    def __post_init__(self) -> None:
        amounts = (self.seconds, self.body, self.rate, self.burst, self.guesses, self.at_once, self.waiting)
        places = (self.workers, self.connections, self.http_connections, self.header_seconds)
        check_seconds(self.seconds)
        check_seconds(self.header_seconds)
        if not (all(each > 0 for each in (*amounts, *places)) and self.quantum >= 0 and self.processes >= 0):
            raise ParameterError("a limit of the server is not positive", expected="Limits above 0")
        if wrong := [each for each in self.proxies if not is_address(each)]:
            raise ParameterError(f"the proxy '{wrong[0]}' is not an address", expected="Such as 10.0.0.7, not a name")


def is_address(text: str) -> bool:
    """Whether a text is an address of the Internet.

    >>> is_address("10.0.0.7"), is_address("::1"), is_address("proxy.example")
    (True, True, False)
    """
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class RateLimiter:
    """A bucket for each asker."""

    def __init__(self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._whole, self._clock = (rate, burst), clock
        self._rate, self._burst = rate, burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def divide(self, servers: int) -> None:
        """Allow the part of one of so many servers, which allow the whole together."""
        rate, burst = self._whole
        self._rate, self._burst = rate / servers, max(1.0, burst / servers)

    def take(self, who: str, drops: float = 1.0) -> None:
        """Take drops, or refuse and say when to come back."""
        left = self.read_level(who)
        if left < drops:
            wait = (drops - left) / self._rate
            told = f"Wait {max(wait, 0.1):.1f} seconds"
            raise TooManyRequests("too many requests", remedy=told, wait=round(wait, 3))
        self._put(who, left - drops)

    def read_level(self, who: str) -> float:
        """What is in the bucket now."""
        level, seen = self._buckets.get(who, (self._burst, self._clock()))
        return min(self._burst, level + (self._clock() - seen) * self._rate)

    def _put(self, who: str, level: float) -> None:
        self._buckets[who] = (level, self._clock())
        self._buckets.move_to_end(who)
        if len(self._buckets) > MOST_BUCKETS:
            self._buckets.popitem(last=False)


class Connections:
    """Who is connected to a port. Those who proved a token keep their place, and those whose request is worked on.

    Of the others the oldest is closed when room is short, at the port or for one address: whoever has a token sends it
    at once, and whoever only holds connections open loses them. One asker keeps at most a quarter of the room.
    """

    def __init__(self, most: int) -> None:
        self._most, self._share = most, max(1, most // 2)
        self._strangers: OrderedDict[Hashable, tuple[str, Callable[[], None]]] = OrderedDict()
        self._by_address: dict[str, OrderedDict[Hashable, None]] = {}
        self._admitted: dict[Hashable, str] = {}
        self._askers: Counter[str] = Counter()
        self._busy: dict[Hashable, tuple[str, Callable[[], None]]] = {}

    def __len__(self) -> int:
        """How many there are."""
        return len(self._strangers) + len(self._admitted) + len(self._busy)

    def enter(self, key: Hashable, address: str, close: Callable[[], None]) -> bool:
        """Let a connection in, and make room for it; whether there is any."""
        if len(self) >= self._most and not self._strangers:
            return False
        mine = self._add_stranger(key, address, close)
        if len(mine) > self._share:
            self._close_one(next(iter(mine)))
        elif len(self) > self._most:
            self._close_one(next(iter(self._strangers)))
        return True

    def begin(self, key: Hashable) -> None:
        """Note that a connection has sent a whole request, which is worked on."""
        address = self._strangers.get(key, ("", None))[0]
        close = self._forget_stranger(key)
        if close is not None:
            self._busy[key] = (address, close)

    def rest(self, key: Hashable) -> None:
        """Note that a connection waits for its next request."""
        if key in self._busy:
            self._add_stranger(key, *self._busy.pop(key))

    def admit(self, key: Hashable, asker: str) -> None:
        """Note that a connection brought a valid token of an asker; refuse who has too many of them."""
        if key in self._admitted:
            return
        most = max(1, self._most // 4)
        if self._askers[asker] >= most:
            raise Busy(
                f"{most} connections of yours are open", remedy="Close some of them, or use one for more requests"
            )
        if self._forget_stranger(key) is not None or self._busy.pop(key, None) is not None:
            self._admitted[key] = asker
            self._askers[asker] += 1

    def leave(self, key: Hashable) -> None:
        """Note that a connection ended."""
        self._forget_stranger(key)
        self._busy.pop(key, None)
        asker = self._admitted.pop(key, None)
        if asker is not None:
            self._askers[asker] -= 1
            if not self._askers[asker]:
                del self._askers[asker]

    def _add_stranger(self, key: Hashable, address: str, close: Callable[[], None]) -> OrderedDict[Hashable, None]:
        mine = self._by_address.setdefault(address, OrderedDict())
        self._strangers[key], mine[key] = (address, close), None
        return mine

    def _close_one(self, key: Hashable) -> None:
        close = self._forget_stranger(key)
        if close is not None:
            close()

    def _forget_stranger(self, key: Hashable) -> Callable[[], None] | None:
        address, close = self._strangers.pop(key, ("", None))
        mine = self._by_address.get(address)
        if mine is not None:
            mine.pop(key, None)
            if not mine:
                del self._by_address[address]
        return close


async def wait_for_quantum(since: float, quantum: float) -> None:
    """Wait until a whole number of quanta has passed since the request came.

    What a refusal or a charged answer took is then known only to a quantum: work whose duration differs by less than
    that, as with one person more or less in a table, ends at the same tick.
    """
    if quantum > 0:
        passed = time.monotonic() - since
        await asyncio.sleep(quantum - passed % quantum)
