"""The shape of an act: what this room needs to know of an entry in a ledger."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Protocol


class Act(Protocol):
    """Something that was done and written down; entries of a ledger have this shape."""

    @property
    def sequence(self) -> int:
        """Its place in the record."""

    @property
    def time(self) -> datetime:
        """When it was written."""

    @property
    def act(self) -> str:
        """What was done: token, revoke, request, approve, decline, withdraw, charge, release ..."""

    @property
    def analyst(self) -> str:
        """Who did it."""

    @property
    def purpose(self) -> str:
        """What for."""

    @property
    def details(self) -> Mapping[str, Any]:
        """Further public facts."""
