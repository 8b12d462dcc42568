"""AUTO_CLAMP(x): where it stands in a statement, and the statement with bounds in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from deniable.errors import QueryRefused
from deniable.query.sql.clauses import place_at

NAME = "AUTO_CLAMP"


@dataclass(frozen=True, slots=True)
class AutoClamp:
    """One call: its column (and table, where it is written), and the part of the text it takes."""

    column: str
    table: str
    start: int
    end: int


def auto_clamps(text: str) -> tuple[AutoClamp, ...]:
    """Every call in a statement; one that is not of a plain column is refused."""
    if NAME not in text.upper():
        return ()
    try:
        tokens = sqlglot.tokenize(text, read="duckdb")
    except SqlglotError:
        return ()
    found = [i for i, token in enumerate(tokens) if _named(token) and _is(tokens, i + 1, TokenType.L_PAREN)]
    return tuple(_call(text, tokens, i) for i in found)


def _named(token: Token) -> bool:
    return token.token_type is not TokenType.STRING and token.text.upper() == NAME


def _is(tokens: list[Token], at: int, kind: TokenType) -> bool:
    return at < len(tokens) and tokens[at].token_type is kind


def _call(text: str, tokens: list[Token], at: int) -> AutoClamp:
    words: list[str] = []
    i = at + 2
    while i < len(tokens) and len(words) < 2:
        words.append(tokens[i].text)
        i += 1
        if not _is(tokens, i, TokenType.DOT):
            break
        i += 1
    if not _is(tokens, i, TokenType.R_PAREN) or not words or not words[-1].replace("_", "").isalnum():
        raise QueryRefused(
            "AUTO_CLAMP takes one column",
            place=place_at(text, tokens[at].start),
            expected="AUTO_CLAMP(charge) or AUTO_CLAMP(visits.charge)",
            remedy="Clamp an expression by hand: CLAMP(x, 0, 100)",
        )
    return AutoClamp(words[-1], words[0] if len(words) == 2 else "", tokens[at].start, tokens[i].end + 1)


def with_bounds(text: str, bounds: Mapping[AutoClamp, tuple[str, str]]) -> str:
    """The statement with CLAMP and bounds for each call."""
    for call in sorted(bounds, key=lambda each: -each.start):
        low, high = bounds[call]
        column = f"{call.table}.{call.column}" if call.table else call.column
        text = f"{text[: call.start]}CLAMP({column}, {low}, {high}){text[call.end :]}"
    return text
