"""The journeys of a released file: check that it is what was written, and say in plain words what it promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def verify(file: Path) -> dict[str, Any]:
    """Check a released file and its statement; refuse, saying which of them changed."""
    from deniable.release import verify as verified

    statement = verified(file)
    return {
        "file": statement.body["file"]["name"],
        "unchanged": True,
        "sha256": statement.body["file"]["sha256"],
        "statement_sha256": statement.sha256,
    }


def show(file: Path) -> dict[str, Any]:
    """The statement of a released file, after checking it."""
    from deniable.release import verify as verified

    statement = verified(file)
    return dict(statement.body) | {"statement_sha256": statement.sha256}
