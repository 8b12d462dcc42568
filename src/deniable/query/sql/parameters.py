"""Parameters of a statement: `$1`, `$2` stand for values that the asker sends beside the text.

A value becomes a literal of its own type, and a literal is exactly one operand: after filling in, the text is read
again by the tokenizer that the parser uses, and its tokens must be those of the statement with those of each literal
in the place of its parameter. So no value can become anything but a value, whatever characters it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal

from sqlglot.tokens import Token, TokenType

from deniable.errors import InternalError, ParameterError
from deniable.query.sql.clauses import refuse, tokens_of

Value = str | int | float | bool | Decimal | date | datetime | None

MOST = 1000


def fill_parameters(text: str, values: Sequence[Value]) -> str:
    """The statement with its parameters replaced by literals.

    >>> fill_parameters("SELECT COUNT(*) FROM t WHERE name = $1 AND age > $2", ["O'Hara", 30])
    "SELECT COUNT(*) FROM t WHERE name = 'O''Hara' AND age > 30"
    """
    if len(values) > MOST:
        raise ParameterError(f"a statement has at most {MOST} parameters")
    literals = [render_literal(value) for value in values]
    pieces, expected, end = [], [], 0
    found = tokens_of(text)
    i = 0
    while i < len(found):
        number = _parameter_number(found, i)
        if number is None:
            expected.append(_token_key(found[i]))
            i += 1
            continue
        if not 1 <= number <= len(literals):
            raise refuse(text, found[i].start, f"there is no parameter ${number}", expected=f"{len(values)} were given")
        pieces += [text[end : found[i].start], literals[number - 1]]
        expected += [_token_key(token) for token in tokens_of(literals[number - 1])]
        end = found[i + 1].end + 1
        i += 2
    whole = "".join([*pieces, text[end:]])
    if [_token_key(token) for token in tokens_of(whole)] != expected:
        raise InternalError("a parameter did not stay one value; nothing was run")
    return whole


def count_parameters(text: str) -> int:
    """The highest number of a parameter in a statement."""
    found = tokens_of(text)
    return max((number for i in range(len(found)) if (number := _parameter_number(found, i)) is not None), default=0)


def render_literal(value: Value) -> str:
    """A value as one operand of SQL; negative numbers are in brackets, so that no sign can meet another."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int() | float() | Decimal():
            return _render_number(value)
        case datetime():
            return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
        case date():
            return f"DATE '{value.isoformat()}'"
        case str():
            if "\0" in value:
                raise ParameterError("a text parameter has a zero character")
            return "'" + value.replace("'", "''") + "'"


def _render_number(value: int | float | Decimal) -> str:
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not number.is_finite() or abs(number.adjusted()) > 40:
        raise ParameterError("a number parameter is not finite, or too large or too small to be written out")
    written = f"{number:f}"
    return f"({written})" if number.is_signed() else written  # minus zero is signed too


def _parameter_number(found: list[Token], i: int) -> int | None:
    """The number of a parameter that starts at this token: a dollar sign and, right after it, digits."""
    if found[i].token_type is not TokenType.PARAMETER or i + 1 >= len(found):
        return None
    following = found[i + 1]
    adjacent = following.start == found[i].end + 1
    digits = following.token_type is TokenType.NUMBER and following.text.isdigit() and len(following.text) < 6
    return int(following.text) if adjacent and digits else None


def _token_key(token: Token) -> tuple[TokenType, str]:
    return token.token_type, token.text
