"""Masking keys: drawn from the operating system, named, never shown, and checked before anything is written.

A key is 32 secret bytes with a name. Nothing is ever masked with those bytes directly: each use derives its own
sub-key by HMAC-SHA-256 over a purpose and a domain (the expand step of HKDF, RFC 5869, with one block). So a token of
the domain `people` says nothing about a token of the domain `doctors`, and a date offset nothing about either.

The *check value* of a key is 40 bits derived under a purpose of its own. It is public: it may stand in releases,
journals and vaults, tells whether two uses had the same key, and gives no help in finding it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass, field
from typing import NoReturn

from deniable.errors import KeyUnavailable, ParameterError

SECRET_BYTES = 32
NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")
HEADER = "deniable-key-1"

LOST = (
    "A lost key cannot be recovered: releases made with it stay valid and joinable with each other, but nothing new "
    "can be joined to them and a vault sealed with it stays closed. Restore the key from a backup, or make a new one "
    "with `deniable key new` and release all tables again"
)


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Key:
    """A named secret. It refuses to be printed, compared or pickled, so that it cannot wander off by accident."""

    name: str
    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        check_name(self.name)
        if len(self.secret) != SECRET_BYTES:
            raise KeyUnavailable(f"key '{self.name}' does not have {SECRET_BYTES} bytes", remedy=LOST)

    def __repr__(self) -> str:
        return f"Key({self.name!r}, check={self.check!r})"

    def __reduce__(self) -> NoReturn:
        raise KeyUnavailable(f"key '{self.name}' is never serialized", expected="It is read again from its source")

    @property
    def check(self) -> str:
        """The public check value: ten hexadecimal digits."""
        return self.derive("check", self.name).hex()[:10]

    def derive(self, purpose: str, domain: str) -> bytes:
        """The sub-key for one purpose in one domain.

        Lengths are fixed by a NUL between the parts, which neither may contain, so no two pairs share a message.
        """
        if "\0" in purpose + domain:
            raise ParameterError("a purpose or a domain of a key contains a NUL character")
        message = f"deniable/1\0{purpose}\0{domain}\0\x01".encode()
        return hmac.digest(self.secret, message, hashlib.sha256)


def generate(name: str) -> Key:
    """A new key from the operating system's entropy."""
    return Key(name, secrets.token_bytes(SECRET_BYTES))


def check_name(name: str) -> str:
    """The name itself if it may name a key (and so a file), else a refusal."""
    if not NAME.fullmatch(name):
        raise ParameterError(
            "this is not a name for a key",
            expected="Lower-case letters, digits, '-' and '_', beginning with a letter, at most 63",
        )
    return name


def encode(key: Key) -> str:
    """The text of a key file: header, name, check value, secret; one line each."""
    return f"{HEADER}\nname {key.name}\ncheck {key.check}\nsecret {base64.b64encode(key.secret).decode()}\n"


def decode(text: str, source: str) -> Key:
    """The key that a text holds; a text that was cut or edited is noticed by its check value.

    `source` names where the text came from; no part of the text itself is ever quoted.
    """
    lines = text.split("\n")
    fields = dict(line.split(" ", 1) for line in lines[1:] if " " in line)
    if lines[0] != HEADER or not {"name", "check", "secret"} <= set(fields):
        raise KeyUnavailable(f"{source} does not hold a key of deniable", remedy="Make one with `deniable key new`")
    key = Key(fields["name"], _bytes(fields["secret"], source))
    if not hmac.compare_digest(key.check, fields["check"]):
        raise KeyUnavailable(f"the key in {source} is damaged: its check value does not fit its secret", remedy=LOST)
    return key


def require(key: Key, expected: str, where: str) -> None:
    """Refuse a key other than the one whose check value was recorded."""
    if not hmac.compare_digest(key.check, expected):
        raise KeyUnavailable(
            f"wrong key '{key.name}': its check value is {key.check}",
            expected=f"{where} was made with a key whose check value is {expected}",
            remedy="Give the key that was used before, or start afresh where that is recorded. Nothing was written",
            key=key.name,
        )


def _bytes(text: str, source: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise KeyUnavailable(f"the key in {source} is damaged: its secret is not base64", remedy=LOST) from None
