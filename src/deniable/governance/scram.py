"""SCRAM-SHA-256 (RFC 5802, RFC 7677): a client proves that it holds a token without sending it.

What is kept of a token for this are two keys, from which the token cannot be found. The salt is the same for all tokens
of a name, because a server must send it before it knows which of them the client holds; salts are against guessing
many passwords at once, and nobody guesses 32 random bytes.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from deniable.errors import AccessRefused

MECHANISM = "SCRAM-SHA-256"
BOUND_MECHANISM = "SCRAM-SHA-256-PLUS"
"""The same, with the proof bound to the server's certificate: it is worth nothing to whoever sits between."""
BINDING = "p=tls-server-end-point"
ROUNDS = 4096
"""Iterations of the key derivation: what PostgreSQL takes, and plenty for random tokens."""

Holder = TypeVar("Holder")


@dataclass(frozen=True, slots=True)
class ScramKeys:
    """What a server keeps of a token: enough to check a proof, and to prove in turn that it knows the token."""

    stored: bytes
    server: bytes

    @classmethod
    def of(cls, name: str, token: str) -> ScramKeys:
        """The keys of a token that is given to somebody."""
        salted = hashlib.pbkdf2_hmac("sha256", token.encode("utf-8", "surrogatepass"), salt_of(name), ROUNDS)
        return cls(hashlib.sha256(_compute_mac(salted, b"Client Key")).digest(), _compute_mac(salted, b"Server Key"))

    def to_text(self) -> str:
        """The keys as one text."""
        return f"{self.stored.hex()}:{self.server.hex()}"

    @classmethod
    def read(cls, text: str) -> ScramKeys:
        """The keys in a text."""
        stored, _, server = text.partition(":")
        return cls(bytes.fromhex(stored), bytes.fromhex(server))


def salt_of(name: str) -> bytes:
    """The salt of all tokens of a name."""
    return hashlib.sha256(b"deniable scram " + name.encode("utf-8", "surrogatepass")).digest()[:16]


class Exchange(Generic[Holder]):
    """A server's side of one proof: two messages come, two are sent. Whatever is wrong is one refusal."""

    def __init__(self, name: str, known: Iterable[tuple[ScramKeys, Holder]], channel: bytes = b"") -> None:
        self._channel, self._bound = channel, False
        self._known = tuple(known)
        self._salt = salt_of(name)
        self._nonce = base64.b64encode(secrets.token_bytes(18)).decode()
        self._header = self._bare = self._first = ""

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """What is offered to a client."""
        return (BOUND_MECHANISM, MECHANISM) if self._channel else (MECHANISM,)

    def first(self, message: bytes, mechanism: str = MECHANISM) -> bytes:
        """The challenge to a client's first message, by the mechanism that it chose."""
        header, comma, rest = _decode_text(message).partition(",")
        named, also, self._bare = rest.partition(",")
        fields = _split_fields(self._bare)
        self._bound = mechanism == BOUND_MECHANISM
        # "y": the client could bind the channel and was not offered it. If it was, somebody between took that out.
        allowed = (BINDING,) if self._bound else ("n",) if self._channel else ("n", "y")
        if not comma or not also or header not in allowed or (named and not named.startswith("a=")):
            raise build_refusal()
        if not fields.get("r") or "n" not in fields or "m" in fields:
            raise build_refusal()
        self._header, self._nonce = f"{header},{named},", fields["r"] + self._nonce
        self._first = f"r={self._nonce},s={base64.b64encode(self._salt).decode()},i={ROUNDS}"
        return self._first.encode()

    def final(self, message: bytes) -> tuple[Holder, bytes]:
        """Whose token was proved, and the server's own proof; refuses a proof of none."""
        without, found, proof = _decode_text(message).rpartition(",p=")
        fields = _split_fields(without)
        bound = base64.b64encode(self._header.encode() + (self._channel if self._bound else b"")).decode()
        if not found or not self._first or fields.get("c") != bound or fields.get("r") != self._nonce:
            raise build_refusal()
        signed = f"{self._bare},{self._first},{without}".encode()
        given = _decode_proof(proof)
        holders = [(keys, holder) for keys, holder in self._known if _proves(keys, signed, given)]
        if not holders:
            raise build_refusal()
        keys, holder = holders[0]
        return holder, b"v=" + base64.b64encode(_compute_mac(keys.server, signed))


SIGNATURE_HASHES = {
    "2a864886f70d010104": "sha256", "2a864886f70d010105": "sha256", "2a864886f70d01010b": "sha256",
    "2a864886f70d01010c": "sha384", "2a864886f70d01010d": "sha512", "2a8648ce3d0401": "sha256",
    "2a8648ce3d040302": "sha256", "2a8648ce3d040303": "sha384", "2a8648ce3d040304": "sha512",
}  # fmt: skip
"""The hash of RFC 5929 for each algorithm that a certificate is signed with (its object identifier in DER)."""


def bind_to_certificate(der: bytes) -> bytes:
    """What binds a proof to a server's certificate (`tls-server-end-point`); empty where that is not defined."""
    try:
        signed = _read_der(_read_der(der)[0])[1]  # after the part that is signed comes the algorithm
        algorithm = _read_der(_read_der(signed)[0])[0]
    except IndexError:
        return b""
    name = SIGNATURE_HASHES.get(algorithm.hex())
    return hashlib.new(name, der).digest() if name else b""


def _read_der(encoded: bytes) -> tuple[bytes, bytes]:
    """The content of the first element of some DER, and what follows it."""
    length, start = encoded[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(encoded[2:start], "big")
    return encoded[start : start + length], encoded[start + length :]


def build_refusal() -> AccessRefused:
    """The one sentence for whatever was wrong."""
    return AccessRefused("the token is not valid", remedy="Ask the steward for another")


def _proves(keys: ScramKeys, signed: bytes, proof: bytes) -> bool:
    """Whether the proof, with our signature taken off it, is the key whose hash is kept."""
    mask = _compute_mac(keys.stored, signed)
    if len(proof) != len(mask):
        return False
    key = bytes(a ^ b for a, b in zip(proof, mask, strict=True))
    return hmac.compare_digest(hashlib.sha256(key).digest(), keys.stored)


def _compute_mac(key: bytes, content: bytes) -> bytes:
    return hmac.new(key, content, hashlib.sha256).digest()


def _decode_text(message: bytes) -> str:
    try:
        return message.decode("utf-8")
    except UnicodeDecodeError:
        raise build_refusal() from None


def _split_fields(text: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in text.split(",") if part[1:2] == "="}


def _decode_proof(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise build_refusal() from None
