"""Refusals as PostgreSQL errors: an SQLSTATE, what happened, what to do, and where in the statement.

The codes are PostgreSQL's own where its meaning fits; drivers and tools know them. `charged` is told in the detail, as
everywhere.
"""

from __future__ import annotations

from deniable.errors import DeniableError, InternalError

SQLSTATES = {
    "query": "42601",
    "budget": "53400",
    "access": "42501",
    "data": "58030",
    "parameter": "22023",
    "infeasible": "22023",
    "storage": "53100",
    "stopped": "57014",
    "execution": "XX000",
    "integrity": "XX001",
    "internal": "XX000",
    "extra": "0A000",
    "busy": "53300",
}
UNFORESEEN = InternalError("something unforeseen happened in deniable itself", remedy="Tell the steward")


class WireRefusal(Exception):
    """A refusal with an SQLSTATE of its own, for what only the protocol knows (a cursor, a database, a setting)."""

    def __init__(self, sqlstate: str, happened: str, hint: str = "") -> None:
        self.sqlstate = sqlstate
        self.happened = happened
        self.hint = hint
        super().__init__(happened)


def fields(refusal: Exception, statement: str = "", severity: str = "ERROR", offset: int = 0) -> dict[str, str]:
    """The fields of the error message; anything that is no refusal of ours becomes one fixed sentence.

    `offset` is where the statement starts in the text that the client sent, since positions count from there.
    """
    if isinstance(refusal, WireRefusal):
        return _told(severity, refusal.sqlstate, refusal.happened, refusal.hint)
    known = refusal if isinstance(refusal, DeniableError) else UNFORESEEN
    told = _told(severity, SQLSTATES.get(known.code, "XX000"), known.happened, known.remedy)
    detail = " ".join(part if part.endswith(".") else f"{part}." for part in (known.expected, known.charged) if part)
    return told | {"D": detail, "P": _position(known, statement, offset), "R": known.code}


def _told(severity: str, sqlstate: str, happened: str, hint: str) -> dict[str, str]:
    return {"S": severity, "V": severity, "C": sqlstate, "M": happened, "H": hint}


def _position(refusal: DeniableError, statement: str, offset: int) -> str:
    """The place of a refusal as a count of characters from 1 in the client's text."""
    if refusal.place is None or refusal.place.line < 1:
        return ""
    lines = statement.split("\n")
    before = sum(len(line) + 1 for line in lines[: refusal.place.line - 1])
    at = before + max(refusal.place.column, 1)
    return str(offset + at) if at <= len(statement) + 1 else ""
