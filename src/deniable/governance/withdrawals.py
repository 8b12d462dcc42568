"""Withdrawals: people who are left out from now on.

Who withdrew must be known to leave the rows out, and must not stand in a record that forgets nothing. So the value
itself is kept in the answer store, and the record holds a keyed digest of it: it proves that and when somebody withdrew
to whoever names the value and holds the key, and tells nobody else anything."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from deniable.governance.grants import LedgerEntry

COLLECTION = "withdrawn"
KEYS = "keys"


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A value of the column that tells people apart, as text."""

    column: str
    value: str = field(repr=False)

    def commitment(self, key: bytes) -> str:
        """What the record holds instead of the value."""
        return hmac.new(key, json.dumps([self.column, self.value]).encode(), hashlib.sha256).hexdigest()

    def to_bytes(self) -> bytes:
        """What the answer store keeps."""
        return json.dumps({"column": self.column, "value": self.value}).encode()


def read_withdrawal(kept: bytes) -> Withdrawal:
    """The withdrawal that the answer store kept."""
    form = json.loads(kept)
    return Withdrawal(form["column"], form["value"])


def find_recorded_time(acts: Iterable[LedgerEntry], commitment: str) -> datetime | None:
    """When the withdrawal with this digest was written down; None if it was not."""
    return next((act.time for act in acts if act.details.get("commitment") == commitment), None)
