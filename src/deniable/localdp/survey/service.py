"""The service that takes responses: what does not fit is refused here, what fits is reduced to what may be stored.

Each ticket lets one response in, once, and says nothing about who holds it: it is sixteen random bytes with a keyed
digest of them. Anybody with the key can check one, nobody without it can make one. Only the digest of a used ticket is
stored, apart from the responses and in no common order."""

from __future__ import annotations

import base64
import binascii
import hmac
import json
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from deniable.dp.samplers import salt
from deniable.errors import NO_BUDGET, AccessRefused, DataError, IntegrityError
from deniable.localdp import serialization
from deniable.localdp.survey.definition import Survey
from deniable.localdp.survey.store import Arrival, PostgresStore, SqliteStore, Store

MOST_BYTES = 1 << 16
KEYS = {"format", "survey", "ticket", "responses"}


@dataclass(frozen=True, slots=True)
class SurveyService:
    """A survey, the key of its tickets, and the store behind it."""

    survey: Survey
    key: bytes
    store: Store

    def ticket(self) -> str:
        """A fresh ticket; an invited survey gives none away."""
        if self.survey.invited:
            raise AccessRefused(
                "this survey is by invitation", remedy="Open the link of your invitation", charge=NO_BUDGET
            )
        return issue_ticket(self.key, self.survey.identity)

    def invitations(self, count: int) -> list[str]:
        """Tickets to hand out, one a person, by whoever invites."""
        return [issue_ticket(self.key, self.survey.identity) for _ in range(count)]

    def check(self, message: bytes) -> Arrival:
        """The arrival a message makes, or the refusal; refusals repeat nothing of the message."""
        document = _parse_message(message)
        if document["format"] != serialization.FORMAT or document["survey"] != self.survey.identity:
            raise _build_refusal(
                "the response is for another survey or format", "Reload the page: the survey has changed"
            )
        stub = digest_ticket(self.key, self.survey.identity, document["ticket"])
        if stub is None:
            raise AccessRefused("the ticket is not valid", remedy="Ask for a new one", charge=NO_BUDGET)
        self._check_responses(document["responses"])
        return Arrival(stub, json.dumps(document["responses"], separators=(",", ":"), sort_keys=True))

    def _check_responses(self, responses: Any) -> None:
        if not isinstance(responses, dict) or not responses:
            raise _build_refusal("the message holds no responses")
        for name, parts in responses.items():
            question = self.survey.question(name)
            if question is None or not isinstance(parts, list) or len(parts) != len(question.parts):
                raise _build_refusal("a response does not belong to a question of the survey")
            for protocol, response in zip(question.parts, parts, strict=True):
                serialization.check(protocol.layout, response)


def _parse_message(message: bytes) -> dict[str, Any]:
    if len(message) > MOST_BYTES:
        raise _build_refusal("the message is too long")
    try:
        document = json.loads(message)
    except (ValueError, RecursionError):
        raise _build_refusal("the message is not JSON") from None
    if not isinstance(document, dict) or set(document) != KEYS:
        raise _build_refusal("the message does not have the keys of a response")
    return document


def _build_refusal(happened: str, remedy: str = "Send it as the client files do") -> DataError:
    return DataError(happened, remedy=remedy, charge=NO_BUDGET)


def open_store(address: str | Path, survey: Survey, writable: bool = True) -> Store:
    """The store at a path, or in a PostgreSQL database named by its URL."""
    if str(address).startswith(("postgresql://", "postgres://")):
        return PostgresStore(str(address), survey.identity)
    store = SqliteStore(Path(address), writable)
    if store.fact("survey", survey.identity.encode()) != survey.identity.encode():
        store.close()
        raise IntegrityError(
            f"the store '{address}' holds responses to another version of this survey",
            expected="Responses fit only the questions they were asked with",
            remedy="Name a new file with --store, or bring the old survey file back",
        )
    return store


def open_service(survey: Survey, address: str | Path) -> SurveyService:
    """A survey service over a store; the ticket key is made when the store is."""
    store = open_store(address, survey)
    key = store.fact(f"key {survey.identity}", make_ticket_key())
    return SurveyService(survey, key, store)


RANDOM, MAC = 16, 16
KEY_BYTES = 32


def make_ticket_key() -> bytes:
    """A fresh key for a survey's tickets."""
    return salt(KEY_BYTES)


def issue_ticket(key: bytes, survey: str) -> str:
    """A fresh ticket for one response to a survey."""
    drawn = salt(RANDOM)
    return base64.urlsafe_b64encode(drawn + _compute_mac(key, survey, drawn)).decode().rstrip("=")


def digest_ticket(key: bytes, survey: str, ticket: object) -> bytes | None:
    """What is kept of a valid ticket when it is used, or None if the ticket is not one of ours."""
    if not isinstance(ticket, str) or len(ticket) > 64:
        return None
    try:
        raw = base64.b64decode(ticket + "=" * (-len(ticket) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return None
    drawn, mac = raw[:RANDOM], raw[RANDOM:]
    if len(raw) != RANDOM + MAC or not hmac.compare_digest(mac, _compute_mac(key, survey, drawn)):
        return None
    return sha256(b"used" + drawn).digest()


def _compute_mac(key: bytes, survey: str, drawn: bytes) -> bytes:
    return hmac.digest(key, survey.encode() + b"\0" + drawn, "sha256")[:MAC]
