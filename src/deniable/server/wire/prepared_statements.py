"""Prepared statements and cursors of a session, whether a message or a statement made them.

    PREPARE n AS ..., EXECUTE n (...), DEALLOCATE n      DECLARE n CURSOR FOR ..., FETCH k FROM n, MOVE, CLOSE n

A cursor is a portal: its question is asked, and charged, when rows are first taken from it. Rows are taken forwards."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from deniable.query.sql.lexer import Kind, Statement, Token, split_statements
from deniable.server.wire import values as v
from deniable.server.wire.codec import ResultColumn, Rows, StatementResult, TableRows, WireRefusal

MOST_NAMES = 1000
"""Prepared statements, and portals, of one session."""
MOST_TOKENS, MOST_BYTES, MOST_ROW_BYTES = 100_000, 8_000_000, 16_000_000
"""What one session may hold: words of statements, whether they are prepared or a cursor's; bytes of names, statements,
bound values and columns; bytes of the answers whose rows were not all fetched."""
MOST_PARAMETERS = 1000
FORWARD = frozenset({"next", "forward", "all", "from", "in"})
BACKWARD = frozenset({"prior", "first", "last", "absolute", "relative", "backward"})


def weigh(value: object) -> int:
    """Bytes that a value takes in memory, with those of its members."""
    members = value if isinstance(value, tuple | list) else (value.name,) if isinstance(value, ResultColumn) else ()
    return sys.getsizeof(value) + sum(map(weigh, members))


@dataclass(slots=True)
class Prepared:
    """A statement that was parsed; None is the empty one. `oids` are the types of its parameters."""

    statement: Statement | None
    oids: tuple[int, ...]
    words: int = field(init=False, default=0)
    columns: tuple[ResultColumn, ...] | None = field(init=False, default=None)
    """The columns as they were described: what is sent of a portal that was not described has these."""
    size: int = field(init=False)
    """Bytes of its text, which its words repeat, of its types and its columns."""

    def describe(self, columns: tuple[ResultColumn, ...] | None) -> None:
        """Keep the columns that it will give."""
        self.size += weigh(columns) - weigh(self.columns)
        self.columns = columns

    def __post_init__(self) -> None:
        self.size = weigh(self.oids)
        if self.statement is not None:
            self.words, self.size = len(self.statement.tokens), self.size + 2 * weigh(self.statement.text)


@dataclass(slots=True)
class Portal:
    """A statement with its values, and what is left of its rows once it ran. Rows that were all taken are let go."""

    prepared: Prepared
    values: tuple[Any, ...]
    formats: tuple[int, ...]
    hold: bool = False
    """Whether it outlives its transaction, if that is not undone."""
    kept: bool = False
    """Whether it has outlived one."""
    columns: tuple[ResultColumn, ...] | None = field(init=False, default=None)
    """The columns as they were described: what is sent then has their types."""
    outcome: StatementResult | None = field(init=False, default=None)
    """What its statement gave, without the rows."""
    size: int = field(init=False)
    """Bytes of its values, formats and columns."""
    row_size: int = field(init=False, default=0)
    """Bytes of its rows, until all of them were taken."""
    _rows: Rows = field(init=False, default=())
    _given: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.size = weigh(self.values) + weigh(self.formats)

    def describe(self, columns: tuple[ResultColumn, ...] | None) -> None:
        """Keep the columns that it will give."""
        self.size += weigh(columns) - weigh(self.columns)
        self.columns = columns

    def keep(self, outcome: StatementResult) -> None:
        """Keep what its statement gave: the rows until they are taken, and nothing that is copied out."""
        self.outcome, self._rows = replace(outcome, rows=(), copied=None), outcome.rows
        self.size += weigh(outcome.columns)
        self.row_size = int(self._rows.table.nbytes) if isinstance(self._rows, TableRows) else weigh(self._rows)

    def take(self, most: int | None) -> Rows:
        """The next rows, or all that are left; what was given is not given again."""
        rows = self._rows[self._given : None if most is None else self._given + most]
        self._given += len(rows)
        if not self.has_rows:
            self._rows, self._given, self.row_size = (), 0, 0
        return rows

    @property
    def has_rows(self) -> bool:
        """Whether rows are left."""
        return self._given < len(self._rows)


class PreparedStatements:
    """The prepared statements and portals of one session."""

    def __init__(self) -> None:
        self.prepared: dict[str, Prepared] = {}
        self.portals: dict[str, Portal] = {}

    def prepare(self, name: str, prepared: Prepared) -> None:
        """Keep a statement under a name that is free, or under no name."""
        if name and name in self.prepared:
            raise WireRefusal("42P05", "a prepared statement of that name exists already")
        held = self.prepared | {name: prepared}
        if len(held) > MOST_NAMES:
            raise WireRefusal("53400", f"more than {MOST_NAMES} prepared statements", "DEALLOCATE some")
        _refuse_full(held, self.portals)
        self.prepared = held

    def open(self, name: str, portal: Portal) -> None:
        """Keep a portal under a name that is free, or under no name."""
        if name and name in self.portals:
            raise WireRefusal("42P03", "a portal of that name exists already")
        held = self.portals | {name: portal}
        if len(held) > MOST_NAMES:
            raise WireRefusal("53400", f"more than {MOST_NAMES} portals", "CLOSE some")
        _refuse_full(self.prepared, held)
        self.portals = held

    def refuse_columns(self) -> None:
        """Refuse to keep the columns of another portal while so much is held."""
        _refuse_full(self.prepared, self.portals)

    def refuse_rows(self) -> None:
        """Refuse to ask another question whose rows are held while so many of others are."""
        self.refuse_columns()
        if sum(each.row_size for each in self.portals.values()) > MOST_ROW_BYTES:
            happened = f"answers whose rows were not all fetched have more than {MOST_ROW_BYTES} bytes"
            raise WireRefusal("53400", happened, "Fetch their rows to the end, or CLOSE some")

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

    def end_transaction(self, undone: bool) -> None:
        """Portals end with their transaction, but for those that are held: not those of one that is undone."""
        self.portals = {
            name: portal for name, portal in self.portals.items() if portal.kept or (portal.hold and not undone)
        }
        for portal in self.portals.values():
            portal.kept = True


def _refuse_full(prepared: Mapping[str, Prepared], portals: Mapping[str, Portal]) -> None:
    """Refuse what would be too much for one session; a statement that several names stand for counts once."""
    statements = {id(each): each for each in (*prepared.values(), *(each.prepared for each in portals.values()))}
    if sum(each.words for each in statements.values()) > MOST_TOKENS:
        happened = f"prepared statements and cursors have more than {MOST_TOKENS} words"
        raise WireRefusal("53400", happened, "DEALLOCATE or CLOSE some")
    sizes = [each.size for each in statements.values()] + [each.size for each in portals.values()]
    if sum(sizes) + sum(map(sys.getsizeof, (*prepared, *portals))) > MOST_BYTES:
        happened = f"statements, values and columns of this session have more than {MOST_BYTES} bytes"
        raise WireRefusal("53400", happened, "DEALLOCATE or CLOSE some")


def parse_prepare(statement: Statement) -> tuple[str, Prepared]:
    """The name and the statement of PREPARE name (types) AS statement."""
    name, body = _read_name(statement, 1), _read_statement_after(statement, "as")
    words = statement.words
    listed = words[3 : words.index(")")] if words[2:3] == ("(",) and ")" in words else ()
    given = tuple(_TYPE_WORDS.get(listed[at], 0) for at in range(len(listed)) if not at or listed[at - 1] == ",")
    return name, Prepared(body, infer_types(body, given, {}))


def parse_declare(statement: Statement, values: Sequence[Any]) -> tuple[str, Portal]:
    """The name and the portal of DECLARE name ... CURSOR ... FOR statement."""
    name, body = _read_name(statement, 1), _read_statement_after(statement, "for")
    options = statement.words[2 : statement.words.index("for")]
    if "binary" in options:
        raise WireRefusal("0A000", "binary cursors are not supported", "Leave out BINARY")
    hold = "hold" in options and "without" not in options
    return name, Portal(Prepared(body, infer_types(body, (), {})), tuple(values), (), hold=hold)


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


_COMPARISONS = frozenset({"=", "<", ">", "<=", ">=", "<>", "!="})
_TYPE_WORDS = {name: oid for oid, name in v.TYPE_NAMES.items()} | {
    "bigint": v.INT8, "integer": v.INT4, "int": v.INT4, "smallint": v.INT2, "boolean": v.BOOL, "real": v.FLOAT4,
    "double": v.FLOAT8, "decimal": v.NUMERIC, "character": v.VARCHAR,
}  # fmt: skip


def infer_types(statement: Statement | None, oids: tuple[int, ...], columns: Mapping[str, int]) -> tuple[int, ...]:
    """A type for each parameter: the client's own, or that of the column it is compared with; else it is a text.

    >>> [question] = split_statements("SELECT COUNT(*) FROM people WHERE age BETWEEN $1 AND $2 AND sex = ANY($3)")
    >>> infer_types(question, (), {"age": v.INT8, "sex": v.TEXT})
    (20, 20, 1009)
    >>> infer_types(split_statements('SELECT $1::"pg_catalog"."int8"::text, CAST($2 AS pg_catalog.date)')[0], (), {})
    (20, 1082)
    """
    tokens = statement.tokens if statement else ()
    numbers = {place: _read_number(token) for place, token in enumerate(tokens) if token.kind is Kind.PARAMETER}
    words = [token.text if token.kind is Kind.STRING else token.value for token in tokens]
    found: dict[int, int] = {}
    operands: dict[int, int] = {}
    for place, number in numbers.items():
        found[number] = found.get(number) or _infer_type(words, place, columns, operands) or 0
    count = max((len(oids), *found))
    given = (*oids, *[0] * (count - len(oids)))
    return tuple(oid or found.get(i) or v.TEXT for i, oid in enumerate(given, start=1))


def _infer_type(words: Sequence[str], place: int, columns: Mapping[str, int], operands: dict[int, int]) -> int | None:
    """The type that the words around a parameter ask for, if they do; `operands` are those found for others before."""
    before, after = words[max(0, place - 3) : place], list(words[place + 1 : place + 7])
    if after[1:3] == ["pg_catalog", "."]:
        del after[1:3]
    if after[:1] == ["::"] or (after[:1] == ["as"] and before[-2:] == ["cast", "("]):
        inner = _TYPE_WORDS.get(after[1]) if len(after) > 1 else None
        return v.ARRAY_OF.get(inner) if inner is not None and after[2:4] == ["[", "]"] else inner
    if before[-1:] in (["limit"], ["offset"]):
        return v.INT8
    if before[-2:] == ["any", "("] or before[-2:] == ["all", "("]:
        return v.ARRAY_OF.get(columns.get(_read_operand(words, place - 4), 0))
    if before[-1:] and before[-1] in _COMPARISONS | _ARITHMETIC:
        found = _infer_before(words, place - 2, columns)
        if before[-1] in _COMPARISONS or found in _NUMBERS:
            return found
    if after[:1] and after[0] in _COMPARISONS | _ARITHMETIC:
        found = _infer_after(words, place + 2, columns)
        if after[0] in _COMPARISONS or found in _NUMBERS:
            return found
    return columns.get(_read_operand(words, _find_operand(words, place, operands)))


def _infer_before(words: Sequence[str], at: int, columns: Mapping[str, int]) -> int | None:
    """The type of an operand that ends at a word: a column, a number, or the call of a function."""
    if _read_operand(words, at) != ")":
        return _infer_operand(words, at, columns)
    depth = 0
    for start in range(at, max(-1, at - MOST_OPERAND), -1):
        depth += (words[start] == ")") - (words[start] == "(")
        if depth == 0:
            return _RESULTS.get(_read_operand(words, start - 1))
    return None


def _infer_after(words: Sequence[str], at: int, columns: Mapping[str, int]) -> int | None:
    """The type of an operand that begins at a word."""
    if _read_operand(words, at + 1) == "(":
        return _RESULTS.get(words[at])
    return _infer_operand(words, at + 2 if _read_operand(words, at + 1) == "." else at, columns)


def _infer_operand(words: Sequence[str], at: int, columns: Mapping[str, int]) -> int | None:
    """The type of a column or a number; numbers as such may be compared with any."""
    word = _read_operand(words, at)
    return v.FLOAT8 if word[:1].isdecimal() else columns.get(word)


_ARITHMETIC = frozenset("+-*/%")
_NUMBERS = frozenset({*v.INTEGERS, v.FLOAT4, v.FLOAT8, v.NUMERIC})
MOST_OPERAND = 200
"""Words of a call that are looked at."""
_RESULTS = dict.fromkeys(
    (
        "length",
        "char_length",
        "character_length",
        "strpos",
        "position",
        "count",
        "year",
        "month",
        "day",
        "hour",
        "minute",
        "quarter",
        "week",
    ),
    v.INT8,
)
_RESULTS |= dict.fromkeys(
    (
        "sum",
        "avg",
        "median",
        "variance",
        "stddev",
        "abs",
        "round",
        "floor",
        "ceil",
        "ceiling",
        "trunc",
        "sqrt",
        "exp",
        "ln",
        "power",
        "mod",
        "extract",
        "date_part",
    ),
    v.FLOAT8,
)
"""The types of what functions give, where it is not a text."""


def _read_number(token: Token) -> int:
    """The number of a parameter."""
    if len(token.text) > 5 or not 0 < int(token.text[1:]) <= MOST_PARAMETERS:
        raise WireRefusal("42P02", f"parameters are numbered from $1 to ${MOST_PARAMETERS}")
    return int(token.text[1:])


def _find_operand(words: Sequence[str], place: int, operands: dict[int, int]) -> int:
    """Where the operand of BETWEEN or IN stands before a parameter; -1 where there is none."""
    at = place - 1
    while at > 0 and at not in operands and (
        words[at] in (",", "(", "and", "not") or words[at].startswith(("$", "'")) or words[at].isdigit()
    ):  # fmt: skip
        at -= 1
    if at not in operands:
        named = at > 0 and words[at] in ("in", "between")
        operands[at] = -1 if not named else at - 2 if words[at - 1] == "not" else at - 1
    operands[place - 1] = operands[at]
    return operands[at]


def _read_operand(words: Sequence[str], at: int) -> str:
    return words[at] if 0 <= at < len(words) else ""


def expand_arrays(statement: Statement, values: Sequence[Any]) -> tuple[str, tuple[Any, ...]]:
    """The text and values of a statement in which `= ANY ($1)` of a list is IN, and `<> ALL ($1)` is NOT IN.

    Lists that stand elsewhere stay lists.

    >>> [question] = split_statements("SELECT COUNT(*) FROM people WHERE sex = ANY($1::text[])")
    >>> expand_arrays(question, [["F", "M"]])
    ('SELECT COUNT(*) FROM people WHERE sex IN ($1, $2)', ('F', 'M'))
    >>> expand_arrays(split_statements("SELECT COUNT(*) FROM people WHERE sex<>ALL($1)AND age>3")[0], [["F"]])[0]
    'SELECT COUNT(*) FROM people WHERE sex NOT IN ($1)AND age>3'
    """
    tokens, pieces, end = statement.tokens, [], 0
    filled = ["{}" if each == [] else each for each in values]
    words = [token.text if token.kind is Kind.STRING else token.value for token in tokens]
    for at in range(len(tokens) - 4):
        word = {("=", "any"): "IN", ("<>", "all"): "NOT IN", ("!=", "all"): "NOT IN"}.get((words[at], words[at + 1]))
        number = _read_number(tokens[at + 3]) if tokens[at + 3].kind is Kind.PARAMETER else 0
        given = values[number - 1] if 0 < number <= len(values) else None
        if (
            word is None
            or words[at + 2] != "("
            or not isinstance(given, list)
            or not given
            or ")" not in words[at + 4 :]
        ):
            continue
        closing = words.index(")", at + 4)
        places = [number, *range(len(filled) + 1, len(filled) + len(given))]  # the first in the place of the array
        filled[number - 1] = given[0]
        filled += given[1:]
        listed = ", ".join(f"${each}" for each in places)
        before = statement.text[end : tokens[at].start]
        pieces += [before if before[-1:].isspace() else f"{before} ", f"{word} ({listed})"]
        end = tokens[closing].end
    return "".join([*pieces, statement.text[end:]]), tuple(filled)


def drop_catalog(statement: Statement, dataset: str) -> str:
    """The text without the name of the catalog before `public`: there is one.

    >>> [question] = split_statements("SELECT COUNT(*) FROM clinic.public.people")
    >>> drop_catalog(question, "clinic")
    'SELECT COUNT(*) FROM public.people'
    """
    words, pieces, end = statement.words, [], 0
    for at, token in enumerate(statement.tokens):
        if words[at : at + 4] == (dataset, ".", "public", ".") and token.kind in (Kind.WORD, Kind.NAME):
            pieces.append(statement.text[end : token.start])
            end = statement.tokens[at + 1].end
    return "".join([*pieces, statement.text[end:]])


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
