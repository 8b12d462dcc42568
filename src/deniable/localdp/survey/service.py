"""The service that takes responses: what does not fit is refused here, what fits is reduced to what may be stored.

Where only invited people answer, an invitation is exchanged for a *ticket*: a serial that the respondent's device drew
and that the service signs without seeing it (a blind signature, RFC 9474). The service can check a ticket and cannot
know it again, so nothing it holds or stores joins an invitation with a response. Where anyone may answer, a ticket is a
random serial alone: it lets a response that is sent twice count once.

No maintained Python library offers blind signatures or oblivious functions with wheels for all platforms: keys are
those of `cryptography`; blinding, in the clients, and the bare exponentiation here are a few lines of our own, and the
tests hold the tickets to `cryptography`'s own check of signatures."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from math import gcd
from pathlib import Path
from typing import Any

from deniable.dp.samplers import SYSTEM, salt
from deniable.errors import NO_BUDGET, AccessRefused, DataError, IntegrityError, MissingExtra
from deniable.localdp import serialization
from deniable.localdp.client import encode_serial, system_draw
from deniable.localdp.protocol import Bits, Chosen, Field, Selected
from deniable.localdp.survey.definition import Question, Survey
from deniable.localdp.survey.store import FACTS, Arrival, Store, refuse_facts

MOST_BYTES = 1 << 16
KEYS = {"format", "survey", "ticket", "responses"}
EXCHANGE_KEYS = {"survey", "invitation", "blinded"}
SERIAL = re.compile("[0-9a-f]{64}")
HEXADECIMAL = re.compile("[0-9a-f]{1,1024}")
KEY_BITS, EXPONENT, PROBE = 2048, 65537, 3


class SurveyService:
    """A survey and the store behind it."""

    def __init__(self, survey: Survey, store: Store) -> None:
        self.survey, self.store = survey, store

    @cached_property
    def signer(self) -> TicketSigner | None:
        """The key of the survey's tickets; None where anyone may answer."""
        facts = self.store.facts
        if not self.survey.invited:
            return None
        signer = TicketSigner(int(facts["p"], 16), int(facts["q"], 16))
        with suppress(ValueError, DataError, IntegrityError):
            if signer.modulus.bit_length() == KEY_BITS and signer.sign(PROBE):
                return signer
        raise refuse_facts(self.store.folder)

    def invitations(self, count: int) -> list[str]:
        """Invitations to hand out, one a person, by whoever invites."""
        key = bytes.fromhex(self.store.facts["invitations"])
        return [issue_invitation(key, self.survey.identity) for _ in range(count)]

    def exchange(self, message: bytes) -> str:
        """The signature of a blinded ticket, for an invitation that was not used for another."""
        document = _parse_message(message, EXCHANGE_KEYS)
        if self.signer is None or document["survey"] != self.survey.identity:
            raise _build_refusal("there are no tickets to be had here", "Reload the page: the survey has changed")
        key = bytes.fromhex(self.store.facts["invitations"])
        invitation = digest_invitation(key, self.survey.identity, document["invitation"])
        if invitation is None:
            raise AccessRefused(
                "this survey is by invitation", remedy="Open the link of your invitation", charge=NO_BUDGET
            )
        blinded = document["blinded"]
        if not isinstance(blinded, str) or not HEXADECIMAL.fullmatch(blinded):
            raise _build_refusal("the ticket to be signed is not a number")
        signed = self.signer.sign(int(blinded, 16))
        if not self.store.use_invitation(invitation, sha256(blinded.encode()).digest()):
            raise AccessRefused(
                "this invitation was used before, on another device",
                remedy="Answer there, where the ticket is; or ask for another invitation",
                charge=NO_BUDGET,
            )
        return f"{signed:x}"

    def check(self, message: bytes) -> Arrival:
        """The arrival a message makes, or the refusal; refusals repeat nothing of the message."""
        document = _parse_message(message, KEYS)
        known = type(document["format"]) is int and document["format"] == serialization.FORMAT
        if not known or document["survey"] != self.survey.identity:
            raise _build_refusal(
                "the response is for another survey or format", "Reload the page: the survey has changed"
            )
        stub = self._check_ticket(document["ticket"])
        check_responses(self.survey, document["responses"])
        return Arrival(stub, _write_body(document["responses"]))

    def _check_ticket(self, ticket: object) -> bytes:
        """What is kept of a valid ticket when it is used."""
        serial, dot, signature = ticket.partition(".") if isinstance(ticket, str) else ("", "", "")
        if self.signer is None:
            valid = not dot
        else:
            valid = bool(HEXADECIMAL.fullmatch(signature)) and self.signer.verify(serial, int(signature, 16))
        if not SERIAL.fullmatch(serial) or not valid:
            raise AccessRefused("the ticket is not valid", remedy="Open the link of your invitation", charge=NO_BUDGET)
        return sha256(b"used" + bytes.fromhex(serial)).digest()


def check_responses(survey: Survey, responses: Any) -> None:
    """Refuse responses that no honest client sends."""
    if not isinstance(responses, dict) or not responses:
        raise _build_refusal("the message holds no responses")
    if any(question.hides_unanswered and question.name not in responses for question in survey.questions):
        raise _build_refusal("the message lacks a response, which every client sends here")
    for name, parts in responses.items():
        question = survey.question(name)
        if question is None or not isinstance(parts, list) or len(parts) != len(question.parts):
            raise _build_refusal("a response does not belong to a question of the survey")
        for protocol, response in zip(question.parts, parts, strict=True):
            serialization.check(protocol.layout, response)


def read_bodies(survey: Survey, store: Store) -> tuple[list[str], int]:
    """The stored responses that fit the survey, and how many records are damaged: not whole, or such as nobody sends.

    What was stored was checked when it came. It is checked again, since somebody may have changed the file.
    """
    fitting, damaged = [], store.damaged[0]
    for body in store.bodies():
        try:
            check_responses(survey, json.loads(body, object_pairs_hook=_read_once))
            fitting.append(body)
        except (ValueError, RecursionError, DataError):
            damaged += 1
    return fitting, damaged


def _parse_message(message: bytes, keys: set[str]) -> dict[str, Any]:
    if len(message) > MOST_BYTES:
        raise _build_refusal("the message is too long")
    try:
        # of bytes json would guess the encoding, and take marks and encodings that no client sends
        document = json.loads(message.decode("utf-8"), object_pairs_hook=_read_once)
    except (ValueError, RecursionError):
        raise _build_refusal("the message is not JSON") from None
    if not isinstance(document, dict) or set(document) != keys:
        raise _build_refusal("the message does not have the keys of a response")
    return document


def _read_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of a message; a key that stands twice is none that a client sends."""
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def _build_refusal(happened: str, remedy: str = "Send it as the client files do") -> DataError:
    return DataError(happened, remedy=remedy, charge=NO_BUDGET)


def _write_body(responses: Any) -> str:
    return json.dumps(responses, separators=(",", ":"), sort_keys=True)


def _measure_body(survey: Survey) -> int:
    """The most bytes that the responses of one person can take."""
    return len(_write_body({question.name: _build_longest(question) for question in survey.questions}))


def _build_longest(question: Question) -> list[list[Any]]:
    return [[_fill_field(field) for field in part.layout] for part in question.parts]


def _fill_field(field: Field) -> Any:
    if isinstance(field, Bits):
        return "f" * 2 * field.bytes
    if isinstance(field, Chosen):
        return [field.bound - 1] * field.count
    return (max(field.bounds) if isinstance(field, Selected) else field.bound) - 1


def open_store(folder: str | Path, survey: Survey, writable: bool = True) -> Store:
    """The store in a folder, made with its keys where there was none."""
    asked = f"{survey.identity} {'by invitation' if survey.invited else 'open to anyone'}"
    facts = {"survey": asked, "invitations": salt(32).hex()}
    if survey.invited and writable and not (Path(folder) / FACTS).exists():
        facts |= dict(zip(("p", "q"), (f"{prime:x}" for prime in make_primes()), strict=True))
    store = Store(Path(folder), _measure_body(survey), facts, writable)
    needed = {"invitations": SERIAL} | (dict.fromkeys(("p", "q"), HEXADECIMAL) if survey.invited else {})
    if not all(pattern.fullmatch(store.facts.get(name, "")) for name, pattern in needed.items()):
        raise refuse_facts(store.folder)
    return store


def open_service(survey: Survey, folder: str | Path) -> SurveyService:
    """A survey service over a store; its keys are made when the store is."""
    return SurveyService(survey, open_store(folder, survey))


RANDOM, MAC = 16, 16


def issue_invitation(key: bytes, survey: str) -> str:
    """A fresh invitation: random bytes with a keyed digest of them. It says nothing about who holds it."""
    drawn = salt(RANDOM)
    return base64.urlsafe_b64encode(drawn + _compute_mac(key, survey, drawn)).decode().rstrip("=")


def digest_invitation(key: bytes, survey: str, invitation: object) -> bytes | None:
    """What is kept of a valid invitation when it is used, or None if it is not one of ours."""
    if not isinstance(invitation, str) or len(invitation) > 64:
        return None
    try:
        raw = base64.b64decode(invitation + "=" * (-len(invitation) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    drawn, mac = raw[:RANDOM], raw[RANDOM:]
    if len(raw) != RANDOM + MAC or not hmac.compare_digest(mac, _compute_mac(key, survey, drawn)):
        return None
    return sha256(b"used" + drawn).digest()


def _compute_mac(key: bytes, survey: str, drawn: bytes) -> bytes:
    return hmac.digest(key, survey.encode() + b"\0" + drawn, "sha256")[:MAC]


def make_primes() -> tuple[int, int]:
    """The primes of a fresh key for a survey's tickets."""
    try:
        from cryptography.hazmat.primitives.asymmetric import rsa
    except ImportError:
        raise MissingExtra(
            "a survey by invitation needs cryptography", remedy="Install it with: pip install 'deniable[server]'"
        ) from None
    numbers = rsa.generate_private_key(EXPONENT, KEY_BITS).private_numbers()
    return numbers.p, numbers.q


@dataclass(frozen=True)
class TicketSigner:
    """The private key of tickets: it signs what it does not see (RSABSSA-SHA384-PSSZERO-Deterministic of RFC 9474)."""

    p: int
    q: int

    @property
    def modulus(self) -> int:
        """The public modulus."""
        return self.p * self.q

    def sign(self, blinded: int) -> int:
        """The blinded message to the private exponent.

        The number is multiplied by a random one before and divided after, so that the time it takes tells nothing of
        the key, and the result is checked, so that a fault of the machine cannot show the primes.
        """
        if not 1 < blinded < self.modulus or gcd(blinded, self.modulus) != 1:
            raise _build_refusal("the ticket to be signed is not a number of the survey's key")
        mask = system_draw(self.modulus - 1, SYSTEM.take) + 1
        hidden = blinded * pow(mask, EXPONENT, self.modulus) % self.modulus
        signed = self._raise_private(hidden) * pow(mask, -1, self.modulus) % self.modulus
        if pow(signed, EXPONENT, self.modulus) != blinded:
            raise IntegrityError("the key of the survey's tickets does not work", remedy="Check the store's files")
        return signed

    def _raise_private(self, number: int) -> int:
        """number^d mod p q, by the Chinese remainder theorem."""
        at_p, at_q = (pow(number, pow(EXPONENT, -1, prime - 1), prime) for prime in (self.p, self.q))
        return int(at_q + self.q * ((at_p - at_q) * pow(self.q, -1, self.p) % self.p))

    def verify(self, serial: str, signature: int) -> bool:
        """Whether a signature of a serial, in hexadecimal, is of this key."""
        if not SERIAL.fullmatch(serial) or signature >= self.modulus:
            return False
        signed = encode_serial(bytes.fromhex(serial), self.modulus.bit_length())
        return pow(signature, EXPONENT, self.modulus) == signed
