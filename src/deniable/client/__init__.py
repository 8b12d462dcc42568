"""The client: `deniable.connect(url, token)` asks a server from Python, in notebooks and through the DB-API.

It needs nothing beyond the standard library; Arrow, pandas and Polars are used where
they are asked for. `connect_async` is the same for `async` code.
"""

from __future__ import annotations

from deniable.client.answer import Answer, BatchAnswer
from deniable.client.connection import AsyncConnection, Connection, connect, connect_async

__all__ = ["Answer", "AsyncConnection", "BatchAnswer", "Connection", "connect", "connect_async"]


def __dir__() -> list[str]:
    """What is public."""
    return sorted(__all__)
