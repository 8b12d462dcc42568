"""Parsed statements, kept for each cursor: statements that differ in whole numbers only are parsed once.

Reading the text of a small statement takes DuckDB almost half as long as planning and running it. A salt differs from
run to run and a bound from question to question, and both are written `CAST(5 AS BIGINT)`: such a number becomes a
parameter, equal numbers one and the same, so that an expression in SELECT still equals its twin in GROUP BY. The
statement is planned anew each time, with its numbers known; only reading its text is saved."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any

import duckdb

from deniable.errors import InternalError

MOST = 64
"""Shapes that one cursor remembers, and numbers that one shape may leave open."""

LARGEST = 2**63 - 1

# Quoted texts and names come first, so that nothing inside them is taken for a number of ours.
_PIECES = re.compile(r"""'[^']*'|"[^"]*"|CAST\((-?[0-9]{1,19}) AS (U?BIGINT)\)""")


def parameterize(sql: str) -> tuple[str, tuple[int, ...]]:
    """A statement with its whole numbers left open, and the numbers.

    >>> parameterize("SELECT 'CAST(1 AS BIGINT)' WHERE CAST(7 AS BIGINT) < x AND x < CAST(9 AS BIGINT)")
    ("SELECT 'CAST(1 AS BIGINT)' WHERE CAST($1 AS BIGINT) < x AND x < CAST($2 AS BIGINT)", (7, 9))
    """
    places: dict[int, int] = {}

    def replace_number(piece: re.Match[str]) -> str:
        if piece[1] is None or abs(int(piece[1])) > LARGEST:
            return piece[0]
        place = places.setdefault(int(piece[1]), len(places) + 1)
        return f"CAST(${place} AS {piece[2]})"

    shape = _PIECES.sub(replace_number, sql)
    return (shape, tuple(places)) if len(places) <= MOST else (sql, ())


class StatementCache:
    """The parsed statements of one cursor; the longest unused is forgotten first."""

    def __init__(self) -> None:
        self._parsed: OrderedDict[str, Any] = OrderedDict()

    def execute(self, cursor: Any, sql: str) -> Any:
        """Run one reading statement; anything else, or more than one, is our bug and does not run."""
        shape, numbers = parameterize(sql)
        if shape not in self._parsed:
            self._parsed[shape] = parse_select(cursor, shape)
            if len(self._parsed) > MOST:
                self._parsed.popitem(last=False)
        self._parsed.move_to_end(shape)
        return cursor.execute(self._parsed[shape], list(numbers) or None)


def parse_select(connection: Any, sql: str) -> Any:
    """A text as one parsed statement that reads."""
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise InternalError("an engine was given something else than one reading statement; it was not run")
    return statements[0]
