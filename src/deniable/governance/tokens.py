"""Tokens: random, shown once, stored as a hash, scoped to a dataset and purposes, expiring, revocable.

A token is 32 random bytes; what is written down is its SHA-256, which needs no salt because nobody can guess the
bytes, and the keys with which a proof of it is checked (see `scram`). Finding a hash in a table takes the same time
whether the token was once valid, is valid, or never was.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from deniable.errors import AccessRefused, ParameterError
from deniable.governance.grants import Grant, LedgerEntry, Role, Subject, refuse_name
from deniable.governance.scram import ScramKeys

PREFIX = "deniable_"
ACTS = ("token", "revoke", "pause", "unpause")


@dataclass(frozen=True, slots=True)
class Token:
    """A token that was given out: its grant, its hash, and whether it still counts."""

    grant: Grant
    digest: str
    issued: datetime
    revoked: datetime | None = None
    paused: datetime | None = None
    """Since when the steward holds it up; it counts again when that is taken back."""
    scram: ScramKeys | None = None
    """What proofs of it are checked with; None for tokens of an earlier version."""
    issuer: str = ""
    """The id of the token by which it was given out; empty where that was done beside the ledger itself."""
    given_by: str = ""

    def as_dict(self) -> dict[str, Any]:
        """What may be listed: everything but the hash."""
        grant = self.grant
        return {
            "id": grant.id,
            "name": grant.name,
            "role": str(grant.role),
            "purposes": None if grant.purposes is None else list(grant.purposes),
            "issued": self.issued.isoformat(timespec="seconds"),
            "expires": grant.expires.isoformat(timespec="seconds") if grant.expires else None,
            "revoked": self.revoked.isoformat(timespec="seconds") if self.revoked else None,
            "paused": self.paused.isoformat(timespec="seconds") if self.paused else None,
            "subject": grant.subject.column if grant.subject else None,
        }


def issue_token(grant: Grant, issuer: str = "") -> tuple[str, dict[str, Any]]:
    """A new token for a grant, and the facts about it that may be written down; `issuer` is the token that gives it."""
    if not grant.name.strip():
        raise ParameterError("a token needs a name", expected="The name of the one who will use it")
    refuse_name(grant.name, grant.role)
    if grant.role is Role.ANALYST and not grant.purposes:
        raise ParameterError("an analyst's token names its purposes", remedy="Say --purpose")
    if (grant.role is Role.RESPONDENT) != (grant.subject is not None):
        raise ParameterError(
            "a respondent's token names the person it is for, and no other token does",
            remedy="Say --column and --value for a respondent",
        )
    text = PREFIX + secrets.token_urlsafe(32)
    digest = digest_of(text)
    facts: dict[str, Any] = {"id": digest[:12], "hash": digest, "name": grant.name, "role": str(grant.role)}
    facts |= {"dataset": grant.dataset, "purposes": None if grant.purposes is None else list(grant.purposes)}
    facts |= {"scram": ScramKeys.of(grant.name, text).to_text(), "issuer": issuer}
    if grant.subject is not None:
        facts |= {"subject": {"column": grant.subject.column, "commitments": list(grant.subject.commitments)}}
    return text, facts | {"expires": grant.expires.isoformat() if grant.expires else None}


def digest_of(token: str) -> str:
    """What is stored of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def fold_tokens(acts: Iterable[LedgerEntry], known: Mapping[str, Token] | None = None) -> dict[str, Token]:
    """The tokens by their hash, after further acts."""
    tokens = dict(known or {})
    for act in acts:
        if act.act == "token":
            token = _read_token(act)
            tokens[token.digest] = token
        elif act.act in ACTS:
            named = [key for key, token in tokens.items() if token.grant.id == act.details["id"]]
            tokens |= {key: _change_token(tokens[key], act) for key in named}
    return tokens


def _change_token(token: Token, act: LedgerEntry) -> Token:
    if act.act == "revoke":
        return replace(token, revoked=act.time)
    return replace(token, paused=act.time if act.act == "pause" else None)


def grant_of(token: str, tokens: Mapping[str, Token]) -> Grant:
    """The grant of a token; one sentence refuses an unknown and a revoked one alike."""
    found = tokens.get(digest_of(token))
    if found is None:
        raise AccessRefused("the token is not valid", remedy="Ask the steward for another")
    refuse_ended(found)
    return found.grant


def refuse_ended(token: Token) -> None:
    """Refuse a token that was revoked or paused."""
    if token.revoked is not None:
        raise AccessRefused("the token is not valid", remedy="Ask the steward for another")
    if token.paused is not None:
        raise AccessRefused("the token is paused", remedy="Ask the steward, who may resume it: deniable token resume")


def refuse_stale(grant: Grant, tokens: Mapping[str, Token]) -> None:
    """Refuse a grant whose term is over, or whose token was revoked or paused since it was taken."""
    grant.refuse_ended(datetime.now(UTC))
    if grant.has_token:
        refuse_ended(find_token(grant.id, tokens))


def find_provable(name: str, tokens: Mapping[str, Token]) -> list[tuple[ScramKeys, Grant]]:
    """The tokens of a name that still count and can be proved without being sent."""
    found = [each for each in tokens.values() if each.grant.name == name and not (each.revoked or each.paused)]
    return [(each.scram, each.grant) for each in found if each.scram is not None]


def find_token(identity: str, tokens: Mapping[str, Token]) -> Token:
    """The token of that id."""
    found = [token for token in tokens.values() if token.grant.id == identity]
    if not found:
        raise ParameterError(f"there is no token '{identity}'", remedy="List them with: deniable token list")
    return found[0]


def _read_token(act: LedgerEntry) -> Token:
    facts = act.details
    purposes = None if facts["purposes"] is None else tuple(facts["purposes"])
    expires = datetime.fromisoformat(facts["expires"]) if facts["expires"] else None
    named = facts.get("subject")
    subject = Subject(named["column"], tuple(named["commitments"])) if named else None
    grant = Grant(facts["name"], Role(facts["role"]), facts["dataset"], purposes, expires, facts["id"], subject)
    scram = ScramKeys.read(facts["scram"]) if facts.get("scram") else None
    issuer = facts.get("issuer", "")
    return Token(grant, facts["hash"], act.time, scram=scram, issuer=issuer, given_by=act.analyst)


def find_person(grant: Grant, tokens: Mapping[str, Token]) -> str:
    """Who is behind a grant: whoever gives out a token sees its text, so the holder of it may be the same person.

    A token that was given out beside the ledger stands for its own name; one given out by a token for who holds that.
    """
    by_id = {token.grant.id: token for token in tokens.values()}
    token = by_id.get(grant.id)
    while token is not None and token.issuer in by_id:
        token = by_id[token.issuer]
    if token is None:
        return grant.name  # of an issuer of identities elsewhere
    # Earlier versions wrote down no more than the name of who gave it out.
    return token.grant.name if token.given_by in ("", str(Role.STEWARD)) or token.issuer else token.given_by
