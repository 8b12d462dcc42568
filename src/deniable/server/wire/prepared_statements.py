"""Prepared statements and cursors of a session, whether a message or a statement made them.

    PREPARE n AS ..., EXECUTE n (...), DEALLOCATE n      DECLARE n CURSOR FOR ..., FETCH k FROM n, MOVE, CLOSE n

A cursor is a portal: its question is asked, and charged, when rows are first taken from it. Rows are taken forwards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from deniable.server.wire import values as v
from deniable.server.wire.codec import ResultColumn, StatementResult, WireRefusal
from deniable.server.wire.lexer import Kind, Statement, Token, split_statements

MOST_NAMES = 1000
"""Prepared statements, and portals, of one session."""
FORWARD = frozenset({"next", "forward", "all", "from", "in"})
BACKWARD = frozenset({"prior", "first", "last", "absolute", "relative", "backward"})


@dataclass(slots=True)
class Prepared:
    """A statement that was parsed; None is the empty one. `oids` are the types of its parameters."""

    statement: Statement | None
    oids: tuple[int, ...]


@dataclass(slots=True)
class Portal:
    """A statement with its values, and what is left of its rows once it ran."""

    prepared: Prepared
    values: tuple[Any, ...]
    formats: tuple[int, ...]
    columns: tuple[ResultColumn, ...] | None = None
    """The columns as they were described: what is sent then has their types."""
    outcome: StatementResult | None = None
    given: int = field(default=0)
    hold: bool = False
    """Whether it outlives its transaction."""


class PreparedStatements:
    """The prepared statements and portals of one session."""

    def __init__(self) -> None:
        self.prepared: dict[str, Prepared] = {}
        self.portals: dict[str, Portal] = {}

    def prepare(self, name: str, prepared: Prepared) -> None:
        """Keep a statement under a name that is free, or under no name."""
        if name and name in self.prepared:
            raise WireRefusal("42P05", "a prepared statement of that name exists already")
        if len(self.prepared) >= MOST_NAMES:
            raise WireRefusal("53400", f"more than {MOST_NAMES} prepared statements", "DEALLOCATE some")
        self.prepared[name] = prepared

    def open(self, name: str, portal: Portal) -> None:
        """Keep a portal under a name that is free, or under no name."""
        if name and name in self.portals:
            raise WireRefusal("42P03", "a portal of that name exists already")
        if len(self.portals) >= MOST_NAMES:
            raise WireRefusal("53400", f"more than {MOST_NAMES} portals")
        self.portals[name] = portal

    def statement(self, name: str) -> Prepared:
        """The prepared statement of a name."""
        if name not in self.prepared:
            raise WireRefusal("26000", f'prepared statement "{name}" does not exist')
        return self.prepared[name]

    def portal(self, name: str) -> Portal:
        """The portal of a name."""
        if name not in self.portals:
            raise WireRefusal("34000", f'portal "{name}" does not exist')
        return self.portals[name]

    def deallocate(self, statement: Statement) -> str:
        """DEALLOCATE one or all, and the tag of it."""
        name = statement.words[-1]
        if statement.words[-1] == "all" and statement.tokens[-1].kind is Kind.WORD:
            self.prepared.clear()
            return "DEALLOCATE ALL"
        self.statement(name)
        del self.prepared[name]
        return "DEALLOCATE"

    def close(self, statement: Statement) -> str:
        """CLOSE one or all, and the tag of it."""
        if statement.starts("close", "all"):
            self.portals.clear()
            return "CLOSE CURSOR ALL"
        name = statement.words[-1]
        self.portal(name)
        del self.portals[name]
        return "CLOSE CURSOR"

    def end_transaction(self) -> None:
        """Portals end with their transaction, but for those that are held."""
        self.portals = {name: portal for name, portal in self.portals.items() if portal.hold}


def parse_prepare(statement: Statement) -> tuple[str, Prepared]:
    """The name and the statement of PREPARE name (types) AS statement."""
    name, body = _read_name(statement, 1), _read_statement_after(statement, "as")
    return name, Prepared(body, complete_types(body, ()))


def parse_declare(statement: Statement, values: Sequence[Any]) -> tuple[str, Portal]:
    """The name and the portal of DECLARE name ... CURSOR ... FOR statement."""
    name, body = _read_name(statement, 1), _read_statement_after(statement, "for")
    options = statement.words[2 : statement.words.index("for")]
    if "binary" in options:
        raise WireRefusal("0A000", "binary cursors are not supported", "Leave out BINARY")
    hold = "hold" in options and "without" not in options
    return name, Portal(Prepared(body, complete_types(body, ())), tuple(values), (), hold=hold)


def parse_execute(statement: Statement) -> tuple[str, tuple[Any, ...]]:
    """The name and the values of EXECUTE name (values)."""
    name, rest = _read_name(statement, 1), statement.tokens[2:]
    if not rest:
        return name, ()
    if rest[0].text != "(" or rest[-1].text != ")":
        raise _build_syntax_refusal("EXECUTE takes its values in brackets", "Write: EXECUTE name ('text', 3)")
    inner: list[list[Token]] = [[]]
    for token in rest[1:-1]:
        if token.text == "," and token.kind is Kind.SIGN:
            inner.append([])
        else:
            inner[-1].append(token)
    return name, tuple(_read_literal(each) for each in inner) if inner != [[]] else ()


def parse_fetch(statement: Statement) -> tuple[str, int | None]:
    """The name of a cursor and how many rows FETCH or MOVE takes; None takes all."""
    words = statement.words[1:]
    if not words:
        raise _build_syntax_refusal("FETCH needs a cursor", "Write: FETCH 100 FROM name")
    if set(words[:-1]) & BACKWARD:
        raise WireRefusal("0A000", "a cursor goes forwards only", "Write: FETCH 100 FROM name")
    counts = [word for word in words[:-1] if word not in FORWARD]
    if len(counts) > 1 or not all(word.isascii() and word.isdigit() and len(word) < 10 for word in counts):
        raise _build_syntax_refusal("FETCH takes a number of rows", "Write: FETCH 100 FROM name")
    if "all" in words[:-1]:
        return words[-1], None
    return words[-1], int(counts[0]) if counts else 1


def complete_types(statement: Statement | None, oids: tuple[int, ...]) -> tuple[int, ...]:
    """A type for each parameter of the statement; one that the client left open is a text."""
    named = [token for token in (statement.tokens if statement else ()) if token.kind is Kind.PARAMETER]
    count = max((int(token.text[1:]) for token in named if len(token.text) < 6), default=0)
    return oids + (v.TEXT,) * (count - len(oids))


def _read_name(statement: Statement, place: int) -> str:
    if len(statement.tokens) <= place or statement.tokens[place].kind not in (Kind.WORD, Kind.NAME):
        raise _build_syntax_refusal(f"{statement.words[0].upper()} needs a name")
    return statement.tokens[place].value


def _read_statement_after(statement: Statement, word: str) -> Statement:
    """The statement that follows a word."""
    places = [i for i, token in enumerate(statement.tokens) if token.kind is Kind.WORD and token.value == word]
    inner = split_statements(statement.text[statement.tokens[places[0]].end :]) if places else ()
    if not inner:
        raise _build_syntax_refusal(f"{statement.words[0].upper()} needs a statement after {word.upper()}")
    return inner[0]


def _read_literal(found: list[Token]) -> Any:
    """One value: a text, a number, true, false or null."""
    negative = len(found) == 2 and found[0].text == "-"
    token = found[-1] if len(found) == 1 or negative else None
    if token is not None and token.kind is Kind.NUMBER and len(token.text) <= 40:
        return v.parse_number(("-" if negative else "") + token.text)
    if token is not None and not negative and token.kind is Kind.STRING:
        return token.value
    if token is not None and not negative and token.value in ("true", "false", "null"):
        return {"true": True, "false": False, "null": None}[token.value]
    raise _build_syntax_refusal("a value of EXECUTE is a text, a number, true, false or null")


def _build_syntax_refusal(happened: str, hint: str = "") -> WireRefusal:
    return WireRefusal("42601", happened, hint)
