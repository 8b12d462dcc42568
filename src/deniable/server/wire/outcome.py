"""What a statement of a session gave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from deniable.server.wire.codec import ResultColumn


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a statement gave: rows with their columns, or only a tag; settings the client must be told of."""

    tag: str
    columns: tuple[ResultColumn, ...] | None = None
    rows: Sequence[Sequence[Any]] = ()
    statuses: tuple[tuple[str, str], ...] = ()
    charged: bool = field(default=False)
    copied: tuple[bytes, ...] | None = None
    """Lines that are copied out instead of rows, the heading among them."""
