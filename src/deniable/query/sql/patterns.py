"""Patterns of LIKE: after an escape, a backslash where none is named, a sign stands for itself, as in PostgreSQL.

The engines' LIKE is asked without any escape. A pattern that needs `%` or `_` as themselves becomes a comparison, or a
test of how a text begins or ends or what it holds, which take signs as they are.
"""

from __future__ import annotations

from deniable.query.algebra.expression import Expression, Literal, literal
from deniable.query.algebra.functions import call
from deniable.query.algebra.intervals import Mismatch

ANY_TEXT, ANY_SIGN = "%", "_"


def bind_pattern(name: str, text: Expression, pattern: Expression, escape: str = "\\") -> Expression:
    """`text LIKE pattern ESCAPE escape`; an empty escape is none.

    A pattern that is no written text has no escapes: a sign of it is one of the data.
    """
    written = pattern.value if isinstance(pattern, Literal) else None
    if len(escape) > 1:
        raise Mismatch("takes one sign after ESCAPE, or none: ESCAPE ''")
    if not isinstance(written, str) or not escape or escape not in written:
        return call(name, text, pattern)
    signs = _read_signs(written, escape)
    if not any(itself and sign in (ANY_TEXT, ANY_SIGN) for sign, itself in signs):
        return call(name, text, literal("".join(sign for sign, _ in signs)))
    if name != "like" or (ANY_SIGN, False) in signs:
        raise Mismatch(MIXED)
    pieces = [""]
    for sign, itself in signs:
        if itself or sign != ANY_TEXT:
            pieces[-1] += sign
        else:
            pieces.append("")
    match [pieces[0], *filter(None, pieces[1:-1]), *pieces[1:][-1:]]:  # %% is %
        case [whole]:
            return call("eq", text, literal(whole))
        case ["", end]:
            return call("ends_with", text, literal(end))
        case [start, ""]:
            return call("starts_with", text, literal(start))
        case ["", inner, ""]:
            return call("contains", text, literal(inner))
        case _:
            raise Mismatch(MIXED)


MIXED = (
    "takes a % or _ that stands for itself in LIKE alone, beside % at an end; write CONTAINS, STARTS_WITH or ENDS_WITH"
)


def _read_signs(written: str, escape: str) -> list[tuple[str, bool]]:
    """The signs of a pattern, and whether each stands for itself by an escape before it."""
    found, at = [], 0
    while at < len(written):
        itself = written[at] == escape
        at += itself
        if at == len(written):
            raise Mismatch("takes a pattern that does not end with its escape; write the escape twice for itself")
        found.append((written[at], itself))
        at += 1
    return found
