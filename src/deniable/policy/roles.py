"""What a column is in the eyes of an intruder: the role decides which protections may touch it."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """A column's role in disclosure.

    An *identifier* names a person by itself; a *quasi-identifier* does so together with others, through what an
    intruder may know from elsewhere; a *sensitive* column is what the intruder wants to learn; an *insensitive* one
    is neither.
    """

    IDENTIFIER = "identifier"
    QUASI_IDENTIFIER = "quasi-identifier"
    SENSITIVE = "sensitive"
    INSENSITIVE = "insensitive"
