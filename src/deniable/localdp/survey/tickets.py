"""Tickets: each lets one response in, once, and says nothing about who holds it.

A ticket is sixteen random bytes with a keyed digest of them. Anybody with the key can check one, nobody without it can
make one. Only the digest of a used ticket is stored, apart from the responses and in no common order.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from hashlib import sha256

from deniable.dp.samplers import salt

RANDOM, MAC = 16, 16
KEY_BYTES = 32


def new_key() -> bytes:
    """A fresh key for a survey's tickets."""
    return salt(KEY_BYTES)


def issue(key: bytes, survey: str) -> str:
    """A fresh ticket for one response to a survey."""
    drawn = salt(RANDOM)
    return base64.urlsafe_b64encode(drawn + _mac(key, survey, drawn)).decode().rstrip("=")


def stub(key: bytes, survey: str, ticket: object) -> bytes | None:
    """What is kept of a valid ticket when it is used, or None if the ticket is not one of ours."""
    if not isinstance(ticket, str) or len(ticket) > 64:
        return None
    try:
        raw = base64.b64decode(ticket + "=" * (-len(ticket) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    drawn, mac = raw[:RANDOM], raw[RANDOM:]
    if len(raw) != RANDOM + MAC or not hmac.compare_digest(mac, _mac(key, survey, drawn)):
        return None
    return sha256(b"used" + drawn).digest()


def _mac(key: bytes, survey: str, drawn: bytes) -> bytes:
    return hmac.digest(key, survey.encode() + b"\0" + drawn, "sha256")[:MAC]
