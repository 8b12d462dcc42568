"""The client: `deniable.connect(url, token)` asks a server from Python, in notebooks and through the DB-API.

It stands on the errors alone and needs nothing beyond the standard library; Arrow, pandas and Polars are used where
they are asked for.
"""

from __future__ import annotations

from deniable.client.answer import Answer
from deniable.client.connection import Connection, connect

__all__ = ["Answer", "Connection", "connect"]
