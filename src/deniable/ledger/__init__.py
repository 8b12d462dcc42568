"""The record of what was spent: events are written before anything runs, and a refusal changes nothing.

A ledger is a chain of entries, each holding the hash of the one before, over a store (memory, SQLite, PostgreSQL). It
decides by the policy's budget tree and its own entries alone. It never sees data.
"""

from __future__ import annotations

from deniable.ledger.budget_tree import Balance
from deniable.ledger.entry import Act, Entry, Posting, Receipt
from deniable.ledger.ledger import Ledger, open_ledger

__all__ = ["Act", "Balance", "Entry", "Ledger", "Posting", "Receipt", "open_ledger"]


def __dir__() -> list[str]:
    """What is public."""
    return sorted(__all__)
