"""Withdrawals: people who are left out from now on.

Who withdrew must be known to leave the rows out, and must not stand in a record that forgets nothing. So the value
itself is kept in the answer store, and the record holds a keyed digest of it: it proves that and when somebody withdrew
to whoever names the value and holds the key, and tells nobody else anything."""

from __future__ import annotations

import hashlib
import hmac
import json
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from deniable.governance.grants import LedgerEntry
from deniable.policy.schema import drop_unseen, fold_case, normalize_spelling

COLLECTION = "withdrawn"
KEYS = "keys"
ACTS = ("withdraw", "reinstate")


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """A value of the column that tells people apart, as text."""

    column: str
    value: str = field(repr=False)

    def commitment(self, key: bytes) -> str:
        """What the record holds instead of the value: the same for every spelling that names the same person."""
        return self._commit(key, normalize_spelling(self.value))

    def commitments(self, key: bytes) -> tuple[str, ...]:
        """What the record may hold instead of the value: now, and as earlier versions normalized it, or did not."""
        spellings = (normalize_spelling(self.value), *_normalize_as_before(self.value), self.value)
        return tuple(self._commit(key, each) for each in dict.fromkeys(spellings))

    def _commit(self, key: bytes, value: str) -> str:
        return hmac.new(key, json.dumps([self.column, value]).encode(), hashlib.sha256).hexdigest()

    def to_bytes(self) -> bytes:
        """What the answer store keeps."""
        return json.dumps({"column": self.column, "value": self.value}).encode()


def read_withdrawal(kept: bytes) -> Withdrawal:
    """The withdrawal that the answer store kept."""
    form = json.loads(kept)
    return Withdrawal(form["column"], form["value"])


def _normalize_as_before(value: str) -> tuple[str, ...]:
    """The forms that decided in earlier versions: with the dots of an i, and before that in lower case alone."""
    lower = unicodedata.normalize("NFC", value).lower()
    return tuple(" ".join(each.split()) for each in (drop_unseen(fold_case(value)), lower))


def fold_reinstated(acts: Iterable[LedgerEntry], known: frozenset[str] = frozenset()) -> frozenset[str]:
    """The digests of those who withdrew and were taken in again, after further acts."""
    reinstated = {*known}
    for act in acts:
        if act.act == "withdraw":
            reinstated.discard(act.details.get("commitment", ""))
        elif act.act == "reinstate":
            reinstated.add(act.details["commitment"])
    return frozenset(reinstated)


class _Ledger(Protocol):
    def entries(self, after: int = 0, acts: tuple[str, ...] = ()) -> Iterable[LedgerEntry]: ...


class _Store(Protocol):
    def list_all(self, collection: str) -> Mapping[str, bytes]: ...


def list_people(ledger: _Ledger, store: _Store) -> tuple[list[str], list[str]]:
    """Who withdrew, and who did and was taken in again, in the form that tells people apart."""
    reinstated = fold_reinstated(ledger.entries(acts=ACTS))
    listed = store.list_all(COLLECTION).items()
    people = [(name in reinstated, normalize_spelling(read_withdrawal(kept).value)) for name, kept in listed]
    return [each for again, each in people if not again], [each for again, each in people if again]
