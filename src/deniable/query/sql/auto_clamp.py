"""AUTO_CLAMP(x): where it stands in a statement, the rows that its bounds are found over, and the statement with them.

The rows are those that the aggregate around it sees: FROM, JOIN and WHERE of the SELECT it stands in. They are written
anew as the source of a question of its own, which goes through the same compiler as any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import expressions as exp
from sqlglot.errors import SqlglotError
from sqlglot.tokens import Token, TokenType

from deniable.errors import QueryRefused
from deniable.query.sql.clauses import cut_clauses, place_at
from deniable.query.sql.scalar import has_aggregate, offset_of

NAME = "AUTO_CLAMP"
MOST_CALLS = 20


@dataclass(frozen=True, slots=True)
class AutoClamp:
    """One call: its argument as it was typed, the rows it is over, and the part of the text it takes."""

    argument: str
    named: str
    """WITH and what follows it, where the statement has it."""
    rows: str
    """FROM and JOIN."""
    condition: str
    """WHERE, or nothing."""
    start: int
    end: int

    @property
    def meant(self) -> tuple[str, str, str, str]:
        """What is to be bounded, over which rows: equal for calls that have the same bounds."""
        return self.argument, self.rows, self.condition, self.named


def find_auto_clamps(text: str) -> tuple[AutoClamp, ...]:
    """Every call in a statement; one that is not over rows is refused."""
    if not isinstance(text, str) or NAME not in text.upper():
        return ()
    try:
        tokens = sqlglot.tokenize(text, read="duckdb")
    except SqlglotError:
        return ()
    spans = [
        _find_span(text, tokens, i) for i, token in enumerate(tokens) if _is_auto_clamp(token) and _opens(tokens, i + 1)
    ]
    if not spans:
        return ()
    nodes = _parse_calls(text)
    if len(nodes) != len(spans) or any(a < c < b for a, b in spans for c, _ in spans):
        raise _refuse_call(text, spans[0][0], "AUTO_CLAMP cannot be read here")
    return tuple(_read_call(text, span, node) for span, node in zip(spans, nodes, strict=True))


def _is_auto_clamp(token: Token) -> bool:
    return token.token_type is not TokenType.STRING and token.text.upper() == NAME


def _opens(tokens: list[Token], at: int) -> bool:
    return at < len(tokens) and tokens[at].token_type is TokenType.L_PAREN


def _find_span(text: str, tokens: list[Token], at: int) -> tuple[int, int]:
    """From the name to the bracket that closes the call."""
    depth = 0
    for token in tokens[at + 1 :]:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth == 0:
            return tokens[at].start, token.end + 1
    raise _refuse_call(text, tokens[at].start, "AUTO_CLAMP is not closed")


def _parse_calls(text: str) -> list[exp.Anonymous]:
    """The calls as the parser sees them, in the order of the text."""
    try:
        tree = sqlglot.parse_one(cut_clauses(text).text, read="duckdb")
    except (SqlglotError, RecursionError):
        raise QueryRefused("the statement cannot be read as SQL") from None
    found = [node for node in tree.find_all(exp.Anonymous) if node.name.upper() == NAME]
    if len(found) > MOST_CALLS:
        raise QueryRefused(f"a question has at most {MOST_CALLS} AUTO_CLAMP", remedy="Clamp by hand: CLAMP(x, 0, 100)")
    return sorted(found, key=offset_of)


def _read_call(text: str, span: tuple[int, int], node: exp.Anonymous) -> AutoClamp:
    try:
        return _read_parts(text, span, node)
    except RecursionError:
        raise QueryRefused("the statement is nested too deeply") from None


def _read_parts(text: str, span: tuple[int, int], node: exp.Anonymous) -> AutoClamp:
    if len(node.expressions) != 1 or has_aggregate(node.expressions[0]):
        raise _refuse_call(text, span[0], "AUTO_CLAMP takes one expression over rows")
    if node.find_ancestor(exp.Where, exp.Join, exp.Group) is not None and not _is_inside_select(node):
        raise _refuse_call(text, span[0], "AUTO_CLAMP chooses no rows and no groups")
    select = node.find_ancestor(exp.Select)
    parts = [select.args.get("from_") or select.args.get("from"), *(select.args.get("joins") or [])] if select else []
    if select is None or not parts or parts[0] is None:
        raise _refuse_call(text, span[0], "there are no rows to find bounds of")
    rows, where = " ".join(part.sql(dialect="duckdb") for part in parts), select.args.get("where")
    condition = where.this.sql(dialect="duckdb") if where is not None else ""
    above = node.root().args.get("with_") or node.root().args.get("with")
    named = above.sql(dialect="duckdb") if above is not None and select is node.root() else ""
    if NAME in (rows + condition + named).upper():
        raise _refuse_call(text, span[0], "the rows that AUTO_CLAMP is over are bounded by AUTO_CLAMP themselves")
    return AutoClamp(node.expressions[0].sql(dialect="duckdb"), named, rows, condition, *span)


def _is_inside_select(node: exp.Expression) -> bool:
    """Whether the nearest of WHERE, JOIN, GROUP BY and a SELECT around a call is the SELECT."""
    nearest = node.find_ancestor(exp.Where, exp.Join, exp.Group, exp.Select)
    return isinstance(nearest, exp.Select)


def _refuse_call(text: str, at: int, happened: str) -> QueryRefused:
    return QueryRefused(
        happened,
        place=place_at(text, at),
        expected="SUM(AUTO_CLAMP(charge)), or of any expression over the rows",
        remedy="Clamp by hand: CLAMP(x, 0, 100)",
    )


def insert_bounds(text: str, bounds: Mapping[AutoClamp, tuple[str, str]]) -> str:
    """The statement with CLAMP and bounds for each call."""
    for call in sorted(bounds, key=lambda each: -each.start):
        low, high = bounds[call]
        text = f"{text[: call.start]}CLAMP({call.argument}, {low}, {high}){text[call.end :]}"
    return text
