"""The desk that takes responses: what does not fit is turned away here, what fits is reduced to what may be kept."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deniable.errors import NO_BUDGET, AccessRefused, DataError, IntegrityError
from deniable.localdp import wire
from deniable.localdp.survey import tickets
from deniable.localdp.survey.definition import Survey
from deniable.localdp.survey.store import Arrival, SqliteStore, Store

MOST_BYTES = 1 << 16
KEYS = {"format", "survey", "ticket", "responses"}


@dataclass(frozen=True, slots=True)
class Desk:
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
        return tickets.issue(self.key, self.survey.identity)

    def invitations(self, count: int) -> list[str]:
        """Tickets to hand out, one a person, by whoever invites."""
        return [tickets.issue(self.key, self.survey.identity) for _ in range(count)]

    def check(self, message: bytes) -> Arrival:
        """The arrival a message makes, or the refusal; refusals repeat nothing of the message."""
        document = _document(message)
        if document["format"] != wire.FORMAT or document["survey"] != self.survey.identity:
            raise _malformed("the response is for another survey or format", "Reload the page: the survey has changed")
        stub = tickets.stub(self.key, self.survey.identity, document["ticket"])
        if stub is None:
            raise AccessRefused("the ticket is not valid", remedy="Ask for a new one", charge=NO_BUDGET)
        self._check_responses(document["responses"])
        return Arrival(stub, json.dumps(document["responses"], separators=(",", ":"), sort_keys=True))

    def _check_responses(self, responses: Any) -> None:
        if not isinstance(responses, dict) or not responses:
            raise _malformed("the message holds no responses")
        for name, parts in responses.items():
            question = self.survey.question(name)
            if question is None or not isinstance(parts, list) or len(parts) != len(question.parts):
                raise _malformed("a response does not belong to a question of the survey")
            for protocol, response in zip(question.parts, parts, strict=True):
                wire.check(protocol.layout, response)


def _document(message: bytes) -> dict[str, Any]:
    if len(message) > MOST_BYTES:
        raise _malformed("the message is too long")
    try:
        document = json.loads(message)
    except (ValueError, RecursionError):
        raise _malformed("the message is not JSON") from None
    if not isinstance(document, dict) or set(document) != KEYS:
        raise _malformed("the message does not have the keys of a response")
    return document


def _malformed(happened: str, remedy: str = "Send it as the client files do") -> DataError:
    return DataError(happened, remedy=remedy, charge=NO_BUDGET)


def open_store(address: str | Path, survey: Survey, writable: bool = True) -> Store:
    """The store at a path, or in a PostgreSQL database named by its URL."""
    if str(address).startswith(("postgresql://", "postgres://")):
        from deniable.localdp.survey.postgres import PostgresStore

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


def open_desk(survey: Survey, address: str | Path) -> Desk:
    """A desk over a store; the ticket key is made when the store is."""
    store = open_store(address, survey)
    key = store.fact(f"key {survey.identity}", tickets.new_key())
    return Desk(survey, key, store)
